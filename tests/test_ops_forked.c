/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that a rank forks: whatever it does with its copy of the world, it gets an error, and
 * neither its rank nor another one notices.
 */
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sherd/ops.h"
#include "tensors.h"

enum { LENGTH = 1000, CHILDREN = 3, ROUNDS = 20 };

/* What a rank has when it forks. */
typedef struct things {
    sherd_world *world;
    const sherd_layout *layout;
    sherd_tensor *split, *plain, *view; /* 1, 2, and a part of the first */
    sherd_tensor *unread;               /* made, and given back by the child */
} things;

static things make(sherd_world *world, int round)
{
    const int64_t shape[2] = {sherd_world_ranks(world) * LENGTH, 2}, length = LENGTH;
    const sherd_mesh *mesh = line_of_ranks(world);
    things all = {.world = world, .layout = layout_of(mesh, 2, shape, "S(0)", NULL)};

    all.split = sherd_constant_on(all.layout, SHERD_F64, 1 + round);
    all.plain = sherd_constant(world, SHERD_F64, &length, 1, 2);
    all.view = sherd_narrow(all.split, 1, 0, 1);
    all.unread = sherd_tensor_retain(sherd_scale(all.split, 3));
    return all;
}

/* ---- what the child does: how many of its errors are missing --------------------------------- */

static bool is_refused(sherd_tensor *t)
{
    return sherd_tensor_failed(t);
}

static int compute(things *all)
{
    int missing = 0;

    for (int i = 0; i < ROUNDS; i++) {
        missing += !is_refused(sherd_scale(all->split, 100));
        missing += !is_refused(sherd_scale(all->plain, 100));
        missing += !is_refused(sherd_matmul(all->split, sherd_transpose(all->split, 0, 1)));
        missing += !isnan(sherd_item(sherd_sum(all->split)));
        missing += !isnan(sherd_item(sherd_sum(all->plain)));
    }
    missing += !is_refused(sherd_add_to(all->split, all->split));
    missing += !is_refused(sherd_copy_from(all->plain, all->plain));
    return missing;
}

static int touch(things *all)
{
    sherd_tensor *tensors[] = {all->split, all->plain, all->view, all->unread};
    int missing = 0;

    for (int i = 0; i < LEN(tensors); i++)
        missing += sherd_tensor_read(tensors[i]) != NULL;
    for (int i = 0; i < 2; i++)
        missing += sherd_tensor_write(tensors[i]) != NULL;
    return missing;
}

static int make_new(things *all)
{
    const sherd_mesh *mesh = NULL;
    const int64_t length = LENGTH, extent = sherd_world_ranks(all->world);
    const char *name = "other";
    static const double data[4];
    const int64_t four = 4;
    int missing = 0;

    missing += !is_refused(sherd_constant_on(all->layout, SHERD_F64, 7));
    missing += !is_refused(sherd_constant(all->world, SHERD_F64, &length, 1, 7));
    missing += !is_refused(sherd_from_data(all->world, SHERD_F64, &four, 1, data));
    missing += sherd_mesh_create(&mesh, all->world, 1, &extent, &name, NULL) != SHERD_EINVAL;
    return missing;
}

static int move(things *all)
{
    int missing = 0;

    for (int i = 0; i < ROUNDS; i++) {
        missing += !is_refused(sherd_redistribute_to(all->split, "R", NULL));
        missing += !is_refused(sherd_redistribute_to(all->split, "S(1)",
                                                     &(sherd_redistribute_options){.begin = true}));
    }
    return missing;
}

static int give_back(things *all)
{
    sherd_tensor_release(all->unread);
    for (int i = 0; i < ROUNDS; i++) {
        sherd_scope_begin(all->world);
        (void)sherd_scale(all->split, 2);
        sherd_scope_end(all->world);
    }
    sherd_world_fail(all->world, SHERD_EINVAL, "the child's own");
    return 0;
}

/* Twice: a check ends nothing. */
static int check_twice(things *all)
{
    char expected[64];
    int missing = 0;

    snprintf(expected, sizeof expected, "forked from rank %d", sherd_world_rank(all->world));
    for (int i = 0; i < 2; i++) {
        missing += sherd_world_check(all->world) != SHERD_EINVAL;
        missing += strstr(sherd_world_error(all->world), expected) == NULL;
        missing += is_refused(sherd_scale(all->split, 2)) ? 0 : 1;
    }
    return missing + (sherd_world_close(all->world) != SHERD_EINVAL);
}

static int (*const deeds[])(things *all) = {compute, touch, make_new, move, give_back, check_twice};

/* A child that does all of them, from another one on, and ends; returns whether none was missing. */
static pid_t fork_child(things *all, int first)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    int missing = 0;
    for (int i = 0; i < LEN(deeds); i++)
        missing += deeds[(first + i) % LEN(deeds)](all);
#ifndef __SANITIZE_ADDRESS__ /* the copy of the world is no leak */
    if (first % 2)
        exit(missing ? 1 : 0);
#endif
    _exit(missing ? 1 : 0);
}

/* ---- what its rank does ---------------------------------------------------------------------- */

static int count_other(sherd_tensor *t, double value)
{
    const double *data = sherd_tensor_read(t);
    int other = data ? 0 : -1;

    for (int64_t i = 0; data && i < t->count; i++)
        other += data[i] != value;
    return other;
}

/* Takes blocks, calls and gives back while the child does what it can. */
static void go_on(things *all, int round)
{
    double one = 1 + round;

    for (int i = 0; i < ROUNDS; i++) {
        sherd_scope_begin(all->world);
        sherd_tensor *twice = sherd_scale(all->split, 2);
        sherd_tensor *whole = sherd_redistribute_to(twice, "R", NULL);
        CHECK_EQ(count_other(twice, 2 * one), 0);
        CHECK_EQ(count_other(whole, 2 * one), 0);
        CHECK(sherd_item(sherd_sum(all->split)) ==
              one * 2 * LENGTH * sherd_world_ranks(all->world));
        sherd_scope_end(all->world);
    }
    CHECK_EQ(count_other(all->split, one), 0);
    CHECK_EQ(count_other(all->plain, 2), 0);
    CHECK_EQ(count_other(all->unread, 3 * one), 0);
}

static void what_a_child_does_reaches_nobody(sherd_world *world)
{
    for (int round = 0; round < CHILDREN; round++) {
        sherd_scope_begin(world);
        things all = make(world, round);
        CHECK_OK(sherd_world_check(world));
        int status = -1;
        pid_t pid = fork_child(&all, round);
        go_on(&all, round);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0);
        go_on(&all, round);
        sherd_tensor_release(all.unread);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
}

/* One rank alone forks, while others wait for it. */
static void others_wait_for_the_rank_and_not_for_its_child(sherd_world *world)
{
    things all = make(world, 0);
    int status = 0;

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == sherd_world_ranks(world) - 1) {
        pid_t pid = fork_child(&all, 3);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK_EQ(status, 0);
    }
    go_on(&all, 0);
    sherd_tensor_release(all.unread);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_a_child_does_reaches_nobody), {1, 2, 3, 4}},
    {TEST(others_wait_for_the_rank_and_not_for_its_child), {1, 3}},
};
CHECK_MAIN(tests)
