/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of worlds, meshes, layouts, plans and the comm log: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/dry.h"
#include "sherd/carrier.h"
#include "sherd/comm.h"
#include "sherd/info.h"
#include "sherd/plan.h"
#include "sherd/version.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

static const sherd_layout *rows(const sherd_mesh *mesh)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_layout_create(&layout, mesh, 2, (int64_t[]){4, 3},
                                 (sherd_placement[]){sherd_shard(0)}, NULL));
    return layout;
}

/* ---- numbers --------------------------------------------------------------------------------- */

MISUSE(numbers_that_mean_nothing_have_a_name)
{
    char version[32];

    snprintf(version, sizeof version, "%d.%d.%d", SHERD_VERSION_MAJOR, SHERD_VERSION_MINOR,
             SHERD_VERSION_PATCH);
    ANSWERS(strcmp(sherd_version(), version) == 0);
    ANSWERS(strcmp(sherd_status_name((sherd_status)-99), "unknown") == 0);
    ANSWERS(strstr(sherd_status_text((sherd_status)99), "not a status") != NULL);
    ANSWERS(sherd_dtype_bytes((sherd_dtype)-1) == 0 && sherd_dtype_bytes((sherd_dtype)99) == 0);
    ANSWERS(strcmp(sherd_dtype_name((sherd_dtype)99), "unknown") == 0);
    ANSWERS(strcmp(sherd_step_kind_name((sherd_step_kind)99), "unknown") == 0);
    ANSWERS(strcmp(sherd_planner_name((sherd_planner)-1), "unknown") == 0);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

MISUSE(questions_to_no_world_have_an_answer)
{
    sherd_comm_entry entry = sherd_comm_get(NULL, 0);
    sherd_memory memory = sherd_world_memory(NULL);
    sherd_info info = sherd_world_info(NULL);

    ANSWERS(sherd_world_rank(NULL) == -1 && sherd_world_ranks(NULL) == 0);
    ANSWERS(sherd_world_ended(NULL) == SHERD_EINVAL);
    ANSWERS(sherd_world_seed(NULL) == 0 && sherd_world_allocations(NULL) == 0);
    ANSWERS(strcmp(sherd_world_transport(NULL), "") == 0);
    ANSWERS(strcmp(sherd_world_device(NULL), "") == 0);
    ANSWERS(!sherd_world_is_dry(NULL) && sherd_dry_time(NULL) == 0);
    ANSWERS(!sherd_dry_work_at(NULL, 0).name && !sherd_dry_work_at(m->world, 0).name);
    ANSWERS(strcmp(sherd_world_error(NULL), "") == 0);
    ANSWERS(memory.live_bytes == 0 && memory.peak_bytes == 0);
    ANSWERS(strcmp(info.kernels, "") == 0 && strcmp(info.gemm, "") == 0 && info.peak == 0);
    ANSWERS(sherd_comm_count(NULL) == 0 && !entry.op && !entry.axes && entry.calls == 0);
    ANSWERS(sherd_comm_calls(NULL, NULL) == 0 && sherd_comm_bytes(NULL, NULL) == 0);
    sherd_world_memory_reset(NULL);
    sherd_world_fail_allocation(NULL, 1);
    sherd_world_fail(NULL, SHERD_EINVAL, "nobody hears it");
    sherd_comm_reset(NULL);
}

MISUSE(a_list_of_moves_has_a_length)
{
    sherd_move_entry none = sherd_moves_get(NULL, 0);

    ONLY_SAYS(SHERD_EINVAL, sherd_moves_keep(NULL, 1));
    ANSWERS(sherd_moves_count(NULL) == 0 && !none.from && !none.trace && none.bytes_total == 0);
    REFUSES(SHERD_EINVAL, sherd_moves_keep(m->world, -1));
    REFUSES(SHERD_ELIMIT, sherd_moves_keep(m->world, SHERD_MAX_MOVES + 1));
    ANSWERS(sherd_moves_keep(m->world, 1) == SHERD_OK && sherd_moves_count(m->world) == 0);
    ANSWERS(!sherd_moves_get(m->world, 0).from && !sherd_moves_get(m->world, -1).from);
    ANSWERS(sherd_moves_keep(m->world, 0) == SHERD_OK);
}

MISUSE(a_log_has_no_entry_beyond_its_ends)
{
    sherd_comm_filter misspelt = {.op = "allreduce"}, way = {.direction = (sherd_comm_direction)9};

    ANSWERS(sherd_comm_calls(m->world, &misspelt) == -1 && sherd_comm_bytes(m->world, &way) == -1);
    ANSWERS(!sherd_comm_get(m->world, -1).op);
    ANSWERS(!sherd_comm_get(m->world, sherd_comm_count(m->world)).op);
}

static int idle(sherd_world *world, void *payload)
{
    (void)world, (void)payload;
    return 0;
}

MISUSE(no_world_opens_without_a_place_for_it)
{
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.error = error};
    sherd_world *world = NULL;
    int exit_status;

    ONLY_SAYS(SHERD_EINVAL, sherd_world_alone(NULL, &options));
    ANSWERS(strcmp(error, "sherd_world_alone: out is NULL") == 0);
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open(NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open(NULL, &options));
    ANSWERS(strcmp(error, "sherd_world_open: out is NULL") == 0);
    ONLY_SAYS(SHERD_EINVAL, sherd_world_paper(NULL, 4));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_paper(&world, 0));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_paper(&world, -1));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_dry(NULL, 4, 0, NULL, &options));
    ANSWERS(strcmp(error, "sherd_world_dry: out is NULL") == 0);
    ONLY_SAYS(SHERD_EINVAL, sherd_world_dry(&world, 4, -1, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_spawn(NULL, NULL, idle, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_spawn(&exit_status, &options, NULL, NULL));
    ANSWERS(strcmp(error, "sherd_spawn: body is NULL") == 0);
    options.ranks = -1;
    ONLY_SAYS(SHERD_EINVAL, sherd_spawn(&exit_status, &options, idle, NULL));
    options.ranks = SHERD_MAX_RANKS + 1;
    ONLY_SAYS(SHERD_ELIMIT, sherd_spawn(&exit_status, &options, idle, NULL));
    options.ranks = 1;
    options.region_bytes = 5;
    ONLY_SAYS(SHERD_EINVAL, sherd_spawn(&exit_status, &options, idle, NULL));
    ANSWERS(strstr(error, "region_bytes is 5: expected 0, or 2097152 to 70368744177664") != NULL);
    ONLY_SAYS(SHERD_EINVAL, sherd_world_alone(&world, &options));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_dry(&world, 4, 0, NULL, &options));
    options.region_bytes = 0;
    options.as = (sherd_ranks_as)7;
    ONLY_SAYS(SHERD_EINVAL, sherd_spawn(&exit_status, &options, idle, NULL));
    ANSWERS(world == NULL);
}

