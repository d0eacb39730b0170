/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs an MLP and a transformer block under plans from a JSON file, on ranks that are threads, and
 * compares outputs and all gradients with those that the file has: the other half of
 * tools/compare_models.py. Usage: run_models CASES RESULTS MESH.
 *
 * A model: {"kind": "mlp" or "block", "dtype", "activation": "relu", "erf" or "tanh", "heads",
 * "parameters": {"net1.weight": {"shape", "data", "grad"}}, "x" likewise, "y": {"shape", "data"},
 * "weights"}; the loss is the sum of y times weights. A case: {"model": 0, "x": "S(0)R" or null for
 * plain, "plan": [{"path", "style", "input", "desired", "output", "to_local", "local_input",
 * "granule"}], "lift": how a local output lies, "reshard", "checkpoint": paths, "shard": an axis}.
 */
#include <math.h>
#include <stdio.h>

#include "json_tensors.h"

enum { MOST_ENTRIES = 16, MOST_PARAMETERS = 32 };

typedef struct job {
    json_t *models, *cases, *results; /* results: written by rank 0 */
    const char *mesh;
} job;

/* What forward functions look at. */
typedef struct shape_of_model {
    sherd_tensor *(*activation)(sherd_tensor *a);
    int64_t head; /* width of one */
    double dropout;
} shape_of_model;

/* ---- the models ----------------------------------------------------------------------------- */

static sherd_tensor *call(sherd_module *parent, const char *child, sherd_tensor *x)
{
    return sherd_module_call(sherd_module_find(parent, child), x);
}

static void give(sherd_args *out, sherd_tensor *y)
{
    out->value[0] = y;
    out->count = 1;
}

/* "net1", "net2" of an MLP; "w1", "w2" in a block. */
static void mlp_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const shape_of_model *s = sherd_module_payload(self);
    const char *first = sherd_module_child_name(self, 0),
               *second = sherd_module_child_name(self, 1);

    give(out, call(self, second, s->activation(call(self, first, in->value[0]))));
}

/* Works on distributed tensors and on a rank's own heads alike. */
static sherd_tensor *split_heads(sherd_tensor *x, const shape_of_model *s)
{
    const int64_t *shape = sherd_tensor_shape(x);
    const int64_t to[] = {shape[0], shape[1], shape[2] / s->head, s->head};
    return sherd_view(x, to, 4);
}

static void attention_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    static const sherd_attention_options causal = {.causal = true};
    const shape_of_model *s = sherd_module_payload(self);
    sherd_tensor *x = in->value[0];
    sherd_tensor *q = split_heads(call(self, "wq", x), s);
    sherd_tensor *k = split_heads(call(self, "wk", x), s);
    sherd_tensor *v = split_heads(call(self, "wv", x), s);
    sherd_tensor *a = sherd_attention(q, k, v, &causal);
    const int64_t *shape = sherd_tensor_shape(a);

    a = sherd_view(a, (int64_t[]){shape[0], shape[1], shape[2] * s->head}, 3);
    give(out, call(self, "wo", a));
}

static void block_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    x = sherd_add(x, call(self, "drop1", call(self, "attn", call(self, "ln1", x))));
    x = sherd_add(x, call(self, "drop2", call(self, "mlp", call(self, "ln2", x))));
    give(out, x);
}

/* ---- making them ---------------------------------------------------------------------------- */

/* The first failure stays; what follows it does nothing. */
typedef struct builder {
    sherd_world *world;
    const json_t *parameters;
    sherd_dtype dtype;
    shape_of_model *shape;
    sherd_status status;
} builder;

static sherd_module *hang(builder *b, sherd_module *parent, const char *name, sherd_module *child)
{
    if (!b->status && parent)
        b->status = sherd_module_add(parent, name, child);
    return b->status ? NULL : child;
}

static sherd_module *branch(builder *b, sherd_module *parent, const char *name,
                            sherd_forward forward)
{
    const sherd_module_options options = {.payload = b->shape};
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_module_create(&made, b->world, forward, &options);
    return hang(b, parent, name, made);
}

static void fill(builder *b, sherd_module *m, const char *name)
{
    char key[128];
    int64_t shape[SHERD_MAX_DIMS];

    if (b->status)
        return;
    snprintf(key, sizeof key, "%s.%s", sherd_module_path(m), name);
    const json_t *p = json_object_get(b->parameters, key);
    int ndim = read_shape(json_object_get(p, "shape"), shape);
    b->status = sherd_module_set_parameter(
        m, name,
        sherd_require_grad(
            read_numbers(b->world, json_object_get(p, "data"), shape, ndim, b->dtype), true));
}

