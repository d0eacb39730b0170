/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dry ranks that are run one after the other tell each other: the heads of what channels
 * bring, whose shapes a receiver can not know. A rank that sends appends them to a file of the
 * folder SHERD_DRY_SENT, one file for each channel; a rank that receives reads them there, in their
 * order. `sherd dry --rank 0,4` makes such a folder.
 *
 * Where stages come round, a rank needs what ranks send that are run after it. So all are run again
 * and again, each time with a new folder: what the one of the last time (SHERD_DRY_HEARD) has of a
 * channel is read where the new one has not as much. A rank that comes to something that neither
 * has leaves the file "lacks".
 */

#include "inside.h"

#include "base/open.h"
#include "base/variable.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char folder_name[] = "SHERD_DRY_SENT", heard_name[] = "SHERD_DRY_HEARD";

/* A file of the folder of that name; -1: there is none, or no folder. */
static int open_file(const char *name, const char *channel, int flags)
{
    const char *folder = sherd__variable(name);
    char path[PATH_MAX];

    if (!folder || snprintf(path, sizeof path, "%s/%s", folder, channel) >= (int)sizeof path)
        return -1;
    return sherd__open_file(path, flags);
}

bool sherd__dry_sends(sherd_world *world, const char *channel, const void *data, int64_t bytes)
{
    const char *folder = sherd__variable(folder_name);

    if (!folder)
        return true; /* nobody asks */
    int file = open_file(folder_name, channel, O_WRONLY | O_APPEND | O_CREAT);
    bool good = file >= 0 && write(file, data, (size_t)bytes) == bytes;
    int error = errno;
    if (file >= 0)
        good = close(file) == 0 && good;
    if (!good)
        sherd__raise(world, SHERD_EINVAL, "%s=%.200s: can not write what was sent: %s", folder_name,
                     folder, strerror(error));
    return good;
}

static bool read_from(const char *name, const char *channel, int64_t at, void *out, int64_t bytes)
{
    int file = open_file(name, channel, O_RDONLY);
    bool good = file >= 0 && pread(file, out, (size_t)bytes, (off_t)at) == bytes;

    if (file >= 0)
        close(file);
    return good;
}

bool sherd__dry_receives(sherd_world *world, const char *channel, int64_t *at, void *out,
                         int64_t bytes)
{
    if (read_from(folder_name, channel, *at, out, bytes) ||
        read_from(heard_name, channel, *at, out, bytes)) {
        *at += bytes;
        return true;
    }
    int file = open_file(folder_name, "lacks", O_WRONLY | O_CREAT);
    if (file >= 0)
        close(file);
    sherd__raise(world, SHERD_ENOTSUP,
                 "a dry rank can not know what others send: run one of each stage, in the order "
                 "of the stages (sherd dry --rank 0,4)");
    return false;
}
