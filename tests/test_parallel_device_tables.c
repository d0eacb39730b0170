/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements by index, order and experts on the GPU: what they make stays there, is what the CPU
 * makes, and has the gradients of central differences, on any mesh. SHERD_DEVICE is set for this
 * program.
 */
#include <sherd.h>

#include "models.h"
#include "modules.h"
#include "tensor/tensor.h"

enum { ROWS = 7, COLS = 8, EXPERTS = 4 };

static bool only_there(const sherd_tensor *t)
{
    return t->count == 0 || (t->storage->there && !t->storage->here);
}

/* The function whose operators are to leave what they make in the GPU's memory alone; or NULL. */
static _Thread_local const char *looks;

static sherd_tensor *made(sherd_tensor *t)
{
    if (looks && !CHECK(only_there(t)))
        fprintf(stderr, "%s: %s\n", looks, sherd_tensor_text(t));
    return t;
}

typedef sherd_tensor *(*function)(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w,
                                  sherd_tensor *ids);

/* Each row's id for all of its columns. */
static sherd_tensor *wide_index(sherd_tensor *ids)
{
    return sherd_contiguous(sherd_expand(sherd_unsqueeze(ids, 1), (int64_t[]){ROWS, COLS - 2}, 2));
}

static sherd_tensor *f_select(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    return sherd_mul(made(sherd_index_select(w, 0, ids)),
                     sherd_add(b, sherd_pad(made(sherd_index_select(a, 1, ids)), (int64_t[]){0, 1},
                                            (int64_t[]){0, 0}, 0)));
}

static sherd_tensor *f_gather(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)w;
    return sherd_mul(made(sherd_gather(a, 1, wide_index(ids))),
                     made(sherd_gather(b, 1, wide_index(ids))));
}

static sherd_tensor *f_scatter(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *source = sherd_narrow(b, 1, 1, COLS - 2);

    (void)w;
    return sherd_mul(made(sherd_scatter(a, 1, wide_index(ids), source)),
                     made(sherd_scatter_fill(b, 1, wide_index(ids), 0.5)));
}

static sherd_tensor *f_add(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    (void)w;
    return sherd_mul(
        made(sherd_scatter_add(a, 1, wide_index(ids), sherd_narrow(b, 1, 1, COLS - 2))), b);
}

static sherd_tensor *f_slices(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *source = sherd_narrow(b, 1, 1, ROWS);

    (void)w;
    return sherd_mul(sherd_mul(made(sherd_index_add(a, 1, ids, source)),
                               made(sherd_index_copy(a, 1, ids, source))),
                     made(sherd_index_fill(b, 1, ids, 0.5)));
}

static sherd_tensor *f_order(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *indices = NULL, *most = sherd_topk(b, 3, 1, true, &indices);

    (void)w;
    (void)ids;
    made(indices);
    return sherd_mul(made(sherd_sort(a, 1, true, NULL)),
                     sherd_sum_over(made(most), (int[]){1}, 1, true));
}

/* Of one row, of which only candidates travel; their indices lead to them. */
static sherd_tensor *f_first(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *row = sherd_narrow(b, 0, 2, 1), *indices = NULL;
    sherd_tensor *most = made(sherd_topk(row, 1, 1, true, &indices));
    sherd_tensor *least = made(sherd_kthvalue(sherd_narrow(a, 0, 3, 1), 1, 1, true, NULL));

    (void)w;
    (void)ids;
    return sherd_mul(sherd_add(a, made(sherd_gather(row, 1, made(indices)))),
                     sherd_mul(most, least));
}

static sherd_tensor *f_places(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *indices = NULL, *middle = made(sherd_median(a, 1, true, &indices));

    (void)w;
    (void)ids;
    made(indices);
    sherd_tensor *third = made(sherd_kthvalue(b, 3, 0, true, NULL));
    return sherd_mul(sherd_add(middle, third),
                     made(sherd_quantile(b, 0.3, 1, SHERD_QUANTILE_LINEAR, true)));
}

/* A mixture of experts of [8] to [2], two for each row. */
static sherd_tensor *f_experts(sherd_tensor *a, sherd_tensor *b, sherd_tensor *w, sherd_tensor *ids)
{
    sherd_tensor *choice = NULL, *weight = sherd_view(w, (int64_t[]){EXPERTS, 2, COLS}, 3);
    sherd_tensor *scores = sherd_topk(sherd_narrow(a, 1, 0, EXPERTS), 2, 1, true, &choice);
    sherd_groups groups;

    (void)ids;
    made(choice);
    sherd_group_rows(&groups, choice, weight);
    sherd_tensor *rows = made(sherd_dispatch(b, &groups));
    rows = made(sherd_grouped_linear(rows, weight, NULL, groups.ends, groups.group));
    return sherd_combine(rows, &groups, sherd_softmax(scores, -1));
}

/* `there`: placements with which no ranks exchange anything. */
static const struct {
    const char *name, *there;
    function f;
} functions[] = {
    {"select", "R", f_select},        {"gather", "R S(0)", f_gather},
    {"scatter", "R S(0)", f_scatter}, {"scatter_add", "R S(0)", f_add},
    {"order", "R S(0)", f_order},     {"experts", "R S(0)", f_experts},
    {"first", "R", f_first},          {"places", "R", f_places},
    {"slices", "R S(0)", f_slices},
};

