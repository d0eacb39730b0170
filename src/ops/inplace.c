/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing into a tensor. The new values are moved to the tensor's layout, never the other way
 * round; strided views are written in place. No gradient flows through a write, so it is refused if
 * a gradient would be lost; a backward that needs the overwritten values finds the version changed.
 * A pending sum is written so that the sum has the intended value.
 */
#include "inplace.h"
#include "sherd/ops_elements.h"
#include "vector/bodies.h"
#include "vector/choose.h"

#include <string.h>

#include "base/num.h"
#include "kernels/cast.h"
#include "tensor/said.h"
#include "world/doing.h"

static bool is_sum(sherd__write_kind how)
{
    return how == SHERD__WRITE_ADD || how == SHERD__WRITE_ADD_SCALED;
}

/* Whether every element of a is replaced. */
static bool overwrites(sherd__write_kind how)
{
    return how == SHERD__WRITE_COPY || how == SHERD__WRITE_FILL;
}

static sherd_tensor *refuse(const sherd__write_in *w, sherd_status status, const char *reason)
{
    sherd_world *world = w->a->world;
    bool distributed = w->a->layout || (w->b && w->b->layout);
    const char *around = sherd__doing_around(world, w->name), *colon = *around ? ": " : "";

    if (!w->b)
        return sherd__fail_tensor(world, distributed, status, "%s%s%s: %s: a is %.100s", around,
                                  colon, w->name, reason, sherd_tensor_text(w->a));
    return sherd__fail_tensor(world, distributed, status, "%s%s%s: %s: a is %.100s, b is %.100s",
                              around, colon, w->name, reason, sherd_tensor_text(w->a),
                              sherd_tensor_text(w->b));
}

/* ---- what is written ------------------------------------------------------------------------- */

/*
 * The layout that b must have: that of a, in the dims that b has. Axes on which both are pending
 * stay so, except for a factor.
 */
static sherd_status target_of(const sherd_layout **out, const sherd__write_in *w)
{
    const sherd_layout *a = w->a->layout, *b = w->b->layout;
    sherd__layout_spec spec = b->spec;
    int skipped = a->spec.ndim - spec.ndim;

    for (int d = 0; d < spec.ndim; d++) {
        bool same = spec.shape[d] == a->spec.shape[skipped + d];
        spec.dim[d] = same ? a->spec.dim[skipped + d] : (sherd__dim){0};
    }
    for (int x = 0; x < spec.mesh->axes; x++)
        if (w->kind == SHERD__WRITE_MULTIPLY || a->spec.pending[x] != spec.pending[x])
            spec.pending[x] = -1;
    return sherd__layout_intern(out, &spec);
}

/* b in the dtype of a and in that layout; the failed tensor after a failure. */
static sherd_tensor *bring(sherd__write_in *w)
{
    const sherd_layout *to;

    if (w->a->layout && !w->b->layout)
        w->b = sherd__promote(w->b, w->a->layout->spec.mesh, w->name);
    if (!sherd_tensor_failed(w->b))
        w->b = sherd__cast_unrecorded(w->b, w->a->dtype);
    if (sherd_tensor_failed(w->b) || !w->a->layout)
        return w->b;
    if (target_of(&to, w) != SHERD_OK)
        return sherd__fail_diag(w->a->world, true);
    return to == w->b->layout ? w->b : sherd__move_to(w->b, to, false);
}

/* Whether another rank writes b into the pending sum, and this one a zero. */
static bool is_other_ranks_addend(const sherd__write_in *w)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (w->kind == SHERD__WRITE_MULTIPLY || w->kind == SHERD__WRITE_SCALE ||
        !sherd__coordinate(w->a, coordinate))
        return false;
    for (int x = 0; x < w->a->layout->spec.mesh->axes; x++)
        if (w->a->layout->spec.pending[x] == SHERD_SUM &&
            !(w->b && w->b->layout->spec.pending[x] == SHERD_SUM) && coordinate[x] != 0)
            return true;
    return false;
}

/* Memory for this write alone. NULL: there is none, raised. */
static void *scratch(const sherd__write_in *w)
{
    const sherd_tensor *a = w->a;
    sherd_tensor *t =
        sherd__new_plain_there(a->world, a->dtype, 1, &a->count, 0, w->device != NULL);

    if (!sherd_tensor_failed(t))
        return w->device ? sherd__device_fresh(t) : sherd__fresh(t);
    if (a->layout)
        sherd__raise_failed(a->world, w->name); /* it is plain, but others go on with theirs */
    return NULL;
}

