/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound, under the price of links, of any path from one state to another, in any number of
 * steps.
 *
 * Bytes: for each j, take the ranks that differ only in axes faster than the j-th as one group.
 * What a group needs and does not have crosses the j-th link or a slower one, in whatever steps.
 * The axes that do not cut the target say how many groups need an element; if an axis cuts both
 * layouts, the group in which both agree has it. To add k addends takes k - 1 messages, and one
 * more to each group but one that needs the sum. The busiest rank has at least the mean.
 *
 * Additions: if the groups hold k' addends (each the sum of what faster links join), k' - 1
 * additions are of what came over the j-th link or a slower one, and cost its gamma.
 *
 * Messages: a step that reduces an axis of p ranks brings each rank that then holds something p - 1
 * messages, one from each other addend; or, by stages, log2 p. One that reduces p and q brings
 * p q - 1, no less than both together; so the sum over the reduced axes is a bound, in whatever
 * steps. A message from another coordinate of an axis goes over its link or a slower one. As every
 * rank gets so many, the mean one does, and they add to its bytes. If boxes may be empty, and for
 * all other messages, the bound is a single message.
 *
 * Costs some tens of nanoseconds.
 */
#include "search.h"
#include "base/num.h"

/*
 * If classes overlap: the time of a byte that this class shares with the slower ones, which need
 * `shared` for it by themselves; -1 = there are none.
 */
static int64_t rate_of(int64_t shared, int64_t beta)
{
    sherd__wide both = (sherd__wide)shared + beta;

    return shared < 0 ? beta : both ? sherd__cut((sherd__wide)shared * beta / both) : 0;
}

/* Drop as many low bits of all weights as sums of any numbers of messages need to fit. */
static void cut_weights(sherd__field *field, const sherd__wide *weight, const sherd__wide *added)
{
    sherd__wide sum = 0;

    for (int j = 0; j < field->links.lanes.axes; j++)
        sum += weight[j] + added[j];
    field->bound.shift = 0;
    while (sum >> field->bound.shift >= SHERD__MOST / (2 * field->mesh->count))
        field->bound.shift++;
    for (int j = 0; j < field->links.lanes.axes; j++) {
        field->bound.weight[j] = (int64_t)(weight[j] >> field->bound.shift);
        field->bound.added[j] = (int64_t)(added[j] >> field->bound.shift);
    }
}

/* By level: the least gamma of its classes and slower ones, beyond that of the faster level. */
static void find_added(sherd__wide *added, const sherd__field *field)
{
    const sherd__lanes *lanes = &field->links.lanes;
    int64_t gamma = SHERD__MOST;
    int j = lanes->axes;

    for (int i = field->links.levels - 1; i >= 0; i--) {
        while (j > field->links.level[i].lane)
            gamma = sherd__min(gamma, lanes->link[--j].gamma_femtoseconds);
        added[i] = (sherd__wide)gamma * field->tensor / field->mesh->count;
        if (i + 1 < field->links.levels)
            added[i + 1] -= added[i];
    }
}

/* Messages by which an axis is reduced: from each other addend, or one in each round by stages. */
static void find_peers(sherd__field *field)
{
    bool straight = field->problem->request->price.straight;

    for (int i = 0; i < field->mesh->axes; i++) {
        int64_t p = field->mesh->extent[i];
        field->bound.peers[i] = straight ? p - 1 : sherd__rounds_of(p);
    }
}

void sherd__bound_start(sherd__field *field)
{
    const sherd__lanes *lanes = &field->links.lanes;
    bool overlap = field->problem->request->price.overlap;
    int64_t shared = -1;
    sherd__wide weight[SHERD_MAX_AXES], added[SHERD_MAX_AXES] = {0};

    field->tensor = sherd__mul_cut(field->elements, field->bytes);
    for (unsigned axes = 0; axes < 1u << field->mesh->axes; axes++)
        field->extent[axes] = sherd__extent_of(field->mesh, axes);
    for (int j = lanes->axes - 1; j >= 0; j--) {
        int64_t beta = field->links.beta[j] - (j > 0 ? field->links.beta[j - 1] : 0);
        shared = rate_of(shared, lanes->link[j].beta_femtoseconds);
        weight[j] = (sherd__wide)(overlap ? shared : beta) * field->tensor / field->mesh->count;
    }
    if (!overlap) {
        find_added(added, field);
        find_peers(field);
    }
    cut_weights(field, weight, added);
}

