/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Meshes: checking, interning by content, getters. Nothing here is done per rank unless the caller
 * listed the ranks, so a mesh of a million ranks costs as much as one of two.
 */
#include "inside.h"
#include "base/hash.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

/* ---- interning ------------------------------------------------------------------------------ */

/* A key is a mesh on the stack, with root NULL for a root. */
static uint64_t hash_key(const sherd_mesh *key)
{
    uint64_t h = sherd__hash_word(0x6d657368, key->root ? key->root->hash : 0);

    h = sherd__hash_word(h, (uint64_t)key->axes);
    for (int i = 0; i < key->axes; i++) {
        h = sherd__hash_text(h, key->name[i]);
        h = sherd__hash_word(h, (uint64_t)key->extent[i]);
        h = sherd__hash_word(h, (uint64_t)key->root_axis[i]);
    }
    for (int64_t i = 0; key->ranks && i < key->count; i++)
        h = sherd__hash_word(h, (uint64_t)key->ranks[i]);
    return h;
}

static bool equals_key(const void *item, const void *other)
{
    const sherd_mesh *mesh = item, *key = other;

    if ((mesh->root == mesh ? NULL : mesh->root) != key->root || mesh->axes != key->axes)
        return false;
    for (int i = 0; i < key->axes; i++)
        if (strcmp(mesh->name[i], key->name[i]) != 0 || mesh->extent[i] != key->extent[i] ||
            mesh->root_axis[i] != key->root_axis[i])
            return false;
    if (!mesh->ranks || !key->ranks)
        return mesh->ranks == key->ranks;
    return memcmp(mesh->ranks, key->ranks, (size_t)key->count * sizeof *key->ranks) == 0;
}

void sherd__mesh_write(sherd__writer *w, const void *object)
{
    const sherd_mesh *mesh = object;

    for (int i = 0; i < mesh->axes; i++)
        sherd__write(w, "%s%s=%lld", i ? "," : "", mesh->name[i], (long long)mesh->extent[i]);
    for (int64_t i = 0; mesh->ranks && i < mesh->count; i++)
        sherd__write(w, "%s%d", i ? "," : "@", mesh->ranks[i]);
}

static sherd_mesh *copy_key(sherd__space *space, const sherd_mesh *key)
{
    sherd_mesh *mesh = sherd__alloc(space->heap, 1, sizeof *mesh);

    if (!mesh)
        return NULL;
    *mesh = *key;
    mesh->space = space;
    mesh->ranks = NULL;
    if (!key->root)
        mesh->root = mesh;
    if (key->ranks) {
        size_t count = (size_t)key->count;
        int *ranks = sherd__alloc(space->heap, count, sizeof *ranks);
        if (ranks)
            memcpy(ranks, key->ranks, count * sizeof *ranks);
        mesh->ranks = ranks;
    }
    if (!key->ranks || mesh->ranks)
        mesh->text = sherd__written(space->heap, sherd__mesh_write, mesh);
    if (mesh->text)
        return mesh;
    sherd__mesh_free(space, mesh);
    return NULL;
}

static sherd_status intern(const sherd_mesh **out, sherd__space *space, const char *function,
                           const sherd_mesh *key)
{
    uint64_t hash = hash_key(key);
    sherd_mesh *mesh = sherd__map_find(&space->meshes, hash, equals_key, key);

    if (!mesh) {
        mesh = copy_key(space, key);
        if (!mesh)
            return sherd__no_memory(space->diag, function);
        mesh->hash = hash;
        if (!sherd__map_add(&space->meshes, hash, mesh)) {
            sherd__mesh_free(space, mesh);
            return sherd__no_memory(space->diag, function);
        }
    }
    *out = mesh;
    return SHERD_OK;
}

