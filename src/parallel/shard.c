/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fully sharded parameters. A parameter is sharded over one axis; the shard is the leaf, so its
 * gradient and the optimizer's state are sharded too. Hooks gather the parameters of a module
 * before its forward, put the gathered tensors in place of the sharded ones, and take them out
 * again afterwards. The rest follows from what the tape does with any move: it saves the source of
 * a gather, not its result (decision 002), so a gathered parameter is freed after the forward and
 * gathered again in backward; and a leaf keeps no gradient larger than itself (decision 015), so
 * gradients are reduce-scattered as they arrive.
 *
 * While a module computes, the gather for the module that came next in the last call is begun: at
 * most one is ahead. The order is learned anew after a failed check, because in a call that fails
 * some ranks call modules that others, which have seen the failure, do not call.
 */
#include "base/hash.h"
#include "base/num.h"
#include "parallel/style.h"

/* What all modules of one sherd_fully_shard share; counted by their hooks. */
typedef struct sharding {
    sherd_world *world;
    int refs;
    sherd_shard_options options;
    uint64_t failed;    /* checks that had failed when the order below was learned */
    int running;        /* calls of the root under way */
    struct unit *last;  /* the unit that was called last in this forward */
    struct unit *ahead; /* gathered before its call */
} sharding;

/*
 * A parameter of a unit. The arrays of layouts and tensors beside it are the arguments of a list of
 * moves.
 */
typedef struct slot {
    int parameter;      /* its number in the module */
    sherd_tensor *home; /* while the module runs: the pieces; counted */
} slot;

/* One module with its sharded parameters; the payload of its two hooks, which count it. */
typedef struct unit {
    sharding *all;
    sherd_module *module;
    struct unit *next; /* the one that was called after this one, the last time */
    uint64_t failed;   /* of `next`, as in sharding */
    int refs, depth;   /* depth: calls of the module under way */
    bool gathered;
    int count;
    slot *slot;              /* [count] */
    const sherd_layout **to; /* gathered; counted */
    sherd_tensor **pieces;   /* as a gather begins; not counted */
    sherd_tensor **whole;    /* counted, while gathered; else NULL */
} unit;

/* ---- gathering ------------------------------------------------------------------------------ */

/*
 * A leaf's gradient is passed on unchanged: a leaf holds no gradient larger than itself, so it
 * scatters it.
 */
static void gather_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = grad_out[0];
}

static const sherd_op gather_table = {
    .name = "sherd_fully_shard", .takes_pending = true, .backward = gather_back};

/* Record as sherd_redistribute does: unless `keep`, the tape may save the shards. */
static void record(sherd_tensor *pieces, sherd_tensor *whole, bool keep)
{
    if (whole == pieces || sherd_tensor_failed(whole))
        return;
    if (!keep && pieces->layout->sharers > whole->layout->sharers)
        whole->autograd.moved_from = sherd_tensor_retain(pieces);
    sherd__origin_pass(&pieces, 1, &whole, 1); /* it may have been gathered before the call */
    sherd__record_node(whole->world, &gather_table, &pieces, 1, &whole, 1, NULL, 0);
}

/* One call for all parameters of the module. */
static void gather(unit *u, bool begin)
{
    for (int i = 0; i < u->count; i++)
        u->pieces[i] = u->module->parameter[u->slot[i].parameter].tensor;
    sherd__move_list(u->whole, u->pieces, u->to, u->count, begin);
    for (int i = 0; i < u->count; i++)
        sherd_tensor_retain(u->whole[i]);
    u->gathered = true;
}

static void drop(unit *u)
{
    u->gathered = false;
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *whole = u->whole[i];
        u->whole[i] = NULL;
        sherd_tensor_release(whole);
    }
}

/*
 * Whether a parameter was written or replaced since its gather was begun, as by a forward that
 * moves the parameters of another module before it calls that.
 */
static bool is_stale(const unit *u)
{
    bool stale = false;

    for (int i = 0; i < u->count; i++) {
        const sherd_tensor *now = u->module->parameter[u->slot[i].parameter].tensor;
        const sherd_tensor *whole = u->whole[i];
        stale |= now != u->pieces[i];
        if (!stale && whole != now && now->storage && whole->storage)
            stale = whole->autograd.moved_version != now->storage->version;
    }
    return stale;
}

