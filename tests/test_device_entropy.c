/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy with options on the GPU against the plain kernels of the CPU. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"
#include "device/entropy.h"
#include "kernels/layers.h"

enum { LOGITS, PROBABILITIES, WEIGHT, DY, TARGETS, STATS, SUMS, AMOUNT, LOSS, GRAD, ARRAYS };

typedef struct subject {
    int64_t rows, cols, first;
    double smoothing;
    bool probabilities, weighted;
} subject;

/* Of the whole row's classes, of which twice as many as are here are elsewhere. */
static sherd__entropy entropy_of(const subject *s, const array *a, bool there)
{
    sherd__entropy e = {.rows = s->rows,
                        .cols = s->cols,
                        .first = s->first,
                        .keep = 1 - s->smoothing,
                        .spread = s->smoothing / (3 * (double)s->cols),
                        .ignored = 2};

    if (s->weighted)
        e.weight = there ? a[WEIGHT].data : a[WEIGHT].host;
    if (s->probabilities)
        e.probability = there ? a[PROBABILITIES].data : a[PROBABILITIES].host;
    else
        e.target = there ? a[TARGETS].data : a[TARGETS].host;
    return e;
}

/* By the CPU: numbers of one part, joined; gradients where dy is of each row. */
static void plain(const subject *s, sherd_dtype dtype, array *a, double pair[2], bool of_targets)
{
    const sherd__layer_kernels *k = sherd__layer_kernels_of(dtype);
    sherd__entropy e = entropy_of(s, a, false);
    double *loss = malloc(sizeof *loss * (size_t)(2 * s->rows + 1)), *scale = loss + s->rows;
    int32_t *none = malloc(sizeof *none * (size_t)(s->rows + 1));

    if (!loss || !none)
        abort();
    memset(none, -1, sizeof *none * (size_t)s->rows);
    plain_of(dtype)->cross_entropy(s->rows, s->cols, a[STATS].host, a[LOGITS].host,
                                   e.target ? e.target : none, s->first);
    k->entropy(&e, a[STATS].host, a[LOGITS].host);
    pair[1] = k->entropy_join(&e, 1, a[SUMS].host, a[AMOUNT].host, loss, a[STATS].host);
    pair[0] = 0;
    for (int64_t r = 0; r < s->rows; r++)
        pair[0] += loss[r];
    sherd__cast(dtype, SHERD_F64, s->rows, a[LOSS].host, loss);
    sherd__cast(SHERD_F64, dtype, s->rows, scale, a[DY].host);
    if (of_targets)
        k->entropy_target_grad(&e, a[GRAD].host, a[LOGITS].host, a[SUMS].host, scale);
    else
        k->entropy_grad(&e, a[GRAD].host, a[LOGITS].host, a[SUMS].host, a[AMOUNT].host, scale);
    free(loss);
    free(none);
}

static void by_the_gpu(const subject *s, sherd_dtype dtype, const array *a, double *pair,
                       bool of_targets)
{
    sherd__entropy e = entropy_of(s, a, true);
    const sherd__entropy_slope slope = {a[DY].data, NULL, true};

    sherd__device_entropy(device, dtype, &e, a[STATS].data, a[LOGITS].data);
    sherd__device_entropy_join(device, dtype, &e, 1, a[SUMS].data, a[AMOUNT].data, a[LOSS].data,
                               pair, a[STATS].data);
    sherd__device_entropy_grad(device, dtype, &e, a[GRAD].data, a[LOGITS].data, a[SUMS].data,
                               of_targets ? NULL : a[AMOUNT].data, &slope);
}

/* A row with an infinite logit, one with none that is finite, one with a NaN. */
static void spoil(array *logits, sherd_dtype dtype, const subject *s)
{
    size_t bytes = sherd_dtype_bytes(dtype);
    const double none = -(double)INFINITY, nan = (double)NAN;

    for (int64_t c = 0; c < s->cols && s->rows > 4; c++)
        sherd__cast(dtype, SHERD_F64, 1, (char *)logits->host + (size_t)(s->cols + c) * bytes,
                    &none);
    if (s->rows > 4) {
        sherd__cast(dtype, SHERD_F64, 1, (char *)logits->host + (size_t)(2 * s->cols) * bytes,
                    &none);
        sherd__cast(dtype, SHERD_F64, 1, (char *)logits->host + (size_t)(3 * s->cols) * bytes,
                    &nan);
    }
    send(logits);
}

