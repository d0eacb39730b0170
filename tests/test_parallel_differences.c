/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that do a thing of one name otherwise: the error of the check names the thing, and the first
 * operand, attribute or layout that differs, with both values, in the same words on all ranks.
 */
#include "models.h"
#include "sherd/halo.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_index.h"
#include "sherd/ops_stencil.h"
#include "sherd/optimizers.h"
#include "base/hash.h"
#include "world/world.h"

/* One scene: what the odd one out does otherwise; it gets a replicated leaf of 4x4 and a sharded
 * tensor. */
typedef struct scene {
    const char *what, *named, *last, *odd_0; /* in the message; what differs, if the last rank, or
                                             * rank 0, is the odd one out */
    void (*play)(sherd_tensor *x, sherd_tensor *s, bool odd);
} scene;

static void scales(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_scale(x, odd ? 2 : 3);
}

static void does_more(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    if (odd)
        sherd_relu(x);
}

static void does_less(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_add(s, s);
    if (!odd)
        sherd_relu(x);
}

static void activates(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    if (odd)
        sherd_gelu(x);
    else
        sherd_relu(x);
}

static void takes_another_operand(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_tensor *one = sherd_scale(s, 1), *two = sherd_scale(s, 2);

    (void)x;
    sherd_add(s, odd ? one : two);
}

static void swaps_operands(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_tensor *t = sherd_scale(x, 2);

    (void)s;
    sherd_sub(odd ? t : x, odd ? x : t);
}

static void drops_out(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_generator g = sherd_generator_named("g");

    (void)s;
    sherd_dropout(x, odd ? 0.5 : 0.25, &g);
}

static void draws_before(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_generator g = sherd_generator_named("g");

    (void)s;
    if (odd)
        sherd_random(sherd_tensor_world(x), SHERD_F32, SHAPE(1), 1, sherd_uniform(0, 1), &g);
    sherd_dropout(x, 0.5, &g);
}

static void draws(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_generator g = sherd_generator_named(odd ? "g" : "h");

    (void)x;
    sherd_random_on(sherd_tensor_layout(s), SHERD_F32, sherd_normal(0, 1), &g);
}

static void draws_wider(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_generator g = sherd_generator_named("g");

    (void)x;
    sherd_random_on(sherd_tensor_layout(s), SHERD_F32, sherd_normal(0, odd ? 1 : 2), &g);
}

static void cuts(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_redistribute(x, sherd_tensor_layout(odd ? s : x), NULL);
}

static void slices(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    const sherd_layout *columns = NULL;

    CHECK_OK(sherd_layout_parse_placements(&columns, sherd_layout_mesh(sherd_tensor_layout(x)), 2,
                                           SHAPE(4, 4), "S(1)", NULL));
    sherd_tensor *y = sherd_redistribute(x, odd ? columns : sherd_tensor_layout(s), NULL);
    sherd_item(sherd_sum(y)); /* a number that would be wrong */
}

static void fills(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)x;
    sherd_constant_on(sherd_tensor_layout(s), SHERD_F32, odd ? 1 : 1.5);
}

static void wants(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_require_grad(x, odd);
}

static void norms(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_layer_norm(x, NULL, NULL, odd ? 1e-5 : 1e-6);
}

static void casts(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)x;
    sherd_cast(s, odd ? SHERD_BF16 : SHERD_F16);
}

static void reshapes(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_view(x, odd ? SHAPE(2, 8) : SHAPE(8, 2), 2);
}

static void transposes(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_tensor *t = sherd_view(x, SHAPE(2, 2, 2, 2), 4);
    sherd_transpose(t, 0, odd ? 1 : 2);
}

static void attends(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_tensor *q = sherd_view(x, SHAPE(1, 2, 2, 4), 4);

    (void)s;
    sherd_attention(q, q, q, &(sherd_attention_options){.causal = odd});
}

