/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of attention share: grouped heads, masks, and sharded sequences. */
#ifndef SHERD__ATTENTION_ATTEND_H
#define SHERD__ATTENTION_ATTEND_H

#include "kernels/kernels.h"
#include "ops/shared.h"
#include "sherd/ops_layers.h"
#include "vector/choose.h"

/*
 * Operands, and dims of q [batch,positions,groups,heads of a group,width]; k and v lack the fourth.
 * In the place of a mask there may be spans, i32 [batch or 1,positions,2]. There may be no dim of
 * batch, or several, up to SHERD__ATTEND_BATCHES; then all dims behind come so many later.
 */
enum { SHERD__Q, SHERD__K, SHERD__V, SHERD__ATTEND_MASK, SHERD__ATTEND_OPERANDS };
enum {
    SHERD__BATCH,
    SHERD__POSITIONS,
    SHERD__GROUPS,
    SHERD__REPEAT,
    SHERD__WIDTH,
    SHERD__QUERY_DIMS
};
enum { SHERD__MASK_DIMS = 5 }; /* [batch,groups,heads of a group,queries,keys] */
enum { SHERD__ATTEND_BATCHES = SHERD_MAX_DIMS - 4 };

/* Dims of batch of q in groups. */
static inline int sherd__attend_batches(const sherd_tensor *q)
{
    return q->ndim - (SHERD__QUERY_DIMS - 1);
}

typedef struct sherd__attend_attributes {
    double scale, p, softcap;
    int64_t window, zigzag; /* zigzag: only of pieces; others get rows in order */
    sherd__key key;
    bool causal, wants_mask;
    bool ring; /* of pieces: in the place of a gather */
} sherd__attend_attributes;

#define SHERD__ATTEND_FIELDS                                         \
    {                                                                \
        SHERD_FIELD(sherd__attend_attributes, scale, DOUBLE),        \
            SHERD_FIELD(sherd__attend_attributes, p, DOUBLE),        \
            SHERD_FIELD(sherd__attend_attributes, softcap, DOUBLE),  \
            SHERD_FIELD(sherd__attend_attributes, window, INT64),    \
            SHERD_FIELD(sherd__attend_attributes, zigzag, INT64),    \
            SHERD__KEY_FIELDS(sherd__attend_attributes, key),        \
            SHERD_FIELD(sherd__attend_attributes, causal, BOOL),     \
            SHERD_FIELD(sherd__attend_attributes, wants_mask, BOOL), \
            SHERD_FIELD(sherd__attend_attributes, ring, BOOL)        \
    }

/* The letters of so many dims of batch in rules; and the rule of a call, with them for each `*`. */
void sherd__attend_letters(char out[SHERD__ATTEND_BATCHES + 1], int batches);
void sherd__attend_rule(sherd_call *call, int batches, const char *text);

/*
 * A dim of batch, or some that are as one: items, and from one to the next items here, elements of
 * the mask, numbers of the spans, items of the whole.
 */
typedef struct sherd__attend_level {
    int64_t size, item, mask, span, first;
} sherd__attend_level;

/* Problems for kernels: of one `s` is the first. level[0] is its batch. */
typedef struct sherd__attend_parts {
    sherd__attending s;
    int levels;
    int64_t parts;
    sherd__attend_level level[SHERD__ATTEND_BATCHES + 1];
} sherd__attend_parts;

/* Of dims of batch, outer ones first, whose `item` is not read; s has no batch yet. */
sherd__attend_parts sherd__attend_split(const sherd__attending *s, int dims,
                                        const sherd__attend_level *dim);

/* Part i, its first item, and where its mask begins, in elements. */
typedef struct sherd__attend_part {
    sherd__attending s;
    int64_t item, mask;
} sherd__attend_part;

sherd__attend_part sherd__attend_part_of(const sherd__attend_parts *p, int64_t i);

/*
 * The attention that this rank computes, if it has all keys; the operands from `q` on are q, k, v
 * and the mask.
 */
sherd__attend_parts sherd__attend_problem(const sherd_call *call, int q);

/* As one part. */
static inline sherd__attend_parts sherd__attend_whole(const sherd__attending *s)
{
    return (sherd__attend_parts){.s = *s, .levels = 1, .parts = 1};
}

/* Scratch for the kernels of a dtype. NULL: failed. */
void *sherd__attend_workspace(sherd_call *call, sherd_dtype dtype, const sherd__attending *problem);

/* q, k and v, and what else backward has; out is dq, dk and dv. NULL if absent. */
typedef struct sherd__attend_arrays {
    void *const *out;
    double *dmask;
    const void *const *q;
    const void *dout, *dlog_sum, *result, *log_sum;
} sherd__attend_arrays;

