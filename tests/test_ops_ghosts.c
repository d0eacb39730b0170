/* SPDX-License-Identifier: Apache-2.0 */
/* Ghost cells: one storage that is filled again and again, in place. */
#include "halos.h"
#include "secret.h"

#include "sherd/autocast.h"
#include "sherd/ops.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

/* Where the k-th element of a box lies among the cells of a larger one, row-major. */
static int64_t cell_of(const sherd_box *cells, const sherd_box *box, int64_t k)
{
    int64_t at = 0, factor = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at += (box->offset[d] - cells->offset[d] + k % box->size[d]) * factor;
        k /= box->size[d];
        factor *= cells->size[d];
    }
    return at;
}

static void set_piece(const scene *s, sherd_ghosts *g, double plus)
{
    sherd_box box = sherd_ghosts_box(g),
              own = sherd_layout_box(s->layout, sherd_world_rank(s->world), 0);
    double *data = sherd_ghosts_data(g);

    for (int64_t k = 0, count = data ? count_of(&box) : 0; k < count; k++)
        data[k] = -1;
    for (int64_t k = 0, count = data ? count_of(&own) : 0; k < count; k++)
        data[cell_of(&box, &own, k)] =
            plus + (double)global_of(&own, sherd_layout_shape(s->layout), k);
}

/* Of what this rank has of a box, where `beyond` is beyond a constant border. */
static int64_t wrong_in(const scene *s, const sherd_box *box, const double *data, double plus,
                        double beyond)
{
    int64_t wrong = 0;

    for (int64_t k = 0, count = data ? count_of(box) : 0; k < count; k++) {
        int64_t at = element(box, sherd_layout_shape(s->layout), &s->o, k);
        wrong += data[k] != (at == NOWHERE ? beyond : plus + (double)at);
    }
    return wrong;
}

/* What the program has written beyond a border of its own is there still. */
static int64_t wrong_cells(const scene *s, sherd_ghosts *g, double plus)
{
    sherd_box box = sherd_ghosts_box(g);

    return wrong_in(s, &box, sherd_ghosts_data(g), plus, s->o.own_border ? -1 : s->o.value);
}

