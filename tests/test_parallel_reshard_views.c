/* SPDX-License-Identifier: Apache-2.0 */
/* input_reshard of views, which products and sums read as they lie: the same bits as without. */
#include "models.h"
#include "sherd/checkpoint.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

/* A view times a vector, whose gradient reads the view; and sums of the view, which last bits show
 * the order of. */
static void view_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const int first = 0;
    sherd_tensor *t = in->value[0], *v = in->value[1];
    sherd_tensor *sums = sherd_sum_over(t, &first, 1, true);

    (void)self;
    out->value[0] = sherd_mul(sherd_matmul(t, v), sherd_matmul(sums, v));
    out->count = 1;
}

static double *gradient_of_view(sherd_world *world, sherd_dtype dtype, const char *lies, int way,
                                int64_t *count)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, view_forward, NULL);
    sherd_tensor *x = sherd_exp(wave(world, dtype, 2, SHAPE(31, 100), 17, 1, 0));
    sherd_tensor *v = sherd_exp(wave(world, dtype, 2, SHAPE(31, 1), 13, 1, 0));
    sherd_args in = {.count = 2}, out = {0};

    x = sherd_require_grad(lies ? spread(x, mesh, lies) : sherd_mark_equal(x), true);
    v = sherd_require_grad(lies ? spread(v, mesh, lies) : sherd_mark_equal(v), true);
    if (way > 0)
        CHECK_OK(sherd_input_reshard(m, mesh, "tp", way == 1 ? 0 : 1));
    sherd_module_checkpoint(m, way == 2);
    in.value[0] = sherd_transpose(sherd_neg(x), 0, 1);
    in.value[1] = sherd_neg(v);
    sherd_module_run(m, &in, &out);
    sherd_backward(sherd_sum(out.value[0]));
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
    return keep(sherd_grad(v), count);
}

static void views_lie_as_before(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64};

    for (int i = 0; i < 2 * LEN(dtypes); i++) {
        const char *lies = i % 2 ? "R" : NULL;
        int64_t count = 0, more = 0;
        double *want = gradient_of_view(world, dtypes[i / 2], lies, 0, &count);
        for (int way = 1; way < 4; way++) {
            double *got = gradient_of_view(world, dtypes[i / 2], lies, way, &more);
            CHECK_EQ(count, more);
            CHECK_EQ(memcmp(want, got, (size_t)count * sizeof *got), 0);
            free(got);
        }
        free(want);
    }
}

/* Wherever memory runs out, on one rank: also where a view is laid again, or forward runs again. */
static void no_memory_for_views_is_said(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = container(world, view_forward, NULL);
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_status status = SHERD_ENOMEM;

    CHECK_OK(sherd_input_reshard(m, mesh, "tp", 1));
    sherd_module_checkpoint(m, true);
    for (int i = 1; status && i < 300; i++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_mark_equal(wave(world, SHERD_F64, 2, SHAPE(5, 8), 17, 1, 0));
        sherd_tensor *v = sherd_mark_equal(wave(world, SHERD_F64, 2, SHAPE(5, 1), 13, 1, 0));
        x = sherd_neg(sherd_require_grad(x, true));
        sherd_args in = {.count = 2, .value = {sherd_transpose(x, 0, 1), sherd_neg(v)}}, out = {0};
        sherd_world_fail_allocation(world, last ? i : 0);
        sherd_module_run(m, &in, &out);
        sherd_backward(sherd_sum(out.value[0]));
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    CHECK_OK(status);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(views_lie_as_before), {2, 3}},
    {TEST(no_memory_for_views_is_said), {1, 2, 3}},
};
CHECK_MAIN(tests)
