/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of halos and ghost cells: see misuse.h. */
#include "misuse.h"
#include "sherd/halo.h"
#include "tensor/tensor.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

typedef struct things {
    const sherd_layout *rows, *sum;
    sherd_tensor *x, *other;
} things;

static things make(sherd_world *world)
{
    const sherd_mesh *mesh = NULL, *second = NULL;
    static const int64_t shape[] = {6, 4};
    things t = {.rows = NULL};
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    snprintf(text, sizeof text, "y=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&second, world, text));
    const sherd_layout *there = NULL;
    CHECK_OK(sherd_layout_parse_placements(&t.rows, mesh, 2, shape, "S(0)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&t.sum, mesh, 2, shape, "P(sum)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&there, second, 2, shape, "S(0)", NULL));
    t.x = sherd_constant_on(t.rows, SHERD_F32, 1);
    t.other = sherd_constant_on(there, SHERD_F32, 1);
    CHECK_OK(sherd_world_check(world));
    return t;
}

static const sherd_halo_options good = {.before[0] = {1, SHERD_BORDER_NONE}};

/* What no tensor of 6 by 4 has. */
static const sherd_halo_options bad[] = {
    {.before[0] = {-1, SHERD_BORDER_NONE}},   {.after[1] = {1, (sherd_border)SHERD_BORDERS}},
    {.after[1] = {1, (sherd_border)-1}},      {.before[2] = {1, SHERD_BORDER_NONE}},
    {.before[0] = {6, SHERD_BORDER_REFLECT}}, {.before[0] = {7, SHERD_BORDER_SYMMETRIC}},
    {.after[1] = {4, SHERD_BORDER_REFLECT}},  {.after[0] = {INT64_MAX, SHERD_BORDER_CONSTANT}},
};

/* The error names the function; its status is the check's too. */
static void create(sherd_ghosts **out, const sherd_layout *layout, sherd_dtype dtype,
                   const sherd_halo_options *options)
{
    if (sherd_ghosts_create(out, layout, dtype, options) && out)
        CHECK(*out == NULL);
}

MISUSE(a_halo_that_cannot_be_is_refused)
{
    sherd_box box;
    const sherd_plan *plan;
    sherd_ghosts *ghosts;

    for (int i = 0; i < LEN(bad); i++) {
        things t = make(m->world);
        FAILS(SHERD_EINVAL, sherd_halo(t.x, BAD(&bad[i], &good)));
        REFUSES(SHERD_EINVAL, sherd_halo_box(&box, t.rows, 0, BAD(&bad[i], &good)));
        REFUSES(SHERD_EINVAL, sherd_halo_plan(&plan, t.rows, SHERD_F32, BAD(&bad[i], &good)));
        FAILS(SHERD_EINVAL, create(&ghosts, t.rows, SHERD_F32, BAD(&bad[i], &good)));
        sherd_ghosts_destroy(ghosts);
    }
}

/* Both sides are told, and what is no number by its name. */
static void what_differs_in_halos_is_told(sherd_world *world)
{
    bool other = sherd_world_rank(world) == 1;
    const sherd_halo_options wide = {.before[0] = {other ? 2 : 1, SHERD_BORDER_REPLICATE}};
    const sherd_halo_options ends = {
        .before[0] = {1, other ? SHERD_BORDER_REFLECT : SHERD_BORDER_REPLICATE}};
    const sherd_halo_options mirror = {.before[0] = {9, SHERD_BORDER_REFLECT}};
    things t = make(world);

    sherd_halo(t.x, &wide);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world),
                 "windows 1+0 replicate,0+0 of [6(x),4] on (x=2) on rank 0"));
    CHECK(strstr(sherd_world_error(world),
                 "windows 2+0 replicate,0+0 of [6(x),4] on (x=2) on rank 1"));
    t = make(world);
    sherd_halo(t.x, &ends);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(
        strstr(sherd_world_error(world), "windows 1+0 reflect,0+0 of [6(x),4] on (x=2) on rank 1"));
    t = make(world);
    sherd_halo(t.x, &mirror);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "before[0] of width 9 and border REFLECT on ") != NULL);
}

