/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training step of the GPT example, at the benchmark size: one rank against several, and where the time goes.
 *
 * Rounds of both are interleaved, because cores of a virtual machine change their places while a benchmark runs: the ratio
 * of a round means something, a time from another minute does not. The split comes from the kernel table of the rank's
 * world: each entry is replaced by one that takes the time (20 ns) and calls the original. What is in no kernel and in no
 * call is the rest: copies, the tape, layouts, the allocator, and the batch. A second table has the library's own times of
 * operators (sherd_op_times): those of GEMM and attention, and what is outside of them.
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
#include "world/world.h"
#include "timing.h"

enum { ROUNDS = 5, WARM = 2 /* steps that a round begins with */ };

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
    [REDUCE] = "(of the moves: adding up)",
};

/* ---- the stopwatch in the kernel table ------------------------------------------------------ */

/* Kernels have no context, so this is static; each rank is a process of its own. */
static struct {
    sherd__kernels plain; /* the table as it was */
    sherd__done (*product)(sherd__engine *engine, const sherd__product *p, void *c, const void *a,
                           const void *b, const void *bias);
    double seconds[PARTS];
    double flops; /* of GEMM */
} watch;

static double timed(part p, double begin)
{
    double now = seconds_now();
    watch.seconds[p] += now - begin;
    return now;
}

