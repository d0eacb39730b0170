/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd_fully_shard: which parameters are sharded, by which dim, and which of them are gathered
 * together (unit.c). All is found and checked first; then the parameters are cut, since tied ones
 * change in all their places at once. What an earlier call has sharded over the axis, of a module
 * below, is left to that; only the order of calls is learned for all units together.
 */
#include <fnmatch.h>

#include "base/hash.h"
#include "base/num.h"
#include "nn/pattern.h"
#include "parallel/style.h"
#include "parallel/unit.h"

static const char function[] = "sherd_fully_shard";

typedef struct job {
    sherd_world *world;
    sherd_module *module;
    const sherd_mesh *mesh, *root;
    const char *names; /* of the axes, as the program has them */
    unsigned axes;     /* bits of the root's */
    const sherd_shard_options *options;
    sherd__sharding *all;
    sherd_module **unit; /* that options.unit matches */
    int units, unit_room;
    uint64_t ignored; /* the walk that has met ignored parameters */
    bool matched;     /* the pattern that is looked at has led to something */
} job;

/* ---- which dim ------------------------------------------------------------------------------ */

/*
 * The dim to shard: the one whose largest piece is the smallest fraction of it, the first of equal
 * ones. If other axes shard it already, each of their pieces is cut further.
 */
static int choose_dim(const job *j, const sherd_layout *layout)
{
    int64_t best_piece = 1, best_size = 1;
    int best = 0;

    for (int d = 0; d < layout->spec.ndim; d++) {
        int64_t size = layout->spec.shape[d];
        for (int i = 0; i < layout->spec.dim[d].axes; i++)
            size = sherd__ceil_div(size, j->root->extent[layout->spec.dim[d].axis[i]]);
        int64_t piece = size;
        for (int a = 0; a < j->root->axes; a++)
            if (j->axes >> a & 1)
                piece = sherd__ceil_div(piece, j->root->extent[a]);
        if (size > 0 && piece * best_size < best_piece * size) {
            best = d;
            best_piece = piece;
            best_size = size;
        }
    }
    return best;
}

static int dim_of(const job *j, const sherd_module *m, const sherd__named_tensor *p,
                  const sherd_layout *layout)
{
    int dim = j->options->dim ? j->options->dim(m, p->name, j->options->payload) : -1;

    return dim == -1 ? choose_dim(j, layout) : dim;
}

/* ---- which parameters ----------------------------------------------------------------------- */

static bool is_sharded(const job *j, const sherd_tensor *t)
{
    return t->layout && (t->layout->shard_axes & j->axes);
}

/* Whether an earlier call has sharded a tensor, by whatever name of the tree below m. */
static bool is_gathered_below(const job *j, const sherd_module *m, const sherd_tensor *t)
{
    bool found = false;

    for (int i = 0; i < m->parameters && !found; i++)
        found = m->parameter[i].tensor == t && (m->parameter[i].sharded & j->axes);
    for (int i = 0; i < m->children && !found; i++)
        found = is_gathered_below(j, m->child[i].module, t);
    return found;
}

/* The same of what is sharded: then it is tied to a parameter of a unit, and gathered here too. */
static bool is_tied_to_unit(const job *j, sherd_module *m, const sherd_tensor *t)
{
    return is_gathered_below(j, sherd__module_root(m), t);
}

static bool is_wanted(const job *j, sherd_module *m, const sherd__named_tensor *p)
{
    const sherd_tensor *t = p->tensor;

    if (t->ndim == 0 || sherd_tensor_count(t) == 0 || t->visit.walk == j->ignored ||
        sherd_tensor_count(t) < j->options->min_elements)
        return false;
    if (!is_sharded(j, t))
        return true;
    return !(p->sharded & j->axes) && (!j->options->skip_sharded || is_tied_to_unit(j, m, t));
}

static sherd_status refuse(const sherd_module *m, const sherd__named_tensor *p, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: parameter \"%s\" of \"%s\" %s", function,
                              p->name, sherd__module_name(m), fault);
}

/* A layout with the same placement on all of the axes, the outermost first. */
static sherd_status on_axes(const sherd_layout **out, const job *j, const sherd_layout *from,
                            sherd_placement placement)
{
    sherd_status status = SHERD_OK;

    *out = from;
    for (int a = 0; !status && a < j->root->axes; a++)
        if (j->axes >> a & 1)
            status = sherd_layout_with(out, *out, j->root, a, placement);
    return status;
}

