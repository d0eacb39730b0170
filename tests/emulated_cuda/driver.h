/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the files of the emulated driver. */
#ifndef SHERD_EMULATED_DRIVER_H
#define SHERD_EMULATED_DRIVER_H

#include "emulated.h"

enum {
    ERROR_INVALID_VALUE = 1,
    ERROR_NOT_INITIALIZED = 3,
    ERROR_INVALID_DEVICE = 101,
    ERROR_INVALID_IMAGE = 200,
    ERROR_INVALID_CONTEXT = 201,
    ERROR_INVALID_HANDLE = 400,
    ERROR_NOT_FOUND = 500,
    ERROR_ILLEGAL_ADDRESS = 700,
    ERROR_LAUNCH = 701,
    ERROR_UNKNOWN = 999
};

/* Memory that other processes can map, by these words. */
struct shared_name {
    int64_t process, fd, bytes, file, unused[4];
};
/* A file descriptor to be closed; -1: none. */
int shared_create(void **data, size_t bytes, shared_name *name);
bool shared_open(void **data, const shared_name *name);

/* The calling thread's; NULL: none. */
CUcontext context_here();

/* Until all that is queued there is done: libraries wait so when they give back what they have. */
void wait_for_context();

/* How many pieces of memory, streams and events there are. */
int memory_left();
int streams_left();
int modules_left();
int programs_left();
int blas_left();
int dnn_left();
int transforms_left();

/* A kernel that was compiled into this library; NULL: there is none. */
void (*find_kernel(const char *name))(const void *);

#endif
