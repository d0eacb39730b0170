/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cells. Each is computed by the same expression from the same numbers wherever it lies, so the
 * bits do not depend on how the grid is cut.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cells.h"

static int64_t count_of(const sherd_box *box)
{
    return box->size[0] * box->size[1] * box->size[2];
}

/* Where a cell lies in the array. */
static int64_t place(const cells *c, int64_t i, int64_t j, int64_t k)
{
    const sherd_box *a = &c->all;

    return ((i - a->offset[0]) * a->size[1] + j - a->offset[1]) * a->size[2] + k - a->offset[2];
}

/* ---- a step --------------------------------------------------------------------------------- */

/* n cells in a row; `side` and `back`: how far away the neighbours along y and x are. */
static void step_row(double *restrict next, const double *u, int64_t n, int64_t side, int64_t back,
                     const double *c)
{
    for (int64_t k = 0; k < n; k++)
        next[k] = u[k] + (c[0] * (u[k - back] + u[k + back] - 2 * u[k]) +
                          c[1] * (u[k - side] + u[k + side] - 2 * u[k]) +
                          c[2] * (u[k - 1] + u[k + 1] - 2 * u[k]));
}

void cells_step(const cells *c, const sherd_box *box, double *next, const double *now)
{
    int64_t side = c->all.size[2], back = side * c->all.size[1];
    double factor[DIMS];

    for (int d = 0; d < DIMS; d++)
        factor[d] = c->waves->step / (c->waves->spacing[d] * c->waves->spacing[d]);
    for (int64_t i = 0; i < box->size[0]; i++)
        for (int64_t j = 0; j < box->size[1]; j++) {
            int64_t at = place(c, box->offset[0] + i, box->offset[1] + j, box->offset[2]);
            step_row(next + at, now + at, box->size[2], side, back, factor);
        }
}

sherd_box cells_inside(const cells *c)
{
    sherd_box box = c->piece;

    for (int d = 0; d < DIMS; d++) {
        box.offset[d]++;
        box.size[d] = box.size[d] > 2 ? box.size[d] - 2 : 0;
    }
    return box;
}

/* A layer before and one behind for each dim, each of what the dims before have left. */
void cells_step_rim(const cells *c, double *next, const double *now)
{
    sherd_box rest = c->piece;

    for (int d = 0; d < DIMS && count_of(&rest); d++) {
        sherd_box layer = rest;
        layer.size[d] = 1;
        cells_step(c, &layer, next, now);
        layer.offset[d] += rest.size[d] - 1;
        if (rest.size[d] > 1)
            cells_step(c, &layer, next, now);
        rest.offset[d]++;
        rest.size[d] = rest.size[d] > 2 ? rest.size[d] - 2 : 0;
    }
}

/* ---- states --------------------------------------------------------------------------------- */

bool cells_set(const cells *c, double *u, int64_t steps)
{
    const int64_t *at = c->piece.offset, *n = c->piece.size;
    double decay[MOST_MODES];
    wave_tables tables;
    bool good = wave_tables_make(&tables, c->waves, &c->piece);

    waves_decay(decay, c->waves, steps);
    for (int64_t i = 0; good && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            waves_row(u + place(c, at[0] + i, at[1] + j, at[2]), c->waves, &tables, decay, i, j);
    wave_tables_free(&tables);
    return good;
}

/* Mix a number and its place into 64 bits that tell of both. */
static uint64_t mix(double value, int64_t at)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = (bits ^ (uint64_t)at * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 29) * 0x94d049bb133111ebu;
    return bits ^ bits >> 32;
}

/* `first`: the number of the row's first cell in the whole grid. */
static void measure_row(figures *out, const double *u, const double *exact, int64_t n,
                        int64_t first)
{
    for (int64_t k = 0; k < n; k++) {
        double error = fabs(u[k] - exact[k]);
        out->error = error <= out->error ? out->error : error; /* a NaN comes through */
        out->height = fmax(out->height, fabs(u[k]));
        out->checksum += mix(u[k], first + k);
    }
}

bool cells_measure(figures *out, const cells *c, const double *u, int64_t steps)
{
    const int64_t *at = c->piece.offset, *n = c->piece.size, *size = c->waves->size;
    double decay[MOST_MODES], *row = malloc((size_t)n[2] * sizeof *row + 1);
    wave_tables tables;
    bool good = wave_tables_make(&tables, c->waves, &c->piece) && row;

    *out = (figures){.error = 0};
    waves_decay(decay, c->waves, steps);
    for (int64_t i = 0; good && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++) {
            waves_row(row, c->waves, &tables, decay, i, j);
            measure_row(out, u + place(c, at[0] + i, at[1] + j, at[2]), row, n[2],
                        ((at[0] + i) * size[1] + at[1] + j) * size[2] + at[2]);
        }
    out->error = isnan(out->error) ? (double)INFINITY : out->error;
    wave_tables_free(&tables);
    free(row);
    return good;
}
