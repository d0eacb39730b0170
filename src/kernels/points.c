/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nearest points: see points.h. All is computed in f64, coordinate after coordinate, so every
 * pair of points has one square whoever computes it. A box is passed over only if its own square,
 * computed the same way, is larger: each step of it rounds monotonically, so no point in it can be
 * nearer. A difference is rounded before it is folded to the nearest image, which is exact: between
 * two multiples of the period the distance to them rises and falls, so it is least at an end.
 */
#include "points.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
    LEAF = 32, /* points of a leaf at most */
    DIMS = 8   /* more have no tree */
};

/* ---- arranging ------------------------------------------------------------------------------- */

static int levels_of(int64_t n, int d)
{
    int levels = 0;

    for (; d <= DIMS && n > LEAF; n = (n + 1) / 2)
        levels++;
    return levels;
}

int64_t sherd__cloud_boxes(int64_t n, int d)
{
    return ((int64_t)4 << levels_of(n, d)) * d;
}

static void swap(const sherd__cloud *c, int64_t i, int64_t j)
{
    double *a = c->x + i * c->d, *b = c->x + j * c->d;
    int32_t id = c->id[i];

    c->id[i] = c->id[j];
    c->id[j] = id;
    for (int k = 0; k < c->d; k++) {
        double x = a[k];
        a[k] = b[k];
        b[k] = x;
    }
}

/* What a point is split by. What is no number lies far out; any order will do. */
static inline double side(const sherd__cloud *c, int64_t i, int axis)
{
    double x = c->x[i * c->d + axis];

    return x == x ? x : INFINITY;
}

static double middle_of(double a, double b, double c)
{
    double least = a < b ? a : b, most = a < b ? b : a;

    return c < least ? least : c > most ? most : c;
}

/* Points [lo, hi) so that none before `mid` is larger along the axis than one from there on. */
static void split(const sherd__cloud *c, int64_t lo, int64_t hi, int64_t mid, int axis)
{
    while (hi - lo > 1) {
        double pivot =
            middle_of(side(c, lo, axis), side(c, lo + (hi - lo) / 2, axis), side(c, hi - 1, axis));
        int64_t i = lo, j = hi - 1;
        while (i <= j) {
            while (side(c, i, axis) < pivot)
                i++;
            while (side(c, j, axis) > pivot)
                j--;
            if (i <= j)
                swap(c, i++, j--);
        }
        if (mid <= j)
            hi = j + 1;
        else if (mid >= i)
            lo = i;
        else
            return;
    }
}

/* A coordinate that is no number makes its box reach everywhere. */
static void find_box(const sherd__cloud *c, int64_t lo, int64_t hi, double *box)
{
    for (int k = 0; k < c->d; k++) {
        double least = INFINITY, most = -INFINITY;
        for (int64_t i = lo; i < hi; i++) {
            double x = c->x[i * c->d + k];
            least = x >= least ? least : x == x ? x : -INFINITY;
            most = x <= most ? most : x == x ? x : INFINITY;
        }
        box[k] = least;
        box[c->d + k] = most;
    }
}

static int longest_side(const double *box, int d)
{
    int best = 0;

    for (int k = 1; k < d; k++)
        if (box[d + k] - box[k] > box[d + best] - box[best])
            best = k;
    return best;
}

static void arrange(const sherd__cloud *c, int64_t node, int level, int64_t lo, int64_t hi)
{
    double *box = c->box + node * 2 * c->d;
    int64_t mid = lo + (hi - lo) / 2;

    find_box(c, lo, hi, box);
    if (level == c->levels)
        return;
    split(c, lo, hi, mid, longest_side(box, c->d));
    arrange(c, 2 * node, level + 1, lo, mid);
    arrange(c, 2 * node + 1, level + 1, mid, hi);
}

void sherd__cloud_arrange(sherd__cloud *cloud)
{
    cloud->levels = levels_of(cloud->n, cloud->d);
    if (cloud->n > 0)
        arrange(cloud, 1, 0, 0, cloud->n);
}

/* ---- finding --------------------------------------------------------------------------------- */

/* The entries of one query, and what it asks. */
typedef struct asking {
    const double *query;
    const double *period; /* NULL: of none */
    double most;
    int64_t k;
    double *square;
    int32_t *id;
} asking;

/* Whether (a, i) comes before (b, j). */
static inline bool before(double a, int32_t i, double b, int32_t j)
{
    if (a < b)
        return true;
    if (a > b)
        return false;
    if (a == b || (a != a && b != b))
        return i < j;
    return a == a;
}

