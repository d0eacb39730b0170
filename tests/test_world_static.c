/* SPDX-License-Identifier: Apache-2.0 */
/* A static executable: it computes by the library's own kernels, and says what it has no module
 * for. */
#define CHECK_PURE
#include "check.h"
#include "program.h"

static const char path[] = SHERD_BUILD_DIR "/static_program";

/* False, and said so: static libraries are not here. */
static bool is_there(void)
{
    if (access(path, X_OK) == 0)
        return true;
    puts("skipped: nothing is linked statically here");
    return false;
}

static void a_static_executable_computes(void)
{
    static const char *const products[] = {"", "tiles", "onednn"};

    for (int i = 0; is_there() && i < LEN(products); i++) {
        setenv("SHERD_GEMM", products[i], 1);
        const program_end *end = program_run(path);
        CHECK_EQ(end->status, 0);
        CHECK_TEXT(end->out, "sum 82944\n");
    }
    unsetenv("SHERD_GEMM");
}

static void what_it_can_not_load_is_one_clear_line(void)
{
    if (!is_there())
        return;
    setenv("PMI_RANK", "1", 1);
    setenv("PMI_SIZE", "2", 1);
    CHECK_TEXT(
        program_run(path)->out,
        "ENOTSUP: PMI_RANK says that this is rank 1 of a job of MPI, but a static executable "
        "can load no module for it: link it to libsherd.so\n");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
    setenv("SHERD_DEVICE", "cuda", 1);
    const program_end *end = program_run(path);
    CHECK(strstr(end->out, "ENOTSUP: ") && strstr(end->out, "a static executable can load no"));
    unsetenv("SHERD_DEVICE");
}

static const check_test tests[] = {
    {TEST(a_static_executable_computes)},
    {TEST(what_it_can_not_load_is_one_clear_line)},
};
CHECK_MAIN(tests)
