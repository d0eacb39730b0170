/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention to keys and values that lie in blocks of a pool, as a table says: of a batch of
 * sequences with as many queries each, or of rows, each of which says of which sequence it is, so
 * that some bring hundreds of new tokens and others one. Heads may be sharded, and sequences of a
 * batch; a pool that is sharded by blocks has those of each shard's sequences, or rows. No
 * gradient.
 *
 * Rows that follow one another and are of one sequence are computed together, as a batch of one
 * (attend_blocks.c): whatever else is in the call, they get the same bits.
 */
#include "paged.h"

#include "apply/solve.h"
#include "base/num.h"
#include "sherd/ops_serving.h"

enum {
    Q = SHERD__PAGED_Q,
    K = SHERD__PAGED_K,
    V = SHERD__PAGED_V,
    TABLE = SHERD__PAGED_TABLE,
    WHERE = SHERD__PAGED_WHERE,
    SEQUENCE = SHERD__PAGED_SEQUENCE,
    OPERANDS = SHERD__PAGED_OPERANDS
};
enum {
    BLOCKS = SHERD__POOL_BLOCKS,
    TOGETHER = SHERD__POOL_TOGETHER,
    HEADS = SHERD__POOL_HEADS,
    WIDTH = SHERD__POOL_WIDTH
};

/* Why a pool does not fit queries whose last two dims are heads and width; NULL: it does. */
static const char *pool_misfit(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v)
{
    if (k->ndim != 4 || v->ndim != 4)
        return "k and v must have four dims [blocks,positions of a block,heads,width]";
    for (int d = 0; d < 4; d++)
        if (k->shape[d] != v->shape[d])
            return "k and v must have the same shape";
    if (q->shape[q->ndim - 1] != k->shape[WIDTH])
        return "q and k must have the same width";
    if (k->shape[TOGETHER] < 1)
        return "a block must have a position";
    return k->shape[HEADS] < 1 || q->shape[q->ndim - 2] % k->shape[HEADS] != 0
               ? "the heads of k must divide those of q"
               : NULL;
}

/* Why shapes do not fit, as the caller has them; NULL: they do. */
static const char *misfit(sherd_tensor *const *in)
{
    const sherd_tensor *q = in[Q], *k = in[K], *v = in[V], *table = in[TABLE], *where = in[WHERE];

    if (q->ndim != 4)
        return "q must have four dims [batch,positions,heads,width]";
    const char *reason = pool_misfit(q, k, v);
    if (reason)
        return reason;
    if (table->ndim != 2 || table->shape[0] != q->shape[0])
        return "table must have two dims, the batch of q and the blocks of a sequence";
    return where->ndim != 2 || where->shape[0] != q->shape[0] || where->shape[1] != q->shape[1]
               ? "positions must have two dims, the [batch,positions] of q"
               : NULL;
}

/* Whether a pool has been sharded by blocks. */
static bool is_apart(const sherd_layout *pool)
{
    return pool && pool->spec.dim[BLOCKS].axes > 0;
}

/*
 * What is wrong with how operands lie; NULL: nothing. A pool is too large to be moved. Where it is
 * sharded by blocks, sequences, or rows of them, are by dim `at` of q.
 */
static const char *lie_badly(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v,
                             int at)
{
    if (k->layout != v->layout)
        return "k and v must have the same layout";
    if (!k->layout)
        return NULL;
    if (k->layout->pending_axes)
        return "a pool must not be pending: settle it";
    if (k->layout->spec.dim[TOGETHER].axes || k->layout->spec.dim[WIDTH].axes)
        return "a pool may be sharded by blocks and heads only";
    if (!is_apart(k->layout) ||
        (q->layout && sherd__dim_alike(&q->layout->spec.dim[at], &k->layout->spec.dim[BLOCKS])))
        return NULL;
    return at == SHERD__BATCH
               ? "the pool is sharded by blocks: the sequences of q must be, by the same axes"
               : "the pool is sharded by blocks: the rows of q must be, by the same axes";
}

/* Operands that fit have heads in groups, so 5 dims; others are refused as the caller gave them. */
static const char *describe(sherd_call *call)
{
    const char *reason = sherd__is_grouped(call) ? NULL : misfit(call->in);

    if (!reason)
        reason = sherd__cached_fault(call);
    return reason ? reason : lie_badly(call->in[Q], call->in[K], call->in[V], SHERD__BATCH);
}

/*
 * The way for a sharded pool: sequences, or rows, stay where they are, and heads go where the pool
 * has them. Rows may be of any sequence, so each rank has the table.
 */
