/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Moves between layouts, and between local and global, that are recorded for backward. The gradient
 * of a move is a move back; the gradients of from_local and to_local are views.
 */
#include "operator.h"
#include "sketch.h"
#include "autograd/node.h"
#include "world/doing.h"

/* ---- redistribute ---------------------------------------------------------------------------- */

typedef struct move_attrs {
    const sherd_layout *to; /* the result's, which the node counts */
    bool leaf;              /* the source is a leaf: its gradient may be passed on unsettled */
    sherd_dtype from;       /* of the gradient of the source */
    sherd_dtype back;       /* in which the gradient moves */
    const sherd_mesh *among;
} move_attrs;

static bool whole_on(const sherd_layout *l, int axis)
{
    return !(l->shard_axes >> axis & 1);
}

/*
 * The layout to which a gradient with the layout `g` goes, for a move from `a` to `b`: `a`,
 * settled; but an axis that the move did not change stays pending, to be settled once with all
 * other uses of the same tensor. Between two meshes everything is settled.
 */
static sherd_status gradient_layout(const sherd_layout **out, const sherd_layout *a,
                                    const sherd_layout *b, const sherd_layout *g)
{
    sherd__layout_spec spec = a->spec;
    bool one_mesh = b->spec.mesh == spec.mesh && g->spec.mesh == spec.mesh;

    for (int x = 0; x < spec.mesh->axes; x++) {
        bool untouched = one_mesh && whole_on(a, x) && whole_on(b, x) &&
                         a->spec.pending[x] == b->spec.pending[x];
        spec.pending[x] = untouched && g->spec.pending[x] == SHERD_SUM ? SHERD_SUM : -1;
    }
    return sherd__layout_intern(out, &spec);
}

/*
 * A leaf's gradient is passed on unchanged: the leaf decides whether it may stay so. Not if it must
 * move in another dtype, which would be unknown where it is settled; and not if it is on another
 * mesh than the leaf's other gradients.
 */
static void redistribute_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in)
{
    const move_attrs *attrs = sherd_node_attributes(node);
    const sherd_layout *from = sherd_node_layout(node, 0), *to;
    sherd_tensor *g = sherd_cast(grad_out[0], attrs->back);
    bool stays = !g->layout || (attrs->leaf && attrs->back == attrs->from &&
                                g->layout->spec.mesh == from->spec.mesh);

    if (!stays && gradient_layout(&to, from, attrs->to, g->layout) != SHERD_OK)
        g = sherd__fail_diag(g->world, true);
    else if (!stays && attrs->among)
        g = sherd_redistribute(
            g, to,
            &(sherd_redistribute_options){.among = attrs->among, .begin = sherd__begins(node)});
    else if (!stays)
        g = sherd__gradient_to(g, to, sherd__begins(node));
    grad_in[0] = sherd_cast(g, attrs->from);
}

static const sherd_op redistribute_table = {
    .name = "sherd_redistribute", .takes_pending = true, .backward = redistribute_back};
/*
 * To another mesh. Backward is a call of both meshes, and ranks outside the target's do not know
 * what is pending there; so the gradient is settled first, and moves from the result's layout.
 */
static const sherd_op across_table = {
    .name = "sherd_redistribute", .takes_pending = false, .backward = redistribute_back};

/*
 * Whether the tape may keep the source instead of the result: nothing of it is pending and it takes
 * fewer bytes over all ranks. Decided by the layouts, not by what this rank happens to hold,
 * because the answer must be the same on all ranks. Never between two meshes: moving it again is a
 * call of the world, and some ranks may not compute with the result.
 */
static bool is_smaller(const sherd_layout *from, const sherd_layout *to)
{
    return from->spec.mesh == to->spec.mesh && from->pending_axes == 0 && from->shards > to->shards;
}