/* ---- checking ------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    sherd__scanner s = {name, name};
    char copy[SHERD__NAME_BYTES];

    sherd__skip_blanks(&s);
    return s.at == name && sherd__take_name(&s, copy, sizeof copy) && *s.at == '\0';
}

static sherd_status check_name(sherd__diag *diag, const char *function, const sherd_mesh *key,
                               int axis, const char *name)
{
    if (strlen(name) >= SHERD__NAME_BYTES)
        return sherd__fail(diag, SHERD_ELIMIT, "%s: axis name \"%s\" has more than %d letters",
                           function, name, SHERD__NAME_BYTES - 1);
    if (!is_name(name))
        return sherd__fail(diag, SHERD_EINVAL, "%s: axis name \"%s\" is not [A-Za-z_][A-Za-z0-9_]*",
                           function, name);
    for (int i = 0; i < axis; i++)
        if (strcmp(key->name[i], name) == 0)
            return sherd__fail(diag, SHERD_EINVAL, "%s: axis name \"%s\" is used twice", function,
                               name);
    return SHERD_OK;
}

static bool same_rank(const void *item, const void *key)
{
    return *(const int *)item == *(const int *)key;
}

sherd_status sherd__ranks_repeat(int64_t *at, sherd__space *space, const char *function,
                                 const int *ranks, int64_t count)
{
    sherd__map seen = {.heap = space->heap};
    sherd_status status = SHERD_OK;

    for (*at = 0; *at < count; ++*at) {
        uint64_t hash = sherd__hash_word(1, (uint64_t)ranks[*at]);
        if (sherd__map_find(&seen, hash, same_rank, &ranks[*at]))
            break;
        if (!sherd__map_add(&seen, hash, (void *)(uintptr_t)&ranks[*at])) {
            status = sherd__no_memory(space->diag, function);
            break;
        }
    }
    sherd__map_clear(&seen);
    return status;
}

/* Sets *identity where the list is 0, 1, 2, ..., which is the same as no list. */
static sherd_status check_ranks(sherd__space *space, const char *function, const int *ranks,
                                int64_t count, bool *identity)
{
    int64_t at;

    *identity = true;
    for (int64_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= space->ranks)
            return sherd__fail(space->diag, SHERD_EINVAL,
                               "%s: rank %d is not in the world of %d ranks", function, ranks[i],
                               space->ranks);
        *identity = *identity && ranks[i] == i;
    }
    sherd_status status = sherd__ranks_repeat(&at, space, function, ranks, count);
    if (status == SHERD_OK && at < count)
        status = sherd__fail(space->diag, SHERD_EINVAL, "%s: rank %d is used twice", function,
                             ranks[at]);
    return status;
}

sherd_status sherd__mesh_build(const sherd_mesh **out, sherd__space *space, const char *function,
                               const sherd_mesh *given)
{
    sherd_mesh key = *given;
    bool identity = true;

    *out = NULL;
    key.count = 1;
    for (int i = 0; i < key.axes; i++) {
        if (key.extent[i] < 1)
            return sherd__fail(space->diag, SHERD_EINVAL, "%s: axis %s has extent %lld, not >= 1",
                               function, key.name[i], (long long)key.extent[i]);
        if (!sherd__mul(key.count, key.extent[i], &key.count) || key.count > space->ranks)
            return sherd__fail(space->diag, SHERD_EINVAL,
                               "%s: the mesh needs more ranks than the world has (%d)", function,
                               space->ranks);
        key.root_axis[i] = i;
    }
    if (key.ranks) {
        sherd_status status = check_ranks(space, function, key.ranks, key.count, &identity);
        if (status != SHERD_OK)
            return status;
    }
    if (identity)
        key.ranks = NULL;
    return intern(out, space, function, &key);
}

sherd_status sherd__mesh_make(const sherd_mesh **out, sherd__space *space, int axes,
                              const int64_t *extents, const char *const *names, const int *ranks)
{
    static const char function[] = "sherd_mesh_create";
    sherd_mesh key;

    *out = NULL;
    memset(&key, 0, sizeof key);
    key.axes = axes;
    key.ranks = ranks;
    if (axes < 1)
        return sherd__fail(space->diag, SHERD_EINVAL, "%s: a mesh needs an axis, not %d", function,
                           axes);
    if (axes > SHERD_MAX_AXES)
        return sherd__fail(space->diag, SHERD_ELIMIT, "%s: %d axes are more than %d", function,
                           axes, SHERD_MAX_AXES);
    for (int i = 0; i < axes; i++) {
        char number[SHERD__NAME_BYTES];
        const char *name = names ? names[i] : number;
        snprintf(number, sizeof number, "a%d", i);
        sherd_status status = check_name(space->diag, function, &key, i, name ? name : "");
        if (status != SHERD_OK)
            return status;
        snprintf(key.name[i], sizeof key.name[i], "%s", name);
        key.extent[i] = extents[i];
    }
    return sherd__mesh_build(out, space, function, &key);
}