static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[OPERANDS + 1] = {NULL}, *pool = sherd__way_given(ways, K);
    const int at = call->operands > OPERANDS ? SHERD__POSITIONS : SHERD__BATCH;
    sherd_status status = SHERD_OK;

    if (!is_apart(call->in[K]->layout))
        return SHERD_OK;
    operand[K] = operand[V] = pool;
    const sherd__dim shards = sherd__way_given(ways, Q)->spec.dim[at];
    for (int i = 0; i < call->operands && !status; i++) {
        if (i == K || i == V)
            continue;
        sherd__layout_spec spec = sherd__way_given(ways, i)->spec;
        for (int d = 0; d < spec.ndim; d++)
            spec.dim[d] = (sherd__dim){0};
        sherd__spec_settle(&spec);
        if (i != TABLE || at == SHERD__BATCH)
            spec.dim[i == Q ? at : 0] = shards;
        if (i == Q)
            spec.dim[SHERD__GROUPS] = pool->spec.dim[HEADS];
        status = sherd__layout_intern(&operand[i], &spec);
    }
    return status ? status : sherd_way_add(ways, operand, &operand[Q]);
}

/* On the GPU; false: no kernel for these heads, or failed. */
static bool batch_there(sherd__paging *p)
{
    if (!sherd__device_in(p->call))
        return false;
    return (p->few || sherd__paging_take_there(p, p->s.queries, sherd__paging_keys(p))) &&
           sherd__paging_there(p);
}

static bool attend(sherd_call *call)
{
    sherd__paging p = sherd__paging_of(call);

    if (!sherd__paging_numbers(&p, TABLE, &p.table) || !sherd__paging_numbers(&p, WHERE, &p.where))
        return false;
    if (!sherd__paging_check(&p))
        return false;
    if (call->out[0]->count == 0 || batch_there(&p))
        return true;
    if (!sherd__leave_device(call))
        return false;
    p = sherd__paging_of(call);
    if (!sherd__paging_take(&p, p.few ? p.s.queries : 0, p.few ? 0 : p.s.queries,
                            p.dry ? p.most : sherd__paging_keys(&p)))
        return false;
    if (!p.dry)
        sherd__paging_here(&p);
    return true;
}

/* Operations, for full tables, since it is not known how full they are. */
static double operations(const sherd_call *call)
{
    const sherd__paging p = sherd__paging_of((sherd_call *)(uintptr_t)call);
    int64_t rows = p.batch * p.s.all_heads * p.s.queries;

    return sherd__cached_operations(&p.s, rows, p.most);
}

const sherd_op sherd__attention_paged_op = {
    .name = "sherd_attention_paged",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention_cached where keys and values lie in blocks of a pool",
    .operand = {{"q by groups", 0},
                {"k", 0},
                {"v", 0},
                {"table", SHERD_OP_INDEX},
                {"positions", SHERD_OP_INDEX}},
    .result = {{"out", 0}},
    .field = SHERD__CACHED_FIELDS,
    .attributes = sizeof(sherd__cached_attributes),
    .rule = "bsgrw,npgw,npgw,bm,bs->bsgrw",
    .whole = "swnpm",
    .describe = describe,
    .ways = lie,
    .forward = attend,
    .dry = attend,
    .operations = operations,
    .on_device = sherd__fractions_there};

sherd_tensor *sherd_attention_paged_with(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                         sherd_tensor *table, sherd_tensor *positions,
                                         const sherd_cached_options *options)
{
    sherd_tensor *in[] = {q, k, v, table, positions};
    bool fits = q && k && v && table && positions && !misfit(in);

    return sherd__apply_cached(&sherd__attention_paged_op, in, OPERANDS, fits ? k->shape[HEADS] : 0,
                               options);
}

