/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of operators by their declared members: hashed for the ledger and the solver, and
 * compared when a recomputed call must be the same as the first. Padding between members is
 * ignored.
 */
#include "autograd/tape.h"

#include <string.h>

static size_t bytes_of(const sherd_op_field *field)
{
    static const size_t bytes[] = {
        [SHERD_FIELD_INT] = sizeof(int),         [SHERD_FIELD_INT64] = sizeof(int64_t),
        [SHERD_FIELD_DOUBLE] = sizeof(double),   [SHERD_FIELD_BOOL] = sizeof(bool),
        [SHERD_FIELD_UINT32] = sizeof(uint32_t), [SHERD_FIELD_BYTE] = 1};
    return bytes[field->kind];
}

static size_t count_of(const sherd_op_field *field)
{
    return (size_t)(field->count ? field->count : 1);
}

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
        size_t bytes = bytes_of(field), count = count_of(field);
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
                   bytes_of(field) * count_of(field)) != 0)
            return false;
    }
    return true;
}
