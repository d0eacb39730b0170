/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms of any length: how one is computed, the roots of unity, and the plain kernels
 * (fft_body.inc), which are the fast ones with shorter vectors.
 *
 * - A length whose prime factors are all small: passes of radix 2, 3, 4, 5, 8 and other small
 *   primes that leave the elements in order (Stockham), for a vector of columns at once.
 * - A long one: columns of a matrix of its elements, a factor for each element, and rows
 *   ("four-step"), which fit into the cache.
 * - Any other: a convolution with a chirp, by transforms of a length of the first kind (Bluestein).
 * - Of real numbers: of even length, neighbours are one complex number, and the halves are taken
 *   apart behind it; of odd length, they are complex.
 *
 * A column's numbers depend on no other column, so they have the same bits wherever it lies.
 */
#include "fft.h"

#include <math.h>
#include <string.h>

#include "rows.h"
#include "base/num.h"

/* ---- roots of unity -------------------------------------------------------------------------- */

/* By an angle below an eighth of the circle, which is exact but for two roundings. */
void sherd__fft_root(double root[2], int64_t k, int64_t n)
{
    const double pi = 3.14159265358979323846;
    bool lower = 2 * k > n, left, steep;
    int64_t turn = 2 * (lower ? n - k : k); /* the angle is pi turn / n, in [0, pi] */
    double c, s;

    left = 2 * turn > n;
    turn = left ? n - turn : turn;
    steep = 4 * turn > n;
    double angle =
        steep ? pi * (double)(n - 2 * turn) / (double)(2 * n) : pi * (double)turn / (double)n;
    c = steep ? sin(angle) : cos(angle);
    s = steep ? cos(angle) : sin(angle);
    root[0] = left ? -c : c;
    root[1] = lower ? s : -s;
}

/* ---- how ------------------------------------------------------------------------------------- */

/* What is left of n without factors up to `most`. */
static int64_t without_factors(int64_t n, int most)
{
    for (int64_t f = 2; f <= most; f++)
        while (n % f == 0)
            n /= f;
    return n;
}

/* The least length from n on that has no prime factor above 5. */
static int64_t next_smooth(int64_t n)
{
    while (without_factors(n, 5) > 1)
        n++;
    return n;
}

/* Pairs and triples of twos first: fewer passes. */
static void list_passes(sherd__fft_passes *p, int64_t n)
{
    int twos = 0, eights;

    p->n = n;
    p->count = 0;
    for (; n % 2 == 0; n /= 2)
        twos++;
    eights = twos % 2 && twos > 1; /* a single two is the worst pass */
    for (int i = 0; i < eights; i++, twos -= 3)
        p->radix[p->count++] = 8;
    for (; twos > 1; twos -= 2)
        p->radix[p->count++] = 4;
    if (twos)
        p->radix[p->count++] = 2;
    for (int f = 3; n > 1; f += 2)
        for (; n % f == 0; n /= f)
            p->radix[p->count++] = f;
}

/* The two factors of n that differ least. */
static void split(sherd__fft_plan *plan, int64_t n)
{
    int64_t rows = (int64_t)sqrt((double)n);

    while (n % rows)
        rows--;
    list_passes(&plan->rows, rows);
    list_passes(&plan->cols, n / rows);
}

/* [outer, count, inner] of complex numbers. */
static sherd__fft_side complex_side(const sherd__fft *t, int64_t count)
{
    return (sherd__fft_side){t->inner, 2, 2 * count * t->inner, 2 * t->inner, 1};
}

/* [outer, n, inner] of reals; of an even number two are one complex number. */
static sherd__fft_side real_side(const sherd__fft *t)
{
    bool even = t->n % 2 == 0;

    return (sherd__fft_side){t->inner, 1, t->n * t->inner, (even ? 2 : 1) * t->inner,
                             even ? t->inner : 0};
}

static size_t take(sherd__fft_room *room, int64_t count, size_t bytes)
{
    size_t at = room->end;

    room->end += ((size_t)count * bytes + SHERD__LINE - 1) / SHERD__LINE * SHERD__LINE;
    return at;
}

static void make_room(sherd__fft_plan *plan, const sherd__fft *t, int wide, size_t real)
{
    sherd__fft_room *room = &plan->room;
    int64_t longest = sherd__max(plan->length, plan->core + 1);
    int64_t small = plan->split ? sherd__max(plan->rows.n, plan->cols.n) : 0;

    memset(room, 0, sizeof *room);
    room->roots = take(room, plan->length, 2 * real);
    room->half_roots = take(room, t->kind == SHERD__FFT_COMPLEX ? 0 : plan->core + 1, 2 * real);
    room->chirp = take(room, plan->chirp ? plan->core : 0, 2 * real);
    room->spectrum = take(room, plan->chirp ? plan->length : 0, 2 * real);
    for (int i = 0; i < 2; i++) {
        room->block[i] = take(room, longest * plan->lanes, 2 * real);
        room->small[i] = take(room, small * wide, 2 * real);
    }
}

void sherd__fft_plan_of(sherd__fft_plan *plan, const sherd__fft *t, int lanes, size_t real)
{
    int64_t half = t->n / 2 + 1;
    bool halved = t->kind != SHERD__FFT_COMPLEX && t->n % 2 == 0;

    plan->core = halved ? t->n / 2 : t->n;
    plan->chirp = without_factors(plan->core, SHERD__FFT_RADIX) > 1;
    plan->length = plan->chirp ? next_smooth(2 * plan->core - 1) : plan->core;
    plan->split = plan->length > SHERD__FFT_WHOLE;
    plan->lanes = plan->split ? 1 : lanes;
    if (plan->split)
        split(plan, plan->length);
    else
        list_passes(&plan->rows, plan->length);
    plan->in = t->kind == SHERD__FFT_TO_HALF
                   ? real_side(t)
                   : complex_side(t, t->kind == SHERD__FFT_FROM_HALF ? half : t->n);
    plan->out = t->kind == SHERD__FFT_FROM_HALF
                    ? real_side(t)
                    : complex_side(t, t->kind == SHERD__FFT_TO_HALF ? half : t->n);
    plan->in_count = t->kind == SHERD__FFT_FROM_HALF ? half : plan->core;
    plan->out_count = t->kind == SHERD__FFT_TO_HALF ? half : plan->core;
    make_room(plan, t, lanes, real);
}

/* ---- the plain ones -------------------------------------------------------------------------- */

#define INLINE static inline __attribute__((always_inline))
#define KERNEL /* the functions of fft.h */

#define MADD(a, b, c)  ((a) * (b) + (c))
#define NMADD(a, b, c) ((c) - (a) * (b))

typedef float floats __attribute__((vector_size(16), may_alias));
typedef double doubles __attribute__((vector_size(16), may_alias));

#define REAL     float
#define LANE     floats
#define LANES    4
#define SPLAT(x) ((x) - (floats){0})
#define NAME(x)  sherd__##x##_f32
#include "fft_body.inc"

#define REAL     double
#define LANE     doubles
#define LANES    2
#define SPLAT(x) ((x) - (doubles){0})
#define NAME(x)  sherd__##x##_f64
#include "fft_body.inc"