sherd_status sherd_mesh_slice(const sherd_mesh **out, const sherd_mesh *mesh, int axes,
                              const char *const *names)
{
    static const char function[] = "sherd_mesh_slice";
    const sherd__argument need[] = {{"out", out}, {"mesh", mesh}, {"names", names}, {NULL, NULL}};
    sherd__diag *diag = mesh ? mesh->space->diag : NULL;
    sherd_mesh key;
    unsigned taken = 0;

    if (out)
        *out = NULL;
    if (sherd__require(diag, function, need))
        return SHERD_EINVAL;
    bool whole = axes == mesh->root->axes;
    memset(&key, 0, sizeof key);
    if (axes < 1 || axes > mesh->axes)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d axes of a mesh (%s) that has %d", function,
                           axes, mesh->text, mesh->axes);
    key.root = mesh->root;
    key.axes = axes;
    key.count = 1;
    for (int i = 0; i < axes; i++) {
        int axis = names[i] ? sherd_mesh_find_axis(mesh, names[i]) : -1;
        if (axis < 0)
            return sherd__fail(diag, SHERD_EINVAL, "%s: no axis \"%s\" in the mesh (%s)", function,
                               names[i] ? names[i] : "", mesh->text);
        if (taken >> axis & 1)
            return sherd__fail(diag, SHERD_EINVAL, "%s: axis \"%s\" is named twice", function,
                               names[i]);
        taken |= 1u << axis;
        memcpy(key.name[i], mesh->name[axis], sizeof key.name[i]);
        key.extent[i] = mesh->extent[axis];
        key.root_axis[i] = mesh->root_axis[axis];
        key.count *= key.extent[i];
        whole = whole && key.root_axis[i] == i;
    }
    if (whole) {
        *out = mesh->root;
        return SHERD_OK;
    }
    return intern(out, mesh->space, function, &key);
}

/* ---- asking --------------------------------------------------------------------------------- */

const sherd_mesh *sherd_mesh_root(const sherd_mesh *mesh)
{
    return mesh ? mesh->root : NULL;
}

int sherd_mesh_axes(const sherd_mesh *mesh)
{
    return mesh ? mesh->axes : 0;
}

int64_t sherd_mesh_extent(const sherd_mesh *mesh, int axis)
{
    return axis >= 0 && axis < sherd_mesh_axes(mesh) ? mesh->extent[axis] : 0;
}

const char *sherd_mesh_axis_name(const sherd_mesh *mesh, int axis)
{
    return axis >= 0 && axis < sherd_mesh_axes(mesh) ? mesh->name[axis] : "";
}

int sherd_mesh_find_axis(const sherd_mesh *mesh, const char *name)
{
    for (int i = 0; name && i < sherd_mesh_axes(mesh); i++)
        if (strcmp(mesh->name[i], name) == 0)
            return i;
    return -1;
}

int64_t sherd_mesh_ranks(const sherd_mesh *mesh)
{
    return mesh ? mesh->count : 0;
}

/*
 * Place of a world rank in the row-major order of a root mesh; -1 if it is not there. A listed mesh
 * is searched: its maker paid for every rank too.
 */
static int64_t place_of(const sherd_mesh *root, int rank)
{
    if (!root->ranks)
        return rank >= 0 && rank < root->count ? rank : -1;
    for (int64_t i = 0; i < root->count; i++)
        if (root->ranks[i] == rank)
            return i;
    return -1;
}

bool sherd_mesh_coordinate(const sherd_mesh *mesh, int rank, int64_t *coordinate)
{
    const sherd_mesh *root = sherd_mesh_root(mesh);
    int64_t place = root ? place_of(root, rank) : -1;
    int64_t at[SHERD_MAX_AXES];

    if (place < 0)
        return false;
    sherd__mesh_coordinate_at(root, place, at);
    for (int i = 0; coordinate && i < mesh->axes; i++)
        coordinate[i] = at[mesh->root_axis[i]];
    return true;
}

const char *sherd_mesh_text(const sherd_mesh *mesh)
{
    return mesh ? mesh->text : "";
}

int64_t sherd__mesh_place(const sherd_mesh *mesh, const int64_t *coordinate)
{
    int64_t place = 0;

    for (int i = 0; i < mesh->axes; i++)
        place = place * mesh->extent[i] + coordinate[i];
    return place;
}

void sherd__mesh_coordinate_at(const sherd_mesh *mesh, int64_t place, int64_t *coordinate)
{
    for (int i = mesh->axes - 1; i >= 0; i--) {
        coordinate[i] = place % mesh->extent[i];
        place /= mesh->extent[i];
    }
}

int sherd__mesh_rank_at(const sherd_mesh *mesh, const int64_t *coordinate)
{
    int64_t place = sherd__mesh_place(mesh, coordinate);

    return mesh->ranks ? mesh->ranks[place] : sherd__int(place);
}

unsigned sherd__mesh_axis_bits(const sherd_mesh *mesh)
{
    unsigned bits = 0;

    for (int i = 0; i < mesh->axes; i++)
        bits |= 1u << mesh->root_axis[i];
    return bits;
}
