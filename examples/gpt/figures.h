/* SPDX-License-Identifier: Apache-2.0 */
/* What a run showed, for the screen and the report. */
#ifndef GPT_FIGURES_H
#define GPT_FIGURES_H

#include "train.h"

enum {
    WARM_STEPS = 3,
    COMMS = 32,
    COMPARED_STEPS = 5,
    COMPARED_PARAMETERS = 20000000 /* of more no rank is asked to hold all */
};

/* One kind of collective: averages over ranks and steps (after the first three). */
typedef struct comm_figures {
    const char *op, *axes; /* borrowed from the world */
    double calls, bytes, seconds;
} comm_figures;

typedef struct figures {
    int64_t steps;                      /* done so far */
    double *loss, *norm, *seconds;      /* [options->steps] */
    int64_t params_total, params_local; /* elements; local: of the rank that holds most */
    int64_t saved_bytes, peak_bytes;    /* of the worst rank */
    comm_figures comm[COMMS];
    int comms;
    double mean_seconds; /* of a step, after the first three */
    double step_seconds; /* likewise, the median */
    /* of the first losses, relative, to those of one rank; NaN: not compared */
    double worst_difference;
} figures;

/* Count the parameters and start to measure. Collective. */
sherd_status figures_begin(figures *f, const trainer *t);
/* Take down a step. Local. */
void figures_add(figures *f, const trainer *t, const step_figures *step);
/* Bring together what the ranks measured. Collective. */
sherd_status figures_end(figures *f, const trainer *t);
void figures_free(figures *f);

/* Mean loss of the last 20 steps. */
double figures_last_loss(const figures *f);

/*
 * Train the first steps again, alone, in a world of one rank, unless the model is large; rank 0
 * does it, the others wait. Collective.
 */
sherd_status figures_compare(figures *f, const trainer *t);

#endif
