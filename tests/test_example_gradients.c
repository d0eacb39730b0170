/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of the GPT example's own model, parameter by parameter: after one backward each of
 * them, gathered, is that of one rank. AdamW would hide a gradient that is wrong by a factor; this
 * does not.
 */
#include <math.h>

#include "check.h"
#include "figures.h"
#include "model.h"

typedef struct setup {
    int dp, tp;
    bool sequence_parallel, input_reshard;
} setup;

static const setup setups[] = {
    {1, 2, false, false}, {1, 2, true, false},  {1, 2, false, true}, {1, 2, true, true},
    {2, 1, false, false}, {1, 3, false, false}, {1, 3, true, false}, {1, 3, true, true},
    {3, 1, false, false}, {2, 2, false, false}, {2, 2, true, true},  {1, 4, false, false},
    {1, 5, true, false},  {2, 3, false, true},  {2, 3, true, false},
};

enum { PARAMETERS = 64 };

static gpt_options small(const setup *s)
{
    return (gpt_options){
        .dp = s->dp,
        .tp = s->tp,
        .layers = 2,
        .dim = 48,
        .heads = 4,
        .context = 17,
        .batch = 8,
        .steps = 1,
        .dropout = 0.1,
        .seed = 1,
        .sequence_parallel = s->sequence_parallel,
        .input_reshard = s->input_reshard,
    };
}

/* Text enough, without a file. */
static corpus alphabet(void)
{
    enum { COUNT = 1000 };
    unsigned char *bytes = malloc(COUNT);
    for (int i = 0; i < COUNT; i++)
        bytes[i] = (unsigned char)(i * i % 251);
    return (corpus){.bytes = bytes, .count = COUNT};
}

/* All gradients of one backward, each as a plain tensor of this rank, in the order of the walk. */
typedef struct gradients {
    int count;
    sherd_tensor *whole[PARAMETERS]; /* retained */
    char name[PARAMETERS][64];
    double loss;
} gradients;

static void collect(gradients *out, trainer *t)
{
    sherd_named_parameter p[PARAMETERS];
    step_figures step;

    train_gradients(t, 0, &step);
    out->loss = step.loss;
    out->count = sherd_module_all_parameters(t->model, p, PARAMETERS);
    sherd_scope_begin(t->world);
    for (int i = 0; i < out->count; i++) {
        sherd_tensor *g = sherd_grad(p[i].tensor);
        CHECK(g != NULL);
        out->whole[i] = sherd_tensor_retain(sherd_full(g));
        snprintf(out->name[i], sizeof out->name[i], "%s.%s", p[i].path, p[i].name);
    }
    sherd_scope_end(t->world);
    CHECK_OK(sherd_world_check(t->world));
}

static void discard(gradients *g)
{
    for (int i = 0; i < g->count; i++)
        sherd_tensor_release(g->whole[i]);
}

/* 2-norm of a, or of a - b. */
static double norm(sherd_tensor *a, sherd_tensor *b)
{
    const float *x = sherd_tensor_read(a), *y = b ? sherd_tensor_read(b) : NULL;
    double sum = 0;

    for (int64_t i = 0; i < sherd_tensor_count(a); i++) {
        double d = (double)x[i] - (y ? (double)y[i] : 0);
        sum += d * d;
    }
    return sqrt(sum);
}

static void compare(const gradients *one, const gradients *many)
{
    double all = 0;

    CHECK_EQ(one->count, many->count);
    CHECK_NEAR(one->loss, many->loss, 1e-5 * one->loss);
    for (int i = 0; i < one->count; i++)
        all += pow(norm(one->whole[i], NULL), 2);
    all = sqrt(all);
    CHECK(all > 0.1);
    for (int i = 0; i < one->count; i++) {
        double scale = fmax(norm(one->whole[i], NULL), 1e-3 * all);
        if (!CHECK_NEAR(norm(one->whole[i], many->whole[i]) / scale, 0, 1e-5))
            fprintf(stderr, "gradient of %s\n", one->name[i]);
    }
}

