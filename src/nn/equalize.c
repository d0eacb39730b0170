/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making plain parameters equal on all ranks. Each parameter is treated as a row of which the
 * source holds all and the others nothing, and moved to where all hold it: one round for all of
 * them, since the moves of a list go together. With SHERD_VERIFY ranks then exchange hashes of all
 * parameters, also of those that were known to be equal.
 */
#include "base/hash.h"
#include "nn/module.h"

typedef struct job {
    sherd_world *world;
    const sherd_mesh *root;
    unsigned bits; /* axes of the root along which values spread */
    int64_t at;    /* the source: its coordinate on the one axis, or its number in the root mesh */
    bool source;   /* this rank is one */
    int all, count;
    sherd_named_state *state;               /* [all] */
    sherd_tensor **tensor, **from, **moved; /* [count]: those that travel */
    const sherd_layout **to;
} job;

/* ---- layouts -------------------------------------------------------------------------------- */

/* The layout of a row of n in which the source has everything. */
static sherd_status all_at(const sherd_layout **out, const job *j, int64_t n)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    sherd_placement placements[SHERD_MAX_AXES];
    const int64_t *by_dim[SHERD_MAX_DIMS] = {NULL};
    sherd_layout_options options = {.sizes = by_dim};
    int64_t pieces = 1, *sizes;
    sherd_status status;

    for (int a = 0; a < j->root->axes; a++) {
        bool spreads = j->bits >> a & 1;
        placements[a] = spreads ? sherd_shard(0) : sherd_replicate();
        pieces *= spreads ? j->root->extent[a] : 1;
    }
    sizes = sherd__alloc(heap, (size_t)pieces, sizeof *sizes);
    if (!sizes)
        return sherd__no_memory(sherd__world_diag(j->world), "sherd_module_equalize");
    sizes[j->at] = n;
    by_dim[0] = sizes;
    status = sherd_layout_create(out, j->root, 1, &n, placements, &options);
    sherd__free(heap, sizes);
    return status;
}

/* The source of the row: all elements on the source rank, none on the others. */
static sherd_tensor *row_of(const job *j, sherd_tensor *t, const sherd_layout *layout)
{
    sherd_tensor *row;

    if (!j->source)
        return sherd__new_on(layout, t->dtype);
    t = sherd__contiguous(t);
    if (sherd_tensor_failed(t) || !sherd__make_now(t))
        return sherd__failed(j->world);
    row = sherd__new_view(t);
    if (sherd_tensor_failed(row))
        return row;
    sherd__layout_set(&row->layout, layout);
    sherd__layout_set(&row->was, NULL);
    row->varies = 0;
    row->ndim = 1;
    row->shape[0] = row->local[0] = t->count;
    row->stride[0] = 1;
    return row;
}

/* ---- the round ------------------------------------------------------------------------------ */

static bool spreads(const job *j, const sherd_tensor *t)
{
    return !t->layout && (t->varies & j->bits);
}

static void drop(job *j)
{
    sherd__heap *heap = sherd__world_heap(j->world);

    sherd__free(heap, j->state);
    sherd__free(heap, j->tensor);
    sherd__free(heap, j->from);
    sherd__free(heap, j->moved);
    sherd__free(heap, j->to);
}

/* The tensors to send, in the order of the state. */
static sherd_status collect(job *j, const sherd_module *module)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    size_t room;

    j->all = sherd_module_state(module, NULL, 0);
    room = (size_t)j->all + 1;
    j->state = sherd__alloc(heap, room, sizeof *j->state);
    j->tensor = sherd__alloc(heap, room, sizeof *j->tensor);
    j->from = sherd__alloc(heap, room, sizeof *j->from);
    j->moved = sherd__alloc(heap, room, sizeof *j->moved);
    j->to = sherd__alloc(heap, room, sizeof *j->to);
    if (!j->state || !j->tensor || !j->from || !j->moved || !j->to)
        return sherd__no_memory(sherd__world_diag(j->world), "sherd_module_equalize");
    sherd_module_state(module, j->state, j->all);
    for (int i = 0; i < j->all; i++)
        if (spreads(j, j->state[i].tensor) && j->state[i].tensor->count > 0)
            j->tensor[j->count++] = j->state[i].tensor;
    return SHERD_OK;
}

static bool prepare(job *j)
{
    for (int i = 0; i < j->count; i++) {
        sherd_tensor *t = j->tensor[i];
        const sherd_layout *from;
        if (all_at(&from, j, t->count) ||
            sherd__replicated(&j->to[i], j->root, 1, (int64_t[]){t->count})) {
            sherd__raise_diag(j->world);
            return false;
        }
        j->from[i] = row_of(j, t, from);
        if (sherd_tensor_failed(j->from[i]))
            return false;
    }
    return true;
}

