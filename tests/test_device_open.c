/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a GPU: its name, what is said when there is none, and no call of CUDA's or allocation
 * that fails leaves anything behind. */
#define CHECK_PURE
#include "device.h"

/* Opening fails so, with a text that has this in it. */
static void check_refused(const char *name, sherd_status status, const char *part)
{
    sherd__diag diag = {.rank = -1};
    sherd__heap heap = {0};
    sherd__device *device = (sherd__device *)&heap;

    CHECK_EQ(sherd__device_open(&device, &heap, &diag, name, 0), status);
    CHECK(!device);
    CHECK_EQ(heap.live, 0);
    if (!CHECK(strstr(diag.text, part)))
        CHECK_TEXT(diag.text, part);
    CHECK(!strchr(diag.text, '\n'));
}

static void a_rank_has_the_gpu_of_its_number(void)
{
    setenv("SHERD_EMULATED_CUDA_DEVICES", "3", 1);
    for (int rank = 0; rank < 7 && is_emulated(); rank++) {
        sherd__heap heap = {0};
        char name[16];
        sherd__device *device = open_gpu(&heap, "cuda", rank);
        snprintf(name, sizeof name, "cuda:%d", rank % 3);
        if (device)
            CHECK_TEXT(sherd__device_name(device), name);
        snprintf(name, sizeof name, "emulated GPU %d", rank % 3);
        if (device)
            CHECK_TEXT(sherd__device_model(device), name);
        close_gpu(&heap, device);
        device = open_gpu(&heap, "cuda:1", rank);
        if (device)
            CHECK_TEXT(sherd__device_name(device), "cuda:1");
        close_gpu(&heap, device);
    }
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
    CHECK_EQ(left_of_cuda(), 0);
}

static void other_names_are_refused(void)
{
    static const char *const names[] = {
        "",        "gpu",     "cud",  "cudax",  "cuda:",   "cuda:x",    "cuda:1x",
        "cuda:-1", "cuda: 1", "CUDA", "cuda 1", "cuda:+1", "cuda:99999"};

    choose_cuda();
    for (int i = 0; i < LEN(names); i++)
        check_refused(names[i], SHERD_EINVAL, "is no device");
}

static void a_gpu_that_is_not_there_is_told(void)
{
    choose_cuda();
    check_refused("cuda:9", SHERD_ENOTSUP, "there is no cuda:9: CUDA finds 1 GPU");
    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_DEVICES", "0", 1);
    check_refused("cuda", SHERD_ENOTSUP, "this machine has no GPU");
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
}

static void a_missing_library_is_named(void)
{
    char *before = strdup((choose_cuda(), getenv("SHERD_CUDA_LIBRARY")));

    setenv("SHERD_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    check_refused("cuda", SHERD_ENOTSUP, "without libcuda.so.1: install NVIDIA's driver");
    setenv("SHERD_CUDA_LIBRARY", "libm.so.6", 1);
    check_refused("cuda", SHERD_ENOTSUP, "libcuda.so.1 is too old: it has no cuInit");
    setenv("SHERD_CUDA_LIBRARY", before, 1);
    free(before);
}

/* Fail the first, second, ... of the allocations, or of CUDA's calls, until it opens. */
static void what_fails_leaves_nothing(void)
{
    for (int calls = 0; calls < 2 && is_emulated(); calls++) {
        sherd_status status = SHERD_ENOMEM;
        int failed = 0;
        for (int at = 1; status && at < 100; at++) {
            sherd__heap heap = {.fail_at = calls ? 0 : at};
            sherd__diag diag = {.rank = -1};
            sherd__device *device;
            if (calls)
                fail_call(at - 1);
            status = sherd__device_open(&device, &heap, &diag, "cuda", 0);
            CHECK(!status == !!device);
            fail_call(-1);
            if (status) {
                CHECK_EQ(status, calls ? SHERD_ENOTSUP : SHERD_ENOMEM);
                CHECK(*diag.text);
                failed++;
            }
            sherd__device_close(device);
            CHECK_EQ(heap.live, 0);
            CHECK_EQ(left_of_cuda(), 0);
        }
        CHECK_OK(status);
        CHECK(failed >= (calls ? 7 : 1));
    }
    sherd__device_close(NULL);
}

static void the_first_failure_stays(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (!device)
        return;
    CHECK(!sherd__device_fault(device));
    sherd__device_fail(device, "one %d\ntwo", 7);
    sherd__device_fail(device, "another");
    CHECK_TEXT(sherd__device_fault(device), "cuda:0: one 7 two");
    CHECK(!sherd__device_wait(device));
    CHECK(!sherd__device_take(device, 100));
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
    CHECK_EQ(left_of_cuda(), 0);
}

static void lack_of_memory_does_not_stay(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    char text[300];

    if (!device)
        return;
    CHECK(!sherd__device_lacked(device));
    sherd__device_lack(device, "out of memory for one");
    sherd__device_lack(device, "out of memory for two");
    CHECK(!sherd__device_fault(device));
    const char *lacked = sherd__device_lacked(device);
    CHECK_TEXT(lacked ? lacked : "", "out of memory for one");
    CHECK(!sherd__device_lacked(device));
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sherd__device_lack(device, text); /* shortened */
    CHECK(strlen(sherd__device_lacked(device)) < strlen(text));
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(a_rank_has_the_gpu_of_its_number)}, {TEST(other_names_are_refused)},
    {TEST(a_gpu_that_is_not_there_is_told)},  {TEST(a_missing_library_is_named)},
    {TEST(what_fails_leaves_nothing)},        {TEST(the_first_failure_stays)},
    {TEST(lack_of_memory_does_not_stay)},
};
CHECK_MAIN(tests)