MISUSE(a_halo_needs_a_tensor_and_its_widths)
{
    things t = make(m->world);
    sherd_tensor *out[2], *both[] = {t.x, BAD(t.other, t.x)}, *half[] = {t.x, NUL(t.x)};
    sherd_halo_options half_one = {.before[0] = {1, SHERD_BORDER_CONSTANT}, .value = 0.5};

    ONLY_SAYS(NULL, sherd_halo(NULL, &good));
    ANSWERS(sherd_tensor_count(sherd_halo(t.x, NULL)) == sherd_tensor_count(sherd_to_local(t.x)));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_halo_many(NUL(out), half, 1, &good));
    t = make(m->world);
    half[0] = t.x;
    half[1] = NUL(t.x);
    FAILS(SHERD_EINVAL, sherd_halo_many(out, half, 2, &good));
    t = make(m->world);
    both[0] = t.x;
    both[1] = BAD(t.other, t.x);
    FAILS(SHERD_EINVAL, sherd_halo_many(out, both, 2, &good));
    t = make(m->world);
    FAILS(SHERD_EINVAL, sherd_halo(sherd_constant_on(t.rows, SHERD_I32, 1), BAD(&half_one, &good)));
    sherd_halo_many(out, both, 0, &good);
    CHECK_OK(sherd_world_check(m->world));
}

/* A piece with its halo, of this rank's size. */
static sherd_tensor *piece_of(sherd_world *world, const things *t, sherd_dtype dtype)
{
    sherd_box box;

    CHECK_OK(sherd_halo_box(&box, t->rows, sherd_world_rank(world), &good));
    return sherd_constant(world, dtype, box.size, 2, 1);
}

MISUSE(what_is_added_up_is_a_piece)
{
    things t = make(m->world);
    sherd_tensor *own = piece_of(m->world, &t, SHERD_F32);

    ONLY_SAYS(NULL, sherd_halo_add(NULL, NULL, &good));
    FAILS(SHERD_EINVAL, sherd_halo_add(NUL(own), t.rows, &good));
    t = make(m->world);
    own = piece_of(m->world, &t, SHERD_F32);
    FAILS(SHERD_EINVAL, sherd_halo_add(own, NUL(t.rows), &good));
    t = make(m->world);
    own = piece_of(m->world, &t, SHERD_F32);
    FAILS(SHERD_EINVAL, sherd_halo_add(BAD(t.x, own), t.rows, &good));
    t = make(m->world);
    own = piece_of(m->world, &t, SHERD_F32);
    sherd_tensor *odd = sherd_constant(m->world, SHERD_F32, (int64_t[]){1, 1}, 2, 1);
    FAILS(SHERD_EINVAL, sherd_halo_add(BAD(odd, own), t.rows, &good));
    t = make(m->world);
    own = piece_of(m->world, &t, SHERD_F32);
    FAILS(SHERD_EINVAL, sherd_halo_add(own, BAD(t.sum, t.rows), &good));
    t = make(m->world);
    own = piece_of(m->world, &t, SHERD_F32);
    sherd_tensor *bools = piece_of(m->world, &t, SHERD_BOOL);
    FAILS(SHERD_EINVAL, sherd_halo_add(BAD(bools, own), t.rows, &good));
}

MISUSE(what_a_halo_would_be_needs_a_layout)
{
    things t = make(m->world);
    sherd_box box;
    const sherd_plan *plan;

    ONLY_SAYS(SHERD_EINVAL, sherd_halo_box(NULL, t.rows, 0, &good));
    ONLY_SAYS(SHERD_EINVAL, sherd_halo_box(&box, NULL, 0, &good));
    ANSWERS(sherd_halo_box(&box, t.rows, 0, NULL) == SHERD_OK &&
            box.size[0] == sherd_layout_box(t.rows, 0, 0).size[0]);
    ANSWERS(sherd_halo_plan(&plan, t.rows, SHERD_F32, NULL) == SHERD_OK && plan);
    ANSWERS(sherd_halo_box(&box, t.rows, 1000, &good) == SHERD_OK && box.size[0] == 0);
    ANSWERS(sherd_halo_box(&box, t.rows, -1, &good) == SHERD_OK && box.size[0] == 0);
    ONLY_SAYS(SHERD_EINVAL, sherd_halo_plan(NULL, t.rows, SHERD_F32, &good));
    ONLY_SAYS(SHERD_EINVAL, sherd_halo_plan(&plan, NULL, SHERD_F32, &good));
    REFUSES(SHERD_EINVAL, sherd_halo_plan(&plan, t.rows, SHERD_DTYPE_NONE, &good));
    REFUSES(SHERD_EINVAL, sherd_halo_plan(&plan, t.sum, SHERD_F32, &good));
}

