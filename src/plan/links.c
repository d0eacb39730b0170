/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of links: latency alpha per message, beta per byte received, gamma per byte added, each for an
 * axis of the mesh.
 *
 * A message between ranks whose coordinates differ on several axes goes over the slowest of them (larger
 * beta, then alpha, then number). A step's messages fall into classes by that axis, and the classes follow
 * one another: each takes alpha times the messages of the rank that gets most of them, and beta times the
 * bytes of the rank that receives most. Then comes gamma of the slowest axis reduced, for what the busiest
 * rank adds. Messages and bytes are counted from boxes, as in amounts.c, and cost as much per class. An
 * all-reduce is the cheaper of its two variants; of the sliced one the group with the largest boxes counts.
 * What is local is free. Between two meshes all messages count as one, over the link "*".
 */
#include "front.h"
#include "base/num.h"

#include <string.h>

enum { FEMTO = 1000 }; /* of a picosecond */

/* Time so far. Each term is cut, so that their sum fits. */
typedef struct cost {
    sherd__wide femtoseconds;
} cost;

static void add_term(cost *sum, int64_t a, int64_t b, int64_t unit)
{
    const sherd__wide most = (sherd__wide)SHERD__MOST * FEMTO;
    sherd__wide term = (sherd__wide)a * b;

    sum->femtoseconds += term < most / unit ? term * unit : most;
}

/* Picoseconds, rounded up. */
static int64_t time_of(const cost *sum)
{
    sherd__wide picoseconds = (sum->femtoseconds + FEMTO - 1) / FEMTO;

    return sherd__cut(picoseconds);
}

/* ---- links ---------------------------------------------------------------------------------- */

static bool slower(const sherd_link *a, const sherd_link *b)
{
    if (a->beta_femtoseconds != b->beta_femtoseconds)
        return a->beta_femtoseconds > b->beta_femtoseconds;
    return a->alpha_picoseconds > b->alpha_picoseconds;
}

/* The line of an axis, else that of "*", else the slowest there is; nothing costs where there are none. */
static sherd_link link_of(const sherd__problem *problem, const char *axis)
{
    const sherd_price *price = &problem->request->price;
    sherd_link other = {"", 0, 0, 0};
    bool starred = false;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        bool star = strcmp(link->axis, "*") == 0;
        if (strcmp(link->axis, axis) == 0)
            return *link;
        if (star || (!starred && (i == 0 || slower(link, &other))))
            other = *link;
        starred = starred || star;
    }
    return other;
}

/* The axes of a set and their links, fastest first. */
typedef struct route {
    int axes;
    int axis[SHERD_MAX_AXES];
    sherd_link link[SHERD_MAX_AXES];
} route;

static void find_route(route *r, const sherd__problem *problem, const sherd_mesh *mesh,
                       unsigned axes)
{
    r->axes = 0;
    for (int a = 0; a < mesh->axes; a++) {
        if (!(axes >> a & 1))
            continue;
        sherd_link link = link_of(problem, mesh->name[a]);
        int i = r->axes++;
        for (; i > 0 && slower(&r->link[i - 1], &link); i--) {
            r->axis[i] = r->axis[i - 1];
            r->link[i] = r->link[i - 1];
        }
        r->axis[i] = a;
        r->link[i] = link;
    }
}

/* ---- steps that pull straight --------------------------------------------------------------- */

static void add_class(cost *sum, const sherd_link *link, int64_t messages, int64_t bytes)
{
    add_term(sum, messages, link->alpha_picoseconds, FEMTO);
    add_term(sum, bytes, link->beta_femtoseconds, 1);
}

/* Of the slowest axis reduced. */
static void add_additions(cost *sum, const route *r, unsigned reduced, int64_t bytes)
{
    for (int j = r->axes - 1; j >= 0; j--)
        if (reduced >> r->axis[j] & 1) {
            add_term(sum, bytes, r->link[j].gamma_femtoseconds, 1);
            return;
        }
}

/*
 * Each class receives what lies within reach of its axis and the faster ones, but not of the faster ones
 * alone; k addends of it, k being the coordinates of the reduced axes among them.
 */
