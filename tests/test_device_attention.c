/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on the GPU against the plain kernels of the CPU, forward and backward. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"
#include "device/attention.h"

/* q, k, v, dout, dlog_sum, mask; out, log_sum, dq, dk, dv, dmask */
enum { INS = 6, OUTS = 6, DLOG_SUM = 4, MASK = 5, OUT = INS, LOG_SUM, DQ, DK, DV, DMASK };

/* What a problem may have more; all zeroes: nothing. */
typedef struct extras {
    sherd_dtype mask;
    unsigned stretched; /* dims of the mask, a bit each */
    bool sums, nan;     /* a gradient of log_sum; a NaN in the mask */
    bool window;        /* the mask hides what is far */
} extras;

/* Positions of a document; 0: there are no spans. */
static int64_t document;

/* Spans of documents, the first one begun before; of keys from s->first_key - 3 on. */
static array made_spans(const sherd__attending *s)
{
    array a = room_for(SHERD_I32, document ? 2 * s->queries : 0, 0);

    for (int64_t i = 0; i < a.n / 2; i++) {
        int64_t first = s->first_key - 3 + (i + 5) / document * document;
        ((int32_t *)a.host)[2 * i] = (int32_t)first;
        ((int32_t *)a.host)[2 * i + 1] = (int32_t)(first + document - document / 8);
    }
    send(&a);
    return a;
}

/* f32 with the halves' numbers, or the dtype itself: the plain kernel, which has no halves here. */
static void plain(const sherd__attending *s, sherd_dtype dtype, array *a)
{
    bool halves = dtype == SHERD_BF16 || dtype == SHERD_F16;
    const sherd__kernels *k = halves ? &sherd__ref_f32 : plain_of(dtype);
    void *x[INS + OUTS], *space = malloc(16 * (size_t)(k->attention_workspace(s) + 8));

    for (int i = 0; i < INS + OUTS; i++) {
        x[i] = a[i].host;
        if (halves && a[i].dtype == dtype && i != MASK) {
            x[i] = malloc(sizeof(float) * (size_t)a[i].n + 1);
            if (x[i] && i < INS)
                plain_of(dtype)->widen(a[i].n, x[i], a[i].host);
        }
        if (!x[i] || !space)
            abort();
    }
    k->attention(s, x[OUT], x[LOG_SUM], x[0], x[1], x[2], space);
    if (halves) { /* backward reads what was stored */
        plain_of(dtype)->narrow(a[OUT].n, a[OUT].host, x[OUT]);
        plain_of(dtype)->widen(a[OUT].n, x[OUT], a[OUT].host);
    }
    memset(x[DMASK], 0, (size_t)a[DMASK].bytes);
    k->attention_grad(s, x[DQ], x[DK], x[DV], s->mask ? x[DMASK] : NULL, x[3],
                      a[DLOG_SUM].n ? x[DLOG_SUM] : NULL, x[0], x[1], x[2], x[OUT], x[LOG_SUM],
                      space);
    for (int i = 0; i < INS + OUTS; i++)
        if (x[i] != a[i].host) {
            if (i >= INS)
                plain_of(dtype)->narrow(a[i].n, a[i].host, x[i]);
            free(x[i]);
        }
    free(space);
}

static void forward(const sherd__attending *s, sherd_dtype dtype, const array *a)
{
    CHECK(sherd__device_attention(device, dtype, s, a[OUT].data, a[LOG_SUM].data, a[0].data,
                                  a[1].data, a[2].data));
}

static void backward(const sherd__attending *s, sherd_dtype dtype, const array *a)
{
    const sherd__attending_back to = {.dq = a[DQ].data,
                                      .dk = a[DK].data,
                                      .dv = a[DV].data,
                                      .dmask = s->mask ? a[DMASK].data : NULL,
                                      .dout = a[3].data,
                                      .dlog_sum = a[DLOG_SUM].n ? a[DLOG_SUM].data : NULL,
                                      .q = a[0].data,
                                      .k = a[1].data,
                                      .v = a[2].data,
                                      .out = a[OUT].data,
                                      .log_sum = a[LOG_SUM].data};

    if (a[DMASK].n)
        sherd__device_set(device, a[DMASK].data, 0, a[DMASK].bytes);
    CHECK(sherd__device_attention_back(device, dtype, s, &to));
}

