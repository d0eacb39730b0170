/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What sharded parameters cost and save: the step of the GPT example with plain data parallelism,
 * with sharded parameters, and with those but nothing begun ahead. Rounds of all three are
 * interleaved; the middle one of each is printed, with the bytes of the fullest rank: of parameters
 * and optimizer, of gradients, and at most. Losses must be those of plain data parallelism to 1e-5.
 * Usage: shard [the example's options], for instance -n 2 --mesh dp=2.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>

#include "gpt.h"
#include "model.h"
#include "timing.h"
#include "train.h"

enum { ROUNDS = 5, WARM = 2, WAYS = 3 };

static const char *const way_name[WAYS] = {"plain data parallel", "sharded parameters",
                                           "sharded, nothing ahead"};

/* Of rank 0 (time) or the fullest rank (bytes); in memory that the ranks share with this
 * process. */
typedef struct result {
    double step; /* median */
    int64_t rest_bytes[SHERD_MAX_RANKS], grad_bytes[SHERD_MAX_RANKS], peak_bytes[SHERD_MAX_RANKS];
    double loss;     /* of the last step */
    double received; /* bytes a step, rank 0 */
    bool good;
} result;

typedef struct job {
    gpt_options options;
    corpus text;
    int way;
    result *result;
} job;

/* The model is sharded here and not by the example's option, for the sake of the third way. */
static sherd_status shard(trainer *t, int way)
{
    const sherd_shard_options options = {.no_prefetch = way == 2};
    const sherd_adamw_options adamw = {.beta2 = 0.99, .weight_decay = 0.1};
    sherd_status status;

    if (way == 0)
        return SHERD_OK;
    sherd_optimizer_destroy(t->optimizer);
    t->optimizer = NULL;
    status = sherd_fully_shard(t->model, t->mesh, "dp", &options);
    return status ? status : agree(t->world, sherd_adamw_create(&t->optimizer, t->model, &adamw));
}

/* What gradients take between backward and the update. */
static int64_t bytes_of_gradients(trainer *t, int step)
{
    int64_t before = sherd_world_memory(t->world).live_bytes, bytes;
    step_figures unused;

    train_gradients(t, step, &unused);
    bytes = sherd_world_memory(t->world).live_bytes - before;
    sherd_optimizer_clear(t->optimizer);
    return bytes;
}

static int body(sherd_world *world, void *payload)
{
    job *j = payload;
    result *r = j->result;
    int steps = (int)j->options.steps, rank = sherd_world_rank(world);
    double *seconds = malloc((size_t)steps * sizeof *seconds);
    sherd_status status;
    step_figures one;
    trainer t;

    status = trainer_create(&t, world, &j->options, &j->text);
    if (!status)
        status = shard(&t, j->way);
    for (int i = 0; !status && i < WARM; i++)
        status = train_step(&t, i, &one);
    r->rest_bytes[rank] = sherd_world_memory(world).live_bytes;
    sherd_world_memory_reset(world);
    sherd_comm_reset(world);
    for (int i = 0; !status && i < steps; i++) {
        status = train_step(&t, WARM + i, &one);
        seconds[i] = one.seconds;
    }
    if (status && rank == 0)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    r->peak_bytes[rank] = sherd_world_memory(world).peak_bytes;
    if (!status && rank == 0) {
        r->received = 0;
        for (int i = 0; i < sherd_comm_count(world); i++)
            r->received += (double)sherd_comm_get(world, i).bytes_received / steps;
        r->step = median(seconds, steps);
        r->loss = one.loss;
        r->good = true;
    }
    if (!status)
        r->grad_bytes[rank] = bytes_of_gradients(&t, WARM + steps);
    trainer_destroy(&t);
    free(seconds);
    return status != SHERD_OK;
}

static bool run(job *j, int way, double *step)
{
    sherd_world_options options = {.ranks = (int)(j->options.dp * j->options.tp),
                                   .seed = (uint64_t)j->options.seed};
    int exit_status = 1;

    j->way = way;
    j->result[way].good = false;
    job one = *j;
    one.result = &j->result[way];
    if (sherd_spawn(&exit_status, &options, body, &one) != SHERD_OK || !one.result->good)
        return false;
    *step = one.result->step;
    return exit_status == 0;
}

static double most(const int64_t *bytes)
{
    int64_t top = 0;

    for (int r = 0; r < SHERD_MAX_RANKS; r++)
        top = bytes[r] > top ? bytes[r] : top;
    return (double)top / (1 << 20);
}

static bool losses_differ(const result *r)
{
    for (int w = 1; w < WAYS; w++)
        if (!(fabs(r[w].loss - r[0].loss) <= 1e-5 * r[0].loss)) {
            printf("%s: the loss differs\n", way_name[w]);
            return true;
        }
    return false;
}

static int all_rounds(job *j)
{
    double step[WAYS][ROUNDS], ratio[WAYS][ROUNDS];

    for (int i = 0; i < ROUNDS; i++)
        for (int w = 0; w < WAYS; w++) {
            if (!run(j, w, &step[w][i]))
                return 1;
            ratio[w][i] = step[w][i] / step[0][i];
        }
    printf("%-24s %9s %9s %9s %10s %9s %12s %12s\n", "MiB of the fullest rank", "ms a step",
           "to plain", "at rest", "gradients", "peak", "MiB received", "last loss");
    for (int w = 0; w < WAYS; w++)
        printf("%-24s %9.1f %8.2fx %9.2f %10.2f %9.2f %12.2f %12.7f\n", way_name[w],
               1e3 * median(step[w], ROUNDS), median(ratio[w], ROUNDS),
               most(j->result[w].rest_bytes), most(j->result[w].grad_bytes),
               most(j->result[w].peak_bytes), j->result[w].received / (1 << 20), j->result[w].loss);
    return losses_differ(j->result);
}

int main(int argc, char **argv)
{
    char error[LINE_BYTES];
    int failed;
    job j;

    if (!read_options(&j.options, "6", argc, argv, error) ||
        !text_load(&j.text, &j.options, error)) {
        fprintf(stderr, "shard: %s\n", error);
        return 2;
    }
    if (j.options.dp == 0) {
        j.options.dp = j.options.ranks ? j.options.ranks : 2;
        j.options.tp = 1;
    }
    j.result = shared_memory(WAYS * sizeof(result));
    if (!j.result)
        return 1;
    printf("%lld layers, dim %lld, context %lld, batch %lld, mesh dp=%lld,tp=%lld\n",
           (long long)j.options.layers, (long long)j.options.dim, (long long)j.options.context,
           (long long)j.options.batch, (long long)j.options.dp, (long long)j.options.tp);
    failed = all_rounds(&j);
    text_free(&j.text);
    return failed;
}
