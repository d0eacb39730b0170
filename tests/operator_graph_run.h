/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random program of operator_graph.h is run: plain, or on a mesh, where its calls, moves and
 * checkpointed modules find their tensors in any layout.
 */
#ifndef SHERD_OPERATOR_GRAPH_RUN_H
#define SHERD_OPERATOR_GRAPH_RUN_H

#include "operator_graph.h"

#include "sherd/checkpoint.h"
#include "sherd/parallel.h"

/* A run of a program: plain, if it has no mesh. */
typedef struct runner {
    sherd_world *world;
    const program *p;
    const sherd_mesh *mesh, *other;
    sherd_generator generator;
    sherd_module *module[MOST_SEGMENTS]; /* NULL: its steps are run as they are */
    sherd_tensor *value[MOST_VALUES];
} runner;

typedef struct part {
    runner *r;
    int segment;
} part;

/* ---- layouts --------------------------------------------------------------------------------- */

/* Any layout; pending by sums, or by anything, where `reductions` has the bit. */
static inline const sherd_layout *any_layout(const sherd_mesh *mesh, const need *w,
                                             unsigned reductions, uint64_t *dice)
{
    sherd_placement placements[SHERD_MAX_AXES];
    int axes = sherd_mesh_axes(mesh);

    do
        for (int a = 0; a < axes; a++)
            while (!placement_number(&placements[a], w, roll(dice, 1 + w->ndim + 5)) ||
                   (placements[a].kind == SHERD_PARTIAL && !(reductions >> placements[a].op & 1)))
                continue;
    while (!go_together(placements, axes));
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

/* Where a tensor moves to: what is pending is settled or stays. */
static inline const sherd_layout *any_target(sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *from = sherd_tensor_layout(t);
    const sherd_mesh *mesh = sherd_layout_mesh(from);
    sherd_placement placements[SHERD_MAX_AXES];

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        placement_number(&placements[a], w, roll(dice, 1 + w->ndim));
        sherd_placement at = sherd_layout_placement(from, a);
        if (at.kind == SHERD_PARTIAL && roll(dice, 3) == 0)
            placements[a] = at;
    }
    return layout_cut(mesh, w, placements, (cutting)roll(dice, CUTTINGS), dice);
}

/* ---- running --------------------------------------------------------------------------------- */

/* There and back, begun or not; another mesh takes nothing pending. */
static inline sherd_tensor *move_across(runner *r, sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *there = any_layout(r->other, w, 0, dice);
    const sherd_layout *back = any_layout(r->mesh, w, 0, dice);
    const sherd_redistribute_options options = {.begin = roll(dice, 2)};

    return sherd_redistribute(sherd_redistribute(t, there, &options), back, &options);
}

/* Whether gradients flow through pieces: not through those of a pending minimum, say. */
static inline bool has_addends(const sherd_layout *layout)
{
    bool good = true;

    for (int a = 0; a < layout->spec.mesh->axes; a++)
        good &= layout->spec.pending[a] <= (int)SHERD_AVG;
    return good;
}

/* Somewhere else; to another mesh and back; to each rank's piece and back; or to a plain tensor. */
static inline sherd_tensor *moved(runner *r, sherd_tensor *t, const need *w, uint64_t *dice)
{
    const sherd_layout *from = sherd_tensor_layout(t);
    int way = roll(dice, 8);
    const sherd_redistribute_options options = {.begin = roll(dice, 2)};

    if (!from)
        return t;
    if (way == 0)
        return move_across(r, t, w, dice);
    if (way == 1 && has_addends(from))
        return sherd_from_local_as(sherd_to_local(t), from);
    if (way == 2)
        return sherd_full(t);
    return sherd_redistribute(t, any_target(t, w, dice), &options);
}

static inline void move_one(runner *r, sherd_tensor **frame, const step *s)
{
    sherd_tensor *t = frame[s->in[0]];
    uint64_t dice = s->seed;

    frame[s->out[0]] = sherd_tensor_failed(t) ? t : moved(r, t, &r->p->value[s->in[0]], &dice);
}

