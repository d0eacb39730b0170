/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dry worlds: how they open, that a dry rank makes the calls of the real one and takes its memory,
 * moves of all kinds first, and that it needs none itself.
 */
#include "dry.h"

#include <sherd.h>
#include <sys/resource.h>

/* ---- opening --------------------------------------------------------------------------------- */

static sherd_world *dry(int ranks, int rank)
{
    sherd_world *world = NULL;

    CHECK_OK(sherd_world_dry(&world, ranks, rank, NULL, NULL));
    return world;
}

static void it_is_one_rank_of_many(sherd_world *unused)
{
    const sherd_mesh *mesh;
    int64_t at[2];
    (void)unused;
    sherd_world *world = dry(20000, 12345);

    CHECK_EQ(sherd_world_rank(world), 12345);
    CHECK_EQ(sherd_world_ranks(world), 20000);
    CHECK_TEXT(sherd_world_transport(world), "dry");
    CHECK(sherd_world_is_dry(world) && !sherd_world_is_dry(unused));
    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=2500,y=8"));
    CHECK(sherd_mesh_coordinate(mesh, 12345, at) && at[0] == 1543 && at[1] == 1);
    const int64_t n = DRY_TERABYTES ? 1 << 20 : 1 << 14, rows = (n + 2499) / 2500;
    sherd_tensor *t = sherd_distribute_as(sherd_constant(world, SHERD_F32, (int64_t[]){n, n}, 2, 1),
                                          mesh, "S(0)S(1)", -1);
    sherd_tensor *whole = sherd_full(t);
    CHECK(!sherd_tensor_failed(whole));
    CHECK_EQ(sherd_comm_bytes(world, NULL), 4 * (n * n - rows * (n / 8)));
    CHECK_OK(sherd_world_close(world));
}

static void what_can_not_be_is_refused(sherd_world *unused)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.error = error};
    sherd_world *world = unused;

    CHECK_EQ(sherd_world_dry(&world, 4, 4, NULL, &options), SHERD_EINVAL);
    CHECK_TEXT(error, "sherd_world_dry: there is no rank 4 of 4");
    CHECK(world == NULL);
    CHECK_EQ(sherd_world_dry(&world, 0, 0, NULL, &options), SHERD_EINVAL);
    CHECK_EQ(sherd_world_dry(&world, 4, 0, &(sherd_rates){.f64 = -1}, &options), SHERD_EINVAL);
    CHECK_TEXT(error, "sherd_world_dry: a rate of -1");
    CHECK_EQ(sherd_world_dry(NULL, 4, 0, NULL, &options), SHERD_EINVAL);
    CHECK_TEXT(error, "sherd_world_dry: out is NULL");
}

static void an_error_is_one_and_the_world_goes_on(sherd_world *unused)
{
    const int64_t shape[] = {6, 4};
    const sherd_mesh *mesh;
    (void)unused;
    sherd_world *world = dry(4, 3);

    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=4"));
    sherd_tensor *a =
        sherd_distribute_as(sherd_constant(world, SHERD_F32, shape, 2, 1), mesh, "S(0)", -1);
    CHECK(sherd_tensor_failed(sherd_redistribute_to(a, "S(5)", NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "S(5)"));
    CHECK_OK(sherd_world_check(world));
    CHECK(!sherd_tensor_failed(sherd_redistribute_to(a, "S(1)", NULL)));
    CHECK_OK(sherd_world_close(world));
}

/* ---- the environment ------------------------------------------------------------------------- */

static int look(sherd_world *world, void *seen)
{
    *(int64_t *)seen =
        sherd_world_is_dry(world) ? sherd_world_ranks(world) * 100 + sherd_world_rank(world) : -1;
    return 7;
}

static void spawn_runs_its_body_once(sherd_world *unused)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.ranks = 4, .error = error};
    int exit_status;
    int64_t seen = 0;
    (void)unused;

    setenv("SHERD_DRY", "3", 1);
    CHECK_OK(sherd_spawn(&exit_status, &options, look, &seen));
    CHECK_EQ(exit_status, 7);
    CHECK_EQ(seen, 403);
    setenv("SHERD_DRY", "9/16", 1); /* whoever asks knows better */
    CHECK_OK(sherd_spawn(&exit_status, &options, look, &seen));
    CHECK_EQ(seen, 1609);
    setenv("SHERD_DRY", "4", 1);
    CHECK_EQ(sherd_spawn(&exit_status, &options, look, &seen), SHERD_EINVAL);
    CHECK_TEXT(error, "sherd_world_dry: there is no rank 4 of 4");
    unsetenv("SHERD_DRY");
}

