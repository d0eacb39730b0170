/* SPDX-License-Identifier: Apache-2.0 */
/* The rates of a dry world as text: "f32=1.5e11,memory=2e10". */
#ifndef SHERD__WORLD_DRY_RATES_H
#define SHERD__WORLD_DRY_RATES_H

#include "base/diag.h"
#include "sherd/dry.h"

/* What is left out stays 0. EINVAL, with a text that begins with `what`, which names the source. */
sherd_status sherd__rates_read(sherd_rates *out, const char *text, const char *what,
                               sherd__diag *diag);

#endif
