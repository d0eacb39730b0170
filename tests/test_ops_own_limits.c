/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of what a user's operator may say and do: views outside of their storage, results that lie
 * as they cannot, fields beyond the attributes, scopes and worlds that are not its own. Each ends
 * in a line that names the operator, on all ranks, and leaves everything else as it was.
 */
#include "sherd/autograd.h"
#include "sherd/op.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "tensors.h"

typedef struct attributes {
    int which;
    double factor;
} attributes;

static bool copies(sherd_call *call)
{
    for (int64_t i = 0; i < call->out[0]->count; i++)
        ((float *)call->to[0])[i] = ((const float *)call->from[0])[i];
    return true;
}

#define OWN(...)                                                                 \
    {                                                                            \
        .name = "own", .operand = {{"x", 0}}, .result = {{"y", 0}}, __VA_ARGS__, \
    }
#define WHICH .field = {SHERD_FIELD(attributes, which, INT)}, .attributes = sizeof(attributes)

static const int64_t square[] = {8, 4};

static sherd_tensor *spread(sherd_world *world, const char *placements)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 2, square, placements, NULL),
                             SHERD_F32, 1);
}

static bool check_says_as(sherd_world *world, sherd_status status, const char *text)
{
    if (CHECK_EQ(sherd_world_check(world), status) &&
        CHECK(strstr(sherd_world_error(world), text) != NULL))
        return true;
    fprintf(stderr, "  \"%s\", not \"%s\"\n", sherd_world_error(world), text);
    return false;
}

static bool check_says(sherd_world *world, const char *text)
{
    return check_says_as(world, SHERD_EINVAL, text);
}

/* ---- views ---------------------------------------------------------------------------------- */

typedef struct view {
    int64_t stride[2], offset;
    bool good; /* with pieces of four columns */
    bool stretched;
} view;

static const view views[] = {
    {{4, 1}, 0, true, false},          {{0, 0}, 0, true, true},
    {{0, 1}, 0, true, true},           {{4, 1}, 1, false, false},
    {{4, 1}, 1000, false, false},      {{4, 1}, -1, false, false},
    {{4, 1}, INT64_MAX, false, false}, {{4, 1}, INT64_MIN, false, false},
    {{-4, -1}, 0, false, false},       {{INT64_MAX, INT64_MAX}, 0, false, false},
    {{INT64_MIN, 1}, 0, false, false}, {{INT64_MAX / 2, -INT64_MAX / 2}, 0, false, false},
    {{5, 1}, 0, false, false},
};

static bool sees(sherd_call *call)
{
    const attributes *a = call->attributes;

    sherd_call_view(call, 0, views[a->which].stride, views[a->which].offset);
    return true;
}

static bool sees_nothing(sherd_call *call)
{
    (void)call;
    return true;
}

static const char *larger(sherd_call *call)
{
    sherd_call_shape(call, 0, 2, (const int64_t[]){8, 400});
    return NULL;
}

static const sherd_op seeing =
    OWN(.rule = "ab->ab", .views = true, .strided = true, WHICH, .forward = sees);
static const sherd_op stretching =
    OWN(.rule = "a*->a*", .views = true, .describe = larger, .forward = sees_nothing);

static void a_view_stays_in_its_storage(sherd_world *world)
{
    sherd_tensor *x = spread(world, "S(0)"), *beside = spread(world, "S(0)");
    sherd_tensor *plain = sherd_constant(world, SHERD_F32, square, 2, 1);

    CHECK_OK(sherd_world_check(world));
    for (attributes a = {.which = 0}; a.which < LEN(views); a.which++)
        for (int lies = 0; lies < 2; lies++) {
            sherd_tensor *y = sherd_apply(&seeing, lies ? &plain : &x, 1, &a);
            if (views[a.which].good) {
                CHECK_NEAR(sherd_item(sherd_sum(y)), 32, 0);
                CHECK_OK(sherd_world_check(world)); /* before the next failure */
            }
            sherd_fill(y, 1);
            if (views[a.which].stretched)
                check_says(world, "sherd_fill: a is a stretched view");
            else if (views[a.which].good)
                CHECK_OK(sherd_world_check(world));
            else
                check_says(world, "own: what sherd_call_view says of y");
        }
    sherd_fill(sherd_apply(&stretching, &x, 1, NULL), 7);
    check_says(world, "own: what sherd_call_view says of y");
    CHECK_NEAR(sherd_item(sherd_sum(beside)), 32, 0);
    CHECK_NEAR(sherd_item(sherd_sum(x)), 32, 0);
    CHECK_OK(sherd_world_check(world));
}

