/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated driver: GPUs, contexts, copies, modules and launches. SHERD_EMULATED_CUDA_DEVICES is
 * how many GPUs there are (1), SHERD_EMULATED_CUDA_ARCH their architecture (90).
 */
#include "driver.h"
#include "grid.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <set>
#include <string>
#include <vector>

struct CUctx_st {
    int retained = 0;
    std::set<CUcontext> reaches;
};

struct CUfunc_st {
    void (*kernel)(const void *);
    int shared; /* memory of a block that was allowed */
    CUcontext context;
};

struct CUmod_st {
    std::string name;
    CUfunc_st function;
};

namespace
{

enum { MOST_DEVICES = 16, USUAL_SHARED_BYTES = 48 * 1024 };

struct machine {
    std::mutex mutex;
    CUctx_st context[MOST_DEVICES];
    std::set<CUmodule> modules;
    std::atomic<bool> started{false};
    std::atomic<int64_t> copied{0};      /* bytes, between the CPU's memory and GPUs' */
    std::atomic<int64_t> calls_left{-1}; /* until one fails; -1: none does */
    std::atomic<bool> lacks{false};      /* it fails for lack of memory */
    std::atomic<bool> breaks{false};     /* all calls after it fail too */
    std::atomic<bool> broken{false};
};

machine &all()
{
    static machine *m = new machine;
    return *m;
}

thread_local CUcontext current;

int number_in(const char *name, int otherwise)
{
    const char *text = getenv(name);

    return text && *text ? atoi(text) : otherwise;
}

int devices()
{
    int n = number_in("SHERD_EMULATED_CUDA_DEVICES", 1);

    return n < MOST_DEVICES ? n : MOST_DEVICES;
}

bool is_device(CUdevice device)
{
    return device >= 0 && device < devices();
}

} // namespace

bool call_fails()
{
    machine &m = all();

    if (m.calls_left >= 0 && --m.calls_left < 0) {
        m.broken = m.breaks.load();
        return true;
    }
    return m.broken;
}

int failure(int lack)
{
    return all().broken ? ERROR_ILLEGAL_ADDRESS : all().lacks ? lack : ERROR_UNKNOWN;
}

static void fail_after(long long calls, bool lacks, bool breaks)
{
    machine &m = all();

    m.broken = false;
    m.lacks = lacks;
    m.breaks = breaks;
    m.calls_left = calls;
}

CUcontext context_here()
{
    return current;
}

int modules_left()
{
    std::lock_guard<std::mutex> lock(all().mutex);

    return static_cast<int>(all().modules.size());
}

/* For tests: the call after so many others fails, once; -1: none. Calls that only give back do
 * not. */
EXPORT void emulated_cuda_fail(long long calls)
{
    fail_after(calls, false, false);
}

/* For tests: the same, for lack of memory. */
EXPORT void emulated_cuda_lack(long long calls)
{
    fail_after(calls, true, false);
}

/* For tests: that call and all after it fail, as after a kernel with a bad pointer. -1: none any
 * more. */
EXPORT void emulated_cuda_break(long long calls)
{
    fail_after(calls, false, true);
}

/* For tests: whether that call is still to come. */
EXPORT int emulated_cuda_fails()
{
    return all().calls_left >= 0;
}

/* For tests: bytes that were copied between the CPU's memory and GPUs'. */
EXPORT long long emulated_cuda_copied()
{
    return all().copied;
}

/* For tests: how many things were made and not given back. */
EXPORT int emulated_cuda_left()
{
    machine &m = all();
    int contexts = 0;
    {
        std::lock_guard<std::mutex> lock(m.mutex);
        for (const CUctx_st &context : m.context)
            contexts += context.retained;
    }
    return contexts + memory_left() + streams_left() + modules_left() + blas_left() + dnn_left() +
           transforms_left() + programs_left();
}

/* ---- GPUs and contexts ----------------------------------------------------------------------- */

EXPORT int cuInit(unsigned)
{
    if (call_fails())
        return failure();
    all().started = true;
    return devices() > 0 ? 0 : static_cast<int>(CUDA_ERROR_NO_DEVICE);
}

