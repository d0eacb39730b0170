/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every f32 matrix product, and the f64 one, against sums in f64 written out: all transpositions,
 * sizes around the edges of tiles and blocks, rows with gaps, alpha and beta, and sizes of zero.
 * The gaps and what lies around c must stay as they were.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"
#include "vector/choose.h"
#include "vector/measure.h"

enum { ROOM = 330 * 330, GAP = 3, UNTOUCHED = 99 };

typedef void (*product)(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
                        const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                        void *c, int64_t ldc);

typedef struct problem {
    bool ta, tb;
    int64_t m, n, k;
    double alpha, beta;
} problem;

static float a[ROOM], b[ROOM], c[ROOM], before[ROOM];
static double wide_a[ROOM], wide_b[ROOM], wide_c[ROOM];

static void numbers(void)
{
    sherd__ref_f32.uniform(ROOM, a, -1, 1, sherd__philox_key(1, 1, 1), 0);
    sherd__ref_f32.uniform(ROOM, b, -1, 1, sherd__philox_key(1, 1, 2), 0);
    for (int i = 0; i < ROOM; i++) {
        wide_a[i] = (double)a[i];
        wide_b[i] = (double)b[i];
    }
}

static double element(const problem *p, int64_t lda, int64_t ldb, int64_t i, int64_t j)
{
    double total = 0;

    for (int64_t x = 0; x < p->k; x++)
        total +=
            wide_a[p->ta ? x * lda + i : i * lda + x] * wide_b[p->tb ? j * ldb + x : x * ldb + j];
    return p->alpha * total;
}

/* beta 0 must not read c, so c is NaN then. */
static void try_product(const char *name, product multiply, product multiply_wide, const problem *p)
{
    int64_t lda = (p->ta ? p->m : p->k) + GAP, ldb = (p->tb ? p->k : p->n) + GAP, ldc = p->n + GAP;
    double tolerance = 1e-6 * (2 + (double)p->k), worst = 0;
    int64_t wrong = 0;

    for (int64_t i = 0; i < (p->m + 1) * ldc; i++) {
        bool inside = i / ldc < p->m && i % ldc < p->n;
        before[i] = c[i] = !inside ? UNTOUCHED : p->beta == 0 ? NAN : (float)(i % 7) - 3;
        wide_c[i] = (double)c[i];
    }
    if (multiply)
        multiply(p->ta, p->tb, p->m, p->n, p->k, p->alpha, a, lda, b, ldb, p->beta, c, ldc);
    else
        multiply_wide(p->ta, p->tb, p->m, p->n, p->k, p->alpha, wide_a, lda, wide_b, ldb, p->beta,
                      wide_c, ldc);
    for (int64_t i = 0; i < (p->m + 1) * ldc; i++) {
        double is = multiply ? (double)c[i] : wide_c[i];
        bool inside = i / ldc < p->m && i % ldc < p->n;
        double want = inside ? element(p, lda, ldb, i / ldc, i % ldc) : UNTOUCHED;
        want += inside && p->beta != 0 ? p->beta * (double)before[i] : 0;
        double off = fabs(is - want);
        worst = off > worst ? off : worst;
        wrong += !(off <= (multiply ? tolerance : 1e-12));
    }
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s: %c%c %d x %d x %d, alpha %g, beta %g: off by %g\n", name,
                p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (int)p->m, (int)p->n, (int)p->k, p->alpha,
                p->beta, worst);
}

static void try_shape(const char *name, product multiply, product wide, int64_t m, int64_t n,
                      int64_t k)
{
    static const double factors[][2] = {{1, 0}, {1, 1}, {0.5, -2}};

    for (int t = 0; t < 4; t++)
        for (int f = 0; f < LEN(factors); f++) {
            problem p = {t & 1, t & 2, m, n, k, factors[f][0], factors[f][1]};
            try_product(name, multiply, wide, &p);
        }
}

static void try_all_shapes(const char *name, product multiply, product wide)
{
    static const int64_t edges[] = {0, 1, 2, 4, 5, 6, 7, 12, 13, 16, 17, 31, 32, 33};
    static const int64_t large[][3] = {{97, 65, 257}, {100, 33, 300}, {5, 300, 20}, {300, 3, 64},
                                       {64, 64, 256}, {96, 48, 320},  {3, 301, 64}, {21, 4, 1500},
                                       {2, 19, 1500}, {700, 3, 50},   {4, 700, 50}, {9, 1, 1100}};

    numbers();
    for (int i = 0; i < LEN(edges); i++)
        for (int j = 0; j < LEN(edges); j++)
            try_shape(name, multiply, wide, edges[i], edges[j],
                      edges[(3 * i + 5 * j) % LEN(edges)]);
    for (int i = 0; i < LEN(large); i++)
        try_shape(name, multiply, wide, large[i][0], large[i][1], large[i][2]);
}

