/* SPDX-License-Identifier: Apache-2.0 */
/* Where there is no /dev/null, `sherd run` names it, and not the program. */
#define CHECK_PURE
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>

#include "launch/launch.h"

static bool is_gone;

/* Instead of the C library's, in this program. */
int open(const char *path, int flags, ...)
{
    va_list more;

    va_start(more, flags);
    int mode = flags & O_CREAT ? va_arg(more, int) : 0;
    va_end(more);
    if (is_gone && strcmp(path, "/dev/null") == 0) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static int launch(sherd__diag *diag)
{
    char program[] = "true";
    char *const argv[] = {program, NULL};

    return sherd__launch(&(sherd__launch_options){.ranks = 2, .argv = argv}, diag);
}

static void what_is_missing_is_named(void)
{
    sherd__diag diag = {0};

    CHECK(launch(&diag) >= 0);
    is_gone = true;
    CHECK_EQ(launch(&diag), SHERD_ENOTSUP);
    CHECK(strstr(diag.text, "/dev/null") && strstr(diag.text, "No such file"));
    CHECK(!strstr(diag.text, "true"));
    is_gone = false;
}

static const check_test tests[] = {
    {TEST(what_is_missing_is_named)},
};

CHECK_MAIN(tests)
