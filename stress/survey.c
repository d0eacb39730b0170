/* SPDX-License-Identifier: Apache-2.0 */
/*
 * After a check that failed: what is left of the program's tensors must be the same on all ranks.
 * Each rank says what it has; then those that all ranks have are made whole, and compared where
 * nobody can have written them since the last good check. The meetings that this takes must be
 * good. Lastly what is doubtful is used, which may go wrong, but for all ranks alike.
 */
#include "run.h"

enum { NOTHING, FAILED, VALID };

bool settle(runner *u)
{
    bool good = false;

    for (int tries = 0; tries < 3 && !good; tries++)
        good = met(u, sherd_world_check(u->world));
    return good;
}

static void publish(runner *u)
{
    for (int i = 0; i < SLOTS; i++) {
        u->me->born[i] = u->slot[i] ? u->born[i] : -1;
        u->me->state[i] = NOTHING;
        if (u->slot[i])
            u->me->state[i] = sherd_tensor_failed(u->slot[i]) ? FAILED : VALID;
    }
}

/* Which ranks have a part in what an operation made in a slot; 0 = nobody: it is plain, or an older
 * tensor. */
static unsigned speakers(const runner *u, const op *o, int slot)
{
    int place = 0, mesh = o->mesh;

    if (o->kind == OP_FULL || (o->kind == OP_CONSTANT && o->layout[0] < 0))
        return 0;
    while (place < o->count && o->dst[place] != slot)
        place++;
    /* A rank that has swapped two operations has it from the other one. */
    if (place == o->count || (o->stays >> place & 1))
        return 0;
    if (o->kind == OP_MOVE || o->kind == OP_MANY)
        mesh = u->s->mesh[u->p->layout[o->layout[place]].mesh].whole;
    return u->s->mesh[mesh].members;
}

/*
 * In flight, so that it may have come on some ranks only; or made after a fault, so that what it is
 * on one rank may be something else on another, under the same name. And where there is little
 * memory, nothing may fit.
 */
static bool is_doubtful(const runner *u, int born)
{
    for (int i = 0; i < u->t->faults; i++)
        if (u->t->fault[i].at <= born)
            return true;
    return u->p->op[born].flies || u->t->little;
}

/*
 * What all ranks that have a part in it say of a slot, and which operation made it; NOTHING where
 * they do not speak of the same tensor.
 */
static int agreed_state(runner *u, int slot, int *maker)
{
    int born = -1, state = NOTHING;

    for (int r = 0; r < u->s->ranks && born < 0; r++)
        born = u->board->rank[r].born[slot];
    *maker = born;
    unsigned asked = born < 0 ? 0 : speakers(u, &u->p->op[born], slot);
    for (int r = 0; r < u->s->ranks; r++) {
        const rank_board *theirs = &u->board->rank[r];
        if (!(asked >> r & 1))
            continue;
        if (theirs->born[slot] != born)
            return NOTHING;
        if (state != NOTHING && theirs->state[slot] != state) {
            if (u->rank == 0 && !is_doubtful(u, born)) /* all find the same */
                say_wrong(u, "slot %d (made by operation %d, %s) is %s on rank %d, not on others",
                          slot, born, op_name(u->p->op[born].kind),
                          theirs->state[slot] == FAILED ? "failed" : "valid", r);
            return NOTHING;
        }
        state = theirs->state[slot];
    }
    return state;
}

/* Whether all ranks gave up at the same operation: a rank that skipped a check is ahead of the
 * others. */
static bool at_one_place(const runner *u)
{
    for (int r = 0; r < u->s->ranks; r++)
        if (atomic_load(&u->board->rank[r].at) != u->at)
            return false;
    return true;
}

/* Made before the last good check and complete then, and not written since by anybody. */
static int sure_value(const runner *u, int slot, int born)
{
    if (born >= u->good_at || !at_one_place(u))
        return -1;
    for (int i = u->good_at; i <= u->at && i < u->p->ops; i++)
        if (u->p->op[i].kind == OP_WRITE && u->p->op[i].src[0] == slot)
            return -1;
    return program_value(u->p, slot, u->at);
}

static void use(runner *u, int slot, int born)
{
    int value = sure_value(u, slot, born);

    if (!(speakers(u, &u->p->op[born], slot) >> u->rank & 1))
        return;
    sherd_tensor *whole = sherd_full(u->slot[slot]);
    u->must_fail |= sherd_tensor_failed(whole);
    if (value >= 0)
        compare(u, whole, value);
}

/* Make whole all slots that are to be used, and meet. */
static sherd_status use_all(runner *u, const int *maker, bool doubtful)
{
    sherd_scope_begin(u->world);
    for (int i = 0; i < SLOTS; i++)
        if (maker[i] >= 0 && is_doubtful(u, maker[i]) == doubtful)
            use(u, i, maker[i]);
    sherd_scope_end(u->world);
    sherd_status status = sherd_world_check(u->world);
    if (status == SHERD_OK && u->must_fail)
        say_wrong(u, "what a failed check has left fails, and the check says OK");
    u->must_fail = false;
    return status;
}

void survey(runner *u)
{
    int maker[SLOTS];

    u->verdict = SHERD_OK;
    u->must_fail = u->blind = false;
    if (!settle(u))
        return;
    u->verdict = SHERD_OK;
    publish(u);
    if (!met(u, sherd_world_check(u->world)))
        return;
    for (int i = 0; i < SLOTS; i++)
        if (agreed_state(u, i, &maker[i]) != VALID)
            maker[i] = -1;
    if (!met(u, use_all(u, maker, false)))
        return;
    log_word(u, LOOSE);
    u->blind = true;
    if (!met(u, use_all(u, maker, true)))
        settle(u);
}
