/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What sherd_sample_rows is made of: one row (sample_one.c), rows that are whole (sample_rows.c),
 * and rows that are sharded (sample_shards.c, with sample_batch.c and sample_nucleus.c).
 */
#ifndef SHERD__FUNCTIONAL_SAMPLE_H
#define SHERD__FUNCTIONAL_SAMPLE_H

#include "draw.h"
#include "ops/shared.h"

enum { LOGITS, KEY, TEMPERATURE, TOP_K, TOP_P, MIN_P, OPERANDS };

typedef struct sherd__sample_how {
    bool marks; /* as in sherd_sample_options */
} sherd__sample_how;

/* Whether rows of these logits stay sharded: they are long. *apart: ranks have parts of different
 * rows, too. */
bool sherd__sample_stays(const sherd_tensor *logits, bool *apart);

/* Of how many shards the rows of this call are; 1: they are whole. */
int64_t sherd__sample_shards(const sherd_call *call);

/* Whether row i of those here, which has a fault, is marked by -1; false: the call fails by it. */
bool sherd__sample_marked(sherd_call *call, int64_t i, const char *fault);

/* Options, number and length of row i; and its logits, or this shard's, to d->x. */
void sherd__sample_row(const sherd_call *call, int64_t i, sherd__row *d);
void sherd__sample_load(const sherd_call *call, int64_t i, const sherd__row *d);

/* Of row i here the largest logit, NaN if one is; and the first element that is d->most. */
double sherd__sample_most(sherd_call *call, int64_t i);
int64_t sherd__sample_first(const sherd_call *call, int64_t i, const sherd__row *d);

/* Forward of rows that are sharded. False: failed. */
bool sherd__sample_sharded(sherd_call *call);

/* ---- for it ---------------------------------------------------------------------------------- */

/* A call under way, of rows that are sharded. In a dry world contents are not touched. */
typedef struct sherd__batch {
    sherd_call *call;
    int64_t rows, shards, mine; /* the number of this rank's shard */
    bool apart;                 /* other ranks have other rows, and must do the same exchanges */
    int64_t width;              /* of lists: numbers of a shard for each row */
    double *lists;              /* [rows, shards, width] */
    int64_t *sums;              /* [rows, shards]: of the weights that are kept */
    int64_t *limit;             /* [rows]: the least weight that top_p keeps; NULL: no top_p */
    sherd__bins *bins;          /* [rows]: of this shard; or NULL */
    int32_t *index;             /* [rows]: what is drawn of rows that are gathered */
    bool *left;                 /* [rows]: the row is gathered */
    bool *bad;                  /* [rows]: nothing can be drawn */
    sherd__row *draw;           /* [rows] */
    int64_t rooms;              /* so many rows have rooms of their own; the others share one */
    bool *loaded, *weighed;     /* [rows]: the row's own room has its logits, its weights */
    int64_t *next;              /* [shards], scratch */
    void *scratch;              /* for one row's lists */
} sherd__batch;

/* So many numbers, as many as one row has of `count`: the most of all ranks; -1: failed. */
int64_t sherd__sample_width(const sherd__batch *b, int64_t count);

/*
 * `count` numbers of each shard to all, which are at most `width` for each row: those of shard s
 * begin at s * *stride of the result. NULL: failed.
 */
const void *sherd__sample_exchange(const sherd__batch *b, sherd_dtype dtype, int64_t width,
                                   int64_t count, const void *from, int64_t *stride);

/* Have the logits here of row r. */
void sherd__sample_loaded(sherd__batch *b, int64_t r);

/* Row r with its weights here, before top_p; if they are computed now, `sum` gets theirs. */
sherd__row *sherd__sample_weighed(sherd__batch *b, int64_t r, int64_t *sum);

/* Whether row r draws by weights that shards have. */
bool sherd__sample_weighs(const sherd__batch *b, int64_t r);

/* The sum of all shards' weights of row r. */
int64_t sherd__sample_total(const sherd__batch *b, int64_t r);

/* Set b->limit, and b->sums to what top_p keeps. False: failed. */
bool sherd__sample_nucleus(sherd__batch *b);

#endif
