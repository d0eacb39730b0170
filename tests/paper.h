/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A space on paper for tests of the pure rooms: meshes, layouts and plans without a world. Closing
 * checks that everything was freed. And a generator of all placements of a mesh, in all shard
 * orders.
 */
#ifndef SHERD_PAPER_H
#define SHERD_PAPER_H

#include "check.h"
#include "layout/layout.h"

typedef struct paper {
    sherd__heap heap;
    sherd__diag diag;
    sherd__space space;
} paper;

static inline void paper_open(paper *p, int ranks)
{
    memset(p, 0, sizeof *p);
    p->diag.rank = -1;
    sherd__space_init(&p->space, &p->heap, &p->diag, ranks, -1);
}

static inline void paper_close(paper *p)
{
    sherd__space_clear(&p->space);
    CHECK_EQ(p->heap.live, 0);
}

static inline const sherd_mesh *paper_mesh(paper *p, const char *text)
{
    const sherd_mesh *mesh = NULL;

    if (!CHECK_OK(sherd__mesh_read(&mesh, &p->space, text)))
        fprintf(stderr, "%s: %s\n", text, p->diag.text);
    return mesh;
}

static inline const sherd_layout *paper_layout(paper *p, const char *text)
{
    const sherd_layout *layout = NULL;

    if (!CHECK_OK(sherd__layout_read(&layout, &p->space, text, NULL)))
        fprintf(stderr, "%s: %s\n", text, p->diag.text);
    return layout;
}

static inline const sherd_layout *paper_placed(paper *p, const sherd_mesh *mesh, int ndim,
                                               const int64_t *shape, const char *placements)
{
    const sherd_layout *layout = NULL;

    if (!CHECK_OK(sherd_layout_parse_placements(&layout, mesh, ndim, shape, placements, NULL)))
        fprintf(stderr, "%s: %s\n", placements, p->diag.text);
    return layout;
}

/* Places of the axes of each dim when axes cut in the order that a permutation gives them. */
static inline void paper_order(const sherd_placement *placement, const int *rank_of, int axes,
                               int *order)
{
    for (int i = 0; i < axes; i++) {
        order[i] = 0;
        for (int j = 0; j < axes; j++)
            order[i] += placement[i].kind == SHERD_SHARD && placement[j].kind == SHERD_SHARD &&
                        placement[i].dim == placement[j].dim && rank_of[j] < rank_of[i];
    }
}

/* Which of axes! permutations: rank_of[i] is the place of axis i. */
static inline void paper_permutation(int64_t number, int axes, int *rank_of)
{
    for (int i = 0; i < axes; i++) {
        int at = (int)(number % (i + 1));
        number /= i + 1;
        for (int j = 0; j < i; j++)
            rank_of[j] += rank_of[j] >= at;
        rank_of[i] = at;
    }
}

/*
 * All layouts of a shape on a mesh: every assignment of R, S(0) .. S(ndim-1), and P(sum) if
 * `partial`, to the axes, in all shard orders, default cuts. Equal ones are one pointer, listed
 * once. Returns how many.
 */
static inline int paper_layouts(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                bool partial, const sherd_layout **out, int room)
{
    int axes = sherd_mesh_axes(mesh), choices = 1 + ndim + (partial ? 1 : 0), count = 0;
    int64_t assignments = 1, permutations = 1;

    for (int i = 0; i < axes; i++) {
        assignments *= choices;
        permutations *= i + 1;
    }
    for (int64_t a = 0; a < assignments * permutations; a++) {
        sherd_placement placement[SHERD_MAX_AXES];
        int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES];
        int64_t number = a / permutations;
        for (int i = 0; i < axes; i++, number /= choices) {
            int choice = (int)(number % choices);
            placement[i] = choice == 0      ? sherd_replicate()
                           : choice <= ndim ? sherd_shard(choice - 1)
                                            : sherd_partial(SHERD_SUM);
        }
        paper_permutation(a % permutations, axes, rank_of);
        paper_order(placement, rank_of, axes, order);
        const sherd_layout_options options = {.order = order};
        const sherd_layout *layout = NULL;
        CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placement, &options));
        bool known = false;
        for (int i = 0; i < count; i++)
            known = known || out[i] == layout;
        if (!known && CHECK(count < room))
            out[count++] = layout;
    }
    return count;
}

/* A small generator of numbers for tests: the same ones every time. */
static inline uint64_t paper_random(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u;
    uint64_t x = *state;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Random sizes of `parts` shards that add up to n; about a third of them are empty. */
static inline void paper_sizes(uint64_t *state, int64_t n, int64_t parts, int64_t *sizes)
{
    int64_t left = n;

    for (int64_t i = 0; i < parts; i++) {
        bool none = paper_random(state) % 3 == 0;
        sizes[i] = none ? 0 : (int64_t)(paper_random(state) % (uint64_t)(left + 1));
        left -= sizes[i];
    }
    sizes[paper_random(state) % (uint64_t)parts] += left;
}

#endif
