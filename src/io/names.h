/* SPDX-License-Identifier: Apache-2.0 */
/* Names of tensors that differ between a module and a file (sherd_file_name). */
#ifndef SHERD__IO_NAMES_H
#define SHERD__IO_NAMES_H

#include "base/alloc.h"
#include "sherd/files.h"

/* What is wrong with a list of names; NULL = nothing. */
const char *sherd__file_names_fault(const sherd_file_name *list, int count);

/* A hash of the list, to compare between ranks. */
uint64_t sherd__file_names_hash(const sherd_file_name *list, int count);

/* The first of the list that fits a name of the module; NULL: it has the same name in the file. */
const sherd_file_name *sherd__file_name_find(const sherd_file_name *list, int count,
                                             const char *name);

/* Whether what it names is a stack: one tensor of the file for each index of the first dim. */
bool sherd__file_name_stacks(const sherd_file_name *n);
/* The first row of what it names that counts, "name[96:]"; -1: all rows do. */
int64_t sherd__file_name_first(const sherd_file_name *n);

/* The name in the file, of one index of a stack. The caller frees it; NULL: no memory. */
char *sherd__file_name_of(sherd__heap *heap, const sherd_file_name *n, const char *name,
                          int64_t index);

/*
 * Write names to out[room]: "a", "b" and 3 more. next(of, i) is the one behind those numbered below
 * *i, whose number it puts there; NULL: there are no more. Returns how many there are.
 */
int sherd__list_names(char *out, size_t room, const char *(*next)(const void *of, int *i),
                      const void *of);

#endif
