/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linears whose weights became 8 or 4 bits, before and after styles: the same numbers and moves,
 * gradients of what remains, and a file that another model reads on any ranks; files with I8
 * tensors.
 */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"
#include "sherd/ops_quantized.h"

enum { IN = 6, HIDDEN = 10, OUT = 4, ROWS = 5 };

static sherd_module *model(sherd_world *world, sherd_dtype dtype)
{
    return mlp(world, dtype, IN, HIDDEN, OUT);
}

/* Two neighbours stay together, as they do in a byte of 4 bits. */
static void parallelize(sherd_world *world, sherd_module *m)
{
    sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};

    plan[0].style.granule = plan[1].style.granule = 2;

    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", plan, 2));
}

static sherd_tensor *output_of(sherd_world *world, sherd_module *m, sherd_dtype dtype)
{
    return sherd_full(sherd_module_call(m, wave(world, dtype, 2, SHAPE(ROWS, IN), 3, 1, 0)));
}

static const struct {
    int bits, group;
    double off;
} ways[] = {{8, 0, 0.02}, {8, 4, 0.02}, {4, 0, 0.4}, {4, 4, 0.4}};

/* Where they are after styles. */
static void check_layouts(sherd_module *m)
{
    const char *const want[] = {"S(0)", "S(0)", "S(1)", "R"};
    const char *const names[] = {"weight", "weight_scale"};

    for (int i = 0; i < 4; i++) {
        sherd_module *linear = sherd_module_find(m, i < 2 ? "net1" : "net2");
        CHECK_TEXT(
            sherd_layout_placements(sherd_tensor_layout(sherd_module_buffer(linear, names[i % 2]))),
            want[i]);
    }
}

