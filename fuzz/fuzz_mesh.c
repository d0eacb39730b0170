/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes from text, in worlds of a few sizes. */
#include "fuzz.h"

/* Every rank of a small mesh has one place, and the place gives the rank. */
static void check_places(const sherd_mesh *mesh, int ranks)
{
    int64_t at[SHERD_MAX_AXES], found = 0;

    for (int rank = 0; rank < ranks; rank++) {
        if (!sherd_mesh_coordinate(mesh, rank, at))
            continue;
        for (int i = 0; i < sherd_mesh_axes(mesh); i++)
            MUST(at[i] >= 0 && at[i] < sherd_mesh_extent(mesh, i));
        MUST(sherd__mesh_rank_at(mesh, at) == rank);
        found++;
    }
    MUST(found == sherd_mesh_ranks(mesh));
}

static sherd_status try(const char *text, int ranks, int64_t fail_at)
{
    const sherd_mesh *mesh = NULL, *again = NULL;
    paper p;

    paper_open(&p, ranks, fail_at);
    sherd_status status = sherd__mesh_read(&mesh, &p.space, text);
    MUST((status == SHERD_OK) == (mesh != NULL));
    if (status != SHERD_OK)
        check_error(&p, status, text, NULL);
    p.heap.fail_at = 0;
    if (mesh) {
        MUST(sherd__mesh_read(&again, &p.space, sherd_mesh_text(mesh)) == SHERD_OK);
        MUST_SAY(again == mesh, sherd_mesh_text(mesh));
        MUST(sherd_mesh_ranks(mesh) <= ranks);
        if (ranks <= 64)
            check_places(mesh, ranks);
    }
    paper_close(&p);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int worlds[] = {1, 8, 60, 1 << 20, 2147483647};
    char *text = fuzz_text(data, bytes);

    for (int i = 0; i < LEN(worlds); i++) {
        sherd_status status = try(text, worlds[i], 0);
        sherd_status starved = try(text, worlds[i], fuzz_fail_at(text));
        MUST(starved == status || starved == SHERD_ENOMEM);
    }
    free(text);
    return 0;
}
