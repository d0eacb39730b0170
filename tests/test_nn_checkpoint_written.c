/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that want no gradient and are written between a checkpointed forward and its backward: an
 * error where what runs again would compute with other values, and none where it would not.
 */
#include "modules.h"
#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"

enum { ROWS = 4, WIDTH = 6 };

/* How the forward comes by what it adds to its argument. */
typedef enum way {
    FROZEN, /* a parameter */
    BUFFER, /* a buffer */
    TAKEN,  /* a tensor that is no argument */
    ACTIVE, /* one that wants a gradient, as the result of an operator */
    SEEN,   /* a view of one */
    MADE,   /* computed from one, without a record */
    PACKED, /* a strided view, compacted */
    CAST,   /* in another dtype */
    MOVED,  /* in another layout */
    SPREAD, /* distributed by the forward */
    LATER,  /* added to before it is used */
    SCALED, /* scaled before it is used */
    READS,
    OVER = READS, /* written over before it is used */
    COPY,         /* the same, from another tensor */
    RAW,          /* the same, through a pointer */
    COUNT,        /* added to, and not used */
    AVERAGE,      /* averaged into, and not used */
    FRESH,        /* made by the forward */
    WAYS
} way;

typedef struct setup {
    way way;
    sherd_tensor *outside;
} setup;

static sherd_tensor *constant(sherd_world *world, double value)
{
    return sherd_constant(world, SHERD_F64, SHAPE(ROWS, WIDTH), 2, value);
}

/* Through its pointer, on all ranks alike. */
static sherd_tensor *write_all(sherd_tensor *t, double value)
{
    double *data = sherd_tensor_write(t);

    for (int64_t i = 0; data && i < t->count; i++)
        data[i] = value;
    return t->layout ? t : sherd_mark_equal(t);
}

/* Half of t, and the mean of x; not recorded. */
static void average(sherd_tensor *t, sherd_tensor *x)
{
    bool before = sherd_set_recording(t->world, false);

    sherd_copy_from(t, sherd_add(sherd_scale(t, 0.5), sherd_full(sherd_mean(x))));
    sherd_set_recording(t->world, before);
}

static sherd_tensor *addend(sherd_module *m, sherd_tensor *x)
{
    const setup *s = sherd_module_payload(m);
    sherd_tensor *t = s->outside, *one = constant(m->world, 1);

    switch (s->way) {
    case FROZEN:
        return sherd_module_parameter(m, "w");
    case BUFFER:
        return sherd_module_buffer(m, "b");
    case SEEN:
        return sherd_narrow(t, 0, 1, 1);
    case MADE:
        return sherd_add(sherd_scale(t, 2), one);
    case PACKED:
        return sherd_contiguous(sherd_narrow(t, 1, 1, 1));
    case CAST:
        return sherd_cast(sherd_cast(t, SHERD_F32), SHERD_F64);
    case MOVED:
        return sherd_redistribute_to(t, "S(1)", NULL);
    case SPREAD:
        return sherd_distribute(t, sherd_tensor_layout(x), -1);
    case LATER:
        return sherd_add_to(t, one);
    case SCALED:
        return sherd_scale_by(t, 2);
    case OVER:
        return sherd_fill(t, 3);
    case COPY:
        return sherd_copy_from(t, sherd_scale(one, 3));
    case RAW:
        return write_all(t, 3);
    case COUNT:
        sherd_add_to(t, one);
        return one;
    case AVERAGE:
        average(t, x);
        return one;
    case FRESH:
        return sherd_scale(one, 2);
    default:
        return t;
    }
}

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = in->value[0];

    out->value[0] = sherd_square(sherd_add(x, addend(self, x)));
    out->count = 1;
}

/* What is written: what the setup's forward reads. */
static sherd_tensor *source_of(sherd_module *m, const setup *s)
{
    return s->way == FROZEN   ? sherd_module_parameter(m, "w")
           : s->way == BUFFER ? sherd_module_buffer(m, "b")
                              : s->outside;
}

static sherd_module *module_of(sherd_world *world, setup *s)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = NULL;

    s->outside = constant(world, 1.5);
    if (s->way == ACTIVE)
        s->outside = sherd_scale(sherd_require_grad(s->outside, true), 2);
    if (s->way == MOVED)
        s->outside = spread(s->outside, mesh, "S(0)");
    CHECK_OK(sherd_module_create(&m, world, forward, &(sherd_module_options){.payload = s}));
    CHECK_OK(sherd_module_add_parameter(m, "w", constant(world, 1.25)));
    CHECK_OK(sherd_module_add_buffer(m, "b", constant(world, 1.75)));
    sherd_require_grad(sherd_module_parameter(m, "w"), false);
    return m;
}

