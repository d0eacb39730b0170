/* SPDX-License-Identifier: Apache-2.0 */
/* Children that are taken out of a model or replaced: adapters around layers, new heads. */
#include "models.h"
#include "sherd/optimizer.h"

typedef enum sharing { PLAIN, STYLES, SHARDED, WAYS } sharing;

static void share(sherd_module *m, sharing how, const sherd_parallel_entry *plan, int count)
{
    const sherd_mesh *mesh = line_of_ranks(sherd_module_world(m));

    if (how == STYLES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, count));
    if (how == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", &(sherd_shard_options){.skip_sharded = true}));
}

static sherd_module *model(sherd_world *world, sharing how)
{
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, SHERD_F64, 6, 8, 5);

    share(m, how, plan, LEN(plan));
    return m;
}

/* base(x) + up(down(x)) */
static void adapted(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0], *low = sherd_module_call(sherd_module_find(self, "down"), x);

    out->value[0] = sherd_add(sherd_module_call(sherd_module_find(self, "base"), x),
                              sherd_module_call(sherd_module_find(self, "up"), low));
    out->count = 1;
}

/* Put an adapter of two parameters around a child of m. */
static sherd_module *adapt(sherd_module *m, const char *name, int64_t in, int64_t out, sharing how)
{
    const sherd_parallel_entry wide[] = {{"up", sherd_colwise()}};
    sherd_module *adapter = container(sherd_module_world(m), adapted, NULL), *old = NULL;

    linear_layer(adapter, "down", SHERD_F64, in, 2, 5);
    linear_layer(adapter, "up", SHERD_F64, 2, out, 7);
    CHECK_OK(sherd_module_replace(&old, m, name, adapter));
    CHECK_TEXT(sherd_module_path(old), "");
    CHECK(sherd_module_find(m, name) == adapter);
    share(adapter, how, wide, LEN(wide));
    CHECK_EQ(sherd_module_require_grad(old, "**", false), 2);
    CHECK_OK(sherd_module_add(adapter, "base", old));
    CHECK(sherd_module_find(sherd_module_find(m, name), "base") == old);
    return adapter;
}

static double step(sherd_module *m, sherd_optimizer *o, int k)
{
    sherd_world *world = sherd_module_world(m);

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_module_call(m, wave(world, SHERD_F64, 2, SHAPE(4, 6), k, 1, 0));
    sherd_tensor *loss = squared_error(y, wave(world, SHERD_F64, 2, SHAPE(4, 5), k + 7, 1, 0));
    sherd_backward(loss);
    double value = sherd_item(loss);
    sherd_optimizer_step(o, 0.05, 1);
    sherd_optimizer_clear(o);
    CHECK_OK(sherd_world_check(world));
    sherd_scope_end(world);
    return value;
}

/* Two steps of all, then three of adapters around the first layer; what is frozen stays. */
static void run(sherd_world *world, sharing how, double loss[5])
{
    sherd_module *m = model(world, how), *layer = sherd_module_find(m, "net1");
    sherd_optimizer *o = NULL, *before = NULL;
    double old[MOST], now[MOST];

    CHECK_OK(sherd_adamw_create(&before, m, NULL));
    for (int k = 0; k < 2; k++)
        loss[k] = step(m, before, k);
    int64_t n = whole(sherd_module_parameter(layer, "weight"), old);
    adapt(m, "net1", 6, 8, how);
    CHECK_TEXT(sherd_module_path(layer), "net1.base");
    CHECK_EQ(sherd_module_all_parameters(m, NULL, 0), 8);
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int k = 2; k < 5; k++)
        loss[k] = step(m, o, k);
    CHECK_EQ(whole(sherd_module_parameter(layer, "weight"), now), n);
    CHECK(memcmp(old, now, (size_t)n * sizeof *old) == 0);
    sherd_optimizer_destroy(before);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static void adapters_are_trained_in_all_layouts(sherd_world *world)
{
    double plain[5], other[5];

    run(world, PLAIN, plain);
    CHECK(plain[3] != plain[2]);
    for (int how = STYLES; how < WAYS; how++) {
        run(world, (sharing)how, other);
        for (int k = 0; k < 5; k++)
            CHECK_NEAR(other[k], plain[k], 1e-10);
    }
}

