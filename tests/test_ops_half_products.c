/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and attention of 16 bits, whichever way the CPU's choice sends them: by its own products
 * of bf16, by those that make f32 of their operands, and by copies in f32. Results and gradients
 * are those of f32 on the same numbers but for roundings. And no memory for any of them.
 */
#include <math.h>

#include <sherd.h>

#include "tensors.h"
#include "vector/choose.h"
#include "world/world.h"

enum { ROWS = 52, IN = 70, OUT = 46, HEADS = 2, WIDTH = 8, RESULTS = 8 };

typedef enum way { NATIVE, PACKED, COPIES, WAYS } way;

/* What a rank's world may choose from. The table lies in the world, which is no constant. */
static void choose(sherd_world *world, way w)
{
    sherd__kernel_set *set = (sherd__kernel_set *)(uintptr_t)sherd__world_kernels(world);

    sherd__kernels_choose(set);
    set->bf16_products = w == NATIVE;
    set->tiles = NULL;
    if (w != PACKED)
        set->bf16.product = set->f16.product = NULL;
}

/* Numbers that the dtype holds, in f32 or as they are. */
static sherd_tensor *operand(sherd_world *world, sherd_dtype dtype, bool wide, int ndim,
                             const int64_t *shape)
{
    float data[ROWS * IN];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n; i++)
        data[i] = (float)((i * 37 + n) % 101 - 50) / 64;
    sherd_tensor *t = sherd_cast(sherd_from_data(world, SHERD_F32, shape, ndim, data), dtype);
    return sherd_require_grad(wide ? sherd_cast(t, SHERD_F32) : t, true);
}

/* A layer, its gradients, attention and its gradients. */
static void compute(sherd_world *world, sherd_dtype dtype, bool wide, sherd_tensor **out)
{
    const int64_t shape[3][4] = {{ROWS, IN}, {OUT, IN}, {OUT}};
    const int64_t heads[] = {1, ROWS, HEADS, WIDTH};
    sherd_tensor *x = operand(world, dtype, wide, 2, shape[0]);
    sherd_tensor *w = operand(world, dtype, wide, 2, shape[1]);
    sherd_tensor *bias = operand(world, dtype, wide, 1, shape[2]);
    sherd_tensor *q = operand(world, dtype, wide, 4, heads);
    sherd_attention_options causal = {.causal = true};

    out[0] = sherd_linear(x, w, bias);
    sherd_backward(sherd_mean(sherd_mul(out[0], out[0])));
    out[1] = sherd_grad(x);
    out[2] = sherd_grad(w);
    out[3] = sherd_grad(bias);
    out[4] = sherd_attention(q, q, q, &causal);
    sherd_backward(sherd_mean(sherd_mul(out[4], out[4])));
    out[5] = sherd_grad(q);
    out[6] = sherd_matmul(sherd_transpose(w, 0, 1), w);
    out[7] = sherd_matmul(sherd_slice(x, 0, 0, 1, 1), sherd_transpose(w, 0, 1));
}

static double far_apart(sherd_tensor *is, sherd_tensor *want, double *largest)
{
    const float *x = sherd_tensor_read(sherd_cast(is, SHERD_F32)), *y = sherd_tensor_read(want);
    double worst = x && y ? 0 : INFINITY;

    *largest = 0;
    for (int64_t i = 0; x && y && i < want->count; i++) {
        double off = fabs((double)x[i] - (double)y[i]);
        worst = off <= worst ? worst : off;
        *largest = fmax(*largest, fabs((double)y[i]));
    }
    return worst;
}

static void each_way_is_f32_but_for_roundings(sherd_world *world)
{
    for (way w = NATIVE; w < WAYS; w++)
        for (sherd_dtype dtype = SHERD_BF16; dtype <= SHERD_F16; dtype++) {
            sherd_tensor *is[RESULTS], *want[RESULTS];
            choose(world, w);
            sherd_scope_begin(world);
            compute(world, dtype, false, is);
            compute(world, dtype, true, want);
            for (int i = 0; i < RESULTS; i++) {
                double largest, off = far_apart(is[i], want[i], &largest);
                if (!CHECK(off <= 4.0 / (dtype == SHERD_BF16 ? 256 : 2048) * largest))
                    fprintf(stderr, "way %d, %s, result %d: off by %g of %g\n", (int)w,
                            sherd_dtype_name(dtype), i, off, largest);
            }
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* A product and its bias, 16 bits that almost cancel, are rounded once. */
static void a_bias_is_added_before_rounding(sherd_world *world)
{
    const int64_t one[] = {1, 1};

    setenv("SHERD_GEMM", "reference", 1);
    for (int i = 0; i <= WAYS; i++) {
        choose(world, i < WAYS ? (way)i : NATIVE);
        unsetenv("SHERD_GEMM");
        for (int64_t rows = 1; rows < 70; rows *= 8) {
            const int64_t shape[] = {rows, 1};
            sherd_tensor *x = sherd_constant(world, SHERD_BF16, shape, 2, 1.0234375);
            sherd_tensor *w = sherd_constant(world, SHERD_BF16, one, 2, 1.0234375);
            sherd_tensor *y = sherd_linear(x, w, sherd_constant(world, SHERD_BF16, one, 1, -1));
            CHECK_EQ(sherd_item(sherd_mean(y)), 0.04736328125);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

static void compute_once(sherd_world *world)
{
    sherd_tensor *is[RESULTS];

    sherd_scope_begin(world);
    compute(world, SHERD_BF16, false, is);
    sherd_scope_end(world);
}

static void no_memory_fails_and_leaks_nothing(sherd_world *world)
{
    for (way w = NATIVE; w < WAYS; w++) {
        choose(world, w);
        fail_allocations_everywhere(world, compute_once);
    }
}

static const check_test tests[] = {
    {TEST(each_way_is_f32_but_for_roundings), {1, 2}},
    {TEST(a_bias_is_added_before_rounding), {1}},
    {TEST(no_memory_fails_and_leaks_nothing), {1, 2}},
};
CHECK_MAIN(tests)
