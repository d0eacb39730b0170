/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: compiled once, launched in order, for GPUs that the compiler knows or not; what does not
 * compile or can not be launched is told in a line. */
#define CHECK_PURE
#include "device.h"

#include "programs/elements_args.h"

enum { N = 1000 };

static int count_other(sherd__device *device, const void *data, float value)
{
    float back[N];
    int wrong = 0;

    if (!CHECK(sherd__device_download(device, back, data, sizeof back)))
        return N;
    for (int i = 0; i < N; i++)
        wrong += back[i] != value;
    return wrong;
}

static void kernels_run_in_the_order_of_their_launch(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *a = device ? sherd__device_take(device, 4 * N) : NULL;
    sherd__device_block *b = device ? sherd__device_take(device, 4 * N) : NULL;
    int64_t made = 0;

    for (int i = 0; a && b && i < 5; i++) {
        sherd__device_fill(device, SHERD_F32, a->data, N, i);
        sherd__device_move(device, b->data, a->data, 4 * N);
        sherd__device_fill(device, SHERD_F32, a->data, N, -i);
        if (i == 0)
            made = heap.allocations;
        CHECK_EQ(heap.allocations, made); /* it was kept */
        CHECK_EQ(count_other(device, b->data, (float)i), 0);
        CHECK_EQ(count_other(device, a->data, (float)-i), 0);
    }
    if (device) {
        sherd__device_give(device, a);
        sherd__device_give(device, b);
    }
    close_gpu(&heap, device);
    CHECK_EQ(left_of_cuda(), 0);
}

/* The texts of a kernel's name may lie in several places. */
static void a_kernel_of_the_same_name_is_not_compiled_again(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *a = device ? sherd__device_take(device, 4 * N) : NULL;

    if (!a)
        return;
    sherd__device_fill(device, SHERD_F32, a->data, N, 1);
    int before = left_of_cuda();
    char family[] = "fill";
    const fill_args args = {0};
    const sherd__kernel same = {SHERD__PROGRAM_ELEMENTS, family, NULL, SHERD_F32, SHERD_DTYPE_NONE};
    if (is_emulated()) /* arguments of zeros: no elements */
        sherd__device_launch(device, &same, (sherd__launch_grid){1, 32, 0}, &args, sizeof args);
    CHECK_EQ(count_other(device, a->data, 1), 0);
    CHECK_EQ(left_of_cuda(), before);
    sherd__device_give(device, a);
    close_gpu(&heap, device);
}

static void no_blocks_launch_nothing(void)
{
    static const sherd__kernel none = {SHERD__PROGRAM_ELEMENTS, "none", NULL, SHERD_F32,
                                       SHERD_DTYPE_NONE};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    if (device)
        sherd__device_launch(device, &none, (sherd__launch_grid){0, 32, 0}, NULL, 0);
    close_gpu(&heap, device);
}

/* A launch fails with a line that has this in it, and with no other. */
static void check_launch_fails(const sherd__kernel *kernel, sherd__launch_grid grid,
                               const char *part)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    int64_t args[32] = {0};

    if (!device)
        return;
    sherd__device_launch(device, kernel, grid, args, sizeof args);
    sherd__device_wait(device);
    const char *fault = sherd__device_fault(device);
    if (!CHECK(fault && strstr(fault, part)))
        printf("%s\n", fault ? fault : "no fault");
    CHECK(!fault || !strchr(fault, '\n'));
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
    CHECK_EQ(left_of_cuda(), 0);
}

static void what_cannot_run_is_told(void)
{
    const sherd__kernel none = {SHERD__PROGRAM_ELEMENTS, "none", "kind", SHERD_F32, SHERD_BF16};
    const sherd__kernel fill = {SHERD__PROGRAM_ELEMENTS, "fill", NULL, SHERD_F32, SHERD_DTYPE_NONE};
    const sherd__launch_grid one = {1, 32, 0};

    check_launch_fails(&none, one, "cuda:0: none_kind_f32_bf16 does not compile: ");
    check_launch_fails(&none, one, "error");
    check_launch_fails(&fill, (sherd__launch_grid){(int64_t)1 << 31, 32, 0}, "2147483648 blocks");
    check_launch_fails(&fill, (sherd__launch_grid){1, 2048, 0}, "fill: ");
    check_launch_fails(&fill, (sherd__launch_grid){1, 32, 1 << 20}, "fill: ");
}

/* More memory of a block than is usual is asked for by itself. */
static void a_block_may_have_much_memory(void)
{
    static const sherd__kernel fill = {SHERD__PROGRAM_ELEMENTS, "fill", NULL, SHERD_F32,
                                       SHERD_DTYPE_NONE};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    const fill_args args = {0};

    for (int i = 0; device && is_emulated() && i < 2; i++)
        sherd__device_launch(device, &fill, (sherd__launch_grid){1, 32, 100000}, &args,
                             sizeof args);
    if (device)
        CHECK(sherd__device_wait(device));
    close_gpu(&heap, device);
}

/* A GPU that is newer than the compiler runs what is compiled for an older one. */
static void a_newer_gpu_takes_older_code(void)
{
    static const char *const architectures[] = {"80", "89", "90", "121"};

    for (int i = 0; i < LEN(architectures) && is_emulated(); i++) {
        sherd__heap heap = {0};
        setenv("SHERD_EMULATED_CUDA_ARCH", architectures[i], 1);
        sherd__device *device = open_gpu(&heap, "cuda", 0);
        sherd__device_block *a = device ? sherd__device_take(device, 4 * N) : NULL;
        if (a) {
            sherd__device_fill(device, SHERD_F32, a->data, N, 3);
            CHECK_EQ(count_other(device, a->data, 3), 0);
            sherd__device_give(device, a);
        }
        close_gpu(&heap, device);
    }
    unsetenv("SHERD_EMULATED_CUDA_ARCH");
}

