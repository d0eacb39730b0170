/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers one by one: see draw.h. About 10 ns an integer and 60 ns a truncated normal
 * number; parameters are drawn once.
 */
#include "draw.h"

#include <math.h>

static const double words = 4294967296.0; /* 2^32 */

/* Word i of the stream of a key. Neighbours share a block. */
typedef struct stream {
    sherd__key key;
    int64_t block;
    uint32_t word[4];
} stream;

static uint32_t next(stream *s, int64_t i)
{
    if (i / 4 != s->block) {
        s->block = i / 4;
        sherd__philox(s->word, s->key, (uint64_t)s->block);
    }
    return s->word[i % 4];
}

void sherd__draw_integers(int64_t n, double *out, double low, double count, sherd__key key,
                          int64_t first)
{
    stream s = {.key = key, .block = -1};
    uint64_t choices = (uint64_t)count;

    for (int64_t i = 0; i < n; i++)
        out[i] = low + (double)(next(&s, first + i) * choices >> 32);
}

void sherd__draw_bernoulli(int64_t n, double *out, double p, sherd__key key, int64_t first)
{
    stream s = {.key = key, .block = -1};

    for (int64_t i = 0; i < n; i++)
        out[i] = (double)next(&s, first + i) < p * words;
}

/* Polynomials of Wichura's AS 241, PPND16: near the middle, in the tails, and far out in them. */
static double ratio(const double *a, const double *b, double r)
{
    double above = a[7], below = b[7];

    for (int i = 6; i >= 0; i--) {
        above = above * r + a[i];
        below = below * r + b[i];
    }
    return above / below;
}

double sherd__normal_quantile(double p)
{
    static const double middle[2][8] = {
        {3.3871328727963666080e0, 1.3314166789178437745e+2, 1.9715909503065514427e+3,
         1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
         3.3430575583588128105e+4, 2.5090809287301226727e+3},
        {1.0, 4.2313330701600911252e+1, 6.8718700749205790830e+2, 5.3941960214247511077e+3,
         2.1213794301586595867e+4, 3.9307895800092710610e+4, 2.8729085735721942674e+4,
         5.2264952788528545610e+3}};
    static const double tail[2][8] = {
        {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
         3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
         2.27238449892691845833e-2, 7.74545014278341407640e-4},
        {1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
         1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
         1.05075007164441684324e-9}};
    static const double far[2][8] = {
        {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
         2.71155556874348757815e-5, 2.01033439929228813265e-7},
        {1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
         7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
         2.04426310338993978564e-15}};
    double q = p - 0.5;

    if (fabs(q) <= 0.425)
        return q * ratio(middle[0], middle[1], 0.180625 - q * q);
    double r = sqrt(-log(q < 0 ? p : 1 - p));
    double x = r <= 5 ? ratio(tail[0], tail[1], r - 1.6) : ratio(far[0], far[1], r - 5);
    return q < 0 ? -x : x;
}

static double below(double x)
{
    return 0.5 * erfc(-x * 0.7071067811865476);
}

void sherd__draw_truncated(int64_t n, double *out, const double mean_deviation[2], double low,
                           double high, sherd__key key, int64_t first)
{
    stream s = {.key = key, .block = -1};
    double mean = mean_deviation[0], deviation = mean_deviation[1];
    /* Of what lies above the mean the mirror image: probabilities near 1 have no digits left. */
    double sign = low > mean ? -1 : 1;
    double a = (sign > 0 ? low - mean : mean - high) / deviation;
    double b = (sign > 0 ? high - mean : mean - low) / deviation;
    double from = below(a), share = below(b) - from;

    for (int64_t i = 0; i < n; i++) {
        double p = from + share * (((double)next(&s, first + i) + 0.5) / words);
        double x = mean + sign * deviation * sherd__normal_quantile(p);
        out[i] = x < low ? low : x > high ? high : x;
    }
}
