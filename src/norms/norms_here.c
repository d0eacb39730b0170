/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over sets on the CPU. Each rank computes the moments of its part of a set in two passes
 * (first the mean, then squared differences); ranks that share sets exchange these three numbers of
 * each, and combine them by Chan's formula in shard order, so that all have the same bits. The same
 * for the two sums of backward. Costs two passes over x and one to write; two over x and dy for
 * backward, and one to write. Numbers are kept by set; those of channels are made item by item.
 */
#include "norms_here.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cast.h"
#include "vector/bodies.h"

enum { X, WEIGHT, BIAS, GIVEN_MEAN, GIVEN_VAR };
enum { Y, MEAN, VAR };
enum { G_DY, G_X, G_MEAN, G_VAR, G_WEIGHT };
enum { G_DX, G_DWEIGHT, G_DBIAS };

static const sherd__norm_kernels *kernels_of(const sherd_call *call)
{
    return sherd__norms_by(sherd__kernels_in(call), call->in[X]->dtype);
}

/* What kernels see of one item, or of the whole batch where sets reach over it. */
static sherd__norming one_item(const sherd__sets *p)
{
    sherd__norming n = p->n;

    n.batch = n.whole ? n.batch : 1;
    return n;
}

/* Where the elements of item i begin. */
static const void *item_at(const sherd_call *call, const sherd__sets *p, const void *x, int64_t i)
{
    return (const char *)x +
           (size_t)(i * p->n.channels * p->n.inner) * sherd_dtype_bytes(call->in[X]->dtype);
}

/* The numbers of the channels of item i: those of their sets. `room` for those of one item. By
 * kernels, as channels of short rows take as long as what is computed with them. */
static const double *of_channels(const sherd_call *call, const sherd__sets *p, int64_t i,
                                 const double *set, double *room)
{
    const sherd__kernels *k = &sherd__world_kernels(call->world)->f64;

    if (p->group == 1)
        return set + i * p->slots;
    for (int64_t s = 0; s < p->slots; s++) {
        int64_t c, end = sherd__slot_end(p, s, &c);
        k->fill(room + c, end - c, set[i * p->slots + s]);
    }
    return room;
}

/* scale[channels] of item i: their weights times the numbers of their sets. */
static void scale_channels(const sherd_call *call, const sherd__sets *p, int64_t i,
                           const double *weight, const double *set, double *scale)
{
    const sherd__kernels *k = &sherd__world_kernels(call->world)->f64;

    for (int64_t s = 0; s < p->slots; s++) {
        int64_t c, end = sherd__slot_end(p, s, &c);
        k->unary(SHERD__SCALE, end - c, scale + c, weight + c, &set[i * p->slots + s]);
    }
}

/* The numbers of sets, out of those of the rows of an operand. NULL: no memory. */
static double *read_sets(sherd_call *call, const sherd__sets *p, int operand, double *room)
{
    const sherd_tensor *t = call->in[operand];
    double *set = sherd__norm_room(call, p->sets);

    if (!set || sherd__is_dry(call->world))
        return set;
    for (int64_t i = 0; i < p->items; i++) {
        const char *from = (const char *)call->from[operand] +
                           (size_t)(i * p->n.channels) * sherd_dtype_bytes(t->dtype);
        sherd__cast(SHERD_F64, t->dtype, p->n.channels, room, from);
        for (int64_t s = 0, c; s < p->slots; s++) {
            sherd__slot_end(p, s, &c);
            set[i * p->slots + s] = room[c];
        }
    }
    return set;
}

/* Write the numbers of sets to each row of a result, if it is wanted. */
static void write_rows(sherd_call *call, const sherd__sets *p, int result, const double *set,
                       double *room)
{
    sherd_dtype dtype = call->out[result]->dtype;

    for (int64_t i = 0; call->to[result] && i < p->items; i++)
        sherd__cast(dtype, SHERD_F64, p->n.channels,
                    (char *)call->to[result] +
                        (size_t)(i * p->n.channels) * sherd_dtype_bytes(dtype),
                    of_channels(call, p, i, set, room));
}

static double inverse_of(const sherd_call *call, double var)
{
    return 1 / sqrt(var + ((const sherd__norm_attributes *)call->attributes)->eps);
}

/* ---- moments --------------------------------------------------------------------------------- */

enum { COUNT, CENTRE, SQUARES, MOMENTS };

/* How many elements of each set are here. */
static void count_elements(const sherd__sets *p, double *moments)
{
    double each = (double)p->n.inner * (p->n.whole ? (double)p->n.batch : 1);

    for (int64_t i = 0; i < p->items; i++)
        for (int64_t s = 0; s < p->slots; s++, moments += MOMENTS) {
            int64_t lo, end = sherd__slot_end(p, s, &lo);
            moments[COUNT] = each * (double)(end - lo);
        }
}

