/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays of a program's own, that lie in some way: what is written from one is in the tensor, what
 * is read to one is at its place, and what lies between stays as it was.
 */
#include "tensors.h"

#include <stdlib.h>

#include "sherd/halo.h"
#include "sherd/ops.h"
#include "sherd/values.h"

enum { DIMS = 3, BETWEEN = -7 };

/* How an array lies: the order of its dims, the innermost first, and what lies around each. */
typedef struct lies {
    int order[DIMS];
    int64_t around[DIMS];
} lies;

static const lies ways[] = {
    {{2, 1, 0}, {0, 0, 0}}, /* row-major without gaps */
    {{0, 1, 2}, {0, 0, 0}}, /* as in Fortran */
    {{0, 1, 2}, {2, 1, 2}},
    {{1, 2, 0}, {0, 3, 1}},
};

static const struct {
    const char *placements, *cuts;
} layouts[] = {{"S(0)", NULL}, {"S(1)", NULL}, {"R", NULL}, {"S(2)", NULL}};

static const int64_t shape[DIMS] = {7, 5, 3};

/* An array for a box: its elements, where the box begins in it, and its strides. */
typedef struct array {
    double *all, *first;
    int64_t stride[DIMS], count;
} array;

static array make(const sherd_box *box, const lies *how)
{
    array a = {.count = 1};
    int64_t first = 0;

    for (int i = 0; i < DIMS; i++) {
        int d = how->order[i];
        a.stride[d] = a.count;
        first += how->around[d] * a.count;
        a.count *= box->size[d] + 2 * how->around[d];
    }
    a.all = malloc((size_t)a.count * sizeof *a.all + 1);
    for (int64_t i = 0; i < a.count; i++)
        a.all[i] = BETWEEN;
    a.first = a.all + first;
    return a;
}

/* Give each element of the box its global index, or count those that have another value. */
static int64_t visit(const array *a, const sherd_box *box, bool gives)
{
    int64_t wrong = 0, i[DIMS];

    for (i[0] = 0; i[0] < box->size[0]; i[0]++)
        for (i[1] = 0; i[1] < box->size[1]; i[1]++)
            for (i[2] = 0; i[2] < box->size[2]; i[2]++) {
                int64_t at = 0, index = 0;
                for (int d = 0; d < DIMS; d++) {
                    at += i[d] * a->stride[d];
                    index = index * shape[d] + box->offset[d] + i[d];
                }
                wrong += a->first[at] != (double)index;
                if (gives)
                    a->first[at] = (double)index;
            }
    return wrong;
}

/* What is written there and back, in each way; and what lies between. */
static void round_trip(sherd_tensor *t)
{
    const sherd_box box = sherd_tensor_box(t);

    for (int i = 0; i < LEN(ways); i++) {
        array from = make(&box, &ways[i]), to = make(&box, &ways[LEN(ways) - 1 - i]);
        int64_t untouched = 0;
        visit(&from, &box, true);
        CHECK(sherd_tensor_write_from(t, from.first, i ? from.stride : NULL));
        CHECK_EQ(count_wrong(sherd_contiguous(t), 1), 0);
        CHECK(sherd_tensor_read_to(to.first, to.stride, t));
        CHECK_EQ(visit(&to, &box, false), 0);
        for (int64_t k = 0; k < to.count; k++)
            untouched += to.all[k] == BETWEEN;
        CHECK_EQ(untouched, to.count - box.size[0] * box.size[1] * box.size[2]);
        free(from.all);
        free(to.all);
        sherd_fill(t, 0);
    }
}

static void an_array_lies_in_any_way(sherd_world *world)
{
    for (int i = 0; i < LEN(layouts); i++) {
        const sherd_layout *layout =
            layout_of(line_of_ranks(world), DIMS, shape, layouts[i].placements, layouts[i].cuts);
        round_trip(sherd_constant_on(layout, SHERD_F64, 0));
    }
    CHECK_OK(sherd_world_check(world));
}