/* Input i and `shift` times its direction. */
static sherd_tensor *input(sherd_world *world, sherd_dtype dtype, int i, double shift)
{
    const int64_t shape[] = {i < 2 ? ROWS : COLS, COLS};
    sherd_tensor *x = wave(world, SHERD_F64, 2, shape, 37 + 17 * i, 1, i == 1 ? 2 : 0);
    sherd_tensor *way = wave(world, SHERD_F64, 2, shape, 29 + i, shift, 0);

    return sherd_mark_equal(sherd_cast(sherd_add(x, way), dtype));
}

/* The change of the sum of squares of a result along those directions, by gradients. */
static double slope_of(sherd_tensor *y, sherd_tensor *const *in)
{
    static _Thread_local double grad[MOST], way[MOST];
    sherd_world *world = sherd_tensor_world(y);
    double slope = 0;

    sherd_backward(sherd_sum(sherd_mul(y, y)));
    for (int i = 0; i < 3; i++) {
        if (!sherd_grad(in[i]))
            continue;
        made(sherd_grad(in[i]));
        int64_t n = whole(sherd_grad(in[i]), grad);
        whole(wave(world, SHERD_F64, 2, sherd_tensor_shape(in[i]), 29 + i, 1, 0), way);
        for (int64_t k = 0; k < n; k++)
            slope += grad[k] * way[k];
    }
    return slope;
}

/* The result into out; returns the sum of its squares, or if `slopes` how that changes. */
static double run(sherd_world *world, const sherd_mesh *mesh, const char *placements, int which,
                  sherd_dtype dtype, double shift, bool slopes, double out[MOST])
{
    const int64_t n = ROWS;
    double squares = 0;
    sherd_tensor *in[3];
    int32_t id[ROWS];

    for (int i = 0; i < ROWS; i++)
        id[i] = i * 3 % 5;
    sherd_scope_begin(world);
    sherd_tensor *ids =
        spread(sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, id)), mesh, "R");
    for (int i = 0; i < 3; i++) {
        in[i] = spread(input(world, dtype, i, shift), mesh, i < 2 ? placements : "R");
        in[i] = sherd_require_grad(sherd_detach(in[i]), true);
    }
    sherd_tensor *y = made(functions[which].f(in[0], in[1], in[2], ids));
    int64_t count = whole(y, out);
    for (int64_t k = 0; k < count; k++)
        squares += out[k] * out[k];
    CHECK(count >= ROWS * 2);
    squares = slopes ? slope_of(y, in) : squares;
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    return squares;
}

static bool on_the_cpu(sherd_call *call, void *context)
{
    (void)context;
    return sherd_call_original(call);
}

static void put_handlers(sherd_world *world, bool there)
{
    const sherd_op_handler handler = {.run = on_the_cpu};

    for (int i = 0; sherd_op_at(i); i++)
        if (sherd_op_at(i)->on_device)
            CHECK_OK(sherd_op_override(world, sherd_op_at(i)->name, SHERD_BELOW_TAPE,
                                       there ? &handler : NULL));
}

/* How far results of both are apart. */
static double apart(const double *there, const double *here)
{
    double worst = 0;

    for (int k = 0; k < ROWS * 2; k++)
        worst = fmax(worst, fabs(there[k] - here[k]) / (1 + fabs(here[k])));
    return worst;
}

static void check_function(sherd_world *world, const sherd_mesh *mesh, int f,
                           const char *placements)
{
    static _Thread_local double there[MOST], here[MOST], away[MOST];
    const double step = 1e-5;
    bool stays = sherd_world_ranks(world) == 1 || strstr(functions[f].there, placements);

    looks = stays ? functions[f].name : NULL;
    double slope = run(world, mesh, placements, f, SHERD_F64, 0, true, there);
    looks = NULL;
    double more = run(world, mesh, placements, f, SHERD_F64, step, false, away);
    double less = run(world, mesh, placements, f, SHERD_F64, -step, false, away);
    put_handlers(world, true);
    run(world, mesh, placements, f, SHERD_F64, 0, false, here);
    put_handlers(world, false);
    more = (more - less) / (2 * step);
    if (!CHECK(apart(there, here) <= 1e-12) || !CHECK(fabs(slope - more) <= 1e-5 * fabs(slope)))
        fprintf(stderr, "%s %s: %g apart, slope %.9g is %.9g\n", functions[f].name, placements,
                apart(there, here), slope, more);
}

static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    /* of one rank all placements are one; of many each function has one in the short form */
    int count = ranks > 1 ? LEN(placements) : 1, step = ranks > 3 ? check_stride(3) : 1;

    for (int f = 0; f < LEN(functions); f++)
        for (int p = f % step; p < count; p += step)
            check_function(world, mesh, f, placements[p]);
}

static const check_test tests[] = {
    {"same_on_both", same_on_both, {1, 3, 4}},
};

CHECK_MAIN(tests)
