/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms by cuFFT, whose plans are made once for a shape and kept. cuFFT takes one
 * batch of columns: those of [outer,n,inner] are one if outer or inner is 1. Otherwise slabs [n,
 * inner] go one after the other, if they are large, or else columns are turned to rows and back.
 * cuFFT does not scale, nor double halves, and a transform to real numbers may overwrite its input.
 * So a pass over the complex side scales and doubles: over the result, or over a copy of the input.
 */
#include "fourier.h"
#include "box.h"
#include "inside.h"

#include "base/hash.h"
#include "base/num.h"
#include "programs/fields_args.h"

#include <string.h>

enum {
    MOST_PLANS = 128,
    LARGE = 1 << 16 /* elements of a slab that keep the GPU busy for as long as a launch takes */
};

typedef struct key {
    int64_t type, n, batch, step; /* step: from one element of a column to the next */
} key;

typedef struct plan {
    key of;
    cufftHandle handle;
    bool there; /* else cuFFT cannot */
    size_t workspace;
} plan;

/* ---- plans ----------------------------------------------------------------------------------- */

static bool is_real(cufftType type, bool in)
{
    return in ? type == CUFFT_R2C || type == CUFFT_D2Z : type == CUFFT_C2R || type == CUFFT_Z2D;
}

/* Elements of a column on one side. */
static int64_t length_of(const key *of, bool in)
{
    cufftType type = (cufftType)of->type;

    return is_real(type, !in) ? of->n / 2 + 1 : of->n;
}

static bool make(sherd__device *device, plan *p)
{
    const sherd__cuda *cuda = &device->cuda;
    const key *of = &p->of;
    long long n = of->n, in = length_of(of, true), out = length_of(of, false);
    bool rows = of->step == 1;

    if (cuda->fft_create(&p->handle))
        return false;
    p->there = cuda->fft_room_given(p->handle, 0) == 0 &&
               cuda->fft_plan(p->handle, 1, &n, &in, of->step, rows ? in : 1, &out, of->step,
                              rows ? out : 1, (cufftType)of->type, of->batch, &p->workspace) == 0 &&
               cuda->fft_stream(p->handle, device->stream) == 0;
    if (!p->there)
        cuda->fft_destroy(p->handle);
    return true;
}

static void drop(sherd__device *device, plan *p)
{
    if (p->there && !device->deserted) /* it waits for all that is queued */
        device->cuda.fft_destroy(p->handle);
    sherd__free(device->heap, p);
}

static void drop_all(sherd__device *device)
{
    size_t cursor = 0;
    plan *p;

    while ((p = sherd__map_next(&device->transforms, &cursor)))
        drop(device, p);
    sherd__map_clear(&device->transforms);
}

void sherd__device_free_transforms(sherd__device *device)
{
    drop_all(device);
}

static bool is_plan(const void *item, const void *of)
{
    return memcmp(&((const plan *)item)->of, of, sizeof(key)) == 0;
}

/* NULL: no memory, or cuFFT cannot. */
static const plan *plan_of(sherd__device *device, const key *of)
{
    uint64_t hash = sherd__hash_bytes(0, of, sizeof *of);
    plan *p = sherd__map_find(&device->transforms, hash, is_plan, of);

    if (p)
        return p->there ? p : NULL;
    if (device->transforms.count >= MOST_PLANS)
        drop_all(device);
    p = sherd__alloc(device->heap, 1, sizeof *p);
    if (!p)
        return NULL;
    p->of = *of;
    if (make(device, p) && sherd__map_add(&device->transforms, hash, p))
        return p->there ? p : NULL;
    drop(device, p);
    return NULL;
}

/* ---- how columns lie ------------------------------------------------------------------------- */

typedef struct work {
    sherd__device *device;
    sherd_dtype dtype;
    const sherd__fft *t;
    int64_t in, out; /* elements of a column */
    size_t in_bytes, out_bytes;
    bool turns;
    int64_t slabs; /* each by a call of cuFFT */
    key of;
} work;

