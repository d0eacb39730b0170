/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a table. A rank that holds only some rows of the table gives zeroes for the others, so the result
 * is pending where the entries are sharded. Ids are checked against the whole table, whatever part is here.
 */
#include <string.h>

#include "operator.h"

enum { WEIGHT, IDS };

/* The gradient lies as the table does, and is pending where the ids are sharded. */
static void embedding_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0], *ids = sherd__saved(node, 0);
    sherd_tensor *in[SHERD__OPERANDS] = {ids, dy, NULL};
    const sherd_layout *like[SHERD__OPERANDS] = {NULL, NULL, sherd__input_layout(node, WEIGHT)};
    sherd__rule rule = {.name = "sherd_embedding backward", .index = 1};
    int64_t shape[1][SHERD_MAX_DIMS];
    const int64_t *table;
    sherd__prepared p;

    grad_in[WEIGHT] = sherd__failed(dy->world);
    if (sherd_tensor_failed(ids))
        return;
    sherd__input_shape(node, WEIGHT, &table);
    memcpy(shape[0], table, 2 * sizeof *table);
    sherd__rule_compile(&rule, "...,...d,vd->vd", (const int[]){ids->ndim, dy->ndim, 2});
    if (!sherd__prepare_like(&p, &rule, in, like, dy->dtype,
                             (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return;
    sherd_tensor *out = p.out[0];
    if (out->count)
        p.kernels->embedding_grad(p.in[0]->count, out->local[1], p.to[0], p.from[1], p.from[0],
                                  sherd_tensor_box(out).offset[0], out->local[0]);
    grad_in[WEIGHT] = sherd__finish(&p, 1);
}

static const sherd__backward embedding_table = {"sherd_embedding", false, embedding_back};

static sherd_tensor *lookup(const sherd__operands *o)
{
    sherd_tensor *weight = o->in[WEIGHT], *ids = o->in[IDS];
    sherd__rule rule = {.name = o->function, .linearity = SHERD__LINEAR, .index = 1u << IDS};
    int64_t shape[1][SHERD_MAX_DIMS];
    sherd__prepared p;

    memcpy(shape[0], ids->shape, sizeof shape[0]);
    shape[0][ids->ndim] = weight->shape[1];
    sherd__rule_compile(&rule, "vd,...->...d", (const int[]){2, ids->ndim});
    if (!sherd__prepare(&p, &rule, o->in, weight->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return p.out[0];
    if (p.out[0]->count)
        p.kernels->embedding(p.in[IDS]->count, p.out[0]->local[ids->ndim], p.to[0], p.from[WEIGHT],
                             p.from[IDS], sherd_tensor_box(p.in[WEIGHT]).offset[0],
                             p.in[WEIGHT]->local[0]);
    sherd__node *node = sherd__record_node(p.world, &embedding_table, p.arg, 2, p.out, 1, NULL, 0);
    sherd__save(node, 0, p.arg[IDS]);
    return sherd__finish(&p, 1);
}

sherd_tensor *sherd_embedding(sherd_tensor *weight, sherd_tensor *ids)
{
    static const char *const names[] = {"weight", "ids"};
    sherd_tensor *in[SHERD__OPERANDS] = {weight, ids}, *failed;
    sherd__operands o = {"sherd_embedding", names, in, 2, 0};

    if (!sherd__enter(&o, &failed))
        return failed;
    if (weight->ndim != 2 || ids->ndim >= SHERD_MAX_DIMS)
        return sherd__refuse(&o, SHERD_EINVAL, "weight must have two dims, ids at most %d",
                             SHERD_MAX_DIMS - 1);
    if (ids->dtype != SHERD_I32)
        return sherd__refuse(&o, SHERD_EINVAL, "ids must be i32");
    in[IDS] = sherd__without_pending(ids);
    if (sherd_tensor_failed(in[IDS]) || !sherd__check_indices(&o, IDS, weight->shape[0], &failed))
        return sherd_tensor_failed(in[IDS]) ? in[IDS] : failed;
    return lookup(&o);
}
