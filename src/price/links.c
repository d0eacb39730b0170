/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of links: latency alpha per message, beta per byte, gamma per byte added, each per mesh
 * axis.
 *
 * A message between ranks whose coordinates differ on several axes uses the slowest of them (on
 * which all bytes of the tensor take longest, then larger beta, then number): so messages fall into
 * classes. By the tensor's bytes because a line tells of tensors of about that size: its beta alone
 * may be 0 where alpha holds all. Direct steps take as long as the busiest rank (straight.c).
 *
 * All-gathers and reduce-scatters go axis by axis (stages.c), which takes no longer than that. An
 * all-reduce is the cheaper of its two variants; for the sliced one the group with the largest
 * boxes counts. If the price says `straight`, these are direct, too. Local steps are free. Between
 * two meshes all messages count as one, over the link "*".
 *
 * A price may have several lines of an axis, for tensors of several sizes. All steps of a plan move
 * the same tensor: which line counts is found once, when a problem is made.
 */
#include "links.h"
#include "base/num.h"

#include <string.h>

/* ---- links ---------------------------------------------------------------------------------- */

/*
 * Slower is the link on which a message of so many bytes takes longer, which is what its line was
 * measured with; of equal ones that with the larger beta.
 */
static bool slower(const sherd_link *a, const sherd_link *b, int64_t bytes)
{
    sherd__span x = sherd__span_sent(a, 1, bytes), y = sherd__span_sent(b, 1, bytes);

    return x != y ? x > y : a->beta_femtoseconds > b->beta_femtoseconds;
}

/*
 * Whether line a fits a tensor of so many bytes better than line b: the next limit above the bytes
 * fits best; if there is none, the highest one.
 */
static bool is_closer(const sherd_link *a, const sherd_link *b, int64_t bytes)
{
    int64_t x = a->upto_bytes ? a->upto_bytes : INT64_MAX;
    int64_t y = b->upto_bytes ? b->upto_bytes : INT64_MAX;

    return x >= bytes && y >= bytes ? x < y : x > y;
}

/* An axis's line for such a tensor; NULL: it has none. */
static const sherd_link *find_line(const sherd_price *price, const char *axis, int64_t bytes)
{
    const sherd_link *found = NULL;

    for (int i = 0; i < price->links; i++)
        if (strcmp(price->link[i].axis, axis) == 0 &&
            (!found || is_closer(&price->link[i], found, bytes)))
            found = &price->link[i];
    return found;
}

/* The line of an axis, else that of "*", else the slowest; if there are no lines, all is free. */
static sherd_link line_of(const sherd_price *price, const char *axis, int64_t bytes)
{
    sherd_link other = {"", 0, 0, 0, 0};
    const sherd_link *found = find_line(price, axis, bytes);

    if (!found)
        found = find_line(price, "*", bytes);
    if (found)
        return *found;
    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = find_line(price, price->link[i].axis, bytes);
        if (i == 0 || slower(link, &other, bytes))
            other = *link;
    }
    return other;
}

/* Insert an axis behind the faster ones. */
static void add_lane(sherd__lanes *r, int axis, const sherd_link *link, int64_t bytes)
{
    int i = r->axes++;

    for (; i > 0 && slower(&r->link[i - 1], link, bytes); i--) {
        r->axis[i] = r->axis[i - 1];
        r->link[i] = r->link[i - 1];
    }
    r->axis[i] = axis;
    r->link[i] = *link;
}

sherd__problem sherd__problem_of(sherd__space *space, const sherd_layout *from,
                                 const sherd_layout *to, size_t element_bytes,
                                 const sherd__request *request)
{
    sherd__problem problem = {space, from, to, element_bytes, request, {.axes = 0}, {.axis = ""}};
    const sherd__layout_spec *spec = &from->spec;
    int64_t bytes = (int64_t)element_bytes;

    if (request->price.kind != SHERD_PRICE_LINKS)
        return problem;
    for (int d = 0; d < spec->ndim; d++)
        bytes = sherd__mul_cut(bytes, spec->shape[d]);
    for (int a = 0; a < spec->mesh->axes; a++) {
        const sherd_link link = line_of(&request->price, spec->mesh->name[a], bytes);
        add_lane(&problem.lanes, a, &link, bytes);
    }
    problem.across = line_of(&request->price, "*", bytes);
    return problem;
}

