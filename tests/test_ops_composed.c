/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that are composed of others fail by their own name, with the operands that they were
 * given, whichever of the others it was that refused.
 */
#include "ops_cases.h"
#include "tensors.h"

#include "apply/operator.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_diagonal.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_vectors.h"

enum { KINDS = 5 };

/* An operand of an operator, of some dtype and shape; NULL: one that may be left out. */
static sherd_tensor *operand(sherd_world *world, const sherd_op_slot *slot, int dtype, int ndim)
{
    static const int64_t shapes[KINDS][3] = {{0}, {0}, {0, 3}, {2, 0, 3}, {4, 3, 3}};
    static const int dims[KINDS] = {0, 1, 2, 3, 3};
    sherd_dtype own = slot->flags & SHERD_OP_INDEX  ? SHERD_I32
                      : slot->flags & SHERD_OP_BOOL ? SHERD_BOOL
                                                    : (sherd_dtype)dtype;

    return sherd_constant(world, own, shapes[ndim], dims[ndim], 0);
}

/* Call it; if it fails, the text must begin with its name. */
static bool says_its_name(sherd_world *world, const sherd_op *op, int dtype, int ndim)
{
    sherd_tensor *in[SHERD_OP_SLOTS] = {NULL}, *out[SHERD_MAX_RESULTS];
    char name[128];
    int count = 0;

    sherd_scope_begin(world);
    for (; count < SHERD_OP_SLOTS && op->operand[count].name; count++)
        in[count] = operand(world, &op->operand[count], dtype, ndim);
    sherd_apply_all(out, op, in, count, NULL);
    sherd_scope_end(world);
    if (sherd_world_check(world) == SHERD_OK)
        return false;
    snprintf(name, sizeof name, "rank 0: %s: ", op->name);
    if (!CHECK(strncmp(sherd_world_error(world), name, strlen(name)) == 0))
        fprintf(stderr, "  %s: %s\n", op->name, sherd_world_error(world));
    return true;
}

static void whoever_refuses_the_call_is_named(sherd_world *world)
{
    int composed = 0, failures = 0;

    for (int i = 0; sherd__operators[i]; i++) {
        if (!sherd__operators[i]->compose)
            continue;
        composed++;
        for (int dtype = 0; dtype < SHERD_DTYPES; dtype++)
            for (int ndim = 0; ndim < KINDS && sherd_dtype_bytes((sherd_dtype)dtype); ndim++)
                failures += says_its_name(world, sherd__operators[i], dtype, ndim);
    }
    CHECK(composed > 20 && failures > composed);
}

