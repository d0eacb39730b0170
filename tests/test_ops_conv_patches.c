/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions whose kernel moves by its own size, which are computed as matrix products: values
 * and gradients as those of the sums that define them, in one to three dims, of any dtype and
 * layout, with elements that no patch has, and transposed.
 */
#include "modules.h"
#include "sherd/ops_stencil.h"

enum { DIMS = 3 };

/* Sizes are of x; patches of a size in each dim; a few channels, or many. */
typedef struct geometry {
    int dims;
    int64_t batch, in, out, size[DIMS], patch[DIMS], shift;
} geometry;

static const geometry cases[] = {
    {1, 2, 3, 5, {37}, {4}, 0},         {2, 2, 3, 4, {13, 10}, {4, 5}, 0},
    {2, 1, 17, 3, {9, 8}, {4, 4}, 0},   {3, 2, 2, 3, {4, 9, 8}, {2, 4, 4}, 0},
    {2, 2, 17, 4, {8, 6}, {2, 2}, 0},   {2, 3, 1, 2, {16, 6}, {16, 1}, 0},
    {2, 2, 3, 4, {14, 10}, {4, 5}, -1}, /* padded: the first patch is not whole */
};

static int64_t space(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* All as three dims. */
typedef struct whole_geometry {
    int64_t batch, in, out, size[DIMS], patch[DIMS], some[DIMS], before;
} whole_geometry;

static whole_geometry in_three(const geometry *g)
{
    whole_geometry w = {g->batch, g->in, g->out, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, -g->shift};

    for (int d = 0; d < g->dims; d++) {
        int at = DIMS - g->dims + d;
        w.size[at] = g->size[d];
        w.patch[at] = g->patch[d];
        w.some[at] = (g->size[d] + w.before * (d == g->dims - 1) - g->patch[d]) / g->patch[d] + 1;
    }
    return w;
}

/* For each product of an element of x and one of the weight: y += x w, or the gradients. */
static void define(const whole_geometry *g, double *y, double *x, double *w, const double *dy,
                   double *dx, double *dw)
{
    int64_t taps = space(g->patch), many = space(g->some), all = space(g->size);

    for (int64_t i = 0; i < g->batch * g->out * many * g->in * taps; i++) {
        int64_t t = i % taps, c = i / taps % g->in, e = i / taps / g->in % many;
        int64_t o = i / taps / g->in / many % g->out, n = i / taps / g->in / many / g->out;
        int64_t k[DIMS] = {t / (g->patch[1] * g->patch[2]), t / g->patch[2] % g->patch[1],
                           t % g->patch[2]};
        int64_t at[DIMS] = {e / (g->some[1] * g->some[2]), e / g->some[2] % g->some[1],
                            e % g->some[2]};
        int64_t from = 0;
        bool there = true;
        for (int d = 0; d < DIMS; d++) {
            int64_t p = at[d] * g->patch[d] + k[d] - (d == DIMS - 1 ? g->before : 0);
            there &= p >= 0 && p < g->size[d];
            from = from * g->size[d] + p;
        }
        if (!there)
            continue;
        from += (n * g->in + c) * all;
        int64_t to = (n * g->out + o) * many + e, by = (o * g->in + c) * taps + t;
        y[to] += x[from] * w[by];
        dx[from] += dy[to] * w[by];
        dw[by] += dy[to] * x[from];
    }
}

static void check(sherd_tensor *t, const double *want, double tolerance)
{
    static _Thread_local double got[MOST];
    int64_t n = whole(t, got);

    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(got[i], want[i], tolerance * (1 + fabs(want[i])));
}

static const char *const layouts[] = {"R", "S(0)", "S(1)", "S(2)"};

/* One case under one layout: a convolution and its gradients; and transposed, from y to x. */
static void convolve(sherd_world *world, const geometry *g, sherd_dtype dtype, const char *how)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const whole_geometry w = in_three(g);
    const double tolerance = dtype == SHERD_F64 ? 1e-12 : dtype == SHERD_F32 ? 2e-5 : 2e-2;
    static _Thread_local double x[MOST], k[MOST], dy[MOST], y[MOST], dx[MOST], dw[MOST];
    int64_t xs[2 + DIMS] = {g->batch, g->in}, ks[2 + DIMS] = {g->out, g->in};
    int64_t ys[2 + DIMS] = {g->batch, g->out};
    sherd_conv_options options = {.before = {0}};
    int ndim = 2 + g->dims;

    for (int d = 0; d < g->dims; d++) {
        xs[2 + d] = g->size[d];
        ks[2 + d] = options.stride[d] = g->patch[d];
        ys[2 + d] = w.some[DIMS - g->dims + d];
    }
    options.before[g->dims - 1] = w.before;
    sherd_scope_begin(world);
    sherd_tensor *tx = spread(wave(world, dtype, ndim, xs, 1, 1, 0.1), mesh, how);
    sherd_tensor *tk = spread(wave(world, dtype, ndim, ks, 3, 0.3, 0), mesh, "R");
    sherd_tensor *tdy = wave(world, dtype, ndim, ys, 2, 1, -0.2);
    memset(y, 0, sizeof y);
    memset(dx, 0, sizeof dx);
    memset(dw, 0, sizeof dw);
    whole(tx, x);
    whole(tk, k);
    whole(tdy, dy);
    define(&w, y, x, k, dy, dx, dw);
    sherd_require_grad(tx, true);
    sherd_require_grad(tk, true);
    sherd_tensor *ty = sherd_conv(tx, tk, NULL, &options);
    check(ty, y, tolerance);
    sherd_backward_with(&ty, &tdy, 1, NULL);
    check(sherd_grad(tx), dx, tolerance);
    check(sherd_grad(tk), dw, tolerance);
    for (int d = 0; d < g->dims; d++) /* as large as x again */
        options.extra[d] = (g->size[d] + options.before[d]) % g->patch[d];
    tdy = spread(tdy, mesh, how);
    check(sherd_conv_transposed(tdy, sherd_detach(tk), NULL, &options), dx, tolerance);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void convolutions_of_patches_are_products(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};

    for (int i = 0; i < LEN(cases); i++)
        for (int j = 0; j < LEN(dtypes); j++)
            for (int l = j ? i % LEN(layouts) : 0; l < LEN(layouts); l += j ? LEN(layouts) : 1)
                convolve(world, &cases[i], dtypes[j], layouts[l]);
}

static const check_test tests[] = {{TEST(convolutions_of_patches_are_products), {1, 3, 4}}};
CHECK_MAIN(tests)
