/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an element of a result reads of one dim, by mode; sizes, coordinates and weights are those
 * of PyTorch. A few operations per element; readers and cuts are found by bisection.
 */
#include "taps.h"

#include <math.h>

#include "base/num.h"

static int64_t clamp(int64_t at, int64_t most)
{
    return sherd__max(0, sherd__min(at, most));
}

sherd__taps sherd__taps_of(const sherd__taps_attributes *a, int d, int64_t n, int64_t m,
                           sherd_dtype dtype)
{
    sherd__taps t = {.mode = (sherd__taps_mode)a->mode,
                     .n = n,
                     .m = m,
                     .kernel = a->kernel[d],
                     .stride = a->stride[d] ? a->stride[d] : a->kernel[d],
                     .padding = a->padding[d],
                     .dilation = a->dilation[d] ? a->dilation[d] : 1,
                     .aligned = a->aligned,
                     .without_padding = a->without_padding,
                     .narrow = dtype != SHERD_F64};

    if (a->divisor)
        t.divisor = d ? 1 : (double)a->divisor;
    if (a->aligned)
        t.scale = m <= 1     ? 0
                  : t.narrow ? (double)((float)(n - 1) / (float)(m - 1))
                             : (double)(n - 1) / (double)(m - 1);
    else if (a->factor[d] > 0)
        t.scale = 1 / a->factor[d];
    else if (m > 0)
        t.scale = t.narrow ? (double)((float)n / (float)m) : (double)n / (double)m;
    return t;
}

/* ---- interpolation --------------------------------------------------------------------------- */

/* The coordinate of row o in the input, in the precision that PyTorch uses. */
static double place_of(const sherd__taps *t, int64_t o)
{
    bool at_corners = t->aligned || t->mode == SHERD__TAPS_NEAREST;

    if (t->narrow && at_corners)
        return (double)((float)t->scale * (float)o);
    if (t->narrow)
        return (double)fmaf((float)t->scale, (float)o + 0.5F, -0.5F);
    return at_corners ? t->scale * (double)o : fma(t->scale, (double)o + 0.5, -0.5);
}

static int64_t nearest(const sherd__taps *t, int64_t o)
{
    double at = place_of(t, o);

    if (t->mode == SHERD__TAPS_EXACT)
        at = t->narrow ? (double)((float)fmax(at, 0) + 0.5F) : fmax(at, 0) + 0.5;
    return sherd__min((int64_t)floorf((float)at), t->n - 1);
}

/* The element before row o, and the distance of the row from it: in [0, 1]. */
static int64_t before(const sherd__taps *t, int64_t o, double *behind)
{
    double at = place_of(t, o);

    *behind = 0;
    if (t->mode == SHERD__TAPS_LINEAR && t->n == t->m)
        return o;
    if (t->mode == SHERD__TAPS_LINEAR)
        at = fmax(at, 0);
    int64_t i = sherd__min((int64_t)floor(at), t->n - 1);
    *behind = fmin(fmax(at - (double)i, 0), 1);
    return i;
}

static sherd__reading read_between(const sherd__taps *t, int64_t o)
{
    int64_t cubic = t->mode == SHERD__TAPS_CUBIC;
    double behind;
    int64_t i = before(t, o, &behind);

    if (t->mode == SHERD__TAPS_LINEAR && t->n == t->m)
        return (sherd__reading){o, o + 1, o}; /* a copy */
    return (sherd__reading){clamp(i - cubic, t->n - 1), clamp(i + 1 + cubic, t->n - 1) + 1,
                            clamp(i + (behind > 0.5), t->n - 1)};
}

/* Cubic convolution with a = -0.75, weights of neighbours at these distances. */
static double near_by(double x)
{
    return (1.25 * x - 2.25) * x * x + 1;
}

static double far_off(double x)
{
    return ((-0.75 * x + 3.75) * x - 6) * x + 3;
}

/* Weights of the elements i - 1 to i + 2; those beyond an end count for the element there. */
static void weigh_between(const sherd__taps *t, int64_t o, sherd__tap *tap)
{
    double behind;
    int64_t i = before(t, o, &behind), most = t->n - 1;

    if (t->mode == SHERD__TAPS_LINEAR) {
        tap->weight[0] = 1 - behind;
        tap->weight[clamp(i + 1, most) - tap->first] += behind;
        return;
    }
    const double weight[] = {far_off(behind + 1), near_by(behind), near_by(1 - behind),
                             far_off(2 - behind)};
    for (int k = 0; k < SHERD__TAPS; k++)
        tap->weight[clamp(i - 1 + k, most) - tap->first] += weight[k];
}

/* ---- windows --------------------------------------------------------------------------------- */

static sherd__reading read_window(const sherd__taps *t, int64_t o)
{
    int64_t reach = t->dilation * (t->kernel - 1), first = o * t->stride - t->padding;

    return (sherd__reading){clamp(first, t->n), clamp(first + reach + 1, t->n),
                            clamp(first + reach / 2, t->n - 1)};
}

static sherd__reading read_part(const sherd__taps *t, int64_t o)
{
    int64_t first = o * t->n / t->m, end = ((o + 1) * t->n + t->m - 1) / t->m;

    return (sherd__reading){first, end, (first + end - 1) / 2};
}

