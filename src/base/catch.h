/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls into libraries of C++ that are loaded when they are wanted: an exception that comes out of
 * one, for lack of memory mostly, would find no handler in C and end the process. Costs a call by a
 * pointer, about a nanosecond.
 */
#ifndef SHERD__BASE_CATCH_H
#define SHERD__BASE_CATCH_H

#include <stdbool.h>

enum { SHERD__THROWN = -1 };

/*
 * What `call` returns, 0 or more; SHERD__THROWN if an exception came out of it, which is gone then.
 * The frames between here and the throw are not unwound, so they must hold nothing that only they
 * can release. Threads that are cancelled are not held up.
 */
int sherd__catch(int (*call)(void *context), void *context);

/* Whether exceptions are caught here: with the calling conventions of x86-64 and arm64 in ELF. */
bool sherd__catches_thrown(void);

#endif
