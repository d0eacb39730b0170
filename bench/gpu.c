/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of the kernels of a GPU at two sizes of a GPT (of attention at four), beside what the GPU
 * can do: a large copy, and a large product of the dtype. A figure is the median of some batches of
 * queued calls, by the clock of the CPU: so the least is what a launch costs. Operands of one call
 * are not those of the next, as many as the GPU's cache cannot hold. Bytes are those that must
 * move, in and out.
 *
 *   gpu [--size gpt|large|long|wide] [--dtype f32|bf16] [part of a name]
 *                                     SHERD_DEVICE chooses the GPU
 *   gpu --small                       tiny sizes: whether all of it runs, also where it is emulated
 *
 * gpu_kernels.py --with a file of its output puts PyTorch's times beside.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_line.h"
#include "gpu_jobs.h"
#include "timing.h"

enum {
    BATCHES = 5,
    NOISE = 1 << 20,         /* elements that operands are filled with */
    CACHE_BYTES = 192 << 20, /* of the operands of all calls that differ: thrice an H200's cache */
    MOST_SETS = 256,         /* of operands */
    MOST_CALLS = 1000,       /* of a batch; the driver's queue is not much longer */
    LAUNCHES = 1000,         /* whose cost for the CPU is measured */
    COPY_BYTES = 1 << 30,    /* of the large copy */
    PRODUCT_SIDE = 8192,     /* of the large product */
    SMALL_BYTES = 1 << 16,   /* the same with --small */
    SMALL_SIDE = 32
};
static const double batch_seconds = 5e-3;

static const shape shapes[] = {{"gpt", 8, 256, 8, 32, 256, NULL},
                               {"large", 8, 1024, 16, 64, 50304, NULL},
                               {"long", 8, 2048, 16, 64, 256, "attention"},
                               {"wide", 8, 2048, 16, 128, 256, "attention"},
                               {"tiny", 2, 8, 2, 8, 32, NULL}};

/* Other numbers for other operands. */
static void fill(bench *b, char *dst, extent x, int i)
{
    const sherd__device_block *noise = b->noise[dtype_of(b, x) == SHERD_BF16];
    int64_t left = bytes_of(b, x), skip = (int64_t)LINE * (1 + i);

    while (left > 0) {
        int64_t piece = sherd__min(left, noise->bytes - skip);
        sherd__device_move(b->device, dst, (const char *)noise->data + skip, piece);
        dst += piece;
        left -= piece;
    }
}

/* Where a call's operands lie, found once: the clock runs while they are chosen. */
static void lay(bench *b, const job *j)
{
    b->set_bytes = 0;
    for (int i = 0; i < OPERANDS; i++) {
        b->offset[i] = b->set_bytes;
        b->set_bytes += room_of(b, j->x[i]);
    }
}

