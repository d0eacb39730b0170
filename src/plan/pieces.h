/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A step taken apart into what has to be walked to know its amounts: per dim the two lists beyond
 * what they share, the classes of shards above, and for each axis the coordinates that behave
 * alike. And the walk. A plain value for the stack; nothing here allocates or fails.
 */
#ifndef SHERD__PLAN_PIECES_H
#define SHERD__PLAN_PIECES_H

#include "inside.h"

enum {
    SHERD__SOURCE = 0,
    SHERD__TARGET = 1,
    /*
     * Each axis turns a length into at most two others and 0, so 8 axes make at most 2^8 + 1 in
     * all, and every dim has one more.
     */
    SHERD__LENGTH_CLASSES = 272,
    SHERD__SPLITS = 24
};

/* One side's list of a dim beyond the common axes, outermost first. */
typedef struct sherd__list {
    int levels;
    int axis[SHERD_MAX_AXES];
    int64_t extent[SHERD_MAX_AXES];
    int64_t below[SHERD_MAX_AXES]; /* shards within one child at this level; of explicit cuts */
    const int64_t *cuts;           /* of the whole dim; NULL = default */
    int64_t longest;               /* of all shards of the side, whatever their class */
} sherd__list;

/* The list of a dim of size n from a level on. With explicit cuts costs their length. */
void sherd__list_make(sherd__list *list, const sherd_mesh *mesh, const sherd__dim *dim, int first,
                      int64_t n);

/*
 * Axes of which every coordinate counts. Of the others, runs of coordinates give equal lengths
 * everywhere; a new run begins at each split.
 */
typedef struct sherd__runs {
    const sherd_mesh *mesh;
    unsigned positional;
    int splits[SHERD_MAX_AXES];
    int64_t split[SHERD_MAX_AXES][SHERD__SPLITS]; /* ascending */
} sherd__runs;

enum { SHERD__LENGTHS = 64 };

/*
 * Split the axes of a list by where the children of shards of these lengths, and theirs, turn from
 * full to short to empty. Then length[*count] are what is left of them at the end, or *count is
 * SHERD__LENGTHS + 1: too many. It may be that on entry.
 */
void sherd__runs_list(sherd__runs *runs, const sherd__list *list, int64_t *length, int *count);

/* Next coordinate after `at` that is not like it. */
int64_t sherd__runs_next(const sherd__runs *runs, int axis, int64_t at);

/* An interval that a list has come to. */
typedef struct sherd__place {
    int level;
    int64_t lo, hi;
    int64_t number; /* of shards as large as this one, where cuts are explicit */
} sherd__place;

/* Shards at the common depth that are alike. */
typedef struct sherd__class {
    int64_t length, count;
} sherd__class;

typedef struct sherd__pieces {
    int64_t n;
    unsigned axes; /* of both lists */
    sherd__list side[2];
    /*
     * Shards at the common depth. With default cuts: classes of equal length, in the pool from
     * `first` on. With explicit cuts: each shard by itself, class i is [cuts[i * below],
     * cuts[(i + 1) * below]).
     */
    int64_t classes;
    int first;
    const int64_t *cuts;
    int64_t below;
} sherd__pieces;

/* Dims that are linked by moving axes, and in which order they are walked: first the classes of the
 * dims (a dim's number), then the axes (SHERD_MAX_DIMS + number). */
typedef struct sherd__component {
    unsigned dims, axes;
    int length;
    int8_t order[SHERD_MAX_DIMS + SHERD_MAX_AXES];
} sherd__component;

typedef struct sherd__grid {
    const sherd_mesh *mesh;
    int ndim;
    sherd__pieces dim[SHERD_MAX_DIMS];
    int8_t dim_of[2][SHERD_MAX_AXES]; /* the dim whose list the axis is in; -1 = none */
    sherd__runs runs;
    int components;
    sherd__component component[SHERD_MAX_DIMS];
    int pooled;
    sherd__class pool[SHERD__LENGTH_CLASSES];
} sherd__grid;

void sherd__grid_make(sherd__grid *grid, const sherd__change *change, const int64_t *shape);

/* One component of all dims that move, without an order. */
void sherd__grid_join(const sherd__grid *grid, sherd__component *out);

/* Order a component: the axes `first` before the others. */
void sherd__component_order(const sherd__grid *grid, sherd__component *c, unsigned first);

/* Where class i of a dim lies; both lists begin there. */
void sherd__class_place(const sherd__grid *grid, int d, int64_t i, sherd__place *out,
                        int64_t *count);

/* Down along all axes that are known and not `crossed`, as far as the list allows. */
void sherd__place_descend(const sherd__list *list, sherd__place *place, const int64_t *at,
                          unsigned known, unsigned crossed);

/* Children of a place that have something in [lo, hi): [*first, *end). */
void sherd__place_meeting(const sherd__list *list, const sherd__place *place, int64_t lo,
                          int64_t hi, int64_t *first, int64_t *end);

/* At which shards to look: at all coordinates of the `crossed` axes, at my own of the others. */
typedef struct sherd__look {
    unsigned crossed;
    const int64_t *at;
    bool counting; /* how many shards hold something, not how much */
} sherd__look;

/* What of [lo, hi) the shards below a place hold. */
int64_t sherd__place_gather(const sherd__list *list, sherd__place place, int64_t lo, int64_t hi,
                            const sherd__look *look);

/* The longest shard below a place, or a little more. */
int64_t sherd__place_longest(const sherd__list *list, const sherd__place *place);

/* ---- the sweep ------------------------------------------------------------------------------ */

/*
 * A sweep over the ranks of one component, equal ones at once. It looks at each from the interval
 * that it has on the `near` side: what of it lies on the far side at all coordinates of the axes
 * `through` (and mine on the others), and the same for fewer axes, `own`. Ranks that find nothing
 * are left out.
 */
typedef struct sherd__sweep {
    const sherd__grid *grid;
    const sherd__component *component;
    int near;
    unsigned through, own;
    /*
     * Whether ranks below this point can matter; NULL = all can. `leaf` gets each point, and how
     * many ranks it stands for. Either ends the sweep by setting `done`.
     */
    bool (*worth)(const struct sherd__sweep *sweep);
    void (*leaf)(struct sherd__sweep *sweep, int64_t times);
    void *what;
    bool everything; /* also ranks that find nothing */
    bool done;
    /*
     * the place in each dim: mine; on the far side, as far as `through`, and as `own`, determine it
     */
    sherd__place mine[SHERD_MAX_DIMS], fence[SHERD_MAX_DIMS], inner[SHERD_MAX_DIMS];
    int64_t at[SHERD_MAX_AXES];
    unsigned known; /* axes */
} sherd__sweep;

void sherd__sweep_run(sherd__sweep *sweep);

#endif
