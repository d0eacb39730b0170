/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of bf16 in the tiles of AMX: see attention_amx.h. 32 queries at a time go over the keys
 * block by block, with the maximum and the sum of each query so far; the scores of a block never
 * leave the first caches. Keys and values of a group are packed once. Of a head of 256 positions
 * and width 32, products and maxima are half of the time, exponentials a quarter.
 */
#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include "attention_amx.h"

/* A block of keys, whose scores are f32 in the first cache. */
enum { KEYS = 128 };

/* Below all scores that are seen; so that differences are numbers. */
static const float least_score = -1e30f;

/* A group of heads, and 32 queries of one of them. */
typedef struct queries {
    const sherd__attending *s;
    int64_t deep;         /* blocks of width */
    float by;             /* of scores, to powers of two */
    uint16_t *k, *v;      /* lines; turned pairs */
    uint16_t *q, *p;      /* turned lines; pairs, as they come out of a block */
    float *score, *sum;   /* [KEYS,32], [width,32] */
    vf most[2], total[2]; /* so far */
    sherd__fetching next;
    int64_t pace;
} queries;

static int64_t forward_bytes(const sherd__attending *s)
{
    int64_t deep = blocks_of(s->width), block = deep * SQUARE;
    int64_t keys = 2 * blocks_of(s->keys) * block + KEYS * BLOCK + block;

    return SHERD__LINE + 2 * keys + 4 * (KEYS * BLOCK + block);
}

static int64_t bytes(const sherd__attending *s)
{
    return sherd__max(forward_bytes(s), sherd__attention_grad_amx_bytes(s));
}

static void lay_out(queries *x, char *space)
{
    int64_t block = x->deep * SQUARE, keys = blocks_of(x->s->keys) * block;

    x->k = take(&space, 2 * keys);
    x->v = take(&space, 2 * keys);
    x->q = take(&space, 2 * block);
    x->p = take(&space, 2 * KEYS * BLOCK);
    x->score = take(&space, 4 * KEYS * BLOCK);
    x->sum = take(&space, 4 * block);
}

/* Scores of queries from i on and `keys` keys from j on; the largest ones of each query. */
static void score_keys(const queries *x, int64_t i, int64_t j, int64_t keys, vf most[2])
{
    vf m[4] = {x->most[0], x->most[1], x->most[0], x->most[1]};
    float *score = x->score;

    for (int64_t end = j + keys; j < end; j += BLOCK, score += SQUARE) {
        multiply_tiles(
            false, score, BLOCK, x->deep,
            (tiles){x->k + j / SIDE * x->deep * TILE, .second = x->deep * TILE, .next = TILE},
            (tiles){x->q, .second = TILE, .next = 2 * TILE});
        hide_block(x->s, i, j, score);
        for (int64_t r = 0; r < SQUARE; r += 4 * SIDE)
            for (int c = 0; c < 4; c++)
                m[c] = v_max(v_load(score + r + c * SIDE), m[c]);
    }
    most[0] = v_max(m[0], m[2]);
    most[1] = v_max(m[1], m[3]);
}

/* To new maxima: what there is so far. */
static void shrink(queries *x, const vf most[2])
{
    for (int c = 0; c < 2; c++) {
        vf factor = power_of_two(v_mul(v_sub(x->most[c], most[c]), v_set(x->by)));
        for (int64_t r = 0; r < x->deep * BLOCK; r++) {
            float *sum = x->sum + r * BLOCK + c * SIDE;
            v_store(sum, v_mul(v_load(sum), factor));
        }
        x->total[c] = v_mul(x->total[c], factor);
    }
}

/* Scores to probabilities, not yet divided by their sums: two rows at a time. */
static void soften(queries *x, int64_t keys)
{
    vf by = v_set(x->by), less[2], total[4] = {x->total[0], x->total[1], v_zero(), v_zero()};
    const float *score = x->score;

    for (int c = 0; c < 2; c++)
        less[c] = v_sub(v_zero(), v_mul(x->most[c], by));
    for (int64_t r = 0; r < keys; r += 2, score += 2 * BLOCK) {
        uint16_t *to = x->p + r / BLOCK * SQUARE + r % BLOCK / 2 * BLOCK;
        vf p[4];
        vi low, high;
        fetch_beside(&x->next, x->pace, r / 2);
        for (int c = 0; c < 4; c++) {
            p[c] = power_of_two(v_fma(v_load(score + c * SIDE), by, less[c % 2]));
            total[c] = v_add(total[c], p[c]);
        }
        pair_rows(round_words(p[0], p[1]), round_words(p[2], p[3]), &low, &high);
        store_words(to, low);
        store_words(to + TILE, high);
    }
    x->total[0] = v_add(total[0], total[2]);
    x->total[1] = v_add(total[1], total[3]);
}

