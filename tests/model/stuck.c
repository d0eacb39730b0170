/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that can never end: src/world/stuck.c, because of a rank at a meeting; ring.c, because of
 * ranks that wait for each other.
 */
#include "ranks.h"

bool has_arrived(machine *x, int rank)
{
    return sight(x, &post_of(x, rank)->arrived) > me(x)->round;
}

static bool has_made(machine *x, int rank, int group, int number)
{
    return number_of(sight(x, &lane_of(x, rank, group)->made)) >= number;
}

/* ---- stuck.c ------------------------------------------------------------------------------- */

/* A rank that is at the meeting without a call; -1: none. */
static int find_absent(machine *x, const model_need *n)
{
    for (int q = 0; q < x->program->ranks && keeps(x, RULE_ABSENT); q++)
        if ((n->ranks >> q & 1) && has_arrived(x, q) && !has_made(x, q, n->group, n->number))
            return q;
    return -1;
}

/* Whether an open call of a rank at the meeting, up to the awaited one, can never end. */
static bool is_held_up(machine *x, int rank, const model_need *n)
{
    bool found = false;
    model_needs said;

    hear(x, rank, &said);
    for (int i = said.waits; i < said.count && !found; i++) {
        const model_need *open = &said.need[i];
        if (open->group == n->group && open->number <= n->number)
            found = open->lack == LACKS_FIT || find_absent(x, open) >= 0;
    }
    return found && still_says(x, rank, &said);
}

static bool never_comes(machine *x, const model_need *n)
{
    if (find_absent(x, n) >= 0)
        return true;
    for (int q = 0; q < x->program->ranks && n->lack == LACKS_LEFT && keeps(x, RULE_HELD_UP); q++)
        if ((n->ranks >> q & 1) && has_arrived(x, q) && is_held_up(x, q, n))
            return true;
    return false;
}

static bool is_stuck(machine *x)
{
    model_needs mine;

    hear(x, x->rank, &mine);
    for (int i = 0; i < mine.count; i++)
        if (mine.need[i].lack != LACKS_FIT && never_comes(x, &mine.need[i]))
            return true;
    return false;
}

/* ---- ring.c -------------------------------------------------------------------------------- */

typedef struct model_picture {
    model_needs said[RANKS];
    int next[RANKS]; /* ranks that each depends on */
} model_picture;

/*
 * The ranks whose records a rank lacks for its open calls in a group, up to one that it has made.
 */
static int lacks_of(machine *x, const model_needs *said, int group, int number)
{
    int lacks = 0;

    for (int i = said->waits; i < said->count && keeps(x, RULE_RING_THROUGH); i++) {
        const model_need *open = &said->need[i];
        if (open->group != group || open->number > number)
            continue;
        for (int q = 0; q < x->program->ranks; q++)
            if ((open->ranks >> q & 1) && !has_made(x, q, group, open->number))
                lacks |= bit(q);
    }
    return lacks;
}

/*
 * The ranks that a rank depends on because of one of its needs. `between`, if not NULL: also those
 * whose calls stand between.
 */
static int edges_of(machine *x, const model_picture *p, const model_need *n, int *between)
{
    int found = 0;

    for (int q = 0; q < x->program->ranks; q++) {
        if (!(n->ranks >> q & 1))
            continue;
        if (!has_made(x, q, n->group, n->number)) {
            found |= bit(q);
        } else if (n->lack == LACKS_LEFT && sight(x, &lane_of(x, q, n->group)->left) <= n->number) {
            int through = lacks_of(x, &p->said[q], n->group, n->number);
            found |= through;
            if (through && between)
                *between |= bit(q);
        }
    }
    return found;
}

static void take_picture(machine *x, model_picture *p)
{
    for (int r = 0; r < x->program->ranks; r++)
        hear(x, r, &p->said[r]);
    for (int r = 0; r < x->program->ranks; r++) {
        p->next[r] = 0;
        for (int i = 0; i < p->said[r].waits; i++)
            p->next[r] |= edges_of(x, p, &p->said[r].need[i], NULL);
    }
}

/* The ranks that depend on themselves in the end. */
static int rings_of(const model_picture *p)
{
    int found = 0;

    for (int r = 0; r < RANKS; r++) {
        int reached = p->next[r];
        for (int turn = 0; turn < RANKS; turn++)
            for (int q = 0; q < RANKS; q++)
                if (reached >> q & 1)
                    reached |= p->next[q];
        if (reached >> r & 1)
            found |= bit(r);
    }
    return found;
}

/*
 * ring.c: holds. The counters once more, and then the posts: what the ranks of the ring say is what
 * they said.
 */
static bool holds(machine *x, model_picture *p, int ring)
{
    int heard = ring;
    model_picture again = *p;

    for (int r = 0; r < x->program->ranks; r++) {
        again.next[r] = 0;
        for (int i = 0; (ring >> r & 1) && i < p->said[r].waits; i++)
            again.next[r] |= edges_of(x, p, &p->said[r].need[i], &heard) & ring;
    }
    if ((rings_of(&again) & ring) != ring)
        return false;
    for (int r = 0; r < x->program->ranks; r++)
        if ((heard >> r & 1) && !still_says(x, r, &p->said[r]))
            return false;
    return true;
}

static bool is_in_a_ring(machine *x)
{
    model_picture p = {.next = {0}};

    take_picture(x, &p);
    int ring = rings_of(&p);
    return ring && holds(x, &p, ring);
}

bool is_impossible(machine *x)
{
    return is_stuck(x) || (keeps(x, RULE_RING) && is_in_a_ring(x));
}
