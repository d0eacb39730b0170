/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in two memories: what the CPU wrote the GPU sees, and the other way round; operators that
 * have a forward for the GPU compute there what they compute on the CPU, on any mesh; a training
 * step stays there. SHERD_DEVICE is set for this program; the GPU is emulated, and runs late.
 */
#include <sherd.h>

#include "modules.h"
#include "models.h"
#include "tensor/tensor.h"

/* Whether only the GPU has the contents. */
static bool only_there(const sherd_tensor *t)
{
    return t->count == 0 || (t->storage->there && !t->storage->here);
}

/* ---- two memories ---------------------------------------------------------------------------- */

static void sees_both_ways(sherd_world *world)
{
    const int64_t shape[] = {3, 4};
    double have[MOST];

    CHECK(strncmp(sherd_world_device(world), "cuda:", 5) == 0);
    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, SHERD_F32, 2, shape, 1, 1, 0), *y = sherd_scale(x, 2);
    CHECK(only_there(y));
    float *at = sherd_tensor_write(y);
    CHECK(at && !y->storage->there);
    const float first = at[1];
    at[0] = 7;
    sherd_tensor *z = sherd_add_scalar(sherd_transpose(y, 0, 1), 1); /* a strided view */
    CHECK(only_there(z));
    CHECK_EQ(whole(z, have), 12);
    CHECK_EQ(have[0], 8);
    CHECK_EQ(have[3], first + 1);
    /* In place on the GPU, after it was read on the CPU. */
    sherd_tensor_read(y);
    CHECK(y->storage->here);
    sherd_tensor *sum = sherd_add(y, y);
    CHECK_EQ(whole(sum, have), 12);
    CHECK_EQ(have[0], 14);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void empty_ones(sherd_world *world)
{
    const int64_t shape[] = {0, 4};

    sherd_scope_begin(world);
    sherd_tensor *x = sherd_constant(world, SHERD_F32, shape, 2, 0);
    sherd_tensor *y = sherd_exp(sherd_add(x, x));
    CHECK(sherd_tensor_read(y) != NULL);
    CHECK_EQ(sherd_tensor_count(y), 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* ---- operators ------------------------------------------------------------------------------- */

static bool on_the_cpu(sherd_call *call, void *context)
{
    int *calls = context;

    ++*calls;
    return sherd_call_original(call);
}

enum { ROWS = 7, COLS = 8, NUMBERS = 4 }; /* result, and the gradients of a, b and w */

typedef sherd_tensor *(*function)(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w,
                                  sherd_tensor *ids);

/* The function whose operators are to leave what they make in the GPU's memory alone; or NULL. */
static _Thread_local const char *looks;

static sherd_tensor *made(sherd_tensor *t)
{
    if (looks && !CHECK(only_there(t)))
        fprintf(stderr, "%s: %s\n", looks, sherd_tensor_text(t));
    return t;
}

static sherd_tensor *f_linear(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)b;
    (void)ids;
    return sherd_linear(a, w, NULL);
}

static sherd_tensor *f_matmul(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)w;
    (void)ids;
    return sherd_matmul(a, sherd_transpose(b, 0, 1));
}

static sherd_tensor *f_elements(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w,
                                sherd_tensor *ids)
{
    (void)w;
    (void)ids;
    return sherd_mul(sherd_gelu(sherd_sub(a, b)), sherd_div(sherd_tanh(a), sherd_exp(b)));
}

/* Row i of w. */
static sherd_tensor *row_of(sherd_tensor *w, int64_t i)
{
    const int64_t n = COLS;

    return sherd_view(sherd_narrow(w, 0, i, 1), &n, 1);
}

static sherd_tensor *f_norm(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)ids;
    return sherd_add(made(sherd_layer_norm(a, row_of(w, 0), row_of(w, 1), 1e-5)),
                     made(sherd_rms_norm(b, NULL, 1e-5)));
}

static sherd_tensor *f_added(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const sherd_add_norm_options layer = {.weight = row_of(w, 0), .bias = row_of(w, 1)},
                                 rms = {.weight = row_of(w, 2), .eps = 1e-5};
    sherd_tensor *norm[2], *sum;

    (void)ids;
    sherd_add_layer_norm(&norm[0], &sum, a, b, &layer);
    sherd_add_rms_norm(&norm[1], NULL, sum, a, &rms);
    return sherd_mul(sherd_add(made(norm[0]), made(norm[1])), made(sum));
}

