/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step of one tensor between the memories of GPUs, as this rank runs it: each region is queued
 * as a kernel that reads what it lacks where other ranks said that it lies. And whether the GPU
 * still works, which all that queue work ask in the end.
 */
#include "devices.h"
#include "doing.h"
#include "vector/choose.h"

#include <string.h>

static const int64_t *told_by(const sherd__device_work *w, int rank)
{
    return w->all + (int64_t)w->place[rank] * w->words + SHERD__TOLD_PLACES +
           (int64_t)w->index * SHERD__PLACE_WORDS;
}

/* Where a pull begins, and the strides there. NULL: noted. */
static const void *find(const sherd__device_work *w, const sherd__pull *pull, bool own,
                        int64_t *stride)
{
    const void *data = w->source;
    int64_t at = 0;

    memcpy(stride, w->stride, sizeof w->stride);
    if (!own) {
        const int64_t *word = told_by(w, pull->rank);
        data = sherd__device_import(w->device, word + SHERD__PLACE_SOURCE);
        memcpy(stride, word + SHERD__PLACE_STRIDE, sizeof w->stride);
    }
    for (int d = 0; d < w->schedule->ndim; d++)
        at += pull->offset[d] * stride[d];
    return data ? (const char *)data + at * (int64_t)w->element_bytes : NULL;
}

static void fill_region(const sherd__device_work *w, const sherd__region *region, void *dst)
{
    int64_t value; /* room for an element of any dtype */

    w->kernels->fill(&value, 1, w->schedule->fill);
    sherd__device_fill_box(w->device, w->element_bytes, w->schedule->ndim, region->size, dst,
                           w->schedule->target_stride, &value);
}

/* More addends than a kernel takes are added onto the result, in the same order. */
static void add_region(const sherd__device_work *w, const sherd__region *region, int rank,
                       void *dst)
{
    const sherd__schedule *schedule = w->schedule;
    const sherd__pull *pull = schedule->pull + region->first;
    int64_t stride[SHERD__DEVICE_ADDENDS][SHERD_MAX_DIMS];
    const void *src[SHERD__DEVICE_ADDENDS];

    for (int done = 0; done < region->count;) {
        int held = done ? 1 : 0, count = held;
        if (held) {
            src[0] = dst;
            memcpy(stride[0], schedule->target_stride, sizeof stride[0]);
        }
        for (; count < SHERD__DEVICE_ADDENDS && done < region->count; count++, done++)
            if (!(src[count] = find(w, &pull[done], pull[done].rank == rank, stride[count])))
                return;
        sherd__device_reduce(w->device, w->move->dtype, schedule->op, schedule->ndim, region->size,
                             dst, schedule->target_stride, count, src,
                             (const int64_t(*)[SHERD_MAX_DIMS])stride,
                             done == region->count ? schedule->divisor : 1);
    }
}

static void run_region(const sherd__device_work *w, const sherd__region *region, int rank)
{
    const sherd__schedule *schedule = w->schedule;
    void *dst = (char *)w->result + region->at * (int64_t)w->element_bytes;
    int64_t stride[SHERD_MAX_DIMS];

    if (region->count == 0) {
        fill_region(w, region, dst);
    } else if (region->count > 1) {
        add_region(w, region, rank, dst);
    } else {
        const sherd__pull *pull = schedule->pull + region->first;
        const void *src = find(w, pull, pull->rank == rank, stride);
        if (src)
            sherd__device_copy_box(w->device, w->element_bytes, schedule->ndim, region->size, dst,
                                   schedule->target_stride, src, stride);
    }
}

/* What this rank has added up of a sliced reduction, to the same place in every sharer's result. */
static void spread(const sherd__device_work *w, const sherd__region *region)
{
    int64_t at = region->at * (int64_t)w->element_bytes;
    int64_t bytes = region->size[0] * (int64_t)w->element_bytes;

    for (int k = 0; k < w->schedule->sharers && bytes > 0; k++) {
        const void *there = sherd__device_import(w->device, told_by(w, w->schedule->sharer[k]) +
                                                                SHERD__PLACE_RESULT);
        if (there)
            sherd__device_move(w->device, (char *)(uintptr_t)there + at,
                               (const char *)w->result + at, bytes);
    }
}

void sherd__device_work_run(const sherd__device_work *w, int rank)
{
    bool sliced = w->move->plan->step[w->move->step].sliced;

    for (int k = 0; k < w->schedule->regions; k++) {
        const sherd__region *region = &w->schedule->region[k];
        run_region(w, region, rank);
        if (sliced)
            spread(w, region);
    }
}

static void *start_of(const sherd__device_block *block, int64_t offset, size_t element_bytes)
{
    return block ? (char *)block->data + (size_t)offset * element_bytes : NULL;
}

sherd__device_work sherd__device_work_of(const sherd_world *world, const sherd__move *move)
{
    const sherd_step *step = &move->plan->step[move->step];
    size_t bytes = move->plan->element_bytes;
    sherd__device_work w = {.device = world->device,
                            .move = move,
                            .schedule = move->plan->mine[move->step],
                            .kernels = sherd__kernels_of_any(&world->kernels, move->dtype),
                            .element_bytes = bytes,
                            .source = start_of(move->device_source, move->source_offset, bytes),
                            .result = start_of(move->device_result, move->result_offset, bytes)};

    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        w.stride[d] = step->sliced ? 1 : move->source_stride ? move->source_stride[d] : 0;
    return w;
}

bool sherd__device_slice(sherd_world *world, const sherd__move *move)
{
    const sherd__device_work w = sherd__device_work_of(world, move);

    sherd__device_work_run(&w, world->rank);
    return sherd__device_sound(world);
}

bool sherd__device_sound(sherd_world *world)
{
    sherd__device *device = world->device;
    const char *lacked = device ? sherd__device_lacked(device) : NULL;
    const char *fault = device ? sherd__device_fault(device) : NULL;

    if (lacked)
        sherd__fail_doing(world, true, SHERD_ENOMEM, "%s: %s", sherd__device_name(device), lacked);
    else if (fault)
        sherd__raise(world, SHERD_ENOTSUP, "%s", fault);
    return !lacked && !fault;
}
