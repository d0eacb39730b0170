/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What convolutions read, and their layouts. Batch and space are sharded as in the tensor that was
 * given first. The cuts of the other tensor follow from its cuts, so that an output belongs to the
 * rank that holds the middle of what it reads, and activations are not moved. Channels are sharded
 * as in a matrix product, with groups only if no group is cut. An axis that shards what the result
 * lacks leaves a pending sum. Ways are found once for each new set of layouts.
 */
#include "conv.h"

#include "taps.h"
#include "apply/sketch.h"
#include "base/num.h"

enum { FIRST = 2 }; /* dim of space */
enum { BIG, SMALL, KERNEL };

/* ---- what is read around --------------------------------------------------------------------- */

/* The window of a spatial dim; false for any other dim. */
static bool windows_of(sherd__taps *out, const sherd__conv_attributes *a, int d)
{
    int k = d - FIRST;

    if (k < 0)
        return false;
    *out = (sherd__taps){.kernel = a->kernel[k],
                         .stride = a->stride[k],
                         .dilation = a->dilation[k],
                         .padding = a->before[k]};
    return true;
}

void sherd__conv_reads_big(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                           int64_t *first, int64_t *end)
{
    sherd__taps t;

    if (!windows_of(&t, call->attributes, d))
        return;
    t.n = call->in[i]->shape[d];
    sherd__reading r = sherd__windows_read(&t, lo, hi);
    *first = r.first;
    *end = r.end;
}

void sherd__conv_reads_small(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                             int64_t *first, int64_t *end)
{
    sherd__taps t;

    if (!windows_of(&t, call->attributes, d))
        return;
    t.m = call->in[i]->shape[d];
    sherd__reading r = sherd__windows_readers(&t, lo, hi);
    *first = r.first;
    *end = r.end;
}

/* ---- what lies where ------------------------------------------------------------------------- */

/* A dim of the operator that may be sharded, and where its cuts come from. */
typedef struct letter {
    sherd__dim dim; /* axes, and cuts of the tensor that they come from */
    int64_t n;      /* size of that tensor's dim */
    int64_t unit;   /* elements of it that may not be cut apart */
} letter;

typedef struct letters {
    letter batch, big, small, space[SHERD__CONV_DIMS];
    unsigned used;
} letters;

typedef struct lying {
    const sherd_call *call;
    sherd_ways *ways;
    const sherd__conv_roles *role;
    const sherd__conv_attributes *a;
    const sherd_mesh *mesh;
    int made[2], results; /* which of BIG .. */
    int dims;             /* of space */
    int64_t big[SHERD_MAX_DIMS], small[SHERD_MAX_DIMS], weight[SHERD_MAX_DIMS]; /* shapes */
} lying;

static const sherd_layout *given(const lying *l, int operand)
{
    return operand < 0 || operand >= l->call->operands ? NULL : sherd__way_given(l->ways, operand);
}

