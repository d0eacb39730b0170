/* SPDX-License-Identifier: Apache-2.0 */
/* Names that differ between a module and its files: levels that match, stacks, parts of tensors. */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

enum { EXPERTS = 5, WIDTH = 4, HIDDEN = 3 };

static const sherd_file_name names[] = {
    {"9.w1", "of.no.layer"},
    {"*.w1", "layers.*.experts.#.gate_proj.weight"},
    {"*.w3", "layers.*.experts.#.up_proj.weight"},
    {"*.w2", "layers.*.experts.#.down_proj.weight"},
    {"*.router.weight", "layers.*.gate.weight"},
};

static sherd_read_options by_names(bool partial)
{
    return (sherd_read_options){
        .cast = true, .partial = partial, .names = names, .name_count = LEN(names)};
}

/* Two mixtures, "0" and "1". */
static sherd_module *two_mixtures(sherd_world *world, const sherd_mesh *mesh)
{
    const sherd_experts_options how = {EXPERTS, 2, HIDDEN, false, false};
    const sherd_parallel_entry plan = {"*", sherd_expert_parallel()};
    sherd_module *root = container(world, NULL, NULL);

    for (int i = 0; i < 2; i++) {
        sherd_module *m = NULL;
        CHECK_OK(sherd_experts_create(&m, world, WIDTH, &how, NULL));
        add_layer(root, i ? "1" : "0", m);
    }
    if (mesh)
        CHECK_OK(sherd_parallelize(root, mesh, sherd_mesh_axis_name(mesh, 0), &plan, 1));
    return root;
}

/* What the files hold: a wave for each tensor. All, or but one; in two files that share them. */
typedef struct written {
    char name[80][64];
    sherd_named_tensor tensor[80];
    int count;
} written;

static void add(sherd_world *world, written *w, const char *name, const int64_t *shape)
{
    snprintf(w->name[w->count], sizeof w->name[0], "%s", name);
    w->tensor[w->count] = (sherd_named_tensor){
        w->name[w->count], wave(world, SHERD_F64, 2, shape, w->count + 1, 1, 0)};
    w->count++;
}

static const int64_t in_out[] = {HIDDEN, WIDTH}, out_in[] = {WIDTH, HIDDEN};

static void make(sherd_world *world, written *w)
{
    static const char *const kind[] = {"gate", "up", "down"};
    char name[64];

    w->count = 0;
    for (int layer = 0; layer < 2; layer++) {
        snprintf(name, sizeof name, "layers.%d.gate.weight", layer);
        add(world, w, name, (const int64_t[]){EXPERTS, WIDTH});
        for (int k = 0; k < 3; k++)
            for (int e = 0; e < EXPERTS; e++) {
                snprintf(name, sizeof name, "layers.%d.experts.%d.%s_proj.weight", layer, e,
                         kind[k]);
                add(world, w, name, k == 2 ? out_in : in_out);
            }
    }
}

/* Parameters hold the waves of their parts, each behind the other. */
static void check_stack(sherd_module *m, const char *name, int first)
{
    static _Thread_local double have[MOST];
    int64_t n = whole(sherd_module_parameter(m, name), have);

    CHECK_EQ(n, EXPERTS * HIDDEN * WIDTH);
    for (int e = 0; e < EXPERTS; e++)
        for (int i = 0; i < HIDDEN * WIDTH; i++)
            CHECK_NEAR(have[e * HIDDEN * WIDTH + i], sin(0.1 * (i + 1) * (first + e)), 1e-6);
}

static void stacks_are_read_part_by_part(sherd_world *world)
{
    const sherd_read_options options = by_names(false);
    const sherd_mesh *mesh = line_of_ranks(world);
    char room[2][256];
    const char *paths[] = {scratch(room[0], "names0"), scratch(room[1], "names1")};
    written w;

    make(world, &w);
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_file_write(world, paths[i], w.tensor + (i ? 13 : 0), i ? w.count - 13 : 13,
                                  NULL, 0));
    for (int way = 0; way < 2; way++) {
        sherd_module *m = two_mixtures(world, way ? mesh : NULL);
        CHECK_OK(sherd_module_read_files(m, paths, 2, &options));
        for (int layer = 0; layer < 2; layer++) {
            sherd_module *one = sherd_module_child(m, layer);
            int first = layer * (1 + 3 * EXPERTS) + 2;
            check_stack(one, "w1", first);
            check_stack(one, "w3", first + EXPERTS);
            check_stack(one, "w2", first + 2 * EXPERTS);
        }
        sherd_module_destroy(m);
    }
    for (int i = 0; i < 2; i++)
        remove_file(world, paths[i]);
    CHECK_OK(sherd_world_check(world));
}

