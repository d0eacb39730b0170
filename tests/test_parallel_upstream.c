/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans that PyTorch's own tests try on an MLP: outputs, gradients and a step of SGD are those of
 * the plain model; with what is frozen, and with parameters that are sharded over another axis as
 * well.
 */
#include "styles.h"
#include "sherd/optimizer.h"

enum { IN = 10, HIDDEN = 16, OUT = 12, ROWS = 8, MOST_ENTRIES = 3 };

typedef struct scene {
    const char *name;
    sherd_parallel_entry plan[MOST_ENTRIES];
    int entries;
} scene;

static sherd_style placed(sherd_style style, sherd_placement input, sherd_placement output)
{
    style.input = input;
    style.output = output;
    return style;
}

enum { SCENES = 6 };

/* Slots must last until the plan has been applied. */
static void make_scenes(scene *s, const sherd_slot *in, const sherd_slot *out)
{
    const sherd_placement r = sherd_replicate(), rows = sherd_shard(0),
                          any = {SHERD_UNSET, 0, SHERD_SUM};
    const sherd_style col_whole = placed(sherd_colwise(), any, r);
    sherd_style both = sherd_prepare_input_output();

    both.inputs = in;
    both.outputs = out;
    both.input_count = both.output_count = 1;
    s[0] = (scene){"net*", {{"net*", col_whole}}, 1};
    s[1] = (scene){"net?", {{"net?", col_whole}}, 1};
    s[2] = (scene){"net[1-2]", {{"net[1-2]", col_whole}}, 1};
    s[3] = (scene){"each", {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}}, 2};
    s[4] = (scene){"sequence",
                   {{"", both},
                    {"net1", placed(sherd_colwise(), rows, any)},
                    {"net2", placed(sherd_rowwise(), any, rows)}},
                   3};
    s[5] = (scene){"output by rows",
                   {{"net1", sherd_colwise()}, {"net2", placed(sherd_rowwise(), any, rows)}},
                   2};
}

static sherd_tensor *input_of(sherd_world *world)
{
    return sherd_require_grad(wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 1, 1, 0), true);
}

static void step(sherd_module *m)
{
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, m, &(sherd_sgd_options){.momentum = 0.9}));
    sherd_optimizer_step(o, 0.25, 1);
    sherd_optimizer_clear(o);
    sherd_optimizer_destroy(o);
}

static void same_parameters(sherd_module *m, sherd_module *plain)
{
    static _Thread_local double expected[MOST];
    sherd_named_parameter a[8], b[8];
    int n = sherd_module_all_parameters(plain, a, 8);

    CHECK_EQ(sherd_module_all_parameters(m, b, 8), n);
    for (int i = 0; i < n; i++) {
        int64_t count = whole(a[i].tensor, expected);
        CHECK_NEAR(distance_to(b[i].tensor, expected, count), 0, 1e-12);
    }
}