/* A box of a's size, where it is written. */
static void copy_box(const sherd__write_in *w, void *dst, const int64_t *dst_stride,
                     const void *src, const int64_t *src_stride)
{
    const sherd_tensor *a = w->a;
    size_t element = sherd_dtype_bytes(a->dtype);

    if (w->device)
        sherd__device_copy_box(w->device, element, a->ndim, a->local, dst, dst_stride, src,
                               src_stride);
    else
        sherd__copy_box(element, a->ndim, a->local, dst, dst_stride, src, src_stride);
}

/*
 * b's data, and the strides with which it broadcasts to a; copied first if it overlaps what is
 * written.
 */
static const void *open_source(const sherd__write_in *w, int64_t *stride)
{
    sherd_tensor *b = w->b;
    int skipped = w->a->ndim - b->ndim;
    const void *from = w->device ? sherd__device_data(b) : sherd__data(b);
    bool overlaps = b->storage == w->a->storage && w->a->count;

    for (int d = 0; d < w->a->ndim; d++) {
        bool there = d >= skipped && b->local[d - skipped] == w->a->local[d];
        stride[d] = there ? b->stride[d - skipped] : 0;
    }
    overlaps &= b->offset != w->a->offset ||
                memcmp(stride, w->a->stride, sherd__bytes(w->a->ndim) * sizeof *stride) != 0;
    if (!from || !overlaps)
        return from;
    void *copy = scratch(w);
    int64_t whole[SHERD_MAX_DIMS];
    sherd__row_major(w->a->ndim, w->a->local, whole);
    if (copy && !sherd__is_dry(b->world))
        copy_box(w, copy, whole, from, stride);
    memcpy(stride, whole, sizeof whole);
    return copy;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Write the value to each element. */
static void write_value(const sherd__write_in *w, void *to, double value)
{
    const int64_t nowhere[SHERD_MAX_DIMS] = {0};
    sherd_tensor *a = w->a;
    unsigned char element[8];

    if (sherd__is_contiguous(a) && !w->device) {
        sherd__fill(a, value);
        return;
    }
    sherd__cast(a->dtype, SHERD_F64, 1, element, &value);
    if (w->device)
        sherd__device_fill_box(w->device, sherd_dtype_bytes(a->dtype), a->ndim, a->local, to,
                               a->stride, element);
    else
        copy_box(w, to, a->stride, element, nowhere);
}

/* result = a + value b. On the GPU by way of `product`, which has room for a's piece. */
static void add_scaled(const sherd__write_in *w, void *result, void *to, const void *from,
                       const int64_t *stride, void *product)
{
    const sherd_tensor *a = w->a;
    int64_t row[SHERD_MAX_DIMS];

    if (!w->device) {
        const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(a->world), a->dtype);
        sherd__adds_scaled_by(kernels)(a->dtype, w->value, a->ndim, a->local, result, to, a->stride,
                                       from, stride);
        return;
    }
    sherd__row_major(a->ndim, a->local, row);
    copy_box(w, product, row, from, stride);
    sherd__device_unary(w->device, a->dtype, SHERD__SCALE, a->count, product, product, &w->value);
    sherd__device_binary(w->device, a->dtype, SHERD__ADD, a->ndim, a->local, result, to, a->stride,
                         product, row);
}

/*
 * a = a op b: kernels write contiguous memory, so a strided a goes through a copy. False: no
 * memory.
 */
static bool combine(const sherd__write_in *w, void *to, const void *from, const int64_t *stride)
{
    sherd_tensor *a = w->a;
    const sherd__kernels *kernels = sherd__kernels_of_any(sherd__world_kernels(a->world), a->dtype);
    sherd__binary_kind op = w->kind == SHERD__WRITE_ADD ? SHERD__ADD : SHERD__MUL;
    bool whole = sherd__is_contiguous(a),
         by_product = w->device && w->kind == SHERD__WRITE_ADD_SCALED;
    void *result = whole ? to : scratch(w), *product = by_product ? scratch(w) : NULL;
    int64_t row[SHERD_MAX_DIMS];

    if (!result || (by_product && !product) || sherd__is_dry(a->world))
        return result && (product || !by_product);
    if (w->kind == SHERD__WRITE_ADD_SCALED)
        add_scaled(w, result, to, from, stride, product);
    else if (w->device)
        sherd__device_binary(w->device, a->dtype, op, a->ndim, a->local, result, to, a->stride,
                             from, stride);
    else
        kernels->binary(op, a->ndim, a->local, result, to, a->stride, from, stride);
    sherd__row_major(a->ndim, a->local, row);
    if (!whole)
        copy_box(w, to, a->stride, result, row);
    return true;
}

