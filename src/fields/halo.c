/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Halos of tensors: a window around this rank's piece, recorded for backward. The gradient is the
 * adjoint: what all ranks have of an element is added up at its owner.
 */
#include "ops/shared.h"

#include "kernels/cast.h"
#include "plan/window.h"
#include "search/plans.h"
#include "vector/choose.h"

static const char name[] = "sherd_halo";

/* The layout for a window on a tensor: a plain tensor is on this rank alone. */
static sherd_status layout_of(const sherd_layout **out, const sherd_tensor *t)
{
    *out = t->layout;
    return t->layout ? SHERD_OK : sherd__layout_alone(out, t->world, t->ndim, t->shape);
}

/* Whether a tensor of this dtype can have such a halo. */
static bool has_value(const sherd_tensor *t, const sherd_halo_options *o)
{
    return !sherd__has_constant_border(o, t->ndim) || sherd__holds(t->dtype, o->value);
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/* The gradient's own gradient: a halo, with nothing beyond a border that is a constant. */
static void fold_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_halo_options options = *(const sherd_halo_options *)sherd_node_attributes(node);

    options.value = 0;
    grad_in[0] = sherd_halo(grad_out[0], &options);
}

static const sherd_op fold_table = {.name = "sherd_halo backward", .backward = fold_back};

static void halo_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_halo_options *options = sherd_node_attributes(node);
    sherd_world *world = sherd__node_world(node);
    const sherd_layout *layout = sherd_node_layout(node, 0);
    sherd__windowed w = {.piece = grad_out[0]};
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);
    bool plain = !layout;
    sherd_status status = plain ? sherd__layout_alone(&layout, world, ndim, shape) : SHERD_OK;

    if (!status)
        status = sherd__window_of_halo(&w.window, layout, options, name, layout->text);
    if (status)
        grad_in[0] = sherd__fail_diag(world, true);
    else if (!sherd__fold_windows(&w, 1, false, name))
        grad_in[0] = sherd__failed(world);
    else
        grad_in[0] = plain ? sherd__local_view(w.whole) : w.whole;
    sherd__window_release(w.window);
    if (!sherd_tensor_failed(grad_in[0]))
        sherd__record_node(world, &fold_table, grad_out, 1, grad_in, 1, options, sizeof *options);
}

static const sherd_op halo_table = {.name = "sherd_halo", .backward = halo_back};

/* ---- many ------------------------------------------------------------------------------------ */

/*
 * One tensor's window, which may be the previous tensor's; pending reductions are settled first.
 * False: failed, raised.
 */
static bool prepare(sherd__windowed *w, const sherd__windowed *before, sherd_tensor *t,
                    const sherd_halo_options *options)
{
    const sherd_layout *layout;

    if (!has_value(t, options)) {
        sherd__fail_tensor(t->world, t->layout != NULL, SHERD_EINVAL,
                           "%s: value %.15g is no %s: %s", name, options->value,
                           sherd_dtype_name(t->dtype), sherd_tensor_text(t));
        return false;
    }
    w->whole = sherd__without_pending(t);
    if (sherd_tensor_failed(w->whole))
        return false;
    sherd_status status = layout_of(&layout, w->whole);
    if (!status && before && before->window->layout == layout)
        w->window = sherd__window_retain(before->window);
    else if (!status)
        w->window = sherd__halo_kept(layout, options);
    if (!status && !w->window)
        status = sherd__window_of_halo(&w->window, layout, options, name, sherd_tensor_text(t));
    if (status)
        sherd__fail_diag(t->world, t->layout != NULL);
    return !status;
}

static void record(const sherd__windowed *w, const sherd_halo_options *options)
{
    sherd_tensor *in = w->whole, *out = w->piece;

    if (!sherd__is_recorded(in->world, &in, 1))
        return;
    sherd__record_node(in->world, &halo_table, &in, 1, &out, 1, options, sizeof *options);
}

