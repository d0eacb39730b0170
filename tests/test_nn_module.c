/* SPDX-License-Identifier: Apache-2.0 */
/* The tree of modules: names, paths, parameters, calls and their scope. */
#include "modules.h"

static void echo(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    *out = *in;
}

static void count_destroyed(void *payload)
{
    ++*(int *)payload;
}

static sherd_module *make(sherd_world *world, int *destroyed)
{
    sherd_module_options options = {.payload = destroyed,
                                    .destroy = destroyed ? count_destroyed : NULL};
    sherd_module *m = NULL;
    CHECK_OK(sherd_module_create(&m, world, echo, &options));
    return m;
}

static void paths_follow_the_tree(sherd_world *world)
{
    int destroyed = 0;
    sherd_module *root = make(world, &destroyed), *mid = make(world, &destroyed);
    sherd_module *leaf = make(world, &destroyed);

    CHECK_TEXT(sherd_module_path(leaf), "");
    CHECK_OK(sherd_module_add(mid, "leaf", leaf));
    CHECK_TEXT(sherd_module_path(leaf), "leaf");
    CHECK_OK(sherd_module_add(root, "mid", mid));
    CHECK_TEXT(sherd_module_path(root), "");
    CHECK_TEXT(sherd_module_path(mid), "mid");
    CHECK_TEXT(sherd_module_path(leaf), "mid.leaf");
    CHECK(sherd_module_generator(leaf)->name == sherd_generator_named("mid.leaf").name);
    CHECK(sherd_module_find(root, "") == root);
    CHECK(sherd_module_find(root, "mid.leaf") == leaf);
    CHECK(sherd_module_find(mid, "leaf") == leaf);
    CHECK(sherd_module_find(root, "mid.") == NULL);
    CHECK(sherd_module_find(root, "mi") == NULL);
    CHECK(sherd_module_find(root, "mid.leaf.x") == NULL);
    CHECK_EQ(sherd_module_children(root), 1);
    CHECK(sherd_module_child(root, 0) == mid && sherd_module_child(root, 1) == NULL);
    CHECK_TEXT(sherd_module_child_name(mid, 0), "leaf");
    CHECK(sherd_module_world(leaf) == world && sherd_module_payload(leaf) == &destroyed);
    sherd_module_train(root, false);
    CHECK(!sherd_module_is_training(leaf));
    sherd_module_train(mid, true);
    CHECK(sherd_module_is_training(leaf) && !sherd_module_is_training(root));
    sherd_module_destroy(mid); /* a child: stays */
    CHECK_EQ(destroyed, 0);
    sherd_module_destroy(root);
    sherd_module_destroy(NULL);
    CHECK_EQ(destroyed, 3);
}

static void a_child_that_is_refused_is_destroyed(sherd_world *world)
{
    static const char *const names[] = {"", "a.b", "a", "weight", NULL};
    int destroyed = 0;
    sherd_module *root = make(world, NULL), *a = make(world, NULL);

    CHECK_OK(sherd_module_add(root, "a", a));
    CHECK_OK(
        sherd_module_add_parameter(root, "weight", wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0)));
    for (int i = 0; i < LEN(names); i++) {
        CHECK_EQ(sherd_module_add(root, names[i], make(world, &destroyed)), SHERD_EINVAL);
        CHECK_EQ(destroyed, i + 1);
    }
    CHECK_EQ(sherd_module_add(root, "b", NULL), SHERD_ENOMEM);
    CHECK_EQ(sherd_module_children(root), 1);
    /* One that has a parent, or would be its own ancestor, stays where it is. */
    CHECK_EQ(sherd_module_add(root, "b", a), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add(a, "b", root), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add(root, "b", root), SHERD_EINVAL);
    CHECK_TEXT(sherd_module_path(a), "a");
    CHECK(strstr(sherd_world_error(world), "\"b\"") != NULL);
    sherd_module_destroy(root);
}

