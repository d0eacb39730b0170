/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by shape: sherd's own (the table's `product`, whether or not it says that it
 * fits), by oneDNN where that is there, and what the core could do. It was measured with this which
 * shapes go where. Operands are taken out of more memory than caches hold, as in a training step;
 * the ways take turns; the median counts, and the least tells what a quiet machine does. Results
 * are compared with f64 at some elements. While it measures, other processes do the same on the
 * other cores.
 *
 *   products [--rounds N] [--cores N] [--type f32|bf16|f16] [--shape M,N,K[,ta][,tb][,bias][,adds]]
 */
#include "kernels/cast.h"
#include "kernels/engine.h"
#include "base/num.h"
#include "vector/choose.h"
#include "vector/measure.h"

#include <math.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "command_line.h"
#include "timing.h"

enum { ROOM = 96 << 20, OWN = 0, OTHER, WAYS, LOOKED_AT = 16, MOST_CORES = 64, MOST_ROUNDS = 1000 };

typedef struct bench {
    sherd__kernel_set set;
    sherd__engine *engine;
    char *room; /* [ROOM], of numbers between -1 and 1 */
    size_t at;
    void *workspace;
} bench;

/* Of the GPT that bench/step measures, on one rank and on two; and some larger and smaller. */
static const sherd__product shapes[] = {
    {.tb = true, .m = 2048, .n = 768, .k = 256, .bias = true},
    {.tb = true, .m = 2048, .n = 384, .k = 256, .bias = true},
    {.tb = true, .m = 2048, .n = 256, .k = 256, .bias = true},
    {.tb = true, .m = 2048, .n = 256, .k = 128, .bias = true},
    {.tb = true, .m = 2048, .n = 1024, .k = 256, .bias = true},
    {.tb = true, .m = 2048, .n = 512, .k = 256, .bias = true},
    {.tb = true, .m = 2048, .n = 256, .k = 1024, .bias = true},
    {.tb = true, .m = 2048, .n = 256, .k = 512, .bias = true},
    {.m = 2048, .n = 256, .k = 768},
    {.m = 2048, .n = 256, .k = 384},
    {.m = 2048, .n = 1024, .k = 256},
    {.m = 2048, .n = 512, .k = 256},
    {.m = 2048, .n = 256, .k = 1024, .adds = true},
    {.m = 2048, .n = 256, .k = 512},
    {.m = 2048, .n = 128, .k = 256},
    {.ta = true, .m = 768, .n = 256, .k = 2048},
    {.ta = true, .m = 384, .n = 256, .k = 2048},
    {.ta = true, .m = 256, .n = 256, .k = 2048},
    {.ta = true, .m = 256, .n = 128, .k = 2048},
    {.ta = true, .m = 1024, .n = 256, .k = 2048},
    {.ta = true, .m = 512, .n = 256, .k = 2048, .adds = true},
    {.ta = true, .m = 256, .n = 512, .k = 2048},
    {.ta = true, .m = 256, .n = 1024, .k = 2048},
    {.tb = true, .m = 64, .n = 64, .k = 64},
    {.tb = true, .m = 192, .n = 192, .k = 192},
    {.m = 512, .n = 512, .k = 512},
    {.tb = true, .m = 1024, .n = 1024, .k = 1024},
    {.m = 1024, .n = 4096, .k = 1024},
    {.tb = true, .m = 1024, .n = 1024, .k = 4096},
    {.ta = true, .m = 1024, .n = 1024, .k = 1024},
    {.ta = true, .m = 2048, .n = 2048, .k = 2048},
    {.tb = true, .m = 2048, .n = 32000, .k = 512},
    {.tb = true, .m = 1, .n = 4096, .k = 1024},
    {.tb = true, .m = 8, .n = 4096, .k = 1024},
    {.tb = true, .m = 64, .n = 4096, .k = 1024},
};

/* The next so many elements; around again where the room ends. */
static void *take(bench *b, int64_t elements, sherd_dtype dtype)
{
    size_t bytes = ((size_t)elements * sherd_dtype_bytes(dtype) + 4095) / 4096 * 4096 + 192;

    if (bytes > ROOM)
        return NULL;
    b->at = b->at + bytes > ROOM ? 0 : b->at;
    b->at += bytes;
    return b->room + b->at - bytes;
}

static void fill(bench *b, sherd_dtype dtype)
{
    size_t size = sherd_dtype_bytes(dtype);
    uint32_t state = 1;

    for (size_t i = 0; i < ROOM / size; i++) {
        state = state * 1664525u + 1013904223u;
        double x = (double)(state >> 8) / (1 << 23) - 1;
        sherd__cast(dtype, SHERD_F64, 1, b->room + i * size, &x);
    }
}

