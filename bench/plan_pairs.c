/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cold times of the three planners for given pairs, for a script that times another library on the
 * same ones. Reads lines `mesh shape from to` (2x2x2 8x8x8 S(0)RR RS(1)R), writes for each `exact
 * greedy graph` in microseconds. Each plan is made in a space of its own: nothing is interned but
 * mesh, source and target, nothing is cached. The least of a few rounds counts.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout/layout.h"
#include "timing.h"
#include "search/plans.h"

enum { ROUNDS = 5, RANKS = 1 << 20 };

typedef struct question {
    char mesh[64], shape[64], from[128], to[128];
} question;

static const sherd_layout *layout_of(const sherd_mesh *mesh, const question *q, const char *text)
{
    int64_t shape[SHERD_MAX_DIMS];
    const sherd_layout *layout = NULL;
    int ndim;

    if (sherd__shape_read(shape, &ndim, mesh->space->diag, "plan_pairs", q->shape) ||
        sherd_layout_parse_placements(&layout, mesh, ndim, shape, text, NULL)) {
        fprintf(stderr, "plan_pairs: %s\n", mesh->space->diag->text);
        exit(1);
    }
    return layout;
}

/* Microseconds of one cold plan. */
static double plan_once(const question *q, sherd_planner planner)
{
    const sherd_plan_options options = {.planner = planner};
    sherd__heap heap = {0};
    sherd__diag diag = {.rank = -1};
    sherd__space space;
    const sherd_mesh *mesh;
    const sherd_plan *plan;

    sherd__space_init(&space, &heap, &diag, RANKS, -1);
    if (sherd__mesh_read(&mesh, &space, q->mesh)) {
        fprintf(stderr, "plan_pairs: %s\n", diag.text);
        exit(1);
    }
    const sherd_layout *from = layout_of(mesh, q, q->from), *to = layout_of(mesh, q, q->to);
    double start = 1e6 * seconds();
    if (sherd_plan_create(&plan, from, to, SHERD_F32, &options)) {
        fprintf(stderr, "plan_pairs: %s\n", diag.text);
        exit(1);
    }
    double took = 1e6 * seconds() - start;
    sherd__plans_clear(&space);
    sherd__space_clear(&space);
    return took;
}

int main(void)
{
    static const sherd_planner planners[] = {SHERD_PLANNER_EXACT, SHERD_PLANNER_GREEDY,
                                             SHERD_PLANNER_GRAPH};
    question q;

    while (scanf("%63s %63s %127s %127s", q.mesh, q.shape, q.from, q.to) == 4) {
        for (int i = 0; i < 3; i++) {
            double best = 1e30;
            for (int k = 0; k < ROUNDS; k++) {
                double took = plan_once(&q, planners[i]);
                best = took < best ? took : best;
            }
            printf("%s%.2f", i ? " " : "", best);
        }
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
