/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all fuzz targets share: a space on paper that lives for one input, what must hold of every
 * error, and of every layout that was read. A text is read twice: once as it is, and once with the
 * n-th allocation failing, where n comes from the text itself, so that a found input stays one
 * file.
 *
 * A target is one function that libFuzzer calls; what must not happen ends in abort().
 */
#ifndef SHERD_FUZZ_H
#define SHERD_FUZZ_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"
#include "layout/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MUST(condition) ((condition) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #condition, NULL))
#define MUST_SAY(condition, text) \
    ((condition) ? (void)0 : fuzz_broken(__FILE__, __LINE__, #condition, text))
#define LEN(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline void fuzz_broken(const char *file, int line, const char *what, const char *text)
{
    fprintf(stderr, "%s:%d: does not hold: %s\n%s\n", file, line, what, text ? text : "");
    abort();
}

/* ---- paper ---------------------------------------------------------------------------------- */

typedef struct paper {
    sherd__heap heap;
    sherd__diag diag;
    sherd__space space;
} paper;

static inline void paper_open(paper *p, int ranks, int64_t fail_at)
{
    memset(p, 0, sizeof *p);
    p->diag.rank = -1;
    p->heap.fail_at = fail_at;
    sherd__space_init(&p->space, &p->heap, &p->diag, ranks, -1);
}

static inline void paper_close(paper *p)
{
    sherd__space_clear(&p->space);
    MUST(p->heap.live == 0);
}

/* A copy with an ending zero, in memory of its exact size, so that reading past it is seen. */
static inline char *fuzz_text(const uint8_t *data, size_t bytes)
{
    char *text = malloc(bytes + 1);

    MUST(text != NULL);
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    return text;
}

/* Which allocation fails in the second reading. */
static inline int64_t fuzz_fail_at(const char *text)
{
    uint32_t h = 2166136261u;

    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * 16777619u;
    return 1 + h % 24;
}

/* Read a text, and read it again where an allocation fails. */
static inline void fuzz_twice(const uint8_t *data, size_t bytes,
                              void (*read_one)(const char *text, size_t bytes, int64_t fail_at))
{
    char *text = fuzz_text(data, bytes);

    read_one(text, bytes, 0);
    read_one(text, bytes, fuzz_fail_at(text));
    free(text);
}

/* ---- what must hold ------------------------------------------------------------------------- */

/* One line; its bytes are not judged where the text that it shows is not ASCII. */
static inline bool is_one_line(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

/*
 * An error of `read` (or of `other`, if there are two texts): its status, its text, its place.
 * Whatever is wrong with a text is wrong somewhere in it.
 */
static inline void check_error(const paper *p, sherd_status status, const char *read,
                               const char *other)
{
    const sherd__diag *diag = &p->diag;

    MUST_SAY(status == SHERD_EINVAL || status == SHERD_ENOTSUP || status == SHERD_ELIMIT ||
                 (status == SHERD_ENOMEM && p->heap.fail_at),
             diag->text);
    MUST(diag->status == status);
    MUST_SAY(strlen(diag->text) > 0 && strlen(diag->text) < sizeof diag->text, diag->text);
    MUST_SAY(is_one_line(diag->text), diag->text);
    MUST_SAY((diag->column > 0) == (diag->source != NULL), diag->text);
    MUST_SAY(diag->column > 0 || status == SHERD_ENOMEM, diag->text);
    if (diag->column == 0)
        return;
    MUST_SAY(diag->source == read || (other && diag->source == other), diag->text);
    MUST_SAY((size_t)diag->column <= strlen(diag->source) + 1, diag->text);
}

/* ---- boxes ---------------------------------------------------------------------------------- */

/* Whether a rank is the first of those that hold the same shards. */
static inline bool is_first_replica(const sherd_layout *layout, const int64_t *coordinate)
{
    for (int i = 0; i < sherd_mesh_axes(layout->spec.mesh); i++)
        if (!(layout->shard_axes >> i & 1) && coordinate[i] != 0)
            return false;
    return true;
}

/* The boxes of all ranks of a small mesh partition the tensor, and replicas hold the same. */
static inline void check_boxes(const sherd_layout *layout)
{
    enum { RANKS = 64 };
    const sherd_mesh *mesh = layout->spec.mesh;
    static sherd_box boxes[RANKS];
    int64_t at[SHERD_MAX_AXES], total;
    __extension__ unsigned __int128 covered = 0;
    int count = 0;

    if (sherd_mesh_ranks(mesh) > RANKS)
        return;
    MUST(sherd__count(layout->spec.shape, layout->spec.ndim, &total));
    for (int64_t i = 0; i < sherd_mesh_ranks(mesh); i++) {
        int rank = mesh->ranks ? mesh->ranks[i] : (int)i;
        MUST(sherd_layout_boxes(layout, rank) == 1 && sherd_mesh_coordinate(mesh, rank, at));
        MUST(sherd__mesh_rank_at(mesh, at) == rank);
        sherd_box box = sherd_layout_box(layout, rank, 0);
        for (int d = 0; d < layout->spec.ndim; d++)
            MUST(box.offset[d] >= 0 && box.size[d] >= 0 &&
                 box.size[d] <= layout->spec.shape[d] - box.offset[d]);
        if (is_first_replica(layout, at)) {
            boxes[count++] = box;
            covered += (uint64_t)sherd__box_count(&box);
            continue;
        }
        for (int k = 0; k < sherd_mesh_axes(mesh); k++)
            at[k] = layout->shard_axes >> k & 1 ? at[k] : 0;
        sherd_box first = sherd_layout_box(layout, sherd__mesh_rank_at(mesh, at), 0);
        MUST(memcmp(&first, &box, sizeof box) == 0);
    }
    MUST(covered == (uint64_t)total);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            sherd_box shared;
            MUST(!sherd__box_meet(&boxes[i], &boxes[j], &shared));
        }
}

/* The cuts of a layout as text, "0:4,6;1:2,2", for the dims that have their own. */
static inline char *cuts_text(const sherd_layout *layout)
{
    size_t room = 1 << 16;
    sherd__writer w = {malloc(room), room, 0};

    MUST(w.at != NULL);
    w.at[0] = '\0';
    for (int d = 0; d < layout->spec.ndim; d++) {
        const sherd__dim *dim = &layout->spec.dim[d];
        int64_t parts = sherd__dim_parts(layout->spec.mesh, dim);
        if (dim->cuts)
            sherd__write(&w, "%s%d:", w.length ? ";" : "", d);
        for (int64_t i = 0; dim->cuts && i < parts; i++)
            sherd__write(&w, "%s%lld", i ? "," : "", (long long)(dim->cuts[i + 1] - dim->cuts[i]));
    }
    MUST(w.length < room);
    return w.at;
}

/* Every way to write a layout reads back as the same pointer; its boxes are right. */
static inline void check_layout(paper *p, const sherd_layout *layout)
{
    const sherd__layout_spec *spec = &layout->spec;
    const sherd_layout *again = NULL;
    char *cuts = cuts_text(layout);

    MUST_SAY(sherd__layout_read(&again, &p->space, sherd_layout_text(layout), NULL) == SHERD_OK,
             p->diag.text);
    MUST_SAY(again == layout, sherd_layout_text(layout));
    MUST_SAY(sherd_layout_parse_placements(&again, spec->mesh, spec->ndim, spec->shape,
                                           sherd_layout_placements(layout), cuts) == SHERD_OK,
             p->diag.text);
    MUST_SAY(again == layout, sherd_layout_text(layout));
    free(cuts);
    check_boxes(layout);
}

#endif
