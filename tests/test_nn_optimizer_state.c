/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an optimizer, saved and loaded: a run that is taken up again, by a model that lies
 * otherwise, is the run that went on. What is saved is what a file would hold, the bytes of whole
 * tensors by name; gradients are given, so that bits can be asked for.
 */
#include "modules.h"
#include "sherd/ops_shape.h"
#include "sherd/optimizers.h"

enum { ENTRIES = 24, NAME = 64, BYTES = 512 };

typedef struct saved {
    char name[NAME];
    sherd_dtype dtype;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    unsigned char data[BYTES];
} saved;

typedef struct run {
    sherd_module *m, *part;
    sherd_optimizer *o;
} run;

typedef enum kind { ADAMW, ADAM, SGD, AMSGRAD, RMSPROP, ADAGRAD, LION, NADAM, KINDS } kind;

static sherd_status optimizer(sherd_optimizer **out, kind k, sherd_module *m)
{
    const sherd_sgd_options momentum = {.momentum = 0.9};
    const sherd_adamw_options decay = {.weight_decay = 0.1, .amsgrad = k == AMSGRAD};
    const sherd_rmsprop_options centered = {.centered = true, .momentum = 0.5};
    const sherd_adagrad_options slower = {.rate_decay = 0.1, .initial = 0.5};

    switch (k) {
    case ADAM:
        return sherd_adam_create(out, m, &decay);
    case SGD:
        return sherd_sgd_create(out, m, &momentum);
    case RMSPROP:
        return sherd_rmsprop_create(out, m, &centered);
    case ADAGRAD:
        return sherd_adagrad_create(out, m, &slower);
    case LION:
        return sherd_lion_create(out, m, NULL);
    case NADAM:
        return sherd_nadam_create(out, m, NULL);
    default:
        return sherd_adamw_create(out, m, &decay);
    }
}

/* A matrix two levels down, a vector, and one that never has a gradient; where these placements
 * say, "" = plain. */
static run make(sherd_world *world, kind k, sherd_dtype dtype, const char *const placements[3])
{
    char text[16];
    const sherd_mesh *mesh = NULL;
    run r;

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    CHECK_OK(sherd_module_create(&r.m, world, NULL, NULL));
    CHECK_OK(sherd_module_create(&r.part, world, NULL, NULL));
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"weight", "bias", "frozen"};
        sherd_tensor *t = wave(world, dtype, i == 1 ? 1 : 2, SHAPE(5, 3), 1 + i, 0.4, 0.1);
        if (placements[i][0])
            t = spread(t, mesh, placements[i]);
        CHECK_OK(sherd_module_add_parameter(i ? r.m : r.part, names[i], t));
    }
    CHECK_OK(sherd_module_add(r.m, "part", r.part));
    CHECK_OK(optimizer(&r.o, k, r.m));
    return r;
}

static void give_up(run *r)
{
    sherd_optimizer_destroy(r->o);
    sherd_module_destroy(r->m);
}

/* A step with gradients that depend on its number alone; the bias has one in every other step. */
static void step(run *r, sherd_dtype dtype, int number)
{
    sherd_world *world = sherd_module_world(r->m);

    sherd_scope_begin(world);
    sherd_tensor *w = sherd_module_parameter(r->part, "weight");
    sherd_tensor *loss =
        sherd_sum(sherd_mul(w, wave(world, dtype, 2, SHAPE(5, 3), 3 + number, 1, 0)));
    if (number % 2)
        loss = sherd_add(loss, sherd_sum(sherd_mul(sherd_module_parameter(r->m, "bias"),
                                                   wave(world, dtype, 1, SHAPE(5), number, 1, 0))));
    sherd_backward(loss);
    sherd_optimizer_step(r->o, 0.01, 1);
    sherd_optimizer_clear(r->o);
    sherd_scope_end(world);
}

static int save(run *r, saved out[ENTRIES])
{
    sherd_named_state list[ENTRIES];
    int count = sherd_module_state(r->m, list, ENTRIES);

    count += sherd_optimizer_state(r->o, list + count, ENTRIES - count);
    CHECK(count <= ENTRIES);
    for (int i = 0; i < count; i++) {
        sherd_tensor *t = list[i].tensor;
        out[i] = (saved){.dtype = sherd_tensor_dtype(t), .ndim = sherd_tensor_ndim(t)};
        memcpy(out[i].shape, sherd_tensor_shape(t), (size_t)out[i].ndim * sizeof out[i].shape[0]);
        CHECK(sherd_state_name(&list[i], out[i].name, NAME) < NAME);
        CHECK(sherd_full_read(out[i].data, BYTES, t, SHERD_DTYPE_NONE, -1));
    }
    return count;
}

