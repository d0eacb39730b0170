/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHERD_VERIFY: what is said to be equal on several ranks is compared at the check, element by
 * element. All tests run with it set; that the others pass with it too is tried by running them
 * with SHERD_VERIFY=1.
 */
#include "models.h"
#include "sherd/ops_elements.h"

/* Plain data that is not what it is said to be. */
static sherd_tensor *unequal(sherd_world *world)
{
    double data[4] = {1, 2, 3, 4 + sherd_world_rank(world)};

    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, SHAPE(2, 2), 2, data));
}

static void what_is_marked_equal_must_be(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int i = 0; i < 4; i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(2, 2), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_world_check(world));
        if (i == 0)
            spread(unequal(world), mesh, "R");
        if (i == 1)
            spread(unequal(world), mesh, "S(0)");
        if (i == 2)
            sherd_add(x, unequal(world));
        if (i == 3)
            sherd_add(x, sherd_constant(world, SHERD_F64, SHAPE(2, 2), 2, sherd_world_rank(world)));
        CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EDIFFER : SHERD_OK);
        sherd_add(x, x);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
}

/* sherd_from_local believes what it is told. */
static void pieces_that_are_declared_equal_must_be(sherd_world *world)
{
    const sherd_placement whole = sherd_replicate();
    double data[2] = {1, sherd_world_rank(world)};

    sherd_scope_begin(world);
    sherd_from_local(sherd_from_data(world, SHERD_F64, SHAPE(2), 1, data), line_of_ranks(world),
                     &whole, NULL);
    CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EDIFFER : SHERD_OK);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* As what a style makes of a module's argument, which is released when that has computed. */
static void what_was_let_go_of_is_compared(sherd_world *world)
{
    const sherd_placement whole = sherd_replicate();
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int wrong = 0; wrong < 2; wrong++) {
        bool found = wrong && sherd_world_ranks(world) > 1;
        double data[2] = {1, wrong ? sherd_world_rank(world) : 0};
        sherd_scope_begin(world);
        sherd_from_local(sherd_from_data(world, SHERD_F64, SHAPE(2), 1, data), mesh, &whole, NULL);
        sherd_scope_end(world);
        CHECK_EQ(sherd_world_check(world), found ? SHERD_EDIFFER : SHERD_OK);
        if (found && !CHECK(strstr(sherd_world_error(world), "sherd_from_local") != NULL))
            fprintf(stderr, "%s\n", sherd_world_error(world));
    }
}

/* A replica that one rank has written: the others still hold the old values. */
static void a_replica_that_was_written_is_found(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
    sherd_tensor *s = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");

    CHECK_OK(sherd_world_check(world));
    double *own = sherd_tensor_write(s); /* a rank's own part may be anything */
    for (int64_t i = 0; i < s->count; i++)
        own[i] = sherd_world_rank(world);
    CHECK_OK(sherd_world_check(world));
    double *data = sherd_tensor_write(x);
    data[5] = sherd_world_rank(world) == 1 ? 7 : 8;
    CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EDIFFER : SHERD_OK);
    if (sherd_world_ranks(world) > 1)
        CHECK(strstr(sherd_world_error(world), "SHERD_VERIFY: f64[4,4] on (tp=") != NULL);
    data[5] = 7;
    CHECK_OK(sherd_world_check(world));
}

/* Also if all ranks have written it since, and made other tensors in between. */
static void an_old_replica_is_compared_as_well(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
    sherd_tensor *y = sherd_exp(x), *z = sherd_exp(y);

    CHECK(!sherd_tensor_failed(z));
    sherd_fill(x, 2);
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 1)
        *(double *)sherd_tensor_write(x) = 7;
    CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EDIFFER : SHERD_OK);
}

/* What is kept of a given gradient is for the ledger the same tensor, and not what is written. */
static void a_given_gradient_may_be_written(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 1, SHAPE(4), 3, 1, 0), mesh, "R");
    sherd_tensor *up = spread(wave(world, SHERD_F64, 1, SHAPE(4), 5, 1, 0), mesh, "R"), *y;

    sherd_require_grad(x, true);
    for (int k = 1; k <= 3; k++) {
        y = sherd_add(x, up);
        double *data = sherd_tensor_write(up);
        for (int i = 0; i < 4; i++)
            data[i] = k;
        sherd_backward_with(&y, &up, 1, NULL);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_NEAR(distance_to(sherd_grad(x), (double[]){6, 6, 6, 6}, 4), 0, 0);
    CHECK_OK(sherd_world_check(world));
}

