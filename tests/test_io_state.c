/* SPDX-License-Identifier: Apache-2.0 */
/* A module and its optimizer, to a file and from it: training goes on on any mesh as if nothing had
 * been. */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

/* How the ranks share a model. */
typedef enum sharing { PLAIN, STYLES, SHARDED, WAYS } sharing;

static sherd_module *model(sherd_world *world, sharing how, sherd_dtype dtype)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    sherd_module *m = mlp(world, dtype, 6, 8, 5);

    CHECK_OK(sherd_module_add_buffer(m, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 4)));
    if (how == STYLES)
        CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, LEN(plan)));
    if (how == SHARDED)
        CHECK_OK(sherd_fully_shard(m, mesh, "tp", NULL));
    return m;
}

/* One step on inputs that are the same on all ranks. */
static void step(sherd_module *m, sherd_optimizer *o, int k)
{
    sherd_world *world = sherd_module_world(m);
    sherd_dtype dtype =
        sherd_tensor_dtype(sherd_module_parameter(sherd_module_find(m, "net1"), "bias"));

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_module_call(m, wave(world, dtype, 2, SHAPE(4, 6), k, 1, 0));
    sherd_backward(squared_error(y, wave(world, dtype, 2, SHAPE(4, 5), k + 7, 1, 0)));
    sherd_optimizer_step(o, 0.05, 1);
    sherd_optimizer_clear(o);
    sherd_scope_end(world);
}

static int64_t weights(sherd_module *m, double out[2][MOST])
{
    int64_t count = 0;

    for (int i = 0; i < 2; i++)
        count += whole(sherd_module_parameter(sherd_module_find(m, i ? "net2" : "net1"), "weight"),
                       out[i]);
    return count;
}

/* Two steps, a file, another model made of it with other sharing, a third step by both. */
static void go_on(sherd_world *world, sharing from, sharing to)
{
    sherd_module *m = model(world, from, SHERD_F64), *other = model(world, to, SHERD_F64);
    sherd_optimizer *o = NULL, *after = NULL;
    double a[2][MOST], b[2][MOST];
    char room[256];
    const char *path = scratch(room, "state");

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_adamw_create(&after, other, NULL));
    step(m, o, 1);
    step(m, o, 2);
    CHECK_OK(sherd_module_write(m, o, path));
    CHECK_OK(sherd_module_set_buffer(other, "seen", sherd_constant(world, SHERD_I64, NULL, 0, 9)));
    CHECK_OK(sherd_module_read(other, after, path, NULL));
    const int64_t *seen = sherd_tensor_read(sherd_full(sherd_module_buffer(other, "seen")));
    CHECK(seen && *seen == 4);
    step(m, o, 3);
    step(other, after, 3);
    CHECK_EQ(weights(m, a), 88);
    CHECK_EQ(weights(other, b), 88);
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < (i ? 40 : 48); j++)
            CHECK_NEAR(a[i][j], b[i][j], 1e-12);
    sherd_optimizer_destroy(o);
    sherd_optimizer_destroy(after);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, path);
}

static void training_goes_on_on_any_mesh(sherd_world *world)
{
    for (int from = 0; from < WAYS; from++)
        for (int to = 0; to < WAYS; to++)
            go_on(world, (sharing)from, (sharing)to);
}

/* Ranks 1 and 2 share the model, rank 0 has one of its own; all have the trained one afterwards. */
static void ranks_outside_of_the_mesh_read_it_too(sherd_world *world)
{
    const sherd_parallel_entry plan[] = {{"net1", sherd_colwise()}, {"net2", sherd_rowwise()}};
    const int ranks[] = {1, 2};
    const sherd_mesh *mesh = NULL;
    sherd_module *m = mlp(world, SHERD_F64, 6, 8, 5), *other = mlp(world, SHERD_F64, 6, 8, 5);
    double wanted[2][MOST], found[2][MOST];
    char room[256];
    const char *path = scratch(room, "outside");

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, SHAPE(2), (const char *const[]){"tp"}, ranks));
    CHECK_OK(sherd_parallelize(m, mesh, "tp", plan, LEN(plan)));
    sherd_tensor *w = sherd_module_parameter(sherd_module_find(m, "net1"), "weight");
    if (sherd_world_rank(world) > 0) { /* what rank 0 has is old */
        sherd_set_recording(world, false);
        double *x = sherd_tensor_write(w);
        for (int64_t i = 0; i < 6 * sherd_tensor_size(w, 0); i++)
            x[i] = (double)(6 * sherd_tensor_offset(w, 0) + i);
        sherd_set_recording(world, true);
    }
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK_OK(sherd_module_read(other, NULL, path, NULL));
    CHECK_OK(sherd_module_read(m, NULL, path, NULL));
    CHECK_EQ(weights(other, found), 88);
    for (int i = 0; i < 48; i++)
        CHECK_EQ(found[0][i], i);
    if (sherd_world_rank(world) > 0) {
        CHECK_EQ(weights(m, wanted), 88);
        CHECK(memcmp(wanted[0], found[0], 48 * sizeof(double)) == 0);
    }
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, path);
}

