/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 16 bits that become f32 or pairs while they are packed, of both types and all
 * instruction sets, against sums in f64 written out: all transpositions, with a bias, added to what is there,
 * rows with gaps, sizes around the edges of tiles and blocks, few rows, and sizes of zero. What
 * lies behind the operands and between their rows is NaN; gaps of c and what is behind the
 * workspace stay as they were. A result of 16 bits is that of f32, rounded once.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"
#include "kernels/half.h"
#include "vector/choose.h"

enum { ROOM = 2052 * 1040, STREAMS = 5, GAP = 3, WATCHED = 0x4242, LANES = 4 };

static uint16_t a[ROOM], b[ROOM], bias[ROOM], before[ROOM], half_c[ROOM];
static float wide_a[ROOM], wide_b[ROOM], wide_bias[ROOM], wide_before[ROOM], wide_c[ROOM];
static double row_of_a[ROOM], column_of_b[ROOM];
static char *space;
static int64_t room;

static uint16_t quiet_nan(const sherd__kernels *k)
{
    uint16_t half;
    const float nan = NAN;

    k->narrow(1, &half, &nan);
    return half;
}

/* The first n numbers of a stream, of which each is drawn once. */
static const float *drawn(uint64_t stream, int64_t n)
{
    static float all[STREAMS][ROOM];
    static int64_t count[STREAMS];
    int64_t have = count[stream];

    if (n > have) {
        sherd__ref_f32.uniform(n - have, all[stream] + have, -1, 1, sherd__philox_key(3, 1, stream),
                               have);
        count[stream] = n;
    }
    return all[stream];
}

/* rows x cols numbers, NaN between rows that are `row` long and behind them. */
static void draw(const sherd__kernels *k, uint16_t *half, float *wide, int64_t rows, int64_t cols,
                 int64_t row, uint64_t stream)
{
    int64_t n = (rows + 1) * row;

    CHECK(n < ROOM);
    k->narrow(n, half, drawn(stream, n));
    const uint16_t nan = quiet_nan(k);
    for (int64_t i = 0; i <= rows; i++)
        for (int64_t j = i < rows ? cols : 0; j < row; j++)
            half[i * row + j] = nan;
    k->widen(n, wide, half);
}

/* Rows of a, or columns of b, one after the other; n of k numbers. */
static void line_up(double *out, const float *x, bool across, int64_t n, int64_t k, int64_t row)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            out[i * k + j] = (double)x[across ? j * row + i : i * row + j];
}

/* In sums that do not wait for each other. */
static double element(const sherd__product *p, int64_t i, int64_t j)
{
    const double *row = row_of_a + i * p->k, *column = column_of_b + j * p->k;
    double total[LANES] = {p->bias ? (double)wide_bias[j] : 0};
    int64_t x = 0;

    for (; x + LANES <= p->k; x += LANES)
        for (int l = 0; l < LANES; l++)
            total[l] += row[x + l] * column[x + l];
    for (; x < p->k; x++)
        total[0] += row[x] * column[x];
    return total[0] + total[1] + (total[2] + total[3]);
}

static void run(const sherd__kernels *k, const sherd__product *p, void *c)
{
    int64_t bytes = k->product_workspace(p);

    if (bytes + 1 > room) {
        free(space);
        room = 2 * (bytes + 1);
        space = malloc((size_t)room);
        if (!space)
            abort();
    }
    memset(space, 0xFF, (size_t)bytes); /* NaN */
    space[bytes] = 77;
    k->product(p, c, a, b, p->bias ? bias : NULL, space);
    CHECK_EQ(space[bytes], 77);
}

static void compare(const sherd__kernels *k, const sherd__product *p, const char *type)
{
    /* of large products sums of each row and column, but not all of them */
    int64_t wrong = 0, rounded_wrong = 0, touched = 0, step = 1 + (p->m * p->n * p->k >> 22);

    line_up(row_of_a, wide_a, p->ta, p->m, p->k, p->a_row);
    line_up(column_of_b, wide_b, !p->tb, p->n, p->k, p->b_row);
    for (int64_t i = 0; i < p->m + 1; i++)
        for (int64_t j = 0; j < p->c_row; j++) {
            int64_t at = i * p->c_row + j;
            uint16_t half;
            if (i == p->m || j >= p->n) {
                touched += wide_c[at] != 42 || half_c[at] != WATCHED;
                continue;
            }
            k->narrow(1, &half, &wide_c[at]);
            rounded_wrong += half_c[at] != half;
            if ((i + j) % step)
                continue;
            double want = element(p, i, j) + (p->adds ? (double)wide_before[at] : 0);
            wrong += !(fabs((double)wide_c[at] - want) <= 1e-6 * (2 + (double)p->k));
        }
    if (!CHECK_EQ(wrong + rounded_wrong + touched, 0))
        fprintf(stderr, "%s %s: %c%c %d x %d x %d%s%s: %d wrong, %d rounded wrong, %d touched\n",
                k->name, type, p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (int)p->m, (int)p->n,
                (int)p->k, p->bias ? " + bias" : "", p->adds ? " + c" : "", (int)wrong,
                (int)rounded_wrong, (int)touched);
}