static cufftType type_of(sherd_dtype dtype, sherd__fft_kind kind)
{
    bool wide = dtype == SHERD_F64;

    return kind == SHERD__FFT_TO_HALF     ? wide ? CUFFT_D2Z : CUFFT_R2C
           : kind == SHERD__FFT_FROM_HALF ? wide ? CUFFT_Z2D : CUFFT_C2R
           : wide                         ? CUFFT_Z2Z
                                          : CUFFT_C2C;
}

static work work_of(sherd__device *device, sherd_dtype dtype, const sherd__fft *t)
{
    work w = {.device = device, .dtype = dtype, .t = t, .slabs = 1};
    size_t real = sherd_dtype_bytes(dtype);
    bool rows = t->inner == 1;

    int64_t slab = t->n * t->inner;
    bool aligned = t->kind == SHERD__FFT_COMPLEX || slab * (int64_t)real % SHERD__WIDE == 0;

    w.turns = !rows && t->outer > 1 && (slab < LARGE || !aligned);
    if (!rows && !w.turns)
        w.slabs = t->outer;
    w.of = (key){.type = (int64_t)type_of(dtype, t->kind),
                 .n = t->n,
                 .batch = rows      ? t->outer
                          : w.turns ? t->outer * t->inner
                                    : t->inner,
                 .step = rows || w.turns ? 1 : t->inner};
    w.in = length_of(&w.of, true);
    w.out = length_of(&w.of, false);
    w.in_bytes = t->kind == SHERD__FFT_TO_HALF ? real : 2 * real;
    w.out_bytes = t->kind == SHERD__FFT_FROM_HALF ? real : 2 * real;
    return w;
}

bool sherd__device_transforms(sherd__device *device, sherd_dtype dtype, const sherd__fft *t)
{
    const work w = work_of(device, dtype, t);

    sherd__cuda_enter(device);
    return !device->failed && (dtype == SHERD_F32 || dtype == SHERD_F64) &&
           sherd__cuda_load_more(device, SHERD__CUFFT) && plan_of(device, &w.of);
}

/* ---- computing ------------------------------------------------------------------------------- */

/* [outer,n,inner] to [outer,inner,n], or back; pairs in two parts, if a view begins between. */
static void turn(const work *w, int64_t n, size_t bytes, bool back, void *dst, const void *src)
{
    const sherd__fft *t = w->t;
    int64_t parts = sherd__is_aligned(src, bytes) ? 1 : 2, slab = n * t->inner * parts;
    const int64_t size[] = {t->outer, t->inner, n, parts};
    const int64_t slabs[] = {slab, parts, t->inner * parts, 1};
    const int64_t rows[] = {slab, n * parts, parts, 1};

    sherd__device_copy_box(w->device, bytes / (size_t)parts, 4, size, dst, back ? slabs : rows, src,
                           back ? rows : slabs);
}

/* Of the complex side; `inner` and columns as they lie there. */
static void scale(const work *w, int64_t m, int64_t inner, void *dst, const void *src)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_FIELDS, "fft_scale", NULL, w->dtype,
                                  SHERD_DTYPE_NONE};
    bool to = w->t->kind == SHERD__FFT_TO_HALF, from = w->t->kind == SHERD__FFT_FROM_HALF;
    size_t real = sherd_dtype_bytes(w->dtype);
    const fft_scale_args args = {.items = w->t->outer * m * w->t->inner,
                                 .m = m,
                                 .inner = inner,
                                 .n = w->t->n,
                                 .dst = dst,
                                 .src = src,
                                 .scale = w->t->scale,
                                 .middle = !w->t->folded ? 1
                                           : to          ? 2
                                           : from        ? 0.5
                                                         : 1,
                                 .sign = to && w->t->inverse ? -1 : 1,
                                 .real_ends = from,
                                 .aligned = sherd__is_aligned(src, 2 * real)};

    sherd__device_launch(w->device, &kernel, sherd__grid_of(args.items), &args, sizeof args);
}

static bool good(sherd__device *device, int result)
{
    if (result == CUFFT_ALLOC_FAILED)
        sherd__device_lack(device, "out of memory for a Fourier transform");
    else if (result)
        sherd__device_fail(device, "a Fourier transform: cuFFT's status is %d", result);
    return result == 0;
}

