/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the operands of a call to local data: promotion, the solver's answer, moves (recorded),
 * results. If the operands fit the rule, only the results are allocated.
 */
#include "door.h"

#include <string.h>

#include "autograd/replay.h"
#include "base/saturate.h"
#include "kernels/cast.h"
#include "world/doing.h"
#include "layout/shape.h"

const sherd_mesh *sherd__mesh_of(const sherd__run *run, sherd_tensor *const *operands)
{
    for (int i = 0; i < run->call.operands; i++) {
        const sherd_tensor *t = operands[i];
        if (t && t->layout)
            return t->layout->spec.mesh;
        if (!t && run->like && run->like[i])
            return run->like[i]->spec.mesh;
    }
    return NULL;
}

bool sherd__promote_all(sherd__run *run, sherd_tensor **operands, const sherd_mesh *mesh)
{
    for (int i = 0; i < run->call.operands; i++) {
        if (!operands[i] || operands[i]->layout)
            continue;
        if (!sherd__may_promote(run, operands[i]))
            return false;
        sherd__open(run);
        operands[i] = sherd__promote_recorded(operands[i], mesh, run->call.op->name);
        if (sherd_tensor_failed(operands[i]))
            return false;
    }
    return true;
}

static bool move(sherd__run *run, const sherd__placing *placing)
{
    for (int i = 0; i < run->call.operands; i++) {
        sherd_tensor *t = run->arg[i];
        if (!t || t->layout == placing->operand[i])
            continue;
        if (!sherd__may_move(run, t, placing->operand[i]))
            return false;
        sherd__open(run);
        run->arg[i] = sherd_redistribute(t, placing->operand[i], NULL);
        if (sherd_tensor_failed(run->arg[i]))
            return false;
    }
    return true;
}

static sherd_dtype dtype_of(const sherd__run *run, int j)
{
    unsigned flags = run->call.op->result[j].flags;

    if (run->call.dtype[j] != SHERD_DTYPE_NONE)
        return run->call.dtype[j];
    if (flags & SHERD_OP_INDEX)
        return SHERD_I32;
    if (flags & SHERD_OP_BOOL)
        return SHERD_BOOL;
    return flags & SHERD_OP_STATISTIC ? sherd__statistics_dtype(run->dtype) : run->dtype;
}

int64_t sherd__local_count(const sherd_tensor *t, int first, int end)
{
    int64_t n = 1;

    for (int i = first; i < end; i++)
        if (t->local[i] == 0)
            return 0;
    for (int i = first; i < end; i++)
        n = sherd__times(n, t->local[i]);
    return n;
}

bool sherd__scalar_value(sherd_tensor *t, double *value)
{
    const void *data = t->count ? sherd__data(t) : NULL;

    *value = 0;
    if (t->count == 0)
        return true;
    if (!data)
        return false;
    sherd__cast(SHERD_F64, t->dtype, 1, value, data);
    return true;
}

/* Set this rank's piece; a rank outside the mesh has no element, not even of a scalar. */
static void cut_piece(sherd_tensor *view)
{
    if (view->layout) {
        const sherd__holding *holding = sherd__layout_holding(view->layout);
        memcpy(view->local, holding->box.size, sizeof view->local);
        view->count = holding->count;
    } else {
        view->count = sherd__local_count(view, 0, view->ndim);
    }
}

/* Operand 0 in another shape; forward sets its strides. */
static sherd_tensor *view_of(sherd__run *run, const sherd_layout *layout, int ndim,
                             const int64_t *shape)
{
    sherd_tensor *t = run->arg[0], *view;
    bool strided = run->call.op->strided, shared = strided || !t->strided;
    int64_t count;

    if (!sherd__count(shape, ndim, &count)) {
        sherd__fail_doing(t->world, layout != NULL, SHERD_ELIMIT,
                          "a view of 2^62 elements or more, or of a dim of that size");
        return sherd__failed(t->world);
    }
    /* If some ranks must copy, all do: else a write would show in the results of the others. */
    if (!shared && t->storage) {
        sherd__open(run);
        t = run->copied = sherd__copied(t);
    }
    view = sherd__new_view(t);
    if (sherd_tensor_failed(view))
        return view;
    view->strided = strided && (t->strided || !run->in_order);
    view->autograd.of_leaf = shared && run->arg[0]->autograd.of_leaf;
    sherd__layout_set(&view->layout, layout);
    sherd__layout_set(&view->was, NULL);
    view->ndim = ndim;
    memcpy(view->shape, shape, sherd__bytes(ndim) * sizeof *shape);
    memcpy(view->local, shape, sherd__bytes(ndim) * sizeof *shape);
    cut_piece(view);
    if (view->count > 0)
        sherd__row_major(ndim, view->local, view->stride);
    return view;
}

/* Whether result 0 can go into the existing tensor. Equal layouts have equal pending sums. */
static bool lies_alike(const sherd__run *run, const sherd_layout *layout, int ndim,
                       const int64_t *shape, sherd_dtype dtype)
{
    const sherd_tensor *t = run->into.tensor;

    return t && t->layout == layout && t->dtype == dtype &&
           (run->into.how == SHERD__WRITTEN_OVER || !sherd__is_half(dtype)) && !t->strided &&
           sherd__same_shape(t->ndim, t->shape, ndim, shape);
}