/* What fails on the way of a launch: an allocation, a call of CUDA's for lack of memory, or one for
 * another reason. */
enum { ALLOCATIONS, LACKING_CALLS, CALLS, WAYS };

static void fill_and_fail(sherd__heap *heap, sherd__device *device, void *data, int way, int at)
{
    heap->fail_at = way == ALLOCATIONS ? heap->allocations + at : 0;
    if (way == LACKING_CALLS)
        lack_call(at - 1);
    if (way == CALLS)
        fail_call(at - 1);
    sherd__device_fill(device, SHERD_F32, data, N, 3);
    fail_call(-1);
    heap->fail_at = 0;
}

/* One line, told once; and the next launch works. */
static void check_lacked(sherd__device *device, const char *lacked, void *data)
{
    CHECK(strstr(lacked, "out of memory") && !strchr(lacked, '\n'));
    CHECK(!sherd__device_lacked(device));
    sherd__device_fill(device, SHERD_F32, data, N, 4);
    CHECK_EQ(count_other(device, data, 4), 0);
}

/* Each allocation and each call of CUDA's in turn, until it goes well. */
static void what_fails_leaves_nothing(void)
{
    for (int way = 0; way < WAYS && is_emulated(); way++) {
        bool again = true;
        int failed = 0;
        for (int at = 1; again; at++) {
            sherd__heap heap = {0};
            sherd__device *device = open_gpu(&heap, "cuda", 0);
            sherd__device_block *a = device ? sherd__device_take(device, 4 * N) : NULL;
            if (!a)
                return;
            fill_and_fail(&heap, device, a->data, way, at);
            const char *fault = sherd__device_fault(device), *lacked = sherd__device_lacked(device);
            again = fault || lacked;
            failed += again;
            CHECK(way == CALLS ? !lacked : !fault);
            CHECK(!fault || (strncmp(fault, "cuda:0: ", 8) == 0 && !strchr(fault, '\n')));
            if (lacked)
                check_lacked(device, lacked, a->data);
            else if (!fault)
                CHECK_EQ(count_other(device, a->data, 3), 0);
            sherd__device_give(device, a);
            sherd__device_close(device);
            CHECK_EQ(heap.live, 0);
            CHECK_EQ(left_of_cuda(), 0);
        }
        CHECK(failed >= 4);
    }
}

/* Who reads what was not made for lack of memory is told so, until somebody has asked why. */
static void what_was_left_out_is_not_read(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__device_block *a = device ? sherd__device_take(device, 4 * N) : NULL;
    float back[N];

    if (!a)
        return;
    heap.fail_at = heap.allocations + 1;
    sherd__device_fill(device, SHERD_F32, a->data, N, 3);
    heap.fail_at = 0;
    CHECK(!sherd__device_download(device, back, a->data, sizeof back));
    const char *lacked = sherd__device_lacked(device);
    CHECK_TEXT(lacked ? lacked : "", "out of memory for a kernel");
    CHECK(sherd__device_download(device, back, a->data, sizeof back));
    sherd__device_give(device, a);
    close_gpu(&heap, device);
}

/* A kernel whose block needs more memory than is usual may be refused it for the moment. */
static void memory_of_a_block_is_asked_for_again(void)
{
    static const sherd__kernel fill = {SHERD__PROGRAM_ELEMENTS, "fill", NULL, SHERD_F32,
                                       SHERD_DTYPE_NONE};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    const fill_args args = {0};
    int lacked = 0;

    for (int at = 0; device && is_emulated() && at < 3; at++) {
        sherd__device_launch(device, &fill, (sherd__launch_grid){1, 32, 0}, &args, sizeof args);
        lack_call(at);
        sherd__device_launch(device, &fill, (sherd__launch_grid){1, 32, 100000}, &args,
                             sizeof args);
        fail_call(-1);
        lacked += sherd__device_lacked(device) != NULL;
    }
    CHECK_EQ(lacked, is_emulated() ? 2 : 0);
    close_gpu(&heap, device);
}

/* What was asked for under one place of its texts holds under the other. */
static void memory_of_a_block_is_one_kernels(void)
{
    static const sherd__kernel fill = {SHERD__PROGRAM_ELEMENTS, "fill", NULL, SHERD_F32,
                                       SHERD_DTYPE_NONE};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    char family[] = "fill";
    const fill_args args = {0};
    const sherd__kernel same = {SHERD__PROGRAM_ELEMENTS, family, NULL, SHERD_F32, SHERD_DTYPE_NONE};

    if (!device)
        return;
    sherd__device_launch(device, &fill, (sherd__launch_grid){1, 32, 100000}, &args, sizeof args);
    sherd__device_launch(device, &same, (sherd__launch_grid){1, 32, 60000}, &args, sizeof args);
    sherd__device_launch(device, &fill, (sherd__launch_grid){1, 32, 100000}, &args, sizeof args);
    CHECK(sherd__device_wait(device));
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(kernels_run_in_the_order_of_their_launch)},
    {TEST(a_kernel_of_the_same_name_is_not_compiled_again)},
    {TEST(no_blocks_launch_nothing)},
    {TEST(what_cannot_run_is_told)},
    {TEST(a_block_may_have_much_memory)},
    {TEST(a_newer_gpu_takes_older_code)},
    {TEST(what_fails_leaves_nothing)},
    {TEST(what_was_left_out_is_not_read)},
    {TEST(memory_of_a_block_is_asked_for_again)},
    {TEST(memory_of_a_block_is_one_kernels)},
};
CHECK_MAIN(tests)
