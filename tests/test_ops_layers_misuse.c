/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of layers with options: see misuse.h. */
#include <limits.h>
#include <math.h>

#include "misuse.h"

#include "sherd/ops_layers.h"
#include "sherd/ops_serving.h"

static sherd_tensor *numbers(sherd_world *world, sherd_dtype dtype, int ndim, const int64_t *shape)
{
    return sherd_constant(world, dtype, shape, ndim, 1);
}

#define OF(dtype, ...) \
    numbers(m->world, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]){__VA_ARGS__})
#define F(...) OF(SHERD_F32, __VA_ARGS__)
#define I(...) OF(SHERD_I32, __VA_ARGS__)

static void computes(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_tensor *logits = sherd_constant(world, SHERD_F32, (int64_t[]){3, 2}, 2, 0);
    sherd_tensor *targets = sherd_constant(world, SHERD_I32, (int64_t[]){3}, 1, 1);
    CHECK_NEAR(sherd_item(sherd_cross_entropy_with(logits, targets, NULL)), log(2.0), 1e-6);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

MISUSE(a_layer_of_nothing_is_nothing)
{
    ANSWERS(!sherd_cross_entropy_with(NULL, NULL, NULL) && !sherd_rms_norm(NULL, NULL, 0));
    ANSWERS(!sherd_rotary(NULL, NULL, NULL));
    ANSWERS(!sherd_layer_norm_over(NULL, 1, NULL, NULL, 0) &&
            !sherd_rms_norm_over(NULL, 1, NULL, 0));
    ANSWERS(!sherd_group_norm(NULL, 1, NULL, NULL, 0));
    ANSWERS(!sherd_add_layer_norm(NULL, NULL, NULL, NULL, NULL) &&
            !sherd_add_rms_norm(NULL, NULL, NULL, NULL, NULL));
    ANSWERS(!sherd_batch_norm(NULL, NULL) && !sherd_instance_norm(NULL, NULL));
    ANSWERS(!sherd_attention_with(NULL, NULL, NULL, NULL, NULL, NULL));
    ANSWERS(!sherd_attention_cached(NULL, NULL, NULL, NULL, 0));
    ANSWERS(!sherd_attention_paged(NULL, NULL, NULL, NULL, NULL, 0));
    ANSWERS(!sherd_attention_cached_with(NULL, NULL, NULL, NULL, NULL));
    ANSWERS(!sherd_attention_paged_with(NULL, NULL, NULL, NULL, NULL, NULL));
    ANSWERS(!sherd_attention_paged_rows(NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    ANSWERS(!sherd_document_spans(NULL, NULL, 1, 1));
    ANSWERS(!sherd_attention(NULL, NULL, NULL, &(sherd_attention_options){.dropout = 0.5}));
}

static sherd_tensor *loss(sherd_tensor *logits, sherd_tensor *targets,
                          sherd_cross_entropy_options options)
{
    return sherd_cross_entropy_with(logits, targets, &options);
}

MISUSE(a_loss_has_good_options)
{
    sherd_scope_begin(m->world);
    sherd_tensor *logits = F(3, 4), *ids = I(3);
    const sherd_cross_entropy_options none = {0};

    FAILS(SHERD_EINVAL, loss(NUL(logits), ids, none));
    FAILS(SHERD_EINVAL, loss(logits, NUL(ids), none));
    FAILS(SHERD_EINVAL, loss(logits, BAD(I(4), ids), none));
    FAILS(SHERD_EINVAL, loss(logits, BAD(OF(SHERD_I64, 3), ids), none));
    FAILS(SHERD_EINVAL, loss(logits, BAD(F(3), ids), none));
    FAILS(SHERD_EINVAL, loss(BAD(F(3), logits), ids, none));
    FAILS(SHERD_EINVAL, loss(BAD(F(3, 1), logits), ids, none));
    FAILS(SHERD_EINVAL,
          loss(logits, ids, (sherd_cross_entropy_options){.weight = BAD(F(3), F(4))}));
    FAILS(SHERD_EINVAL,
          loss(logits, ids, (sherd_cross_entropy_options){.weight = BAD(I(4), F(4))}));
    FAILS(SHERD_EINVAL,
          loss(logits, ids, (sherd_cross_entropy_options){.label_smoothing = BAD(1.5, 0.5)}));
    FAILS(
        SHERD_EINVAL,
        loss(logits, ids, (sherd_cross_entropy_options){.label_smoothing = BAD((double)NAN, 0.5)}));
    FAILS(SHERD_EINVAL, loss(logits, ids,
                             (sherd_cross_entropy_options){
                                 .reduction = BAD((sherd_loss_reduction)7, SHERD_LOSS_SUM)}));
    FAILS(SHERD_EINVAL,
          loss(logits, F(3, 4), (sherd_cross_entropy_options){.has_ignored = BAD(true, false)}));
    sherd_scope_end(m->world);
}

MISUSE(a_norm_has_a_good_weight)
{
    sherd_scope_begin(m->world);
    FAILS(SHERD_EINVAL, sherd_rms_norm(F(3, 4), F(BAD(3, 4)), 1e-5));
    FAILS(SHERD_EINVAL, sherd_rms_norm(F(3, 4), OF(BAD(SHERD_F64, SHERD_F32), 4), 1e-5));
    FAILS(SHERD_EINVAL, sherd_rms_norm(F(3, 4), NULL, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_rms_norm(F(3, 4), NULL, BAD((double)NAN, 1)));
    for (int i = 0; i < 4; i++) {
        const int dims[] = {0, -1, 3, INT_MAX}, bad = dims[i];
        FAILS(SHERD_EINVAL, sherd_rms_norm_over(F(3, 4), BAD(bad, 2), NULL, 1));
        FAILS(SHERD_EINVAL, sherd_layer_norm_over(F(3, 4), BAD(bad, 2), NULL, NULL, 1));
    }
    FAILS(SHERD_EINVAL, sherd_rms_norm_over(F(3, 4), 2, BAD(F(4), F(3, 4)), 1));
    FAILS(SHERD_EINVAL, sherd_layer_norm_over(F(3, 4), 2, BAD(F(3, 5), F(3, 4)), NULL, 1));
    FAILS(SHERD_EINVAL, sherd_layer_norm_over(F(3, 4), 2, NULL, BAD(F(12), F(3, 4)), 1));
    sherd_scope_end(m->world);
}

/* The failed tensors, both. */
static bool add_norm(bool rms, sherd_tensor *x, sherd_tensor *delta, sherd_add_norm_options o)
{
    sherd_tensor *norm, *sum;
    bool good = rms ? sherd_add_rms_norm(&norm, &sum, x, delta, &o)
                    : sherd_add_layer_norm(&norm, &sum, x, delta, &o);

    CHECK(good == !sherd_tensor_failed(norm) && good == !sherd_tensor_failed(sum));
    return good;
}

MISUSE(a_sum_and_its_norm_have_good_options)
{
    sherd_generator g = sherd_generator_named("drop");
    sherd_scope_begin(m->world);
    sherd_tensor *x = F(3, 4), *low = OF(SHERD_BF16, 3, 4);
    for (int i = 0; i < 2; i++) {
        const sherd_add_norm_options none = {0};
        FAILS(SHERD_EINVAL, add_norm(i, NUL(x), x, none));
        FAILS(SHERD_EINVAL, add_norm(i, x, NUL(x), none));
        FAILS(SHERD_EINVAL, add_norm(i, x, BAD(F(4), x), none));
        FAILS(SHERD_EINVAL, add_norm(i, x, BAD(F(1, 4), x), none));
        FAILS(SHERD_EINVAL, add_norm(i, BAD(low, x), x, none));
        FAILS(SHERD_EINVAL, add_norm(i, x, BAD(OF(SHERD_F64, 3, 4), low), none));
        FAILS(SHERD_EINVAL, add_norm(i, x, BAD(I(3, 4), low), none));
        FAILS(SHERD_EINVAL, add_norm(i, BAD(I(3, 4), x), BAD(I(3, 4), x), none));
        FAILS(SHERD_EINVAL, add_norm(i, x, x, (sherd_add_norm_options){.weight = BAD(x, F(4))}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.weight = F(BAD(3, 4)), .dims = 1}));
        FAILS(SHERD_EINVAL, add_norm(i, x, x, (sherd_add_norm_options){.dims = BAD(3, 2)}));
        FAILS(SHERD_EINVAL, add_norm(i, x, x, (sherd_add_norm_options){.dims = BAD(INT_MIN, 2)}));
        FAILS(SHERD_EINVAL, add_norm(i, x, x, (sherd_add_norm_options){.eps = BAD(-1, 1)}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.eps = BAD((double)NAN, 1)}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.p = 0.5, .generator = NUL(&g)}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.p = BAD(1, 0.5), .generator = &g}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.p = BAD(-0.5, 0.5), .generator = &g}));
        FAILS(SHERD_EINVAL,
              add_norm(i, x, x, (sherd_add_norm_options){.dtype = BAD(SHERD_F64, SHERD_F16)}));
        FAILS(
            SHERD_EINVAL,
            add_norm(i, x, x, (sherd_add_norm_options){.dtype = BAD((sherd_dtype)99, SHERD_BF16)}));
        FAILS(SHERD_EINVAL,
              add_norm(i, low, low, (sherd_add_norm_options){.dtype = BAD(SHERD_F32, SHERD_BF16)}));
    }
    FAILS(SHERD_EINVAL, add_norm(false, x, x, (sherd_add_norm_options){.bias = BAD(F(3), F(4))}));
    FAILS(SHERD_EINVAL, add_norm(true, x, x, (sherd_add_norm_options){.bias = BAD(F(4), NULL)}));
    CHECK(sherd_add_layer_norm(NULL, NULL, x, x, NULL) &&
          sherd_add_rms_norm(NULL, NULL, x, x, NULL));
    sherd_scope_end(m->world);
}

