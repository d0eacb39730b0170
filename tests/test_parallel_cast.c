/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that are cast to another dtype, however their parameters lie. */
#include "models.h"
#include "sherd/optimizer.h"

typedef enum sharing { PLAIN, STYLES, SHARDED, WAYS } sharing;

static void share(sherd_module *m, sharing how)
{
    const sherd_mesh *mesh = line_of_ranks(sherd_module_world(m));
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};

    if (how == STYLES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, LEN(plan)));
    if (how == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
}

static sherd_module *add_drawn(sherd_module *m, const char *name, int64_t in, int64_t out)
{
    const sherd_layer_options o = {.name = name, .bias = true, .deviation = 0.5};
    sherd_module *layer = NULL;

    CHECK_OK(sherd_linear_create(&layer, sherd_module_world(m), in, out, &o));
    return add_layer(m, name, layer);
}

/* Of deferred parameters. */
static sherd_module *drawn(sherd_world *world)
{
    sherd_module *m = container(world, mlp_forward, NULL);

    add_drawn(m, "net1", 6, 8);
    add_drawn(m, "net2", 8, 5);
    return m;
}

static sherd_tensor *weight(sherd_module *m, const char *layer)
{
    return sherd_module_parameter(sherd_module_find(m, layer), "weight");
}

/* Rounding by hand, of numbers that were there before; cast before or after they are laid out. */
static void numbers_are_rounded_wherever_they_lie(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16};
    static _Thread_local double made[MOST], found[MOST];
    unsigned char rounded[2 * 64];

    for (int k = 0; k < LEN(dtypes); k++)
        for (int how = 0; how < WAYS; how++)
            for (int early = 0; early < 2; early++) {
                sherd_module *m = drawn(world), *other = drawn(world);
                int64_t n = whole(weight(m, "net1"), made);
                sherd__cast(dtypes[k], SHERD_F64, n, rounded, made);
                sherd__cast(SHERD_F64, dtypes[k], n, made, rounded);
                if (early)
                    CHECK_OK(sherd_module_cast(other, dtypes[k]));
                share(other, (sharing)how);
                if (!early)
                    CHECK_OK(sherd_module_cast(other, dtypes[k]));
                CHECK_EQ(sherd_tensor_dtype(weight(other, "net1")), dtypes[k]);
                CHECK_EQ(whole(weight(other, "net1"), found), n);
                CHECK(memcmp(made, found, (size_t)n * sizeof *made) == 0);
                CHECK_OK(sherd_module_cast(m, dtypes[k])); /* what was plain and has been read */
                CHECK_EQ(whole(weight(m, "net1"), found), n);
                CHECK(memcmp(made, found, (size_t)n * sizeof *made) == 0);
                sherd_module_destroy(m);
                sherd_module_destroy(other);
            }
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *step(sherd_module *m, sherd_optimizer *o)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *y = sherd_module_call(m, wave(world, SHERD_BF16, 2, SHAPE(4, 6), 1, 1, 0));

    sherd_backward(sherd_sum(sherd_cast(y, SHERD_F32)));
    sherd_optimizer_step(o, 0.1, 1);
    sherd_optimizer_clear(o);
    return y;
}

static void optimizers_are_made_afterwards(sherd_world *world)
{
    for (int how = 0; how < WAYS; how++) {
        sherd_module *m = drawn(world);
        sherd_optimizer *before = NULL, *after = NULL;
        double a[MOST], b[MOST];

        share(m, (sharing)how);
        sherd_require_grad(weight(m, "net2"), false);
        CHECK_OK(sherd_adamw_create(&before, m, NULL));
        CHECK_OK(sherd_module_cast(m, SHERD_BF16));
        CHECK(!sherd_requires_grad(weight(m, "net2")) && sherd_requires_grad(weight(m, "net1")));
        CHECK_OK(sherd_adamw_create(&after, m, NULL));
        int64_t n = whole(weight(m, "net1"), a);
        sherd_scope_begin(world);
        CHECK_EQ(sherd_tensor_dtype(step(m, after)), SHERD_BF16);
        sherd_scope_end(world);
        CHECK_EQ(whole(weight(m, "net1"), b), n);
        CHECK(memcmp(a, b, (size_t)n * sizeof *a) != 0);
        CHECK_OK(sherd_world_check(world));
        sherd_optimizer_step(before, 0.1, 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world),
                     "the parameter \"net1.weight\" got another layout or dtype") != NULL);
        sherd_optimizer_destroy(before);
        sherd_optimizer_destroy(after);
        sherd_module_destroy(m);
    }
}

