/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What input_reshard and checkpointing save and cost: blocks of the GPT example, forward and
 * backward, on 1, 2 and 4 tensor-parallel ranks, each as they are, with input_reshard of the
 * positions, with checkpoints of the blocks, and with both. Bytes are of the fullest rank: what the
 * tape holds when forward is done, and the most that was there beyond parameters and gradients.
 * Rounds of all ways are interleaved; times are the middle ones. Loss and gradients must be the
 * same bits in all ways of one degree, and the loss the same to 1e-5 on all degrees.
 *
 * Usage: input_reshard [the example's options], for instance --sequence-parallel, --layers 6, -n 2
 * (this degree only).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sherd.h>

#include "gpt.h"
#include "model.h"
#include "timing.h"
#include "train.h"

enum { ROUNDS = 5, WARM = 2, WAYS = 4, MOST_PARAMETERS = 4096 };
enum { RESHARD = 1, CHECKPOINT = 2 }; /* bits of a way */

static const char *const way_name[WAYS] = {"plain", "input_reshard", "checkpoint",
                                           "checkpoint, input_reshard"};

/* Of one way on one degree; each rank writes its own place. */
typedef struct result {
    double seconds[ROUNDS]; /* of rank 0: median of the round */
    int64_t saved_bytes[SHERD_MAX_RANKS], peak_bytes[SHERD_MAX_RANKS];
    uint64_t bits[SHERD_MAX_RANKS]; /* a hash of the rank's pieces of all gradients */
    double loss;
    bool good;
} result;

typedef struct job {
    gpt_options options;
    int way, round;
    result *result;
} job;

/* One rank's model, input and what the output is weighed with. */
typedef struct scene {
    sherd_world *world;
    sherd_module *model;
    sherd_tensor *x, *weights;
} scene;

/* ---- a rank --------------------------------------------------------------------------------- */

static sherd_status apply_way(sherd_module *blocks, const sherd_mesh *mesh, int way)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < sherd_module_children(blocks); i++) {
        sherd_module *one = sherd_module_child(blocks, i);
        sherd_module_checkpoint(one, way & CHECKPOINT);
        if (way & RESHARD)
            status = sherd_input_reshard(one, mesh, "tp", 1);
    }
    return status;
}

/* The same on all ranks and degrees. */
static sherd_tensor *draw(const scene *s, const gpt_options *o, const sherd_mesh *mesh,
                          const char *name)
{
    const int64_t shape[] = {o->batch, o->context, o->dim};
    sherd_generator generator = sherd_generator_named(name);
    sherd_tensor *t =
        sherd_random_later(s->world, SHERD_F32, shape, 3, sherd_normal(0, 1), &generator);

    return sherd_distribute_as(t, mesh, "RR", -1);
}

static sherd_status set_up(scene *s, sherd_world *world, const job *j)
{
    static const char *const names[] = {"dp", "tp"};
    const int64_t extents[] = {1, j->options.tp};
    const sherd_mesh *mesh;
    sherd_status status = sherd_mesh_create(&mesh, world, 2, extents, names, NULL);

    *s = (scene){.world = world};
    if (!status)
        status = agree(world, model_create(&s->model, world, &j->options));
    if (!status)
        status = model_split(s->model, mesh, &j->options);
    if (!status)
        status = apply_way(sherd_module_find(s->model, "blocks"), mesh, j->way);
    if (!status) {
        s->x = sherd_require_grad(draw(s, &j->options, mesh, "x"), true);
        s->weights = draw(s, &j->options, mesh, "weights");
        status = sherd_world_check(world);
    }
    return status;
}

/* All blocks. They are given the result of an operator, as inside of a model, and no leaf, which
 * costs nothing to save. */
