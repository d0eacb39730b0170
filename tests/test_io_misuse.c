/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of files of tensors: see misuse.h. */
#include "misuse.h"
#include "scratch.h"
#include "sherd/files.h"
#include "sherd/layers.h"
#include "sherd/ops.h"

static sherd_module *linear(sherd_world *world)
{
    sherd_module *layer = NULL;

    CHECK_OK(sherd_linear_create(&layer, world, 4, 4, NULL));
    return layer;
}

/* A file is written and read. */
static void computes(sherd_world *world)
{
    char room[256];
    const char *path = scratch(room, "works");
    sherd_module *layer = linear(world);

    CHECK_OK(sherd_module_write(layer, NULL, path));
    CHECK_OK(sherd_module_read(layer, NULL, path, NULL));
    sherd_module_destroy(layer);
    remove_file(world, path);
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

MISUSE(a_file_needs_names_tensors_and_a_place)
{
    const int64_t shape[] = {4, 4};
    char room[256];
    const char *path = scratch(room, "misuse");
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_tensor *foreign = sherd_constant(second, SHERD_F32, shape, 2, 1);
    sherd_tensor *failed = sherd_add(t, NULL);
    CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
    const sherd_named_tensor good = {"t", t}, lacks[] = {{NULL, t}, {"t", NULL}};
    const sherd_named_tensor bad[] = {{"__metadata__", t}, {"t", foreign}, {"t", failed}};
    const sherd_file_note note = {"by", "us"}, empty = {NULL, "us"}, mute = {"by", NULL};

    ONLY_SAYS(SHERD_EINVAL, sherd_file_write(NULL, path, &good, 1, NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, NUL(path), &good, 1, NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, NUL(&good), 1, NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, &good, 1, NUL(&note), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, &good, 1, BAD(&empty, &note), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, &good, 1, BAD(&mute, &note), 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, &good, BAD(-1, 1), NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, &good, 1, &note, BAD(-1, 1)));
    for (int i = 0; i < 2; i++)
        ALL_REFUSE(SHERD_EINVAL,
                   sherd_file_write(m->world, path, BAD(&lacks[i], &good), 1, NULL, 0));
    for (int i = 0; i < 3; i++)
        ALL_REFUSE(SHERD_EINVAL, sherd_file_write(m->world, path, BAD(&bad[i], &good), 1, NULL, 0));
    CHECK(!is_there(path));
    CHECK_OK(sherd_world_close(second));
}

MISUSE(what_is_read_is_there_and_fits)
{
    const int64_t shape[] = {4, 4};
    char room[256], other_room[256], line[16];
    const char *path = scratch(room, "there"), *none = scratch(other_room, "none");
    const sherd_layout *rows = NULL, *pending = NULL, *other = NULL;
    const sherd_mesh *mesh = NULL;
    sherd_file *file = NULL;

    snprintf(line, sizeof line, "x=%d", sherd_world_ranks(m->world));
    CHECK_OK(sherd_mesh_parse(&mesh, m->world, line));
    CHECK_OK(sherd_layout_parse_placements(&rows, mesh, 2, shape, "S(0)", NULL));
    CHECK_OK(sherd_layout_parse_placements(&pending, mesh, 2, shape, "P", NULL));
    CHECK_OK(sherd_layout_parse_placements(&other, mesh, 1, shape, "S(0)", NULL));
    const sherd_named_tensor one = {"t", sherd_constant_on(rows, SHERD_F32, 2)};
    CHECK_OK(sherd_file_write(m->world, path, &one, 1, NULL, 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_file_open(&file, NULL, path));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_open(NUL(&file), m->world, path));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_open(&file, m->world, NUL(path)));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_open(&file, m->world, BAD(none, path)));
    CHECK(file == NULL);
    CHECK_OK(sherd_file_open(&file, m->world, path));
    FAILS(SHERD_EINVAL, sherd_file_read(file, NUL("t"), rows));
    FAILS(SHERD_EINVAL, sherd_file_read(file, BAD("u", "t"), rows));
    FAILS(SHERD_EINVAL, sherd_file_read(file, "t", BAD(other, rows)));
    FAILS(SHERD_EINVAL, sherd_file_read(file, "t", BAD(pending, rows)));
    ANSWERS(sherd_file_read(NULL, "t", NULL) == NULL);
    ANSWERS(sherd_file_entries(NULL) == 0 && sherd_file_entries(file) == 1);
    ANSWERS(!sherd_file_entry_at(file, -1) && !sherd_file_entry_at(file, 1) &&
            !sherd_file_entry_at(NULL, 0));
    ANSWERS(!sherd_file_find(NULL, "t") && !sherd_file_find(file, NULL));
    ANSWERS(!sherd_file_text(NULL, "by") && !sherd_file_text(file, NULL));
    sherd_file_destroy(file);
    sherd_file_destroy(NULL);
    remove_file(m->world, path);
}

