/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups of parameters train as PyTorch's param_groups (optimizer_groups.h), whatever the layouts;
 * patterns find what they say; and what they cannot mean is refused in a line that helps.
 */
#include "modules.h"
#include "sherd/optimizer.h"
#include "optimizer_groups.h"

enum { PARAMETERS = 4, ELEMENTS = 24, NAME = 64 };

typedef enum kind { SGD, ADAM, ADAMW, KINDS } kind;

static const struct {
    const char *module, *name;
    int ndim;
    int64_t shape[2];
} parts[PARAMETERS] = {{"embed", "weight", 2, {4, 3}},
                       {"blocks.0", "weight", 2, {2, 3}},
                       {"blocks.0", "bias", 1, {3}},
                       {"norm", "weight", 1, {3}}};

typedef struct net {
    sherd_module *m;
    const sherd_mesh *mesh;
    const char *const *way;
} net;

/* Layouts of matrices and vectors, and of what makes their gradients; NULL = plain. */
static const char *const ways[][4] = {{NULL, NULL, NULL, NULL},
                                      {"R", "R", "S(0)", "S(0)"},
                                      {"S(0)", "R", "R", "R"},
                                      {"S(1)", "S(0)", "S(1)", "S(0)"}};

static sherd_module *below(sherd_module *m, const char *name)
{
    sherd_module *child = NULL;

    CHECK_OK(sherd_module_create(&child, sherd_module_world(m), NULL, NULL));
    CHECK_OK(sherd_module_add(m, name, child));
    return child;
}

static sherd_tensor *laid(sherd_tensor *t, const net *n, int first)
{
    const char *placements = n->way[first + (sherd_tensor_ndim(t) == 1)];

    return placements ? spread(t, n->mesh, placements) : t;
}

static net make(sherd_world *world, sherd_dtype dtype, const char *const way[4])
{
    net n = {NULL, line_of_ranks(world), way};

    CHECK_OK(sherd_module_create(&n.m, world, NULL, NULL));
    below(n.m, "embed");
    below(below(n.m, "blocks"), "0");
    below(n.m, "norm");
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_tensor *t = wave(world, dtype, parts[i].ndim, parts[i].shape, i + 1, 0.4, 0.5);
        CHECK_OK(sherd_module_add_parameter(sherd_module_find(n.m, parts[i].module), parts[i].name,
                                            laid(t, &n, 0)));
    }
    return n;
}

static sherd_tensor *parameter(const net *n, int i)
{
    return sherd_module_parameter(sherd_module_find(n->m, parts[i].module), parts[i].name);
}

/* The gradient of each is a wave of this step. */
static void backward(const net *n, int step)
{
    sherd_world *world = sherd_module_world(n->m);
    sherd_tensor *loss[PARAMETERS];

    sherd_scope_begin(world);
    for (int i = 0; i < PARAMETERS; i++) {
        sherd_tensor *p = parameter(n, i);
        sherd_tensor *x =
            wave(world, sherd_tensor_dtype(p), parts[i].ndim, parts[i].shape, step + i + 2, 2, 0);
        loss[i] = sherd_sum(sherd_mul(p, laid(x, n, 2)));
    }
    sherd_backward(sherd_add(sherd_add(loss[0], loss[1]), sherd_add(loss[2], loss[3])));
    sherd_scope_end(world);
}

static sherd_status optimizer(sherd_optimizer **out, const net *n, kind k,
                              const sherd_optimizer_group *groups, int count)
{
    const sherd_sgd_options sgd = {.momentum = 0.9,
                                   .nesterov = true,
                                   .weight_decay = 0.1,
                                   .groups = groups,
                                   .group_count = count};
    const sherd_adamw_options adam = {.beta1 = 0.8,
                                      .beta2 = 0.95,
                                      .eps = 1e-6,
                                      .weight_decay = 0.1,
                                      .groups = groups,
                                      .group_count = count};

    return k == SGD    ? sherd_sgd_create(out, n->m, &sgd)
           : k == ADAM ? sherd_adam_create(out, n->m, &adam)
                       : sherd_adamw_create(out, n->m, &adam);
}

static void step(const net *n, sherd_optimizer *o, int number, bool clip)
{
    backward(n, number);
    if (clip)
        sherd_optimizer_clip(o, 1.5);
    sherd_optimizer_step(o, case_rate * (1 + number % 2), 1);
    sherd_optimizer_clear(o);
}

static int count_of(const sherd_optimizer_group *groups)
{
    int n = 0;

    while (n < 3 && groups[n].pattern)
        n++;
    return n;
}

