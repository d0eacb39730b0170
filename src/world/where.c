/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm log by modules: in which module this rank is, and what calls it makes there. The rooms
 * above set a number when they enter a module or go backward; the path behind it is looked up once
 * per module. The table of counts is sized for some kinds of calls per module; if it is full, calls
 * of further kinds are counted as outside of any module, whose rows always have room.
 */
#include "inside.h"

#include <fnmatch.h>
#include <string.h>

enum { ROWS_A_PLACE = 8, FEWEST_ROWS = 64, FEW_BYTES = 256 };

/* ---- counting -------------------------------------------------------------------------------- */

static uint64_t key_of(sherd__where where, int row)
{
    return (uint64_t)(where + 1) << 32 | (uint32_t)row;
}

static sherd__where where_of(uint64_t key)
{
    return (sherd__where)(key >> 32) - 1;
}

static sherd__called *find(sherd__called *row, size_t room, uint64_t key)
{
    size_t i = sherd__hash_word(5, key) & (room - 1);

    while (row[i].key && row[i].key != key)
        i = (i + 1) & (room - 1);
    return &row[i];
}

bool sherd__counts_reserve(sherd_world *world, int tallies, int places)
{
    sherd__counts *c = &world->counts;
    size_t wanted = 2 * (2 * (size_t)tallies + ROWS_A_PLACE * (size_t)places), room = FEWEST_ROWS;

    /* Modules may have taken up to what the rows of no module needed when they were fewer. */
    while (room < wanted || room - room / 8 <= c->used + 2 * (size_t)tallies)
        room *= 2;
    if (room <= c->room)
        return true;
    sherd__called *row = sherd__alloc(&world->heap, room, sizeof *row);
    if (!row)
        return false;
    for (size_t i = 0; i < c->room; i++)
        if (c->row[i].key)
            *find(row, room, c->row[i].key) = c->row[i];
    sherd__free(&world->heap, c->row);
    c->row = row;
    c->last = NULL;
    c->room = room;
    return true;
}

/* Whether a module may take one more row: those of no module must go in at any time. */
static bool has_room(const sherd_world *world)
{
    const sherd__counts *c = &world->counts;

    return c->used + 2 * (size_t)world->tallies < c->room - c->room / 8;
}

void sherd__counts_add(sherd_world *world, int row, int64_t bytes)
{
    sherd__counts *c = &world->counts;
    uint64_t key = key_of(c->now, row);
    sherd__called *at = c->last && c->last->key == key ? c->last : find(c->row, c->room, key);

    if (!at->key && c->now > SHERD__BACKWARD && !has_room(world)) {
        key = key_of(c->now & SHERD__BACKWARD, row);
        at = find(c->row, c->room, key);
    }
    c->used += at->key == 0;
    at->key = key;
    c->last = at;
    at->calls++;
    at->bytes += bytes;
}

void sherd__counts_reset(sherd_world *world)
{
    sherd__counts *c = &world->counts;

    if (c->row)
        memset(c->row, 0, c->room * sizeof *c->row);
    c->used = 0;
}

void sherd__counts_clear(sherd_world *world)
{
    sherd__counts *c = &world->counts;

    for (int i = 0; i < c->places; i++)
        sherd__free(&world->heap, c->place[i].path);
    sherd__free(&world->heap, c->place);
    sherd__free(&world->heap, c->row);
    *c = (sherd__counts){0};
}

/* ---- places ---------------------------------------------------------------------------------- */

sherd__where sherd__where_now(const sherd_world *world)
{
    return world->counts.now;
}

sherd__where sherd__where_set(sherd_world *world, sherd__where where)
{
    sherd__where before = world->counts.now;

    world->counts.now = where;
    return before;
}

const char *sherd__place_path(const sherd_world *world, sherd__where where)
{
    int number = sherd__place_in(where);

    return number > 0 ? world->counts.place[number - 1].path : NULL;
}

