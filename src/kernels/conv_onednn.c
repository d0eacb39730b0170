/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 convolutions by oneDNN 2, which lays its operands out for the machine (blocks of channels)
 * and generates code. What is brought into its layouts and back costs a pass over each array, so an
 * operand of two tasks is brought there once. Memory objects are made for each call, because what
 * they hold in its layouts would be as much again as the arrays.
 */
#include "engine.h"

#ifdef SHERD_HAVE_DNNL
#include "onednn.h"
#endif

#if defined(SHERD_HAVE_DNNL) && DNNL_VERSION_MAJOR == 2

#include <string.h>

#include "conv_kept.h"
#include "base/num.h"

enum { X = SHERD__CONV_X, W = SHERD__CONV_W, Y = SHERD__CONV_Y, ARRAYS = SHERD__CONV_ARRAYS };
enum { BIAS = SHERD__CONV_BIAS, OPERANDS = SHERD__CONV_OPERANDS, FIRST = 2 };
enum { LINE = 64, TASKS = 2 };

typedef sherd__conv_kept kept;

/*
 * A task, with its operands as sherd has them, and as the primitive (or sherd's own kernel) wants
 * them.
 */
typedef struct run {
    const sherd__conv_job *job;
    sherd__conv_kind kind;
    sherd__engine *engine;
    const kept *kept;
    unsigned char *room; /* what is left of the workspace */
    /* borrowed: operands that the task before has laid out */
    bool biased, borrowed[OPERANDS];
    /* the arrays of `wanted`; workspace for sums of dw */
    void *data[ARRAYS], *sums;
    dnnl_memory_t given[OPERANDS], wanted[OPERANDS]; /* one object where the layouts are equal */
    dnnl_memory_t part[ARRAYS];                      /* what one of several calls reads */
    dnnl_memory_t from, to;                          /* of a reorder of a box; while it lasts: */
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
} run;

static const int arguments[][ARRAYS] = {
    [SHERD__CONV_FORWARD] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
    [SHERD__CONV_BACKWARD_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
    [SHERD__CONV_BACKWARD_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST}};

static bool good(run *r, dnnl_status_t status)
{
    return sherd__good(r->engine, status);
}

static bool is_result(sherd__conv_kind kind, int i)
{
    static const int result[] = {Y, X, W};

    return result[kind] == i;
}

static void release_reorder(run *r)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;

    dnnl->primitive_destroy(r->primitive);
    dnnl->primitive_desc_destroy(r->desc);
    dnnl->memory_destroy(r->from);
    dnnl->memory_destroy(r->to);
    r->primitive = NULL;
    r->desc = NULL;
    r->from = r->to = NULL;
}

static bool reorder(run *r, dnnl_memory_t from, dnnl_memory_t to)
{
    sherd__engine *e = r->engine;
    const sherd__dnnl *dnnl = &e->dnnl;
    const dnnl_memory_desc_t *a, *b;
    dnnl_exec_arg_t list[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};

    bool done =
        good(r, dnnl->memory_get_memory_desc(from, &a)) &&
        good(r, dnnl->memory_get_memory_desc(to, &b)) &&
        good(r, dnnl->reorder_primitive_desc_create(&r->desc, a, e->engine, b, e->engine, NULL)) &&
        good(r, dnnl->primitive_create(&r->primitive, r->desc)) &&
        good(r, dnnl->primitive_execute(r->primitive, e->stream, 2, list)) &&
        good(r, dnnl->stream_wait(e->stream));
    release_reorder(r);
    return done;
}

static bool is_plain(const kept *k, sherd__conv_kind kind, int i)
{
    return !(i == X && sherd__conv_has_zeros(k)) &&
           k->engine->dnnl.memory_desc_equal(sherd__conv_wanted(k, kind, i), &k->plain[i]);
}

/* The elements of the thickest slab of zeros around x. */
static int64_t slab_count(const kept *k)
{
    int64_t most = 0;

    for (int d = FIRST; d < k->ndim; d++) {
        int64_t before = k->zeros[d], after = k->x[d] - before - k->plain[X].dims[d], area = 1;
        for (int i = 0; i < k->ndim; i++)
            area *= i == d ? 1 : k->x[i];
        most = sherd__max(most, area * sherd__max(before, after));
    }
    return most;
}