static void entropy_is_plain(sherd_dtype dtype, const subject *s, int shift, bool of_targets)
{
    static const char *const names[ARRAYS] = {[STATS] = "stats",
                                              [SUMS] = "sums",
                                              [AMOUNT] = "amount",
                                              [LOSS] = "loss",
                                              [GRAD] = "gradient"};
    const int64_t n = s->rows * s->cols, counts[] = {n,           n,           s->cols, s->rows, 0,
                                                     5 * s->rows, 2 * s->rows, s->rows, s->rows, n};
    array a[ARRAYS], pair = room_for(SHERD_F64, 2, 0);

    for (int i = 0; i < ARRAYS; i++) {
        bool statistic = i == STATS || i == AMOUNT;
        if (i == TARGETS)
            a[i] = drawn_ids(s->rows, 3 * s->cols, 5);
        else if (i < STATS)
            a[i] = drawn(dtype, counts[i], shift, i == LOGITS ? -4 : 0, i == LOGITS ? 4 : 1,
                         (uint64_t)i);
        else
            a[i] = room_for(i == SUMS   ? SHERD_F64
                            : statistic ? statistics(dtype)
                                        : dtype,
                            counts[i], 0);
    }
    spoil(&a[LOGITS], dtype, s);
    plain(s, dtype, a, pair.host, of_targets);
    by_the_gpu(s, dtype, a, pair.data, of_targets);
    for (int i = STATS; i < ARRAYS; i++) {
        char what[120];
        snprintf(what, sizeof what, "%s of %d x %d from %d, smoothed %g", names[i], (int)s->rows,
                 (int)s->cols, (int)s->first, s->smoothing);
        same(&a[i], i == SUMS ? log_sum_of(dtype, 2e-5) : 2e-5, what);
    }
    same(&pair, 1e4, "sums");
    by_the_gpu(s, dtype, a, pair.data, of_targets);
    same_bits(&pair, "sums");
    for (int i = 0; i < ARRAYS; i++)
        drop(&a[i]);
    drop(&pair);
}

static void entropies_are_plain(void)
{
    static const subject subjects[] = {
        {0, 3, 0, 0, false, false},    {1, 1, 0, 0, false, true},     {7, 16, 16, 0, false, true},
        {6, 5, 5, 0.3, false, false},  {9, 64, 64, 0.1, false, true}, {8, 24, 0, 0, true, false},
        {5, 2056, 0, 0.2, true, true}, {600, 2, 2, 0, false, false},
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(subjects); i++)
            entropy_is_plain(dtypes[d], &subjects[i], i % 2, subjects[i].probabilities && d % 2);
    close_device();
}

/* A loss is a sum, or a mean over what counts. */
static void losses_end(void)
{
    const double pair[] = {6, 4};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++) {
        array from = room_for(SHERD_F64, 2, 0), loss = room_for(dtypes[d], 2, 0),
              counted = room_for(statistics(dtypes[d]), 1, 0);
        memcpy(from.host, pair, sizeof pair);
        send(&from);
        sherd__cast(dtypes[d], SHERD_F64, 2, loss.host, (double[]){6, 1.5});
        sherd__cast(counted.dtype, SHERD_F64, 1, counted.host, (double[]){4});
        char *second = (char *)loss.data + sherd_dtype_bytes(dtypes[d]);
        sherd__device_entropy_end(device, dtypes[d], loss.data, NULL, from.data);
        sherd__device_entropy_end(device, dtypes[d], second, counted.data, from.data);
        same(&loss, 0, "losses");
        same(&counted, 0, "what counts");
        drop(&from);
        drop(&loss);
        drop(&counted);
    }
    close_device();
}

static const check_test tests[] = {{TEST(entropies_are_plain)}, {TEST(losses_end)}};
CHECK_MAIN(tests)
