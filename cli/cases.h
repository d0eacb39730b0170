/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that answer a problem with a JSON object: `sherd plan`, `layout`, `check`. A problem
 * comes from the command line, or from the lines of a case file, each of which is answered on its
 * own: in a paper world of its own, so that nothing grows and no line knows of another.
 */
#ifndef SHERD_CLI_CASES_H
#define SHERD_CLI_CASES_H

#include <jansson.h>
#include <stdio.h>

#include "options.h"

typedef struct cli_command {
    const char *name;
    unsigned bit; /* CLI_OF_... */
    /*
     * Fill the object; a failure is in the problem's diag, with the option to blame. NULL values
     * never get in.
     */
    sherd_status (*answer)(json_t *out, cli_problem *problem);
    void (*print)(FILE *to, const json_t *answer); /* the same for people */
} cli_command;

extern const cli_command cli_plan_command, cli_layout_command, cli_check_command;

typedef enum cli_verdict {
    CLI_GOOD,
    CLI_WRONG,     /* answered, but elements are wrong */
    CLI_REFUSED,   /* the texts are good, what they ask for is not */
    CLI_UNREADABLE /* a text is bad or missing */
} cli_verdict;

/* What does not change from line to line. */
typedef struct cli_case {
    const cli_command *command;
    cli_values defaults;     /* for what a line does not say */
    int64_t fail_allocation; /* tests: the allocation of the world that fails; 0 = none */
} cli_case;

/*
 * The answer to some texts, or {"error","key","column"}; `id` is passed through (NULL = none;
 * borrowed). NULL for lack of memory, then the verdict is CLI_REFUSED.
 */
json_t *cli_answer(const cli_case *c, const cli_values *values, json_t *id, cli_verdict *verdict);

/*
 * What one line of a case file is answered, without an end of line; free() it. NULL and verdict as
 * cli_answer.
 */
char *cli_case_answer(const cli_case *c, const char *line, size_t length, cli_verdict *verdict);

/* A whole command: reads the command line, answers, prints; the exit status. */
int cli_command_run(const cli_command *command, int argc, char **argv);
/* The same for texts that were read already. */
int cli_command_answer(const cli_command *command, const cli_values *values);

/* ---- writing JSON ---------------------------------------------------------------------------- */

/*
 * object[key] = value, which is taken over. False in *good where value is NULL or there is no
 * memory.
 */
void cli_put(bool *good, json_t *object, const char *key, json_t *value);
void cli_append(bool *good, json_t *array, json_t *value);
/* The value itself if all of it is there, else NULL: then it is released. */
json_t *cli_whole(bool good, json_t *value);
/* A text from outside as one line: what is no UTF-8 becomes question marks. NULL: no memory. */
json_t *cli_string(const char *text);
json_t *cli_integers(const int64_t *values, int count);
/* Text of an answer on one line; free() it. NULL for lack of memory. */
char *cli_text_of(const json_t *answer);
/* Print such a line; NULL: an error object that says why there is none. */
void cli_print_text(const char *text);
/* ENOMEM in the diag unless `good`. */
sherd_status cli_put_status(bool good, cli_problem *p);

#endif