/* Of 16 bits: probabilities, and gradients of scores, are rounded too. */
static double tolerance(sherd_dtype dtype, int result)
{
    if (result == 1 || dtype == SHERD_F32 || dtype == SHERD_F64)
        return result < 2 ? 1e-5 : 5e-5;
    return (result ? 4e-2 : 4e-3) / (dtype == SHERD_F16 ? 8 : 1);
}

/* Random, a part of it hidden; every seventh query sees nothing, if it has a row of its own. */
static array drawn_mask(sherd__attending *s, const extras *e)
{
    const int64_t size[] = {s->batch, s->groups, s->repeat, s->queries, s->first_key + s->keys};
    int64_t n = 1, row = size[4];

    for (int d = 4; d >= 0 && e->mask; d--) {
        bool stretched = e->stretched >> d & 1;
        s->mask_stride[d] = stretched ? 0 : n;
        n *= stretched ? 1 : size[d];
    }
    array a = room_for(e->mask ? e->mask : SHERD_F32, e->mask ? n : 0, 1);
    array x = drawn(SHERD_F64, a.n, 0, -1, 1, 77);
    for (int64_t i = 0; i < a.n; i++) {
        bool whole = !(e->stretched & 24) && i / row % s->queries % 7 == 3;
        double y = ((double *)x.host)[i];
        bool far = e->window && llabs(i % row - i / row % s->queries) > 20;
        y = whole || far || y < -0.6 ? -(double)INFINITY : e->nan && i == a.n / 2 ? (double)NAN : y;
        char *to = (char *)a.host + i * (int64_t)sherd_dtype_bytes(a.dtype);
        if (a.dtype == SHERD_BOOL)
            *to = y > -2;
        else
            sherd__cast(a.dtype, SHERD_F64, 1, to, &y);
    }
    send(&a);
    sherd__device_give(device, x.block);
    free(x.host);
    free(x.got);
    return a;
}

static void name_problem(char out[200], const char *name, const sherd__attending *s,
                         const extras *e)
{
    snprintf(out, 200,
             "%s of b%d g%d r%d q%d k%d w%d causal %d, %d from %d, %d, cap %g, p %g, mask %s %u",
             name, (int)s->batch, (int)s->groups, (int)s->repeat, (int)s->queries, (int)s->keys,
             (int)s->width, s->causal, (int)s->window, (int)s->first_query, (int)s->first_key,
             s->softcap, s->p, e->mask ? sherd_dtype_name(e->mask) : "none", e->stretched);
}

