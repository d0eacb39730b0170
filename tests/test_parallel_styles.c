/* SPDX-License-Identifier: Apache-2.0 */
/* Styles one by one: where things lie, what moves, what is refused. */
#include "styles.h"

/* Output and input gradient of `m` equal those of `plain`, and calls are as said. */
static void check_like(sherd_module *plain, sherd_module *m, sherd_tensor *x, const char *lies,
                       const char *leaves, int64_t forward, int64_t backward)
{
    static _Thread_local double expected[MOST], grad[MOST];
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *y, *weight = wave(world, SHERD_F64, 2, SHAPE(8, 16), 7, 1, 0), *loss;
    bool many = sherd_world_ranks(world) > 1;

    sherd_tensor *reference = sherd_module_call(plain, sherd_require_grad(x, true));
    sherd_backward(sherd_sum(sherd_mul(reference, weight)));
    whole(reference, expected);
    whole(sherd_grad(x), grad);
    x = sherd_require_grad(spread(x, line_of_ranks(world), lies), true);
    sherd_comm_reset(world);
    y = sherd_module_call(m, x);
    CHECK_EQ(calls_logged(world), many ? forward : 0);
    CHECK_TEXT(placements(y), leaves);
    weight = spread(weight, line_of_ranks(world), leaves);
    loss = sherd_sum(sherd_mul(y, weight));
    sherd_comm_reset(world);
    sherd_backward(loss);
    sherd_grad(x); /* settles it */
    CHECK_EQ(calls_logged(world), many ? backward : 0);
    CHECK_NEAR(distance_to(y, expected, 8 * 16), 0, 1e-12);
    CHECK_NEAR(distance_to(sherd_grad(x), grad, 8 * 16), 0, 1e-12);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "bias" : "weight";
        int64_t n = whole(sherd_grad(sherd_module_parameter(plain, name)), grad);
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, name)), grad, n), 0, 1e-12);
    }
}

