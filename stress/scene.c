/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random meshes over all and over some of the ranks, parts of them, and random layouts: any order
 * of axes, cuts with empty shards, axes of extent 1. All are made on a paper world first, which
 * answers what lies where.
 */
#include "program.h"

#include <stdio.h>
#include <string.h>

/* ---- meshes ---------------------------------------------------------------------------------- */

static void shuffle(int *list, int count, dice *d)
{
    for (int i = count - 1; i > 0; i--) {
        int j = roll(d, i + 1), keep = list[i];
        list[i] = list[j];
        list[j] = keep;
    }
}

/* A random divisor of n. */
static int64_t divisor(int n, dice *d)
{
    int which, count = 0;

    for (int k = 1; k <= n; k++)
        count += n % k == 0;
    which = roll(d, count);
    for (int k = 1; k <= n; k++)
        if (n % k == 0 && which-- == 0)
            return k;
    return 1;
}

static void draw_extents(mesh_plan *m, int count, dice *d)
{
    static const char letters[][8] = {"x", "y", "z", "dp", "tp", "k"};
    int rest = count, first = roll(d, 4);

    m->axes = 1 + roll(d, AXES);
    m->named = one_in(d, 2);
    for (int i = 0; i < m->axes; i++) {
        m->extent[i] = i == m->axes - 1 ? rest : divisor(rest, d);
        rest /= (int)m->extent[i];
        if (m->named)
            memcpy(m->name[i], letters[first + i], sizeof m->name[i]);
        else
            snprintf(m->name[i], sizeof m->name[i], "a%c", '0' + i);
    }
}

/* `count` ranks of the world; all if there are as many. */
static void draw_ranks(mesh_plan *m, int ranks, int count, bool mixed, dice *d)
{
    int all[RANKS];

    for (int r = 0; r < ranks; r++)
        all[r] = r;
    if (mixed)
        shuffle(all, ranks, d);
    m->members = 0;
    for (int i = 0; i < count; i++) {
        m->rank[i] = all[i];
        m->members |= 1u << all[i];
    }
}

static bool make_whole(scene *s, mesh_plan *m)
{
    const char *names[AXES];
    int index = s->meshes;

    for (int i = 0; i < m->axes; i++)
        names[i] = m->name[i];
    if (sherd_mesh_create(&m->paper, s->paper, m->axes, m->extent, m->named ? names : NULL,
                          m->rank))
        return false;
    /* Equal meshes are one. */
    for (int i = index - 1; i >= 0; i--)
        if (s->mesh[i].paper == m->paper)
            index = i;
    m->whole = index;
    s->meshes++;
    return true;
}

static bool add_whole(scene *s, int ranks, int count, bool mixed, dice *d)
{
    mesh_plan *m = &s->mesh[s->meshes];

    draw_extents(m, count, d);
    draw_ranks(m, ranks, count, mixed, d);
    if (!make_whole(s, m))
        return false;
    if (one_in(d, 3))
        snprintf(m->text, sizeof m->text, "%s", sherd_mesh_text(m->paper));
    return true;
}

/* Some axes of a mesh, in any order. */
static bool add_part(scene *s, int of, dice *d)
{
    mesh_plan *m = &s->mesh[s->meshes], *w = &s->mesh[s->mesh[of].whole];
    const char *names[AXES];
    int axis[AXES];

    for (int i = 0; i < w->axes; i++)
        axis[i] = i;
    shuffle(axis, w->axes, d);
    m->axes = 1 + roll(d, w->axes);
    m->whole = w->whole;
    m->members = w->members;
    for (int i = 0; i < m->axes; i++) {
        m->part[i] = axis[i];
        m->extent[i] = w->extent[axis[i]];
        memcpy(m->name[i], w->name[axis[i]], sizeof m->name[i]);
        names[i] = m->name[i];
    }
    if (sherd_mesh_slice(&m->paper, w->paper, m->axes, names))
        return false;
    /* All axes in order are the mesh itself. */
    if (m->paper != w->paper)
        s->meshes++;
    return true;
}

bool scene_draw(scene *s, int ranks, dice *d)
{
    bool good;

    memset(s, 0, sizeof *s);
    s->ranks = ranks;
    if (sherd_world_paper(&s->paper, ranks))
        return false;
    good = add_whole(s, ranks, ranks, one_in(d, 3), d);
    if (good && !one_in(d, 3))
        good = add_whole(s, ranks, ranks, one_in(d, 2), d);
    for (int left = roll(d, 3); left >= 0 && good && ranks > 2; left--)
        good = add_whole(s, ranks, 2 + roll(d, ranks - 1), true, d);
    if (good && one_in(d, 6))
        good = add_whole(s, ranks, 1, true, d);
    if (good && one_in(d, 2))
        good = add_part(s, roll(d, s->meshes), d);
    return good;
}

