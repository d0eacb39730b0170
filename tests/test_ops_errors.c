/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How operators fail: one clear line that names function and operands, the same on all ranks, also
 * where only one rank is wrong; failed operands pass through; and any allocation may fail on one
 * rank.
 */
#include "ops_cases.h"
#include "sherd/ops_elements.h"

/* ---- wrong operands -------------------------------------------------------------------------- */

/* Zeroes: replicated over the world's ranks, or plain where there is no mesh. */
static sherd_tensor *zeroes(sherd_world *world, const sherd_mesh *mesh, sherd_dtype dtype, int ndim,
                            const int64_t *shape)
{
    const sherd_layout *l = NULL;

    if (!mesh)
        return sherd_constant(world, dtype, shape, ndim, 0);
    CHECK_OK(sherd__replicated(&l, mesh, ndim, shape));
    return sherd_constant_on(l, dtype, 0);
}

typedef sherd_tensor *(*wrong_call)(sherd_world *world, const sherd_mesh *mesh);

#define Z(...)   zeroes(world, mesh, SHERD_F32, SHAPE(__VA_ARGS__))
#define D(...)   zeroes(world, mesh, SHERD_F64, SHAPE(__VA_ARGS__))
#define IDS(...) zeroes(world, mesh, SHERD_I32, SHAPE(__VA_ARGS__))
#define WRONG(name, expression)                                           \
    static sherd_tensor *name(sherd_world *world, const sherd_mesh *mesh) \
    {                                                                     \
        return expression;                                                \
    }

WRONG(add_shapes, sherd_add(Z(4, 3), Z(4, 2)))
WRONG(add_dtypes, sherd_add(Z(4, 3), D(4, 3)))
WRONG(matmul_integers, sherd_matmul(IDS(4, 4), IDS(4, 4)))
WRONG(div_integers, sherd_div(IDS(4), IDS(4)))
WRONG(shift_integers, sherd_add_scalar(IDS(4), 0.5))
WRONG(where_condition, sherd_where(Z(4), Z(4), Z(4)))
WRONG(compare_shapes, sherd_lt(Z(4, 3), Z(4, 2)))
WRONG(add_null, sherd_add(Z(4), NULL))
WRONG(matmul_inner, sherd_matmul(Z(4, 3), Z(4, 3)))
WRONG(matmul_dims, sherd_matmul(sherd_sum(Z(4)), Z(4, 3)))
WRONG(matmul_batches, sherd_matmul(Z(2, 4, 3), Z(3, 3, 4)))
WRONG(linear_inner, sherd_linear(Z(4, 3), Z(3, 4), NULL))
WRONG(linear_bias, sherd_linear(Z(4, 3), Z(5, 3), Z(3)))
WRONG(norm_weight, sherd_layer_norm(Z(4, 3), Z(4), Z(3), 1e-5))
WRONG(norm_scalar, sherd_layer_norm(sherd_sum(Z(4, 3)), NULL, NULL, 1e-5))
WRONG(embedding_dtype, sherd_embedding(Z(4, 3), Z(2)))
WRONG(embedding_table, sherd_embedding(Z(4, 3, 2), IDS(2)))
WRONG(embedding_range, sherd_embedding(Z(0, 3), IDS(2, 2)))
WRONG(attention_dims, sherd_attention(Z(2, 4), Z(2, 4), Z(2, 4), NULL))
WRONG(attention_heads, sherd_attention(Z(2, 3, 4, 2), Z(2, 3, 3, 2), Z(2, 3, 3, 2), NULL))
WRONG(attention_causal, sherd_attention(Z(2, 3, 4, 2), Z(2, 5, 4, 2), Z(2, 5, 4, 2),
                                        &(sherd_attention_options){.causal = true}))