static int64_t time_straight(const sherd__priced *p, const sherd__problem *problem, const route *r)
{
    const sherd__change *change = &p->change;
    int64_t element_bytes = (int64_t)problem->element_bytes;
    unsigned own = 0;
    sherd__grid grid;
    cost sum = {0};

    sherd__grid_make(&grid, change, p->step.from->spec.shape);
    for (int j = 0; j < r->axes; j++) {
        unsigned through = own | 1u << r->axis[j];
        int64_t times = sherd__extent_of(change->mesh, through & change->reduced);
        int64_t less = sherd__extent_of(change->mesh, own & change->reduced);
        const sherd__question elements = {&grid, SHERD__ELEMENTS, SHERD__TARGET, through, own};
        const sherd__question messages = {&grid, SHERD__MESSAGES, SHERD__TARGET, through, own};
        int64_t received = sherd__most(&elements, times, less);
        if (received > 0)
            add_class(&sum, &r->link[j], sherd__most(&messages, times, less),
                      sherd__mul_cut(received, element_bytes));
        own = through;
    }
    int64_t added = sherd__mul_cut(p->amounts.target_max, change->addends - 1);
    add_additions(&sum, r, change->reduced, sherd__mul_cut(added, element_bytes));
    return time_of(&sum);
}

/* ---- sliced all-reduces --------------------------------------------------------------------- */

/*
 * The slices of one box over a group: the first `full` ranks have `slice` elements, the next one `rest`,
 * the others none. A rank's number is read off its coordinates as digits.
 */
typedef struct slices {
    int axes;
    int axis[SHERD_MAX_AXES];                              /* in mesh order */
    int64_t extent[SHERD_MAX_AXES], digit[SHERD_MAX_AXES]; /* of `full` */
    int64_t slice, rest;
    bool all_full;
    int64_t at[SHERD_MAX_AXES];
    int64_t elements[SHERD_MAX_AXES], messages[SHERD_MAX_AXES]; /* per class, most of a rank */
} slices;

static void make_slices(slices *s, const sherd__priced *p)
{
    const sherd_mesh *mesh = p->change.mesh;
    int64_t n = p->amounts.target_max, lo;

    memset(s, 0, sizeof *s);
    sherd__slice_of(n, p->change.addends, 0, &lo, &s->slice);
    int64_t full = n / s->slice;
    s->rest = n % s->slice;
    s->all_full = full == p->change.addends;
    for (int a = 0; a < mesh->axes; a++)
        if (p->change.reduced >> a & 1) {
            s->axis[s->axes] = a;
            s->extent[s->axes++] = mesh->extent[a];
        }
    for (int i = s->axes - 1; i >= 0; i--) {
        s->digit[i] = full % s->extent[i];
        full /= s->extent[i];
    }
}

/* Elements, or slices that are not empty, of the ranks that differ from `at` in `free` axes at most. */
static int64_t slices_of(const slices *s, unsigned free, bool counting)
{
    int64_t below = 1, less = 0;
    bool equal = !s->all_full;

    for (int i = 0; i < s->axes; i++)
        below *= free >> s->axis[i] & 1 ? s->extent[i] : 1;
    if (s->all_full)
        less = below;
    for (int i = 0; i < s->axes && equal; i++) { /* those whose number is below `full` */
        bool any = free >> s->axis[i] & 1;
        below /= any ? s->extent[i] : 1;
        less += any ? s->digit[i] * below : s->at[i] < s->digit[i] ? below : 0;
        equal = any || s->at[i] == s->digit[i];
    }
    if (counting)
        return less + (equal && s->rest);
    return sherd__add_cut(sherd__mul_cut(less, s->slice), equal ? s->rest : 0);
}

/* A rank pulls its slice from each other one, and gets theirs. */
static void count_rank(slices *s, const route *r, const sherd_mesh *mesh)
{
    unsigned own = 0;
    int64_t mine = slices_of(s, 0, false);

    for (int j = 0; j < r->axes; j++) {
        unsigned through = own | 1u << r->axis[j];
        int64_t peers = sherd__extent_of(mesh, through) - sherd__extent_of(mesh, own);
        int64_t written = slices_of(s, through, false) - slices_of(s, own, false);
        int64_t writes = slices_of(s, through, true) - slices_of(s, own, true);
        s->elements[j] =
            sherd__max(s->elements[j], sherd__add_cut(sherd__mul_cut(peers, mine), written));
        s->messages[j] = sherd__max(s->messages[j], (mine ? peers : 0) + writes);
        own = through;
    }
}

/* Digits matter only by how they compare with those of `full`. */
static void count_ranks(slices *s, const route *r, const sherd_mesh *mesh, int i)
{
    if (i == s->axes) {
        count_rank(s, r, mesh);
        return;
    }
    const int64_t tried[] = {0, s->digit[i], s->digit[i] + 1};
    for (int k = s->digit[i] == 0 ? 1 : 0; k < 3; k++) {
        s->at[i] = tried[k];
        if (tried[k] < s->extent[i])
            count_ranks(s, r, mesh, i + 1);
    }
}

