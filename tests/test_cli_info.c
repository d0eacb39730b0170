/* SPDX-License-Identifier: Apache-2.0 */
/* What `sherd info` says: as JSON; of GPUs a line for each that CUDA's driver has. */
#define CHECK_PURE
#include "device.h"
#include "gpus.h"
#include "program.h"
#include "cli.h"

#include <ctype.h>

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

static void programs_get_json(void)
{
    json_t *o = answer_of("info");
    char keys[256];

    keys_of(o, keys, sizeof keys);
    CHECK_TEXT(keys,
               "system release machine cores usable_cores memory_bytes tensor_bytes max_ranks "
               "kernels gemm peak bf16_peak gemm_rate gpus");
    CHECK_TEXT(text(o, "system"), "Linux");
    CHECK(whole(o, "usable_cores") >= 1 && whole(o, "usable_cores") <= whole(o, "cores"));
    CHECK(whole(o, "memory_bytes") > 1 << 20);
    CHECK(json_number_value(json_object_get(o, "gemm_rate")) > 1e6);
    CHECK(json_is_array(json_object_get(o, "gpus")));
    json_decref(o);
}

static void it_has_help_and_refuses_the_rest(void)
{
    CHECK_EQ(sherd("info --help")->status, 0);
    CHECK(strstr(sherd("help info")->out, "--json"));
    const program_end *end = sherd("info --jason");
    CHECK_EQ(end->status, 2);
    CHECK(strstr(end->err, "sherd info: there is no option \"--jason\"; `sherd help info` lists"));
    CHECK_EQ(sherd("info all")->status, 2);
}

/* What a command does stands in one column, also behind a call that is longer than its own. */
static void what_commands_do_stands_in_one_column(void)
{
    enum { COLUMN = 60 };
    const char *line = strchr(sherd("help")->out, '\n') + 2;

    for (int lines = 0; *line && CHECK(lines < 100); lines++) {
        const char *end = strchr(line, '\n');
        bool alone = end && strncmp(end + 1, "   ", 3) == 0; /* the next line has what it does */
        if (!CHECK(end != NULL))
            return;
        CHECK(alone || (end - line > COLUMN && line[COLUMN - 1] == ' ' && isalpha(line[COLUMN])));
        line = end + 1;
    }
}

static void what_can_not_be_printed_is_said(void)
{
    check_full("info", "info");
    check_full("info --json", "info");
    check_full("help", "");
    check_full("help info", "");
    check_full("--version", "");
    check_full("show [4(x)]on(x=2)", "show");
}

static const check_test tests[] = {
    {TEST(each_gpu_has_a_line)},
    {TEST(programs_get_json)},
    {TEST(what_commands_do_stands_in_one_column)},
    {TEST(what_can_not_be_printed_is_said)},
    {TEST(it_has_help_and_refuses_the_rest)},
    {TEST(a_driver_that_is_not_there_or_fails_is_none)},
};
CHECK_MAIN(tests)
