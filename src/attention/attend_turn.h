/* SPDX-License-Identifier: Apache-2.0 */
/* Attention piece by piece, on one rank (attend_turn.c). */
#ifndef SHERD__ATTENTION_ATTEND_TURN_H
#define SHERD__ATTENTION_ATTEND_TURN_H

#include "attend.h"
#include "plan/window.h"

/* Keys that this rank computes with, as numbers of the dtype that it computes in. */
typedef struct sherd__piece {
    int visit; /* -1 = its own, in a ring */
    int64_t first, keys;
    const void *k, *v;
} sherd__piece;

/*
 * What a run of a rank's queries computes with a run of a piece's keys, where positions follow one
 * another on both sides: all of it, unless sequences are in zigzag order; then of one item.
 */
typedef struct sherd__strip {
    sherd__attending s;
    /* where it begins: elements of queries, of the piece's keys, numbers of each query, the mask */
    int64_t at_query, at_key, at_row, at_mask;
    sherd__row_run q, k;
    int64_t item;
} sherd__strip;

/* Gradients on their way back. */
typedef struct sherd__turn_parcel {
    sherd__window *window; /* NULL = none */
    sherd__windowed list[2];
} sherd__turn_parcel;

typedef struct sherd__turn {
    sherd_call *call;
    int q;                 /* the operand; k, v and the mask follow */
    sherd__device *device; /* the GPU that computes all of it; NULL: the CPU does */
    sherd_dtype own;       /* of the operands */
    sherd_dtype dtype;     /* of sums; on the CPU also what is computed with */
    const sherd__kernels *kernels;
    sherd__round plan;
    int64_t mine; /* shard; -1: this rank is not in the mesh */
    int64_t most; /* keys that it computes with at once */
    sherd__attending s;
    const void *queries;
    void *wide[2]; /* for visiting k and v of 16 bits */
    void *workspace;
    bool dry;     /* nothing is computed */
    bool started; /* something has been computed */
    bool split;   /* by strips (below); numbers of each query lie by strips then */
    /* forward */
    void *out, *log_sum, *more, *more_log_sum;
    /* backward; `more` is for the queries' gradient */
    const void *dout, *result, *log_sums, *dlog_sum; /* result, log_sums: over all keys */
    void *dq, *dk, *dv;
    void *more_dk, *more_dv; /* of a piece, on the GPU or of strips */
    double *dmask;
    sherd__turn_parcel back; /* begun */
} sherd__turn;

/* Scratch for n numbers of r->dtype. NULL: failed. */
void *sherd__turn_room(const sherd__turn *r, int64_t n);
/* Fill with n zeroes. */
void sherd__turn_clear(const sherd__turn *r, void *to, int64_t n);
/* Operand i in the dtype that is computed in. False: failed. */
bool sherd__turn_take(sherd__turn *r, const void **out, int i);
/* Zeroes to sum result j up in: the result itself, unless it has 16 bits. NULL: failed. */
void *sherd__turn_sums(sherd__turn *r, int j);
/* At the end, write the sums to result j. */
void sherd__turn_give(const sherd__turn *r, int j, const void *sums);

/* Operands from q on. False: failed. */
bool sherd__turn_prepare(sherd__turn *r, sherd_call *call, int q);
/* Meet all pieces. False: failed. */
bool sherd__turn_go(sherd__turn *r, bool (*meet)(sherd__turn *r, const sherd__piece *p));

/*
 * The strips of a piece in which queries see any key, one after the other: from {.item = -1} on.
 * False: there are no more.
 */
bool sherd__turn_strip(const sherd__turn *r, const sherd__piece *p, sherd__strip *x);
/* Numbers of each query, [batch,heads,queries], as strips have them, or back from these. */
void sherd__turn_by_strips(const sherd__turn *r, void *to, const void *from, bool back);
/* Numbers of each query that strips read. NULL, of some: failed. */
const void *sherd__turn_take_rows(const sherd__turn *r, const void *from);
/* Element n of a dtype from p on; NULL of NULL. */
void *sherd__turn_at(const void *p, int64_t n, sherd_dtype dtype);

/* The operand that is keys. */
const sherd_tensor *sherd__turn_keys(const sherd__turn *r);
/* Whether this rank's queries see any key of a piece. */
bool sherd__turn_meets(const sherd__turn *r, const sherd__piece *p);

/* Let go of what was on its way. */
void sherd__parcel_drop(sherd__turn_parcel *p);

#endif
