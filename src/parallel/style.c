/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hooks of styles. Before the forward tensors pass the gates of the inputs, after it those of
 * the outputs. Without slots there is one gate per side: for the first positional argument, and for
 * every output. With slots each tensor has its own.
 */
#include "parallel/style.h"

#include <stdio.h>
#include <string.h>

#include "parallel/gate.h"

/* The payload of one hook. */
typedef struct passage {
    sherd__gate_side side;
    bool each; /* one gate a tensor: their number is checked */
    bool only_first;
    int gates; /* positional ones first, then named ones */
    sherd__gate gate[];
} passage;

static void free_passage(void *payload)
{
    passage *p = payload;

    if (!p)
        return;
    for (int i = 0; i < p->gates; i++)
        sherd__gate_clear(p->side.world, &p->gate[i]);
    sherd__free(sherd__world_heap(p->side.world), p);
}

static void complain(const passage *p, const sherd_module *m, const char *what)
{
    sherd__raise(p->side.world, SHERD_EINVAL, "module \"%s\" (%s): %s", sherd__module_name(m),
                 p->side.style, what);
}

/* ---- before the forward --------------------------------------------------------------------- */

static int positional(const sherd_args *args)
{
    int n = 0;

    while (n < args->count && n < SHERD_MAX_ARGS && !args->name[n])
        n++;
    return n;
}

static int positional_gates(const passage *p)
{
    int n = 0;

    while (n < p->gates && !p->gate[n].name)
        n++;
    return n;
}

/*
 * NULL passes through an open gate, and through a named one: a keyword tensor that is absent this
 * time.
 */
static void let_in(passage *p, sherd__gate *gate, const sherd_module *m, sherd_tensor **x)
{
    char what[64];

    if (!*x && !gate->name && !sherd__gate_is_open(gate)) {
        snprintf(what, sizeof what, "%sno tensor arrived", gate->which);
        complain(p, m, what);
    } else if (*x) {
        *x = sherd__gate_pass(&p->side, gate, m, *x);
    }
}

static void let_in_named(passage *p, sherd__gate *gate, const sherd_module *m, sherd_args *in)
{
    char what[128];

    for (int i = 0; i < in->count && i < SHERD_MAX_ARGS; i++)
        if (in->name[i] && strcmp(in->name[i], gate->name) == 0) {
            let_in(p, gate, m, &in->value[i]);
            return;
        }
    snprintf(what, sizeof what, "no input \"%.64s\" arrived: pass NULL by this name for none",
             gate->name);
    complain(p, m, what);
}

static void arrive(sherd_module *self, sherd_args *in, void *payload)
{
    passage *p = payload;
    int given = positional(in), wanted = p->each ? positional_gates(p) : 1;
    char what[96];

    if (!p->each && (given == 0 || !in->value[0])) {
        complain(p, self, "no positional argument arrived");
        return;
    }
    if (p->each && given != wanted) {
        snprintf(what, sizeof what, "%d positional inputs arrived, the style has slots for %d",
                 given, wanted);
        complain(p, self, what);
        return;
    }
    for (int i = 0; i < wanted; i++)
        let_in(p, &p->gate[i], self, &in->value[i]);
    for (int i = wanted; i < p->gates; i++)
        let_in_named(p, &p->gate[i], self, in);
}

/* ---- after the forward ---------------------------------------------------------------------- */

static void leave(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    passage *p = payload;
    char what[96];

    (void)in;
    for (int i = 0; i < out->count && i < SHERD_MAX_ARGS; i++)
        if (sherd_tensor_failed(out->value[i]))
            return; /* a NULL is the module's mistake, and is told there */
    if (p->each && out->count != p->gates) {
        snprintf(what, sizeof what, "%d outputs came out, the style has slots for %d", out->count,
                 p->gates);
        complain(p, self, what);
        return;
    }
    for (int i = 0; i < out->count && i < SHERD_MAX_ARGS; i++)
        if (i == 0 || !p->only_first)
            out->value[i] =
                sherd__gate_pass(&p->side, &p->gate[p->each ? i : 0], self, out->value[i]);
}

/* ---- making them ---------------------------------------------------------------------------- */

static bool is_placement(sherd_placement p)
{
    return (unsigned)p.kind <= SHERD_PARTIAL &&
           (p.kind != SHERD_PARTIAL || sherd__reduce_op_name(p.op));
}

static const char *slots_fault(const sherd_slot *slots, int count, bool in)
{
    if (count < 0 || count > SHERD_MAX_ARGS)
        return in ? "input_count is out of range" : "output_count is out of range";
    if (count > 0 && !slots)
        return in ? "inputs is NULL" : "outputs is NULL";
    for (int i = 0; i < count; i++) {
        if (!is_placement(slots[i].lies) || !is_placement(slots[i].desired))
            return "a slot has a placement that is none";
        if (slots[i].name && (!in || !slots[i].name[0]))
            return in ? "a slot's name is empty" : "an output takes no name";
        if (i > 0 && slots[i - 1].name && !slots[i].name)
            return "a slot without a name comes after one with a name";
        for (int j = 0; j < i; j++)
            if (slots[i].name && slots[j].name && strcmp(slots[i].name, slots[j].name) == 0)
                return "two slots have one name";
    }
    return NULL;
}

