/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks where little is allowed: a thread with a small stack starts them, or the kernel refuses the
 * calls that memory of several processes is made by. */
#define CHECK_PURE
#include <errno.h>
#include <pthread.h>

#include "check.h"
#include "refused.h"
#include "sherd/layout.h"
#include "sherd/world.h"
#include "world/arena.h"

/* ---- a small stack --------------------------------------------------------------------------- */

static int meet(sherd_world *world, void *payload)
{
    (void)payload;
    return sherd_world_check(world) ? 1 : 0;
}

static void *spawn_two(void *as)
{
    static sherd_status status;
    int value = -1;

    status = sherd_spawn(&value, &(sherd_world_options){.ranks = 2, .as = *(sherd_ranks_as *)as},
                         meet, NULL);
    CHECK_EQ(value, 0);
    return &status;
}

static void ranks_start_from_a_small_stack(void)
{
    sherd_ranks_as kinds[] = {SHERD_PROCESSES, SHERD_THREADS};
    size_t bytes = 128 << 10;
    pthread_attr_t small;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    bytes = 1 << 20; /* what is checked takes more */
#endif
    pthread_attr_init(&small);
    CHECK_EQ(pthread_attr_setstacksize(&small, bytes), 0);
    for (int i = 0; i < LEN(kinds); i++) {
        pthread_t thread;
        void *status = NULL;
        if (!CHECK(pthread_create(&thread, &small, spawn_two, &kinds[i]) == 0))
            continue;
        pthread_join(thread, &status);
        CHECK_EQ(*(sherd_status *)status, SHERD_OK);
    }
    pthread_attr_destroy(&small);
}

/* ---- calls that are forbidden ---------------------------------------------------------------- */

/* 0: an arena can be made and shared, 1: it can not, and `text` is in the reason; 2 and more: what
 * differs. REFUSED_NOT: there is no seccomp here. */
static int without(const int *calls, int count, const char *text)
{
    sherd__diag diag = {.rank = -1};
    sherd__arena arena, again;
    int fd = -1;

    if (!refuse(calls, count, EPERM))
        return REFUSED_NOT;
    if (sherd__arena_create(&arena, 2, 0, &fd, &diag) == SHERD_OK) {
        if (sherd__arena_map(&again, fd, "a_test", &diag))
            return 2;
        char *mine = (char *)arena.base + arena.bytes - 1;
        *mine = 5;
        return ((char *)again.base)[again.bytes - 1] == 5 ? 0 : 3;
    }
    if (!strstr(diag.text, text))
        fprintf(stderr, "%s\n", diag.text);
    return strstr(diag.text, text) ? 1 : 4;
}

static int apart(const int *calls, int count, const char *text)
{
    int status = 0;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(without(calls, count, text));
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static bool is_there(int found)
{
    if (found == REFUSED_NOT)
        puts("skipped: nothing can be forbidden here");
    return found != REFUSED_NOT;
}

static void a_file_takes_the_place_of_a_memfd(void)
{
    static const int calls[] = {SYS_memfd_create};
    int found = apart(calls, LEN(calls), "");

    if (is_there(found))
        CHECK_EQ(found, 0);
}

static void what_is_forbidden_is_named(void)
{
    static const int none[] = {SYS_memfd_create, SYS_openat,
#ifdef SYS_open
                               SYS_open
#endif
    };
    static const int length[] = {SYS_ftruncate};
    int found = apart(none, LEN(none),
                      "no memory that processes share: memfd_create: Operation not permitted: the "
                      "seccomp profile");

    if (!is_there(found))
        return;
    CHECK_EQ(found, 1);
    CHECK_EQ(apart(length, LEN(length), "ftruncate: Operation not permitted: the seccomp"), 1);
}

static const check_test tests[] = {
    {TEST(ranks_start_from_a_small_stack)},
    {TEST(a_file_takes_the_place_of_a_memfd)},
    {TEST(what_is_forbidden_is_named)},
};
CHECK_MAIN(tests)
