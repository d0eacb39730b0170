/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as text: the same lines under every layout, and each value at the global index that the
 * line says. */
#include "tensors.h"

#include <math.h>
#include <sys/stat.h>

#include "sherd/comm.h"
#include "sherd/print.h"

enum { ROOM = 1 << 16 };

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 3}, {4, 0}, {40, 30}};

/* All ranks as one axis, or as two. */
static const sherd_mesh *mesh_for(sherd_world *world, bool square)
{
    char text[32];
    int ranks = sherd_world_ranks(world), rows = square && ranks % 2 == 0 ? 2 : 1;

    snprintf(text, sizeof text, "x=%d,y=%d", rows, ranks / rows);
    return mesh_of(world, text);
}

/* The text of a tensor, to be freed; "" on ranks that do not write. */
static char *text_of(sherd_tensor *t, const sherd_print_options *options)
{
    char *text = malloc(ROOM);
    size_t length = sherd_print_text(text, ROOM, t, options);

    CHECK_EQ(strlen(text), length);
    return text;
}

/* Whether the lines behind the first one are the same. */
static bool same_lines(const char *a, const char *b)
{
    const char *x = strchr(a, '\n'), *y = strchr(b, '\n');

    return x && y && strcmp(x, y) == 0;
}

/* ---- what is written ------------------------------------------------------------------------- */

static void check_text(sherd_tensor *t, const sherd_print_options *options, const char *wanted)
{
    char *text = text_of(t, options);

    CHECK_TEXT(text, sherd_world_rank(t->world) == (options ? options->rank : 0) ? wanted : "");
    free(text);
}

static void small_tensors_are_shown_whole(sherd_world *world)
{
    const float x[] = {0.5f, -1.25f, 1e10f, NAN, -INFINITY, 3};
    const int64_t shape[] = {2, 3}, long_shape[] = {2, 1, 2};
    const int32_t numbers[] = {-7, 0, 2147483647, 12};
    const sherd_print_options named = {.name = "x", .rank = sherd_world_ranks(world) - 1};
    char last[128];

    check_text(sherd_from_data(world, SHERD_F32, shape, 2, x), NULL,
               "f32[2,3], of rank 0\n"
               "[0,0]    0.5  -1.25  1e+10\n"
               "[1,0]    nan   -inf      3\n");
    check_text(sherd_from_data(world, SHERD_I32, long_shape, 3, numbers), NULL,
               "i32[2,1,2], of rank 0\n"
               "[0,0,0]          -7           0\n"
               "[1,0,0]  2147483647          12\n");
    snprintf(last, sizeof last, "x: f64[], of rank %d\n[]   2.5\n", named.rank);
    check_text(sherd_constant(world, SHERD_F64, NULL, 0, 2.5), &named, last);
    check_text(sherd_constant(world, SHERD_F64, (int64_t[]){0, 3}, 2, 1), NULL,
               "f64[0,3], of rank 0\nno elements\n");
    CHECK_OK(sherd_world_check(world));
}

static void every_dtype_has_a_text(sherd_world *world)
{
    static const char *const values[SHERD_DTYPES] = {
        NULL, "0.333333", "0.333333", "0.333984", "0.333252", "0", "0", "0", "true", "0"};
    const int64_t one[] = {1};
    const int64_t far[] = {INT64_MIN};
    char wanted[64];

    for (int dtype = SHERD_DTYPE_NONE + 1; dtype < SHERD_DTYPES; dtype++) {
        snprintf(wanted, sizeof wanted, "%s[1], of rank 0\n[0]  %s\n",
                 sherd_dtype_name((sherd_dtype)dtype), values[dtype]);
        check_text(sherd_constant(world, (sherd_dtype)dtype, one, 1,
                                  sherd__has_fractions((sherd_dtype)dtype) ? 1.0 / 3
                                                                           : dtype == SHERD_BOOL),
                   NULL, wanted);
    }
    check_text(sherd_from_data(world, SHERD_I64, one, 1, far), NULL,
               "i64[1], of rank 0\n[0]  -9223372036854775808\n");
    check_text(sherd_constant(world, SHERD_BOOL, one, 1, 0), NULL,
               "bool[1], of rank 0\n[0]  false\n");
    check_text(sherd_constant(world, SHERD_F64, one, 1, 1.0 / 3),
               &(sherd_print_options){.digits = 17},
               "f64[1], of rank 0\n[0]  0.33333333333333331\n");
    CHECK_OK(sherd_world_check(world));
}

