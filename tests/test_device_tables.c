/* SPDX-License-Identifier: Apache-2.0 */
/* Elements by index on the GPU are those of the CPU, bit for bit, sums too: of rows and of
 * elements, with indices that come again, or that are of entries elsewhere. */
#define CHECK_PURE
#include "check.h"
#include "device/order.h"
#include "device/tables.h"
#include "device_arrays.h"

static const sherd__pick shapes[] = {
    {1, 7, 1, 5, 0, NULL, false},   {2, 9, 3, 4, 2, NULL, false},  {3, 1, 2, 6, 0, NULL, false},
    {1, 50, 16, 9, 0, NULL, true},  {2, 33, 5, 12, 3, NULL, true}, {2, 0, 3, 4, 0, NULL, false},
    {1, 300, 1, 40, 0, NULL, true}, {2, 4, 0, 4, 0, NULL, true},   {1, 5, 3, 0, 0, NULL, false},
};

/* Indices for the CPU in `here`, for the GPU in `there`. */
static array drawn_index(sherd__pick *here, sherd__pick *there)
{
    array index = drawn_ids(here->flat ? here->n : here->outer * here->n * here->inner,
                            here->entries + here->first + 1, 3);

    here->index = index.host;
    there->index = index.data;
    return index;
}

static void same_elements(array *a)
{
    fetch(a);
    CHECK(memcmp(a->host, a->got, (size_t)a->bytes) == 0);
}

static void check_copies(sherd_dtype dtype, const sherd__pick *shape, int shift)
{
    sherd__pick here = *shape, there = *shape;
    int64_t n = here.outer * here.n * here.inner, all = here.outer * here.entries * here.inner;
    size_t bytes = sherd_dtype_bytes(dtype);
    array index = drawn_index(&here, &there);
    array whole = drawn(dtype, all, shift, -2, 2, 1), part = drawn(dtype, n, shift, -2, 2, 2);
    array taken = room_for(dtype, n, shift), last = room_for(dtype, n, shift);
    array filled = drawn(dtype, all, shift, -2, 2, 4);
    int32_t *winner = malloc((size_t)(here.entries * here.inner + 1) * sizeof *winner);

    if (!winner)
        abort();
    sherd__gather(bytes, &here, taken.host, whole.host);
    sherd__device_gather(device, bytes, &there, taken.data, whole.data);
    same_elements(&taken);
    sherd__gather_last(bytes, &here, last.host, whole.host, winner);
    sherd__device_gather_last(device, bytes, &there, last.data, whole.data);
    same_elements(&last);
    sherd__scatter(bytes, &here, whole.host, part.host, NULL);
    sherd__device_scatter(device, bytes, &there, whole.data, part.data, NULL);
    same_elements(&whole);
    sherd__scatter(bytes, &here, filled.host, NULL, "abcdefgh");
    sherd__device_scatter(device, bytes, &there, filled.data, NULL, "abcdefgh");
    same_elements(&filled);
    free(winner);
    drop(&index), drop(&whole), drop(&part), drop(&taken), drop(&last), drop(&filled);
}

static void what_is_copied(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(shapes); i++)
            check_copies(dtypes[d], &shapes[i], i % 2);
    close_device();
}

/* In f32 of 16 bits, as operators of the CPU add. */
static void plain_add(sherd_dtype dtype, const sherd__pick *p, array *to, const array *from)
{
    const sherd__kernels *k = plain_of(dtype);
    void *scratch = malloc((size_t)sherd__scatter_scratch(SHERD_F32, SHERD_SUM, p) + 1);

    if (!scratch)
        abort();
    if (dtype == SHERD_F32 || dtype == SHERD_F64) {
        sherd__scatter_reduce(dtype, SHERD_SUM, p, to->host, from->host, scratch);
        free(scratch);
        return;
    }
    float *total = malloc((size_t)(to->n + 1) * sizeof *total);
    float *addend = malloc((size_t)(from->n + 1) * sizeof *addend);
    if (!total || !addend)
        abort();
    k->widen(to->n, total, to->host);
    k->widen(from->n, addend, from->host);
    sherd__scatter_reduce(SHERD_F32, SHERD_SUM, p, total, addend, scratch);
    k->narrow(to->n, to->host, total);
    free(total);
    free(addend);
    free(scratch);
}

