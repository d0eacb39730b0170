/* SPDX-License-Identifier: Apache-2.0 */
/* Modules and optimizers after a step that some ranks had done, and others not. */
#include "secret.h"

#include "sherd/autograd.h"
#include "sherd/layers.h"
#include "sherd/ops_elements.h"
#include "sherd/optimizers.h"

static double first(sherd_tensor *t)
{
    const double *data = sherd_tensor_read(t);

    return data ? data[0] : -1;
}

static sherd_tensor *field(sherd_world *world, double value)
{
    return sherd_constant_on(layout_of(line_of_ranks(world), 1, (int64_t[]){3}, "R", NULL),
                             SHERD_F64, value);
}

/* ---- a number that a step counts in place ---------------------------------------------------- */

static void count(void *buffer)
{
    sherd_fill(buffer, 9);
}

static void a_buffer_that_was_lost_is_loaded_again(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_buffer(m, "ema", field(world, 1)));
    sherd_tensor *ema = sherd_module_buffer(m, "ema");
    CHECK_OK(sherd_world_check(world));
    for (int step = 0; step < 3; step++) {
        fail_between(world, count, ema);
        CHECK(sherd_tensor_failed(ema));
        CHECK_OK(sherd_module_load(m, "ema", field(world, 4 + step), -1));
        CHECK_OK(sherd_world_check(world));
        CHECK_EQ(first(sherd_scale(ema, 1)), 4 + step);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_module_destroy(m);
}

/* ---- an optimizer ---------------------------------------------------------------------------- */

enum { PARAMETERS = 40 }; /* more than a set of marks can tell apart */

static sherd_tensor *parameter(sherd_module *m, int i)
{
    return sherd_module_parameter(m, sherd_module_parameter_name(m, i));
}

static void take_step(void *optimizer)
{
    sherd_optimizer_step(optimizer, 0.5, 1);
}

static void what_an_optimizer_changes_is_lost_together(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_tensor *apart[PARAMETERS];
    sherd_named_state state[PARAMETERS];
    char name[16];

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < PARAMETERS; i++) {
        snprintf(name, sizeof name, "p%d", i);
        CHECK_OK(sherd_module_add_parameter(m, name, field(world, 1)));
        apart[i] = field(world, 2);
    }
    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    sherd_tensor *sum = field(world, 0);
    for (int i = 0; i < PARAMETERS; i++)
        sum = sherd_add(sum, parameter(m, i));
    sherd_backward(sherd_sum(sum));
    CHECK_OK(sherd_world_check(world));

    fail_between(world, take_step, o);
    for (int i = 0; i < PARAMETERS; i++) {
        CHECK(sherd_tensor_failed(parameter(m, i)));
        CHECK_EQ(first(apart[i]), 2);
    }
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < PARAMETERS; i++)
        CHECK_OK(sherd_module_load(m, sherd_module_parameter_name(m, i), field(world, 3), -1));
    take_step(o);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "p0.steps was lost") != NULL);
    for (int i = 0; i < sherd_optimizer_state(o, state, PARAMETERS); i++)
        sherd_fill(sherd_tensor_revive(state[i].tensor), 1);
    take_step(o);
    for (int i = 0; i < PARAMETERS; i++)
        CHECK_EQ(first(parameter(m, i)), 2.5);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* More operations than ranks remember one by one. */
static void go_far(void *t)
{
    for (int i = 0; i < 200; i++)
        sherd_scale(t, 2);
}

static void begin_step(sherd_module *m, sherd_optimizer *o)
{
    sherd_backward(sherd_sum(sherd_add(parameter(m, 0), parameter(m, 1))));
    take_step(o);
    sherd_optimizer_clear(o);
}

/*
 * A program may make its optimizer last, and fail in its first step: its state, which no step has
 * changed, is zeros again. State that was changed stays lost.
 */
static void an_optimizer_that_took_no_step_begins_anew(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_named_state state[8];

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "a", field(world, 1)));
    CHECK_OK(sherd_module_add_parameter(m, "b", sherd_cast(field(world, 2), SHERD_F64)));
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    fail_between(world, go_far, parameter(m, 0));
    begin_step(m, o);
    CHECK_OK(sherd_world_check(world));
    CHECK_NEAR(first(parameter(m, 0)), 0.5, 1e-6);
    CHECK_NEAR(first(parameter(m, 1)), 1.5, 1e-6);
    CHECK_EQ(sherd_optimizer_state(o, state, LEN(state)), 6);
    for (int i = 0; i < 6; i++)
        CHECK(!sherd_tensor_failed(state[i].tensor));
    sherd_optimizer_destroy(o);
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    begin_step(m, o);
    fail_between(world, go_far, parameter(m, 0));
    CHECK(sherd_tensor_failed(parameter(m, 0)));
    CHECK_OK(sherd_module_load(m, "a", field(world, 1), -1));
    CHECK_OK(sherd_module_load(m, "b", field(world, 2), -1));
    begin_step(m, o);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "was lost in a step that failed") != NULL);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* What a program has written into state is not zeros: it is lost, and that is told. */
