/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by cuDNN. What a convolution of some shape needs, its descriptors and the algorithm,
 * is prepared once and kept; then a call costs little more than cuDNN's own. cuDNN pads both ends
 * of a dim alike; a rank's pieces often are not padded so, or not read to their end. Then the
 * convolution is one, without padding, of a copy of what it reads.
 */
#include "dnn.h"
#include "inside.h"

#include "base/hash.h"
#include "base/num.h"

#include <limits.h>
#include <string.h>

enum {
    MOST_PLANS = 512,
    MOST_WAYS = 8,
    PLANE = 4,                   /* cuDNN's least dims: batch, channels and two more */
    DIMS = 2 + SHERD__CONV_DIMS, /* and its most here */
    LEAST_ROOM = 1 << 30,        /* bytes of a workspace that are never too many */
    LEAST_COPY = 1 << 20,        /* elements of a copy that are never too many */
    MOST_COPIES = 8              /* of a field, otherwise */
};

typedef struct key {
    sherd__conv c; /* no padding between its fields */
    int64_t dtype, kind;
} key;

typedef struct plan {
    key of;
    bool there;  /* else there is no way */
    bool copies; /* x is a copy of what is read, of spatial size `read` */
    int64_t read[SHERD__CONV_DIMS];
    int64_t step[SHERD__CONV_DIMS]; /* of x, from one element of the copy to the next */
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    cudnnConvolutionDescriptor_t conv;
    int algorithm;
    unsigned failed;        /* algorithms (bits) that could not do it after all */
    bool lacked;            /* memory, when a way was looked for the last time */
    size_t workspace, most; /* bytes; those that it may have */
} plan;

/* ---- what is read ---------------------------------------------------------------------------- */

static int64_t reach_of(const sherd__conv *c, int d)
{
    return (c->kernel[d] - 1) * c->dilation[d] + 1;
}

/* Whether cuDNN can pad this dim, with the same padding at both ends. */
static bool is_even(const sherd__conv *c, int d)
{
    int64_t rest = c->in[d] + 2 * c->before[d] - reach_of(c, d);

    return c->before[d] >= 0 && c->before[d] < reach_of(c, d) && rest >= 0 &&
           rest / c->stride[d] + 1 == c->out[d];
}

/* Whether windows lie apart. Asked for x's gradient then, cuDNN 9.14 divides by zero (in three dims
 * of f32). */
static bool is_apart(const sherd__conv *c, sherd__conv_kind kind, int d)
{
    return kind == SHERD__CONV_BACKWARD_X && c->stride[d] > reach_of(c, d);
}

/* Windows of one element that lie apart are side by side in the copy. */
static void find_what_is_read(plan *p)
{
    const sherd__conv *c = &p->of.c;

    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        bool apart = is_apart(c, (sherd__conv_kind)p->of.kind, d);
        p->copies = p->copies || apart || !is_even(c, d);
        p->step[d] = apart && c->kernel[d] == 1 ? c->stride[d] : 1;
        p->read[d] = c->in[d];
    }
    for (int d = 0; d < SHERD__CONV_DIMS && p->copies; d++)
        p->read[d] = (c->out[d] - 1) * (c->stride[d] / p->step[d]) + reach_of(c, d);
}

/* The part of what is read that there is, as a box of x and of the copy. False: none. */
static bool meeting(const plan *p, int64_t size[DIMS], int64_t x_stride[DIMS],
                    int64_t copy_stride[DIMS], int64_t *x_first, int64_t *copy_first)
{
    const sherd__conv *c = &p->of.c;
    int64_t x_step = 1, copy_step = 1;

    *x_first = *copy_first = 0;
    for (int d = SHERD__CONV_DIMS - 1; d >= 0; d--) {
        int64_t step = p->step[d]; /* element i of the copy is x's i step - before */
        int64_t lo = sherd__ceil_div(sherd__max(0, c->before[d]), step);
        int64_t hi =
            sherd__min(sherd__ceil_div(sherd__max(0, c->in[d] + c->before[d]), step), p->read[d]);
        if (lo >= hi)
            return false;
        size[2 + d] = hi - lo;
        x_stride[2 + d] = step * x_step;
        copy_stride[2 + d] = copy_step;
        *x_first += (lo * step - c->before[d]) * x_step;
        *copy_first += lo * copy_step;
        x_step *= c->in[d];
        copy_step *= p->read[d];
    }
    size[0] = c->batch;
    size[1] = c->in_channels;
    x_stride[1] = x_step;
    x_stride[0] = x_step * c->in_channels;
    copy_stride[1] = copy_step;
    copy_stride[0] = copy_step * c->in_channels;
    return true;
}

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static int64_t count_copy(const plan *p)
{
    return p->of.c.batch * p->of.c.in_channels * product(p->read);
}

