/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pooling and interpolation on real ranks: plain ones against the formula, and any layout against
 * the plain ones, forward and gradients, in f64. Cases that have a name are in test_ops_stencils.c.
 */
#include "resamples.h"

/* ---- the formula ----------------------------------------------------------------------------- */

/* One output of a plane of the input; *where: the largest. Missing dims have one element. */
static double one(const scene *s, const int64_t *made, const int64_t *at, const double *plane,
                  int64_t *where)
{
    reading r[3] = {{1, {0}, {1}}, {1, {0}, {1}}, {1, {0}, {1}}};
    int64_t n[3] = {1, 1, 1};
    double sum = 0, most = -INFINITY;

    *where = -1;
    for (int d = 0; d < s->dims; d++) {
        n[3 - s->dims + d] = s->x[2 + d];
        read_dim(s, d, made[2 + d], at[2 + d], &r[3 - s->dims + d]);
    }
    for (int i = 0; i < r[0].count; i++)
        for (int j = 0; j < r[1].count; j++)
            for (int k = 0; k < r[2].count; k++) {
                int64_t here = (r[0].at[i] * n[1] + r[1].at[j]) * n[2] + r[2].at[k];
                sum += r[0].weight[i] * r[1].weight[j] * r[2].weight[k] * plane[here];
                if (plane[here] > most) {
                    most = plane[here];
                    *where = here;
                }
            }
    return is_maximum(s) ? most : sum;
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

static void check_formula(const scene *s, sherd_tensor *x, sherd_tensor *y, sherd_tensor *indices)
{
    const double *from = sherd_tensor_read(x), *data = sherd_tensor_read(y);
    const int64_t *where = indices ? sherd_tensor_read(indices) : NULL;
    int64_t at[FIELD] = {0}, plane = 1, position, k = 0;
    bool good = true;

    for (int d = 0; d < s->dims; d++)
        plane *= s->x[2 + d];
    do {
        double want = one(s, y->shape, at, from + (at[0] * s->x[1] + at[1]) * plane, &position);
        good = good && (data[k] == want || CHECK_NEAR(data[k], want, 1e-11));
        good = good && (!where || CHECK_EQ(where[k], position));
        k++;
    } while (good && next(y->ndim, y->shape, at));
    if (!good)
        fprintf(stderr, "kind %d %d of %s\n", s->kind, (int)s->to.kind, sherd_tensor_text(x));
}

/* The gradient of a maximum: dy where its element was. */
static void check_scatter(sherd_tensor *dx, sherd_tensor *dy, sherd_tensor *indices)
{
    const double *from = sherd_tensor_read(dy), *got = sherd_tensor_read(dx);
    const int64_t *where = sherd_tensor_read(indices);
    int64_t planes = dx->shape[0] * dx->shape[1], n = dx->count / planes, m = dy->count / planes;
    double *want = calloc((size_t)dx->count, sizeof *want);

    for (int64_t o = 0; o < dy->count; o++)
        if (where[o] >= 0)
            want[o / m * n + where[o]] += from[o];
    for (int64_t i = 0; i < dx->count; i++)
        CHECK_NEAR(got[i], want[i], 1e-13);
    free(want);
}

static void plain_is_the_formula(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};
    int rounds = getenv("SHERD_PROOF") ? 5000 : 240;

    for (int i = 0; i < rounds; i++) {
        sherd_tensor *indices, *unused;
        sherd_scope_begin(world);
        draw(&s);
        int ndim = 2 + s.dims;
        sherd_tensor *x = sherd_require_grad(numbers(world, &s.dice, ndim, s.x), true);
        sherd_tensor *y = apply(&s, x, &indices);
        if (!CHECK(!sherd_tensor_failed(y))) {
            fprintf(stderr, "kind %d: %s\n", s.kind, sherd_world_error(world));
            sherd_scope_end(world);
            break;
        }
        check_formula(&s, x, y, indices);
        sherd_tensor *dy = numbers(world, &s.dice, ndim, y->shape);
        sherd_tensor *u = numbers(world, &s.dice, ndim, s.x);
        sherd_backward_with(&y, &dy, 1, NULL);
        if (is_maximum(&s))
            check_scatter(sherd_grad(x), dy, indices);
        else
            CHECK_NEAR(dot(dy, apply(&s, u, &unused)), dot(sherd_grad(x), u), 1e-10);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- any layout ------------------------------------------------------------------------------ */

static double as_numbers(sherd_tensor *a, sherd_tensor *b)
{
    return difference(sherd_cast(a, SHERD_F64), sherd_cast(b, SHERD_F64));
}

static bool copies(const scene *s)
{
    return is_maximum(s) || (s->kind == INTERPOLATION && s->to.kind < SHERD_INTERPOLATE_LINEAR);
}

static void check_layout(scene *s, const sherd_mesh *mesh, sherd_dtype dtype, double tolerance)
{
    int ndim = 2 + s->dims;
    sherd_tensor *leaf = sherd_clone(sherd_cast(numbers(s->world, &s->dice, ndim, s->x), dtype));
    sherd_tensor *at[2];
    sherd_tensor *spread = sherd_distribute(leaf, draw_layout(&s->dice, mesh, ndim, s->x), -1);

    sherd_require_grad(leaf, true);
    sherd_require_grad(spread, true);
    sherd_tensor *want = apply(s, leaf, &at[0]), *y = apply(s, spread, &at[1]);
    if (!CHECK(!sherd_tensor_failed(y) && !sherd_tensor_failed(want)))
        return;
    bool good = CHECK_NEAR(apart(y, want), 0, copies(s) ? 0 : tolerance);
    good = good && (!at[0] || CHECK_NEAR(as_numbers(at[1], at[0]), 0, 0));
    sherd_tensor *dy = sherd_cast(numbers(s->world, &s->dice, ndim, want->shape), dtype);
    sherd_backward_with(&want, &dy, 1, NULL);
    sherd_backward_with(&y, &dy, 1, NULL);
    good = CHECK(sherd_grad(spread)->layout == spread->layout) && good;
    good = CHECK_NEAR(apart(sherd_grad(spread), sherd_grad(leaf)), 0, tolerance) && good;
    if (!good)
        fprintf(stderr, "kind %d %d: %s -> %s\n", s->kind, (int)s->to.kind,
                sherd_tensor_text(spread), sherd_tensor_text(y));
}

static void every_layout_is_as_plain(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 5000 : 90;

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

/* ---- what travels ---------------------------------------------------------------------------- */

/* What is needed of the input for a box of the result, and of the result for one of the input. */
static void needs_of(const scene *s, const sherd_box *held, const sherd_box *made,
                     const int64_t *shape, needs *forward, needs *backward)
{
    reading r;

    forward->ndim = backward->ndim = made->ndim;
    for (int d = 0; d < 2; d++) {
        need_own(forward, d, made);
        need_own(backward, d, held);
    }
    for (int d = 2; d < made->ndim; d++)
        for (int64_t o = 0; o < shape[d]; o++) {
            read_dim(s, d - 2, shape[d], o, &r);
            bool mine = o >= made->offset[d] && o < made->offset[d] + made->size[d];
            for (int k = 0; k < r.count; k++) {
                int64_t i = r.at[k];
                if (mine)
                    need(forward, d, i, s->x[d]);
                if (i >= held->offset[d] && i < held->offset[d] + held->size[d])
                    need(backward, d, o, shape[d]);
            }
        }
}

static int64_t whose(const void *what, int d, int64_t o, int64_t n)
{
    const scene *s = what;

    (void)n;
    return middle(s, d - 2, s->made[d], o);
}

static void check_travel(scene *s, const sherd_mesh *mesh)
{
    int ndim = 2 + s->dims;
    sherd_tensor *x = sherd_distribute(numbers(s->world, &s->dice, ndim, s->x),
                                       draw_layout(&s->dice, mesh, ndim, s->x), -1);
    sherd_tensor *at;
    needs forward = {0}, backward = {0};

    sherd_require_grad(x, true);
    sherd_comm_reset(s->world);
    sherd_tensor *y = apply(s, x, &at);
    if (!CHECK(!sherd_tensor_failed(y)))
        return;
    sherd_box held = sherd_tensor_box(x), made = sherd_tensor_box(y);
    memcpy(s->made, y->shape, (size_t)ndim * sizeof *s->made);
    needs_of(s, &held, &made, y->shape, &forward, &backward);
    bool good = brought(s->world, 8 * lacked(&forward, &held));
    for (int d = 2; d < ndim; d++)
        good = owned(&made, &held, d, s->x[d], y->shape[d], whose, s) && good;
    sherd_tensor *dy = sherd_distribute(numbers(s->world, &s->dice, ndim, y->shape), y->layout, -1);
    sherd_comm_reset(s->world);
    sherd_backward_with(&y, &dy, 1, NULL);
    good = brought(s->world, (at ? 16 : 8) * lacked(&backward, &made)) && good;
    if (!good)
        fprintf(stderr, "kind %d %d: %s -> %s\n", s->kind, (int)s->to.kind, sherd_tensor_text(x),
                sherd_tensor_text(y));
}

/* Any window, any shards: one call a direction, and in it each element once that a rank needs and
 * lacks. */
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

/* Averages and interpolation let a pending sum through; maxima settle it. */
static void sums_may_be_pending(sherd_world *world)
{
    scene s = {.world = world, .dice = 77};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "2x2" : "2");

    for (int i = 0; i < 40; i++) {
        sherd_tensor *at;
        sherd_scope_begin(world);
        draw(&s);
        int ndim = 2 + s.dims;
        const sherd_layout *layout =
            layout_of(mesh, ndim, s.x, mesh->axes == 2 ? "P(sum) S(2)" : "P(sum)", NULL);
        sherd_tensor *x = sherd_require_grad(indices_on(layout, SHERD_F64), true);
        sherd_tensor *y = apply(&s, x, &at);
        sherd_tensor *settled = sherd_full(x), *want = apply(&s, settled, &at);
        CHECK_EQ(y->layout->pending_axes, is_maximum(&s) ? 0 : 1);
        CHECK_NEAR(difference(y, want), 0, 1e-9);
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK(!sherd_tensor_failed(sherd_grad(x)));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- other dtypes ---------------------------------------------------------------------------- */

/* Coordinates of f32 and f64 may differ in the last bit: kinds that jump there take sizes that
 * divide. */
static void other_dtypes_are_rounded_f64(sherd_world *world)
{
    static const struct {
        sherd_dtype dtype;
        double tolerance; /* of numbers of about one */
    } cases[] = {{SHERD_F32, 1e-5}, {SHERD_BF16, 0.03}, {SHERD_F16, 4e-3}};
    const sherd_mesh *mesh = mesh_of(world, "1");
    scene s = {.world = world, .dice = 3};

    for (int i = 0; i < 150; i++) {
        sherd_tensor *at, *dy[2];
        sherd_scope_begin(world);
        draw(&s);
        if (s.to.kind < SHERD_INTERPOLATE_LINEAR)
            s.to.kind = SHERD_INTERPOLATE_AREA;
        int ndim = 2 + s.dims;
        sherd_tensor *narrow = sherd_cast(numbers(world, &s.dice, ndim, s.x), cases[i % 3].dtype);
        sherd_tensor *wide = sherd_require_grad(sherd_cast(narrow, SHERD_F64), true);
        narrow =
            sherd_require_grad(sherd_distribute(narrow, numbered(mesh, ndim, s.x, 0), -1), true);
        sherd_tensor *y = apply(&s, narrow, &at), *want = apply(&s, wide, &at);
        CHECK_NEAR(largest_difference(y, want), 0, cases[i % 3].tolerance);
        dy[0] = sherd_cast(numbers(world, &s.dice, ndim, want->shape), cases[i % 3].dtype);
        dy[1] = sherd_cast(dy[0], SHERD_F64);
        sherd_backward_with(&y, &dy[0], 1, NULL);
        sherd_backward_with(&want, &dy[1], 1, NULL);
        if (!CHECK_NEAR(largest_difference(sherd_grad(narrow), sherd_grad(wide)), 0,
                        16 * cases[i % 3].tolerance))
            fprintf(stderr, "kind %d %d: %s\n", s.kind, (int)s.to.kind, sherd_tensor_text(narrow));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void scene_of_memory(sherd_world *world)
{
    static const int64_t shape[4] = {1, 2, 6, 5};
    const sherd_pool_options pool = {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1}};
    const sherd_interpolate_options to = {.kind = SHERD_INTERPOLATE_CUBIC, .factor = {2, 2}};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, text) == SHERD_OK &&
        sherd_layout_parse_placements(&layout, mesh, 4, shape, "S(2)", NULL) == SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(layout, SHERD_BF16, 1), true);
        sherd_backward(sherd_sum(sherd_interpolate(sherd_max_pool(x, &pool, NULL), &to)));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no mesh");
    }
    sherd_scope_end(world);
}

static void memory_may_run_out_anywhere(sherd_world *world)
{
    fail_every_allocation(world, sherd_world_ranks(world) - 1, scene_of_memory);
}

static const check_test tests[] = {
    {TEST(plain_is_the_formula), {1}},
    {TEST(every_layout_is_as_plain), {1, 2, 3, 4, 5, 6, 7, 8}},
    {TEST(each_rank_gets_what_it_lacks), {1, 2, 3, 4, 5, 6, 7, 8}},
    {TEST(sums_may_be_pending), {2, 4}},
    {TEST(other_dtypes_are_rounded_f64), {1}},
    {TEST(memory_may_run_out_anywhere), {1, 2}},
};
CHECK_MAIN(tests)
