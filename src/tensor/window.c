/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of tensors: what ranks read beyond their pieces, and the adjoint. Like moves (move.c):
 * plans from the cache, and one call for all tensors whose steps have the same group. Not recorded
 * for backward.
 */
#include "plan/window.h"
#include "search/plans.h"

#include "tensor/state.h"

/* A tensor under way, in either direction. */
typedef struct task {
    sherd__windowed *w;
    sherd_tensor *from, *to;
    const sherd_plan *plan; /* retained */
    bool there;             /* in the memory of GPUs */
    bool calls;             /* still needs its call */
} task;

/* All tensors of one call from outside. */
typedef struct batch {
    sherd_world *world;
    int count;
    sherd__windowed *list; /* [count] */
    task *tasks;           /* [count] */
    sherd__move *moves;    /* [count]: room for the moves of a call */
    sherd__direction direction;
    bool begin;
    bool here; /* by the CPU alone */
    const char *name;
} batch;

sherd_status sherd__layout_alone(const sherd_layout **out, sherd_world *world, int ndim,
                                 const int64_t *shape)
{
    const int64_t one = 1;
    const int me = sherd_world_rank(world);
    const sherd_placement none = sherd_replicate();
    const sherd_mesh *mesh;
    sherd_status status = sherd__mesh_make(&mesh, sherd__world_space(world), 1, &one, NULL, &me);

    return status ? status : sherd_layout_create(out, mesh, ndim, shape, &none, NULL);
}

/* Whether peers must hear of a failure: a plain tensor is on this rank alone. */
static bool is_shared(const sherd__windowed *w)
{
    return w->window->layout->spec.mesh->count > 1;
}

/* This rank's window, empty outside the mesh. */
static sherd_tensor *new_piece(const sherd__windowed *w)
{
    const sherd_tensor *whole = w->whole;
    const sherd_box *box = &w->window->box;
    unsigned varies = whole->layout ? sherd__varying_axes(w->window->layout) : whole->varies;
    const int64_t nothing = 0;

    if (!w->window->inside)
        return sherd__new_plain(whole->world, whole->dtype, 1, &nothing,
                                sherd__varying_axes(w->window->layout));
    return sherd__new_plain(whole->world, whole->dtype, box->ndim, box->size, varies);
}

static sherd__move move_of(const task *t)
{
    return (sherd__move){.plan = t->plan,
                         .step = 0,
                         .dtype = t->from->dtype,
                         .source = t->from->storage->block,
                         .source_offset = t->from->offset,
                         .source_stride = t->from->stride,
                         .result = t->to->storage->block,
                         .result_offset = t->to->offset,
                         .on_device = t->there,
                         .device_source = t->from->storage->device,
                         .device_result = t->to->storage->device};
}

/* Where the step is made, and the contents there; by the rules of a move's (move.c). False: the
 * alarm is raised. */
static bool settle_source(task *t, bool here)
{
    const sherd_step *step = t->plan->step;
    bool can = !here && (!sherd__step_reduces(step) || sherd__device_adds(t->from->dtype));

    t->there =
        can && (step->kind == SHERD_STEP_SLICE ? sherd__is_only_there(t->from)
                                               : sherd__goes_there(t->from->world, step, NULL));
    return t->there ? sherd__device_data(t->from) != NULL : sherd__bring_here(t->from->storage);
}

/* The result, undefined. */
static sherd_tensor *new_result(const task *t, sherd__direction direction)
{
    bool before = sherd__make_there(t->from->world, t->there);
    sherd_tensor *to = direction == SHERD__GATHER
                           ? new_piece(t->w)
                           : sherd__new_on(t->w->window->layout, t->from->dtype);

    sherd__make_there(t->from->world, before);
    return to;
}

static bool plan(task *t, const batch *b)
{
    sherd_world *world = t->from->world;

    if (!sherd__make_now(t->from))
        return false;
    if (sherd__window_plan(&t->plan, t->w->window, b->direction,
                           sherd_dtype_bytes(t->from->dtype)) != SHERD_OK) {
        t->plan = NULL;
        sherd__fail_diag(world, is_shared(t->w));
        return false;
    }
    sherd__plan_retain(t->plan);
    if (!settle_source(t, b->here))
        return false;
    t->to = new_result(t, b->direction);
    t->calls = t->plan->mine[0] != NULL;
    if (!t->to->storage && is_shared(t->w))
        sherd__raise_failed(world, b->name); /* a plain piece's failure would stay local */
    return t->to->storage != NULL;
}

