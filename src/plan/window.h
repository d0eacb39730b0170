/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Windows: what ranks need of a tensor beyond the boxes that they hold. For each dim each shard
 * asks for an interval of indices. Intervals may overlap those of other shards, cover several
 * shards, and extend beyond the tensor, where a border defines the elements. Pure, like layouts.
 *
 * A window has two plans of one step each. One brings every rank its window; the other is its
 * adjoint, and adds what ranks have in their windows to the elements it came from, in rank order.
 */
#ifndef SHERD__PLAN_WINDOW_H
#define SHERD__PLAN_WINDOW_H

#include "plan.h"
#include "sherd/halo.h"

/* What the shards of one dim ask for: shard i for [span[2i], span[2i + 1]). */
typedef struct sherd__reach {
    int64_t n; /* of the dim */
    int64_t shards;
    int64_t *span;
    sherd_border before, after; /* of the dim's ends */
} sherd__reach;

typedef struct sherd__window {
    int refs;
    const sherd_layout *layout; /* counted; nothing pending */
    sherd__reach reach[SHERD_MAX_DIMS];
    bool inside;   /* the rank of the space is in the layout's mesh; */
    sherd_box box; /* and what it asks for, in global indices */
    double value;  /* beyond a constant border */
    bool leaves;   /* filling in place leaves what lies beyond a constant border */
    uint64_t hash; /* of content */
    int64_t *spans;
} sherd__window;

/* What is asked for. */
typedef struct sherd__asking {
    /* What shard `shard` of dim d, which is [lo, hi), asks for. */
    void (*span)(const void *what, int d, int64_t shard, int64_t lo, int64_t hi, int64_t *first,
                 int64_t *end);
    const void *what;
    const sherd_halo_options *borders; /* its widths are ignored; NULL = no border anywhere */
} sherd__asking;

/*
 * A window on tensors of a layout. The part of a span beyond an end without a border is cut off; a
 * shard that asks for nothing has an empty span. ENOMEM. Released by its count.
 */
sherd_status sherd__window_create(sherd__window **out, const sherd_layout *layout,
                                  const sherd__asking *asking);
sherd__window *sherd__window_retain(sherd__window *window);
void sherd__window_release(sherd__window *window);
bool sherd__window_equal(const sherd__window *a, const sherd__window *b);
/* How much memory it takes, without its layout: of its spans, one for each shard; NULL: none. */
size_t sherd__window_bytes(const sherd__window *window);

/*
 * The window of a halo; the last few are cached, since steps ask for the same ones again. EINVAL as
 * sherd_halo, with the name of the public function and a text of what it was called on. Released by
 * its count.
 */
sherd_status sherd__window_of_halo(sherd__window **out, const sherd_layout *layout,
                                   const sherd_halo_options *options, const char *function,
                                   const char *text);

/*
 * ELIMIT, with these two, if borders repeat elements so often that a window of so many regions
 * would be of no use.
 */
sherd_status sherd__check_borders(const sherd_layout *layout, const sherd_halo_options *options,
                                  const char *function, const char *text);

/* The name of a border, "REFLECT", or its number if there is none. */
const char *sherd__border_text(int border, char text[16]);

/* Whether the value of the options stands beyond an end of one of ndim dims. */
bool sherd__has_constant_border(const sherd_halo_options *options, int ndim);

/* The same if it is cached, for a caller that has no text yet; otherwise NULL. */
sherd__window *sherd__halo_kept(const sherd_layout *layout, const sherd_halo_options *options);
/* Drop the cached ones. */
void sherd__halos_clear(sherd__space *space);

/* The window of the rank at a coordinate, in global indices. */
void sherd__window_box(const sherd__window *window, const int64_t *coordinate, sherd_box *box);

/*
 * Neighbouring indices of a span that are contiguous in the tensor, or all beyond a constant
 * border.
 */
typedef struct sherd__stretch {
    int64_t at;   /* place in the span */
    int64_t from; /* index in the tensor; -1: none */
    int64_t count;
} sherd__stretch;

/* The next stretch of a shard's span; begin with all zero. False: there is none. */
bool sherd__stretch_next(const sherd__reach *reach, int64_t shard, sherd__stretch *s);

typedef enum sherd__direction {
    SHERD__GATHER, /* a rank's target is its window */
    SHERD__FILL,   /* the same, if its own piece is in the window already */
    SHERD__FOLD    /* a rank's target is its piece; windows are added up */
} sherd__direction;

#endif
