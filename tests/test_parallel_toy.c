/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transformer of two layers of PyTorch's own tests (test_tp_examples.py) in tensor parallel,
 * with and without its sequences split, with tied tables, and with most of it frozen: it trains as
 * the plain one does, and the calls of a step are never more than PyTorch's. A style that keeps
 * what it gathers makes as few; else what is gathered is gathered again, and fewer bytes are saved.
 */
#include "models.h"
#include "sherd/optimizer.h"
#include "sherd/values.h"

enum { LAYERS = 2, HEADS = 4, HEAD = 4, WIDTH = 16, VOCABULARY = 8, POSITIONS = 16, ROWS = 8 };

static void toy_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_world *world = sherd_module_world(self);
    int64_t length = sherd_tensor_shape(in->value[0])[1];
    sherd_tensor *at = sherd_arange(world, SHERD_I32, 0, (double)length, 1);
    sherd_tensor *x = sherd_add(sherd_module_call(sherd_module_find(self, "tokens"), in->value[0]),
                                sherd_module_call(sherd_module_find(self, "positions"), at));

    for (int i = 0; i < LAYERS; i++)
        x = sherd_module_call(sherd_module_child(sherd_module_find(self, "layers"), i), x);
    x = sherd_module_call(sherd_module_find(self, "norm"), x);
    out->value[0] = sherd_module_call(sherd_module_find(self, "output"), x);
    out->count = 1;
}

static void add_table(sherd_module *parent, const char *name, int64_t entries, int k)
{
    sherd_layer_options o = {.name = name, .dtype = SHERD_F64};
    sherd_module *m = NULL;

    CHECK_OK(sherd_embedding_create(&m, sherd_module_world(parent), entries, WIDTH, &o));
    fill_layer(m, SHERD_F64, k, 0);
    add_layer(parent, name, m);
}

static sherd_module *toy(sherd_world *world, bool tied)
{
    static block_size size = {HEADS, HEAD, 0};
    sherd_module *m = container(world, toy_forward, NULL), *layers, *output = NULL;
    sherd_layer_options o = {.name = "output", .dtype = SHERD_F64};
    char name[8];

    add_table(m, "tokens", VOCABULARY, 21);
    add_table(m, "positions", POSITIONS, 23);
    layers = add_layer(m, "layers", container(world, NULL, NULL));
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        add_layer(layers, name, block(world, SHERD_F64, &size, 4 * WIDTH));
    }
    norm_layer(m, "norm", SHERD_F64, WIDTH, 25);
    CHECK_OK(sherd_linear_create(&output, world, WIDTH, VOCABULARY, &o));
    fill_layer(output, SHERD_F64, 27, 0);
    add_layer(m, "output", output);
    if (tied)
        CHECK_OK(sherd_module_set_parameter(
            output, "weight", sherd_module_parameter(sherd_module_find(m, "tokens"), "weight")));
    return m;
}

static sherd_style moved(sherd_style style, int in, int out)
{
    if (in >= 0)
        style.input = sherd_shard(in);
    if (out >= 0)
        style.output = sherd_shard(out);
    return style;
}

/* The plan of PyTorch's test. Its styles keep what they gather, which here is said. */
static void spread_toy(sherd_module *m, const sherd_mesh *mesh, bool sequence, bool keep)
{
    const int s = sequence ? 1 : -1;
    sherd_style output = moved(sherd_colwise(), s, -1);
    output.output = sherd_replicate();
    sherd_parallel_entry plan[] = {{"tokens", moved(sherd_rowwise(), -1, s)},
                                   {"positions", moved(sherd_rowwise(), -1, s - 1)},
                                   {"output", output},
                                   {"layers.*.attn.w[qkv]", sherd_colwise()},
                                   {"layers.*.attn.wo", moved(sherd_rowwise(), -1, s)},
                                   {"layers.*.mlp.w1", sherd_colwise()},
                                   {"layers.*.mlp.w2", moved(sherd_rowwise(), -1, s)},
                                   {"layers.*.attn", moved(sherd_prepare_input(), s, -1)},
                                   {"layers.*.mlp", moved(sherd_prepare_input(), s, -1)},
                                   {"layers.*.ln?", sherd_sequence_parallel()},
                                   {"norm", sherd_sequence_parallel()}};

    for (int i = 0; i < LEN(plan); i++)
        plan[i].style.keep_gathered = keep;
    plan[3].style.granule = plan[4].style.granule = HEAD;
    if (!sequence)
        plan[1].style.output = (sherd_placement){SHERD_UNSET, 0, SHERD_SUM};
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, sequence ? LEN(plan) : 7));
}

