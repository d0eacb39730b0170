/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products stay within what they are given: every operand, the result and the workspace, of exactly
 * the bytes that the kernel asks for, lie between pages that nobody may touch, now at the one and
 * now at the other; operands can only be read. The tables are those that the environment chooses,
 * so what a table takes (product_fits) and what it then does is one test. Products only: f32, bf16
 * and f16, of every instruction set; sums are compared with f64.
 */
#define CHECK_PURE
#include "check.h"
#include "fences.h"
#include "vector/choose.h"
#include "vector/fast.h"

enum { PARTS = 5, A = 0, B, BIAS, C, SPACE, TRIES = 400, LOOKED_AT = 200 };

static void protect(fence *part, int how)
{
    for (int i = A; i <= BIAS; i++)
        fence_protect(&part[i], how);
}

/* ---- a product ------------------------------------------------------------------------------- */

/* The next number of a sequence, below n. */
static int64_t below(uint64_t *state, int64_t n)
{
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (int64_t)((*state >> 33) % (uint64_t)n);
}

/* Small ones mostly, and those beside the edges of tiles and blocks. */
static int64_t size_of(uint64_t *state)
{
    static const int64_t edges[] = {63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 300};

    return below(state, 3) ? 1 + below(state, 40) : edges[below(state, LEN(edges))];
}

static sherd__product draw_product(sherd_dtype dtype, uint64_t *state)
{
    sherd__product p = {.dtype = dtype,
                        .result = below(state, 4) ? dtype : SHERD_F32,
                        .ta = below(state, 3) == 0,
                        .tb = below(state, 2),
                        .bias = below(state, 2),
                        .adds = below(state, 2),
                        .m = size_of(state),
                        .n = size_of(state),
                        .k = size_of(state)};

    if (below(state, 3) == 0) {
        p.a_row = (p.ta ? p.m : p.k) + below(state, 9);
        p.b_row = (p.tb ? p.k : p.n) + below(state, 9);
        p.c_row = p.n + below(state, 9);
    }
    return p;
}

/* From one row to the next, and the elements from the first to the last. */
static int64_t row_of(int64_t given, int64_t cols)
{
    return given ? given : cols;
}

static size_t extent(int64_t rows, int64_t cols, int64_t row, sherd_dtype dtype)
{
    return (size_t)((rows - 1) * row_of(row, cols) + cols) * sherd_dtype_bytes(dtype);
}

static void fill(fence *f, sherd_dtype dtype, uint64_t *state)
{
    size_t size = sherd_dtype_bytes(dtype);

    for (size_t i = 0; i < f->bytes / size; i++) {
        double x = (double)below(state, 257) / 128 - 1;
        sherd__cast(dtype, SHERD_F64, 1, f->given + i * size, &x);
    }
}

static double at(const fence *f, sherd_dtype dtype, int64_t i)
{
    double x;

    sherd__cast(SHERD_F64, dtype, 1, &x, f->given + (size_t)i * sherd_dtype_bytes(dtype));
    return x;
}

static double sum_of(const sherd__product *p, const fence *part, int64_t i, int64_t j)
{
    int64_t a_row = row_of(p->a_row, p->ta ? p->m : p->k),
            b_row = row_of(p->b_row, p->tb ? p->k : p->n);
    double total = p->bias ? at(&part[BIAS], p->dtype, j) : 0;

    for (int64_t x = 0; x < p->k; x++)
        total += at(&part[A], p->dtype, p->ta ? x * a_row + i : i * a_row + x) *
                 at(&part[B], p->dtype, p->tb ? j * b_row + x : x * b_row + j);
    return total;
}

static void tell(const char *set, const sherd__product *p, const fence *part, const char *what)
{
    static const char *const names[PARTS] = {"a", "b", "bias", "c", "workspace"};

    fprintf(stderr, "%s %s -> %s: %d x %d x %d%s%s%s%s%s: %s\n", set, sherd_dtype_name(p->dtype),
            sherd_dtype_name(p->result), (int)p->m, (int)p->n, (int)p->k, p->ta ? ", a turned" : "",
            p->tb ? ", b turned" : "", p->bias ? " + bias" : "", p->adds ? " + c" : "",
            p->c_row ? ", gaps" : "", what);
    for (int i = 0; i < PARTS; i++)
        fence_tell(&part[i], names[i]);
}

