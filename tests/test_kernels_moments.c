/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms of rows whose sums or squares no f32 holds, or whose numbers are nearly equal, and losses
 * of logits beside which a logarithm is nothing: by the plain kernels and those of every
 * instruction set, of f32 and of 16 bits, as f64 has them.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "kernels/squares.h"

enum { MOST = 5000, TABLES = 2 * (1 + FAST_SETS) };

static float x[MOST], y[MOST], sum[MOST];
static uint16_t low[MOST], zero[MOST];
static double wide[MOST], wanted[MOST];

/* The plain table of f32 and those of all instruction sets, then those of bf16. */
static int tables(sherd__kernels out[TABLES])
{
    fast_set sets[FAST_SETS];
    sherd__kernels f16;
    int n = fast_sets(sets), all = 1 + n;

    out[0] = sherd__ref_f32;
    versions(out + 1);
    sherd__install_half_ref(&out[all], &f16);
    for (int i = 0; i < n; i++)
        sets[i].half(&out[all + 1 + i], &f16);
    return 2 * all;
}

/* x as the table holds it; rounded to it first. */
static const void *taken(const sherd__kernels *k, bool is_half, int n)
{
    if (is_half) {
        k->narrow(n, low, x);
        k->widen(n, x, low);
    }
    for (int i = 0; i < n; i++)
        wide[i] = (double)x[i];
    return is_half ? (const void *)low : x;
}

/* The largest error of y, which its type rounds. */
static double error_of(const sherd__kernels *k, bool is_half, const void *is, int n)
{
    double most = 0;
    static float read[MOST];

    memcpy(read, is, (size_t)n * (is_half ? sizeof(uint16_t) : sizeof(float)));
    if (is_half) {
        static uint16_t halves[MOST];
        memcpy(halves, is, sizeof *halves * (size_t)n);
        k->widen(n, read, halves);
    }
    for (int i = 0; i < n; i++) {
        double apart = fabs((double)read[i] - wanted[i]) / (1 + fabs(wanted[i]));
        most = apart > most || isnan(apart) ? apart : most;
    }
    return most;
}

static void want(int n, bool centred, double eps)
{
    static double mean_of[1], rstd_of[1];

    if (centred)
        sherd__ref_f64.layer_norm(1, n, wanted, mean_of, rstd_of, wide, NULL, NULL, eps);
    else
        sherd__ref_f64.rms_norm(1, n, wanted, rstd_of, wide, NULL, eps);
}

static void check_error(const sherd__kernels *k, bool is_half, const void *is, int n,
                        double tolerance, const char *what)
{
    double error = error_of(k, is_half, is, n);

    if (!CHECK(error <= tolerance))
        fprintf(stderr, "%s of %s, %d numbers near %g: %g\n", what, k->name, n, (double)x[0],
                error);
}

/* `centred`: the tolerance of layer norms; those without a mean are about 1. */
static void try_norms(const sherd__kernels *k, bool is_half, int n, double eps, double centred)
{
    double tolerance = is_half ? 0x1p-8 : 2e-6;
    const void *row = taken(k, is_half, n);
    float mean, rstd;

    want(n, true, eps);
    k->layer_norm(1, n, y, &mean, &rstd, row, NULL, NULL, eps);
    check_error(k, is_half, y, n, centred, "layer norm");
    if (is_half) { /* of f32, to which 16 bits are added */
        k->add_norm(1, n,
                    &(sherd__added_norm){.x = x,
                                         .delta = zero,
                                         .sum = sum,
                                         .mean = &mean,
                                         .rstd = &rstd,
                                         .norm = y,
                                         .eps = eps});
        check_error(k, true, y, n, centred, "sum and layer norm");
    }
    want(n, false, eps);
    k->rms_norm(1, n, y, &rstd, row, NULL, eps);
    check_error(k, is_half, y, n, tolerance, "RMS norm");
    if (is_half) {
        k->add_norm(1, n,
                    &(sherd__added_norm){
                        .x = x, .delta = zero, .sum = sum, .rstd = &rstd, .norm = y, .eps = eps});
        check_error(k, true, y, n, tolerance, "sum and RMS norm");
    }
}

/* Numbers of both signs, about so large. */
static void draw(int n, double size)
{
    for (int i = 0; i < n; i++)
        x[i] = (float)(size * (0.3 + (double)(i * 37 % 101) / 101) * (i % 3 ? 1 : -1));
}

static void large_and_small_numbers_have_norms(void)
{
    static const int lengths[] = {1, 5, 24, 768, MOST};
    static const double sizes[] = {1e15, 3e19, 1e30, 1e38, 1e-15, 1e-22, 1e-30};
    sherd__kernels list[TABLES];
    int count = tables(list);

    for (int t = 0; t < count; t++)
        for (int s = 0; s < LEN(sizes); s++)
            for (int n = 0; n < LEN(lengths); n++) {
                bool is_half = t >= count / 2;
                draw(lengths[n], sizes[s]);
                /* a row of one number has no deviation */
                double eps = lengths[n] == 1 ? 1e-6 : sizes[s] * sizes[s] * 1e-6;
                try_norms(&list[t], is_half, lengths[n], eps, is_half ? 0x1p-8 : 2e-6);
            }
}

