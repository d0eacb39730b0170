/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual sum and its norm by one operator: bits of the single operators, whatever the dtypes,
 * under every layout, forward and gradients, of whichever results these come; as plain where x and
 * delta lie apart; gradients of 16-bit norms come in f32 from products, also through moves; no
 * memory.
 */
#include "fields.h"

#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"

#include <math.h>

enum { X, DELTA, WEIGHT, BIAS, OPERANDS };
enum { NORM, SUM, RESULTS };

/* One call. */
typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    bool rms;
    int ndim, dims, operands;
    int64_t shape[4];
    sherd_dtype dtype, delta, norm; /* of x, delta and the norm */
    double p;
    bool given[RESULTS]; /* that have a gradient */
} scene;

static void draw(scene *s)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F32,  SHERD_F32,
                                         SHERD_F64, SHERD_BF16, SHERD_F16};
    static const sherd_dtype beside[] = {SHERD_F32, SHERD_BF16, SHERD_F16};

    s->rms = roll(&s->dice, 2);
    s->ndim = (int)between(&s->dice, 1, 4);
    s->dims = roll(&s->dice, 3) ? 1 : (int)between(&s->dice, 1, s->ndim);
    s->operands = 2 + roll(&s->dice, s->rms ? 2 : 3);
    for (int d = 0; d < s->ndim; d++)
        s->shape[d] = roll(&s->dice, 40) ? between(&s->dice, 1, 7) : 0;
    if (roll(&s->dice, 8) == 0)
        s->shape[s->ndim - 1] = 700; /* blocks of several rows, and of less than one */
    s->dtype = s->delta = s->norm = dtypes[roll(&s->dice, LEN(dtypes))];
    if (s->dtype == SHERD_F32) {
        s->delta = beside[roll(&s->dice, LEN(beside))];
        s->norm = beside[roll(&s->dice, LEN(beside))];
    }
    s->p = roll(&s->dice, 2) ? 0.3 : 0;
    s->given[NORM] = roll(&s->dice, 4);
    s->given[SUM] = !s->given[NORM] || roll(&s->dice, 3);
}

static int first_dim(const scene *s, int i)
{
    return i < WEIGHT ? 0 : s->ndim - s->dims;
}

/* Values of operand or gradient i. */
static sherd_tensor *draw_values(scene *s, int i, sherd_dtype dtype)
{
    int skip = first_dim(s, i);
    sherd_tensor *t = numbers(s->world, &s->dice, s->ndim - skip, s->shape + skip);

    return sherd_cast(i == X ? sherd_add_scalar(t, 2) : t, dtype);
}

static void by_one(const scene *s, sherd_tensor **out, sherd_tensor *const *in)
{
    sherd_generator g = sherd_generator_named("drop");
    const sherd_add_norm_options o = {.weight = s->operands > WEIGHT ? in[WEIGHT] : NULL,
                                      .bias = s->operands > BIAS ? in[BIAS] : NULL,
                                      .eps = 0.01,
                                      .dims = s->dims,
                                      .p = s->p,
                                      .generator = &g,
                                      .dtype = s->norm == s->dtype ? SHERD_DTYPE_NONE : s->norm};

    CHECK(s->rms ? sherd_add_rms_norm(&out[NORM], &out[SUM], in[X], in[DELTA], &o)
                 : sherd_add_layer_norm(&out[NORM], &out[SUM], in[X], in[DELTA], &o));
    CHECK_EQ(g.calls, 1);
}

static void by_many(const scene *s, sherd_tensor **out, sherd_tensor *const *in)
{
    sherd_generator g = sherd_generator_named("drop");
    sherd_tensor *weight = s->operands > WEIGHT ? in[WEIGHT] : NULL,
                 *bias = s->operands > BIAS ? in[BIAS] : NULL;

    out[SUM] = sherd_add(in[X], sherd_cast(sherd_dropout(in[DELTA], s->p, &g), s->dtype));
    out[NORM] = s->rms ? sherd_rms_norm_over(out[SUM], s->dims, weight, 0.01)
                       : sherd_layer_norm_over(out[SUM], s->dims, weight, bias, 0.01);
    out[NORM] = sherd_cast(out[NORM], s->norm);
}

