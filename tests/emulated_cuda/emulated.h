/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the emulated driver and cuBLAS. Names and types of exported functions are CUDA's; what
 * this emulates is where a program can go wrong without a GPU noticing at once:
 *
 * Streams run late: nothing is done until somebody waits for it. Memory is host memory in files of
 * its own, which other processes can map, and holds NaN at first; a use of memory that was given
 * back ends the process. Bad pointers, handles and grids are refused.
 */
#ifndef SHERD_EMULATED_H
#define SHERD_EMULATED_H

#include "device/cuda.h"

#include <functional>

#define EXPORT extern "C" __attribute__((visibility("default")))

/* Whether this call is the one that is to fail: see emulated_cuda_fail in driver.cpp. */
bool call_fails();
/* What that one returns; `lack`: if for lack of memory. */
int failure(int lack = CUDA_ERROR_OUT_OF_MEMORY);

/* Put work into a stream of the current context; false: it is none. */
bool queue_work(CUstream stream, std::function<void()> work);

/* Whether all of these bytes lie in memory of the GPU. */
bool is_device_memory(const void *data, long long bytes);

#endif