/* A move whose source the tape may keep instead of its result. Not recorded. */
static sherd_tensor *move(sherd_tensor *t, const sherd_layout *to,
                          const sherd_redistribute_options *o)
{
    if (sherd__cannot_move(t, to))
        return sherd__failed(t->world);
    sherd_tensor *y = sherd__move_planned(t, to, o->plan, o->among, o->begin);

    if (!o->keep && y != t && !sherd__is_failed(y) && is_smaller(t->layout, to) &&
        !y->autograd.moved_from)
        y->autograd.moved_from = sherd_tensor_retain(t);
    return y;
}

/* The cast tensor is moved; only the result, and the cast source that it may keep, remain. */
static sherd_tensor *cast_and_move(sherd_tensor *t, const sherd_layout *to,
                                   const sherd_redistribute_options *o)
{
    sherd_world *world = t->world;

    sherd_scope_begin(world);
    if (!sherd__has_fractions(o->forward_dtype))
        t = sherd__without_pending(t);
    sherd_tensor *y = move(sherd__cast_unrecorded(t, o->forward_dtype), to, o);
    if (!sherd_tensor_failed(y))
        sherd_scope_pass(y);
    sherd_scope_end(world);
    return y;
}

/* Why a tensor cannot move in these dtypes; NULL = it can. */
static const char *dtype_fault(sherd_tensor *t, const sherd_redistribute_options *o)
{
    const sherd_dtype wanted[] = {o->forward_dtype, o->backward_dtype};

    for (int i = 0; i < 2; i++) {
        if (wanted[i] == SHERD_DTYPE_NONE)
            continue;
        if (sherd_dtype_bytes(wanted[i]) == 0)
            return i == 0 ? "options.forward_dtype is not a dtype"
                          : "options.backward_dtype is not a dtype";
        if (!sherd__has_fractions(wanted[i]) && sherd__is_recorded(t->world, &t, 1))
            return i == 0 ? "it wants a gradient, and options.forward_dtype has no fractions"
                          : "it wants a gradient, and options.backward_dtype has no fractions";
    }
    return NULL;
}

/* Whether a move to another mesh can be a call of the ranks of o->among; if not, it has failed. */
static bool fits_among(sherd_tensor *t, const sherd_layout *to, const sherd_redistribute_options *o)
{
    const sherd_mesh *among = o->among, *from = t->layout ? t->layout->spec.mesh : NULL;

    if (!among || !from || from == to->spec.mesh ||
        (sherd__mesh_holds(t->world, among, from) &&
         sherd__mesh_holds(t->world, among, to->spec.mesh)))
        return true;
    sherd__fail_tensor(
        t->world, true, SHERD_EINVAL,
        "sherd_redistribute: options.among is %s, which must have the ranks of %s and "
        "of %s, and this one, %d",
        among->text, from->text, to->spec.mesh->text, sherd_world_rank(t->world));
    return false;
}

sherd_tensor *sherd_redistribute(sherd_tensor *t, const sherd_layout *to,
                                 const sherd_redistribute_options *options)
{
    static const sherd_redistribute_options none;
    const sherd_redistribute_options *o = options ? options : &none;
    const sherd__argument need[] = {{"t", t}, {"to", to}, {NULL, NULL}};
    sherd_world *world = t ? t->world : to ? sherd__space_world(to->space) : NULL;
    sherd_tensor *failed;

    if ((!t || !to) && !sherd__given(world, "sherd_redistribute", need, &failed))
        return failed;
    const char *fault = options ? dtype_fault(t, o) : NULL;
    if (fault)
        return sherd__fail_tensor(t->world, true, SHERD_EINVAL, "sherd_redistribute: %s: %s",
                                  sherd_tensor_text(t), fault);
    if (!fits_among(t, to, o))
        return sherd__failed(world);
    bool casts = o->forward_dtype != SHERD_DTYPE_NONE && o->forward_dtype != t->dtype;
    bool begun = sherd__doing_begin(world, "sherd_redistribute");
    sherd_tensor *y = casts ? cast_and_move(t, to, o) : move(t, to, o);
    sherd__doing_end(world, begun);
    sherd_dtype from = sherd__moved_gradient_dtype(t);
    sherd_dtype back = o->backward_dtype == SHERD_DTYPE_NONE ? from : o->backward_dtype;
    /*
     * Nothing moves, but the gradient is to be rounded: that takes a tensor with a record of its
     * own.
     */
    if (y == t && back != from && sherd__is_recorded(t->world, &t, 1))
        y = sherd__new_view(t);
    if (y == t || sherd__is_failed(y) || !sherd__is_recorded(world, &t, 1))
        return y;

    bool across = t->layout && t->layout->spec.mesh != to->spec.mesh;
    const sherd_op *table = across ? &across_table : &redistribute_table;
    move_attrs attrs = {to, t->autograd.node == NULL, from, back, o->among};
    sherd__record_node(world, table, &t, 1, &y, 1, &attrs, sizeof attrs);
    if (back == from && from != t->dtype)
        sherd__take_wide(y, table, from, true);
    return y;
}

