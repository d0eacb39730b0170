/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that are written while the ranks go on: they hold what was there when the write began, and
 * stand there only when it has ended; failures in between, on any rank, leave what was there.
 */
#include "scratch.h"
#include "tensors.h"
#include "sherd/files.h"
#include "sherd/layers.h"
#include "sherd/ops.h"
#include "sherd/parallel.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { LENGTH = 6000, LARGE = 4 << 20 };

static const sherd_layout *split(sherd_world *world, int64_t length)
{
    return layout_of(line_of_ranks(world), 1, &length, "S(0)", NULL);
}

static sherd_status begin(sherd_writing **out, sherd_world *world, const char *path,
                          sherd_tensor *t)
{
    return sherd_file_write_begin(
        out, world, path,
        &(sherd_write_options){.tensors = &(sherd_named_tensor){"t", t}, .tensor_count = 1});
}

static sherd_status begin_value(sherd_writing **out, sherd_world *world, const char *path,
                                double value)
{
    sherd_scope_begin(world);
    sherd_tensor *t = sherd_constant_on(split(world, LENGTH), SHERD_F32, value);
    sherd_status status = begin(out, world, path, t);
    sherd_scope_end(world);
    return status;
}

/* The value that all elements have; -1: there is no such file. */
static double value_in(sherd_world *world, const char *path)
{
    sherd_file *file = NULL;
    double value = -1;

    if (sherd_file_open(&file, world, path))
        return value;
    sherd_scope_begin(world);
    const float *x = sherd_tensor_read(sherd_file_read(file, "t", NULL));
    for (int i = 0; CHECK(x != NULL) && i < LENGTH; i++)
        value = i == 0 || value == (double)x[i] ? (double)x[i] : -2;
    sherd_scope_end(world);
    sherd_file_destroy(file);
    return value;
}

static bool says(sherd_world *world, const char *what)
{
    bool found = strstr(sherd_world_error(world), what) != NULL;

    if (!found)
        fprintf(stderr, "  \"%s\" is not in \"%s\"\n", what, sherd_world_error(world));
    return found;
}

static bool part_is_there(const char *path)
{
    char part[300];

    snprintf(part, sizeof part, "%s.part", path);
    return is_there(part);
}

/* ---- what is in the file --------------------------------------------------------------------- */

static void what_changes_after_begin_is_not_in_the_file(sherd_world *world)
{
    const char *ways[] = {"S(0)", "S(1)", "R"};
    const int64_t shape[] = {7, 5};
    char room[256];
    const char *path = scratch(room, "later");
    sherd_writing *writing = NULL;
    sherd_file *file = NULL;

    for (int i = 0; i < LEN(ways); i++) {
        sherd_scope_begin(world);
        const sherd_layout *layout = layout_of(line_of_ranks(world), 2, shape, ways[i], NULL);
        sherd_tensor *t = indices_on(layout, SHERD_F32);
        CHECK_OK(begin(&writing, world, path, t));
        sherd_add_to(t, sherd_constant_on(layout, SHERD_F32, 100));
        CHECK(!is_there(path));
        CHECK_OK(sherd_writing_end(writing));
        CHECK_OK(sherd_file_open(&file, world, path));
        CHECK_EQ(count_wrong(sherd_file_read(file, "t", layout), 1), 0);
        CHECK_EQ(count_wrong(sherd_file_read(file, "t", NULL), 1), 0);
        sherd_file_destroy(file);
        CHECK(!part_is_there(path));
        remove_file(world, path);
        sherd_scope_end(world);
    }
}

static void plain_tensors_and_notes_are_written_once(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "plain");
    sherd_tensor *t = sherd_constant(world, SHERD_F32, (int64_t[]){LENGTH}, 1, 3);
    const sherd_named_tensor one = {"t", t};
    const sherd_file_note note = {"step", "7"};
    sherd_writing *writing = NULL;
    sherd_file *file = NULL;

    CHECK_OK(sherd_file_write_begin(
        &writing, world, path, &(sherd_write_options){&one, 1, &note, 1, 0, NULL, 0, NULL, 0}));
    CHECK_OK(sherd_writing_end(writing));
    CHECK_EQ(value_in(world, path), 3);
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_TEXT(sherd_file_text(file, "step"), "7");
    sherd_file_destroy(file);
    remove_file(world, path);
}

