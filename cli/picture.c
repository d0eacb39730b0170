/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks, sheets and pieces of `sherd show`, see picture.h. */
#include "picture.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"

static const char function[] = "sherd_show";

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A rank on its way into a block. */
typedef struct holder {
    sherd_box box;
    int64_t pending; /* number of its coordinate among the pending axes: which addend it holds */
    int rank;
} holder;

static bool is_empty(const sherd_box *box)
{
    return sherd__box_count(box) == 0;
}

static int compare_boxes(const sherd_box *a, const sherd_box *b)
{
    for (int d = 0; d < a->ndim; d++) {
        if (a->offset[d] != b->offset[d])
            return a->offset[d] < b->offset[d] ? -1 : 1;
        if (a->size[d] != b->size[d])
            return a->size[d] < b->size[d] ? -1 : 1;
    }
    return 0;
}

/* By box, empty ones last, then by addend, then by rank. */
static int compare_holders(const void *x, const void *y)
{
    const holder *a = x, *b = y;
    int order = is_empty(&a->box) - is_empty(&b->box);

    if (order == 0 && !is_empty(&a->box))
        order = compare_boxes(&a->box, &b->box);
    if (order == 0)
        order = (a->pending > b->pending) - (a->pending < b->pending);
    return order ? order : (a->rank > b->rank) - (a->rank < b->rank);
}

static int64_t pending_number(const sherd_layout *layout, const int64_t *coordinate)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    int64_t number = 0;

    for (int i = 0; i < mesh->axes; i++)
        if (layout->pending_axes >> i & 1)
            number = number * mesh->extent[i] + coordinate[i];
    return number;
}

static void list_holders(holder *out, const sherd_layout *layout)
{
    const sherd_mesh *mesh = layout->spec.mesh;
    int64_t at[SHERD_MAX_AXES] = {0};

    for (int64_t i = 0; i < mesh->count; i++) {
        sherd__layout_box(layout, at, &out[i].box);
        out[i].pending = pending_number(layout, at);
        out[i].rank = sherd__mesh_rank_at(mesh, at);
        for (int a = mesh->axes - 1; a >= 0 && ++at[a] == mesh->extent[a]; a--)
            at[a] = 0;
    }
    qsort(out, (size_t)mesh->count, sizeof *out, compare_holders);
}

/* Equal neighbours in the sorted list are one block. */
static void gather_blocks(cli_side *side, const holder *list)
{
    for (int i = 0; i < side->ranks; i++) {
        cli_block *last = side->blocks ? &side->block[side->blocks - 1] : NULL;
        side->rank[i] = list[i].rank;
        if (is_empty(&list[i].box))
            continue;
        side->holders++;
        if (last && compare_boxes(&last->box, &list[i].box) == 0) {
            side->has_replicas |= list[i].pending == list[i - 1].pending;
            last->count++;
        } else
            side->block[side->blocks++] = (cli_block){list[i].box, i, 1};
    }
}

static sherd_status make_side(cli_side *side, cli_picture *picture, cli_problem *p,
                              const sherd_layout *layout)
{
    int64_t count = layout->spec.mesh->count;

    side->layout = layout;
    if (count > CLI_PICTURE_RANKS)
        return sherd__fail(p->diag, SHERD_ELIMIT,
                           "%.200s: %lld ranks are too many for a picture: expected at most %d",
                           layout->text, (long long)count, CLI_PICTURE_RANKS);
    side->ranks = (int)count;
    side->block = sherd__alloc(picture->heap, (size_t)count, sizeof *side->block);
    side->rank = sherd__alloc(picture->heap, (size_t)count, sizeof *side->rank);
    holder *list = sherd__alloc(picture->heap, (size_t)count, sizeof *list);
    bool good = side->block && side->rank && list;
    if (good) {
        list_holders(list, layout);
        gather_blocks(side, list);
    }
    sherd__free(picture->heap, list);
    return good ? SHERD_OK : sherd__no_memory(p->diag, function);
}

/* ---- sheets ---------------------------------------------------------------------------------- */

