/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic on the cells of one rank: its piece of the grid and a layer around it, in one
 * row-major array. Knows no ranks.
 */
#ifndef HEAT_CELLS_H
#define HEAT_CELLS_H

#include "waves.h"

typedef struct cells {
    const waves *waves;
    sherd_box all, piece; /* in the whole grid: with the layer, without; both may be empty */
} cells;

/* Write the exact state after some steps into the piece. False: no memory. */
bool cells_set(const cells *c, double *u, int64_t steps);

/* What of the piece needs nothing of the layer; it may be empty. */
sherd_box cells_inside(const cells *c);

/* A step of the cells of a box. */
void cells_step(const cells *c, const sherd_box *box, double *next, const double *now);

/* A step of all cells of the piece that are not inside. */
void cells_step_rim(const cells *c, double *next, const double *now);

/* What a state looks like. */
typedef struct figures {
    double error;  /* the largest difference from the exact state */
    double height; /* the largest number */
    /* of all numbers and where they are: those of pieces add up to that of the grid, modulo 2^64 */
    uint64_t checksum;
} figures;

/* Of the piece. False: no memory. */
bool cells_measure(figures *out, const cells *c, const double *u, int64_t steps);

#endif