static void copy_in(sherd__device *device, const plan *p, void *copy, const void *x)
{
    size_t bytes = sherd_dtype_bytes((sherd_dtype)p->of.dtype);
    int64_t size[DIMS], from[DIMS], to[DIMS], x_first, copy_first;

    sherd__device_set(device, copy, 0, count_copy(p) * (int64_t)bytes);
    if (meeting(p, size, from, to, &x_first, &copy_first))
        sherd__device_copy_box(device, bytes, DIMS, size,
                               (char *)copy + copy_first * (int64_t)bytes, to,
                               (const char *)x + x_first * (int64_t)bytes, from);
}

/* Of dx: what is not read has no gradient. */
static void copy_out(sherd__device *device, const plan *p, void *x, const void *copy)
{
    size_t bytes = sherd_dtype_bytes((sherd_dtype)p->of.dtype);
    int64_t size[DIMS], from[DIMS], to[DIMS], x_first, copy_first, count = 1;
    const sherd__conv *c = &p->of.c;
    int64_t all = c->batch * c->in_channels * product(c->in);
    bool some = meeting(p, size, to, from, &x_first, &copy_first);

    for (int d = 0; d < DIMS && some; d++)
        count *= size[d];
    if (!some || count < all)
        sherd__device_set(device, x, 0, all * (int64_t)bytes);
    if (some)
        sherd__device_copy_box(device, bytes, DIMS, size, (char *)x + x_first * (int64_t)bytes, to,
                               (const char *)copy + copy_first * (int64_t)bytes, from);
}

/* ---- preparing ------------------------------------------------------------------------------- */

static cudnnDataType_t type_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64    ? CUDNN_DATA_DOUBLE
           : dtype == SHERD_F32  ? CUDNN_DATA_FLOAT
           : dtype == SHERD_BF16 ? CUDNN_DATA_BFLOAT16
                                 : CUDNN_DATA_HALF;
}

/* False: there is none, or it does not start. */
static bool start(sherd__device *device)
{
    const sherd__cuda *cuda = &device->cuda;
    cudnnHandle_t dnn = NULL;

    if (device->dnn)
        return true;
    if (!sherd__cuda_load_more(device, SHERD__CUDNN))
        return false;
    int result = cuda->dnn_create(&dnn);
    if (!result && !(result = cuda->dnn_stream(dnn, device->stream)))
        device->dnn = dnn;
    else if (dnn)
        cuda->dnn_destroy(dnn);
    device->not_there[SHERD__CUDNN] = result != 0;
    return !result;
}

/* A dim of its own for batch and channels; a first one of the space that is trivial is left out. */
static int shape_of(int out[DIMS], int64_t first, int64_t second, const int64_t *space, int dims)
{
    out[0] = (int)first;
    out[1] = (int)second;
    for (int d = 0; d < dims - 2; d++)
        out[2 + d] = (int)space[SHERD__CONV_DIMS - (dims - 2) + d];
    return dims;
}

static bool set_tensor(const sherd__cuda *cuda, cudnnTensorDescriptor_t *out, const key *of,
                       int64_t channels, const int64_t *space, int dims)
{
    int shape[DIMS], stride[DIMS], step = 1;

    shape_of(shape, of->c.batch, channels, space, dims);
    for (int d = dims - 1; d >= 0; d--) {
        stride[d] = step;
        step *= shape[d];
    }
    return cuda->dnn_tensor_create(out) == 0 &&
           cuda->dnn_tensor_set(*out, type_of((sherd_dtype)of->dtype), dims, shape, stride) == 0;
}