/* What our own kernel adds up in, or totals of what calls make. */
static size_t sums_of(const kept *k)
{
    const sherd__dnnl *dnnl = &k->engine->dnnl;

    if (k->own)
        return dnnl->memory_desc_get_size(&k->plain[W]);
    return sherd__conv_calls(k) == 1
               ? 0
               : 2 * dnnl->memory_desc_get_size(sherd__conv_taken(k, SHERD__CONV_BACKWARD_W, W));
}

static size_t room_of(const kept *k, sherd__conv_kind kind, int i)
{
    size_t bytes = is_plain(k, kind, i)
                       ? 0
                       : k->engine->dnnl.memory_desc_get_size(sherd__conv_wanted(k, kind, i));
    size_t slab = i == X && sherd__conv_has_zeros(k) ? (size_t)slab_count(k) * sizeof(float) : 0;
    size_t sums = i == W ? sums_of(k) : 0;

    return sherd__round_up(bytes, LINE) + sherd__round_up(slab + sums, LINE);
}

/* Whether two tasks read the same array in the same layout, which is not the plain one. */
static bool is_shared(const kept *const *k, const sherd__conv_task *t, int i)
{
    return t[0].array[i] == t[1].array[i] && !is_result(t[0].kind, i) && !is_result(t[1].kind, i) &&
           !(i == X && (sherd__conv_has_zeros(k[0]) || sherd__conv_has_zeros(k[1]))) &&
           !is_plain(k[0], t[0].kind, i) &&
           k[0]->engine->dnnl.memory_desc_equal(sherd__conv_wanted(k[0], t[0].kind, i),
                                                sherd__conv_wanted(k[1], t[1].kind, i));
}

/* A box of x's room as the primitive lays it out, from an array in plain order. */
static bool lay_box(run *r, const dnnl_memory_desc_t *wanted, void *room, const dnnl_dims_t size,
                    const dnnl_dims_t offset, const void *array)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    dnnl_engine_t engine = r->engine->engine;
    dnnl_memory_desc_t plain, inner;

    return sherd__conv_row_major(r->kept, &plain, size) &&
           good(r, dnnl->memory_desc_init_submemory(&inner, wanted, size, offset)) &&
           good(r, dnnl->memory_create(&r->from, &plain, engine, (void *)(uintptr_t)array)) &&
           good(r, dnnl->memory_create(&r->to, &inner, engine, room)) && reorder(r, r->from, r->to);
}

/* Zeros before and behind x in every dim: thin slabs, since a pass over all of it would cost as
 * much as laying x out. */
static bool lay_slabs(run *r, const dnnl_memory_desc_t *wanted, void *room, float *slab)
{
    const kept *k = r->kept;

    memset(slab, 0, (size_t)slab_count(k) * sizeof *slab);
    for (int d = FIRST; d < k->ndim; d++) {
        int64_t before = k->zeros[d], after = k->x[d] - before - k->plain[X].dims[d];
        dnnl_dims_t size, offset = {0};
        memcpy(size, k->x, sizeof size);
        size[d] = before;
        if (before && !lay_box(r, wanted, room, size, offset, slab))
            return false;
        size[d] = after;
        offset[d] = k->x[d] - after;
        if (after && !lay_box(r, wanted, room, size, offset, slab))
            return false;
    }
    return true;
}

/* x amid its zeros, as the primitive wants it. Where channels are filled up to blocks, those are
 * zeros too. */
static bool embed(run *r, const dnnl_memory_desc_t *wanted, void *room, const void *x)
{
    const kept *k = r->kept;
    size_t bytes = k->engine->dnnl.memory_desc_get_size(wanted);

    if (memcmp(wanted->dims, wanted->padded_dims, (size_t)k->ndim * sizeof *wanted->dims) != 0)
        memset(room, 0, bytes);
    else if (!lay_slabs(r, wanted, room,
                        (float *)(void *)((unsigned char *)room + sherd__round_up(bytes, LINE))))
        return false;
    return lay_box(r, wanted, room, k->plain[X].dims, k->zeros, x);
}