static void train(sherd_world *world, int c, kind k, sherd_dtype dtype, const char *const way[4])
{
    /* In 16 bits gradients are rounded; PyTorch adds 1e-6 to a norm that it clips by. */
    static const double tolerances[SHERD_DTYPES] = {
        [SHERD_F64] = 1e-13, [SHERD_F32] = 1e-5, [SHERD_BF16] = 3e-2, [SHERD_F16] = 4e-3};
    double tolerance = tolerances[dtype];
    const double *expected = group_cases[c].p[k];
    net n = make(world, dtype, way);
    sherd_optimizer *o = NULL;

    if (group_cases[c].clip && tolerance < 1e-5)
        tolerance = 1e-5;
    CHECK_OK(optimizer(&o, &n, k, group_cases[c].groups, count_of(group_cases[c].groups)));
    for (int t = 1; t <= CASE_STEPS; t++)
        step(&n, o, t, group_cases[c].clip);
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t count = sherd_tensor_count(parameter(&n, i));
        CHECK_NEAR(distance_to(parameter(&n, i), expected, count), 0, tolerance);
        expected += count;
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
}

static void they_train_as_pytorch_does(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++)
        for (int dtype = SHERD_F32; dtype <= SHERD_F16; dtype++)
            for (int c = 0; c < LEN(group_cases); c++)
                for (int k = 0; k < KINDS; k++)
                    if ((way + dtype + c + k) % check_stride(2) == 0)
                        train(world, c, (kind)k, (sherd_dtype)dtype, ways[way]);
    CHECK_OK(sherd_world_check(world));
}

