/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of operators that read around: see misuse.h. */
#include "misuse.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_points.h"
#include "sherd/ops_stencil.h"
#include "tensor/tensor.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

typedef struct things {
    sherd_tensor *x, *w, *b; /* [2, 4, 6 rows on all ranks], [8, 4, 3], [8] */
    sherd_tensor *flat, *wide, *other;
} things;

static sherd_tensor *ones(const sherd_mesh *mesh, int ndim, const int64_t *shape, const char *how)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, how, NULL));
    return sherd_constant_on(layout, SHERD_F32, 1);
}

static things make(sherd_world *world)
{
    static const int64_t x[] = {2, 4, 6}, w[] = {8, 4, 3}, wide[] = {8, 4, 7}, other[] = {8, 3, 3};
    const sherd_mesh *mesh = NULL;
    things t = {.x = NULL};
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    t.x = ones(mesh, 3, x, "S(2)");
    t.w = ones(mesh, 3, w, "R");
    t.b = ones(mesh, 1, w, "R");
    t.flat = ones(mesh, 2, x, "R");
    t.wide = ones(mesh, 3, wide, "R");
    t.other = ones(mesh, 3, other, "R");
    CHECK_OK(sherd_world_check(world));
    return t;
}

/* Sharded on all ranks by its dim 1. */
static sherd_tensor *field(sherd_world *world, int ndim, const int64_t *shape)
{
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return ones(mesh, ndim, shape, "S(1)");
}

static const sherd_conv_options none;

MISUSE(a_convolution_needs_what_fits)
{
    things t = make(m->world);

    ONLY_SAYS(NULL, sherd_conv(NULL, NULL, NULL, &none));
    FAILS(SHERD_EINVAL, sherd_conv(NUL(t.x), t.w, t.b, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv(t.x, NUL(t.w), t.b, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv(BAD(t.flat, t.x), t.w, t.b, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv(t.x, BAD(t.other, t.w), t.b, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv(t.x, t.w, BAD(t.x, t.b), NULL));
    t = make(m->world);
    /* a kernel larger than the padded input */
    FAILS(SHERD_EINVAL, sherd_conv(t.x, BAD(t.wide, t.w), t.b, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv_transposed(NUL(t.x), t.w, NULL, NULL));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_conv_transposed(t.x, BAD(t.w, t.x), NULL, NULL));
}

/* A mesh of the same ranks is another mesh: nothing is fetched around across meshes. */
MISUSE(operands_are_on_one_mesh)
{
    static const int64_t q[] = {1, 6, 2, 3}, cloud[] = {6, 2}, w[] = {8, 4, 3}, b[] = {8};
    const sherd_mesh *other = NULL, *mesh;
    char text[16];

    snprintf(text, sizeof text, "y=%d", sherd_world_ranks(m->world));
    CHECK_OK(sherd_mesh_parse(&other, m->world, text));
    for (int way = 0; way < 5; way++) {
        things t = make(m->world);
        mesh = sherd_layout_mesh(sherd_tensor_layout(t.x));
        sherd_tensor *there[] = {ones(other, 3, w, "R"), ones(other, 1, b, "R"),
                                 ones(other, 4, q, "S(1)"), ones(other, 2, cloud, "S(0)")};
        sherd_tensor *here[] = {ones(mesh, 4, q, "S(1)"), ones(mesh, 2, cloud, "S(0)")};
        if (way == 0)
            FAILS(SHERD_EINVAL, sherd_conv(t.x, BAD(there[0], t.w), t.b, NULL));
        if (way == 1)
            FAILS(SHERD_EINVAL, sherd_conv(t.x, t.w, BAD(there[1], t.b), NULL));
        if (way == 2)
            FAILS(SHERD_EINVAL, sherd_conv_transposed(BAD(there[0], t.w), t.w, NULL, NULL));
        if (way == 3)
            FAILS(SHERD_EINVAL, sherd_attention(here[0], BAD(there[2], here[0]), here[0], NULL));
        if (way == 4)
            FAILS(SHERD_EINVAL,
                  sherd_knn(here[1], BAD(there[3], here[1]), 2, &(sherd_tensor *){NULL}));
    }
}

/* Options that no convolution has. */
static const sherd_conv_options bad[] = {
    {.stride = {-1}},
    {.dilation = {-2}},
    {.before = {-1}},
    {.after = {-1}},
    {.groups = -1},
    {.groups = 3},
    {.same = true, .stride = {2}},
    {.same = true, .before = {1}},
    {.stride = {INT64_MAX}},
    {.before = {INT64_MAX}},
    {.dilation = {4}},
};

static const sherd_conv_options bad_transposed[] = {
    {.same = true}, {.extra = {-1}}, {.extra = {1}}, {.before = {9}}, {.stride = {-1}},
};

MISUSE(options_are_in_range)
{
    for (int i = 0; i < LEN(bad); i++) {
        things t = make(m->world);
        FAILS(SHERD_EINVAL, sherd_conv(t.x, t.w, t.b, BAD(&bad[i], &none)));
    }
    for (int i = 0; i < LEN(bad_transposed); i++) {
        things t = make(m->world);
        FAILS(SHERD_EINVAL, sherd_conv_transposed(t.x, t.x, NULL, BAD(&bad_transposed[i], &none)));
    }
}

static const sherd_neighbourhood_options three = {.kernel = {3}};

/* Of a field of six positions. */
static const sherd_neighbourhood_options bad_windows[] = {
    {.kernel = {0}},
    {.kernel = {2}},
    {.kernel = {-3}},
    {.kernel = {7}},
    {.kernel = {3}, .dilation = {3}},
    {.kernel = {3}, .dilation = {-1}},
    {.kernel = {3}, .dilation = {INT64_MAX}},
    {.kernel = {INT64_MAX}, .dilation = {INT64_MAX}},
};

MISUSE(neighbours_need_a_field_and_an_odd_kernel)
{
    static const int64_t shape[] = {2, 6, 3, 4}, wide[] = {2, 6, 3, 5};
    sherd_tensor *q = field(m->world, 4, shape), *v;

    ONLY_SAYS(NULL, sherd_neighbourhood_attention(NULL, NULL, NULL, &three));
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(q, q, q, NUL(&three)));
    for (int i = 0; i < LEN(bad_windows); i++) {
        q = field(m->world, 4, shape);
        FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(q, q, q, BAD(&bad_windows[i], &three)));
    }
    q = field(m->world, 4, shape);
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(NUL(q), q, q, &three));
    q = field(m->world, 4, shape);
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(q, NUL(q), q, &three));
    q = field(m->world, 4, shape);
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(q, q, NUL(q), &three));
    q = field(m->world, 4, shape);
    v = field(m->world, 4, wide);
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(q, q, BAD(v, q), &three));
    q = field(m->world, 4, shape);
    v = field(m->world, 3, shape);
    FAILS(SHERD_EINVAL, sherd_neighbourhood_attention(BAD(v, q), BAD(v, q), BAD(v, q), &three));
}

