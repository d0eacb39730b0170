/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of layers, and those of no table, stay within what they are given, and compute what
 * those of f64 (or i64) do: see bounds.h. There is one version of each, which all instruction sets
 * share, but for norms over sets of 16 bits. A kernel that is added to a table without a subject fails here. Some seconds.
 */
#define CHECK_PURE
#include "bounds_layers.h"
#include "bounds_lines.h"
#include "check.h"
#include "fast_sets.h"
#include "vector/bodies.h"

enum { TRIES = 150 };

/* Of a table of so many bytes there is a subject for each pointer, in order. */
typedef struct family {
    size_t bytes;
    int count;
    const subject *subject;
} family;

#define TRY(type, kernel, run)               \
    {                                        \
#kernel, offsetof(type, kernel), run \
    }

static const subject norms[] = {
    TRY(sherd__norm_kernels, add_up, try_add_up),
    TRY(sherd__norm_kernels, add_products, try_add_products),
    TRY(sherd__norm_kernels, spread, try_spread),
    TRY(sherd__norm_kernels, gradient, try_gradient),
};
static const subject along_rows[] = {
    TRY(sherd__along_kernels, spread_along, try_spread_along),
    TRY(sherd__along_kernels, add_along, try_add_along),
    TRY(sherd__along_kernels, gradient_along, try_gradient_along),
};
static const subject layers[] = {
    TRY(sherd__layer_kernels, entropy, try_entropy),
    TRY(sherd__layer_kernels, entropy_join, try_entropy_join),
    TRY(sherd__layer_kernels, entropy_grad, try_entropy_grad),
    TRY(sherd__layer_kernels, entropy_subtract, try_entropy_subtract),
    TRY(sherd__layer_kernels, entropy_target_grad, try_entropy_target_grad),
    TRY(sherd__layer_kernels, rotate, try_rotate),
};
static const subject neighbours[] = {
    TRY(sherd__neighbours_kernels, forward, try_neighbours_forward),
    TRY(sherd__neighbours_kernels, backward, try_neighbours_backward),
    TRY(sherd__neighbours_kernels, products, try_neighbours_products),
};
static const subject pools[] = {
    TRY(sherd__pool_kernels, forward, try_pool_forward),
    TRY(sherd__pool_kernels, backward, try_pool_backward),
};
static const subject convs[] = {
    TRY(sherd__conv_kernels, forward, try_conv_forward),
    TRY(sherd__conv_kernels, backward_x, try_conv_backward_x),
    TRY(sherd__conv_kernels, backward_w, try_conv_backward_w),
};
static const subject taps[] = {
    TRY(sherd__taps_kernels, forward, try_taps_forward),
    TRY(sherd__taps_kernels, backward, try_taps_backward),
};

#define FAMILY(type, list)            \
    {                                 \
        sizeof(type), LEN(list), list \
    }

static const family norm_family = FAMILY(sherd__norm_kernels, norms);
static const family along_family = FAMILY(sherd__along_kernels, along_rows);
static const family layer_family = FAMILY(sherd__layer_kernels, layers);
static const family neighbour_family = FAMILY(sherd__neighbours_kernels, neighbours);
static const family pool_family = FAMILY(sherd__pool_kernels, pools);
static const family conv_family = FAMILY(sherd__conv_kernels, convs);
static const family taps_family = FAMILY(sherd__taps_kernels, taps);

/* Of every type; then of those that compute; then of those that have an order; of f32
 * and f64. */
static const subject moving[] = {
    {"gather", 0, try_gather}, {"gather_last", 0, try_gather_last}, {"scatter", 0, try_scatter},
    {"cast", 0, try_cast},     {"copy_box", 0, try_copy_box},       {"pick_box", 0, try_pick_box},
};
static const subject adding[] = {
    {"scatter_add", 0, try_scatter_add},
    {"running_sum", 0, try_running_sum},
    {"order", 0, try_order},
    {"running_product", 0, try_running_product},
    {"running_most", 0, try_running_most},
};
static const subject along[] = {
    {"running_log_sum", 0, try_running_log_sum},
    {"recurrence", 0, try_recurrence},
    {"fold", 0, try_fold},
    {"cross", 0, try_cross},
};
static const subject plain[] = {
    {"find", 0, try_find},     {"find_among", 0, try_find_among},   {"draw", 0, try_draw},
    {"stream", 0, try_stream}, {"stream_rows", 0, try_stream_rows},
};

