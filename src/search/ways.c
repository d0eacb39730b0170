/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs of ways to shard a dim, before and after a step: what they share, and what a glance and a
 * look under the price of links need to know of them. Some hundred nanoseconds a pair; cached if
 * there are not too many.
 */
#include "search.h"
#include "base/num.h"

int sherd__ways_shared(const sherd__field *field, int d, const sherd__way *a, const sherd__way *b)
{
    const sherd__way *both[2] = {a, b};
    sherd__dim dim[2];

    if (!a->cuts && !b->cuts)
        return sherd__ways_same(a, b);
    for (int k = 0; k < 2; k++) {
        dim[k].axes = both[k]->axes;
        dim[k].cuts = both[k]->cuts;
        for (int i = 0; i < both[k]->axes; i++)
            dim[k].axis[i] = (int)(both[k]->word >> 8 * i & 0xff) - 1;
    }
    return sherd__dim_common(field->mesh, &dim[0], &dim[1], field->shape[d]);
}

static void find_levels(sherd__field *field)
{
    bool overlap = field->problem->request->price.overlap;
    unsigned faster = 0;

    for (int j = 0; j < field->links.lanes.axes; j++) {
        int64_t alpha = field->links.alpha[j], beta = field->links.beta[j];
        const sherd__level *last = &field->links.level[j > 0 ? field->links.levels - 1 : 0];
        if (overlap || j == 0 || alpha != last->alpha || beta != last->beta)
            field->links.level[field->links.levels++] = (sherd__level){j, 0, faster, alpha, beta};
        field->links.level[field->links.levels - 1].axes |= 1u << field->links.lanes.axis[j];
        faster |= 1u << field->links.lanes.axis[j];
    }
}

void sherd__links_start(sherd__field *field)
{
    sherd_link least = {"", SHERD__MOST, SHERD__MOST, 0, 0};

    sherd__lanes_find(&field->links.lanes, field->problem, field->movable | field->frozen);
    for (int j = field->links.lanes.axes - 1; j >= 0; j--) {
        const sherd_link *link = &field->links.lanes.link[j];
        least.alpha_picoseconds = sherd__min(least.alpha_picoseconds, link->alpha_picoseconds);
        least.beta_femtoseconds = sherd__min(least.beta_femtoseconds, link->beta_femtoseconds);
        field->links.alpha[j] = least.alpha_picoseconds;
        field->links.beta[j] = least.beta_femtoseconds;
        field->links.pace[field->links.lanes.axis[j]] = j;
    }
    find_levels(field);
}

/*
 * Make room for the pairs of dims that have few ways, and for some prices. Without memory they are
 * found each time.
 */
void sherd__links_pairs(sherd__field *field)
{
    enum { WAYS = 96 };
    sherd__heap *heap = field->problem->space->heap;

    field->priced.table = sherd__alloc(heap, SHERD__KNOWN, sizeof *field->priced.table);
    field->links.pairs = sherd__alloc(heap, 1, sizeof *field->links.pairs);
    for (int d = 0; d < field->ndim && field->links.pairs; d++) {
        sherd__field_dim *of = &field->dim[d];
        size_t ways = (size_t)of->ways;
        if (ways <= WAYS)
            of->shifts = sherd__alloc(heap, ways * ways, sizeof *of->shifts);
    }
}

void sherd__links_forget(sherd__field *field)
{
    sherd__heap *heap = field->problem->space->heap;

    for (int d = 0; d < field->ndim; d++)
        sherd__free(heap, field->dim[d].shifts);
    for (int i = 0; field->links.pairs && i < field->links.pairs->pages; i++)
        sherd__free(heap, field->links.pairs->page[i]);
    sherd__free(heap, field->links.pairs);
    sherd__free(heap, field->priced.table);
}

void sherd__links_reach(const sherd__field *field, int d, const sherd__dim *dim, sherd__way *way)
{
    int64_t n = field->shape[d];

    for (unsigned number = 0; number < 1u << dim->axes; number++) {
        unsigned joined = 0;
        for (int i = 0; i < dim->axes; i++)
            joined |= (number >> i & 1) << dim->axis[i];
        way->reach[number] =
            field->explicit_cuts || way->even
                ? sherd__min(n, sherd__mul_cut(way->longest, sherd__extent_of(field->mesh, joined)))
                : sherd__stages_part(field->mesh, dim, n, joined);
    }
}

/*
 * Of the first `most` of n elements, which a way cuts from a level on: how many are at coordinate
 * 0 of its axes, or at any coordinate of `axes`.
 */
static int64_t first_of(const sherd__field *field, const sherd__way *way, int level, int64_t n,
                        unsigned axes, int64_t most)
{
    most = sherd__min(most, n);
    if (most <= 0 || level == way->axes)
        return most;
    int axis = (int)(way->word >> 8 * level & 0xff) - 1;
    int64_t chunk = sherd__ceil_div(n, field->mesh->extent[axis]), whole = most / chunk;
    if (!(axes >> axis & 1))
        return first_of(field, way, level + 1, chunk, axes, most);
    int64_t rest = most - whole * chunk, sum = 0;
    if (whole)
        sum = whole * first_of(field, way, level + 1, chunk, axes, chunk);
    if (rest)
        sum += first_of(field, way, level + 1, sherd__min(chunk, n - whole * chunk), axes, rest);
    return sum;
}

