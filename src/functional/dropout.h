/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout, for those that do it on the way and draw its mask again in backward. */
#ifndef SHERD__FUNCTIONAL_DROPOUT_H
#define SHERD__FUNCTIONAL_DROPOUT_H

#include "ops/shared.h"

/* What sherd_dropout did with a call's key, applied to `t`. */
sherd_tensor *sherd__dropped(sherd_tensor *t, double p, sherd__key key);

#endif
