/* SPDX-License-Identifier: Apache-2.0 */
/* The planners: what they are asked, what they answer, and making a plan of that. */
#ifndef SHERD__SEARCH_PLANNERS_H
#define SHERD__SEARCH_PLANNERS_H

#include "plan/state.h"
#include "plan/window.h"
#include "price/price.h"

typedef struct sherd__answer {
    sherd__path path; /* its last stop may differ from the target in cuts alone */
    double cost;
    int64_t picoseconds; /* of all steps, if the planner knows it; else 0 */
    bool proven;
    bool has_direct; /* whether the planner priced the step from source to target on its way */
    sherd__priced direct;
} sherd__answer;

/*
 * The planners, one file each. The path begins at the problem's source. The two layouts differ;
 * only EXACT takes two meshes.
 */
sherd_status sherd__exact_find(sherd__answer *out, const sherd__problem *problem);
sherd_status sherd__greedy_find(sherd__answer *out, const sherd__problem *problem);
sherd_status sherd__graph_find(sherd__answer *out, const sherd__problem *problem);

/* The options as a value; EINVAL if they are out of range. `from` has the names of the axes. */
sherd_status sherd__request_make(sherd__request *out, const sherd_layout *from,
                                 const sherd_layout *to, const sherd_plan_options *options);
/* 0 only if all options are default. */
uint64_t sherd__request_hash(const sherd__request *request);
bool sherd__request_equal(const sherd__request *a, const sherd__request *b);

sherd_status sherd__plan_make(sherd_plan **out, const sherd_layout *from, const sherd_layout *to,
                              size_t element_bytes, const sherd__request *request);
/* The same of a window: a plan with a count of its own. */
sherd_status sherd__window_plan_make(sherd_plan **out, sherd__window *window,
                                     sherd__direction direction, size_t element_bytes);
void sherd__plan_destroy(sherd_plan *plan);

#endif