/* Multiply each element by the value, which a can hold. False: there is no memory. */
static bool scale(const sherd__write_in *w, void *to)
{
    const int64_t nowhere[SHERD_MAX_DIMS] = {0};
    sherd_tensor *a = w->a;
    unsigned char element[8];

    if (!sherd__has_fractions(a->dtype)) {
        sherd__cast(a->dtype, SHERD_F64, 1, element, &w->value);
        return combine(w, to, element, nowhere);
    }
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(a->world), a->dtype);
    bool whole = sherd__is_contiguous(a);
    void *at = whole ? to : scratch(w);
    int64_t row[SHERD_MAX_DIMS];

    if (!at || sherd__is_dry(a->world))
        return at != NULL;
    sherd__row_major(a->ndim, a->local, row);
    if (!whole)
        copy_box(w, at, row, to, a->stride);
    if (w->device)
        sherd__device_unary(w->device, a->dtype, SHERD__SCALE, a->count, at, at, &w->value);
    else
        kernels->unary(SHERD__SCALE, a->count, at, at, &w->value);
    if (!whole)
        copy_box(w, to, a->stride, at, row);
    return true;
}

/* This rank's GPU, if only that has what is written, or written with; integers and bool are not
 * computed there. */
static sherd__device *device_of(const sherd__write_in *w)
{
    if (!overwrites(w->kind) && !sherd__has_fractions(w->a->dtype))
        return NULL;
    bool there = sherd__is_only_there(w->a) || (w->b && sherd__is_only_there(w->b));

    return there ? sherd__world_device(w->a->world) : NULL;
}

/* This rank's piece. False: failed. */
static bool write_piece(const sherd__write_in *w)
{
    sherd_tensor *a = w->a;
    bool not_ours = is_other_ranks_addend(w);
    int64_t stride[SHERD_MAX_DIMS] = {0};
    const void *from = w->b ? open_source(w, stride) : NULL;

    /* A result in flight is waited for before it is written. */
    if ((w->b && !from) || !(w->device ? sherd__device_data(a) : sherd__data(a)))
        return false;
    void *to = w->device ? sherd__device_mutable(a) : sherd__mutable_view(a);
    if (!to)
        return false;
    if (a->count == 0 || (not_ours && is_sum(w->kind)))
        return true;
    bool combines = !overwrites(w->kind);
    /* What combines goes on in a dry world: for the scratch memory that it takes. */
    if (sherd__left_out(a->world, w->name, a->dtype, combines ? (double)a->count : 0,
                        (combines                       ? 3
                         : w->kind == SHERD__WRITE_COPY ? 2
                                                        : 1) *
                            sherd__local_bytes(a)) &&
        !combines)
        return true;
    if (w->kind == SHERD__WRITE_FILL || not_ours)
        write_value(w, to, not_ours ? 0 : w->value);
    else if (w->kind == SHERD__WRITE_COPY)
        copy_box(w, to, a->stride, from, stride);
    else
        return w->kind == SHERD__WRITE_SCALE ? scale(w, to) : combine(w, to, from, stride);
    return true;
}

/*
 * A copy replaces the contents, even if it writes only a part of them. What the contents were found
 * in is noted already.
 */
static sherd__origin origin_after(const sherd__write_in *w, sherd__origin before)
{
    sherd__origin now = sherd__origin_of(w->a);
    sherd__origin added = w->b ? sherd__origin_of(w->b) : (sherd__origin){{0, 0}, {0, 0}};

    now.made = w->kind == SHERD__WRITE_COPY ? added.made : sherd__origin_mixed(before, added).made;
    return now;
}

static void note(sherd__write_in *w)
{
    static const sherd_op said = {.name = "write",
                                  .field = {SHERD_FIELD(sherd__write_in, value, DOUBLE)},
                                  .attributes = sizeof(sherd__write_in)};

    sherd__note(w->name, (sherd_tensor *[]){w->a, w->b}, w->b ? 2 : 1,
                sherd__attribute_double(0, w->value), &w->a, 1);
    sherd__say_call(w->a, &said, w, true);
}

