/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of this rank's pieces: on the GPU by cuDNN, on the CPU as products of patches
 * (conv_patches.c), by oneDNN or the plain kernels, 16 bits of the CPU in f32; then the bias, if it
 * is not in the result already.
 */
#include "conv.h"

#include "base/num.h"
#include "base/saturate.h"
#include "device/dnn.h"
#include "kernels/engine.h"
#include "vector/choose.h"

enum { FIRST = 2 };

/*
 * The geometry of this rank's pieces: their offsets in the whole decide what the first output
 * reads.
 */
static sherd__conv geometry(const sherd_call *call, const sherd_box *big, const sherd_box *small)
{
    const sherd__conv_attributes *a = call->attributes;
    int dims = big->ndim - FIRST, skip = SHERD__CONV_DIMS - dims;
    sherd__conv c = {
        .batch = big->size[0], .in_channels = big->size[1], .out_channels = small->size[1]};

    c.groups = a->groups;
    for (int i = 0; i < SHERD__CONV_DIMS; i++) {
        int d = i - skip;
        c.in[i] = d < 0 ? 1 : big->size[FIRST + d];
        c.out[i] = d < 0 ? 1 : small->size[FIRST + d];
        c.kernel[i] = d < 0 ? 1 : a->kernel[d];
        c.stride[i] = d < 0 ? 1 : a->stride[d];
        c.dilation[i] = d < 0 ? 1 : a->dilation[d];
        c.before[i] =
            d < 0 ? 0
                  : a->before[d] + big->offset[FIRST + d] - small->offset[FIRST + d] * a->stride[d];
    }
    return c;
}

/* How many groups this rank has: those of its channels, all whole. */
static int64_t local_groups(int64_t groups, int64_t whole, int64_t mine)
{
    return groups > 1 && whole ? sherd__max(groups * mine / whole, 1) : 1;
}

/* Of the elements of an array: other sizes may be any beside one of 0. */
static int64_t count_of(int64_t first, int64_t second, const int64_t *size)
{
    return sherd__times_all(sherd__times(first, second), SHERD__CONV_DIMS, size);
}

/* How many elements of big, weight and small this rank has. */
static void count_all(const sherd__conv *c, int64_t *count)
{
    count[0] = count_of(c->batch, c->in_channels, c->in);
    count[1] = count_of(c->out_channels, c->in_channels / c->groups, c->kernel);
    count[2] = count_of(c->batch, c->out_channels, c->out);
}

static const int made_by[] = {[SHERD__CONV_FORWARD] = SHERD__CONV_Y,
                              [SHERD__CONV_BACKWARD_X] = SHERD__CONV_X,
                              [SHERD__CONV_BACKWARD_W] = SHERD__CONV_W};

/* 16 bits are computed in f32 too. */
static const sherd__kernels *f32_in(const sherd_call *call)
{
    return sherd__kernels_of(sherd__world_kernels(call->world), SHERD_F32);
}

/*
 * By oneDNN, with operands copied to memory that is kept: fresh pages for large fields would take a
 * fifth of the time.
 */
static sherd__done run_onednn(sherd_call *call, const sherd__conv_job *job)
{
    sherd__engine *engine = sherd__engine_in(call);
    int64_t bytes = 0;

    if (!engine)
        return SHERD__CANNOT;
    sherd__done done = sherd__conv_onednn_bytes(&bytes, engine, job);
    if (done != SHERD__DONE)
        return done;
    void *workspace = sherd_call_scratch(call, sherd__max(bytes, 1));
    if (workspace && sherd__is_dry(call->world))
        return SHERD__DONE;
    return workspace ? sherd__conv_onednn(engine, job, workspace) : SHERD__NO_MEMORY;
}

/* One task in f32 or f64. False: failed. */
static bool run_one(sherd_call *call, const sherd__conv *c, const sherd__conv_task *task,
                    sherd_dtype dtype)
{
    const sherd__conv_job alone = {c, task, 1, NULL, f32_in(call)};
    sherd__done done = dtype == SHERD_F32 ? run_onednn(call, &alone) : SHERD__CANNOT;

    if (done == SHERD__NO_MEMORY)
        return sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a convolution");
    if (done == SHERD__CANNOT && !sherd__is_dry(call->world))
        sherd__conv_plain(c, dtype, task);
    return true;
}

/* 16 bits compute in f32 and are rounded once. False: failed. */
static bool run_half(sherd_call *call, const sherd__conv *c, const int64_t *count,
                     const sherd__conv_task *task)
{
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd__conv_task wide = {.kind = task->kind};
    int made = made_by[task->kind];

    for (int i = 0; i < SHERD__CONV_ARRAYS; i++) {
        wide.array[i] = sherd_call_scratch(call, sherd__max(count[i], 1) * 4);
        if (!wide.array[i])
            return false;
        if (i != made && !sherd__is_dry(call->world))
            kernels->widen(count[i], wide.array[i], task->array[i]);
    }
    if (!run_one(call, c, &wide, SHERD_F32))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    kernels->narrow(count[made], task->array[made], wide.array[made]);
    return true;
}

