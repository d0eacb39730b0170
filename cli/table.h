/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and amounts for people. */
#ifndef SHERD_CLI_TABLE_H
#define SHERD_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CLI_CELL = 1024, CLI_COLUMNS = 8 };

/*
 * Columns as wide as their widest cell, two blanks between them. `cell` writes one into out[room];
 * row -1 is the head. It is asked for each twice, so nothing is kept: a table may be as long as it
 * likes. Bit i of `right`: column i stands to the right.
 */
typedef struct cli_table {
    int64_t rows;
    int columns;
    unsigned right;
    const void *data;
    void (*cell)(char *out, size_t room, const void *data, int64_t row, int column);
} cli_table;

void cli_table_print(FILE *to, const cli_table *table);

/* "24 B", "1.5 KiB", "2.0 GiB" */
const char *cli_bytes_text(char *out, size_t room, int64_t bytes);
/* "1.25 us", "3.1 ms", "0" */
const char *cli_seconds_text(char *out, size_t room, double seconds);

#endif
