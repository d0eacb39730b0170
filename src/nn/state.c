/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a module: its parameters and buffers, listed and loaded by name. Loading writes into
 * the existing tensor, so that optimizers and ties, which hold that tensor, are not affected.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/text.h"
#include "nn/module.h"
#include "sherd/ops_shape.h"
#include "world/whole.h"
#include "layout/shape.h"

/* ---- listing -------------------------------------------------------------------------------- */

typedef struct walk {
    const sherd_module *root;
    uint64_t number; /* tensors that were met bear it */
    sherd_named_state *out;
    int room, count;
} walk;

const char *sherd__path_below(const sherd_module *root, const sherd_module *m)
{
    const char *path = m->path + strlen(root->path);
    return path[0] == '.' ? path + 1 : path;
}

static void list(walk *w, const sherd_module *m, const sherd__named_tensor *slots, int count,
                 bool buffer)
{
    for (int i = 0; i < count; i++) {
        if (slots[i].tensor->visit.walk == w->number)
            continue;
        slots[i].tensor->visit.walk = w->number;
        if (w->out && w->count < w->room)
            w->out[w->count] = (sherd_named_state){sherd__path_below(w->root, m), slots[i].name,
                                                   slots[i].tensor, buffer};
        w->count++;
    }
}

static void visit(walk *w, const sherd_module *m)
{
    list(w, m, m->parameter, m->parameters, false);
    list(w, m, m->buffer, m->buffers, true);
    for (int i = 0; i < m->children; i++)
        visit(w, m->child[i].module);
}

int sherd_module_state(const sherd_module *module, sherd_named_state *out, int room)
{
    walk w = {module, 0, out, room, 0};

    if (!module)
        return 0;
    w.number = sherd__walk_number(module->world);
    visit(&w, module);
    return w.count;
}

int sherd_state_name(const sherd_named_state *entry, char *out, size_t room)
{
    const char *path = entry && entry->path ? entry->path : "";
    const char *name = entry && entry->name ? entry->name : "";

    return snprintf(out, out ? room : 0, "%s%s%s", path, path[0] ? "." : "", name);
}

/* ---- loading -------------------------------------------------------------------------------- */

/* The slot with this dotted name; NULL if there is none: *status. */
static sherd__named_tensor *find(sherd_module *module, const char *name, sherd_status *status)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot + 1 : name;
    sherd_module *m = module;

    if (dot)
        m = dot > name ? sherd__module_at(module, name, (size_t)(dot - name)) : NULL;
    int p = sherd__find_parameter(m, last), b = sherd__find_buffer(m, last);
    if (p >= 0 || b >= 0)
        return p >= 0 ? &m->parameter[p] : &m->buffer[b];
    *status = sherd__module_fail(module, SHERD_EINVAL,
                                 "sherd_module_load: \"%s\" has no parameter or buffer \"%s\"",
                                 sherd__module_name(module), name);
    return NULL;
}

static sherd_status check(const sherd__loading *what, sherd_tensor *to)
{
    sherd_tensor *from = what->t;

    if (from->dtype == to->dtype && sherd__same_shape(from->ndim, from->shape, to->ndim, to->shape))
        return SHERD_OK;
    return sherd__module_fail(what->module, SHERD_EINVAL, "%s: \"%s\" is %s, what is loaded is %s",
                              what->function, what->name, sherd_tensor_text(to),
                              sherd_tensor_text(from));
}

/* `from` in the layout of `to`; the failed tensor after a failure. */
static sherd_tensor *bring(sherd_tensor *to, sherd_tensor *from, int root)
{
    const sherd_layout *layout = to->layout;

    if (!layout)
        return sherd_full(from);
    return from->layout
               ? sherd_redistribute(from, layout, NULL)
               : sherd_distribute(from->autograd.node ? sherd_detach(from) : from, layout, root);
}