/* Whatever comes first, styles or few bits: near the model of before, and nearer each other. */
static void models_compute_nearly_what_they_did(sherd_world *world)
{
    for (int w = 0; w < LEN(ways); w++)
        for (int order = 0; order < 3; order++) {
            double before[ROWS * OUT], y[ROWS * OUT], first[ROWS * OUT];
            int bits = ways[w].bits, group = ways[w].group;
            sherd_scope_begin(world);
            sherd_module *m = model(world, SHERD_F32), *like = model(world, SHERD_F32);
            whole(output_of(world, m, SHERD_F32), before);
            CHECK_OK(sherd_module_quantize(like, bits, group));
            whole(output_of(world, like, SHERD_F32), first);
            if (order == 1)
                parallelize(world, m);
            CHECK_OK(sherd_module_quantize(m, bits, group));
            if (order == 2)
                parallelize(world, m);
            sherd_module *one = sherd_module_find(m, "net1");
            CHECK(sherd_module_parameter(one, "weight") == NULL);
            CHECK(sherd_module_parameter(one, "bias") != NULL);
            sherd_tensor *value = sherd_module_buffer(one, "weight");
            CHECK_EQ(sherd_tensor_dtype(value), bits == 4 ? SHERD_U8 : SHERD_I8);
            CHECK_EQ(sherd_tensor_shape(value)[1], IN * bits / 8);
            if (order)
                check_layouts(m);
            whole(output_of(world, m, SHERD_F32), y);
            for (int i = 0; i < ROWS * OUT; i++) {
                CHECK_NEAR(y[i], before[i], ways[w].off);
                CHECK_NEAR(y[i], first[i], 1e-5);
            }
            sherd_module_destroy(m);
            sherd_module_destroy(like);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* Of a call of Rowwise "net2", whose input is whole on each rank. */
static void count_moves(sherd_world *world, int bits, int64_t hidden, int granule, int64_t out[2])
{
    sherd_parallel_entry plan[] = {{"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, SHERD_F32, IN, hidden, OUT);
    const sherd_mesh *mesh = line_of_ranks(world);

    plan[0].style.granule = granule;
    if (bits)
        CHECK_OK(sherd_module_quantize(m, bits, 0));
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 1));
    sherd_tensor *x = wave(world, SHERD_F32, 2, SHAPE(ROWS, hidden), 3, 1, 0);
    x = spread(x, mesh, "R");
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    CHECK(!sherd_tensor_failed(sherd_module_call(sherd_module_find(m, "net2"), x)));
    out[0] = sherd_comm_calls(world, NULL);
    out[1] = sherd_comm_bytes(world, NULL);
    sherd_module_destroy(m);
}

/* An input gets the cuts of the weight at once, as before that was quantized. */
static void inputs_follow_weights_of_few_bits(sherd_world *world)
{
    static const struct {
        int64_t hidden;
        int granule;
    } c[] = {{24, 8}, {10, 2}};

    for (int i = 0; i < LEN(c); i++)
        for (int bits = 4; bits <= 8; bits += 4) {
            int64_t want[2], moves[2];
            sherd_scope_begin(world);
            count_moves(world, 0, c[i].hidden, c[i].granule, want);
            count_moves(world, bits, c[i].hidden, c[i].granule, moves);
            CHECK_EQ(moves[0], want[0]);
            CHECK_EQ(moves[1], want[1]);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* A shard of 4 bits is whole bytes: 10 columns over 2 ranks are 5 each. */
static void columns_of_a_byte_are_not_parted(sherd_world *world)
{
    sherd_parallel_entry plan[] = {{"net2", sherd_rowwise()}};
    sherd_module *m = model(world, SHERD_F32);

    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", plan, 1));
    CHECK_EQ(sherd_module_quantize(m, 4, 0), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"net2\" has a weight that is cut at an odd column"));
    CHECK(sherd_module_parameter(sherd_module_find(m, "net1"), "weight") != NULL);
    (void)sherd_world_check(world);
    CHECK_OK(sherd_module_quantize(m, 8, 0));
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);

    m = model(world, SHERD_F32);
    CHECK_OK(sherd_module_quantize(m, 4, 0));
    plan[0].style.granule = 5;
    CHECK_EQ(sherd_parallelize(m, line_of_ranks(world), "tp", plan, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "a granule of 5 columns"));
    (void)sherd_world_check(world);
    sherd_module_destroy(m);
}

/* An optimizer of before would go on with weights that are none. */
static void steps_of_former_weights_are_refused(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32);
    sherd_optimizer *before = NULL, *afterwards = NULL;
    double y[ROWS * OUT];

    CHECK_OK(sherd_sgd_create(&before, m, NULL));
    CHECK_OK(sherd_module_quantize(sherd_module_find(m, "net2"), 8, 0));
    CHECK_OK(sherd_sgd_create(&afterwards, m, NULL));
    for (int i = 0; i < 2; i++) {
        sherd_backward(sherd_sum(output_of(world, m, SHERD_F32)));
        sherd_optimizer_step(i ? before : afterwards, 0.1, 1);
        sherd_status status = sherd_world_check(world);
        CHECK_EQ(status, i ? SHERD_EINVAL : SHERD_OK);
        if (i)
            CHECK(strstr(sherd_world_error(world), "sherd_module_quantize"));
    }
    whole(output_of(world, m, SHERD_F32), y);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(before);
    sherd_optimizer_destroy(afterwards);
    sherd_module_destroy(m);
}

/* The input and the biases have gradients; a cast of the model leaves the scales. */
static void what_is_not_quantized_has_gradients(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32);

    parallelize(world, m);
    CHECK_OK(sherd_module_quantize(m, 8, 0));
    CHECK_OK(sherd_module_cast(m, SHERD_BF16));
    sherd_module *one = sherd_module_find(m, "net1");
    CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(one, "weight_scale")), SHERD_F32);
    CHECK_EQ(sherd_tensor_dtype(sherd_module_parameter(one, "bias")), SHERD_BF16);
    sherd_tensor *x = wave(world, SHERD_BF16, 2, SHAPE(ROWS, IN), 3, 1, 0);
    sherd_require_grad(x, true);
    sherd_backward(sherd_sum(sherd_cast(sherd_module_call(m, x), SHERD_F32)));
    CHECK(sherd_grad(x) != NULL);
    CHECK(sherd_grad(sherd_module_parameter(one, "bias")) != NULL);
    CHECK_EQ(sherd_module_quantize(m, 8, 0), SHERD_EINVAL); /* nothing is left to do */
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

static sherd_module *empty_model(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32);

    for (int i = 0; i < 2; i++) {
        sherd_module *linear = sherd_module_find(m, i ? "net2" : "net1");
        const int64_t *shape = sherd_tensor_shape(sherd_module_parameter(linear, "weight"));
        CHECK_OK(sherd_module_set_parameter(linear, "weight",
                                            sherd_constant(world, SHERD_F32, shape, 2, 0)));
    }
    return m;
}