/* sum[sets] of x, or of (x - mean[sets])^2. The channels of a group lie behind each other. */
static void add_up(sherd_call *call, const sherd__sets *p, double *sum, const double *mean)
{
    const sherd__norm_kernels *kernels = kernels_of(call);

    memset(sum, 0, (size_t)p->sets * sizeof *sum);
    if (p->group == 1) {
        kernels->add_up(&p->n, sum, call->from[X], mean);
        return;
    }
    if (p->slots * p->group == p->n.channels) { /* whole groups: as channels of one item */
        const sherd__norming n = {
            .batch = 1, .channels = p->sets, .inner = p->group * p->n.inner, .whole = true};
        kernels->add_up(&n, sum, call->from[X], mean);
        return;
    }
    for (int64_t i = 0; i < p->sets; i++) {
        int64_t lo, end = sherd__slot_end(p, i % p->slots, &lo);
        int64_t first = (i / p->slots * p->n.channels + lo) * p->n.inner;
        const sherd__norming n = {.batch = 1, .channels = 1, .inner = (end - lo) * p->n.inner};
        kernels->add_up(&n, sum + i,
                        (const char *)call->from[X] +
                            (size_t)first * sherd_dtype_bytes(call->in[X]->dtype),
                        mean ? mean + i : NULL);
    }
}