static sherd_tensor *batch(sherd_tensor *x, sherd_batch_norm_options options)
{
    return sherd_batch_norm(x, &options);
}

static sherd_tensor *instance(sherd_tensor *x, sherd_batch_norm_options options)
{
    return sherd_instance_norm(x, &options);
}

MISUSE(a_norm_of_groups_has_good_groups)
{
    sherd_scope_begin(m->world);
    FAILS(SHERD_EINVAL, sherd_group_norm(NUL(F(2, 4, 3)), 2, F(4), F(4), 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(BAD(F(4), F(2, 4)), 2, NULL, NULL, 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), BAD(3, 2), NULL, NULL, 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), BAD(0, 2), NULL, NULL, 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), BAD(-2, 2), NULL, NULL, 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), 2, F(BAD(3, 4)), NULL, 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), 2, NULL, BAD(I(4), F(4)), 1e-5));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), 2, NULL, NULL, BAD(-1, 1)));
    FAILS(SHERD_EINVAL, sherd_group_norm(F(2, 4, 3), 2, NULL, NULL, BAD((double)NAN, 1)));
    FAILS(SHERD_EINVAL, sherd_group_norm(BAD(I(2, 4, 3), F(2, 4, 3)), 2, NULL, NULL, 1e-5));
    sherd_scope_end(m->world);
}

