/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this rank sends in a step. The schedules of all its readers say which boxes they pull from
 * it; here they are inverted. Made once for each step of a plan, from as many schedules as there
 * are readers.
 */
#include "sends.h"
#include "window_schedule.h"
#include "base/num.h"

#include <string.h>

/* The schedule of any rank for a step; *out NULL: it takes no part. False: no memory. */
static bool make_schedule(sherd__schedule **out, const sherd_plan *plan, int step, int rank)
{
    sherd_status status =
        plan->window ? sherd__window_schedule(out, plan->window, (sherd__direction)plan->direction,
                                              plan->element_bytes, rank)
                     : sherd__schedule_create(out, plan->space, &plan->step[step],
                                              plan->element_bytes, rank);
    return status == SHERD_OK;
}

static int64_t elements_of(const int64_t *size, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= size[d];
    return n;
}

/* ---- what comes in --------------------------------------------------------------------------- */

static sherd__parcel_list *find_in(const sherd__sends *s, int rank)
{
    for (int i = 0; i < s->ins; i++)
        if (s->in[i].rank == rank)
            return &s->in[i];
    return NULL;
}

static void find_places(sherd__sends *s, const sherd__schedule *mine)
{
    for (int i = 0; i < mine->sources; i++)
        s->in[s->ins++].rank = mine->source[i];
    for (int i = 0; i < mine->regions; i++) {
        const sherd__region *region = &mine->region[i];
        for (int k = region->first; k < region->first + region->count; k++) {
            sherd__parcel_list *in = find_in(s, mine->pull[k].rank);
            if (!in)
                continue; /* my own part */
            s->place[k] = in->elements;
            in->elements += elements_of(region->size, mine->ndim);
        }
    }
}

/* ---- what goes out --------------------------------------------------------------------------- */

/*
 * The boxes that a reader's schedule pulls from this rank, behind those that there are; how many.
 */
static int take_boxes(sherd__sent_box *out, const sherd__schedule *theirs, int me)
{
    int count = 0;

    for (int i = 0; i < theirs->regions; i++) {
        const sherd__region *region = &theirs->region[i];
        for (int k = region->first; k < region->first + region->count; k++) {
            if (theirs->pull[k].rank != me)
                continue;
            if (out) {
                memcpy(out[count].offset, theirs->pull[k].offset, sizeof out->offset);
                memcpy(out[count].size, region->size, sizeof out->size);
            }
            count++;
        }
    }
    return count;
}

static bool add_reader(sherd__sends *s, const sherd_plan *plan, int step, int rank, int *boxes)
{
    sherd__heap *heap = plan->space->heap;
    sherd__parcel_list *list = &s->out[s->outs];
    sherd__schedule *theirs = NULL;
    bool good = make_schedule(&theirs, plan, step, rank);
    int count = good && theirs ? take_boxes(NULL, theirs, plan->space->rank) : 0;

    if (good && count) {
        sherd__sent_box *grown = sherd__grow(heap, s->box, (size_t)*boxes,
                                             (size_t)*boxes + (size_t)count, sizeof *grown);
        good = grown != NULL;
        if (good)
            s->box = grown;
    }
    if (good) {
        *list = (sherd__parcel_list){rank, *boxes, count, 0};
        s->outs++;
        *boxes += count;
    }
    if (good && count) {
        take_boxes(s->box + list->first, theirs, plan->space->rank);
        for (int i = 0; i < count; i++)
            list->elements += elements_of(s->box[list->first + i].size, theirs->ndim);
    }
    sherd__schedule_destroy(plan->space, theirs);
    return good;
}

static bool find_readers(sherd__sends *s, const sherd_plan *plan, int step)
{
    const sherd__schedule *mine = plan->mine[step];
    int boxes = 0;
    bool good = true;

    for (int i = 0; i < mine->readers && good; i++)
        good = add_reader(s, plan, step, mine->reader[i], &boxes);
    return good;
}

/* ---- making and asking ----------------------------------------------------------------------- */

void sherd__sends_destroy(sherd__space *space, sherd__sends *sends)
{
    if (!sends)
        return;
    sherd__free(space->heap, sends->out);
    sherd__free(space->heap, sends->in);
    sherd__free(space->heap, sends->box);
    sherd__free(space->heap, sends->place);
    sherd__free(space->heap, sends);
}

static sherd__sends *make(const sherd_plan *plan, int step)
{
    const sherd__schedule *mine = plan->mine[step];
    sherd__heap *heap = plan->space->heap;
    sherd__sends *s = sherd__alloc(heap, 1, sizeof *s);

    if (!s)
        return NULL;
    s->out = sherd__alloc(heap, (size_t)mine->readers, sizeof *s->out);
    s->in = sherd__alloc(heap, (size_t)mine->sources, sizeof *s->in);
    s->place = sherd__alloc(heap, (size_t)mine->pulls, sizeof *s->place);
    if (s->out && s->in && s->place) {
        find_places(s, mine);
        if (find_readers(s, plan, step))
            return s;
    }
    sherd__sends_destroy(plan->space, s);
    return NULL;
}

