/* SPDX-License-Identifier: Apache-2.0 */
/* Let the model write. */
#ifndef GPT_SAMPLE_H
#define GPT_SAMPLE_H

#include "train.h"

/* Fill out[count]; every rank writes the same. Collective. */
sherd_status sample_write(trainer *t, unsigned char *out, int64_t count);

#endif
