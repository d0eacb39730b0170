/* SPDX-License-Identifier: Apache-2.0 */
/* The heap counts and fails on demand; the map finds what was put in, after any mix of adding and
 * removing. */
#define CHECK_PURE
#include "check.h"
#include "base/alloc.h"
#include "base/hash.h"
#include "base/map.h"

#include <limits.h>

static void fresh_memory_is_zero_and_counted(void)
{
    sherd__heap heap = {0};
    unsigned char *p = sherd__alloc(&heap, 10, 7), *nothing = sherd__alloc(&heap, 0, 8);

    CHECK(p && nothing); /* 0 bytes are not a failure */
    for (int i = 0; p && i < 70; i++)
        CHECK_EQ(p[i], 0);
    CHECK_EQ(heap.live, 2);
    CHECK_EQ(heap.allocations, 2);
    sherd__free(&heap, p);
    sherd__free(&heap, nothing);
    sherd__free(&heap, NULL);
    CHECK_EQ(heap.live, 0);
}

static void growing_keeps_the_old_and_clears_the_new(void)
{
    sherd__heap heap = {0};
    int32_t *p = sherd__grow(&heap, NULL, 0, 1000, sizeof *p);

    for (int i = 0; p && i < 1000; i++) {
        CHECK_EQ(p[i], 0);
        p[i] = i + 1;
    }
    p = sherd__grow(&heap, p, 1000, 3, sizeof *p); /* what is given back stays dirty */
    p = sherd__grow(&heap, p, 3, 1000, sizeof *p);
    CHECK(p);
    for (int i = 0; p && i < 1000; i++)
        CHECK_EQ(p[i], i < 3 ? i + 1 : 0);
    CHECK_EQ(heap.live, 1);
    sherd__free(&heap, p);
    CHECK_EQ(heap.live, 0);
}

static void too_much_is_refused(void)
{
    sherd__heap heap = {0};
    char *old = sherd__copy_text(&heap, "old");

    CHECK(!sherd__alloc(&heap, SIZE_MAX, 2));
    CHECK(!sherd__alloc(&heap, SIZE_MAX / 2 + 1, 2)); /* the product wraps to 0 */
    CHECK(!sherd__alloc(&heap, (size_t)PTRDIFF_MAX + 1, 1));
    CHECK(!sherd__grow(&heap, old, 4, SIZE_MAX / 8, 16));
    int room = INT_MAX / 2 + 1, most = INT_MAX;
    CHECK(!sherd__double(&heap, old, &room, 1, SIZE_MAX / 8)); /* the double would wrap, too */
    CHECK(!sherd__double(&heap, old, &most, 1, 1));
    CHECK(room == INT_MAX / 2 + 1 && most == INT_MAX);
    CHECK(old && strcmp(old, "old") == 0); /* still there */
    CHECK_EQ(heap.live, 1);
    sherd__free(&heap, old);
}

/* Allocate in three ways; fail the first, second, ... until all go through. */
static void the_nth_allocation_fails(void)
{
    int failed = 0;

    for (int64_t at = 1;; at++) {
        sherd__heap heap = {.fail_at = at};
        char *text = sherd__copy_text(&heap, "text");
        int *array = sherd__alloc(&heap, 4, sizeof *array);
        int *more = sherd__grow(&heap, array, 4, 8, sizeof *more);
        bool storage = sherd__may_allocate(&heap);
        int missing = !text + !array + !more + !storage;

        CHECK(missing <= 1); /* an array that is missing is made by grow */
        CHECK_EQ(heap.live, !!text + (array || more));
        sherd__free(&heap, text);
        sherd__free(&heap, more ? more : array);
        CHECK_EQ(heap.live, 0);
        if (missing == 0)
            break;
        failed++;
    }
    CHECK_EQ(failed, 4);
}

