/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What any way from one state to another takes at least under the price of links, in however many steps.
 *
 * Join the ranks that differ only in faster axes than the j-th: what such a group wants and does not have crosses the
 * j-th link or a slower one, whatever the steps. An element is wanted by as many groups as the axes give that do not
 * cut the target, and held where both cut it by the group for which both agree. With k addends it takes k - 1
 * messages to bring them together, and one to each group that wants the sum but for one. Over all ranks the mean is a
 * bound of the busiest. It says nothing of messages but that there is one. Costs some tens of nanoseconds.
 */
#include "search.h"
#include "base/num.h"

/* Bytes of a class over the time of those that may share them with it: where classes overlap, of slower ones too. */
static int64_t rate_of(int64_t shared, int64_t beta)
{
    sherd__wide both = (sherd__wide)shared + beta;

    return shared < 0 ? beta : both ? sherd__cut((sherd__wide)shared * beta / both) : 0;
}

void sherd__bound_start(sherd__field *field)
{
    const sherd__lanes *lanes = &field->lanes;
    bool overlap = field->problem->request->price.overlap;
    int64_t bytes = sherd__mul_cut(field->elements, field->bytes), shared = -1;

    for (unsigned axes = 0; axes < SHERD__MASKS; axes++)
        field->extent[axes] =
            axes >> field->mesh->axes ? 0 : sherd__extent_of(field->mesh, axes);
    for (int j = lanes->axes - 1; j >= 0; j--) {
        int64_t beta = lanes->link[j].beta_femtoseconds;
        shared = rate_of(shared, beta);
        if (j > 0 && !overlap)
            beta -= lanes->link[j - 1].beta_femtoseconds;
        field->weight[j] =
            sherd__cut((sherd__wide)(overlap ? shared : beta) * bytes / field->mesh->count);
    }
}

/* Add an edge between dims to the closure of those chosen, unless it closes a ring. */
static bool link_dims(uint8_t *reach, int ndim, int from, int to)
{
    if (from == to || reach[to] >> from & 1)
        return false;
    uint8_t more = (uint8_t)(reach[to] | 1u << to);
    for (int d = 0; d < ndim; d++)
        if (d == from || reach[d] >> from & 1)
            reach[d] |= more;
    return true;
}

/* Slow axes, those that tell groups of ranks apart. */
typedef struct groups {
    unsigned slow;
    unsigned moved; /* of them those that cut another dim on each side: one of its coordinates agrees */
    uint8_t ring[SHERD_MAX_DIMS];
} groups;

/*
 * What is in place at most: a rank of those that agree on what moved, as far as shards are even. The longer of the two sides'
 * longest shards are beside the mean the more may agree (see kept_at_most in edge.c).
 */
static int64_t in_place(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                        const groups *g, int64_t scale)
{
    int64_t all = field->extent[g->slow & ~(a->used | b->used)] * scale;
    int64_t even = all / field->extent[g->moved], waste = sherd__min(a->waste, b->waste);

    if (waste == SHERD__EVEN)
        return even;
    return sherd__min(all, sherd__cut((sherd__wide)even * waste / SHERD__EVEN) + 1);
}

/* Messages between groups for each element, times `scale`: the ranks of the axes that cut both sides. */
static int64_t crossings(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                         const groups *g, int64_t scale)
{
    unsigned reduced = a->pending & ~b->pending & g->slow;
    int64_t wants = field->extent[g->slow & ~b->used];

    if (reduced)
        return (field->extent[reduced] + wants - 2) * scale;
    return wants * scale - in_place(field, a, b, g, scale);
}

/* One axis more. Of moves that make a ring of dims one may agree wherever the others do (see edge.c). */
static void join(groups *g, const sherd__field *field, const sherd__node *a, const sherd__node *b,
                 int axis)
{
    int from = a->home[axis], to = b->home[axis];

    if ((b->pending | field->frozen) >> axis & 1)
        return;
    g->slow |= 1u << axis;
    if (from >= 0 && to >= 0 && link_dims(g->ring, field->ndim, from, to))
        g->moved |= 1u << axis;
}

int64_t sherd__bound_between(const sherd__field *field, int from, int to)
{
    const sherd__node *a = &field->node[from], *b = &field->node[to];
    int64_t each = field->extent[b->pending | field->frozen], scale = field->extent[a->used & b->used];
    int64_t most = 0, alpha = 0;
    bool overlap = field->problem->request->price.overlap;
    sherd__wide sum = 0;
    groups g = {0, 0, {0}};

    for (int j = field->lanes.axes - 1; j >= 0; j--) {
        join(&g, field, a, b, field->lanes.axis[j]);
        int64_t n = crossings(field, a, b, &g, scale);
        if (n > 0 && most == 0 && field->elements > 0)
            alpha = field->alpha[j];
        most = sherd__max(most, n);
        sherd__wide time = (sherd__wide)field->weight[j] * most * each;
        sum = overlap ? (time > sum ? time : sum) : sum + time;
    }
    return sherd__max(sherd__cut(sum / scale / SHERD__FEMTO), alpha);
}

/* ---- which nodes may be of use --------------------------------------------------------------- */

static void swap_nodes(sherd__field *field, int a, int b)
{
    sherd__node kept = field->node[a];

    field->node[a] = field->node[b];
    field->node[b] = kept;
}

/* What a plan takes at least that goes there. */
static int64_t through(const sherd__field *field, int node)
{
    return sherd__add_cut(field->node[node].behind, field->node[node].ahead);
}

/* Nodes [lo, hi) so that none below `few` goes behind one that is not. */
static void select_few(sherd__field *field, int lo, int hi, int few)
{
    while (hi - lo > 1) {
        int64_t middle = through(field, lo + (hi - lo) / 2);
        int i = lo, j = hi - 1;
        while (i <= j) {
            while (through(field, i) < middle)
                i++;
            while (through(field, j) > middle)
                j--;
            if (i <= j)
                swap_nodes(field, i++, j--);
        }
        if (few <= j)
            hi = j + 1;
        else if (few >= i)
            lo = i;
        else
            return;
    }
}

void sherd__bound_few(sherd__field *field, int few)
{
    for (int i = 0; i < field->nodes; i++) {
        field->node[i].behind =
            i == SHERD__SOURCE ? 0 : sherd__bound_between(field, SHERD__SOURCE, i);
        field->node[i].ahead = i == SHERD__GOAL ? 0 : sherd__bound_between(field, i, SHERD__GOAL);
    }
    field->all = field->nodes;
    if (few < field->all) {
        select_few(field, SHERD__GOAL + 1, field->all, few);
        field->nodes = few;
    }
}

bool sherd__bound_within(sherd__field *field, int64_t limit)
{
    int kept = field->nodes;
    bool more = false;

    for (int i = kept; i < field->all && !more; i++)
        more = through(field, i) <= limit;
    if (!more)
        return false;
    field->nodes = SHERD__GOAL + 1;
    for (int i = field->nodes; i < field->all; i++)
        if (through(field, i) <= limit)
            swap_nodes(field, i, field->nodes++);
    return true;
}

void sherd__bound_drop(sherd__field *field, int64_t limit)
{
    int kept = SHERD__GOAL + 1;

    for (int i = kept; i < field->nodes; i++) {
        const sherd__node *node = &field->node[i];
        if (sherd__add_cut(node->behind, node->left.picoseconds) <= limit)
            swap_nodes(field, i, kept++);
    }
    field->nodes = kept;
}