void sherd__lanes_find(sherd__lanes *r, const sherd__problem *problem, unsigned axes)
{
    const sherd__lanes *all = &problem->lanes;

    r->axes = 0;
    for (int j = 0; j < all->axes; j++)
        if (axes >> all->axis[j] & 1) {
            r->axis[r->axes] = all->axis[j];
            r->link[r->axes++] = all->link[j];
        }
}

/* ---- steps that pull straight --------------------------------------------------------------- */

static sherd__span time_straight(const sherd__priced *p, const sherd__problem *problem)
{
    sherd__lanes all;

    sherd__lanes_find(&all, problem, p->step.axes | p->change.cut);
    return sherd__straight_time(p, (int64_t)problem->element_bytes, &all, &problem->request->price);
}

/*
 * Each rank gets an addend of its slice from each other one, and then from each the slice that this
 * one has added up: no slice is longer than the first one.
 */
sherd__span sherd__straight_time_sliced(const sherd_mesh *mesh, unsigned reduced, int64_t n,
                                        int64_t element_bytes, const sherd__lanes *lanes,
                                        bool overlap)
{
    int64_t ranks = 1, lo, slice;
    sherd__span sum = 0, to_add = 0, to_get = 0;

    sherd__slice_of(n, sherd__extent_of(mesh, reduced), 0, &lo, &slice);
    for (int j = 0; j < lanes->axes; j++) {
        if (!(reduced >> lanes->axis[j] & 1))
            continue;
        int64_t peers = ranks * (mesh->extent[lanes->axis[j]] - 1);
        int64_t bytes = sherd__mul_cut(sherd__mul_cut(peers, slice), element_bytes);
        sherd__span get = sherd__span_sent(&lanes->link[j], peers, bytes);
        sherd__span add = get + sherd__span_added(&lanes->link[j], bytes);
        sum += get + add;
        to_add = add > to_add ? add : to_add;
        to_get = get > to_get ? get : to_get;
        ranks += peers;
    }
    return overlap ? to_add + to_get : sum;
}

/* ---- the model ------------------------------------------------------------------------------ */

static sherd__span time_across(const sherd__priced *p, const sherd__problem *problem)
{
    int64_t element_bytes = (int64_t)problem->element_bytes;
    const sherd_link *link = &problem->across;
    int64_t elements = sherd__max(p->amounts.receive_max, p->amounts.send_max);
    int64_t added = sherd__mul_cut(p->amounts.target_max, p->change.addends - 1);

    return sherd__span_sent(link, 1, sherd__mul_cut(elements, element_bytes)) +
           sherd__span_added(link, sherd__mul_cut(added, element_bytes));
}

static bool has_cuts(const sherd__dim *dim, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (dim[d].cuts)
            return true;
    return false;
}

/*
 * Straight is better than by stages only where classes go side by side; and stages overrate
 * explicit cuts.
 */
static sherd__span time_collective(const sherd__priced *p, const sherd__problem *problem,
                                   const sherd__lanes *r)
{
    const sherd__change *change = &p->change;

    if (problem->request->price.straight)
        return time_straight(p, problem);
    sherd__span staged =
        sherd__stages_time(change, p->step.from->spec.shape, (int64_t)problem->element_bytes, r);

    if (!problem->request->price.overlap &&
        !has_cuts(change->reduced ? change->target : change->source, change->ndim))
        return staged;
    sherd__span straight = time_straight(p, problem);
    return straight < staged ? straight : staged;
}

static sherd__span time_sliced(const sherd__priced *p, const sherd__problem *problem,
                               const sherd__lanes *r)
{
    const sherd_price *price = &problem->request->price;
    int64_t n = p->amounts.target_max, element_bytes = (int64_t)problem->element_bytes;

    return price->straight ? sherd__straight_time_sliced(p->change.mesh, p->change.reduced, n,
                                                         element_bytes, r, price->overlap)
                           : sherd__stages_time_sliced(&p->change, n, element_bytes, r);
}

static void price_all_reduce(sherd__priced *p, const sherd__problem *problem, const sherd__lanes *r)
{
    sherd__span straight = time_straight(p, problem);
    sherd__span sliced = time_sliced(p, problem, r);

    p->step.sliced = sliced < straight;
    p->rounds = p->step.sliced ? 2 : 1;
    p->step.picoseconds = sherd__span_time(p->step.sliced ? sliced : straight);
}