/* The cases of upstream's own tests: what lies where, what leaves how, how many calls each way. */
static void linear_layers_move_what_upstreams_do(sherd_world *world)
{
    static const struct {
        bool row;
        const char *lies, *leaves;
        int input, output; /* shard dim + 1, 0 = unset */
        int forward, backward;
        bool keep;
    } c[] = {
        {false, "R", "S(1)", 0, 0, 0, 1, false},    /* I1 */
        {false, "S(0)", "S(1)", 1, 0, 1, 1, true},  /* I2 */
        {false, "S(0)", "S(1)", 1, 0, 1, 2, false}, /* gathered again in backward, scattered */
        {true, "S(1)", "R", 2, 0, 1, 0, false},     /* I4 */
        {true, "S(1)", "S(0)", 2, 1, 1, 1, false},  /* I5 */
        {true, "R", "R", 0, 0, 1, 1, false},        /* a slice; the gradient is gathered */
        {false, "R", "S(0)", 0, 1, 1, 2, false},    /* output moved from S(1) to S(0) and back */
    };

    for (int i = 0; i < LEN(c); i++) {
        sherd_module *plain = linear(world, 16, 16), *m = linear(world, 16, 16);
        sherd_style style = c[i].row ? sherd_rowwise() : sherd_colwise();
        if (c[i].input)
            style.input = sherd_shard(c[i].input - 1);
        if (c[i].output)
            style.output = sherd_shard(c[i].output - 1);
        style.keep_gathered = c[i].keep;
        CHECK_OK(apply(m, line_of_ranks(world), style));
        CHECK_TEXT(placements(sherd_module_parameter(m, "weight")), c[i].row ? "S(1)" : "S(0)");
        CHECK_TEXT(placements(sherd_module_parameter(m, "bias")), c[i].row ? "R" : "S(0)");
        check_like(plain, m, wave(world, SHERD_F64, 2, SHAPE(8, 16), 17, 1, 0), c[i].lies,
                   c[i].leaves, c[i].forward, c[i].backward);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* I3, I6 and I7: forward one call or none; backward only the gradient of a scattered output is
 * gathered. */
static void tables_split_by_width_or_by_entry(sherd_world *world)
{
    static _Thread_local double expected[MOST], grad[MOST];
    static const int32_t numbers[] = {0, 6, 3, 3, 1, 6, 2, 5};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *c = wave(world, SHERD_F64, 3, SHAPE(4, 2, 5), 7, 1, 0);
    int many = sherd_world_ranks(world) > 1;

    for (int row = 0; row < 3; row++) {
        sherd_module *plain = table(world, 7, 5), *m = table(world, 7, 5);
        sherd_tensor *ids =
            sherd_mark_equal(sherd_from_data(world, SHERD_I32, SHAPE(4, 2), 2, numbers));
        sherd_style style = row ? sherd_rowwise() : sherd_colwise();
        const char *leaves = row == 0 ? "S(2)" : row == 1 ? "R" : "S(1)";
        sherd_tensor *y = sherd_module_call(plain, ids);

        sherd_backward(sherd_sum(sherd_mul(y, c)));
        whole(y, expected);
        whole(sherd_grad(sherd_module_parameter(plain, "weight")), grad);
        if (row == 2)
            style.output = sherd_shard(1);
        CHECK_OK(apply(m, mesh, style));
        CHECK_TEXT(placements(sherd_module_parameter(m, "weight")), row ? "S(0)" : "S(1)");
        sherd_comm_reset(world);
        y = sherd_module_call(m, row == 1 ? spread(ids, mesh, "R") : ids);
        CHECK_EQ(calls_logged(world), row && many);
        CHECK_TEXT(placements(y), leaves);
        CHECK_EQ(distance_to(y, expected, 40), 0);
        sherd_tensor *loss = sherd_sum(sherd_mul(y, spread(c, mesh, leaves)));
        sherd_comm_reset(world);
        sherd_backward(loss);
        sherd_grad(sherd_module_parameter(m, "weight"));
        CHECK_EQ(calls_logged(world), row == 2 && many);
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "weight")), grad, 35), 0,
                   1e-12);
        sherd_module_destroy(plain);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_granule_stays_on_one_rank(sherd_world *world)
{
    static const int64_t features[] = {12, 10, 3, 7, 48};
    const sherd_mesh *mesh = line_of_ranks(world);
    int p = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int i = 0; i < LEN(features); i++)
        for (int64_t g = 1; g <= 5; g++) {
            int64_t n = features[i], units = (n + g - 1) / g, chunk = (units + p - 1) / p;
            int64_t lo = rank * chunk * g < n ? rank * chunk * g : n;
            int64_t hi = (rank + 1) * chunk * g < n ? (rank + 1) * chunk * g : n;
            sherd_module *col = linear(world, 4, n), *row = linear(world, n, 4);
            sherd_style a = sherd_colwise(), b = sherd_rowwise();
            a.granule = b.granule = g;
            CHECK_OK(apply(col, mesh, a));
            CHECK_OK(apply(row, mesh, b));
            sherd_box box = sherd_tensor_box(sherd_module_parameter(col, "weight"));
            CHECK_EQ(box.size[0], hi - lo);
            CHECK_EQ(box.size[0] ? box.offset[0] : lo, lo);
            CHECK_EQ(sherd_tensor_box(sherd_module_parameter(col, "bias")).size[0], hi - lo);
            CHECK_EQ(sherd_tensor_box(sherd_module_parameter(row, "weight")).size[1], hi - lo);
            /* One feeds the other: nothing moves but the sum. */
            sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(3, 4), 1, 1, 0), mesh, "R");
            sherd_comm_reset(world);
            sherd_module_call(row, sherd_module_call(col, x));
            CHECK_EQ(calls_logged(world), p > 1);
            sherd_module_destroy(col);
            sherd_module_destroy(row);
        }
    CHECK_OK(sherd_world_check(world));
}

