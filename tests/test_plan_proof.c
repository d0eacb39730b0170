/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The proof that moves are exact: every pair of layouts (R, S(d), P(sum) on the source; R and S(d)
 * on the target, and P(sum) that stays; in all shard orders), tensors of 1 to 3 dims, even, prime,
 * shorter than the mesh and empty, and random explicit cuts. All ranks are simulated and each
 * element is compared; received bytes are compared with the bound for every rank, and the price
 * with counts. SHERD_PROOF=1 adds meshes, forty times the random pairs, and all pairs where a sum
 * stays pending (otherwise each 11th), or between layouts on two axes (otherwise each 3rd) or three
 * (each 7th).
 */
#define CHECK_PURE
#include "moves.h"
#include "vector/choose.h"

enum { MANY = 4096, RANDOM_PAIRS = 110 };

/* The last ones only with SHERD_PROOF=1. */
static const char *const meshes[] = {
    "4", "2x2", "3x2", "2x2x2", "x=2,y=1,z=2", "x=2,y=3@5,3,1,0,2,4", "5", "8", "2x4", "2x3x2"};

static bool whole(void)
{
    const char *asked = getenv("SHERD_PROOF");

    return asked && strcmp(asked, "1") == 0;
}

static int meshes_tried(void)
{
    return whole() ? LEN(meshes) : 6;
}

typedef struct shape {
    int ndim;
    int64_t size[3];
} shape;

static const shape shapes[] = {
    {1, {8}},       {1, {7}},       {1, {13}},       {1, {3}},       {1, {1}},
    {1, {0}},       {2, {8, 4}},    {2, {7, 5}},     {2, {13, 2}},   {2, {1, 6}},
    {2, {0, 5}},    {2, {5, 0}},    {3, {4, 4, 4}},  {3, {7, 5, 3}}, {3, {1, 2, 13}},
    {3, {2, 0, 3}}, {3, {3, 1, 8}}, {3, {12, 2, 1}},
};

/* Whether a plan may turn one into the other: it makes no pending reduction. */
static bool may_become(const sherd_layout *from, const sherd_layout *to)
{
    return (to->pending_axes & ~from->pending_axes) == 0;
}

/* Whether the j-th target of the i-th source is tried; the choice goes through all sources and all
 * targets. */
static bool is_tried(const sherd_layout *to, int i, int j)
{
    int axes = sherd_mesh_axes(sherd_layout_mesh(to));
    int apart = to->pending_axes ? 11 : axes > 2 ? 7 : axes > 1 ? 3 : 1;

    return whole() || (i + j) % apart == 0;
}

static void prove_all(paper *p, const sherd_mesh *mesh, const shape *s,
                      const sherd__kernels *kernels, int64_t *pairs, int64_t *wrong)
{
    static const sherd_layout *list[MANY];
    int count = paper_layouts(mesh, s->ndim, s->size, true, list, MANY);

    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++)
            if (may_become(list[i], list[j]) && is_tried(list[j], i, j)) {
                *wrong += move_prove(p, list[i], list[j], kernels);
                ++*pairs;
            }
}

static void every_pair_of_layouts_is_exact(void)
{
    int64_t pairs = 0, wrong = 0;
    sherd__kernel_set kernels;

    sherd__kernels_choose(&kernels);
    for (int m = 0; m < meshes_tried(); m++)
        for (int s = 0; s < LEN(shapes); s++) {
            paper p;
            paper_open(&p, 12);
            prove_all(&p, paper_mesh(&p, meshes[m]), &shapes[s], &kernels.f64, &pairs, &wrong);
            move_paper_close(&p);
        }
    CHECK_EQ(wrong, 0);
    CHECK(pairs > (whole() ? 100000 : 40000));
    printf("       %lld pairs of layouts with default cuts, %lld wrong elements\n",
           (long long)pairs, (long long)wrong);
}

/* A random layout; half of the dims have explicit cuts, a third of their shards empty. */
static const sherd_layout *random_layout(const sherd_mesh *mesh, const shape *s, bool partial,
                                         uint64_t *state)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES], axes = sherd_mesh_axes(mesh);
    int64_t sizes[3][12], parts[3] = {1, 1, 1};
    const int64_t *views[3] = {NULL};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < axes; i++) {
        int choice = (int)(paper_random(state) % (uint64_t)(s->ndim + 1 + partial));
        placement[i] = choice < s->ndim    ? sherd_shard(choice)
                       : choice == s->ndim ? sherd_replicate()
                                           : sherd_partial(SHERD_SUM);
        if (choice < s->ndim)
            parts[choice] *= sherd_mesh_extent(mesh, i);
    }
    for (int d = 0; d < s->ndim; d++) {
        paper_sizes(state, s->size[d], parts[d], sizes[d]);
        if (paper_random(state) & 1)
            views[d] = sizes[d];
    }
    paper_permutation((int64_t)(paper_random(state) % 6), axes, rank_of);
    paper_order(placement, rank_of, axes, order);
    const sherd_layout_options options = {order, views};
    CHECK_OK(sherd_layout_create(&layout, mesh, s->ndim, s->size, placement, &options));
    return layout;
}

/* The same layout but for one axis or the cuts: so that common depths of all kinds occur. */
static const sherd_layout *near(const sherd_layout *layout, uint64_t *state)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    int choice = (int)(paper_random(state) % (uint64_t)(layout->spec.ndim + 1));
    int axis = (int)(paper_random(state) % (uint64_t)mesh->axes);
    const sherd_layout *to = NULL;

    CHECK_OK(sherd__layout_settle(&to, layout));
    CHECK_OK(sherd_layout_with(&to, to, mesh, axis,
                               choice ? sherd_shard(choice - 1) : sherd_replicate()));
    return to;
}

static void explicit_cuts_are_exact(void)
{
    int64_t pairs = 0, wrong = 0;
    uint64_t state = 3;
    sherd__kernel_set kernels;

    sherd__kernels_choose(&kernels);
    for (int m = 0; m < meshes_tried(); m++)
        for (int s = 0; s < LEN(shapes); s++) {
            paper p;
            paper_open(&p, 12);
            const sherd_mesh *mesh = paper_mesh(&p, meshes[m]);
            for (int k = 0; k < (whole() ? 40 : 1) * RANDOM_PAIRS; k++) {
                const sherd_layout *from = random_layout(mesh, &shapes[s], true, &state);
                const sherd_layout *to =
                    k % 3 ? random_layout(mesh, &shapes[s], false, &state) : near(from, &state);
                wrong += move_prove(&p, from, to, &kernels.f64);
                pairs++;
            }
            move_paper_close(&p);
        }
    CHECK_EQ(wrong, 0);
    printf("       %lld pairs of layouts with explicit cuts, %lld wrong elements\n",
           (long long)pairs, (long long)wrong);
}

static const check_test tests[] = {
    {TEST(every_pair_of_layouts_is_exact)},
    {TEST(explicit_cuts_are_exact)},
};
CHECK_MAIN(tests)
