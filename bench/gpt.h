/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks of the GPT example share: its options on top of a size, and memory that all
 * ranks see. */
#ifndef SHERD_BENCH_GPT_H
#define SHERD_BENCH_GPT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "options.h"

/* The example's options, on top of the benchmark size of so many layers; --steps is a round's. */
static inline bool read_options(gpt_options *out, char *layers, int argc, char **argv, char *error)
{
    char *const size[] = {argv[0],   "--layers", layers,      "--dim",    "256",
                          "--heads", "8",        "--context", "256",      "--batch",
                          "8",       "--steps",  "6",         "--sample", "0"};
    enum { SIZE = sizeof size / sizeof size[0] };
    char **all = malloc((SIZE + (size_t)argc) * sizeof *all);
    bool good;

    snprintf(error, LINE_BYTES, "out of memory");
    if (!all)
        return false;
    memcpy(all, size, sizeof size);
    memcpy(all + SIZE, argv + 1, (size_t)argc * sizeof *all); /* the NULL at the end too */
    good = options_parse(out, SIZE + argc - 1, all, error);
    if (good && out->help) {
        options_help(stderr);
        good = false;
        snprintf(error, LINE_BYTES, "takes the options of gpt, which are above");
    }
    free(all);
    return good;
}

/* Zeros; NULL if there is no memory. Lives as long as the program. */
static inline void *shared_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

#endif
