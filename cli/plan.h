/* SPDX-License-Identifier: Apache-2.0 */
/* What files that deal with plans share. */
#ifndef SHERD_CLI_PLAN_H
#define SHERD_CLI_PLAN_H

#include "cases.h"

/*
 * The plan of a problem, as sherd_plan_create; a failure names the option to blame. `planner`:
 * whose plan. The plan is good until the next one is made.
 */
sherd_status cli_plan_make(const sherd_plan **out, cli_problem *p, sherd_planner planner);

/*
 * Total received against the least; 1 where both are 0; -1 where only the least is, or where a
 * total has no number below 2^62 - 1.
 */
double cli_plan_ratio(const sherd_plan_price *price);

/* plan_json.c: what the plan itself says; the others' plans follow in plan.c. */
void cli_plan_put(bool *good, json_t *out, const cli_problem *p, const sherd_plan *plan);
/* plan_text.c: the table. */
void cli_plan_print(FILE *to, const json_t *answer);

#endif