/* Written sharded, read whole; the file says what they are, and others do not take them. */
static void files_keep_weights_of_few_bits(sherd_world *world)
{
    for (int bits = 4; bits <= 8; bits += 4) {
        sherd_module *m = model(world, SHERD_F32), *other = empty_model(world);
        double y[ROWS * OUT], again[ROWS * OUT];
        char room[256];
        const char *path = scratch(room, "quantized");
        sherd_file *file = NULL;

        parallelize(world, m);
        CHECK_OK(sherd_module_quantize(m, bits, 4));
        whole(output_of(world, m, SHERD_F32), y);
        CHECK_OK(sherd_module_write(m, NULL, path));
        CHECK_OK(sherd_file_open(&file, world, path));
        CHECK_TEXT(sherd_file_text(file, "quantized.net1"),
                   bits == 4 ? "4 bits, group 4" : "8 bits, group 4");
        sherd_file_destroy(file);
        CHECK_OK(sherd_module_quantize(other, bits, 4));
        CHECK_OK(sherd_module_read(other, NULL, path, NULL));
        whole(output_of(world, other, SHERD_F32), again);
        for (int i = 0; i < ROWS * OUT; i++)
            CHECK_NEAR(y[i], again[i], 1e-5);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(other);

        other = empty_model(world);
        CHECK_OK(sherd_module_quantize(other, 12 - bits, 4));
        CHECK_EQ(sherd_module_read(other, NULL, path, NULL), SHERD_EINVAL);
        (void)sherd_world_check(world);
        sherd_module_destroy(m);
        sherd_module_destroy(other);
        remove_file(world, path);
    }
}

/* 6 columns have two groups of 4, or of 5. */
static void files_tell_groups_of_one_count(sherd_world *world)
{
    sherd_module *m = NULL, *other = NULL;
    char room[256];
    const char *path = scratch(room, "groups");

    CHECK_OK(sherd_linear_create(&m, world, 6, 3, NULL));
    CHECK_OK(sherd_linear_create(&other, world, 6, 3, NULL));
    CHECK_OK(sherd_module_quantize(m, 8, 4));
    CHECK_OK(sherd_module_quantize(other, 8, 5));
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK_EQ(sherd_module_read(other, NULL, path, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "8 bits, group 5"));
    (void)sherd_world_check(world);
    CHECK_OK(sherd_module_read(m, NULL, path, NULL));
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, path);
}

/* Adapters are read beside weights of other groups; weights are not, also where they are chosen, and
 * 6 columns have two groups of 4 or of 5. */
static void parts_of_files_note_their_own_weights(sherd_world *world)
{
    const sherd_write_options trained = {.part = SHERD_FILE_TRAINED};
    const sherd_read_options adapters = {.part = SHERD_FILE_TRAINED, .more = true};
    const char *const chosen[] = {"net1.weight", "net1.weight_scale"};
    const sherd_read_options weights = {.only = chosen, .only_count = 2, .more = true};
    char room[2][256];
    const char *path = scratch(room[0], "adapters"), *all = scratch(room[1], "all");
    sherd_module *m = model(world, SHERD_F32), *other = model(world, SHERD_F32);
    sherd_file *file = NULL;

    CHECK_OK(sherd_module_quantize(m, 8, 4));
    CHECK_OK(sherd_module_quantize(other, 8, 5));
    CHECK_OK(sherd_module_write_with(m, NULL, path, &trained));
    CHECK_OK(sherd_module_write(m, NULL, all));
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK(sherd_file_text(file, "quantized.net1") == NULL);
    sherd_file_destroy(file);
    CHECK_OK(sherd_module_read(other, NULL, path, &adapters));
    CHECK_OK(sherd_module_read(other, NULL, all, &adapters));
    CHECK_EQ(sherd_module_read(other, NULL, all, &weights), SHERD_EINVAL);
    (void)sherd_world_check(world);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, path);
    remove_file(world, all);
}

/* Every number of 8 bits, to a file and from it. */
static void i8_is_written_and_read(sherd_world *world)
{
    static const int64_t shape[] = {16, 16};
    int8_t all[256], back[256];
    char room[256];
    const char *path = scratch(room, "i8");

    for (int i = 0; i < 256; i++)
        all[i] = (int8_t)(i - 128);
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(world, SHERD_I8, shape, 2, all));
    const sherd_layout *layout = NULL;
    CHECK_OK(sherd_layout_parse_placements(&layout, line_of_ranks(world), 2, shape, "S(1)", NULL));
    const sherd_named_tensor entry = {"a", sherd_distribute(t, layout, -1)};
    CHECK_OK(sherd_file_write(world, path, &entry, 1, NULL, 0));
    sherd_file *file = NULL;
    CHECK_OK(sherd_file_open(&file, world, path));
    sherd_tensor *read = sherd_file_read(file, "a", layout);
    CHECK_EQ(sherd_tensor_dtype(read), SHERD_I8);
    CHECK(sherd_full_read(back, sizeof back, read, SHERD_I8, -1));
    CHECK_EQ(memcmp(all, back, sizeof all), 0);
    sherd_file_destroy(file);
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