/* A Linear whose weight and bias are rows of a tensor of the file. */
static const struct {
    const char *name;
    int64_t first, rows;
} parts[] = {{"q", 0, 5}, {"k", 5, 2}, {"v", 7, 3}};

enum { FUSED = 10 };

static const sherd_file_name part_names[] = {
    {"q.*", "qkv.*[0:]"},
    {"k.*", "qkv.*[5:]"},
    {"v.*", "qkv.*[7:]"},
    {"moe.router.weight", "gate.weight"},
    {"moe.w1", "experts.#.gate_up.weight[0:]"},
    {"moe.w3", "experts.#.gate_up.weight[3:]"},
    {"moe.w2", "experts.#.down.weight"},
};

static sherd_module *split_projections(sherd_world *world, const sherd_mesh *mesh)
{
    const sherd_experts_options how = {EXPERTS, 2, HIDDEN, false, false};
    const sherd_parallel_entry plan[] = {
        {"[qv]", sherd_colwise()}, {"k", sherd_rowwise()}, {"moe", sherd_expert_tensor_parallel()}};
    sherd_module *root = container(world, NULL, NULL), *m = NULL;

    for (int i = 0; i < LEN(parts); i++) {
        CHECK_OK(sherd_linear_create(&m, world, WIDTH, parts[i].rows,
                                     &(sherd_layer_options){.bias = true}));
        add_layer(root, parts[i].name, m);
    }
    CHECK_OK(sherd_experts_create(&m, world, WIDTH, &how, NULL));
    add_layer(root, "moe", m);
    if (mesh)
        CHECK_OK(sherd_parallelize(root, mesh, sherd_mesh_axis_name(mesh, 0), plan, LEN(plan)));
    return root;
}

static void write_fused(sherd_world *world, const char *path)
{
    const int64_t two[] = {2 * HIDDEN, WIDTH}, fused[] = {FUSED, WIDTH};
    char name[64];
    written w = {.count = 0};

    add(world, &w, "qkv.weight", fused);
    w.tensor[w.count++] =
        (sherd_named_tensor){"qkv.bias", wave(world, SHERD_F32, 1, fused, 2, 1, 0)};
    add(world, &w, "gate.weight", (const int64_t[]){EXPERTS, WIDTH});
    for (int e = 0; e < EXPERTS; e++) {
        snprintf(name, sizeof name, "experts.%d.gate_up.weight", e);
        add(world, &w, name, two);
        snprintf(name, sizeof name, "experts.%d.down.weight", e);
        add(world, &w, name, out_in);
    }
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
}

/* A tensor holds these elements of wave number `wave`. */
static void check_part(sherd_tensor *t, int64_t at, int64_t count, int64_t first, int wave)
{
    static _Thread_local double have[MOST];

    CHECK(whole(t, have) >= at + count);
    for (int64_t i = 0; i < count; i++)
        CHECK_NEAR(have[at + i], sin(0.1 * (double)(first + i + 1) * wave), 1e-6);
}

static void parts_of_fused_tensors_are_read(sherd_world *world)
{
    const sherd_read_options options = {
        .cast = true, .names = part_names, .name_count = LEN(part_names)};
    enum { EACH = HIDDEN * WIDTH };
    char room[256];
    const char *path = scratch(room, "parts");

    write_fused(world, path);
    for (int way = 0; way < 2; way++) {
        sherd_module *m = split_projections(world, way ? line_of_ranks(world) : NULL);
        CHECK_OK(sherd_module_read(m, NULL, path, &options));
        for (int i = 0; i < LEN(parts); i++) {
            sherd_module *one = sherd_module_find(m, parts[i].name);
            check_part(sherd_module_parameter(one, "weight"), 0, parts[i].rows * WIDTH,
                       parts[i].first * WIDTH, 1);
            check_part(sherd_module_parameter(one, "bias"), 0, parts[i].rows, parts[i].first, 2);
        }
        sherd_module *moe = sherd_module_find(m, "moe");
        for (int e = 0; e < EXPERTS; e++) {
            check_part(sherd_module_parameter(moe, "w1"), e * EACH, EACH, 0, 4 + 2 * e);
            check_part(sherd_module_parameter(moe, "w3"), e * EACH, EACH, EACH, 4 + 2 * e);
        }
        sherd_module_destroy(m);
    }
    remove_file(world, path);
    CHECK_OK(sherd_world_check(world));
}

