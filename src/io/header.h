/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a safetensors file, from text and to text: 8 bytes with its length, then JSON that gives each tensor's dtype,
 * shape and place among the elements behind it. jansson does the JSON; sizes and places are checked here, since whoever reads
 * a file trusts them. Pure; costs a sort of the entries.
 */
#ifndef SHERD__HEADER_H
#define SHERD__HEADER_H

#include "base/alloc.h"
#include "base/diag.h"
#include "sherd/files.h"

enum { SHERD__HEADER_LENGTH = 8, SHERD__MOST_HEADER = 100 << 20 }; /* bytes */

typedef struct sherd__header {
    sherd__heap *heap;
    sherd_file_entry *entry; /* in the order of the text */
    int entries;
    sherd_file_note *note;
    int notes;
} sherd__header;

/* Whose header it is, and who is told what is wrong with it. */
typedef struct sherd__header_of {
    sherd__heap *heap;
    sherd__diag *diag;
    const char *function, *path;
    int64_t file_bytes;
} sherd__header_of;

/*
 * From the text of a header, after its length. EINVAL with what is wrong, behind function and path; ELIMIT; ENOTSUP; ENOMEM; then there
 * is nothing to clear.
 */
sherd_status sherd__header_parse(sherd__header *out, const char *text, size_t bytes,
                                 const sherd__header_of *of);
void sherd__header_clear(sherd__header *header);

/*
 * To text, with its length before it: *out is the caller's to free. Sets the offsets of the entries, which must have all else; long
 * elements come first, so that all are aligned. Names that are no UTF-8: EINVAL; ENOTSUP; ENOMEM.
 */
sherd_status sherd__header_text(char **out, size_t *bytes, sherd__header *header, sherd__diag *diag,
                                const char *function);

#endif
