/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A distributed tensor made of local pieces. No element moves, but the ranks of the mesh exchange
 * the shapes of their pieces (one small exchange), so that all of them reach the same verdict:
 * pieces that do not fit are the same error everywhere.
 */
#include "tensor/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "base/text.h"
#include "layout/shape.h"

/*
 * What a rank shares: its mode, hashes of its placements and of the shape and cuts that it gives,
 * dtype, ndim, whether it requires a gradient; whether its piece is none of a leaf, and strided;
 * and the sizes of its piece.
 */
enum {
    MODE,
    PLACEMENTS,
    CUTS,
    DTYPE,
    NDIM,
    WANTS,
    COMPUTED,
    STRIDED,
    SIZES,
    WORDS = SIZES + SHERD_MAX_DIMS
};

typedef struct joining {
    sherd_world *world;
    const sherd_mesh *mesh; /* the root: pieces on its other axes are replicas */
    sherd_tensor *local;
    const sherd_placement *placements; /* of the mesh that the user named */
    const sherd_mesh *named;
    sherd_from_local_options options;
    const sherd_layout *layout; /* NULL = it follows from the pieces */
    /* the placements on some shape: which axes shard a dim, in what order */
    const sherd_layout *pattern;
    int64_t *all; /* [ranks of the mesh * WORDS] */
} joining;

