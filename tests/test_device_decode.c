/* SPDX-License-Identifier: Apache-2.0 */
/* What writes a token on the GPU: attention to a cache beside the plain kernel, over one part of
 * the keys and many, and rows written into a cache. */
#define CHECK_PURE
#include "check.h"
#include "base/num.h"
#include "device/decode.h"
#include "device_arrays.h"

/* ---- attention to a cache -------------------------------------------------------------------- */

/* Positions of a cache that begins at `first`: some before it, some behind what is here. */
static array drawn_positions(const sherd__caching *s, bool full)
{
    array where = drawn_ids(s->batch * s->queries, s->first + s->room + 2, 5);

    for (int64_t i = 0; i < where.n && full; i++)
        ((int32_t *)where.host)[i] = (int32_t)(s->first + s->room - 1 - i);
    send(&where);
    return where;
}

/* Item b by the plain kernel; 16 bits are rounded at the end, as there. */
static void plain_item(sherd_dtype dtype, const sherd__caching *s, int64_t b, const array *where,
                       array *out, array *sums, const array *qkv)
{
    const array *q = &qkv[0], *k = &qkv[1], *v = &qkv[2];
    const sherd__kernels *kernels = plain_of(dtype);
    size_t element = sherd_dtype_bytes(dtype);
    int64_t heads = s->groups * s->repeat, n = s->queries * heads * s->width;
    int64_t keys = s->room * s->groups * s->width, seen[16], before[16];
    sherd__cached c = {.queries = s->queries,
                       .groups = s->groups,
                       .repeat = s->repeat,
                       .width = s->width,
                       .keys = s->room,
                       .key_row = s->groups * s->width,
                       .seen = seen,
                       .before = before,
                       .scale = s->scale,
                       .softcap = s->softcap};
    void *workspace = malloc((size_t)kernels->attention_cached_workspace(&c) + 64);
    double *wide = calloc((size_t)n + 1, sizeof *wide);
    double *log_sum = calloc((size_t)(s->queries * heads) + 1, sizeof *log_sum);
    bool half = dtype == SHERD_BF16 || dtype == SHERD_F16;
    char *to = (char *)out->host + (size_t)(b * n) * element;

    if (!workspace || !wide || !log_sum)
        abort();
    for (int64_t i = 0; i < s->queries; i++) {
        int64_t at = ((const int32_t *)where->host)[b * s->queries + i] + 1 - s->first;
        seen[i] = at < 0 ? 0 : at > s->room ? s->room : at;
        before[i] = s->window && at > s->window ? at - s->window : 0;
    }
    kernels->attention_cached(&c, half ? (void *)wide : to, log_sum,
                              (const char *)q->host + (size_t)(b * n) * element,
                              (const char *)k->host + (size_t)(b * keys) * element,
                              (const char *)v->host + (size_t)(b * keys) * element, workspace);
    if (sums)
        memcpy((char *)sums->host + (size_t)(b * s->queries * heads) * element, log_sum,
               (size_t)(s->queries * heads) * element);
    if (half)
        kernels->narrow(n, to, (const float *)(const void *)wide);
    free(workspace);
    free(wide);
    free(log_sum);
}

static void check_cached(sherd_dtype dtype, const sherd__caching *given, int shift, bool full)
{
    sherd__caching s = *given;
    int64_t rows = s.batch * s.queries * s.groups * s.repeat, n = rows * s.width;
    int64_t keys = s.batch * s.room * s.groups * s.width;
    array qkv[] = {drawn(dtype, n, shift, -2, 2, 1), drawn(dtype, keys, shift, -2, 2, 2),
                   drawn(dtype, keys, shift, -2, 2, 3)};
    array out = room_for(dtype, n, shift), where = drawn_positions(&s, full);
    bool plain = dtype == SHERD_F32 || dtype == SHERD_F64; /* results are statistics too */
    array sums = room_for(dtype, rows, 0);

    s.scale = 0.3;
    for (int64_t i = 0; i < where.n; i++) {
        int64_t seen = ((int32_t *)where.host)[i] + 1 - s.first;
        seen = seen > s.room ? s.room : seen;
        s.seen = seen > s.seen ? seen : s.seen;
    }
    for (int64_t b = 0; b < s.batch; b++)
        plain_item(dtype, &s, b, &where, &out, plain ? &sums : NULL, qkv);
    CHECK(sherd__device_attention_cached(device, dtype, &s, where.data, out.data, qkv[0].data,
                                         qkv[1].data, qkv[2].data));
    same(&out, 1e-5, "attention to a cache");
    s.log_sum = plain ? sums.data : NULL;
    sherd__device_attention_cached(device, dtype, &s, where.data, out.data, qkv[0].data,
                                   qkv[1].data, qkv[2].data);
    same_bits(&out, "attention to a cache");
    if (plain)
        same(&sums, 1e-5, "its logarithms of sums");
    for (int i = 0; i < 3; i++)
        drop(&qkv[i]);
    drop(&out), drop(&where), drop(&sums);
}

