/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by the fastest way available: a oneDNN primitive cached for the shape (engine.h),
 * for bf16 only on CPUs that are fast at it; for 16 bits otherwise the table's product, which
 * converts operands to f32 while packing them, or, if the table has none, the f32 product on
 * copies: sums are f32 and each element is rounded once (docs/decisions/053). Otherwise the table's
 * gemm. Small matrices go to gemm at once, and tiny ones, many in a row, to a kernel that
 * multiplies all of them (kernels/small.h).
 */
#include "shared.h"
#include "kernels/small.h"
#include "kernels/sums.h"

#include "base/num.h"
#include "vector/choose.h"

static int64_t bytes_of(int64_t count, sherd_dtype dtype)
{
    return count * (int64_t)sherd_dtype_bytes(dtype);
}

static const int64_t stretched[] = {0, 1}; /* strides of a row that is that of all rows */

static void add_bias(const sherd__kernels *k, const sherd__product *p, void *c, const void *bias)
{
    int64_t size[] = {p->m, p->n}, whole[] = {p->n, 1};

    k->binary(SHERD__ADD, 2, size, c, c, whole, bias, stretched);
}

/*
 * A product of 16 bits begins with its bias: added afterwards, it would be rounded a second time.
 */
static void multiply_plain(const sherd__kernels *k, const sherd__product *p, void *c, const void *a,
                           const void *b, const void *bias)
{
    int64_t lda = p->ta ? p->m : p->k, ldb = p->tb ? p->k : p->n;
    int64_t size[] = {p->m, p->n}, whole[] = {p->n, 1};
    bool begins = p->bias && !p->adds && sherd__is_half(p->result);

    if (begins)
        sherd__copy_box(sherd_dtype_bytes(p->result), 2, size, c, whole, bias, stretched);
    k->gemm(p->ta, p->tb, p->m, p->n, p->k, 1, a, sherd__max(lda, 1), b, sherd__max(ldb, 1),
            p->adds || begins ? 1 : 0, c, p->n);
    if (p->bias && !begins)
        add_bias(k, p, c, bias);
}

/* By the set's product, where it does this one, with its bias or with that added by us. */
static sherd__done try_product(sherd_call *call, const sherd__product *p, void *c, const void *a,
                               const void *b, const void *bias)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    sherd__engine *engine = p->k ? sherd__engine_in(call) : NULL;
    sherd__product without = *p;

    if (!engine)
        return SHERD__CANNOT;
    sherd__done done = set->product(engine, p, c, a, b, bias);
    if (done != SHERD__CANNOT || !p->bias || p->dtype != SHERD_F32)
        return done;
    without.bias = false;
    done = set->product(engine, &without, c, a, b, NULL);
    if (done == SHERD__DONE)
        add_bias(sherd__kernels_of(set, p->result), p, c, bias);
    return done;
}

/* The same in a dry world: whether it would be done. */
static sherd__done try_dry(sherd_call *call, const sherd__product *p)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    sherd__engine *engine = set->multiplies && p->k ? sherd__engine_in(call) : NULL;
    sherd__product without = *p;

    without.bias = p->bias && p->dtype != SHERD_F32;
    return engine && (set->multiplies(engine, p) || set->multiplies(engine, &without))
               ? SHERD__DONE
               : SHERD__CANNOT;
}

static bool no_memory(sherd_call *call)
{
    return sherd_call_fail(call, SHERD_ENOMEM, "out of memory for a product");
}

/* ---- 16 bits through f32 -------------------------------------------------------------------- */

/* Room for one product in f32, NULL where it is not needed: a, b, bias, c. */
typedef struct wide {
    float *a, *b, *bias, *c;
} wide;

/*
 * Room for whichever way the products of one call go, taken when the first of them wants it, and
 * enough for the longest.
 */
typedef struct room {
    wide wide;
    void *workspace; /* of the table's own product */
    const sherd__product *longest;
    int64_t bytes; /* of the workspace; 0 = what the product at hand needs */
    bool differ;   /* the products differ in shape: no primitive is made for each */
    float *part;   /* the sums of one part of the terms */
    double *total; /* the sums of all parts so far */
    void *a, *b;   /* copies of the terms of a part, if they lie along longer rows; else NULL */
} room;

static bool take_room(sherd_call *call, const sherd__product *p, wide *w)
{
    int64_t a = p->m * p->k, b = p->k * p->n, bias = p->bias ? p->n : 0;
    int64_t c = p->result == SHERD_F32 ? 0 : p->m * p->n;

    w->a = sherd_call_scratch(call, bytes_of(a + b + bias + c, SHERD_F32));
    if (!w->a)
        return false;
    w->b = w->a + a;
    w->bias = w->b + b;
    w->c = w->bias + bias;
    return true;
}

