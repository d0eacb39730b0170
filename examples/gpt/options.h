/* SPDX-License-Identifier: Apache-2.0 */
/* What the user asked for. */
#ifndef GPT_OPTIONS_H
#define GPT_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct gpt_options {
    int64_t ranks, dp, cp, tp; /* 0 = not said */
    int64_t zigzag; /* sequences are ordered by sherd_zigzag for so many shards; 0 = in order */
    int64_t layers, dim, heads, context;
    int64_t experts; /* of a mixture in each block; 0 = an MLP */
    int64_t batch, steps, seed, sample;
    double rate, dropout;
    const char *dtype; /* what products compute with: f32 (or NULL), bf16 or f16 */
    bool in_order;     /* sequences that are split over cp, too */
    bool sequence_parallel, keep_gathered, shard_parameters, input_reshard, muon, threads, help;
    char *const *text; /* [texts] files; NULL = the default text */
    int texts;
    const char *json; /* NULL = none */
} gpt_options;

enum { LINE_BYTES = 512 }; /* room for any message of this program */

/*
 * Fill in `out`, defaults included. False: `error`, char[LINE_BYTES], says in one line what is
 * wrong.
 */
bool options_parse(gpt_options *out, int argc, char *const *argv, char *error);

void options_help(FILE *file);

/*
 * Give dp, cp, tp and zigzag their values for this many ranks; false as above if the mesh has
 * another number of them.
 */
bool options_fit(gpt_options *o, int ranks, char *error);

#endif
