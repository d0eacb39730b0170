/* SPDX-License-Identifier: Apache-2.0 */
/* What may stand where a file of tensors is to be: another file than was opened, a link, a pipe,
 * what another job writes. */
#include "tensors.h"
#include "scratch.h"
#include "sherd/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { LENGTH = 6000 };

static const sherd_layout *shared(sherd_world *world)
{
    return layout_of(line_of_ranks(world), 1, (int64_t[]){LENGTH}, "S(0)", NULL);
}

static sherd_status write_number(sherd_world *world, const char *path, sherd_tensor *t)
{
    return sherd_file_write(world, path, &(sherd_named_tensor){"t", t}, 1, NULL, 0);
}

static sherd_status write_shared(sherd_world *world, const char *path, double value)
{
    return write_number(world, path, sherd_constant_on(shared(world), SHERD_F32, value));
}

/* Whether a world's last failure says this. */
static bool says(sherd_world *world, const char *what)
{
    bool found = strstr(sherd_world_error(world), what) != NULL;

    if (!found)
        fprintf(stderr, "  \"%s\" is not in \"%s\"\n", what, sherd_world_error(world));
    return found;
}

/* ---- a file that is another one than was opened ---------------------------------------------- */

static void is_refused(sherd_world *world, const sherd_file *file)
{
    (void)sherd_file_read(file, "t", shared(world));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(says(world, "has changed since it was opened"));
    CHECK(sherd_tensor_failed(sherd_file_read(file, "t", NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

/* Of the same size, with tensors of the same shapes and names. */
static void a_file_that_was_written_anew_is_not_read(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "anew");
    sherd_file *file = NULL, *later = NULL;

    CHECK_OK(write_shared(world, path, 1));
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_OK(write_shared(world, path, 2));
    is_refused(world, file);
    CHECK_OK(sherd_file_open(&later, world, path));
    const float *x = sherd_tensor_read(sherd_file_read(later, "t", NULL));
    CHECK(x && x[0] == 2 && x[LENGTH - 1] == 2);
    together(world);
    if (sherd_world_rank(world) == 0) { /* in its place */
        int fd = open(path, O_WRONLY);
        CHECK_EQ(pwrite(fd, "\1", 1, 300), 1);
        CHECK_EQ(futimens(fd, (const struct timespec[]){{1, 0}, {1, 0}}), 0);
        close(fd);
    }
    together(world);
    is_refused(world, later);
    sherd_file_destroy(file);
    sherd_file_destroy(later);
    remove_file(world, path);
}

/* As where each machine has its own disk: of the same shapes and names, but the last rank's was
 * written before. */
static void ranks_that_find_different_files_learn_it(sherd_world *world)
{
    char room[256], old_room[256], same_room[256];
    const char *path = scratch(room, "newer"), *old = scratch(old_room, "older");
    const char *same = scratch(same_room, "same");
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_file *file = NULL;

    CHECK_OK(write_shared(world, path, 2));
    CHECK_OK(write_shared(world, same, 2));
    CHECK_OK(write_shared(world, old, 1));
    CHECK_EQ(sherd_file_open(&file, world, last ? old : path), SHERD_EDIFFER);
    CHECK(!file);
    CHECK_OK(sherd_file_open(&file, world, last ? same : path));
    const float *x = sherd_tensor_read(sherd_file_read(file, "t", NULL));
    CHECK(x && x[0] == 2 && x[LENGTH - 1] == 2);
    sherd_file_destroy(file);
    remove_file(world, path);
    remove_file(world, same);
    remove_file(world, old);
}

/* A name that is not there, and a layout of another shape: the text has what is there. */
static void what_a_file_has_instead_is_said(sherd_world *world)
{
    char room[256], want[64];
    const char *path = scratch(room, "instead");
    sherd_file *file = NULL;

    CHECK_OK(write_shared(world, path, 2));
    CHECK_OK(sherd_file_open(&file, world, path));
    (void)sherd_file_read(file, "T", shared(world));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "there is no such tensor; there are t"));
    (void)sherd_file_read(file, "t",
                          layout_of(line_of_ranks(world), 2, (int64_t[]){3, 2}, "S(0)", NULL));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    snprintf(want, sizeof want, "it is f32[%d], the layout [3(", LENGTH);
    CHECK(strstr(sherd_world_error(world), want));
    sherd_file_destroy(file);
    remove_file(world, path);
}

/* ---- what is no file ------------------------------------------------------------------------- */

static void a_pipe_is_refused_and_not_waited_for(sherd_world *world)
{
    char room[256], part[300];
    const char *path = scratch(room, "pipe");
    sherd_file *file = NULL;

    snprintf(part, sizeof part, "%s.part", path);
    if (sherd_world_rank(world) == 0)
        CHECK(mkfifo(path, 0600) == 0 && mkfifo(part, 0600) == 0);
    together(world);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(says(world, "is not a regular file"));
    CHECK_EQ(write_shared(world, path, 1), SHERD_EINVAL);
    CHECK(says(world, "is not a regular file"));
    remove_file(world, path);
    CHECK_EQ(write_shared(world, path, 1), SHERD_EINVAL);
    CHECK(is_there(part));
    remove_file(world, part);
    CHECK_OK(write_shared(world, path, 1));
    CHECK_OK(sherd_file_open(&file, world, path));
    sherd_file_destroy(file);
    remove_file(world, path);
}

static void a_long_path_leaves_room_for_the_reason(sherd_world *world)
{
    char path[2000] = "/none/";
    sherd_file *file = NULL;

    memset(path + 6, 'n', 1500);
    CHECK_EQ(sherd_file_open(&file, world, path), SHERD_EINVAL);
    CHECK(says(world, "No such file"));
    CHECK_EQ(write_shared(world, path, 1), SHERD_EINVAL);
    CHECK(says(world, "No such file"));
}

/* A link in the place of PATH.part is not written through; one in the place of PATH gives way. */
static void what_a_link_leads_to_stays(sherd_world *world)
{
    char room[256], other_room[256], part[300], byte = 0;
    const char *path = scratch(room, "link"), *other = scratch(other_room, "mine");
    struct stat about;

    snprintf(part, sizeof part, "%s.part", path);
    put_file(world, other, "m", 1);
    if (sherd_world_rank(world) == 0)
        CHECK(symlink(other, path) == 0 && symlink(other, part) == 0);
    together(world);
    CHECK_EQ(write_shared(world, path, 1), SHERD_EINVAL);
    CHECK(is_there(part));
    remove_file(world, part);
    CHECK_OK(write_shared(world, path, 1));
    CHECK(lstat(path, &about) == 0 && S_ISREG(about.st_mode));
    int fd = open(other, O_RDONLY);
    CHECK(read(fd, &byte, 1) == 1 && byte == 'm' && read(fd, &byte, 1) == 0);
    close(fd);
    remove_file(world, path);
    remove_file(world, other);
}

/* ---- two who write one file ------------------------------------------------------------------ */

static void what_another_job_writes_is_left_to_it(sherd_world *world)
{
    char room[256], part[300];
    const char *path = scratch(room, "taken");
    int fd = -1;

    snprintf(part, sizeof part, "%s.part", path);
    put_file(world, part, "left behind", 11);
    CHECK_OK(write_shared(world, path, 1)); /* by a job that was killed */
    CHECK(!is_there(part));
    together(world);
    put_file(world, part, "", 0);
    if (sherd_world_rank(world) == 0) {
        fd = open(part, O_WRONLY);
        CHECK_EQ(flock(fd, LOCK_EX), 0);
    }
    together(world);
    CHECK_EQ(write_shared(world, path, 2), SHERD_EINVAL);
    CHECK(says(world, ".part\": another job is writing it"));
    CHECK(is_there(part));
    together(world);
    if (fd >= 0)
        close(fd);
    CHECK_OK(write_shared(world, path, 2));
    CHECK(!is_there(part));
    remove_file(world, path);
}

/* What is read is what one of them has written, all of it. */
static bool is_whole(sherd_world *alone, const char *path)
{
    sherd_file *file = NULL;
    bool whole = true;

    if (sherd_file_open(&file, alone, path))
        return true; /* not yet there */
    const float *x = sherd_tensor_read(sherd_file_read(file, "t", NULL));
    for (int i = 0; x && i < LENGTH; i++)
        whole &= x[i] == x[0];
    sherd_file_destroy(file);
    if (sherd_world_check(alone))
        CHECK(says(alone, "has changed"));
    return whole;
}

static void of_many_writers_each_file_is_whole(sherd_world *world)
{
    char room[256], part[300];
    const char *path = scratch(room, "many");
    int rank = sherd_world_rank(world), done = 0;
    sherd_world *alone = NULL;

    snprintf(part, sizeof part, "%s.part", path);
    CHECK_OK(sherd_world_alone(&alone, NULL));
    for (int n = 0; n < 40; n++) {
        sherd_scope_begin(alone);
        sherd_status status = write_number(
            alone, path, sherd_constant(alone, SHERD_F32, (int64_t[]){LENGTH}, 1, rank + 1));
        CHECK(status == SHERD_OK || says(alone, "another job is writing it"));
        CHECK(is_whole(alone, path));
        done += status == SHERD_OK;
        sherd_scope_end(alone);
    }
    CHECK_OK(sherd_world_close(alone));
    CHECK(done > 0 || sherd_world_ranks(world) > 1);
    together(world);
    CHECK(!is_there(part));
    remove_file(world, path);
}

/* ---- more than a file takes ------------------------------------------------------------------ */

static void what_nobody_could_read_is_not_written(sherd_world *world)
{
    const int64_t most[] = {(int64_t)1 << 58};
    sherd_tensor *t = sherd_constant_later(world, SHERD_F64, most, 1, 1);
    sherd_tensor *one = sherd_constant(world, SHERD_F32, NULL, 0, 1);
    const size_t length = (size_t)101 << 20;
    char room[256], *text = malloc(length + 1);
    const char *path = scratch(room, "much");
    sherd_named_tensor list[3] = {{"a", t}, {"b", t}, {"c", t}};

    CHECK_EQ(sherd_file_write(world, path, list, 3, NULL, 0), SHERD_ELIMIT);
    CHECK(says(world, "with tensor 1, \"b\", the file has 2^62 bytes or more"));
    memset(text, 'n', length);
    text[length] = 0;
    list[0].tensor = one;
    CHECK_EQ(sherd_file_write(world, path, list, 1, &(sherd_file_note){"k", text}, 1),
             SHERD_ELIMIT);
    CHECK(says(world, "names, shapes and notes take 1059"));
    CHECK(!is_there(path));
    free(text);
}

/* The kernel sends a signal too, which would end the process and leave PATH.part. */
static void a_limit_on_files_is_an_error(sherd_world *world)
{
    char room[256], part[300];
    const char *path = scratch(room, "limit");
    sigset_t pending;

    snprintf(part, sizeof part, "%s.part", path);
    CHECK_OK(write_shared(world, path, 1));
    limit_files(world, LENGTH * 4);
    CHECK_EQ(write_shared(world, path, 2), SHERD_EINVAL);
    CHECK(says(world, "files of this process are limited to 24000 bytes: raise `ulimit -f`"));
    together(world);
    CHECK(!is_there(part));
    CHECK(is_whole(world, path));
    limit_files(world, RLIM_INFINITY);
    CHECK_EQ(sigpending(&pending), 0);
    CHECK(!sigismember(&pending, SIGXFSZ));
    CHECK_OK(write_shared(world, path, 3));
    remove_file(world, path);
}

static const check_test tests[] = {
    {TEST(what_a_file_has_instead_is_said), {1, 3}},
    {TEST(ranks_that_find_different_files_learn_it), {2, 3, 4, 8}},
    {TEST(a_file_that_was_written_anew_is_not_read), {1, 2, 3}},
    {TEST(a_pipe_is_refused_and_not_waited_for), {1, 2, 3}},
    {TEST(a_long_path_leaves_room_for_the_reason), {1, 2}},
    {TEST(what_a_link_leads_to_stays), {1, 2}},
    {TEST(what_another_job_writes_is_left_to_it), {1, 2, 3}},
    {TEST(of_many_writers_each_file_is_whole), {1, 2, 4}},
    {TEST(what_nobody_could_read_is_not_written), {1}},
    {TEST(a_limit_on_files_is_an_error), {1, 2, 3}},
};
CHECK_MAIN(tests)