/* The order in which fully sharded modules were called names one that is gone. */
static void a_head_is_replaced(sherd_world *world)
{
    for (int how = PLAIN; how < WAYS; how++) {
        sherd_module *m = model(world, (sharing)how), *head = NULL;
        sherd_optimizer *o = NULL;
        double loss[2];

        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        step(m, o, 1);
        step(m, o, 2);
        for (int k = 0; k < 2; k++) {
            const sherd_layer_options options = {.dtype = SHERD_F64, .bias = true, .zero = true};
            CHECK_OK(sherd_linear_create(&head, world, 8, 5, &options));
            CHECK_OK(sherd_module_replace(NULL, m, "net2", head));
            CHECK(sherd_module_child(m, 1) == head);
            share(m, how == SHARDED ? SHARDED : PLAIN, NULL, 0);
            if (how == STYLES)
                CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", NULL, 0));
            loss[k] = step(m, o, 3);
        }
        CHECK(loss[0] == loss[1] || how != PLAIN);
        /* State of what is no longer there is not listed. */
        CHECK_EQ(sherd_optimizer_state(o, NULL, 0), 6);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
}

static void names_and_places_follow(sherd_world *world)
{
    static const char *const names[] = {"a", "b", "c"};
    sherd_module *m = container(world, NULL, NULL), *child[3], *out = NULL, *other = NULL;

    CHECK_OK(sherd_module_add_parameter(m, "p", wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0)));
    CHECK_OK(sherd_module_add_buffer(m, "q", wave(world, SHERD_F32, 1, SHAPE(2), 1, 1, 0)));
    for (int i = 0; i < 3; i++)
        child[i] = linear_layer(m, names[i], SHERD_F32, 2, 2, i);
    CHECK_OK(sherd_module_remove(&out, m, "b"));
    CHECK(out == child[1] && sherd_module_children(m) == 2);
    CHECK(sherd_module_find(m, "a") == child[0] && sherd_module_find(m, "c") == child[2]);
    CHECK(sherd_module_find(m, "b") == NULL && sherd_module_parameter(m, "p") != NULL);
    CHECK(sherd_module_buffer(m, "q") != NULL);
    CHECK_TEXT(sherd_module_child_name(m, 1), "c");
    CHECK_TEXT(sherd_module_path(out), "");
    CHECK(sherd_module_generator(out)->name == sherd_generator_named("").name);
    CHECK_OK(sherd_module_add(m, "b", out)); /* the name is free; now it is the last one */
    CHECK(sherd_module_child(m, 2) == out);
    CHECK_OK(sherd_linear_create(&other, world, 2, 2, NULL));
    CHECK_OK(sherd_module_replace(&out, m, "a", other));
    CHECK(out == child[0] && sherd_module_child(m, 0) == other);
    CHECK_TEXT(sherd_module_path(other), "a");
    sherd_module_destroy(out);
    CHECK_OK(sherd_module_remove(NULL, m, "c"));
    CHECK_OK(sherd_module_remove(NULL, m, "a"));
    CHECK_OK(sherd_module_remove(NULL, m, "b"));
    CHECK_EQ(sherd_module_children(m), 0);
    sherd_module_destroy(m);
}

static void says(sherd_world *world, const char *text)
{
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "instead of \"%s\": %s\n", text, sherd_world_error(world));
}

static void removes_itself(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_world *world = sherd_module_world(self);
    sherd_module *gone = NULL;

    CHECK_EQ(sherd_module_remove(&gone, self, "net1"), SHERD_EINVAL);
    says(world, "child \"net1\" of \"(root)\": a module above it is being called");
    CHECK(gone == NULL && sherd_module_find(self, "net1") != NULL);
    *out = *in;
}