static sherd_tensor *input(sherd_world *world)
{
    sherd_tensor *x = wave(world, SHERD_F64, 2, SHAPE(ROWS, WIDTH), 7, 1, 0);
    return sherd_require_grad(spread(x, line_of_ranks(world), "S(0)"), true);
}

/* Without a record. */
static void write_beside(sherd_tensor *t, double value, bool raw)
{
    bool before = sherd_set_recording(t->world, false);

    if (raw)
        write_all(t, value);
    else
        sherd_fill(t, value);
    sherd_set_recording(t->world, before);
}

static void what_is_read_again_must_not_be_written(sherd_world *world)
{
    for (int k = 0; k < READS; k++)
        for (int raw = 0; raw < 2; raw++) {
            setup s = {.way = (way)k};
            sherd_scope_begin(world);
            sherd_module *m = module_of(world, &s);
            sherd_tensor *x = input(world);
            sherd_module_checkpoint(m, true);
            sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
            write_beside(source_of(m, &s), 7, raw);
            CHECK_OK(sherd_world_check(world));
            sherd_backward(loss);
            if (!CHECK_EQ(sherd_world_check(world), SHERD_EINVAL) ||
                !CHECK(strstr(sherd_world_error(world), "was written since") != NULL))
                fprintf(stderr, "  %d, %d: %s\n", k, raw, sherd_world_error(world));
            sherd_scope_end(world);
            CHECK_EQ(sherd_saved_bytes(world), 0);
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* The gradient of sum (x + a)^2 is 2 (x + a). */
static void check_gradient(sherd_tensor *x, double a)
{
    static _Thread_local double want[MOST];
    int64_t n = whole(x, want);

    for (int64_t i = 0; i < n; i++)
        want[i] = 2 * (want[i] + a);
    CHECK(distance_to(sherd_grad(x), want, n) < 1e-15);
    sherd_clear_grad(x);
}

/* Two steps; in the second the tensor was written in the first, before its forward or after. */
static void what_is_not_read_again_may_be_written(sherd_world *world)
{
    static const double added[WAYS] = {
        [OVER] = 3, [COPY] = 3, [RAW] = 3, [COUNT] = 1, [AVERAGE] = 1, [FRESH] = 2};

    for (int k = READS; k < WAYS; k++) {
        setup s = {.way = (way)k};
        sherd_module *m;
        sherd_scope_begin(world);
        m = module_of(world, &s);
        sherd_tensor *x = input(world);
        sherd_module_checkpoint(m, true);
        for (int step = 0; step < 2; step++) {
            sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
            sherd_fill(s.outside, 7);
            sherd_fill(sherd_module_buffer(m, "b"), 7);
            sherd_backward(loss);
            if (!CHECK_OK(sherd_world_check(world)))
                fprintf(stderr, "  %d, %d: %s\n", k, step, sherd_world_error(world));
            check_gradient(x, added[k]);
        }
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Each backward comes before what it uses is written; a graph that is kept runs twice. */
static void writing_between_steps_is_no_fault(sherd_world *world)
{
    for (int k = 0; k < READS; k++) {
        setup s = {.way = (way)k};
        sherd_scope_begin(world);
        sherd_module *m = module_of(world, &s);
        sherd_tensor *x = input(world);
        sherd_module_checkpoint(m, true);
        for (int step = 0; step < 3; step++) {
            bool again = k != LATER && k != SCALED; /* those write what they read */
            write_beside(source_of(m, &s), step, false);
            sherd_module_checkpoint(m, again);
            sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
            for (int pass = 0; pass < 1 + again; pass++) {
                sherd_backward_with(
                    &loss, NULL, 1,
                    &(sherd_backward_options){.retain = k == ACTIVE || (again && pass == 0)});
                check_gradient(x, step + (k == LATER || k == MADE ? 1 : 0) +
                                      (k == MADE || k == SCALED ? step : 0));
            }
            if (!CHECK_OK(sherd_world_check(world)))
                fprintf(stderr, "  %d, %d: %s\n", k, step, sherd_world_error(world));
        }
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- written the first time only ------------------------------------------------------------- */

/* What a forward writes that asks whether it is the first time, and reads both times. */
typedef enum once { ADD, ADD_X, MULTIPLY, SCALE, COPY_CONSTANT, COPY_X, COPY_HALF, SET, ONCE } once;

static void write_once(sherd_tensor *t, once how, sherd_tensor *x)
{
    sherd_tensor *two = sherd_constant_on(sherd_tensor_layout(t), SHERD_F64, 2);
    bool before = sherd_set_recording(t->world, false);

    if (how == ADD || how == ADD_X)
        sherd_add_to(t, how == ADD ? two : x);
    else if (how == MULTIPLY)
        sherd_mul_by(t, two);
    else if (how == SCALE)
        sherd_scale_by(t, 2);
    else if (how == COPY_CONSTANT || how == COPY_X)
        sherd_copy_from(t, how == COPY_X ? x : two);
    else if (how == COPY_HALF)
        sherd_copy_from(sherd_narrow(t, 1, 0, WIDTH / 2), sherd_narrow(x, 1, 0, WIDTH / 2));
    else
        sherd_fill(t, 2);
    sherd_set_recording(t->world, before);
}

static void once_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const once *how = sherd_module_payload(self);
    sherd_tensor *b = sherd_module_buffer(self, "b"), *x = in->value[0];

    if (!sherd_is_recomputing(self->world))
        write_once(b, *how, x);
    out->value[0] = sherd_square(sherd_add(x, sherd_scale(b, 1)));
    out->count = 1;
}

/* Calls of one module; the backward of all, from the last one on or only of the first. Its later
 * calls, or who else writes, change what the first has read. */
static void call_often(sherd_world *world, once how, int calls, bool beside)
{
    double want[MOST];
    int64_t n = 0;
    sherd_module *m = NULL;
    sherd_tensor *loss[2];
    const sherd_mesh *mesh = line_of_ranks(world);

    sherd_scope_begin(world);
    CHECK_OK(
        sherd_module_create(&m, world, once_forward, &(sherd_module_options){.payload = &how}));
    CHECK_OK(sherd_module_add_buffer(m, "b", spread(constant(world, 1.5), mesh, "S(0)")));
    sherd_tensor *x = input(world), *b = sherd_module_buffer(m, "b");
    sherd_module_checkpoint(m, true);
    for (int i = 0; i < calls; i++) {
        loss[i] = sherd_sum(sherd_module_call(m, x));
        n = whole(sherd_add(sherd_detach(x), b), want);
    }
    if (beside)
        write_beside(b, 7, false);
    CHECK_OK(sherd_world_check(world)); /* nobody fails before all have looked */
    for (int i = calls; i-- > 0;) {
        bool changed = beside || i < calls - 1;
        sherd_backward(loss[i]);
        if (!CHECK_EQ(sherd_world_check(world), changed ? SHERD_EINVAL : SHERD_OK))
            fprintf(stderr, "  %d, %d calls, %d: %s\n", how, calls, i, sherd_world_error(world));
        if (changed)
            break;
        for (int64_t k = 0; k < n; k++)
            want[k] *= 2;
        CHECK(distance_to(sherd_grad(x), want, n) < 1e-15);
        CHECK_OK(sherd_world_check(world));
        sherd_clear_grad(x);
    }
    sherd_scope_end(world);
    sherd_module_destroy(m);
}

static void what_is_written_once_is_read_as_it_was(sherd_world *world)
{
    for (int how = 0; how < ONCE; how++) {
        call_often(world, (once)how, 1, false);
        call_often(world, (once)how, 1, true);
        call_often(world, (once)how, 2, false);
    }
}

/* ---- by autocast ---------------------------------------------------------------------------- */

static void low_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *w = sherd_module_parameter(self, "w"), *x = in->value[0];

    out->value[0] = sherd_tanh(sherd_add(x, sherd_matmul(w, w)));
    out->count = 1;
}

/* The first step leaves a copy of the frozen parameter in 16 bits. */
static void a_copy_that_was_cast_before_counts(sherd_world *world)
{
    sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *w = sherd_constant(world, SHERD_F32, SHAPE(ROWS, ROWS), 2, 0.5);
    sherd_tensor *x = sherd_constant(world, SHERD_F32, SHAPE(ROWS, ROWS), 2, 0.25);
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, low_forward, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "w", w));
    sherd_require_grad(w, false);
    sherd_require_grad(x, true);
    for (int step = 0; step < 4; step++) {
        sherd_module_checkpoint(m, step > 0);
        sherd_tensor *loss = sherd_sum(sherd_module_call(m, x));
        if (step == 2)
            sherd_fill(w, 7);
        sherd_backward(loss);
        if (!CHECK_EQ(sherd_world_check(world), step == 2 ? SHERD_EINVAL : SHERD_OK))
            fprintf(stderr, "  %d: %s\n", step, sherd_world_error(world));
    }
    sherd_set_autocast(world, before);
    sherd_module_destroy(m);
}

/* ---- inside of each other ------------------------------------------------------------------- */

/* What the module inside gets as an argument is made of a tensor from outside. */
static void outer_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    const setup *s = sherd_module_payload(self);
    sherd_args inner = {.count = 2, .value = {in->value[0], sherd_scale(s->outside, 2)}};

    sherd_module_run(sherd_module_child(self, 0), &inner, out);
}

static void inner_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    (void)self;
    out->value[0] = sherd_square(sherd_add(in->value[0], sherd_scale(in->value[1], 0.5)));
    out->count = 1;
}

