/* SPDX-License-Identifier: Apache-2.0 */
/* Several optimizers in one file. */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

enum { ALL = 2 };

typedef struct run {
    sherd_module *m;
    sherd_optimizer *o[ALL]; /* Muon of net1, SGD of net2 */
} run;

static run begin(sherd_world *world, bool sharded, sherd_dtype dtype)
{
    run r = {.m = mlp(world, dtype, 6, 8, 5)};

    if (sharded)
        CHECK_OK(sherd_fully_shard(r.m, line_of_ranks(world), "tp", NULL));
    CHECK_OK(sherd_muon_create(&r.o[0], sherd_module_find(r.m, "net1"), NULL));
    CHECK_OK(sherd_sgd_create(&r.o[1], sherd_module_find(r.m, "net2"),
                              &(sherd_sgd_options){.momentum = 0.9}));
    return r;
}

static void end(run *r)
{
    for (int i = 0; i < ALL; i++)
        sherd_optimizer_destroy(r->o[i]);
    sherd_module_destroy(r->m);
}

static void step(const run *r, sherd_dtype dtype, int k)
{
    sherd_world *world = sherd_module_world(r->m);

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_module_call(r->m, wave(world, dtype, 2, SHAPE(4, 6), k, 1, 0));
    sherd_backward(squared_error(y, wave(world, dtype, 2, SHAPE(4, 5), k + 7, 1, 0)));
    for (int i = 0; i < ALL; i++) {
        sherd_optimizer_step(r->o[i], 0.05, 1);
        sherd_optimizer_clear(r->o[i]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void compare_weights(const run *a, const run *b, double bound)
{
    static const char *const names[] = {"net1", "net2"};
    double x[MOST], y[MOST];

    for (int i = 0; i < 2; i++) {
        int64_t n = whole(sherd_module_parameter(sherd_module_find(a->m, names[i]), "weight"), x);
        CHECK_EQ(whole(sherd_module_parameter(sherd_module_find(b->m, names[i]), "weight"), y), n);
        for (int64_t k = 0; k < n; k++)
            CHECK_NEAR(x[k], y[k], bound);
    }
}

/* The state of both is read, in any layout; one that was frozen when this run began, too. */
static void a_run_goes_on_with_all_of_them(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "several");

    for (int k = 0; k < 8; k++) {
        sherd_dtype dtype = k & 4 ? SHERD_BF16 : SHERD_F64;
        run from = begin(world, k & 1, dtype);
        step(&from, dtype, 1);
        step(&from, dtype, 2);
        const sherd_write_options out = {.optimizers = from.o, .optimizer_count = ALL};
        CHECK_OK(sherd_module_write_with(from.m, NULL, path, &out));
        run to = begin(world, k & 2, dtype);
        sherd_optimizer_destroy(to.o[1]);
        sherd_module *net2 = sherd_module_find(to.m, "net2");
        CHECK_EQ(sherd_module_require_grad(net2, "weight", false), 1);
        CHECK_OK(sherd_sgd_create(&to.o[1], net2, &(sherd_sgd_options){.momentum = 0.9}));
        const sherd_read_options in = {.optimizers = to.o, .optimizer_count = ALL};
        CHECK_OK(sherd_module_read(to.m, NULL, path, &in));
        CHECK_EQ(sherd_module_require_grad(net2, "weight", true), 1);
        compare_weights(&from, &to, 0);
        step(&from, dtype, 3);
        step(&to, dtype, 3);
        compare_weights(&from, &to, dtype == SHERD_F64 ? 1e-11 : 2e-2);
        end(&from);
        end(&to);
    }
    remove_file(world, path);
}

static void says(sherd_world *world, const char *text)
{
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "instead of \"%s\": %s\n", text, sherd_world_error(world));
}

static void the_file_must_have_all_and_no_other(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "others");
    run r = begin(world, false, SHERD_F32);
    sherd_optimizer *turned[] = {r.o[1], r.o[0]}, *whole_o = NULL;
    sherd_optimizer *with_none[] = {r.o[0], NULL};
    const sherd_write_options out = {.optimizers = r.o, .optimizer_count = ALL};
    const sherd_read_options one = {.optimizers = r.o, .optimizer_count = 1},
                             other = {.optimizers = turned, .optimizer_count = ALL},
                             both = {.optimizers = r.o, .optimizer_count = ALL},
                             none = {.optimizers = with_none, .optimizer_count = ALL},
                             fewer = {.optimizer_count = -1};

    step(&r, SHERD_F32, 1);
    CHECK_OK(sherd_adamw_create(&whole_o, r.m, NULL));
    CHECK_OK(sherd_module_write_with(r.m, NULL, path, &out));
    CHECK_OK(sherd_module_read(r.m, NULL, path, NULL));
    CHECK_OK(sherd_module_read(r.m, NULL, path, &both));
    CHECK_EQ(sherd_module_read(r.m, NULL, path, &one), SHERD_EINVAL);
    says(world, "\"optimizers.1.weight.");
    CHECK_EQ(sherd_module_read(r.m, NULL, path, &other), SHERD_EINVAL);
    CHECK_EQ(sherd_module_read(r.m, whole_o, path, NULL), SHERD_EINVAL);
    says(world, "\"optimizer.net1.weight.");
    CHECK_EQ(sherd_module_read(r.m, NULL, path, &none), SHERD_EINVAL);
    says(world, "2 optimizers in the options: one is NULL");
    CHECK_EQ(sherd_module_read(r.m, NULL, path, &fewer), SHERD_EINVAL);
    CHECK_OK(sherd_module_write(r.m, whole_o, path));
    CHECK_EQ(sherd_module_read(r.m, NULL, path, &both), SHERD_EINVAL);
    says(world, "\"optimizers.0.weight.");
    sherd_optimizer_destroy(whole_o);
    end(&r);
    remove_file(world, path);
}

static void ranks_with_other_optimizers_differ(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "differ");
    run r = begin(world, false, SHERD_F32);
    const sherd_write_options out = {.optimizers = r.o,
                                     .optimizer_count = 1 + (sherd_world_rank(world) == 0)};

    CHECK_EQ(sherd_module_write_with(r.m, NULL, path, &out), SHERD_EDIFFER);
    (void)sherd_world_check(world);
    end(&r);
}

static const check_test tests[] = {
    {TEST(a_run_goes_on_with_all_of_them), {1, 2, 3, 4}},
    {TEST(the_file_must_have_all_and_no_other), {1, 2, 3}},
    {TEST(ranks_with_other_optimizers_differ), {2, 3}},
};
CHECK_MAIN(tests)