static bool has_distributed(const sherd_module *m)
{
    bool found = m->spread;

    for (int i = 0; i < m->parameters; i++)
        found |= m->parameter[i].tensor->layout != NULL;
    for (int i = 0; i < m->buffers; i++)
        found |= m->buffer[i].tensor->layout != NULL;
    for (int i = 0; !found && i < m->children; i++)
        found = has_distributed(m->child[i].module);
    return found;
}

/*
 * Whether all ranks load together. Decided for the whole module, not for one tensor, whose name may
 * be wrong on one rank; and also by ranks outside the mesh, whose parameters are plain.
 */
static bool is_distributed(const sherd_module *module)
{
    bool found = module && has_distributed(module);

    for (; module && !found; module = module->parent)
        found = module->spread;
    return found;
}

sherd__load_kind sherd__load_kind_of(const sherd_module *module)
{
    return is_distributed(module) ? SHERD__LOAD_TOGETHER : SHERD__LOAD_ALONE;
}

/*
 * Copy the local elements of `from`, row-major, to `to`, which has the same layout. False: ended by
 * the alarm. An empty piece is written too: that a tensor was written decides what is moved again,
 * and must on all ranks.
 */
static bool overwrite(sherd_tensor *to, sherd_tensor *from)
{
    const void *data = from->count ? sherd__data(from) : "";
    char *dst = sherd__mutable_view(to);

    if (!data || !dst)
        return false;
    if (to->count && !sherd__left_out(to->world, "copy", to->dtype, 0, 2 * sherd__local_bytes(to)))
        sherd__copy_box(sherd_dtype_bytes(to->dtype), to->ndim, to->local, dst, to->stride, data,
                        from->stride);
    if (!to->layout)
        sherd__set_varies(to, from->varies);
    return true;
}

/* Note what was loaded: this rank may have got no part of it. */
static void note(const sherd_tensor *to, const sherd_tensor *from)
{
    uint64_t identity;

    if (to->layout)
        sherd__deed_add(to->layout->spec.mesh, "sherd_module_load",
                        sherd__attribute(to->ledger.identity, from->ledger.identity), &identity);
}

static bool is_seen_here(const sherd_tensor *t)
{
    return !t->layout || sherd__in_mesh(t->world, sherd_layout_mesh(t->layout));
}

/* ---- from a root ----------------------------------------------------------------------------- */

/* What a rank tells the others of a load from one rank. */
enum { LAID = 1, MISSING = 2, PLAIN = 4 }; /* it is in the mesh of `to`; has no t; t is plain */

/* told[ranks]: of all ranks; in a dry world what this one knows. False: the alarm is raised. */
static bool tell(const sherd__loading *what, const sherd_tensor *to, int64_t *told)
{
    sherd_world *world = what->world;
    bool laid = to->layout && is_seen_here(to), dry = sherd__is_dry(world);
    int64_t mine =
        (laid ? LAID : 0) | (what->missing ? MISSING : 0) | (what->t->layout ? 0 : PLAIN);

    if (!sherd__share_whole(world, what->function, mine, told))
        return false;
    if (dry && what->root < sherd_world_ranks(world)) {
        bool in = laid && sherd_mesh_coordinate(to->layout->spec.mesh, what->root, NULL);
        told[0] = 0;
        told[what->root] = in ? LAID : PLAIN;
        told[sherd_world_rank(world)] = mine & ~MISSING;
    }
    return true;
}

/*
 * Ranks outside the mesh do not know that a parameter is on one. *root becomes the rank of the mesh
 * from which it is spread, and *relays whether what is loaded must get there first.
 */
