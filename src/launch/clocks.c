/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far this machine's clock is from rank 0's, for a trace of several machines. All ranks bring
 * their clocks together some times. Nobody leaves such a meeting before the last has entered it, so
 * a clock at a rank's exit is not before another's at its entry: each meeting bounds the difference
 * from both sides, and the best of all meetings is known to within half of the fastest one's time.
 * If the clocks of machines run at different speeds, the error grows with the time since the world
 * was opened.
 */
#include "clocks.h"
#include "world/inside.h"

void sherd__clocks_bound(sherd__clock_bounds *bounds, const sherd__clock_meeting *mine,
                         const sherd__clock_meeting *first)
{
    int64_t least = mine->entry - first->exit, most = mine->exit - first->entry;

    if (bounds->least < least)
        bounds->least = least;
    if (bounds->most > most)
        bounds->most = most;
}

bool sherd__clocks_compare(int64_t *ahead, const sherd_carrier *carrier)
{
    enum { MEETINGS = 16 };
    sherd__clock_meeting mine[MEETINGS], first[MEETINGS], all[SHERD_MAX_RANKS];
    sherd__clock_bounds bounds = {INT64_MIN, INT64_MAX};

    for (int i = 0; i < MEETINGS; i++) {
        mine[i] = (sherd__clock_meeting){.entry = sherd__now()};
        if (i > 0) /* a meeting's exit is told in the next */
            mine[i].exit = mine[i - 1].exit;
        if (!carrier->gather(carrier->self, &mine[i], sizeof mine[i], all))
            return false;
        mine[i].exit = sherd__now();
        first[i].entry = all[0].entry;
        if (i == 0)
            continue;
        first[i - 1].exit = all[0].exit;
        sherd__clocks_bound(&bounds, &mine[i - 1], &first[i - 1]);
    }
    *ahead = bounds.least + (bounds.most - bounds.least) / 2;
    return true;
}
