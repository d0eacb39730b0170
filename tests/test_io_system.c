/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the system may do while a file is written or read: waits that signals end, writes that take
 * nothing, a file that changes between two looks at it. On one rank only; all get one status.
 */
#include "scratch.h"
#include "tensors.h"
#include "sherd/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* What the system does, to the thread that has asked for it. */
typedef enum trick { NONE, CLOSE, SYNC, TAKE_NOTHING, CHANGE } trick;

static _Thread_local trick now;
static _Thread_local int times;
static _Thread_local const char *changing;

static void play(trick what, const char *path)
{
    now = what;
    times = 0;
    changing = path;
}

/* These stand in for the C library's, also for those that libsherd calls. */
int close(int fd)
{
    long done = syscall(SYS_close, fd);

    if (now != CLOSE)
        return (int)done;
    times++;
    errno = EINTR; /* and it is closed, as on Linux */
    return -1;
}

int fsync(int fd)
{
    if (now != SYNC || times++ > 2)
        return (int)syscall(SYS_fsync, fd);
    errno = EINTR;
    return -1;
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (now != TAKE_NOTHING)
        return (ssize_t)syscall(SYS_pwrite64, fd, data, bytes, at);
    times++;
    return 0;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    const struct timespec early[2] = {{1, 0}, {1, 0}};

    if (now == CHANGE && times++ == 0)
        CHECK_EQ(utimensat(AT_FDCWD, changing, early, 0), 0);
    return (ssize_t)syscall(SYS_pread64, fd, data, bytes, at);
}

static sherd_status write_it(sherd_world *world, const char *path, double value, trick what)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *rows = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, 2, (int64_t[]){8, 3}, "S(0)", NULL));
    const sherd_named_tensor one = {"t", sherd_constant_on(rows, SHERD_F32, value)};
    if (sherd_world_rank(world) == sherd_world_ranks(world) - 1)
        play(what, NULL);
    sherd_status status = sherd_file_write(world, path, &one, 1, NULL, 0);
    play(NONE, NULL);
    sherd_scope_end(world);
    return status;
}

static void what_a_signal_ends_is_no_failure(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "signals");

    CHECK_OK(write_it(world, path, 1, CLOSE));
    CHECK_OK(write_it(world, path, 2, SYNC));
    remove_file(world, path);
}

static void a_write_that_takes_nothing_ends(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "nothing");

    CHECK_OK(write_it(world, path, 1, NONE));
    CHECK_EQ(write_it(world, path, 2, TAKE_NOTHING), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), strerror(ENOSPC)) != NULL);
    remove_file(world, path);
}

static void a_file_that_changes_while_it_is_read_is_refused(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "changes");
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *rows = NULL;
    sherd_file *file = NULL;

    CHECK_OK(write_it(world, path, 1, NONE));
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, 2, (int64_t[]){8, 3}, "S(0)", NULL));
    for (int plain = 0; plain < 2; plain++) {
        sherd_scope_begin(world);
        if (!plain && sherd_world_rank(world) == sherd_world_ranks(world) - 1)
            play(CHANGE, path);
        sherd_tensor *t = sherd_file_read(file, "t", plain ? NULL : rows);
        play(NONE, NULL);
        CHECK(!plain || sherd_tensor_failed(t)); /* it has another mark from now on */
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "has changed since it was opened") != NULL);
        sherd_scope_end(world);
    }
    sherd_file_destroy(file);
    remove_file(world, path);
}

static const check_test tests[] = {
    {TEST(what_a_signal_ends_is_no_failure), {1, 2, 3}},
    {TEST(a_write_that_takes_nothing_ends), {1, 3}},
    {TEST(a_file_that_changes_while_it_is_read_is_refused), {1, 3}},
};
CHECK_MAIN(tests)