MISUSE(what_is_begun_needs_a_place_and_an_end)
{
    const int64_t shape[] = {4, 4};
    char room[256], other_room[256];
    const char *path = scratch(room, "begun"), *other = scratch(other_room, "other");
    sherd_module *layer = linear(m->world);
    sherd_writing *writing = NULL, *second = NULL;
    bool ready = false;
    const sherd_named_tensor one = {"t", sherd_constant(m->world, SHERD_F32, shape, 2, 1)};
    const sherd_write_options good = {.tensors = &one, .tensor_count = 1};
    const sherd_write_options part = {.part = SHERD_FILE_TRAINED}, less = {.tensor_count = -1};

    ONLY_SAYS(SHERD_EINVAL, sherd_file_write_begin(&writing, NULL, path, &good));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write_begin(NUL(&writing), m->world, path, &good));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write_begin(&writing, m->world, NUL(path), &good));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write_begin(&writing, m->world, path, BAD(&part, &good)));
    ALL_REFUSE(SHERD_EINVAL, sherd_file_write_begin(&writing, m->world, path, BAD(&less, &good)));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_write_begin(&writing, NULL, NULL, path, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write_begin(NUL(&writing), layer, NULL, path, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write_begin(&writing, layer, NULL, NUL(path), NULL));
    CHECK(!writing && !is_there(path));
    ONLY_SAYS(SHERD_EINVAL, sherd_writing_end(NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_writing_ready(&ready, NULL));
    CHECK_OK(sherd_module_write_begin(&writing, layer, NULL, path, NULL));
    CHECK_OK(sherd_file_write_begin(&second, m->world, other, &good));
    ALL_REFUSE(SHERD_EINVAL, sherd_writing_ready(NUL(&ready), writing));
    ALL_REFUSE(m->alone ? SHERD_EDIFFER : SHERD_OK, sherd_writing_end(BAD(second, writing)));
    ALL_REFUSE(m->alone ? SHERD_EDIFFER : SHERD_OK, sherd_writing_end(BAD(writing, second)));
    CHECK(is_there(path) == !m->alone && is_there(other) == !m->alone);
    sherd_module_destroy(layer);
    if (m->alone)
        return;
    remove_file(m->world, path);
    remove_file(m->world, other);
}

MISUSE(a_state_needs_a_module_and_a_place)
{
    char room[256];
    const char *path = scratch(room, "state");
    sherd_module *layer = linear(m->world);
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, layer, NULL));
    CHECK_OK(sherd_module_write(layer, NULL, path));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write(NUL(layer), o, path));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read(NUL(layer), o, path, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_write(NULL, NULL, path));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_read(NULL, NULL, path, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write(layer, NULL, NUL(path)));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read(layer, NULL, NUL(path), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read(layer, NULL, BAD("/none", path), NULL));
    const char *two[] = {path, path}, *const *paths = two, *lost[] = {path, NUL(path)},
               *wrong[] = {path, BAD("/none", path)};
    ONLY_SAYS(SHERD_EINVAL, sherd_module_read_files(NULL, NULL, 2, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read_files(layer, NUL(paths), 2, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read_files(layer, lost, 2, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read_files(layer, wrong, 2, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read_files(layer, paths, BAD(0, 2), NULL));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
    remove_file(m->world, path);
}

MISUSE(what_is_beside_a_module_has_names_of_its_own)
{
    char room[256];
    const char *path = scratch(room, "beside");
    sherd_module *layer = linear(m->world);
    sherd_world *second = NULL;
    sherd_optimizer *o = NULL;

    CHECK_OK(sherd_sgd_create(&o, layer, NULL));
    CHECK_OK(sherd_world_alone(&second, NULL));
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, NULL, 0, 1),
                 *foreign = sherd_constant(second, SHERD_F32, NULL, 0, 1),
                 *failed = sherd_add(t, NULL);
    CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
    const sherd_named_tensor named = {"t", t},
                             bad[] = {{NULL, t},     {"t", NULL},   {"t", foreign},
                                      {"t", failed}, {"weight", t}, {"__metadata__", t}};
    const sherd_file_note note = {"key", "text"}, notes[] = {{NULL, "text"},
                                                             {"key", NULL},
                                                             {"generators", "1"},
                                                             {"generator.", "1"},
                                                             {"generator.a", "1"}};
    const sherd_write_options good = {
        .tensors = &named, .tensor_count = 1, .notes = &note, .note_count = 1};
    const sherd_read_options more = {.more = true};

    ONLY_SAYS(SHERD_EINVAL, sherd_module_write_with(NULL, NULL, path, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write_with(NUL(layer), o, path, &good));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_write_with(layer, NULL, NUL(path), &good));
    for (int i = 0; i < LEN(bad); i++) {
        const sherd_write_options with = {.tensors = &bad[i], .tensor_count = 1},
                                  none = {.tensors = &named, .tensor_count = 1};
        const sherd_read_options into = {.more = true, .tensors = &bad[i], .tensor_count = 1};
        ALL_REFUSE(SHERD_EINVAL, sherd_module_write_with(layer, NULL, path, BAD(&with, &none)));
        CHECK_OK(sherd_module_write_with(layer, NULL, path, &none));
        if (i != 4)
            ALL_REFUSE(SHERD_EINVAL, sherd_module_read(layer, NULL, path, BAD(&into, &more)));
    }
    for (int i = 0; i < LEN(notes); i++) {
        const sherd_write_options with = {.notes = &notes[i], .note_count = 1},
                                  none = {.notes = &note, .note_count = 1};
        ALL_REFUSE(SHERD_EINVAL, sherd_module_write_with(layer, NULL, path, BAD(&with, &none)));
    }
    const sherd_write_options counts[] = {{.tensors = &named, .tensor_count = -1},
                                          {.tensor_count = 1},
                                          {.notes = &note, .note_count = -1},
                                          {.note_count = 1}};
    for (int i = 0; i < LEN(counts); i++)
        ALL_REFUSE(SHERD_EINVAL,
                   sherd_module_write_with(layer, NULL, path, BAD(&counts[i], &good)));
    const char *const patterns[] = {NULL, "none.*"}, *const weight[] = {"weight"};
    const sherd_write_options chosen[] = {{.only = patterns, .only_count = 1},
                                          {.only = patterns + 1, .only_count = 1},
                                          {.only_count = 1},
                                          {.only = weight, .only_count = -1},
                                          {.part = (sherd_file_part)3}};
    for (int i = 0; i < LEN(chosen); i++) {
        const sherd_read_options into = {.more = true,
                                         .part = chosen[i].part,
                                         .only = chosen[i].only,
                                         .only_count = chosen[i].only_count};
        ALL_REFUSE(SHERD_EINVAL, sherd_module_write_with(layer, o, path, BAD(&chosen[i], &good)));
        CHECK_OK(sherd_module_write_with(layer, NULL, path, &good));
        ALL_REFUSE(SHERD_EINVAL, sherd_module_read(layer, NULL, path, BAD(&into, &more)));
    }
    const sherd_read_options lacks = {.more = true, .tensor_count = 1};
    ALL_REFUSE(SHERD_EINVAL, sherd_module_read(layer, NULL, path, BAD(&lacks, &more)));
    sherd_optimizer_destroy(o);
    sherd_module_destroy(layer);
    remove_file(m->world, path);
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(a_file_needs_names_tensors_and_a_place), {1, 2, 3}},
    {TEST(what_is_read_is_there_and_fits), {1, 2, 3}},
    {TEST(what_is_begun_needs_a_place_and_an_end), {1, 2, 3}},
    {TEST(a_state_needs_a_module_and_a_place), {1, 2, 3}},
    {TEST(what_is_beside_a_module_has_names_of_its_own), {1, 2, 3}},
};
CHECK_MAIN(tests)
