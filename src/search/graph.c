/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's planner for shard orders that are not the mesh's: Dijkstra over placements and shard
 * orders. Neighbours come in PyTorch's order, and of equal costs the one that was found first is
 * first, so that ties fall as they do there. The neighbours of a state: the last axis of a dim's
 * list moves to the end of another list, or is replicated; a pending reduction is carried out, or
 * scattered to the end of a list; a replica is cut at the end of a list, or becomes a pending
 * reduction that occurs in source or target. PyTorch reuses what it has learnt from earlier
 * questions; here every search starts afresh.
 *
 * A state is its 64-bit key, one byte an axis. Three axes and three dims have 106 states, 176 with
 * a reduction, and take about 20 us; four have 1,240, six 85,000, seven 819,000: the search ends
 * after 200,000.
 */
#include "series.h"
#include "base/hash.h"

#include <string.h>

enum { STATES = 200000, PENDING = 65 }; /* of sherd__state_key: what is pending begins there */

typedef struct node {
    uint64_t key;
    double cost; /* least so far */
    int parent;  /* from which it is reached at that cost; -1 = the source */
    bool closed;
} node;

/* A node that waits, at a cost that it had: one that is closed since is passed over. */
typedef struct waiting {
    double cost;
    int64_t number; /* in order of finding */
    int node;
} waiting;

typedef struct search {
    const sherd__problem *problem;
    const sherd_mesh *mesh;
    int ndim;
    double bytes;
    sherd__ring rings[SHERD_MAX_AXES];
    double weight[SHERD__NEVER]; /* of each collective, unless time decides */
    int ops;                     /* reductions that a replica may become */
    sherd_reduce_op op[5];
    node *node;
    int *slot; /* hash table: number of a node + 1; 0 = free */
    waiting *heap;
    int nodes, node_room, slots, waits, heap_room;
    int64_t found;
} search;

/* The state that is expanded, and how its lists end. */
typedef struct place {
    int node;
    uint64_t key;
    double cost, gib;
    int axes[SHERD_MAX_DIMS], last[SHERD_MAX_DIMS];
} place;

/* ---- keys ----------------------------------------------------------------------------------- */

static int code_of(uint64_t key, int axis)
{
    return (int)(key >> 8 * (SHERD_MAX_AXES - 1 - axis) & 255);
}

static uint64_t with_code(uint64_t key, int axis, int code)
{
    int shift = 8 * (SHERD_MAX_AXES - 1 - axis);

    return (key & ~((uint64_t)255 << shift)) | (uint64_t)code << shift;
}

static sherd_placement placement_of(int code)
{
    if (code == 0)
        return sherd_replicate();
    return code < PENDING ? sherd_shard((code - 1) / 8)
                          : sherd_partial((sherd_reduce_op)(code - PENDING));
}