static bool set_conv(const sherd__cuda *cuda, plan *p, int dims)
{
    int pad[SHERD__CONV_DIMS], stride[SHERD__CONV_DIMS], dilation[SHERD__CONV_DIMS];
    int skip = SHERD__CONV_DIMS - (dims - 2);
    const sherd__conv *c = &p->of.c;
    bool wide = p->of.dtype == SHERD_F64;

    for (int d = skip; d < SHERD__CONV_DIMS; d++) {
        pad[d - skip] = p->copies ? 0 : (int)c->before[d];
        stride[d - skip] = (int)(c->stride[d] / p->step[d]);
        dilation[d - skip] = c->kernel[d] == 1 ? 1 : (int)c->dilation[d];
    }
    return cuda->dnn_conv_create(&p->conv) == 0 &&
           cuda->dnn_conv_set(p->conv, dims - 2, pad, stride, dilation, CUDNN_CROSS_CORRELATION,
                              wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) == 0 &&
           cuda->dnn_conv_groups(p->conv, (int)c->groups) == 0 &&
           cuda->dnn_conv_math(p->conv, wide                       ? CUDNN_DEFAULT_MATH
                                        : p->of.dtype == SHERD_F32 ? CUDNN_FMA_MATH
                                                                   : CUDNN_TENSOR_OP_MATH) == 0;
}

static bool describe(const sherd__cuda *cuda, plan *p)
{
    const sherd__conv *c = &p->of.c;
    bool flat = p->read[0] == 1 && c->out[0] == 1 && c->kernel[0] == 1;
    int dims = flat ? PLANE : DIMS, shape[DIMS];

    shape_of(shape, c->out_channels, c->in_channels / c->groups, c->kernel, dims);
    return set_tensor(cuda, &p->x, &p->of, c->in_channels, p->read, dims) &&
           set_tensor(cuda, &p->y, &p->of, c->out_channels, c->out, dims) &&
           cuda->dnn_filter_create(&p->w) == 0 &&
           cuda->dnn_filter_set(p->w, type_of((sherd_dtype)p->of.dtype), CUDNN_TENSOR_NCHW, dims,
                                shape) == 0 &&
           set_conv(cuda, p, dims);
}

