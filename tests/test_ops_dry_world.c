/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators in dry worlds: indices that nobody knows are spread evenly; sizes that no machine has
 * take no memory; what is wrong is said as on real ranks, and the world goes on; lack of memory.
 */
#include "dry.h"
#include "tensors.h"

#include "sherd/ops.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_points.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/ops_stencil.h"

#include <sys/resource.h>

#define SHAPE(...)    \
    (const int64_t[]) \
    {                 \
        __VA_ARGS__   \
    }

static const sherd_layout *laid(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                const char *placements)
{
    const sherd_layout *layout = NULL;

    return sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL) ? NULL
                                                                                       : layout;
}

static sherd_tensor *zeroes(const sherd_mesh *mesh, sherd_dtype dtype, int ndim,
                            const int64_t *shape, const char *placements)
{
    const sherd_layout *layout = laid(mesh, ndim, shape, placements);

    return layout ? sherd_constant_on(layout, dtype, 0)
                  : sherd__fail_diag(sherd__space_world(mesh->space), true);
}

static sherd_tensor *graded(sherd_tensor *t)
{
    sherd_require_grad(t, true);
    return t;
}

/* ---- indices --------------------------------------------------------------------------------- */

enum { ENTRIES = 48, TAKEN = 20, ROW = 8192 };

/* On each rank index j of its n is for entry j ENTRIES / n. */
static void spread_evenly(sherd_tensor *t)
{
    const sherd_box box = sherd_tensor_box(t);
    int64_t n = sherd_tensor_failed(t) ? 0 : 1;
    int32_t *to;

    for (int d = 0; d < box.ndim; d++)
        n *= box.size[d];
    to = n ? sherd_tensor_write(t) : NULL;
    for (int64_t j = 0; to && j < n; j++)
        to[j] = (int32_t)(j * ENTRIES / n);
}

/* Rows of a sharded table, and their gradients back: both by exchanges with those that have them. */
static void take_on(const sherd_mesh *mesh, const char *how)
{
    sherd_tensor *table = zeroes(mesh, SHERD_F32, 2, SHAPE(ENTRIES, ROW), "S(0)");
    sherd_tensor *index = zeroes(mesh, SHERD_I32, 1, SHAPE(TAKEN), how);

    spread_evenly(index);
    sherd_require_grad(table, true);
    sherd_tensor *rows = sherd_index_select(table, 0, index);
    sherd_backward(sherd_sum(sherd_mul(rows, rows)));
    sherd_grad(table);
}

/* The same of elements, each with an index of its own; and elements added to the table. */
static void take_elements(sherd_world *world, void *context)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    sherd_tensor *table = graded(zeroes(mesh, SHERD_F32, 2, SHAPE(ENTRIES, ROW), "S(0)"));
    sherd_tensor *index = zeroes(mesh, SHERD_I32, 2, SHAPE(TAKEN, ROW), context);
    sherd_tensor *more = graded(zeroes(mesh, SHERD_F32, 2, SHAPE(TAKEN, ROW), context));

    spread_evenly(index);
    sherd_backward(sherd_sum(sherd_gather(table, 0, index)));
    sherd_backward(sherd_sum(sherd_scatter_add(table, 0, index, more)));
    sherd_cast(
        sherd_scatter_add(sherd_cast(table, SHERD_BF16), 0, index, sherd_cast(more, SHERD_BF16)),
        SHERD_F32);
}

static void take_rows(sherd_world *world, void *context)
{
    take_on(line_of_ranks(world), context);
}

static void even_requests_are_the_same_dry(sherd_world *world)
{
    const sherd_comm_filter exchanges = {.op = "exchange"};
    int ranks = sherd_world_ranks(world);

    CHECK(same_dry(world, take_rows, (void *)(uintptr_t) "S(0)"));
    CHECK(same_dry(world, take_rows, (void *)(uintptr_t) "R"));
    CHECK(same_dry(world, take_elements, (void *)(uintptr_t) "S(0)"));
    CHECK(same_dry(world, take_elements, (void *)(uintptr_t) "R"));
    sherd_comm_reset(world);
    take_rows(world, (void *)(uintptr_t) "S(0)");
    CHECK_OK(sherd_world_check(world));
    CHECK(ranks == 1 || sherd_comm_calls(world, &exchanges) >= 3);
}