static bool fail(const joining *j, sherd_status status, const char *format, ...)
{
    char text[SHERD_ERROR_BYTES / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sherd__fail_tensor(j->world, true, status, "sherd_from_local: %s", text);
    return false;
}

static bool create(joining *j, const sherd_layout **out, const int64_t *shape,
                   const int64_t *const *sizes)
{
    sherd_layout_options options = {.order = j->options.order, .sizes = sizes};

    if (sherd_layout_create(out, j->named, j->local->ndim, shape, j->placements, &options) ==
        SHERD_OK)
        return true;
    sherd__fail_diag(j->world, true);
    return false;
}

/*
 * The layout that a piece remembers from to_local, if it still has its size and the arguments ask
 * for that layout.
 */
static const sherd_layout *remembered(const joining *j)
{
    const sherd_layout *was = j->local->was, *pattern = j->pattern;
    int64_t coordinate[SHERD_MAX_AXES];
    sherd_box box;

    if (!was || was->spec.mesh != j->mesh || was->spec.ndim != j->local->ndim ||
        memcmp(was->spec.pending, pattern->spec.pending,
               (size_t)j->mesh->axes * sizeof *was->spec.pending) != 0)
        return NULL;
    for (int d = 0; d < j->local->ndim; d++)
        if (!sherd__dim_alike(&was->spec.dim[d], &pattern->spec.dim[d]))
            return NULL;
    if (!sherd_mesh_coordinate(j->mesh, sherd_world_rank(j->world), coordinate))
        return was;
    sherd__layout_box(was, coordinate, &box);
    return sherd__same_shape(box.ndim, box.size, j->local->ndim, j->local->local) ? was : NULL;
}

/* What the arguments alone determine of the layout. */
static bool read_arguments(joining *j)
{
    const sherd_from_local_options *o = &j->options;

    if (o->mode != SHERD_FROM_CHUNK && o->mode != SHERD_FROM_INFER)
        return fail(j, SHERD_EINVAL, "no such mode: %d", (int)o->mode);
    if (!create(j, &j->pattern, j->local->shape, NULL))
        return false;
    if (o->mode == SHERD_FROM_INFER) {
        if (o->shape || o->sizes)
            return fail(j, SHERD_EINVAL, "inferring takes neither shape nor sizes");
        return true;
    }
    if (o->shape)
        return create(j, &j->layout, o->shape, o->sizes);
    if (o->sizes)
        return fail(j, SHERD_EINVAL, "sizes without a shape");
    j->layout = remembered(j);
    if (!j->layout && j->pattern->shard_axes != 0)
        return fail(j, SHERD_EINVAL,
                    "a sharded dim needs options.shape, or the mode SHERD_FROM_INFER");
    return true;
}

/* The shape of the pattern is this rank's own and not part of it. */
static int64_t hash_of_placements(const joining *j)
{
    uint64_t hash = j->mesh->hash;

    for (int d = 0; d < j->local->ndim; d++)
        for (int i = 0; i < j->pattern->spec.dim[d].axes; i++)
            hash = sherd__hash_word(
                hash, (uint64_t)(d * SHERD_MAX_AXES + j->pattern->spec.dim[d].axis[i]));
    for (int a = 0; a < j->mesh->axes; a++)
        hash = sherd__hash_word(hash, (uint64_t)j->pattern->spec.pending[a]);
    return (int64_t)(hash >> 1);
}

static int rank_at(const sherd_mesh *mesh, int64_t index)
{
    int64_t coordinate[SHERD_MAX_AXES];

    sherd__mesh_coordinate_at(mesh, index, coordinate);
    return sherd__mesh_rank_at(mesh, coordinate);
}

static bool share(joining *j)
{
    int64_t mine[WORDS] = {0};

    j->all =
        sherd__alloc(sherd__world_heap(j->world), (size_t)j->mesh->count, WORDS * sizeof *j->all);
    if (!j->all)
        return fail(j, SHERD_ENOMEM, "out of memory");
    mine[MODE] = (int64_t)j->options.mode;
    mine[PLACEMENTS] = hash_of_placements(j);
    mine[CUTS] = j->layout ? (int64_t)(j->layout->hash >> 1) : 0;
    mine[DTYPE] = (int64_t)j->local->dtype;
    mine[NDIM] = j->local->ndim;
    mine[WANTS] = j->local->autograd.requires_grad;
    mine[COMPUTED] = !j->local->autograd.of_leaf;
    mine[STRIDED] = j->local->strided;
    memcpy(&mine[SIZES], j->local->local, sizeof j->local->local);
    return sherd__share(j->world, j->mesh, "sherd_from_local", mine, WORDS, j->all);
}

/*
 * How a rank differs from the first in one word. Of placements and cuts the words are hashes: there
 * this rank shows its own ("here").
 */
static void describe(const joining *j, int w, int64_t here, int64_t first, char *out, size_t room)
{
    static const char *const modes[] = {"SHERD_FROM_CHUNK", "SHERD_FROM_INFER"};

    if (w == MODE)
        snprintf(out, room, "the mode %s, not %s as", modes[here], modes[first]);
    else if (w == PLACEMENTS)
        snprintf(out, room, "other placements (here %s) than", sherd_layout_placements(j->pattern));
    else if (w == CUTS)
        snprintf(out, room, "another shape, or other cuts (here %.120s), than",
                 j->layout ? j->layout->text : "none");
    else if (w == DTYPE)
        snprintf(out, room, "the dtype %s, not %s as", sherd_dtype_name((sherd_dtype)here),
                 sherd_dtype_name((sherd_dtype)first));
    else if (w == NDIM)
        snprintf(out, room, "a piece of %d dims, not %d as", (int)here, (int)first);
    else
        snprintf(out, room, "a piece that requires %s gradient, other than", here ? "a" : "no");
}

/* Every rank compares all ranks with the first, so all find the same difference. */
static bool agree(const joining *j)
{
    static const char advice[] =
        ": compute all pieces, empty ones too, from the same tensors, or detach all";
    char how[256];

    for (int64_t i = 1; i < j->mesh->count; i++)
        for (int w = MODE; w <= WANTS; w++) {
            int64_t here = j->all[i * WORDS + w], first = j->all[w];
            if (here == first)
                continue;
            describe(j, w, here, first, how, sizeof how);
            return fail(j, SHERD_EDIFFER, "rank %d passed %s rank %d%s", rank_at(j->mesh, i), how,
                        rank_at(j->mesh, 0), w == WANTS ? advice : "");
        }
    return true;
}

/*
 * Set by what later decisions are made that must be alike on all ranks: what holds of one piece
 * holds of the result on all ranks. A rank outside the mesh knows nothing of the others (`all` is
 * NULL).
 */
static void decide_alike(const joining *j, sherd_tensor *out)
{
    bool computed = !out->autograd.of_leaf, strided = out->strided;

    for (int64_t i = 0; j->all && i < j->mesh->count; i++) {
        computed |= j->all[i * WORDS + COMPUTED] != 0;
        strided |= j->all[i * WORDS + STRIDED] != 0;
    }
    out->autograd.of_leaf = !computed;
    out->strided = strided;
}

static const char *sizes_text(char *out, size_t room, const int64_t *sizes, int ndim)
{
    sherd__writer w = {.at = out, .room = room};

    sherd__write(&w, "[");
    for (int d = 0; d < ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)sizes[d]);
    sherd__write(&w, "]");
    return out;
}

/* Whether what every rank has is its box of the layout; in a dry world this rank alone. */
static bool all_fit(const joining *j)
{
    int ndim = j->layout->spec.ndim;

    for (int64_t i = 0; i < j->mesh->count; i++) {
        const int64_t *sizes = &j->all[i * WORDS + SIZES];
        int64_t coordinate[SHERD_MAX_AXES];
        char has[192], needs[192];
        sherd_box box;

        sherd__mesh_coordinate_at(j->mesh, i, coordinate);
        sherd__layout_box(j->layout, coordinate, &box);
        if (j->all[i * WORDS + NDIM] == ndim && sherd__same_shape(box.ndim, box.size, ndim, sizes))
            continue;
        if (sherd__is_dry(j->world) && rank_at(j->mesh, i) != sherd_world_rank(j->world))
            continue;
        sherd__fail_tensor(j->world, true, SHERD_EINVAL,
                           "sherd_from_local: rank %d has a piece of %s, but its box of %s is %s",
                           rank_at(j->mesh, i), sizes_text(has, sizeof has, sizes, j->local->ndim),
                           sherd_layout_text(j->layout),
                           sizes_text(needs, sizeof needs, box.size, ndim));
        return false;
    }
    return true;
}

