/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing rows into a tensor, each where an index says: what fills a cache of keys and values. Rows
 * are moved to the layout of the tensor, whole along the dim of the index; so each rank writes
 * those that it holds, and nothing else is read or copied. What is on the GPU stays there.
 *
 * With a table, the tensor is a pool of blocks: the index of a row says which entry of the table
 * has the number of its block, and where in the block it goes. If the pool is sharded by blocks, a
 * rank writes the rows of its own sequences, into its own blocks.
 */
#include "blocks.h"
#include "ops/shared.h"
#include "functional/rows.h"

#include <stdio.h>

#include "device/decode.h"
#include "world/doing.h"

typedef struct filling {
    sherd_tensor *a, *index, *rows;
    sherd_tensor *table;
    bool paged; /* there is a table */
} filling;

/* The operands, and what callers call them. */
enum { OPERANDS = 4 };

typedef struct operand {
    const char *name;
    sherd_tensor *t;
} operand;

static const char *name_of(const filling *f)
{
    return f->paged ? "sherd_write_paged" : "sherd_write_rows";
}

/* Returns how many. */
static int operands_of(const filling *f, operand out[OPERANDS])
{
    int n = 0;

    out[n++] = (operand){f->paged ? "pool" : "a", f->a};
    if (f->paged)
        out[n++] = (operand){"table", f->table};
    out[n++] = (operand){f->paged ? "positions" : "index", f->index};
    out[n++] = (operand){"rows", f->rows};
    return n;
}

static sherd_tensor *refuse(const filling *f, sherd_status status, const char *reason)
{
    operand all[OPERANDS];
    int n = operands_of(f, all), at = 0;
    bool distributed = false;
    char text[OPERANDS * 96];

    for (int i = 0; i < n; i++) {
        distributed = distributed || all[i].t->layout;
        at += snprintf(text + at, sizeof text - (size_t)at, "%s%s is %.80s", i ? ", " : "",
                       all[i].name, sherd_tensor_text(all[i].t));
    }
    return sherd__fail_tensor(f->a->world, distributed, status, "%s: %s: %s", name_of(f), reason,
                              text);
}

static const char *fault_of_blocks(const filling *f)
{
    const sherd_tensor *a = f->a, *index = f->index, *rows = f->rows, *table = f->table;

    if (a->ndim < 2 || rows->ndim != a->ndim || index->ndim != 2 || table->ndim != 2)
        return "pool and rows must have as many dims, two or more, and table and positions two";
    if (index->shape[0] != rows->shape[0] || rows->shape[1] != index->shape[1] ||
        table->shape[0] != rows->shape[0])
        return "positions must be [batch,n] for rows [batch,n,..], and table [batch,m]";
    if (a->shape[1] < 1)
        return "a block must have a position";
    for (int d = 2; d < a->ndim; d++)
        if (a->shape[d] != rows->shape[d])
            return "pool and rows differ in a dim behind the second";
    return table->dtype == SHERD_I32 ? NULL : "table must be i32";
}

