/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, the command line read by it, and the help that it gives. */
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world/world.h"

typedef struct option {
    const char *name;
    unsigned commands; /* that take it */
    unsigned needed;   /* by these */
    cli_read *read;    /* NULL: read together with another one, or no part of the problem */
    const char *value; /* what stands behind it; NULL = nothing, it is a flag */
    const char *help, *example;
} option;

enum { ONE_MESH = CLI_OF_PLAN | CLI_OF_LAYOUT | CLI_OF_CHECK };

static const option table[CLI_KEYS] = {
    [CLI_LAYOUT] = {"layout", CLI_OF_SHOW, 0, cli_read_layout, "LAYOUT",
                    "a layout by its full text (the dashes and the name may be left out)",
                    "\"f32[8(x),6(y)] on (x=2,y=3)\""},
    [CLI_MESH] = {"mesh", ONE_MESH | CLI_OF_SHOW, ONE_MESH, cli_read_mesh, "MESH",
                  "ranks as a grid, the last axis fastest; @ names the ranks",
                  "2x4   dp=2,tp=4   x=2@2,3"},
    [CLI_TO_MESH] = {"to-mesh", CLI_OF_MOVES, 0, cli_read_to_mesh, "MESH",
                     "the mesh of the target [that of the source]", "x=2@2,3"},
    [CLI_SHAPE] = {"shape", ONE_MESH | CLI_OF_SHOW, ONE_MESH, cli_read_shape, "SHAPE",
                   "global sizes of the tensor's dims", "4096x4096   scalar"},
    [CLI_DTYPE] = {"dtype", CLI_OF_MOVES, 0, cli_read_dtype, "DTYPE",
                   "f32, f64, bf16, f16, i32, i64, i8, u8 or bool [f32]", "bf16"},
    [CLI_PLACEMENTS] = {"placements", CLI_OF_LAYOUT | CLI_OF_SHOW, CLI_OF_LAYOUT,
                        cli_read_placements, "PLACEMENTS",
                        "what each mesh axis does: S(dim), R, or P(op) for a pending reduction",
                        "\"S(0)R\"   \"S(0)[1]S(0)[0]\""},
    [CLI_CUTS] = {"cuts", CLI_OF_LAYOUT | CLI_OF_SHOW, 0, NULL, "CUTS",
                  "sizes of the shards of dims [chunks]", "\"0:4,6;1:2,2\""},
    [CLI_FROM] = {"from", CLI_OF_MOVES, CLI_OF_PLAN | CLI_OF_CHECK, cli_read_from, "PLACEMENTS",
                  "placements of the source", "\"S(0)R\""},
    [CLI_FROM_CUTS] = {"from-cuts", CLI_OF_MOVES, 0, NULL, "CUTS",
                       "sizes of the source's shards [chunks]", "0:4,6"},
    [CLI_TO] = {"to", CLI_OF_MOVES, CLI_OF_PLAN | CLI_OF_CHECK, cli_read_to, "PLACEMENTS",
                "placements of the target", "\"RS(1)\""},
    [CLI_TO_CUTS] = {"to-cuts", CLI_OF_MOVES, 0, NULL, "CUTS",
                     "sizes of the target's shards; dims that it leaves out have chunks [the "
                     "source's where the same axes shard a dim, else chunks]",
                     "1:5,3"},
    [CLI_PLANNER] = {"planner", CLI_OF_MOVES, 0, cli_read_planner, "PLANNER",
                     "exact (the cheapest), greedy or graph (PyTorch's two) [exact]", "greedy"},
    [CLI_WEIGHTS] = {"weights", CLI_OF_MOVES, 0, cli_read_weights, "WEIGHTS",
                     "what graph minimises: time, int (4,1,2,2,0), or five weights: all-reduce, "
                     "all-to-all, all-gather, reduce-scatter, chunk [time]",
                     "4,1,2,2,0"},
    [CLI_PRICE] =
        {"price", CLI_OF_PLAN | CLI_OF_SHOW, 0, cli_read_price, "PRICE",
         "arena (one machine), torch (PyTorch's model of time), or a file of lines \"AXIS "
         "alpha beta gamma\" [arena]",
         "docs/prices/8-gpus-a-node.txt"},
    [CLI_PER_HOST] = {"per-host", CLI_OF_MOVES, 0, cli_read_per_host, "N",
                      "devices per host in PyTorch's model of time [1]", "8"},
    [CLI_FLATTENED] = {"flattened", CLI_OF_MOVES, 0, cli_read_flattened, "AXES",
                       "sets of axes for which greedy and graph merge steps", "\"x,y;y,z\""},
    [CLI_MAX_BYTES] = {"max-bytes", CLI_OF_MOVES, 0, cli_read_max_bytes, "N",
                       "exact: what a rank may hold at once [no bound]", "1073741824"},
    [CLI_RANKS] = {"ranks", CLI_OF_LAYOUT, 0, cli_read_ranks, "A-B",
                   "only these ranks; needed above 4096 ranks", "0-7"},
    [CLI_RANKS_AS] = {"ranks-as", CLI_OF_CHECK, 0, cli_read_ranks_as, "KIND",
                      "ranks are processes or threads [processes]", "threads"},
    [CLI_ALL] = {"all", CLI_OF_CHECK, 0, NULL, NULL,
                 "check a list of moves of all kinds, with every planner and dtype", ""},
    [CLI_CALIBRATE] =
        {"calibrate", CLI_OF_CHECK, 0, NULL, "FILE",
         "measure the links along each axis of --mesh and write a price file, by which "
         "SHERD_PRICE=FILE lets programs plan, and --price=FILE `sherd plan`",
         "prices.txt"},
    [CLI_JSON] = {"json", CLI_OF_CASES | CLI_OF_DRY | CLI_OF_INFO, 0, NULL, NULL,
                  "one JSON object instead of the table", ""},
    [CLI_CASES] = {"cases", CLI_OF_CASES, 0, NULL, "FILE",
                   "one JSON object a line, keys as these options; - is standard input", "-"},
    [CLI_SVG] = {"svg", CLI_OF_SHOW, 0, NULL, "FILE",
                 "write a picture instead; - is standard output", "move.svg"},
    [CLI_RUN_RANKS] = {"ranks", CLI_OF_RUN | CLI_OF_DRY, CLI_OF_RUN, NULL, "N",
                       "how many ranks; or -n N", "4"},
    [CLI_RUN_CORES] =
        {"cores", CLI_OF_RUN, 0, NULL, "LIST",
         "the cores that the ranks may have. Each rank is pinned to one of its own if "
         "enough are free of other jobs [all that this process may use]",
         "0-3,6"},
    [CLI_RUN_MEMORY] =
        {"memory", CLI_OF_RUN, 0, NULL, "SIZE",
         "the most that the tensors of all ranks together may take, in bytes or with "
         "K, M, G, T; more is an error of the program, ENOMEM [SHERD_ARENA_BYTES]",
         "8G"},
    [CLI_RUN_GRACE] = {"grace", CLI_OF_RUN, 0, NULL, "SECONDS",
                       "how long ranks have to end by themselves, after a signal to this launcher "
                       "(SIGINT, SIGTERM, SIGHUP go on to them) or the death of one, before they "
                       "are killed [SHERD_GRACE, or 10]",
                       "60"},
    [CLI_RUN_DRAIN] = {"drain", CLI_OF_RUN, 0, NULL, NULL,
                       "after a signal to this launcher (SIGINT, SIGTERM, SIGHUP) the exit status "
                       "is 0 if all ranks return 0, as those of a server that has finished what "
                       "it had begun; otherwise it ends by the signal",
                       ""},
    [CLI_RUN_PREFIX] =
        {"prefix", CLI_OF_RUN, 0, NULL, NULL,
         "put \"[RANK] \" in front of each line that a rank prints; lines stay whole", ""},
    [CLI_RUN_LOGS] = {"logs", CLI_OF_RUN, 0, NULL, "FOLDER",
                      "write what ranks print into FOLDER/rank-N.out and rank-N.err; with --prefix "
                      "it is printed here too",
                      "logs"},
    [CLI_RUN_RECORD] = {"record", CLI_OF_RUN, 0, NULL, "FILE",
                        "write the flight record as JSON too. It is told where ranks lost each "
                        "other, or did different things; and when this launcher gets SIGUSR1",
                        "record.json"},
    [CLI_RUN_TRACE] = {"trace", CLI_OF_RUN | CLI_OF_DRY, 0, NULL, "FILE",
                       "write what each rank does and waits for into FILE, for ui.perfetto.dev: "
                       "operators, calls with their bytes, axes and plans, waits. Dry: all ranks "
                       "that are run; not with --axes [SHERD_TRACE]",
                       "trace.json"},
    [CLI_DRY_RANK] =
        {"rank", CLI_OF_DRY, 0, NULL, "R",
         "which of them; several, one after the other: of the stages of a pipeline, in "
         "their order, as one learns from another what is sent to it [0]",
         "0,4,8"},
    [CLI_DRY_RATES] =
        {"rates", CLI_OF_DRY, 0, NULL, "RATES",
         "what a rank computes in a second (operations of f32, f64 and half: bf16 and f16) and "
         "how many bytes it reads and writes; what is left out takes no time [measured on a core "
         "of this machine]",
         "f32=6.7e13,half=9.9e14,memory=3.3e12"},
    [CLI_DRY_AXES] = {"axes", CLI_OF_DRY, 0, NULL, "AXES",
                      "run it on each mesh that the ranks make of these axes, which it gets in the "
                      "place of {mesh} in its arguments, and compare what they take",
                      "dp,tp"},
    [CLI_DRY_PRICE] = {"price", CLI_OF_DRY, 0, NULL, "PRICE",
                       "what calls take: arena (one machine), or a file of lines \"AXIS alpha beta "
                       "gamma\" [SHERD_PRICE, or arena]",
                       "docs/prices/8-gpus-a-node.txt"},
};

