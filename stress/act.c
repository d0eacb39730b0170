/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each operation as a call of the library, through the public headers only. What a wrong program
 * has not made is left out; what has failed is passed on, as the library says it may be.
 */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- operands and results -------------------------------------------------------------------- */

/* Something of this rank's own can not be made: all must learn of it. */
static void give_up(runner *u, sherd_status status)
{
    u->must_fail = true;
    sherd_world_fail(u->world, status, sherd_world_error(u->world));
}

const sherd_mesh *mesh_for(runner *u, int mesh)
{
    const mesh_plan *m = &u->s->mesh[mesh];
    const char *names[AXES];

    if (u->mesh[mesh] || m->whole == mesh)
        return u->mesh[mesh];
    if (m->paper == u->s->mesh[m->whole].paper)
        return u->mesh[m->whole]; /* an equal one */
    for (int i = 0; i < m->axes; i++)
        names[i] = m->name[i];
    const sherd_mesh *whole = u->mesh[m->whole];
    sherd_status status =
        whole ? sherd_mesh_slice(&u->mesh[mesh], whole, m->axes, names) : SHERD_OK;
    if (status)
        give_up(u, status);
    return u->mesh[mesh];
}

static const sherd_layout *layout_for(runner *u, int layout)
{
    if (layout < 0 || u->layout[layout])
        return layout < 0 ? NULL : u->layout[layout];

    const layout_plan *l = &u->p->layout[layout];
    const sherd_mesh *mesh = mesh_for(u, l->mesh);
    sherd_status status = mesh ? layout_make(&u->layout[layout], l, mesh) : SHERD_OK;
    if (status)
        give_up(u, status);
    return sherd_layout_retain(
        u->layout[layout]); /* the scope around this operation ends before the program does */
}

static bool is_member(const runner *u, const op *o)
{
    return o->mesh < 0 || (u->s->mesh[o->mesh].members >> u->rank & 1);
}

static void keep(runner *u, const op *o, int i, sherd_tensor *t)
{
    if (t && sherd_tensor_failed(t))
        u->must_fail = true;
    if (!t || o->dst[i] < 0)
        return;
    if (o->own)
        sherd_tensor_retain(t);
    u->slot[o->dst[i]] = t;
    u->own[o->dst[i]] = o->own;
    u->born[o->dst[i]] = u->at;
}

/* All elements of this rank's box of a layout, or of the whole shape. NULL for lack of memory of
 * this program. */
static void *piece(const op *o, const sherd_box *box, const int64_t *shape, const addends *a,
                   int which)
{
    int64_t at[DIMS] = {0}, count = 1;

    for (int d = 0; d < box->ndim; d++)
        count *= box->size[d];
    void *data = calloc((size_t)count + 1, 8);
    for (int64_t k = 0; data && k < count; k++) {
        int64_t index = 0;
        for (int d = 0; d < box->ndim; d++)
            index = index * shape[d] + box->offset[d] + at[d];
        store_element(o->dtype, data, k, addend_element(a, o->key, which, index));
        for (int d = box->ndim - 1; d >= 0 && ++at[d] == box->size[d]; d--)
            at[d] = 0;
    }
    return data;
}

static addends addends_for(const op *o, const sherd_layout *l)
{
    addends a = addends_of(l, o->dtype);

    if (o->number > 0 && o->number < a.most)
        a.most = o->number;
    return a;
}

/* ---- out of nothing -------------------------------------------------------------------------- */

static void act_constant(runner *u, const op *o)
{
    const sherd_layout *l = layout_for(u, o->layout[0]);

    if (l || o->absent) {
        keep(u, o, 0, sherd_constant_on(l, o->dtype, o->number));
    } else if (o->layout[0] < 0) {
        const numbers *v = &u->p->value[o->value[0]];
        keep(u, o, 0, sherd_constant(u->world, o->dtype, v->shape, v->ndim, o->number));
    }
}

static void act_draw(runner *u, const op *o)
{
    const sherd_layout *l = layout_for(u, o->layout[0]);
    sherd_generator g = {o->key, o->call};

    if (l)
        keep(u, o, 0, sherd_random_on(l, o->dtype, sherd_uniform(0, 1), &g));
}

