/* SPDX-License-Identifier: Apache-2.0 */
/* RMSNorm as a module: what it computes, that it lets nothing leak, and that SequenceParallel
 * splits it. */
#include "styles.h"

#include <float.h>

#include "sherd/ops_layers.h"

static void it_divides_by_the_root_of_the_mean_of_squares(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32};
    static const double eps[] = {DBL_EPSILON, FLT_EPSILON};

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_layer_options o = {.dtype = dtypes[i]};
        sherd_module *m = NULL;
        double y[4], squares = 0;
        sherd_tensor *x = wave(world, SHERD_F64, 1, SHAPE(4), 3, 1e-7, 0);
        CHECK_OK(sherd_rms_norm_create(&m, world, 4, 0, &o));
        CHECK(sherd_module_kind_of(m) == SHERD_MODULE_RMS_NORM);
        CHECK_EQ(sherd_module_parameters(m), 1);
        whole(sherd_cast(sherd_module_call(m, sherd_cast(x, dtypes[i])), SHERD_F64), y);
        const double *row = sherd_tensor_read(x);
        for (int c = 0; c < 4; c++)
            squares += row[c] * row[c] / 4;
        for (int c = 0; c < 4; c++)
            CHECK_NEAR(y[c], row[c] / sqrt(squares + eps[i]), i ? 1e-6 : 1e-12);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void without_memory_nothing_is_left(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_status status = SHERD_ENOMEM;
    int64_t before = 0;

    for (int n = 1; status == SHERD_ENOMEM; n++) {
        sherd_world_fail_allocation(world, n);
        status = sherd_rms_norm_create(&m, world, 4, 1e-5, NULL);
        sherd_world_fail_allocation(world, 0);
        CHECK((status == SHERD_OK) == (m != NULL));
        if (n == 1)
            before = sherd__world_heap(world)->live;
        else if (status != SHERD_OK)
            CHECK(sherd__world_heap(world)->live <= before + 2); /* what the world keeps */
        sherd_world_check(world);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void sequences_are_normalised_in_parts(sherd_world *world)
{
    static _Thread_local double expected[MOST], grad[12];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 1, 1, 0);
    sherd_tensor *c = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 9, 1, 0);
    sherd_module *plain = NULL, *m = NULL;

    CHECK_OK(sherd_rms_norm_create(&plain, world, 12, 1e-5, &o));
    CHECK_OK(sherd_rms_norm_create(&m, world, 12, 1e-5, &o));
    sherd_tensor *y = sherd_module_call(plain, x);
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    whole(y, expected);
    whole(sherd_grad(sherd_module_parameter(plain, "weight")), grad);
    CHECK_OK(apply(m, mesh, sherd_sequence_parallel()));
    sherd_tensor *parts = spread(x, mesh, "S(1)");
    c = spread(c, mesh, "S(1)");
    sherd_comm_reset(world);
    y = sherd_module_call(m, parts);
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    CHECK_EQ(calls_logged(world), 0);
    CHECK_TEXT(placements(y), "S(1)");
    CHECK_TEXT(placements(sherd__raw_grad(sherd_module_parameter(m, "weight"))), "P(sum)");
    CHECK_NEAR(distance_to(y, expected, 180), 0, 1e-13);
    CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "weight")), grad, 12), 0, 1e-12);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(it_divides_by_the_root_of_the_mean_of_squares), {1, 2}},
    {TEST(without_memory_nothing_is_left), {1, 2}},
    {TEST(sequences_are_normalised_in_parts), {2, 3, 4}},
};
CHECK_MAIN(tests)