static sherd_tensor *f_log_sum(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)w;
    (void)ids;
    return sherd_add(made(sherd_logsumexp(a, 1, true)), made(sherd_logsumexp(b, 0, true)));
}

static sherd_tensor *f_soft(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)w;
    (void)ids;
    return sherd_mul(sherd_softmax(a, -1), sherd_log_softmax(b, -1));
}

static sherd_tensor *f_table(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)a;
    (void)b;
    return sherd_embedding(w, ids);
}

static sherd_tensor *f_loss(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)b;
    (void)w;
    return sherd_cross_entropy(a, ids);
}

static sherd_tensor *f_heads(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const int64_t n = sherd_tensor_shape(a)[0], heads[] = {1, n, 2, 4};
    const sherd_attention_options causal = {.causal = true};

    (void)w;
    (void)ids;
    sherd_tensor *q = sherd_view(a, heads, 4), *k = sherd_view(b, heads, 4);
    return sherd_attention(q, k, sherd_mul(q, k), &causal);
}

/* Keys and values come round. */
static sherd_tensor *f_pieces(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const int64_t n = sherd_tensor_shape(a)[0], heads[] = {1, n, 2, 4};
    const sherd_attention_options how = {.causal = true, .way = SHERD_ATTENTION_RING};

    (void)w;
    (void)ids;
    sherd_tensor *q = sherd_view(a, heads, 4), *k = sherd_view(b, heads, 4);
    return made(sherd_attention(q, k, sherd_mul(q, k), &how));
}

/* The same with a mask that wants a gradient, and dropout. */
static sherd_tensor *f_masked(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const int64_t n = sherd_tensor_shape(a)[0], heads[] = {1, n, 1, 8};
    sherd_generator dice = {.name = 5};
    const sherd_attention_options how = {.mask = sherd_narrow(sherd_narrow(w, 0, 1, n), 1, 0, n),
                                         .dropout = 0.25,
                                         .generator = &dice,
                                         .way = SHERD_ATTENTION_RING};

    (void)ids;
    sherd_tensor *v = sherd_view(b, heads, 4);
    return made(sherd_attention(sherd_view(a, heads, 4), sherd_scale(v, 0.25), v, &how));
}

static sherd_tensor *f_sums(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const int rows[] = {0}, all[] = {0, 1};

    (void)w;
    (void)ids;
    return sherd_mul(made(sherd_sum_over(a, rows, 1, false)),
                     made(sherd_sum_over(b, all, 2, false)));
}

static sherd_tensor *f_parts(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *part[3] = {sherd_slice(a, 0, 1, 7, 2), sherd_narrow(b, 0, 2, 3),
                             sherd_contiguous(sherd_narrow(a, 1, 0, 8))};
    sherd_tensor *column[] = {sherd_narrow(b, 1, 3, 5), sherd_narrow(a, 1, 0, 2)};

    (void)w;
    (void)ids;
    return sherd_mul(
        made(sherd_cat(part, 3, 0)),
        sherd_pad(made(sherd_cat(column, 2, 1)), (int64_t[]){4, 0}, (int64_t[]){2, 1}, 2));
}

static sherd_tensor *f_copies(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *both[] = {a, made(sherd_clone(sherd_flip(b, (int[]){0, 1}, 2)))};
    sherd_tensor *pile = made(sherd_stack(both, 2, 1)); /* [7,2,8] */

    (void)w;
    (void)ids;
    return sherd_mul(made(sherd_roll(pile, 3, 0)),
                     made(sherd_repeat(sherd_unsqueeze(a, 1), (int64_t[]){1, 2, 1}, 3)));
}

static sherd_tensor *f_stretched(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w,
                                 sherd_tensor *ids)
{
    const int64_t shape[] = {ROWS, COLS};
    sherd_tensor *row = sherd_expand(sherd_narrow(b, 0, 1, 1), shape, 2);

    (void)w;
    (void)ids;
    return sherd_mul(
        made(sherd_clone(row)),
        made(sherd_clone(sherd_transpose(
            sherd_view(sherd_contiguous(sherd_transpose(a, 0, 1)), (int64_t[]){COLS, ROWS}, 2), 0,
            1))));
}