/* Drop what was gathered ahead for a call that did not come. */
static void drop_ahead(sharding *all)
{
    unit *u = all->ahead;

    all->ahead = NULL;
    if (u && u->depth == 0)
        drop(u);
}

/*
 * The forward sees the gathered tensors. They are recorded here and not where their gather was
 * begun: what is on the tape must not depend on what ran before, or a recomputed module would
 * record something else.
 */
static void put_in(unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd__named_tensor *p = &u->module->parameter[u->slot[i].parameter];
        record(p->tensor, u->whole[i], u->all->options.keep_gathered);
        u->slot[i].home = p->tensor;
        p->tensor = sherd_tensor_retain(u->whole[i]);
    }
}

/* Unless the forward has replaced it. */
static void take_out(unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd__named_tensor *p = &u->module->parameter[u->slot[i].parameter];
        sherd_tensor *home = u->slot[i].home, *now = p->tensor;
        u->slot[i].home = NULL;
        if (now == u->whole[i]) {
            p->tensor = home;
            sherd_tensor_release(now);
        } else {
            sherd_tensor_release(home);
        }
    }
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static void begin_next(sharding *all, unit *u)
{
    unit *next = u->failed == all->failed ? u->next : NULL;

    if (all->options.no_prefetch || !all->running || !next || next->gathered || next->depth > 0)
        return;
    gather(next, true);
    all->ahead = next;
}

/* Forget the order of calls, if a check has failed since. */
static void renew(sharding *all)
{
    uint64_t failed = sherd__failed_checks(all->world);

    if (all->failed == failed)
        return;
    drop_ahead(all);
    all->last = NULL;
    all->failed = failed;
}

static void arrive(sherd_module *self, sherd_args *in, void *payload)
{
    unit *u = payload;
    sharding *all = u->all;

    (void)self, (void)in;
    if (u->depth++ > 0)
        return;
    renew(all);
    if (all->ahead != u)
        drop_ahead(all);
    all->ahead = NULL;
    if (u->gathered && is_stale(u))
        drop(u);
    if (!u->gathered)
        gather(u, false);
    put_in(u);
    if (all->running && all->last) {
        all->last->next = u;
        all->last->failed = all->failed;
    }
    all->last = u;
    begin_next(all, u);
}

static void leave(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    unit *u = payload;

    (void)self, (void)in, (void)out;
    if (--u->depth > 0)
        return;
    take_out(u);
    drop(u);
}

static void enter_root(sherd_module *self, sherd_args *in, void *payload)
{
    sharding *all = payload;

    (void)self, (void)in;
    if (all->running++ == 0)
        all->last = NULL;
}

static void leave_root(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    sharding *all = payload;

    (void)self, (void)in, (void)out;
    if (--all->running == 0) {
        all->last = NULL;
        drop_ahead(all);
    }
}

/* ---- what hooks own ------------------------------------------------------------------------- */

static void release_all(void *payload)
{
    sharding *all = payload;

    if (--all->refs == 0)
        sherd__free(sherd__world_heap(all->world), all);
}

/* Another unit may still point here only while the tree is destroyed, when nothing runs. */
static void release_unit(void *payload)
{
    unit *u = payload;
    sherd__heap *heap = sherd__world_heap(u->all->world);

    if (--u->refs > 0)
        return;
    for (int i = 0; i < u->count; i++)
        sherd__layout_set(&u->to[i], NULL);
    if (u->gathered)
        drop(u);
    if (u->all->ahead == u)
        u->all->ahead = NULL;
    release_all(u->all);
    sherd__free(heap, u->slot);
    sherd__free(heap, u->to);
    sherd__free(heap, u->pieces);
    sherd__free(heap, u->whole);
    sherd__free(heap, u);
}

/* ---- laying out ----------------------------------------------------------------------------- */