static bool multiply_wide(sherd_call *call, const sherd__product *p, const room *r, void *c,
                          const void *a, const void *b, const void *bias)
{
    if (sherd__is_dry(call->world))
        return true;

    const wide *w = &r->wide;
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__kernels *half = sherd__kernels_of(set, p->dtype);
    bool rounds = p->result != SHERD_F32;
    sherd__product f32 = *p;
    void *to = rounds ? w->c : c;

    f32.dtype = f32.result = SHERD_F32;
    half->widen(p->m * p->k, w->a, a);
    half->widen(p->k * p->n, w->b, b);
    if (p->bias)
        half->widen(p->n, w->bias, bias);
    sherd__done done = r->differ ? SHERD__CANNOT : try_product(call, &f32, to, w->a, w->b, w->bias);
    if (done == SHERD__NO_MEMORY)
        return no_memory(call);
    if (done == SHERD__CANNOT)
        multiply_plain(&set->f32, &f32, to, w->a, w->b, w->bias);
    if (rounds)
        half->narrow(p->m * p->n, c, to);
    return true;
}

/* ---- the products --------------------------------------------------------------------------- */

/* By the table's product, in its workspace. */
static bool multiply_packed(sherd_call *call, const sherd__product *p, room *r, void *c,
                            const void *a, const void *b, const void *bias)
{
    const sherd__kernels *k = sherd__kernels_of(sherd__world_kernels(call->world), p->dtype);

    if (!r->workspace)
        r->workspace = sherd_call_scratch(call, sherd__max(r->bytes, k->product_workspace(p)));
    if (r->workspace && !sherd__is_dry(call->world))
        k->product(p, c, a, b, bias, r->workspace);
    return r->workspace != NULL;
}

/* Try oneDNN first; for bf16 only if the machine multiplies it fast. */
static sherd__done try_first(sherd_call *call, const sherd__product *p, const room *r, void *c,
                             const void *a, const void *b, const void *bias)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    bool slow = p->dtype == SHERD_BF16 && !set->bf16_products;

    if (slow || r->differ)
        return SHERD__CANNOT;
    return sherd__is_dry(call->world) ? try_dry(call, p) : try_product(call, p, c, a, b, bias);
}

enum { FEW = 16 };

/* Whether rows, columns and terms are so few that to find a primitive for the product, or to pack
 * its operands, takes longer than the plain way. */
static bool is_of_few(const sherd__product *p)
{
    return !sherd__is_half(p->dtype) && p->m <= FEW && p->n <= FEW && p->k <= FEW;
}

/*
 * A matrix times a vector is one row times the matrix turned: c^T = b^T a^T, with the same numbers
 * in memory. Kernels of few rows read the matrix once. False: it is another product.
 */
static bool turn_vector(const sherd__kernels *k, const sherd__product *p, const room *r,
                        sherd__product *to)
{
    if (p->n != 1 || p->ta || p->c_row || p->b_row || p->m < 2 || p->dtype != SHERD_F32 ||
        p->result != SHERD_F32 || r->differ || !k->product_fits)
        return false;
    *to = (sherd__product){.dtype = p->dtype,
                           .result = p->result,
                           .tb = true,
                           .adds = p->adds,
                           .m = 1,
                           .n = p->m,
                           .k = p->k,
                           .b_row = p->a_row};
    return k->product_fits(to);
}

/*
 * Whether an f64 matrix, whose terms lie along its rows, is multiplied by one vector. Kernels of
 * tiles take rows of both operands, and have one of them then.
 */
static bool is_by_vector(const sherd__product *p)
{
    bool column = p->n == 1 && !p->ta && !p->b_row, row = p->m == 1 && !p->ta && p->tb;

    return p->dtype == SHERD_F64 && p->result == SHERD_F64 && !p->c_row && p->k > FEW &&
           (column || row);
}

/* An element is the sum of a row, whose order depends on k alone. */
static void multiply_by_vector(const sherd__product *p, double *c, const double *a, const double *b)
{
    bool column = p->n == 1;
    const sherd__product one = {SHERD_F64, SHERD_F64, .adds = p->adds, .m = 1, .n = 1, .k = p->k};
    const double *matrix = column ? a : b, *vector = column ? b : a;
    int64_t rows = column ? p->m : p->n, given = column ? p->a_row : p->b_row;

    for (int64_t i = 0; i < rows; i++, matrix += given ? given : p->k)
        sherd__dots(&one, 1, c + i, matrix, vector);
}