sherd_tensor *sherd__without_pending(sherd_tensor *t)
{
    const sherd_layout *to;

    if (!t->layout || !t->layout->pending_axes)
        return t;
    if (sherd__layout_settle(&to, t->layout) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd_redistribute(t, to, NULL);
}

/* ---- how gradients lie between local and global ---------------------------------------------- */

/*
 * Bits of the axes on which the gradient is a pending sum, that is, on which the ranks' gradients
 * are addends.
 */
typedef struct local_attrs {
    unsigned pending;
} local_attrs;

/*
 * Why the gradient of a tensor with `layout` cannot have this placement; NULL = it can. `axis`: of
 * the root mesh.
 */
static const char *gradient_fault(const sherd_layout *layout, int axis, sherd_placement wanted)
{
    bool sharded = layout->shard_axes >> axis & 1;

    switch (wanted.kind) {
    case SHERD_UNSET:
        return NULL;
    case SHERD_SHARD:
        return sharded && sherd_layout_placement(layout, axis).dim ==
                              wanted.dim + (wanted.dim < 0 ? layout->spec.ndim : 0)
                   ? NULL
                   : "it must be sharded as the tensor is";
    case SHERD_PARTIAL:
        return sharded                  ? "an axis that shards the tensor must shard it too"
               : wanted.op != SHERD_SUM ? "only a sum can be pending"
                                        : NULL;
    default:
        return sharded ? "an axis that shards the tensor must shard it too" : NULL;
    }
}

/* Read the declared placements of the gradient of a tensor with `layout`. False: failed, raised. */
static bool read_gradient(local_attrs *out, const sherd_layout *layout, const sherd_mesh *mesh,
                          const sherd_placement *gradient, const char *function)
{
    out->pending = 0;
    for (int a = 0; gradient && a < mesh->axes; a++) {
        int axis = mesh->root_axis[a];
        const char *fault = gradient_fault(layout, axis, gradient[a]);
        if (fault) {
            sherd__fail_tensor(sherd__space_world(layout->space), true, SHERD_EINVAL,
                               "%s: the gradient on axis %s of a tensor that lies as %s: %s",
                               function, sherd_mesh_axis_name(mesh, a), sherd_layout_text(layout),
                               fault);
            return false;
        }
        if (gradient[a].kind == SHERD_PARTIAL)
            out->pending |= 1u << axis;
    }
    return true;
}

/* The layout of the gradient of a tensor with `layout`. */
static sherd_status layout_of_gradient(const sherd_layout **out, const sherd_layout *layout,
                                       unsigned pending)
{
    sherd__layout_spec spec = layout->spec;

    sherd__spec_sums(&spec, pending);
    return sherd__layout_intern(out, &spec);
}

/* ---- between local and global ---------------------------------------------------------------- */

static const sherd_op to_local_table;

/*
 * How many addends a pending average has: the gradient of each is 1 / n of the average's. Addends
 * of a pending maximum, minimum or product have no such gradient, as theirs depend on each other.
 * False: the layout has one of these, raised.
 */
static bool count_averaged(double *n, const sherd_layout *layout, const char *function)
{
    const sherd__layout_spec *spec = &layout->spec;

    *n = sherd__averaged(layout);
    for (int x = 0; x < spec->mesh->axes; x++) {
        if (spec->pending[x] <= SHERD_AVG || spec->mesh->extent[x] == 1)
            continue;
        sherd__fail_tensor(sherd__space_world(layout->space), true, SHERD_EINVAL,
                           "backward of %s: no gradient flows through pieces of %s: make them "
                           "shards of one dim more, and reduce that (sherd_max, sherd_min, "
                           "sherd_prod)",
                           function, sherd_layout_text(layout));
        return false;
    }
    return true;
}

static sherd_tensor *divided(sherd_tensor *t, double n)
{
    const double parameter[SHERD__PARAMETERS] = {n};

    return n == 1 ? t : sherd_apply(&sherd__unary_ops[SHERD__DIVIDED], &t, 1, parameter);
}

/*
 * The axes where a tensor is a pending sum or average and its gradient is not. There each rank's
 * addend has the whole gradient: so where such gradients are differentiated again, whole numbers
 * become addends and addends whole numbers.
 */
static unsigned of_addends(const sherd_layout *layout, unsigned declared)
{
    unsigned axes = 0;

    for (int x = 0; x < layout->spec.mesh->axes; x++)
        if (layout->spec.pending[x] == SHERD_SUM || layout->spec.pending[x] == SHERD_AVG)
            axes |= 1u << x;
    return axes & ~declared;
}

/* This rank's piece of the gradient of a tensor with `layout`. */
static sherd_tensor *taken(sherd_tensor *g, const sherd_layout *layout, unsigned declared)
{
    sherd_tensor *y = sherd__local_view(g);
    local_attrs attrs = {of_addends(layout, declared)};

    if (!sherd_tensor_failed(y))
        sherd__record_node(g->world, &to_local_table, &g, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}

/*
 * This rank's piece of the gradient, moved to the layout of the result, or to the declared
 * placements. A rank outside the mesh has contributed nothing to the result, so its gradient is
 * zero.
 */
static void from_local_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const local_attrs *attrs = sherd_node_attributes(node);
    const sherd_layout *layout = sherd__node_result_layout(node, 0), *to;
    sherd_tensor *g = grad_out[0];
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);
    double n;

    if (!count_averaged(&n, layout, "sherd_from_local"))
        g = sherd__failed(g->world);
    else if (g->layout && layout_of_gradient(&to, layout, attrs->pending) != SHERD_OK)
        g = sherd__fail_diag(g->world, true);
    else if (g->layout)
        g = sherd__record_same(sherd__move_planned(g, to, NULL, NULL, false), g);
    if (sherd_tensor_failed(g))
        grad_in[0] = g;
    else if (g->layout && !sherd__in_mesh(g->world, g->layout->spec.mesh))
        grad_in[0] = sherd_constant(g->world, g->dtype, shape, ndim, 0);
    else
        grad_in[0] = divided(g->layout ? taken(g, layout, attrs->pending) : g, n);
}