typedef struct job {
    sherd_world *world;
    const sherd_mesh *mesh, *root;
    int axis, root_axis;
    const sherd_shard_options *options;
    sharding *all;
} job;

/*
 * The dim to shard: the one whose largest piece is the smallest fraction of it, the first of equal
 * ones. If other axes shard it already, each of their pieces is cut further.
 */
static int choose_dim(const job *j, const sherd_layout *layout)
{
    int64_t p = j->root->extent[j->root_axis], best_piece = 1, best_size = 1;
    int best = 0;

    for (int d = 0; d < layout->spec.ndim; d++) {
        int64_t size = layout->spec.shape[d];
        for (int i = 0; i < layout->spec.dim[d].axes; i++)
            size = sherd__ceil_div(size, j->root->extent[layout->spec.dim[d].axis[i]]);
        int64_t piece = sherd__ceil_div(size, p);
        if (size > 0 && piece * best_size < best_piece * size) {
            best = d;
            best_piece = piece;
            best_size = size;
        }
    }
    return best;
}

static bool is_sharded(const job *j, const sherd_tensor *t)
{
    return t->layout && (t->layout->shard_axes >> j->root_axis & 1);
}

static bool is_wanted(const job *j, const sherd_tensor *t)
{
    return t->ndim > 0 && sherd_tensor_count(t) > 0 &&
           sherd_tensor_count(t) >= j->options->min_elements &&
           !(j->options->skip_sharded && is_sharded(j, t));
}

/* The layout of a parameter when it is gathered. */
static sherd_status gathered_layout(const sherd_layout **out, const job *j, const sherd_module *m,
                                    const sherd__named_tensor *p)
{
    const char *fault = NULL;

    if (p->tensor->layout && sherd_layout_mesh(p->tensor->layout) != j->root)
        fault = "lies on another mesh";
    else if (is_sharded(j, p->tensor))
        fault = "is sharded over the axis already (options.skip_sharded leaves it)";
    if (fault)
        return sherd__module_fail(m, SHERD_EINVAL,
                                  "sherd_fully_shard: parameter \"%s\" of \"%s\" %s", p->name,
                                  sherd__module_name(m), fault);
    if (!p->tensor->layout)
        return sherd__replicated(out, j->root, p->tensor->ndim, p->tensor->shape);
    *out = p->tensor->layout;
    return SHERD_OK;
}

/* With room for n parameters; NULL for lack of memory. */
static unit *new_unit(const job *j, sherd_module *m, size_t n)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    unit *u = sherd__alloc(heap, 1, sizeof *u);

    if (!u)
        return NULL;
    *u = (unit){.all = j->all, .module = m, .refs = 1};
    j->all->refs++;
    u->slot = sherd__alloc(heap, n, sizeof *u->slot);
    u->to = sherd__alloc(heap, n, sizeof *u->to);
    u->pieces = sherd__alloc(heap, n, sizeof *u->pieces);
    u->whole = sherd__alloc(heap, n, sizeof *u->whole);
    if (u->slot && u->to && u->pieces && u->whole)
        return u;
    release_unit(u);
    return NULL;
}

/* The unit of a module; *out is NULL if none of its parameters is to be sharded. */
static sherd_status make_unit(unit **out, const job *j, sherd_module *m)
{
    unit *u = new_unit(j, m, (size_t)m->parameters);
    sherd_status status = SHERD_OK;

    *out = NULL;
    if (!u)
        return sherd__no_memory(sherd__world_diag(j->world), "sherd_fully_shard");
    for (int i = 0; !status && i < m->parameters; i++) {
        const sherd_layout *to;
        if (!is_wanted(j, m->parameter[i].tensor))
            continue;
        status = gathered_layout(&to, j, m, &m->parameter[i]);
        if (status)
            break;
        m->parameter[i].sharded = true;
        u->slot[u->count].parameter = i;
        sherd__layout_set(&u->to[u->count++], to);
    }
    if (status || u->count == 0)
        release_unit(u);
    else
        *out = u;
    return status;
}