static bool multiply_one(sherd_call *call, const sherd__product *p, room *r, void *c, const void *a,
                         const void *b, const void *bias)
{
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__kernels *k = sherd__kernels_of(set, p->dtype);
    sherd__product turned;

    if (is_of_few(p)) {
        if (!sherd__is_dry(call->world))
            multiply_plain(k, p, c, a, b, bias);
        return true;
    }
    if (is_by_vector(p)) {
        if (!sherd__is_dry(call->world)) {
            multiply_by_vector(p, c, a, b);
            if (p->bias)
                add_bias(k, p, c, bias);
        }
        return true;
    }
    if (turn_vector(k, p, r, &turned)) {
        if (!multiply_packed(call, &turned, r, c, b, a, NULL))
            return false;
        if (p->bias && !sherd__is_dry(call->world))
            add_bias(k, p, c, bias);
        return true;
    }
    if (k->product_fits && k->product_fits(p))
        return multiply_packed(call, p, r, c, a, b, bias);
    sherd__done done = try_first(call, p, r, c, a, b, bias);
    if (done != SHERD__CANNOT)
        return done == SHERD__DONE || no_memory(call);
    if (k->product)
        return multiply_packed(call, p, r, c, a, b, bias);
    /* Where plain products are asked for by name, they are those of the table. */
    if (sherd__is_half(p->dtype) && (set->product || p->result != p->dtype))
        return (r->wide.a || take_room(call, r->longest, &r->wide)) &&
               multiply_wide(call, p, r, c, a, b, bias);
    if (!sherd__is_dry(call->world))
        multiply_plain(k, p, c, a, b, bias);
    return true;
}

/* ---- long sums ------------------------------------------------------------------------------ */

enum { PART = 1 << 10 }; /* terms of a product that are added in f32 */

/*
 * Whether the product is added up in parts here. Not if it has a few long sums of f32, which
 * kernels split themselves, nor if it has more results than terms.
 */
static bool is_in_parts(const sherd__product *p)
{
    bool few = sherd__is_long_sum(p->m, p->n, p->k), half = sherd__is_half(p->dtype);

    return p->m > 0 && p->n > 0 && p->k > SHERD__LONG_SUM && p->dtype != SHERD_F64 && !p->bias &&
           (half || !few) && p->m <= p->k / p->n;
}

/* Whether the terms lie along the rows of a (or of b), so that a part takes a piece of each row. */
static bool has_long_rows_a(const sherd__product *p)
{
    return !p->ta && p->m > 1;
}

static bool has_long_rows_b(const sherd__product *p)
{
    return p->tb && p->n > 1;
}

static bool take_long_room(sherd_call *call, const sherd__product *p, room *r)
{
    bool a = has_long_rows_a(p), b = has_long_rows_b(p);

    if (r->total)
        return true;
    r->part = sherd_call_scratch(call, bytes_of(p->m * p->n, SHERD_F32));
    r->total = sherd_call_scratch(call, bytes_of(p->m * p->n, SHERD_F64));
    r->a = a ? sherd_call_scratch(call, bytes_of(p->m * PART, p->dtype)) : NULL;
    r->b = b ? sherd_call_scratch(call, bytes_of(p->n * PART, p->dtype)) : NULL;
    return r->part && r->total && (r->a || !a) && (r->b || !b);
}

/* The terms from `at` on of an operand; if they lie along its rows, copied to `packed`. */
static const void *terms_of(const sherd__product *p, int64_t at, int64_t some, int64_t rows,
                            void *packed, const char *operand)
{
    const int64_t size[] = {rows, some}, dst[] = {some, 1}, src[] = {p->k, 1};

    if (!packed)
        return operand + bytes_of(at * rows, p->dtype);
    sherd__copy_box(sherd_dtype_bytes(p->dtype), 2, size, packed, dst,
                    operand + bytes_of(at, p->dtype), src);
    return packed;
}

/* Set the total to what the result has, if the product is added to that; else to zeroes. */
static void begin_long(sherd_call *call, const sherd__product *p, room *r, const void *c)
{
    int64_t n = p->m * p->n;

    if (p->adds)
        sherd__convert(sherd__world_kernels(call->world), SHERD_F32, p->result, n, r->part, c);
    for (int64_t i = 0; i < n; i++)
        r->total[i] = p->adds ? (double)r->part[i] : 0;
}

/* Round the total to the result. */
static void end_long(sherd_call *call, const sherd__product *p, room *r, void *c)
{
    int64_t n = p->m * p->n;

    for (int64_t i = 0; i < n; i++)
        r->part[i] = (float)r->total[i];
    sherd__convert(sherd__world_kernels(call->world), p->result, SHERD_F32, n, c, r->part);
}