static void act_from_local(runner *u, const op *o)
{
    const sherd_layout *l = layout_for(u, o->layout[0]);
    const int64_t *sizes[DIMS];

    if (!l)
        return;
    const layout_plan *plan = &u->p->layout[o->layout[0]];
    sherd_box box = sherd_layout_box(l, u->rank, 0);
    box.ndim = plan->ndim;
    addends a = addends_for(o, l);
    void *data = piece(o, &box, plan->shape, &a, addend_of(l, u->rank));
    if (!data)
        abort();
    for (int d = 0; d < plan->ndim; d++)
        sizes[d] = plan->cut[d] ? plan->sizes[d] : NULL;
    sherd_from_local_options options = {.order = plan->ordered ? plan->order : NULL};
    options.mode = o->infer ? SHERD_FROM_INFER : SHERD_FROM_CHUNK;
    options.shape = o->infer ? NULL : plan->shape;
    options.sizes = o->infer ? NULL : sizes;
    sherd_tensor *local = sherd_from_data(u->world, o->dtype, box.size, plan->ndim, data);
    free(data);
    keep(u, o, 0,
         sherd_from_local(local, o->absent ? NULL : mesh_for(u, plan->mesh), plan->placement,
                          &options));
}

static void act_distribute(runner *u, const op *o)
{
    const sherd_layout *l = layout_for(u, o->layout[0]);

    if (!l)
        return;
    const layout_plan *plan = &u->p->layout[o->layout[0]];
    sherd_box box = {.ndim = plan->ndim};
    memcpy(box.size, plan->shape, sizeof plan->shape);
    addends a = addends_for(o, l);
    op mine = *o;
    /* Only the root's data counts. */
    mine.key += o->flag || (o->root >= 0 && o->root != u->rank);
    void *data = piece(&mine, &box, plan->shape, &a, 0);
    if (!data)
        abort();
    sherd_tensor *t = sherd_from_data(u->world, o->dtype, plan->shape, plan->ndim, data);
    free(data);
    if (o->root < 0)
        t = sherd_mark_equal(t);
    keep(u, o, 0, sherd_distribute(t, o->absent ? NULL : l, o->root));
}

/* ---- moves ----------------------------------------------------------------------------------- */

static void act_move(runner *u, const op *o)
{
    const sherd_layout *l = layout_for(u, o->layout[0]);
    const sherd_plan_options greedy = {.planner = SHERD_PLANNER_GREEDY};
    sherd_redistribute_options options = {.begin = o->begin, .plan = o->greedy ? &greedy : NULL};

    if (!u->slot[o->src[0]] || !l)
        return;
    if (o->flag)
        options.forward_dtype = o->dtype;
    keep(u, o, 0, sherd_redistribute(u->slot[o->src[0]], o->absent ? NULL : l, &options));
}

static void act_many(runner *u, const op *o)
{
    sherd_tensor *out[LIST], *t[LIST];
    const sherd_layout *to[LIST];

    for (int i = 0; i < o->count; i++) {
        t[i] = u->slot[o->src[i]];
        to[i] = layout_for(u, o->layout[i]);
        if (!t[i] || !to[i])
            return;
    }
    if (o->absent)
        to[o->count - 1] = NULL;
    sherd_redistribute_many(out, t, to, o->count);
    for (int i = 0; i < o->count; i++)
        keep(u, o, i, out[i]);
}

