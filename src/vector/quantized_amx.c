/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with values of 8 or 4 bits in the tiles of AMX: see quantized_tiles.h. Values are read
 * once, 32 rows of them at a time, become bf16 in the first cache, some hundred columns at a time,
 * and are the left operand, whose rows need no turning; rows of x are packed once, as the right
 * one. So the time is that of reading and converting the values, for 5 rows of x or for 32.
 */
#include "quantized_tiles.h"

#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include <string.h>

#include "amx.h"

/* Columns that are converted at once: 32 KB of bf16. */
enum { CHUNK = SHERD__QUANTIZED_ROOM / BLOCK };

static int64_t packed(const sherd__quantized *q, int64_t n)
{
    return blocks_of(n) * blocks_of(q->cols) * SQUARE;
}

bool sherd__quantized_fits(const sherd__kernel_set *set, const sherd__quantized *q)
{
    const int64_t side = q->pairs ? BLOCK : SIDE;
    bool together = q->group % side == 0 && (q->group == 0 || q->first % side == 0);

    return set->tiles == &sherd__attention_amx && q->cols > 0 && together && sherd__may_use_amx();
}

int64_t sherd__quantized_workspace(const sherd__quantized *q, int64_t n)
{
    return 2 * (packed(q, n) + CHUNK * BLOCK) + 4 * blocks_of(n) * SQUARE;
}

/* 16 values from column j on of row i; zeroes where there are none. */
INLINE vf load_values(const sherd__quantized *q, int64_t i, int64_t j)
{
    const int8_t *from = q->value + i * q->cols + j;
    int8_t part[SIDE] = {0};

    if (j + SIDE > q->cols) {
        if (j < q->cols)
            memcpy(part, from, (size_t)(q->cols - j));
        from = part;
    }
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)from);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

/* The scales of a row: that of the column at hand, and how many columns from it on share it. */
typedef struct scales {
    const float *at;
    int64_t left, group;
} scales;

static scales scales_at(const sherd__quantized *q, int64_t i, int64_t j)
{
    int64_t g = q->group ? (q->first + j) / q->group : 0;

    return (scales){q->scale + i * q->scales + g, (g + 1) * q->group - q->first - j, q->group};
}

/* 16 values of the row times their scale. */
INLINE vf scaled_values(vf x, scales *s)
{
    x = v_mul(x, v_set(*s->at));
    s->left -= SIDE;
    if (s->left == 0) {
        s->at++;
        s->left = s->group;
    }
    return x;
}

/* 32 values from column j on of row i as bf16: as they are, or times their scales. */
INLINE vi take_words(const sherd__quantized *q, int64_t i, int64_t j, scales *s)
{
    vf x = load_values(q, i, j), y = load_values(q, i, j + SIDE);

    if (q->group) {
        x = scaled_values(x, s);
        y = j + SIDE < q->cols ? scaled_values(y, s) : y;
    }
    return round_words(x, y);
}

/* The words that numbers of 4 bits stand for, twice: times the scale of the column at hand. */
typedef struct meaning {
    scales s;
    vi words;
} meaning;

INLINE vi words_of(float scale)
{
    const vf all = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    vf x = v_mul(all, v_set(scale));

    return round_words(x, x);
}

INLINE meaning meaning_at(const sherd__quantized *q, int64_t i, int64_t j)
{
    scales s = scales_at(q, i, j);

    return (meaning){s, words_of(q->group ? *s.at : 1)};
}

/* The same of 4 bits. Of a pair p the last five bits of both halves of p | p << 12 choose. */
INLINE vi take_pairs(const sherd__quantized *q, int64_t i, int64_t j, meaning *m)
{
    const uint8_t *from = q->pairs + (i * q->cols + j) / 2;
    uint8_t part[SIDE];

    if (q->group && m->s.left == 0) {
        m->words = words_of(*++m->s.at);
        m->s.left = m->s.group;
    }
    m->s.left -= BLOCK;
    if (j + BLOCK > q->cols) {
        memset(part, SHERD__NO_PAIR, sizeof part);
        memcpy(part, from, (size_t)(q->cols - j) / 2);
        from = part;
    }
    vi pair = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
    return _mm512_permutexvar_epi16(_mm512_or_si512(pair, _mm512_slli_epi32(pair, 12)), m->words);
}

/* 32 rows from i on, columns [d, d + width): tiles [width / 32][2], zeroes where there is nothing.
 * What comes `ahead` is asked for. */
static void take_rows(uint16_t *to, const sherd__quantized *q, int64_t i, int64_t d, int64_t width,
                      int64_t ahead)
{
    for (int64_t r = 0; r < BLOCK; r++) {
        uint16_t *at = to + r * BLOCK;
        bool is = i + r < q->rows;
        scales s = scales_at(q, is ? i + r : 0, d);
        const int8_t *soon = q->value + (is ? (i + r) * q->cols + d + ahead : 0);
        for (int64_t x = 0; x < width; x += BLOCK, at += SQUARE) {
            if (x % SHERD__LINE == 0)
                __builtin_prefetch(soon + (is ? x : 0), 0, 2);
            store_words(at, is ? take_words(q, i + r, d + x, &s) : v_int(0));
        }
    }
}