/* A rank outside of the mesh has a plain tensor of that name: that of the mesh counts. */
static void ranks_outside_of_the_mesh_take_part(sherd_world *world)
{
    const int two[] = {1, 2};
    const sherd_mesh *mesh = NULL;
    char room[256];
    const char *path = scratch(room, "outside");
    sherd_writing *writing = NULL;
    sherd_tensor *t;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){2}, NULL, two));
    if (sherd_world_rank(world) == 0)
        t = sherd_constant(world, SHERD_F32, (int64_t[]){LENGTH}, 1, 1);
    else
        t = sherd_constant_on(layout_of(mesh, 1, (int64_t[]){LENGTH}, "S(0)", NULL), SHERD_F32, 2);
    for (int i = 0; i < 5; i++) {
        CHECK_OK(begin(&writing, world, path, t));
        CHECK_OK(sherd_writing_end(writing));
        CHECK_EQ(value_in(world, path), 2);
    }
    remove_file(world, path);
}

static void train(sherd_module *m, sherd_optimizer *o)
{
    sherd_world *world = sherd_module_world(m);
    const sherd_layout *whole = layout_of(line_of_ranks(world), 2, (int64_t[]){4, 7}, "R", NULL);

    sherd_scope_begin(world);
    sherd_backward(sherd_sum(sherd_module_call(m, sherd_constant_on(whole, SHERD_F32, 1))));
    sherd_optimizer_step(o, 0.05, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(world);
}

static sherd_module *model(sherd_world *world, sherd_optimizer **o, bool sharded)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 7, 5, NULL));
    if (sharded)
        CHECK_OK(sherd_fully_shard(m, mesh, "x", NULL));
    else
        CHECK_OK(sherd_parallelize(m, mesh, "x", NULL, 0));
    CHECK_OK(sherd_adamw_create(o, m, NULL));
    return m;
}

/* As a write that is not begun, before the steps that follow. */
static void a_training_goes_on_while_it_is_written(sherd_world *world)
{
    char room[256], other_room[256];
    const char *path = scratch(room, "trained"), *other = scratch(other_room, "at_once");
    sherd_optimizer *o = NULL;
    sherd_writing *writing = NULL;

    for (int sharded = 0; sharded < 2; sharded++) {
        sherd_module *m = model(world, &o, sharded);
        bool ready = false;
        train(m, o);
        CHECK_OK(sherd_module_write(m, o, other));
        CHECK_OK(sherd_module_write_begin(&writing, m, o, path, NULL));
        while (!ready) {
            train(m, o);
            CHECK_OK(sherd_writing_ready(&ready, writing));
        }
        CHECK_OK(sherd_writing_end(writing));
        if (sherd_world_rank(world) == 0) {
            char command[600];
            snprintf(command, sizeof command, "cmp '%s' '%s'", path, other);
            CHECK_EQ(system(command), 0);
        }
        CHECK_OK(sherd_module_read(m, o, path, NULL));
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
        remove_file(world, path);
        remove_file(world, other);
    }
}

static void several_are_written_at_once(sherd_world *world)
{
    char room[3][256];
    sherd_writing *writing[3] = {NULL}, *again = NULL;
    int64_t bytes = sherd_world_memory(world).live_bytes;

    for (int i = 0; i < 3; i++) {
        char name[] = {(char)('a' + i), 0};
        (void)scratch(room[i], name);
        CHECK_OK(begin_value(&writing[i], world, room[i], i));
    }
    CHECK(sherd_world_memory(world).live_bytes - bytes >=
          3 * (LENGTH / sherd_world_ranks(world)) * 4);
    CHECK_EQ(begin_value(&again, world, room[1], 1), SHERD_EINVAL);
    CHECK(!again && says(world, "a write to it has begun: call sherd_writing_end first"));
    CHECK_OK(sherd_world_check(world));
    for (int i = 2; i >= 0; i--) {
        CHECK_OK(sherd_writing_end(writing[i]));
        CHECK_EQ(value_in(world, room[i]), i);
    }
    CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    for (int i = 0; i < 3; i++)
        remove_file(world, room[i]);
}

/* ---- failures -------------------------------------------------------------------------------- */