static sherd_tensor *f_across(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *both[] = {a, b}, *middle = sherd_softmax(sherd_stack(both, 2, 0), 1);

    (void)w;
    (void)ids;
    return sherd_mul(made(sherd_log_softmax(a, 0)), made(middle));
}

static sherd_tensor *f_totals(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)ids;
    return sherd_add(made(sherd_mul(sherd_sum(a), sherd_mean(b))),
                     made(sherd_mse_loss(sherd_matmul(a, w), b, SHERD_LOSS_MEAN)));
}

/* Dims in an order that is copied, batches, sums of one operand, a vector. */
static sherd_tensor *f_contracted(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w,
                                  sherd_tensor *ids)
{
    sherd_tensor *turned[] = {a, w}, *rows[] = {a, b}, *sum[] = {b};
    sherd_tensor *y = made(sherd_einsum("ij,jk->ki", turned, 2)); /* [8,7] */

    (void)ids;
    y = sherd_mul(y, made(sherd_einsum("ij,ij->i", rows, 2)));
    y = sherd_add(y, sherd_unsqueeze(made(sherd_matmul(w, sherd_einsum("ij->j", sum, 1))), 1));
    return sherd_scale(y, 0.01);
}

static sherd_tensor *f_rotary(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    const int64_t n = sherd_tensor_shape(a)[0], heads[] = {1, n, 2, 4};
    const sherd_rotary_options part = {.base = 50, .offset = 3, .rotated = 2, .interleaved = true};
    sherd_tensor *x = sherd_view(a, heads, 4), *y = sherd_view(b, heads, 4);

    (void)w;
    return sherd_mul(made(sherd_rotary(x, ids, NULL)), made(sherd_rotary(y, NULL, &part)));
}

static const struct {
    const char *name;
    function f;
} functions[] = {
    {"linear", f_linear},       {"matmul", f_matmul},         {"elements", f_elements},
    {"norm", f_norm},           {"added", f_added},           {"soft", f_soft},
    {"log_sum", f_log_sum},     {"table", f_table},           {"loss", f_loss},
    {"heads", f_heads},         {"pieces", f_pieces},         {"masked", f_masked},
    {"sums", f_sums},           {"parts", f_parts},           {"copies", f_copies},
    {"stretched", f_stretched}, {"across", f_across},         {"totals", f_totals},
    {"rotary", f_rotary},       {"contracted", f_contracted},
};

static void run(sherd_world *world, function f, const sherd_mesh *mesh, const char *placements,
                sherd_dtype dtype, double out[NUMBERS][MOST], int64_t count[NUMBERS])
{
    const int64_t shape[] = {ROWS, COLS}, square[] = {COLS, COLS}, n = ROWS;
    int32_t id[ROWS];

    for (int i = 0; i < ROWS; i++)
        id[i] = i * 3 % COLS;
    sherd_scope_begin(world);
    sherd_tensor *in[] = {wave(world, dtype, 2, shape, 3, 1, 0),
                          wave(world, dtype, 2, shape, 5, 1, 2),
                          wave(world, dtype, 2, square, 7, 1, 0)};
    sherd_tensor *ids = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, id));
    for (int i = 0; i < 3; i++) {
        in[i] = spread(in[i], mesh, i < 2 ? placements : "R");
        in[i] = sherd_require_grad(sherd_detach(in[i]), true);
    }
    ids = spread(ids, mesh, "R");
    sherd_tensor *y = f(in[0], in[1], in[2], ids);
    made(y);
    count[0] = whole(y, out[0]);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    for (int i = 0; i < 3; i++) {
        if (sherd_grad(in[i]))
            made(sherd_grad(in[i]));
        count[i + 1] = whole(sherd_grad(in[i]), out[i + 1]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void put_handlers(sherd_world *world, int *calls, bool there)
{
    const sherd_op_handler handler = {.run = on_the_cpu, .context = calls};

    for (int i = 0; sherd_op_at(i); i++)
        if (sherd_op_at(i)->on_device)
            CHECK_OK(sherd_op_override(world, sherd_op_at(i)->name, SHERD_BELOW_TAPE,
                                       there ? &handler : NULL));
}

/* By the GPU's kernels and by the CPU's, which a handler below the tape brings back. */
static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64};
    static _Thread_local double there[NUMBERS][MOST], here[NUMBERS][MOST];
    const sherd_mesh *mesh = NULL;
    int64_t count[NUMBERS], again[NUMBERS];
    int64_t ranks = sherd_world_ranks(world);
    int calls = 0;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int f = 0; f < LEN(functions); f++)
        for (int p = 0; p < (ranks > 1 ? LEN(placements) : 1); p++)
            for (int d = (f + p) % check_stride(2); d < LEN(dtypes); d += check_stride(2)) {
                looks = functions[f].name;
                run(world, functions[f].f, mesh, placements[p], dtypes[d], there, count);
                looks = NULL;
                put_handlers(world, &calls, true);
                run(world, functions[f].f, mesh, placements[p], dtypes[d], here, again);
                put_handlers(world, &calls, false);
                for (int i = 0; i < NUMBERS; i++) {
                    double worst = 0;
                    CHECK_EQ(count[i], again[i]);
                    for (int64_t k = 0; k < count[i]; k++)
                        worst =
                            fmax(worst, fabs(there[i][k] - here[i][k]) / (1 + fabs(here[i][k])));
                    if (!CHECK(worst <= (dtypes[d] == SHERD_F64 ? 1e-12 : 1e-5)))
                        fprintf(stderr, "%s %s %s, %d: %g\n", functions[f].name, placements[p],
                                sherd_dtype_name(dtypes[d]), i, worst);
                }
            }
    CHECK(calls > 0);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Nothing of a step comes back to the CPU but its numbers. */
