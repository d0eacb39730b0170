/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of operators on shape and index: see misuse.h. And what their refusals say. */
#include <math.h>

#include "misuse.h"
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_layers.h"
#include "sherd/values.h"

static const int64_t square[] = {4, 4}, back[] = {-6, 0}, ones[] = {1, 1}, row[] = {4, 1};
static const int order[] = {1, 0}, twice[] = {1, 1}, three_dims[] = {0, 1, 0};

#define LIST(...) ((sherd_tensor *[]){__VA_ARGS__})

typedef struct things {
    sherd_tensor *plain, *spread; /* [4,4] */
    sherd_tensor *ids;            /* i32 [4] */
    sherd_tensor *places, *three; /* i32 [4,4] and [3,4] */
    sherd_tensor *failed;
} things;

static things make(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), four = 4;
    const sherd_placement s = sherd_shard(0);
    const sherd_layout *rows = NULL;
    const sherd_mesh *mesh = NULL;
    things t = {.plain = NULL};

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    CHECK_OK(sherd_layout_create(&rows, mesh, 2, square, &s, NULL));
    t.plain = sherd_constant(world, SHERD_F32, square, 2, 1);
    t.spread = sherd_constant_on(rows, SHERD_F32, 1);
    t.ids = sherd_constant(world, SHERD_I32, &four, 1, 0);
    t.places = sherd_constant_on(rows, SHERD_I32, 3);
    t.three = sherd_narrow(t.places, 0, 0, 3);
    CHECK_OK(
        sherd_world_check(world)); /* what is raised next must not stop a rank that is still here */
    t.failed = sherd_add(t.spread, NULL);
    CHECK(sherd_tensor_failed(t.failed));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    return t;
}

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    things t = make(world);
    sherd_tensor *y = sherd_full(sherd_cat(LIST(t.spread, t.plain), 2, 0));
    const float *data = sherd_tensor_read(y);
    CHECK(data && data[31] == 1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

/* ---- NULL and the failed tensor -------------------------------------------------------------- */

/* Of one operand: what is made of `a`. */
#define OF_ONE(a)                                                                                  \
    {                                                                                              \
        sherd_reshape(a, square, 2), sherd_flatten(a, 0, 1), sherd_unflatten(a, 0, square, 2),     \
            sherd_permute(a, order, 2), sherd_squeeze(a, 0), sherd_squeeze_all(a),                 \
            sherd_unsqueeze(a, 0), sherd_expand(a, square, 2), sherd_contiguous(a),                \
            sherd_clone(a), sherd_detach(a), sherd_slice(a, 0, 0, 1, 1), sherd_narrow(a, 0, 0, 1), \
            sherd_select(a, 0, 0), sherd_pad(a, ones, ones, 0), sherd_cat(LIST(a), 1, 0),          \
            sherd_stack(LIST(a), 1, 0), sherd_flip(a, order, 1), sherd_roll(a, 1, 0),              \
            sherd_zigzag(a, 0, 2), sherd_unzigzag(a, 0, 2), sherd_repeat(a, square, 2),            \
            sherd_tile(a, square, 2), sherd_index_select(a, 0, a), sherd_gather(a, 0, a),          \
            sherd_scatter(a, 0, a, a), sherd_scatter_fill(a, 0, a, 1),                             \
            sherd_scatter_add(a, 0, a, a), sherd_sort(a, 0, true, NULL),                           \
            sherd_scatter_reduce(a, 0, a, a, SHERD_MAX, true), sherd_topk(a, 1, 0, true, NULL),    \
            sherd_cumsum(a, 0), sherd_tril(a, 0), sherd_triu(a, 0), sherd_add_to(a, a),            \
            sherd_mul_by(a, a), sherd_copy_from(a, a), sherd_fill(a, 0),                           \
            sherd_write_rows(a, a, a), sherd_write_paged(a, a, a, a), sherd_scale_by(a, 2),        \
            sherd_copy_rows(a, a, a),                                                              \
    }

MISUSE(an_operator_on_nothing_is_nothing)
{
    sherd_tensor *out[2] = {NULL}, *const of_nothing[] = OF_ONE(NULL);

    for (int i = 0; i < LEN(of_nothing); i++)
        ANSWERS(of_nothing[i] == NULL);
    ANSWERS(!sherd_split(out, NULL, 0, square, 2) && !out[1]);
    ANSWERS(sherd_chunk(out, NULL, 0, 2) == 0 && !out[1]);
    ANSWERS(!sherd_cat(NULL, 2, 0) && !sherd_stack(NULL, 2, 0) && !sherd_cat(out, -1, 0));
}

MISUSE(a_failed_operand_is_passed_on)
{
    things t = make(m->world);
    sherd_tensor *out[2] = {NULL}, *const of_failed[] = OF_ONE(t.failed);

    for (int i = 0; i < LEN(of_failed); i++)
        ANSWERS(of_failed[i] && sherd_tensor_failed(of_failed[i]));
    ANSWERS(!sherd_split(out, t.failed, 0, square, 2) && out[1] && sherd_tensor_failed(out[1]));
    ANSWERS(sherd_chunk(out, t.failed, 0, 2) == 0 && out[1] && sherd_tensor_failed(out[1]));
    /* Whether such a use is told anew is not this test's to say. */
    sherd_world_check(m->world);
}

/* ---- numbers that do not fit ----------------------------------------------------------------- */

MISUSE(a_shape_must_fit)
{
    sherd_tensor *a = make(m->world).spread;

    FAILS(SHERD_EINVAL, sherd_reshape(a, NUL(square), 2));
    FAILS(SHERD_EINVAL, sherd_flatten(a, BAD(1, 0), BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_flatten(a, 0, BAD(2, 1)));
    FAILS(SHERD_EINVAL, sherd_unflatten(a, BAD(2, 0), row, 2));
    FAILS(SHERD_EINVAL, sherd_unflatten(a, 0, BAD(square, row), 2));
    FAILS(SHERD_EINVAL, sherd_unflatten(a, 0, NUL(row), 2));
    FAILS(SHERD_EINVAL, sherd_unflatten(a, 0, row, BAD(9, 2)));
    FAILS(SHERD_EINVAL, sherd_permute(a, BAD(twice, order), 2));
    FAILS(SHERD_EINVAL, sherd_permute(a, NUL(order), 2));
    FAILS(SHERD_EINVAL, sherd_permute(a, order, BAD(1, 2)));
    FAILS(SHERD_EINVAL, sherd_squeeze(a, BAD(2, 1)));
    FAILS(SHERD_EINVAL, sherd_squeeze(a, BAD(INT32_MAX, 1)));
    FAILS(SHERD_EINVAL, sherd_unsqueeze(a, BAD(-4, 1)));
    FAILS(SHERD_EINVAL, sherd_expand(a, BAD(ones, square), 2));
    FAILS(SHERD_EINVAL, sherd_expand(a, NUL(square), 2));
    FAILS(SHERD_EINVAL, sherd_expand(a, square, BAD(1, 2)));
    FAILS(SHERD_EINVAL, sherd_expand(a, square, BAD(9, 2)));
}

MISUSE(a_part_must_be_there)
{
    sherd_tensor *a = make(m->world).spread, *out[2];

    FAILS(SHERD_EINVAL, sherd_slice(a, BAD(2, 0), 0, 1, 1));
    FAILS(SHERD_EINVAL, sherd_slice(a, 0, 0, 1, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_slice(a, 0, 0, 1, BAD(INT64_MIN, 1)));
    FAILS(SHERD_EINVAL, sherd_narrow(a, 0, BAD(4, 3), 1));
    FAILS(SHERD_EINVAL, sherd_narrow(a, 0, BAD(-5, -1), 1));
    FAILS(SHERD_EINVAL, sherd_narrow(a, 0, 3, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_narrow(a, 0, BAD(INT64_MAX, 0), BAD(INT64_MAX, 1)));
    FAILS(SHERD_EINVAL, sherd_select(a, 0, BAD(4, -4)));
    FAILS(SHERD_EINVAL, sherd_select(a, BAD(-3, 0), 0));
    FAILS(SHERD_EINVAL, sherd_split(out, a, 0, BAD(square, ((const int64_t[]){1, 3})), 2));
    FAILS(SHERD_EINVAL, sherd_split(out, a, 0, NUL(((const int64_t[]){1, 3})), 2));
    FAILS(SHERD_EINVAL, sherd_split(NUL(out), a, 0, ((const int64_t[]){1, 3}), 2));
    FAILS(SHERD_EINVAL, sherd_chunk(out, a, 0, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_chunk(out, a, BAD(5, 0), 2));
    FAILS(SHERD_EINVAL, sherd_chunk(NUL(out), a, 0, 2));
}

MISUSE(what_is_joined_must_fit)
{
    things t = make(m->world);
    sherd_tensor *a = t.spread;
    const int64_t far[] = {INT64_MAX, 1};

    FAILS(SHERD_EINVAL, sherd_pad(a, NUL(ones), ones, 0));
    FAILS(SHERD_EINVAL, sherd_pad(a, ones, NUL(ones), 0));
    FAILS(SHERD_EINVAL, sherd_pad(a, BAD(back, ones), ones, 0));
    FAILS(SHERD_EINVAL, sherd_pad(a, BAD(far, ones), ones, 0));
    FAILS(SHERD_EINVAL, sherd_pad(t.ids, ones, ones, BAD(0.5, 1)));
    FAILS(SHERD_EINVAL, sherd_cat(LIST(a, NUL(a)), 2, 0));
    FAILS(SHERD_EINVAL, sherd_cat(LIST(a, a), 2, BAD(2, 0)));
    FAILS(SHERD_EINVAL, sherd_cat(LIST(a, BAD(t.ids, a)), 2, 0));
    FAILS(SHERD_EINVAL, sherd_stack(LIST(a, NUL(a)), 2, 0));
    FAILS(SHERD_EINVAL, sherd_stack(LIST(a, a), 2, BAD(-4, 0)));
    FAILS(SHERD_EINVAL, sherd_stack(LIST(a, BAD(sherd_narrow(a, 1, 0, 1), a)), 2, 0));
    FAILS(SHERD_EINVAL, sherd_flip(a, BAD(twice, order), 2));
    FAILS(SHERD_EINVAL, sherd_flip(a, NUL(order), 2));
    FAILS(SHERD_EINVAL, sherd_flip(a, three_dims, BAD(3, 2)));
    FAILS(SHERD_EINVAL, sherd_roll(a, 1, BAD(2, 0)));
    FAILS(SHERD_EINVAL, sherd_zigzag(a, BAD(2, 0), 2));
    FAILS(SHERD_EINVAL, sherd_zigzag(a, 0, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_unzigzag(a, BAD(2, 0), 2));
    FAILS(SHERD_EINVAL, sherd_unzigzag(a, 0, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_repeat(a, square, BAD(1, 2)));
    FAILS(SHERD_EINVAL, sherd_repeat(a, BAD(back, ones), 2));
    FAILS(SHERD_EINVAL, sherd_repeat(a, NUL(ones), 2));
    FAILS(SHERD_EINVAL, sherd_repeat(a, square, BAD(9, 2)));
    FAILS(SHERD_EINVAL, sherd_repeat(a, square, BAD(INT32_MIN, 2)));
    FAILS(SHERD_EINVAL, sherd_tile(a, BAD(back, ones), 2));
    FAILS(SHERD_EINVAL, sherd_tile(a, square, BAD(INT32_MIN, 2)));
}

MISUSE(an_index_must_be_one)
{
    things t = make(m->world);
    sherd_tensor *a = t.spread, *at = t.places;

    FAILS(SHERD_EINVAL, sherd_index_select(a, 0, NUL(t.ids)));
    FAILS(SHERD_EINVAL, sherd_index_select(a, 0, BAD(at, t.ids)));
    FAILS(SHERD_EINVAL, sherd_index_select(a, 0, BAD(t.plain, t.ids)));
    FAILS(SHERD_EINVAL, sherd_index_select(a, BAD(2, 0), t.ids));
    FAILS(SHERD_EINVAL, sherd_gather(a, 0, NUL(at)));
    FAILS(SHERD_EINVAL, sherd_gather(a, BAD(-3, 0), at));
    FAILS(SHERD_EINVAL, sherd_gather(a, 0, BAD(t.ids, at)));
    FAILS(SHERD_EINVAL, sherd_scatter(a, 0, NUL(at), a));
    FAILS(SHERD_EINVAL, sherd_scatter(a, 0, at, NUL(a)));
    FAILS(SHERD_EINVAL, sherd_scatter(a, BAD(2, 0), at, a));
    FAILS(SHERD_EINVAL, sherd_scatter(a, 1, BAD(t.three, at), a));
    FAILS(SHERD_EINVAL, sherd_scatter_fill(a, 0, NUL(at), 1));
    FAILS(SHERD_EINVAL, sherd_scatter_add(a, 0, at, NUL(a)));
    FAILS(SHERD_EINVAL, sherd_scatter_add(a, 0, at, BAD(t.places, a)));
    FAILS(SHERD_EINVAL, sherd_scatter_reduce(NUL(a), 0, at, a, SHERD_MAX, true));
    FAILS(SHERD_EINVAL, sherd_scatter_reduce(a, 0, NUL(at), a, SHERD_MAX, true));
    FAILS(SHERD_EINVAL, sherd_scatter_reduce(a, 0, at, NUL(a), SHERD_AVG, true));
    FAILS(SHERD_EINVAL, sherd_scatter_reduce(a, 0, at, BAD(t.places, a), SHERD_MIN, false));
    FAILS(SHERD_EINVAL, sherd_scatter_reduce(a, 0, BAD(a, at), a, SHERD_MIN, false));
    FAILS(SHERD_EINVAL,
          sherd_scatter_reduce(a, 0, at, a, BAD((sherd_reduce_op)9, SHERD_MIN), true));
}

MISUSE(a_whole_dim_must_be_there)
{
    things t = make(m->world);
    sherd_tensor *a = t.spread, *at;

    FAILS(SHERD_EINVAL, sherd_sort(a, BAD(2, 0), false, &at));
    FAILS(SHERD_EINVAL, sherd_topk(a, BAD(5, 4), 0, true, &at));
    FAILS(SHERD_EINVAL, sherd_topk(a, BAD(-1, 4), 0, true, &at));
    ANSWERS(sherd_tensor_failed(at) && at);
    FAILS(SHERD_EINVAL, sherd_topk(a, 1, BAD(-3, 0), true, NULL));
    FAILS(SHERD_EINVAL, sherd_cumsum(a, BAD(2, 0)));
    FAILS(SHERD_EINVAL, sherd_cumsum(BAD(sherd_cast(t.ids, SHERD_BOOL), t.ids), 0));
    FAILS(SHERD_EINVAL, sherd_tril(BAD(t.ids, a), 0));
    FAILS(SHERD_EINVAL, sherd_triu(BAD(t.ids, a), 0));
}

/* A new tensor for each line: where not all ranks have written one, all have lost it. */
MISUSE(what_is_written_must_fit)
{
    things t = make(m->world);
    const sherd_layout *rows = sherd_tensor_layout(t.spread);
    sherd_tensor *b = t.plain;

#define NEW(dtype) sherd_constant_on(rows, dtype, 1)
    FAILS(SHERD_EINVAL, sherd_add_to(NUL(NEW(SHERD_F32)), b));
    FAILS(SHERD_EINVAL, sherd_add_to(NEW(SHERD_F32), NUL(b)));
    FAILS(SHERD_EINVAL, sherd_mul_by(NEW(SHERD_F32), NUL(b)));
    FAILS(SHERD_EINVAL, sherd_mul_by(NEW(SHERD_F32), BAD(t.ids, b)));
    FAILS(SHERD_EINVAL, sherd_scale_by(NEW(SHERD_I32), BAD(0.5, 2)));
    FAILS(SHERD_EINVAL, sherd_copy_from(NEW(SHERD_F32), NUL(b)));
    FAILS(SHERD_EINVAL, sherd_copy_from(BAD(t.three, NEW(SHERD_F32)), b));
    FAILS(SHERD_EINVAL, sherd_copy_from(BAD(b, NEW(SHERD_F32)), t.spread));
    FAILS(SHERD_EINVAL, sherd_fill(NEW(SHERD_I32), BAD(0.5, 1)));
    sherd_tensor *index = sherd_constant(m->world, SHERD_I32, (int64_t[]){2, 1}, 2, 1);
    sherd_tensor *far = sherd_constant(m->world, SHERD_I32, (int64_t[]){2, 1}, 2, 9);
    sherd_tensor *lines = sherd_constant(m->world, SHERD_F32, (int64_t[]){2, 1}, 2, 1);
    sherd_tensor *a = sherd_constant(m->world, SHERD_F32, (int64_t[]){2, 3}, 2, 1);
    FAILS(SHERD_EINVAL, sherd_write_rows(a, BAD(far, index), lines));
    FAILS(SHERD_EINVAL, sherd_write_rows(NUL(a), index, lines));
    sherd_tensor *at = sherd_constant(m->world, SHERD_I32, (int64_t[]){2}, 1, 1);
    sherd_tensor *beyond = sherd_constant(m->world, SHERD_I32, (int64_t[]){2}, 1, 2);
    FAILS(SHERD_EINVAL, sherd_copy_rows(NUL(a), at, at));
    FAILS(SHERD_EINVAL, sherd_copy_rows(a, NUL(at), at));
    FAILS(SHERD_EINVAL, sherd_copy_rows(a, BAD(beyond, at), at));
    FAILS(SHERD_EINVAL, sherd_copy_rows(a, at, BAD(beyond, at)));
    FAILS(SHERD_EINVAL, sherd_copy_rows(a, BAD(index, at), at));
    FAILS(SHERD_EINVAL, sherd_copy_rows(a, at, BAD(lines, at)));
    FAILS(SHERD_EINVAL, sherd_write_rows(a, NUL(index), lines));
    FAILS(SHERD_EINVAL, sherd_write_rows(a, index, NUL(lines)));
    FAILS(SHERD_EINVAL, sherd_write_rows(a, BAD(lines, index), lines));
    FAILS(SHERD_EINVAL, sherd_write_rows(a, index, BAD(index, lines)));
    FAILS(SHERD_EINVAL, sherd_write_rows(a, index, BAD(t.three, lines)));
    FAILS(SHERD_EINVAL, sherd_write_rows(BAD(t.three, a), index, lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, BAD(far, index), lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, BAD(far, index), index, lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(NUL(a), index, index, lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, NUL(index), index, lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, NUL(index), lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, index, NUL(lines)));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, BAD(lines, index), index, lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, BAD(lines, index), lines));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, index, BAD(index, lines)));
    FAILS(SHERD_EINVAL, sherd_write_paged(a, index, index, BAD(t.three, lines)));
    FAILS(SHERD_EINVAL, sherd_write_paged(BAD(t.three, a), index, index, lines));
}

MISUSE(what_counts_is_made_of_good_numbers)
{
    const sherd_layout *two = sherd_tensor_layout(make(m->world).spread), *one = NULL;
    sherd_generator g = sherd_generator_named("g");
    sherd_world *w = m->world;

    CHECK_OK(sherd_layout_parse_placements(&one, sherd_layout_mesh(two), 1, square, "S(0)", NULL));
    ANSWERS(!sherd_arange(NULL, SHERD_F32, 0, 1, 1) && !sherd_arange_on(NULL, SHERD_F32, 0, 1));
    ANSWERS(!sherd_linspace(NULL, SHERD_F32, 0, 1, 2) && !sherd_eye(NULL, SHERD_F32, 1, 1));
    ANSWERS(!sherd_linspace_on(NULL, SHERD_F32, 0, 1) && !sherd_eye_on(NULL, SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_arange(w, BAD(SHERD_BOOL, SHERD_F32), 0, 1, 1));
    FAILS(SHERD_EINVAL, sherd_arange(w, BAD(SHERD_DTYPE_NONE, SHERD_F32), 0, 1, 1));
    FAILS(SHERD_EINVAL, sherd_arange(w, SHERD_F32, 0, 1, BAD(0, 1)));
    FAILS(SHERD_EINVAL, sherd_arange(w, SHERD_F32, BAD((double)NAN, 0), 1, 1));
    FAILS(SHERD_ELIMIT, sherd_arange(w, SHERD_F32, 0, BAD((double)INFINITY, 1), 1));
    FAILS(SHERD_EINVAL, sherd_arange_on(BAD(two, one), SHERD_F32, 0, 1));
    FAILS(SHERD_EINVAL, sherd_arange_on(one, SHERD_U8, BAD(-1, 0), 1));
    FAILS(SHERD_EINVAL, sherd_linspace(w, BAD(SHERD_I32, SHERD_F32), 0, 1, 2));
    FAILS(SHERD_EINVAL, sherd_linspace(w, SHERD_F32, 0, 1, BAD(-1, 2)));
    FAILS(SHERD_EINVAL, sherd_linspace_on(BAD(two, one), SHERD_F32, 0, 1));
    FAILS(SHERD_EINVAL, sherd_eye(w, SHERD_F32, BAD(-1, 2), 2));
    FAILS(SHERD_EINVAL, sherd_eye_on(BAD(one, two), SHERD_F32));
    FAILS(SHERD_EINVAL, sherd_eye_on(two, BAD((sherd_dtype)99, SHERD_F32)));
    FAILS(SHERD_EINVAL,
          sherd_random(w, SHERD_F32, square, 2, sherd_xavier_uniform(NUL(square), 2, 1), &g));
    FAILS(SHERD_EINVAL,
          sherd_random(w, SHERD_F32, square, 2, sherd_xavier_normal(square, BAD(1, 2), 1), &g));
    FAILS(SHERD_EINVAL,
          sherd_random(w, SHERD_F32, square, 2, sherd_kaiming_uniform(square, BAD(-1, 2), 1), &g));
    FAILS(SHERD_EINVAL,
          sherd_random_on(two, SHERD_F32, sherd_kaiming_normal(NUL(square), 2, 1), &g));
}

/* ---- what refusals say ----------------------------------------------------------------------- */

typedef struct refusal {
    sherd_tensor *(*run)(sherd_tensor *a, sherd_tensor *ids);
    const char *text;
} refusal;

#define WRONG(name, expression)                                   \
    static sherd_tensor *name(sherd_tensor *a, sherd_tensor *ids) \
    {                                                             \
        (void)a, (void)ids;                                       \
        return expression;                                        \
    }

WRONG(slice_dim, sherd_slice(a, 2, 0, 1, 1))
WRONG(slice_step, sherd_slice(a, 0, 0, 1, -1))
WRONG(narrow_long, sherd_narrow(a, 0, 2, 3))
WRONG(narrow_less, sherd_narrow(a, 0, 2, -2))
WRONG(narrow_before, sherd_narrow(a, 0, -5, 2))
WRONG(narrow_huge, sherd_narrow(a, 0, INT64_MAX, INT64_MAX))
WRONG(select_far, sherd_select(a, 1, 4))
WRONG(expand_other, sherd_expand(a, (const int64_t[]){3, 4}, 2))
WRONG(permute_twice, sherd_permute(a, twice, 2))
WRONG(cat_dims, sherd_cat(LIST(a, sherd_narrow(a, 1, 0, 1)), 2, 0))
WRONG(cat_dtypes, sherd_cat(LIST(sherd_flatten(a, 0, 1), ids), 2, 0))
WRONG(unflatten_sizes, sherd_unflatten(a, 1, (const int64_t[]){3, -1}, 2))
WRONG(pad_value, sherd_pad(ids, (const int64_t[]){1}, (const int64_t[]){0}, 0.5))

WRONG(select_dims, sherd_index_select(a, 0, sherd_cast(a, SHERD_I32)))
WRONG(topk_less, sherd_topk(a, -1, 1, true, NULL))
WRONG(topk_many, sherd_topk(a, 5, 1, true, NULL))
WRONG(tril_row, sherd_tril(ids, 0))

static const refusal refusals[] = {
    {select_dims, "sherd_index_select: index must have 1 dim: a is f32[4,4], index is i32[4,4]"},
    {topk_many, "sherd_topk: 5 of the 4 elements of dim 1: a is f32[4,4]"},
    {topk_less, "sherd_topk: -1 of the 4 elements of dim 1: a is f32[4,4]"},
    {tril_row, "sherd_tril: a must have at least 2 dims: a is i32[4]"},
    {slice_dim, "sherd_slice: no dim 2: a is f32[4,4]"},
    {slice_step, "sherd_slice: a step of -1: it must be 1 or more: a is f32[4,4]"},
    {narrow_long, "sherd_narrow: 3 indices from 2 on do not fit in dim 0 of size 4: a is f32[4,4]"},
    {narrow_less,
     "sherd_narrow: -2 indices from 2 on do not fit in dim 0 of size 4: a is f32[4,4]"},
    {narrow_before,
     "sherd_narrow: 2 indices from -5 on do not fit in dim 0 of size 4: a is f32[4,4]"},
    {narrow_huge,
     "sherd_narrow: 9223372036854775807 indices from 9223372036854775807 on do not fit in "
     "dim 0 of size 4: a is f32[4,4]"},
    {select_far, "sherd_select: index 4 is outside of dim 1 of size 4: a is f32[4,4]"},
    {expand_other, "sherd_expand: dim 0 has size 4, it can not become 3: a is f32[4,4]"},
    {permute_twice, "sherd_permute: the order does not name each dim once: a is f32[4,4]"},
    {cat_dims,
     "sherd_cat: dim 1 of t is 4, dim 1 of t is 1: they must be equal: t is f32[4,4], t is "
     "f32[4,1]"},
    {cat_dtypes, "sherd_cat: dtypes differ: cast t to f32 (sherd_cast): t is f32[16], t is i32[4]"},
    {unflatten_sizes,
     "sherd_unflatten: the sizes do not multiply to 4, the size of dim 1: a is f32[4,4]"},
    {pad_value, "sherd_pad: 0.5 is no i32: a is i32[4]"},
};

static void a_refusal_says_what_is_wrong(sherd_world *world)
{
    things t = make(world);

    for (int i = 0; i < LEN(refusals); i++) {
        char want[200];
        snprintf(want, sizeof want, "rank 0: %s", refusals[i].text);
        CHECK(sherd_tensor_failed(refusals[i].run(t.plain, t.ids)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_TEXT(sherd_world_error(world), want);
    }
}

static const check_test tests[] = {
    {TEST(an_operator_on_nothing_is_nothing), {1, 2}},
    {TEST(a_failed_operand_is_passed_on), {1, 2}},
    {TEST(a_shape_must_fit), {1, 2}},
    {TEST(a_part_must_be_there), {1, 2, 3}},
    {TEST(what_is_joined_must_fit), {1, 2, 3}},
    {TEST(an_index_must_be_one), {1, 2, 3}},
    {TEST(a_whole_dim_must_be_there), {1, 2, 3}},
    {TEST(what_is_written_must_fit), {1, 2, 3}},
    {TEST(what_counts_is_made_of_good_numbers), {1, 2}},
    {TEST(a_refusal_says_what_is_wrong), {1}},
};
CHECK_MAIN(tests)
