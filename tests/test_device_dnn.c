/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on the GPU are the plain ones of the CPU, for pieces that are padded or cut anyhow;
 * where cuDNN is not there, or cannot, that is said before. */
#define CHECK_PURE
#include "check.h"
#include "device/dnn.h"
#include "device_arrays.h"

/* batch, groups, channels in and out; in, out, kernel, stride, dilation, before */
static const sherd__conv shapes[] = {
    {2, 1, 3, 4, {1, 6, 7}, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}}, /* even */
    {1, 1, 1, 1, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {2, 2, 4, 6, {1, 8, 5}, {1, 4, 2}, {1, 3, 2}, {1, 2, 2}, {1, 1, 2}, {0, 1, 0}},  /* unread */
    {1, 3, 3, 3, {1, 1, 9}, {1, 1, 9}, {1, 1, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 1}},  /* 1 dim */
    {1, 1, 2, 3, {4, 3, 5}, {4, 3, 5}, {3, 1, 3}, {1, 1, 1}, {1, 1, 1}, {1, 0, 1}},  /* 3 dims */
    {2, 1, 2, 2, {1, 6, 7}, {1, 5, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},  /* uneven */
    {1, 1, 2, 2, {3, 9, 4}, {2, 3, 3}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {0, -2, 1}}, /* cut */
    {1,
     1,
     2,
     1,
     {1, 4, 4},
     {1, 3, 2},
     {1, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     {0, 9, 0}}, /* all is padding */
    {1,
     2,
     2,
     4,
     {1, 5, 1},
     {1, 9, 3},
     {1, 3, 1},
     {1, 1, 1},
     {1, 1, 1},
     {0, 4, 1}}, /* more padding than kernel */
    /* windows of one element, apart */
    {2, 2, 4, 2, {1, 7, 9}, {1, 4, 4}, {1, 1, 1}, {1, 2, 3}, {1, 1, 3}, {0, 0, 1}},
    {1, 1, 2, 3, {5, 6, 7}, {1, 2, 3}, {3, 1, 2}, {4, 3, 2}, {1, 2, 1}, {0, -2, 0}}, /* of more */
};

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* The plain kernel, in f32 of 16 bits. */
static void plain(sherd_dtype dtype, const sherd__conv *c, sherd__conv_kind kind, array *a,
                  int made)
{
    sherd__conv_task task = {.kind = kind};
    bool half = sherd_dtype_bytes(dtype) == 2;

    for (int i = 0; i < SHERD__CONV_ARRAYS; i++) {
        task.array[i] = half ? malloc((size_t)a[i].n * 4 + 4) : a[i].host;
        if (!task.array[i])
            abort();
        if (half)
            plain_of(dtype)->widen(a[i].n, task.array[i], a[i].host);
    }
    sherd__conv_plain(c, dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32, &task);
    if (half)
        plain_of(dtype)->narrow(a[made].n, a[made].host, task.array[made]);
    for (int i = 0; i < SHERD__CONV_ARRAYS && half; i++)
        free(task.array[i]);
}

static void one_is_plain(sherd_dtype dtype, const sherd__conv *c, sherd__conv_kind kind)
{
    static const int made_by[] = {SHERD__CONV_Y, SHERD__CONV_X, SHERD__CONV_W};
    const int64_t count[] = {c->batch * c->in_channels * product(c->in),
                             c->out_channels * (c->in_channels / c->groups) * product(c->kernel),
                             c->batch * c->out_channels * product(c->out)};
    sherd__conv_task task = {.kind = kind};
    array a[SHERD__CONV_ARRAYS];

    for (int i = 0; i < SHERD__CONV_ARRAYS; i++) {
        a[i] = i == made_by[kind] ? room_for(dtype, count[i], 0)
                                  : drawn(dtype, count[i], 0, -1, 1, (uint64_t)i);
        task.array[i] = a[i].data;
    }
    plain(dtype, c, kind, a, made_by[kind]);
    bool there = sherd__device_convolves(device, dtype, c, kind);
    CHECK_EQ(there, !(kind == SHERD__CONV_BACKWARD_X && c->kernel[0] == 3 && c->stride[0] == 4));
    if (there) {
        sherd__device_convolve(device, dtype, c, &task);
        same(&a[made_by[kind]], 1e-5, "a convolution");
        sherd__device_convolve(device, dtype, c, &task);
        same_bits(&a[made_by[kind]], "a convolution");
    }
    for (int i = 0; i < SHERD__CONV_ARRAYS; i++)
        drop(&a[i]);
}

static void convolutions_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int kind = 0; kind < 3; kind++)
                one_is_plain(dtypes[d], &shapes[s], (sherd__conv_kind)kind);
    close_device();
}

