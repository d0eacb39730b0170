/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy with its options on the GPU, and its gradients, are what the CPU computes, on any
 * mesh: also where ranks have other classes or positions, or none. SHERD_DEVICE is set for this
 * program.
 */
#include "device_both.h"

enum { ROWS = 7, CLASSES = 9, NUMBERS = 3 /* loss; gradients of logits and probabilities */ };

typedef struct subject {
    const char *name;
    sherd_loss_reduction reduction;
    double smoothing;
    bool weighted, probabilities;
    int ignored; /* 0 = none; else all targets of this number, or with -1, all there are */
} subject;

static const subject subjects[] = {
    {"mean", SHERD_LOSS_MEAN, 0, false, false, 3},
    {"smoothed mean", SHERD_LOSS_MEAN, 0.2, true, false, 2},
    {"sum", SHERD_LOSS_SUM, 0, true, false, 0},
    {"each", SHERD_LOSS_NONE, 0.1, false, false, 3},
    {"probabilities", SHERD_LOSS_MEAN, 0.1, true, true, 0},
    {"each of probabilities", SHERD_LOSS_NONE, 0, false, true, 0},
    {"nothing counts", SHERD_LOSS_MEAN, 0, false, false, -1},
};

static sherd_tensor *targets_of(sherd_world *world, const subject *s)
{
    int32_t id[ROWS];

    for (int i = 0; i < ROWS; i++)
        id[i] = s->ignored < 0 ? 1 : i * 5 % CLASSES;
    return sherd_mark_equal(sherd_from_data(world, SHERD_I32, (int64_t[]){ROWS}, 1, id));
}

static void run(sherd_world *world, const subject *s, const sherd_mesh *mesh,
                const char *placements, sherd_dtype dtype, bool looks, double out[NUMBERS][MOST],
                int64_t count[NUMBERS])
{
    const int64_t shape[] = {ROWS, CLASSES}, classes = CLASSES;

    sherd_scope_begin(world);
    sherd_tensor *in[] = {wave(world, dtype, 2, shape, 3, 4, 0),
                          s->probabilities ? wave(world, dtype, 2, shape, 5, 0.4, 0.5)
                                           : targets_of(world, s)};
    in[0] = sherd_require_grad(sherd_detach(spread(in[0], mesh, placements)), true);
    if (s->probabilities)
        in[1] = sherd_require_grad(sherd_detach(spread(in[1], mesh, placements)), true);
    const sherd_cross_entropy_options options = {
        .reduction = s->reduction,
        .label_smoothing = s->smoothing,
        .weight = s->weighted ? wave(world, dtype, 1, &classes, 2, 1, 1) : NULL,
        .has_ignored = s->ignored != 0,
        .ignored = s->ignored < 0 ? 1 : s->ignored};
    sherd_tensor *loss = sherd_cross_entropy_with(in[0], in[1], &options);
    check_there(loss, looks, s->name);
    count[0] = whole(loss, out[0]);
    sherd_backward(sherd_sum(sherd_mul(loss, loss)));
    for (int i = 0; i < 2; i++) {
        sherd_tensor *grad = i == 0 || s->probabilities ? sherd_grad(in[i]) : NULL;
        check_there(grad, looks, s->name);
        count[i + 1] = whole(grad, out[i + 1]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16};
    static const double tolerance[] = {2e-5, 1e-12, 4e-2};
    static _Thread_local double there[NUMBERS][MOST], here[NUMBERS][MOST];
    const sherd_mesh *mesh = NULL;
    int64_t count[NUMBERS], again[NUMBERS], ranks = sherd_world_ranks(world);
    int calls = 0;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int f = 0; f < LEN(subjects); f++)
        for (int p = 0; p < LEN(placements); p++) {
            int d = (f + p + (int)ranks) % LEN(dtypes);
            run(world, &subjects[f], mesh, placements[p], dtypes[d], true, there, count);
            compute_on_the_cpu(world, &calls);
            run(world, &subjects[f], mesh, placements[p], dtypes[d], false, here, again);
            compute_on_the_cpu(world, NULL);
            for (int i = 0; i < NUMBERS; i++) {
                CHECK_EQ(count[i], again[i]);
                check_close(there[i], here[i], count[i], tolerance[d], subjects[f].name,
                            placements[p], i);
            }
        }
    CHECK(calls > 0);
}

/* Only the CPU sees which target is wrong; all ranks are told. */
static void a_wrong_target_is_all_ranks_error(sherd_world *world)
{
    const int64_t shape[] = {2, 3}, n = 2;
    const int32_t id[] = {1, 3};

    sherd_scope_begin(world);
    sherd_tensor *logits = wave(world, SHERD_F32, 2, shape, 3, 1, 0);
    sherd_tensor *targets = sherd_mark_equal(sherd_from_data(world, SHERD_I32, &n, 1, id));
    sherd_cross_entropy_with(sherd_scale(logits, 2), targets, NULL);
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "targets[1] = 3 is outside of [0,3)"));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {"same_on_both", same_on_both, {1, 2, 3, 8}},
    {"a_wrong_target_is_all_ranks_error", a_wrong_target_is_all_ranks_error, {1, 3}},
};

CHECK_MAIN(tests)