WRONG(loss_shapes, sherd_cross_entropy(Z(4, 3), IDS(3)))
WRONG(loss_targets, sherd_cross_entropy(Z(4, 3), Z(4)))
WRONG(loss_range, sherd_cross_entropy(Z(4, 0), IDS(4)))
WRONG(dropout_p, sherd_dropout(Z(4, 3), 1, &(sherd_generator){0}))
WRONG(dropout_generator, sherd_dropout(Z(4, 3), 0.5, NULL))
WRONG(transpose_dims, sherd_transpose(Z(4, 3), 1, 2))
WRONG(no_layout, sherd_redistribute(Z(3), NULL, NULL))
WRONG(view_shape, sherd_view(Z(4, 3), (int64_t[]){5}, 1))

typedef struct wrong_case {
    wrong_call run;
    const char *text; /* after the rank, plain; "%s" stands for the mesh */
} wrong_case;

static const wrong_case wrong_cases[] = {
    {add_shapes, "sherd_add: shapes do not broadcast: a is f32[4,3]%s, b is f32[4,2]%s"},
    {add_dtypes,
     "sherd_add: dtypes differ: cast a to f64 (sherd_cast): a is f32[4,3]%s, b is f64[4,3]%s"},
    {matmul_integers, "sherd_matmul: it computes f32, f64, bf16 and f16 only: cast first "
                      "(sherd_cast): a is i32[4,4]%s, "
                      "b is i32[4,4]%s"},
    {div_integers, "sherd_div: it computes f32, f64, bf16 and f16 only: cast first (sherd_cast): a "
                   "is i32[4]%s, b is "
                   "i32[4]%s"},
    {shift_integers, "sherd_add_scalar: 0.5 is no i32: a is i32[4]%s"},
    {where_condition,
     "sherd_where: condition must be bool: cast it (sherd_cast): condition is f32[4]%s, "
     "a is f32[4]%s, b is f32[4]%s"},
    {compare_shapes, "sherd_lt: shapes do not broadcast: a is f32[4,3]%s, b is f32[4,2]%s"},
    {add_null, "sherd_add: an operand is NULL: a is f32[4]%s, b is NULL"},
    {matmul_inner,
     "sherd_matmul: dim 1 of a is 3, dim 0 of b is 4: they must be equal: a is f32[4,3]%s, b is "
     "f32[4,3]%s"},
    {matmul_dims, "sherd_matmul: both must have a dim: a is f32[]%s, b is f32[4,3]%s"},
    {matmul_batches, "sherd_matmul: shapes do not broadcast: a is "
                     "f32[2,4,3]%s, b is f32[3,3,4]%s"},
    {linear_inner,
     "sherd_linear: dim 1 of x is 3, dim 1 of weight is 4: they must be equal: x is f32[4,3]%s, "
     "weight is f32[3,4]%s"},
    {linear_bias,
     "sherd_linear: dim 0 of weight is 5, dim 0 of bias is 3: they must be equal: x is f32[4,3]%s, "
     "weight is f32[5,3]%s, bias is f32[3]%s"},
    {norm_weight, "sherd_layer_norm: dim 1 of x is 3, dim 0 of weight is 4: they must be equal: x "
                  "is f32[4,3]%s, "
                  "weight is f32[4]%s, bias is f32[3]%s"},
    {norm_scalar, "sherd_layer_norm: x must have at least 1 dim: x is f32[]%s"},
    {embedding_dtype, "sherd_embedding: ids must be i32: cast it (sherd_cast): weight is "
                      "f32[4,3]%s, ids is f32[2]%s"},
    {embedding_table, "sherd_embedding: weight must have 2 dims: weight is "
                      "f32[4,3,2]%s, ids is i32[2]%s"},
    {embedding_range,
     "sherd_embedding: ids[0,0] = 0 is outside of [0,0): weight is f32[0,3]%s, ids is i32[2,2]%s"},
    {attention_dims,
     "sherd_attention: q, k and v must have three to seven dims [...,positions,heads,width], and "
     "as many: q is f32[2,4]%s, k is f32[2,4]%s, v is f32[2,4]%s"},
    {attention_heads, "sherd_attention: dim 2 of q is 4, dim 2 of k is 3: they must be equal: q is "
                      "f32[2,3,4,2]%s, k is f32[2,3,3,2]%s, v is f32[2,3,3,2]%s"},
    {attention_causal, "sherd_attention: causal attention needs as many queries as keys: q is "
                       "f32[2,3,4,2]%s, k is f32[2,5,4,2]%s, v is f32[2,5,4,2]%s"},
    {loss_shapes, "sherd_cross_entropy: dim 0 of logits is 4, dim 0 of targets is 3: they must be "
                  "equal: logits is f32[4,3]%s, targets is i32[3]%s"},
    {loss_targets, "sherd_cross_entropy: targets must be i32: cast it (sherd_cast): logits is "
                   "f32[4,3]%s, targets is f32[4]%s"},
    {loss_range, "sherd_cross_entropy: targets[0] = 0 is outside of [0,0): logits is f32[4,0]%s, "
                 "targets is i32[4]%s"},
    {dropout_p, "sherd_dropout: p = 1 is outside of [0,1): a is f32[4,3]%s"},
    {dropout_generator, "sherd_dropout: no generator: a is f32[4,3]%s"},
    {transpose_dims, "sherd_transpose: no dims 1 and 2: a is f32[4,3]%s"},
    {no_layout, "sherd_redistribute: to is NULL"},
    {view_shape, "sherd_view: the new shape has 5 elements, not 12: a is f32[4,3]%s"},
};

