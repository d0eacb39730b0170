/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes and dtypes: what was read is written out and read again. */
#include "fuzz.h"

static void check_shape(sherd__diag *diag, const int64_t *shape, int ndim)
{
    int64_t again[SHERD_MAX_DIMS], count;
    char text[SHERD_MAX_DIMS * 24] = "scalar";
    sherd__writer w = {text, sizeof text, 0};
    int dims;

    MUST(ndim >= 0 && ndim <= SHERD_MAX_DIMS && sherd__count(shape, ndim, &count));
    for (int d = 0; d < ndim; d++)
        sherd__write(&w, "%s%lld", d ? "x" : "", (long long)shape[d]);
    MUST(sherd__shape_read(again, &dims, diag, "fuzz", text) == SHERD_OK);
    MUST_SAY(dims == ndim && memcmp(again, shape, (size_t)ndim * sizeof *shape) == 0, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    paper p = {.diag.rank = -1};
    int64_t shape[SHERD_MAX_DIMS];
    sherd_dtype dtype, again;
    int ndim;

    sherd_status status = sherd__shape_read(shape, &ndim, &p.diag, "fuzz", text);
    if (status == SHERD_OK)
        check_shape(&p.diag, shape, ndim);
    else
        check_error(&p, status, text, NULL);
    status = sherd__dtype_read(&dtype, &p.diag, "fuzz", text);
    if (status == SHERD_OK)
        MUST(sherd__dtype_read(&again, &p.diag, "fuzz", sherd_dtype_name(dtype)) == SHERD_OK &&
             again == dtype);
    else
        check_error(&p, status, text, NULL);
    free(text);
    return 0;
}
