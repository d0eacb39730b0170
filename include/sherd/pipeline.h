/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines: a model that is cut into stages, each of which has ranks of its own, a mesh. A batch
 * is cut too, into microbatches, so that stages compute on different ones at the same time. What a
 * stage puts out goes to the next one by a channel, and its gradient comes back by it.
 *
 *     place 0  0 1 [0] 2 [1] 3 [2]   [3]        1F1B, 2 places, 4 microbatches:
 *     place 1    0 [0] 1 [1] 2 [2] 3 [3]        m: forward, [m]: backward of microbatch m
 *
 * Only ranks that a tensor comes from or goes to take part in its move, and a sender does not wait.
 * So stages need not be in step, and shapes may differ from one microbatch to the next.
 */
#ifndef SHERD_PIPELINE_H
#define SHERD_PIPELINE_H

#include "module.h"

SHERD_BEGIN

/* ---- channels -------------------------------------------------------------------------------- */

/*
 * Tensors go from the ranks of one mesh to those of another, which need not know their shapes,
 * dtypes or layouts. They arrive in the order in which they were sent.
 */
typedef struct sherd_channel sherd_channel;

/**
 * Make a channel from one mesh to another, which share no rank. It takes one group of the world's
 * (see sherd_mesh_create), as long as it lives; the next channel takes the same one.
 *
 * @collective the world
 * @shapes     placements: how tensors lie on `to`, as in sherd_redistribute_to; NULL = as on
 *             `from`, if the meshes have axes of the same names and extents, otherwise replicated
 * @owns       the caller destroys *out; NULL on failure; the text is copied
 * @errors     EINVAL a sub-mesh, meshes of two worlds, meshes that share a rank, placements that
 *             are malformed for any number of dims; ELIMIT too many groups; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_channel_create(sherd_channel **out, const sherd_mesh *from,
                                             const sherd_mesh *to, const char *placements);

/**
 * Destroy a channel; NULL is a no-op. What was sent and not received is lost; then its group and
 * some 40 KB stay taken until a check fails or the world closes.
 *
 * @local
 * @errors none; ranks that destroy channels in different order get EDIFFER when they make the next
 */
SHERD_API void sherd_channel_destroy(sherd_channel *channel);

/**
 * Send tensors. Returns without waiting for those who receive, unless they are eight sends behind.
 * The tensors may be released at once; who writes to one waits until it has been read. What was
 * sent before a check may be received after it; a check that fails loses it.
 *
 * @collective the mesh that the channel comes from
 * @shapes     t: [count], 0 <= count <= SHERD_MAX_ARGS, each distributed on that mesh, or plain and
 *             equal on its ranks
 * @numerics   values are copied bit for bit; pending reductions are added first, in rank order
 * @owns       tensors are only read. Not recorded for backward
 * @errors     EINVAL a rank of another mesh, a tensor of another mesh, one that varies, placements
 *             that do not fit its shape; EDIFFER; ENOMEM; EPEER; all by the alarm
 */
SHERD_API void sherd_channel_send(sherd_channel *channel, sherd_tensor *const *t, int count);

/**
 * Receive the tensors of one send.
 *
 * @collective the mesh that the channel goes to
 * @shapes     out: [count]; count: as many as were sent
 * @owns       results belong to the scope; they require no gradient
 * @errors     EINVAL a rank of another mesh; EDIFFER another number of tensors was sent; ENOMEM;
 *             EPEER; all by the alarm, and then each out[i] is the failed tensor
 */
SHERD_API void sherd_channel_receive(sherd_channel *channel, sherd_tensor **out, int count);

/* ---- stages ---------------------------------------------------------------------------------- */

/* A stage. Its outputs, without names, are the first inputs of the next one. */
typedef struct sherd_stage {
    const sherd_mesh *mesh; /* its ranks; see sherd_mesh_select */
    sherd_module *module;   /* made parallel on that mesh; not looked at on other ranks */
    const char *input; /* placements of what arrives, as in sherd_channel_create; may be NULL */
} sherd_stage;