/* The layout of a parameter when it is gathered. */
static sherd_status gathered_layout(const sherd_layout **out, const job *j, sherd_module *m,
                                    const sherd__named_tensor *p)
{
    const sherd_tensor *t = p->tensor;
    sherd_status status = SHERD_OK;

    if (t->layout && sherd_layout_mesh(t->layout) != j->root)
        return refuse(m, p, "lies on another mesh");
    if (is_sharded(j, t) && !is_tied_to_unit(j, m, t))
        return refuse(m, p, "is sharded over the axis already (options.skip_sharded leaves it)");
    if (is_sharded(j, t))
        return on_axes(out, j, t->layout, sherd_replicate());
    *out = t->layout;
    if (!t->layout)
        status = sherd__replicated(out, j->root, t->ndim, t->shape);
    int dim = status ? 0 : dim_of(j, m, p, *out);
    return !status && (dim < 0 || dim >= t->ndim) ? refuse(m, p, "lacks the dim that was chosen")
                                                  : status;
}

/* ---- units ---------------------------------------------------------------------------------- */

static int parameters_of(const sherd_module *m, bool deep)
{
    int n = m->parameters;

    for (int i = 0; deep && i < m->children; i++)
        n += parameters_of(m->child[i].module, true);
    return n;
}

static sherd_status fill_unit(sherd__unit *u, const job *j, sherd_module *m, bool deep)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < m->parameters; i++) {
        const sherd_layout *to;
        if (!is_wanted(j, m, &m->parameter[i]))
            continue;
        status = gathered_layout(&to, j, m, &m->parameter[i]);
        if (status)
            break;
        u->slot[u->count] = (sherd__unit_slot){.module = m, .parameter = i};
        sherd__layout_set(&u->to[u->count++], to);
    }
    for (int i = 0; deep && !status && i < m->children; i++)
        status = fill_unit(u, j, m->child[i].module, true);
    return status;
}

/* *out is not counted; it is NULL if none of its parameters is to be sharded. */
static sherd_status make_unit(sherd__unit **out, const job *j, sherd_module *m, sherd__unit *outer,
                              bool deep)
{
    sherd__unit *u = sherd__unit_create(j->all, m, parameters_of(m, deep));

    *out = NULL;
    if (!u)
        return sherd__no_memory(sherd__world_diag(j->world), function);
    u->outer = outer;
    u->keeps = j->options->keep_gathered;
    u->prefetches = !j->options->no_prefetch;
    u->dtype = j->options->param_dtype;
    u->reduce = j->options->reduce_dtype;
    u->output = j->options->output_dtype;
    u->leaves_inputs = j->options->keep_inputs;
    sherd_status status = fill_unit(u, j, m, deep);
    bool any = u->count > 0;
    if (!status && any)
        status = sherd__unit_hook(u);
    if (!status && any)
        status = sherd__note_style(m, "FullyShard", j->names);
    sherd__unit_release(u);
    if (!status && any)
        *out = u;
    return status;
}

static bool is_unit(const job *j, const sherd_module *m)
{
    bool found = false;

    for (int i = 0; i < j->units && !found; i++)
        found = j->unit[i] == m;
    return found;
}

static sherd_status make_units(const job *j, sherd_module *m, sherd__unit *outer)
{
    bool deep = !outer && is_unit(j, m);
    sherd__unit *u;
    sherd_status status = make_unit(&u, j, m, outer, deep);

    m->in_unit |= outer != NULL;
    for (int i = 0; !status && i < m->children; i++)
        status = make_units(j, m->child[i].module, deep ? u : outer);
    return status;
}

/* Units of earlier calls are called in one order with these. */
static void join_units(const job *j, sherd_module *m)
{
    sherd__unit *u;

    for (int i = 0; (u = sherd__unit_of(m, j->axes, &i)) != NULL;)
        sherd__unit_join(u, j->all);
    for (int i = 0; i < m->children; i++)
        join_units(j, m->child[i].module);
}

/* ---- patterns ------------------------------------------------------------------------------- */

static sherd_status add_unit(void *data, sherd_module *m, const char *rest)
{
    job *j = data;
    sherd_module **list = sherd__reserve(sherd__world_heap(j->world), j->unit, j->units,
                                         &j->unit_room, 8, sizeof(sherd_module *));

    (void)rest;
    j->matched = true;
    if (!list)
        return sherd__no_memory(sherd__world_diag(j->world), function);
    j->unit = list;
    j->unit[j->units++] = m;
    return SHERD_OK;
}

static sherd_status ignore(void *data, sherd_module *m, const char *rest)
{
    job *j = data;

    for (int i = 0; i < m->parameters; i++) {
        if (fnmatch(rest, m->parameter[i].name, 0) != 0)
            continue;
        j->matched = true;
        m->parameter[i].tensor->visit.walk = j->ignored;
    }
    return SHERD_OK;
}

