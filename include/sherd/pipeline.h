/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines. A model is cut into *stages*, each a module on a mesh of its own ranks, and a batch
 * into *microbatches*, so that stages compute on different microbatches at the same time. The
 * outputs of a stage go to the next one through a channel, and their gradients come back through
 * another. A *place* is a mesh that has stages.
 *
 *     place 0  0 1 [0] 2 [1] 3 [2]   [3]        1F1B, 2 places, 4 microbatches:
 *     place 1    0 [0] 1 [1] 2 [2] 3 [3]        m: forward, [m]: backward of microbatch m
 *
 * Only the ranks that send or receive a tensor take part in its move, and senders do not wait. So
 * stages need not be in step, and shapes may differ from one microbatch to the next.
 *
 *     const sherd_stage stages[] = {{mesh, first, NULL}, {other, second, NULL}};
 *     const sherd_microbatches work = {.count = 8, .feed = feed, .loss = loss_of_batch};
 *     sherd_pipeline *pipeline; // all ranks do the same; mesh and other share no rank
 *     if (sherd_pipeline_create(&pipeline, world, stages, 2, SHERD_PIPELINE_1F1B))
 *         return 1;
 *     double sum = sherd_pipeline_run(pipeline, &work); // then a step of each rank's optimizer
 */
#ifndef SHERD_PIPELINE_H
#define SHERD_PIPELINE_H

#include "module.h"

SHERD_BEGIN

/* ---- channels -------------------------------------------------------------------------------- */

/*
 * A way for tensors from one mesh to another. The ranks that receive need not know shapes, dtypes
 * or layouts. Tensors arrive in the order in which they were sent.
 */
typedef struct sherd_channel sherd_channel;

/**
 * Make a channel from one mesh to another, which share no rank. While it exists it takes one of the
 * world's groups (see sherd_mesh_create).
 *
 * @collective the world
 * @shapes     placements: of the tensors on `to`, as text (sherd_redistribute_to); NULL = those
 *             that they have on `from` if both meshes have the same axis names and extents,
 *             otherwise replicated
 * @owns       the caller destroys *out with sherd_channel_destroy; NULL on failure; `placements` is
 *             copied
 * @errors     EINVAL a sub-mesh, meshes of two worlds, meshes that share a rank, placements that
 *             cannot be read; ELIMIT too many groups; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_channel_create(sherd_channel **out, const sherd_mesh *from,
                                             const sherd_mesh *to, const char *placements);

/**
 * Destroy a channel; NULL is a no-op. Tensors that were sent and not received are lost; in that
 * case its group, and some 40 KB, are not free again until a check fails or the world closes.
 *
 * @local
 * @errors none; ranks that destroy channels in different orders get EDIFFER when they make the next
 *         one
 */
SHERD_API void sherd_channel_destroy(sherd_channel *channel);

/**
 * Send tensors. Returns without waiting for the receivers, unless they are eight sends behind. The
 * tensors may be released at once; writing to one waits until it has been received. Tensors that
 * were sent before a sherd_world_check can be received after it, but are lost if the check fails.
 *
 * @collective the mesh that the channel comes from
 * @shapes     t: [count], 0 <= count <= SHERD_MAX_ARGS, each distributed on that mesh, or plain and
 *             equal on its ranks
 * @numerics   values are copied bit for bit; pending reductions are added first, in rank order
 * @owns       tensors are only read; the send is not recorded for backward
 * @errors     EINVAL a call on a rank of another mesh, a tensor of another mesh, a tensor that
 *             varies, placements that do not fit its shape; EDIFFER; ENOMEM; EPEER; all by the
 *             alarm
 */
SHERD_API void sherd_channel_send(sherd_channel *channel, sherd_tensor *const *t, int count);

/**
 * Receive the tensors of one send.
 *
 * @collective the mesh that the channel goes to
 * @shapes     out: gets [count] tensors; count: as many as were sent
 * @owns       results belong to the scope; they require no gradient
 * @errors     EINVAL a call on a rank of another mesh; EDIFFER another number of tensors was sent;
 *             ENOMEM; EPEER; all by the alarm, and then each out[i] is the failed tensor
 */
SHERD_API void sherd_channel_receive(sherd_channel *channel, sherd_tensor **out, int count);

/* ---- stages ---------------------------------------------------------------------------------- */

/* A stage. Its outputs become the first positional inputs of the next stage. */
typedef struct sherd_stage {
    const sherd_mesh *mesh; /* its ranks; see sherd_mesh_select */
    sherd_module *module;   /* made parallel on that mesh; ignored on ranks outside it */
    const char *input;      /* `placements` of the channel that leads here; may be NULL */
} sherd_stage;

