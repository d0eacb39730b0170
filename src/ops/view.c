/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same elements in another shape. The dims of both shapes are matched in groups of equal
 * products, for example [8,128 | 192] and [8,128 | 4,48]. Where shards nest (nest.c) they stay
 * where they are. Otherwise in a group the outermost dim may be sharded: its cuts, counted in
 * elements of the group, must lie between two indices of the new outermost dim. If they do not,
 * the operand first moves to the nearest cuts that do. If a dim after the outermost one is
 * sharded, its axes move to a dim that may be: the outermost one, or that of another group if then
 * the busiest rank receives less. Nothing else is sent, and a contiguous operand's storage is
 * shared.
 */
#include "apply/sketch.h"

#include <string.h>

#include "base/num.h"
#include "search/plans.h"
#include "layout/shape.h"
#include "nest.h"

/* Dims [from, from_end) of one shape have the product of dims [to, to_end) of the other. */
typedef struct group {
    int from, from_end, to, to_end;
    bool nested; /* its shards stay, and are mapped */
} group;

enum { OWN = -1 };

typedef struct mapping {
    int home;   /* the dim that takes displaced axes; OWN = the outermost of their group */
    bool nests; /* axes that move may nest */
    const sherd__layout_spec *given;
    sherd__layout_spec from, to; /* `from` as given, but with the cuts that the view needs */
    bool in_the_way;             /* whether axes were */
    unsigned homes;              /* bits of the dims that may take them */
    int64_t *cuts[3 * SHERD_MAX_DIMS];
    int cuts_made;
    sherd__heap *heap;
} mapping;

/* ---- groups ---------------------------------------------------------------------------------- */

/*
 * Without elements, dims are matched one by one while they are equal; the others make one group, in
 * which sharding means nothing.
 */
static int groups_of_nothing(group *g, const int64_t *s, int ns, const int64_t *t, int nt)
{
    int count = 0;

    while (count < ns && count < nt && s[count] == t[count]) {
        g[count] = (group){count, count + 1, count, count + 1, false};
        count++;
    }
    if (count < ns || count < nt) {
        g[count] = (group){count, ns, count, nt, false};
        return count + 1;
    }
    return count;
}