/* The limit comes while threads write: one of some attempts meets it. */
static void a_limit_on_files_is_an_error_at_the_end(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "limit");
    sherd_status status = SHERD_OK;
    sherd_writing *writing = NULL;

    CHECK_OK(begin_value(&writing, world, path, 1));
    CHECK_OK(sherd_writing_end(writing));
    for (int i = 0; i < 50 && !status; i++) {
        const struct rlimit small = {1000, RLIM_INFINITY};
        sherd_scope_begin(world);
        sherd_tensor *t = sherd_constant_on(split(world, LARGE), SHERD_F32, 2);
        CHECK_OK(begin(&writing, world, path, t));
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
        status = sherd_writing_end(writing);
        limit_files(world, RLIM_INFINITY);
        CHECK(status == SHERD_OK || status == SHERD_EINVAL);
        sherd_scope_end(world);
    }
    CHECK_EQ(status, SHERD_EINVAL);
    CHECK(says(world, "sherd_writing_end: "));
    CHECK(!part_is_there(path));
    CHECK(is_there(path));
    remove_file(world, path);
}

static void a_folder_that_is_gone_is_an_error(sherd_world *world)
{
    char folder[256], path[300], part[310];
    sherd_writing *writing = NULL;

    (void)scratch(folder, "folder");
    snprintf(path, sizeof path, "%s/file", folder);
    snprintf(part, sizeof part, "%s.part", path);
    CHECK_EQ(begin_value(&writing, world, path, 1), SHERD_EINVAL);
    CHECK(!writing && says(world, "sherd_file_write_begin: "));
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(mkdir(folder, 0700), 0);
    together(world);
    CHECK_OK(begin_value(&writing, world, path, 1));
    together(world);
    if (sherd_world_rank(world) == 0)
        CHECK(unlink(part) == 0 && rmdir(folder) == 0);
    together(world);
    CHECK_EQ(sherd_writing_end(writing), SHERD_EINVAL);
    CHECK(says(world, "removed or replaced"));
    CHECK_OK(sherd_world_check(world));
}

/* Somebody else's file in the place of PATH.part gets no name, and stays. */
static void another_file_does_not_get_the_name(sherd_world *world)
{
    char room[256], part[300];
    const char *path = scratch(room, "another");
    sherd_writing *writing = NULL;

    snprintf(part, sizeof part, "%s.part", path);
    CHECK_EQ(begin_value(&writing, world, "", 1), SHERD_EINVAL);
    CHECK_OK(begin_value(&writing, world, path, 1));
    together(world);
    if (sherd_world_rank(world) == 0) {
        CHECK_EQ(unlink(part), 0);
        FILE *f = fopen(part, "w");
        CHECK(f && fputs("mine", f) >= 0 && fclose(f) == 0);
    }
    together(world);
    CHECK_EQ(sherd_writing_end(writing), SHERD_EINVAL);
    CHECK(says(world, "removed or replaced"));
    CHECK(!is_there(path) && part_is_there(path));
    together(world);
    remove_file(world, part);
    CHECK_OK(sherd_world_check(world));
}

/* A step that has failed ends the write too; what was there stays, and the next write works. */
static void an_alarm_in_between_leaves_what_was_there(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "alarm");
    sherd_writing *writing = NULL;

    CHECK_OK(begin_value(&writing, world, path, 1));
    CHECK_OK(sherd_writing_end(writing));
    CHECK_OK(begin_value(&writing, world, path, 2));
    if (sherd_world_rank(world) == 0)
        (void)sherd_world_fail(world, SHERD_ENOMEM, "a step has failed");
    CHECK_EQ(sherd_writing_end(writing), SHERD_ENOMEM);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK(!part_is_there(path));
    CHECK_EQ(value_in(world, path), 1);
    CHECK_OK(begin_value(&writing, world, path, 3));
    if (sherd_world_rank(world) == 0)
        (void)sherd_world_fail(world, SHERD_ENOMEM, "a step has failed");
    CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
    CHECK_OK(sherd_writing_end(writing));
    CHECK_EQ(value_in(world, path), 3);
    remove_file(world, path);
}