static void nearly_equal_numbers_have_norms(void)
{
    static const int lengths[] = {5, 7, 768, MOST};
    sherd__kernels list[TABLES];
    int count = tables(list);

    for (int t = 0; t < count; t++)
        for (int n = 0; n < LEN(lengths); n++) {
            bool is_half = t >= count / 2;
            for (int i = 0; i < lengths[n]; i++)
                x[i] = 0.1f;
            /* of few numbers of 16 bits a mean that is off by its last bit shows */
            try_norms(&list[t], is_half, lengths[n], 1e-5,
                      lengths[n] > 256 || !is_half ? 1e-7 : 4e-6);
            for (int i = 0; i < lengths[n]; i++) /* a sum that f32 does not hold */
                x[i] = 10000001;
            try_norms(&list[t], is_half, lengths[n], 1e-5, is_half ? 0x1p-8 : 1e-7);
            for (int i = 0; i < lengths[n]; i++) /* a mean that f32 does not hold */
                x[i] = 256 + 0x1p-7f * (float)(i % 5);
            try_norms(&list[t], is_half, lengths[n], 1e-5, is_half ? 0x1p-8 : 2e-3);
        }
}

/* Equal logits: the loss is a logarithm, however large they are. */
static void large_logits_have_losses(void)
{
    enum { CLASSES = 40 };
    static const double sizes[] = {0, 1e4, 1e20, 3e38, -3e38};
    const int32_t target = 7;
    sherd__kernels list[TABLES];
    float stats[3];
    double sums[2];

    for (int t = 0, count = tables(list); t < count; t++)
        for (int s = 0; s < LEN(sizes); s++) {
            for (int i = 0; i < CLASSES; i++)
                x[i] = (float)sizes[s];
            const void *row = taken(&list[t], t >= count / 2, CLASSES);
            list[t].cross_entropy(1, CLASSES, stats, row, &target, 0);
            double loss = list[t].cross_entropy_join(1, 1, sums, stats);
            CHECK_NEAR(loss, log(CLASSES), 1e-6);
        }
}

/* Gradients do not lack the bits that a large logarithm has no room for. */
static void large_logits_have_gradients(void)
{
    enum { CLASSES = 40 };
    static const double sizes[] = {1, 100, 1000, 30000, 1e20, 3e38, -3e38};
    const int32_t target = 7;
    sherd__kernels list[TABLES];

    for (int t = 0, count = tables(list); t < count; t++)
        for (int s = 0; s < LEN(sizes); s++) {
            bool is_half = t >= count / 2;
            float stats[3];
            double sums[2];
            for (int i = 0; i < CLASSES; i++)
                x[i] = (float)sizes[s];
            const void *row = taken(&list[t], is_half, CLASSES);
            list[t].cross_entropy(1, CLASSES, stats, row, &target, 0);
            list[t].cross_entropy_join(1, 1, sums, stats);
            list[t].cross_entropy_grad(1, CLASSES, y, row, &target, 0, sums, 1);
            for (int i = 0; i < CLASSES; i++)
                wanted[i] = 1. / CLASSES - (i == target);
            check_error(&list[t], is_half, y, CLASSES, is_half ? 0x1p-9 : 3e-8, "gradient");
        }
}

/* The largest error of sums of squares, relative to what they are, or to 1. */
static double squares_error(const sherd__squares *s, const double *is)
{
    double most = 0;

    for (int64_t i = 0; i < s->outer * s->inner; i++) {
        double all = 0;
        for (int64_t r = 0; r < s->mid; r++) {
            double v = wide[(i / s->inner * s->mid + r) * s->inner + i % s->inner];
            all += v * v;
        }
        most = fmax(most, fabs(is[i] - all) / (1 + all));
    }
    return most;
}

/* Of x[outer,mid,inner] over mid: few columns, of which several rows are added up as one, and
 * many; few rows, and many short ones. */
static void squares_are_added_up_by_column(void)
{
    static const int64_t mids[] = {1, 7, 8, 9, 31, 170, 171, 400}, inners[] = {1, 2, 3, 5, 64, 65};
    static const int64_t outers[] = {2, 73, 600};
    static double is[MOST];
    sherd__kernels k[TABLES];
    int count = tables(k);

    for (int i = 0; i < MOST; i++)
        x[i] = (float)sin(i) * (float)(1 + i % 7);
    for (int t = 0; t < count; t++) {
        const void *at = taken(&k[t], t >= count / 2, MOST);
        for (int m = 0; m < LEN(mids) * LEN(outers); m++)
            for (int c = 0; c < LEN(inners); c++) {
                const sherd__squares s = {outers[m % LEN(outers)], mids[m / LEN(outers)],
                                          inners[c]};
                if (s.outer * s.mid * s.inner > MOST)
                    continue;
                sherd__sum_squares_of(&k[t], t < count / 2 ? SHERD_F32 : SHERD_BF16, &s, is, at);
                CHECK(squares_error(&s, is) < 1e-13);
            }
    }
}

static const check_test tests[] = {
    {TEST(squares_are_added_up_by_column)},  {TEST(large_and_small_numbers_have_norms)},
    {TEST(nearly_equal_numbers_have_norms)}, {TEST(large_logits_have_losses)},
    {TEST(large_logits_have_gradients)},
};
CHECK_MAIN(tests)