/* All-reduces, reduce-scatters and all-gathers. */
typedef struct counts {
    int64_t all, scatters, gathers;
} counts;

static int64_t calls(sherd_world *world, const char *op)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = op});
}

static counts count(sherd_world *world)
{
    return (counts){calls(world, "all_reduce"), calls(world, "reduce_scatter"),
                    calls(world, "all_gather")};
}

static void at_most(sherd_world *world, const char *name, const char *when, counts c, counts most)
{
    CHECK_EQ(c.all + c.scatters + c.gathers, sherd_comm_calls(world, NULL));
    if (!CHECK(c.all <= most.all && c.scatters <= most.scatters && c.gathers <= most.gathers))
        fprintf(stderr, "  %s, %s: %d all-reduces, %d reduce-scatters, %d all-gathers\n", name,
                when, (int)c.all, (int)c.scatters, (int)c.gathers);
}

static sherd_tensor *ids_of(sherd_world *world)
{
    int32_t ids[ROWS * ROWS];

    for (int i = 0; i < LEN(ids); i++)
        ids[i] = (i * i + 3 * i) % VOCABULARY;
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, SHAPE(ROWS, ROWS), 2, ids));
}

/* One of PyTorch's tests: what it trains, and the calls that it makes forward, backward and in the
 * step. */
typedef struct scene {
    const char *name;
    const char *trained[6]; /* "path.parameter"; none = all */
    bool tied, sequence;
    counts forward, backward;
    int64_t step;  /* all-reduces */
    int64_t again; /* gathers more in backward where nothing is kept */
} scene;

static const scene scenes[] = {
    {"I22 tied", {NULL}, true, false, {6, 0, 1}, {9, 0, 0}, 0, 0},
    {"I22 tied, sequences", {NULL}, true, true, {0, 6, 6}, {0, 5, 6}, 30, 5},
    {"plain", {NULL}, false, false, {6, 0, 1}, {9, 0, 0}, 0, 0},
    {"sequences", {NULL}, false, true, {0, 6, 6}, {0, 5, 6}, 30, 5},
    {"I23 output, norm",
     {"output.weight", "norm.weight", "norm.bias"},
     false,
     true,
     {0, 6, 6},
     {0, 1, 0},
     6,
     1},
    {"I23 tokens, output",
     {"tokens.weight", "output.weight"},
     false,
     true,
     {0, 6, 6},
     {0, 5, 5},
     0,
     1},
    {"I23 tokens, output, norm",
     {"tokens.weight", "output.weight", "norm.weight", "norm.bias"},
     false,
     true,
     {0, 6, 6},
     {0, 5, 5},
     6,
     1},
    {"I23 a norm inside",
     {"tokens.weight", "output.weight", "norm.weight", "norm.bias", "layers.1.ln2.weight",
      "layers.1.ln2.bias"},
     false,
     true,
     {0, 6, 6},
     {0, 5, 5},
     12,
     1},
    {"I23 mixed",
     {"tokens.weight", "layers.0.attn.wv.weight", "layers.0.mlp.w1.bias", "layers.1.ln2.bias",
      "layers.1.mlp.w2.weight", "output.weight"},
     false,
     true,
     {0, 6, 6},
     {0, 5, 5},
     3,
     2},
};