static const sherd_op from_local_table = {
    .name = "sherd_from_local", .takes_pending = false, .backward = from_local_back};
/* For a gradient that may stay pending. */
static const sherd_op from_local_pending_table = {
    .name = "sherd_from_local", .takes_pending = true, .backward = from_local_back};

/* Record that the pieces `local` make y. Returns y. */
static sherd_tensor *record_global(sherd_tensor *y, sherd_tensor *local, unsigned pending)
{
    const local_attrs attrs = {pending};
    const sherd_op *table = pending ? &from_local_pending_table : &from_local_table;

    if (y != local && !sherd_tensor_failed(y))
        sherd__record_node(y->world, table, &local, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}

sherd_tensor *sherd_from_local(sherd_tensor *local, const sherd_mesh *mesh,
                               const sherd_placement *placements,
                               const sherd_from_local_options *options)
{
    sherd_world *world = sherd_tensor_world(local);
    bool begun = sherd__doing_begin(world, "sherd_from_local");
    sherd_tensor *y = sherd__from_local(local, mesh, placements, options);
    local_attrs attrs;

    sherd__doing_end(world, begun);
    if (sherd_tensor_failed(y))
        return y;
    if (!read_gradient(&attrs, y->layout, mesh, options ? options->gradient : NULL,
                       "sherd_from_local"))
        return sherd__failed(y->world);
    return record_global(y, local, attrs.pending);
}

sherd_tensor *sherd__promote_recorded(sherd_tensor *t, const sherd_mesh *mesh, const char *function)
{
    return record_global(sherd__promote(t, mesh, function), t, 0);
}

/*
 * The plain gradient is this rank's piece in the layout of the input, settled, or with the declared
 * placements.
 */
static void to_local_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const local_attrs *attrs = sherd_node_attributes(node);
    const sherd_layout *layout = sherd_node_layout(node, 0), *to;
    double n;

    grad_in[0] = sherd__failed(sherd__node_world(node));
    if (!count_averaged(&n, layout, "sherd_to_local"))
        return;
    sherd_tensor *g = sherd_apply(&sherd__contiguous_op, grad_out, 1, NULL);
    if (layout_of_gradient(&to, layout, attrs->pending) != SHERD_OK)
        grad_in[0] = sherd__fail_diag(sherd__node_world(node), true);
    else
        grad_in[0] = record_global(sherd__global_view(g, to, "the gradient of sherd_to_local"), g,
                                   of_addends(layout, attrs->pending));
    if (n != 1)
        grad_in[0] = sherd_apply(&sherd__scale_op, grad_in, 1, &n);
}

