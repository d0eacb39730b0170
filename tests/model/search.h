/* SPDX-License-Identifier: Apache-2.0 */
/* Every run of a program that there is. */
#ifndef MODEL_SEARCH_H
#define MODEL_SEARCH_H

#include "ranks.h"

typedef struct model_found {
    const char *fault; /* NULL: none; "..." of more states than were allowed */
    long states, ends;
    bool failed_once; /* in some run a meeting gave a failure */
} model_found;

/* All runs of a program, without some rules. trace: print the run that goes wrong. */
model_found search(const model_program *p, uint64_t without, model_order order, long most,
                   bool trace);

extern const char *const search_limit;

#endif
