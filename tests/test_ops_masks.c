/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What masks choose. Whatever the layouts, the chosen rows of the whole tensor are there in their
 * order, each rank has those of its shard, and gradients go back to where rows came from.
 */
#include "groups.h"

#include "sherd/comm.h"
#include "sherd/dry.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_masks.h"
#include "sherd/ops_reductions.h"

enum { MOST = 300 };

typedef struct scheme {
    int ndim, dims; /* of the tensor; of the mask */
    int64_t shape[4], n, width;
    bool is[MOST];
    int64_t place[MOST], count; /* of chosen rows, in order */
    sherd_tensor *plain, *x, *mask;
} scheme;

static int64_t product(const int64_t *shape, int first, int end)
{
    int64_t n = 1;

    for (int d = first; d < end; d++)
        n *= shape[d];
    return n;
}

static void draw_scheme(scene *s, const sherd_mesh *mesh, scheme *t)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_I64, SHERD_BF16};
    int often = roll(&s->dice, 4); /* none, some, most, all */

    t->ndim = 1 + roll(&s->dice, 3);
    t->dims = 1 + roll(&s->dice, t->ndim);
    for (int d = 0; d < t->ndim; d++)
        t->shape[d] = roll(&s->dice, 9) ? 1 + roll(&s->dice, 6) : 0;
    t->n = product(t->shape, 0, t->dims);
    t->width = product(t->shape, t->dims, t->ndim);
    t->count = 0;
    for (int64_t i = 0; i < t->n; i++) {
        t->is[i] = roll(&s->dice, 3) < often;
        if (t->is[i])
            t->place[t->count++] = i;
    }
    sherd_tensor *mask =
        sherd_mark_equal(sherd_from_data(s->world, SHERD_BOOL, t->shape, t->dims, t->is));
    t->mask = roll(&s->dice, 4) ? spread(s, mesh, mask) : mask;
    t->plain = numbers(s, dtypes[roll(&s->dice, 4)], t->ndim, t->shape, 200);
    t->x = spread(s, mesh, t->plain);
}

/* Row j of `got` is row place[j] of `from`; or the other way round. */
static bool are_rows(const scheme *t, sherd_tensor *got, sherd_tensor *from)
{
    sherd_tensor *whole = sherd_full(got);
    const void *a = sherd_tensor_read(whole), *b = sherd_tensor_read(from);
    bool good = CHECK(!sherd_tensor_failed(got)) && CHECK_EQ(whole->count, t->count * t->width) &&
                CHECK_EQ(got->ndim, t->ndim - t->dims + 1);

    for (int64_t i = 0; good && i < t->count * t->width; i++)
        good = CHECK_NEAR(
            number_at(a, got->dtype, i),
            number_at(b, from->dtype, t->place[i / t->width] * t->width + i % t->width), 0);
    return good;
}

/* `got` is `other` where the mask is false, and has the rows of `rows` where it is true. */
static bool are_put(const scheme *t, sherd_tensor *got, sherd_tensor *other, sherd_tensor *rows)
{
    sherd_tensor *whole = sherd_full(got);
    const void *a = sherd_tensor_read(whole), *b = other ? sherd_tensor_read(other) : NULL;
    const void *c = sherd_tensor_read(rows);
    bool good = CHECK(!sherd_tensor_failed(got)) && CHECK_EQ(whole->count, t->n * t->width);
    int64_t at = 0;

    for (int64_t i = 0; good && i < t->n * t->width; i++) {
        bool is = t->is[i / t->width];
        double want = is ? number_at(c, rows->dtype, at) : b ? number_at(b, other->dtype, i) : 0;
        good = CHECK_NEAR(number_at(a, got->dtype, i), want, 0);
        at += is;
    }
    return good;
}

static bool check_select(scene *s, const sherd_mesh *mesh, scheme *t)
{
    bool real = t->plain->dtype != SHERD_I64;
    sherd_tensor *x = sherd_require_grad(t->x, real);
    sherd_tensor *y = sherd_masked_select(x, t->mask);

    if (!are_rows(t, y, t->plain))
        return false;
    if (!real)
        return true;
    sherd_tensor *dy = numbers(s, y->dtype, y->ndim, y->shape, 200);
    sherd_backward_with(&y, (sherd_tensor *[]){spread(s, mesh, dy)}, 1, NULL);
    return are_put(t, sherd_grad(x), NULL, dy);
}

