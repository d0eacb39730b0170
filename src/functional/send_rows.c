/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows taken in an order that all ranks know (sherd_dispatch, sherd_combine). So each knows what it
 * sends to whom, and rows move in one call, of lists (lists.h), or not at all where each rank has
 * what it needs. The order is one of all rows, so the gradient is taken in the inverse order. If
 * that moves less, the dim is gathered instead. On a GPU rows stay there: the CPU knows the
 * order, and sends it.
 */
#include "runs.h"
#include "ops/lists.h"
#include "sherd/ops_groups.h"
#include "sherd/ops_reductions.h"

#include <string.h>

#include "base/num.h"
#include "base/saturate.h"
#include "device/tables.h"
#include "kernels/pick.h"
#include "world/doing.h"

/* y[i] = a[index[i] / k]; back[index[i]] = i. `rows` is a layout alone: [n] as y is laid. */
enum { A, INDEX, BACK, ROWS };

typedef struct taking {
    int64_t digest, k;
} taking;

/* ---- what goes where ------------------------------------------------------------------------- */

/* How many rows each shard of the result needs of each shard of the operand. */
typedef struct traffic {
    const sherd_mesh *mesh;
    const sherd__dim *to, *from;
    int64_t n, entries, shards_to, shards_from, k;
    const int32_t *index; /* NULL: outside the mesh */
    int64_t *cut;         /* [shards_from + 1] */
    int64_t *count;       /* [shards_to, shards_from] */
} traffic;

static int64_t traffic_words(const traffic *t)
{
    return t->shards_from + 1 + t->shards_to * t->shards_from;
}

static void begin_traffic(traffic *t, const sherd_layout *from, const sherd__dim *to, int64_t k)
{
    *t = (traffic){.mesh = from->spec.mesh,
                   .to = to,
                   .from = &from->spec.dim[0],
                   .entries = from->spec.shape[0],
                   .k = k};
    t->n = t->entries * k;
    t->shards_to = sherd__dim_parts(t->mesh, to);
    t->shards_from = sherd__dim_parts(t->mesh, t->from);
}

static void count_traffic(traffic *t, const int32_t *index, int64_t *words)
{
    t->index = index;
    t->cut = words;
    t->count = words + t->shards_from + 1;
    sherd__dim_cuts(t->mesh, t->from, t->entries, t->cut);
    memset(t->count, 0, sherd__bytes(t->shards_to * t->shards_from) * sizeof *t->count);
    for (int64_t s = 0; index && s < t->shards_to; s++)
        for (int64_t i = sherd__dim_cut(t->mesh, t->to, t->n, s),
                     end = sherd__dim_cut(t->mesh, t->to, t->n, s + 1);
             i < end; i++)
            t->count[s * t->shards_from +
                     sherd__owner_of(t->cut, t->shards_from, index[i] / t->k)]++;
}

/* What a rank with this shard of the operand needs from the others. */
static int64_t received(const traffic *t, int64_t shard_to, int64_t shard_from)
{
    const int64_t *count = t->count + shard_to * t->shards_from;
    int64_t all = 0;

    for (int64_t i = 0; i < t->shards_from; i++)
        all += i == shard_from ? 0 : count[i];
    return all;
}

/* The most rows that any rank receives. */
static int64_t busiest(const traffic *t)
{
    int64_t most = 0, ranks = 1, coordinate[SHERD_MAX_AXES];

    for (int a = 0; a < t->mesh->axes; a++)
        ranks *= t->mesh->extent[a];
    for (int64_t rank = 0; rank < ranks; rank++) {
        sherd__mesh_coordinate_at(t->mesh, rank, coordinate);
        most = sherd__max(most, received(t, sherd__dim_shard(t->mesh, t->to, coordinate),
                                         sherd__dim_shard(t->mesh, t->from, coordinate)));
    }
    return most;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const taking *how = call->attributes;
    const sherd_tensor *a = call->in[A], *index = call->in[INDEX];

    if (a->ndim < 1 || how->k < 0 || sherd__times(a->shape[0], how->k) != sherd_tensor_count(index))
        return sherd_call_reason(call, "%lld choices are not %lld of each row",
                                 (long long)sherd_tensor_count(index), (long long)how->k);
    sherd_call_shape(call, 0, a->ndim, a->shape);
    call->shape[0][0] = index->shape[0];
    return NULL;
}

