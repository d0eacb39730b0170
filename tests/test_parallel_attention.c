/* SPDX-License-Identifier: Apache-2.0 */
/* The attention module: what its four layers and the operator give, alone and split by heads. */
#include "models.h"
#include "sherd/ops_elements.h"

enum { HEADS = 3, HEAD = 4, WIDTH = HEADS * HEAD };

static const sherd_attention_options causal = {.causal = true};

static sherd_module *make(sherd_world *world, const sherd_attention_options *how)
{
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    const sherd_layer_options options = {.name = "a", .dtype = SHERD_F64, .bias = true};
    sherd_module *m = NULL;

    CHECK_OK(sherd_attention_create(&m, world, WIDTH, HEADS, how, &options));
    for (int i = 0; i < LEN(names); i++)
        fill_layer(sherd_module_find(m, names[i]), SHERD_F64, 1 + 2 * i, 0);
    return m;
}

static sherd_status split(sherd_module *m, const sherd_mesh *mesh, bool sequence)
{
    sherd_parallel_entry plan[] = {
        {"w[qkv]", sherd_colwise()}, {"wo", sherd_rowwise()}, {"", sherd_prepare_input()}};

    plan[0].style.granule = plan[1].style.granule = HEAD;
    if (sequence)
        plan[1].style.output = sherd_shard(1);
    return sherd_parallelize(m, mesh, "tp", plan, sequence ? 3 : 2);
}

/* By hand, from the same weights. */
static sherd_tensor *by_hand(sherd_module *m, sherd_tensor *x, sherd_tensor *memory, bool is_causal)
{
    sherd_tensor *t[3];
    static const char *const names[] = {"wq", "wk", "wv"};

    for (int i = 0; i < 3; i++) {
        sherd_tensor *from = i ? memory : x;
        t[i] = sherd_view(
            sherd_module_call(sherd_module_find(m, names[i]), from),
            SHAPE(sherd_tensor_shape(from)[0], sherd_tensor_shape(from)[1], HEADS, HEAD), 4);
    }
    sherd_tensor *y = sherd_attention(t[0], t[1], t[2], is_causal ? &causal : NULL);
    return sherd_module_call(
        sherd_module_find(m, "wo"),
        sherd_view(y, SHAPE(sherd_tensor_shape(x)[0], sherd_tensor_shape(x)[1], WIDTH), 3));
}

static void it_is_its_four_layers_and_the_operator(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 5, WIDTH), 1, 1, 0);
    sherd_tensor *memory = wave(world, SHERD_F64, 3, SHAPE(2, 7, WIDTH), 2, 1, 0);

    for (int way = 0; way < 3; way++) {
        sherd_module *m = make(world, way == 1 ? &causal : NULL);
        sherd_args in = {.count = way == 2 ? 2 : 1, .value = {x, memory}, .name = {NULL, "memory"}};
        sherd_args out;
        int64_t n = whole(by_hand(m, x, way == 2 ? memory : x, way == 1), expected);
        sherd_module_run(m, &in, &out);
        CHECK_EQ(distance_to(out.value[0], expected, n), 0);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

static void split_by_heads_it_is_the_same(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x =
        sherd_require_grad(wave(world, SHERD_F64, 3, SHAPE(2, 6, WIDTH), 1, 1, 0), true);
    sherd_tensor *target = wave(world, SHERD_F64, 3, SHAPE(2, 6, WIDTH), 5, 1, 0);
    baseline e = {0};

    sherd_module *plain = make(world, &causal);
    expect(&e, plain, x, target);
    sherd_clear_grad(x);
    for (int sequence = 0; sequence < 2; sequence++) {
        sherd_module *m = make(world, &causal);
        CHECK_OK(split(m, mesh, sequence));
        compare(&e, m, x, target, 1e-11);
        sherd_clear_grad(x);
        /* One all-reduce forward: of what wo gives. */
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        sherd_module_call(m, spread(x, mesh, sequence ? "S(1)" : "R"));
        CHECK_EQ(calls_logged(world), sherd_world_ranks(world) == 1 ? 0 : 1 + sequence);
        sherd_module_destroy(m);
    }
    forget_baseline(&e);
    sherd_module_destroy(plain);
    CHECK_OK(sherd_world_check(world));
}

enum { SHARED = 3, SHARING = 2, ALL = SHARED * SHARING * HEAD }; /* heads of k and v, and of q */

static sherd_module *make_shared(sherd_world *world, int64_t kv_heads)
{
    const sherd_layer_options options = {.name = "a", .dtype = SHERD_F64, .kv_heads = kv_heads};
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    sherd_module *m = NULL;

    CHECK_OK(sherd_attention_create(&m, world, ALL, SHARED * SHARING, &causal, &options));
    for (int i = 0; i < LEN(names); i++)
        fill_layer(sherd_module_find(m, names[i]), SHERD_F64, 1 + 2 * i, 0);
    return m;
}

/* The rows of each head's weight, once for each head that shares it. */
static void repeat_heads(sherd_module *to, sherd_module *from, const char *name)
{
    sherd_tensor *w = sherd_module_parameter(sherd_module_find(from, name), "weight");

    CHECK_EQ(sherd_tensor_shape(w)[0], SHARED * HEAD);
    w = sherd_expand(sherd_view(sherd_detach(w), SHAPE(SHARED, 1, HEAD, ALL), 4),
                     SHAPE(SHARED, SHARING, HEAD, ALL), 4);
    w = sherd_reshape(w, SHAPE(ALL, ALL), 2);
    CHECK_OK(sherd_module_set_parameter(sherd_module_find(to, name), "weight", w));
}

static void heads_may_share_keys_and_values(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    sherd_module *shared = make_shared(world, SHARED), *full = make_shared(world, 0);
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 5, ALL), 1, 1, 0);

    repeat_heads(full, shared, "wk");
    repeat_heads(full, shared, "wv");
    int64_t n = whole(sherd_module_call(full, x), expected);
    CHECK(distance_to(sherd_module_call(shared, x), expected, n) < 1e-13);
    sherd_module_destroy(shared);
    sherd_module_destroy(full);
    CHECK_OK(sherd_world_check(world));
}

