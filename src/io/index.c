/* SPDX-License-Identifier: Apache-2.0 */
/* See index.h. Costs one read of an index, and a look-up of each file's name among the others. */
#include "io/index.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/rows.h"

static const char ending[] = ".index.json";

static sherd_status read_index(sherd__paths *out, sherd_world *world, const char *path,
                               const char *function)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__diag *diag = sherd__world_diag(world);
    struct stat about = {0};
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    sherd_status status = SHERD_OK;

    if (fd < 0 || fstat(fd, &about))
        status = sherd__file_fault(world, function, path);
    else if (!S_ISREG(about.st_mode) || about.st_size > SHERD__MOST_HEADER)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: \"%.180s\": is no index", function, path);
    else if (!(text = sherd__alloc(heap, (size_t)about.st_size + 1, 1)))
        status = sherd__no_memory(diag, function);
    else if (!sherd__read_at(fd, text, about.st_size, 0))
        status = sherd__file_fault(world, function, path);
    else
        status = sherd__index_parse(out, text, (size_t)about.st_size,
                                    &(sherd__header_of){heap, diag, function, path, 0});
    sherd__free(heap, text);
    if (fd >= 0)
        close(fd);
    return status;
}

static bool is_index(const char *path)
{
    size_t length = strlen(path), more = sizeof ending - 1;

    return length >= more && strcmp(path + length - more, ending) == 0;
}

sherd_status sherd__paths_list(sherd__paths *out, sherd_world *world, const char *const *path,
                               int count, const char *function)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < count && !status; i++)
        if (is_index(path[i]))
            status = read_index(out, world, path[i], function);
        else if (!sherd__paths_add(out, sherd__world_heap(world), "", 0, path[i], false))
            status = sherd__no_memory(sherd__world_diag(world), function);
    return status;
}
