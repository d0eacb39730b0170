/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of backward: outputs, their gradients, and the options. */
#include "autograd/node.h"

#include <string.h>

#include "world/doing.h"
#include "layout/shape.h"

/* ---- outputs -------------------------------------------------------------------------------- */

static bool is_output(const sherd__pass *p, sherd_tensor *t, int i)
{
    sherd_world *world = p->world;
    const char *function = p->function;

    if (!t || t->world != world) {
        sherd__raise(world, SHERD_EINVAL, "%s: output %d is %s", function, i,
                     t ? "of another world" : "NULL");
        return false;
    }
    if (sherd__is_failed(t)) {
        sherd__raise_failed(world, function);
        return false;
    }
    if (t->autograd.requires_grad)
        return true;
    sherd__raise(
        world, SHERD_EINVAL,
        "%s: output %d, %s, depends on no leaf that wants a gradient (sherd_require_grad), "
        "or was not recorded",
        function, i, sherd_tensor_text(t));
    return false;
}

/*
 * The gradient of a one-element output with respect to itself: one, also for each addend of a
 * pending sum.
 */
static sherd_tensor *one(sherd_tensor *output, const char *function)
{
    const sherd_layout *layout;

    if (sherd_tensor_count(output) != 1)
        return sherd__fail_tensor(output->world, true, SHERD_EINVAL,
                                  "%s: %s has not one element: its gradient must be given",
                                  function, sherd_tensor_text(output));
    if (!output->layout)
        return sherd_constant(output->world, output->dtype, output->shape, output->ndim, 1);
    if (sherd__layout_settle(&layout, output->layout) != SHERD_OK)
        return sherd__fail_diag(output->world, true);
    return sherd_constant_on(layout, output->dtype, 1);
}

/* Backward accepts only sums as pending; and a gradient must be on the mesh of its tensor. */
static sherd_tensor *on_its_mesh(sherd_tensor *grad, const sherd_layout *output)
{
    const sherd_layout *to;

    if (grad->layout->spec.mesh != output->spec.mesh)
        return sherd__settled_to(grad, output, false);
    sherd__layout_spec spec = grad->layout->spec;
    for (int a = 0; a < spec.mesh->axes; a++)
        if (spec.pending[a] != SHERD_SUM)
            spec.pending[a] = -1;
    if (sherd__layout_intern(&to, &spec) != SHERD_OK)
        return sherd__fail_diag(grad->world, true);
    return sherd__gradient_to(grad, to, false);
}

/* The given gradient of one output, in the form that the tape uses. */
static sherd_tensor *given(sherd_tensor *output, sherd_tensor *grad, const char *function)
{
    const char *fault = NULL;

    if (!grad)
        return one(output, function);
    if (grad->world != output->world)
        fault = "the gradient is of another world";
    else if (sherd__stop(grad->world, function, &grad, 1))
        return sherd__failed(grad->world);
    else if (grad->dtype != output->dtype ||
             !sherd__same_shape(grad->ndim, grad->shape, output->ndim, output->shape))
        fault = "shape or dtype differ";
    else if (grad->layout && !output->layout)
        fault = "the output is plain";
    else if (!grad->layout && output->layout && grad->autograd.requires_grad &&
             sherd__makes_graph(grad->world))
        fault = "it requires a gradient itself: distribute it";
    if (fault)
        return sherd__fail_tensor(output->world, true, SHERD_EINVAL,
                                  "%s: the gradient %s of %s: %s", function,
                                  sherd_tensor_text(grad), sherd_tensor_text(output), fault);
    if (!output->layout)
        return grad;
    grad = sherd__promote(grad, output->layout->spec.mesh, function);
    return grad->storage ? on_its_mesh(grad, output->layout) : grad;
}

/* ---- one backward --------------------------------------------------------------------------- */

static bool are_outputs(const sherd__pass *p, sherd_tensor *const *outputs, int count)
{
    if (sherd__alarmed(p->world))
        return false;
    for (int i = 0; i < count; i++)
        if (!is_output(p, outputs[i], i))
            return false;
    return true;
}

static bool seed(sherd__pass *p, sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                 int count)
{
    for (int i = 0; i < count; i++) {
        sherd_tensor *grad = given(outputs[i], gradients ? gradients[i] : NULL, p->function);
        if (!grad->storage) {
            sherd__raise_failed(p->world, p->function);
            return false;
        }
        if (!sherd__pass_seed(p, outputs[i], grad))
            return false;
    }
    return true;
}

/* How the world was before a backward. */
typedef struct setting {
    bool recording, graph;
    sherd__where where;
    sherd_dtype low;
    const char *within;
} setting;

/*
 * Nothing is recorded (without create_graph) or cast by autocast, hooks included, and the comm log
 * counts all of it as backward.
 */