/* All that is saved comes from the last rank; what is distributed the others need not have. */
static void load(run *r, const saved *from, int count)
{
    sherd_world *world = sherd_module_world(r->m);
    int parameters = sherd_module_state(r->m, NULL, 0), root = sherd_world_ranks(world) - 1;

    for (int i = 0; i < count; i++) {
        bool mine = sherd_world_rank(world) == root;
        sherd_scope_begin(world);
        sherd_tensor *t =
            mine ? sherd_from_data(world, from[i].dtype, from[i].shape, from[i].ndim, from[i].data)
                 : NULL;
        CHECK_OK(i < parameters ? sherd_module_load(r->m, from[i].name, t, root)
                                : sherd_optimizer_load(r->o, from[i].name, t, root));
        sherd_scope_end(world);
    }
}

static const char *const layouts[][3] = {
    {"S(0)", "S(0)", "R"}, {"S(1)", "R", "S(1)"}, {"R", "S(0)", "S(0)"}};

static void try_again(sherd_world *world, kind k, sherd_dtype dtype, int first, int second)
{
    saved half[ENTRIES], end[ENTRIES], again[ENTRIES];
    run went = make(world, k, dtype, layouts[first]),
        taken = make(world, k, dtype, layouts[second]);

    for (int i = 0; i < 3; i++)
        step(&went, dtype, i);
    int count = save(&went, half);
    load(&taken, half, count);
    for (int i = 3; i < 7; i++) {
        step(&went, dtype, i);
        step(&taken, dtype, i);
    }
    CHECK_EQ(save(&went, end), count);
    CHECK_EQ(save(&taken, again), count);
    for (int i = 0; i < count; i++)
        if (!CHECK(memcmp(&end[i], &again[i], sizeof end[i]) == 0))
            fprintf(stderr, "  %s\n", end[i].name);
    CHECK_OK(sherd_world_check(world));
    give_up(&went);
    give_up(&taken);
}

static void a_run_taken_up_again_is_the_run_that_went_on(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};

    for (int k = 0; k < KINDS; k++)
        for (int d = 0; d < LEN(dtypes); d++)
            for (int l = 0; l < LEN(layouts); l++)
                try_again(world, (kind)k, dtypes[d], l, (l + 1) % LEN(layouts));
}

/* Saved before the first step too: the exact copy of a parameter that none has changed is the
 * parameter. */
static void what_has_not_begun_can_be_saved(sherd_world *world)
{
    saved start[ENTRIES], again[ENTRIES];
    run r = make(world, ADAMW, SHERD_BF16, layouts[0]),
        s = make(world, ADAMW, SHERD_BF16, layouts[1]);
    int count = save(&r, start);

    load(&s, start, count);
    step(&r, SHERD_BF16, 1);
    step(&s, SHERD_BF16, 1);
    save(&r, start);
    save(&s, again);
    CHECK(memcmp(start, again, (size_t)count * sizeof *start) == 0);
    CHECK_OK(sherd_world_check(world));
    give_up(&r);
    give_up(&s);
}