static void of_one_rank(gradients *out, sherd_world **world, double dropout)
{
    const sherd_world_options options = {.seed = 1, .no_pin = true};
    gpt_options o = small(&(setup){1, 1, false, false});
    corpus text = alphabet();
    trainer t;

    o.dropout = dropout;
    CHECK_OK(sherd_world_alone(world, &options));
    CHECK_OK(trainer_create(&t, *world, &o, &text));
    collect(out, &t);
    trainer_destroy(&t);
    text_free(&text);
}

static void every_gradient_is_that_of_one_rank(sherd_world *world)
{
    corpus text = alphabet();
    sherd_world *alone;
    gradients one, many;

    of_one_rank(&one, &alone, 0.1);
    for (int i = 0; i < LEN(setups); i++) {
        gpt_options o = small(&setups[i]);
        trainer t;
        if (o.dp * o.tp != sherd_world_ranks(world))
            continue;
        CHECK_OK(trainer_create(&t, world, &o, &text));
        collect(&many, &t);
        compare(&one, &many);
        discard(&many);
        trainer_destroy(&t);
    }
    discard(&one);
    text_free(&text);
    CHECK_OK(sherd_world_close(alone));
}

/* Sequences over "cp", in zigzag order and in order, beside what other axes split. */
static void a_sequence_in_parts_gives_the_gradients_of_one_rank(sherd_world *world)
{
    static const struct {
        int dp, cp, tp;
        bool in_order, sequence_parallel, shard_parameters;
    } how[] = {
        {1, 2, 1, false, false, false}, {1, 2, 1, true, false, true},
        {1, 3, 1, false, false, true},  {2, 2, 1, false, false, true},
        {1, 2, 2, false, true, true},   {1, 2, 2, true, false, false},
        {2, 2, 2, false, true, true},   {1, 8, 1, false, false, false},
    };
    corpus text = alphabet();
    sherd_world *alone;
    gradients one, many;

    of_one_rank(&one, &alone, 0); /* dropout draws for rows, which are in another order here */
    for (int i = 0; i < LEN(how); i++) {
        gpt_options o = small(&(setup){how[i].dp, how[i].tp, how[i].sequence_parallel, false});
        char error[LINE_BYTES];
        trainer t;
        if (how[i].dp * how[i].cp * how[i].tp != sherd_world_ranks(world))
            continue;
        o.cp = how[i].cp;
        o.dropout = 0;
        o.in_order = how[i].in_order;
        o.shard_parameters = how[i].shard_parameters;
        CHECK(options_fit(&o, sherd_world_ranks(world), error));
        CHECK_EQ(o.zigzag, o.in_order ? 0 : o.cp);
        CHECK_OK(trainer_create(&t, world, &o, &text));
        collect(&many, &t);
        compare(&one, &many);
        discard(&many);
        trainer_destroy(&t);
    }
    discard(&one);
    text_free(&text);
    CHECK_OK(sherd_world_close(alone));
}

static bool same_bits(sherd_tensor *a, sherd_tensor *b)
{
    return memcmp(sherd_tensor_read(a), sherd_tensor_read(b),
                  (size_t)sherd_tensor_count(a) * sizeof(float)) == 0;
}

static void input_reshard_changes_no_bit_of_a_gradient(sherd_world *world)
{
    static const setup plain[] = {{1, 2, false, false},
                                  {1, 3, false, false},
                                  {1, 3, true, false},
                                  {2, 2, false, false},
                                  {2, 3, true, false}};
    corpus text = alphabet();

    for (int i = 0; i < LEN(plain); i++) {
        gradients got[2];
        if (plain[i].dp * plain[i].tp != sherd_world_ranks(world))
            continue;
        for (int with = 0; with < 2; with++) {
            gpt_options o = small(&plain[i]);
            trainer t;
            o.input_reshard = with;
            CHECK_OK(trainer_create(&t, world, &o, &text));
            collect(&got[with], &t);
            trainer_destroy(&t);
        }
        for (int k = 0; k < got[0].count; k++)
            CHECK(same_bits(got[0].whole[k], got[1].whole[k]));
        discard(&got[0]);
        discard(&got[1]);
    }
    text_free(&text);
}

/* The whole model exists nowhere: a rank takes memory for its parts, and for the optimizer's two
 * numbers for each element, and steps. */
