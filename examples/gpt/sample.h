/* SPDX-License-Identifier: Apache-2.0 */
/* Let the model write. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "train.h"

/*
 * A few bytes of the text, from a place chosen by the seed: what the sample goes on from. Borrowed
 * from the text.
 */
const unsigned char *sample_prompt(const trainer *t, int64_t *count);

/* Fill out[count] with what follows a prompt; every rank writes the same. Collective. */
sherd_status sample_write(trainer *t, const unsigned char *prompt, int64_t prompt_count,
                          unsigned char *out, int64_t count);

#endif
