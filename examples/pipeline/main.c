/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A transformer in stages: layers over "pp", batches over "dp", features over "tp". It learns
 * sequences in which each symbol s is followed by (5 s + c) mod 61, with c drawn from 0 to 3: so no
 * loss is below ln 4 = 1.386 for long. Losses are the same on every mesh, but for rounding.
 *
 *     pipeline [MESH [STAGES [MICROBATCHES [STEPS [LAYERS [DIM [BATCH [CONTEXT [SCHEDULE]]]]]]]]]
 *              pp=2,dp=1,tp=1   2      4        100     4      64    16     32     1f1b
 *
 * SCHEDULE is 1f1b, gpipe, zero (bubbles) or zero_v, which goes through two stages at each place,
 * there and back: the losses have the same bits.
 *
 * This program starts the ranks that MESH has, or joins those that a launcher has started.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

enum { MAX_PLACES = 64, MAX_STAGES = 256 };

/* What a rank has. */
typedef struct trainer {
    const task *t;
    sherd_world *world;
    const sherd_mesh *all, *place[MAX_PLACES]; /* a place: the ranks of one pp */
    int64_t places, here;
    sherd_module *model[MAX_PLACES]; /* the stages of each place; only this one's take memory */
    sherd_pipeline *pipeline;
    sherd_optimizer *optimizer;
    int64_t step;
    const sherd_layout *rows; /* ids of a microbatch, on this rank's place */
    int32_t *ids;             /* [rows, context] */
} trainer;

/* ---- sequences ------------------------------------------------------------------------------ */

static int64_t rows_of(const task *t)
{
    return t->batch / t->microbatches;
}

/* A number of its own for each symbol of each sequence. */
static uint64_t mix(uint64_t sequence, int64_t position)
{
    uint64_t x = (sequence * 1000003 + (uint64_t)position + 1) * 0x9E3779B97F4A7C15u;

    x = (x ^ x >> 31) * 0xBF58476D1CE4E5B9u;
    return x >> 32;
}

/* Symbols from `first` on of the sequences of a microbatch, over "dp". */
static sherd_tensor *sequences(trainer *r, int64_t microbatch, int64_t first)
{
    const task *t = r->t;
    int64_t rows = rows_of(t), shape[] = {rows, t->context};

    for (int64_t i = 0; i < rows; i++) {
        uint64_t number = (uint64_t)(r->step * t->batch + microbatch * rows + i);
        int64_t symbol = (int64_t)(mix(number, -1) % SYMBOLS);
        for (int64_t p = 0; p < first + t->context; p++) {
            if (p >= first)
                r->ids[i * t->context + p - first] = (int32_t)symbol;
            symbol = (5 * symbol + (int64_t)(mix(number, p) % 4)) % SYMBOLS;
        }
    }
    return sherd_distribute(
        sherd_mark_equal(sherd_from_data(r->world, SHERD_I32, shape, 2, r->ids)), r->rows, -1);
}

/* Only the first stage's ranks make inputs, only the last one's make targets. */
static void feed(void *payload, int number, int64_t microbatch, sherd_args *in)
{
    if (number > 0)
        return;
    in->value[0] = sequences(payload, microbatch, 0);
    in->count = 1;
}

static sherd_tensor *loss_of(void *payload, int64_t microbatch, const sherd_args *out)
{
    trainer *r = payload;
    sherd_tensor *loss = sherd_cross_entropy(out->value[0], sequences(r, microbatch, 1));

    return sherd_scale(loss, 1.0 / (double)r->t->microbatches);
}

/* ---- a rank --------------------------------------------------------------------------------- */

/* The mesh of each place, and the stages on it. */
static sherd_status make_places(trainer *r)
{
    sherd_status status = sherd_mesh_parse(&r->all, r->world, r->t->mesh);

    r->places = status ? 0 : sherd_mesh_extent(r->all, 0);
    for (int64_t i = 0; i < r->places && !status; i++) {
        status = sherd_mesh_select(&r->place[i], r->all, "pp", i);
        if (!status && sherd_mesh_coordinate(r->place[i], sherd_world_rank(r->world), NULL))
            r->here = i;
        if (!status)
            status = model_create(&r->model[i], r->world, r->t, i, r->places);
        if (!status)
            status = model_split(r->model[i], r->place[i], r->t);
    }
    return status;
}

static sherd_status make_pipeline(trainer *r)
{
    sherd_stage stages[MAX_STAGES];

    for (int64_t i = 0; i < r->t->stages; i++) {
        int64_t place = place_of_stage(r->t, i, r->places);
        stages[i] =
            (sherd_stage){.mesh = r->place[place], .module = model_stage(r->model[place], i)};
    }
    return sherd_pipeline_create(&r->pipeline, r->world, stages, (int)r->t->stages,
                                 (sherd_pipeline_schedule)r->t->schedule);
}

static sherd_status make(trainer *r)
{
    const sherd_placement over_dp[] = {sherd_shard(0), sherd_replicate()};
    int64_t shape[] = {rows_of(r->t), r->t->context};
    sherd_status status = make_places(r);

    if (!status)
        status = make_pipeline(r);
    if (!status)
        status = sherd_adamw_create(&r->optimizer, r->model[r->here], NULL);
    if (!status)
        status = sherd_layout_create(&r->rows, r->place[r->here], 2, shape, over_dp, NULL);
    r->ids = malloc((size_t)(shape[0] * shape[1]) * sizeof *r->ids);
    return status ? status : r->ids ? SHERD_OK : SHERD_ENOMEM;
}