/* A Linear [out, in], or where `out` is 0 a LayerNorm; its values are those of the file. */
static void layer(builder *b, sherd_module *parent, const char *name, int64_t in, int64_t out)
{
    const sherd_layer_options options = {.name = name, .dtype = b->dtype, .bias = true};
    sherd_module *made = NULL;

    if (!b->status)
        b->status = out ? sherd_linear_create(&made, b->world, in, out, &options)
                        : sherd_layer_norm_create(&made, b->world, in, &options);
    made = hang(b, parent, name, made);
    fill(b, made, "weight");
    fill(b, made, "bias");
}

static void drop(builder *b, sherd_module *parent, const char *name)
{
    sherd_module *made = NULL;

    if (!b->status)
        b->status = sherd_dropout_create(&made, b->world, b->shape->dropout);
    hang(b, parent, name, made);
}

/* Rows (0) or columns (1) of a weight of the file. */
static int64_t size_of(const builder *b, const char *weight, size_t dim)
{
    const json_t *p = json_object_get(b->parameters, weight);
    return json_integer_value(json_array_get(json_object_get(p, "shape"), dim));
}

static sherd_module *make_mlp(builder *b)
{
    sherd_module *m = branch(b, NULL, NULL, mlp_forward);
    int64_t hidden = size_of(b, "net1.weight", 0);

    layer(b, m, "net1", size_of(b, "net1.weight", 1), hidden);
    layer(b, m, "net2", hidden, size_of(b, "net2.weight", 0));
    return m;
}

static sherd_module *make_block(builder *b)
{
    static const char *const names[] = {"wq", "wk", "wv", "wo"};
    sherd_module *m = branch(b, NULL, NULL, block_forward), *attn, *mlp;
    int64_t width = size_of(b, "attn.wq.weight", 0), hidden = size_of(b, "mlp.w1.weight", 0);

    layer(b, m, "ln1", width, 0);
    attn = branch(b, m, "attn", attention_forward);
    for (int i = 0; i < 4; i++)
        layer(b, attn, names[i], width, width);
    drop(b, m, "drop1");
    layer(b, m, "ln2", width, 0);
    mlp = branch(b, m, "mlp", mlp_forward);
    layer(b, mlp, "w1", width, hidden);
    layer(b, mlp, "w2", hidden, width);
    drop(b, m, "drop2");
    return m;
}

static sherd_status make_model(sherd_module **out, sherd_world *world, const json_t *model,
                               shape_of_model *shape)
{
    const char *activation = json_string_value(json_object_get(model, "activation"));
    builder b = {.world = world,
                 .parameters = json_object_get(model, "parameters"),
                 .dtype = dtype_of(json_string_value(json_object_get(model, "dtype"))),
                 .shape = shape};
    bool mlp = strcmp(json_string_value(json_object_get(model, "kind")), "mlp") == 0;

    shape->activation = strcmp(activation, "relu") == 0  ? sherd_relu
                        : strcmp(activation, "erf") == 0 ? sherd_gelu_erf
                                                         : sherd_gelu;
    if (!mlp)
        shape->head =
            size_of(&b, "attn.wq.weight", 0) / json_integer_value(json_object_get(model, "heads"));
    *out = mlp ? make_mlp(&b) : make_block(&b);
    return b.status;
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* "R", "S(-1)"; anything else is unset. */
static sherd_placement read_placement(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    int dim;

    if (text && sscanf(text, "S(%d)", &dim) == 1)
        return sherd_shard(dim);
    return text && text[0] == 'R' ? sherd_replicate()
                                  : (sherd_placement){SHERD_UNSET, 0, SHERD_SUM};
}

static sherd_style read_style(const json_t *o)
{
    static const struct {
        const char *name;
        sherd_style (*make)(void);
    } all[] = {{"colwise", sherd_colwise},
               {"rowwise", sherd_rowwise},
               {"sequence", sherd_sequence_parallel},
               {"input", sherd_prepare_input},
               {"output", sherd_prepare_output},
               {"both", sherd_prepare_input_output}};
    const char *name = json_string_value(json_object_get(o, "style"));
    sherd_style style = {0};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(name, all[i].name) == 0)
            style = all[i].make();
    style.input = read_placement(o, "input");
    style.desired = read_placement(o, "desired");
    style.output = read_placement(o, "output");
    style.to_local = json_is_true(json_object_get(o, "to_local"));
    style.local_input = json_is_true(json_object_get(o, "local_input"));
    style.granule = json_integer_value(json_object_get(o, "granule"));
    return style;
}

