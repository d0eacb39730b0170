/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread with the stack that world.h names, which is what musl gives and pools often have,
 * computes products, convolutions, attention and norms, and their gradients.
 */
#include <pthread.h>

#include <sherd.h>

#include "tensors.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK = 2 << 20 }; /* they take more */
#else
enum { STACK = 128 << 10 };
#endif

static sherd_tensor *leaf(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape)
{
    return sherd_require_grad(sherd_cast(sherd_constant(world, SHERD_F32, shape, ndim, 0.5), dtype),
                              true);
}

static void go_back(sherd_tensor *y)
{
    sherd_backward(sherd_sum(sherd_cast(y, SHERD_F32)));
}

static void *compute(void *given)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    const int64_t square[] = {130, 130}, row[] = {130}, heads[] = {1, 40, 2, 16};
    const int64_t plane[] = {1, 2, 20, 20}, taps[] = {2, 2, 3, 3};
    sherd_world *world = given;

    for (int d = 0; d < LEN(dtypes); d++) {
        sherd_tensor *x = leaf(world, dtypes[d], 2, square), *w = leaf(world, dtypes[d], 2, square);
        sherd_tensor *b = leaf(world, dtypes[d], 1, row), *q = leaf(world, dtypes[d], 4, heads);
        go_back(sherd_linear(x, w, b));
        go_back(sherd_softmax(sherd_matmul(x, w), 0));
        go_back(sherd_layer_norm(x, b, b, 1e-5));
        go_back(sherd_attention(q, q, q, &(sherd_attention_options){.causal = true}));
        go_back(sherd_conv(leaf(world, dtypes[d], 4, plane), leaf(world, dtypes[d], 4, taps), NULL,
                           NULL));
    }
    return NULL;
}

static void a_small_thread_computes(sherd_world *world)
{
    pthread_attr_t attr;
    pthread_t thread;

    CHECK_EQ(pthread_attr_init(&attr), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attr, STACK), 0);
    CHECK_EQ(pthread_create(&thread, &attr, compute, world), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_small_thread_computes), {1}},
};
CHECK_MAIN(tests)
