/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors out of JSON files, for the programs that compare with PyTorch. They give up when there is
 * no memory.
 */
#ifndef SHERD_TOOLS_JSON_TENSORS_H
#define SHERD_TOOLS_JSON_TENSORS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>

static inline sherd_dtype dtype_of(const char *name)
{
    static const sherd_dtype all[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16,
                                      SHERD_I32, SHERD_I64, SHERD_BOOL};

    for (size_t i = 0; name && i < sizeof all / sizeof all[0]; i++)
        if (strcmp(name, sherd_dtype_name(all[i])) == 0)
            return all[i];
    return SHERD_DTYPE_NONE;
}

static inline int read_shape(const json_t *array, int64_t *shape)
{
    int ndim = (int)json_array_size(array);

    for (int d = 0; d < ndim && d < SHERD_MAX_DIMS; d++)
        shape[d] = json_integer_value(json_array_get(array, (size_t)d));
    return ndim;
}

/* The numbers of an array, or f64 that a file holds: {"file": "..", "at": first, "count": n}. */
static inline double *read_data(const json_t *data)
{
    bool stored = json_is_object(data);
    size_t count =
        stored ? (size_t)json_integer_value(json_object_get(data, "count")) : json_array_size(data);
    double *numbers = malloc((count + 1) * sizeof *numbers);

    if (!numbers)
        abort();
    for (size_t i = 0; !stored && i < count; i++)
        numbers[i] = json_number_value(json_array_get(data, i));
    if (!stored)
        return numbers;
    FILE *file = fopen(json_string_value(json_object_get(data, "file")), "rb");
    long at = (long)json_integer_value(json_object_get(data, "at"));
    if (!file || fseek(file, at * (long)sizeof *numbers, SEEK_SET) ||
        fread(numbers, sizeof *numbers, count, file) != count)
        abort();
    fclose(file);
    return numbers;
}

/* Numbers as a plain f64 tensor that does not vary, then in the dtype that is wanted. */
static inline sherd_tensor *read_numbers(sherd_world *world, const json_t *array,
                                         const int64_t *shape, int ndim, sherd_dtype dtype)
{
    double *numbers = read_data(array);
    sherd_tensor *t = sherd_from_data(world, SHERD_F64, shape, ndim, numbers);
    free(numbers);
    return sherd_cast(sherd_mark_equal(t), dtype);
}

#endif