static void arguments_of_modules_inside_count(sherd_world *world)
{
    for (int kind = 1; kind < 4; kind++)
        for (int written = 0; written < 2; written++) {
            setup s = {0};
            sherd_module *m, *inner;
            sherd_scope_begin(world);
            s.outside = constant(world, 3);
            CHECK_OK(sherd_module_create(&m, world, outer_forward,
                                         &(sherd_module_options){.payload = &s}));
            CHECK_OK(sherd_module_create(&inner, world, inner_forward, NULL));
            CHECK_OK(sherd_module_add(m, "inner", inner));
            sherd_module_checkpoint(m, kind & 1);
            sherd_module_checkpoint(inner, kind & 2);
            sherd_tensor *x = input(world), *loss = sherd_sum(sherd_module_call(m, x));
            if (written)
                sherd_fill(s.outside, 7);
            sherd_backward(loss);
            /* Inside alone, the argument is a tensor of its own, and kept. */
            if (!CHECK_EQ(sherd_world_check(world), written && kind != 2 ? SHERD_EINVAL : SHERD_OK))
                fprintf(stderr, "  %d, %d: %s\n", kind, written, sherd_world_error(world));
            if (!written || kind == 2)
                check_gradient(x, 3);
            sherd_scope_end(world);
            CHECK_EQ(sherd_saved_bytes(world), 0);
            sherd_module_destroy(m);
        }
    CHECK_OK(sherd_world_check(world));
}

