/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions on real ranks: plain ones against the formula, and any layout against the plain
 * ones, forward and all gradients, in f64; and what travels: for each direction one call at most,
 * and each rank gets exactly what it lacks.
 */
#include "missing.h"

#include "sherd/ops_stencil.h"

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int dims;
    bool transposed;
    int64_t x[FIELD], w[FIELD], bias;
    sherd_conv_options o;
} scene;

/* ---- random cases ---------------------------------------------------------------------------- */

static void draw(scene *s)
{
    int largest[] = {24, 11, 7};

    s->dims = (int)between(&s->dice, 1, 3);
    s->transposed = roll(&s->dice, 4) == 0;
    memset(&s->o, 0, sizeof s->o);
    s->o.groups = roll(&s->dice, 3) ? 1 : between(&s->dice, 2, 3);
    int64_t in = between(&s->dice, 1, 3), out = between(&s->dice, 1, 3);
    s->x[0] = between(&s->dice, 1, 3);
    s->x[1] = s->o.groups * in;
    s->w[0] = s->transposed ? s->x[1] : s->o.groups * out;
    s->w[1] = s->transposed ? out : in;
    s->bias = s->o.groups * out;
    for (int d = 0; d < s->dims; d++) {
        int64_t k = between(&s->dice, 1, s->dims == 3 ? 3 : 7);
        s->o.stride[d] = between(&s->dice, 1, 4);
        s->o.dilation[d] = roll(&s->dice, 2) ? 1 : between(&s->dice, 1, 3);
        int64_t reach = (k - 1) * s->o.dilation[d] + 1;
        s->x[2 + d] = between(&s->dice, 1, largest[s->dims - 1]);
        s->o.before[d] = between(&s->dice, 0, (int)k - 1);
        s->o.after[d] = between(&s->dice, 0, (int)k - 1);
        s->w[2 + d] = k;
        if (s->transposed) {
            int64_t made = (s->x[2 + d] - 1) * s->o.stride[d] + reach;
            if (made - s->o.before[d] - s->o.after[d] < 1)
                s->o.before[d] = s->o.after[d] = 0;
            s->o.extra[d] = between(&s->dice, 0, (int)s->o.stride[d] - 1);
        } else if (s->x[2 + d] + s->o.before[d] + s->o.after[d] < reach) {
            s->x[2 + d] = reach;
        }
    }
}

static sherd_tensor *apply(const scene *s, sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return s->transposed ? sherd_conv_transposed(x, w, b, &s->o) : sherd_conv(x, w, b, &s->o);
}

/* ---- the formula ----------------------------------------------------------------------------- */

static int64_t place(int ndim, const int64_t *shape, const int64_t *index)
{
    int64_t at = 0;

    for (int d = 0; d < ndim; d++)
        at = at * shape[d] + index[d];
    return at;
}

static bool next(int ndim, const int64_t *shape, int64_t *index)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++index[d] < shape[d])
            return true;
        index[d] = 0;
    }
    return false;
}

/* Every product x w, added where it belongs. A transposed one swaps who is read and who is made. */
static double *formula(const scene *s, const double *x, const double *w, const double *b,
                       const int64_t *made)
{
    int ndim = 2 + s->dims;
    int64_t count = 1, at[FIELD] = {0}, k[FIELD] = {0};

    for (int d = 0; d < ndim; d++)
        count *= made[d];
    double *y = calloc((size_t)count, sizeof *y);
    do { /* at: an element of what the convolution makes ("small"); k: of the weight */
        const int64_t *small = s->transposed ? s->x : made, *big = s->transposed ? made : s->x;
        int64_t e[FIELD], group = s->w[0] / s->o.groups, from = k[0] / group * s->w[1] + k[1];
        memset(at, 0, sizeof at);
        do {
            int64_t read[FIELD] = {at[0], from};
            bool inside = at[1] == k[0];
            for (int d = 0; d < s->dims; d++) {
                read[2 + d] =
                    at[2 + d] * s->o.stride[d] - s->o.before[d] + k[2 + d] * s->o.dilation[d];
                inside = inside && read[2 + d] >= 0 && read[2 + d] < big[2 + d];
            }
            memcpy(e, at, sizeof e);
            if (inside && s->transposed)
                y[place(ndim, big, read)] += x[place(ndim, small, e)] * w[place(ndim, s->w, k)];
            else if (inside)
                y[place(ndim, small, e)] += x[place(ndim, big, read)] * w[place(ndim, s->w, k)];
        } while (next(ndim, small, at));
    } while (next(ndim, s->w, k));
    memset(at, 0, sizeof at);
    do
        y[place(ndim, made, at)] += b[at[1]];
    while (next(ndim, made, at));
    return y;
}

