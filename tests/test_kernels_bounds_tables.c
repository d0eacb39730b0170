/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every kernel of the tables (kernels.h) stays within what it is given, and computes what the plain
 * one of f64 does, integers what that of i64 does: see bounds.h. Of every dtype and every
 * instruction set that this machine has, each function of a table that the set changes. A kernel
 * that is added without a subject fails here. Some seconds.
 */
#define CHECK_PURE
#include "bounds_attention.h"
#include "bounds_elements.h"
#include "bounds_fft.h"
#include "bounds_folds.h"
#include "bounds_rows.h"
#include "check.h"
#include "vector/choose.h"
#include "vector/fast.h"

#include <stddef.h>

enum { TRIES = 80 };

#define TRY(kernel)                                             \
    {                                                           \
#kernel, offsetof(sherd__kernels, kernel), try_##kernel \
    }
/*
 * Those that read a shape only: test_kernels_bounds.c has products, attention asks for its
 * workspace.
 */
#define ASKED(kernel)                                   \
    {                                                   \
#kernel, offsetof(sherd__kernels, kernel), NULL \
    }

static const subject subjects[] = {
    TRY(widen),
    TRY(narrow),
    TRY(gemm),
    ASKED(product),
    ASKED(product_workspace),
    ASKED(product_fits),
    TRY(copy),
    TRY(reduce),
    TRY(reduce_spread),
    TRY(reduce_past),
    TRY(binary),
    TRY(binary_grad),
    TRY(unary),
    TRY(unary_grad),
    TRY(compare),
    TRY(fill),
    TRY(sum),
    TRY(fold),
    TRY(extreme),
    TRY(extreme_join),
    TRY(soft_stats),
    TRY(soft_join),
    TRY(soft),
    TRY(soft_grad_sum),
    TRY(soft_grad),
    TRY(soft_spread),
    TRY(sum_squares),
    TRY(layer_norm),
    TRY(layer_norm_grad),
    TRY(add_norm),
    TRY(add_norm_grad),
    TRY(rms_norm),
    TRY(rms_norm_grad),
    TRY(embedding),
    TRY(embedding_grad),
    TRY(dropout),
    TRY(uniform),
    TRY(normal),
    TRY(attention),
    TRY(attention_grad),
    ASKED(attention_workspace),
    TRY(attention_cached),
    ASKED(attention_cached_workspace),
    TRY(attention_join),
    TRY(cross_entropy),
    TRY(cross_entropy_join),
    TRY(cross_entropy_grad),
    TRY(adamw),
    TRY(sgd),
    TRY(fft),
    ASKED(fft_workspace),
    TRY(complex_mul),
    TRY(conv_weight),
};

/* Of sherd__attention_tiles, which is tried as a whole. */
static const subject tiles_subjects[] = {{"attention in tiles", 0, try_tiles},
                                         {"attention_grad in tiles", 0, try_tiles_grad}};

typedef void (*any_function)(void);

static any_function function_at_offset(const sherd__kernels *k, size_t offset)
{
    any_function f;

    memcpy(&f, (const char *)k + offset, sizeof f);
    return f;
}

/* Kernels are all that lies between the names and the block of convolutions. */
static void every_kernel_has_a_subject(void)
{
    size_t first = offsetof(sherd__kernels, widen), end = offsetof(sherd__kernels, conv_block);

    CHECK_EQ(first, 2 * sizeof(char *));
    CHECK_EQ(end + sizeof(int64_t), sizeof(sherd__kernels));
    for (size_t at = first; at < end; at += sizeof(any_function)) {
        int found = 0;
        for (int i = 0; i < LEN(subjects); i++)
            found += subjects[i].offset == at;
        if (!CHECK_EQ(found, 1))
            fprintf(stderr, "kernel %d of sherd__kernels\n",
                    (int)((at - first) / sizeof(any_function)));
    }
}

