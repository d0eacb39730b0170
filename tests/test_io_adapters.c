/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adapters of low rank beside frozen layers (LoRA), trained on one mesh: a file of what was trained
 * holds nothing else, and a model on any other mesh that reads it goes on with the same numbers.
 * Files of other parts and of chosen names hold these; what is missing or not asked for is listed.
 */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizer.h"

enum { LAYERS = 2, WIDTH = 12, RANK = 3, ROWS = 8, STEPS = 3 };

/* y = base x + up (down x) */
static void adapted_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];
    sherd_tensor *low = sherd_module_call(sherd_module_find(self, "down"), x);

    out->value[0] = sherd_add(sherd_module_call(sherd_module_find(self, "base"), x),
                              sherd_module_call(sherd_module_find(self, "up"), low));
    out->count = 1;
}

static void adapted_stack(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    for (int i = 0; i < LAYERS; i++)
        x = sherd_tanh(sherd_module_call(sherd_module_child(self, i), x));
    out->value[0] = x;
    out->count = 1;
}

static void adapter(sherd_module *parent, const char *name, int64_t in, int64_t out, int k)
{
    const sherd_layer_options options = {.name = name, .dtype = SHERD_F64};
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, sherd_module_world(parent), in, out, &options));
    fill_layer(m, SHERD_F64, k, 0);
    add_layer(parent, name, m);
}

typedef enum way { PLAIN, COLUMNS, LINES, SHARDED, WAYS } way;