static void names_shapes_and_dtypes_must_fit(sherd_world *world)
{
    sherd_module *m = model(world, STYLES, SHERD_F32), *wide = model(world, STYLES, SHERD_F64);
    sherd_module *part = container(world, NULL, NULL), *large = mlp(world, SHERD_F32, 6, 9, 5);
    sherd_module *counted = container(world, NULL, NULL);
    const sherd_read_options cast = {.cast = true}, partial = {.partial = true};
    sherd_optimizer *o = NULL, *without = NULL;
    double a[2][MOST], b[2][MOST];
    char room[256];
    const char *path = scratch(room, "fits");

    linear_layer(part, "net1", SHERD_F32, 6, 8, 9);
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK_EQ(sherd_module_read(m, o, path, NULL), SHERD_EINVAL); /* no optimizer in it */
    CHECK(strstr(sherd_world_error(world), "\"optimizer.net1.weight.") != NULL);
    CHECK_EQ(sherd_module_read(wide, NULL, path, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "the file has another dtype, f32 (options.cast casts it)") != NULL);
    CHECK_OK(sherd_module_read(wide, NULL, path, &cast));
    CHECK_EQ(weights(wide, a), weights(m, b));
    for (int j = 0; j < 48; j++)
        CHECK_EQ(a[0][j], b[0][j]);
    CHECK_EQ(sherd_module_read(large, NULL, path, &partial), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "\"net1.weight\", f32[9,6]: the file has another shape, f32[8,6]"));
    CHECK_EQ(sherd_module_read(part, NULL, path, NULL), SHERD_EINVAL);
    CHECK(strstr(
        sherd_world_error(world),
        "the module has no \"seen\", \"net2.weight\", \"net2.bias\" (options.more ignores that)"));
    CHECK_OK(sherd_module_read(part, NULL, path, &partial));
    /* of what has no fractions no option is of help */
    CHECK_OK(
        sherd_module_add_buffer(counted, "seen", sherd_constant(world, SHERD_F64, NULL, 0, 4)));
    CHECK_EQ(sherd_module_read(counted, NULL, path, &(sherd_read_options){.more = true}),
             SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the file has another dtype, i64") != NULL);
    CHECK(!strstr(sherd_world_error(world), "options.cast"));
    CHECK_OK(sherd_module_write(m, o, path));
    CHECK_OK(sherd_module_read(m, NULL, path, NULL)); /* what is of an optimizer is left out */
    CHECK_OK(sherd_sgd_create(&without, m, NULL));
    CHECK_EQ(sherd_module_read(m, without, path, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the module has no \"optimizer.net1.weight.") != NULL);
    sherd_optimizer_destroy(without);
    CHECK_OK(sherd_module_write(part, NULL, path));
    CHECK_EQ(sherd_module_read(m, NULL, path, NULL), SHERD_EINVAL);
    CHECK(
        strstr(sherd_world_error(world), "the file has none, nor \"net2.weight\", \"net2.bias\""));
    CHECK_OK(sherd_module_read(m, NULL, path, &partial));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    sherd_module_destroy(wide);
    sherd_module_destroy(part);
    sherd_module_destroy(counted);
    sherd_module_destroy(large);
    remove_file(world, path);
}

