/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening and closing a rank's GPU. All ranks of a process that use one GPU share its context, the
 * one that other users of CUDA in the process have too; the stream, the memory and the compiled
 * kernels are the rank's own.
 */
#include "inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

/* The number that "cuda:1" says; -1: "cuda" says none; -2: it is no name of a GPU. */
static int read_number(const char *name)
{
    char *end;

    if (strncmp(name, "cuda", 4) != 0)
        return -2;
    if (name[4] == '\0')
        return -1;
    if (name[4] != ':' || name[5] < '0' || name[5] > '9' || strlen(name) > 9)
        return -2;
    long number = strtol(name + 5, &end, 10);
    return *end ? -2 : (int)number;
}

static sherd_status fail_cuda(const sherd__device *device, sherd__diag *diag, int result,
                              const char *what)
{
    return sherd__fail(diag, result == CUDA_ERROR_OUT_OF_MEMORY ? SHERD_ENOMEM : SHERD_ENOTSUP,
                       "the GPU cannot be used: %s: %s (CUDA's error %d)", what,
                       sherd__cuda_text(device, result), result);
}

static sherd_status choose(sherd__device *device, sherd__diag *diag, int number, int rank)
{
    int count = 0, result = device->cuda.init(0);

    if (!result)
        result = device->cuda.device_count(&count);
    if (result && result != CUDA_ERROR_NO_DEVICE)
        return fail_cuda(device, diag, result, "starting CUDA");
    if (count <= 0)
        return sherd__fail(diag, SHERD_ENOTSUP, "this machine has no GPU that CUDA can use");
    if (number >= count)
        return sherd__fail(diag, SHERD_ENOTSUP, "there is no cuda:%d: CUDA finds %d GPU%s", number,
                           count, count == 1 ? "" : "s");
    device->number = number >= 0 ? number : rank % count;
    snprintf(device->name, sizeof device->name, "cuda:%d", device->number);
    return SHERD_OK;
}

static int ask_what_it_is(sherd__device *device)
{
    const sherd__cuda *cuda = &device->cuda;
    int major = 0, minor = 0, result = cuda->device_get(&device->handle, device->number);

    if (!result)
        result = cuda->device_name(device->model, sizeof device->model, device->handle);
    if (!result)
        result = cuda->device_attribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                                        device->handle);
    if (!result)
        result = cuda->device_attribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                                        device->handle);
    device->architecture = major * 10 + minor;
    return result;
}

static int start(sherd__device *device)
{
    const sherd__cuda *cuda = &device->cuda;
    int result = cuda->context_retain(&device->context, device->handle);

    if (result) {
        device->context = NULL;
        return result;
    }
    result = cuda->context_use(device->context);
    if (!result)
        result = cuda->stream_create(&device->stream, CU_STREAM_NON_BLOCKING);
    return result;
}

static sherd_status open_it(sherd__device *device, sherd__diag *diag, int number, int rank)
{
    sherd_status status = sherd__cuda_load(device, diag);

    if (!status)
        status = choose(device, diag, number, rank);
    if (status)
        return status;
    int result = ask_what_it_is(device);
    if (result)
        return fail_cuda(device, diag, result, "asking what it is");
    result = start(device);
    return result ? fail_cuda(device, diag, result, "starting it") : SHERD_OK;
}

sherd_status sherd__device_open(sherd__device **out, sherd__heap *heap, sherd__diag *diag,
                                const char *name, int rank)
{
    int number = read_number(name);

    *out = NULL;
    if (number == -2)
        return sherd__fail(
            diag, SHERD_EINVAL,
            "\"%s\" is no device: it is \"cpu\", \"cuda\", or \"cuda:\" and a number", name);
    sherd__device *device = sherd__alloc(heap, 1, sizeof *device);
    if (!device)
        return sherd__no_memory(diag, "opening a GPU");
    device->heap = heap;
    device->opened.heap = device->kernels.heap = device->convolutions.heap = heap;
    device->transforms.heap = heap;
    sherd_status status = open_it(device, diag, number, rank);
    if (status)
        sherd__device_close(device);
    else
        *out = device;
    return status;
}

void sherd__device_close(sherd__device *device)
{
    if (!device)
        return;
    if (device->context) {
        device->cuda.context_use(device->context);
        if (device->stream)
            sherd__device_wait(device);
        sherd__device_free_biased(device);
        sherd__device_free_products(device);
        sherd__device_free_convolutions(device);
        sherd__device_free_transforms(device);
        sherd__device_free_programs(device);
        sherd__device_free_peers(device);
        sherd__device_free_memory(device);
        if (device->stream && !device->deserted)
            device->cuda.stream_destroy(device->stream);
        if (!device->deserted)
            device->cuda.context_release(device->handle);
    }
    sherd__cuda_unload(device);
    sherd__free(device->heap, device);
}

void sherd__device_watch(sherd__device *device, bool (*is_over)(const void *of), const void *of)
{
    device->is_over = is_over;
    device->over_of = of;
}

const char *sherd__device_name(const sherd__device *device)
{
    return device->name;
}

const char *sherd__device_model(const sherd__device *device)
{
    return device->model;
}

void *sherd__device_stream(sherd__device *device)
{
    sherd__cuda_enter(device);
    return device->stream;
}