const char *sherd__style_fault(const sherd_style *style)
{
    const char *fault = slots_fault(style->inputs, style->input_count, true);

    if (!fault)
        fault = slots_fault(style->outputs, style->output_count, false);
    if (!fault && (!is_placement(style->input) || !is_placement(style->desired) ||
                   !is_placement(style->output)))
        fault = "it has a placement that is none";
    return fault;
}

/* One side of a style: `slots`, or one gate that the caller fills in. NULL for lack of memory. */
static passage *make_passage(const sherd__recipe *recipe, sherd_module *module,
                             const sherd_mesh *mesh, int axis, const sherd_slot *slots, int count)
{
    sherd__heap *heap = sherd__world_heap(module->world);
    int gates = count > 0 ? count : 1;
    passage *p = sherd__alloc(heap, 1, sizeof *p + (size_t)gates * sizeof *p->gate);

    if (!p)
        return NULL;
    p->side = (sherd__gate_side){.world = module->world,
                                 .style = recipe->name,
                                 .mesh = mesh,
                                 .root = sherd_mesh_root(mesh),
                                 .axis = axis,
                                 .root_axis = mesh->root_axis[axis]};
    p->each = count > 0;
    p->gates = gates;
    p->gate[0].follow = -1;
    for (int i = 0; i < count; i++) {
        sherd__gate *g = &p->gate[i];
        g->taken = g->declared = slots[i].lies;
        g->desired = slots[i].desired;
        g->follow = -1;
        if (slots[i].name && !(g->name = sherd__copy_text(heap, slots[i].name))) {
            free_passage(p);
            return NULL;
        }
    }
    return p;
}

static void name_gates(passage *p)
{
    for (int i = 0; p->each && i < p->gates; i++)
        if (!p->gate[i].name)
            snprintf(p->gate[i].which, sizeof p->gate[i].which,
                     "%s %d: ", p->side.in ? "input" : "output", i);
}

static sherd_status hook_inputs(const sherd_style *style, const sherd__recipe *recipe,
                                sherd_module *module, const sherd_mesh *mesh, int axis)
{
    passage *p = make_passage(recipe, module, mesh, axis, style->inputs, style->input_count);
    sherd_hook_options options = {.payload = p, .destroy = free_passage};

    if (!p)
        return sherd__no_memory(sherd__world_diag(module->world), "sherd_parallelize");
    p->side.in = true;
    if (!p->each) {
        sherd__gate *g = &p->gate[0];
        g->taken = style->input.kind ? style->input : recipe->taken;
        g->declared = style->input;
        g->desired = style->desired.kind ? style->desired : recipe->desired;
        g->follow = recipe->follow;
    }
    for (int i = 0; i < p->gates; i++) {
        p->gate[i].keep = style->keep_gathered;
        if (!p->each || !sherd__gate_is_open(&p->gate[i]))
            p->gate[i].to_local = style->local_input;
    }
    name_gates(p);
    return sherd_module_hook_before(NULL, module, arrive, &options);
}

static sherd_status hook_outputs(const sherd_style *style, const sherd__recipe *recipe,
                                 sherd_module *module, const sherd_mesh *mesh, int axis)
{
    sherd_placement output = style->output.kind ? style->output : recipe->output;
    passage *p;

    if (!style->output_count && output.kind == SHERD_UNSET && !style->to_local)
        return SHERD_OK;
    p = make_passage(recipe, module, mesh, axis, style->outputs, style->output_count);
    if (!p)
        return sherd__no_memory(sherd__world_diag(module->world), "sherd_parallelize");
    p->only_first = recipe->only_first;
    if (!p->each)
        p->gate[0].desired = output;
    for (int i = 0; i < p->gates; i++)
        if (!p->each || !sherd__gate_is_open(&p->gate[i]))
            p->gate[i].to_local = style->to_local;
    name_gates(p);
    return sherd_module_hook_after(NULL, module, leave,
                                   &(sherd_hook_options){.payload = p, .destroy = free_passage});
}

static sherd_status refuse(const sherd__recipe *recipe, const sherd_module *module,
                           const char *fault)
{
    return sherd__module_fail(module, SHERD_EINVAL, "sherd_parallelize: %s of module \"%s\": %s",
                              recipe->name, sherd__module_name(module), fault);
}

sherd_status sherd__style_hook(const sherd_style *style, const sherd__recipe *recipe,
                               sherd_module *module, const sherd_mesh *mesh, int axis)
{
    const char *fault = sherd__style_fault(style);
    sherd_status status = SHERD_OK;

    if (!fault && !recipe->slots && (style->input_count || style->output_count))
        fault = "it looks at the first input only; slots are for the Prepare styles";
    if (!fault && recipe->only_out &&
        (style->input_count || style->input.kind || style->desired.kind || style->local_input))
        fault = "it does nothing to inputs; sherd_prepare_input_output does";
    if (fault)
        return refuse(recipe, module, fault);
    if (!recipe->only_out)
        status = hook_inputs(style, recipe, module, mesh, axis);
    return status ? status : hook_outputs(style, recipe, module, mesh, axis);
}