const char *cli_key_name(cli_key key)
{
    return key < CLI_KEYS ? table[key].name : "";
}

cli_key cli_key_find(unsigned command, const char *name, bool in_case)
{
    int end = in_case ? CLI_ALL : CLI_KEYS;

    for (int i = 0; i < end; i++)
        if (table[i].commands & command && strcmp(table[i].name, name) == 0)
            return (cli_key)i;
    return CLI_KEYS;
}

/* ---- the command line ------------------------------------------------------------------------ */

/*
 * "--name=value" or "--name value": the key, and the value at *value; *i goes along. CLI_KEYS: no
 * such option.
 */
static cli_key take_word(unsigned command, char **argv, int *i, const char **value)
{
    char name[32] = "";
    const char *word = argv[*i][1] == '-' ? argv[*i] + 2 : "ranks", *equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) : strlen(word);

    *value = equals ? equals + 1 : NULL;
    if (length < sizeof name)
        memcpy(name, word, length);
    cli_key key = cli_key_find(command, name, false);
    if (key == CLI_KEYS || equals || !table[key].value)
        return key;
    if (argv[*i + 1] && strncmp(argv[*i + 1], "--", 2) != 0)
        *value = argv[++*i];
    return key;
}

bool cli_value_read(cli_values *out, unsigned command, const char *name, char **argv, int *i)
{
    const char *word = argv[*i], *value;
    bool is_short =
        command & (CLI_OF_RUN | CLI_OF_DRY) && strcmp(word, "-n") == 0; /* the only one there is */
    cli_key key =
        is_short || strncmp(word, "--", 2) == 0 ? take_word(command, argv, i, &value) : CLI_KEYS;

    if (key == CLI_KEYS)
        cli_refuse(name, "there is no option \"%.100s\"; `sherd help %s` lists them", word, name);
    else if (out->of[key])
        cli_refuse(name, "--%s is given twice", table[key].name);
    else if (table[key].value && !value)
        cli_refuse(name, "--%s: expected %s behind it, for example %s", table[key].name,
                   table[key].value, table[key].example);
    else if (!table[key].value && value)
        cli_refuse(name, "--%s takes no value, not \"%.100s\"", table[key].name, value);
    else {
        out->of[key] = value ? value : "";
        return true;
    }
    return false;
}