static void check_sums(sherd_dtype dtype, const sherd__pick *shape, int shift)
{
    sherd__pick here = *shape, there = *shape;
    array index = drawn_index(&here, &there);
    array to = drawn(dtype, here.outer * here.entries * here.inner, shift, -2, 2, 1);
    array from = drawn(dtype, here.outer * here.n * here.inner, shift, -2, 2, 2);

    CHECK(sherd__device_scatter_adds(dtype, &there));
    plain_add(dtype, &here, &to, &from);
    sherd__device_scatter_add(device, dtype, &there, to.data, from.data);
    same_elements(&to);
    drop(&index), drop(&to), drop(&from);
}

static void what_is_added(void)
{
    static const sherd__pick long_one = {1, 9000, 1, 700, 0, NULL, true};
    static const sherd__pick few_places[] = {{2, 700, 8, 3, 0, NULL, true},
                                             {1, 400, 3, 2, 0, NULL, false}};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(shapes); i++)
            check_sums(dtypes[d], &shapes[i], i % 2);
    check_sums(SHERD_F32, &long_one, 0); /* several tiles, two digits */
    for (int i = 0; i < 4; i++)          /* more rows of a place than one group */
        check_sums(i % 2 ? SHERD_BF16 : SHERD_F32, &few_places[i / 2], 0);
    CHECK(!sherd__device_scatter_adds(SHERD_I32, &long_one));
    close_device();
}

/* Each of them alone would leave the sum in f32 as it was. */
static void small_addends_of_many_count(void)
{
    enum { MOST = 64 * 5 };
    static const int64_t counts[] = {65, 128, 129, MOST};

    open_device();
    for (int i = 0; i < LEN(counts); i++) {
        int64_t n = counts[i];
        array index = room_for(SHERD_I32, n, 0), from = room_for(SHERD_F32, n, 0);
        array to = room_for(SHERD_F32, 1, 0);
        const sherd__pick p = {1, n, 1, 1, 0, index.data, true};
        memset(index.host, 0, (size_t)index.bytes);
        for (int64_t k = 0; k < n; k++)
            ((float *)from.host)[k] = 1;
        *(float *)to.host = 1 << 24;
        send(&index), send(&from), send(&to);
        *(float *)to.host = (float)((1 << 24) + n);
        sherd__device_scatter_add(device, SHERD_F32, &p, to.data, from.data);
        same_elements(&to);
        drop(&index), drop(&from), drop(&to);
    }
    close_device();
}

/* Memory that is taken next holds no places, so that nobody finds any where none were written. */
static void spoil(int64_t bytes)
{
    sherd__device_block *block = sherd__device_take(device, bytes);

    if (block)
        sherd__device_set(device, block->data, 0x7f, bytes);
    sherd__device_give(device, block);
}

/* Each allocation in turn: a kernel of the chain that is not queued leaves no places for the next.
 * Some lack nothing: a kernel that is not read from the disk for lack of memory is compiled. */
static void lack_of_memory_writes_nowhere(void)
{
    enum { N = 1100, ENTRIES = 70, MOST = 64 };
    int lacked = 0;

    for (int n = 0; n < MOST; n++) {
        open_device();
        sherd__pick here = {1, N, 1, ENTRIES, 0, NULL, true}, there = here;
        array index = drawn_index(&here, &there), to = drawn(SHERD_F32, ENTRIES, 0, -1, 1, 1);
        array from = drawn(SHERD_F32, N, 0, -1, 1, 2), order = room_for(SHERD_I32, N, 0);
        array sorted = room_for(SHERD_F32, N, 0);
        spoil(1 << 20);
        heap.fail_at = heap.allocations + 1 + n;
        sherd__device_scatter_add(device, SHERD_F32, &there, to.data, from.data);
        sherd__device_order(device, SHERD_F32, (int64_t[]){1, N, 1}, N, false, sorted.data,
                            order.data, from.data);
        bool reached = heap.allocations >= heap.fail_at;
        heap.fail_at = 0;
        lacked += sherd__device_lacked(device) != NULL;
        CHECK(sherd__device_wait(device));
        drop(&index), drop(&to), drop(&from), drop(&order), drop(&sorted);
        close_device();
        if (!reached)
            break;
        CHECK(n < MOST - 1);
    }
    CHECK(lacked > 6);
}

static const check_test tests[] = {
    {TEST(what_is_copied)},
    {TEST(what_is_added)},
    {TEST(small_addends_of_many_count)},
    {TEST(lack_of_memory_writes_nowhere)},
};
CHECK_MAIN(tests)