/* A model in two files; one of them lacks something, has more, has it in another dtype. */
static void several_files_are_one_state(sherd_world *world)
{
    sherd_module *m = model(world, STYLES, SHERD_F32), *other = model(world, SHARDED, SHERD_F32);
    sherd_module *net1 = sherd_module_find(m, "net1"), *net2 = sherd_module_find(m, "net2");
    const sherd_read_options more = {.more = true}, partial = {.partial = true};
    char rooms[2][256];
    const char *paths[] = {scratch(rooms[0], "part1"), scratch(rooms[1], "part2")};
    double a[2][MOST], b[2][MOST];
    sherd_named_tensor first[] = {{"net1.weight", sherd_module_parameter(net1, "weight")},
                                  {"net1.bias", sherd_module_parameter(net1, "bias")},
                                  {"seen", sherd_constant(world, SHERD_I64, NULL, 0, 8)}};
    sherd_named_tensor second[] = {{"net2.weight", sherd_module_parameter(net2, "weight")},
                                   {"net2.bias", sherd_module_parameter(net2, "bias")},
                                   {"old", sherd_constant(world, SHERD_I64, NULL, 0, 8)}};

    fill_layer(net1, SHERD_F32, 5, 0);
    weights(m, b);
    first[0].tensor = sherd_module_parameter(net1, "weight");
    first[1].tensor = sherd_module_parameter(net1, "bias");
    CHECK_OK(sherd_file_write(world, paths[0], first, LEN(first), NULL, 0));
    CHECK_OK(sherd_file_write(world, paths[1], second, LEN(second) - 1, NULL, 0));
    CHECK_OK(sherd_module_read_files(other, paths, 2, NULL));
    CHECK_EQ(weights(other, a), weights(m, b));
    for (int i = 0; i < 2; i++)
        CHECK(memcmp(a[i], b[i], (size_t)(i ? 40 : 48) * sizeof **a) == 0);
    CHECK_EQ(sherd_module_read_files(other, paths, 1, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"net2.weight\"") != NULL);
    CHECK_OK(sherd_module_read_files(other, paths, 1, &partial));
    CHECK_EQ(sherd_module_read(other, NULL, paths[1], &more), SHERD_EINVAL);
    CHECK_OK(sherd_file_write(world, paths[1], second, LEN(second), NULL, 0));
    CHECK_EQ(sherd_module_read_files(other, paths, 2, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world),
                 "the module has no \"old\" (options.more ignores that)") != NULL);
    CHECK_OK(sherd_module_read_files(other, paths, 2, &more));
    CHECK_OK(sherd_file_write(world, paths[1], second + 1, 1, NULL, 0));
    CHECK_EQ(sherd_module_read_files(other, paths, 2, &more), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"net2.weight\"") != NULL &&
          strstr(sherd_world_error(world), "none of the files has it") != NULL);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, paths[0]);
    remove_file(world, paths[1]);
}

/* As parts that each have what is tied, or a file with changes before the whole. */
static void what_several_files_have_is_read_from_the_first(sherd_world *world)
{
    const sherd_read_options partial = {.partial = true};
    sherd_module *m = model(world, STYLES, SHERD_F64), *other = model(world, SHARDED, SHERD_F64);
    char rooms[2][256];
    const char *paths[] = {scratch(rooms[0], "changed"), scratch(rooms[1], "whole")};
    double a[2][MOST], b[2][MOST];

    CHECK_OK(sherd_module_write(m, NULL, paths[1]));
    fill_layer(sherd_module_find(m, "net1"), SHERD_F64, 5, 0);
    sherd_named_tensor changed = {"net1.weight",
                                  sherd_module_parameter(sherd_module_find(m, "net1"), "weight")};
    CHECK_OK(sherd_file_write(world, paths[0], &changed, 1, NULL, 0));
    weights(m, b);
    CHECK_OK(sherd_module_read_files(other, paths, 2, NULL));
    weights(other, a);
    for (int i = 0; i < 2; i++)
        CHECK(memcmp(a[i], b[i], (size_t)(i ? 40 : 48) * sizeof **a) == 0);
    CHECK_OK(sherd_module_read_files(other, (const char *[]){paths[1], paths[0]}, 2, NULL));
    CHECK_OK(sherd_module_read(m, NULL, paths[1], &partial));
    weights(other, a);
    weights(m, b);
    CHECK(memcmp(a[0], b[0], 48 * sizeof **a) == 0);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, paths[0]);
    remove_file(world, paths[1]);
}

static void put_text(sherd_world *world, const char *path, const char *text)
{
    put_file(world, path, text, strlen(text));
}

