/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waves. Each is a function of a point's index in the whole grid, so all ranks agree on them to the
 * last bit.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "waves.h"

static const double pi = 3.14159265358979323846;

/* ---- making them ---------------------------------------------------------------------------- */

/* splitmix64: the i-th number of a seed. */
static uint64_t draw(int64_t seed, uint64_t i)
{
    uint64_t x = (uint64_t)seed * 0x9e3779b97f4a7c15u + (i + 1) * 0xbf58476d1ce4e5b9u;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The first one is the longest; the others have up to four waves along a dim. */
void waves_make(waves *w, const heat_options *o)
{
    double stiffness = 0;

    *w = (waves){.border = o->border, .count = o->modes};
    for (int d = 0; d < DIMS; d++) {
        w->size[d] = o->size[d];
        w->spacing[d] = 1 / (double)(o->size[d] + (o->border == ZERO ? 1 : 0));
        stiffness += 1 / (w->spacing[d] * w->spacing[d]);
    }
    w->step = o->courant / (2 * stiffness);
    for (int64_t m = 0; m < o->modes; m++) {
        uint64_t dice = draw(o->seed, (uint64_t)m);
        for (int d = 0; d < DIMS; d++)
            w->number[m][d] = m == 0 ? 1 : 1 + (int)(dice >> (8 * d) & 3);
        w->amplitude[m] = m == 0 ? 1 : (double)(dice >> 32) / 4294967296.0 - 0.5;
    }
}

double waves_height(const waves *w)
{
    double sum = 0;

    for (int64_t m = 0; m < w->count; m++)
        sum += fabs(w->amplitude[m]);
    return sum;
}

/* ---- what they do --------------------------------------------------------------------------- */

/* Of a wave along a dim: its angle from one end of the box to the other. */
static double angle(const waves *w, int number)
{
    return (w->border == PERIODIC ? 2 : 1) * pi * number;
}

/*
 * At the walls a kept 0 is half a point away from nothing: points lie between the walls, else in
 * the middle of cells.
 */
static double value(const waves *w, int dim, int number, int64_t i)
{
    double x = ((double)i + (w->border == ZERO ? 1 : 0.5)) * w->spacing[dim];

    return w->border == INSULATED ? cos(angle(w, number) * x) : sin(angle(w, number) * x);
}

/* The rate at which a mode decays. */
static double rate(const waves *w, int64_t m)
{
    double sum = 0;

    for (int d = 0; d < DIMS; d++)
        sum += angle(w, w->number[m][d]) * angle(w, w->number[m][d]);
    return sum;
}

/* The same on the grid: second differences of a wave are a number times the wave. */
static double grid_rate(const waves *w, int64_t m)
{
    double sum = 0;

    for (int d = 0; d < DIMS; d++) {
        double s = 2 / w->spacing[d] * sin(angle(w, w->number[m][d]) * w->spacing[d] / 2);
        sum += s * s;
    }
    return sum;
}

/* rate - grid_rate is at most this: 4 / h^2 sin^2(a h / 2) >= a^2 - a^4 h^2 / 12. */
static double rate_bound(const waves *w, int64_t m)
{
    double sum = 0;

    for (int d = 0; d < DIMS; d++)
        sum += pow(angle(w, w->number[m][d]), 4) * w->spacing[d] * w->spacing[d] / 12;
    return sum;
}

/*
 * |(1-x)^n - exp(-nx)| <= n x^2/2 max(|1-x|, exp(-x))^(n-1), and |exp(-a) - exp(-b)| <= |a - b|
 * exp(-min(a, b)).
 */
static double mode_bound(const waves *w, int64_t m, int64_t steps)
{
    double n = (double)steps, x = grid_rate(w, m) * w->step, time = n * w->step;
    double factor = fmax(fabs(1 - x), exp(-x));
    double of_time = steps ? n * x * x / 2 * pow(factor, n - 1) : 0;

    return of_time + rate_bound(w, m) * time * exp(-grid_rate(w, m) * time);
}

double waves_bound(const waves *w, int64_t steps)
{
    /* a few roundings in each step, and in the sum of the modes */
    double sum = 16 * DBL_EPSILON * (double)(steps + w->count) * waves_height(w);

    for (int64_t m = 0; m < w->count; m++)
        sum += fabs(w->amplitude[m]) * mode_bound(w, m, steps);
    return sum;
}

void waves_decay(double *decay, const waves *w, int64_t steps)
{
    for (int64_t m = 0; m < w->count; m++)
        decay[m] = w->amplitude[m] * exp(-rate(w, m) * w->step * (double)steps);
}

/* ---- tables --------------------------------------------------------------------------------- */

bool wave_tables_make(wave_tables *out, const waves *w, const sherd_box *box)
{
    bool good = true;

    *out = (wave_tables){.box = *box};
    for (int d = 0; d < DIMS; d++) {
        size_t n = (size_t)box->size[d];
        double *to = out->value[d] = malloc(((size_t)w->count * n + 1) * sizeof(double));
        good = good && to;
        for (int64_t m = 0; to && m < w->count; m++)
            for (size_t i = 0; i < n; i++)
                *to++ = value(w, d, w->number[m][d], box->offset[d] + (int64_t)i);
    }
    return good;
}

void wave_tables_free(wave_tables *t)
{
    for (int d = 0; d < DIMS; d++)
        free(t->value[d]);
    *t = (wave_tables){.box.ndim = 0};
}

void waves_row(double *out, const waves *w, const wave_tables *t, const double *decay, int64_t i,
               int64_t j)
{
    const int64_t *n = t->box.size;

    memset(out, 0, (size_t)n[2] * sizeof *out);
    for (int64_t m = 0; m < w->count; m++) {
        double factor = decay[m] * t->value[0][m * n[0] + i] * t->value[1][m * n[1] + j];
        for (int64_t k = 0; k < n[2]; k++)
            out[k] += factor * t->value[2][m * n[2] + k];
    }
}