static void state_that_was_written_does_not_begin_anew(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_named_state state[8];

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "a", field(world, 1)));
    CHECK_OK(sherd_module_add_parameter(m, "b", field(world, 2)));
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_EQ(sherd_optimizer_state(o, state, LEN(state)), 6);
    sherd_fill(state[0].tensor, 5);
    fail_between(world, go_far, parameter(m, 0));
    begin_step(m, o);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "was lost in a step that failed") != NULL);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* ---- running averages ------------------------------------------------------------------------ */

static void compute(sherd_module *m)
{
    sherd_tensor *x = sherd_constant_on(
        layout_of(line_of_ranks(sherd_module_world(m)), 2, (int64_t[]){4, 3}, "R", NULL), SHERD_F64,
        2);

    sherd_module_call(m, x);
}

/* ---- a step with moves in its middle ---------------------------------------------------------- */

enum { TENSORS = 16, MATRIX = 12 };

/* The parameters and their state. */
static int list_all(sherd_module *m, sherd_optimizer *o, sherd_tensor *out[TENSORS])
{
    sherd_named_state list[TENSORS];
    int parameters = sherd_module_parameters(m);
    int states = sherd_optimizer_state(o, list, TENSORS - parameters);

    for (int i = 0; i < parameters; i++)
        out[i] = parameter(m, i);
    for (int i = 0; i < states; i++)
        out[parameters + i] = list[i].tensor;
    return parameters + states;
}

/* What lies here of a tensor; how many bytes. */
static size_t peek(sherd_tensor *t, char out[MATRIX * sizeof(double)])
{
    size_t bytes = (size_t)t->count * sherd_dtype_bytes(sherd_tensor_dtype(t));
    const void *data = sherd_tensor_read(sherd_to_local(t));

    if (CHECK(data != NULL))
        memcpy(out, data, bytes);
    return bytes;
}

static void step_whole(sherd_module *m, sherd_optimizer *o, int64_t fails)
{
    sherd_backward(sherd_sum(sherd_mul(parameter(m, 0), parameter(m, 1))));
    sherd_world_fail_allocation(sherd_module_world(m), fails);
    take_step(o);
    sherd_world_fail_allocation(sherd_module_world(m), 0);
    sherd_optimizer_clear(o);
}

/* The n-th allocation of a step fails on rank 0. The status of the check after it. */
static sherd_status fail_a_step(sherd_world *world, bool muon, const char *placements, int64_t n)
{
    const sherd_layout *layout =
        layout_of(line_of_ranks(world), 2, (int64_t[]){4, 3}, placements, NULL);
    char before[TENSORS][MATRIX * sizeof(double)], now[MATRIX * sizeof(double)];
    sherd_tensor *all[TENSORS];
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "a", sherd_constant_on(layout, SHERD_F64, 1)));
    CHECK_OK(sherd_module_add_parameter(m, "b", sherd_constant_on(layout, SHERD_F64, 2)));
    CHECK_OK(muon ? sherd_muon_create(&o, m, NULL) : sherd_adafactor_create(&o, m, NULL));
    step_whole(m, o, 0);
    int count = list_all(m, o, all);
    for (int i = 0; i < count; i++)
        peek(all[i], before[i]);
    CHECK_OK(sherd_world_check(world));
    step_whole(m, o, sherd_world_rank(world) == 0 ? n : 0);
    sherd_status status = sherd_world_check(world);
    for (int i = 0; i < count && status; i++)
        if (!sherd_tensor_failed(all[i])) {
            size_t bytes = peek(all[i], now);
            CHECK(memcmp(now, before[i], bytes) == 0);
        }
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    sherd_scope_end(world);
    return status;
}

/* Moments that some step has counted, and no parameter has followed, are lost. */
static void what_a_failed_step_has_changed_is_lost(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)"};

    for (int muon = 0; muon < 2; muon++)
        for (int i = 0; i < LEN(placements); i++) {
            sherd_status status = SHERD_ENOMEM;
            for (int64_t n = 1; status && n < 400; n += check_stride(3)) {
                status = fail_a_step(world, muon, placements[i], n);
                CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            }
            CHECK_OK(status);
        }
}

enum { SLICED = 12, ELEMENTS = 40000 };

