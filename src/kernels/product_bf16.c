/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of bf16 by AVX512_BF16, for CPUs that are fast at it (choose.c,
 * sherd__has_fast_pairs): the tiles of fast_tiles.inc, of pairs of numbers, where an instruction
 * adds twice as many products as of f32. Operands become pairs while they are packed. Few rows or
 * columns are a matter of reading memory, and go by way of f32. The instruction takes subnormal
 * numbers for 0.
 */
#include "fast.h"

#ifdef __AVX512BF16__

/* Of what these files share not all is used here. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include <string.h>

#include "half.h"
#include "vector_avx512.h"

#define TILE_STEP           2
#define TILE_ADD(x, b, sum) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(b))

#include "fast_line.inc"
#include "fast_tile.inc"
#include "fast_few_rows.inc"
#include "fast_product.inc"

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
    return is_slim(p) ? sherd__bf16_by_f32.product_workspace(p)
                      : (LINE + product_room_of(p, NULL).elements) * (int64_t)sizeof(float);
}

static void product(const sherd__product *p, void *c, const void *a, const void *b,
                    const void *bias, void *workspace)
{
    if (is_slim(p)) {
        sherd__bf16_by_f32.product(p, c, a, b, bias, workspace);
        return;
    }
    product_room r = product_room_of(p, next_line(workspace));
    product_part x = {.p = p,
                      .r = &r,
                      .c = {c, product_c_row(p), p->result == SHERD_F32},
                      .a = p->k ? a : workspace, /* may be NULL without any depth */
                      .b = p->k ? b : workspace,
                      .bias = p->bias ? r.bias : NULL};

    if (p->bias)
        pairs_widen(p->n, r.bias, bias);
    (p->ta ? pairs_turned_product : pairs_block_product)(&x);
}

/* As spin in fast_body.inc; the latency is 6 cycles, one a cycle or two. */
double sherd__spin_pairs(int64_t rounds)
{
    enum { CHAINS = 12 };
    vf x[CHAINS], a = v_as_floats(_mm512_set1_epi16(0x3F80)), b = v_as_floats(v_int(0)),
                  total = v_zero();

    for (int i = 0; i < CHAINS; i++)
        x[i] = v_set((float)i);
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < CHAINS; i++)
            x[i] = TILE_ADD(a, b, x[i]);
    for (int i = 0; i < CHAINS; i++)
        total = v_add(total, x[i]);
    return 2.0 * TILE_STEP * CHAINS * W * (double)rounds + (v_sum(total) < 0 ? 1 : 0);
}

void sherd__install_pairs(sherd__kernels *bf16)
{
    bf16->product = product;
    bf16->product_workspace = workspace_of;
}

#endif
