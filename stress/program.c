/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawing a program: one operation after the other, each of what the slots hold by then, with
 * meshes made where they are first needed, checks and scopes anywhere between. It ends with
 * everything dropped and a last check.
 */
#include "writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- adding ---------------------------------------------------------------------------------- */

op *emit(writer *w, op_kind kind)
{
    op *o = &w->p->op[w->p->ops++];

    *o = (op){.kind = kind, .count = 1, .mesh = -1};
    for (int i = 0; i < LIST; i++)
        o->dst[i] = o->src[i] = o->layout[i] = o->value[i] = -1;
    return o;
}

bool has_room(const writer *w, int ops)
{
    return w->p->ops + ops + SLOTS + 8 < OPS && w->p->layouts + ops / 2 < LAYOUTS &&
           w->p->values + ops < VALUES;
}

void drop_slot(writer *w, int i)
{
    op *o = emit(w, OP_DROP);

    o->src[0] = i;
    o->own = w->slot[i].depth == BY_COUNT;
    w->slot[i].used = false;
}

void make_room(writer *w, int slots)
{
    int empty = 0;

    for (int i = 0; i < SLOTS; i++)
        empty += !w->slot[i].used;
    for (int i = roll(&w->d, SLOTS); empty < slots; i = (i + 1) % SLOTS)
        if (w->slot[i].used) {
            drop_slot(w, i);
            empty++;
        }
}

int take_slot(writer *w)
{
    int first = roll(&w->d, SLOTS);

    for (int k = 0; k < SLOTS; k++)
        if (!w->slot[(first + k) % SLOTS].used)
            return (first + k) % SLOTS;
    drop_slot(w, first);
    return first;
}

void fill_slot(writer *w, op *o, int i, slot_plan what)
{
    int place = 0;

    while (o->dst[place] >= 0)
        place++;
    o->dst[place] = i;
    o->value[place] = what.value;
    o->dtype = what.dtype;
    for (int k = 0; k < SLOTS; k++)
        if (w->slot[k].used && w->slot[k].storage == what.storage)
            w->slot[k].shared = what.shared = true;
    what.used = true;
    o->flies |= what.flies;
    what.depth = o->own ? BY_COUNT : w->depth;
    w->slot[i] = what;
}

int pick_slot(writer *w, bool (*fits)(const writer *w, int i, const void *what), const void *what)
{
    int found = -1, count = 0;

    for (int i = 0; i < SLOTS; i++)
        if (w->slot[i].used && fits(w, i, what) && one_in(&w->d, ++count))
            found = i;
    return found;
}

const numbers *value_of(const writer *w, int slot)
{
    return &w->p->value[w->slot[slot].value];
}

unsigned all_ranks(const writer *w)
{
    return (1u << w->s->ranks) - 1;
}

/* ---- meshes, layouts, shapes ----------------------------------------------------------------- */

void need_mesh(writer *w, int mesh)
{
    int whole = w->s->mesh[mesh].whole;

    if (w->made[whole] && !one_in(&w->d, 60))
        return;
    w->made[whole] = true;
    emit(w, OP_MESH)->mesh = whole;
}

int any_mesh(writer *w)
{
    int mesh = one_in(&w->d, 2) ? 0 : roll(&w->d, w->s->meshes);

    need_mesh(w, mesh);
    return mesh;
}

bool draw_members(writer *w, int mesh)
{
    return w->s->mesh[mesh].members != all_ranks(w) && one_in(&w->d, 2);
}

int any_shape(writer *w, int64_t *shape)
{
    static const int sizes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17};
    int ndim = one_in(&w->d, 12) ? 3 : 1 + roll(&w->d, 2);

    for (int d = 0; d < ndim; d++)
        shape[d] = sizes[one_in(&w->d, 8) ? roll(&w->d, 14) : 2 + roll(&w->d, ndim == 3 ? 6 : 10)];
    if (one_in(&w->d, 16))
        shape[0] = 100 << roll(&w->d, 5);
    if (w->large && ndim < 3 && one_in(&w->d, 2))
        shape[0] = 1000 << roll(&w->d, 4);
    return ndim;
}

int add_layout(writer *w, const layout_plan *l)
{
    program *p = w->p;

    for (int i = 0; i < p->layouts; i++)
        if (p->layout[i].paper == l->paper)
            return i;
    if (p->layouts == LAYOUTS)
        return -1;
    p->layout[p->layouts] = *l;
    return p->layouts++;
}

int any_layout(writer *w, int mesh, int ndim, const int64_t *shape, pendings pending)
{
    layout_plan l = layout_blank(mesh, ndim, shape);

    l.lump = w->lumps;
    return layout_draw(&l, w->s, pending, &w->d) ? add_layout(w, &l) : -1;
}

sherd_dtype any_dtype(writer *w, bool fractions)
{
    static const sherd_dtype some[] = {SHERD_F32, SHERD_F32,  SHERD_F32,  SHERD_F64,
                                       SHERD_F64, SHERD_BF16, SHERD_F16,  SHERD_I32,
                                       SHERD_I64, SHERD_U8,   SHERD_BOOL, SHERD_I8};

    return some[roll(&w->d, fractions ? 7 : 12)];
}

/* ---- scopes and checks ----------------------------------------------------------------------- */

void open_scope(writer *w)
{
    emit(w, OP_SCOPE);
    w->depth++;
}

void close_scope(writer *w)
{
    op *o = emit(w, OP_UNSCOPE);

    for (int i = 0; i < SLOTS; i++)
        if (w->slot[i].used && w->slot[i].depth == w->depth) {
            w->slot[i].used = false;
            o->unknown |= 1u << i;
        }
    w->depth--;
}

