/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The common start and end of operators: failures, dtypes, promotion, solving, moving, results. With operands that
 * lie as the rule wants them nothing is allocated but the results; the scope for what is made on the way is opened
 * only when something is.
 */
#include <string.h>

#include "operator.h"

static bool stop(sherd_world *world, sherd_tensor *const *in, int count)
{
    sherd_tensor *there[SHERD__OPERANDS];
    int n = 0;

    for (int i = 0; i < count; i++)
        if (in[i])
            there[n++] = in[i];
    return sherd__stop(world, there, n);
}

/* All operands compute in the result's dtype, but indices. */
static bool check_dtypes(sherd__prepared *p, const sherd__rule *rule, sherd_tensor *const *in,
                         sherd_dtype dtype)
{
    const char *reason = NULL;

    if (!p->kernels)
        reason = "it computes f32, f64, bf16 and f16 only";
    for (int i = 0; i < rule->operands && !reason; i++) {
        sherd_dtype wanted = rule->index >> i & 1 ? SHERD_I32 : dtype;
        if (in[i] && in[i]->dtype != wanted)
            reason = rule->index >> i & 1 ? "indices must be i32" : "dtypes differ";
    }
    if (reason)
        p->out[0] = sherd__misfit(p->world, rule->name, in, rule->operands, reason);
    return !reason;
}

static void open_scope(sherd__prepared *p)
{
    if (p->scoped)
        return;
    sherd_scope_begin(p->world);
    p->scoped = true;
}

static const sherd_mesh *mesh_of(sherd_tensor *const *in, const sherd_layout *const *like,
                                 int count)
{
    for (int i = 0; i < count; i++) {
        if (in[i] && in[i]->layout)
            return in[i]->layout->spec.mesh;
        if (like && like[i])
            return like[i]->spec.mesh;
    }
    return NULL;
}

/* Take plain operands for replicated; false if one varies. */
static bool promote(sherd__prepared *p, const sherd__rule *rule, const sherd_mesh *mesh)
{
    for (int i = 0; i < rule->operands; i++) {
        sherd_tensor *t = p->arg[i];
        if (!t || t->layout)
            continue;
        open_scope(p);
        p->arg[i] = sherd__promote_recorded(t, mesh, rule->name);
        if (sherd_tensor_failed(p->arg[i]))
            return false;
    }
    return true;
}

static bool move(sherd__prepared *p, const sherd__rule *rule, const sherd__placing *placing)
{
    for (int i = 0; i < rule->operands; i++) {
        sherd_tensor *t = p->arg[i];
        if (!t || t->layout == placing->operand[i])
            continue;
        open_scope(p);
        p->arg[i] = sherd_redistribute(t, placing->operand[i], NULL);
        if (sherd_tensor_failed(p->arg[i]))
            return false;
    }
    return true;
}

static sherd_dtype dtype_of(const sherd__rule *rule, int result, sherd_dtype dtype)
{
    return rule->statistics >> result & 1 ? sherd__statistics_dtype(dtype) : dtype;
}

/* Distributed operands: promote, solve, move, make the results. */
static bool place(sherd__prepared *p, const sherd__rule *rule, const sherd_layout *const *like,
                  sherd_dtype dtype, const int64_t (*shape)[SHERD_MAX_DIMS])
{
    const sherd_layout *layouts[SHERD__OPERANDS] = {NULL};

    for (int i = 0; i < rule->operands; i++)
        layouts[i] = p->arg[i] ? p->arg[i]->layout : like ? like[i] : NULL;
    const sherd__placing *placing = sherd__solve(p->world, rule, layouts, shape);
    if (!placing) {
        sherd__fail_diag(p->world, true);
        return false;
    }
    if (!move(p, rule, placing))
        return false;
    p->once = placing->once;
    for (int j = 0; j < rule->results; j++) {
        p->out[j] = sherd__new_on(placing->result[j], dtype_of(rule, j, dtype));
        if (sherd_tensor_failed(p->out[j]))
            return false;
    }
    return true;
}

/* Plain operands: the results are plain and vary where any operand does. */
static bool stay(sherd__prepared *p, const sherd__rule *rule, sherd_dtype dtype,
                 const int64_t (*shape)[SHERD_MAX_DIMS])
{
    unsigned varies = 0;

    for (int i = 0; i < rule->operands; i++)
        varies |= p->arg[i] ? p->arg[i]->varies : 0;
    for (int j = 0; j < rule->results; j++) {
        p->out[j] = sherd__new_plain(p->world, dtype_of(rule, j, dtype),
                                     (int)strlen(rule->result[j]), shape[j], varies);
        if (sherd_tensor_failed(p->out[j]))
            return false;
    }
    return true;
}

/* Compact what must be compact, and wait for operands that are still in flight. */
static bool open_data(sherd__prepared *p, const sherd__rule *rule)
{
    for (int i = 0; i < rule->operands; i++) {
        sherd_tensor *t = p->arg[i];
        if (t && !rule->keep_strides && !sherd__is_contiguous(t)) {
            open_scope(p);
            t = sherd__contiguous(t);
        }
        p->in[i] = t;
        if (!t || t->count == 0)
            continue;
        p->from[i] = sherd__data(t);
        if (sherd_tensor_failed(t) || !p->from[i])
            return false;
    }
    for (int j = 0; j < rule->results; j++)
        if (p->out[j]->count)
            p->to[j] = sherd__fresh(p->out[j]);
    return true;
}

bool sherd__prepare_like(sherd__prepared *p, const sherd__rule *rule, sherd_tensor *const *in,
                         const sherd_layout *const *like, sherd_dtype result_dtype,
                         const int64_t (*result_shape)[SHERD_MAX_DIMS])
{
    sherd_world *world = in[0]->world;

    *p = (sherd__prepared){.world = world,
                           .name = rule->name,
                           .operands = rule->operands,
                           .out = {sherd__failed(world)}};
    if (stop(world, in, rule->operands))
        return false;
    p->kernels = sherd__kernels_of(sherd__world_kernels(world), result_dtype);
    if (!check_dtypes(p, rule, in, result_dtype))
        return false;
    memcpy(p->arg, in, (size_t)rule->operands * sizeof *in);
    if (rule->scratch)
        open_scope(p);

    const sherd_mesh *mesh = mesh_of(in, like, rule->operands);
    bool good = mesh ? promote(p, rule, mesh) && place(p, rule, like, result_dtype, result_shape)
                     : stay(p, rule, result_dtype, result_shape);
    if (good && open_data(p, rule))
        return true;
    p->out[0] = sherd__abandon(p);
    return false;
}

bool sherd__prepare(sherd__prepared *p, const sherd__rule *rule, sherd_tensor *const *in,
                    sherd_dtype result_dtype, const int64_t (*result_shape)[SHERD_MAX_DIMS])
{
    return sherd__prepare_like(p, rule, in, NULL, result_dtype, result_shape);
}

sherd_tensor *sherd__finish(sherd__prepared *p, int outs)
{
    sherd__note(p->name, p->arg, p->operands, p->attributes, p->out, SHERD__RESULTS);
    for (int j = 0; j < outs && p->scoped; j++)
        sherd_scope_pass(p->out[j]);
    if (p->scoped)
        sherd_scope_end(p->world);
    return p->out[0];
}

sherd_tensor *sherd__abandon(sherd__prepared *p)
{
    if (p->scoped)
        sherd_scope_end(p->world);
    p->scoped = false;
    return sherd__failed(p->world);
}
