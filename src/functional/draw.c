/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a row draws. A weight is exp((x - most) / temperature), rounded down to an integer, of which
 * the largest is such that the sum of a row fits 62 bits. For top_k the largest few logits are kept
 * in order while the row is passed over once, and the others are not looked at again. For top_p
 * weights are added up in bins, and only those of one bin are compared with each other. That, and
 * a large top_k, is done by selection: n steps on average, without sorting.
 */
#include "draw.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/num.h"
#include "kernels/keys.h"

void sherd__draw_room(sherd__row *d, void *room, int64_t n)
{
    d->n = n;
    d->x = room;
    d->w = d->x + n;
    d->weight = (int64_t *)(void *)(d->w + n);
    d->at = (int32_t *)(void *)(d->weight + n);
}

/* ---- thresholds by selection ---------------------------------------------------------------- */

/*
 * The largest t such that what is at least t has a mass of `target` or more, of c[n], which gets
 * into disorder; the mass is a number of elements, or their sum. Pivots are taken here and there,
 * so that no order of elements makes it slow.
 */
static int64_t threshold(int64_t *c, int64_t n, int64_t target, bool by_count)
{
    uint64_t where = 0x13198A2E03707344u; /* a hash of zeros is 0, and stays so */
    int64_t above = 0, least = 0;

    for (int64_t lo = 0, hi = n; lo < hi;) {
        where = sherd__hash_word(where, (uint64_t)lo);
        int64_t pivot = c[lo + (int64_t)(where % (uint64_t)(hi - lo))];
        int64_t more = 0, same = 0;
        int64_t a = lo, b = hi; /* [lo, a) is larger than the pivot, [b, hi) less */
        for (int64_t i = lo; i < b;) {
            int64_t x = c[i], mass = by_count ? 1 : x;
            if (x < pivot) {
                c[i] = c[--b];
                c[b] = x;
                continue;
            }
            if (x > pivot) {
                more += mass;
                c[i] = c[a];
                c[a++] = x;
            } else {
                same += mass;
            }
            i++;
        }
        least = pivot;
        if (above + more >= target && a > lo) {
            hi = a;
        } else if (above + more + same >= target) {
            return pivot;
        } else {
            above += more + same;
            lo = b;
        }
    }
    return least;
}

/* ---- the largest ---------------------------------------------------------------------------- */

/* The count-th largest logit, none of which is NaN, of more; it takes d->weight. */
static double select_top(const sherd__row *d, int64_t count)
{
    const uint64_t low = (uint64_t)1 << 63; /* keys are compared with their sign */
    int64_t *c = d->weight;

    for (int64_t i = 0; i < d->n; i++)
        c[i] = (int64_t)(sherd__key_of_f64(d->x[i]) ^ low);
    return sherd__f64_of_key((uint64_t)threshold(c, d->n, count, true) ^ low);
}

/*
 * The first `count` of those above `least`, in order; how many there are. -1: more than `tries` got
 * into the list for a time. The first is NaN if one is.
 */
static int64_t list_above(const sherd__row *d, double least, int64_t count, double *list,
                          int64_t tries)
{
    const double *row = d->x;
    double bar = least;
    int64_t have = 0;

    for (int64_t i = 0; i < d->n; i++) {
        const double x = row[i];
        if (x <= bar)
            continue;
        int64_t at = have < count ? have++ : count - 1;
        for (; at > 0 && list[at - 1] < x; at--)
            list[at] = list[at - 1];
        list[at] = x;
        bar = have == count ? list[count - 1] : least;
        if (x != x) {
            list[0] = x;
            return have;
        }
        if (--tries < 0)
            return -1;
    }
    return have;
}

static bool has_nan(const sherd__row *d)
{
    bool any = false;

    for (int64_t i = 0; i < d->n; i++)
        any |= d->x[i] != d->x[i];
    return any;
}

/* Few logits get into the list, unless they rise: then the last one is selected before. */
void sherd__draw_first(const sherd__row *d, int64_t count, double *list)
{
    double least = -INFINITY;
    int64_t have = list_above(d, least, count, list, 8 * d->n / count + 2 * count);

    if (have < 0) {
        least = has_nan(d) ? (double)NAN : select_top(d, count);
        have = least == least ? list_above(d, least, count, list, INT64_MAX) : 0;
    }
    for (; have < count; have++)
        list[have] = least;
}

int64_t sherd__draw_listed(const sherd__row *d)
{
    return d->top_k > 0 && d->top_k <= SHERD__LIKELY ? d->top_k : 1;
}