/* The pieces of a field with ghost cells are a strided view. */
static void the_pieces_of_a_field_are_written(sherd_world *world)
{
    const sherd_halo_options wide = {.before[0] = {2, SHERD_BORDER_SYMMETRIC},
                                     .after[1] = {1, SHERD_BORDER_PERIODIC}};
    const sherd_layout *layout = layout_of(line_of_ranks(world), DIMS, shape, "S(0)", NULL);
    sherd_ghosts *field = NULL;

    CHECK_OK(sherd_ghosts_create(&field, layout, SHERD_F64, &wide));
    for (int i = 0; i < 3; i++) {
        round_trip(sherd_ghosts_tensor(field));
        CHECK(sherd_ghosts_begin_fill(&field, 1)); /* the next write waits for it */
    }
    CHECK_OK(sherd_world_check(world));
    sherd_ghosts_destroy(field);
}

/* A plain tensor, one of a number, one of bytes. */
static void any_tensor_has_a_box(sherd_world *world)
{
    const int64_t columns[] = {1, 2}, two[] = {2, 2};
    const uint8_t bytes[] = {1, 2, 3, 4};
    uint8_t seen[4] = {0};
    double number = 3;
    sherd_tensor *scalar = sherd_constant(world, SHERD_F64, NULL, 0, 0);
    sherd_tensor *plain = sherd_constant(world, SHERD_U8, two, 2, 0);

    CHECK(sherd_tensor_write_from(scalar, &number, NULL));
    CHECK_EQ(((const double *)sherd_tensor_read(scalar))[0], 3);
    number = 0;
    CHECK(sherd_tensor_read_to(&number, NULL, scalar));
    CHECK_EQ(number, 3);
    CHECK(sherd_tensor_write_from(plain, bytes, columns));
    CHECK(sherd_tensor_read_to(seen, NULL, plain));
    CHECK(seen[0] == 1 && seen[1] == 3 && seen[2] == 2 && seen[3] == 4);
    CHECK_OK(sherd_world_check(world));
    CHECK(!sherd_tensor_write_from(sherd_expand(scalar, two, 2), bytes, NULL));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "one in memory"));
}

/* A deferred tensor is made now: who has no memory for it is named. */
static void who_has_no_memory_for_it_is_named(sherd_world *world)
{
    static const char *const name[] = {
        "sherd_tensor_write:", "sherd_tensor_write_from:", "sherd_tensor_read_to:"};
    double array[7 * 5 * 3] = {0};

    for (int i = 0; i < LEN(name); i++) {
        sherd_tensor *t = sherd_constant_later(world, SHERD_F64, shape, DIMS, 1);
        CHECK_OK(sherd_world_check(world));
        sherd_world_fail_allocation(world, 1);
        bool good = i == 0   ? sherd_tensor_write(t) != NULL
                    : i == 1 ? sherd_tensor_write_from(t, array, NULL)
                             : sherd_tensor_read_to(array, NULL, t);
        sherd_world_fail_allocation(world, 0);
        CHECK(!good);
        CHECK_EQ(sherd_world_check(world), SHERD_ENOMEM);
        CHECK(strstr(sherd_world_error(world), name[i]) != NULL);
    }
}

/* It is an in-place write: all ranks that hold the same make it. */
static void a_replica_is_written_by_all(sherd_world *world)
{
    const sherd_layout *layout = layout_of(line_of_ranks(world), DIMS, shape, "R", NULL);
    sherd_tensor *t = sherd_constant_on(layout, SHERD_F64, 0);
    double ones[7 * 5 * 3] = {1};

    CHECK_OK(sherd_world_check(world));
    if (sherd_world_rank(world) == 0)
        CHECK(sherd_tensor_write_from(t, ones, NULL));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(sherd_tensor_failed(t));
}

static const check_test tests[] = {
    {TEST(an_array_lies_in_any_way), {1, 2, 3, 4, 8}},
    {TEST(the_pieces_of_a_field_are_written), {1, 2, 3, 8}},
    {TEST(any_tensor_has_a_box), {1, 3}},
    {TEST(who_has_no_memory_for_it_is_named), {1, 2}},
    {TEST(a_replica_is_written_by_all), {2, 4}},
};
CHECK_MAIN(tests)