static void choose_set(bench *b, char *data, int set)
{
    for (int i = 0; i < OPERANDS; i++)
        b->x[i] = data + b->set_bytes * set + b->offset[i];
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Seconds of so many calls; each set of operands in turn. */
static double run_batch(bench *b, const job *j, char *data, int sets, int calls)
{
    double begin = seconds();

    for (int c = 0; c < calls; c++) {
        choose_set(b, data, c % sets);
        j->run(b);
    }
    return sherd__device_wait(b->device) ? seconds() - begin : 0;
}

/* Seconds of a call, the median of batches. Adds the first one's to b->first. */
static double time_job(bench *b, const job *j)
{
    double time[BATCHES];
    int64_t cache = b->small ? SMALL_BYTES : CACHE_BYTES;

    lay(b, j);
    int sets = (int)sherd__min(1 + cache / b->set_bytes, MOST_SETS);
    sherd__device_block *room = sherd__device_take(b->device, sets * b->set_bytes);
    if (!room) {
        sherd__device_fail(b->device, "%s: out of GPU memory for its operands", j->name);
        return 1;
    }
    for (int set = 0; set < sets; set++) {
        choose_set(b, room->data, set);
        for (int i = 0; i < OPERANDS; i++)
            fill(b, b->x[i], j->x[i], i);
    }
    sherd__device_wait(b->device);
    b->first += run_batch(b, j, room->data, sets, 1);
    double once = run_batch(b, j, room->data, sets, sets) / sets;
    int calls = b->small ? sets : (int)fmin(1 + batch_seconds / (once + 1e-9), MOST_CALLS);
    for (int i = 0; i < BATCHES; i++)
        time[i] = run_batch(b, j, room->data, sets, calls) / calls;
    sherd__device_give(b->device, room);
    return median(time, BATCHES);
}

static void print_job(bench *b, const job *j)
{
    double time = time_job(b, j);

    if (sherd__device_fault(b->device))
        return;
    double rate = (j->flops ? j->flops(b) : moved_bytes(b, j)) / time;
    printf("%-5s %-4s %-18s %10.2f us %9.1f %-7s %4.0f%%\n", b->s->name, sherd_dtype_name(b->dtype),
           j->name, time * 1e6, rate * (j->flops ? 1e-12 : 1e-9), j->flops ? "TFLOP/s" : "GB/s",
           100 * rate / (j->flops ? b->product : b->copy));
    fflush(stdout);
}

/* ---- what the GPU can do --------------------------------------------------------------------- */

static void large_copy(bench *b)
{
    sherd__device_move(b->device, b->x[0], b->x[1], bytes_of(b, ROWS_DIM));
}

static const job copy_job = {"copy", large_copy, .x = {ROWS_DIM, ROWS_DIM}};

static void measure_copy(bench *b)
{
    b->dtype = SHERD_F32;
    b->rows = (b->small ? SMALL_BYTES : COPY_BYTES) / (int64_t)sizeof(float);
    b->dim = 1;
    b->copy = moved_bytes(b, &copy_job) / time_job(b, &copy_job);
    printf("# copy of %lld MB: %.0f GB/s\n", (long long)(b->rows * 4 >> 20), b->copy * 1e-9);
}

static void measure_product(bench *b)
{
    b->rows = b->dim = b->small ? SMALL_SIDE : PRODUCT_SIDE;
    b->product = flops_dim(b) / time_job(b, &jobs[0]);
    printf("# product of %lld^3, %s: %.1f TFLOP/s\n", (long long)b->dim, sherd_dtype_name(b->dtype),
           b->product * 1e-12);
}

/* What the CPU pays for a launch: nothing waits, as long as the queue has room. */
static void measure_launches(bench *b, void *dst)
{
    double time[BATCHES];

    for (int i = 0; i <= BATCHES; i++) { /* the first one compiles */
        double begin = seconds();
        for (int c = 0; c < LAUNCHES; c++)
            sherd__device_fill(b->device, SHERD_F32, dst, 1, 0);
        if (i > 0)
            time[i - 1] = (seconds() - begin) / LAUNCHES;
        else
            b->first += seconds() - begin;
        sherd__device_wait(b->device);
    }
    printf("# launch: %.2f us of the CPU\n", median(time, BATCHES) * 1e6);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static uint32_t next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void make_noise(bench *b)
{
    float *number = malloc(NOISE * sizeof *number);
    uint32_t state = 1;

    for (int k = 0; k < 2; k++)
        b->noise[k] = sherd__device_take(b->device, NOISE * (k ? 2 : (int64_t)sizeof *number));
    if (!number || !b->noise[0] || !b->noise[1]) {
        sherd__device_fail(b->device, "out of memory");
        free(number);
        return;
    }
    for (int i = 0; i < NOISE; i++)
        number[i] = (float)next_number(&state) * 0x1p-24F;
    sherd__device_upload(b->device, b->noise[0]->data, number, b->noise[0]->bytes);
    double begin = seconds();
    sherd__device_convert(b->device, SHERD_BF16, SHERD_F32, NOISE, b->noise[1]->data,
                          b->noise[0]->data);
    sherd__device_wait(b->device);
    b->first += seconds() - begin;
    free(number);
}

/* Rows of a table that are looked up; positions of full caches; their blocks, in disorder. */
static void draw_ids(const bench *b, int32_t *id)
{
    int64_t blocks = b->rows / together(b->s);
    uint32_t state = 2;

    for (int64_t i = 0; i < b->rows; i++)
        *id++ = (int32_t)(next_number(&state) % (uint32_t)b->s->vocabulary);
    for (int64_t i = 0; i < b->s->batch; i++)
        *id++ = (int32_t)b->s->context - 1;
    for (int64_t i = 0; i < blocks; i++)
        *id++ = (int32_t)(i * 37 % blocks); /* all: blocks are a power of two */
}

/* NULL: noted. */
static sherd__device_block *make_ids(bench *b)
{
    int64_t n = b->rows + b->s->batch + b->rows / together(b->s);
    sherd__device_block *block = sherd__device_take(b->device, n * (int64_t)sizeof *b->ids);
    int32_t *id = malloc((size_t)n * sizeof *id);

    if (!block || !id) {
        sherd__device_fail(b->device, "out of memory");
        sherd__device_give(b->device, block);
        free(id);
        return NULL;
    }
    draw_ids(b, id);
    sherd__device_upload(b->device, block->data, id, block->bytes);
    b->ids = block->data;
    b->last = b->ids + b->rows;
    b->table = b->last + b->s->batch;
    sherd__device_wait(b->device);
    free(id);
    return block;
}

static void run_shape(bench *b, const shape *s, const char *part)
{
    b->s = s;
    b->rows = s->batch * s->context;
    b->dim = s->heads * s->width;
    b->mlp = 4 * b->dim;
    sherd__device_block *ids = make_ids(b);
    if (!ids)
        return;
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        if (strstr(jobs[i].name, part) && (!s->part || strstr(jobs[i].name, s->part)) &&
            (!jobs[i].only || jobs[i].only == b->dtype) && !sherd__device_fault(b->device))
            print_job(b, &jobs[i]);
    sherd__device_give(b->device, ids);
}

static void run_all(bench *b, const char *size, const char *dtype, const char *part)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};

    b->s = &shapes[0]; /* any: measuring what the GPU can do needs none of it */
    make_noise(b);
    if (sherd__device_fault(b->device))
        return;
    measure_copy(b);
    measure_launches(b, b->noise[0]->data);
    for (int d = 0; d < 2; d++) {
        b->dtype = dtypes[d];
        if (!strstr(sherd_dtype_name(dtypes[d]), dtype))
            continue;
        measure_product(b);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            if (strcmp(shapes[i].name, "tiny") == 0 ? b->small
                                                    : !b->small && strstr(shapes[i].name, size))
                run_shape(b, &shapes[i], part);
    }
    printf("# first calls, most of it compiling: %.2f s\n", b->first);
}

int main(int argc, char **argv)
{
    const char *name = getenv("SHERD_DEVICE"), *size = "", *dtype = "", *part = "";
    sherd__heap heap = {0};
    sherd__diag diag = {.rank = -1};
    bench b = {0};
    const bench_option options[] = {{"--size", "gpt|large|long|wide", .text = &size},
                                    {"--dtype", "f32|bf16", .text = &dtype},
                                    {"--small", NULL, .flag = &b.small},
                                    {NULL, "PART", .text = &part}};

    if (!READ_COMMAND_LINE(argc, argv, options))
        return 2;
    if (sherd__device_open(&b.device, &heap, &diag, name && *name ? name : "cuda", 0)) {
        printf("nothing is measured: %s\n", diag.text);
        return 0;
    }
    printf("# %s\n", sherd__device_model(b.device));
    run_all(&b, size, dtype, part);
    const char *fault = sherd__device_fault(b.device);
    if (fault)
        fprintf(stderr, "%s\n", fault);
    sherd__device_give(b.device, b.noise[0]);
    sherd__device_give(b.device, b.noise[1]);
    int status = fault != NULL; /* the text goes with the device */
    sherd__device_close(b.device);
    return status;
}
