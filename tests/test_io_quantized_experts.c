/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Experts whose weights became 8 or 4 bits, before and after styles: near the module of before, and
 * nearer each other; where they lie; and a file that another arrangement reads.
 */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"
#include "sherd/ops_quantized.h"

enum { ROWS = 9, WIDTH = 8, HIDDEN = 32, EXPERTS = 5 };

static sherd_module *mixture(sherd_world *world, bool zero)
{
    const sherd_experts_options how = {.experts = EXPERTS, .k = 2, .hidden = HIDDEN};
    const sherd_layer_options options = {
        .name = "mix", .dtype = SHERD_F32, .deviation = 0.5, .zero = zero};
    sherd_module *m = NULL;

    CHECK_OK(sherd_experts_create(&m, world, WIDTH, &how, &options));
    return m;
}

/* By experts, by features, or not at all. */
static void parallelize(sherd_world *world, sherd_module *m, int by)
{
    const sherd_parallel_entry entry = {"", by ? sherd_expert_tensor_parallel()
                                               : sherd_expert_parallel()};

    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", &entry, 1));
}

static void output_of(sherd_world *world, sherd_module *m, double *y)
{
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(ROWS, WIDTH), 3, 1, 0);

    whole(sherd_full(sherd_module_call(m, x)), y);
}

static const char *placed(sherd_module *m, const char *name)
{
    return sherd_layout_placements(sherd_tensor_layout(sherd_module_buffer(m, name)));
}

static void check_layouts(sherd_module *m, int by)
{
    CHECK_TEXT(placed(m, "w1"), by ? "S(1)" : "S(0)");
    CHECK_TEXT(placed(m, "w1_scale"), by ? "S(1)" : "S(0)");
    CHECK_TEXT(placed(m, "w2"), by ? "S(2)" : "S(0)");
    CHECK_TEXT(placed(m, "w2_scale"), by ? "R" : "S(0)");
}

static const struct {
    int bits, group;
} ways[] = {{8, 0}, {8, 4}, {4, 0}, {4, 4}};

/* order 0: quantized only; 1: styles first; 2: styles afterwards. */
static void experts_compute_what_they_did(sherd_world *world)
{
    for (int w = 0; w < LEN(ways); w++)
        for (int by = 0; by < 2; by++) {
            double first[ROWS * WIDTH], y[ROWS * WIDTH];
            for (int order = 0; order < 3; order++) {
                sherd_scope_begin(world);
                sherd_module *m = mixture(world, false);
                if (order == 1)
                    parallelize(world, m, by);
                CHECK_OK(sherd_module_quantize(m, ways[w].bits, ways[w].group));
                if (order == 2)
                    parallelize(world, m, by);
                CHECK(sherd_module_parameter(m, "w1") == NULL);
                CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(m, "w3")),
                         ways[w].bits == 4 ? SHERD_U8 : SHERD_I8);
                if (order)
                    check_layouts(m, by);
                output_of(world, m, order ? y : first);
                for (int i = 0; i < ROWS * WIDTH && order; i++)
                    CHECK_NEAR(y[i], first[i], 1e-4);
                sherd_module_destroy(m);
                sherd_scope_end(world);
            }
        }
    CHECK_OK(sherd_world_check(world));
}

