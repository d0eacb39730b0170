/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of f32 in the tiles of AMX, which multiply bf16. A number of f32 is the sum of
 * three of bf16: its first, second and last eight bits. Of the nine products of parts the three
 * smallest are below the rounding of f32; the other six are added in f32. That is as exact as a
 * chain of multiply-adds (docs/decisions/177), and more than twice as fast.
 *
 * Columns of b are packed in parts as long as the second cache has room for them, then rows of a, a
 * block or a few at a time. More terms than a pass has are added up in c. Parts have the range of
 * f32 but not its subnormal numbers, and tiles leave those out: while packing we look how large
 * each row of a and each column of b is, and what tiles would lose, or turn into NaN, goes to
 * multiply-adds.
 */
#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include "amx.h"
#include "parts_f32.h"
#include "product_room.h"
#include "kernels/sums.h"

/*
 * Terms of a pass; numbers of b that are packed at once; what is worth it, see `fits`; products of
 * parts of a block, for each 32 terms: its turns, in which other work is done.
 */
enum { PASS = 512, OF_B = 1 << 17, FEW_TERMS = 64, PAYS = 100, TURNS = 6 };

/* Exponents as f32 holds them: the shift, that of 1, and the least of a product. */
enum { EXPONENT = 23, ONE = 127, LEAST_PRODUCT = ONE - 100 };

/* A block of sums that is not where it belongs yet. */
typedef struct late_rows {
    float *sum; /* [rows,32] */
    float *c;
    const float *bias; /* NULL = none */
    int64_t rows, row, cols;
    bool adds;
} late_rows;

/* Rows of c that are asked for. */
typedef struct asked_rows {
    const float *at;
    int64_t left;
} asked_rows;

/* A product, and the columns and terms of it that are being made. */
typedef struct part {
    const sherd__product *p;
    const float *a, *b, *bias; /* bias: NULL = none */
    float *c;
    int64_t a_row, b_row, c_row;
    int64_t pass, side_b; /* terms, and columns at once */
    uint16_t *to_a;       /* [2][2][pass / 32][PARTS][16,32] */
    uint16_t *to_b;       /* [side / 32][pass / 32][2][PARTS][16,32] */
    float *blocks;        /* [2][32,32] */
    float *block;         /* the next of them */
    int64_t j, d, cols, terms;
    range of_b;
    uint16_t *rows_at; /* what is multiplied, in to_a */
    left_rows left;    /* the rows after them */
    late_rows late;    /* the block before */
    asked_rows asked;
    int64_t strips, rows; /* of `left`; of `late` and `asked`: what is done in a turn */
    tile_pace pace;
} part;

static int64_t side_of(int64_t n, int64_t pass)
{
    int64_t most = sherd__min(sherd__max(OF_B / pass / BLOCK, 1) * BLOCK, MOST);

    return sherd__min(blocks_of(n) * BLOCK, most);
}

/* Of a product that fits. An a that lies across is packed for fewer terms at a time where it is
 * packed more than once otherwise. */
static part part_of(const sherd__product *p)
{
    int64_t most = p->ta && p->n > OF_B / PASS ? PASS / 2 : PASS;
    part x = {.p = p, .pass = blocks_of(sherd__min(p->k, most)) * BLOCK};

    x.a_row = product_a_row(p);
    x.b_row = product_b_row(p);
    x.c_row = product_c_row(p);
    x.side_b = side_of(p->n, x.pass);
    return x;
}

/*
 * Whether packing pays: it takes a time in m k + k n, and what is gained is in m n k. A function of
 * the shape alone: ranks that compute the same must get the same bits.
 */
static bool fits(const sherd__product *p)
{
    return p->dtype == SHERD_F32 && p->k >= FEW_TERMS && p->m * p->n >= PAYS * (p->m + p->n) &&
           !sherd__is_long_sum(p->m, p->n, p->k);
}

static bool product_fits(const sherd__product *p)
{
    return fits(p) || sherd__f32_by_fma.product_fits(p);
}