typedef enum sherd_pipeline_schedule {
    /*
     * Each place computes a backward as soon as it can, so it keeps the activations of only as many
     * microbatches as there are places. If places have several stages, this is the interleaved
     * schedule: the pipeline fills and empties in a fraction of the time.
     */
    SHERD_PIPELINE_1F1B = 0,
    SHERD_PIPELINE_GPIPE = 1, /* all forwards, then all backwards */
    /*
     * 1F1B with backward in two turns: the gradients of a stage's inputs, which the place before
     * waits for, and later those of its weights, where the place would wait itself (ZB-H1 of Qi et
     * al., "Zero Bubble Pipeline Parallelism", 2023). If the three turns take 1 each, and there are
     * no fewer microbatches than places, a place waits for (places - 1) in all, with 1F1B for
     * 3 (places - 1).
     *
     *     place 0  0 1   [0](0) 2 [1](1) 3 [2](2)[3](3)
     *     place 1    0 [0] 1 [1](0) 2 [2](1) 3 [3](2)(3)    (m): gradients of weights
     *
     * From [m] to (m) a place keeps what (m) needs, and no more: the inputs of products with
     * weights and the gradients of their results; gradients of weights that an operator computes
     * with those of its inputs in one go (of norms and convolutions); of a checkpointed module its
     * arguments, and of what has been computed again what (m) needs. A microbatch that is not
     * through with (m) counts as one that a place keeps, and no place keeps more of them than
     * 1F1B's first one: as many as there are places.
     *
     * Losses and gradients have the bits of 1F1B: weights get theirs in the order of the
     * microbatches. Hooks on gradients of weights run in (m). A stage whose inputs want no
     * gradient, as the first one's, leaves all to (m). If places have several stages, forwards and
     * backwards come as in 1F1B's interleaved schedule.
     */
    SHERD_PIPELINE_ZERO_BUBBLE = 2
} sherd_pipeline_schedule;

typedef struct sherd_pipeline sherd_pipeline;

/**
 * Make a pipeline. A *place* is a mesh that has stages: stage i lies at place i modulo the number
 * of places. It takes two groups of the world's for each pair of neighbouring stages, as long as it
 * lives.
 *
 * @collective the world
 * @shapes     stages: [count]; count >= 1
 * @owns       the caller destroys *out; NULL on failure; modules stay the caller's and must live
 *             longer; texts are copied
 * @errors     EINVAL no stage, a sub-mesh, a stage without module on one of its ranks, meshes that
 *             share some ranks only, meshes that do not come round in turn, no such schedule;
 *             ELIMIT too many groups; EDIFFER; ENOMEM; EPEER
 */
SHERD_CALL sherd_status sherd_pipeline_create(sherd_pipeline **out, sherd_world *world,
                                              const sherd_stage *stages, int count,
                                              sherd_pipeline_schedule schedule);

/**
 * Destroy a pipeline; NULL is a no-op.
 *
 * @local
 * @errors as sherd_channel_destroy; EINVAL, by the alarm, from its own feed or loss: then nothing
 *         is destroyed
 */
SHERD_API void sherd_pipeline_destroy(sherd_pipeline *pipeline);

/**
 * Tie two parameters of two stages, as the table of symbols and the last product: one parameter of
 * which both have a copy. The second takes the values of the first now. Each sherd_pipeline_run
 * then adds the sum of both gradients to each, so optimizers with equal options keep them equal;
 * sherd_optimizers_grad_norm and sherd_optimizers_clip count the first one only. It lasts as long
 * as the pipeline, and takes a group of the world's if the stages lie at two places. One tensor
 * that is a parameter of both stages needs no tie, and is left alone.
 *
 * @collective the world
 * @shapes     a_path, b_path: as "table.weight", below the modules of stages a and b; shape and
 *             dtype must be equal, layouts need not
 * @numerics   the gradient of a's of a run, settled, plus that of b's, then added to what was there
 *             before: the same bits in both
 * @owns       the pipeline keeps both parameters alive; texts are copied
 * @errors     EINVAL no such stage or parameter, one that is plain or tied already, other shapes or
 *             dtypes, a call from a feed or loss of its own; ELIMIT; EDIFFER; ENOMEM; EPEER; when
 *             values move, by the alarm too. Later, in a run: EINVAL one wants a gradient and the
 *             other does not
 */
