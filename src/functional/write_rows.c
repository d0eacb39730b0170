/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing rows into a tensor, each where an index says: what fills a cache of keys and values. Rows
 * are moved to the layout of the tensor, whole along the dim of the index; so each rank writes
 * those that it holds, and nothing else is read or copied. What is on the GPU stays there.
 */
#include "ops/shared.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/decode.h"

typedef struct filling {
    sherd_tensor *a, *index, *rows;
} filling;

static const char name[] = "sherd_write_rows";

static sherd_tensor *refuse(const filling *f, sherd_status status, const char *reason)
{
    bool distributed = f->a->layout || f->index->layout || f->rows->layout;

    return sherd__fail_tensor(
        f->a->world, distributed, status, "%s: %s: a is %.80s, index is %.80s, rows is %.80s", name,
        reason, sherd_tensor_text(f->a), sherd_tensor_text(f->index), sherd_tensor_text(f->rows));
}

static const char *fault_of_shapes(const filling *f)
{
    const sherd_tensor *a = f->a, *index = f->index, *rows = f->rows;

    if (a->ndim < 2 || rows->ndim != a->ndim || index->ndim != 2)
        return "a and rows must have as many dims, two or more, and index two";
    if (index->shape[0] != a->shape[0] || rows->shape[0] != a->shape[0] ||
        rows->shape[1] != index->shape[1])
        return "index must be [batch,n] for rows [batch,n,..] and a [batch,..]";
    for (int d = 2; d < a->ndim; d++)
        if (a->shape[d] != rows->shape[d])
            return "a and rows differ in a dim behind the second";
    return NULL;
}

/* In an expanded view one element stands for many. */
static bool is_expanded(const sherd_tensor *a)
{
    for (int d = 0; d < a->ndim && a->count; d++)
        if (a->local[d] > 1 && a->stride[d] == 0)
            return true;
    return false;
}

static const char *fault(const filling *f)
{
    sherd_tensor *all[] = {f->a, f->index, f->rows};
    const char *reason = fault_of_shapes(f);

    if (reason)
        return reason;
    if (f->index->dtype != SHERD_I32)
        return "index must be i32";
    if (f->rows->dtype != f->a->dtype)
        return "a and rows differ in dtype: cast one of them (sherd_cast)";
    for (int i = 1; i < 3; i++) {
        if (all[i]->layout && !f->a->layout)
            return "a is plain, and the others are not";
        if (all[i]->layout && all[i]->layout->spec.mesh != f->a->layout->spec.mesh)
            return "they lie on two meshes";
    }
    if (f->a->storage == f->rows->storage)
        return "a and rows share their storage";
    if (is_expanded(f->a))
        return "a is an expanded view: write into a copy of it (sherd_clone)";
    return sherd__is_recorded(f->a->world, all, 3)
               ? "a gradient would be lost: stop recording (sherd_set_recording)"
               : NULL;
}

/* The layout that the index or the rows must have: that of `a`, in the dims that it has, but the
 * second. */
static sherd_status target_of(const sherd_layout **out, const sherd_tensor *t,
                              const sherd_layout *a)
{
    sherd__layout_spec spec = t->layout->spec;

    for (int d = 0; d < spec.ndim; d++)
        spec.dim[d] = d == 1 ? (sherd__dim){0} : a->spec.dim[d];
    for (int x = 0; x < spec.mesh->axes; x++)
        spec.pending[x] = -1;
    return sherd__layout_intern(out, &spec);
}

/* NULL: failed. */
static sherd_tensor *bring(const filling *f, sherd_tensor *t)
{
    const sherd_layout *to;

    if (f->a->layout && !t->layout)
        t = sherd__promote(t, f->a->layout->spec.mesh, name);
    if (sherd_tensor_failed(t))
        return NULL;
    if (f->a->layout) {
        if (target_of(&to, t, f->a->layout) != SHERD_OK) {
            sherd__fail_diag(f->a->world, true);
            return NULL;
        }
        t = to == t->layout ? t : sherd__move_to(t, to, false);
    }
    return sherd_tensor_failed(t) ? NULL : t;
}

/* Whether there are rows for all indices; the first for which there is none is told. */
static bool are_inside(const filling *f, const int32_t *index)
{
    int64_t n = f->index->local[1], first = sherd_tensor_offset(f->index, 0);
    char reason[160];

    for (int64_t i = 0; i < f->index->count; i++) {
        if (index[i] < f->a->shape[1])
            continue;
        snprintf(reason, sizeof reason, "index[%lld,%lld] is %d, outside of the %lld rows of a",
                 (long long)(first + i / n), (long long)(i % n), (int)index[i],
                 (long long)f->a->shape[1]);
        refuse(f, SHERD_EINVAL, reason);
        return false;
    }
    return true;
}

