/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a right program wrong: one thing, or two, that some ranks do otherwise than the others. Of
 * each fault it is known whether it must be found at the next check, or only may be (a result that
 * nobody needs, a plan that happens to be the same). Ranks outside of the mesh of an operation
 * never make its faults, and never all ranks make one.
 */
#include "history.h"

#include <stdio.h>
#include <string.h>

typedef struct maker {
    program *p;
    dice *d;
    bool verified;
    fault *f;
} maker;

/* ---- who, and what else ---------------------------------------------------------------------- */

static bool has_two(unsigned ranks)
{
    return (ranks & (ranks - 1)) != 0;
}

/* Some of the ranks, mostly one, never all. */
static unsigned draw_some(maker *m, unsigned ranks)
{
    unsigned some = 0;
    int count = 0;

    for (int r = 0; r < RANKS; r++)
        if ((ranks >> r & 1) && one_in(m->d, ++count))
            some = 1u << r;
    if (one_in(m->d, 5))
        some |= ranks & (unsigned)dice_next(m->d);
    return some == ranks ? ranks & (ranks - 1) : some;
}

/* Another layout of the same shape, on the same mesh, with nothing pending; -1 if none is drawn. */
static int other_layout(maker *m, int layout)
{
    program *p = m->p;
    layout_plan l = p->layout[layout];
    int mesh = p->scene->mesh[l.mesh].whole;

    for (int tries = 0; tries < 8; tries++) {
        layout_plan other = layout_blank(mesh, l.ndim, l.shape);
        if (p->layouts == LAYOUTS || !layout_draw(&other, p->scene, NOTHING_PENDING, m->d))
            return -1;
        if (other.paper == l.paper)
            continue;
        p->layout[p->layouts] = other;
        return p->layouts++;
    }
    return -1;
}

/* ---- another field --------------------------------------------------------------------------- */