/* `a` without the axes of the rows in other dims or pending; its rows as they are, or gathered. */
static sherd_status lay_operand(const sherd_layout **out, const sherd_layout *a,
                                const sherd__dim *rows, bool gathered)
{
    sherd__layout_spec spec = a->spec;

    sherd__free_axes(&spec, sherd__dim_bits(rows));
    if (gathered)
        spec.dim[0] = (sherd__dim){0};
    return sherd__layout_intern(out, &spec);
}

static sherd_status lay_result(const sherd_layout **out, const sherd_layout *operand,
                               const sherd__dim *rows, int64_t n)
{
    sherd__layout_spec spec = operand->spec;

    spec.dim[0] = *rows;
    spec.shape[0] = n;
    return sherd__layout_intern(out, &spec);
}

/* What the busiest rank receives if ranks send what each needs, as sherd__price_moves counts. */
static sherd_status price_of_sending(int64_t *bytes, const sherd_call *call,
                                     const sherd_layout *operand, const sherd__dim *rows)
{
    const taking *how = call->attributes;
    sherd_tensor *index = call->in[INDEX];
    sherd__heap *heap = sherd__world_heap(call->world);
    traffic t;

    begin_traffic(&t, operand, rows, how->k);
    int64_t *words = sherd__alloc(heap, sherd__bytes(traffic_words(&t)), sizeof *words);
    if (!words)
        return sherd__no_memory(sherd__world_diag(call->world), call->op->name);
    count_traffic(&t, index->count ? sherd__data(index) : NULL, words);
    *bytes = busiest(&t) * sherd__elements_beside(&operand->spec, 0) * SHERD__PRICED_BYTES;
    sherd__free(heap, words);
    return SHERD_OK;
}

