/* SPDX-License-Identifier: Apache-2.0 */
/* The `sherd` command: finds the command in its table and hands over. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *arguments, *help;
} command;

static const command table[] = {
    {"run", cli_run, "-n N [--] PROGRAM [ARGUMENTS]", "start N ranks of a program and watch them"},
    {"info", cli_info, "", "what this machine has, and how fast it computes"},
};

enum { COMMANDS = sizeof table / sizeof table[0] };

int cli_refuse(const char *name, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "sherd%s%s: ", name[0] ? " " : "", name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return CLI_UNUSABLE;
}

static int help(void)
{
    puts("sherd: tensors that are spread over many processes\n");
    for (int i = 0; i < COMMANDS; i++)
        printf("  sherd %-5s %-30s %s\n", table[i].name, table[i].arguments, table[i].help);
    puts("  sherd help                                 this text\n"
         "  sherd --version                            the version");
    return 0;
}

static int is_any(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return cli_refuse("", "which command? `sherd help` lists them");
    if (is_any(argv[1], "help", "--help", "-h"))
        return help();
    if (is_any(argv[1], "version", "--version", "-V")) {
        puts("sherd " SHERD_VERSION);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], table[i].name) == 0)
            return table[i].run(argc - 1, argv + 1);
    return cli_refuse("", "there is no command \"%.100s\"; `sherd help` lists them", argv[1]);
}
