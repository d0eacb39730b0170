/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining tensors along a dim. Along a sharded dim each rank joins its pieces of the operands,
 * which is right if the operands' cuts are those of the result, counted in the operand. So operands
 * with other cuts are moved to such cuts, and only what is on the wrong side of a cut is sent.
 * Other dims must be sharded equally.
 */
#include "shared.h"
#include "apply/sketch.h"

#include <string.h>

#include "base/num.h"
#include "layout/shape.h"

typedef struct one_dim {
    int dim;
} one_dim;

/* A list may have any length: groups of it are joined first. */
enum { GROUP = SHERD_MAX_OPERANDS, MOST_MODELS = 6 };

/* The letters of operand 0 that are in call->rule ("a*c") become a rule ("a*c->a*c"). */
static void finish_rule(sherd_call *call)
{
    int n = call->in[0]->ndim;

    memcpy(call->rule + n, "->", 2);
    memcpy(call->rule + n + 2, call->rule, sherd__bytes(n));
    call->rule[2 * n + 2] = '\0';
}

static const char *describe(sherd_call *call)
{
    const one_dim *at = call->attributes;
    const sherd_tensor *first = call->in[0];
    int dim = sherd__dim_of(at->dim, first->ndim);
    int64_t total = 0;

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    for (int i = 0; i < call->operands; i++)
        if (call->in[i]->ndim != first->ndim)
            return sherd_call_reason(call, "all must have %d dims", first->ndim);
        else if (!sherd__add(total, call->in[i]->shape[dim], &total))
            return "the result would have 2^62 elements or more";
    for (int d = 0; d < first->ndim; d++)
        call->rule[d] = d == dim ? '*' : (char)('a' + d);
    finish_rule(call);
    call->shape[0][dim] = total;
    return NULL;
}

/* ---- how it lies ----------------------------------------------------------------------------- */

/*
 * What a way is made from: the dims of a model operand, with these cuts of `dim`, and what stays
 * pending.
 */
typedef struct joint {
    const sherd_call *call;
    sherd_ways *ways;
    int dim;
    const sherd_layout *model;
    enum { WHOLE, AS_THEY_ARE, EVEN } how;
    int pending[SHERD_MAX_AXES];
} joint;

static const sherd_layout *layout_of(const joint *j, int i)
{
    return j->call->in[i]->layout;
}

/* Whether what is pending on an axis is a small part of all: then it is settled before. */
static bool is_little(const joint *j, int axis)
{
    int64_t pending = 0;

    for (int i = 0; i < j->call->operands; i++)
        pending += layout_of(j, i)->spec.pending[axis] < 0 ? 0 : j->call->in[i]->shape[j->dim];
    return pending <= j->call->shape[0][j->dim] / SHERD__GROWTH;
}

/*
 * What may stay pending: one reduction, of operands that are pending by it or equal on all ranks.
 */
static void find_pending(joint *j)
{
    int axes = j->model->spec.mesh->axes, first = -1;

    for (int a = 0; a < axes; a++) {
        bool all = true;
        j->pending[a] = -1;
        for (int i = 0; i < j->call->operands; i++) {
            int op = layout_of(j, i)->spec.pending[a];
            all &= op >= 0;
            if (op >= 0 && j->pending[a] != -2)
                j->pending[a] = j->pending[a] < 0 || j->pending[a] == op ? op : -2;
        }
        if (j->pending[a] == SHERD_PRODUCT && !all) /* the others would count several times */
            j->pending[a] = -1;
        if (j->pending[a] < 0 || j->model->shard_axes >> a & 1 || (!all && is_little(j, a)))
            j->pending[a] = -1;
        if (j->pending[a] < 0)
            continue;
        if (first >= 0 && !sherd__reduce_ops_mix((sherd_reduce_op)j->pending[a],
                                                 (sherd_reduce_op)j->pending[first]))
            j->pending[a] = -1;
        first = first < 0 ? a : first;
    }
}

/* Whether the same axes shard the dim in all operands. */
static bool is_alike(const joint *j)
{
    const sherd__dim *model = &j->model->spec.dim[j->dim];

    for (int i = 0; i < j->call->operands; i++) {
        const sherd__dim *dim = &layout_of(j, i)->spec.dim[j->dim];
        if (dim->axes != model->axes || sherd__dim_shared(dim, model) != model->axes)
            return false;
    }
    return true;
}

/*
 * The layout of the result: each rank has as much as it has of all operands together; or all ranks
 * have the same; or everything is gathered.
 */
