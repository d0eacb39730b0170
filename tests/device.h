/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU for a test: the emulated one of tests/emulated_cuda/, unless SHERD_CUDA_LIBRARY is set, if
 * only to nothing: then the real one. What is compiled for the emulated one is not kept on disk,
 * unless SHERD_KERNEL_CACHE says where.
 */
#ifndef SHERD_TEST_DEVICE_H
#define SHERD_TEST_DEVICE_H

#include <dlfcn.h>

#include "check.h"
#include "device/device.h"

/* Before a device is opened. */
static inline void choose_cuda(void)
{
    if (getenv("SHERD_CUDA_LIBRARY"))
        return;
    setenv("SHERD_CUDA_LIBRARY", SHERD_EMULATED_CUDA, 1);
    setenv("SHERD_KERNEL_CACHE", "", 0);
}

static inline bool is_emulated(void)
{
    choose_cuda();
    return *getenv("SHERD_CUDA_LIBRARY") != '\0';
}

/* This rank's GPU; NULL: a check has failed. */
static inline sherd__device *open_gpu(sherd__heap *heap, const char *name, int rank)
{
    sherd__diag diag = {.rank = -1};
    sherd__device *device;

    choose_cuda();
    if (sherd__device_open(&device, heap, &diag, name, rank))
        CHECK_TEXT(diag.text, "");
    return device;
}

/* Nothing has failed, and nothing is left. */
static inline void close_gpu(sherd__heap *heap, sherd__device *device)
{
    if (!device)
        return;
    const char *fault = sherd__device_fault(device), *lacked = sherd__device_lacked(device);
    if (fault)
        CHECK_TEXT(fault, "");
    if (lacked)
        CHECK_TEXT(lacked, "");
    sherd__device_close(device);
    CHECK_EQ(heap->live, 0);
}

/* A function of the emulation, which stays loaded. */
static inline void (*emulated_function(const char *name))(void)
{
    union {
        void *object;
        void (*call)(void);
    } found = {NULL};
    choose_cuda();
    void *library = dlopen(getenv("SHERD_CUDA_LIBRARY"), RTLD_NOW);

    if (library)
        found.object = dlsym(library, name);
    CHECK(found.object);
    return found.call;
}

/* The emulation's call after so many others fails, once; -1: none. */
static inline void fail_call(long long calls)
{
    if (is_emulated())
        ((void (*)(long long))emulated_function("emulated_cuda_fail"))(calls);
}

/* The same, for lack of memory. */
static inline void lack_call(long long calls)
{
    if (is_emulated())
        ((void (*)(long long))emulated_function("emulated_cuda_lack"))(calls);
}

/* That one and all that follow fail, as after a kernel with a bad pointer. */
static inline void break_call(long long calls)
{
    if (is_emulated())
        ((void (*)(long long))emulated_function("emulated_cuda_break"))(calls);
}

/* Whether that call is still to come. */
static inline bool call_will_fail(void)
{
    return ((int (*)(void))emulated_function("emulated_cuda_fails"))();
}

/* How many things of the emulation were made and not given back; 0 of real CUDA. */
static inline int left_of_cuda(void)
{
    return is_emulated() ? ((int (*)(void))emulated_function("emulated_cuda_left"))() : 0;
}

#endif
