/* SPDX-License-Identifier: Apache-2.0 */
/* Between local and global: pieces put together, pieces that do not fit, and one rank's tensor
 * spread over all. */
#include "tensors.h"

#include "sherd/comm.h"

static const sherd_placement none[SHERD_MAX_AXES];

/* This rank's piece of a layout, cut out of a plain tensor of indices. */
static sherd_tensor *piece_of(const sherd_layout *layout)
{
    sherd_tensor *t = sherd__local_view(indices_on(layout, SHERD_F32));
    sherd__layout_set(&t->was, NULL);
    t->varies = (unsigned)SHERD__VARIES;
    return t;
}

static sherd_placement *placements_of(const sherd_layout *layout, sherd_placement *out)
{
    for (int a = 0; a < layout->spec.mesh->axes; a++)
        out[a] = sherd_layout_placement(layout, a);
    return out;
}

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};

static void pieces_and_a_shape_make_the_tensor(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(0)S(0)", "P(sum)S(1)", "S(1)R"};
    sherd_placement p[SHERD_MAX_AXES];

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < LEN(placements); i++) {
            const sherd_layout *layout = layout_of(mesh, 2, shapes[s], placements[i], NULL);
            sherd_tensor *piece = piece_of(layout);
            sherd_from_local_options options = {.shape = shapes[s]};
            sherd_tensor *t = sherd__from_local(piece, mesh, placements_of(layout, p), &options);
            CHECK(t->layout == layout);
            CHECK(t->storage == piece->storage);
            CHECK_EQ(t->varies, 0);
            int64_t nowhere[SHERD_MAX_AXES] = {0};
            const sherd_layout *whole = layout_of(mesh, 2, shapes[s], "RR", NULL);
            CHECK_EQ(
                count_wrong(sherd__move_to(t, whole, false), addends_of(layout, nowhere, NULL)), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static void explicit_sizes_and_order_are_taken(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[2] = {10, 6}, sizes0[4] = {1, 0, 6, 3};
    const int64_t *sizes[2] = {sizes0, NULL};
    int order[2] = {1, 0};
    const sherd_layout *layout = layout_of(mesh, 2, shape, "S(0)[1]S(0)[0]", "0:1,0,6,3");
    sherd_placement p[SHERD_MAX_AXES];
    sherd_from_local_options options = {.shape = shape, .sizes = sizes, .order = order};
    sherd_tensor *t = sherd__from_local(piece_of(layout), mesh, placements_of(layout, p), &options);

    CHECK(t->layout == layout);
    CHECK_EQ(count_wrong(t, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

static void shape_and_cuts_follow_from_the_pieces(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const struct {
        const char *placements, *cuts;
    } cases[] = {{"S(0)S(1)", NULL},        {"S(0)S(1)", "0:3,7;1:6,0"},
                 {"S(0)S(0)", "0:1,0,9,0"}, {"S(0)[1]S(0)[0]", "0:4,1,0,5"},
                 {"RS(1)", "1:1,5"},        {"RR", NULL},
                 {"P(sum)R", NULL},         {"P(sum)S(0)", "0:0,10"}};
    int64_t shape[2] = {10, 6};

    for (int i = 0; i < LEN(cases); i++) {
        const sherd_layout *layout = layout_of(mesh, 2, shape, cases[i].placements, cases[i].cuts);
        int order[2] = {1, 0};
        sherd_placement p[SHERD_MAX_AXES];
        sherd_from_local_options options = {
            .mode = SHERD_FROM_INFER, .order = strchr(cases[i].placements, '[') ? order : NULL};
        sherd_tensor *t =
            sherd__from_local(piece_of(layout), mesh, placements_of(layout, p), &options);
        CHECK(t->layout == layout);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_piece_remembers_where_it_was(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    int64_t shape[2] = {10, 6};
    const sherd_layout *layout = layout_of(mesh, 2, shape, "S(0)R", "0:2,8");
    sherd_tensor *piece = sherd__local_view(indices_on(layout, SHERD_F32));
    sherd_placement p[SHERD_MAX_AXES];

    CHECK_EQ(piece->varies, 1);
    CHECK(piece->was == layout);
    sherd_tensor *t = sherd__from_local(piece, mesh, placements_of(layout, p), NULL);
    CHECK(t->layout == layout);
    CHECK_EQ(count_wrong(t, 1), 0);
    CHECK_OK(sherd_world_check(world));
    /* Other placements than it had: a shape is needed again. */
    p[0] = sherd_shard(1);
    CHECK(sherd_tensor_failed(sherd__from_local(piece, mesh, p, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

/* What ranks decide by must be the same on all, whoever has the piece that it comes from. */
static void one_strided_piece_is_known_to_all(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_placement rows[] = {sherd_shard(0)};
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    int ranks = sherd_world_ranks(world);

    for (int which = 0; which <= ranks; which++) {
        sherd_tensor *piece = indices_plain(world, SHERD_F32, 2, (int64_t[]){3, 3});
        piece->autograd.of_leaf = sherd_world_rank(world) != which;
        piece->strided = sherd_world_rank(world) == which;
        sherd_tensor *t = sherd__from_local(piece, mesh, rows, &infer);
        CHECK_EQ(t->strided, which < ranks);
        CHECK_EQ(t->autograd.of_leaf, which == ranks);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_sub_mesh_replicates_over_the_rest(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "dp=2,tp=2"), *tp = NULL;
    const char *names[] = {"tp"};
    int64_t shape[2] = {5, 4};
    sherd_placement p[1] = {sherd_shard(-2)};
    sherd_from_local_options options = {.shape = shape};

    CHECK_OK(sherd_mesh_slice(&tp, mesh, 1, names));
    const sherd_layout *layout = layout_of(mesh, 2, shape, "RS(0)", NULL);
    sherd_tensor *t = sherd__from_local(piece_of(layout), tp, p, &options);
    CHECK(t->layout == layout);
    options = (sherd_from_local_options){.mode = SHERD_FROM_INFER};
    CHECK(sherd__from_local(piece_of(layout), tp, p, &options)->layout == layout);
    CHECK_OK(sherd_world_check(world));
}

/* The verdict is the same on all ranks, whoever has the piece that does not fit. */
static void pieces_that_do_not_fit_are_an_error_on_all(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    char text[32];
    snprintf(text, sizeof text, "%d", ranks);
    const sherd_mesh *mesh = mesh_of(world, text);
    sherd_placement rows[1] = {sherd_shard(0)}, whole[1] = {sherd_replicate()};

    for (int odd = 0; odd < ranks; odd++) {
        int64_t mine[2] = {rank == odd ? 3 : 2, 4}, shape[2] = {2 * ranks, 4};
        int64_t tall[2] = {2, rank == odd ? 5 : 4};
        sherd_from_local_options chunk = {.shape = shape}, infer = {.mode = SHERD_FROM_INFER};

        CHECK(sherd_tensor_failed(
            sherd__from_local(indices_plain(world, SHERD_F32, 2, mine), mesh, rows, &chunk)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        snprintf(text, sizeof text, "rank %d", odd);
        CHECK(strstr(strchr(sherd_world_error(world), ':'), text) != NULL);

        CHECK(sherd_tensor_failed(
            sherd__from_local(indices_plain(world, SHERD_F32, 2, tall), mesh, rows, &infer)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(sherd_tensor_failed(
            sherd__from_local(indices_plain(world, SHERD_F32, 2, mine), mesh, whole, NULL)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK_OK(sherd_world_check(world));
    }
}

static void expect(sherd_world *world, sherd_status status, const char *text)
{
    CHECK_EQ(sherd_world_check(world), status);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

static void arguments_that_differ_are_ediffer_on_all(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    bool odd = sherd_world_rank(world) == 1;
    int64_t shape[2] = {4, 4}, half[2] = {2, 4}, other[2] = {odd ? 4 : 5, 4}, one[1] = {2};
    sherd_placement rows[1] = {sherd_shard(0)}, mixed[1] = {sherd_shard(odd)};
    sherd_from_local_options chunk = {.shape = shape}, differ = {.shape = other};
    sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    sherd_tensor *piece = indices_plain(world, SHERD_F32, 2, half);

    sherd__from_local(indices_plain(world, odd ? SHERD_F64 : SHERD_F32, 2, half), mesh, rows,
                      &chunk);
    expect(world, SHERD_EDIFFER, "rank 1 passed the dtype f64, not f32 as rank 0");
    sherd__from_local(piece, mesh, rows, &differ);
    expect(world, SHERD_EDIFFER, "rank 1 passed another shape, or other cuts (here [");
    sherd__from_local(piece, mesh, mixed, &infer);
    expect(world, SHERD_EDIFFER, "rank 1 passed other placements (here S(");
    sherd__from_local(odd ? indices_plain(world, SHERD_F32, 1, one) : piece, mesh, rows, &infer);
    expect(world, SHERD_EDIFFER, "a piece of 1 dims, not 2 as rank 0");
    sherd__from_local(piece, mesh, rows, odd ? &infer : &chunk);
    expect(world, SHERD_EDIFFER, "the mode SHERD_FROM_INFER, not SHERD_FROM_CHUNK as rank 0");
    piece->autograd.requires_grad = odd;
    sherd__from_local(piece, mesh, rows, &infer);
    expect(world, SHERD_EDIFFER, "a piece that requires a gradient, other than rank 0");
    CHECK_OK(sherd_world_check(world));
}

static void wrong_options_are_refused(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {4, 4}, half[2] = {2, 4}, sizes0[2] = {1, 3};
    const int64_t large[2] = {(int64_t)1 << 61, 0}, *sizes[2] = {sizes0, NULL};
    const sherd_from_local_options infer = {.mode = SHERD_FROM_INFER};
    sherd_placement rows[1] = {sherd_shard(0)}, bad[1] = {sherd_shard(2)};
    sherd_tensor *piece = indices_plain(world, SHERD_F32, 2, half);
    sherd_from_local_options options[] = {{.mode = SHERD_FROM_INFER, .shape = shape},
                                          {.sizes = sizes},
                                          {.mode = (sherd_from_local_mode)9},
                                          {.shape = NULL}};

    for (int i = 0; i < LEN(options); i++) {
        CHECK(sherd_tensor_failed(sherd__from_local(piece, mesh, rows, &options[i])));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    }
    CHECK(sherd_tensor_failed(sherd__from_local(piece, mesh, bad, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, "R", NULL), SHERD_F32);
    CHECK(sherd_tensor_failed(sherd__from_local(t, mesh, none, NULL)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(sherd_tensor_failed(sherd__local_view(piece)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    sherd__from_local(piece, mesh_of(world, "x=1@1"), rows, &infer);
    expect(world, SHERD_EINVAL, "this rank is not in the mesh: give the shape");
    sherd__from_local(sherd_constant(world, SHERD_F32, large, 2, 1), mesh, rows, &infer);
    expect(world, SHERD_ELIMIT, "a dim of size 2^62 or more");
    CHECK_OK(sherd_world_check(world));
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;
    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

/* From one rank, whatever the others have: each receives its box and no more. */
static void a_root_sends_each_rank_its_box(sherd_world *world)
{
    static const char *const meshes[] = {"1", "2", "3", "2x2"};
    static const char *const placements[][4] = {{"R", "S(0)", "S(1)"},
                                                {"R", "S(0)", "S(1)"},
                                                {"R", "S(0)", "S(1)"},
                                                {"RR", "S(0)S(1)", "S(0)S(0)", "S(1)R"}};
    int ranks = sherd_world_ranks(world), rank = sherd_world_rank(world);
    const sherd_mesh *mesh = mesh_of(world, meshes[ranks - 1]);

    for (int s = 0; s < LEN(shapes); s++)
        for (int p = 0; p < 4 && placements[ranks - 1][p]; p++)
            for (int root = 0; root<ranks; root += ranks> 1 ? ranks - 1 : 1) {
                const sherd_layout *layout =
                    layout_of(mesh, 2, shapes[s], placements[ranks - 1][p], NULL);
                sherd_tensor *t = rank == root ? indices_plain(world, SHERD_F32, 2, shapes[s])
                                               : sherd_constant(world, SHERD_F32, shapes[s], 2, -1);
                sherd_comm_reset(world);
                sherd_tensor *d = sherd_distribute(t, layout, root);
                CHECK(d->layout == layout);
                CHECK(d->storage != t->storage);
                CHECK_EQ(count_wrong(d, 1), 0);
                CHECK_EQ(received(world), rank == root ? 0 : 4 * d->count);
                /* Writing the plain tensor again does not show. */
                if (t->count > 0)
                    ((float *)sherd_tensor_write(t))[0] = -5;
                CHECK_EQ(count_wrong(d, 1), 0);
            }
    CHECK_OK(sherd_world_check(world));
}

static void a_scalar_is_sent(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 1 ? "1" : "2");
    const sherd_layout *layout = layout_of(mesh, 0, NULL, "R", NULL);
    int last = sherd_world_ranks(world) - 1;
    bool root = sherd_world_rank(world) == last;
    sherd_tensor *t = sherd_constant(world, SHERD_F64, NULL, 0, root ? 7 : 1);
    sherd_tensor *d = sherd_distribute(t, layout, last);

    CHECK(d->layout == layout);
    CHECK_EQ(sherd_tensor_ndim(d), 0);
    CHECK(sherd_item(d) == 7);
    CHECK_OK(sherd_world_check(world));
}

static void equal_copies_are_cut_and_nothing_travels(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2x2");
    static const char *const placements[] = {"RR", "S(0)S(1)", "S(1)S(1)"};

    for (int s = 0; s < LEN(shapes); s++)
        for (int p = 0; p < LEN(placements); p++) {
            const sherd_layout *layout = layout_of(mesh, 2, shapes[s], placements[p], NULL);
            sherd_tensor *t = sherd_mark_equal(indices_plain(world, SHERD_F32, 2, shapes[s]));
            sherd_comm_reset(world);
            sherd_tensor *d = sherd_distribute(t, layout, -1);
            CHECK(d->layout == layout);
            CHECK(d->storage != t->storage);
            CHECK_EQ(count_wrong(d, 1), 0);
            CHECK_EQ(sherd_comm_count(world), 0);
        }
    CHECK_OK(sherd_world_check(world));
}

static void distributing_refuses_what_it_cannot(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {4, 4}, other[2] = {4, 5};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    sherd_tensor *t = indices_plain(world, SHERD_F32, 2, shape);
    sherd_tensor *results[] = {
        sherd_distribute(t, rows, -1),
        NULL,
    };

    CHECK(sherd_tensor_failed(results[0]));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_mark_equal") != NULL);
    for (int i = 0; i < 5; i++) {
        sherd_tensor *d =
            i == 0   ? sherd_distribute(t, layout_of(mesh, 2, other, "R", NULL), 0)
            : i == 1 ? sherd_distribute(t, layout_of(mesh, 2, shape, "P(sum)", NULL), 0)
            : i == 2 ? sherd_distribute(t, rows, 2)
            : i == 3 ? sherd_distribute(t, rows, -2)
                     : sherd_distribute(sherd_constant_on(rows, SHERD_F32, 1), rows, 0);
        CHECK(sherd_tensor_failed(d));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    }
    sherd_dtype dtype = sherd_world_rank(world) ? SHERD_F32 : SHERD_F64;
    sherd_distribute(sherd_constant(world, dtype, shape, 2, 1), rows, 0);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK_OK(sherd_world_check(world));
}

/* A tensor that failed on one rank only: the others wait for its piece and must learn of it. */
static void a_failed_piece_fails_all(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "2");
    int64_t shape[2] = {4, 4}, half[2] = {sherd_world_rank(world) ? 2 : -2, 4};
    sherd_placement rows[1] = {sherd_shard(0)};
    sherd_from_local_options chunk = {.shape = shape};

    CHECK(sherd_tensor_failed(
        sherd__from_local(sherd_constant(world, SHERD_F32, half, 2, 1), mesh, rows, &chunk)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "size -2") != NULL);
    half[0] *= 2;
    sherd_tensor *t = sherd_distribute(sherd_constant(world, SHERD_F32, half, 2, 1),
                                       layout_of(mesh, 2, shape, "R", NULL), 1);
    /* The root has all that it needs, and may be done before the other one fails. */
    CHECK(sherd_tensor_failed(t) || sherd_world_rank(world) == 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_check(world));
}

static void local_scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    int64_t shape[2] = {4, 4}, half[2] = {2, 4};
    sherd_placement rows[1] = {sherd_shard(0)};
    sherd_from_local_options chunk = {.shape = shape}, infer = {.mode = SHERD_FROM_INFER};

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "2") == SHERD_OK &&
        sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)", NULL) == SHERD_OK) {
        sherd_tensor *piece = sherd_constant(world, SHERD_F32, half, 2, 1);
        sherd__from_local(piece, mesh, rows, &chunk);
        sherd__from_local(piece, mesh, rows, &infer);
        sherd_tensor *t =
            sherd_distribute(sherd_constant(world, SHERD_F32, shape, 2, 1), layout, 1);
        sherd__from_local(piece, mesh, rows, &infer); /* who has failed before is not here */
        if (t->storage)
            sherd__from_local(sherd__local_view(t), mesh, rows, NULL);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, local_scene);
    fail_every_allocation(world, 1, local_scene);
}

static const check_test tests[] = {
    {TEST(pieces_and_a_shape_make_the_tensor), {4}},
    {TEST(explicit_sizes_and_order_are_taken), {4}},
    {TEST(shape_and_cuts_follow_from_the_pieces), {4}},
    {TEST(a_piece_remembers_where_it_was), {4}},
    {TEST(one_strided_piece_is_known_to_all), {1, 2, 3}},
    {TEST(a_sub_mesh_replicates_over_the_rest), {4}},
    {TEST(pieces_that_do_not_fit_are_an_error_on_all), {2, 3}},
    {TEST(arguments_that_differ_are_ediffer_on_all), {2}},
    {TEST(wrong_options_are_refused), {2}},
    {TEST(a_root_sends_each_rank_its_box), {1, 2, 3, 4}},
    {TEST(a_scalar_is_sent), {1, 2}},
    {TEST(equal_copies_are_cut_and_nothing_travels), {4}},
    {TEST(distributing_refuses_what_it_cannot), {2}},
    {TEST(a_failed_piece_fails_all), {2}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