static const sherd_op to_local_table = {
    .name = "sherd_to_local", .takes_pending = false, .backward = to_local_back};

static sherd_tensor *to_local(sherd_tensor *t, const sherd_placement *gradient,
                              const char *function)
{
    sherd_world *world = sherd_tensor_world(t);
    bool begun = sherd__doing_begin(world, "sherd_to_local");
    sherd_tensor *y = sherd__local_view(t);
    local_attrs attrs;

    sherd__doing_end(world, begun);
    if (sherd_tensor_failed(y))
        return y;
    if (!read_gradient(&attrs, t->layout, t->layout->spec.mesh, gradient, function))
        return sherd__failed(t->world);
    sherd__record_node(t->world, &to_local_table, &t, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}

sherd_tensor *sherd_to_local_with(sherd_tensor *t, const sherd_placement *gradient)
{
    return to_local(t, gradient, "sherd_to_local_with");
}

sherd_tensor *sherd_to_local(sherd_tensor *t)
{
    return sherd_to_local_with(t, NULL);
}

sherd_tensor *sherd_full_with(sherd_tensor *t, const sherd_placement *gradient)
{
    const sherd_layout *whole;

    if (!t)
        return NULL;
    if (sherd__stop(t->world, "sherd_full", &t, 1))
        return sherd__failed(t->world);
    if (!t->layout)
        return t;
    bool begun = sherd__doing_begin(t->world, "sherd_full");
    sherd_tensor *y =
        sherd__replicated(&whole, t->layout->spec.mesh, t->ndim, t->shape) == SHERD_OK
            ? to_local(sherd_redistribute(t, whole, NULL), gradient, "sherd_full_with")
            : sherd__fail_diag(t->world, true);
    sherd__doing_end(t->world, begun);
    return y;
}

sherd_tensor *sherd_full(sherd_tensor *t)
{
    return sherd_full_with(t, NULL);
}
