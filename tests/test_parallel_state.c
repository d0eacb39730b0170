/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers, the state of a module listed and loaded by name, and parameters that are made equal on
 * all ranks. */
#include "models.h"
#include "sherd/optimizer.h"

enum { ENTRIES = 16 };

static void a_buffer_is_state_without_a_gradient(sherd_world *world)
{
    sherd_module *m = container(world, NULL, NULL), *other = container(world, NULL, NULL);
    sherd_tensor *t = wave(world, SHERD_F64, 1, SHAPE(4), 1, 1, 0);
    sherd_tensor *ids = sherd_constant(world, SHERD_I32, SHAPE(2), 1, 3);
    sherd_tensor *leaf = sherd_require_grad(wave(world, SHERD_F64, 1, SHAPE(4), 1, 1, 0), true);
    sherd_named_parameter all[4];

    CHECK_OK(sherd_module_add_buffer(m, "mean", t));
    CHECK_OK(sherd_module_add_buffer(m, "ids", ids));
    CHECK_OK(sherd_module_add_parameter(m, "weight", leaf));
    CHECK(sherd_module_buffer(m, "mean") == t && sherd_module_buffer(m, "ids") == ids);
    CHECK(!sherd_requires_grad(t));
    CHECK_EQ(sherd_module_buffers(m), 2);
    CHECK_TEXT(sherd_module_buffer_name(m, 1), "ids");
    CHECK(sherd_module_buffer(m, "weight") == NULL);
    CHECK_EQ(sherd_module_all_parameters(m, all, 4), 1);
    /* One name is one thing. */
    CHECK_EQ(sherd_module_add_buffer(m, "weight", t), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add_parameter(m, "mean", leaf), SHERD_EINVAL);
    CHECK_EQ(sherd_module_add(m, "mean", other), SHERD_EINVAL);
    /* What wants a gradient, or has a record, is no buffer. */
    CHECK_EQ(sherd_module_add_buffer(m, "a", leaf), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "buffer \"a\" of \"(root)\": the tensor wants a grad"));
    CHECK_EQ(sherd_module_add_buffer(m, "a", sherd_scale(leaf, 2)), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "recorded operator"));
    CHECK_OK(sherd_module_set_buffer(m, "mean", sherd_constant(world, SHERD_F64, SHAPE(4), 1, 2)));
    CHECK_EQ(sherd_module_set_buffer(m, "mean", ids), SHERD_EINVAL);
    CHECK_EQ(sherd_module_set_buffer(m, "none", ids), SHERD_EINVAL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

/* A tree with everything: a layer, a norm with a buffer, and a weight that two modules share. */
static sherd_module *tree(sherd_world *world)
{
    sherd_module *root = container(world, NULL, NULL), *part, *tied;

    linear_layer(root, "fc", SHERD_F64, 3, 5, 1);
    part = add_layer(root, "part", container(world, NULL, NULL));
    norm_layer(part, "norm", SHERD_F64, 7, 3);
    CHECK_OK(sherd_module_add_buffer(part, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 4)));
    CHECK_OK(
        sherd_module_add_buffer(root, "table", wave(world, SHERD_F32, 2, SHAPE(3, 4), 2, 1, 0)));
    tied = add_layer(part, "tied", container(world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(
        tied, "weight", sherd_module_parameter(sherd_module_find(root, "fc"), "weight")));
    return root;
}

static const char *const names[] = {"table",     "fc.weight",        "fc.bias",
                                    "part.seen", "part.norm.weight", "part.norm.bias"};

static void the_state_is_listed_by_name(sherd_world *world)
{
    sherd_module *root = tree(world);
    sherd_named_state all[ENTRIES];
    char name[32];

    CHECK_EQ(sherd_module_state(root, NULL, 0), LEN(names));
    CHECK_EQ(sherd_module_state(root, all, 2), LEN(names));
    CHECK_EQ(sherd_module_state(root, all, ENTRIES), LEN(names));
    for (int i = 0; i < LEN(names); i++) {
        CHECK_EQ(sherd_state_name(&all[i], name, sizeof name), strlen(names[i]));
        CHECK_TEXT(name, names[i]);
        CHECK_EQ(all[i].buffer, i == 0 || i == 3);
    }
    CHECK_EQ(sherd_state_name(&all[4], name, 5), strlen(names[4]));
    CHECK_TEXT(name, "part");
    CHECK_EQ(sherd_state_name(&all[4], NULL, 0), strlen(names[4]));
    /* Of a part, names begin there; and there the tied weight is met first. */
    CHECK_EQ(sherd_module_state(sherd_module_find(root, "part"), all, ENTRIES), 4);
    sherd_state_name(&all[1], name, sizeof name);
    CHECK_TEXT(name, "norm.weight");
    sherd_state_name(&all[3], name, sizeof name);
    CHECK_TEXT(name, "tied.weight");
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

/* How the parameters lie that are loaded: by tp, replicated, or plain (NULL). */
static const char *const lies[] = {NULL, "R", "S(0)", "S(1)"};

/* From plain data equal everywhere, from plain data of one rank, and from every layout. */
static void what_is_loaded_lies_as_the_parameter_does(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int last = sherd_world_ranks(world) - 1;
    double expected[15];

    for (int i = 0; i < LEN(lies); i++)
        for (int from = -1; from < LEN(lies); from++) {
            sherd_scope_begin(world);
            sherd_module *root = tree(world), *fc = sherd_module_find(root, "fc");
            sherd_tensor *w = wave(world, SHERD_F64, 2, SHAPE(5, 3), 1, 1, 0);
            if (lies[i])
                w = spread(w, mesh, lies[i]);
            CHECK_OK(sherd_module_set_parameter(fc, "weight", sherd_require_grad(w, true)));
            sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(5, 3), 9, 2, 1);
            whole(t, expected);
            if (from < 0 && lies[i]) { /* only the last rank has it */
                if (sherd_world_rank(world) != last)
                    t = i == 2 ? sherd_constant(world, SHERD_F64, SHAPE(5, 3), 2, -1) : NULL;
            } else if (from >= 0 && lies[from]) {
                t = spread(t, mesh, lies[from]);
            }
            CHECK_OK(sherd_module_load(root, "fc.weight", t, from < 0 && lies[i] ? last : -1));
            CHECK(sherd_module_parameter(fc, "weight") == w && sherd_requires_grad(w));
            CHECK_EQ(distance_to(w, expected, 15), 0);
            CHECK_OK(sherd_world_check(world));
            sherd_module_destroy(root);
            sherd_scope_end(world);
        }
}

/* A tensor that hangs on leaves that want gradients is a value like any other: what is loaded does
 * not flow back. */
static void what_was_computed_is_loaded(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = tree(world), *fc = sherd_module_find(root, "fc");
    sherd_tensor *leaf = sherd_require_grad(wave(world, SHERD_F64, 2, SHAPE(5, 3), 1, 1, 0), true);
    double expected[15];

    CHECK_OK(sherd_module_set_parameter(fc, "weight",
                                        sherd_require_grad(spread(leaf, mesh, "S(0)"), true)));
    sherd_tensor *t = sherd_scale(leaf, 2);
    whole(t, expected);
    CHECK_OK(sherd_module_load(root, "fc.weight", t, -1));
    CHECK_EQ(distance_to(sherd_module_parameter(fc, "weight"), expected, 15), 0);
    CHECK(sherd_grad(leaf) == NULL);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void buffers_and_parts_are_loaded_too(sherd_world *world)
{
    sherd_module *root = tree(world), *part = sherd_module_find(root, "part");
    sherd_tensor *seen = sherd_constant(world, SHERD_I64, NULL, 0, 9);

    CHECK_OK(sherd_module_load(root, "part.seen", seen, -1));
    CHECK_EQ(sherd_item(sherd_module_buffer(part, "seen")), 9);
    CHECK_OK(sherd_module_load(part, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 5), -1));
    CHECK_EQ(sherd_item(sherd_module_buffer(part, "seen")), 5);
    CHECK_OK(sherd_module_load(part, "tied.weight",
                               sherd_constant(world, SHERD_F64, SHAPE(5, 3), 2, 1), -1));
    CHECK_EQ(sherd_item(sherd_sum(sherd_module_parameter(sherd_module_find(root, "fc"), "weight"))),
             15);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

static void what_does_not_fit_is_not_loaded(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *root = tree(world);
    sherd_tensor *w = spread(wave(world, SHERD_F64, 2, SHAPE(5, 3), 1, 1, 0), mesh, "S(0)");
    double before[15], data[15] = {0};
    const struct {
        const char *name;
        sherd_tensor *t;
        const char *text;
    } cases[] = {
        {"fc.wait", w, "has no parameter or buffer \"fc.wait\""},
        {"fc..weight", w, "has no parameter or buffer"},
        {".weight", w, "has no parameter or buffer"},
        {"fc", w, "has no parameter or buffer"},
        {"", w, "has no parameter or buffer"},
        {"fc.weight", spread(wave(world, SHERD_F64, 2, SHAPE(3, 5), 1, 1, 0), mesh, "R"),
         "\"fc.weight\" is f64[5(tp),3] on (tp="},
        {"fc.weight", spread(wave(world, SHERD_F32, 2, SHAPE(5, 3), 1, 1, 0), mesh, "R"),
         "what is loaded is f32[5,3] on (tp="},
        {"fc.weight", sherd_from_data(world, SHERD_F64, SHAPE(5, 3), 2, data), "it may vary"},
    };

    CHECK_OK(sherd_module_set_parameter(sherd_module_find(root, "fc"), "weight",
                                        sherd_require_grad(w, true)));
    whole(w, before);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < LEN(cases); i++) {
        CHECK_EQ(sherd_module_load(root, cases[i].name, cases[i].t, -1), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), cases[i].text) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), cases[i].text);
        sherd_status after = sherd_world_check(world);
        CHECK(after == SHERD_OK || after == SHERD_EINVAL);
    }
    CHECK_EQ(distance_to(w, before, 15), 0);
    sherd_module_destroy(root);
    CHECK_OK(sherd_world_check(world));
}

