/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What shards of rows tell each other, and a shard's weights: computed when they are asked for, and
 * kept for the first rows, whose rooms are their own.
 */
#include "sample.h"

#include "base/num.h"

int64_t sherd__sample_width(const sherd__batch *b, int64_t count)
{
    const sherd_mesh *mesh = b->call->in[LOGITS]->layout->spec.mesh;
    int64_t width = sherd__ceil_div(count, sherd__max(1, b->rows));
    int64_t *all;

    if (!b->apart)
        return width;
    all = sherd_call_scratch(b->call, sherd_mesh_ranks(mesh) * (int64_t)sizeof *all);
    if (!all || !sherd__share(b->call->world, mesh, "sherd_sample_rows", &width, 1, all))
        return -1;
    for (int64_t i = 0; i < sherd_mesh_ranks(mesh) && !sherd__is_dry(b->call->world); i++)
        width = sherd__max(width, all[i]);
    return width;
}

const void *sherd__sample_exchange(const sherd__batch *b, sherd_dtype dtype, int64_t width,
                                   int64_t count, const void *from, int64_t *stride)
{
    const unsigned last = 1u << (b->call->in[LOGITS]->ndim - 1);
    sherd_tensor *mine = sherd__new_parts(b->call, last, dtype, width);
    int64_t shards;

    if (!mine)
        return NULL;
    char *out = sherd__fresh(mine);
    if (!sherd__is_dry(b->call->world) && count > 0) /* whatever the order of its dims */
        memcpy(out, from, sherd_dtype_bytes(dtype) * (size_t)count);
    *stride = width * b->rows;
    return sherd__all_parts(b->call, last, mine, width, &shards);
}

void sherd__sample_loaded(sherd__batch *b, int64_t r)
{
    if (!b->loaded[r])
        sherd__sample_load(b->call, r, &b->draw[r]);
    b->loaded[r] = r < b->rooms;
}

sherd__row *sherd__sample_weighed(sherd__batch *b, int64_t r, int64_t *sum)
{
    sherd__row *d = &b->draw[r];
    int64_t weight = 0;

    if (!b->weighed[r]) {
        sherd__sample_loaded(b, r);
        weight = sherd__draw_weigh(d);
        b->weighed[r] = r < b->rooms;
    }
    if (sum)
        *sum = weight;
    return d;
}

/* Whether row r draws by weights of shards. */
bool sherd__sample_weighs(const sherd__batch *b, int64_t r)
{
    return !b->bad[r] && !b->left[r] && b->draw[r].temperature > 0;
}

int64_t sherd__sample_total(const sherd__batch *b, int64_t r)
{
    int64_t total = 0;

    for (int64_t s = 0; s < b->shards; s++)
        total += b->sums[r * b->shards + s];
    return total;
}