static void state_is_named_after_parameters(sherd_world *world)
{
    static const char *const names[] = {
        "bias.m",        "bias.v",        "bias.exact",        "bias.steps",
        "frozen.m",      "frozen.v",      "frozen.exact",      "frozen.steps",
        "part.weight.m", "part.weight.v", "part.weight.exact", "part.weight.steps"};
    static const char *const plain[3] = {"", "", ""};
    static const char *const more[KINDS][3] = {[AMSGRAD] = {"m", "v", "vmax"},
                                               [RMSPROP] = {"v", "mean", "momentum"},
                                               [ADAGRAD] = {"sum", "steps", NULL},
                                               [LION] = {"m", "steps", NULL},
                                               [NADAM] = {"m", "v", "steps"}};
    run r = make(world, ADAM, SHERD_F16, plain);
    sherd_named_state list[ENTRIES];
    char name[NAME];

    CHECK_EQ(sherd_optimizer_state(r.o, NULL, 0), LEN(names));
    CHECK_EQ(sherd_optimizer_state(r.o, list, ENTRIES), LEN(names));
    for (int i = 0; i < LEN(names); i++) {
        sherd_state_name(&list[i], name, NAME);
        CHECK_TEXT(name, names[i]);
    }
    give_up(&r);
    r = make(world, SGD, SHERD_F32, plain);
    CHECK_EQ(sherd_optimizer_state(r.o, list, 2), 6);
    sherd_state_name(&list[0], name, NAME);
    CHECK_TEXT(name, "bias.momentum");
    give_up(&r);
    for (int k = AMSGRAD; k < KINDS; k++) {
        r = make(world, (kind)k, SHERD_F32, plain);
        CHECK(sherd_optimizer_state(r.o, list, ENTRIES) >= 3);
        for (int i = 0; i < 3 && more[k][i]; i++) {
            sherd_state_name(&list[i], name, NAME);
            CHECK(strncmp(name, "bias.", 5) == 0);
            CHECK_TEXT(name + 5, more[k][i]);
        }
        give_up(&r);
    }
}