/* What a table has, where it is not the same function as in `known`. */
static void try_table(trial *t, const char *set, sherd_dtype dtype, const sherd__kernels *table,
                      const sherd__kernels *known)
{
    bool whole = !sherd__has_fractions(dtype);
    const sherd__kernels *paper = whole ? &sherd__whole_i64 : &sherd__ref_f64;

    t->set = set;
    t->dtype = dtype;
    t->paper_dtype = whole ? SHERD_I64 : SHERD_F64;
    for (int i = 0; i < LEN(subjects); i++) {
        any_function f = function_at_offset(table, subjects[i].offset);
        if (!f || !subjects[i].run || (known && f == function_at_offset(known, subjects[i].offset)))
            continue;
        try_subject(t, &subjects[i], TRIES / check_stride(3), table, paper);
    }
}

static void choose(sherd__kernel_set *set, const char *name)
{
    setenv("SHERD_KERNELS", name, 1);
    setenv("SHERD_GEMM", "tiles", 1);
    sherd__kernels_choose(set);
    unsetenv("SHERD_KERNELS");
    unsetenv("SHERD_GEMM");
}

static void try_fractions(trial *t)
{
    static const char *const sets[] = {"reference", "simd128", "avx2", "avx512", "avx512_bf16"};
    const bool has[] = {true, sherd__has_simd128(), sherd__has_avx2(), sherd__has_avx512(),
                        sherd__has_fast_pairs()};
    sherd__kernel_set plain, set;

    choose(&plain, "reference");
    for (int i = 0; i < LEN(sets); i++) {
        if (!has[i])
            continue;
        choose(&set, sets[i]);
        try_table(t, sets[i], SHERD_F32, &set.f32, i ? &plain.f32 : NULL);
        try_table(t, sets[i], SHERD_F64, &set.f64, i ? &plain.f64 : NULL);
        try_table(t, sets[i], SHERD_BF16, &set.bf16, i ? &plain.bf16 : NULL);
        try_table(t, sets[i], SHERD_F16, &set.f16, i ? &plain.f16 : NULL);
    }
}

/* Of bf16, and of every instruction set that has some. */
static void try_tables_of_tiles(trial *t)
{
    static const char *const sets[] = {"avx512_bf16", "amx"};
    const sherd__attention_tiles *tried = NULL;
    sherd__kernel_set set;

    t->dtype = SHERD_BF16;
    t->paper_dtype = SHERD_F64;
    for (int i = 0; i < LEN(sets); i++) {
        choose(&set, sets[i]);
        if (!set.tiles || set.tiles == tried)
            continue;
        tried = set.tiles;
        t->set = sets[i];
        for (int j = 0; j < LEN(tiles_subjects); j++)
            try_subject(t, &tiles_subjects[j], TRIES / check_stride(2), set.tiles, NULL);
    }
}

static void try_integers(trial *t)
{
    try_table(t, "reference", SHERD_I32, &sherd__whole_i32, NULL);
    try_table(t, "reference", SHERD_I64, &sherd__whole_i64, NULL);
    try_table(t, "reference", SHERD_U8, &sherd__whole_u8, NULL);
    try_table(t, "reference", SHERD_I8, &sherd__whole_i8, NULL);
    try_table(t, "reference", SHERD_BOOL, &sherd__whole_bool, NULL);
}

static void in_trial(void (*run)(trial *t))
{
    struct sigaction was[FENCE_SIGNALS];
    static trial t;

    fences_begin(was);
    if (open_trial(&t))
        run(&t);
    close_trial(&t);
    fences_end(was);
}

static void kernels_of_fractions_stay_within_bounds(void)
{
    in_trial(try_fractions);
}

static void kernels_of_integers_stay_within_bounds(void)
{
    in_trial(try_integers);
}

static void attention_in_tiles_stays_within_bounds(void)
{
    in_trial(try_tables_of_tiles);
}

static const check_test tests[] = {
    {TEST(every_kernel_has_a_subject)},
    {TEST(kernels_of_integers_stay_within_bounds)},
    {TEST(kernels_of_fractions_stay_within_bounds)},
    {TEST(attention_in_tiles_stays_within_bounds)},
};
CHECK_MAIN(tests)
