/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of a search, with what each costs and brings. */
#include "search.h"

/*
 * Measured with bench/plan_limits --pairs 4 (192 pairs in three dims, on meshes of three to eight
 * axes, under four prices): with these limits 114 plans are proven, 94 of the 96 on up to four
 * axes; planning takes 0.6 ms in the median, and a second at worst.
 */
const sherd__effort sherd__effort_usual = {
    /*
     * All of four axes in up to four dims (1,457 states; with sums 2,424). Of five axes in three
     * dims there are 5,056: with four times as many states 16 more plans are proven, planning takes
     * five times as long in the median and 12 s at worst.
     */
    .states = 4096,
    /* With a quarter 2 of the 78 other plans take longer, with a sixteenth 16; with four times as
     * many none takes less. */
    .chosen = 1024,
    /* With a quarter 3 plans less are proven, with four times as many none more. */
    .looks = 4000000,
    /* 20 MB. With a quarter no plan is other, nor without this limit; prices in which all steps
     * take about equally long had 300 MB of them, and took 18 s. */
    .hopes = 1 << 18,
    /* With a quarter 5 less are proven; with four times as many none more, and the worst takes
     * 13 s. */
    .prices = 20000,
    /* None is proven then, so fewer are worth it: with a quarter 2 plans take longer, with four
     * times as many none takes less. */
    .prices_of_some = 1000,
    /* Of 9,156 searches 25 were repeated, the worst 13 times: some steps each time. */
    .sure = SHERD__SURE,
    /* Some runs over all states of four axes; a repeat mostly goes over some tens to hundreds. With
     * a hundredth of this no plan is other. */
    .pairs = 8000000,
};