/* The first layer Colwise, with the rows of "up"; the second Rowwise, with the columns of "down". */
static void lay(sherd_module *m, way w)
{
    sherd_world *world = sherd_module_world(m);
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry columns[] = {{"*.base", sherd_colwise()}, {"*.up", sherd_colwise()}};
    const sherd_parallel_entry lines[] = {{"*.base", sherd_rowwise()}, {"*.down", sherd_rowwise()}};

    if (w == COLUMNS)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", columns, 2));
    if (w == LINES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", lines, 2));
    if (w == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
}

/* Adapters begin with other numbers for another k. */
static sherd_module *make(sherd_world *world, way w, int k)
{
    static const char *const names[LAYERS] = {"0", "1"};
    sherd_module *root = container(world, adapted_stack, NULL);

    for (int i = 0; i < LAYERS; i++) {
        sherd_module *m = add_layer(root, names[i], container(world, adapted_forward, NULL));
        linear_layer(m, "base", SHERD_F64, WIDTH, WIDTH, 5 + 2 * i);
        adapter(m, "down", WIDTH, RANK, k + i);
        adapter(m, "up", RANK, WIDTH, k + i + 7);
    }
    CHECK_EQ(sherd_module_require_grad(root, "**.base.*", false), 2 * LAYERS);
    lay(root, w);
    return root;
}

static sherd_tensor *input(sherd_module *m, way w, int step)
{
    sherd_world *world = sherd_module_world(m);
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 3 + step, 1, 0);

    return w == PLAIN ? x : spread(x, line_of_ranks(world), w == SHARDED ? "S(0)" : "R");
}

/* The loss of some steps, from this number on. */
static double train(sherd_module *m, sherd_optimizer *o, way w, int from)
{
    double loss = 0;

    for (int step = from; step < from + STEPS; step++) {
        sherd_scope_begin(sherd_module_world(m));
        sherd_tensor *y = sherd_module_call(m, input(m, w, step));
        sherd_tensor *l = squared_error(y, sherd_scale(input(m, w, step), 0.5));
        sherd_backward(l);
        loss += sherd_item(l);
        sherd_optimizer_step(o, 0.05, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(sherd_module_world(m));
    }
    return loss;
}

static bool is_in_file(sherd_world *world, const char *path, int count, const char *const *names)
{
    sherd_file *file = NULL;
    bool good = CHECK_OK(sherd_file_open(&file, world, path));

    CHECK_EQ(sherd_file_entries(file), count);
    for (int i = 0; names[i]; i++)
        good = CHECK(sherd_file_find(file, names[i]) != NULL) && good;
    sherd_file_destroy(file);
    return good;
}

static const sherd_write_options trained = {.part = SHERD_FILE_TRAINED};
static const sherd_read_options as_trained = {.part = SHERD_FILE_TRAINED};

/* Written on one mesh, read on another into a model with other adapters. */
static void go_on_elsewhere(sherd_world *world, const char *path, way from, way to)
{
    static const char *const names[] = {"0.up.weight", "1.down.weight", "optimizer.0.up.weight.m",
                                        NULL};
    sherd_module *a = make(world, from, 3), *b = make(world, to, 4);
    sherd_optimizer *oa = NULL, *ob = NULL;

    CHECK_OK(sherd_adamw_create(&oa, a, NULL));
    CHECK_OK(sherd_adamw_create(&ob, b, NULL));
    train(a, oa, from, 0);
    CHECK_OK(sherd_module_write_with(a, oa, path, &trained));
    is_in_file(world, path, 4 * 4, names); /* each with m, v and steps */
    CHECK_OK(sherd_module_read(b, ob, path, &as_trained));
    double wanted = train(a, oa, from, STEPS);
    CHECK_NEAR(train(b, ob, to, STEPS), wanted, 1e-12 * wanted);
    sherd_optimizer_destroy(oa);
    sherd_optimizer_destroy(ob);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
}

static void adapters_go_to_any_mesh(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "adapters");

    for (int from = 0; from < WAYS; from++)
        for (int to = 0; to < WAYS; to++)
            if (from == COLUMNS || to == COLUMNS)
                go_on_elsewhere(world, path, (way)from, (way)to);
    remove_file(world, path);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static double sum_of(sherd_module *m, const char *path)
{
    static _Thread_local double x[MOST];
    int64_t n = whole(sherd_module_parameter(sherd_module_find(m, path), "weight"), x);
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (double)(i + 1) * x[i];
    return sum;
}

/* The rest of a model, and what patterns choose. */
static void parts_and_patterns_choose(sherd_world *world)
{
    static const char *const bases[] = {"0.base.weight", "1.base.bias", NULL},
                             *const ups[] = {"0.up.weight", "1.up.weight", NULL},
                             *const one[] = {"1.up.weight", NULL};
    static const char *const up[] = {"**.up.*"}, *const second[] = {"1.**"},
                             *const both[] = {"0.up.*", "1.up.*"};
    const sherd_write_options frozen = {.part = SHERD_FILE_FROZEN};
    const sherd_write_options chosen = {.only = up, .only_count = 1};
    const sherd_write_options two = {.only = both, .only_count = 2};
    const sherd_write_options mixed = {.only = second, .only_count = 1, .part = SHERD_FILE_FROZEN};
    const sherd_read_options as_chosen = {.only = up, .only_count = 1},
                             as_frozen = {.part = SHERD_FILE_FROZEN};
    char room[256];
    const char *path = scratch(room, "parts");
    sherd_module *a = make(world, COLUMNS, 3), *b = make(world, LINES, 4);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, a, &(sherd_sgd_options){.momentum = 0.9}));
    CHECK_OK(sherd_module_write_with(a, o, path, &chosen));
    is_in_file(world, path, 2 * 3, ups); /* with momentum and steps */
    CHECK_OK(sherd_module_write_with(a, NULL, path, &two));
    is_in_file(world, path, 2, ups);
    double down = sum_of(b, "1.down");
    CHECK_OK(sherd_module_read(b, NULL, path, &as_chosen));
    CHECK_EQ(sum_of(b, "1.up"), sum_of(a, "1.up"));
    CHECK_EQ(sum_of(b, "1.down"), down);
    CHECK_OK(sherd_module_write_with(a, o, path, &mixed));
    is_in_file(world, path, 2, (const char *const[]){"1.base.weight", "1.base.bias", NULL});
    CHECK_OK(sherd_module_write_with(a, o, path, &frozen));
    is_in_file(world, path, 4, bases);
    CHECK_OK(sherd_module_read(b, NULL, path, &as_frozen));
    const sherd_write_options last = {.only = second, .only_count = 1, .part = SHERD_FILE_TRAINED};
    CHECK_OK(sherd_module_write_with(a, NULL, path, &last));
    is_in_file(world, path, 2, one);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(a);
    sherd_module_destroy(b);
    remove_file(world, path);
}

