/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about a program that is written: what makes faults needs the answers. */
#ifndef STRESS_HISTORY_H
#define STRESS_HISTORY_H

#include "program.h"

/* All ranks. */
unsigned all_of(const program *p);
bool is_meeting(const op *o);
/* The first meeting at or after an operation; the number of operations if there is none. */
int next_meeting(const program *p, int from);
/* The mesh that a slot lies on before operation `at`. */
int mesh_of(const program *p, int slot, int at);
/* Ranks that take part in a move of a list: all, where it goes to another mesh. */
unsigned movers_of(const program *p, const op *o, int at, int place);
/* Ranks that are found out if they do an operation otherwise. */
unsigned members_of(const program *p, int at);
/* Whether ranks that make none of the operations from `from` up to `to` are missed by others. */
bool is_missed(const program *p, int from, int to, unsigned ranks);
/* Another slot of the same layout and dtype; -1 if there is none. */
int twin_of(const program *p, int slot, int at);

#endif
