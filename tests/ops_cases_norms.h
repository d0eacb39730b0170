/* SPDX-License-Identifier: Apache-2.0 */
/* The list of ops_cases.h for norms over items and channels. Included there, in the place of its
 * own list. */
#ifndef SHERD_TESTS_OPS_CASES_NORMS_H
#define SHERD_TESTS_OPS_CASES_NORMS_H

#include "sherd/ops_layers.h"

/* Running averages that depend on the channel only: of a layout that the norm has to live with. */
static inline sherd_tensor *average_of(sherd_tensor *x, double step)
{
    int64_t channels = sherd_tensor_shape(x)[1];
    double values[16];

    for (int64_t c = 0; c < channels && c < 16; c++)
        values[c] = 0.3 + step * (double)c;
    return sherd_mark_equal(
        sherd_from_data(sherd_tensor_world(x), SHERD_F64, &channels, 1, values));
}

static inline sherd_tensor *run_group(sherd_tensor *const *in)
{
    return sherd_group_norm(in[0], 2, in[1], in[2], 1e-2);
}
static inline sherd_tensor *run_thirds(sherd_tensor *const *in)
{
    return sherd_group_norm(in[0], 3, in[1], NULL, 1e-2);
}
static inline sherd_tensor *run_one_group(sherd_tensor *const *in)
{
    return sherd_group_norm(in[0], 1, NULL, NULL, 1e-2);
}
static inline sherd_tensor *run_batch(sherd_tensor *const *in)
{
    return sherd_batch_norm(
        in[0], &(sherd_batch_norm_options){.weight = in[1], .bias = in[2], .eps = 1e-2});
}
static inline sherd_tensor *run_bare_batch(sherd_tensor *const *in)
{
    return sherd_batch_norm(in[0], &(sherd_batch_norm_options){.eps = 1e-2});
}
static inline sherd_tensor *run_fixed(sherd_tensor *const *in)
{
    return sherd_batch_norm(in[0],
                            &(sherd_batch_norm_options){.weight = in[1],
                                                        .bias = in[2],
                                                        .running_mean = average_of(in[0], 0.1),
                                                        .running_variance = average_of(in[0], 0.3),
                                                        .fixed = true});
}
static inline sherd_tensor *run_instance(sherd_tensor *const *in)
{
    return sherd_instance_norm(
        in[0], &(sherd_batch_norm_options){.weight = in[1], .bias = in[2], .eps = 1e-2});
}
static inline sherd_tensor *run_fixed_instance(sherd_tensor *const *in)
{
    return sherd_instance_norm(
        in[0], &(sherd_batch_norm_options){.running_mean = average_of(in[0], 0.1),
                                           .running_variance = average_of(in[0], 0.3),
                                           .fixed = true});
}
static const op_case cases[] = {
    {"group_norm", run_group, 3, {3, 1, 1}, .shape = {{3, 4, 5}, {4}, {4}}},
    {"group_norm cut", run_thirds, 2, {4, 1}, .shape = {{2, 9, 2, 3}, {9}}},
    {"group_norm of all", run_one_group, 1, {3}, .shape = {{2, 5, 3}}},
    {"group_norm of channels", run_group, 3, {2, 1, 1}, .shape = {{3, 8}, {8}, {8}}},
    {"group_norm no items", run_group, 3, {3, 1, 1}, .shape = {{0, 4, 5}, {4}, {4}}},
    {"group_norm no inner", run_group, 3, {3, 1, 1}, .shape = {{3, 4, 0}, {4}, {4}}},
    {"batch_norm", run_batch, 3, {3, 1, 1}, .shape = {{5, 3, 4}, {3}, {3}}},
    {"batch_norm of images", run_batch, 3, {4, 1, 1}, .shape = {{2, 5, 3, 4}, {5}, {5}}},
    {"batch_norm of rows", run_batch, 3, {2, 1, 1}, .shape = {{7, 5}, {5}, {5}}},
    {"batch_norm bare", run_bare_batch, 1, {3}, .shape = {{3, 2, 5}}},
    {"batch_norm of nothing", run_batch, 3, {3, 1, 1}, .shape = {{0, 3, 4}, {3}, {3}}},
    {"batch_norm no channels", run_batch, 3, {3, 1, 1}, .shape = {{2, 0, 4}, {0}, {0}}},
    {"batch_norm fixed", run_fixed, 3, {3, 1, 1}, .shape = {{3, 5, 2}, {5}, {5}}},
    {"instance_norm", run_instance, 3, {3, 1, 1}, .shape = {{3, 4, 5}, {4}, {4}}},
    {"instance_norm fixed", run_fixed_instance, 1, {3}, .shape = {{3, 5, 2}}},
};

#endif
