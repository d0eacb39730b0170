/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links along an axis of a mesh, from real moves. All lines of the axis move at once, as they
 * do in a job: ranks of one host that share its link get their part of it, and that is what is
 * measured.
 */
#ifndef SHERD_CLI_CALIBRATE_H
#define SHERD_CLI_CALIBRATE_H

#include "sherd/plan.h"

enum { CLI_MOVES = 4, CLI_SIZES = 6 };

/* A move: how long it took, and what the busiest rank has to do for it. */
typedef struct cli_timed {
    double seconds;
    int64_t messages, bytes, added; /* received; bytes that are added to others */
} cli_timed;

/* Moves that only copy come first, then those that add; each in sizes that grow. */
typedef struct cli_times {
    int sizes; /* that were measured; at least 3 */
    cli_timed move[CLI_MOVES][CLI_SIZES];
} cli_times;

/*
 * Time moves along an axis of a mesh of all ranks; equal on all of them. Collective. False: the
 * world has failed. Costs seconds: larger sizes are left out where one move takes half a second.
 */
bool cli_times_measure(cli_times *out, sherd_world *world, const sherd_mesh *mesh, int axis);

/*
 * What these times say of the axis. Beta is how the time of copies grows with their bytes, between
 * the largest size and the two before it: what a link takes once at a start, or gives, is not in
 * it. Gamma is what sums take beyond that, alpha what remains of the smallest size, half of it at
 * least. Medians over the moves. Pure.
 */
void cli_times_fit(sherd_link *out, const cli_times *times);

/* The line of a price file, with its end. */
void cli_link_write(char *out, size_t room, const sherd_link *link);

#endif
