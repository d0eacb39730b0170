/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows over their lengths, and cosines: see unit_rows.h. One row after the other, by the kernels
 * that other operators would call one after the other on the whole tensor, so results of f32 and
 * f64 have the same bits (gradients are other formulas); but a row stays in the first cache between
 * them, and memory is read once. 16 bits are f32 in between. Costs memory's speed, up to rows of
 * some thousand elements.
 */
#include "unit_rows.h"

#include <float.h>
#include <math.h>

#include "vector/choose.h"

/* What the operands are, and the kernels that compute: for 16 bits those of f32. */
typedef struct rows {
    const sherd__kernel_set *set;
    const sherd__kernels *own, *k;
    sherd_dtype wide;
    bool half;
    int64_t count, n;    /* rows, and elements of each */
    size_t bytes, large; /* of an element as it lies, and as kernels compute */
    char *room;          /* rows of wide elements */
} rows;

/* With room for so many rows; `room` NULL: failed, or there is nothing to compute. */
static rows rows_of(sherd_call *call, int rooms, bool *good)
{
    const sherd_tensor *a = call->in[0];
    rows r = {.set = sherd__world_kernels(call->world),
              .own = sherd__kernels_in(call),
              .wide = sherd__statistics_dtype(a->dtype),
              .half = sherd__is_half(a->dtype),
              .n = a->local[a->ndim - 1],
              .bytes = sherd_dtype_bytes(a->dtype)};

    r.k = sherd__kernels_of(r.set, r.wide);
    r.large = sherd_dtype_bytes(r.wide);
    r.count = a->count ? a->count / r.n : 0;
    *good = true;
    if (r.count == 0)
        return r;
    r.room = sherd_call_scratch(call, rooms * r.n * (int64_t)r.large);
    *good = r.room != NULL;
    if (sherd__is_dry(call->world))
        r.count = 0;
    return r;
}

static void *room_of(const rows *r, int i)
{
    return r->room + (size_t)(i * r->n) * r->large;
}

/* Row i of an operand, as kernels compute: where it lies, or in a room. */
static const void *row_in(const rows *r, int64_t i, const void *from, int room)
{
    const char *at = (const char *)from + (size_t)(i * r->n) * r->bytes;

    if (!r->half)
        return at;
    r->own->widen(r->n, room_of(r, room), at);
    return room_of(r, room);
}

/* Where row i of a result is computed: in place, or in a room, from which `put` rounds it. */
static void *row_out(const rows *r, int64_t i, void *to, int room)
{
    return r->half ? room_of(r, room) : (char *)to + (size_t)(i * r->n) * r->bytes;
}

static void put(const rows *r, int64_t i, void *to, const void *row)
{
    if (r->half)
        r->own->narrow(r->n, (char *)to + (size_t)(i * r->n) * r->bytes, row);
}

/* A number as kernels compute. */
typedef union number {
    float f;
    double d;
} number;

static double value_of(const rows *r, const number *x)
{
    return r->wide == SHERD_F64 ? x->d : (double)x->f;
}

static number number_of(const rows *r, double value)
{
    return r->wide == SHERD_F64 ? (number){.d = value} : (number){.f = (float)value};
}

/* dst = a op b, element by element, or with one number b. */
static void combine(const rows *r, sherd__binary_kind kind, void *dst, const void *a, const void *b,
                    bool one)
{
    const int64_t along = 1, still = 0;

    r->k->binary(kind, 1, &r->n, dst, a, &along, b, one ? &still : &along);
}

static void scale(const rows *r, void *dst, const void *a, double factor)
{
    r->k->unary(SHERD__SCALE, r->n, dst, a, &factor);
}

/* The sum of a b; the products are left in `room`. */
static number sum_of_products(const rows *r, const void *a, const void *b, void *room)
{
    number sum = {0};

    combine(r, SHERD__MUL, room, a, b, false);
    r->k->sum(&sum, room, 1, r->n, 1, false);
    return sum;
}

/* At least eps; NaN stays. */
static number clamped(const rows *r, number x, double eps)
{
    const number least = number_of(r, eps);

    return value_of(r, &x) < value_of(r, &least) ? least : x;
}

/* ---- rows over their lengths ----------------------------------------------------------------- */

/* The length of a row: squares are added up in f64. */
static number length_of(const rows *r, const void *x)
{
    return number_of(r, sqrt(r->k->sum_squares(x, r->n)));
}

/*
 * y = x / length. Of 16 bits, x times what 1 / length is rounded to, in the range of f32: divisions
 * take longer than all else, and an error of 2^-24 is far below that of the result.
 */
static void shorten(const rows *r, void *y, const void *x, number length)
{
    double by = 1 / value_of(r, &length);

    if (r->half && by > (double)FLT_MIN && by < (double)FLT_MAX)
        scale(r, y, x, by);
    else
        combine(r, SHERD__DIV, y, x, &length, true);
}

