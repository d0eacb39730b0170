/* SPDX-License-Identifier: Apache-2.0 */
/* The Prepare styles with a slot for every tensor: positional and named inputs, outputs, empty
 * slots, local tensors. */
#include "styles.h"

/* All inputs, in their order, as outputs; names go. */
static void echo(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->count = in->count;
    for (int i = 0; i < in->count; i++)
        out->value[i] = in->value[i];
}

/* A piece of its own on each rank: rows rows of `cols`, all holding the rank. */
static sherd_tensor *piece(sherd_world *world, int64_t rows, int64_t cols)
{
    static _Thread_local double data[MOST];

    for (int64_t i = 0; i < rows * cols; i++)
        data[i] = sherd_world_rank(world);
    return sherd_from_data(world, SHERD_F64, SHAPE(rows, cols), 2, data);
}

static sherd_style with(sherd_style style, const sherd_slot *in, int ins, const sherd_slot *out,
                        int outs)
{
    style.inputs = in;
    style.input_count = ins;
    style.outputs = out;
    style.output_count = outs;
    return style;
}

static sherd_slot slot(sherd_placement lies, sherd_placement desired)
{
    return (sherd_slot){NULL, lies, desired};
}

static sherd_slot named(const char *name, sherd_placement lies, sherd_placement desired)
{
    return (sherd_slot){name, lies, desired};
}

/* How the only output of an echo lies. */
static const char *echoed(sherd_module *m, sherd_tensor *x)
{
    return placements(sherd_module_call(m, x));
}