static int64_t time_sliced(const sherd__priced *p, const sherd__problem *problem, const route *r)
{
    int64_t element_bytes = (int64_t)problem->element_bytes;
    cost sum = {0};
    slices s;

    make_slices(&s, p);
    count_ranks(&s, r, p->change.mesh, 0);
    for (int j = 0; j < r->axes; j++)
        add_class(&sum, &r->link[j], s.messages[j], sherd__mul_cut(s.elements[j], element_bytes));
    int64_t added = sherd__mul_cut(s.slice, p->change.addends - 1);
    add_additions(&sum, r, p->change.reduced, sherd__mul_cut(added, element_bytes));
    return time_of(&sum);
}

/* ---- the model ------------------------------------------------------------------------------ */

static int64_t time_across(const sherd__priced *p, const sherd__problem *problem)
{
    int64_t element_bytes = (int64_t)problem->element_bytes;
    const sherd_link link = link_of(problem, "*");
    int64_t added = sherd__mul_cut(p->amounts.target_max, p->change.addends - 1);
    cost sum = {0};

    add_class(&sum, &link, 1, sherd__mul_cut(p->amounts.receive_max, element_bytes));
    add_term(&sum, sherd__mul_cut(added, element_bytes), link.gamma_femtoseconds, 1);
    return time_of(&sum);
}

static void price_links(sherd__priced *p, const sherd__problem *problem)
{
    route r;

    p->step.sliced = false;
    p->rounds = 0;
    p->step.picoseconds = 0;
    if (p->step.kind == SHERD_STEP_SLICE || p->step.kind == SHERD_STEP_PARTITION)
        return;
    p->rounds = 1;
    if (p->change.across) {
        p->step.picoseconds = time_across(p, problem);
        return;
    }
    find_route(&r, problem, p->change.mesh, p->step.axes);
    p->step.picoseconds = time_straight(p, problem, &r);
    if (p->step.kind != SHERD_STEP_ALL_REDUCE)
        return;
    int64_t sliced = time_sliced(p, problem, &r);
    if (sliced < p->step.picoseconds) {
        p->step.sliced = true;
        p->step.picoseconds = sliced;
        p->rounds = 2;
    }
}

/* The best of all links that a step may use, each constant for itself. */
static sherd_link best_link(const sherd__problem *problem)
{
    const sherd_mesh *mesh = problem->from->spec.mesh;
    sherd_link best = {"", SHERD__MOST, SHERD__MOST, SHERD__MOST};

    for (int a = 0; a <= mesh->axes; a++) {
        bool used = a < mesh->axes ? mesh->extent[a] > 1 : problem->to->spec.mesh != mesh;
        const sherd_link link = link_of(problem, a < mesh->axes ? mesh->name[a] : "*");
        if (!used)
            continue;
        best.alpha_picoseconds = sherd__min(best.alpha_picoseconds, link.alpha_picoseconds);
        best.beta_femtoseconds = sherd__min(best.beta_femtoseconds, link.beta_femtoseconds);
        best.gamma_femtoseconds = sherd__min(best.gamma_femtoseconds, link.gamma_femtoseconds);
    }
    return best;
}

/*
 * Of k addends of n elements the rank with the largest box receives k - 1 from as many ranks; sliced, the
 * first rank of its group adds a slice of n / k or more, and receives 2 (k - 1) n / k. Without a
 * reduction a single element may be all.
 */
static int64_t floor_links(const sherd__problem *problem, int64_t target_max, int64_t addends)
{
    const sherd_link link = best_link(problem);
    int64_t element_bytes = (int64_t)problem->element_bytes, k = addends;
    int64_t slice = sherd__ceil_div(target_max, k);
    sherd__wide doubled = (sherd__wide)target_max * 2 * (k - 1);
    sherd__wide received = k == 1 ? 1 : (doubled + k - 1) / k;
    int64_t messages = k == 1 || problem->to->spec.mesh != problem->from->spec.mesh ? 1 : k - 1;
    cost sum = {0};

    add_class(&sum, &link, messages, sherd__mul_cut(sherd__cut(received), element_bytes));
    add_term(&sum, sherd__mul_cut(sherd__mul_cut(slice, k - 1), element_bytes),
             link.gamma_femtoseconds, 1);
    return time_of(&sum);
}

const sherd__price_model sherd__price_links = {"links", price_links, floor_links, best_link, false};
