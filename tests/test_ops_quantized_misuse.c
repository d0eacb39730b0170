/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of weights of 8 and 4 bits: see misuse.h. */
#include "misuse.h"

#include "sherd/ops.h"
#include "sherd/ops_quantized.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

typedef struct things {
    sherd_tensor *x, *weight, *value, *scale, *groups, *bias; /* [4,6], [3,6], .., [3], [3,2] */
    sherd_tensor *scalar, *other;                             /* x on another mesh */
    sherd_tensor *odd, *pairs;                                /* [3,5]; [3,3] of bytes */
    sherd_tensor *many, *lines; /* of 8 dims, [..,1,2]; [3,1] of bytes */
} things;

static sherd_tensor *on(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape,
                        const char *form)
{
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, form, sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    const char *placements = strstr(text, ",") ? "RR" : "R";
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL));
    return sherd_constant_on(layout, dtype, 1);
}

static things make(sherd_world *world)
{
    static const int64_t x[] = {4, 6}, weight[] = {3, 6}, groups[] = {3, 2};
    static const int64_t odd[] = {3, 5}, pairs[] = {3, 3}, many[] = {1, 1, 1, 1, 1, 3, 1, 2};

    return (things){.x = on(world, SHERD_F32, 2, x, "x=%d"),
                    .weight = on(world, SHERD_F32, 2, weight, "x=%d"),
                    .value = on(world, SHERD_I8, 2, weight, "x=%d"),
                    .scale = on(world, SHERD_F32, 1, weight, "x=%d"),
                    .groups = on(world, SHERD_F32, 2, groups, "x=%d"),
                    .bias = on(world, SHERD_F32, 1, weight, "x=%d"),
                    .scalar = on(world, SHERD_F32, 0, NULL, "x=%d"),
                    .odd = on(world, SHERD_F32, 2, odd, "x=%d"),
                    .pairs = on(world, SHERD_U8, 2, pairs, "x=%d"),
                    .many = on(world, SHERD_F32, 8, many, "x=%d"),
                    .lines = on(world, SHERD_U8, 2, (int64_t[]){3, 1}, "x=%d"),
                    .other = on(world, SHERD_F32, 2, x, "x=%d,y=1")};
}

MISUSE(weights_become_numbers_of_8_bits)
{
    const things t = make(m->world);
    sherd_tensor *scale = NULL;

    ONLY_SAYS(NULL, sherd_quantize(NULL, 8, 0, NULL));
    ONLY_SAYS(NULL, sherd_quantize(NULL, 8, 0, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(t.weight, 8, 0, NUL(&scale)));
    FAILS(SHERD_EINVAL, sherd_quantize(t.weight, 8, BAD(-1, 1), &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(BAD(t.scalar, t.weight), 8, 0, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(BAD(t.value, t.weight), 8, 0, &scale));
    FAILS(SHERD_OK, sherd_quantize(t.weight, 8, INT64_MAX, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(t.weight, BAD(5, 4), 0, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(t.weight, 4, BAD(3, 2), &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(BAD(t.odd, t.weight), 4, 0, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(BAD(t.scalar, t.weight), 4, 0, &scale));
    FAILS(SHERD_EINVAL, sherd_quantize(BAD(t.many, t.weight), 4, 0, &scale));
}

MISUSE(numbers_of_8_bits_become_weights)
{
    const things t = make(m->world);

    ONLY_SAYS(NULL, sherd_dequantize(NULL, NULL, 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(NUL(t.value), t.scale, 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, NUL(t.scale), 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(BAD(t.weight, t.value), t.scale, 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, BAD(t.value, t.scale), 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, t.groups, BAD(0, 4), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, t.groups, BAD(2, 3), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, t.groups, BAD(-3, 3), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, t.scale, 0, BAD(SHERD_I8, SHERD_F32)));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.value, t.scale, 0, BAD((sherd_dtype)99, SHERD_F32)));
    FAILS(SHERD_EINVAL, sherd_dequantize(BAD(t.scalar, t.value), t.scale, 0, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.pairs, t.groups, BAD(3, 4), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_dequantize(t.pairs, t.groups, BAD(2, 4), SHERD_F32));
}

MISUSE(products_need_values_and_scales_that_fit)
{
    const things t = make(m->world);

    ONLY_SAYS(NULL, sherd_linear_quantized(NULL, NULL, NULL, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(NUL(t.x), t.value, t.scale, 0, t.bias));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, NUL(t.value), t.scale, 0, t.bias));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.value, NUL(t.scale), 0, t.bias));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.weight, t.x), t.weight, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.scalar, t.x), t.value, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.value, t.x), t.value, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.other, t.x), t.value, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, BAD(t.scale, t.value), t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.value, BAD(t.groups, t.scale), 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.value, t.groups, BAD(1, 5), NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.value, t.groups, BAD(-5, 5), NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.value, t.scale, 0, BAD(t.x, t.bias)));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.odd, t.x), t.pairs, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.scalar, t.x), t.pairs, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(NUL(t.x), t.pairs, t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(t.many, sherd_narrow(t.x, 1, 0, 2)), t.lines,
                                               t.scale, 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.pairs, t.groups, BAD(3, 4), NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(t.x, t.pairs, BAD(t.groups, t.scale), 0, NULL));
    FAILS(SHERD_EINVAL, sherd_linear_quantized(BAD(sherd_cast(t.x, SHERD_F16), t.x), t.value,
                                               t.scale, 0, t.bias));
}