/* The operand stays, or is gathered, if that moves less. */
static sherd_status choose_operand(const sherd_layout **out, const sherd_call *call,
                                   const sherd_layout *given, const sherd__dim *rows)
{
    const sherd_layout *whole;
    int64_t sent = 0, gathered = 0;
    sherd_status status = lay_operand(out, given, rows, false);

    if (status || sherd__dim_parts(given->spec.mesh, &given->spec.dim[0]) == 1)
        return status;
    status = lay_operand(&whole, given, rows, true);
    if (!status)
        status = price_of_sending(&sent, call, *out, rows);
    if (!status)
        status = sherd__price_moves(&gathered, 1, out, &whole);
    if (!status && sent > 0 && gathered < sent + SHERD__CALL_ELEMENTS * SHERD__PRICED_BYTES)
        *out = whole;
    return status;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    static const sherd__dim none;
    const sherd_layout *like = sherd__way_given(ways, ROWS), *result;
    const sherd__dim *rows = like ? &like->spec.dim[0] : &none;
    const sherd_layout *operand[] = {NULL, sherd__way_given(ways, INDEX),
                                     sherd__way_given(ways, BACK), like};
    sherd_status status = choose_operand(&operand[A], call, sherd__way_given(ways, A), rows);

    if (!status)
        status = lay_result(&result, operand[A], rows, call->shape[0][0]);
    return status ? status : sherd_way_add(ways, operand, &result);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

typedef struct exchange {
    sherd_call *call;
    sherd__line line;
    traffic t;
    const int64_t *row; /* elements of a row on each rank of the line */
    int64_t inner;      /* and on this one */
    size_t bytes;       /* of an element */
    bool dry;
    int32_t *place, *code; /* room for the places of rows, in the result and in a shard */
} exchange;

/* The interval of the result that a rank of the line has, and its shard. */
static int64_t interval(const exchange *x, int64_t rank, int64_t *lo, int64_t *hi)
{
    int64_t coordinate[SHERD_MAX_AXES] = {0};

    sherd__dim_place(x->t.mesh, &x->line.spec.dim[0], rank, coordinate);
    sherd__dim_interval(x->t.mesh, x->t.to, x->t.n, coordinate, lo, hi);
    return sherd__dim_shard(x->t.mesh, x->t.to, coordinate);
}

/* The rank r places behind another, of those that hold the rows together. */
static int64_t rank_behind(const exchange *x, int64_t rank, int64_t r)
{
    int64_t shard = rank % x->line.shards;

    return rank - shard + sherd__shard_behind(&x->line, shard, r);
}

/* What a rank has for the one r places behind it. */
static int64_t sent_at(const void *what, int64_t rank, int64_t r)
{
    const exchange *x = what;
    int64_t lo, hi, to = interval(x, rank_behind(x, rank, r), &lo, &hi);

    return x->t.count[to * x->t.shards_from + rank % x->line.shards] * x->row[rank];
}

/*
 * The rows that a rank of the line needs of a shard: their places in the result, and in the shard.
 * Returns how many; places that nobody will look at are not found.
 */
static int64_t needed(const exchange *x, int64_t rank, int64_t shard, int32_t *place, int32_t *code)
{
    const traffic *t = &x->t;
    int64_t lo, hi, count = 0;

    int64_t to = interval(x, rank, &lo, &hi);
    if (x->dry)
        return t->count[to * t->shards_from + shard];
    for (int64_t i = lo; i < hi; i++) {
        int64_t entry = t->index[i] / t->k;
        if (entry < t->cut[shard] || entry >= t->cut[shard + 1])
            continue;
        if (place)
            place[count] = (int32_t)(i - lo);
        if (code)
            code[count] = (int32_t)(entry - t->cut[shard]);
        count++;
    }
    return count;
}

typedef enum copying { PICK, PUT } copying;

/* Row i of one side, and row index[i] of the other; on the GPU that gets the index too. False: no
 * memory, raised. */
static bool copy_rows(const exchange *x, copying how, int64_t count, const int32_t *index, void *to,
                      const void *from)
{
    sherd__device *device = sherd__device_in(x->call);
    sherd__pick p = {1, count, x->inner, INT32_MAX, 0, index, true};
    int64_t bytes = count * (int64_t)sizeof *index;

    if (count == 0 || x->inner == 0 || x->dry)
        return true;
    if (!device) {
        if (how == PUT)
            sherd__scatter(x->bytes, &p, to, from, NULL);
        else
            sherd__gather(x->bytes, &p, to, from);
        return true;
    }
    int32_t *there = sherd__device_scratch(x->call, bytes);
    if (!there)
        return false;
    sherd__device_upload(device, there, index, bytes);
    p.index = there;
    if (how == PUT)
        sherd__device_put_rows(device, x->bytes, &p, to, from);
    else
        sherd__device_gather(device, x->bytes, &p, to, from);
    return true;
}

/* Rows of this rank's own shard. */
static bool take_own(const exchange *x)
{
    int64_t count = needed(x, x->line.me, x->line.mine, x->place, x->code);
    int64_t bytes = count * x->inner * (int64_t)x->bytes;
    void *own = sherd__device_in(x->call) ? sherd__device_scratch(x->call, sherd__max(bytes, 1))
                                          : sherd_call_scratch(x->call, bytes);

    return own && copy_rows(x, PICK, count, x->code, own, x->call->from[A]) &&
           copy_rows(x, PUT, count, x->place, x->call->to[0], own);
}

/* Rows for the rank r behind. */
static bool fill_list(const void *what, sherd_tensor *list, int64_t r)
{
    const exchange *x = what;
    void *to = sherd__device_in(x->call) ? sherd__device_fresh(list) : sherd__fresh(list);
    int64_t count = needed(x, rank_behind(x, x->line.me, r), x->line.mine, NULL, x->code);

    return copy_rows(x, PICK, count, x->code, to, x->call->from[A]);
}

/* Rows of the rank r before. */
static bool empty_list(const void *what, const sherd__windowed *list, int64_t r)
{
    const exchange *x = what;
    int64_t shard = sherd__shard_behind(&x->line, x->line.mine, -r);
    bool good = true;
    const void *data = sherd__device_in(x->call) ? sherd__list_came_there(list, &good)
                                                 : sherd__list_came(list, &good);

    if (!data)
        return good;
    return copy_rows(x, PUT, needed(x, x->line.me, shard, x->place, NULL), x->place, x->call->to[0],
                     data);
}

/* The index on the CPU. NULL: there is none, or the alarm is raised. */
static const int32_t *known_here(sherd_call *call)
{
    sherd_tensor *index = call->in[INDEX];

    return sherd__device_in(call) && index->count ? sherd__data(index) : call->from[INDEX];
}

static bool exchange_rows(sherd_call *call)
{
    const taking *how = call->attributes;
    const sherd_tensor *a = call->in[A], *y = call->out[0];
    exchange x = {.call = call,
                  .inner = sherd__local_count(a, 1, a->ndim),
                  .bytes = sherd_dtype_bytes(a->dtype),
                  .dry = sherd__is_dry(call->world)};

    if (!sherd__line_up(&x.line, call, a->layout->spec.mesh, &a->layout->spec.dim[0]))
        return true;
    begin_traffic(&x.t, a->layout, &y->layout->spec.dim[0], how->k);
    int64_t *words = sherd_call_scratch(call, traffic_words(&x.t) * (int64_t)sizeof *words);
    int64_t longest = sherd__dim_longest(x.t.mesh, x.t.to, x.t.n);
    x.place = sherd_call_scratch(call, (longest + 1) * (int64_t)sizeof *x.place);
    x.code = sherd_call_scratch(call, (longest + 1) * (int64_t)sizeof *x.code);
    const int32_t *index = known_here(call);
    x.row = sherd__line_rows(&x.line, a->layout);
    if (!words || !x.place || !x.code || !x.row || (!index && call->in[INDEX]->count))
        return false;
    count_traffic(&x.t, index, words);
    if (!take_own(&x))
        return false;
    if (busiest(&x.t) == 0)
        return true;
    sherd__open_in(call);
    return sherd__lists_send(
        &(sherd__lists){&x.line, false, sent_at, &x, a->dtype, sherd__device_in(call) != NULL},
        fill_list, empty_list);
}

/* ---- the operator ---------------------------------------------------------------------------- */

/* This rank has all rows, or all are plain. */
static bool take_here(sherd_call *call)
{
    const taking *how = call->attributes;
    const sherd_tensor *a = call->in[A], *y = call->out[0];
    const exchange x = {.call = call,
                        .inner = sherd__local_count(a, 1, a->ndim),
                        .bytes = sherd_dtype_bytes(a->dtype)};
    const int32_t *index = call->from[INDEX];
    int64_t first = y->layout ? sherd_tensor_box(y).offset[0] : 0;

    if (y->count == 0)
        return true;
    if (sherd__device_in(call)) {
        const sherd__pick p = {1, y->local[0], x.inner, a->local[0], 0, index + first, true};
        sherd__device_take_rows(sherd__device_in(call), x.bytes, &p, how->k, call->to[0],
                                call->from[A]);
        return true;
    }
    int32_t *code = sherd_call_scratch(call, (y->local[0] + 1) * (int64_t)sizeof *code);
    if (!code || sherd__is_dry(call->world))
        return code != NULL;
    for (int64_t i = 0; i < y->local[0]; i++)
        code[i] = (int32_t)(index[first + i] / how->k);
    return copy_rows(&x, PICK, y->local[0], code, call->to[0], call->from[A]);
}

static bool take(sherd_call *call)
{
    const sherd_layout *a = call->in[A]->layout;

    if (!sherd__check_indices(call, INDEX, sherd_tensor_count(call->in[INDEX])))
        return false;
    if (a && sherd__dim_parts(a->spec.mesh, &a->spec.dim[0]) > 1)
        return (sherd__fractions_there(call) || sherd__leave_device(call)) && exchange_rows(call);
    return take_here(call);
}

static sherd_tensor *take_rows(const sherd_op *op, sherd_tensor *a, sherd_tensor *index,
                               sherd_tensor *back, const sherd_layout *rows, int64_t k);

static sherd_tensor *sum_of_choices(sherd_tensor *t, int64_t k)
{
    int64_t n = sherd_tensor_failed(t) ? 0 : t->shape[0];

    if (k == 1)
        return t;
    return sherd_sum_over(sherd_unflatten(t, 0, (int64_t[]){k ? n / k : 0, k}, 2), (int[]){1}, 1,
                          false);
}

static void take_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const taking *how = sherd_node_attributes(node);
    const sherd_layout *a = sherd_node_layout(node, A), *rows = NULL;

    if (a && sherd__lay_choices(&rows, a, how->k)) {
        grad_in[A] = sherd__fail_diag(grad_out[0]->world, true);
        return;
    }
    grad_in[A] =
        sum_of_choices(take_rows(&sherd__combine_op, grad_out[0], sherd_node_operand(node, BACK),
                                 sherd_node_operand(node, INDEX), rows, 1),
                       how->k);
}

