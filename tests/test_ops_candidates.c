/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first elements in order of a sharded dim, of which only candidates travel: the bits are those
 * of the whole dim for every mesh, dtype and cut; the bytes are those of k elements and indices for
 * each shard, and none for gradients; dry worlds and shards without memory.
 */
#include <math.h>

#include "dry.h"
#include "ops_cases.h"
#include "sherd/ops_sorted.h"
#include "tensors.h"

#define SIZES(...) ((const int64_t[]){__VA_ARGS__})

enum { MOST = 3 * 3 * 41 };

/* Few different numbers, so that many are equal; both zeros, infinities and, once each, NaN. */
static sherd_tensor *numbers(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape)
{
    static const double some[] = {2, 0, -0.0, 7, 2, 1, (double)INFINITY, 0, 5, -(double)INFINITY};
    double data[MOST];
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    for (int64_t i = 0; i < n; i++)
        data[i] = sherd__has_fractions(dtype) ? some[i * i % 10] : (double)(i * i % 7);
    if (sherd__has_fractions(dtype))
        for (int64_t i = 5; i < n; i += 61)
            data[i] = (double)NAN;
    return sherd_mark_equal(
        sherd_cast(sherd_from_data(world, SHERD_F64, shape, ndim, data), dtype));
}

static bool same_bits(sherd_tensor *a, sherd_tensor *b)
{
    size_t bytes = (size_t)sherd_tensor_count(b) * sherd_dtype_bytes(sherd_tensor_dtype(b));
    const void *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(b);

    return x && y && sherd_tensor_count(a) == sherd_tensor_count(b) && memcmp(x, y, bytes) == 0;
}

/* ---- the same bits --------------------------------------------------------------------------- */

/* Meshes of so many ranks; the sharded dim has 41 elements. */
static const struct {
    int ranks;
    const char *mesh, *placements, *cuts;
    int dim;
} lyings[] = {
    {1, "x=1", "S(1)", NULL, 1},
    {2, "x=2", "S(1)", NULL, 1},
    {2, "x=2", "S(1)", "1:0,41", 1},
    {3, "x=3", "S(1)", NULL, 1},
    {3, "x=3", "S(1)", "1:2,0,39", 1},
    {3, "x=3", "S(0)", "0:40,1,0", 0},
    {4, "x=4", "S(1)", NULL, 1},
    {4, "x=2,y=2", "S(1) S(1)", NULL, 1},
    {4, "x=2,y=2", "S(0) S(1)", NULL, 1},
    {4, "x=2,y=2", "S(2) S(2)", NULL, 2},
    {8, "x=8", "S(1)", "1:1,3,0,16,0,19,2,0", 1},
    {8, "x=2,y=2,z=2", "S(1) S(0) S(1)", NULL, 1},
    {8, "x=2,y=2,z=2", "S(2) S(2) S(2)", NULL, 2},
    {8, "x=4,y=2", "S(0) S(0)", NULL, 0},
    {8, "x=4,y=2", "S(0) S(1)", NULL, 1},
};

static void compare(sherd_tensor *whole, sherd_tensor *spread, int dim, int64_t k, bool largest)
{
    sherd_tensor *at, *where, *y = sherd_topk(whole, k, dim, largest, &at);
    sherd_tensor *found = sherd_topk(spread, k, dim, largest, &where);

    CHECK(same_bits(found, y));
    CHECK(same_bits(where, at));
    if (largest || k == 0)
        return;
    y = sherd_kthvalue(whole, k, dim, false, &at);
    found = sherd_kthvalue(spread, k, dim, false, &where);
    CHECK(same_bits(found, y));
    CHECK(same_bits(where, at));
}

static void the_bits_are_those_of_the_whole_dim(sherd_world *world)
{
    static const int64_t some[] = {0, 1, 3, 15, 41};

    for (int i = 0; i < LEN(lyings); i++) {
        int dim = lyings[i].dim;
        int64_t shape[] = {3, 3, 2};
        if (lyings[i].ranks != sherd_world_ranks(world))
            continue;
        shape[dim] = 41;
        const sherd_layout *from = layout_of(mesh_of(world, lyings[i].mesh), 3, shape,
                                             lyings[i].placements, lyings[i].cuts);
        for (int d = SHERD_F32; d < SHERD_DTYPES; d++) {
            sherd_scope_begin(world);
            sherd_tensor *whole = numbers(world, (sherd_dtype)d, 3, shape);
            sherd_tensor *spread = sherd_distribute(whole, from, -1);
            for (int k = 0; k < LEN(some); k++)
                for (int largest = 0; largest < 2; largest++)
                    compare(whole, spread, dim, some[k], largest);
            if (!CHECK_OK(sherd_world_check(world)))
                fprintf(stderr, "  case %d: %s\n", i, sherd_world_error(world));
            sherd_scope_end(world);
        }
    }
}

