/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank does on its own between two operations: it takes its time, or asks, reads and makes
 * what is its own business. Every rank falls differently here, and no other may notice.
 */
#include "run.h"

#include <sched.h>
#include <time.h>

static void linger(runner *u)
{
    int turns = roll(&u->noise, 4000);

    if (one_in(&u->noise, u->pace == SLOW ? 3 : 12))
        nanosleep(&(struct timespec){0, 1000 * (50 + roll(&u->noise, 400))}, NULL);
    else if (one_in(&u->noise, 3))
        sched_yield();
    for (volatile int i = 0; i < turns; i++)
        ;
}

/* Plain tensors are this rank's own. */
static void compute_alone(runner *u)
{
    const int64_t shape[2] = {1 + roll(&u->noise, 6), 1 + roll(&u->noise, 6)};

    sherd_scope_begin(u->world);
    sherd_tensor *a = sherd_constant(u->world, SHERD_F32, shape, 2, u->rank);
    sherd_tensor *b = sherd_scale(sherd_add(a, a), u->rank + 1);
    if (one_in(&u->noise, 2))
        b = sherd_sum(sherd_mul(b, a));
    if (!sherd_tensor_read(b))
        u->must_fail = true;
    sherd_scope_end(u->world);
}

/* Layouts and plans are local, and kept for others to find. */
static void plan_alone(runner *u)
{
    int mesh = roll(&u->noise, u->s->meshes);
    const int64_t shape[2] = {1 + roll(&u->noise, 40), 1 + roll(&u->noise, 40)};
    const sherd_mesh *own = u->mesh[u->s->mesh[mesh].whole];
    sherd_placement from[SHERD_MAX_AXES], to[SHERD_MAX_AXES];
    const sherd_layout *a, *b;
    const sherd_plan *plan;

    if (!own)
        return;
    for (int i = 0; i < sherd_mesh_axes(own); i++) {
        from[i] = sherd_shard(roll(&u->noise, 2));
        to[i] = one_in(&u->noise, 2) ? sherd_replicate() : sherd_shard(roll(&u->noise, 2));
    }
    if (sherd_layout_create(&a, own, 2, shape, from, NULL) ||
        sherd_layout_create(&b, own, 2, shape, to, NULL) ||
        sherd_plan_create(&plan, a, b, SHERD_F32, NULL))
        return; /* for lack of memory: it is needed for nothing */
}

/* A tensor in flight may be read, and so ended, on one rank only. */
static void look_at_slot(runner *u)
{
    sherd_tensor *t = u->slot[roll(&u->noise, SLOTS)];

    if (!t)
        return;
    if (one_in(&u->noise, 2))
        sherd_tensor_text(t);
    if (one_in(&u->noise, 2) && !sherd_is_ready(t))
        return;
    if (one_in(&u->noise, 2) && sherd_tensor_failed(sherd_wait(t)))
        u->must_fail = true;
    else if (!sherd_tensor_read(t))
        u->must_fail = true;
}

static void ask(runner *u)
{
    if (one_in(&u->noise, 2))
        sherd_comm_reset(u->world);
    for (int i = 0; i < sherd_comm_count(u->world); i++)
        sherd_comm_get(u->world, i);
    sherd_comm_calls(u->world, &(sherd_comm_filter){.direction = SHERD_COMM_BACKWARD});
    for (int i = 0; i < sherd_moves_count(u->world); i++)
        if (!sherd_moves_get(u->world, i).trace)
            say_wrong(u, "a move in the list says nothing");
    if (one_in(&u->noise, 4) && sherd_moves_keep(u->world, roll(&u->noise, 20)))
        return; /* for lack of memory: it is needed for nothing */
    sherd_world_memory_reset(u->world);
    sherd_saved_bytes(u->world);
    sherd_world_error(u->world);
}

/* A world inside of a rank, which is nobody else's. */
static void world_alone(runner *u)
{
    sherd_world *own;
    const int64_t shape[1] = {9};

    if (sherd_world_alone(&own, &(sherd_world_options){.region_bytes = 2 << 20}))
        return;
    double sum = sherd_item(sherd_sum(sherd_constant(own, SHERD_F64, shape, 1, 2)));
    sherd_status status = sherd_world_check(own);
    if (status == SHERD_OK ? sum != 18 : status != SHERD_ENOMEM)
        say_wrong(u, "a world of one rank inside of this one does not work: %g, %s", sum,
                  sherd_status_name(status));
    if (sherd_world_close(own))
        say_wrong(u, "a world of one rank inside of this one does not close");
}

void make_noise(runner *u)
{
    static void (*const kinds[])(runner *) = {linger, look_at_slot, look_at_slot, compute_alone,
                                              linger, linger,       plan_alone,   ask};

    if (u->pace != HASTY && one_in(&u->noise, u->pace == SLOW ? 2 : 6))
        /* The others keep plans that nobody else has made: memory would not stay what it is. */
        kinds[roll(&u->noise, u->again ? 4 : 8)](u);
    else if (one_in(&u->noise, 2000))
        world_alone(u);
}
