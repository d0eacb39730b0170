/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices: a JSON file in which the names of a model's tensors stand with those of the files that
 * have them, as Hugging Face's libraries write it beside a model that is in several files. Each
 * rank reads it by itself.
 */
#ifndef SHERD__IO_INDEX_H
#define SHERD__IO_INDEX_H

#include "io/header.h"

struct sherd_world;

/* Paths, each copied. */
typedef struct sherd__paths {
    char **path; /* [count] */
    int count, room;
    sherd__map known; /* the same */
} sherd__paths;

/*
 * Add a copy of the first `length` bytes of `folder` with `name` behind them; if `once`, only if it
 * is not there already. False for lack of memory.
 */
bool sherd__paths_add(sherd__paths *p, sherd__heap *heap, const char *folder, int length,
                      const char *name, bool once);
void sherd__paths_clear(sherd__paths *p, sherd__heap *heap);

/*
 * The paths that are given, and for each that ends in ".index.json" those of the files that it
 * names, in the order in which it does. EINVAL it cannot be read, or is no index; ENOTSUP; ENOMEM.
 * After an error there is something to clear as well.
 */
sherd_status sherd__paths_list(sherd__paths *out, struct sherd_world *world,
                               const char *const *path, int count, const char *function);

/* Add what an index names to *out, each file beside of->path. Errors as above. */
sherd_status sherd__index_parse(sherd__paths *out, const char *text, size_t bytes,
                                const sherd__header_of *of);

#endif
