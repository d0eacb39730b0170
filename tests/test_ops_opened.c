/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes by pointers (sherd_tensor_write): what several ranks hold is opened on all of them, or the
 * next check, and the next call of theirs, says which tensor was not. What a rank holds alone it
 * writes alone.
 */
#include "tensors.h"

#include "base/hash.h"
#include "sherd/ops.h"
#include "sherd/ops_elements.h"

enum { N = 8 };

static sherd_tensor *made(const sherd_mesh *mesh, const char *placements)
{
    int64_t shape[2] = {N, 4};

    return sherd_constant_on(layout_of(mesh, 2, shape, placements, NULL), SHERD_F64, 1);
}

static void open_on(sherd_tensor *t, int rank)
{
    double *data = NULL;

    if (sherd_world_rank(sherd_tensor_world(t)) == rank)
        data = sherd_tensor_write(t);
    if (data && sherd_tensor_local_count(t) > 0)
        data[0] = 5;
}

/* All get the text, which says who has opened what, and who has not. */
static void found(sherd_world *world, int opener, const char *what, int other)
{
    char text[SHERD_ERROR_BYTES];

    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    snprintf(text, sizeof text,
             "rank %d: sherd_tensor_write: f64[8%s was opened before operation 2 since the last "
             "check on rank %d, and not on rank %d, which holds the same elements",
             opener, what, opener, other);
    CHECK_TEXT(sherd_world_error(world), text);
}

/* ---- who has to -------------------------------------------------------------------------------- */

static void a_replica_is_opened_on_all_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int last = sherd_world_ranks(world) - 1;
    char what[64];

    snprintf(what, sizeof what, ",4] on (x=%d)", last + 1);
    for (int opener = 0; opener <= last; opener += last) {
        sherd_tensor *t = made(mesh, "R");
        open_on(t, opener);
        found(world, opener, what, opener ? 0 : 1);
        CHECK(sherd_tensor_failed(t));
        sherd_fill(t, 2);
        CHECK(sherd_tensor_write(t) != NULL);
        CHECK_OK(sherd_world_check(world));
        CHECK(!sherd_tensor_failed(t));
    }
    sherd_tensor *t = made(mesh, "R");
    for (int i = 0; i < 3; i++) {
        CHECK(sherd_tensor_write(t) != NULL);
        CHECK_OK(sherd_world_check(world));
    }
    open_on(t, 0); /* all opened it before the check, but not since */
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK_OK(sherd_world_check(world));
}