static bool lacks(int result)
{
    return result == CUDNN_STATUS_ALLOC_FAILED_8 ||
           result == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           result == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

static int list_ways(const sherd__device *device, plan *p, sherd__dnn_way way[MOST_WAYS])
{
    const sherd__cuda *cuda = &device->cuda;
    cudnnHandle_t dnn = device->dnn;
    int count = 0;
    int result =
        p->of.kind == SHERD__CONV_FORWARD
            ? cuda->dnn_forward_ways(dnn, p->x, p->w, p->conv, p->y, MOST_WAYS, &count, way)
        : p->of.kind == SHERD__CONV_BACKWARD_X
            ? cuda->dnn_data_ways(dnn, p->w, p->y, p->conv, p->x, MOST_WAYS, &count, way)
            : cuda->dnn_filter_ways(dnn, p->x, p->y, p->conv, p->w, MOST_WAYS, &count, way);

    p->lacked = p->lacked || lacks(result);
    return result ? 0 : count;
}

/* With the descriptors as they are. False: it cannot do that. */
static bool bytes_of(const sherd__device *device, plan *p, int algorithm, size_t *bytes)
{
    const sherd__cuda *cuda = &device->cuda;
    cudnnHandle_t dnn = device->dnn;
    int result = p->of.kind == SHERD__CONV_FORWARD
                     ? cuda->dnn_forward_bytes(dnn, p->x, p->w, p->conv, p->y, algorithm, bytes)
                 : p->of.kind == SHERD__CONV_BACKWARD_X
                     ? cuda->dnn_data_bytes(dnn, p->w, p->y, p->conv, p->x, algorithm, bytes)
                     : cuda->dnn_filter_bytes(dnn, p->x, p->y, p->conv, p->w, algorithm, bytes);

    p->lacked = p->lacked || lacks(result);
    return result == 0;
}

/* Whether an algorithm adds products up directly. Those by Fourier and Winograd transforms keep
 * intermediate results in the operands' type, so that 16 bits are rounded more than once. */
static bool is_by_products(sherd__conv_kind kind, int algorithm)
{
    return algorithm <= (kind == SHERD__CONV_FORWARD ? 3 : 1);
}

static bool may_be_taken(const plan *p, const sherd__dnn_way *way)
{
    bool wide = p->of.dtype == SHERD_F32 || p->of.dtype == SHERD_F64;

    return way->status == 0 && way->determinism == CUDNN_DETERMINISTIC &&
           !(p->failed >> way->algo & 1) &&
           (wide || is_by_products((sherd__conv_kind)p->of.kind, way->algo));
}

/* The fastest of those that give the same bits in every run, as cuDNN guesses; not one that takes
 * much more memory than the fields do. */
static bool choose_way(const sherd__device *device, plan *p)
{
    sherd__dnn_way way[MOST_WAYS];
    p->lacked = p->there = false;
    int count = list_ways(device, p, way);
    for (int i = 0; i < count && !p->there; i++) {
        size_t bytes = 0;
        p->there = may_be_taken(p, &way[i]) && bytes_of(device, p, way[i].algo, &bytes) &&
                   bytes <= p->most;
        p->algorithm = way[i].algo;
        p->workspace = bytes;
    }
    return p->there;
}

/* Whether cuDNN's numbers have room for all of it, windows of several elements are not apart, and a
 * copy is not much larger than the fields: of elements far apart it would be. */
static bool fits(plan *p)
{
    const sherd__conv *c = &p->of.c;
    int64_t x = c->batch * c->in_channels * product(c->in);
    int64_t y = c->batch * c->out_channels * product(c->out);
    int64_t w = c->out_channels * (c->in_channels / c->groups) * product(c->kernel);
    double copy = (double)c->batch * (double)c->in_channels; /* no product of these overflows */

    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        copy *= (double)p->read[d];
        if (is_apart(c, (sherd__conv_kind)p->of.kind, d) && c->kernel[d] > 1)
            return false;
        if (c->stride[d] > INT_MAX || c->dilation[d] > INT_MAX || c->before[d] > INT_MAX)
            return false;
    }
    p->most = sherd__bytes(
        sherd__max(LEAST_ROOM, 2 * (x + y) * (int64_t)sherd_dtype_bytes((sherd_dtype)p->of.dtype)));
    return x <= INT_MAX && y <= INT_MAX && w <= INT_MAX && copy <= (double)INT_MAX &&
           copy <= LEAST_COPY + MOST_COPIES * (double)(x + y);
}

static void drop(sherd__device *device, plan *p)
{
    const sherd__cuda *cuda = &device->cuda;

    if (p->x)
        cuda->dnn_tensor_destroy(p->x);
    if (p->y)
        cuda->dnn_tensor_destroy(p->y);
    if (p->w)
        cuda->dnn_filter_destroy(p->w);
    if (p->conv)
        cuda->dnn_conv_destroy(p->conv);
    sherd__free(device->heap, p);
}

static void drop_all(sherd__device *device)
{
    size_t cursor = 0;
    plan *p;

    while ((p = sherd__map_next(&device->convolutions, &cursor)))
        drop(device, p);
    sherd__map_clear(&device->convolutions);
}

void sherd__device_free_convolutions(sherd__device *device)
{
    drop_all(device);
    if (device->dnn && !device->deserted) /* it waits for all that is queued */
        device->cuda.dnn_destroy(device->dnn);
}

/* ---- those that there are -------------------------------------------------------------------- */

static bool is_plan(const void *item, const void *of)
{
    return memcmp(&((const plan *)item)->of, of, sizeof(key)) == 0;
}

/* NULL: no memory. */
static plan *make_plan(sherd__device *device, const key *of, uint64_t hash)
{
    if (device->convolutions.count >= MOST_PLANS)
        drop_all(device);
    plan *p = sherd__alloc(device->heap, 1, sizeof *p);
    if (!p)
        return NULL;
    p->of = *of;
    find_what_is_read(p);
    if (fits(p) && describe(&device->cuda, p))
        choose_way(device, p);
    if (sherd__map_add(&device->convolutions, hash, p))
        return p;
    drop(device, p);
    return NULL;
}

static plan *plan_of(sherd__device *device, const key *of)
{
    uint64_t hash = sherd__hash_bytes(0, of, sizeof *of);
    plan *p = sherd__map_find(&device->convolutions, hash, is_plan, of);

    return p ? p : make_plan(device, of, hash);
}

