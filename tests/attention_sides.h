/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of attention's kernels: a version with its results, all versions beside the plain one. */
#ifndef SHERD_TESTS_ATTENTION_SIDES_H
#define SHERD_TESTS_ATTENTION_SIDES_H

#include "kernel_versions.h"

enum { ROOM = 300000, LINE = 64 };

/* Inputs q, k, v, dout; results out, log_sum, dq, dk, dv, and what a mask of numbers gets. */
typedef struct side {
    sherd__kernels kernels;
    float *result[5];
    float *space;
    double *dmask;
} side;

static float *input[4];

static inline float *array(void)
{
    float *x = malloc(sizeof(float) * ROOM);
    if (!x)
        abort();
    return x;
}

static inline side open_side(void)
{
    side s = {.kernels = sherd__ref_f32, .space = array(), .dmask = malloc(sizeof(double) * ROOM)};
    for (int i = 0; i < 5; i++)
        s.result[i] = array();
    return s;
}

static inline void close_side(side *s)
{
    for (int i = 0; i < 5; i++)
        free(s->result[i]);
    free(s->space);
    free(s->dmask);
}

static inline void open_inputs(void)
{
    for (uint64_t i = 0; i < 4; i++) {
        input[i] = array();
        sherd__ref_f32.uniform(ROOM, input[i], -2, 2, sherd__philox_key(5, i, 0), 0);
    }
}

static inline void close_inputs(void)
{
    for (int i = 0; i < 4; i++)
        free(input[i]);
}

static inline sherd__attending problem(int64_t batch, int64_t groups, int64_t repeat,
                                       int64_t queries, int64_t keys, int64_t width, double scale)
{
    return (sherd__attending){.batch = batch,
                              .groups = groups,
                              .repeat = repeat,
                              .queries = queries,
                              .keys = keys,
                              .width = width,
                              .scale = scale,
                              .all_queries = queries,
                              .all_keys = keys,
                              .all_heads = groups * repeat,
                              .all_repeat = repeat};
}

/* Elements of the largest result, and some behind it, which nobody may touch. */
static inline int64_t watched(const sherd__attending *s)
{
    int64_t queries = s->batch * s->queries * sherd__query_stride(s);
    int64_t keys = s->batch * s->keys * sherd__key_stride(s);
    int64_t sums = s->batch * s->groups * s->repeat * s->queries;

    return 64 + sherd__max(queries, sherd__max(keys, sums));
}

/* Elements of a mask that has a gradient; 0: there is none. */
static inline int64_t learned(const sherd__attending *s)
{
    const int64_t size[] = {s->batch, s->groups, s->repeat, s->queries, s->all_keys};
    int64_t n = 1;

    for (int d = 0; d < 5; d++)
        n += (size[d] - 1) * s->mask_stride[d];
    return s->mask && s->mask_dtype != SHERD_BOOL && n < ROOM ? n : 0;
}

/* Forward and backward; the workspace begins off a cache line, and its end is watched. */
static inline void run(side *s, const sherd__attending *shape, const float *dlog_sum)
{
    int64_t need = s->kernels.attention_workspace(shape);

    CHECK(need + 2 < ROOM);
    for (int i = 0; i < 5; i++)
        for (int64_t j = 0; j < watched(shape); j++)
            s->result[i][j] = 77;
    s->space[1 + need] = 77;
    s->kernels.attention(shape, s->result[0], s->result[1], input[0], input[1], input[2],
                         s->space + 1);
    for (int64_t i = 0; i < learned(shape); i++)
        s->dmask[i] = 1; /* is added to */
    s->kernels.attention_grad(shape, s->result[2], s->result[3], s->result[4],
                              learned(shape) ? s->dmask : NULL, input[3], dlog_sum, input[0],
                              input[1], input[2], s->result[0], s->result[1], s->space + 1);
    CHECK_EQ(s->space[1 + need], 77);
}

/* Gradients are sums of up to 100 terms of size 4 that may cancel to 0: hence 5e-5 there. */
static inline void compare(const side *plain, const side *fast, const sherd__attending *s)
{
    for (int i = 0; i < 5; i++)
        for (int64_t j = 0; j < watched(s); j++) {
            float x = plain->result[i][j], y = fast->result[i][j];
            if (x == y || fabsf(x - y) <= (i < 2 ? 1e-5f : 5e-5f) * (1 + fabsf(x)))
                continue;
            fprintf(stderr,
                    "%s: b%d g%d r%d q%d k%d w%d causal %d window %d cap %g mask %d: element %d of "
                    "result "
                    "%d: %.9g is %.9g\n",
                    fast->kernels.name, (int)s->batch, (int)s->groups, (int)s->repeat,
                    (int)s->queries, (int)s->keys, (int)s->width, s->causal, (int)s->window,
                    s->softcap, s->mask ? (int)s->mask_dtype : -1, (int)j, i, (double)x, (double)y);
            CHECK(false);
            return;
        }
}

static inline void compare_masks(const side *plain, const side *fast, const sherd__attending *s)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < learned(s); i++)
        wrong += !(fabs(plain->dmask[i] - fast->dmask[i]) <= 1e-4 * (1 + fabs(plain->dmask[i])));
    CHECK_EQ(wrong, 0);
}

static inline void try_with(side *plain, side *fast, const sherd__attending *shape,
                            const float *dlog_sum)
{
    sherd__kernels list[FAST_SETS];
    int n = versions(list);

    run(plain, shape, dlog_sum);
    for (int i = 0; i < n; i++) {
        fast->kernels = list[i];
        run(fast, shape, dlog_sum);
        compare(plain, fast, shape);
        compare_masks(plain, fast, shape);
    }
}

static inline void try_shape(side *plain, side *fast, const sherd__attending *shape)
{
    try_with(plain, fast, shape, NULL);
}

#endif