/* A carrier that reaches nobody; it counts how often it is closed. */
static bool reach_nobody(void *self, const void *mine, size_t bytes, void *all)
{
    (void)self, (void)mine, (void)bytes, (void)all;
    return false;
}

static void count_close(void *self, bool well)
{
    (void)well;
    ++*(int *)self;
}

MISUSE(a_carrier_is_whole_and_is_closed_once)
{
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.error = error};
    int closed = 0;
    sherd_carrier carrier = {.version = SHERD_CARRIER_VERSION,
                             .name = "test",
                             .ranks = 2,
                             .self = &closed,
                             .gather = reach_nobody,
                             .close = count_close};
    sherd_world *world = NULL;

    /* the others are to learn it, but are not reached */
    ONLY_SAYS(SHERD_EPEER, sherd_world_open_with(NULL, &carrier, &options));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open_with(&world, NULL, &options));
    ANSWERS(closed == 1 && strcmp(error, "sherd_world_open_with: carrier is NULL") == 0);
    ONLY_SAYS(SHERD_EPEER, sherd_world_open_with(&world, &carrier, &options));
    ANSWERS(closed == 2 && strstr(error, "rank 0: test: ranks do not reach each other, or one did "
                                         "not come within SHERD_TIMEOUT"));
    carrier.rank = 2;
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open_with(&world, &carrier, &options));
    carrier.rank = 0;
    carrier.ranks = SHERD_MAX_RANKS + 1;
    ONLY_SAYS(SHERD_ELIMIT, sherd_world_open_with(&world, &carrier, &options));
    carrier.ranks = 2;
    carrier.gather = NULL;
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open_with(&world, &carrier, &options));
    ANSWERS(closed == 5);
    carrier.version = SHERD_CARRIER_VERSION + 1;
    carrier.close = NULL;
    ONLY_SAYS(SHERD_EINVAL, sherd_world_open_with(&world, &carrier, &options));
    ANSWERS(world == NULL);
}

