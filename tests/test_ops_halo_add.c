/* SPDX-License-Identifier: Apache-2.0 */
/* Halos that are added up at home: for any cuts, widths and borders the adjoint of a halo. */
#include "halos.h"

#include "sherd/autograd.h"
#include "sherd/ops.h"

static sherd_tensor *give(const scene *s, const sherd_box *box)
{
    int rank = sherd_world_rank(s->world);
    bool inside = sherd_layout_boxes(s->layout, rank) > 0;
    const int64_t nothing = 0, *shape = inside ? box->size : &nothing;
    int64_t n = inside ? count_of(box) : 0;
    double *data = calloc((size_t)n + 1, sizeof *data);

    for (int64_t k = 0; data && k < n; k++)
        data[k] = given(s, rank, k);
    sherd_tensor *t = sherd_from_data(s->world, SHERD_F64, shape, inside ? box->ndim : 1, data);
    free(data);
    return t;
}

/* The gradient of an element of a piece is that of the element that it was added to: its weight,
 * which is its index. */
static int64_t wrong_gradients(const scene *s, const sherd_box *box, sherd_tensor *t)
{
    sherd_tensor *g = sherd_grad(t);
    const double *data = g ? sherd_tensor_read(g) : NULL;
    int64_t wrong = 0;

    for (int64_t k = 0, n = t->count; k < n; k++) {
        int64_t at = element(box, sherd_layout_shape(s->layout), &s->o, k);
        wrong += !data || data[k] != (at == NOWHERE ? 0 : (double)at);
    }
    return wrong;
}

static void check_one(const scene *s)
{
    const int64_t *shape = sherd_layout_shape(s->layout);
    double *sum = sums_of(s);
    sherd_box box;

    CHECK_OK(sherd_halo_box(&box, s->layout, sherd_world_rank(s->world), &s->o));
    sherd_tensor *t = sherd_require_grad(give(s, &box), true);
    sherd_tensor *y = sherd_halo_add(t, s->layout, &s->o);
    CHECK(sherd_tensor_layout(y) == s->layout);
    sherd_box own = sherd_tensor_box(y);
    const double *data = sherd_tensor_read(y);
    int64_t wrong = 0;
    for (int64_t k = 0; sum && k < y->count; k++)
        wrong += !data || data[k] != sum[global_of(&own, shape, k)];
    CHECK_EQ(wrong, 0);
    sherd_backward(sherd_sum(sherd_mul(y, indices_on(s->layout, SHERD_F64))));
    CHECK_EQ(wrong_gradients(s, &box, t), 0);
    free(sum);
}

static void what_is_given_comes_home(sherd_world *world)
{
    scene s = {.world = world, .dice = 11};
    char text[3][16];
    int ranks = sherd_world_ranks(world);

    snprintf(text[0], sizeof text[0], "%d", ranks);
    snprintf(text[1], sizeof text[1], "%dx2", ranks / 2);
    snprintf(text[2], sizeof text[2], "2x%d", ranks / 2);
    for (int i = 0; i < 60; i++) {
        const sherd_mesh *mesh = mesh_of(world, text[ranks % 2 == 0 ? i % 3 : 0]);
        sherd_scope_begin(world);
        draw(&s, mesh);
        check_one(&s);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "  %d: %s: %s\n", i, s.layout->text, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

/* Masses of particles near the ends of a ring of cells: each is in two cells, one of another rank. */
static void mass_is_kept(sherd_world *world)
{
    static const int64_t cells[1] = {10};
    const sherd_halo_options one = {.before = {{1, SHERD_BORDER_PERIODIC}},
                                    .after = {{1, SHERD_BORDER_PERIODIC}}};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, cells, "S(0)", NULL);
    sherd_box box;

    CHECK_OK(sherd_halo_box(&box, layout, sherd_world_rank(world), &one));
    double mass[12] = {0};
    for (int64_t k = 1; k + 1 < box.size[0]; k++) { /* of each own cell to all three around it */
        mass[k - 1] += 0.25;
        mass[k] += 0.5;
        mass[k + 1] += 0.25;
    }
    sherd_tensor *y =
        sherd_halo_add(sherd_from_data(world, SHERD_F64, box.size, 1, mass), layout, &one);
    const double *data = sherd_tensor_read(y);
    for (int64_t k = 0; k < y->count; k++)
        CHECK_NEAR(data ? data[k] : 0, 1, 0);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 10, 0);
    CHECK_OK(sherd_world_check(world));
}

static void memory_may_run_out(sherd_world *world)
{
    scene s = {.world = world, .dice = 3};
    sherd_status status = SHERD_ENOMEM;
    sherd_box box;

    draw(&s, line_of_ranks(world));
    CHECK_OK(sherd_halo_box(&box, s.layout, sherd_world_rank(world), &s.o));
    sherd_tensor *t = give(&s, &box);
    for (int64_t n = 1; status == SHERD_ENOMEM && n < 1000; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) ? 0 : n);
        sherd_halo_add(t, s.layout, &s.o);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        sherd_scope_end(world);
    }
    CHECK_OK(status);
}

static const check_test tests[] = {
    {TEST(what_is_given_comes_home), {1, 2, 3, 4, 8}},
    {TEST(mass_is_kept), {1, 2, 3, 5}},
    {TEST(memory_may_run_out), {1, 2}},
};
CHECK_MAIN(tests)
