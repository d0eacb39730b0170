/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters that one call shards over several axes, or over some and not over others: gathers and
 * sums of gradients are one plan each, of the bytes that they must have at least, and gradients are
 * those of the whole model.
 */
#include "models.h"
#include "sherd/autograd.h"
#include "sherd/ops_elements.h"

enum { WIDTH = 7, HIDDEN = 13, ROWS = 8, LENGTH = 5, BATCHES = 3, PARAMETERS = 4 };

typedef struct setup {
    int ranks;
    const char *mesh, *axes, *batch;
    int gathered; /* over so many ranks */
} setup;

static const setup setups[] = {
    {4, "dp=2,cp=2", "dp,cp", "S(0)S(1)", 4},
    {4, "rep=2,dp=2", "dp", "S(0)S(1)", 2},
    {8, "dp=2,cp=4", "cp,dp", "S(0)S(1)", 8},
    {8, "rep=2,dp=2,cp=2", "dp,cp", "S(0)S(0)S(1)", 4},
    {8, "dp=2,tp=2,cp=2", "dp,cp", "S(0)RS(1)", 4},
    {8, "dp=2,rep=4", "dp", "S(0)S(1)", 2},
};

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(sherd_module_child(m, i / 2), i % 2 ? "bias" : "weight");
}

/* BATCHES backwards; of those before the last, gradients wait. */
static void backwards(sherd_module *m, const sherd_mesh *mesh, const char *batch)
{
    sherd_world *world = sherd_module_world(m);

    for (int k = 0; k < BATCHES; k++) {
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, sherd_tensor_dtype(parameter(m, 0)), 3,
                               SHAPE(ROWS, LENGTH, WIDTH), 3 + k, 1, 0);
        sherd_set_gradient_sync(world, !mesh || k == BATCHES - 1);
        sherd_tensor *y = sherd_module_call(m, mesh ? spread(x, mesh, batch) : x);
        sherd_backward(sherd_mean(sherd_square(sherd_cast(y, SHERD_F64))));
        sherd_scope_end(world);
    }
    sherd_set_gradient_sync(world, true);
}

typedef struct precision {
    sherd_dtype dtype, param, reduce;
    bool frozen; /* the first weight */
    double error;
} precision;

/* As whole, and with parameters that no number of ranks divides. */
static void compare_with_whole(sherd_world *world, const setup *s, const precision *p)
{
    static _Thread_local double expected[MOST];
    const sherd_shard_options unit = {
        .unit = "", .param_dtype = p->param, .reduce_dtype = p->reduce};
    const sherd_mesh *mesh = mesh_of(world, s->mesh);
    sherd_module *plain = mlp(world, p->dtype, WIDTH, HIDDEN, WIDTH);
    sherd_module *m = mlp(world, p->dtype, WIDTH, HIDDEN, WIDTH);

    backwards(plain, NULL, NULL);
    sherd_require_grad(parameter(m, 0), !p->frozen);
    CHECK_OK(sherd_fully_shard(m, mesh, s->axes, &unit));
    CHECK_EQ(sherd_tensor_layout(parameter(m, 0))->shards, s->gathered);
    backwards(m, mesh, s->batch);
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_tensor *g = sherd_grad(parameter(m, i));
        if (i == 0 && p->frozen) {
            CHECK(g == NULL);
            continue;
        }
        int64_t n = whole(sherd_grad(parameter(plain, i)), expected);
        if (!CHECK_NEAR(distance_to(g, expected, n), 0, p->error))
            fprintf(stderr, "%s over %s, parameter %d\n", s->mesh, s->axes, i);
        CHECK(g && sherd_tensor_layout(g) == sherd_tensor_layout(parameter(m, i)));
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
}

static void gradients_are_those_of_the_whole_model(sherd_world *world)
{
    static const precision precisions[] = {
        {SHERD_F64, SHERD_DTYPE_NONE, SHERD_DTYPE_NONE, false, 1e-12},
        {SHERD_F64, SHERD_DTYPE_NONE, SHERD_DTYPE_NONE, true, 1e-12},
        {SHERD_F32, SHERD_BF16, SHERD_F32, false, 0.05},
        {SHERD_F32, SHERD_BF16, SHERD_DTYPE_NONE, true, 0.05},
    };

    for (int i = 0; i < LEN(setups); i++)
        for (int k = 0; k < LEN(precisions) && setups[i].ranks == sherd_world_ranks(world); k++) {
            sherd_scope_begin(world);
            compare_with_whole(world, &setups[i], &precisions[k]);
            sherd_scope_end(world);
        }
}

