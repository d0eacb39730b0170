/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a benchmark: one table reads it and says what there is. */
#ifndef SHERD_BENCH_COMMAND_LINE_H
#define SHERD_BENCH_COMMAND_LINE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of number, text and flag is where its value goes. */
typedef struct bench_option {
    const char *name;  /* "--rounds"; NULL = the next word that is no option */
    const char *value; /* its name in the usage; NULL for a flag */
    int64_t *number;   /* from 1 to `most` */
    int64_t most;      /* 0 = any */
    const char **text;
    bool *flag;
} bench_option;

static inline void print_usage(const char *program, const bench_option *table, int count)
{
    const char *slash = strrchr(program, '/');

    fprintf(stderr, "%s", slash ? slash + 1 : program);
    for (int i = 0; i < count; i++)
        fprintf(stderr, table[i].name && table[i].value ? " [%s %s]" : " [%s%s]",
                table[i].name ? table[i].name : "", table[i].value ? table[i].value : "");
    fputc('\n', stderr);
}

/* The option that a word names, or the next plain one; NULL if there is none. */
static inline const bench_option *find_option(const bench_option *table, int count,
                                              const char *word, int *plain)
{
    bool named = word[0] == '-';
    int seen = 0;

    for (int i = 0; i < count; i++) {
        if (named ? table[i].name && strcmp(table[i].name, word) == 0
                  : !table[i].name && seen++ == *plain) {
            *plain += !named;
            return &table[i];
        }
    }
    return NULL;
}

static inline bool take_value(const bench_option *o, const char *word)
{
    char *end;

    if (o->text) {
        *o->text = word;
        return true;
    }
    errno = 0;
    *o->number = strtoll(word, &end, 10);
    return !errno && end != word && !*end && *o->number >= 1 && (!o->most || *o->number <= o->most);
}

/* Values that are not asked for stay. False, with one line of usage on stderr: --help, or what the
 * table does not have. */
static inline bool read_command_line(int argc, char **argv, const bench_option *table, int count)
{
    int plain = 0;

    for (int i = 1; i < argc; i++) {
        const bench_option *o = find_option(table, count, argv[i], &plain);
        bool good = o && (o->flag || !o->name || i + 1 < argc);
        if (good && o->flag)
            *o->flag = true;
        else if (good)
            good = take_value(o, o->name ? argv[++i] : argv[i]);
        if (!good) {
            print_usage(argv[0], table, count);
            return false;
        }
    }
    return true;
}

/* The same, of an array. */
#define READ_COMMAND_LINE(argc, argv, table) \
    read_command_line(argc, argv, table, (int)(sizeof(table) / sizeof(table)[0]))

#endif
