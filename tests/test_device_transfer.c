/* SPDX-License-Identifier: Apache-2.0 */
/* Copies to, from and within the GPU, in the order of the calls, whatever waits when. */
#define CHECK_PURE
#include <pthread.h>

#include "device.h"

#include "programs/elements_args.h"

static const int64_t sizes[] = {0, 1, 3, 255, 4096, 100001, 3 << 20};

static void what_goes_there_comes_back(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int s = 0; device && s < LEN(sizes); s++) {
        size_t n = (size_t)sizes[s];
        unsigned char *data = malloc(n + 1), *back = malloc(n + 1);
        sherd__device_block *a = sherd__device_take(device, sizes[s] + 1);
        sherd__device_block *b = sherd__device_take(device, sizes[s] + 1);
        int wrong = 0;
        for (size_t i = 0; i < n; i++)
            data[i] = (unsigned char)(i * 7 + 1);
        sherd__device_upload(device, a->data, data, sizes[s]);
        memset(data, 0, n); /* the source may be changed at once */
        sherd__device_move(device, b->data, a->data, sizes[s]);
        sherd__device_set(device, a->data, 9, sizes[s]); /* after the copy of it */
        memset(back, 0, n);
        CHECK(sherd__device_download(device, back, b->data, sizes[s]));
        for (size_t i = 0; i < n; i++)
            wrong += back[i] != (unsigned char)(i * 7 + 1);
        CHECK(sherd__device_download(device, back, a->data, sizes[s]));
        for (size_t i = 0; i < n; i++)
            wrong += back[i] != 9;
        CHECK_EQ(wrong, 0);
        sherd__device_give(device, a);
        sherd__device_give(device, b);
        free(data);
        free(back);
    }
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

/* A block that is given back and taken again is written after what was queued of it before. */
static void memory_is_taken_again_in_order(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    int got = 0;

    if (!device)
        return;
    sherd__device_block *kept = sherd__device_take(device, 4);
    sherd__device_block *first = sherd__device_take(device, 4);
    int one = 1, two = 2;
    void *at = first->data;
    sherd__device_upload(device, first->data, &one, 4);
    sherd__device_move(device, kept->data, first->data, 4);
    sherd__device_give(device, first);
    sherd__device_block *second = sherd__device_take(device, 4);
    CHECK(second->data == at);
    sherd__device_upload(device, second->data, &two, 4);
    CHECK(sherd__device_download(device, &got, kept->data, 4));
    CHECK_EQ(got, 1);
    CHECK(sherd__device_download(device, &got, second->data, 4));
    CHECK_EQ(got, 2);
    sherd__device_give(device, second);
    sherd__device_give(device, kept);
    close_gpu(&heap, device);
}

/* Each call that fails is told once, in one line, and nothing is done after it. */
static void a_failed_call_is_told(void)
{
    int failed = 0;
    const char *fault = "";

    for (int at = 0; fault && is_emulated(); at++) {
        sherd__heap heap = {0};
        sherd__device *device = open_gpu(&heap, "cuda", 0);
        if (!device)
            return;
        sherd__device_block *a = sherd__device_take(device, 8);
        char data[8] = "1234567";
        fail_call(at);
        sherd__device_upload(device, a->data, data, 4);
        sherd__device_move(device, (char *)a->data + 4, a->data, 4);
        sherd__device_set(device, a->data, 1, 4);
        bool good = sherd__device_download(device, data, a->data, 8);
        bool waited = sherd__device_wait(device);
        fail_call(-1);
        fault = sherd__device_fault(device);
        CHECK_EQ(waited, !fault);
        CHECK(good || fault);
        if (fault)
            CHECK(strncmp(fault, "cuda:0: ", 8) == 0 && strstr(fault, "(CUDA's error 999)"));
        failed += fault != NULL;
        sherd__device_give(device, a);
        sherd__device_close(device);
        CHECK_EQ(heap.live, 0);
        CHECK_EQ(left_of_cuda(), 0);
    }
    CHECK_EQ(failed, is_emulated() ? 6 : 0);
}