/* A view that runs backwards within its storage is a view. */
static bool turns(sherd_call *call)
{
    if (call->out[0]->count)
        sherd_call_view(call, 0, (const int64_t[]){-call->out[0]->local[1], 1},
                        call->out[0]->count - call->out[0]->local[1]);
    return true;
}

static void a_view_may_run_backwards(sherd_world *world)
{
    static const sherd_op turning =
        OWN(.rule = "ab->ab", .whole = "a", .views = true, .strided = true, .forward = turns);
    sherd_tensor *x =
        indices_on(layout_of(line_of_ranks(world), 2, square, "S(1)", NULL), SHERD_F32);
    sherd_tensor *y = sherd_apply(&turning, &x, 1, NULL);
    const float *data = sherd_tensor_read(sherd_full(y));

    for (int i = 0; data && i < 32; i++)
        CHECK_NEAR(data[i], (7 - i / 4) * 4 + i % 4, 0);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 31 * 16, 0);
    sherd_fill(y, 2);
    CHECK_NEAR(sherd_item(sherd_sum(x)), 64, 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- ways ----------------------------------------------------------------------------------- */

typedef enum way {
    WAY_GOOD,
    WAY_SHAPE,
    WAY_NDIM,
    WAY_MESH,
    WAY_WORLD,
    WAY_NO_MEMORY,
    WAY_NO_SUPPORT,
    WAY_NO_STATUS,
    WAY_REASON,
    WAYS
} way;

static sherd_world *other_world(sherd_world *world, sherd_world *set)
{
    static _Thread_local sherd_world *other;

    (void)world;
    other = set ? set : other;
    return other;
}

static sherd_status gives(const sherd_call *call, sherd_ways *ways)
{
    const attributes *a = call->attributes;
    const sherd_layout *given = sherd_tensor_layout(call->in[0]), *result = given;
    const sherd_mesh *mesh = sherd_layout_mesh(given), *square_mesh;
    char text[32];

    snprintf(text, sizeof text, "other=%d", sherd_world_ranks(call->world));
    if (a->which == WAY_SHAPE)
        result = layout_of(mesh, 2, (const int64_t[]){800, 4}, "S(0)", NULL);
    if (a->which == WAY_NDIM)
        result = layout_of(mesh, 1, square, "S(0)", NULL);
    square_mesh = mesh_of(call->world, text);
    if (a->which == WAY_MESH)
        result = layout_of(square_mesh, 2, square, "S(0)", NULL);
    if (a->which == WAY_WORLD)
        result = layout_of(mesh_of(other_world(NULL, NULL), "x=1"), 2, square, "S(0)", NULL);
    if (a->which == WAY_NO_MEMORY)
        return SHERD_ENOMEM;
    if (a->which == WAY_NO_SUPPORT)
        return SHERD_ENOTSUP;
    if (a->which == WAY_NO_STATUS)
        return (sherd_status)77;
    if (a->which == WAY_REASON)
        sherd_call_reason((sherd_call *)(uintptr_t)call, "%0180d", 1);
    return sherd_way_add(ways, &given, &result);
}

static const char *as_it_is(sherd_call *call)
{
    sherd_call_shape(call, 0, 2, sherd_tensor_shape(call->in[0]));
    return NULL;
}

static void results_lie_as_they_can(sherd_world *world)
{
    static const struct {
        sherd_status status;
        const char *text;
    } says[WAYS] = {
        [WAY_SHAPE] = {SHERD_EINVAL, "own: sherd_way_add: the layout of result 0"},
        [WAY_NDIM] = {SHERD_EINVAL, "own: sherd_way_add: the layout of result 0"},
        [WAY_MESH] = {SHERD_EINVAL, "own: sherd_way_add: the layout of result 0"},
        [WAY_WORLD] = {SHERD_EINVAL, "own: sherd_way_add: the layout of result 0"},
        [WAY_NO_MEMORY] = {SHERD_ENOMEM, "own: its ways returned"},
        [WAY_NO_SUPPORT] = {SHERD_ENOTSUP, "own: its ways returned"},
        [WAY_NO_STATUS] = {SHERD_EINVAL, "own: its ways returned 77"},
    };
    static const sherd_op ruled = OWN(.rule = "ab->ab", WHICH, .ways = gives, .forward = copies),
                          shaped =
                              OWN(.describe = as_it_is, WHICH, .ways = gives, .forward = copies);
    sherd_tensor *x = spread(world, "S(0)");
    sherd_world *other = NULL;

    CHECK_OK(sherd_world_alone(&other, NULL));
    other_world(world, other);
    CHECK_OK(sherd_world_check(world));
    for (attributes a = {.which = 0}; a.which < WAYS; a.which++)
        for (int i = 0; i < 2; i++) {
            sherd_tensor *y = sherd_apply(i ? &ruled : &shaped, &x, 1, &a);
            if (says[a.which].text)
                check_says_as(world, says[a.which].status, says[a.which].text);
            else
                CHECK_NEAR(sherd_item(sherd_sum(y)), 32, 0);
        }
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_world_close(other));
}

