/* SPDX-License-Identifier: Apache-2.0 */
/* What a run has done: counted round by round, told as a table and as JSON. */
#ifndef STRESS_COUNTS_H
#define STRESS_COUNTS_H

#include "watch.h"

typedef struct counts {
    uint64_t seed;
    int64_t rounds[ROUND_KINDS][2]; /* as processes, as threads */
    int64_t bad;
    tally sum;
    double seconds, longest, longest_pause, longest_told;
    uint64_t longest_seed;
} counts;

void counts_add(counts *c, const round_plan *r, const tally *t, const outcome *o);
void counts_print(const counts *c);
/* False if the file can not be written. */
bool counts_write(const counts *c, const char *file);

#endif