#define TAKE(label, text)                                                                          \
    {                                                                                              \
        .name = label, .summary = text, .layouts = "rows are sent; other dims as the operand",     \
        .operand = {{"rows", 0},                                                                   \
                    {"order", SHERD_OP_INDEX},                                                     \
                    {"place", SHERD_OP_INDEX},                                                     \
                    {"to", SHERD_OP_ANY | SHERD_OP_OPTIONAL}},                                     \
        .result = {{"y", 0}},                                                                      \
        .field = {SHERD_FIELD(taking, digest, INT64), SHERD_FIELD(taking, k, INT64)},              \
        .attributes = sizeof(taking), .linearity = SHERD_LINEAR, .numbers = SHERD_EVERYTHING,      \
        .describe = describe, .ways = lie, .forward = take, .dry = take,                           \
        .on_device = sherd__copies_there, .backward = take_back, .takes_pending = true, .needs = { \
            [A] = SHERD_NEEDS_OPERAND(INDEX) | SHERD_NEEDS_OPERAND(BACK)                           \
        }                                                                                          \
    }

const sherd_op sherd__dispatch_op = TAKE("sherd_dispatch", "rows of tokens, sorted by group");
const sherd_op sherd__combine_op = TAKE("sherd_combine", "rows back at their tokens");