/* One call for all tasks with the group of this one's step. */
static bool call(const batch *b, const task *first)
{
    int n = 0;

    for (int i = 0; i < b->count; i++)
        if (b->tasks[i].calls && b->tasks[i].plan->step->axes == first->plan->step->axes &&
            b->tasks[i].there == first->there) {
            b->moves[n++] = move_of(&b->tasks[i]);
            b->tasks[i].calls = false;
        }
    return sherd__call(b->world, b->name, b->moves, n, b->begin);
}

static bool move_all(const batch *b)
{
    bool good = true;

    for (int i = 0; i < b->count && good; i++) {
        const sherd_step *step = b->tasks[i].plan->step;
        if (!b->tasks[i].calls)
            continue;
        if (step->kind == SHERD_STEP_SLICE) {
            sherd__move move = move_of(&b->tasks[i]);
            good = sherd__slice(b->world, &move);
            b->tasks[i].calls = false;
        } else {
            good = call(b, &b->tasks[i]);
        }
    }
    return good;
}

/* A plan's words are told, if ranks differ. */
enum { WORDS = sizeof(((sherd_plan *)NULL)->what) };

static const sherd_op said = {
    .name = "window", .field = {{"what is read", SHERD_FIELD_BYTE, 0, WORDS}}, .attributes = WORDS};

/* Note in the ledger what is read, since the plain result is in no ledger. */
static void note(const task *t, const char *name)
{
    const sherd__window *window = t->w->window;
    const sherd_mesh *mesh = window->layout->spec.mesh;

    if (t->to->layout) {
        sherd__note_one(name, t->from, window->hash, t->to);
        sherd__say_call(t->to, &said, t->plan ? t->plan->what : NULL, true);
    } else if (t->from->layout) {
        uint64_t what = sherd__attribute(t->from->ledger.identity, window->hash);
        sherd__block_is_from(t->to->storage->block, mesh,
                             sherd__note_deed(t->to->world, mesh, name, what, t->from, &said,
                                              t->plan ? t->plan->what : NULL));
    }
    if (t->to->layout && t->to->storage->block)
        sherd__block_is_from(t->to->storage->block, mesh, t->to->ledger.made);
    sherd__moves_add(t->to->world, t->plan, t->to->dtype);
}

static bool run_tasks(const batch *b)
{
    bool gathers = b->direction == SHERD__GATHER, good = true;

    for (int i = 0; i < b->count; i++) {
        sherd__windowed *w = &b->list[i];
        b->tasks[i] = (task){.w = w, .from = gathers ? w->whole : w->piece};
    }
    for (int i = 0; i < b->count && good; i++)
        good = plan(&b->tasks[i], b);
    good = good && move_all(b);
    for (int i = 0; i < b->count; i++) {
        const task *t = &b->tasks[i];
        if (good)
            note(t, b->name);
        if (good)
            *(gathers ? &t->w->piece : &t->w->whole) = t->to;
        if (t->plan)
            sherd__plan_release(t->plan);
    }
    return good;
}

/* Few tensors need no allocation. */
static bool run(batch b)
{
    enum { FEW = 8 };
    task few_tasks[FEW];
    sherd__move few_moves[FEW];

    b.world = b.direction == SHERD__GATHER ? b.list[0].whole->world : b.list[0].piece->world;
    if (b.count <= FEW) {
        b.tasks = few_tasks;
        b.moves = few_moves;
        return run_tasks(&b);
    }
    sherd__heap *heap = sherd__world_heap(b.world);
    b.tasks = sherd__alloc(heap, (size_t)b.count, sizeof *b.tasks);
    b.moves = sherd__alloc(heap, (size_t)b.count, sizeof *b.moves);
    bool good = b.tasks && b.moves;
    if (good)
        good = run_tasks(&b);
    else
        sherd__fail_tensor(b.world, is_shared(&b.list[0]), SHERD_ENOMEM, "%s: out of memory",
                           b.name);
    sherd__free(heap, b.tasks);
    sherd__free(heap, b.moves);
    return good;
}

bool sherd__gather_windows(sherd__windowed *list, int count, bool begin, const char *name)
{
    const batch b = {
        .list = list, .count = count, .direction = SHERD__GATHER, .begin = begin, .name = name};

    return count <= 0 || run(b);
}

bool sherd__gather_windows_here(sherd__windowed *list, int count, const char *name)
{
    const batch b = {
        .list = list, .count = count, .direction = SHERD__GATHER, .here = true, .name = name};

    return count <= 0 || run(b);
}

bool sherd__fold_windows(sherd__windowed *list, int count, bool begin, const char *name)
{
    const batch b = {
        .list = list, .count = count, .direction = SHERD__FOLD, .begin = begin, .name = name};

    return count <= 0 || run(b);
}