/* Of a module of the kind Linear that has no weight of 8 bits, a buffer is cast, and a parameter
 * "weight_scale", be it a single number, is not for styles to shard. */
static void other_linears_have_their_own_scales(sherd_world *world)
{
    const sherd_module_options kind = {.kind = SHERD_MODULE_LINEAR};
    const sherd_parallel_entry plan[] = {{"colwise", sherd_colwise()},
                                         {"rowwise", sherd_rowwise()}};
    sherd_module *root = container(world, mlp_forward, NULL), *m[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++) {
        CHECK_OK(sherd_module_create(&m[i], world, mlp_forward, &kind));
        CHECK_OK(sherd_module_add_parameter(m[i], "weight",
                                            wave(world, SHERD_F32, 2, SHAPE(4, 6), 1, 1, 0)));
        CHECK_OK(sherd_module_add_parameter(m[i], "weight_scale",
                                            sherd_constant(world, SHERD_F32, NULL, 0, 2)));
        CHECK_OK(
            sherd_module_add_buffer(m[i], "kept", sherd_constant(world, SHERD_F32, NULL, 0, 1)));
        CHECK_OK(sherd_module_add(root, plan[i].path, m[i]));
    }
    CHECK_OK(sherd_module_cast(root, SHERD_BF16));
    CHECK_OK(sherd_parallelize(root, line_of_ranks(world), "tp", plan, 2));
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(m[i], "kept")), SHERD_BF16);
        CHECK_TEXT(sherd_layout_placements(
                       sherd_tensor_layout(sherd_module_parameter(m[i], "weight_scale"))),
                   "R");
    }
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
}

/* Fail the 1st, 2nd, ... allocation of ranks that are `mine`: the model works, until it is done. */
static void quantize_at_last(sherd_world *world, sherd_module *m, int bits, int64_t group,
                             bool mine)
{
    double y[ROWS * OUT];
    int n = 1;

    for (sherd_status status = SHERD_ENOMEM; status && n < 500; n++) {
        sherd_world_fail_allocation(world, mine ? n : 0);
        status = sherd_module_quantize(m, bits, group);
        sherd_world_fail_allocation(world, 0);
        sherd_status checked = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        CHECK(checked == SHERD_OK || checked == SHERD_ENOMEM);
        CHECK_EQ(whole(output_of(world, m, SHERD_F32), y), ROWS * OUT);
    }
    CHECK(n > 3 && n < 500);
    CHECK_OK(sherd_world_check(world));
}

/* As before, or done. */
static void no_memory_leaves_a_model_that_works(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32);

    quantize_at_last(world, m, 8, 0, true);
    sherd_module_destroy(m);
}

/* All ranks change a weight or none does, so that a model can be called, and the next try goes
 * on. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    sherd_module *m = model(world, SHERD_F32);

    parallelize(world, m);
    quantize_at_last(world, m, 4, 4, sherd_world_rank(world) == 0);
    sherd_module_destroy(m);
}

/* Linears of the same shape; where nothing moves, no other call would tell. */
static void ranks_that_quantize_others_get_ediffer(sherd_world *world)
{
    sherd_module *m = container(world, mlp_forward, NULL);
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_colwise()}};

    linear_layer(m, "net1", SHERD_F32, IN, IN, 1);
    linear_layer(m, "net2", SHERD_F32, IN, IN, 3);
    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", plan, 2));
    sherd_module *mine = sherd_module_find(m, sherd_world_rank(world) ? "net1" : "net2");
    CHECK_EQ(sherd_module_quantize(mine, 8, 0), SHERD_EDIFFER);
    CHECK(sherd_module_parameter(mine, "weight") != NULL);
    (void)sherd_world_check(world);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(models_compute_nearly_what_they_did), {1, 2, 3, 4}},
    {TEST(what_is_not_quantized_has_gradients), {1, 2, 3}},
    {TEST(inputs_follow_weights_of_few_bits), {1, 2, 3, 4}},
    {TEST(columns_of_a_byte_are_not_parted), {2}},
    {TEST(steps_of_former_weights_are_refused), {1, 2}},
    {TEST(files_keep_weights_of_few_bits), {1, 2, 3}},
    {TEST(files_tell_groups_of_one_count), {1, 2}},
    {TEST(parts_of_files_note_their_own_weights), {1, 2}},
    {TEST(i8_is_written_and_read), {1, 3}},
    {TEST(other_linears_have_their_own_scales), {1, 2, 3}},
    {TEST(no_memory_leaves_a_model_that_works), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2, 3}},
    {TEST(ranks_that_quantize_others_get_ediffer), {2, 3}},
};
CHECK_MAIN(tests)
