/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on GPUs when something is missing: whatever allocation fails on one rank, of the CPU's
 * memory or the GPU's, all get ENOMEM, no parameter is lost or half updated, and the same step goes
 * through when it is made again. A GPU that has broken is told at each check, and the world closes.
 */
#include <sherd.h>

#include "device.h"
#include "models.h"
#include "tensor/tensor.h"

enum { IN = 4, HIDDEN = 6, PARAMETERS = 4 };

typedef struct training {
    sherd_module *net;
    sherd_optimizer *adam;
    sherd_dtype dtype;
    const sherd_mesh *mesh;
} training;

static training begin(sherd_world *world, sherd_dtype dtype)
{
    training t = {mlp(world, dtype, IN, HIDDEN, IN), NULL, dtype, line_of_ranks(world)};
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};

    CHECK_OK(sherd_parallelize(t.net, t.mesh, "tp", plan, 2));
    CHECK_OK(sherd_adamw_create(&t.adam, t.net, &(sherd_adamw_options){.weight_decay = 0.1}));
    return t;
}

static void end(training *t)
{
    sherd_optimizer_destroy(t->adam);
    sherd_module_destroy(t->net);
}

/* Forward and backward. */
static void learn(const training *t)
{
    sherd_world *world = sherd_module_world(t->net);
    const int64_t shape[] = {5, IN};

    sherd_scope_begin(world);
    sherd_tensor *x = spread(wave(world, t->dtype, 2, shape, 2, 1, 0), t->mesh, "R");
    sherd_tensor *y = sherd_module_call(t->net, x);
    if (!sherd_tensor_failed(y))
        sherd_backward(squared_error(y, x));
    sherd_scope_end(world);
}

static void step(const training *t)
{
    double norm = sherd_optimizer_grad_norm(t->adam);

    sherd_optimizer_step(t->adam, 0.1, norm > 1 ? 1 / norm : 1);
}

static void read_all(const training *t, double out[PARAMETERS][MOST])
{
    static const char *const layer[] = {"net1", "net2"}, *const name[] = {"weight", "bias"};

    for (int i = 0; i < PARAMETERS; i++)
        whole(sherd_module_parameter(sherd_module_find(t->net, layer[i / 2]), name[i % 2]), out[i]);
}

/* Whether all parameters are these. */
static void check_are(const training *t, double expected[PARAMETERS][MOST])
{
    static _Thread_local double have[PARAMETERS][MOST];

    read_all(t, have);
    for (int i = 0; i < PARAMETERS; i++)
        for (int k = 0; k < IN * (i % 2 ? 1 : HIDDEN); k++)
            if (!CHECK_EQ(have[i][k], expected[i][k]))
                return;
}

static void fail_at(sherd_world *world, int64_t k)
{
    if (sherd_world_rank(world) == 0)
        sherd_world_fail_allocation(world, k);
}

/* What parameters are at first, and after a step. */
static _Thread_local double first[PARAMETERS][MOST], second[PARAMETERS][MOST];

static void find_both(sherd_world *world, sherd_dtype dtype)
{
    training t = begin(world, dtype);

    read_all(&t, first);
    learn(&t);
    step(&t);
    CHECK_OK(sherd_world_check(world));
    read_all(&t, second);
    end(&t);
}

/* The k-th allocation of the optimizer's first step fails. True: there are not so many. */
static bool fail_step(sherd_world *world, sherd_dtype dtype, int k)
{
    training t = begin(world, dtype);

    learn(&t);
    CHECK_OK(sherd_world_check(world));
    fail_at(world, k);
    step(&t);
    fail_at(world, 0);
    sherd_status status = sherd_world_check(world);
    if (status) {
        CHECK_EQ(status, SHERD_ENOMEM);
        check_are(&t, first);
        step(&t);
        CHECK_OK(sherd_world_check(world));
    }
    check_are(&t, second);
    end(&t);
    return !status;
}

static void no_parameter_is_lost_in_the_first_step(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};

    for (int d = 0; d < LEN(dtypes); d++) {
        int k = 1;
        find_both(world, dtypes[d]);
        while (k < 400 && !fail_step(world, dtypes[d], k))
            k++;
        CHECK(k > 10 && k < 400);
    }
}

