/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated cuDNN: convolutions by plain loops, sums in f32, or f64 of f64. Of its algorithms, in
 * the order in which they are named, 7 is none for that shape, 0 gives no sums twice, 2 seems to be
 * one and is not, 1 is the right one to take; all want a workspace. SHERD_EMULATED_CUDA_LACKS=dnn:
 * it does not start.
 */
#include "driver.h"
#include "grid.h"

#include "programs/numbers.cuh"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

enum { STATUS_NOT_INITIALIZED = 1001, STATUS_BAD_PARAM = 2000, STATUS_NOT_SUPPORTED = 3000 };
enum { MOST_DIMS = 5, WORKSPACE = 512 };

static std::atomic<int> handles;

int dnn_left()
{
    return handles;
}

static int lack()
{
    return failure(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
}

template <class T> static int make(T **out)
{
    if (call_fails())
        return lack();
    *out = new T{};
    handles++;
    return 0;
}

template <class T> static int destroy(T *thing)
{
    delete thing;
    handles--;
    return 0;
}

struct cudnnContext {
    CUstream stream;
};
struct shape {
    cudnnDataType_t type;
    int dims, size[MOST_DIMS];
};
struct cudnnTensorStruct : shape {
};
struct cudnnFilterStruct : shape {
};
struct cudnnConvolutionStruct {
    cudnnDataType_t sums;
    cudnnMathType_t math;
    int dims, pad[3], stride[3], dilation[3], groups;
};

/* ---- descriptors ----------------------------------------------------------------------------- */

EXPORT int cudnnCreate(cudnnHandle_t *out)
{
    const char *lacks = getenv("SHERD_EMULATED_CUDA_LACKS");

    if (lacks && strstr(lacks, "dnn"))
        return STATUS_NOT_INITIALIZED;
    return make(out);
}

EXPORT int cudnnDestroy(cudnnHandle_t handle)
{
    wait_for_context();
    return destroy(handle);
}

EXPORT int cudnnSetStream(cudnnHandle_t handle, CUstream stream)
{
    if (call_fails())
        return lack();
    handle->stream = stream;
    return 0;
}

EXPORT int cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    return make(out);
}

EXPORT int cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    return destroy(tensor);
}

EXPORT int cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out)
{
    return make(out);
}

EXPORT int cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    return destroy(filter);
}

EXPORT int cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out)
{
    int result = make(out);

    if (!result)
        (*out)->groups = 1;
    return result;
}

EXPORT int cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv)
{
    return destroy(conv);
}

static bool set_shape(shape *s, cudnnDataType_t type, int dims, const int *size)
{
    if (dims < 4 || dims > MOST_DIMS)
        return false;
    s->type = type;
    s->dims = dims;
    for (int d = 0; d < dims; d++) {
        if (size[d] <= 0)
            return false;
        s->size[d] = size[d];
    }
    return true;
}

EXPORT int cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type,
                                      int dims, const int *size, const int *stride)
{
    int step = 1;

    if (call_fails())
        return lack();
    if (!set_shape(tensor, type, dims, size))
        return STATUS_BAD_PARAM;
    for (int d = dims - 1; d >= 0; step *= size[d--])
        if (stride[d] != step)
            return STATUS_NOT_SUPPORTED;
    return 0;
}

EXPORT int cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                      cudnnTensorFormat_t format, int dims, const int *size)
{
    if (call_fails())
        return lack();
    return format == CUDNN_TENSOR_NCHW && set_shape(filter, type, dims, size) ? 0
                                                                              : STATUS_BAD_PARAM;
}

EXPORT int cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t conv, int dims,
                                           const int *pad, const int *stride, const int *dilation,
                                           cudnnConvolutionMode_t mode, cudnnDataType_t sums)
{
    if (call_fails())
        return lack();
    if (mode != CUDNN_CROSS_CORRELATION || dims < 2 || dims > 3)
        return STATUS_NOT_SUPPORTED;
    conv->dims = dims;
    conv->sums = sums;
    for (int d = 0; d < dims; d++) {
        if (pad[d] < 0 || stride[d] < 1 || dilation[d] < 1)
            return STATUS_BAD_PARAM;
        conv->pad[d] = pad[d];
        conv->stride[d] = stride[d];
        conv->dilation[d] = dilation[d];
    }
    return 0;
}

EXPORT int cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups)
{
    conv->groups = groups;
    return groups > 0 ? 0 : STATUS_BAD_PARAM;
}

EXPORT int cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math)
{
    conv->math = math;
    return 0;
}

/* ---- algorithms ------------------------------------------------------------------------------ */

/* What a call describes, in the words of the forward one. */
struct problem {
    const shape *x, *w, *y;
    const cudnnConvolutionStruct *conv;
};

