/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The values of the library's operators, for the list of all of them (table.c) and for each other's
 * backwards.
 */
#ifndef SHERD__APPLY_OPERATORS_H
#define SHERD__APPLY_OPERATORS_H

#include "kernels/functions.h"
#include "sherd/op.h"

extern const sherd_op sherd__add_op, sherd__sub_op, sherd__mul_op, sherd__scale_op, sherd__cast_op,
    sherd__add_scaled_op;

/* Element by element: by the number of the function (kernels/functions.inc). */
extern const sherd_op sherd__unary_ops[], sherd__binary_ops[], sherd__compare_ops[],
    sherd__compare_scalar_ops[];
extern const sherd_op sherd__add_scalar_op, sherd__logical_not_op;
extern const sherd_op sherd__isnan_op, sherd__isinf_op, sherd__isfinite_op, sherd__nan_to_num_op,
    sherd__one_hot_op, sherd__bincount_op;
extern const sherd_op sherd__histc_op, sherd__sum_exact_op, sherd__sum_exact_over_op;
extern const sherd_op sherd__bits_ops[], sherd__bits_scalar_ops[]; /* by sherd__bits_kind */
extern const sherd_op sherd__bitwise_not_op;
extern const sherd_op sherd__where_op, sherd__masked_fill_op;

extern const sherd_op sherd__matmul_op, sherd__linear_op, sherd__einsum_op,
    sherd__grouped_linear_op, sherd__grouped_matmul_op, sherd__grouped_linear_quantized_op,
    sherd__group_rows_op, sherd__dispatch_op, sherd__route_rows_op, sherd__send_rows_op,
    sherd__return_rows_op, sherd__combine_op;
extern const sherd_op sherd__quantize_op, sherd__dequantize_op, sherd__linear_quantized_op;
extern const sherd_op sherd__count_masked_op, sherd__nonzero_op, sherd__masked_select_op,
    sherd__masked_scatter_op;
extern const sherd_op sherd__searchsorted_op, sherd__order_unique_op, sherd__unique_op,
    sherd__count_unique_op;
extern const sherd_op sherd__multinomial_op, sherd__sample_rows_op;
extern const sherd_op sherd__sum_op, sherd__mean_op;
extern const sherd_op sherd__view_op;
extern const sherd_op sherd__flatten_op, sherd__unflatten_op, sherd__transpose_op,
    sherd__permute_op, sherd__squeeze_op, sherd__unsqueeze_op, sherd__expand_op, sherd__detach_op,
    sherd__contiguous_op, sherd__clone_op;
extern const sherd_op sherd__slice_op, sherd__narrow_op, sherd__select_op, sherd__pad_op,
    sherd__cat_op, sherd__stack_op, sherd__flip_op, sherd__roll_op, sherd__repeat_op,
    sherd__zigzag_op, sherd__unzigzag_op;
extern const sherd_op sherd__index_select_op, sherd__gather_op, sherd__scatter_op,
    sherd__scatter_add_op, sherd__scatter_most_op, sherd__scatter_reduce_op, sherd__sort_op,
    sherd__topk_op, sherd__cumsum_op, sherd__tril_op, sherd__triu_op;
extern const sherd_op sherd__repeat_interleave_op, sherd__repeat_interleave_by_op,
    sherd__index_add_op, sherd__index_copy_op, sherd__index_fill_op, sherd__index_reduce_op,
    sherd__index_softmax_op, sherd__index_at_op, sherd__index_put_op;
extern const sherd_op sherd__diagonal_op, sherd__diag_embed_op, sherd__trace_op;
extern const sherd_op sherd__cumprod_op, sherd__cummax_op, sherd__cummin_op, sherd__logcumsumexp_op,
    sherd__recurrence_op;
extern const sherd_op sherd__kthvalue_op, sherd__median_op, sherd__quantile_op;
extern const sherd_op sherd__cross_op, sherd__normalize_op, sherd__cosine_similarity_op,
    sherd__glu_op, sherd__prelu_op, sherd__isclose_op;
extern const sherd_op sherd__pixel_shuffle_op, sherd__pixel_unshuffle_op, sherd__unfold_op;
extern const sherd_op sherd__conv_op, sherd__conv_transposed_op, sherd__pad_with_op,
    sherd__max_pool_op, sherd__adaptive_max_pool_op, sherd__avg_pool_op,
    sherd__adaptive_avg_pool_op, sherd__interpolate_op, sherd__neighbourhood_attention_op;
extern const sherd_op sherd__fft_op, sherd__ifft_op, sherd__rfft_op, sherd__irfft_op,
    sherd__complex_mul_op, sherd__complex_einsum_op, sherd__fft_resize_op;
extern const sherd_op sherd__knn_op, sherd__radius_search_op, sherd__signed_distance_op,
    sherd__grid_sample_op;
extern const sherd_op sherd__layer_norm_op, sherd__embedding_op, sherd__dropout_op,
    sherd__attention_op, sherd__cross_entropy_op;

/* Over dims. */
extern const sherd_op sherd__sum_over_op, sherd__mean_over_op, sherd__var_op, sherd__std_op,
    sherd__norm_op, sherd__argmax_op, sherd__argmin_op;
extern const sherd_op sherd__fold_ops[]; /* max, min, prod, any, all; a name that is NULL ends it */
extern const sherd_op sherd__softmax_op, sherd__log_softmax_op, sherd__logsumexp_op;

/* Losses, made of others. */
extern const sherd_op sherd__mse_loss_op, sherd__l1_loss_op, sherd__huber_loss_op,
    sherd__smooth_l1_loss_op, sherd__bce_with_logits_op, sherd__kl_div_op, sherd__nll_loss_op;

/* ops_layers.h */
extern const sherd_op sherd__add_layer_norm_op, sherd__add_rms_norm_op;
extern const sherd_op sherd__rms_norm_op, sherd__rotary_op, sherd__attention_with_op,
    sherd__attention_general_op, sherd__attention_pieces_op, sherd__attention_cached_op,
    sherd__attention_paged_op, sherd__attention_paged_rows_op;
extern const sherd_op sherd__group_norm_op, sherd__batch_norm_op, sherd__instance_norm_op;
extern const sherd_op sherd__cross_entropy_with_op, sherd__cross_entropy_mean_op;

#endif
