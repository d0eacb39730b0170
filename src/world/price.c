/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of the world's plans whose options have none. Price files may differ from machine to
 * machine, and ranks that plan by different prices do different things: so only rank 0 reads one,
 * and distributes it while the world opens. On one machine it is in the arena before the first
 * meeting; a carrier brings it to others. Costs reading the file.
 */
#include "inside.h"
#include "priced.h"
#include "price/price_text.h"
#include "search/plans.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 1 << 16 };

sherd_status sherd_price_parse(sherd_price *out, sherd_world *world, const char *text)
{
    const sherd__argument need[] = {{"world", world}, {"out", out}, {"text", text}, {NULL, NULL}};
    sherd__diag *diag = world ? &world->diag : NULL;

    if (sherd__require(diag, "sherd_price_parse", need))
        return SHERD_EINVAL;
    return sherd__price_read(out, diag, text);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* How much of a file there is, up to `room` bytes, in text; -1 and errno. */
static ssize_t read_some(const char *path, char *text, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t have = 0, n = fd < 0 ? -1 : 1;

    while (n > 0 && (size_t)have < room) {
        n = read(fd, text + have, room - (size_t)have);
        have += n > 0 ? n : 0;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return n < 0 ? -1 : have;
}

sherd_status sherd__price_load(sherd_price *out, sherd__heap *heap, sherd__diag *diag,
                               const char *path, const char *expected)
{
    char *text = sherd__alloc(heap, FILE_BYTES, 1);
    sherd_status status = SHERD_OK;

    if (!text)
        return sherd__no_memory(diag, "sherd_price_parse");
    ssize_t have = read_some(path, text, FILE_BYTES);
    if (have < 0)
        status = sherd__fail(diag, SHERD_EINVAL, "\"%.200s\" can not be read (%s): expected %s",
                             path, strerror(errno), expected);
    else if (have == FILE_BYTES || memchr(text, '\0', (size_t)have))
        status =
            sherd__fail(diag, SHERD_EINVAL,
                        "\"%.200s\" is not a price file: expected text of less than 64 KiB", path);
    if (!status) {
        text[have] = '\0';
        status = sherd__price_read(out, diag, text);
    }
    diag->column = 0; /* it is in the file, not in a text that the caller has */
    diag->source = NULL;
    sherd__free(heap, text);
    return status;
}

/* ---- of a world ------------------------------------------------------------------------------ */

sherd_status sherd__price_find(sherd_price *out, sherd__heap *heap,
                               const sherd_world_options *options, sherd__diag *diag)
{
    bool given = options && options->price_file;
    const char *path = given ? options->price_file : getenv("SHERD_PRICE");
    sherd__diag why = {.rank = -1};

    memset(out, 0, sizeof *out);
    if (!path || !*path)
        return SHERD_OK;
    sherd_status status = sherd__price_load(out, heap, &why, path, "a file of prices");
    return status ? sherd__fail(diag, status, "%s: %.400s", given ? "price_file" : "SHERD_PRICE",
                                why.text)
                  : SHERD_OK;
}

sherd_status sherd__price_bring(sherd_world *world, const sherd_world_options *options)
{
    sherd_price *there = &world->arena.control->price;

    if (world->arena.price && (world->rank == 0 || world->remote))
        *there = *world->arena.price;
    if (world->arena.price || world->slot != 0)
        return SHERD_OK;
    return sherd__price_find(there, &world->heap, options, &world->diag);
}

void sherd__price_take(sherd_world *world)
{
    world->price = world->arena.control->price;
    if (world->price.kind == SHERD_PRICE_LINKS)
        sherd__plans_price(&world->space, &world->price);
}