static void goes_backward(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_tensor *leaf = sherd_require_grad(sherd_scale(s, 1), true);
    sherd_tensor *a = sherd_sum(sherd_mul(leaf, leaf)), *b = sherd_sum(sherd_scale(leaf, 2));

    (void)x;
    sherd_backward(odd ? a : b);
}

static void writes(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_fill(x, odd ? 1 : 1.5);
}

static void sorts(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)s;
    sherd_sort(x, 1, odd, NULL);
}

/* Attributes of nearly 200 bytes, and after those that have taken the room of many deeds. */
static void pools(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    const sherd_pool_options o = {.kernel = {2, 2}, .ceil = odd};
    sherd_tensor *image = sherd_view(x, SHAPE(1, 1, 4, 4), 4);

    (void)s;
    for (int i = 0; i < 40; i++)
        sherd_max_pool(image, &(sherd_pool_options){.kernel = {1, 1}}, NULL);
    sherd_max_pool(image, &o, NULL);
}

/* Of sharded rows: what is fetched from beside them differs too. */
static void convolves(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    const sherd_conv_options o = {.stride = {odd ? 2 : 1, 1}, .before = {1}, .after = {1}};

    sherd_conv(sherd_view(s, SHAPE(1, 1, 4, 4), 4), sherd_view(x, SHAPE(1, 1, 4, 4), 4), NULL, &o);
}

static void pools_rows(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    const sherd_pool_options o = {.kernel = {odd ? 3 : 2, 2}, .stride = {1, 1}};

    (void)x;
    sherd_avg_pool(sherd_view(s, SHAPE(1, 1, 4, 4), 4), &o);
}

static void groups(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_tensor *nodes = sherd_cast(sherd_gt_scalar(sherd_select(x, 0, 0), 9), SHERD_I32);

    sherd_index_softmax(s, 0, nodes, odd ? 5 : 6);
}

static void widens(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    (void)x;
    sherd_halo(s, &(sherd_halo_options){
                      .before[0] = {1, odd ? SHERD_BORDER_PERIODIC : SHERD_BORDER_REPLICATE}});
}

static void draws_otherwise(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    sherd_generator g = sherd_generator_named("g");

    (void)x;
    sherd_random_on(sherd_tensor_layout(s), SHERD_F32,
                    odd ? sherd_normal(0, 1) : sherd_uniform(0, 1), &g);
}

static void pads(sherd_tensor *x, sherd_tensor *s, bool odd)
{
    const sherd_pad_options o = {
        .before[1] = {1, odd ? SHERD_BORDER_PERIODIC : SHERD_BORDER_REFLECT}};

    (void)s;
    sherd_pad_with(x, &o);
}