static sherd_status split(sherd_module *m, const sherd_mesh *mesh, const json_t *c)
{
    const json_t *plan = json_object_get(c, "plan"), *paths = json_object_get(c, "checkpoint");
    const char *shard = json_string_value(json_object_get(c, "shard"));
    sherd_parallel_entry entry[MOST_ENTRIES];
    int count = (int)json_array_size(plan);
    sherd_status status;

    for (int i = 0; i < count && i < MOST_ENTRIES; i++) {
        const json_t *o = json_array_get(plan, (size_t)i);
        entry[i].path = json_string_value(json_object_get(o, "path"));
        entry[i].style = read_style(o);
    }
    for (size_t i = 0; i < json_array_size(paths); i++)
        sherd_module_checkpoint(sherd_module_find(m, json_string_value(json_array_get(paths, i))),
                                true);
    status = sherd_parallelize(m, mesh, "tp", entry, count);
    if (!status && shard)
        status = sherd_fully_shard(m, mesh, shard, NULL);
    if (!status && json_is_true(json_object_get(c, "reshard")))
        status = sherd_input_reshard(m, mesh, "tp", 1);
    return status;
}

/* ---- comparing ------------------------------------------------------------------------------ */

typedef struct worst {
    double difference; /* relative to the largest element, or to 1 */
    const char *where;
} worst;

/* All ranks call it, as reading a tensor whole moves it. */
static void compare(worst *w, const char *where, sherd_tensor *t, const json_t *expected)
{
    sherd_tensor *whole = t ? sherd_cast(sherd_full(t), SHERD_F64) : NULL;
    const double *have = whole ? sherd_tensor_read(whole) : NULL;
    size_t count = json_array_size(expected);
    double gap = have && (size_t)sherd_tensor_count(whole) == count ? 0 : INFINITY, most = 1;

    for (size_t i = 0; i < count && gap < INFINITY; i++) {
        double want = json_number_value(json_array_get(expected, i));
        most = fmax(most, fabs(want));
        gap = isfinite(have[i]) ? fmax(gap, fabs(have[i] - want)) : INFINITY;
    }
    if (gap / most > w->difference || !w->where)
        *w = (worst){gap / most, where};
}

static void compare_gradients(worst *w, sherd_module *m, const json_t *parameters)
{
    sherd_named_parameter all[MOST_PARAMETERS];
    int count = sherd_module_all_parameters(m, all, MOST_PARAMETERS);

    for (int i = 0; i < count && i < MOST_PARAMETERS; i++) {
        char key[128];
        snprintf(key, sizeof key, "%s.%s", all[i].path, all[i].name);
        void *at = json_object_iter_at((json_t *)(uintptr_t)parameters, key);
        compare(w, json_object_iter_key(at), sherd_grad(all[i].tensor),
                json_object_get(json_object_get(parameters, key), "grad"));
    }
}

static sherd_tensor *make_input(sherd_world *world, const sherd_mesh *mesh, const json_t *model,
                                const char *placements, sherd_dtype dtype)
{
    const json_t *x = json_object_get(model, "x");
    const sherd_layout *layout;
    int64_t shape[SHERD_MAX_DIMS];
    int ndim = read_shape(json_object_get(x, "shape"), shape);
    sherd_tensor *t = read_numbers(world, json_object_get(x, "data"), shape, ndim, dtype);

    if (placements && !sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL))
        t = sherd_distribute(t, layout, -1);
    return sherd_require_grad(t, true);
}

/* An output that left as a plain tensor becomes distributed again. */
static sherd_tensor *lift(sherd_tensor *y, const sherd_mesh *mesh, const json_t *c)
{
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    const sherd_placement how = read_placement(c, "lift");

    if (how.kind == SHERD_UNSET || sherd_tensor_failed(y))
        return y;
    return sherd_from_local(y, mesh, &how, how.kind == SHERD_SHARD ? &infer : NULL);
}

