/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where memory runs out, the function that the program has called is named, wherever that is found:
 * makers of tensors, moves, backward, an optimizer's step. A text of the program's own is not
 * touched.
 */
#include "modules.h"

#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"
#include "sherd/values.h"
#include "sherd/values.h"

static const int64_t shape[2] = {6, 4};
static _Thread_local sherd_generator generator;

static const sherd_layout *spread_over(sherd_world *world, const char *dims)
{
    const sherd_layout *layout = NULL;
    char text[64];

    snprintf(text, sizeof text, "%s on (x=%d)", dims, sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&layout, world, text, NULL));
    return layout;
}

static const sherd_layout *rows(sherd_world *world)
{
    return spread_over(world, "[6(x),4]");
}

static const sherd_layout *numbers(sherd_world *world)
{
    return spread_over(world, "[6(x)]");
}

/* ---- makers ------------------------------------------------------------------------------------ */

static void constant(sherd_world *world)
{
    sherd_constant(world, SHERD_F32, shape, 2, 1);
}

static void constant_later(sherd_world *world)
{
    sherd_constant_later(world, SHERD_F32, shape, 2, 1);
}

static void constant_on(sherd_world *world)
{
    sherd_constant_on(rows(world), SHERD_F32, 1);
}

static void from_data(sherd_world *world)
{
    static const float data[24];

    sherd_from_data(world, SHERD_F32, shape, 2, data);
}

static void from_data_on(sherd_world *world)
{
    static const float data[24];

    sherd_from_data_on(rows(world), SHERD_F32, data);
}

static void any_random(sherd_world *world)
{
    sherd_random(world, SHERD_F32, shape, 2, sherd_uniform(0, 1), &generator);
}

static void random_later(sherd_world *world)
{
    sherd_random_later(world, SHERD_F32, shape, 2, sherd_uniform(0, 1), &generator);
}

static void random_on(sherd_world *world)
{
    sherd_random_on(rows(world), SHERD_F32, sherd_uniform(0, 1), &generator);
}

static void arange(sherd_world *world)
{
    sherd_arange(world, SHERD_F32, 0, 9, 1);
}

static void linspace_on(sherd_world *world)
{
    sherd_linspace_on(numbers(world), SHERD_F32, 0, 1);
}

static void eye(sherd_world *world)
{
    sherd_eye(world, SHERD_F32, 3, 3);
}

/* ---- from one to another ----------------------------------------------------------------------- */

/* What is made before memory is short. */
static _Thread_local sherd_tensor *given;

static void give_plain(sherd_world *world)
{
    given = sherd_constant(world, SHERD_F64, shape, 2, 1);
}

static void give_rows(sherd_world *world)
{
    given = sherd_constant_on(rows(world), SHERD_F64, 1);
}

static void distribute(sherd_world *world)
{
    sherd_distribute(given, rows(world), -1);
}

static void to_local(sherd_world *world)
{
    (void)world;
    sherd_to_local(given);
}

static void full(sherd_world *world)
{
    (void)world;
    sherd_full(given);
}

/* ---- gradients --------------------------------------------------------------------------------- */

static _Thread_local sherd_module *model;
static _Thread_local sherd_optimizer *optimizer;

static void give_loss(sherd_world *world)
{
    sherd_tensor *leaf = sherd_require_grad(sherd_constant_on(rows(world), SHERD_F64, 1), true);

    given = sherd_sum(sherd_exp(sherd_mul(leaf, leaf)));
}

static void backward(sherd_world *world)
{
    (void)world;
    sherd_backward(given);
}

/* A step of AdamW makes its state. */
static void give_optimizer(sherd_world *world)
{
    sherd_tensor *w = sherd_constant_on(rows(world), SHERD_F64, 1);

    sherd_optimizer_destroy(optimizer);
    sherd_module_destroy(model);
    CHECK_OK(sherd_module_create(&model, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(model, "w", w));
    CHECK_OK(sherd_adamw_create(&optimizer, model, NULL));
    sherd_backward(sherd_sum(sherd_mul(w, w)));
}

static void step(sherd_world *world)
{
    (void)world;
    sherd_optimizer_step(optimizer, 0.1, 1);
}

typedef struct lack {
    const char *name;
    void (*prepare)(sherd_world *world);
    void (*run)(sherd_world *world);
} lack;

static const lack lacks[] = {
    {": sherd_constant: ", NULL, constant},
    {": sherd_constant_later: ", NULL, constant_later},
    {": sherd_constant_on: ", NULL, constant_on},
    {": sherd_from_data: ", NULL, from_data},
    {": sherd_from_data_on: ", NULL, from_data_on},
    {": sherd_random: ", NULL, any_random},
    {": sherd_random_later: ", NULL, random_later},
    {": sherd_random_on: ", NULL, random_on},
    {": sherd_arange: ", NULL, arange},
    {": sherd_linspace_on: ", NULL, linspace_on},
    {": sherd_eye: ", NULL, eye},
    {": sherd_distribute: ", give_plain, distribute},
    {": sherd_to_local: ", give_rows, to_local},
    {": sherd_full: ", give_rows, full},
    {"backward: ", give_loss, backward},
    {": sherd_optimizer_step: ", give_optimizer, step},
};

/* Each allocation of it fails once; all that there are of layouts are made before. */
static void every_lack_is_named(sherd_world *world)
{
    int named = 0;

    for (int i = 0; i < LEN(lacks); i++) {
        sherd_status status = SHERD_ENOMEM;
        int64_t n = 0;
        const sherd_layout *held[] = {rows(world), numbers(world)};
        for (; status && n < 500; n++) {
            sherd_scope_begin(world);
            if (lacks[i].prepare)
                lacks[i].prepare(world);
            sherd_world_fail_allocation(world, n + 1);
            lacks[i].run(world);
            sherd_world_fail_allocation(world, 0);
            status = sherd_world_check(world);
            if (status && (!CHECK_EQ(status, SHERD_ENOMEM) ||
                           !CHECK(strstr(sherd_world_error(world), lacks[i].name) != NULL)))
                fprintf(stderr, "  %s, %lld: %s\n", lacks[i].name, (long long)n,
                        sherd_world_error(world));
            sherd_scope_end(world);
            named += status != SHERD_OK;
        }
        CHECK_OK(status);
        CHECK(held[0] && held[1]);
    }
    CHECK(named > 2 * LEN(lacks));
    sherd_optimizer_destroy(optimizer);
    sherd_module_destroy(model);
    optimizer = NULL;
    model = NULL;
}

static const check_test tests[] = {
    {TEST(every_lack_is_named), {1, 2}},
};
CHECK_MAIN(tests)
