/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a module's parameters and buffers, with their optimizer's state, a file is about. */
#ifndef SHERD__IO_CHOICE_H
#define SHERD__IO_CHOICE_H

#include "nn/optimizer.h"
#include "sherd/files.h"

/* As the options of writing and reading say it. */
typedef struct sherd__file_choice {
    sherd_file_part part;
    const char *const *only; /* [only_count] patterns */
    int only_count;
} sherd__file_choice;

/* Whether it leaves anything out. */
bool sherd__choice_leaves(const sherd__file_choice *choice);

/* A hash of it, to compare between ranks. */
uint64_t sherd__choice_hash(const sherd__file_choice *choice);

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
sherd_status sherd__choose(const sherd__file_choice *choice, const char *function,
                           sherd_module *module, sherd__listed *listed, int *of_module, int *count);

#endif