/* Granules keep the heads that share keys on the rank that has these: one all-reduce. */
static void heads_that_share_stay_together(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_parallel_entry plan[] = {
        {"wq", sherd_colwise()}, {"w[kv]", sherd_colwise()}, {"wo", sherd_rowwise()}};
    sherd_tensor *x =
        sherd_require_grad(wave(world, SHERD_F64, 3, SHAPE(2, 6, ALL), 1, 1, 0), true);
    sherd_tensor *target = wave(world, SHERD_F64, 3, SHAPE(2, 6, ALL), 5, 1, 0);
    baseline e = {0};

    sherd_module *plain = make_shared(world, SHARED), *m = make_shared(world, SHARED);
    expect(&e, plain, x, target);
    sherd_clear_grad(x);
    plan[0].style.granule = plan[2].style.granule = SHARING * HEAD;
    plan[1].style.granule = HEAD;
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, 3));
    compare(&e, m, x, target, 1e-11);
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    sherd_module_call(m, spread(x, mesh, "R"));
    CHECK_EQ(calls_logged(world), sherd_world_ranks(world) > 1);
    forget_baseline(&e);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

enum { SPAN = 6, MODEL = 10 }; /* width of a head, and of the model */

static sherd_module *make_rotary(sherd_world *world, const sherd_rotary_options *rotary)
{
    const sherd_layer_options options = {.name = "a",
                                         .dtype = SHERD_F64,
                                         .kv_heads = 2,
                                         .head_width = SPAN,
                                         .norm_heads = true,
                                         .eps = 1e-6,
                                         .rotary = rotary};
    static const char *const names[] = {"wq", "wk", "wv", "wo", "q_norm", "k_norm"};
    sherd_module *m = NULL;

    CHECK_OK(sherd_attention_create(&m, world, MODEL, 4, &causal, &options));
    for (int i = 0; i < LEN(names); i++)
        fill_layer(sherd_module_find(m, names[i]), SHERD_F64, 1 + 2 * i, i > 3);
    return m;
}

static sherd_tensor *heads_by_hand(sherd_module *m, const char *linear, const char *norm,
                                   sherd_tensor *x, int64_t heads,
                                   const sherd_rotary_options *rotary)
{
    sherd_tensor *t =
        sherd_view(sherd_module_call(sherd_module_find(m, linear), x), SHAPE(2, 6, heads, SPAN), 4);

    if (norm)
        t = sherd_rms_norm(t, sherd_module_parameter(sherd_module_find(m, norm), "weight"), 1e-6);
    return norm ? sherd_rotary(t, NULL, rotary) : t;
}

