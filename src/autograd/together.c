/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was gathered in one call. There is a node for each tensor, since a node has few results; the
 * nodes of a call have numbers that follow one another, so backward comes to all of them at once,
 * when all gradients have arrived: it settles them in one round, at the first. What the tape has
 * saved of them is a group (group.h), which restored.c moves again.
 */
#include "autograd/together.h"

#include "autograd/node.h"

/* ---- recording ------------------------------------------------------------------------------ */

typedef struct gather_attributes {
    uint64_t call;
    sherd_dtype reduce; /* SHERD_DTYPE_NONE: gradients are added up as they are */
    int ahead;          /* what is settled may be under way while backward goes on */
} gather_attributes;

/*
 * A leaf's gradient is passed on where it lies, if it has not been settled with the others: the
 * leaf decides.
 */
static void gather_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_dtype dtype = grad_out[0]->dtype;

    grad_in[0] = dtype == sherd__gradient_dtype(node, 0)
                     ? grad_out[0]
                     : sherd__converted(grad_out[0], node->in[0].dtype);
}

const sherd_op sherd__together_op = {
    .name = "sherd_fully_shard", .takes_pending = true, .backward = gather_back};

/* It may have been gathered before the call, so its origin is noted now. */
void sherd__record_gather(const sherd__gathering *g)
{
    uint64_t call = g->count > 0 ? sherd__tape_of(g->whole[0]->world)->order : 0;
    const gather_attributes attributes = {call, g->reduce, g->ahead};

    for (int i = 0; i < g->count; i++) {
        sherd_tensor *piece = g->pieces[i], *whole = g->whole[i];
        if (whole == piece || sherd_tensor_failed(whole))
            continue;
        if (!g->keep && piece->layout->shards > whole->layout->shards)
            whole->autograd.moved_from = sherd_tensor_retain(piece);
        sherd__origin_pass(&piece, 1, &whole, 1);
        sherd__record_node(whole->world, &sherd__together_op, &piece, 1, &whole, 1, &attributes,
                           sizeof attributes);
        if (g->reduce == SHERD_F32 && sherd__moved_gradient_dtype(piece) == SHERD_F32)
            sherd__take_wide(whole, &sherd__together_op, SHERD_F32, true);
    }
}

void sherd__stand_in(sherd_tensor *const *pieces, sherd_tensor *const *whole, int count)
{
    for (int i = 0; i < count; i++) {
        if (whole[i] == pieces[i] || sherd_tensor_failed(whole[i]))
            continue;
        sherd__origin_pass(&pieces[i], 1, &whole[i], 1);
        whole[i]->autograd.requires_grad = pieces[i]->autograd.requires_grad;
    }
}

/* ---- gradients ------------------------------------------------------------------------------ */

static uint64_t call_of(const sherd_node *node)
{
    return ((const gather_attributes *)node->attributes)->call;
}

static bool may_overlap(const sherd__pass *p, const sherd_node *node)
{
    return ((const gather_attributes *)node->attributes)->ahead && p->part == SHERD__WHOLE &&
           !p->only;
}

static sherd_dtype reduced_in(const sherd_node *node)
{
    return ((const gather_attributes *)node->attributes)->reduce;
}

/* How many nodes from the k-th on are of its call. */
static int nodes_of_call(const sherd__pass *p, int k)
{
    int n = 1;

    while (k + n < p->nodes && p->node[k + n] && p->node[k + n]->op == &sherd__together_op &&
           call_of(p->node[k + n]) == call_of(p->node[k]))
        n++;
    return n;
}

/*
 * What the leaf has kept for this gradient is added first: then both are settled at once. False:
 * failed, raised.
 */
static bool add_waiting(const sherd__pass *p, sherd_tensor *leaf, sherd__result *out)
{
    sherd_tensor *kept = leaf->autograd.grad;

    if (p->only || !kept || kept->layout != out->grad->layout ||
        sherd__is_watching((const sherd__watch *)leaf->autograd.watch))
        return true;
    bool good = sherd__add_grad(&leaf->autograd.grad, out->grad);
    if (!good)
        return false;
    sherd_tensor *sum = sherd_tensor_retain(leaf->autograd.grad);
    sherd__set_grad(leaf, NULL);
    sherd_tensor_release(out->grad);
    out->grad = sum;
    return true;
}

