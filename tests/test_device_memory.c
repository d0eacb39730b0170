/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU's memory: blocks do not overlap, are joined again, and come back; no growth; no memory of
 * the GPU, or for a struct, is told and mends itself. */
#define CHECK_PURE
#include "device.h"

enum { UNIT = 256, MIB = 1 << 20 };

static int64_t live(const sherd__device *device)
{
    return sherd__device_memory_of(device).live_bytes;
}

static int64_t reserved(const sherd__device *device)
{
    return sherd__device_memory_of(device).reserved_bytes;
}

static void blocks_are_aligned_and_apart(void)
{
    static const int64_t sizes[] = {1,          255,     256,        257,     4096,
                                    65537,      MIB - 1, MIB,        MIB + 1, 3 * MIB + 5,
                                    700 * UNIT, 5 * MIB, 9 * MIB + 1};
    sherd__device_block *block[LEN(sizes)];
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    int64_t sum = 0;

    for (int i = 0; device && i < LEN(sizes); i++) {
        block[i] = sherd__device_take(device, sizes[i]);
        if (!CHECK(block[i]))
            return;
        CHECK_EQ(block[i]->bytes, sizes[i]);
        CHECK_EQ((uintptr_t)block[i]->data % UNIT, 0);
        sum += (sizes[i] + UNIT - 1) / UNIT * UNIT;
        CHECK_EQ(live(device), sum);
        sherd__device_set(device, block[i]->data, i + 1, sizes[i]);
    }
    for (int i = 0; device && i < LEN(sizes); i++) {
        unsigned char *data = malloc((size_t)sizes[i]);
        int wrong = 0;
        CHECK(sherd__device_download(device, data, block[i]->data, sizes[i]));
        for (int64_t k = 0; k < sizes[i]; k++)
            wrong += data[k] != i + 1;
        CHECK_EQ(wrong, 0);
        free(data);
    }
    for (int i = 0; device && i < LEN(sizes); i++)
        sherd__device_give(device, block[i]);
    CHECK_EQ(device ? live(device) : 0, 0);
    CHECK_EQ(device ? sherd__device_memory_of(device).peak_bytes : 0, device ? sum : 0);
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

static void odd_requests_get_nothing(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (!device)
        return;
    CHECK(!sherd__device_take(device, 0));
    CHECK(!sherd__device_take(device, -1));
    CHECK(!sherd__device_take(device, INT64_MAX));
    CHECK(!sherd__device_take(device, (int64_t)1 << 45));
    sherd__device_give(device, NULL);
    CHECK(!sherd__device_fault(device));
    CHECK_EQ(reserved(device), 0);
    close_gpu(&heap, device);
}

/* What is given back in any order is one piece again, so that the largest block fits in its place. */
static void neighbours_are_joined(void)
{
    enum { PARTS = 16 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *part[PARTS];
    uint64_t dice = 7;

    for (int turn = 0; device && turn < 50; turn++) {
        sherd__device_block *whole = sherd__device_take(device, 4 * MIB);
        int64_t before = reserved(device);
        CHECK(whole);
        sherd__device_give(device, whole);
        for (int i = 0; i < PARTS; i++)
            CHECK((part[i] = sherd__device_take(device, (i % 2 ? 2 : 1) * MIB + (i % 2 ? 0 : 1))));
        for (int i = PARTS; i > 0; i--) {
            int k = roll(&dice, i);
            sherd__device_give(device, part[k]);
            part[k] = part[i - 1];
        }
        whole = sherd__device_take(device, 4 * MIB);
        CHECK(whole && whole->room == 4 * MIB);
        sherd__device_give(device, whole);
        CHECK(turn == 0 || reserved(device) == before);
    }
    close_gpu(&heap, device);
}

/* Sizes as they come, for long: what the driver gave stays near the most that was in use, and no
 * two blocks overlap (each holds its own number in its first and last byte). */
static void memory_does_not_grow(void)
{
    enum { BLOCKS = 64, TURNS = 20000, SETTLED = 10000 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *block[BLOCKS] = {0};
    uint64_t dice = 1;
    int64_t settled = 0;

    for (int turn = 0; device && turn < TURNS; turn++) {
        int i = roll(&dice, BLOCKS), power = 1 << roll(&dice, 22);
        if (turn == SETTLED)
            settled = reserved(device);
        if (block[i]) {
            unsigned char ends[2];
            if (turn % 16 == 0) {
                const char *data = block[i]->data;
                sherd__device_download(device, ends, data, 1);
                sherd__device_download(device, ends + 1, data + block[i]->bytes - 1, 1);
                CHECK_EQ(ends[0], i);
                CHECK_EQ(ends[1], i);
            }
            sherd__device_give(device, block[i]);
        }
        block[i] = sherd__device_take(device, 1 + roll(&dice, power));
        if (!CHECK(block[i]))
            break;
        sherd__device_set(device, block[i]->data, i, block[i]->bytes);
    }
    for (int i = 0; device && i < BLOCKS; i++)
        sherd__device_give(device, block[i]);
    CHECK_EQ(device ? live(device) : 0, 0);
    CHECK(!device || reserved(device) <= settled + 64 * MIB);
    CHECK(!device || reserved(device) <= 4 * sherd__device_memory_of(device).peak_bytes);
    close_gpu(&heap, device);
}

static void the_peak_is_kept_until_it_is_reset(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (!device)
        return;
    sherd__device_block *a = sherd__device_take(device, MIB), *b = sherd__device_take(device, MIB);
    sherd__device_give(device, a);
    CHECK_EQ(sherd__device_memory_of(device).peak_bytes, 2 * MIB);
    sherd__device_memory_reset(device);
    CHECK_EQ(sherd__device_memory_of(device).peak_bytes, MIB);
    sherd__device_give(device, b);
    close_gpu(&heap, device);
}

/* A driver with 32 MiB: small chunks that nobody uses go back to it when a large block needs their
 * place, but no chunk that is in use, or that other ranks know. */
static void unused_chunks_go_back_when_memory_is_short(void)
{
    sherd__heap heap = {0};

    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_BYTES", "33554432", 1);
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *small[64], *large;
    for (int i = 0; device && i < LEN(small); i++)
        CHECK((small[i] = sherd__device_take(device, MIB / 4)));
    CHECK(device && reserved(device) >= 16 * MIB);
    CHECK(device && !sherd__device_take(device, 28 * MIB)); /* all are in use */
    for (int i = 0; device && i < LEN(small); i++) {
        sherd__device_set(device, small[i]->data, 1, small[i]->bytes); /* still queued */
        sherd__device_give(device, small[i]);
    }
    CHECK(device && (large = sherd__device_take(device, 32 * MIB)));
    CHECK(device && reserved(device) == 32 * MIB);
    CHECK(device && !sherd__device_take(device, 1));
    CHECK(device && !sherd__device_fault(device));
    if (device) {
        int64_t word[SHERD__DEVICE_WORDS];
        sherd__device_export(device, word, large, 0);
        sherd__device_give(device, large);
        CHECK(!sherd__device_take(device, 1)); /* another rank knows it */
        CHECK((large = sherd__device_take(device, 32 * MIB)));
        sherd__device_give(device, large);
    }
    close_gpu(&heap, device);
    unsetenv("SHERD_EMULATED_CUDA_BYTES");
    CHECK_EQ(left_of_cuda(), 0);
}

static void the_nth_allocation_fails(void)
{
    int failed = 0, missing = 1;

    for (int at = 1; missing; at++) {
        sherd__heap heap = {0};
        sherd__device *device = open_gpu(&heap, "cuda", 0);
        if (!device)
            return;
        int64_t opened = heap.allocations;
        heap.fail_at = opened + at;
        sherd__device_block *a = sherd__device_take(device, MIB + 1);
        sherd__device_block *b = sherd__device_take(device, 100);
        sherd__device_block *c = sherd__device_take(device, 100);
        missing = !a + !b + !c;
        CHECK(missing <= 1);
        failed += missing;
        heap.fail_at = 0;
        sherd__device_give(device, a);
        sherd__device_give(device, c);
        CHECK((a = sherd__device_take(device, 2 * MIB)));
        sherd__device_give(device, a);
        sherd__device_give(device, b);
        CHECK_EQ(live(device), 0);
        close_gpu(&heap, device);
    }
    CHECK(failed >= 5);
}

/* Whatever the driver has against it but a lack of memory is no lack of memory. */
static void a_failure_is_no_lack_of_memory(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (device && is_emulated()) {
        break_call(0);
        CHECK(!sherd__device_take(device, MIB));
        const char *fault = sherd__device_fault(device);
        CHECK(fault && strstr(fault, "taking memory: ") && strstr(fault, "error 700"));
        sherd__device_lack(device, "out of memory for a block");
        CHECK(!sherd__device_lacked(device)); /* that is not why */
        fail_call(-1);
    }
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
    CHECK_EQ(left_of_cuda(), 0);
}

static void what_was_not_given_back_is_freed(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < 100; i++)
        CHECK(sherd__device_take(device, 1 + i * 50000));
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

static const check_test tests[] = {
    {TEST(blocks_are_aligned_and_apart)},
    {TEST(odd_requests_get_nothing)},
    {TEST(neighbours_are_joined)},
    {TEST(memory_does_not_grow)},
    {TEST(the_peak_is_kept_until_it_is_reset)},
    {TEST(unused_chunks_go_back_when_memory_is_short)},
    {TEST(the_nth_allocation_fails)},
    {TEST(a_failure_is_no_lack_of_memory)},
    {TEST(what_was_not_given_back_is_freed)},
};
CHECK_MAIN(tests)
