/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of any plan, for pruning the search.
 *
 * Every pending axis must be reduced in some step. Suppose the reductions happen in stages. A stage
 * writes into boxes no smaller than the smallest that exist while the rest is pending, or keeps the
 * boxes that it finds, which are no smaller than the smallest before it. The last stage writes into
 * the target's boxes; or another step brings the target's boxes from other ranks; or it only cuts
 * them out of larger ones, and then the last stage wrote into no smaller ones. The cheapest such
 * sequence, found by sets of pending axes, is a bound. Costs 3^(pending axes) steps.
 */
#include "search.h"
#include "base/num.h"

#include <string.h>

typedef struct bounds {
    const sherd__field *field;
    int64_t smallest[SHERD__MASKS]; /* box, by what is pending */
    int64_t goal;                   /* the largest box of the goal */
} bounds;

/* Shards of all axes that may cut share the elements, and one has its part at least. */
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
    if (field->nodes && field->whole)
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

/* A stage that leaves `after` pending of `before`, into any boxes. */
static int64_t stage(const bounds *b, unsigned before, unsigned after)
{
    const sherd__field *field = b->field;
    int64_t k = sherd__extent_of(field->mesh, before & ~after);

    if (field->price != &sherd__price_arena)
        return field->price->floor(field->problem, b->smallest[after], k);
    return sherd__min(arena_time(field, SHERD_STEP_REDUCE_EXCHANGE, b->smallest[after], k),
                      arena_time(field, SHERD_STEP_ALL_REDUCE, b->smallest[before], k));
}

/* The last stage where it does not end in the target's boxes, and what brings these. */
static int64_t stage_and_arrival(const bounds *b, unsigned before)
{
    return sherd__add_cut(stage(b, before, 0),
                          b->field->price->floor(b->field->problem, b->goal, 1));
}

/*
 * The last stage where it ends in the target's boxes, or a cut follows. It does not find these
 * boxes if an axis that is pending cuts them: it writes into them or larger ones, or it keeps the
 * boxes that it finds, which are no smaller, and they are cut then.
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

/* Elements that must travel to all ranks, one at least for each but one holder of k addends. */
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
    fill(&b, field->least);
    for (int i = 0; i < field->nodes; i++) {
        sherd__node *node = &field->node[i];
        sherd__edge direct;
        if (i == SHERD__GOAL)
            continue;
        if (node->pending ==
            0) { /* nothing gets there cheaper, or with less, than the direct step may */
            sherd__edge_look(&direct, field, i, SHERD__GOAL, SHERD__MOST);
            node->left = direct.cost;
        } else {
            node->left = (sherd__cost){field->least[node->pending], bytes_left(field, node), 1};
        }
    }
}

/*
 * Beside the direct step there are: several stages; one stage and then an arrival; one stage and
 * then a cut, into boxes no smaller than the target's; a step into some boxes and then the stage,
 * where only an all-reduce that finds the target's boxes can gain something by what came before:
 * any other takes what the direct step does, and what came before it.
 */
int64_t sherd__least_beside_direct(const sherd__field *field)
{
    int64_t least[SHERD__MASKS];
    bounds b;

    prepare(&b, field);
    fill(&b, least);
    int64_t k = sherd__extent_of(field->mesh, field->reduced);
    int64_t cut = arena_time(field, SHERD_STEP_ALL_REDUCE, b.goal, k);
    if (!field->across) /* there the boxes may only get other names */
        cut = sherd__add_cut(cut, arena_time(field, SHERD_STEP_SLICE, b.goal, 1));
    return sherd__min(cut, least_from(&b, least, field->reduced, false));
}