/* Plain ones stay where they are. It is not recorded, so no gradient is to flow through what it
 * leaves as it is. */
static inline void move_many(runner *r, sherd_tensor **frame, const step *s)
{
    sherd_tensor *t[MOST_MOVED], *moved[MOST_MOVED];
    const sherd_layout *to[MOST_MOVED];
    uint64_t dice = s->seed;
    int at[MOST_MOVED], count = 0;

    for (int i = 0; i < s->ins; i++) {
        sherd_tensor *x = frame[s->in[i]];
        frame[s->out[i]] = sherd_detach(x);
        if (sherd_tensor_failed(x) || !sherd_tensor_layout(x))
            continue;
        t[count] = frame[s->out[i]];
        to[count] = any_target(x, &r->p->value[s->in[i]], &dice);
        at[count++] = s->out[i];
    }
    if (count)
        sherd_redistribute_many(moved, t, to, count);
    for (int i = 0; i < count; i++)
        frame[at[i]] = moved[i];
}

static inline void run_call(runner *r, sherd_tensor **frame, const step *s)
{
    act a = {.p = &s->call, .generator = &r->generator};

    for (int i = 0; i < s->ins; i++)
        a.in[i] = frame[s->in[i]];
    frame[s->out[0]] = s->call.row->run(&a);
    if (s->outs > 1)
        frame[s->out[1]] = a.more;
}

static inline void run_module(runner *r, sherd_tensor **frame, int number)
{
    const segment *g = &r->p->segment[number];
    sherd_args in = {.count = g->ins}, out = {0};

    for (int i = 0; i < g->ins; i++)
        in.value[i] = frame[g->in[i]];
    sherd_module_run(r->module[number], &in, &out);
    CHECK_EQ(out.count, g->outs);
    for (int i = 0; i < g->outs; i++)
        frame[g->out[i]] = out.value[i];
}

static inline void run_steps(runner *r, sherd_tensor **frame, int begin, int end, int parent)
{
    for (int i = begin; i < end; i++) {
        const step *s = &r->p->step[i];
        int module = -1;
        for (int j = 0; j < r->p->segments; j++)
            if (r->module[j] && r->p->segment[j].begin == i && r->p->segment[j].parent == parent)
                module = j;
        if (module >= 0) {
            run_module(r, frame, module);
            i = r->p->segment[module].end - 1;
        } else if (s->kind == CALL) {
            run_call(r, frame, s);
        } else if (s->kind == MOVE) {
            move_one(r, frame, s);
        } else {
            move_many(r, frame, s);
        }
    }
}

static inline void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const part *at = sherd_module_payload(self);
    const segment *g = &at->r->p->segment[at->segment];
    sherd_tensor *frame[MOST_VALUES] = {NULL};

    for (int i = 0; i < g->ins; i++)
        frame[g->in[i]] = in->value[i];
    run_steps(at->r, frame, g->begin, g->end, at->segment);
    out->count = g->outs;
    for (int i = 0; i < g->outs; i++)
        out->value[i] = frame[g->out[i]];
}

static inline void make_modules(runner *r, part *parts)
{
    for (int i = 0; i < r->p->segments; i++) {
        const segment *g = &r->p->segment[i];
        uint64_t dice = r->p->seed + (uint64_t)i;
        parts[i] = (part){r, i};
        if (!CHECK_OK(sherd_module_create(&r->module[i], r->world, forward,
                                          &(sherd_module_options){.payload = &parts[i]})))
            continue;
        sherd_module_checkpoint(r->module[i], g->checkpointed);
        int axis = roll(&dice, sherd_mesh_axes(r->mesh));
        if (g->resharded)
            CHECK_OK(sherd_input_reshard(r->module[i], r->mesh, sherd_mesh_axis_name(r->mesh, axis),
                                         roll(&dice, 2)));
    }
}

#endif