static void parameters_are_walked_depth_first_and_once(sherd_world *world)
{
    sherd_module *root = make(world, NULL), *a = make(world, NULL), *b = make(world, NULL);
    sherd_tensor *tied = wave(world, SHERD_F32, 1, SHAPE(2), 1, 1, 0);
    sherd_named_parameter all[8];

    CHECK_OK(sherd_module_add(root, "a", a));
    CHECK_OK(sherd_module_add(root, "b", b));
    CHECK_OK(sherd_module_add_parameter(b, "own", wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0)));
    CHECK_OK(sherd_module_add_parameter(b, "again", tied));
    CHECK_OK(sherd_module_add_parameter(a, "first", tied));
    CHECK_OK(sherd_module_add_parameter(root, "top", wave(world, SHERD_F64, 1, SHAPE(4), 1, 1, 0)));
    CHECK_EQ(sherd_module_all_parameters(root, NULL, 0), 3);
    memset(all, 0, sizeof all);
    CHECK_EQ(sherd_module_all_parameters(root, all, 1), 3);
    CHECK(all[1].tensor == NULL);
    CHECK_EQ(sherd_module_all_parameters(root, all, 8), 3);
    CHECK_TEXT(all[0].path, "");
    CHECK_TEXT(all[0].name, "top");
    CHECK_TEXT(all[1].path, "a");
    CHECK_TEXT(all[1].name, "first");
    CHECK(all[1].tensor == tied);
    CHECK_TEXT(all[2].path, "b");
    CHECK_TEXT(all[2].name, "own");
    CHECK_EQ(sherd_module_all_parameters(b, all, 8), 2);
    CHECK_TEXT(all[1].name, "again");
    CHECK(sherd_requires_grad(tied));
    CHECK_EQ(sherd_module_parameters(b), 2);
    CHECK_TEXT(sherd_module_parameter_name(b, 1), "again");
    CHECK(sherd_module_parameter_name(b, 2) == NULL);
    CHECK(sherd_module_parameter(a, "nothing") == NULL);
    sherd_module_destroy(root);
}

static void only_leaves_with_fractions_become_parameters(sherd_world *world)
{
    sherd_module *m = make(world, NULL);
    sherd_tensor *leaf = wave(world, SHERD_F32, 1, SHAPE(2), 1, 1, 0);
    sherd_tensor *failed = sherd_from_data(world, SHERD_F32, SHAPE(-1), 1, NULL);
    int32_t zero = 0;

    CHECK(sherd_tensor_failed(failed));
    CHECK_EQ(sherd_module_add_parameter(m, "p", failed), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add_parameter(m, "p", NULL), SHERD_EINVAL);
    CHECK_EQ(
        sherd_module_add_parameter(m, "p", sherd_from_data(world, SHERD_I32, SHAPE(1), 1, &zero)),
        SHERD_EINVAL);
    sherd_require_grad(leaf, true);
    CHECK_EQ(sherd_module_add_parameter(m, "p", sherd_scale(leaf, 2)), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add_parameter(m, "", leaf), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add_parameter(m, "p.q", leaf), SHERD_EINVAL);
    CHECK_OK(sherd_module_add_parameter(m, "p", leaf));
    CHECK_EQ(sherd_module_add_parameter(m, "p", leaf), SHERD_EINVAL);
    CHECK_EQ(sherd_module_set_parameter(m, "q", leaf), SHERD_EINVAL);
    CHECK_EQ(sherd_module_set_parameter(m, "p", wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0)),
             SHERD_EINVAL);
    CHECK_EQ(sherd_module_set_parameter(m, "p", wave(world, SHERD_F64, 1, SHAPE(2), 1, 1, 0)),
             SHERD_EINVAL);
    CHECK(sherd_module_parameter(m, "p") == leaf);
    sherd_tensor *other = wave(world, SHERD_F32, 1, SHAPE(2), 2, 1, 0);
    CHECK_OK(sherd_module_set_parameter(m, "p", other));
    CHECK(sherd_module_parameter(m, "p") == other);
    sherd_module_destroy(m);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL); /* the failed tensor */
}

/* Data of the program's own, put in place of a parameter, would not be trained, and nobody told. */
static void what_replaces_a_parameter_is_trained_as_that_was(sherd_world *world)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        sherd_module *m = make(world, NULL);
        sherd_tensor *p = wave(world, SHERD_F32, 1, SHAPE(2), 1, 1, 0), *other = NULL;

        CHECK_OK(sherd_module_add_parameter(m, "p", p));
        sherd_require_grad(p, !frozen);
        other = wave(world, SHERD_F32, 1, SHAPE(2), 2, 1, 0);
        CHECK_OK(sherd_module_set_parameter(m, "p", other));
        CHECK_EQ(sherd_requires_grad(other), !frozen);
        other = sherd_require_grad(wave(world, SHERD_F32, 1, SHAPE(2), 2, 1, 0), true);
        CHECK_OK(sherd_module_set_parameter(m, "p", other));
        CHECK(sherd_requires_grad(other));
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void wasteful(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];
    (void)self;
    for (int i = 0; i < 5; i++)
        x = sherd_scale(x, 2);
    out->value[0] = x;
    out->value[1] = in->value[0];
    out->value[2] = x; /* the same one twice */
    out->count = 3;
}