static void attention_with_is_plain(sherd_dtype dtype, sherd__attending s, extras e, int shift,
                                    bool twice)
{
    static const char *const names[OUTS] = {"out", "log_sum", "dq", "dk", "dv", "dmask"};
    int64_t rows = s.batch * s.queries * s.groups * s.repeat;
    int64_t keys = s.batch * s.keys * s.groups * s.width;
    int64_t counts[] = {rows * s.width,    keys, keys,           rows * s.width,
                        e.sums ? rows : 0, 0,    rows * s.width, rows,
                        rows * s.width,    keys, keys,           0};
    array a[INS + OUTS];
    char what[200];

    s.all_queries = s.first_query + s.queries;
    s.all_keys = s.first_key + s.keys;
    s.all_heads = (s.first[1] + s.groups) * (s.first[2] + s.repeat);
    s.all_repeat = s.first[2] + s.repeat;
    for (int i = 0; i < INS + OUTS; i++) {
        sherd_dtype of = i == DLOG_SUM || i == LOG_SUM ? statistics(dtype) : dtype;
        if (i == MASK)
            a[i] = drawn_mask(&s, &e);
        else if (i < INS)
            a[i] = drawn(of, counts[i], shift, -2, 2, (uint64_t)i);
        else
            a[i] = room_for(i == DMASK ? SHERD_F64 : of, i == DMASK ? a[MASK].n : counts[i],
                            i == LOG_SUM || i == DMASK ? 0 : shift);
    }
    array spans = made_spans(&s);
    s.mask_dtype = e.mask;
    s.mask = e.mask ? a[MASK].host : NULL;
    s.span = document ? (const int32_t *)spans.host : NULL;
    plain(&s, dtype, a);
    s.mask = e.mask ? a[MASK].data : NULL;
    s.span = document ? (const int32_t *)spans.data : NULL;
    forward(&s, dtype, a);
    for (int i = OUT; i < INS + OUTS; i++) {
        if (i == DQ) { /* of the plain results: theirs may be rounded to the other side */
            if (twice) {
                forward(&s, dtype, a);
                same_bits(&a[OUT], names[0]);
                same_bits(&a[LOG_SUM], names[1]);
            }
            send(&a[OUT]);
            send(&a[LOG_SUM]);
            backward(&s, dtype, a);
        }
        name_problem(what, names[i - INS], &s, &e);
        same(&a[i], i == DMASK ? 1e8 * tolerance(dtype, 2) : tolerance(dtype, i - INS), what);
    }
    if (twice)
        backward(&s, dtype, a);
    for (int i = DQ; i < INS + OUTS && twice; i++)
        same_bits(&a[i], names[i - INS]);
    for (int i = 0; i < INS + OUTS; i++)
        drop(&a[i]);
    drop(&spans);
}

static void attention_is_plain(sherd_dtype dtype, sherd__attending s, int shift, bool twice)
{
    attention_with_is_plain(dtype, s, (extras){SHERD_DTYPE_NONE, 0, false, false, false}, shift,
                            twice);
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
        {1, 1, 1, 70, 63, 127}, {1, 2, 2, 16, 40, 16}, {1, 1, 2, 20, 37, 200},
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(shapes); i += check_stride(2)) {
            const int64_t *s = shapes[i];
            attention_is_plain(dtypes[d], problem(s[0], s[1], s[2], s[3], s[4], s[5]), 0,
                               i % 3 == 1);
        }
    close_device();
}

/* GPUs whose blocks have less memory copy tiles one after the other. */
static void less_memory_is_plain(void)
{
    setenv("SHERD_EMULATED_CUDA_ARCH", "86", 1);
    open_device();
    for (int i = 0; i < 2; i++) { /* f32, f64 */
        sherd__attending s = problem(1, 1, 2, 70, 130, 40);
        s.causal = true;
        s.first_query = 60;
        attention_is_plain(dtypes[i], s, 0, i == 0);
    }
    close_device();
    unsetenv("SHERD_EMULATED_CUDA_ARCH");
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
        for (int i = d % check_stride(2); i < LEN(firsts); i += check_stride(2)) {
            sherd__attending s = problem(1, 1, 2, 70, 75, 24);
            s.causal = true;
            s.first_query = firsts[i][0];
            s.first_key = firsts[i][1];
            attention_is_plain(dtypes[d], s, 0, false);
        }
    close_device();
}

/* Windows of one key and more, within a tile and over some, of pieces; caps; both with dropout. */
static void windows_and_caps_are_plain(void)
{
    static const int64_t windows[] = {1, 20, 64, 100, 0};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(windows); i += check_stride(2)) {
            sherd__attending s = problem(1, 1, 2, 140, 150, i == 2 ? 130 : i == 1 ? 70 : 24);
            s.causal = windows[i] > 0;
            s.window = windows[i];
            s.first_query = i * 30;
            s.first_key = i == 4 ? 0 : 15;
            s.softcap = i % 2 ? 0 : 0.8;
            s.p = i == 3 ? 0.2 : 0;
            attention_is_plain(dtypes[d], s, 0, false);
        }
    /* with a mask */
    sherd__attending s = problem(1, 1, 1, 70, 70, 24);
    s.causal = true;
    s.window = 30;
    for (int d = 0; d < LEN(dtypes); d += 2)
        attention_with_is_plain(dtypes[d], s, (extras){SHERD_BOOL, 7, false, false, false}, 0,
                                false);
    close_device();
}

