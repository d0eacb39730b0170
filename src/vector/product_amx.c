/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 in the tiles of AMX, which oneDNN 2.6 takes up to twice as long for.
 * Columns of b are packed into tiles as long as the second cache has room for them, then rows of a
 * unless they are rows of tiles as they lie, and each block of 32 x 32 results, or half of it, is
 * one run over the terms (amx.h). A block then goes through the first cache, where bias and what is
 * there are added, and is rounded once. More terms than a pass has are added up in f32: in c, or
 * where that has 16 bits, in the workspace. Where a lies across it is turned while it is packed,
 * which takes as long as some 100 columns of the product. Few rows or columns go by way of f32:
 * their time is that of reading the other operand. Subnormal numbers count as 0. Columns of b may
 * be rows of whole numbers with scales, which become bf16 as they are packed (quantized_tiles.h).
 */
#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include "amx.h"
#include "product_room.h"
#include "quantized_tiles.h"

/*
 * The most terms of one pass, and those of a pass where there are more, or where a lies across:
 * then more of its columns are read at once; numbers of b and of a that are packed at once; rows
 * whose sums are kept meanwhile.
 */
enum {
    TERMS = 2048,
    PASS = 1024,
    OF_B = 1 << 19,
    OF_A = 1 << 18,
    OF_ROWS = 1 << 16, /* where a does not lie across */
    KEPT_ROWS = 1024,
    LYING = 384, /* the most terms of rows of a that are not packed: more share sets of the cache */
    FEW_ROWS = 8,
    FEW_COLUMNS = 4
};

/* A product, and the part of it that is being made. */
typedef struct part {
    const sherd__product *p;
    const uint16_t *a, *b, *bias; /* bias: NULL = none */
    void *c;
    int64_t a_row, b_row, c_row;
    int64_t pass, side_b, side_a, kept; /* terms, columns, and rows at once */
    uint16_t *to_a, *to_b;              /* tiles [side / 32][pass / 32][2] */
    float *sums, *block;                /* [kept,side_b], two [32,32] */
    int64_t i, j, d, rows, cols, terms;
    tile_pace pace;
    const sherd__quantized *q; /* in place of b: its rows from `lo` on; NULL: b */
    int64_t lo;
    uint16_t *room; /* [SHERD__QUANTIZED_ROOM], for them */
} part;

/* A function of the shape alone: ranks that compute the same must get the same bits. */
static bool is_slim(const sherd__product *p)
{
    return p->m <= FEW_ROWS || p->n <= FEW_COLUMNS || p->k == 0;
}

static int64_t side_of(int64_t n, int64_t pass, int64_t room)
{
    return sherd__min(blocks_of(n) * BLOCK, sherd__max(room / pass / BLOCK, 1) * BLOCK);
}

static bool is_wide(const part *x)
{
    return x->p->result == SHERD_F32;
}

static part part_of(const sherd__product *p)
{
    bool once = p->k <= (p->ta ? PASS : TERMS);
    part x = {.p = p, .pass = sherd__max(blocks_of(once ? p->k : PASS), 1) * BLOCK};

    x.a_row = product_a_row(p);
    x.b_row = product_b_row(p);
    x.c_row = product_c_row(p);
    x.side_b = side_of(p->n, x.pass, OF_B);
    x.side_a = side_of(p->m, x.pass, p->ta ? OF_A : OF_ROWS);
    x.kept = p->k <= x.pass ? p->m : sherd__min(p->m, KEPT_ROWS);
    return x;
}

static int64_t sums_of(const part *x)
{
    return is_wide(x) || x->p->k <= x->pass ? 0 : x->kept * x->side_b;
}