/* Those of experts whose weights are what the numbers stand for. */
static void numbers_are_those_of_the_weights(sherd_world *world)
{
    static const char *const names[][2] = {
        {"w1", "w1_scale"}, {"w3", "w3_scale"}, {"w2", "w2_scale"}};

    for (int w = 0; w < LEN(ways); w++) {
        double want[ROWS * WIDTH], y[ROWS * WIDTH];
        sherd_scope_begin(world);
        sherd_module *m = mixture(world, false), *like = mixture(world, false);
        CHECK_OK(sherd_module_quantize(m, ways[w].bits, ways[w].group));
        for (int i = 0; i < 3; i++)
            CHECK_OK(sherd_module_set_parameter(
                like, names[i][0],
                sherd_dequantize(sherd_module_buffer(m, names[i][0]),
                                 sherd_module_buffer(m, names[i][1]), ways[w].group, SHERD_F32)));
        sherd_module *router = sherd_module_find(m, "router");
        CHECK_OK(
            sherd_module_set_parameter(sherd_module_find(like, "router"), "weight",
                                       sherd_dequantize(sherd_module_buffer(router, "weight"),
                                                        sherd_module_buffer(router, "weight_scale"),
                                                        ways[w].group, SHERD_F32)));
        output_of(world, m, y);
        output_of(world, like, want);
        for (int i = 0; i < ROWS * WIDTH; i++)
            CHECK_NEAR(y[i], want[i], 1e-4);
        CHECK_OK(sherd_module_cast(m, SHERD_BF16));
        CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(m, "w2_scale")), SHERD_F32);
        CHECK_EQ(sherd_module_quantize(m, 8, 0), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "has no Linear or experts with a weight") != NULL);
        (void)sherd_world_check(world);
        sherd_module_destroy(m);
        sherd_module_destroy(like);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Written by experts, read by features and whole. */
static void files_are_read_by_other_arrangements(sherd_world *world)
{
    char room[256];
    double want[ROWS * WIDTH], y[ROWS * WIDTH];

    for (int w = 0; w < LEN(ways); w++) {
        const char *path = scratch(room, "experts");
        sherd_scope_begin(world);
        sherd_module *m = mixture(world, false);
        CHECK_OK(sherd_module_quantize(m, ways[w].bits, ways[w].group));
        parallelize(world, m, 0);
        output_of(world, m, want);
        CHECK_OK(sherd_module_write(m, NULL, path));
        for (int how = 0; how < 2; how++) {
            sherd_module *other = mixture(world, true);
            CHECK_OK(sherd_module_quantize(other, ways[w].bits, ways[w].group));
            if (how)
                parallelize(world, other, 1);
            CHECK_OK(sherd_module_read(other, NULL, path, NULL));
            output_of(world, other, y);
            for (int i = 0; i < ROWS * WIDTH; i++)
                CHECK_NEAR(y[i], want[i], 1e-4);
            sherd_module_destroy(other);
        }
        sherd_module *other = mixture(world, true);
        CHECK_OK(sherd_module_quantize(other, ways[w].bits, 6));
        CHECK_EQ(sherd_module_read(other, NULL, path, NULL), SHERD_EINVAL);
        (void)sherd_world_check(world);
        sherd_module_destroy(other);
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Some weights are numbers then and others not yet: it can be called, and the next try goes on. */
static void no_memory_leaves_experts_that_work(sherd_world *world)
{
    sherd_module *m = mixture(world, false);
    double y[ROWS * WIDTH];
    int n = 1;

    parallelize(world, m, 0);
    for (sherd_status status = SHERD_ENOMEM; status && n < 500; n++) {
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        status = sherd_module_quantize(m, 4, 4);
        sherd_world_fail_allocation(world, 0);
        sherd_status checked = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(checked == SHERD_OK || checked == SHERD_ENOMEM);
        output_of(world, m, y);
    }
    CHECK(n > 3 && n < 500);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* Of 4 bits two features of w2 are a byte. */
static void an_odd_granule_is_refused(sherd_world *world)
{
    sherd_parallel_entry entry = {"", sherd_expert_tensor_parallel()};
    sherd_module *m = mixture(world, false);

    entry.style.granule = 3;
    CHECK_OK(sherd_module_quantize(m, 4, 0));
    CHECK_EQ(sherd_parallelize(m, line_of_ranks(world), "tp", &entry, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "of 4 bits the granule must be even") != NULL);
    (void)sherd_world_check(world);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(experts_compute_what_they_did), {1, 2, 4}},
    {TEST(numbers_are_those_of_the_weights), {1}},
    {TEST(files_are_read_by_other_arrangements), {1, 2, 4}},
    {TEST(an_odd_granule_is_refused), {1, 2}},
    {TEST(no_memory_leaves_experts_that_work), {1, 2}},
};
CHECK_MAIN(tests)
