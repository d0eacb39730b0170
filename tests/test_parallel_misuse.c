/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of sherd_parallelize, styles and sherd_input_reshard: see misuse.h. */
#include "misuse.h"
#include "sherd/layers.h"
#include "sherd/parallel.h"

static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

static sherd_module *linear(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, NULL));
    return m;
}

/* A layer made parallel, and called. */
static void computes(sherd_world *world)
{
    const int64_t shape[] = {4, 4};
    const sherd_parallel_entry plan[] = {{"", sherd_colwise()}};
    sherd_module *layer = linear(world);

    CHECK_OK(sherd_parallelize(layer, line(world), "x", plan, 1));
    sherd_scope_begin(world);
    CHECK(!sherd_tensor_failed(
        sherd_module_call(layer, sherd_constant(world, SHERD_F32, shape, 2, 1))));
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(layer);
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

/* Every call has a layer of its own: one that has failed may be partly changed. */
enum { LAYERS = 16 };

static void make_layers(sherd_world *world, sherd_module **layer)
{
    for (int i = 0; i < LAYERS; i++)
        layer[i] = linear(world);
}

static void destroy_layers(sherd_module *const *layer)
{
    for (int i = 0; i < LAYERS; i++)
        sherd_module_destroy(layer[i]);
}

MISUSE(making_a_module_parallel_needs_module_mesh_axis_and_plan)
{
    const sherd_mesh *mesh = line(m->world), *other;
    const sherd_parallel_entry plan[] = {{"", sherd_colwise()}}, nameless[] = {{NULL, plan->style}};
    const sherd_parallel_entry styleless[] = {{.path = ""}}, lost[] = {{"nowhere", plan->style}};
    sherd_module *layer[LAYERS];
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_mesh_parse(&other, second, "x=1"));
    make_layers(m->world, layer);
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(NUL(layer[0]), mesh, "x", plan, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[1], NUL(mesh), "x", plan, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[2], BAD(other, mesh), "x", plan, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[3], mesh, NUL("x"), plan, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[4], mesh, BAD("y", "x"), plan, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[5], mesh, "x", NUL(plan), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[6], mesh, "x", plan, BAD(-1, 1)));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[7], mesh, "x", BAD(nameless, plan), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[8], mesh, "x", BAD(styleless, plan), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[9], mesh, "x", BAD(lost, plan), 1));
    ALL_REFUSE(SHERD_OK, sherd_parallelize(layer[10], mesh, "x", NULL, 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_parallelize(NULL, NULL, "x", plan, 1));
    destroy_layers(layer);
    CHECK_OK(sherd_world_close(second));
}

static sherd_status do_nothing(sherd_module *module, const sherd_mesh *mesh, void *payload)
{
    (void)module, (void)mesh, (void)payload;
    return SHERD_OK;
}

MISUSE(distributing_a_module_needs_a_module_and_a_mesh)
{
    const sherd_mesh *mesh = line(m->world), *other;
    sherd_module *layer[LAYERS];
    sherd_world *second = NULL;
    char text[4];

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_mesh_parse(&other, second, "x=1"));
    make_layers(m->world, layer);
    ALL_REFUSE(SHERD_EINVAL,
               sherd_distribute_module(NUL(layer[0]), mesh, do_nothing, NULL, NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_distribute_module(layer[1], NUL(mesh), do_nothing, NULL, NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_distribute_module(layer[2], BAD(other, mesh), NULL, NULL, NULL, NULL));
    ALL_REFUSE(SHERD_OK, sherd_distribute_module(layer[3], mesh, NULL, NULL, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_distribute_module(NULL, NULL, NULL, NULL, NULL, NULL));
    const sherd_placement s = sherd_shard(0);
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(NULL, "weight", mesh, 0, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], NULL, mesh, 0, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "weight", NULL, 0, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "weight", other, 0, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "weight", mesh, -1, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "weight", mesh, 1, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "wait", mesh, 0, s, 0));
    REFUSES(SHERD_EINVAL, sherd_style_place_parameter(layer[4], "weight", mesh, 0, s, -1));
    REFUSES(SHERD_EINVAL,
            sherd_style_place_parameter(layer[4], "weight", mesh, 0, sherd_shard(2), 0));
    REFUSES(SHERD_EINVAL,
            sherd_style_place_parameter(layer[4], "weight", mesh, 0, sherd_shard(INT32_MIN), 0));
    REFUSES(SHERD_EINVAL,
            sherd_style_place_parameter(layer[4], "weight", mesh, 0, sherd_partial(SHERD_SUM), 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_style_place_parameter(NULL, NULL, NULL, 0, s, 0));
    ANSWERS(sherd_parallel_text(NULL, text, sizeof text) == 0 && text[0] == 0);
    ANSWERS(sherd_parallel_text(NULL, NULL, 9) == 0);
    REFUSES(SHERD_EINVAL, sherd_parallel_print(layer[4], NULL, 0));
    REFUSES(SHERD_EINVAL, sherd_parallel_print(layer[4], stderr, -1));
    REFUSES(SHERD_EINVAL, sherd_parallel_print(layer[4], stderr, 1 << 20));
    ONLY_SAYS(SHERD_EINVAL, sherd_parallel_print(NULL, stderr, 0));
    destroy_layers(layer);
    CHECK_OK(sherd_world_close(second));
}

MISUSE(a_style_is_made_of_good_numbers)
{
    const sherd_mesh *mesh = line(m->world);
    sherd_style bad[] = {sherd_colwise(),
                         sherd_rowwise(),
                         sherd_prepare_input(),
                         sherd_sequence_parallel(),
                         sherd_colwise(),
                         sherd_prepare_output(),
                         sherd_prepare_input_output()};
    sherd_module *layer[LAYERS];

    make_layers(m->world, layer);
    bad[0].granule = -1;
    bad[1].input.kind = (sherd_placement_kind)9;
    bad[2].desired = sherd_partial((sherd_reduce_op)9);
    bad[3].output.kind = (sherd_placement_kind)-1;
    bad[4].desired.kind = (sherd_placement_kind)9;
    bad[5].output_count = INT32_MIN;
    bad[6].input_count = INT32_MAX;
    for (int i = 0; i < LEN(bad); i++) {
        const sherd_parallel_entry wrong = {"", bad[i]}, right = {"", sherd_colwise()};
        ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[i], mesh, "x", BAD(&wrong, &right), 1));
    }
    destroy_layers(layer);
}