static double divisor_of(const sherd__taps *t, int64_t o, int64_t count)
{
    int64_t first = o * t->stride - t->padding;

    if (t->divisor != 0)
        return t->divisor;
    if (t->mode == SHERD__TAPS_ADAPTIVE || t->without_padding)
        return (double)count;
    return (double)(sherd__min(first + t->kernel, t->n + t->padding) - first);
}

/* ---- any ------------------------------------------------------------------------------------- */

static sherd__reading reading_of(const sherd__taps *t, int64_t o)
{
    switch (t->mode) {
    case SHERD__TAPS_LINEAR:
    case SHERD__TAPS_CUBIC:
        return read_between(t, o);
    case SHERD__TAPS_ADAPTIVE:
    case SHERD__TAPS_LARGEST:
        return read_part(t, o);
    case SHERD__TAPS_AVERAGE:
    case SHERD__TAPS_MAXIMUM:
        return read_window(t, o);
    default:
        break;
    }
    int64_t i = nearest(t, o);
    return (sherd__reading){i, i + 1, i};
}

sherd__tap sherd__taps_row(const sherd__taps *t, int64_t o)
{
    sherd__reading r = reading_of(t, o);
    sherd__tap tap = {.first = r.first, .count = r.end - r.first, .divisor = 1};

    if (t->mode == SHERD__TAPS_LINEAR || t->mode == SHERD__TAPS_CUBIC) {
        weigh_between(t, o, &tap);
        return tap;
    }
    tap.even = true;
    if (t->mode == SHERD__TAPS_ADAPTIVE || t->mode == SHERD__TAPS_AVERAGE)
        tap.divisor = divisor_of(t, o, tap.count);
    return tap;
}

/*
 * For windows with gaps tap by tap; otherwise the whole window at once. Narrows [first, last] of
 * the result to those of which tap i reads some of [lo, hi); false: none.
 */
static bool meet(const sherd__taps *t, int64_t i, int64_t lo, int64_t hi, int64_t *first,
                 int64_t *last)
{
    int64_t at = i * t->dilation - t->padding, width = t->dilation > 1 ? 1 : t->kernel;

    *first = sherd__max(*first, -sherd__floor_div(at + width - 1 - lo, t->stride));
    *last = sherd__min(*last, sherd__floor_div(hi - 1 - at, t->stride));
    return *first <= *last;
}

sherd__reading sherd__windows_read(const sherd__taps *t, int64_t lo, int64_t hi)
{
    int64_t taps = t->dilation > 1 ? t->kernel : 1, width = t->dilation > 1 ? 1 : t->kernel;
    sherd__reading r = {t->n, 0, 0};

    for (int64_t i = 0; i < taps; i++) {
        int64_t first = lo, last = hi - 1, at = i * t->dilation - t->padding;
        if (!meet(t, i, 0, t->n, &first, &last))
            continue;
        r.first = sherd__min(r.first, sherd__max(0, first * t->stride + at));
        r.end = sherd__max(r.end, sherd__min(t->n, last * t->stride + at + width));
    }
    r.end = sherd__max(r.first, r.end);
    return r;
}

sherd__reading sherd__windows_readers(const sherd__taps *t, int64_t lo, int64_t hi)
{
    int64_t taps = t->dilation > 1 ? t->kernel : 1;
    sherd__reading r = {t->m, 0, 0};

    for (int64_t i = 0; i < taps; i++) {
        int64_t first = 0, last = t->m - 1;
        if (!meet(t, i, lo, hi, &first, &last))
            continue;
        r.first = sherd__min(r.first, first);
        r.end = sherd__max(r.end, last + 1);
    }
    r.end = sherd__max(r.first, r.end);
    return r;
}

static bool is_window(const sherd__taps *t)
{
    return t->mode == SHERD__TAPS_AVERAGE || t->mode == SHERD__TAPS_MAXIMUM;
}

sherd__reading sherd__taps_around(const sherd__taps *t, int64_t lo, int64_t hi)
{
    if (is_window(t))
        return sherd__windows_read(t, lo, hi);
    return (sherd__reading){reading_of(t, lo).first, reading_of(t, hi - 1).end, 0};
}

typedef enum number { FIRST, END, MIDDLE } number;

/* The first row whose value is at least `at`; m: none. */
static int64_t find(const sherd__taps *t, number which, int64_t at)
{
    int64_t lo = 0, hi = t->m;

    while (lo < hi) {
        int64_t o = lo + (hi - lo) / 2;
        sherd__reading r = reading_of(t, o);
        if ((which == FIRST ? r.first : which == END ? r.end : r.middle) >= at)
            hi = o;
        else
            lo = o + 1;
    }
    return lo;
}

sherd__reading sherd__taps_readers(const sherd__taps *t, int64_t lo, int64_t hi)
{
    if (is_window(t))
        return sherd__windows_readers(t, lo, hi);
    int64_t first = find(t, END, lo + 1);

    return (sherd__reading){first, sherd__max(first, find(t, FIRST, hi)), 0};
}

int64_t sherd__taps_cut(const sherd__taps *t, int64_t cut)
{
    if (cut <= 0 || cut >= t->n)
        return cut <= 0 ? 0 : t->m;
    return find(t, MIDDLE, cut);
}
