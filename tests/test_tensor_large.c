/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves of 17 MB and more, which go past the cache: sums that one rank writes to all, sums that
 * stay, copies. f32 has a kernel for that, other dtypes are added up in blocks. And of 1.7 MB,
 * which ranks write to all chunk by chunk. Odd sizes, so that what a rank writes begins anywhere in
 * a line.
 */
#include "tensors.h"

enum { PERIOD = 61 };

typedef struct sample {
    sherd_dtype dtype;
    int64_t shape[2];
} sample;

static const sample samples[] = {
    {SHERD_F32, {2053, 2111}}, {SHERD_BF16, {2053, 4211}}, {SHERD_F32, {701, 613}}};

/*
 * The numbers of rows, for any index that a row begins with: 0, 1 ... PERIOD - 1, again and again,
 * `times` of each and `more`, all exact; long enough for a row of any sample. To be freed.
 */
static unsigned char *row_of_numbers(const sample *s, int64_t times, int64_t more)
{
    size_t bytes = sherd_dtype_bytes(s->dtype);
    int64_t count = s->shape[1] + PERIOD;
    unsigned char *row = malloc((size_t)count * bytes);

    CHECK(row);
    for (int64_t i = 0; row && i < count; i++) {
        int64_t number = i % PERIOD * times + more;
        sherd__cast(s->dtype, SHERD_I64, 1, row + (size_t)i * bytes, &number);
    }
    return row;
}

/* In bytes: where the numbers of a row of this rank's box begin. */
static size_t first_of(const sherd_box *box, const sample *s, int64_t row)
{
    int64_t index = (box->offset[0] + row) * s->shape[1] + box->offset[1];

    return (size_t)(index % PERIOD) * sherd_dtype_bytes(s->dtype);
}

static sherd_tensor *filled(const sherd_mesh *mesh, const sample *s, const char *placements,
                            int64_t more)
{
    sherd_tensor *t = sherd__new_on(layout_of(mesh, 2, s->shape, placements, NULL), s->dtype);
    sherd_box box = sherd_tensor_box(t);
    size_t bytes = (size_t)box.size[1] * sherd_dtype_bytes(s->dtype);
    unsigned char *numbers = row_of_numbers(s, 1, more), *to = sherd__fresh(t);

    for (int64_t i = 0; i < box.size[0]; i++)
        memcpy(to + (size_t)i * bytes, numbers + first_of(&box, s, i), bytes);
    free(numbers);
    return t;
}

/* Rows in which an element is not `times` the number of its index, and `more`. */
static int64_t wrong_in(sherd_tensor *t, const sample *s, int64_t times, int64_t more)
{
    const unsigned char *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    size_t bytes = (size_t)box.size[1] * sherd_dtype_bytes(s->dtype);
    unsigned char *numbers = row_of_numbers(s, times, more);
    int64_t wrong = 0;

    for (int64_t i = 0; data && i < box.size[0]; i++)
        wrong += memcmp(data + (size_t)i * bytes, numbers + first_of(&box, s, i), bytes) != 0;
    free(numbers);
    return data ? wrong : -1;
}

static void try_move(sherd_world *world, const sherd_mesh *mesh, const sample *s, const char *from,
                     const char *to)
{
    bool pending = from[0] == 'P';
    int64_t ranks = sherd_world_ranks(world), me = sherd_world_rank(world);

    sherd_scope_begin(world);
    sherd_tensor *t = filled(mesh, s, from, pending ? me : 0);
    t = sherd__move_to(t, layout_of(mesh, 2, s->shape, to, NULL), false);
    if (!CHECK_EQ(wrong_in(t, s, pending ? ranks : 1, pending ? ranks * (ranks - 1) / 2 : 0), 0))
        fprintf(stderr, "  %s %s to %s\n", sherd_dtype_name(s->dtype), from, to);
    sherd_scope_end(world);
}

static void large_moves_are_exact(sherd_world *world)
{
    static const char *const moves[][2] = {
        {"P(sum)", "R"}, {"P(sum)", "S(0)"}, {"S(0)", "R"}, {"S(0)", "S(1)"}};
    const sherd_mesh *mesh = line_of_ranks(world);

    for (int s = 0; s < LEN(samples); s++)
        for (int m = 0; m < (samples[s].dtype == SHERD_F32 ? LEN(moves) : 2); m++)
            try_move(world, mesh, &samples[s], moves[m][0], moves[m][1]);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(large_moves_are_exact), {2, 3}},
};
CHECK_MAIN(tests)
