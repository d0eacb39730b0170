/* SPDX-License-Identifier: Apache-2.0 */
/* How many calls the generators of modules have made, as notes of a file. */
#ifndef SHERD__IO_GENERATORS_H
#define SHERD__IO_GENERATORS_H

#include "io/file.h"
#include "sherd/module.h"

typedef struct sherd__notes {
    sherd_file_note *note; /* [count]; keys and texts are the list's */
    int count;
} sherd__notes;

/*
 * List them: one note says how many there are, and one for each that has been called. Collective;
 * all ranks get the same list, or the same failure. The caller clears it in any case.
 */
sherd_status sherd__generators_list(sherd__notes *out, sherd_module *module, const char *function);
void sherd__generators_clear(sherd_world *world, sherd__notes *notes);

/*
 * number[count] becomes the most of all ranks; in a dry world it stays, since only this one runs.
 * Collective.
 */
sherd_status sherd__take_most(sherd_world *world, int64_t *number, int64_t count);

/* Whether a note with this key belongs to the generators. */
bool sherd__generators_have(const char *key);

/*
 * Set the generators of a module as the notes of file[count] say, if there are any: one that no
 * file names has not been called, or, with `partial`, stays as it is; if several name one, the
 * largest number counts.
 */
void sherd__generators_read(sherd_module *module, sherd_file *const *file, int count, bool partial);

#endif