const char *sherd__draw_fault(const sherd__row *d)
{
    if (d->most != d->most)
        return "a logit is NaN";
    if (d->most == INFINITY)
        return "a logit is infinite";
    if (d->most == -INFINITY)
        return "all logits of a row are -infinity";
    if (!(d->temperature >= 0))
        return "a temperature is negative or NaN";
    if (!(d->top_p > 0 && d->top_p <= 1))
        return "a top_p is not in (0, 1]";
    if (!(d->min_p >= 0 && d->min_p <= 1))
        return "a min_p is not in [0, 1]";
    return NULL;
}

/* The shard whose list goes on with the largest number; -1: all have ended. */
static int64_t next_of(int64_t shards, int64_t width, const double *lists, const int64_t *next)
{
    int64_t best = -1;

    for (int64_t s = 0; s < shards; s++)
        if (next[s] < width &&
            (best < 0 || lists[s * width + next[s]] > lists[best * width + next[best]]))
            best = s;
    return best;
}

bool sherd__draw_top(sherd__row *d, int64_t shards, int64_t width, const double *lists,
                     int64_t *next)
{
    d->least = -INFINITY;
    if (d->top_k <= 0 || d->top_k >= d->length)
        return true;
    if (d->top_k > SHERD__LIKELY)
        return false;
    memset(next, 0, (size_t)shards * sizeof *next);
    for (int64_t i = 0; i < d->top_k; i++) {
        int64_t s = next_of(shards, width, lists, next);
        d->least = lists[s * width + next[s]++];
    }
    return true;
}

/* ---- weights -------------------------------------------------------------------------------- */

/* 2^62, divided by the least power of 2 that is not less than the row's length. */
static double scale_of(const sherd__row *d)
{
    double scale = 0x1p62;

    for (int64_t n = 1; n < d->length; n *= 2)
        scale /= 2;
    return scale;
}

/*
 * Weights of n logits, with room for as many numbers; their sum. An infinite temperature makes them
 * equal. What is far below the largest weighs 0, of which no exponential is needed: those of -1000
 * and -infinity take the C library.
 */
static int64_t weights_of(const sherd__row *d, int64_t n, const double *x, double *w,
                          int64_t *weight)
{
    const double by = 1 / d->temperature, scale = scale_of(d);
    const double most = d->most, min_p = d->min_p, far = -60; /* 2^62 e^far is less than 1 */
    int64_t sum = 0;

    for (int64_t i = 0; i < n && by > 0; i++) {
        const double below = (x[i] - most) * by;
        w[i] = below > far ? below : far;
    }
    for (int64_t i = 0; i < n && by == 0; i++)
        w[i] = x[i] == -INFINITY ? far : 0;
    d->f64->unary(SHERD__EXP, n, w, w, NULL);
    for (int64_t i = 0; i < n; i++) {
        weight[i] = w[i] >= min_p ? (int64_t)(w[i] * scale) : 0;
        sum += weight[i];
    }
    return sum;
}

int64_t sherd__draw_weigh(sherd__row *d)
{
    const double least = d->least;
    int64_t kept = 0;

    if (least == -INFINITY) { /* all: their indices are not written down */
        d->kept = -1;
        return weights_of(d, d->n, d->x, d->w, d->weight);
    }
    for (int64_t i = 0; i < d->n; i++)
        if (d->x[i] >= least) {
            d->at[kept] = (int32_t)i;
            d->w[kept++] = d->x[i];
        }
    d->kept = kept;
    return weights_of(d, kept, d->w, d->w, d->weight);
}

static int64_t count_of(const sherd__row *d)
{
    return d->kept < 0 ? d->n : d->kept;
}

/* What top_p keeps at least, of a sum. */
static int64_t part_of(const sherd__row *d, int64_t total)
{
    double part = ceil(d->top_p * (double)total);

    return part >= (double)total ? total : sherd__max((int64_t)part, 1);
}

/*
 * The bin of a weight, which is not 0: by its highest bit and the two behind it, as a double has
 * them, to which it must not be rounded up.
 */
static int bin_of(int64_t weight)
{
    const double x = (double)(weight >> 52 ? weight & ~INT64_C(1023) : weight);
    uint64_t bits;

    memcpy(&bits, &x, sizeof bits);
    return (int)(bits >> 50) - (1023 << 2);
}

/* The least weight of a bin. */
static int64_t least_of(int bin)
{
    const int bits = bin / 4;
    const int64_t head = 4 + bin % 4;

    return bits < 2 ? (head + (1 << (2 - bits)) - 1) >> (2 - bits) : head << (bits - 2);
}