/* As in Qwen3: heads wider than the model's share, norms of heads, positions; split by heads too. */
static void heads_are_normalised_and_rotated(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_rotary_options rotary = {.base = 500, .offset = 2};
    sherd_parallel_entry plan[] = {
        {"wq", sherd_colwise()}, {"w[kv]", sherd_colwise()}, {"wo", sherd_rowwise()}};
    sherd_tensor *x =
        sherd_require_grad(wave(world, SHERD_F64, 3, SHAPE(2, 6, MODEL), 1, 1, 0), true);
    sherd_tensor *target = wave(world, SHERD_F64, 3, SHAPE(2, 6, MODEL), 5, 1, 0);
    baseline e = {0};

    sherd_module *plain = make_rotary(world, &rotary), *m = make_rotary(world, &rotary);
    sherd_tensor *y = sherd_attention(heads_by_hand(m, "wq", "q_norm", x, 4, &rotary),
                                      heads_by_hand(m, "wk", "k_norm", x, 2, &rotary),
                                      heads_by_hand(m, "wv", NULL, x, 2, NULL), &causal);
    int64_t n = whole(
        sherd_module_call(sherd_module_find(m, "wo"), sherd_view(y, SHAPE(2, 6, 4 * SPAN), 3)),
        expected);
    CHECK_EQ(distance_to(sherd_module_call(plain, x), expected, n), 0);
    expect(&e, plain, x, target);
    sherd_clear_grad(x);
    plan[0].style.granule = plan[2].style.granule = 2 * SPAN;
    plan[1].style.granule = SPAN;
    CHECK_OK(sherd_parallelize(m, line_of_ranks(world), "tp", plan, 3));
    compare(&e, m, x, target, 1e-11);
    forget_baseline(&e);
    sherd_module_destroy(plain);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void positions_are_given_where_it_rotates(sherd_world *world)
{
    static const sherd_rotary_options usual;
    static _Thread_local double expected[MOST];
    const int32_t third[] = {2, 3, 4, 5, 6, 7};
    sherd_module *m = make_rotary(world, &usual), *off = make_rotary(world, NULL);
    sherd_module *later = make_rotary(world, &(sherd_rotary_options){.offset = 2});
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 6, MODEL), 1, 1, 0);
    sherd_tensor *at = sherd_mark_equal(sherd_from_data(world, SHERD_I32, SHAPE(6), 1, third));
    sherd_args in = {.count = 2, .value = {x, at}, .name = {NULL, "positions"}}, out;

    int64_t n = whole(sherd_module_call(later, x), expected);
    sherd_module_run(m, &in, &out);
    CHECK_EQ(distance_to(out.value[0], expected, n), 0);
    CHECK_OK(sherd_world_check(world));
    sherd_module_run(off, &in, &out);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "no keyword tensor \"positions\"") != NULL);
    in.name[1] = "memory";
    sherd_module_run(m, &in, &out);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "no keyword tensor \"memory\"") != NULL);
    sherd_module_destroy(m);
    sherd_module_destroy(off);
    sherd_module_destroy(later);
}

static void shared_heads_must_divide_the_others(sherd_world *world)
{
    const sherd_layer_options options = {.kv_heads = 4};
    sherd_module *m = NULL;

    CHECK_EQ(sherd_attention_create(&m, world, 24, 6, NULL, &options), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "4 kv_heads do not divide the 6 heads") != NULL);
}

static void what_does_not_fit_is_refused(sherd_world *world)
{
    sherd_module *m = make(world, NULL);
    sherd_args none = {.count = 1, .value = {NULL}}, out;

    sherd_module_call(m, wave(world, SHERD_F64, 2, SHAPE(5, WIDTH), 1, 1, 0));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "[batch, positions, width]") != NULL);
    sherd_module_run(m, &none, &out);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "one positional tensor") != NULL);
    sherd_module_destroy(m);
}

/* A rank whose argument has failed draws as many keys: the next call is the same on all. */
static void generators_stay_in_step_where_one_rank_fails(sherd_world *world)
{
    sherd_generator generator = sherd_generator_named("drop");
    sherd_module *m =
        make(world, &(sherd_attention_options){.dropout = 0.5, .generator = &generator});

    CHECK_OK(split(m, line_of_ranks(world), false));
    for (int step = 0; step < 2; step++) {
        bool fails = step == 0 && sherd_world_rank(world) == 0;
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 5, WIDTH), 1, 1, 0);
        sherd_module_call(m, fails ? sherd_view(x, SHAPE(1), 1) : x);
        CHECK_EQ(sherd_world_check(world), step ? SHERD_OK : SHERD_EINVAL);
        CHECK_EQ(generator.calls, step + 1);
        sherd_scope_end(world);
    }
    sherd_module_destroy(m);
}

