/* SPDX-License-Identifier: Apache-2.0 */
/* Errors about ranks that differ tell names apart that begin alike: the start and the end of long
 * ones. */
#include "models.h"

static bool repeat(sherd_call *call)
{
    for (int64_t i = 0; i < call->out[0]->count; i++)
        ((double *)call->to[0])[i] = ((const double *)call->from[0])[i];
    return true;
}

#define LONG "company_of_a_long_name_layers_10_attention_with_many_heads_"

static const sherd_op query = {.name = LONG "query",
                               .operand = {{"x", 0}},
                               .result = {{"y", 0}},
                               .rule = "...->...",
                               .forward = repeat};
static const sherd_op key = {.name = LONG "key",
                             .operand = {{"x", 0}},
                             .result = {{"y", 0}},
                             .rule = "...->...",
                             .forward = repeat};

static void says(sherd_world *world, const char *what)
{
    if (!CHECK(strstr(sherd_world_error(world), what)))
        fprintf(stderr, "  \"%s\" is not in \"%s\"\n", what, sherd_world_error(world));
}

static void long_names_of_operators_are_told_apart(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool odd = sherd_world_rank(world) == 1;
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");

    CHECK_OK(sherd_world_check(world));
    sherd_apply(odd ? &query : &key, &x, 1, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    says(world, "company_of_a_long_name_lay");
    says(world, "with_many_heads_query on rank 1");
    says(world, "on_with_many_heads_key on rank 0");
}

static void what_ranks_load_is_named(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    bool odd = sherd_world_rank(world) == 1;
    const char *const names[] = {LONG "query_weight", LONG "key_weight"};
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_module_add_parameter(
            m, names[i],
            spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), i + 1, 1, 0), mesh, "S(0)")));
    sherd_tensor *t = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 9, 1, 0), mesh, "S(0)");
    double before = sherd_item(sherd_sum(sherd_module_parameter(m, names[0])));
    CHECK_EQ(sherd_module_load(m, names[odd], t, -1), SHERD_EDIFFER);
    says(world, "rank 0 is in sherd_module_load of \"company_of_a_long_name_layers");
    says(world, "with_many_heads_query_weight\", rank 1 in sherd_module_load of \"company");
    says(world, "n_with_many_heads_key_weight\"");
    CHECK_NEAR(sherd_item(sherd_sum(sherd_module_parameter(m, names[0]))), before, 0);
    CHECK_OK(sherd_module_load(m, names[1], t, -1));
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(long_names_of_operators_are_told_apart), {2, 3}},
    {TEST(what_ranks_load_is_named), {2, 3}},
};
CHECK_MAIN(tests)