/* sum (+)= the probabilities of keys from j on, times their values. */
static void sum_values(const queries *x, int64_t j, int64_t keys)
{
    tiles p = {x->p, .second = TILE, .next = SQUARE};
    tiles v = {x->v + j / BLOCK * x->deep * SQUARE, .second = TILE, .next = x->deep * SQUARE};
    float *sum = x->sum;

    for (int64_t w = 0; w < x->deep; w++, sum += SQUARE, v.at += SQUARE)
        multiply_tiles(j > 0, sum, BLOCK, keys / BLOCK, v, p);
}

/* What came out, to where it lies. Who sees nothing gets zeroes. */
static void finish(const queries *x, sherd__query at, int64_t rows, uint16_t *out, float *log_sum)
{
    float factor[BLOCK];

    for (int c = 0; c < 2; c++) {
        vf total = x->total[c], most = v_mul(x->most[c], v_set(x->by));
        vm some = v_either(v_less(v_zero(), total), v_is_nan(total));
        vf sum = v_mul(v_add(most, log_of_two(total)), v_set(1 / powers));
        v_store(factor + c * SIDE, v_choose(some, v_div(v_set(1), total), v_zero()));
        v_store_part(log_sum + at.row + c * SIDE, v_part(sherd__max(0, rows - c * SIDE)),
                     v_choose(some, sum, v_set(-INFINITY)));
    }
    store_turned(out + at.at, sherd__query_stride(x->s), rows, x->s->width, x->sum, factor);
}

/* Queries from i on of a head, which begins at `at`. */
static void attend(queries *x, int64_t i, sherd__query at, uint16_t *out, float *log_sum,
                   const void *q)
{
    const sherd__attending *s = x->s;
    int64_t rows = sherd__min(BLOCK, s->queries - i), end = keys_seen(s, i);
    lying_rows lines = lying_queries(s, q, at.at, rows);

    pack_turned_lines(x->q, &lines, sign_of(s));
    for (int c = 0; c < 2; c++) {
        x->most[c] = v_set(least_score);
        x->total[c] = v_zero();
    }
    for (int64_t j = 0; j < end; j += KEYS) {
        int64_t keys = blocks_of(sherd__min(KEYS, end - j)) * BLOCK;
        vf most[2];
        score_keys(x, i, j, keys, most);
        if (j > 0)
            shrink(x, most);
        x->most[0] = most[0];
        x->most[1] = most[1];
        soften(x, keys);
        sum_values(x, j, keys);
    }
    finish(x, at, rows, out, log_sum);
}

static sherd__done attention(const sherd__attending *s, void *out, float *log_sum, const void *q,
                             const void *k, const void *v, void *workspace)
{
    queries x = {.s = s,
                 .deep = blocks_of(s->width),
                 .by = powers * fabsf((float)s->scale),
                 .pace = pace_of(s)};
    const void *const arrays[] = {k, v, q, out};

    if (!is_possible(s) || !sherd__may_use_amx())
        return SHERD__CANNOT;
    lay_out(&x, workspace);
    begin_tiles();
    for (int64_t group = 0; group < s->batch * s->groups; group++) {
        int64_t b = group / s->groups, g = group % s->groups, at = sherd__keys_at(s, b, g);
        lying_rows keys = lying_keys(s, k, at), values = lying_keys(s, v, at);
        sherd__fetch_group(&x.next, s, group + 1, sizeof *x.q, arrays, 4);
        pack_lines(x.k, &keys);
        pack_pairs(x.v, &values, true);
        for (int64_t r = 0; r < s->repeat; r++)
            for (int64_t i = 0; i < s->queries; i += BLOCK)
                attend(&x, i, sherd__query_of(s, b, g, r, i), out, log_sum, q);
    }
    end_tiles();
    return SHERD__DONE;
}

const sherd__attention_tiles sherd__attention_amx = {bytes, attention, sherd__attention_grad_amx};

#endif
