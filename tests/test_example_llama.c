/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Llama example: logits are PyTorch's, the same with caches and without; tokens are the same on
 * every mesh, drawn ones too, also where ranks have no head; weights are read from one file or
 * several, in any dtype; what is missing has one text.
 */
#include <math.h>
#include <sys/stat.h>

#include "data/llama_torch.h"
#include "llama.h"
#include "scratch.h"

enum { BATCH = 3, LONGEST = 7, TOKENS = 9, MOST = 2 * 7 * 29 };

/* The prompts of tools/golden_llama.py. */
static int32_t prompt_ids[BATCH * LONGEST] = {3, 1, 4, 1, 5, 9, 2,  6, 5, 0, 0,
                                              0, 0, 0, 8, 9, 7, 11, 0, 0, 0};
static int32_t prompt_count[BATCH] = {7, 2, 4};
static const prompts three = {BATCH, LONGEST, TOKENS, prompt_ids, prompt_count};

/* ---- a model's directory -------------------------------------------------------------------- */

/* hashed() of tools/golden_llama.py */
static sherd_tensor *hashed(sherd_world *world, sherd_dtype dtype, int number, int ndim,
                            const int64_t *shape)
{
    sherd_tensor *t = sherd_constant(world, SHERD_F32, shape, ndim, 0);
    int64_t n = sherd_tensor_count(t);
    float *to = sherd_tensor_write(t);

    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)number * 374761393u + 12345u;
        x = (x ^ x >> 15) * 2246822519u;
        x ^= x >> 13;
        double u = (double)x / 4294967296.0 - 0.5;
        to[i] = (float)(ndim == 1 ? 1 + 0.4 * u : u);
    }
    return sherd_mark_equal(sherd_cast(t, dtype));
}

typedef struct weights {
    sherd_world *world;
    sherd_dtype dtype;
    int count;
    char name[64][80];
    sherd_named_tensor list[64];
} weights;

static void add_weight(weights *w, const char *name, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns};

    snprintf(w->name[w->count], sizeof w->name[0], "%s.weight", name);
    w->list[w->count] = (sherd_named_tensor){
        w->name[w->count], hashed(w->world, w->dtype, w->count, columns ? 2 : 1, shape)};
    w->count++;
}

typedef struct part {
    const char *name;
    int64_t rows, columns;
} part;

static void add_parts(weights *w, int layer, const char *of, const part *list, int count)
{
    for (int p = 0; p < count; p++) {
        char name[80];
        snprintf(name, sizeof name, "model.layers.%d.%s%s", layer, of, list[p].name);
        add_weight(w, name, list[p].rows, list[p].columns);
    }
}

static void add_layer(weights *w, const config *c, int i)
{
    const part attention[] = {{"q_proj", c->heads * c->width, c->dim},
                              {"k_proj", c->kv_heads * c->width, c->dim},
                              {"v_proj", c->kv_heads * c->width, c->dim},
                              {"o_proj", c->dim, c->heads * c->width}},
               mlp[] = {{"gate_proj", c->hidden, c->dim},
                        {"up_proj", c->hidden, c->dim},
                        {"down_proj", c->dim, c->hidden}},
               router = {"gate", c->experts, c->dim},
               expert[] = {{"w1", c->hidden, c->dim},
                           {"w2", c->dim, c->hidden},
                           {"w3", c->hidden, c->dim}},
               norms[] = {{"input_layernorm", c->dim, 0}, {"post_attention_layernorm", c->dim, 0}};

    add_parts(w, i, "self_attn.", attention, LEN(attention));
    if (c->experts)
        add_parts(w, i, "block_sparse_moe.", &router, 1);
    for (int e = 0; e < c->experts; e++) {
        char of[40];
        snprintf(of, sizeof of, "block_sparse_moe.experts.%d.", e);
        add_parts(w, i, of, expert, LEN(expert));
    }
    if (!c->experts)
        add_parts(w, i, "mlp.", mlp, LEN(mlp));
    add_parts(w, i, "", norms, LEN(norms));
}

static void put_text(sherd_world *world, const char *directory, const char *name, const char *text)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    put_file(world, path, text, strlen(text));
}

/* In two parts with an index, or in one file. */
static void write_weights(const weights *w, const char *directory, bool parts)
{
    char path[400], index[8192] = "{\"weight_map\": {";
    int half = w->count / 2;

    snprintf(path, sizeof path, "%s/%s", directory,
             parts ? "part1.safetensors" : "model.safetensors");
    CHECK_OK(sherd_file_write(w->world, path, w->list, parts ? half : w->count, NULL, 0));
    if (!parts)
        return;
    snprintf(path, sizeof path, "%s/part2.safetensors", directory);
    CHECK_OK(sherd_file_write(w->world, path, w->list + half, w->count - half, NULL, 0));
    for (int i = 0; i < w->count; i++) {
        size_t used = strlen(index);
        snprintf(index + used, sizeof index - used, "%s\"%s\": \"part%d.safetensors\"",
                 i ? ", " : "", w->name[i], 1 + (i >= half));
    }
    strcat(index, "}}");
    put_text(w->world, directory, "model.safetensors.index.json", index);
}

