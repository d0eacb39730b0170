/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of few rows with a matrix whose columns lie in rows, of all dtypes and instruction sets:
 * sums as written out in f64, with a bias, added to what is there, rows with gaps. A row has the
 * same bits whatever rows are beside it, and a column whatever columns: so tokens do not depend on
 * who else is in a batch, nor on how weights are sharded.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"

enum { MOST_ROWS = 16, GAP = 5, ROOM = 40000, BEHIND = 64 };

static double wide_a[ROOM], wide_b[ROOM], wide_bias[ROOM], wide_before[ROOM];
static uint64_t a[ROOM], b[ROOM], bias[ROOM], before[ROOM], c[ROOM], again[ROOM]; /* of any dtype */
static char space[1 << 20];

typedef struct version {
    const char *name;
    sherd_dtype dtype;
    sherd__kernels k;
} version;

enum { VERSIONS = 3 * FAST_SETS };

static int versions(version out[VERSIONS])
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16};
    fast_set sets[FAST_SETS];
    int n = 0;

    for (int i = 0, count = fast_sets(sets); i < count; i++) {
        sherd__kernels table[3] = {sherd__ref_f32};
        sets[i].f32(&table[0]);
        sets[i].half(&table[1], &table[2]);
        for (int t = 0; t < 3; t++)
            out[n++] = (version){sets[i].name, dtypes[t], table[t]};
    }
    return n;
}

/* [rows, row] numbers of a dtype, NaN from `cols` on and behind the last row. */
static void draw(sherd_dtype dtype, void *to, double *wide, int64_t rows, int64_t cols, int64_t row,
                 uint64_t stream)
{
    static float drawn[ROOM];
    int64_t n = rows * row + BEHIND;

    CHECK(n <= ROOM);
    sherd__ref_f32.uniform(n, drawn, -1, 1, sherd__philox_key(9, 1, stream), 0);
    for (int64_t i = 0; i < n; i++)
        wide[i] = i >= rows * row || i % row >= cols ? NAN : (double)drawn[i];
    sherd__cast(dtype, SHERD_F64, n, to, wide);
    sherd__cast(SHERD_F64, dtype, n, wide, to);
}

static void run(const version *v, const sherd__product *p, void *to)
{
    int64_t bytes = v->k.product_workspace(p);

    CHECK(bytes < (int64_t)sizeof space);
    memset(space, 0xFF, (size_t)bytes);
    space[bytes] = 77;
    v->k.product(p, to, a, b, p->bias ? bias : NULL, space);
    CHECK_EQ(space[bytes], 77);
}

static void compare(const version *v, const sherd__product *p)
{
    static double result[ROOM];
    int64_t wrong = 0, count = p->m * p->c_row;
    double round = p->result == SHERD_BF16 ? 0x1p-8 : p->result == SHERD_F16 ? 0x1p-11 : 0;

    sherd__cast(SHERD_F64, p->result, count, result, c);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->c_row; j++) {
            double total = p->bias ? wide_bias[j] : 0, is = result[i * p->c_row + j];
            for (int64_t x = 0; x < p->k && j < p->n; x++)
                total += wide_a[i * p->a_row + x] * wide_b[j * p->b_row + x];
            if (j >= p->n)
                wrong += is != 42;
            else {
                total += p->adds ? wide_before[i * p->c_row + j] : 0;
                wrong += !(fabs(is - total) <= 1e-6 * (2 + (double)p->k) + round * fabs(total));
            }
        }
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s %s -> %s: %d x %d x %d%s%s\n", v->name, sherd_dtype_name(v->dtype),
                sherd_dtype_name(p->result), (int)p->m, (int)p->n, (int)p->k, p->bias ? " + b" : "",
                p->adds ? " + c" : "");
}