static const scene scenes[] = {
    {"another factor", "operation 1 since the last check is sherd_scale on ranks",
     ": factor is 3 on rank 0, and 2 on rank", ": factor is 2 on rank 0, and 3 on rank", scales},
    {"one operator more", "is sherd_relu on rank", "", "", does_more},
    {"one operator less", "operation 2 since the last check is sherd_relu on rank", "", "",
     does_less},
    {"another operator", "sherd_gelu on rank", "", "", activates},
    {"another operand", "operation 3 since the last check is sherd_add",
     " by operation 2 (sherd_scale) on rank 0, and f64[4(",
     " by operation 1 (sherd_scale) on rank 0, and f64[4(", takes_another_operand},
    {"operands swapped", "operation 2 since the last check is sherd_sub",
     "operand 0 (a) is f64[4,4] on (", "operand 0 (a) is f64[4,4] on (", swaps_operands},
    {"another probability", "is sherd_dropout on ranks", ": p is 0.25 on rank 0, and 0.5 on",
     ": p is 0.5 on rank 0, and 0.25 on", drops_out},
    {"a generator ahead", "is sherd_dropout on ranks",
     ": how often the generator was used, or its name, is not the same",
     ": how often the generator was used, or its name, is not the same", draws_before},
    {"another generator", "is sherd_random_on on ranks",
     ": how often the generator was used, or its name, is not the same",
     ": how often the generator was used, or its name, is not the same", draws},
    {"another distribution", "is sherd_random_on on ranks",
     ": distribution.b is 2 on rank 0, and 1 on", ": distribution.b is 1 on rank 0, and 2 on",
     draws_wider},
    {"another kind of distribution", "is sherd_random_on on ranks",
     ": distribution.kind is uniform on rank 0, and normal on",
     ": distribution.kind is normal on rank 0, and uniform on", draws_otherwise},
    {"another border of padding", "is sherd_pad_with on ranks",
     ": border_before is [none, reflect] on rank 0, and [none, periodic] on",
     ": border_before is [none, periodic] on rank 0, and [none, reflect] on", pads},
    {"a move more", "sherd_redistribute on rank", "", "", cuts},
    {"a slice of other dims", "is sherd_redistribute on ranks", ": the result is f64[4(",
     "on rank 0, and f64[4(", slices},
    {"another constant", "is sherd_constant_on on ranks",
     ": value or start is 1.5 on rank 0, and 1 on", ": value or start is 1 on rank 0, and 1.5 on",
     fills},
    {"a gradient wanted", "is sherd_require_grad on ranks", ": wanted is false on rank 0, and true",
     ": wanted is true on rank 0, and false", wants},
    {"what is written", "is sherd_fill on ranks", ": value is 1.5 on rank 0, and 1 on",
     ": value is 1 on rank 0, and 1.5 on", writes},
    {"the order", "is sherd_sort on ranks", ": whether the largest come first is 0 on rank 0",
     ": whether the largest come first is 1 on rank 0", sorts},
    {"an option of many", "is sherd_max_pool on ranks", ": ceil is false on rank 0, and true on",
     ": ceil is true on rank 0, and false on", pools},
    {"another stride", "is sherd_conv on ranks", ": stride is [1, 1, 1] on rank 0, and [2, 1, 1",
     ": stride is [2, 1, 1] on rank 0, and [1, 1, 1", convolves},
    {"another kernel", "is sherd_avg_pool on ranks", ": kernel is [2, 2] on rank 0, and [3, 2",
     ": kernel is [3, 2] on rank 0, and [2, 2", pools_rows},
    {"a part of another size", " since the last check is sherd_index_softmax on ranks",
     ": groups is 6 on rank 0, and 5 on", ": groups is 5 on rank 0, and 6 on", groups},
    {"another border", "sherd_halo ", "1+0 periodic,0+0 of [4(", "1+0 replicate,0+0 of", widens},
    {"another epsilon", "is sherd_layer_norm on ranks", ": eps is 1e-06 on rank 0, and 1e-05",
     ": eps is 1e-05 on rank 0, and 1e-06", norms},
    {"another dtype", "is sherd_cast on ranks", ": dtype is ", ": dtype is ", casts},
    {"another shape", "is sherd_view on ranks", "[8, 2] on rank 0, and [2, 8]",
     "[2, 8] on rank 0, and [8, 2]", reshapes},
    {"other dims", "is sherd_transpose on ranks", " on rank 0, and ", " on rank 0, and ",
     transposes},
    {"another mask", "is sherd_attention on ranks", ": causal is false on rank 0, and true on",
     ": causal is true on rank 0, and false on", attends},
    {"another loss", "is sherd_", "", "", goes_backward},
};

/* Whether all ranks have been told the same. */
static bool says_the_same(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = (int64_t)sherd__hash_text(1, sherd_world_error(world)), all[16] = {0};
    bool good = CHECK(sherd__share(world, mesh, "says_the_same", &mine, 1, all));

    for (int i = 0; i < sherd_world_ranks(world); i++)
        good &= CHECK_EQ(all[i], mine);
    return good;
}

