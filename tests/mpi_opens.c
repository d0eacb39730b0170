/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses MPI itself, for test_world_mpi_opens.c: it opens a world of all ranks, and
 * does what its first argument says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>
#include <sherd/mpi.h>

/* Started by a rank: no rank of anything. */
static int be_alone(void)
{
    sherd_world *world;

    if (sherd_world_open(&world, NULL))
        return 1;
    printf("alone: %d\n", sherd_world_ranks(world));
    return sherd_world_close(world) ? 1 : 0;
}

/* A file of all ranks. */
static sherd_status write_file(sherd_world *world, const char *path)
{
    int64_t two = 2;
    const sherd_named_tensor list = {"x", sherd_constant(world, SHERD_F32, &two, 1, 1)};

    return sherd_file_write(world, path, &list, 1, NULL, 0);
}

static int start_program(const char *self)
{
    char line[1024];

    snprintf(line, sizeof line, "%s alone", self);
    return system(line) != 0;
}

/* What a collective function says, in one line. */
static void say(const char *what, sherd_status status, const char *text)
{
    printf("%s %s: %s\n", what, sherd_status_name(status), text);
    fflush(stdout);
}

/* MPI ends before the world. */
static int end_early(sherd_world *world)
{
    MPI_Finalize();
    say("check", sherd_world_check(world), sherd_world_error(world));
    say("close", sherd_world_close(world), "");
    return 0;
}

/* Of mode "nowhere", the last rank has no place for its world. */
static sherd_world **place_of(sherd_world **world, const char *mode)
{
    int rank, ranks;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return strcmp(mode, "nowhere") == 0 && rank + 1 == ranks ? NULL : world;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;
    int bad = 0;

    if (strcmp(mode, "alone") == 0)
        return be_alone();
    MPI_Init(&argc, &argv);
    sherd_status status = sherd_world_open_mpi(place_of(&world, mode), MPI_COMM_WORLD,
                                               &(sherd_world_options){.error = text});
    if (status) {
        say("open", status, text);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Finalize();
        return 3;
    }
    if (strcmp(mode, "early") == 0)
        return end_early(world);
    printf("rank %d of %d\n", sherd_world_rank(world), sherd_world_ranks(world));
    if (strcmp(mode, "starts") == 0)
        bad = start_program(argv[0]);
    else if (strcmp(mode, "writes") == 0)
        bad = write_file(world, argv[2]) != SHERD_OK;
    bad |= sherd_world_close(world) != SHERD_OK;
    MPI_Finalize();
    return bad;
}
