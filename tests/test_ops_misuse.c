/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of tensors, moves and operators: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/autograd.h"
#include "sherd/ops.h"

/* What a case may need; `dim` is the layout's shape. */
typedef struct things {
    const sherd_mesh *mesh;
    const sherd_layout *rows, *whole; /* [4,4] */
    sherd_tensor *plain, *spread;     /* [4,4] */
    sherd_tensor *ids;                /* i32 [4], zeroes */
    sherd_tensor *heads;              /* [1,4,2,2] */
    sherd_tensor *failed;
} things;

static const int64_t square[] = {4, 4};

static things make(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), four = 4;
    const sherd_placement s = sherd_shard(0), r = sherd_replicate();
    const sherd_layout *heads = NULL;
    things t = {.mesh = NULL};

    CHECK_OK(sherd_mesh_create(&t.mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    CHECK_OK(sherd_layout_create(&t.rows, t.mesh, 2, square, &s, NULL));
    CHECK_OK(sherd_layout_create(&t.whole, t.mesh, 2, square, &r, NULL));
    CHECK_OK(sherd_layout_create(&heads, t.mesh, 4, (int64_t[]){1, 4, 2, 2}, &r, NULL));
    t.plain = sherd_constant(world, SHERD_F32, square, 2, 1);
    t.spread = sherd_constant_on(t.rows, SHERD_F32, 1);
    t.ids = sherd_constant(world, SHERD_I32, &four, 1, 0);
    t.heads = sherd_constant_on(heads, SHERD_F32, 1);
    /* A failure that has been told already: nothing is up when it is used. */
    t.failed = sherd_add(t.spread, NULL);
    CHECK(sherd_tensor_failed(t.failed));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    return t;
}

/* Gather a shard and look at a number of it. */
static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    things t = make(world);
    sherd_tensor *sum = sherd_redistribute(sherd_matmul(t.spread, t.plain), t.whole, NULL);
    const float *data = sherd_tensor_read(sum);
    CHECK(data && data[15] == 4);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

/* ---- what a tensor says of itself ------------------------------------------------------------ */

MISUSE(questions_to_no_tensor_have_an_answer)
{
    ANSWERS(sherd_tensor_world(NULL) == NULL && sherd_tensor_dtype(NULL) == SHERD_DTYPE_NONE);
    ANSWERS(sherd_tensor_ndim(NULL) == 0 && sherd_tensor_shape(NULL) == NULL);
    ANSWERS(sherd_tensor_count(NULL) == 0 && sherd_tensor_layout(NULL) == NULL);
    ANSWERS(sherd_tensor_box(NULL).ndim == 0 && sherd_tensor_failed(NULL));
    ANSWERS(strcmp(sherd_tensor_text(NULL), "") == 0);
    ANSWERS(sherd_tensor_read(NULL) == NULL && sherd_tensor_write(NULL) == NULL);
    ANSWERS(isnan(sherd_item(NULL)) && !sherd_requires_grad(NULL));
    ANSWERS(sherd_grad(NULL) == NULL && sherd_saved_bytes(NULL) == 0);
}

/* One rank may be the only one to have it: whatever it asks, the others are not told. */
MISUSE(questions_to_the_failed_tensor_have_an_answer)
{
    sherd_tensor *f = make(m->world).failed;
    const sherd_layout *none = sherd_tensor_layout(f), *out;
    int64_t at;

    ANSWERS(sherd_tensor_world(f) == m->world && sherd_tensor_dtype(f) == SHERD_DTYPE_NONE);
    ANSWERS(sherd_tensor_ndim(f) == 0 && sherd_tensor_count(f) == 0 && sherd_tensor_failed(f));
    ANSWERS(sherd_tensor_box(f).ndim == 0 && sherd_tensor_shape(f) != NULL && !none);
    ANSWERS(strcmp(sherd_tensor_text(f), "the failed tensor") == 0);
    ANSWERS(sherd_tensor_read(f) == NULL && sherd_tensor_write(f) == NULL);
    ANSWERS(sherd_layout_ndim(none) == 0 && sherd_layout_boxes(none, 0) == 0);
    ANSWERS(!sherd_mesh_coordinate(sherd_layout_mesh(none), 0, &at));
    ANSWERS(strcmp(sherd_layout_text(none), "") == 0);
    ANSWERS(!sherd_requires_grad(f) && sherd_grad(f) == f);
    ANSWERS(sherd_tensor_retain(f) == f && sherd_scope_pass(f) == f);
    ANSWERS(sherd_mark_equal(f) == f && sherd_require_grad(f, true) == f);
    ONLY_SAYS(SHERD_EINVAL, sherd_layout_with(&out, none, NULL, 0, sherd_replicate()));
    sherd_clear_grad(f);
    sherd_tensor_release(f);
    sherd_tensor_release(f);
}

MISUSE(a_text_stays_where_it_is)
{
    things t = make(m->world);
    const char *plain = sherd_tensor_text(t.plain), *spread = sherd_tensor_text(t.spread);

    for (int i = 0; i < 100; i++)
        CHECK(sherd_tensor_text(t.plain) == plain && sherd_tensor_text(t.spread) == spread);
    CHECK_TEXT(plain, "f32[4,4]");
    sherd_mark_equal(t.plain);
    sherd_distribute(t.plain, t.rows, -1);
    sherd_to_local(t.spread);
    CHECK(sherd_tensor_text(t.plain) == plain);
    CHECK_TEXT(sherd_tensor_text(t.plain), "f32[4,4]");
}

/* Sizes whose product has no number are no mistake where there is no element. */
MISUSE(a_tensor_without_elements_may_have_any_size)
{
    enum { FAR = 61 };
    const int64_t last[] = {(int64_t)1 << FAR, (int64_t)1 << FAR, 0};
    const int64_t first[] = {0, (int64_t)1 << FAR, (int64_t)1 << FAR};
    const int64_t *const shape[] = {last, first};
    sherd_generator g = sherd_generator_named(NULL), empty = sherd_generator_named("");

    CHECK(g.name == empty.name);
    for (int i = 0; i < 2; i++) {
        sherd_tensor *t = sherd_random(m->world, SHERD_F32, shape[i], 3, sherd_normal(0, 1), &g);
        CHECK(!sherd_tensor_failed(t) && sherd_tensor_count(t) == 0);
        CHECK(sherd_tensor_read(t) && sherd_tensor_write(t));
        CHECK(!sherd_tensor_failed(sherd_dropout(sherd_add(t, t), 0.5, &g)));
        CHECK(!sherd_tensor_failed(sherd_view(t, (int64_t[]){0, 5}, 2)));
        CHECK(!sherd_tensor_failed(sherd_cast(sherd_transpose(t, 0, 1), SHERD_BF16)));
        CHECK(!sherd_tensor_failed(sherd_relu(t)) && !sherd_tensor_failed(sherd_sum(t)));
        sherd_tensor *leaf = sherd_require_grad(t, true);
        sherd_backward(sherd_sum(sherd_mul(leaf, leaf)));
        CHECK(sherd_grad(leaf) && sherd_tensor_count(sherd_grad(leaf)) == 0);
    }
    CHECK_OK(sherd_world_check(m->world));
}

/* ---- what is nothing ------------------------------------------------------------------------- */

MISUSE(giving_up_nothing_does_nothing)
{
    ANSWERS(sherd_tensor_retain(NULL) == NULL && sherd_scope_pass(NULL) == NULL);
    ANSWERS(sherd_tensor_revive(NULL) == NULL);
    ANSWERS(sherd_tensor_revive_all(NULL) == 0);
    ANSWERS(!sherd_set_recording(NULL, true));
    ANSWERS(!sherd_set_gradient_sync(NULL, true));
    sherd_tensor_release(NULL);
    sherd_scope_begin(NULL);
    sherd_scope_end(NULL);
    sherd_clear_grad(NULL);
    sherd_backward(NULL);
    sherd_saved_hooks_push(NULL, NULL);
    sherd_saved_hooks_pop(NULL);
    sherd_saved_hooks_pop(m->world);
    sherd_redistribute_many(NULL, NULL, NULL, 0);
    sherd_redistribute_many(NULL, NULL, NULL, -1);
    sherd_redistribute_many(NULL, NULL, NULL, 2);
}

MISUSE(an_expression_of_nothing_is_nothing)
{
    sherd_generator g = sherd_generator_named("g");
    sherd_placement r = sherd_replicate();

    ANSWERS(!sherd_from_data(NULL, SHERD_F32, square, 2, square));
    ANSWERS(!sherd_constant(NULL, SHERD_F32, square, 2, 1));
    ANSWERS(!sherd_constant_on(NULL, SHERD_F32, 1));
    ANSWERS(!sherd_random(NULL, SHERD_F32, square, 2, sherd_uniform(0, 1), &g));
    ANSWERS(!sherd_random_on(NULL, SHERD_F32, sherd_uniform(0, 1), &g));
    ANSWERS(!sherd_constant_later(NULL, SHERD_F32, square, 2, 1));
    ANSWERS(!sherd_random_later(NULL, SHERD_F32, square, 2, sherd_uniform(0, 1), &g));
    ANSWERS(!sherd_from_local(NULL, NULL, &r, NULL) && !sherd_to_local(NULL));
    ANSWERS(!sherd_distribute(NULL, NULL, 0) && !sherd_full(NULL));
    ANSWERS(!sherd_to_local_with(NULL, NULL) && !sherd_full_with(NULL, NULL));
    ANSWERS(!sherd_redistribute(NULL, NULL, NULL) && !sherd_mark_equal(NULL));
    ANSWERS(!sherd_require_grad(NULL, true) && !sherd_grad(NULL));
    ANSWERS(!sherd_add(NULL, NULL) && !sherd_sub(NULL, NULL) && !sherd_mul(NULL, NULL));
    ANSWERS(!sherd_scale(NULL, 2) && !sherd_cast(NULL, SHERD_F64) && !sherd_relu(NULL));
    ANSWERS(!sherd_einsum("i", NULL, 1) && !sherd_einsum(NULL, NULL, 0));
    ANSWERS(!sherd_gelu(NULL) && !sherd_matmul(NULL, NULL) && !sherd_linear(NULL, NULL, NULL));
    ANSWERS(!sherd_sum(NULL) && !sherd_mean(NULL) && !sherd_view(NULL, square, 2));
    ANSWERS(!sherd_transpose(NULL, 0, 1) && !sherd_layer_norm(NULL, NULL, NULL, 1e-5));
    ANSWERS(!sherd_embedding(NULL, NULL) && !sherd_dropout(NULL, 0.5, NULL));
    ANSWERS(!sherd_attention(NULL, NULL, NULL, NULL) && !sherd_cross_entropy(NULL, NULL));
}

/* ---- making tensors -------------------------------------------------------------------------- */

MISUSE(a_tensor_is_made_of_good_numbers)
{
    things t = make(m->world);
    const int64_t negative[] = {4, -4}, huge[] = {(int64_t)1 << 40, (int64_t)1 << 40};
    const sherd_dtype none = (sherd_dtype)99;
    const float data[16] = {0};
    sherd_distribution d = sherd_normal(0, 1);
    sherd_generator g = sherd_generator_named("g");
    sherd_world *w = m->world;

    FAILS(SHERD_EINVAL, sherd_from_data(w, SHERD_F32, square, 2, NUL(data)));
    FAILS(SHERD_EINVAL, sherd_tensor_revive(BAD(t.failed, t.spread)));
    FAILS(SHERD_EINVAL, sherd_from_data(w, SHERD_F32, NUL(square), 2, data));
    FAILS(SHERD_EINVAL, sherd_from_data(w, SHERD_F32, BAD(negative, square), 2, data));
    FAILS(SHERD_EINVAL, sherd_from_data(w, BAD(none, SHERD_F32), square, 2, data));
    FAILS(SHERD_EINVAL, sherd_constant(w, SHERD_F32, NUL(square), 2, 1));
    FAILS(SHERD_EINVAL, sherd_constant_later(w, SHERD_F32, NUL(square), 2, 1));
    FAILS(SHERD_EINVAL, sherd_constant_later(w, BAD(SHERD_DTYPE_NONE, SHERD_F32), square, 2, 1));
    FAILS(SHERD_ELIMIT, sherd_constant_later(w, SHERD_F32, square, BAD(9, 2), 1));
    FAILS(SHERD_EINVAL, sherd_random_later(w, SHERD_F32, NUL(square), 2, sherd_normal(0, 1), &g));
    FAILS(SHERD_EINVAL, sherd_random_later(w, SHERD_F32, square, 2, sherd_normal(0, 1), NUL(&g)));
    FAILS(SHERD_EINVAL,
          sherd_random_later(w, BAD(SHERD_I32, SHERD_F32), square, 2, sherd_normal(0, 1), &g));
    FAILS(SHERD_EINVAL, sherd_constant(w, BAD(SHERD_DTYPE_NONE, SHERD_F32), square, 2, 1));
    FAILS(SHERD_EINVAL, sherd_constant(w, SHERD_F32, square, BAD(-1, 2), 1));
    FAILS(SHERD_ELIMIT, sherd_constant(w, SHERD_F32, square, BAD(9, 2), 1));
    FAILS(SHERD_ELIMIT, sherd_constant(w, SHERD_F32, BAD(huge, square), 2, 1));
    FAILS(SHERD_EINVAL, sherd_constant(w, SHERD_U8, square, 2, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_constant_on(t.rows, BAD(none, SHERD_F32), 1));
    FAILS(SHERD_EINVAL, sherd_constant_on(t.rows, SHERD_I32, BAD((double)NAN, 1)));
    FAILS(SHERD_EINVAL, sherd_random(w, SHERD_F32, NUL(square), 2, d, &g));
    FAILS(SHERD_EINVAL, sherd_random(w, BAD(none, SHERD_F32), square, 2, d, &g));
    FAILS(SHERD_EINVAL, sherd_random(w, SHERD_F32, square, 2, d, NUL(&g)));
    FAILS(SHERD_EINVAL, sherd_random_on(t.rows, BAD(SHERD_I32, SHERD_F32), d, &g));
    FAILS(SHERD_EINVAL, sherd_random_on(t.rows, SHERD_F32, d, NUL(&g)));
}

/* ---- moves ----------------------------------------------------------------------------------- */

MISUSE(pieces_need_a_mesh_and_placements)
{
    things t = make(m->world);
    const sherd_placement r = sherd_replicate(), far = sherd_shard(9);
    const sherd_placement kind = {.kind = (sherd_placement_kind)9};
    sherd_from_local_options mode = {.mode = BAD((sherd_from_local_mode)9, SHERD_FROM_CHUNK)};

    FAILS(SHERD_EINVAL, sherd_from_local(NUL(t.plain), t.mesh, &r, NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, NUL(t.mesh), &r, NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, t.mesh, NUL(&r), NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, NUL(t.mesh), NUL(&r), NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(NUL(t.plain), t.mesh, NUL(&r), NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, t.mesh, BAD(&far, &r), NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, t.mesh, BAD(&kind, &r), NULL));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, t.mesh, &r, &mode));
    FAILS(SHERD_EINVAL, sherd_from_local(BAD(t.spread, t.plain), t.mesh, &r, NULL));
    const sherd_placement other = sherd_shard(1), pending = sherd_partial(SHERD_SUM);
    FAILS(SHERD_EINVAL, sherd_to_local(BAD(t.plain, t.spread)));
    FAILS(SHERD_EINVAL, sherd_to_local_with(BAD(t.plain, t.spread), NULL));
    FAILS(SHERD_EINVAL, sherd_to_local_with(t.spread, BAD(&other, NULL)));
    FAILS(SHERD_EINVAL, sherd_to_local_with(t.spread, BAD(&pending, NULL)));
    FAILS(SHERD_EINVAL, sherd_full_with(t.spread, BAD(&other, &pending)));
    FAILS(SHERD_EINVAL, sherd_mark_equal(BAD(t.spread, t.plain)));
}

MISUSE(what_is_spread_needs_a_layout)
{
    things t = make(m->world);
    int far = BAD(sherd_world_ranks(m->world), 0);

    FAILS(SHERD_EINVAL, sherd_distribute(NUL(t.plain), t.rows, -1));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, NUL(t.rows), -1));
    FAILS(SHERD_EINVAL, sherd_distribute(NUL(t.plain), t.rows, 0));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, NUL(t.rows), 0));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, t.rows, far));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, t.rows, BAD(-2, 0)));
    FAILS(SHERD_EINVAL, sherd_distribute(BAD(t.spread, t.plain), t.rows, 0));
    FAILS(SHERD_EINVAL, sherd_redistribute(NUL(t.spread), t.whole, NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute(t.spread, NUL(t.whole), NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute(BAD(t.plain, t.spread), t.whole, NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute(t.spread, t.whole,
                                           &(sherd_redistribute_options){
                                               .forward_dtype = BAD((sherd_dtype)99, SHERD_F32)}));
    FAILS(SHERD_EINVAL, sherd_redistribute(t.spread, t.whole,
                                           &(sherd_redistribute_options){
                                               .backward_dtype = BAD((sherd_dtype)-1, SHERD_F32)}));
    sherd_plan_options flattened = {.flattened_count = BAD(1, 0)};
    FAILS(SHERD_EINVAL,
          sherd_redistribute(t.spread, t.whole, &(sherd_redistribute_options){.plan = &flattened}));
}

MISUSE(a_list_of_moves_is_moved_as_a_whole)
{
    things t = make(m->world);
    sherd_tensor *list[] = {t.spread, t.spread}, *holes[] = {t.spread, NULL}, *out[2];
    const sherd_layout *to[] = {t.whole, t.whole}, *nowhere[] = {NULL, t.whole};
    sherd_tensor *nothing[] = {NULL, NULL};
    const sherd_layout *none[] = {NULL, NULL};

    FAILS(SHERD_EINVAL, sherd_redistribute_many(NUL(out), list, to, 2));
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, NUL(list), to, 2));
    ANSWERS(sherd_tensor_failed(out[0]) && sherd_tensor_failed(out[1]) && out[1]);
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, list, NUL(to), 2));
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, BAD(holes, list), to, 2));
    ANSWERS(sherd_tensor_failed(out[0]) && sherd_tensor_failed(out[1]) && out[1]);
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, list, BAD(nowhere, to), 2));
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, BAD(nothing, list), to, 2));
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, list, BAD(none, to), 2));
    if (!m->alone)
        sherd_redistribute_many(out, nothing, none, 2);
    ANSWERS(m->alone || (!out[0] && !out[1]));
}