/* A Rowwise input that is cut elsewhere than the weight is moved to the weight's cuts. */
static void an_input_follows_the_weights_cuts(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = linear(world, 10, 4), *m = linear(world, 10, 4);
    sherd_style style = sherd_rowwise();
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 10), 1, 1, 0);

    style.granule = 4;
    CHECK_OK(apply(m, mesh, style));
    whole(sherd_module_call(plain, x), expected);
    CHECK_NEAR(distance_to(sherd_module_call(m, spread(x, mesh, "S(1)")), expected, 12), 0, 1e-13);
    CHECK_NEAR(distance_to(sherd_module_call(m, spread(x, mesh, "S(0)")), expected, 12), 0, 1e-13);
    sherd_tensor *copies = spread(x, mesh, "R");
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_module_call(m, copies);
    CHECK_EQ(calls_logged(world),
             sherd_world_ranks(world) > 1); /* sliced right away: the sum only */
    CHECK_NEAR(distance_to(y, expected, 12), 0, 1e-13);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Cuts are those of a weight as long as the input, where one axis alone shards the dim. */
static void cuts_of_another_size_or_axis_are_not_followed(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    static const char *const lies[] = {"RR", "RS(1)", "S(1)R", "S(1)S(1)", "S(0)S(1)"};
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    sherd_module *plain = linear(world, 10, 4), *m = linear(world, 10, 4);
    sherd_style style = sherd_rowwise();
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 10), 1, 1, 0);
    sherd_tensor *longer = wave(world, SHERD_F64, 2, SHAPE(3, 12), 1, 1, 0);

    style.granule = 4;
    CHECK_OK(sherd_parallelize(m, mesh, sherd_mesh_axis_name(mesh, 1),
                               &(sherd_parallel_entry){"", style}, 1));
    whole(sherd_module_call(plain, x), expected);
    for (int i = 0; i < LEN(lies); i++) {
        sherd_tensor *y = sherd_module_call(m, spread(x, mesh, lies[i]));
        CHECK_NEAR(distance_to(y, expected, 12), 0, 1e-13);
        CHECK_OK(sherd_world_check(world));
        CHECK(sherd_tensor_failed(sherd_module_call(m, spread(longer, mesh, lies[i]))));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_linear: ") != NULL);
    }
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A weight that lies otherwise later: then the input follows that, or has cuts of its own. */
static void an_input_follows_a_weight_that_is_replaced(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const int64_t some[] = {7, 3}, *const sizes[] = {NULL, some};
    const sherd_placement first[] = {sherd_shard(1), sherd_replicate()};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 8 ? "2x4" : "2x2");
    sherd_module *plain = linear(world, 10, 4), *m = linear(world, 10, 4);
    sherd_style style = sherd_rowwise();
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(3, 10), 1, 1, 0);
    const sherd_layout *lies[4] = {NULL};

    style.granule = 4;
    CHECK_OK(sherd_parallelize(m, mesh, sherd_mesh_axis_name(mesh, 1),
                               &(sherd_parallel_entry){"", style}, 1));
    whole(sherd_module_call(plain, x), expected);
    sherd_tensor *weight = sherd_tensor_retain(sherd_module_parameter(m, "weight"));
    CHECK_OK(sherd_layout_create(&lies[0], mesh, 2, SHAPE(4, 10), first,
                                 &(sherd_layout_options){.sizes = sizes}));
    CHECK_OK(sherd_layout_parse_placements(&lies[1], mesh, 2, SHAPE(4, 10), "S(1)S(1)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&lies[2], mesh, 2, SHAPE(4, 10), "RS(1)", NULL));
    lies[3] = sherd_tensor_layout(weight);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < LEN(lies); i++) {
            sherd_tensor *moved = sherd_detach(sherd_redistribute(weight, lies[i], NULL));
            sherd_tensor *input = spread(x, mesh, k ? "RS(1)" : "RR");
            CHECK_OK(sherd_module_set_parameter(m, "weight", sherd_require_grad(moved, true)));
            sherd_comm_reset(world);
            CHECK_NEAR(distance_to(sherd_module_call(m, input), expected, 12), 0, 1e-13);
            if (k == 0 && i >= 2) /* sliced right away: the sum only */
                CHECK_EQ(calls_logged(world), 1);
        }
    sherd_tensor_release(weight);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Nor has a dim granules that an axis shards already. */
static void a_dim_that_is_sharded_has_no_granules(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    sherd_module *m = linear(world, 10, 4);
    sherd_parallel_entry entry = {"", sherd_rowwise()};

    CHECK_OK(sherd_parallelize(m, mesh, sherd_mesh_axis_name(mesh, 0), &entry, 1));
    entry.style.granule = 2;
    CHECK_EQ(sherd_parallelize(m, mesh, sherd_mesh_axis_name(mesh, 1), &entry, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "leaves no granules whole") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* The same module, called with one size and layout after another. */
static void a_module_takes_any_size(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    static const char *const lies[] = {"R", "S(0)", "S(1)"};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *plain = linear(world, 6, 4), *col = linear(world, 6, 4),
                 *row = linear(world, 6, 4);
    sherd_style scattered = sherd_rowwise();

    scattered.output = sherd_shard(0);
    CHECK_OK(apply(col, mesh, sherd_colwise()));
    CHECK_OK(apply(row, mesh, scattered));
    for (int i = 0; i < 12; i++) {
        int64_t rows = 1 + 7 * i % 5;
        sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(rows, 6), 1 + i, 1, 0);
        whole(sherd_module_call(plain, x), expected);
        x = spread(x, mesh, lies[i % 3]);
        CHECK_NEAR(distance_to(sherd_module_call(col, x), expected, rows * 4), 0, 1e-13);
        CHECK_NEAR(distance_to(sherd_module_call(row, x), expected, rows * 4), 0, 1e-13);
    }
    sherd_module_destroy(plain);
    sherd_module_destroy(col);
    sherd_module_destroy(row);
    CHECK_OK(sherd_world_check(world));
}

/* With weights of zero the output is the bias: once, not once a rank. */
static void a_rowwise_bias_counts_once(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int scattered = 0; scattered < 2; scattered++) {
        double expected[8];
        sherd_module *m = linear(world, 6, 4);
        sherd_style style = sherd_rowwise();
        sherd_tensor *zero = sherd_constant(world, SHERD_F64, SHAPE(4, 6), 2, 0);
        if (scattered)
            style.output = sherd_shard(0);
        CHECK_OK(sherd_module_set_parameter(m, "weight", sherd_require_grad(zero, true)));
        for (int i = 0; i < 8; i++)
            expected[i] = 0.1 * sin(0.1 * (i % 4 + 1) * 2);
        CHECK_OK(apply(m, mesh, style));
        sherd_tensor *y = sherd_module_call(
            m, spread(wave(world, SHERD_F64, 2, SHAPE(2, 6), 1, 1, 0), mesh, "R"));
        CHECK_NEAR(distance_to(y, expected, 8), 0, 1e-15);
        sherd_backward(sherd_sum(y));
        double two[4] = {2, 2, 2, 2};
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "bias")), two, 4), 0, 1e-15);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- SequenceParallel, PrepareInput --------------------------------------------------------- */