bool sherd__unit_forward(sherd_call *call)
{
    const sherd__unit_rows *at = call->attributes;
    bool good;
    const rows r = rows_of(call, 1, &good);

    for (int64_t i = 0; good && i < r.count; i++) {
        const void *x = row_in(&r, i, call->from[0], 0);
        number length = clamped(&r, length_of(&r, x), at->eps);
        void *y = row_out(&r, i, call->to[0], 0);
        shorten(&r, y, x, length);
        put(&r, i, call->to[0], y);
    }
    return good;
}

/* da = (dy - y (y dy)) / length; dy / eps of a row that is shorter. */
bool sherd__unit_grad(sherd_call *call)
{
    enum { X, DY, PRODUCTS, ROOMS };
    const sherd__unit_rows *at = call->attributes;
    bool good;
    const rows r = rows_of(call, ROOMS, &good);

    for (int64_t i = 0; good && i < r.count; i++) {
        const void *x = row_in(&r, i, call->from[0], X), *dy = row_in(&r, i, call->from[1], DY);
        number length = length_of(&r, x), by = clamped(&r, length, at->eps);
        void *y = room_of(&r, X), *da = row_out(&r, i, call->to[0], DY);
        if (value_of(&r, &length) < value_of(&r, &by)) {
            shorten(&r, da, dy, by);
        } else {
            shorten(&r, y, x, by);
            number along = sum_of_products(&r, dy, y, room_of(&r, PRODUCTS));
            scale(&r, y, y, value_of(&r, &along));
            combine(&r, SHERD__SUB, da, dy, y, false);
            shorten(&r, da, da, by);
        }
        put(&r, i, call->to[0], da);
    }
    return good;
}

/* ---- cosines --------------------------------------------------------------------------------- */

/* The product of two rows, and their lengths; whether these are constant, for gradients. */
typedef struct angle {
    number product, length[2];
    bool constant[2];
} angle;

static angle angle_of(const rows *r, const void *a, const void *b, void *room, double eps)
{
    angle t = {.product = sum_of_products(r, a, b, room)};

    for (int i = 0; i < 2; i++) {
        const void *x = i ? b : a;
        r->k->unary(SHERD__SQUARE, r->n, room, x, NULL);
        r->k->sum(&t.length[i], room, 1, r->n, 1, false);
        double length = sqrt(value_of(r, &t.length[i]));
        t.length[i] = clamped(r, number_of(r, length), eps);
        t.constant[i] = length == 0 || length < eps;
    }
    return t;
}

bool sherd__cosine_forward(sherd_call *call)
{
    enum { A, B, PRODUCTS, ROOMS };
    const sherd__unit_rows *at = call->attributes;
    const int64_t one = 1;
    bool good;
    const rows r = rows_of(call, ROOMS, &good);

    for (int64_t i = 0; good && i < r.count; i++) {
        const void *a = row_in(&r, i, call->from[0], A), *b = row_in(&r, i, call->from[1], B);
        angle t = angle_of(&r, a, b, room_of(&r, PRODUCTS), at->eps);
        void *y = r.half ? (void *)&t.product : (char *)call->to[0] + (size_t)i * r.bytes;
        r.k->binary(SHERD__MUL, 1, &one, &t.length[0], &t.length[0], &one, &t.length[1], &one);
        r.k->binary(SHERD__DIV, 1, &one, y, &t.product, &one, &t.length[0], &one);
        if (r.half)
            r.own->narrow(1, (char *)call->to[0] + (size_t)i * r.bytes, y);
    }
    return good;
}

/*
 * Of row j, a, and the other one, b: da = dy (b / |b| - y a / |a|) / |a|, where a length that was
 * raised to eps is constant. The parts are scaled one by one: their products may leave the range of
 * f32.
 */
static void cosine_slope(const rows *r, void *da, const void *const row[2], int j, void *room,
                         const angle *t, double dy)
{
    double own = value_of(r, &t->length[j]), other = value_of(r, &t->length[1 - j]);

    scale(r, room, row[1 - j], dy / own / other);
    if (!t->constant[j]) {
        double cosine = value_of(r, &t->product) / own / other;
        scale(r, da, row[j], -cosine * dy / own / own);
        combine(r, SHERD__ADD, da, da, room, false);
    } else {
        scale(r, da, room, 1);
    }
}

bool sherd__cosine_grad(sherd_call *call)
{
    enum { A, B, DA, ROOM, ROOMS };
    const sherd__unit_rows *at = call->attributes;
    bool good;
    const rows r = rows_of(call, ROOMS, &good);

    for (int64_t i = 0; good && i < r.count; i++) {
        const void *row[2] = {row_in(&r, i, call->from[0], A), row_in(&r, i, call->from[1], B)};
        angle t = angle_of(&r, row[0], row[1], room_of(&r, ROOM), at->eps);
        double dy;
        sherd__convert(r.set, SHERD_F64, call->in[2]->dtype, 1, &dy,
                       (const char *)call->from[2] + (size_t)i * r.bytes);
        for (int j = 0; j < 2; j++) {
            void *da = row_out(&r, i, call->to[j], DA);
            cosine_slope(&r, da, row, j, room_of(&r, ROOM), &t, dy);
            put(&r, i, call->to[j], da);
        }
    }
    return good;
}