static bool check_scatter(scene *s, const sherd_mesh *mesh, scheme *t)
{
    bool real = t->plain->dtype != SHERD_I64;
    int64_t shape[4] = {t->count};

    memcpy(shape + 1, t->shape + t->dims, sizeof(int64_t) * (size_t)(t->ndim - t->dims));
    sherd_tensor *plain = numbers(s, t->plain->dtype, 1 + t->ndim - t->dims, shape, 200);
    sherd_tensor *rows = sherd_require_grad(spread(s, mesh, plain), real);
    sherd_tensor *x = sherd_require_grad(spread(s, mesh, t->plain), real);
    sherd_tensor *y = sherd_masked_scatter(x, t->mask, rows);

    if (!are_put(t, y, t->plain, plain) || !real)
        return !sherd_tensor_failed(y);
    sherd_tensor *dy = numbers(s, y->dtype, y->ndim, y->shape, 200);
    sherd_backward_with(&y, (sherd_tensor *[]){spread(s, mesh, dy)}, 1, NULL);
    sherd_tensor *none = sherd_sub(plain, plain);
    return are_rows(t, sherd_grad(rows), dy) && are_put(t, sherd_grad(x), dy, none);
}

static bool check_nonzero(const scheme *t)
{
    sherd_tensor *index = sherd_full(sherd_nonzero(t->mask));
    const int32_t *at = sherd_tensor_read(index);
    bool good = CHECK_EQ(index->count, t->count * t->dims);

    for (int64_t j = 0; good && j < t->count; j++) {
        int64_t flat = 0;
        for (int d = 0; d < t->dims; d++)
            flat = flat * t->shape[d] + at[j * t->dims + d];
        good = CHECK_EQ(flat, t->place[j]);
    }
    return good;
}

static void rows_of_every_layout_are_chosen(sherd_world *world)
{
    scene s = {.world = world, .dice = (uint64_t)sherd_world_ranks(world)};
    int rounds = getenv("SHERD_PROOF") ? 500 : 40;

    for (int i = 0; i < rounds; i++) {
        const sherd_mesh *mesh = small_mesh(world, i);
        scheme t;
        sherd_scope_begin(world);
        draw_scheme(&s, mesh, &t);
        bool good = check_nonzero(&t) && check_select(&s, mesh, &t) && check_scatter(&s, mesh, &t);
        if (!CHECK_OK(sherd_world_check(world)) || !good)
            fprintf(stderr, "round %d: %s\n  x %s mask %s\n", i, sherd_world_error(world),
                    sherd_tensor_text(t.x), sherd_tensor_text(t.mask));
        sherd_scope_end(world);
    }
}

/* What is sharded by rows stays where it is: only counts are exchanged. */
static void chosen_rows_do_not_move(sherd_world *world)
{
    const int64_t ranks = sherd_world_ranks(world), shape[] = {1000 * ranks, 64};
    sherd_generator dice = sherd_generator_named("rows");
    const sherd_layout *l = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
    sherd_tensor *x = sherd_random_on(l, SHERD_F32, sherd_uniform(0, 1), &dice);
    sherd_tensor *mask = sherd_lt_scalar(sherd_select(x, 1, 0), 0.25);

    sherd_comm_reset(world);
    sherd_tensor *y = sherd_masked_select(x, mask), *index = sherd_nonzero(mask);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(bytes_received(world), 2 * 8 * (ranks - 1));
    CHECK_EQ(sherd_tensor_size(y, 0), sherd_tensor_size(index, 0));
    CHECK_EQ(y->shape[0], index->shape[0]);
    CHECK(y->shape[0] > 200 * ranks && y->shape[0] < 300 * ranks);
}

static void numbers_of_any_dtype_are_found(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16, SHERD_I64,
                                         SHERD_I32, SHERD_U8,  SHERD_BOOL, SHERD_I8};
    const int64_t n[] = {4};

    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        sherd_tensor *a = sherd_from_data(world, SHERD_F32, n, 1, (float[]){0, 3, 0, 1});
        sherd_tensor *index = sherd_nonzero(sherd_cast(a, dtypes[i]));
        CHECK(CHECK_EQ(index->count, 2) && ((const int32_t *)sherd_tensor_read(index))[0] == 1 &&
              ((const int32_t *)sherd_tensor_read(index))[1] == 3);
    }
    sherd_tensor *odd = sherd_from_data(world, SHERD_F32, n, 1, (float[]){NAN, -0.F, INFINITY, 0});
    CHECK_EQ(sherd_nonzero(odd)->count, 2);
    CHECK_OK(sherd_world_check(world));
}

