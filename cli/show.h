/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of `sherd show` share. */
#ifndef SHERD_CLI_SHOW_H
#define SHERD_CLI_SHOW_H

#include <stdio.h>

#include "picture.h"

/* How far a tensor of more than two dims is drawn. */
enum { CLI_SHEETS = 12 };

/* Letters are put into a terminal. */
typedef struct cli_screen {
    int width;  /* in letters */
    bool color; /* blocks have backgrounds */
} cli_screen;

/* What is drawn, and the plan if there are two sides; `plan` may be NULL. */
void cli_show_text(FILE *to, const cli_picture *picture, const sherd_plan *plan,
                   const cli_screen *screen);
void cli_show_svg(FILE *to, const cli_picture *picture, const sherd_plan *plan);

/* "A", "B", .., "Z", "AA", ..: a name for what has no room for its label. */
const char *cli_letter(char *out, size_t room, int number);
/* The plan in one line. */
void cli_plan_line(char *out, size_t room, const sherd_plan *plan);
/* The ranks that hold nothing: "3,5"; "" if there are none. */
void cli_idle_text(char *out, size_t room, const cli_side *side);

#endif
