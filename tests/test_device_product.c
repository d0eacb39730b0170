/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the GPU, with small whole numbers: right to the last bit in every dtype, stored any
 * way round, with gaps between rows, with a bias, added, several at once, and with nothing in
 * them. */
#define CHECK_PURE
#include "device.h"
#include "device/product.h"

#include "base/num.h"

enum { GAP = 3, MOST = 4 << 10 };

typedef struct layout {
    bool ta, tb, bias, adds, gaps;
    int64_t times;
} layout;

static const int64_t shapes[][3] = {{1, 1, 1}, {4, 5, 6}, {7, 3, 1},  {1, 9, 4},
                                    {5, 1, 8}, {3, 4, 0}, {16, 8, 32}};

/* A whole number of at most 3, for an element. */
static int value(int64_t seed, int64_t i)
{
    return (int)((i * 7 + seed * 5 + i / 3) % 7) - 3;
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* Whole numbers below 2048. */
static uint16_t f16_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return x == 0 ? 0
                  : (uint16_t)((bits >> 16 & 0x8000) |
                               (((bits >> 23 & 0xff) - 112) << 10 | (bits >> 13 & 0x3ff)));
}

static void store(sherd_dtype dtype, void *data, int64_t at, double x)
{
    if (dtype == SHERD_F64)
        ((double *)data)[at] = x;
    else if (dtype == SHERD_F32)
        ((float *)data)[at] = (float)x;
    else
        ((uint16_t *)data)[at] = dtype == SHERD_BF16 ? bf16_of((float)x) : f16_of((float)x);
}

/* The number of an element, so that the zeros are equal: an order of additions chooses between
 * them. */
