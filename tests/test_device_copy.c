/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and fills of boxes on the GPU: every element of random boxes, of all sizes of elements, at
 * places off any alignment, lies where the CPU's copy puts it, and nothing else is touched. */
#define CHECK_PURE
#include "device_numbers.h"

static const sherd_dtype by_size[] = {SHERD_U8, SHERD_BF16, SHERD_F32, SHERD_F64};

typedef struct box {
    int ndim;
    int64_t size[SHERD_MAX_DIMS], dst[SHERD_MAX_DIMS], src[SHERD_MAX_DIMS];
} box;

static const box boxes[] = {
    {0, {0}, {0}, {0}},
    {1, {0}, {1}, {1}},
    {1, {131}, {1}, {1}},
    {1, {50}, {1}, {0}},
    {1, {50}, {3}, {2}},
    {2, {7, 48}, {48, 1}, {64, 1}},                /* whole accesses */
    {2, {7, 13}, {17, 1}, {13, 1}},                /* none */
    {2, {9, 24}, {24, 1}, {0, 1}},                 /* a row again and again */
    {2, {9, 24}, {24, 1}, {1, 0}},                 /* a column again and again */
    {2, {70, 45}, {45, 1}, {1, 70}},               /* a transposition, of no whole tiles */
    {2, {64, 64}, {1, 64}, {64, 1}},               /* one that comes by dst */
    {3, {3, 40, 33}, {1320, 33, 1}, {40, 1, 120}}, /* of planes */
    {4, {2, 10, 3, 9}, {270, 27, 9, 1}, {30, 1, 10, 60}},
    {2, {5, 70}, {70, 1}, {1, 5}}, /* one dim too small for tiles */
    {5, {2, 3, 4, 1, 5}, {60, 20, 5, 9, 1}, {1, 2, 6, 9, 24}},
    {8, {2, 2, 2, 2, 2, 2, 2, 2}, {128, 64, 32, 16, 8, 4, 2, 1}, {1, 4, 2, 8, 64, 32, 16, 128}},
};

static int64_t reach(int ndim, const int64_t *size, const int64_t *stride)
{
    int64_t last = 0;

    for (int d = 0; d < ndim; d++)
        last += size[d] > 0 ? (size[d] - 1) * stride[d] : 0;
    return last + 1;
}

static void check_copy(sherd__device *device, sherd_dtype dtype, const box *b, int off)
{
    size_t bytes = sherd_dtype_bytes(dtype);
    array dst = blank(device, dtype, reach(b->ndim, b->size, b->dst), off);
    array src = drawn(device, dtype, reach(b->ndim, b->size, b->src), off, 0, 255);
    char what[32];

    snprintf(what, sizeof what, "box %d", (int)(b - boxes));
    sherd__device_copy_box(device, bytes, b->ndim, b->size, dst.gpu, b->dst, src.gpu, b->src);
    sherd__copy_box(bytes, b->ndim, b->size, dst.host, b->dst, src.host, b->src);
    check_same(device, &dst, what);
    drop(device, &dst);
    drop(device, &src);
}

static void every_element_lies_where_the_cpu_puts_it(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(boxes) * LEN(by_size) * 2; i++) {
        sherd_dtype dtype = by_size[i % 4];
        check_copy(device, dtype, &boxes[i / 4 % LEN(boxes)],
                   i / 4 / LEN(boxes) * (int)sherd_dtype_bytes(dtype));
    }
    close_gpu(&heap, device);
}

/* Complex numbers of f64 are elements of 16 bytes. */
static void pairs_are_copied_at_once(void)
{
    const int64_t size[] = {70, 45, 2}, to[] = {45, 1}, from[] = {1, 70};
    const int64_t to_each[] = {90, 2, 1}, from_each[] = {2, 140, 1}, n = 2 * 70 * 45;
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (!device)
        return;
    array dst = blank(device, SHERD_F64, n, 0), src = drawn(device, SHERD_F64, n, 0, 0, 255);
    sherd__device_copy_box(device, 16, 2, size, dst.gpu, to, src.gpu, from);
    sherd__copy_box(8, 3, size, dst.host, to_each, src.host, from_each);
    check_same(device, &dst, "pairs");
    drop(device, &dst);
    drop(device, &src);
    close_gpu(&heap, device);
}

static uint32_t next_of(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

/* Strides of a dense box whose dims lie in a random order, some with gaps behind them. */
static void lay(uint32_t *state, int ndim, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;
    int order[SHERD_MAX_DIMS];

    for (int d = 0; d < ndim; d++) {
        int at = (int)(next_of(state) % (uint32_t)(d + 1));
        order[d] = order[at];
        order[at] = d;
    }
    for (int i = ndim - 1; i >= 0; i--) {
        stride[order[i]] = step;
        step *= size[order[i]] + (next_of(state) % 3 == 0 ? next_of(state) % 9 : 0);
    }
}

static void random_boxes_too(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    uint32_t state = 5;

    for (int i = 0; device && i < 400; i++) {
        box b = {.ndim = 1 + (int)(next_of(&state) % 4)};
        for (int d = 0; d < b.ndim; d++)
            b.size[d] = 1 + next_of(&state) % (next_of(&state) % 2 ? 4 : 24);
        lay(&state, b.ndim, b.size, b.dst);
        lay(&state, b.ndim, b.size, b.src);
        if (next_of(&state) % 4 == 0)
            b.src[next_of(&state) % (uint32_t)b.ndim] = 0;
        sherd_dtype dtype = by_size[i % 4];
        check_copy(device, dtype, &b, i / 4 % 4 * (int)sherd_dtype_bytes(dtype));
    }
    close_gpu(&heap, device);
}

static void large_boxes_too(void)
{
    static const box rows = {2, {1200, 1000}, {1001, 1}, {1003, 1}};
    static const box turned = {2, {1300, 900}, {900, 1}, {1, 1300}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (device) {
        check_copy(device, SHERD_F32, &rows, 0);
        check_copy(device, SHERD_BF16, &turned, 0);
    }
    close_gpu(&heap, device);
}

static void fills_fill_boxes_alone(void)
{
    static const unsigned char value[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const int64_t none[SHERD_MAX_DIMS] = {0};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(boxes) * LEN(by_size) * 2; i++) {
        const box *b = &boxes[i / 4 % LEN(boxes)];
        sherd_dtype dtype = by_size[i % 4];
        size_t bytes = sherd_dtype_bytes(dtype);
        int far = i / 4 / LEN(boxes);
        array dst = blank(device, dtype, reach(b->ndim, b->size, b->dst), far * (int)bytes);
        sherd__device_fill_box(device, bytes, b->ndim, b->size, dst.gpu, b->dst, value);
        sherd__copy_box(bytes, b->ndim, b->size, dst.host, b->dst, value, none);
        check_same(device, &dst, "fill");
        drop(device, &dst);
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(every_element_lies_where_the_cpu_puts_it)},
    {TEST(pairs_are_copied_at_once)},
    {TEST(random_boxes_too)},
    {TEST(large_boxes_too)},
    {TEST(fills_fill_boxes_alone)},
};
CHECK_MAIN(tests)