static sherd_tensor *forward(const scene *s)
{
    sherd_module *blocks = sherd_module_find(s->model, "blocks");
    sherd_args now = {.count = 1, .value = {sherd_tensor_retain(sherd_scale(s->x, 1.5))}}, next;

    for (int i = 0; i < sherd_module_children(blocks); i++) {
        sherd_scope_begin(s->world);
        sherd_module_run(sherd_module_child(blocks, i), &now, &next);
        for (int k = 0; k < next.count; k++)
            sherd_tensor_retain(next.value[k]);
        sherd_scope_end(s->world);
        for (int k = 0; k < now.count; k++)
            sherd_tensor_release(now.value[k]);
        now = next;
    }
    sherd_tensor *y = sherd_tensor_retain(sherd_add(now.value[0], now.value[1]));
    sherd_tensor_release(now.value[0]);
    sherd_tensor_release(now.value[1]);
    return y;
}

/* One step: the loss is the sum of all elements times their weights, and saves nothing itself.
 * Gradients are added up, so from the second step on they are there before it. */
static sherd_status step(const scene *s, double *loss, int64_t *saved)
{
    sherd_scope_begin(s->world);
    sherd_tensor *y = forward(s), *weights = s->weights;
    *saved = sherd_saved_bytes(s->world);
    sherd_backward_with(&y, &weights, 1, NULL);
    sherd_set_recording(s->world, false);
    *loss = sherd_item(sherd_sum(sherd_mul(y, weights)));
    sherd_set_recording(s->world, true);
    sherd_tensor_release(y);
    sherd_scope_end(s->world);
    return sherd_world_check(s->world);
}

