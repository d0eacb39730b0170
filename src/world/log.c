/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log: calls, bytes and time by kind and axes. Groups of different meshes whose axes have
 * the same names share a row. Rows are made with the mesh, so that a call only adds to three
 * numbers.
 *
 * Reading a clock twice takes a tenth of a microsecond, as long as the work of a small call. So of
 * calls that take a few microseconds one in sixteen is timed, and the following ones are assumed to
 * take as long; but a long wait has read the clock anyway, and counts as measured.
 */
#include "inside.h"

#include "base/num.h"

#include <string.h>

enum {
    LITTLE = 128 << 10, /* bytes */
    TIMED = 16,         /* calls, of which one is */
    MOST_NS = 20000     /* for which one stands: more was no work, but another process */
};

const char *sherd__log_op(int op)
{
    return op == SHERD__SHARE ? "share" : sherd_step_kind_name((sherd_step_kind)op);
}

bool sherd__log_add(sherd_world *world, sherd__group *group)
{
    char *axes;

    for (int i = 0; i < world->tallies; i += SHERD__OPS)
        if (strcmp(world->tally[i].axes, group->name) == 0) {
            group->tally = i;
            return true;
        }
    if (!sherd__counts_reserve(world, world->tallies + SHERD__OPS, world->counts.places))
        return false;
    if (world->tallies + SHERD__OPS > world->tally_room) {
        int room = world->tally_room + 8 * SHERD__OPS;
        sherd__tally *grown = sherd__grow(&world->heap, world->tally, (size_t)world->tally_room,
                                          (size_t)room, sizeof *grown);
        if (!grown)
            return false;
        world->tally = grown;
        world->tally_room = room;
    }
    if (!(axes = sherd__copy_text(&world->heap, group->name)))
        return false;
    group->tally = world->tallies;
    for (int op = 0; op < SHERD__OPS; op++)
        world->tally[world->tallies++] = (sherd__tally){.op = sherd__log_op(op), .axes = axes};
    return true;
}

sherd__tally *sherd__log_row(sherd_world *world, const sherd__group *group, int op)
{
    return &world->tally[group->tally + op];
}

sherd__timing sherd__log_begin(const sherd_world *world, const sherd__group *group, int op,
                               int64_t bytes)
{
    const sherd__tally *row = &world->tally[group->tally + op];
    bool timed =
        bytes >= LITTLE || row->usual == 0 || row->calls % TIMED == 0 || sherd__is_dry(world);

    return (sherd__timing){timed ? sherd__clock(world) : 0, world->waited};
}

void sherd__log_end(sherd_world *world, const sherd__group *group, int op, int64_t bytes,
                    sherd__timing timing)
{
    sherd__tally *row = sherd__log_row(world, group, op);
    int64_t waited = world->waited - timing.waited;
    int64_t time = timing.start ? sherd__clock(world) - timing.start : row->usual + waited;

    row->calls++;
    row->bytes += bytes;
    row->nanoseconds += time;
    if (timing.start && bytes < LITTLE)
        row->usual = sherd__min(time > waited ? time - waited : 1, MOST_NS);
    sherd__counts_add(world, group->tally + op, bytes);
}

void sherd__log_clear(sherd_world *world)
{
    for (int i = 0; i < world->tallies; i += SHERD__OPS)
        sherd__free(&world->heap, world->tally[i].axes);
    sherd__free(&world->heap, world->tally);
    world->tally = NULL;
    world->tallies = world->tally_room = 0;
    sherd__counts_clear(world);
}

int sherd_comm_count(const sherd_world *world)
{
    int count = 0;

    for (int i = 0; world && i < world->tallies; i++)
        count += world->tally[i].calls > 0;
    return count;
}

sherd_comm_entry sherd_comm_get(const sherd_world *world, int i)
{
    for (int k = 0; world && i >= 0 && k < world->tallies; k++) {
        const sherd__tally *row = &world->tally[k];
        if (row->calls > 0 && i-- == 0)
            return (sherd_comm_entry){row->op, row->axes, row->calls, row->bytes, row->nanoseconds};
    }
    return (sherd_comm_entry){0};
}

void sherd_comm_reset(sherd_world *world)
{
    if (world)
        sherd__counts_reset(world);
    for (int i = 0; world && i < world->tallies; i++)
        world->tally[i].calls = world->tally[i].bytes = world->tally[i].nanoseconds = 0;
}