static place place_of(const search *s, int number)
{
    const node *n = &s->node[number];
    place p = {.node = number, .key = n->key, .cost = n->cost};
    double shards = 1;

    for (int i = 0; i < s->mesh->axes; i++) {
        int code = code_of(p.key, i);
        if (code == 0 || code >= PENDING)
            continue;
        int d = (code - 1) / 8, at = (code - 1) % 8;
        shards *= (double)s->mesh->extent[i];
        if (at >= p.axes[d]) {
            p.axes[d] = at + 1;
            p.last[d] = i;
        }
    }
    p.gib = sherd__ring_gib(s->bytes, shards);
    return p;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static int *slot_of(const search *s, uint64_t key)
{
    uint64_t at = sherd__hash_word(0, key);

    for (;; at++) {
        int *slot = &s->slot[at & (uint64_t)(s->slots - 1)];
        if (*slot == 0 || s->node[*slot - 1].key == key)
            return slot;
    }
}

/* Room for one node more, and a table that is at most half full. */
static bool make_room(search *s)
{
    sherd__heap *heap = s->problem->space->heap;
    int more = s->node_room ? 2 * s->node_room : 128;

    if (s->nodes < s->node_room)
        return true;
    node *larger = sherd__grow(heap, s->node, (size_t)s->node_room, (size_t)more, sizeof *larger);
    if (!larger)
        return false;
    s->node = larger;
    int *slot = sherd__alloc(heap, 2 * (size_t)more, sizeof *slot);
    if (!slot)
        return false;
    sherd__free(heap, s->slot);
    s->slot = slot;
    s->slots = 2 * more;
    s->node_room = more;
    for (int i = 0; i < s->nodes; i++)
        *slot_of(s, s->node[i].key) = i + 1;
    return true;
}

static bool before(const waiting *a, const waiting *b)
{
    return a->cost < b->cost || (a->cost == b->cost && a->number < b->number);
}

static bool push(search *s, waiting w)
{
    waiting *list = sherd__reserve(s->problem->space->heap, s->heap, s->waits, &s->heap_room, 128,
                                   sizeof *list);

    if (!list)
        return false;
    s->heap = list;
    int at = s->waits++;
    for (; at > 0 && before(&w, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = w;
    return true;
}

static waiting pop(search *s)
{
    waiting first = s->heap[0], last = s->heap[--s->waits];
    int at = 0;

    for (int child = 1; child < s->waits; child = 2 * at + 1) {
        if (child + 1 < s->waits && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &last))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = last;
    return first;
}

/*
 * A state is reached at a cost. One that was reached at no higher cost before stays as it is:
 * upstream keeps both, and takes the earlier.
 */
static sherd_status reach(search *s, uint64_t key, double cost, int parent)
{
    const sherd__problem *problem = s->problem;

    if (!make_room(s))
        return sherd__no_memory(problem->space->diag, "sherd_plan_create");
    int *slot = slot_of(s, key);
    if (*slot == 0) {
        if (s->nodes == STATES)
            return sherd__fail(problem->space->diag, SHERD_ELIMIT,
                               "sherd_plan_create: planner graph has seen %d states between %s and "
                               "%s and ends there: use exact or greedy",
                               STATES, problem->from->text, problem->to->text);
        s->node[s->nodes++] = (node){key, cost, parent, false};
        *slot = s->nodes;
    } else {
        node *known = &s->node[*slot - 1];
        if (known->closed || cost >= known->cost)
            return SHERD_OK;
        known->cost = cost;
        known->parent = parent;
    }
    if (!push(s, (waiting){cost, s->found++, *slot - 1}))
        return sherd__no_memory(problem->space->diag, "sherd_plan_create");
    return SHERD_OK;
}

/* ---- neighbours ----------------------------------------------------------------------------- */

static sherd_status offer(search *s, const place *p, int axis, int code, sherd__collective what)
{
    double gib = p->gib, cost = s->weight[what];

    if (s->problem->request->weights.kind == SHERD_WEIGHTS_TIME)
        cost = sherd__ring_time(&s->rings[axis], what, &gib);
    return reach(s, with_code(p->key, axis, code), p->cost + cost, p->node);
}

static int shard_code(const place *p, int d)
{
    return 1 + 8 * d + p->axes[d];
}

/* The last axis of each dim's list: to the other dims, then (another round) replicated. */
static sherd_status offer_last_axes(search *s, const place *p)
{
    sherd_status status = SHERD_OK;

    for (int a = 0; a < s->ndim; a++)
        for (int b = 0; b < s->ndim && p->axes[a] > 0 && status == SHERD_OK; b++)
            if (b != a)
                status = offer(s, p, p->last[a], shard_code(p, b), SHERD__ALL_TO_ALL);
    for (int a = 0; a < s->ndim && status == SHERD_OK; a++)
        if (p->axes[a] > 0)
            status = offer(s, p, p->last[a], 0, SHERD__ALL_GATHER);
    return status;
}

static bool is_pending(int code)
{
    return code >= PENDING;
}

static bool is_replica(int code)
{
    return code == 0;
}

/* All axes of a kind, to the end of each dim's list. */
static sherd_status offer_shards(search *s, const place *p, bool (*of_kind)(int code),
                                 sherd__collective what)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < s->mesh->axes; i++)
        for (int d = 0; d < s->ndim && of_kind(code_of(p->key, i)) && status == SHERD_OK; d++)
            status = offer(s, p, i, shard_code(p, d), what);
    return status;
}

/* Whether a reduction may be pending beside those that are. */
static bool goes_with(const search *s, uint64_t key, sherd_reduce_op op)
{
    for (int i = 0; i < s->mesh->axes; i++) {
        int other = code_of(key, i) - PENDING;
        if (other >= 0 && !sherd__reduce_ops_mix(op, (sherd_reduce_op)other))
            return false;
    }
    return true;
}

static sherd_status offer_partitions(search *s, const place *p)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < s->mesh->axes; i++)
        for (int k = 0; k < s->ops && is_replica(code_of(p->key, i)) && status == SHERD_OK; k++)
            if (goes_with(s, p->key, s->op[k]))
                status = offer(s, p, i, PENDING + (int)s->op[k], SHERD__PART);
    return status;
}

static sherd_status expand(search *s, const place *p)
{
    sherd_status status = offer_last_axes(s, p);

    for (int i = 0; i < s->mesh->axes && status == SHERD_OK; i++)
        if (is_pending(code_of(p->key, i)))
            status = offer(s, p, i, 0, SHERD__ALL_REDUCE);
    if (status == SHERD_OK)
        status = offer_shards(s, p, is_replica, SHERD__CHUNK);
    if (status == SHERD_OK)
        status = offer_shards(s, p, is_pending, SHERD__REDUCE_SCATTER);
    return status == SHERD_OK ? offer_partitions(s, p) : status;
}

