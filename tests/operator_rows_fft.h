/* SPDX-License-Identifier: Apache-2.0 */
/* Rows (operator_rows.h) of Fourier transforms, and of products of complex numbers. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_FFT_H
#define SHERD_TESTS_OPERATOR_ROWS_FFT_H

#include "operator_rows.h"

#include "sherd/ops_fft.h"

/* number: as draw_dims; in the place of keepdim the norm; then the size of the last dim. */
OVER(run_fft, sherd_fft(x, dims, count, (sherd_fft_norm)keep))
OVER(run_ifft, sherd_ifft(x, dims, count, (sherd_fft_norm)(2 * keep)))
OVER(run_rfft, sherd_rfft(x, dims, count, (sherd_fft_norm)keep))
OVER(run_irfft, sherd_irfft(x, dims, count, n[6], (sherd_fft_norm)keep))
RUN(run_complex_mul, sherd_complex_mul(in[0], in[1]))

static inline bool is_complex(const need *w)
{
    return w->ndim > 0 && w->shape[w->ndim - 1] == 2;
}

/* Some of the first ndim dims, in any order, none of them empty. */
static inline bool draw_some_of(call_plan *p, int ndim, uint64_t *dice)
{
    int64_t *number = p->number, count = 0;

    for (int d = 0; d < ndim; d++)
        if (roll(dice, 3))
            number[1 + count++] = roll(dice, 2) ? d : d - ndim;
    number[0] = count;
    number[5] = roll(dice, 2);
    if (count > 1 && roll(dice, 2)) {
        int64_t first = number[1];
        number[1] = number[count];
        number[count] = first;
    }
    for (int d = 0; d < ndim; d++) {
        bool named = count == 0;
        for (int i = 0; i < count; i++)
            named |= (number[1 + i] + ndim) % ndim == d;
        if (named && p->in[0].shape[d] == 0)
            return false;
    }
    return true;
}

static inline bool draw_fft(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    return is_complex(&p->in[0]) && draw_some_of(p, p->in[0].ndim - 1, dice);
}

static inline bool draw_rfft(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    return draw_some_of(p, p->in[0].ndim, dice);
}

static inline bool draw_irfft(call_plan *p, uint64_t *dice)
{
    if (!draw_fft(p, dice))
        return false;
    int ndim = p->in[0].ndim - 1, count = (int)p->number[0];
    int last = count ? (int)(p->number[count] + ndim) % ndim : ndim - 1;
    int64_t half = p->in[0].shape[last];
    p->number[6] = half > 1 && roll(dice, 2) ? 0 : roll(dice, 2) ? 2 * half - 1 : 1 + roll(dice, 8);
    return true;
}

RUN(run_complex_einsum, sherd_complex_einsum("...i,...i->...", in[0], in[1]))
RUN(run_fft_resize, sherd_fft_resize(in[0], (int)n[0], n[1]))

static inline bool draw_complex_einsum(call_plan *p, uint64_t *dice)
{
    (void)dice;
    if (!is_complex(&p->in[0]) || p->in[0].ndim < 2)
        return false;
    want_same(p, 1, 'x');
    return true;
}

static inline bool draw_fft_resize(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    if (!is_complex(&p->in[0]) || p->in[0].ndim < 2)
        return false;
    p->number[0] = roll(dice, p->in[0].ndim - 1);
    p->number[1] = 1 + roll(dice, 8);
    return true;
}

static inline bool draw_complex_mul(call_plan *p, uint64_t *dice)
{
    if (!is_complex(&p->in[0]))
        return false;
    need *w = want_broadcast(p, 1, 'x', true, dice);
    w->ndim += w->ndim == 0;
    w->shape[w->ndim - 1] = 2;
    return true;
}

#endif
