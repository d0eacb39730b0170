/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of a step under the price of links that says less than a look, but takes only a few
 * nanoseconds: that is enough to see of most steps that they take too long. It is known if the
 * price says `straight` and cuts are default: the busiest rank takes as long as the messages and
 * bytes that it lacks, or is asked for, over the best of the links crossed.
 *
 * The rank with the largest target lacks all of it, once for each addend, except what it has. That
 * is no more than the product of the shorter ones of both sides' longest intervals, and no message
 * brings more. Likewise for the rank with the largest source, if no replica of it can be asked
 * instead. If a rank lies apart, along an axis, from all that it asks or that ask it (search.h), it
 * has nothing itself, and all of its messages cross that axis: they go over its link or a slower
 * one. This is used only if boxes are equally large, since the rank's may be a small one.
 */
#include "search.h"
#include "base/num.h"

/* The least alpha and beta of the links of these axes. */
static void find_least(sherd__field *field, unsigned axes)
{
    const sherd__lanes *lanes = &field->links.lanes;
    int64_t alpha = SHERD__MOST, beta = SHERD__MOST;
    unsigned slower = 0;

    for (int j = lanes->axes - 1; j >= 0; j--) {
        if (!(slower & axes))
            slower |= 1u << lanes->axis[j];
        if (!(axes >> lanes->axis[j] & 1))
            continue;
        alpha = sherd__min(alpha, lanes->link[j].alpha_picoseconds);
        beta = sherd__min(beta, lanes->link[j].beta_femtoseconds);
    }
    field->glance.slower[axes] = (uint8_t)slower;
    field->glance.least_alpha[axes] = alpha;
    field->glance.least_beta[axes] = beta;
}

void sherd__glances_links(sherd__field *field)
{
    const sherd_price *price = &field->problem->request->price;

    field->glance.possible = price->straight && !price->overlap && !field->explicit_cuts &&
                             !field->across && field->elements > 0;
    for (unsigned axes = 0; field->glance.possible && axes < 1u << field->mesh->axes; axes++)
        find_least(field, axes);
}

void sherd__glances_start(sherd__glances *out, const sherd__field *field, int node, bool from)
{
    const sherd__node *at = &field->node[node];

    *out =
        (sherd__glances){.field = field, .node = at, .from = from, .none = !field->glance.possible};
    for (int d = 0; d < field->ndim && !out->none; d++) {
        out->none = !field->dim[d].shifts;
        out->stride[d] = from ? 1 : field->dim[d].ways;
        if (!out->none)
            out->row[d] = field->dim[d].shifts + at->way[d] * (from ? field->dim[d].ways : 1);
        out->longest[d] = field->dim[d].way[at->way[d]].longest;
    }
}

/* Picoseconds of n elements, at most `one` in a message, over the best link of these axes. */
static int64_t time_of_least(const sherd__field *field, unsigned axes, int64_t n, int64_t one)
{
    int64_t bytes = sherd__mul_cut(n, field->bytes);

    return sherd__add_cut(sherd__mul_cut(sherd__ceil_div(n, one), field->glance.least_alpha[axes]),
                          sherd__mul_cut(bytes, field->glance.least_beta[axes]) / SHERD__FEMTO);
}

/* The bound of a step, from the sets of all its dims together (sherd__shift). */
static int64_t glance(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                      uint32_t sets, int64_t one, int64_t enough)
{
    unsigned reduced = a->pending & ~b->pending, cut = sherd__shift_set(sets, SHERD__CUT);
    unsigned crossed = sherd__shift_set(sets, SHERD__GATHERED) | reduced;

    if (!crossed || !sets) /* nothing may travel, or it is an all-reduce, which may be sliced */
        return 0;
    unsigned leads = b->waste == SHERD__EVEN ? sherd__shift_set(sets, SHERD__LEADS) : 0;
    int64_t lacked = sherd__mul_cut(b->longest, field->extent[reduced]) - (leads ? 0 : one);
    int64_t time = time_of_least(field, crossed & field->glance.slower[leads], lacked, one);
    if (time > enough || cut & ~crossed)
        return time;
    unsigned trails = a->waste == SHERD__EVEN ? sherd__shift_set(sets, SHERD__TRAILS) : 0;
    int64_t asked = sherd__mul_cut(a->longest, field->extent[crossed & ~cut]) - (trails ? 0 : one);
    return sherd__max(time,
                      time_of_least(field, crossed & field->glance.slower[trails], asked, one));
}

int64_t sherd__glance(const sherd__glances *g, int other, int64_t enough)
{
    const sherd__field *field = g->field;
    const sherd__node *node = &field->node[other];
    uint32_t sets = 0;
    int64_t one = 1;

    if (g->none)
        return 0;
    for (int d = 0; d < field->ndim; d++) {
        int at = node->way[d];
        const sherd__shift *shift = &g->row[d][at * g->stride[d]];
        if (!shift->pair)
            sherd__links_shift_made(field, d, g->from ? g->node->way[d] : at,
                                    g->from ? at : g->node->way[d], NULL);
        if (sherd__mul_cut(shift->messages, field->links.alpha[0]) > enough)
            return enough + 1;
        sets |= shift->sets;
        one *= sherd__min(g->longest[d], field->dim[d].way[at].longest);
    }
    return g->from ? glance(field, g->node, node, sets, one, enough)
                   : glance(field, node, g->node, sets, one, enough);
}
