/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that do different things without communicating are found at the next check, and the first
 * difference is named (test_parallel_differences.c). After a failed check all ranks have the same tensors left; what one of them
 * lacks is an error to use, not a silence.
 */
#include "models.h"
#include "sherd/optimizer.h"

/* The error of the last check; a failure shows it. */
static void says(sherd_world *world, const char *text)
{
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  it says: %s\n", sherd_world_error(world));
}

static void works(sherd_world *world, const sherd_mesh *mesh)
{
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");
    double sum = sherd_item(sherd_sum(x)), want = 0, data[16];

    whole(x, data);
    for (int i = 0; i < 16; i++)
        want += data[i];
    CHECK_NEAR(sum, want, 1e-12);
    CHECK_OK(sherd_world_check(world));
}

/* An earlier difference makes the next call fail, not give another number; and it is the difference
 * that is named. */
static void a_difference_fails_the_next_call(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int me = sherd_world_rank(world);

    for (int more = 0; more < 100; more += 90) {
        sherd_scope_begin(world);
        sherd_tensor *s = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");
        CHECK_OK(sherd_world_check(world));
        sherd_tensor *y = sherd_scale(s, me + 1);
        for (int i = 0; i < more; i++)
            sherd_scale(s, 1);
        CHECK(sherd_world_ranks(world) == 1 || isnan(sherd_item(sherd_sum(y))));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        if (!more)
            says(world, "operation 1 since the last check is sherd_scale");
        works(world, mesh);
        sherd_scope_end(world);
    }
}

/* Who has done something twice makes the same call as the others, one deed later: the call is
 * named. */
static void the_same_call_after_other_things_is_named(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *s = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");

    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i <= (sherd_world_rank(world) == 1); i++)
        sherd_scale(s, 2);
    sherd_full(s);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    says(world, "both made call 1 of group");
    says(world, "did different things before it");
    works(world, mesh);
}

/* Looking at what is there, and writing one's own part, is nobody else's business. */
static void what_one_rank_may_do_alone_is_no_difference(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *x = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
    sherd_tensor *s = spread(sherd_full(x), mesh, "S(0)"), *one = sherd_view(sherd_sum(x), NULL, 0);

    if (sherd_world_rank(world) == sherd_world_ranks(world) - 1) {
        CHECK(!isnan(sherd_item(one)));
        CHECK(sherd_tensor_read(sherd_to_local(s)) != NULL);
        CHECK(sherd_tensor_read(sherd_full(x)) != NULL);
        CHECK(strlen(sherd_tensor_text(s)) > 0);
        double *data = sherd_tensor_write(s);
        for (int64_t i = 0; i < s->count; i++)
            data[i] = 1;
        sherd_scale(sherd_constant(world, SHERD_F32, SHAPE(3), 1, 1), 2);
        sherd_tensor_retain(x);
        sherd_tensor_release(x);
    }
    sherd_item(sherd_sum(s));
    CHECK_OK(sherd_world_check(world));
}

/* ---- after a failed check -------------------------------------------------------------------- */

static bool is_there(sherd_world *world, const sherd_mesh *mesh, sherd_tensor *t)
{
    int64_t mine = !sherd_tensor_failed(t), all[CHECK_RANKS];
    int there = 0;

    CHECK(sherd__share(world, sherd_mesh_root(mesh), "there", &mine, 1, all));
    for (int r = 0; r < sherd_world_ranks(world); r++)
        there += (int)all[r];
    CHECK(there == 0 || there == sherd_world_ranks(world)); /* all or none */
    return there > 0;
}

/* One rank fails after some of its operators, the others run on for a while: what they have more
 * than it is lost. */