/* First values depend on the name alone, and creating one while memory fails leaves nothing. */
static void its_first_values_are_those_of_its_layers(sherd_world *world)
{
    static _Thread_local double expected[MOST];
    const sherd_layer_options options = {.name = "b.attn"}, layer = {.name = "b.attn.wk"};
    sherd_module *m = NULL, *wk = NULL;
    sherd_status status = SHERD_ENOMEM;
    int64_t live = sherd__world_heap(world)->live;

    for (int n = 1; status && n < 200; n++) {
        sherd_world_fail_allocation(world, n);
        status = sherd_attention_create(&m, world, WIDTH, HEADS, NULL, &options);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || (status == SHERD_ENOMEM && m == NULL));
        if (status)
            CHECK_EQ(sherd__world_heap(world)->live, live);
        (void)sherd_world_check(world); /* tensors that failed have said so */
    }
    CHECK_OK(status);
    CHECK_OK(sherd_linear_create(&wk, world, WIDTH, WIDTH, &layer));
    int64_t count = whole(sherd_module_parameter(wk, "weight"), expected);
    CHECK_EQ(
        distance_to(sherd_module_parameter(sherd_module_find(m, "wk"), "weight"), expected, count),
        0);
    sherd_module_destroy(wk);
    sherd_module_destroy(m);
}

/* Dropout only in training, by the module's own generator unless there is another. */
static void it_drops_only_in_training(sherd_world *world)
{
    static _Thread_local double first[MOST], undropped[MOST];
    sherd_generator own = sherd_generator_named("own");
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 5, WIDTH), 1, 1, 0);

    for (int given = 0; given < 2; given++) {
        const sherd_attention_options how = {.dropout = 0.5, .generator = given ? &own : NULL};
        sherd_module *m = make(world, &how), *sure = make(world, NULL);
        int64_t n = whole(sherd_module_call(sure, x), undropped);
        CHECK(distance_to(sherd_module_call(m, x), undropped, n) > 1e-3);
        whole(sherd_module_call(m, x), first);
        CHECK(distance_to(sherd_module_call(m, x), first, n) > 1e-3);
        CHECK_EQ(sherd_module_generator(m)->calls, given ? 0 : 3);
        sherd_module_train(m, false);
        CHECK_EQ(distance_to(sherd_module_call(m, x), undropped, n), 0);
        sherd_module_destroy(m);
        sherd_module_destroy(sure);
    }
    CHECK_EQ(own.calls, 3);
    CHECK_OK(sherd_world_check(world));
}

/* The module's own mask outlives its maker's scope; one of the call takes its place. */
static void a_mask_is_held_or_passed(sherd_world *world)
{
    static _Thread_local double wanted[MOST];
    sherd_tensor *x = wave(world, SHERD_F64, 3, SHAPE(2, 5, WIDTH), 1, 1, 0);
    sherd_module *sure = make(world, &causal), *bare = make(world, NULL);
    int64_t n = whole(sherd_module_call(sure, x), wanted);

    sherd_scope_begin(world);
    sherd_tensor *mask = sherd_tril(sherd_constant(world, SHERD_F64, SHAPE(5, 5), 2, 1), 0);
    mask = sherd_gt(mask, sherd_constant(world, SHERD_F64, SHAPE(5, 5), 2, 0));
    sherd_module *m = make(world, &(sherd_attention_options){.mask = mask});
    sherd_args in = {.count = 2, .value = {x, mask}, .name = {NULL, "mask"}}, out;
    sherd_module_run(bare, &in, &out);
    CHECK(distance_to(out.value[0], wanted, n) < 1e-12);
    in.name[1] = "musk";
    sherd_module_run(bare, &in, &out);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "it takes no keyword tensor \"musk\"") != NULL);
    sherd_scope_end(world);
    wave(world, SHERD_BOOL, 2, SHAPE(5, 5), 3, 1, 0);
    CHECK(distance_to(sherd_module_call(m, x), wanted, n) < 1e-12);
    sherd_module_destroy(m);
    sherd_module_destroy(sure);
    sherd_module_destroy(bare);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(it_is_its_four_layers_and_the_operator), {1, 2}},
    {TEST(split_by_heads_it_is_the_same), {1, 2, 3, 4}},
    {TEST(heads_may_share_keys_and_values), {1, 2}},
    {TEST(heads_that_share_stay_together), {1, 2, 3, 4, 8}},
    {TEST(heads_are_normalised_and_rotated), {1, 2, 3, 4}},
    {TEST(positions_are_given_where_it_rotates), {1, 2}},
    {TEST(shared_heads_must_divide_the_others), {1, 2}},
    {TEST(what_does_not_fit_is_refused), {1, 2}},
    {TEST(generators_stay_in_step_where_one_rank_fails), {1, 2, 3, 4}},
    {TEST(it_drops_only_in_training), {1, 2}},
    {TEST(a_mask_is_held_or_passed), {1, 2}},
    {TEST(its_first_values_are_those_of_its_layers), {1}},
};
CHECK_MAIN(tests)