static unsigned axes_with_ranks(const sherd_mesh *mesh)
{
    unsigned bits = 0;

    for (int a = 0; a < mesh->axes; a++)
        bits |= mesh->extent[a] > 1 ? 1u << a : 0;
    return bits;
}

/*
 * Store a received tensor. The source has it already, but counts it as written too: what is kept
 * beside it, as an optimizer's exact copy, is made anew on all ranks. False: ended by the alarm.
 */
static bool take(const job *j, sherd_tensor *t, sherd_tensor *row)
{
    int64_t stride[SHERD_MAX_DIMS];
    const void *data = sherd_tensor_failed(row) ? NULL : sherd__data(row);
    void *dst = data ? sherd__mutable_view(t) : NULL;

    if (!dst)
        return false;
    sherd__row_major(t->ndim, t->local, stride);
    if (!j->source && !sherd__left_out(t->world, "copy", t->dtype, 0, 2 * sherd__local_bytes(t)))
        sherd__copy_box(sherd_dtype_bytes(t->dtype), t->ndim, t->local, dst, t->stride, data,
                        stride);
    return true;
}

/*
 * Mark all parameters as equal, also those without elements, which are not sent. On all ranks or on
 * none: one that takes for equal what another does not would send other tensors the next time.
 */
static void mark(const job *j)
{
    for (int i = 0; i < j->all; i++) {
        sherd_tensor *t = j->state[i].tensor;
        if (!spreads(j, t))
            continue;
        t->varies &= ~j->bits;
        if (!(t->varies & axes_with_ranks(j->root)))
            t->varies = 0;
    }
}

/* False: ended by the alarm, or for lack of memory. */
static bool move_all(job *j)
{
    bool good = prepare(j);

    if (good && j->count > 0)
        sherd__move_list(j->moved, j->from, j->to, j->count, false);
    for (int i = 0; good && i < j->count; i++)
        good = take(j, j->tensor[i], j->moved[i]);
    return good;
}

/* Along one axis, lines of ranks may differ: so the moves are not noted as deeds of the mesh. */
static sherd_status spread(job *j)
{
    sherd__diag *diag = sherd__world_diag(j->world);
    bool recording = sherd_set_recording(j->world, false);
    bool before = sherd__deeds_pause(j->root, true), good;

    diag->status = SHERD_OK;
    sherd_scope_begin(j->world);
    good = !sherd__in_mesh(j->world, j->root) || move_all(j);
    sherd_scope_end(j->world);
    sherd__deeds_pause(j->root, before);
    sherd_set_recording(j->world, recording);
    if (!good && !sherd__alarmed(j->world))
        sherd__raise_diag(j->world); /* the peers wait for what is here */
    return good ? SHERD_OK : diag->status ? diag->status : SHERD_ENOMEM;
}

/* ---- SHERD_VERIFY --------------------------------------------------------------------------- */

/*
 * The first rank of the line that a rank is in, along the axes on which values spread; both are
 * numbers in the root mesh.
 */
static int64_t first_of_line(const job *j, int64_t rank)
{
    int64_t stride = 1;

    for (int a = j->root->axes - 1; a >= 0; a--) {
        if (j->bits >> a & 1)
            rank -= rank / stride % j->root->extent[a] * stride;
        stride *= j->root->extent[a];
    }
    return rank;
}

static int rank_at(const sherd_mesh *mesh, int64_t number)
{
    int64_t at[SHERD_MAX_AXES];

    sherd__mesh_coordinate_at(mesh, number, at);
    return sherd__mesh_rank_at(mesh, at);
}

/* All ranks see all hashes, and find the same first difference from the beginning of a line. */
static sherd_status compare(const job *j, const int64_t *hash)
{
    char name[256];

    for (int i = 0; i < j->all; i++)
        for (int64_t q = 0; q < j->root->count; q++) {
            int64_t p = first_of_line(j, q);
            if (hash[q * j->all + i] == hash[p * j->all + i])
                continue;
            sherd_state_name(&j->state[i], name, sizeof name);
            return sherd__fail(sherd__world_diag(j->world), SHERD_EDIFFER,
                               "sherd_module_equalize: SHERD_VERIFY: %s is said to be equal on "
                               "ranks %d and %d, and is not",
                               name, rank_at(j->root, p), rank_at(j->root, q));
        }
    return SHERD_OK;
}