int sherd__place_find(sherd_world *world, const char *path)
{
    sherd__counts *c = &world->counts;
    uint64_t hash = sherd__hash_text(6, path);

    for (int i = 0; i < c->places; i++)
        if (c->place[i].hash == hash && strcmp(c->place[i].path, path) == 0)
            return i + 1;
    if (c->places == SHERD__PLACES)
        return 0;
    sherd__where_place *list =
        sherd__reserve(&world->heap, c->place, c->places, &c->place_room, 16, sizeof *list);
    if (!list)
        return -1;
    c->place = list;
    char *copy = NULL;
    if (!sherd__counts_reserve(world, world->tallies, c->places + 1) ||
        !(copy = sherd__copy_text(&world->heap, path)))
        return -1;
    c->place[c->places++] = (sherd__where_place){copy, hash};
    return c->places;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Whether the first name of a path, up to the dot, fits that of a pattern; names of any length. */
static bool name_fits(const char *pattern, size_t long_pattern, const char *name, size_t long_name)
{
    sherd__heap heap = {0};
    size_t bytes = long_pattern + long_name + 2;
    char few[FEW_BYTES], *both = few;

    if (long_pattern == long_name && memcmp(pattern, name, long_name) == 0)
        return true;
    if (bytes > sizeof few && !(both = sherd__alloc(&heap, bytes, 1)))
        return false;
    memcpy(both, pattern, long_pattern);
    memcpy(both + long_pattern + 1, name, long_name);
    both[long_pattern] = both[bytes - 1] = '\0';
    bool fits = fnmatch(both, both + long_pattern + 1, 0) == 0;
    if (both != few)
        sherd__free(&heap, both);
    return fits;
}

/* Whether a path is one that the pattern means, or below one. */
static bool is_within(const char *path, const char *pattern)
{
    while (*pattern) {
        size_t p = strcspn(pattern, "."), n = strcspn(path, ".");
        if (n == 0 || !name_fits(pattern, p, path, n))
            return false;
        pattern += p + (pattern[p] == '.');
        path += n + (path[n] == '.');
    }
    return true;
}

static bool is_op(const char *op)
{
    for (int i = 0; i < SHERD__OPS; i++)
        if (strcmp(sherd__log_op(i), op) == 0)
            return i != SHERD_STEP_SLICE && i != SHERD_STEP_PARTITION;
    return false;
}

/* Whether these are axes of a mesh, in its order. */
static bool are_axes_of(const sherd_mesh *mesh, const char *axes)
{
    for (int a = 0; a < mesh->axes && *axes; a++) {
        size_t n = strlen(mesh->name[a]);
        bool here = strncmp(axes, mesh->name[a], n) == 0 && (!axes[n] || axes[n] == ',');
        if (here)
            axes += n + (axes[n] == ',');
    }
    return *axes == '\0';
}

static bool are_axes(const sherd_world *world, const char *axes)
{
    const sherd_mesh *mesh;
    size_t cursor = 0;

    if (strcmp(axes, "world") == 0)
        return true;
    while (*axes && (mesh = sherd__map_next(&world->space.meshes, &cursor)))
        if (are_axes_of(mesh, axes))
            return true;
    return false;
}

/* Whether a filter can mean anything. */
static bool has_meaning(const sherd_world *world, const sherd_comm_filter *f)
{
    bool known = !f->module;

    if (f->direction < SHERD_COMM_BOTH || f->direction > SHERD_COMM_BACKWARD)
        return false;
    if ((f->op && !is_op(f->op)) || (f->axes && !are_axes(world, f->axes)))
        return false;
    for (int i = 0; i < world->counts.places && !known; i++)
        known = is_within(world->counts.place[i].path, f->module);
    return known;
}

static bool is_meant(const sherd_world *world, const sherd_comm_filter *f, const sherd__called *row)
{
    const sherd__tally *tally = &world->tally[row->key & UINT32_MAX];
    sherd__where where = where_of(row->key);
    const char *path = sherd__place_path(world, where);

    if (f->direction && (f->direction == SHERD_COMM_BACKWARD) != (where & SHERD__BACKWARD))
        return false;
    if ((f->op && strcmp(f->op, tally->op) != 0) || (f->axes && strcmp(f->axes, tally->axes) != 0))
        return false;
    return !f->module || (path && is_within(path, f->module));
}

/* Calls and bytes of all that is meant; calls are -1 if nothing can be. */
static sherd__called add_up(const sherd_world *world, const sherd_comm_filter *filter)
{
    static const sherd_comm_filter all;
    const sherd_comm_filter *f = filter ? filter : &all;
    sherd__called sum = {0, 0, 0};

    if (world && !has_meaning(world, f))
        return (sherd__called){0, -1, -1};
    for (size_t i = 0; world && i < world->counts.room; i++) {
        const sherd__called *row = &world->counts.row[i];
        if (!row->key || !is_meant(world, f, row))
            continue;
        sum.calls += row->calls;
        sum.bytes += row->bytes;
    }
    return sum;
}

int64_t sherd_comm_calls(const sherd_world *world, const sherd_comm_filter *filter)
{
    return add_up(world, filter).calls;
}

int64_t sherd_comm_bytes(const sherd_world *world, const sherd_comm_filter *filter)
{
    return add_up(world, filter).bytes;
}