static void gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const void *a,
                 int64_t lda, const void *b, int64_t ldb, double beta, void *c, int64_t ldc)
{
    double begin = seconds_now();
    watch.plain.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    watch.flops += 2.0 * (double)m * (double)n * (double)k;
    timed(GEMM, begin);
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

static void reduce(sherd_reduce_op op, void *dst, const void *const *src, int count, int64_t n,
                   double divisor)
{
    double begin = seconds_now();
    watch.plain.reduce(op, dst, src, count, n, divisor);
    timed(REDUCE, begin);
}

static void binary(sherd__binary_kind kind, int ndim, const int64_t *size, void *dst, const void *a,
                   const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    double begin = seconds_now();
    watch.plain.binary(kind, ndim, size, dst, a, a_stride, b, b_stride);
    timed(POINTWISE, begin);
}

static void unary(sherd__unary_kind kind, int64_t n, void *dst, const void *src,
                  const double *parameter)
{
    double begin = seconds_now();
    watch.plain.unary(kind, n, dst, src, parameter);
    timed(kind == SHERD__GELU ? GELU : POINTWISE, begin);
}

static void unary_grad(sherd__unary_kind kind, int64_t n, void *dx, const void *at, const void *dy,
                       const double *parameter)
{
    double begin = seconds_now();
    watch.plain.unary_grad(kind, n, dx, at, dy, parameter);
    timed(kind == SHERD__GELU ? GELU_GRAD : POINTWISE, begin);
}

static void fill(void *dst, int64_t n, double value)
{
    double begin = seconds_now();
    watch.plain.fill(dst, n, value);
    timed(POINTWISE, begin);
}

static void sum(void *dst, const void *src, int64_t outer, int64_t mid, int64_t inner, bool add)
{
    double begin = seconds_now();
    watch.plain.sum(dst, src, outer, mid, inner, add);
    timed(SUMS, begin);
}

static double sum_squares(const void *src, int64_t n)
{
    double begin = seconds_now(), result = watch.plain.sum_squares(src, n);
    timed(SUMS, begin);
    return result;
}

static void layer_norm(int64_t rows, int64_t cols, void *y, void *mean, void *rstd, const void *x,
                       const void *weight, const void *bias, double eps)
{
    double begin = seconds_now();
    watch.plain.layer_norm(rows, cols, y, mean, rstd, x, weight, bias, eps);
    timed(NORM, begin);
}

static void layer_norm_grad(int64_t rows, int64_t cols, void *dx, void *dweight, void *dbias,
                            const void *dy, const void *x, const void *weight, const void *mean,
                            const void *rstd)
{
    double begin = seconds_now();
    watch.plain.layer_norm_grad(rows, cols, dx, dweight, dbias, dy, x, weight, mean, rstd);
    timed(NORM_GRAD, begin);
}

static void embedding(int64_t n, int64_t width, void *y, const void *weight, const int32_t *ids,
                      int64_t first, int64_t entries)
{
    double begin = seconds_now();
    watch.plain.embedding(n, width, y, weight, ids, first, entries);
    timed(EMBEDDING, begin);
}

static void embedding_grad(int64_t n, int64_t width, void *dweight, const void *dy,
                           const int32_t *ids, int64_t first, int64_t entries)
{
    double begin = seconds_now();
    watch.plain.embedding_grad(n, width, dweight, dy, ids, first, entries);
    timed(EMBEDDING, begin);
}

static void dropout(int64_t n, void *dst, const void *src, double p, sherd__key key, int64_t first)
{
    double begin = seconds_now();
    watch.plain.dropout(n, dst, src, p, key, first);
    timed(DROPOUT, begin);
}

static void attention(const sherd__attention_shape *shape, void *out, void *log_sum, const void *q,
                      const void *k, const void *v, void *workspace)
{
    double begin = seconds_now();
    watch.plain.attention(shape, out, log_sum, q, k, v, workspace);
    timed(ATTENTION, begin);
}

static void attention_grad(const sherd__attention_shape *shape, void *dq, void *dk, void *dv,
                           const void *dout, const void *q, const void *k, const void *v,
                           const void *out, const void *log_sum, void *workspace)
{
    double begin = seconds_now();
    watch.plain.attention_grad(shape, dq, dk, dv, dout, q, k, v, out, log_sum, workspace);
    timed(ATTENTION_GRAD, begin);
}

static void cross_entropy(int64_t rows, int64_t cols, void *stats, const void *logits,
                          const int32_t *targets, int64_t first)
{
    double begin = seconds_now();
    watch.plain.cross_entropy(rows, cols, stats, logits, targets, first);
    timed(LOSS, begin);
}

static double cross_entropy_join(int64_t parts, int64_t rows, void *log_sum, const void *stats)
{
    double begin = seconds_now();
    double result = watch.plain.cross_entropy_join(parts, rows, log_sum, stats);
    timed(LOSS, begin);
    return result;
}

static void cross_entropy_grad(int64_t rows, int64_t cols, void *dlogits, const void *logits,
                               const int32_t *targets, int64_t first, const void *log_sum,
                               double scale)
{
    double begin = seconds_now();
    watch.plain.cross_entropy_grad(rows, cols, dlogits, logits, targets, first, log_sum, scale);
    timed(LOSS, begin);
}

static void adamw(int64_t n, void *p, void *m, void *v, const void *grad,
                  const sherd__adamw_step *step)
{
    double begin = seconds_now();
    watch.plain.adamw(n, p, m, v, grad, step);
    timed(ADAMW, begin);
}

/* Let the f32 kernels of a world take their time. The table lies in the world, which is no constant. */
static void install(const sherd_world *world)
{
    sherd__kernel_set *set = (sherd__kernel_set *)(uintptr_t)sherd__world_kernels(world);
    sherd__kernels *table = &set->f32;

    watch.plain = *table;
    watch.product = set->product;
    if (set->product)
        set->product = product;
    table->gemm = gemm;
    table->reduce = reduce;
    table->binary = binary;
    table->unary = unary;
    table->unary_grad = unary_grad;
    table->fill = fill;
    table->sum = sum;
    table->sum_squares = sum_squares;
    table->layer_norm = layer_norm;
    table->layer_norm_grad = layer_norm_grad;
    table->embedding = embedding;
    table->embedding_grad = embedding_grad;
    table->dropout = dropout;
    table->attention = attention;
    table->attention_grad = attention_grad;
    table->cross_entropy = cross_entropy;
    table->cross_entropy_join = cross_entropy_join;
    table->cross_entropy_grad = cross_entropy_grad;
    table->adamw = adamw;
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
    double peak; /* of all ranks at once */
    op_table operators;
    bool good;
} result;

typedef struct job {
    gpt_options options;
    corpus text;
    result *result;
    double *peaks; /* [SHERD_MAX_RANKS], shared */
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
    sherd_status status;
    step_figures one;
    trainer t;

    j->peaks[sherd_world_rank(world)] = sherd_world_info(world).peak;
    status = trainer_create(&t, world, &j->options, &j->text);
    install(world);
    for (int i = 0; !status && i < WARM; i++)
        status = train_step(&t, i, &one);
    start_watch(world);
    for (int i = 0; !status && i < steps; i++) {
        status = train_step(&t, WARM + i, &one);
        seconds[i] = one.seconds;
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
    j->result->good = false;
    if (sherd_spawn(&exit_status, &options, body, j) != SHERD_OK || !j->result->good)
        return false;
    *out = *j->result;
    out->peak = 0;
    for (int r = 0; r < ranks; r++)
        out->peak += j->peaks[r];
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
 * Of one step, forward and backward: six for each weight of a product and token, and attention's four products, of which a
 * causal one needs half.
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
           "%.0f %% of the peak of %d core%s (%.0f)\n",
           name, 1e-9 * gemm, 100 * gemm * ranks / r->peak, 1e-9 * whole, 100 * whole / r->peak,
           ranks, ranks > 1 ? "s" : "", 1e-9 * r->peak);
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
    int middle;

    printf("%-7s %11s %11s %10s %8s %8s   peak of the cores at once\n", "round", "1 rank, ms",
           "ranks, ms", "tokens/s", "ratio", "others");
    for (int i = 0; i < ROUNDS; i++) {
        double begin = seconds_now(), others = work_of_others();
        if (!run(j, 1, &one[i]) || !run(j, ranks, &many[i]))
            return 1;
        others = (work_of_others() - others) / (seconds_now() - begin);
        busiest = others > busiest ? others : busiest;
        ratio[i] = one[i].step / many[i].step;
        printf("%-7d %11.1f %11.1f %10.0f %7.2fx %8.2f   %.0f, %.0f GFLOP/s\n", i + 1,
               1e3 * one[i].step, 1e3 * many[i].step, tokens / many[i].step, ratio[i], others,
               1e-9 * one[i].peak, 1e-9 * many[i].peak);
        fflush(stdout);
    }
    if (busiest > 0.1)
        printf("other programs kept up to %.1f cores busy: these figures mean little\n", busiest);
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
    job j;

    if (!read_options(&j.options, "6", argc, argv, error) ||
        !text_load(&j.text, &j.options, error)) {
        fprintf(stderr, "step: %s\n", error);
        return 2;
    }
    j.result = shared_memory(sizeof(result) + SHERD_MAX_RANKS * sizeof(double));
    if (!j.result)
        return 1;
    j.peaks = (double *)(j.result + 1);
    ranks = j.options.ranks ? (int)j.options.ranks : 2;
    printf("%lld layers, dim %lld, %lld heads, context %lld, batch %lld: %.1f GFLOP a step\n",
           (long long)j.options.layers, (long long)j.options.dim, (long long)j.options.heads,
           (long long)j.options.context, (long long)j.options.batch,
           1e-9 * model_flops(&j.options));
    failed = all_rounds(&j, ranks);
    text_free(&j.text);
    return failed;
}