/* Those of the rows that lie in this rank's piece. */
static void write_here(const filling *f, char *to, const char *from, const int32_t *index)
{
    const sherd_tensor *a = f->a, *rows = f->rows;
    size_t bytes = sherd_dtype_bytes(a->dtype);
    int64_t first = sherd_tensor_offset(a, 1), n = rows->local[1];

    for (int64_t b = 0; b < rows->local[0]; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = index[b * n + i] - first;
            if (index[b * n + i] < 0 || at < 0 || at >= a->local[1])
                continue;
            sherd__copy_box(bytes, a->ndim - 2, a->local + 2,
                            to + (size_t)(b * a->stride[0] + at * a->stride[1]) * bytes,
                            a->stride + 2,
                            from + (size_t)(b * rows->stride[0] + i * rows->stride[1]) * bytes,
                            rows->stride + 2);
        }
}

/* Whether what is behind the second dim is dense. */
static bool is_dense(const sherd_tensor *t)
{
    int64_t stride = 1;

    for (int d = t->ndim - 1; d > 1; stride *= t->local[d--])
        if (t->local[d] != 1 && t->stride[d] != stride)
            return false;
    return true;
}

/* Whether rows are written on the GPU: where one of both is, if a row is one piece. */
static bool is_written_there(const filling *f)
{
    return sherd__world_device(f->a->world) &&
           (sherd__is_there(f->a) || sherd__is_there(f->rows)) && is_dense(f->a) &&
           is_dense(f->rows);
}

static bool write_there(const filling *f)
{
    sherd_tensor *a = f->a;
    const sherd_tensor *rows = f->rows;
    int64_t bytes = (int64_t)sherd_dtype_bytes(a->dtype);
    const void *from = sherd__device_data(f->rows), *index = sherd__device_data(f->index);
    void *to = from && index ? sherd__device_mutable(a) : NULL;

    if (to && a->count && rows->count)
        sherd__device_write_rows(
            sherd__world_device(a->world),
            &(sherd__row_writes){.batch = rows->local[0],
                                 .n = rows->local[1],
                                 .bytes = sherd__local_count(a, 2, a->ndim) * bytes,
                                 .first = sherd_tensor_offset(a, 1),
                                 .entries = a->local[1],
                                 .dst_batch = a->stride[0] * bytes,
                                 .dst_row = a->stride[1] * bytes,
                                 .src_batch = rows->stride[0] * bytes,
                                 .src_row = rows->stride[1] * bytes},
            to, from, index);
    return to && sherd__device_sound(a->world);
}

static bool write_piece(const filling *f)
{
    const int32_t *index = sherd__data(f->index);
    bool there = is_written_there(f);
    const char *from = there ? sherd__device_data(f->rows) : sherd__data(f->rows);

    if (!index || !from || !(there ? sherd__device_data(f->a) : sherd__data(f->a)))
        return false;
    if (sherd__left_out(f->a->world, name, f->a->dtype, 0, 2 * sherd__local_bytes(f->rows)))
        return sherd__mutable_view(f->a) != NULL;
    if (!are_inside(f, index))
        return false;
    if (there)
        return write_there(f);
    char *to = sherd__mutable_view(f->a);
    if (to && f->a->count)
        write_here(f, to, from, index);
    return to != NULL;
}

static sherd_tensor *run(filling *f)
{
    sherd_tensor *a = f->a;
    sherd_world *world = a->world;

    sherd_scope_begin(world);
    f->index = bring(f, f->index);
    if (f->index)
        f->index = sherd__contiguous(f->index);
    bool good = f->index && !sherd_tensor_failed(f->index);
    f->rows = good ? bring(f, f->rows) : NULL;
    good = f->rows && write_piece(f);
    if (good) {
        sherd__set_varies(a, a->varies | f->index->varies | f->rows->varies);
        if (a->layout)
            sherd__note(name, (sherd_tensor *[]){a, f->index, f->rows}, 3, 0, &a, 1);
    }
    sherd_scope_end(world);
    return good ? a : sherd__failed(world);
}

sherd_tensor *sherd_write_rows(sherd_tensor *a, sherd_tensor *index, sherd_tensor *rows)
{
    filling f = {a, index, rows};
    sherd_tensor *all[] = {a, index, rows};
    sherd_world *world = a ? a->world : index ? index->world : rows ? rows->world : NULL;

    if (!world)
        return NULL;
    if (sherd__stop(world, name, all, 3))
        return sherd__failed(world);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"a", "index", "rows"};
        if (!all[i])
            return sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: %s is NULL", name, names[i]);
        if (all[i]->world != world)
            return refuse(&f, SHERD_EINVAL, "they are of two worlds");
    }
    const char *reason = fault(&f);
    if (reason)
        return refuse(&f, SHERD_EINVAL, reason);
    if (a->layout && a->layout->pending_axes)
        return refuse(&f, SHERD_ENOTSUP, "a pending sum has no rows to write: settle it");
    return run(&f);
}