static void texts_that_say_nothing_are_refused(sherd_world *unused)
{
    static const char *const wrong[] = {"x", "1/", "-1/4", "1/4/2", "1 of 4", "5000000000/4"};
    static const char *const rates[] = {"f32",     "f32=",        "f32=1,",
                                        "speed=3", "f32=1 f64=2", ",f32=1"};
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.error = error};
    sherd_world *world;
    (void)unused;

    for (int i = 0; i < LEN(wrong); i++) {
        setenv("SHERD_DRY", wrong[i], 1);
        CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
        CHECK(strstr(error, "SHERD_DRY=") && !world);
    }
    setenv("SHERD_DRY", "2", 1); /* of how many? */
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    CHECK_TEXT(error, "SHERD_DRY=2: rank 2 of how many? For example 2/8 (`sherd dry -n 8`)");
    setenv("SHERD_DRY", "2/3", 1);
    for (int i = 0; i < LEN(rates); i++) {
        setenv("SHERD_DRY_RATES", rates[i], 1);
        if (!CHECK_EQ(sherd_world_open(&world, &options), i == 2 ? SHERD_OK : SHERD_EINVAL))
            fprintf(stderr, "%s\n", rates[i]);
        CHECK(i == 2 || strstr(error, "SHERD_DRY_RATES="));
        sherd_world_close(world);
    }
    unsetenv("SHERD_DRY_RATES");
    unsetenv("SHERD_DRY");
}

/* ---- a program on real ranks and on dry ones ------------------------------------------------- */

enum { ROWS = 24 };

typedef struct costs {
    int rows;
    sherd_comm_entry row[ROWS];
    char axes[ROWS][32];
    int64_t peak_bytes, live_bytes, peak_for[SHERD_MEMORY_USES];
} costs;

static void take_costs(costs *out, sherd_world *world)
{
    const sherd_memory memory = sherd_world_memory(world);

    memset(out, 0, sizeof *out);
    for (; out->rows < sherd_comm_count(world) && out->rows < ROWS; out->rows++) {
        out->row[out->rows] = sherd_comm_get(world, out->rows);
        snprintf(out->axes[out->rows], sizeof out->axes[0], "%s", out->row[out->rows].axes);
    }
    out->peak_bytes = memory.peak_bytes;
    out->live_bytes = memory.live_bytes;
    memcpy(out->peak_for, memory.peak_for, sizeof out->peak_for);
}

static void compare(const costs *real, const costs *thought)
{
    CHECK_EQ(thought->rows, real->rows);
    for (int i = 0; i < real->rows && i < thought->rows; i++) {
        CHECK_TEXT(thought->row[i].op, real->row[i].op);
        CHECK_TEXT(thought->axes[i], real->axes[i]);
        CHECK_EQ(thought->row[i].calls, real->row[i].calls);
        CHECK_EQ(thought->row[i].bytes_received, real->row[i].bytes_received);
    }
    CHECK_EQ(thought->peak_bytes, real->peak_bytes);
    CHECK_EQ(thought->live_bytes, real->live_bytes);
    for (int i = 0; i < SHERD_MEMORY_USES; i++)
        CHECK_EQ(thought->peak_for[i], real->peak_for[i]);
}

/* The same on this rank of a dry world, after a real one has run it. */
static void run_both(sherd_world *world, void (*program)(sherd_world *world, const char *mesh),
                     const char *mesh)
{
    costs real, thought;

    program(world, mesh);
    CHECK_OK(sherd_world_check(world));
    take_costs(&real, world);
    sherd_world *alone = dry(sherd_world_ranks(world), sherd_world_rank(world));
    program(alone, mesh);
    CHECK_OK(sherd_world_check(alone));
    take_costs(&thought, alone);
    compare(&real, &thought);
    CHECK_OK(sherd_world_close(alone));
}

