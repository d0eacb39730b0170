/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 by AVX512_BF16, for CPUs that are fast at it (machine.c,
 * sherd__has_fast_pairs): the tiles of fast_tiles.inc, of pairs of numbers, where an instruction
 * adds twice as many products as of f32. Operands become pairs while they are packed. Few rows or
 * columns are a matter of reading memory, and go by way of f32. The instruction takes subnormal
 * numbers for 0.
 */
#include "fast.h"

#ifdef SHERD_HAVE_AVX512_BF16

/* Of what these files share not all is used here. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <string.h>

#include "words.h"
#include "kernels/half.h"

#define TILE_STEP           2
#define TILE_ADD(x, b, sum) add_pairs(sum, _mm512_castps_si512(x), _mm512_castps_si512(b))

#include "fast_line.inc"
#include "fast_tile.inc"
#include "fast_few_rows.inc"
#include "fast_product.inc"
#include "fast_spin.inc"

#define NAME(x)         pairs_##x
#define GET(x)          sherd__from_bf16(x)
#define PUT(x)          sherd__to_bf16(x)
#define V_LOAD(p)       v_load_bf16(p)
#define V_STORE(p, x)   v_store_bf16(p, x)
#define STORE_ROW(p, y) v_store_row_bf16(p, y)
#define ELEMENT         uint16_t
#include "fast_half_numbers.inc"
#include "fast_pairs.inc"
#include "fast_tiles.inc"

/* So few rows or columns that tiles would be empty for the most part, or that b, which is read from
 * memory, is read once. */
static bool is_slim(const sherd__product *p)
{
    return few_fits(p) || has_few_rows(p) || is_narrow(p);
}

static int64_t workspace_of(const sherd__product *p)
{
    return is_slim(p) ? sherd__bf16_by_f32.product_workspace(p) : product_workspace(p);
}

static void product(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace)
{
    if (is_slim(p)) {
        sherd__bf16_by_f32.product(p, c, a, b, bias, workspace);
        return;
    }
    product_room r = product_room_of(p, next_line(workspace));

    if (p->bias)
        pairs_widen(p->n, r.bias, bias);
    pairs_tiles_product(p, &r, c, a, b, p->bias ? r.bias : NULL);
}

double sherd__spin_pairs(int64_t rounds)
{
    return spin(rounds);
}

void sherd__install_pairs(sherd__kernels *bf16)
{
    bf16->product = product;
    bf16->product_workspace = workspace_of;
}

#endif