/* All ranks see what the plain tensor shows, whichever of them writes. */
static void all_layouts_show_the_same(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_for(world, true);
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(mesh, 2); i++) {
            sherd_scope_begin(world);
            const sherd_layout *layout = numbered(mesh, 2, shapes[s], i);
            int64_t addends = addends_of(layout, (int64_t[SHERD_MAX_AXES]){0}, NULL);
            const sherd_print_options options = {.rank = i % ranks};
            sherd_tensor *plain = indices_plain(world, SHERD_I32, 2, shapes[s]);
            int32_t *data = sherd_tensor_write(plain);
            for (int64_t k = 0; data && k < plain->count; k++)
                data[k] = (int32_t)whole_value(k, addends);
            char *wanted = text_of(plain, &options);
            char *text = text_of(indices_on(layout, SHERD_F64), &options);
            CHECK_EQ(rank == options.rank, text[0] != 0);
            if (rank == options.rank) {
                CHECK(same_lines(text, wanted));
                CHECK(strstr(text, layout->text) == text + 3);
                CHECK_EQ(layout->pending_axes != 0, strstr(text, ", settled\n") != NULL);
            }
            free(text);
            free(wanted);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

/* ---- what is left out ------------------------------------------------------------------------ */

/* Whether every line begins with the index of its first value, of a tensor that holds its own
 * indices; counts values. */
static int64_t count_shown(const char *text, const int64_t *shape)
{
    int64_t shown = 0;

    for (text = strchr(text, '\n'); text && text[1]; text = strchr(text + 1, '\n')) {
        long long i, j, value;
        int at;
        if (strncmp(text + 1, "...\n", 4) == 0)
            continue;
        if (!CHECK_EQ(sscanf(text + 1, "[%lld,%lld]%n", &i, &j, &at), 2))
            return -1;
        for (const char *c = text + 1 + at;
             *c != '\n' && sscanf(c, "%*[ ]%lld%n", &value, &at) == 1; c += at, shown++)
            CHECK_EQ(value, i * shape[1] + j++);
    }
    return shown;
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

static void large_tensors_are_elided(sherd_world *world)
{
    static const int64_t large[][2] = {{300, 200}, {1001, 1}, {7, 500}, {20000, 3}};
    const sherd_mesh *mesh = mesh_for(world, true);
    int rank = sherd_world_rank(world);

    for (int s = 0; s < LEN(large); s++)
        for (int i = 0; i < 9; i++) { /* those without a pending sum */
            sherd_scope_begin(world);
            const int64_t *shape = large[s];
            int kinds = i / 3 * 4 + i % 3;
            const sherd_print_options options = {.edge = s % 2 ? 0 : 2};
            int64_t edge = options.edge ? 2 : 3, shown;
            sherd_tensor *t = indices_on(numbered(mesh, 2, shape, kinds), SHERD_I64);
            sherd_comm_reset(world);
            char *text = text_of(t, &options);
            shown = (shape[0] > 2 * edge ? 2 * edge : shape[0]) *
                    (shape[1] > 2 * edge ? 2 * edge : shape[1]);
            CHECK(received(world) <= (rank ? 0 : shown * 8));
            CHECK_EQ(rank ? 0 : count_shown(text, shape), rank ? 0 : shown);
            free(text);
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static void elided_lines_say_where_they_go_on(sherd_world *world)
{
    const int64_t shape[] = {100, 100};
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shape, "RS(0)", NULL);
    char wanted[256];

    snprintf(wanted, sizeof wanted,
             "i32%s\n"
             "[0,0]       0  ...\n"
             "[0,99]     99\n"
             "...\n"
             "[99,0]   9900  ...\n"
             "[99,99]  9999\n",
             rows->text);
    check_text(indices_on(rows, SHERD_I32), &(sherd_print_options){.edge = 1}, wanted);
    CHECK_OK(sherd_world_check(world));
}

static void the_threshold_is_the_callers(sherd_world *world)
{
    const int64_t shape[] = {40, 40};
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shape, "RS(1)", NULL);
    sherd_tensor *t = indices_on(rows, SHERD_F64);
    char *all = text_of(t, &(sherd_print_options){.threshold = -1});
    char *also = text_of(t, &(sherd_print_options){.threshold = 1600});
    char *some = text_of(t, &(sherd_print_options){.threshold = 1599});

    if (sherd_world_rank(world) == 0) {
        CHECK_EQ(count_shown(all, shape), 1600);
        CHECK_TEXT(also, all);
        CHECK_EQ(count_shown(some, shape), 36);
    }
    free(all);
    free(also);
    free(some);
    CHECK_OK(sherd_world_check(world));
}

/* ---- where it is written --------------------------------------------------------------------- */

static void a_file_gets_what_a_text_gets(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[1], "RS(0)", NULL);
    sherd_tensor *t = indices_on(rows, SHERD_F32);
    char *text = text_of(t, NULL), *read = calloc(1, ROOM);
    FILE *file = tmpfile();

    sherd_print(file, t, NULL);
    rewind(file);
    CHECK_EQ(fread(read, 1, ROOM - 1, file), strlen(text));
    CHECK_TEXT(read, text);
    fclose(file);
    free(text);
    free(read);
    CHECK_OK(sherd_world_check(world));
}

/* What was printed is there for whoever reads the file, also of a tensor without elements. */
static void a_file_has_it_at_once(sherd_world *world)
{
    const int64_t sizes[] = {0, 3};
    FILE *file = tmpfile();
    struct stat before, after = {.st_size = 0};

    for (int i = 0; i < LEN(sizes); i++) {
        before = after;
        sherd_print(file, sherd_constant(world, SHERD_F32, &sizes[i], 1, 0), NULL);
        CHECK_EQ(fstat(fileno(file), &after), 0);
        CHECK(after.st_size > before.st_size);
    }
    fclose(file);
    CHECK_OK(sherd_world_check(world));
}

static void a_text_is_cut_at_its_room(sherd_world *world)
{
    const sherd_layout *rows = layout_of(mesh_for(world, false), 2, shapes[1], "RS(0)", NULL);
    sherd_tensor *t = indices_on(rows, SHERD_F32);
    char *text = text_of(t, NULL);
    size_t length = strlen(text);

    CHECK_EQ(sherd_print_text(NULL, 0, t, NULL), length);
    for (size_t room = 1; room < 60; room += 7) {
        char part[64];
        memset(part, '#', sizeof part);
        CHECK_EQ(sherd_print_text(part, room, t, NULL), length);
        CHECK_EQ(strlen(part), length < room - 1 ? length : room - 1);
        CHECK(strncmp(part, text, strlen(part)) == 0 && part[room] == '#');
    }
    free(text);
    CHECK_OK(sherd_world_check(world));
}

static void a_rank_of_the_mesh_writes(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2@2,1");
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shapes[1], "S(0)", NULL), SHERD_F32);
    int rank = sherd_world_rank(world);

    for (int asked = 0; asked < 3; asked++) {
        char *text = text_of(t, &(sherd_print_options){.rank = asked});
        CHECK_EQ(text[0] != 0, rank == (asked ? asked : 2));
        CHECK(text[0] == 0 || count_shown(text, shapes[1]) == 35);
        free(text);
    }
    CHECK_OK(sherd_world_check(world));
}