/* What is tied stays tied, also to a module that is not below the one that is cast. */
static void ties_hold(sherd_world *world)
{
    for (int how = 0; how < 2; how++) {
        sherd_module *m = drawn(world), *head = container(world, NULL, NULL);
        sherd_tensor *w = weight(m, "net1");

        CHECK_OK(sherd_module_add_parameter(head, "table", w));
        add_layer(m, "head", head);
        if (how)
            CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", NULL, 0));
        CHECK_OK(sherd_module_cast(sherd_module_find(m, "net1"), SHERD_F64));
        CHECK(weight(m, "net1") == sherd_module_parameter(head, "table"));
        CHECK_EQ(sherd_tensor_dtype(weight(m, "net1")), SHERD_F64);
        CHECK_EQ(sherd_tensor_dtype(weight(m, "net2")), SHERD_F32);
        CHECK_EQ(sherd_module_all_parameters(m, NULL, 0), 4);
        sherd_module_destroy(m);
    }
}

static void averages_stay_precise(sherd_world *world)
{
    sherd_module *m = container(world, NULL, NULL), *norm = NULL;

    CHECK_OK(sherd_batch_norm_create(&norm, world, 3, NULL, NULL));
    add_layer(m, "norm", norm);
    CHECK_OK(sherd_module_add_buffer(m, "table", wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0)));
    CHECK_OK(sherd_module_cast(m, SHERD_BF16));
    CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(m, "table")), SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(sherd_module_parameter(norm, "weight")), SHERD_BF16);
    CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(norm, "running_mean")), SHERD_F32);
    CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(norm, "num_batches_tracked")), SHERD_I64);
    sherd_tensor *y = sherd_module_call(norm, wave(world, SHERD_BF16, 2, SHAPE(4, 3), 1, 1, 0));
    CHECK_EQ(sherd_tensor_dtype(y), SHERD_BF16);
    CHECK_OK(sherd_module_cast(m, SHERD_F64));
    CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(norm, "running_mean")), SHERD_F64);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void cast_in_its_call(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    CHECK_EQ(sherd_module_cast(self, SHERD_F64), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(sherd_module_world(self)), "is being called") != NULL);
    *out = *in;
}

static void what_cannot_be_cast_is_refused(sherd_world *world)
{
    sherd_module *m = drawn(world), *calls = container(world, cast_in_its_call, NULL);

    sherd_module_call(calls, wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0));
    sherd_backward(sherd_sum(weight(m, "net2")));
    CHECK_EQ(sherd_module_cast(m, SHERD_BF16), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"weight\" of \"net2\" has a gradient") != NULL);
    CHECK_EQ(sherd_tensor_dtype(weight(m, "net1")), SHERD_F32);
    sherd_clear_grad(weight(m, "net2"));
    CHECK_OK(sherd_module_cast(m, SHERD_BF16));
    sherd_module_destroy(m);
    sherd_module_destroy(calls);
    CHECK_OK(sherd_world_check(world));
}

