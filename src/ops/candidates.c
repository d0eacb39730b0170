/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first k of a sharded dim in order, without gathering it: each shard finds its own first k,
 * these and their global indices are exchanged, and every rank puts them in order. Candidates of
 * one shard follow one another in order, and shards in that of their indices, so equal ones come in
 * order of index as they do in the whole dim, and the result has the same bits in every layout.
 * Costs parts * k elements and indices per position.
 */
#include "order.h"
#include "shared.h"

#include "base/num.h"
#include "device/order.h"
#include "device/tables.h"
#include "kernels/pick.h"
#include "vector/choose.h"

/* How many of each shard travel; those of a shorter one are padded. */
static int64_t width_of(const sherd__layout_spec *spec, int dim, int64_t k)
{
    return sherd__min(k, sherd__dim_longest(spec->mesh, &spec->dim[dim], spec->shape[dim]));
}

/* ---- layouts --------------------------------------------------------------------------------- */

/*
 * What a rank receives of them, as sherd__price_moves counts: as many bytes as elements of
 * SHERD__PRICED_BYTES would have.
 */
static int64_t price(const sherd_call *call, const sherd__layout_spec *spec, int dim, int64_t k)
{
    const int64_t element = (int64_t)sherd_dtype_bytes(call->in[0]->dtype);
    int64_t parts = sherd__dim_parts(spec->mesh, &spec->dim[dim]);
    int64_t one = SHERD__PRICED_BYTES + SHERD__PRICED_BYTES * (int64_t)sizeof(int32_t) / element;

    return (parts - 1) * width_of(spec, dim, k) * sherd__elements_beside(spec, dim) * one;
}

sherd_status sherd__candidates_ways(const sherd_call *call, sherd_ways *ways, int dim, int64_t k)
{
    const sherd_layout *operand, *result[SHERD_MAX_RESULTS] = {NULL};
    sherd_status status = sherd__whole_ways(call, ways, 1u << dim, SHERD__PASS_NONE);

    if (!status)
        status = sherd__layout_settle(&operand, call->in[0]->layout);
    if (status)
        return status;
    const sherd__layout_spec *from = &operand->spec;
    int64_t parts = sherd__dim_parts(from->mesh, &from->dim[dim]);
    if (parts == 1 || width_of(from, dim, k) >= from->shape[dim] / parts)
        return SHERD_OK; /* to gather it moves no more */
    for (int j = 0; j < call->results && !status; j++) {
        sherd__layout_spec spec = *from;
        spec.dim[dim] = (sherd__dim){0};
        spec.shape[dim] = call->shape[j][dim];
        status = sherd__layout_intern(&result[j], &spec);
    }
    return status ? status : sherd__way_add(ways, &operand, result, price(call, from, dim, k));
}

/* ---- on this rank ---------------------------------------------------------------------------- */

/* Not NULL for lack of elements. */
static void *room(sherd_call *call, int64_t bytes)
{
    return sherd__device_in(call) ? sherd__device_scratch(call, sherd__max(bytes, 1))
                                  : sherd_call_scratch(call, bytes);
}

bool sherd__take_first(sherd_call *call, const int64_t size[3], int64_t k, bool descending,
                       void *values, int32_t *index, const void *src)
{
    sherd_dtype dtype = call->in[0]->dtype;
    size_t element = sherd_dtype_bytes(dtype);

    if (k == 0 || size[0] == 0 || size[2] == 0) /* a shard may have none */
        return true;
    if (sherd__device_in(call)) {
        sherd__device_order(sherd__device_in(call), dtype, size, k, descending, values, index, src);
        return true;
    }
    const void *keys = sherd__keys_of(call, size[0] * size[1] * size[2], src, &dtype);
    void *scratch = keys ? sherd_call_scratch(call, sherd__order_scratch(size[1])) : NULL;
    if (!scratch || sherd__is_dry(call->world))
        return scratch != NULL;
    sherd__order(dtype, size, k, descending, index, keys, scratch);
    sherd__pick p = {size[0], k, size[2], size[1], 0, index, false};
    sherd__gather(element, &p, values, src);
    return true;
}

/* Indices in a shard become those in the dim. GPUs add fractions only. False: no memory. */
static bool shift(sherd_call *call, int32_t *index, int64_t n, int64_t first)
{
    sherd__device *device = sherd__device_in(call);
    const double by = (double)first;

    if (!device) {
        for (int64_t i = 0; i < n; i++)
            index[i] += (int32_t)first;
        return true;
    }
    double *wide = sherd__device_scratch(call, n * (int64_t)sizeof *wide);
    if (!wide)
        return false;
    sherd__device_convert(device, SHERD_F64, SHERD_I32, n, wide, index);
    sherd__device_unary(device, SHERD_F64, SHERD__SHIFT, n, wide, wide, &by);
    sherd__device_convert(device, SHERD_I32, SHERD_F64, n, index, wide);
    return true;
}

static void *fresh(const sherd_call *call, sherd_tensor *t)
{
    return sherd__device_in(call) ? sherd__device_fresh(t) : sherd__fresh(t);
}

/* Those of this rank's shard, into its parts [width, outer, inner]. False: failed. */
static bool find_own(sherd_call *call, int dim, int64_t width, bool descending, sherd_tensor *best,
                     sherd_tensor *where)
{
    const size_t bytes[] = {sherd_dtype_bytes(best->dtype), sizeof(int32_t)};
    sherd_tensor *part[] = {best, where};
    int64_t size[3];

    sherd__size_along(size, call->in[0], dim);
    int64_t mine = sherd__min(width, size[1]), n = size[0] * mine * size[2];
    const int64_t box[] = {size[0], mine, size[2]}, from[] = {mine * size[2], size[2], 1};
    const int64_t to[] = {size[2], size[0] * size[2], 1};
    void *first[] = {room(call, n * (int64_t)bytes[0]), room(call, n * (int64_t)bytes[1])};

    if (!first[0] || !first[1] ||
        !sherd__take_first(call, size, mine, descending, first[0], first[1], call->from[0]))
        return false;
    if (n == 0 || sherd__is_dry(call->world))
        return true;
    if (!shift(call, first[1], n, sherd_tensor_box(call->in[0]).offset[dim]))
        return false;
    for (int i = 0; i < 2; i++)
        sherd__copy_in(call, bytes[i], 3, box, fresh(call, part[i]), to, first[i], from);
    return true;
}

