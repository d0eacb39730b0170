/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of boxes: each element of the source holds its own index, so a wrong move shows as a wrong
 * number at a known place. The destination around the box must stay as it was.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/stream.h"
#include "vector/choose.h"

enum { ROOM = 1 << 16, UNTOUCHED = 0xEE };

static unsigned char src[ROOM], dst[ROOM], expect[ROOM];

/* One element after the other, as the contract says. */
static void plainly(size_t bytes, int ndim, const int64_t *size, const int64_t *to,
                    const int64_t *from)
{
    int64_t index[SHERD_MAX_DIMS] = {0}, n = 1;

    for (int d = 0; d < ndim; d++)
        n *= size[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, at_dst = 0, at_src = 0;
        for (int d = ndim - 1; d >= 0; d--) {
            index[d] = left % size[d];
            left /= size[d];
            at_dst += index[d] * to[d];
            at_src += index[d] * from[d];
        }
        memcpy(expect + (size_t)at_dst * bytes, src + (size_t)at_src * bytes, bytes);
    }
}

static void try_box(size_t bytes, int ndim, const int64_t *size, const int64_t *to,
                    const int64_t *from)
{
    memset(dst, UNTOUCHED, sizeof dst);
    memset(expect, UNTOUCHED, sizeof expect);
    plainly(bytes, ndim, size, to, from);
    sherd__copy_box(bytes, ndim, size, dst, to, src, from);
    if (!CHECK_EQ(memcmp(dst, expect, sizeof dst), 0))
        fprintf(stderr, "%d bytes, %d dims, size %d %d %d, to %d %d %d, from %d %d %d\n",
                (int)bytes, ndim, (int)size[0], (int)size[1], (int)size[2], (int)to[0], (int)to[1],
                (int)to[2], (int)from[0], (int)from[1], (int)from[2]);
}

static void number_the_source(void)
{
    for (int i = 0; i < ROOM; i++)
        src[i] = (unsigned char)(i * 7 + (i >> 8));
}

/* Strides of a box of `size` inside of a tensor with room for a few more, its dims in the order
 * `turn`. */
