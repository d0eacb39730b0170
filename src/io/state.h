/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a module and of its optimizer, as a file has it. */
#ifndef SHERD__IO_STATE_H
#define SHERD__IO_STATE_H

#include "io/choice.h"
#include "io/stored.h"

/* What the names of an optimizer's state begin with. */
#define SHERD__OF_OPTIMIZER "optimizer."

/* Everything that has a name: the module's tensors, the optimizer's, and then the program's. */
typedef struct sherd__state {
    const char *function;
    sherd_world *world;
    sherd_module *module;
    sherd_optimizer *optimizer;
    const sherd_named_tensor *more; /* [more_count] the program's */
    int more_count;
    sherd__choice choice;
    sherd_named_state *entry; /* [states] of the module and the optimizer */
    int count, of_module, states;
    sherd_named_tensor *named; /* [count] all, with their full names */
    sherd__stored *source;     /* and where they are read from */
} sherd__state;

/*
 * Where everything is stored: s->source. EINVAL, by the world's diag: the files lack something, or
 * have what the options do not allow; ENOMEM.
 */
sherd_status sherd__state_match(sherd__state *s, const sherd__files *f,
                                const sherd_read_options *options);

#endif
