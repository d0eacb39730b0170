/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of diagonals, of what runs along a dim, of places in order, vectors, windows and pixels:
 * see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/ops.h"
#include "sherd/ops_diagonal.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_running.h"
#include "sherd/ops_sorted.h"
#include "sherd/ops_stencil.h"
#include "sherd/ops_vectors.h"
#include "sherd/values.h"

typedef struct things {
    sherd_tensor *a;     /* [4,3], sharded */
    sherd_tensor *whole; /* the same as i32 */
    sherd_tensor *mask;  /* and bool */
    sherd_tensor *row;   /* [3] */
    sherd_tensor *empty; /* [0,3] */
    sherd_tensor *cube;  /* [4,4,4] */
    sherd_tensor *one;   /* no dims */
    sherd_tensor *failed;
} things;

static sherd_tensor *ones(sherd_world *world, int ndim, int64_t a, int64_t b, int64_t c)
{
    return sherd_constant(world, SHERD_F32, (int64_t[]){a, b, c}, ndim, 1);
}

static things make(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), shape[] = {4, 3};
    const sherd_placement s = sherd_shard(0);
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    things t = {.row = ones(world, 1, 3, 0, 0),
                .empty = ones(world, 2, 0, 3, 0),
                .cube = ones(world, 3, 4, 4, 4),
                .one = ones(world, 0, 0, 0, 0)};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, &s, NULL));
    t.a = sherd_constant_on(layout, SHERD_F32, 1);
    t.whole = sherd_constant_on(layout, SHERD_I32, 1);
    t.mask = sherd_constant_on(layout, SHERD_BOOL, 1);
    CHECK_OK(
        sherd_world_check(world)); /* what is raised next must not stop a rank that is still here */
    t.failed = sherd_add(t.a, NULL);
    CHECK(sherd_tensor_failed(t.failed));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    return t;
}

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    const float *y = sherd_tensor_read(sherd_full(sherd_cumprod(make(world).a, 0)));
    CHECK(y && y[0] == 1 && y[11] == 1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

#define OF_ONE(a)                                                                              \
    {                                                                                          \
        sherd_diagonal(a, 0, 0, 1), sherd_diag_embed(a, 0, 0, 1), sherd_trace(a, 0, 0, 1),     \
            sherd_cumprod(a, 0), sherd_cummax(a, 0, NULL), sherd_cummin(a, 0, NULL),           \
            sherd_logcumsumexp(a, 0), sherd_recurrence(a, a, 0, false),                        \
            sherd_kthvalue(a, 1, 0, false, NULL), sherd_median(a, 0, false, NULL),             \
            sherd_quantile(a, 0.5, 0, SHERD_QUANTILE_LINEAR, false), sherd_cross(a, a, 0),     \
            sherd_normalize(a, 2, 0, 0), sherd_cosine_similarity(a, a, 0, 0), sherd_glu(a, 0), \
            sherd_prelu(a, a), sherd_isclose(a, a, 0, 0, false), sherd_unfold(a, 0, 1, 1),     \
            sherd_pixel_shuffle(a, 2), sherd_pixel_unshuffle(a, 2),                            \
    }

MISUSE(an_operator_on_nothing_is_nothing)
{
    sherd_tensor *const of_nothing[] = OF_ONE(NULL);

    for (int i = 0; i < LEN(of_nothing); i++)
        ANSWERS(of_nothing[i] == NULL);
}

MISUSE(a_failed_operand_is_passed_on)
{
    things t = make(m->world);
    sherd_tensor *const of_failed[] = OF_ONE(t.failed);

    for (int i = 0; i < LEN(of_failed); i++)
        ANSWERS(of_failed[i] && sherd_tensor_failed(of_failed[i]));
    /* Whether such a use is told anew is not this test's to say. */
    sherd_world_check(m->world);
}

MISUSE(two_dims_must_be_there)
{
    things t = make(m->world);

    FAILS(SHERD_EINVAL, sherd_diagonal(t.a, 0, BAD(2, 0), 1));
    FAILS(SHERD_EINVAL, sherd_diagonal(t.a, 0, 0, BAD(-2, -1)));
    FAILS(SHERD_EINVAL, sherd_diagonal(BAD(t.row, t.a), 0, 0, 1));
    FAILS(SHERD_EINVAL, sherd_trace(t.a, 0, BAD(INT32_MIN, 0), 1));
    FAILS(SHERD_EINVAL, sherd_diag_embed(t.a, 0, BAD(3, 2), 1));
    FAILS(SHERD_EINVAL, sherd_diag_embed(t.a, 0, BAD(1, 2), 1));
    FAILS(SHERD_EINVAL, sherd_diag_embed(BAD(t.one, t.a), 0, 0, 1));
    ANSWERS(sherd_tensor_count(sherd_diagonal(t.a, INT64_MIN, 0, 1)) == 0);
}

MISUSE(a_dim_must_be_there)
{
    things t = make(m->world);
    sherd_tensor *a = t.a, *at = NULL;

    FAILS(SHERD_EINVAL, sherd_cumprod(a, BAD(2, 0)));
    FAILS(SHERD_EINVAL, sherd_cumprod(BAD(t.mask, a), 0));
    FAILS(SHERD_EINVAL, sherd_cummax(a, BAD(-3, 0), &at));
    ANSWERS(at && sherd_tensor_failed(at));
    FAILS(SHERD_EINVAL, sherd_cummin(BAD(t.one, a), 0, NULL));
    FAILS(SHERD_EINVAL, sherd_logcumsumexp(BAD(t.whole, a), 0));
    FAILS(SHERD_EINVAL, sherd_logcumsumexp(a, BAD(INT32_MAX, 0)));
    FAILS(SHERD_EINVAL, sherd_recurrence(a, NUL(a), 0, false));
    FAILS(SHERD_EINVAL, sherd_recurrence(BAD(t.row, a), a, 0, false));
    FAILS(SHERD_EINVAL, sherd_recurrence(a, a, BAD(2, 1), BAD(true, false)));
}

MISUSE(a_place_must_be_there)
{
    things t = make(m->world);
    sherd_tensor *a = t.a, *at = NULL;

    FAILS(SHERD_EINVAL, sherd_kthvalue(a, BAD(5, 4), 0, false, &at));
    ANSWERS(at && sherd_tensor_failed(at));
    FAILS(SHERD_EINVAL, sherd_kthvalue(a, BAD(0, 1), 0, false, NULL));
    FAILS(SHERD_EINVAL, sherd_kthvalue(a, 1, BAD(2, 0), false, NULL));
    FAILS(SHERD_EINVAL, sherd_median(a, BAD(-3, 0), false, NULL));
    FAILS(SHERD_EINVAL, sherd_median(BAD(t.empty, a), 0, false, NULL));
    FAILS(SHERD_EINVAL, sherd_quantile(a, BAD(1.5, 1), 0, SHERD_QUANTILE_LINEAR, false));
    FAILS(SHERD_EINVAL, sherd_quantile(a, BAD((double)NAN, 1), 0, SHERD_QUANTILE_LINEAR, false));
    FAILS(SHERD_EINVAL, sherd_quantile(BAD(t.whole, a), 0, 0, SHERD_QUANTILE_LINEAR, false));
    FAILS(SHERD_EINVAL, sherd_quantile(BAD(t.empty, a), 0, 0, SHERD_QUANTILE_LINEAR, false));
    FAILS(SHERD_EINVAL, sherd_quantile(a, 0, BAD(2, 0), SHERD_QUANTILE_LINEAR, false));
    FAILS(SHERD_EINVAL,
          sherd_quantile(a, 0, 0, BAD((sherd_quantile_way)9, SHERD_QUANTILE_LINEAR), false));
}

MISUSE(vectors_must_fit)
{
    things t = make(m->world);
    sherd_tensor *a = t.a;

    FAILS(SHERD_EINVAL, sherd_cross(a, a, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_cross(a, NUL(a), 1));
    FAILS(SHERD_EINVAL, sherd_cross(a, BAD(t.empty, t.row), 1));
    FAILS(SHERD_EINVAL, sherd_normalize(a, BAD((double)NAN, 2), 0, 0));
    FAILS(SHERD_EINVAL, sherd_normalize(a, 2, BAD(2, 0), 0));
    FAILS(SHERD_EINVAL, sherd_normalize(a, 2, 0, BAD(-1.0, 1)));
    FAILS(SHERD_EINVAL, sherd_cosine_similarity(a, NUL(a), 0, 0));
    FAILS(SHERD_EINVAL, sherd_cosine_similarity(a, t.row, BAD(2, 1), 0));
    FAILS(SHERD_EINVAL, sherd_cosine_similarity(a, a, 0, BAD((double)NAN, 0)));
    FAILS(SHERD_EINVAL, sherd_glu(a, BAD(1, 0)));
    FAILS(SHERD_EINVAL, sherd_glu(a, BAD(-3, 0)));
    FAILS(SHERD_EINVAL, sherd_prelu(a, NUL(t.row)));
    FAILS(SHERD_EINVAL, sherd_prelu(a, BAD(a, t.row)));
    FAILS(SHERD_EINVAL, sherd_prelu(t.cube, BAD(t.row, sherd_narrow(t.row, 0, 0, 1))));
    FAILS(SHERD_EINVAL, sherd_isclose(a, NUL(a), 0, 0, false));
    FAILS(SHERD_EINVAL, sherd_isclose(a, a, BAD(-1.0, 0), 0, BAD(true, false)));
    FAILS(SHERD_EINVAL, sherd_isclose(a, BAD(t.whole, a), 0, BAD((double)NAN, 0), false));
}

MISUSE(windows_and_pixels_must_fit)
{
    things t = make(m->world);

    FAILS(SHERD_EINVAL, sherd_unfold(t.a, BAD(2, 0), 1, 1));
    FAILS(SHERD_EINVAL, sherd_unfold(t.a, 0, BAD(5, 4), 1));
    FAILS(SHERD_EINVAL, sherd_unfold(t.a, 0, BAD(0, 1), 1));
    FAILS(SHERD_EINVAL, sherd_unfold(t.a, 0, 1, BAD(0, INT64_MAX)));
    FAILS(SHERD_EINVAL, sherd_pixel_shuffle(BAD(t.a, t.cube), 2));
    FAILS(SHERD_EINVAL, sherd_pixel_shuffle(t.cube, BAD(3, 2)));
    FAILS(SHERD_EINVAL, sherd_pixel_shuffle(t.cube, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_pixel_shuffle(t.cube, BAD(INT64_MAX, 2)));
    FAILS(SHERD_EINVAL, sherd_pixel_unshuffle(t.cube, BAD(3, 2)));
    FAILS(SHERD_EINVAL, sherd_pixel_unshuffle(t.cube, BAD(-1, 2)));
    FAILS(SHERD_EINVAL, sherd_pixel_unshuffle(BAD(t.one, t.cube), 2));
}

static const check_test tests[] = {
    {TEST(an_operator_on_nothing_is_nothing), {1, 2}},
    {TEST(a_failed_operand_is_passed_on), {1, 2}},
    {TEST(two_dims_must_be_there), {1, 2, 3}},
    {TEST(a_dim_must_be_there), {1, 2, 3}},
    {TEST(a_place_must_be_there), {1, 2, 3}},
    {TEST(vectors_must_fit), {1, 2, 3}},
    {TEST(windows_and_pixels_must_fit), {1, 2, 3}},
};
CHECK_MAIN(tests)