/* The optimizer goes on with what was loaded, also where it has an exact copy of its own. */
static void an_optimizer_goes_on_with_what_was_loaded(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16};

    for (int d = 0; d < LEN(dtypes); d++) {
        sherd_module *m = container(world, NULL, NULL);
        sherd_optimizer *o = NULL;
        double expected[8];
        sherd_tensor *p = spread(sherd_constant(world, dtypes[d], SHAPE(8), 1, 1), mesh, "S(0)");
        CHECK_OK(sherd_module_add_parameter(m, "p", p));
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
        for (int step = 0; step < 2; step++) {
            CHECK_OK(
                sherd_module_load(m, "p", sherd_constant(world, dtypes[d], SHAPE(8), 1, 16), -1));
            sherd_backward(sherd_sum(p));
            sherd_optimizer_step(o, 0.5, 1);
            sherd_optimizer_clear(o);
            for (int i = 0; i < 8; i++)
                expected[i] = 15.5;
            CHECK_NEAR(distance_to(p, expected, 8), 0, 1e-6);
        }
        sherd_optimizer_destroy(o);
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* ---- equal on all ranks --------------------------------------------------------------------- */

/* Each rank has drawn for itself. */
static sherd_tensor *own(sherd_world *world, int64_t n, double value)
{
    double data[64];

    for (int64_t i = 0; i < n; i++)
        data[i] = value + (double)i;
    return sherd_from_data(world, SHERD_F64, &n, 1, data);
}

static sherd_module *differing(sherd_world *world)
{
    double me = 100 * sherd_world_rank(world);
    sherd_module *m = container(world, NULL, NULL);
    int64_t none = 0;

    CHECK_OK(sherd_module_add_parameter(m, "a", own(world, 7, me)));
    CHECK_OK(sherd_module_add_parameter(m, "b", own(world, 1, me)));
    CHECK_OK(sherd_module_add_parameter(m, "none", own(world, none, me)));
    CHECK_OK(sherd_module_add_buffer(m, "c", own(world, 3, me)));
    CHECK_OK(sherd_module_add_parameter(m, "equal", wave(world, SHERD_F64, 1, SHAPE(4), 1, 1, 0)));
    CHECK_OK(sherd_module_add_parameter(
        m, "matrix", sherd_require_grad(sherd_view(own(world, 6, me), SHAPE(2, 3), 2), true)));
    return m;
}

/* Calls that move anything: with SHERD_VERIFY ranks also tell each other hashes. */
static int64_t moves_logged(sherd_world *world)
{
    return calls_logged(world) - sherd_comm_calls(world, &(sherd_comm_filter){.op = "share"});
}

static void all_ranks_get_those_of_one_in_one_round(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int ranks = sherd_world_ranks(world);

    for (int source = 0; source < ranks; source++) {
        sherd_module *m = differing(world);
        CHECK_EQ(sherd_parallelize(m, mesh, "tp", NULL, 0), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "sherd_module_equalize") != NULL);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        CHECK_OK(sherd_module_equalize(m, mesh, source % 2 ? "tp" : NULL, source));
        CHECK_EQ(moves_logged(world), ranks > 1);
        CHECK_OK(sherd_module_equalize(m, mesh, NULL, 0)); /* nothing is left to do */
        CHECK_EQ(moves_logged(world), ranks > 1);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
        double a[7], matrix[6];
        for (int i = 0; i < 7; i++)
            a[i] = 100 * source + i;
        memcpy(matrix, a, sizeof matrix);
        CHECK_EQ(distance_to(sherd_module_parameter(m, "a"), a, 7), 0);
        CHECK_EQ(distance_to(sherd_module_parameter(m, "b"), a, 1), 0);
        CHECK_EQ(distance_to(sherd_module_buffer(m, "c"), a, 3), 0);
        CHECK_EQ(distance_to(sherd_module_parameter(m, "matrix"), matrix, 6), 0);
        sherd_module_destroy(m);
        CHECK_OK(sherd_world_check(world));
    }
}