MISUSE(experts_are_placed_whole)
{
    const sherd_experts_options how = {4, 2, 4, false, false};
    const sherd_mesh *mesh = line(m->world);
    sherd_style wrong[] = {sherd_expert_parallel(), sherd_expert_tensor_parallel()};

    for (int i = 0; i < LEN(wrong); i++) {
        const sherd_parallel_entry right = {"", wrong[i]};
        sherd_module *layer[LAYERS], *mixture = NULL;
        wrong[i].granule = -1;
        const sherd_parallel_entry bad = {"", wrong[i]};
        CHECK_OK(sherd_experts_create(&mixture, m->world, 4, &how, NULL));
        ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(mixture, mesh, "x", BAD(&bad, &right), 1));
        sherd_module_destroy(mixture);
        make_layers(m->world, layer);
        ALL_REFUSE(SHERD_EINVAL, sherd_parallelize(layer[0], mesh, "x", &right, 1));
        destroy_layers(layer);
    }
}

/* A style of one's own, whose payload is what it returns. */
static sherd_status return_payload(const sherd_style *style, sherd_module *module,
                                   const sherd_mesh *mesh, int axis)
{
    (void)module, (void)mesh, (void)axis;
    return (sherd_status) * (const int *)style->payload;
}

MISUSE(whatever_a_style_returns_is_a_status)
{
    static const struct {
        int returned;
        sherd_status status;
    } styles[] = {{SHERD_ENOTSUP, SHERD_ENOTSUP}, {-77, SHERD_EINVAL},  {5, SHERD_EINVAL},
                  {INT32_MIN, SHERD_EINVAL},      {-256, SHERD_EINVAL}, {0, SHERD_OK}};
    static const int good = 0;
    const sherd_mesh *mesh = line(m->world);
    sherd_module *layer[LAYERS];

    make_layers(m->world, layer);
    for (int i = 0; i < LEN(styles); i++) {
        sherd_style style = {.apply = return_payload};
        style.payload = BAD(&styles[i].returned, &good);
        const sherd_parallel_entry plan = {"", style};
        ALL_REFUSE(styles[i].status, sherd_parallelize(layer[i], mesh, "x", &plan, 1));
    }
    destroy_layers(layer);
}

/* These are found when a tensor arrives. */
MISUSE(dims_that_no_tensor_has_are_found_in_the_call)
{
    const int64_t shape[] = {4, 4};
    const sherd_mesh *mesh = line(m->world);
    sherd_style far[] = {sherd_sequence_parallel(), sherd_sequence_parallel(),
                         sherd_prepare_input()};
    sherd_module *layer[LAYERS];

    make_layers(m->world, layer);
    far[0].sequence_dim = INT32_MAX;
    far[1].sequence_dim = INT32_MIN;
    far[2].desired = sherd_shard(INT32_MIN);
    for (int i = 0; i < LEN(far); i++) {
        const sherd_parallel_entry plan = {"", far[i]};
        CHECK_OK(sherd_parallelize(layer[i], mesh, "x", &plan, 1));
        sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
        CHECK(sherd_tensor_failed(sherd_module_call(layer[i], x)));
        CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
    }
    destroy_layers(layer);
}

