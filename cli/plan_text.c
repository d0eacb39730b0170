/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a table for people. Written from the JSON object, so that the two never say different
 * things.
 */
#include "plan.h"
#include "members.h"
#include "table.h"

/* ---- steps ----------------------------------------------------------------------------------- */

static void write_axes(char *out, size_t room, const json_t *axes)
{
    size_t length = 0;

    snprintf(out, room, "-");
    for (size_t i = 0; i < json_array_size(axes) && length < room; i++)
        length += (size_t)snprintf(out + length, room - length, "%s%s", i ? "," : "",
                                   json_string_value(json_array_get(axes, i)));
}

static void step_cell(char *out, size_t room, const void *data, int64_t row, int column)
{
    static const char *const head[] = {"step", "op",     "axes",   "from",
                                       "to",   "a rank", "in all", "time"};
    const json_t *step = json_array_get(data, row < 0 ? 0 : (size_t)row);

    if (row < 0)
        snprintf(out, room, "%s", head[column]);
    else if (column == 0)
        snprintf(out, room, "%lld", (long long)row + 1);
    else if (column == 2)
        write_axes(out, room, json_object_get(step, "axes"));
    else if (column == 5)
        cli_bytes_text(out, room, cli_integer(step, "bytes_recv_max"));
    else if (column == 6)
        cli_bytes_text(out, room, cli_integer(step, "bytes_recv_total"));
    else if (column == 7)
        cli_seconds_text(out, room, cli_number(step, "seconds"));
    else
        snprintf(out, room, "%s", cli_text(step, head[column]));
}

static void print_steps(FILE *to, const json_t *steps)
{
    const cli_table table = {.rows = (int64_t)json_array_size(steps),
                             .columns = 8,
                             .right = 1u << 5 | 1u << 6 | 1u << 7,
                             .data = steps,
                             .cell = step_cell};

    if (table.rows == 0)
        fputs("nothing to do: the layouts are equal\n", to);
    else
        cli_table_print(to, &table);
}

/* ---- totals ---------------------------------------------------------------------------------- */

/* "name  A a rank, B in all"; what is not known is left out. */
static void print_bytes(FILE *to, const char *name, const json_t *plan, const char *most,
                        const char *total)
{
    char bytes[32];

    fprintf(to, "%-9s ", name);
    if (json_is_integer(json_object_get(plan, most)))
        fprintf(to, "%s a rank%s", cli_bytes_text(bytes, sizeof bytes, cli_integer(plan, most)),
                total ? ", " : "\n");
    if (total)
        fprintf(to, "%s in all", cli_bytes_text(bytes, sizeof bytes, cli_integer(plan, total)));
}

static void print_totals(FILE *to, const json_t *plan)
{
    const json_t *ratio = json_object_get(plan, "ratio");
    char time[32];

    print_bytes(to, "received", plan, "bytes_recv_max", "bytes_recv_total");
    fputc('\n', to);
    print_bytes(to, "bound", plan, "lower_bound_max", "lower_bound_total");
    if (json_is_null(ratio) && cli_integer(plan, "lower_bound_total") == 0)
        fputs("; the plan receives more than nothing\n", to);
    else if (json_is_null(ratio))
        fputs("; how many times that the plan receives is not known\n", to);
    else
        fprintf(to, "; the plan receives %.4g times that\n", json_number_value(ratio));
    print_bytes(to, "sent", plan, "bytes_send_max", NULL);
    print_bytes(to, "peak", plan, "peak_bytes", NULL);
    fprintf(to, "time      %s under price %s",
            cli_seconds_text(time, sizeof time, cli_number(plan, "seconds")),
            cli_text(plan, "price"));
    fputs(json_is_true(json_object_get(plan, "proven")) ? ", proven the cheapest\n" : "\n", to);
    fprintf(to, "cost      %.12g\n", cli_number(plan, "cost"));
}

static void print_other(FILE *to, const json_t *other)
{
    char time[32], bytes[32];

    fprintf(to, "%-9s %s, %s a rank: %s\n", cli_text(other, "planner"),
            cli_seconds_text(time, sizeof time, cli_number(other, "seconds")),
            cli_bytes_text(bytes, sizeof bytes, cli_integer(other, "bytes_recv_max")),
            cli_text(other, "trace"));
}

void cli_plan_print(FILE *to, const json_t *answer)
{
    const json_t *others = json_object_get(answer, "others");

    fprintf(to, "from      %s\nto        %s\nplanner   %s\n\n", cli_text(answer, "from"),
            cli_text(answer, "to"), cli_text(answer, "planner"));
    print_steps(to, json_object_get(answer, "steps"));
    fprintf(to, "\ntrace     %s\n", cli_text(answer, "trace"));
    print_totals(to, answer);
    for (size_t i = 0; i < json_array_size(others); i++)
        print_other(to, json_array_get(others, i));
}