/* Returns its path and what its config says. `left_out`: so many weights at the end are not
 * written. */
static const char *make_directory(char room[256], sherd_world *world, config *c,
                                  const llama_case *which, sherd_dtype dtype, int left_out)
{
    weights w = {.world = world, .dtype = dtype};
    char error[LINE_BYTES], path[400];

    scratch(room, which->name);
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(mkdir(room, 0700), 0);
    put_text(world, room, "config.json", which->config);
    snprintf(path, sizeof path, "%s/config.json", room);
    CHECK(config_read(c, path, error));
    sherd_scope_begin(world);
    add_weight(&w, "model.embed_tokens", c->vocabulary, c->dim);
    for (int i = 0; i < c->layers; i++)
        add_layer(&w, c, i);
    add_weight(&w, "model.norm", c->dim, 0);
    if (!c->tied)
        add_weight(&w, "lm_head", c->vocabulary, c->dim);
    /* as old files have, and no module */
    add_weight(&w, "model.layers.0.self_attn.rotary_emb.inv_freq", 3, 0);
    w.list[w.count - 1 - left_out] = w.list[w.count - 1];
    w.count -= left_out;
    write_weights(&w, room, c->layers > 2);
    sherd_scope_end(world);
    return room;
}

static void remove_directory(sherd_world *world, const char *directory)
{
    static const char *const names[] = {"config.json", "model.safetensors", "part1.safetensors",
                                        "part2.safetensors", "model.safetensors.index.json"};
    char path[400];

    together(world);
    for (int i = 0; i < LEN(names) && sherd_world_rank(world) == 0; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        unlink(path);
    }
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(rmdir(directory), 0);
    together(world);
}

/* ---- models --------------------------------------------------------------------------------- */

/*
 * The i-th mesh of all ranks: tensor parallel, rows of a batch, experts; and two of these. NULL:
 * there is none.
 */