static void destroy(trainer *r)
{
    sherd_optimizer_destroy(r->optimizer);
    sherd_pipeline_destroy(r->pipeline);
    for (int64_t i = 0; i < r->places; i++)
        sherd_module_destroy(r->model[i]);
    free(r->ids);
}

/* Forward and backward of all stages, and the update of each; gradients are clipped by one norm. */
static sherd_status train(trainer *r, double *loss, double *norm)
{
    const sherd_microbatches work = {
        .count = r->t->microbatches, .feed = feed, .loss = loss_of, .payload = r};
    const sherd_optimizers optimizers = {r->all, &r->optimizer, 1};

    *loss = sherd_pipeline_run(r->pipeline, &work);
    *norm = sherd_optimizers_grad_norm(&optimizers);
    sherd_optimizer_step(r->optimizer, 3e-3, *norm > 1 ? 1 / *norm : 1);
    sherd_optimizer_clear(r->optimizer);
    return sherd_world_check(r->world);
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The ranks of "pp=A,dp=B,tp=C"; 0: it is something else. */
static int64_t ranks_of(const char *mesh, int64_t *places)
{
    int dp, tp, pp, end = 0;

    if (sscanf(mesh, "pp=%d,dp=%d,tp=%d%n", &pp, &dp, &tp, &end) != 3 || mesh[end] || pp < 1 ||
        dp < 1 || tp < 1 || pp > MAX_PLACES || (int64_t)dp * tp > INT_MAX / pp)
        return 0;
    *places = pp;
    return (int64_t)pp * dp * tp;
}

static int body(sherd_world *world, void *payload)
{
    trainer r = {.t = payload, .world = world};
    bool tells = sherd_world_rank(world) == 0;
    double loss, norm, start = 0;
    int64_t places;

    if (ranks_of(r.t->mesh, &places) != sherd_world_ranks(world)) { /* others have started them */
        if (tells || sherd_world_is_dry(world))
            fprintf(stderr, "pipeline: MESH %s has %lld ranks, but there are %d\n", r.t->mesh,
                    (long long)ranks_of(r.t->mesh, &places), sherd_world_ranks(world));
        return 2;
    }
    sherd_status status = make(&r);
    for (; r.step < r.t->steps && !status; r.step++) {
        if (r.step == 2) /* what comes first only once is over */
            start = seconds_now();
        status = train(&r, &loss, &norm);
        if (tells && !status && (r.step % 10 == 0 || r.step == r.t->steps - 1))
            printf("step %lld  loss %.6f  norm %.6f\n", (long long)r.step, loss, norm);
    }
    if (tells && !status && r.step > 2)
        printf("%.3f ms a step\n", 1e3 * (seconds_now() - start) / (double)(r.step - 2));
    if (tells && status)
        fprintf(stderr, "pipeline: %s\n", sherd_world_error(world));
    destroy(&r);
    return status ? 1 : 0;
}

/* ---- the command line ----------------------------------------------------------------------- */

/* The number of a schedule; -1: there is none of this name. */
static int schedule_of(const char *name)
{
    static const char *const names[] = {[SHERD_PIPELINE_1F1B] = "1f1b",
                                        [SHERD_PIPELINE_GPIPE] = "gpipe",
                                        [SHERD_PIPELINE_ZERO_BUBBLE] = "zero",
                                        [SHERD_PIPELINE_ZERO_BUBBLE_V] = "zero_v"};

    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0)
            return i;
    return -1;
}

static const char *fault_of(const task *t, int64_t ranks, int64_t places)
{
    return ranks < 1 ? "MESH must be like pp=2,dp=1,tp=1"
           : t->stages < places || t->stages > MAX_STAGES
               ? "STAGES must be from the number of places, pp, to 256"
           : t->layers < t->stages || t->layers > 1000 ? "LAYERS must be from STAGES to 1000"
           : t->microbatches < 1 || t->batch < 1 || t->batch % t->microbatches
               ? "MICROBATCHES must divide BATCH"
           : t->dim < 32 || t->dim % 32 ? "DIM must be a multiple of 32"
           : t->steps < 1 || t->context < 1 || t->context > 1 << 20 || t->batch > 1 << 20
               ? "STEPS, BATCH and CONTEXT must be from 1 to a million"
           : t->schedule < 0 ? "SCHEDULE must be 1f1b, gpipe, zero or zero_v"
           : t->schedule == SHERD_PIPELINE_ZERO_BUBBLE_V && t->stages != 2 * places
               ? "STAGES must be twice the number of places, pp, with zero_v"
               : NULL;
}

int main(int argc, char **argv)
{
    task t = {"pp=2,dp=1,tp=1", 2, 4, 100, 4, 64, 16, 32, 0};
    int64_t *const number[] = {&t.stages, &t.microbatches, &t.steps,  &t.layers,
                               &t.dim,    &t.batch,        &t.context};
    int64_t places = 0;
    int exit_status;

    if (argc > 1)
        t.mesh = argv[1];
    for (int i = 2; i < argc && i < 9; i++)
        *number[i - 2] = atoll(argv[i]);
    t.schedule = argc > 9 ? schedule_of(argv[9]) : SHERD_PIPELINE_1F1B;
    int64_t ranks = ranks_of(t.mesh, &places);
    const char *fault = fault_of(&t, ranks, places);
    if (fault) {
        fprintf(stderr,
                "pipeline: %s: pipeline [MESH [STAGES [MICROBATCHES [STEPS [LAYERS [DIM [BATCH "
                "[CONTEXT [SCHEDULE]]]]]]]]]\n",
                fault);
        return 2;
    }
    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)ranks}, body, &t)
               ? 1
               : exit_status;
}