/* What tells groups of ranks apart. */
typedef struct groups {
    unsigned slow;  /* the slow axes */
    unsigned moved; /* of these, those that cut one dim before, and another after */
    uint64_t ring;  /* the moves between dims: see sherd__dims_link */
} groups;

/*
 * Of `scale` elements that a group needs, how many it has in place at most. If shards are even, one
 * in as many as there are coordinates of the axes that moved; the longer the longest shards are
 * beside the mean, the more there may be (see kept_at_most in edge.c).
 */
static int64_t in_place(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                        const groups *g, int64_t scale)
{
    int64_t even = field->extent[a->used & b->used & ~g->moved];
    int64_t waste = sherd__min(a->waste, b->waste);

    if (waste == SHERD__EVEN)
        return even;
    if (waste >= SHERD__EVEN << 10)
        return scale;
    return sherd__min(scale, even * waste / SHERD__EVEN + 1);
}

/*
 * Messages between groups for `scale` elements: one element for each rank of the axes that cut both
 * sides.
 */
static int64_t crossings(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                         const groups *g, int64_t scale)
{
    unsigned reduced = a->pending & ~b->pending & g->slow;
    int64_t wants = field->extent[g->slow & ~b->used], there = in_place(field, a, b, g, scale);

    if (reduced)
        return (field->extent[reduced] - 1 + wants) * scale - there;
    return wants * scale - field->extent[g->slow & ~(a->used | b->used)] * there;
}

/* The top bit of each byte that is not 0, of bytes below 128. */
static uint64_t tops_of(uint64_t bytes)
{
    return (bytes + 0x7f7f7f7f7f7f7f7f) & 0x8080808080808080;
}

/*
 * Add the classes from `first` on to what tells groups apart. `left` has a bit for each class whose
 * axis cuts one dim before and another after; returns those still left. Of moves that make a ring
 * of dims, one may agree wherever the others do, so it is not counted (see edge.c).
 */
static uint64_t join(groups *g, const sherd__field *field, const sherd__node *a,
                     const sherd__node *b, uint64_t left, int first)
{
    while (left >> 8 * first) {
        int shift = 63 - __builtin_clzll(left);
        int from = (int)(a->homes >> (shift - 7) & 0xff),
            to = (int)(b->homes >> (shift - 7) & 0xff);
        left ^= (uint64_t)1 << shift;
        if (sherd__dims_link(&g->ring, from - 1, to - 1))
            g->moved |= 1u << field->links.lanes.axis[shift / 8];
    }
    return left;
}

static int64_t scaled(int64_t n, int64_t each, int64_t scale)
{
    sherd__wide all = (sherd__wide)n * each;

    return all < SHERD__MOST ? (int64_t)all / scale : sherd__cut(all / scale);
}

/* Of messages for `scale` elements, times weights: a sum that surely takes more than so long. */
static int64_t sum_above(const sherd__field *field, int64_t scale, int64_t picoseconds)
{
    int64_t sum = INT64_MAX;

    if (picoseconds < INT64_MAX / SHERD__FEMTO - 1 &&
        __builtin_mul_overflow(
            ((picoseconds + 1) * SHERD__FEMTO >> sherd__min(field->bound.shift, 63)) + 1, scale,
            &sum))
        return INT64_MAX;
    return sum;
}

/* Messages to each rank while these axes are reduced; 0 if some rank may hold nothing. */
static int64_t peers_of(const sherd__field *field, unsigned axes)
{
    int64_t messages = 0;

    for (; axes && !field->hollow; axes &= axes - 1)
        messages += field->bound.peers[__builtin_ctz(axes)];
    return messages;
}

