/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks of styles. Before the forward the first positional argument becomes distributed, is
 * checked against what was declared, and is moved to what the module wants; after it the outputs
 * are moved to what was asked for. Only one axis is touched. A hook remembers its last move, so
 * that a call that repeats it looks up no layouts.
 */
#include <stdio.h>

#include "ops/operator.h"
#include "parallel/style.h"

/* What one hook knows; owned by the hook. */
typedef struct passage {
    sherd_world *world;
    sherd_style style;    /* a copy */
    sherd__recipe recipe; /* with the style's settings in it */
    const sherd_mesh *mesh, *root;
    int axis, root_axis;
    const sherd_layout *from, *weight, *to; /* the last move; counted */
} passage;

static void free_passage(void *payload)
{
    passage *p = payload;

    sherd__layout_set(&p->from, NULL);
    sherd__layout_set(&p->weight, NULL);
    sherd__layout_set(&p->to, NULL);
    sherd__free(sherd__world_heap(p->world), p);
}

static sherd_tensor *fail(const passage *p, const sherd_module *m, sherd_tensor *x, const char *why)
{
    return sherd__fail_tensor(p->world, true, SHERD_EINVAL,
                              "module \"%s\" (%s on axis %s): %s arrived: %s",
                              sherd__module_name(m), p->recipe.name,
                              sherd_mesh_axis_name(p->mesh, p->axis), sherd_tensor_text(x), why);
}

/* Bits of the root's axes, other than the style's own, that have more than one rank. */
static unsigned other_axes(const passage *p)
{
    unsigned bits = 0;
    for (int a = 0; a < p->root->axes; a++)
        if (a != p->root_axis && p->root->extent[a] > 1)
            bits |= 1u << a;
    return bits;
}

/* The placement with its dim counted from the front; false if x has no such dim. */
static bool resolve(const sherd_tensor *x, sherd_placement *placement)
{
    if (placement->kind != SHERD_SHARD)
        return true;
    if (placement->dim < 0)
        placement->dim += x->ndim;
    return placement->dim >= 0 && placement->dim < x->ndim;
}

/* ---- before the forward --------------------------------------------------------------------- */

/* A plain tensor that was distributed before to_local, as it was. */
static sherd_tensor *take_back(const passage *p, sherd_tensor *x)
{
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    int order[SHERD_MAX_AXES] = {0};
    sherd_from_local_options options = {.mode = SHERD_FROM_CHUNK, .order = order};

    for (int d = 0; d < x->was->spec.ndim; d++)
        for (int i = 0; i < x->was->spec.dim[d].axes; i++)
            order[x->was->spec.dim[d].axis[i]] = i;
    for (int a = 0; a < p->root->axes; a++)
        placements[a] = sherd_layout_placement(x->was, a);
    return sherd_from_local(x, p->root, placements, &options);
}

/* A plain tensor becomes distributed: what it was before to_local, or what is declared. */
static sherd_tensor *adopt(const passage *p, const sherd_module *m, sherd_tensor *x)
{
    sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    sherd_placement taken = p->style.input.kind ? p->style.input : p->recipe.taken;
    unsigned own = p->mesh->extent[p->axis] > 1 ? 1u << p->root_axis : 0;

    if (x->was && sherd_layout_mesh(x->was) == p->root)
        return take_back(p, x);
    if (!resolve(x, &taken))
        return fail(p, m, x, "it lacks the dim that the style shards");
    if (x->varies & other_axes(p))
        return fail(p, m, x,
                    "it may differ along the other axes of the mesh; distribute it, or say "
                    "sherd_mark_equal");
    /* Of unknown origin: the style's word counts. Known to differ: it does not. */
    if (taken.kind == SHERD_REPLICATE && x->varies != (unsigned)SHERD__VARIES && (x->varies & own))
        return fail(p, m, x, "it differs along the axis, so it can't be taken for replicated");
    /* Equal on all ranks it is the whole, not a piece: joined to a shard it would be there once a rank. */
    if (taken.kind != SHERD_PARTIAL && x->varies == 0)
        return sherd__promote_recorded(x, p->root, p->recipe.name);
    placements[p->root_axis] = taken;
    return sherd_from_local(x, p->root, placements, taken.kind == SHERD_SHARD ? &infer : NULL);
}

static bool is_same(sherd_placement a, sherd_placement b)
{
    return a.kind == b.kind && (a.kind != SHERD_SHARD || a.dim == b.dim) &&
           (a.kind != SHERD_PARTIAL || a.op == b.op);
}

/* Whether x lies as declared. On an axis of one rank all placements are the same. */
static bool lies_as_declared(const passage *p, const sherd_tensor *x)
{
    sherd_placement declared = p->style.input;

    if (declared.kind == SHERD_UNSET || p->mesh->extent[p->axis] == 1)
        return true;
    return resolve(x, &declared) &&
           is_same(declared, sherd_layout_placement(x->layout, p->root_axis));
}

static sherd_tensor *refuse_input(const passage *p, const sherd_module *m, sherd_tensor *x)
{
    static const char *const kinds[] = {"", "R", "S", "P"};
    static const char *const ops[] = {"sum", "avg", "min", "max", "product"};
    sherd_placement declared = p->style.input;
    char why[64], where[16] = "";

    if (declared.kind == SHERD_SHARD)
        snprintf(where, sizeof where, "(%d)", declared.dim);
    if (declared.kind == SHERD_PARTIAL)
        snprintf(where, sizeof where, "(%s)", ops[declared.op]);
    snprintf(why, sizeof why, "the style declares %s%s as input", kinds[declared.kind], where);
    return fail(p, m, x, why);
}