static bool is_sound(const problem &p)
{
    const shape &x = *p.x, &w = *p.w, &y = *p.y;
    const cudnnConvolutionStruct &c = *p.conv;
    bool good = x.type == w.type && x.type == y.type && x.dims == w.dims && x.dims == y.dims &&
                c.dims == x.dims - 2 && x.size[0] == y.size[0] && w.size[0] == y.size[1] &&
                w.size[1] * c.groups == x.size[1] && w.size[0] % c.groups == 0;

    for (int d = 0; d < c.dims && good; d++) {
        int rest = x.size[2 + d] + 2 * c.pad[d] - ((w.size[2 + d] - 1) * c.dilation[d] + 1);
        good = rest >= 0 && y.size[2 + d] == rest / c.stride[d] + 1;
    }
    good = good && c.sums == (x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
    return good && (x.type != CUDNN_DATA_FLOAT || c.math == CUDNN_FMA_MATH);
}

static int list_ways(const problem &p, int most, int *count, sherd__dnn_way *way)
{
    if (call_fails())
        return lack();
    if (!is_sound(p))
        return STATUS_BAD_PARAM;
    static const int named[] = {7, 0, 2, 1};
    *count = most < 4 ? most : 4;
    for (int i = 0; i < *count; i++)
        way[i] = {named[i], named[i] == 7 ? STATUS_NOT_SUPPORTED : 0, -1,
                  0,        named[i] == 0 ? 0 : CUDNN_DETERMINISTIC,  p.conv->math,
                  {}};
    return 0;
}

static int workspace_of(const problem &p, int algorithm, size_t *bytes)
{
    if (call_fails())
        return lack();
    *bytes = WORKSPACE;
    return is_sound(p) && (algorithm == 1 || algorithm == 2) ? 0 : STATUS_NOT_SUPPORTED;
}

EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                  cudnnFilterDescriptor_t w,
                                                  cudnnConvolutionDescriptor_t conv,
                                                  cudnnTensorDescriptor_t y, int most, int *count,
                                                  sherd__dnn_way *way)
{
    return list_ways({x, w, y, conv}, most, count, way);
}

EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                       cudnnTensorDescriptor_t y,
                                                       cudnnConvolutionDescriptor_t conv,
                                                       cudnnTensorDescriptor_t x, int most,
                                                       int *count, sherd__dnn_way *way)
{
    for (int d = 0; d < conv->dims; d++) /* as version 9.14, which divides by zero then */
        if (conv->stride[d] > (w->size[2 + d] - 1) * conv->dilation[d] + 1)
            abort();
    return list_ways({x, w, y, conv}, most, count, way);
}

EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                         cudnnTensorDescriptor_t y,
                                                         cudnnConvolutionDescriptor_t conv,
                                                         cudnnFilterDescriptor_t w, int most,
                                                         int *count, sherd__dnn_way *way)
{
    return list_ways({x, w, y, conv}, most, count, way);
}

EXPORT int cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                   cudnnFilterDescriptor_t w,
                                                   cudnnConvolutionDescriptor_t conv,
                                                   cudnnTensorDescriptor_t y, int algorithm,
                                                   size_t *bytes)
{
    return workspace_of({x, w, y, conv}, algorithm, bytes);
}

EXPORT int cudnnGetConvolutionBackwardDataWorkspaceSize(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                        cudnnTensorDescriptor_t y,
                                                        cudnnConvolutionDescriptor_t conv,
                                                        cudnnTensorDescriptor_t x, int algorithm,
                                                        size_t *bytes)
{
    return workspace_of({x, w, y, conv}, algorithm, bytes);
}

EXPORT int cudnnGetConvolutionBackwardFilterWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                          cudnnTensorDescriptor_t y,
                                                          cudnnConvolutionDescriptor_t conv,
                                                          cudnnFilterDescriptor_t w, int algorithm,
                                                          size_t *bytes)
{
    return workspace_of({x, w, y, conv}, algorithm, bytes);
}

/* ---- computing ------------------------------------------------------------------------------- */

enum way { MAKES_Y, MAKES_X, MAKES_W };

struct work {
    shape x, w, y;
    cudnnConvolutionStruct conv;
    const void *x_data, *w_data, *y_data;
    way makes;
};

static long long count_of(const shape &s)
{
    long long n = 1;

    for (int d = 0; d < s.dims; d++)
        n *= s.size[d];
    return n;
}

static long long bytes_of(const shape &s)
{
    return count_of(s) * (s.type == CUDNN_DATA_DOUBLE ? 8 : s.type == CUDNN_DATA_FLOAT ? 4 : 2);
}