static int compare_cuts(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/* Where any block of any side begins or ends in a dim. */
static bool find_cuts(cli_picture *picture, int d)
{
    int n = 0, kept = 0, room = 2 * (picture->side[0].blocks + picture->side[1].blocks);
    int64_t *cut = sherd__alloc(picture->heap, (size_t)room + 1, sizeof *cut);

    picture->cut[d] = cut;
    if (!cut)
        return false;
    for (int s = 0; s < picture->sides; s++)
        for (int b = 0; b < picture->side[s].blocks; b++) {
            const sherd_box *box = &picture->side[s].block[b].box;
            cut[n++] = box->offset[d];
            cut[n++] = box->offset[d] + box->size[d];
        }
    qsort(cut, (size_t)n, sizeof *cut, compare_cuts);
    for (int i = 0; i < n; i++)
        if (kept == 0 || cut[kept - 1] != cut[i])
            cut[kept++] = cut[i];
    picture->cuts[d] = kept;
    return true;
}

/* How many dims come before the last two. */
static int leading(const cli_picture *picture)
{
    return picture->ndim > 2 ? picture->ndim - 2 : 0;
}

static bool find_sheets(cli_picture *picture)
{
    const int64_t *shape = picture->side[0].layout->spec.shape;

    picture->rows = picture->ndim > 1 ? shape[picture->ndim - 2] : 1;
    picture->columns = picture->ndim > 0 ? shape[picture->ndim - 1] : 1;
    picture->sheets = picture->side[0].blocks > 0 ? 1 : 0;
    for (int d = 0; d < leading(picture); d++) {
        if (!find_cuts(picture, d))
            return false;
        picture->sheets *= picture->cuts[d] - 1; /* no blocks: 0 times -1, and 0 from then on */
    }
    return true;
}

/* The piece of dim d that a sheet shows. */
static void sheet_range(const cli_picture *picture, int64_t sheet, int d, int64_t *lo, int64_t *hi)
{
    for (int i = leading(picture) - 1; i > d; i--)
        sheet /= picture->cuts[i] - 1;
    sheet %= picture->cuts[d] - 1;
    *lo = picture->cut[d][sheet];
    *hi = picture->cut[d][sheet + 1];
}

bool cli_patch_of(cli_patch *out, const cli_picture *picture, int64_t sheet, const sherd_box *box)
{
    int n = picture->ndim;

    for (int d = 0; d < leading(picture); d++) {
        int64_t lo, hi;
        sheet_range(picture, sheet, d, &lo, &hi);
        if (box->offset[d] > lo || box->offset[d] + box->size[d] < hi)
            return false;
    }
    *out = (cli_patch){0, 1, 0, 1};
    if (n > 0)
        *out = (cli_patch){0, 1, box->offset[n - 1], box->size[n - 1]};
    if (n > 1) {
        out->row = box->offset[n - 2];
        out->rows = box->size[n - 2];
    }
    return true;
}

void cli_sheet_name(char *out, size_t room, const cli_picture *picture, int64_t sheet)
{
    sherd__writer w = {out, room, 0};

    out[0] = '\0';
    for (int d = 0; d < leading(picture); d++) {
        int64_t lo, hi;
        sheet_range(picture, sheet, d, &lo, &hi);
        sherd__write(&w, "%sdim %d: %lld", d ? ", " : "", d, (long long)lo);
        if (hi > lo + 1)
            sherd__write(&w, " to %lld", (long long)hi - 1);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Figures stop below 2^62, as those of plans do. */
static int64_t cut(bool good, int64_t value)
{
    return good ? value : ((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product = 0;
    bool good = sherd__mul(a, b, &product);

    return cut(good, product);
}

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum = 0;
    bool good = sherd__add(a, b, &sum);

    return cut(good, sum);
}

static bool holds(const cli_side *side, const cli_block *block, int rank)
{
    for (int i = 0; i < block->count; i++)
        if (side->rank[block->first + i] == rank)
            return true;
    return false;
}

bool cli_piece_of(cli_piece *out, const cli_picture *picture, const cli_block *target, int from)
{
    const cli_side *source = &picture->side[0];
    const cli_block *block = &source->block[from];
    int64_t bytes;

    *out = (cli_piece){.from = from};
    if (!sherd__box_meet(&block->box, &target->box, &out->box))
        return false;
    bytes = times(sherd__box_count(&out->box), (int64_t)picture->element_bytes);
    for (int i = 0; i < target->count; i++) {
        bool own = holds(source, block, picture->side[1].rank[target->first + i]);
        int64_t received = times(picture->addends - own, bytes);
        out->bytes_total = plus(out->bytes_total, received);
        out->bytes_max = sherd__max(out->bytes_max, received);
    }
    return true;
}

int64_t cli_block_received(const cli_picture *picture, const cli_block *target)
{
    const cli_side *source = &picture->side[0];
    int64_t most = 0;

    for (int i = 0; i < target->count; i++) {
        int64_t received = 0;
        for (int b = 0; b < source->blocks; b++) {
            sherd_box meet;
            if (!sherd__box_meet(&source->block[b].box, &target->box, &meet))
                continue;
            bool own = holds(source, &source->block[b], picture->side[1].rank[target->first + i]);
            received = plus(received, times(picture->addends - own, sherd__box_count(&meet)));
        }
        most = sherd__max(most, times(received, (int64_t)picture->element_bytes));
    }
    return most;
}

/* ---- making it ------------------------------------------------------------------------------- */

/*
 * How many addends come together: the extents of the source's pending axes that are not pending in
 * the target.
 */
static int64_t addends_of(const sherd_layout *from, const sherd_layout *to)
{
    const sherd_mesh *mesh = from->spec.mesh;
    int64_t n = 1;

    for (int i = 0; i < mesh->axes; i++)
        if (from->spec.pending[i] >= 0 && (mesh != to->spec.mesh || to->spec.pending[i] < 0))
            n *= mesh->extent[i];
    return n;
}

sherd_status cli_picture_make(cli_picture *out, sherd__heap *heap, cli_problem *p)
{
    memset(out, 0, sizeof *out);
    out->heap = heap;
    out->sides = p->to ? 2 : 1;
    out->ndim = p->from->spec.ndim;
    out->element_bytes = sherd_dtype_bytes(p->dtype);
    out->addends = p->to ? addends_of(p->from, p->to) : 1;
    sherd_status status = make_side(&out->side[0], out, p, p->from);
    if (status == SHERD_OK && p->to)
        status = make_side(&out->side[1], out, p, p->to);
    if (status == SHERD_OK && !find_sheets(out))
        status = sherd__no_memory(p->diag, function);
    return status;
}

void cli_picture_clear(cli_picture *picture)
{
    for (int i = 0; i < 2; i++) {
        sherd__free(picture->heap, picture->side[i].block);
        sherd__free(picture->heap, picture->side[i].rank);
    }
    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        sherd__free(picture->heap, picture->cut[d]);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int64_t addend_of(const cli_side *side, int rank)
{
    int64_t coordinate[SHERD_MAX_AXES] = {0};

    if (!sherd_mesh_coordinate(side->layout->spec.mesh, rank, coordinate))
        return 0;
    return pending_number(side->layout, coordinate);
}

/* How many ranks from the i-th on follow each other and hold the same. */
static int run_length(const cli_side *side, const cli_block *block, int i)
{
    const int *rank = &side->rank[block->first];
    int n = 1;

    while (i + n < block->count && rank[i + n] == rank[i] + n &&
           addend_of(side, rank[i + n]) == addend_of(side, rank[i]))
        n++;
    return n;
}

void cli_block_label(char *out, size_t room, const cli_side *side, const cli_block *block)
{
    const int *rank = &side->rank[block->first];
    sherd__writer w = {out, room, 0};
    int n;

    for (int i = 0; i < block->count; i += n) {
        bool joined = i > 0 && addend_of(side, rank[i]) == addend_of(side, rank[i - 1]);
        n = run_length(side, block, i);
        n = n < 3 ? 1 : n;
        sherd__write(&w, "%s%d", i == 0 ? "" : joined ? "," : "+", rank[i]);
        if (n > 1)
            sherd__write(&w, "-%d", rank[i + n - 1]);
    }
    if (w.length >= room)
        memcpy(out + room - 3, "..", 3);
}

void cli_pending_text(char *out, size_t room, const sherd_layout *layout)
{
    static const char *const ops[] = {"sum", "avg", "min", "max", "product"};
    const sherd_mesh *mesh = layout->spec.mesh;
    sherd__writer w = {out, room, 0};

    out[0] = '\0';
    for (int i = 0; i < mesh->axes; i++)
        if (layout->spec.pending[i] >= 0)
            sherd__write(&w, "%s%s over %s", w.length ? ", " : "", ops[layout->spec.pending[i]],
                         mesh->name[i]);
    if (w.length)
        sherd__write(&w, " pending");
}
