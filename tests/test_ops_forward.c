/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator on sharded operands equals itself on plain ones: under every placement of every
 * operand (R, S(d), P(sum)), with default cuts and with uneven ones and another shard order, on a
 * line of ranks and on 2x2. SHERD_PROOF=1: five times as many combinations of them.
 */
#include "ops_oracles.h"

static void sharded_equals_plain(sherd_world *world)
{
    all_equal_plain(world, cases, LEN(cases), getenv("SHERD_PROOF") ? 700 : 70);
}

static const check_test tests[] = {
    {TEST(sharded_equals_plain), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
