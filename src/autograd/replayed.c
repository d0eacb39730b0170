/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a part that may be run again: the first time they are listed, and when it runs again
 * each new one is compared with the old one of that number.
 */
#include "autograd/replaying.h"
#include "layout/shape.h"

#include <string.h>

const char *sherd__replay_name(const sherd__replay *r)
{
    return r->what.name(r->what.self);
}

void sherd__replay_let_go(sherd__replay *r)
{
    while (r && r->state == SHERD__REPLAY_WAITS && r->undone == 0 && !r->keeper->done) {
        sherd_node *keeper = r->keeper;
        sherd__node_clear(keeper);
        keeper->done = true;
        r = keeper->replay;
        if (r && !keeper->again)
            r->undone--;
    }
}

void sherd__replay_done(sherd_node *node)
{
    if (!node->replay || node->again)
        return;
    node->replay->undone--;
    sherd__replay_let_go(node->replay);
}

bool sherd__replay_differs(sherd__replay *r, const char *what, const char *before)
{
    sherd__raise_local(r->world);
    if (!sherd__alarmed(r->world))
        sherd__raise(r->world, SHERD_EINVAL,
                     "sherd_module_checkpoint: module \"%s\" did something else when it was run "
                     "again in backward: %s where it was %s: it must depend on its arguments and "
                     "parameters alone",
                     sherd__replay_name(r), what, before);
    return false;
}

static bool same_operand(const sherd__edge *a, const sherd__edge *b)
{
    return a->wanted == b->wanted && a->layout == b->layout && a->dtype == b->dtype &&
           sherd__same_shape(a->ndim, a->shape, b->ndim, b->shape);
}

/*
 * Whether a tensor that a node uses was written since the first run. That it is another tensor is
 * no fault: the module may have made it anew, with the same values.
 */
static bool was_written(sherd__replay *r, const sherd__edge *a, const sherd__edge *b)
{
    char text[SHERD_ERROR_BYTES];

    if (!sherd__origin_changed(&a->origin, &b->origin))
        return false;
    if (b->layout)
        sherd__layout_describe(b->layout, b->dtype, text, sizeof text);
    else
        sherd__shape_describe(b->ndim, b->shape, b->dtype, text, sizeof text);
    sherd__raise(r->world, SHERD_EINVAL,
                 "sherd_module_checkpoint: module \"%s\" is run again in backward, but %.300s, "
                 "which it uses, was written since: write it after backward",
                 sherd__replay_name(r), text);
    return true;
}

/* Whether a node is the same as the first time. */
static bool is_same(sherd__replay *r, const sherd_node *old, const sherd_node *node)
{
    if (old->op != node->op || old->ins != node->ins || old->outs != node->outs)
        return sherd__replay_differs(r, node->op->name, old->op->name);
    if (old->done)
        return true; /* its backward has run: it needs nothing, and its operands are forgotten */
    for (int i = 0; i < node->ins; i++) {
        if (was_written(r, &old->in[i], &node->in[i]))
            return false;
        if (!same_operand(&old->in[i], &node->in[i]))
            return sherd__replay_differs(r, "with another operand", node->op->name);
    }
    return sherd__same_fields(node->op, old->attributes, node->attributes) ||
           sherd__replay_differs(r, "with other attributes", node->op->name);
}

void sherd__replay_compare(const sherd_node *keeper, int i)
{
    sherd__replay *r = keeper->again ? keeper->replay : NULL;
    const sherd_node *old = r && keeper->member < r->nodes ? r->node[keeper->member] : NULL;

    if (old && !old->done && old->op == keeper->op && i < old->ins)
        (void)was_written(r, &old->in[i], &keeper->in[i]);
}

static bool append(sherd__replay *r, sherd_node *node)
{
    sherd_node **list =
        sherd__reserve(sherd__world_heap(r->world), r->node, r->nodes, &r->room, 16, sizeof *list);

    if (!list) {
        sherd__raise(r->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        return false;
    }
    r->node = list;
    r->node[r->nodes++] = node;
    return true;
}

void sherd__replay_join(sherd_node *node)
{
    sherd__replay *r = sherd__tape_of(node->world)->replay;

    if (!r)
        return;
    if (r->state == SHERD__REPLAY_RECORDS) {
        if (!append(r, node))
            return;
        node->member = r->nodes - 1;
        r->undone++;
    } else {
        node->member = r->at++;
        node->again = true;
        if (node->member >= r->nodes)
            (void)sherd__replay_differs(r, node->op->name, "at its end");
        else if (r->node[node->member])
            (void)is_same(r, r->node[node->member], node);
    }
    node->replay = r;
    r->head.refs++;
}

void sherd__replay_part(sherd_node *node)
{
    sherd__replay *r = node->replay;

    if (!r)
        return;
    node->replay = NULL;
    if (!node->again) {
        r->node[node->member] = NULL;
        r->undone -= !node->done;
        sherd__replay_let_go(r);
    }
    sherd__refcounted_release(&r->head);
}
