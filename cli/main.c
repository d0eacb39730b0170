/* SPDX-License-Identifier: Apache-2.0 */
/* The `sherd` command: finds the command in its table and hands over; says how each is used. */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "sherd/version.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments, *help;
    unsigned options;  /* CLI_OF_...: which of the table in options.c; 0 = none */
    const char *more;  /* examples */
    const char *exits; /* what the exit status says; NULL = as of most commands */
} command;

static const command table[] = {
    {"run", cli_run, "-n N [--] PROGRAM [ARGUMENTS]", "start N ranks of a program and watch them",
     CLI_OF_RUN,
     "  sherd run -n 4 -- ./my_program its arguments\n"
     "  sherd run -n 2 --cores 0-3 --grace 60 ./my_program\n",
     "0 if all ranks returned 0 and none left the others alone; else the first that is not 0,\n"
     "128 + signal if a rank was killed, 1 if it could not be started. The last line on standard\n"
     "error names the cause.\n\n"
     "Signals: SIGUSR1 prints the flight record, and goes on to those ranks that handle it (its\n"
     "default would kill the others); SIGUSR2 goes on to all. What is ignored stays ignored."},
    {"dry", cli_dry, "[-n N] [--] PROGRAM [ARGUMENTS]",
     "what one of N ranks of a program takes; nothing is computed, nothing moves", CLI_OF_DRY,
     "  sherd dry -n 512 build/examples/gpt --mesh dp=64,tp=8 --layers 32 --dim 4096 --heads 32\n"
     "  sherd dry -n 4 --rank 3 --price docs/prices/8-gpus-a-node.txt ./my_program\n"
     "  sherd dry --rates f32=6.7e13,memory=3.3e12 --trace trace.json ./starts_its_own_ranks\n",
     "that of the program; 1 if it could not be started, or has left no report."},
    {"info", cli_info, "", "what this machine has, and how fast it computes", CLI_OF_INFO,
     "  sherd info\n"
     "  sherd info --json\n",
     NULL},
    {"plan", cli_plan, "--mesh M --shape S --from P --to P",
     "how one layout becomes another, and what it costs; needs no ranks", CLI_OF_PLAN,
     "  sherd plan --mesh dp=2,tp=4 --shape 4096x4096 --dtype bf16 --from \"S(0)R\" --to "
     "\"RS(1)\"\n"
     "  sherd plan --mesh x=2 --to-mesh x=2@2,3 --shape 7x5 --from \"S(0)\" --to \"S(1)\" --json\n"
     "  sherd plan --cases moves.jsonl --mesh 2x4 --planner greedy\n",
     NULL},
    {"layout", cli_layout, "--mesh M --shape S --placements P", "which rank holds what",
     CLI_OF_LAYOUT,
     "  sherd layout --mesh x=2,y=2 --shape 5x7 --placements \"S(0)S(0)\"\n"
     "  sherd layout --mesh x=2 --shape 10 --placements \"S(0)\" --cuts 0:4,6 --json\n"
     "  sherd layout --mesh 128x128x64 --shape 65536x65536 --placements \"S(0)S(1)R\" --ranks "
     "0-7\n",
     NULL},
    {"check", cli_check, "--mesh M --shape S --from P --to P | --all | --calibrate FILE --mesh M",
     "move real data and compare every element, or measure links", CLI_OF_CHECK,
     "  sherd check --all\n"
     "  sherd check --mesh 2x2 --shape 100x33 --dtype bf16 --from \"S(0)P\" --to \"RS(1)\"\n"
     "  mpirun -n 4 sherd check --calibrate prices.txt --mesh host=2,local=2\n\n"
     "Under `sherd run` or mpirun the ranks are those of the job.\n",
     NULL},
    {"show", cli_show, "LAYOUT | --mesh M --shape S ...",
     "draw a layout, or both sides of a move, here or as a picture", CLI_OF_SHOW,
     "  sherd show \"[4(dp),6(tp)] on (dp=2,tp=3)\"\n"
     "  sherd show --mesh x=3 --shape 7x5 --from \"S(0)\" --to \"S(1)\" --svg move.svg\n",
     NULL},
};

enum { COMMANDS = sizeof table / sizeof table[0] };

/* A call and what it does, in two columns; a call that is too long for its column has a line. */
static void list(const char *name, const char *arguments, const char *does)
{
    enum { COLUMN = 60 };
    int used = printf("  sherd %-6s %s", name, arguments);

    if (used >= COLUMN) {
        putchar('\n');
        used = 0;
    }
    printf("%*s%s\n", COLUMN - used, "", does);
}

static int help(void)
{
    puts("sherd: tensors that are spread over many processes\n");
    for (int i = 0; i < COMMANDS; i++)
        list(table[i].name, table[i].arguments, table[i].help);
    list("help", "[COMMAND]", "this text, or more on a command");
    list("--version", "", "the version");
    return cli_flush("") ? 0 : CLI_FAILED;
}

static const command *find(const char *name)
{
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(name, table[i].name) == 0)
            return &table[i];
    cli_refuse("", "there is no command \"%.100s\"; `sherd help` lists them", name);
    return NULL;
}

static int help_on(const char *name)
{
    const command *c = find(name);

    if (!c)
        return CLI_UNUSABLE;
    printf("sherd %s: %s\n\n  sherd %s %s\n\n", c->name, c->help, c->name, c->arguments);
    if (c->options) {
        cli_help_options(c->options);
        printf("\nExit status: %s\n\n",
               c->exits ? c->exits
                        : "0 all good, 1 something is wrong or was refused, 2 the call can not be "
                          "read.");
    }
    printf("Examples\n%s", c->more);
    return cli_flush("") ? 0 : CLI_FAILED;
}

static bool is_any(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return cli_refuse("", "which command? `sherd help` lists them");
    bool asks = is_any(argv[1], "help", "--help", "-h");
    bool tells = is_any(argv[1], "version", "--version", "-V");
    if (argc > (asks ? 3 : 2) && (asks || tells))
        return cli_refuse("", "%s: expected %s, not \"%.100s\" too", argv[1],
                          asks ? "one command" : "nothing else", argv[asks ? 3 : 2]);
    if (asks)
        return argc > 2 ? help_on(argv[2]) : help();
    if (tells) {
        printf("sherd %s\n", sherd_version());
        return cli_flush("") ? 0 : CLI_FAILED;
    }
    const command *c = find(argv[1]);
    if (!c)
        return CLI_UNUSABLE;
    if (c->options && argc > 2 && is_any(argv[2], "--help", "-h", "help"))
        return help_on(c->name);
    return c->run(argc - 1, argv + 1);
}
