/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks from inside a program, as threads; as processes see process.c. */
#include "carried.h"
#include "world/dry.h"
#include "world/inside.h"

#include <pthread.h>
#include <string.h>

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct thread_rank {
    pthread_t thread;
    int rank, value;
    sherd_status opened; /* what joining the world returned */
    sherd__diag diag;
    const sherd__launch_plan *plan;
    pthread_mutex_t *gate; /* held until all threads exist */
    const bool *go;
} thread_rank;

static void *run_thread(void *payload)
{
    thread_rank *self = payload;
    const sherd__launch_plan *plan = self->plan;

    pthread_mutex_lock(self->gate);
    bool go = *self->go;
    pthread_mutex_unlock(self->gate);
    if (go)
        self->value = sherd__run_rank(plan, self->rank, &self->opened, &self->diag);
    return NULL;
}

/* The first value that is not 0, and why a world did not open or close well. */
static sherd_status collect(const sherd__launch_plan *plan, const thread_rank *ranks,
                            int *exit_status, sherd__diag *diag)
{
    sherd_status status = SHERD_OK;

    for (int r = 0; r < plan->ranks; r++) {
        if (*exit_status == 0)
            *exit_status = ranks[r].value;
        if (!status && (status = ranks[r].opened))
            *diag = ranks[r].diag;
    }
    if (!status)
        status = sherd__outcome(&plan->arena, plan->ranks, diag);
    return status;
}

/*
 * With the stack that functions of a program, 1000 deep, may need: where `ulimit -s` is unlimited,
 * the C library gives a thread 2 MB. Only what is used of it is memory.
 */
static int start_thread(thread_rank *self)
{
    const size_t least = (size_t)8 << 20;
    pthread_attr_t how;
    size_t bytes = least;
    int error = -1;

    if (pthread_attr_init(&how) == 0) {
        if (pthread_attr_getstacksize(&how, &bytes) == 0 && bytes < least &&
            pthread_attr_setstacksize(&how, least) == 0)
            error = pthread_create(&self->thread, &how, run_thread, self);
        pthread_attr_destroy(&how);
    }
    return error ? pthread_create(&self->thread, NULL, run_thread, self) : 0;
}

static sherd_status spawn_threads(int *exit_status, const sherd__launch_plan *plan,
                                  sherd__diag *diag)
{
    sherd__heap heap = {0};
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    bool go = true;
    int started = 0, error = 0;
    thread_rank *ranks = sherd__alloc(&heap, (size_t)plan->ranks, sizeof *ranks);

    if (!ranks)
        return sherd__no_memory(diag, "sherd_spawn");
    pthread_mutex_lock(&gate);
    for (; started < plan->ranks; started++) {
        thread_rank *self = &ranks[started];
        *self = (thread_rank){.rank = started, .plan = plan, .gate = &gate, .go = &go};
        self->diag.rank = -1;
        if ((error = start_thread(self)))
            break;
    }
    go = error == 0;
    pthread_mutex_unlock(&gate);
    for (int r = 0; r < started; r++)
        pthread_join(ranks[r].thread, NULL);
    sherd_status status =
        error ? sherd__fail(diag, SHERD_ENOMEM, "sherd_spawn: thread %d of %d does not start: %s",
                            started, plan->ranks, strerror(error))
              : collect(plan, ranks, exit_status, diag);
    sherd__free(&heap, ranks);
    return status;
}

/* ---- one rank, dry --------------------------------------------------------------------------- */

/* In this process; worlds that the body opens itself are dry too. */
static sherd_status spawn_dry(int *exit_status, const sherd__launch_plan *plan, sherd__diag *diag)
{
    sherd_world *world;
    sherd_status status = sherd__dry_open(&world, plan->ranks, plan->options, diag);

    if (status)
        return status;
    world->lent = true;
    *exit_status = plan->body(world, plan->payload);
    diag->status = sherd__world_close(world, diag->text);
    return diag->status;
}

/* ---- any kind -------------------------------------------------------------------------------- */

static sherd_status count_ranks(sherd__launch_plan *plan, sherd__diag *diag)
{
    int ranks = plan->options->ranks;

    if (ranks < 0)
        return sherd__fail(diag, SHERD_EINVAL, "sherd_spawn: %d ranks", ranks);
    plan->ranks = ranks ? ranks : 1;
    return SHERD_OK;
}

static sherd_status choose(const sherd__launch_plan *plan, bool *threads, sherd__diag *diag)
{
    const char *name;

    if (plan->options->as != SHERD_PROCESSES && plan->options->as != SHERD_THREADS)
        return sherd__fail(diag, SHERD_EINVAL,
                           "sherd_spawn: %d is neither SHERD_PROCESSES nor SHERD_THREADS",
                           (int)plan->options->as);
    if (plan->ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT,
                           "sherd_spawn: %d ranks are more than the %d that sherd supports",
                           plan->ranks, SHERD_MAX_RANKS);
    *threads = plan->options->as == SHERD_THREADS;
    if (sherd__transport_asked(&name, diag))
        return diag->status;
    if (*name && strcmp(name, "mpi") != 0) /* that one is for ranks that mpirun has started */
        *threads = strcmp(name, "threads") == 0;
    return SHERD_OK;
}

static sherd_status spawn_ranks(int *exit_status, sherd__launch_plan *plan, sherd__diag *diag)
{
    bool threads = false;
    sherd_status status = count_ranks(plan, diag);

    if (!status)
        status = choose(plan, &threads, diag);
    if (!status)
        status = sherd__trace_begin(diag);
    if (!status)
        status =
            sherd__arena_create(&plan->arena, plan->ranks, plan->options->region_bytes, NULL, diag);
    if (status)
        return status;
    plan->arena.threads = threads;
    plan->arena.cores = sherd__cores();
    if (!plan->options->no_pin)
        sherd__cores_take(&plan->cores, plan->arena.control);
    status = threads ? spawn_threads(exit_status, plan, diag)
                     : sherd__spawn_processes(exit_status, plan, diag);
    diag->told = !threads && sherd__is_lost(status); /* by who watches over them */
    sherd__cores_give(&plan->cores);
    sherd__arena_unmap(&plan->arena);
    return status;
}

/* Here, if this process is a rank already; otherwise ranks of its own. */
static sherd_status spawn(int *exit_status, sherd__launch_plan *plan, sherd__diag *diag)
{
    sherd_status status = SHERD_OK;
    bool here = false;

    if (sherd__dry_is_asked()) {
        status = count_ranks(plan, diag);
        return status ? status : spawn_dry(exit_status, plan, diag);
    }
    if (sherd__is_launched())
        status = sherd__spawn_here(&here, exit_status, plan, diag);
    else if (sherd__is_carried())
        status = sherd__spawn_carried(&here, exit_status, plan, diag);
    return here || status ? status : spawn_ranks(exit_status, plan, diag);
}

sherd_status sherd_spawn(int *exit_status, const sherd_world_options *options,
                         int (*body)(sherd_world *world, void *payload), void *payload)
{
    static const sherd_world_options none;
    sherd__diag diag = {.rank = -1};
    sherd__launch_plan plan = {
        .options = options ? options : &none, .body = body, .payload = payload};
    sherd_status status;

    if (exit_status)
        *exit_status = 0;
    if (!exit_status || !body)
        status = sherd__fail(&diag, SHERD_EINVAL, "sherd_spawn: %s is NULL",
                             body ? "exit_status" : "body");
    else
        status = spawn(exit_status, &plan, &diag);
    if (status && exit_status && *exit_status == 0)
        *exit_status = 1;
    if (status)
        sherd__tell_why(plan.options->error, &diag);
    return status;
}