/* Other groups after half of the steps, and first some that are refused and change nothing. */
static void train_on(sherd_world *world, int c, kind k, const char *const way[4])
{
    static const sherd_optimizer_group wrong[] = {{.pattern = "embed.*", .no_rate = true},
                                                  {.pattern = "**.bais"}};
    const sherd_optimizer_group *from = group_cases[regrouped_cases[c].from].groups;
    const sherd_optimizer_group *to = group_cases[regrouped_cases[c].to].groups;
    const double *expected = regrouped_cases[c].p[k];
    net n = make(world, SHERD_F64, way);
    sherd_optimizer *o = NULL;

    CHECK_OK(optimizer(&o, &n, k, from, count_of(from)));
    for (int t = 1; t <= CASE_STEPS; t++) {
        CHECK_EQ(sherd_optimizer_groups(o, wrong, 2), SHERD_EINVAL);
        for (int i = 1; i <= 3; i++) {
            sherd_world_fail_allocation(world, i);
            CHECK_EQ(sherd_optimizer_groups(o, wrong, 1), SHERD_ENOMEM);
        }
        sherd_world_fail_allocation(world, 0);
        if (t == CASE_STEPS / 2 + 1)
            CHECK_OK(sherd_optimizer_groups(o, to, count_of(to)));
        step(&n, o, t, false);
    }
    for (int i = 0; i < PARAMETERS; i++) {
        int64_t count = sherd_tensor_count(parameter(&n, i));
        CHECK_NEAR(distance_to(parameter(&n, i), expected, count), 0, 1e-13);
        expected += count;
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
}

static void groups_may_change_as_pytorchs_may(sherd_world *world)
{
    for (int way = 0; way < LEN(ways); way++)
        for (int c = 0; c < LEN(regrouped_cases); c++)
            for (int k = 0; k < KINDS; k++)
                train_on(world, c, (kind)k, ways[way]);
    CHECK_OK(sherd_world_check(world));
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* Bits of the parameters that a step of these groups leaves as they were. */
static unsigned held_by(const net *n, const sherd_optimizer_group *groups, int count)
{
    sherd_optimizer *o = NULL;
    unsigned held = 0;
    double before[PARAMETERS][MOST];

    for (int i = 0; i < PARAMETERS; i++)
        whole(parameter(n, i), before[i]);
    CHECK_OK(optimizer(&o, n, ADAMW, groups, count));
    step(n, o, 1, false);
    for (int i = 0; i < PARAMETERS; i++)
        if (distance_to(parameter(n, i), before[i], sherd_tensor_count(parameter(n, i))) == 0)
            held |= 1u << i;
    sherd_optimizer_destroy(o);
    return held;
}

static void patterns_find_what_they_say(sherd_world *world)
{
    static const struct {
        const char *pattern;
        unsigned found;
    } cases[] = {{"embed.weight", 1},
                 {"*.weight", 1 | 8},
                 {"**.weight", 1 | 2 | 8},
                 {"**.bias", 4},
                 {"blocks.*.bias", 4},
                 {"blocks.?.b*", 4},
                 {"blocks.[0-9].*", 6},
                 {"blocks.**", 6},
                 {"blocks.0.**", 6},
                 {"**", 15},
                 {"*.*", 9},
                 {"*.*.*", 6},
                 {"**.0.**.weight", 2},
                 {"**.**.bias", 4},
                 {"blocks.**.**.**", 6},
                 {"**.norm.**.weight", 8}};
    net n = make(world, SHERD_F64, ways[3]);

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_optimizer_group group = {.pattern = cases[i].pattern, .no_rate = true};
        CHECK_EQ(held_by(&n, &group, 1), cases[i].found);
    }
    sherd_module_destroy(n.m);
    CHECK_OK(sherd_world_check(world));
}

static void the_first_group_that_matches_has_a_parameter(sherd_world *world)
{
    const sherd_optimizer_group groups[] = {{.pattern = "blocks.*.weight", .rate = 2},
                                            {.pattern = "blocks.**", .no_rate = true},
                                            {.pattern = "**", .rate = 3}};
    net n = make(world, SHERD_F64, ways[1]);

    CHECK_EQ(held_by(&n, groups, 3), 4);
    CHECK_EQ(held_by(&n, groups, 0), 0);
    sherd_module_destroy(n.m);
    CHECK_OK(sherd_world_check(world));
}

/* Paths are those below the optimizer's module, and each of a tied parameter's names finds it. */
static void a_tied_parameter_is_found_by_each_of_its_names(sherd_world *world)
{
    static const char *const names[] = {"embed.weight", "head.table"};

    for (int i = 0; i < 2; i++) {
        const sherd_optimizer_group group = {.pattern = names[i], .no_rate = true};
        sherd_module *root = NULL;
        net n = make(world, SHERD_F64, ways[2]);
        CHECK_OK(sherd_module_add_parameter(below(n.m, "head"), "table", parameter(&n, 0)));
        CHECK_OK(sherd_module_create(&root, world, NULL, NULL));
        CHECK_OK(sherd_module_add(root, "model", n.m));
        CHECK_EQ(held_by(&n, &group, 1), 1);
        sherd_module_destroy(root);
    }
    CHECK_OK(sherd_world_check(world));
}

/* A group may be of what is frozen now; it is in force when that is thawed. */
static void frozen_parameters_may_be_in_a_group(sherd_world *world)
{
    const sherd_optimizer_group group = {.pattern = "embed.*", .no_rate = true};
    net n = make(world, SHERD_BF16, ways[3]);
    sherd_optimizer *o = NULL;
    double before[MOST];

    whole(parameter(&n, 0), before);
    sherd_require_grad(parameter(&n, 0), false);
    CHECK_OK(optimizer(&o, &n, ADAM, &group, 1));
    step(&n, o, 1, false);
    int frozen = sherd_optimizer_state(o, NULL, 0);
    sherd_require_grad(parameter(&n, 0), true);
    step(&n, o, 2, false);
    CHECK_EQ(sherd_optimizer_state(o, NULL, 0), frozen + 4);
    CHECK_EQ(distance_to(parameter(&n, 0), before, 12), 0);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- state ----------------------------------------------------------------------------------- */

/* Names do not tell of groups, and what was saved with some is loaded with others. */
static void state_is_loaded_with_other_groups(sherd_world *world)
{
    net n = make(world, SHERD_BF16, ways[1]), other = make(world, SHERD_BF16, ways[3]);
    sherd_optimizer *o = NULL, *p = NULL, *none = NULL;
    sherd_named_state from[4 * PARAMETERS], to[4 * PARAMETERS], plain[4 * PARAMETERS];
    char name[NAME], other_name[NAME];

    CHECK_OK(optimizer(&o, &n, ADAMW, group_cases[0].groups, count_of(group_cases[0].groups)));
    CHECK_OK(optimizer(&none, &n, ADAMW, NULL, 0));
    CHECK_OK(optimizer(&p, &other, ADAMW, group_cases[2].groups, count_of(group_cases[2].groups)));
    step(&n, o, 1, false);
    CHECK_EQ(sherd_optimizer_state(o, from, LEN(from)), LEN(from));
    CHECK_EQ(sherd_optimizer_state(none, plain, LEN(plain)), LEN(plain));
    for (int i = 0; i < LEN(from); i++) {
        CHECK(sherd_state_name(&from[i], name, NAME) < NAME);
        CHECK(sherd_state_name(&plain[i], other_name, NAME) < NAME);
        CHECK_TEXT(name, other_name);
        CHECK_OK(sherd_optimizer_load(p, name, from[i].tensor, -1));
    }
    CHECK_EQ(sherd_optimizer_state(p, to, LEN(to)), LEN(to));
    for (int i = 0; i < LEN(to); i++) {
        double values[MOST];
        int64_t count = whole(from[i].tensor, values);
        CHECK_EQ(distance_to(to[i].tensor, values, count), 0);
    }
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(p);
    sherd_optimizer_destroy(none);
    sherd_module_destroy(n.m);
    sherd_module_destroy(other.m);
    CHECK_OK(sherd_world_check(world));
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void what_a_group_cannot_mean_is_refused(sherd_world *world)
{
    const struct {
        sherd_optimizer_group groups[3];
        const char *says;
    } cases[] = {
        {{{.pattern = "embed.wieght"}},
         "group 0, \"embed.wieght\": no parameter has such a path; there are embed.weight, "},
        {{{.pattern = "embed.*"}, {.pattern = "**.bais"}},
         "group 1, \"**.bais\": no parameter has such a path; there are "},
        {{{.pattern = "blocks.*.*.weight"}}, "; there are blocks.0.weight, "},
        {{{.pattern = "embed"}}, "no parameter has such a path"},
        {{{.pattern = "**.["}}, "no parameter has such a path"},
        {{{.pattern = "embed.weight\\"}}, "no parameter has such a path"},
        {{{.pattern = ""}}, "group 0, \"\": no parameter has such a path"},
        {{{.pattern = "embed.weight."}}, "no parameter has such a path"},
        {{{.pattern = "**.weight"}, {.pattern = "norm.weight"}},
         "group 1, \"norm.weight\": all that it matches is in earlier groups"},
        {{{.pattern = NULL}}, "group 0, \"(null)\": a group needs a pattern"},
        {{{.pattern = "**", .rate = -1}}, "finite and not negative"},
        {{{.pattern = "**", .rate = NAN}}, "finite and not negative"},
        {{{.pattern = "**", .weight_decay = INFINITY}}, "finite and not negative"},
        {{{.pattern = "**", .weight_decay = NAN}}, "finite and not negative"},
        {{{.pattern = "**", .no_rate = true, .rate = 1}}, "a rate, and no_rate"},
        {{{.pattern = "**", .no_decay = true, .weight_decay = 1}}, "a weight_decay, and no_decay"}};
    net n = make(world, SHERD_F32, ways[0]);

    for (int i = 0; i < LEN(cases); i++)
        for (int k = 0; k < KINDS; k++) {
            sherd_optimizer *o = (sherd_optimizer *)&n;
            int count = cases[i].groups[0].pattern ? count_of(cases[i].groups) : 1;
            CHECK_EQ(optimizer(&o, &n, (kind)k, cases[i].groups, count), SHERD_EINVAL);
            CHECK(o == NULL);
            if (!CHECK(strstr(sherd_world_error(world), cases[i].says) != NULL))
                fprintf(stderr, "  %s\n", sherd_world_error(world));
        }
    sherd_module_destroy(n.m);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_group_otherwise_differ(sherd_world *world)
{
    const sherd_optimizer_group groups[] = {{.pattern = "embed.*", .rate = 0.5},
                                            {.pattern = "embed.*", .rate = 0.25},
                                            {.pattern = "norm.*", .rate = 0.5},
                                            {.pattern = "embed.*", .no_decay = true}};

    for (int i = 1; i < LEN(groups); i++) {
        net n = make(world, SHERD_F32, ways[2]);
        sherd_optimizer *o = NULL;
        CHECK_OK(optimizer(&o, &n, SGD, &groups[sherd_world_rank(world) ? i : 0], 1));
        step(&n, o, 1, false);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK(strstr(sherd_world_error(world), "sherd_optimizer_step") != NULL);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(n.m);
    }
}

/* Ranks that have got the same groups in the end are alike, however they got there. */
static void ranks_that_regroup_otherwise_differ(sherd_world *world)
{
    const sherd_optimizer_group groups[] = {{.pattern = "embed.*", .rate = 0.5},
                                            {.pattern = "norm.*", .decay_all = true}};
    bool first = sherd_world_rank(world) == 0;

    for (int alike = 1; alike >= 0; alike--) {
        net n = make(world, SHERD_F32, ways[2]);
        sherd_optimizer *o = NULL;
        CHECK_OK(optimizer(&o, &n, ADAM, groups, first ? 1 : 2));
        CHECK_OK(sherd_optimizer_groups(o, groups, first ? 2 : alike));
        if (alike)
            CHECK_OK(sherd_optimizer_groups(o, groups, 1));
        step(&n, o, 1, false);
        CHECK_EQ(sherd_world_check(world), alike ? SHERD_OK : SHERD_EDIFFER);
        sherd_optimizer_destroy(o);
        sherd_module_destroy(n.m);
    }
}

/* What the module got since the optimizer was made is in no group. */
static void groups_are_of_what_the_optimizer_has(sherd_world *world)
{
    const sherd_optimizer_group later = {.pattern = "later.weight", .rate = 2},
                                embed = {.pattern = "embed.*", .no_rate = true},
                                all = {.pattern = "**", .rate = 2};
    net n = make(world, SHERD_F64, ways[3]);
    sherd_optimizer *o = NULL;
    double before[MOST];

    CHECK_OK(optimizer(&o, &n, ADAMW, &embed, 1));
    whole(parameter(&n, 0), before);
    step(&n, o, 1, false);
    CHECK_EQ(distance_to(parameter(&n, 0), before, 12), 0);
    sherd_tensor *t = wave(world, SHERD_F64, 2, parts[0].shape, 1, 0.4, 0.5);
    CHECK_OK(sherd_module_add_parameter(below(n.m, "later"), "weight", t));
    CHECK_EQ(sherd_optimizer_groups(o, &later, 1), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "no parameter has such a path; there are ") != NULL);
    CHECK(strstr(sherd_world_error(world), "are later") == NULL);
    CHECK_OK(sherd_optimizer_groups(o, &all, 1));
    CHECK_OK(sherd_optimizer_groups(o, NULL, 0));
    step(&n, o, 2, false);
    CHECK(distance_to(parameter(&n, 0), before, 12) > 0.01);
    sherd_optimizer_destroy(o);
    sherd_module_destroy(n.m);
    CHECK_OK(sherd_world_check(world));
}

static void no_memory_makes_no_optimizer(sherd_world *world)
{
    const sherd_optimizer_group right[] = {{.pattern = "embed.*", .rate = 0.5},
                                           {.pattern = "**.bias", .no_decay = true}};
    const sherd_optimizer_group wrong = {.pattern = "embed.wieght"};

    for (int way = 0; way < 2; way++) {
        sherd_status status = SHERD_ENOMEM, wanted = way ? SHERD_EINVAL : SHERD_OK;
        int64_t failures = 0;
        for (int i = 1; status == SHERD_ENOMEM && i < 200; i++) {
            int64_t before = sherd_world_memory(world).live_bytes;
            sherd_scope_begin(world);
            net n = make(world, SHERD_BF16, ways[3]);
            sherd_optimizer *o = NULL;
            CHECK_OK(sherd_world_check(world));
            sherd_world_fail_allocation(world, i);
            status = optimizer(&o, &n, ADAMW, way ? &wrong : right, way ? 1 : 2);
            sherd_world_fail_allocation(world, 0);
            CHECK(status == wanted || status == SHERD_ENOMEM);
            CHECK((status == SHERD_OK) == (o != NULL));
            sherd_optimizer_destroy(o);
            sherd_module_destroy(n.m);
            sherd_scope_end(world);
            sherd_status later = sherd_world_check(world); /* a scope that could not begin */
            status = later ? later : status;
            failures += status == SHERD_ENOMEM;
            CHECK_EQ(sherd_world_memory(world).live_bytes, before);
        }
        CHECK_EQ(status, wanted);
        CHECK(failures > (way ? 2 : 10)); /* what is wrong is found before state is made */
    }
}

static const check_test tests[] = {
    {TEST(they_train_as_pytorch_does), {1, 2, 3, 4, 8}},
    {TEST(groups_may_change_as_pytorchs_may), {1, 3}},
    {TEST(patterns_find_what_they_say), {1, 2, 3}},
    {TEST(the_first_group_that_matches_has_a_parameter), {1, 2}},
    {TEST(a_tied_parameter_is_found_by_each_of_its_names), {1, 2}},
    {TEST(frozen_parameters_may_be_in_a_group), {1, 2, 3, 4, 8}},
    {TEST(state_is_loaded_with_other_groups), {1, 2, 3, 4, 8}},
    {TEST(what_a_group_cannot_mean_is_refused), {1, 2}},
    {TEST(ranks_that_group_otherwise_differ), {2, 3}},
    {TEST(ranks_that_regroup_otherwise_differ), {2, 3}},
    {TEST(groups_are_of_what_the_optimizer_has), {1, 2}},
    {TEST(no_memory_makes_no_optimizer), {1, 2, 3}},
};
CHECK_MAIN(tests)