static void refused(sherd_world *world, sherd_module *m, const char *path,
                    const sherd_read_options *options, const char *text)
{
    CHECK_EQ(sherd_module_read(m, NULL, path, options), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

static void what_is_missing_is_said(sherd_world *world)
{
    const sherd_read_options all = by_names(false), some = by_names(true);
    sherd_module *m = two_mixtures(world, line_of_ranks(world));
    char room[256];
    const char *path = scratch(room, "names");
    written w;

    make(world, &w);
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
    refused(world, m, path, NULL, "\"0.w1\", f32[5");
    w.tensor[2].name = "other";
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
    refused(world, m, path, &all, "\"layers.0.experts.1.gate_proj.weight\", f32[5");
    refused(world, m, path, &some, "the file has only some of a stack");
    w.tensor[2] = (sherd_named_tensor){w.name[2], w.tensor[0].tensor};
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
    refused(world, m, path, &all, "the file has another shape");
    w.tensor[2].tensor = wave(world, SHERD_F32, 2, in_out, 1, 1, 0);
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
    refused(world, m, path, &all, "the file has other dtypes in one stack");
    /* A whole stack may be missing, if some names may. */
    CHECK_OK(sherd_file_write(world, path, w.tensor + 6, w.count - 6, NULL, 0));
    CHECK_OK(sherd_module_read(m, NULL, path, &some));
    check_stack(sherd_module_child(m, 1), "w2", 1 + 3 * EXPERTS + 2 + 2 * EXPERTS);
    remove_file(world, path);
    sherd_module_destroy(m);
}

static void parts_that_are_not_there_are_refused(sherd_world *world)
{
    static const struct {
        sherd_file_name rule;
        const char *text;
    } wrong[] = {
        {{"k.*", "qkv.*[9:]"}, "the file has another shape, f64[10,4], from row 9 on"},
        {{"k.*", "qkv.*[999999999999999999:]"}, "from row 999999999999999999 on"},
        {{"k.*", "qkv.*[1999999999999999999:]"}, "has a row that no tensor has"},
        /* names like others */
        {{"k.*", "qkv.*[:]"}, "the file has no \"qkv.weight[:]\", nor \"k.bias\""},
        {{"k.*", "qkv.*[-1:]"}, "the file has no \"qkv.weight[-1:]\", nor \"k.bias\""},
    };
    sherd_module *m = split_projections(world, line_of_ranks(world));
    sherd_file_name rules[LEN(part_names)];
    char room[256];
    const char *path = scratch(room, "wrong_parts");

    write_fused(world, path);
    memcpy(rules, part_names, sizeof rules);
    for (int i = 0; i < LEN(wrong); i++) {
        rules[1] = wrong[i].rule;
        refused(world, m, path,
                &(sherd_read_options){.cast = true, .names = rules, .name_count = LEN(rules)},
                wrong[i].text);
    }
    remove_file(world, path);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void lists_that_are_wrong_are_refused(sherd_world *world)
{
    static const struct {
        sherd_file_name name;
        const char *text;
    } wrong[] = {{{NULL, "a"}, "names: a name is NULL"},
                 {{"a", NULL}, "names: a name is NULL"},
                 {{"a.*", "*.*"}, "has more * than"},
                 {{"a*.b", "*"}, "has more * than"},
                 {{"a", "#.#"}, "has two #"}};
    sherd_module *m = two_mixtures(world, NULL);
    char room[256];
    const char *path = scratch(room, "wrong");

    for (size_t i = 0; i < LEN(wrong); i++)
        refused(world, m, path, &(sherd_read_options){.names = &wrong[i].name, .name_count = 1},
                wrong[i].text);
    refused(world, m, path, &(sherd_read_options){.name_count = 1}, "there is no list");
    refused(world, m, path, &(sherd_read_options){.name_count = -1}, "there is no list");
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* Ranks with other lists are told. */
static void other_lists_are_found(sherd_world *world)
{
    sherd_read_options options = by_names(true);
    sherd_module *m = two_mixtures(world, line_of_ranks(world));
    char room[256];
    const char *path = scratch(room, "other");
    written w;

    make(world, &w);
    CHECK_OK(sherd_file_write(world, path, w.tensor, w.count, NULL, 0));
    options.name_count -= sherd_world_rank(world) == 1;
    CHECK_EQ(sherd_module_read(m, NULL, path, &options), SHERD_EDIFFER);
    remove_file(world, path);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(stacks_are_read_part_by_part), {1, 2, 3, 4, 8}},
    {TEST(parts_of_fused_tensors_are_read), {1, 2, 3, 4, 8}},
    {TEST(parts_that_are_not_there_are_refused), {1, 3}},
    {TEST(what_is_missing_is_said), {1, 2, 3}},
    {TEST(lists_that_are_wrong_are_refused), {1, 2}},
    {TEST(other_lists_are_found), {2, 3}},
};
CHECK_MAIN(tests)