static void refused(sherd_world *world, sherd_status status, const char *text)
{
    CHECK_EQ(status, SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static void what_does_not_fit_is_listed(sherd_world *world)
{
    static const char *const none[] = {"**.upp.*"};
    const sherd_read_options partial = {.partial = true},
                             more = {.part = SHERD_FILE_TRAINED, .more = true};
    const sherd_write_options nothing = {.only = none, .only_count = 1};
    char room[256];
    const char *path = scratch(room, "listed");
    sherd_module *m = make(world, COLUMNS, 3);

    CHECK_OK(sherd_module_write_with(m, NULL, path, &trained));
    refused(world, sherd_module_read(m, NULL, path, NULL), "\"0.base.weight\", f64[12");
    refused(world, sherd_module_read(m, NULL, path, NULL),
            "the file has none, nor \"0.base.bias\", \"1.base.weight\", \"1.base.bias\"");
    CHECK_OK(sherd_module_read(m, NULL, path, &partial));
    CHECK_OK(sherd_module_write(m, NULL, path));
    refused(world, sherd_module_read(m, NULL, path, &as_trained),
            "the module has no chosen \"0.base.weight\", \"0.base.bias\", \"1.base.weight\", "
            "\"1.base.bias\" (options.more ignores that)");
    CHECK_OK(sherd_module_read(m, NULL, path, &more));
    refused(world, sherd_module_write_with(m, NULL, path, &nothing),
            "only: no parameter or buffer matches \"**.upp.*\"; there are ");
    CHECK_EQ(sherd_module_require_grad(m, "**", false), 8);
    refused(world, sherd_module_write_with(m, NULL, path, &trained),
            "no parameter or buffer is chosen by part and only");
    sherd_module_destroy(m);
    remove_file(world, path);
}

/* Names that have no room are counted. */
static void long_lists_are_cut(sherd_world *world)
{
    char room[256], name[64];
    const char *path = scratch(room, "long");
    sherd_module *few = container(world, NULL, NULL), *many = container(world, NULL, NULL);

    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "a_parameter_with_a_long_name_%d", i);
        sherd_tensor *t = sherd_constant(world, SHERD_F32, NULL, 0, i);
        CHECK_OK(sherd_module_add_parameter(many, name, t));
        if (i == 0)
            CHECK_OK(sherd_module_add_parameter(few, name, t));
    }
    CHECK_OK(sherd_module_write(few, NULL, path));
    refused(world, sherd_module_read(many, NULL, path, NULL), "_long_name_3\" and 16 more");
    CHECK_OK(sherd_module_write(many, NULL, path));
    refused(world, sherd_module_read(few, NULL, path, NULL),
            "_long_name_2\" and 17 more (options.more");
    sherd_module_destroy(few);
    sherd_module_destroy(many);
    remove_file(world, path);
}

/* Ranks that have frozen, or chosen, others. */
static void ranks_that_choose_others_differ(sherd_world *world)
{
    static const char *const up[] = {"**.up.*"}, *const down[] = {"**.down.*"};
    bool first = sherd_world_rank(world) == 0;
    const sherd_write_options wrong = {.only = first ? up : down, .only_count = 1};
    const sherd_read_options read = {.only = first ? up : down, .only_count = 1, .more = true};
    char room[256];
    const char *path = scratch(room, "choose");
    sherd_module *m = make(world, PLAIN, 3);

    CHECK_EQ(sherd_module_write_with(m, NULL, path, &wrong), SHERD_EDIFFER);
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK_EQ(sherd_module_read(m, NULL, path, &read), SHERD_EDIFFER);
    CHECK_EQ(sherd_module_require_grad(m, first ? "0.up.*" : "1.up.*", false), 1);
    CHECK_EQ(sherd_module_write_with(m, NULL, path, &trained), SHERD_EDIFFER);
    sherd_module_destroy(m);
    remove_file(world, path);
}

static const check_test tests[] = {{TEST(adapters_go_to_any_mesh), {1, 2, 3, 4}},
                                   {TEST(parts_and_patterns_choose), {1, 2, 3}},
                                   {TEST(what_does_not_fit_is_listed), {1, 2}},
                                   {TEST(long_lists_are_cut), {1, 2}},
                                   {TEST(ranks_that_choose_others_differ), {2, 3}}};
CHECK_MAIN(tests)