/* ---- what it says of itself ------------------------------------------------------------------ */

typedef struct wrong_op {
    sherd_op op;
    const char *reason;
} wrong_op;

#define WRONG(why, ...)                                                                   \
    {                                                                                     \
        .op = OWN(.rule = "ab->ab", .forward = copies, WHICH, __VA_ARGS__), .reason = why \
    }
#define ONE(kind_, offset_, count_) .field = {{"which", kind_, offset_, count_}}

static void fields_and_letters_are_there(sherd_world *world)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
    static const wrong_op wrong[] = {
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_INT, 1000, 1)),
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_INT, 13, 1)),
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_INT, SIZE_MAX, 1)),
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_INT, 0, -1)),
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_INT, 0, 1 << 30)),
        WRONG("field which is not within its attributes", ONE(SHERD_FIELD_DOUBLE, 0, 3)),
        WRONG("field which has a kind that is none", ONE((sherd_field_kind)99, 0, 1)),
        WRONG("field which has a kind that is none", ONE((sherd_field_kind)-1, 0, 1)),
        WRONG("field which is not within its attributes", .attributes = 0),
        WRONG("its linearity is none", .linearity = (sherd_linearity)44),
        WRONG("its numbers are none", .numbers = (sherd_op_numbers)-1),
        WRONG("its autocast is none", .autocast = (sherd_op_autocast)44),
        WRONG("whole may have letters of its rule only", .whole = "Z!"),
        WRONG("whole may have letters of its rule only", .whole = "q"),
        WRONG("whole may have letters of its rule only", .whole = "a,"),
        WRONG("joined may have letters of its rule only", .joined = "q"),
        WRONG("addends names a result that is none", .addends = ~0u),
        WRONG("addends names a result that is none", .addends = 2u),
        WRONG("addends needs joined letters", .addends = 1u),
    };
