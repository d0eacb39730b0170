/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of the largest or smallest element. Ranks that share sharded dims exchange one element
 * and its global index per position, never what they hold; of equal elements the smallest index
 * wins, so the result does not depend on the layout.
 */
#include "dims.h"
#include "sherd/ops_reductions.h"

#include <string.h>

#include "base/dtype.h"
#include "base/num.h"
#include "device/folds.h"

static const char *describe(sherd_call *call)
{
    const char *reason = sherd__dims_rule(call, call->attributes);
    int64_t n = reason ? 1 : sherd__dims_count(call->attributes, call->in[0]);

    if (n == 0)
        return "there are no elements to choose from";
    return n > INT32_MAX ? "there are more elements than an i32 counts" : reason;
}

/*
 * Strides of a row-major index among the reduced dims alone; and the index of the first local
 * element.
 */
static int64_t index_strides(const sherd_tensor *in, unsigned reduced, int64_t *stride)
{
    sherd_box box = sherd_tensor_box(in);
    int64_t n = 1, first = 0;

    for (int d = in->ndim - 1; d >= 0; d--) {
        stride[d] = reduced >> d & 1 ? n : 0;
        first += stride[d] * box.offset[d];
        n *= reduced >> d & 1 ? in->shape[d] : 1;
    }
    return first;
}

/* Whether local elements that are reduced have indices one after another, from the first on. */
static bool counts_up(const sherd_tensor *in, unsigned reduced, const int64_t *stride)
{
    int64_t n = 1;

    for (int d = in->ndim - 1; d >= 0; d--) {
        if (!(reduced >> d & 1))
            continue;
        if (in->local[d] > 1 && stride[d] != n)
            return false;
        n *= in->local[d];
    }
    return true;
}

/* On the GPU; if dims are sharded, ranks exchange what they found from GPU to GPU. */
static bool find_there(sherd_call *call, unsigned reduced, int64_t first)
{
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *in = call->in[0];
    sherd_tensor *best = sherd__new_parts(call, reduced, in->dtype, 1);
    sherd_tensor *index = best ? sherd__new_parts(call, reduced, SHERD_I64, 1) : NULL;
    sherd__dims_box slab = {NULL, index ? index->count : 0, 0, 1};
    int64_t parts;

    if (!index || (in->count && !sherd__dims_slab(call, reduced, &slab)))
        return false;
    sherd__extremes e = {
        call->op == &sherd__argmin_op, slab.outer, slab.mid, slab.inner, first, slab.data, NULL};
    if (sherd__parts_count(call, best, 1) == 1) {
        sherd__device_where(device, in->dtype, &e, call->to[0]);
        return true;
    }
    sherd__device_extremes(device, in->dtype, &e, sherd__device_fresh(best),
                           sherd__device_fresh(index));
    const void *all_best = sherd__all_parts(call, reduced, best, 1, &parts);
    const void *all_index = all_best ? sherd__all_parts(call, reduced, index, 1, &parts) : NULL;
    e = (sherd__extremes){e.least, 1, parts, call->out[0]->count, 0, all_best, all_index};
    if (all_index)
        sherd__device_where(device, in->dtype, &e, call->to[0]);
    return all_index != NULL;
}

enum { BLOCK = 1024 };

/*
 * Of contiguous rows, of fractions: the extremes of blocks, which vectors find, and then the place
 * in the first block that has the row's. The kernel of places compares one element at a time.
 */
static void find_in_rows(const sherd__kernels *kernels, bool least, const sherd_tensor *in,
                         int64_t first, const char *row, char *best, int64_t *at)
{
    const int64_t n = in->local[in->ndim - 1], one = 1, none = 0;
    const size_t bytes = sherd_dtype_bytes(in->dtype);

    for (int64_t r = in->count / n; r > 0; r--, row += bytes * (size_t)n, best += bytes, at++) {
        int64_t block = -1, some;
        for (int64_t lo = 0; lo < n; lo += BLOCK) {
            double of_block;
            some = sherd__min(BLOCK, n - lo);
            memcpy(&of_block, row + bytes * (size_t)lo, bytes);
            kernels->fold(least ? SHERD_MIN : SHERD_MAX, 1, &some, &of_block, &none,
                          row + bytes * (size_t)lo);
            kernels->extreme(least, 1, &one, best, &none, &block, &none, lo, &of_block);
        }
        some = sherd__min(BLOCK, n - block);
        kernels->extreme(least, 1, &some, best, &none, at, &one, first + block,
                         row + bytes * (size_t)block);
    }
}

static bool find(sherd_call *call)
{
    const sherd__dims *dims = call->attributes;
    const sherd_tensor *in = call->in[0];
    const sherd__kernels *kernels = sherd__kernels_in(call);
    bool least = call->op == &sherd__argmin_op;
    unsigned reduced = sherd__dims_bits(dims, in->ndim);
    int64_t kept[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS], parts;

    if (sherd_tensor_count(in) == 0) /* sizes beside a 0 multiply to anything */
        return true;
    int64_t first = index_strides(in, reduced, stride);
    if (!counts_up(in, reduced, stride) && !sherd__leave_device(call))
        return false;
    if (sherd__device_in(call))
        return find_there(call, reduced, first);
    sherd_tensor *best = sherd__new_parts(call, reduced, in->dtype, 1);
    sherd_tensor *index = best ? sherd__new_parts(call, reduced, SHERD_I64, 1) : NULL;
    if (!index)
        return false;
    sherd__dims_strides(in, reduced, kept);
    int64_t *at = sherd__fresh(index);
    bool dry = sherd__is_dry(call->world);
    if (!dry)
        kernels->fill(sherd__fresh(best), best->count, 0);
    for (int64_t i = 0; i < index->count && !dry; i++)
        at[i] = -1;
    if (in->count && !dry && in->ndim > 0 && reduced == 1u << (in->ndim - 1) &&
        in->local[in->ndim - 1] > BLOCK / 8 && sherd__has_fractions(in->dtype))
        find_in_rows(kernels, least, in, first, call->from[0], sherd__fresh(best), at);
    else if (in->count && !dry)
        kernels->extreme(least, in->ndim, in->local, sherd__fresh(best), kept, at, stride, first,
                         call->from[0]);
    const void *all_best = sherd__all_parts(call, reduced, best, 1, &parts);
    const void *all_index = all_best ? sherd__all_parts(call, reduced, index, 1, &parts) : NULL;
    if (all_index && !dry)
        kernels->extreme_join(least, parts, call->out[0]->count, call->to[0], all_best, all_index);
    return all_index != NULL;
}

#define FIND(name_, text)                                                                         \
    {                                                                                             \
        .name = name_, .summary = text, .operand = {{"a", 0}}, .result = {{"y", SHERD_OP_INDEX}}, \
        SHERD__DIMS_FIELDS, .joined = SHERD__REDUCED, .numbers = SHERD_EVERYTHING,                \
        .describe = describe, .forward = find, .dry = find, .on_device = sherd__numbers_there     \
    }

const sherd_op sherd__argmax_op = FIND("sherd_argmax", "index of the maximum over dims");
const sherd_op sherd__argmin_op = FIND("sherd_argmin", "index of the minimum over dims");

sherd_tensor *sherd_argmax(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd_apply(&sherd__argmax_op, &a, 1, &d);
}

sherd_tensor *sherd_argmin(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd_apply(&sherd__argmin_op, &a, 1, &d);
}
