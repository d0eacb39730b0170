/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions by oneDNN against the plain ones: a bias that is added with the product, two
 * gradients that share what both read, in less workspace than each by itself. Behind the workspace
 * nothing is written; where memory ends, nothing is lost. Gradients of weights also by kernels of
 * our own, behind oneDNN and by themselves.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "kernels/engine.h"

enum { ROOM = 1 << 18, WORKSPACE = 1 << 23, GUARD = 16, X = SHERD__CONV_X, W = SHERD__CONV_W, Y };

static float x[ROOM], w[ROOM], y[ROOM], bias[ROOM], made[2][ROOM], plain[2][ROOM];
static _Alignas(64) unsigned char workspace[WORKSPACE + 64];

static const sherd__conv geometries[] = {
    /* batch, groups, channels in and out, sizes in and out, kernel, stride, dilation, before */
    {2, 1, 16, 32, {1, 9, 11}, {1, 9, 11}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {1, 1, 32, 16, {1, 12, 7}, {1, 6, 4}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 1, 1}},
    {1, 2, 32, 32, {1, 8, 8}, {1, 6, 6}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {1, 1, 3, 5, {1, 1, 17}, {1, 1, 17}, {1, 1, 5}, {1, 1, 1}, {1, 1, 1}, {0, 0, 2}},
    {1, 1, 16, 16, {5, 6, 7}, {5, 6, 7}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    /* padding of more than half a kernel */
    {1, 1, 16, 16, {1, 9, 11}, {1, 12, 11}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {2, 1, 32, 16, {4, 6, 5}, {7, 8, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {2, 3, 2}},
    {1, 1, 3, 5, {1, 6, 5}, {1, 8, 8}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 3}},
    /* several chunks of a row, and of rows; what no output reads */
    {1, 1, 48, 16, {1, 3, 260}, {1, 3, 260}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {1, 1, 16, 16, {3, 30, 12}, {2, 14, 10}, {1, 4, 5}, {2, 2, 1}, {1, 1, 2}, {0, 0, 3}},
    {1, 1, 16, 32, {1, 9, 11}, {1, 3, 4}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, -1, -2}},
    /* images that our own kernel takes, one of them with padding of more than half a kernel */
    {1, 1, 16, 16, {1, 96, 96}, {1, 96, 96}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {1, 1, 16, 16, {1, 95, 97}, {1, 96, 97}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {1, 1, 16, 32, {7, 50, 40}, {4, 25, 40}, {3, 4, 3}, {2, 2, 1}, {1, 1, 1}, {1, 1, 1}},
    /* so many terms that oneDNN is called for some images at a time */
    {24, 1, 8, 8, {1, 32, 24}, {1, 32, 24}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {22, 1, 6, 9, {1, 32, 24}, {1, 34, 24}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {24, 2, 16, 8, {1, 25, 27}, {1, 25, 27}, {1, 3, 5}, {1, 1, 1}, {1, 1, 1}, {0, 1, 2}},
    /* sums of more than one pass */
    {2, 1, 64, 240, {1, 5, 4}, {1, 5, 4}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
};

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

static int64_t count_of(const sherd__conv *c, int i)
{
    int64_t count[] = {c->batch * c->in_channels * product(c->in),
                       c->out_channels * (c->in_channels / c->groups) * product(c->kernel),
                       c->batch * c->out_channels * product(c->out)};
    return count[i];
}

static void draw(void)
{
    static float drawn[4][ROOM];
    static bool is_drawn;
    float *all[] = {x, w, y, bias};

    for (int i = 0; i < LEN(all); i++) {
        if (!is_drawn)
            sherd__ref_f32.uniform(ROOM, drawn[i], -1, 1, sherd__philox_key(1, 1, (uint32_t)i), 0);
        memcpy(all[i], drawn[i], sizeof drawn[i]);
    }
    is_drawn = true;
    memset(workspace, 0x42, sizeof workspace);
}

static void compare(const float *is, const float *want, int64_t n, int64_t addends, int which)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++)
        wrong += !(fabs((double)is[i] - (double)want[i]) <= 1e-6 * (2 + (double)addends));
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "geometry %d\n", which);
}

/* The bytes of workspace; -1: it can not. Nothing lies behind them. */
static int64_t run(sherd__engine *engine, const sherd__conv_job *job)
{
    int64_t bytes;

    if (sherd__conv_onednn_bytes(&bytes, engine, job) != SHERD__DONE)
        return -1;
    if (!CHECK(bytes <= WORKSPACE))
        return -1;
    CHECK(sherd__conv_onednn(engine, job, workspace) == SHERD__DONE);
    CHECK_EQ(workspace[bytes], 0x42);
    return bytes;
}

static int try_bias(sherd__engine *engine, int which)
{
    const sherd__conv *c = &geometries[which];
    const sherd__conv_task task = {SHERD__CONV_FORWARD, {x, w, made[0]}};
    const sherd__conv_task slow = {SHERD__CONV_FORWARD, {x, w, plain[0]}};
    int64_t space = product(c->out);

    draw();
    if (run(engine, &(sherd__conv_job){c, &task, 1, bias, NULL}) < 0)
        return 0;
    sherd__conv_plain(c, SHERD_F32, &slow);
    for (int64_t i = 0; i < count_of(c, Y); i++)
        plain[0][i] += bias[i / space % c->out_channels];
    compare(made[0], plain[0], count_of(c, Y), count_of(c, W) / c->out_channels, which);
    return 1;
}

/* Gradients of weights by `kernels`, if they do; NULL: by oneDNN. */
static int try_both(sherd__engine *engine, int which, const sherd__kernels *kernels)
{
    const sherd__conv *c = &geometries[which];
    const sherd__conv_task both[] = {{SHERD__CONV_BACKWARD_X, {made[0], w, y}},
                                     {SHERD__CONV_BACKWARD_W, {x, made[1], y}}};
    const sherd__conv_task slow[] = {{SHERD__CONV_BACKWARD_X, {plain[0], w, y}},
                                     {SHERD__CONV_BACKWARD_W, {x, plain[1], y}}};
    int64_t apart[2];

    for (int t = 0; t < 2; t++) {
        draw();
        apart[t] = run(engine, &(sherd__conv_job){c, &both[t], 1, NULL, kernels});
        if (apart[t] < 0)
            return 0;
        sherd__conv_plain(c, SHERD_F32, &slow[t]);
    }
    memset(made, 0, sizeof made);
    draw();
    int64_t together = run(engine, &(sherd__conv_job){c, both, 2, NULL, kernels});
    CHECK(together >= apart[0] && together >= apart[1]);
    CHECK(together <= apart[0] + apart[1]);
    compare(made[0], plain[0], count_of(c, X), count_of(c, W) / c->in_channels * c->groups, which);
    compare(made[1], plain[1], count_of(c, W), c->batch * product(c->out), which);
    return 1 + (together < apart[0] + apart[1]);
}

static void they_are_as_the_plain_ones(void)
{
    sherd__heap heap = {0};
    sherd__kernels fast[FAST_SETS];
    int biased = 0, both = 0, of_own = 0, count = versions(fast);

    sherd__engine *engine = sherd__engine_create(&heap);
    if (!CHECK(engine))
        return;
    for (int g = 0; g < LEN(geometries); g++) {
        biased += try_bias(engine, g);
        both += try_both(engine, g, NULL);
        for (int v = 0; v < count; v++)
            of_own += try_both(engine, g, &fast[v]);
    }
    sherd__engine_destroy(engine);
    CHECK_EQ(heap.live, 0);
    fprintf(stderr, "%d of %d by oneDNN\n", biased, LEN(geometries));
    CHECK(biased == 0 || both > biased); /* what both read is shared somewhere */
    CHECK(biased == 0 || count == 0 || of_own > count * biased);
}

/* blocks[batch, channels / block, space, block] of plain[batch, channels, space]. */
static void lay(float *blocks, const float *of, int64_t batch, int64_t channels, int64_t space,
                int64_t block)
{
    for (int64_t n = 0; n < batch; n++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t i = 0; i < space; i++)
                blocks[((n * channels + c / block * block) * space) + i * block + c % block] =
                    of[(n * channels + c) * space + i];
}

/* Between guards: dw and the sums. 0: not for this geometry. */
static int try_weight(const sherd__kernels *kernels, int which)
{
    static float x_blocks[ROOM], y_blocks[ROOM], sums[ROOM];
    const sherd__conv *c = &geometries[which];
    const sherd__conv_task slow = {SHERD__CONV_BACKWARD_W, {x, plain[1], y}};
    int64_t block = kernels->conv_block, n = count_of(c, W);

    if (c->groups > 1 || c->in_channels % block || c->out_channels % block)
        return 0;
    draw();
    lay(x_blocks, x, c->batch, c->in_channels, product(c->in), block);
    lay(y_blocks, y, c->batch, c->out_channels, product(c->out), block);
    sherd__ref_f32.fill(made[1], n + GUARD, 7);
    sherd__ref_f32.fill(sums, n + GUARD, 7);
    kernels->conv_weight(c, made[1], x_blocks, y_blocks, sums);
    sherd__conv_plain(c, SHERD_F32, &slow);
    compare(made[1], plain[1], n, c->batch * product(c->out), which);
    for (int64_t i = n; i < n + GUARD; i++)
        CHECK(made[1][i] == 7 && sums[i] == 7);
    return 1;
}

static void gradients_of_weights_are_those_of_the_plain_kernel(void)
{
    sherd__kernels fast[FAST_SETS];

    for (int v = 0, count = versions(fast); v < count; v++) {
        int tried = 0;
        for (int g = 0; g < LEN(geometries); g++)
            tried += fast[v].conv_weight ? try_weight(&fast[v], g) : 0;
        CHECK_EQ(tried > 9, fast[v].conv_weight != NULL);
    }
}

/* 2^17 terms in one row, or a few in each of many rows and images, by the plain kernels. */
static void gradients_of_many_terms_are_exact(void)
{
    static const sherd__conv long_ones[] = {
        {1, 1, 1, 1, {1, 1, 1 << 17}, {1, 1, 1 << 17}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}},
        {1, 1, 1, 1, {1, 1, 1 << 17}, {1, 1, 1 << 16}, {1, 1, 1}, {1, 1, 2}, {1, 1, 1}, {0}},
        {256, 1, 1, 1, {1, 64, 8}, {1, 64, 8}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}}};

    for (int i = 0; i < ROOM; i++) {
        x[i] = 0.1f;
        y[i] = 0.7f;
    }
    for (int g = 0; g < LEN(long_ones); g++) {
        const sherd__conv *c = &long_ones[g];
        double terms = (double)(c->batch * c->out[1] * c->out[2]);
        sherd__conv_f32.backward_w(c, made[0], x, y);
        CHECK_NEAR((double)made[0][0] / (terms * (double)0.1f * (double)0.7f), 1, 1e-6);
    }
}

/* 2^18 terms of many images, by oneDNN: each tap of a kernel meets its own number of places. */
static void gradients_of_many_images_are_exact(void)
{
    enum { IMAGES = 256, CHANNELS = 16, SIDE = 32, ALL = IMAGES * CHANNELS * SIDE * SIDE };
    static float images[ALL], slopes[ALL];
    static _Alignas(64) unsigned char room[3 * ALL * sizeof(float)];
    const sherd__conv c = {IMAGES,          1,         CHANNELS,  CHANNELS,  {1, SIDE, SIDE},
                           {1, SIDE, SIDE}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}};
    const sherd__conv_task task = {SHERD__CONV_BACKWARD_W, {images, made[1], slopes}};
    const sherd__conv_job job = {&c, &task, 1, NULL, NULL};
    sherd__heap heap = {0};
    int64_t bytes;

    sherd__engine *engine = sherd__engine_create(&heap);
    if (!CHECK(engine))
        return;
    for (int i = 0; i < ALL; i++) {
        images[i] = 0.1f;
        slopes[i] = 0.7f;
    }
    bool done = sherd__conv_onednn_bytes(&bytes, engine, &job) == SHERD__DONE;
    CHECK(!done || bytes <= (int64_t)sizeof room);
    done = done && sherd__conv_onednn(engine, &job, room) == SHERD__DONE;
    for (int i = 0; done && i < count_of(&c, W); i++) {
        int high = i / 3 % 3 == 1 ? SIDE : SIDE - 1, wide = i % 3 == 1 ? SIDE : SIDE - 1;
        double terms = (double)IMAGES * high * wide;
        CHECK_NEAR((double)made[1][i] / (terms * (double)0.1f * (double)0.7f), 1, 4e-5);
    }
    sherd__engine_destroy(engine);
}

static void no_memory_is_said_and_nothing_is_lost(void)
{
    const sherd__conv_task both[] = {{SHERD__CONV_BACKWARD_X, {made[0], w, y}},
                                     {SHERD__CONV_BACKWARD_W, {x, made[1], y}}};
    sherd__kernels fast[FAST_SETS];
    int count = versions(fast);
    const sherd__conv_job own = {&geometries[11], both, 2, NULL, count ? &fast[count - 1] : NULL},
                          other = {&geometries[0], both, 2, NULL, NULL};

    for (int64_t n = 1; n < 80; n++) {
        const sherd__conv_job *job = n % 2 ? &own : &other;
        sherd__heap heap = {0};
        sherd__engine *engine = sherd__engine_create(&heap);
        int64_t bytes;
        if (!CHECK(engine))
            return;
        heap.allocations = 0;
        heap.fail_at = n / 2 + 1;
        sherd__done done = sherd__conv_onednn_bytes(&bytes, engine, job);
        CHECK(done != SHERD__DONE || n / 2 + 1 > heap.allocations);
        heap.fail_at = 0;
        sherd__engine_destroy(engine);
        CHECK_EQ(heap.live, 0);
    }
}

static const check_test tests[] = {
    {TEST(they_are_as_the_plain_ones)},
    {TEST(gradients_of_weights_are_those_of_the_plain_kernel)},
    {TEST(gradients_of_many_terms_are_exact)},
    {TEST(gradients_of_many_images_are_exact)},
    {TEST(no_memory_is_said_and_nothing_is_lost)},
};
CHECK_MAIN(tests)
