/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dry ranks that are run one after the other tell each other: the heads of what channels
 * bring, whose shapes a receiver can not know. A rank that sends appends them to a file of the
 * folder SHERD_DRY_SENT, one file for each channel; a rank that receives reads them there, in their
 * order. `sherd dry --rank 0,4` makes such a folder.
 */
#include "dry.h"

#include "inside.h"

#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char folder_name[] = "SHERD_DRY_SENT";

/* The file of a channel; -1: there is none, or no folder. */
static int open_file(const char *channel, int flags)
{
    const char *folder = getenv(folder_name);
    char path[PATH_MAX];

    if (!folder || !*folder ||
        snprintf(path, sizeof path, "%s/%s", folder, channel) >= (int)sizeof path)
        return -1;
    return sherd__open_file(path, flags);
}

bool sherd__dry_sends(sherd_world *world, const char *channel, const void *data, int64_t bytes)
{
    const char *folder = getenv(folder_name);

    if (!folder || !*folder)
        return true; /* nobody asks */
    int file = open_file(channel, O_WRONLY | O_APPEND | O_CREAT);
    bool good = file >= 0 && write(file, data, (size_t)bytes) == bytes;
    int error = errno;
    if (file >= 0)
        good = close(file) == 0 && good;
    if (!good)
        sherd__raise(world, SHERD_EINVAL, "%s=%.200s: can not write what was sent: %s", folder_name,
                     folder, strerror(error));
    return good;
}

bool sherd__dry_receives(sherd_world *world, const char *channel, int64_t *at, void *out,
                         int64_t bytes)
{
    int file = open_file(channel, O_RDONLY);
    bool good = file >= 0 && pread(file, out, (size_t)bytes, (off_t)*at) == bytes;

    if (file >= 0)
        close(file);
    if (good)
        *at += bytes;
    else
        sherd__raise(
            world, SHERD_ENOTSUP,
            "a dry rank can not know what others send: run one of each stage, in the order "
            "of the stages (sherd dry --rank 0,4)");
    return good;
}
