/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the memory of the CPU and that of the GPU, and waiting. The CPU's memory is
 * pageable: of what goes to the GPU the driver makes a copy of its own before it returns, without a
 * wait for the stream; what comes from there is there once the stream has been waited for.
 */
#include "inside.h"

#include "base/num.h"

void sherd__device_upload(sherd__device *device, void *dst, const void *src, int64_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed || bytes <= 0)
        return;
    sherd__cuda_good(
        device,
        device->cuda.copy_in(sherd__cuda_address(dst), src, sherd__bytes(bytes), device->stream),
        "copying to the GPU");
}

bool sherd__device_download(sherd__device *device, void *dst, const void *src, int64_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed)
        return false;
    if (bytes > 0 && !sherd__cuda_good(device,
                                       device->cuda.copy_out(dst, sherd__cuda_address(src),
                                                             sherd__bytes(bytes), device->stream),
                                       "copying from the GPU"))
        return false;
    return sherd__device_wait(device) && !device->lacks;
}

void sherd__device_move(sherd__device *device, void *dst, const void *src, int64_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed || bytes <= 0)
        return;
    sherd__cuda_good(device,
                     device->cuda.copy(sherd__cuda_address(dst), sherd__cuda_address(src),
                                       sherd__bytes(bytes), device->stream),
                     "copying within the GPU");
}

void sherd__device_set(sherd__device *device, void *dst, int value, int64_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed || bytes <= 0)
        return;
    sherd__cuda_good(device,
                     device->cuda.set(sherd__cuda_address(dst), (unsigned char)value,
                                      sherd__bytes(bytes), device->stream),
                     "setting memory");
}

bool sherd__device_wait(sherd__device *device)
{
    bool sound = !device->failed; /* what was queued before it failed is waited for all the same */

    sherd__cuda_enter(device);
    return sherd__cuda_good(device, device->cuda.stream_wait(device->stream), "waiting for it") &&
           sound;
}
