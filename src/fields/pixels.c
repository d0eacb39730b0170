/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels as pixels, and back: views and a permutation, so that rows and columns keep their
 * shards.
 */
#include "ops/shared.h"
#include "sherd/ops_stencil.h"

#include <string.h>

#include "base/saturate.h"

typedef struct pixels {
    int64_t factor;
} pixels;

#define FIELDS .field = {SHERD_FIELD(pixels, factor, INT64)}, .attributes = sizeof(pixels)

enum { C = 3, H = 2, W = 1 }; /* from the end */

static const char *describe(sherd_call *call, bool shuffle)
{
    const pixels *p = call->attributes;
    const sherd_tensor *x = call->in[0];
    const int64_t most = 1 << 15;

    if (x->ndim < 3 || x->ndim + 2 > SHERD_MAX_DIMS)
        return sherd_call_reason(call, "x must have 3 to %d dims", SHERD_MAX_DIMS - 2);
    if (p->factor < 1 || p->factor > most)
        return sherd_call_reason(call, "a factor of %lld is not in [1, %lld]", (long long)p->factor,
                                 (long long)most);
    const int64_t *size = x->shape + x->ndim;
    if (shuffle ? size[-C] % (p->factor * p->factor) != 0
                : size[-H] % p->factor != 0 || size[-W] % p->factor != 0)
        return sherd_call_reason(call, "a factor of %lld does not divide the %s",
                                 (long long)p->factor, shuffle ? "channels" : "rows and columns");
    return NULL;
}

static const char *describe_shuffle(sherd_call *call)
{
    return describe(call, true);
}

static const char *describe_unshuffle(sherd_call *call)
{
    return describe(call, false);
}

/*
 * x in a view with two more dims, their order changed, merged again. The last sizes of the view,
 * the order of its last five dims, and the last sizes of the result.
 */
static sherd_tensor *turned(sherd_tensor *x, const int64_t split[5], const int order[5],
                            const int64_t last[3])
{
    int before = x->ndim - 3, dims[SHERD_MAX_DIMS];
    int64_t shape[SHERD_MAX_DIMS], to[SHERD_MAX_DIMS];

    memcpy(shape, x->shape, sizeof shape);
    memcpy(to, x->shape, sizeof to);
    memcpy(shape + before, split, 5 * sizeof *split);
    memcpy(to + before, last, 3 * sizeof *last);
    for (int d = 0; d < before + 5; d++)
        dims[d] = d < before ? d : before + order[d - before];
    return sherd_view(sherd_permute(sherd_view(x, shape, before + 5), dims, before + 5), to,
                      x->ndim);
}

static bool shuffle(sherd_call *call)
{
    const pixels *p = call->attributes;
    const int64_t *size = call->in[0]->shape + call->in[0]->ndim, r = p->factor;
    int64_t channels = size[-C] / (r * r);

    call->out[0] =
        turned(call->in[0], (const int64_t[]){channels, r, r, size[-H], size[-W]},
               (const int[]){0, 3, 1, 4, 2},
               (const int64_t[]){channels, sherd__times(size[-H], r), sherd__times(size[-W], r)});
    return true;
}

static bool unshuffle(sherd_call *call)
{
    const pixels *p = call->attributes;
    const int64_t *size = call->in[0]->shape + call->in[0]->ndim, r = p->factor;
    int64_t rows = size[-H] / r, columns = size[-W] / r;

    call->out[0] = turned(
        call->in[0], (const int64_t[]){size[-C], rows, r, columns, r}, (const int[]){0, 2, 4, 1, 3},
        (const int64_t[]){sherd__times(sherd__times(size[-C], r), r), rows, columns});
    return true;
}

#define LAYOUTS "rows and columns keep their shards, at multiples of the factor"

const sherd_op sherd__pixel_shuffle_op = {.name = "sherd_pixel_shuffle",
                                          .summary = "channels as finer rows and columns",
                                          .layouts = LAYOUTS,
                                          .operand = {{"x", 0}},
                                          .result = {{"y", 0}},
                                          FIELDS,
                                          .numbers = SHERD_EVERYTHING,
                                          .describe = describe_shuffle,
                                          .compose = shuffle};

const sherd_op sherd__pixel_unshuffle_op = {.name = "sherd_pixel_unshuffle",
                                            .summary = "the reverse",
                                            .layouts = LAYOUTS,
                                            .operand = {{"x", 0}},
                                            .result = {{"y", 0}},
                                            FIELDS,
                                            .numbers = SHERD_EVERYTHING,
                                            .describe = describe_unshuffle,
                                            .compose = unshuffle};

sherd_tensor *sherd_pixel_shuffle(sherd_tensor *x, int64_t factor)
{
    return sherd_apply(&sherd__pixel_shuffle_op, &x, 1, &(pixels){factor});
}

sherd_tensor *sherd_pixel_unshuffle(sherd_tensor *x, int64_t factor)
{
    return sherd_apply(&sherd__pixel_unshuffle_op, &x, 1, &(pixels){factor});
}