/* With results of f32 and of 16 bits. */
static void try_product(const sherd__kernels *k, sherd_dtype dtype, sherd__product p, int64_t gap)
{
    sherd__product half = p;

    p.dtype = half.dtype = half.result = dtype;
    p.result = SHERD_F32;
    /* 0 as a row says that there are no gaps; here rows are written out, for the checks */
    p.a_row = sherd__max((p.ta ? p.m : p.k) + gap, 1);
    p.b_row = sherd__max((p.tb ? p.k : p.n) + gap, 1);
    p.c_row = sherd__max(p.n + gap, 1);
    draw(k, a, wide_a, p.ta ? p.k : p.m, p.ta ? p.m : p.k, p.a_row, 1);
    draw(k, b, wide_b, p.tb ? p.n : p.k, p.tb ? p.k : p.n, p.b_row, 2);
    draw(k, bias, wide_bias, 1, p.n, sherd__max(p.n, 1), 3);
    draw(k, before, wide_before, p.m, p.n, p.c_row, 4);
    for (int64_t i = 0; i < (p.m + 1) * p.c_row; i++) {
        bool inside = i / p.c_row < p.m && i % p.c_row < p.n;
        wide_c[i] = !inside ? 42 : p.adds ? wide_before[i] : NAN;
        half_c[i] = !inside ? WATCHED : p.adds ? before[i] : quiet_nan(k);
    }
    if (gap) {
        half.a_row = p.a_row;
        half.b_row = p.b_row;
        half.c_row = p.c_row;
        run(k, &p, wide_c);
    } else {
        sherd__product plain = half;
        plain.result = SHERD_F32;
        run(k, &plain, wide_c);
    }
    run(k, &half, half_c);
    compare(k, &p, sherd_dtype_name(dtype));
}

enum { TA = 1, TB = 2, BIAS = 4, ADDS = 8, GAPS = 16, WAYS = 32 };

static void try_way(const sherd__kernels *k, sherd_dtype dtype, const int64_t *size, int way)
{
    try_product(k, dtype,
                (sherd__product){.ta = way & TA,
                                 .tb = way & TB,
                                 .bias = way & BIAS,
                                 .adds = way & ADDS,
                                 .m = size[0],
                                 .n = size[1],
                                 .k = size[2]},
                way & GAPS ? GAP : 0);
}

/* All ways in the long form; else each third one, others for the next shape. */
static void try_shape(const sherd__kernels *k, sherd_dtype dtype, const int64_t *size, int shape)
{
    for (int way = shape % check_stride(3); way < WAYS; way += check_stride(3))
        try_way(k, dtype, size, way);
}

/* More rows, columns and depth than one block has, of a as it lies and turned; in the long form all
 * ways. */
static void try_blocks(const sherd__kernels *k, sherd_dtype dtype)
{
    static const struct {
        int64_t size[3];
        int way[3];
    } large[] = {{{2050, 33, 1030}, {TB | BIAS, ADDS, TB | BIAS | ADDS | GAPS}},
                 {{60, 300, 1050}, {0, BIAS | ADDS, TB | GAPS}},
                 {{530, 520, 140}, {TA, TA | BIAS | ADDS | GAPS, TA | TB | ADDS}},
                 {{70, 1100, 20}, {TA | ADDS, TB, TA | TB | BIAS}},
                 {{26, 40, 2048}, {0, TB | BIAS, TB | ADDS}},
                 {{1300, 40, 300}, {TA, TA | BIAS | ADDS | GAPS, TA | TB}}};

    for (int i = 0; i < LEN(large); i++)
        if (getenv("SHERD_PROOF"))
            try_shape(k, dtype, large[i].size, 0);
        else
            for (int j = 0; j < LEN(large[i].way); j++)
                try_way(k, dtype, large[i].size, large[i].way[j]);
}

