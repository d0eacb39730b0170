/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that the kernel kills for lack of memory: the last line says that it was that. The test
 * makes a memory cgroup for a job, where it is allowed to.
 */
#define CHECK_PURE
#include "launched.h"

#include <sys/stat.h>

/* The launcher, a wrapper and two ranks have about 100 MB with the address sanitizer. */
#ifdef __SANITIZE_ADDRESS__
enum { PART = 4 << 20 };
#else
enum { PART = 1 << 20 };
#endif
enum { LIMIT = 96 * PART, TOO_MUCH = 256 * PART };

static int play_rank(const char *mode)
{
    sherd_world *world;

    if (strcmp(mode, "memory") == 0) {
        puts(getenv("SHERD_ARENA_BYTES"));
        return 0;
    }
    if (sherd_world_open(&world, NULL))
        return 21;
    const sherd_mesh *mesh = line_of_ranks(world);
    meet(world, mesh);
    if (strcmp(mode, "eats") == 0 && sherd_world_rank(world) == 1) {
        volatile char *memory = malloc(TOO_MUCH);
        for (size_t i = 0; memory && i < TOO_MUCH; i += 4096)
            memory[i] = 1;
    }
    if (strcmp(mode, "dies") == 0 && sherd_world_rank(world) == 1)
        raise(SIGKILL);
    meet(world, mesh);
    return sherd_world_close(world) ? 1 : 0;
}

/* ---- a group --------------------------------------------------------------------------------- */

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[600];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Where groups inside of this process's may be made. */
static void find_groups(char *out, size_t room, const char **limit)
{
    static char text[PROGRAM_TEXT];
    int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

    program_read(fd, text);
    close(fd);
    const char *one = strstr(text, ":memory:"), *two = strstr(text, "0::");
    const char *group = one ? one + 8 : two ? two + 3 : "";
    snprintf(out, room, "/sys/fs/cgroup%s%.*s/sherd-test-%d", one ? "/memory" : "",
             (int)strcspn(group, "\n"), group, (int)getpid());
    *limit = one ? "memory.limit_in_bytes" : "memory.max";
}

/* A job in a group with a limit; pid -1 where such a group can not be. */
static program launch_in(const char *group, const char *mode)
{
    char line[1024], own[32];

    /* Whoever is in the group starts the job there, then leaves it. */
    snprintf(own, sizeof own, "%d", (int)getpid());
    if (!write_file(group, "cgroup.procs", own))
        return (program){.pid = -1};
    snprintf(line, sizeof line, "%s run -n 2 -- %s %s", SHERD, self, mode);
    program p = program_start(line);
    return p;
}

static void leave_group(const char *group)
{
    char parent[512], own[32];

    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(group, '/') - group), group);
    snprintf(own, sizeof own, "%d", (int)getpid());
    CHECK(write_file(parent, "cgroup.procs", own));
}

static void lack_of_memory_is_named(void)
{
    static const char *const modes[] = {"eats", "behind:eats", "dies"};
    char group[512], bytes[32];
    const char *limit;

    find_groups(group, sizeof group, &limit);
    snprintf(bytes, sizeof bytes, "%d", LIMIT);
    if (mkdir(group, 0777) || !write_file(group, limit, bytes)) {
        printf("skipped: no memory cgroup can be made here\n");
        rmdir(group);
        return;
    }
    for (int i = 0; i < LEN(modes); i++) {
        program p = launch_in(group, modes[i]);
        leave_group(group);
        const program_end *end = program_wait(&p);
        bool named = strstr(last_line(end->err), ": the kernel ran out of memory for this job ");
        bool good = CHECK_EQ(named, strcmp(modes[i], "dies") != 0);
        good &= CHECK(strncmp(last_line(end->err), "sherd: rank 1 ", 14) == 0);
        good &= CHECK(end->status == 137 || (i == 1 && end->status));
        good &= CHECK_EQ(end->left, 0);
        if (!good)
            fprintf(stderr, "%s: %d: %s\n", modes[i], end->status, end->err);
    }
    CHECK_EQ(rmdir(group), 0);
}

static void the_limit_is_passed_on(void)
{
    static const struct {
        const char *size, *bytes;
    } sizes[] = {{"12345", "12345\n"}, {"8G", "8589934592\n"}, {"3K", "3072\n"}};
    static const char *const bad[] = {"",    "0",           "-1",       "8GB", "G",
                                      "+8G", "9999999999T", "5000000T", "1.5G"};
    char options[64];

    for (int i = 0; i < LEN(sizes); i++) {
        snprintf(options, sizeof options, "-n 1 --memory %s", sizes[i].size);
        program p = launch(options, "memory");
        CHECK_TEXT(program_wait(&p)->out, sizes[i].bytes);
    }
    for (int i = 0; i < LEN(bad); i++) {
        snprintf(options, sizeof options, "-n 1 --memory=%s", bad[i]);
        program p = launch(options, "memory");
        const program_end *end = program_wait(&p);
        CHECK_EQ(end->status, 2);
        CHECK_EQ(program_lines(end->err), 1);
    }
}

static const check_test tests[] = {
    {TEST(lack_of_memory_is_named)},
    {TEST(the_limit_is_passed_on)},
};
LAUNCHED_MAIN(tests, play_rank)
