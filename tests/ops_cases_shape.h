/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ops_cases.h for operators on shape and index. Included there, in the place of its own
 * list. */
#ifndef SHERD_TESTS_OPS_CASES_SHAPE_H
#define SHERD_TESTS_OPS_CASES_SHAPE_H

/* A case's function: what it computes of in[0], in[1], ... */
#define RUN(name, expression)                                 \
    static inline sherd_tensor *name(sherd_tensor *const *in) \
    {                                                         \
        return expression;                                    \
    }
#define SIZES(...) ((const int64_t[]){__VA_ARGS__})
#define DIMS(...)  ((const int[]){__VA_ARGS__})

RUN(run_reshape, sherd_reshape(in[0], SIZES(4, -1), 2))
RUN(run_flat, sherd_flatten(in[0], 1, -1))
RUN(run_unflat, sherd_unflatten(in[0], 0, SIZES(2, -1), 2))
RUN(run_permute, sherd_permute(in[0], DIMS(2, 0, -2), 3))
RUN(run_squeeze, sherd_squeeze(in[0], 1))
RUN(run_squeeze_all, sherd_squeeze_all(in[0]))
RUN(run_unsqueeze, sherd_unsqueeze(in[0], -2))
RUN(run_expand, sherd_expand(in[0], SIZES(2, 5, 3, -1), 4))
RUN(run_contiguous, sherd_contiguous(sherd_transpose(in[0], 0, 1)))
RUN(run_clone, sherd_clone(sherd_transpose(in[0], 0, 1)))
RUN(run_slice, sherd_slice(in[0], 0, 1, -1, 1))
RUN(run_slice_steps, sherd_slice(in[0], 0, 1, INT64_MAX, 3))
RUN(run_slice_columns, sherd_slice(sherd_slice(in[0], 1, -4, 100, 2), 0, 2, 4, 1))
RUN(run_slice_nothing, sherd_slice(in[0], 0, 3, 2, 1))
RUN(run_narrow, sherd_narrow(in[0], 1, -3, 2))
RUN(run_select, sherd_select(in[0], 0, -2))
RUN(run_pad, sherd_pad(in[0], SIZES(2, 0), SIZES(1, 3), 1.5))
RUN(run_pad_away, sherd_pad(in[0], SIZES(-1, 2), SIZES(2, -1), 0))
RUN(run_cat, sherd_cat(in, 2, 0))
RUN(run_cat_columns, sherd_cat(in, 2, -1))
RUN(run_cat_three, sherd_cat((sherd_tensor *[]){in[0], in[1], in[0]}, 3, 0))
RUN(run_stack, sherd_stack(in, 2, 1))
RUN(run_flip, sherd_flip(in[0], DIMS(0, -1), 2))
RUN(run_flip_all, sherd_flip(in[0], NULL, -1))
RUN(run_roll, sherd_roll(in[0], 2, 0))
RUN(run_roll_back, sherd_roll(sherd_roll(in[0], -6, 0), 1, 1))
RUN(run_repeat, sherd_repeat(in[0], SIZES(2, 3, 2), 3))
RUN(run_repeat_never, sherd_repeat(in[0], SIZES(2, 0), 2))
RUN(run_tile, sherd_tile(in[0], SIZES(2), 1))

