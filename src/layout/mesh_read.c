/* SPDX-License-Identifier: Apache-2.0 */
/* Reading meshes: "2x4", "dp=2,tp=2", "x=2@2,3". */
#include "inside.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

/* The extent of the key's next axis; multiplies key->count by it. */
static sherd_status scan_extent(sherd__space *space, const char *function, sherd__scanner *s,
                                sherd_mesh *key)
{
    int64_t extent;

    sherd__skip_blanks(s);
    sherd__scanner start = *s;
    if (!sherd__take_integer(s, &extent) || extent < 1)
        return sherd__expected(space->diag, function, &start, "an extent >= 1");
    if (!sherd__mul(key->count, extent, &key->count) || key->count > space->ranks)
        return sherd__expected(space->diag, function, &start,
                               "an extent with which the mesh needs no more ranks than the world "
                               "has (%d)",
                               space->ranks);
    key->extent[key->axes] = extent;
    return SHERD_OK;
}

static sherd_status scan_name(sherd__diag *diag, const char *function, sherd__scanner *s,
                              sherd_mesh *key)
{
    int axis = key->axes;

    sherd__skip_blanks(s);
    sherd__scanner start = *s;
    if (!sherd__take_name(s, key->name[axis], sizeof key->name[axis]))
        return sherd__expected(diag, function, &start,
                               axis ? "an axis name of at most %d letters"
                                    : "a mesh: 2x4, or an axis name of at most %d letters",
                               SHERD__NAME_BYTES - 1);
    for (int i = 0; i < axis; i++)
        if (strcmp(key->name[i], key->name[axis]) == 0)
            return sherd__expected(diag, function, &start, "a new axis name, %s is there already",
                                   key->name[axis]);
    if (!sherd__take(s, "="))
        return sherd__expected(diag, function, s, "= and an extent");
    return SHERD_OK;
}

/* "2x4" or "x=2,y=4" into the key's axes. */
static sherd_status scan_axes(sherd__space *space, const char *function, sherd__scanner *s,
                              sherd_mesh *key)
{
    sherd_status status = SHERD_OK;

    key->count = 1;
    sherd__skip_blanks(s);
    bool named = !(*s->at >= '0' && *s->at <= '9');
    do {
        if (key->axes == SHERD_MAX_AXES)
            return sherd__expected(space->diag, function, s, "at most %d axes", SHERD_MAX_AXES);
        if (named)
            status = scan_name(space->diag, function, s, key);
        else
            snprintf(key->name[key->axes], sizeof key->name[0], "a%d", key->axes);
        if (status == SHERD_OK)
            status = scan_extent(space, function, s, key);
        if (status != SHERD_OK)
            return status;
        key->axes++;
    } while (sherd__take(s, named ? "," : "x"));
    return SHERD_OK;
}

/* Rank i of a list of `count`, and the comma before it. */
static sherd_status scan_rank(int *out, sherd__space *space, const char *function,
                              sherd__scanner *s, int64_t i, int64_t count)
{
    int64_t rank;

    if (i && !sherd__take(s, ","))
        return sherd__expected(space->diag, function, s, ", and a rank: the mesh has %lld ranks",
                               (long long)count);
    sherd__skip_blanks(s);
    sherd__scanner start = *s;
    if (!sherd__take_integer(s, &rank) || rank >= space->ranks)
        return sherd__expected(space->diag, function, &start, "a rank of the world, 0 to %d",
                               space->ranks - 1);
    *out = sherd__int(rank);
    return SHERD_OK;
}

/*
 * The ranks of a list at `s`, of which the one at `at` stands there before: says so at its place.
 */
static sherd_status say_repeat(sherd__space *space, const char *function, sherd__scanner s,
                               int64_t at)
{
    int64_t rank = 0;

    for (int64_t i = 0; i < at; i++) {
        sherd__take_integer(&s, &rank);
        sherd__take(&s, ",");
    }
    sherd__skip_blanks(&s);
    sherd__scanner start = s;
    sherd__take_integer(&s, &rank);
    return sherd__expected(space->diag, function, &start, "a new rank, %lld is there already",
                           (long long)rank);
}

/* One list of exactly `count` different ranks; *out is memory of its own. */
static sherd_status scan_ranks(int **out, sherd__space *space, const char *function,
                               sherd__scanner *s, int64_t count)
{
    const sherd__scanner start = *s;
    int64_t repeat = count;

    /* No list has more ranks than letters: a huge mesh takes no memory before its list is read. */
    int64_t room = sherd__min(count, (int64_t)strlen(s->at) + 1);
    int *ranks = sherd__alloc(space->heap, (size_t)room, sizeof *ranks);
    sherd_status status = ranks ? SHERD_OK : sherd__no_memory(space->diag, function);
    for (int64_t i = 0; status == SHERD_OK && i < count; i++)
        status = scan_rank(&ranks[i], space, function, s, i, count);
    if (status == SHERD_OK)
        status = sherd__ranks_repeat(&repeat, space, function, ranks, count);
    if (status == SHERD_OK && repeat < count)
        status = say_repeat(space, function, start, repeat);
    if (status != SHERD_OK) {
        sherd__free(space->heap, ranks);
        return status;
    }
    *out = ranks;
    return SHERD_OK;
}

sherd_status sherd__mesh_scan(const sherd_mesh **out, sherd__space *space, const char *function,
                              sherd__scanner *s)
{
    sherd_mesh key;
    int *ranks = NULL;

    *out = NULL;
    memset(&key, 0, sizeof key);
    sherd_status status = scan_axes(space, function, s, &key);
    if (status == SHERD_OK && sherd__take(s, "@"))
        status = scan_ranks(&ranks, space, function, s, key.count);
    if (status == SHERD_OK) {
        key.ranks = ranks;
        status = sherd__mesh_build(out, space, function, &key);
    }
    sherd__free(space->heap, ranks);
    return status;
}

sherd_status sherd__mesh_read(const sherd_mesh **out, sherd__space *space, const char *text)
{
    static const char function[] = "sherd_mesh_parse";
    sherd__scanner s = {text, text};
    const sherd_mesh *mesh;

    *out = NULL;
    sherd_status status = sherd__mesh_scan(&mesh, space, function, &s);
    if (status != SHERD_OK)
        return status;
    if (!sherd__at_end(&s))
        return sherd__expected(space->diag, function, &s, "the end of the mesh");
    *out = mesh;
    return SHERD_OK;
}
