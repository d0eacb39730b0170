/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known without computing: a product of three waves, one along each dim, only decays, each
 * at a rate of its own, and the first state is a sum of such products. So the exact state at any
 * time is known, and how far off it the computed one may be.
 */
#ifndef HEAT_WAVES_H
#define HEAT_WAVES_H

#include <sherd.h>

#include "options.h"

typedef struct waves {
    heat_border border;
    int64_t size[DIMS];
    double spacing[DIMS]; /* of points; the box is the unit cube */
    double step;          /* of time */
    int64_t count;
    int number[MOST_MODES][DIMS]; /* half or whole waves in the box */
    double amplitude[MOST_MODES];
} waves;

void waves_make(waves *w, const heat_options *o);

/* No number of any state is larger. */
double waves_height(const waves *w);

/*
 * The most by which a state after some explicit steps may differ from the exact one: the second
 * differences replace a derivative (spacing^2), and a step's factor 1 - x replaces exp(-x)
 * (step^2).
 */
double waves_bound(const waves *w, int64_t steps);

/* The waves at the points of a box, so that rows are cheap. */
typedef struct wave_tables {
    sherd_box box;
    double *value[DIMS]; /* [modes of waves][size of the box] */
} wave_tables;

/* False: no memory. Free it in any case. */
bool wave_tables_make(wave_tables *out, const waves *w, const sherd_box *box);
void wave_tables_free(wave_tables *t);

/*
 * The exact state after some steps in a row of the box, out[box->size[2]]; i, j count from the
 * box's beginning.
 */
void waves_row(double *out, const waves *w, const wave_tables *t, const double *decay, int64_t i,
               int64_t j);

/* What is left of each mode after some steps, in decay[MOST_MODES]: for waves_row. */
void waves_decay(double *decay, const waves *w, int64_t steps);

#endif
