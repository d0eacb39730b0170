/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An MLP and a transformer block (with both forms of GELU) under every combination of styles,
 * against what PyTorch computes for the plain models: output, loss and all gradients. What else
 * there is (how the input lies, what norms and containers do, input_reshard, checkpoints, sharded
 * parameters) changes from one combination to the next. tools/compare_models.py does the same with
 * many more.
 */
#include "models.h"
#include "sherd/ops_elements.h"
#include "data/models_torch.h"

enum { HEADS = 3, HEAD = 2, WIDTH = HEADS * HEAD, HIDDEN = 7, BATCH = 3, LENGTH = 3, IN = 5 };
enum { STYLES = 3, MOST_ENTRIES = 12 };

/* ---- what is expected ----------------------------------------------------------------------- */

static double *copy_of(const expected_tensor *t, int64_t *count)
{
    double *copy = malloc((size_t)t->count * sizeof *copy);

    *count = t->count;
    if (copy)
        memcpy(copy, t->value, (size_t)t->count * sizeof *copy);
    return copy;
}

/* Output, gradient of x, then those of the parameters in the order of the modules. */
static baseline stored(const expected_tensor *t, int count, double loss)
{
    baseline e = {.loss = loss, .parameters = count - 2};

    e.output = copy_of(&t[0], &e.outputs);
    e.grad_x = copy_of(&t[1], &e.inputs);
    for (int i = 2; i < count; i++)
        e.grad[i - 2] = copy_of(&t[i], &e.count[i - 2]);
    return e;
}

static void erf_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "w1"), in->value[0]);
    out->value[0] = sherd_module_call(sherd_module_find(self, "w2"), sherd_gelu_erf(h));
    out->count = 1;
}

/* ---- combinations --------------------------------------------------------------------------- */

typedef struct plan {
    sherd_parallel_entry entry[MOST_ENTRIES];
    int count;
} plan;

static void add(plan *p, const char *path, sherd_style style)
{
    p->entry[p->count++] = (sherd_parallel_entry){path, style};
}

/* Style 0 is none. */
static void add_linear(plan *p, const char *path, int style, int64_t granule)
{
    sherd_style s = style == 1 ? sherd_colwise() : sherd_rowwise();

    s.granule = granule;
    if (style)
        add(p, path, s);
}

/* The next of some values, each time that it is asked: a digit of the number of the combination. */
static int digit(int *number, int base)
{
    int d = *number % base;

    *number = *number / base + d * 7; /* so that it never runs out */
    return d;
}

static sherd_placement placement(int i)
{
    return i == 0 ? sherd_replicate() : sherd_shard(i - 1);
}

static void add_container(plan *p, const char *path, int *number)
{
    int kind = digit(number, 4);
    sherd_style s = kind == 1   ? sherd_prepare_input()
                    : kind == 2 ? sherd_prepare_output()
                                : sherd_prepare_input_output();

    if (kind == 1 || kind == 3)
        s.desired = placement(digit(number, 4));
    if (kind > 1)
        s.output = placement(digit(number, 4));
    if (kind)
        add(p, path, s);
}

static plan block_plan(int number)
{
    plan p = {.count = 0};
    int rest;

    add_linear(&p, "attn.w[qkv]", number % 3, HEAD);
    add_linear(&p, "attn.wo", number / 3 % 3, HEAD);
    add_linear(&p, "mlp.w1", number / 9 % 3, 0);
    add_linear(&p, "mlp.w2", number / 27 % 3, 0);
    rest = number * 31 + 5;
    for (int i = 0; i < 2; i++)
        if (digit(&rest, 2))
            add(&p, i ? "drop?" : "ln?", sherd_sequence_parallel());
    add_container(&p, "attn", &rest);
    add_container(&p, "mlp", &rest);
    return p;
}

static plan mlp_plan(int number)
{
    plan p = {.count = 0};
    int rest = number * 31 + 5;

    add_linear(&p, "net1", number % 3, 0);
    add_linear(&p, "net2", number / 3 % 3, 0);
    for (int i = 0; i < p.count; i++)
        if (digit(&rest, 2))
            p.entry[i].style.output = placement(digit(&rest, 4));
    add_container(&p, "", &rest);
    return p;
}

/* ---- running -------------------------------------------------------------------------------- */