static void pieces_are_joined_and_moved(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {slot(sherd_shard(0), sherd_replicate())};
    sherd_module *m = container(world, echo, NULL);
    int64_t ranks = sherd_world_ranks(world);
    static _Thread_local double have[MOST];

    CHECK_OK(apply(m, mesh, with(sherd_prepare_input(), in, 1, NULL, 0)));
    sherd_tensor *y = sherd_module_call(m, piece(world, 2, 16));
    CHECK_EQ(sherd_tensor_shape(y)[0], 2 * ranks);
    CHECK_TEXT(placements(y), "R");
    CHECK_EQ(whole(y, have), 32 * ranks);
    for (int64_t i = 0; i < 32 * ranks; i++)
        CHECK_EQ(have[i], i / 32);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* An empty slot takes whatever comes: plain, of unknown origin, an index, on another mesh, nothing
 * at all. */
static void empty_slots_leave_alone(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {
        slot(sherd_shard(0), sherd_replicate()), {.name = NULL}, {.name = NULL}};
    sherd_module *m = container(world, echo, NULL);
    sherd_tensor *odd = sherd_constant(world, SHERD_I32, SHAPE(3), 1, 7);
    sherd_args args = {.count = 3, .value = {piece(world, 1, 4), piece(world, 1, 2), odd}}, out;
    sherd_tensor *second = args.value[1];

    CHECK_OK(apply(m, mesh, with(sherd_prepare_input(), in, 3, NULL, 0)));
    sherd_module_run(m, &args, &out);
    CHECK_TEXT(placements(out.value[0]), "R");
    CHECK(out.value[1] == second);
    CHECK(out.value[2] == odd);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void first_of(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->count = 1;
    out->value[0] = in->value[0];
}

static void nothing_may_come_to_an_empty_slot(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {slot(sherd_shard(0), sherd_replicate()),
                             {.name = NULL},
                             named("mask", sherd_replicate(), sherd_shard(0))};
    sherd_module *m = container(world, first_of, NULL);
    sherd_args args = {.count = 3, .value = {piece(world, 1, 4)}, .name = {NULL, NULL, "mask"}};
    sherd_args out;

    CHECK_OK(apply(m, mesh, with(sherd_prepare_input(), in, 3, NULL, 0)));
    sherd_module_run(m, &args, &out);
    CHECK_TEXT(placements(out.value[0]), "R");
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Named inputs are found by their names, in any order; those without a slot stay. One move each. */
static void named_inputs_are_moved(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {named("x", sherd_shard(0), sherd_replicate()),
                             named("z", sherd_shard(0), sherd_shard(1))};
    sherd_module *m = container(world, echo, NULL);
    int many = sherd_world_ranks(world) > 1;

    CHECK_OK(apply(m, mesh, with(sherd_prepare_input(), in, 2, NULL, 0)));
    for (int spread_before = 0; spread_before < 2; spread_before++) {
        sherd_tensor *x = piece(world, 2, 6), *y = piece(world, 2, 6), *z = piece(world, 2, 6);
        if (spread_before) { /* the same when they are distributed already */
            x = spread(wave(world, SHERD_F64, 2, SHAPE(7, 6), 1, 1, 0), mesh, "S(0)");
            z = spread(wave(world, SHERD_F64, 2, SHAPE(7, 6), 2, 1, 0), mesh, "S(0)");
        }
        sherd_args out, args = {.count = 3, .value = {z, y, x}, .name = {"z", "y", "x"}};
        CHECK_OK(sherd_world_check(world));
        int64_t moves = 0;
        sherd_comm_reset(world);
        sherd_module_run(m, &args, &out);
        for (int i = 0; i < sherd_comm_count(world); i++)
            if (strcmp(sherd_comm_get(world, i).op, "share") != 0)
                moves += sherd_comm_get(world, i).calls;
        CHECK_EQ(moves, 2 * many);
        CHECK_TEXT(placements(out.value[0]), "S(1)");
        CHECK(out.value[1] == y);
        CHECK_TEXT(placements(out.value[2]), "R");
    }
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void inputs_may_reach_the_forward_as_plain_ones(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {slot(sherd_shard(0), sherd_shard(1)), {.name = NULL}};
    sherd_style style = with(sherd_prepare_input(), in, 2, NULL, 0);
    sherd_module *m = container(world, echo, NULL);
    sherd_tensor *all = spread(wave(world, SHERD_F64, 2, SHAPE(5, 7), 1, 1, 0), mesh, "S(0)");
    sherd_args args = {.count = 2, .value = {all, all}}, out;

    style.local_input = true;
    CHECK_OK(apply(m, mesh, style));
    sherd_module_run(m, &args, &out);
    CHECK_TEXT(placements(out.value[0]), "plain");
    int64_t lo = 0, p = sherd_world_ranks(world), chunk = (7 + p - 1) / p;
    lo = 7 - chunk * sherd_world_rank(world);
    CHECK_EQ(sherd_tensor_shape(out.value[0])[0], 5);
    CHECK_EQ(sherd_tensor_shape(out.value[0])[1], lo < 0 ? 0 : lo < chunk ? lo : chunk);
    CHECK(out.value[1] == all);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* R -> S(0) of an output that is replicated, as pieces of chunks; the second is left alone. */
static void outputs_are_moved(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot out_slots[] = {slot(sherd_replicate(), sherd_shard(0)), {.name = NULL}};
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(16, 7), 1, 1, 0);
    sherd_tensor *scalar = sherd_constant(world, SHERD_F64, NULL, 0, 1);
    double expected[16 * 7];

    whole(x, expected);
    for (int way = 0; way < 4; way++) {
        sherd_module *m = container(world, echo, NULL);
        sherd_style style = way % 2 ? sherd_prepare_input_output() : sherd_prepare_output();
        const sherd_slot free_in[] = {{.name = NULL}, {.name = NULL}};
        style = with(style, way % 2 ? free_in : NULL, way % 2 ? 2 : 0, out_slots, 2);
        style.to_local = way >= 2;
        CHECK_OK(apply(m, mesh, style));
        sherd_args args = {.count = 2, .value = {spread(x, mesh, "R"), scalar}}, out;
        sherd_module_run(m, &args, &out);
        CHECK_TEXT(placements(out.value[0]), way >= 2 ? "plain" : "S(0)");
        if (way < 2)
            CHECK_EQ(distance_to(out.value[0], expected, 16 * 7), 0);
        CHECK(out.value[1] == scalar);
        sherd_module_destroy(m);
    }
    /* Without slots all of them. */
    sherd_module *m = container(world, echo, NULL);
    sherd_style style = sherd_prepare_output();
    style.output = sherd_shard(0);
    CHECK_OK(apply(m, mesh, style));
    CHECK_TEXT(echoed(m, spread(x, mesh, "R")), "S(0)");
    CHECK_TEXT(echoed(m, x), "S(0)"); /* plain and equal: the whole */
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* (5, 7) pieces joined along 0, made whole, and handed on along 1; gradients come back to the
 * pieces. */
static void both_sides_together(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {slot(sherd_shard(0), sherd_replicate())};
    const sherd_slot out[] = {slot(sherd_replicate(), sherd_shard(1))};
    sherd_module *m = container(world, echo, NULL);
    sherd_tensor *x = piece(world, 5, 7);

    CHECK_OK(apply(m, mesh, with(sherd_prepare_input_output(), in, 1, out, 1)));
    sherd_require_grad(x, true);
    sherd_tensor *y = sherd_module_call(m, x);
    CHECK_TEXT(placements(y), "S(1)");
    CHECK_EQ(sherd_tensor_shape(y)[0], 5 * sherd_world_ranks(world));
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    const double *grad = sherd_tensor_read(sherd_grad(x));
    for (int i = 0; grad && i < 35; i++)
        CHECK_EQ(grad[i], 2 * sherd_world_rank(world));
    CHECK(grad != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what is refused ------------------------------------------------------------------------ */

static void refused(sherd_world *world, const char *text)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), text);
}

/* x as the part that each rank has of a reduction. */
static sherd_tensor *pending(sherd_tensor *x, const sherd_mesh *mesh, sherd_reduce_op op)
{
    const sherd_placement placement = sherd_partial(op);

    return sherd_from_local(sherd_full(x), mesh, &placement, NULL);
}

static void what_does_not_fit_the_slots_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_slot in[] = {slot(sherd_shard(0), sherd_replicate()),
                             {.name = NULL},
                             named("mask", sherd_shard(0), sherd_replicate())};
    const sherd_slot unsaid[] = {slot(sherd_partial(SHERD_SUM), sherd_replicate())};
    sherd_module *root = container(world, NULL, NULL);
    sherd_module *m = add_layer(root, "m", container(world, first_of, NULL));
    sherd_module *n = add_layer(root, "n", container(world, echo, NULL));
    sherd_module *o = add_layer(root, "o", container(world, echo, NULL));
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(6, 4), 1, 1, 0), mesh, "S(0)");
    sherd_tensor *columns = spread(sherd_full(x), mesh, "S(1)");
    const sherd_slot bare[] = {slot((sherd_placement){SHERD_UNSET, 0, SHERD_SUM}, sherd_shard(0))};
    const sherd_parallel_entry plan[] = {{"m", with(sherd_prepare_input(), in, 3, NULL, 0)},
                                         {"n", with(sherd_prepare_output(), NULL, 0, unsaid, 1)},
                                         {"o", with(sherd_prepare_input(), bare, 1, NULL, 0)}};
    sherd_args args = {.count = 3, .value = {x, x, x}, .name = {NULL, NULL, "mask"}}, out;
    bool alone = sherd_world_ranks(world) == 1;

    CHECK_OK(sherd_parallelize(root, mesh, "tp", plan, 3));
    sherd_module_run(m, &args, &out);
    CHECK_OK(sherd_world_check(world));

    args.name[2] = NULL;
    sherd_module_run(m, &args, &out);
    refused(world, "\"m\" (PrepareInput): 3 positional inputs arrived, the style has slots for 2");
    args.name[2] = "masc";
    sherd_module_run(m, &args, &out);
    refused(world, "no input \"mask\" arrived");
    args.name[2] = "mask";
    args.value[0] = NULL;
    sherd_module_run(m, &args, &out);
    refused(world, "\"m\" (PrepareInput): input 0: no tensor arrived");
    args.value[0] = x;
    if (!alone) { /* a declared placement is checked, which upstream does not */
        args.value[2] = columns;
        sherd_module_run(m, &args, &out);
        refused(world, "input \"mask\": f64[6,4(tp)] on (tp=");
        args.value[2] = x;
        sherd_module_call(n, x);
        refused(world, "\"n\" (PrepareOutput on axis tp): output 0: f64[6(tp),4]");
        CHECK(strstr(sherd_world_error(world), "came out: the style declares P(sum) as output"));
        sherd_module_call(n, pending(x, mesh, SHERD_MAX));
        refused(world, "came out: the style declares P(sum) as output");
    }
    CHECK(!sherd_tensor_failed(sherd_module_call(n, pending(x, mesh, SHERD_SUM))));
    CHECK_OK(sherd_world_check(world));
    args.count = 2;
    sherd_module_run(n, &args, &out);
    refused(world, "2 outputs came out, the style has slots for 1");
    /* Upstream ignores a desired placement where no present one is declared. Here it is done, or it
     * can't be. */
    CHECK_TEXT(echoed(o, spread(sherd_full(x), mesh, "R")), "S(0)");
    CHECK_OK(sherd_world_check(world));
    sherd_module_call(o, piece(world, 2, 2));
    refused(world, "it is plain, and nothing says how its pieces lie");
    sherd_module_destroy(root);
}

static void slots_that_make_no_sense_are_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement r = sherd_replicate();
    const sherd_slot late[] = {named("a", r, r), slot(r, r)};
    const sherd_slot twice[] = {named("a", r, r), named("a", r, r)};
    const sherd_slot empty[] = {named("", r, r)};
    const sherd_slot wrong[] = {slot(sherd_partial((sherd_reduce_op)9), r)};
    const sherd_slot good[] = {slot(r, r)};
    sherd_style stray = sherd_prepare_output();
    stray.input = r;
    const struct {
        sherd_style style;
        const char *text;
    } cases[] = {
        {with(sherd_prepare_input(), late, 2, NULL, 0), "a slot without a name comes after"},
        {with(sherd_prepare_input(), twice, 2, NULL, 0), "two slots have one name"},
        {with(sherd_prepare_input(), empty, 1, NULL, 0), "a slot's name is empty"},
        {with(sherd_prepare_input(), wrong, 1, NULL, 0), "a slot has a placement that is none"},
        {with(sherd_prepare_input(), NULL, 1, NULL, 0), "inputs is NULL"},
        {with(sherd_prepare_input(), good, -1, NULL, 0), "input_count is out of range"},
        {with(sherd_prepare_input(), good, 9, NULL, 0), "input_count is out of range"},
        {with(sherd_prepare_output(), NULL, 0, late, 1), "an output takes no name"},
        {with(sherd_prepare_output(), NULL, 0, NULL, 2), "outputs is NULL"},
        {with(sherd_prepare_output(), NULL, 0, good, 9), "output_count is out of range"},
        {with(sherd_prepare_output(), good, 1, NULL, 0), "it does nothing to inputs"},
        {stray, "it does nothing to inputs"},
        {with(sherd_colwise(), good, 1, NULL, 0), "slots are for the Prepare styles"},
        {with(sherd_sequence_parallel(), NULL, 0, good, 1), "slots are for the Prepare styles"},
    };

    for (int i = 0; i < LEN(cases); i++) {
        sherd_module *m = linear(world, 4, 4);
        CHECK_EQ(apply(m, mesh, cases[i].style), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), cases[i].text) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), cases[i].text);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

