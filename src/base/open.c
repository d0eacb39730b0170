/* SPDX-License-Identifier: Apache-2.0 */
/* Opening files beyond the standard ones: see base/open.h. */
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int sherd__beyond_standard(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    int higher = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int reason = errno;
    close(fd);
    errno = reason;
    return higher;
}

int sherd__open_file(const char *path, int flags)
{
    return sherd__beyond_standard(open(path, flags | O_CLOEXEC, 0666));
}
