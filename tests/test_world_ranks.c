/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks do what sets do, however many words they take: compared with lists of yes and
 * no. */
#define CHECK_PURE
#include "check.h"
#include "world/ranks.h"

enum { TURNS = 20000 };

typedef struct model {
    sherd__ranks set;
    bool in[SHERD_MAX_RANKS];
} model;

static bool same(const model *m)
{
    int at = -1, count = 0;

    for (int q = 0; q < SHERD_MAX_RANKS; q++) {
        if (sherd__ranks_has(&m->set, q) != m->in[q])
            return false;
        if (!m->in[q])
            continue;
        count++;
        if ((at = sherd__ranks_next(&m->set, at + 1)) != q)
            return false;
    }
    return sherd__ranks_next(&m->set, at + 1) < 0 && sherd__ranks_none(&m->set) == (count == 0);
}

/* What is behind the words of a set is anything. */
static void begin(model *m, uint64_t *dice)
{
    memset(m->in, 0, sizeof m->in);
    for (int w = 0; w < SHERD__RANK_WORDS; w++)
        m->set.word[w] = (uint64_t)roll(dice, 1 << 30) * 0x9E3779B97F4A7C15u;
    sherd__ranks_clear(&m->set);
    for (int i = roll(dice, 40), most = 1 + roll(dice, SHERD_MAX_RANKS); i > 0; i--) {
        int q = roll(dice, most);
        sherd__ranks_add(&m->set, q);
        m->in[q] = true;
    }
    for (int i = roll(dice, 10); i > 0; i--) {
        int q = roll(dice, SHERD_MAX_RANKS);
        sherd__ranks_drop(&m->set, q);
        m->in[q] = false;
    }
}

static void sets_do_what_sets_do(void)
{
    static model a, b;
    uint64_t dice = 5;
    bool good = true;

    for (int turn = 0; turn < TURNS && good; turn++) {
        begin(&a, &dice);
        begin(&b, &dice);
        good = CHECK(same(&a)) && CHECK(same(&b));
        int op = roll(&dice, 4);
        bool equal = true;
        for (int q = 0; q < SHERD_MAX_RANKS; q++) {
            a.in[q] = op == 0   ? a.in[q] || b.in[q]
                      : op == 1 ? a.in[q] && b.in[q]
                      : op == 2 ? a.in[q] && !b.in[q]
                                : b.in[q];
            equal &= a.in[q] == b.in[q];
        }
        (op == 0   ? sherd__ranks_join
         : op == 1 ? sherd__ranks_meet
         : op == 2 ? sherd__ranks_less
                   : sherd__ranks_copy)(&a.set, &b.set);
        good = good && CHECK(same(&a)) && CHECK(sherd__ranks_equal(&a.set, &b.set) == equal);
    }
}

static void all_ranks_of_a_world_are_in_it(void)
{
    static model m;

    for (int ranks = 1; ranks <= SHERD_MAX_RANKS; ranks++) {
        sherd__ranks_fill(&m.set, ranks);
        for (int q = 0; q < SHERD_MAX_RANKS; q++)
            m.in[q] = q < ranks;
        if (!CHECK(same(&m)))
            break;
    }
}

/* What is stored is found again, and nothing that a former set or a stranger has left there. */
static void shared_sets_hold_the_ranks_of_the_world(void)
{
    static model m;
    static sherd__shared_ranks shared;
    uint64_t dice = 9;

    for (int turn = 0; turn < 2000; turn++) {
        int ranks = 1 + roll(&dice, SHERD_MAX_RANKS);
        begin(&m, &dice);
        for (int w = 0; w < SHERD__RANK_WORDS; w++)
            atomic_store(&shared.word[w], ~UINT64_C(0));
        if (turn % 2)
            sherd__ranks_store(&shared, &m.set, ranks);
        for (int q = 0; q < SHERD_MAX_RANKS; q++)
            m.in[q] = q < ranks && (turn % 2 ? m.in[q] : true);
        sherd__ranks_load(&m.set, &shared, ranks);
        if (!CHECK(same(&m)))
            break;
    }
}

static const check_test tests[] = {
    {TEST(sets_do_what_sets_do)},
    {TEST(all_ranks_of_a_world_are_in_it)},
    {TEST(shared_sets_hold_the_ranks_of_the_world)},
};
CHECK_MAIN(tests)
