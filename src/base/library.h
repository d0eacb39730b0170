/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Libraries that are loaded when they are wanted: oneDNN, CUDA's, the module of an MPI. A static
 * executable loads none: a library brings a C library of its own, and two of them in one process
 * crash in their first memory that one takes and the other gives back. Costs what dlopen costs.
 */
#ifndef SHERD__BASE_LIBRARY_H
#define SHERD__BASE_LIBRARY_H

#include <stdbool.h>

/* Whether this program is a static executable. */
bool sherd__is_static(void);
/* By its path, or by its name where the system keeps libraries; it stays until the process ends, as
 * threads of its own may live in it. NULL: it cannot be loaded. */
void *sherd__library_open(const char *name);
/* Whether one of this path or name is in the process already. */
bool sherd__library_is_open(const char *name);
/* A function of one, by its name, into *out; C has no cast for that. False: there is none. */
bool sherd__library_find(void *library, const char *name, void (**out)(void));
/* Why the last one of this thread could not be. */
const char *sherd__library_fault(void);

#endif
