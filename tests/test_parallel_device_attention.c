/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with masks and dropout on the GPU, and its gradients, are what the CPU computes, on any
 * mesh: also where ranks have other heads or batch items, or none. SHERD_DEVICE is set for this
 * program.
 */
#include "device_both.h"

enum { BATCH = 2, POSITIONS = 6, HEADS = 4, WIDTH = 5, OPERANDS = 4, NUMBERS = OPERANDS + 1 };

/* What is attended to how. */
typedef struct subject {
    const char *name;
    int64_t key_heads;
    int64_t mask[4]; /* 0 = none */
    bool hides;      /* bool; else added, with a gradient */
    bool causal, sums;
    double dropout;
    int64_t window;
    double softcap;
    bool documents;
    int64_t zigzag; /* then sequences are sharded */
} subject;

static const subject subjects[] = {
    {"hidden", HEADS, {BATCH, 1, POSITIONS, POSITIONS}, true, false, false, 0, 0, 0, false, 0},
    {"added", HEADS, {1, HEADS, POSITIONS, POSITIONS}, false, true, false, 0, 0, 0, false, 0},
    {"padding", 2, {BATCH, 1, 1, POSITIONS}, false, false, true, 0, 0, 0, false, 0},
    {"dropped", 2, {0}, false, true, false, 0.4, 0, 0, false, 0},
    {"dropped and hidden",
     1,
     {1, 1, POSITIONS, POSITIONS},
     true,
     false,
     true,
     0.25,
     0,
     0,
     false,
     0},
    {"windowed", 2, {0}, false, true, false, 0, 2, 0.6, false, 0},
    {"in documents", 2, {0}, false, true, true, 0, 0, 0, true, 0},
    {"in zigzag order", 2, {0}, false, true, true, 0, 0, 0.6, false, 3},
    {"zigzag and added", 4, {1, HEADS, POSITIONS, POSITIONS}, .causal = true, .zigzag = 3},
    {"zigzag in documents", 2, {0}, .causal = true, .documents = true, .zigzag = 2},
};

/* False in a third of its elements; the second row of queries sees nothing. */
static sherd_tensor *hiding_mask(sherd_world *world, const int64_t shape[4])
{
    uint8_t seen[BATCH * HEADS * POSITIONS * POSITIONS];
    int64_t n = shape[0] * shape[1] * shape[2] * shape[3];

    for (int64_t i = 0; i < n; i++)
        seen[i] = i * 7 % 11 % 3 != 0 && i / POSITIONS % POSITIONS != 1;
    return sherd_mark_equal(sherd_from_data(world, SHERD_BOOL, shape, 4, seen));
}

static sherd_tensor *attend(const subject *s, sherd_tensor **in)
{
    sherd_world *world = sherd_tensor_world(in[0]);
    sherd_generator generator = sherd_generator_named("attention");
    const int64_t lengths[] = {4, 2, 1, 5}; /* of BATCH sequences */
    sherd_tensor *spans = sherd_document_spans(world, lengths, BATCH, 2);
    const sherd_attention_options options = {.causal = s->causal,
                                             .window = s->window,
                                             .softcap = s->softcap,
                                             .zigzag = s->zigzag,
                                             .spans = !s->documents ? NULL
                                                      : s->zigzag
                                                          ? sherd_zigzag(spans, 1, s->zigzag)
                                                          : spans,
                                             .mask = s->hides ? hiding_mask(world, s->mask) : in[3],
                                             .dropout = s->dropout,
                                             .generator = &generator};
    sherd_tensor *out = NULL, *sums = NULL;

    if (!s->sums)
        return sherd_attention(in[0], in[1], in[2], &options);
    CHECK(sherd_attention_with(&out, &sums, in[0], in[1], in[2], &options));
    /* [batch,heads,positions]; rows that see nothing are -inf */
    sums = sherd_exp(sherd_scale(sherd_permute(sums, (int[]){0, 2, 1}, 3), 0.3));
    return sherd_mul(out, sherd_cast(sherd_unsqueeze(sums, 3), sherd_tensor_dtype(out)));
}

static void run(sherd_world *world, const subject *s, const sherd_mesh *mesh,
                const char *placements, sherd_dtype dtype, bool looks, double out[NUMBERS][MOST],
                int64_t count[NUMBERS])
{
    const int64_t q[] = {BATCH, POSITIONS, HEADS, WIDTH};
    const int64_t k[] = {BATCH, POSITIONS, s->key_heads, WIDTH};
    bool masked = s->mask[0] && !s->hides;

    sherd_scope_begin(world);
    sherd_tensor *in[OPERANDS] = {
        wave(world, dtype, 4, q, 3, 2, 0), wave(world, dtype, 4, k, 5, 2, 0),
        wave(world, dtype, 4, k, 7, 1, 1), masked ? wave(world, dtype, 4, s->mask, 2, 1, 0) : NULL};
    for (int i = 0; i < OPERANDS && in[i]; i++) {
        if (i < 3)
            in[i] = spread(in[i], mesh, placements);
        in[i] = sherd_require_grad(sherd_detach(in[i]), true);
    }
    sherd_tensor *y = attend(s, in);
    check_there(y, looks, s->name);
    count[0] = whole(y, out[0]);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    for (int i = 0; i < OPERANDS; i++) {
        sherd_tensor *grad = in[i] ? sherd_grad(in[i]) : NULL;
        check_there(grad, looks, s->name);
        count[i + 1] = whole(grad, out[i + 1]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(2)"};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F64};
    static const double tolerance[] = {4e-5, 0.1, 1e-12};
    static _Thread_local double there[NUMBERS][MOST], here[NUMBERS][MOST];
    const sherd_mesh *mesh = NULL;
    int64_t count[NUMBERS], again[NUMBERS], ranks = sherd_world_ranks(world);
    int calls = 0;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, NULL, NULL));
    for (int f = 0; f < LEN(subjects); f++)
        for (int p = ranks > 1; p < (ranks > 1 ? LEN(placements) : 1); p++) {
            if (subjects[f].zigzag && p > 1)
                continue; /* there is one way for sequences to be sharded */
            int d = (f + p) % LEN(dtypes);
            const char *how = ranks > 1 && subjects[f].zigzag ? "S(1)" : placements[p];
            run(world, &subjects[f], mesh, how, dtypes[d], true, there, count);
            compute_on_the_cpu(world, &calls);
            run(world, &subjects[f], mesh, how, dtypes[d], false, here, again);
            compute_on_the_cpu(world, NULL);
            for (int i = 0; i < NUMBERS; i++) {
                CHECK_EQ(count[i], again[i]);
                check_close(there[i], here[i], count[i], tolerance[d], subjects[f].name, how, i);
            }
        }
    CHECK(calls > 0);
}

static const check_test tests[] = {
    {"same_on_both", same_on_both, {1, 3}},
};

CHECK_MAIN(tests)
