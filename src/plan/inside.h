/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the plan room share, and what prices and searches need of it. */
#ifndef SHERD__PLAN_INSIDE_H
#define SHERD__PLAN_INSIDE_H

#include "plan.h"
#include "state.h"
#include "base/num.h"

/*
 * How two layouts of one shape on one mesh differ. Axes of extent 1 are left out: they cost no
 * step. In each dim the outermost axes with equal merged cuts (`common`) take no part; the axes
 * after these, in the source's and the target's list, do.
 */
typedef struct sherd__change {
    const sherd_mesh *mesh;
    int ndim;
    int common[SHERD_MAX_DIMS];
    /* whole lists, without extents of 1 */
    sherd__dim source[SHERD_MAX_DIMS], target[SHERD_MAX_DIMS];
    unsigned gathered; /* axes that cut the source otherwise than the target: pulls cross them */
    unsigned cut;      /* axes that cut the target otherwise than the source */
    unsigned reduced;  /* axes pending in the source, not in the target: pulls cross them too */
    unsigned pending;  /* axes pending in both */
    unsigned parted;   /* axes pending in the target, replicated in the source */
    int64_t addends;   /* product of the extents of the reduced axes */
    sherd_reduce_op op;
    double divisor; /* of avg; the product of the extents of its axes */
    /* between two meshes: the lists are empty, and all axes cut otherwise: nothing is shared */
    bool across;
} sherd__change;

/* Whether every rank's box is the same before and after. */
bool sherd__boxes_stay(const sherd__change *change);

/* Axes where a sum or product of `to` begins: all but their first ranks get the neutral element. */
unsigned sherd__neutral_axes(const sherd__change *change, const sherd_layout *to);

void sherd__change_find(sherd__change *change, const sherd_layout *from, const sherd_layout *to);

/* Product of the extents of some axes of a mesh. */
int64_t sherd__extent_of(const sherd_mesh *mesh, unsigned axes);

/* Next coordinate over some axes, the last one fastest; false when it is back at zero. */
bool sherd__next(const sherd_mesh *mesh, unsigned axes, int64_t *coordinate);

/*
 * How much one step moves, in elements, exact, if each target rank pulls its addends directly from
 * their holders. Computed by classes of coordinates. Numbers of 2^62 and more are capped.
 */
typedef struct sherd__amounts {
    int64_t source_max, target_max;     /* the largest source and target box of a rank */
    int64_t both_max;                   /* the most that a rank has of both together */
    int64_t receive_max, receive_total; /* from other ranks, each addend counted */
    int64_t send_max;
    int64_t target_total; /* sum over ranks */
    int64_t bound_total;  /* no plan receives less in all */
} sherd__amounts;

void sherd__amounts_find(sherd__amounts *out, const sherd__change *change, const int64_t *shape);

/* `receive_total` alone: cheaper than sherd__amounts_find by the maxima. */
int64_t sherd__received_total(const sherd__change *change, const int64_t *shape);

/* Below 2^62 elements, 2^31 ranks and 2^31 addends: every exact number is below 2^124. */
__extension__ typedef __int128 sherd__wide;

/*
 * Saturating arithmetic below 2^62 (a negative operand counts as an overflow): sizes, bytes and
 * times of layouts that no machine can hold stay comparable.
 */
#define SHERD__MOST (((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1)

static inline int64_t sherd__cut(sherd__wide value)
{
    return value < SHERD__MOST ? (int64_t)value : SHERD__MOST;
}

static inline int64_t sherd__mul_cut(int64_t a, int64_t b)
{
    return a < 0 || b < 0 ? SHERD__MOST : sherd__cut((sherd__wide)a * b);
}

static inline int64_t sherd__add_cut(int64_t a, int64_t b)
{
    return a < 0 || b < 0 || a >= SHERD__MOST - b ? SHERD__MOST : a + b;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The kind of a change; `amounts` decide only whether anything is sent. */
sherd_step_kind sherd__step_kind(const sherd__change *change, const sherd__amounts *amounts);

/*
 * Whether the result of a local step shares the storage of its source: if dims are cut as before,
 * and all ranks keep their contents. If only some do, they have copies too, so that what is written
 * to the source later shows in the result on all ranks or on none.
 */
bool sherd__step_shares(const sherd_step *step, const sherd__change *change);

/*
 * Add to sent[] what each rank sends for this rank's schedule: the bytes that it pulls from others,
 * and those that it writes to others. NULL adds nothing.
 */
void sherd__schedule_add_sent(const sherd__schedule *schedule, int rank, size_t element_bytes,
                              int64_t *sent);

/* Elements of slice `i` of `n` that `p` ranks share: whole cache lines, the tail may be empty. */
void sherd__slice_of(int64_t n, int64_t p, int64_t i, int64_t *lo, int64_t *hi);

/*
 * Make a schedule. `find` adds regions, each followed by its pulls, and readers; it is called
 * twice, to count and to write, and must do the same both times. ELIMIT if it is full.
 */
sherd_status sherd__schedule_make(sherd__schedule **out, sherd__space *space,
                                  void (*find)(sherd__schedule *s, const void *what),
                                  const void *what, int rank, size_t element_bytes);
/* How many parts, and ranks that read them, a schedule may have; gigabytes of lists. */
enum { SHERD__PARTS = 1 << 24 };

/* Whether there are more: then nothing need be added, as schedule_make refuses. */
static inline bool sherd__schedule_full(const sherd__schedule *s)
{
    return s->pulls > SHERD__PARTS || s->readers > SHERD__PARTS || s->sharers > SHERD__PARTS;
}

void sherd__schedule_region(sherd__schedule *s, const int64_t *offset, const int64_t *size);
void sherd__schedule_pull(sherd__schedule *s, int me, int rank, const int64_t *offset);
void sherd__schedule_reader(sherd__schedule *s, int rank);
void sherd__schedule_sharer(sherd__schedule *s, int rank);

/* ---- two meshes ----------------------------------------------------------------------------- */

/* As sherd__schedule_create; an empty one for a rank in neither mesh. */
sherd_status sherd__across_schedule(sherd__schedule **out, sherd__space *space,
                                    const sherd_step *step, size_t element_bytes, int rank);

#endif
