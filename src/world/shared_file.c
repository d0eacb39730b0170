/* SPDX-License-Identifier: Apache-2.0 */
/* Files without names: see shared_file.h. */
#include "shared_file.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

bool sherd__is_forbidden(int reason)
{
    return reason == EPERM || reason == EACCES || reason == ENOSYS;
}

/* A limit on the size of files is not meant for memory, and going past it would end the process by
 * a signal. errno. */
static int extend(int fd, size_t bytes)
{
    struct rlimit limit, raised;

    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return ftruncate(fd, (off_t)bytes) ? errno : 0;
    if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < bytes)
        return EFBIG;
    raised = limit;
    raised.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &raised);
    int reason = ftruncate(fd, (off_t)bytes) ? errno : 0;
    setrlimit(RLIMIT_FSIZE, &limit);
    return reason;
}

/* In a folder. A page without room there ends the process that touches it: there must be room for
 * all. */
static int open_in(const char *folder, size_t bytes)
{
    struct statvfs room;
    int fd = folder ? open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600) : -1;

    if (fd < 0 || fstatvfs(fd, &room) || room.f_bavail * room.f_frsize >= bytes)
        return fd;
    close(fd);
    errno = ENOSPC;
    return -1;
}

static int open_anywhere(size_t bytes, const char **where)
{
    const char *const folders[] = {"/dev/shm", getenv("TMPDIR"), "/tmp"};
    int fd = memfd_create("sherd", MFD_CLOEXEC), reason = errno;

    *where = "memfd_create";
    if (fd >= 0 || !sherd__is_forbidden(reason))
        return fd;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        fd = open_in(folders[i], bytes);
        if (fd >= 0 || (folders[i] && errno == ENOSPC)) {
            *where = folders[i];
            return fd;
        }
    }
    errno = reason;
    return -1;
}

int sherd__shared_file(size_t bytes, const char **where)
{
    int fd = sherd__beyond_standard(open_anywhere(bytes, where));
    int reason = fd < 0 ? 0 : extend(fd, bytes);

    if (!reason)
        return fd;
    *where = "ftruncate";
    close(fd);
    errno = reason;
    return -1;
}