/* More than a stock keeps, twice: the second time some are lent again. */
static void what_is_given_back_is_lent_again(void)
{
    enum { STRUCTS = 1000, BYTES = 40 };
    sherd__heap heap = {0};
    sherd__stock stock = {0};
    unsigned char *p[STRUCTS];

    for (int turn = 0; turn < 2; turn++) {
        int dirty = 0;
        for (int i = 0; i < STRUCTS; i++)
            if (CHECK((p[i] = sherd__stock_take(&heap, &stock, BYTES)) != NULL)) {
                for (int k = 0; k < BYTES; k++)
                    dirty += p[i][k];
                memset(p[i], 1 + i % 255, BYTES); /* no two are one */
            }
        CHECK_EQ(dirty, 0);
        CHECK_EQ(heap.live, STRUCTS);
        CHECK_EQ(heap.allocations, (turn + 1) * STRUCTS);
        for (int i = 0; i < STRUCTS; i++) {
            CHECK_EQ(p[i] ? p[i][BYTES - 1] : 0, 1 + i % 255);
            sherd__stock_give(&heap, &stock, p[i]);
        }
        CHECK_EQ(heap.live, 0);
        CHECK(stock.count < STRUCTS);
    }
    heap = (sherd__heap){.fail_at = 1};
    CHECK(!sherd__stock_take(&heap, &stock, BYTES)); /* also where one is idle */
    CHECK_EQ(heap.live, 0);
    sherd__stock_give(&heap, &stock, NULL);
    sherd__stock_clear(&stock);
    sherd__stock_clear(&stock);
    CHECK_EQ(stock.count, 0);
}

static bool same(const void *item, const void *key)
{
    return *(const int *)item == *(const int *)key;
}

/* Few different hashes, so that runs are long, wrap around the end of the table, and overlap. */
static uint64_t crowded(int value)
{
    return ~((uint64_t)(value * 13 % 11) * 3);
}

enum { VALUES = 200 };

static void check_map(const sherd__map *map, const int *values, const bool *there)
{
    size_t cursor = 0, count = 0;

    for (int i = 0; i < VALUES; i++)
        CHECK(sherd__map_find(map, crowded(i), same, &i) == (there[i] ? &values[i] : NULL));
    while (sherd__map_next(map, &cursor))
        count++;
    CHECK_EQ(count, map->count);
}

static void a_map_holds_what_was_put_in(void)
{
    sherd__heap heap = {0};
    sherd__map map = {.heap = &heap};
    int values[VALUES];
    bool there[VALUES] = {false};
    uint64_t state = 1;

    for (int i = 0; i < VALUES; i++)
        values[i] = i;
    check_map(&map, values, there);
    sherd__map_remove(&map, 0, values); /* from an empty map: nothing */
    for (int step = 0; step < 4000; step++) {
        state = sherd__hash_word(state, 1);
        int i = (int)(state % VALUES);
        if (there[i])
            sherd__map_remove(&map, crowded(i), &values[i]);
        else
            CHECK(sherd__map_add(&map, crowded(i), &values[i]));
        there[i] = !there[i];
        if (step % 37 == 0)
            check_map(&map, values, there);
    }
    check_map(&map, values, there);
    sherd__map_clear(&map);
    CHECK_EQ(map.count, 0);
    CHECK_EQ(heap.live, 0);
    sherd__map_clear(&map);
}

static void a_map_without_memory_stays_as_it_was(void)
{
    int values[VALUES];
    bool there[VALUES] = {false};
    sherd__heap heap = {.fail_at = 3};
    sherd__map map = {.heap = &heap};
    int added = 0;

    for (int i = 0; i < VALUES; i++)
        values[i] = i;
    while (added < VALUES && sherd__map_add(&map, crowded(added), &values[added]))
        there[added++] = true;
    CHECK(added > 0 && added < VALUES);
    CHECK_EQ(map.count, added);
    check_map(&map, values, there);
    CHECK(sherd__map_add(&map, crowded(added), &values[added])); /* memory is back */
    there[added] = true;
    check_map(&map, values, there);
    sherd__map_clear(&map);
    CHECK_EQ(heap.live, 0);
}

static const check_test tests[] = {
    {TEST(fresh_memory_is_zero_and_counted)},
    {TEST(growing_keeps_the_old_and_clears_the_new)},
    {TEST(too_much_is_refused)},
    {TEST(what_is_given_back_is_lent_again)},
    {TEST(the_nth_allocation_fails)},
    {TEST(a_map_holds_what_was_put_in)},
    {TEST(a_map_without_memory_stays_as_it_was)},
};
CHECK_MAIN(tests)