static void a_step_stays_there(sherd_world *world)
{
    const int64_t rows = 8, shape[] = {rows, 16};
    const int64_t ranks = sherd_world_ranks(world);
    const char *const names[] = {"x"};
    const sherd_mesh *mesh = NULL;
    sherd_module *net = mlp(world, SHERD_F32, 16, 24, 16);
    sherd_optimizer *adam = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, names, NULL));
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    CHECK_OK(sherd_parallelize(net, mesh, "x", plan, 2));
    CHECK_OK(sherd_adamw_create(&adam, net, &(sherd_adamw_options){.weight_decay = 0.1}));
    double before = INFINITY;
    for (int step = 0; step < 4; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = spread(wave(world, SHERD_F32, 2, shape, 2, 1, 0), mesh, "R");
        const sherd_args in = {.count = 1, .value = {x}};
        sherd_args out;
        sherd_module_run(net, &in, &out);
        sherd_tensor *apart = sherd_sub(out.value[0], x),
                     *loss = sherd_sum(sherd_mul(apart, apart));
        CHECK(only_there(out.value[0]));
        sherd_backward(loss);
        double now = sherd_item(loss), norm = sherd_optimizer_clip(adam, 1);
        CHECK(now < before && norm > 0);
        sherd_optimizer_step(adam, 0.01, 1);
        sherd_tensor *p = sherd_module_parameter(sherd_module_find(net, "net1"), "weight");
        CHECK(p && only_there(p));
        sherd_optimizer_clear(adam);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
        before = now;
    }
    sherd_optimizer_destroy(adam);
    sherd_module_destroy(net);
}

#define ALL           \
    {                 \
        1, 2, 3, 4, 8 \
    }
#define SOME    \
    {           \
        1, 2, 3 \
    }

/* ---- memory ---------------------------------------------------------------------------------- */

/* What one rank's GPU had no memory for all ranks are told, once. */
static void lack_of_memory_is_all_ranks_status(sherd_world *world)
{
    if (sherd_world_rank(world) == 0)
        sherd__device_lack(sherd__world_device(world), "out of memory for a test");
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK(strstr(sherd_world_error(world), ": out of memory for a test"));
    CHECK(strstr(sherd_world_error(world), "cuda:"));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {"sees_both_ways", sees_both_ways, {1, 2}},
    {"empty_ones", empty_ones, {1, 2}},
    {"same_on_both", same_on_both, SOME},
    {"a_step_stays_there", a_step_stays_there, ALL},
    {"lack_of_memory_is_all_ranks_status", lack_of_memory_is_all_ranks_status, ALL},
};

CHECK_MAIN(tests)