/* In parts, which are added up in f64 (kernels/sums.h). */
static bool multiply_long(sherd_call *call, const sherd__product *p, room *r, void *c,
                          const char *a, const char *b)
{
    const sherd__kernels *k = sherd__kernels_of(sherd__world_kernels(call->world), p->dtype);
    bool dry = sherd__is_dry(call->world);
    sherd__product part = *p;

    part.adds = false;
    part.result = SHERD_F32;
    part.k = (p->k - 1) % PART + 1; /* the last part, whose workspace may be the larger one */
    if (k->product)
        r->bytes = k->product_workspace(&part);
    part.k = PART;
    r->longest = &part;
    if (!take_long_room(call, p, r))
        return false;
    if (dry)
        return multiply_one(call, &part, r, r->part, a, b, NULL);
    begin_long(call, p, r, c);
    for (int64_t at = 0; at < p->k; at += PART) {
        part.k = sherd__min(PART, p->k - at);
        if (!multiply_one(call, &part, r, r->part, terms_of(p, at, part.k, p->m, r->a, a),
                          terms_of(p, at, part.k, p->n, r->b, b), NULL))
            return false;
        for (int64_t i = 0; i < p->m * p->n; i++)
            r->total[i] += (double)r->part[i];
    }
    end_long(call, p, r, c);
    return true;
}

/* ---- all ------------------------------------------------------------------------------------- */

/*
 * A matrix that is stored turned, times a vector, is one row times the matrix as it is stored: c^T
 * = b^T a^T, with the same numbers in memory. Then it is read along its rows, once.
 */
static bool is_by_turned(const sherd__product *p)
{
    bool whole = p->dtype == SHERD_F32 || p->dtype == SHERD_F64;

    return whole && p->result == p->dtype && p->n == 1 && p->ta && !p->bias && !p->b_row &&
           !p->c_row;
}

static void turn_product(sherd__product *p)
{
    *p = (sherd__product){.dtype = p->dtype,
                          .result = p->result,
                          .adds = p->adds,
                          .m = 1,
                          .n = p->m,
                          .k = p->k,
                          .b_row = p->a_row};
}

bool sherd__multiply(sherd_call *call, sherd__product p, int64_t times, void *c, const void *a,
                     const void *b, const void *bias)
{
    room r = {.longest = &p};
    bool good = true;

    p.bias = bias != NULL;
    if (is_by_turned(&p)) {
        const void *vector = b;
        b = a;
        a = vector;
        turn_product(&p);
    }
    if (sherd__is_small_product(&p)) {
        if (!sherd__is_dry(call->world))
            sherd__small_products(&p, times, c, a, b);
        return true;
    }
    if (p.k > FEW && sherd__is_dot(&p)) {
        if (!sherd__is_dry(call->world))
            sherd__dots(&p, times, c, a, b);
        return true;
    }
    bool parts = is_in_parts(&p);
    if (sherd__is_dry(call->world)) /* they take the same room */
        times = sherd__min(times, 1);
    for (int64_t i = 0; i < times && good; i++) {
        /* With no inner length the operands have no data to point into. */
        const char *x = p.k ? (const char *)a + bytes_of(i * p.m * p.k, p.dtype) : NULL;
        const char *y = p.k ? (const char *)b + bytes_of(i * p.k * p.n, p.dtype) : NULL;
        char *to = (char *)c + bytes_of(i * p.m * p.n, p.result);
        good = parts ? multiply_long(call, &p, &r, to, x, y)
                     : multiply_one(call, &p, &r, to, x, y, bias);
    }
    return good;
}

bool sherd__multiply_runs(sherd_call *call, sherd__product p, const sherd__run_product *run,
                          int64_t runs)
{
    const sherd__kernels *k = sherd__kernels_of(sherd__world_kernels(call->world), p.dtype);
    int64_t *rows = p.ta ? &p.k : &p.m, longest = 0;
    room r = {.differ = true};
    bool good = true;

    for (int64_t i = 0; sherd__device_in(call) && i < runs; i++) {
        *rows = run[i].rows;
        sherd__device_multiply(sherd__device_in(call), &p, 1, run[i].c, run[i].a, run[i].b, NULL);
    }
    if (sherd__device_in(call))
        return true;
    for (int64_t i = 0; i < runs; i++) {
        *rows = run[i].rows;
        longest = sherd__max(longest, *rows);
        if (k->product) /* a longer one may need less */
            r.bytes = sherd__max(r.bytes, k->product_workspace(&p));
    }
    *rows = longest;
    const sherd__product most = p;
    r.longest = &most;
    for (int64_t i = 0; i < runs && good; i++) {
        *rows = run[i].rows;
        good = multiply_one(call, &p, &r, run[i].c, p.k ? run[i].a : NULL, p.k ? run[i].b : NULL,
                            NULL);
    }
    return good;
}