/* It would be run again with other parameters; also where it is a part of what is cast. */
static void what_backward_runs_again_is_cast_afterwards(sherd_world *world)
{
    sherd_module *m = drawn(world), *layer = sherd_module_find(m, "net1");

    for (int whole = 0; whole < 2; whole++) {
        sherd_scope_begin(world);
        sherd_module_checkpoint(whole ? m : layer, true);
        sherd_tensor *y = sherd_module_call(m, wave(world, SHERD_F32, 2, SHAPE(4, 6), 1, 1, 0));
        CHECK_EQ(sherd_module_cast(whole ? layer : m, SHERD_BF16), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "cast it after backward") != NULL);
        sherd_backward(sherd_sum(y));
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
        for (int i = 0; i < 2; i++) {
            sherd_module *part = sherd_module_child(m, i);
            sherd_clear_grad(sherd_module_parameter(part, "weight"));
            sherd_clear_grad(sherd_module_parameter(part, "bias"));
        }
    }
    CHECK_OK(sherd_module_cast(m, SHERD_BF16));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_fails_on_all(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;
    int failed = 0;

    for (int n = 1; status && n < 500; n++, failed += status != SHERD_OK) {
        sherd_module *m = drawn(world);
        share(m, STYLES);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        status = sherd_module_cast(m, SHERD_BF16);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        (void)sherd_world_check(world);
        sherd_module_destroy(m);
    }
    CHECK_OK(status);
    CHECK(failed > 3);
}

/* Whichever rank has no memory, what is not cast stays as it was, and the next call casts it. */
static void what_could_not_be_cast_is_cast_later(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1;

    for (int how = STYLES; how < WAYS; how++)
        for (int poor = 0; poor <= last; poor += last) {
            sherd_status status = SHERD_ENOMEM;
            for (int n = 1; status && n < 200; n++) {
                sherd_module *m = mlp(world, SHERD_F32, 6, 8, 5);
                double made[MOST];
                share(m, (sharing)how);
                int64_t count = whole(weight(m, "net2"), made);
                CHECK_OK(sherd_world_check(world));
                sherd_world_fail_allocation(world, sherd_world_rank(world) == poor ? n : 0);
                status = sherd_module_cast(m, SHERD_F64);
                sherd_world_fail_allocation(world, 0);
                (void)sherd_world_check(world);
                CHECK_OK(sherd_module_cast(m, SHERD_F64));
                CHECK_EQ(distance_to(weight(m, "net2"), made, count), 0);
                CHECK_EQ(sherd_tensor_dtype(weight(m, "net1")), SHERD_F64);
                CHECK_OK(sherd_world_check(world));
                sherd_module_destroy(m);
            }
            CHECK_OK(status);
        }
}

/* As stages of a pipeline, of which each rank makes its own. */
static void ranks_may_cast_other_modules(sherd_world *world)
{
    int rank = sherd_world_rank(world);
    const sherd_mesh *meshes[] = {mesh_of(world, "x=1"), mesh_of(world, "x=1@1")};
    sherd_module *own[] = {mlp(world, SHERD_F32, 6, 8, 5), container(world, mlp_forward, NULL)};

    linear_layer(own[1], "net1", SHERD_F32, 5, 2, 1);
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_parallelize(own[i], meshes[i], "x", NULL, 0));
    CHECK_OK(sherd_module_cast(own[rank], SHERD_F64));
    CHECK_EQ(sherd_tensor_dtype(weight(own[rank], "net1")), SHERD_F64);
    CHECK_EQ(sherd_tensor_dtype(weight(own[!rank], "net1")), SHERD_F32);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < 2; i++)
        sherd_module_destroy(own[i]);
}

static const check_test tests[] = {
    {TEST(numbers_are_rounded_wherever_they_lie), {1, 2, 3, 4}},
    {TEST(optimizers_are_made_afterwards), {1, 2, 3, 4}},
    {TEST(ties_hold), {1, 2, 3}},
    {TEST(averages_stay_precise), {1, 2}},
    {TEST(what_cannot_be_cast_is_refused), {1, 2}},
    {TEST(what_backward_runs_again_is_cast_afterwards), {1, 2}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
    {TEST(what_could_not_be_cast_is_cast_later), {2, 3}},
    {TEST(ranks_may_cast_other_modules), {2}},
};
CHECK_MAIN(tests)