/* ---- calls and bytes ------------------------------------------------------------------------ */

enum { IN = 256, OUT = 384 }; /* smaller ones take one call, of more bytes */

static sherd_module *wide_model(sherd_world *world)
{
    static const char *const names[] = {"0", "1"};
    sherd_module *m = container(world, stack_forward, NULL);

    for (int i = 0; i < 2; i++) {
        sherd_layer_options o = {.name = names[i]};
        sherd_module *layer = NULL;
        CHECK_OK(sherd_linear_create(&layer, world, i ? OUT : IN, i ? IN : OUT, &o));
        CHECK_OK(sherd_module_add(m, names[i], layer));
    }
    return m;
}

/*
 * A gather in forward and one in backward. Gradients take one call if all axes shard; else two, of
 * as many bytes as a reduce-scatter over the axes that shard, and an all-reduce over the others.
 */
static void each_plan_is_one_call_of_the_least_bytes(sherd_world *world)
{
    const int64_t bytes = 2 * IN * OUT * 4, ranks = sherd_world_ranks(world);
    const sherd_shard_options unit = {.unit = ""};

    for (int i = 0; i < LEN(setups); i++) {
        const setup *s = &setups[i];
        int64_t all = strstr(s->mesh, "tp") ? ranks / 2 : ranks, n = s->gathered;
        if (s->ranks != ranks)
            continue;
        sherd_module *m = wide_model(world);
        CHECK_OK(sherd_fully_shard(m, mesh_of(world, s->mesh), s->axes, &unit));
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_constant(world, SHERD_F32, SHAPE(ROWS, 4, IN), 3, 1);
        x = sherd_require_grad(spread(x, mesh_of(world, s->mesh), s->batch), true);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_tensor *y = sherd_module_call(m, x);
        CHECK_EQ(calls_logged(world), 1);
        sherd_backward(sherd_mean(y));
        CHECK_EQ(calls_logged(world), n == all ? 3 : 4);
        CHECK_EQ(sherd_comm_bytes(world, NULL),
                 2 * (bytes - bytes / n) + bytes + bytes / n - 2 * bytes / all);
        sherd_scope_end(world);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void axes_are_named_once_and_exist(sherd_world *world)
{
    static const char *const bad[][2] = {{"dp,dp", "named twice"},
                                         {"dp,", "no axis \"\""},
                                         {",dp", "no axis \"\""},
                                         {"", "no axis \"\""},
                                         {"dp, cp", "no axis \" cp\""},
                                         {"dp,pp", "no axis \"pp\""},
                                         {"dp,a_name_of_more_letters_than_an_axis_has", "no axis"}};
    const sherd_mesh *mesh = mesh_of(world, "dp=2,cp=2");
    char text[256];

    for (int i = 0; i < LEN(bad); i++) {
        sherd_module *m = mlp(world, SHERD_F32, 4, 4, 4);
        CHECK_EQ(sherd_fully_shard(m, mesh, bad[i][0], NULL), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), bad[i][1]) != NULL))
            fprintf(stderr, "%s: %s\n", bad[i][0], sherd_world_error(world));
        sherd_module_destroy(m);
    }
    sherd_module *m = mlp(world, SHERD_F32, 4, 4, 4);
    bool first = sherd_world_rank(world) == 0;
    CHECK_EQ(sherd_fully_shard(m, mesh, first ? "dp" : "dp,cp", NULL), SHERD_EDIFFER);
    sherd_module_destroy(m);
    m = mlp(world, SHERD_F32, 4, 4, 4);
    CHECK_OK(sherd_fully_shard(m, mesh, "cp,dp", NULL));
    CHECK_EQ(sherd_fully_shard(m, mesh, "cp", NULL), SHERD_EINVAL);
    CHECK_OK(sherd_fully_shard(m, mesh, "dp,cp", &(sherd_shard_options){.skip_sharded = true}));
    sherd_parallel_text(m, text, sizeof text);
    CHECK(strstr(text, "FullyShard(cp,dp)") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(gradients_are_those_of_the_whole_model), {4, 8}},
    {TEST(each_plan_is_one_call_of_the_least_bytes), {4, 8}},
    {TEST(axes_are_named_once_and_exist), {4}},
};
CHECK_MAIN(tests)