static void a_failed_check_leaves_the_same_on_all(sherd_world *world)
{
    enum { STEPS = 12 };
    const sherd_mesh *mesh = line_of_ranks(world);
    int me = sherd_world_rank(world), ranks = sherd_world_ranks(world);

    for (int at = 0; at <= STEPS; at++) {
        sherd_tensor *t[STEPS];
        bool there[STEPS];
        sherd_scope_begin(world);
        sherd_tensor *old = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_world_check(world));
        sherd_tensor *x = old;
        for (int i = 0; i < STEPS; i++) {
            if (i == at && me == at % ranks)
                sherd_world_fail(world, SHERD_ENOTSUP, "here");
            t[i] = i % 3 == 2 ? sherd_transpose(x, 0, 1) : sherd_scale(x, 2);
            if (me != at % ranks && i == at - 1 && at % 2)
                usleep(2000);
            x = sherd_tensor_failed(t[i]) ? x : t[i];
        }
        CHECK_EQ(sherd_world_check(world), at < STEPS ? SHERD_ENOTSUP : SHERD_OK);
        CHECK(is_there(world, mesh, old));
        for (int i = 0; i < STEPS; i++)
            there[i] = is_there(world, mesh, t[i]);
        CHECK_OK(sherd_world_check(world));
        for (int i = 0; i < STEPS; i++) {
            /* Others may have seen the alarm before they came as far. */
            CHECK(!there[i] || (i < at && (i == 0 || there[i - 1])));
            CHECK_EQ(sherd_tensor_failed(sherd_scale(t[i], 1)), !there[i]);
            CHECK_EQ(sherd_world_check(world), there[i] ? SHERD_OK : SHERD_EINVAL);
        }
        works(world, mesh);
        sherd_scope_end(world);
    }
}

/* A result in flight that some have got and some not is lost on all, and so is what looks at it. */
static void what_was_in_flight_is_lost_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *columns = NULL;
    sherd_redistribute_options begin = {.begin = true};

    CHECK_OK(sherd_layout_parse_placements(&columns, mesh, 2, SHAPE(4, 4), "S(1)", NULL));
    for (int round = 0; round < 20; round++) {
        sherd_scope_begin(world);
        sherd_tensor *s = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "S(0)");
        CHECK_OK(sherd_world_check(world));
        sherd_tensor *y = sherd_redistribute(s, columns, &begin), *z = sherd_transpose(y, 0, 1);
        if (sherd_world_rank(world) == 0) {
            sherd_tensor_read(y); /* this rank has it */
            sherd_world_fail(world, SHERD_ENOTSUP, "here");
        }
        CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
        bool there = is_there(world, mesh, y);
        CHECK(is_there(world, mesh, s));
        CHECK_OK(sherd_world_check(world));
        const void *data[] = {sherd_tensor_read(y), sherd_tensor_read(z)};
        CHECK(there || y->count == 0 || (!data[0] && !data[1]));
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_EINVAL || status == SHERD_OK);
        works(world, mesh);
        sherd_scope_end(world);
    }
}

/*
 * A result in flight is lost, its source is not, also where a rank's box stays the same. And a view of what was in flight is lost though the tensor that it
 * looks at is gone.
 */
static void only_what_was_in_flight_is_lost(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *before = NULL, *after = NULL;
    static const char *const cuts[][2] = {{"0:2,1,1", "0:2,2,0"}, {"0:1,1,1,1", "0:1,2,1,0"}};
    sherd_redistribute_options begin = {.begin = true};
    int ranks = sherd_world_ranks(world);

    CHECK_OK(
        sherd_layout_parse_placements(&before, mesh, 2, SHAPE(4, 4), "S(0)", cuts[ranks - 3][0]));
    CHECK_OK(
        sherd_layout_parse_placements(&after, mesh, 2, SHAPE(4, 4), "S(0)", cuts[ranks - 3][1]));
    for (int round = 0; round < 20; round++) {
        sherd_scope_begin(world);
        sherd_tensor *s = sherd_constant_on(before, SHERD_F64, 7);
        CHECK_OK(sherd_world_check(world));
        sherd_tensor *y = sherd_redistribute(s, after, &begin), *z = sherd_transpose(y, 0, 1);
        if (y != s)
            sherd_tensor_release(y);
        if (sherd_world_rank(world) == ranks - 1) {
            sherd_tensor_read(z);
            sherd_world_fail(world, SHERD_ENOTSUP, "here");
        }
        CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
        CHECK_NEAR(sherd_item(sherd_sum(s)), 7 * 16, 0);
        CHECK_OK(sherd_world_check(world));
        double sum = sherd_item(sherd_sum(z));
        CHECK(sherd_world_check(world) != SHERD_OK || sum == 7 * 16);
        works(world, mesh);
        sherd_scope_end(world);
    }
}

/* A dropped call fills memory in which a result of another mesh lay, made by the deed of that mesh
 * with the number of `q`. */
