/* SPDX-License-Identifier: Apache-2.0 */
/* PyTorch's planners and its model of time: not here yet. */
#include "inside.h"

static void price_nothing(sherd__priced *p, const sherd__problem *problem)
{
    sherd__price_arena.price(p, problem);
}

static int64_t no_floor(const sherd__problem *problem, int64_t target_max, int64_t addends)
{
    (void)problem;
    (void)target_max;
    (void)addends;
    return 0;
}

const sherd__price_model sherd__price_links = {"links", price_nothing, no_floor};
const sherd__price_model sherd__price_torch = {"torch", price_nothing, no_floor};

sherd_status sherd__greedy_find(sherd__answer *out, const sherd__problem *problem)
{
    (void)out;
    return sherd__fail(problem->space->diag, SHERD_ENOTSUP, "sherd_plan_create: no greedy yet");
}

sherd_status sherd__graph_find(sherd__answer *out, const sherd__problem *problem)
{
    (void)out;
    return sherd__fail(problem->space->diag, SHERD_ENOTSUP, "sherd_plan_create: no graph yet");
}