static sherd_tensor *take_rows(const sherd_op *op, sherd_tensor *a, sherd_tensor *index,
                               sherd_tensor *back, const sherd_layout *rows, int64_t k)
{
    const sherd_layout *like[] = {NULL, NULL, NULL, rows};
    sherd_tensor *in[] = {a, sherd__known(index), sherd__known(back), NULL}, *y = NULL;
    const taking how = {sherd__known_digest(&in[INDEX], 1), k};

    sherd__apply_like(&y, op, in, 4, &how, like);
    return y;
}

sherd_tensor *sherd_dispatch(sherd_tensor *x, const sherd_groups *groups)
{
    static const sherd_groups none;
    const sherd_groups *g = groups ? groups : &none;

    return take_rows(&sherd__dispatch_op, x, g->order, g->place, g->rows, g->k);
}

static sherd_tensor *combine(sherd_tensor *y, const sherd_groups *groups, sherd_tensor *scores)
{
    static const sherd_groups none;
    const sherd_groups *g = groups ? groups : &none;
    sherd_tensor *t = take_rows(&sherd__combine_op, y, g->place, g->order, g->choices, 1);

    if (!scores || sherd_tensor_failed(t))
        return sum_of_choices(t, g->k);
    if (sherd_tensor_failed(scores))
        return scores;
    int64_t shape[SHERD_MAX_DIMS] = {sherd_tensor_count(scores)};
    for (int d = 1; d < t->ndim; d++)
        shape[d] = 1;
    return sum_of_choices(sherd_mul(t, sherd_view(scores, shape, t->ndim)), g->k);
}

sherd_tensor *sherd_combine(sherd_tensor *y, const sherd_groups *groups, sherd_tensor *scores)
{
    sherd_world *world = sherd_tensor_world(y);
    bool begun = sherd__doing_begin(world, "sherd_combine");
    sherd_tensor *t = combine(y, groups, scores);

    sherd__doing_end(world, begun);
    return t;
}
