/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as rows of a file: see io/rows.h. */
#include "io/rows.h"

#include "base/num.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MOST_AT_ONCE = 1 << 30 }; /* bytes: the system takes no more than 2 GiB in a call */

sherd_status sherd__file_layout(const sherd_layout **out, const sherd_layout *layout)
{
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    sherd_status status = SHERD_OK;

    if (sherd_layout_ndim(layout) == 0)
        return sherd__replicated(out, mesh, 0, NULL);
    *out = layout;
    for (int a = 0; !status && a < sherd_mesh_axes(mesh); a++) {
        sherd_placement p = sherd_layout_placement(layout, a);
        if (p.kind != SHERD_SHARD || p.dim != 0)
            status = sherd_layout_with(out, *out, mesh, a, sherd_shard(0));
    }
    return status;
}

sherd__stored_rows sherd__rows_here(const sherd_tensor *t)
{
    int64_t size = (int64_t)sherd_dtype_bytes(t->dtype), row = size;

    /* Sizes beside a 0 may have no product. */
    for (int d = 1; d < t->ndim && t->count; d++)
        row *= t->shape[d];
    int64_t first = t->ndim && t->layout && t->count ? sherd_tensor_offset(t, 0) : 0;
    return (sherd__stored_rows){first * row, t->count * size};
}

bool sherd__read_at(int fd, void *data, int64_t bytes, int64_t at)
{
    char *to = data;

    while (bytes > 0) {
        ssize_t got = pread(fd, to, (size_t)sherd__min(bytes, MOST_AT_ONCE), at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            errno = got ? errno : 0;
            return false;
        }
        to += got, at += got, bytes -= got;
    }
    return true;
}

bool sherd__write_at(int fd, const void *data, int64_t bytes, int64_t at)
{
    const char *from = data;

    while (bytes > 0) {
        ssize_t put = pwrite(fd, from, (size_t)sherd__min(bytes, MOST_AT_ONCE), at);
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0) /* it would be asked for ever */
            errno = ENOSPC;
        if (put <= 0)
            return false;
        from += put, at += put, bytes -= put;
    }
    return true;
}

bool sherd__sync_file(int fd)
{
    int error;

    do
        error = fsync(fd);
    while (error && errno == EINTR);
    return error == 0;
}

/* Report EFBIG: the limit of this process if it has one, else that of the file system. */
static sherd_status too_large(sherd_world *world, const char *function, const char *path)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                           "%s: \"%.180s\": the file system takes no file so large", function,
                           path);
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: \"%.180s\": files of this process are limited to %llu bytes: raise "
                       "`ulimit -f`",
                       function, path, (unsigned long long)limit.rlim_cur);
}

sherd_status sherd__file_fault(sherd_world *world, const char *function, const char *path)
{
    if (errno == EFBIG)
        return too_large(world, function, path);
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s: \"%.180s\": %s", function, path,
                       errno ? strerror(errno) : "it ends early");
}
