/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors without elements whose other sizes are near the limit of 2^62: what operators multiply
 * and add up of them stays within it, and what can not be is refused. The sanitizer of `make asan`
 * sees sums and products that wrap around. In dry worlds, and on as many ranks.
 */
#include "tensors.h"

#include "sherd/autograd.h"
#include "sherd/dry.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_stencil.h"

static const int64_t large = INT64_C(1) << 61;

static sherd_tensor *of(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape,
                        const char *placements)
{
    return sherd_constant_on(layout_of(mesh_of(world, "x=2,y=4"), ndim, shape, placements, NULL),
                             dtype, 0);
}

/* The sizes of a layout multiply to less than 2^62 also beside one of 0; those of a plain one not. */
static sherd_tensor *plain(sherd_world *world, int ndim, const int64_t *shape)
{
    return sherd_mark_equal(sherd_constant(world, SHERD_F32, shape, ndim, 0));
}

static sherd_tensor *norm(sherd_world *world)
{
    return sherd_layer_norm(of(world, SHERD_F32, 2, (int64_t[]){large, 0}, "RR"), NULL, NULL, 1e-5);
}

static sherd_tensor *softmax(sherd_world *world)
{
    return sherd_softmax(of(world, SHERD_F32, 2, (int64_t[]){large, 0}, "RS(1)"), 1);
}

static sherd_tensor *product(sherd_world *world)
{
    sherd_tensor *a = of(world, SHERD_F32, 2, (int64_t[]){large, 0}, "S(0)R");
    return sherd_matmul(a, of(world, SHERD_F32, 2, (int64_t[]){0, large}, "RS(1)"));
}

static sherd_tensor *plain_products(sherd_world *world)
{
    return sherd_matmul(plain(world, 3, (int64_t[]){0, large, large}),
                        plain(world, 3, (int64_t[]){0, large, large}));
}

static sherd_tensor *rows(sherd_world *world)
{
    return sherd_embedding(of(world, SHERD_F32, 2, (int64_t[]){large, 0}, "S(0)S(0)"),
                           of(world, SHERD_I32, 1, (int64_t[]){1 << 20}, "RR"));
}

static sherd_tensor *pixels(sherd_world *world)
{
    return sherd_pixel_unshuffle(plain(world, 4, (int64_t[]){0, large, 4, 4}), 2);
}

static sherd_tensor *finer(sherd_world *world)
{
    return sherd_pixel_shuffle(plain(world, 4, (int64_t[]){0, 4, large, large}), 2);
}

static sherd_tensor *maxima(sherd_world *world)
{
    return sherd_max_pool(plain(world, 4, (int64_t[]){0, 2, large, large}),
                          &(sherd_pool_options){.kernel = {2, 2}}, NULL);
}

static sherd_tensor *maxima_of_none(sherd_world *world)
{
    return sherd_max_pool(plain(world, 4, (int64_t[]){large, 0, large, 4}),
                          &(sherd_pool_options){.kernel = {1, 2}}, NULL);
}

/* The gradient of maxima. */
static sherd_tensor *slopes(sherd_world *world)
{
    sherd_tensor *x = plain(world, 4, (int64_t[]){0, 2, large, large});

    sherd_require_grad(x, true);
    sherd_backward(sherd_sum(sherd_max_pool(x, &(sherd_pool_options){.kernel = {2, 2}}, NULL)));
    return sherd_grad(x);
}

static sherd_tensor *means(sherd_world *world)
{
    return sherd_avg_pool(plain(world, 4, (int64_t[]){0, 2, large, large}),
                          &(sherd_pool_options){.kernel = {2, 2}});
}

/* With the gradients of both. */
static sherd_tensor *convolved(sherd_world *world)
{
    sherd_tensor *x = plain(world, 4, (int64_t[]){0, 2, large, large});
    sherd_tensor *w = plain(world, 4, (int64_t[]){3, 2, 2, 2});

    sherd_require_grad(x, true);
    sherd_require_grad(w, true);
    sherd_tensor *y = sherd_conv(x, w, NULL, NULL);
    sherd_backward(sherd_sum(y));
    return y;
}

static sherd_tensor *groups(sherd_world *world)
{
    return sherd_group_norm(plain(world, 4, (int64_t[]){0, 4, large, large}), 2, NULL, NULL, 1e-5);
}

/* With the gradients of all. */
static sherd_tensor *attended(sherd_world *world)
{
    sherd_tensor *q = plain(world, 4, (int64_t[]){0, large, 2, 64});

    sherd_require_grad(q, true);
    sherd_tensor *y = sherd_attention(q, q, q, NULL);
    sherd_backward(sherd_sum(y));
    return y;
}

/* 2^64 elements, all the same one. */
static sherd_tensor *expanded(sherd_world *world)
{
    return sherd_expand(plain(world, 1, (int64_t[]){1}),
                        (int64_t[]){INT64_C(1) << 32, INT64_C(1) << 32}, 2);
}

static sherd_tensor *viewed(sherd_world *world)
{
    return sherd_view(plain(world, 1, (int64_t[]){0}), (int64_t[]){0, INT64_MAX}, 2);
}

static const struct {
    sherd_tensor *(*make)(sherd_world *world);
    sherd_status status;
    const char *text;
} calls[] = {
    {norm, SHERD_ELIMIT, "2^62"},
    {softmax, SHERD_OK, ""},
    {product, SHERD_ELIMIT, "2^62"},
    {plain_products, SHERD_OK, ""},
    {rows, SHERD_OK, ""},
    {pixels, SHERD_ELIMIT, "2^62"},
    {finer, SHERD_ELIMIT, "2^62"},
    {maxima, SHERD_OK, ""},
    {maxima_of_none, SHERD_OK, ""},
    {slopes, SHERD_OK, ""},
    {means, SHERD_OK, ""},
    {convolved, SHERD_OK, ""},
    {groups, SHERD_OK, ""},
    {attended, SHERD_OK, ""},
    {expanded, SHERD_ELIMIT, "sherd_expand: a view of 2^62 elements or more"},
    {viewed, SHERD_ELIMIT, "sherd_view: a view of 2^62 elements or more"},
};

static void try_all(sherd_world *world)
{
    for (int i = 0; i < LEN(calls); i++) {
        sherd_scope_begin(world);
        sherd_tensor *made = calls[i].make(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK_EQ(status, calls[i].status) ||
            (status && !CHECK(strstr(sherd_world_error(world), calls[i].text) != NULL)))
            fprintf(stderr, "call %d: %s\n", i, sherd_world_error(world));
        CHECK_EQ(sherd_tensor_failed(made), status != SHERD_OK);
        sherd_scope_end(world);
    }
}

static void sizes_beside_none_do_not_wrap_around(sherd_world *unused)
{
    sherd_world *world = NULL;

    (void)unused;
    CHECK_OK(sherd_world_dry(&world, 8, 3, NULL, NULL));
    try_all(world);
    CHECK_OK(sherd_world_close(world));
}

static void nor_where_something_is_computed(sherd_world *world)
{
    try_all(world);
}

static const check_test tests[] = {
    {TEST(sizes_beside_none_do_not_wrap_around), {1}},
    {TEST(nor_where_something_is_computed), {8}},
};
CHECK_MAIN(tests)