typedef enum sherd_pipeline_schedule {
    /*
     * One forward, one backward: each place computes a backward as soon as it can, so it keeps the
     * activations of at most as many microbatches as there are places.
     *
     * If places have several stages, this is the interleaved schedule, in which the pipeline fills
     * and empties in a fraction of the time, and keeps more. With p places of v > 1 stages each,
     * where p divides the number of microbatches, a place keeps the activations of at most
     * (v + 1) p - 1 forwards of one stage, of at most 2 p microbatches. Where it does not divide
     * it, or places have not equally many stages, places may have to begin with more forwards, lest
     * they wait for each other for ever: in the worst case with all of them, as GPipe does
     * (sherd_pipeline_turns).
     */
    SHERD_PIPELINE_1F1B = 0,
    SHERD_PIPELINE_GPIPE = 1, /* all forwards, then all backwards */
    /*
     * 1F1B with each backward in two turns: first the gradients of a stage's inputs, which the
     * place before waits for; those of its weights later, when the place would otherwise wait
     * itself (ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism", 2023). If each of the three
     * turns takes time 1, and there are at least as many microbatches as places, a place waits for
     * a time of (places - 1) in all; with 1F1B it is 3 (places - 1).
     *
     *     place 0  0 1   [0](0) 2 [1](1) 3 [2](2)[3](3)
     *     place 1    0 [0] 1 [1](0) 2 [2](1) 3 [3](2)(3)    (m): gradients of weights
     *
     * Between [m] and (m) a place keeps only what (m) needs: the inputs of products with weights,
     * and the gradients of their results; gradients of weights that an operator has computed
     * together with those of its inputs (norms, convolutions); of checkpointed modules their
     * arguments, and those recomputed tensors that (m) needs. With one stage at each place, a place
     * keeps at most as many microbatches that are not through with (m) as there are places; with
     * several, the bounds of 1F1B hold, up to (m).
     *
     * Losses and gradients have the same bits as with 1F1B: gradients are added to weights in the
     * order of the microbatches. Hooks on gradients of weights run in (m). A stage whose inputs
     * require no gradient, such as the first one, computes its whole backward in (m). If places
     * have several stages, the order is that of 1F1B's interleaved schedule.
     */
    SHERD_PIPELINE_ZERO_BUBBLE = 2,
    /*
     * Two stages at each place, there and back: of 2 p stages place i has stages i and 2 p - 1 - i,
     * so the last stage, and the loss, are where the first one is (ZB-V of Qi et al., "Pipeline
     * Parallelism with Controllable Memory", 2024; PyTorch: ScheduleZBVZeroBubble). If each of the
     * three turns takes time 1, and there are at least 2 p - 1 microbatches, a place computes
     * without a pause from its first turn to its last. Fewer do as well, with pauses. A place keeps
     * the activations of at most 2 p forwards of one stage, up to (m). Otherwise as ZERO_BUBBLE.
     *
     *     place 0  0   1   2   0'  [0'](0')1'  [1'](1')[0] (0) 2'  [2'](2')[1] (1) [2] (2)
     *     place 1      0   0'  1   1'  [0'](0')2   [0] (0) 2'  [1'](1')[1] [2'][2] (1) (2')(2)
     *
     * (m' is of the second stage of a place.)
     */
    SHERD_PIPELINE_ZERO_BUBBLE_V = 3
} sherd_pipeline_schedule;

typedef struct sherd_pipeline sherd_pipeline;

/**
 * Make a pipeline. Stage i is at place i modulo the number p of places (different meshes), or, with
 * ZERO_BUBBLE_V, at place i or 2 p - 1 - i. While it exists it takes two of the world's groups (see
 * sherd_mesh_create) for each pair of neighbouring stages.
 *
 * @collective the world
 * @shapes     stages: [count]; count >= 1
 * @owns       the caller destroys *out with sherd_pipeline_destroy; NULL on failure; modules stay
 *             the caller's, and must be destroyed after the pipeline; texts are copied
 * @errors     EINVAL no stage, a sub-mesh, a stage without a module on one of its ranks, different
 *             meshes that share ranks, meshes that do not come in the order stated above (so, with
 *             ZERO_BUBBLE_V, not two stages at each), an unknown schedule; ELIMIT too many groups;
 *             EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_pipeline_create(sherd_pipeline **out, sherd_world *world,
                                              const sherd_stage *stages, int count,
                                              sherd_pipeline_schedule schedule);

/**
 * Destroy a pipeline; NULL is a no-op.
 *
 * @local
 * @errors as sherd_channel_destroy; EINVAL, by the alarm, and nothing is destroyed: in a call from
 *         its own `feed` or `loss`
 */
SHERD_API void sherd_pipeline_destroy(sherd_pipeline *pipeline);

