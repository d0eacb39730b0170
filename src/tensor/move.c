/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves that are not recorded for backward: one tensor or many. Plans come from the cache. Local
 * steps (a slice, a partition) run at once, and share the storage if nothing changes on any rank;
 * the others run in one call per group, however many tensors there are.
 *
 * All steps of a move go round by round, and within a round groups follow in the order of the first
 * tensor that needs them. So the calls of a list are in one order that all ranks know, and each
 * rank makes those of its own groups in that order: no cycle of ranks can wait for each other. A
 * step to another mesh is a call of the world, or of a mesh that holds both. A rank in neither mesh
 * makes it too, but sends and receives nothing, and waits for nobody.
 */
#include "tensor/state.h"

#include "base/num.h"
#include "search/plans.h"
#include "vector/choose.h"
#include "layout/shape.h"

static const char name[] = "sherd_redistribute";

/* A tensor under way. */
typedef struct task {
    sherd_tensor *from; /* the operand */
    const sherd_layout *to;
    const sherd_plan_options *options; /* NULL = default */
    const sherd_mesh *among;           /* who calls a step to another mesh; NULL = the world */
    /* what it is after the steps done so far: `from` itself or a result of ours */
    sherd_tensor *at;
    sherd_tensor *next;     /* result of the step under way */
    sherd_tensor *compact;  /* contiguous copy of `at`, if it was not; ours */
    const sherd_plan *plan; /* retained; NULL = nothing to do */
    int step;
    bool by_cpu;            /* the caller wants the CPU's memory, with GPUs too */
    bool by_gpus;           /* calls may go from one GPU's memory to another's */
    bool there;             /* this step is made in the GPU's memory */
    bool needs_call;        /* of this rank, for this step, in the group of these axes: */
    const sherd_mesh *mesh; /* NULL = the world */
    unsigned axes;
} task;

/* The same storage with another layout. */
static sherd_tensor *relabel(sherd_tensor *t, const sherd_layout *to)
{
    sherd_tensor *view = sherd__new_view(t);

    if (view->storage)
        sherd__layout_set(&view->layout, to);
    return view;
}

static sherd__move move_of(const task *w)
{
    const sherd_tensor *source = w->compact ? w->compact : w->at;
    sherd__move move = {.plan = w->plan,
                        .step = w->step,
                        .dtype = source->dtype,
                        .source = source->storage->block,
                        .source_offset = source->offset,
                        .source_stride = source->stride,
                        .result = w->next->storage->block,
                        .result_offset = w->next->offset,
                        .among = w->among,
                        .on_device = w->there,
                        .device_source = source->storage->device,
                        .device_result = w->next->storage->device};
    return move;
}

/* The result of a step, undefined. */
static sherd_tensor *new_result(const task *w, const sherd_step *step)
{
    return sherd__new_on_there(step->to, w->at->dtype, w->there);
}

/* Run a local step. */
static bool run_local(task *w, const sherd_step *step)
{
    const sherd__schedule *mine = w->plan->mine[w->step]; /* NULL: this rank is not in the mesh */
    bool shares = mine && mine->shares;

    w->next = shares ? relabel(w->at, step->to) : new_result(w, step);
    if (!w->next->storage || shares || !mine)
        return w->next->storage != NULL;
    sherd__move move = move_of(w);
    return sherd__slice(w->at->world, &move);
}

static bool is_local(const sherd_step *step)
{
    return step->kind == SHERD_STEP_SLICE || step->kind == SHERD_STEP_PARTITION;
}

/*
 * Choose in which memory a step is made, and bring its source there. A local step is made where the
 * source is: so what comes from the CPU, mostly indices, stays there. False: the alarm is raised.
 */
static bool choose_place(task *w, const sherd_step *step)
{
    sherd__storage *storage = w->at->storage;

    w->there = is_local(step) ? storage->there && !storage->here
                              : w->by_gpus && sherd__goes_there(storage->world, step, w->among);
    return w->there ? sherd__device_data(w->at) != NULL
                    : storage->here || sherd__bring_here(storage);
}