static void look(const char *set, const sherd__product *p, const fence *part, const double *before,
                 uint64_t *state)
{
    double round = p->result == SHERD_BF16 ? 0x1p-8 : p->result == SHERD_F16 ? 0x1p-11 : 0;
    int wrong = 0;

    for (int n = 0; n < LOOKED_AT; n++) {
        int64_t i = below(state, p->m), j = below(state, p->n), e = i * row_of(p->c_row, p->n) + j;
        double sum = sum_of(p, part, i, j) + (p->adds ? before[e] : 0);
        wrong += !(fabs(at(&part[C], p->result, e) - sum) <=
                   1e-6 * (2 + (double)p->k) + round * fabs(sum));
    }
    if (!CHECK_EQ(wrong, 0))
        tell(set, p, part, "other sums");
}

static void try_product(const char *set, const sherd__kernels *k, const sherd__product *p,
                        fence *part, uint64_t *state)
{
    static double before[FENCE_BODY / 16];
    bool end = below(state, 2);
    void *a = fence_give(&part[A],
                         extent(p->ta ? p->k : p->m, p->ta ? p->m : p->k, p->a_row, p->dtype), end);
    void *b = fence_give(&part[B],
                         extent(p->tb ? p->n : p->k, p->tb ? p->k : p->n, p->b_row, p->dtype), end);
    void *bias = fence_give(&part[BIAS], extent(1, p->n, 0, p->dtype), end);
    void *c = fence_give(&part[C], extent(p->m, p->n, p->c_row, p->result), end);
    void *space = fence_give(&part[SPACE], (size_t)k->product_workspace(p), end);

    for (int i = A; i <= C; i++)
        fill(&part[i], i == C ? p->result : p->dtype, state);
    sherd__cast(SHERD_F64, p->result, (int64_t)(part[C].bytes / sherd_dtype_bytes(p->result)),
                before, c);
    protect(part, PROT_READ);
    fence_fault = NULL;
    if (sigsetjmp(fence_caught, 1) == 0)
        k->product(p, c, a, b, p->bias ? bias : NULL, space);
    protect(part, PROT_READ | PROT_WRITE);
    if (!CHECK(fence_fault == NULL))
        tell(set, p, part, "out of bounds");
    else
        look(set, p, part, before, state);
}

/* ---- all tables ------------------------------------------------------------------------------ */

static int try_table(const char *set, sherd_dtype dtype, const sherd__kernels *k, fence *part)
{
    uint64_t state = (uint64_t)dtype;
    int tried = 0;

    for (int i = 0; i < TRIES / check_stride(3) && k->product; i++) {
        sherd__product p = draw_product(dtype, &state);
        if (k->product_fits && !k->product_fits(&p))
            continue;
        try_product(set, k, &p, part, &state);
        tried++;
    }
    return tried;
}

static void products_stay_within_what_they_are_given(void)
{
    static const char *const sets[] = {"simd128", "avx2", "avx512", "avx512_bf16"};
    const bool has[] = {sherd__has_simd128(), sherd__has_avx2(), sherd__has_avx512(),
                        sherd__has_fast_pairs()};
    fence part[PARTS];
    struct sigaction was[FENCE_SIGNALS];

    for (int i = 0; i < PARTS; i++)
        if (!CHECK(fence_build(&part[i])))
            return;
    fences_begin(was);
    for (int s = 0; s < LEN(sets); s++) {
        sherd__kernel_set set;
        if (!has[s])
            continue;
        setenv("SHERD_KERNELS", sets[s], 1);
        setenv("SHERD_GEMM", "tiles", 1);
        sherd__kernels_choose(&set);
        CHECK(try_table(sets[s], SHERD_F32, &set.f32, part) > 0);
        CHECK(try_table(sets[s], SHERD_BF16, &set.bf16, part) > 0);
        CHECK(try_table(sets[s], SHERD_F16, &set.f16, part) > 0);
    }
    fences_end(was);
    for (int i = 0; i < PARTS; i++)
        fence_raze(&part[i]);
    unsetenv("SHERD_KERNELS");
    unsetenv("SHERD_GEMM");
}

static const check_test tests[] = {
    {TEST(products_stay_within_what_they_are_given)},
};
CHECK_MAIN(tests)
