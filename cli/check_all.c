/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check --all: moves of all kinds, with every planner and dtype, for a new installation.
 * Costs a start of ranks for each, some seconds in all.
 */
#include "check.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

typedef struct move {
    const char *mesh, *to_mesh, *shape, *from, *to, *from_cuts;
} move;

static const move moves[] = {
    {"2", NULL, "8x6", "S(0)", "S(1)", NULL},
    {"2", NULL, "8x6", "S(0)", "R", NULL},
    {"2", NULL, "8x6", "R", "S(1)", NULL},
    {"2", NULL, "8x6", "P", "R", NULL},
    {"2", NULL, "8x6", "P", "S(0)", NULL},
    {"3", NULL, "7x5", "S(0)", "S(1)", NULL},     /* a short last shard */
    {"3", NULL, "7x5", "S(0)", "R", "0:1,5,1"},   /* explicit cuts */
    {"4", NULL, "5x3", "S(0)", "S(1)", NULL},     /* an empty shard */
    {"4", NULL, "0x3", "S(0)", "R", NULL},        /* no elements */
    {"2x2", NULL, "5x3", "S(0)S(0)", "RR", NULL}, /* uneven and nested */
    {"2x2", NULL, "9x7", "S(0)S(1)", "S(1)S(0)", NULL},
    {"2x2", NULL, "9x7", "S(0)[1]S(0)[0]", "RS(1)", NULL},
    {"2x2", NULL, "9x7", "P(sum)S(0)", "S(0)R", NULL},
    {"2x2", NULL, "9x7", "P(sum)P(sum)", "RS(0)", NULL},
    {"2x2", NULL, "9x7", "P(sum)P(avg)", "RR", NULL},
    {"2x2", NULL, "9x7", "P(avg)P(sum)", "RP(sum)", NULL},
    {"2x2", NULL, "9x7", "P(min)R", "S(0)S(1)", NULL},
    {"2x2", NULL, "9x7", "P(max)S(1)", "RR", NULL},
    {"2x2", NULL, "9x7", "P(product)S(0)", "RS(1)", NULL},
    {"2x2", NULL, "9x7", "RS(1)", "P(sum)S(1)", NULL}, /* a replica becomes addends */
    {"2x2", NULL, "9x7", "S(0)R", "S(1)P(max)", NULL},
    {"2x2x2", NULL, "6x5x4", "S(0)S(1)S(2)", "S(2)S(0)S(1)", NULL},
    {"2x4", NULL, "512x512", "RS(1)", "S(0)S(0)", NULL},
    {"2x2", "4", "9x7", "S(0)S(1)", "S(1)", NULL}, /* from one mesh to another */
    {"2", "x=2@2,3", "9x7", "P", "S(1)", NULL},
};

enum { MOVES = sizeof moves / sizeof moves[0] };

/* The first ones have fractions. */
enum { FRACTIONS = 3 };
static const char *const dtypes[] = {"f32", "f64", "bf16", "f16", "i32", "i64", "i8", "u8", "bool"};

/* How it goes. */
typedef struct tally {
    const cli_values *given;
    const cli_job *job;
    int done, bad, skipped;
} tally;

static cli_values values_of(const tally *t, const move *m, const char *planner, const char *dtype)
{
    cli_values v = *t->given;

    v.of[CLI_MESH] = m->mesh;
    v.of[CLI_TO_MESH] = m->to_mesh;
    v.of[CLI_SHAPE] = m->shape;
    v.of[CLI_FROM] = m->from;
    v.of[CLI_FROM_CUTS] = m->from_cuts;
    v.of[CLI_TO] = m->to;
    v.of[CLI_PLANNER] = planner;
    v.of[CLI_DTYPE] = dtype;
    return v;
}

/* Whether a job has too few ranks for a move. */
static bool is_too_large(const tally *t, const cli_values *v)
{
    sherd_world *paper;

    if (!t->job->joined || !cli_paper_open(&paper, v))
        return false;
    bool large = sherd_world_ranks(paper) > t->job->ranks;
    return sherd_world_close(paper) == SHERD_OK && large;
}

