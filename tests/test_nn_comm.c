/* SPDX-License-Identifier: Apache-2.0 */
/* Calls counted by module and direction: to whom a call belongs, what a filter means, and what the
 * counts may cost. */
#include "modules.h"
#include "tensor/tensor.h"

static const int64_t shape[] = {8, 4};

/* Gather and give on: one call on more than one rank. */
static sherd_tensor *gather(sherd_tensor *t)
{
    const sherd_layout *to = NULL;

    CHECK_OK(sherd_layout_with(&to, sherd_tensor_layout(t),
                               sherd_layout_mesh(sherd_tensor_layout(t)), 0, sherd_replicate()));
    return sherd_redistribute(t, to, NULL);
}

/* Gathers its input, and calls its children with it as it was. */
static void gather_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    for (int i = 0; i < sherd_module_children(self); i++)
        sherd_module_call(sherd_module_child(self, i), in->value[0]);
    out->value[0] = gather(in->value[0]);
    out->count = 1;
}

static void gather_before(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self, (void)payload;
    gather(in->value[0]);
}

static sherd_module *gatherer(sherd_world *world)
{
    sherd_module *m = NULL;
    CHECK_OK(sherd_module_create(&m, world, gather_forward, NULL));
    return m;
}

static sherd_module *child(sherd_module *parent, const char *name)
{
    sherd_module *m = gatherer(sherd_module_world(parent));
    CHECK_OK(sherd_module_add(parent, name, m));
    return m;
}

static sherd_tensor *rows(sherd_world *world)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F32, shape, 2, 1);
    return spread(t, line_of_ranks(world), "S(0)");
}

static int64_t calls_in(sherd_world *world, const char *module, sherd_comm_direction direction)
{
    const sherd_comm_filter filter = {"all_gather", "tp", module, direction};
    return sherd_comm_calls(world, &filter);
}

static void a_call_belongs_to_the_innermost_module(sherd_world *world)
{
    sherd_module *m = gatherer(world), *a = child(m, "a"), *b = child(a, "b");
    int once = sherd_world_ranks(world) > 1;
    sherd_tensor *x = rows(world);

    CHECK_OK(sherd_module_hook_before(NULL, b, gather_before, NULL));
    sherd_comm_reset(world);
    sherd_module_call(m, x);
    gather(x);
    CHECK_EQ(calls_in(world, NULL, SHERD_COMM_BOTH), 5 * once);
    CHECK_EQ(calls_in(world, "", SHERD_COMM_FORWARD), 4 * once);
    CHECK_EQ(calls_in(world, "a", SHERD_COMM_FORWARD), 3 * once);
    CHECK_EQ(calls_in(world, "a.b", SHERD_COMM_BOTH), 2 * once);
    CHECK_EQ(calls_in(world, "*.?", SHERD_COMM_BOTH), 2 * once);
    CHECK_EQ(calls_in(world, "a", SHERD_COMM_BACKWARD), 0);
    int64_t bytes = sherd_comm_bytes(world, &(sherd_comm_filter){.module = "a.b"});
    CHECK_EQ(bytes, 2 * (8 * 4 * 4 - sherd_tensor_size(x, 0) * 16));
    sherd_comm_reset(world);
    CHECK_EQ(calls_in(world, "a.b", SHERD_COMM_BOTH), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void a_module_counts_where_it_is_now(sherd_world *world)
{
    sherd_module *top = gatherer(world), *m = gatherer(world);
    int once = sherd_world_ranks(world) > 1;
    sherd_tensor *x = rows(world);

    sherd_module_call(m, x);
    CHECK_EQ(calls_in(world, "part", SHERD_COMM_BOTH), -1);
    CHECK_OK(sherd_module_add(top, "part", m));
    sherd_module_call(m, x);
    CHECK_EQ(calls_in(world, "part", SHERD_COMM_BOTH), once);
    CHECK_EQ(calls_in(world, "", SHERD_COMM_BOTH), 2 * once);
    sherd_module_destroy(top);
    CHECK_OK(sherd_world_check(world));
}

/* A gradient that is pending, or elsewhere, is settled for the module that gave it. */
static void backward_counts_for_the_module_that_gave_the_gradient(sherd_world *world)
{
    sherd_module *m = gatherer(world), *a = child(m, "a");
    int once = sherd_world_ranks(world) > 1;
    sherd_tensor *x = sherd_require_grad(rows(world), true);

    sherd_comm_reset(world);
    CHECK_OK(sherd_moves_keep(world, 16));
    sherd_tensor *y = sherd_module_call(a, sherd_scale(x, 2));
    sherd_backward(sherd_sum(sherd_mul(y, sherd_redistribute(x, sherd_tensor_layout(y), NULL))));
    CHECK_EQ(calls_in(world, "a", SHERD_COMM_FORWARD), once);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "a"}), once);
    CHECK_EQ(calls_in(world, NULL, SHERD_COMM_FORWARD), 2 * once);
    CHECK(sherd_moves_get(world, 0).module && !sherd_moves_get(world, 0).backward);
    CHECK_TEXT(sherd_moves_get(world, 0).module, "a");
    CHECK(!sherd_moves_get(world, 1).module);
    CHECK_EQ(sherd__where_now(world), 0);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* The sum over a replicated axis that a gradient needs. */