static bool halo_all(sherd_world *world, sherd__windowed *list, sherd_tensor **out,
                     sherd_tensor *const *t, int count, const sherd_halo_options *options)
{
    bool good = true;

    sherd_scope_begin(world);
    for (int i = 0; i < count && good; i++)
        good = prepare(&list[i], i ? &list[i - 1] : NULL, t[i], options);
    good = good && sherd__gather_windows(list, count, options->begin, name);
    for (int i = 0; i < count; i++) {
        if (good) {
            record(&list[i], options);
            out[i] = list[i].piece;
            sherd_scope_pass(out[i]);
        }
        sherd__window_release(list[i].window);
    }
    sherd_scope_end(world);
    return good;
}

/* Whether all tensors are non-NULL, of one world, and on one mesh or plain. */
static bool are_given(sherd_world *world, sherd_tensor **out, sherd_tensor *const *t, int count,
                      sherd_tensor **failed)
{
    const sherd__argument need[] = {{"out", out}, {"t", t}, {NULL, NULL}};

    if (!sherd__given(world, name, need, failed))
        return false;
    for (int i = 0; i < count; i++) {
        const sherd__argument one[] = {{"a tensor in t", t[i]}, {NULL, NULL}};
        if (!sherd__given(world, name, one, failed))
            return false;
        if (t[i]->world == world && !t[i]->layout == !t[0]->layout &&
            (!t[i]->layout || t[i]->layout->spec.mesh == t[0]->layout->spec.mesh))
            continue;
        *failed = sherd__fail_tensor(world, true, SHERD_EINVAL,
                                     "%s: t[%d] is on another mesh than t[0]: %s", name, i,
                                     sherd_tensor_text(t[i]));
        return false;
    }
    return true;
}

/* The same with room for the windows, allocated if there are many. */
static bool halo_some(sherd_world *world, sherd_tensor **out, sherd_tensor *const *t, int count,
                      const sherd_halo_options *options)
{
    enum { FEW = 8 };
    sherd__windowed few[FEW] = {{NULL, NULL, NULL}};

    if (count <= FEW)
        return halo_all(world, few, out, t, count, options);
    sherd__heap *heap = sherd__world_heap(world);
    sherd__windowed *list = sherd__alloc(heap, (size_t)count, sizeof *list);
    bool good = list && halo_all(world, list, out, t, count, options);
    if (!list)
        sherd__fail_tensor(world, true, SHERD_ENOMEM, "%s: out of memory", name);
    sherd__free(heap, list);
    return good;
}

void sherd_halo_many(sherd_tensor **out, sherd_tensor *const *t, int count,
                     const sherd_halo_options *options)
{
    static const sherd_halo_options none;
    const sherd_halo_options *o = options ? options : &none;
    sherd_world *world = sherd__world_among(t, count);
    sherd_tensor *failed = NULL;
    bool good = false;

    if (count <= 0)
        return;
    if (are_given(world, out, t, count, &failed)) {
        failed = sherd__failed(world);
        good = !sherd__stop(world, "sherd_halo", t, count) && halo_some(world, out, t, count, o);
    }
    for (int i = 0; out && !good && i < count; i++)
        out[i] = failed;
}

sherd_tensor *sherd_halo(sherd_tensor *t, const sherd_halo_options *options)
{
    sherd_tensor *out = NULL;

    sherd_halo_many(&out, &t, 1, options);
    return out;
}

/* ---- what it would be ------------------------------------------------------------------------ */

static sherd_status window_for(sherd__window **out, const sherd_layout *layout,
                               const sherd_halo_options *options, const char *function)
{
    static const sherd_halo_options none;
    const sherd__argument need[] = {{"layout", layout}, {NULL, NULL}};

    *out = NULL;
    if (sherd__require(layout ? layout->space->diag : NULL, function, need))
        return SHERD_EINVAL;
    return sherd__window_of_halo(out, layout, options ? options : &none, function, layout->text);
}

