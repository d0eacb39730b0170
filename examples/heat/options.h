/* SPDX-License-Identifier: Apache-2.0 */
/* What the user asked for. */
#ifndef HEAT_OPTIONS_H
#define HEAT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { DIMS = 3, MOST_MODES = 64, LINE_BYTES = 512 /* room for any message of this program */ };

/* What happens at the walls of the box. */
typedef enum heat_border {
    ZERO = 0,  /* they are kept at 0 */
    PERIODIC,  /* what leaves at one side enters at the other */
    INSULATED, /* nothing passes */
    BORDERS
} heat_border;

typedef struct heat_options {
    int64_t ranks, mesh[DIMS]; /* 0 = not said */
    int64_t size[DIMS];        /* points */
    int64_t steps, modes, seed;
    double courant; /* part of the longest step that is stable */
    heat_border border;
    const char *cuts, *output, *picture; /* NULL = none */
    bool threads, help;
} heat_options;

/*
 * Fill in `out`, defaults included. False: `error`, char[LINE_BYTES], says in one line what is
 * wrong.
 */
bool options_parse(heat_options *out, int argc, char *const *argv, char *error);

void options_help(FILE *file);

/*
 * Give the mesh its extents for this many ranks; false as above if it has another number of them.
 */
bool options_fit(heat_options *o, int ranks, char *error);

const char *border_name(heat_border border);

#endif