static void print_scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL;
    char text[256];

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shapes[4], "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *t = sherd_constant_on(rows, SHERD_F64, 1);
        sherd_print_text(text, sizeof text, t, NULL);
        sherd_print_text(text, sizeof text, t, &(sherd_print_options){.rank = 1, .threshold = -1});
        sherd_print_text(text, sizeof text, sherd_constant(world, SHERD_F32, shapes[0], 2, 1),
                         NULL);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, print_scene);
    fail_every_allocation(world, 1, print_scene);
}

/* Whatever a print lacks memory for, the line says a name: its own, or that of what it begins. */
static void what_lacks_memory_is_a_print(sherd_world *world)
{
    sherd_placement rows[] = {sherd_shard(0)};
    const sherd_layout *layout = NULL;
    sherd_status status = SHERD_ENOMEM;
    char text[256];

    CHECK_OK(sherd_layout_create(&layout, line_of_ranks(world), 2, shapes[4], rows, NULL));
    sherd_tensor *t = sherd_constant_on(layout, SHERD_F64, 1);
    for (int64_t n = 1; status == SHERD_ENOMEM && n < 1000; n++) {
        sherd_world_fail_allocation(world, sherd_world_rank(world) ? 0 : n);
        sherd_print_text(text, sizeof text, t, NULL);
        sherd_world_fail_allocation(world, 0);
        status = sherd_world_check(world);
        if (status && !CHECK(strncmp(sherd_world_error(world), "rank 0: sherd_", 14) == 0))
            printf("%s\n", sherd_world_error(world));
    }
    CHECK_OK(status);
}

static const check_test tests[] = {
    {TEST(small_tensors_are_shown_whole), {1, 2, 3}},
    {TEST(every_dtype_has_a_text), {1, 2}},
    {TEST(all_layouts_show_the_same), {1, 2, 3, 4, 8}},
    {TEST(large_tensors_are_elided), {1, 2, 3, 4, 8}},
    {TEST(elided_lines_say_where_they_go_on), {1, 2, 3, 4, 8}},
    {TEST(the_threshold_is_the_callers), {1, 2, 3, 4}},
    {TEST(a_file_gets_what_a_text_gets), {1, 2, 3}},
    {TEST(a_file_has_it_at_once), {1}},
    {TEST(a_text_is_cut_at_its_room), {1, 2, 3}},
    {TEST(a_rank_of_the_mesh_writes), {3, 4}},
    {TEST(what_lacks_memory_is_a_print), {1, 2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
