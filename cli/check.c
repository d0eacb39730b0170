/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd check: moves real data between real ranks and compares every element; for a new machine.
 * The plan is first made in a paper world, so that errors in the arguments are reported before any
 * rank starts.
 */
#include "check.h"
#include "plan.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "layout/layout.h"
#include "world/dry.h"

/* ---- ranks ----------------------------------------------------------------------------------- */

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
    return SHERD_OK;
}

/* ---- findings -------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double cli_median(double *x, int count)
{
    qsort(x, (size_t)count, sizeof *x, compare);
    return count % 2 ? x[count / 2] : 0.5 * (x[count / 2 - 1] + x[count / 2]);
}

static bool put_findings(json_t *out, cli_findings *found)
{
    const sherd_plan_price *price = &found->price;
    double ratio = cli_plan_ratio(price);
    bool good = true;

    cli_put(&good, out, "exact", json_boolean(found->wrong == 0));
    cli_put(&good, out, "wrong", json_integer(found->wrong));
    cli_put(&good, out, "elements", json_integer(found->elements));
    cli_put(&good, out, "seconds", json_real(cli_median(found->seconds, CLI_RUNS)));
    cli_put(&good, out, "bytes_recv_max", json_integer(price->recv_max_bytes));
    cli_put(&good, out, "ratio", ratio < 0 ? json_null() : json_real(ratio));
    cli_put(&good, out, "ranks", json_integer(found->ranks));
    cli_put(&good, out, "predicted", json_real((double)price->picoseconds / 1e12));
    return good;
}

static sherd_status run(json_t *out, cli_problem *p, int ranks)
{
    cli_findings *found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_ANONYMOUS, -1, 0); /* zeroes */

    if (found == MAP_FAILED)
        return sherd__no_memory(p->diag, "sherd_check");
    sherd_status status = cli_check_run(found, p, ranks);
    bool good = put_findings(out, found);
    munmap(found, sizeof *found);
    return status == SHERD_OK ? cli_put_status(good, p) : status;
}

static sherd_status answer(json_t *out, cli_problem *p)
{
    const sherd_plan *plan;
    int ranks;
    sherd_status status = count_ranks(&ranks, p);

    if (status == SHERD_OK)
        status = cli_plan_make(&plan, p, p->planner);
    return status == SHERD_OK ? run(out, p, ranks) : status;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void print(FILE *to, const json_t *answer)
{
    const json_t *ratio = json_object_get(answer, "ratio");
    json_int_t wrong = json_integer_value(json_object_get(answer, "wrong"));
    char time[32], predicted[32], bytes[32];

    fprintf(to, "%s: %lld elements on %lld ranks", wrong ? "WRONG" : "exact",
            (long long)json_integer_value(json_object_get(answer, "elements")),
            (long long)json_integer_value(json_object_get(answer, "ranks")));
    if (wrong)
        fprintf(to, ", %lld of them wrong", (long long)wrong);
    fprintf(
        to, "\ntime      %s, %s predicted\n",
        cli_seconds_text(time, sizeof time, json_number_value(json_object_get(answer, "seconds"))),
        cli_seconds_text(predicted, sizeof predicted,
                         json_number_value(json_object_get(answer, "predicted"))));
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
    cli_job job;

    if (sherd__dry_is_asked())
        return cli_refuse("check", "SHERD_DRY is set: in a dry world nothing moves that could be "
                                   "checked");
    if (!cli_job_find(&job, "check"))
        return CLI_FAILED;
    if (!cli_values_read(&values, CLI_OF_CHECK, "check", argc, argv))
        return CLI_UNUSABLE;
    if (job.joined && values.of[CLI_CASES] && strcmp(values.of[CLI_CASES], "-") == 0)
        return cli_refuse("check", "--cases: ranks of a job need a file that all of them can read, "
                                   "not -");
    if (values.of[CLI_CALIBRATE])
        return cli_check_calibrate(&values);
    if (values.of[CLI_ALL])
        return cli_check_all(&values, &job);
    return cli_command_answer(&cli_check_command, &values);
}
