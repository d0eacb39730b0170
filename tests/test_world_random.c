/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random programs after the recipe of the exhaustive model: right ones, the same with a failure
 * somewhere, and ones with a call dropped, changed or swapped. What a call that returns true brings
 * must be right in any case.
 */
#include "world/inside.h"
#include "world_programs.h"

/* ---- random programs ------------------------------------------------------------------------- */

static program random_program(uint64_t *dice, int ranks, int calls)
{
    static const unsigned pairs[3] = {3, 5, 6};
    const unsigned first = pairs[roll(dice, 3)], second = pairs[roll(dice, 3)];
    program p = ranks == 2 ? of2() : of(3, 4, 7, first, second);
    int open[MAX_RANKS][MAX_OPS], opened[MAX_RANKS] = {0}, next[MAX_RANKS] = {0};

    for (int c = 0; c < calls; c++) {
        int g = roll(dice, 3);
        bool walls = roll(dice, 5) == 0;
        unsigned reads[MAX_RANKS] = {0}, readers[MAX_RANKS] = {0};
        for (int r = 0; r < ranks; r++)
            for (int q = 0; q < ranks; q++)
                if (r != q && (p.members[g] >> r & 1) && (p.members[g] >> q & 1) && roll(dice, 3)) {
                    reads[r] |= 1u << q;
                    readers[q] |= 1u << r;
                }
        for (int r = 0; r < ranks; r++) {
            if (!(p.members[g] >> r & 1))
                continue;
            int src = roll(dice, 2), handle = next[r];
            if (roll(dice, 4) == 0 && opened[r] < 4) {
                int dst = 4 + handle % 4;
                open[r][opened[r]++] = handle;
                next[r]++;
                add(&p, r,
                    walls ? begin_wall(handle, g, src, dst, c)
                          : begin(handle, g, src, dst, reads[r], readers[r], c));
            } else {
                add(&p, r, walls ? wall(g, src, 2, c) : call(g, src, 2, reads[r], readers[r], c));
            }
            if (roll(dice, 3) == 0)
                add(&p, r, write_to(roll(dice, 3)));
            if (opened[r] && roll(dice, 2))
                add(&p, r, end(open[r][--opened[r]]));
        }
    }
    for (int r = 0; r < ranks; r++)
        while (opened[r])
            add(&p, r, end(open[r][--opened[r]]));
    clean(&p);
    return p;
}

/* A begun result of which the storage was begun again before its end would hold the later data:
 * leave those out. */
static bool ends_are_clear(const program *p)
{
    for (int r = 0; r < p->ranks; r++) {
        int holder[STORAGES];
        for (int i = 0; i < STORAGES; i++)
            holder[i] = -1;
        for (int i = 0; i < p->count[r]; i++) {
            const op *o = &p->ops[r][i];
            if (o->kind == BEGIN || o->kind == BEGIN_WALL) {
                if (holder[o->dst] >= 0)
                    return false;
                holder[o->dst] = o->handle;
            }
            for (int s = 0; o->kind == END && s < STORAGES; s++)
                holder[s] = holder[s] == o->handle ? -1 : holder[s];
        }
    }
    return true;
}

static program next_program(uint64_t *dice, int ranks, int calls)
{
    program p = random_program(dice, ranks, calls);

    while (!ends_are_clear(&p))
        p = random_program(dice, ranks, calls);
    return p;
}

static void random_right_programs_run(sherd_world *world)
{
    uint64_t dice = 11;

    for (int i = 0; i < 150; i++) {
        program p = next_program(&dice, sherd_world_ranks(world), 3 + i % 12);
        p.few = i % 2;
        expect(world, &p, 2, SHERD_OK, -1);
    }
}

/* Ranks that sleep at once look for rings of waits all the time: there is none in a right
 * program. */
static void right_programs_have_no_rings(sherd_world *world)
{
    uint64_t dice = 14;

    world->patience.spins = world->patience.most_spins = 0;
    world->patience.yields = world->patience.most_yields = 0;
    for (int i = 0; i < 150; i++) {
        program p = next_program(&dice, sherd_world_ranks(world), 3 + i % 12);
        p.few = i % 2;
        expect(world, &p, 2, SHERD_OK, -1);
    }
}

/* One rank fails at each of its ops in turn. */
static void a_failure_anywhere_reaches_all(sherd_world *world)
{
    uint64_t dice = 12;
    int ranks = sherd_world_ranks(world);

    for (int i = 0; i < 60; i++) {
        program p = next_program(&dice, ranks, 8);
        p.few = i % 2;
        int who = roll(&dice, ranks);
        if (p.count[who] < 2)
            continue; /* it only meets the others */
        int at = roll(&dice, p.count[who] - 1);
        expect(world, &p, 1, p.ops[who][at].kind == MEET ? SHERD_OK : SHERD_ENOTSUP,
               sherd_world_rank(world) == who ? at : -1);
    }
}

/* Drop a call, change one, or swap two. Returns what must come of it: EDIFFER, or 1 = that or
 * nothing. */
static int break_program(uint64_t *dice, program *p)
{
    int r = roll(dice, p->ranks), calls[MAX_OPS], count = 0;

    for (int i = 0; i < p->count[r]; i++)
        if (p->ops[r][i].kind == CALL || p->ops[r][i].kind == WALL)
            calls[count++] = i;
    if (count < 2)
        return 0;
    int a = calls[roll(dice, count)], b = calls[roll(dice, count)];
    op *ops = p->ops[r];
    switch (roll(dice, 3)) {
    case 0:
        memmove(&ops[a], &ops[a + 1], (size_t)(p->count[r] - a - 1) * sizeof *ops);
        p->count[r]--;
        return SHERD_EDIFFER;
    case 1:
        ops[a].id += 500;
        return SHERD_EDIFFER;
    default:
        if (a == b)
            return 0;
        op keep = ops[a];
        ops[a] = ops[b];
        ops[b] = keep;
        return ops[a].group == ops[b].group ? SHERD_EDIFFER : 1;
    }
}

static void random_wrong_programs_are_reported(sherd_world *world)
{
    uint64_t dice = 13;
    int broken = 0;

    for (int i = 0; i < 250; i++) {
        program p = next_program(&dice, sherd_world_ranks(world), 3 + i % 6);
        p.few = i % 2;
        int wanted = break_program(&dice, &p);
        if (!wanted)
            continue;
        broken++;
        expect(world, &p, 1, wanted, -1);
    }
    CHECK(broken > 150);
}

static const check_test tests[] = {
    {TEST(random_right_programs_run), {2, 3}},
    {TEST(right_programs_have_no_rings), {2, 3}},
    {TEST(a_failure_anywhere_reaches_all), {2, 3}},
    {TEST(random_wrong_programs_are_reported), {2, 3}},
};
CHECK_MAIN(tests)