static bool make_memory(run *r, int i, void *data)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    const dnnl_memory_desc_t *wanted = sherd__conv_wanted(r->kept, r->kind, i);
    dnnl_engine_t engine = r->engine->engine;
    void *room = r->room;

    if (!good(r, dnnl->memory_create(&r->given[i], &r->kept->plain[i], engine, data)))
        return false;
    r->room += room_of(r->kept, r->kind, i);
    r->data[i] = data;
    if (i == W)
        r->sums = r->room - sherd__round_up(sums_of(r->kept), LINE);
    if (is_plain(r->kept, r->kind, i)) {
        r->wanted[i] = r->given[i];
        return true;
    }
    r->data[i] = room;
    if (!good(r, dnnl->memory_create(&r->wanted[i], wanted, engine, room)))
        return false;
    if (i == X && sherd__conv_has_zeros(r->kept))
        return embed(r, wanted, room, data);
    return is_result(r->kind, i) || reorder(r, r->given[i], r->wanted[i]);
}

static bool make_bias(run *r, const void *bias)
{
    r->biased = bias;
    if (bias && !good(r, r->engine->dnnl.memory_create(&r->given[BIAS], &r->kept->plain[BIAS],
                                                       r->engine->engine, (void *)(uintptr_t)bias)))
        return false;
    r->wanted[BIAS] = r->given[BIAS];
    return true;
}

static bool call(run *r, const dnnl_memory_t memory[ARRAYS])
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    dnnl_exec_arg_t list[OPERANDS] = {[BIAS] = {DNNL_ARG_BIAS, r->wanted[BIAS]}};

    for (int i = 0; i < ARRAYS; i++)
        list[i] = (dnnl_exec_arg_t){arguments[r->kind][i], memory[i]};
    return good(r, dnnl->primitive_execute(r->kept->primitive, r->engine->stream,
                                           r->biased ? OPERANDS : ARRAYS, list)) &&
           good(r, dnnl->stream_wait(r->engine->stream));
}

/* What a call made of dw is added in f64, as sums.h says, and after the last one given. */
static void add_call(const run *r, bool is_last)
{
    const dnnl_memory_desc_t *lie = sherd__conv_taken(r->kept, r->kind, W);
    int64_t n = (int64_t)(r->engine->dnnl.memory_desc_get_size(lie) / sizeof(float));
    float *dw = r->data[W];
    double *total = r->sums;

    for (int64_t i = 0; i < n; i++)
        total[i] += (double)dw[i];
    for (int64_t i = 0; is_last && i < n; i++)
        dw[i] = (float)total[i];
}

/* dw by several calls, each of some images. */
static bool call_for_parts(run *r)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;
    int64_t calls = sherd__conv_calls(r->kept);
    dnnl_memory_t some[ARRAYS] = {[W] = r->wanted[W]};
    bool done = true;

    memset(r->sums, 0, sums_of(r->kept));
    for (int i = X; i <= Y && done; i += Y - X) {
        done = good(r, dnnl->memory_create(&r->part[i], sherd__conv_taken(r->kept, r->kind, i),
                                           r->engine->engine, r->data[i]));
        some[i] = r->part[i];
    }
    for (int64_t c = 0; c < calls && done; c++) {
        for (int i = X; i <= Y && done; i += Y - X) {
            const dnnl_memory_desc_t *lie = sherd__conv_taken(r->kept, r->kind, i);
            float *at =
                (float *)r->data[i] + c * r->kept->images * lie->format_desc.blocking.strides[0];
            done = good(r, dnnl->memory_set_data_handle(some[i], at));
        }
        done = done && call(r, some);
        if (done)
            add_call(r, c == calls - 1);
    }
    return done;
}

/* By oneDNN, and back into the given layout. */
static bool execute(run *r)
{
    if (!(sherd__conv_calls(r->kept) > 1 ? call_for_parts(r) : call(r, r->wanted)))
        return false;
    for (int i = 0; i < ARRAYS; i++)
        if (is_result(r->kind, i) && r->wanted[i] != r->given[i])
            return reorder(r, r->wanted[i], r->given[i]);
    return true;
}

/* However far it came. */
static void release(run *r)
{
    const sherd__dnnl *dnnl = &r->engine->dnnl;

    release_reorder(r);
    dnnl->memory_destroy(r->part[X]);
    dnnl->memory_destroy(r->part[Y]);
    for (int i = 0; i < OPERANDS; i++) {
        if (r->borrowed[i])
            continue;
        if (r->wanted[i] != r->given[i])
            dnnl->memory_destroy(r->wanted[i]);
        dnnl->memory_destroy(r->given[i]);
    }
}