/* Documents of one key and more, within tiles and over some; some queries see nothing. */
static void documents_are_plain(void)
{
    static const int64_t lengths[] = {1, 10, 70, 200};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(lengths); i += check_stride(2)) {
            sherd__attending s = problem(1 + i % 2, 1, 2, 140, 150, i == 2 ? 130 : 24);
            document = lengths[i];
            s.causal = (i + d) % 3 == 0;
            s.window = s.causal && i == 2 ? 20 : 0;
            s.first_query = s.first_key = i * 7;
            s.softcap = i % 2 ? 0 : 0.8;
            s.p = i == 1 ? 0.2 : 0;
            attention_is_plain(dtypes[d], s, 0, false);
        }
    document = 0;
    close_device();
}

/* Masks of all kinds, stretched or not; with causality, dropout, pieces of sequences. */
static void masks_are_plain(void)
{
    /* stretched dims: none; batch and heads; queries; keys; all */
    static const unsigned stretched[] = {0, 7, 8, 23, 31};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(stretched); i++) {
            if (i && (d + i) % 2) /* each for one of the 16-bit types, and one other */
                continue;
            sherd__attending s = problem(2, 1, 2, 21, 70, i == 2 ? 130 : i == 3 ? 70 : 24);
            extras e = {i % 2 ? SHERD_BOOL : dtypes[d], stretched[i], i == 1, i == 0, false};
            s.causal = i == 4;
            s.first_query = i == 4 ? 60 : 0;
            s.first_key = i == 1 ? 13 : 0;
            attention_with_is_plain(dtypes[d], s, e, 0, i == 0);
        }
    /* tiles of which nothing is seen */
    for (int d = 2; d < LEN(dtypes); d++)
        attention_with_is_plain(dtypes[d], problem(1, 1, 1, 90, 150, d == 2 ? 40 : 100),
                                (extras){d == 2 ? SHERD_BOOL : SHERD_F16, 7, false, false, true}, 0,
                                false);
    /* as pieces of 16-bit sequences, which are computed in f32 */
    attention_with_is_plain(SHERD_F32, problem(1, 1, 1, 9, 11, 8),
                            (extras){SHERD_BF16, 0, false, false, false}, 0, false);
    attention_with_is_plain(SHERD_F32, problem(1, 1, 1, 9, 11, 8),
                            (extras){SHERD_F16, 0, false, false, false}, 0, false);
    close_device();
}

/* Each score decides by its number in the whole tensor, so that all bits must be those of the
 * CPU: one other would be a large difference. */
static void dropout_is_plain(void)
{
    static const int64_t widths[] = {24, 100, 160};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(widths); i += check_stride(2)) {
            sherd__attending s =
                problem(1, 1 + (i == 0), 1 + (i == 1), 40 + 30 * (i == 1), 67 + i, widths[i]);
            s.p = 0.3;
            s.key = sherd__philox_key(3, 4, 5);
            s.causal = i == 1;
            s.first_query = 5 * i;
            s.first_key = 3 * i;
            s.first[0] = i;
            s.first[1] = 2;
            s.first[2] = i;
            extras e = {i == 2 ? SHERD_BOOL : SHERD_DTYPE_NONE, 7, false, false, false};
            attention_with_is_plain(dtypes[d], s, e, i == 0, i == 1);
        }
    close_device();
}

/* Two sets of keys are joined to all. */
static void joined_is_plain(void)
{
    open_device();
    for (int d = 0; d < 2; d++) {
        sherd__attending s = problem(2, 2, 1, 5, 1, 40);
        int64_t rows = 2 * 2 * 5;
        array x[4];
        for (int i = 0; i < 4; i++) {
            x[i] = drawn(dtypes[d], i % 2 ? rows : rows * 40, 0, -3, 3, (uint64_t)i);
            for (int64_t r = 0; i % 2 && r < 2; r++) { /* who has seen nothing */
                double none = -(double)INFINITY;
                int64_t at = (i == 1 ? r : r + 1) * (int64_t)sherd_dtype_bytes(dtypes[d]);
                sherd__cast(dtypes[d], SHERD_F64, 1, (char *)x[i].host + at, &none);
            }
            send(&x[i]);
        }
        sherd__device_attention_join(device, dtypes[d], &s, x[0].data, x[1].data, x[2].data,
                                     x[3].data);
        plain_of(dtypes[d])->attention_join(&s, x[0].host, x[1].host, x[2].host, x[3].host);
        same(&x[0], 1e-5, "joined");
        same(&x[1], 1e-5, "joined logarithms");
        for (int i = 0; i < 4; i++)
            drop(&x[i]);
    }
    close_device();
}