/* On meshes of one axis, and of two. */
#define BOTH(name, program)                                                    \
    static void name##_on_one_axis(sherd_world *world)                         \
    {                                                                          \
        char text[32];                                                         \
        snprintf(text, sizeof text, "x=%d,y=1", sherd_world_ranks(world));     \
        run_both(world, program, text);                                        \
    }                                                                          \
    static void name##_on_two_axes(sherd_world *world)                         \
    {                                                                          \
        char text[32];                                                         \
        snprintf(text, sizeof text, "x=%d,y=2", sherd_world_ranks(world) / 2); \
        run_both(world, program, text);                                        \
    }

static void move_about(sherd_world *world, const char *text)
{
    static const char *const lies[] = {"S(0)R", "RS(1)",    "S(0)S(1)",      "S(1)S(0)",
                                       "RR",    "S(0)S(0)", "S(1)[1]S(1)[0]"};
    const int64_t shape[] = {13, 7};
    const sherd_mesh *mesh;

    sherd_scope_begin(world);
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_tensor *t = sherd_constant(world, SHERD_F64, shape, 2, 1);
    for (int i = 0; i < LEN(lies); i++)
        for (int j = 0; j < LEN(lies); j++) {
            sherd_scope_begin(world);
            sherd_tensor *a = sherd_distribute_as(t, mesh, lies[i], -1);
            sherd_tensor *b = sherd_redistribute_to(a, lies[j], NULL);
            /* pending sums: of a product over what is sharded */
            sherd_tensor *p = sherd_matmul(sherd_transpose(b, 0, 1), b);
            sherd_tensor *list[2] = {sherd_redistribute_to(p, "RR", NULL),
                                     sherd_redistribute_to(p, lies[i], NULL)};
            CHECK(!sherd_tensor_failed(list[0]) && !sherd_tensor_failed(list[1]));
            sherd_scope_end(world);
        }
    sherd_scope_end(world);
}

BOTH(moves_are_those_of_the_real_rank, move_about)

static void move_many(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh;
    sherd_tensor *from[6], *out[6];
    const sherd_layout *to[6];

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    for (int i = 0; i < 6; i++) {
        const int64_t shape[] = {5 + i, 11 - i};
        from[i] = sherd_distribute_as(sherd_constant(world, SHERD_F32, shape, 2, 1), mesh,
                                      i % 2 ? "S(0)R" : "S(1)S(0)", -1);
        to[i] = sherd_tensor_layout(sherd_distribute_as(
            sherd_constant(world, SHERD_F32, shape, 2, 1), mesh, i % 3 ? "RS(0)" : "RR", -1));
    }
    sherd_redistribute_many(out, from, to, 6);
    for (int i = 0; i < 6; i++)
        CHECK(!sherd_tensor_failed(out[i]));
}

BOTH(lists_of_moves_are_too, move_many)

/* Pieces that ranks describe to each other: they are taken to be as this one's. */
static void tell_shapes(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh;
    const int64_t shape[] = {3, 5};
    const sherd_placement lies[] = {sherd_shard(0), sherd_replicate()};

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_tensor *piece = sherd_constant(world, SHERD_F32, shape, 2, 1);
    sherd_tensor *t =
        sherd_from_local(piece, mesh, lies, &(sherd_from_local_options){.mode = SHERD_FROM_INFER});
    CHECK_EQ(sherd_tensor_shape(t)[0], 3 * sherd_mesh_extent(mesh, 0));
    CHECK(!sherd_tensor_failed(sherd_full(t)));
}

/* Where the shape is given, the others' pieces are what the layout says. */
static void tell_pieces(sherd_world *world, const char *text)
{
    const sherd_mesh *mesh;
    const int64_t shape[] = {13, 5};
    const sherd_placement lies[] = {sherd_shard(0), sherd_replicate()};

    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    sherd_tensor *whole =
        sherd_distribute_as(sherd_constant(world, SHERD_F32, shape, 2, 1), mesh, "S(0)R", -1);
    sherd_tensor *piece = sherd_to_local(whole);
    sherd_tensor *t =
        sherd_from_local(piece, mesh, lies, &(sherd_from_local_options){.shape = shape});
    CHECK(!sherd_tensor_failed(sherd_full(t)));
}

