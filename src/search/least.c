/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of any plan that has reductions to carry out, for pruning the search.
 *
 * A plan reduces the pending axes in one or more stages. A stage writes boxes no smaller than the
 * smallest that exist with what is pending after it; or, as an all-reduce, it keeps its boxes,
 * which are no smaller than the smallest that exist with what is pending before it. The target's
 * boxes are written by the last stage; or by a later step that receives them; or by a later step
 * that cuts them out of larger ones, so that the last stage wrote no smaller boxes. The cheapest
 * such sequence, found over sets of pending axes, is the bound. Costs 3^(pending axes) steps.
 */
#include "search.h"
#include "base/num.h"

#include <string.h>

typedef struct bounds {
    const sherd__field *field;
    int64_t smallest[SHERD__MASKS]; /* box, by what is pending */
    int64_t goal;                   /* the largest box of the goal */
} bounds;

/* The axes that may cut make at most so many boxes, and the largest has at least its part. */
static void smallest_of_any(bounds *b)
{
    const sherd__field *field = b->field;

    for (unsigned mask = field->reduced;; mask = (mask - 1) & field->reduced) {
        int64_t parts = sherd__extent_of(field->mesh, field->movable & ~mask);
        b->smallest[mask] = sherd__ceil_div(field->elements, parts);
        if (mask == 0)
            return;
    }
}

static void smallest_of_nodes(bounds *b)
{
    for (int i = 0; i < b->field->nodes; i++) {
        const sherd__node *node = &b->field->node[i];
        int64_t *smallest = &b->smallest[node->pending];
        if (i != SHERD__GOAL || !b->field->across)
            *smallest = *smallest ? sherd__min(*smallest, node->longest) : node->longest;
    }
}

static void prepare(bounds *b, const sherd__field *field)
{
    memset(b, 0, sizeof *b);
    b->field = field;
    if (field->nodes && field->all_states)
        smallest_of_nodes(b);
    else
        smallest_of_any(b);
    b->goal = sherd__layout_largest(field->goal);
}

static int64_t arena_time(const sherd__field *field, sherd_step_kind kind, int64_t n, int64_t k)
{
    bool sliced;

    return sherd__arena_time(&sliced, kind, kind == SHERD_STEP_ALL_REDUCE, n, k, field->bytes);
}

/* The time of a stage, into any boxes, after which only `after` of `before` is pending. */
static int64_t stage(const bounds *b, unsigned before, unsigned after)
{
    const sherd__field *field = b->field;
    int64_t k = sherd__extent_of(field->mesh, before & ~after);

    if (field->price != &sherd__price_arena)
        return field->price->floor(field->problem, b->smallest[after], k);
    return sherd__min(arena_time(field, SHERD_STEP_REDUCE_EXCHANGE, b->smallest[after], k),
                      arena_time(field, SHERD_STEP_ALL_REDUCE, b->smallest[before], k));
}

/* The last stage, into any boxes, and a later step in which ranks receive the target's. */
static int64_t stage_and_arrival(const bounds *b, unsigned before)
{
    return sherd__add_cut(stage(b, before, 0),
                          b->field->price->floor(b->field->problem, b->goal, 1));
}

/*
 * The last stage, if it writes the target's boxes, or if only a cut follows. While an axis that
 * cuts the target's boxes is pending, boxes are larger: so an all-reduce, which keeps them, needs
 * the cut.
 */
static int64_t last_stage(const bounds *b, unsigned before)
{
    const sherd__field *field = b->field;
    int64_t k = sherd__extent_of(field->mesh, before);

    if (field->price != &sherd__price_arena || field->across || !(before & field->goal->shard_axes))
        return field->price->floor(field->problem, b->goal, k);
    int64_t found = sherd__max(b->goal, b->smallest[before]);
    int64_t cut = arena_time(field, SHERD_STEP_SLICE, b->goal, 1);
    return sherd__min(arena_time(field, SHERD_STEP_REDUCE_EXCHANGE, b->goal, k),
                      sherd__add_cut(arena_time(field, SHERD_STEP_ALL_REDUCE, found, k), cut));
}

static int64_t least_from(const bounds *b, const int64_t *least, unsigned before, bool last_too)
{
    int64_t best = stage_and_arrival(b, before);

    for (unsigned after = (before - 1) & before; after; after = (after - 1) & before)
        best = sherd__min(best, sherd__add_cut(stage(b, before, after), least[after]));
    return last_too ? sherd__min(best, last_stage(b, before)) : best;
}

static void fill(const bounds *b, int64_t *least)
{
    least[0] = 0;
    for (unsigned mask = 1; mask <= b->field->reduced; mask++)
        if (!(mask & ~b->field->reduced))
            least[mask] = least_from(b, least, mask, true);
}

/* Bytes that all ranks together must receive, with k addends: see find_totals, plan/amounts.c. */
static int64_t bytes_left(const sherd__field *field, const sherd__node *node)
{
    int64_t k = sherd__extent_of(field->mesh, node->pending);
    int64_t frozen = sherd__extent_of(field->mesh, field->frozen);
    int64_t combine = sherd__mul_cut(sherd__mul_cut(field->elements, k - 2), frozen);

    return sherd__mul_cut(sherd__add_cut(field->node[SHERD__GOAL].total, combine), field->bytes);
}

void sherd__least_find(sherd__field *field)
{
    bounds b;

    prepare(&b, field);
    fill(&b, field->floor.left);
    for (int i = 0; i < field->nodes; i++) {
        sherd__node *node = &field->node[i];
        sherd__search_edge direct;
        if (i == SHERD__GOAL)
            continue;
        if (node->pending == 0) { /* then no plan takes less than the bound of the direct step */
            sherd__edge_look(&direct, field, i, SHERD__GOAL, SHERD__MOST);
            node->left = direct.cost;
        } else {
            node->left =
                (sherd__cost){field->floor.left[node->pending], bytes_left(field, node), 1};
        }
    }
}

/*
 * The plans that are not the direct step: several stages; one stage, and a step that receives the
 * target's boxes; one stage, and a cut out of boxes no smaller than those; a step, and then the
 * stage. In the last case only an all-reduce in the target's boxes can gain from the step before
 * it: any other stage takes as long as the direct step, which that step comes on top of.
 */
int64_t sherd__least_beside_direct(const sherd__field *field)
{
    int64_t least[SHERD__MASKS];
    bounds b;

    prepare(&b, field);
    fill(&b, least);
    int64_t k = sherd__extent_of(field->mesh, field->reduced);
    int64_t cut = arena_time(field, SHERD_STEP_ALL_REDUCE, b.goal, k);
    if (!field->across) /* to another mesh boxes may stay where they are */
        cut = sherd__add_cut(cut, arena_time(field, SHERD_STEP_SLICE, b.goal, 1));
    return sherd__min(cut, least_from(&b, least, field->reduced, false));
}
