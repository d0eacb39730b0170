/* SPDX-License-Identifier: Apache-2.0 */
/* Dry worlds, inside this room: opening them (dry_open.c), what is left out (dry.c), the report
 * (dry_report.c). */
#ifndef SHERD__WORLD_DRY_H
#define SHERD__WORLD_DRY_H

#include "arena.h"
#include "sherd/dry.h"

/* The rank that is there, in an arena of its own. */
typedef struct sherd__dry_rank {
    int rank, ranks;
    sherd_rates rates;
} sherd__dry_rank;

/* All that was counted up to some moment; or between two of them. */
typedef struct sherd__dry_counts {
    int64_t picoseconds;
    sherd_dry_work *work; /* [works] */
    int works, work_room;
    struct sherd__tally *call; /* [calls]: the comm log; names are borrowed */
    int calls, call_room;
} sherd__dry_counts;

typedef struct sherd__dry {
    sherd_rates rates;
    sherd__dry_counts now; /* without `call`: that is the world's */
    /* A training step ends with that of an optimizer, after some backward. */
    bool went_back;
    int64_t steps;
    sherd__dry_counts before, last; /* at the ends of the last two steps */
} sherd__dry;

/* Whether the environment asks for a dry run. */
bool sherd__dry_is_asked(void);
/* Open the rank that it asks for, of as many as it says, else of `ranks`; 0 = nobody says. */
sherd_status sherd__dry_open(sherd_world **out, int ranks, const sherd_world_options *options,
                             sherd__diag *diag);
/* Start counting, if the arena is of a dry rank. ENOMEM. */
sherd_status sherd__dry_begin(sherd_world *world);
/* What the last step took, from the end of the one before it, or from the beginning; until the next
 * step. False: there was none. */
bool sherd__dry_last_step(const sherd_world *world, sherd__dry_counts *out);
/* Whether the environment names a file for the report. */
bool sherd__dry_report_is_asked(void);
/* Append the report to the file that the environment names, if it does. A failure is told on
 * stderr. */
void sherd__dry_report(sherd_world *world);
void sherd__dry_end(sherd_world *world);

extern const struct sherd__transport sherd__dry_transport;

#endif