static sherd_status make_result(const sherd_layout **out, const joint *j)
{
    int64_t parts = sherd__dim_parts(j->model->spec.mesh, &j->model->spec.dim[j->dim]);
    int64_t *total = NULL, *cuts = NULL;
    sherd__sketch s;

    sherd__sketch_begin(&s, j->model);
    s.spec.shape[j->dim] = j->call->shape[0][j->dim];
    memcpy(s.spec.pending, j->pending, sizeof s.spec.pending);
    s.spec.dim[j->dim].cuts = NULL;
    if (j->how == WHOLE)
        s.spec.dim[j->dim] = (sherd__dim){0};
    if (j->how == AS_THEY_ARE) {
        total = sherd__sketch_cuts(&s, j->dim);
        cuts = total ? sherd__sketch_cuts(&s, j->dim) : NULL;
    }
    for (int i = 0; cuts && i < j->call->operands; i++) {
        const sherd__layout_spec *spec = &layout_of(j, i)->spec;
        sherd__dim_cuts(spec->mesh, &spec->dim[j->dim], spec->shape[j->dim], cuts);
        for (int64_t k = 0; k <= parts; k++)
            total[k] = (i ? total[k] : 0) + cuts[k];
    }
    if (cuts)
        s.spec.dim[j->dim].cuts = total;
    return sherd__sketch_end(out, &s, j->call->op->name);
}

/*
 * The layout of operand i: its part of the result, from `start` on. An operand that is not pending
 * need not become so.
 */
static sherd_status make_operand(const sherd_layout **out, const joint *j,
                                 const sherd_layout *result, int i, int64_t start)
{
    const sherd__layout_spec *own = &layout_of(j, i)->spec;
    sherd__sketch s;

    sherd__sketch_begin(&s, result);
    sherd__sketch_part(&s, j->dim, (sherd__part){start, 1, own->shape[j->dim]});
    for (int a = 0; a < own->mesh->axes; a++)
        if (own->pending[a] < 0)
            s.spec.pending[a] = -1;
    return sherd__sketch_end(out, &s, j->call->op->name);
}

static sherd_status add_way(const joint *j)
{
    const sherd_layout *operand[SHERD_MAX_OPERANDS], *result = NULL;
    sherd_status status = make_result(&result, j);
    int64_t start = 0;

    for (int i = 0; i < j->call->operands && !status; i++) {
        status = make_operand(&operand[i], j, result, i, start);
        start += j->call->in[i]->shape[j->dim];
    }
    return status ? status : sherd_way_add(j->ways, operand, &result);
}

/* All ways that have the dims of one operand, with what can stay pending or without. */
static sherd_status add_ways(joint *j)
{
    sherd_status status = SHERD_OK;
    bool sharded = j->model->spec.dim[j->dim].axes;

    for (int settled = 0; settled < 2 && !status; settled++) {
        bool any = false;
        if (!settled)
            find_pending(j);
        for (int a = 0; a < j->model->spec.mesh->axes; a++)
            any |= j->pending[a] >= 0;
        if (settled && !any)
            break;
        if (settled)
            memset(j->pending, -1, sizeof j->pending);
        if (sharded && is_alike(j)) {
            j->how = AS_THEY_ARE;
            status = add_way(j);
        }
        if (sharded && !status) {
            j->how = EVEN;
            status = add_way(j);
        }
        j->how = WHOLE;
        status = status ? status : add_way(j);
    }
    return status;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const one_dim *at = call->attributes;
    joint j = {.call = call, .ways = ways, .dim = sherd__dim_of(at->dim, call->in[0]->ndim)};
    const sherd_layout *seen[MOST_MODELS];
    sherd_status status = SHERD_OK;
    int models = 0;

    for (int i = 0; i < call->operands && models < MOST_MODELS && !status; i++) {
        bool new = true;
        j.model = call->in[i]->layout;
        for (int k = 0; k < models; k++)
            new &= seen[k] != j.model;
        if (!new)
            continue;
        seen[models++] = j.model;
        status = add_ways(&j);
    }
    return status;
}

/* ---- forward and backward -------------------------------------------------------------------- */

/* Whether another rank adds operand i to the pending sum, and this one must not. */
static bool is_other_ranks_addend(const sherd_tensor *y, const sherd_tensor *operand)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (!sherd__coordinate(y, coordinate))
        return false;
    for (int a = 0; a < y->layout->spec.mesh->axes; a++)
        if (y->layout->spec.pending[a] == SHERD_SUM && operand->layout->spec.pending[a] < 0 &&
            coordinate[a] != 0)
            return true;
    return false;
}

