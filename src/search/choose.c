/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states to search if there are too many to list: those that cheap plans mostly go through.
 *
 * With a pending reduction they are the finest ones, in which all axes that are not pending shard:
 * the lists of the target, or of the source, with the other axes innermost, each in the dim that it
 * divides with least waste. Under prices that count messages they are also the states reached axis
 * by axis, in which some axes are already as in the target and the others still as in the source,
 * or replicated. Up to 2^8 sets of axes are tried, as long as the effort allows more states; the
 * search reports that it was not complete.
 */
#include "search.h"
#include "base/num.h"

static void drop_axes(sherd__state *state, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        if (axes >> i & 1)
            sherd__state_drop(state, i);
}

static void append(sherd__state *state, int d, int axis)
{
    state->axis[d][state->axes[d]++] = (int8_t)axis;
}

static void make_pending(sherd__state *state, const sherd__field *field, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        if (axes >> i & 1) {
            sherd__state_drop(state, i);
            state->pending[i] = (int8_t)field->problem->from->spec.pending[i];
        }
}

static unsigned cutting(const sherd__state *state, int ndim)
{
    unsigned axes = 0;

    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < state->axes[d]; i++)
            axes |= 1u << state->axis[d][i];
    return axes;
}

/* ---- the finest states ----------------------------------------------------------------------- */

/* How much longer than the mean the longest of p parts is, in 1/2^20 of it. */
static int64_t waste_of(int64_t length, int64_t p)
{
    int64_t padded = sherd__ceil_div(length, p) * p;

    return length > 0 ? (padded - length) * (1 << 20) / length : INT64_MAX;
}

/* The dim that p more parts waste least of; of such the longest. */
static int best_dim(const int64_t *length, int ndim, int64_t p)
{
    int best = 0;

    for (int d = 1; d < ndim; d++) {
        int64_t waste = waste_of(length[d], p), least = waste_of(length[best], p);
        if (waste < least || (waste == least && length[d] > length[best]))
            best = d;
    }
    return best;
}

/* Let all axes cut that do not and are not pending: the largest first, innermost. */
static void refine(sherd__state *state, const sherd__field *field)
{
    unsigned used = cutting(state, field->ndim);
    int64_t length[SHERD_MAX_DIMS];

    for (int d = 0; d < field->ndim; d++) {
        length[d] = field->shape[d];
        for (int i = 0; i < state->axes[d]; i++)
            length[d] = sherd__ceil_div(length[d], field->mesh->extent[state->axis[d][i]]);
    }
    for (;;) {
        int next = -1;
        for (int i = 0; i < field->mesh->axes; i++)
            if (field->movable >> i & 1 && !(used >> i & 1) && state->pending[i] < 0 &&
                (next < 0 || field->mesh->extent[i] > field->mesh->extent[next]))
                next = i;
        if (next < 0)
            return;
        int d = best_dim(length, field->ndim, field->mesh->extent[next]);
        append(state, d, next);
        length[d] = sherd__ceil_div(length[d], field->mesh->extent[next]);
        used |= 1u << next;
    }
}

/*
 * With these axes pending: the target's and the source's lists and no list, as they are and
 * refined.
 */
static sherd_status add_finest(sherd__field *field, unsigned pending)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < 3 && status == SHERD_OK; i++) {
        sherd__state state;
        if (i == 1 && field->across) /* `other` is the source there */
            continue;
        sherd__state_of(&state, i == 1 ? field->goal : field->problem->from);
        drop_axes(&state, i == 2 ? field->movable : field->reduced & ~cutting(&state, field->ndim));
        make_pending(&state, field, pending);
        status = sherd__field_add(field, &state);
        refine(&state, field);
        if (status == SHERD_OK && field->ndim > 0)
            status = sherd__field_add(field, &state);
    }
    return status;
}

/* ---- axis by axis ---------------------------------------------------------------------------- */

/* Movable axes that stand otherwise in one than in the other. */
static unsigned changing(const sherd__field *field, const sherd__state *from,
                         const sherd__state *to)
{
    unsigned same = 0;

    for (int d = 0; d < field->ndim; d++)
        for (int i = 0; i < from->axes[d] && i < to->axes[d]; i++) {
            if (from->axis[d][i] != to->axis[d][i])
                break;
            same |= 1u << from->axis[d][i];
        }
    unsigned used = cutting(from, field->ndim) | cutting(to, field->ndim) | field->reduced;
    return field->movable & used & ~same;
}

/*
 * The lists of `base` with its axes of one set, then those of another set in the order of `more`.
 */
static void mix(sherd__state *out, const sherd__field *field, const sherd__state *base,
                unsigned keep, const sherd__state *more, unsigned add)
{
    *out = *base;
    drop_axes(out, ~keep);
    for (int d = 0; d < field->ndim; d++)
        for (int i = 0; i < more->axes[d]; i++)
            if (add & ~keep & 1u << more->axis[d][i])
                append(out, d, more->axis[d][i]);
}

/*
 * Axes `done` as in the target, the others as in the source: behind them, in front of them, or
 * gone.
 */
static sherd_status add_between(sherd__field *field, const sherd__state *from,
                                const sherd__state *to, unsigned change, unsigned done)
{
    unsigned left = change & ~done;
    sherd__state state;

    mix(&state, field, from, ~done, to, field->across ? 0 : done);
    make_pending(&state, field, field->reduced & left);
    sherd_status status = sherd__field_add(field, &state);
    if (status == SHERD_OK && !field->across) {
        mix(&state, field, to, ~left, from, left);
        make_pending(&state, field, field->reduced & left);
        status = sherd__field_add(field, &state);
    }
    if (status == SHERD_OK) {
        mix(&state, field, from, ~done, to, 0);
        make_pending(&state, field, field->reduced & left);
        status = sherd__field_add(field, &state);
    }
    return status;
}

sherd_status sherd__field_choose(sherd__field *field)
{
    sherd_status status = SHERD_OK;
    sherd__state from, to;

    for (unsigned pending = field->reduced;
         status == SHERD_OK && field->nodes < field->effort->chosen;
         pending = (pending - 1) & field->reduced) {
        status = add_finest(field, pending);
        if (pending == 0)
            break;
    }
    sherd__state_of(&from, field->problem->from);
    sherd__state_of(&to, field->across ? field->problem->from : field->goal);
    unsigned change = changing(field, &from, &to);
    for (unsigned done = change;
         !field->arena_only && status == SHERD_OK && field->nodes < field->effort->chosen && change;
         done = (done - 1) & change) {
        status = add_between(field, &from, &to, change, done);
        if (done == 0)
            break;
    }
    return status == SHERD_OK ? SHERD_OK
                              : sherd__no_memory(field->problem->space->diag, "sherd_plan_create");
}
