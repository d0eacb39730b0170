/* SPDX-License-Identifier: Apache-2.0 */
/* The text that the model learns, and the batches drawn from it. */
#ifndef GPT_TEXT_H
#define GPT_TEXT_H

#include "options.h"

typedef struct corpus {
    unsigned char *bytes;
    size_t count;
    char source[80]; /* where it is from, for the screen */
} corpus;

/*
 * Read the files that were asked for, or the default text. False: nothing is left, and `error`,
 * char[LINE_BYTES], names the file and says in one line what is wrong.
 */
bool text_load(corpus *out, const gpt_options *o, char *error);
void text_free(corpus *t);

/*
 * The global batch of a step: ids and targets, int32_t[batch * context]. A pure function of text,
 * seed and step: the same on every rank and for every mesh.
 */
void text_batch(const corpus *t, const gpt_options *o, int64_t step, int32_t *ids,
                int32_t *targets);

/* The i-th of a stream of numbers in [0, 1), by the seed. */
double text_random(int64_t seed, uint64_t stream, uint64_t i);

#endif