/* The primitives of all tasks; CANNOT if one has none. */
static sherd__done find_all(const kept **out, sherd__engine *e, const sherd__conv_job *job)
{
    for (int t = 0; t < job->tasks; t++) {
        const sherd__conv_wish wish = {
            (int64_t)job->task[t].kind, job->bias != NULL,
            job->kernels && job->kernels->conv_weight ? job->kernels->conv_block : 0, *job->conv};
        out[t] = sherd__conv_find(e, &wish);
        if (!out[t])
            return SHERD__NO_MEMORY;
        if (!out[t]->primitive && !out[t]->own)
            return SHERD__CANNOT;
    }
    return SHERD__DONE;
}

sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *e, const sherd__conv_job *job)
{
    const kept *k[TASKS];
    int64_t shared = 0, own[TASKS] = {0};

    *bytes = 0;
    sherd__done found = sherd__engine_start(e);
    if (found == SHERD__DONE)
        found = find_all(k, e, job);
    if (found != SHERD__DONE)
        return found;
    for (int i = 0; i < ARRAYS; i++) {
        bool both = job->tasks == TASKS && is_shared(k, job->task, i);
        for (int t = 0; t < (both ? 1 : job->tasks); t++)
            *(both ? &shared : &own[t]) += (int64_t)room_of(k[t], job->task[t].kind, i);
    }
    *bytes = shared + sherd__max(own[0], own[1]);
    return SHERD__DONE;
}

/* What both read comes first in the workspace, and stays there for the second. */
static bool lay_shared(run *r, const sherd__conv_job *job)
{
    const kept *k[] = {r[0].kept, r[1].kept};

    for (int i = 0; i < ARRAYS && job->tasks == TASKS; i++) {
        if (!is_shared(k, job->task, i))
            continue;
        if (!make_memory(&r[0], i, job->task[0].array[i]))
            return false;
        r[1].wanted[i] = r[0].wanted[i];
        r[1].data[i] = r[0].data[i];
        r[1].borrowed[i] = true;
    }
    return true;
}

static bool run_task(run *r, unsigned char *room, const sherd__conv_task *task, const void *bias)
{
    r->room = room;
    for (int i = 0; i < ARRAYS; i++)
        if (!r->wanted[i] && !make_memory(r, i, task->array[i]))
            return false;
    if (r->kept->own) {
        r->job->kernels->conv_weight(r->job->conv, r->data[W], r->data[X], r->data[Y], r->sums);
        return true;
    }
    return make_bias(r, bias) && execute(r);
}

typedef struct tasks {
    const sherd__conv_job *job;
    run run[TASKS];
} tasks;

static int run_all(void *context)
{
    tasks *all = context;
    const sherd__conv_job *job = all->job;
    bool done = lay_shared(all->run, job);
    unsigned char *room = all->run[0].room;

    for (int t = 0; t < job->tasks; t++)
        done = done && run_task(&all->run[t], room, &job->task[t], job->bias);
    return done;
}

sherd__done sherd__conv_onednn(sherd__engine *e, const sherd__conv_job *job, void *workspace)
{
    tasks all = {job, {{.room = workspace}}};
    run *r = all.run;
    const kept *k[TASKS];

    sherd__done found = find_all(k, e, job);
    if (found != SHERD__DONE)
        return found;
    for (int t = 0; t < job->tasks; t++) {
        r[t].job = job;
        r[t].kind = job->task[t].kind;
        r[t].engine = e;
        r[t].kept = k[t];
    }
    sherd__done done = sherd__onednn_try(e, SHERD__ONEDNN_LAYS, run_all, &all);
    for (int t = 0; t < job->tasks; t++)
        release(&r[t]);
    return done;
}

#else

/* Without oneDNN, and with later versions, which describe primitives otherwise, the plain version
 * computes. */
sherd__done sherd__conv_onednn_bytes(int64_t *bytes, sherd__engine *engine,
                                     const sherd__conv_job *job)
{
    (void)engine, (void)job;
    *bytes = 0;
    return SHERD__CANNOT;
}

sherd__done sherd__conv_onednn(sherd__engine *engine, const sherd__conv_job *job, void *workspace)
{
    (void)engine, (void)job, (void)workspace;
    return SHERD__CANNOT;
}

#endif
