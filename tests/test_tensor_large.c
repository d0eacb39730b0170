/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves of 17 MB and more, which go past the cache: sums that one rank writes to all, sums that
 * stay, copies. f32 has a kernel for that, other dtypes are added up in blocks. And of 1.7 MB,
 * which ranks write to all chunk by chunk. Odd sizes, so that what a rank writes begins anywhere in
 * a line.
 */
#include "tensors.h"

enum { PERIOD = 61, NUMBERS = 256 };

typedef struct sample {
    sherd_dtype dtype;
    int64_t shape[2];
} sample;

static const sample samples[] = {
    {SHERD_F32, {2053, 2111}}, {SHERD_BF16, {2053, 4211}}, {SHERD_F32, {701, 613}}};

/* 0, 1, 2 ... in a dtype, all exact. */
static void encode(sherd_dtype dtype, unsigned char *out)
{
    for (int64_t i = 0; i < NUMBERS; i++)
        sherd__cast(dtype, SHERD_I64, 1, out + (size_t)i * sherd_dtype_bytes(dtype), &i);
}

static int64_t number_of(int64_t index)
{
    return index % PERIOD;
}

static sherd_tensor *filled(const sherd_mesh *mesh, const sample *s, const char *placements,
                            int64_t more)
{
    sherd_tensor *t = sherd__new_on(layout_of(mesh, 2, s->shape, placements, NULL), s->dtype);
    size_t bytes = sherd_dtype_bytes(s->dtype);
    sherd_box box = sherd_tensor_box(t);
    unsigned char code[NUMBERS * 8], *to = sherd__fresh(t);

    encode(s->dtype, code);
    for (int64_t i = 0; i < t->count; i++)
        memcpy(to + (size_t)i * bytes,
               code + (size_t)(number_of(global_of(&box, t->shape, i)) + more) * bytes, bytes);
    return t;
}

/* Elements that are not `times` the number of their index, and `more`. */
static int64_t wrong_in(sherd_tensor *t, int64_t times, int64_t more)
{
    size_t bytes = sherd_dtype_bytes(t->dtype);
    const unsigned char *data = sherd_tensor_read(t);
    sherd_box box = sherd_tensor_box(t);
    unsigned char code[NUMBERS * 8];
    int64_t wrong = 0;

    encode(t->dtype, code);
    for (int64_t i = 0; data && i < t->count; i++)
        wrong +=
            memcmp(data + (size_t)i * bytes,
                   code + (size_t)(number_of(global_of(&box, t->shape, i)) * times + more) * bytes,
                   bytes) != 0;
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
    if (!CHECK_EQ(wrong_in(t, pending ? ranks : 1, pending ? ranks * (ranks - 1) / 2 : 0), 0))
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