static void act_write(runner *u, const op *o)
{
    sherd_tensor *t = u->slot[o->src[0]];
    const sherd_layout *l = layout_for(u, o->layout[0]);

    if (!t || !l || !(o->writers >> u->rank & 1))
        return;
    char *data = sherd_tensor_write(t);
    u->must_fail |= !data;
    /* On a rank that has erred it may be another tensor. */
    if (!data || sherd_tensor_layout(t) != l || sherd_tensor_dtype(t) != o->dtype)
        return;
    sherd_box box = sherd_layout_box(l, u->rank, 0);
    addends a = addends_for(o, l);
    void *mine = piece(o, &box, u->p->layout[o->layout[0]].shape, &a, addend_of(l, u->rank));
    int64_t count = 1;
    for (int d = 0; d < box.ndim; d++)
        count *= box.size[d];
    if (!mine)
        abort();
    memcpy(data, mine, (size_t)count * sherd_dtype_bytes(o->dtype));
    free(mine);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void act_read(runner *u, const op *o)
{
    if (u->slot[o->src[0]] && is_member(u, o))
        compare(u, u->slot[o->src[0]], o->value[0]);
}

static void act_full(runner *u, const op *o)
{
    if (u->slot[o->src[0]])
        keep(u, o, 0, sherd_full(u->slot[o->src[0]]));
}

static void act_item(runner *u, const op *o)
{
    if (!u->slot[o->src[0]])
        return;
    double x = sherd_item(u->slot[o->src[0]]), wanted = u->p->value[o->value[0]].x[0];
    if (!is_member(u, o))
        return;
    u->must_fail |= isnan(x);
    u->me->elements++;
    if (!isnan(x) && x != wanted && !u->blind)
        say_wrong(u, "the item is %g, not %g", x, wanted);
}

static void act_to_local(runner *u, const op *o)
{
    sherd_tensor *t = u->slot[o->src[0]];
    const sherd_layout *l = layout_for(u, o->layout[0]);

    if (!t || !l || !is_member(u, o))
        return;
    const layout_plan *plan = &u->p->layout[o->layout[0]];
    const sherd_from_local_options options = {.order = plan->ordered ? plan->order : NULL};
    sherd_tensor *local = sherd_to_local(t);
    keep(u, o, 0, sherd_from_local(local, mesh_for(u, plan->mesh), plan->placement, &options));
}

/* ---- operators ------------------------------------------------------------------------------- */

static sherd_tensor *operate(sherd_tensor *a, sherd_tensor *b, const op *o, const runner *u)
{
    sherd_generator g = {o->key, o->call};
    const numbers *v = o->value[0] >= 0 ? &u->p->value[o->value[0]] : NULL;

    switch (o->kind) {
    case OP_CAST:
        return sherd_cast(a, o->dtype);
    case OP_ADD:
        return sherd_add(a, b);
    case OP_SUB:
        return sherd_sub(a, b);
    case OP_MUL:
        return sherd_mul(a, b);
    case OP_SCALE:
        return sherd_scale(a, o->number);
    case OP_RELU:
        return sherd_relu(a);
    case OP_GELU:
        return sherd_gelu(a);
    case OP_DROPOUT:
        return sherd_dropout(a, o->number, &g);
    case OP_SUM:
        return sherd_sum(a);
    case OP_MATMUL:
        return sherd_matmul(a, b);
    case OP_TRANSPOSE:
        return sherd_transpose(a, 0, 1);
    default:
        return sherd_view(a, v->shape, v->ndim);
    }
}

static void act_operator(runner *u, const op *o)
{
    sherd_tensor *a = u->slot[o->src[0]], *b = o->src[1] >= 0 ? u->slot[o->src[1]] : NULL;

    if (!a || (o->src[1] >= 0 && !b))
        return;
    keep(u, o, 0, operate(a, o->absent ? NULL : b, o, u));
}

/* ---- gradients ------------------------------------------------------------------------------- */

static void act_require(runner *u, const op *o)
{
    if (u->slot[o->src[0]])
        sherd_require_grad(u->slot[o->src[0]], o->flag);
}

static void act_backward(runner *u, const op *o)
{
    sherd_tensor *loss = u->slot[o->src[0]];

    if (!loss)
        return;
    sherd_backward(loss);
}

static void act_grad(runner *u, const op *o)
{
    sherd_tensor *leaf = u->slot[o->src[0]];
    sherd_tensor *grad = leaf && !sherd_tensor_failed(leaf) ? sherd_grad(leaf) : NULL;

    if (!leaf)
        return;
    if (grad && sherd_tensor_failed(grad))
        u->must_fail = true;
    else if (grad && o->flag && is_member(u, o))
        compare(u, grad, o->value[0]);
    else if (grad && !o->flag && !u->blind)
        say_wrong(u, "a gradient where there is none");
    else if (!grad && o->flag)
        u->must_fail = true;
}

static void act_clear(runner *u, const op *o)
{
    sherd_tensor *leaf = u->slot[o->src[0]];

    if (leaf && !sherd_tensor_failed(leaf))
        sherd_clear_grad(leaf);
}

/* ---- slots and scopes ------------------------------------------------------------------------ */

static void clear_slot(runner *u, int i)
{
    if (u->own[i])
        sherd_tensor_release(u->slot[i]);
    u->slot[i] = NULL;
    u->own[i] = false;
}

static void act_drop(runner *u, const op *o)
{
    clear_slot(u, o->src[0]);
}

static void act_scope(runner *u, const op *o)
{
    (void)o;
    u->scopes++;
    sherd_scope_begin(u->world);
}

/* What the scope held is gone: no slot may name it any more; a fault may have given one a count of
 * its own. */
static void act_unscope(runner *u, const op *o)
{
    for (int i = 0; i < SLOTS; i++)
        if (o->unknown >> i & 1)
            clear_slot(u, i);
    u->scopes--;
    sherd_scope_end(u->world);
}

static void act_pass(runner *u, const op *o)
{
    if (u->slot[o->src[0]])
        sherd_scope_pass(u->slot[o->src[0]]);
}

/* ---- meetings -------------------------------------------------------------------------------- */

/*
 * A mesh that is not made: other ranks may be at a check, and stay there until all are. What that
 * says goes to all; if it is good, this refusal was for all.
 */
static sherd_status refused(runner *u, sherd_status status)
{
    sherd_status checked = is_closed(status) ? status : sherd_world_check(u->world);

    if (checked)
        return checked;
    u->good_at = u->at;
    return status;
}

static void act_mesh(runner *u, const op *o)
{
    const mesh_plan *m = &u->s->mesh[o->mesh];
    const char *names[AXES];
    sherd_status status;

    for (int i = 0; i < m->axes; i++)
        names[i] = m->name[i];
    if (m->text[0])
        status = sherd_mesh_parse(&u->mesh[o->mesh], u->world, m->text);
    else
        status = sherd_mesh_create(&u->mesh[o->mesh], u->world, m->axes, m->extent,
                                   m->named ? names : NULL, m->rank);
    met(u, status ? refused(u, status) : SHERD_OK);
}

static void act_check(runner *u, const op *o)
{
    (void)o;
    sherd_status status = sherd_world_check(u->world);

    if (status == SHERD_OK && u->must_fail)
        say_wrong(u, "something has failed on this rank, and the check says OK");
    u->must_fail = false;
    if (met(u, status))
        u->good_at = u->at;
}

typedef void action(runner *u, const op *o);

static action *const actions[OP_KINDS] = {
    [OP_MESH] = act_mesh,
    [OP_CHECK] = act_check,
    [OP_SCOPE] = act_scope,
    [OP_UNSCOPE] = act_unscope,
    [OP_PASS] = act_pass,
    [OP_DROP] = act_drop,
    [OP_CONSTANT] = act_constant,
    [OP_DRAW] = act_draw,
    [OP_FROM_LOCAL] = act_from_local,
    [OP_DISTRIBUTE] = act_distribute,
    [OP_MOVE] = act_move,
    [OP_MANY] = act_many,
    [OP_WRITE] = act_write,
    [OP_READ] = act_read,
    [OP_FULL] = act_full,
    [OP_ITEM] = act_item,
    [OP_TO_LOCAL] = act_to_local,
    [OP_REQUIRE] = act_require,
    [OP_BACKWARD] = act_backward,
    [OP_GRAD] = act_grad,
    [OP_CLEAR] = act_clear,
};

void act(runner *u, const op *o)
{
    action *run = actions[o->kind] ? actions[o->kind] : act_operator;

    if (o->members && !is_member(u, o))
        return;
    /* The result outlives the scope around the operation by a count of its own. */
    bool inner = o->own && o->kind != OP_DROP;
    if (inner)
        sherd_scope_begin(u->world);
    run(u, o);
    if (inner)
        sherd_scope_end(u->world);
    u->me->ops++;
}