static int64_t workspace_of(const sherd__product *p)
{
    if (!fits(p))
        return sherd__f32_by_fma.product_workspace(p);
    const part x = part_of(p);

    return 4 * SHERD__LINE + 2 * PARTS * (2 * BLOCK + x.side_b) * x.pass + 8 * SQUARE;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Begin with 32 rows of a, from row i on; those after the last are none. */
static void begin_left(part *x, int64_t i, uint16_t *to)
{
    bool across = x->p->ta;
    int64_t rows = sherd__max(sherd__min(BLOCK, x->p->m - i), 0), terms = rows ? x->terms : 0;
    int64_t pieces = across ? BLOCK / PIECE : BLOCK;
    lying_numbers m = {x->a + i * x->a_row + x->d, x->a_row, rows, terms};

    if (across)
        m = (lying_numbers){x->a + x->d * x->a_row + i, x->a_row, terms, rows};
    begin_rows(&x->left, &m, across, to);
    x->strips = 1 + (pieces - 1) / (TURNS * blocks_of(x->cols));
}

/* Rows of a from row i on, which were packed while those before them were multiplied. */
static range take_left(part *x, int64_t i)
{
    if (i == 0)
        begin_left(x, 0, x->to_a);
    range of = pack_rest(&x->left);

    x->rows_at = x->left.to;
    begin_left(x, i + BLOCK, x->to_a + (x->rows_at == x->to_a ? PARTS * BLOCK * x->pass : 0));
    return of;
}

static range pack_b(const part *x)
{
    if (x->p->tb)
        return pack_right_rows(
            x->to_b, &(lying_numbers){x->b + x->j * x->b_row + x->d, x->b_row, x->cols, x->terms});
    return pack_right_terms(
        x->to_b, &(lying_numbers){x->b + x->d * x->b_row + x->j, x->b_row, x->terms, x->cols});
}

/*
 * Whether tiles give what multiply-adds would: no part of a row's or a column's largest numbers,
 * nor of their products, is subnormal, and no sum of those can overflow.
 */
static bool is_in_range(const part *x, range a, range b)
{
    uint32_t low_a = a.least >> EXPONENT, low_b = b.least >> EXPONENT;
    uint32_t high_a = a.most >> EXPONENT, high_b = b.most >> EXPONENT;
    uint32_t bits = 64 - (uint32_t)__builtin_clzll((unsigned long long)x->terms);

    return low_a >= LEAST_PRODUCT && low_b >= LEAST_PRODUCT &&
           low_a + low_b >= ONE + LEAST_PRODUCT && high_a < 2 * ONE && high_b < 2 * ONE &&
           high_a + high_b + bits + 1 < 3 * ONE;
}

/* ---- results --------------------------------------------------------------------------------- */

/* The next row of c = sum + bias + c, where those are. */
INLINE void finish_row(late_rows *late)
{
    float *c = late->c;

    for (int h = 0; h < 2; h++) {
        vm m = v_part(sherd__max(late->cols - h * SIDE, 0));
        vf y = v_load(late->sum + h * SIDE);
        if (late->bias)
            y = v_add(y, v_load_part(late->bias + h * SIDE, m));
        if (late->adds)
            y = v_add(y, v_load_part(c + h * SIDE, m));
        v_store_part(c + h * SIDE, m, y);
    }
}

static void finish_rows(part *x, int64_t most)
{
    late_rows *late = &x->late;

    for (int64_t i = 0; i < most && late->row < late->rows; i++, late->row++) {
        finish_row(late);
        late->sum += BLOCK;
        late->c += x->c_row;
    }
}

/* The block of sums that is to go to row i and column j of the part. */
static void begin_late(part *x, int64_t rows, int64_t i, int64_t j)
{
    x->late = (late_rows){.sum = x->block,
                          .c = x->c + i * x->c_row + x->j + j,
                          .bias = x->bias && x->d == 0 ? x->bias + x->j + j : NULL,
                          .rows = rows,
                          .cols = x->cols - j,
                          .adds = x->p->adds || x->d > 0};
}

/* ---- the product ----------------------------------------------------------------------------- */

typedef struct operands {
    const uint16_t *a, *b;
    int64_t second; /* from the first 16 rows of a to the others */
} operands;

INLINE void load_left(bool block, const operands *at, int64_t i, int which)
{
    const uint16_t *a = at->a + i * CELL + which * TILE;

    _tile_loadd(4, a, BLOCK * sizeof *a);
    if (block)
        _tile_loadd(5, a + at->second, BLOCK * sizeof *a);
}

INLINE void load_right(const operands *at, int64_t i, int which)
{
    const uint16_t *b = at->b + i * PARTED + which * TILE;

    _tile_loadd(6, b, BLOCK * sizeof *b);
    _tile_loadd(7, b + CELL, BLOCK * sizeof *b);
}

/* Ask for rows of where a block's results go to. */
INLINE void ask_rows(part *x)
{
    asked_rows *asked = &x->asked;

    for (int64_t i = 0; i < x->rows && asked->left > 0; i++, asked->left--) {
        __builtin_prefetch(asked->at, 1, 3);
        __builtin_prefetch(asked->at + SIDE, 1, 3);
        asked->at += x->c_row;
    }
}

/* What is done beside products of parts: a little at a time, as more is waited for. */
static __attribute__((noinline)) void do_some(part *x)
{
    for (int64_t i = 0; i < x->strips && !are_packed(&x->left); i++)
        pack_next(&x->left);
    ask_rows(x);
    finish_rows(x, x->rows);
}

INLINE void work_beside(part *x)
{
    if (!are_packed(&x->left) || x->asked.left > 0 || x->late.row < x->late.rows)
        do_some(x);
}

/* The products of two parts of 32 terms. Tiles take 32 or 64 cycles, and are at work while the
 * core does something else. */
INLINE void add_products(bool block, part *x)
{
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if (block) {
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    work_beside(x);
}

/*
 * c[32,32] or c[16,32] = a b over `deep` blocks of terms; c_row floats lie between rows of c. The
 * small products are added up first, while what each sum of 32 terms is rounded to is small: that
 * is why c is not begun with. From one pair of parts to the next only one side is loaded.
 */
INLINE void multiply_parts(bool block, part *x, float *c, int64_t c_row, int64_t deep,
                           const operands *at)
{
    __asm__ volatile("" ::: "memory"); /* loads of tiles are not seen to read memory */
    begin_sums(!block, false, c, c_row);
    for (int64_t i = 0; i < deep; i++) {
        load_left(block, at, i, 0);
        load_right(at, i, 2);
        add_products(block, x);
        load_right(at, i, 1);
        add_products(block, x);
        load_left(block, at, i, 1);
        add_products(block, x);
        load_right(at, i, 0);
        add_products(block, x);
        load_left(block, at, i, 2);
        add_products(block, x);
    }
    for (int64_t i = 0; i < deep; i++) {
        load_left(block, at, i, 0);
        load_right(at, i, 0);
        add_products(block, x);
    }
    store_sums(!block, c, c_row);
    __asm__ volatile("" ::: "memory");
}

/* Some packed rows of a, those of the product from row i on, times the packed columns. Whole
 * results to which nothing is added are made where they belong. */
INLINE void multiply_some(bool block, part *x, const uint16_t *a, int64_t i, int64_t end)
{
    int64_t deep = blocks_of(x->terms), rows = block ? BLOCK : SIDE;

    x->rows = 1 + (rows - 1) / (TURNS * deep);
    bool alone = !x->p->adds && x->d == 0 && !x->bias && i + rows <= end;

    for (int64_t j = 0; j < x->cols; j += BLOCK) {
        const operands at = {a, x->to_b + j / BLOCK * deep * PARTED, deep * CELL};
        float *c = x->c + i * x->c_row + x->j + j;
        x->asked = (asked_rows){c, sherd__min(rows, end - i)};
        if (alone && j + BLOCK <= x->cols) {
            multiply_parts(block, x, c, x->c_row, deep, &at);
        } else {
            multiply_parts(block, x, x->block, BLOCK, deep, &at);
            finish_rows(x, BLOCK);
            begin_late(x, sherd__min(rows, end - i), i, j);
            x->block = x->block == x->blocks ? x->blocks + SQUARE : x->blocks;
        }
    }
}

/* The packed rows of a, from row i on. */
static void multiply_rows(part *x, int64_t i, int64_t rows)
{
    int64_t half = blocks_of(x->terms) * CELL, end = i + rows;
    const uint16_t *a = x->rows_at;
    bool halves = takes_halves(&x->pace);
    uint64_t begin = __builtin_ia32_rdtsc();

    if (halves) {
        multiply_some(false, x, a, i, end);
        if (i + SIDE < end)
            multiply_some(false, x, a + half, i + SIDE, end);
    } else {
        multiply_some(true, x, a, i, end);
    }
    if (rows == BLOCK) /* fewer say nothing of the others */
        keep_pace(&x->pace, begin);
}

/* The same rows by multiply-adds. */
static void multiply_plain(const part *x, int64_t i, int64_t rows)
{
    const sherd__product *p = x->p;
    float *c = x->c + i * x->c_row + x->j;
    bool adds = p->adds || x->d > 0, begins = x->bias && x->d == 0;

    for (int64_t r = 0; r < rows && begins; r++)
        for (int64_t j = 0; j < x->cols; j++)
            c[r * x->c_row + j] = x->bias[x->j + j] + (adds ? c[r * x->c_row + j] : 0);
    sherd__f32_by_fma.gemm(p->ta, p->tb, rows, x->cols, x->terms, 1,
                           x->a + (p->ta ? x->d * x->a_row + i : i * x->a_row + x->d), x->a_row,
                           x->b + (p->tb ? x->j * x->b_row + x->d : x->d * x->b_row + x->j),
                           x->b_row, adds || begins ? 1 : 0, c, x->c_row);
}

static void multiply(part *x)
{
    const sherd__product *p = x->p;

    for (x->j = 0; x->j < p->n; x->j += x->side_b) {
        x->cols = sherd__min(x->side_b, p->n - x->j);
        for (x->d = 0; x->d < p->k; x->d += x->pass) {
            x->terms = sherd__min(x->pass, p->k - x->d);
            x->of_b = pack_b(x);
            for (int64_t i = 0; i < p->m; i += BLOCK) {
                int64_t rows = sherd__min(BLOCK, p->m - i);
                if (is_in_range(x, take_left(x, i), x->of_b)) {
                    multiply_rows(x, i, rows);
                } else {
                    finish_rows(x, BLOCK);
                    multiply_plain(x, i, rows);
                }
            }
        }
    }
    finish_rows(x, BLOCK);
}

static void product(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace)
{
    char *space = workspace;

    if (!fits(p)) {
        sherd__f32_by_fma.product(p, c, a, b, bias, workspace);
        return;
    }
    part x = part_of(p);
    x.a = a;
    x.b = b;
    x.c = c;
    x.bias = p->bias ? bias : NULL;
    x.cols = p->n;
    x.terms = p->k;
    if (!sherd__may_use_amx()) {
        multiply_plain(&x, 0, p->m);
        return;
    }
    x.to_a = product_take(&space, 2 * PARTS * 2 * BLOCK * x.pass);
    x.to_b = product_take(&space, 2 * PARTS * x.side_b * x.pass);
    x.block = x.blocks = product_take(&space, 8 * SQUARE);
    begin_products();
    multiply(&x);
    end_products();
}

void sherd__install_f32_product_amx(sherd__kernels *f32)
{
    f32->product = product;
    f32->product_workspace = workspace_of;
    f32->product_fits = product_fits;
}

#endif
