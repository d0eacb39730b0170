/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of the commands that take a problem in texts: mesh, shape, placements, planner. One table
 * says what options there are; it drives the command line, case files and the help alike. Then the
 * problem itself: what the texts say, read into a world. An option's key is its name without
 * dashes, as case files and errors have it.
 */
#ifndef SHERD_CLI_OPTIONS_H
#define SHERD_CLI_OPTIONS_H

#include "base/diag.h"
#include "cli.h"
#include "sherd/plan.h"

/* In the order in which texts are read: each may use what those before it said. */
typedef enum cli_key {
    CLI_LAYOUT,
    CLI_MESH,
    CLI_TO_MESH,
    CLI_SHAPE,
    CLI_DTYPE,
    CLI_PLACEMENTS,
    CLI_CUTS,
    CLI_FROM,
    CLI_FROM_CUTS,
    CLI_TO,
    CLI_TO_CUTS,
    CLI_PLANNER,
    CLI_WEIGHTS,
    CLI_PRICE,
    CLI_PER_HOST,
    CLI_FLATTENED,
    CLI_MAX_BYTES,
    CLI_RANKS,
    CLI_RANKS_AS,
    CLI_ALL,
    CLI_CALIBRATE,
    CLI_JSON,
    CLI_CASES,
    CLI_SVG,
    CLI_RUN_RANKS,
    CLI_RUN_CORES,
    CLI_RUN_MEMORY,
    CLI_RUN_GRACE,
    CLI_RUN_DRAIN,
    CLI_RUN_PREFIX,
    CLI_RUN_LOGS,
    CLI_RUN_RECORD,
    CLI_RUN_TRACE,
    CLI_DRY_RANK,
    CLI_DRY_RATES,
    CLI_DRY_AXES,
    CLI_DRY_PRICE,
    CLI_KEYS
} cli_key;

/* Commands, as bits: which take an option. */
enum {
    CLI_OF_PLAN = 1,
    CLI_OF_LAYOUT = 2,
    CLI_OF_CHECK = 4,
    CLI_OF_SHOW = 8,
    CLI_OF_RUN = 16,
    CLI_OF_DRY = 32,
    CLI_OF_INFO = 64,
    CLI_OF_MOVES = CLI_OF_PLAN | CLI_OF_CHECK | CLI_OF_SHOW,
    CLI_OF_CASES = CLI_OF_PLAN | CLI_OF_LAYOUT | CLI_OF_CHECK
};

enum { CLI_FLATTENED_SETS = 16 };

/* exact, greedy and graph, by sherd_planner_name; the choice of PyTorch is no option. */
enum { CLI_PLANNERS = SHERD_PLANNER_TORCH };

/*
 * The texts that were given; NULL = not given. A flag has some text. Borrowed from argv or from a
 * line.
 */
typedef struct cli_values {
    const char *of[CLI_KEYS];
} cli_values;

/* What the texts say. Layouts and meshes live with the world. */
typedef struct cli_problem {
    sherd_world *world;
    sherd__diag *diag; /* of the world */
    const cli_values *values;
    cli_key blamed; /* whose text is wrong, or asks for what can not be; CLI_KEYS = nobody's */
    const sherd_mesh *mesh, *to_mesh;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    sherd_dtype dtype;             /* f32 unless it is given */
    const sherd_layout *from, *to; /* a single layout is `from` */
    sherd_planner planner;
    sherd_weights weights;
    sherd_price price;
    int64_t per_host, max_bytes; /* 0 = not given */
    unsigned flattened[CLI_FLATTENED_SETS];
    int flattened_count;
    int64_t first_rank, last_rank; /* last -1 = all */
    sherd_ranks_as ranks_as;
} cli_problem;

/* Name without dashes; "" for CLI_KEYS. */
const char *cli_key_name(cli_key key);
/* The key that a case of a command may have by this name; CLI_KEYS if there is none. */
cli_key cli_key_find(unsigned command, const char *name, bool in_case);

/*
 * Read a command line into texts. False: it was said on standard error why not. `command` is a bit,
 * `name` what it is called. Words without dashes are refused, except the layout of `show`.
 */
bool cli_values_read(cli_values *out, unsigned command, const char *name, int argc, char **argv);
/* The same for one option, at *i, which goes along to the last word of it. */
bool cli_value_read(cli_values *out, unsigned command, const char *name, char **argv, int *i);

/* Options up to a program, which begins at *at, behind "--" if that is there. False: as above. */
bool cli_values_before_program(cli_values *out, unsigned command, const char *name, int argc,
                               char **argv, int *at);
/* A whole number from low to high; -1 if the text is none. */
long cli_whole_number(const char *text, long low, long high);
/* Let programs that are started write a trace; NULL: as the environment says. False: no memory. */
bool cli_ask_trace(const char *path);

/*
 * Read all texts into a world, of which the mesh is made: collective where the world is not of
 * paper. A failure names the option in `blamed`; the world's diag has the text, and the column if
 * its source is that option's text.
 */
sherd_status cli_problem_read(cli_problem *out, sherd_world *world, const cli_values *values,
                              unsigned command);

/* Texts that one option has; problem.c. Each reads one option into the problem. */
typedef sherd_status cli_read(cli_problem *p, const char *text);
cli_read cli_read_layout, cli_read_mesh, cli_read_to_mesh, cli_read_shape, cli_read_dtype,
    cli_read_placements, cli_read_from, cli_read_to, cli_read_planner, cli_read_weights,
    cli_read_price, cli_read_per_host, cli_read_flattened, cli_read_max_bytes, cli_read_ranks,
    cli_read_ranks_as;

/*
 * A world of paper that has as many ranks as the meshes of these texts name: prices ask how many
 * there are, and its ranks are walked. Where a mesh can't be read it has all that there can be.
 * False: no memory for one.
 */
bool cli_paper_open(sherd_world **out, const cli_values *values);
/* How many ranks a world must have for a mesh. */
int64_t cli_ranks_for(const sherd_mesh *mesh);

/* Options for sherd_plan_create and sherd_redistribute; points into the problem. */
sherd_plan_options cli_plan_options(const cli_problem *p);

/* The text of a failure for people, without the name of the library's function. */
const char *cli_error_text(const sherd__diag *diag);

/* Print what a command is for and its options. */
void cli_help_options(unsigned command);

#endif