/* Where a block has 99 KB heads that are too wide are left to the CPU, and no launch fails. */
static void too_wide_for_less_memory_is_said(void)
{
    enum { MOST = 256, ROWS = 2 };

    setenv("SHERD_EMULATED_CUDA_ARCH", "89", 1);
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int64_t width = 32; width <= MOST; width *= 2) {
            sherd_dtype type = dtypes[d];
            sherd__attending s = problem(1, 1, 1, ROWS, ROWS, width);
            array x = drawn(type, ROWS * MOST, 0, -1, 1, 1), y = room_for(type, 4 * x.n, 0);
            array log_sum = room_for(statistics(type), ROWS, 0);
            void *p = x.data, *to = y.data;
            bool takes = sherd__device_attends(device, type, &s, SHERD__ATTENDING_FORWARD);
            bool back = sherd__device_attends(device, type, &s, SHERD__ATTENDING_BACK);
            CHECK_EQ(sherd__device_attention(device, type, &s, to, log_sum.data, p, p, p), takes);
            CHECK_EQ(sherd__device_attention_grad(device, type, &s, to, to, to, p, p, p, p, to,
                                                  log_sum.data),
                     back);
            CHECK(takes);
            CHECK_EQ(back, width <= 64);
            CHECK(sherd__device_wait(device));
            drop(&x), drop(&y), drop(&log_sum);
        }
    close_device();
    unsetenv("SHERD_EMULATED_CUDA_ARCH");
}

static void what_it_can_not_is_said(void)
{
    float x[1] = {0};

    open_device();
    sherd__attending masked = problem(1, 1, 1, 1, 1, 1), wider = masked, both = masked;
    both.mask = x;
    both.mask_dtype = SHERD_F32;
    CHECK(sherd__device_attends(device, SHERD_F32, &both, SHERD__ATTENDING_FORWARD));
    both.softcap = 1;
    CHECK(!sherd__device_attends(device, SHERD_F32, &both, SHERD__ATTENDING_FORWARD));
    masked.mask = x;
    masked.mask_dtype = SHERD_F64;
    wider.width = 257;
    CHECK(!sherd__device_attends(device, SHERD_F32, &masked, SHERD__ATTENDING_FORWARD));
    CHECK(!sherd__device_attends(device, SHERD_F32, &wider, SHERD__ATTENDING_FORWARD));
    CHECK(!sherd__device_attention(device, SHERD_F32, &masked, x, x, x, x, x));
    CHECK(!sherd__device_attention(device, SHERD_F32, &wider, x, x, x, x, x));
    CHECK(!sherd__device_attention_grad(device, SHERD_F32, &masked, x, x, x, x, x, x, x, x, x));
    CHECK(!sherd__device_attention_grad(device, SHERD_F32, &wider, x, x, x, x, x, x, x, x, x));
    close_device();
}

static const check_test tests[] = {
    {TEST(shapes_are_plain)},        {TEST(less_memory_is_plain)},
    {TEST(many_heads_are_plain)},    {TEST(misaligned_is_plain)},
    {TEST(pieces_are_plain)},        {TEST(masks_are_plain)},
    {TEST(dropout_is_plain)},        {TEST(joined_is_plain)},
    {TEST(what_it_can_not_is_said)}, {TEST(windows_and_caps_are_plain)},
    {TEST(documents_are_plain)},     {TEST(too_wide_for_less_memory_is_said)},
};
CHECK_MAIN(tests)