/* ---- operators ------------------------------------------------------------------------------- */

MISUSE(an_operator_needs_its_operands)
{
    things t = make(m->world);
    sherd_tensor *a = t.spread, *b = t.plain;

    FAILS(SHERD_EINVAL, sherd_add(NUL(a), b));
    FAILS(SHERD_EINVAL, sherd_add(a, NUL(b)));
    FAILS(SHERD_EINVAL, sherd_sub(NUL(a), b));
    FAILS(SHERD_EINVAL, sherd_sub(a, NUL(b)));
    FAILS(SHERD_EINVAL, sherd_mul(NUL(a), b));
    FAILS(SHERD_EINVAL, sherd_mul(a, NUL(b)));
    FAILS(SHERD_EINVAL, sherd_matmul(NUL(a), b));
    FAILS(SHERD_EINVAL, sherd_matmul(a, NUL(b)));
    FAILS(SHERD_EINVAL, sherd_linear(NUL(a), b, NULL));
    FAILS(SHERD_EINVAL, sherd_linear(a, NUL(b), NULL));
    FAILS(SHERD_EINVAL, sherd_embedding(NUL(a), t.ids));
    FAILS(SHERD_EINVAL, sherd_embedding(a, NUL(t.ids)));
    FAILS(SHERD_EINVAL, sherd_cross_entropy(NUL(a), t.ids));
    FAILS(SHERD_EINVAL, sherd_cross_entropy(a, NUL(t.ids)));
    FAILS(SHERD_EINVAL, sherd_attention(NUL(t.heads), t.heads, t.heads, NULL));
    FAILS(SHERD_EINVAL, sherd_attention(t.heads, NUL(t.heads), t.heads, NULL));
    FAILS(SHERD_EINVAL, sherd_attention(t.heads, t.heads, NUL(t.heads), NULL));
    FAILS(SHERD_OK, sherd_layer_norm(a, NULL, NULL, 1e-5));
}

