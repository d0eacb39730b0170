/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors for tests. Every element holds its own global row-major index, so a wrong move shows as a
 * wrong number at a known place. Of a pending sum, the addend of the q-th rank (of Q along the
 * pending axes) is index + 1000 q, so the sum is Q index + 1000 Q (Q-1) / 2: exact in f32 and f64
 * for what tests use.
 */
#ifndef SHERD_TESTS_TENSORS_H
#define SHERD_TESTS_TENSORS_H

#include "check.h"
#include "boxes.h"
#include "kernels/cast.h"
#include "tensor/tensor.h"

/* The sum of all addends at a global index, for Q addends. */
static inline double whole_value(int64_t index, int64_t addends)
{
    return (double)(addends * index + 500 * addends * (addends - 1));
}

static inline const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

/* One axis "x" of all ranks. */
static inline const sherd_mesh *line_of_ranks(sherd_world *world)
{
    char text[32];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static inline const sherd_layout *layout_of(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                            const char *placements, const char *cuts)
{
    const sherd_layout *layout = NULL;
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, cuts));
    return layout;
}

/* How many addends a pending layout has, and which of them a coordinate holds. */
static inline int64_t addends_of(const sherd_layout *layout, const int64_t *coordinate,
                                 int64_t *which)
{
    int64_t count = 1, q = 0;
    for (int a = 0; a < layout->spec.mesh->axes; a++)
        if (layout->pending_axes >> a & 1) {
            q = q * layout->spec.mesh->extent[a] + coordinate[a];
            count *= layout->spec.mesh->extent[a];
        }
    if (which)
        *which = q;
    return count;
}

/* How many lists of placements a mesh has for a tensor of ndim dims: R, S(0), ..., P(sum) on each
 * axis. */
static inline int lists_of(const sherd_mesh *mesh, int ndim)
{
    int count = 1;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++)
        count *= ndim + 2;
    return count;
}

/* The number-th of them. */
static inline const sherd_layout *numbered(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                           int number)
{
    sherd_placement placements[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++, number /= ndim + 2) {
        int kind = number % (ndim + 2);
        placements[a] = kind == 0          ? sherd_replicate()
                        : kind == ndim + 1 ? sherd_partial(SHERD_SUM)
                                           : sherd_shard(kind - 1);
    }
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placements, NULL));
    return layout;
}

static inline double number_at(const void *data, sherd_dtype dtype, int64_t i)
{
    size_t bytes = sherd_dtype_bytes(dtype);
    double value = 0;

    sherd__cast(SHERD_F64, dtype, 1, &value, (const char *)data + (size_t)i * bytes);
    return value;
}

static inline void set_number(void *data, sherd_dtype dtype, int64_t i, double value)
{
    size_t bytes = sherd_dtype_bytes(dtype);

    sherd__cast(dtype, SHERD_F64, 1, (char *)data + (size_t)i * bytes, &value);
}

/* A tensor of a layout that holds its indices. */
static inline sherd_tensor *indices_on(const sherd_layout *layout, sherd_dtype dtype)
{
    sherd_tensor *t = sherd__new_on(layout, dtype);
    sherd_box box = sherd_tensor_box(t);
    int64_t coordinate[SHERD_MAX_AXES], q = 0;

    if (!t->storage || !sherd__coordinate(t, coordinate))
        return t;
    addends_of(layout, coordinate, &q);
    for (int64_t i = 0; i < t->count; i++)
        set_number(sherd__fresh(t), dtype, i,
                   (double)(global_of(&box, layout->spec.shape, i) + 1000 * q));
    return t;
}

/* How many elements of a settled tensor are not what they should be after Q addends; -1 if it
 * failed. */
static inline int64_t count_wrong(sherd_tensor *t, int64_t addends)
{
    const void *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    int64_t wrong = 0;

    if (!data)
        return -1;
    for (int64_t i = 0; i < t->count; i++)
        wrong += number_at(data, t->dtype, i) != whole_value(global_of(&box, t->shape, i), addends);
    return wrong;
}

/* A plain tensor that holds its indices. */
static inline sherd_tensor *indices_plain(sherd_world *world, sherd_dtype dtype, int ndim,
                                          const int64_t *shape)
{
    sherd_tensor *t = sherd__new_plain(world, dtype, ndim, shape, (unsigned)SHERD__VARIES);
    for (int64_t i = 0; i < t->count; i++)
        set_number(sherd__fresh(t), dtype, i, (double)i);
    return t;
}

/* All ranks got the same status; the world must work. */
static inline void check_same(sherd_world *world, sherd_status status)
{
    CHECK_OK(sherd__agree(world, SHERD_OK, (uint64_t)(int64_t)status + 1, "test"));
}

/* All ranks make a call; one that has left an earlier call to the others is found there. */
static inline void call_together(sherd_world *world, const sherd_mesh *line)
{
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    (void)sherd__share(world, line, "test", &mine, 1, all);
}

/*
 * Let the 1st, 2nd, ... allocation fail on one rank until it goes through. Every rank must get the
 * same status each time, also if more calls follow, and hold no more tensor storage than before.
 * Small memory is compared once caches are warm.
 */
static inline void fail_every_allocation(sherd_world *world, int rank,
                                         void (*scene)(sherd_world *world))
{
    const sherd_mesh *line = line_of_ranks(world);
    int64_t bytes = sherd_world_memory(world).live_bytes;
    bool mine = sherd_world_rank(world) == rank;

    for (int warm = 0; warm < 2; warm++) {
        sherd_status status = SHERD_ENOMEM;
        int64_t live = sherd__world_heap(world)->live;
        int64_t n = 1;
        for (; status != SHERD_OK && n < 2000; n++) {
            sherd_world_fail_allocation(world, mine ? n : 0);
            scene(world);
            sherd_world_fail_allocation(world, 0);
            call_together(world, line);
            status = sherd_world_check(world);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            check_same(world, status);
            CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
            if (warm)
                CHECK_EQ(sherd__world_heap(world)->live, live);
        }
        CHECK_OK(status);
        CHECK(n > 2);
    }
}

/*
 * The same on all ranks at once, for what keeps memory between calls: a workspace, what is kept by
 * shape. Each time it goes well or fails for lack of memory; some of them fail.
 */
static inline void fail_allocations_everywhere(sherd_world *world,
                                               void (*scene)(sherd_world *world))
{
    sherd_status status = SHERD_ENOMEM;
    int failures = -1;

    for (int n = 1; status && n < 1000; n++, failures++) {
        sherd_world_fail_allocation(world, n);
        scene(world);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
    }
    CHECK_OK(status);
    CHECK(failures > 0);
}

#endif
