/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arena's protocol, run in all ways that there are (tests/model/, docs/arena.md): small
 * programs of two and three ranks, with a failure or a death anywhere, with stores that others see
 * late; and each rule taken away, which must go wrong in a known program. SHERD_PROOF=1 looks
 * at up to three million states of each program, and says which have more; else it takes a moment.
 */
#define CHECK_PURE
#include "check.h"

#include "model/programs.h"
#include "model/search.h"

enum { SHORT = 4 * 1000, LONG = 3 * 1000 * 1000 /* states */ };
enum { MOST_PROGRAMS = 64, ORDERS = 3 };

/* What was looked at: of a program, in which order, with a failure, with a death. */
static bool looked_at[MOST_PROGRAMS][ORDERS][2][2];

static bool is_proof(void)
{
    return getenv("SHERD_PROOF") != NULL;
}

static const char *const orders[] = {"in order", "TSO", "release"};

/*
 * A program must be right in all its runs, or in as many as there is time for. How many states
 * those have; 0: it was looked at before.
 */
static long runs_are_right(const model_program *p, model_order order, bool all)
{
    ptrdiff_t number = find_program(p->name) - model_programs;
    bool *known = &looked_at[number][order][p->failures][p->deaths];

    if (*known)
        return 0;
    *known = true;
    model_found found = search(p, 0, order, all ? LONG : SHORT, false);

    if (found.fault == search_limit && all)
        printf("  not all runs of \"%s\" (%s, %d failures, %d deaths)\n", p->name, orders[order],
               p->failures, p->deaths);
    if (!CHECK(!found.fault || found.fault == search_limit)) {
        fprintf(stderr, "%s (%s, %d failures, %d deaths): %s\n", p->name, orders[order],
                p->failures, p->deaths, found.fault);
        search(p, 0, order, LONG, true);
    }
    return found.states;
}

static long with_trouble(const model_program *program, model_order order)
{
    model_program p = *program;
    long states = runs_are_right(&p, order, is_proof());

    if (p.sleeps && !is_proof())
        return states;
    p.failures = 1;
    states += runs_are_right(&p, order, is_proof());
    p.failures = 0;
    p.deaths = 1;
    return states + runs_are_right(&p, order, is_proof());
}

static void no_run_of_any_program_goes_wrong(void)
{
    long states = 0;

    CHECK(model_program_count <= MOST_PROGRAMS);
    for (int i = 0; i < model_program_count; i++)
        states += with_trouble(&model_programs[i], IN_ORDER);
    if (is_proof())
        printf("  %ld states\n", states);
}

/* Of three ranks there are too many runs; the short form leaves out failures and deaths. */
static void nor_does_one_where_stores_are_seen_late(void)
{
    long states = 0;

    for (model_order order = TSO; order <= RELEASE; order++)
        for (int i = 0; i < model_program_count; i++) {
            if (model_programs[i].ranks > 2)
                continue;
            states += is_proof() ? with_trouble(&model_programs[i], order)
                                 : runs_are_right(&model_programs[i], order, false);
        }
    if (is_proof())
        printf("  %ld states\n", states);
}

/*
 * A rule, and a program in which it is missed: in which order of stores, with a failure, with a
 * death.
 */
typedef struct loss {
    model_rule rule;
    const char *program;
    model_order order;
    int failures, deaths;
} loss;

#define RULE_TEXT(name, file, what) file ": " what,

static const char *const rule_texts[] = {RULES(RULE_TEXT)};

static const loss losses[] = {
#include "model/losses.inc"
};

static void without_a_rule_some_run_goes_wrong(void)
{
    uint64_t seen = 0;

    for (int i = 0; i < LEN(losses); i++) {
        const loss *l = &losses[i];
        const model_program *program = find_program(l->program);
        seen |= UINT64_C(1) << l->rule;
        if (!CHECK(program != NULL))
            continue;
        model_program p = *program;
        p.failures = l->failures;
        p.deaths = l->deaths;
        runs_are_right(&p, l->order, false);
        model_found found = search(&p, UINT64_C(1) << l->rule, l->order, LONG, false);
        if (!CHECK(found.fault && found.fault != search_limit))
            fprintf(stderr, "nothing goes wrong without \"%s\"\n", rule_texts[l->rule]);
        else if (is_proof())
            printf("  without \"%s\": %s (%ld states)\n", rule_texts[l->rule], found.fault,
                   found.states);
    }
    for (int rule = 0; rule < RULE_COUNT; rule++)
        if (!CHECK(seen >> rule & 1))
            fprintf(stderr, "no program is there for \"%s\"\n", rule_texts[rule]);
}

static const check_test tests[] = {
    {TEST(no_run_of_any_program_goes_wrong)},
    {TEST(nor_does_one_where_stores_are_seen_late)},
    {TEST(without_a_rule_some_run_goes_wrong)},
};
CHECK_MAIN(tests)