bool cli_values_read(cli_values *out, unsigned command, const char *name, int argc, char **argv)
{
    memset(out, 0, sizeof *out);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] != '-' && command == CLI_OF_SHOW && !out->of[CLI_LAYOUT])
            out->of[CLI_LAYOUT] = argv[i];
        else if (!cli_value_read(out, command, name, argv, &i))
            return false;
    }
    return true;
}

bool cli_values_before_program(cli_values *out, unsigned command, const char *name, int argc,
                               char **argv, int *at)
{
    memset(out, 0, sizeof *out);
    for (*at = 1; *at < argc && argv[*at][0] == '-'; ++*at) {
        if (strcmp(argv[*at], "--") == 0) {
            ++*at;
            break;
        }
        if (!cli_value_read(out, command, name, argv, at))
            return false;
    }
    return true;
}

long cli_whole_number(const char *text, long low, long high)
{
    char *end = NULL;
    long n = strtol(text, &end, 10);

    return end != text && !*end && n >= low && n <= high ? n : -1;
}

bool cli_ask_trace(const char *path)
{
    return !path || (!setenv("SHERD_TRACE", path, 1) && !unsetenv("SHERD_TRACE_BEGUN"));
}

/* ---- reading the problem --------------------------------------------------------------------- */

static sherd_status missing(cli_problem *p, cli_key key)
{
    p->blamed = key;
    return sherd__fail(p->diag, SHERD_EINVAL, "%s is missing: expected %s, for example %s",
                       table[key].name, table[key].value, table[key].example);
}