static const sherd_mesh *mesh_at(sherd_world *world, int i)
{
    static const char *const form[] = {"dp=1,tp=%d", "dp=%d,tp=1",      "dp=1,ep=%d,tp=1",
                                       "dp=2,tp=%d", "dp=1,ep=2,tp=%d", "dp=2,ep=%d,tp=1"};
    int ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    char text[40];

    if (i >= LEN(form) || (i && ranks == 1) || (i > 2 && ranks != 4))
        return NULL;
    snprintf(text, sizeof text, form[i], i > 2 ? ranks / 2 : ranks);
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static bool open_model(llama *m, const char *directory, const config *c, const sherd_mesh *mesh)
{
    return CHECK_OK(llama_create(m, m->world, c, mesh, false)) &&
           CHECK_OK(llama_load(m, directory));
}

/* The largest difference of logits [rows, s, vocabulary] from `want`, of [rows, LONGEST,
 * vocabulary], from position `at` on. */
static double far_from(sherd_tensor *logits, const double *want, int64_t at)
{
    double mine[MOST], most = 0;
    const int64_t *n = sherd_tensor_shape(logits);

    if (!CHECK(sherd_full_read(mine, sizeof mine, logits, SHERD_F64, -1)))
        return INFINITY;
    for (int64_t b = 0; b < n[0]; b++)
        for (int64_t i = 0; i < n[1] * n[2]; i++)
            most =
                fmax(most, fabs(mine[b * n[1] * n[2] + i] - want[(b * LONGEST + at) * n[2] + i]));
    return most;
}

/* Rows of the golden logits. */
static void draw_ids(int32_t ids[2 * LONGEST])
{
    for (int i = 0; i < 2 * LONGEST; i++)
        ids[i] = (7 * (i % LONGEST) + 3 * (i / LONGEST)) % 13;
}

/* A prompt of four, and then token by token what the golden ids say. */
static void decode_all(llama *m, const llama_case *which, const int32_t *ids, double within)
{
    enum { FIRST = 4 };
    int32_t start[2 * FIRST];
    const int32_t count[] = {FIRST, FIRST};

    for (int i = 0; i < 2 * FIRST; i++)
        start[i] = ids[i / FIRST * LONGEST + i % FIRST];
    CHECK(far_from(llama_prefill(m, start, count, 2, FIRST, LONGEST), which->logits, FIRST - 1) <=
          within);
    for (int32_t at = FIRST; at < LONGEST; at++) {
        const int32_t token[] = {ids[at], ids[LONGEST + at]}, where[] = {at, at};
        CHECK(far_from(llama_decode(m, token, where, 2), which->logits, at) <= within);
    }
}

static void one_model(llama *m, const llama_case *which, double within)
{
    int32_t ids[2 * LONGEST], out[BATCH * TOKENS];
    const sampling greedy = {0, 1, 0};
    timing took = {0};

    draw_ids(ids);
    bool recording = sherd_set_recording(m->world, false);
    CHECK(far_from(llama_logits(m, ids, 2, LONGEST), which->logits, 0) <= within);
    decode_all(m, which, ids, within);
    sherd_set_recording(m->world, recording);
    CHECK_OK(generate(m, &three, &greedy, out, &took));
    CHECK(memcmp(out, which->tokens, sizeof out) == 0);
    CHECK_EQ(took.steps, TOKENS - 1);
}

static void logits_and_tokens_are_those_of_pytorch(sherd_world *world)
{
    for (int i = 0; i < LEN(llama_cases); i++) {
        char room[256];
        config c;
        const char *path = make_directory(room, world, &c, &llama_cases[i], SHERD_F32, 0);
        for (int at = 0; mesh_at(world, at); at++) {
            llama m = {.world = world};
            sherd_scope_begin(world);
            if (open_model(&m, path, &c, mesh_at(world, at)))
                one_model(&m, &llama_cases[i], 2e-5);
            llama_destroy(&m);
            sherd_scope_end(world);
        }
        remove_directory(world, path);
    }
}

/* Files of f32 into 16 bits, and files of 16 bits into 16 and into f32. */
static void dtypes_are_those_that_are_wanted(sherd_world *world)
{
    static const sherd_dtype ways[][2] = {{SHERD_F32, SHERD_BF16},
                                          {SHERD_BF16, SHERD_BF16},
                                          {SHERD_F16, SHERD_F16},
                                          {SHERD_BF16, SHERD_F32}};
    int32_t ids[2 * LONGEST];

    draw_ids(ids);
    for (int i = 0; i < LEN(ways); i++) {
        char room[256];
        config c;
        llama m = {.world = world};
        const char *path = make_directory(room, world, &c, &llama_cases[1], ways[i][0], 0);
        c.dtype = ways[i][1];
        sherd_scope_begin(world);
        if (open_model(&m, path, &c, mesh_at(world, 0))) {
            bool recording = sherd_set_recording(world, false);
            sherd_tensor *logits = llama_logits(&m, ids, 2, LONGEST);
            CHECK_EQ(sherd_tensor_dtype(logits), ways[i][1]);
            CHECK(far_from(logits, llama_cases[1].logits, 0) < 0.15);
            decode_all(&m, &llama_cases[1], ids, 0.15);
            sherd_set_recording(world, recording);
        }
        llama_destroy(&m);
        sherd_scope_end(world);
        remove_directory(world, path);
    }
}

/* Drawn tokens: two seeds of names differ, meshes do not; and a text ends where it ends. */
static void drawn_tokens_are_the_same_on_every_mesh(sherd_world *world)
{
    const sampling how = {0.9, 0.8, 0}, few = {0.9, 0.8, 1}, narrow = {1.5, 1e-6, 0},
                   greedy = {0, 1, 0}, any = {2, 1, 0}, one = {2, 1, 1};
    int32_t of_any[BATCH * TOKENS];
    int32_t first[BATCH * TOKENS], out[BATCH * TOKENS];
    char room[256];
    config c;
    timing took = {0};
    const llama_case *which = &llama_cases[0];
    const char *path = make_directory(room, world, &c, which, SHERD_F32, 0);

    for (int at = 0; mesh_at(world, at); at++) {
        llama m = {.world = world};
        sherd_scope_begin(world);
        if (open_model(&m, path, &c, mesh_at(world, at))) {
            CHECK_OK(generate(&m, &three, &how, out, &took));
            if (at == 0)
                memcpy(first, out, sizeof out);
            CHECK(memcmp(out, first, sizeof out) == 0);
            CHECK(memcmp(out, which->tokens, sizeof out) != 0);
            CHECK_OK(generate(&m, &three, &few, out, &took)); /* sometimes too few, then all */
            CHECK(memcmp(out, first, sizeof out) == 0);
            CHECK_OK(generate(&m, &three, &any, of_any, &took));
            CHECK_OK(generate(&m, &three, &one, out, &took));
            CHECK(memcmp(out, of_any, sizeof out) == 0);
            CHECK_OK(
                generate(&m, &three, &narrow, out, &took)); /* only the most likely one is left */
            CHECK(memcmp(out, which->tokens, sizeof out) == 0);
            m.c.end = which->tokens[3];
            CHECK_OK(generate(&m, &three, &greedy, out, &took));
            for (int b = 0; b < BATCH; b++)
                for (int i = 0, ended = 0; i < TOKENS; i++) {
                    CHECK_EQ(out[b * TOKENS + i], ended ? -1 : which->tokens[b * TOKENS + i]);
                    ended |= out[b * TOKENS + i] == m.c.end;
                }
        }
        llama_destroy(&m);
        sherd_scope_end(world);
    }
    remove_directory(world, path);
}

/* Decoding saves nothing for backward, and holds no more memory from token to token. */
static void decoding_holds_nothing(sherd_world *world)
{
    const int32_t token[] = {1, 2}, count[] = {2, 2}, ids[] = {1, 2, 3, 4};
    int64_t bytes = 0;
    char room[256];
    config c;
    llama m = {.world = world};
    const char *path = make_directory(room, world, &c, &llama_cases[0], SHERD_F32, 0);
    bool recording = sherd_set_recording(world, false);

    sherd_scope_begin(world);
    if (open_model(&m, path, &c, mesh_at(world, 0)))
        for (int32_t i = 0; i < 6; i++) {
            const int32_t where[] = {i + 1, i + 1};
            sherd_scope_begin(world);
            sherd_tensor *y =
                i ? llama_decode(&m, token, where, 2) : llama_prefill(&m, ids, count, 2, 2, 12);
            CHECK(!sherd_requires_grad(y));
            sherd_scope_end(world);
            CHECK_OK(sherd_world_check(world));
            if (i < 2)
                bytes = sherd_world_memory(world).live_bytes;
            CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
        }
    llama_destroy(&m);
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    remove_directory(world, path);
}

static void what_is_missing_is_named(sherd_world *world)
{
    char room[256], error[LINE_BYTES], path[400];
    config c;
    llama m = {.world = world};
    const char *directory = make_directory(room, world, &c, &llama_cases[0], SHERD_F32, 1);

    CHECK_OK(llama_create(&m, world, &c, mesh_at(world, 0), false));
    CHECK_EQ(llama_load(&m, directory), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"lm_head.weight\"") != NULL);
    CHECK_EQ(llama_load(&m, "/nowhere"), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "/nowhere/model.safetensors") != NULL);
    llama_destroy(&m);
    put_text(world, directory, "config.json", "{\"vocab_size\": 4, \"hidden_size\": 2}");
    snprintf(path, sizeof path, "%s/config.json", directory);
    CHECK(!config_read(&c, path, error) && strstr(error, "a size is missing"));
    remove_directory(world, directory);
}