static void price_links(sherd__priced *p, const sherd__problem *problem)
{
    sherd__lanes r;

    p->step.sliced = false;
    p->rounds = 0;
    p->step.picoseconds = 0;
    if (p->step.kind == SHERD_STEP_SLICE || p->step.kind == SHERD_STEP_PARTITION)
        return;
    p->rounds = 1;
    if (p->change.across) {
        p->step.picoseconds = sherd__span_time(time_across(p, problem));
        return;
    }
    sherd__lanes_find(&r, problem, p->step.axes);
    if (p->step.kind == SHERD_STEP_ALL_REDUCE)
        price_all_reduce(p, problem, &r);
    else if (p->step.kind == SHERD_STEP_ALL_GATHER || p->step.kind == SHERD_STEP_REDUCE_SCATTER)
        p->step.picoseconds = sherd__span_time(time_collective(p, problem, &r));
    else
        p->step.picoseconds = sherd__span_time(time_straight(p, problem));
}

int64_t sherd__links_time_window(const sherd_price *price, const sherd_mesh *mesh, unsigned axes,
                                 int64_t bytes)
{
    int64_t beta = 0;
    sherd__span sum = 0;

    for (int a = 0; a < mesh->axes; a++) {
        if (!(axes >> a & 1))
            continue;
        const sherd_link link = line_of(price, mesh->name[a], bytes);
        sum += sherd__span_sent(&link, 1, 0);
        beta = sherd__max(beta, link.beta_femtoseconds);
    }
    return sherd__span_time(sum + sherd__span_of(0, beta, 0, bytes));
}

/* ---- bounds --------------------------------------------------------------------------------- */

static void take_best(sherd_link *best, const sherd_link *link)
{
    best->alpha_picoseconds = sherd__min(best->alpha_picoseconds, link->alpha_picoseconds);
    best->beta_femtoseconds = sherd__min(best->beta_femtoseconds, link->beta_femtoseconds);
    best->gamma_femtoseconds = sherd__min(best->gamma_femtoseconds, link->gamma_femtoseconds);
}

/*
 * The best of all links that a step may use, each constant for itself; side by side they share the
 * bytes, and the adding of them.
 */
static sherd_link best_link(const sherd__problem *problem)
{
    const sherd_mesh *mesh = problem->from->spec.mesh;
    const sherd__lanes *lanes = &problem->lanes;
    sherd_link best = {"", SHERD__MOST, SHERD__MOST, SHERD__MOST, 0};
    int64_t used_links = 0;

    for (int j = 0; j < lanes->axes; j++)
        if (mesh->extent[lanes->axis[j]] > 1) {
            take_best(&best, &lanes->link[j]);
            used_links++;
        }
    if (problem->to->spec.mesh != mesh) {
        take_best(&best, &problem->across);
        used_links++;
    }
    if (problem->request->price.overlap && used_links) {
        best.beta_femtoseconds /= used_links;
        best.gamma_femtoseconds /= used_links;
    }
    return best;
}

/*
 * Of k addends of n elements a sliced all-reduce receives 2 (k - 1) n / k and adds half of that, in
 * 2 log k rounds; all else receives and adds more, in (log k) rounds or k - 1 messages. Without a
 * reduction a single element may be all.
 */
static int64_t floor_links(const sherd__problem *problem, int64_t target_max, int64_t addends)
{
    const sherd_link link = best_link(problem);
    int64_t element_bytes = (int64_t)problem->element_bytes, k = addends;
    bool straight =
        problem->request->price.overlap || problem->to->spec.mesh != problem->from->spec.mesh;
    sherd__wide share = (sherd__wide)target_max * (k - 1) / k;
    int64_t received = sherd__max(sherd__cut(2 * share), 1);
    int64_t messages = k == 1 || straight ? 1 : sherd__rounds_of(k);

    return sherd__span_time(
        sherd__span_sent(&link, messages, sherd__mul_cut(received, element_bytes)) +
        sherd__span_added(&link, sherd__mul_cut(sherd__cut(share), element_bytes)));
}

const sherd__price_model sherd__price_links = {"links", price_links, floor_links, best_link, false};
