/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a test in a folder for such: names that all ranks of a run share, and no two runs. */
#ifndef SHERD_TESTS_SCRATCH_H
#define SHERD_TESTS_SCRATCH_H

#include "check.h"
#include "sherd/world.h"

#include <sys/resource.h>
#include <unistd.h>

/*
 * "name" in that folder; two calls may be used at once. check_start has made the run a group of its
 * own. The ranks of mpirun are in different ones: whoever starts it gives them a number.
 */
static inline const char *scratch(char room[256], const char *name)
{
    const char *folder = getenv("TMPDIR"), *run = getenv("SHERD_TEST_RUN");

    snprintf(room, 256, "%s/sherd_%d_%s", folder ? folder : "/tmp",
             run ? atoi(run) : (int)getpgrp(), name);
    return room;
}

/* All ranks have come here: what rank 0 wrote is there. */
static inline void together(sherd_world *world)
{
    CHECK_OK(sherd_world_check(world));
}

/* Rank 0 makes a file of these bytes. */
static inline void put_file(sherd_world *world, const char *path, const void *data, size_t bytes)
{
    if (sherd_world_rank(world) == 0) {
        FILE *file = fopen(path, "wb");
        CHECK(file && fwrite(data, 1, bytes, file) == bytes);
        CHECK(file && fclose(file) == 0);
    }
    together(world);
}

/* How long files of this process may become. */
static inline void limit_files(sherd_world *world, rlim_t bytes)
{
    struct rlimit limit;

    together(world);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    together(world);
}

static inline void remove_file(sherd_world *world, const char *path)
{
    together(world);
    if (sherd_world_rank(world) == 0)
        CHECK_EQ(unlink(path), 0);
    together(world);
}

static inline bool is_there(const char *path)
{
    return access(path, F_OK) == 0;
}

#endif
