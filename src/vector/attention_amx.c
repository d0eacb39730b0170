/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of bf16 whose products are made in the tiles of AMX. */
#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include "amx.h"
#include "attention_blocks.h"

/* Backward takes 3 to 18 % longer here if it fetches ahead. */
enum { FETCHES_BACK = false };

static bool may_multiply(void)
{
    return sherd__may_use_amx();
}

#include "attention_grad_blocks.inc"
#include "attention_blocks.inc"

const sherd__attention_tiles sherd__attention_amx = {bytes, attention, attention_grad, fits};

#endif
