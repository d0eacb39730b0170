/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operands for tests of all operators: of any dtype, in any layout (pending by any reduction,
 * uneven cuts, empty shards, axes in any order), with values that depend on their global index
 * only. Every rank can make the plain one for comparison.
 */
#ifndef SHERD_TESTS_OPERATOR_LEAVES_H
#define SHERD_TESTS_OPERATOR_LEAVES_H

#include <math.h>

#include "check.h"

#include "base/hash.h"
#include "tensor/tensor.h"

enum { MOST_IN = 4, MOST_DIMS = 4, MOST_ELEMENTS = 256, MOST_LAYOUTS = 1200 };

/* What an operand must be: its values are what its operator is continuous at. */
typedef struct need {
    /* x: any; d: each far from the others and from where functions bend; p: positive; q: both; s:
     * smaller than 1; l: larger; i: an index below `limit`, i32; b: bool; w: integers or bool */
    char kind;
    int ndim;
    int64_t shape[MOST_DIMS];
    int64_t limit;
    sherd_dtype dtype; /* of x, d, p, q and w: also integers or bool */
    uint64_t seed;     /* of the values */
} need;

static inline int64_t product_of(const int64_t *shape, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    return n;
}

static inline bool is_fraction(sherd_dtype dtype)
{
    return dtype == SHERD_F32 || dtype == SHERD_F64;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Where functions bend or jump: 0, and numbers that operator_rows.h passes to them. */
static const double bends[] = {0, 0.3, 0.4, 0.5, -0.5, 0.7, -0.7, 0.8, 1, -1};

/* Multiples of the golden ratio: no two of some hundred are closer than a part of their number. */
static inline double fraction_at(const need *w, int64_t i)
{
    double start = (double)(sherd__hash_word(w->seed, 5) >> 11) / 9007199254740992.0;
    double v = fmod(start + 0.6180339887498949 * (double)i, 1);

    switch (w->kind) {
    case 'p':
    case 'q':
        return 0.5 + v;
    case 's':
        return 1.8 * v - 0.9;
    case 'l':
        return 1.2 + v;
    default:
        return 2.2 * v - 1.1;
    }
}

static inline double leaf_value(const need *w, int64_t i)
{
    uint64_t h = sherd__hash_word(w->seed, (uint64_t)i);

    if (w->kind == 'i')
        return (double)(h % (uint64_t)(w->limit > 0 ? w->limit : 1));
    if (w->dtype == SHERD_BOOL)
        return (double)(h & 1);
    if (!is_fraction(w->dtype))
        return (double)(h % 7) - (strchr("xdw", w->kind) ? 3 : -1);
    return fraction_at(w, i);
}

/* Whether numbers are so far apart, and from bends, that no rounding changes what a function with
 * bends makes of them. */
static inline bool are_apart(const double *x, int64_t n, double margin)
{
    bool good = true;

    for (int64_t i = 0; i < n && good; i++) {
        for (int b = 0; b < LEN(bends) && good; b++)
            good = fabs(x[i] - bends[b]) > margin;
        for (int64_t j = 0; j < i && good; j++)
            good = fabs(x[i] - x[j]) > margin;
    }
    return good;
}

/* Take a seed with which the values are what they must be. */
static inline void seed_leaf(need *w, uint64_t *dice)
{
    double x[MOST_ELEMENTS];
    int64_t n = product_of(w->shape, w->ndim);

    if (w->kind == 'i')
        w->dtype = SHERD_I32;
    if (w->kind == 'b')
        w->dtype = SHERD_BOOL;
    if (w->kind == 'w' && is_fraction(w->dtype))
        w->dtype = SHERD_I32;
    for (int turn = 0; turn < 50; turn++) {
        w->seed = (uint64_t)roll(dice, 1 << 30);
        for (int64_t i = 0; i < n; i++)
            x[i] = leaf_value(w, i);
        if (!is_fraction(w->dtype) || are_apart(x, n, 1e-4))
            return;
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

static inline void store(sherd_dtype dtype, void *data, int64_t i, double v)
{
    switch (dtype) {
    case SHERD_F64:
        ((double *)data)[i] = v;
        break;
    case SHERD_F32:
        ((float *)data)[i] = (float)v;
        break;
    case SHERD_I64:
        ((int64_t *)data)[i] = (int64_t)v;
        break;
    case SHERD_I32:
        ((int32_t *)data)[i] = (int32_t)v;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)v;
    }
}

static inline double load(sherd_dtype dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case SHERD_F64:
        return ((const double *)data)[i];
    case SHERD_F32:
        return (double)((const float *)data)[i];
    case SHERD_I64:
        return (double)((const int64_t *)data)[i];
    case SHERD_I32:
        return (double)((const int32_t *)data)[i];
    default:
        return (double)((const uint8_t *)data)[i];
    }
}

/* All elements of a plain tensor, or of what this rank has of another; -1 if it failed. */
static inline int64_t load_all(double *out, sherd_tensor *t)
{
    const void *data = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);

    if (!data || t->count > MOST_ELEMENTS)
        return -1;
    for (int64_t i = 0; i < t->count; i++)
        out[i] = load(t->dtype, data, i);
    return t->count;
}

