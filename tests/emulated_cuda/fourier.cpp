/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated cuFFT: sums as the formula says, in more than f64. What is transformed to real numbers is
 * written over, as the real one may do. SHERD_EMULATED_CUDA_LACKS=fft: no plan can be made.
 */
#include "driver.h"

#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

enum {
    STATUS_INVALID_PLAN = 1,
    STATUS_INVALID_VALUE = 4,
    STATUS_UNALIGNED_DATA = 9,
    STATUS_NOT_SUPPORTED = 16
};
enum { WORKSPACE = 256 };

struct transform {
    CUstream stream;
    bool made, given; /* memory is given by the caller */
    cufftType type;
    long long n, batch, in_step, in_apart, out_step, out_apart;
    void *room;
};

struct plans {
    std::mutex mutex;
    std::map<int, transform> all;
    int next = 1;
};

static plans &here()
{
    static plans *p = new plans;
    return *p;
}

int transforms_left()
{
    std::lock_guard<std::mutex> lock(here().mutex);

    return static_cast<int>(here().all.size());
}

/* NULL: there is no such plan. */
static transform *find(cufftHandle handle)
{
    std::lock_guard<std::mutex> lock(here().mutex);
    auto found = here().all.find(handle);

    return found == here().all.end() ? nullptr : &found->second;
}

EXPORT int cufftCreate(cufftHandle *out)
{
    const char *lacks = getenv("SHERD_EMULATED_CUDA_LACKS");

    if (call_fails())
        return failure(CUFFT_ALLOC_FAILED);
    if (lacks && strstr(lacks, "fft"))
        return STATUS_NOT_SUPPORTED;
    std::lock_guard<std::mutex> lock(here().mutex);
    *out = here().next++;
    here().all[*out] = {};
    return 0;
}

EXPORT int cufftDestroy(cufftHandle handle)
{
    wait_for_context();
    std::lock_guard<std::mutex> lock(here().mutex);

    return here().all.erase(handle) ? 0 : STATUS_INVALID_PLAN;
}

EXPORT int cufftSetStream(cufftHandle handle, CUstream stream)
{
    transform *t = find(handle);

    if (call_fails())
        return failure(CUFFT_ALLOC_FAILED);
    if (!t)
        return STATUS_INVALID_PLAN;
    t->stream = stream;
    return 0;
}

EXPORT int cufftSetAutoAllocation(cufftHandle handle, int automatic)
{
    transform *t = find(handle);

    if (!t || t->made)
        return STATUS_INVALID_PLAN;
    t->given = !automatic;
    return 0;
}

EXPORT int cufftMakePlanMany64(cufftHandle handle, int rank, long long *n, long long *in_embed,
                               long long in_step, long long in_apart, long long *out_embed,
                               long long out_step, long long out_apart, cufftType type,
                               long long batch, size_t *bytes)
{
    transform *t = find(handle);

    if (call_fails())
        return failure(CUFFT_ALLOC_FAILED);
    if (!t || t->made)
        return STATUS_INVALID_PLAN;
    if (rank != 1 || *n < 1 || batch < 1 || !in_embed || !out_embed || in_step < 1 || out_step < 1)
        return STATUS_INVALID_VALUE;
    *t = {t->stream, true,     t->given, type,      *n,     batch,
          in_step,   in_apart, out_step, out_apart, nullptr};
    *bytes = WORKSPACE;
    return 0;
}

EXPORT int cufftSetWorkArea(cufftHandle handle, void *room)
{
    transform *t = find(handle);

    if (!t || !t->made)
        return STATUS_INVALID_PLAN;
    t->room = room;
    return is_device_memory(room, WORKSPACE) ? 0 : STATUS_INVALID_VALUE;
}

template <class R> struct side {
    R *data;
    bool real;
    long long step, apart;
    R *at(long long column, long long k) const
    {
        return data + (real ? 1 : 2) * (column * apart + k * step);
    }
};

