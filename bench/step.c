/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training step of the GPT example, at the benchmark size: one rank against several, and where
 * the time goes.
 *
 * Rounds of both are interleaved, because cores of a virtual machine change their places while a
 * benchmark runs: the ratio of a round means something, a time from another minute does not. After
 * each step the ranks do nothing but arithmetic for two milliseconds: "had" is what that reached,
 * of the peak; where it is low the host runs two of the ranks on one core, or somebody else beside
 * them. The split comes from the kernel table of the rank's world: each entry is replaced by one
 * that takes the time (20 ns) and calls the original. What is in no kernel and in no call is the
 * rest: copies, the tape, layouts, the allocator, and the batch. A second table has the library's
 * own times of operators (sherd_op_times): those of GEMM and attention, and what is outside of
 * them.
 *
 * Several ranks are sequence-parallel and keep what they gather, since that is the fastest; with
 * --whole as first word they have all positions between products.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sherd.h>

#include "gpt.h"
#include "op_table.h"
#include "train.h"
#include "vector/measure.h"
#include "world/world.h"
#include "timing.h"

enum { ROUNDS = 5, WARM = 2 /* steps that a round begins with */ };

/* Seconds of nothing but arithmetic after each step, on all cores at once: do we have them? */
static const double PROBE = 0.002;

/* What a kernel counts as. */
typedef enum part {
    GEMM,
    ATTENTION,
    ATTENTION_GRAD,
    GELU,
    GELU_GRAD,
    NORM,
    NORM_GRAD,
    POINTWISE,
    DROPOUT,
    SUMS,
    EMBEDDING,
    LOSS,
    ADAMW,
    CAST,
    REDUCE,
    PARTS
} part;

static const char *const part_name[PARTS] = {
    [GEMM] = "GEMM",
    [ATTENTION] = "attention",
    [ATTENTION_GRAD] = "attention, backward",
    [GELU] = "GELU",
    [GELU_GRAD] = "GELU, backward",
    [NORM] = "layer norm",
    [NORM_GRAD] = "layer norm, backward",
    [POINTWISE] = "add, scale, fill",
    [DROPOUT] = "dropout",
    [SUMS] = "bias gradients, norms of gradients",
    [EMBEDDING] = "embedding, both ways",
    [LOSS] = "cross-entropy, both ways",
    [ADAMW] = "AdamW",
    [CAST] = "casts",
    [REDUCE] = "(of the moves: adding up)",
};

/* ---- the stopwatch in the kernel table ------------------------------------------------------ */

/* Kernels have no context, so this is static; each rank is a process of its own. */
static struct {
    sherd__kernels f32, low; /* the tables as they were */
    sherd__done (*product)(sherd__engine *engine, const sherd__product *p, void *c, const void *a,
                           const void *b, const void *bias);
    const sherd__attention_tiles *tiles;
    double seconds[PARTS];
    double flops; /* of GEMM */
} watch;

static double timed(part p, double begin)
{
    double now = seconds_now();
    watch.seconds[p] += now - begin;
    return now;
}

static sherd__done product(sherd__engine *engine, const sherd__product *p, void *c, const void *a,
                           const void *b, const void *bias)
{
    double begin = seconds_now();
    sherd__done done = watch.product(engine, p, c, a, b, bias);
    if (done == SHERD__DONE)
        watch.flops += 2.0 * (double)p->m * (double)p->n * (double)p->k;
    timed(GEMM, begin);
    return done;
}

static int64_t tiles_bytes(const sherd__attending *shape)
{
    return watch.tiles->bytes(shape);
}

static sherd__done tiles(const sherd__attending *shape, void *out, float *log_sum, const void *q,
                         const void *k, const void *v, void *workspace)
{
    double begin = seconds_now();
    sherd__done done = watch.tiles->attention(shape, out, log_sum, q, k, v, workspace);
    timed(ATTENTION, begin);
    return done;
}