/*
 * Create the result of the next step; run the step if it is local, otherwise set which group's call
 * it needs.
 */
static bool start(task *w)
{
    const sherd_step *step = &w->plan->step[w->step];
    const sherd_mesh *mesh = step->from->spec.mesh;
    bool across = mesh != step->to->spec.mesh;

    w->needs_call = false;
    if (!choose_place(w, step))
        return false;
    if (is_local(step))
        return run_local(w, step);
    w->needs_call = across || w->plan->mine[w->step]; /* NULL: this rank is not in the mesh */
    w->mesh = across ? w->among : mesh;
    w->axes = step->axes;
    if (w->needs_call && step->sliced && !sherd__is_contiguous(w->at)) {
        w->compact = sherd__contiguous(w->at); /* in the GPU's memory, if `at` has contents there */
        if (!w->compact->storage || (!w->there && !sherd__bring_here(w->compact->storage)))
            return false;
    }
    w->next = new_result(w, step);
    return w->next->storage != NULL;
}

static void drop(sherd_tensor **t)
{
    if (*t)
        sherd_tensor_release(*t);
    *t = NULL;
}

/* The step is done: its result replaces its source. */
static void advance(task *w)
{
    if (w->at != w->from)
        drop(&w->at);
    drop(&w->compact);
    w->at = w->next;
    w->next = NULL;
    w->step++;
}

static bool is_done(const task *w)
{
    return !w->plan || w->step == w->plan->steps;
}

/* One call for all tasks whose step needs the same group as this one's. */
static bool call(sherd_world *world, task *tasks, int count, const task *first, sherd__move *moves,
                 bool begin)
{
    const sherd_mesh *mesh = first->mesh;
    unsigned axes = first->axes;
    bool there = first->there;
    int n = 0;

    for (int i = 0; i < count; i++) {
        if (!tasks[i].needs_call || tasks[i].mesh != mesh || tasks[i].axes != axes ||
            tasks[i].there != there)
            continue;
        moves[n++] = move_of(&tasks[i]);
        tasks[i].needs_call = false;
    }
    return sherd__call(world, name, moves, n, begin);
}

/* The next step of every task that has one. */
static bool run_round(sherd_world *world, task *tasks, int count, sherd__move *moves, bool begin)
{
    bool good = true;

    for (int i = 0; i < count && good; i++)
        if (!is_done(&tasks[i]))
            good = start(&tasks[i]);
    for (int i = 0; i < count && good; i++)
        if (tasks[i].needs_call)
            good = call(world, tasks, count, &tasks[i], moves, begin);
    for (int i = 0; i < count && good; i++)
        if (tasks[i].next)
            advance(&tasks[i]);
    return good;
}

static int rounds(const task *tasks, int count)
{
    int most = 0;

    for (int i = 0; i < count; i++)
        if (tasks[i].plan && tasks[i].plan->steps > most)
            most = tasks[i].plan->steps;
    return most;
}

/*
 * Note the move in the ledger of the mesh; between two meshes in both ledgers. In that of the
 * target without the source's identity, since a rank outside the source's mesh may have made its
 * placeholder in any way.
 */
static void note(const task *w)
{
    const sherd_mesh *mesh = w->from->layout->spec.mesh;
    bool across = mesh != w->to->spec.mesh;
    uint64_t identity;

    if (across)
        sherd__deed_add(mesh, name, sherd__attribute(w->from->ledger.identity, w->to->hash),
                        &identity);
    sherd__note_one(name, across ? NULL : w->from, across ? w->from->layout->hash : 0, w->at);
    if (across)
        sherd__origin_pass(&w->from, 1, &w->at, 1);
    if (w->at->storage->block && w->at->storage != w->from->storage)
        sherd__block_is_from(w->at->storage->block, w->to->spec.mesh, w->at->ledger.made);
}