static setting enter(const sherd__pass *p)
{
    sherd__tape *tape = sherd__tape_of(p->world);
    setting before = {.recording = sherd_set_recording(p->world, p->graph),
                      .graph = tape->graph,
                      .where = sherd__where_set(p->world, sherd__where_at(0, true)),
                      .low = sherd__set_low(p->world, SHERD_DTYPE_NONE),
                      .within = sherd__doing_within(p->world, p->function)};

    tape->graph = p->graph;
    return before;
}

static void leave(const sherd__pass *p, setting before)
{
    sherd__tape_of(p->world)->graph = before.graph;
    sherd__doing_within(p->world, before.within);
    sherd__set_low(p->world, before.low);
    sherd__where_set(p->world, before.where);
    sherd_set_recording(p->world, before.recording);
}

/* Begin a backward whose outputs are checked. */
static bool begin(sherd__pass *p, sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                  int count)
{
    sherd_scope_begin(p->world);
    bool good = sherd__pass_collect(p, outputs, count) && seed(p, outputs, gradients, count);
    sherd_scope_end(p->world);
    return sherd__pass_run(p, good);
}

static void run(sherd__pass *p, sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                int count)
{
    setting before = enter(p);

    p->given = gradients;
    p->givens = count;
    (void)begin(p, outputs, gradients, count);
    sherd__pass_clear(p);
    leave(p, before);
}

void sherd_backward(sherd_tensor *loss)
{
    sherd__pass p = {.world = sherd_tensor_world(loss), .function = "sherd_backward"};

    if (loss && are_outputs(&p, &loss, 1))
        run(&p, &loss, NULL, 1);
}

void sherd_backward_with(sherd_tensor *const *outputs, sherd_tensor *const *gradients, int count,
                         const sherd_backward_options *options)
{
    static const sherd_backward_options none;
    const sherd_backward_options *o = options ? options : &none;
    const sherd__argument need[] = {{"outputs", outputs}, {NULL, NULL}};
    sherd__pass p = {
        .function = "sherd_backward_with", .retains = o->retain, .replaces = o->replace};
    sherd_tensor *failed;

    p.world = sherd__world_among(outputs, count);
    if (!p.world)
        p.world = sherd__world_among(gradients, count);
    if (p.world && sherd__given(p.world, p.function, need, &failed) &&
        are_outputs(&p, outputs, count))
        run(&p, outputs, gradients, count);
}

/* ---- in two parts ---------------------------------------------------------------------------- */

sherd__pass *sherd__backward_first(sherd_tensor *const *outputs, sherd_tensor *const *gradients,
                                   int count, sherd_tensor *const *leaves, int n)
{
    sherd_world *world = sherd__world_among(outputs, count);
    sherd__pass *p = sherd__alloc(sherd__world_heap(world), 1, sizeof *p);

    if (!p) {
        sherd__raise(world, SHERD_ENOMEM, "sherd_backward: out of memory");
        return NULL;
    }
    *p = (sherd__pass){.world = world,
                       .function = gradients ? "sherd_backward_with" : "sherd_backward",
                       .part = SHERD__FIRST,
                       .soon = leaves,
                       .soons = n};
    setting before = enter(p);
    bool good = are_outputs(p, outputs, count) && begin(p, outputs, gradients, count);
    leave(p, before);
    p->soon = NULL;
    p->soons = 0;
    if (good)
        return p;
    sherd__backward_second(p, false);
    return NULL;
}

void sherd__backward_second(sherd__pass *p, bool good)
{
    if (!p)
        return;
    setting before = enter(p);
    good = good && sherd__part_second(p);
    p->part = SHERD__SECOND;
    (void)sherd__pass_run(p, good);
    sherd__pass_clear(p);
    leave(p, before);
    sherd__free(sherd__world_heap(p->world), p);
}

/* ---- gradients with respect to tensors ------------------------------------------------------ */

static bool is_input(const sherd__pass *p, sherd_tensor *t, int i)
{
    const char *fault = !t ? "is NULL" : t->world != p->world ? "is of another world" : NULL;

    if (!fault && sherd__is_failed(t)) {
        sherd__raise_failed(p->world, p->function);
        return false;
    }
    if (!fault && !t->autograd.requires_grad)
        fault = "wants no gradient: sherd_require_grad, before it is used";
    if (fault)
        sherd__raise(p->world, SHERD_EINVAL, "%s: input %d%s%s%s %s", p->function, i, t ? ", " : "",
                     t ? sherd_tensor_text(t) : "", t ? "," : "", fault);
    return !fault;
}

/* The oldest node that made one of the inputs; 0: one of them is a leaf. */
static uint64_t first_of(sherd_tensor *const *inputs, int n)
{
    uint64_t first = UINT64_MAX;

    for (int i = 0; i < n; i++) {
        const sherd_node *node = (const sherd_node *)inputs[i]->autograd.node;
        first = node ? node->order < first ? node->order : first : 0;
    }
    return first;
}

/* The inputs are held meanwhile: a hook may release one, and its gradient is still to be handed
 * out. */
