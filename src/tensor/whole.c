/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole tensor in the caller's memory. For one rank only, the tensor is moved to a layout in
 * which that rank holds everything, so the others receive nothing. The ranks that get it need its
 * storage once more.
 */
#include "tensor/state.h"

#include "base/num.h"
#include "vector/choose.h"
#include "world/doing.h"

sherd_tensor *sherd__whole_at(sherd_tensor *t, int rank)
{
    int64_t coordinate[SHERD_MAX_AXES];
    const sherd_layout *to;
    sherd_status status;

    if (!t->layout || (!t->layout->shard_axes && !t->layout->pending_axes))
        return t;
    const sherd_mesh *mesh = t->layout->spec.mesh;
    if (rank < 0 || t->ndim == 0 || !sherd_mesh_coordinate(mesh, rank, coordinate))
        status = sherd__replicated(&to, mesh, t->ndim, t->shape);
    else
        status = sherd__all_at(&to, mesh, t->ndim, t->shape, coordinate);
    return status == SHERD_OK ? sherd__move_to(t, to, false) : sherd__fail_diag(t->world, true);
}

/* What is asked for. */
typedef struct request {
    void *out;
    size_t bytes;
    sherd_dtype dtype;
    int rank;
    bool mine; /* the values come to this rank */
} request;

/* Why the arguments are invalid; NULL = they are valid. */
static const char *fault(const request *r, const sherd_tensor *t)
{
    int64_t bytes, count = sherd_tensor_count(t);

    if (sherd_dtype_bytes(r->dtype) == 0)
        return "no such dtype";
    if (r->rank < -1 || r->rank >= sherd_world_ranks(t->world))
        return "there is no such rank";
    if (t->layout && r->rank >= 0 && !sherd_mesh_coordinate(t->layout->spec.mesh, r->rank, NULL))
        return "the rank is not in the mesh of the tensor";
    if (!r->mine)
        return NULL;
    if (!r->out && count > 0)
        return "out is NULL";
    if (!sherd__mul(count, (int64_t)sherd_dtype_bytes(r->dtype), &bytes) ||
        (size_t)bytes > r->bytes)
        return "out has too few bytes";
    return NULL;
}

static bool read(const request *r, sherd_tensor *t)
{
    sherd_tensor *whole = sherd__contiguous(sherd__whole_at(t, r->rank));

    if (!whole->storage)
        return false;
    if (!r->mine)
        return true;
    const void *data = sherd__data(whole);
    if (data && whole->count > 0)
        sherd__convert(sherd__world_kernels(t->world), r->dtype, whole->dtype, whole->count, r->out,
                       data);
    return data != NULL;
}

bool sherd_full_read(void *out, size_t bytes, sherd_tensor *t, sherd_dtype dtype, int rank)
{
    const sherd__argument need[] = {{"t", t}, {NULL, NULL}};
    request r = {out, bytes, dtype, rank, false};
    sherd_world *world = sherd_tensor_world(t);
    sherd_tensor *failed;

    if (!sherd__given(world, "sherd_full_read", need, &failed) ||
        sherd__stop(world, "sherd_full_read", &t, 1))
        return false;
    if (dtype == SHERD_DTYPE_NONE)
        r.dtype = t->dtype;
    r.mine = (rank == -1 || rank == sherd_world_rank(world)) &&
             (!t->layout || sherd__in_mesh(world, t->layout->spec.mesh));
    const char *why = fault(&r, t);
    if (why) {
        sherd__fail_tensor(world, t->layout != NULL, SHERD_EINVAL,
                           "sherd_full_read: %s to %zu bytes of %s on rank %d: %s",
                           sherd_tensor_text(t), bytes, sherd_dtype_name(r.dtype), rank, why);
        return false;
    }
    bool begun = sherd__doing_begin(world, "sherd_full_read");
    sherd_scope_begin(world);
    bool good = read(&r, t);
    sherd_scope_end(world);
    sherd__doing_end(world, begun);
    return good && r.mine;
}