/* If the layout still differs, without need of a step (axes of extent 1), the result is a view. */
static bool finish(task *w)
{
    if (w->at->layout != w->to) {
        sherd_tensor *view = relabel(w->at, w->to);
        if (w->at != w->from)
            drop(&w->at);
        w->at = view;
    }
    if (w->at->storage && w->at != w->from) {
        w->at->autograd.moved_version = w->from->storage->version;
        w->at->autograd.moved_as = w->at->storage->version;
        note(w);
        if (w->plan)
            sherd__moves_add(w->at->world, w->plan, w->at->dtype);
    }
    return w->at->storage != NULL;
}

/* Whether a dtype supports the pending reductions: there is no average of integers. */
static bool can_be_reduced(sherd_world *world, sherd_dtype dtype, const sherd_layout *layout)
{
    for (int a = 0; a < layout->spec.mesh->axes; a++)
        if ((layout->pending_axes >> a & 1) &&
            !sherd__kernels_to_reduce(sherd__world_kernels(world), dtype,
                                      (sherd_reduce_op)layout->spec.pending[a]))
            return false;
    return true;
}

/* Checked before anything moves, so all ranks find the same. */
static bool can_partition(const task *w)
{
    sherd_tensor *t = w->from;

    for (int i = 0; i < w->plan->steps; i++)
        if (w->plan->step[i].kind == SHERD_STEP_PARTITION &&
            !can_be_reduced(t->world, t->dtype, w->plan->step[i].to)) {
            sherd__fail_tensor(t->world, true, SHERD_ENOTSUP,
                               "sherd_redistribute: from %s to %s: %s has no average",
                               t->layout->text, w->to->text, sherd_dtype_name(t->dtype));
            return false;
        }
    return true;
}

/*
 * In a world with GPUs moves go from GPU to GPU, wherever the contents are now, so that all ranks
 * decide alike; but not reductions that GPUs have no sum for, or that do not exist: the CPU's call
 * refuses those.
 */
static bool can_go_there(const task *w)
{
    if (!sherd__world_device(w->from->world) || w->by_cpu)
        return false;
    for (int i = 0; i < w->plan->steps; i++) {
        const sherd_step *step = &w->plan->step[i];
        if (sherd__step_reduces(step) &&
            (!sherd__device_adds(w->from->dtype) ||
             !can_be_reduced(w->from->world, w->from->dtype, step->from)))
            return false;
    }
    return true;
}

static bool plan(task *w)
{
    sherd_tensor *t = w->from;

    w->at = t;
    if (!t->layout) {
        sherd__fail_tensor(t->world, true, SHERD_EINVAL,
                           "sherd_redistribute: %s is plain: use sherd_from_local or "
                           "sherd_distribute first",
                           sherd_tensor_text(t));
        return false;
    }
    if (t->layout == w->to)
        return true;
    if (t->storage->later && !sherd__make_now(t))
        return false;
    if (sherd__plan_find(&w->plan, t->layout, w->to, sherd_dtype_bytes(t->dtype), w->options) !=
        SHERD_OK) {
        w->plan = NULL;
        sherd__fail_diag(t->world, true);
        return false;
    }
    sherd__plan_retain(w->plan);
    w->by_gpus = can_go_there(w);
    return can_partition(w);
}

/* Release everything but the result, which is released only after a failure. */
static void clean(task *w, bool good)
{
    if (w->plan)
        sherd__plan_release(w->plan);
    drop(&w->compact);
    drop(&w->next);
    if (!good && w->at != w->from)
        drop(&w->at);
}

/* One tensor, whose steps simply follow one another. */
static bool run_one(sherd_world *world, task *w, bool begin)
{
    bool good = plan(w);

    while (good && !is_done(w)) {
        good = start(w);
        if (good && w->needs_call) {
            sherd__move move = move_of(w);
            good = sherd__call(world, name, &move, 1, begin && w->step + 1 == w->plan->steps);
        }
        if (good)
            advance(w);
    }
    good = good && finish(w);
    clean(w, good);
    return good;
}

