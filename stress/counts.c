/* SPDX-License-Identifier: Apache-2.0 */
/* The counts of a run. */
#include "counts.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t all_rounds(const counts *c)
{
    int64_t sum = 0;

    for (int k = 0; k < ROUND_KINDS; k++)
        sum += c->rounds[k][0] + c->rounds[k][1];
    return sum;
}

void counts_add(counts *c, const round_plan *r, const tally *t, const outcome *o)
{
    c->rounds[r->kind][r->threads]++;
    c->bad += o->bad;
    c->sum.worlds += t->worlds;
    c->sum.programs += t->programs;
    c->sum.ops += t->ops;
    c->sum.elements += t->elements;
    for (int i = 0; i < INJECTIONS; i++)
        for (int s = 0; s < OUTCOMES; s++)
            c->sum.injected[i][s] += t->injected[i][s];
    if (r->kind == ROUND_ORPHANED) /* nobody was left to count it */
        c->sum.injected[INJECT_ORPHAN][o->bad ? 0 : -SHERD_EPEER]++;
    if (o->seconds > c->longest) {
        c->longest = o->seconds;
        c->longest_seed = r->seed;
    }
    c->longest_pause = o->pause > c->longest_pause ? o->pause : c->longest_pause;
    c->longest_told = o->told > c->longest_told ? o->told : c->longest_told;
}

/* ---- as a table ------------------------------------------------------------------------------ */

static bool was_injected(const counts *c, int injection)
{
    int64_t sum = 0;

    for (int s = 0; s < OUTCOMES; s++)
        sum += c->sum.injected[injection][s];
    return sum > 0;
}

static void print_injections(const counts *c)
{
    printf("\n%-20s", "faults, and how they end");
    for (int s = 0; s < OUTCOMES; s++)
        printf("%10s", sherd_status_name((sherd_status)-s));
    printf("\n");
    for (int i = 0; i < INJECTIONS; i++) {
        if (!was_injected(c, i))
            continue;
        printf("%-24s", injection_name(i));
        for (int s = 0; s < OUTCOMES; s++)
            printf("%10" PRId64, c->sum.injected[i][s]);
        printf("\n");
    }
}

void counts_print(const counts *c)
{
    int64_t rounds = all_rounds(c);

    printf("%-12s%10s%10s\n", "rounds", "threads", "processes");
    for (int k = 0; k < ROUND_KINDS; k++)
        if (c->rounds[k][0] + c->rounds[k][1])
            printf("  %-10s%10" PRId64 "%10" PRId64 "\n", round_name((round_kind)k),
                   c->rounds[k][1], c->rounds[k][0]);
    print_injections(c);
    printf("\n%" PRId64 " rounds in %.0f s (%.0f a second), %" PRId64 " worlds, %" PRId64
           " programs, %" PRId64 " operations, %" PRId64 " elements compared\n",
           rounds, c->seconds, c->seconds > 0 ? (double)rounds / c->seconds : 0, c->sum.worlds,
           c->sum.programs, c->sum.ops, c->sum.elements);
    printf("longest round %.2f s (%" PRIu64 "), longest pause %.2f s, last told of a death after "
           "%.2f s\n",
           c->longest, c->longest_seed, c->longest_pause, c->longest_told);
    printf("seed %" PRIu64 ": %" PRId64 " bad rounds\n", c->seed, c->bad);
}

/* ---- as JSON --------------------------------------------------------------------------------- */

static void write_rounds(FILE *f, const counts *c)
{
    fprintf(f, "  \"rounds\": {");
    for (int k = 0; k < ROUND_KINDS; k++)
        fprintf(f, "%s\n    \"%s\": {\"threads\": %" PRId64 ", \"processes\": %" PRId64 "}",
                k ? "," : "", round_name((round_kind)k), c->rounds[k][1], c->rounds[k][0]);
    fprintf(f, "\n  },\n");
}

static void write_injections(FILE *f, const counts *c)
{
    fprintf(f, "  \"faults\": {");
    for (int i = 0; i < INJECTIONS; i++) {
        fprintf(f, "%s\n    \"%s\": {", i ? "," : "", injection_name(i));
        for (int s = 0; s < OUTCOMES; s++)
            fprintf(f, "%s\"%s\": %" PRId64, s ? ", " : "", sherd_status_name((sherd_status)-s),
                    c->sum.injected[i][s]);
        fprintf(f, "}");
    }
    fprintf(f, "\n  },\n");
}

bool counts_write(const counts *c, const char *file)
{
    FILE *f = fopen(file, "w");

    if (!f)
        return false;
    fprintf(f, "{\n  \"seed\": %" PRIu64 ",\n  \"seconds\": %.3f,\n  \"bad\": %" PRId64 ",\n",
            c->seed, c->seconds, c->bad);
    write_rounds(f, c);
    write_injections(f, c);
    fprintf(f,
            "  \"worlds\": %" PRId64 ",\n  \"programs\": %" PRId64 ",\n  \"operations\": %" PRId64
            ",\n  \"elements\": %" PRId64 ",\n",
            c->sum.worlds, c->sum.programs, c->sum.ops, c->sum.elements);
    fprintf(f,
            "  \"longest_round\": %.3f,\n  \"longest_pause\": %.3f,\n  \"longest_told\": %.3f\n}\n",
            c->longest, c->longest_pause, c->longest_told);
    return fclose(f) == 0;
}