/* ---- without memory -------------------------------------------------------------------------- */

enum { RANKS = 64 };

static const int64_t M = 1 << 20;

static void multiply(const sherd_mesh *mesh)
{
    sherd_tensor *x = graded(zeroes(mesh, SHERD_F32, 2, SHAPE(M, M), "S(0)R")); /* 4 TiB */
    sherd_tensor *w = graded(zeroes(mesh, SHERD_BF16, 2, SHAPE(M, M), "RS(0)"));
    sherd_tensor *y = sherd_linear(sherd_cast(x, SHERD_BF16), w, NULL);

    sherd_backward(sherd_sum(sherd_softmax(sherd_gelu(y), -1)));
    CHECK(!sherd_tensor_failed(sherd_grad(w)));
}

static void attend(const sherd_mesh *mesh)
{
    const int64_t shape[] = {8, M, 64, 128};
    sherd_tensor *q = graded(zeroes(mesh, SHERD_BF16, 4, shape, "S(1)S(2)"));

    sherd_backward(sherd_sum(sherd_attention(
        q, q, q, &(sherd_attention_options){.causal = true, .way = SHERD_ATTENTION_RING})));
    CHECK(!sherd_tensor_failed(sherd_grad(q)));
}

static void norm_and_lose(const sherd_mesh *mesh)
{
    sherd_tensor *x = graded(zeroes(mesh, SHERD_F32, 2, SHAPE(M, 256 * M / 1024), "S(0)S(1)"));
    sherd_tensor *ids = zeroes(mesh, SHERD_I32, 1, SHAPE(M), "S(0)R");

    sherd_backward(sherd_cross_entropy(sherd_layer_norm(x, NULL, NULL, 1e-5), ids));
    sherd_sort(x, 0, false, NULL);
    sherd_cumsum(x, 1);
    sherd_argmax(x, (int[]){0}, 1, false);
    sherd_max(x, (int[]){1}, 1, false);
    CHECK(!sherd_tensor_failed(sherd_grad(x)));
}

static void convolve(const sherd_mesh *mesh)
{
    sherd_tensor *x = graded(zeroes(mesh, SHERD_F32, 4, SHAPE(64, 16, 65536, 4096), "S(0)S(2)"));
    sherd_tensor *w = graded(zeroes(mesh, SHERD_F32, 4, SHAPE(16, 16, 3, 3), "RR"));
    const sherd_conv_options how = {.before = {1, 1}, .after = {1, 1}};
    sherd_tensor *y = sherd_conv(x, w, NULL, &how);

    y = sherd_max_pool(y, &(sherd_pool_options){.kernel = {2, 2}, .stride = {2, 2}}, NULL);
    sherd_backward(sherd_sum(sherd_batch_norm(y, NULL)));
    CHECK(!sherd_tensor_failed(sherd_grad(w)));
}

static void dispatch(const sherd_mesh *mesh)
{
    sherd_tensor *x = graded(zeroes(mesh, SHERD_BF16, 2, SHAPE(M, 16384), "S(0)S(0)"));
    sherd_tensor *choice = zeroes(mesh, SHERD_I32, 2, SHAPE(M, 2), "S(0)S(0)");
    sherd_tensor *w = graded(zeroes(mesh, SHERD_BF16, 3, SHAPE(256, 16384, 16384), "RS(0)"));
    sherd_groups to;

    CHECK(sherd_group_rows(&to, choice, w));
    sherd_tensor *rows = sherd_grouped_linear(sherd_dispatch(x, &to), w, NULL, to.ends, to.group);
    sherd_backward(sherd_sum(sherd_combine(rows, &to, NULL)));
    CHECK(!sherd_tensor_failed(sherd_grad(w)));
}

