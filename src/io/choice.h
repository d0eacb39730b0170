/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a module's parameters and buffers, with their optimizer's state, a file is about. */
#ifndef SHERD__CHOICE_H
#define SHERD__CHOICE_H

#include "nn/optimizer.h"
#include "sherd/files.h"

/* As the options of writing and reading say it. */
typedef struct sherd__choice {
    sherd_file_part part;
    const char *const *only; /* [only_count] patterns */
    int only_count;
} sherd__choice;

/* Whether it leaves anything out. */
bool sherd__choice_leaves(const sherd__choice *choice);

/* A hash of it, to compare between ranks. */
uint64_t sherd__choice_hash(const sherd__choice *choice);

/* An entry of the module's state (optimizer -1), or of that of an optimizer with this number. */
typedef struct sherd__listed {
    sherd_named_state entry;
    const sherd_tensor *parameter; /* the tensor, or the parameter that an optimizer's is for */
    int optimizer;
} sherd__listed;

/*
 * Keep of the entries [*count] those that are chosen. The first *of_module are the module's; the
 * others are state of optimizers, and go with their parameters. EINVAL, by the module's diag: a
 * NULL, a pattern that matches nothing, no parameter or buffer is left; ENOMEM.
 */
sherd_status sherd__choose(const sherd__choice *choice, const char *function, sherd_module *module,
                           sherd__listed *listed, int *of_module, int *count);

#endif