static void so_do_all_ranks_of_a_grid(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");

    for (int source = 0; source < 4; source++) {
        sherd_module *m = differing(world);
        sherd_comm_reset(world);
        CHECK_OK(sherd_module_equalize(m, mesh, NULL, source));
        CHECK_EQ(moves_logged(world), 1);
        const double *data = sherd_tensor_read(sherd_module_parameter(m, "a"));
        CHECK_EQ(data[2], 100 * source + 2);
        CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
        sherd_module_destroy(m);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Along one axis each line takes from its own rank; along the other one all are equal then. */
static void lines_of_ranks_take_from_their_own(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2");
    sherd_module *m = differing(world);
    const double *data;

    CHECK_OK(sherd_module_equalize(m, mesh, "tp", 1));
    data = sherd_tensor_read(sherd_module_parameter(m, "a"));
    CHECK_EQ(data[2], 100 * (2 * (sherd_world_rank(world) / 2) + 1) + 2);
    CHECK_OK(sherd_world_check(world));
    CHECK_EQ(sherd_parallelize(m, mesh, "tp", NULL, 0), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_module_equalize(m, mesh, "dp", 0));
    data = sherd_tensor_read(sherd_module_parameter(m, "a"));
    CHECK_EQ(data[2], 102);
    CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(m);
}

/* A rank outside of the mesh keeps what it has, and keeps step. */
static void ranks_outside_of_the_mesh_only_agree(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "tp=2@0,1");
    bool outside = sherd_world_rank(world) == 2;

    for (int way = 0; way < 4; way++) {
        sherd_module *m = differing(world);
        sherd_tensor *a = sherd_constant(world, SHERD_F64, SHAPE(7), 1, 5);
        const double five[] = {5, 5, 5, 5, 5, 5, 5};
        CHECK_OK(sherd_module_equalize(m, mesh, way % 2 ? "tp" : NULL, 1));
        const double *b = sherd_tensor_read(sherd_module_parameter(m, "b"));
        CHECK_EQ(b[0], outside ? 200 : 100);
        CHECK_OK(way == 0   ? sherd_parallelize(m, mesh, "tp", NULL, 0)
                 : way == 1 ? sherd_distribute_module(m, mesh, NULL, NULL, NULL, NULL)
                            : sherd_fully_shard(m, mesh, "tp", NULL));
        CHECK_EQ(sherd_tensor_layout(sherd_module_parameter(m, "a")) == NULL, outside);
        CHECK_OK(sherd_world_check(world));
        /* From a plain tensor all of them load, from one on the mesh those that are there. */
        CHECK_OK(sherd_module_load(m, "a", way == 3 ? spread(a, mesh, "S(0)") : a, -1));
        if (!outside)
            CHECK_EQ(distance_to(sherd_module_parameter(m, "a"), five, 7), 0);
        else
            CHECK_EQ(*(const double *)sherd_tensor_read(sherd_module_parameter(m, "a")),
                     way == 3 ? 200 : 5);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(m);
    }
}

static void a_rank_that_is_none_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = differing(world);

    CHECK_EQ(sherd_module_equalize(m, mesh, NULL, sherd_world_ranks(world)), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "there is no rank") != NULL);
    CHECK_EQ(sherd_module_equalize(m, mesh, "tp", -1), SHERD_EINVAL);
    CHECK_EQ(sherd_module_equalize(m, mesh, "dp", 0), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "has no axis \"dp\"") != NULL);
    sherd_module_destroy(m);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_take_from_others_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = differing(world);

    CHECK_EQ(sherd_module_equalize(m, mesh, NULL, sherd_world_rank(world) == 1), SHERD_EDIFFER);
    sherd_status after = sherd_world_check(world);
    CHECK(after == SHERD_OK || after == SHERD_EDIFFER);
    /* another name, another shape of as many elements: nothing is moved */
    for (int what = 0; what < 2; what++) {
        bool odd = sherd_world_rank(world) == 1;
        sherd_tensor *t = own(world, 6, 0);
        t = odd && what ? sherd_view(t, SHAPE(2, 3), 2) : sherd_view(t, SHAPE(3, 2), 2);
        sherd_module *other = container(world, NULL, NULL);
        CHECK_OK(sherd_module_add_parameter(other, odd && !what ? "bias" : "weight", t));
        CHECK_EQ(sherd_module_equalize(other, mesh, NULL, 0), SHERD_EDIFFER);
        CHECK_OK(sherd_world_check(world));
        sherd_module_destroy(other);
    }
    sherd_module_destroy(m);
}

