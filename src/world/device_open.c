/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPUs of a world: opening them, and which steps go from one to another. That is found out when
 * the world is opened, before anything moves: some machines do not let one GPU read another's
 * memory, and some containers no process another's.
 */
#include "devices.h"

#include <stdlib.h>
#include <string.h>

sherd__device *sherd__world_device(const sherd_world *world)
{
    return world->device;
}

/* ---- who reaches whom ------------------------------------------------------------------------ */

/* Whether all of a group share the arena, and reach each other; NULL: this rank alone. */
static bool is_close(const sherd_world *world, const sherd__group *group)
{
    for (int q = -1; group && (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        if (!sherd__is_near(world, q))
            return false;
    return true;
}

bool sherd__goes_there(sherd_world *world, const sherd_step *step, const sherd_mesh *among)
{
    sherd__group *group;

    return world->device && !world->devices.apart &&
           (!world->mirrors ||
            (sherd__step_group(world, step, among, &group) && is_close(world, group)));
}

bool sherd__all_go_there(sherd_world *world, const sherd_mesh *mesh)
{
    sherd__group *group;

    return world->device && !world->devices.apart &&
           (!world->mirrors ||
            (sherd__group_find(world, mesh->root, sherd__mesh_axis_bits(mesh), &group) &&
             is_close(world, group)));
}

/* Words that a rank tells at the opening: a place and a mark, to be tried. */
enum { TRIED_MARK = SHERD__DEVICE_WORDS, TRIED_WORDS = TRIED_MARK + SHERD__MARK_WORDS };

/* Whether this rank reaches all that share the arena with it; their marks of what they have read
 * are kept. */
static int64_t reaches_all(sherd_world *world, const int64_t *all)
{
    bool good = true;

    for (int q = 0; q < world->ranks; q++) {
        const int64_t *word = all + (int64_t)q * TRIED_WORDS;
        memcpy(world->devices.reads + (int64_t)q * SHERD__MARK_WORDS, word + TRIED_MARK,
               SHERD__MARK_WORDS * sizeof *word);
        if (q != world->rank && sherd__is_near(world, q))
            good = sherd__device_reaches(world->device, word, word + TRIED_MARK) && good;
    }
    return good;
}

/* Tell all ranks of the world some words. */
static bool tell(sherd_world *world, const int64_t *mine, int words, int64_t *all)
{
    int16_t place[SHERD_MAX_RANKS];

    sherd__group_places(&world->whole, place);
    return world->transport->share(
        world, &world->whole, "sherd_world_open",
        &(sherd__sharing){.mine = mine, .words = words, .all = all, .place = place});
}

static bool try_all(sherd_world *world, sherd__device_block *block, int64_t *all)
{
    int64_t mine[TRIED_WORDS], good;

    sherd__device_export(world->device, mine, block, 0);
    sherd__device_mark(world->device, SHERD__MARK_READ, mine + TRIED_MARK);
    if (!tell(world, mine, TRIED_WORDS, all))
        return false;
    good = reaches_all(world, all);
    if (!tell(world, &good, 1, all))
        return false;
    for (int q = 0; q < world->ranks; q++)
        world->devices.apart |= sherd__is_near(world, q) && !all[q];
    return true;
}

sherd_status sherd__world_device_meet(sherd_world *world)
{
    size_t ranks = (size_t)world->ranks;

    if (!world->device || ranks == 1)
        return SHERD_OK;
    int64_t *all = sherd__alloc(&world->heap, ranks * TRIED_WORDS, sizeof *all);
    sherd__device_block *block = sherd__device_take(world->device, 1);
    world->devices.reads =
        sherd__alloc(&world->heap, ranks * SHERD__MARK_WORDS, sizeof *world->devices.reads);
    bool good = all && world->devices.reads;
    if (!good) /* the others wait for what this one has no room for */
        sherd__raise(world, SHERD_ENOMEM, "sherd_world_open: out of memory");
    good = good && try_all(world, block, all) && block; /* without a block all learn that, too */
    const char *fault = sherd__device_fault(world->device);
    sherd__device_give(world->device, block);
    sherd__free(&world->heap, all);
    if (fault)
        return sherd__fail(&world->diag, SHERD_ENOTSUP, "the GPU cannot be used: %s", fault);
    good = !sherd__device_lacked(world->device) && good;
    return good ? SHERD_OK : sherd__no_memory(&world->diag, "sherd_world_open");
}

/* ---- opening --------------------------------------------------------------------------------- */

sherd_status sherd__world_device_open(sherd_world *world, const sherd_world_options *options)
{
    const char *name = options && options->device ? options->device : getenv("SHERD_DEVICE");

    if (!name || !*name || strcmp(name, "cpu") == 0)
        return SHERD_OK;
    return sherd__device_open(&world->device, &world->heap, &world->diag, name, world->rank);
}
