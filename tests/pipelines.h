/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model of some stages, to be run as a pipeline or as a whole: each stage passes on tanh(W h +
 * b), a second tensor that wants a gradient too (some stages pass it as it is, and twice), and
 * indices that want none. Microbatches have other sizes, and the loss is of all.
 */
#ifndef SHERD_TESTS_PIPELINES_H
#define SHERD_TESTS_PIPELINES_H

#include "models.h"
#include "sherd/pipeline.h"

enum { WIDTH = 6, STAGES_AT_MOST = 8, ROWS_AT_LEAST = 2 };

/* Where a stage must lie, of so many places. */
static inline int place_of(int stage, int places, sherd_pipeline_schedule schedule)
{
    bool back = schedule == SHERD_PIPELINE_ZERO_BUBBLE_V && stage >= places;

    return back ? 2 * places - 1 - stage : stage % places;
}

static inline int64_t rows_of(int64_t microbatch)
{
    return ROWS_AT_LEAST + microbatch * 3 % 4;
}

static inline void stage_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *gain = sherd_module_parameter(self, "gain");
    const bool *passes = sherd_module_payload(self); /* the second tensor as it is, and twice */
    sherd_tensor *second = in->value[1];

    if (in->count > 3)
        second = sherd_add(second, in->value[3]);
    if (gain)
        second = sherd_mul(second, gain);
    else if (!passes)
        second = sherd_scale(second, 1.25);
    out->count = passes ? 4 : 3;
    out->value[0] = sherd_tanh(sherd_module_call(sherd_module_find(self, "net"), in->value[0]));
    out->value[1] = second;
    out->value[2] = in->value[2];
    out->value[3] = second;
}

/* Stage number i; only the first has a gain. */
static inline sherd_module *make_stage(sherd_world *world, int i)
{
    static bool passes = true;
    sherd_module *m = container(world, stage_forward, i % 3 == 1 ? &passes : NULL);

    linear_layer(m, "net", SHERD_F64, WIDTH, WIDTH, 2 * i + 1);
    if (i == 0)
        CHECK_OK(sherd_module_add_parameter(
            m, "gain", wave(world, SHERD_F64, 1, (int64_t[]){WIDTH}, 3, 0.5, 1)));
    return m;
}

static inline sherd_tensor *input_of(sherd_world *world, int64_t microbatch)
{
    return wave(world, SHERD_F64, 2, (int64_t[]){rows_of(microbatch), WIDTH}, (int)microbatch + 1,
                1, 0);
}

static inline sherd_tensor *indices_of(sherd_world *world, int64_t microbatch)
{
    int64_t data[ROWS_AT_LEAST + 4];

    for (int i = 0; i < LEN(data); i++)
        data[i] = 100 * microbatch + i;
    return sherd_mark_equal(
        sherd_from_data(world, SHERD_I64, (int64_t[]){rows_of(microbatch)}, 1, data));
}

static inline sherd_tensor *loss_of(const sherd_args *out)
{
    return sherd_add(sherd_sum(sherd_mul(out->value[0], out->value[1])),
                     sherd_mean(sherd_square(out->value[1])));
}

/* The whole model on one process: the sum of losses, and gradients in its parameters. */
static inline double run_whole(sherd_module *const *stage, int stages, int64_t count)
{
    sherd_world *world = sherd_module_world(stage[0]);
    double sum = 0;

    for (int64_t m = 0; m < count; m++) {
        sherd_args in = {.count = 3};
        sherd_scope_begin(world);
        in.value[0] = in.value[1] = input_of(world, m);
        in.value[2] = indices_of(world, m);
        for (int i = 0; i < stages; i++) {
            sherd_args out = {.count = 0};
            sherd_module_run(stage[i], &in, &out);
            in = out;
        }
        sherd_tensor *loss = loss_of(&in);
        sherd_backward(loss);
        sum += sherd_item(loss);
        sherd_scope_end(world);
    }
    return sum;
}

#endif