/*
 * Parameters that are sharded change before slices of others do, each of which is a move. All ranks
 * fail at one of these, which are large, so that no rank is far behind.
 */
static sherd_status fail_a_slice(sherd_world *world, int64_t n)
{
    const sherd_layout *rows = layout_of(line_of_ranks(world), 1, (int64_t[]){6}, "S(0)", NULL);
    const sherd_layout *all = layout_of(line_of_ranks(world), 1, (int64_t[]){ELEMENTS}, "R", NULL);
    char name[16];
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "first", sherd_constant_on(rows, SHERD_F64, 1)));
    for (int i = 0; i < SLICED; i++) {
        snprintf(name, sizeof name, "p%d", i);
        CHECK_OK(sherd_module_add_parameter(m, name, sherd_constant_on(all, SHERD_F64, 1)));
    }
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_optimizer_shard(o, sherd_mesh_axis_name(line_of_ranks(world), 0)));
    sherd_tensor *sum = sherd_sum(parameter(m, 0));
    for (int i = 1; i <= SLICED; i++)
        sum = sherd_add(sum, sherd_sum(parameter(m, i)));
    sherd_backward(sum);
    sherd_optimizer_settle(o);
    CHECK_OK(sherd_world_check(world));
    sherd_world_fail_allocation(world, n);
    take_step(o);
    sherd_world_fail_allocation(world, 0);
    sherd_status status = sherd_world_check(world);
    sherd_tensor *p = parameter(m, 0);
    CHECK(!status || sherd_tensor_failed(p) || first(sherd_to_local(p)) == 1);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    sherd_scope_end(world);
    return status;
}

static void what_changes_before_slices_is_lost_with_them(sherd_world *world)
{
    sherd_status status = SHERD_ENOMEM;

    for (int64_t n = 15; status && n < 400; n += check_stride(5)) { /* before are no slices */
        status = fail_a_slice(world, n);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
    }
    CHECK_OK(status);
}

static void averages_do_not_go_on_without_their_count(sherd_world *world)
{
    sherd_module *m = NULL;
    const sherd_norm_options how = {.cumulative = true};

    CHECK_OK(
        sherd_batch_norm_create(&m, world, 3, &how, &(sherd_layer_options){.dtype = SHERD_F64}));
    for (int i = 0; i < sherd_module_buffers(m); i++) {
        const char *name = sherd_module_buffer_name(m, i);
        sherd_tensor *b = sherd_module_buffer(m, name);
        const sherd_layout *layout =
            layout_of(line_of_ranks(world), sherd_tensor_ndim(b), sherd_tensor_shape(b), "R", NULL);
        CHECK_OK(sherd_module_set_buffer(m, name, sherd_distribute(b, layout, -1)));
    }
    compute(m);
    CHECK_OK(sherd_world_check(world));
    fail_between(world, count, sherd_module_buffer(m, "num_batches_tracked"));
    CHECK(sherd_tensor_failed(sherd_module_buffer(m, "num_batches_tracked")));
    compute(m);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "num_batches_tracked") != NULL);
    sherd_fill(sherd_module_buffer(m, "num_batches_tracked"), 1);
    compute(m);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* A file that cannot be written costs no state, though 16-bit parameters have exact copies. */
static void a_refused_file_loses_no_state(sherd_world *world)
{
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    sherd_named_state list[8];

    sherd_tensor *p = sherd_constant_on(
        layout_of(line_of_ranks(world), 1, (int64_t[]){7}, "S(0)", NULL), SHERD_BF16, 1);
    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "p", p));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    for (int step = 0; step < 3; step++) {
        sherd_scope_begin(world);
        sherd_backward(sherd_sum(sherd_mul(p, p)));
        sherd_optimizer_step(o, 0.5, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
        CHECK(sherd_optimizer_state(o, list, LEN(list)) > 0);
        CHECK_EQ(sherd_world_most(NULL, world, 1), SHERD_EINVAL);
        CHECK_OK(sherd_world_check(world));
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(a_buffer_that_was_lost_is_loaded_again), {2, 3}},
    {TEST(what_an_optimizer_changes_is_lost_together), {2, 3}},
    {TEST(an_optimizer_that_took_no_step_begins_anew), {2, 3, 8}},
    {TEST(state_that_was_written_does_not_begin_anew), {2, 3, 8}},
    {TEST(what_a_failed_step_has_changed_is_lost), {2, 3}},
    {TEST(what_changes_before_slices_is_lost_with_them), {2}},
    {TEST(averages_do_not_go_on_without_their_count), {2, 3}},
    {TEST(a_refused_file_loses_no_state), {1, 2, 3}},
};
CHECK_MAIN(tests)