/* Mean and variance of all sets; zeros for a set without elements. False: failed. */
static bool find_moments(sherd_call *call, const sherd__sets *p, double *mean, double *var)
{
    double *moments = sherd__norm_room(call, p->sets * MOMENTS);

    if (!moments)
        return false;
    if (sherd__is_dry(call->world))
        return sherd__sets_exchange(call, p, moments, MOMENTS, sherd__join_moments);
    count_elements(p, moments);
    add_up(call, p, mean, NULL);
    for (int64_t i = 0; i < p->sets; i++)
        moments[i * MOMENTS + CENTRE] = mean[i] /= fmax(moments[i * MOMENTS + COUNT], 1);
    add_up(call, p, var, mean);
    for (int64_t i = 0; i < p->sets; i++)
        moments[i * MOMENTS + SQUARES] = var[i];
    if (!sherd__sets_exchange(call, p, moments, MOMENTS, sherd__join_moments))
        return false;
    for (int64_t i = 0; i < p->sets; i++) {
        mean[i] = moments[i * MOMENTS + CENTRE];
        var[i] = moments[i * MOMENTS + SQUARES] / fmax(moments[i * MOMENTS + COUNT], 1);
    }
    return true;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Rooms for the numbers of channels of one item, in one piece. */
enum { FIRST, SECOND, THIRD, FOURTH, FIFTH, ROOMS };

/* Normalise by the moments of each set, which are written as well. False: failed. */
static bool normalise(sherd_call *call, const sherd__sets *p, const double *mean, double *var)
{
    int64_t channels = p->n.channels;
    double *weight = sherd__norm_read(call, WEIGHT, channels, 1),
           *bias = sherd__norm_read(call, BIAS, channels, 0),
           *room = sherd__norm_room(call, (SECOND + 1) * channels);
    const sherd__norming n = one_item(p);

    if (!weight || !bias || !room)
        return false;
    if (sherd__is_dry(call->world))
        return true;
    write_rows(call, p, MEAN, mean, room);
    write_rows(call, p, VAR, var, room);
    for (int64_t i = 0; i < p->sets; i++)
        var[i] = inverse_of(call, var[i]);
    for (int64_t i = 0; i < p->items; i++) {
        double *scale = room + FIRST * channels;
        scale_channels(call, p, i, weight, var, scale);
        kernels_of(call)->spread(
            &n, (void *)item_at(call, p, call->to[Y], i), item_at(call, p, call->from[X], i),
            of_channels(call, p, i, mean, room + SECOND * channels), scale, bias);
    }
    return true;
}

bool sherd__norm_here(sherd_call *call, const sherd__sets *p, bool fixed)
{
    double *mean = fixed ? sherd__norm_read(call, GIVEN_MEAN, p->sets, 0)
                         : sherd__norm_room(call, p->sets),
           *var = fixed ? sherd__norm_read(call, GIVEN_VAR, p->sets, 0)
                        : sherd__norm_room(call, p->sets);

    return mean && var && (fixed || find_moments(call, p, mean, var)) &&
           normalise(call, p, mean, var);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { BY_ONE, BY_X, SUMS };

static void join_sums(double *to, const double *from)
{
    to[BY_ONE] += from[BY_ONE];
    to[BY_X] += from[BY_X];
}

/* What backward knows of sets and channels. */
typedef struct slopes {
    double *mean, *inverse; /* [sets] */
    double *sums;           /* [sets,SUMS]: of w dy, and of w dy (x - mean) */
    double *weight;         /* [channels] */
    double *dweight, *dbias;
    double *room; /* [ROOMS,channels] */
} slopes;

/* False: no memory. */
static bool prepare(sherd_call *call, const sherd__sets *p, slopes *s)
{
    int64_t channels = p->n.channels;

    s->room = sherd__norm_room(call, ROOMS * channels);
    if (!s->room)
        return false;
    s->mean = read_sets(call, p, G_MEAN, s->room);
    s->inverse = read_sets(call, p, G_VAR, s->room);
    s->sums = sherd__norm_room(call, p->sets * SUMS);
    s->weight = sherd__norm_read(call, G_WEIGHT, channels, 1);
    s->dweight = sherd__norm_room(call, channels);
    s->dbias = sherd__norm_room(call, channels);
    return s->mean && s->inverse && s->sums && s->weight && s->dweight && s->dbias;
}

/* The sums of sets, and this rank's addends of the gradients of weight and bias. */
static void add_products(sherd_call *call, const sherd__sets *p, const slopes *of)
{
    const sherd__norming n = one_item(p);
    int64_t channels = p->n.channels;
    double *one = of->room, *by_x = of->room + SECOND * channels, *sums = of->sums;

    for (int64_t i = 0; i < p->items; i++) {
        memset(one, 0, (size_t)(2 * channels) * sizeof *one);
        kernels_of(call)->add_products(
            &n, one, by_x, item_at(call, p, call->from[G_DY], i),
            item_at(call, p, call->from[G_X], i),
            of_channels(call, p, i, of->mean, of->room + THIRD * channels));
        for (int64_t s = 0; s < p->slots; s++, sums += SUMS) {
            double inverse = of->inverse[i * p->slots + s];
            int64_t c, end = sherd__slot_end(p, s, &c);
            for (; c < end; c++) {
                sums[BY_ONE] += of->weight[c] * one[c];
                sums[BY_X] += of->weight[c] * by_x[c];
                of->dweight[c] += by_x[c] * inverse;
                of->dbias[c] += one[c];
            }
        }
    }
    sherd__norm_write(call, G_DWEIGHT, channels, of->dweight);
    sherd__norm_write(call, G_DBIAS, channels, of->dbias);
}

/*
 * dx = r w dy - r (sum of w dy) / n - (x - mean) r^3 (sum of w dy (x - mean)) / n, sums over the n
 * elements of a set, whose shift and slope take their place, [2,sets]. Fixed: r w dy alone.
 */
static void find_gradient(sherd_call *call, const sherd__sets *p, const slopes *of,
                          const double *shift, const double *slope)
{
    const sherd__norming n = one_item(p);
    int64_t channels = p->n.channels;
    double *room = of->room, *scale = room + FIRST * channels;

    if (call->in[G_X]->count == 0) /* of its NULLs kernels could not say what they lack */
        return;
    for (int64_t i = 0; i < p->items; i++) {
        scale_channels(call, p, i, of->weight, of->inverse, scale);
        kernels_of(call)->gradient(
            &n, (void *)item_at(call, p, call->to[G_DX], i), item_at(call, p, call->from[G_DY], i),
            item_at(call, p, call->from[G_X], i),
            of_channels(call, p, i, of->mean, room + THIRD * channels), scale,
            shift ? of_channels(call, p, i, shift, room + FOURTH * channels) : NULL,
            slope ? of_channels(call, p, i, slope, room + FIFTH * channels) : NULL);
    }
}

bool sherd__norm_grad_here(sherd_call *call, const sherd__sets *p, bool fixed)
{
    const sherd__norm_attributes *a = call->attributes;
    double together = sherd__norm_together(call->in[G_X], a->groups);
    double *slope = sherd__norm_room(call, 2 * p->sets), *shift = slope + p->sets;
    bool dry = sherd__is_dry(call->world);
    slopes s;

    if (!slope || !prepare(call, p, &s))
        return false;
    for (int64_t i = 0; i < p->sets && !dry; i++)
        s.inverse[i] = inverse_of(call, s.inverse[i]);
    if (!dry)
        add_products(call, p, &s);
    if (!fixed && !sherd__sets_exchange(call, p, s.sums, SUMS, join_sums))
        return false;
    if (dry)
        return true;
    for (int64_t i = 0; i < p->sets; i++) {
        double inverse = s.inverse[i];
        shift[i] = s.sums[i * SUMS + BY_ONE] * (inverse / together);
        slope[i] = s.sums[i * SUMS + BY_X] * (inverse * inverse * inverse / together);
    }
    find_gradient(call, p, &s, fixed ? NULL : shift, fixed ? NULL : slope);
    return true;
}
