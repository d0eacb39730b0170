/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several optimizers as one: the norm of all their gradients, and clipping by it. Their parameters
 * may lie on several meshes, none of which all ranks are in, so numbers are exchanged on one that
 * has them all. A plain gradient is added by each rank for itself, and must be the same on all.
 */
#include <math.h>

#include "nn/numbers.h"
#include "nn/optimizer.h"

/* Whether a mesh lacks a rank that another one has. */
static bool lacks_ranks(const sherd_world *world, const sherd_mesh *mesh, const sherd_mesh *other)
{
    int64_t at[SHERD_MAX_AXES];

    for (int r = 0; mesh != other && r < sherd_world_ranks(world); r++)
        if (sherd_mesh_coordinate(other, r, at) && !sherd_mesh_coordinate(mesh, r, at))
            return true;
    return false;
}

/* Mark the parameters that have gradients; whether one was marked before in this walk. */
static bool mark(const sherd_optimizer *o, uint64_t walk)
{
    bool before = false;

    for (int i = 0; i < o->count; i++) {
        if (!sherd__raw_grad(o->item[i].p))
            continue;
        before = before || o->item[i].p->visit.walk == walk;
        o->item[i].p->visit.walk = walk;
    }
    return before;
}

/* Why an optimizer cannot be one of several; NULL: it can. */
static const char *fault_of(const sherd_world *world, const sherd_mesh *mesh,
                            const sherd_optimizer *o, uint64_t walk)
{
    if (!o)
        return "it is NULL";
    if (o->world != world)
        return "it is of another world than the mesh";
    if (o->mesh && lacks_ranks(world, mesh, o->mesh))
        return "its parameters lie on ranks that are not in the mesh";
    return mark(o, walk) ? "its gradients are also in one before it" : NULL;
}

static sherd_status check(sherd_world *world, const char *function, const sherd_optimizers *all)
{
    const sherd__argument need[] = {{"all", all}, {"mesh", all ? all->mesh : NULL}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);
    uint64_t walk = sherd__walk_number(world);

    if (!status && (all->count < 0 || (all->count > 0 && !all->list)))
        status = sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s: %d optimizers%s",
                             function, all->count, all->list ? "" : ", but list is NULL");
    for (int i = 0; !status && i < all->count; i++) {
        const char *fault = fault_of(world, sherd_mesh_root(all->mesh), all->list[i], walk);
        if (fault)
            status = sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                                 "%s: optimizer %d of %d, mesh %s: %s", function, i, all->count,
                                 sherd_mesh_text(all->mesh), fault);
    }
    return status;
}

sherd_world *sherd__optimizers_world(const sherd_optimizers *all)
{
    if (all && all->mesh)
        return sherd__space_world(all->mesh->space);
    return all && all->list && all->count > 0 && all->list[0] ? all->list[0]->world : NULL;
}

/* ---- the norm -------------------------------------------------------------------------------- */

enum { DISTRIBUTED, PLAIN, SUMS };

/* Settle all, and join the powers that this rank counts. False: ended by the alarm. */
static bool join_powers(sherd_world *world, const char *function, const sherd_optimizers *all,
                        double p, double sums[SUMS])
{
    double distributed, plain;
    bool good = true;

    for (int i = 0; i < all->count; i++)
        sherd_optimizer_settle(all->list[i]);
    sherd_scope_begin(world);
    for (int i = 0; good && i < all->count; i++) {
        good = !sherd__alarmed(world) &&
               sherd__optimizer_powers(all->list[i], function, p, true, &distributed, &plain);
        sums[DISTRIBUTED] = sherd__norm_join(p, sums[DISTRIBUTED], good ? distributed : 0);
        sums[PLAIN] = sherd__norm_join(p, sums[PLAIN], good ? plain : 0);
    }
    sherd_scope_end(world);
    return good;
}

static bool are_same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Join the sums of all ranks, in rank order. False: ended by the alarm. */
static bool join_ranks(sherd_world *world, const char *function, const sherd_mesh *mesh, double p,
                       double sums[SUMS])
{
    int64_t ranks = sherd_mesh_ranks(mesh);
    double *all = sherd__alloc(sherd__world_heap(world), (size_t)ranks * SUMS, sizeof *all);
    double plain = sums[PLAIN];
    bool good = all != NULL;

    if (!all) {
        sherd__no_memory(sherd__world_diag(world), function);
        sherd__raise_diag(world);
    }
    good = good && sherd__numbers_share(world, mesh, function, sums, SUMS, all);
    for (int64_t r = 0; good && r < ranks; r++) {
        double theirs = all[r * SUMS + PLAIN];
        good = are_same(theirs, plain);
        if (!good)
            sherd__raise(
                world, SHERD_EDIFFER,
                "%s: the norm of gradients of plain parameters is %g here and %g on another "
                "rank: put parameters that not all ranks train alike on a mesh",
                function, sherd__norm_of(p, plain), sherd__norm_of(p, theirs));
    }
    if (good)
        sums[DISTRIBUTED] = sherd__numbers_join(p, all, ranks, SUMS, DISTRIBUTED);
    sherd__free(sherd__world_heap(world), all);
    return good;
}

double sherd__optimizers_norm(const char *function, const sherd_optimizers *all, double p)
{
    sherd_world *world = sherd__optimizers_world(all);
    double sums[SUMS] = {0};
    uint64_t identity;

    if (!world || sherd__alarmed(world) || !sherd__norm_exists(world, function, p))
        return NAN;
    if (check(world, function, all)) {
        sherd__raise_diag(world);
        return NAN;
    }
    const sherd_mesh *mesh = sherd_mesh_root(all->mesh);
    sherd__deed_add(mesh, function, sherd__attribute_double(1, p), &identity);
    if (!join_powers(world, function, all, p, sums) || !join_ranks(world, function, mesh, p, sums))
        return NAN;
    return sherd__norm_of(p, sherd__norm_join(p, sums[DISTRIBUTED], sums[PLAIN]));
}

double sherd_optimizers_grad_norm(const sherd_optimizers *all)
{
    return sherd__optimizers_norm("sherd_optimizers_grad_norm", all, 2);
}

double sherd_optimizers_grad_norm_of(const sherd_optimizers *all, double p)
{
    return sherd__optimizers_norm("sherd_optimizers_grad_norm_of", all, p);
}

/* `function` of which p-norm. */
static double clip(const char *function, const sherd_optimizers *all, double most, double p)
{
    sherd_world *world = sherd__optimizers_world(all);
    double norm;

    if (world && !sherd__optimizer_bound(world, function, "norm", most))
        return NAN;
    norm = sherd__optimizers_norm(function, all, p);
    for (int i = 0; isfinite(norm) && norm > most && i < all->count; i++)
        sherd__optimizer_scale(all->list[i], function, most / norm);
    return norm;
}

double sherd_optimizers_clip(const sherd_optimizers *all, double most)
{
    return clip("sherd_optimizers_clip", all, most, 2);
}

double sherd_optimizers_clip_norm(const sherd_optimizers *all, double most, double p)
{
    return clip("sherd_optimizers_clip_norm", all, most, p);
}
