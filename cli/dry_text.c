/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a dry world for people: what it came to, then what was computed and what was
 * called, the longest first; of the last step, or of everything where there were no steps.
 */
#include "dry.h"

#include <stdlib.h>
#include <string.h>

#include "members.h"
#include "table.h"

enum { ROWS = 12 }; /* of each table; the rest is one row */

/* "1.23 T": operations, also their rate. */
static const char *amount(char *out, size_t room, double value)
{
    static const char prefix[] = " kMGTPE";
    int i = 0;

    while (value >= 1000 && prefix[i + 1]) {
        value /= 1000;
        i++;
    }
    snprintf(out, room, i ? "%.3g %c" : "%.0f", value, prefix[i]);
    return out;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The rows of a table, sorted; what does not fit is added up in the last one. */
typedef struct rows {
    const struct column *columns;
    double seconds; /* of all, for shares */
    json_t *list;   /* owned */
} rows;

static int by_time(const void *a, const void *b)
{
    double x = cli_number(*(json_t *const *)a, "seconds"),
           y = cli_number(*(json_t *const *)b, "seconds");
    double n = cli_number(*(json_t *const *)a, "bytes") +
               cli_number(*(json_t *const *)a, "received_bytes");
    double m = cli_number(*(json_t *const *)b, "bytes") +
               cli_number(*(json_t *const *)b, "received_bytes");

    return x != y ? (x < y) - (x > y) : (n < m) - (n > m);
}

static void add_to(json_t *sum, const json_t *row, const char *key)
{
    const json_t *value = json_object_get(row, key);

    if (value)
        json_object_set_new(sum, key, json_real(cli_number(sum, key) + json_number_value(value)));
}

/* False: no memory. */
static bool sort(rows *out, const json_t *list)
{
    size_t count = json_array_size(list);
    json_t **row = calloc(count + 1, sizeof *row), *rest = json_object();

    out->list = json_array();
    for (size_t i = 0; row && i < count; i++)
        row[i] = json_array_get(list, i);
    if (row && count)
        qsort(row, count, sizeof *row, by_time);
    for (size_t i = 0; row && i < count; i++) {
        if (i < ROWS - 1 || count == ROWS) {
            json_array_append(out->list, row[i]);
            continue;
        }
        for (const char *const *key = (const char *const[]){"calls", "operations", "bytes",
                                                            "received_bytes", "seconds", NULL};
             *key; key++)
            add_to(rest, row[i], *key);
    }
    if (row && count > ROWS) {
        json_object_set_new(rest, "name", json_sprintf("%zu others", count - ROWS + 1));
        json_object_set_new(rest, "kind", json_sprintf("%zu others", count - ROWS + 1));
        json_array_append(out->list, rest);
    }
    json_decref(rest);
    free(row);
    return row && out->list;
}

typedef enum kind { TEXT, COUNT, AMOUNT, BYTES, SECONDS, SHARE } kind;

/* A table's columns: what stands above them, the key of a row, and how it is said. */
typedef struct column {
    const char *head, *key;
    kind kind;
} column;

enum { COLUMNS = 6 };

static const column work_columns[COLUMNS] = {
    {"computing", "name", TEXT},          {"calls", "calls", COUNT},
    {"operations", "operations", AMOUNT}, {"read, written", "bytes", BYTES},
    {"time", "seconds", SECONDS},         {"share", "seconds", SHARE}};
static const column call_columns[COLUMNS] = {
    {"calls", "kind", TEXT},      {"axes", "axes", TEXT},
    {"calls", "calls", COUNT},    {"received", "received_bytes", BYTES},
    {"time", "seconds", SECONDS}, {"share", "seconds", SHARE}};

static void write_cell(char *out, size_t room, const void *data, int64_t row, int number_of)
{
    const rows *all = data;
    const column *c = &all->columns[number_of];
    const json_t *r = json_array_get(all->list, row < 0 ? 0 : (size_t)row);
    double value = cli_number(r, c->key);

    if (row < 0)
        snprintf(out, room, "%s", c->head);
    else if (c->kind == TEXT)
        snprintf(out, room, "%s", cli_text(r, c->key));
    else if (c->kind == COUNT)
        snprintf(out, room, "%.0f", value);
    else if (c->kind == AMOUNT)
        amount(out, room, value);
    else if (c->kind == BYTES)
        cli_bytes_text(out, room, (int64_t)value);
    else if (c->kind == SECONDS)
        cli_seconds_text(out, room, value);
    else
        snprintf(out, room, "%.1f %%", all->seconds > 0 ? 100 * value / all->seconds : 0);
}

static bool print_rows(FILE *to, const json_t *list, double seconds, const column *columns)
{
    rows r = {.columns = columns, .seconds = seconds};
    bool good = sort(&r, list);
    cli_table table = {.rows = (int64_t)json_array_size(r.list),
                       .columns = COLUMNS,
                       .data = &r,
                       .cell = write_cell};

    for (int i = 0; i < COLUMNS; i++)
        table.right |= columns[i].kind == TEXT ? 0 : 1u << i;
    if (good && table.rows > 0) {
        fputc('\n', to);
        cli_table_print(to, &table);
    }
    json_decref(r.list);
    return good;
}

/* ---- totals ---------------------------------------------------------------------------------- */

double cli_dry_sum(const json_t *list, const char *key)
{
    double all = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        all += cli_number(json_array_get(list, i), key);
    return all;
}

static void print_totals(FILE *to, const char *name, const json_t *counts)
{
    const json_t *work = json_object_get(counts, "work"), *calls = json_object_get(counts, "calls");
    char whole[32], computing[32], calling[32], operations[32], received[32];

    fprintf(
        to, "%-11s %s: %s for %s operations, %s for %.0f calls that receive %s\n", name,
        cli_seconds_text(whole, sizeof whole, cli_number(counts, "seconds")),
        cli_seconds_text(computing, sizeof computing, cli_dry_sum(work, "seconds")),
        amount(operations, sizeof operations, cli_dry_sum(work, "operations")),
        cli_seconds_text(calling, sizeof calling, cli_dry_sum(calls, "seconds")),
        cli_dry_sum(calls, "calls"),
        cli_bytes_text(received, sizeof received, (int64_t)cli_dry_sum(calls, "received_bytes")));
}

/* "1.23 TFLOP/s", "5 FLOP/s". */
static const char *rate(char *out, size_t room, double value)
{
    char text[32];

    amount(text, sizeof text, value);
    snprintf(out, room, "%s%sFLOP/s", text, strchr(text, ' ') ? "" : " ");
    return out;
}

static void print_rates(FILE *to, const json_t *rates)
{
    char f32[48], half[48], memory[32];

    fprintf(to, "rates       %s of f32, %s of 16 bits, %s/s of memory\n",
            rate(f32, sizeof f32, cli_number(rates, "f32")),
            rate(half, sizeof half, cli_number(rates, "half")),
            cli_bytes_text(memory, sizeof memory, (int64_t)cli_number(rates, "memory")));
}

/* "12 GiB of tensors at most: parameters 3 GiB, ...", what is nothing left out. */
static void print_memory(FILE *to, const json_t *memory)
{
    const json_t *peak = json_object_get(memory, "peak");
    static const char *const uses[] = {"parameters", "gradients", "optimizers", "saved", "other"};
    char bytes[32];

    fprintf(to, "memory      %s of tensors at most",
            cli_bytes_text(bytes, sizeof bytes, (int64_t)cli_number(memory, "peak_bytes")));
    for (size_t i = 0, some = 0; i < sizeof uses / sizeof *uses; i++)
        if (cli_number(peak, uses[i]) > 0)
            fprintf(to, "%s%s %s", some++ ? ", " : ": ", uses[i],
                    cli_bytes_text(bytes, sizeof bytes, (int64_t)cli_number(peak, uses[i])));
    fputc('\n', to);
}

const json_t *cli_dry_counts(const json_t *report)
{
    const json_t *step = json_object_get(report, "step");

    return json_is_object(step) ? step : json_object_get(report, "all");
}

bool cli_dry_print(FILE *to, const char *line)
{
    json_t *report = json_loads(line, 0, NULL);
    const json_t *all = json_object_get(report, "all"), *shown = cli_dry_counts(report);
    char name[48];

    if (!report || !all) {
        json_decref(report);
        return false;
    }
    fprintf(to, "\nrank %.0f of %.0f, dry: nothing was computed, nothing has moved\n",
            cli_number(report, "rank"), cli_number(report, "ranks"));
    if (*cli_text(report, "failure"))
        fprintf(to, "failure     %s\n", cli_text(report, "failure"));
    print_memory(to, json_object_get(report, "memory"));
    print_rates(to, json_object_get(report, "rates"));
    print_totals(to, "all", all);
    if (shown != all) {
        snprintf(name, sizeof name, "step %.0f", cli_number(report, "steps"));
        print_totals(to, name, shown);
    }
    double seconds = cli_number(shown, "seconds");
    bool good = print_rows(to, json_object_get(shown, "work"), seconds, work_columns) &&
                print_rows(to, json_object_get(shown, "calls"), seconds, call_columns);
    json_decref(report);
    return good;
}
