/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of pooling and interpolation: see misuse.h. */
#include "misuse.h"
#include "sherd/ops_stencil.h"
#include "tensor/tensor.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static sherd_tensor *field(sherd_world *world, sherd_dtype dtype, int ndim, int64_t rows)
{
    const int64_t shape[] = {2, 4, rows, 3, 1, 1};
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, "S(1)", NULL));
    return sherd_constant_on(layout, dtype, 1);
}

static sherd_tensor *rows(sherd_world *world)
{
    return field(world, SHERD_F32, 3, 6);
}

static const sherd_pool_options good_pool = {.kernel = {2}};
static const sherd_interpolate_options twice = {.factor = {2, 2, 2}};
static const int64_t good_size[] = {2, 2, 2};

/* What no operator here takes, in the place of x. */
MISUSE(a_field_has_batch_channels_and_space)
{
    static const struct {
        sherd_dtype dtype;
        int ndim;
        int64_t rows;
    } wrong[] = {{SHERD_F32, 2, 6}, {SHERD_F32, 6, 6}, {SHERD_F32, 3, 0}, {SHERD_I32, 3, 6}};

    sherd_tensor *x;

    ONLY_SAYS(NULL, sherd_max_pool(NULL, &good_pool, NULL));
    ONLY_SAYS(NULL, sherd_avg_pool(NULL, &good_pool));
    ONLY_SAYS(NULL, sherd_adaptive_avg_pool(NULL, good_size));
    ONLY_SAYS(NULL, sherd_adaptive_max_pool(NULL, good_size, NULL));
    ONLY_SAYS(NULL, sherd_interpolate(NULL, &twice));
    for (int i = 0; i < LEN(wrong); i++) {
        x = field(m->world, wrong[i].dtype, wrong[i].ndim, wrong[i].rows);
        sherd_tensor *right = rows(m->world);
        FAILS(SHERD_EINVAL, sherd_max_pool(BAD(x, right), &good_pool, NULL));
        x = field(m->world, wrong[i].dtype, wrong[i].ndim, wrong[i].rows);
        right = rows(m->world);
        FAILS(SHERD_EINVAL, sherd_avg_pool(BAD(x, right), &good_pool));
        x = field(m->world, wrong[i].dtype, wrong[i].ndim, wrong[i].rows);
        right = rows(m->world);
        FAILS(SHERD_EINVAL, sherd_adaptive_avg_pool(BAD(x, right), good_size));
        x = field(m->world, wrong[i].dtype, wrong[i].ndim, wrong[i].rows);
        right = rows(m->world);
        FAILS(SHERD_EINVAL, sherd_adaptive_max_pool(BAD(x, right), good_size, NULL));
        x = field(m->world, wrong[i].dtype, wrong[i].ndim, wrong[i].rows);
        right = rows(m->world);
        FAILS(SHERD_EINVAL, sherd_interpolate(BAD(x, right), &twice));
    }
}

/* Of 6 rows. */
static const sherd_pool_options bad_pool[] = {
    {.kernel = {0}},
    {.kernel = {-2}},
    {.kernel = {7}},
    {.kernel = {INT64_MAX}},
    {.kernel = {2}, .stride = {-1}},
    {.kernel = {2}, .stride = {INT64_MAX}},
    {.kernel = {2}, .padding = {-1}},
    {.kernel = {2}, .padding = {2}},
    {.kernel = {2}, .padding = {INT64_MAX}},
};
static const sherd_pool_options bad_average[] = {{.kernel = {2}, .dilation = {2}},
                                                 {.kernel = {2}, .divisor = -1}};
static const sherd_pool_options bad_maximum[] = {{.kernel = {2}, .dilation = {-1}},
                                                 {.kernel = {2}, .dilation = {6}},
                                                 {.kernel = {2}, .dilation = {INT64_MAX}},
                                                 {.kernel = {2}, .divisor = 3},
                                                 {.kernel = {2}, .without_padding = true}};

MISUSE(windows_are_in_range)
{
    for (int i = 0; i < LEN(bad_pool); i++) {
        FAILS(SHERD_EINVAL, sherd_max_pool(rows(m->world), BAD(&bad_pool[i], &good_pool), NULL));
        FAILS(SHERD_EINVAL, sherd_avg_pool(rows(m->world), BAD(&bad_pool[i], &good_pool)));
    }
    FAILS(SHERD_EINVAL, sherd_max_pool(rows(m->world), NUL(&good_pool), NULL));
    FAILS(SHERD_EINVAL, sherd_avg_pool(rows(m->world), NUL(&good_pool)));
    for (int i = 0; i < LEN(bad_average); i++)
        FAILS(SHERD_EINVAL, sherd_avg_pool(rows(m->world), BAD(&bad_average[i], &good_pool)));
    for (int i = 0; i < LEN(bad_maximum); i++)
        FAILS(SHERD_EINVAL, sherd_max_pool(rows(m->world), BAD(&bad_maximum[i], &good_pool), NULL));
}

static const sherd_interpolate_options bad_size[] = {
    {.size = {0}},
    {.size = {-1}},
    {.size = {INT64_MAX}},
    {.factor = {-2}},
    {.factor = {0.1}},
    {.factor = {1e30}},
    {.size = {2}, .factor = {2}},
    {.size = {2}, .kind = (sherd_interpolation)SHERD_INTERPOLATIONS},
    {.size = {2}, .kind = (sherd_interpolation)-1},
    {.size = {2}, .align_corners = true},
    {.size = {2}, .kind = SHERD_INTERPOLATE_AREA, .align_corners = true},
};

MISUSE(sizes_are_in_range)
{
    static const int64_t none[] = {0}, too_many[] = {INT64_MAX};

    FAILS(SHERD_EINVAL, sherd_interpolate(rows(m->world), NUL(&twice)));
    for (int i = 0; i < LEN(bad_size); i++)
        FAILS(SHERD_EINVAL, sherd_interpolate(rows(m->world), BAD(&bad_size[i], &twice)));
    FAILS(SHERD_EINVAL, sherd_adaptive_avg_pool(rows(m->world), NUL(good_size)));
    FAILS(SHERD_EINVAL, sherd_adaptive_avg_pool(rows(m->world), BAD(none, good_size)));
    FAILS(SHERD_EINVAL, sherd_adaptive_avg_pool(rows(m->world), BAD(too_many, good_size)));
    FAILS(SHERD_EINVAL, sherd_adaptive_max_pool(rows(m->world), NUL(good_size), NULL));
    FAILS(SHERD_EINVAL, sherd_adaptive_max_pool(rows(m->world), BAD(none, good_size), NULL));
    FAILS(SHERD_EINVAL, sherd_adaptive_max_pool(rows(m->world), BAD(too_many, good_size), NULL));
}

static const check_test tests[] = {
    {TEST(a_field_has_batch_channels_and_space), {1, 2, 3}},
    {TEST(windows_are_in_range), {1, 2, 3}},
    {TEST(sizes_are_in_range), {1, 2, 3}},
};
CHECK_MAIN(tests)
