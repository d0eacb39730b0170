/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What it costs to dispatch an operator: a small addition and a small linear layer on plain
 * tensors, and on distributed ones that lie as the rule wants them, so that nothing moves and the
 * solver's answer is cached. The difference is what layouts cost a call, and a part of that is the
 * mesh's ledger, by which ranks that do different things are found: the same without it. Two ranks
 * as threads; rank 0 prints nanoseconds of a call, the least of several rounds, in which the kinds
 * take turns.
 */
#include <stdio.h>
#include <string.h>

#include <sherd.h>

#include "timing.h"
#include "world/world.h"

enum { CALLS = 2000, ROUNDS = 60, KINDS = 8 };

typedef struct kind {
    const char *name;
    sherd_tensor *(*run)(sherd_tensor *const *in);
    const char *placements; /* NULL = plain */
    bool recorded;
    double best[2]; /* with the ledger, and without */
} kind;

static sherd_tensor *add(sherd_tensor *const *in)
{
    return sherd_add(in[0], in[0]);
}

static sherd_tensor *linear(sherd_tensor *const *in)
{
    return sherd_linear(in[0], in[1], in[2]);
}

static sherd_tensor *heads(sherd_tensor *const *in)
{
    return sherd_view(in[0], (int64_t[]){4, 2, 2}, 3);
}

/* Tensors of 16 elements and fewer: the arithmetic is next to nothing. */
static bool make(sherd_world *world, const sherd_mesh *mesh, const kind *k, sherd_tensor **in)
{
    static const int64_t shape[3][2] = {{4, 4}, {2, 4}, {2, 0}};
    static const int ndim[3] = {2, 2, 1};

    for (int i = 0; i < (k->run == linear ? 3 : 1); i++) {
        const sherd_layout *layout = NULL;
        if (!k->placements) {
            in[i] = sherd_constant(world, SHERD_F32, shape[i], ndim[i], 1);
        } else if (sherd_layout_parse_placements(&layout, mesh, ndim[i], shape[i],
                                                 i == 0 && k->run == linear ? "R" : k->placements,
                                                 NULL) == SHERD_OK) {
            in[i] = sherd_constant_on(layout, SHERD_F32, 1);
        } else {
            return false;
        }
        sherd_require_grad(in[i], k->recorded);
    }
    return true;
}

static void measure(sherd_world *world, const sherd_mesh *mesh, kind *k, sherd_tensor *const *in,
                    bool paused)
{
    bool before = sherd__deeds_pause(mesh, paused);
    double start = 1e9 * seconds(), *best = &k->best[paused];

    for (int i = 0; i < CALLS; i++) {
        sherd_scope_begin(world);
        k->run(in);
        sherd_scope_end(world);
    }
    double each = (1e9 * seconds() - start) / CALLS;
    if (*best == 0 || each < *best)
        *best = each;
    sherd__deeds_pause(mesh, before);
}

static int body(sherd_world *world, void *payload)
{
    kind kinds[KINDS] = {
        {"add, plain", add, NULL, false, {0}},
        {"add, distributed", add, "R", false, {0}},
        {"add, plain, recorded", add, NULL, true, {0}},
        {"add, distributed, recorded", add, "R", true, {0}},
        {"linear, plain", linear, NULL, false, {0}},
        {"linear, distributed", linear, "S(0)", false, {0}},
        {"view, plain", heads, NULL, false, {0}},
        {"view, distributed", heads, "S(1)", false, {0}},
    };
    sherd_tensor *in[KINDS][3];
    const sherd_mesh *mesh = NULL;

    (void)payload;
    if (sherd_mesh_parse(&mesh, world, "tp=2") != SHERD_OK)
        return 1;
    for (int i = 0; i < KINDS; i++)
        if (!make(world, mesh, &kinds[i], in[i]))
            return 1;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < KINDS; i++)
            for (int paused = 0; paused < 2; paused++)
                measure(world, mesh, &kinds[i], in[i], paused);
    if (sherd_world_check(world) != SHERD_OK) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    for (int i = 0; i < KINDS && sherd_world_rank(world) == 0; i++) {
        const double *best = kinds[i].best;
        printf("%-28s %6.0f ns", kinds[i].name, best[0]);
        if (i % 2)
            printf(", %+.0f ns; %+.0f ns of them the ledger", best[0] - kinds[i - 1].best[0],
                   best[0] - best[1]);
        printf("\n");
    }
    return 0;
}

int main(void)
{
    sherd_world_options options = {.ranks = 2, .as = SHERD_THREADS};
    int exit_status = 1;

    if (sherd_spawn(&exit_status, &options, body, NULL) != SHERD_OK)
        return 1;
    return exit_status;
}