sherd_tensor *sherd_attention_paged(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                    sherd_tensor *table, sherd_tensor *positions, double scale)
{
    const sherd_cached_options options = {.scale = scale};

    return sherd_attention_paged_with(q, k, v, table, positions, &options);
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const char *rows_misfit(sherd_tensor *const *in)
{
    const sherd_tensor *q = in[Q];

    if (q->ndim != 3)
        return "q must have three dims [rows,heads,width]";
    if (in[TABLE]->ndim != 2)
        return "table must have two dims, sequences and the blocks of each";
    if (in[SEQUENCE]->ndim != 1 || in[SEQUENCE]->shape[0] != q->shape[0])
        return "sequence must have one dim, the rows of q";
    if (in[WHERE]->ndim != 1 || in[WHERE]->shape[0] != q->shape[0])
        return "positions must have one dim, the rows of q";
    return pool_misfit(q, in[K], in[V]);
}

static const char *describe_rows(sherd_call *call)
{
    const char *reason = sherd__is_grouped(call) ? NULL : rows_misfit(call->in);

    if (!reason)
        reason = sherd__cached_fault(call);
    return reason ? reason : lie_badly(call->in[Q], call->in[K], call->in[V], SHERD__POSITIONS);
}

/* Rows [at, at + rows) of one sequence. */
typedef struct run {
    int64_t at, rows, sequence;
} run;

/* The run behind `r`, of all rows of a call; false: there is none. */
static bool next_run(run *r, const sherd__paging *p, const int32_t *sequence)
{
    int64_t at = r->at + r->rows, end = at;

    while (end < p->s.queries && sequence[end] == sequence[at])
        end++;
    if (end > at)
        *r = (run){at, end - at, sequence[at]};
    return end > at;
}

/* A run as a problem of its own. Rows that are no tokens are of no sequence. */
static bool part_of(sherd__paging *out, const sherd__paging *p, const run *r)
{
    int64_t sequences = p->call->in[TABLE]->shape[0];
    bool known = r->sequence >= 0 && r->sequence < sequences;

    for (int64_t i = r->at; i < r->at + r->rows && !known; i++)
        if (p->where[i] >= 0)
            return sherd_call_fail(
                p->call, SHERD_EINVAL, "row %lld is of sequence %lld, the table has %lld",
                (long long)(sherd_tensor_offset(p->call->in[Q], SHERD__POSITIONS) + i),
                (long long)r->sequence, (long long)sequences);
    *out = sherd__paging_part(p, r->at, r->rows, known ? r->sequence : 0);
    return true;
}

static bool check_runs(const sherd__paging *p, const int32_t *sequence)
{
    sherd__paging part;

    for (run r = {0, 0, 0}; next_run(&r, p, sequence);)
        if (!part_of(&part, p, &r) || !sherd__paging_check(&part))
            return false;
    return true;
}

/* The most rows that a run has, of those of few queries and of many; keys that the latter see. */
typedef struct most {
    int64_t few, many, keys;
} most;

/* False: a run is of no sequence. Not of a dry rank. */
static bool find_most(most *out, const sherd__paging *p, const int32_t *sequence)
{
    sherd__paging part;

    *out = (most){0, 0, 0};
    for (run r = {0, 0, 0}; next_run(&r, p, sequence);) {
        if (!part_of(&part, p, &r))
            return false;
        if (part.few) {
            out->few = sherd__max(out->few, r.rows);
            continue;
        }
        out->many = sherd__max(out->many, r.rows);
        out->keys = sherd__max(out->keys, sherd__paging_keys(&part));
    }
    return true;
}

/* As batch_there. Memory for one run of many rows, whichever it is. */
static bool rows_there(sherd__paging *p, const int32_t *sequence)
{
    sherd__paging part;
    most m;
    bool good = sherd__device_in(p->call) && find_most(&m, p, sequence);

    good = good && (m.many == 0 || sherd__paging_take_there(p, m.many, m.keys));
    for (run r = {0, 0, 0}; good && next_run(&r, p, sequence);)
        good = part_of(&part, p, &r) && sherd__paging_there(&part);
    return good;
}

/* To a dry rank all rows are one run, of a sequence that fills its table. */
static bool rows_here(sherd__paging *p, const int32_t *sequence)
{
    int64_t rows = p->s.queries;
    bool few = rows * p->repeat <= SHERD__ATTEND_FEW;
    most m = {few ? rows : 0, few ? 0 : rows, p->most};
    sherd__paging part;

    if (!p->dry && !find_most(&m, p, sequence))
        return false;
    if (!sherd__paging_take(p, m.few, m.many, m.keys))
        return false;
    for (run r = {0, 0, 0}; !p->dry && next_run(&r, p, sequence);)
        if (part_of(&part, p, &r))
            sherd__paging_here(&part);
    return true;
}

static bool attend_rows(sherd_call *call)
{
    sherd__paging p = sherd__paging_of(call);
    const int32_t *sequence = call->from[SEQUENCE];

    if (!sherd__paging_numbers(&p, TABLE, &p.table) ||
        !sherd__paging_numbers(&p, WHERE, &p.where) ||
        !sherd__paging_numbers(&p, SEQUENCE, &sequence))
        return false;
    if (!p.dry && !check_runs(&p, sequence))
        return false;
    if (call->out[0]->count == 0 || rows_there(&p, sequence))
        return true;
    if (!sherd__leave_device(call))
        return false;
    p = sherd__paging_of(call);
    return rows_here(&p, call->from[SEQUENCE]);
}

const sherd_op sherd__attention_paged_rows_op = {
    .name = "sherd_attention_paged_rows",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sherd_attention_paged for rows that say of which sequence they are",
    .operand = {{"q by groups", 0},
                {"k", 0},
                {"v", 0},
                {"table", SHERD_OP_INDEX},
                {"positions", SHERD_OP_INDEX},
                {"sequence", SHERD_OP_INDEX}},
    .result = {{"out", 0}},
    .field = SHERD__CACHED_FIELDS,
    .attributes = sizeof(sherd__cached_attributes),
    .rule = "bsgrw,npgw,npgw,zm,s,s->bsgrw",
    .whole = "bswnpmz",
    .describe = describe_rows,
    .ways = lie,
    .forward = attend_rows,
    .dry = attend_rows,
    .operations = operations,
    .on_device = sherd__fractions_there};

sherd_tensor *sherd_attention_paged_rows(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                         sherd_tensor *table, sherd_tensor *sequence,
                                         sherd_tensor *positions,
                                         const sherd_cached_options *options)
{
    sherd_tensor *in[] = {q, k, v, table, positions, sequence};
    bool fits = q && k && v && table && positions && sequence && !rows_misfit(in);

    return sherd__apply_cached(&sherd__attention_paged_rows_op, in, OPERANDS + 1,
                               fits ? k->shape[HEADS] : 0, options);
}