static void every_plan_trains_like_the_plain_model(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {{NULL, sherd_replicate(), sherd_shard(0)}};
    const sherd_slot out[] = {{NULL, sherd_shard(0), sherd_replicate()}};
    sherd_tensor *target = wave(world, SHERD_F64, 2, SHAPE(ROWS, OUT), 5, 1, 0);
    scene scenes[SCENES];

    make_scenes(scenes, in, out);
    for (int i = 0; i < SCENES; i++) {
        sherd_tensor *x = input_of(world);
        sherd_module *plain = mlp(world, SHERD_F64, IN, HIDDEN, OUT);
        sherd_module *m = mlp(world, SHERD_F64, IN, HIDDEN, OUT);
        baseline e = {0};
        expect(&e, plain, x, target);
        sherd_clear_grad(x);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", scenes[i].plan, scenes[i].entries));
        compare(&e, m, x, target, 1e-11);
        step(plain);
        step(m);
        same_parameters(m, plain);
        if (sherd_world_check(world) != SHERD_OK)
            fprintf(stderr, "%s: %s\n", scenes[i].name, sherd_world_error(world));
        forget_baseline(&e);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void layers_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module *layers = sherd_module_find(self, "layers");

    out->count = 1;
    out->value[0] = in->value[0];
    for (int i = 0; i < sherd_module_children(layers); i++)
        out->value[0] = sherd_module_call(sherd_module_child(layers, i), out->value[0]);
}

static sherd_module *stack(sherd_world *world)
{
    static const char *const names[] = {"0", "1", "2"};
    sherd_module *m = container(world, layers_forward, NULL);
    sherd_module *layers = add_layer(m, "layers", container(world, NULL, NULL));

    for (int i = 0; i < LEN(names); i++)
        add_layer(layers, names[i], mlp(world, SHERD_F64, IN, HIDDEN, IN));
    return m;
}

/* I18, the stacked one: a pattern in each name of the path, and as many all-reduces each way as
 * there are layers. */
static void a_stack_is_split_by_patterns(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"layers.*.net[1]", sherd_colwise()},
                                         {"layers.*.net[2]", sherd_rowwise()}};
    sherd_tensor *target = wave(world, SHERD_F64, 2, SHAPE(ROWS, IN), 5, 1, 0);
    sherd_tensor *x = input_of(world);
    sherd_module *plain = stack(world), *m = stack(world);
    baseline e = {0};

    expect(&e, plain, x, target);
    sherd_clear_grad(x);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
    sherd_comm_reset(world);
    compare(&e, m, x, target, 1e-11);
    const sherd_comm_filter each[] = {{"all_reduce", "tp", "layers.*", SHERD_COMM_FORWARD},
                                      {"all_reduce", "tp", "layers.*", SHERD_COMM_BACKWARD}};
    for (int i = 0; i < LEN(each) && sherd_world_ranks(world) > 1; i++)
        CHECK_EQ(sherd_comm_calls(world, &each[i]), 3);
    forget_baseline(&e);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void bare_norm_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->count = 1;
    out->value[0] = sherd_layer_norm(in->value[0], NULL, NULL, 1e-5);
}

static sherd_module *of_positions(sherd_world *world, int kind, int64_t width)
{
    const sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_module *m = NULL;

    if (kind == 0)
        CHECK_OK(sherd_layer_norm_create(&m, world, width, &o));
    else if (kind == 1)
        m = container(world, bare_norm_forward, NULL);
    else if (kind == 2)
        CHECK_OK(sherd_rms_norm_create(&m, world, width, 0, &o));
    else
        CHECK_OK(sherd_dropout_create(&m, world, kind == 3 ? 0 : 0.5));
    return m;
}

/*
 * I13 to I16: modules that treat positions apart make no call, norms with and without weights,
 * dropout too; what arrives in another layout is moved, and its gradient moved back, once each.
 */