/*
 * By level: how much of `most` elements the ranks have together that faster links among `axes`
 * join. An upper bound, which is found fast; exact, for the first rank, if classes overlap and cuts
 * are default.
 */
static void fill_reach(int64_t *out, const sherd__field *field, int d, const sherd__way *way,
                       unsigned axes, int64_t most)
{
    bool exact = field->problem->request->price.overlap && !field->explicit_cuts;
    unsigned number = 0, done = 0;

    for (int i = 0; i < field->links.levels; i++) {
        unsigned more = axes & field->links.level[i].faster & ~done;
        if (i > 0 && !more) {
            out[i] = out[i - 1];
            continue;
        }
        done |= more;
        for (; more; more &= more - 1)
            number |= 1u << way->place[__builtin_ctz(more)];
        if (exact)
            out[i] = first_of(field, way, 0, field->shape[d], done, most);
        else if (way->axes > SHERD__REACHED)
            out[i] = sherd__min(most, number ? field->shape[d] : way->longest);
        else
            out[i] = sherd__min(most, way->reach[number]);
    }
}

/*
 * Of the axes of x from a depth on, those for which the rank at the last coordinate of the axis,
 * and the first of all others, has nothing in x of its interval in y: that interval (or the shard
 * of y that the axis cuts) ends before its shard of x begins, or the last shards of x are empty.
 */
static unsigned apart_in(const sherd__field *field, const sherd__way *x, const sherd__way *y,
                         int depth)
{
    unsigned apart = 0;

    for (int i = depth; i < x->axes; i++) {
        int axis = (int)(x->word >> 8 * i & 0xff) - 1;
        int64_t p = field->mesh->extent[axis], n = x->length[i];
        int64_t first = sherd__min(n, (p - 1) * x->length[i + 1]); /* of the last shard */
        int64_t end = y->mask >> axis & 1 ? y->length[y->place[axis]] : y->longest;
        if (end <= first || n < p)
            apart |= 1u << axis;
    }
    return apart;
}

const sherd__shift *sherd__links_shift_made(const sherd__field *field, int d, int x, int y,
                                            sherd__shift *room)
{
    sherd__shift *p =
        field->dim[d].shifts ? &field->dim[d].shifts[x * field->dim[d].ways + y] : room;
    const sherd__way *source = &field->dim[d].way[x], *target = &field->dim[d].way[y];
    int depth = x == y ? source->axes : sherd__ways_shared(field, d, source, target);
    unsigned kept = sherd__way_first(source, depth);

    *p = (sherd__shift){.pair = -1};
    p->sets = (source->mask & ~kept) << SHERD__GATHERED | (target->mask & ~kept) << SHERD__CUT;
    if (!field->explicit_cuts)
        p->sets |= apart_in(field, source, target, depth) << SHERD__LEADS |
                   apart_in(field, target, source, depth) << SHERD__TRAILS;
    int64_t one = sherd__min(source->longest, target->longest);
    if (!field->explicit_cuts && one > 0)
        p->messages = (uint16_t)sherd__min(sherd__ceil_div(target->longest, one) - 1, UINT16_MAX);
    return p;
}

int64_t sherd__links_wanted(const sherd__field *field, int d, int x, int y, unsigned crossed)
{
    return first_of(field, &field->dim[d].way[y], 0, field->shape[d], crossed,
                    field->dim[d].way[x].longest);
}

/* Room for one more pair; NULL where there is none. */
static sherd__pair *add_pair(const sherd__field *field)
{
    sherd__pairs *of = field->links.pairs;

    if (of->pairs == of->pages * SHERD__PAGE) {
        sherd__pair *page = NULL;
        if (of->pages < SHERD__PAGES)
            page = sherd__alloc(field->problem->space->heap, SHERD__PAGE, sizeof *page);
        if (!page)
            return NULL;
        of->page[of->pages++] = page;
    }
    int at = of->pairs++;
    return &of->page[at / SHERD__PAGE][at % SHERD__PAGE];
}

const sherd__pair *sherd__links_pair_made(const sherd__field *field, int d, int x, int y,
                                          sherd__pair *room)
{
    sherd__shift other;
    const sherd__shift *shift = sherd__links_shift(field, d, x, y, &other);
    sherd__pair *p = shift != &other ? add_pair(field) : NULL;

    if (p)
        field->dim[d].shifts[x * field->dim[d].ways + y].pair = (int16_t)field->links.pairs->pairs;
    else
        p = room;
    const sherd__way *source = &field->dim[d].way[x], *target = &field->dim[d].way[y];
    fill_reach(p->receive, field, d, source, sherd__shift_set(shift->sets, SHERD__GATHERED),
               target->longest);
    fill_reach(p->send, field, d, target, sherd__shift_set(shift->sets, SHERD__CUT),
               source->longest);
    return p;
}