static void sequences_are_normalised_in_parts(sherd_world *world)
{
    static _Thread_local double expected[MOST], grad[2][12];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 1, 1, 0);
    sherd_tensor *c = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 9, 1, 0);
    sherd_module *plain = NULL, *m = NULL;

    CHECK_OK(sherd_layer_norm_create(&plain, world, 12, &o));
    CHECK_OK(sherd_layer_norm_create(&m, world, 12, &o));
    sherd_tensor *y = sherd_module_call(plain, x);
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    whole(y, expected);
    whole(sherd_grad(sherd_module_parameter(plain, "weight")), grad[0]);
    whole(sherd_grad(sherd_module_parameter(plain, "bias")), grad[1]);
    CHECK_OK(apply(m, mesh, sherd_sequence_parallel()));
    sherd_tensor *parts = spread(x, mesh, "S(1)");
    c = spread(c, mesh, "S(1)");
    sherd_comm_reset(world);
    y = sherd_module_call(m, parts);
    sherd_backward(sherd_sum(sherd_mul(y, c)));
    CHECK_EQ(calls_logged(world), 0);
    CHECK_TEXT(placements(y), "S(1)");
    CHECK_TEXT(placements(sherd__raw_grad(sherd_module_parameter(m, "weight"))), "P(sum)");
    CHECK_NEAR(distance_to(y, expected, 180), 0, 1e-13);
    CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "weight")), grad[0], 12), 0, 1e-12);
    CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "bias")), grad[1], 12), 0, 1e-12);
    /* What lies otherwise is moved; each rank's own positions are joined, 5 of them on any
     * number. */
    CHECK_NEAR(distance_to(sherd_module_call(m, spread(x, mesh, "R")), expected, 180), 0, 1e-13);
    CHECK_NEAR(distance_to(sherd_module_call(m, spread(x, mesh, "S(0)")), expected, 180), 0, 1e-13);
    sherd_box box = sherd_tensor_box(parts);
    sherd_tensor *own = sherd_from_data(world, SHERD_F64, box.size, 3, sherd_tensor_read(parts));
    y = sherd_module_call(m, own);
    CHECK_NEAR(distance_to(y, expected, 180), 0, 1e-13);
    CHECK_TEXT(placements(y), "S(1)");
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* What is added before the norm goes where x is; both results lie as x. */
static void a_sum_is_normalised_where_x_is(sherd_world *world)
{
    static const char *const ways[] = {"S(1)", "R", "S(2)"};
    static _Thread_local double norm[MOST], sum[MOST], grad[MOST];
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_layer_options o = {.dtype = SHERD_F64};
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 1, 1, 0);
    sherd_tensor *delta = wave(world, SHERD_F64, 3, SHAPE(3, 5, 12), 9, 1, 0);
    sherd_module *m = NULL;

    CHECK_OK(sherd_layer_norm_create(&m, world, 12, &o));
    whole(sherd_add(x, delta), sum);
    sherd_tensor *h = sherd_module_call(m, sherd_add(x, delta));
    sherd_backward(sherd_sum(sherd_mul(h, x)));
    whole(h, norm);
    whole(sherd_grad(sherd_module_parameter(m, "weight")), grad);
    sherd_clear_grad(sherd_module_parameter(m, "weight"));
    CHECK_OK(apply(m, mesh, sherd_sequence_parallel()));
    for (int i = 0; i < LEN(ways); i++) {
        const sherd_args in = {.count = 2,
                               .value = {spread(x, mesh, "S(1)"), spread(delta, mesh, ways[i])}};
        sherd_args out;
        sherd_module_run(m, &in, &out);
        CHECK_EQ(out.count, 2);
        CHECK_TEXT(placements(out.value[0]), "S(1)");
        CHECK_TEXT(placements(out.value[1]), "S(1)");
        CHECK_NEAR(distance_to(out.value[0], norm, 180), 0, 1e-13);
        CHECK_EQ(distance_to(out.value[1], sum, 180), 0);
        sherd_backward(sherd_sum(sherd_mul(out.value[0], spread(x, mesh, "S(1)"))));
        CHECK_NEAR(distance_to(sherd_grad(sherd_module_parameter(m, "weight")), grad, 12), 0,
                   1e-12);
        sherd_clear_grad(sherd_module_parameter(m, "weight"));
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void a_sequence_dim_may_count_from_the_end(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_style style = sherd_sequence_parallel();
    sherd_module *m = NULL;
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(5, 4), 1, 1, 0), mesh, "R");

    CHECK_OK(sherd_dropout_create(&m, world, 0));
    style.sequence_dim = -2;
    CHECK_OK(apply(m, mesh, style));
    CHECK_TEXT(placements(sherd_module_call(m, x)), "S(0)");
    CHECK_OK(sherd_world_check(world));
    /* A tensor without that dim is an error. */
    sherd_tensor *row = sherd_constant(world, SHERD_F64, SHAPE(4), 1, 1);
    CHECK(sherd_tensor_failed(sherd_module_call(m, row)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_module_destroy(m);
}

/* The value in the style is the dim: 0 is the first. */
static void a_sequence_dim_is_the_dim_that_it_says(sherd_world *world)
{
    static const char *const lies[] = {"S(0)", "S(1)", "S(2)"};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 3, SHAPE(5, 7, 4), 1, 1, 0), mesh, "R");

    CHECK_EQ(sherd_sequence_parallel().sequence_dim, 1);
    for (int dim = -3; dim < 3; dim++) {
        sherd_style style = sherd_sequence_parallel();
        sherd_module *m = NULL;
        CHECK_OK(sherd_dropout_create(&m, world, 0));
        style.sequence_dim = dim;
        CHECK_OK(apply(m, mesh, style));
        CHECK_TEXT(placements(sherd_module_call(m, x)), lies[(dim + 3) % 3]);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void echo(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    *out = *in;
}

/* Only the first positional argument moves; all others survive the hook. */
static void prepare_input_moves_the_first_argument(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, echo, NULL);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(7, 3), 1, 1, 0), mesh, "S(0)");
    sherd_tensor *y = sherd_constant(world, SHERD_F64, SHAPE(2), 1, 1);
    sherd_args in = {.count = 3, .value = {x, y, x}, .name = {NULL, NULL, "k"}}, out;
    sherd_style style = sherd_prepare_input();

    style.input = sherd_shard(0);
    CHECK_OK(apply(m, mesh, style));
    sherd_module_run(m, &in, &out);
    CHECK_EQ(out.count, 3);
    CHECK_TEXT(placements(out.value[0]), "R");
    CHECK(out.value[1] == y && out.value[2] == x && strcmp(out.name[2], "k") == 0);
    sherd_module_destroy(m);

    m = container(world, echo, NULL);
    style.desired = sherd_shard(-1);
    CHECK_OK(apply(m, mesh, style));
    CHECK_TEXT(placements(sherd_module_call(m, x)), "S(1)");
    CHECK_OK(sherd_world_check(world)); /* before one rank raises the alarm */
    in.count = 0;
    sherd_module_run(m, &in, &out);
    CHECK(sherd_tensor_failed(out.value[0]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "no positional argument") != NULL);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(linear_layers_move_what_upstreams_do), {1, 2, 3, 4}},
    {TEST(tables_split_by_width_or_by_entry), {1, 2, 3, 8}},
    {TEST(a_granule_stays_on_one_rank), {1, 2, 3, 4}},
    {TEST(an_input_follows_the_weights_cuts), {1, 2, 3, 4}},
    {TEST(cuts_of_another_size_or_axis_are_not_followed), {4}},
    {TEST(an_input_follows_a_weight_that_is_replaced), {4, 8}},
    {TEST(a_dim_that_is_sharded_has_no_granules), {4}},
    {TEST(a_module_takes_any_size), {1, 2, 3, 4}},
    {TEST(a_rowwise_bias_counts_once), {1, 2, 3, 4}},
    {TEST(sequences_are_normalised_in_parts), {2, 3, 8}},
    {TEST(a_sum_is_normalised_where_x_is), {2, 3}},
    {TEST(a_sequence_dim_may_count_from_the_end), {2, 3}},
    {TEST(a_sequence_dim_is_the_dim_that_it_says), {2, 3}},
    {TEST(prepare_input_moves_the_first_argument), {2, 3}},
};
CHECK_MAIN(tests)
