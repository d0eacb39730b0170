/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that the model runs: right ones, and ones whose ranks do different things. */
#ifndef MODEL_PROGRAMS_H
#define MODEL_PROGRAMS_H

#include "ranks.h"

extern const model_program model_programs[];
extern const int model_program_count;

const model_program *find_program(const char *name);

#endif