EXPORT int cuDriverGetVersion(int *out)
{
    *out = 13000;
    return 0;
}

EXPORT int cuGetErrorString(int error, const char **out)
{
    *out = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "emulated error";
    return 0;
}

EXPORT int cuDeviceGetCount(int *out)
{
    if (call_fails())
        return failure();
    *out = devices();
    return all().started ? 0 : ERROR_NOT_INITIALIZED;
}

EXPORT int cuDeviceGet(CUdevice *out, int number)
{
    *out = number;
    if (call_fails())
        return failure();
    return is_device(number) ? 0 : ERROR_INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *out, int bytes, CUdevice device)
{
    if (call_fails())
        return failure();
    snprintf(out, static_cast<size_t>(bytes), "emulated GPU %d", device);
    return is_device(device) ? 0 : ERROR_INVALID_DEVICE;
}

EXPORT int cuDeviceGetAttribute(int *out, int attribute, CUdevice device)
{
    int architecture = number_in("SHERD_EMULATED_CUDA_ARCH", 90);

    if (call_fails())
        return failure();
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *out = architecture / 10;
    else if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        *out = architecture % 10;
    else
        return ERROR_INVALID_VALUE;
    return is_device(device) ? 0 : ERROR_INVALID_DEVICE;
}

EXPORT int cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    std::lock_guard<std::mutex> lock(all().mutex);

    if (call_fails())
        return failure();
    if (!is_device(device))
        return ERROR_INVALID_DEVICE;
    *out = &all().context[device];
    (*out)->retained++;
    return 0;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    std::lock_guard<std::mutex> lock(all().mutex);

    if (device < 0 || device >= MOST_DEVICES || all().context[device].retained == 0)
        return ERROR_INVALID_CONTEXT;
    all().context[device].retained--;
    return 0;
}

EXPORT int cuCtxSetCurrent(CUcontext context)
{
    if (call_fails())
        return failure();
    current = context;
    return 0;
}

EXPORT int cuCtxGetCurrent(CUcontext *out)
{
    *out = current;
    return 0;
}

EXPORT int cuCtxEnablePeerAccess(CUcontext context, unsigned)
{
    std::lock_guard<std::mutex> lock(all().mutex);

    if (call_fails())
        return failure();
    if (!current || !context || context == current)
        return ERROR_INVALID_CONTEXT;
    if (getenv("SHERD_EMULATED_CUDA_APART"))
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    return current->reaches.insert(context).second
               ? 0
               : static_cast<int>(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void *pointer(CUdeviceptr address)
{
    return reinterpret_cast<void *>(address);
}

static bool is_memory(CUdeviceptr address, size_t bytes)
{
    return is_device_memory(pointer(address), static_cast<long long>(bytes));
}

EXPORT int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t bytes, CUstream stream)
{
    if (call_fails())
        return failure();
    if (!is_memory(dst, bytes) || is_device_memory(src, 1))
        return ERROR_INVALID_VALUE;
    all().copied += static_cast<int64_t>(bytes);
    const unsigned char *first = static_cast<const unsigned char *>(src);
    std::vector<unsigned char> staged(first, first + bytes);
    return queue_work(stream, [dst, staged] { memcpy(pointer(dst), staged.data(), staged.size()); })
               ? 0
               : ERROR_INVALID_HANDLE;
}

EXPORT int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    if (call_fails())
        return failure();
    if (!is_memory(src, bytes) || is_device_memory(dst, 1))
        return ERROR_INVALID_VALUE;
    all().copied += static_cast<int64_t>(bytes);
    return queue_work(stream, [=] { memcpy(dst, pointer(src), bytes); }) ? 0 : ERROR_INVALID_HANDLE;
}

EXPORT int cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t bytes, CUstream stream)
{
    if (call_fails())
        return failure();
    if (!is_memory(dst, bytes) || !is_memory(src, bytes))
        return ERROR_INVALID_VALUE;
    return queue_work(stream, [=] { memcpy(pointer(dst), pointer(src), bytes); })
               ? 0
               : ERROR_INVALID_HANDLE;
}