static void the_plain_products_are_right(void)
{
    try_all_shapes("reference f32", sherd__ref_f32.gemm, NULL);
    try_all_shapes("reference f64", NULL, sherd__ref_f64.gemm);
}

static void the_tiles_are_right(void)
{
    fast_set sets[FAST_SETS];

    for (int i = fast_sets(sets) - 1; i >= 0; i--) {
        sherd__kernels table = sherd__ref_f32, wide = sherd__ref_f64;
        sets[i].f32(&table);
        try_all_shapes(sets[i].name, table.gemm, NULL);
        sets[i].f64(&wide);
        try_all_shapes(sets[i].name, NULL, wide.gemm);
    }
}

/* Whatever this machine and the environment choose, beside oneDNN. */
static void the_chosen_product_is_right(void)
{
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    try_all_shapes(set.f32.gemm_name, set.f32.gemm, NULL);
    try_all_shapes(set.f64.gemm_name, NULL, set.f64.gemm);
}

/* Under SHERD_GEMM=... and SHERD_KERNELS=... exactly that is chosen, and a name that is unknown
 * means the plain one. */
static void the_environment_chooses_less(void)
{
    sherd__kernel_set set, most;

    setenv("SHERD_GEMM", "reference", 1);
    sherd__kernels_choose(&set);
    CHECK_TEXT(set.f32.gemm_name, "reference");
    CHECK(set.f32.gemm == sherd__ref_f32.gemm);
    CHECK(set.f64.gemm == sherd__ref_f64.gemm);
    setenv("SHERD_GEMM", "nonsense", 1);
    sherd__kernels_choose(&set);
    CHECK_TEXT(set.f32.gemm_name, "reference");
    setenv("SHERD_KERNELS", "reference", 1);
    setenv("SHERD_GEMM", "tiles", 1);
    sherd__kernels_choose(&set);
    CHECK_TEXT(set.f32.name, "reference");
    CHECK(set.f32.unary == sherd__ref_f32.unary);
    CHECK_TEXT(set.f32.gemm_name, "reference"); /* no tiles without vectors */
    unsetenv("SHERD_GEMM");
    setenv("SHERD_KERNELS", "avx512", 1);
    sherd__kernels_choose(&set);
    CHECK(set.tiles == NULL);
    setenv("SHERD_KERNELS", "avx512_bf16", 1);
    sherd__kernels_choose(&most);
    CHECK(most.f32.unary == set.f32.unary);
    CHECK((most.tiles != NULL) <= sherd__has_fast_pairs());
    unsetenv("SHERD_KERNELS");
    sherd__kernels_choose(&set);
    setenv("SHERD_KERNELS", "amx", 1); /* all there is */
    sherd__kernels_choose(&most);
    CHECK(most.tiles == set.tiles && (!set.tiles || most.f32.unary == set.f32.unary));
    unsetenv("SHERD_KERNELS");
    CHECK(sherd__kernels_of(&set, SHERD_F32) == &set.f32);
    CHECK(sherd__kernels_of(&set, SHERD_F64) == &set.f64);
    CHECK(sherd__kernels_of(&set, SHERD_I32) == NULL);
    CHECK(sherd__kernels_of(&set, SHERD_BOOL) == NULL);
}

static void the_rates_are_measured(void)
{
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    sherd__rates rates = sherd__measure_rates(&set);
    CHECK(sherd__has_amx() ? rates.bf16 == 0 : rates.bf16 > 0.1);
    CHECK(rates.gemm > 0.01 && rates.peak > 0.1);
    CHECK(sherd__has_amx() || rates.peak >= rates.gemm); /* a peak of multiply-adds */
    CHECK(sherd__measure_now(0.001) > 0.1 && sherd__measure_now(0) > 0.1);
}

static const check_test tests[] = {
    {TEST(the_plain_products_are_right)}, {TEST(the_tiles_are_right)},
    {TEST(the_chosen_product_is_right)},  {TEST(the_environment_chooses_less)},
    {TEST(the_rates_are_measured)},
};
CHECK_MAIN(tests)