static void a_rank_outside_the_mesh_goes_along(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};
    const sherd_mesh *mesh = mesh_of(world, "2");

    for (int i = 0; i < 20; i++) {
        scheme t;
        sherd_scope_begin(world);
        draw_scheme(&s, mesh, &t);
        t.x = sherd_require_grad(t.x, t.plain->dtype != SHERD_I64);
        sherd_tensor *y = sherd_masked_select(t.x, t.mask);
        CHECK(!sherd_tensor_failed(y));
        if (t.plain->dtype != SHERD_I64)
            sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* The second derivative of sum(x[mask]^3) is 6 x where the mask is true. */
static void gradients_have_gradients(sherd_world *world)
{
    const int64_t shape[] = {6};
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 1 ? "1" : "2");
    const sherd_layout *l = layout_of(mesh, 1, shape, "S(0)", NULL);
    sherd_tensor *mask = sherd_distribute(
        sherd_mark_equal(sherd_from_data(world, SHERD_BOOL, shape, 1, (bool[]){1, 0, 0, 1, 1, 0})),
        l, -1);
    sherd_tensor *x = sherd_require_grad(sherd_constant_on(l, SHERD_F64, 2), true), *dx = NULL;
    sherd_tensor *y = sherd_masked_select(x, mask);
    sherd_tensor *sum = sherd_sum(sherd_mul(sherd_mul(y, y), y));

    sherd_gradients(&dx, &x, 1, &sum, 1, &(sherd_gradients_options){.create_graph = true});
    sherd_backward(sherd_sum(dx));
    sherd_tensor *all = sherd_full(sherd_grad(x));
    const double *d = sherd_tensor_read(all);
    for (int i = 0; d && i < 6; i++)
        CHECK_NEAR(d[i], i == 0 || i == 3 || i == 4 ? 12 : 0, 1e-12);
    CHECK_OK(sherd_world_check(world));
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void masks_that_do_not_fit_are_refused(sherd_world *world)
{
    const int64_t shape[] = {4, 3};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = indices_on(layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F64);
    sherd_tensor *mask = sherd_ge_scalar(sherd_select(x, 1, 0), 3);

    CHECK_EQ(sherd_masked_select(x, mask)->shape[0], 3);
    CHECK_OK(sherd_world_check(world));
    sherd_masked_select(x, sherd_select(sherd_ge_scalar(x, 3), 0, 0));
    refused(world, "sherd_masked_select: a mask has the first sizes of a, one or more: a is f64[4");
    sherd_masked_select(sherd_sum(x), sherd_any(mask, NULL, 0, false));
    refused(world, "sherd_masked_select: a mask has the first sizes of a, one or more");
    sherd_masked_select(x, sherd_cast(mask, SHERD_U8));
    refused(world, "sherd_count_masked: mask must be bool: cast it (sherd_cast)");
    sherd_masked_scatter(x, mask, x);
    refused(world, "sherd_masked_scatter: the mask chooses 3");
    sherd_masked_scatter(x, mask, sherd_select(sherd_masked_select(x, mask), 1, 0));
    refused(world, "sherd_masked_scatter: rows must be of the sizes of those they replace");
    sherd_masked_scatter(x, mask, sherd_cast(sherd_masked_select(x, mask), SHERD_F32));
    refused(world, "sherd_masked_scatter: dtypes differ: cast ");
    sherd_nonzero(sherd_sum(x));
    refused(world, "sherd_count_masked: a mask must have dims");
}

static void go(sherd_world *world)
{
    const int64_t shape[] = {200, 30};
    const sherd_layout *l = NULL;
    const sherd_mesh *mesh = NULL;

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&l, mesh, 2, shape, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *x = sherd_require_grad(sherd_constant_on(l, SHERD_F32, 1), true);
        sherd_tensor *mask = sherd_ge_scalar(sherd_select(x, 1, 3), 1);
        sherd_tensor *y = sherd_masked_scatter(x, mask, sherd_masked_select(x, mask));
        sherd_backward(sherd_sum(y));
        sherd_tensor_read(sherd_nonzero(mask));
    } else {
        sherd__raise(world, SHERD_ENOMEM, "no layouts");
    }
    sherd_scope_end(world);
}

static void lack_of_memory_is_said_by_all(sherd_world *world)
{
    fail_every_allocation(world, 1, go);
}

static const check_test tests[] = {
    {TEST(rows_of_every_layout_are_chosen), {1, 2, 3, 4, 8}},
    {TEST(chosen_rows_do_not_move), {1, 2, 4}},
    {TEST(numbers_of_any_dtype_are_found), {1, 2}},
    {TEST(a_rank_outside_the_mesh_goes_along), {3}},
    {TEST(gradients_have_gradients), {1, 2}},
    {TEST(masks_that_do_not_fit_are_refused), {1, 2}},
    {TEST(lack_of_memory_is_said_by_all), {2}},
};
CHECK_MAIN(tests)