/* What is kept of shapes has an end. */
static void many_shapes(void)
{
    sherd__conv c = shapes[0];

    open_device();
    for (int i = 0; i < 1200; i++) {
        c.out_channels = 1 + i;
        CHECK(sherd__device_convolves(device, SHERD_F32, &c, SHERD__CONV_FORWARD));
    }
    one_is_plain(SHERD_F32, &shapes[0], SHERD__CONV_FORWARD);
    CHECK(heap.live < 1 << 20);
    close_device();
}

static void too_large_for_it(void)
{
    sherd__conv c = shapes[0];

    open_device();
    c.batch = 1LL << 40;
    CHECK(!sherd__device_convolves(device, SHERD_F32, &c, SHERD__CONV_FORWARD));
    c = shapes[0]; /* taps so far apart that a copy of what is read would be 2^60 elements */
    c.dilation[1] = c.dilation[2] = c.before[1] = 1 << 29;
    CHECK(!sherd__device_convolves(device, SHERD_F32, &c, SHERD__CONV_FORWARD));
    c.dilation[1] = c.dilation[2] = c.before[1] = 1 << 12; /* no memory for it */
    CHECK(!sherd__device_convolves(device, SHERD_F32, &c, SHERD__CONV_BACKWARD_W));
    CHECK(!sherd__device_convolves(device, SHERD_I32, &shapes[0], SHERD__CONV_FORWARD));
    close_device();
}

static void none_without_cudnn(void)
{
    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_LACKS", "dnn", 1);
    open_device();
    CHECK(!sherd__device_convolves(device, SHERD_F32, &shapes[0], SHERD__CONV_FORWARD));
    CHECK(!sherd__device_convolves(device, SHERD_F32, &shapes[0], SHERD__CONV_BACKWARD_X));
    close_device();
    unsetenv("SHERD_EMULATED_CUDA_LACKS");
    CHECK_EQ(left_of_cuda(), 0);
}

/* Each call of cuDNN's lacks memory once: there is no way then, or lack is noted, and nothing is
 * left over. */
static void lack_of_memory(void)
{
    const sherd__conv *c = &shapes[5];
    int refused = 0, lacked = 0;
    bool done = !is_emulated();

    for (int n = 0; !done && n < 100; n++) {
        open_device();
        array x = drawn(SHERD_F32, c->batch * c->in_channels * product(c->in), 0, -1, 1, 1);
        array w = drawn(SHERD_F32, 64, 0, -1, 1, 2), y = room_for(SHERD_F32, 256, 0);
        const sherd__conv_task task = {SHERD__CONV_FORWARD, {x.data, w.data, y.data}};
        CHECK(sherd__device_wait(device));
        lack_call(n);
        bool can = sherd__device_convolves(device, SHERD_F32, c, SHERD__CONV_FORWARD);
        refused += !can;
        if (can)
            sherd__device_convolve(device, SHERD_F32, c, &task);
        done = call_will_fail();
        lack_call(-1);
        lacked += sherd__device_lacked(device) != NULL;
        drop(&x), drop(&w), drop(&y);
        close_device();
        CHECK_EQ(left_of_cuda(), 0);
    }
    CHECK(done);
    CHECK(!is_emulated() || (refused > 5 && lacked > 1));
}

static const check_test tests[] = {
    {TEST(convolutions_are_plain)}, {TEST(many_shapes)},    {TEST(too_large_for_it)},
    {TEST(none_without_cudnn)},     {TEST(lack_of_memory)},
};
CHECK_MAIN(tests)
