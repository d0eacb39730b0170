/* SPDX-License-Identifier: Apache-2.0 */
/* What `sherd info` says of GPUs: a line for each that CUDA's driver has, nothing without one. */
#define CHECK_PURE
#include "device.h"
#include "gpus.h"

static void check_printed(const char *expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *to = open_memstream(&text, &bytes);

    if (!CHECK(to))
        return;
    print_gpus(to);
    fclose(to);
    CHECK_TEXT(text, expected);
    free(text);
}

static void each_gpu_has_a_line(void)
{
    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_DEVICES", "2", 1);
    setenv("SHERD_EMULATED_CUDA_BYTES", "6710886400", 1); /* 6.25 GiB */
    check_printed("GPU         cuda:0, emulated GPU 0, 6.2 GiB\n"
                  "GPU         cuda:1, emulated GPU 1, 6.2 GiB\n");
    setenv("SHERD_EMULATED_CUDA_DEVICES", "0", 1);
    check_printed("");
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
    unsetenv("SHERD_EMULATED_CUDA_BYTES");
}

static void a_driver_that_is_not_there_or_fails_is_none(void)
{
    if (!is_emulated())
        return;
    for (int at = 0; at < 2; at++) { /* starting, counting */
        fail_call(at);
        check_printed("");
        CHECK(!call_will_fail());
    }
    for (int at = 2; at < 5; at++) { /* what it is asked of a GPU */
        fail_call(at);
        check_printed("");
    }
    fail_call(-1);
    char *before = strdup(getenv("SHERD_CUDA_LIBRARY"));
    setenv("SHERD_CUDA_LIBRARY", "libm.so.6", 1);
    check_printed("");
    setenv("SHERD_CUDA_LIBRARY", "/nowhere/libcuda.so", 1);
    check_printed("");
    setenv("SHERD_CUDA_LIBRARY", before, 1);
    free(before);
}

static const check_test tests[] = {
    {TEST(each_gpu_has_a_line)},
    {TEST(a_driver_that_is_not_there_or_fails_is_none)},
};
CHECK_MAIN(tests)
