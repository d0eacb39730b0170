/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access to the elements of a tensor. Raw pointers are obtained here, because a result may be in
 * flight, and peers may still be reading what is to be written: reading and writing settle the
 * block's tickets first. Ghosts (ghosts.c), mirrors in a GPU's memory (mirror.c) and channels
 * (parallel/channel.c) have their own, for what no call is under way.
 */
#include "tensor/state.h"

#include "base/text.h"
#include "sherd/values.h"
#include "world/doing.h"
#include "world/opened.h"

const void *sherd__data(sherd_tensor *t)
{
    if (!t->storage || (t->storage->later && !sherd__make_now(t)))
        return NULL;
    if (t->storage->device && !sherd__bring_here(t->storage))
        return NULL;
    if (t->storage->block && !sherd__block_readable(t->world, t->storage->block))
        return NULL;
    return sherd__fresh(t);
}

/* Copy the local elements of `t` to `to`, which is contiguous. False: the alarm ended a wait. */
static bool compact(sherd_tensor *t, sherd_tensor *to)
{
    const void *data;

    if (sherd__is_there(to)) {
        sherd__origin_set(to, sherd__origin_of(t));
        return sherd__device_compact(t, to);
    }
    if (!(data = sherd__data(t)))
        return false;
    if (t->count > 0 && !sherd__left_out(t->world, "copy", t->dtype, 0, 2 * sherd__local_bytes(t)))
        sherd__copy_box(sherd_dtype_bytes(t->dtype), t->ndim, t->local, sherd__fresh(to),
                        to->stride, data, t->stride);
    sherd__origin_set(to, sherd__origin_of(t));
    return true;
}

sherd_tensor *sherd__copied(sherd_tensor *t)
{
    if (!t->storage)
        return t;
    sherd_tensor *out = sherd__new_like_there(t, t->dtype, sherd__is_there(t));
    if (!out->storage)
        return out;
    sherd__layout_set(&out->was, t->was);
    out->ledger.made =
        t->ledger.made; /* for the ledger it is the same tensor: another rank may need no copy */
    out->ledger.identity = t->ledger.identity;
    out->ledger.born_at = t->ledger.born_at;
    out->ledger.born = t->ledger.born;
    out->storage->born = t->storage->born;
    if (!compact(t, out)) {
        sherd_tensor_release(out);
        return sherd__failed(t->world);
    }
    return out;
}

sherd_tensor *sherd__contiguous(sherd_tensor *t)
{
    return !t->storage || sherd__is_contiguous(t) ? t : sherd__copied(t);
}

/* The copy stays with the view, so a pointer from an earlier read stays valid. */
static const void *read_strided(sherd_tensor *t)
{
    if (!t->compact)
        t->compact = t->layout
                         ? sherd__loose_on(t->layout, t->dtype)
                         : sherd__loose_plain(t->world, t->dtype, t->ndim, t->shape, t->varies);
    return t->compact && compact(t, t->compact) ? sherd__fresh(t->compact) : NULL;
}

/* Whether a user cannot get the elements: the tensor failed, or is lost, which is raised. */
static bool is_out_of_reach(sherd_tensor *t, const char *function)
{
    if (t && t->lost)
        sherd__raise_lost(t, function);
    return sherd_tensor_failed(t) || (t->layout && sherd__alarmed(t->world));
}

const void *sherd_tensor_read(sherd_tensor *t)
{
    if (is_out_of_reach(t, "sherd_tensor_read"))
        return NULL;
    bool begun = sherd__doing_begin(t->world, "sherd_tensor_read");
    const void *data = sherd__is_contiguous(t) ? sherd__data(t) : read_strided(t);
    sherd__doing_end(t->world, begun);
    return data;
}

bool sherd_is_ready(sherd_tensor *t)
{
    if (!t || sherd__is_failed(t))
        return t != NULL;
    return sherd__block_ready(t->world, t->storage->block);
}

sherd_tensor *sherd_wait(sherd_tensor *t)
{
    if (!t)
        return NULL;
    if (sherd__stop(t->world, "sherd_wait", &t, 1) ||
        !sherd__block_readable(t->world, t->storage->block))
        return sherd__failed(t->world);
    return t;
}

/* The first element for writing; a strided view is refused unless `strided`. */
static void *writable(sherd_tensor *t, bool strided, const char *function)
{
    if (is_out_of_reach(t, function))
        return NULL;
    if (!strided && !sherd__is_contiguous(t)) {
        sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                           "sherd_tensor_write: %s is a strided view: write the tensor that it "
                           "was made of",
                           sherd_tensor_text(t));
        return NULL;
    }
    if (!sherd__make_now(t) || !sherd__hold_here(t->storage))
        return NULL;
    if (t->storage->block && !sherd__block_writable(t->world, t->storage->block))
        return NULL;
    sherd__mark_written(t);
    return sherd__fresh(t);
}

static void *awaiting_deed(sherd_tensor *t, void *data)
{
    if (data)
        sherd__await_deed(t);
    return data;
}

