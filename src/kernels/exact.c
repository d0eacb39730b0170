/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact sums. A number is added to the two or three digits that its bits lie in; digits have 31
 * bits of room, so carries move on rarely. Blocks are faster: of each number the part above some
 * bit is split off by adding and subtracting a power of 2, and these parts, which have so few bits
 * that their sum is exact, are added as f64; then the same with the next 43 bits. What is left is
 * nearly always nothing. If something is, or if a number is not finite, or near the ends of the
 * range, the block is added number by number.
 */
#include "exact.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { LOWEST = -1088, DIGIT_BITS = 32, NANS = 0, PLUS, MINUS };
#define DIGIT_MASK INT64_C(0xffffffff)

/* Digits of f32 (of 16 bits too): 2^-149 lies in digit 29, 2^127 in 37; two more for the sum. */
enum { NARROW_FIRST = 29, NARROW_END = 40 };

int sherd__exact_words(sherd_dtype dtype)
{
    return SHERD__EXACT_ENDS +
           (dtype == SHERD_F64 ? SHERD__EXACT_DIGITS : NARROW_END - NARROW_FIRST);
}

void sherd__exact_begin(sherd__exact *sum, sherd_dtype dtype)
{
    sum->first = dtype == SHERD_F64 ? 0 : NARROW_FIRST;
    sum->end = dtype == SHERD_F64 ? SHERD__EXACT_DIGITS : NARROW_END;
    sum->adds = 0;
    memset(sum->digit, 0, sizeof sum->digit); /* an f64 has bits of 0 below those of an f32 */
    memset(sum->ends, 0, sizeof sum->ends);
}

/* Move carries on: all digits are in [0, 2^32) then, but for the last, which has the sign. */
static void carry(sherd__exact *sum)
{
    for (int k = sum->first; k < sum->end - 1; k++) {
        int64_t low = sum->digit[k] & DIGIT_MASK;
        sum->digit[k + 1] += (sum->digit[k] - low) / (DIGIT_MASK + 1);
        sum->digit[k] = low;
    }
    sum->adds = 0;
}

static void add_one(sherd__exact *sum, double x)
{
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    int64_t part = (int64_t)(bits & ((UINT64_C(1) << 52) - 1));
    int64_t sign = -(int64_t)(bits >> 63); /* all bits, if it is below 0 */
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff) {
        sum->ends[part ? NANS : sign ? MINUS : PLUS]++;
        return;
    }
    part |= exponent ? INT64_C(1) << 52 : 0;
    unsigned at = (unsigned)((exponent ? exponent : 1) - 1075 - LOWEST);
    int64_t low = (part & DIGIT_MASK) << (at % DIGIT_BITS);
    int64_t high = (part >> DIGIT_BITS) << (at % DIGIT_BITS);
    int64_t *digit = sum->digit + at / DIGIT_BITS;
    digit[0] += ((low & DIGIT_MASK) ^ sign) - sign;
    digit[1] += (((low >> DIGIT_BITS) + (high & DIGIT_MASK)) ^ sign) - sign;
    digit[2] += ((high >> DIGIT_BITS) ^ sign) - sign;
}

static void add_each(sherd__exact *sum, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        add_one(sum, x[i]);
}

/*
 * Two numbers: the vectors that every machine has. A loop over lanes is turned inside out by
 * compilers, at twice the time.
 */
typedef double pair __attribute__((vector_size(16)));
typedef int64_t pair_bits __attribute__((vector_size(16)));
enum { PAIRS = 2, LANES = 2 * PAIRS };

static pair load(const double *x)
{
    pair p;

    memcpy(&p, x, sizeof p);
    return p;
}

/* About the sum of all |x|; NaN or infinite if one is. */
static double size_of(int64_t n, const double *x)
{
    pair sum[PAIRS] = {{0}};

    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < PAIRS; l++)
            sum[l] += (pair)((pair_bits)load(x + i + 2 * l) & INT64_MAX);
    pair all = sum[0] + sum[1];
    return all[0] + all[1];
}

/*
 * Of numbers whose sizes add up to less than 2^e, the first parts are multiples of 2^(e - 52), and
 * their sums below 2^(e + 1): 53 bits. What is left of each is at most 2^(e - 52). A lane adds up
 * to 256 of these, so second parts are multiples of 2^(e - 95), and their sums below 2^(e - 42).
 */
enum { LEAST = -800 };

