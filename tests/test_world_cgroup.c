/* SPDX-License-Identifier: Apache-2.0 */
/* Where the limit on tensor memory comes from: what users write, what files of memory cgroups say,
 * and a real one. */
#define CHECK_PURE
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "world/inside.h"

enum { MB = 1 << 20 };
#define NONE UINT64_MAX

/* ---- texts ----------------------------------------------------------------------------------- */

static void numbers_of_bytes_are_read(void)
{
    static const struct {
        const char *text;
        uint64_t bytes; /* 0: refused */
    } cases[] = {
        {"1073741824", UINT64_C(1) << 30},
        {"8G", UINT64_C(8) << 30},
        {"512M", UINT64_C(512) << 20},
        {"3K", 3 << 10},
        {"2T", UINT64_C(2) << 40},
        {"1", 1},
        {"", 0},
        {"0", 0},
        {"0G", 0},
        {"G", 0},
        {"-1G", 0},
        {" 8G", 0},
        {"8 G", 0},
        {"8g", 0},
        {"8GB", 0},
        {"1.5G", 0},
        {"0x10", 0},
        {"9000000T", 0},
        {"99999999999999999999", 0},
    };

    for (int i = 0; i < LEN(cases); i++) {
        uint64_t bytes = 0;
        CHECK_EQ(sherd__bytes_read(&bytes, cases[i].text), cases[i].bytes != 0);
        CHECK_EQ(bytes, cases[i].bytes);
    }
}

static void files_of_cgroups_are_read(void)
{
    CHECK_EQ(sherd__cgroup_bytes("536870912\n"), 536870912);
    CHECK_EQ(sherd__cgroup_bytes("9223372036854771712\n"), 9223372036854771712);
    CHECK(sherd__cgroup_bytes("max\n") == NONE);
    CHECK(sherd__cgroup_bytes("") == NONE);
    CHECK(sherd__cgroup_bytes("-1\n") == NONE);
}

#define V1_MOUNTS                                                  \
    "25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=1k\n" \
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"  \
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:9 - cgroup cgroup rw,memory\n"
#define V2_MOUNTS "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void folders_of_cgroups_are_found(void)
{
    static const struct {
        const char *groups, *mounts, *folder[2]; /* of version 1 and 2; NULL: none */
        int mount;                               /* letters of the mount point */
    } cases[] = {
        {"4:memory:/jobs/7\n0::/\n", V1_MOUNTS, {"/sys/fs/cgroup/memory/jobs/7", NULL}, 21},
        {"9:cpu,memory:/a\n",
         "1 2 0:3 / /cg rw - cgroup cgroup rw,cpu,memory\n",
         {"/cg/a", NULL},
         3},
        {"9:memory2:/a\n4:name=memory:/b\n", V1_MOUNTS, {NULL, NULL}, 0},
        {"0::/user.slice/x.scope\n", V2_MOUNTS, {NULL, "/sys/fs/cgroup/user.slice/x.scope"}, 14},
        {"0::/", V2_MOUNTS, {NULL, "/sys/fs/cgroup/"}, 14},
        /* In a container: a part of the hierarchy is mounted. */
        {"0::/docker/ab\n",
         "30 24 0:26 /docker/ab /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
         {NULL, "/sys/fs/cgroup"},
         14},
        {"3:memory:/docker/ab/c\n",
         "30 24 0:26 /docker/ab /m rw - cgroup cgroup rw,memory\n",
         {"/m/c", NULL},
         2},
        {"3:memory:/docker/abc\n",
         "30 24 0:26 /docker/ab /m rw - cgroup cgroup rw,memory\n",
         {"/m", NULL},
         2},
        {"0::/a b\n", "1 2 0:3 / /c\\040g rw - cgroup2 none rw\n", {NULL, "/c g/a b"}, 4},
        {"0::/a\n", "", {NULL, NULL}, 0},
        {"", V2_MOUNTS, {NULL, NULL}, 0},
        {"nonsense\n\n::\n", "nonsense - cgroup2\n1 2 3 - cgroup2 x\n", {NULL, NULL}, 0},
    };

    for (int i = 0; i < LEN(cases); i++)
        for (int version = 1; version <= 2; version++) {
            const char *folder = cases[i].folder[version - 1];
            char out[PATH_MAX] = "";
            size_t mount = 0;
            bool found = sherd__cgroup_folder(out, sizeof out, &mount, cases[i].groups,
                                              cases[i].mounts, version);
            CHECK_EQ(found, folder != NULL);
            if (found && folder)
                CHECK_TEXT(out, folder);
            if (found && folder)
                CHECK_EQ(mount, cases[i].mount);
        }
}

/* ---- files ----------------------------------------------------------------------------------- */

static int remove_one(const char *name, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(name);
}

/* A file below a folder, and the folders that lead to it. */
static void put_file(const char *root, const char *name, const char *text)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    if (!CHECK(file != NULL))
        return;
    fputs(text, file);
    fclose(file);
}

/* As on a machine with thousands of containers: the ones that count come last. */
static void put_many_mounts(const char *root, const char *last)
{
    enum { LINES = 4000, LINE = 160 };
    char *text = malloc(LINES * LINE + strlen(last) + 1), *at = text;

    if (!CHECK(text != NULL))
        return;
    for (int i = 0; i < LINES; i++)
        at += sprintf(at, "%d 1 0:%d / /run/%070d rw - tmpfs tmpfs rw\n", 100 + i, i, i);
    strcpy(at, last);
    put_file(root, "/proc/self/mountinfo", text);
    free(text);
}