static void every_kernel_has_a_subject(void)
{
    const family *const all[] = {&norm_family, &along_family, &layer_family, &neighbour_family,
                                 &pool_family, &conv_family,  &taps_family};

    for (int i = 0; i < LEN(all); i++) {
        CHECK_EQ((size_t)all[i]->count * sizeof(void (*)(void)), all[i]->bytes);
        for (int j = 0; j < all[i]->count; j++)
            CHECK_EQ(all[i]->subject[j].offset, (size_t)j * sizeof(void (*)(void)));
    }
}

static trial shared;

static void begin(sherd_dtype dtype)
{
    bool whole = !sherd__has_fractions(dtype);

    shared.set = "plain";
    shared.dtype = dtype;
    shared.paper_dtype = whole ? SHERD_I64 : SHERD_F64;
}

static void try_list(const subject *list, int count, const void *table, const void *paper)
{
    for (int i = 0; i < count; i++)
        try_subject(&shared, &list[i], TRIES / check_stride(2), table, paper);
}

static void try_family(const family *f, const void *table, const void *paper)
{
    CHECK(table && paper);
    try_list(f->subject, f->count, table, paper);
}

static void in_fences(void (*run)(void))
{
    struct sigaction was[FENCE_SIGNALS];

    fences_begin(was);
    if (open_trial(&shared))
        run();
    close_trial(&shared);
    fences_end(was);
}

static void try_layers(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};

    for (int i = 0; i < LEN(dtypes); i++) {
        sherd_dtype d = dtypes[i], p = SHERD_F64;
        begin(d);
        try_family(&norm_family, sherd__norm_kernels_of(d), sherd__norm_kernels_of(p));
        try_family(&along_family, sherd__along_kernels_of(d), sherd__along_kernels_of(p));
        try_family(&layer_family, sherd__layer_kernels_of(d), sherd__layer_kernels_of(p));
        if (sherd_dtype_bytes(d) == 2)
            continue;
        try_family(&neighbour_family, sherd__neighbours_kernels_of(d),
                   sherd__neighbours_kernels_of(p));
        try_family(&pool_family, sherd__pool_kernels_of(d), sherd__pool_kernels_of(p));
        try_family(&conv_family, d == SHERD_F32 ? &sherd__conv_f32 : &sherd__conv_f64,
                   &sherd__conv_f64);
        try_family(&taps_family, sherd__taps_kernels_of(d), sherd__taps_kernels_of(p));
    }
}

/* Norms over sets of 16 bits, whose vectors end where rows do. */
static void try_half_sets(void)
{
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16};
    fast_set sets[FAST_SETS];

    for (int s = 0, count = fast_sets(sets); s < count; s++)
        for (int d = 0; d < LEN(dtypes); d++) {
            sherd__kernels half[2];
            sets[s].half(&half[0], &half[1]);
            begin(dtypes[d]);
            shared.set = sets[s].name;
            try_family(&norm_family, sherd__norms_by(&half[d], dtypes[d]),
                       sherd__norm_kernels_of(SHERD_F64));
        }
}

static void try_pieces(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64,  SHERD_I32, SHERD_I64, SHERD_U8,
                                         SHERD_I8,  SHERD_BF16, SHERD_F16, SHERD_BOOL};

    for (int i = 0; i < LEN(dtypes); i++) {
        begin(dtypes[i]);
        try_list(moving, LEN(moving), NULL, NULL);
        if (i < 6)
            try_list(adding, LEN(adding), NULL, NULL);
        if (i < 2)
            try_list(along, LEN(along), NULL, NULL);
    }
    begin(SHERD_F64);
    try_list(plain, LEN(plain), NULL, NULL);
}

static void kernels_of_layers_stay_within_bounds(void)
{
    in_fences(try_layers);
}

static void norms_of_16_bits_stay_within_bounds(void)
{
    in_fences(try_half_sets);
}

static void functions_stay_within_bounds(void)
{
    in_fences(try_pieces);
}

static const check_test tests[] = {
    {TEST(every_kernel_has_a_subject)},
    {TEST(kernels_of_layers_stay_within_bounds)},
    {TEST(norms_of_16_bits_stay_within_bounds)},
    {TEST(functions_stay_within_bounds)},
};
CHECK_MAIN(tests)
