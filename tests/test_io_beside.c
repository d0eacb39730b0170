/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program keeps in the file of its module: tensors, which are read on any mesh into any
 * layout, and notes.
 */
#include "models.h"
#include "scratch.h"
#include "sherd/files.h"

enum { ROWS = 7, COLS = 3, COUNT = ROWS * COLS };

static const char *const ways[] = {NULL, "R", "S(0)", "S(1)"};

/* A module of one parameter, and two tensors of the program beside it. */
typedef struct job {
    sherd_module *m;
    sherd_optimizer *o;
    sherd_named_tensor tensors[2];
} job;

static sherd_tensor *laid(sherd_world *world, sherd_tensor *t, int way)
{
    return ways[way] ? spread(t, line_of_ranks(world), ways[way]) : t;
}

static job make(sherd_world *world, int way, int k)
{
    job j = {NULL, NULL, {{"program.average", NULL}, {"program.step", NULL}}};
    int64_t step = k;
    sherd_tensor *w = wave(world, SHERD_F32, 2, SHAPE(ROWS, COLS), k, 1, 0);
    sherd_tensor *average = wave(world, SHERD_F64, 2, SHAPE(ROWS, COLS), k + 1, 1, 0);

    CHECK_OK(sherd_module_create(&j.m, world, NULL, NULL));
    CHECK_OK(sherd_module_add_parameter(j.m, "w", laid(world, w, way)));
    CHECK_OK(sherd_adamw_create(&j.o, j.m, NULL));
    j.tensors[0].tensor = laid(world, average, way);
    j.tensors[1].tensor = sherd_mark_equal(sherd_from_data(world, SHERD_I64, NULL, 0, &step));
    return j;
}

static void give_up(job *j)
{
    sherd_optimizer_destroy(j->o);
    sherd_module_destroy(j->m);
}

static void check_is(const job *j, int k)
{
    sherd_world *world = sherd_module_world(j->m);
    double values[MOST];

    whole(wave(world, SHERD_F32, 2, SHAPE(ROWS, COLS), k, 1, 0), values);
    CHECK_EQ(distance_to(sherd_module_parameter(j->m, "w"), values, COUNT), 0);
    whole(wave(world, SHERD_F64, 2, SHAPE(ROWS, COLS), k + 1, 1, 0), values);
    CHECK_EQ(distance_to(j->tensors[0].tensor, values, COUNT), 0);
    const int64_t *step = sherd_tensor_read(j->tensors[1].tensor);
    CHECK(step && *step == k);
}

static void they_are_read_on_any_mesh(sherd_world *world)
{
    static const sherd_file_note notes[] = {{"data", "shard 3, line 17"}, {"made by", "test"}};
    char room[256];
    const char *path = scratch(room, "beside");

    for (int from = 0; from < LEN(ways); from++)
        for (int to = 0; to < LEN(ways); to++) {
            job a = make(world, from, 3), b = make(world, to, 8);
            const sherd_write_options with = {
                .tensors = a.tensors, .tensor_count = 2, .notes = notes, .note_count = 2};
            const sherd_read_options into = {.tensors = b.tensors, .tensor_count = 2};
            sherd_file *file = NULL;
            CHECK_OK(sherd_module_write_with(a.m, a.o, path, &with));
            CHECK_OK(sherd_module_read(b.m, b.o, path, &into));
            check_is(&b, 3);
            CHECK_OK(sherd_file_open(&file, world, path));
            CHECK_EQ(sherd_file_entries(file), 1 + 3 + 2);
            CHECK_TEXT(sherd_file_text(file, "data"), "shard 3, line 17");
            CHECK_TEXT(sherd_file_text(file, "made by"), "test");
            CHECK_TEXT(sherd_file_text(file, "generators"), "0");
            sherd_file_destroy(file);
            give_up(&a);
            give_up(&b);
        }
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

/* Of several files too; what is not asked for is refused, or ignored. */
static void names_must_fit(sherd_world *world)
{
    char room[256], other_room[256];
    const char *const paths[] = {scratch(room, "one"), scratch(other_room, "two")};
    job a = make(world, 2, 3), b = make(world, 3, 8);
    sherd_named_tensor taken = {"w", a.tensors[0].tensor},
                       narrow = {"program.average", sherd_constant(world, SHERD_F64, NULL, 0, 1)};
    const sherd_write_options with = {.tensors = a.tensors, .tensor_count = 2},
                              twice = {.tensors = &taken, .tensor_count = 1};
    const sherd_read_options both = {.tensors = b.tensors, .tensor_count = 2},
                             one = {.tensors = b.tensors, .tensor_count = 1},
                             more = {.tensors = b.tensors, .tensor_count = 1, .more = true},
                             partial = {.tensors = b.tensors, .tensor_count = 2, .partial = true},
                             wrong = {.tensors = &narrow, .tensor_count = 1, .more = true};

    CHECK_EQ(sherd_module_write_with(a.m, NULL, paths[0], &twice), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"w\" is there twice") != NULL);
    CHECK_OK(sherd_module_write(a.m, NULL, paths[0]));
    CHECK_EQ(sherd_module_read(b.m, NULL, paths[0], &both), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "\"program.average\", ") != NULL);
    CHECK_OK(sherd_module_read(b.m, NULL, paths[0], &partial));
    CHECK_OK(sherd_file_write(world, paths[1], a.tensors, 2, NULL, 0));
    CHECK_OK(sherd_module_read_files(b.m, paths, 2, &both));
    check_is(&b, 3);
    CHECK_OK(sherd_module_write_with(a.m, NULL, paths[0], &with));
    CHECK_EQ(sherd_module_read(b.m, NULL, paths[0], NULL), SHERD_EINVAL);
    CHECK_EQ(sherd_module_read(b.m, NULL, paths[0], &one), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the module has no \"program.step\"") != NULL);
    CHECK_EQ(sherd_module_read(b.m, NULL, paths[0], &wrong), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "the file has another shape") != NULL);
    CHECK_OK(sherd_module_read(b.m, NULL, paths[0], &more));
    CHECK_OK(sherd_module_write_with(a.m, NULL, paths[0], NULL));
    CHECK_OK(sherd_module_read(b.m, NULL, paths[0], NULL));
    give_up(&a);
    give_up(&b);
    CHECK_OK(sherd_world_check(world));
    for (int i = 0; i < 2; i++)
        remove_file(world, paths[i]);
}