static void positions_are_split_without_a_call(sherd_world *world)
{
    static const int64_t shapes[][3] = {{20, 32, 12}, {2, 16, 32}, {2, 32, 40}, {2, 14, 20}};
    static _Thread_local double expected[MOST], gradient[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    bool many = sherd_world_ranks(world) > 1;

    for (int i = 0; i < 2 * 5 * LEN(shapes); i++) {
        int kind = i / 2 % 5, from = i % 2;
        const int64_t *shape = shapes[i / 10];
        sherd_tensor *x =
            wave(world, SHERD_F64, 3, SHAPE(shape[0] / 2, shape[1], shape[2]), 1, 1, 0);
        sherd_tensor *w =
            wave(world, SHERD_F64, 3, SHAPE(shape[0] / 2, shape[1], shape[2]), 3, 1, 0);
        sherd_module *plain = of_positions(world, kind, shape[2]);
        sherd_module *m = of_positions(world, kind, shape[2]);
        sherd_tensor *parts = sherd_require_grad(spread(x, mesh, from ? "S(0)" : "S(1)"), true), *y;
        y = sherd_module_call(plain, sherd_require_grad(x, true));
        sherd_backward(sherd_sum(sherd_mul(y, w)));
        int64_t n = whole(y, expected);
        whole(sherd_grad(x), gradient);
        w = spread(w, mesh, "S(1)");
        CHECK_OK(apply(m, mesh, sherd_sequence_parallel()));
        sherd_comm_reset(world);
        y = sherd_module_call(m, parts);
        sherd_backward(sherd_sum(sherd_mul(y, w)));
        sherd_grad(parts);
        CHECK_EQ(calls_logged(world), from && many ? 2 : 0);
        CHECK_TEXT(placements(y), "S(1)");
        CHECK_NEAR(distance_to(y, expected, n), 0, 1e-11);
        CHECK_NEAR(distance_to(sherd_grad(parts), gradient, n), 0, 1e-11);
        if (kind == 0 || kind == 2)
            CHECK_TEXT(placements(sherd__raw_grad(sherd_module_parameter(m, "weight"))), "P(sum)");
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Frozen before they are placed: they stay so, in all styles, and get no gradient. */
static void what_is_frozen_stays_frozen(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_style styles[] = {sherd_colwise(), sherd_rowwise()};

    for (int i = 0; i < LEN(styles); i++) {
        sherd_module *m = linear(world, 6, 4);
        sherd_require_grad(sherd_module_parameter(m, "weight"), false);
        CHECK_OK(apply(m, mesh, styles[i]));
        CHECK(!sherd_requires_grad(sherd_module_parameter(m, "weight")));
        CHECK(sherd_requires_grad(sherd_module_parameter(m, "bias")));
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 6), 1, 1, 0);
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        CHECK(sherd_grad(sherd_module_parameter(m, "weight")) == NULL);
        const double three[] = {3, 3, 3, 3};
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "bias")), three, 4), 0, 1e-12);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The batch over dp, features over tp, and pieces of parameters over dp: gradients are the plain
 * ones. */
static void parameters_may_be_sharded_over_both_axes(sherd_world *world)
{
    static const char *const meshes[] = {"dp=2,tp=2", "dp=4,tp=1", "dp=1,tp=4"};
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};

    for (int i = 0; i < LEN(meshes); i++) {
        const sherd_mesh *mesh = mesh_of(world, meshes[i]);
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, 32), 1, 1, 0);
        sherd_tensor *target = wave(world, SHERD_F64, 2, SHAPE(ROWS, 24), 5, 1, 0);
        sherd_module *plain = mlp(world, SHERD_F64, 32, 63, 24);
        sherd_module *m = mlp(world, SHERD_F64, 32, 63, 24);
        baseline e = {0};
        expect(&e, plain, sherd_require_grad(x, true), target);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 2));
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
        sherd_tensor *rows = sherd_require_grad(
            spread(wave(world, SHERD_F64, 2, SHAPE(ROWS, 32), 1, 1, 0), mesh, "S(0)R"), true);
        compare(&e, m, rows, spread(target, mesh, "S(0)R"), 1e-11);
        step(plain);
        step(m);
        same_parameters(m, plain);
        forget_baseline(&e);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * What PyTorch refuses, or warns of, when a plan is applied, and what is said here; errors of a
 * call are in test_parallel_slots.c. Lists of different lengths have no equivalent: a slot is one
 * thing.
 */
