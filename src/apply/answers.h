/* SPDX-License-Identifier: Apache-2.0 */
/* Questions to the solver (solve.c), and the answers that are kept (answers.c). */
#ifndef SHERD__APPLY_ANSWERS_H
#define SHERD__APPLY_ANSWERS_H

#include "door.h"

/*
 * The key of an answer: the operator, the operands' layouts, and what else the answer depends on:
 * the rule and shapes that describe has set; the attributes, for an operator with ways.
 */
typedef struct sherd__solver_question {
    sherd__run *run;
    const sherd_layout *const *operands;
} sherd__solver_question;

/* Its layouts are counted. */
typedef struct sherd__solver_answer {
    sherd__placing placing;
    bool used;    /* since the hand went by */
    size_t bytes; /* with its layouts */
    uint64_t hash;
    const sherd_op *op;
    int count, results;
    const sherd_layout *operands[SHERD_MAX_OPERANDS];
    sherd_linearity linearity;
    sherd_reduce_op reduces;
    sherd__rule rule;                                 /* of an operator that describes */
    int64_t shape[SHERD_MAX_RESULTS][SHERD_MAX_DIMS]; /* likewise */
    void *attributes;                                 /* of one with ways */
    sherd_dtype dtype;                                /* likewise: it may set their price */
} sherd__solver_answer;

enum { SHERD__ANSWERS_KEPT = 4096 };

struct sherd__answers {
    sherd__map map;
    sherd__solver_answer *slot[SHERD__ANSWERS_KEPT]; /* the same */
    int count, hand;
    size_t bytes, most_bytes; /* of all answers */
};

uint64_t sherd__question_hash(const sherd__solver_question *q);

/* NULL: there is none. Valid until the next one is kept. */
sherd__solver_answer *sherd__answer_find(sherd__answers *all, const sherd__solver_question *q,
                                         uint64_t hash);

/* Keep an answer that is complete; others may be dropped. False, and not taken: no memory. */
bool sherd__answer_keep(sherd__answers *all, sherd__solver_answer *a, uint64_t hash);

#endif