/* Anywhere in a pass. */
static bool fail_pass(sherd_world *world, int k)
{
    training t = begin(world, SHERD_F32);

    fail_at(world, k);
    learn(&t);
    step(&t);
    fail_at(world, 0);
    sherd_status status = sherd_world_check(world);
    if (status) {
        CHECK_EQ(status, SHERD_ENOMEM);
        check_are(&t, first);
        sherd_optimizer_clear(t.adam);
        learn(&t);
        step(&t);
        CHECK_OK(sherd_world_check(world));
    }
    check_are(&t, second);
    end(&t);
    return !status;
}

static void a_pass_that_failed_can_be_made_again(sherd_world *world)
{
    int k = 1;

    find_both(world, SHERD_F32);
    while (k < 4000 && !fail_pass(world, k))
        k += 1 + k / 8;
    CHECK(k > 100 && k < 4000);
}

/* ---- a GPU that breaks ----------------------------------------------------------------------- */

/* One rank's, with a call of the driver in the middle of a pass. */
static int a_broken_gpu_is_told_at_each_check(sherd_world *world, void *context)
{
    training t = begin(world, SHERD_F32);
    const int *calls = context;

    learn(&t);
    step(&t);
    sherd_status status = sherd_world_check(world);
    CHECK_OK(status);
    if (sherd_world_rank(world) == 0)
        break_call(*calls);
    for (int turn = 0; turn < 3; turn++) {
        sherd_optimizer_clear(t.adam);
        learn(&t);
        step(&t);
        status = sherd_world_check(world);
        if (turn == 0)
            continue; /* not all may have met it yet */
        CHECK_EQ(status, SHERD_ENOTSUP);
        CHECK(strstr(sherd_world_error(world), "cuda:0: "));
        CHECK(strstr(sherd_world_error(world), " 700"));
    }
    end(&t);
    return 0;
}

static void worlds_of_broken_gpus_close(sherd_world *outer)
{
    static const int calls[] = {0, 1, 7, 20, 50};

    (void)outer;
    for (int ranks = 1; ranks <= 3; ranks++)
        for (int i = 0; i < LEN(calls) && is_emulated(); i++) {
            int n = calls[i];
            const sherd_world_options options = {.ranks = ranks, .as = SHERD_THREADS};
            int exit_status;
            sherd_status status =
                sherd_spawn(&exit_status, &options, a_broken_gpu_is_told_at_each_check, &n);
            CHECK_EQ(status, SHERD_ENOTSUP);
            fail_call(-1);
        }
}

/* A rank without a GPU is all ranks' status, whichever call of the driver's it is that fails. */
static int go_on(sherd_world *world, void *begun)
{
    atomic_fetch_add((atomic_int *)begun, 1);
    CHECK_OK(sherd_world_check(world));
    return 0;
}

static void a_gpu_that_does_not_open_is_all_ranks_status(sherd_world *outer)
{
    (void)outer;
    for (int ranks = 1; ranks <= 4; ranks += ranks) {
        int opening = 0;
        for (int at = 0; is_emulated(); at++) {
            char error[SHERD_ERROR_BYTES] = "";
            const sherd_world_options options = {
                .ranks = ranks, .as = SHERD_THREADS, .error = error};
            atomic_int begun = 0;
            int exit_status;
            fail_call(at);
            sherd_status status = sherd_spawn(&exit_status, &options, go_on, &begun);
            bool came = !call_will_fail();
            fail_call(-1);
            if (!came)
                break;
            if (status == SHERD_OK) { /* it was one of closing */
                CHECK_EQ(begun, ranks);
                continue;
            }
            CHECK_EQ(status, SHERD_ENOTSUP);
            CHECK(begun == 0 || begun == ranks);
            CHECK(strstr(error, "cuda:0: ") ||
                  (!begun && strstr(error, "the GPU cannot be used: ")));
            opening += begun == 0;
        }
        CHECK(!is_emulated() || opening >= 9 * ranks);
    }
}

static const check_test tests[] = {
    {TEST(a_gpu_that_does_not_open_is_all_ranks_status), {1}},
    {TEST(no_parameter_is_lost_in_the_first_step), {1, 3}},
    {TEST(a_pass_that_failed_can_be_made_again), {1, 2}},
    {TEST(worlds_of_broken_gpus_close), {1}},
};
CHECK_MAIN(tests)
