/* SPDX-License-Identifier: Apache-2.0 */
/* Printing tables and amounts. */
#include "table.h"

#include "plan/inside.h"

#include <string.h>

static int width_of(const cli_table *table, int column)
{
    char cell[CLI_CELL];
    size_t width = 0;

    for (int64_t row = -1; row < table->rows; row++) {
        table->cell(cell, sizeof cell, table->data, row, column);
        if (strlen(cell) > width)
            width = strlen(cell);
    }
    return (int)width;
}

void cli_table_print(FILE *to, const cli_table *table)
{
    int width[CLI_COLUMNS];
    char cell[CLI_CELL];

    for (int i = 0; i < table->columns; i++)
        width[i] = width_of(table, i);
    for (int64_t row = -1; row < table->rows; row++)
        for (int i = 0; i < table->columns; i++) {
            bool last = i == table->columns - 1;
            table->cell(cell, sizeof cell, table->data, row, i);
            if (table->right >> i & 1)
                fprintf(to, "%*s", width[i], cell);
            else
                fprintf(to, "%-*s", last ? 0 : width[i], cell);
            fputs(last ? "\n" : "  ", to);
        }
}

const char *cli_bytes_text(char *out, size_t room, int64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes / 1024;
    int i = 0;

    if (bytes >= SHERD__MOST) { /* where figures stop */
        snprintf(out, room, "4 EiB or more");
        return out;
    }
    if (bytes < 1024) {
        snprintf(out, room, "%lld B", (long long)bytes);
        return out;
    }
    for (; value >= 1024 && i < 5; i++)
        value /= 1024;
    snprintf(out, room, "%.4g %s", value, units[i]);
    return out;
}

const char *cli_seconds_text(char *out, size_t room, double seconds)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    int i = 0;

    if (!(seconds > 0)) {
        snprintf(out, room, "0");
        return out;
    }
    if (seconds >= 1e-12 * (double)SHERD__MOST) { /* where figures stop */
        snprintf(out, room, "53 days or more");
        return out;
    }
    for (; seconds < 1 && i < 3; i++)
        seconds *= 1000;
    snprintf(out, room, "%.4g %s", seconds, units[i]);
    return out;
}