/*
 * The layout x is to have with `want` on the axis; the last dim of a shard follows the weight's
 * cuts.
 */
static sherd_status aim(const sherd_layout **to, const passage *p, const sherd_tensor *x,
                        sherd_placement want, const sherd_layout *weight)
{
    sherd_status status = sherd_layout_with(to, x->layout, p->mesh, p->axis, want);
    const sherd__dim *cut = weight ? &weight->spec.dim[p->recipe.follow] : NULL;
    sherd__layout_spec spec;

    if (status || !cut || want.kind != SHERD_SHARD || want.dim != x->ndim - 1)
        return status;
    spec = (*to)->spec;
    /*
     * Where other axes share the dim, or sizes differ, the operator finds its own way, or an error.
     */
    if (spec.mesh != weight->spec.mesh || spec.dim[want.dim].axes != 1 || cut->axes != 1 ||
        cut->axis[0] != p->root_axis ||
        spec.shape[want.dim] != weight->spec.shape[p->recipe.follow])
        return SHERD_OK;
    spec.dim[want.dim].cuts = cut->cuts;
    return sherd__layout_intern(to, &spec);
}

static sherd_tensor *move(passage *p, const sherd_module *m, sherd_tensor *x, sherd_placement want)
{
    const sherd_layout *weight = NULL, *to;

    if (want.kind == SHERD_UNSET)
        return x;
    if (!resolve(x, &want))
        return fail(p, m, x, "it lacks the dim that the style shards");
    if (p->recipe.follow >= 0)
        weight = sherd_tensor_layout(sherd_module_parameter(m, "weight"));
    if (p->from != x->layout || p->weight != weight) {
        if (aim(&to, p, x, want, weight))
            return sherd__fail_diag(p->world, true);
        sherd__layout_set(&p->from, x->layout);
        sherd__layout_set(&p->weight, weight);
        sherd__layout_set(&p->to, to);
    }
    return sherd_redistribute(x, p->to, NULL);
}

static void arrive(sherd_module *self, sherd_args *in, void *payload)
{
    passage *p = payload;
    sherd_tensor *x = in->count > 0 && !in->name[0] ? in->value[0] : NULL;
    bool whole;

    if (!x) {
        sherd__raise(p->world, SHERD_EINVAL, "module \"%s\" (%s): no positional argument arrived",
                     sherd__module_name(self), p->recipe.name);
        return;
    }
    if (sherd_tensor_failed(x))
        return;
    whole = !x->layout && x->varies == 0;
    if (!x->layout)
        x = adopt(p, self, x);
    if (!sherd_tensor_failed(x)) {
        if (sherd_layout_mesh(x->layout) != p->root)
            x = fail(p, self, x, "it lies on another mesh");
        else if (!whole && !lies_as_declared(p, x))
            x = refuse_input(p, self, x);
        else
            x = move(p, self, x, p->recipe.desired);
    }
    in->value[0] = x;
}

/* ---- after the forward ---------------------------------------------------------------------- */

static sherd_tensor *send(passage *p, const sherd_module *m, sherd_tensor *y)
{
    if (sherd_tensor_failed(y) || (!y->layout && p->recipe.output.kind == SHERD_UNSET))
        return y;
    if (!y->layout || sherd_layout_mesh(y->layout) != p->root)
        return fail(p, m, y, "an output that is not on the style's mesh can't be moved");
    y = move(p, m, y, p->recipe.output);
    return p->style.to_local && !sherd_tensor_failed(y) ? sherd_to_local(y) : y;
}

static void leave(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)in;
    for (int i = 0; i < out->count && i < SHERD_MAX_ARGS; i++)
        if (out->value[i])
            out->value[i] = send(payload, self, out->value[i]);
}

static passage *make_passage(const sherd_style *style, const sherd__recipe *recipe,
                             sherd_module *module, const sherd_mesh *mesh, int axis)
{
    passage *p = sherd__alloc(sherd__world_heap(module->world), 1, sizeof *p);

    if (!p)
        return NULL;
    *p = (passage){.world = module->world, .style = *style, .recipe = *recipe, .mesh = mesh};
    p->root = sherd_mesh_root(mesh);
    p->axis = axis;
    p->root_axis = mesh->root_axis[axis];
    if (style->desired.kind)
        p->recipe.desired = style->desired;
    if (style->output.kind)
        p->recipe.output = style->output;
    return p;
}

sherd_status sherd__style_hook(const sherd_style *style, const sherd__recipe *recipe,
                               sherd_module *module, const sherd_mesh *mesh, int axis)
{
    sherd_hook_options options = {.destroy = free_passage};
    passage *before = make_passage(style, recipe, module, mesh, axis);
    passage *after = make_passage(style, recipe, module, mesh, axis);
    sherd_status status;

    if (!before || !after) {
        sherd__free(sherd__world_heap(module->world), before);
        sherd__free(sherd__world_heap(module->world), after);
        return sherd__no_memory(sherd__world_diag(module->world), "sherd_parallelize");
    }
    after->recipe.follow = -1;
    options.payload = before;
    status = sherd_module_hook_before(NULL, module, arrive, &options);
    if (status || (after->recipe.output.kind == SHERD_UNSET && !style->to_local)) {
        free_passage(after);
        return status;
    }
    options.payload = after;
    return sherd_module_hook_after(NULL, module, leave, &options);
}