static void the_operands_are_those_of_the_call(sherd_world *world)
{
    sherd_tensor *none = sherd_constant(world, SHERD_F64, (int64_t[]){0, 3}, 2, 0);

    sherd_normalize(none, (double)INFINITY, 0, 1e-12);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), ": sherd_normalize: sherd_max: ") != NULL) ||
        !CHECK(strstr(sherd_world_error(world), ": a is f64[0,3]") != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static void expect_text(sherd_world *world, const char *text)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

/* A plain operand that may differ between ranks, or that may not stand beside distributed ones. */
static void a_plain_operand_is_refused_by_the_call(sherd_world *world)
{
    const int64_t shape[] = {4};
    const float data[4] = {1, 2, 3, 4};
    const sherd_layout *l = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    sherd_tensor *a = sherd_constant_on(l, SHERD_F32, 1);
    sherd_tensor *own = sherd_from_data(world, SHERD_F32, shape, 1, data);

    sherd_mse_loss(a, own, SHERD_LOSS_MEAN);
    expect_text(world, ": sherd_mse_loss: sherd_sub: the plain tensor f32[4] beside");
    sherd_add(a, own);
    expect_text(world, ": sherd_add: the plain tensor f32[4] beside");
    (void)!sherd_op_promote(world, SHERD_PROMOTE_NEVER);
    sherd_mse_loss(a, own, SHERD_LOSS_MEAN);
    expect_text(world, ": sherd_mse_loss: sherd_sub: f32[4] is plain beside");
    (void)!sherd_op_promote(world, SHERD_PROMOTE_SILENTLY);
}

/* No memory for a call: more are open than there ever were. */
static void a_call_without_memory_is_that_of_the_function(sherd_world *world)
{
    const int64_t shape[] = {64};
    const sherd_layout *l = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    sherd_tensor *a = sherd_constant_on(l, SHERD_F32, 1);
    const sherd_redistribute_options begun = {.begin = true};
    sherd_status status = SHERD_ENOMEM;
    int named = 0;

    for (int n = 1; n < 50 && status; n++) {
        sherd_scope_begin(world);
        for (int i = 0; i < 8; i++)
            sherd_redistribute_to(a, "R", &begun);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_full(a);
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        const char *text = sherd_world_error(world);
        named += strstr(text, ": sherd_full: sherd_redistribute: out of memory") != NULL;
        if (!CHECK(!status || strstr(text, "rank 0: sherd_full: ")))
            fprintf(stderr, "  %s\n", text);
    }
    CHECK_OK(status);
    CHECK(named > 0);
}

/* An operand without elements needs no list of all classes. */
static void no_index_needs_no_classes(sherd_world *world)
{
    char mesh[16];
    const sherd_layout *l = NULL;
    int64_t bytes = sherd_world_memory(world).live_bytes;

    snprintf(mesh, sizeof mesh, "[0,3] on (x=%d)", sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&l, world, mesh, NULL));
    for (int plain = 0; plain < 2; plain++)
        for (int64_t classes = 0; classes <= INT32_MAX; classes += INT32_MAX) {
            sherd_tensor *index = plain ? sherd_constant(world, SHERD_I32, (int64_t[]){0, 3}, 2, 0)
                                        : sherd_constant_on(l, SHERD_I32, 0);
            sherd_tensor *y = sherd_one_hot(index, classes, SHERD_F32);
            CHECK(sherd_tensor_ndim(y) == 3 && sherd_tensor_shape(y)[0] == 0 &&
                  sherd_tensor_shape(y)[2] == classes && sherd_tensor_dtype(y) == SHERD_F32);
        }
    CHECK(sherd_world_memory(world).live_bytes - bytes < 4096);
    CHECK_OK(sherd_world_check(world));
}

static void refused(sherd_world *world, sherd_tensor *t, const char *text)
{
    CHECK(sherd_tensor_failed(t));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

/* With and without elements, plain and distributed. */
static void a_far_diagonal_has_no_room(sherd_world *world)
{
    static const int64_t offsets[] = {INT64_MAX, INT64_MIN, INT64_MIN + 1, (int64_t)1 << 61,
                                      -((int64_t)1 << 40)};
    const sherd_layout *l = NULL;
    char text[32];

    snprintf(text, sizeof text, "[0,3] on (x=%d)", sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&l, world, text, NULL));
    for (int i = 0; i < LEN(offsets); i++) {
        refused(world, sherd_diag_embed(sherd_constant_on(l, SHERD_F32, 0), offsets[i], 0, 1),
                "sherd_diag_embed: with offset");
        for (int64_t rows = 0; rows < 3; rows += 2) {
            sherd_tensor *a = sherd_constant(world, SHERD_F32, (int64_t[]){rows, 3}, 2, 0);
            refused(world, sherd_diag_embed(a, offsets[i], 0, 1), "sherd_diag_embed: with offset");
        }
    }
}

static void an_empty_dim_counts_as_one(sherd_world *world)
{
    const int64_t big = (int64_t)1 << 40, shape[] = {big, big, 0};
    const sherd_layout *l = NULL;
    char text[32];

    snprintf(text, sizeof text, "[1,1,0] on (x=%d)", sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&l, world, text, NULL));
    CHECK(sherd_tensor_failed(sherd_expand(sherd_constant_on(l, SHERD_F32, 0), shape, 3)));
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), "multiply to 2^62 or more (0 counts as 1)") != NULL);
}

static const check_test tests[] = {
    {TEST(whoever_refuses_the_call_is_named), {1}},
    {TEST(the_operands_are_those_of_the_call), {1, 2}},
    {TEST(a_plain_operand_is_refused_by_the_call), {1, 2}},
    {TEST(a_call_without_memory_is_that_of_the_function), {2, 3}},
    {TEST(no_index_needs_no_classes), {1, 2, 3}},
    {TEST(a_far_diagonal_has_no_room), {1, 2}},
    {TEST(an_empty_dim_counts_as_one), {1, 2}},
};
CHECK_MAIN(tests)