/* In two tables in turn: an addition to a bin waits for the one before. */
void sherd__draw_spread(const sherd__row *d, sherd__bins *bins)
{
    const int64_t n = count_of(d);
    sherd__bins table[2] = {{{0}, {0}}, {{0}, {0}}};

    for (int64_t i = 0; i < n; i++)
        if (d->weight[i] > 0) {
            int bin = bin_of(d->weight[i]);
            table[i & 1].mass[bin] += d->weight[i];
            table[i & 1].count[bin]++;
        }
    for (int j = 0; j < SHERD__BINS; j++) {
        bins->mass[j] = table[0].mass[j] + table[1].mass[j];
        bins->count[j] = table[0].count[j] + table[1].count[j];
    }
}

int sherd__draw_bin(const sherd__row *d, int64_t total, const sherd__bins *bins, int64_t *target)
{
    int bin = SHERD__BINS - 1;

    *target = part_of(d, total);
    while (bin > 0 && bins->mass[bin] < *target)
        *target -= bins->mass[bin--];
    return bin;
}

int64_t sherd__draw_take(const sherd__row *d, int bin, int64_t *to)
{
    const int64_t n = count_of(d), least = least_of(bin);
    const int64_t end = bin < SHERD__BINS - 1 ? least_of(bin + 1) : INT64_MAX;
    int64_t count = 0;

    for (int64_t i = 0; i < n; i++)
        if (d->weight[i] >= least && d->weight[i] < end)
            to[count++] = d->weight[i];
    return count;
}

int64_t sherd__draw_threshold(int64_t *c, int64_t n, int64_t target)
{
    return threshold(c, n, target, false);
}

int64_t sherd__draw_likely(const sherd__row *d, int64_t total, int64_t shards, int64_t width,
                           const double *lists, int64_t *next, void *room)
{
    const int64_t n = shards * width, target = part_of(d, total);
    int64_t *weight = room, sum = 0, s;

    weights_of(d, n, lists, (double *)(void *)(weight + n), weight);
    memset(next, 0, (size_t)shards * sizeof *next);
    while ((s = next_of(shards, width, lists, next)) >= 0) {
        int64_t i = s * width + next[s]++;
        if (lists[i] < d->least || weight[i] == 0)
            break;
        sum += weight[i];
        if (sum >= target)
            return weight[i];
        if (next[s] == d->top_k) /* its list ends, and more may be equal to the last one */
            break;
    }
    return 0;
}

int64_t sherd__draw_leave(sherd__row *d, int64_t least)
{
    const int64_t n = count_of(d);
    int64_t sum = 0;

    for (int64_t i = 0; i < n; i++) {
        d->weight[i] = d->weight[i] >= least ? d->weight[i] : 0;
        sum += d->weight[i];
    }
    return sum;
}

int64_t sherd__draw_place(const sherd__row *d, int64_t total)
{
    double place = d->u * (double)total;

    return place < (double)total ? sherd__min((int64_t)place, total - 1) : total - 1;
}

int64_t sherd__draw_find(const sherd__row *d, int64_t place)
{
    const int64_t n = count_of(d);
    int64_t i = 0;

    for (int64_t sum = 0; i < n - 1; i++) {
        sum += d->weight[i];
        if (sum > place)
            break;
    }
    return d->kept < 0 ? i : d->at[i];
}

/* ---- a whole row ---------------------------------------------------------------------------- */

/* The least weight that top_p keeps. */
static int64_t least_likely(const sherd__row *d, int64_t total)
{
    int64_t *c = (int64_t *)(void *)d->w, n = 0, target;
    sherd__bins bins;

    if (count_of(d) <= SHERD__LIKELY) {
        for (int64_t i = 0; i < count_of(d); i++)
            if (d->weight[i] > 0)
                c[n++] = d->weight[i];
        return threshold(c, n, part_of(d, total), false);
    }
    sherd__draw_spread(d, &bins);
    int bin = sherd__draw_bin(d, total, &bins, &target);
    return threshold(c, sherd__draw_take(d, bin, c), target, false);
}

int64_t sherd__draw_whole(sherd__row *d)
{
    const bool lists = d->top_k > 0 && d->top_k <= SHERD__LIKELY && d->n > SHERD__LIKELY;
    double list[SHERD__LIKELY];
    int64_t next;

    if (lists)
        sherd__draw_first(d, d->top_k, list);
    d->least = -INFINITY;
    if (d->top_k > 0 && d->top_k < d->n && !(lists && sherd__draw_top(d, 1, d->top_k, list, &next)))
        d->least = select_top(d, d->top_k);
    int64_t total = sherd__draw_weigh(d);
    if (d->top_p < 1)
        total = sherd__draw_leave(d, least_likely(d, total));
    return sherd__draw_find(d, sherd__draw_place(d, total));
}
