/* SPDX-License-Identifier: Apache-2.0 */
/* See lists.h. Costs tens of microseconds for each step: a layout, a window and a plan. */
#include "lists.h"

#include <string.h>

#include "base/num.h"
#include "plan/window.h"
#include "apply/solve.h"

bool sherd__line_up(sherd__line *line, sherd_call *call, const sherd_mesh *mesh,
                    const sherd__dim *dim)
{
    unsigned owners = sherd__dim_bits(dim);
    int64_t coordinate[SHERD_MAX_AXES];
    sherd__dim *all = &line->spec.dim[0];

    *line = (sherd__line){.call = call, .spec = {.mesh = mesh, .ndim = 1}};
    sherd__spec_settle(&line->spec);
    for (int a = 0; a < mesh->axes; a++)
        if (!(owners >> a & 1))
            all->axis[all->axes++] = a;
    for (int i = 0; i < dim->axes; i++)
        all->axis[all->axes++] = dim->axis[i];
    line->ranks = sherd__dim_parts(mesh, all);
    line->shards = sherd__dim_parts(mesh, dim);
    if (!sherd_mesh_coordinate(mesh, sherd_world_rank(call->world), coordinate))
        return false;
    line->me = sherd__dim_shard(mesh, all, coordinate);
    line->mine = line->me % line->shards;
    return true;
}

const int64_t *sherd__line_rows(const sherd__line *line, const sherd_layout *layout)
{
    int64_t *rows = sherd_call_scratch(line->call, line->ranks * (int64_t)sizeof *rows);
    int64_t coordinate[SHERD_MAX_AXES] = {0};
    sherd_box box;

    for (int64_t rank = 0; rows && rank < line->ranks; rank++) {
        sherd__dim_place(layout->spec.mesh, &line->spec.dim[0], rank, coordinate);
        sherd__layout_box(layout, coordinate, &box);
        rows[rank] = 1;
        for (int d = 1; d < box.ndim; d++)
            rows[rank] *= box.size[d];
    }
    return rows;
}

int64_t sherd__owner_of(const int64_t *cut, int64_t shards, int64_t index)
{
    int64_t lo = 0, hi = shards - 1;

    while (lo < hi) {
        int64_t mid = (lo + hi) / 2;
        if (cut[mid + 1] > index)
            hi = mid;
        else
            lo = mid + 1;
    }
    return lo;
}

/* A list under way. */
typedef struct list {
    const sherd__lists *of;
    int64_t r;
    const int64_t *cut; /* [ranks + 1] */
} list;

static void ask(const void *what, int d, int64_t rank, int64_t lo, int64_t hi, int64_t *first,
                int64_t *end)
{
    const list *l = what;
    const sherd__line *line = l->of->line;
    int64_t shard = rank % line->shards, other = rank - shard;

    (void)d, (void)lo, (void)hi;
    other += sherd__shard_behind(line, shard, l->of->back ? l->r : -l->r);
    *first = l->cut[other];
    *end = l->cut[other + 1];
}

static bool make_list(sherd__windowed *out, const sherd__lists *lists, int64_t r)
{
    const sherd__line *line = lists->line;
    sherd__layout_spec spec = line->spec;
    int64_t *cut = sherd_call_scratch(line->call, (line->ranks + 1) * (int64_t)sizeof *cut);
    const list one = {lists, r, cut};
    const sherd_layout *layout;

    if (!cut)
        return false;
    cut[0] = 0;
    for (int64_t i = 0; i < line->ranks; i++)
        cut[i + 1] = cut[i] + lists->length(lists->what, i, r);
    spec.shape[0] = cut[line->ranks];
    spec.dim[0].cuts = cut;
    if (sherd__layout_intern(&layout, &spec) ||
        sherd__window_create(&out->window, layout, &(sherd__asking){ask, &one, NULL})) {
        sherd__fail_diag(line->call->world, true);
        return false;
    }
    out->whole = sherd__new_on_there(layout, lists->dtype, lists->there);
    return !sherd_tensor_failed(out->whole);
}

bool sherd__lists_make(sherd__windowed *out, const sherd__lists *lists)
{
    for (int64_t r = 1; r < lists->line->shards; r++)
        if (!make_list(&out[r], lists, r))
            return false;
    return true;
}

sherd__windowed *sherd__lists_room(const sherd__line *line, int64_t count)
{
    sherd__windowed *lists =
        sherd_call_scratch(line->call, sherd__max(count, 1) * (int64_t)sizeof *lists);

    if (lists)
        memset(lists, 0, sherd__bytes(count) * sizeof *lists);
    return lists;
}

void sherd__lists_release(sherd__windowed *lists, int64_t count)
{
    for (int64_t i = 0; lists && i < count; i++)
        sherd__window_release(lists[i].window);
}

const void *sherd__list_came(const sherd__windowed *one, bool *good)
{
    const void *data = one->piece->count ? sherd__data(one->piece) : NULL;

    *good = *good && (data || one->piece->count == 0);
    return data;
}

const void *sherd__list_came_there(const sherd__windowed *one, bool *good)
{
    const void *data = one->piece->count ? sherd__device_data(one->piece) : NULL;

    *good = *good && (data || one->piece->count == 0);
    return data;
}

bool sherd__lists_send(const sherd__lists *lists,
                       bool (*fill)(const void *what, sherd_tensor *list, int64_t r),
                       bool (*empty)(const void *what, const sherd__windowed *list, int64_t r))
{
    const char *name = lists->line->call->op->name;
    int64_t shards = lists->line->shards;
    int others = (int)shards - 1;
    sherd__windowed *all = sherd__lists_room(lists->line, shards);
    bool good = all && sherd__lists_make(all, lists);

    for (int64_t r = 1; good && r < shards; r++)
        if (all[r].whole->count)
            good = fill(lists->what, all[r].whole, r);
    good = good && (lists->there ? sherd__gather_windows(all + 1, others, false, name)
                                 : sherd__gather_windows_here(all + 1, others, name));
    for (int64_t r = 1; good && r < shards; r++)
        good = empty(lists->what, &all[r], r);
    sherd__lists_release(all, shards);
    return good;
}
