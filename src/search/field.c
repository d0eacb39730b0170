/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states that a search may visit. Per dim there are the ways to shard it (lists of axes); a
 * node takes one way of each dim, with no axis twice, and leaves some reductions pending. They are
 * listed all at once: 3 axes and 3 dims make 106, 4 and 4 make 1457. If the effort allows no list
 * as long, some are chosen (choose.c). Axes of extent 1 are where the target has them and make no
 * states of their own. Costs some tens of nanoseconds a state, and the cuts of a way if they are
 * explicit.
 */
#include "search.h"
#include "base/num.h"

#include <stddef.h>
#include <string.h>

/* ---- the problem ----------------------------------------------------------------------------- */

void sherd__field_start(sherd__field *field, const sherd__problem *problem,
                        const sherd_layout *goal)
{
    const sherd__layout_spec *from = &problem->from->spec;
    const sherd_mesh *mesh = from->mesh;

    memset(field, 0, offsetof(sherd__field, glance.least_alpha));
    field->problem = problem;
    field->effort = &sherd__effort_usual;
    field->price = sherd__price_model_of(problem->request->price.kind);
    field->goal = goal;
    field->across = goal->spec.mesh != mesh;
    field->other = field->across ? problem->from : goal;
    field->mesh = mesh;
    field->ndim = from->ndim;
    field->bytes = (int64_t)problem->element_bytes;
    field->arena_only = field->price == &sherd__price_arena && !problem->request->forbidden &&
                        !problem->request->max_bytes;
    field->floor.arrival = field->price->floor(problem, 1, 1);
    if (field->price->least_link)
        field->floor.link = field->price->least_link(problem);
    for (int d = 0; d < from->ndim; d++)
        field->explicit_cuts =
            field->explicit_cuts || from->dim[d].cuts || field->other->spec.dim[d].cuts;
    field->elements = 1;
    for (int d = 0; d < from->ndim; d++) {
        field->shape[d] = from->shape[d];
        field->elements *= from->shape[d];
    }
    for (int i = 0; i < mesh->axes; i++) {
        if (mesh->extent[i] == 1)
            continue;
        if (from->pending[i] >= 0 && field->other->spec.pending[i] >= 0 && !field->across)
            field->frozen |= 1u << i;
        else
            field->movable |= 1u << i;
        if (from->pending[i] >= 0 && field->movable >> i & 1)
            field->reduced |= 1u << i;
    }
    if (field->price == &sherd__price_links) {
        sherd__links_start(field);
        sherd__bound_start(field);
        sherd__glances_links(field);
    }
}

