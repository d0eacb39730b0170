/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tensor on its way into or out of a module: a plain one becomes distributed, a distributed one
 * is checked against the declaration, and it is moved to the desired placement. Only one axis is
 * changed.
 */
#include "parallel/gate.h"

#include <stdio.h>

#include "apply/operator.h"
#include "apply/sketch.h"
#include "nn/quantize.h"

bool sherd__gate_is_open(const sherd__gate *gate)
{
    return gate->taken.kind == SHERD_UNSET && gate->declared.kind == SHERD_UNSET &&
           gate->desired.kind == SHERD_UNSET && !gate->to_local;
}

void sherd__gate_clear(sherd_world *world, sherd__gate *gate)
{
    sherd__layout_set(&gate->from, NULL);
    sherd__layout_set(&gate->weight, NULL);
    sherd__layout_set(&gate->to, NULL);
    sherd__free(sherd__world_heap(world), gate->name);
    gate->name = NULL;
}

static sherd_tensor *fail(const sherd__gate_side *s, const sherd__gate *g, const sherd_module *m,
                          sherd_tensor *x, const char *why)
{
    return sherd__fail_tensor(
        s->world, true, SHERD_EINVAL, "module \"%s\" (%s on axis %s): %s%s%s%s%s %s: %s",
        sherd__module_name(m), s->style, sherd_mesh_axis_name(s->mesh, s->axis), g->which,
        g->name ? "input \"" : "", g->name ? g->name : "", g->name ? "\": " : "",
        sherd_tensor_text(x), s->in ? "arrived" : "came out", why);
}

