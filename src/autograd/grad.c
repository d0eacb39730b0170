/* SPDX-License-Identifier: Apache-2.0 */
/* Adding up gradients, and the gradients of leaves. */
#include "autograd/node.h"
#include "vector/choose.h"
#include "layout/shape.h"

#include <string.h>

/* ---- adding --------------------------------------------------------------------------------- */

/*
 * The layout of a gradient for adding another one: axes on which both have the same pending sum (or
 * average) stay pending, since their addends may be added one by one; other pending axes are
 * settled.
 */
static sherd_tensor *settle_beside(sherd_tensor *t, const sherd_layout *other)
{
    sherd__layout_spec spec = t->layout->spec;
    const sherd_layout *to;

    for (int a = 0; a < spec.mesh->axes; a++)
        if (spec.pending[a] > SHERD_AVG || spec.pending[a] != other->spec.pending[a])
            spec.pending[a] = -1;
    if (sherd__layout_intern(&to, &spec) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd__gradient_to(t, to, false);
}

/* Move both to one layout, in which their local pieces can be added. */
static bool bring_together(sherd_tensor **a, sherd_tensor **b)
{
    const sherd_layout *first = (*a)->layout, *second = (*b)->layout;

    *a = settle_beside(*a, second);
    *b = settle_beside(*b, first);
    if ((*a)->storage && (*b)->storage && (*a)->layout != (*b)->layout)
        *b = sherd__gradient_to(*b, (*a)->layout, false);
    return (*a)->storage && (*b)->storage;
}

static bool is_additive(const sherd_layout *layout)
{
    for (int a = 0; a < layout->spec.mesh->axes; a++)
        if (layout->spec.pending[a] > SHERD_AVG)
            return false;
    return true;
}

static bool is_ours_alone(const sherd_tensor *t)
{
    return !sherd__makes_graph(t->world) && t->refs == 1 && t->storage->refs == 1 &&
           sherd__is_contiguous(t);
}

/*
 * A 16-bit gradient as f32 if another gradient of the same tensor is f32: some of the operators
 * that read the tensor need not round.
 */
static sherd_tensor *as_wide_as(sherd_tensor *t, const sherd_tensor *other)
{
    return sherd__is_half(t->dtype) && other->dtype == SHERD_F32 ? sherd__converted(t, SHERD_F32)
                                                                 : t;
}

/* a + b for tensors with equal layouts. */
static sherd_tensor *add_local(sherd_tensor *a, sherd_tensor *b)
{
    sherd_world *world = a->world;
    const sherd__kernels *kernels = sherd__kernels_of(sherd__world_kernels(world), a->dtype);
    sherd__device *device = sherd__device_computes(a->dtype) ? sherd__world_device(world) : NULL;
    const void *x = device ? sherd__device_data(a) : sherd__data(a);
    const void *y = device ? sherd__device_data(b) : sherd__data(b);
    sherd_tensor *out = a;
    void *dst;

    if (!x || !y)
        return sherd__failed(world);
    if (is_ours_alone(a)) {
        dst = device ? sherd__device_mutable(a) : sherd__mutable(a);
        a->varies |= b->varies;
    } else {
        out = a->layout ? sherd__new_on_there(a->layout, a->dtype, device != NULL)
                        : sherd__new_plain_there(world, a->dtype, a->ndim, a->shape,
                                                 a->varies | b->varies, device != NULL);
        dst = !out->storage ? NULL : device ? sherd__device_fresh(out) : sherd__fresh(out);
    }
    if (!dst)
        return sherd__failed(world);
    if (out->count > 0 && device)
        sherd__device_binary(device, a->dtype, SHERD__ADD, out->ndim, out->local, dst, x, a->stride,
                             y, b->stride);
    else if (out->count > 0 && !sherd__left_out(world, "sum of gradients", out->dtype,
                                                (double)out->count, 3 * sherd__local_bytes(out)))
        kernels->binary(SHERD__ADD, out->ndim, out->local, dst, x, a->stride, y, b->stride);
    if (device && !sherd__device_sound(world))
        return sherd__failed(world);
    sherd__note("sum of gradients", (sherd_tensor *[]){a, b}, 2, 0, &out, 1);
    return sherd__makes_graph(world) ? sherd__record_sum(out, a, b) : out;
}

static bool fit_together(const sherd_tensor *a, const sherd_tensor *b)
{
    return a->dtype == b->dtype && (a->layout != NULL) == (b->layout != NULL) &&
           sherd__same_shape(a->ndim, a->shape, b->ndim, b->shape);
}

/* What a leaf has from before was lost in a step that failed. False: that is so, raised. */
static bool is_there(sherd_tensor *kept)
{
    sherd_world *world = kept->world;

    if (!sherd__is_failed(kept))
        return true;
    if (!sherd__alarmed(world))
        sherd__raise(world, SHERD_EINVAL,
                     "sherd_backward: the gradient %s that a leaf has from before was lost in a "
                     "step that failed: clear it (sherd_clear_grad, sherd_optimizer_clear)",
                     sherd_tensor_text(kept));
    return false;
}

sherd_tensor *sherd__accumulate(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *both[2] = {a, b};

    if (!is_there(a) || sherd__stop(a->world, "sherd_backward", both, 2))
        return sherd__failed(a->world);
    a = as_wide_as(a, both[1]);
    b = as_wide_as(b, both[0]);
    if (!a->storage || !b->storage)
        return sherd__failed(both[0]->world);
    if (!fit_together(a, b))
        return sherd__fail_tensor(a->world, a->layout || b->layout, SHERD_EINVAL,
                                  "gradients %s and %s of one tensor do not fit together",
                                  sherd_tensor_text(a), sherd_tensor_text(b));
    if (a->layout && (a->layout != b->layout || !is_additive(a->layout)) && !bring_together(&a, &b))
        return sherd__failed(both[0]->world);
    return add_local(a, b);
}

bool sherd__add_grad(sherd_tensor **sum, sherd_tensor *grad)
{
    sherd_tensor *before = *sum, *after = before ? sherd__accumulate(before, grad) : grad;

    if (!after->storage)
        return false;
    if (after != before) {
        *sum = sherd_tensor_retain(after);
        sherd_tensor_release(before);
    }
    return true;
}

/* ---- of a leaf ------------------------------------------------------------------------------ */

/*
 * Whether a layout takes more memory than another, on the rank that holds most, or on all ranks
 * together. Decided by the layouts, not by what this rank happens to hold: settling is a call, so
 * all ranks must decide alike.
 */
static bool holds_more(const sherd_layout *a, const sherd_layout *b)
{
    int64_t largest = sherd__layout_largest(a);

    return largest > 0 && (largest > sherd__layout_largest(b) || a->shards < b->shards);
}

bool sherd__is_larger(const sherd_tensor *leaf, const sherd_tensor *grad)
{
    return leaf->layout && grad->layout && grad->layout->spec.mesh == leaf->layout->spec.mesh &&
           holds_more(grad->layout, leaf->layout);
}

/*
 * A gradient as its leaf may keep it: unchanged, unless it takes more memory than the leaf. Then it
 * is settled here: a leaf is sharded so that nothing of its full size stays in memory.
 */
static sherd_tensor *as_kept(const sherd_tensor *leaf, sherd_tensor *grad)
{
    const sherd_layout *to;

    if (!sherd__is_larger(leaf, grad))
        return grad;
    if (sherd__layout_settle(&to, leaf->layout) != SHERD_OK)
        return sherd__fail_diag(leaf->world, true);
    return sherd__move_to(grad, to, false);
}

/* The same of what the leaf has. False: failed, raised. */
static bool settle_kept(sherd_tensor *leaf)
{
    sherd_tensor *kept = as_kept(leaf, leaf->autograd.grad);

    if (kept->storage)
        sherd__set_grad(leaf, kept);
    return kept->storage != NULL;
}

/*
 * Add to a leaf's gradient one that is larger than the leaf, if that is to wait for others, or is
 * what others have waited for: then one call settles all of them. A rank that waits while others do
 * not makes fewer calls, so it notes that it does.
 */
static bool add_larger(sherd_tensor *leaf, sherd_tensor *grad)
{
    bool waits = sherd__tape_of(leaf->world)->waits;
    uint64_t identity;

    if (waits)
        sherd__deed_add(grad->layout->spec.mesh, "gradient that waits", 0, &identity);
    return sherd__add_grad(&leaf->autograd.grad, grad) && (waits || settle_kept(leaf));
}

static bool add_to_leaf(sherd_tensor *leaf, sherd_tensor *grad)
{
    sherd_tensor *kept = leaf->autograd.grad;
    bool together = kept ? kept->layout == grad->layout : sherd__tape_of(leaf->world)->waits;

    if (kept && !is_there(kept))
        return false;
    if (sherd__is_larger(leaf, grad) && together)
        return add_larger(leaf, grad);
    return (!kept || !sherd__is_larger(leaf, kept) || settle_kept(leaf)) &&
           sherd__add_grad(&leaf->autograd.grad, as_kept(leaf, grad));
}

double sherd__averaged(const sherd_layout *layout)
{
    const sherd__layout_spec *spec = &layout->spec;
    double n = 1;

    for (int x = 0; x < spec->mesh->axes; x++)
        if (spec->pending[x] == SHERD_AVG)
            n *= (double)spec->mesh->extent[x];
    return n;
}

/*
 * A copy of a gradient, for the ledger the same tensor, lying as before: other ranks may need none.
 */
static sherd_tensor *copied(sherd_tensor *grad)
{
    sherd_tensor *copy = sherd__copied(grad);

    if (copy->storage)
        copy->strided = grad->strided;
    return copy;
}

bool sherd__keep_apart(const sherd__pass *p, sherd_tensor **kept)
{
    sherd_tensor *before = *kept;
    bool shares = false;

    for (int i = 0; p->given && i < p->givens; i++)
        shares |= p->given[i] && p->given[i]->storage == before->storage;
    if (!shares)
        return true;
    sherd_tensor *copy = copied(before);
    if (!copy->storage)
        return false;
    *kept = sherd_tensor_retain(copy);
    sherd_tensor_release(before);
    return true;
}

/* One that was frozen since it was used gets none, as in PyTorch. */
bool sherd__add_leaf_grad(const sherd__pass *p, sherd_tensor *leaf, sherd_tensor *grad)
{
    if (!leaf->autograd.requires_grad)
        return true;
    const sherd_tensor *before = leaf->autograd.grad;
    bool good = add_to_leaf(leaf, grad) && sherd__keep_apart(p, &leaf->autograd.grad);
    leaf->autograd.grad_seen &= leaf->autograd.grad == before;
    if (good && leaf->autograd.grad)
        sherd__serve(leaf->autograd.grad->storage, SHERD_MEMORY_GRADIENTS);
    return good;
}

sherd_tensor *sherd__raw_grad(const sherd_tensor *leaf)
{
    return leaf->autograd.grad;
}

void sherd__set_grad(sherd_tensor *leaf, sherd_tensor *grad)
{
    sherd_tensor *before = leaf->autograd.grad;

    if (!leaf->storage || before == grad)
        return;
    leaf->autograd.grad = grad ? sherd_tensor_retain(grad) : NULL;
    leaf->autograd.grad_seen = false;
    if (grad && grad->storage)
        sherd__serve(grad->storage, SHERD_MEMORY_GRADIENTS);
    sherd_tensor_release(before);
}

/* ---- handed out ----------------------------------------------------------------------------- */

/* Where the gradient of a tensor is kept, and whether it was handed out. */
typedef struct kept {
    sherd_tensor **grad; /* NULL for a tensor that is neither a leaf nor retained */
    bool *seen;
} kept;

static kept kept_of(sherd_tensor *t)
{
    sherd__watch *watch = t->autograd.node ? sherd__watch_of(t) : NULL;

    if (!t->autograd.node)
        return (kept){&t->autograd.grad, &t->autograd.grad_seen};
    return watch ? (kept){&watch->retained, &watch->retained_seen} : (kept){NULL, NULL};
}

static void set(const kept *k, sherd_tensor *grad)
{
    sherd_tensor *before = *k->grad;

    if (before == grad)
        return;
    *k->grad = grad ? sherd_tensor_retain(grad) : NULL;
    *k->seen = false;
    sherd_tensor_release(before);
}

void sherd_clear_grad(sherd_tensor *t)
{
    kept k = t && t->storage ? kept_of(t) : (kept){NULL, NULL};

    if (k.grad)
        set(&k, NULL);
}

sherd_tensor *sherd__settled_grad(sherd_tensor *t)
{
    if (sherd_tensor_failed(t))
        return t;
    kept k = kept_of(t);
    sherd_tensor *grad = k.grad ? *k.grad : NULL;

    if (!grad)
        return NULL;
    sherd__where before = sherd__where_now(t->world);
    sherd__where_set(t->world, before | SHERD__BACKWARD);
    grad = sherd__settled_to(grad, t->layout, false);
    sherd__where_set(t->world, before);
    if (grad->storage)
        set(&k, grad);
    return grad;
}

/*
 * A kept gradient that may be written in place: a copy if other gradients, or the caller's own,
 * share its memory, or its elements share each other's. `holders`: who holds it by right.
 */
static sherd_tensor *as_own(const sherd_tensor *t, sherd_tensor *grad, int holders)
{
    if (grad->refs == holders && grad->storage->refs == 1 && sherd__is_contiguous(grad))
        return grad;
    sherd_tensor *copy = copied(grad);
    if (copy->storage && !t->autograd.node)
        sherd__serve(copy->storage, SHERD_MEMORY_GRADIENTS);
    return copy;
}

sherd_tensor *sherd_grad(sherd_tensor *t)
{
    if (sherd_tensor_failed(t))
        return t;
    kept k = kept_of(t);
    const sherd_tensor *before = k.grad ? *k.grad : NULL;
    sherd_tensor *grad = sherd__settled_grad(t);

    if (!grad || !grad->storage || *k.seen)
        return grad;
    grad = as_own(t, grad, grad == before ? 1 : 2); /* the scope holds what was just moved */
    if (grad->storage) {
        set(&k, grad);
        *k.seen = true;
    }
    return grad;
}