static double load(sherd_dtype dtype, const void *data, int64_t at)
{
    float out;

    if (dtype == SHERD_F64)
        return ((const double *)data)[at];
    if (dtype == SHERD_F32)
        return ((const float *)data)[at];
    uint16_t half = ((const uint16_t *)data)[at];
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fffu;
    uint32_t bits = dtype == SHERD_BF16 ? (uint32_t)rest << 16
                    : rest              ? (rest << 13) + (112u << 23)
                                        : 0;
    bits |= sign;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* A matrix as stored, rows x cols, `row` apart, on the GPU; -9 in the gaps. */
static sherd__device_block *put_matrix(sherd__device *device, sherd_dtype dtype, int64_t seed,
                                       int64_t rows, int64_t cols, int64_t row)
{
    static double data[MOST];

    for (int64_t i = 0; i < rows * row; i++)
        store(dtype, data, i, i % row < cols ? value(seed, i / row * cols + i % row) : -9);
    int64_t bytes = rows * row * (int64_t)sherd_dtype_bytes(dtype);
    sherd__device_block *block = sherd__device_take(device, bytes + 1);
    CHECK(block && rows * row <= MOST);
    sherd__device_upload(device, block->data, data, bytes);
    return block;
}

/* Element [i, j] of product t. */
static double expected(const sherd__product *p, const layout *l, int64_t t, int64_t i, int64_t j)
{
    double sum = (l->bias ? value(3, j) : 0) + (l->adds ? value(4, (t * p->m + i) * p->n + j) : 0);

    for (int64_t k = 0; k < p->k; k++) {
        int64_t a = t * p->m * p->k + (p->ta ? k * p->m + i : i * p->k + k);
        int64_t b = t * p->k * p->n + (p->tb ? j * p->k + k : k * p->n + j);
        sum += value(1, a) * value(2, b);
    }
    return sum;
}

static void check_product(sherd__device *device, const sherd__product *p, const layout *l)
{
    static double data[MOST], want[MOST];
    int64_t a_rows = p->ta ? p->k : p->m, a_cols = p->ta ? p->m : p->k;
    int64_t b_rows = p->tb ? p->n : p->k, b_cols = p->tb ? p->k : p->n, row = p->n;
    size_t size = sherd_dtype_bytes(p->result);

    row = p->c_row ? p->c_row : row;
    sherd__device_block *a = put_matrix(device, p->dtype, 1, a_rows * l->times, a_cols,
                                        p->a_row ? p->a_row
                                        : a_cols ? a_cols
                                                 : 1);
    sherd__device_block *b = put_matrix(device, p->dtype, 2, b_rows * l->times, b_cols,
                                        p->b_row ? p->b_row
                                        : b_cols ? b_cols
                                                 : 1);
    sherd__device_block *bias = put_matrix(device, p->dtype, 3, 1, p->n, p->n);
    sherd__device_block *c = put_matrix(device, p->result, 4, p->m * l->times, p->n, row);
    sherd__device_multiply(device, p, l->times, c->data, a->data, b->data,
                           l->bias ? bias->data : NULL);
    int64_t count = l->times * p->m * row;
    for (int64_t i = 0; i < count; i++)
        store(p->result, want, i,
              i % row < p->n ? expected(p, l, i / row / p->m, i / row % p->m, i % row) : -9);
    CHECK(sherd__device_download(device, data, c->data, count * (int64_t)size));
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        wrong += load(p->result, data, i) != load(p->result, want, i);
    if (!CHECK_EQ(wrong, 0))
        printf("%s to %s [%lld,%lld,%lld] x %lld%s%s%s%s%s\n", sherd_dtype_name(p->dtype),
               sherd_dtype_name(p->result), (long long)p->m, (long long)p->n, (long long)p->k,
               (long long)l->times, l->ta ? " ta" : "", l->tb ? " tb" : "", l->bias ? " bias" : "",
               l->adds ? " adds" : "", l->gaps ? " gaps" : "");
    sherd__device_block *const all[] = {a, b, bias, c};
    for (int i = 0; i < LEN(all); i++)
        sherd__device_give(device, all[i]);
}

static void products_are_exact(void)
{
    static const sherd_dtype dtypes[][2] = {{SHERD_F32, SHERD_F32},   {SHERD_F64, SHERD_F64},
                                            {SHERD_BF16, SHERD_BF16}, {SHERD_F16, SHERD_F16},
                                            {SHERD_BF16, SHERD_F32},  {SHERD_F16, SHERD_F32}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int d = 0; device && d < LEN(dtypes); d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int bits = 0; bits < 64 && !sherd__device_fault(device); bits++) {
                const int64_t *n = shapes[s];
                layout l = {bits & 1, bits & 2, bits & 4, bits & 8, bits & 16, bits & 32 ? 3 : 1};
                sherd__product p = {.dtype = dtypes[d][0],
                                    .result = dtypes[d][1],
                                    .ta = l.ta,
                                    .tb = l.tb,
                                    .bias = l.bias,
                                    .adds = l.adds,
                                    .m = n[0],
                                    .n = n[1],
                                    .k = n[2]};
                if (l.gaps) {
                    p.a_row = (l.ta ? p.m : p.k) + GAP;
                    p.b_row = (l.tb ? p.k : p.n) + GAP;
                    p.c_row = p.n + GAP;
                }
                check_product(device, &p, &l);
            }
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

static void nothing_is_computed_of_nothing(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < 3; i++) {
        sherd__product p = {
            .dtype = SHERD_F32, .result = SHERD_F32, .m = i != 0, .n = i != 1, .k = 2};
        sherd__device_multiply(device, &p, i != 2, NULL, NULL, NULL, NULL);
    }
    close_gpu(&heap, device);
}

static void what_is_too_large_is_a_fault(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__product p = {
        .dtype = SHERD_F32, .result = SHERD_F32, .m = 1, .n = 1, .k = (int64_t)1 << 31};

    if (!device)
        return;
    sherd__device_multiply(device, &p, 1, NULL, NULL, NULL, NULL);
    const char *fault = sherd__device_fault(device);
    CHECK_TEXT(fault ? fault : "", "cuda:0: a product of [1,2147483648] and [2147483648,1] is too "
                                   "large");
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
}

static void multiply_into(sherd__device *device, char *data)
{
    const sherd__product p = {.dtype = SHERD_BF16, .result = SHERD_F32, .m = 2, .n = 3, .k = 4};

    sherd__device_multiply(device, &p, 1, data, data + 1024, data + 2048, data + 3072);
}

/* Every call that fails is a fault, or lack of memory: then the next product is computed. Nothing
 * is left behind. */
static void a_failed_call_is_told(void)
{
    for (int lacks = 0; lacks < 2 && is_emulated(); lacks++) {
        bool again = true;
        int failed = 0;
        for (int at = 0; again; at++) {
            sherd__heap heap = {0};
            sherd__device *device = open_gpu(&heap, "cuda", 0);
            sherd__device_block *room = device ? sherd__device_take(device, 4096) : NULL;
            float back[6];
            if (!room)
                return;
            sherd__device_set(device, room->data, 0, 4096);
            (lacks ? lack_call : fail_call)(at);
            multiply_into(device, room->data);
            fail_call(-1);
            const char *fault = sherd__device_fault(device), *lacked = sherd__device_lacked(device);
            again = fault || lacked;
            failed += again;
            CHECK(lacks ? !fault : !lacked);
            multiply_into(device, room->data);
            CHECK(fault || sherd__device_download(device, back, room->data, sizeof back));
            CHECK(fault || back[0] == 0);
            CHECK(!sherd__device_lacked(device));
            sherd__device_give(device, room);
            sherd__device_close(device);
            CHECK_EQ(heap.live, 0);
            CHECK_EQ(left_of_cuda(), 0);
        }
        CHECK(failed >= 4);
    }
}

/* What is too large for cuBLAS is known before it is asked for: the CPU computes it. */
static void sizes_are_of_31_bits(void)
{
    const int64_t most = (int64_t)1 << 31;
    const sherd__product good = {.dtype = SHERD_F32, .m = most - 1, .n = 2, .k = 2},
                         rows = {.dtype = SHERD_F32, .m = most, .n = 2, .k = 2},
                         apart = {.dtype = SHERD_F32, .m = 2, .n = 2, .k = 2, .b_row = most};

    CHECK(sherd__device_multiplies(&good, 1) && sherd__device_multiplies(&good, most - 1));
    CHECK(!sherd__device_multiplies(&good, most));
    CHECK(!sherd__device_multiplies(&rows, 1));
    CHECK(!sherd__device_multiplies(&apart, 1));
}

enum { OUT = 0, LEFT = 1024, RIGHT = 2048, ONES = 3072, ROOM = 8192, CALLS = 32 /* and more */ };

/* c[m,3] = 0 + ones. */
static void add_ones(sherd__device *device, char *data, int64_t m)
{
    const sherd__product p = {
        .dtype = SHERD_F32, .result = SHERD_F32, .m = m, .n = 3, .k = 4, .bias = true};

    sherd__device_multiply(device, &p, 1, data + OUT, data + LEFT, data + RIGHT, data + ONES);
}

static sherd__device_block *make_room(sherd__device *device)
{
    const float ones[] = {1, 1, 1};
    sherd__device_block *room = device ? sherd__device_take(device, ROOM) : NULL;

    if (!room)
        return NULL;
    sherd__device_set(device, room->data, 0, ROOM);
    sherd__device_upload(device, (char *)room->data + ONES, ones, sizeof ones);
    return room;
}

static bool are_ones(sherd__device *device, sherd__device_block *room, int64_t m)
{
    float back[64];
    bool good = sherd__device_download(device, back, room->data, m * 3 * (int64_t)sizeof *back);

    for (int64_t i = 0; good && i < 3 * m; i++)
        good = back[i] == 1;
    return good;
}

/* A product with a bias is right, or it is told why it is not, whichever call fails. */
static void a_bias_is_added_or_it_is_told(void)
{
    for (int lacks = 0; lacks < 2 && is_emulated(); lacks++) {
        for (int at = 0; at < CALLS; at++) {
            sherd__heap heap = {0};
            sherd__device *device = open_gpu(&heap, "cuda", 0);
            sherd__device_block *room = make_room(device);
            if (!room)
                return;
            (lacks ? lack_call : fail_call)(at);
            add_ones(device, room->data, 2);
            fail_call(-1);
            const char *fault = sherd__device_fault(device), *lacked = sherd__device_lacked(device);
            CHECK(fault || lacked || are_ones(device, room, 2));
            add_ones(device, room->data, 2);
            CHECK(fault || are_ones(device, room, 2));
            sherd__device_give(device, room);
            sherd__device_close(device);
            CHECK_EQ(heap.live, 0);
            CHECK_EQ(left_of_cuda(), 0);
        }
    }
}

/* More shapes than are kept, each twice. */
static void sizes_may_vary_for_ever(void)
{
    enum { SHAPES = 600 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *room = make_room(device);
    int64_t live = 0;

    if (!room)
        return;
    for (int i = 0; i < 2 * SHAPES; i++) {
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .a_row = 4 + i % SHAPES,
                            .m = 1,
                            .n = 3,
                            .k = 4,
                            .bias = true};
        char *data = room->data;
        sherd__device_multiply(device, &p, 1, data, data + LEFT, data + RIGHT, data + ONES);
        live = sherd__max(live, heap.live);
    }
    CHECK(are_ones(device, room, 1));
    CHECK(live < SHAPES);
    sherd__device_give(device, room);
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

static const check_test tests[] = {
    {TEST(products_are_exact)},           {TEST(nothing_is_computed_of_nothing)},
    {TEST(what_is_too_large_is_a_fault)}, {TEST(a_failed_call_is_told)},
    {TEST(sizes_are_of_31_bits)},         {TEST(a_bias_is_added_or_it_is_told)},
    {TEST(sizes_may_vary_for_ever)},
};
CHECK_MAIN(tests)