MISUSE(an_operator_needs_numbers_that_fit)
{
    things t = make(m->world);
    sherd_tensor *a = t.spread;
    sherd_generator g = sherd_generator_named("g");
    const int64_t lowest[] = {INT64_MIN, -1};

    FAILS(SHERD_EINVAL, sherd_cast(a, BAD((sherd_dtype)99, SHERD_F64)));
    FAILS(SHERD_EINVAL, sherd_cast(a, BAD(SHERD_DTYPE_NONE, SHERD_F64)));
    FAILS(SHERD_EINVAL, sherd_view(a, NUL(square), 2));
    FAILS(SHERD_EINVAL, sherd_view(a, square, BAD(-1, 2)));
    FAILS(SHERD_EINVAL, sherd_view(a, square, BAD(9, 2)));
    FAILS(SHERD_EINVAL, sherd_view(a, BAD(lowest, square), 2));
    FAILS(SHERD_EINVAL, sherd_transpose(a, BAD(2, 0), 1));
    FAILS(SHERD_EINVAL, sherd_transpose(a, 0, BAD(-3, 1)));
    FAILS(SHERD_EINVAL, sherd_transpose(a, BAD(INT32_MIN, 0), BAD(INT32_MAX, 1)));
    FAILS(SHERD_EINVAL, sherd_dropout(a, 0.5, NUL(&g)));
    FAILS(SHERD_EINVAL, sherd_dropout(a, BAD(1.0, 0.5), &g));
    FAILS(SHERD_EINVAL, sherd_dropout(a, BAD((double)NAN, 0.5), &g));
    FAILS(SHERD_EINVAL, sherd_gelu(BAD(t.ids, a)));
    FAILS(SHERD_EINVAL, sherd_item(BAD(a, sherd_full(sherd_sum(a)))));
}

