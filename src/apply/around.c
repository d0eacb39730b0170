/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operator reads around the pieces of its operands (SHERD_OP_AROUND): windows, fetched by
 * one call for all operands. Every rank asks for the windows of all shards, so all know whether
 * the pieces suffice; then nothing is fetched.
 */
#include "operator.h"

#include "autograd/tape.h"
#include "plan/window.h"
#include "tensor/said.h"

typedef struct around {
    const sherd__run *run;
    int operand;
    const sherd_layout *layout, *beside; /* its own; that of the tensor which the shards compute */
    bool suffices;                       /* no shard asks for more than it has */
} around;

static void ask(const void *what, int d, int64_t shard, int64_t lo, int64_t hi, int64_t *first,
                int64_t *end)
{
    around *a = (around *)(uintptr_t)what;
    const sherd__layout_spec *mine = &a->layout->spec, *other = &a->beside->spec;
    bool alike = d < other->ndim && sherd__dim_alike(&mine->dim[d], &other->dim[d]);

    *first = lo;
    *end = hi;
    if (!alike)
        return;
    int64_t from = sherd__dim_cut(other->mesh, &other->dim[d], other->shape[d], shard);
    int64_t to = sherd__dim_cut(other->mesh, &other->dim[d], other->shape[d], shard + 1);
    if (from < to)
        a->run->call.op->reads(&a->run->call, a->operand, d, from, to, first, end);
    else
        *end = lo; /* a shard that computes nothing reads nothing */
    if (*first < 0)
        *first = 0;
    if (*end > mine->shape[d])
        *end = mine->shape[d];
    /* A shard that reads less than it has needs no call for that. */
    a->suffices = a->suffices && (*first >= *end || (*first >= lo && *end <= hi));
}

static const sherd_layout *beside_of(const sherd__run *run)
{
    int beside = run->call.op->beside;

    return beside ? run->arg[beside - 1]->layout : run->call.out[0]->layout;
}

/* The window of operand i; NULL and *good: its pieces suffice. */
static sherd__window *window_of(const sherd__run *run, int i, bool *good)
{
    around a = {.run = run,
                .operand = i,
                .layout = run->call.in[i]->layout,
                .beside = beside_of(run),
                .suffices = true};
    sherd__window *window;
    int floor = sherd__scope_fence(run->call.world);
    sherd_status status = sherd__window_create(&window, a.layout, &(sherd__asking){ask, &a, NULL});
    sherd__scope_leave(run->call.world, floor);

    *good = status == SHERD_OK;
    if (status)
        sherd__fail_diag(run->call.world, true);
    if (status || !a.suffices)
        return window;
    sherd__window_release(window);
    return NULL;
}

static void note_box(sherd__run *run, int i, const sherd__window *window)
{
    int64_t coordinate[SHERD_MAX_AXES];
    sherd_box *box = &run->window[run->around].box;

    run->window[run->around++].operand = i;
    *box = (sherd_box){.ndim = window->layout->spec.ndim};
    if (sherd_mesh_coordinate(window->layout->spec.mesh, sherd_world_rank(run->call.world),
                              coordinate))
        sherd__window_box(window, coordinate, box);
}

/*
 * What is read follows from the attributes. So ranks note these first: otherwise those that differ
 * in a stride would be told that they read other pieces.
 */
static void note_attributes(const sherd_call *call, const sherd_mesh *mesh)
{
    if (call->op->attributes && call->attributes)
        sherd__note_deed(call->world, mesh, call->op->name,
                         sherd__hash_fields(call->op, call->attributes), NULL, call->op,
                         call->attributes);
}

bool sherd__read_around(sherd__run *run)
{
    sherd_call *call = &run->call;
    sherd__windowed list[SHERD__AROUND];
    int operand[SHERD__AROUND], count = 0;
    bool good = true, noted = false;

    for (int i = 0; i < call->operands && good; i++) {
        if (!call->in[i] || !call->in[i]->layout ||
            !(sherd__slot(call->op, i)->flags & SHERD_OP_AROUND))
            continue;
        if (!noted)
            note_attributes(call, call->in[i]->layout->spec.mesh);
        noted = true;
        sherd__window *window = window_of(run, i, &good);
        if (window) {
            operand[count] = i;
            list[count++] = (sherd__windowed){.window = window, .whole = call->in[i]};
            note_box(run, i, window);
        }
    }
    if (count)
        sherd__open(run);
    good = good && sherd__gather_windows(list, count, false, call->op->name);
    for (int k = 0; k < count; k++) {
        if (good)
            call->in[operand[k]] = list[k].piece;
        sherd__window_release(list[k].window);
    }
    return good;
}

sherd_box sherd_call_box(const sherd_call *call, int i)
{
    const sherd__run *run = (const sherd__run *)(const void *)call;

    if (!call || i < 0 || i >= call->operands)
        return (sherd_box){.ndim = 0};
    for (int k = 0; k < run->around; k++)
        if (run->window[k].operand == i)
            return run->window[k].box;
    return sherd_tensor_box(call->in[i]);
}