static int64_t shard_number(const joining *j, const sherd__dim *dim, int64_t index)
{
    int64_t coordinate[SHERD_MAX_AXES];

    sherd__mesh_coordinate_at(j->mesh, index, coordinate);
    return sherd__dim_shard(j->mesh, dim, coordinate);
}

/*
 * Sizes of the shards of one dim: all ranks with the same shard number must have the same size.
 * Returns their sum, or -1 after an error.
 */
static int64_t infer_dim(const joining *j, int d, int64_t parts, int64_t *sizes)
{
    const sherd__dim *dim = &j->pattern->spec.dim[d];
    int64_t sum = 0;

    memset(sizes, -1, (size_t)parts * sizeof *sizes);
    for (int64_t i = 0; i < j->mesh->count; i++) {
        int64_t size = j->all[i * WORDS + SIZES + d], *known = &sizes[shard_number(j, dim, i)];
        if (*known < 0)
            *known = size;
        if (*known == size)
            continue;
        sherd__fail_tensor(j->world, true, SHERD_EINVAL,
                           "sherd_from_local: dim %d of rank %d has size %lld, but ranks that hold "
                           "the same shard of it have %lld",
                           d, rank_at(j->mesh, i), (long long)size, (long long)*known);
        return -1;
    }
    for (int64_t p = 0; p < parts; p++)
        if (!sherd__add(sum, sizes[p], &sum)) {
            fail(j, SHERD_ELIMIT, "a dim of size 2^62 or more");
            return -1;
        }
    return sum;
}

/*
 * The layout that follows from the pieces. Every dim has at most as many shards as the mesh has
 * ranks.
 */
static bool infer(joining *j)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    int ndim = j->local->ndim;
    size_t ranks = (size_t)j->mesh->count;
    int64_t shape[SHERD_MAX_DIMS] = {0};
    const int64_t *sizes[SHERD_MAX_DIMS] = {NULL};
    int64_t *room = sherd__alloc(heap, ranks * (size_t)(ndim + 1), sizeof *room);
    bool good = room || fail(j, SHERD_ENOMEM, "out of memory");

    for (int d = 0; d < ndim && good; d++) {
        const sherd__dim *dim = &j->pattern->spec.dim[d];
        int64_t *mine = room + (size_t)d * ranks;
        shape[d] = infer_dim(j, d, sherd__dim_parts(j->mesh, dim), mine);
        sizes[d] = dim->axes ? mine : NULL;
        good = shape[d] >= 0;
    }
    good = good && create(j, &j->layout, shape, sizes);
    sherd__free(heap, room);
    return good;
}

static bool join(joining *j)
{
    bool inside = sherd__in_mesh(j->world, j->mesh);

    if (!read_arguments(j))
        return false;
    if (!inside)
        return j->layout || fail(j, SHERD_EINVAL, "this rank is not in the mesh: give the shape");
    if (!share(j) || !agree(j))
        return false;
    return j->layout ? all_fit(j) : infer(j);
}

sherd_tensor *sherd__from_local(sherd_tensor *local, const sherd_mesh *mesh,
                                const sherd_placement *placements,
                                const sherd_from_local_options *options)
{
    const sherd__argument need[] = {
        {"local", local}, {"mesh", mesh}, {"placements", placements}, {NULL, NULL}};
    joining j = {
        .mesh = sherd_mesh_root(mesh), .local = local, .placements = placements, .named = mesh};
    sherd_tensor *failed;

    if (local || mesh)
        j.world = local ? local->world : sherd__space_world(mesh->space);
    if (!sherd__given(j.world, "sherd_from_local", need, &failed))
        return failed;
    if (options)
        j.options = *options;
    /* The peers wait for what this rank has: a failure of it is theirs too. */
    if (sherd__is_failed(local))
        sherd__raise_failed(j.world, "sherd_from_local");
    if (sherd__is_failed(local) || sherd__alarmed(j.world))
        return sherd__failed(j.world);
    if (sherd__space_world(mesh->space) != j.world || local->layout)
        return sherd__fail_tensor(
            j.world, true, SHERD_EINVAL, "sherd_from_local: %s is %s", sherd_tensor_text(local),
            local->layout ? "distributed already" : "of another world than the mesh");
    sherd_tensor *out =
        join(&j) ? sherd__global_view(local, j.layout, "sherd_from_local") : sherd__failed(j.world);
    if (out->storage)
        decide_alike(&j, out);
    sherd__free(sherd__world_heap(j.world), j.all);
    return out;
}