/* Move all, or none. */
static bool run_all(sherd_world *world, task *tasks, sherd__move *moves, int count, bool begin)
{
    bool good = true;

    for (int i = 0; i < count && good; i++)
        good = plan(&tasks[i]);
    for (int left = good ? rounds(tasks, count) : 0; left > 0 && good; left--)
        good = run_round(world, tasks, count, moves, begin && left == 1);
    for (int i = 0; i < count && good; i++)
        good = finish(&tasks[i]);
    for (int i = 0; i < count; i++)
        clean(&tasks[i], good);
    return good;
}

static sherd_tensor *move_one(task *one, bool begin)
{
    sherd_tensor *t = one->from;
    bool sound = !sherd__is_failed(t) && t->layout && !sherd__alarmed(t->world);

    if (!sound && sherd__stop(t->world, "sherd_redistribute", &t, 1))
        return sherd__failed(t->world);
    if (t->layout == one->to)
        return t;
    return run_one(t->world, one, begin) ? one->at : sherd__failed(t->world);
}

sherd_tensor *sherd__move_planned(sherd_tensor *t, const sherd_layout *to,
                                  const sherd_plan_options *options, const sherd_mesh *among,
                                  bool begin)
{
    return move_one(&(task){.from = t, .to = to, .options = options, .among = among}, begin);
}

sherd_tensor *sherd__move_here(sherd_tensor *t, const sherd_layout *to, const sherd_mesh *among,
                               bool begin)
{
    return move_one(&(task){.from = t, .to = to, .among = among, .by_cpu = true}, begin);
}

bool sherd__cannot_move(sherd_tensor *t, const sherd_layout *to)
{
    const sherd_layout *from = t->layout;
    const char *fault = NULL;

    if (!from || from == to)
        return false;
    if (!sherd__same_shape(from->spec.ndim, from->spec.shape, to->spec.ndim, to->spec.shape))
        fault = "the shapes differ";
    for (int a = 0; to->pending_axes && a < to->spec.mesh->axes && !fault; a++)
        if ((to->pending_axes >> a & 1) &&
            (from->spec.mesh != to->spec.mesh || from->spec.pending[a] != to->spec.pending[a]))
            fault = "a move makes no pending reduction: `to` may be pending only on axes where the "
                    "tensor is, with the same reduction";
    if (fault)
        sherd__fail_tensor(t->world, true, SHERD_EINVAL, "sherd_redistribute: from %s to %s: %s",
                           sherd_layout_text(from), sherd_layout_text(to), fault);
    return fault != NULL;
}

sherd_tensor *sherd__move_to(sherd_tensor *t, const sherd_layout *to, bool begin)
{
    return sherd__cannot_move(t, to) ? sherd__failed(t->world)
                                     : sherd__move_planned(t, to, NULL, NULL, begin);
}

static bool move_many(sherd_world *world, sherd_tensor **out, sherd_tensor *const *t,
                      const sherd_layout *const *to, int count, bool begin)
{
    sherd__heap *heap = sherd__world_heap(world);
    task *tasks = sherd__alloc(heap, (size_t)count, sizeof *tasks);
    sherd__move *moves = sherd__alloc(heap, (size_t)count, sizeof *moves);
    bool good = tasks && moves;

    if (!good)
        sherd__fail_tensor(world, true, SHERD_ENOMEM, "sherd_redistribute_many: out of memory");
    for (int i = 0; i < count && good; i++) {
        tasks[i] = (task){.from = t[i], .to = to[i]};
        good = !sherd__cannot_move(t[i], to[i]);
    }
    if (good)
        good = run_all(world, tasks, moves, count, begin);
    for (int i = 0; i < count && good; i++)
        out[i] = tasks[i].at;
    sherd__free(heap, tasks);
    sherd__free(heap, moves);
    return good;
}

void sherd__move_list(sherd_tensor **out, sherd_tensor *const *t, const sherd_layout *const *to,
                      int count, bool begin)
{
    if (count <= 0)
        return;
    sherd_world *world = t[0]->world;
    if (!sherd__stop(world, "sherd_redistribute", t, count) &&
        move_many(world, out, t, to, count, begin))
        return;
    for (int i = 0; i < count; i++)
        out[i] = sherd__failed(world);
}
