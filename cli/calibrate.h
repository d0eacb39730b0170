/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The links along an axis of a mesh, from real moves. All lines of the axis move at once, as they
 * do in a job: ranks of one host that share its link get their part of it, and that is what is
 * measured.
 */
#ifndef SHERD_CLI_CALIBRATE_H
#define SHERD_CLI_CALIBRATE_H

#include "sherd/plan.h"

enum { CLI_MOVES = 3, CLI_SIZES = 8 };

/* A move: how long it took, and what the busiest rank has to do for it. */
typedef struct cli_timed {
    double seconds;
    int64_t messages, bytes, added; /* received; bytes that are added to others */
} cli_timed;

/* Moves that only copy come first, then those that add; each in sizes that grow. */
typedef struct cli_times {
    int sizes;                /* that were measured; at least 3 */
    int64_t bytes[CLI_SIZES]; /* of the whole tensor */
    cli_timed move[CLI_MOVES][CLI_SIZES];
} cli_times;

/*
 * Time moves along an axis of a mesh of all ranks; equal on all of them. Collective. False: the
 * world has failed. Costs seconds: larger sizes are left out where one move takes half a second.
 */
bool cli_times_measure(cli_times *out, sherd_world *world, const sherd_mesh *mesh, int axis);

/*
 * What these times say of the axis, in lines for tensors that grow; how many, `most` at most.
 * Between two sizes the line of the closer one counts (by their ratio), and the last one has no
 * limit. Alpha and beta are those of copies of this size and the two beside it, with the least sum
 * of relative errors; gamma is the median of what sums of these sizes take beyond that. Axes are
 * named by the caller. Pure.
 */
int cli_times_fit(sherd_link *out, int most, const cli_times *times);

/* The line of a price file, with its end. */
void cli_line_write(char *out, size_t room, const sherd_link *line);

#endif