static bool join(sherd_call *call)
{
    const one_dim *at = call->attributes;
    const sherd_tensor *y = call->out[0];
    size_t element = sherd_dtype_bytes(y->dtype);
    int dim = sherd__dim_of(at->dim, y->ndim);
    char *to = call->to[0];
    bool some = false;

    for (int i = 0; i < call->operands; i++)
        some |= call->in[i]->count && is_other_ranks_addend(y, call->in[i]);
    if (some)
        sherd__fill_in(call, 0, 0);
    for (int i = 0; i < call->operands; i++) {
        const sherd_tensor *t = call->in[i];
        if (t->count == 0)
            continue;
        if (!is_other_ranks_addend(y, t))
            sherd__copy_in(call, element, t->ndim, t->local, to, y->stride, call->from[i],
                           t->stride);
        to += sherd__bytes(t->local[dim] * y->stride[dim]) * element;
    }
    return true;
}

static void join_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const one_dim *at = sherd_node_attributes(node);
    const int64_t *shape;
    int64_t start = 0;

    for (int i = 0; i < sherd_node_operands(node); i++) {
        int dim = sherd__dim_of(at->dim, sherd_node_shape(node, i, &shape));
        if (sherd_node_wants(node, i))
            grad_in[i] = sherd_narrow(grad_out[0], dim, start, shape[dim]);
        start += shape[dim];
    }
}

const sherd_op sherd__cat_op = {.name = "sherd_cat",
                                .summary = "concatenate along a dim",
                                .operand = {{"t", SHERD_OP_REPEATED}},
                                .result = {{"y", 0}},
                                .field = {SHERD_FIELD(one_dim, dim, INT)},
                                .attributes = sizeof(one_dim),
                                .linearity = SHERD_UNCHANGED,
                                .numbers = SHERD_EVERYTHING,
                                .strided = true,
                                .describe = describe,
                                .ways = lie,
                                .forward = join,
                                .on_device = sherd__copies_there,
                                .backward = join_back,
                                .takes_pending = true};

/* ---- stack ----------------------------------------------------------------------------------- */

static const char *describe_stack(sherd_call *call)
{
    const one_dim *at = call->attributes;
    const sherd_tensor *first = call->in[0];

    if (sherd__dim_of(at->dim, first->ndim + 1) < 0)
        return sherd_call_reason(call, "no place %d for a dim", at->dim);
    for (int i = 0; i < call->operands; i++)
        if (!sherd__same_shape(call->in[i]->ndim, call->in[i]->shape, first->ndim, first->shape))
            return "all must have one shape";
    return NULL;
}

static bool stack(sherd_call *call)
{
    const one_dim *at = call->attributes;
    sherd_tensor *part[SHERD_MAX_OPERANDS];

    for (int i = 0; i < call->operands; i++)
        part[i] = sherd_unsqueeze(call->in[i], at->dim);
    call->out[0] = sherd_cat(part, call->operands, sherd__dim_of(at->dim, part[0]->ndim));
    return true;
}

const sherd_op sherd__stack_op = {.name = "sherd_stack",
                                  .summary = "join along a new dim",
                                  .operand = {{"t", SHERD_OP_REPEATED}},
                                  .result = {{"y", 0}},
                                  .field = {SHERD_FIELD(one_dim, dim, INT)},
                                  .attributes = sizeof(one_dim),
                                  .numbers = SHERD_EVERYTHING,
                                  .describe = describe_stack,
                                  .compose = stack};

/* ---- lists of any length --------------------------------------------------------------------- */

/* A list that is too long for one operator: join groups of it first. */
static sherd_tensor *joined(const sherd_op *op, sherd_tensor *const *list, int count, int dim)
{
    sherd_tensor *group[GROUP];

    if (count <= GROUP)
        return sherd_apply(op, list, count, &(one_dim){dim});
    for (int g = 0; g < GROUP; g++) {
        int lo = (int)((int64_t)count * g / GROUP), hi = (int)((int64_t)count * (g + 1) / GROUP);
        group[g] = joined(op, list + lo, hi - lo, dim);
    }
    return sherd_apply(&sherd__cat_op, group, GROUP, &(one_dim){dim});
}

sherd_tensor *sherd_cat(sherd_tensor *const *list, int count, int dim)
{
    return joined(&sherd__cat_op, list, list ? count : 0, dim);
}

sherd_tensor *sherd_stack(sherd_tensor *const *list, int count, int dim)
{
    int ndim = list && count > 0 && !sherd_tensor_failed(list[0]) ? list[0]->ndim + 1 : 0;

    /* Counted from the front: groups are joined along it, not stacked. */
    return joined(&sherd__stack_op, list, list ? count : 0,
                  ndim && dim < 0 && dim >= -ndim ? dim + ndim : dim);
}