/* Forward is the formula; gradients are adjoints: <dy, f(u, w)> = <dx, u> for any u, and so for the
 * weight. */
static void plain_is_the_formula(sherd_world *world)
{
    scene s = {.world = world, .dice = 11};

    for (int i = 0; i < 150; i++) {
        sherd_scope_begin(world);
        draw(&s);
        int ndim = 2 + s.dims;
        sherd_tensor *x = sherd_require_grad(numbers(s.world, &s.dice, ndim, s.x), true);
        sherd_tensor *w = sherd_require_grad(numbers(s.world, &s.dice, ndim, s.w), true);
        sherd_tensor *b = sherd_require_grad(numbers(s.world, &s.dice, 1, &s.bias), true);
        sherd_tensor *y = apply(&s, x, w, b),
                     *nothing = sherd_constant(world, SHERD_F64, &s.bias, 1, 0);
        if (!CHECK(!sherd_tensor_failed(y)))
            break;
        double *want =
            formula(&s, sherd_tensor_read(x), sherd_tensor_read(w), sherd_tensor_read(b), y->shape);
        const double *data = sherd_tensor_read(y);
        for (int64_t k = 0; k < y->count; k++)
            CHECK_NEAR(data[k], want[k], 1e-12);
        free(want);
        sherd_tensor *dy = numbers(s.world, &s.dice, ndim, y->shape),
                     *u = numbers(s.world, &s.dice, ndim, s.x),
                     *v = numbers(s.world, &s.dice, ndim, s.w);
        sherd_backward_with(&y, &dy, 1, NULL);
        CHECK_NEAR(dot(dy, apply(&s, u, sherd_detach(w), nothing)), dot(sherd_grad(x), u), 1e-10);
        CHECK_NEAR(dot(dy, apply(&s, sherd_detach(x), v, nothing)), dot(sherd_grad(w), v), 1e-10);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

static void check_layout(scene *s, const sherd_mesh *mesh, sherd_dtype dtype, double tolerance)
{
    int ndim = 2 + s->dims;
    sherd_tensor *plain[3] = {numbers(s->world, &s->dice, ndim, s->x),
                              numbers(s->world, &s->dice, ndim, s->w),
                              numbers(s->world, &s->dice, 1, &s->bias)};
    sherd_tensor *spread[3], *leaf[3];
    const int64_t *shape[3] = {s->x, s->w, &s->bias};

    for (int i = 0; i < 3; i++) {
        leaf[i] = sherd_clone(sherd_cast(plain[i], dtype));
        spread[i] =
            sherd_distribute(leaf[i], draw_layout(&s->dice, mesh, i == 2 ? 1 : ndim, shape[i]), -1);
        sherd_require_grad(leaf[i], true);
        sherd_require_grad(spread[i], true);
    }
    sherd_tensor *want = apply(s, leaf[0], leaf[1], leaf[2]);
    sherd_tensor *y = apply(s, spread[0], spread[1], spread[2]);
    if (!CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(want)))
        return;
    bool good = CHECK_NEAR(apart(y, want), 0, tolerance);
    sherd_tensor *dy = sherd_cast(numbers(s->world, &s->dice, ndim, want->shape), dtype);
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&y, &dy, 1, NULL);
    for (int i = 0; i < 3; i++) {
        good = CHECK(sherd_grad(spread[i])->layout == spread[i]->layout) && good;
        good = CHECK_NEAR(apart(sherd_grad(spread[i]), sherd_grad(leaf[i])), 0, tolerance) && good;
    }
    if (!good)
        fprintf(stderr, "x %s w %s b %s -> %s%s\n", sherd_tensor_text(spread[0]),
                sherd_tensor_text(spread[1]), sherd_tensor_text(spread[2]), sherd_tensor_text(y),
                s->transposed ? ", transposed" : "");
}