/* Two fields, step after step, while peers still read what the step before has made. */
static void ghosts_are_filled_again_and_again(sherd_world *world)
{
    scene s = {.world = world, .dice = 5};
    char text[16];
    int rank = sherd_world_rank(world);

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    for (int i = 0; i < 40; i++) {
        const sherd_mesh *mesh = mesh_of(world, text);
        sherd_ghosts *g[2] = {NULL, NULL};
        sherd_scope_begin(world);
        draw(&s, mesh);
        s.o.own_border = i % 3 == 0;
        for (int k = 0; k < 2; k++)
            CHECK_OK(sherd_ghosts_create(&g[k], s.layout, SHERD_F64, &s.o));
        for (int step = 0; step < 6; step++) {
            for (int k = 0; k < 2; k++)
                set_piece(&s, g[k], step * 1000 + k);
            CHECK(step % 2 ? sherd_ghosts_fill(g, 2) : sherd_ghosts_begin_fill(g, 2));
            sherd_box box = sherd_ghosts_box(g[0]), own = sherd_layout_box(s.layout, rank, 0);
            const double *peek = sherd_ghosts_peek(g[0]);
            if (peek && count_of(&own))
                CHECK(peek[cell_of(&box, &own, 0)] ==
                      step * 1000 + (double)global_of(&own, sherd_layout_shape(s.layout), 0));
            for (int k = 0; k < 2; k++)
                CHECK_EQ(wrong_cells(&s, g[k], step * 1000 + k), 0);
        }
        sherd_tensor *t = sherd_ghosts_tensor(g[1]);
        CHECK(t->layout == s.layout);
        sherd_tensor *whole = sherd_full(t);
        const double *data = sherd_tensor_read(whole);
        for (int64_t k = 0; data && k < whole->count; k++)
            CHECK(data[k] == 5001 + (double)k);
        sherd_tensor *halo = sherd_halo(t, &s.o); /* of its own: all of it is defined */
        sherd_box box = sherd_ghosts_box(g[1]);
        if (sherd_tensor_count(halo))
            CHECK_EQ(wrong_in(&s, &box, sherd_tensor_read(halo), 5001, s.o.value), 0);
        for (int k = 0; k < 2; k++)
            sherd_ghosts_destroy(g[k]);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* Once every slot of the group's ring was used. */
static void filling_allocates_nothing(sherd_world *world)
{
    static const int64_t shape[2] = {8, 6};
    static const sherd_halo_options o = {.before[0] = {1, SHERD_BORDER_PERIODIC},
                                         .after[0] = {1, SHERD_BORDER_PERIODIC}};
    sherd_ghosts *g[2] = {NULL, NULL};
    int64_t before = 0;
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_layout *rows = layout_of(mesh_of(world, text), 2, shape, "S(0)", NULL);
    for (int k = 0; k < 2; k++)
        CHECK_OK(sherd_ghosts_create(&g[k], rows, SHERD_F64, &o));
    for (int step = 0; step < 200; step++) {
        if (step == 100)
            before = sherd_world_allocations(world);
        CHECK(step % 2 ? sherd_ghosts_fill(g, 2) : sherd_ghosts_begin_fill(g, 2));
        for (int k = 0; k < 2; k++)
            CHECK(sherd_ghosts_data(g[k]) != NULL);
    }
    CHECK_EQ(sherd_world_allocations(world), before);
    for (int k = 0; k < 2; k++)
        sherd_ghosts_destroy(g[k]);
    CHECK_OK(sherd_world_check(world));
}

/* Where there is nothing around the piece, the cells are the field's own: a 16-bit copy of them is of
 * what they held. */
static void a_copy_for_autocast_is_of_the_newest_values(sherd_world *world)
{
    static const int64_t shape[2] = {4, 4};
    static const sherd_halo_options around[] = {
        {.value = 0},
        {.after = {{1, SHERD_BORDER_NONE}}},
        {.before = {{1, SHERD_BORDER_NONE}}, .after = {{1, SHERD_BORDER_NONE}}}};
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *one = sherd_eye_on(layout_of(mesh, 2, shape, "R", NULL), SHERD_F32);

    for (int i = 0; i < LEN(around); i++) {
        sherd_ghosts *g = NULL;
        CHECK_OK(sherd_ghosts_create(&g, layout_of(mesh, 2, shape, "S(0)", NULL), SHERD_F32,
                                     &around[i]));
        sherd_tensor *t = sherd_ghosts_tensor(g);
        sherd_box box = sherd_ghosts_box(g);
        sherd_set_autocast(world, SHERD_BF16);
        for (int k = 1; k < 4; k++) {
            float *cells = sherd_ghosts_data(g);
            for (int64_t c = 0; cells && c < count_of(&box); c++)
                cells[c] = (float)k;
            CHECK_EQ(sherd_item(sherd_sum(sherd_matmul(t, one))), 16 * k);
        }
        sherd_set_autocast(world, SHERD_DTYPE_NONE);
        sherd_ghosts_destroy(g);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What is beyond no end need not be a number of the dtype: for fields as for sherd_halo. */
static void a_value_without_a_border_says_nothing(sherd_world *world)
{
    static const int64_t shape[1] = {7};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    sherd_halo_options o = {.before = {{1, SHERD_BORDER_PERIODIC}}, .value = 0.5};
    sherd_ghosts *g = NULL;

    CHECK(!sherd_tensor_failed(sherd_halo(indices_on(layout, SHERD_I32), &o)));
    CHECK_OK(sherd_ghosts_create(&g, layout, SHERD_I32, &o));
    sherd_ghosts_destroy(g);
    CHECK_OK(sherd_world_check(world));
    o.before[0].border = SHERD_BORDER_CONSTANT;
    CHECK_EQ(sherd_ghosts_create(&g, layout, SHERD_I32, &o), SHERD_EINVAL);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

/* Two fields of one layout; rank 0 takes the other one, or lists them in another order. */
static void another_field_is_found(sherd_world *world)
{
    static const int64_t shape[1] = {9};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    const sherd_halo_options o = {.before = {{1, SHERD_BORDER_PERIODIC}}};
    bool first = sherd_world_rank(world) == 0;
    sherd_ghosts *g[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_ghosts_create(&g[i], layout, SHERD_F64, &o));
    sherd_ghosts *turned[2] = {g[first], g[!first]};
    CHECK_OK(sherd_world_check(world));
    for (int way = 0; way < 3; way++) {
        if (way < 2)
            sherd_ghosts_fill(turned, way + 1);
        else
            sherd_fill(sherd_ghosts_tensor(turned[0]), 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        for (int i = 0; way == 2 && i < 2; i++)
            sherd_fill(sherd_ghosts_tensor(g[i]), 1);
        CHECK(sherd_ghosts_fill(g, 2));
        CHECK_OK(sherd_world_check(world));
    }
    for (int i = 0; i < 2; i++)
        sherd_ghosts_destroy(g[i]);
}

static void overwrite(void *field)
{
    sherd_fill(sherd_ghosts_tensor(field), 2);
}

/* A field is lost with its tensors, and there again with one that is written or revived. */
static void a_half_written_field_is_lost(sherd_world *world)
{
    static const int64_t shape[1] = {9};
    const sherd_layout *layout = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    const sherd_halo_options o = {.before = {{1, SHERD_BORDER_PERIODIC}}};
    sherd_ghosts *g = NULL;

    CHECK_OK(sherd_ghosts_create(&g, layout, SHERD_F64, &o));
    CHECK_OK(sherd_world_check(world));
    for (int way = 0; way < 2; way++) {
        fail_between(world, overwrite, g);
        CHECK(!sherd_ghosts_fill(&g, 1));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_ghosts_fill: f64[9") != NULL);
        sherd_sum(sherd_ghosts_tensor(g));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        if (way == 0)
            sherd_fill(sherd_ghosts_tensor(g), 3);
        else
            sherd_tensor_revive(sherd_ghosts_tensor(g));
        CHECK(sherd_ghosts_fill(&g, 1));
        double sum = sherd_item(sherd_sum(sherd_ghosts_tensor(g)));
        CHECK(way == 0 ? sum == 27 : sum >= 18 && sum < 27);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_ghosts_destroy(g);
}

/* Whatever is lacking memory, the line says for what. */
static void no_memory_has_a_name(sherd_world *world)
{
    static const int64_t shape[2] = {8, 4};
    const sherd_halo_options o = {.before = {{1, SHERD_BORDER_NONE}}};
    const sherd_layout *rows = layout_of(line_of_ranks(world), 2, shape, "S(0)", NULL);
    sherd_status status = SHERD_ENOMEM;

    for (int64_t n = 1; status == SHERD_ENOMEM && n < 1000; n++) {
        sherd_ghosts *g = NULL;
        sherd_world_fail_allocation(world, sherd_world_rank(world) ? 0 : n);
        (void)!sherd_ghosts_create(&g, rows, SHERD_F32, &o);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        if (status && !CHECK(strstr(sherd_world_error(world), "rank 0: sherd_") != NULL))
            printf("%s\n", sherd_world_error(world));
        sherd_ghosts_destroy(g);
    }
    CHECK_OK(status);
}

static const check_test tests[] = {
    {TEST(ghosts_are_filled_again_and_again), {1, 2, 3, 4, 8}},
    {TEST(filling_allocates_nothing), {1, 2, 4, 8}},
    {TEST(a_copy_for_autocast_is_of_the_newest_values), {1, 2, 3, 4, 8}},
    {TEST(a_value_without_a_border_says_nothing), {1, 2, 3}},
    {TEST(no_memory_has_a_name), {1, 2, 3}},
    {TEST(another_field_is_found), {2, 3, 4}},
    {TEST(a_half_written_field_is_lost), {2, 3}},
};
CHECK_MAIN(tests)
