/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that a carrier brings together tell each other at first: the machine that they are
 * on. */
#define CHECK_PURE
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "world/inside.h"
#include "launch/hello.h"

enum { LONGEST = 64, GOOD = 0, BAD = 1, NOT_ALLOWED = 2 };

/* Linux takes names of up to 64 letters. */
static int names_itself(int length)
{
    char name[LONGEST + 1] = "";

    memset(name, 'h', (size_t)length);
    if ((unshare(CLONE_NEWUTS) && unshare(CLONE_NEWUSER | CLONE_NEWUTS)) ||
        sethostname(name, (size_t)length))
        return NOT_ALLOWED;
    sherd__hello mine = sherd__introduce(&(sherd_world_options){0});
    return strcmp(mine.host, name) == 0 ? GOOD : BAD;
}

static void a_machine_is_named_however_long_its_name_is(void)
{
    static const int lengths[] = {1, 62, 63, 64};

    for (int i = 0; i < LEN(lengths); i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit(names_itself(lengths[i]));
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) != BAD);
        if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_ALLOWED)
            printf("skipped: names of machines can not be set here\n");
    }
}

/* Ranks of one name are together, those of two are apart, however much of a name is shown. */
static void given_names_are_compared_to_their_ends(void)
{
    char name[200] = "";
    sherd__hello mine[2];

    memset(name, 'n', sizeof name - 2);
    for (int i = 0; i < 2; i++) {
        name[sizeof name - 2] = (char)('a' + i);
        setenv("SHERD_HOST", name, 1);
        mine[i] = sherd__introduce(&(sherd_world_options){0});
        CHECK_EQ(strlen(mine[i].host), sizeof mine[i].host - 1);
    }
    unsetenv("SHERD_HOST");
    CHECK(sherd__is_here(&mine[0], &mine[0]) && !sherd__is_here(&mine[0], &mine[1]));
}

static const check_test tests[] = {
    {TEST(a_machine_is_named_however_long_its_name_is)},
    {TEST(given_names_are_compared_to_their_ends)},
};
CHECK_MAIN(tests)