/* n: at most a block, of whole LANES. False: nothing was added, since something would be left. */
static bool add_block(sherd__exact *sum, int64_t n, const double *x)
{
    pair first[PAIRS] = {{0}}, second[PAIRS] = {{0}};
    pair_bits left = {0};
    double size = size_of(n, x);
    int e;

    if (!(size < 0x1p1000))
        return false;
    (void)frexp(size, &e);
    const double high = ldexp(1, (e < LEAST ? LEAST : e) + 1), low = high * 0x1p-43;
    for (int64_t i = 0; i < n; i += LANES)
        for (int l = 0; l < PAIRS; l++) {
            pair all = load(x + i + 2 * l), part = (high + all) - high, rest = all - part;
            pair next = (low + rest) - low;
            first[l] += part;
            second[l] += next;
            left |= (pair_bits)(rest - next);
        }
    if ((left[0] | left[1]) & INT64_MAX)
        return false;
    for (int l = 0; l < LANES; l++) {
        add_one(sum, first[l / 2][l % 2]);
        add_one(sum, second[l / 2][l % 2]);
    }
    return true;
}

/* Fewer are added one by one. */
enum { FEW = 32 };

void sherd__exact_add(sherd__exact *sum, int64_t n, const double *x)
{
    for (int64_t i = 0; i < n; i += SHERD__EXACT_BLOCK) {
        int64_t some = n - i < SHERD__EXACT_BLOCK ? n - i : SHERD__EXACT_BLOCK;
        int64_t fast = some < FEW ? 0 : some / LANES * LANES;
        if (!fast || !add_block(sum, fast, x + i))
            fast = 0;
        add_each(sum, some - fast, x + i + fast);
        sum->adds += some;
        if (sum->adds >= INT64_C(1) << 29)
            carry(sum);
    }
}

void sherd__exact_write(sherd__exact *sum, int64_t *words, int64_t stride)
{
    int digits = sum->end - sum->first;

    carry(sum);
    for (int k = 0; k < digits; k++)
        words[k * stride] = sum->digit[sum->first + k];
    for (int k = 0; k < SHERD__EXACT_ENDS; k++)
        words[(digits + k) * stride] = sum->ends[k];
}

void sherd__exact_read(sherd__exact *sum, const int64_t *words, int64_t stride)
{
    int digits = sum->end - sum->first;

    for (int k = 0; k < digits; k++)
        sum->digit[sum->first + k] = words[k * stride];
    for (int k = 0; k < SHERD__EXACT_ENDS; k++)
        sum->ends[k] = words[(digits + k) * stride];
    sum->adds = INT64_C(1) << 30;
}

/* Bits of a number of a dtype, and the exponent of its lowest bit of all. */
static int precision(sherd_dtype dtype, int *least)
{
    switch (dtype) {
    case SHERD_F64:
        *least = -1074;
        return 53;
    case SHERD_BF16:
        *least = -133;
        return 8;
    case SHERD_F16:
        *least = -24;
        return 11;
    default:
        *least = -149;
        return 24;
    }
}

/* Of a sum above 0: whether a bit below `at` is 1. */
static bool any_below(const sherd__exact *sum, int at)
{
    int k = at / DIGIT_BITS;

    if (sum->digit[k] & ((INT64_C(1) << (at % DIGIT_BITS)) - 1))
        return true;
    while (k-- > sum->first)
        if (sum->digit[k])
            return true;
    return false;
}

/* Of a sum above 0 whose highest digit is `top`. */
static double rounded(const sherd__exact *sum, int top, sherd_dtype dtype)
{
    int least, bits = precision(dtype, &least), highest = DIGIT_BITS * top - 1;

    for (int64_t digit = sum->digit[top]; digit; digit >>= 1)
        highest++;
    int at = highest - bits + 1 > least - LOWEST ? highest - bits + 1 : least - LOWEST;
    const int64_t *digit = sum->digit + at / DIGIT_BITS;
    int shift = at % DIGIT_BITS;
    uint64_t whole = (uint64_t)digit[0] >> shift | (uint64_t)digit[1] << (DIGIT_BITS - shift);
    if (shift)
        whole |= (uint64_t)digit[2] << (2 * DIGIT_BITS - shift);
    int before = at - 1;
    bool half = sum->digit[before / DIGIT_BITS] >> (before % DIGIT_BITS) & 1;
    if (half && ((whole & 1) || any_below(sum, before)))
        whole++;
    return ldexp((double)whole, at + LOWEST);
}

double sherd__exact_value(sherd__exact *sum, sherd_dtype dtype)
{
    double sign = 1;
    int top = sum->end - 1;

    if (sum->ends[NANS] || (sum->ends[PLUS] && sum->ends[MINUS]))
        return (double)NAN;
    if (sum->ends[PLUS] || sum->ends[MINUS])
        return sum->ends[PLUS] ? (double)INFINITY : -(double)INFINITY;
    carry(sum);
    if (sum->digit[top] < 0) {
        sign = -1;
        for (int k = sum->first; k < sum->end; k++)
            sum->digit[k] = -sum->digit[k];
        carry(sum);
    }
    while (top > sum->first && !sum->digit[top])
        top--;
    return sum->digit[top] ? sign * rounded(sum, top, dtype) : 0;
}