static const sherd_mesh *line(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

/* Put the mesh's text in every place of the pattern. */
static const char *expected(char *out, size_t room, const char *pattern, const sherd_mesh *mesh)
{
    char where[32] = "";

    if (mesh)
        snprintf(where, sizeof where, " on (%s)", sherd_mesh_text(mesh));
    snprintf(out, room, pattern, where, where, where);
    return out;
}

/* "rank 2: text", whichever rank it was. */
static void check_text(sherd_world *world, const char *text)
{
    const char *error = sherd_world_error(world), *at = strstr(error, ": ");

    CHECK(strncmp(error, "rank ", 5) == 0 && !strchr(error, '\n'));
    CHECK_TEXT(at ? at + 2 : error, text);
}

static void wrong_operands_get_one_clear_line(sherd_world *world)
{
    const sherd_mesh *meshes[] = {NULL, line(world)};
    char text[SHERD_ERROR_BYTES];

    for (int m = 0; m < 2; m++)
        for (int i = 0; i < LEN(wrong_cases); i++) {
            sherd_scope_begin(world);
            CHECK(sherd_tensor_failed(wrong_cases[i].run(world, meshes[m])));
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            check_text(world, expected(text, sizeof text, wrong_cases[i].text, meshes[m]));
            sherd_scope_end(world);
        }
}

/* The others pass operands that are right, and go on to wait for the wrong one. */
static void one_wrong_rank_is_everybodys_error(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    int last = sherd_world_ranks(world) - 1;
    char text[SHERD_ERROR_BYTES];

    for (int i = 0; i < LEN(wrong_cases); i++) {
        sherd_scope_begin(world);
        if (sherd_world_rank(world) == last)
            CHECK(sherd_tensor_failed(wrong_cases[i].run(world, mesh)));
        const sherd_layout *split = NULL;
        CHECK_OK(sherd_layout_parse_placements(&split, mesh, SHAPE(7), "S(0)", NULL));
        sherd_tensor *whole = sherd_full(sherd_constant_on(split, SHERD_F32, 1));
        CHECK(sherd_tensor_failed(whole) || sherd_world_rank(world) != last);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        check_text(world, expected(text, sizeof text, wrong_cases[i].text, mesh));
        sherd_scope_end(world);
    }
}

/* Indices are looked at many at a time. */
static void one_wrong_id_among_many_is_named(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *rows = NULL;
    int64_t ranks = sherd_world_ranks(world);
    static const int32_t wrong[] = {-1, 9, INT32_MAX};

    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, SHAPE(1300 * ranks), "S(0)", NULL));
    for (int i = 0; i < LEN(wrong); i++) {
        const int at[] = {511, 700, 1299};
        sherd_tensor *ids = sherd_constant_on(rows, SHERD_I32, 8);
        if (sherd_world_rank(world) == ranks - 1)
            ((int32_t *)sherd_tensor_write(ids))[at[i]] = wrong[i];
        sherd_full(sherd_embedding(sherd_constant(world, SHERD_F32, (int64_t[]){9, 4}, 2, 1), ids));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        char text[64];
        snprintf(text, sizeof text, "ids[%d] = %d is outside of [0,9)",
                 (int)(1300 * (ranks - 1)) + at[i], wrong[i]);
        CHECK(strstr(sherd_world_error(world), text) != NULL);
    }
}