/* Largest difference from numbers that are wanted; huge if there are not as many, or where one is
 * NaN and the other is not. */
static inline double farthest(const double *x, const double *want, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = fabs(x[i] - want[i]);
        bool same = x[i] == want[i] || (isnan(x[i]) && isnan(want[i]));
        most = same ? most : d > most ? d : isnan(d) ? HUGE_VAL : most;
    }
    return most;
}

/* Of those that are numbers. */
static inline double largest(const double *x, int64_t n)
{
    double most = 0;

    for (int64_t i = 0; i < n; i++)
        most = isfinite(x[i]) && fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* By which reductions an operand may be pending: bits of sherd_reduce_op. What has no fractions has
 * no average. */
static inline unsigned reductions_of(const need *w)
{
    return is_fraction(w->dtype) ? 31 : 31 & ~(1u << SHERD_AVG);
}

/* How a layout is cut: as usual; at random, some shards empty; or all on one shard, and the axes
 * the other way round. */
typedef enum cutting { EVEN, UNEVEN, HEAPED, CUTTINGS } cutting;

static inline void draw_sizes(int64_t *sizes, int64_t parts, int64_t n, cutting how, uint64_t *dice)
{
    int64_t heap = roll(dice, (int)parts);

    for (int64_t i = 0; i < parts; i++) {
        bool last = i == parts - 1;
        sizes[i] = how == HEAPED ? (i == heap ? n : 0) : last ? n : roll(dice, (int)n + 1);
        n -= how == HEAPED ? 0 : sizes[i];
    }
}

/* A layout of these placements; NULL if there is none (two reductions that do not go together). */
static inline const sherd_layout *layout_cut(const sherd_mesh *mesh, const need *w,
                                             const sherd_placement *placements, cutting how,
                                             uint64_t *dice)
{
    int order[SHERD_MAX_AXES] = {0}, used[SHERD_MAX_DIMS] = {0}, axes = sherd_mesh_axes(mesh);
    int64_t sizes[MOST_DIMS][CHECK_RANKS], parts[MOST_DIMS];
    const int64_t *cuts[MOST_DIMS] = {NULL};
    const sherd_layout *layout = NULL;

    for (int d = 0; d < w->ndim; d++)
        parts[d] = 1;
    for (int i = 0; i < axes; i++) {
        int a = how == HEAPED ? axes - 1 - i : i;
        if (placements[a].kind != SHERD_SHARD)
            continue;
        order[a] = used[placements[a].dim]++;
        parts[placements[a].dim] *= sherd_mesh_extent(mesh, a);
    }
    for (int d = 0; d < w->ndim && how != EVEN; d++)
        if (parts[d] > 1) {
            draw_sizes(sizes[d], parts[d], w->shape[d], how, dice);
            cuts[d] = sizes[d];
        }
    const sherd_layout_options options = {order, cuts};
    sherd_status status =
        sherd_layout_create(&layout, mesh, w->ndim, w->shape, placements, &options);
    return status ? NULL : layout;
}

/* Whether reductions over several axes are the same in any order. */
static inline bool go_together(const sherd_placement *placements, int axes)
{
    int first = -1;
    bool good = true;

    for (int a = 0; a < axes; a++) {
        int op = (int)placements[a].op;
        if (placements[a].kind != SHERD_PARTIAL)
            continue;
        good &= first < 0 || first == op || (first <= SHERD_AVG && op <= SHERD_AVG);
        first = op;
    }
    return good;
}

/* A way in which one axis may lie: 0 is R, then the dims, then the reductions. False: there is none
 * of this number. */
static inline bool placement_number(sherd_placement *out, const need *w, int number)
{
    *out = sherd_replicate();
    if (number >= 1 && number <= w->ndim)
        *out = sherd_shard(number - 1);
    else if (number > w->ndim)
        *out = sherd_partial((sherd_reduce_op)(number - 1 - w->ndim));
    return out->kind != SHERD_PARTIAL || (reductions_of(w) >> out->op & 1);
}

/* All layouts of an operand on a mesh, each once; first NULL: plain. */
static inline int list_layouts(const sherd_layout **list, const sherd_mesh *mesh, const need *w,
                               uint64_t *dice)
{
    int axes = sherd_mesh_axes(mesh), base = 1 + w->ndim + 5, all = 1, count = 1;

    list[0] = NULL;
    for (int a = 0; a < axes; a++)
        all *= base;
    for (int number = 0; number < all * CUTTINGS; number++) {
        sherd_placement placements[SHERD_MAX_AXES];
        int rest = number / CUTTINGS, i = 0;
        bool good = true;
        for (int a = 0; a < axes; a++, rest /= base)
            good &= placement_number(&placements[a], w, rest % base);
        if (!good || !go_together(placements, axes))
            continue;
        const sherd_layout *layout =
            layout_cut(mesh, w, placements, (cutting)(number % CUTTINGS), dice);
        while (i < count && list[i] != layout)
            i++;
        if (CHECK(layout && count < MOST_LAYOUTS) && i == count)
            list[count++] = layout;
    }
    return count;
}

/* ---- placing --------------------------------------------------------------------------------- */

static inline sherd_tensor *plain_leaf(sherd_world *world, const need *w)
{
    sherd_tensor *t = sherd__new_plain(world, w->dtype, w->ndim, w->shape, 0);

    for (int64_t i = 0; i < t->count; i++)
        store(w->dtype, sherd__fresh(t), i, leaf_value(w, i));
    return t;
}

/*
 * What one of `parts` ranks of an axis holds of a value that is pending by `op`; each rank
 * something else. The axis' numbers make the value but for rounding. The one that has what is left
 * is another one for each element.
 */
static inline double part_of(double value, sherd_dtype dtype, sherd_reduce_op op, int64_t part,
                             int64_t parts, int64_t element)
{
    bool owner = part == element % parts;
    double turn = (double)((part - element % parts + parts) % parts); /* 1 .. parts - 1 of others */
    double others = (double)(parts * (parts - 1) / 2);                /* their sum */

    if (dtype == SHERD_BOOL)
        return owner ? value : op == SHERD_MIN || op == SHERD_PRODUCT;
    switch (op) {
    case SHERD_SUM:
        return owner ? value - others : turn;
    case SHERD_AVG:
        return owner ? value * (double)parts - others : turn;
    case SHERD_MIN:
        return owner ? value : value + turn;
    case SHERD_MAX:
        return owner ? value : value - turn;
    default:
        return owner ? value : 1;
    }
}

static inline double held_value(const sherd_layout *layout, const int64_t *coordinate,
                                sherd_dtype dtype, double value, int64_t element)
{
    const sherd_mesh *mesh = layout->spec.mesh;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++)
        if (layout->spec.pending[a] >= 0)
            value = part_of(value, dtype, (sherd_reduce_op)layout->spec.pending[a], coordinate[a],
                            sherd_mesh_extent(mesh, a), element);
    return value;
}