/* Weights of 8 and 4 bits, after they were split: those of experts too. */
static void few_bits_write_the_same_on_every_mesh(sherd_world *world)
{
    static const int64_t groups[] = {0, 8};
    const sampling greedy = {0, 1, 0};
    int32_t first[BATCH * TOKENS], out[BATCH * TOKENS];
    char room[256];
    config c;
    timing took = {0};
    int i = 0;

    while (i + 1 < LEN(llama_cases) && !strstr(llama_cases[i].config, "num_local_experts"))
        i++;
    const char *path = make_directory(room, world, &c, &llama_cases[i], SHERD_F32, 0);
    CHECK(c.experts > 0);
    for (int bits = 4; bits <= 8; bits += 4)
        for (int at = 0; mesh_at(world, at); at++) {
            llama m = {.world = world};
            sherd_scope_begin(world);
            if (open_model(&m, path, &c, mesh_at(world, at))) {
                sherd_module *layers = sherd_module_find(m.root, "model.layers");
                CHECK_OK(sherd_module_quantize(layers, bits, groups[bits == 4]));
                sherd_module *experts = sherd_module_find(layers, "0.mlp");
                CHECK_EQ(sherd_tensor_dtype(sherd_module_buffer(experts, "w2")),
                         bits == 4 ? SHERD_U8 : SHERD_I8);
                CHECK_OK(generate(&m, &three, &greedy, out, &took));
                if (at == 0)
                    memcpy(first, out, sizeof out);
                CHECK(memcmp(out, first, sizeof out) == 0);
            }
            llama_destroy(&m);
            sherd_scope_end(world);
        }
    remove_directory(world, path);
}

static const check_test tests[] = {
    {TEST(logits_and_tokens_are_those_of_pytorch), {1, 2, 3, 4}},
    {TEST(dtypes_are_those_that_are_wanted), {1, 2}},
    {TEST(drawn_tokens_are_the_same_on_every_mesh), {1, 2, 3, 4}},
    {TEST(few_bits_write_the_same_on_every_mesh), {1, 2, 4}},
    {TEST(decoding_holds_nothing), {1, 2}},
    {TEST(what_is_missing_is_named), {1, 2}},
};
CHECK_MAIN(tests)