/* "ok     4.1 us    1.0 us  3      7x5  f32  exact  S(0) -> R" */
static void print_line(const json_t *answer, const cli_values *v, bool good)
{
    const char *error = json_string_value(json_object_get(answer, "error"));
    double seconds = json_number_value(json_object_get(answer, "seconds"));
    double guess = json_number_value(json_object_get(answer, "predicted"));
    char time[32], predicted[32];

    printf("%-5s %9s  %9s  %-7s %-8s %-4s  %-6s  %s -> %s%s%s%s%s\n", good ? "ok" : "WRONG",
           cli_seconds_text(time, sizeof time, seconds),
           cli_seconds_text(predicted, sizeof predicted, guess), v->of[CLI_MESH], v->of[CLI_SHAPE],
           v->of[CLI_DTYPE], v->of[CLI_PLANNER], v->of[CLI_FROM], v->of[CLI_TO],
           v->of[CLI_TO_MESH] ? " on " : "", v->of[CLI_TO_MESH] ? v->of[CLI_TO_MESH] : "",
           error ? ": " : "", error ? error : "");
}

static void print_json(json_t *answer, const cli_values *v)
{
    static const cli_key keys[] = {CLI_MESH, CLI_TO_MESH, CLI_SHAPE,   CLI_DTYPE,
                                   CLI_FROM, CLI_TO,      CLI_PLANNER, CLI_FROM_CUTS};
    json_t *id = json_object();
    bool good = id != NULL;

    for (int i = 0; i < (int)(sizeof keys / sizeof keys[0]); i++)
        if (v->of[keys[i]])
            cli_put(&good, id, cli_key_name(keys[i]), cli_string(v->of[keys[i]]));
    cli_put(&good, answer, "id", id);
    char *text = good ? cli_text_of(answer) : NULL;
    cli_print_text(text);
    free(text);
}

static void check_one(tally *t, const move *m, const char *planner, const char *dtype)
{
    const cli_values v = values_of(t, m, planner, dtype);
    const cli_case c = {.command = &cli_check_command};
    cli_verdict verdict;

    if (is_too_large(t, &v)) {
        t->skipped++;
        return;
    }
    json_t *answer = cli_answer(&c, &v, NULL, &verdict);

    t->done++;
    t->bad += verdict != CLI_GOOD;
    if (v.of[CLI_JSON])
        print_json(answer, &v);
    else
        print_line(answer, &v, verdict == CLI_GOOD);
    fflush(stdout);
    json_decref(answer);
}

/* Only what the command line asks for; the others' planners stay within one mesh. */
static void check_planners(tally *t, const move *m, const char *dtype)
{
    const char *only = t->given->of[CLI_PLANNER];

    for (int i = 0; i < CLI_PLANNERS; i++) {
        const char *name = sherd_planner_name((sherd_planner)i);
        if ((!only || strcmp(only, name) == 0) && !(m->to_mesh && i != SHERD_PLANNER_EXACT))
            check_one(t, m, name, dtype);
    }
}

/*
 * All moves as f32; in the other dtypes one that copies, and those that add, where there is such a
 * sum.
 */
static void check_list(tally *t)
{
    const char *only = t->given->of[CLI_DTYPE];

    for (int i = 0; i < MOVES; i++)
        check_planners(t, &moves[i], only ? only : "f32");
    for (int i = 1; i < (int)(sizeof dtypes / sizeof dtypes[0]) && !only; i++)
        for (int j = 0; j < MOVES; j++) {
            bool adds = strchr(moves[j].from, 'P') != NULL;
            bool averages = strstr(moves[j].from, "avg") != NULL; /* not of integers */
            if (adds ? !averages || i <= FRACTIONS : strcmp(moves[j].mesh, "3") == 0)
                check_planners(t, &moves[j], dtypes[i]);
        }
}

int cli_check_all(const cli_values *values, const cli_job *job)
{
    static const cli_key own[] = {CLI_MESH, CLI_TO_MESH, CLI_SHAPE,     CLI_FROM,
                                  CLI_TO,   CLI_TO_CUTS, CLI_FROM_CUTS, CLI_CASES};
    tally t = {.given = values, .job = job};

    for (int i = 0; i < (int)(sizeof own / sizeof own[0]); i++)
        if (values->of[own[i]])
            return cli_refuse("check", "--all has moves of its own: expected no --%s with it",
                              cli_key_name(own[i]));
    if (!values->of[CLI_JSON])
        printf("%-5s %9s  %9s\n", "", "measured", "predicted");
    check_list(&t);
    if (!values->of[CLI_JSON] && t.skipped)
        printf("%d moves need more ranks than the %d of this job\n", t.skipped, job->ranks);
    if (!values->of[CLI_JSON])
        printf("%d moves, %d wrong\n", t.done, t.bad);
    return cli_flush("check") && t.bad == 0 ? 0 : CLI_FAILED;
}