/* An operand in a layout (NULL: plain), each rank writing its own box. */
static inline sherd_tensor *leaf_on(sherd_world *world, const need *w, const sherd_layout *layout)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (!layout)
        return plain_leaf(world, w);
    sherd_tensor *t = sherd__new_on(layout, w->dtype);
    sherd_box box = sherd_tensor_box(t);
    if (sherd_tensor_failed(t) || !sherd__coordinate(t, coordinate))
        return t;
    for (int64_t i = 0; i < t->count; i++) {
        int64_t rest = i, global = 0, scale = 1;
        for (int d = t->ndim - 1; d >= 0; d--) {
            global += (box.offset[d] + rest % t->local[d]) * scale;
            scale *= t->shape[d];
            rest /= t->local[d];
        }
        store(w->dtype, sherd__fresh(t), i,
              held_value(layout, coordinate, w->dtype, leaf_value(w, global), global));
    }
    return t;
}

/* What a result or gradient weighs in a loss: something else at each place. */
static inline need weights_of(const sherd_tensor *y, sherd_dtype dtype, uint64_t seed)
{
    need w = {.kind = 'x', .ndim = y->ndim, .dtype = dtype, .seed = seed};

    memcpy(w.shape, y->shape, sizeof(int64_t) * (size_t)y->ndim);
    return w;
}

#endif
