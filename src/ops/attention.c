/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention. Batch and heads may be sharded, each rank computes its own heads; sequences and width are made
 * whole. The scores are never kept: backward computes them again from q, k and the logarithms of their sums.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "operator.h"

enum { Q, K, V, OUT, LOG_SUM, OPERANDS }; /* also the slots of what is saved */

static const char *const names[] = {"q", "k", "v"};

typedef struct attention_attrs {
    double scale;
    bool causal;
} attention_attrs;

/* Of contiguous local pieces. */
static sherd__attention_shape shape_of(const sherd_tensor *q, const sherd_tensor *k,
                                       const attention_attrs *attrs)
{
    return (sherd__attention_shape){.batch = q->local[0],
                                    .heads = q->local[2],
                                    .queries = q->local[1],
                                    .keys = k->local[1],
                                    .width = q->local[3],
                                    .stride = q->local[2] * q->local[3],
                                    .scale = attrs->scale,
                                    .causal = attrs->causal};
}

/* Scratch for one kernel call; false for lack of memory. A block is NULL where no scratch is needed. */
static bool take_workspace(sherd__block **out, sherd_world *world, const sherd__kernels *kernels,
                           const sherd__attention_shape *shape, const sherd_tensor *q)
{
    int64_t bytes = kernels->attention_workspace(shape) * (int64_t)sherd_dtype_bytes(q->dtype);

    *out = bytes ? sherd__block_take(world, bytes, q->layout != NULL) : NULL;
    return !bytes || *out;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Restore what was saved, compact; false if any of it failed. */
static bool restore(sherd__node *node, sherd_tensor **saved)
{
    for (int i = 0; i < OPERANDS; i++) {
        saved[i] = sherd__saved(node, i);
        if (!sherd_tensor_failed(saved[i]))
            saved[i] = sherd__contiguous(saved[i]);
        if (sherd_tensor_failed(saved[i]) || !sherd__data(saved[i]))
            return false;
    }
    return true;
}

static bool make_gradients(sherd_tensor **grad, sherd_tensor *const *saved)
{
    for (int i = Q; i <= V; i++) {
        grad[i] = sherd__new_like(saved[i]);
        if (sherd_tensor_failed(grad[i]))
            return false;
    }
    return true;
}

static bool differentiate(sherd_tensor **grad, sherd_tensor *const *saved, sherd_tensor *dout,
                          const attention_attrs *attrs)
{
    sherd_world *world = dout->world;
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(world), dout->dtype);
    sherd__attention_shape shape = shape_of(saved[Q], saved[K], attrs);
    sherd__block *workspace;

    if (!sherd__data(dout) || !take_workspace(&workspace, world, kernels, &shape, dout))
        return false;
    kernels->attention_grad(&shape, sherd__fresh(grad[Q]), sherd__fresh(grad[K]),
                            sherd__fresh(grad[V]), sherd__data(dout), sherd__data(saved[Q]),
                            sherd__data(saved[K]), sherd__data(saved[V]), sherd__data(saved[OUT]),
                            sherd__data(saved[LOG_SUM]), sherd__block_data(workspace));
    sherd__block_give(world, workspace);
    return true;
}

/*
 * The saved tensors lie as the forward left them, and so does the gradient of the result (the tape has settled it):
 * there is nothing to solve, and gradients lie as their operands do.
 */
static void attention_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *saved[OPERANDS], *grad[3], *dout = grad_out[0];
    bool good = restore(node, saved);

    if (good)
        dout = sherd__contiguous(dout);
    good = good && !sherd_tensor_failed(dout) && make_gradients(grad, saved) &&
           differentiate(grad, saved, dout, sherd__attrs(node));
    for (int i = Q; i <= V; i++)
        if (sherd__wants(node, i))
            grad_in[i] = good ? grad[i] : sherd__failed(dout->world);
}

static const sherd__backward attention_table = {"sherd_attention", false, attention_back};

/* ---- forward --------------------------------------------------------------------------------- */

static const char *misfit_of(sherd_tensor *const *in, const sherd_attention_options *options)
{
    for (int i = Q; i <= V; i++)
        if (in[i]->ndim != 4)
            return "q, k and v must have four dims [batch,positions,heads,width]";
    for (int d = 0; d < 4; d++) {
        if (in[K]->shape[d] != in[V]->shape[d])
            return "k and v must have one shape";
        if (d != 1 && in[Q]->shape[d] != in[K]->shape[d])
            return "q and k must differ in positions only";
    }
    if (options && options->causal && in[Q]->shape[1] != in[K]->shape[1])
        return "causal attention needs as many queries as keys";
    return NULL;
}

static void record(sherd__prepared *p, const attention_attrs *attrs)
{
    sherd__node *node =
        sherd__record_node(p->world, &attention_table, p->arg, 3, p->out, 1, attrs, sizeof *attrs);

    for (int i = Q; i <= V; i++)
        sherd__save(node, i, p->arg[i]);
    sherd__save(node, OUT, p->out[0]);
    sherd__save(node, LOG_SUM, p->out[1]);
}

static bool attend(sherd__prepared *p, const attention_attrs *attrs)
{
    sherd__attention_shape shape = shape_of(p->in[Q], p->in[K], attrs);
    sherd__block *workspace;

    if (!take_workspace(&workspace, p->world, p->kernels, &shape, p->out[0]))
        return false;
    p->kernels->attention(&shape, p->to[0], p->to[1], p->from[Q], p->from[K], p->from[V],
                          sherd__block_data(workspace));
    sherd__block_give(p->world, workspace);
    return true;
}

sherd_tensor *sherd_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                              const sherd_attention_options *options)
{
    sherd_tensor *in[SHERD__OPERANDS] = {q, k, v}, *failed;
    sherd__operands o = {"sherd_attention", names, in, 3, 0};
    sherd__rule rule = {.name = o.function, .whole = "stw", .statistics = 2, .scratch = true};
    int64_t shape[SHERD__RESULTS][SHERD_MAX_DIMS];
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    const char *misfit = misfit_of(in, options);
    if (misfit)
        return sherd__refuse(&o, SHERD_EINVAL, "%s", misfit);

    attention_attrs attrs = {.causal = options && options->causal,
                             .scale = options && options->scale != 0
                                          ? options->scale
                                          : 1 / sqrt((double)sherd__max(q->shape[3], 1))};
    sherd__rule_compile(&rule, "bshw,bthw,bthw->bshw,bhs", (const int[]){4, 4, 4});
    memcpy(shape[0], q->shape, sizeof shape[0]);
    memcpy(shape[1], (const int64_t[]){q->shape[0], q->shape[2], q->shape[1]}, 3 * sizeof(int64_t));
    if (!sherd__prepare(&p, &rule, in, q->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return p.out[0];
    p.attributes = sherd__attribute_double(attrs.causal, attrs.scale);
    if (!attend(&p, &attrs))
        return sherd__abandon(&p);
    record(&p, &attrs);
    return sherd__finish(&p, 1);
}
