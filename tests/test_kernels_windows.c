/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast attention through windows, within documents, and with caps of scores against the plain one;
 * and what the plain one must be: a window is a mask, and a cap holds scores.
 */
#define CHECK_PURE
#include "check.h"
#include "attention_sides.h"

/* Windows around every edge of tiles and blocks, of sequences and of their pieces. */
static void fast_is_plain_in_windows(void)
{
    static const int64_t lengths[] = {7, 13, 48, 97, 300, 601},
                         windows[] = {1, 2, 5, 12, 31, 96, 97, 290};
    side plain = open_side(), fast = open_side();

    for (int l = 0; l < LEN(lengths); l++)
        for (int w = 0; w < LEN(windows); w++)
            for (int64_t ahead = -20; ahead <= 40; ahead += 20) {
                sherd__attending shape = problem(1, 1, 1, lengths[l], lengths[l], 5, 0.4);
                shape.causal = true;
                shape.window = windows[w];
                shape.first_query = 20 + ahead * (1 + lengths[l] / 30);
                shape.first_key = 20;
                shape.softcap = w % 3 ? 0 : 1.5;
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

/* Documents from one key on, within tiles and over blocks. */
static void fast_is_plain_in_documents(void)
{
    static const int64_t lengths[] = {13, 97, 300, 601}, each[] = {1, 7, 64, 250};
    static int32_t span[2 * 601];
    side plain = open_side(), fast = open_side();

    for (int l = 0; l < LEN(lengths); l++)
        for (int e = 0; e < LEN(each); e++)
            for (int causal = 0; causal < 2; causal++) {
                sherd__attending shape = problem(2, 1, 1, lengths[l], lengths[l], 5, 0.4);
                for (int64_t i = 0; i < lengths[l]; i++) {
                    span[2 * i] = (int32_t)((i + 3) / each[e] * each[e] - 3);
                    span[2 * i + 1] = (int32_t)(span[2 * i] + each[e]);
                }
                shape.causal = causal;
                shape.span = span;
                shape.window = causal && e % 2 ? 50 : 0;
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

/* A window is a mask that hides what is before it, to the last bit of the plain version. */
static void a_window_is_a_mask(void)
{
    enum { N = 40 };
    static unsigned char mask[N * N];
    side window = open_side(), masked = open_side();

    for (int64_t size = 1; size < N + 3; size += size < 5 ? 1 : 9) {
        sherd__attending shape = problem(1, 2, 2, N, N, 5, 0.4);
        shape.causal = true;
        shape.softcap = size % 2 ? 2 : 0;
        for (int64_t i = 0; i < N * N; i++)
            mask[i] = i / N < i % N + size;
        sherd__attending other = shape;
        shape.window = size;
        other.mask = mask;
        other.mask_dtype = SHERD_BOOL;
        other.mask_stride[3] = N;
        other.mask_stride[4] = 1;
        run(&window, &shape, NULL);
        run(&masked, &other, NULL);
        compare(&masked, &window, &shape);
    }
    close_side(&window);
    close_side(&masked);
}

/* Caps hold scores: with a small one, and scores that are large, weights differ by at most e^2cap.
 * Gradients are those of differences. */
static void caps_hold_scores(void)
{
    enum { N = 9, WIDE = 3 };
    sherd__attending shape = problem(1, 1, 1, N, N, WIDE, 3);
    side s = open_side();

    shape.softcap = 0.01;
    run(&s, &shape, NULL);
    for (int d = 0; d < N * WIDE; d++) {
        float mean = 0;
        for (int j = 0; j < N; j++)
            mean += input[2][j * WIDE + d % WIDE] / N;
        CHECK_NEAR(s.result[0][d], mean, 0.05);
    }
    shape.softcap = 0.8;
    for (int d = 0; d < N * WIDE; d++) {
        const float step = 1e-2f, x = input[0][d];
        float sum[2] = {0, 0};
        for (int i = 0; i < 2; i++) {
            input[0][d] = x + (i ? step : -step);
            run(&s, &shape, NULL);
            for (int j = 0; j < N * WIDE; j++)
                sum[i] += s.result[0][j] * input[3][j];
        }
        input[0][d] = x;
        run(&s, &shape, NULL);
        CHECK_NEAR(s.result[2][d], (sum[1] - sum[0]) / (2 * step), 2e-3);
    }
    close_side(&s);
}

static const check_test tests[] = {
    {TEST(fast_is_plain_in_windows)},
    {TEST(fast_is_plain_in_documents)},
    {TEST(a_window_is_a_mask)},
    {TEST(caps_hold_scores)},
};

int main(int argc, char **argv)
{
    open_inputs();
    int status = check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
    close_inputs();
    return status;
}