/* Where the failure was told long ago, a failed operand is still passed on. */
MISUSE(a_failed_operand_is_passed_on)
{
    things t = make(m->world);
    sherd_tensor *f = t.failed;
    sherd_generator g = sherd_generator_named("g");

    ANSWERS(sherd_tensor_failed(sherd_scale(f, 2)) && sherd_tensor_failed(sherd_relu(f)));
    ANSWERS(sherd_tensor_failed(sherd_gelu(f)) && sherd_tensor_failed(sherd_sum(f)));
    ANSWERS(sherd_tensor_failed(sherd_mean(f)) && sherd_tensor_failed(sherd_cast(f, SHERD_F64)));
    ANSWERS(sherd_tensor_failed(sherd_view(f, square, 2)));
    ANSWERS(sherd_tensor_failed(sherd_transpose(f, 0, 1)));
    ANSWERS(sherd_tensor_failed(sherd_dropout(f, 0.5, &g)));
    ANSWERS(sherd_tensor_failed(sherd_full(f)) && sherd_tensor_failed(sherd_to_local(f)));
    ANSWERS(isnan(sherd_item(f)));
    ANSWERS(sherd_tensor_failed(sherd_add(f, t.plain)));
    ANSWERS(sherd_tensor_failed(sherd_linear(t.plain, f, NULL)));
    ANSWERS(sherd_tensor_failed(sherd_linear(t.plain, t.plain, f)));
    ANSWERS(sherd_tensor_failed(sherd_layer_norm(f, NULL, NULL, 1e-5)));
    ANSWERS(sherd_tensor_failed(sherd_embedding(t.plain, f)));
    ANSWERS(sherd_tensor_failed(sherd_cross_entropy(f, t.ids)));
    ANSWERS(sherd_tensor_failed(sherd_attention(f, f, f, NULL)));
    /* Whether such a use is told anew is not this test's to say. */
    sherd_world_check(m->world);
}