static sherd_status find_root(const sherd__loading *what, const sherd_tensor *to, int *root,
                              bool *relays)
{
    int ranks = sherd_world_ranks(what->world), first = 0, missing = 0;
    int64_t *told = sherd__alloc(sherd__world_heap(what->world), (size_t)ranks, sizeof *told);
    sherd__diag *diag = sherd__world_diag(what->world);
    sherd_status status = SHERD_OK;

    if (!told)
        sherd__raise(what->world, SHERD_ENOMEM, "%s: out of memory", what->function);
    if (!told || !tell(what, to, told)) {
        sherd__free(sherd__world_heap(what->world), told);
        return diag->status ? diag->status : SHERD_EPEER;
    }
    while (first < ranks && !(told[first] & LAID))
        first++;
    while (missing < ranks && !(told[missing] & MISSING))
        missing++;
    if (first == ranks && missing < ranks)
        status = sherd__fail(diag, SHERD_EINVAL,
                             "%s: \"%s\" is plain on all ranks, and t NULL on "
                             "rank %d",
                             what->function, what->name, missing);
    else if (first < ranks && what->root >= ranks)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: root %d is no rank of the world",
                             what->function, what->root);
    *relays = !status && first < ranks && (told[what->root] & (LAID | PLAIN)) == PLAIN;
    *root = *relays ? first : what->root;
    sherd__free(sherd__world_heap(what->world), told);
    return status;
}

/*
 * The plain tensor of the root, which is outside the mesh, on the rank `via` of it; other ranks get
 * what they have passed. A call of the world.
 */
static sherd_tensor *relay(const sherd__loading *what, int via)
{
    sherd_world *world = what->world;
    const sherd_mesh *mesh;
    const sherd_layout *from, *to;
    sherd_tensor *t = what->t;
    int64_t ranks = sherd_world_ranks(world), root = what->root, at = via;
    int64_t count = sherd_tensor_count(t);

    if (sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"ranks"}, NULL) ||
        sherd__all_at(&from, mesh, 1, &count, &root) || sherd__all_at(&to, mesh, 1, &count, &at))
        return sherd__fail_diag(world, true);
    sherd_tensor *row = sherd_world_rank(world) == what->root
                            ? sherd_reshape(t->autograd.node ? sherd_detach(t) : t, &count, 1)
                            : sherd_constant_later(world, t->dtype, &count, 1, 0);
    row = sherd_redistribute(sherd_distribute(row, from, what->root), to, NULL);
    row = sherd_to_local(row);
    if (sherd_tensor_failed(row))
        return row;
    return sherd_world_rank(world) == via ? sherd_reshape(row, t->shape, t->ndim) : t;
}

/*
 * What this rank must write into `to`: *here, or NULL if nothing (a plain parameter on a rank
 * outside the mesh does not change if it is deferred, if this rank has nothing to load, or if what
 * is loaded lies on the mesh).
 */
static sherd_status fetch(sherd_tensor **here, sherd_tensor *to, const sherd__loading *what,
                          bool together)
{
    sherd__diag *diag = sherd__world_diag(to->world);
    sherd_tensor *from = what->t;
    int root = what->root;
    bool relays = false;

    *here = NULL;
    sherd_status status = together && root >= 0 ? find_root(what, to, &root, &relays) : SHERD_OK;
    if (status)
        return status;
    diag->status = SHERD_OK;
    if (relays)
        from = relay(what, root);
    if (((what->missing || !is_seen_here(from)) && !to->layout) || sherd__is_elsewhere(to))
        return sherd_tensor_failed(from) ? SHERD_EPEER : SHERD_OK;
    *here = sherd__contiguous(bring(to, from, root));
    bool good = !sherd_tensor_failed(*here) && (sherd__data(*here) || (*here)->count == 0);
    /* What was left for later takes its memory now. */
    if (good && (sherd__data(to) || to->count == 0))
        return SHERD_OK;
    return diag->status ? diag->status : SHERD_ENOMEM;
}

/*
 * Either all ranks have what they need, or none writes: a tensor that only some had written would
 * be lost. A lost tensor becomes valid again: whatever the ranks hold of it, they now write all.
 */
