/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradients of attention of bf16 in the tiles of AMX: see attention_amx.h. Scores and the
 * products of dout with values are computed again, block by block, and become probabilities and
 * slopes at once, which are kept rounded for a larger block of queries and keys: so sums of many
 * are added to the gradients of keys and values at a time. Those are f32, and rounded once.
 */
#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include <string.h>

#include "attention_amx.h"

/* Queries and keys whose probabilities and slopes are kept, in the second cache. */
enum { QUERIES = 256, KEYS = 256, ROWS = QUERIES / BLOCK, COLUMNS = KEYS / BLOCK };

/* A group of heads, and some queries of one of them. */
typedef struct slopes {
    const sherd__attending *s;
    int64_t deep;                     /* blocks of width */
    float by;                         /* of scores, to powers of two */
    uint16_t *k, *v, *k_turned;       /* lines; turned pairs */
    uint16_t *q_turned, *dout_turned; /* turned lines */
    uint16_t *q_pairs, *dout_pairs;   /* pairs */
    uint16_t *p, *ds, *ds_pairs;      /* lines [KEYS / 16][ROWS] twice; pairs [ROWS][COLUMNS][2] */
    float *score, *dp;                /* [32,32] */
    float *dk, *dv;                   /* [keys,width] */
    float *dq;                        /* [ROWS][width,32] */
    float log_sum[QUERIES], delta[QUERIES]; /* in powers of two; dout out */
    int64_t first, rows;                    /* queries */
} slopes;

int64_t sherd__attention_grad_amx_bytes(const sherd__attending *s)
{
    int64_t block = blocks_of(s->width) * SQUARE, keys = blocks_of(s->keys) * block;

    return SHERD__LINE + 2 * (3 * keys + 4 * ROWS * block + 3 * QUERIES * KEYS) +
           4 * (2 * SQUARE + 2 * keys + ROWS * block);
}

static void lay_out(slopes *x, char *space)
{
    int64_t block = x->deep * SQUARE, keys = blocks_of(x->s->keys) * block;
    uint16_t **const of_queries[] = {&x->q_turned, &x->dout_turned, &x->q_pairs, &x->dout_pairs};
    uint16_t **const of_keys[] = {&x->k, &x->v, &x->k_turned};
    uint16_t **const kept[] = {&x->p, &x->ds, &x->ds_pairs};

    for (int i = 0; i < 4; i++)
        *of_queries[i] = take(&space, 2 * ROWS * block);
    for (int i = 0; i < 3; i++) {
        *of_keys[i] = take(&space, 2 * keys);
        *kept[i] = take(&space, 2 * QUERIES * KEYS);
    }
    x->score = take(&space, 4 * SQUARE);
    x->dp = take(&space, 4 * SQUARE);
    x->dk = take(&space, 4 * keys);
    x->dv = take(&space, 4 * keys);
    x->dq = take(&space, 4 * ROWS * block);
}

/* The first block of queries that sees keys from j on. */
static int64_t first_row(const slopes *x, int64_t j)
{
    return x->s->causal ? sherd__max(0, (j - x->first) / BLOCK) : 0;
}

/* Scores of block `row` of queries and keys from j on, and what dout and their values give. */
static void multiply_block(const slopes *x, int64_t row, int64_t j)
{
    int64_t block = x->deep * SQUARE, at = j / BLOCK * block;
    tiles k = {x->k + at, .second = x->deep * TILE, .next = TILE}, v = k;
    tiles q = {x->q_turned + row * block, .second = TILE, .next = 2 * TILE}, dout = q;

    v.at = x->v + at;
    dout.at = x->dout_turned + row * block;
    multiply_tiles(false, x->score, BLOCK, x->deep, k, q);
    multiply_tiles(false, x->dp, BLOCK, x->deep, v, dout);
    hide_block(x->s, x->first + row * BLOCK, j, x->score);
}

/* p = 2^(score - log_sum) and ds = p (dp - delta) of a block, rounded, as lines and ds as pairs
 * too. */
