/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of bf16 out of matrix products that are kept by shape: on CPUs that multiply bf16
 * several times as fast as f32 the products are what counts, and oneDNN has the best there are
 * (AMX, AVX512_BF16). A block of queries at a time, so that scores stay in the second cache;
 * causal, a block sees the keys up to its last query, in steps, so that shapes are few. Heads are
 * copied out and back, because oneDNN has its fast products for rows without gaps only. Scores,
 * their gradients and sums over blocks are f32; probabilities and slopes are rounded to bf16 for
 * the products that they go into.
 */
#include "engine.h"
#include "fetch.h"
#include "ref.h"

#include <string.h>

#include "base/num.h"

enum { LEAST_ROWS = 64, MOST_ROWS = 128, SCORES = 1 << 15, STEPS = 8, LINE = 16 };

/* Queries of a block: as many as keep its scores in the second cache, because small products are
 * slow ones. */
static int64_t rows_of(const sherd__attending *s)
{
    int64_t rows =
        sherd__min(sherd__max(SCORES / sherd__max(s->keys, 1) / 2 * 2, LEAST_ROWS), MOST_ROWS);

    return sherd__min(rows, s->queries);
}

/* One head of one batch item. */
typedef struct head {
    const sherd__attending *s;
    const sherd__kernel_set *set;
    sherd__engine *engine;
    uint16_t *q, *k, *v, *dout; /* [queries or keys,width], copies */
    uint16_t *out;              /* out, or dq */
    float *score, *slope;       /* [rows,keys] */
    int64_t rows;               /* of a block */
    uint16_t *p, *ds;           /* the same rounded */
    float *dk, *dv;             /* [keys,width], what has come so far */
    sherd__done done;           /* of the first product that was not done */
    sherd__fetching next;
} head;

static int64_t padded(int64_t n)
{
    return sherd__ceil_div(n, LINE) * LINE;
}

int64_t sherd__attention_products_bytes(const sherd__attending *s)
{
    int64_t block = padded(rows_of(s) * s->keys), keys = padded(s->keys * s->width);
    int64_t queries = padded(s->queries * s->width);

    return 4 * (2 * block + 2 * keys) + 2 * (2 * block + 2 * keys + 3 * queries);
}

static void lay_out(head *h, float *workspace)
{
    int64_t keys = padded(h->s->keys * h->s->width), queries = padded(h->s->queries * h->s->width);

    h->rows = rows_of(h->s);
    int64_t block = padded(h->rows * h->s->keys);
    h->score = workspace;
    h->slope = h->score + block;
    h->dk = h->slope + block;
    h->dv = h->dk + keys;
    h->p = (uint16_t *)(void *)(h->dv + keys);
    h->ds = h->p + block;
    h->k = h->ds + block;
    h->v = h->k + keys;
    h->q = h->v + keys;
    h->dout = h->q + queries;
    h->out = h->dout + queries;
}

/* Rows of `width` between arrays; most widths are a few cache lines, which need no call for
 * each. */
static void copy_rows(uint16_t *restrict to, int64_t to_row, const uint16_t *restrict from,
                      int64_t from_row, int64_t rows, int64_t width)
{
    enum { PIECE = 16 };
    bool whole = width % PIECE == 0;

    for (int64_t i = 0; i < rows; i++, to += to_row, from += from_row)
        if (whole)
            for (int64_t x = 0; x < width; x += PIECE)
                memcpy(to + x, from + x, PIECE * sizeof *to);
        else
            memcpy(to, from, (size_t)width * sizeof *to);
}

/* A head between its tensor, whose rows lie `stride` apart, and a copy. */
static void copy_in(const head *h, uint16_t *to, const void *from, int64_t stride, int64_t rows)
{
    copy_rows(to, h->s->width, from, stride, rows, h->s->width);
}

static void copy_out(const head *h, void *to, int64_t stride, const uint16_t *from, int64_t rows)
{
    copy_rows(to, stride, from, h->s->width, rows, h->s->width);
}