static void put(const asking *q, double square, int32_t id)
{
    int64_t at = q->k - 1;

    if (!before(square, id, q->square[at], q->id[at]))
        return;
    for (; at > 0 && before(square, id, q->square[at - 1], q->id[at - 1]); at--) {
        q->square[at] = q->square[at - 1];
        q->id[at] = q->id[at - 1];
    }
    q->square[at] = square;
    q->id[at] = id;
}

double sherd__nearest_image(double difference, double period)
{
    double size = fabs(difference);

    if (size <= period / 2)
        return difference;
    if (size <= 1.5 * period)
        return difference > 0 ? difference - period : difference + period;
    return remainder(difference, period);
}

static inline double square_of(const double *x, const double *query, const double *period, int d)
{
    double sum = 0;

    for (int k = 0; k < d; k++) {
        double by = x[k] - query[k];
        if (period && period[k] > 0)
            by = sherd__nearest_image(by, period[k]);
        sum += by * by;
    }
    return sum;
}

/* `d`, and that there is no period, are constants in callers for the usual ones. */
static inline void look_at(const sherd__cloud *c, const asking *q, const double *period, int d,
                           int64_t lo, int64_t hi)
{
    for (int64_t i = lo; i < hi; i++) {
        double square = square_of(c->x + i * d, q->query, period, d);
        if (!(square > q->most) && !(square > q->square[q->k - 1]) &&
            (square == square || q->most == INFINITY))
            put(q, square, c->id[i]);
    }
}

static void look(const sherd__cloud *c, const asking *q, int64_t lo, int64_t hi)
{
    if (q->period)
        look_at(c, q, q->period, c->d, lo, hi);
    else if (c->d == 3)
        look_at(c, q, NULL, 3, lo, hi);
    else if (c->d == 2)
        look_at(c, q, NULL, 2, lo, hi);
    else
        look_at(c, q, NULL, c->d, lo, hi);
}

/*
 * No more than the distance to the nearest image of any number in [least, most], which are
 * differences. It is 0 if there is a multiple of the period between them, or if that is not known:
 * 1e-14 is more than what rounding takes away.
 */
static double gap_to_images(double least, double most, double period)
{
    double low = remainder(least, period), high = remainder(most, period);
    double next = low > 0 ? period - low : -low;

    if (!((most - least) * (1 + 1e-14) < next))
        return 0;
    return fmin(fabs(low), fabs(high));
}

/* The square of the distance to a box: no more than that to any point in it. */
static double square_to(const sherd__cloud *c, int64_t node, const asking *q)
{
    const double *box = c->box + node * 2 * c->d;
    double sum = 0;

    for (int k = 0; k < c->d; k++) {
        double less = box[k] - q->query[k], more = q->query[k] - box[c->d + k];
        double gap = less > 0 ? less : more > 0 ? more : 0;
        if (q->period && q->period[k] > 0)
            gap = gap_to_images(less, -more, q->period[k]);
        sum += gap * gap;
    }
    return sum;
}

static void descend(const sherd__cloud *c, const asking *q, int64_t node, int level, int64_t lo,
                    int64_t hi)
{
    int64_t mid = lo + (hi - lo) / 2;

    if (level == c->levels) {
        look(c, q, lo, hi);
        return;
    }
    double left = square_to(c, 2 * node, q), right = square_to(c, 2 * node + 1, q);
    bool right_first = right < left;
    for (int turn = 0; turn < 2; turn++) {
        bool is_right = right_first == (turn == 0);
        double square = is_right ? right : left;
        if (square > q->most || square > q->square[q->k - 1])
            continue;
        descend(c, q, 2 * node + is_right, level + 1, is_right ? mid : lo, is_right ? hi : mid);
    }
}

void sherd__found_clear(sherd__found *found)
{
    for (int64_t i = 0; i < found->m * found->k; i++) {
        found->square[i] = NAN;
        found->id[i] = SHERD__NOBODY;
    }
}

void sherd__find(sherd__found *found, const sherd__cloud *cloud, const sherd__cloud *queries,
                 double most, const double *period)
{
    for (int64_t i = 0; i < queries->n && cloud->n > 0; i++) {
        int64_t row = queries->id[i];
        asking q = {
            queries->x + i * cloud->d, period, most, found->k, found->square + row * found->k,
            found->id + row * found->k};
        descend(cloud, &q, 1, 0, 0, cloud->n);
    }
}

void sherd__find_among(sherd__found *found, int64_t parts, const double *square, const int32_t *id)
{
    for (int64_t part = 0; part < parts; part++)
        for (int64_t i = 0; i < found->m; i++, square += found->k, id += found->k) {
            asking q = {NULL,
                        NULL,
                        INFINITY,
                        found->k,
                        found->square + i * found->k,
                        found->id + i * found->k};
            for (int64_t e = 0; e < found->k && id[e] != SHERD__NOBODY; e++)
                put(&q, square[e], id[e]);
        }
}
