/* SPDX-License-Identifier: Apache-2.0 */
/* Dry worlds, inside this room: opening them (dry_open.c), what is left out (dry.c), the report
 * (dry_report.c). */
#ifndef SHERD__DRY_H
#define SHERD__DRY_H

#include "arena.h"
#include "sherd/dry.h"

typedef struct sherd__dry {
    sherd_rates rates;
    int64_t picoseconds; /* that have passed */
    sherd_dry_work *work;
    int count, room;
} sherd__dry;

/* Whether the environment asks for a dry run. */
bool sherd__dry_is_asked(void);
/* Open the rank that it asks for, of as many ranks as it says, else `ranks`; 0 = nobody says. */
sherd_status sherd__dry_open(sherd_world **out, int ranks, const sherd_world_options *options,
                             sherd__diag *diag);
/* Start counting. ENOMEM. */
sherd_status sherd__dry_begin(sherd_world *world, const sherd_rates *rates);
/* Append the report to the file that the environment names, if it does. A failure is told on
 * stderr. */
void sherd__dry_report(sherd_world *world);
void sherd__dry_end(sherd_world *world);

extern const struct sherd__transport sherd__dry_transport;

#endif