static sherd_tensor *run(sherd__write_in *w)
{
    sherd_tensor *a = w->a;
    sherd_world *world = a->world;
    unsigned varies = w->b ? w->b->varies : 0;

    sherd_scope_begin(world);
    if (w->b)
        w->b = bring(w);
    sherd__origin before = sherd__origin_of(a);
    bool good = !(w->b && sherd_tensor_failed(w->b));
    if (good) {
        w->device = device_of(w);
        good = write_piece(w) && (!w->device || sherd__device_sound(world));
    }
    if (good) {
        sherd__set_varies(a, overwrites(w->kind) ? varies : a->varies | varies);
        if (a->layout)
            note(w);
        if (w->kind != SHERD__WRITE_FILL)
            sherd__origin_set(a, origin_after(w, before));
    }
    sherd_scope_end(world);
    return good ? a : sherd__failed(world);
}

/* Whether it is lost, and all of it is written. */
static bool is_anew(const sherd__write_in *w)
{
    return w->a && w->a->lost == SHERD__HALF_WRITTEN && overwrites(w->kind);
}

/* The failed tensor, raised, if it cannot be done; NULL: it can be tried. */
static sherd_tensor *refused(const sherd__write_in *w, sherd_world *world)
{
    sherd_tensor *both[] = {w->a, w->b};
    char text[64];

    if (is_anew(w) ? sherd__alarmed(world) || sherd__stop(world, w->name, &both[1], 1)
                   : sherd__stop(world, w->name, both, 2))
        return sherd__failed(world);
    if (!w->a || (!w->b && w->kind != SHERD__WRITE_FILL && w->kind != SHERD__WRITE_SCALE))
        return sherd__fail_tensor(world, both[w->a ? 0 : 1]->layout != NULL, SHERD_EINVAL,
                                  "%s: %s is NULL", w->name, w->a ? "b" : "a");
    if (w->b && w->b->world != world)
        return refuse(w, SHERD_EINVAL, "a and b are of two worlds");
    const char *reason = sherd__write_fault(w, text, sizeof text);
    if (reason)
        return refuse(w, SHERD_EINVAL, reason);
    return sherd__can_be_written(w) ? NULL
                                    : refuse(w, SHERD_ENOTSUP, "only a pending sum can be written");
}

static sherd_tensor *write_to(sherd__write_in w)
{
    sherd_world *world = w.a ? w.a->world : w.b ? w.b->world : NULL;
    bool anew = is_anew(&w);

    if (!world)
        return NULL;
    sherd_tensor *fails = refused(&w, world);
    if (fails || !anew)
        return fails ? fails : run(&w);
    sherd__lost was = sherd__overwrite_begin(w.a);
    sherd_tensor *a = run(&w);
    sherd__overwrite_done(w.a, was, a == w.a);
    return a;
}

sherd_tensor *sherd_add_to(sherd_tensor *a, sherd_tensor *b)
{
    return write_to((sherd__write_in){"sherd_add_to", SHERD__WRITE_ADD, a, b, 0, NULL});
}

sherd_tensor *sherd_add_scaled_to(sherd_tensor *a, sherd_tensor *b, double factor)
{
    return write_to(
        (sherd__write_in){"sherd_add_scaled_to", SHERD__WRITE_ADD_SCALED, a, b, factor, NULL});
}

sherd_tensor *sherd_mul_by(sherd_tensor *a, sherd_tensor *b)
{
    return write_to((sherd__write_in){"sherd_mul_by", SHERD__WRITE_MULTIPLY, a, b, 0, NULL});
}

sherd_tensor *sherd_scale_by(sherd_tensor *a, double factor)
{
    return write_to((sherd__write_in){"sherd_scale_by", SHERD__WRITE_SCALE, a, NULL, factor, NULL});
}

sherd_tensor *sherd_copy_from(sherd_tensor *a, sherd_tensor *b)
{
    return write_to((sherd__write_in){"sherd_copy_from", SHERD__WRITE_COPY, a, b, 0, NULL});
}

bool sherd__copy_fits(sherd_tensor *a, sherd_tensor *b)
{
    return !refused(&(sherd__write_in){"sherd_copy_from", SHERD__WRITE_COPY, a, b, 0, NULL},
                    a->world);
}

sherd_tensor *sherd_fill(sherd_tensor *a, double value)
{
    return write_to((sherd__write_in){"sherd_fill", SHERD__WRITE_FILL, a, NULL, value, NULL});
}