/* This test is a body of sherd_spawn itself. */
MISUSE(a_world_is_closed_by_whom_it_belongs_to)
{
    REFUSES(SHERD_EINVAL, sherd_world_close(m->world));
    ANSWERS(sherd_world_rank(m->world) >= 0);
}

MISUSE(what_needs_a_world_says_so)
{
    const sherd_mesh *mesh;
    const sherd_layout *layout;
    sherd_price price;
    int64_t two = 2, most = 0;

    ONLY_SAYS(SHERD_EINVAL, sherd_world_check(NULL));
    ONLY_SAYS(SHERD_OK, sherd_world_close(NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_world_most(&two, NULL, 1));
    ALL_REFUSE(SHERD_EINVAL, sherd_world_most(NUL(&most), m->world, 1));
    CHECK_OK(sherd_world_most(&most, m->world, sherd_world_rank(m->world)));
    CHECK_EQ(most, sherd_world_ranks(m->world) - 1);
    ONLY_SAYS(SHERD_EINVAL, sherd_mesh_create(&mesh, NULL, 1, &two, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_mesh_parse(&mesh, NULL, "x=2"));
    ONLY_SAYS(SHERD_EINVAL, sherd_layout_parse(&layout, NULL, "[4(x)] on (x=2)", NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_price_parse(&price, NULL, "* 1 1 1"));
    ANSWERS(!mesh && !layout);
}

/* The others wait in a meeting to which this rank never comes, since it does not know of which
 * world. */
MISUSE(a_meeting_that_a_rank_missed_is_found_in_the_next)
{
    const sherd_mesh *mesh;
    sherd_status status = sherd_mesh_parse(&mesh, NUL(m->world), "x=1");

    CHECK_EQ(status, m->wrong ? SHERD_EINVAL : SHERD_EDIFFER);
    CHECK_EQ(sherd_world_check(m->world), m->alone ? SHERD_EDIFFER : SHERD_OK);
}

MISUSE(a_failure_of_the_callers_own_may_have_no_text)
{
    FAILS(SHERD_ENOTSUP, m->wrong ? sherd_world_fail(m->world, SHERD_ENOTSUP, NULL) : (void)0);
}

/* ---- meshes ---------------------------------------------------------------------------------- */

MISUSE(a_mesh_is_made_by_all_or_refused_by_all)
{
    const sherd_mesh *mesh = NULL;
    int64_t n = sherd_world_ranks(m->world), none = 0, many = (int64_t)1 << 40;
    int64_t ones[SHERD_MAX_AXES + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};

    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(NUL(&mesh), m->world, 1, &n, NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(&mesh, m->world, 1, NUL(&n), NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(&mesh, m->world, BAD(0, 1), &n, NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(&mesh, m->world, BAD(-3, 1), &n, NULL, NULL));
    ALL_REFUSE(SHERD_ELIMIT, sherd_mesh_create(&mesh, m->world, BAD(9, 1), ones, NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(&mesh, m->world, 1, BAD(&none, &n), NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_create(&mesh, m->world, 1, BAD(&many, &n), NULL, NULL));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_mesh_create(&mesh, m->world, 1, ones, (const char *[]){NUL("x")}, NULL));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_mesh_create(&mesh, m->world, 1, ones, NULL, (int[]){BAD(-1, 0)}));
    ALL_REFUSE(SHERD_EINVAL,
               sherd_mesh_create(&mesh, m->world, 1, ones, NULL, (int[]){BAD(1 << 30, 0)}));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_parse(NUL(&mesh), m->world, "x=1"));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_parse(&mesh, m->world, NUL("x=1")));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_parse(&mesh, m->world, BAD("", "x=1")));
    CHECK(mesh == NULL);
}

MISUSE(ranks_are_selected_by_axis_and_index)
{
    const sherd_mesh *mesh = line(m->world), *out = mesh, *same = NULL, *part = NULL;

    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(NUL(&out), mesh, "x", 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(&out, mesh, NUL("x"), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(&out, mesh, BAD("y", "x"), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(&out, mesh, "x", BAD(-1, 0)));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(&out, mesh, "x", BAD(sherd_mesh_ranks(mesh), 0)));
    CHECK(out == NULL);
    ONLY_SAYS(SHERD_EINVAL, sherd_mesh_select(&out, NULL, "x", 0));
    CHECK_OK(sherd_mesh_select(&same, mesh, "x", 0));
    CHECK(sherd_mesh_ranks(same) == 1 && sherd_mesh_coordinate(same, 0, NULL));
    CHECK_OK(sherd_mesh_parse(&mesh, m->world, "y=1,x=1"));
    CHECK_OK(sherd_mesh_slice(&part, mesh, 1, (const char *[]){"x"}));
    ALL_REFUSE(SHERD_EINVAL, sherd_mesh_select(&out, BAD(part, mesh), "x", 0));
}

MISUSE(a_part_of_a_mesh_is_named_axis_by_axis)
{
    const sherd_mesh *mesh = line(m->world), *out;
    const char *x[SHERD_MAX_AXES + 1] = {"x", "x"}, *null[] = {NULL};

    REFUSES(SHERD_EINVAL, sherd_mesh_slice(NULL, mesh, 1, x));
    ONLY_SAYS(SHERD_EINVAL, sherd_mesh_slice(&out, NULL, 1, x));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, 1, NULL));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, 1, null));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, 0, x));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, -1, x));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, 2, x));
    REFUSES(SHERD_EINVAL, sherd_mesh_slice(&out, mesh, 1 << 30, x));
    ANSWERS(out == NULL);
}