/* Create the results, or take those that exist already: the one to be added to, or kept ones. */
static bool make_all(sherd__run *run, const sherd__placing *placing)
{
    sherd_call *call = &run->call;
    unsigned varies = 0;

    for (int i = 0; i < call->operands; i++)
        varies |= run->arg[i] ? run->arg[i]->varies : 0;
    run->kept = !call->op->views && !run->into.tensor &&
                sherd__has_results(call->world, call->op, run->arg, call->operands, call->results);
    for (int j = 0; j < call->results; j++) {
        const sherd_layout *layout = placing ? placing->result[j] : NULL;
        int ndim = layout               ? layout->spec.ndim
                   : call->ndim[j] >= 0 ? call->ndim[j]
                                        : (int)strlen(run->rule.result[j]);
        const int64_t *shape = layout ? layout->spec.shape : call->shape[j];
        sherd_dtype dtype = dtype_of(run, j);
        if (j >= run->visible)
            sherd__open(run);
        bool reused = j == 0 && lies_alike(run, layout, ndim, shape, dtype);
        run->adds |= reused && run->into.how == SHERD__ADDED_TO;
        call->out[j] = reused            ? run->into.tensor
                       : run->kept       ? sherd__kept_result(call->world, j)
                       : call->op->views ? view_of(run, layout, ndim, shape)
                       : layout          ? sherd__new_on(layout, dtype)
                                : sherd__new_plain(call->world, dtype, ndim, shape, varies);
        if (sherd_tensor_failed(call->out[j]))
            return false;
        call->out[j]->varies |= layout ? 0 : varies;
    }
    return true;
}

/* Create the results where forward computes: in the GPU's memory, or the CPU's. */
static bool make_results(sherd__run *run, const sherd__placing *placing)
{
    if (!run->device)
        return make_all(run, placing);
    bool before = sherd__make_there(run->call.world, true);
    bool good = make_all(run, placing);
    sherd__make_there(run->call.world, before);
    return good;
}

/* Distributed operands: promote, solve, move, create the results. */
static bool spread_on(sherd__run *run, const sherd_mesh *mesh)
{
    const sherd_layout *layouts[SHERD_MAX_OPERANDS];

    if (!sherd__promote_all(run, run->arg, mesh))
        return false;
    for (int i = 0; i < run->call.operands; i++)
        layouts[i] = run->arg[i] ? run->arg[i]->layout : run->like ? run->like[i] : NULL;
    const sherd__placing *placing = sherd__solve(run, layouts);
    if (!placing) {
        sherd__fail_diag(run->call.world, true);
        return false;
    }
    run->call.once = placing->once;
    /* The answer is valid until the solver is asked again; neither of these does that. */
    return move(run, placing) && make_results(run, placing);
}

/* Whether operands are read as they lie: not by a handler in place of forward, which need not know
 * of strides. A view has no elements to read. */
static bool reads_strided(const sherd__run *run)
{
    const sherd_op *op = run->call.op;
    sherd__ops *ops = sherd__ops_of(run->call.world);

    return op->strided &&
           (op->views || !ops->overrides || !sherd__override_of(ops, op, SHERD_BELOW_TAPE));
}

/* Compact operands that must be contiguous, but for one that its view has compacted, and wait for
 * those in flight. */
static bool open_data(sherd__run *run)
{
    sherd_call *call = &run->call;
    bool strided = reads_strided(run);

    for (int i = 0; i < call->operands; i++) {
        sherd_tensor *t = i == 0 && run->copied ? run->copied : run->arg[i];
        if (t && !strided && !sherd__is_contiguous(t)) {
            sherd__open(run);
            t = sherd__contiguous(t);
            if (sherd_tensor_failed(t))
                return false;
        }
        call->in[i] = t;
    }
    if (call->op->reads && !sherd__read_around(run))
        return false;
    for (int i = 0; i < call->operands; i++) {
        sherd_tensor *t = call->in[i];
        call->from[i] = NULL;
        if (!t || !t->count || call->op->views)
            continue;
        call->from[i] = run->device ? sherd__device_data(t) : sherd__data(t);
        if (!call->from[i])
            return false;
    }
    return true;
}

/* Where forward writes a result; `adds`: it adds to the contents. NULL: the alarm is raised. */
static void *start_of(const sherd__run *run, sherd_tensor *t, bool adds)
{
    if (adds)
        return run->device ? sherd__device_mutable(t) : sherd__mutable(t);
    if (t == run->into.tensor)
        return run->device ? sherd__device_over(t) : sherd__over(t);
    return run->device ? sherd__device_fresh(t) : sherd__fresh(t);
}

bool sherd__leave_device(sherd_call *call)
{
    sherd__run *run = (sherd__run *)(void *)call;

    if (!run->device)
        return true;
    run->device = NULL;
    for (int i = 0; i < call->operands; i++)
        if (call->from[i] && !(call->from[i] = sherd__data(call->in[i])))
            return false;
    for (int j = 0; j < call->results; j++)
        if (call->to[j]) {
            bool adds = run->adds && j == 0;
            call->to[j] = adds ? sherd__mutable(call->out[j]) : sherd__over(call->out[j]);
            if (!call->to[j])
                return false;
        }
    return true;
}

bool sherd__lay_out(sherd__run *run)
{
    sherd_call *call = &run->call;

    memcpy(run->arg, call->in, (size_t)call->operands * sizeof *call->in);
    run->copied = NULL;
    const sherd_mesh *mesh = sherd__mesh_of(run, run->arg);
    if (mesh ? !spread_on(run, mesh) : !make_results(run, NULL))
        return false;
    if (!open_data(run))
        return false;
    for (int j = 0; j < call->results; j++) {
        sherd_tensor *t = call->out[j];
        call->to[j] = NULL;
        if (t->count == 0 || call->op->views || run->kept)
            continue;
        call->to[j] = start_of(run, t, run->adds && j == 0);
        if (!call->to[j])
            return false;
    }
    return true;
}
