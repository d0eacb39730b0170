/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dims of a group are read as one, of all its elements, whose axes are those of the dims one
 * behind the other: that is possible where each shard of the outer dims is one index or none. Then
 * the axes are dealt out to the new dims in the same way. So 8 heads on axes (kv=2,r=4) are 2
 * groups on kv of 4 heads on r, and back. Time and memory go with the number of shards; pure.
 */
#include "nest.h"

#include <string.h>

/* One dim of so many elements, with `parts` shards by the axes in `dim`; its cuts are its own. */
typedef struct strip {
    sherd__dim dim;
    int64_t parts, *cuts;
} strip;

static bool start(strip *s, const sherd__nest *nest, int64_t count)
{
    *s = (strip){.parts = 1, .cuts = sherd__alloc(nest->heap, 2, sizeof *s->cuts)};
    if (s->cuts)
        s->cuts[1] = count;
    return s->cuts != NULL;
}

static int64_t after(const int64_t *shape, int d, int end)
{
    int64_t n = 1;

    while (++d < end)
        n *= shape[d];
    return n;
}

/* Whether each shard is empty or has so many elements. */
static bool has_shards_of(const strip *s, int64_t step, int64_t count)
{
    for (int64_t i = 0; i < s->parts; i += step) {
        int64_t n = s->cuts[i + step] - s->cuts[i];
        if (n != 0 && n != count)
            return false;
    }
    return true;
}

/* Append the axes of dim d, of which each index is `rest` elements. False for lack of memory. */
static bool append(strip *s, const sherd__nest *nest, int d, int64_t rest)
{
    const sherd__layout_spec *from = nest->from;
    const sherd__dim *inner = &from->dim[d];
    int64_t parts = sherd__dim_parts(from->mesh, inner), all = s->parts * parts;
    int64_t *cuts = sherd__alloc(nest->heap, (size_t)all + 1, sizeof *cuts);

    if (!cuts)
        return false;
    for (int64_t i = 0; i < s->parts; i++)
        for (int64_t k = 0; k < parts; k++) {
            bool empty = s->cuts[i] == s->cuts[i + 1];
            cuts[i * parts + k] =
                s->cuts[i] +
                (empty ? 0 : rest * sherd__dim_cut(from->mesh, inner, from->shape[d], k));
        }
    cuts[all] = s->cuts[s->parts];
    sherd__free(nest->heap, s->cuts);
    s->cuts = cuts;
    s->parts = all;
    memcpy(s->dim.axis + s->dim.axes, inner->axis, (size_t)inner->axes * sizeof *inner->axis);
    s->dim.axes += inner->axes;
    return true;
}

/* Read the old dims as one. */
static bool fold(bool *fits, strip *s, const sherd__nest *nest)
{
    const sherd__layout_spec *from = nest->from;

    for (int d = nest->first; d < nest->end && *fits; d++) {
        int64_t rest = after(from->shape, d, nest->end);
        if (sherd__dim_parts(from->mesh, &from->dim[d]) == 1)
            continue;
        *fits = has_shards_of(s, 1, from->shape[d] * rest);
        if (*fits && !append(s, nest, d, rest))
            return false;
    }
    return true;
}

/* Whether every step-th cut is a multiple of `unit`. */
static bool is_cut_at(const strip *s, int64_t step, int64_t unit)
{
    for (int64_t i = 0; i <= s->parts; i += step)
        if (s->cuts[i] % unit != 0)
            return false;
    return true;
}

/* Whether all shards of so many parts that are not empty are cut alike. */
static bool is_cut_alike(const strip *s, int64_t step)
{
    int64_t model = -1;

    for (int64_t i = 0; i < s->parts; i += step) {
        if (s->cuts[i] == s->cuts[i + step])
            continue;
        for (int64_t k = 0; model >= 0 && k < step; k++)
            if (s->cuts[i + k] - s->cuts[i] != s->cuts[model + k] - s->cuts[model])
                return false;
        model = model < 0 ? i : model;
    }
    return true;
}

/*
 * How many of the outermost axes may shard a dim with `rest` elements at each index; -1: there is
 * no such number. Each of their shards is `*step` parts, by which the dims behind are sharded.
 */
static int axes_for(int64_t *step, const strip *s, const sherd_mesh *mesh, int64_t rest)
{
    *step = 1;
    for (int axes = s->dim.axes; axes >= 0; axes--) {
        bool all = axes == s->dim.axes;
        if (is_cut_at(s, *step, rest) &&
            (all || (has_shards_of(s, *step, rest) && is_cut_alike(s, *step))))
            return axes;
        if (axes > 0)
            *step *= mesh->extent[s->dim.axis[axes - 1]];
    }
    return -1;
}

/* The outermost axes shard dim t. False for lack of memory. */
static bool give(const strip *s, const sherd__nest *nest, int t, int axes, int64_t step,
                 int64_t rest)
{
    sherd__dim *to = &nest->to->dim[t];
    int64_t *cuts = sherd__alloc(nest->heap, (size_t)(s->parts / step) + 1, sizeof *cuts);

    if (!cuts)
        return false;
    for (int64_t i = 0; i <= s->parts / step; i++)
        cuts[i] = s->cuts[i * step] / rest;
    *to = (sherd__dim){.axes = axes, .cuts = cuts};
    memcpy(to->axis, s->dim.axis, (size_t)axes * sizeof *to->axis);
    return true;
}

/* What is left shards one index of the dim before, of `rest` elements. */
static void descend(strip *s, int axes, int64_t step, int64_t rest)
{
    int64_t model = 0, begin;

    while (model < s->parts && s->cuts[model] == s->cuts[model + step])
        model += step;
    begin = s->cuts[model];
    for (int64_t k = 0; k < step; k++)
        s->cuts[k] = s->cuts[model + k] - begin;
    s->cuts[step] = rest;
    s->parts = step;
    s->dim.axes -= axes;
    memmove(s->dim.axis, s->dim.axis + axes, (size_t)s->dim.axes * sizeof *s->dim.axis);
}

/* Deal the axes out to the new dims. */
static bool unfold(bool *fits, strip *s, const sherd__nest *nest)
{
    int t = nest->to_first;

    for (; t < nest->to_end && s->dim.axes > 0 && *fits; t++) {
        int64_t rest = after(nest->to->shape, t, nest->to_end), step;
        int axes = axes_for(&step, s, nest->to->mesh, rest);
        *fits = axes >= 0;
        if (axes > 0 && !give(s, nest, t, axes, step, rest))
            return false;
        if (axes >= 0 && axes < s->dim.axes)
            descend(s, axes, step, rest);
        else if (axes >= 0)
            s->dim.axes = 0;
    }
    *fits &= s->dim.axes == 0;
    return true;
}

static void take_back(const sherd__nest *nest)
{
    for (int t = nest->to_first; t < nest->to_end; t++) {
        sherd__free(nest->heap, (void *)nest->to->dim[t].cuts);
        nest->to->dim[t] = (sherd__dim){0};
    }
}

bool sherd__nest_dims(bool *fits, const sherd__nest *nest)
{
    strip s;
    int64_t count = after(nest->from->shape, nest->first - 1, nest->end);

    *fits = count > 0;
    if (!start(&s, nest, count))
        return false;
    bool good = fold(fits, &s, nest) && (!*fits || unfold(fits, &s, nest));
    sherd__free(nest->heap, s.cuts);
    if (!good || !*fits)
        take_back(nest);
    return good;
}