/**
 * Tie parameters of two stages, so that they are copies of one, such as the embedding table and the
 * weight of the last product. The second now gets the values of the first. Each sherd_pipeline_run
 * then adds the sum of both gradients to each of them, so optimizers with equal options keep them
 * equal; sherd_optimizers_grad_norm and sherd_optimizers_clip count only the first. The tie lasts
 * as long as the pipeline; if the stages are at two places, it takes one of the world's groups. If
 * both names refer to one tensor, nothing is done.
 *
 * @collective the world
 * @shapes     a, b: numbers of stages; a_path, b_path: names in the modules of these stages, such
 *             as "table.weight"; shapes and dtypes must be equal, layouts need not
 * @numerics   in each run, the settled gradients of a's and b's parameter are added to each other,
 *             then to what was there before: the same bits in both
 * @owns       the pipeline keeps both parameters alive; texts are copied
 * @errors     EINVAL no such stage or parameter, one that is plain or tied already, different
 *             shapes or dtypes, a call from its own `feed` or `loss`; ELIMIT; EDIFFER; ENOMEM;
 *             EPEER; failures while values move also raise the alarm. Later, in a run: EINVAL only
 *             one of the two requires a gradient
 */
SHERD_CALL sherd_status sherd_pipeline_tie(sherd_pipeline *pipeline, int a, const char *a_path,
                                           int b, const char *b_path);

/*
 * Called on the ranks of a stage before its forward, to complete the inputs: `in` has the outputs
 * of the stage before, and is empty for stage 0. Append other inputs, such as the data of the
 * microbatch, by position or by name; they get no gradient from the pipeline.
 */
typedef void (*sherd_pipeline_feed)(void *payload, int stage, int64_t microbatch, sherd_args *in);

/*
 * Called on the ranks of the last stage with its outputs. Returns the loss of the microbatch, a
 * tensor of one element; NULL only if there is no backward.
 */
typedef sherd_tensor *(*sherd_pipeline_loss)(void *payload, int64_t microbatch,
                                             const sherd_args *out);

/* What a run computes. `count` and `forward_only` are the same on all ranks. */
typedef struct sherd_microbatches {
    int64_t count;
    bool forward_only;        /* no backward; nothing is recorded */
    sherd_pipeline_feed feed; /* may be NULL on ranks whose stages need no other inputs */
    sherd_pipeline_loss loss; /* needed on ranks of the last stage, unless forward_only is set */
    void *payload;            /* passed to both */
} sherd_microbatches;

/**
 * Run all microbatches through the pipeline, forward and backward. Returns the sum of the losses,
 * the same on all ranks; NaN on ranks that have seen a failure. Gradients are added to those of the
 * parameters, as by a sherd_backward for each microbatch; the optimizers settle what is pending
 * (sherd_optimizers_clip clips them together). The gradient is that of the sum: for a mean over
 * microbatches of equal size, divide each loss by their number.
 *
 * Each stage computes its microbatches in order, whatever the schedule, so random numbers do not
 * depend on it.
 *
 * @collective the world
 * @numerics   losses are added in f64, in the order of the microbatches
 * @owns       everything is only read
 * @errors     EINVAL no microbatch, or more than 2^24 microbatches times stages, a call from its
 *             own `feed` or `loss`, an output for another place that is plain and varies, or is on
 *             another mesh than the stage's, a loss that is missing or does not have one element;
 *             EDIFFER ranks passed different counts; those of the stages; all by the alarm
 */
SHERD_API double sherd_pipeline_run(sherd_pipeline *pipeline, const sherd_microbatches *work);

/* What a place does in one turn. */
typedef enum sherd_pipeline_kind {
    SHERD_PIPELINE_FORWARD = 0,
    SHERD_PIPELINE_BACKWARD = 1,        /* a whole backward */
    SHERD_PIPELINE_BACKWARD_INPUTS = 2, /* only the gradients that go to the stage before */
    SHERD_PIPELINE_BACKWARD_WEIGHTS = 3 /* the rest of that backward */
} sherd_pipeline_kind;

/* One turn of a place. */
typedef struct sherd_pipeline_turn {
    int stage;
    sherd_pipeline_kind kind;
    int64_t microbatch;
} sherd_pipeline_turn;

/**
 * The turns of one place, in the order in which sherd_pipeline_run takes them.
 *
 * @local
 * @shapes out: gets at most `room` turns; NULL = only count
 * @errors none; returns how many turns there are, even if `room` is smaller; 0 if there is no such
 *         place, no microbatch, more of them than sherd_pipeline_run takes, or no memory
 */
SHERD_API int64_t sherd_pipeline_turns(const sherd_pipeline *pipeline, int place,
                                       int64_t microbatches, sherd_pipeline_turn *out,
                                       int64_t room);

SHERD_END

#endif