/* Bits of the root's axes, other than the style's own, that have more than one rank. */
static unsigned other_axes(const sherd__gate_side *s)
{
    unsigned bits = 0;
    for (int a = 0; a < s->root->axes; a++)
        if (a != s->root_axis && s->root->extent[a] > 1)
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

/* ---- becoming distributed ------------------------------------------------------------------- */

/* A plain tensor that remembers its layout from to_local, in that layout. */
static sherd_tensor *take_back(const sherd__gate_side *s, sherd_tensor *x)
{
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    int order[SHERD_MAX_AXES] = {0};
    sherd_from_local_options options = {.mode = SHERD_FROM_CHUNK, .order = order};

    for (int d = 0; d < x->was->spec.ndim; d++)
        for (int i = 0; i < x->was->spec.dim[d].axes; i++)
            order[x->was->spec.dim[d].axis[i]] = i;
    for (int a = 0; a < s->root->axes; a++)
        placements[a] = sherd_layout_placement(x->was, a);
    return sherd_from_local(x, s->root, placements, &options);
}

/* A plain tensor becomes distributed: in the layout that it remembers, or the declared one. */
static sherd_tensor *adopt(const sherd__gate_side *s, const sherd__gate *g, const sherd_module *m,
                           sherd_tensor *x)
{
    sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    sherd_placement taken = g->taken;
    unsigned own = s->mesh->extent[s->axis] > 1 ? 1u << s->root_axis : 0;

    if (x->was && sherd_layout_mesh(x->was) == s->root)
        return take_back(s, x);
    if (!resolve(x, &taken))
        return fail(s, g, m, x, "it lacks the dim that the style shards");
    if (x->varies & other_axes(s))
        return fail(s, g, m, x,
                    "it may differ along the other axes of the mesh; distribute it, or say "
                    "sherd_mark_equal");
    /* Of unknown origin: the style's word counts. Known to differ: it does not. */
    if (taken.kind == SHERD_REPLICATE && x->varies != (unsigned)SHERD__VARIES && (x->varies & own))
        return fail(s, g, m, x, "it differs along the axis, so it can't be taken for replicated");
    /*
     * Equal on all ranks it is the whole, not a piece: joined to a shard it would be there once a
     * rank.
     */
    if (taken.kind != SHERD_PARTIAL && x->varies == 0)
        return sherd__promote_recorded(x, s->root, s->style);
    if (taken.kind == SHERD_UNSET)
        return fail(s, g, m, x, "it is plain, and nothing says how its pieces lie");
    placements[s->root_axis] = taken;
    return sherd_from_local(x, s->root, placements, taken.kind == SHERD_SHARD ? &infer : NULL);
}

/* ---- being checked -------------------------------------------------------------------------- */

static bool is_same(sherd_placement a, sherd_placement b)
{
    return a.kind == b.kind && (a.kind != SHERD_SHARD || a.dim == b.dim) &&
           (a.kind != SHERD_PARTIAL || a.op == b.op);
}

/* Whether x has the declared placement. On an axis of one rank all placements are equal. */
static bool lies_as_declared(const sherd__gate_side *s, const sherd__gate *g, const sherd_tensor *x)
{
    sherd_placement declared = g->declared;

    if (declared.kind == SHERD_UNSET || s->mesh->extent[s->axis] == 1)
        return true;
    return resolve(x, &declared) &&
           is_same(declared, sherd_layout_placement(x->layout, s->root_axis));
}

static sherd_tensor *refuse(const sherd__gate_side *s, const sherd__gate *g, const sherd_module *m,
                            sherd_tensor *x)
{
    static const char *const kinds[] = {"", "R", "S", "P"};
    static const char *const ops[] = {"sum", "avg", "min", "max", "product"};
    sherd_placement declared = g->declared;
    char why[64], where[16] = "";

    if (declared.kind == SHERD_SHARD)
        snprintf(where, sizeof where, "(%d)", declared.dim);
    if (declared.kind == SHERD_PARTIAL)
        snprintf(where, sizeof where, "(%s)", ops[declared.op]);
    snprintf(why, sizeof why, "the style declares %s%s as %s", kinds[declared.kind], where,
             s->in ? "input" : "output");
    return fail(s, g, m, x, why);
}

/* ---- moving --------------------------------------------------------------------------------- */

/* The weight, also where it is whole numbers, and so a buffer; NULL: there is none. */
static const sherd_tensor *weight_of(const sherd_module *m)
{
    const sherd_tensor *weight = sherd_module_parameter(m, "weight");

    return weight || !sherd__weight_bits(m) ? weight : sherd_module_buffer(m, "weight");
}

/* The layout of x with `want` on the axis; the last dim of a shard gets the weight's cuts. */
static sherd_status aim(const sherd_layout **to, const sherd__gate_side *s, const sherd__gate *g,
                        const sherd_tensor *x, sherd_placement want, const sherd_tensor *weight)
{
    sherd_status status = sherd_layout_with(to, x->layout, s->mesh, s->axis, want);
    const sherd_layout *given = sherd_tensor_layout(weight);

    if (status || !given || want.kind != SHERD_SHARD || want.dim != x->ndim - 1)
        return status;
    const sherd__layout_spec *by = &given->spec, *spec = &(*to)->spec;
    const sherd__dim *cut = &by->dim[g->follow];
    int64_t n = by->shape[g->follow], columns = weight->dtype == SHERD_U8 ? 2 : 1; /* of a byte */
    /*
     * Where other axes share the dim, or sizes differ, the operator finds its own way, or an error.
     */
    if (spec->mesh != by->mesh || spec->dim[want.dim].axes != 1 || cut->axes != 1 ||
        cut->axis[0] != s->root_axis || spec->shape[want.dim] != columns * n)
        return SHERD_OK;
    sherd__sketch sketch;
    sherd__sketch_begin(&sketch, *to);
    int64_t *cuts = sherd__sketch_cuts(&sketch, want.dim);
    for (int64_t i = 0; cuts && i <= sherd__dim_parts(by->mesh, cut); i++)
        cuts[i] = columns * sherd__dim_cut(by->mesh, cut, n, i);
    sketch.spec.dim[want.dim].cuts = cuts;
    return sherd__sketch_end(to, &sketch, "sherd_module_call");
}

static sherd_tensor *move(const sherd__gate_side *s, sherd__gate *g, const sherd_module *m,
                          sherd_tensor *x)
{
    const sherd_tensor *weight = g->follow < 0 ? NULL : weight_of(m);
    const sherd_layout *by = sherd_tensor_layout(weight), *to;
    sherd_placement want = g->desired;

    if (want.kind == SHERD_UNSET)
        return x;
    if (!resolve(x, &want))
        return fail(s, g, m, x, "it lacks the dim that the style shards");
    if (g->from != x->layout || g->weight != by) {
        if (aim(&to, s, g, x, want, weight))
            return sherd__fail_diag(s->world, true);
        sherd__layout_set(&g->from, x->layout);
        sherd__layout_set(&g->weight, by);
        sherd__layout_set(&g->to, to);
    }
    return sherd_redistribute(x, g->to, &(sherd_redistribute_options){.keep = g->keep});
}

/* Whether a plain tensor is left alone: neither its placement nor a desired one is given. */
static bool may_stay_plain(const sherd__gate *g)
{
    return g->taken.kind == SHERD_UNSET && g->desired.kind == SHERD_UNSET;
}

sherd_tensor *sherd__gate_pass(const sherd__gate_side *side, sherd__gate *gate,
                               const sherd_module *m, sherd_tensor *x)
{
    bool whole;

    if (sherd__gate_is_open(gate) || sherd_tensor_failed(x))
        return x;
    whole = !x->layout && x->varies == 0;
    if (!x->layout && may_stay_plain(gate))
        return x;
    if (!x->layout)
        x = adopt(side, gate, m, x);
    if (sherd_tensor_failed(x))
        return x;
    if (sherd_layout_mesh(x->layout) != side->root)
        return fail(side, gate, m, x, "it lies on another mesh");
    if (!whole && !lies_as_declared(side, gate, x))
        return refuse(side, gate, m, x);
    x = move(side, gate, m, x);
    return gate->to_local && !sherd_tensor_failed(x) ? sherd_to_local(x) : x;
}
