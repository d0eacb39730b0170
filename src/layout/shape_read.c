/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading shapes, dtypes and the sizes of shards: "8x16", "scalar", "bf16", "4,6". The error texts
 * about sizes are here, for shapes, placements and layouts.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

sherd_status sherd__size_scan(int64_t *shape, int *ndim, sherd__diag *diag, const char *function,
                              sherd__scanner *s)
{
    int64_t count = 1;

    sherd__skip_blanks(s);
    const sherd__scanner start = *s;
    if (*ndim == SHERD_MAX_DIMS)
        return sherd__expected(diag, function, s, "at most %d dims", SHERD_MAX_DIMS);
    if (!sherd__take_integer(s, &shape[*ndim]))
        return sherd__expected(diag, function, s, "the size of a dim, below 2^62");
    ++*ndim;
    for (int d = 0; d < *ndim; d++) /* 0 counts as 1: then no product of some sizes overflows */
        if (!sherd__mul(count, sherd__max(shape[d], 1), &count))
            return sherd__fail_at(diag, SHERD_ELIMIT, function, &start,
                                  "the sizes up to here multiply to 2^62 or more (0 counts as 1)");
    return SHERD_OK;
}

sherd_status sherd__dtype_scan(sherd_dtype *out, sherd__diag *diag, const char *function,
                               sherd__scanner *s)
{
    char name[8] = "";

    sherd__skip_blanks(s);
    const sherd__scanner start = *s;
    if (sherd__take_name(s, name, sizeof name))
        for (int i = 0; i < SHERD_DTYPES; i++) {
            sherd_dtype dtype = (sherd_dtype)i;
            if (sherd_dtype_bytes(dtype) > 0 && strcmp(name, sherd_dtype_name(dtype)) == 0) {
                *out = dtype;
                return SHERD_OK;
            }
        }
    return sherd__expected(diag, function, &start,
                           "a dtype: f32, f64, bf16, f16, i32, i64, i8, u8 or bool");
}

sherd_status sherd__shape_read(int64_t *shape, int *ndim, sherd__diag *diag, const char *function,
                               const char *text)
{
    sherd__scanner s = {text, text};
    sherd_status status = SHERD_OK;

    *ndim = 0;
    if (!sherd__take(&s, "scalar")) {
        if (!(*s.at >= '0' && *s.at <= '9'))
            return sherd__expected(diag, function, &s, "a shape: 8x16 or scalar");
        do
            status = sherd__size_scan(shape, ndim, diag, function, &s);
        while (status == SHERD_OK && sherd__take(&s, "x"));
    }
    if (status == SHERD_OK && !sherd__at_end(&s))
        status = sherd__expected(diag, function, &s, "%sthe end of the shape",
                                 *ndim ? "x and a dim, or " : "");
    return status;
}

sherd_status sherd__dtype_read(sherd_dtype *out, sherd__diag *diag, const char *function,
                               const char *text)
{
    sherd__scanner s = {text, text};
    sherd_dtype dtype;
    sherd_status status = sherd__dtype_scan(&dtype, diag, function, &s);

    if (status == SHERD_OK && !sherd__at_end(&s))
        status = sherd__expected(diag, function, &s, "the end of the dtype");
    if (status == SHERD_OK)
        *out = dtype;
    return status;
}

sherd_status sherd__sizes_scan(int64_t **out, sherd__space *space, const char *function,
                               sherd__scanner *s, int64_t parts, int64_t n)
{
    int64_t sum = 0;

    *out = NULL;
    sherd__skip_blanks(s);
    const sherd__scanner start = *s;
    /* No list has more sizes than letters: many shards take no memory before their list is read. */
    int64_t room = sherd__min(parts, (int64_t)strlen(s->at) + 1);
    int64_t *sizes = sherd__alloc(space->heap, (size_t)room, sizeof *sizes);
    sherd_status status = sizes ? SHERD_OK : sherd__no_memory(space->diag, function);
    for (int64_t i = 0; status == SHERD_OK && i < parts; i++)
        if ((i && !sherd__take(s, ",")) || !sherd__take_integer(s, &sizes[i]))
            status = sherd__expected(space->diag, function, s, "size %lld of %lld, one per shard",
                                     (long long)i + 1, (long long)parts);
        else if (!sherd__add(sum, sizes[i], &sum))
            status =
                sherd__expected(space->diag, function, &start,
                                "sizes that add up to %lld, not to 2^62 or more", (long long)n);
    if (status == SHERD_OK && sum != n)
        status =
            sherd__expected(space->diag, function, &start, "sizes that add up to %lld, not to %lld",
                            (long long)n, (long long)sum);
    if (status != SHERD_OK) {
        sherd__free(space->heap, sizes);
        return status;
    }
    *out = sizes;
    return SHERD_OK;
}
