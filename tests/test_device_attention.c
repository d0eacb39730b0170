/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the GPU against the plain kernels of the CPU, forward and backward. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"

enum { INS = 4, OUTS = 5 }; /* q, k, v, dout; out, log_sum, dq, dk, dv */

/* f32 with the halves' numbers, or the dtype itself: the plain kernel, which has no halves here. */
static void plain(const sherd__attending *s, sherd_dtype dtype, const array *in, array *out)
{
    bool halves = dtype == SHERD_BF16 || dtype == SHERD_F16;
    const sherd__kernels *k = halves ? &sherd__ref_f32 : plain_of(dtype);
    void *x[INS + OUTS], *space = malloc(16 * (size_t)(k->attention_workspace(s) + 8));

    for (int i = 0; i < INS + OUTS; i++) {
        const array *a = i < INS ? &in[i] : &out[i - INS];
        x[i] = a->host;
        if (halves && a->dtype == dtype) {
            x[i] = malloc(sizeof(float) * (size_t)a->n + 1);
            if (x[i] && i < INS)
                plain_of(dtype)->widen(a->n, x[i], a->host);
        }
        if (!x[i] || !space)
            abort();
    }
    k->attention(s, x[4], x[5], x[0], x[1], x[2], space);
    if (halves) { /* backward reads what was stored */
        plain_of(dtype)->narrow(out[0].n, out[0].host, x[4]);
        plain_of(dtype)->widen(out[0].n, x[4], out[0].host);
    }
    k->attention_grad(s, x[6], x[7], x[8], NULL, x[3], NULL, x[0], x[1], x[2], x[4], x[5], space);
    for (int i = 0; i < INS + OUTS; i++)
        if (x[i] != (i < INS ? &in[i] : &out[i - INS])->host) {
            if (i >= INS)
                plain_of(dtype)->narrow(out[i - INS].n, out[i - INS].host, x[i]);
            free(x[i]);
        }
    free(space);
}

static void forward(const sherd__attending *s, sherd_dtype dtype, const array *in, const array *out)
{
    CHECK(sherd__device_attention(device, dtype, s, out[0].data, out[1].data, in[0].data,
                                  in[1].data, in[2].data));
}

static void backward(const sherd__attending *s, sherd_dtype dtype, const array *in,
                     const array *out)
{
    CHECK(sherd__device_attention_grad(device, dtype, s, out[2].data, out[3].data, out[4].data,
                                       in[3].data, in[0].data, in[1].data, in[2].data, out[0].data,
                                       out[1].data));
}

/* Of 16 bits: probabilities, and gradients of scores, are rounded too. */
static double tolerance(sherd_dtype dtype, int result)
{
    if (result == 1 || dtype == SHERD_F32 || dtype == SHERD_F64)
        return result < 2 ? 1e-5 : 5e-5;
    return (result ? 4e-2 : 4e-3) / (dtype == SHERD_F16 ? 8 : 1);
}

static void attention_is_plain(sherd_dtype dtype, sherd__attending s, int shift, bool twice)
{
    static const char *const names[OUTS] = {"out", "log_sum", "dq", "dk", "dv"};
    int64_t queries = s.batch * s.queries * s.groups * s.repeat;
    int64_t keys = s.batch * s.keys * s.groups * s.width;
    int64_t counts[INS + OUTS] = {
        queries * s.width, keys, keys, queries * s.width, queries * s.width, queries,
        queries * s.width, keys, keys};
    array in[INS], out[OUTS];
    char what[160];

    s.all_queries = s.first_query + s.queries;
    s.all_keys = s.first_key + s.keys;
    s.all_heads = s.groups * s.repeat;
    s.all_repeat = s.repeat;
    for (int i = 0; i < INS; i++)
        in[i] = drawn(dtype, counts[i], shift, -2, 2, (uint64_t)i);
    for (int i = 0; i < OUTS; i++)
        out[i] = room_for(i == 1 ? statistics(dtype) : dtype, counts[INS + i], i == 1 ? 0 : shift);
    plain(&s, dtype, in, out);
    for (int i = 0; i < OUTS; i++) {
        if (i == 0)
            forward(&s, dtype, in, out);
        if (i == 2) { /* of the plain results: theirs may be rounded to the other side */
            if (twice) {
                forward(&s, dtype, in, out);
                same_bits(&out[0], names[0]);
                same_bits(&out[1], names[1]);
            }
            send(&out[0]);
            send(&out[1]);
            backward(&s, dtype, in, out);
        }
        snprintf(what, sizeof what, "%s of b%d g%d r%d q%d k%d w%d causal %d from %d, %d", names[i],
                 (int)s.batch, (int)s.groups, (int)s.repeat, (int)s.queries, (int)s.keys,
                 (int)s.width, s.causal, (int)s.first_query, (int)s.first_key);
        same(&out[i], tolerance(dtype, i), what);
    }
    if (twice)
        backward(&s, dtype, in, out);
    for (int i = 2; i < OUTS && twice; i++)
        same_bits(&out[i], names[i]);
    for (int i = 0; i < INS; i++)
        drop(&in[i]);
    for (int i = 0; i < OUTS; i++)
        drop(&out[i]);
}