static int groups_of(group *g, const int64_t *s, int ns, const int64_t *t, int nt)
{
    int i = 0, j = 0, count = 0;

    while (i < ns && j < nt) {
        int64_t a = s[i], b = t[j];
        g[count] = (group){.from = i++, .to = j++};
        while (a != b) {
            if (a < b)
                a *= s[i++];
            else
                b *= t[j++];
        }
        g[count].from_end = i;
        g[count++].to_end = j;
    }
    /* What is left on one side has size 1. */
    if (count == 0 && (ns || nt))
        g[count++] = (group){0, 0, 0, 0, false};
    if (count) {
        g[count - 1].from_end = ns;
        g[count - 1].to_end = nt;
    }
    return count;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static int64_t product(const int64_t *shape, int first, int end)
{
    int64_t n = 1;

    for (int d = first; d < end; d++)
        n *= shape[d];
    return n;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t *new_cuts(mapping *m, int64_t parts)
{
    int64_t *cuts = sherd__alloc(m->heap, sherd__bytes(parts + 1), sizeof *cuts);

    if (cuts)
        m->cuts[m->cuts_made++] = cuts;
    return cuts;
}

/*
 * Put the shards of source dim `s` on target dim `t`. An index of s is `s_rest` elements of the
 * group, one of t `t_rest`: source cuts must be multiples of `unit`. False for lack of memory.
 */
static bool carry(mapping *m, int s, int64_t s_rest, int t, int64_t t_rest)
{
    int64_t n = m->from.shape[s], unit = t_rest / common_divisor(s_rest, t_rest);
    int64_t parts = sherd__dim_parts(m->from.mesh, &m->from.dim[s]);
    int64_t *cuts = new_cuts(m, parts), *target = new_cuts(m, parts);
    bool moves = false;

    if (!cuts || !target)
        return false;
    sherd__dim_cuts(m->from.mesh, &m->from.dim[s], n, cuts);
    for (int64_t i = 0; i <= parts; i++) {
        int64_t nearest = sherd__min((cuts[i] + unit / 2) / unit * unit, n);
        moves |= nearest != cuts[i];
        cuts[i] = nearest;
        target[i] = nearest * s_rest / t_rest;
    }
    m->to.dim[t] = m->from.dim[s];
    m->to.dim[t].cuts = target;
    if (moves)
        m->from.dim[s].cuts = cuts;
    return true;
}

/* The first dim in [first, end) that is not of size 1; `end` if all are. */
static int outermost(const int64_t *shape, int first, int end)
{
    while (first < end && shape[first] == 1)
        first++;
    return first;
}

/* Whether source dim d has more than one shard. Others can be left out. */
static bool is_split(const mapping *m, int d)
{
    return sherd__dim_parts(m->from.mesh, &m->from.dim[d]) > 1;
}

/* The axes of dim d go to dim `home`, after its own. False for lack of memory. */
static bool move_axes(mapping *m, int d, int home)
{
    sherd__dim *to = &m->from.dim[home], before = *to;

    for (int i = 0; i < m->from.dim[d].axes; i++)
        to->axis[to->axes++] = m->from.dim[d].axis[i];
    m->from.dim[d] = (sherd__dim){0};
    if (!before.cuts)
        return true;

    int64_t *cuts = new_cuts(m, sherd__dim_parts(m->from.mesh, to));
    if (!cuts)
        return false;
    sherd__dim_refine(m->from.mesh, &before, before.axes, to, m->from.shape[home], cuts);
    to->cuts = cuts;
    return true;
}

/*
 * The dim of a group that may be sharded: the first that is not of size 1, or is split all the
 * same.
 */
static int head_of(const mapping *m, const group *g)
{
    int s = g->from;

    while (s < g->from_end && m->from.shape[s] == 1 && !is_split(m, s))
        s++;
    return s;
}

/*
 * One dim that stays as it is. Without elements it may get another size, for which its cuts mean
 * nothing.
 */
static bool is_same_dim(const mapping *m, const group *g)
{
    return g->from_end - g->from == 1 && g->to_end - g->to == 1 &&
           m->from.shape[g->from] == m->to.shape[g->to];
}

/*
 * Move away what shards a group behind its head. A gather would bring each rank all that this
 * brings it, and more.
 */
static bool clear_way(mapping *m, const group *g)
{
    int head = head_of(m, g);

    for (int d = head + 1; d < g->from_end; d++) {
        if (!is_split(m, d))
            continue;
        m->in_the_way = true;
        if (!move_axes(m, d, m->home == OWN ? head : m->home))
            return false;
    }
    return true;
}

/* Whether dims [first, end) have a split one. */
static bool has_split(const mapping *m, int first, int end)
{
    while (first < end && !is_split(m, first))
        first++;
    return first < end;
}

/* The shards of a group as they are. False for lack of memory. */
static bool nest(bool *fits, mapping *m, const group *g)
{
    const sherd__nest dims = {.from = &m->from,
                              .to = &m->to,
                              .first = g->from,
                              .end = g->from_end,
                              .to_first = g->to,
                              .to_end = g->to_end,
                              .heap = m->heap};

    if (!sherd__nest_dims(fits, &dims))
        return false;
    for (int t = g->to; t < g->to_end; t++)
        if (m->to.dim[t].cuts)
            m->cuts[m->cuts_made++] = (int64_t *)m->to.dim[t].cuts;
    return true;
}

/* Whether dim d may nest: with axes that have moved there only if that is tried. */
static bool may_nest(const mapping *m, int d)
{
    return m->nests || m->from.dim[d].axes == m->given->dim[d].axes;
}

/* False for lack of memory. */
static bool map_group(mapping *m, group *g, bool empty)
{
    int s = head_of(m, g), t = outermost(m->to.shape, g->to, g->to_end);

    if (is_same_dim(m, g)) {
        m->to.dim[g->to] = m->from.dim[g->from];
        return true;
    }
    if (!empty && !g->nested && has_split(m, g->from, g->from_end) && may_nest(m, s) &&
        !nest(&g->nested, m, g))
        return false;
    if (g->nested)
        return true;
    if (empty || s == g->from_end || !m->from.dim[s].axes)
        return true;
    if (t == g->to_end)
        t = g->to;
    if (t == g->to_end) {
        /* Dims of size 1 that vanish: no dim is left to carry their shards. */
        m->from.dim[s] = is_split(m, s) ? (sherd__dim){0} : m->from.dim[s];
        return true;
    }
    return carry(m, s, product(m->from.shape, s + 1, g->from_end), t,
                 product(m->to.shape, t + 1, g->to_end));
}

/* Find who may take axes, and move those that are in the way. False for lack of memory. */
static bool prepare(mapping *m, group *g)
{
    int head = head_of(m, g);

    if (has_split(m, head + 1, g->from_end) && !nest(&g->nested, m, g))
        return false;
    if (g->nested)
        return true;
    if (head < g->from_end && m->from.shape[head] > 1)
        m->homes |= 1u << head;
    return clear_way(m, g);
}

static sherd_status map_all(mapping *m, const sherd_layout *layout, const int64_t *shape, int ndim)
{
    group groups[SHERD_MAX_DIMS + 1];
    bool empty = product(shape, 0, ndim) == 0;

    m->given = &layout->spec;
    m->from = layout->spec;
    m->to = (sherd__layout_spec){.mesh = m->from.mesh, .ndim = ndim};
    memcpy(m->to.shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(m->to.pending, m->from.pending, sizeof m->to.pending);
    int count = empty ? groups_of_nothing(groups, m->from.shape, m->from.ndim, shape, ndim)
                      : groups_of(groups, m->from.shape, m->from.ndim, shape, ndim);
    bool good = true;
    for (int i = 0; i < count && !empty && good; i++)
        good = prepare(m, &groups[i]);
    for (int i = 0; i < count && good; i++)
        good = map_group(m, &groups[i], empty);
    return good ? SHERD_OK : sherd__no_memory(layout->space->diag, "sherd_view");
}

/* What a layout becomes, and what it must be moved to first. */
typedef struct image {
    const sherd_layout *from, *to;
} image;

static sherd_status map_layout(image *out, mapping *m, const sherd_layout *layout,
                               const int64_t *shape, int ndim)
{
    m->heap = layout->space->heap;
    sherd_status status = map_all(m, layout, shape, ndim);

    if (!status)
        status = sherd__layout_intern(&out->from, &m->from);
    if (!status)
        status = sherd__layout_intern(&out->to, &m->to);
    for (int i = 0; i < m->cuts_made; i++)
        sherd__free(m->heap, m->cuts[i]);
    return status;
}

/* What the busiest rank receives, and then what the fullest one holds. */
typedef struct cost {
    int64_t bytes, elements;
} cost;

static sherd_status cost_of(cost *out, const sherd_layout *layout, const sherd_layout *from)
{
    const sherd_plan *plan;
    sherd_status status = sherd__plan_find(&plan, layout, from, SHERD__PRICED_BYTES, NULL);

    if (!status)
        *out = (cost){plan->price.recv_max_bytes, sherd__layout_largest(from)};
    return status;
}

/*
 * Where axes are in the way all homes are tried, where they nest or not; the first wins a tie, and
 * a group's own comes first.
 */
static sherd_status find_image(image *out, const sherd_layout *layout, const int64_t *shape,
                               int ndim)
{
    mapping own = {.home = OWN, .nests = true};
    sherd_status status = map_layout(out, &own, layout, shape, ndim);
    cost best;

    if (status || !own.in_the_way)
        return status;
    status = cost_of(&best, layout, out->from);
    for (int i = 1; i < 2 * (layout->spec.ndim + 1) && !status; i++) {
        mapping other = {.home = OWN + i / 2, .nests = i % 2 == 0};
        image there;
        cost price;
        if (other.home != OWN && !(own.homes >> other.home & 1))
            continue;
        status = map_layout(&there, &other, layout, shape, ndim);
        if (!status)
            status = cost_of(&price, layout, there.from);
        if (status || price.bytes > best.bytes ||
            (price.bytes == best.bytes && price.elements >= best.elements))
            continue;
        *out = there;
        best = price;
    }
    return status;
}

/* ---- the view -------------------------------------------------------------------------------- */

typedef struct view_attributes {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS]; /* one may be -1 */
} view_attributes;

/* The wanted shape with -1 filled in. */
static const char *complete(sherd_call *call, const view_attributes *wanted)
{
    int64_t count = sherd_tensor_count(call->in[0]), known = 1, *out = call->shape[0];
    int open = -1;

    for (int d = 0; d < wanted->ndim; d++) {
        out[d] = wanted->shape[d];
        if (out[d] == -1 && open >= 0)
            return sherd_call_reason(call, "dims %d and %d of the new shape are both -1", open, d);
        if (out[d] == -1)
            open = d;
        else if (out[d] < 0 || !sherd__mul(known, out[d], &known))
            return sherd_call_reason(call, "size %lld of dim %d of the new shape is %s",
                                     (long long)out[d], d, out[d] < 0 ? "negative" : "too large");
    }
    if (open >= 0 && (known ? count % known : count))
        return sherd_call_reason(call,
                                 "no size for the -1 in the new shape: %lld elements are no "
                                 "multiple of %lld",
                                 (long long)count, (long long)known);
    if (open >= 0) {
        out[open] = known ? count / known : 0;
        known *= out[open];
    }
    return known == count ? NULL
                          : sherd_call_reason(call, "the new shape has %lld elements, not %lld",
                                              (long long)known, (long long)count);
}

static const char *describe(sherd_call *call)
{
    const view_attributes *wanted = call->attributes;

    if (wanted->ndim < 0 || wanted->ndim > SHERD_MAX_DIMS)
        return sherd_call_reason(call, "a new shape of %d dims", wanted->ndim);
    sherd_call_shape(call, 0, wanted->ndim, NULL);
    return complete(call, wanted);
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const view_attributes *wanted = call->attributes;
    image as;
    sherd_status status = find_image(&as, call->in[0]->layout, call->shape[0], wanted->ndim);

    return status ? status : sherd_way_add(ways, &as.from, &as.to);
}

/* The piece is row-major: it was made so before forward. */
static bool view(sherd_call *call)
{
    (void)call;
    return true;
}

/*
 * A gradient may come in any layout (this node takes pending sums), so one that is not sharded as
 * the result was is moved there first.
 */
static void view_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *input = sherd_node_layout(node, 0);
    sherd_tensor *g = grad_out[0];
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    if (input && g->layout) {
        image was;
        if (find_image(&was, input, g->shape, g->ndim) != SHERD_OK ||
            (!sherd__dims_equal(was.to, g->layout) &&
             sherd__layout_settle(&was.to, was.to) != SHERD_OK)) {
            grad_in[0] = sherd__fail_diag(g->world, true);
            return;
        }
        if (!sherd__dims_equal(was.to, g->layout))
            g = sherd__gradient_to(g, was.to, false);
    }
    grad_in[0] = sherd_view(g, shape, ndim);
}

const sherd_op sherd__view_op = {
    .name = "sherd_view",
    .summary = "the same elements in another shape",
    .layouts = "the outermost dim of each group of merged or split dims keeps its shards, cut at "
               "multiples of the inner sizes; inner shards are moved there, but for those of one "
               "outer index",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(view_attributes, ndim, INT),
              SHERD_FIELDS(view_attributes, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(view_attributes),
    .linearity = SHERD_UNCHANGED,
    .numbers = SHERD_EVERYTHING,
    .views = true,
    .describe = describe,
    .ways = lie,
    .forward = view,
    .backward = view_back,
    .takes_pending = true};

sherd_tensor *sherd_view(sherd_tensor *a, const int64_t *shape, int ndim)
{
    view_attributes wanted = {.ndim = ndim && !shape ? -1 : ndim};

    for (int d = 0; wanted.ndim <= SHERD_MAX_DIMS && d < wanted.ndim; d++)
        wanted.shape[d] = shape[d];
    if (a && !sherd_tensor_failed(a) && !(a->layout && sherd__alarmed(a->world)) &&
        ndim == wanted.ndim && sherd__same_shape(ndim, wanted.shape, a->ndim, a->shape))
        return a;
    return sherd_apply(&sherd__view_op, &a, 1, &wanted);
}