/* As Hugging Face's libraries write it beside a model in several files. */
static void an_index_stands_for_its_files(sherd_world *world)
{
    static const char *const wrong[][2] = {
        {"{\"weight_map\":", "it is no JSON"},
        {"[1,2]", "has no \"weight_map\" with entries"},
        {"{\"weight_map\":{}}", "has no \"weight_map\" with entries"},
        {"{\"weight_map\":{\"net1.bias\":7}}", "\"net1.bias\" has no name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"../b\"}}", "\"a\" has no name of a file beside it"},
        {"{\"weight_map\":{\"a\":\"nowhere.safetensors\"}}", "nowhere.safetensors\": No such"},
        {"{\"weight_map\":{\"a\":\"a\",\"a\":\"a\"}}", "duplicate"},
    };
    sherd_module *m = model(world, STYLES, SHERD_F32), *other = NULL;
    char rooms[3][256], text[1024];
    const char *paths[] = {scratch(rooms[0], "index1"), scratch(rooms[1], "index2")};
    const char *index = scratch(rooms[2], "model.index.json");
    const char *name[] = {strrchr(paths[0], '/') + 1, strrchr(paths[1], '/') + 1};
    double a[2][MOST], b[2][MOST];

    fill_layer(sherd_module_find(m, "net1"), SHERD_F32, 5, 0);
    for (int i = 0; i < 2; i++) {
        sherd_module *net = sherd_module_find(m, i ? "net2" : "net1");
        const sherd_named_tensor own[] = {
            {i ? "net2.weight" : "net1.weight", sherd_module_parameter(net, "weight")},
            {i ? "net2.bias" : "net1.bias", sherd_module_parameter(net, "bias")},
            {"seen", sherd_constant(world, SHERD_I64, NULL, 0, 8)}};
        CHECK_OK(sherd_file_write(world, paths[i], own, i ? 2 : 3, NULL, 0));
    }
    snprintf(text, sizeof text,
             "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"net1.bias\":\"%s\","
             "\"net2.bias\":\"%s\",\"net1.weight\":\"%s\",\"net2.weight\":\"%s\"}}",
             name[0], name[1], name[0], name[1]);
    put_text(world, index, text);
    for (int way = 0; way < 2; way++) {
        sherd_module_destroy(other);
        other = model(world, SHARDED, SHERD_F32);
        CHECK_OK(way ? sherd_module_read_files(other, &index, 1, NULL)
                     : sherd_module_read(other, NULL, index, NULL));
        CHECK_EQ(weights(other, a), weights(m, b));
        for (int i = 0; i < 2; i++)
            CHECK(memcmp(a[i], b[i], (size_t)(i ? 40 : 48) * sizeof **a) == 0);
    }
    for (int i = 0; i < LEN(wrong); i++) {
        put_text(world, index, wrong[i][0]);
        CHECK_EQ(sherd_module_read_files(other, &index, 1, NULL), SHERD_EINVAL);
        if (!CHECK(strstr(sherd_world_error(world), wrong[i][1]) != NULL))
            fprintf(stderr, "  %s: %s\n", wrong[i][0], sherd_world_error(world));
    }
    remove_file(world, index);
    CHECK_EQ(sherd_module_read(other, NULL, index, NULL), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "index.json\": No such file") != NULL);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, paths[0]);
    remove_file(world, paths[1]);
}

/* Only some ranks have taken a step: its parameters and moments are no longer one thing, until they
 * are read again. */
static void what_was_lost_is_read_again(sherd_world *world)
{
    sherd_module *m = model(world, STYLES, SHERD_F64);
    sherd_tensor *weight = sherd_module_parameter(sherd_module_find(m, "net1"), "weight");
    double before[2][MOST], after[2][MOST];
    sherd_optimizer *o = NULL;
    char room[256];
    const char *path = scratch(room, "lost");

    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    step(m, o, 1);
    CHECK_OK(sherd_module_write(m, o, path));
    weights(m, before);
    sherd_backward(
        sherd_sum(sherd_module_call(m, wave(world, SHERD_F64, 2, SHAPE(4, 6), 2, 1, 0))));
    if (sherd_world_rank(world) > 0)
        sherd_optimizer_step(o, 0.05, 1);
    sherd_optimizer_clear(o);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    (void)sherd_item(sherd_sum(weight));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_module_read(m, o, path, NULL));
    weights(m, after);
    CHECK(memcmp(before[0], after[0], 48 * sizeof(double)) == 0);
    step(m, o, 2);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    remove_file(world, path);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    sherd_module *m = model(world, STYLES, SHERD_F32);
    char room[256];
    const char *path = scratch(room, "memory");

    for (int reading = 0; reading < 2; reading++) {
        sherd_status status = SHERD_ENOMEM;
        int failed = 0;
        for (int n = 1; status && n < 2000; n++, failed += status != SHERD_OK) {
            sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
            status = reading ? sherd_module_read(m, NULL, path, NULL)
                             : sherd_module_write(m, NULL, path);
            sherd_world_fail_allocation(world, 0);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            (void)sherd_world_check(world);
        }
        CHECK_OK(status);
        CHECK(failed > 3);
    }
    sherd_module_destroy(m);
    remove_file(world, path);
}