static void works(sherd_world *world, const sherd_mesh *mesh)
{
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");
    double sum = sherd_item(sherd_sum(x)), want = 0, data[16];

    whole(x, data);
    for (int i = 0; i < 16; i++)
        want += data[i];
    CHECK_NEAR(sum, want, 1e-12);
    CHECK_OK(sherd_world_check(world));
}

/* Whether the error has a text, in which the first rank named may also be the next one: where
 * operands meet in the operator, the two that came first are compared. */
static bool says(sherd_world *world, const char *text)
{
    const char *error = sherd_world_error(world), *at = strstr(text, "on rank 0");
    char other[256];

    if (strstr(error, text) || !at)
        return strstr(error, text) != NULL;
    snprintf(other, sizeof other, "%.*son rank 1%s", (int)(at - text), text, at + 9);
    return strstr(error, other) != NULL;
}

static void what_differs_is_found_and_named(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int ranks = sherd_world_ranks(world);

    for (int i = 0; i < LEN(scenes); i++)
        for (int who = 0; who < ranks; who += ranks - 1) {
            sherd_scope_begin(world);
            sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
            sherd_tensor *s = spread(sherd_full(x), mesh, "S(0)");
            CHECK_OK(sherd_world_check(world));
            scenes[i].play(x, s, sherd_world_rank(world) == who);
            bool good = CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
            good &= CHECK(strstr(sherd_world_error(world), scenes[i].named) != NULL);
            good &= CHECK(who ? says(world, scenes[i].last)
                              : strstr(sherd_world_error(world), scenes[i].odd_0) != NULL);
            good &= says_the_same(world, mesh);
            if (!good)
                fprintf(stderr, "%s: %s\n", scenes[i].what, sherd_world_error(world));
            works(world, mesh);
            sherd_scope_end(world);
        }
}