static void bad_pointers_are_a_fault(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    int here = 0;

    if (!device)
        return;
    if (is_emulated()) {
        sherd__device_set(device, &here, 1, 4);
        CHECK(sherd__device_fault(device));
        CHECK(!sherd__device_download(device, &here, &here, 4));
    }
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
}

/* One thread at a time, but any. */
typedef struct errand {
    sherd__heap heap;
    sherd__device *device;
    sherd__device_block *block;
    int value;
    bool good;
} errand;

static void *go_there(void *payload)
{
    errand *e = payload;
    sherd__device_block *other = sherd__device_take(e->device, 64 << 20); /* a chunk of its own */

    sherd__device_upload(e->device, e->block->data, &e->value, 4);
    e->good = other && sherd__device_wait(e->device);
    sherd__device_give(e->device, other);
    return NULL;
}

static void threads_take_turns(void)
{
    sherd__heap heap = {0};
    errand e = {.device = open_gpu(&heap, "cuda", 0)};

    if (!e.device)
        return;
    e.block = sherd__device_take(e.device, 4);
    for (e.value = 1; e.value < 4; e.value++) {
        pthread_t thread;
        int back = 0;
        CHECK_EQ(pthread_create(&thread, NULL, go_there, &e), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK(e.good);
        CHECK(sherd__device_download(e.device, &back, e.block->data, 4));
        CHECK_EQ(back, e.value);
    }
    sherd__device_give(e.device, e.block);
    close_gpu(&heap, e.device);
}

/* One is the other's place in memory, often with its name too; its context it has not. */
static void *open_and_go(void *payload)
{
    errand *e = payload;
    static const sherd__kernel fill = {SHERD__PROGRAM_ELEMENTS, "fill", NULL, SHERD_F32,
                                       SHERD_DTYPE_NONE};
    const fill_args args = {0};

    if (!e->device)
        e->device = open_gpu(&e->heap, "cuda", 0);
    if (e->device) /* arguments of zeros: no elements */
        sherd__device_launch(e->device, &fill, (sherd__launch_grid){1, 32, 0}, &args, sizeof args);
    return NULL;
}

static void a_thread_in_the_place_of_an_ended_one(void)
{
    errand e = {.device = NULL};
    pthread_t thread;

    for (int turn = 0; turn < 3; turn++) {
        CHECK_EQ(pthread_create(&thread, NULL, open_and_go, &e), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    close_gpu(&e.heap, e.device);
}

/* A thread with two worlds: each has its own memory and kernels. */
static void two_gpus_of_a_thread_take_turns(void)
{
    enum { N = 100, TURNS = 3 };
    sherd__heap heap[2] = {{0}};
    sherd__device *device[2];
    sherd__device_block *block[2] = {NULL};

    setenv("SHERD_EMULATED_CUDA_DEVICES", "2", 1);
    for (int i = 0; i < 2 && is_emulated(); i++)
        if ((device[i] = open_gpu(&heap[i], "cuda", i)))
            block[i] = sherd__device_take(device[i], N * sizeof(float));
    for (int turn = 0; turn < TURNS && block[0] && block[1]; turn++)
        for (int i = 0; i < 2; i++) {
            float back[N];
            sherd__device_fill(device[i], SHERD_F32, block[i]->data, N, turn + i);
            CHECK(sherd__device_download(device[i], back, block[i]->data, sizeof back));
            CHECK_EQ(back[N - 1], turn + i);
        }
    for (int i = 0; i < 2 && is_emulated(); i++) {
        sherd__device_give(device[i], block[i]);
        close_gpu(&heap[i], device[i]);
    }
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
    CHECK_EQ(left_of_cuda(), 0);
}

static const check_test tests[] = {
    {TEST(threads_take_turns)},
    {TEST(a_thread_in_the_place_of_an_ended_one)},
    {TEST(two_gpus_of_a_thread_take_turns)},
    {TEST(what_goes_there_comes_back)},
    {TEST(memory_is_taken_again_in_order)},
    {TEST(a_failed_call_is_told)},
    {TEST(bad_pointers_are_a_fault)},
};
CHECK_MAIN(tests)