static void strides(int64_t *stride, const int64_t *size, int turn, int64_t more)
{
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                     {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    int64_t step = 1;

    for (int i = 2; i >= 0; i--) {
        int d = orders[turn][i];
        stride[d] = step;
        step *= size[d] + more;
    }
}

static void every_order_of_dims_on_both_sides(void)
{
    static const int64_t sizes[][3] = {{4, 5, 6}, {1, 7, 3}, {17, 16, 15}, {2, 33, 18}, {3, 1, 1},
                                       {1, 1, 1}, {0, 4, 4}, {4, 0, 4},    {4, 4, 0}};
    static const size_t bytes[] = {1, 4, 8, 2, 12};

    number_the_source();
    for (int s = 0; s < LEN(sizes); s++)
        for (int b = 0; b < LEN(bytes); b++)
            for (int turn = 0; turn < 36; turn++)
                for (int more = 0; more < 4; more++) {
                    int64_t to[3], from[3];
                    strides(to, sizes[s], turn / 6, more & 1);
                    strides(from, sizes[s], turn % 6, more & 2);
                    try_box(bytes[b], 3, sizes[s], to, from);
                }
}

/* Whole tiles, parts of tiles, and parts of vectors; also of a larger tensor on each side. */
static void planes_are_turned(void)
{
    static const int64_t sizes[][2] = {{64, 64}, {32, 32},  {8, 8},   {9, 7},    {7, 64},
                                       {65, 8},  {100, 71}, {16, 90}, {130, 33}, {15, 129}};
    static const size_t bytes[] = {1, 2, 4, 8};

    number_the_source();
    for (int i = 0; i < LEN(sizes) * LEN(bytes) * 4; i++) {
        const int64_t *plane = sizes[i / LEN(bytes) / 4];
        const int64_t size[3] = {1, plane[0], plane[1]}, more = i / LEN(bytes) & 1;
        const int64_t to[3] = {0, plane[1] + more, 1};
        const int64_t from[3] = {0, 1, plane[0] + (i / LEN(bytes) / 2 & 1)};
        try_box(bytes[i % LEN(bytes)], 3, size, to, from);
    }
}

static void rows_are_reversed(void)
{
    static const size_t bytes[] = {1, 2, 4, 8, 12};

    number_the_source();
    for (int b = 0; b < LEN(bytes); b++)
        for (int64_t n = 1; n < 70; n += n < 36 ? 1 : 11) {
            const int64_t size[3] = {1, 40, n}, to[3] = {0, n + 2, 1}, from[3] = {0, n, -1};
            memset(dst, UNTOUCHED, sizeof dst);
            memset(expect, UNTOUCHED, sizeof expect);
            for (int64_t i = 0; i < 40; i++)
                for (int64_t j = 0; j < n; j++)
                    memcpy(expect + (size_t)(i * (n + 2) + j) * bytes[b],
                           src + (size_t)(i * n + n - 1 - j) * bytes[b], bytes[b]);
            sherd__copy_box(bytes[b], 3, size, dst, to, src + (size_t)(n - 1) * bytes[b], from);
            CHECK_EQ(memcmp(dst, expect, sizeof dst), 0);
        }
}

/* Planes of many rows that are a few elements each. */
static void short_rows_are_reversed(void)
{
    static const size_t bytes[] = {1, 2, 4, 8, 12};

    number_the_source();
    for (int b = 0; b < LEN(bytes); b++)
        for (int64_t n = 2; n < 7; n++)
            for (int64_t gap = 0; gap < 2; gap++) {
                const int64_t rows = 720, size[3] = {6, rows / 6, n};
                const int64_t to[3] = {rows / 6 * (n + gap), n + gap, 1};
                const int64_t from[3] = {rows / 6 * n, n, -1};
                memset(dst, UNTOUCHED, sizeof dst);
                memset(expect, UNTOUCHED, sizeof expect);
                for (int64_t i = 0; i < rows / 6 * 6; i++)
                    for (int64_t j = 0; j < n; j++)
                        memcpy(expect + (size_t)(i * (n + gap) + j) * bytes[b],
                               src + (size_t)(i * n + n - 1 - j) * bytes[b], bytes[b]);
                sherd__copy_box(bytes[b], 3, size, dst, to, src + (size_t)(n - 1) * bytes[b], from);
                CHECK_EQ(memcmp(dst, expect, sizeof dst), 0);
            }
}

/* Rows for which memcpy may be slow: from any place in a line to any other. */
static void long_rows_are_shifted(void)
{
    static const int64_t lengths[] = {1024, 1025, 1100, 2047, 4000};

    number_the_source();
    for (int i = 0; i < LEN(lengths); i++)
        for (int64_t more = 0; more < 70; more += 23)
            try_box(1, 3, (int64_t[]){1, 7, lengths[i]}, (int64_t[]){0, lengths[i] + more, 1},
                    (int64_t[]){0, lengths[i] + 1, 1});
}

static void rows_of_every_length_are_permuted(void)
{
    static const int64_t lengths[] = {1, 4, 8, 15, 16, 32, 33, 64, 128, 130};

    number_the_source();
    for (int i = 0; i < LEN(lengths); i++) {
        int64_t n = lengths[i], size[3] = {5, 9, n};
        try_box(4, 3, size, (int64_t[]){9 * n, n, 1}, (int64_t[]){n, 5 * n, 1});
        try_box(1, 3, size, (int64_t[]){9 * n + 100, n + 2, 1}, (int64_t[]){n, 5 * n, 1});
    }
}

static void a_source_stride_of_zero_repeats(void)
{
    const int64_t size[3] = {5, 6, 7}, to[3] = {42, 7, 1};
    static const int64_t from[][3] = {{0, 7, 1}, {7, 0, 1}, {7, 1, 0},
                                      {0, 0, 1}, {0, 1, 0}, {0, 0, 0}};

    number_the_source();
    for (int i = 0; i < LEN(from); i++)
        try_box(4, 3, size, to, from[i]);
}

static void long_rows_of_one_element_are_exact(void)
{
    enum { ROWS = 3, GAP = 2, LONGEST = 3000 };
    static uint64_t from[ROWS] = {0x0102030405060708u, 0x1112131415161718u, 0x2122232425262728u};
    static char to[ROWS * 8 * (LONGEST + GAP)];

    for (size_t bytes = 1; bytes <= 8; bytes *= 2)
        for (int64_t n = 1; n <= LONGEST; n += n < 40 ? 1 : n / 3) {
            const int64_t size[] = {ROWS, n}, dst_stride[] = {n + GAP, 1};
            const int64_t src_stride[] = {8 / (int64_t)bytes, 0};
            int64_t wrong = 0;
            memset(to, UNTOUCHED, sizeof to);
            sherd__copy_box(bytes, 2, size, to, dst_stride, from, src_stride);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t i = 0; i < n + GAP; i++) {
                    const char *at = to + (size_t)(r * (n + GAP) + i) * bytes;
                    wrong += i < n ? memcmp(at, &from[r], bytes) != 0 : (uint8_t)*at != UNTOUCHED;
                }
            CHECK_EQ(wrong, 0);
        }
}