/* The same of 4 bits. */
static void take_rows_of_pairs(uint16_t *to, const sherd__quantized *q, int64_t i, int64_t d,
                               int64_t width, int64_t ahead)
{
    for (int64_t r = 0; r < BLOCK; r++) {
        uint16_t *at = to + r * BLOCK;
        bool is = i + r < q->rows;
        meaning m = meaning_at(q, is ? i + r : 0, d);
        const uint8_t *soon = q->pairs + (is ? ((i + r) * q->cols + d + ahead) / 2 : 0);
        for (int64_t x = 0; x < width; x += BLOCK, at += SQUARE) {
            if (x % (2 * SHERD__LINE) == 0)
                __builtin_prefetch(soon + (is ? x / 2 : 0), 0, 2);
            store_words(at, is ? take_pairs(q, i + r, d + x, &m) : v_int(0));
        }
    }
}

static void take(uint16_t *to, const sherd__quantized *q, int64_t i, int64_t d, int64_t width,
                 int64_t ahead)
{
    if (q->pairs)
        take_rows_of_pairs(to, q, i, d, width, ahead);
    else
        take_rows(to, q, i, d, width, ahead);
}

/* Chunks of 32 rows, of which each half becomes a tile of the right operand. */
void sherd__quantized_pack(const sherd__quantized *q, int64_t lo, int64_t some, int64_t d,
                           int64_t width, uint16_t *to, uint16_t *room)
{
    sherd__quantized within = *q; /* rows behind the last one count as zeroes */

    within.rows = lo + some;
    for (int64_t i = lo; i < lo + some; i += BLOCK)
        for (int64_t x = 0; x < width; x += CHUNK) {
            int64_t wide = blocks_of(sherd__min(CHUNK, width - x)) * BLOCK;
            int64_t ahead = i + 2 * BLOCK <= q->rows ? BLOCK * q->cols : 0;
            take(room, &within, i, d + x, wide, ahead);
            for (const uint16_t *at = room; at < room + wide * BLOCK; at += TILE, to += TILE) {
                vi line[SIDE];
                for (int64_t r = 0; r < SIDE; r++)
                    line[r] = load_words(at + r * BLOCK);
                turn_rows(line);
                store_tile(to, line);
            }
        }
}

/* Sums [rows of values, rows of x] to rows of y. */
static void give_rows(const sherd__quantized *q, int64_t n, float *y, const float *c, int64_t i)
{
    int64_t some = sherd__min(BLOCK, q->rows - i);

    for (int64_t r = 0; r < n; r++)
        for (int64_t s = 0; s < some; s++)
            y[r * q->rows + i + s] = c[r / BLOCK * SQUARE + s * BLOCK + r % BLOCK];
}

void sherd__quantized_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                           void *workspace)
{
    const int64_t bytes = BLOCK * sizeof(uint16_t), deep = blocks_of(q->cols);
    const lying_rows rows = {x, q->cols, n, q->cols};
    uint16_t *right = workspace, *left = right + packed(q, n);
    float *c = (float *)(void *)(left + CHUNK * BLOCK);

    pack_turned_lines(right, &rows, 0);
    begin_products();
    for (int64_t i = 0; i < q->rows; i += BLOCK) {
        for (int64_t d = 0; d < q->cols; d += CHUNK) {
            int64_t width = blocks_of(sherd__min(CHUNK, q->cols - d)) * BLOCK;
            bool more = d + CHUNK < q->cols, last = i + BLOCK >= q->rows;
            int64_t ahead = more ? CHUNK : last ? 0 : BLOCK * q->cols - d;
            take(left, q, i, d, width, ahead);
            for (int64_t g = 0; g < blocks_of(n); g++) {
                const tiles a = {left, TILE, SQUARE};
                const tiles b = {right + (g * deep + d / BLOCK) * SQUARE,
                                 n - g * BLOCK > SIDE ? TILE : 0, SQUARE};
                multiply_lying(false, d > 0, c + g * SQUARE, BLOCK, width / BLOCK, a, bytes, b);
            }
        }
        give_rows(q, n, y, c, i);
    }
    end_products();
}

#else

bool sherd__quantized_fits(const sherd__kernel_set *set, const sherd__quantized *q)
{
    (void)set;
    (void)q;
    return false;
}

int64_t sherd__quantized_workspace(const sherd__quantized *q, int64_t n)
{
    (void)q;
    (void)n;
    return 0;
}

void sherd__quantized_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                           void *workspace)
{
    (void)q;
    (void)n;
    (void)y;
    (void)x;
    (void)workspace;
}

void sherd__quantized_panel(const sherd__quantized *q, int64_t lo, int64_t some, int64_t n,
                            float *c, const uint16_t *x, void *workspace)
{
    (void)q;
    (void)lo;
    (void)some;
    (void)n;
    (void)c;
    (void)x;
    (void)workspace;
}

int64_t sherd__quantized_panel_workspace(const sherd__quantized *q, int64_t n, int64_t some)
{
    (void)q;
    (void)n;
    (void)some;
    return 0;
}

#endif