/* One rank runs out of memory: the same status everywhere, and the next try goes through. */
static void no_memory_fails_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    int last = sherd_world_ranks(world) - 1;

    for (int what = 0; what < 3; what++) {
        sherd_status status = SHERD_ENOMEM;
        for (int n = 1; status && n < 200; n++) {
            sherd_scope_begin(world);
            sherd_module *m = what ? tree(world) : differing(world);
            sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(5, 3), 1, 1, 0);
            t = what < 2 ? spread(t, mesh, "S(1)") : sherd_world_rank(world) == last ? t : NULL;
            if (what)
                CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
            CHECK_OK(sherd_world_check(world));
            sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
            status = what ? sherd_module_load(m, "part.tied.weight", t, what == 2 ? last : -1)
                          : sherd_module_equalize(m, mesh, NULL, 0);
            sherd_world_fail_allocation(world, 0);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            sherd_status after = sherd_world_check(world);
            CHECK(after == SHERD_OK || (status && after == SHERD_ENOMEM));
            sherd_module_destroy(m);
            sherd_scope_end(world);
        }
        CHECK_OK(status);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Whichever rank has no memory, and wherever: the same module is made equal by the next call. */
static void what_could_not_be_made_equal_is_tried_again(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int poor = 0; poor < sherd_world_ranks(world); poor++) {
        sherd_status status = SHERD_ENOMEM;
        for (int n = 1; status && n < 200; n++) {
            sherd_module *m = differing(world);
            sherd_world_fail_allocation(world, sherd_world_rank(world) == poor ? n : 0);
            status = sherd_module_equalize(m, mesh, NULL, 0);
            sherd_world_fail_allocation(world, 0);
            (void)sherd_world_check(world);
            CHECK_OK(sherd_module_equalize(m, mesh, NULL, 0));
            CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
            CHECK_OK(sherd_world_check(world));
            sherd_module_destroy(m);
        }
        CHECK_OK(status);
    }
}