static long peak_kilobytes(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* `verify`: also where contents are compared (SHERD_VERIFY), of which there are none. */
static void run_all(bool verify)
{
    static void (*const programs[])(const sherd_mesh *mesh) = {multiply, attend, norm_and_lose,
                                                               convolve, dispatch};
    sherd_world *dry = NULL;
    const sherd_mesh *mesh = NULL;

    if (verify)
        setenv("SHERD_VERIFY", "1", 1);
    CHECK_OK(sherd_world_dry(&dry, RANKS, 3, NULL, NULL));
    unsetenv("SHERD_VERIFY");
    CHECK_OK(sherd_mesh_parse(&mesh, dry, "dp=8,tp=8"));
    for (int i = 0; i < LEN(programs); i++) {
        sherd_scope_begin(dry);
        programs[i](mesh);
        sherd_scope_end(dry);
        if (!CHECK_OK(sherd_world_check(dry)))
            fprintf(stderr, "  program %d: %s\n", i, sherd_world_error(dry));
        CHECK_EQ(sherd_world_memory(dry).live_bytes, 0);
    }
    CHECK(sherd_world_memory(dry).peak_bytes >> 39 > 0);
    CHECK_OK(sherd_world_close(dry));
}

static void terabytes_take_no_memory(sherd_world *world)
{
    long before = peak_kilobytes();

    (void)world;
    if (!DRY_TERABYTES)
        return;
    run_all(false);
    run_all(true);
    CHECK(peak_kilobytes() - before < 200 << 10);
}

/* What was written into memory that is taken again is not what is computed there. */
static void what_is_left_out_is_zero(sherd_world *world)
{
    sherd_world *dry = NULL;

    (void)world;
    CHECK_OK(sherd_world_dry(&dry, 2, 0, NULL, NULL));
    sherd_tensor *x = sherd_constant(dry, SHERD_F32, SHAPE(3), 1, 1);
    for (int i = 0; i < 3; i++) {
        sherd_scope_begin(dry);
        const float seven = 7;
        CHECK_EQ(sherd_item(sherd_from_data(dry, SHERD_F32, NULL, 0, &seven)), 7.0);
        sherd_scope_end(dry);
        sherd_scope_begin(dry);
        CHECK_EQ(sherd_item(sherd_sum(x)), 0.0);
        sherd_scope_end(dry);
    }
    CHECK_OK(sherd_world_close(dry));
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void multiply_misfits(sherd_world *world, void *context)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)context;
    sherd_matmul(zeroes(mesh, SHERD_F32, 2, SHAPE(4, 6), "S(0)"),
                 zeroes(mesh, SHERD_F32, 2, SHAPE(5, 6), "R"));
}

static void normalise_by_nothing(sherd_world *world, void *context)
{
    (void)context;
    sherd_group_norm(zeroes(line_of_ranks(world), SHERD_F32, 3, SHAPE(4, 6, 2), "S(0)"), 4, NULL,
                     NULL, 1e-5);
}

static void look_too_far(sherd_world *world, void *context)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)context;
    sherd_knn(zeroes(mesh, SHERD_F32, 2, SHAPE(4, 3), "S(0)"),
              zeroes(mesh, SHERD_F32, 2, SHAPE(4, 3), "S(0)"), 5, NULL);
}

static void errors_are_those_of_real_ranks(sherd_world *world)
{
    static const dry_program wrong[] = {multiply_misfits, normalise_by_nothing, look_too_far};
    sherd_world *dry = dry_as(world);
    account *both = calloc(2, sizeof *both);

    for (int i = 0; i < LEN(wrong) && CHECK(both && dry); i++) {
        run_into(&both[0], world, wrong[i], NULL);
        run_into(&both[1], dry, wrong[i], NULL);
        CHECK_EQ(both[1].status, SHERD_EINVAL);
        same_account(&both[0], &both[1]);
        CHECK(same_in(world, dry, take_rows, (void *)(uintptr_t) "S(0)"));
    }
    free(both);
    CHECK_OK(sherd_world_close(dry));
}

