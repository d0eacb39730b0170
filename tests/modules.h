/* SPDX-License-Identifier: Apache-2.0 */
/* Small helpers for tests of modules: tensors of known values, reading them whole, counting
 * calls. */
#ifndef SHERD_TESTS_MODULES_H
#define SHERD_TESTS_MODULES_H

#include <math.h>

#include "check.h"
#include "kernels/cast.h"
#include "nn/module.h"
#include "sherd/comm.h"
#include "sherd/layers.h"
#include "sherd/ops.h"

enum { MOST = 4096 }; /* elements of a tensor that is read whole */

/* A plain tensor, equal on all ranks: element i is offset + scale sin(0.1 (i + 1) k). */
static inline sherd_tensor *wave(sherd_world *world, sherd_dtype dtype, int ndim,
                                 const int64_t *shape, int k, double scale, double offset)
{
    static _Thread_local double wide[MOST], data[MOST];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n && i < MOST; i++)
        wide[i] = offset + scale * sin(0.1 * (double)(i + 1) * k);
    sherd__cast(dtype, SHERD_F64, n, data, wide);
    return sherd_mark_equal(sherd_from_data(world, dtype, shape, ndim, data));
}

static inline sherd_tensor *spread(sherd_tensor *t, const sherd_mesh *mesh, const char *placements)
{
    const sherd_layout *layout = NULL;
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, sherd_tensor_ndim(t),
                                           sherd_tensor_shape(t), placements, NULL));
    return layout ? sherd_distribute(t, layout, -1) : t;
}

/* The whole tensor in doubles, into out[MOST]; how many elements. NULL counts as none. */
static inline int64_t whole(sherd_tensor *t, double *out)
{
    const void *data;
    int64_t n = 0;

    if (!t)
        return 0;
    sherd_scope_begin(sherd_tensor_world(t));
    bool recording = sherd_set_recording(sherd_tensor_world(t), false);
    t = sherd_full(t);
    data = sherd_tensor_read(t);
    if (CHECK(data != NULL)) {
        n = sherd_tensor_count(t);
        sherd__cast(SHERD_F64, sherd_tensor_dtype(t), n < MOST ? n : MOST, out, data);
    }
    sherd_set_recording(sherd_tensor_world(t), recording);
    sherd_scope_end(sherd_tensor_world(t));
    return n;
}

/* The largest |t[i] - expected[i]|; infinite if the number of elements differs. */
static inline double distance_to(sherd_tensor *t, const double *expected, int64_t count)
{
    static _Thread_local double have[MOST];
    double worst = 0;

    if (whole(t, have) != count)
        return INFINITY;
    for (int64_t i = 0; i < count && i < MOST; i++)
        if (!(fabs(have[i] - expected[i]) <= worst))
            worst = isnan(have[i]) ? INFINITY : fabs(have[i] - expected[i]);
    return worst;
}

/* Calls and bytes received in the comm log. */
static inline int64_t calls_logged(sherd_world *world)
{
    int64_t n = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        n += sherd_comm_get(world, i).calls;
    return n;
}

static inline const sherd_mesh *mesh_of(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

/* One axis "tp" of all ranks. */
static inline const sherd_mesh *line_of_ranks(sherd_world *world)
{
    char text[32];
    snprintf(text, sizeof text, "tp=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

#define SHAPE(...)    \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

#endif