#define NORM_MISUSE(norm)                                                                          \
    do {                                                                                           \
        const sherd_batch_norm_options none = {0};                                                 \
        FAILS(SHERD_EINVAL, norm(NUL(x), (sherd_batch_norm_options){.weight = F(4)}));             \
        FAILS(SHERD_EINVAL, norm(BAD(F(4), x), none));                                             \
        FAILS(SHERD_EINVAL, norm(BAD(F(1, 4), x), none));                                          \
        FAILS(SHERD_EINVAL, norm(BAD(I(2, 4, 3), x), none));                                       \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.weight = F(BAD(3, 4))}));          \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.bias = F(BAD(3, 4))}));            \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.eps = BAD(-1, 1)}));               \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.momentum = BAD(-1, 1)}));          \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.momentum = BAD((double)NAN, 1)})); \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.fixed = BAD(true, false)}));       \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.running_mean = F(4),               \
                                                               .running_variance = NUL(F(4))}));   \
        FAILS(SHERD_EINVAL, norm(x, (sherd_batch_norm_options){.running_mean = F(BAD(5, 4)),       \
                                                               .running_variance = F(4)}));        \
        FAILS(SHERD_EINVAL,                                                                        \
              norm(x, (sherd_batch_norm_options){.running_mean = F(4),                             \
                                                 .running_variance = BAD(I(4), F(4))}));           \
    } while (0)

