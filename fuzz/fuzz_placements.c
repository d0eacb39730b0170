/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placements and cuts, "S(0)R|0:4,6", on meshes and shapes of all sorts. Without a | there are no
 * cuts.
 */
#include "fuzz.h"

typedef struct scene {
    const char *mesh;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} scene;

static const scene scenes[] = {
    {"x=2,y=4", 2, {10, 6}},
    {"4", 1, {5}},
    {"1", 0, {0}},
    {"2x2x2", 3, {8, 0, 13}},
    {"3x2@5,4,3,2,1,0", 3, {7, 5, 3}},
    {"2x1x2x1x2x1x1x2", 8, {16, 3, 1, 2, 1, 1, 1, 4611686018427}},
    {"x=1048576", 2, {1000003, 7}},
};

static sherd_status try(const scene *where, const char *placements, const char *cuts,
                        int64_t fail_at)
{
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = NULL;
    paper p;

    paper_open(&p, 1 << 20, 0);
    MUST(sherd__mesh_read(&mesh, &p.space, where->mesh) == SHERD_OK);
    p.heap.allocations = 0;
    p.heap.fail_at = fail_at;
    sherd_status status =
        sherd_layout_parse_placements(&layout, mesh, where->ndim, where->shape, placements, cuts);
    MUST((status == SHERD_OK) == (layout != NULL));
    if (status != SHERD_OK)
        check_error(&p, status, placements, cuts);
    p.heap.fail_at = 0;
    if (layout)
        check_layout(&p, layout);
    paper_close(&p);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    char *bar = strchr(text, '|');
    int64_t fail_at = fuzz_fail_at(text);

    if (bar)
        *bar = '\0';
    for (int i = 0; i < LEN(scenes); i++) {
        sherd_status status = try(&scenes[i], text, bar ? bar + 1 : NULL, 0);
        sherd_status starved = try(&scenes[i], text, bar ? bar + 1 : NULL, fail_at);
        MUST(starved == status || starved == SHERD_ENOMEM);
    }
    free(text);
    return 0;
}