/* Sums are kept beside the arrays, and stored at the end. */
template <class E> static void compute(const work &k)
{
    typedef typename number<E>::sum S;
    const E *data[] = {static_cast<const E *>(k.y_data), static_cast<const E *>(k.x_data),
                       static_cast<const E *>(k.w_data)};
    const shape *shapes[] = {&k.y, &k.x, &k.w};
    std::vector<S> sums(static_cast<size_t>(count_of(*shapes[k.makes])));
    const cudnnConvolutionStruct &c = k.conv;
    long long taps = 1, space = 1, in_space = 1;
    int per_group = k.w.size[0] / c.groups;

    for (int d = 0; d < c.dims; d++) {
        taps *= k.w.size[2 + d];
        space *= k.y.size[2 + d];
        in_space *= k.x.size[2 + d];
    }
    for (long long y = 0; y < count_of(k.y); y++) {
        long long e = y % space, o = y / space % k.y.size[1], n = y / space / k.y.size[1];
        for (long long t = 0; t < taps; t++) {
            long long rest_e = e, rest_t = t, at = 0, step = 1;
            bool inside = true;
            for (int d = c.dims - 1; d >= 0; d--) {
                long long x = rest_e % k.y.size[2 + d] * c.stride[d] - c.pad[d] +
                              rest_t % k.w.size[2 + d] * c.dilation[d];
                inside = inside && x >= 0 && x < k.x.size[2 + d];
                at += x * step;
                step *= k.x.size[2 + d];
                rest_e /= k.y.size[2 + d];
                rest_t /= k.w.size[2 + d];
            }
            for (int i = 0; i < k.w.size[1] && inside; i++) {
                long long channel = o / per_group * k.w.size[1] + i;
                long long x = (n * k.x.size[1] + channel) * in_space + at;
                long long w = (o * k.w.size[1] + i) * taps + t;
                if (k.makes == MAKES_Y)
                    sums[static_cast<size_t>(y)] += S(get(data[1][x])) * S(get(data[2][w]));
                else if (k.makes == MAKES_X)
                    sums[static_cast<size_t>(x)] += S(get(data[0][y])) * S(get(data[2][w]));
                else
                    sums[static_cast<size_t>(w)] += S(get(data[0][y])) * S(get(data[1][x]));
            }
        }
    }
    for (size_t i = 0; i < sums.size(); i++)
        const_cast<E *>(data[k.makes])[i] = put<E>(sums[i]);
}

static void compute_any(const work &k)
{
    switch (k.x.type) {
    case CUDNN_DATA_DOUBLE:
        compute<f64>(k);
        break;
    case CUDNN_DATA_FLOAT:
        compute<f32>(k);
        break;
    case CUDNN_DATA_HALF:
        compute<f16>(k);
        break;
    default:
        compute<bf16>(k);
    }
}

static bool is(const void *scale, bool wide, double value)
{
    double x = wide ? *static_cast<const double *>(scale)
                    : static_cast<double>(*static_cast<const float *>(scale));

    return x == value;
}

static int queue(cudnnHandle_t handle, const problem &p, const void *x, const void *w,
                 const void *y, int algorithm, const void *room, size_t room_bytes,
                 const void *alpha, const void *beta, way makes)
{
    bool wide = p.x->type == CUDNN_DATA_DOUBLE;

    if (call_fails())
        return lack();
    if (!is_sound(p) || !is(alpha, wide, 1) || !is(beta, wide, 0) || algorithm != 1)
        return STATUS_NOT_SUPPORTED;
    if (!is_device_memory(x, bytes_of(*p.x)) || !is_device_memory(w, bytes_of(*p.w)) ||
        !is_device_memory(y, bytes_of(*p.y)) || room_bytes < WORKSPACE ||
        !is_device_memory(room, WORKSPACE))
        return STATUS_BAD_PARAM;
    work k = {*p.x, *p.w, *p.y, *p.conv, x, w, y, makes};
    return queue_work(handle->stream, [k] { compute_any(k); }) ? 0 : STATUS_BAD_PARAM;
}

EXPORT int cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                   cudnnTensorDescriptor_t x, const void *x_data,
                                   cudnnFilterDescriptor_t w, const void *w_data,
                                   cudnnConvolutionDescriptor_t conv, int algorithm, void *room,
                                   size_t bytes, const void *beta, cudnnTensorDescriptor_t y,
                                   void *y_data)
{
    return queue(handle, {x, w, y, conv}, x_data, w_data, y_data, algorithm, room, bytes, alpha,
                 beta, MAKES_Y);
}

EXPORT int cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                        cudnnFilterDescriptor_t w, const void *w_data,
                                        cudnnTensorDescriptor_t y, const void *y_data,
                                        cudnnConvolutionDescriptor_t conv, int algorithm,
                                        void *room, size_t bytes, const void *beta,
                                        cudnnTensorDescriptor_t x, void *x_data)
{
    return queue(handle, {x, w, y, conv}, x_data, w_data, y_data, algorithm, room, bytes, alpha,
                 beta, MAKES_X);
}

EXPORT int cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                          cudnnTensorDescriptor_t x, const void *x_data,
                                          cudnnTensorDescriptor_t y, const void *y_data,
                                          cudnnConvolutionDescriptor_t conv, int algorithm,
                                          void *room, size_t bytes, const void *beta,
                                          cudnnFilterDescriptor_t w, void *w_data)
{
    return queue(handle, {x, w, y, conv}, x_data, w_data, y_data, algorithm, room, bytes, alpha,
                 beta, MAKES_W);
}