/* The layout of big or small, one of which is the result. */
static const sherd_layout *layout_of(const lying *l, int operand)
{
    const sherd_layout *layout = given(l, operand);

    return layout || operand >= 0 ? layout : given(l, l->role->like);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static int64_t clamp(int64_t at, int64_t most)
{
    return sherd__max(0, sherd__min(at, most));
}

/* The cut of small that follows from a cut of big of size n, and the converse; m: size of small. */
static int64_t small_cut_of(const sherd__conv_attributes *a, int d, int64_t cut, int64_t n,
                            int64_t m)
{
    int64_t middle = a->dilation[d] * (a->kernel[d] - 1) / 2;

    if (cut <= 0 || cut >= n)
        return cut <= 0 ? 0 : m;
    return clamp(-sherd__floor_div(-(cut + a->before[d] - middle), a->stride[d]), m);
}

static int64_t big_cut_of(const sherd__conv_attributes *a, int d, int64_t cut, int64_t n, int64_t m)
{
    /* rounded so that what a convolution cuts in halves is put together where it was cut */
    int64_t middle = sherd__floor_div(a->dilation[d] * (a->kernel[d] - 1) - a->stride[d] + 2, 2);

    if (cut <= 0 || cut >= m)
        return cut <= 0 ? 0 : n;
    return clamp(cut * a->stride[d] - a->before[d] + middle, n);
}

/* ---- letters --------------------------------------------------------------------------------- */

/*
 * A letter takes the axes of a dim of a layout, if it has none yet, the axes are free, and no unit
 * is cut. Units of no elements cannot be told apart.
 */
static void take(letters *all, letter *x, const sherd_layout *from, int d, int64_t unit)
{
    const sherd__layout_spec *spec = from ? &from->spec : NULL;

    if (!spec || unit == 0 || x->dim.axes || !spec->dim[d].axes ||
        (sherd__dim_bits(&spec->dim[d]) & all->used))
        return;
    int64_t parts = sherd__dim_parts(spec->mesh, &spec->dim[d]);
    for (int64_t i = 0; i <= parts && unit > 1; i++)
        if (sherd__dim_cut(spec->mesh, &spec->dim[d], spec->shape[d], i) % unit)
            return;
    x->dim = spec->dim[d];
    x->n = spec->shape[d];
    x->unit = unit;
    all->used |= sherd__dim_bits(&x->dim);
}

static void take_place(const lying *l, letters *all)
{
    const sherd_layout *first = layout_of(l, l->a->transposed ? l->role->small : l->role->big);

    take(all, &all->batch, first, 0, 1);
    for (int d = 0; d < l->dims; d++)
        take(all, &all->space[d], first, FIRST + d, 1);
}

/* With groups, both kinds of channels are one letter: the groups. */
static void take_channels(const lying *l, letters *all, bool weight_first)
{
    const sherd_layout *big = layout_of(l, l->role->big), *small = layout_of(l, l->role->small);
    const sherd_layout *weight = given(l, l->role->weight);
    int64_t g = l->a->groups;

    if (g > 1) {
        take(all, &all->big, big, 1, l->big[1] / g);
        take(all, &all->big, small, 1, l->small[1] / g);
        take(all, &all->big, weight, 0, l->small[1] / g);
        return;
    }
    if (weight_first) {
        take(all, &all->big, weight, 1, 1);
        take(all, &all->small, weight, 0, 1);
    }
    take(all, &all->big, big, 1, 1);
    take(all, &all->small, small, 1, 1);
    take(all, &all->big, weight, 1, 1);
    take(all, &all->small, weight, 0, 1);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Shard dim d of a sketch as a letter, with its cuts. */
static void shard(sherd__sketch *s, int d, const letter *x, int64_t unit)
{
    s->spec.dim[d] = x->dim;
    s->spec.dim[d].cuts = NULL;
    if (!x->dim.axes)
        return;
    int64_t *cuts = sherd__sketch_cuts(s, d), parts = sherd__dim_parts(s->spec.mesh, &x->dim);
    for (int64_t i = 0; cuts && i <= parts; i++)
        cuts[i] = sherd__dim_cut(s->spec.mesh, &x->dim, x->n, i) / x->unit * unit;
    s->spec.dim[d].cuts = cuts;
}

static void begin(sherd__sketch *s, const lying *l, int ndim, const int64_t *shape)
{
    const sherd_layout *any = NULL;

    for (int i = 0; !any; i++)
        any = given(l, i);
    sherd__sketch_begin(s, any);
    s->spec.ndim = ndim;
    for (int d = 0; d < ndim; d++) {
        s->spec.shape[d] = shape[d];
        s->spec.dim[d] = (sherd__dim){0};
    }
    for (int a = 0; a < l->mesh->axes; a++)
        s->spec.pending[a] = -1;
}

/*
 * The cuts of the other tensor's space follow from those of the given one; if that is empty, of
 * which nobody has any, they are the default.
 */
static void shard_space(sherd__sketch *s, const lying *l, const letters *all, bool is_big)
{
    for (int d = 0; d < l->dims; d++) {
        const letter *x = &all->space[d];
        shard(s, FIRST + d, x, 1);
        if (x->dim.axes && x->n == 0)
            s->spec.dim[FIRST + d].cuts = NULL;
        int64_t *cuts = (int64_t *)(uintptr_t)s->spec.dim[FIRST + d].cuts;
        int64_t parts = sherd__dim_parts(l->mesh, &x->dim), n = l->big[FIRST + d],
                m = l->small[FIRST + d];
        for (int64_t i = 0; cuts && is_big == l->a->transposed && i <= parts; i++)
            cuts[i] =
                is_big ? big_cut_of(l->a, d, cuts[i], n, m) : small_cut_of(l->a, d, cuts[i], n, m);
    }
}

/* Groups are one letter, in units of one group. */
static const letter *channels(const lying *l, const letters *all, bool of_big)
{
    return of_big || l->a->groups > 1 ? &all->big : &all->small;
}

static int64_t unit_of(const lying *l, bool of_big)
{
    return l->a->groups > 1 ? (of_big ? l->big : l->small)[1] / l->a->groups : 1;
}

static sherd_status lay_field(const sherd_layout **out, const lying *l, const letters *all,
                              bool is_big, unsigned pending)
{
    sherd__sketch s;

    begin(&s, l, FIRST + l->dims, is_big ? l->big : l->small);
    shard(&s, 0, &all->batch, 1);
    shard(&s, 1, channels(l, all, is_big), unit_of(l, is_big));
    shard_space(&s, l, all, is_big);
    sherd__spec_sums(&s.spec, pending);
    return sherd__sketch_end(out, &s, l->call->op->name);
}

static sherd_status lay_weight(const sherd_layout **out, const lying *l, const letters *all,
                               unsigned pending)
{
    sherd__sketch s;

    begin(&s, l, FIRST + l->dims, l->weight);
    shard(&s, 0, channels(l, all, false), unit_of(l, false));
    if (l->a->groups == 1)
        shard(&s, 1, &all->big, 1);
    sherd__spec_sums(&s.spec, pending);
    return sherd__sketch_end(out, &s, l->call->op->name);
}

static sherd_status lay_bias(const sherd_layout **out, const lying *l, const letters *all,
                             bool is_big)
{
    sherd__sketch s;

    begin(&s, l, 1, (is_big ? l->big : l->small) + 1);
    shard(&s, 0, channels(l, all, is_big), unit_of(l, is_big));
    return sherd__sketch_end(out, &s, l->call->op->name);
}

/* ---- what is pending ------------------------------------------------------------------------- */

/* Pending sums of one operand alone, on axes that shard nothing, stay pending. */
static unsigned passing(const lying *l, const letters *all, int operand)
{
    const sherd_layout *mine = given(l, operand);
    unsigned bits = 0, others = all->used;
    const int factors[] = {l->role->big, l->role->small, l->role->weight};

    for (int i = 0; i < 3; i++)
        if (factors[i] != operand && given(l, factors[i]))
            others |= given(l, factors[i])->pending_axes;
    for (int a = 0; mine && a < l->mesh->axes; a++)
        if (mine->spec.pending[a] == SHERD_SUM && !(others >> a & 1))
            bits |= 1u << a;
    return bits;
}

/* Axes that shard both factors, but not the result. */
static unsigned summed(const lying *l, const letters *all, int made)
{
    unsigned bits = 0;

    if (made == KERNEL) {
        bits = sherd__dim_bits(&all->batch.dim);
        for (int d = 0; d < l->dims; d++)
            bits |= sherd__dim_bits(&all->space[d].dim);
    } else if (l->a->groups == 1) {
        bits = sherd__dim_bits(made == BIG ? &all->small.dim : &all->big.dim);
    }
    return bits;
}

/* ---- ways ------------------------------------------------------------------------------------ */

static sherd_status lay(const sherd_layout **out, const lying *l, const letters *all, int which,
                        unsigned pending)
{
    return which == KERNEL ? lay_weight(out, l, all, pending)
                           : lay_field(out, l, all, which == BIG, pending);
}

static sherd_status add(const lying *l, const letters *all)
{
    const sherd__conv_roles *r = l->role;
    const sherd_layout *operand[SHERD_MAX_OPERANDS] = {NULL}, *result[SHERD_MAX_RESULTS] = {NULL};
    const int factor[] = {r->big, r->small, r->weight};
    unsigned sums[] = {0, 0, 0};
    sherd_status status = SHERD_OK;

    for (int i = BIG; i <= KERNEL && !status; i++) {
        if (factor[i] < 0)
            continue;
        sums[i] = passing(l, all, factor[i]);
        status = lay(&operand[factor[i]], l, all, i, sums[i]);
    }
    if (!status && given(l, r->bias))
        status = lay_bias(&operand[r->bias], l, all, r->big < 0);
    if (given(l, r->like))
        operand[r->like] = given(l, r->like);
    for (int j = 0; j < l->results && !status; j++) {
        unsigned pending = summed(l, all, l->made[j]);
        for (int i = BIG; i <= KERNEL; i++)
            pending |= i != l->made[j] ? sums[i] : 0;
        status = lay(&result[j], l, all, l->made[j], pending);
    }
    return status ? status : sherd_way_add(l->ways, operand, result);
}

/* Which of the three is the result; or the input and the weight are. */
static void find_made(lying *l)
{
    const int factor[] = {l->role->big, l->role->small, l->role->weight};

    l->results = 1;
    for (int i = BIG; i <= KERNEL; i++)
        if (factor[i] < 0)
            l->made[0] = i;
    if (l->role->both) {
        l->results = 2;
        l->made[0] = l->a->transposed ? SMALL : BIG;
        l->made[1] = KERNEL;
    }
}

/* The shapes of all three, of which one is the result's. */
static void find_shapes(lying *l)
{
    const int factor[] = {l->role->big, l->role->small, l->role->weight};
    int64_t *const shape[] = {l->big, l->small, l->weight};

    for (int i = 0; i < 3; i++)
        for (int d = 0; d < FIRST + l->dims; d++)
            shape[i][d] = factor[i] < 0 ? l->call->shape[0][d] : l->call->in[factor[i]]->shape[d];
}

sherd_status sherd__conv_ways(const sherd_call *call, sherd_ways *ways,
                              const sherd__conv_roles *roles)
{
    lying l = {.call = call, .ways = ways, .role = roles, .a = call->attributes};
    sherd_status status = SHERD_OK;

    l.dims = call->in[0]->ndim - FIRST;
    l.mesh = sherd__way_given(ways, 0)->spec.mesh;
    find_made(&l);
    find_shapes(&l);
    for (int weight_first = 0; weight_first < 2 && !status; weight_first++) {
        letters all = {.used = 0};
        if (!weight_first)
            take_place(&l, &all);
        take_channels(&l, &all, weight_first);
        if (weight_first)
            take_place(&l, &all);
        status = add(&l, &all);
    }
    return status;
}
