/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The f32 table's own product against sums in f64 written out: a and b as they lie and turned, with
 * a bias, added to what is there, sizes around the edges of tiles, panels and blocks. What lies
 * behind the operands, and in the workspace, is NaN; what is behind the result and the workspace
 * stays as it was. Then which products it takes, and what the environment chooses in its place.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "vector/choose.h"

enum { ROOM = 1 << 19, BEHIND = 64, SPACE = 1 << 20 };

static float a[ROOM], b[ROOM], bias[ROOM], before[ROOM], c[ROOM];
static double sums[ROOM];
static char space[SPACE];

static void draw(float *x, int64_t n, uint64_t stream)
{
    CHECK(n + BEHIND <= ROOM);
    sherd__ref_f32.uniform(n, x, -1, 1, sherd__philox_key(5, 1, stream), 0);
    for (int64_t i = n; i < n + BEHIND; i++)
        x[i] = NAN;
}

/* The sums of a and b alone, which all kernels and ways to begin have in common. */
static void add_up(const sherd__product *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double total = 0;
            for (int64_t x = 0; x < p->k; x++)
                total += (double)a[p->ta ? x * p->m + i : i * p->k + x] *
                         (double)b[p->tb ? j * p->k + x : x * p->n + j];
            sums[i * p->n + j] = total;
        }
}

static double element(const sherd__product *p, int64_t i, int64_t j)
{
    double total = sums[i * p->n + j] + (p->bias ? (double)bias[j] : 0);

    return total + (p->adds ? (double)before[i * p->n + j] : 0);
}

static void compare(const char *name, const sherd__product *p)
{
    int64_t wrong = 0, count = p->m * p->n;

    for (int64_t i = 0; i < count; i++)
        wrong +=
            !(fabs((double)c[i] - element(p, i / p->n, i % p->n)) <= 1e-6 * (2 + (double)p->k));
    for (int64_t i = count; i < count + BEHIND; i++)
        wrong += c[i] != 42;
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s: %c%c %d x %d x %d%s%s\n", name, p->ta ? 'T' : 'N', p->tb ? 'T' : 'N',
                (int)p->m, (int)p->n, (int)p->k, p->bias ? " + bias" : "", p->adds ? " + c" : "");
}

static void try_way(const sherd__kernels *k, const sherd__product *p)
{
    int64_t bytes = k->product_workspace(p), count = p->m * p->n;

    CHECK(bytes < SPACE);
    for (int64_t i = 0; i < count + BEHIND; i++)
        c[i] = i >= count ? 42 : p->adds ? before[i] : NAN;
    memset(space, 0xFF, (size_t)bytes);
    space[bytes] = 77;
    k->product(p, c, a, b, p->bias ? bias : NULL, space);
    CHECK_EQ(space[bytes], 77);
    compare(k->name, p);
}

static void try_shape(int64_t m, int64_t n, int64_t depth)
{
    sherd__kernels list[FAST_SETS];
    int count = versions(list);

    draw(a, m * depth, 1);
    draw(b, n * depth, 2);
    draw(bias, n, 3);
    draw(before, m * n, 4);
    for (int turned = 0; turned < 3; turned++) {
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .ta = turned == 2,
                            .tb = turned == 0,
                            .m = m,
                            .n = n,
                            .k = depth};
        add_up(&p);
        for (int way = 0; way < 4 * count; way++) {
            p.bias = way & 1;
            p.adds = way & 2;
            try_way(&list[way / 4], &p);
        }
    }
}

/* Also of shapes that are not given to it, down to one of each. */
static void products_are_sums_of_products(void)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},       {2, 3, 5},       {12, 32, 4},     {13, 33, 7},    {23, 31, 64},
        {24, 64, 65},    {35, 95, 66},    {192, 64, 64},   {199, 65, 67},  {30, 300, 512},
        {25, 257, 513},  {17, 160, 1024}, {11, 130, 1027}, {9, 1025, 130}, {205, 97, 301},
        {1030, 40, 130}, {140, 500, 130}};

    for (int i = 0; i < LEN(shapes); i++)
        try_shape(shapes[i][0], shapes[i][1], shapes[i][2]);
}

/* Operands that are neither small nor large, without gaps; never another dtype, nor both turned. */
static void it_takes_what_it_is_fast_at(void)
{
    const sherd__product good = {
        .dtype = SHERD_F32, .result = SHERD_F32, .tb = true, .m = 2048, .n = 128, .k = 256};
    const sherd__product turned = {
        .dtype = SHERD_F32, .result = SHERD_F32, .ta = true, .m = 128, .n = 256, .k = 2048};
    sherd__kernels list[FAST_SETS];
    sherd__product p[13];

    for (int i = 0; i < LEN(p); i++)
        p[i] = i < 10 ? good : turned;
    p[0].ta = true;
    p[1].dtype = SHERD_F64;
    p[2].a_row = p[3].b_row = p[4].c_row = 300;
    p[5].m = 64;
    p[6].n = p[7].k = 16;
    p[8].k = 4096;
    p[9].n = 1 << 20;
    p[10].m = 1 << 20;
    p[11].m = 16;
    p[12].m = p[12].n = 1024;
    for (int v = versions(list) - 1; v >= 0; v--) {
        bool short_vectors = strcmp(list[v].name, "simd128") == 0;
        CHECK_EQ(list[v].product_fits(&good), TAKES_ALL || !short_vectors);
        CHECK_EQ(list[v].product_fits(&turned), TAKES_ALL || !short_vectors);
        for (int i = 0; i < LEN(p); i++)
            CHECK_EQ(list[v].product_fits(&p[i]), TAKES_ALL && p[i].dtype == SHERD_F32);
    }
}

static void what_is_asked_for_by_name_is_taken(void)
{
    static const char *const others[] = {"reference", "onednn"};
    sherd__kernels list[FAST_SETS];
    sherd__kernel_set set;

    for (int i = 0; i < LEN(others); i++) {
        setenv("SHERD_GEMM", others[i], 1);
        sherd__kernels_choose(&set);
        CHECK(!set.f32.product && !set.f32.product_fits);
    }
    setenv("SHERD_GEMM", "tiles", 1);
    for (int i = versions(list) - 1; i >= 0; i--) {
        setenv("SHERD_KERNELS", list[i].name, 1);
        sherd__kernels_choose(&set);
        CHECK(set.f32.product_fits == list[i].product_fits);
    }
    unsetenv("SHERD_GEMM");
    unsetenv("SHERD_KERNELS");
}

static const check_test tests[] = {
    {TEST(products_are_sums_of_products)},
    {TEST(it_takes_what_it_is_fast_at)},
    {TEST(what_is_asked_for_by_name_is_taken)},
};
CHECK_MAIN(tests)