static void memory_that_is_used_again_says_nothing_of_what_was_there(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world);
    const char *names[] = {"a", "b"};
    const sherd_mesh *mesh[2];
    const sherd_layout *rows[2], *whole[2];

    for (int i = 0; i < 2; i++) {
        CHECK_OK(sherd_mesh_create(&mesh[i], world, 1, &ranks, &names[i], NULL));
        CHECK_OK(sherd_layout_parse_placements(&rows[i], mesh[i], 2, SHAPE(6, 64), "S(0)", NULL));
        CHECK_OK(sherd_layout_parse_placements(&whole[i], mesh[i], 2, SHAPE(6, 64), "R", NULL));
    }
    sherd_scope_begin(world);
    sherd_tensor *p = sherd_constant_on(rows[1], SHERD_F64, 1), *q = sherd_scale(p, 2);
    sherd_scope_begin(world);
    sherd_tensor *y = sherd_redistribute(sherd_constant_on(rows[0], SHERD_F64, 1), whole[0], NULL);
    CHECK_EQ(y->ledger.made, q->ledger.made);
    CHECK_NEAR(sherd_item(sherd_sum(y)), 6 * 64, 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        sherd_world_fail(world, SHERD_ENOTSUP, "here");
    else
        sherd_redistribute(p, whole[1], NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(is_there(world, mesh[1], q));
    CHECK_NEAR(sherd_item(sherd_sum(q)), 2 * 6 * 64, 0);
    works(world, mesh[1]);
    sherd_scope_end(world);
}

/* A step that some have taken and some not leaves no parameters that differ: they are lost where
 * they changed. */
static void half_a_step_is_no_step(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int me = sherd_world_rank(world);

    for (int at = 0; at < 3; at++) {
        sherd_module *m = container(world, mlp_forward, NULL);
        sherd_optimizer *o = NULL;
        sherd_scope_begin(world);
        sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(4, 4), 3, 1, 0), mesh, "R");
        CHECK_OK(sherd_module_add_parameter(m, "w", w));
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        sherd_backward(sherd_sum(sherd_mul(w, w)));
        CHECK_OK(sherd_world_check(world));
        if (me == 0 && at == 0)
            sherd_world_fail(world, SHERD_ENOTSUP, "before the step");
        sherd_optimizer_step(o, me == 0 && at == 1 ? 0.1 : 0.01, 1);
        if (me == 0 && at == 2)
            sherd_world_fail(world, SHERD_ENOTSUP, "after the step");
        CHECK_EQ(sherd_world_check(world), at == 1 ? SHERD_EDIFFER : SHERD_ENOTSUP);
        if (at == 1)
            says(world, "sherd_optimizer_step on ranks");
        /* Whoever has changed it has lost it; a rank that has not taken the step still has it. */
        double value = sherd_item(sherd_sum(sherd_scale(w, 1)));
        sherd_status status = sherd_world_check(world);
        CHECK(status == SHERD_EINVAL || (status == SHERD_OK && !isnan(value)));
        if (at == 1)
            CHECK_EQ(status, SHERD_EINVAL);
        works(world, mesh);
        sherd_optimizer_destroy(o);
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
}

/* A collective function that fails on one rank only has done something on the others. */
static void a_failed_function_leaves_the_same_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int n = 1, done = 0; !done && n < 400; n++) {
        sherd_module *m = mlp(world, SHERD_F64, 4, 6, 4);
        if (sherd_world_rank(world) == sherd_world_ranks(world) - 1)
            sherd_world_fail_allocation(world, n);
        sherd_status status = sherd_parallelize(m, mesh, "tp", NULL, 0);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        done = status == SHERD_OK;
        sherd_status after = sherd_world_check(world);
        CHECK(after == SHERD_OK || (!done && after == SHERD_ENOMEM));
        works(world, mesh);
        sherd_module_destroy(m);
    }
}

static const check_test tests[] = {
    {TEST(a_difference_fails_the_next_call), {2, 3, 4}},
    {TEST(the_same_call_after_other_things_is_named), {2, 3}},
    {TEST(what_one_rank_may_do_alone_is_no_difference), {1, 2, 3, 4}},
    {TEST(a_failed_check_leaves_the_same_on_all), {2, 3, 4}},
    {TEST(what_was_in_flight_is_lost_on_all), {2, 3}},
    {TEST(only_what_was_in_flight_is_lost), {3, 4}},
    {TEST(memory_that_is_used_again_says_nothing_of_what_was_there), {2, 3}},
    {TEST(half_a_step_is_no_step), {2, 3}},
    {TEST(a_failed_function_leaves_the_same_on_all), {2, 3}},
};
CHECK_MAIN(tests)