static const char *fault_of_shapes(const filling *f)
{
    const sherd_tensor *a = f->a, *index = f->index, *rows = f->rows;

    if (f->paged)
        return fault_of_blocks(f);
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

/* Whether rows lie as the blocks of a pool that they go to. */
static bool lie_with_blocks(const filling *f)
{
    const sherd__dim *blocks = &f->a->layout->spec.dim[0];

    if (!blocks->axes)
        return true;
    return f->rows->layout && sherd__dim_alike(&f->rows->layout->spec.dim[0], blocks);
}

static const char *fault_of_layouts(const filling *f)
{
    operand all[OPERANDS];
    int n = operands_of(f, all);

    for (int i = 1; i < n; i++) {
        const sherd_tensor *t = all[i].t;
        if (t->layout && !f->a->layout)
            return f->paged ? "pool is plain, and the others are not"
                            : "a is plain, and the others are not";
        if (t->layout && t->layout->spec.mesh != f->a->layout->spec.mesh)
            return "they lie on two meshes";
    }
    if (!f->paged || !f->a->layout)
        return NULL;
    if (f->a->layout->spec.dim[1].axes)
        return "the positions of a block must not be sharded";
    return lie_with_blocks(f)
               ? NULL
               : "the pool is sharded by blocks: the sequences of rows must be, by the same axes";
}

static const char *fault(const filling *f)
{
    sherd_tensor *all[] = {f->a, f->index, f->rows};
    const char *reason = fault_of_shapes(f);

    if (reason)
        return reason;
    if (f->index->dtype != SHERD_I32)
        return f->paged ? "positions must be i32" : "index must be i32";
    if (f->rows->dtype != f->a->dtype)
        return f->paged ? "pool and rows differ in dtype: cast one of them (sherd_cast)"
                        : "a and rows differ in dtype: cast one of them (sherd_cast)";
    reason = fault_of_layouts(f);
    if (reason)
        return reason;
    if (f->a->storage == f->rows->storage)
        return f->paged ? "pool and rows share their storage" : "a and rows share their storage";
    if (sherd__is_expanded(f->a))
        return f->paged ? "pool is an expanded view: write into a copy of it (sherd_clone)"
                        : "a is an expanded view: write into a copy of it (sherd_clone)";
    return sherd__is_recorded(f->a->world, all, 3)
               ? "a gradient would be lost: stop recording (sherd_set_recording)"
               : NULL;
}

/* The layout that the table, the index or the rows must have: that of `a`, in the dims that it has,
 * but the second; sequences that lie with their blocks stay. */
static sherd_status target_of(const sherd_layout **out, const filling *f, const sherd_tensor *t)
{
    const sherd_layout *a = f->a->layout;
    sherd__layout_spec spec = t->layout->spec;

    for (int d = 0; d < spec.ndim; d++)
        spec.dim[d] = d == 1 ? (sherd__dim){0} : a->spec.dim[d];
    if (f->paged && a->spec.dim[0].axes)
        spec.dim[0] = f->rows->layout->spec.dim[0];
    sherd__spec_settle(&spec);
    return sherd__layout_intern(out, &spec);
}

/* NULL: failed. */
static sherd_tensor *bring(const filling *f, sherd_tensor *t)
{
    const sherd_layout *to;

    if (f->a->layout && !t->layout)
        t = sherd__promote(t, f->a->layout->spec.mesh, name_of(f));
    if (sherd_tensor_failed(t))
        return NULL;
    if (f->a->layout) {
        if (target_of(&to, f, t) != SHERD_OK) {
            sherd__fail_diag(f->a->world, true);
            return NULL;
        }
        t = to == t->layout ? t : sherd__move_to(t, to, false);
    }
    return sherd_tensor_failed(t) ? NULL : t;
}

/* Whether row i has a place in its block. */
static bool is_block_here(const filling *f, int64_t i, int32_t position, const int32_t *table)
{
    int64_t b = i / f->index->local[1], at = position / f->a->shape[1];
    int64_t sequence = b + sherd_tensor_offset(f->index, 0);
    char text[SHERD__BLOCK_FAULT];
    const char *fault = sherd__position_fault(text, f->a, f->table, sequence, position);

    if (!fault)
        fault = sherd__block_fault(text, f->a, sequence, at, table[b * f->table->local[1] + at]);
    if (fault)
        refuse(f, SHERD_EINVAL, fault);
    return !fault;
}

/* Whether all rows have a place in their blocks. */
static bool are_in_blocks(const filling *f, const int32_t *index, const int32_t *table)
{
    for (int64_t i = 0; i < f->index->count; i++)
        if (index[i] >= 0 && !is_block_here(f, i, index[i], table))
            return false;
    return true;
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

/* Write the rows that lie in this rank's piece. */
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

/* Write each row into its block. */
static void write_blocks(const filling *f, char *to, const char *from, const int32_t *index,
                         const int32_t *table)
{
    const sherd_tensor *a = f->a, *rows = f->rows;
    size_t bytes = sherd_dtype_bytes(a->dtype);
    int64_t first = sherd_tensor_offset(a, 0), n = rows->local[1], m = f->table->local[1];

    for (int64_t i = 0; i < rows->local[0] * n; i++) {
        if (index[i] < 0)
            continue;
        int64_t b = i / n, block = table[b * m + index[i] / a->shape[1]] - first;
        int64_t at = block * a->stride[0] + index[i] % a->shape[1] * a->stride[1];
        sherd__copy_box(bytes, a->ndim - 2, a->local + 2, to + (size_t)at * bytes, a->stride + 2,
                        from + (size_t)(b * rows->stride[0] + i % n * rows->stride[1]) * bytes,
                        rows->stride + 2);
    }
}

/* Whether rows are written on the GPU: if tensor or rows are there, and each row is contiguous. */
static bool is_written_there(const filling *f)
{
    return sherd__world_device(f->a->world) &&
           (sherd__is_there(f->a) || sherd__is_there(f->rows)) && sherd__rows_are_dense(f->a, 2) &&
           sherd__rows_are_dense(f->rows, 2);
}

static bool write_there(const filling *f)
{
    sherd_tensor *a = f->a;
    const sherd_tensor *rows = f->rows;
    int64_t bytes = (int64_t)sherd_dtype_bytes(a->dtype);
    const void *from = sherd__device_data(f->rows), *index = sherd__device_data(f->index);
    const void *table = f->paged ? sherd__device_data(f->table) : NULL;
    bool here = from && index && (table || !f->paged);
    void *to = here ? sherd__device_mutable(a) : NULL;

    if (to && a->count && rows->count)
        sherd__device_write_rows(
            sherd__world_device(a->world),
            &(sherd__row_writes){.batch = rows->local[0],
                                 .n = rows->local[1],
                                 .bytes = sherd__local_count(a, 2, a->ndim) * bytes,
                                 .first = sherd_tensor_offset(a, f->paged ? 0 : 1),
                                 .entries = f->paged ? f->table->local[1] : a->local[1],
                                 .dst_batch = a->stride[0] * bytes,
                                 .dst_row = a->stride[1] * bytes,
                                 .src_batch = rows->stride[0] * bytes,
                                 .src_row = rows->stride[1] * bytes,
                                 .table = table,
                                 .together = a->local[1]},
            to, from, index);
    return to && sherd__device_sound(a->world);
}

static bool write_piece(const filling *f)
{
    const int32_t *index = sherd__data(f->index), *table = f->paged ? sherd__data(f->table) : NULL;
    bool there = is_written_there(f);
    const char *from = there ? sherd__device_data(f->rows) : sherd__data(f->rows);

    if (!index || !from || (f->paged && !table) ||
        !(there ? sherd__device_data(f->a) : sherd__data(f->a)))
        return false;
    if (sherd__left_out(f->a->world, name_of(f), f->a->dtype, 0, 2 * sherd__local_bytes(f->rows)))
        return sherd__mutable_view(f->a) != NULL;
    if (!(f->paged ? are_in_blocks(f, index, table) : are_inside(f, index)))
        return false;
    if (there)
        return write_there(f);
    char *to = sherd__mutable_view(f->a);
    if (to && f->a->count && f->paged)
        write_blocks(f, to, from, index, table);
    else if (to && f->a->count)
        write_here(f, to, from, index);
    return to != NULL;
}

/* Index or table, moved and dense; not in what is written, where they would change after they were
 * looked at. False: failed. */
static bool bring_numbers(const filling *f, sherd_tensor **t)
{
    *t = bring(f, *t);
    if (*t)
        *t = (*t)->storage == f->a->storage ? sherd__copied(*t) : sherd__contiguous(*t);
    return *t && !sherd_tensor_failed(*t);
}

static sherd_tensor *run(const filling *given)
{
    filling f = *given;
    sherd_tensor *a = f.a;
    sherd_world *world = a->world;

    bool begun = sherd__doing_begin(world, name_of(&f));
    sherd_scope_begin(world);
    bool good = (!f.paged || bring_numbers(given, &f.table)) && bring_numbers(given, &f.index);
    f.rows = good ? bring(given, f.rows) : NULL;
    good = f.rows && write_piece(&f);
    if (good) {
        operand all[OPERANDS];
        sherd_tensor *noted[OPERANDS];
        int n = operands_of(&f, all);
        unsigned varies = 0;
        for (int i = 0; i < n; i++) {
            noted[i] = all[i].t;
            varies |= all[i].t->varies;
        }
        sherd__set_varies(a, varies);
        if (a->layout)
            sherd__note(name_of(&f), noted, n, 0, &a, 1);
    }
    sherd_scope_end(world);
    sherd__doing_end(world, begun);
    return good ? a : sherd__failed(world);
}

/* Operands may be NULL. */
static sherd_tensor *start(const filling *f)
{
    operand all[OPERANDS];
    sherd_tensor *given[OPERANDS];
    sherd_world *world = NULL;
    int n = operands_of(f, all);

    for (int i = 0; i < n; i++) {
        given[i] = all[i].t;
        world = world || !given[i] ? world : given[i]->world;
    }
    if (!world)
        return NULL;
    if (sherd__stop(world, name_of(f), given, n))
        return sherd__failed(world);
    for (int i = 0; i < n; i++)
        if (!given[i])
            return sherd__fail_tensor(world, false, SHERD_EINVAL, "%s: %s is NULL", name_of(f),
                                      all[i].name);
    for (int i = 0; i < n; i++)
        if (given[i]->world != world)
            return refuse(f, SHERD_EINVAL, "they are of two worlds");
    const char *reason = fault(f);
    if (reason)
        return refuse(f, SHERD_EINVAL, reason);
    if (f->a->layout && f->a->layout->pending_axes)
        return refuse(f, SHERD_ENOTSUP, "a pending sum has no rows to write: settle it");
    return run(f);
}

sherd_tensor *sherd_write_rows(sherd_tensor *a, sherd_tensor *index, sherd_tensor *rows)
{
    return start(&(filling){.a = a, .index = index, .rows = rows});
}

sherd_tensor *sherd_write_paged(sherd_tensor *pool, sherd_tensor *table, sherd_tensor *positions,
                                sherd_tensor *rows)
{
    return start(
        &(filling){.a = pool, .index = positions, .rows = rows, .table = table, .paged = true});
}