BOTH(shapes_of_others_are_taken_to_be_ours, tell_shapes)
BOTH(pieces_of_others_are_taken_to_fit, tell_pieces)

/* ---- memory and time ------------------------------------------------------------------------- */

static int64_t resident_bytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)usage.ru_maxrss << 10;
}

static void a_terabyte_takes_no_memory(sherd_world *unused)
{
    const int64_t shape[] = {1 << 19, 1 << 19};
    const sherd_mesh *mesh;
    (void)unused;
    if (!DRY_TERABYTES)
        return;
    sherd_world *world = dry(2, 1);
    int64_t before = resident_bytes();

    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=2"));
    sherd_tensor *a =
        sherd_distribute_as(sherd_constant(world, SHERD_F32, shape, 2, 1), mesh, "S(0)", -1);
    sherd_tensor *b = sherd_redistribute_to(sherd_add(sherd_exp(a), a), "S(1)", NULL);
    CHECK(!sherd_tensor_failed(b));
    CHECK(sherd_world_memory(world).peak_bytes > INT64_C(1) << 40);
    CHECK(resident_bytes() - before < 64 << 20);
    CHECK_OK(sherd_world_close(world));
}

/* 2 x 64 x 64 x 64 operations at 1e6 a second; 3 matrices of 16 KiB at 1e9 bytes a second take less. */
static void time_passes_by_the_rates(sherd_world *unused)
{
    const int64_t shape[] = {64, 64};
    sherd_world *world = NULL;
    (void)unused;

    CHECK_OK(sherd_world_dry(&world, 1, 0, &(sherd_rates){.f32 = 1e6, .memory = 1e9}, NULL));
    sherd_tensor *a = sherd_constant(world, SHERD_F32, shape, 2, 1);
    int64_t begin = sherd_dry_time(world);
    sherd_op_times(world, true);
    sherd_matmul(a, a);
    CHECK_EQ(sherd_dry_time(world) - begin, 524288000);
    CHECK_EQ(sherd_op_time_at(world, 0).nanoseconds, 524288000);
    begin = sherd_dry_time(world);
    sherd_tensor *wide = sherd_cast(a, SHERD_F64);
    CHECK_EQ(sherd_dry_time(world) - begin, 4096000);
    sherd_dry_work last = sherd_dry_work_at(world, 2);
    CHECK_TEXT(last.name, "sherd_cast");
    CHECK_EQ(last.calls, 1);
    CHECK_EQ(last.bytes, 64 * 64 * 12);
    CHECK(!sherd_tensor_failed(wide));
    CHECK(!sherd_dry_work_at(world, 3).name && !sherd_dry_work_at(world, -1).name);
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(it_is_one_rank_of_many), {1}},
    {TEST(what_can_not_be_is_refused), {1}},
    {TEST(an_error_is_one_and_the_world_goes_on), {1}},
    {TEST(spawn_runs_its_body_once), {1}},
    {TEST(texts_that_say_nothing_are_refused), {1}},
    {TEST(moves_are_those_of_the_real_rank_on_one_axis), {1, 2, 3, 4, 8}},
    {TEST(moves_are_those_of_the_real_rank_on_two_axes), {2, 4, 8}},
    {TEST(lists_of_moves_are_too_on_one_axis), {1, 2, 3, 4, 8}},
    {TEST(lists_of_moves_are_too_on_two_axes), {2, 4, 8}},
    {TEST(shapes_of_others_are_taken_to_be_ours_on_one_axis), {1, 2, 3, 4, 8}},
    {TEST(shapes_of_others_are_taken_to_be_ours_on_two_axes), {2, 4, 8}},
    {TEST(pieces_of_others_are_taken_to_fit_on_one_axis), {1, 2, 3, 4, 8}},
    {TEST(pieces_of_others_are_taken_to_fit_on_two_axes), {2, 4, 8}},
    {TEST(a_terabyte_takes_no_memory), {1}},
    {TEST(time_passes_by_the_rates), {1}},
};

CHECK_MAIN(tests)