/* Equal along tp, different along dp: pieces are compared with their own replicas only. */
static void pieces_are_compared_with_their_replicas(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_tensor *s = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)R");
    sherd_tensor *p = sherd_sum(s);
    const sherd_layout *columns = NULL;

    CHECK(!sherd_tensor_failed(p));
    CHECK_OK(sherd_layout_parse_placements(&columns, mesh, 2, SHAPE(4, 4), "S(1)S(0)", NULL));
    for (int i = 0; i < 20; i++) {
        sherd_scope_begin(world);
        sherd_tensor *y =
            sherd_redistribute(s, columns, &(sherd_redistribute_options){.begin = true});
        sherd_transpose(y, 0, 1); /* in flight over a check */
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
    }
    double *data = sherd_tensor_write(s);
    data[0] = sherd_world_rank(world) / 2;
    CHECK_OK(sherd_world_check(world));
    data[0] = sherd_world_rank(world);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    data[0] = 0;
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_for_it_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int last = sherd_world_ranks(world) - 1;

    for (int n = 1; n < 12; n++) {
        sherd_scope_begin(world);
        spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_world_check(world));
        spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 4, 1, 0), mesh, "R");
        if (sherd_world_rank(world) == (n % 2 ? 0 : last))
            sherd_world_fail_allocation(world, (n + 1) / 2);
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Shards and addends differ, also if no piece varies by itself. */
static void pieces_of_a_whole_may_be_any_constants(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement how[] = {sherd_shard(0), sherd_partial(SHERD_SUM)};
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    double rank = sherd_world_rank(world), ranks = sherd_world_ranks(world);

    for (int i = 0; i < 4; i++) {
        sherd_tensor *piece = i < 2 ? sherd_constant(world, SHERD_F64, SHAPE(2, 3), 2, rank)
                                    : sherd_constant_later(world, SHERD_F64, SHAPE(2, 3), 2, rank);
        sherd_tensor *t = sherd_from_local(piece, mesh, &how[i % 2], &infer);
        CHECK_NEAR(sherd_item(sherd_sum(t)), 3 * ranks * (ranks - 1), 0);
        CHECK_OK(sherd_world_check(world));
    }
}

/* A program has as much memory as without it. */
static void a_check_takes_no_memory_of_tensors(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t = spread(wave(world, SHERD_F64, 2, SHAPE(40, 60), 3, 1, 0), mesh, "R");

    CHECK(!sherd_tensor_failed(sherd_transpose(t, 0, 1)));
    sherd_world_memory_reset(world);
    sherd_memory before = sherd_world_memory(world);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_world_memory(world).live_bytes, before.live_bytes);
    CHECK_EQ(sherd_world_memory(world).peak_bytes, before.peak_bytes);
}

/* Replicas with other strides are the same elements. */
static void strides_do_not_matter(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *t = spread(wave(world, SHERD_F64, 2, SHAPE(5, 60), 3, 1, 0), mesh, "R");
    sherd_tensor *view = sherd_transpose(t, 0, 1);

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        CHECK(sherd_tensor_read(view) != NULL); /* a copy is kept with it */
    CHECK_OK(sherd_world_check(world));
    double *data = sherd_tensor_write(t);
    data[7] = sherd_world_rank(world);
    CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EDIFFER : SHERD_OK);
}

/* What is said to be equal is not sent, and is no more equal for that: sherd_module_equalize says
 * so by its name, on all ranks. */
static void what_was_equal_before_is_compared(sherd_world *world)
{
    const sherd_mesh *mesh =
        sherd_world_ranks(world) == 4 ? mesh_of(world, "dp=2,tp=2") : line_of_ranks(world);

    for (int wrong = 0; wrong < 2; wrong++)
        for (int way = 0; way < 2; way++) {
            sherd_module *m = container(world, NULL, NULL), *part = container(world, NULL, NULL);
            double mine[2] = {sherd_world_rank(world), 3};
            sherd_tensor *t = sherd_from_data(world, SHERD_F64, SHAPE(2), 1, mine);
            CHECK_OK(sherd_module_add_parameter(m, "own", t));
            CHECK_OK(sherd_module_add(m, "part", part));
            t = wrong ? unequal(world) : wave(world, SHERD_F64, 1, SHAPE(4), 1, 1, 0);
            CHECK_OK(sherd_module_add_buffer(part, "same", t));
            bool found = wrong && sherd_world_ranks(world) > 1;
            CHECK_EQ(sherd_module_equalize(m, mesh, way ? "tp" : NULL, 0),
                     found ? SHERD_EDIFFER : SHERD_OK);
            if (found)
                CHECK(strstr(sherd_world_error(world), "part.same is said to be equal on ranks 0 "
                                                       "and 1, and is not") != NULL);
            const double *data = sherd_tensor_read(sherd_module_parameter(m, "own"));
            CHECK_EQ(data[0], way ? sherd_world_rank(world) / 2 * 2 * (mesh->axes - 1) : 0);
            sherd_module_destroy(m);
            CHECK_OK(sherd_world_check(world));
        }
}

static const check_test tests[] = {
    {TEST(what_is_marked_equal_must_be), {1, 2, 3, 4}},
    {TEST(pieces_that_are_declared_equal_must_be), {1, 2, 3, 4}},
    {TEST(what_was_let_go_of_is_compared), {1, 2, 3}},
    {TEST(a_replica_that_was_written_is_found), {1, 2, 3}},
    {TEST(an_old_replica_is_compared_as_well), {1, 2, 3, 4}},
    {TEST(a_given_gradient_may_be_written), {1, 2, 3}},
    {TEST(pieces_are_compared_with_their_replicas), {4}},
    {TEST(pieces_of_a_whole_may_be_any_constants), {1, 2, 3, 4}},
    {TEST(a_check_takes_no_memory_of_tensors), {1, 2}},
    {TEST(strides_do_not_matter), {1, 2, 3}},
    {TEST(no_memory_for_it_fails_on_all), {2, 3}},
    {TEST(what_was_equal_before_is_compared), {1, 2, 3, 4}},
};

int main(int argc, char **argv)
{
    setenv("SHERD_VERIFY", "1", 1);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
