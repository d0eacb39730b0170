/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tables on the GPU, and their gradients: sums are in order, in f32 of 16 bits too. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"
#include "kernels/places.h"

typedef struct table {
    int64_t n, width, first, entries;
    int shift;
} table;

/* The CPU adds in the same order, so results have the same bits; of many rows it adds groups, but
 * f64. */
static void table_is_plain(sherd_dtype dtype, const table *t, const array *ids)
{
    const sherd__kernels *k = plain_of(dtype);
    array weight = drawn(dtype, t->entries * t->width, t->shift, -2, 2, 1);
    array dy = drawn(dtype, t->n * t->width, t->shift, -2, 2, 2);
    array y = room_for(dtype, t->n * t->width, t->shift);
    array dw = room_for(dtype, t->entries * t->width, t->shift);
    int64_t bytes = sherd__places_bytes(t->n, t->width, t->entries);
    int64_t *scratch = malloc(sizeof *scratch * (size_t)(t->entries + t->n + 1) + (size_t)bytes);

    if (!scratch)
        abort();
    k->embedding(t->n, t->width, y.host, weight.host, ids->host, t->first, t->entries);
    k->embedding_grad(t->n, t->width, dw.host, dy.host, ids->host, t->first, t->entries, scratch);
    sherd__device_embedding(device, dtype, t->n, t->width, y.data, weight.data, ids->data, t->first,
                            t->entries);
    sherd__device_embedding_grad(device, dtype, t->n, t->width, dw.data, dy.data, ids->data,
                                 t->first, t->entries);
    fetch(&y);
    CHECK(memcmp(y.host, y.got, (size_t)y.bytes) == 0);
    same(&dw, 1e-3, "gradient");
    if (dtype == SHERD_F64 || t->n <= SHERD__ROWS_OF_SUM)
        CHECK(memcmp(dw.host, dw.got, (size_t)dw.bytes) == 0);
    free(scratch);
    drop(&weight), drop(&dy), drop(&y), drop(&dw);
}

static void tables_are_plain(void)
{
    static const table tables[] = {
        {0, 8, 0, 5, 0},    {7, 0, 0, 5, 0},     {9, 8, 0, 0, 0},       {1, 1, 0, 1, 0},
        {100, 3, 2, 7, 1},  {2500, 64, 0, 5, 0}, {500, 40, 10, 300, 0}, {300, 33, 0, 700, 1},
        {4000, 8, 0, 1, 0}, /* more places of one block than it lists */
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(tables); i++) {
            array ids = drawn_ids(tables[i].n, tables[i].entries + tables[i].first + 3, 3);
            table_is_plain(dtypes[d], &tables[i], &ids);
            drop(&ids);
        }
    close_device();
}

/* One id has nearly all places, and there are more of them than a block lists. */
static void an_id_that_is_everywhere(void)
{
    static const table t = {4000, 24, 0, 600, 0};

    open_device();
    array ids = drawn_ids(t.n, t.entries, 4);
    for (int64_t i = 0; i < t.n; i++)
        if (i % 9)
            ((int32_t *)ids.host)[i] = 530;
    send(&ids);
    for (int d = 1; d < 3; d++) /* f64, bf16 */
        table_is_plain(dtypes[d], &t, &ids);
    drop(&ids);
    close_device();
}

static const check_test tests[] = {
    {TEST(tables_are_plain)},
    {TEST(an_id_that_is_everywhere)},
};
CHECK_MAIN(tests)
