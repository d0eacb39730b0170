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

/* Axes of one, and how many groups of ranks they tell apart. */
typedef struct groups {
    unsigned slow; /* axes so far */
    unsigned tied; /* of them those of which nothing is known: both sides may agree anywhere */
    uint8_t ring[SHERD_MAX_DIMS];
} groups;

/* Messages that each element takes between the groups. */
static int64_t crossings(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                         const groups *g)
{
    unsigned reduced = a->pending & ~b->pending & g->slow;
    int64_t wants = field->extent[g->slow & ~b->used];

    if (reduced)
        return field->extent[reduced] + wants - 2;
    return wants - field->extent[g->slow & (g->tied | ~(a->used | b->used))];
}

/*
 * One axis more. Where an axis leaves a dim for another one the two agree for one of its coordinates, if such moves make
 * no ring of dims (see edge.c).
 */
static void join(groups *g, const sherd__field *field, const sherd__node *a, const sherd__node *b,
                 int axis)
{
    int from = a->home[axis], to = b->home[axis];

    if ((b->pending | field->frozen) >> axis & 1)
        return;
    g->slow |= 1u << axis;
    if (from >= 0 && to >= 0 && !link_dims(g->ring, field->ndim, from, to))
        g->tied |= 1u << axis;
}

int64_t sherd__bound_between(const sherd__field *field, int from, int to)
{
    const sherd__node *a = &field->node[from], *b = &field->node[to];
    int64_t each = field->extent[b->pending | field->frozen], most = 0, alpha = 0;
    bool overlap = field->problem->request->price.overlap;
    sherd__wide sum = 0;
    groups g = {0, 0, {0}};

    for (int j = field->lanes.axes - 1; j >= 0; j--) {
        join(&g, field, a, b, field->lanes.axis[j]);
        int64_t n = crossings(field, a, b, &g);
        if (n > 0 && most == 0 && field->elements > 0)
            alpha = field->alpha[j];
        most = sherd__max(most, n);
        sherd__wide time = (sherd__wide)field->weight[j] * most * each;
        sum = overlap ? (time > sum ? time : sum) : sum + time;
    }
    return sherd__max(sherd__cut(sum / SHERD__FEMTO), alpha);
}
