/* SPDX-License-Identifier: Apache-2.0 */
/* The GPUs of this machine: see gpus.c. */
#ifndef SHERD_CLI_GPUS_H
#define SHERD_CLI_GPUS_H

#include <stddef.h>
#include <stdio.h>

enum { GPUS = 64 };

typedef struct gpu {
    int number; /* in SHERD_DEVICE */
    char name[256];
    size_t bytes;
} gpu;

/* List the GPUs that CUDA's driver has; returns how many, 0 without a driver. */
int find_gpus(gpu out[GPUS]);
/* A line for each: its name in SHERD_DEVICE, its maker's, its memory. Without one nothing. */
void print_gpus(FILE *to);

#endif