sherd__cost sherd__bound_between(const sherd__field *field, int from, int to, int64_t enough)
{
    const sherd__node *a = &field->node[from], *b = &field->node[to];
    int64_t each = field->extent[b->pending | field->frozen];
    int64_t scale = field->extent[a->used & b->used], most = 0, alpha = 0, sum = 0, messages = 0;
    unsigned reduced = a->pending & ~b->pending;
    int64_t above = sum_above(field, scale, enough);
    uint64_t left = tops_of(a->homes) & tops_of(b->homes) & tops_of(a->homes ^ b->homes);
    bool overlap = field->problem->request->price.overlap;
    groups g = {0, 0, 0};

    if (from == to || field->elements == 0)
        return (sherd__cost){0, 0, from != to};
    for (int level = field->links.levels - 1; level >= 0; level--) {
        const sherd__level *l = &field->links.level[level];
        left = join(&g, field, a, b, left, l->lane);
        g.slow = field->movable & ~(l->faster | b->pending);
        int64_t n = crossings(field, a, b, &g, scale);
        if (n > 0 && most == 0)
            alpha = l->alpha;
        most = sherd__max(most, n);
        int64_t time = field->bound.weight[l->lane] * most;
        if (reduced & g.slow) {
            int64_t more = l->alpha - (level > 0 ? l[-1].alpha : 0);
            time += field->bound.added[level] * (field->extent[reduced & g.slow] - 1) * scale;
            messages =
                sherd__add_cut(messages, sherd__mul_cut(peers_of(field, reduced & g.slow), more));
        }
        sum = overlap ? sherd__max(sum, time) : sum + time;
        if (alpha > enough || messages > enough || sum * each >= above)
            return (sherd__cost){enough + 1, 0, 1};
    }
    int64_t time = scaled(sum * each, 1, scale);
    if (field->bound.shift)
        time = sherd__mul_cut(time, (int64_t)1 << sherd__min(field->bound.shift, 61));
    return (sherd__cost){sherd__max(sherd__add_cut(time / SHERD__FEMTO, messages), alpha),
                         scaled(most * each, field->tensor, scale), 1};
}

/* ---- which nodes may be of use --------------------------------------------------------------- */

static void swap_nodes(sherd__field *field, int a, int b)
{
    sherd__node kept = field->node[a];

    field->node[a] = field->node[b];
    field->node[b] = kept;
}

void sherd__bound_fill(sherd__field *field)
{
    field->all = field->nodes;
    for (int i = 0; i < field->all; i++) {
        field->node[i].behind = sherd__bound_between(field, SHERD__START, i, SHERD__MOST);
        field->node[i].ahead = sherd__bound_between(field, i, SHERD__GOAL, SHERD__MOST);
    }
}

/*
 * Whether a plan through a node, from which at least `left` remains, may cost no more than `limit`.
 */
static bool allows(const sherd__node *node, sherd__cost left, sherd__cost limit)
{
    return sherd__cost_compare(sherd__cost_add(node->behind, left), limit) <= 0;
}

int sherd__bound_count(const sherd__field *field, sherd__cost limit)
{
    int count = 0;

    for (int i = 0; i < field->all; i++)
        count += i <= SHERD__GOAL || allows(&field->node[i], field->node[i].ahead, limit);
    return count;
}

static bool is_less(const sherd__field *field, int node, sherd__cost cost)
{
    const sherd__node *n = &field->node[node];

    return sherd__cost_compare(sherd__cost_add(n->behind, n->ahead), cost) < 0;
}

static bool is_more(const sherd__field *field, int node, sherd__cost cost)
{
    return !allows(&field->node[node], field->node[node].ahead, cost);
}

/*
 * Quick select: order all nodes but the two ends so that none of the first `count` is worse than
 * one of the others.
 */
void sherd__bound_keep(sherd__field *field, int count)
{
    int lo = SHERD__GOAL + 1, hi = field->all;

    field->nodes = sherd__int(sherd__min(count, field->all));
    while (count < field->all && hi - lo > 1) {
        const sherd__node *n = &field->node[lo + (hi - lo) / 2];
        sherd__cost middle = sherd__cost_add(n->behind, n->ahead);
        int i = lo, j = hi - 1;
        while (i <= j) {
            while (is_less(field, i, middle))
                i++;
            while (is_more(field, j, middle))
                j--;
            if (i <= j)
                swap_nodes(field, i++, j--);
        }
        if (count > j && count < i)
            return;
        lo = count >= i ? i : lo;
        hi = count <= j ? j + 1 : hi;
    }
}

void sherd__bound_drop(sherd__field *field, sherd__cost limit)
{
    int kept = SHERD__GOAL + 1;

    for (int i = kept; i < field->nodes; i++)
        if (allows(&field->node[i], field->node[i].left, limit))
            swap_nodes(field, i, kept++);
    field->nodes = kept;
}
