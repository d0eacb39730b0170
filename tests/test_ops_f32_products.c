/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of f32 of the size of layers, by the table's own kernel, by oneDNN and by the plain
 * loop: results and gradients agree but for the order of additions. Two layers read one tensor, so
 * that the second adds to its gradient. Products of few rows and of a vector, with what is not
 * finite. And no memory.
 */
#include <math.h>

#include <sherd.h>

#include "kernels/ref.h"
#include "tensors.h"
#include "vector/choose.h"
#include "world/world.h"

enum { ROWS = 203, IN = 72, OUT = 67, RESULTS = 6 };

typedef enum way { OWN, ONEDNN, PLAIN, WAYS } way;

/* Under TSan, and where SHERD_GEMM says so, all are plain. */
static void choose(sherd_world *world, way w)
{
    sherd__kernel_set *set = (sherd__kernel_set *)(uintptr_t)sherd__world_kernels(world);

    sherd__kernels_choose(set);
    if (w != OWN)
        set->f32.product_fits = NULL;
    if (w == PLAIN) {
        set->product = NULL;
        set->f32.product = NULL;
        set->f32.gemm = sherd__ref_f32.gemm;
    } else if (w == ONEDNN) {
        set->f32.product = NULL;
    }
}

static sherd_tensor *operand(sherd_world *world, int ndim, int64_t rows, int64_t cols)
{
    float data[ROWS * IN];

    for (int64_t i = 0; i < rows * cols; i++)
        data[i] = (float)((i * 37 + rows) % 101 - 50) / 64;
    const int64_t shape[] = {rows, cols};
    return sherd_require_grad(
        sherd_from_data(world, SHERD_F32, ndim == 1 ? &cols : shape, ndim, data), true);
}

static void compute(sherd_world *world, sherd_tensor **out)
{
    sherd_tensor *x = operand(world, 2, ROWS, IN), *h = sherd_scale(x, 2);
    sherd_tensor *first = operand(world, 2, OUT, IN), *second = operand(world, 2, OUT, IN);
    sherd_tensor *bias = operand(world, 1, 1, OUT);
    sherd_tensor *y = sherd_linear(h, first, bias);

    out[0] = sherd_add(y, sherd_linear(h, second, NULL));
    sherd_backward(sherd_sum(sherd_mul(out[0], y)));
    out[1] = sherd_grad(x);
    out[2] = sherd_grad(first);
    out[3] = sherd_grad(second);
    out[4] = sherd_grad(bias);
    out[5] = sherd_matmul(x, sherd_transpose(first, 0, 1));
}

static double far_apart(sherd_tensor *is, sherd_tensor *want)
{
    const float *x = sherd_tensor_read(is), *y = sherd_tensor_read(want);
    double worst = x && y ? 0 : INFINITY, largest = 1;

    for (int64_t i = 0; x && y && i < want->count; i++) {
        double off = fabs((double)x[i] - (double)y[i]);
        worst = off <= worst ? worst : off;
        largest = fmax(largest, fabs((double)y[i]));
    }
    return worst / largest;
}

static void all_ways_agree(sherd_world *world)
{
    for (way w = OWN; w < PLAIN; w++) {
        sherd_tensor *is[RESULTS], *want[RESULTS];
        sherd_scope_begin(world);
        choose(world, w);
        compute(world, is);
        choose(world, PLAIN);
        compute(world, want);
        for (int i = 0; i < RESULTS; i++) {
            double off = far_apart(is[i], want[i]);
            if (!CHECK(off <= 1e-6))
                fprintf(stderr, "way %d, result %d: off by %g\n", (int)w, i, off);
        }
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Products of two matrices, the first with NaN or infinity in one row; their gradients; and a layer
 * of one column. */
static void compute_small(sherd_world *world, const int64_t *size, sherd_tensor **out)
{
    enum { M, K, N };
    float odd[ROWS] = {0};
    odd[1] = INFINITY;
    sherd_tensor *a = operand(world, 2, size[M], size[K]), *b = operand(world, 2, size[K], size[N]);
    sherd_tensor *more = sherd_from_data(world, SHERD_F32, (int64_t[]){size[M], 1}, 2, odd);

    out[0] = sherd_matmul(sherd_add(a, more), b);
    sherd_backward(sherd_sum(sherd_square(sherd_matmul(a, b))));
    out[1] = sherd_grad(a);
    out[2] = sherd_grad(b);
    out[3] = sherd_linear(sherd_detach(a), sherd_detach(sherd_narrow(a, 0, 0, 1)),
                          sherd_constant(world, SHERD_F32, (int64_t[]){1}, 1, 0.5));
}

/* Elements that differ: both are NaN, or the same infinity, or near each other. */
static int apart(sherd_tensor *is, sherd_tensor *want)
{
    const float *x = sherd_tensor_read(is), *y = sherd_tensor_read(want);
    int many = x && y && is->count == want->count ? 0 : -1;

    for (int64_t i = 0; many >= 0 && i < want->count; i++) {
        bool near = fabsf(x[i] - y[i]) <= 1e-6F * fmaxf(64, fabsf(y[i]));
        many += !near && x[i] != y[i] && !(isnan(x[i]) && isnan(y[i]));
    }
    return many;
}

static void small_ones_agree(sherd_world *world)
{
    static const int64_t sizes[][3] = {{4, 9, 4},    {16, 16, 16},  {17, 16, 15}, {31, 64, 32},
                                       {32, 63, 17}, {29, 33, 5},   {7, 200, 1},  {8, 70, 1},
                                       {9, 32, 1},   {131, 100, 1}, {33, 1, 1},   {40, 17, 1}};

    for (int i = 0; i < LEN(sizes); i++) {
        enum { SMALL = 4 };
        sherd_tensor *is[SMALL], *want[SMALL];
        sherd_scope_begin(world);
        choose(world, OWN);
        compute_small(world, sizes[i], is);
        choose(world, PLAIN);
        compute_small(world, sizes[i], want);
        for (int k = 0; k < SMALL; k++)
            CHECK_EQ(apart(is[k], want[k]), 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void compute_once(sherd_world *world)
{
    sherd_tensor *is[RESULTS];

    sherd_scope_begin(world);
    compute(world, is);
    sherd_scope_end(world);
}

static void no_memory_fails_and_leaks_nothing(sherd_world *world)
{
    choose(world, OWN);
    fail_allocations_everywhere(world, compute_once);
}

static const check_test tests[] = {
    {TEST(all_ways_agree), {1, 2}},
    {TEST(small_ones_agree), {1}},
    {TEST(no_memory_fails_and_leaks_nothing), {1, 2}},
};
CHECK_MAIN(tests)