/* ---- on paper -------------------------------------------------------------------------------- */

/* There is no memory, but a tensor without elements needs none. */
MISUSE(on_paper_there_are_tensors_without_elements)
{
    const int64_t none[] = {0, 4};
    sherd_world *paper = NULL;

    CHECK_OK(sherd_world_paper(&paper, 8));
    sherd_tensor *t = sherd_constant(paper, SHERD_F32, none, 2, 1);
    sherd_generator g = sherd_generator_named("g");
    ANSWERS(!sherd_tensor_failed(sherd_relu(sherd_add(t, t))));
    ANSWERS(!sherd_tensor_failed(sherd_dropout(sherd_layer_norm(t, NULL, NULL, 1e-5), 0.5, &g)));
    ANSWERS(!sherd_tensor_failed(sherd_cast(sherd_matmul(t, sherd_transpose(t, 0, 1)), SHERD_F16)));
    CHECK_OK(sherd_world_check(paper));
    ANSWERS(sherd_tensor_failed(sherd_sum(t)));
    CHECK_EQ(sherd_world_check(paper), SHERD_ENOTSUP);
    CHECK_OK(sherd_world_close(paper));
}

/* ---- another world --------------------------------------------------------------------------- */

MISUSE(two_worlds_do_not_mix)
{
    sherd_world *second = NULL;
    const sherd_placement r = sherd_replicate();
    sherd_tensor *out[1];

    CHECK_OK(sherd_world_alone(&second, NULL));
    things t = make(m->world), u = make(second);
    FAILS(SHERD_EINVAL, sherd_add(t.spread, BAD(u.plain, t.plain)));
    FAILS(SHERD_EINVAL, sherd_add(t.plain, BAD(u.spread, t.plain)));
    FAILS(SHERD_EINVAL, sherd_linear(t.spread, t.plain, BAD(u.spread, NULL)));
    FAILS(SHERD_EINVAL, sherd_from_local(t.plain, BAD(u.mesh, t.mesh), &r, NULL));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, BAD(u.rows, t.rows), -1));
    FAILS(SHERD_EINVAL, sherd_distribute(t.plain, BAD(u.rows, t.rows), 0));
    FAILS(SHERD_EINVAL, sherd_redistribute(t.spread, BAD(u.whole, t.whole), NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute_many(out, (sherd_tensor *[]){t.spread},
                                                &(const sherd_layout *){BAD(u.whole, t.whole)}, 1));
    FAILS(SHERD_EINVAL,
          sherd_redistribute_many((sherd_tensor *[2]){NULL},
                                  (sherd_tensor *[]){t.spread, BAD(u.spread, t.spread)},
                                  (const sherd_layout *[]){t.whole, t.whole}, 2));
    CHECK_OK(sherd_world_check(second));
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(questions_to_no_tensor_have_an_answer), {1, 2}},
    {TEST(questions_to_the_failed_tensor_have_an_answer), {1, 2}},
    {TEST(a_text_stays_where_it_is), {1, 2}},
    {TEST(a_tensor_without_elements_may_have_any_size), {1}},
    {TEST(giving_up_nothing_does_nothing), {1, 2}},
    {TEST(an_expression_of_nothing_is_nothing), {1, 2}},
    {TEST(a_tensor_is_made_of_good_numbers), {1, 2}},
    {TEST(pieces_need_a_mesh_and_placements), {1, 2, 3}},
    {TEST(what_is_spread_needs_a_layout), {1, 2, 3}},
    {TEST(a_list_of_moves_is_moved_as_a_whole), {1, 2, 3}},
    {TEST(an_operator_needs_its_operands), {1, 2}},
    {TEST(an_operator_needs_numbers_that_fit), {1, 2}},
    {TEST(a_failed_operand_is_passed_on), {1, 2}},
    {TEST(on_paper_there_are_tensors_without_elements), {1}},
    {TEST(two_worlds_do_not_mix), {1, 2}},
};
CHECK_MAIN(tests)