MISUSE(products_of_groups_need_weights_that_fit)
{
    const things t = make(m->world);
    sherd_tensor *x = t.x, *value = sherd_unsqueeze(t.value, 0),
                 *scale = sherd_unsqueeze(t.scale, 0);
    sherd_tensor *groups = sherd_unsqueeze(t.groups, 0), *pairs = sherd_unsqueeze(t.pairs, 0);
    sherd_tensor *ends = sherd_constant(m->world, SHERD_I32, (int64_t[]){1}, 1, 4);
    sherd_tensor *beyond = sherd_constant(m->world, SHERD_I32, (int64_t[]){1}, 1, 5);
    sherd_tensor *group = sherd_constant(m->world, SHERD_I32, (int64_t[]){1}, 1, 0);
    sherd_tensor *two = sherd_constant(m->world, SHERD_I32, (int64_t[]){2}, 1, 0);

#define BY(...) sherd_grouped_linear_quantized(__VA_ARGS__)
    ONLY_SAYS(NULL, BY(NULL, NULL, NULL, 0, NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, BY(NUL(x), value, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, NUL(value), scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, NUL(scale), 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, NULL, NUL(ends), NULL));
    FAILS(SHERD_EINVAL, BY(BAD(t.odd, x), value, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(BAD(t.scalar, x), value, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(BAD(t.other, x), value, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, BAD(t.value, value), scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, BAD(t.scale, scale), 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, groups, BAD(1, 5), NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, groups, BAD(-5, 5), NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, BAD(x, scale), ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, NULL, BAD(beyond, ends), NULL));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, NULL, BAD(x, ends), NULL));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, NULL, ends, BAD(ends, group)));
    FAILS(SHERD_EINVAL, BY(x, value, scale, 0, NULL, ends, BAD(two, group)));
    FAILS(SHERD_EINVAL, BY(BAD(t.odd, x), pairs, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(BAD(t.scalar, x), pairs, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(BAD(t.many, x), pairs, scale, 0, NULL, ends, NULL));
    FAILS(SHERD_EINVAL, BY(x, pairs, groups, BAD(3, 4), NULL, ends, NULL));
#undef BY
}

static const check_test tests[] = {
    {TEST(weights_become_numbers_of_8_bits), {1, 3}},
    {TEST(numbers_of_8_bits_become_weights), {1, 3}},
    {TEST(products_need_values_and_scales_that_fit), {1, 3}},
    {TEST(products_of_groups_need_weights_that_fit), {1, 3}},
};
CHECK_MAIN(tests)