static double element(const void *x, int64_t i, sherd_dtype dtype)
{
    double y;

    sherd__cast(SHERD_F64, dtype, 1, &y, (const char *)x + (size_t)i * sherd_dtype_bytes(dtype));
    return y;
}

typedef struct operands {
    void *a, *b, *bias, *c;
    double before[LOOKED_AT]; /* of c */
} operands;

static int64_t looked_at(const sherd__product *p, int i)
{
    return (p->m * p->n - 1) * i / (LOOKED_AT - 1);
}

static bool is_right(const sherd__product *p, const operands *o)
{
    double tolerance = p->dtype == SHERD_F32 ? 1e-5 : p->dtype == SHERD_F16 ? 2e-3 : 1e-2;

    for (int e = 0; e < LOOKED_AT; e++) {
        int64_t at = looked_at(p, e), i = at / p->n, j = at % p->n;
        double total = p->adds ? o->before[e] : 0, size = fabs(total);
        for (int64_t x = 0; x < p->k; x++) {
            double y = element(o->a, p->ta ? x * p->m + i : i * p->k + x, p->dtype) *
                       element(o->b, p->tb ? j * p->k + x : x * p->n + j, p->dtype);
            total += y;
            size += fabs(y);
        }
        total += p->bias ? element(o->bias, j, p->dtype) : 0;
        if (!(fabs(total - element(o->c, at, p->result)) <= tolerance * (size + 1)))
            return false;
    }
    return true;
}

/* One product; seconds, or 0 if this way does not do it, or -1 if the result is wrong. */
static double run_one(bench *b, const sherd__product *p, int way, bool look)
{
    const sherd__kernels *k = sherd__kernels_of(&b->set, p->dtype);
    operands o = {.a = take(b, p->m * p->k, p->dtype),
                  .b = take(b, p->n * p->k, p->dtype),
                  .bias = take(b, p->n, p->dtype),
                  .c = take(b, p->m * p->n, p->result)};
    bool done =
        o.a && o.b && o.bias && o.c && (way == OWN ? k->product != NULL : b->set.product != NULL);

    if (!done)
        return 0;
    for (int e = 0; e < LOOKED_AT; e++)
        o.before[e] = element(o.c, looked_at(p, e), p->result);
    double start = seconds();
    if (way == OWN)
        k->product(p, o.c, o.a, o.b, o.bias, b->workspace);
    else
        done = b->set.product(b->engine, p, o.c, o.a, o.b, p->bias ? o.bias : NULL) == SHERD__DONE;
    double time = seconds() - start;
    bool good = !done || !look || is_right(p, &o);

    /* what was written is no operand of another: it grows */
    for (int64_t i = 0; i < p->m * p->n; i++) {
        double x = (double)(i * 37 % 255 - 127) / 128;
        sherd__cast(p->result, SHERD_F64, 1, (char *)o.c + (size_t)i * sherd_dtype_bytes(p->result),
                    &x);
    }
    return !done ? 0 : good ? time : -1;
}

/* Seconds of a way's rounds, sorted. */
typedef struct times {
    double of[MOST_ROUNDS];
    int count;
} times;

/* Of each way; false: a result was wrong. */
static bool measure(bench *b, const sherd__product *p, int64_t rounds, times *t)
{
    const sherd__kernels *k = sherd__kernels_of(&b->set, p->dtype);
    bool good = true;

    t[OWN].count = t[OTHER].count = 0;
    b->workspace = k->product ? malloc((size_t)k->product_workspace(p) + 64) : NULL;
    for (int64_t r = 0; r < rounds && good; r++)
        for (int way = 0; way < WAYS; way++) {
            double time = run_one(b, p, way, r == 0);
            good = good && time >= 0;
            if (time > 0)
                t[way].of[t[way].count++] = time;
        }
    for (int way = 0; way < WAYS; way++)
        sort_times(t[way].of, t[way].count);
    free(b->workspace);
    return good;
}

/* Name, as "NT 2048x768x256 +bias". */
static void name_product(const sherd__product *p, char *text, size_t room)
{
    snprintf(text, room, "%c%c %dx%dx%d%s%s", p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (int)p->m,
             (int)p->n, (int)p->k, p->bias ? " +bias" : "", p->adds ? " +c" : "");
}