static sherd_dtype other_dtype(maker *m, sherd_dtype dtype)
{
    static const sherd_dtype some[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    sherd_dtype other = some[roll(m->d, 4)];

    return other != dtype ? other : dtype == SHERD_F32 ? SHERD_F64 : SHERD_F32;
}

/* Whether a fault at an operation of these ranks alone is found out. */
static bool shows_at(const maker *m, unsigned ranks)
{
    return (ranks & m->f->ranks) && (ranks & ~m->f->ranks);
}

static bool change_layout(maker *m, op *o, int place)
{
    int other = other_layout(m, o->layout[place]);

    if (other < 0)
        return false;
    o->layout[place] = other;
    /* if it is that of the operand, the result is the operand: no scope holds it for this slot */
    o->own = true;
    if (o->kind == OP_MANY)
        o->shows = shows_at(m, movers_of(m->p, o, m->f->at, place));
    return true;
}

/* What is made out of nothing: its number, data, dtype, layout, root, or where the generator
 * stands. */
static bool change_new(maker *m, op *o)
{
    int choice = roll(m->d, 3);

    if (o->layout[0] < 0)
        return false;
    /* A layout that is inferred from the pieces follows them: other pieces are no fault. */
    if (choice == 0 && !o->infer)
        return change_layout(m, o, 0);
    if (o->infer || (choice == 1 && o->kind != OP_DISTRIBUTE)) {
        o->dtype = other_dtype(m, o->dtype);
        return true;
    }
    switch (o->kind) {
    case OP_CONSTANT:
        o->number = o->number == 1 ? 0 : 1;
        return true;
    case OP_DRAW:
        o->call += choice == 1;
        o->key += choice != 1;
        return true;
    case OP_DISTRIBUTE:
        o->root = o->root == -1 ? m->p->scene->mesh[o->mesh].rank[0] : -1;
        return true;
    default:
        return change_layout(m, o, 0);
    }
}

/* Ranks of the two meshes of a move. */
static unsigned meshes_of(const maker *m, const op *o)
{
    const scene *s = m->p->scene;
    int from = mesh_of(m->p, o->src[0], m->f->at), to = m->p->layout[o->layout[0]].mesh;

    return s->mesh[from].members | s->mesh[to].members;
}

/*
 * Another target. Where no call shows what moves between two meshes, it still is in the ledgers of
 * both, each for its own ranks.
 */
static bool change_target(maker *m, op *o)
{
    const scene *s = m->p->scene;
    int from = mesh_of(m->p, o->src[0], m->f->at), to = m->p->layout[o->layout[0]].mesh;

    if (o->mesh < 0 && !o->shows)
        o->shows = shows_at(m, s->mesh[from].members) || shows_at(m, s->mesh[to].members);
    return change_layout(m, o, 0);
}

static bool change_move(maker *m, op *o)
{
    int twin;

    switch (roll(m->d, 5)) {
    case 0:
        if ((twin = twin_of(m->p, o->src[0], m->f->at)) < 0)
            return false;
        /* Ranks in neither mesh bring nothing, whatever they pass. */
        o->shows = o->shows && shows_at(m, meshes_of(m, o));
        o->src[0] = twin;
        return true;
    case 1:
        o->begin = !o->begin;
        o->shows = false;
        return true;
    case 2:
        o->greedy = !o->greedy && o->mesh >= 0;
        o->shows = false;
        return true;
    default:
        return change_target(m, o);
    }
}

static bool change_many(maker *m, op *o)
{
    int last = o->count - 1;

    if (last > 0 && one_in(m->d, 3)) {
        o->dst[last] = -1;
        o->count--;
        /* What is left out may have stayed where it was. */
        o->shows = false;
        return true;
    }
    return change_layout(m, o, roll(m->d, o->count));
}

static bool change_operator(maker *m, op *o)
{
    int twin = o->kind != OP_TO_LOCAL && one_in(m->d, 3) ? twin_of(m->p, o->src[0], m->f->at) : -1;

    if (twin >= 0 && twin != o->src[1]) {
        o->src[0] = twin;
        return true;
    }
    switch (o->kind) {
    case OP_ADD:
    case OP_SUB:
        o->kind = o->kind == OP_ADD ? OP_SUB : OP_ADD;
        return true;
    case OP_MUL:
        o->kind = OP_ADD;
        return true;
    case OP_SCALE:
        o->number += 1;
        return true;
    case OP_RELU:
        o->kind = OP_GELU;
        return true;
    case OP_DROPOUT:
        o->call += one_in(m->d, 2);
        o->number = o->call == m->p->op[m->f->at].call ? 0.125 : o->number;
        return true;
    case OP_CAST:
        o->dtype = other_dtype(m, o->dtype);
        return true;
    case OP_REQUIRE:
        o->flag = !o->flag;
        return true;
    default:
        return false;
    }
}

static bool change_mesh(maker *m, op *o)
{
    const scene *s = m->p->scene;
    int other = s->mesh[roll(m->d, s->meshes)].whole;

    if (other == o->mesh)
        return false;
    o->mesh = other;
    return true;
}

static bool make_field(maker *m, const op *o)
{
    op *alt = &m->f->alt;

    *alt = *o;
    switch (o->kind) {
    case OP_CONSTANT:
    case OP_DRAW:
    case OP_FROM_LOCAL:
    case OP_DISTRIBUTE:
        return change_new(m, alt);
    case OP_MOVE:
        return change_move(m, alt);
    case OP_MANY:
        return change_many(m, alt);
    case OP_MESH:
        alt->shows = true;
        return change_mesh(m, alt);
    default:
        return o->shows && change_operator(m, alt);
    }
}

/* ---- the kinds ------------------------------------------------------------------------------- */

/* The operation once more, and what comes of it given up at once. */
static bool make_extra(maker *m, const op *o)
{
    if ((!o->shows && o->kind != OP_MESH) || o->kind == OP_REQUIRE)
        return false;
    m->f->alt = *o;
    m->f->alt.shows = true;
    for (int i = 0; i < LIST; i++)
        m->f->alt.dst[i] = -1;
    return true;
}

static bool make_missing(maker *m, const op *o)
{
    m->f->alt = *o;
    m->f->alt.shows |= o->kind == OP_MESH;
    return m->f->alt.shows;
}

/* Gathering a tensor moves it to where it is whole: that and such a move are the same. */
static bool is_gathered_twice(const program *p, const op *a, const op *b)
{
    const op *move = a->kind == OP_MOVE ? a : b, *full = move == a ? b : a;

    return move->kind == OP_MOVE && full->kind == OP_FULL && a->src[0] == b->src[0] &&
           layout_is_whole(p->layout[move->layout[0]].paper);
}

static bool make_swapped(maker *m, const op *o)
{
    const op *next = o + 1;

    if (m->f->at + 1 >= m->p->ops || !o->shows || !next->shows || o->mesh < 0 ||
        o->mesh != next->mesh)
        return false;
    for (int i = 0; i < o->count; i++)
        for (int k = 0; k < LIST; k++)
            if (o->dst[i] >= 0 && (o->dst[i] == next->src[k] || o->dst[i] == next->dst[k]))
                return false;
    m->f->other = m->f->at + 1;
    m->f->alt.shows =
        (o->kind != next->kind || o->layout[0] != next->layout[0] || o->src[0] != next->src[0]) &&
        !is_gathered_twice(m->p, o, next);
    return true;
}

static bool make_absent(maker *m, const op *o)
{
    m->f->alt = *o;
    m->f->alt.absent = true;
    switch (o->kind) {
    case OP_ADD:
    case OP_SUB:
    case OP_MUL:
    case OP_MATMUL:
    case OP_FROM_LOCAL:
    case OP_DISTRIBUTE:
    case OP_MOVE:
    case OP_MANY:
        m->f->alt.shows = true;
        return true;
    default:
        return false;
    }
}

static bool make_data(maker *m, const op *o)
{
    if (!m->verified || o->kind != OP_DISTRIBUTE || o->root != -1 || o->dst[0] < 0 ||
        m->p->value[o->value[0]].count < 8 || sherd_dtype_bytes(o->dtype) < 2)
        return false;
    m->f->alt = *o;
    m->f->alt.flag = true;
    return true;
}

/* From operation `from` on, some ranks are a check ahead of the others, or behind. */
static bool make_ahead(maker *m, int from)
{
    int to = next_meeting(m->p, from);

    m->f->ranks = draw_some(m, all_of(m->p));
    m->f->alt = (op){.kind = OP_CHECK, .count = 1, .mesh = -1, .shows = true};
    return to < m->p->ops &&
           (m->p->op[to].kind == OP_MESH || is_missed(m->p, from, to, m->f->ranks));
}

static bool make_extra_check(maker *m, const op *o)
{
    return o->kind != OP_CHECK && make_ahead(m, m->f->at);
}

static bool make_missing_check(maker *m, const op *o)
{
    return o->kind == OP_CHECK && make_ahead(m, m->f->at + 1);
}

static bool make_raised(maker *m, const op *o)
{
    static const int statuses[] = {-1, -2, -3, -4, -5, -6, -7, -8, -256, -512, -70000, 0, 3};

    (void)o;
    m->f->status = statuses[roll(m->d, one_in(m->d, 3) ? 13 : 5)];
    m->f->alt.shows = true;
    return true;
}

static bool make_left(maker *m, const op *o)
{
    (void)o;
    m->f->alt.shows = true;
    return true;
}

static const struct {
    fault_kind kind;
    int weight;
    bool (*make)(maker *m, const op *o);
} kinds[] = {
    {FAULT_FIELD, 30, make_field},
    {FAULT_EXTRA, 12, make_extra},
    {FAULT_MISSING, 12, make_missing},
    {FAULT_SWAPPED, 14, make_swapped},
    {FAULT_ABSENT, 8, make_absent},
    {FAULT_DATA, 8, make_data},
    {FAULT_CHECK_EXTRA, 6, make_extra_check},
    {FAULT_CHECK_MISSING, 5, make_missing_check},
    {FAULT_RAISED, 8, make_raised},
    {FAULT_LEFT, 4, make_left},
};

static int draw_kind(dice *d)
{
    int count = (int)(sizeof kinds / sizeof kinds[0]), total = 0, at, i = 0;

    for (int k = 0; k < count; k++)
        total += kinds[k].weight;
    at = roll(d, total);
    while (at >= kinds[i].weight)
        at -= kinds[i++].weight;
    return i;
}

static void describe(const maker *m, const op *o)
{
    fault *f = m->f;
    char was[100], is[100] = "";

    op_text(m->p, o, was, sizeof was);
    if (f->kind == FAULT_FIELD || f->kind == FAULT_DATA || f->kind == FAULT_ABSENT)
        op_text(m->p, &f->alt, is, sizeof is);
    snprintf(f->text, sizeof f->text, "%s by ranks %x at operation %d (%.100s)%s%.100s",
             fault_name(f->kind), f->ranks, f->at, was, is[0] ? ": " : "", is);
}

/* One of a kind, at an operation that can have it. */
static bool make_fault(maker *m)
{
    int kind = draw_kind(m->d);
    bool anywhere = kinds[kind].kind == FAULT_RAISED || kinds[kind].kind == FAULT_LEFT;

    for (int tries = 0; tries < 60; tries++) {
        int at = roll(m->d, m->p->ops);
        const op *o = &m->p->op[at];
        unsigned members = anywhere ? all_of(m->p) : members_of(m->p, at);
        *m->f = (fault){.kind = kinds[kind].kind, .at = at, .other = -1};
        if (!has_two(members))
            continue;
        m->f->ranks = draw_some(m, members);
        if (!kinds[kind].make(m, o))
            continue;
        m->f->sure = m->f->alt.shows;
        describe(m, o);
        return true;
    }
    return false;
}

int faults_draw(fault *f, program *p, bool verified, dice *d)
{
    maker m = {p, d, verified, f};
    int wanted = one_in(d, 6) ? FAULTS : 1, count = 0;

    for (int tries = 0; tries < 20 && count < wanted; tries++) {
        m.f = &f[count];
        if (!make_fault(&m))
            continue;
        bool again =
            count > 0 && (f[0].at == f[1].at || f[0].other == f[1].at || f[1].other == f[0].at ||
                          f[0].kind == f[1].kind || f[0].kind >= FAULT_CHECK_EXTRA ||
                          f[1].kind >= FAULT_CHECK_EXTRA);
        count += !again;
    }
    return count;
}

const char *fault_name(fault_kind kind)
{
    static const char *const names[FAULT_KINDS] = {
        "another field", "extra call",  "missing call",  "swapped calls", "NULL operand",
        "other data",    "extra check", "missing check", "raised",        "left early"};

    return names[kind];
}