/* Plain, replicated, or some dim over tp; with rows over dp where there is one. */
static sherd_tensor *input(sherd_world *world, const sherd_mesh *mesh, sherd_dtype dtype,
                           int64_t width, int number)
{
    static const char *const lies[] = {"", "R", "S(0)", "S(1)", "S(2)"};
    sherd_tensor *x = wave(world, dtype, 3, SHAPE(BATCH, LENGTH, width), 17, 1, 0);
    char text[16];

    snprintf(text, sizeof text, "%s%s", sherd_mesh_axes(mesh) == 2 ? "S(0)" : "", lies[number % 5]);
    if (lies[number % 5][0])
        x = spread(x, mesh, text);
    return sherd_require_grad(x, true);
}

/* Parallelize by a plan and the rest by number, and compare. */
static void check_plan(sherd_module *m, const baseline *e, const sherd_mesh *mesh, plan p,
                       sherd_dtype dtype, int number)
{
    static const char *const parts[] = {"", "attn", "mlp"};
    sherd_world *world = sherd_module_world(m);
    bool block = sherd_module_find(m, "attn") != NULL;
    int64_t out = WIDTH, rest = number / 2;

    CHECK_OK(sherd_parallelize(m, mesh, "tp", p.entry, p.count));
    for (int i = 0; i < LEN(parts); i++, rest /= 2)
        if (sherd_module_find(m, parts[i]))
            sherd_module_checkpoint(sherd_module_find(m, parts[i]), rest & 1);
    if (sherd_mesh_axes(mesh) == 2 && number % 3)
        CHECK_OK(sherd_fully_shard(m, mesh, "dp", NULL));
    if (number & 1)
        CHECK_OK(sherd_input_reshard(m, mesh, "tp", 1));
    sherd_scope_begin(world);
    sherd_tensor *x = input(world, mesh, dtype, block ? WIDTH : IN, number);
    sherd_tensor *target = wave(world, dtype, 3, SHAPE(BATCH, LENGTH, out), 23, 1, 0);
    compare(e, m, x, target, dtype == SHERD_F64 ? 1e-12 : 1e-5);
    sherd_scope_end(world);
    sherd_module_destroy(m);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "  combination %d on %s: %s\n", number, sherd_mesh_text(mesh),
                sherd_world_error(world));
}

static const sherd_mesh *mesh_here(sherd_world *world)
{
    return sherd_world_ranks(world) == 4 ? mesh_of(world, "dp=2,tp=2") : line_of_ranks(world);
}

/* One of two in the short form, from `first` on. */
static void check_blocks(sherd_world *world, sherd_forward activate, const baseline *e, int first)
{
    static _Thread_local block_size size = {HEADS, HEAD, 0};
    const sherd_mesh *mesh = mesh_here(world);

    for (int i = first % check_stride(2); i < STYLES * STYLES * STYLES * STYLES;
         i += check_stride(2)) {
        sherd_dtype dtype = i % 2 ? SHERD_F32 : SHERD_F64;
        for (int turn = 0; turn < 2; turn++, dtype = SHERD_F32 + SHERD_F64 - dtype)
            check_plan(block_with(world, dtype, &size, HIDDEN, activate), e, mesh, block_plan(i),
                       dtype, i + 2 * turn);
    }
}

static void blocks_are_those_of_pytorch(sherd_world *world)
{
    baseline erf = stored(block_erf_tensors, LEN(block_erf_tensors), block_erf_loss);
    baseline tanh = stored(block_tanh_tensors, LEN(block_tanh_tensors), block_tanh_loss);

    check_blocks(world, erf_forward, &erf, 0);
    check_blocks(world, gelu_forward, &tanh, 1);
    forget_baseline(&erf);
    forget_baseline(&tanh);
}

static void mlps_are_those_of_pytorch(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_here(world);
    baseline e = stored(mlp_relu_tensors, LEN(mlp_relu_tensors), mlp_relu_loss);

    for (int i = 0; i < STYLES * STYLES * 20; i++) {
        sherd_dtype dtype = i / 9 % 2 ? SHERD_F32 : SHERD_F64;
        check_plan(mlp(world, dtype, IN, HIDDEN, WIDTH), &e, mesh, mlp_plan(i), dtype, i);
    }
    forget_baseline(&e);
}

static const check_test tests[] = {
    {TEST(mlps_are_those_of_pytorch), {1, 2, 3, 4}},
    {TEST(blocks_are_those_of_pytorch), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
