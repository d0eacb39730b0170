/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h): Fourier transforms, and products of complex numbers. */
#ifndef SHERD_TESTS_BOUNDS_FFT_H
#define SHERD_TESTS_BOUNDS_FFT_H

#include "bounds_boxes.h"
#include "kernels/kernels.h"

static void try_fft(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__fft f = {.kind = (sherd__fft_kind)draw(t, "kind", 3),
                    .outer = short_length(t, "outer"),
                    .n = long_length(t, "n"),
                    .inner = draw(t, "one", 2) ? short_length(t, "inner") : 1,
                    .inverse = draw(t, "inverse", 2),
                    .folded = draw(t, "folded", 2),
                    .scale = 0.25};
    int64_t columns = f.outer * f.inner, half = f.n / 2 + 1;

    if (f.n == 0)
        return;
    int64_t from = f.kind == SHERD__FFT_TO_HALF     ? f.n
                   : f.kind == SHERD__FFT_FROM_HALF ? 2 * half
                                                    : 2 * f.n;
    int64_t to = f.kind == SHERD__FFT_TO_HALF     ? 2 * half
                 : f.kind == SHERD__FFT_FROM_HALF ? f.n
                                                  : 2 * f.n;
    const void *src = in(t, "src", columns * from);
    void *dst = out(t, "dst", columns * to);
    void *workspace = part_of(t, "workspace", SPACE, BYTES, k->fft_workspace(&f));

    t->slack = 24;
    ready(t);
    k->fft(&f, dst, src, workspace);
}

/* One operand is whole, the other broadcasts in some dims. */
static void try_complex_mul(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t size[3] = {short_length(t, "s0"), short_length(t, "s1"), length(t, "s2")};
    int64_t whole[3] = {2 * size[1] * size[2], 2 * size[2], 2}, part[3], n = 1;
    int64_t all = size[0] * size[1] * size[2];
    bool conj = draw(t, "conj", 2), turned = draw(t, "turned", 2);

    for (int d = 2; d >= 0; d--) {
        bool stretched = draw(t, "stretched", 2);
        part[d] = stretched ? 0 : 2 * n;
        n *= stretched ? 1 : size[d];
    }
    if (all == 0)
        return;
    const void *a = in(t, "a", 2 * all), *b = in(t, "b", 2 * n);
    void *dst = out(t, "dst", 2 * all);
    ready(t);
    k->complex_mul(conj, 3, size, dst, turned ? b : a, turned ? part : whole, turned ? a : b,
                   turned ? whole : part);
}

#endif