MISUSE(questions_to_no_mesh_have_an_answer)
{
    const sherd_mesh *mesh = line(m->world);
    int64_t at;

    ANSWERS(sherd_mesh_root(NULL) == NULL && sherd_mesh_axes(NULL) == 0);
    ANSWERS(sherd_mesh_extent(NULL, 0) == 0 && sherd_mesh_ranks(NULL) == 0);
    ANSWERS(sherd_mesh_extent(mesh, -1) == 0 && sherd_mesh_extent(mesh, 1) == 0);
    ANSWERS(strcmp(sherd_mesh_axis_name(NULL, 0), "") == 0);
    ANSWERS(strcmp(sherd_mesh_axis_name(mesh, -1), "") == 0);
    ANSWERS(sherd_mesh_find_axis(NULL, "x") == -1 && sherd_mesh_find_axis(mesh, NULL) == -1);
    ANSWERS(!sherd_mesh_coordinate(NULL, 0, &at) && !sherd_mesh_coordinate(mesh, -1, &at));
    ANSWERS(!sherd_mesh_coordinate(mesh, 1 << 30, &at) && sherd_mesh_coordinate(mesh, 0, NULL));
    ANSWERS(strcmp(sherd_mesh_text(NULL), "") == 0);
}

/* ---- layouts --------------------------------------------------------------------------------- */

MISUSE(a_layout_needs_all_that_it_is_made_of)
{
    const sherd_mesh *mesh = line(m->world);
    const sherd_layout *out;
    const sherd_placement r = sherd_replicate(), far = sherd_shard(2), near = sherd_shard(-3);
    const sherd_placement kind = {.kind = (sherd_placement_kind)9};
    const sherd_placement op = sherd_partial((sherd_reduce_op)9);
    const int64_t shape[] = {4, 3}, negative[] = {4, -1}, huge[] = {INT64_MAX, 2};

    REFUSES(SHERD_EINVAL, sherd_layout_create(NULL, mesh, 2, shape, &r, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_layout_create(&out, NULL, 2, shape, &r, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, NULL, &r, NULL));
    REFUSES(SHERD_OK, sherd_layout_create(&out, mesh, 0, NULL, &r, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, shape, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, -1, shape, &r, NULL));
    REFUSES(SHERD_ELIMIT, sherd_layout_create(&out, mesh, 9, shape, &r, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, negative, &r, NULL));
    REFUSES(SHERD_ELIMIT, sherd_layout_create(&out, mesh, 2, huge, &r, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, shape, &far, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, shape, &near, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, shape, &kind, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 2, shape, &op, NULL));
    ANSWERS(out == NULL);
}

MISUSE(orders_and_sizes_must_fit)
{
    const sherd_mesh *mesh = line(m->world);
    const sherd_layout *out;
    const sherd_placement s = sherd_shard(0);
    const int64_t shape[] = {4}, sizes[SHERD_MAX_RANKS] = {-4, 8}, *by_dim[] = {sizes};
    const int order[] = {-1}, far[] = {1 << 30};

    REFUSES(SHERD_EINVAL,
            sherd_layout_create(&out, mesh, 1, shape, &s, &(sherd_layout_options){.order = order}));
    REFUSES(SHERD_EINVAL,
            sherd_layout_create(&out, mesh, 1, shape, &s, &(sherd_layout_options){.order = far}));
    REFUSES(SHERD_EINVAL, sherd_layout_create(&out, mesh, 1, shape, &s,
                                              &(sherd_layout_options){.sizes = by_dim}));
    ANSWERS(out == NULL);
}

MISUSE(a_layout_from_text_needs_a_text)
{
    const sherd_mesh *mesh = line(m->world);
    const sherd_layout *out = NULL;
    const int64_t shape[] = {4, 3};

    REFUSES(SHERD_EINVAL, sherd_layout_parse_placements(NULL, mesh, 2, shape, "R", NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_layout_parse_placements(&out, NULL, 2, shape, "R", NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_parse_placements(&out, mesh, 2, NULL, "R", NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_parse_placements(&out, mesh, 2, shape, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_parse_placements(&out, mesh, 2, shape, "", NULL));
    REFUSES(SHERD_EINVAL, sherd_layout_parse_placements(&out, mesh, -1, shape, "R", NULL));
    REFUSES(SHERD_ELIMIT, sherd_layout_parse_placements(&out, mesh, 9, shape, "R", NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_layout_parse(NUL(&out), m->world, "[4] on (x=1)", NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_layout_parse(&out, m->world, NUL("[4] on (x=1)"), NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_layout_parse(&out, m->world, BAD("", "[4] on (x=1)"), NULL));
    CHECK(out == NULL);
}

MISUSE(another_placement_needs_a_layout_and_its_mesh)
{
    const sherd_mesh *mesh = line(m->world), *other;
    const sherd_layout *layout = rows(mesh), *out;
    const sherd_placement r = sherd_replicate();
    sherd_world *second = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_mesh_parse(&other, second, "x=1"));
    REFUSES(SHERD_EINVAL, sherd_layout_with(NULL, layout, mesh, 0, r));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, NULL, mesh, 0, r));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, layout, NULL, 0, r));
    ONLY_SAYS(SHERD_EINVAL, sherd_layout_with(&out, NULL, NULL, 0, r));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, layout, mesh, -1, r));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, layout, mesh, 1, r));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, layout, mesh, 0, sherd_shard(2)));
    REFUSES(SHERD_EINVAL, sherd_layout_with(&out, layout, other, 0, r));
    ANSWERS(out == NULL);
    CHECK_OK(sherd_world_close(second));
}