/* Keys that queries up to i see, rounded up to a step. */
static int64_t seen(const sherd__attending *s, int64_t i)
{
    int64_t step = sherd__max(2 * sherd__ceil_div(s->keys, 2 * STEPS), LEAST_ROWS);

    return sherd__min(sherd__ceil_div(sherd__visible(s, i), step) * step, s->keys);
}

static void multiply(head *h, sherd__product p, void *c, const void *a, const void *b)
{
    p.dtype = SHERD_BF16;
    if (h->done == SHERD__DONE)
        h->done = h->set->product(h->engine, &p, c, a, b, NULL);
}

/* to[rows,keys] = x y^T, of rows of a head. */
static void scores(head *h, float *to, const uint16_t *x, const uint16_t *y, int64_t rows,
                   int64_t keys)
{
    const sherd__attending *s = h->s;

    multiply(h,
             (sherd__product){.result = SHERD_F32, .tb = true, .m = rows, .n = keys, .k = s->width},
             to, x, y);
}

/* to[rows,width] = w[rows,keys] y, into a head. */
static void weigh(head *h, uint16_t *to, const uint16_t *w, const uint16_t *y, int64_t rows,
                  int64_t keys)
{
    const sherd__attending *s = h->s;

    multiply(h, (sherd__product){.result = SHERD_BF16, .m = rows, .n = s->width, .k = keys}, to, w,
             y);
}

/* to[keys,width] += w[rows,keys]^T x. */
static void gather(head *h, float *to, const uint16_t *w, const uint16_t *x, int64_t rows,
                   int64_t keys)
{
    const sherd__attending *s = h->s;

    multiply(
        h,
        (sherd__product){
            .result = SHERD_F32, .ta = true, .adds = true, .m = keys, .n = s->width, .k = rows},
        to, w, x);
}

static void attend(head *h, float *log_sum)
{
    const sherd__attending *s = h->s;

    for (int64_t i = 0; i < s->queries; i += h->rows) {
        int64_t rows = sherd__min(h->rows, s->queries - i), keys = seen(s, i + rows - 1);
        scores(h, h->score, h->q + i * s->width, h->k, rows, keys);
        for (int64_t r = 0; r < rows; r++) {
            int64_t n = sherd__visible(s, i + r), at = r * keys;
            sherd__fetch_row(&h->next);
            log_sum[i + r] =
                h->set->bf16.attention_row(n, keys, h->p + at, h->score + at, (float)s->scale);
        }
        weigh(h, h->out + i * s->width, h->p, h->v, rows, keys);
    }
}

static void attend_back(head *h, const float *log_sum)
{
    const sherd__attending *s = h->s;

    for (int64_t i = 0; i < s->queries; i += h->rows) {
        int64_t rows = sherd__min(h->rows, s->queries - i), keys = seen(s, i + rows - 1);
        const uint16_t *q = h->q + i * s->width, *dout = h->dout + i * s->width;
        scores(h, h->score, q, h->k, rows, keys);
        scores(h, h->slope, dout, h->v, rows, keys);
        for (int64_t r = 0; r < rows; r++) {
            int64_t n = sherd__visible(s, i + r), at = r * keys;
            sherd__fetch_row(&h->next);
            h->set->bf16.attention_grad_row(n, keys, h->p + at, h->ds + at, h->score + at,
                                            h->slope + at, (float)s->scale, log_sum[i + r]);
        }
        weigh(h, h->out + i * s->width, h->ds, h->k, rows, keys);
        gather(h, h->dv, h->p, dout, rows, keys);
        gather(h, h->dk, h->ds, q, rows, keys);
    }
}

/* Even sizes, as products want them, and nothing that comes between scores and products. */
static bool is_possible(const sherd__kernel_set *set, const sherd__attending *s)
{
    bool even = (s->queries | s->keys | s->width) % 2 == 0;

    return set->product && s->first_query == s->first_key && s->queries > 0 && s->keys > 0 &&
           s->width > 0 && even && !s->mask && s->p == 0;
}

static const uint16_t *at(const void *p, int64_t i)
{
    return (const uint16_t *)p + i;
}

