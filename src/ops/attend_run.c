/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of one rank by the fastest kernels available: for bf16 the CPU's tiles, or matrix
 * products if oneDNN has fast ones; otherwise the kernels of the dtype. Scratch memory is the
 * call's.
 */
#include "attend.h"

#include "base/num.h"
#include "kernels/engine.h"

enum { Q, K, V };

void *sherd__attend_workspace(sherd_call *call, sherd_dtype dtype, const sherd__attending *problem)
{
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(call->world), dtype);
    int64_t elements = kernels->attention_workspace(problem);

    return sherd_call_scratch(call, sherd__max(elements, 1) * (int64_t)sherd_dtype_bytes(dtype));
}

/*
 * The workspace of tiles or of products, whichever is tried first. NULL: neither is available, or,
 * *done, no memory for it.
 */
static void *first_workspace(sherd_call *call, const sherd__attending *problem, sherd__done *done)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__attention_tiles *tiles = set->tiles;
    bool any = call->out[0]->dtype == SHERD_BF16 &&
               (tiles || (set->bf16_products && sherd__engine_in(call))) &&
               problem->batch * problem->groups > 0;
    int64_t bytes = tiles ? tiles->bytes(problem) : sherd__attention_products_bytes(problem);
    void *workspace = any ? sherd_call_scratch(call, bytes) : NULL;

    *done = any && !workspace ? SHERD__NO_MEMORY : SHERD__CANNOT;
    return workspace;
}

/* False: failed; otherwise *left says whether the kernels of the dtype must do it. */
static bool settle(sherd_call *call, sherd__done done, bool *left)
{
    *left = done == SHERD__CANNOT;
    return done != SHERD__NO_MEMORY ||
           sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a product");
}

bool sherd__attend_run(sherd_call *call, const sherd__attending *problem, void *const *out,
                       const void *const *q)
{
    sherd__done done;
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    void *workspace = first_workspace(call, problem, &done);
    bool left;

    if (workspace)
        done = set->tiles
                   ? set->tiles->attention(problem, out[0], out[1], q[Q], q[K], q[V], workspace)
                   : sherd__attention_products(sherd__engine_in(call), set, problem, out[0], out[1],
                                               q[Q], q[K], q[V], workspace);
    if (!settle(call, done, &left) || !left)
        return !left && done == SHERD__DONE;
    workspace = sherd__attend_workspace(call, call->out[0]->dtype, problem);
    if (workspace)
        sherd__kernels_in(call)->attention(problem, out[0], out[1], q[Q], q[K], q[V], workspace);
    return workspace != NULL;
}

static sherd__done grad_first(sherd_call *call, const sherd__attending *problem,
                              const sherd__attend_arrays *a, void *workspace)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);

    if (set->tiles)
        return set->tiles->attention_grad(problem, a->out[Q], a->out[K], a->out[V], a->dout,
                                          a->q[Q], a->q[K], a->q[V], a->result, a->log_sum,
                                          workspace);
    return sherd__attention_grad_products(sherd__engine_in(call), set, problem, a->out[Q],
                                          a->out[K], a->out[V], a->dout, a->q[Q], a->q[K], a->q[V],
                                          a->log_sum, workspace);
}

bool sherd__attend_run_back(sherd_call *call, const sherd__attending *problem,
                            const sherd__attend_arrays *a)
{
    bool plain = a->dmask || a->dlog_sum || !a->dout, left;
    sherd__done done = SHERD__CANNOT;
    void *workspace = plain ? NULL : first_workspace(call, problem, &done);

    if (workspace)
        done = grad_first(call, problem, a, workspace);
    if (!settle(call, done, &left) || !left)
        return !left && done == SHERD__DONE;
    workspace = sherd__attend_workspace(call, call->out[0]->dtype, problem);
    if (workspace)
        sherd__kernels_in(call)->attention_grad(problem, a->out[Q], a->out[K], a->out[V], a->dmask,
                                                a->dout, a->dlog_sum, a->q[Q], a->q[K], a->q[V],
                                                a->result, a->log_sum, workspace);
    return workspace != NULL;
}