static void print_one(const bench *b, const sherd__product *p, times *t, double peak)
{
    const sherd__kernels *k = sherd__kernels_of(&b->set, p->dtype);
    double flops = 2e-9 * (double)p->m * (double)p->n * (double)p->k;
    char text[64];

    name_product(p, text, sizeof text);
    printf("%-28s", text);
    for (int way = 0; way < WAYS; way++)
        if (t[way].count > 0) {
            double middle = median(t[way].of, t[way].count);
            printf(" %10.1f %4.0f%% %4.0f%%", middle * 1e6, 100 * flops / middle / peak,
                   100 * flops / t[way].of[0] / peak);
        } else {
            printf(" %10s %5s %5s", "-", "", "");
        }
    if (t[OWN].count > 0 && t[OTHER].count > 0)
        printf(" %6.2f %6.2f",
               median(t[OTHER].of, t[OTHER].count) / median(t[OWN].of, t[OWN].count),
               t[OTHER].of[0] / t[OWN].of[0]);
    printf("%s\n", k->product && (!k->product_fits || k->product_fits(p)) ? "  own" : "");
    fflush(stdout);
}

static bool measure_all(bench *b, const sherd__product *list, int count, sherd_dtype dtype,
                        int64_t rounds, bool print)
{
    double peak = print ? sherd__measure_rates(&b->set).peak : 1;
    bool good = true;

    if (print)
        printf("%s %s, peak %.0f GFLOP/s; medians, and what the least time reaches of the peak\n"
               "%-28s %10s %5s %5s %10s %5s %5s %6s %6s\n",
               b->set.f32.name, sherd_dtype_name(dtype), peak, "", "own, us", "", "least",
               "oneDNN, us", "", "least", "times", "least");
    for (int i = 0; i < count && good; i++) {
        sherd__product p = list[i];
        times t[WAYS];
        p.dtype = p.result = dtype;
        good = measure(b, &p, rounds, t);
        if (print && good)
            print_one(b, &p, t, peak);
        else if (!good)
            fprintf(stderr, "products: product %d of the list is wrong\n", i);
    }
    return good;
}

/* "2048,256,128,tb,bias" */
static bool read_shape(const char *text, sherd__product *p)
{
    int m, n, k, used = 0;
    bool good = sscanf(text, "%d,%d,%d%n", &m, &n, &k, &used) == 3 && m > 0 && n > 0 && k > 0;

    if (!good)
        return false;
    *p = (sherd__product){.m = m, .n = n, .k = k};
    p->ta = strstr(text + used, ",ta");
    p->tb = strstr(text + used, ",tb");
    p->bias = strstr(text + used, ",bias");
    p->adds = strstr(text + used, ",adds");
    return true;
}

/* Processes that do what this one measures, until they are killed. */
static void busy_others(bench *b, const sherd__product *list, int count, sherd_dtype dtype,
                        pid_t *others, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        others[i] = fork();
        if (others[i] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (measure_all(b, list, count, dtype, 1, false))
            ;
        _exit(1);
    }
}

static void end_others(const pid_t *others, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (others[i] > 0) {
            kill(others[i], SIGKILL);
            waitpid(others[i], NULL, 0);
        }
}

int main(int argc, char **argv)
{
    const char *type = "f32", *shape = NULL;
    int64_t rounds = 12, cores = 1;
    const bench_option options[] = {{"--rounds", "N", .number = &rounds, .most = MOST_ROUNDS},
                                    {"--cores", "N", .number = &cores, .most = MOST_CORES},
                                    {"--type", "DTYPE", .text = &type},
                                    {"--shape", "M,N,K[,ta][,tb][,bias][,adds]", .text = &shape}};
    sherd__heap heap = {0};
    sherd__product one;
    pid_t others[MOST_CORES];
    bench b = {.room = malloc(ROOM)};

    if (!READ_COMMAND_LINE(argc, argv, options) || (shape && !read_shape(shape, &one)))
        return 2;
    sherd_dtype dtype = strcmp(type, "bf16") == 0  ? SHERD_BF16
                        : strcmp(type, "f16") == 0 ? SHERD_F16
                                                   : SHERD_F32;
    const sherd__product *list = shape ? &one : shapes;
    int count = shape ? 1 : (int)(sizeof shapes / sizeof shapes[0]);

    sherd__kernels_choose(&b.set);
    b.engine = sherd__engine_create(&heap);
    if (!b.room || !b.engine)
        return 1;
    fill(&b, dtype);
    busy_others(&b, list, count, dtype, others, cores - 1);
    bool good = measure_all(&b, list, count, dtype, rounds, true);
    end_others(others, cores - 1);
    sherd__engine_destroy(b.engine);
    free(b.room);
    return good ? 0 : 1;
}