MISUSE(a_norm_of_batches_has_good_averages)
{
    sherd_scope_begin(m->world);
    sherd_tensor *x = F(2, 4, 3);

    NORM_MISUSE(batch);
    NORM_MISUSE(instance);
    sherd_scope_end(m->world);
}

static sherd_tensor *turned(sherd_tensor *x, sherd_tensor *positions, sherd_rotary_options options)
{
    return sherd_rotary(x, positions, &options);
}

MISUSE(a_rotation_has_good_options)
{
    sherd_scope_begin(m->world);
    sherd_tensor *x = F(2, 3, 1, 4);
    const sherd_rotary_options none = {0};

    FAILS(SHERD_EINVAL, sherd_rotary(NUL(x), I(3), NULL));
    FAILS(SHERD_EINVAL, turned(BAD(F(3, 1, 4), x), NULL, none));
    FAILS(SHERD_EINVAL, turned(BAD(F(2, 3, 1, 5), x), NULL, none));
    FAILS(SHERD_EINVAL, turned(x, I(BAD(4, 3)), none));
    FAILS(SHERD_EINVAL, turned(x, BAD(I(2, 3, 1), I(2, 3)), none));
    FAILS(SHERD_EINVAL, turned(x, BAD(F(3), I(3)), none));
    FAILS(SHERD_EINVAL, turned(x, NULL, (sherd_rotary_options){.rotated = BAD(3, 2)}));
    FAILS(SHERD_EINVAL, turned(x, NULL, (sherd_rotary_options){.rotated = BAD(-2, 2)}));
    FAILS(SHERD_EINVAL, turned(x, NULL, (sherd_rotary_options){.rotated = BAD(6, 2)}));
    FAILS(SHERD_EINVAL, turned(x, NULL, (sherd_rotary_options){.base = BAD(-2, 2)}));
    FAILS(SHERD_EINVAL, turned(x, NULL, (sherd_rotary_options){.base = BAD((double)NAN, 2)}));
    FAILS(SHERD_EINVAL, turned(x, I(3), (sherd_rotary_options){.offset = BAD(1, 0)}));
    FAILS(SHERD_EINVAL,
          turned(x, NULL, (sherd_rotary_options){.frequencies = BAD(F(2), OF(SHERD_F64, 2))}));
    FAILS(SHERD_EINVAL,
          turned(x, NULL, (sherd_rotary_options){.frequencies = OF(SHERD_F64, BAD(4, 2))}));
    FAILS(SHERD_EINVAL,
          turned(x, NULL,
                 (sherd_rotary_options){.base = BAD(2, 0), .frequencies = OF(SHERD_F64, 2)}));
    sherd_scope_end(m->world);
}

static sherd_tensor *within(sherd_tensor *q, sherd_tensor *k, sherd_tensor *at,
                            sherd_cached_options options)
{
    return sherd_attention_cached_with(q, k, k, at, &options);
}

