/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of emulated GPUs. SHERD_EMULATED_CUDA_BYTES is how much a process has of it (2 GiB). A
 * piece is a file without a name; another process opens it by /proc/PID/fd/N, unless
 * SHERD_EMULATED_CUDA_ALONE is set: as in containers that keep processes apart.
 */
#include "driver.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace
{

struct piece {
    size_t bytes;
    int fd; /* -1: another process's */
    int opened;
    CUcontext context;
    shared_name name;
};

struct memory {
    std::mutex mutex;
    std::map<CUdeviceptr, piece> pieces;
    size_t taken = 0;
};

memory &all()
{
    static memory *m = new memory;
    return *m;
}

size_t limit()
{
    const char *text = getenv("SHERD_EMULATED_CUDA_BYTES");

    return text && *text ? strtoull(text, nullptr, 10) : static_cast<size_t>(2) << 30;
}

} // namespace

int shared_create(void **data, size_t bytes, shared_name *name)
{
    int fd = memfd_create("emulated_cuda", MFD_CLOEXEC);
    struct stat status;

    if (fd < 0)
        return -1;
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 && fstat(fd, &status) == 0) {
        *data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (*data != MAP_FAILED) {
            *name = {getpid(),
                     fd,
                     static_cast<int64_t>(bytes),
                     static_cast<int64_t>(status.st_ino),
                     {0, 0, 0, 0}};
            return fd;
        }
    }
    close(fd);
    return -1;
}

bool shared_open(void **data, const shared_name *name)
{
    char path[64];
    struct stat status;

    if (getenv("SHERD_EMULATED_CUDA_ALONE"))
        return false;
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", static_cast<long long>(name->process),
             static_cast<long long>(name->fd));
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool same = fstat(fd, &status) == 0 && static_cast<int64_t>(status.st_ino) == name->file;
    *data = same ? mmap(nullptr, static_cast<size_t>(name->bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED, fd, 0)
                 : MAP_FAILED;
    close(fd);
    return *data != MAP_FAILED;
}

bool is_device_memory(const void *data, long long bytes)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    CUdeviceptr at = reinterpret_cast<CUdeviceptr>(data);
    auto next = m.pieces.upper_bound(at);

    if (next == m.pieces.begin() || bytes < 0)
        return false;
    const auto &[first, piece] = *std::prev(next);
    return at - first + static_cast<size_t>(bytes) <= piece.bytes;
}

int memory_left()
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);

    return static_cast<int>(m.pieces.size());
}

EXPORT int cuDeviceTotalMem_v2(size_t *out, CUdevice)
{
    if (call_fails())
        return failure();
    *out = limit();
    return 0;
}

EXPORT int cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    CUcontext context = context_here();
    piece made = {bytes, -1, 0, context, {}};
    void *data = nullptr;

    if (call_fails())
        return failure();
    if (!context)
        return ERROR_INVALID_CONTEXT;
    if (!bytes)
        return ERROR_INVALID_VALUE;
    if (bytes > limit() || m.taken > limit() - bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made.fd = shared_create(&data, bytes, &made.name);
    if (made.fd < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(data, 0xff, bytes);
    *out = reinterpret_cast<CUdeviceptr>(data);
    m.pieces[*out] = made;
    m.taken += bytes;
    return 0;
}

EXPORT int cuMemFree_v2(CUdeviceptr data)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.pieces.find(data);

    if (found == m.pieces.end() || found->second.fd < 0)
        return ERROR_INVALID_VALUE;
    /* Nothing else may come to lie there: a late use of it ends the process. */
    if (mmap(reinterpret_cast<void *>(data), found->second.bytes, PROT_NONE,
             MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED)
        return ERROR_UNKNOWN;
    close(found->second.fd);
    m.taken -= found->second.bytes;
    m.pieces.erase(found);
    return 0;
}

EXPORT int cuIpcGetMemHandle(sherd__cuda_handle *out, CUdeviceptr data)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.pieces.find(data);

    if (call_fails())
        return failure();
    if (found == m.pieces.end() || found->second.fd < 0)
        return ERROR_INVALID_VALUE;
    static_assert(sizeof *out == sizeof found->second.name, "a name fits a handle");
    memcpy(out, &found->second.name, sizeof *out);
    return 0;
}

EXPORT int cuIpcOpenMemHandle_v2(CUdeviceptr *out, sherd__cuda_handle handle, unsigned)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    piece made = {0, -1, 1, context_here(), {}};
    void *data;

    if (call_fails())
        return failure();
    memcpy(&made.name, &handle, sizeof handle);
    if (made.name.process == getpid()) /* as CUDA has it */
        return ERROR_INVALID_CONTEXT;
    for (auto &[at, piece] : m.pieces)
        if (piece.fd < 0 && piece.context == made.context && piece.name.file == made.name.file) {
            piece.opened++;
            *out = at;
            return 0;
        }
    if (!shared_open(&data, &made.name))
        return ERROR_INVALID_HANDLE;
    made.bytes = static_cast<size_t>(made.name.bytes);
    *out = reinterpret_cast<CUdeviceptr>(data);
    m.pieces[*out] = made;
    return 0;
}

EXPORT int cuIpcCloseMemHandle(CUdeviceptr data)
{
    memory &m = all();
    std::lock_guard<std::mutex> lock(m.mutex);
    auto found = m.pieces.find(data);

    if (found == m.pieces.end() || found->second.fd >= 0)
        return ERROR_INVALID_VALUE;
    if (--found->second.opened > 0)
        return 0;
    munmap(reinterpret_cast<void *>(data), found->second.bytes);
    m.pieces.erase(found);
    return 0;
}
