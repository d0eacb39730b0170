/* SPDX-License-Identifier: Apache-2.0 */
/* The members of an operator's attributes, as it declares them: how large they are. */
#ifndef SHERD__TENSOR_FIELDS_H
#define SHERD__TENSOR_FIELDS_H

#include "sherd/op.h"

/*
 * Fields of attributes: a key of random numbers, made of a seed and of a generator's name and
 * calls. Ranks that differ are told of what it is made, not its numbers.
 */
#define SHERD__KEY_NAME "how often the generator was used, or its name,"
#define SHERD__KEY_FIELDS(type, key)                                     \
    {SHERD__KEY_NAME, SHERD_FIELD_UINT32, offsetof(type, key.word), 2},  \
    {                                                                    \
        SHERD__KEY_NAME, SHERD_FIELD_UINT32, offsetof(type, key.high), 2 \
    }

/*
 * The field for an int that stands for one of several things, and for an array of n such: their
 * names, from 0 on, as "mean|sum|none".
 */
#define SHERD__CHOICE(type, member, names)                            \
    {                                                                 \
#member "=" names, SHERD_FIELD_INT, offsetof(type, member), 1 \
    }
#define SHERD__CHOICES(type, member, names, n)                        \
    {                                                                 \
#member "=" names, SHERD_FIELD_INT, offsetof(type, member), n \
    }
#define SHERD__LOSS_REDUCTIONS "mean|sum|none"
#define SHERD__REDUCE_OP_NAMES "sum|avg|min|max|product"

/* Bytes of one element of a member; 0: there is no such kind. */
static inline size_t sherd__field_bytes(sherd_field_kind kind)
{
    static const size_t bytes[] = {
        [SHERD_FIELD_INT] = sizeof(int),         [SHERD_FIELD_INT64] = sizeof(int64_t),
        [SHERD_FIELD_DOUBLE] = sizeof(double),   [SHERD_FIELD_BOOL] = sizeof(bool),
        [SHERD_FIELD_UINT32] = sizeof(uint32_t), [SHERD_FIELD_BYTE] = 1};
    return (unsigned)kind < sizeof bytes / sizeof *bytes ? bytes[kind] : 0;
}

/* Its elements: 1, if it is no array. */
static inline size_t sherd__field_count(const sherd_op_field *field)
{
    return (size_t)(field->count ? field->count : 1);
}

#endif
