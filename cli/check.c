/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check: moves real data between real ranks and compares every element; for a machine that is new. The plan is
 * made on paper first, so that what is wrong with the texts is said before any rank starts.
 */
#include "check.h"
#include "plan.h"
#include "table.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "layout/layout.h"
#include "world/launch.h"

/* ---- ranks ------------------------------------------------------------------------------------ */

static sherd_status count_ranks(int *out, cli_problem *p)
{
    const sherd_mesh *meshes[] = {p->mesh, p->to_mesh};
    static const cli_key keys[] = {CLI_MESH, CLI_TO_MESH};

    *out = 1;
    for (int i = 0; i < 2; i++) {
        int64_t ranks = meshes[i] ? cli_ranks_for(meshes[i]) : 1;
        if (ranks > SHERD_MAX_RANKS) {
            p->blamed = keys[i];
            return sherd__fail(p->diag, SHERD_ELIMIT,
                               "the mesh (%.100s) needs %lld ranks: at most %d can be started here",
                               sherd_mesh_text(meshes[i]), (long long)ranks, SHERD_MAX_RANKS);
        }
        *out = ranks > *out ? (int)ranks : *out;
    }
    if (sherd__is_launched())
        return sherd__fail(p->diag, SHERD_EINVAL,
                           "check starts its own ranks: run it without `sherd run`");
    return SHERD_OK;
}

/* ---- findings --------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The median of the runs, each as long as its slowest rank. */
static double median(const cli_findings *found, int ranks)
{
    double longest[CLI_RUNS] = {0};

    for (int i = 0; i < CLI_RUNS; i++)
        for (int r = 0; r < ranks; r++)
            longest[i] = found->seconds[i][r] > longest[i] ? found->seconds[i][r] : longest[i];
    qsort(longest, CLI_RUNS, sizeof longest[0], compare);
    return longest[CLI_RUNS / 2];
}

static bool put_findings(json_t *out, const cli_findings *found, int ranks)
{
    int64_t wrong = 0, elements = 0;
    bool good = true;

    for (int r = 0; r < ranks; r++) {
        wrong += found->wrong[r];
        elements += found->elements[r];
    }
    cli_put(&good, out, "exact", json_boolean(wrong == 0));
    cli_put(&good, out, "wrong", json_integer(wrong));
    cli_put(&good, out, "elements", json_integer(elements));
    cli_put(&good, out, "seconds", json_real(median(found, ranks)));
    return good;
}

static sherd_status run(json_t *out, cli_problem *p, const sherd_plan_price *price, int ranks)
{
    double ratio = cli_plan_ratio(price);
    cli_findings *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* zeroes */

    if (found == MAP_FAILED)
        return sherd__no_memory(p->diag, "sherd_check");
    sherd_status status = cli_check_run(found, p, ranks);
    bool good = put_findings(out, found, ranks);
    munmap(found, sizeof *found);
    cli_put(&good, out, "bytes_recv_max", json_integer(price->recv_max_bytes));
    cli_put(&good, out, "ratio", ratio < 0 ? json_null() : json_real(ratio));
    cli_put(&good, out, "ranks", json_integer(ranks));
    return status == SHERD_OK ? cli_put_status(good, p) : status;
}

static sherd_status answer(json_t *out, cli_problem *p)
{
    const sherd_plan *plan;
    int ranks;
    sherd_status status = count_ranks(&ranks, p);

    if (status == SHERD_OK)
        status = cli_plan_make(&plan, p, p->planner);
    if (status != SHERD_OK)
        return status;
    const sherd_plan_price price = *sherd_plan_price_of(plan);
    return run(out, p, &price, ranks);
}

/* ---- for people ------------------------------------------------------------------------------- */

static void print(FILE *to, const json_t *answer)
{
    const json_t *ratio = json_object_get(answer, "ratio");
    json_int_t wrong = json_integer_value(json_object_get(answer, "wrong"));
    char time[32], bytes[32];

    fprintf(to, "%s: %lld elements on %lld ranks", wrong ? "WRONG" : "exact",
            (long long)json_integer_value(json_object_get(answer, "elements")),
            (long long)json_integer_value(json_object_get(answer, "ranks")));
    if (wrong)
        fprintf(to, ", %lld of them wrong", (long long)wrong);
    fprintf(
        to, "\ntime      %s\n",
        cli_seconds_text(time, sizeof time, json_number_value(json_object_get(answer, "seconds"))));
    fprintf(to, "received  %s a rank",
            cli_bytes_text(bytes, sizeof bytes,
                           json_integer_value(json_object_get(answer, "bytes_recv_max"))));
    if (json_is_null(ratio))
        fputs("\n", to);
    else
        fprintf(to, ", in all %.4g times the bound\n", json_number_value(ratio));
}

const cli_command cli_check_command = {"check", CLI_OF_CHECK, answer, print};

int cli_check(int argc, char **argv)
{
    cli_values values;

    if (!cli_values_read(&values, CLI_OF_CHECK, "check", argc, argv))
        return CLI_UNUSABLE;
    if (values.of[CLI_ALL])
        return cli_check_all(&values);
    return cli_command_answer(&cli_check_command, &values);
}