/* An id that only one rank holds is out of range; its global position is named. */
static void wrong_ids_are_named_by_their_position(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    const sherd_layout *rows = NULL, *table = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, SHAPE(2 * ranks, 3), "S(0)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&table, mesh, SHAPE(9, 4), "S(0)", NULL));
    sherd_tensor *ids = sherd_constant_on(rows, SHERD_I32, 8);
    if (sherd_world_rank(world) == ranks - 1)
        ((int32_t *)sherd_tensor_write(ids))[4] = 9;
    sherd_tensor *y = sherd_full(sherd_embedding(sherd_constant_on(table, SHERD_F32, 1), ids));
    CHECK(sherd_tensor_failed(y) || sherd_world_rank(world) != ranks - 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    char text[64];
    snprintf(text, sizeof text, "ids[%d,1] = 9 is outside of [0,9)", (int)(2 * ranks - 1));
    CHECK(strstr(sherd_world_error(world), text) != NULL);
}

static void a_varying_tensor_is_no_replica(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    float x[3] = {0};
    sherd_tensor *mine = sherd_from_data(world, SHERD_F32, (int64_t[]){3}, 1, x);

    CHECK(sherd_tensor_failed(sherd_add(zeroes(world, mesh, SHERD_F32, SHAPE(2, 3)), mine)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_add: the plain tensor f32[3]") != NULL);
    CHECK(!sherd_tensor_failed(
        sherd_add(zeroes(world, mesh, SHERD_F32, SHAPE(2, 3)), sherd_mark_equal(mine))));
    CHECK_OK(sherd_world_check(world));
}

static void two_meshes_do_not_mix(sherd_world *world)
{
    const sherd_mesh *x = line(world), *y = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&y, world, 1, &ranks, (const char *[]){"y"}, NULL));
    CHECK(sherd_tensor_failed(
        sherd_add(zeroes(world, x, SHERD_F32, SHAPE(3)), zeroes(world, y, SHERD_F32, SHAPE(3)))));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_add: operands lie on two meshes") != NULL);
}

/* ---- failed operands ------------------------------------------------------------------------- */

static void failed_operands_pass_through(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    for (int i = 0; i < LEN(cases); i++)
        for (int bad = 0; bad < cases[i].operands; bad++) {
            sherd_tensor *in[MOST_IN];
            sherd_scope_begin(world);
            place_all(mesh, &cases[i], 0, in);
            in[bad] = sherd_view(in[bad], (int64_t[]){-5}, 1);
            CHECK(sherd_tensor_failed(in[bad]));
            if (!CHECK(sherd_tensor_failed(cases[i].run(in))))
                fprintf(stderr, "  in %s\n", cases[i].name);
            CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
            CHECK(strstr(sherd_world_error(world), "sherd_view: ") != NULL);
            sherd_scope_end(world);
        }
}

/* ---- lack of memory -------------------------------------------------------------------------- */

/* A parameter that wants a gradient. */
static sherd_tensor *parameter(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                               const char *placements)
{
    const sherd_layout *l = NULL;

    if (sherd_layout_parse_placements(&l, mesh, ndim, shape, placements, NULL) != SHERD_OK) {
        sherd_world *world = sherd__space_world(mesh->space);
        return sherd__fail_diag(world, true);
    }
    return sherd_require_grad(sherd_constant_on(l, SHERD_F32, 0.125), true);
}

/* One layer of each kind, forward and backward, with moves that nobody asked for. New shapes each
 * time: nothing is cached. */
static void train(const sherd_mesh *mesh, int64_t n)
{
    sherd_world *world = sherd__space_world(mesh->space);
    sherd_generator g = sherd_generator_named("g");
    sherd_tensor *ids = sherd_constant(world, SHERD_I32, (int64_t[]){2, n}, 2, 1);

    sherd_tensor *table = parameter(mesh, SHAPE(5, 8), "S(0)"),
                 *norm = parameter(mesh, SHAPE(8), "R");
    sherd_tensor *up = parameter(mesh, SHAPE(12, 8), "S(0)"),
                 *rise = parameter(mesh, SHAPE(12), "S(0)");
    sherd_tensor *down = parameter(mesh, SHAPE(8, 12), "S(1)"),
                 *fall = parameter(mesh, SHAPE(8), "R");
    sherd_tensor *out = parameter(mesh, SHAPE(5, 8), "S(0)");

    sherd_tensor *x = sherd_embedding(table, ids);
    sherd_tensor *h = sherd_layer_norm(x, norm, norm, 1e-5);
    h = sherd_gelu(sherd_linear(h, up, rise));
    h = sherd_view(h, (int64_t[]){2, -1, 6, 2}, 4);
    h = sherd_view(sherd_attention(h, h, h, NULL), (int64_t[]){2, n, 12}, 3);
    x = sherd_add(x, sherd_dropout(sherd_linear(h, down, fall), 0.25, &g));
    sherd_tensor *loss = sherd_cross_entropy(sherd_linear(x, out, NULL), ids);
    sherd_backward(sherd_mean(sherd_mul(loss, loss)));
    sherd_grad(table);
}

/* Whether the rank that counts has seen fewer than n allocations; the same answer everywhere. */
static bool is_over(const sherd_mesh *mesh, bool mine)
{
    const sherd_layout *l = NULL;

    CHECK_OK(sherd_layout_parse_placements(&l, mesh, 0, NULL, "P(sum)", NULL));
    sherd_tensor *t = sherd__new_on(l, SHERD_F64);
    *(double *)sherd__fresh(t) = mine;
    return sherd_item(t) > 0;
}

static void any_allocation_may_fail(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1, over = false;
    int failures = 0;

    for (int64_t n = 1; !over; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, failing ? n : 0);
        train(mesh, 3 + n % 50);
        bool mine = failing && sherd_world_allocations(world) < n;
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        sherd_status status = sherd_world_check(world);
        if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
            say_error(world);
        if (status) {
            failures++;
            CHECK(strstr(sherd_world_error(world), "out of memory") != NULL);
        }
        CHECK_EQ(sherd_saved_bytes(world), 0);
        sherd_scope_begin(world);
        over = is_over(mesh, mine);
        sherd_scope_end(world);
    }
    CHECK(failures > 100);
    CHECK_OK(sherd_world_check(world));
}