static sherd_status load(const sherd__loading *what, sherd_tensor *to, bool together)
{
    sherd_world *world = to->world;
    bool recording = sherd_set_recording(world, false);
    sherd__lost lost = to->lost;
    sherd_tensor *here;

    sherd_scope_begin(world);
    to->lost = together ? SHERD__THERE : lost;
    sherd_status status = fetch(&here, to, what, together);
    if (together)
        status = sherd__agree(world, status, 1, what->function);
    if (!status && here) {
        if (overwrite(to, here))
            note(to, here);
        else
            status = SHERD_EPEER;
    }
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    if (together)
        status = sherd__agree(world, status, 2, what->function);
    to->lost = lost;
    if (lost && !status)
        sherd__revive(to, true);
    return status;
}

static sherd__load_kind kind_of(const sherd__loading *what)
{
    return what->kind ? what->kind : sherd__load_kind_of(what->module);
}

/*
 * A placeholder for a tensor that only the root has: its shape and dtype, without memory. Refused
 * where this rank must have it.
 */
static sherd_status stand_in(sherd__loading *what, const sherd_tensor *to)
{
    sherd__diag *diag = sherd__world_diag(what->world);
    const sherd__argument need[] = {{"t", NULL}, {NULL, NULL}};

    if (what->root < 0 || what->root == sherd_world_rank(what->world) ||
        (!to->layout && kind_of(what) == SHERD__LOAD_ALONE))
        return sherd__require(diag, what->function, need);
    diag->status = SHERD_OK;
    what->t = sherd_constant_later(what->world, to->dtype, to->shape, to->ndim, 0);
    what->missing = true;
    if (!sherd_tensor_failed(what->t))
        return SHERD_OK;
    return diag->status ? diag->status : SHERD_ENOMEM;
}

/* All load what has the same name, or none. */
static sherd_status agree_on(const sherd__loading *what, sherd_status status)
{
    const char *name = what->name ? what->name : "";
    uint64_t arguments = sherd__hash_word(sherd__hash_text(5, name), (uint64_t)(what->root + 2));
    char fitted[64], text[128];

    sherd__fit_text(fitted, sizeof fitted, name);
    snprintf(text, sizeof text, "%s of \"%s\"", what->function, fitted);
    return sherd__agree(what->world, status, arguments, text);
}

/* The same with what->t given, or a placeholder for it. */
static sherd_status load_given(const sherd__loading *what, sherd_tensor *to, sherd_status status)
{
    const char *function = what->function;
    sherd_world *world = what->world;
    sherd_tensor *t = what->t;

    if (!status && (t->world != world || sherd_tensor_failed(t)))
        status = sherd__module_fail(what->module, SHERD_EINVAL, "%s: \"%s\": the tensor %s",
                                    function, what->name,
                                    t->world != world ? "is of another world" : "has failed");
    if (!status)
        status = check(what, to);
    /* A plain tensor concerns this rank only. */
    bool together = kind_of(what) == SHERD__LOAD_TOGETHER || sherd_tensor_layout(t);
    /* Nobody moves anything unless all do. */
    if (together)
        status = agree_on(what, status);
    return status ? status : load(what, to, together);
}

sherd_status sherd__load(const sherd__loading *what, sherd_tensor *to, sherd_status status)
{
    sherd__loading loading = *what;

    sherd_scope_begin(what->world);
    if (!status && !what->t)
        status = stand_in(&loading, to);
    status = load_given(&loading, to, status);
    sherd_scope_end(what->world);
    return status;
}

sherd_status sherd_module_load(sherd_module *module, const char *name, sherd_tensor *t, int root)
{
    const sherd__loading what = {.function = "sherd_module_load",
                                 .world = module ? module->world : sherd_tensor_world(t),
                                 .module = module,
                                 .name = name,
                                 .t = t,
                                 .root = root};
    const sherd__argument need[] = {{"module", module}, {"name", name}, {NULL, NULL}};
    sherd__named_tensor *slot = NULL;
    sherd_status status = sherd__require(sherd__world_diag(what.world), what.function, need);

    if (!what.world)
        return status;
    if (!status)
        slot = find(module, name, &status);
    return sherd__load(&what, slot ? slot->tensor : NULL, status);
}