/* Each task by itself, if they cannot be done together. */
static bool run_apart(sherd_call *call, const sherd__conv_job *job, const int64_t *count)
{
    sherd_dtype dtype = call->out[0]->dtype;

    for (int t = 0; t < job->tasks; t++)
        if (!(sherd__is_half(dtype) ? run_half(call, job->conv, count, &job->task[t])
                                    : run_one(call, job->conv, &job->task[t], dtype)))
            return false;
    return true;
}

/* *biased: the bias is in the result already. False: failed. */
static bool run(sherd_call *call, const sherd__conv_job *job, const int64_t *count, bool *biased)
{
    bool together = call->out[0]->dtype == SHERD_F32 && (job->bias || job->tasks > 1);
    sherd__done done = together ? run_onednn(call, job) : SHERD__CANNOT;

    *biased = job->bias && done == SHERD__DONE;
    if (done == SHERD__NO_MEMORY)
        return sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a convolution");
    return done == SHERD__DONE || run_apart(call, job, count);
}

/* A task's arrays, where they are now. */
static void find_arrays(const sherd_call *call, const sherd__conv_made *made, int count,
                        sherd__conv_task task[SHERD__CONV_AT_ONCE])
{
    for (int t = 0; t < count; t++) {
        task[t].kind = made[t].kind;
        for (int i = 0; i < SHERD__CONV_ARRAYS; i++) {
            int from = made[t].array[i];
            task[t].array[i] = from < 0 ? call->to[~from] : (void *)(uintptr_t)call->from[from];
        }
    }
}

/* Whether the GPU can do all of them; otherwise none has been begun. */
static bool is_for_device(const sherd_call *call, const sherd__conv *c,
                          const sherd__conv_made *made, int count)
{
    bool can = sherd__device_in(call) != NULL;

    for (int t = 0; t < count && can; t++)
        can = sherd__device_convolves(sherd__device_in(call), call->out[0]->dtype, c, made[t].kind);
    return can;
}

/* Fill results with zeroes if one of their factors is empty, so that there is nothing to read. */
static void fill_made(sherd_call *call, const int64_t *count, const sherd__conv_task *task,
                      int tasks)
{
    sherd__device *device = sherd__device_in(call);
    sherd_dtype dtype = call->out[0]->dtype;

    for (int t = 0; t < tasks && !sherd__is_dry(call->world); t++) {
        int made = made_by[task[t].kind];
        if (device)
            sherd__device_fill(device, dtype, task[t].array[made], count[made], 0);
        else
            sherd__kernels_in(call)->fill(task[t].array[made], count[made], 0);
    }
}

/* The bias that this rank adds; NULL: none. */
static const void *bias_of(const sherd_call *call, int bias)
{
    bool has = bias >= 0 && call->operands > bias && call->in[bias] && !(call->once >> bias & 1);

    return has && call->out[0]->count ? call->from[bias] : NULL;
}

/* Adds the bias of each channel to its plane of a result that has elements. NULL is a no-op. */
static void add_bias(const sherd_call *call, const void *bias)
{
    const sherd_tensor *y = call->out[0];

    if (!bias)
        return;
    int64_t space = sherd__local_count(y, FIRST, y->ndim);
    int64_t size[] = {y->local[0], y->local[1], space}, whole[] = {y->local[1] * space, space, 1};
    int64_t stretched[] = {0, 1, 0};

    if (sherd__device_in(call))
        sherd__device_binary(sherd__device_in(call), y->dtype, SHERD__ADD, 3, size, call->to[0],
                             call->to[0], whole, bias, stretched);
    else if (!sherd__is_dry(call->world))
        sherd__kernels_in(call)->binary(SHERD__ADD, 3, size, call->to[0], call->to[0], whole, bias,
                                        stretched);
}

bool sherd__conv_make(sherd_call *call, const sherd__conv_pieces *all, const sherd__conv_made *made,
                      int tasks, int bias)
{
    sherd__conv c = geometry(call, all->big, all->small);
    sherd__conv_task task[SHERD__CONV_AT_ONCE];
    int64_t count[SHERD__CONV_ARRAYS];
    bool good = true, biased = false;

    c.groups = local_groups(c.groups, all->channels, all->big->size[1]);
    count_all(&c, count);
    bool empty = !count[0] || !count[1] || !count[2];
    bool there = !empty && is_for_device(call, &c, made, tasks);
    if (!empty && !there && !sherd__leave_device(call))
        return false;
    find_arrays(call, made, tasks, task);
    const void *added = bias_of(call, bias);
    if (empty)
        fill_made(call, count, task, tasks);
    for (int t = 0; t < tasks && there; t++)
        sherd__device_convolve(sherd__device_in(call), call->out[0]->dtype, &c, &task[t]);
    if (!empty && !there && sherd__conv_is_of_patches(&c)) {
        good = sherd__conv_by_patches(call, &c, task, tasks);
    } else if (!empty && !there) {
        bool first = task[0].kind == SHERD__CONV_FORWARD && tasks == 1;
        good = run(call, &(sherd__conv_job){&c, task, tasks, first ? added : NULL, f32_in(call)},
                   count, &biased);
    }
    add_bias(call, biased ? NULL : added);
    return good;
}
