/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tied parameters: a pipeline whose first stage has a table of symbols, and whose last one has a
 * copy of it as the last product, trains as the whole model with one table does; both copies have
 * the same bits, whatever their layouts, and count once where gradients are clipped.
 */
#include <sherd.h>

#include "models.h"

enum { SYMBOLS = 11, DIM = 6, LENGTH = 5, MOST_STAGES = 4, BATCHES = 3, STEPS = 5 };

typedef struct setup {
    const char *mesh[3]; /* of places; NULL: no more */
    int stages;
    sherd_pipeline_schedule schedule;
    char table, head; /* C: Colwise, R: Rowwise, -: replicated, F: fully sharded */
} setup;

typedef struct job {
    sherd_world *world;
    const setup *s;
    const sherd_mesh *all, *mesh[3];
    int places, step;
    sherd_stage stage[MOST_STAGES];
    sherd_module *plain; /* the whole model */
    sherd_pipeline *pipeline;
    sherd_optimizer *optimizer[MOST_STAGES], *whole;
    int optimizers;
} job;

/* ---- the model ------------------------------------------------------------------------------- */

static sherd_module *table_layer(sherd_module *parent, const char *name, int k)
{
    sherd_layer_options o = {.name = name, .dtype = SHERD_F64};
    sherd_module *m = NULL;

    CHECK_OK(sherd_embedding_create(&m, sherd_module_world(parent), SYMBOLS, DIM, &o));
    fill_layer(m, SHERD_F64, k, 0);
    return add_layer(parent, name, m);
}

static sherd_module *head_layer(sherd_module *parent, const char *name, int k)
{
    sherd_layer_options o = {.name = name, .dtype = SHERD_F64};
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, sherd_module_world(parent), DIM, SYMBOLS, &o));
    fill_layer(m, SHERD_F64, k, 0);
    return add_layer(parent, name, m);
}

static void stage_forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module *table = sherd_module_find(self, "table"), *head = sherd_module_find(self, "head");
    sherd_tensor *h = table ? sherd_module_call(table, in->value[0]) : in->value[0];

    h = sherd_tanh(sherd_module_call(sherd_module_find(self, "net"), h));
    out->value[0] = head ? sherd_module_call(head, h) : h;
    out->count = 1;
}

/* The head begins with other values than the table. */
static sherd_module *make_stage(sherd_world *world, int i, int stages)
{
    sherd_module *m = container(world, stage_forward, NULL);

    if (i == 0)
        table_layer(m, "table", 1);
    linear_layer(m, "net", SHERD_F64, DIM, DIM, 2 * i + 3);
    if (i == stages - 1)
        head_layer(m, "head", 2);
    return m;
}

/* All stages one after the other, where the head's weight is the table's. */
static sherd_module *make_whole(sherd_world *world, int stages)
{
    static const char *const names[] = {"0", "1", "2", "3"};
    sherd_module *root = container(world, stack_forward, NULL);

    for (int i = 0; i < stages; i++)
        add_layer(root, names[i], make_stage(world, i, stages));
    sherd_module *table = sherd_module_find(sherd_module_child(root, 0), "table");
    sherd_module *head = sherd_module_find(sherd_module_child(root, stages - 1), "head");
    CHECK_OK(sherd_module_set_parameter(head, "weight", sherd_module_parameter(table, "weight")));
    return root;
}

static sherd_tensor *symbols_of(const job *j, int64_t microbatch, int from)
{
    int32_t data[LENGTH];

    for (int i = 0; i < LENGTH; i++)
        data[i] = (int32_t)((7 * (i + from) + 3 * microbatch + 5 * j->step) % SYMBOLS);
    return sherd_mark_equal(sherd_from_data(j->world, SHERD_I32, (int64_t[]){LENGTH}, 1, data));
}

static void feed(void *payload, int stage, int64_t microbatch, sherd_args *in)
{
    job *j = payload;

    if (stage > 0)
        return;
    in->value[0] = spread(symbols_of(j, microbatch, 0), j->mesh[0], "R");
    in->count = 1;
}