static void what_is_needed_stays(sherd_world *world)
{
    sherd_module *m = container(world, removes_itself, NULL), *attention = NULL, *gone = m;
    sherd_module *layer = linear_layer(m, "net1", SHERD_F32, 3, 3, 1), *other = NULL;

    sherd_module_call(m, wave(world, SHERD_F32, 2, SHAPE(2, 3), 1, 1, 0));
    sherd_module_checkpoint(layer, true);
    sherd_scope_begin(world);
    sherd_tensor *x = sherd_require_grad(wave(world, SHERD_F32, 2, SHAPE(2, 3), 1, 1, 0), true);
    sherd_tensor *y = sherd_module_call(layer, x);
    CHECK_EQ(sherd_module_remove(&gone, m, "net1"), SHERD_EINVAL);
    says(world, "backward may still run it again");
    sherd_backward(sherd_sum(y));
    sherd_scope_end(world);
    CHECK_OK(sherd_module_remove(&gone, m, "net1"));
    sherd_module_destroy(gone);
    CHECK_EQ(sherd_module_remove(NULL, m, "net1"), SHERD_EINVAL);
    says(world, "there is none of this name");
    CHECK_OK(sherd_attention_create(&attention, world, 4, 2, NULL, NULL));
    CHECK_OK(sherd_module_add(m, "attention", attention));
    CHECK_EQ(sherd_module_remove(NULL, attention, "wq"), SHERD_EINVAL);
    says(world, "it is a part of a layer: replace it");
    CHECK_OK(sherd_linear_create(&other, world, 4, 4, NULL));
    CHECK_OK(sherd_module_replace(NULL, attention, "wq", other));
    y = sherd_module_call(attention, wave(world, SHERD_F32, 3, SHAPE(1, 2, 4), 1, 1, 0));
    CHECK_EQ(sherd_tensor_count(y), 8);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_changes_nothing(sherd_world *world)
{
    for (int kind = 0; kind < 2; kind++) {
        sherd_module *m = model(world, PLAIN), *out = NULL, *fresh = NULL;
        sherd_status status = SHERD_ENOMEM;
        int failed = 0;

        for (int n = 1; status && n < 100; n++, failed += status != SHERD_OK) {
            if (kind)
                CHECK_OK(sherd_linear_create(&fresh, world, 6, 8, NULL));
            sherd_world_fail_allocation(world, n);
            status = kind ? sherd_module_replace(&out, m, "net1", fresh)
                          : sherd_module_remove(&out, m, "net1");
            sherd_world_fail_allocation(world, 0);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            CHECK((out != NULL) == !status);
            CHECK(!status || sherd_module_children(m) == 2);
        }
        CHECK_OK(status);
        CHECK(failed > 1);
        sherd_module_destroy(out);
        sherd_module_destroy(m);
    }
}

/* The unit has the parameters of all its modules; it can go as a whole. */
static void a_part_of_a_unit_stays(sherd_world *world)
{
    const sherd_shard_options together = {.unit = "inner"};
    sherd_module *root = container(world, NULL, NULL), *out = NULL;
    sherd_module *inner = model(world, PLAIN);

    CHECK_OK(sherd_module_add(root, "inner", inner));
    CHECK_OK(sherd_fully_shard(root, line_of_ranks(world), "tp", &together));
    CHECK_EQ(sherd_module_remove(&out, inner, "net1"), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "are gathered with those of a module above it") != NULL);
    CHECK_EQ(sherd_module_replace(&out, inner, "net1", container(world, NULL, NULL)), SHERD_EINVAL);
    CHECK(out == NULL);
    CHECK_OK(sherd_module_remove(&out, root, "inner"));
    CHECK(out == inner);
    sherd_module_destroy(root);
    sherd_module_destroy(out);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(adapters_are_trained_in_all_layouts), {1, 2, 3, 4}},
    {TEST(a_head_is_replaced), {1, 2, 3, 4}},
    {TEST(names_and_places_follow), {1, 2}},
    {TEST(what_is_needed_stays), {1, 2}},
    {TEST(no_memory_changes_nothing), {1, 2}},
    {TEST(a_part_of_a_unit_stays), {1, 2, 3}},
};
CHECK_MAIN(tests)
