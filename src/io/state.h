/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a module and of its optimizer, as a file has it. */
#ifndef SHERD__IO_STATE_H
#define SHERD__IO_STATE_H

#include "io/choice.h"
#include "io/stored.h"

/* What the names of an optimizer's state begin with; that of one of several has its number too. */
#define SHERD__OF_OPTIMIZER  "optimizer."
#define SHERD__OF_OPTIMIZERS "optimizers."

/* Everything that has a name: the module's tensors, the optimizers', and then the program's. */
typedef struct sherd__file_state {
    const char *function;
    sherd_world *world;
    sherd_module *module;
    sherd_optimizer *optimizer;     /* NULL: none */
    sherd_optimizer *const *others; /* [other_count]: with numbers in their names */
    int other_count;
    const sherd_named_tensor *more; /* [more_count] the program's */
    int more_count;
    sherd__file_choice choice;
    sherd__listed *listed; /* [states] of the module and the optimizers */
    int count, of_module, states;
    sherd_named_tensor *named; /* [count] all, with their full names */
    sherd__stored *source;     /* and where they are read from */
} sherd__file_state;

/* How many optimizers there may be: number 0 is the optimizer, and the others follow. */
int sherd__state_optimizers(const sherd__file_state *s);
/* The optimizer of that number; NULL: there is none. */
sherd_optimizer *sherd__state_optimizer(const sherd__file_state *s, int number);
/* List everything: s->listed and s->named; and forget that, and the sources. */
sherd_status sherd__state_list(sherd__file_state *s);
void sherd__state_clear(sherd__file_state *s);
/* What the names of an optimizer's state begin with; how long that is. */
int sherd__state_prefix(int number, char *out, size_t room);
/* The name in a file of an entry of an optimizer; number -1: of the module. NULL: no memory. */
char *sherd__state_name(const sherd__file_state *s, const sherd_named_state *entry, int number);

/*
 * State of parameters that were frozen when their optimizer was made (begun.c). Whatever a rank of
 * the world has begun begins on all; `status`: an earlier failure.
 */
sherd_status sherd__state_begin(const sherd__file_state *s, sherd_status status);
/* What the files have begins too; everything is listed again. */
sherd_status sherd__state_begin_stored(sherd__file_state *s, const sherd__files *f);

/*
 * Where everything is stored: s->source. EINVAL, by the world's diag: the files lack something, or
 * have what the options do not allow; ENOMEM.
 */
sherd_status sherd__state_match(sherd__file_state *s, const sherd__files *f,
                                const sherd_read_options *options);

#endif