/* ---- of all shards --------------------------------------------------------------------------- */

/* Parts [parts, width, outer, inner] into one tensor [outer, n, inner], without the padding. */
static void join(const sherd_call *call, int dim, int64_t width, const sherd__candidates *c,
                 size_t bytes, char *to, const char *from)
{
    const sherd__layout_spec *spec = &call->in[0]->layout->spec;
    const sherd__dim *cut = &spec->dim[dim];
    const int64_t *size = c->size, positions = size[0] * size[2];
    const int64_t to_stride[] = {size[1] * size[2], size[2], 1};
    const int64_t stride[] = {size[2], positions, 1};

    for (int64_t i = 0, at = 0; at < size[1]; i++) {
        int64_t length = sherd__dim_cut(spec->mesh, cut, spec->shape[dim], i + 1) -
                         sherd__dim_cut(spec->mesh, cut, spec->shape[dim], i);
        const int64_t box[] = {size[0], sherd__min(width, length), size[2]};
        if (box[1])
            sherd__copy_in(call, bytes, 3, box, to + (size_t)(at * size[2]) * bytes, to_stride,
                           from + (size_t)(i * width * positions) * bytes, stride);
        at += box[1];
    }
}

static int64_t count_all(const sherd__layout_spec *spec, int dim, int64_t width)
{
    const sherd__dim *cut = &spec->dim[dim];
    int64_t n = 0;

    for (int64_t i = 0, at = 0; at < spec->shape[dim]; i++) {
        int64_t end = sherd__dim_cut(spec->mesh, cut, spec->shape[dim], i + 1);
        n += sherd__min(width, end - at);
        at = end;
    }
    return n;
}

static bool exchange(sherd_call *call, int dim, int64_t k, bool descending, sherd__candidates *c)
{
    const sherd__layout_spec *spec = &call->in[0]->layout->spec;
    const size_t element = sherd_dtype_bytes(call->in[0]->dtype);
    const unsigned reduced = 1u << dim;
    int64_t width = width_of(spec, dim, k), parts;
    sherd_tensor *best = sherd__new_parts(call, reduced, call->in[0]->dtype, width);
    sherd_tensor *where = best ? sherd__new_parts(call, reduced, SHERD_I32, width) : NULL;

    if (!where || !find_own(call, dim, width, descending, best, where))
        return false;
    const void *all_best = sherd__all_parts(call, reduced, best, width, &parts);
    const void *all_where = all_best ? sherd__all_parts(call, reduced, where, width, &parts) : NULL;
    if (!all_where)
        return false;
    c->size[1] = count_all(spec, dim, width);
    int64_t n = c->size[0] * c->size[1] * c->size[2];
    char *values = room(call, n * (int64_t)element), *index = room(call, n * (int64_t)sizeof(int));
    if (!values || !index)
        return false;
    if (n && !sherd__is_dry(call->world)) {
        join(call, dim, width, c, element, values, all_best);
        join(call, dim, width, c, sizeof(int32_t), index, all_where);
    }
    c->values = values;
    c->index = (const int32_t *)(const void *)index;
    return true;
}

bool sherd__candidates_in(sherd_call *call, int dim, int64_t k, bool descending,
                          sherd__candidates *c)
{
    const sherd_layout *layout = call->in[0]->layout;

    sherd__size_along(c->size, call->in[0], dim);
    c->values = call->from[0];
    c->index = NULL;
    if (!layout || !layout->spec.dim[dim].axes || !sherd__in_mesh(call->world, layout->spec.mesh))
        return true;
    return exchange(call, dim, k, descending, c);
}

int32_t *sherd__candidates_found(sherd_call *call, const sherd__candidates *c)
{
    return c->index ? room(call, call->out[1]->count * (int64_t)sizeof(int32_t)) : call->to[1];
}

void sherd__candidates_named(sherd_call *call, const sherd__candidates *c, int64_t k,
                             const int32_t *found)
{
    const sherd__pick p = {c->size[0], k, c->size[2], c->size[1], 0, found, false};

    if (!c->index || sherd__is_dry(call->world))
        return;
    if (sherd__device_in(call))
        sherd__device_gather(sherd__device_in(call), sizeof(int32_t), &p, call->to[1], c->index);
    else
        sherd__gather(sizeof(int32_t), &p, call->to[1], c->index);
}

const void *sherd__keys_of(sherd_call *call, int64_t n, const void *from, sherd_dtype *dtype)
{
    *dtype = call->in[0]->dtype;
    if (!sherd__is_half(*dtype))
        return from;
    void *wide = sherd_call_scratch(call, n * (int64_t)sizeof(float));
    if (wide && !sherd__is_dry(call->world))
        sherd__convert(sherd__world_kernels(call->world), SHERD_F32, *dtype, n, wide, from);
    *dtype = SHERD_F32;
    return wide;
}

void sherd__size_along(int64_t size[3], const sherd_tensor *t, int dim)
{
    size[0] = sherd__local_count(t, 0, dim);
    size[1] = t->local[dim];
    size[2] = sherd__local_count(t, dim + 1, t->ndim);
}
