/* SPDX-License-Identifier: Apache-2.0 */
/* The most that any rank receives, sends or holds in a step. */
#ifndef SHERD__PLAN_FRONT_H
#define SHERD__PLAN_FRONT_H

#include "pieces.h"

typedef enum sherd__question_kind {
    SHERD__ELEMENTS,  /* that my interval finds on the far side, through some axes but not my own */
    SHERD__MESSAGES,  /* how many of the far side's boxes that takes */
    SHERD__BOTH_BOXES /* my box on both sides, together */
} sherd__question_kind;

typedef struct sherd__question {
    const sherd__grid *grid;
    sherd__question_kind kind;
    int near; /* whose box it is about: what the target receives, what the source sends */
    unsigned through, own; /* axes across which to look; own is among them */
} sherd__question;

/*
 * The maximum over all ranks of times * (what is found through `through`) - (what is found through
 * `own`); times >= 1. For BOTH_BOXES their sum. Capped below 2^62.
 */
int64_t sherd__most(const sherd__question *question, int64_t times);

#endif
