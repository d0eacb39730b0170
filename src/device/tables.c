/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of tables.cu. Where one index is for a whole row, rows are units as large as places
 * allow. */
#include "box.h"
#include "tables.h"

#include "order.h"
#include "base/num.h"
#include "kernels/sums.h"
#include "programs/tables_args.h"

#include <limits.h>
#include <string.h>

_Static_assert((int)ADD_GROUP == (int)SHERD__ROWS_OF_SUM, "the GPU adds in the CPU's groups");

static const char *const unit_name[SHERD__WIDE + 1] = {
    [1] = "unit_1", [2] = "unit_2", [4] = "unit_4", [8] = "unit_8", [16] = "unit_16"};

static picking args_of(const sherd__pick *p, void *dst, const void *src)
{
    picking args = {.outer = p->outer,
                    .n = p->n,
                    .inner = p->inner,
                    .entries = p->entries,
                    .first = p->first,
                    .each = 1,
                    .flat = p->flat,
                    .index = p->index,
                    .src = src,
                    .dst = dst};

    args.small = p->outer * p->n * p->inner <= INT_MAX;
    return args;
}

/* Rows in units as large as they, and where they begin, are multiples of; their bytes. */
static size_t take_units(picking *args, size_t bytes)
{
    uintptr_t together =
        (uintptr_t)args->dst | (uintptr_t)args->src | (uintptr_t)args->inner * (uintptr_t)bytes;
    size_t unit = SHERD__WIDE;

    while (args->flat && unit > bytes && together % unit)
        unit /= 2;
    unit = args->flat ? unit : bytes;
    args->inner = args->inner * (int64_t)bytes / (int64_t)unit;
    return unit;
}

static void launch(sherd__device *device, const char *family, const char *kind, const picking *args)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_TABLES, family, kind, SHERD_DTYPE_NONE,
                                  SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, sherd__grid_of(args->outer * args->n * args->inner), args,
                         sizeof *args);
}

void sherd__device_take_rows(sherd__device *device, size_t bytes, const sherd__pick *p,
                             int64_t each, void *dst, const void *src)
{
    picking args = args_of(p, dst, src);

    args.each = each;
    launch(device, "gather", unit_name[take_units(&args, bytes)], &args);
}

void sherd__device_gather(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                          const void *src)
{
    sherd__device_take_rows(device, bytes, p, 1, dst, src);
}

void sherd__device_put_rows(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                            const void *src)
{
    picking args = args_of(p, dst, src);

    launch(device, "scatter", unit_name[take_units(&args, bytes)], &args);
}

/* Find the last j of each entry. NULL: no memory. */
static sherd__device_block *take_winners(sherd__device *device, picking *args)
{
    int64_t bytes = args->outer * args->entries * args->inner * (int64_t)sizeof *args->winner;
    sherd__device_block *room = sherd__device_take(device, sherd__max(bytes, 1));

    if (!room) {
        sherd__device_lack(device, "out of GPU memory for indices");
        return NULL;
    }
    args->winner = room->data;
    sherd__device_set(device, room->data, 0xff, bytes);
    launch(device, "winners", "i32", args);
    return room;
}

void sherd__device_gather_last(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                               const void *src)
{
    picking args = args_of(p, dst, src);
    bool any = p->outer * p->n * p->inner > 0;
    sherd__device_block *room = any ? take_winners(device, &args) : NULL;

    if (room)
        launch(device, "gather", unit_name[bytes], &args);
    sherd__device_give(device, room);
}

void sherd__device_scatter(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                           const void *src, const void *value)
{
    picking args = args_of(p, dst, src);
    sherd__device_block *room = NULL;
    bool races = src && p->n > 1;

    if (p->outer * p->n * p->inner == 0)
        return;
    if (!src)
        memcpy(&args.value, value, bytes);
    if (races && !(room = take_winners(device, &args)))
        return;
    launch(device, "scatter", unit_name[bytes], &args);
    sherd__device_give(device, room);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Keys: entries of rows, or places of elements. */
static int64_t keys_of(const sherd__pick *p)
{
    return p->flat ? p->n : p->outer * p->n * p->inner;
}

static int64_t places_of(const sherd__pick *p)
{
    return p->flat ? p->entries : p->outer * p->entries * p->inner;
}

bool sherd__device_scatter_adds(sherd_dtype dtype, const sherd__pick *p)
{
    return sherd__device_computes(dtype) && keys_of(p) <= INT_MAX && places_of(p) < UINT_MAX;
}

/* Bits of numbers up to n. */
static int bits_of(int64_t n)
{
    int bits = 0;

    while (n >> bits)
        bits++;
    return bits;
}

static void add(sherd__device *device, sherd_dtype dtype, const sherd__pick *p,
                const sherd__radix *r, int which, void *dst, const void *src)
{
    bool is_wide =
        p->flat && sherd__rows_are_wide(dtype, p->inner, (uintptr_t)dst | (uintptr_t)src);
    int64_t lanes = is_wide ? SHERD__WIDE / (int64_t)sherd_dtype_bytes(dtype) : 1;
    const add_sorted_args args = {.n = r->n,
                                  .outer = p->flat ? p->outer : 1,
                                  .inner = p->flat ? p->inner : 1,
                                  .entries = places_of(p),
                                  .pieces = p->flat ? p->inner / lanes : 1,
                                  .none = (uint32_t)places_of(p),
                                  .key = r->key[which],
                                  .position = r->position[which],
                                  .src = src,
                                  .dst = dst};
    const sherd__kernel kernel = {SHERD__PROGRAM_TABLES, "add_sorted", is_wide ? "wide" : "each",
                                  dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, sherd__grid_of(args.n * args.outer * args.pieces), &args,
                         sizeof args);
}

void sherd__device_scatter_add(sherd__device *device, sherd_dtype dtype, const sherd__pick *p,
                               void *dst, const void *src)
{
    const sherd__kernel entries = {SHERD__PROGRAM_TABLES, "entries", "unit_4", SHERD_DTYPE_NONE,
                                   SHERD_DTYPE_NONE};
    int64_t n = keys_of(p);

    if (n == 0 || p->outer * p->inner == 0)
        return;
    sherd__device_block *room = sherd__device_take(device, 4 * n * (int64_t)sizeof(uint32_t));
    if (!room) {
        sherd__device_lack(device, "out of GPU memory for indices");
        return;
    }
    uint32_t *key = room->data;
    int32_t *position = (int32_t *)(void *)(key + 2 * n);
    const entries_args args = {args_of(p, NULL, NULL), key, (uint32_t)places_of(p)};
    const sherd__radix r = {.rows = 1,
                            .n = n,
                            .bytes = sizeof *key,
                            .high = bits_of(places_of(p)),
                            .key = {key, key + n},
                            .position = {position, position + n}};
    sherd__device_launch(device, &entries, sherd__grid_of(n), &args, sizeof args);
    int which = sherd__device_radix(device, &r);
    if (which >= 0)
        add(device, dtype, p, &r, which, dst, src);
    sherd__device_give(device, room);
}