static void what_a_rank_holds_alone_it_writes_alone(sherd_world *world)
{
    static const char *const alone[] = {"S(0)", "P(sum)", "S(1)"};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < LEN(alone); i++)
        for (int rank = 0; rank < sherd_world_ranks(world); rank++) {
            sherd_tensor *t = made(mesh, alone[i]);
            open_on(t, rank);
            sherd_redistribute(t, layout_of(mesh, 2, sherd_tensor_shape(t), "R", NULL), NULL);
            CHECK_OK(sherd_world_check(world));
        }
    sherd_tensor *plain = sherd_constant(world, SHERD_F32, (int64_t[]){N}, 1, 0);
    open_on(plain, 0);
    CHECK_OK(sherd_world_check(world));
    const sherd_layout *nothing = layout_of(mesh, 2, (int64_t[]){N, 0}, "R", NULL);
    open_on(sherd_constant_on(nothing, SHERD_F64, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_share_a_shard_write_it_together(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *t = made(mesh, "S(0) R");

    open_on(t, 2);
    open_on(t, 3);
    CHECK_OK(sherd_world_check(world));
    t = made(mesh, "S(0) R");
    open_on(t, 3);
    found(world, 3, "(dp),4] on (dp=2,tp=2)", 2);
    t = made(mesh, "R P(sum)");
    open_on(t, 1);
    open_on(t, 3);
    CHECK_OK(sherd_world_check(world));
    t = made(mesh, "R P(sum)");
    open_on(t, 0);
    open_on(t, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

/* Whoever is outside of the mesh holds nothing. */
static void ranks_outside_of_a_mesh_may_do_as_they_like(sherd_world *world)
{
    int first[2] = {0, 1};
    const int64_t extent = 2;
    const char *name = "x";
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &extent, &name, first));
    sherd_tensor *t = made(mesh, "R");
    open_on(t, 2);
    CHECK_OK(sherd_world_check(world));
    open_on(t, 0);
    open_on(t, 2);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    t = made(mesh, "R");
    open_on(t, 0);
    open_on(t, 1);
    CHECK_OK(sherd_world_check(world));
}

/* ---- when -------------------------------------------------------------------------------------- */

static void order_and_number_of_openings_are_free(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t[3], *sum = made(mesh, "P(sum)");
    int rank = sherd_world_rank(world);

    for (int i = 0; i < 3; i++)
        t[i] = made(mesh, "R");
    for (int i = 0; i < 3 + rank; i++)
        CHECK(sherd_tensor_write(t[(rank + i) % 3]) != NULL);
    sherd_redistribute(sum, layout_of(mesh, 2, sherd_tensor_shape(sum), "R", NULL), NULL);
    CHECK_OK(sherd_world_check(world));
}

/* What ranks read of it in between would differ. */
static void an_opening_has_its_place_among_operators(sherd_world *world)
{
    sherd_tensor *t = made(line_of_ranks(world), "R");

    CHECK_OK(sherd_world_check(world));
    sherd_tensor *before = sherd_exp(t);
    for (int rank = 1; rank < sherd_world_ranks(world); rank++)
        open_on(t, rank);
    sherd_tensor *behind = sherd_exp(t);
    open_on(t, 0);
    found(world, 1, ",4] on (x=2)", 0);
    CHECK(sherd_tensor_failed(t) && sherd_tensor_failed(behind) && !sherd_tensor_failed(before));
    CHECK_OK(sherd_world_check(world));
}

static void the_next_call_finds_it(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t = made(mesh, "R"), *sum = made(mesh, "P(sum)"), *y;

    CHECK_OK(sherd_world_check(world));
    sherd_exp(t);
    open_on(t, 1);
    y = sherd_redistribute(sum, layout_of(mesh, 2, sherd_tensor_shape(sum), "R", NULL), NULL);
    CHECK(sherd_tensor_failed(y));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    /* Whichever rank has come to the call first. */
    CHECK(strstr(sherd_world_error(world), "rank 1: sherd_tensor_write: f64[8,4] on (x="));
    CHECK(strstr(sherd_world_error(world), "since the last check on rank 1, and not on rank "));
    check_same(world, (sherd_status)sherd__hash_text(0, sherd_world_error(world)));
    CHECK_OK(sherd_world_check(world));
    sum = made(mesh, "P(sum)");
    y = sherd_redistribute(sum, layout_of(mesh, 2, sherd_tensor_shape(sum), "R", NULL), NULL);
    CHECK(!sherd_tensor_failed(y));
    CHECK_OK(sherd_world_check(world));
}

/* What failed first is said, not what ranks had not come to because of it. */
static void what_a_rank_did_not_come_to_is_no_difference(sherd_world *world)
{
    sherd_tensor *t = made(line_of_ranks(world), "R");

    if (sherd_world_rank(world) == 0)
        sherd_world_fail(world, SHERD_EINVAL, "no file");
    else
        sherd_tensor_write(t);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_TEXT(sherd_world_error(world), "rank 0: no file");
    CHECK_OK(sherd_world_check(world));
}

/* ---- how many ---------------------------------------------------------------------------------- */

static void all_are_compared_and_the_first_are_named(sherd_world *world)
{
    enum { MANY = 60, MORE = 3000 };
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t[MANY], *of_many = made(mesh, "R");
    bool zero = sherd_world_rank(world) == 0;

    for (int i = 0; i < MANY; i++)
        t[i] = made(mesh, "R");
    for (int skipped = MANY; skipped >= 0; skipped -= 20) {
        for (int i = 0; i < MANY; i++)
            if (zero || i != skipped)
                CHECK(sherd_tensor_write(t[zero ? i : MANY - 1 - i]) != NULL);
        CHECK_EQ(sherd_world_check(world), skipped < MANY ? SHERD_EDIFFER : SHERD_OK);
        if (skipped < MANY)
            CHECK(strstr(sherd_world_error(world), "rank 0: sherd_tensor_write: ") != NULL);
        for (int i = 0; i < MANY; i++)
            sherd_fill(t[i], 3);
        CHECK_OK(sherd_world_check(world));
    }
    for (int i = 0; i < MORE; i++) {
        sherd_fill(of_many, i);
        CHECK(sherd_tensor_write(of_many) != NULL);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_replica_is_opened_on_all_ranks), {2, 3, 4, 8}},
    {TEST(what_a_rank_holds_alone_it_writes_alone), {1, 2, 3, 8}},
    {TEST(ranks_that_share_a_shard_write_it_together), {4}},
    {TEST(ranks_outside_of_a_mesh_may_do_as_they_like), {3}},
    {TEST(order_and_number_of_openings_are_free), {1, 2, 3, 4}},
    {TEST(an_opening_has_its_place_among_operators), {2}},
    {TEST(the_next_call_finds_it), {2, 3, 4}},
    {TEST(what_a_rank_did_not_come_to_is_no_difference), {2, 3}},
    {TEST(all_are_compared_and_the_first_are_named), {2, 3}},
};
CHECK_MAIN(tests)