static void slope_block(const slopes *x, int64_t row, int64_t column)
{
    const float *log_sum = x->log_sum + row * BLOCK, *delta = x->delta + row * BLOCK;
    const vf less[2] = {v_load(log_sum), v_load(log_sum + SIDE)};
    const vf down[2] = {v_load(delta), v_load(delta + SIDE)};
    uint16_t *pairs = x->ds_pairs + (row * COLUMNS + column) * SQUARE;
    vf by = v_set(x->by);

    for (int64_t r = 0; r < BLOCK; r += 2, pairs += BLOCK) {
        int64_t to = ((2 * column + r / SIDE) * ROWS + row) * TILE + r % SIDE * BLOCK;
        vi slope[2], low, high;
        for (int i = 0; i < 2; i++, to += BLOCK) {
            const float *score = x->score + (r + i) * BLOCK, *dp = x->dp + (r + i) * BLOCK;
            vf a = power_of_two(v_fma(v_load(score), by, less[0]));
            vf b = power_of_two(v_fma(v_load(score + SIDE), by, less[1]));
            store_words(x->p + to, round_words(a, b));
            slope[i] = round_words(v_mul(a, v_sub(v_load(dp), down[0])),
                                   v_mul(b, v_sub(v_load(dp + SIDE), down[1])));
            store_words(x->ds + to, slope[i]);
        }
        pair_rows(slope[0], slope[1], &low, &high);
        store_words(pairs, low);
        store_words(pairs + TILE, high);
    }
}

/* dk and dv += what block `column`, of keys from j on, gets from all queries. */
static void grad_keys(const slopes *x, int64_t j, int64_t column)
{
    int64_t row = first_row(x, j), depth = blocks_of(x->rows) - row, width = x->deep * BLOCK;
    int64_t at = (2 * column * ROWS + row) * TILE;

    if (depth <= 0)
        return; /* later than all of them */
    tiles p = {x->p + at, .second = ROWS * TILE, .next = TILE}, ds = p;

    ds.at = x->ds + at;
    for (int64_t w = 0; w < x->deep; w++) {
        int64_t from = (row * x->deep + w) * SQUARE, to = j * width + w * BLOCK;
        tiles dout = {x->dout_pairs + from, .second = TILE, .next = x->deep * SQUARE}, q = dout;
        q.at = x->q_pairs + from;
        multiply_tiles(true, x->dv + to, width, depth, p, dout);
        multiply_tiles(true, x->dk + to, width, depth, ds, q);
    }
}

/* dq (+)= what block `row` of queries gets from `columns` blocks of keys from j on. */
static void grad_queries(const slopes *x, int64_t row, int64_t j, int64_t columns)
{
    tiles ds = {x->ds_pairs + row * COLUMNS * SQUARE, .second = TILE, .next = SQUARE};

    for (int64_t w = 0; w < x->deep; w++) {
        float *to = x->dq + (row * x->deep + w) * SQUARE;
        tiles k = {x->k_turned + (j / BLOCK * x->deep + w) * SQUARE, .second = TILE,
                   .next = x->deep * SQUARE};
        multiply_tiles(j > 0, to, BLOCK, columns, k, ds);
    }
}

/* What the queries and up to KEYS keys from j on give to each other. */
static void grad_block(slopes *x, int64_t j)
{
    int64_t end = sherd__min(x->s->keys, j + KEYS);

    for (int64_t row = 0; row < blocks_of(x->rows); row++) {
        int64_t seen = sherd__min(end, keys_seen(x->s, x->first + row * BLOCK)) - j;
        for (int64_t column = 0; column < blocks_of(sherd__max(0, seen)); column++) {
            multiply_block(x, row, j + column * BLOCK);
            slope_block(x, row, column);
        }
        if (seen > 0)
            grad_queries(x, row, j, blocks_of(seen));
    }
    for (int64_t column = 0; j + column * BLOCK < end; column++)
        grad_keys(x, j + column * BLOCK, column);
}

typedef struct grad_tensors {
    uint16_t *dq, *dk, *dv;
    const uint16_t *dout, *q, *k, *v, *out;
    const float *log_sum;
} grad_tensors;