/* So many that they are no box of few bytes. */
static void many_short_rows_of_one_element_each_are_exact(void)
{
    enum { ROWS = 4200, GAP = 1, LONGEST = 70 };
    static uint64_t from[ROWS];
    static char to[ROWS * 8 * (LONGEST + GAP)];

    for (uint64_t r = 0; r < ROWS; r++)
        from[r] = r * 0x9E3779B97F4A7C15u;
    for (size_t bytes = 1; bytes <= 8; bytes *= 2)
        for (int64_t n = 1; n <= LONGEST; n += n < 34 ? 1 : 12) {
            const int64_t size[] = {ROWS, n}, dst_stride[] = {n + GAP, 1};
            const int64_t src_stride[] = {8 / (int64_t)bytes, 0};
            int64_t wrong = 0;
            memset(to, UNTOUCHED, sizeof to);
            sherd__copy_box(bytes, 2, size, to, dst_stride, from, src_stride);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t i = 0; i < n + GAP; i++) {
                    const char *at = to + (size_t)(r * (n + GAP) + i) * bytes;
                    wrong += i < n ? memcmp(at, &from[r], bytes) != 0 : (uint8_t)*at != UNTOUCHED;
                }
            CHECK_EQ(wrong, 0);
        }
}

static void no_dims_are_one_element(void)
{
    const int64_t none[3] = {0};

    number_the_source();
    try_box(4, 0, none, none, none);
    try_box(1, 0, none, none, none);
}

/* However many rows of nothing there are. */
static void a_size_of_zero_is_no_element(void)
{
    static const int64_t wide = INT64_C(1) << 61;
    const int64_t sizes[][3] = {{0, 1, 1}, {1, 3, 0}, {wide, 0, 1}, {2, wide, 0}, {0, wide, wide}};
    static const int64_t to[] = {0, 0, 1}, from[] = {1, 3, 5};

    for (int i = 0; i < 5; i++) {
        sherd__copy_box(8, 3, sizes[i], NULL, to, NULL, from);
        sherd__copy_box(4, 3, sizes[i], NULL, from, NULL, to);
        sherd__copy_box(2, 3, sizes[i], NULL, to, NULL, to);
    }
}

static void all_dims_of_size_two(void)
{
    const int64_t size[8] = {2, 2, 2, 2, 2, 2, 2, 2};
    int64_t to[8], from[8];

    number_the_source();
    sherd__row_major(8, size, to);
    for (int i = 0; i < 8; i++)
        from[i] = to[7 - i];
    try_box(8, 8, size, to, from);
    try_box(8, 8, size, to, to);
}

static void row_major_strides(void)
{
    const int64_t size[] = {4, 3, 5}, empty[] = {4, 0, 5};
    int64_t stride[3];

    sherd__row_major(3, size, stride);
    CHECK(stride[0] == 15 && stride[1] == 5 && stride[2] == 1);
    sherd__row_major(3, empty, stride);
    CHECK(stride[2] == 1);
    sherd__row_major(0, NULL, NULL);
}