static bool is_trained(const scene *s, const sherd_named_parameter *p)
{
    char name[64];

    snprintf(name, sizeof name, "%s.%s", p->path, p->name);
    for (int i = 0; i < LEN(s->trained) && s->trained[i]; i++)
        if (strcmp(s->trained[i], name) == 0)
            return true;
    return !s->trained[0];
}

static int freeze(const scene *s, sherd_module *m, sherd_named_parameter *all)
{
    int n = sherd_module_all_parameters(m, all, 48);

    CHECK(n <= 48);
    for (int i = 0; i < n; i++)
        sherd_require_grad(all[i].tensor, is_trained(s, &all[i]));
    return n;
}

static sherd_tensor *loss_of(sherd_module *m, sherd_tensor *ids)
{
    sherd_tensor *y = sherd_module_call(m, ids);

    return sherd_sum(sherd_mul(
        y, wave(sherd_module_world(m), SHERD_F64, 3, SHAPE(ROWS, ROWS, VOCABULARY), 29, 1, 0)));
}

static void same_gradients(const scene *s, const sherd_named_parameter *plain,
                           const sherd_named_parameter *spread, int n)
{
    static _Thread_local double expected[MOST];

    for (int i = 0; i < n; i++) {
        sherd_tensor *g = sherd_grad(spread[i].tensor);
        CHECK_EQ(g != NULL, is_trained(s, &plain[i]));
        if (!g)
            continue;
        int64_t elements = whole(sherd_grad(plain[i].tensor), expected);
        double tolerance = 1e-11 * (1 + largest(expected, elements));
        if (!CHECK_NEAR(distance_to(g, expected, elements), 0, tolerance))
            fprintf(stderr, "  %s: %s.%s\n", s->name, plain[i].path, plain[i].name);
    }
}

/* Forward, backward and the round that settles what is pending; how many bytes were saved. */
static int64_t step(const scene *s, sherd_module *m, sherd_tensor *ids, bool keep)
{
    sherd_world *world = sherd_module_world(m);
    counts back = s->backward;
    sherd_optimizer *o = NULL;
    int64_t bytes;

    CHECK_OK(sherd_adam_create(&o, m, NULL));
    sherd_comm_reset(world);
    sherd_tensor *loss = loss_of(m, ids);
    at_most(world, s->name, "forward", count(world), s->forward);
    bytes = sherd_saved_bytes(world);
    sherd_comm_reset(world);
    sherd_backward(loss);
    back.gathers += keep ? 0 : s->again;
    at_most(world, s->name, "backward", count(world), back);
    sherd_comm_reset(world);
    sherd_optimizer_settle(o);
    at_most(world, s->name, "step", count(world), (counts){s->step > 0, 0, 0});
    sherd_optimizer_destroy(o);
    return bytes;
}

static void the_calls_of_a_step_are_at_most_those_of_pytorch(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *ids = ids_of(world);

    for (int i = 0; i < LEN(scenes); i++) {
        const scene *s = &scenes[i];
        sherd_named_parameter plain[48], all[48];
        sherd_module *whole = toy(world, s->tied);
        int64_t bytes[2];
        int n = freeze(s, whole, plain);
        sherd_backward(loss_of(whole, ids));
        for (int keep = 0; keep < 2; keep++) {
            sherd_scope_begin(world);
            sherd_module *m = toy(world, s->tied);
            CHECK_EQ(freeze(s, m, all), n);
            spread_toy(m, mesh, s->sequence, keep);
            sherd_module_all_parameters(m, all, 48);
            bytes[keep] = step(s, m, ids, keep);
            same_gradients(s, plain, all, n);
            sherd_module_destroy(m);
            sherd_scope_end(world);
        }
        CHECK(bytes[0] < bytes[1] || !s->sequence || sherd_world_ranks(world) == 1);
        sherd_module_destroy(whole);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(the_calls_of_a_step_are_at_most_those_of_pytorch), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