SHERD_CALL sherd_status sherd_pipeline_tie(sherd_pipeline *pipeline, int a, const char *a_path,
                                           int b, const char *b_path);

/*
 * Completes the inputs of a stage, on its ranks: `in` has what has arrived from the stage before,
 * and is empty for stage 0. Tensors that are added here, by position or by name, get no gradient
 * from the pipeline.
 */
typedef void (*sherd_pipeline_feed)(void *payload, int stage, int64_t microbatch, sherd_args *in);

/*
 * Called with the outputs of the last stage, on its ranks; returns the loss of the microbatch, of
 * one element, or NULL if there is no backward.
 */
typedef sherd_tensor *(*sherd_pipeline_loss)(void *payload, int64_t microbatch,
                                             const sherd_args *out);

/* What is computed. `count` and `forward_only` are the same on all ranks. */
typedef struct sherd_microbatches {
    int64_t count;
    bool forward_only;        /* nothing is recorded */
    sherd_pipeline_feed feed; /* NULL: on ranks where nothing is to be added */
    sherd_pipeline_loss loss; /* on ranks of the last stage; NULL: forward_only, and no loss */
    void *payload;            /* of both */
} sherd_microbatches;

/**
 * Run all microbatches through the pipeline, forward and backward. Gradients are added to those of
 * the parameters, as by sherd_backward of each microbatch; what is then pending is settled by the
 * optimizers (sherd_optimizers_clip clips them as one). For the mean over microbatches of one size,
 * divide each loss by their number.
 *
 * Each stage computes its microbatches in order, whatever the schedule, so random numbers do not
 * depend on it.
 *
 * @collective the world
 * @numerics   losses are added in f64, in the order of the microbatches
 * @owns       everything is only read
 * @errors     EINVAL no microbatch, or more than 2^24 with all stages counted, a call from a feed
 *             or loss of its own, an output that is not on the stage's mesh and varies, a loss that
 *             is missing or not of one element; EDIFFER other counts on other ranks; those of the
 *             stages; all by the alarm. Returns the sum of the losses, the same on all ranks; NaN
 *             where a failure has been seen
 */
SHERD_API double sherd_pipeline_run(sherd_pipeline *pipeline, const sherd_microbatches *work);

/* What a place does in a turn; whatever is not a forward is a backward, or a part of one. */
typedef enum sherd_pipeline_kind {
    SHERD_PIPELINE_FORWARD = 0,
    SHERD_PIPELINE_BACKWARD = 1,        /* all of it */
    SHERD_PIPELINE_BACKWARD_INPUTS = 2, /* the gradients that go to the stage before */
    SHERD_PIPELINE_BACKWARD_WEIGHTS = 3 /* the rest */
} sherd_pipeline_kind;

/* One turn of a place. */
typedef struct sherd_pipeline_turn {
    int stage;
    sherd_pipeline_kind kind;
    int64_t microbatch;
} sherd_pipeline_turn;

/**
 * The turns of one place, in order, as sherd_pipeline_run takes them.
 *
 * @local
 * @shapes out: [room], or NULL to count only
 * @errors none; returns how many there are, also if `room` is smaller; 0 if there is no such place,
 *         no microbatch or more than sherd_pipeline_run takes, or memory runs out
 */
SHERD_API int64_t sherd_pipeline_turns(const sherd_pipeline *pipeline, int place,
                                       int64_t microbatches, sherd_pipeline_turn *out,
                                       int64_t room);

SHERD_END

#endif
