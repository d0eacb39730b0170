/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy with options on the GPU, as in entropy.c: if classes are sharded, ranks exchange
 * five numbers for each position; for a mean over sharded positions, two numbers more. The CPU does
 * not wait for the GPU.
 */
#include "entropy.h"
#include "stats.h"

#include "base/num.h"
#include "device/entropy.h"
#include "sherd/ops_losses.h"

enum { LOGITS = SHERD__LOGITS, TARGETS };
enum { LOSS = SHERD__LOSS, SUMS, AMOUNT, COUNTED };
enum { G_DY = SHERD__G_DY, G_COUNTED, G_LOGITS, G_TARGETS, G_WEIGHT, G_SUMS, G_AMOUNT };

/* From the numbers of all classes; `pair`: the sums over this rank's positions. False: failed. */
static bool losses(sherd_call *call, const sherd__entropy *e, void *loss, double *pair)
{
    const sherd_layout *layout = call->in[LOGITS]->layout;
    sherd__device *device = sherd__device_in(call);
    sherd_dtype dtype = call->in[LOGITS]->dtype;
    sherd_tensor *stats = sherd__new_stats(call, SHERD__ENTROPY_NUMBERS, e->rows, true);

    if (sherd_tensor_failed(stats))
        return false;
    sherd__device_entropy(device, dtype, e, sherd__device_fresh(stats), call->from[LOGITS]);
    sherd_tensor *all = sherd__gather_stats(stats, layout);
    const void *data = sherd_tensor_failed(all) ? NULL : sherd__device_data(all);
    if (!data)
        return false;
    if (call->out[LOSS]->count)
        sherd__device_entropy_join(device, dtype, e, sherd__stats_parts(all, layout),
                                   call->to[SUMS], call->to[AMOUNT], loss, pair, data);
    return true;
}

/* Room for two numbers. NULL: failed. */
static double *room_for_pair(sherd_call *call)
{
    return sherd__device_scratch(call, 2 * (int64_t)sizeof(double));
}

bool sherd__entropy_there(sherd_call *call, const sherd__entropy *e)
{
    const sherd__entropy_attributes *attributes = call->attributes;
    bool each = attributes->reduction == SHERD_LOSS_NONE;
    double *pair = room_for_pair(call);

    if (!pair || !losses(call, e, each ? call->to[LOSS] : NULL, pair))
        return false;
    if (!each && call->out[LOSS]->count)
        sherd__device_entropy_end(sherd__device_in(call), call->out[LOSS]->dtype, call->to[LOSS],
                                  NULL, pair);
    return true;
}

/* The two numbers of all positions, from those of this rank's. NULL: failed. */
static const double *add_positions(sherd_call *call, double *own)
{
    sherd__device *device = sherd__device_in(call);
    const int64_t bytes = 2 * (int64_t)sizeof(double);
    const sherd_layout *whole = NULL;

    if (!call->in[LOGITS]->layout)
        return own;
    sherd_tensor *sum = sherd__entropy_pair(call, &whole, true);
    if (sherd_tensor_failed(sum))
        return NULL;
    if (sum->count && call->out[LOSS]->count)
        sherd__device_move(device, sherd__device_fresh(sum), own, bytes);
    else if (sum->count)
        sherd__device_set(device, sherd__device_fresh(sum), 0, bytes);
    sum = sherd__move_to(sum, whole, false);
    return sherd_tensor_failed(sum) ? NULL : sherd__device_data(sum);
}

bool sherd__entropy_mean_there(sherd_call *call, const sherd__entropy *e)
{
    double *own = room_for_pair(call);
    const double *pair = own && losses(call, e, NULL, own) ? add_positions(call, own) : NULL;

    if (pair && call->out[LOSS]->count)
        sherd__device_entropy_end(sherd__device_in(call), call->out[LOSS]->dtype, call->to[LOSS],
                                  call->to[COUNTED], pair);
    return pair != NULL;
}

bool sherd__entropy_grad_there(sherd_call *call, bool of_targets)
{
    const sherd__entropy_attributes *attributes = call->attributes;
    sherd__entropy e = sherd__entropy_of(call, G_LOGITS);
    const sherd__entropy_slope slope = {call->from[G_DY], call->from[G_COUNTED],
                                        attributes->reduction == SHERD_LOSS_NONE};

    if (call->out[0]->count)
        sherd__device_entropy_grad(sherd__device_in(call), call->out[0]->dtype, &e, call->to[0],
                                   call->from[G_LOGITS], call->from[G_SUMS],
                                   of_targets ? NULL : call->from[G_AMOUNT], &slope);
    return true;
}