/*
 * With a walk over the tree for each name, and two for each of the optimizer's, this would outlast
 * the watchdog.
 */
static void many_parameters_are_read_one_by_one(sherd_world *world)
{
    enum { MODULES = 600, EACH = 10 };
    sherd_module *m = NULL, *part;
    sherd_optimizer *o = NULL;
    char room[256], name[32];
    const char *path = scratch(room, "many");

    CHECK_OK(sherd_module_create(&m, world, NULL, NULL));
    for (int i = 0; i < MODULES; i++) {
        sherd_scope_begin(world);
        CHECK_OK(sherd_module_create(&part, world, NULL, NULL));
        for (int k = 0; k < EACH; k++) {
            snprintf(name, sizeof name, "p%d", k);
            CHECK_OK(sherd_module_add_parameter(
                part, name, sherd_constant(world, SHERD_F32, SHAPE(2), 1, i * EACH + k)));
        }
        snprintf(name, sizeof name, "part%d", i);
        CHECK_OK(sherd_module_add(m, name, part));
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_adamw_create(&o, m, NULL));
    CHECK_OK(sherd_module_write(m, o, path));
    for (int i = 0; i < MODULES; i++) {
        float *data = sherd_tensor_write(sherd_module_parameter(sherd_module_child(m, i), "p7"));
        if (CHECK(data && data[1] == (float)(i * EACH + 7)))
            data[1] = -1;
    }
    CHECK_OK(sherd_module_read(m, o, path, NULL));
    for (int i = 0; i < MODULES; i++) {
        const float *data =
            sherd_tensor_read(sherd_module_parameter(sherd_module_child(m, i), "p7"));
        CHECK(data && data[1] == (float)(i * EACH + 7));
    }
    sherd_optimizer_destroy(o);
    sherd_module_destroy(m);
    remove_file(world, path);
}

static void drops(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *x = sherd_dropout(in->value[0], 0.5, sherd_module_generator(self));

    out->value[0] = sherd_module_call(sherd_module_child(self, 0), x);
    out->count = 1;
}

/* A module that drops, around a module that drops. */
static sherd_module *dropping(sherd_world *world)
{
    sherd_module *m = container(world, drops, NULL), *inner = NULL;

    CHECK_OK(sherd_dropout_create(&inner, world, 0.5));
    CHECK_OK(sherd_module_add_parameter(m, "w", sherd_constant(world, SHERD_F32, NULL, 0, 1)));
    add_layer(m, "drop", inner);
    return m;
}

/* Only ranks below `ranks` run it. */
static void draw(sherd_module *m, int ranks, double out[MOST])
{
    sherd_world *world = sherd_module_world(m);

    if (sherd_world_rank(world) < ranks)
        whole(sherd_module_call(m, sherd_constant(world, SHERD_F64, SHAPE(6, 7), 2, 1)), out);
}

