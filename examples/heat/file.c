/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files: what is there, and is no regular file (a pipe, a device), is written to as it is; all
 * others are renamed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file.h"

static bool complain(const file *f, int cause, char *error)
{
    snprintf(error, LINE_BYTES, "--%s \"%.300s\": %s", f->option, f->path, strerror(cause));
    return false;
}

/*
 * Regular, or not there yet. What is below /dev or /proc may stand for a regular file that is open
 * already.
 */
static bool is_replaceable(const char *path)
{
    struct stat info;

    if (strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0)
        return false;
    return stat(path, &info) != 0 || S_ISREG(info.st_mode);
}

bool file_open(file *f, const char *option, const char *path, char *error)
{
    int n;

    *f = (file){.option = option, .path = path, .beside = is_replaceable(path)};
    if (strlen(path) >= sizeof f->place)
        return complain(f, ENAMETOOLONG, error);
    if (!f->beside || !realpath(path, f->place))
        snprintf(f->place, sizeof f->place, "%s", path);
    n = snprintf(f->opened, sizeof f->opened, f->beside ? "%s.tmp%ld" : "%s", f->place,
                 (long)getpid());
    if (n >= (int)sizeof f->opened)
        return complain(f, ENAMETOOLONG, error);
    f->stream = fopen(f->opened, f->beside ? "wbx" : "ab");
    return f->stream ? true : complain(f, errno, error);
}

void file_write(file *f, const void *bytes, size_t count)
{
    errno = 0;
    if (!f->cause && fwrite(bytes, 1, count, f->stream) != count)
        f->cause = errno ? errno : EIO;
}

/* Closing tells of a full disk too. */
bool file_close(file *f, bool good, char *error)
{
    if (fclose(f->stream) != 0 && !f->cause)
        f->cause = errno;
    if (good && !f->cause && f->beside && rename(f->opened, f->place) != 0)
        f->cause = errno;
    if (f->beside && (!good || f->cause))
        unlink(f->opened);
    return good && f->cause ? complain(f, f->cause, error) : true;
}

/*
 * A pipe or a device is opened once, when there is something to say: its reader may see each
 * opening.
 */
bool file_check(const char *option, const char *path, char *error)
{
    file f = {.option = option, .path = path};
    struct stat info;

    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return complain(&f, EISDIR, error);
    if (!is_replaceable(path))
        return access(path, W_OK) == 0 ? true : complain(&f, errno, error);
    return file_open(&f, option, path, error) && file_close(&f, false, error);
}
