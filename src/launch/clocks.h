/* SPDX-License-Identifier: Apache-2.0 */
/* How far clocks of several machines differ, found from when ranks enter and leave exchanges. */
#ifndef SHERD__LAUNCH_CLOCKS_H
#define SHERD__LAUNCH_CLOCKS_H

#include "sherd/carrier.h"
#include <stdint.h>

/* When a rank entered a meeting and left it, by its own clock, nanoseconds. */
typedef struct sherd__clock_meeting {
    int64_t entry, exit;
} sherd__clock_meeting;

/* How far a clock is ahead of another, at least and at most. */
typedef struct sherd__clock_bounds {
    int64_t least, most;
} sherd__clock_bounds;

/* Narrow the bounds by one more meeting. */
void sherd__clocks_bound(sherd__clock_bounds *bounds, const sherd__clock_meeting *mine,
                         const sherd__clock_meeting *first);
/* How far this rank's clock is ahead of rank 0's. All ranks call it. False: they do not reach each
 * other. */
bool sherd__clocks_compare(int64_t *ahead, const sherd_carrier *carrier);

#endif