void *sherd__mutable(sherd_tensor *t)
{
    return awaiting_deed(t, writable(t, false, "sherd_tensor_write"));
}

void *sherd__mutable_view(sherd_tensor *t)
{
    return awaiting_deed(t, writable(t, true, "sherd_tensor_write"));
}

/* The last local element, in the storage. */
static int64_t last_of(const sherd_tensor *t)
{
    int64_t at = t->offset;

    for (int d = 0; d < t->ndim; d++)
        at += (t->local[d] - 1) * t->stride[d];
    return at;
}

/* Whether views of one storage may share elements. */
static bool may_meet(const sherd_tensor *a, const sherd_tensor *b)
{
    return a->count > 0 && b->count > 0 && a->offset <= last_of(b) && b->offset <= last_of(a);
}

void sherd__set_varies(sherd_tensor *t, unsigned axes)
{
    t->varies = axes;
    if (axes == 0 || t->storage->refs == 1)
        return;
    for (sherd_tensor *v = sherd__tensors_of(t->world)->all; v; v = v->next)
        if (v->storage == t->storage && !v->layout && may_meet(t, v))
            v->varies |= axes;
}

/* If other ranks hold the same elements, they must open the tensor for writing too (opened.c). */
static void open_replica(sherd_tensor *t)
{
    char *text = sherd__opens(t->world, t->layout->spec.mesh, sherd__equal_axes(t->layout),
                              t->ledger.born, t->storage->born);

    if (text)
        sherd__fit_text(text, SHERD__OPENED_TEXT, sherd_tensor_text(t));
}

/* What a program of its own accord has got for writing. */
static void *opened(sherd_tensor *t, void *data)
{
    if (data && t->layout) {
        sherd__mark_deed(t);
        if (t->count > 0)
            open_replica(t);
    } else if (data)
        sherd__set_varies(t, (unsigned)SHERD__VARIES);
    return data;
}

static void *open_for(sherd_tensor *t, bool strided, const char *function)
{
    bool begun = sherd__doing_begin(t ? t->world : NULL, function);
    void *data = opened(t, writable(t, strided, function));

    sherd__doing_end(t ? t->world : NULL, begun);
    return data;
}

void *sherd_tensor_write(sherd_tensor *t)
{
    return open_for(t, false, "sherd_tensor_write");
}

/* ---- arrays of the program's own ------------------------------------------------------------- */

/*
 * Why an array cannot have this rank's box; NULL: it can. Its strides, row-major if none are given,
 * go to stride[].
 */
static const char *fault_of(const sherd_tensor *t, const void *array, const int64_t *given,
                            int64_t stride[SHERD_MAX_DIMS])
{
    if (t->count > 0 && !array)
        return "the array is NULL";
    sherd__row_major(t->ndim, t->local, stride);
    for (int d = 0; given && d < t->ndim; d++) {
        if (given[d] < 0)
            return "a stride is at least 0";
        stride[d] = given[d];
    }
    return NULL;
}

static bool refuse(sherd_tensor *t, const char *function, const char *why)
{
    if (why)
        sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL, "%s: %s: %s", function,
                           sherd_tensor_text(t), why);
    return why != NULL;
}

static void copy(sherd_tensor *t, void *to, const int64_t *to_stride, const void *from,
                 const int64_t *from_stride)
{
    if (t->count > 0 && !sherd__left_out(t->world, "copy", t->dtype, 0, 2 * sherd__local_bytes(t)))
        sherd__copy_box(sherd_dtype_bytes(t->dtype), t->ndim, t->local, to, to_stride, from,
                        from_stride);
}

bool sherd_tensor_read_to(void *out, const int64_t *strides, sherd_tensor *t)
{
    int64_t stride[SHERD_MAX_DIMS];
    const void *data = NULL;

    if (is_out_of_reach(t, "sherd_tensor_read_to") ||
        refuse(t, "sherd_tensor_read_to", fault_of(t, out, strides, stride)))
        return false;
    bool begun = sherd__doing_begin(t->world, "sherd_tensor_read_to");
    data = sherd__data(t);
    sherd__doing_end(t->world, begun);
    if (data)
        copy(t, out, stride, data, t->stride);
    return data != NULL;
}

bool sherd_tensor_write_from(sherd_tensor *t, const void *array, const int64_t *strides)
{
    int64_t stride[SHERD_MAX_DIMS];
    const char *why;
    void *data;

    if (is_out_of_reach(t, "sherd_tensor_write_from"))
        return false;
    why = fault_of(t, array, strides, stride);
    for (int d = 0; d < t->ndim; d++)
        if (t->count > 0 && t->stride[d] == 0 && t->local[d] > 1)
            why = "some of its elements are one in memory (sherd_expand)";
    if (refuse(t, "sherd_tensor_write_from", why))
        return false;
    data = open_for(t, true, "sherd_tensor_write_from");
    if (data)
        copy(t, data, t->stride, array, stride);
    return data != NULL;
}