static sherd_status hook_unit(unit *u)
{
    sherd_hook_options options = {.prepend = true, .payload = u, .destroy = release_unit};
    sherd_status status;

    u->refs++;
    status = sherd_module_hook_before(NULL, u->module, arrive, &options);
    if (status)
        return status;
    u->refs++;
    options.prepend = false;
    return sherd_module_hook_after(NULL, u->module, leave, &options);
}

/* Check everything first: tied parameters change in all their places at once. */
static sherd_status make_units(const job *j, sherd_module *m)
{
    unit *u;
    sherd_status status = make_unit(&u, j, m);

    if (!status && u) {
        status = hook_unit(u);
        release_unit(u);
        if (!status)
            status = sherd__note_style(m, "FullyShard", sherd_mesh_axis_name(j->mesh, j->axis));
    }
    for (int i = 0; !status && i < m->children; i++)
        status = make_units(j, m->child[i].module);
    return status;
}

static sherd_status cut(const job *j, sherd_module *m)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < m->parameters; i++) {
        sherd__named_tensor *p = &m->parameter[i];
        sherd__follow_tie(m, p);
        const sherd_layout *whole = p->tensor->layout, *pieces;
        if (!is_wanted(j, p->tensor) || is_sharded(j, p->tensor))
            continue;
        if (!whole)
            status = sherd__replicated(&whole, j->root, p->tensor->ndim, p->tensor->shape);
        if (!status)
            status = sherd_layout_with(&pieces, whole, j->mesh, j->axis,
                                       sherd_shard(choose_dim(j, whole)));
        if (!status)
            status = sherd__spread(m, p, pieces);
    }
    for (int i = 0; !status && i < m->children; i++)
        status = cut(j, m->child[i].module);
    return status;
}

static sherd_status hook_root(const job *j, sherd_module *module)
{
    sherd_hook_options options = {.prepend = true, .payload = j->all, .destroy = release_all};
    sherd_status status;

    j->all->refs++;
    status = sherd_module_hook_before(NULL, module, enter_root, &options);
    if (status)
        return status;
    j->all->refs++;
    options.prepend = false;
    return sherd_module_hook_after(NULL, module, leave_root, &options);
}

static sherd_status run(job *j, sherd_module *module)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    sherd_status status;

    if (!sherd__in_mesh(j->world, j->mesh))
        return sherd__replicate_rest(module, j->mesh);
    j->all = sherd__alloc(heap, 1, sizeof *j->all);
    if (!j->all)
        return sherd__no_memory(sherd__world_diag(j->world), "sherd_fully_shard");
    *j->all = (sharding){.world = j->world, .refs = 1, .options = *j->options};
    sherd_scope_begin(j->world);
    status = make_units(j, module);
    if (!status)
        status = hook_root(j, module); /* before the hooks of its own unit, and after them */
    if (!status)
        status = cut(j, module);
    if (!status)
        status = sherd__replicate_rest(module, j->mesh);
    sherd_scope_end(j->world);
    release_all(j->all);
    return status;
}

sherd_status sherd_fully_shard(sherd_module *module, const sherd_mesh *mesh, const char *axis,
                               const sherd_shard_options *options)
{
    static const char function[] = "sherd_fully_shard";
    const sherd_shard_options o = options ? *options : (sherd_shard_options){0};
    job j = {.mesh = mesh, .root = sherd_mesh_root(mesh), .options = &o};
    sherd_status status = sherd__style_axis(&j.axis, &j.world, module, mesh, axis, function);
    uint64_t hash = 1;

    if (!j.world)
        return status;
    if (!status && o.min_elements < 0)
        status = sherd__module_fail(module, SHERD_EINVAL, "%s: min_elements is negative", function);
    if (!status) {
        j.root_axis = mesh->root_axis[j.axis];
        const int of[] = {j.axis, o.no_prefetch, o.keep_gathered, o.skip_sharded};
        hash = sherd__hash_word(mesh->hash, (uint64_t)o.min_elements);
        for (int i = 0; i < 4; i++)
            hash = sherd__hash_word(hash, (uint64_t)of[i]);
        hash = sherd__hash_tree(hash, module);
        status = run(&j, module);
        module->spread = true;
    }
    return sherd__agree(j.world, status, hash, function);
}
