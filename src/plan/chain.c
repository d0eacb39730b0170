/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a whole plan amounts to per rank. One step's extremes say enough for a plan of one step; of
 * several steps the busiest rank may be another one each time, so ranks are walked. Costs ranks x
 * steps there.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

static int64_t held(const sherd_layout *layout, const int64_t *at)
{
    sherd_box box;

    sherd__layout_box(layout, at, &box);
    return sherd__box_count(&box);
}

/* Bytes that the rank at a coordinate holds at most. */
static int64_t peak_at(const sherd__problem *problem, const sherd__priced *steps, int count,
                       const int64_t *at)
{
    int64_t source = held(problem->from, at), peak = source;

    for (int i = 0; i < count; i++) {
        bool shares =
            sherd__boxes_stay(&steps[i].change) && (steps[i].step.kind == SHERD_STEP_SLICE);
        int64_t in = i == 0 ? 0 : held(steps[i].step.from, at);
        int64_t out = shares ? 0 : held(steps[i].step.to, at);
        peak = sherd__max(peak, source + in + out);
    }
    return sherd__mul_cut(peak, (int64_t)problem->element_bytes);
}

/* Counts of one rank from its schedules, which say what it pulls and who pulls from it. */
static sherd_status count_rank(sherd__chain *out, int64_t *sent, const sherd__problem *problem,
                               const sherd__priced *steps, int count, int rank)
{
    int64_t received = 0;

    for (int i = 0; i < count; i++) {
        sherd__schedule *s;
        sherd_status status = sherd__schedule_create(&s, problem->space, &steps[i].step,
                                                     problem->element_bytes, rank);
        if (status != SHERD_OK)
            return status;
        received += s ? s->recv_bytes : 0;
        sherd__schedule_add_sent(s, rank, problem->element_bytes, sent);
        sherd__schedule_destroy(problem->space, s);
    }
    out->receive_max = sherd__max(out->receive_max, received);
    return SHERD_OK;
}

static sherd_status walk(sherd__chain *out, const sherd__problem *problem,
                         const sherd__priced *steps, int count)
{
    const sherd_mesh *mesh = problem->from->spec.mesh;
    int64_t at[SHERD_MAX_AXES] = {0};
    int64_t *sent = sherd__alloc(problem->space->heap, (size_t)problem->space->ranks, sizeof *sent);
    sherd_status status = SHERD_OK;

    if (!sent)
        return sherd__no_memory(problem->space->diag, "sherd_plan_create");
    do {
        out->peak = sherd__max(out->peak, peak_at(problem, steps, count, at));
        status = count_rank(out, sent, problem, steps, count, sherd__mesh_rank_at(mesh, at));
    } while (status == SHERD_OK && sherd__next(mesh, (1u << mesh->axes) - 1, at));
    for (int r = 0; r < problem->space->ranks; r++)
        out->send_max = sherd__max(out->send_max, sent[r]);
    sherd__free(problem->space->heap, sent);
    return status;
}

sherd_status sherd__chain_find(sherd__chain *out, const sherd__problem *problem,
                               const sherd__priced *steps, int count)
{
    int64_t bytes = (int64_t)problem->element_bytes;

    memset(out, 0, sizeof *out);
    if (count > 1 && steps[count - 1].change.across)
        return sherd__across_chain(out, problem, steps, count);
    if (count > 1)
        return walk(out, problem, steps, count);
    if (count == 0) {
        int64_t first[SHERD_MAX_AXES] = {0};
        out->peak = peak_at(problem, steps, 0, first);
        return SHERD_OK;
    }
    out->receive_max = steps->step.recv_max_bytes;
    out->send_max = steps->send_max_bytes;
    bool shares = steps->step.kind == SHERD_STEP_SLICE && sherd__boxes_stay(&steps->change);
    out->peak = sherd__mul_cut(shares ? steps->amounts.source_max : steps->amounts.both_max, bytes);
    return SHERD_OK;
}