/* Also after the file was read by who had drawn more, and on ranks that had not drawn. */
static void random_numbers_go_on(sherd_world *world)
{
    double first[MOST], wanted[MOST], have[MOST] = {0};
    sherd_module *m = dropping(world), *other = dropping(world);
    char room[256], start_room[256];
    const char *path = scratch(room, "drawn"), *start = scratch(start_room, "undrawn");
    sherd_generator *inner = sherd_module_generator(sherd_module_child(other, 0));
    sherd_file *file = NULL;

    CHECK_OK(sherd_module_write(m, NULL, start));
    draw(m, 1, first);
    draw(m, 1, first);
    CHECK_OK(sherd_module_write(m, NULL, path));
    CHECK_OK(sherd_file_open(&file, world, path));
    CHECK_TEXT(sherd_file_text(file, "generators"), "2");
    CHECK_TEXT(sherd_file_text(file, "generator."), "2");
    CHECK_TEXT(sherd_file_text(file, "generator.drop"), "2");
    CHECK_EQ(sherd_file_entries(file), 1);
    sherd_file_destroy(file);
    draw(m, 1, wanted);
    inner->calls = 9;
    CHECK_OK(sherd_module_read(other, NULL, path, NULL));
    CHECK_EQ(inner->calls, 2);
    draw(other, sherd_world_ranks(world), have);
    if (sherd_world_rank(world) == 0)
        CHECK(memcmp(have, wanted, 42 * sizeof *have) == 0 &&
              memcmp(have, first, 42 * sizeof *have) != 0);
    CHECK_OK(sherd_module_read(other, NULL, start, NULL));
    CHECK_EQ(inner->calls, 0);
    CHECK_EQ(sherd_module_generator(other)->calls, 0);
    sherd_module_destroy(m);
    sherd_module_destroy(other);
    remove_file(world, path);
    remove_file(world, start);
}

/* What no file names stays as it is; of several files each may name a module. */
static void parts_of_a_model_bring_their_generators(sherd_world *world)
{
    sherd_module *m = dropping(world), *drop = sherd_module_child(m, 0);
    char room[2][256];
    const char *path[] = {scratch(room[0], "drawn_a"), scratch(room[1], "drawn_b")};
    const sherd_read_options part = {.partial = true};

    sherd_module_generator(m)->calls = 4;
    CHECK_OK(sherd_module_write(m, NULL, path[0]));
    sherd_module_generator(m)->calls = 0;
    sherd_module_generator(drop)->calls = 7;
    CHECK_OK(sherd_module_write(m, NULL, path[1]));
    sherd_module_generator(m)->calls = 9;
    sherd_module_generator(drop)->calls = 2;
    CHECK_OK(sherd_module_read(m, NULL, path[1], &part));
    CHECK_EQ(sherd_module_generator(m)->calls, 9);
    CHECK_EQ(sherd_module_generator(drop)->calls, 7);
    CHECK_OK(sherd_module_read_files(m, path, 2, &part));
    CHECK_EQ(sherd_module_generator(m)->calls, 4);
    CHECK_EQ(sherd_module_generator(drop)->calls, 7);
    CHECK_OK(sherd_module_read(m, NULL, path[0], NULL));
    CHECK_EQ(sherd_module_generator(m)->calls, 4);
    CHECK_EQ(sherd_module_generator(drop)->calls, 0);
    sherd_module_destroy(m);
    remove_file(world, path[0]);
    remove_file(world, path[1]);
}

/* As PyTorch writes it. */
static void a_file_without_notes_leaves_generators_alone(sherd_world *world)
{
    sherd_module *m = dropping(world);
    const sherd_named_tensor w = {"w", sherd_module_parameter(m, "w")};
    char room[256];
    const char *path = scratch(room, "no_notes");

    sherd_module_generator(m)->calls = 3;
    CHECK_OK(sherd_file_write(world, path, &w, 1, NULL, 0));
    CHECK_OK(sherd_module_read(m, NULL, path, NULL));
    CHECK_EQ(sherd_module_generator(m)->calls, 3);
    sherd_module_destroy(m);
    remove_file(world, path);
}

static const check_test tests[] = {
    {TEST(training_goes_on_on_any_mesh), {1, 2, 3, 4}},
    {TEST(ranks_outside_of_the_mesh_read_it_too), {3}},
    {TEST(random_numbers_go_on), {1, 2, 3}},
    {TEST(parts_of_a_model_bring_their_generators), {1, 2}},
    {TEST(a_file_without_notes_leaves_generators_alone), {1, 2}},
    {TEST(names_shapes_and_dtypes_must_fit), {1, 2, 3}},
    {TEST(several_files_are_one_state), {1, 2, 3}},
    {TEST(what_several_files_have_is_read_from_the_first), {1, 2, 3}},
    {TEST(an_index_stands_for_its_files), {1, 2, 3}},
    {TEST(what_was_lost_is_read_again), {2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
    {TEST(many_parameters_are_read_one_by_one), {2}},
};
CHECK_MAIN(tests)