/* ---- the search ----------------------------------------------------------------------------- */

/* Reductions of source and target, and with the integer weights sum, which comes first. */
static void find_ops(search *s)
{
    const sherd__problem *problem = s->problem;

    for (int op = 0; op <= SHERD_PRODUCT; op++) {
        bool occurs = op == SHERD_SUM && problem->request->weights.kind == SHERD_WEIGHTS_INTEGER;
        for (int i = 0; i < s->mesh->axes; i++)
            occurs = occurs || problem->from->spec.pending[i] == op ||
                     problem->to->spec.pending[i] == op;
        if (occurs)
            s->op[s->ops++] = (sherd_reduce_op)op;
    }
}

static void begin(search *s, const sherd__problem *problem)
{
    sherd_weights w = problem->request->weights;

    memset(s, 0, sizeof *s);
    s->problem = problem;
    s->mesh = problem->from->spec.mesh;
    s->ndim = problem->from->spec.ndim;
    s->bytes = sherd__tensor_bytes(problem->from, problem->element_bytes);
    sherd__rings_find(s->rings, s->mesh, problem->request->per_host);
    if (w.kind == SHERD_WEIGHTS_INTEGER)
        w = (sherd_weights){w.kind, 4, 1, 2, 2, 0};
    s->weight[SHERD__ALL_REDUCE] = (double)w.all_reduce;
    s->weight[SHERD__ALL_TO_ALL] = (double)w.all_to_all;
    s->weight[SHERD__ALL_GATHER] = (double)w.all_gather;
    s->weight[SHERD__REDUCE_SCATTER] = (double)w.reduce_scatter;
    s->weight[SHERD__CHUNK] = s->weight[SHERD__PART] = (double)w.chunk;
    find_ops(s);
}

static uint64_t key_of(const search *s, const sherd_layout *layout)
{
    sherd__state state;

    sherd__state_of(&state, layout);
    return sherd__state_key(&state, s->mesh->axes, s->ndim);
}

/* *goal = the node of the target. All states can be reached from all others. */
static sherd_status run(search *s, int *goal)
{
    uint64_t target = key_of(s, s->problem->to);
    sherd_status status = reach(s, key_of(s, s->problem->from), 0, -1);

    while (status == SHERD_OK) {
        sherd__assert(-1, s->waits > 0);
        *goal = pop(s).node;
        if (s->node[*goal].key == target)
            break;
        if (s->node[*goal].closed)
            continue;
        s->node[*goal].closed = true;
        place p = place_of(s, *goal);
        status = expand(s, &p);
    }
    return status;
}

/* From the target back to the source, then forward. */
static sherd_status write_series(sherd__series *series, const search *s, int goal)
{
    const sherd__problem *problem = s->problem;
    int stop[SHERD__STOPS], hops = 0;

    for (int at = goal; at >= 0; at = s->node[at].parent) {
        if (hops > SHERD__HOPS)
            return sherd__fail(problem->space->diag, SHERD_ELIMIT,
                               "sherd_plan_create: planner graph has a plan of more than %d steps "
                               "from %s to %s under these weights: use others",
                               SHERD__HOPS, problem->from->text, problem->to->text);
        stop[hops++] = at;
    }
    sherd__series_begin(series, problem);
    series->cost = s->node[goal].cost;
    for (int i = hops - 1; i > 0; i--) {
        uint64_t here = s->node[stop[i]].key, next = s->node[stop[i - 1]].key;
        int axis = 0;
        while (code_of(here, axis) == code_of(next, axis))
            axis++;
        sherd__series_on(series, axis, placement_of(code_of(next, axis)),
                         &series->state[series->hops], 1u << axis);
    }
    return SHERD_OK;
}

sherd_status sherd__graph_series(sherd__series *series, const sherd__problem *problem)
{
    sherd__heap *heap = problem->space->heap;
    search s;
    int goal = 0;

    begin(&s, problem);
    sherd_status status = run(&s, &goal);
    if (status == SHERD_OK)
        status = write_series(series, &s, goal);
    sherd__free(heap, s.node);
    sherd__free(heap, s.slot);
    sherd__free(heap, s.heap);
    return status;
}

sherd_status sherd__graph_find(sherd__answer *out, const sherd__problem *problem)
{
    sherd__series series;

    sherd_status status = sherd__graph_series(&series, problem);
    return status == SHERD_OK ? sherd__series_answer(out, problem, &series) : status;
}