static void caches_are_read_as_by_the_cpu(void)
{
    static const sherd__caching shapes[] = {
        /* batch, queries, groups, repeat, width, room, first; what is seen follows */
        {2, 1, 1, 1, 32, 9, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {1, 1, 2, 4, 128, 70, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {2, 3, 2, 2, 20, 200, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {1, 2, 1, 8, 64, 130, 3, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {3, 1, 2, 5, 7, 65, 10, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {1, 1, 1, 3, 256, 12, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {1, 1, 1, 2, 130, 66, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {0, 1, 1, 1, 8, 5, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
        {2, 1, 2, 1, 8, 0, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0},
    };
    static const sherd__caching windows[] = {
        {2, 3, 1, 2, 20, 300, 0, 0, 1, NULL, NULL, 0, 0, 0, 1, 0},
        {2, 3, 2, 1, 32, 300, 0, 0, 1, NULL, NULL, 0, 0, 0, 70, 0.9},
        {1, 1, 1, 4, 64, 130, 40, 0, 1, NULL, NULL, 0, 0, 0, 35, 0},
        {1, 2, 1, 1, 8, 500, 0, 0, 1, NULL, NULL, 0, 0, 0, 150, 0.7},
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % 2; i < LEN(shapes); i += 1 + (d > 0)) /* f32 all, the others some */
            check_cached(dtypes[d], &shapes[i], i % 2, i % 3 != 2);
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % 2; i < LEN(windows); i += 2)
            check_cached(dtypes[d], &windows[i], 0, i > 0);
    /* Many parts, more than a block joins at once. */
    check_cached(SHERD_F32,
                 &(sherd__caching){1, 1, 1, 1, 4, 8400, 0, 0, 1, NULL, NULL, 0, 0, 0, 0, 0}, 0,
                 true);
    close_device();
}

/* Behind what a query sees there may be anything, also in the same part. */
static void nothing_behind_is_read(void)
{
    const sherd__caching s = {.batch = 1,
                              .queries = 1,
                              .groups = 1,
                              .repeat = 2,
                              .width = 8,
                              .room = 90,
                              .seen = 70,
                              .scale = 1};
    array qkv[3], where, out;

    open_device();
    qkv[0] = drawn(SHERD_F32, 16, 0, -1, 1, 1), out = room_for(SHERD_F32, 16, 0);
    where = room_for(SHERD_I32, 1, 0);
    *(int32_t *)where.host = 69;
    send(&where);
    for (int i = 1; i < 3; i++) {
        qkv[i] = drawn(SHERD_F32, 90 * 8, 0, -1, 1, 1 + (uint64_t)i);
        for (int k = 70 * 8; k < 90 * 8; k++)
            ((float *)qkv[i].host)[k] = NAN;
        send(&qkv[i]);
    }
    plain_item(SHERD_F32, &s, 0, &where, &out, NULL, qkv);
    sherd__device_attention_cached(device, SHERD_F32, &s, where.data, out.data, qkv[0].data,
                                   qkv[1].data, qkv[2].data);
    same(&out, 1e-5, "a cache with more behind");
    for (int i = 0; i < 3; i++)
        drop(&qkv[i]);
    drop(&out), drop(&where);
    close_device();
}

static void too_wide_heads_are_not_for_it(void)
{
    const sherd__caching s = {.batch = 1,
                              .queries = 1,
                              .groups = 1,
                              .repeat = 1,
                              .width = 257,
                              .room = 4,
                              .seen = 4,
                              .scale = 1};

    open_device();
    CHECK(!sherd__device_attention_cached(device, SHERD_F32, &s, NULL, NULL, NULL, NULL, NULL));
    close_device();
}

/*
 * A cache cut into blocks of `together`, which lie in a pool in disorder, some of them before
 * `first_block`: the bits of the cache itself. Entries behind what is seen are no blocks.
 */
static void check_blocks(sherd_dtype dtype, const sherd__caching *given, int64_t together)
{
    sherd__caching s = *given;
    int64_t m = sherd__ceil_div(s.room, together), blocks = s.batch * m + 3;
    int64_t row = s.groups * s.width, n = s.batch * s.queries * row * s.repeat;
    size_t bytes = (size_t)row * sherd_dtype_bytes(dtype);
    array q = drawn(dtype, n, 0, -2, 2, 1), out = room_for(dtype, n, 0), kv[2], pool[2];
    array where = drawn_positions(&s, true), table = room_for(SHERD_I32, s.batch * m, 0);

    s.first_block = 5;
    for (int64_t i = 0; i < s.batch * m; i++)
        ((int32_t *)table.host)[i] = (int32_t)(s.first_block + (i * 7 + 2) % blocks);
    for (int i = 0; i < 2; i++) {
        kv[i] = drawn(dtype, s.batch * s.room * row, 0, -2, 2, 2 + (uint64_t)i);
        pool[i] = drawn(dtype, blocks * together * row, 0, -9, 9, 4);
        for (int64_t b = 0; b < s.batch; b++)
            for (int64_t j = 0; j < s.room; j++) {
                int64_t at = ((int32_t *)table.host)[b * m + j / together] - s.first_block;
                memcpy((char *)pool[i].host + (size_t)(at * together + j % together) * bytes,
                       (char *)kv[i].host + (size_t)(b * s.room + j) * bytes, bytes);
            }
        send(&pool[i]);
    }
    send(&table);
    s.seen = s.room;
    sherd__device_attention_cached(device, dtype, &s, where.data, out.data, q.data, kv[0].data,
                                   kv[1].data);
    fetch(&out);
    memcpy(out.host, out.got, (size_t)out.bytes);
    s.table = table.data, s.entries = m, s.together = together;
    sherd__device_set(device, out.data, 0, out.bytes);
    sherd__device_attention_cached(device, dtype, &s, where.data, out.data, q.data, pool[0].data,
                                   pool[1].data);
    fetch(&out);
    CHECK(memcmp(out.host, out.got, (size_t)out.bytes) == 0);
    for (int i = 0; i < 2; i++)
        drop(&kv[i]), drop(&pool[i]);
    drop(&q), drop(&out), drop(&where), drop(&table);
}

static void blocks_give_the_bits_of_a_cache(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++) {
        check_blocks(dtypes[d],
                     &(sherd__caching){.batch = 2,
                                       .queries = 1,
                                       .groups = 2,
                                       .repeat = 1,
                                       .width = 64,
                                       .room = 83,
                                       .scale = 0.3},
                     16);
        check_blocks(dtypes[d],
                     &(sherd__caching){.batch = 3,
                                       .queries = 2,
                                       .groups = 1,
                                       .repeat = 3,
                                       .width = 24,
                                       .room = 150,
                                       .scale = 0.3},
                     7);
    }
    check_blocks(SHERD_BF16,
                 &(sherd__caching){.batch = 1,
                                   .queries = 1,
                                   .groups = 2,
                                   .repeat = 2,
                                   .width = 19,
                                   .room = 40,
                                   .scale = 0.3},
                 1);
    close_device();
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Rows of `bytes` with gaps between them; the same index again: the last one stays. */
static void check_rows(int64_t batch, int64_t n, int64_t entries, int64_t bytes, int64_t gap)
{
    sherd__row_writes w = {.batch = batch,
                           .n = n,
                           .bytes = bytes,
                           .first = 2,
                           .entries = entries,
                           .dst_batch = entries * (bytes + gap),
                           .dst_row = bytes + gap,
                           .src_batch = n * (bytes + gap),
                           .src_row = bytes + gap};
    array to = drawn(SHERD_F32, batch * entries * (bytes + gap) / 4 + 1, 0, -1, 1, 1);
    array from = drawn(SHERD_F32, batch * n * (bytes + gap) / 4 + 1, 0, -1, 1, 2);
    array index = drawn_ids(batch * n, entries + 4, 3);

    for (int64_t b = 0; b < batch; b++)
        for (int64_t i = 0; i < n; i++) {
            int64_t at = ((int32_t *)index.host)[b * n + i] - w.first;
            if (at >= 0 && at < entries)
                memcpy((char *)to.host + b * w.dst_batch + at * w.dst_row,
                       (char *)from.host + b * w.src_batch + i * w.src_row, (size_t)bytes);
        }
    sherd__device_write_rows(device, &w, to.data, from.data, index.data);
    fetch(&to);
    CHECK(memcmp(to.host, to.got, (size_t)to.bytes) == 0);
    drop(&to), drop(&from), drop(&index);
}

static void rows_are_written_where_an_index_says(void)
{
    open_device();
    check_rows(3, 1, 5, 64, 0);
    check_rows(2, 70, 9, 48, 4);
    check_rows(1, 40, 30, 2, 2);
    check_rows(1, 33, 30, 1, 3);
    check_rows(2, 5, 30, 8, 8);
    check_rows(2, 0, 4, 16, 0);
    check_rows(2, 3, 4, 0, 4);
    close_device();
}

/* By a table: two sequences have a block in common, where the last one's row stays. */
static void rows_are_written_into_blocks(void)
{
    enum { BATCH = 3, N = 5, ENTRIES = 4, TOGETHER = 3, BLOCKS = 9, FIRST = 4, BYTES = 24 };
    static const int32_t lines[BATCH][ENTRIES] = {{6, 4, 12, 99}, {6, 5, 7, 99}, {8, 9, 10, -1}};
    array to, from, table, index;
    const sherd__row_writes plain = {.batch = BATCH,
                                     .n = N,
                                     .bytes = BYTES,
                                     .first = FIRST,
                                     .entries = ENTRIES,
                                     .dst_batch = TOGETHER * BYTES,
                                     .dst_row = BYTES,
                                     .src_batch = N * BYTES,
                                     .src_row = BYTES,
                                     .together = TOGETHER};
    sherd__row_writes w = plain;

    open_device();
    to = drawn(SHERD_F32, BLOCKS * TOGETHER * BYTES / 4, 0, -1, 1, 1);
    from = drawn(SHERD_F32, BATCH * N * BYTES / 4, 0, -1, 1, 2);
    table = room_for(SHERD_I32, BATCH * ENTRIES, 0);
    index = drawn_ids(BATCH * N, 3 * TOGETHER, 3);
    memcpy(table.host, lines, sizeof lines);
    ((int32_t *)index.host)[4] = -3;
    send(&table), send(&index);
    for (int i = 0; i < BATCH * N; i++) {
        int32_t id = ((int32_t *)index.host)[i];
        int64_t at = id < 0 ? 0 : (lines[i / N][id / TOGETHER] - FIRST) * TOGETHER + id % TOGETHER;
        if (id >= 0)
            memcpy((char *)to.host + at * BYTES, (char *)from.host + i * BYTES, BYTES);
    }
    w.table = table.data;
    sherd__device_write_rows(device, &w, to.data, from.data, index.data);
    fetch(&to);
    CHECK(memcmp(to.host, to.got, (size_t)to.bytes) == 0);
    drop(&to), drop(&from), drop(&index), drop(&table);
    close_device();
}

static const check_test tests[] = {
    {TEST(caches_are_read_as_by_the_cpu)},        {TEST(nothing_behind_is_read)},
    {TEST(too_wide_heads_are_not_for_it)},        {TEST(blocks_give_the_bits_of_a_cache)},
    {TEST(rows_are_written_where_an_index_says)}, {TEST(rows_are_written_into_blocks)},
};
CHECK_MAIN(tests)