static sherd__done tiles_grad(const sherd__attending *shape, void *dq, void *dk, void *dv,
                              const void *dout, const void *q, const void *k, const void *v,
                              const void *out, const float *log_sum, void *workspace)
{
    double begin = seconds_now();
    sherd__done done =
        watch.tiles->attention_grad(shape, dq, dk, dv, dout, q, k, v, out, log_sum, workspace);
    timed(ATTENTION_GRAD, begin);
    return done;
}

static bool tiles_fit(const sherd__attending *shape)
{
    return watch.tiles->fits(shape);
}

static const sherd__attention_tiles timed_tiles = {tiles_bytes, tiles, tiles_grad, tiles_fit};

#define NAME(x) f32_##x
#define PLAIN   f32
#include "step_watch.inc"

#define NAME(x) low_##x
#define PLAIN   low
#include "step_watch.inc"

/* Let the kernels of a world take their time, those of f32 and of what products are cast to. The
 * tables lie in the world, which is no constant. */
static void install(const sherd_world *world, sherd_dtype low)
{
    sherd__kernel_set *set = (sherd__kernel_set *)(uintptr_t)sherd__world_kernels(world);

    f32_install(&set->f32);
    if (low != SHERD_DTYPE_NONE)
        low_install(low == SHERD_BF16 ? &set->bf16 : &set->f16);
    watch.product = set->product;
    if (set->product)
        set->product = product;
    watch.tiles = set->tiles;
    if (set->tiles)
        set->tiles = &timed_tiles;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* Of rank 0, per step. In memory that the ranks share with this process. */
typedef struct result {
    double step; /* median */
    double mean; /* what the parts add up to */
    double part[PARTS];
    double moves; /* in calls, waiting included, without what reduce does there */
    double flops; /* of GEMM, one rank */
    sherd_info info;
    double peak; /* of all ranks at once, of the dtype of products */
    double had;  /* of their peak, what the cores did between the steps: the host took the rest */
    op_table operators;
    bool good;
} result;

typedef struct job {
    gpt_options options;
    bool whole; /* positions are not split */
    corpus text;
    result *result;
    double *peaks; /* [SHERD_MAX_RANKS], shared */
    double *had;   /* [SHERD_MAX_RANKS], shared: what the core did between the steps, of its peak */
} job;

static void start_watch(sherd_world *world)
{
    memset(watch.seconds, 0, sizeof watch.seconds);
    watch.flops = 0;
    sherd_op_times(world, true);
    sherd_comm_reset(world);
}

static void take_watch(result *r, sherd_world *world, double *seconds, int steps)
{
    r->moves = r->mean = 0;
    for (int i = 0; i < steps; i++)
        r->mean += seconds[i] / steps;
    r->step = median(seconds, steps);
    for (int i = 0; i < sherd_comm_count(world); i++)
        r->moves += 1e-9 * (double)sherd_comm_get(world, i).nanoseconds / steps;
    for (int i = 0; i < PARTS; i++)
        r->part[i] = watch.seconds[i] / steps;
    r->flops = watch.flops / steps;
    r->operators = op_table_take(world, steps);
}

static int body(sherd_world *world, void *payload)
{
    job *j = payload;
    int steps = (int)j->options.steps;
    double *seconds = malloc((size_t)steps * sizeof *seconds);
    double *had = &j->had[sherd_world_rank(world)];
    sherd_status status;
    step_figures one;
    trainer t;

    *had = 0;
    sherd_info info = sherd_world_info(world);
    bool bf16 = train_dtype(&j->options) == SHERD_BF16 && info.bf16_peak > 0;
    j->peaks[sherd_world_rank(world)] = bf16 ? info.bf16_peak : info.peak;
    status = trainer_create(&t, world, &j->options, &j->text);
    install(world, train_dtype(&j->options));
    for (int i = 0; !status && i < WARM; i++)
        status = train_step(&t, i, &one);
    start_watch(world);
    for (int i = 0; !status && i < steps; i++) {
        status = train_step(&t, WARM + i, &one);
        seconds[i] = one.seconds;
        *had += 1e9 * sherd__measure_now(PROBE) / info.peak / steps;
    }
    if (status)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    if (!status && sherd_world_rank(world) == 0) {
        take_watch(j->result, world, seconds, steps);
        j->result->good = true;
    }
    trainer_destroy(&t);
    free(seconds);
    return status != SHERD_OK;
}

/* Train some steps with so many ranks. */
static bool run(job *j, int ranks, result *out)
{
    sherd_world_options options = {.ranks = ranks, .seed = (uint64_t)j->options.seed};
    int exit_status = 1;

    j->options.dp = 1;
    j->options.tp = ranks;
    j->options.sequence_parallel = j->options.keep_gathered = ranks > 1 && !j->whole;
    j->result->good = false;
    if (sherd_spawn(&exit_status, &options, body, j) != SHERD_OK || !j->result->good)
        return false;
    *out = *j->result;
    out->peak = out->had = 0;
    for (int r = 0; r < ranks; r++) {
        out->peak += j->peaks[r];
        out->had += j->had[r] / ranks;
    }
    return exit_status == 0;
}

/* ---- who else is at work -------------------------------------------------------------------- */

/* Seconds of work of all cores since the machine started, less those of ended children of ours. */
static double work_of_others(void)
{
    long long user = 0, nice = 0, system = 0;
    struct rusage ours;
    FILE *file = fopen("/proc/stat", "r");

    if (file) {
        if (fscanf(file, "cpu %lld %lld %lld", &user, &nice, &system) != 3)
            user = nice = system = 0;
        fclose(file);
    }
    getrusage(RUSAGE_CHILDREN, &ours);
    return (double)(user + nice + system) / (double)sysconf(_SC_CLK_TCK) -
           (double)(ours.ru_utime.tv_sec + ours.ru_stime.tv_sec) -
           1e-6 * (double)(ours.ru_utime.tv_usec + ours.ru_stime.tv_usec);
}

/* ---- what comes out ------------------------------------------------------------------------- */

/*
 * Of one step, forward and backward: six for each weight of a product and token, and attention's
 * four products, of which a causal one needs half.
 */
static double model_flops(const gpt_options *o)
{
    double dim = (double)o->dim, layers = (double)o->layers, context = (double)o->context;
    double weights = layers * 12 * dim * dim + dim * 256;
    double tokens = (double)(o->batch * o->context);

    return tokens * (6 * weights + 6 * layers * context * dim);
}

static double rest(const result *r)
{
    double known = r->moves;
    for (int i = 0; i < PARTS; i++)
        known += i == REDUCE ? 0 : r->part[i];
    return r->mean - known;
}

static void print_row(const char *name, double one, double many)
{
    if (one + many > 0)
        printf("  %-36s %9.2f %9.2f %8.2f\n", name, 1e3 * one, 1e3 * many, one / many);
}

static void print_split(const result *one, const result *many, int ranks)
{
    printf("\n%-38s %9s %6d ranks %7s\n", "where a step goes, ms (rank 0)", "1 rank", ranks,
           "ratio");
    for (int i = 0; i < PARTS; i++)
        if (i != REDUCE)
            print_row(part_name[i], one->part[i], many->part[i]);
    print_row("moves, waiting included", one->moves, many->moves);
    print_row(part_name[REDUCE], one->part[REDUCE], many->part[REDUCE]);
    print_row("the rest: copies, tape, layouts", rest(one), rest(many));
    print_row("the whole step (mean)", one->mean, many->mean);
}

static void print_rates(const char *name, const result *r, int ranks, const gpt_options *o)
{
    double gemm = r->flops / r->part[GEMM], whole = model_flops(o) / r->step;

    printf("%-8s GEMM in the step %.0f GFLOP/s a core, %.0f %% of its peak; model %.0f GFLOP/s, "
           "%.0f %% of the peak of %d core%s (%.0f), %.0f %% of what they had\n",
           name, 1e-9 * gemm, 100 * gemm * ranks / r->peak, 1e-9 * whole, 100 * whole / r->peak,
           ranks, ranks > 1 ? "s" : "", 1e-9 * r->peak, 100 * whole / (r->peak * r->had));
}

/* The round whose ratio is the middle one is shown in full. */
static int middle_round(const double *ratio)
{
    double sorted[ROUNDS];
    int best = 0;

    memcpy(sorted, ratio, sizeof sorted);
    double middle = median(sorted, ROUNDS);
    for (int i = 0; i < ROUNDS; i++)
        if (fabs(ratio[i] - middle) < fabs(ratio[best] - middle))
            best = i;
    return best;
}

static int all_rounds(job *j, int ranks)
{
    static result one[ROUNDS], many[ROUNDS];
    double ratio[ROUNDS], tokens = (double)(j->options.batch * j->options.context);
    double busiest = 0; /* cores that others used in a round */
    double least = 1;   /* share of the peak that the cores had */
    int middle;

    printf("%-7s %11s %11s %10s %8s %8s %8s   peak of the cores at once\n", "round", "1 rank, ms",
           "ranks, ms", "tokens/s", "ratio", "others", "had");
    for (int i = 0; i < ROUNDS; i++) {
        double begin = seconds_now(), others = work_of_others();
        if (!run(j, 1, &one[i]) || !run(j, ranks, &many[i]))
            return 1;
        others = (work_of_others() - others) / (seconds_now() - begin);
        busiest = others > busiest ? others : busiest;
        ratio[i] = one[i].step / many[i].step;
        least = many[i].had < least ? many[i].had : least;
        printf("%-7d %11.1f %11.1f %10.0f %7.2fx %8.2f %6.0f %%   %.0f, %.0f GFLOP/s\n", i + 1,
               1e3 * one[i].step, 1e3 * many[i].step, tokens / many[i].step, ratio[i], others,
               100 * many[i].had, 1e-9 * one[i].peak, 1e-9 * many[i].peak);
        fflush(stdout);
    }
    if (busiest > 0.1)
        printf("other programs kept up to %.1f cores busy: these figures mean little\n", busiest);
    if (least < 0.95)
        printf("between steps the cores had down to %.0f %% of their peak: somebody had the rest, "
               "and as much is missing in these figures\n",
               100 * least);
    middle = middle_round(ratio);
    printf("\n%d ranks train %.2f times as fast as 1 (median of %d rounds)\n", ranks, ratio[middle],
           ROUNDS);
    print_split(&one[middle], &many[middle], ranks);
    op_table_print(&one[middle].operators, one[middle].mean, &many[middle].operators,
                   many[middle].mean, ranks);
    printf("\n");
    print_rates("1 rank", &one[middle], 1, &j->options);
    print_rates("ranks", &many[middle], ranks, &j->options);
    return 0;
}

int main(int argc, char **argv)
{
    char error[LINE_BYTES];
    int ranks, failed;
    job j = {.whole = argc > 1 && strcmp(argv[1], "--whole") == 0};

    argc -= j.whole;
    argv += j.whole;
    if (!read_options(&j.options, "6", argc, argv, error) ||
        !text_load(&j.text, &j.options, error)) {
        fprintf(stderr, "step: %s\n", error);
        return 2;
    }
    j.result = shared_memory(sizeof(result) + 2 * SHERD_MAX_RANKS * sizeof(double));
    if (!j.result)
        return 1;
    j.peaks = (double *)(j.result + 1);
    j.had = j.peaks + SHERD_MAX_RANKS;
    ranks = j.options.ranks ? (int)j.options.ranks : 2;
    printf("%s, %lld layers, dim %lld, %lld heads, context %lld, batch %lld, %s: %.1f GFLOP a "
           "step\n",
           j.options.dtype, (long long)j.options.layers, (long long)j.options.dim,
           (long long)j.options.heads, (long long)j.options.context, (long long)j.options.batch,
           j.whole ? "positions whole" : "ranks sequence-parallel", 1e-9 * model_flops(&j.options));
    failed = all_rounds(&j, ranks);
    text_free(&j.text);
    return failed;
}