/* Of `way`: a bias, added, gaps, a result of f32. */
static void try_product(const version *v, int64_t m, int64_t n, int64_t k, int way)
{
    int64_t gap = way & 4 ? GAP : 0;
    const sherd__product p = {.dtype = v->dtype,
                              .result = way & 8 ? SHERD_F32 : v->dtype,
                              .tb = true,
                              .bias = way & 1,
                              .adds = way & 2,
                              .m = m,
                              .n = n,
                              .k = k,
                              .a_row = k + gap,
                              .b_row = k + gap,
                              .c_row = n + gap};
    static double filled[ROOM];

    draw(v->dtype, a, wide_a, m, k, p.a_row, 1);
    draw(v->dtype, b, wide_b, n, k, p.b_row, 2);
    draw(v->dtype, bias, wide_bias, 1, n, n, 3);
    draw(p.result, before, wide_before, m, n, p.c_row, 4);
    for (int64_t i = 0; i < m * p.c_row; i++)
        filled[i] = i % p.c_row >= n ? 42 : p.adds ? wide_before[i] : NAN;
    sherd__cast(p.result, SHERD_F64, m * p.c_row, c, filled);
    run(v, &p, c);
    compare(v, &p);
}

static void products_are_sums_of_products(void)
{
    static const int64_t depths[] = {1, 3, 16, 31, 32, 33, 64, 100, 257};
    static const int64_t columns[] = {8, 9, 13, 16, 30, 47};
    version v[VERSIONS];
    int count = versions(v);

    for (int i = 0; i < count; i++)
        for (int64_t m = 1; m <= MOST_ROWS; m += m < 6 ? 1 : 5)
            for (int j = 0; j < LEN(columns); j++)
                for (int d = 0; d < LEN(depths); d++)
                    try_product(&v[i], m, columns[j], depths[d], (int)(m + j + 3 * d) % 16);
}

static void rows_and_columns_keep_their_bits(void)
{
    enum { N = 37, K = 211 };
    version v[VERSIONS];
    int count = versions(v);

    for (int i = 0; i < count; i++) {
        const size_t bytes = sherd_dtype_bytes(v[i].dtype);
        sherd__product p = {
            .dtype = v[i].dtype, .result = v[i].dtype, .tb = true, .m = MOST_ROWS, .n = N, .k = K};
        draw(v[i].dtype, a, wide_a, MOST_ROWS, K, K, 1);
        draw(v[i].dtype, b, wide_b, N, K, K, 2);
        run(&v[i], &p, c);
        for (p.m = 1; p.m < MOST_ROWS; p.m++) {
            run(&v[i], &p, again);
            CHECK(memcmp(c, again, (size_t)(p.m * N) * bytes) == 0);
        }
        p.m = 1;
        for (p.n = 8; p.n < N; p.n++) {
            run(&v[i], &p, again);
            CHECK(memcmp(c, again, (size_t)p.n * bytes) == 0);
        }
    }
}

static void f32_takes_few_rows_only(void)
{
    const sherd__product good = {
        .dtype = SHERD_F32, .result = SHERD_F32, .tb = true, .m = 4, .n = 100, .k = 50};
    version v[VERSIONS];
    int count = versions(v);

    for (int i = 0; i < count; i++) {
        sherd__product p = good;
        if (v[i].dtype != SHERD_F32)
            continue;
        CHECK(v[i].k.product_fits(&p));
        p.m = MOST_ROWS + 1;
        CHECK_EQ(v[i].k.product_fits(&p), TAKES_ALL);
        p = good;
        p.tb = false;
        CHECK_EQ(v[i].k.product_fits(&p), TAKES_ALL);
        p = good;
        p.dtype = SHERD_F64;
        CHECK(!v[i].k.product_fits(&p));
    }
}

static const check_test tests[] = {
    {TEST(products_are_sums_of_products)},
    {TEST(rows_and_columns_keep_their_bits)},
    {TEST(f32_takes_few_rows_only)},
};
CHECK_MAIN(tests)
