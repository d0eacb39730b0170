/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of a step between two states under the price of links, from lists and longest
 * intervals.
 *
 * Direct steps: consider the rank whose target box is the largest. If links before the j-th cost
 * nothing, what it lacks comes over the j-th and slower ones: all of it except what the ranks
 * connected by the faster links hold. A message brings no more than the longest intervals of both
 * sides have in common. So for each j a lower bound of the bytes and messages over these links is
 * known, and the cheapest way to distribute them uses the best link allowed for each. Likewise for
 * the rank with the largest source, and for ranks that lie apart by an axis from all that they ask,
 * or that ask them.
 *
 * By stages: a round for each doubling, and along an axis of p ranks (p - 1) / p of what is
 * together at its end; if the price says `straight`, a sliced all-reduce goes by slices of the
 * largest box.
 *
 * If shards are even, this is mostly the price itself. Costs some tens of nanoseconds.
 */
#include "search.h"
#include "base/num.h"

/* A rank that lies apart (search.h): all its messages are of a class, or slower ones. */
typedef struct apart {
    int lane;         /* the class; -1 = there is no such rank */
    int64_t elements; /* in all messages of an addend or a copy */
} apart;

/* A step as its lists say. */
typedef struct step {
    const sherd__field *field;
    const sherd__node *a, *b;
    uint32_t sets[SHERD_MAX_DIMS]; /* of its dims; see sherd__shift */
    const sherd__pair *dim[SHERD_MAX_DIMS];
    unsigned gathered, cut, leads, trails, reduced, crossed;
    /* at most so many elements have a rank's source and target in common, or brings a message */
    int64_t one;
    int64_t addends, copies; /* how many want the same of a rank */
    int64_t sharers;         /* replicas that may share what is sent */
    int64_t gamma;           /* the least of the links crossed, if there are addends */
    /* by level: the least of the links crossed there and at slower ones */
    int64_t alpha[SHERD_MAX_AXES], beta[SHERD_MAX_AXES];
    sherd__span enough; /* what is above may be less than it is */
} step;

/* The length of the interval at the last coordinate of one axis, and the first of all others. */
static int64_t last_by(const step *s, int d, const sherd__way *way, int axis)
{
    int64_t n = s->field->shape[d];

    for (int i = 0; i < way->axes; i++) {
        int at = (int)(way->word >> 8 * i & 0xff) - 1;
        int64_t p = s->field->mesh->extent[at], chunk = sherd__ceil_div(n, p);
        n = at == axis ? sherd__max(n - chunk * (p - 1), 0) : chunk;
    }
    return n;
}

/* How much of a dim a rank has at the last coordinate of an axis, and the first of all others. */
static int64_t part_of_last(const step *s, const sherd__node *node, int d, int axis)
{
    const sherd__way *way = &s->field->dim[d].way[node->way[d]];

    return node->home[axis] != d || way->even ? way->longest : last_by(s, d, way, axis);
}

static int64_t wanted_of_first(const step *s, int d)
{
    return sherd__links_wanted(s->field, d, s->a->way[d], s->b->way[d], s->crossed);
}

/* What the rank at the last coordinate of an axis asks for. */
static int64_t target_of_last(const step *s, int axis)
{
    int64_t n = 1;

    for (int d = 0; d < s->field->ndim; d++)
        n *= part_of_last(s, s->b, d, axis);
    return n;
}

/* What it is asked for, once: all of its source, if no replica of it is nearer to some. */
static int64_t source_of_last(const step *s, int axis)
{
    int64_t n = 1;

    for (int d = 0; d < s->field->ndim; d++) {
        bool all = !(sherd__shift_set(s->sets[d], SHERD__CUT) & ~s->crossed);
        if (!all && s->a->home[axis] == d)
            return 0;
        n *= all ? part_of_last(s, s->a, d, axis) : wanted_of_first(s, d);
    }
    return n;
}

/* The rank that lies apart along the slowest of these axes. */
static apart find_apart(const step *s, unsigned axes, int64_t (*part)(const step *s, int axis))
{
    const sherd__lanes *lanes = &s->field->links.lanes;

    for (int j = lanes->axes - 1; j >= 0; j--) {
        int64_t n = axes >> lanes->axis[j] & 1 ? part(s, lanes->axis[j]) : 0;
        if (n > 0)
            return (apart){j, n};
    }
    return (apart){-1, 0};
}