void sherd__field_clear(sherd__field *field)
{
    sherd__heap *heap = field->problem->space->heap;

    for (int d = 0; d < field->ndim; d++) {
        for (int i = 0; i < field->dim[d].ways; i++)
            sherd__free(heap, field->dim[d].way[i].cuts);
        sherd__free(heap, field->dim[d].way);
    }
    sherd__links_forget(field);
    sherd__free(heap, field->node);
    field->node = NULL;
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* Axes of a way as a dim has them, without those of extent 1. */
static void dim_of(sherd__dim *out, const sherd__way *way)
{
    memset(out, 0, sizeof *out);
    out->axes = way->axes;
    for (int i = 0; i < way->axes; i++)
        out->axis[i] = (int)(way->word >> 8 * i & 0xff) - 1;
    out->cuts = way->cuts;
}

/*
 * Whether chunks of n along axes [i, axes) leave some rank nothing: at each level all are alike but
 * the last.
 */
static bool runs_dry(const sherd_mesh *mesh, const sherd__dim *dim, int i, int64_t n)
{
    if (i == dim->axes)
        return n == 0;
    int64_t p = mesh->extent[dim->axis[i]], piece = sherd__ceil_div(n, p), last = n % piece;

    if (sherd__ceil_div(n, piece) < p)
        return true;
    return runs_dry(mesh, dim, i + 1, piece) || (last && runs_dry(mesh, dim, i + 1, last));
}

static void measure(const sherd__field *field, int d, const sherd__dim *dim, sherd__way *way)
{
    int64_t parts = sherd__dim_parts(field->mesh, dim), n = field->shape[d];

    way->longest = sherd__dim_longest(field->mesh, dim, n);
    if (!dim->cuts)
        way->hollow = n == 0 || (n < parts * parts && runs_dry(field->mesh, dim, 0, n));
    for (int64_t i = 0; dim->cuts && i < parts; i++)
        way->hollow = way->hollow || dim->cuts[i] == dim->cuts[i + 1];
    way->even = !dim->cuts && way->longest * parts == n;
    way->length[0] = n;
    for (int i = 0; i < dim->axes; i++)
        way->length[i + 1] = sherd__ceil_div(way->length[i], field->mesh->extent[dim->axis[i]]);
    if (field->price == &sherd__price_links && dim->axes <= SHERD__REACHED)
        sherd__links_reach(field, d, dim, way);
}

/*
 * The number of the way that cuts dim d so; makes it if need be. `dim` has no axes of extent 1; -1
 * = no memory.
 */
static int find_way(sherd__field *field, int d, const sherd__dim *dim)
{
    sherd__way way = {.axes = dim->axes, .cuts = NULL};
    sherd__heap *heap = field->problem->space->heap;
    sherd__field_dim *of = &field->dim[d];
    sherd__dim known;

    for (int i = 0; i < dim->axes; i++) {
        way.before |= (uint64_t)way.mask << 8 * i;
        way.word |= (uint64_t)(dim->axis[i] + 1) << 8 * i;
        way.mask |= 1u << dim->axis[i];
        way.place[dim->axis[i]] = (int8_t)i;
    }
    for (int i = 0; i < of->ways; i++) {
        if (of->way[i].word != way.word)
            continue;
        dim_of(&known, &of->way[i]);
        if (sherd__dim_equal(field->mesh, &known, dim, field->shape[d]))
            return i;
    }
    sherd__way *list = sherd__reserve(heap, of->way, of->ways, &of->room, 16, sizeof *list);
    if (!list)
        return -1;
    of->way = list;
    measure(field, d, dim, &way);
    if (dim->cuts) {
        size_t count = (size_t)sherd__dim_parts(field->mesh, dim) + 1;
        way.cuts = sherd__alloc(heap, count, sizeof *way.cuts);
        if (!way.cuts)
            return -1;
        memcpy(way.cuts, dim->cuts, count * sizeof *way.cuts);
    }
    field->hollow = field->hollow || way.hollow;
    of->way[of->ways] = way;
    return of->ways++;
}

/* The same for a list of axes that has the cuts of a state. */
static int find_state_way(sherd__field *field, int d, const sherd__dim *dim)
{
    sherd__dim cut = *dim;
    int64_t *cuts;

    if (sherd__state_cuts(&cuts, dim, field->problem->from, field->other, d) != SHERD_OK)
        return -1;
    cut.cuts = cuts;
    int way = find_way(field, d, &cut);
    if (way >= 0)
        field->dim[d].way[way].ruled = true;
    sherd__free(field->problem->space->heap, cuts);
    return way;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool same_place(const sherd__field *field, const sherd__node *a, const sherd__node *b)
{
    return a->pending == b->pending &&
           memcmp(a->way, b->way, (size_t)field->ndim * sizeof a->way[0]) == 0;
}

static int64_t waste_of(const sherd__field *field, const sherd__node *node, int64_t parts)
{
    sherd__wide padded = (sherd__wide)node->longest * parts * SHERD__EVEN;

    if (field->elements == 0)
        return SHERD__EVEN;
    return sherd__cut((padded + field->elements - 1) / field->elements);
}

/* Add a node of which ways and pending are known; ENOMEM. Twice the same state is one node. */
static sherd_status add_node(sherd__field *field, sherd__node *node, bool may_be_there)
{
    sherd__heap *heap = field->problem->space->heap;
    int64_t copies = field->mesh->count;

    for (int i = 0; may_be_there && i < field->nodes; i++)
        if (same_place(field, node, &field->node[i]) && !(i == SHERD__GOAL && field->across))
            return SHERD_OK;
    sherd__node *list =
        sherd__reserve(heap, field->node, field->nodes, &field->room, 128, sizeof *list);
    if (!list)
        return SHERD_ENOMEM;
    field->node = list;
    memset(node->home, -1, sizeof node->home);
    node->used = 0;
    node->homes = 0;
    node->longest = 1;
    node->hollow = false;
    for (int d = 0; d < field->ndim; d++) {
        const sherd__way *way = &field->dim[d].way[node->way[d]];
        for (int i = 0; i < way->axes; i++) {
            int axis = (int)(way->word >> 8 * i & 0xff) - 1;
            node->home[axis] = (int8_t)d;
            node->homes |= (uint64_t)(d + 1) << 8 * field->links.pace[axis];
            node->used |= 1u << axis;
            copies /= field->mesh->extent[axis];
        }
        node->longest *= way->longest;
        node->hollow = node->hollow || way->hollow;
    }
    node->total = sherd__mul_cut(field->elements, copies);
    node->waste = waste_of(field, node, field->mesh->count / copies);
    node->number = field->nodes;
    field->node[field->nodes++] = *node;
    return SHERD_OK;
}

/* A layout as a node: its own cuts, which need not be those of its state. */
static sherd_status add_layout(sherd__field *field, const sherd_layout *layout, unsigned pending)
{
    sherd__node node = {.pending = pending};

    for (int d = 0; d < field->ndim; d++) {
        sherd__dim dim = layout->spec.dim[d];
        sherd__dim_strip(field->mesh, &dim);
        int way = find_way(field, d, &dim);
        if (way < 0)
            return SHERD_ENOMEM;
        node.way[d] = (uint16_t)way;
    }
    return add_node(field, &node, false);
}

/* The goal on another mesh: of its boxes only the sizes are known here. */
static sherd_status add_across(sherd__field *field)
{
    const sherd__layout_spec *to = &field->goal->spec;
    sherd__node node = {.pending = 0};
    int64_t copies = to->mesh->count;

    sherd_status status = add_node(field, &node, false); /* all replicated */
    for (int d = 0; d < field->ndim; d++)
        copies /= sherd__dim_parts(to->mesh, &to->dim[d]);
    if (status == SHERD_OK) {
        field->node[SHERD__GOAL].longest = sherd__layout_largest(field->goal);
        field->node[SHERD__GOAL].hollow = true;
        field->node[SHERD__GOAL].total = sherd__mul_cut(field->elements, copies);
    }
    return status;
}

static sherd_status add_ends(sherd__field *field)
{
    for (int d = 0; d < field->ndim; d++) { /* way 0 of each dim: not cut */
        sherd__dim none = {.axes = 0};
        if (find_way(field, d, &none) < 0)
            return SHERD_ENOMEM;
    }
    sherd_status status = add_layout(field, field->problem->from, field->reduced);
    if (status == SHERD_OK)
        status = field->across ? add_across(field) : add_layout(field, field->goal, 0);
    return status;
}

sherd_status sherd__field_add(sherd__field *field, const sherd__state *state)
{
    sherd__node node = {.pending = 0};

    for (int d = 0; d < field->ndim; d++) {
        sherd__dim dim = {.axes = state->axes[d]};
        for (int i = 0; i < dim.axes; i++)
            dim.axis[i] = state->axis[d][i];
        sherd__dim_strip(field->mesh, &dim);
        int way = find_state_way(field, d, &dim);
        if (way < 0)
            return SHERD_ENOMEM;
        node.way[d] = (uint16_t)way;
    }
    for (int i = 0; i < field->mesh->axes; i++)
        if (state->pending[i] >= 0 && field->reduced >> i & 1)
            node.pending |= 1u << i;
    return add_node(field, &node, true);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/*
 * Lists of k axes over the dims, by how many axes may stay pending instead; counted until they are
 * too many.
 */
static int64_t count_states(const sherd__field *field)
{
    int64_t count = 0;

    for (unsigned used = 0; used <= field->movable && count <= field->effort->states; used++) {
        int64_t each = 1, k = 0;
        if (used & ~field->movable)
            continue;
        for (int i = 0; i < field->mesh->axes; i++) {
            if (used >> i & 1)
                each *= field->ndim + k++;
            else if (field->reduced >> i & 1)
                each *= 2;
        }
        count += each;
    }
    return count;
}

/* All lists of axes that begin with `dim`, itself among them. */
static sherd_status list_ways(sherd__field *field, int d, sherd__dim *dim, unsigned used)
{
    if (find_state_way(field, d, dim) < 0)
        return SHERD_ENOMEM;
    for (int i = 0; i < field->mesh->axes; i++) {
        if (!(field->movable >> i & 1) || used >> i & 1)
            continue;
        dim->axis[dim->axes++] = i;
        sherd_status status = list_ways(field, d, dim, used | 1u << i);
        dim->axes--;
        if (status != SHERD_OK)
            return status;
    }
    return SHERD_OK;
}

/* All nodes whose first d dims are cut as `node` has it. */
static sherd_status list_nodes(sherd__field *field, int d, sherd__node *node, unsigned used)
{
    sherd_status status = SHERD_OK;

    if (d == field->ndim) {
        unsigned may = field->reduced & ~used;
        for (unsigned pending = may;; pending = (pending - 1) & may) {
            node->pending = pending;
            bool end = same_place(field, node, &field->node[SHERD__START]) ||
                       (!field->across && same_place(field, node, &field->node[SHERD__GOAL]));
            status = end ? SHERD_OK : add_node(field, node, false);
            if (pending == 0 || status != SHERD_OK)
                return status;
        }
    }
    for (int i = 0; i < field->dim[d].ways && status == SHERD_OK; i++) {
        const sherd__way *way = &field->dim[d].way[i];
        if (way->mask & used || !way->ruled) /* the goal's own cuts are no state's */
            continue;
        node->way[d] = (uint16_t)i;
        status = list_nodes(field, d + 1, node, used | way->mask);
    }
    return status;
}

sherd_status sherd__field_fill(sherd__field *field)
{
    sherd_status status = add_ends(field);
    sherd__node node = {.pending = 0};

    field->all_states = count_states(field) <= field->effort->states;
    for (int d = 0; d < field->ndim && status == SHERD_OK && field->all_states; d++) {
        sherd__dim none = {.axes = 0};
        status = list_ways(field, d, &none, 0);
    }
    if (status == SHERD_OK && field->all_states)
        status = list_nodes(field, 0, &node, 0);
    return status == SHERD_OK ? SHERD_OK
                              : sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
}

/* ---- nodes as layouts ------------------------------------------------------------------------ */

/* Axes of extent 1 follow the others, as the target has them. */
static void append_ones(const sherd__field *field, sherd__dim *dim, int d)
{
    const sherd__dim *other = &field->other->spec.dim[d];

    for (int i = 0; i < other->axes; i++)
        if (field->mesh->extent[other->axis[i]] == 1)
            dim->axis[dim->axes++] = other->axis[i];
}

/*
 * Axes of extent 1 are as the target has them, unless its reduction may not be pending beside one
 * that still is.
 */
static int pending_op(const sherd__field *field, const sherd__node *node, int axis)
{
    const int *ops = field->problem->from->spec.pending;
    int there = field->other->spec.pending[axis];

    if (field->mesh->extent[axis] > 1)
        return (node->pending | field->frozen) >> axis & 1 ? ops[axis] : -1;
    if (there < 0 || node->pending == 0)
        return there;
    int here = ops[__builtin_ctz(node->pending)];
    return sherd__reduce_ops_mix((sherd_reduce_op)here, (sherd_reduce_op)there) ? there : -1;
}

const sherd_layout *sherd__field_layout(const sherd__field *field, int number, sherd_layout *room)
{
    const sherd__node *node = &field->node[number];

    if (number == SHERD__START)
        return field->problem->from;
    if (number == SHERD__GOAL)
        return field->goal;
    memset(room, 0, sizeof *room);
    room->space = field->problem->space;
    room->spec.mesh = field->mesh;
    room->spec.ndim = field->ndim;
    memcpy(room->spec.shape, field->shape, sizeof room->spec.shape);
    for (int d = 0; d < field->ndim; d++) {
        dim_of(&room->spec.dim[d], &field->dim[d].way[node->way[d]]);
        append_ones(field, &room->spec.dim[d], d);
        for (int i = 0; i < room->spec.dim[d].axes; i++)
            room->shard_axes |= 1u << room->spec.dim[d].axis[i];
    }
    for (int i = 0; i < SHERD_MAX_AXES; i++) {
        room->spec.pending[i] = i < field->mesh->axes ? pending_op(field, node, i) : -1;
        if (room->spec.pending[i] >= 0)
            room->pending_axes |= 1u << i;
    }
    return room;
}

void sherd__field_state(sherd__state *out, const sherd__field *field, int node)
{
    sherd_layout room;

    sherd__state_of(out, sherd__field_layout(field, node, &room));
}
