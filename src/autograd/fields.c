/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of operators by their declared members: hashed for the ledger and the solver, and
 * compared when a recomputed call must be the same as the first. Padding between members is
 * ignored.
 */
#include "autograd/tape.h"
#include "tensor/fields.h"

#include <string.h>

/* The bits of a member, read by its size: memcpy of a variable size would be a function call. */
static uint64_t word_of(const char *at, size_t bytes)
{
    uint64_t wide;
    uint32_t narrow;

    if (bytes == 1)
        return (unsigned char)*at;
    if (bytes == sizeof narrow) {
        memcpy(&narrow, at, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, at, sizeof wide);
    return wide;
}

uint64_t sherd__hash_fields(const sherd_op *op, const void *attributes)
{
    uint64_t hash = 1;

    for (int f = 0; f < SHERD_OP_FIELDS && op->field[f].name; f++) {
        const sherd_op_field *field = &op->field[f];
        const char *at = (const char *)attributes + field->offset;
        size_t bytes = sherd__field_bytes(field->kind), count = sherd__field_count(field);
        for (size_t i = 0; i < count; i++, at += bytes)
            hash = sherd__attribute(hash, word_of(at, bytes));
    }
    return hash;
}

bool sherd__same_fields(const sherd_op *op, const void *a, const void *b)
{
    for (int f = 0; f < SHERD_OP_FIELDS && op->field[f].name; f++) {
        const sherd_op_field *field = &op->field[f];
        if (memcmp((const char *)a + field->offset, (const char *)b + field->offset,
                   sherd__field_bytes(field->kind) * sherd__field_count(field)) != 0)
            return false;
    }
    return true;
}