/* Parts put together again, the second before the first. */
static inline sherd_tensor *run_parts(sherd_tensor *const *in)
{
    sherd_tensor *part[3], *turned[2];

    sherd_split(part, in[0], 0, SIZES(1, 4, 2), 3);
    turned[0] = part[1];
    turned[1] = part[0];
    return sherd_cat(turned, 2, 0);
}
static inline sherd_tensor *run_chunks(sherd_tensor *const *in)
{
    sherd_tensor *part[3];
    int n = sherd_chunk(part, in[0], 0, 3);

    return sherd_mul(part[0], sherd_pad(part[n - 1], SIZES(1, 0), SIZES(1, 0), 2));
}
/* A strided view with an offset, in a move and in a product. */
static inline sherd_tensor *run_moved_part(sherd_tensor *const *in)
{
    sherd_tensor *part = sherd_slice(sherd_transpose(in[0], 0, 1), 0, 1, 5, 2);
    return sherd_matmul(part, in[1]);
}
/* More operands than one operator takes. */
static inline sherd_tensor *run_cat_many(sherd_tensor *const *in)
{
    sherd_tensor *list[40];

    for (int i = 0; i < 40; i++)
        list[i] = in[i % 2];
    return sherd_cat(list, 40, 0);
}
static const op_case cases[] = {
    {"reshape", run_reshape, 1, {2}, .shape = {{6, 4}}},
    {"flatten", run_flat, 1, {3}, .shape = {{3, 2, 4}}},
    {"unflatten", run_unflat, 1, {2}, .shape = {{6, 4}}},
    {"permute", run_permute, 1, {3}, .shape = {{3, 2, 5}}},
    {"squeeze", run_squeeze, 1, {3}, .shape = {{3, 1, 5}}},
    {"squeeze to nothing", run_squeeze_all, 1, {2}, .shape = {{1, 1}}},
    {"squeeze all", run_squeeze_all, 1, {3}, .shape = {{1, 4, 1}}},
    {"unsqueeze", run_unsqueeze, 1, {2}, .shape = {{5, 3}}},
    {"expand", run_expand, 1, {3}, .shape = {{5, 1, 2}}},
    {"contiguous", run_contiguous, 1, {2}, .shape = {{5, 3}}},
    {"clone", run_clone, 1, {2}, .shape = {{5, 3}}},
    {"slice", run_slice, 1, {2}, .shape = {{7, 3}}},
    {"slice steps", run_slice_steps, 1, {2}, .shape = {{11, 2}}},
    {"slice columns", run_slice_columns, 1, {2}, .shape = {{5, 6}}},
    {"slice nothing", run_slice_nothing, 1, {2}, .shape = {{5, 3}}},
    {"slice of nothing", run_slice, 1, {2}, .shape = {{0, 3}}},
    {"narrow", run_narrow, 1, {2}, .shape = {{3, 7}}},
    {"select", run_select, 1, {2}, .shape = {{5, 3}}},
    {"select the only one", run_select, 1, {1}, .shape = {{5}}},
    {"parts", run_parts, 1, {2}, .shape = {{7, 2}}},
    {"chunks", run_chunks, 1, {2}, .shape = {{7, 2}}},
    {"moved part", run_moved_part, 2, {2, 2}, .shape = {{3, 6}, {3, 2}}},
    {"pad", run_pad, 1, {2}, .shape = {{5, 3}}},
    {"pad away", run_pad_away, 1, {2}, .shape = {{5, 3}}},
    {"pad nothing", run_pad, 1, {2}, .shape = {{0, 3}}},
    {"cat", run_cat, 2, {2, 2}, .shape = {{5, 3}, {2, 3}}},
    {"cat columns", run_cat_columns, 2, {2, 2}, .shape = {{3, 4}, {3, 1}}},
    {"cat three", run_cat_three, 2, {1, 1}, .shape = {{5}, {3}}},
    {"cat with nothing", run_cat, 2, {2, 2}, .shape = {{0, 3}, {4, 3}}},
    {"cat many", run_cat_many, 2, {2, 2}, .shape = {{2, 2}, {1, 2}}},
    {"stack", run_stack, 2, {2, 2}, .shape = {{5, 3}, {5, 3}}},
    {"flip", run_flip, 1, {3}, .shape = {{5, 2, 3}}},
    {"flip all", run_flip_all, 1, {2}, .shape = {{5, 3}}},
    {"flip nothing", run_flip_all, 1, {2}, .shape = {{0, 3}}},
    {"roll", run_roll, 1, {2}, .shape = {{7, 2}}},
    {"roll back", run_roll_back, 1, {2}, .shape = {{5, 3}}},
    {"roll nothing", run_roll, 1, {2}, .shape = {{0, 3}}},
    {"repeat", run_repeat, 1, {2}, .shape = {{3, 4}}},
    {"repeat never", run_repeat_never, 1, {2}, .shape = {{3, 4}}},
    {"tile", run_tile, 1, {2}, .shape = {{3, 4}}},
};

#endif