/* ---- what travels ---------------------------------------------------------------------------- */

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    sherd_comm_reset(world);
    return bytes;
}

static const struct {
    sherd_dtype dtype;
    int64_t k, candidates; /* of each other shard; 0: the rest of the dim travels */
} sizes[] = {{SHERD_F32, 5, 5},  {SHERD_F64, 1, 1},   {SHERD_BF16, 20, 20},
             {SHERD_U8, 3, 3},   {SHERD_F32, 0, 0},   {SHERD_F32, 60, 60},
             {SHERD_F32, 61, 0}, {SHERD_F64, 79, 79}, {SHERD_BF16, 41, 0}};

/* What needs no more bytes than the whole dim is chosen, whichever dtype was asked for before. */
static void only_candidates_travel(sherd_world *world)
{
    enum { ROWS = 1, EACH = 120 };
    int64_t others = sherd_world_ranks(world) - 1, n = EACH * (others + 1);
    const sherd_mesh *mesh = line_of_ranks(world);
    const sherd_layout *from = layout_of(mesh, 2, SIZES(ROWS, n), "S(1)", NULL);

    for (int i = 0; i < LEN(sizes); i++) {
        int64_t element = (int64_t)sherd_dtype_bytes(sizes[i].dtype), k = sizes[i].k;
        int64_t want = sizes[i].candidates ? others * k * (element + 4) : others * EACH * element;
        sherd_tensor *t = sherd_constant_on(from, sizes[i].dtype, 1), *at;
        if (k == 0)
            want = 0;
        received(world);
        sherd_tensor *y = sherd_topk(t, k, 1, true, &at);
        if (!CHECK_EQ(received(world), want))
            fprintf(stderr, "  case %d\n", i);
        CHECK_TEXT(sherd_layout_text(sherd_tensor_layout(y)),
                   sherd_layout_text(sherd_tensor_layout(at)));
    }
    sherd_kthvalue(sherd_constant_on(from, SHERD_F32, 1), 7, 1, false, NULL);
    CHECK_EQ(received(world), others * 7 * 8);
    CHECK_OK(sherd_world_check(world));
}

/* Each shard keeps the gradients of what it had, and is zero elsewhere. */
static void gradients_stay_where_they_are(sherd_world *world)
{
    enum { N = 161 }; /* and no other dim to move to */
    const sherd_layout *from = layout_of(line_of_ranks(world), 3, SIZES(1, N, 1), "S(1)", NULL);
    sherd_tensor *whole = numbers(world, SHERD_F64, 3, SIZES(1, N, 1)), *grad[2];

    for (int i = 0; i < 2; i++) {
        sherd_tensor *t = i ? sherd_distribute(whole, from, -1) : sherd_clone(whole);
        sherd_require_grad(t, true);
        sherd_tensor *y = sherd_topk(t, 3, 1, false, NULL), *loss = sherd_sum(sherd_mul(y, y));
        received(world);
        sherd_backward(loss);
        CHECK_EQ(received(world), 0);
        grad[i] = sherd_grad(t);
    }
    CHECK(same_bits(grad[1], grad[0]));
    CHECK_OK(sherd_world_check(world));
}

/* ---- dry, and without memory ----------------------------------------------------------------- */

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, text) == SHERD_OK &&
        sherd_layout_parse_placements(&from, mesh, 2, SIZES(2, 50), "S(1)", NULL) == SHERD_OK) {
        sherd_tensor *t = sherd_require_grad(sherd_constant_on(from, SHERD_BF16, 1), true);
        sherd_tensor *y = sherd_topk(t, 3, 1, true, NULL);
        sherd_backward(sherd_sum(sherd_mul(y, sherd_kthvalue(t, 2, 1, true, NULL))));
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void in_dry(sherd_world *world, void *context)
{
    (void)context;
    scene(world);
}

static void dry_worlds_do_the_same(sherd_world *world)
{
    CHECK(same_dry(world, in_dry, NULL));
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(the_bits_are_those_of_the_whole_dim), {1, 2, 3, 4, 8}},
    {TEST(only_candidates_travel), {1, 2, 3, 4, 8}},
    {TEST(gradients_stay_where_they_are), {1, 2, 3, 4, 8}},
    {TEST(dry_worlds_do_the_same), {1, 2, 3, 4, 8}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
};
CHECK_MAIN(tests)