MISUSE(a_cache_is_asked_for_what_it_has)
{
    sherd_scope_begin(m->world);
    sherd_tensor *q = F(2, 3, 4, 2), *k = F(2, 5, 2, 2), *at = I(2, 3);

    FAILS(SHERD_EINVAL, sherd_attention_cached(NUL(q), k, k, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, NUL(k), k, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, NUL(k), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, k, NUL(at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(BAD(F(2, 3, 4), q), k, k, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, BAD(F(2, 4, 2, 2), k), at, 0));
    FAILS(SHERD_EINVAL,
          sherd_attention_cached(q, BAD(F(2, 5, 3, 2), k), BAD(F(2, 5, 3, 2), k), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, k, BAD(I(3), at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(BAD(F(2, 3, 2, 2, 2), q), k, k, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, k, BAD(I(2, 4), at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached(q, k, k, BAD(F(2, 3), at), 0));
    FAILS(SHERD_EINVAL,
          sherd_attention_cached(q, BAD(F(2, 1, 2, 2), k), BAD(F(2, 1, 2, 2), k), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_cached_with(q, k, k, NUL(at), NULL));
    FAILS(SHERD_EINVAL, within(q, k, at, (sherd_cached_options){.window = BAD(-1, 1)}));
    FAILS(SHERD_EINVAL, within(q, k, at, (sherd_cached_options){.softcap = BAD(-1, 1)}));
    FAILS(SHERD_EINVAL, within(q, k, at, (sherd_cached_options){.softcap = BAD(INFINITY, 1)}));
    sherd_scope_end(m->world);
}

MISUSE(blocks_are_asked_for_what_they_have)
{
    sherd_scope_begin(m->world);
    sherd_tensor *q = F(2, 3, 4, 2), *k = F(6, 4, 2, 2), *t = I(2, 2), *at = I(2, 3);
    sherd_tensor *k3 = F(6, 4, 3, 2);

    FAILS(SHERD_EINVAL, sherd_attention_paged(NUL(q), k, k, t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, NUL(k), k, t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, NUL(k), t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, NUL(t), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, t, NUL(at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(BAD(F(2, 3, 4), q), k, k, t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(BAD(F(2, 3, 4, 3), q), k, k, t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(BAD(F(2, 3, 2, 2, 2), q), k, k, t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, BAD(F(6, 3, 2, 2), k), t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, BAD(F(6, 4, 2), k), t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, BAD(k3, k), BAD(k3, k), t, at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, BAD(I(3, 2), t), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, BAD(I(2), t), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, BAD(F(2, 2), t), at, 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, t, BAD(I(2, 4), at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, t, BAD(F(2, 3), at), 0));
    FAILS(SHERD_EINVAL, sherd_attention_paged(q, k, k, t, at, BAD((double)NAN, 0)));
    FAILS(SHERD_EINVAL, sherd_attention_paged_with(q, k, k, NUL(t), at, NULL));
    FAILS(SHERD_EINVAL, sherd_attention_paged_with(q, k, k, t, at,
                                                   &(sherd_cached_options){.window = BAD(-2, 2)}));
    sherd_scope_end(m->world);
}

static sherd_tensor *rowed(sherd_tensor *q, sherd_tensor *k, sherd_tensor *t, sherd_tensor *of,
                           sherd_tensor *at, const sherd_cached_options *how)
{
    return sherd_attention_paged_rows(q, k, k, t, of, at, how);
}

MISUSE(rows_are_asked_for_their_sequences)
{
    sherd_scope_begin(m->world);
    sherd_tensor *q = F(3, 4, 2), *k = F(6, 4, 2, 2), *t = I(2, 2), *of = I(3), *at = I(3);
    sherd_tensor *k3 = F(6, 4, 3, 2);

    FAILS(SHERD_EINVAL, rowed(NUL(q), k, t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, NUL(k), t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, NUL(t), of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, NUL(of), at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, of, NUL(at), NULL));
    FAILS(SHERD_EINVAL, rowed(BAD(F(1, 3, 4, 2), q), k, t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(BAD(F(3, 4, 3), q), k, t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(BAD(F(1, 3, 2, 2, 2), q), k, t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, BAD(k3, k), t, of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, BAD(I(2), t), of, at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, BAD(I(2), of), at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, BAD(F(3), of), at, NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, of, BAD(I(3, 1), at), NULL));
    FAILS(SHERD_EINVAL, rowed(q, k, t, of, at, &(sherd_cached_options){.window = BAD(-2, 2)}));
    sherd_scope_end(m->world);
}

static sherd_tensor *attended(sherd_tensor *q, sherd_tensor *k, sherd_attention_options options)
{
    return sherd_attention(q, k, k, &options);
}

MISUSE(attention_has_good_options)
{
    sherd_scope_begin(m->world);
    sherd_tensor *q = F(2, 3, 4, 2), *k = F(2, 3, 2, 2), *out, *sums;
    sherd_generator g = sherd_generator_named("g");
    const sherd_attention_options none = {0};

    FAILS(SHERD_EINVAL, attended(q, BAD(F(2, 3, 3, 2), k), none));
    FAILS(SHERD_EINVAL, attended(q, BAD(F(2, 3, 8, 2), k), none));
    FAILS(SHERD_EINVAL, attended(q, BAD(F(2, 3, 0, 2), k), none));
    FAILS(SHERD_EINVAL, sherd_attention(q, k, NUL(k), NULL));
    FAILS(SHERD_EINVAL, sherd_attention(q, k, BAD(q, k), NULL));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.mask = F(BAD(2, 3), 3)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.mask = F(BAD(2, 4), 3, 3)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.mask = BAD(I(3, 3), F(3, 3))}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.mask = BAD(F(1, 1, 1, 3, 3), F(1, 1, 3, 3))}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.dropout = BAD(1, 0.5), .generator = &g}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.dropout = BAD(-0.5, 0.5), .generator = &g}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.dropout = 0.5, .generator = NUL(&g)}));
    FAILS(SHERD_EINVAL,
          attended(q, BAD(F(2, 5, 2, 2), k), (sherd_attention_options){.causal = true}));
    FAILS(SHERD_EINVAL, attended(q, k,
                                 (sherd_attention_options){
                                     .way = BAD((sherd_attention_way)4, SHERD_ATTENTION_HEADS)}));
    FAILS(SHERD_EINVAL, attended(q, k,
                                 (sherd_attention_options){
                                     .way = BAD((sherd_attention_way)-1, SHERD_ATTENTION_RING)}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.causal = true, .window = BAD(-1, 1)}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.causal = BAD(false, true), .window = 2}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.softcap = BAD(-0.5, 0.5)}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.softcap = BAD((double)NAN, 0.5)}));
    sherd_tensor *i = I(1, 3, 2);
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.spans = BAD(I(1, 3, 3), i)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.spans = BAD(I(3, 3, 2), i)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.spans = BAD(I(2, 4, 2), i)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.spans = BAD(F(1, 3, 2), i)}));
    FAILS(SHERD_EINVAL, attended(q, k, (sherd_attention_options){.spans = BAD(I(3, 2), i)}));
    FAILS(SHERD_EINVAL,
          attended(q, k, (sherd_attention_options){.mask = BAD(F(3, 3), NULL), .spans = i}));
    const int64_t lengths[] = {2, 1, 3, 0}, others[] = {2, 1, 3, 1}, negative[] = {-1, 4};
    FAILS(SHERD_EINVAL, sherd_document_spans(m->world, BAD(others, lengths), 2, 2));
    FAILS(SHERD_EINVAL, sherd_document_spans(m->world, BAD(negative, lengths), 1, 2));
    FAILS(SHERD_EINVAL, sherd_document_spans(m->world, NUL(lengths), 1, 2));
    FAILS(SHERD_EINVAL, sherd_document_spans(m->world, lengths, BAD(0, 1), 2));
    FAILS(SHERD_EINVAL, sherd_document_spans(m->world, lengths, 1, BAD(0, 2)));
    FAILS(SHERD_EINVAL, sherd_attention_with(&out, &sums, q, q, NUL(q), NULL));
    CHECK(sherd_tensor_failed(out) == m->wrong && sherd_tensor_failed(sums) == m->wrong);
    sherd_scope_end(m->world);
}

#define ROW(name)   \
    {               \
        TEST(name), \
        {           \
            1, 2    \
        }           \
    }

static const check_test tests[] = {
    ROW(a_layer_of_nothing_is_nothing),
    ROW(a_loss_has_good_options),
    ROW(a_cache_is_asked_for_what_it_has),
    ROW(blocks_are_asked_for_what_they_have),
    ROW(rows_are_asked_for_their_sequences),
    ROW(attention_has_good_options),
    ROW(a_norm_has_a_good_weight),
    ROW(a_rotation_has_good_options),
    ROW(a_norm_of_groups_has_good_groups),
    ROW(a_sum_and_its_norm_have_good_options),
    ROW(a_norm_of_batches_has_good_averages),
};
CHECK_MAIN(tests)
