/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding on the GPU: see rotary.cu. One launch. */
#include "box.h"
#include "programs/rotary_args.h"

#include "kernels/layers.h"

void sherd__device_rotate(sherd__device *device, sherd_dtype dtype, const struct sherd__rotation *r,
                          const sherd__turning *t, void *dst, const void *src)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_ROTARY, "rotate", NULL, dtype, SHERD_DTYPE_NONE};
    rotate_args args = {.dst = dst,
                        .src = src,
                        .position = t->position,
                        .frequency = t->frequency,
                        .batch = r->batch,
                        .positions = r->positions,
                        .heads = r->heads,
                        .width = r->width,
                        .pairs = r->rotated / 2,
                        .first = t->first,
                        .interleaved = r->interleaved,
                        .inverse = t->inverse,
                        .each = t->each,
                        .base = t->base};

    args.items = r->batch * r->positions * (r->width - args.pairs);
    sherd__device_launch(device, &kernel, sherd__grid_of(args.items), &args, sizeof args);
}