static void a_world_that_closes_drops_what_has_not_ended(sherd_world *world)
{
    char room[256];
    sherd_world *alone = NULL;
    sherd_writing *writing = NULL, *other = NULL;

    snprintf(room, sizeof room, "%s/sherd_%d_%d_drop", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp",
             (int)getpid(), sherd_world_rank(world));
    CHECK_OK(sherd_world_alone(&alone, NULL));
    sherd_tensor *t = sherd_constant(alone, SHERD_F32, (int64_t[]){LARGE}, 1, 1);
    CHECK_OK(begin(&writing, alone, room, t));
    CHECK(part_is_there(room));
    CHECK_OK(sherd_world_close(alone));
    CHECK(!is_there(room) && !part_is_there(room));
    CHECK_OK(sherd_world_alone(&alone, NULL));
    CHECK_OK(begin_value(&other, alone, room, 1));
    CHECK_OK(sherd_writing_end(other));
    CHECK_EQ(unlink(room), 0);
    CHECK_OK(sherd_world_close(alone));
}

static void a_fork_leaves_the_write_to_its_rank(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "fork");
    sherd_writing *writing = NULL;
    int status = 1;

    sherd_tensor *t = sherd_constant_on(split(world, LENGTH), SHERD_F32, 1);
    CHECK_OK(begin_value(&writing, world, path, 1));
    pid_t child = fork();
    if (child == 0) {
        sherd_writing *none = NULL;
        bool ready;
        _exit(sherd_writing_ready(&ready, writing) == SHERD_EINVAL &&
                      sherd_writing_end(writing) == SHERD_EINVAL &&
                      begin(&none, world, path, t) == SHERD_EINVAL && !none
                  ? 0
                  : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_OK(sherd_writing_end(writing));
    CHECK_EQ(value_in(world, path), 1);
    remove_file(world, path);
}

/* Nobody gets a stack of that size. */
static void without_a_thread_it_is_written_at_once(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "threadless");
    sherd_writing *writing = NULL;
    pthread_attr_t usual, huge;
    bool ready = false;

    CHECK_EQ(pthread_getattr_default_np(&usual), 0);
    together(world);
    CHECK_EQ(pthread_attr_init(&huge), 0);
    CHECK_EQ(pthread_attr_setstacksize(&huge, (size_t)1 << 48), 0);
    CHECK_EQ(pthread_setattr_default_np(&huge), 0);
    together(world);
    CHECK_OK(begin_value(&writing, world, path, 4));
    CHECK_OK(sherd_writing_ready(&ready, writing));
    CHECK(ready);
    CHECK_EQ(pthread_setattr_default_np(&usual), 0);
    CHECK_OK(sherd_writing_end(writing));
    CHECK_EQ(value_in(world, path), 4);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
    remove_file(world, path);
}

static void begin_and_end(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "starved");
    sherd_writing *writing = NULL;

    sherd_scope_begin(world);
    sherd_status status = begin_value(&writing, world, path, 5);
    CHECK((status != SHERD_OK) == (writing == NULL));
    if (!status)
        status = sherd_writing_end(writing);
    CHECK(!status || status == SHERD_ENOMEM);
    if (status)
        (void)sherd_world_fail(world, SHERD_ENOMEM, "not written");
    sherd_scope_end(world);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    char room[256];

    (void)split(world, LENGTH); /* kept: under the address sanitizer a world keeps none itself */
    begin_and_end(world);
    fail_every_allocation(world, 0, begin_and_end);
    fail_every_allocation(world, sherd_world_ranks(world) - 1, begin_and_end);
    remove_file(world, scratch(room, "starved"));
}

static const check_test tests[] = {
    {TEST(what_changes_after_begin_is_not_in_the_file), {1, 2, 3, 4, 8}},
    {TEST(plain_tensors_and_notes_are_written_once), {1, 2, 3}},
    {TEST(ranks_outside_of_the_mesh_take_part), {3}},
    {TEST(a_training_goes_on_while_it_is_written), {1, 2, 3, 4, 8}},
    {TEST(several_are_written_at_once), {1, 2, 3}},
    {TEST(a_limit_on_files_is_an_error_at_the_end), {1, 2, 3}},
    {TEST(a_folder_that_is_gone_is_an_error), {1, 2, 3}},
    {TEST(another_file_does_not_get_the_name), {1, 2, 3}},
    {TEST(an_alarm_in_between_leaves_what_was_there), {1, 2, 3}},
    {TEST(a_world_that_closes_drops_what_has_not_ended), {1, 2}},
    {TEST(a_fork_leaves_the_write_to_its_rank), {1, 2}},
    {TEST(without_a_thread_it_is_written_at_once), {1, 2}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
