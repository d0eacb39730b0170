/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of paddings with borders, and of convolutions that have one: see misuse.h. */
#include "misuse.h"
#include "sherd/ops_stencil.h"
#include "tensor/tensor.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static sherd_tensor *field(sherd_world *world, sherd_dtype dtype, int64_t rows)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    CHECK_OK(
        sherd_layout_parse_placements(&layout, mesh, 3, (int64_t[]){2, 4, rows}, "S(2)", NULL));
    return sherd_constant_on(layout, dtype, 1);
}

static const sherd_pad_options none;

/* Sides that 6 rows of integers, the last of three dims, cannot have. */
static const sherd_pad_options bad[] = {
    {.before = {[2] = {-1, SHERD_BORDER_REFLECT}}},
    {.after = {[2] = {-1, SHERD_BORDER_CONSTANT}}},
    {.before = {[2] = {1, SHERD_BORDER_NONE}}},
    {.after = {[2] = {1, (sherd_border)SHERD_BORDERS}}},
    {.before = {[2] = {6, SHERD_BORDER_REFLECT}}},
    {.before = {[2] = {7, SHERD_BORDER_SYMMETRIC}}},
    {.after = {[3] = {1, SHERD_BORDER_CONSTANT}}},
    {.after = {[3] = {1, SHERD_BORDER_PERIODIC}}},
    {.before = {[2] = {INT64_MAX, SHERD_BORDER_REPLICATE}}},
    {.before = {[2] = {1, SHERD_BORDER_REPLICATE}},
     .after = {[2] = {1, SHERD_BORDER_CONSTANT}},
     .value = 0.5},
    {.before = {[2] = {1, SHERD_BORDER_CONSTANT}}, .value = 0.5},
};

MISUSE(a_side_is_in_range)
{
    ONLY_SAYS(NULL, sherd_pad_with(NULL, NULL));
    for (int i = 0; i < LEN(bad); i++)
        FAILS(SHERD_EINVAL, sherd_pad_with(field(m->world, SHERD_I32, 6), BAD(&bad[i], &none)));
}

MISUSE(an_empty_dim_has_nothing_to_repeat)
{
    static const sherd_pad_options repeats = {.after = {[2] = {1, SHERD_BORDER_PERIODIC}}};

    FAILS(SHERD_EINVAL, sherd_pad_with(field(m->world, SHERD_F32, 0), BAD(&repeats, &none)));
}

MISUSE(a_convolution_has_a_border_that_there_is)
{
    static const sherd_conv_options right;
    static const sherd_conv_options bad_border[] = {
        {.border = (sherd_border)-1},
        {.border = (sherd_border)SHERD_BORDERS},
        {.border = SHERD_BORDER_REFLECT, .before = {6}},
    };
    static const sherd_conv_options mirror = {.border = SHERD_BORDER_REFLECT};
    static const int64_t kernel[] = {4, 4, 1};

    for (int i = 0; i < LEN(bad_border); i++)
        FAILS(SHERD_EINVAL, sherd_conv(field(m->world, SHERD_F32, 6),
                                       sherd_constant(m->world, SHERD_F32, kernel, 3, 1), NULL,
                                       BAD(&bad_border[i], &right)));
    sherd_tensor *x = field(m->world, SHERD_F32, 6);
    sherd_tensor *w = sherd_constant(m->world, SHERD_F32, kernel, 3, 1);
    FAILS(SHERD_EINVAL, sherd_conv(NUL(x), w, NULL, &mirror));
    x = field(m->world, SHERD_F32, 6);
    w = sherd_constant(m->world, SHERD_F32, kernel, 3, 1);
    FAILS(SHERD_EINVAL, sherd_conv(x, NUL(w), NULL, &mirror));
    FAILS(SHERD_EINVAL, sherd_conv_transposed(field(m->world, SHERD_F32, 6),
                                              sherd_constant(m->world, SHERD_F32, kernel, 3, 1),
                                              NULL, BAD(&mirror, &right)));
}

static const check_test tests[] = {
    {TEST(a_side_is_in_range), {1, 2, 3}},
    {TEST(an_empty_dim_has_nothing_to_repeat), {1, 2}},
    {TEST(a_convolution_has_a_border_that_there_is), {1, 2}},
};
CHECK_MAIN(tests)