/* Ranks that keep other things beside the same module. */
static void ranks_that_pass_others_differ(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "differ");
    bool first = sherd_world_rank(world) == 0;
    job j = make(world, 2, 3);
    const sherd_file_note note = {"key", first ? "a" : "b"};
    const sherd_write_options good = {.tensors = j.tensors, .tensor_count = 2},
                              noted = {.notes = &note, .note_count = 1},
                              fewer = {.tensors = j.tensors, .tensor_count = first ? 2 : 1};
    const sherd_read_options one = {.tensors = j.tensors + first, .tensor_count = 1, .more = true};

    CHECK_EQ(sherd_module_write_with(j.m, NULL, path, &noted), SHERD_EDIFFER);
    CHECK_EQ(sherd_module_write_with(j.m, NULL, path, &fewer), SHERD_EDIFFER);
    CHECK_OK(sherd_module_write_with(j.m, NULL, path, &good));
    CHECK_EQ(sherd_module_read(j.m, NULL, path, &one), SHERD_EDIFFER);
    give_up(&j);
    CHECK_OK(sherd_world_check(world));
    remove_file(world, path);
}

static void try_without_memory(sherd_world *world, int way)
{
    static const sherd_file_note note = {"key", "text"};
    job j = make(world, way, 3);
    char room[256];
    const char *path = scratch(room, "memory");
    const sherd_write_options with = {
        .tensors = j.tensors, .tensor_count = 2, .notes = &note, .note_count = 1};
    const sherd_read_options into = {.tensors = j.tensors, .tensor_count = 2};

    for (int reading = 0; reading < 2; reading++) {
        sherd_status status = SHERD_ENOMEM;
        int failed = 0;
        for (int n = 1; status && n < 2000; n++, failed += status != SHERD_OK) {
            sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
            status = reading ? sherd_module_read(j.m, j.o, path, &into)
                             : sherd_module_write_with(j.m, j.o, path, &with);
            sherd_world_fail_allocation(world, 0);
            if (!CHECK(status == SHERD_OK || status == SHERD_ENOMEM))
                fprintf(stderr, "  %d: %s\n", n, sherd_world_error(world));
            (void)sherd_world_check(world);
        }
        CHECK_OK(status);
        CHECK(failed > 3);
    }
    check_is(&j, 3);
    give_up(&j);
    remove_file(world, path);
}

static void no_memory_fails_on_all(sherd_world *world)
{
    try_without_memory(world, 0);
    try_without_memory(world, 2);
}

static const check_test tests[] = {
    {TEST(they_are_read_on_any_mesh), {1, 2, 3, 4, 8}},
    {TEST(names_must_fit), {1, 2, 3}},
    {TEST(ranks_that_pass_others_differ), {2, 3}},
    {TEST(no_memory_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