void scene_close(scene *s)
{
    if (s->paper && sherd_world_close(s->paper))
        fprintf(stderr, "stress: the paper world does not close well\n");
    s->paper = NULL;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* What is pending is either sums and averages, or one other operator. */
static sherd_placement draw_pending(pendings pending, sherd_reduce_op family, dice *d)
{
    if (pending == SUM_PENDING)
        return sherd_partial(SHERD_SUM);
    if (family > SHERD_AVG)
        return sherd_partial(family);
    return sherd_partial(family == SHERD_AVG && one_in(d, 2) ? SHERD_AVG : SHERD_SUM);
}

/* Sizes of the shards of a dim; often some of them are empty. */
static void draw_cuts(layout_plan *l, int dim, int parts, dice *d)
{
    int64_t left = l->shape[dim];

    for (int i = 0; i < parts; i++) {
        int64_t size = i == parts - 1 ? left : one_in(d, 3) ? 0 : roll(d, (int)left + 1);
        l->sizes[dim][i] = size;
        left -= size;
    }
}

/* "0:4,6;1:2,3" */
static void write_cuts(layout_plan *l, const int *parts)
{
    size_t at = 0;

    for (int i = 0; i < l->ndim; i++) {
        if (!l->cut[i])
            continue;
        at += (size_t)snprintf(l->cuts + at, sizeof l->cuts - at, "%s%d:", at ? ";" : "", i);
        for (int k = 0; k < parts[i]; k++)
            at += (size_t)snprintf(l->cuts + at, sizeof l->cuts - at, k ? ",%lld" : "%lld",
                                   (long long)l->sizes[i][k]);
    }
}

static void draw_order(layout_plan *l, int axes, dice *d)
{
    int place[AXES] = {0, 1, 2};

    shuffle(place, AXES, d);
    for (int a = 0; a < axes; a++) {
        l->order[a] = 0;
        for (int b = 0; b < axes; b++)
            l->order[a] += l->placement[b].kind == SHERD_SHARD &&
                           l->placement[a].dim == l->placement[b].dim && place[b] < place[a];
    }
}

layout_plan layout_blank(int mesh, int ndim, const int64_t *shape)
{
    layout_plan l = {.mesh = mesh, .ndim = ndim};

    memcpy(l.shape, shape, (size_t)ndim * sizeof *shape);
    return l;
}

bool layout_draw(layout_plan *l, const scene *s, pendings pending, dice *d)
{
    const mesh_plan *m = &s->mesh[l->mesh];
    sherd_reduce_op family = (sherd_reduce_op)roll(d, 5);
    int parts[DIMS] = {1, 1, 1}, ndim = l->ndim;

    for (int a = 0; a < m->axes; a++) {
        int choice = l->lump ? 0 : roll(d, 2 * ndim + 1 + (pending != NOTHING_PENDING));
        if (choice < 2 * ndim) {
            l->placement[a] = sherd_shard(choice % ndim);
            parts[choice % ndim] *= (int)m->extent[a];
        } else {
            l->placement[a] =
                choice == 2 * ndim ? sherd_replicate() : draw_pending(pending, family, d);
        }
    }
    l->ordered = one_in(d, 2);
    draw_order(l, m->axes, d);
    for (int i = 0; i < ndim; i++) {
        l->cut[i] = parts[i] > 1 && (l->lump || one_in(d, 3));
        if (l->cut[i] && (l->lump || one_in(d, 6)))
            l->sizes[i][roll(d, parts[i])] = l->shape[i];
        else if (l->cut[i])
            draw_cuts(l, i, parts[i], d);
    }
    if (layout_make(&l->paper, l, m->paper))
        return false;
    if (m->paper == sherd_layout_mesh(l->paper) && one_in(d, 6)) {
        write_cuts(l, parts);
        snprintf(l->placements, sizeof l->placements, "%s", sherd_layout_placements(l->paper));
    }
    return true;
}

sherd_status layout_make(const sherd_layout **out, const layout_plan *l, const sherd_mesh *mesh)
{
    const int64_t *sizes[DIMS];

    if (l->placements[0])
        return sherd_layout_parse_placements(out, mesh, l->ndim, l->shape, l->placements, l->cuts);
    for (int i = 0; i < l->ndim; i++)
        sizes[i] = l->cut[i] ? l->sizes[i] : NULL;
    const sherd_layout_options options = {l->ordered ? l->order : NULL, sizes};
    return sherd_layout_create(out, mesh, l->ndim, l->shape, l->placement, &options);
}

static int64_t box_count(const sherd_box *box)
{
    int64_t count = 1;

    for (int i = 0; i < box->ndim; i++)
        count *= box->size[i];
    return count;
}

bool layout_is_disjoint(const scene *s, const layout_plan *l)
{
    int64_t held = 0, all = 1;

    for (int i = 0; i < l->ndim; i++)
        all *= l->shape[i];
    for (int r = 0; r < s->ranks; r++) {
        sherd_box box = sherd_layout_box(l->paper, r, 0);
        held += sherd_layout_boxes(l->paper, r) ? box_count(&box) : 0;
    }
    return held == all;
}

bool layout_is_pending(const sherd_layout *l)
{
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(l)); a++)
        if (sherd_layout_placement(l, a).kind == SHERD_PARTIAL)
            return true;
    return false;
}

bool layout_is_whole(const sherd_layout *l)
{
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(l)); a++)
        if (sherd_layout_placement(l, a).kind != SHERD_REPLICATE)
            return false;
    return true;
}