/* Visit what a pattern leads to: modules, or those of which its last name names parameters. */
static sherd_status follow(job *j, const char *pattern, bool parameters)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    sherd__descent d = {.visit = parameters ? ignore : add_unit, .data = j, .deepest = -1};
    int levels;

    if (!pattern)
        return sherd__module_fail(j->module, SHERD_EINVAL, "%s: a pattern is NULL", function);
    char *names = sherd__path_names(heap, pattern, &levels);
    if (!names)
        return sherd__no_memory(sherd__world_diag(j->world), function);
    j->matched = false;
    sherd_status status = SHERD_OK;
    if (levels > 0 || !parameters)
        status = sherd__descend(&d, j->module, names, levels - parameters);
    sherd__free(heap, names);
    if (!status && !j->matched)
        status = sherd__module_fail(j->module, SHERD_EINVAL, "%s: \"%s\" matches no %s of \"%s\"",
                                    function, pattern, parameters ? "parameter" : "module",
                                    sherd__module_name(j->module));
    return status;
}

static sherd_status follow_all(job *j)
{
    const sherd_shard_options *o = j->options;
    sherd_status status = o->unit ? follow(j, o->unit, false) : SHERD_OK;

    j->ignored = sherd__walk_number(j->world);
    for (int i = 0; !status && o->ignored && i < o->ignored_count; i++)
        status = follow(j, o->ignored[i], true);
    return status;
}

/* ---- cutting -------------------------------------------------------------------------------- */

static sherd_status cut_one(const job *j, sherd_module *m, sherd__named_tensor *p)
{
    const sherd_layout *whole = p->tensor->layout, *pieces;
    sherd_status status = SHERD_OK;

    if (!whole)
        status = sherd__replicated(&whole, j->root, p->tensor->ndim, p->tensor->shape);
    int dim = status ? 0 : dim_of(j, m, p, whole);
    if (!status)
        status = on_axes(&pieces, j, whole, sherd_shard(dim));
    return status ? status : sherd__spread(m, p, pieces);
}

/* Before the program is asked for dims: it may walk over the modules as well. */
static void choose(const job *j, sherd_module *m)
{
    for (int i = 0; i < m->parameters; i++)
        if (is_wanted(j, m, &m->parameter[i]))
            m->parameter[i].sharded |= j->axes;
    for (int i = 0; i < m->children; i++)
        choose(j, m->child[i].module);
}

static sherd_status cut(const job *j, sherd_module *m)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < m->parameters; i++) {
        sherd__named_tensor *p = &m->parameter[i];
        if (p->sharded & j->axes && !is_sharded(j, p->tensor))
            status = cut_one(j, m, p);
    }
    for (int i = 0; !status && i < m->children; i++)
        status = cut(j, m->child[i].module);
    return status;
}

static void follow_ties(sherd_module *m)
{
    for (int i = 0; i < m->parameters; i++)
        sherd__follow_tie(m, &m->parameter[i]);
    for (int i = 0; i < m->children; i++)
        follow_ties(m->child[i].module);
}

static sherd_status run(job *j)
{
    sherd__heap *heap = sherd__world_heap(j->world);

    if (!sherd__in_mesh(j->world, j->mesh))
        return sherd__replicate_rest(j->module, j->mesh);
    follow_ties(j->module);
    sherd_status status = follow_all(j);
    j->all = status ? NULL : sherd__alloc(heap, 1, sizeof *j->all);
    if (!status && !j->all)
        status = sherd__no_memory(sherd__world_diag(j->world), function);
    if (status)
        return status;
    *j->all = (sherd__sharding){.world = j->world, .refs = 1, .axes = j->axes, .order = 1};
    sherd_scope_begin(j->world);
    status = make_units(j, j->module, NULL);
    if (!status)
        status = sherd__sharding_hook(j->all, j->module);
    if (!status) {
        choose(j, j->module);
        status = cut(j, j->module);
    }
    if (!status)
        status = sherd__replicate_rest(j->module, j->mesh);
    if (!status)
        join_units(j, j->module);
    sherd_scope_end(j->world);
    sherd__sharding_release(j->all);
    return status;
}

/* ---- the function --------------------------------------------------------------------------- */

static sherd_status check_dtypes(const job *j)
{
    static const char *const names[] = {"param_dtype", "reduce_dtype", "output_dtype"};
    const sherd_shard_options *o = j->options;
    const sherd_dtype dtypes[] = {o->param_dtype, o->reduce_dtype, o->output_dtype};

    for (int i = 0; i < 3; i++)
        if (dtypes[i] != SHERD_DTYPE_NONE && !sherd__has_fractions(dtypes[i]))
            return sherd__module_fail(j->module, SHERD_EINVAL, "%s: %s (%s, %d) has no fractions",
                                      function, names[i], sherd_dtype_name(dtypes[i]),
                                      (int)dtypes[i]);
    return SHERD_OK;
}