static void go_back(const scene *s, sherd_tensor *const *out, sherd_tensor *const *grad)
{
    sherd_tensor *from[RESULTS], *with[RESULTS];
    int n = 0;

    for (int j = 0; j < RESULTS; j++)
        if (s->given[j]) {
            from[n] = out[j];
            with[n++] = grad[j];
        }
    sherd_backward_with(from, with, n, NULL);
}

static bool same_bits(sherd_tensor *a, sherd_tensor *b)
{
    if (!a || !b)
        return !a && !b;
    const void *x = sherd_tensor_read(a), *y = sherd_tensor_read(b);

    return CHECK(x && y && a->dtype == b->dtype && a->count == b->count) &&
           (a->count == 0 || !memcmp(x, y, (size_t)a->count * sherd_dtype_bytes(a->dtype)));
}

static void say(const scene *s, sherd_tensor *x, const char *what)
{
    fprintf(stderr, "%s: %s over %d dims, x %s, delta %s, norm %s, p %g, %d operands\n", what,
            s->rms ? "rms" : "layer", s->dims, sherd_tensor_text(x), sherd_dtype_name(s->delta),
            sherd_dtype_name(s->norm), s->p, s->operands);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Both ways on the same values. mesh NULL: plain. */
static void check_bits(scene *s, const sherd_mesh *mesh)
{
    static void (*const way[])(const scene *, sherd_tensor **, sherd_tensor *const *) = {by_one,
                                                                                         by_many};
    static const char *const name[] = {"x", "delta", "weight", "bias"};
    const sherd_layout *layout = mesh ? draw_layout(&s->dice, mesh, s->ndim, s->shape) : NULL;
    sherd_tensor *leaf[2][OPERANDS], *out[2][RESULTS], *grad[RESULTS];

    for (int i = X; i < s->operands; i++) {
        sherd_tensor *t = draw_values(s, i, i == DELTA ? s->delta : s->dtype);
        if (mesh)
            t = sherd_distribute(
                t,
                i < WEIGHT ? layout
                           : draw_layout(&s->dice, mesh, s->dims, s->shape + first_dim(s, i)),
                -1);
        for (int k = 0; k < 2; k++)
            leaf[k][i] = sherd_require_grad(sherd_clone(sherd_detach(t)), true);
    }
    for (int j = 0; j < RESULTS; j++)
        grad[j] = draw_values(s, DELTA, j == NORM ? s->norm : s->dtype);
    for (int k = 0; k < 2; k++) {
        sherd_tensor *operand[OPERANDS];
        for (int i = X; i < s->operands; i++) /* leaves keep what comes as it came */
            operand[i] = sherd_scale(leaf[k][i], 1);
        way[k](s, out[k], operand);
        go_back(s, out[k], grad);
    }
    if (!CHECK(same_bits(out[0][NORM], out[1][NORM]) && same_bits(out[0][SUM], out[1][SUM])))
        say(s, leaf[0][X], "results");
    for (int i = X; i < s->operands; i++)
        if (!CHECK(same_bits(sherd_grad(leaf[0][i]), sherd_grad(leaf[1][i]))))
            say(s, leaf[0][X], name[i]);
}

static void it_has_the_bits_of_the_single_operators(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 90;

    for (int i = 0; i < rounds; i++) {
        sherd_scope_begin(world);
        draw(&s);
        check_bits(&s, i % 4 ? draw_mesh(world, i) : NULL);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- any layouts ----------------------------------------------------------------------------- */

/* Each operand anywhere: as plain in f64 but for the last bits. */
static void check_layouts(scene *s, const sherd_mesh *mesh)
{
    sherd_tensor *leaf[OPERANDS], *spread[OPERANDS], *want[RESULTS], *got[RESULTS], *grad[RESULTS];

    for (int i = X; i < s->operands; i++) {
        int skip = first_dim(s, i);
        sherd_tensor *t = draw_values(s, i, SHERD_F64);
        const sherd_layout *layout = draw_layout(&s->dice, mesh, s->ndim - skip, s->shape + skip);
        leaf[i] = sherd_require_grad(t, true);
        spread[i] = sherd_require_grad(sherd_distribute(sherd_detach(t), layout, -1), true);
    }
    by_one(s, want, leaf);
    by_one(s, got, spread);
    for (int j = 0; j < RESULTS; j++) {
        grad[j] = draw_values(s, DELTA, SHERD_F64);
        if (!CHECK_NEAR(difference(got[j], want[j]), 0, 1e-12))
            say(s, spread[X], "result");
    }
    go_back(s, want, grad);
    go_back(s, got, grad);
    for (int i = X; i < s->operands; i++) {
        sherd_tensor *g = sherd_grad(spread[i]), *plain = sherd_grad(leaf[i]);
        if (CHECK(!g == !plain) && g && !CHECK_NEAR(difference(g, plain), 0, 1e-11))
            say(s, spread[X], "gradient");
    }
}

static void every_layout_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = 50 + (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 72;

    for (int i = 0; i < rounds; i++) {
        sherd_scope_begin(world);
        draw(&s);
        s.dtype = s.delta = s.norm = SHERD_F64;
        check_layouts(&s, draw_mesh(world, i));
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- norms that products read ---------------------------------------------------------------- */

enum { ROWS = 6, WIDTH = 8 };

static sherd_tensor *wave_of(sherd_world *world, const sherd_mesh *mesh, const char *how, int seed)
{
    static const int64_t shape[] = {ROWS, WIDTH};
    uint64_t dice = (uint64_t)seed;
    const int64_t *from = seed < 10 ? shape : (const int64_t[]){WIDTH, WIDTH};
    sherd_tensor *t = sherd_cast(numbers(world, &dice, 2, from), SHERD_F32);

    return sherd_require_grad(sherd_distribute(t, layout_of(mesh, 2, from, how, NULL), -1), true);
}

/*
 * Two products read a norm, each with a weight that is split by columns; where rows are split they
 * are gathered first. Gradients of products are f32 and added up before anybody rounds or moves
 * them: so are those of a norm that has 16 bits itself.
 */
static void learn(sherd_world *world, const sherd_mesh *mesh, const char *rows, bool in_one,
                  sherd_tensor **grad)
{
    sherd_tensor *x = wave_of(world, mesh, rows, 1), *delta = wave_of(world, mesh, rows, 2),
                 *a = wave_of(world, mesh, "S(0)", 11), *b = wave_of(world, mesh, "S(0)", 12);
    sherd_tensor *low = sherd_cast(delta, SHERD_BF16), *sum, *norm;
    const sherd_layout *whole = layout_of(mesh, 2, sherd_tensor_shape(x), "R", NULL);

    sherd_set_autocast(world, SHERD_BF16);
    if (in_one) {
        sherd_add_layer_norm(&norm, &sum, x, low,
                             &(sherd_add_norm_options){.dtype = sherd_autocast(world)});
        CHECK_EQ(sherd_tensor_dtype(norm), SHERD_BF16);
    } else {
        sum = sherd_add(x, low);
        norm = sherd_layer_norm(sum, NULL, NULL, 1e-5);
    }
    CHECK_EQ(sherd_tensor_dtype(sum), SHERD_F32);
    sherd_tensor *h = sherd_redistribute(norm, whole, NULL);
    sherd_tensor *y = sherd_mul(sherd_linear(h, a, NULL), sherd_linear(h, b, NULL));
    sherd_tensor *loss = sherd_add(sherd_sum(y), sherd_sum(sherd_mul(sum, sum)));
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    sherd_backward(loss);
    grad[0] = sherd_grad(x);
    grad[1] = sherd_grad(delta);
    grad[2] = sherd_grad(a);
    grad[3] = sherd_grad(b);
}

/*
 * The same bits. A product of the plain engine begins with what it is added to, which is f32's
 * rounding of the single operators' sum, and of what has 16 bits itself theirs.
 */
static bool same_gradient(sherd_tensor *a, sherd_tensor *b, bool low)
{
    const char *engine = getenv("SHERD_GEMM");
    const float *x = sherd_tensor_read(a), *y = sherd_tensor_read(b);
    double most = low ? 0x1p-8 : 1e-6;
    bool near = x && y;

    if (!engine || strcmp(engine, "reference") != 0)
        return same_bits(a, b);
    for (int64_t i = 0; near && i < a->count; i++)
        near = fabs((double)x[i] - (double)y[i]) <= most * fmax(1, fabs((double)y[i]));
    return near;
}

static void products_of_a_low_norm_have_the_same_gradients(sherd_world *world)
{
    static const char *const rows[] = {"R", "S(0)"};
    sherd_tensor *one[4], *many[4];
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    for (int i = 0; i < LEN(rows); i++) {
        sherd_scope_begin(world);
        learn(world, mesh_of(world, text), rows[i], true, one);
        learn(world, mesh_of(world, text), rows[i], false, many);
        for (int g = 0; g < 4; g++)
            if (!CHECK(same_gradient(one[g], many[g], g == 1)))
                fprintf(stderr, "rows %s, gradient %d\n", rows[i], g);
        sherd_scope_end(world);
    }
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

/* A product's f32 and the 16 bits of another operator come together, in either order. */
static void gradients_of_both_widths_add_up_in_f32(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "1");

    for (int order = 0; order < 2; order++) {
        sherd_tensor *x = wave_of(world, mesh, "R", 1), *w = wave_of(world, mesh, "R", 11), *norm,
                     *relu = NULL;
        sherd_add_layer_norm(&norm, NULL, x, x, &(sherd_add_norm_options){.dtype = SHERD_BF16});
        sherd_retain_grad(norm);
        if (order)
            relu = sherd_relu(norm);
        sherd_set_autocast(world, SHERD_BF16);
        sherd_tensor *y = sherd_linear(norm, w, NULL);
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        if (!order)
            relu = sherd_relu(norm);
        sherd_backward(sherd_sum(sherd_add(y, relu)));
        CHECK_EQ(sherd_tensor_dtype(sherd_grad(norm)), SHERD_F32);
        const float *g = sherd_tensor_read(sherd_grad(norm));
        const float *n = sherd_tensor_read(sherd_cast(sherd_detach(norm), SHERD_F32));
        const float *v =
            sherd_tensor_read(sherd_cast(sherd_cast(sherd_detach(w), SHERD_BF16), SHERD_F32));
        for (int i = 0; g && n && v && i < ROWS * WIDTH; i++) {
            float want = 0;
            for (int j = 0; j < WIDTH; j++)
                want += v[j * WIDTH + i % WIDTH];
            CHECK_NEAR(g[i], want + (n[i] > 0 ? 1 : 0), 1e-5);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- no memory ------------------------------------------------------------------------------- */

static void one_step(sherd_world *world)
{
    static const int64_t shape[] = {ROWS, WIDTH};
    const int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    sherd_generator g = sherd_generator_named("drop");
    sherd_tensor *norm, *sum;

    sherd_scope_begin(world);
    sherd_status status = sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL);
    if (!status)
        status = sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(1)", NULL);
    if (status) {
        sherd_world_fail(world, status, "no layout");
        sherd_scope_end(world);
        return;
    }
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_F32, 1), true);
    sherd_add_layer_norm(&norm, &sum, x, sherd_cast(x, SHERD_BF16),
                         &(sherd_add_norm_options){.p = 0.5, .generator = &g, .dtype = SHERD_BF16});
    /* Gradients of both widths: a product's, and one of 16 bits. */
    sherd_tensor *w = sherd_constant(world, SHERD_F32, (int64_t[]){WIDTH, WIDTH}, 2, 1);
    sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *y = sherd_add(sherd_linear(norm, w, NULL), sherd_relu(norm));
    sherd_tensor *loss = sherd_add(sherd_sum(sum), sherd_sum(y));
    sherd_set_autocast(world, before);
    sherd_backward(loss);
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    for (int rank = 0; rank < sherd_world_ranks(world); rank++)
        fail_every_allocation(world, rank, one_step);
}

static const check_test tests[] = {
    {TEST(it_has_the_bits_of_the_single_operators), {1, 2, 3, 4, 8}},
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 8}},
    {TEST(products_of_a_low_norm_have_the_same_gradients), {1, 2, 3, 4}},
    {TEST(gradients_of_both_widths_add_up_in_f32), {1}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2}},
};
CHECK_MAIN(tests)