/* Whether the gradient of a gathered leaf is to be settled with the others. */
static bool is_due(const sherd_node *node)
{
    const sherd__result *out = &node->out[0];
    const sherd_tensor *leaf = node->in[0].leaf;

    return node->needed && leaf && leaf->autograd.requires_grad && out->grad &&
           !sherd__is_watching(out->watch) && sherd__is_larger(leaf, out->grad);
}

/* The gradient of a node as it is to be added up, and where to. False: failed, raised. */
static bool prepare(const sherd__pass *p, const sherd_node *node, sherd_tensor **from,
                    const sherd_layout **to)
{
    sherd_dtype reduce = reduced_in(node);

    if (!add_waiting(p, node->in[0].leaf, &node->out[0]))
        return false;
    if (sherd__layout_settle(to, node->in[0].leaf->layout) != SHERD_OK) {
        sherd__raise_diag(p->world);
        return false;
    }
    *from = node->out[0].grad;
    if (reduce != SHERD_DTYPE_NONE)
        *from = sherd__converted(*from, reduce);
    return !sherd_tensor_failed(*from);
}

void sherd__settled_wait(sherd__pass *p)
{
    for (int i = 0; i < p->settling; i++) {
        (void)sherd_wait(p->settled[i]);
        sherd_tensor_release(p->settled[i]);
    }
    p->settling = 0;
}

/* Remember sums that may be under way, until the next ones are. False: failed, raised. */
static bool let_settle(sherd__pass *p, sherd_tensor *sum)
{
    sherd_tensor **list = sherd__reserve(sherd__world_heap(p->world), p->settled, p->settling,
                                         &p->settled_room, 8, sizeof *list);

    if (!list) {
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", p->function);
        return false;
    }
    p->settled = list;
    p->settled[p->settling++] = sherd_tensor_retain(sum);
    return true;
}

/* Bring the gradients of n nodes to the layouts of their leaves. */
static bool settle(sherd__pass *p, sherd_node *const *node, int n, sherd_tensor **list,
                   const sherd_layout **to)
{
    sherd_tensor **from = list + n;
    int count = 0;

    for (int i = 0; i < n; i++) {
        if (!is_due(node[i]))
            continue;
        if (!prepare(p, node[i], &from[count], &to[count]))
            return false;
        count++;
    }
    if (count == 0) /* they were settled with the first node of their call */
        return true;
    sherd__where_set(p->world, sherd__where_at(node[0]->place, true));
    sherd__settled_wait(p);
    sherd__move_list(list, from, to, count, may_overlap(p, node[0]));
    for (int i = 0, at = 0; i < n; i++) {
        sherd_tensor *before = node[i]->out[0].grad;
        if (!is_due(node[i]))
            continue;
        sherd_tensor *sum = list[at++];
        if (!sherd_tensor_failed(sum))
            sum = sherd__converted(sum, node[i]->in[0].dtype);
        if (sherd_tensor_failed(sum) || (may_overlap(p, node[i]) && !let_settle(p, sum)))
            return false;
        node[i]->out[0].grad = sherd_tensor_retain(sum);
        node[i]->out[0].ours = false;
        sherd_tensor_release(before);
    }
    return true;
}

bool sherd__settle_together(sherd__pass *p, int k)
{
    sherd__heap *heap = sherd__world_heap(p->world);
    int n = nodes_of_call(p, k);

    if (p->graph || sherd__tape_of(p->world)->waits ||
        (n == 1 && reduced_in(p->node[k]) == SHERD_DTYPE_NONE))
        return true;
    sherd_tensor **list = sherd__alloc(heap, 2 * (size_t)n, sizeof(sherd_tensor *));
    const sherd_layout **to = sherd__alloc(heap, (size_t)n, sizeof *to);
    bool good = list && to;
    if (!good)
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", p->function);
    good = good && settle(p, p->node + k, n, list, to);
    sherd__free(heap, list);
    sherd__free(heap, to);
    return good;
}
