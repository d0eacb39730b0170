/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between the memory of the CPU and that of the GPU, and waiting. The CPU's memory is
 * pageable: when data goes to the GPU, the driver copies it before it returns, without waiting for
 * the stream; data from the GPU has arrived once the stream has been waited for.
 */
#include "inside.h"

#include "base/num.h"

#include <sched.h>
#include <time.h>

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

static int64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/*
 * Until all is done, or never will be: the driver waits for the marks of a process that has ended
 * as for any others. So it is asked again and again, and for a while after such an end, since what
 * is queued may need nothing of that process.
 */
static int wait_beside_others(sherd__device *device)
{
    enum { NAP_NS = 20 * 1000 };
    const int64_t ms = 1000 * 1000, eager = 200 * ms, longest = 2000 * ms, begun = now_ns();
    int64_t ended = 0;
    int result = device->cuda.stream_ready(device->stream);

    while (result == CUDA_ERROR_NOT_READY && !device->deserted) {
        int64_t now = now_ns();
        if (now - begun < eager) /* as the driver does */
            sched_yield();
        else
            nanosleep(&(struct timespec){0, NAP_NS}, NULL);
        if (!ended && device->is_over(device->over_of))
            ended = now;
        result = device->cuda.stream_ready(device->stream);
        device->deserted = result == CUDA_ERROR_NOT_READY && ended && now - ended > longest;
    }
    return result;
}

static bool has_done_all(sherd__device *device)
{
    int result = device->awaits && device->is_over ? wait_beside_others(device)
                                                   : device->cuda.stream_wait(device->stream);

    if (device->deserted)
        sherd__device_fail(device, "the process of another rank has ended, for which it waits");
    return sherd__cuda_good(device, result, "waiting for it");
}

bool sherd__device_wait(sherd__device *device)
{
    bool sound = !device->failed; /* what was queued before it failed is waited for all the same */

    sherd__cuda_enter(device);
    return has_done_all(device) && sound;
}