/* What is wrong with a window or a softcap; NULL: nothing. */
const char *sherd__attend_fault(sherd_call *call, bool causal, int64_t window, double softcap);

/*
 * Pairs of a query at a position in [lo, hi) and a key that it sees, of `keys` in all. `window` 0:
 * none.
 */
double sherd__attend_pairs(int64_t lo, int64_t hi, int64_t keys, bool causal, int64_t window);

/*
 * Floating-point operations of a dry world: two products over what queries see of all keys. Five
 * such products are what backward takes.
 */
double sherd__attend_operations(const sherd__attending *problem);

/* Whether what stands in the mask's place says which keys are seen; NULL: there is nothing. */
static inline bool sherd__attend_are_spans(const sherd_tensor *mask)
{
    return mask && mask->dtype == SHERD_I32;
}

/* Refuse spans that fall; the CPU looks at them in any case. False: they do, or it has failed. */
bool sherd__attend_check_spans(sherd_call *call);

/* One kernel for all of a problem, whose items may have spans of their own. */
void sherd__attend_kernel(const sherd__kernels *kernels, sherd_dtype dtype,
                          const sherd__attend_parts *problem, void *const *out,
                          const void *const *q, void *workspace);
void sherd__attend_grad_kernel(const sherd__kernels *kernels, sherd_dtype dtype,
                               const sherd__attend_parts *problem,
                               const sherd__attend_arrays *arrays, void *workspace);

/*
 * Run the fastest kernels that can do it; `out` gets the result and the logarithms of sums. False:
 * failed.
 */
bool sherd__attend_run(sherd_call *call, const sherd__attend_parts *problem, void *const *out,
                       const void *const *q);
bool sherd__attend_run_back(sherd_call *call, const sherd__attend_parts *problem,
                            const sherd__attend_arrays *arrays);

/*
 * The same on the GPU, of an operator whose operands begin with q, k and v. False: it does not run
 * there, or the GPU has no kernel for the problem; nothing was done.
 */
bool sherd__attend_there_run(sherd_call *call, const sherd__attend_parts *problem);
/* Which operands backward has where; k and v follow q. dlog_sum: -1 = there is none. */
typedef struct sherd__attend_there {
    int dout, dlog_sum, q, result, log_sum;
} sherd__attend_there;
/* dmask, of the GPU, is added to; NULL = not wanted. */
bool sherd__attend_grad_there(sherd_call *call, const sherd__attend_parts *problem,
                              const sherd__attend_there *at, double *dmask);

#define SHERD__ATTEND_DIMS \
    "q, k and v must have three to seven dims [...,positions,heads,width], and as many"

/* What is wrong with the dims of q, k and v, if q has so many with one of batch; NULL: nothing. */
const char *sherd__attend_describe_dims(const sherd_call *call, int q_dims);

/* Describe: what q, k, v and the mask must be, and the rule of forward. */
const char *sherd__attend_describe(sherd_call *call);

/*
 * Describe of backward, whose operands are dout, dlog_sum, q, k, v, mask, out and log_sum. If the
 * gradient of the mask is not needed, it has one element, 0.
 */
const char *sherd__attend_describe_grad(sherd_call *call);

/* Write the gradient of the mask, given in f64, to result `mask`. */
void sherd__attend_give_mask(sherd_call *call, const double *sum);

/* Operands in zigzag order, put in order: q, k, v, and of a mask rows and columns that it has. */
void sherd__attend_in_order(sherd_tensor **out, sherd_tensor *const *in, int64_t zigzag);

/* What scores are multiplied by. */
double sherd__attend_scale(const sherd_tensor *q, const sherd_attention_options *options);

/*
 * For queries with positions of their own. If the heads that share keys have at most
 * SHERD__ATTEND_FEW queries, these are few, and read the keys where they lie. Otherwise runs of
 * queries at consecutive positions are computed at once: run_of gives the length of the run that
 * begins at where[0], up to n.
 */
enum { SHERD__ATTEND_FEW = 16 };
typedef struct sherd__cached_attributes {
    double scale, softcap;
    int64_t window;
    bool grouped; /* operands fit, and q has its heads in groups */
} sherd__cached_attributes;

#define SHERD__CACHED_FIELDS                                        \
    {                                                               \
        SHERD_FIELD(sherd__cached_attributes, scale, DOUBLE),       \
            SHERD_FIELD(sherd__cached_attributes, softcap, DOUBLE), \
            SHERD_FIELD(sherd__cached_attributes, window, INT64),   \
            SHERD_FIELD(sherd__cached_attributes, grouped, BOOL)    \
    }