bool sherd__device_convolves(sherd__device *device, sherd_dtype dtype, const sherd__conv *c,
                             sherd__conv_kind kind)
{
    const key of = {.c = *c, .dtype = (int64_t)dtype, .kind = (int64_t)kind};

    sherd__cuda_enter(device);
    if (device->failed || !sherd__device_computes(dtype) || !start(device))
        return false;
    const plan *p = plan_of(device, &of);
    return p && p->there;
}

/* ---- computing ------------------------------------------------------------------------------- */

static int call(const sherd__device *device, const plan *p, void *x, void *w, void *y, void *room)
{
    const sherd__cuda *cuda = &device->cuda;
    const double one64 = 1, zero64 = 0;
    const float one32 = 1, zero32 = 0;
    bool wide = p->of.dtype == SHERD_F64;
    const void *one = wide ? (const void *)&one64 : &one32;
    const void *zero = wide ? (const void *)&zero64 : &zero32;

    switch ((sherd__conv_kind)p->of.kind) {
    case SHERD__CONV_BACKWARD_X:
        return cuda->dnn_data(device->dnn, one, p->w, w, p->y, y, p->conv, p->algorithm, room,
                              p->workspace, zero, p->x, x);
    case SHERD__CONV_BACKWARD_W:
        return cuda->dnn_filter(device->dnn, one, p->x, x, p->y, y, p->conv, p->algorithm, room,
                                p->workspace, zero, p->w, w);
    default:
        return cuda->dnn_forward(device->dnn, one, p->x, x, p->w, w, p->conv, p->algorithm, room,
                                 p->workspace, zero, p->y, y);
    }
}

/* Room for the copy and, behind it, the workspace. */
static sherd__device_block *take_room(sherd__device *device, const plan *p, int64_t *copy_bytes)
{
    int64_t bytes = count_copy(p) * (int64_t)sherd_dtype_bytes((sherd_dtype)p->of.dtype);

    *copy_bytes = p->copies ? (int64_t)sherd__round_up(sherd__bytes(bytes), 256) : 0;
    return sherd__device_take(device, *copy_bytes + (int64_t)p->workspace);
}

/* cuDNN's status; -1: no memory. */
static int attempt(sherd__device *device, const plan *p, const sherd__conv_task *task)
{
    void *x = task->array[SHERD__CONV_X], *copy = NULL, *workspace = NULL;
    bool makes_x = task->kind == SHERD__CONV_BACKWARD_X, needs = p->copies || p->workspace;
    sherd__device_block *room = NULL;
    int64_t copy_bytes = 0;

    if (needs && !(room = take_room(device, p, &copy_bytes)))
        return -1;
    if (p->copies)
        copy = room->data;
    if (p->workspace)
        workspace = (char *)room->data + copy_bytes;
    if (copy && !makes_x)
        copy_in(device, p, copy, x);
    int result = call(device, p, copy ? copy : x, task->array[SHERD__CONV_W],
                      task->array[SHERD__CONV_Y], workspace);
    if (copy && makes_x && !result)
        copy_out(device, p, x, copy);
    sherd__device_give(device, room);
    return result;
}

/* cuDNN 8 has one status for that, 9 a thousand. */
static bool is_unsupported(int result)
{
    return result == CUDNN_STATUS_NOT_SUPPORTED_8 ||
           result / CUDNN_STATUSES == CUDNN_STATUS_NOT_SUPPORTED / CUDNN_STATUSES;
}

void sherd__device_convolve(sherd__device *device, sherd_dtype dtype, const sherd__conv *c,
                            const sherd__conv_task *task)
{
    const key of = {.c = *c, .dtype = (int64_t)dtype, .kind = (int64_t)task->kind};
    int result = -1;

    sherd__cuda_enter(device);
    if (device->failed)
        return;
    plan *p = plan_of(device, &of);
    while (p && p->there && is_unsupported(result = attempt(device, p, task))) {
        p->failed |= 1u << p->algorithm; /* cuDNN had guessed that it can; try the next one */
        choose_way(device, p);
    }
    if (result < 0 || lacks(result) || (result && p->lacked))
        sherd__device_lack(device, "out of memory for a convolution");
    else if (result)
        sherd__device_fail(device, "a convolution: cuDNN's status is %d", result);
}