MISUSE(ghosts_need_a_layout_of_elements)
{
    things t = make(m->world);
    sherd_ghosts *g = NULL, *none[1] = {NULL};
    sherd_halo_options half_one = {.before[0] = {1, SHERD_BORDER_CONSTANT}, .value = 0.5};

    ONLY_SAYS(SHERD_EINVAL, sherd_ghosts_create(&g, NULL, SHERD_F32, &good));
    FAILS(SHERD_EINVAL, create(NUL(&g), t.rows, SHERD_F32, &good));
    sherd_ghosts_destroy(g);
    t = make(m->world);
    ANSWERS(sherd_ghosts_create(&g, t.rows, SHERD_F32, NULL) == SHERD_OK &&
            sherd_ghosts_box(g).size[0] ==
                sherd_layout_box(t.rows, sherd_world_rank(m->world), 0).size[0]);
    sherd_ghosts_destroy(g);
    t = make(m->world);
    FAILS(SHERD_EINVAL, create(&g, t.rows, BAD(SHERD_DTYPE_NONE, SHERD_F32), &good));
    sherd_ghosts_destroy(g);
    t = make(m->world);
    FAILS(SHERD_EINVAL, create(&g, BAD(t.sum, t.rows), SHERD_F32, &good));
    sherd_ghosts_destroy(g);
    t = make(m->world);
    FAILS(SHERD_EINVAL, create(&g, t.rows, SHERD_I32, BAD(&half_one, &good)));
    sherd_ghosts_destroy(g);
    ANSWERS(!sherd_ghosts_fill(none, 1) && !sherd_ghosts_begin_fill(none, 1));
    ANSWERS(!sherd_ghosts_fill(NULL, 1) && sherd_ghosts_fill(NULL, 0));
    ANSWERS(!sherd_ghosts_data(NULL) && !sherd_ghosts_peek(NULL) && !sherd_ghosts_tensor(NULL));
    ANSWERS(sherd_ghosts_box(NULL).ndim == 0);
    sherd_ghosts_destroy(NULL);
}

MISUSE(fields_of_two_meshes_are_two_calls)
{
    things t = make(m->world);
    sherd_ghosts *g[3] = {NULL, NULL, NULL};

    CHECK_OK(sherd_ghosts_create(&g[0], t.rows, SHERD_F32, &good));
    CHECK_OK(sherd_ghosts_create(&g[1], t.rows, SHERD_F64, &good));
    CHECK_OK(sherd_ghosts_create(&g[2], t.other->layout, SHERD_F32, &good));
    sherd_ghosts *wrong[] = {g[0], BAD(g[2], g[1])}, *half[] = {g[0], NUL(g[1])};
    FAILS(SHERD_EINVAL, sherd_ghosts_fill(wrong, 2));
    FAILS(SHERD_EINVAL, sherd_ghosts_begin_fill(half, 2));
    for (int i = 0; i < 3; i++)
        sherd_ghosts_destroy(g[i]);
}

static const check_test tests[] = {
    {TEST(a_halo_that_cannot_be_is_refused), {1, 2, 3}},
    {TEST(what_differs_in_halos_is_told), {2}},
    {TEST(a_halo_needs_a_tensor_and_its_widths), {1, 2, 3}},
    {TEST(what_is_added_up_is_a_piece), {1, 2, 3}},
    {TEST(what_a_halo_would_be_needs_a_layout), {1, 2}},
    {TEST(ghosts_need_a_layout_of_elements), {1, 2, 3}},
    {TEST(fields_of_two_meshes_are_two_calls), {1, 2, 3}},
};
CHECK_MAIN(tests)