static bool take_too_much(sherd_call *call)
{
    CHECK(sherd_call_scratch(call, INT64_MAX) == NULL);
    return false;
}

static const sherd_op greedy_op = {.name = "greedy",
                                   .operand = {{"x", 0}},
                                   .result = {{"y", 0}},
                                   .rule = "...->...",
                                   .forward = take_too_much};

/* Also where it is found far below the function that was called. */
static void who_has_no_memory_is_named(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    sherd_tensor *x = zeroes(world, mesh, SHERD_F32, SHAPE(1 << 22, 1));
    sherd_tensor *y = zeroes(world, mesh, SHERD_F32, SHAPE(1, 1 << 22));

    sherd_matmul(x, y);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    if (!CHECK(strstr(sherd_world_error(world), ": sherd_matmul: out of memory: a tensor of ")))
        say_error(world);
    sherd_apply(&greedy_op, &x, 1, NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
    if (!CHECK(strstr(sherd_world_error(world),
                      ": greedy: sherd_call_scratch: 9223372036854775807 bytes are 2^62 or more: "
                      "x is f32[4194304,1]")))
        say_error(world);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *numbers(sherd_world *world, int32_t first, int32_t second)
{
    return sherd_mark_equal(
        sherd_from_data(world, SHERD_I32, (int64_t[]){2, 1}, 2, (const int32_t[]){first, second}));
}

/* Writes in place that are not operators: rows and blocks of a cache. Both are sharded in another
 * dim than the cache, so all must move. */
static void write_somewhere(int which, sherd_tensor *pool, sherd_tensor *rows)
{
    sherd_world *world = sherd_tensor_world(pool);
    sherd_tensor *one = numbers(world, 0, 1), *other = numbers(world, 1, 3);

    if (which == 0)
        (void)sherd_copy_rows(pool, sherd_squeeze(one, 1), sherd_squeeze(other, 1));
    else if (which == 1)
        (void)sherd_write_rows(sherd_narrow(pool, 0, 0, 2), one, rows);
    else if (which == 2)
        (void)sherd_write_paged(pool, other, one, rows);
    else
        (void)sherd_tensor_read(sherd_transpose(pool, 0, 1));
}

static void who_has_no_memory_to_write_is_named(sherd_world *world)
{
    static const char *const name[] = {"sherd_copy_rows", "sherd_write_rows", "sherd_write_paged",
                                       "sherd_tensor_read"};
    const sherd_mesh *mesh = line(world);
    bool failing = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_tensor *pool, *rows;

    pool = sherd_distribute_as(sherd_constant(world, SHERD_F32, (int64_t[]){4, 2, 6}, 3, 0), mesh,
                               "S(2)", -1);
    rows = sherd_distribute_as(sherd_constant(world, SHERD_F32, (int64_t[]){2, 1, 6}, 3, 1), mesh,
                               "S(0)", -1);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < LEN(name); i++)
        for (int64_t n = 1, over = 0; !over; n++) {
            sherd_scope_begin(world);
            sherd_world_fail_allocation(world, failing ? n : 0);
            write_somewhere(i, pool, rows);
            bool mine = failing && sherd_world_allocations(world) < n;
            sherd_world_fail_allocation(world, 0);
            sherd_scope_end(world);
            sherd_status status = sherd_world_check(world);
            sherd_tensor_revive_all(world);
            if (status && !CHECK(strstr(sherd_world_error(world), ": sherd_") != NULL))
                fprintf(stderr, "  %s: %s\n", name[i], sherd_world_error(world));
            sherd_scope_begin(world);
            over = is_over(mesh, mine);
            sherd_scope_end(world);
            CHECK_OK(sherd_world_check(world)); /* before an alarm may end what others wait for */
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(wrong_operands_get_one_clear_line), {1, 2, 3}},
    {TEST(one_wrong_rank_is_everybodys_error), {2, 3}},
    {TEST(one_wrong_id_among_many_is_named), {1, 2, 4}},
    {TEST(wrong_ids_are_named_by_their_position), {1, 2, 4}},
    {TEST(a_varying_tensor_is_no_replica), {1, 2}},
    {TEST(two_meshes_do_not_mix), {2}},
    {TEST(failed_operands_pass_through), {1, 3}},
    {TEST(any_allocation_may_fail), {1, 2, 3}},
    {TEST(who_has_no_memory_is_named), {1, 2, 3}},
    {TEST(who_has_no_memory_to_write_is_named), {1, 2, 3}},
};
CHECK_MAIN(tests)