EXPORT int cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes, CUstream stream)
{
    if (call_fails())
        return failure();
    if (!is_memory(dst, bytes))
        return ERROR_INVALID_VALUE;
    return queue_work(stream, [=] { memset(pointer(dst), value, bytes); }) ? 0
                                                                           : ERROR_INVALID_HANDLE;
}

/* ---- modules and launches -------------------------------------------------------------------- */

/* A binary is "cubin" or "ptx" and the name of its kernel: see nvrtc.cpp. */
EXPORT int cuModuleLoadData(CUmodule *out, const void *image)
{
    std::lock_guard<std::mutex> lock(all().mutex);
    const char *text = static_cast<const char *>(image);
    const char *name = strchr(text, ' ');

    if (call_fails())
        return failure();
    if (!current)
        return ERROR_INVALID_CONTEXT;
    if (!name || (strncmp(text, "cubin ", 6) != 0 && strncmp(text, "ptx ", 4) != 0))
        return ERROR_INVALID_IMAGE;
    *out = new CUmod_st{name + 1, {nullptr, USUAL_SHARED_BYTES, current}};
    all().modules.insert(*out);
    return 0;
}

EXPORT int cuModuleUnload(CUmodule module)
{
    std::lock_guard<std::mutex> lock(all().mutex);

    if (!all().modules.erase(module))
        return ERROR_INVALID_HANDLE;
    delete module;
    return 0;
}

EXPORT int cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name)
{
    if (call_fails())
        return failure();
    module->function.kernel = find_kernel(name);
    if (module->name != name || !module->function.kernel)
        return ERROR_NOT_FOUND;
    *out = &module->function;
    return 0;
}

/* Memory of a block, at most. */
static int most_shared_bytes()
{
    int architecture = number_in("SHERD_EMULATED_CUDA_ARCH", 90);

    return 1024 * (architecture == 75                             ? 64
                   : architecture == 80 || architecture == 87     ? 163
                   : architecture < 90 || architecture / 10 == 12 ? 99
                                                                  : 227);
}

EXPORT int cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    if (call_fails())
        return failure();
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > most_shared_bytes())
        return ERROR_INVALID_VALUE;
    function->shared = value;
    return 0;
}

/* The arguments as a list of words: where they lie, and how many bytes. */
static bool read_arguments(void **with, std::vector<double> *out)
{
    size_t bytes = 0;
    const void *data = nullptr;

    for (; with && *with; with += 2) {
        if (with[0] == reinterpret_cast<void *>(CU_LAUNCH_PARAM_BUFFER_POINTER))
            data = with[1];
        else if (with[0] == reinterpret_cast<void *>(CU_LAUNCH_PARAM_BUFFER_SIZE))
            bytes = *static_cast<size_t *>(with[1]);
    }
    if (!data || bytes == 0 || bytes > 4096)
        return false;
    out->resize((bytes + sizeof(double) - 1) / sizeof(double));
    memcpy(out->data(), data, bytes);
    return true;
}

EXPORT int cuLaunchKernel(CUfunction function, unsigned x, unsigned y, unsigned z, unsigned threads,
                          unsigned threads_y, unsigned threads_z, unsigned shared, CUstream stream,
                          void **, void **with)
{
    std::vector<double> args;

    if (call_fails())
        return failure();
    if (!current)
        return ERROR_INVALID_CONTEXT;
    if (function->context != current)
        return ERROR_INVALID_HANDLE;
    if (x == 0 || x > 0x7fffffff || y != 1 || z != 1 || threads_y != 1 || threads_z != 1 ||
        threads == 0 || threads > 1024 || shared > static_cast<unsigned>(function->shared) ||
        !read_arguments(with, &args))
        return ERROR_INVALID_VALUE;
    void (*kernel)(const void *) = function->kernel;
    return queue_work(stream,
                      [=] {
                          run_grid(kernel, args.data(), x, static_cast<int>(threads),
                                   static_cast<int>(shared));
                      })
               ? 0
               : ERROR_INVALID_HANDLE;
}
