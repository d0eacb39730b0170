/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `sherd dry --json` of a program, with rates that are given, so that nothing is measured; and the
 * arguments of a small model.
 */
#ifndef TESTS_DRY_RUN_H
#define TESTS_DRY_RUN_H

#include "program.h"
#include "cli.h"

#define MODEL   "--layers 2 --dim 48 --heads 4 --context 24 --batch 6 --steps 6"
#define NO_RATE "--rates f32=1e9,half=2e9,memory=1e10 "

static json_t *dry_run(const char *arguments)
{
    char line[1024];

    snprintf(line, sizeof line, "dry --json " NO_RATE "%s", arguments);
    const program_end *end = sherd(line);
    if (!CHECK_EQ(end->status, 0) || !CHECK_EQ(program_lines(end->out), 1))
        fprintf(stderr, "%s: %s\n", line, end->err);
    return parsed(end->out);
}

#endif
