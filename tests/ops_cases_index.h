/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ops_cases.h for operators by index and on whole dims. Included there, in the place of
 * its own list. */
#ifndef SHERD_TESTS_OPS_CASES_INDEX_H
#define SHERD_TESTS_OPS_CASES_INDEX_H

/* A case's function: what it computes of in[0], in[1], ... */
#define RUN(name, expression)                                 \
    static inline sherd_tensor *name(sherd_tensor *const *in) \
    {                                                         \
        return expression;                                    \
    }

RUN(run_index_select, sherd_index_select(in[0], 0, in[1]))
RUN(run_index_columns, sherd_index_select(in[0], -1, in[1]))
RUN(run_gather, sherd_gather(in[0], 0, in[1]))
RUN(run_gather_columns, sherd_gather(in[0], 1, in[1]))
RUN(run_scatter, sherd_scatter(in[0], 0, in[1], in[2]))
RUN(run_scatter_columns, sherd_scatter(in[0], 1, in[1], in[2]))
RUN(run_scatter_fill, sherd_scatter_fill(in[0], 0, in[1], 2))
RUN(run_scatter_add, sherd_scatter_add(in[0], 0, in[1], in[2]))
RUN(run_sort, sherd_sort(in[0], 0, false, NULL))
RUN(run_sort_columns, sherd_sort(in[0], -1, true, NULL))
RUN(run_topk, sherd_topk(in[0], 2, 0, true, NULL))
RUN(run_smallest, sherd_topk(in[0], 1, 1, false, NULL))
RUN(run_cumsum, sherd_cumsum(in[0], 0))
RUN(run_tril, sherd_tril(in[0], -1))
RUN(run_triu, sherd_triu(in[0], 1))

/* What the indices mean, they give back. */
static inline sherd_tensor *run_sorted(sherd_tensor *const *in)
{
    sherd_tensor *at, *y = sherd_topk(in[0], 3, 0, false, &at);

    return sherd_mul(y, sherd_gather(in[0], 0, at));
}

static const op_case cases[] = {
    {"index_select", run_index_select, 2, {2, 1}, .shape = {{9, 3}, {4}}, .index = 2, .limit = 9},
    {"index_select most",
     run_index_select,
     2,
     {2, 1},
     .shape = {{4, 3}, {7}},
     .index = 2,
     .limit = 4},
    {"index columns", run_index_columns, 2, {2, 1}, .shape = {{3, 5}, {2}}, .index = 2, .limit = 5},
    {"index none", run_index_select, 2, {2, 1}, .shape = {{4, 3}, {0}}, .index = 2, .limit = 4},
    {"gather", run_gather, 2, {2, 2}, .shape = {{7, 3}, {2, 2}}, .index = 2, .limit = 7},
    {"gather columns",
     run_gather_columns,
     2,
     {2, 2},
     .shape = {{3, 4}, {3, 5}},
     .index = 2,
     .limit = 4},
    {"scatter",
     run_scatter,
     3,
     {2, 2, 2},
     .shape = {{5, 2}, {4, 2}, {4, 3}},
     .index = 2,
     .limit = 5},
    {"scatter columns",
     run_scatter_columns,
     3,
     {2, 2, 2},
     .shape = {{3, 3}, {3, 4}, {3, 4}},
     .index = 2,
     .limit = 3},
    {"scatter fill",
     run_scatter_fill,
     2,
     {2, 2},
     .shape = {{5, 2}, {3, 2}},
     .index = 2,
     .limit = 5},
    {"scatter_add",
     run_scatter_add,
     3,
     {2, 2, 2},
     .shape = {{5, 2}, {4, 2}, {4, 2}},
     .index = 2,
     .limit = 5},
    {"sort", run_sort, 1, {2}, .shape = {{7, 3}}},
    {"sort columns", run_sort_columns, 1, {2}, .shape = {{3, 5}}},
    {"sort nothing", run_sort, 1, {2}, .shape = {{0, 3}}},
    {"sorted", run_sorted, 1, {2}, .shape = {{7, 2}}},
    {"topk", run_topk, 1, {2}, .shape = {{9, 2}}},
    {"topk of many", run_topk, 1, {2}, .shape = {{40, 2}}},
    {"topk smallest", run_smallest, 1, {2}, .shape = {{3, 4}}},
    {"cumsum", run_cumsum, 1, {2}, .shape = {{5, 3}}},
    {"tril", run_tril, 1, {3}, .shape = {{2, 5, 3}}},
    {"triu", run_triu, 1, {2}, .shape = {{3, 5}}},
};

#endif
