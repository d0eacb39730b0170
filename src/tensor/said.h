/* SPDX-License-Identifier: Apache-2.0 */
/* What the last deeds were of: kept by note.c, told by said.c. */
#ifndef SHERD__TENSOR_SAID_H
#define SHERD__TENSOR_SAID_H

#include "sherd/op.h"

enum {
    SHERD__SAID = 64,            /* deeds, of all meshes together */
    SHERD__SAID_INS = 8,         /* operands of one */
    SHERD__SAID_BYTES = 6 << 10, /* of attributes, of all together */
    SHERD__SAID_ABSENT = 1       /* for the identity of an operand that is NULL */
};

/* Numbers that stay valid when the tensors and layouts are gone. */
typedef struct sherd__said_deed {
    const sherd_mesh *mesh;
    uint64_t deed, identity; /* its number; the identity of its first result */
    const char *name;
    const sherd_op *op; /* NULL: no operator, and nothing is said of it */
    uint64_t attributes,
        layout;        /* hashes: of all that is no tensor, of the first result's layout */
    sherd_dtype dtype; /* of the first result */
    int ins;
    bool part;                    /* of what `op` is composed of */
    uint64_t in[SHERD__SAID_INS]; /* identities of the first operands */
    uint64_t at; /* where its attributes begin, of all bytes of attributes that were ever kept */
} sherd__said_deed;

typedef struct sherd__last_deeds {
    uint64_t count, bytes;
    sherd__said_deed deed[SHERD__SAID]; /* a ring, and one of attributes */
    _Alignas(8) unsigned char attribute[SHERD__SAID_BYTES];
} sherd__last_deeds;

/* After sherd__note of a distributed result: which operator made it, by which attributes; `part`:
 * or of which it is a part, with other operands. */
void sherd__say_call(const sherd_tensor *out, const sherd_op *op, const void *attributes,
                     bool part);

/* As sherd__deed_add, of a function that changes `t` (which may be NULL), without a result; `said`
 * has the fields of `attributes`, which `what` has the hash of. Returns the number of the deed. */
uint64_t sherd__note_deed(sherd_world *world, const sherd_mesh *mesh, const char *name,
                          uint64_t what, const sherd_tensor *t, const sherd_op *said,
                          const void *attributes);

#endif