MISUSE(questions_to_no_layout_have_an_answer)
{
    const sherd_layout *layout = rows(line(m->world));
    sherd_box none = sherd_layout_box(NULL, 0, 0), beyond = sherd_layout_box(layout, -1, 7);

    ANSWERS(sherd_layout_mesh(NULL) == NULL && sherd_layout_ndim(NULL) == 0);
    ANSWERS(sherd_layout_shape(NULL) == NULL && sherd_layout_boxes(NULL, 0) == 0);
    ANSWERS(sherd_layout_placement(NULL, 0).kind == SHERD_REPLICATE);
    ANSWERS(sherd_layout_placement(layout, -1).kind == SHERD_REPLICATE);
    ANSWERS(sherd_layout_placement(layout, 1).kind == SHERD_REPLICATE);
    ANSWERS(none.ndim == 0 && beyond.ndim == 2 && beyond.size[0] == 0);
    ANSWERS(sherd_layout_boxes(layout, -1) == 0 && sherd_layout_boxes(layout, 1 << 30) == 0);
    ANSWERS(sherd_layout_dim_axes(NULL, 0) == 0 && sherd_layout_dim_axes(layout, 2) == 0);
    ANSWERS(sherd_layout_dim_axis(NULL, 0, 0) == -1 && sherd_layout_dim_axis(layout, -1, 0) == -1);
    ANSWERS(sherd_layout_dim_axis(layout, 0, 1) == -1 &&
            sherd_layout_dim_axis(layout, 0, -1) == -1);
    ANSWERS(sherd_layout_order(NULL, 0) == -1 && sherd_layout_order(layout, -1) == -1);
    ANSWERS(sherd_layout_order(layout, 1) == -1 && sherd_layout_dim_shards(NULL, 0) == 0);
    ANSWERS(sherd_layout_dim_shards(layout, -1) == 0 && sherd_layout_dim_cut(NULL, 0, 0) == -1);
    ANSWERS(sherd_layout_dim_cut(layout, 2, 0) == -1 && sherd_layout_dim_cut(layout, 0, -1) == -1);
    ANSWERS(sherd_layout_dim_cut(layout, 0, INT64_MAX) == -1);
    ANSWERS(sherd_balanced_cuts(NULL, 4, 2, 1, 1) == SHERD_EINVAL);
    ANSWERS(!sherd_layout_dim_has_cuts(NULL, 0) && !sherd_layout_dim_has_cuts(layout, 9));
    ANSWERS(strcmp(sherd_layout_text(NULL), "") == 0);
    ANSWERS(sherd_layout_retain(NULL) == NULL);
    sherd_layout_release(NULL);
    ANSWERS(strcmp(sherd_layout_placements(NULL), "") == 0);
}