/* The line says which dim, and why. */
static void a_kernel_that_does_not_fit_is_named(sherd_world *world)
{
    static const int64_t shape[] = {2, 6, 3, 4};
    static const struct {
        sherd_neighbourhood_options o;
        const char *line;
    } cases[] = {
        {{.kernel = {4}},
         "sherd_neighbourhood_attention: a kernel of 4 in dim 1: it must be odd: q is f32[2,6"},
        {{.kernel = {3}, .dilation = {3}},
         "sherd_neighbourhood_attention: a kernel of 3 with dilation 3 does not fit dim 1 of size "
         "6: q is f32[2,6"},
        {{.kernel = {7}, .periodic = {true}},
         "sherd_neighbourhood_attention periodic: a kernel of 7 with dilation 1 does not fit dim 1 "
         "of size 6: q is f32[2,6"},
    };

    for (int i = 0; i < LEN(cases); i++) {
        sherd_tensor *q = field(world, 4, shape);
        CHECK(sherd_tensor_failed(sherd_neighbourhood_attention(q, q, q, &cases[i].o)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), cases[i].line) != NULL);
    }
}

static bool nothing(sherd_call *call)
{
    (void)call;
    return true;
}

static void reads(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end)
{
    (void)call, (void)i, (void)d, (void)lo, (void)hi, (void)first, (void)end;
}

/* An operator that reads around says what, and of single operands. */
#define OPERATOR .name = "around", .result = {{"y", 0}}, .rule = "...->...", .forward = nothing
MISUSE(what_is_read_around_is_said)
{
    static const sherd_op silent = {OPERATOR, .operand = {{"x", SHERD_OP_AROUND}}};
    static const sherd_op idle = {OPERATOR, .operand = {{"x", 0}}, .reads = reads};
    static const sherd_op view = {OPERATOR, .operand = {{"x", SHERD_OP_AROUND}}, .reads = reads,
                                  .views = true};
    static const sherd_op beside = {OPERATOR, .operand = {{"x", SHERD_OP_AROUND}}, .reads = reads,
                                    .beside = 2};
    static const sherd_op repeated = {
        OPERATOR, .operand = {{"x", SHERD_OP_AROUND | SHERD_OP_REPEATED}}, .reads = reads};
    const sherd_op *const wrong[] = {&silent, &idle, &view, &beside, &repeated};

    for (int i = 0; i < LEN(wrong); i++)
        REFUSES(SHERD_EINVAL, sherd_op_register(m->world, wrong[i]));
    ANSWERS(sherd_call_box(NULL, 0).ndim == 0);
}

static const check_test tests[] = {
    {TEST(a_convolution_needs_what_fits), {1, 2, 3}},
    {TEST(operands_are_on_one_mesh), {1, 2, 3}},
    {TEST(options_are_in_range), {1, 2, 3}},
    {TEST(neighbours_need_a_field_and_an_odd_kernel), {1, 2, 3}},
    {TEST(a_kernel_that_does_not_fit_is_named), {1, 2, 3}},
    {TEST(what_is_read_around_is_said), {1}},
};
CHECK_MAIN(tests)
