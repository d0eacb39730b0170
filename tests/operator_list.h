/* SPDX-License-Identifier: Apache-2.0 */
/* All rows (operator_rows.h), and calls that are drawn from them. */
#ifndef SHERD_TESTS_OPERATOR_LIST_H
#define SHERD_TESTS_OPERATOR_LIST_H

#include "operator_rows_fft.h"
#include "operator_rows_groups.h"
#include "operator_rows_index.h"
#include "operator_rows_lines.h"
#include "operator_rows_stencil.h"
#include "operator_rows_shape.h"

#include "sherd/op.h"

#define ROW(op, kind, least, most, draw, run)           \
    {                                                   \
        "sherd_" #op, #op, kind, least, most, draw, run \
    }
#define UNARY0(name, ...) ROW(name, 0, 0, 3, draw_one, run_##name),
#define UNARY1(name, ...) ROW(name, 0, 0, 3, draw_one, run_##name),
#define UNARY2(name, ...) ROW(name, 0, 0, 3, draw_one, run_##name),
#define BINARY(name, ...) ROW(name, 'q', 0, 3, draw_two, run_##name),
#define COMPARE(name, ...)                      \
    ROW(name, 'd', 0, 3, draw_two, run_##name), \
        ROW(name##_scalar, 'd', 0, 3, draw_one, run_##name##_scalar),
#define LOGIC(name, ...) ROW(name, 'd', 0, 3, draw_two, run_##name),

static const row rows[] = {
#include "kernels/functions.inc"
    ROW(add, 'x', 0, 3, draw_two, run_add),
    ROW(sub, 'x', 0, 3, draw_two, run_sub),
    ROW(mul, 'x', 0, 3, draw_two, run_mul),
    ROW(scale, 'x', 0, 3, draw_one, run_scale),
    ROW(add_scaled, 'x', 0, 3, draw_two, run_add_scaled),
    ROW(cast, 'd', 0, 3, draw_cast, run_cast),
    ROW(add_scalar, 'x', 0, 3, draw_one, run_add_scalar),
    ROW(logical_not, 'd', 0, 3, draw_one, run_logical_not),
    ROW(isnan, 'x', 0, 3, draw_one, run_isnan),
    ROW(isinf, 'x', 0, 3, draw_one, run_isinf),
    ROW(isfinite, 'x', 0, 3, draw_one, run_isfinite),
    ROW(isclose, 'd', 0, 3, draw_two, run_isclose),
    ROW(nan_to_num, 'x', 0, 3, draw_one, run_nan_to_num),
    ROW(one_hot, 'i', 0, 3, draw_indices, run_one_hot),
    ROW(bincount, 'i', 0, 3, draw_indices, run_bincount),
    ROW(histc, 'd', 0, 3, draw_one, run_histc),
    ROW(bitwise_and, 'w', 0, 3, draw_two, run_bitwise_and),
    ROW(bitwise_or, 'w', 0, 3, draw_two, run_bitwise_or),
    ROW(bitwise_xor, 'w', 0, 3, draw_two, run_bitwise_xor),
    ROW(bitwise_left_shift, 'w', 0, 3, draw_two, run_bitwise_left_shift),
    ROW(bitwise_right_shift, 'w', 0, 3, draw_two, run_bitwise_right_shift),
    ROW(bitwise_and_scalar, 'w', 0, 3, draw_one, run_bitwise_and_scalar),
    ROW(bitwise_or_scalar, 'w', 0, 3, draw_one, run_bitwise_or_scalar),
    ROW(bitwise_xor_scalar, 'w', 0, 3, draw_one, run_bitwise_xor_scalar),
    ROW(bitwise_left_shift_scalar, 'w', 0, 3, draw_one, run_bitwise_left_shift_scalar),
    ROW(bitwise_right_shift_scalar, 'w', 0, 3, draw_one, run_bitwise_right_shift_scalar),
    ROW(bitwise_not, 'w', 0, 3, draw_one, run_bitwise_not),
    ROW(where, 'x', 0, 3, draw_where, run_where),
    ROW(masked_fill, 'x', 0, 3, draw_fill, run_masked_fill),
    ROW(matmul, 'x', 1, 3, draw_matmul, run_matmul),
    ROW(linear, 'x', 1, 3, draw_linear, run_linear),
    ROW(einsum, 'x', 1, 3, draw_einsum, run_einsum),
    ROW(quantize, 'x', 1, 3, draw_quantize, run_quantize),
    ROW(dequantize, 'x', 1, 3, draw_quantize, run_quantize),
    ROW(linear_quantized, 'x', 1, 3, draw_linear_quantized, run_linear_quantized),
    ROW(group_rows, 'x', 2, 2, draw_there_and_back, run_there_and_back),
    ROW(dispatch, 'x', 2, 2, draw_there_and_back, run_there_and_back),
    ROW(combine, 'x', 2, 2, draw_there_and_back, run_there_and_back),
    ROW(route_rows, 'x', 1, 3, draw_route, run_send_rows),
    ROW(send_rows, 'x', 1, 3, draw_route, run_send_rows),
    ROW(return_rows, 'x', 1, 3, draw_route, run_return_rows),
    ROW(count_masked, 'b', 1, 3, draw_one, run_nonzero),
    ROW(nonzero, 'b', 1, 3, draw_one, run_nonzero),
    ROW(masked_select, 'x', 1, 3, draw_mask, run_masked_select),
    ROW(masked_scatter, 'x', 1, 3, draw_masked, run_masked_scatter),
    ROW(searchsorted, 'd', 1, 3, draw_sought, run_searchsorted),
    ROW(order_unique, 'i', 0, 3, draw_indices, run_unique),
    ROW(unique, 'i', 0, 3, draw_indices, run_unique),
    ROW(count_unique, 'i', 0, 3, draw_indices, run_count_unique),
    ROW(grouped_linear, 'x', 2, 2, draw_grouped_linear, run_grouped_linear),
    ROW(grouped_matmul, 'x', 2, 2, draw_grouped_matmul, run_grouped_matmul),
    ROW(grouped_linear_quantized, 'x', 2, 2, draw_grouped_linear_quantized,
        run_grouped_linear_quantized),
    ROW(sum, 'x', 0, 3, draw_one, run_sum),
    ROW(mean, 'x', 0, 3, draw_some_dims, run_mean),
    ROW(sum_over, 'x', 0, 3, draw_dims, run_sum_over),
    ROW(mean_over, 'x', 0, 3, draw_some_dims, run_mean_over),
    ROW(var, 'x', 1, 3, draw_moments, run_var),
    ROW(std, 'd', 1, 3, draw_moments, run_std),
    ROW(norm, 'd', 0, 3, draw_norm, run_norm),
    ROW(norm, 'q', 0, 3, draw_norm, run_norm_most),
    ROW(max, 'd', 0, 3, draw_some_dims, run_max),
    ROW(min, 'd', 0, 3, draw_some_dims, run_min),
    ROW(prod, 'x', 0, 3, draw_dims, run_prod),
    ROW(any, 'd', 0, 3, draw_dims, run_any),
    ROW(all, 'd', 0, 3, draw_dims, run_all),
    ROW(argmax, 'd', 0, 3, draw_some_dims, run_argmax),
    ROW(argmin, 'd', 0, 3, draw_some_dims, run_argmin),
    ROW(multinomial, 'p', 1, 3, draw_weights, run_drawn),
    ROW(multinomial, 'p', 1, 3, draw_weights, run_drawn_repeatedly),
    ROW(sample_rows, 'd', 1, 3, draw_logits, run_sampled),
    ROW(sum_exact, 'x', 0, 3, draw_one, run_sum_exact),
    ROW(sum_exact_over, 'x', 0, 3, draw_dims, run_sum_exact_over),
    ROW(softmax, 'x', 1, 3, draw_dim, run_softmax),
    ROW(log_softmax, 'x', 1, 3, draw_dim, run_log_softmax),
    ROW(logsumexp, 'x', 1, 3, draw_dim_kept, run_logsumexp),
    ROW(cross, 'd', 1, 3, draw_cross, run_cross),
    ROW(normalize, 'd', 1, 3, draw_length, run_normalize),
    ROW(cosine_similarity, 'd', 1, 3, draw_vectors, run_cosine_similarity),
    ROW(glu, 'x', 1, 3, draw_glu, run_glu),
    ROW(prelu, 'd', 0, 3, draw_prelu, run_prelu),
    ROW(view, 'x', 0, 3, draw_view, run_view),
    ROW(flatten, 'x', 1, 3, draw_two_dims, run_flatten),
    ROW(unflatten, 'x', 1, 3, draw_unflatten, run_unflatten),
    ROW(transpose, 'x', 1, 3, draw_two_dims, run_transpose),
    ROW(permute, 'x', 1, 3, draw_dim, run_permute),
    ROW(squeeze, 'x', 1, 3, draw_squeeze, run_squeeze),
    ROW(unsqueeze, 'x', 0, 3, draw_new_dim, run_unsqueeze),
    ROW(expand, 'x', 0, 3, draw_expand, run_expand),
    ROW(detach, 'x', 0, 3, draw_one, run_detach),
    ROW(contiguous, 'x', 1, 3, draw_two_dims, run_contiguous),
    ROW(clone, 'x', 1, 3, draw_two_dims, run_clone),
    ROW(slice, 'x', 1, 3, draw_slice, run_slice),
    ROW(narrow, 'x', 1, 3, draw_narrow, run_narrow),
    ROW(select, 'x', 1, 3, draw_select, run_select),
    ROW(pad, 'x', 1, 3, draw_pad, run_pad),
    ROW(cat, 'x', 1, 3, draw_cat, run_cat),
    ROW(stack, 'x', 0, 3, draw_stack, run_stack),
    ROW(flip, 'x', 1, 3, draw_flip, run_flip),
    ROW(roll, 'x', 1, 3, draw_roll, run_roll),
    ROW(zigzag, 'x', 1, 3, draw_zigzag, run_zigzag),
    ROW(unzigzag, 'x', 1, 3, draw_zigzag, run_unzigzag),
    ROW(repeat, 'x', 0, 3, draw_repeat, run_repeat),
    ROW(index_select, 'x', 1, 3, draw_index, run_index_select),
    ROW(gather, 'x', 1, 3, draw_gather, run_gather),
    ROW(scatter, 'x', 1, 3, draw_scatter, run_scatter),
    ROW(scatter_add, 'x', 1, 3, draw_scatter_add, run_scatter_add),
    ROW(scatter_most, 'd', 1, 3, draw_scatter_reduce, run_scatter_reduce),
    ROW(scatter_reduce, 'd', 1, 3, draw_scatter_reduce, run_scatter_reduce),
    ROW(repeat_interleave, 'x', 1, 3, draw_times, run_repeat_interleave),
    ROW(repeat_interleave_by, 'x', 1, 3, draw_counts, run_repeat_interleave_by),
    ROW(index_add, 'x', 1, 3, draw_rows, run_index_add),
    ROW(index_copy, 'x', 1, 3, draw_rows, run_index_copy),
    ROW(index_fill, 'x', 1, 3, draw_index, run_index_fill),
    ROW(index_reduce, 'd', 1, 3, draw_reduced_rows, run_index_reduce),
    ROW(index_softmax, 'x', 1, 3, draw_grouped, run_index_softmax),
    ROW(index_at, 'x', 2, 3, draw_indices_of_two, run_index_at),
    ROW(index_put, 'x', 2, 3, draw_put, run_index_put),
    ROW(sort, 'd', 1, 3, draw_sort, run_sort),
    ROW(topk, 'd', 1, 3, draw_sort, run_topk),
    ROW(kthvalue, 'd', 1, 3, draw_ranked, run_kthvalue),
    ROW(median, 'd', 1, 3, draw_ranked, run_median),
    ROW(quantile, 'd', 1, 3, draw_ranked, run_quantile),
    ROW(cumsum, 'x', 1, 3, draw_dim, run_cumsum),
    ROW(cumprod, 'x', 1, 3, draw_dim, run_cumprod),
    ROW(cummax, 'd', 1, 3, draw_dim, run_cummax),
    ROW(cummin, 'd', 1, 3, draw_dim, run_cummin),
    ROW(logcumsumexp, 'x', 1, 3, draw_dim, run_logcumsumexp),
    ROW(recurrence, 'x', 1, 3, draw_recurrence, run_recurrence),
    ROW(tril, 'x', 2, 3, draw_diagonal, run_tril),
    ROW(triu, 'x', 2, 3, draw_diagonal, run_triu),
    ROW(diagonal, 'x', 2, 4, draw_of_square, run_diagonal),
    ROW(diag_embed, 'x', 1, 3, draw_to_square, run_diag_embed),
    ROW(trace, 'x', 2, 4, draw_of_square, run_trace),
    ROW(layer_norm, 'x', 1, 3, draw_norm_layer, run_layer_norm),
    ROW(embedding, 'x', 2, 2, draw_ids, run_embedding),
    ROW(dropout, 'x', 0, 3, draw_one, run_dropout),
    ROW(attention, 'x', 3, 4, draw_attention, run_attention),
    ROW(cross_entropy, 'x', 1, 3, draw_classes, run_cross_entropy),
    ROW(mse_loss, 'x', 0, 3, draw_loss, run_mse),
    ROW(l1_loss, 'd', 0, 3, draw_loss, run_l1),
    ROW(huber_loss, 'd', 0, 3, draw_loss, run_huber),
    ROW(smooth_l1_loss, 'd', 0, 3, draw_loss, run_smooth_l1),
    ROW(bce_with_logits, 'd', 0, 3, draw_bce, run_bce),
    ROW(kl_div, 'x', 0, 3, draw_kl, run_kl_div),
    ROW(nll_loss, 'x', 1, 3, draw_classes, run_nll),
    ROW(rms_norm, 'x', 1, 3, draw_norm_layer, run_rms_norm),
    ROW(add_layer_norm, 'x', 1, 3, draw_add_norm, run_add_layer_norm),
    ROW(add_rms_norm, 'x', 1, 3, draw_add_norm, run_add_rms_norm),
    ROW(group_norm, 'x', 2, 4, draw_channels, run_group_norm),
    ROW(batch_norm, 'x', 2, 4, draw_channels, run_batch_norm),
    ROW(instance_norm, 'x', 3, 4, draw_channels, run_instance_norm),
    ROW(conv, 'x', 3, 4, draw_conv, run_conv),
    ROW(conv_transposed, 'x', 3, 4, draw_conv, run_conv_transposed),
    ROW(pad_with, 'x', 1, 4, draw_pad_with, run_pad_with),
    ROW(max_pool, 'd', 3, 4, draw_pool, run_max_pool),
    ROW(avg_pool, 'x', 3, 4, draw_pool, run_avg_pool),
    ROW(adaptive_avg_pool, 'x', 3, 4, draw_new_sizes, run_adaptive_avg_pool),
    ROW(adaptive_max_pool, 'd', 3, 4, draw_new_sizes, run_adaptive_max_pool),
    ROW(interpolate, 'x', 3, 4, draw_new_sizes, run_interpolate),
    ROW(pixel_shuffle, 'x', 3, 4, draw_shuffle, run_pixel_shuffle),
    ROW(pixel_unshuffle, 'x', 3, 4, draw_unshuffle, run_pixel_unshuffle),
    ROW(unfold, 'x', 1, 3, draw_unfold, run_unfold),
    ROW(grid_sample, 'x', 3, 4, draw_sampled, run_grid_sample),
    ROW(neighbourhood_attention, 'x', 4, 4, draw_neighbours, run_neighbourhood_attention),
    ROW(fft, 'x', 2, 4, draw_fft, run_fft),
    ROW(ifft, 'x', 2, 4, draw_fft, run_ifft),
    ROW(rfft, 'x', 1, 3, draw_rfft, run_rfft),
    ROW(irfft, 'x', 2, 4, draw_irfft, run_irfft),
    ROW(complex_einsum, 'x', 2, 4, draw_complex_einsum, run_complex_einsum),
    ROW(fft_resize, 'x', 2, 4, draw_fft_resize, run_fft_resize),
    ROW(complex_mul, 'x', 1, 4, draw_complex_mul, run_complex_mul),
    ROW(knn, 'x', 2, 2, draw_points, run_knn),
    ROW(radius_search, 'x', 2, 2, draw_points, run_radius_search),
    ROW(signed_distance, 'x', 2, 2, draw_surface, run_signed_distance),
    ROW(rotary, 'x', 4, 4, draw_rotary, run_rotary),
    ROW(attention_cached, 'x', 4, 4, draw_cached, run_attention_cached),
    ROW(attention_with, 'x', 3, 4, draw_attention, run_attention_with),
    ROW(attention_general, 'x', 3, 4, draw_general, run_attention_general),
    ROW(attention_paged, 'x', 4, 4, draw_paged, run_attention_paged),
    ROW(attention_paged_rows, 'x', 3, 3, draw_paged_rows, run_attention_paged_rows),
    ROW(cross_entropy_with, 'x', 1, 3, draw_entropy, run_cross_entropy_with),
    ROW(cross_entropy_mean, 'x', 1, 3, draw_entropy_mean, run_cross_entropy_with),
    {"", "split", 'x', 1, 3, draw_split, run_split},
    {"", "in place", 'x', 0, 3, draw_write, run_write},
};
#undef ROW

/* Functions of one operand have no kind of their own, but need certain numbers, or bend. */
static inline char kind_of(const row *r)
{
    static const char *const names[] = {
        "p log log2 log10 log1p sqrt rsqrt pow reciprocal ",
        ("d abs sign relu leaky_relu elu selu clamp softplus floor ceil trunc round frac "
         "floor_divide_scalar remainder_scalar hardsigmoid hardswish celu softshrink hardshrink "),
        "s asin acos atanh ",
        "l acosh ",
    };
    char word[64];

    snprintf(word, sizeof word, " %s ", r->name);
    for (int i = 0; i < LEN(names) && !r->kind; i++)
        if (strstr(names[i], word))
            return names[i][0];
    return r->kind ? r->kind : 'x';
}

/* Sizes that meshes of 2 and 3 divide, and others; at most 60 elements; of `odds` dims one is
 * empty. */
static inline void draw_shape(need *w, int least, int most, int odds, uint64_t *dice)
{
    static const int64_t sizes[] = {5, 3, 2, 4, 1, 7, 6, 3};

    w->ndim = least + roll(dice, most - least + 1);
    do
        for (int d = 0; d < w->ndim; d++)
            w->shape[d] = roll(dice, odds) ? sizes[roll(dice, LEN(sizes))] : 0;
    while (product_of(w->shape, w->ndim) > 60);
}

/*
 * Draw a call of a row with a first operand of this shape and dtype; values of operands are drawn
 * too. False: there is none, or it would be too large.
 */
static inline bool draw_call(call_plan *p, const row *r, const need *first, uint64_t *dice)
{
    *p = (call_plan){.row = r, .operands = 1, .in = {*first}};
    p->in[0].kind = kind_of(r);
    if (!r->draw(p, dice))
        return false;
    for (int i = 0; i < p->operands; i++) {
        if (product_of(p->in[i].shape, p->in[i].ndim) > MOST_ELEMENTS)
            return false;
        seed_leaf(&p->in[i], dice);
    }
    return true;
}

/* For messages. */
static inline void say_call(FILE *out, const call_plan *p)
{
    fprintf(out, "%s(", p->row->name);
    for (int i = 0; i < p->operands; i++) {
        fprintf(out, "%s%s[", i ? ", " : "", sherd_dtype_name(p->in[i].dtype));
        for (int d = 0; d < p->in[i].ndim; d++)
            fprintf(out, "%s%lld", d ? "," : "", (long long)p->in[i].shape[d]);
        fprintf(out, "]");
    }
    fprintf(out, "; ");
    for (int i = 0; i < MOST_NUMBERS; i++)
        fprintf(out, "%lld ", (long long)p->number[i]);
    fprintf(out, ")");
}

/* The operands of a call that went wrong, and why. */
static inline void say_failed_call(const call_plan *p, sherd_tensor *const *in, sherd_world *world)
{
    flockfile(stderr);
    fprintf(stderr, "  in ");
    say_call(stderr, p);
    for (int i = 0; i < p->operands; i++)
        fprintf(stderr, " %s", sherd_tensor_text(in[i]));
    fprintf(stderr, "\n  the last error was: %s\n", sherd_world_error(world));
    funlockfile(stderr);
}

#endif