static void a_rank_starts_with_its_parts(sherd_world *world)
{
    corpus text = alphabet();

    for (int i = 0; i < LEN(setups); i++) {
        gpt_options o = small(&setups[i]);
        sherd_named_parameter p[PARAMETERS];
        int64_t before = sherd_world_memory(world).live_bytes, elements = 0;
        trainer t;
        if (o.dp * o.tp != sherd_world_ranks(world))
            continue;
        sherd_world_memory_reset(world);
        CHECK_OK(trainer_create(&t, world, &o, &text));
        int count = sherd_module_all_parameters(t.model, p, PARAMETERS);
        for (int k = 0; k < count; k++) {
            sherd_box box = sherd_tensor_box(p[k].tensor);
            int64_t n = 1;
            for (int d = 0; d < box.ndim; d++)
                n *= box.size[d];
            elements += n;
        }
        CHECK_EQ(sherd_world_memory(world).peak_bytes - before, 3 * 4 * elements + 8 * count);
        trainer_destroy(&t);
        CHECK_EQ(sherd_world_memory(world).live_bytes, before);
    }
    text_free(&text);
}

/* Nor at the end, for the comparison, if it is large. */
static void a_large_model_is_not_made_on_one_rank(sherd_world *world)
{
    gpt_options o = small(&(setup){1, 2, false, false});
    const trainer t = {.world = world, .options = &o};
    figures f = {.params_total = COMPARED_PARAMETERS + 1, .steps = 1};

    CHECK_OK(figures_compare(&f, &t));
    CHECK(isnan(f.worst_difference));
}

/* A failure of any allocation of one rank, while a model is made, ends in the same error on all,
 * and in nothing else. */
static void no_memory_while_a_model_is_made_is_told_to_all(sherd_world *world)
{
    gpt_options o = small(&(setup){1, 2, false, false});
    corpus text = alphabet();
    sherd_status status = SHERD_ENOMEM;

    for (int64_t n = 1; status && n < 5000; n += n < 100 ? 1 : 37) {
        trainer t;
        if (sherd_world_rank(world) == 1)
            sherd_world_fail_allocation(world, n);
        status = trainer_create(&t, world, &o, &text);
        sherd_world_fail_allocation(world, 0);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            fprintf(stderr, "%lld: %s\n", (long long)n, sherd_world_error(world));
        if (sherd_world_check(world) != SHERD_OK)
            CHECK_OK(sherd_world_check(world));
        trainer_destroy(&t);
    }
    CHECK_OK(status);
    text_free(&text);
}

/* The same in a training step, at many places of it; the step after it works. */
static void no_memory_in_a_step_is_told_to_all(sherd_world *world)
{
    const int places = 200 / check_stride(2);
    gpt_options o = small(&(setup){1, sherd_world_ranks(world), true, true});
    corpus text = alphabet();
    int64_t allocations;
    step_figures one;
    trainer t;

    CHECK_OK(trainer_create(&t, world, &o, &text));
    CHECK_OK(train_step(&t, 0, &one)); /* from here on plans are cached */
    sherd_world_fail_allocation(world, 0);
    CHECK_OK(train_step(&t, 0, &one));
    allocations = sherd_world_allocations(world);
    for (int i = 0; i < places; i++) {
        if (sherd_world_rank(world) == 1)
            sherd_world_fail_allocation(world, 1 + i * allocations / places);
        sherd_status status = train_step(&t, 0, &one);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_optimizer_clear(t.optimizer);
    }
    CHECK_OK(train_step(&t, 0, &one));
    trainer_destroy(&t);
    text_free(&text);
}

static const check_test tests[] = {
    {TEST(every_gradient_is_that_of_one_rank), {2, 3, 4, 5, 6}},
    {TEST(a_sequence_in_parts_gives_the_gradients_of_one_rank), {2, 3, 4, 8}},
    {TEST(input_reshard_changes_no_bit_of_a_gradient), {2, 3, 4, 6}},
    {TEST(a_rank_starts_with_its_parts), {1, 2, 3, 4, 5, 6}},
    {TEST(a_large_model_is_not_made_on_one_rank), {2}},
    {TEST(no_memory_while_a_model_is_made_is_told_to_all), {2}},
    {TEST(no_memory_in_a_step_is_told_to_all), {2, 3}},
};
CHECK_MAIN(tests)