/* Keys and values of a group. */
static void copy_keys(const head *h, const void *k, const void *v, int64_t first)
{
    int64_t row = sherd__key_stride(h->s);

    copy_in(h, h->k, at(k, first), row, h->s->keys);
    copy_in(h, h->v, at(v, first), row, h->s->keys);
}

static void attend_group(head *h, int64_t b, int64_t g, uint16_t *out, float *log_sum,
                         const void *q)
{
    const sherd__attending *s = h->s;
    int64_t row = sherd__query_stride(s);

    for (int64_t r = 0; r < s->repeat && h->done == SHERD__DONE; r++) {
        sherd__query first = sherd__query_of(s, b, g, r, 0);
        copy_in(h, h->q, at(q, first.at), row, s->queries);
        attend(h, log_sum + first.row);
        copy_out(h, out + first.at, row, h->out, s->queries);
    }
}

sherd__done sherd__attention_products(sherd__engine *engine, const sherd__kernel_set *set,
                                      const sherd__attending *s, void *out, float *log_sum,
                                      const void *q, const void *k, const void *v, void *workspace)
{
    head h = {.s = s, .set = set, .engine = engine, .done = SHERD__DONE};
    const void *const arrays[] = {k, v, q, out};

    if (!is_possible(set, s))
        return SHERD__CANNOT;
    lay_out(&h, workspace);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t g = 0; g < s->groups && h.done == SHERD__DONE; g++) {
            sherd__fetch_group(&h.next, s, b * s->groups + g + 1, sizeof *h.q, arrays, 4);
            copy_keys(&h, k, v, sherd__keys_at(s, b, g));
            attend_group(&h, b, g, out, log_sum, q);
        }
    return h.done;
}

/* What was added up, rounded into a head; the copy of keys has done its work. */
static void round_head(const head *h, uint16_t *to, const float *from)
{
    h->set->bf16.narrow(h->s->keys * h->s->width, h->k, from);
    copy_out(h, to, sherd__key_stride(h->s), h->k, h->s->keys);
}

static void grad_group(head *h, int64_t b, int64_t g, uint16_t *dq, const void *dout, const void *q,
                       const float *log_sum)
{
    const sherd__attending *s = h->s;
    int64_t row = sherd__query_stride(s);

    memset(h->dk, 0, (size_t)(s->keys * s->width) * sizeof *h->dk);
    memset(h->dv, 0, (size_t)(s->keys * s->width) * sizeof *h->dv);
    for (int64_t r = 0; r < s->repeat && h->done == SHERD__DONE; r++) {
        sherd__query first = sherd__query_of(s, b, g, r, 0);
        copy_in(h, h->q, at(q, first.at), row, s->queries);
        copy_in(h, h->dout, at(dout, first.at), row, s->queries);
        attend_back(h, log_sum + first.row);
        copy_out(h, dq + first.at, row, h->out, s->queries);
    }
}

sherd__done sherd__attention_grad_products(sherd__engine *engine, const sherd__kernel_set *set,
                                           const sherd__attending *s, void *dq, void *dk, void *dv,
                                           const void *dout, const void *q, const void *k,
                                           const void *v, const float *log_sum, void *workspace)
{
    head h = {.s = s, .set = set, .engine = engine, .done = SHERD__DONE};
    const void *const arrays[] = {k, v, q, dout, dq, dk, dv};

    if (!is_possible(set, s))
        return SHERD__CANNOT;
    lay_out(&h, workspace);
    for (int64_t b = 0; b < s->batch; b++)
        for (int64_t g = 0; g < s->groups && h.done == SHERD__DONE; g++) {
            int64_t keys = sherd__keys_at(s, b, g);
            sherd__fetch_group(&h.next, s, b * s->groups + g + 1, sizeof *h.q, arrays, 7);
            copy_keys(&h, k, v, keys);
            grad_group(&h, b, g, dq, dout, q, log_sum);
            round_head(&h, (uint16_t *)dk + keys, h.dk);
            round_head(&h, (uint16_t *)dv + keys, h.dv);
        }
    return h.done;
}