static sherd_tensor *find_loss(void *payload, int64_t microbatch, const sherd_args *out)
{
    job *j = payload;
    const sherd_mesh *mesh = j->stage[j->s->stages - 1].mesh;

    return sherd_cross_entropy(out->value[0], spread(symbols_of(j, microbatch, 1), mesh, "R"));
}

/* ---- both of them ---------------------------------------------------------------------------- */

static bool is_here(const job *j, int stage)
{
    return sherd_mesh_coordinate(j->stage[stage].mesh, sherd_world_rank(j->world), NULL);
}

static sherd_tensor *copy_of(const job *j, int side)
{
    sherd_module *m = j->stage[side ? j->s->stages - 1 : 0].module;

    return sherd_module_parameter(sherd_module_find(m, side ? "head" : "table"), "weight");
}

static void lay_out(const job *j, int i)
{
    const char how[] = {j->s->table, j->s->head};
    static const char *const names[] = {"table", "head"};
    sherd_module *m = j->stage[i].module;
    sherd_parallel_entry plan[2];
    int count = 0;

    for (int side = 0; side < 2; side++)
        if (sherd_module_find(m, names[side]) && (how[side] == 'C' || how[side] == 'R'))
            plan[count++] = (sherd_parallel_entry){names[side], how[side] == 'C' ? sherd_colwise()
                                                                                 : sherd_rowwise()};
    CHECK_OK(sherd_parallelize(m, j->stage[i].mesh, "x", plan, count));
    for (int side = 0; side < 2; side++)
        if (sherd_module_find(m, names[side]) && how[side] == 'F')
            CHECK_OK(
                sherd_fully_shard(sherd_module_find(m, names[side]), j->stage[i].mesh, "x", NULL));
}

static sherd_optimizer *optimizer_of(sherd_module *m, bool adamw)
{
    const sherd_sgd_options momentum = {.momentum = 0.9, .weight_decay = 0.01};
    sherd_optimizer *o = NULL;

    if (adamw)
        CHECK_OK(sherd_adamw_create(&o, m, NULL));
    else
        CHECK_OK(sherd_sgd_create(&o, m, &momentum));
    return o;
}

static void open_job(job *j, sherd_world *world, const setup *s, bool adamw)
{
    const int64_t ranks = sherd_world_ranks(world);

    *j = (job){.world = world, .s = s};
    CHECK_OK(sherd_mesh_create(&j->all, world, 1, &ranks, (const char *[]){"all"}, NULL));
    for (; j->places < 3 && s->mesh[j->places]; j->places++)
        CHECK_OK(sherd_mesh_parse(&j->mesh[j->places], world, s->mesh[j->places]));
    for (int i = 0; i < s->stages; i++) {
        bool back = s->schedule == SHERD_PIPELINE_ZERO_BUBBLE_V && i >= j->places;
        const sherd_mesh *mesh = j->mesh[back ? s->stages - 1 - i : i % j->places];
        j->stage[i] = (sherd_stage){mesh, make_stage(world, i, s->stages), "R"};
        lay_out(j, i);
        if (is_here(j, i))
            j->optimizer[j->optimizers++] = optimizer_of(j->stage[i].module, adamw);
    }
    j->plain = make_whole(world, s->stages);
    j->whole = optimizer_of(j->plain, adamw);
    CHECK_OK(sherd_pipeline_create(&j->pipeline, world, j->stage, s->stages, s->schedule));
    CHECK_OK(sherd_pipeline_tie(j->pipeline, 0, "table.weight", s->stages - 1, "head.weight"));
}

static void close_job(job *j)
{
    for (int i = 0; i < j->optimizers; i++)
        sherd_optimizer_destroy(j->optimizer[i]);
    sherd_optimizer_destroy(j->whole);
    sherd_pipeline_destroy(j->pipeline);
    for (int i = 0; i < j->s->stages; i++)
        sherd_module_destroy(j->stage[i].module);
    sherd_module_destroy(j->plain);
}