static void ranks_with_other_slots_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int odd = sherd_world_rank(world) == 1;
    const sherd_slot in[] = {slot(sherd_shard(0), odd ? sherd_shard(1) : sherd_replicate())};
    sherd_module *m = container(world, echo, NULL);

    CHECK_EQ(apply(m, mesh, with(sherd_prepare_input(), in, 1, NULL, 0)), SHERD_EDIFFER);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* The slots are the caller's; the module has a copy. And nothing is lost where there is no
 * memory. */
static void no_memory_for_slots_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_status status = SHERD_ENOMEM;

    for (int n = 1; status && n < 100; n++) {
        char name[8] = "x";
        sherd_slot in[] = {named(name, sherd_shard(0), sherd_replicate()),
                           named("y", sherd_shard(0), sherd_replicate())};
        int64_t live = sherd__world_heap(world)->live;
        sherd_module *m = container(world, echo, NULL);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        status = apply(m, mesh, with(sherd_prepare_input_output(), in, 2, NULL, 0));
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        strcpy(name, "gone");
        if (!status) {
            sherd_args args = {
                .count = 2, .value = {piece(world, 1, 2), piece(world, 1, 2)}, .name = {"x", "y"}};
            sherd_args out;
            sherd_module_run(m, &args, &out);
            CHECK_TEXT(placements(out.value[0]), "R");
        }
        sherd_module_destroy(m);
        if (status)
            CHECK_EQ(sherd__world_heap(world)->live, live);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_OK(status);
}

static const check_test tests[] = {
    {TEST(pieces_are_joined_and_moved), {1, 2, 3, 4, 8}},
    {TEST(empty_slots_leave_alone), {1, 2, 3}},
    {TEST(nothing_may_come_to_an_empty_slot), {1, 2, 3}},
    {TEST(named_inputs_are_moved), {1, 2, 3, 4}},
    {TEST(inputs_may_reach_the_forward_as_plain_ones), {1, 2, 3, 4, 8}},
    {TEST(outputs_are_moved), {1, 2, 3, 4}},
    {TEST(both_sides_together), {1, 2, 3, 4}},
    {TEST(what_does_not_fit_the_slots_is_refused), {1, 2, 3}},
    {TEST(slots_that_make_no_sense_are_refused), {1, 2}},
    {TEST(ranks_with_other_slots_differ), {2, 3}},
    {TEST(no_memory_for_slots_fails_on_all), {1, 2}},
};
CHECK_MAIN(tests)