/* ---- lack of memory -------------------------------------------------------------------------- */

static void scene(const sherd_mesh *mesh)
{
    take_on(mesh, "S(0)");
    sherd_tensor *x = graded(zeroes(mesh, SHERD_F32, 2, SHAPE(12, 6), "S(1)"));
    sherd_tensor *choice = zeroes(mesh, SHERD_I32, 1, SHAPE(12), "S(0)");
    sherd_tensor *w = graded(zeroes(mesh, SHERD_F32, 3, SHAPE(8, 4, 6), "S(0)"));
    sherd_groups to;
    sherd_backward(sherd_sum(sherd_softmax(sherd_layer_norm(x, NULL, NULL, 1e-5), -1)));
    if (sherd_group_rows(&to, choice, w))
        sherd_combine(sherd_grouped_linear(sherd_dispatch(x, &to), w, NULL, to.ends, to.group), &to,
                      NULL);
}

/* The n-th allocation of a dry world fails, for every n. */
static void lack_of_memory_is_told(sherd_world *world)
{
    sherd_world *dry = NULL;

    (void)world;
    CHECK_OK(sherd_world_dry(&dry, 4, 1, NULL, NULL));
    const sherd_mesh *mesh = line_of_ranks(dry);
    for (int warm = 0; warm < 2; warm++) {
        sherd_status status = SHERD_ENOMEM;
        int64_t live = sherd__world_heap(dry)->live;
        for (int n = 1; status && n < 3000; n++) {
            sherd_scope_begin(dry);
            sherd_world_fail_allocation(dry, n);
            scene(mesh);
            sherd_world_fail_allocation(dry, 0);
            sherd_scope_end(dry);
            status = sherd_world_check(dry);
            CHECK(!status || status == SHERD_ENOMEM);
            CHECK_EQ(sherd_world_memory(dry).live_bytes, 0);
            if (warm)
                CHECK_EQ(sherd__world_heap(dry)->live, live);
        }
        CHECK_OK(status);
    }
    CHECK_OK(sherd_world_close(dry));
}

/* ---- operations ------------------------------------------------------------------------------ */

enum { ITEMS = 2, LENGTH = 12, HEADS = 4, HEAD = 16 };

/* How attention is laid, and what it runs. */
typedef struct attention {
    const char *placements, *mask; /* NULL: none */
    const char *forward, *back;
    sherd_attention_options how;
} attention;

static const attention attentions[] = {
    {"S(2)", NULL, "sherd_attention", "sherd_attention backward", {.causal = true}},
    {"S(0)", NULL, "sherd_attention", "sherd_attention backward", {.causal = false}},
    {"S(1)",
     NULL,
     "sherd_attention_pieces",
     "sherd_attention_pieces backward",
     {.causal = true, .way = SHERD_ATTENTION_RING}},
    {"S(1)",
     NULL,
     "sherd_attention_pieces",
     "sherd_attention_pieces backward",
     {.way = SHERD_ATTENTION_GATHER}},
    {"S(2)", "R", "sherd_attention_general", "sherd_attention_general backward", {.causal = true}},
};

static double operations_of(sherd_world *dry, const char *name)
{
    double all = 0;

    for (int i = 0; sherd_dry_work_at(dry, i).name; i++)
        if (strcmp(sherd_dry_work_at(dry, i).name, name) == 0)
            all += sherd_dry_work_at(dry, i).operations;
    return all;
}