/* Forward and backward of the whole model; the sum of losses. */
static double run_whole(job *j)
{
    double sum = 0;

    for (int64_t m = 0; m < BATCHES; m++) {
        sherd_tensor *y = sherd_module_call(j->plain, symbols_of(j, m, 0));
        sherd_tensor *loss = sherd_cross_entropy(y, symbols_of(j, m, 1));
        sherd_backward(loss);
        sum += sherd_item(loss);
    }
    return sum;
}

/* The second copy, or its gradient, travels to the first one: the same bits. */
static void compare_copies(job *j, bool gradients)
{
    const sherd_mesh *from = j->stage[j->s->stages - 1].mesh, *to = j->stage[0].mesh;
    double mine[SYMBOLS * DIM], other[SYMBOLS * DIM];
    sherd_tensor *t = is_here(j, j->s->stages - 1) ? copy_of(j, 1) : NULL;
    sherd_channel *c = NULL;

    if (from != to)
        CHECK_OK(sherd_channel_create(&c, from, to, "R"));
    t = t && gradients ? sherd_grad(t) : t;
    if (c && t)
        sherd_channel_send(c, &t, 1);
    else if (c && is_here(j, 0))
        sherd_channel_receive(c, &t, 1);
    if (is_here(j, 0)) {
        CHECK_EQ(whole(t, other), SYMBOLS * DIM);
        t = gradients ? sherd_grad(copy_of(j, 0)) : copy_of(j, 0);
        CHECK_EQ(whole(t, mine), SYMBOLS * DIM);
        CHECK(memcmp(mine, other, sizeof mine) == 0);
    }
    sherd_channel_destroy(c);
}

/* Both copies are the whole model's table, but for rounding. */
static void compare_whole(job *j, bool gradients)
{
    sherd_tensor *one = sherd_module_parameter(
        sherd_module_find(sherd_module_child(j->plain, 0), "table"), "weight");
    double wanted[SYMBOLS * DIM];

    whole(gradients ? sherd_grad(one) : one, wanted);
    for (int side = 0; side < 2; side++)
        if (is_here(j, side ? j->s->stages - 1 : 0)) {
            sherd_tensor *t = copy_of(j, side);
            CHECK(distance_to(gradients ? sherd_grad(t) : t, wanted, SYMBOLS * DIM) < 1e-9);
        }
}

static void train(job *j)
{
    const sherd_microbatches work = {
        .count = BATCHES, .feed = feed, .loss = find_loss, .payload = j};
    const sherd_optimizers all = {j->all, j->optimizer, j->optimizers};
    double wanted = run_whole(j), loss = sherd_pipeline_run(j->pipeline, &work);

    CHECK_NEAR(loss, wanted, 1e-9);
    compare_copies(j, true);
    compare_whole(j, true);
    if (j->step == 1) { /* a second run adds to the first */
        run_whole(j);
        sherd_pipeline_run(j->pipeline, &work);
        compare_copies(j, true);
        compare_whole(j, true);
    }
    double norm = sherd_optimizers_clip(&all, 0.1);
    CHECK_NEAR(norm, sherd_optimizer_clip(j->whole, 0.1), 1e-9);
    CHECK(norm > 0.1);
    for (int i = 0; i < j->optimizers; i++) {
        sherd_optimizer_step(j->optimizer[i], 0.05, 1);
        sherd_optimizer_clear(j->optimizer[i]);
    }
    sherd_optimizer_step(j->whole, 0.05, 1);
    sherd_optimizer_clear(j->whole);
    compare_copies(j, false);
    compare_whole(j, false);
    CHECK_OK(sherd_world_check(j->world));
}

static void run_cases(sherd_world *world, const setup *list, int cases)
{
    for (int c = 0; c < cases; c++)
        for (int adamw = 0; adamw < 2; adamw++) {
            job j;
            sherd_scope_begin(world);
            open_job(&j, world, &list[c], adamw);
            compare_copies(&j, false);
            compare_whole(&j, false);
            for (; j.step < STEPS; j.step++)
                train(&j);
            sherd_scope_end(world);
            close_job(&j);
            CHECK_OK(sherd_world_check(world));
        }
}

