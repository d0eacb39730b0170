/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nocedal and Wright, Numerical Optimization, algorithms 3.5 (longer steps, until an interval holds
 * a good point) and 3.6 (that interval becomes smaller). Trial points are minima of the cubic
 * through two points and their slopes. Mostly the first point is good already, which costs one
 * evaluation.
 */
#include "nn/line_search.h"

#include <math.h>

static const double ENOUGH = 1e-4, FLAT = 0.9; /* c1, c2 */
static const double LONGEST = 10;              /* times as long as the step before, at most */

typedef struct search {
    const sherd__ray *line;
    const sherd__line_point *start;
    int asked;
    bool good;
} search;

static bool ask(search *s, sherd__line_point *p, double t)
{
    p->t = t;
    s->asked++;
    s->good = s->line->ask(s->line->context, p);
    return s->good;
}

/* Not low enough; also what is no number. */
static bool is_high(const search *s, const sherd__line_point *p)
{
    return !(p->f <= s->start->f + ENOUGH * p->t * s->start->slope) || !isfinite(p->f) ||
           !isfinite(p->slope);
}

static bool is_flat(const search *s, const sherd__line_point *p)
{
    return fabs(p->slope) <= -FLAT * s->start->slope;
}

/* The minimum of the cubic through a and b, held within [least, most]; their middle if there is
 * none. */
static double minimum(const sherd__line_point *a, const sherd__line_point *b, double least,
                      double most)
{
    double x = a->slope + b->slope - 3 * (a->f - b->f) / (a->t - b->t);
    double root = sqrt(x * x - a->slope * b->slope); /* NaN: there is no minimum */
    double y = copysign(root, b->t - a->t);
    double t = b->t - (b->t - a->t) * (b->slope + y - x) / (b->slope - a->slope + 2 * y);

    if (!isfinite(t))
        return (least + most) / 2;
    return t < least ? least : t > most ? most : t;
}

/* A point between the two; not next to either, unless the interval halves anyway. */
static double between(const sherd__line_point *low, const sherd__line_point *high)
{
    double left = fmin(low->t, high->t), right = fmax(low->t, high->t);
    double margin = (right - left) / 10;

    return minimum(low, high, left + margin, right - margin);
}

/* `low` is the best so far, and the interval to `high` holds a good point. */
static void narrow(search *s, sherd__line_point *low, sherd__line_point high)
{
    while (s->asked < s->line->most && fabs(high.t - low->t) > s->line->shortest) {
        sherd__line_point p;
        if (!ask(s, &p, between(low, &high)))
            return;
        if (is_high(s, &p) || p.f >= low->f) {
            high = p;
            continue;
        }
        if (p.slope * (high.t - low->t) >= 0)
            high = *low;
        *low = p;
        s->line->keep(s->line->context);
        if (is_flat(s, &p))
            return;
    }
}

bool sherd__line_search(const sherd__ray *line, const sherd__line_point *start, double t,
                        sherd__line_point *best, int *asked)
{
    search s = {line, start, 0, true};
    sherd__line_point p;

    *best = *start;
    while (s.asked < line->most) {
        sherd__line_point before = *best;
        if (!ask(&s, &p, t))
            break;
        if (is_high(&s, &p) || (s.asked > 1 && p.f >= before.f)) {
            narrow(&s, best, p);
            break;
        }
        *best = p;
        line->keep(line->context);
        if (is_flat(&s, &p))
            break;
        if (p.slope >= 0) {
            narrow(&s, best, before);
            break;
        }
        t = minimum(&before, &p, p.t + (p.t - before.t) / 100, p.t * LONGEST);
    }
    *asked = s.asked;
    return s.good;
}