static int64_t workspace_of(const sherd__product *p)
{
    const part x = part_of(p);
    int64_t other = sherd__bf16_by_f32.product_workspace(p);

    if (is_slim(p))
        return other;
    return sherd__max(other, 4 * SHERD__LINE + 2 * (x.side_a + x.side_b) * x.pass +
                                 4 * (sums_of(&x) + 2 * SQUARE));
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Rows whose terms are neighbours, as they are. */
static void pack_along(uint16_t *to, const lying_rows *m)
{
    int64_t deep = blocks_of(m->width);

    for (int64_t i = 0; i < blocks_of(m->rows) * BLOCK; i++) {
        uint16_t *at = to + i / BLOCK * deep * SQUARE + i % BLOCK * BLOCK;
        for (int64_t x = 0; x < m->width; x += BLOCK, at += SQUARE)
            store_words(at, load_row(m, i, x));
    }
}

/* 32 terms of 32 columns, as pairs, turned. */
static void turn_block(uint16_t *to, const uint16_t *from, int64_t row)
{
    enum { QUARTER = 8 }; /* words */
    int64_t step = QUARTER * row * (int64_t)sizeof *from;
    vi low[AT_ONCE], high[AT_ONCE];

    for (int64_t c = 0; c < BLOCK; c += QUARTER, from += QUARTER, to += QUARTER * BLOCK) {
        for (int i = 0; i < AT_ONCE; i++) { /* pairs i, 4 + i, ... */
            vi first = v_load_quarters(from + (2 * i) * row, step);
            vi second = v_load_quarters(from + (2 * i + 1) * row, step);
            low[i] = _mm512_unpacklo_epi16(first, second);
            high[i] = _mm512_unpackhi_epi16(first, second);
        }
        v_turn4(low);
        v_turn4(high);
        for (int64_t i = 0; i < AT_ONCE; i++) {
            store_words(to + i * BLOCK, low[i]);
            store_words(to + (AT_ONCE + i) * BLOCK, high[i]);
        }
    }
}

/* Whether 32 rows and columns from there on are all there. */
static bool is_whole(const lying_rows *m, int64_t i, int64_t x)
{
    return i + BLOCK <= m->rows && x + BLOCK <= m->width;
}

/* A row for each term: pairs of terms, turned for the left operand. */
INLINE void pack_across(bool turned, uint16_t *to, const lying_rows *m)
{
    int64_t deep = blocks_of(m->rows);
    vi low[SIDE], high[SIDE];

    for (int64_t i = 0; i < deep; i++)
        for (int64_t x = 0; x < blocks_of(m->width); x++) {
            uint16_t *at = to + (x * deep + i) * SQUARE;
            if (turned && is_whole(m, i * BLOCK, x * BLOCK)) {
                turn_block(at, m->at + i * BLOCK * m->stride + x * BLOCK, m->stride);
                continue;
            }
            load_pairs(low, high, m, i * BLOCK, x * BLOCK);
            if (turned) {
                turn_rows(low);
                turn_rows(high);
            }
            store_tile(at, low);
            store_tile(at + TILE, high);
        }
}

/* Whether rows of a are rows of tiles as they lie. */
static bool is_lying(const part *x)
{
    return !x->p->ta && x->terms % BLOCK == 0 && x->terms <= LYING;
}

static void pack_a(const part *x, int64_t i, int64_t rows)
{
    if (is_lying(x) && rows % BLOCK == 0)
        return;
    if (x->p->ta)
        pack_across(true, x->to_a,
                    &(lying_rows){x->a + x->d * x->a_row + i, x->a_row, x->terms, rows});
    else
        pack_along(x->to_a, &(lying_rows){x->a + i * x->a_row + x->d, x->a_row, rows, x->terms});
}

static void pack_b(const part *x)
{
    if (x->q)
        sherd__quantized_pack(x->q, x->lo + x->j, x->cols, x->d, x->terms, x->to_b, x->room);
    else if (x->p->tb)
        pack_turned_lines(
            x->to_b, &(lying_rows){x->b + x->j * x->b_row + x->d, x->b_row, x->cols, x->terms}, 0);
    else
        pack_across(false, x->to_b,
                    &(lying_rows){x->b + x->d * x->b_row + x->j, x->b_row, x->terms, x->cols});
}

/* ---- results --------------------------------------------------------------------------------- */

/* Two vectors of up to 32 numbers. */
INLINE void load_places(bool wide, vf y[2], const void *from, int64_t at, __mmask32 m)
{
    if (wide) {
        y[0] = v_load_part((const float *)from + at, (vm)m);
        y[1] = v_load_part((const float *)from + at + SIDE, (vm)(m >> SIDE));
    } else {
        uint16_t words[BLOCK];
        store_words(words, _mm512_maskz_loadu_epi16(m, (const uint16_t *)from + at));
        y[0] = v_load_bf16(words);
        y[1] = v_load_bf16(words + SIDE);
    }
}

INLINE void store_places(bool wide, void *to, int64_t at, const vf y[2], __mmask32 m)
{
    if (wide) {
        v_store_part((float *)to + at, (vm)m, y[0]);
        v_store_part((float *)to + at + SIDE, (vm)(m >> SIDE), y[1]);
    } else {
        _mm512_mask_storeu_epi16((uint16_t *)to + at, m, round_words(y[0], y[1]));
    }
}

/* to = a block + bias + from, where those are. */
INLINE void finish_rows(bool wide_to, bool wide_from, bool adds, const float *sum, void *to,
                        int64_t to_row, const void *from, int64_t from_row, int64_t rows,
                        __mmask32 m, const vf bias[2])
{
    for (int64_t r = 0; r < rows; r++, sum += BLOCK) {
        vf y[2] = {v_add(v_load(sum), bias[0]), v_add(v_load(sum + SIDE), bias[1])};
        if (adds) {
            vf more[2];
            load_places(wide_from, more, from, r * from_row, m);
            y[0] = v_add(y[0], more[0]);
            y[1] = v_add(y[1], more[1]);
        }
        store_places(wide_to, to, r * to_row, y, m);
    }
}

/* The block of results from row i and column j on, both within the part that is kept. */
static void finish(const part *x, const float *block, int64_t i, int64_t j)
{
    bool first = x->d == 0, last = x->d + x->terms == x->p->k, wide = is_wide(x);
    int64_t rows = sherd__min(BLOCK, x->rows - i), at = (x->i + i) * x->c_row + x->j + j;
    __mmask32 m = words_part(x->cols - j);
    void *c = wide ? (void *)((float *)x->c + at) : (void *)((uint16_t *)x->c + at);
    float *sums = sums_of(x) ? x->sums + i * x->side_b + j : NULL;
    vf bias[2] = {v_zero(), v_zero()};

    if (x->bias && first)
        load_places(false, bias, x->bias, x->j + j, m);
    if (wide && (x->p->adds || !first))
        finish_rows(true, true, true, block, c, x->c_row, c, x->c_row, rows, m, bias);
    else if (wide)
        finish_rows(true, true, false, block, c, x->c_row, NULL, 0, rows, m, bias);
    else if (first && last && x->p->adds)
        finish_rows(false, false, true, block, c, x->c_row, c, x->c_row, rows, m, bias);
    else if (first && last)
        finish_rows(false, false, false, block, c, x->c_row, NULL, 0, rows, m, bias);
    else if (last)
        finish_rows(false, true, true, block, c, x->c_row, sums, x->side_b, rows, m, bias);
    else if (!first)
        finish_rows(true, true, true, block, sums, x->side_b, sums, x->side_b, rows, m, bias);
    else if (x->p->adds)
        finish_rows(true, false, true, block, sums, x->side_b, c, x->c_row, rows, m, bias);
    else
        finish_rows(true, false, false, block, sums, x->side_b, NULL, 0, rows, m, bias);
}

/* The n-th block of results of the rows from i on. */
static void finish_block(const part *x, int64_t i, int64_t n, int64_t across)
{
    finish(x, x->block + n % 2 * SQUARE, i + n / across * BLOCK, n % across * BLOCK);
}

/* ---- the product ----------------------------------------------------------------------------- */

/* Ask for where the block's results go to. */
static void ask_for(const part *x, int64_t i, int64_t j)
{
    uintptr_t bytes = is_wide(x) ? sizeof(float) : sizeof *x->b;
    uintptr_t at = (uintptr_t)x->c + bytes * (uintptr_t)((x->i + i) * x->c_row + x->j + j);

    for (int64_t r = 0; r < BLOCK; r++, at += bytes * (uintptr_t)x->c_row) {
        __builtin_prefetch((const void *)at, 1, 3);
        if (is_wide(x))
            __builtin_prefetch((const void *)(at + SHERD__LINE), 1, 3);
    }
}

/* Ask for the j-th part of the rows of a below row i, of as many as there are blocks across. */
static void ask_rows(const part *x, int64_t i, int64_t j, int64_t across)
{
    for (int64_t r = i + j * BLOCK / across; r < i + (j + 1) * BLOCK / across; r++) {
        const uint16_t *at = x->a + sherd__min(r, x->p->m - 1) * x->a_row + x->d;
        for (int64_t d = 0; d < x->terms; d += BLOCK)
            __builtin_prefetch(at + d, 0, 2);
    }
}

/* Rows of a from row i on, of the part that is kept, with those that are packed; 32 of them need
 * not be, if they are whole tiles as they lie. */
static tiles rows_of(const part *x, int64_t i, int64_t packed, int64_t *bytes)
{
    int64_t size = sizeof *x->a;

    if (is_lying(x) && i + BLOCK <= x->rows) {
        *bytes = x->a_row * size;
        return (tiles){x->a + (x->i + i) * x->a_row + x->d, .second = SIDE * x->a_row, BLOCK};
    }
    *bytes = BLOCK * size;
    return (tiles){x->to_a + packed * blocks_of(x->terms) * BLOCK, .second = TILE, .next = SQUARE};
}

/* A block of results, from row i and column j of the part on, whose rows of a are the packed ones
 * from `packed` on. */
static void multiply_block(const part *x, bool halves, float *to, int64_t i, int64_t j,
                           int64_t packed)
{
    int64_t deep = blocks_of(x->terms), bytes;
    tiles a = rows_of(x, i, packed, &bytes);
    tiles b = {x->to_b + j * deep * BLOCK, .second = TILE, .next = SQUARE};

    ask_for(x, i, j);
    if (halves) {
        multiply_lying(true, false, to, BLOCK, deep, a, bytes, b);
        a.at += a.second;
        multiply_lying(true, false, to + SIDE * BLOCK, BLOCK, deep, a, bytes, b);
    } else {
        multiply_lying(false, false, to, BLOCK, deep, a, bytes, b);
    }
}

/* `rows` rows of a, from row i of the part on, times the packed columns. A block is finished while
 * the next one is multiplied. */
static void multiply_rows(part *x, int64_t i, int64_t rows)
{
    int64_t across = blocks_of(x->cols), n = 0;

    for (int64_t r = 0; r < rows; r += BLOCK) {
        bool halves = takes_halves(&x->pace);
        uint64_t begin = __builtin_ia32_rdtsc();
        for (int64_t j = 0; j < across; j++, n++) {
            if (!x->p->ta)
                ask_rows(x, x->i + i + r + BLOCK, j, across);
            multiply_block(x, halves, x->block + n % 2 * SQUARE, i + r, j * BLOCK, r);
            if (n > 0)
                finish_block(x, i, n - 1, across);
        }
        keep_pace(&x->pace, begin);
    }
    finish_block(x, i, n - 1, across);
}

/* Some terms of the part that is kept. */
static void multiply_pass(part *x)
{
    pack_b(x);
    for (int64_t i = 0; i < x->rows; i += x->side_a) {
        int64_t rows = sherd__min(x->side_a, x->rows - i);
        pack_a(x, x->i + i, rows);
        multiply_rows(x, i, rows);
    }
}

static void multiply(part *x)
{
    const sherd__product *p = x->p;

    for (x->j = 0; x->j < p->n; x->j += x->side_b)
        for (x->i = 0; x->i < p->m; x->i += x->kept) {
            x->rows = sherd__min(x->kept, p->m - x->i);
            x->cols = sherd__min(x->side_b, p->n - x->j);
            for (x->d = 0; x->d < p->k; x->d += x->pass) {
                x->terms = sherd__min(x->pass, p->k - x->d);
                multiply_pass(x);
            }
        }
}

static void product(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace)
{
    part x = part_of(p);
    char *space = workspace;

    if (is_slim(p) || !sherd__may_use_amx()) {
        sherd__bf16_by_f32.product(p, c, a, b, bias, workspace);
        return;
    }
    x.a = a;
    x.b = b;
    x.c = c;
    x.bias = p->bias ? bias : NULL;
    x.to_a = product_take(&space, 2 * x.side_a * x.pass);
    x.to_b = product_take(&space, 2 * x.side_b * x.pass);
    x.block = product_take(&space, 2 * 4 * SQUARE);
    x.sums = product_take(&space, 4 * sums_of(&x));
    begin_products();
    multiply(&x);
    end_products();
}

static sherd__product panel_of(const sherd__quantized *q, int64_t n, int64_t some)
{
    return (sherd__product){
        .dtype = SHERD_BF16, .result = SHERD_F32, .tb = true, .m = n, .n = some, .k = q->cols};
}

int64_t sherd__quantized_panel_workspace(const sherd__quantized *q, int64_t n, int64_t some)
{
    const sherd__product p = panel_of(q, n, some);
    const part x = part_of(&p);

    return 4 * SHERD__LINE + 2 * (x.side_a + x.side_b) * x.pass + 4 * 2 * SQUARE +
           2 * SHERD__QUANTIZED_ROOM;
}

void sherd__quantized_panel(const sherd__quantized *q, int64_t lo, int64_t some, int64_t n,
                            float *c, const uint16_t *x, void *workspace)
{
    const sherd__product p = panel_of(q, n, some);
    part y = part_of(&p);
    char *space = workspace;

    y.a = x;
    y.c = c;
    y.q = q;
    y.lo = lo;
    y.to_a = product_take(&space, 2 * y.side_a * y.pass);
    y.to_b = product_take(&space, 2 * y.side_b * y.pass);
    y.block = product_take(&space, 2 * 4 * SQUARE);
    y.room = product_take(&space, 2 * SHERD__QUANTIZED_ROOM);
    begin_products();
    multiply(&y);
    end_products();
}

void sherd__install_product_amx(sherd__kernels *bf16)
{
    bf16->product = product;
    bf16->product_workspace = workspace_of;
}

#endif