/*
 * Apply such an operator to in[operands], of which q is the first, [positions,heads,width] with or
 * without a batch before. Operands that fit give q by so many groups of heads, and a result as q; 0
 * groups: they do not fit, and are refused as they are.
 */
sherd_tensor *sherd__apply_cached(const sherd_op *op, sherd_tensor **in, int operands,
                                  int64_t groups, const sherd_cached_options *options);
/* What is wrong with them; NULL: nothing. */
const char *sherd__cached_fault(sherd_call *call);
/* Whether q has been put into groups: a caller's q of five dims is none. */
static inline bool sherd__is_grouped(const sherd_call *call)
{
    return ((const sherd__cached_attributes *)call->attributes)->grouped;
}
/* The problem of few queries, whose first and last keys are 2 x queries numbers at `seen`. */
static inline sherd__cached sherd__cached_few(const sherd__attending *s, int64_t queries,
                                              int64_t keys, int64_t *seen)
{
    return (sherd__cached){.queries = queries,
                           .groups = s->groups,
                           .repeat = s->repeat,
                           .width = s->width,
                           .keys = keys,
                           .key_row = s->groups * s->width,
                           .seen = seen,
                           .before = s->window && seen ? seen + queries : NULL,
                           .scale = s->scale,
                           .softcap = s->softcap};
}
/* The first key that a query at a position sees. */
int64_t sherd__cached_before(int64_t window, int64_t position);

/* One item of q by groups, here: all its queries, and no keys yet; of a cache of so many keys. */
sherd__attending sherd__attend_item(const sherd_call *call, int64_t keys);
int64_t sherd__attend_run_of(const int32_t *where, int64_t n);
/* Of so many rows, and a cache of so many keys, as full as it may be. */
double sherd__cached_operations(const sherd__attending *s, int64_t rows, int64_t keys);
/* Leave out the first keys of a problem if no query sees them. Returns how many those are. */
int64_t sherd__attend_skip(sherd__attending *s);

/*
 * By the operator without groups: out[2] is the result and, if `summed`, the logarithms of sums;
 * otherwise out[1] is undefined. False: failed.
 */
bool sherd__attend_heads(sherd_tensor *out[2], sherd_tensor *const *in, double scale, bool causal,
                         bool summed);
/* The same for q in groups of one head, summed. */
bool sherd__attend_fast(sherd_tensor *out[2], sherd_tensor *const *in, double scale, bool causal);

/* The backward of an operator whose operands are q, k, v, and whose results are these two. */
void sherd__attend_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                        double scale, bool causal);

/*
 * The formulas of attention (sherd__differentiate): with q in groups, and for q, k and v with the
 * same heads.
 */
sherd_tensor *sherd__attend_formula(sherd_node *node, sherd_tensor *const *in, int result);
sherd_tensor *sherd__attend_heads_formula(sherd_tensor *const *in, double scale, bool causal,
                                          int result);

/* ---- sequences that are sharded -------------------------------------------------------------- */

/* Rows whose positions follow one another. */
typedef struct sherd__row_run {
    int64_t row, position, rows;
} sherd__row_run;

/* The run behind this one (behind {.row = first}, that of `first`), up to `end`; false: none. */
bool sherd__row_run_next(sherd__row_run *s, int64_t n, int64_t zigzag, int64_t end);

/* Pairs of the rows [lo, hi), of n, and a key that they see (sherd__attend_pairs). */
double sherd__attend_pairs_of(int64_t lo, int64_t hi, int64_t n, int64_t keys,
                              const sherd__attend_attributes *attributes);

/* Which keys each shard of queries meets, and when (attend_rounds.c). Pure; equal on all ranks. */
typedef struct sherd__round {
    const sherd_layout *q, *k;
    bool causal, ring;
    int64_t window, zigzag;
    int64_t shards; /* of queries, and of keys */
    int visits;     /* to keys of other ranks, or of all */
} sherd__round;

sherd__round sherd__round_of(const sherd_layout *q, const sherd_layout *k,
                             const sherd__attend_attributes *attributes);
/* The rows of keys [*first, *end) that shard i meets in a visit; equal if there are none. */
void sherd__round_keys(const sherd__round *round, int visit, int64_t i, int64_t *first,
                       int64_t *end);
/* The window of a visit; NULL: nobody has any keys, or, *status, it has failed. */
struct sherd__window *sherd__round_window(sherd_status *status, const sherd__round *round,
                                          int visit);
/* Where shard i of the positions begins. */
int64_t sherd__round_cut(const sherd_layout *layout, int64_t i);