/* x w, squared, with w alone on the way, too. */
static void weighs(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module *inner = sherd_module_find(self, "inner");
    sherd_tensor *w = sherd_module_parameter(self, "w"), *x = in->value[0];

    if (inner)
        x = sherd_module_call(inner, x);
    out->value[0] = sherd_mul(sherd_square(x), sherd_square(w));
    out->count = 1;
}

static sherd_module *weighing(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_module_create(&m, world, weighs, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "w", constant(world, 1.5)));
    return m;
}

/* As without a checkpoint: what is frozen between gets no gradient, the rest the same bits. */
static void a_parameter_may_be_frozen_before_backward(sherd_world *world)
{
    double want[ROWS * WIDTH], have[ROWS * WIDTH];
    sherd_module *m = weighing(world), *inner = weighing(world);

    CHECK_OK(sherd_module_add(m, "inner", inner));
    for (int frozen = 0; frozen < 4; frozen++)
        for (int kind = 0; kind < 4; kind++) {
            sherd_tensor *w[] = {sherd_module_parameter(m, "w"),
                                 sherd_module_parameter(inner, "w")};
            sherd_scope_begin(world);
            sherd_module_checkpoint(m, kind & 1);
            sherd_module_checkpoint(inner, kind & 2);
            sherd_tensor *x = input(world), *loss = sherd_sum(sherd_module_call(m, x));
            for (int i = 0; i < 2; i++)
                sherd_require_grad(w[i], !(frozen >> i & 1));
            sherd_backward(loss);
            for (int i = 0; i < 2; i++) {
                CHECK(sherd_requires_grad(w[i]) == !(frozen >> i & 1));
                CHECK((sherd_grad(w[i]) == NULL) == (frozen >> i & 1));
                sherd_clear_grad(w[i]);
                sherd_require_grad(w[i], true);
            }
            CHECK(sherd_full_read(kind ? have : want, sizeof have, sherd_grad(x), SHERD_F64, -1));
            CHECK(!kind || memcmp(have, want, sizeof have) == 0);
            sherd_scope_end(world);
            if (!CHECK_OK(sherd_world_check(world)))
                fprintf(stderr, "  %d, %d: %s\n", frozen, kind, sherd_world_error(world));
            CHECK_EQ(sherd_saved_bytes(world), 0);
        }
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(what_is_read_again_must_not_be_written), {1, 2, 3, 4, 8}},
    {TEST(what_is_not_read_again_may_be_written), {1, 2, 3, 4, 8}},
    {TEST(writing_between_steps_is_no_fault), {1, 2, 3, 4, 8}},
    {TEST(what_is_written_once_is_read_as_it_was), {1, 2, 3, 4, 8}},
    {TEST(a_copy_that_was_cast_before_counts), {1, 2}},
    {TEST(a_parameter_may_be_frozen_before_backward), {1, 2, 3, 4}},
    {TEST(arguments_of_modules_inside_count), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