static sherd_status check(const job *j)
{
    const sherd_module *m = j->module;

    if (j->options->min_elements < 0)
        return sherd__module_fail(m, SHERD_EINVAL, "%s: min_elements is negative", function);
    if (j->options->ignored_count < 0)
        return sherd__module_fail(m, SHERD_EINVAL, "%s: ignored_count is %d", function,
                                  j->options->ignored_count);
    if (j->options->ignored_count > 0 && !j->options->ignored)
        return sherd__module_fail(m, SHERD_EINVAL, "%s: ignored is NULL", function);
    if (check_dtypes(j))
        return SHERD_EINVAL;
    while (m && !(m->sharded & j->axes))
        m = m->parent;
    return m && !j->options->skip_sharded
               ? sherd__module_fail(m, SHERD_EINVAL,
                                    "%s: \"%s\" is sharded over the axis already, and all below it "
                                    "(options.skip_sharded shards only what came later)",
                                    function, sherd__module_name(m))
               : SHERD_OK;
}

/* Of the dims that options.dim chooses, also on ranks that cut nothing. */
static uint64_t hash_dims(uint64_t hash, const job *j, const sherd_module *m)
{
    for (int i = 0; i < m->parameters; i++) {
        int dim = j->options->dim(m, m->parameter[i].name, j->options->payload);
        hash = sherd__hash_word(hash, (uint64_t)dim);
    }
    for (int i = 0; i < m->children; i++)
        hash = hash_dims(hash, j, m->child[i].module);
    return hash;
}

/* What ranks must agree on. */
static uint64_t hash_of(const job *j)
{
    const sherd_shard_options *o = j->options;
    const int of[] = {(int)j->axes,        o->no_prefetch,       o->keep_gathered,
                      o->skip_sharded,     o->unit != NULL,      o->keep_inputs,
                      (int)o->param_dtype, (int)o->reduce_dtype, (int)o->output_dtype};
    uint64_t hash = sherd__hash_word(j->mesh->hash, (uint64_t)o->min_elements);

    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++)
        hash = sherd__hash_word(hash, (uint64_t)of[i]);
    if (o->unit)
        hash = sherd__hash_text(hash, o->unit);
    for (int i = 0; o->ignored && i < o->ignored_count; i++)
        hash = sherd__hash_text(hash, o->ignored[i] ? o->ignored[i] : "");
    if (o->dim)
        hash = hash_dims(hash, j, j->module);
    return sherd__hash_tree(hash, j->module);
}

/* The axes of "dp,cp". Text that is no name of an axis is refused as it is. */
static sherd_status read_axes(job *j, const char *axes)
{
    const char *at = axes, *end;

    j->root = sherd_mesh_root(j->mesh);
    do {
        char name[SHERD__NAME_BYTES];
        int axis;
        end = at ? at + strcspn(at, ",") : NULL;
        bool fits = at && (size_t)(end - at) < sizeof name;
        if (fits)
            snprintf(name, sizeof name, "%.*s", (int)(end - at), at);
        sherd_status status =
            sherd__style_axis(&axis, &j->world, j->module, j->mesh, fits ? name : at, function);
        if (status)
            return status;
        if (j->axes >> j->mesh->root_axis[axis] & 1)
            return sherd__module_fail(j->module, SHERD_EINVAL, "%s: axis \"%s\" is named twice",
                                      function, name);
        j->axes |= 1u << j->mesh->root_axis[axis];
        at = end + 1;
    } while (*end);
    return SHERD_OK;
}

sherd_status sherd_fully_shard(sherd_module *module, const sherd_mesh *mesh, const char *axis,
                               const sherd_shard_options *options)
{
    const sherd_shard_options o = options ? *options : (sherd_shard_options){0};
    job j = {.module = module, .mesh = mesh, .names = axis, .options = &o};
    sherd_status status = read_axes(&j, axis);
    uint64_t hash = 1;

    if (!j.world)
        return status;
    if (!status) {
        hash = hash_of(&j);
        status = check(&j);
    }
    if (!status) {
        status = run(&j);
        module->spread = true;
        sherd__free(sherd__world_heap(j.world), j.unit);
    }
    status = sherd__agree(j.world, status, hash, function);
    if (!status)
        module->sharded |= j.axes;
    return status;
}
