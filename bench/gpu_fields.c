/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of operators of fields on a GPU, as a U-Net and a Fourier layer have them: of a call, and of
 * a call, a sum of its result and backward. A figure is the median of some batches of calls, each
 * of which ends with a wait for the GPU.
 *
 *   gpu_fields [--small] [part of a name]       SHERD_DEVICE chooses the GPU
 *
 * gpu_fields.py has the same rows in PyTorch.
 */
#include <sherd.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command_line.h"
#include "timing.h"

enum { OPERANDS = 3, BATCHES = 5, MOST_CALLS = 200 };
static const double batch_seconds = 20e-3;

static sherd_tensor *conv(sherd_tensor **in)
{
    return sherd_conv(in[0], in[1], in[2], &(sherd_conv_options){.same = true});
}

static sherd_tensor *conv_down(sherd_tensor **in)
{
    return sherd_conv(in[0], in[1], in[2], &(sherd_conv_options){.stride = {2, 2}});
}

static sherd_tensor *conv_up(sherd_tensor **in)
{
    return sherd_conv_transposed(in[0], in[1], in[2], &(sherd_conv_options){.stride = {2, 2}});
}

static sherd_tensor *group_norm(sherd_tensor **in)
{
    return sherd_group_norm(in[0], 8, in[1], in[2], 1e-5);
}

static sherd_tensor *batch_norm(sherd_tensor **in)
{
    return sherd_batch_norm(in[0], &(sherd_batch_norm_options){.weight = in[1], .bias = in[2]});
}

static sherd_tensor *max_pool(sherd_tensor **in)
{
    return sherd_max_pool(in[0], &(sherd_pool_options){.kernel = {2, 2}}, NULL);
}

static sherd_tensor *avg_pool(sherd_tensor **in)
{
    return sherd_avg_pool(in[0], &(sherd_pool_options){.kernel = {2, 2}});
}

static sherd_tensor *linear(sherd_tensor **in)
{
    return sherd_interpolate(
        in[0], &(sherd_interpolate_options){.kind = SHERD_INTERPOLATE_LINEAR, .factor = {2, 2}});
}

static const int plane[] = {2, 3};

static sherd_tensor *rfft2(sherd_tensor **in)
{
    return sherd_rfft(in[0], plane, 2, SHERD_FFT_BACKWARD);
}

static sherd_tensor *irfft2(sherd_tensor **in)
{
    return sherd_irfft(in[0], plane, 2, 0, SHERD_FFT_BACKWARD);
}

static sherd_tensor *complex_mul(sherd_tensor **in)
{
    return sherd_complex_mul(in[0], in[1]);
}

/* Sizes: -1 is the side of an image, -2 half of it and one; 0 ends them. */
static const struct row {
    const char *name;
    sherd_tensor *(*f)(sherd_tensor **in);
    int shape[OPERANDS][5];
    bool wide_only; /* not of 16 bits */
} rows[] = {
    {"conv", conv, {{16, 64, -1, -1}, {64, 64, 3, 3}, {64}}, false},
    {"conv_down", conv_down, {{16, 64, -1, -1}, {128, 64, 2, 2}, {128}}, false},
    {"conv_up", conv_up, {{16, 64, -1, -1}, {64, 32, 2, 2}, {32}}, false},
    {"group_norm", group_norm, {{16, 64, -1, -1}, {64}, {64}}, false},
    {"batch_norm", batch_norm, {{16, 64, -1, -1}, {64}, {64}}, false},
    {"max_pool", max_pool, {{16, 64, -1, -1}}, false},
    {"avg_pool", avg_pool, {{16, 64, -1, -1}}, false},
    {"linear", linear, {{16, 64, -1, -1}}, false},
    {"rfft2", rfft2, {{16, 64, -1, -1}}, true},
    {"irfft2", irfft2, {{16, 64, -1, -2, 2}}, true},
    {"complex_mul", complex_mul, {{16, 64, -1, -2, 2}, {64, -1, -2, 2}}, true},
};

static sherd_tensor *operand(sherd_world *world, const int *sizes, int64_t side, sherd_dtype dtype)
{
    int64_t shape[5];
    int ndim = 0;

    for (; ndim < 5 && sizes[ndim]; ndim++)
        shape[ndim] = sizes[ndim] == -1 ? side : sizes[ndim] == -2 ? side / 2 + 1 : sizes[ndim];
    sherd_generator g = sherd_generator_named("operands");
    return sherd_require_grad(sherd_random(world, dtype, shape, ndim, sherd_uniform(-1, 1), &g),
                              true);
}

/* Seconds of a call; 0: it failed. */
static double run(sherd_world *world, const struct row *row, sherd_tensor **in, bool back,
                  int calls)
{
    double begin = seconds();

    for (int i = 0; i < calls; i++) {
        sherd_scope_begin(world);
        bool before = sherd_set_recording(world, back);
        sherd_tensor *y = row->f(in);
        if (back)
            sherd_backward(sherd_sum(y));
        sherd_set_recording(world, before);
        for (int k = 0; k < OPERANDS && in[k]; k++)
            sherd_clear_grad(in[k]);
        if (i == calls - 1)
            sherd_item(sherd_sum(y));
        sherd_scope_end(world);
    }
    return sherd_world_check(world) == SHERD_OK ? (seconds() - begin) / calls : 0;
}

static double measure(sherd_world *world, const struct row *row, sherd_tensor **in, bool back,
                      bool small)
{
    double once = run(world, row, in, back, 1), time[BATCHES];

    if (small)
        return once;
    once = run(world, row, in, back, 3);
    int calls = (int)fmin(1 + batch_seconds / (once + 1e-6), MOST_CALLS);
    for (int i = 0; i < BATCHES; i++)
        time[i] = run(world, row, in, back, calls);
    return median(time, BATCHES);
}

static void run_row(sherd_world *world, const struct row *row, sherd_dtype dtype, bool small)
{
    sherd_tensor *in[OPERANDS] = {NULL};

    sherd_scope_begin(world);
    for (int i = 0; i < OPERANDS && row->shape[i][0]; i++)
        in[i] = operand(world, row->shape[i], small ? 8 : 128, dtype);
    double call = measure(world, row, in, false, small),
           step = measure(world, row, in, true, small);
    printf("%-4s %-12s %10.1f us, with backward %10.1f us\n", sherd_dtype_name(dtype), row->name,
           call * 1e6, step * 1e6);
    fflush(stdout);
    sherd_scope_end(world);
}

int main(int argc, char **argv)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};
    const sherd_world_options options = {.device = getenv("SHERD_DEVICE")};
    sherd_world *world = NULL;
    const char *part = "";
    bool small = false;
    const bench_option arguments[] = {{"--small", NULL, .flag = &small},
                                      {NULL, "PART", .text = &part}};

    if (!READ_COMMAND_LINE(argc, argv, arguments))
        return 2;
    if (sherd_world_open(&world, &options)) {
        printf("nothing is measured: no world\n");
        return 0;
    }
    printf("# %s\n", sherd_world_device(world));
    for (int d = 0; d < 2; d++)
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (strstr(rows[i].name, part) && !(rows[i].wide_only && dtypes[d] == SHERD_BF16))
                run_row(world, &rows[i], dtypes[d], small);
    int status = sherd_world_check(world) != SHERD_OK;
    if (status)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    sherd_world_close(world);
    return status;
}