static void what_pytorch_refuses_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const struct {
        sherd_parallel_entry entry;
        const sherd_mesh *mesh;
        const char *axis, *text;
    } cases[] = {
        /* NotImplementedError: ColwiseParallel currently only support nn.Linear and
         * nn.Embedding! */
        {{"norm", sherd_colwise()}, mesh, "tp", "Colwise of module \"norm\": it takes a Linear or"},
        {{"norm", sherd_rowwise()}, mesh, "tp", "Rowwise of module \"norm\": it takes a Linear or"},
        {{"", sherd_colwise()}, mesh, "tp", "Colwise of module \"(root)\": it takes a Linear or"},
        /* UserWarning: Parallelize plan key could not be resolved */
        {{"net3", sherd_colwise()},
         mesh,
         "tp",
         "\"net3\" matches nothing: \"(root)\" has no child "},
        {{"net0.hello.world", sherd_colwise()}, mesh, "tp", "it has net1, net2, norm"},
        /* TypeError: Expect Union[ParallelStyle, Dict[str, ParallelStyle]] for parallelize_plan */
        {{.path = "net1"}, mesh, "tp", "an entry lacks its style"},
        /* RuntimeError: no device mesh; ValueError: 1D mesh */
        {{"net1", sherd_colwise()}, NULL, "tp", "mesh is NULL"},
        {{"net1", sherd_colwise()}, mesh, NULL, "has no axis \"(null)\""},
        {{"net1", sherd_colwise()}, mesh, "dp", "has no axis \"dp\""},
    };

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = mlp(world, SHERD_F64, IN, HIDDEN, OUT);
        norm_layer(m, "norm", SHERD_F64, 4, 1);
        CHECK_EQ(sherd_parallelize(m, cases[i].mesh, cases[i].axis, &cases[i].entry, 1),
                 SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), cases[i].text) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), cases[i].text);
        CHECK_TEXT(placements(sherd_module_parameter(sherd_module_find(m, "net1"), "weight")),
                   "plain");
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

static sherd_style named(void)
{
    static const sherd_slot slots[] = {{"y", {SHERD_SHARD, 0, SHERD_SUM}, {SHERD_REPLICATE, 0, 0}}};
    sherd_style style = sherd_prepare_input();

    style.inputs = slots;
    style.input_count = 1;
    return style;
}

static void first(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->count = 1;
    out->value[0] = in->value[0];
}

/* The same of a call: a mistake names the module, the style and what came. More of it in
 * test_parallel_slots.c. */
static void what_pytorch_refuses_of_a_call_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *row = sherd_constant(world, SHERD_F64, SHAPE(4), 1, 1);
    sherd_tensor *columns = spread(wave(world, SHERD_F64, 2, SHAPE(8, 4), 1, 1, 0), mesh, "S(1)");
    const sherd_args none = {.count = 0}, only_row = {.count = 1, .value = {row}},
                     two = {.count = 2, .value = {row, row}},
                     other = {.count = 2, .value = {row, row}, .name = {NULL, "z"}},
                     declared = {.count = 1, .value = {columns}};
    sherd_style rows = placed(sherd_prepare_input(), sherd_shard(0), sherd_replicate());
    rows.output = (sherd_placement){SHERD_UNSET, 0, SHERD_SUM};
    const struct {
        sherd_style style;
        const sherd_args *in;
        const char *text;
    } cases[] = {
        /* ValueError: expecting input of LayerNorm to be a torch.Tensor or DTensor, but got None */
        {sherd_sequence_parallel(), &none,
         "module \"(root)\" (SequenceParallel): no positional argument arrived"},
        {sherd_sequence_parallel(), &only_row,
         "f64[4] arrived: it lacks the dim that the style shards"},
        /* ValueError: module inputs and input_layouts should have same length! */
        {named(), &two, "2 positional inputs arrived, the style has slots for 0"},
        {named(), &other, "1 positional inputs arrived, the style has slots for 0"},
        {rows, &none, "(PrepareInput): no positional argument arrived"},
        /* Not looked at there. */
        {rows, &declared, "f64[8,4(tp)] on (tp="},
        {rows, &declared, "arrived: the style declares S(0) as input"},
    };

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = container(world, first, NULL);
        sherd_args out;
        CHECK_OK(apply(m, mesh, cases[i].style));
        sherd_module_run(m, cases[i].in, &out);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), cases[i].text) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), cases[i].text);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(every_plan_trains_like_the_plain_model), {1, 2, 3, 4, 8}},
    {TEST(a_stack_is_split_by_patterns), {1, 2, 3, 4}},
    {TEST(positions_are_split_without_a_call), {1, 2, 3, 4}},
    {TEST(what_pytorch_refuses_is_refused), {1, 2, 3}},
    {TEST(what_pytorch_refuses_of_a_call_is_refused), {2, 3}},
    {TEST(what_is_frozen_stays_frozen), {1, 2, 3}},
    {TEST(parameters_may_be_sharded_over_both_axes), {4}},
};
CHECK_MAIN(tests)