/*
 * A ring's keys, in an order by which the most that a shard of queries meets in a visit is found
 * after one look at each, or few. It keeps the round; `heap` is that of its layouts' space.
 */
typedef struct sherd__visits sherd__visits;
sherd_status sherd__visits_create(sherd__visits **out, const sherd__round *round);
void sherd__visits_destroy(sherd__visits *ring, sherd__heap *heap);
int64_t sherd__visits_most(const sherd__visits *ring, int visit);

/*
 * The layouts of attention's operands, and of the logarithms of sums, when sequences stay sharded.
 */
typedef struct sherd__lying {
    const sherd_layout *q, *k, *mask, *sum; /* v as k */
} sherd__lying;

/* For operands with these layouts (the mask's may be NULL). */
sherd_status sherd__attend_lie(sherd__lying *out, const sherd_layout *const *operands);

/* Whether q, k or v, whose shapes fit, have a sharded sequence. */
bool sherd__attend_is_sharded(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v);

/*
 * How to communicate: for operands `in`, with q in groups, the cheapest way, or the one that was
 * asked for. For HEADS, the layout that each operand but the mask is moved to, and the layout that
 * the result is moved back to.
 */
typedef struct sherd__choice {
    sherd_attention_way way; /* CHEAPEST: no sequence is sharded */
    const sherd_layout *to[SHERD__ATTEND_MASK], *back, *back_sum;
} sherd__choice;

sherd_status sherd__attend_choose(sherd__choice *out, sherd_tensor *const *in,
                                  const sherd__attend_attributes *attributes,
                                  sherd_attention_way asked);

/* ---- the operators --------------------------------------------------------------------------- */

/* Operands of backward. */
enum {
    SHERD__G_DOUT,
    SHERD__G_DLOG_SUM,
    SHERD__G_Q,
    SHERD__G_K,
    SHERD__G_V,
    SHERD__G_MASK,
    SHERD__G_OUT,
    SHERD__G_LOG_SUM
};

#define SHERD__ATTEND_NEEDS                                                    \
    (SHERD_NEEDS_OPERAND(SHERD__Q) | SHERD_NEEDS_OPERAND(SHERD__K) |           \
     SHERD_NEEDS_OPERAND(SHERD__V) | SHERD_NEEDS_OPERAND(SHERD__ATTEND_MASK) | \
     SHERD_NEEDS_RESULT(0) | SHERD_NEEDS_RESULT(1))

/* What operators of whole sequences and of pieces have in common, forward and backward. */
double sherd__attend_general_operations(const sherd_call *call);
double sherd__attend_general_operations_back(const sherd_call *call);

#define SHERD__ATTEND_FORWARD                                                               \
    .autocast = SHERD_AUTOCAST_LOW,                                                         \
    .operand = {{"q", 0}, {"k", 0}, {"v", 0}, {"mask", SHERD_OP_ANY | SHERD_OP_OPTIONAL}},  \
    .result = {{"out", 0}, {"log_sum", SHERD_OP_STATISTIC}}, .field = SHERD__ATTEND_FIELDS, \
    .attributes = sizeof(sherd__attend_attributes), .describe = sherd__attend_describe,     \
    .operations = sherd__attend_general_operations,                                         \
    .needs = {SHERD__ATTEND_NEEDS, SHERD__ATTEND_NEEDS, SHERD__ATTEND_NEEDS, SHERD__ATTEND_NEEDS}

#define SHERD__ATTEND_BACKWARD                                                                \
    .operand = {{"dout", SHERD_OP_OPTIONAL},                                                  \
                {"dlog_sum", SHERD_OP_ANY | SHERD_OP_OPTIONAL},                               \
                {"q", 0},                                                                     \
                {"k", 0},                                                                     \
                {"v", 0},                                                                     \
                {"mask", SHERD_OP_ANY | SHERD_OP_OPTIONAL},                                   \
                {"out", 0},                                                                   \
                {"log_sum", SHERD_OP_ANY}},                                                   \
    .result = {{"dq", 0}, {"dk", 0}, {"dv", 0}, {"dmask", 0}}, .field = SHERD__ATTEND_FIELDS, \
    .attributes = sizeof(sherd__attend_attributes), .describe = sherd__attend_describe_grad,  \
    .operations = sherd__attend_general_operations_back

/*
 * In backward: apply the operator of the gradients with the node's attributes, and return the
 * gradients that are wanted.
 */
void sherd__attend_gradients(sherd_node *node, const sherd_op *op, sherd_tensor *const *grad_out,
                             sherd_tensor **grad_in);

#endif