static void attend_as(sherd_world *dry, const attention *a)
{
    const sherd_mesh *mesh = line_of_ranks(dry);
    const int64_t shape[] = {ITEMS, LENGTH, HEADS, HEAD};
    sherd_tensor *q = graded(zeroes(mesh, SHERD_F32, 4, shape, a->placements));
    sherd_attention_options how = a->how;

    if (a->mask)
        how.mask = zeroes(mesh, SHERD_F32, 2, SHAPE(LENGTH, LENGTH), a->mask);
    sherd_backward(sherd_sum(sherd_attention(q, q, q, &how)));
}

/* All ranks together do what one alone does, however it is laid. */
static void ranks_share_the_operations(sherd_world *world)
{
    enum { ALL = 4 };

    (void)world;
    for (int i = 0; i < LEN(attentions); i++) {
        const attention *a = &attentions[i];
        double pairs = a->how.causal ? LENGTH * (LENGTH + 1) / 2.0 : LENGTH * LENGTH;
        double want = 4.0 * ITEMS * HEADS * HEAD * pairs, forward = 0, back = 0;
        for (int r = 0; r < ALL; r++) {
            sherd_world *dry = NULL;
            CHECK_OK(sherd_world_dry(&dry, ALL, r, NULL, NULL));
            sherd_scope_begin(dry);
            attend_as(dry, a);
            sherd_scope_end(dry);
            CHECK_OK(sherd_world_check(dry));
            forward += operations_of(dry, a->forward);
            back += operations_of(dry, a->back);
            CHECK_OK(sherd_world_close(dry));
        }
        CHECK_NEAR(forward, want, 0.5);
        CHECK_NEAR(back, 2.5 * want, 0.5);
    }
}

/* Of neighbours, and of points, of which each rank looks at all for its queries. */
static void look_around(sherd_world *dry)
{
    const sherd_mesh *mesh = line_of_ranks(dry);
    sherd_tensor *q = graded(zeroes(mesh, SHERD_F32, 4, SHAPE(ITEMS, LENGTH, HEADS, HEAD), "S(1)"));
    sherd_tensor *points = zeroes(mesh, SHERD_F32, 2, SHAPE(40, 3), "R");

    sherd_backward(sherd_sum(
        sherd_neighbourhood_attention(q, q, q, &(sherd_neighbourhood_options){.kernel = {3}})));
    sherd_knn(points, zeroes(mesh, SHERD_F32, 2, SHAPE(20, 3), "S(0)"), 2, NULL);
}

static void neighbours_are_shared_too(sherd_world *world)
{
    enum { ALL = 4 };
    double forward = 0, back = 0, search = 0, want = 4.0 * ITEMS * LENGTH * HEADS * HEAD * 3;

    (void)world;
    for (int r = 0; r < ALL; r++) {
        sherd_world *dry = NULL;
        CHECK_OK(sherd_world_dry(&dry, ALL, r, NULL, NULL));
        sherd_scope_begin(dry);
        look_around(dry);
        sherd_scope_end(dry);
        CHECK_OK(sherd_world_check(dry));
        forward += operations_of(dry, "sherd_neighbourhood_attention");
        back += operations_of(dry, "sherd_neighbourhood_attention backward");
        search += operations_of(dry, "sherd_knn search");
        CHECK_OK(sherd_world_close(dry));
    }
    CHECK_NEAR(forward, want, 0.5);
    CHECK_NEAR(back, 2.5 * want, 0.5);
    CHECK_NEAR(search, 3.0 * 40 * 20 * 3, 0.5);
}

static const check_test tests[] = {
    {TEST(neighbours_are_shared_too), {1}},
    {TEST(ranks_share_the_operations), {1}},
    {TEST(even_requests_are_the_same_dry), {1, 2, 3, 4, 8}},
    {TEST(terabytes_take_no_memory), {1}},
    {TEST(what_is_left_out_is_zero), {1}},
    {TEST(errors_are_those_of_real_ranks), {1, 2, 3}},
    {TEST(lack_of_memory_is_told), {1}},
};
CHECK_MAIN(tests)