sherd_status sherd_halo_box(sherd_box *out, const sherd_layout *layout, int rank,
                            const sherd_halo_options *options)
{
    int64_t coordinate[SHERD_MAX_AXES];
    sherd__window *window;

    if (!out)
        return SHERD_EINVAL;
    *out = (sherd_box){.ndim = sherd_layout_ndim(layout)};
    sherd_status status = window_for(&window, layout, options, "sherd_halo_box");
    if (status)
        return status;
    if (sherd_mesh_coordinate(layout->spec.mesh, rank, coordinate))
        sherd__window_box(window, coordinate, out);
    sherd__window_release(window);
    return SHERD_OK;
}

sherd_status sherd_halo_plan(const sherd_plan **out, const sherd_layout *layout, sherd_dtype dtype,
                             const sherd_halo_options *options)
{
    static const char function[] = "sherd_halo_plan";
    sherd__window *window;

    if (!out)
        return SHERD_EINVAL;
    *out = NULL;
    sherd_status status = window_for(&window, layout, options, function);
    if (status)
        return status;
    status = sherd_dtype_bytes(dtype)
                 ? sherd__window_plan(out, window, SHERD__GATHER, sherd_dtype_bytes(dtype))
                 : sherd__fail(layout->space->diag, SHERD_EINVAL,
                               "%s: the dtype is not one of sherd_dtype", function);
    sherd__window_release(window);
    return status;
}

/* ---- the reverse ---------------------------------------------------------------------------- */

static const char add_name[] = "sherd_halo_add";

static const sherd_op add_table = {.name = add_name, .backward = fold_back};

static bool refuse(sherd_tensor *t, const sherd_layout *layout, const char *why)
{
    sherd__fail_tensor(t->world, true, SHERD_EINVAL, "%s: %s %s: to %s", add_name,
                       sherd_tensor_text(t), why, layout->text);
    return false;
}

/* Whether it is what sherd_halo gives this rank. */
static bool is_piece(sherd_tensor *t, const sherd__window *window)
{
    const sherd_layout *layout = window->layout;
    bool fits = t->ndim == window->box.ndim || !window->inside;

    if (t->dtype == SHERD_BOOL ||
        !sherd__kernels_to_reduce(sherd__world_kernels(t->world), t->dtype, SHERD_SUM))
        return refuse(t, layout, "has no sum");
    for (int d = 0; d < window->box.ndim && window->inside && fits; d++)
        fits = t->shape[d] == window->box.size[d];
    return (fits && (window->inside || t->count == 0)) ||
           refuse(t, layout,
                  "has not the size of this rank's piece with its halo (sherd_halo_box)");
}

static sherd_tensor *add_up(sherd_tensor *t, const sherd_layout *layout,
                            const sherd_halo_options *options)
{
    sherd__windowed w = {.piece = t};
    sherd_tensor *out = sherd__failed(t->world);

    if (sherd__window_of_halo(&w.window, layout, options, add_name, layout->text))
        return sherd__fail_diag(t->world, true);
    if (is_piece(t, w.window) && sherd__fold_windows(&w, 1, options->begin, add_name)) {
        out = w.whole;
        if (sherd__is_recorded(t->world, &t, 1))
            sherd__record_node(t->world, &add_table, &t, 1, &out, 1, options, sizeof *options);
    }
    sherd__window_release(w.window);
    return out;
}

sherd_tensor *sherd_halo_add(sherd_tensor *t, const sherd_layout *layout,
                             const sherd_halo_options *options)
{
    static const sherd_halo_options none;
    const sherd__argument need[] = {{"t", t}, {"layout", layout}, {NULL, NULL}};
    sherd_world *world = t ? t->world : layout ? sherd__space_world(layout->space) : NULL;
    sherd_tensor *failed = NULL;

    if (!sherd__given(world, add_name, need, &failed))
        return failed;
    if (sherd__stop(world, add_name, &t, 1))
        return sherd__failed(world);
    if (sherd__space_world(layout->space) != world)
        return sherd__fail_tensor(world, true, SHERD_EINVAL, "%s: the layout is of another world",
                                  add_name);
    if (t->layout) {
        refuse(t, layout, "is distributed: give each rank's piece with its halo");
        return sherd__failed(world);
    }
    return add_up(t, layout, options ? options : &none);
}
