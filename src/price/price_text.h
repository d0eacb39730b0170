/* SPDX-License-Identifier: Apache-2.0 */
/* Price files read. Pure; the part that knows a world is in world/. */
#ifndef SHERD__PRICE_PRICE_TEXT_H
#define SHERD__PRICE_PRICE_TEXT_H

#include "base/diag.h"
#include "sherd/plan.h"

/* Arguments and errors as sherd_price_parse; *out stays as it was on failure. */
sherd_status sherd__price_read(sherd_price *out, sherd__diag *diag, const char *text);

#endif
