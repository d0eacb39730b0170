/* SPDX-License-Identifier: Apache-2.0 */
/* Looking back in a program: what a slot holds at an operation, and which ranks that operation is a
 * matter of. */
#include "history.h"

unsigned all_of(const program *p)
{
    return (1u << p->scene->ranks) - 1;
}

bool is_meeting(const op *o)
{
    return o->kind == OP_MESH || o->kind == OP_CHECK;
}

int next_meeting(const program *p, int from)
{
    while (from < p->ops && !is_meeting(&p->op[from]))
        from++;
    return from;
}

/* The operation that made what a slot holds before operation `at`, and its place in the list; -1 =
 * the slot is empty. */
static int maker_of(const program *p, int slot, int at, int *place)
{
    int found = -1;

    for (int i = 0; i < at; i++) {
        const op *o = &p->op[i];
        if ((o->kind == OP_DROP && o->src[0] == slot) ||
            (o->kind == OP_UNSCOPE && (o->unknown >> slot & 1)))
            found = -1;
        for (int k = 0; k < o->count; k++)
            if (o->dst[k] == slot) {
                found = i;
                *place = k;
            }
    }
    return found;
}

int mesh_of(const program *p, int slot, int at)
{
    int place = 0, made = maker_of(p, slot, at, &place);
    const op *o = &p->op[made];

    return o->layout[place] >= 0 ? p->scene->mesh[p->layout[o->layout[place]].mesh].whole : o->mesh;
}

unsigned movers_of(const program *p, const op *o, int at, int place)
{
    const scene *s = p->scene;
    int to = s->mesh[p->layout[o->layout[place]].mesh].whole;

    return mesh_of(p, o->src[place], at) == to ? s->mesh[to].members : all_of(p);
}

unsigned members_of(const program *p, int at)
{
    const op *o = &p->op[at];
    unsigned all = 0;

    if (o->mesh >= 0 && !is_meeting(o))
        return p->scene->mesh[o->mesh].members;
    if (o->kind != OP_MOVE && o->kind != OP_MANY)
        return all_of(p);
    for (int i = 0; i < o->count; i++)
        all |= o->stays >> i & 1 ? 0 : movers_of(p, o, at, i);
    return all;
}

bool is_missed(const program *p, int from, int to, unsigned ranks)
{
    for (int i = from; i < to; i++) {
        unsigned members = members_of(p, i);
        if (p->op[i].shows && (members & ranks) && (members & ~ranks))
            return true;
    }
    return false;
}

int twin_of(const program *p, int slot, int at)
{
    int place = 0, made = maker_of(p, slot, at, &place);
    const op *o = made < 0 ? NULL : &p->op[made];

    /* What may be an older tensor itself is no other one. */
    if (!o || o->layout[place] < 0 || (o->stays >> place & 1))
        return -1;
    for (int i = 0; i < SLOTS; i++) {
        int k = 0, other = maker_of(p, i, at, &k);
        if (i != slot && other >= 0 && other != made &&
            p->op[other].layout[k] == o->layout[place] && p->op[other].dtype == o->dtype &&
            p->op[other].members == o->members && !(p->op[other].stays >> k & 1))
            return i;
    }
    return -1;
}