static void only_outputs_survive_a_call(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_tensor *x = wave(world, SHERD_F32, 1, SHAPE(1000), 1, 1, 0);
    sherd_args in = {.count = 1, .value = {x}}, out;
    int64_t before = sherd_world_memory(world).live_bytes, one;

    CHECK_OK(sherd_module_create(&m, world, wasteful, NULL));
    sherd_scope_begin(world);
    sherd_scale(x, 1);
    one = sherd_world_memory(world).live_bytes - before;
    sherd_scope_end(world);
    CHECK(one >= 4000);
    sherd_scope_begin(world);
    sherd_module_run(m, &in, &out);
    CHECK_EQ(out.count, 3);
    CHECK(out.value[1] == x && out.value[0] == out.value[2]);
    CHECK_EQ(sherd_world_memory(world).live_bytes - before, one);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void silent(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self, (void)in, (void)out;
}

static void half(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = in->value[0];
    out->value[1] = sherd_matmul(in->value[0], in->value[0]); /* dims do not fit */
    out->name[1] = "second";
    out->count = 2;
}

static void null_output(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self, (void)in;
    out->count = 1;
}

static void too_many(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self, (void)in;
    out->count = SHERD_MAX_ARGS + 1;
}

static void after_a_failure_every_slot_has_failed(sherd_world *world)
{
    static const sherd_forward forwards[] = {silent, half, null_output, too_many, NULL};
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(2, 3), 1, 1, 0);
    sherd_args in = {.count = 1, .value = {x}}, out;

    for (int f = 0; f < LEN(forwards); f++) {
        sherd_module *m = NULL;
        CHECK_OK(sherd_module_create(&m, world, forwards[f], NULL));
        sherd_module_run(m, &in, &out);
        CHECK_EQ(out.count, forwards[f] == half ? 2 : 1);
        for (int i = 0; i < SHERD_MAX_ARGS; i++)
            CHECK(out.value[i] && sherd_tensor_failed(out.value[i]));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), f == 1 ? "matmul" : "sherd_module_run") != NULL);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
    }
    in.count = SHERD_MAX_ARGS + 1;
    sherd_module *m = make(world, NULL);
    sherd_module_run(m, &in, &out);
    CHECK(sherd_tensor_failed(out.value[0]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_module_destroy(m);
}

static void keywords(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_add(in->value[0], sherd_args_find(in, "shift"));
    out->count = 1;
}

static void keyword_tensors_are_found_by_name(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_tensor *x = sherd_constant(world, SHERD_F64, NULL, 0, 2);
    sherd_args in = {.count = 2,
                     .value = {x, sherd_constant(world, SHERD_F64, NULL, 0, 3)},
                     .name = {NULL, "shift"}},
               out;

    CHECK_OK(sherd_module_create(&m, world, keywords, NULL));
    sherd_module_run(m, &in, &out);
    CHECK_NEAR(sherd_item(out.value[0]), 5, 0);
    CHECK(sherd_args_find(&in, "other") == NULL);
    /* Input and output may be the same struct. */
    sherd_module_run(m, &in, &in);
    CHECK_NEAR(sherd_item(in.value[0]), 5, 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- payloads -------------------------------------------------------------------------------- */

static void set_own(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    CHECK_EQ(sherd_module_set_payload(self, self, NULL), SHERD_EINVAL);
    *out = *in;
}

static void a_payload_may_be_replaced(sherd_world *world)
{
    int first = 0, second = 0;
    sherd_module *m = make(world, &first), *running = NULL;
    sherd_tensor *x = sherd_constant(world, SHERD_F64, NULL, 0, 5);

    CHECK_OK(sherd_module_set_payload(m, &first, count_destroyed));
    CHECK_EQ(first, 0);
    CHECK_OK(sherd_module_set_payload(m, &second, count_destroyed));
    CHECK(first == 1 && second == 0 && sherd_module_payload(m) == &second);
    CHECK_OK(sherd_module_set_payload(m, NULL, NULL));
    CHECK(first == 1 && second == 1 && sherd_module_payload(m) == NULL);
    CHECK_OK(sherd_module_set_payload(m, &second, count_destroyed));
    sherd_module_destroy(m);
    CHECK(first == 1 && second == 2);
    CHECK_OK(sherd_module_create(&running, world, set_own, NULL));
    sherd_module_call(running, x);
    CHECK_OK(sherd_module_set_payload(running, &first, NULL));
    sherd_module_destroy(running);
    CHECK_OK(sherd_world_check(world));
}

static void a_layer_keeps_its_own(sherd_world *world)
{
    const sherd_experts_options experts = {.experts = 2, .k = 1, .hidden = 4};
    sherd_module *layer[6] = {NULL};
    int mine = 0;

    CHECK_OK(sherd_dropout_create(&layer[0], world, 0.5));
    CHECK_OK(sherd_layer_norm_create(&layer[1], world, 4, NULL));
    CHECK_OK(sherd_rms_norm_create(&layer[2], world, 4, 0, NULL));
    CHECK_OK(sherd_attention_create(&layer[3], world, 4, 2, NULL, NULL));
    CHECK_OK(sherd_experts_create(&layer[4], world, 4, &experts, NULL));
    CHECK_OK(sherd_linear_create(&layer[5], world, 4, 4, NULL));
    for (int i = 0; i < 6; i++) { /* a linear layer has none */
        CHECK_EQ(sherd_module_set_payload(layer[i], &mine, NULL), i < 5 ? SHERD_EINVAL : SHERD_OK);
        sherd_module_destroy(layer[i]);
    }
}

/* ---- without memory -------------------------------------------------------------------------- */

static void look(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self, (void)in, (void)payload;
}

/* Make a tree while the n-th allocation fails, for every n: an error, and nothing is left. */
static sherd_status build(sherd_world *world)
{
    sherd_layer_options named = {.name = "l", .bias = true};
    sherd_module *root = NULL, *mid = NULL, *leaf = NULL, *drop = NULL;
    sherd_status status = sherd_module_create(&root, world, echo, NULL);

    if (!status)
        status = sherd_linear_create(&leaf, world, 2, 3, &named);
    if (!status)
        status = sherd_module_create(&mid, world, echo, NULL);
    if (!status) {
        status = sherd_module_add(mid, "leaf", leaf);
        leaf = NULL;
    }
    if (!status) {
        status = sherd_module_add(root, "mid", mid);
        mid = NULL;
    }
    if (!status)
        status = sherd_dropout_create(&drop, world, 0.5);
    if (!status)
        status = sherd_module_add(root, "drop", drop);
    if (!status)
        status = sherd_module_hook_before(NULL, root, look, NULL);
    sherd_module_destroy(leaf);
    sherd_module_destroy(mid);
    sherd_module_destroy(root);
    return status;
}

static void no_memory_leaves_nothing_behind(sherd_world *world)
{
    const sherd__heap *heap = sherd__world_heap(world);
    sherd_status status = SHERD_ENOMEM;
    int failures = 0;

    CHECK_OK(build(world)); /* what is kept for good is there now */
    int64_t live = heap->live, bytes = sherd_world_memory(world).live_bytes;
    for (int n = 1; status && n < 200; n++) {
        sherd_world_fail_allocation(world, n);
        status = build(world);
        sherd_world_fail_allocation(world, 0);
        failures += status == SHERD_ENOMEM;
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK_EQ(heap->live, live);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
        (void)sherd_world_check(world);
    }
    CHECK_OK(status);
    CHECK(failures > 10);
}

/* What is wrong is said, whatever names are like. */
static void long_names_leave_room_for_the_reason(sherd_world *world)
{
    const sherd_experts_options large = {.experts = 4, .k = 1, .hidden = INT64_C(1) << 31};
    char name[10001];
    sherd_module *m = NULL, *child = NULL;

    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_OK(sherd_linear_create(&m, world, 3, 2, NULL));
    CHECK_OK(sherd_linear_create(&child, world, 3, 2, NULL));
    CHECK_OK(sherd_module_add(m, name, child));
    CHECK_OK(sherd_linear_create(&child, world, 3, 2, NULL));
    CHECK_EQ(sherd_module_add(m, name, child), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), ": the name is taken") != NULL);
    sherd_module_call(sherd_module_find(m, name), NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), ": it takes one positional tensor") != NULL);
    sherd_module_destroy(m);
    CHECK_EQ(sherd_experts_create(&m, world, INT64_C(1) << 31, &large, NULL), SHERD_ELIMIT);
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), "2^62") != NULL);
}

static const check_test tests[] = {
    {TEST(long_names_leave_room_for_the_reason), {1, 2}},
    {TEST(paths_follow_the_tree), {1}},
    {TEST(a_child_that_is_refused_is_destroyed), {1}},
    {TEST(parameters_are_walked_depth_first_and_once), {1}},
    {TEST(what_replaces_a_parameter_is_trained_as_that_was), {1, 2}},
    {TEST(only_leaves_with_fractions_become_parameters), {1, 2}},
    {TEST(only_outputs_survive_a_call), {1, 2}},
    {TEST(after_a_failure_every_slot_has_failed), {1, 2}},
    {TEST(keyword_tensors_are_found_by_name), {1}},
    {TEST(a_payload_may_be_replaced), {1, 2}},
    {TEST(a_layer_keeps_its_own), {1}},
    {TEST(no_memory_leaves_nothing_behind), {1}},
};
CHECK_MAIN(tests)