static void every_layout_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 40;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        sherd_scope_begin(world);
        draw(&s);
        if (i % 2)
            check_layout(&s, mesh, SHERD_F32, 1e-5);
        else
            check_layout(&s, mesh, SHERD_F64, 1e-13);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "%s\n", sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* ---- other dtypes ---------------------------------------------------------------------------- */

/* The fast f32 and the 16-bit types, which compute in f32: against f64 with the same numbers. */
static void other_dtypes_are_rounded_f64(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double tolerance; /* of numbers of a few units */
    } cases[] = {{SHERD_F32, 2e-5}, {SHERD_BF16, 0.25}, {SHERD_F16, 0.03}};
    const sherd_mesh *mesh = mesh_of(world, "1");
    scene s = {.world = world, .dice = 3};

    for (int i = 0; i < 120; i++) {
        sherd_dtype dtype = cases[i % 3].dtype;
        sherd_scope_begin(world);
        draw(&s);
        int ndim = 2 + s.dims;
        const int64_t *shape[3] = {s.x, s.w, &s.bias};
        sherd_tensor *narrow[3], *wide[3], *dy[2];
        for (int k = 0; k < 3; k++) {
            int n = k == 2 ? 1 : ndim;
            narrow[k] = sherd_cast(numbers(s.world, &s.dice, n, shape[k]), dtype);
            wide[k] = sherd_require_grad(sherd_cast(narrow[k], SHERD_F64), true);
            narrow[k] = sherd_require_grad(
                sherd_distribute(narrow[k], numbered(mesh, n, shape[k], 0), -1), true);
        }
        sherd_tensor *y = apply(&s, narrow[0], narrow[1], narrow[2]);
        sherd_tensor *want = apply(&s, wide[0], wide[1], wide[2]);
        bool good = CHECK_NEAR(largest_difference(y, want), 0, cases[i % 3].tolerance);
        dy[1] = sherd_cast(dy[0] = sherd_cast(numbers(s.world, &s.dice, ndim, want->shape), dtype),
                           SHERD_F64);
        sherd_backward_with(&y, &dy[0], 1, NULL);
        sherd_backward_with(&want, &dy[1], 1, NULL);
        for (int k = 0; k < 3; k++) { /* sums of thousands, one after the other in plain f32 */
            sherd_tensor *made = sherd_grad(narrow[k]), *exact = sherd_grad(wide[k]);
            double off = dtype == SHERD_F32 ? apart(made, exact) : largest_difference(made, exact);
            good =
                CHECK_NEAR(off, 0, (dtype == SHERD_F32 ? 1 : 8) * cases[i % 3].tolerance) && good;
        }
        if (!good)
            fprintf(stderr, "x %s w %s -> %s\n", sherd_tensor_text(narrow[0]),
                    sherd_tensor_text(narrow[1]), sherd_tensor_text(y));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- cases that have a name ------------------------------------------------------------------ */

/* Kernel 1 2 3 on 0 to 9: an output belongs to the rank that holds the middle of what it reads. */
static void convolutions_of_ten(sherd_world *world)
{
    static const struct {
        const char *cuts;
        int stride, padding;
        const char *want[3];
    } cases[] = {
        {"2:4,3,3", 1, 1, {"3 8 14 20", "26 32 38", "44 50 26"}},
        {"2:5,5,0", 1, 1, {"3 8 14 20 26", "32 38 44 50 26", ""}},
        {"2:2,8,0", 1, 1, {"3 8", "14 20 26 32 38 44 50 26", ""}},
        {"2:4,3,3", 1, 0, {"8 14 20", "26 32 38", "44 50"}},
        {"2:4,3,3", 1, 2, {"0 3 8 14 20", "26 32 38", "44 50 26 9"}},
        {"2:4,6,0", 2, 1, {"3 14", "26 38 50", ""}},
        {"2:5,5,0", 2, 1, {"3 14 26", "38 50", ""}},
        {"2:4,3,3", 2, 1, {"3 14", "26 38", "50"}},
        {"2:1,8,1", 4, 1, {"3", "26 50", ""}},
    };
    static const int64_t shape[3] = {1, 1, 10}, three[3] = {1, 1, 3};
    const sherd_mesh *mesh = mesh_of(world, "3");
    sherd_tensor *w =
        sherd_mark_equal(sherd_from_data(world, SHERD_F64, three, 3, (double[]){1, 2, 3}));

    for (int i = 0; i < LEN(cases); i++) {
        sherd_conv_options o = {
            .stride = {cases[i].stride}, .before = {cases[i].padding}, .after = {cases[i].padding}};
        sherd_tensor *x = indices_on(layout_of(mesh, 3, shape, "S(2)", cases[i].cuts), SHERD_F64);
        sherd_tensor *y = sherd_conv(x, w, NULL, &o);
        const double *data = sherd_tensor_read(y);
        char text[128] = "";
        size_t at = 0;
        for (int64_t k = 0; data && k < y->count; k++)
            at += (size_t)snprintf(text + at, sizeof text - at, k ? " %g" : "%g", data[k]);
        CHECK_TEXT(text, cases[i].want[sherd_world_rank(world)]);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* Whether element o of what is small meets element i of what is big. */
static bool meets(const scene *s, int d, int64_t i, int64_t o)
{
    int64_t k = i - o * s->o.stride[d] + s->o.before[d];

    return k >= 0 && k % s->o.dilation[d] == 0 && k / s->o.dilation[d] < s->w[2 + d];
}

/* What is needed of a tensor of this shape by who has a box of the other; items and channels go
 * with each other. */
static needs met_by(const scene *s, const sherd_box *box, const int64_t *shape, bool box_is_big)
{
    needs n = {.ndim = box->ndim};

    need_own(&n, 0, box);
    for (int64_t c = 0; c < shape[1]; c++)
        need(&n, 1, c, shape[1]);
    for (int d = 0; d < s->dims; d++)
        for (int64_t i = 0; i < box->size[2 + d]; i++)
            for (int64_t k = 0, at = box->offset[2 + d] + i; k < shape[2 + d]; k++)
                if (box_is_big ? meets(s, d, at, k) : meets(s, d, k, at))
                    need(&n, 2 + d, k, shape[2 + d]);
    return n;
}

/* The element in the middle of what output o reads. */
static int64_t middle(const void *what, int d, int64_t o, int64_t n)
{
    const scene *s = what;
    int64_t at =
        o * s->o.stride[d - 2] - s->o.before[d - 2] + s->o.dilation[d - 2] * (s->w[d] - 1) / 2;

    return at < 0 ? 0 : at < n ? at : n - 1;
}

static sherd_tensor *replica(const sherd_mesh *mesh, sherd_tensor *t)
{
    return sherd_distribute(t, numbered(mesh, t->ndim, t->shape, 0), -1);
}

/*
 * Gradients: that of x is made of what lies around of dy, and so is the weight's beside it. Without
 * that of x the weight's is made of the window that forward had.
 */
static void check_travel(scene *s, const sherd_mesh *mesh)
{
    int ndim = 2 + s->dims;
    int wanted = 1 + roll(&s->dice, 7); /* gradients: bits of x, w, bias */
    const sherd_layout *layout = draw_layout_of(&s->dice, mesh, ndim, s->x, ~2U); /* no channels */
    sherd_tensor *x = sherd_distribute(numbers(s->world, &s->dice, ndim, s->x), layout, -1);
    sherd_tensor *w = replica(mesh, numbers(s->world, &s->dice, ndim, s->w));
    sherd_tensor *b = replica(mesh, numbers(s->world, &s->dice, 1, &s->bias));

    sherd_require_grad(x, wanted & 1);
    sherd_require_grad(w, wanted & 2);
    sherd_require_grad(b, wanted & 4);
    sherd_comm_reset(s->world);
    sherd_tensor *y = apply(s, x, w, b);
    if (!CHECK(!sherd_tensor_failed(y)))
        return;
    sherd_box held = sherd_tensor_box(x), made = sherd_tensor_box(y);
    needs forward = met_by(s, &made, s->x, s->transposed);
    needs backward = met_by(s, &held, y->shape, !s->transposed);
    bool good = brought(s->world, 8 * lacked(&forward, &held));
    for (int d = 2; d < ndim && !s->transposed; d++)
        good = owned(&made, &held, d, s->x[d], y->shape[d], middle, s) && good;
    sherd_tensor *dy = sherd_distribute(numbers(s->world, &s->dice, ndim, y->shape), y->layout, -1);
    sherd_comm_reset(s->world);
    sherd_backward_with(&y, &dy, 1, NULL);
    int64_t missing =
        wanted & 1 || s->transposed ? lacked(&backward, &made) : lacked(&forward, &held);
    missing = wanted & 3 ? missing : 0;
    good = brought(s->world, 8 * missing) && good;
    if (!good)
        fprintf(stderr, "x %s w %s -> %s%s\n", sherd_tensor_text(x), sherd_tensor_text(w),
                sherd_tensor_text(y), s->transposed ? ", transposed" : "");
}

/* Any convolution, any shards: one call a direction, and in it each element once that a rank needs
 * and lacks. */
static void each_rank_gets_what_it_lacks(sherd_world *world)
{
    scene s = {.world = world, .dice = 40 + (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 4000 : 60;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = draw_mesh(world, i);
        sherd_scope_begin(world);
        draw(&s);
        check_travel(&s, mesh);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* 12 rows on the ranks, a kernel of 5 rows: two rows from each neighbour, whatever the direction;
 * nothing more for the weight's gradient, which is made of the same rows. */
static void only_what_is_missing_travels(sherd_world *world)
{
    static const int64_t shape[4] = {2, 3, 12, 7}, kernel[4] = {4, 3, 5, 3};
    sherd_conv_options o = {.same = true};
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    int64_t sides = (rank > 0) + (rank + 1 < ranks), row = 2 * 7 * 8;
    char text[16];

    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_tensor *x =
        sherd_require_grad(indices_on(layout_of(mesh, 4, shape, "S(2)", NULL), SHERD_F64), true);
    sherd_tensor *w = sherd_constant_on(layout_of(mesh, 4, kernel, "R", NULL), SHERD_F64, 1);
    sherd_require_grad(w, true);
    sherd_comm_reset(world);
    sherd_tensor *y = sherd_conv(x, w, NULL, &o);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received, sides * 2 * 3 * row);
    sherd_tensor *dy = sherd_constant_on(y->layout, SHERD_F64, 1);
    sherd_comm_reset(world);
    sherd_backward_with(&y, &dy, 1, NULL);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_get(world, 0).bytes_received, sides * 2 * 4 * row);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(plain_is_the_formula), {1}},
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 5, 6, 7, 8}},
    {TEST(other_dtypes_are_rounded_f64), {1}},
    {TEST(convolutions_of_ten), {3}},
    {TEST(each_rank_gets_what_it_lacks), {1, 2, 3, 4, 5, 6, 7, 8}},
    {TEST(only_what_is_missing_travels), {2, 3, 4}},
};
CHECK_MAIN(tests)