static void at_one_place_it_trains_as_one_table(sherd_world *world)
{
    static const setup one[] = {{{"x=1"}, 1, SHERD_PIPELINE_1F1B, '-', '-'},
                                {{"x=1"}, 3, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'}};
    static const setup two[] = {{{"x=2"}, 2, SHERD_PIPELINE_1F1B, 'C', 'R'},
                                {{"x=2"}, 1, SHERD_PIPELINE_1F1B, 'R', 'C'},
                                {{"x=1", "x=1@1"}, 3, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'}};

    run_cases(world, one, LEN(one));
    if (sherd_world_ranks(world) == 2)
        run_cases(world, two, LEN(two));
}

static void at_two_places_it_trains_as_one_table(sherd_world *world)
{
    static const setup list[] = {{{"x=1", "x=1@1"}, 2, SHERD_PIPELINE_1F1B, '-', '-'},
                                 {{"x=1@1", "x=1@0"}, 4, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'},
                                 {{"x=1", "x=1@1"}, 4, SHERD_PIPELINE_ZERO_BUBBLE_V, '-', '-'}};
    run_cases(world, list, LEN(list));
}

static void layouts_and_meshes_may_differ(sherd_world *world)
{
    static const setup three[] = {
        {{"x=1", "x=2@2,1"}, 2, SHERD_PIPELINE_1F1B, '-', 'C'},
        {{"x=2", "x=1@2"}, 2, SHERD_PIPELINE_GPIPE, 'F', '-'},
        {{"x=1@2", "x=1@1"}, 2, SHERD_PIPELINE_1F1B, '-', '-'},
        {{"x=1", "x=1@1", "x=1@2"}, 3, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'}};
    static const setup four[] = {{{"x=2", "x=2@2,3"}, 2, SHERD_PIPELINE_1F1B, 'R', 'C'},
                                 {{"x=2", "x=2@3,2"}, 4, SHERD_PIPELINE_ZERO_BUBBLE, 'C', 'R'},
                                 {{"x=2@3,1", "x=2@0,2"}, 2, SHERD_PIPELINE_ZERO_BUBBLE, 'F', 'F'}};
    bool fours = sherd_world_ranks(world) == 4;

    run_cases(world, fours ? four : three, fours ? LEN(four) : LEN(three));
}

/* A copy that is frozen alone is an error on all ranks; both may be. */
static void both_want_gradients_or_none(sherd_world *world)
{
    static const setup s = {{"x=1", "x=1@1"}, 2, SHERD_PIPELINE_1F1B, '-', '-'};
    job j;

    open_job(&j, world, &s, false);
    sherd_microbatches work = {.count = BATCHES, .feed = feed, .loss = find_loss, .payload = &j};
    double good = sherd_pipeline_run(j.pipeline, &work);
    CHECK_OK(sherd_world_check(world));
    sherd_require_grad(copy_of(&j, 1), false);
    CHECK(isnan(sherd_pipeline_run(j.pipeline, &work)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "one wants a gradient") != NULL);
    sherd_require_grad(copy_of(&j, 0), false);
    for (int side = 0; side < 2; side++)
        sherd_clear_grad(copy_of(&j, side));
    CHECK_EQ(sherd_pipeline_run(j.pipeline, &work), good);
    for (int side = 0; side < 2; side++)
        CHECK(!is_here(&j, side) || sherd_grad(copy_of(&j, side)) == NULL);
    CHECK_OK(sherd_world_check(world));
    close_job(&j);
}

/* One tensor that two stages at one place have gets its gradient once, and counts. */
static void one_tensor_needs_no_tie(sherd_world *world)
{
    static const setup s = {{"x=1"}, 3, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'};
    const int64_t ranks = sherd_world_ranks(world);
    job j = {.world = world, .s = &s};

    CHECK_OK(sherd_mesh_create(&j.all, world, 1, &ranks, (const char *[]){"all"}, NULL));
    CHECK_OK(sherd_mesh_parse(&j.mesh[0], world, "x=1"));
    j.plain = make_whole(world, 3);
    sherd_module *whole_model = make_whole(world, 3);
    CHECK_OK(sherd_parallelize(whole_model, j.mesh[0], "x", NULL, 0));
    for (int i = 0; i < 3; i++)
        j.stage[i] = (sherd_stage){j.mesh[0], sherd_module_child(whole_model, i), NULL};
    CHECK_OK(sherd_pipeline_create(&j.pipeline, world, j.stage, 3, s.schedule));
    CHECK_OK(sherd_pipeline_tie(j.pipeline, 0, "table.weight", 2, "head.weight"));
    CHECK_OK(sherd_pipeline_tie(j.pipeline, 0, "table.weight", 2, "head.weight"));
    sherd_microbatches work = {.count = BATCHES, .feed = feed, .loss = find_loss, .payload = &j};
    CHECK_NEAR(sherd_pipeline_run(j.pipeline, &work), run_whole(&j), 1e-9);
    compare_whole(&j, true);
    CHECK_OK(sherd_world_check(world));
    sherd_pipeline_destroy(j.pipeline);
    sherd_module_destroy(whole_model);
    sherd_module_destroy(j.plain);
}

/* Modules deep in a tree have paths of any length. */
static void a_path_may_be_long(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=1");
    char name[400] = "", path[LEN(name) + 16];
    sherd_stage stage[2];
    sherd_pipeline *p = NULL;

    memset(name, 'a', sizeof name - 1);
    snprintf(path, sizeof path, "%s.weight", name);
    for (int i = 0; i < 2; i++) {
        stage[i] = (sherd_stage){mesh, container(world, NULL, NULL), NULL};
        linear_layer(stage[i].module, name, SHERD_F64, DIM, DIM, i + 1);
        CHECK_OK(sherd_parallelize(stage[i].module, mesh, "x", NULL, 0));
    }
    CHECK_OK(sherd_pipeline_create(&p, world, stage, 2, SHERD_PIPELINE_1F1B));
    CHECK_OK(sherd_pipeline_tie(p, 0, path, 1, path));
    path[0] = 'b';
    CHECK_EQ(sherd_pipeline_tie(p, 0, path, 1, path), SHERD_EINVAL);
    sherd_pipeline_destroy(p);
    for (int i = 0; i < 2; i++)
        sherd_module_destroy(stage[i].module);
}

/* The first stage's rank alone: what the other copy says is taken to be what this one says. */
static void a_tie_can_be_dry(sherd_world *world)
{
    static const setup s = {{"x=1", "x=1@1"}, 2, SHERD_PIPELINE_ZERO_BUBBLE, '-', '-'};

    for (int rank = 0; rank < 3 && sherd_world_rank(world) == 0; rank++) {
        sherd_world *dry = NULL;
        job j;
        CHECK_OK(sherd_world_dry(&dry, 3, rank, NULL, NULL));
        open_job(&j, dry, &s, false);
        sherd_microbatches work = {
            .count = BATCHES, .feed = feed, .loss = find_loss, .payload = &j};
        if (rank == 0) /* the last stage's needs to hear from this one */
            sherd_pipeline_run(j.pipeline, &work);
        CHECK_OK(sherd_world_check(dry));
        CHECK(rank > 0 || sherd_grad(copy_of(&j, 0)) != NULL);
        close_job(&j);
        sherd_world_close(dry);
    }
}

static const check_test tests[] = {{TEST(at_one_place_it_trains_as_one_table), {1, 2}},
                                   {TEST(at_two_places_it_trains_as_one_table), {2, 3}},
                                   {TEST(layouts_and_meshes_may_differ), {3, 4}},
                                   {TEST(both_want_gradients_or_none), {2, 3}},
                                   {TEST(one_tensor_needs_no_tie), {1, 2}},
                                   {TEST(a_path_may_be_long), {1, 2}},
                                   {TEST(a_tie_can_be_dry), {1}}};
CHECK_MAIN(tests)
