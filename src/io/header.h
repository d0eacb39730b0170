/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The header of a safetensors file, from text and to text: 8 bytes with its length, then JSON with
 * each tensor's dtype, shape and offsets in the data after it. jansson parses the JSON; sizes and
 * offsets are checked here, since readers of a file rely on them. Pure; costs a sort of the
 * entries.
 */
#ifndef SHERD__IO_HEADER_H
#define SHERD__IO_HEADER_H

#include "base/alloc.h"
#include "base/diag.h"
#include "base/map.h"
#include "sherd/files.h"

enum { SHERD__HEADER_LENGTH = 8, SHERD__MOST_HEADER = 100 << 20 }; /* bytes */

typedef struct sherd__header {
    sherd__heap *heap;
    sherd_file_entry *entry; /* in the order of the text */
    int entries;
    sherd_file_note *note;
    int notes;
    sherd__map by_name; /* the entries; only what was read has it */
} sherd__header;

/* The file that a header belongs to, and where errors are reported. */
typedef struct sherd__header_of {
    sherd__heap *heap;
    sherd__diag *diag;
    const char *function, *path;
    int64_t file_bytes;
} sherd__header_of;

/*
 * Parse the text of a header, without its length. EINVAL with what is wrong, prefixed with function
 * and path; ELIMIT; ENOTSUP; ENOMEM; after an error there is nothing to clear.
 */
sherd_status sherd__header_parse(sherd__header *out, const char *text, size_t bytes,
                                 const sherd__header_of *of);
void sherd__header_clear(sherd__header *header);

/* The number of the entry of a name; -1 if there is none. */
int sherd__header_find(const sherd__header *header, const char *name);
/* What sherd__header_find looks into; false for lack of memory. */
bool sherd__header_index(sherd__header *header);

/*
 * Write a header as text, preceded by its length; the caller frees *out. Sets the offsets of the
 * entries, all other members of which must be set. Tensors with larger elements come first, so that
 * all are aligned. EINVAL names that are not UTF-8; ELIMIT more text than a reader accepts;
 * ENOTSUP; ENOMEM.
 */
sherd_status sherd__header_text(char **out, size_t *bytes, sherd__header *header, sherd__diag *diag,
                                const char *function);

#endif