static void the_least_of_a_cgroup_and_those_above_counts(void)
{
    char root[] = "/tmp/sherd-limit-XXXXXX";
    uint64_t machine = sherd__machine_memory();
    sherd__limit limit;

    if (!CHECK(mkdtemp(root) != NULL))
        return;
    limit = sherd__limit_detect(root, 4); /* no file at all */
    CHECK(limit.by == SHERD__BY_MACHINE && limit.bytes == sherd__limit_share(machine, 4));
    put_file(root, "/proc/self/cgroup", "0::/a/b/c\n");
    put_file(root, "/proc/self/mountinfo", V2_MOUNTS);
    put_file(root, "/sys/fs/cgroup/a/b/c/memory.max", "max\n");
    limit = sherd__limit_detect(root, 4);
    CHECK(limit.by == SHERD__BY_MACHINE);
    put_file(root, "/sys/fs/cgroup/a/memory.max", "536870912\n");
    put_file(root, "/sys/fs/cgroup/a/b/memory.max", "805306368\n");
    limit = sherd__limit_detect(root, 4);
    CHECK(limit.by == SHERD__BY_CGROUP && limit.bytes == 448 * MB);
    put_file(root, "/sys/fs/cgroup/a/b/c/memory.max", "268435456\n");
    CHECK_EQ(sherd__limit_detect(root, 4).bytes, 224 * MB);
    CHECK_EQ(sherd__limit_detect(root, 16).bytes, 192 * MB); /* 4 MB a rank are left */
    CHECK_EQ(sherd__limit_detect(root, 64).bytes, 128 * MB); /* but at most half */
    /* Both versions at once. */
    put_file(root, "/proc/self/cgroup", "4:memory:/x\n0::/a/b/c\n");
    put_file(root, "/proc/self/mountinfo", V1_MOUNTS V2_MOUNTS);
    put_file(root, "/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_EQ(sherd__limit_detect(root, 4).bytes, 224 * MB);
    put_file(root, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n");
    CHECK_EQ(sherd__limit_detect(root, 4).bytes, 112 * MB);
    put_many_mounts(root, V1_MOUNTS V2_MOUNTS);
    CHECK_EQ(sherd__limit_detect(root, 4).bytes, 112 * MB);
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a real cgroup --------------------------------------------------------------------------- */

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    bool good = file && fputs(text, file) >= 0;
    return file && fclose(file) == 0 && good;
}

static bool read_text(char *out, size_t room, const char *name)
{
    FILE *file = fopen(name, "r");
    size_t n = file ? fread(out, 1, room - 1, file) : 0;

    out[n] = '\0';
    return file && fclose(file) == 0 && n > 0;
}

/* A cgroup is 96 of these. An eighth of it is left to what is no tensor; three processes with the
 * address sanitizer have about 60 MB of that. */
#ifdef __SANITIZE_ADDRESS__
enum { PART = 8 * MB };
#else
enum { PART = MB };
#endif

/* A memory cgroup of 96 parts below the one that this process is in; false where that is not
 * possible. */
static bool make_cgroup(char *folder, size_t room)
{
    static const char *const file[] = {"memory.limit_in_bytes", "memory.max"};
    static char groups[1 << 16], mounts[1 << 18];
    char limit[24];
    size_t mount;

    snprintf(limit, sizeof limit, "%d", 96 * PART);
    if (!read_text(groups, sizeof groups, "/proc/self/cgroup") ||
        !read_text(mounts, sizeof mounts, "/proc/self/mountinfo"))
        return false;
    for (int version = 1; version <= 2; version++) {
        if (!sherd__cgroup_folder(folder, room - 64, &mount, groups, mounts, version))
            continue;
        snprintf(folder + strlen(folder), 64, "/sherd-test-%d", (int)getpid());
        if (mkdir(folder, 0755))
            continue;
        if (write_file(folder, file[version - 1], limit))
            return true;
        rmdir(folder);
    }
    return false;
}

/* All that there is, written; then once more. */
static int fill_cgroup(sherd_world *world, void *payload)
{
    sherd__block *block[128];
    bool good = sherd_world_memory(world).limit_bytes == 84 * PART;

    (void)payload;
    for (int turn = 0; turn < 3; turn++) {
        int count = 0;
        while (count < 128 && (block[count] = sherd__block_take(world, PART, true)))
            memset(sherd__block_data(block[count++]), 1, PART);
        good = good && count < 84 && sherd_world_check(world) == SHERD_ENOMEM &&
               strstr(sherd_world_error(world), "the memory cgroup");
        while (count > 0)
            sherd__block_give(world, block[--count]);
        good = good && !sherd_world_check(world);
    }
    return good ? 0 : 1;
}

static int spawn_two(void)
{
    sherd_world_options options = {.ranks = 2, .no_pin = true};
    int exit_status = -1;

    return sherd_spawn(&exit_status, &options, fill_cgroup, NULL) ? 98 : exit_status;
}

static void ranks_in_a_cgroup_are_not_killed(void)
{
    char folder[PATH_MAX], number[32];
    int status = 0;

    if (!make_cgroup(folder, sizeof folder)) {
        printf("skipped: no memory cgroup can be made here\n");
        return;
    }
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(number, sizeof number, "%d", (int)getpid());
        if (!write_file(folder, "cgroup.procs", number))
            _exit(99);
        _exit(spawn_two());
    }
    waitpid(pid, &status, 0);
    rmdir(folder);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 99)
        printf("skipped: no process can be put into a memory cgroup here\n");
    else
        CHECK_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), 0);
}

static const check_test tests[] = {
    {TEST(numbers_of_bytes_are_read)},        {TEST(files_of_cgroups_are_read)},
    {TEST(folders_of_cgroups_are_found)},     {TEST(the_least_of_a_cgroup_and_those_above_counts)},
    {TEST(ranks_in_a_cgroup_are_not_killed)},
};
CHECK_MAIN(tests)