/*
 * An error at a place in another option's text is that option's: placements are read with their
 * cuts.
 */
static void find_blamed(cli_problem *p)
{
    for (int i = 0; p->diag->column && i < CLI_KEYS; i++)
        if (p->values->of[i] && p->values->of[i] == p->diag->source)
            p->blamed = (cli_key)i;
}

sherd_status cli_problem_read(cli_problem *out, sherd_world *world, const cli_values *values,
                              unsigned command)
{
    sherd_status status = SHERD_OK;

    memset(out, 0, sizeof *out);
    out->world = world;
    out->diag = sherd__world_diag(world);
    out->values = values;
    out->blamed = CLI_KEYS;
    out->dtype = SHERD_F32;
    out->last_rank = -1;
    for (int i = 0; i < CLI_KEYS; i++)
        if (table[i].needed & command && !values->of[i])
            return missing(out, (cli_key)i);
    for (int i = 0; i < CLI_KEYS && status == SHERD_OK; i++)
        if (table[i].commands & command && table[i].read && values->of[i]) {
            out->blamed = (cli_key)i;
            status = table[i].read(out, values->of[i]);
        }
    if (status == SHERD_OK)
        out->blamed = CLI_KEYS;
    else
        find_blamed(out);
    return status;
}

/* ---- help ------------------------------------------------------------------------------------ */

enum { HELP_COLUMN = 26, HELP_WIDTH = 96 };

/* Words of a text from a column on, in lines that are not too long. */
static void print_words(const char *text)
{
    int column = HELP_COLUMN;

    while (*text) {
        int length = (int)strcspn(text, " ");
        if (column > HELP_COLUMN && column + 1 + length > HELP_WIDTH) {
            printf("\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += printf("%s%.*s", column > HELP_COLUMN ? " " : "", length, text);
        text += length + (text[length] == ' ');
    }
    putchar('\n');
}

void cli_help_options(unsigned command)
{
    for (int i = 0; i < CLI_KEYS; i++) {
        const option *o = &table[i];
        if (!(o->commands & command))
            continue;
        char head[HELP_COLUMN];
        snprintf(head, sizeof head, "--%s %s", o->name, o->value ? o->value : "");
        printf("  %-*s", HELP_COLUMN - 2, head);
        print_words(o->help);
        if (*o->example)
            printf("%*sfor example %s\n", HELP_COLUMN, "", o->example);
    }
}
