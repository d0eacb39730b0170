/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over sets, computed by this rank's CPU: what operators of norms.c do there. */
#ifndef SHERD__NORMS_NORMS_HERE_H
#define SHERD__NORMS_NORMS_HERE_H

#include "norms.h"
#include "sets.h"

/* Fixed: by moments that are given. False: failed. */
bool sherd__norm_here(sherd_call *call, const sherd__sets *p, bool fixed);
bool sherd__norm_grad_here(sherd_call *call, const sherd__sets *p, bool fixed);

#endif
