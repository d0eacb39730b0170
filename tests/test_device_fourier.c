/* SPDX-License-Identifier: Apache-2.0 */
/* Fourier transforms on the GPU are those of the CPU, however columns lie; where cuFFT is not
 * there, that is said before. */
#define CHECK_PURE
#include "check.h"
#include "device/fourier.h"
#include "device_arrays.h"

/* outer, n, inner */
static const int64_t shapes[][3] = {{1, 1, 1}, {5, 8, 1}, {1, 6, 7}, {3, 5, 4}, {2, 9, 8}};

/* Elements that are read or made, in reals. */
static int64_t reals(const sherd__fft *t, bool reads)
{
    bool real = t->kind == (reads ? SHERD__FFT_TO_HALF : SHERD__FFT_FROM_HALF);
    bool half = t->kind == (reads ? SHERD__FFT_FROM_HALF : SHERD__FFT_TO_HALF);

    return t->outer * t->inner * (half ? t->n / 2 + 1 : t->n) * (real ? 1 : 2);
}

/* `shift`: elements that the input is off from where it is aligned. */
static void one_is_plain(sherd_dtype dtype, const sherd__fft *t, int shift)
{
    const sherd__kernels *k = plain_of(dtype);
    array x = drawn(dtype, reals(t, true), shift, -1, 1, 1),
          y = room_for(dtype, reals(t, false), 0);
    void *workspace = malloc((size_t)k->fft_workspace(t) + 1);

    if (!workspace)
        abort();
    k->fft(t, y.host, x.host, workspace);
    if (CHECK(sherd__device_transforms(device, dtype, t))) {
        sherd__device_fft(device, dtype, t, y.data, x.data);
        same(&y, 1e-5, "a transform");
        sherd__device_fft(device, dtype, t, y.data, x.data);
        same_bits(&y, "a transform");
        fetch(&x);
        CHECK(memcmp(x.got, x.host, (size_t)x.bytes) == 0); /* what is read stays */
    }
    free(workspace);
    drop(&x), drop(&y);
}

static void transforms_are_plain(void)
{
    open_device();
    for (int d = 0; d < 2; d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int bits = 0; bits < 8; bits++) {
                sherd__fft t = {.kind = bits & 1 ? SHERD__FFT_TO_HALF : SHERD__FFT_COMPLEX,
                                .inverse = bits & 1 ? false : bits & 2,
                                .folded = bits & 1 ? bits & 2 : false,
                                .outer = shapes[s][0],
                                .n = shapes[s][1],
                                .inner = shapes[s][2],
                                .scale = bits & 4 ? 0.25 : 1};
                one_is_plain(dtypes[d], &t, s % 2);
                t.kind = SHERD__FFT_FROM_HALF;
                t.inverse = true;
                t.folded = bits & 2;
                one_is_plain(dtypes[d], &t, s % 2);
            }
    close_device();
}

/* Slabs that are large go one by one, but where they would not be aligned. */
static void large_slabs(void)
{
    open_device();
    for (int odd = 0; odd < 2; odd++) {
        sherd__fft t = {.kind = SHERD__FFT_COMPLEX, .outer = 2, .n = 4, .scale = 1};
        t.inner = (1 << 14) + odd;
        one_is_plain(SHERD_F32, &t, 0);
        t.kind = SHERD__FFT_TO_HALF;
        t.n = 5;
        one_is_plain(SHERD_F32, &t, 0);
    }
    close_device();
}

static void many_shapes(void)
{
    sherd__fft t = {.kind = SHERD__FFT_COMPLEX, .outer = 1, .inner = 1, .scale = 1};

    open_device();
    for (t.n = 1; t.n < 300; t.n++)
        CHECK(sherd__device_transforms(device, SHERD_F32, &t));
    CHECK(!sherd__device_transforms(device, SHERD_BF16, &t));
    close_device();
    CHECK_EQ(left_of_cuda(), 0);
}

static void none_without_cufft(void)
{
    const sherd__fft t = {.kind = SHERD__FFT_COMPLEX, .outer = 1, .n = 4, .inner = 1, .scale = 1};

    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_LACKS", "fft", 1);
    open_device();
    CHECK(!sherd__device_transforms(device, SHERD_F32, &t));
    close_device();
    unsetenv("SHERD_EMULATED_CUDA_LACKS");
}

/* Each call that lacks memory once: there is no way then, or lack is noted; nothing is left. */
static void lack_of_memory(void)
{
    const sherd__fft t = {
        .kind = SHERD__FFT_FROM_HALF, .inverse = true, .outer = 2, .n = 4, .inner = 2, .scale = 1};
    int refused = 0, lacked = 0;
    bool done = !is_emulated();

    for (int n = 0; !done && n < 100; n++) {
        open_device();
        array x = drawn(SHERD_F32, reals(&t, true), 0, -1, 1, 1);
        array y = room_for(SHERD_F32, reals(&t, false), 0);
        CHECK(sherd__device_wait(device));
        lack_call(n);
        bool can = sherd__device_transforms(device, SHERD_F32, &t);
        refused += !can;
        if (can)
            sherd__device_fft(device, SHERD_F32, &t, y.data, x.data);
        done = call_will_fail();
        lack_call(-1);
        lacked += sherd__device_lacked(device) != NULL;
        drop(&x), drop(&y);
        close_device();
        CHECK_EQ(left_of_cuda(), 0);
    }
    CHECK(done);
    CHECK(!is_emulated() || (refused > 2 && lacked > 1));
}

static const check_test tests[] = {
    {TEST(transforms_are_plain)}, {TEST(large_slabs)},    {TEST(many_shapes)},
    {TEST(none_without_cufft)},   {TEST(lack_of_memory)},
};
CHECK_MAIN(tests)