MISUSE(a_granule_larger_than_all_keeps_all_on_one_rank)
{
    const sherd_mesh *mesh = line(m->world);
    sherd_parallel_entry plan = {"", sherd_colwise()};
    sherd_module *layer = linear(m->world);

    plan.style.granule = INT64_MAX;
    CHECK_OK(sherd_parallelize(layer, mesh, "x", &plan, 1));
    sherd_box box = sherd_tensor_box(sherd_module_parameter(layer, "weight"));
    CHECK_EQ(box.size[0], sherd_world_rank(m->world) == 0 ? 4 : 0);
    sherd_module_destroy(layer);
}

MISUSE(resharding_needs_a_module_a_mesh_and_an_axis)
{
    const int64_t shape[] = {4, 4};
    const sherd_mesh *mesh = line(m->world);
    sherd_module *layer[LAYERS];

    make_layers(m->world, layer);
    ALL_REFUSE(SHERD_EINVAL, sherd_input_reshard(NUL(layer[0]), mesh, "x", 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_input_reshard(layer[1], NUL(mesh), "x", 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_input_reshard(layer[2], mesh, NUL("x"), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_input_reshard(layer[3], mesh, BAD("", "x"), 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_input_reshard(NULL, NULL, NULL, 0));
    /* A dim that a tensor lacks is no mistake. */
    ALL_REFUSE(SHERD_OK, sherd_input_reshard(layer[4], mesh, "x", INT32_MIN));
    ALL_REFUSE(SHERD_OK, sherd_input_reshard(layer[4], mesh, "x", INT32_MAX));
    sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    CHECK(!sherd_tensor_failed(sherd_module_call(layer[4], x)));
    destroy_layers(layer);
}

static int beyond(const sherd_module *module, const char *name, void *payload)
{
    (void)module, (void)name, (void)payload;
    return 1 << 20;
}

MISUSE(sharding_needs_a_module_a_mesh_and_an_axis)
{
    const sherd_mesh *mesh = line(m->world), *other;
    const sherd_shard_options bad = {.min_elements = INT64_MIN}, good = {.min_elements = 0};
    static const char *const names[] = {NULL, "", ".", "*.*", "weight.*", "none"};
    const sherd_shard_options wrong[] = {
        {.unit = "none"},
        {.unit = "weight"},
        {.ignored_count = 1},
        {.ignored_count = -1},
        {.ignored = &names[0], .ignored_count = 1},
        {.ignored = &names[1], .ignored_count = 1},
        {.ignored = &names[2], .ignored_count = 3},
        {.ignored = &names[5], .ignored_count = 1},
        {.dim = beyond, .min_elements = 1},
        {.param_dtype = SHERD_I64},
        {.reduce_dtype = (sherd_dtype)-1},
        {.output_dtype = SHERD_BOOL},
    };
    sherd_module *layer[LAYERS];
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_mesh_parse(&other, second, "x=1"));
    make_layers(m->world, layer);
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(NUL(layer[0]), mesh, "x", NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[1], NUL(mesh), "x", NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[2], BAD(other, mesh), "x", NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[3], mesh, NUL("x"), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[4], mesh, BAD("y", "x"), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[5], mesh, "x", BAD(&bad, &good)));
    for (int i = 0; i < LEN(wrong); i++)
        ALL_REFUSE(SHERD_EINVAL, sherd_fully_shard(layer[5], mesh, "x", &wrong[i]));
    ALL_REFUSE(SHERD_OK, sherd_fully_shard(layer[6], mesh, "x", NULL));
    sherd_tensor *old = sherd_module_parameter(layer[6], "weight");
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, sherd_tensor_shape(old), 2, 1);
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(layer[6], "weight", t));
    ANSWERS(strstr(sherd_world_error(m->world),
                   "it is fully sharded, and the tensor plain: give it a layout") != NULL);
    CHECK_OK(sherd_module_set_parameter(layer[6], "weight",
                                        sherd_distribute(t, sherd_tensor_layout(old), -1)));
    ONLY_SAYS(SHERD_EINVAL, sherd_fully_shard(NULL, NULL, "x", NULL));
    sherd_module_hold_gathered(NULL, true);
    destroy_layers(layer);
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(making_a_module_parallel_needs_module_mesh_axis_and_plan), {1, 2, 3}},
    {TEST(distributing_a_module_needs_a_module_and_a_mesh), {1, 2, 3}},
    {TEST(a_style_is_made_of_good_numbers), {1, 2}},
    {TEST(experts_are_placed_whole), {1, 2, 3}},
    {TEST(whatever_a_style_returns_is_a_status), {1, 2, 3}},
    {TEST(dims_that_no_tensor_has_are_found_in_the_call), {1, 2}},
    {TEST(a_granule_larger_than_all_keeps_all_on_one_rank), {1, 2, 3}},
    {TEST(sharding_needs_a_module_a_mesh_and_an_axis), {1, 2, 3}},
    {TEST(resharding_needs_a_module_a_mesh_and_an_axis), {1, 2, 3}},
};
CHECK_MAIN(tests)
