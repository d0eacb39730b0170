/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How calls of the driver and of cuBLAS fail. A failure ends the use of the device; lack of memory
 * does not. The first of each is kept for whoever asks. And making the device's context that of the
 * calling thread, which can fail too.
 */
#include "inside.h"

#include <stdarg.h>
#include <stdio.h>

const char *sherd__device_fault(const sherd__device *device)
{
    return device->failed ? device->fault : NULL;
}

void sherd__device_fail(sherd__device *device, const char *format, ...)
{
    va_list arguments;

    if (device->failed)
        return;
    device->failed = true;
    int n = snprintf(device->fault, sizeof device->fault, "%s: ", device->name);
    va_start(arguments, format);
    vsnprintf(device->fault + n, sizeof device->fault - (size_t)n, format, arguments);
    va_end(arguments);
    sherd__one_line(device->fault);
}

void sherd__device_lack(sherd__device *device, const char *what)
{
    if (device->failed) /* that is why, and it is told */
        return;
    if (!device->lacks)
        snprintf(device->lack, sizeof device->lack, "%s", what);
    device->lacks = true;
}

const char *sherd__device_lacked(sherd__device *device)
{
    bool lacks = device->lacks;

    device->lacks = false;
    return lacks ? device->lack : NULL;
}

const char *sherd__cuda_text(const sherd__device *device, int result)
{
    const char *text = NULL;

    return device->cuda.error_text(result, &text) == 0 && text ? text : "an unknown error";
}

bool sherd__cuda_good(sherd__device *device, int result, const char *what)
{
    char text[sizeof device->lack];

    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        snprintf(text, sizeof text, "out of memory: %s", what);
        sherd__device_lack(device, text);
    } else if (result) {
        sherd__device_fail(device, "%s: %s (CUDA's error %d)", what,
                           sherd__cuda_text(device, result), result);
    }
    return result == 0;
}

void sherd__cuda_move_in(sherd__device *device)
{
    sherd__cuda_good(device, device->cuda.context_use(device->context), "changing the thread");
}

bool sherd__cublas_good(sherd__device *device, int result, const char *what)
{
    if (result == CUBLAS_STATUS_ALLOC_FAILED)
        sherd__device_lack(device, "out of memory for a product");
    else if (result)
        sherd__device_fail(device, "%s: cuBLAS's status is %d", what, result);
    return result == 0;
}