static void try_table(const sherd__kernels *k, sherd_dtype dtype)
{
    static const int64_t edges[] = {0, 1, 2, 3, 5, 8, 9, 15, 16, 17, 31, 33, 49, 65};
    static const int64_t large[][3] = {{197, 65, 257}, {24, 530, 20}, {1, 600, 300},  {4, 3, 515},
                                       {100, 33, 300}, {49, 32, 513}, {25, 513, 256}, {193, 31, 64},
                                       {108, 64, 129}, {56, 96, 128}};

    if (!k->product)
        return;
    for (int i = 0; i < LEN(edges); i++)
        for (int j = 0; j < LEN(edges); j++)
            try_shape(k, dtype,
                      (int64_t[]){edges[i], edges[j], edges[(3 * i + 5 * j) % LEN(edges)]}, i + j);
    for (int i = 0; i < LEN(large); i++)
        try_shape(k, dtype, large[i], i);
    try_blocks(k, dtype);
}

static void products_are_f32_sums_rounded_once(void)
{
    sherd__kernels bf16 = {0}, f16 = {0};
    sherd__kernel_set pairs;
    fast_set sets[FAST_SETS];

    for (int i = 0, count = fast_sets(sets); i < count; i++) {
        sets[i].half(&bf16, &f16);
        CHECK(bf16.product && f16.product);
        try_table(&bf16, SHERD_BF16);
        try_table(&f16, SHERD_F16);
    }
    setenv("SHERD_GEMM", "tiles", 1);
    sherd__kernels_choose(&pairs);
    unsetenv("SHERD_GEMM");
    if (sherd__has_fast_bf16() && pairs.bf16.product != bf16.product)
        try_table(&pairs.bf16, SHERD_BF16);
    free(space);
    space = NULL;
    room = 0;
}

/* Tiles make rows in blocks or in half blocks, as is faster at the time: rows that are equal give
 * equal results, to the last bit. */
static void equal_rows_give_equal_bits(void)
{
    static const int64_t extents[][3] = {{300, 200, 2080}, {333, 210, 100}, {1000, 130, 96}};
    sherd__kernel_set set;

    setenv("SHERD_GEMM", "tiles", 1);
    sherd__kernels_choose(&set);
    unsetenv("SHERD_GEMM");
    for (int i = 0; i < LEN(extents) && set.bf16.product && sherd__has_fast_bf16(); i++) {
        sherd__product p = {.dtype = SHERD_BF16,
                            .result = SHERD_F32,
                            .m = extents[i][0],
                            .n = extents[i][1],
                            .k = extents[i][2]};
        set.bf16.narrow(p.m * p.k, a, drawn(1, p.m * p.k));
        set.bf16.narrow(p.k * p.n, b, drawn(2, p.k * p.n));
        for (int64_t r = 1; r < p.m; r++)
            memcpy(a + r * p.k, a, sizeof *a * (size_t)p.k);
        run(&set.bf16, &p, wide_c);
        for (int64_t r = 1; r < p.m; r++)
            if (!CHECK(memcmp(wide_c + r * p.n, wide_c, sizeof *wide_c * (size_t)p.n) == 0))
                break;
    }
    free(space);
    space = NULL;
    room = 0;
}

/* Large in one size: many columns at a time would take much room, and the workspace has a bound. */
static void the_workspace_is_bounded(void)
{
    sherd__kernels bf16, f16;
    fast_set sets[FAST_SETS];

    for (int s = fast_sets(sets) - 1; s >= 0; s--) {
        sets[s].half(&bf16, &f16);
        for (int64_t n = 1; n < (int64_t)1 << 40; n *= 32) {
            const sherd__product p[] = {{.m = n, .n = n, .k = 64}, {.m = 64, .n = n, .k = 4096}};
            for (int i = 0; i < LEN(p); i++)
                CHECK(bf16.product_workspace(&p[i]) < 20 << 20);
        }
    }
}

static void what_is_asked_for_by_name_is_plain(void)
{
    sherd__kernel_set set;

    setenv("SHERD_GEMM", "reference", 1);
    sherd__kernels_choose(&set);
    CHECK(!set.bf16.product && !set.f16.product && !set.product);
    setenv("SHERD_GEMM", "tiles", 1);
    sherd__kernels_choose(&set);
    CHECK(!set.product);
    CHECK_EQ(set.bf16.product != NULL, strcmp(set.f32.name, "reference") != 0);
    unsetenv("SHERD_GEMM");
    setenv("SHERD_KERNELS", "reference", 1);
    sherd__kernels_choose(&set);
    CHECK(!set.bf16.product && !set.f16.product);
    CHECK_EQ(set.bf16_products, sherd__has_fast_bf16());
    unsetenv("SHERD_KERNELS");
}

static const check_test tests[] = {
    {TEST(products_are_f32_sums_rounded_once)},
    {TEST(equal_rows_give_equal_bits)},
    {TEST(the_workspace_is_bounded)},
    {TEST(what_is_asked_for_by_name_is_plain)},
};
CHECK_MAIN(tests)