static bool write_scope(writer *w)
{
    if (w->depth < 3 && one_in(&w->d, 2))
        open_scope(w);
    else if (w->depth > 0)
        close_scope(w);
    return true;
}

static bool is_innermost(const writer *w, int i, const void *what)
{
    (void)what;
    return w->slot[i].depth == w->depth;
}

static bool write_pass(writer *w)
{
    int i = w->depth > 0 ? pick_slot(w, is_innermost, NULL) : -1;

    if (i < 0)
        return false;
    emit(w, OP_PASS)->src[0] = i;
    w->slot[i].depth--;
    return true;
}

static bool is_any(const writer *w, int i, const void *what)
{
    (void)w, (void)i, (void)what;
    return true;
}

static bool write_drop(writer *w)
{
    int i = pick_slot(w, is_any, NULL);

    if (i >= 0)
        drop_slot(w, i);
    return i >= 0;
}

static bool write_check(writer *w)
{
    emit(w, OP_CHECK);
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const struct {
    int weight;
    bool (*write)(writer *w);
} kinds[] = {
    {6, write_constant},   {1, write_plain},  {2, write_drawn}, {10, write_from_local},
    {5, write_distribute}, {26, write_move},  {6, write_many},  {12, write_in_place},
    {16, write_read},      {6, write_full},   {3, write_item},  {3, write_to_local},
    {3, write_cast},       {8, write_binary}, {8, write_unary}, {3, write_dropout},
    {4, write_sum},        {3, write_matmul}, {3, write_view},  {2, write_graph},
    {4, write_burst},      {6, write_scope},  {2, write_pass},  {8, write_drop},
    {10, write_check},
};

static void write_one(writer *w)
{
    int count = (int)(sizeof kinds / sizeof kinds[0]), total = 0, at, i = 0;

    for (int k = 0; k < count; k++)
        total += kinds[k].weight;
    at = roll(&w->d, total);
    while (at >= kinds[i].weight)
        at -= kinds[i++].weight;
    kinds[i].write(w);
}

/* Nothing is left: every count is given back, every scope closed. */
static void finish(writer *w)
{
    for (int i = 0; i < SLOTS; i++)
        if (w->slot[i].used && w->slot[i].depth == BY_COUNT)
            drop_slot(w, i);
    while (w->depth > 0)
        close_scope(w);
    emit(w, OP_CHECK);
}

bool program_draw(program *p, const scene *s, uint64_t seed, const program_options *o)
{
    writer w = {.p = p, .s = s, .d = {seed}, .verified = o->verified, .large = o->large};

    memset(p, 0, sizeof *p);
    p->scene = s;
    p->seed = seed;
    for (int i = 0; i < 3; i++)
        write_from_local(&w);
    if (o->verified)
        write_distribute(&w);
    for (int turns = 4 * o->ops; p->ops < o->ops && turns > 0 && has_room(&w, 12); turns--)
        write_one(&w);
    finish(&w);
    return p->ops > 0;
}

int program_value(const program *p, int slot, int at)
{
    int value = -1;

    for (int i = 0; i < at; i++) {
        const op *o = &p->op[i];
        for (int k = 0; k < o->count; k++)
            value = o->dst[k] == slot ? o->value[k] : value;
        if (o->kind == OP_WRITE && o->src[0] == slot)
            value = o->value[0];
        if (o->unknown >> slot & 1)
            value = -1;
    }
    return value;
}

void program_clear(program *p)
{
    for (int i = 0; i < p->values; i++)
        free(p->value[i].x);
    p->values = p->layouts = p->ops = 0;
}

/* ---- texts ----------------------------------------------------------------------------------- */

const char *op_name(op_kind kind)
{
    static const char *const names[OP_KINDS] = {
        "nothing",   "mesh",  "check",        "scope",      "end of scope", "pass",      "drop",
        "constant",  "draw",  "from_local",   "distribute", "move",         "many",      "write",
        "read",      "full",  "item",         "to_local",   "cast",         "add",       "sub",
        "mul",       "scale", "relu",         "gelu",       "dropout",      "sum",       "matmul",
        "transpose", "view",  "require_grad", "backward",   "grad",         "clear_grad"};

    return names[kind];
}

void op_text(const program *p, const op *o, char *out, size_t room)
{
    size_t at = (size_t)snprintf(out, room, "%s%s", op_name(o->kind), o->begin ? " begun" : "");

    if (o->mesh >= 0)
        at += (size_t)snprintf(out + at, room - at, " on %s%s",
                               sherd_mesh_text(p->scene->mesh[o->mesh].paper),
                               o->members ? " (members only)" : "");
    for (int i = 0; i < o->count && at < room; i++) {
        if (o->src[i] >= 0)
            at += (size_t)snprintf(out + at, room - at, " %d", o->src[i]);
        if (o->count == 1 && o->src[1] >= 0 && at < room)
            at += (size_t)snprintf(out + at, room - at, " %d", o->src[1]);
        if (o->dst[i] >= 0 && at < room)
            at += (size_t)snprintf(out + at, room - at, " ->%d%s", o->dst[i], o->own ? "" : "s");
        if (o->layout[i] >= 0 && at < room)
            at += (size_t)snprintf(out + at, room - at, " %s",
                                   sherd_layout_text(p->layout[o->layout[i]].paper));
    }
    if (at < room && o->dst[0] >= 0)
        at += (size_t)snprintf(out + at, room - at, " %s", sherd_dtype_name(o->dtype));
    if (at < room && (o->number != 0 || o->root != 0 || o->call != 0))
        at += (size_t)snprintf(out + at, room - at, " (%g, %d, %llu)", o->number, o->root,
                               (unsigned long long)o->call);
    if (at < room && o->kind == OP_WRITE)
        snprintf(out + at, room - at, " by %x", o->writers);
}