/* Also on ranks that had memory: they wait for those that had none before they write. */
static void what_can_not_be_loaded_leaves_what_was_there(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_module *m = tree(world);
    sherd_status status = SHERD_ENOMEM;
    double values[MOST];
    int failed = 0;

    CHECK_OK(sherd_parallelize(m, mesh, "tp", NULL, 0));
    sherd_tensor *old = sherd_module_parameter(sherd_module_find(m, "part.tied"), "weight");
    int64_t count = whole(old, values);
    CHECK_OK(sherd_world_check(world));
    for (int n = 1; status && n < 200; n++, failed += status != SHERD_OK) {
        sherd_scope_begin(world);
        sherd_tensor *t = wave(world, SHERD_F64, 2, SHAPE(5, 3), 7, 1, 0);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        status = sherd_module_load(m, "part.tied.weight", t, -1);
        sherd_world_fail_allocation(world, 0);
        (void)sherd_world_check(world);
        if (status)
            CHECK_NEAR(distance_to(old, values, count), 0, 0);
        sherd_scope_end(world);
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_OK(status);
    CHECK(failed > 1 && distance_to(old, values, count) > 0);
    sherd_module_destroy(m);
}

static const check_test tests[] = {
    {TEST(a_buffer_is_state_without_a_gradient), {1, 2}},
    {TEST(the_state_is_listed_by_name), {1, 2}},
    {TEST(what_is_loaded_lies_as_the_parameter_does), {1, 2, 3, 4, 8}},
    {TEST(what_was_computed_is_loaded), {1, 2, 3}},
    {TEST(buffers_and_parts_are_loaded_too), {1, 2}},
    {TEST(what_does_not_fit_is_not_loaded), {1, 2, 3}},
    {TEST(an_optimizer_goes_on_with_what_was_loaded), {1, 2, 3}},
    {TEST(all_ranks_get_those_of_one_in_one_round), {1, 2, 3, 4, 8}},
    {TEST(so_do_all_ranks_of_a_grid), {4}},
    {TEST(lines_of_ranks_take_from_their_own), {4}},
    {TEST(ranks_outside_of_the_mesh_only_agree), {3}},
    {TEST(a_rank_that_is_none_is_refused), {1, 2, 3}},
    {TEST(ranks_that_take_from_others_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
    {TEST(what_could_not_be_made_equal_is_tried_again), {2, 3, 4}},
    {TEST(what_can_not_be_loaded_leaves_what_was_there), {1, 2, 3}},
};
CHECK_MAIN(tests)