/* Of rows a and b. */
static float dot(const uint16_t *a, const uint16_t *b, int64_t n)
{
    vf total = v_zero();

    for (int64_t i = 0; i < n; i += BLOCK) {
        __mmask32 part = words_part(n - i);
        total = _mm512_dpbf16_ps(total, (__m512bh)_mm512_maskz_loadu_epi16(part, a + i),
                                 (__m512bh)_mm512_maskz_loadu_epi16(part, b + i));
    }
    return v_sum(total);
}

/* Who sees nothing has no probabilities. */
static void read_sums(slopes *x, const grad_tensors *t, sherd__query at)
{
    int64_t stride = sherd__query_stride(x->s);

    for (int64_t r = 0; r < blocks_of(x->rows) * BLOCK; r++) {
        float sum = r < x->rows ? t->log_sum[at.row + r] : -INFINITY;
        int64_t row = at.at + r * stride;
        x->log_sum[r] = sum == -INFINITY ? sum : -sum * powers;
        x->delta[r] = r < x->rows ? dot(t->dout + row, t->out + row, x->s->width) : 0;
    }
}

/* The queries from x->first on. */
static void grad_rows(slopes *x, const grad_tensors *t, sherd__query at)
{
    const sherd__attending *s = x->s;
    lying_rows q = lying_queries(s, t->q, at.at, x->rows);
    lying_rows dout = lying_queries(s, t->dout, at.at, x->rows);
    int64_t end = sherd__visible(s, x->first + x->rows - 1);
    float factor[BLOCK];

    pack_turned_lines(x->q_turned, &q, sign_of(s));
    pack_turned_lines(x->dout_turned, &dout, 0);
    pack_pairs(x->q_pairs, &q, false);
    pack_pairs(x->dout_pairs, &dout, false);
    read_sums(x, t, at);
    for (int64_t j = 0; j < end; j += KEYS)
        grad_block(x, j);
    for (int i = 0; i < BLOCK; i++)
        factor[i] = (float)s->scale;
    for (int64_t r = 0; r < x->rows; r += BLOCK)
        store_turned(t->dq + at.at + r * q.stride, q.stride, sherd__min(BLOCK, x->rows - r),
                     s->width, x->dq + r * x->deep * BLOCK, factor);
}

/* All heads of a group. */
static void grad_group(slopes *x, const grad_tensors *t, int64_t b, int64_t g)
{
    const sherd__attending *s = x->s;
    int64_t at = sherd__keys_at(s, b, g), width = x->deep * BLOCK;
    size_t all = sizeof *x->dk * (size_t)(blocks_of(s->keys) * BLOCK * width);
    lying_rows keys = lying_keys(s, t->k, at), values = lying_keys(s, t->v, at);

    pack_lines(x->k, &keys);
    pack_pairs(x->k_turned, &keys, true);
    pack_lines(x->v, &values);
    memset(x->dk, 0, all);
    memset(x->dv, 0, all);
    for (int64_t r = 0; r < s->repeat; r++)
        for (x->first = 0; x->first < s->queries; x->first += QUERIES) {
            x->rows = sherd__min(QUERIES, s->queries - x->first);
            grad_rows(x, t, sherd__query_of(s, b, g, r, x->first));
        }
    store_lines(t->dk + at, keys.stride, s->keys, s->width, x->dk, width, (float)s->scale);
    store_lines(t->dv + at, keys.stride, s->keys, s->width, x->dv, width, 1);
}

sherd__done sherd__attention_grad_amx(const sherd__attending *s, void *dq, void *dk, void *dv,
                                      const void *dout, const void *q, const void *k, const void *v,
                                      const void *out, const float *log_sum, void *workspace)
{
    const grad_tensors t = {dq, dk, dv, dout, q, k, v, out, log_sum};
    slopes x = {.s = s, .deep = blocks_of(s->width), .by = powers * fabsf((float)s->scale)};

    if (!is_possible(s) || !sherd__may_use_amx())
        return SHERD__CANNOT;
    lay_out(&x, workspace);
    begin_tiles();
    for (int64_t group = 0; group < s->batch * s->groups; group++)
        grad_group(&x, &t, group / s->groups, group % s->groups);
    end_tiles();
    return SHERD__DONE;
}

#endif
