/* SPDX-License-Identifier: Apache-2.0 */
/* Opening files beyond the standard ones: see base/open.h. */
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int sherd__open_file(const char *path, int flags)
{
    int low = open(path, flags | O_CLOEXEC, 0666);

    if (low < 0 || low > STDERR_FILENO)
        return low;
    int fd = fcntl(low, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int reason = errno;
    close(low);
    errno = reason;
    return fd;
}