static void hold(const sherd__pass *p, sherd_tensor *const *inputs, int n, bool on)
{
    for (int i = 0; i < n; i++) {
        if (!inputs[i] || inputs[i]->world != p->world)
            continue;
        if (on)
            sherd_tensor_retain(inputs[i]);
        else
            sherd_tensor_release(inputs[i]);
    }
}

/* Capture the gradient of each input. An input that is listed twice is captured once. */
static bool capture(const sherd__pass *p, sherd_tensor **out, sherd_tensor *const *inputs, int n)
{
    for (int i = 0; i < n; i++) {
        sherd__watch *watch =
            is_input(p, inputs[i], i) ? sherd__watch_make(inputs[i], p->function) : NULL;
        if (!watch)
            return false;
        if (watch->captured && (watch->captured < out || watch->captured >= out + n)) {
            sherd__raise(
                p->world, SHERD_EINVAL,
                "%s: the gradient of input %d, %s, is asked for by a call that is under way",
                p->function, i, sherd_tensor_text(inputs[i]));
            return false;
        }
        if (!watch->captured)
            watch->captured = &out[i];
    }
    return true;
}

/* A gradient that was recorded, as a tensor of the scope. */
static sherd_tensor *in_graph(sherd_tensor *captured)
{
    bool recording = sherd_set_recording(captured->world, true);
    sherd_tensor *t = sherd__alias(captured);

    sherd_set_recording(captured->world, recording);
    return t;
}

/* The gradient of input i, in the scope; the failed tensor if it is missing and must not be. */
static sherd_tensor *found(const sherd__pass *p, sherd_tensor *input, int i, sherd_tensor *captured,
                           bool unused)
{
    if (sherd__alarmed(p->world))
        return sherd__failed(p->world);
    if (captured && p->graph)
        return in_graph(captured);
    if (captured)
        return sherd__new_view(captured);
    if (unused)
        return NULL;
    return sherd__fail_tensor(p->world, true, SHERD_EINVAL,
                              "%s: no output depends on input %d, %s (options.unused allows it)",
                              p->function, i, sherd_tensor_text(input));
}

/* The watch of an input whose gradient goes to out[0..n). */
static sherd__watch *asked(const sherd__pass *p, sherd_tensor *input, sherd_tensor **out, int n)
{
    sherd__watch *watch =
        input && input->world == p->world && input->storage ? sherd__watch_of(input) : NULL;

    return watch && watch->captured >= out && watch->captured < out + n ? watch : NULL;
}

/* Stop capturing, and move the captured gradients into the scope. */
static void hand_out(const sherd__pass *p, sherd_tensor **out, sherd_tensor *const *inputs, int n,
                     bool unused)
{
    for (int i = 0; i < n; i++) {
        sherd__watch *watch = asked(p, inputs[i], out, n);
        if (watch && watch->captured != &out[i] && *watch->captured)
            out[i] = sherd_tensor_retain(*watch->captured);
    }
    for (int i = 0; i < n; i++) {
        sherd__watch *watch = asked(p, inputs[i], out, n);
        sherd_tensor *captured = out[i];
        if (watch)
            watch->captured = NULL;
        out[i] = found(p, inputs[i], i, captured, unused);
        sherd_tensor_release(captured);
    }
    for (int i = 0; i < n && sherd__alarmed(p->world); i++)
        out[i] = sherd__failed(p->world);
}

void sherd_gradients(sherd_tensor **out, sherd_tensor *const *inputs, int n,
                     sherd_tensor *const *outputs, int count,
                     const sherd_gradients_options *options)
{
    static const sherd_gradients_options none;
    const sherd_gradients_options *o = options ? options : &none;
    const sherd__argument need[] = {
        {"out", out}, {"inputs", inputs}, {"outputs", outputs}, {NULL, NULL}};
    sherd__pass p = {.function = "sherd_gradients",
                     .retains = o->retain || o->create_graph,
                     .only = true,
                     .graph = o->create_graph};
    sherd_tensor *failed = NULL;

    p.world = sherd__world_among(outputs, count);
    if (!p.world)
        p.world = sherd__world_among(inputs, n);
    bool apart = !out || (const void *)out != (const void *)inputs;
    for (int i = 0; out && i < n; i++)
        out[i] = NULL;
    if (!p.world || n <= 0 || count <= 0)
        return;
    if (!apart)
        failed = sherd__fail_tensor(p.world, true, SHERD_EINVAL,
                                    "%s: out and inputs are one array: pass two", p.function);
    if (!apart || !sherd__given(p.world, p.function, need, &failed)) {
        for (int i = 0; out && i < n; i++)
            out[i] = failed;
        return;
    }
    hold(&p, inputs, n, true);
    if (are_outputs(&p, outputs, count) && capture(&p, out, inputs, n)) {
        p.first = first_of(inputs, n);
        run(&p, outputs, o->gradients, count);
    }
    hand_out(&p, out, inputs, n, o->unused);
    hold(&p, inputs, n, false);
}