static void find_links(step *s, unsigned crossed)
{
    const sherd__field *field = s->field;
    int64_t alpha = SHERD__MOST, beta = SHERD__MOST, gamma = SHERD__MOST;
    int j = field->links.lanes.axes;

    for (int i = field->links.levels - 1; i >= 0; i--) {
        while (j > field->links.level[i].lane) {
            const sherd_link *link = &field->links.lanes.link[--j];
            if (!(crossed >> field->links.lanes.axis[j] & 1))
                continue;
            alpha = sherd__min(alpha, link->alpha_picoseconds);
            beta = sherd__min(beta, link->beta_femtoseconds);
            gamma = sherd__min(gamma, link->gamma_femtoseconds);
        }
        s->alpha[i] = alpha;
        s->beta[i] = beta;
    }
    s->gamma = s->reduced ? gamma : 0;
}

/* `rooms` are for pairs that are not cached. */
static void compare(step *s, sherd__pair *rooms)
{
    const sherd__field *field = s->field;
    uint32_t sets = 0;
    sherd__shift room;

    s->one = 1;
    s->reduced = s->a->pending & ~s->b->pending;
    for (int d = 0; d < field->ndim; d++) {
        int x = s->a->way[d], y = s->b->way[d];
        s->sets[d] = sherd__links_shift(field, d, x, y, &room)->sets;
        s->dim[d] = sherd__links_pair(field, d, x, y, &rooms[d]);
        s->one *= sherd__min(field->dim[d].way[x].longest, field->dim[d].way[y].longest);
        sets |= s->sets[d];
    }
    s->gathered = sherd__shift_set(sets, SHERD__GATHERED);
    s->cut = sherd__shift_set(sets, SHERD__CUT);
    s->leads = sherd__shift_set(sets, SHERD__LEADS);
    s->trails = sherd__shift_set(sets, SHERD__TRAILS);
    s->crossed = s->gathered | s->reduced;
    s->addends = s->field->extent[s->reduced];
    s->copies = s->field->extent[s->crossed & ~s->cut];
    unsigned share = s->field->problem->request->price.straight ? 0 : s->cut & ~s->crossed;
    s->sharers = s->field->extent[share];
}

/* ---- by stages ------------------------------------------------------------------------------ */

/* Gather n elements of which each rank has a block, or reduce them to blocks; `times`: 2 = both. */
static sherd__span staged(const step *s, unsigned axes, int64_t n, int times)
{
    const sherd__lanes *lanes = &s->field->links.lanes;
    sherd__span sum = 0;

    for (int j = 0; j < lanes->axes; j++) {
        int64_t p = s->field->mesh->extent[lanes->axis[j]];
        if (!(axes >> lanes->axis[j] & 1))
            continue;
        int64_t bytes = sherd__mul_cut(n - sherd__ceil_div(n, p), s->field->bytes);
        sum += times * sherd__span_sent(&lanes->link[j], sherd__rounds_of(p), bytes);
        sum += s->reduced ? sherd__span_added(&lanes->link[j], bytes) : 0;
        n = n / p;
    }
    return sum;
}

/* ---- straight ------------------------------------------------------------------------------- */

/*
 * What a rank has to send or receive at least over the links of each level and slower ones, in
 * elements.
 */
typedef struct needs {
    int64_t over[SHERD_MAX_AXES];
    bool exact; /* where classes overlap: that rank has no more to do */
} needs;

/* For the rank with the largest target: what it lacks if faster links cost nothing. */
static void find_lacked(needs *out, const step *s)
{
    const sherd__field *field = s->field;

    out->exact = !field->explicit_cuts;
    for (int i = 0; i < field->links.levels; i++) {
        const sherd__level *l = &field->links.level[i];
        int64_t found = 1; /* no more than the target */
        for (int d = 0; d < field->ndim; d++)
            found *= s->dim[d]->receive[i];
        out->over[i] = sherd__cut((sherd__wide)s->b->longest * s->addends -
                                  (sherd__wide)found * field->extent[s->reduced & l->faster]);
    }
}