static sherd__attending problem(int64_t batch, int64_t groups, int64_t repeat, int64_t queries,
                                int64_t keys, int64_t width)
{
    return (sherd__attending){.batch = batch,
                              .groups = groups,
                              .repeat = repeat,
                              .queries = queries,
                              .keys = keys,
                              .width = width,
                              .scale = 0.3};
}

static void shapes_are_plain(void)
{
    static const int64_t shapes[][6] = {
        {1, 1, 1, 1, 1, 1},     {0, 1, 1, 3, 3, 8},    {1, 1, 2, 0, 5, 8},
        {2, 1, 2, 5, 0, 8},     {2, 2, 1, 7, 11, 3},   {1, 1, 1, 64, 64, 64},
        {1, 1, 1, 65, 130, 32}, {1, 1, 1, 33, 97, 80}, {1, 1, 3, 31, 17, 128},
        {1, 1, 1, 70, 63, 127}, {1, 2, 2, 16, 40, 16},
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(shapes); i++) {
            const int64_t *s = shapes[i];
            attention_is_plain(dtypes[d], problem(s[0], s[1], s[2], s[3], s[4], s[5]), 0,
                               i % 3 == 1);
        }
    close_device();
}

/* So many blocks that each takes more rows; emulated, each shape takes seconds. */
static void many_heads_are_plain(void)
{
    static const int64_t shapes[][4] = {{200, 130, 20, 24}, {400, 20, 70, 61}, {200, 17, 140, 32}};

    int count = getenv("SHERD_PROOF") ? LEN(shapes) : 1;

    open_device();
    for (int i = 0; i < count; i++) {
        sherd__attending s =
            problem(shapes[i][0] / 4, 4, 1, shapes[i][1], shapes[i][2], shapes[i][3]);
        s.causal = i < 2;
        s.first_query = i == 1 ? 40 : 0;
        attention_is_plain(i == 1 ? SHERD_F16 : SHERD_BF16, s, 0, false);
    }
    close_device();
}

static void misaligned_is_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        attention_is_plain(dtypes[d], problem(1, 1, 1, 20, 70, 64), 1, false);
    close_device();
}

/* Pieces of sequences: some see all keys, some none. */
static void pieces_are_plain(void)
{
    static const int64_t firsts[][2] = {{0, 0}, {60, 0}, {3, 40}, {0, 200}, {64, 64}};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(firsts); i++) {
            sherd__attending s = problem(1, 1, 2, 70, 75, 24);
            s.causal = true;
            s.first_query = firsts[i][0];
            s.first_key = firsts[i][1];
            attention_is_plain(dtypes[d], s, 0, false);
        }
    close_device();
}

static void what_it_can_not_is_said(void)
{
    float x[1] = {0};

    open_device();
    sherd__attending masked = problem(1, 1, 1, 1, 1, 1), dropped = masked, wider = masked;
    masked.mask = x;
    dropped.p = 0.5;
    wider.width = 129;
    CHECK(!sherd__device_attention(device, SHERD_F32, &masked, x, x, x, x, x));
    CHECK(!sherd__device_attention(device, SHERD_F32, &dropped, x, x, x, x, x));
    CHECK(!sherd__device_attention(device, SHERD_F32, &wider, x, x, x, x, x));
    CHECK(!sherd__device_attention_grad(device, SHERD_F32, &masked, x, x, x, x, x, x, x, x, x));
    CHECK(!sherd__device_attention_grad(device, SHERD_F32, &wider, x, x, x, x, x, x, x, x, x));
    close_device();
}

static const check_test tests[] = {
    {TEST(shapes_are_plain)}, {TEST(many_heads_are_plain)},    {TEST(misaligned_is_plain)},
    {TEST(pieces_are_plain)}, {TEST(what_it_can_not_is_said)},
};
CHECK_MAIN(tests)