template <class R>
static void transform_one(const transform &t, const side<R> &in, const side<R> &out, long long b,
                          int way)
{
    typedef std::complex<long double> number;
    std::vector<number> x(static_cast<size_t>(t.n));
    long long half = t.n / 2 + 1, read = out.real ? half : t.n;
    const long double turn = 2 * 3.14159265358979323846264338L / static_cast<long double>(t.n);

    for (long long k = 0; k < read; k++) {
        R *from = in.at(b, k);
        number z(from[0], in.real ? 0 : from[1]);
        x[static_cast<size_t>(k)] = z;
        if (out.real && k > 0 && 2 * k != t.n)
            x[static_cast<size_t>(t.n - k)] = std::conj(z);
        if (out.real)
            from[0] = from[1] = static_cast<R>(NAN);
    }
    for (long long k = 0; k < (in.real ? half : t.n); k++) {
        number sum = 0;
        for (long long j = 0; j < t.n; j++)
            sum += x[static_cast<size_t>(j)] *
                   std::polar(1.0L, way * turn * static_cast<long double>(j * k % t.n));
        R *to = out.at(b, k);
        to[0] = static_cast<R>(sum.real());
        if (!out.real)
            to[1] = static_cast<R>(sum.imag());
    }
}

template <class R>
static int queue(cufftHandle handle, cufftType type, void *src, void *dst, bool from_real,
                 bool to_real, int way)
{
    const transform *found = find(handle);

    if (call_fails())
        return failure(CUFFT_ALLOC_FAILED);
    if (!found || !found->made || found->type != type)
        return STATUS_INVALID_PLAN;
    if ((reinterpret_cast<uintptr_t>(src) | reinterpret_cast<uintptr_t>(dst)) % (2 * sizeof(R)))
        return STATUS_UNALIGNED_DATA;
    transform t = *found;
    side<R> in = {static_cast<R *>(src), from_real, t.in_step, t.in_apart};
    side<R> out = {static_cast<R *>(dst), to_real, t.out_step, t.out_apart};
    long long in_last = (to_real ? t.n / 2 + 1 : t.n) - 1, pair = sizeof(R) * 2;
    long long out_last = (from_real ? t.n / 2 + 1 : t.n) - 1;
    const char *in_end = reinterpret_cast<char *>(in.at(t.batch - 1, in_last));
    const char *out_end = reinterpret_cast<char *>(out.at(t.batch - 1, out_last));
    if ((t.given && !t.room) ||
        !is_device_memory(src, in_end - static_cast<char *>(src) + (from_real ? pair / 2 : pair)) ||
        !is_device_memory(dst, out_end - static_cast<char *>(dst) + (to_real ? pair / 2 : pair)))
        return STATUS_INVALID_VALUE;
    auto work = [t, in, out, way] {
        for (long long b = 0; b < t.batch; b++)
            transform_one<R>(t, in, out, b, way);
    };
    return queue_work(t.stream, work) ? 0 : STATUS_INVALID_VALUE;
}

EXPORT int cufftExecC2C(cufftHandle handle, void *src, void *dst, int way)
{
    return queue<float>(handle, CUFFT_C2C, src, dst, false, false, way);
}

EXPORT int cufftExecR2C(cufftHandle handle, void *src, void *dst)
{
    return queue<float>(handle, CUFFT_R2C, src, dst, true, false, CUFFT_FORWARD);
}

EXPORT int cufftExecC2R(cufftHandle handle, void *src, void *dst)
{
    return queue<float>(handle, CUFFT_C2R, src, dst, false, true, CUFFT_INVERSE);
}

EXPORT int cufftExecZ2Z(cufftHandle handle, void *src, void *dst, int way)
{
    return queue<double>(handle, CUFFT_Z2Z, src, dst, false, false, way);
}

EXPORT int cufftExecD2Z(cufftHandle handle, void *src, void *dst)
{
    return queue<double>(handle, CUFFT_D2Z, src, dst, true, false, CUFFT_FORWARD);
}

EXPORT int cufftExecZ2D(cufftHandle handle, void *src, void *dst)
{
    return queue<double>(handle, CUFFT_Z2D, src, dst, false, true, CUFFT_INVERSE);
}