static void find_apart_by(needs *out, const step *s, const apart *rank, int64_t times)
{
    out->exact = false;
    for (int i = 0; i < s->field->links.levels; i++)
        out->over[i] = s->field->links.level[i].lane <= rank->lane
                           ? sherd__cut((sherd__wide)rank->elements * times)
                           : 0;
}

static void find_lacked_apart(needs *out, const step *s)
{
    const apart lacks = find_apart(s, s->leads, target_of_last);
    find_apart_by(out, s, &lacks, s->addends);
}

static void find_asked_apart(needs *out, const step *s)
{
    const apart asked = find_apart(s, s->trails & s->crossed, source_of_last);
    find_apart_by(out, s, &asked, s->copies);
}

/*
 * If replicas do not share what they send, and have different targets: the first rank is asked for
 * what the ranks that differ from it only in crossed axes want of its source.
 */
static void find_asked_alone(needs *out, const step *s)
{
    const sherd__field *field = s->field;
    unsigned copied = s->crossed & ~s->cut;
    int64_t wanted[SHERD_MAX_DIMS], all = 1;

    for (int d = 0; d < field->ndim; d++) {
        bool whole = !(sherd__shift_set(s->sets[d], SHERD__CUT) & ~s->crossed);
        wanted[d] = whole ? field->dim[d].way[s->a->way[d]].longest : wanted_of_first(s, d);
        all *= wanted[d];
    }
    for (int i = 0; i < field->links.levels; i++) {
        int64_t found = 1; /* no more than `all` */
        for (int d = 0; d < field->ndim; d++)
            found *= sherd__min(wanted[d], s->dim[d]->send[i]);
        out->over[i] =
            sherd__cut((sherd__wide)all * s->copies -
                       (sherd__wide)found * field->extent[copied & field->links.level[i].faster]);
    }
}

/*
 * For the rank with the largest source: what ranks that faster links do not join with it ask for at
 * least. If replicas share, each is asked for only a part of what it has.
 */
static void find_asked(needs *out, const step *s)
{
    const sherd__field *field = s->field;
    unsigned crossed = s->gathered | s->reduced, copied = crossed & ~s->cut;
    bool shared = s->cut & ~crossed;

    out->exact = !field->explicit_cuts && !shared;
    if (shared && !field->explicit_cuts && field->problem->request->price.straight) {
        find_asked_alone(out, s);
        return;
    }
    for (int i = 0; i < field->links.levels; i++) {
        const sherd__level *l = &field->links.level[i];
        int64_t copies = field->extent[copied & l->faster];
        if (s->cut & ~crossed) {
            out->over[i] =
                field->explicit_cuts ? 0 : sherd__mul_cut(s->one, s->copies - copies) / s->sharers;
            continue;
        }
        int64_t found = 1; /* no more than the source */
        for (int d = 0; d < field->ndim; d++)
            found *= s->dim[d]->send[i];
        out->over[i] =
            sherd__cut((sherd__wide)s->a->longest * s->copies - (sherd__wide)found * copies);
    }
}

static sherd__span sent(const step *s, int64_t alpha, int64_t beta, int64_t n)
{
    int64_t bytes = sherd__mul_cut(n, s->field->bytes);

    return sherd__span_of(alpha, beta, sherd__ceil_div(n, s->one), bytes);
}

/* The time of a rank with these needs: each link takes what no faster one may take. */
static sherd__span time_in_turn(const step *s, const needs *rank)
{
    const sherd__field *field = s->field;
    unsigned crossed = s->gathered | s->reduced;
    int64_t alpha = 0, beta = 0, gamma = s->gamma;
    sherd__span sum = 0;

    for (int i = 0; i < field->links.levels; i++) {
        const sherd__level *l = &field->links.level[i];
        if (!(crossed & l->axes))
            continue;
        if (rank->over[i] <= 0)
            break;
        sum +=
            sent(s, s->alpha[i] - alpha, sherd__add_cut(s->beta[i] - beta, gamma), rank->over[i]);
        gamma = 0; /* the fastest level counts all bytes */
        alpha = s->alpha[i];
        beta = s->beta[i];
    }
    return sum;
}