/* An optimizer that one rank alone could not make: that rank takes no steps. */
static void what_one_rank_was_refused_is_told(sherd_world *world)
{
    static const char *const why[] = {
        "rank 0: sherd_adamw_create: out of memory",
        "rank 0: sherd_adamw_create: ",
    };
    const sherd_mesh *mesh = line_of_ranks(world);
    bool odd = sherd_world_rank(world) == 0;

    for (int way = 0; way < 2; way++) {
        sherd_module *m = container(world, mlp_forward, NULL);
        sherd_optimizer *o = NULL;
        sherd_scope_begin(world);
        sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_module_add_parameter(m, "w", w));
        sherd_backward(sherd_sum(sherd_mul(w, w)));
        CHECK_OK(sherd_world_check(world));
        if (odd && way == 0)
            sherd_world_fail_allocation(world, 1);
        sherd_status status = sherd_adamw_create(
            &o, m, &(sherd_adamw_options){.weight_decay = odd && way == 1 ? -1 : 0.1});
        sherd_world_fail_allocation(world, 0);
        CHECK_EQ(status, !odd ? SHERD_OK : way == 0 ? SHERD_ENOMEM : SHERD_EINVAL);
        sherd_optimizer_step(o, 0.01, 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        bool good = CHECK(strstr(sherd_world_error(world), "on rank 1, which rank 0 did not do"));
        good &=
            CHECK(strstr(sherd_world_error(world), "; before that, rank 0: sherd_adamw_create"));
        good &= CHECK(strstr(sherd_world_error(world), why[way]) != NULL);
        good &= says_the_same(world, mesh);
        if (!good)
            fprintf(stderr, "%s\n", sherd_world_error(world));
        works(world, mesh);
        /* It is no news any more. */
        sherd_scale(sherd_constant_on(sherd_tensor_layout(w), SHERD_F64, 1), odd);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK(!strstr(sherd_world_error(world), "before that"));
        sherd_optimizer_destroy(o);
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
}

/* One optimizer of each kind; the odd one out has another option. */
static sherd_status make(sherd_optimizer **o, sherd_module *m, int kind, bool odd)
{
    switch (kind) {
    case 0:
        return sherd_adamw_create(o, m, &(sherd_adamw_options){.eps = odd ? 1e-8 : 1e-6});
    case 1:
        return sherd_sgd_create(o, m, &(sherd_sgd_options){.momentum = 0.5, .nesterov = odd});
    case 2:
        return sherd_rmsprop_create(o, m, &(sherd_rmsprop_options){.alpha = odd ? 0.9 : 0.8});
    case 3:
        return sherd_adagrad_create(o, m, &(sherd_adagrad_options){.rate_decay = odd ? 1 : 2});
    case 4:
        return sherd_muon_create(o, m, &(sherd_muon_options){.steps = odd ? 4 : 3});
    case 5:
        return sherd_nadam_create(o, m, &(sherd_nadam_options){.decoupled = odd});
    case 6:
        return sherd_adafactor_create(o, m, &(sherd_adafactor_options){.limit = odd ? 1 : 2});
    case 7:
        return sherd_adam_create(o, m, &(sherd_adamw_options){.decay_all = odd});
    default:
        return odd ? sherd_sgd_create(o, m, NULL) : sherd_lion_create(o, m, NULL);
    }
}

static void options_of_optimizers_are_compared(sherd_world *world)
{
    static const char *const texts[] = {"sherd_adamw_create on ranks 0 and",
                                        ": nesterov is false on rank 0, and true on",
                                        ": alpha is 0.8 on rank 0, and 0.9 on",
                                        ": rate_decay is 2 on rank 0, and 1 on",
                                        ": steps is 3 on rank 0, and 4 on",
                                        ": decoupled is false on rank 0, and true on",
                                        ": limit is 2 on rank 0, and 1 on",
                                        "sherd_adam_create on ranks 0 and",
                                        " is sherd_lion_create on rank 0, and sherd_sgd_create on"};
    const sherd_mesh *mesh = line_of_ranks(world);
    bool odd = sherd_world_rank(world) == sherd_world_ranks(world) - 1;

    for (int kind = 0; kind < LEN(texts); kind++) {
        sherd_module *m = container(world, mlp_forward, NULL);
        sherd_optimizer *o = NULL;
        sherd_scope_begin(world);
        sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_module_add_parameter(m, "w", w));
        CHECK_OK(sherd_world_check(world));
        CHECK_OK(make(&o, m, kind, odd));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        if (!CHECK(strstr(sherd_world_error(world), texts[kind]) != NULL))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
        sherd_scope_end(world);
    }
}

/* A function of all ranks, which returns what differs. */
static void what_was_passed_is_told(sherd_world *world)
{
    static const char *const texts[] = {
        "rank 0 passed 32 parameters on axis x, \"\" Colwise, rank 1 32 parameters on axis x, \"\" "
        "Row",
        "rank 0 passed 32 parameters on axis x, \"\" Colwise, rank 1 64 parameters on axis x"};
    const sherd_mesh *mesh = mesh_of(world, "x=2");

    for (int way = 0; way < 2; way++) {
        bool odd = sherd_world_rank(world) == 1;
        sherd_parallel_entry plan = {"", odd && way == 0 ? sherd_rowwise() : sherd_colwise()};
        sherd_module *m = NULL;
        CHECK_OK(sherd_linear_create(&m, world, 8, odd && way == 1 ? 8 : 4, NULL));
        CHECK_EQ(sherd_parallelize(m, mesh, "x", &plan, 1), SHERD_EDIFFER);
        if (!CHECK(strstr(sherd_world_error(world), texts[way]) != NULL))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_module_destroy(m);
    }
}

static const check_test tests[] = {
    {TEST(what_differs_is_found_and_named), {2, 3}},
    {TEST(what_one_rank_was_refused_is_told), {2, 3}},
    {TEST(options_of_optimizers_are_compared), {2, 3}},
    {TEST(what_was_passed_is_told), {2}},
};
CHECK_MAIN(tests)