static uint64_t hash_of(uint64_t hash, sherd_tensor *t)
{
    const unsigned char *bytes = t ? sherd_tensor_read(t) : NULL;
    size_t n = bytes ? sherd_dtype_bytes(sherd_tensor_dtype(t)) : 0;

    for (int d = 0; t && d < sherd_tensor_ndim(t); d++)
        n *= (size_t)sherd_tensor_size(t, d);
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

/* Settles what was pending, so it comes last. */
static uint64_t hash_gradients(const scene *s)
{
    sherd_named_parameter all[MOST_PARAMETERS];
    int count = sherd_module_all_parameters(s->model, all, MOST_PARAMETERS);
    uint64_t hash = hash_of(14695981039346656037u, sherd_grad(s->x));

    for (int i = 0; i < count && i < MOST_PARAMETERS; i++)
        hash = hash_of(hash, sherd_grad(all[i].tensor));
    return hash;
}

/* The peak is that of the last step. Every way draws the same masks, and so adds up the same
 * gradients. */
static sherd_status measure(const scene *s, const job *j)
{
    result *r = j->result;
    int steps = (int)j->options.steps, rank = sherd_world_rank(s->world);
    double *seconds_of = malloc((size_t)steps * sizeof *seconds_of), loss = 0;
    sherd_status status = agree(s->world, seconds_of ? SHERD_OK : SHERD_ENOMEM);
    int64_t saved = 0;

    for (int i = 0; !status && i < WARM + steps; i++) {
        int64_t before = sherd_world_memory(s->world).live_bytes;
        sherd_world_memory_reset(s->world);
        double begin = seconds();
        status = step(s, &loss, &saved);
        if (i >= WARM)
            seconds_of[i - WARM] = seconds() - begin;
        r->peak_bytes[rank] = sherd_world_memory(s->world).peak_bytes - before;
    }
    r->saved_bytes[rank] = saved;
    if (!status) {
        r->bits[rank] = hash_gradients(s);
        status = sherd_world_check(s->world);
    }
    if (!status && rank == 0) {
        r->seconds[j->round] = median(seconds_of, steps);
        r->loss = loss;
        r->good = true;
    }
    free(seconds_of);
    return status;
}

static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    sherd_status status;
    scene s;

    sherd_scope_begin(world);
    status = set_up(&s, world, j);
    if (!status)
        status = measure(&s, j);
    if (status && sherd_world_rank(world) == 0)
        fprintf(stderr, "input_reshard: %s\n", sherd_world_error(world));
    sherd_scope_end(world);
    sherd_module_destroy(s.model);
    return status != SHERD_OK;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static bool run(const job *all, int way, int round)
{
    job one = *all;
    const sherd_world_options options = {.ranks = (int)one.options.tp,
                                         .seed = (uint64_t)one.options.seed};
    int exit_status = 1;

    one.way = way;
    one.round = round;
    one.result = &all->result[way];
    one.result->good = false;
    return sherd_spawn(&exit_status, &options, body, &one) == SHERD_OK && one.result->good &&
           exit_status == 0;
}

static double most(const int64_t *bytes)
{
    int64_t top = 0;

    for (int r = 0; r < SHERD_MAX_RANKS; r++)
        top = bytes[r] > top ? bytes[r] : top;
    return (double)top / (1 << 20);
}

/* Whether all ways gave what the plain one did. */
static bool is_equal(const result *r, int degree)
{
    for (int w = 1; w < WAYS; w++)
        if (r[w].loss != r[0].loss || memcmp(r[w].bits, r[0].bits, sizeof r[w].bits) != 0) {
            printf("tp=%d, %s: loss or gradients are not those of the plain way\n", degree,
                   way_name[w]);
            return false;
        }
    return true;
}

static void print_degree(const result *r, int degree)
{
    for (int w = 0; w < WAYS; w++) {
        double ratio[ROUNDS], times[ROUNDS];
        for (int i = 0; i < ROUNDS; i++) {
            times[i] = r[w].seconds[i];
            ratio[i] = r[w].seconds[i] / r[0].seconds[i];
        }
        printf("%-4d %-28s %10.2f %10.2f %11.1f %9.2fx\n", degree, way_name[w],
               most(r[w].saved_bytes), most(r[w].peak_bytes), 1e3 * median(times, ROUNDS),
               median(ratio, ROUNDS));
    }
    if (degree > sysconf(_SC_NPROCESSORS_ONLN))
        printf("     (more ranks than cores: these times mean little)\n");
    fflush(stdout);
}

/* All rounds of one degree; the loss through *loss, NaN before the first. */
static bool run_degree(job *j, int degree, double *loss)
{
    j->options.dp = 1;
    j->options.tp = degree;
    memset(j->result, 0, WAYS * sizeof *j->result);
    for (int i = 0; i < ROUNDS; i++)
        for (int w = 0; w < WAYS; w++)
            if (!run(j, w, i))
                return false;
    print_degree(j->result, degree);
    if (!is_equal(j->result, degree))
        return false;
    if (fabs(j->result[0].loss - *loss) > 1e-5 * fmax(1, fabs(*loss))) {
        printf("tp=%d: the loss is %.9g, not %.9g\n", degree, j->result[0].loss, *loss);
        return false;
    }
    *loss = j->result[0].loss;
    return true;
}

int main(int argc, char **argv)
{
    int degree[] = {1, 2, 4}, degrees = 3;
    char error[LINE_BYTES];
    double loss = NAN;
    job j;

    if (!read_options(&j.options, "1", argc, argv, error)) {
        fprintf(stderr, "input_reshard: %s\n", error);
        return 2;
    }
    const gpt_options *o = &j.options;
    if (o->ranks || o->tp) {
        degree[0] = (int)(o->ranks ? o->ranks : o->tp);
        degrees = 1;
    }
    j.result = shared_memory(WAYS * sizeof *j.result);
    if (!j.result)
        return 1;
    printf("%lld block%s, dim %lld, %lld heads, context %lld, batch %lld, dropout %g%s\n",
           (long long)o->layers, o->layers > 1 ? "s" : "", (long long)o->dim, (long long)o->heads,
           (long long)o->context, (long long)o->batch, o->dropout,
           o->sequence_parallel ? ", sequence parallel" : "");
    printf("%-4s %-28s %10s %10s %11s %10s\n", "tp", "MiB of the fullest rank", "saved", "peak",
           "ms a step", "to plain");
    for (int i = 0; i < degrees; i++)
        if (!run_degree(&j, degree[i], &loss))
            return 1;
    printf("loss and gradients: the same bits in all ways\n");
    return 0;
}
