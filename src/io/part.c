/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file PATH.part, until it is complete and gets the name PATH. Rank 0 holds a lock on it until
 * then, so that no two jobs write into it.
 */
#include "io/rows.h"
#include "io/writing.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

void sherd__part_fail(sherd_writing *w)
{
    w->status = sherd__file_fault(w->world, w->function, w->part);
}

/* Open PATH.part if it is a file. A link may lead to the file of somebody else; a pipe would
 * block. */
static int open_part(const char *part, int flags)
{
    struct stat about;
    int fd = sherd__open_file(part, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | flags);

    if (fd < 0 || (fstat(fd, &about) == 0 && S_ISREG(about.st_mode)))
        return fd;
    close(fd);
    errno = EEXIST;
    return -1;
}

/* Whether the open file still has its name; also false where inode numbers are not stable. */
static bool is_named(int fd, const char *part)
{
    struct stat mine, named;

    return !fstat(fd, &mine) && !lstat(part, &named) && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

/*
 * Create or take over PATH.part for this job alone: -1 with errno, EWOULDBLOCK if another job has
 * it. The other job renames or removes the file in the end; if it has just done so, the file is
 * created again. Where a file system has no locks, or no stable inode numbers, nobody is kept out.
 */
static int take_part(const char *part)
{
    enum { TRIES = 100 };

    for (int i = 1;; i++) {
        int fd = open_part(part, O_CREAT);
        if (fd < 0)
            return -1;
        bool taken = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
        if (!taken && (is_named(fd, part) || i == TRIES))
            return fd;
        close(fd);
        errno = EWOULDBLOCK;
        if (taken)
            return -1;
    }
}

/* What is not a file is not replaced: the rename would put a file in the place of a device. */
static bool is_taken(const char *path)
{
    struct stat about;

    return !lstat(path, &about) && !S_ISREG(about.st_mode) && !S_ISLNK(about.st_mode);
}

void sherd__part_make(sherd_writing *w, const char *header, size_t bytes)
{
    if (is_taken(w->path)) {
        w->status = sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                                "%s: \"%.180s\": is not a regular file", w->function, w->path);
        return;
    }
    if (sherd__is_dry(w->world))
        return;
    w->fd = take_part(w->part);
    w->made = w->fd >= 0;
    w->known = w->made && is_named(w->fd, w->part);
    if (!w->made && errno == EWOULDBLOCK)
        w->status = sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                                "%s: \"%.180s\": another job is writing it", w->function, w->part);
    else if (!w->made || ftruncate(w->fd, 0) ||
             !sherd__write_at(w->fd, header, (int64_t)bytes, 0) ||
             ftruncate(w->fd, (int64_t)bytes + w->bytes))
        sherd__part_fail(w);
}

void sherd__part_open(sherd_writing *w)
{
    if ((w->fd = open_part(w->part, 0)) < 0)
        sherd__part_fail(w);
}

/*
 * Close it. All is on disk, or has failed, on all ranks alike: what this one is told now, such as
 * that a signal has come, is no failure any more.
 */
static void close_file(sherd_writing *w)
{
    if (w->fd >= 0)
        (void)close(w->fd);
    w->fd = -1;
}

/*
 * The new name must be as durable as the data: the folder is synced too, if the system supports it.
 */
void sherd__part_rename(sherd_writing *w)
{
    char *slash = strrchr(w->part, '/');

    if (w->known && !is_named(w->fd, w->part)) {
        w->made = false; /* nor is it removed */
        w->status = sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                                "%s: \"%.180s\": is no longer the file that was written: it was "
                                "removed or replaced meanwhile",
                                w->function, w->part);
        return;
    }
    if (rename(w->part, w->path)) {
        w->status = sherd__file_fault(w->world, w->function, w->path);
        return;
    }
    w->made = false;
    if (slash)
        slash[slash == w->part] = 0;
    int folder = open(slash ? w->part : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)fsync(folder);
        close(folder);
    }
}

void sherd__part_drop(sherd_writing *w)
{
    sherd__heap *heap = sherd__world_heap(w->world);

    if (w->made)
        (void)unlink(w->part);
    w->made = false;
    close_file(w);
    sherd__free(heap, w->path);
    sherd__free(heap, w->part);
}
