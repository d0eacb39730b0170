/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of moves to where a text says: see misuse.h. What a wrong text says:
 * test_ops_move_text.c. */
#include "misuse.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static const int64_t square[] = {4, 4};

typedef struct things {
    const sherd_mesh *mesh;
    const sherd_layout *rows, *whole;
    sherd_tensor *plain, *spread;
} things;

static things make(sherd_world *world)
{
    things t = {.mesh = NULL};
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&t.mesh, world, text));
    CHECK_OK(sherd_layout_parse_placements(&t.rows, t.mesh, 2, square, "S(0)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&t.whole, t.mesh, 2, square, "R", NULL));
    t.plain = sherd_constant(world, SHERD_F32, square, 2, 1);
    t.spread = sherd_constant_on(t.rows, SHERD_F32, 1);
    CHECK_OK(
        sherd_world_check(world)); /* else a rank's mistake comes before another has made them */
    return t;
}

MISUSE(a_move_by_text_needs_a_tensor_and_a_text)
{
    things t = make(m->world);

    ANSWERS(!sherd_redistribute_to(NULL, "R", NULL) && !sherd_redistribute_to(NULL, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute_to(t.spread, NUL("R"), NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute_to(t.spread, BAD("", "R"), NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute_to(t.spread, BAD("P(sum)", "R"), NULL));
    FAILS(SHERD_EINVAL, sherd_redistribute_to(BAD(t.plain, t.spread), "R", NULL));
    FAILS(SHERD_EINVAL,
          sherd_redistribute_to(
              t.spread, "R",
              &(sherd_redistribute_options){.forward_dtype = BAD((sherd_dtype)99, SHERD_F32)}));
}

MISUSE(a_spread_by_text_needs_all_of_it)
{
    things t = make(m->world);
    int far = BAD(sherd_world_ranks(m->world), 0);

    ANSWERS(!sherd_distribute_as(NULL, NULL, "R", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(NUL(t.plain), t.mesh, "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(t.plain, NUL(t.mesh), "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(t.plain, t.mesh, NUL("S(0)"), 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(t.plain, t.mesh, BAD("P(sum)", "S(0)"), 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(BAD(t.spread, t.plain), t.mesh, "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_as(t.plain, t.mesh, "S(0)", far));
}

MISUSE(a_spread_from_one_rank_needs_it_there)
{
    things t = make(m->world);
    int far = BAD(sherd_world_ranks(m->world), 0);

    ANSWERS(!sherd_distribute_from(NULL, NULL, "R", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_from(NULL, t.mesh, "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_from(t.plain, NUL(t.mesh), "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_distribute_from(t.plain, t.mesh, NUL("S(0)"), 0));
    FAILS(SHERD_EINVAL, sherd_distribute_from(t.plain, t.mesh, "S(0)", far));
    FAILS(SHERD_EINVAL, sherd_distribute_from(t.plain, t.mesh, "S(0)", BAD(-1, 0)));
}

/* The root itself says so. */
static void a_root_outside_the_mesh_is_none(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1;
    const sherd_mesh *mesh = NULL;
    char text[64];

    snprintf(text, sizeof text, "x=%d", last);
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_tensor *t = sherd_constant(world, SHERD_F32, square, 2, 1);
    if (sherd_world_rank(world) == last)
        sherd_distribute_from(t, mesh, "S(0)", last);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    snprintf(text, sizeof text, "root %d: it is no rank of the mesh", last);
    CHECK(strstr(sherd_world_error(world), text) != NULL);
}

MISUSE(pieces_need_a_layout)
{
    things t = make(m->world);

    ANSWERS(!sherd_from_local_as(NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_from_local_as(NUL(t.plain), t.whole));
    FAILS(SHERD_EINVAL, sherd_from_local_as(t.plain, NUL(t.whole)));
    FAILS(SHERD_EINVAL, sherd_from_local_as(BAD(t.spread, t.plain), t.whole));
    FAILS(SHERD_EINVAL,
          sherd_from_local_as(sherd_constant(m->world, SHERD_F32, square, BAD(1, 2), 1), t.whole));
}

MISUSE(two_worlds_do_not_mix)
{
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    things t = make(m->world), u = make(second);
    FAILS(SHERD_EINVAL, sherd_distribute_as(t.plain, BAD(u.mesh, t.mesh), "S(0)", 0));
    FAILS(SHERD_EINVAL, sherd_from_local_as(t.plain, BAD(u.whole, t.whole)));
    bool is_root = sherd_world_rank(m->world) == 0;
    if (!m->alone || m->wrong == is_root) /* only the root's tensor is looked at */
        FAILS(SHERD_EINVAL, sherd_distribute_from(BAD(u.plain, t.plain), t.mesh, "S(0)", 0));
    CHECK_OK(sherd_world_check(second));
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(a_move_by_text_needs_a_tensor_and_a_text), {1, 2, 3}},
    {TEST(a_spread_by_text_needs_all_of_it), {1, 2, 3}},
    {TEST(a_spread_from_one_rank_needs_it_there), {1, 2, 3}},
    {TEST(a_root_outside_the_mesh_is_none), {2, 3, 4}},
    {TEST(pieces_need_a_layout), {1, 2, 3}},
    {TEST(two_worlds_do_not_mix), {1, 2}},
};
CHECK_MAIN(tests)