/*
 * The same where links overlap: the slowest one counts, if it is known what each takes; otherwise
 * each and all slower ones share what no faster one may take.
 */
static sherd__span time_side_by_side(const step *s, const needs *rank)
{
    const sherd__field *field = s->field;
    unsigned crossed = s->gathered | s->reduced;
    sherd__span most = 0, each;
    int classes = 0;

    for (int i = 0; i < field->links.levels; i++)
        classes += (crossed & field->links.level[i].axes) != 0;
    for (int i = 0; i < field->links.levels; i++) {
        const sherd__level *l = &field->links.level[i];
        const sherd_link *link = &field->links.lanes.link[l->lane];
        int64_t later = i + 1 < field->links.levels ? rank->over[i + 1] : 0;
        if (!(crossed & l->axes))
            continue;
        if (rank->over[i] <= 0)
            break;
        if (rank->exact)
            each = sent(s, link->alpha_picoseconds,
                        sherd__add_cut(link->beta_femtoseconds, s->gamma), rank->over[i] - later);
        else
            each = sent(s, s->alpha[i], sherd__add_cut(s->beta[i], s->gamma), rank->over[i]) /
                   classes--;
        most = each > most ? each : most;
    }
    return most;
}

static sherd__span time_of_rank(const step *s, void (*find)(needs *out, const step *s))
{
    needs rank;

    find(&rank, s);
    return s->field->problem->request->price.overlap ? time_side_by_side(s, &rank)
                                                     : time_in_turn(s, &rank);
}

/* The time of the busiest of these ranks, or of the first that takes more than is enough. */
static sherd__span straight(step *s)
{
    static void (*const finds[])(needs * out, const step *s) = {find_lacked_apart, find_asked_apart,
                                                                find_lacked, find_asked};
    bool alone = s->field->problem->request->price.straight || !(s->cut & ~s->crossed);
    sherd__span best = 0;

    find_links(s, s->crossed);
    for (int i = s->leads == 0; i < 4 && best <= s->enough; i++) {
        if (i == 1 && !(alone && s->trails & s->crossed))
            continue;
        sherd__span time = time_of_rank(s, finds[i]);
        best = time > best ? time : best;
    }
    return best;
}

/* ---- all ------------------------------------------------------------------------------------ */

/* A step that surely sends something: then its kind, collective or not, follows from the lists. */
static sherd__span time_of(step *s, bool collective)
{
    const sherd_price *price = &s->field->problem->request->price;
    bool all_reduce = s->reduced && !s->gathered && !s->cut;
    sherd__span by_stages, direct;

    if (collective && !price->overlap && !price->straight)
        return staged(s, s->gathered | s->reduced, s->reduced ? s->a->longest : s->b->longest, 1);
    direct = straight(s);
    if (!all_reduce && (!collective || price->straight))
        return direct;
    by_stages =
        price->straight
            ? sherd__straight_time_sliced(s->field->mesh, s->reduced, s->a->longest,
                                          s->field->bytes, &s->field->links.lanes, price->overlap)
            : staged(s, s->gathered | s->reduced, s->reduced ? s->a->longest : s->b->longest,
                     all_reduce ? 2 : 1);
    return direct < by_stages ? direct : by_stages;
}

void sherd__links_look(sherd__search_edge *out, const sherd__field *field, int from, int to,
                       int64_t enough)
{
    step s = {.field = field,
              .a = &field->node[from],
              .b = &field->node[to],
              .enough = (sherd__span)enough * SHERD__FEMTO};
    sherd__pair rooms[SHERD_MAX_DIMS];

    compare(&s, rooms);
    out->sure_time = out->sure_bytes = !s.reduced && !s.gathered;
    out->open_bytes = s.gathered | s.cut;
    if (out->sure_time || s.b->longest == 0)
        return;
    if (!s.reduced && s.one == s.b->longest && s.a->total >= s.b->total &&
        find_apart(&s, s.leads, target_of_last).lane < 0)
        return; /* perhaps nothing travels */
    bool collective = s.reduced ? !s.gathered && s.cut == s.reduced : !s.cut;
    out->cost.picoseconds = sherd__span_time(time_of(&s, collective));
}