/* Past the size from which copies stream: whole, and as rows that begin and end anywhere in a line.
 */
static void large_boxes_are_exact(void)
{
    static const int64_t rows[][2] = {{1, 3 << 20}, {4096, 700}, {4099, 601}, {43, 70001}};

    for (int i = 0; i < LEN(rows); i++)
        for (int shift = 0; shift < 3; shift++) {
            const int64_t *size = rows[i], to[] = {size[1] + 3, 1}, from[] = {size[1] + 1, 1};
            int64_t n = size[0] * (size[1] + 3) + 8, wrong = 0;
            int32_t *a = malloc((size_t)n * 4), *b = calloc((size_t)n, 4);
            CHECK(a && b);
            for (int64_t j = 0; a && j < n; j++)
                a[j] = (int32_t)j;
            if (a && b)
                sherd__copy_box(4, 2, size, b + shift, to, a + 1, from);
            for (int64_t r = 0; a && b && r < size[0]; r++) {
                for (int64_t c = 0; c < size[1]; c++)
                    wrong += b[shift + r * to[0] + c] != 1 + r * from[0] + c;
                for (int64_t c = size[1]; c < to[0]; c++)
                    wrong += b[shift + r * to[0] + c] != 0;
            }
            CHECK_EQ(wrong, 0);
            free(a);
            free(b);
        }
}

static void streams_of_any_length_and_alignment(void)
{
    number_the_source();
    for (int n = 0; n < 300; n++)
        for (int at = 0; at < 64; at += 7) {
            memset(dst, UNTOUCHED, 600);
            memset(expect, UNTOUCHED, 600);
            memcpy(expect + 64 + at, src + n, (size_t)n);
            sherd__stream(dst + 64 + at, src + n, (size_t)n);
            sherd__stream_end();
            CHECK_EQ(memcmp(dst, expect, 600), 0);
        }
}

/* Long enough for pages side by side. */
static void long_streams_are_exact(void)
{
    number_the_source();
    for (size_t n = 30000; n < ROOM - 4096; n += 2741)
        for (size_t at = 0; at < 64; at += 9) {
            memset(dst, UNTOUCHED, sizeof dst);
            memset(expect, UNTOUCHED, sizeof expect);
            memcpy(expect + 64 + at, src + n % 1000, n);
            sherd__stream(dst + 64 + at, src + n % 1000, n);
            sherd__stream_end();
            CHECK_EQ(memcmp(dst, expect, sizeof dst), 0);
        }
}

/* What lies around them stays. */
static void the_kernel_copies_any_bytes(void)
{
    sherd__kernel_set set;

    number_the_source();
    sherd__kernels_choose(&set);
    for (size_t n = 0; set.f32.copy && n < 20000; n += n < 300 ? 1 : 977)
        for (size_t at = 0; at < 64; at += 7) {
            memset(dst, UNTOUCHED, n + 200);
            memset(expect, UNTOUCHED, n + 200);
            memcpy(expect + 64 + at, src + n % 100, n);
            set.f32.copy(dst + 64 + at, src + n % 100, n);
            CHECK_EQ(memcmp(dst, expect, n + 200), 0);
        }
}

static const check_test tests[] = {
    {TEST(every_order_of_dims_on_both_sides)},
    {TEST(planes_are_turned)},
    {TEST(rows_are_reversed)},
    {TEST(short_rows_are_reversed)},
    {TEST(long_rows_are_shifted)},
    {TEST(rows_of_every_length_are_permuted)},
    {TEST(a_source_stride_of_zero_repeats)},
    {TEST(long_rows_of_one_element_are_exact)},
    {TEST(many_short_rows_of_one_element_each_are_exact)},
    {TEST(no_dims_are_one_element)},
    {TEST(a_size_of_zero_is_no_element)},
    {TEST(all_dims_of_size_two)},
    {TEST(row_major_strides)},
    {TEST(large_boxes_are_exact)},
    {TEST(streams_of_any_length_and_alignment)},
    {TEST(long_streams_are_exact)},
    {TEST(the_kernel_copies_any_bytes)},
};
CHECK_MAIN(tests)
