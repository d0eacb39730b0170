/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this machine: see gpus.c. */
#ifndef SHERD_CLI_GPUS_H
#define SHERD_CLI_GPUS_H

#include <stdio.h>

/* A line for each: its name in SHERD_DEVICE, its maker's, its memory. Without one nothing. */
void print_gpus(FILE *to);

#endif