static int call(const work *w, const plan *p, void *dst, void *src)
{
    const sherd__cuda *cuda = &w->device->cuda;
    int way = w->t->inverse ? CUFFT_INVERSE : CUFFT_FORWARD;

    switch ((cufftType)p->of.type) {
    case CUFFT_R2C:
        return cuda->fft_r2c(p->handle, src, dst);
    case CUFFT_C2R:
        return cuda->fft_c2r(p->handle, src, dst);
    case CUFFT_D2Z:
        return cuda->fft_d2z(p->handle, src, dst);
    case CUFFT_Z2D:
        return cuda->fft_z2d(p->handle, src, dst);
    case CUFFT_Z2Z:
        return cuda->fft_z2z(p->handle, src, dst, way);
    default:
        return cuda->fft_c2c(p->handle, src, dst, way);
    }
}

/* Transform all slabs. */
static void transform(const work *w, const plan *p, void *room, void *dst, const void *src)
{
    int64_t in = w->in * w->t->inner * (int64_t)w->in_bytes;
    int64_t out = w->out * w->t->inner * (int64_t)w->out_bytes;

    if (p->workspace && !good(w->device, w->device->cuda.fft_room(p->handle, room)))
        return;
    for (int64_t i = 0; i < w->slabs; i++)
        if (!good(w->device, call(w, p, (char *)dst + i * out, (char *)(uintptr_t)src + i * in)))
            return;
}

static int64_t room_of(int64_t bytes)
{
    return (int64_t)sherd__round_up(sherd__bytes(bytes), 256);
}

/* A copy of what is read, turned or scaled, and of what is made, turned: NULL where it is not. */
typedef struct copies {
    void *in, *out, *workspace;
} copies;

static void compute(const work *w, const plan *p, const copies *c, void *dst, const void *src)
{
    bool from = w->t->kind == SHERD__FFT_FROM_HALF;
    bool scales =
        w->t->scale != 1 || (w->t->kind == SHERD__FFT_TO_HALF && (w->t->folded || w->t->inverse));
    int64_t inner = w->turns ? 1 : w->t->inner;
    void *made = c->out ? c->out : dst;

    if (w->turns)
        turn(w, w->in, w->in_bytes, false, c->in, src);
    else if (c->in && !from)
        sherd__device_move(w->device, c->in, src,
                           w->t->outer * w->t->inner * w->in * (int64_t)w->in_bytes);
    if (from)
        scale(w, w->in, inner, c->in, w->turns ? c->in : src);
    transform(w, p, c->workspace, made, c->in ? c->in : src);
    if (w->turns)
        turn(w, w->out, w->out_bytes, true, dst, made);
    if (scales && !from)
        scale(w, w->out, w->t->inner, dst, dst);
}

void sherd__device_fft(sherd__device *device, sherd_dtype dtype, const sherd__fft *t, void *dst,
                       const void *src)
{
    const work w = work_of(device, dtype, t);
    bool copies_in = w.turns || t->kind == SHERD__FFT_FROM_HALF ||
                     !sherd__is_aligned(src, SHERD__WIDE); /* which cuFFT wants */
    int64_t columns = t->outer * t->inner;
    int64_t in = copies_in ? room_of(columns * w.in * (int64_t)w.in_bytes) : 0;
    int64_t out = w.turns ? room_of(columns * w.out * (int64_t)w.out_bytes) : 0;
    sherd__device_block *room = NULL;

    sherd__cuda_enter(device);
    if (device->failed)
        return;
    const plan *p = plan_of(device, &w.of);
    int64_t bytes = in + out + (p ? (int64_t)p->workspace : 0);
    if (!p || (bytes && !(room = sherd__device_take(device, bytes)))) {
        sherd__device_lack(device, "out of memory for a Fourier transform");
        return;
    }
    char *data = room ? room->data : NULL;
    const copies c = {copies_in ? data : NULL, w.turns ? data + in : NULL,
                      p->workspace ? data + in + out : NULL};
    compute(&w, p, &c, dst, src);
    sherd__device_give(device, room);
}