static void what_is_asked_for_later_is_backward_too(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int once = sherd_world_ranks(world) > 1;
    sherd_tensor *w = sherd_constant(world, SHERD_F32, (int64_t[]){4, 4}, 2, 1);
    sherd_tensor *x = rows(world);

    w = sherd_require_grad(spread(w, mesh, "R"), true);
    sherd_comm_reset(world);
    sherd_backward(sherd_sum(sherd_matmul(x, w)));
    sherd_grad(w);
    const sherd_comm_filter back = {"all_reduce", "tp", NULL, SHERD_COMM_BACKWARD};
    CHECK_EQ(sherd_comm_calls(world, &back), once);
    CHECK_EQ(sherd__where_now(world), 0);
    CHECK_OK(sherd_world_check(world));
}

static void what_can_mean_nothing_is_no_zero(sherd_world *world)
{
    sherd_module *m = gatherer(world);
    sherd_module *a = child(m, "a");
    const sherd_mesh *square = mesh_of(world, "dp=1,x=1");
    const sherd_comm_filter good[] = {{.op = "share"},      {.axes = "dp"},  {.axes = "dp,x"},
                                      {.axes = "world"},    {.module = "a"}, {.module = "[ab]"},
                                      {.op = "all_reduce"}, {.axes = "tp"},  {.module = ""}};
    const sherd_comm_filter bad[] = {{.op = "allreduce"},
                                     {.op = ""},
                                     {.op = "slice"},
                                     {.op = "partition"},
                                     {.axes = "x,dp"},
                                     {.axes = "dp,tp"},
                                     {.axes = ""},
                                     {.axes = "d"},
                                     {.module = "b"},
                                     {.module = "a.b"},
                                     {.direction = (sherd_comm_direction)3},
                                     {.direction = (sherd_comm_direction)-1}};

    CHECK(square && line_of_ranks(world));
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = ""}), -1); /* none was called */
    sherd_module_call(a, rows(world));
    sherd_comm_reset(world);
    for (int i = 0; i < LEN(good); i++)
        CHECK_EQ(sherd_comm_calls(world, &good[i]), 0);
    for (int i = 0; i < LEN(bad); i++) {
        CHECK_EQ(sherd_comm_calls(world, &bad[i]), -1);
        CHECK_EQ(sherd_comm_bytes(world, &bad[i]), -1);
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what it costs --------------------------------------------------------------------------- */

static void counting_takes_no_memory(sherd_world *world)
{
    sherd_module *m = gatherer(world);
    sherd_tensor *x = rows(world);
    int64_t live = 0, asked[2] = {0, 0};

    for (int i = 0; i < 6; i++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, 0);
        if (i % 2)
            sherd_module_call(m, x);
        else
            gather(x);
        asked[i % 2] = sherd_world_allocations(world);
        sherd_scope_end(world);
        if (i > 2)
            CHECK_EQ(sherd__world_heap(world)->live, live);
        live = sherd__world_heap(world)->live;
    }
    CHECK_EQ(asked[1], asked[0]);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* The path of a module that is called for the first time takes memory: where there is none, the
 * call fails, on all ranks. */
static void no_memory_for_a_path_fails_on_all(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1;

    line_of_ranks(world);
    for (int64_t n = 1; n < 40; n++) {
        sherd_module *m = gatherer(world);
        CHECK_OK(sherd_module_add(m, "first", gatherer(world)));
        sherd_tensor *x = rows(world);
        CHECK_OK(sherd_world_check(world));
        if (sherd_world_rank(world) == last)
            sherd_world_fail_allocation(world, n);
        sherd_module_call(m, x);
        sherd_world_fail_allocation(world, 0);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(status == SHERD_ENOMEM || n > 4);
        CHECK_EQ(sherd__where_now(world), 0);
        CHECK_OK(sherd__agree(world, SHERD_OK, (uint64_t)(int64_t)status + 1, "test"));
        sherd_module_destroy(m);
    }
}

static const check_test tests[] = {
    {TEST(a_call_belongs_to_the_innermost_module), {1, 2, 3, 4, 8}},
    {TEST(a_module_counts_where_it_is_now), {1, 2, 3}},
    {TEST(backward_counts_for_the_module_that_gave_the_gradient), {1, 2, 3}},
    {TEST(what_is_asked_for_later_is_backward_too), {1, 2, 3, 4, 8}},
    {TEST(what_can_mean_nothing_is_no_zero), {1, 2, 3}},
    {TEST(counting_takes_no_memory), {1, 2, 3}},
    {TEST(no_memory_for_a_path_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