static void forget(sherd_module *m)
{
    sherd_named_parameter all[MOST_PARAMETERS];
    int count = sherd_module_all_parameters(m, all, MOST_PARAMETERS);

    for (int i = 0; i < count && i < MOST_PARAMETERS; i++)
        sherd_clear_grad(all[i].tensor);
}

/* Two steps: sharded modules begin gathers ahead in the second. */
static worst run_model(sherd_module *m, const sherd_mesh *mesh, const json_t *model,
                       const json_t *c)
{
    sherd_world *world = sherd_module_world(m);
    const json_t *y_given = json_object_get(model, "y");
    const char *placements = json_string_value(json_object_get(c, "x"));
    sherd_dtype dtype = dtype_of(json_string_value(json_object_get(model, "dtype")));
    int64_t shape[SHERD_MAX_DIMS];
    int ndim = read_shape(json_object_get(y_given, "shape"), shape);
    worst w = {0, NULL};

    for (int step = 0; step < 2; step++) {
        sherd_tensor *x = make_input(world, mesh, model, placements, dtype);
        sherd_tensor *y = lift(sherd_module_call(m, x), mesh, c);
        sherd_tensor *weights =
            read_numbers(world, json_object_get(model, "weights"), shape, ndim, dtype);
        forget(m);
        sherd_backward(sherd_sum(sherd_mul(y, weights)));
        compare(&w, "y", y, json_object_get(y_given, "data"));
        compare(&w, "x", sherd_grad(x), json_object_get(json_object_get(model, "x"), "grad"));
        compare_gradients(&w, m, json_object_get(model, "parameters"));
    }
    return w;
}

static json_t *run_case(sherd_world *world, const sherd_mesh *mesh, const job *j, const json_t *c)
{
    const json_t *model =
        json_array_get(j->models, (size_t)json_integer_value(json_object_get(c, "model")));
    shape_of_model shape = {.dropout = 0};
    sherd_module *m = NULL;
    worst w = {0, NULL};
    char text[SHERD_ERROR_BYTES];

    sherd_scope_begin(world);
    sherd_status status = make_model(&m, world, model, &shape);
    if (!status)
        status = split(m, mesh, c);
    snprintf(text, sizeof text, "%s", status ? sherd_world_error(world) : "");
    if (!status)
        w = run_model(m, mesh, model, c);
    sherd_scope_end(world);
    sherd_module_destroy(m);
    if (sherd_world_check(world))
        snprintf(text, sizeof text, "%s", sherd_world_error(world));
    return json_pack("{s:s, s:s, s:o}", "error", text, "where", w.where ? w.where : "",
                     "difference", isfinite(w.difference) ? json_real(w.difference) : json_null());
}

static int run(sherd_world *world, void *payload)
{
    job *j = payload;
    const sherd_mesh *mesh;

    if (sherd_mesh_parse(&mesh, world, j->mesh))
        return 1;
    for (size_t i = 0; i < json_array_size(j->cases); i++) {
        json_t *result = run_case(world, mesh, j, json_array_get(j->cases, i));
        if (sherd_world_rank(world) == 0)
            json_array_append_new(j->results, result);
        else
            json_decref(result);
    }
    return 0;
}

/* "dp=2,tp=2": the product of all numbers. */
static int ranks_of(const char *mesh)
{
    int ranks = 1;

    for (const char *at = strchr(mesh, '='); at; at = strchr(at + 1, '='))
        ranks *= atoi(at + 1);
    return ranks;
}

int main(int count, char **argument)
{
    json_error_t error;
    int exit_status = 1;

    if (count < 4) {
        fprintf(stderr, "usage: run_models CASES RESULTS MESH\n");
        return 2;
    }
    const json_t *all = json_load_file(argument[1], 0, &error);
    job j = {json_object_get(all, "models"), json_object_get(all, "cases"), json_array(),
             argument[3]};
    if (!json_is_array(j.models) || !json_is_array(j.cases)) {
        fprintf(stderr, "%s: %s\n", argument[1], all ? "no models or cases" : error.text);
        return 2;
    }
    const sherd_world_options options = {.ranks = ranks_of(j.mesh), .as = SHERD_THREADS};
    if (sherd_spawn(&exit_status, &options, run, &j) || exit_status)
        return 1;
    return json_dump_file(j.results, argument[2], JSON_COMPACT) ? 1 : 0;
}
