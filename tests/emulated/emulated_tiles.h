/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AMX (see immintrin.h): eight tiles a thread, of up to 16 rows of 64 bytes. What a CPU would
 * answer by a fault ends the program: tiles that are not configured, shapes that do not fit.
 */
#ifndef SHERD_EMULATED_TILES_H
#define SHERD_EMULATED_TILES_H

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps

enum { EMULATED_TILES = 8, EMULATED_ROWS = 16, EMULATED_BYTES = 64 };

typedef struct emulated_tile {
    int rows, bytes;
    union {
        uint16_t words[EMULATED_ROWS][EMULATED_BYTES / 2];
        float f32[EMULATED_ROWS][EMULATED_BYTES / 4];
    } at;
} emulated_tile;

static _Thread_local emulated_tile emulated_tiles[EMULATED_TILES];

static inline void emulated_tile_release(void)
{
    memset(emulated_tiles, 0, sizeof emulated_tiles);
}
#define _tile_release emulated_tile_release

/* 64 bytes: palette, first row, zeroes; 16 lengths of rows, of which 8 count; 16 numbers of rows. */
static inline void emulated_tile_loadconfig(const void *from)
{
    unsigned char c[EMULATED_BYTES];

    memcpy(c, from, sizeof c);
    emulated_tile_release();
    emulated_fault(c[0] != 1 || c[1] != 0, "ldtilecfg: palette or first row");
    for (int i = 2; i < 16; i++)
        emulated_fault(c[i] != 0, "ldtilecfg: what is reserved is not 0");
    for (int i = 0; i < 16; i++) {
        int bytes = c[16 + 2 * i] | c[17 + 2 * i] << 8, rows = c[48 + i];
        emulated_fault(i >= EMULATED_TILES && (bytes || rows), "ldtilecfg: a tile too many");
        emulated_fault(bytes > EMULATED_BYTES || rows > EMULATED_ROWS || !bytes != !rows,
                       "ldtilecfg: the shape of a tile");
        if (i >= EMULATED_TILES)
            continue;
        emulated_tiles[i].rows = rows;
        emulated_tiles[i].bytes = bytes;
    }
}
#define _tile_loadconfig emulated_tile_loadconfig

static inline emulated_tile *emulated_tile_of(int i)
{
    emulated_fault(i < 0 || i >= EMULATED_TILES || !emulated_tiles[i].rows,
                   "a tile that is not configured");
    return &emulated_tiles[i];
}

static inline void emulated_tile_zero(int i)
{
    memset(&emulated_tile_of(i)->at, 0, sizeof emulated_tile_of(i)->at);
}
#define _tile_zero emulated_tile_zero

static inline void emulated_tile_loadd(int i, const void *from, int64_t stride)
{
    emulated_tile *t = emulated_tile_of(i);

    emulated_tile_zero(i);
    for (int r = 0; r < t->rows; r++)
        memcpy(t->at.words[r], (const char *)from + r * stride, (size_t)t->bytes);
}
#define _tile_loadd emulated_tile_loadd

static inline void emulated_tile_stored(int i, void *to, int64_t stride)
{
    emulated_tile *t = emulated_tile_of(i);

    for (int r = 0; r < t->rows; r++)
        memcpy((char *)to + r * stride, t->at.words[r], (size_t)t->bytes);
}
#define _tile_stored emulated_tile_stored

/* Numbers of bf16 at even or odd places of a row; what is subnormal is 0. */
static inline void emulated_spread(float *to, const uint16_t *row, int odd)
{
    for (int i = 0; i < 16; i++) {
        uint32_t word = row[2 * i + odd];
        to[i] = emulated_of_bits((word & 0x7F80u ? word : word & 0x8000u) << 16);
    }
}

/* to += x y, with sums that are never subnormal. */
static inline void emulated_add_products(float *to, float x, const float *y)
{
    for (int i = 0; i < 16; i += 8)
        _mm256_storeu_ps(to + i,
                         emulated_flush(_mm256_fmadd_ps(_mm256_set1_ps(x), _mm256_loadu_ps(y + i),
                                                        _mm256_loadu_ps(to + i))));
}

/*
 * c += a b, whose rows are pairs. Products of first numbers and of second ones have a sum each,
 * from 0; both are added, and then c. Rounding and subnormal numbers as in emulated_bf16.h.
 */
static inline void emulated_tile_dpbf16ps(int to, int left, int right)
{
    emulated_tile *c = emulated_tile_of(to), *a = emulated_tile_of(left);
    emulated_tile *b = emulated_tile_of(right);
    float even[16][16], odd[16][16];

    emulated_fault(to == left || to == right || left == right, "tdpbf16ps: a tile twice");
    emulated_fault(a->bytes % 4 || b->bytes % 4 || c->rows != a->rows || c->bytes != b->bytes ||
                       a->bytes / 4 != b->rows,
                   "tdpbf16ps: shapes differ");
    for (int k = 0; k < b->rows; k++) {
        emulated_spread(even[k], b->at.words[k], 0);
        emulated_spread(odd[k], b->at.words[k], 1);
    }
    for (int m = 0; m < a->rows; m++) {
        float x[2][16], sum[2][16] = {{0}};
        emulated_spread(x[0], a->at.words[m], 0);
        emulated_spread(x[1], a->at.words[m], 1);
        for (int k = 0; k < b->rows; k++) {
            emulated_add_products(sum[0], x[0][k], even[k]);
            emulated_add_products(sum[1], x[1][k], odd[k]);
        }
        for (int n = 0; n < 16; n += 8) {
            __m256 both = _mm256_add_ps(_mm256_loadu_ps(sum[0] + n), _mm256_loadu_ps(sum[1] + n));
            __m256 old = emulated_flush(_mm256_loadu_ps(c->at.f32[m] + n));
            both = emulated_flush(_mm256_add_ps(old, emulated_flush(both)));
            _mm256_storeu_ps(c->at.f32[m] + n, both);
        }
    }
}
#define _tile_dpbf16ps emulated_tile_dpbf16ps

#endif