const sherd__sends *sherd__sends_of(const sherd_plan *plan, int step)
{
    sherd_plan *keeper =
        (sherd_plan *)(uintptr_t)plan; /* a plan is constant to all but its caches */

    if (!plan->mine[step])
        return NULL;
    if (!keeper->sends)
        keeper->sends =
            sherd__alloc(plan->space->heap, (size_t)plan->steps, sizeof(sherd__sends *));
    if (keeper->sends && !keeper->sends[step])
        keeper->sends[step] = make(plan, step);
    return keeper->sends ? keeper->sends[step] : NULL;
}

int64_t sherd__sends_in(const sherd__sends *sends, int rank)
{
    const sherd__parcel_list *in = find_in(sends, rank);
    return in ? in->elements : 0;
}

const sherd__parcel_list *sherd__sends_out(const sherd__sends *sends, int rank)
{
    for (int i = 0; i < sends->outs; i++)
        if (sends->out[i].rank == rank)
            return &sends->out[i];
    return NULL;
}

/* ---- packing --------------------------------------------------------------------------------- */

static const char *start_of(const sherd__source *source, const int64_t *offset, int ndim,
                            size_t element_bytes)
{
    int64_t at = 0;

    for (int d = 0; d < ndim; d++)
        at += offset[d] * source->stride[d];
    return (const char *)source->data + at * (int64_t)element_bytes;
}

int64_t sherd__box_stretch(int ndim, const int64_t *size, int64_t from, int64_t to, int64_t *offset,
                           int64_t *out_size)
{
    int64_t stride[SHERD_MAX_DIMS];
    int d = 0;

    if (ndim == 0)
        return 1;
    sherd__row_major(ndim, size, stride);
    while (d + 1 < ndim && (from % stride[d] || to - from < stride[d]))
        d++;
    for (int e = 0; e < ndim; e++) {
        offset[e] = e <= d ? from / stride[e] % size[e] : 0;
        out_size[e] = e < d ? 1 : size[e];
    }
    out_size[d] = sherd__min((to - from) / stride[d], size[d] - offset[d]);
    return out_size[d] * stride[d];
}

/* Elements [from, to) of one box. */
static char *pack_box(const sherd__packing *what, const sherd__sent_box *box, int64_t from,
                      int64_t to, char *out)
{
    int64_t at[SHERD_MAX_DIMS], size[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS];

    if (from == 0 && to == elements_of(box->size, what->ndim)) { /* mostly: without divisions */
        sherd__row_major(what->ndim, box->size, stride);
        sherd__copy_box(what->element_bytes, what->ndim, box->size, out, stride,
                        start_of(what->source, box->offset, what->ndim, what->element_bytes),
                        what->source->stride);
        return out + to * (int64_t)what->element_bytes;
    }
    while (from < to) {
        int64_t n = sherd__box_stretch(what->ndim, box->size, from, to, at, size);
        for (int d = 0; d < what->ndim; d++)
            at[d] += box->offset[d];
        sherd__row_major(what->ndim, size, stride);
        sherd__copy_box(what->element_bytes, what->ndim, size, out, stride,
                        start_of(what->source, at, what->ndim, what->element_bytes),
                        what->source->stride);
        out += n * (int64_t)what->element_bytes;
        from += n;
    }
    return out;
}

void sherd__sends_pack(const sherd__packing *what, int64_t from, int64_t to, void *out)
{
    int64_t begin = 0;
    char *next = out;

    for (int i = 0; i < what->list->count; i++) {
        const sherd__sent_box *box = &what->sends->box[what->list->first + i];
        int64_t n = elements_of(box->size, what->ndim);
        int64_t first = from > begin ? from - begin : 0, end = sherd__min(to - begin, n);
        next = pack_box(what, box, first, end, next);
        begin += n;
    }
}

const void *sherd__sends_direct(const sherd__sends *sends, const sherd__parcel_list *list, int ndim,
                                size_t element_bytes, const sherd__source *source)
{
    const sherd__sent_box *box = &sends->box[list->first];
    int64_t stride[SHERD_MAX_DIMS];

    if (list->count != 1)
        return NULL;
    sherd__row_major(ndim, box->size, stride);
    for (int d = 0; d < ndim; d++)
        if (box->size[d] > 1 && stride[d] != source->stride[d])
            return NULL;
    return start_of(source, box->offset, ndim, element_bytes);
}