#pragma GCC diagnostic pop
    static const attributes none;
    sherd_tensor *x = spread(world, "S(0)");

    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < LEN(wrong); i++) {
        CHECK_EQ(sherd_op_register(world, &wrong[i].op), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), wrong[i].reason) != NULL))
            fprintf(stderr, "  %s, not %s\n", sherd_world_error(world), wrong[i].reason);
        CHECK(sherd_tensor_failed(sherd_apply(&wrong[i].op, &x, 1, &none)));
        check_says(world, wrong[i].reason);
    }
    CHECK_NEAR(sherd_item(sherd_sum(x)), 32, 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- what is not its own ---------------------------------------------------------------------- */

typedef enum deed {
    DEED_NONE,
    DEED_SETS_OUT,
    DEED_ENDS,
    DEED_BEGINS,
    DEED_CLOSES,
    DEED_SCRATCH,
    DEED_EMPTY,
    DEEDS
} deed;

static void closes(sherd_world *world)
{
    CHECK_EQ(sherd_world_close(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_world_close: ") != NULL);
}

static void opens_and_ends(sherd_world *world, int which)
{
    for (int i = 0; i < 5 && which == DEED_ENDS; i++)
        sherd_scope_end(world);
    for (int i = 0; i < 5 && which == DEED_BEGINS; i++)
        sherd_scope_begin(world);
    if (which == DEED_CLOSES)
        closes(world);
}

static bool misbehaves(sherd_call *call)
{
    const attributes *a = call->attributes;

    opens_and_ends(call->world, a->which);
    if (a->which == DEED_SETS_OUT)
        call->out[0] = sherd_neg(call->in[0]);
    if (a->which == DEED_SCRATCH)
        return sherd_call_scratch(call, -5) != NULL && copies(call);
    if (a->which == DEED_EMPTY)
        return sherd_call_fail(call, SHERD_EINVAL, "%s", "");
    return copies(call);
}

static const char *describes(sherd_call *call)
{
    const attributes *a = call->attributes;

    opens_and_ends(call->world, a->which);
    return NULL;
}

static void misbehaves_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const attributes *a = sherd_node_attributes(node);

    grad_in[0] = sherd_scale(grad_out[0], 2);
    opens_and_ends(sherd_tensor_world(grad_out[0]), a->which);
}

static bool composes(sherd_call *call)
{
    const attributes *a = call->attributes;

    call->out[0] = sherd_scale(call->in[0], 1);
    opens_and_ends(call->world, a->which);
    return true;
}

static const sherd_op misbehaving = OWN(.rule = "ab->ab", WHICH, .describe = describes,
                                        .forward = misbehaves, .backward = misbehaves_back);
static const sherd_op composed = OWN(WHICH, .describe = describes, .compose = composes);

/* The scopes of whoever applies it are as they were, whatever it does. */
static void keeps_scopes(sherd_world *world, const sherd_op *op, sherd_tensor *x, int which)
{
    const attributes a = {.which = which};
    double factor = op == &composed ? 1 : 2;

    sherd_scope_begin(world);
    sherd_tensor *mine = sherd_scale(x, 3);
    sherd_scope_begin(world);
    sherd_tensor *y = sherd_apply(op, &x, 1, &a);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 32, 0);
    sherd_backward(sherd_sum(y));
    CHECK_NEAR(sherd_item(sherd_sum(sherd_grad(x))), 32 * factor, 0);
    sherd_clear_grad(x);
    sherd_scope_end(world);
    CHECK_NEAR(sherd_item(sherd_sum(mine)), 96, 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void scopes_of_its_caller_stay(sherd_world *world)
{
    sherd_tensor *x = sherd_require_grad(spread(world, "S(0)"), true);
    sherd_tensor *plain = sherd_require_grad(sherd_constant(world, SHERD_F32, square, 2, 1), true);

    CHECK_OK(sherd_world_check(world));
    for (int which = DEED_ENDS; which <= DEED_BEGINS; which++) {
        keeps_scopes(world, &misbehaving, x, which);
        keeps_scopes(world, &misbehaving, plain, which);
        keeps_scopes(world, &composed, x, which);
    }
}

static void what_it_leaves_is_said(sherd_world *world)
{
    static const char *const says[DEEDS] = {
        [DEED_SETS_OUT] = "own: it has replaced a tensor of call->out",
        [DEED_SCRATCH] = "own: sherd_call_scratch: -5 bytes",
        [DEED_EMPTY] = "own: it failed and did not say why: x is f32[8",
    };
    sherd_tensor *x = sherd_require_grad(spread(world, "S(0)"), true);
    sherd_tensor *plain = sherd_require_grad(sherd_constant(world, SHERD_F32, square, 2, 1), true);

    CHECK_OK(sherd_world_check(world));
    for (attributes a = {.which = 0}; a.which < DEEDS; a.which++) {
        for (int i = 0; says[a.which] && i < 2; i++) {
            CHECK(sherd_tensor_failed(sherd_apply(&misbehaving, i ? &plain : &x, 1, &a)));
            check_says(world, says[a.which]);
        }
    }
    CHECK_NEAR(sherd_item(sherd_sum(x)), 32, 0);
    CHECK_OK(sherd_world_check(world));
}

/* Nobody closes the world in which a function of theirs is running. */
static void its_world_stays_open(sherd_world *unused)
{
    const attributes a = {.which = DEED_CLOSES};
    sherd_world *world = NULL;

    (void)unused;
    CHECK_OK(sherd_world_alone(&world, NULL));
    sherd_tensor *x = sherd_require_grad(sherd_constant(world, SHERD_F32, square, 2, 1), true);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *y = sherd_apply(i ? &composed : &misbehaving, &x, 1, &a);
        CHECK_NEAR(sherd_item(sherd_sum(y)), 32, 0);
        sherd_backward(sherd_sum(y));
    }
    CHECK_NEAR(sherd_item(sherd_sum(sherd_grad(x))), 96, 0);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_world_close(world));
}

static void wrong_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = sherd_cast(grad_out[0], SHERD_F64);
}

static void a_gradient_is_told_what_it_should_be(sherd_world *world)
{
    static const sherd_op op = OWN(.rule = "ab->ab", .forward = copies, .backward = wrong_back);
    sherd_tensor *x = sherd_require_grad(spread(world, "S(0)"), true);

    sherd_backward(sherd_sum(sherd_apply(&op, &x, 1, NULL)));
    check_says(world, "is not like the operand, which is a distributed f32[8,4]");
}

static const check_test tests[] = {
    {TEST(a_view_stays_in_its_storage), {1, 2, 3, 4}},
    {TEST(a_view_may_run_backwards), {1, 2, 3}},
    {TEST(results_lie_as_they_can), {1, 2, 3}},
    {TEST(fields_and_letters_are_there), {1, 2, 3}},
    {TEST(scopes_of_its_caller_stay), {1, 2, 3}},
    {TEST(what_it_leaves_is_said), {1, 2, 3}},
    {TEST(its_world_stays_open), {1}},
    {TEST(a_gradient_is_told_what_it_should_be), {1, 2, 3}},
};
CHECK_MAIN(tests)