/* A large model is frozen, and a small one beside it is trained: no state that is never read. */
static void what_is_frozen_has_no_state(sherd_world *world)
{
    for (int k = 0; k < KINDS; k++) {
        run r = make(world, (kind)k, SHERD_BF16, layouts[0]);
        sherd_optimizer *o = NULL;
        sherd_named_state list[ENTRIES];
        char name[NAME];
        int all = sherd_optimizer_state(r.o, NULL, 0), count;

        sherd_require_grad(sherd_module_parameter(r.m, "frozen"), false);
        int64_t before = sherd_world_memory(world).live_bytes;
        CHECK_OK(optimizer(&o, (kind)k, r.m));
        int64_t bytes = sherd_world_memory(world).live_bytes - before;
        count = sherd_optimizer_state(o, list, ENTRIES);
        CHECK_EQ(count, all / 3 * 2);
        for (int i = 0; i < count; i++) {
            sherd_state_name(&list[i], name, NAME);
            CHECK(!strstr(name, "frozen"));
            int64_t size = (int64_t)sherd_dtype_bytes(sherd_tensor_dtype(list[i].tensor));
            sherd_box box = sherd_tensor_box(list[i].tensor);
            for (int d = 0; d < box.ndim; d++)
                size *= box.size[d];
            bytes -= size;
        }
        CHECK_EQ(bytes, 0);
        CHECK_EQ(sherd_optimizer_load(o, "frozen.steps", NULL, 0), SHERD_EINVAL);
        sherd_optimizer_destroy(o);
        give_up(&r);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A step of "frozen", which requires a gradient from now on. */
static void thaw(run *r, int number)
{
    sherd_world *world = sherd_module_world(r->m);
    sherd_tensor *w = sherd_require_grad(sherd_module_parameter(r->m, "frozen"), true);

    sherd_scope_begin(world);
    sherd_backward(
        sherd_sum(sherd_mul(w, wave(world, SHERD_BF16, 2, SHAPE(5, 3), 3 + number, 1, 0))));
    sherd_optimizer_step(r->o, 0.01, 1);
    sherd_optimizer_clear(r->o);
    sherd_scope_end(world);
}

/* As if it had never been frozen; also if the n-th allocation of that step fails. */
static void what_is_thawed_gets_its_state_in_a_step(sherd_world *world)
{
    saved want[ENTRIES], got[ENTRIES];
    int last = sherd_world_ranks(world) - 1, count;
    sherd_status status = SHERD_ENOMEM;

    for (int n = 0; status && n < 200; n++) {
        run r = make(world, ADAMW, SHERD_BF16, layouts[0]), s = r;
        sherd_require_grad(sherd_module_parameter(r.m, "frozen"), false);
        sherd_optimizer_destroy(s.o);
        CHECK_OK(sherd_adamw_create(&r.o, r.m, &(sherd_adamw_options){.weight_decay = 0.1}));
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? n : 0);
        thaw(&r, 1);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        if (!status && n == 0)
            status = SHERD_ENOMEM; /* the one that nothing fails is what is compared with */
        if (status) { /* what only some ranks have is lost; a step with it ends, in whatever status */
            thaw(&r, 2);
            (void)sherd_world_check(world);
            give_up(&r);
            continue;
        }
        thaw(&r, 2);
        count = save(&r, got);
        give_up(&r);
        s = make(world, ADAMW, SHERD_BF16, layouts[0]);
        thaw(&s, 1);
        thaw(&s, 2);
        CHECK_EQ(save(&s, want), count);
        CHECK(memcmp(want, got, (size_t)count * sizeof *want) == 0);
        give_up(&s);
    }
    CHECK_OK(status);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_leaves_what_was_there(sherd_world *world)
{
    saved before[ENTRIES], after[ENTRIES];
    run r = make(world, ADAMW, SHERD_F32, layouts[0]);
    int count = save(&r, before), last = sherd_world_ranks(world) - 1;
    sherd_status status = SHERD_ENOMEM;

    CHECK_OK(sherd_world_check(world)); /* what is there now stays */
    for (int n = 1; status && n < 100; n++) {
        sherd_scope_begin(world);
        sherd_tensor *t = wave(world, SHERD_F32, 2, SHAPE(5, 3), 9, 1, 0);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == last ? n : 0);
        status = sherd_optimizer_load(r.o, "part.weight.m", t, -1);
        sherd_world_fail_allocation(world, 0);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        (void)sherd_world_check(world);
        sherd_scope_end(world);
        CHECK_EQ(save(&r, after), count);
        CHECK(!status || memcmp(before, after, (size_t)count * sizeof *before) == 0);
    }
    CHECK_OK(status);
    CHECK_OK(sherd_world_check(world));
    give_up(&r);
}

/* State keeps the name of the first module that had its parameter, and is found by that. */
static void state_is_found_where_its_parameter_has_another_name(sherd_world *world)
{
    sherd_module *m = NULL, *part = NULL;
    sherd_optimizer *o = NULL;
    sherd_tensor *p = wave(world, SHERD_F32, 1, SHAPE(3), 1, 1, 0);
    sherd_tensor *nine = sherd_constant(world, SHERD_F32, SHAPE(3), 1, 9);
    sherd_named_state entry[3];
    char name[NAME];

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    CHECK_OK(sherd_module_create(&part, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "a", p));
    CHECK_OK(sherd_module_add_parameter(part, "b", p)); /* tied */
    CHECK_OK(sherd_module_add(m, "part", part));
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_optimizer_load(o, "a.m", nine, -1));
    CHECK_OK(sherd_module_set_parameter(m, "a", wave(world, SHERD_F32, 1, SHAPE(3), 2, 1, 0)));
    CHECK_EQ(sherd_optimizer_state(o, entry, 3), 3);
    sherd_state_name(&entry[0], name, sizeof name);
    CHECK_TEXT(name, "part.a.m");
    for (int i = 0; i < 3; i++) {
        sherd_state_name(&entry[i], name, sizeof name);
        CHECK_OK(sherd_optimizer_load(
            o, name, i == 2 ? sherd_constant(world, SHERD_I64, NULL, 0, 9) : nine, -1));
    }
    const float *data = sherd_tensor_read(entry[0].tensor);
    CHECK(data && data[2] == 9);
    for (int i = 0; i < 6; i++) {
        static const char *const none[] = {"a.m", "part.b.m.", ".a.m", "m", "part.a.k", "..m"};
        CHECK_EQ(sherd_optimizer_load(o, none[i], nine, -1), SHERD_EINVAL);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

static void scaled(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    out->value[0] = sherd_mul(in->value[0], sherd_module_parameter(self, "w"));
    out->count = 1;
}

/*
 * Ranks that have trained apart go on together from the values of one, whose exact copy is not that
 * of the others: it is forgotten on that one too. Steps are smaller than the bits of the parameter.
 */
static void exact_copies_are_equal_where_parameters_were_made_equal(sherd_world *world)
{
    enum { N = 5, APART = 3, STEPS = 8 };
    sherd_module *m = NULL;
    sherd_optimizer *o = NULL;
    double mine[N], first[N];

    CHECK_OK(sherd_module_create(&m, world, scaled, NULL));
    CHECK_OK(sherd_module_add_parameter(m, "w", wave(world, SHERD_BF16, 1, SHAPE(N), 2, 1, 2)));
    CHECK_OK(sherd_sgd_create(&o, m, NULL));
    for (int step = 0; step < STEPS; step++) {
        int apart = step < APART ? sherd_world_rank(world) : 0;
        sherd_scope_begin(world);
        sherd_tensor *x = wave(world, SHERD_BF16, 1, SHAPE(N), 5 + apart, 1, 0);
        if (step < APART)
            sherd_tensor_write(x); /* from now on it varies */
        if (step == APART)
            CHECK_OK(
                sherd_module_equalize(m, line_of_ranks(world), NULL, sherd_world_ranks(world) - 1));
        sherd_backward(sherd_sum(sherd_module_call(m, x)));
        sherd_optimizer_step(o, 0.003, 1);
        sherd_optimizer_clear(o);
        sherd_scope_end(world);
    }
    sherd_scope_begin(world);
    sherd_tensor *w = sherd_detach(sherd_module_parameter(m, "w"));
    CHECK_EQ(whole(w, mine), N);
    CHECK_EQ(
        whole(sherd_distribute(w, sherd_tensor_layout(spread(w, line_of_ranks(world), "R")), 0),
              first),
        N);
    CHECK(memcmp(mine, first, sizeof mine) == 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
}

/* Parameters that are views, whose pieces lie in one row on some ranks only. */
static void views_of_any_strides_are_loaded_and_made_equal(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    double want[6];

    for (int way = 0; way < 3; way++) { /* plain, distributed, made equal */
        sherd_module *m = NULL;
        sherd_scope_begin(world);
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(2, 3), 1, 1, 0);
        CHECK_OK(sherd_module_create(&m, world, scaled, NULL));
        if (way == 2)
            sherd_tensor_write(t);
        sherd_tensor *w = sherd_transpose(way == 1 ? spread(t, mesh, "S(0)") : t, 0, 1);
        CHECK_OK(sherd_module_add_parameter(m, "w", w));
        if (way == 2) {
            CHECK_EQ(whole(w, want), 6);
            CHECK_OK(sherd_module_equalize(m, mesh, NULL, 0));
        } else {
            sherd_tensor *from = wave(world, SHERD_F64, 2, SHAPE(3, 2), 4, 1, 0);
            CHECK_EQ(whole(from, want), 6);
            CHECK_OK(sherd_module_load(m, "w", from, -1));
        }
        CHECK_EQ(distance_to(sherd_detach(w), want, 6), 0);
        CHECK_OK(sherd_world_check(world));
        sherd_scope_end(world);
        sherd_module_destroy(m);
    }
}

/* A state of a broken file, say. */
static void a_count_that_counts_no_steps_is_refused(sherd_world *world)
{
    static const int64_t bad[] = {-1, -7, INT64_MAX};
    run r = make(world, ADAMW, SHERD_F32, (const char *const[]){"S(0)", "R", ""});
    double before[MOST];

    sherd_scope_begin(world);
    sherd_tensor *w = sherd_module_parameter(r.part, "weight");
    int64_t n = whole(sherd_detach(w), before);
    for (int i = 0; i < LEN(bad); i++) {
        sherd_tensor *steps = sherd_from_data(world, SHERD_I64, NULL, 0, &bad[i]);
        CHECK_OK(sherd_optimizer_load(r.o, "part.weight.steps", sherd_mark_equal(steps), -1));
        step(&r, SHERD_F32, 1);
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "which is no number of steps") != NULL);
        CHECK_EQ(distance_to(sherd_detach(w), before, n), 0);
    }
    sherd_scope_end(world);
    give_up(&r);
}

static const check_test tests[] = {
    {TEST(a_run_taken_up_again_is_the_run_that_went_on), {1, 2, 3, 4}},
    {TEST(what_has_not_begun_can_be_saved), {1, 2, 3}},
    {TEST(state_is_named_after_parameters), {1, 2}},
    {TEST(state_is_found_where_its_parameter_has_another_name), {1, 2}},
    {TEST(what_is_frozen_has_no_state), {1, 2, 3, 4, 8}},
    {TEST(what_is_thawed_gets_its_state_in_a_step), {1, 2, 3, 4}},
    {TEST(no_memory_leaves_what_was_there), {1, 2, 3}},
    {TEST(a_count_that_counts_no_steps_is_refused), {1, 2, 3}},
    {TEST(exact_copies_are_equal_where_parameters_were_made_equal), {1, 2, 3, 4}},
    {TEST(views_of_any_strides_are_loaded_and_made_equal), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