static sherd_status verify(const job *j)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    sherd_status status = SHERD_OK;

    if (!sherd__verifies(j->world) || !sherd__in_mesh(j->world, j->root) || j->all == 0)
        return SHERD_OK;
    int64_t *mine = sherd__alloc(heap, (size_t)j->all, sizeof *mine);
    int64_t *every = sherd__alloc(heap, (size_t)j->all * (size_t)j->root->count, sizeof *every);
    for (int i = 0; mine && i < j->all; i++)
        if (!j->state[i].tensor->layout)
            mine[i] = (int64_t)sherd__content(j->state[i].tensor);
    if (!mine || !every) {
        status = sherd__no_memory(sherd__world_diag(j->world), "sherd_module_equalize");
        sherd__raise_diag(j->world); /* the peers wait for what is here */
    } else if (sherd__share(j->world, j->root, "sherd_module_equalize", mine, j->all, every)) {
        status = compare(j, every);
    } else {
        status = sherd__world_diag(j->world)->status;
    }
    sherd__free(heap, mine);
    sherd__free(heap, every);
    return status;
}

/* ---- what was asked ------------------------------------------------------------------------- */

/*
 * Find the axes, and whether this rank is a source; EINVAL for an axis or rank that does not exist.
 */
static sherd_status aim(job *j, const sherd_module *m, const sherd_mesh *mesh, const char *axis,
                        int64_t rank)
{
    int a = axis ? sherd_mesh_find_axis(mesh, axis) : -1;
    int64_t at[SHERD_MAX_AXES] = {0}, number = 0, limit;

    j->root = sherd_mesh_root(mesh);
    if (axis && a < 0)
        return sherd__module_fail(m, SHERD_EINVAL,
                                  "sherd_module_equalize: mesh (%s) has no axis \"%s\"",
                                  sherd_mesh_text(mesh), axis);
    limit = axis ? mesh->extent[a] : sherd_mesh_ranks(j->root);
    if (rank < 0 || rank >= limit)
        return sherd__module_fail(m, SHERD_EINVAL,
                                  "sherd_module_equalize: there is no rank %lld of %lld",
                                  (long long)rank, (long long)limit);
    bool member = sherd_mesh_coordinate(j->root, sherd_world_rank(j->world), at);
    for (int i = 0; i < j->root->axes; i++)
        number = number * j->root->extent[i] + at[i];
    j->bits = axis ? 1u << mesh->root_axis[a] : (unsigned)SHERD__VARIES;
    j->source = member && (axis ? at[mesh->root_axis[a]] : number) == rank;
    j->at = rank;
    return SHERD_OK;
}

/* A hash of names, dtypes and shapes of what is sent. */
static uint64_t hash_of_state(const job *j, uint64_t hash)
{
    for (int i = 0; i < j->all; i++) {
        const sherd_tensor *t = j->state[i].tensor;
        if (!spreads(j, t))
            continue;
        hash = sherd__hash_text(sherd__hash_text(hash, j->state[i].path), j->state[i].name);
        hash = sherd__hash_word(hash, (uint64_t)t->dtype);
        for (int d = 0; d < t->ndim; d++)
            hash = sherd__hash_word(hash, (uint64_t)t->shape[d] + 1);
    }
    return sherd__hash_word(hash, j->bits);
}

sherd_status sherd_module_equalize(sherd_module *module, const sherd_mesh *mesh, const char *axis,
                                   int64_t rank)
{
    static const char function[] = "sherd_module_equalize";
    const sherd__argument need[] = {{"module", module}, {"mesh", mesh}, {NULL, NULL}};
    sherd_world *world = module ? module->world : mesh ? sherd__space_world(mesh->space) : NULL;
    job j = {.world = world};
    uint64_t hash = sherd__hash_word(1, (uint64_t)rank);
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);

    if (!world)
        return status;
    if (!status && sherd__space_world(mesh->space) != world)
        status = sherd__module_fail(module, SHERD_EINVAL,
                                    "%s: the mesh is not of the module's world", function);
    if (!status)
        status = aim(&j, module, mesh, axis, rank);
    if (!status)
        status = collect(&j, module);
    /* Either all ranks move the same, or none moves anything. */
    if (!status)
        hash = hash_of_state(&j, hash);
    status = sherd__agree(world, status, hash, function);
    if (!status)
        status = sherd__agree(world, spread(&j), 1, function);
    if (!status)
        mark(&j);
    if (!status && sherd__verifies(world))
        status = sherd__agree(world, verify(&j), 1, function);
    drop(&j);
    return status;
}