/* ---- plans ----------------------------------------------------------------------------------- */

MISUSE(a_plan_needs_two_layouts_of_one_world)
{
    const sherd_layout *from = rows(line(m->world)), *to;
    const sherd_plan *out;
    sherd_world *second = NULL;
    sherd_plan_options flattened = {.flattened_count = 1}, planner = {.planner = (sherd_planner)9};
    sherd_price price = {.kind = (sherd_price_kind)9};

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_layout_parse(&to, second, "[4,3(x)] on (x=1)", NULL));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, from, to, SHERD_F32, NULL));
    CHECK_OK(sherd_layout_with(&to, from, sherd_layout_mesh(from), 0, sherd_replicate()));
    REFUSES(SHERD_EINVAL, sherd_plan_create(NULL, from, to, SHERD_F32, NULL));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, NULL, to, SHERD_F32, NULL));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, from, NULL, SHERD_F32, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_plan_create(&out, NULL, NULL, SHERD_F32, NULL));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, from, to, (sherd_dtype)99, NULL));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, from, to, SHERD_F32, &flattened));
    REFUSES(SHERD_EINVAL, sherd_plan_create(&out, from, to, SHERD_F32, &planner));
    REFUSES(SHERD_EINVAL,
            sherd_plan_create(&out, from, to, SHERD_F32, &(sherd_plan_options){.price = &price}));
    ANSWERS(out == NULL);
    CHECK_OK(sherd_world_close(second));
}

MISUSE(questions_to_no_plan_have_an_answer)
{
    ANSWERS(sherd_plan_steps(NULL) == 0 && sherd_plan_step(NULL, 0) == NULL);
    ANSWERS(sherd_plan_price_of(NULL) == NULL && sherd_plan_cost(NULL) == 0);
    ANSWERS(sherd_plan_planner(NULL) == SHERD_PLANNER_EXACT);
    ANSWERS(strcmp(sherd_plan_trace(NULL), "") == 0);
}

MISUSE(a_price_needs_a_text)
{
    sherd_price price;

    REFUSES(SHERD_EINVAL, sherd_price_parse(NULL, m->world, "* 1 1 1"));
    REFUSES(SHERD_EINVAL, sherd_price_parse(&price, m->world, NULL));
    REFUSES(SHERD_EINVAL, sherd_price_parse(&price, m->world, ""));
}

static const check_test tests[] = {
    {TEST(numbers_that_mean_nothing_have_a_name), {1}},
    {TEST(questions_to_no_world_have_an_answer), {1, 2}},
    {TEST(a_list_of_moves_has_a_length), {1, 2}},
    {TEST(a_log_has_no_entry_beyond_its_ends), {1, 2}},
    {TEST(no_world_opens_without_a_place_for_it), {1, 2}},
    {TEST(a_carrier_is_whole_and_is_closed_once), {1}},
    {TEST(a_world_is_closed_by_whom_it_belongs_to), {1, 2}},
    {TEST(what_needs_a_world_says_so), {1, 2}},
    {TEST(a_meeting_that_a_rank_missed_is_found_in_the_next), {2, 3}},
    {TEST(a_failure_of_the_callers_own_may_have_no_text), {1, 2}},
    {TEST(a_mesh_is_made_by_all_or_refused_by_all), {1, 2, 3}},
    {TEST(ranks_are_selected_by_axis_and_index), {1, 2}},
    {TEST(a_part_of_a_mesh_is_named_axis_by_axis), {1, 2}},
    {TEST(questions_to_no_mesh_have_an_answer), {1, 2}},
    {TEST(a_layout_needs_all_that_it_is_made_of), {1, 2}},
    {TEST(orders_and_sizes_must_fit), {1, 2}},
    {TEST(a_layout_from_text_needs_a_text), {1, 2, 3}},
    {TEST(another_placement_needs_a_layout_and_its_mesh), {1, 2}},
    {TEST(questions_to_no_layout_have_an_answer), {1, 2}},
    {TEST(a_plan_needs_two_layouts_of_one_world), {1, 2}},
    {TEST(questions_to_no_plan_have_an_answer), {1, 2}},
    {TEST(a_price_needs_a_text), {1, 2}},
};
CHECK_MAIN(tests)
