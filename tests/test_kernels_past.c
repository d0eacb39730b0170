/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums written to several results, also past the cache, have the bits of plain ones: any length,
 * any beginning in a cache line, several results, a result that is an addend, all dtypes, tables
 * with and without a kernel of their own. What lies around the results stays.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "kernels/stream.h"
#include "vector/choose.h"

enum { COUNT = 5, RESULTS = 3, ROOM = 1 << 17, UNTOUCHED = 0xEE };

typedef struct arrays {
    _Alignas(SHERD__LINE) unsigned char src[COUNT][ROOM], dst[RESULTS][ROOM], expect[ROOM];
} arrays;

static arrays *a;

static void draw(sherd_dtype dtype)
{
    for (uint64_t i = 0; i < COUNT; i++)
        for (int64_t j = 0; j < ROOM / (int64_t)sherd_dtype_bytes(dtype); j++) {
            int64_t x = (int64_t)((i * 7 + (uint64_t)j * 5) % 23) - 11;
            sherd__cast(dtype, SHERD_I64, 1, a->src[i] + (size_t)j * sherd_dtype_bytes(dtype), &x);
        }
}

/* first[k]: bytes before result k; `past` the cache. */
static void try_sum(const sherd__kernels *k, size_t bytes, sherd_reduce_op op, int count, int64_t n,
                    const size_t *first, int results, bool past)
{
    const void *src[COUNT];
    void *dst[RESULTS];
    size_t length = (size_t)n * bytes;

    for (int i = 0; i < count; i++)
        src[i] = a->src[i] + (size_t)i * bytes;
    memset(a->dst, UNTOUCHED, sizeof a->dst);
    k->reduce(op, a->expect, src, count, n, 3);
    for (int i = 0; i < results; i++)
        dst[i] = a->dst[i] + first[i];
    sherd__reduction sum = {op, count, n, 3, src};
    if (past)
        sherd__reduce_past(k, bytes, &sum, dst, results);
    else
        k->reduce_spread(&sum, dst, results);
    for (int i = 0; i < results; i++) {
        const unsigned char *d = a->dst[i];
        CHECK_EQ(memcmp(dst[i], a->expect, length), 0);
        for (size_t j = 0; j < SHERD__LINE; j++) {
            CHECK(j >= first[i] || d[j] == UNTOUCHED);
            CHECK_EQ(d[first[i] + length + j], UNTOUCHED);
        }
    }
}

static void try_table(const sherd__kernels *k, sherd_dtype dtype)
{
    static const int64_t lengths[] = {0, 1, 3, 15, 16, 17, 31, 33, 64, 100, 1000, 5003};
    size_t bytes = sherd_dtype_bytes(dtype);

    draw(dtype);
    for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++) {
        if (dtype >= SHERD_I32 && op == SHERD_AVG)
            continue;
        for (int count = 1; count <= COUNT; count++)
            for (int i = 0; i < LEN(lengths); i++)
                for (size_t at = 0; at < SHERD__LINE; at += 5 * bytes) {
                    const size_t alike[] = {at, at, at}, apart[] = {at, 0, bytes};
                    try_sum(k, bytes, (sherd_reduce_op)op, count, lengths[i], alike, RESULTS, true);
                    try_sum(k, bytes, (sherd_reduce_op)op, count, lengths[i], apart, RESULTS, true);
                    for (int results = 1; k->reduce_spread && results <= RESULTS; results++)
                        try_sum(k, bytes, (sherd_reduce_op)op, count, lengths[i], apart, results,
                                false);
                }
    }
}

static void bits_are_those_of_plain_sums(void)
{
    sherd__kernels list[FAST_SETS];
    sherd__kernel_set set;

    a = aligned_alloc(SHERD__LINE, sizeof *a);
    if (!CHECK(a != NULL))
        return;
    sherd__kernels_choose(&set);
    for (int d = SHERD_DTYPE_NONE + 1; d < SHERD_DTYPES; d++)
        try_table(sherd__kernels_of_any(&set, (sherd_dtype)d), (sherd_dtype)d);
    for (int i = versions(list) - 1; i >= 0; i--)
        try_table(&list[i], SHERD_F32);
    for (int i = versions_f64(list) - 1; i >= 0; i--)
        try_table(&list[i], SHERD_F64);
    free(a);
}

static void an_addend_may_be_a_result(void)
{
    enum { N = 1003 };
    static _Alignas(SHERD__LINE) float x[N], y[N], z[N];
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; i < N; i++) {
        x[i] = (float)i;
        y[i] = (float)(2 * i);
    }
    const void *src[] = {x, y};
    void *dst[] = {z, x};
    sherd__reduction sum = {SHERD_SUM, 2, N, 1, src};
    sherd__reduce_past(&set.f32, sizeof *x, &sum, dst, 2);
    for (int i = 0; i < N; i++)
        CHECK(x[i] == (float)(3 * i) && z[i] == x[i]);
    if (set.f32.reduce_spread)
        set.f32.reduce_spread(&sum, dst, 2);
    for (int i = 0; set.f32.reduce_spread && i < N; i++)
        CHECK(x[i] == (float)(5 * i) && z[i] == x[i]);
}

static const check_test tests[] = {
    {TEST(bits_are_those_of_plain_sums)},
    {TEST(an_addend_may_be_a_result)},
};
CHECK_MAIN(tests)
