/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves that are not recorded: one tensor or many. Plans come from the cache. Steps that stay on the rank
 * (a slice, or axes of extent 1) are done at once, sharing the storage where the rank's box stays the same; the
 * others go in one call per set of axes, however many tensors there are.
 */
#include "tensor/state.h"

#include "base/num.h"

/* A tensor on its way. */
typedef struct task {
    sherd_tensor *from; /* the operand */
    const sherd_layout *to;
    sherd_tensor
        *at; /* what it is after the steps done so far: `from` itself or a result of ours */
    sherd_tensor *next;     /* result of the step under way */
    sherd_tensor *compact;  /* contiguous copy of `at`, if it was not; ours */
    const sherd_plan *plan; /* retained; NULL = nothing to do */
    int step;
    unsigned axes; /* of the call that the step still needs; 0 = none */
} task;

bool sherd__same_box(const sherd_layout *a, const sherd_layout *b, const int64_t *coordinate)
{
    sherd_box x, y;

    sherd__layout_box(a, coordinate, &x);
    sherd__layout_box(b, coordinate, &y);
    for (int d = 0; d < x.ndim; d++)
        if (x.offset[d] != y.offset[d] || x.size[d] != y.size[d])
            return false;
    return true;
}

/* The same storage under another layout. */
static sherd_tensor *relabel(sherd_tensor *t, const sherd_layout *to)
{
    sherd_tensor *view = sherd__new_view(t);

    if (view->storage)
        view->layout = to;
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
                        .result_offset = w->next->offset};
    return move;
}

static bool slice(task *w, const sherd_step *step, const int64_t *coordinate)
{
    if (sherd__same_box(step->from, step->to, coordinate)) {
        w->next = relabel(w->at, step->to);
        return w->next->storage != NULL;
    }
    w->next = sherd__new_on(step->to, w->at->dtype);
    if (!w->next->storage)
        return false;
    sherd__move move = move_of(w);
    return sherd__slice(w->at->world, &move);
}

/* Make the result of the next step; do the step if it is local, else say which axes its call has. */
static bool start(task *w)
{
    const sherd_step *step = sherd_plan_step(w->plan, w->step);
    int64_t coordinate[SHERD_MAX_AXES];

    if (!sherd__coordinate(w->at, coordinate)) {
        w->next = sherd__new_on(step->to, w->at->dtype);
        return w->next->storage != NULL;
    }
    if (step->kind == SHERD_STEP_SLICE)
        return slice(w, step, coordinate);
    if (step->sliced && !sherd__is_contiguous(w->at)) {
        w->compact = sherd__contiguous(w->at);
        if (!w->compact->storage)
            return false;
    }
    w->next = sherd__new_on(step->to, w->at->dtype);
    w->axes = step->axes;
    return w->next->storage != NULL;
}

static void drop(sherd_tensor **t)
{
    if (*t && (*t)->storage)
        sherd_tensor_release(*t);
    *t = NULL;
}

/* The step is done: its result takes the place of what it was made of. */
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
    return !w->plan || w->step == sherd_plan_steps(w->plan);
}

/* One call for all tasks whose step needs these axes. */
static bool call(sherd_world *world, task *tasks, int count, unsigned axes, sherd__move *moves,
                 bool begin)
{
    int n = 0;

    for (int i = 0; i < count; i++) {
        if (tasks[i].axes != axes)
            continue;
        moves[n++] = move_of(&tasks[i]);
        tasks[i].axes = 0;
    }
    return sherd__call(world, "sherd_redistribute", moves, n, begin);
}

/* The next step of every task that has one. */
static bool run_round(sherd_world *world, task *tasks, int count, sherd__move *moves, bool begin)
{
    bool good = true;

    for (int i = 0; i < count && good; i++)
        if (!is_done(&tasks[i]))
            good = start(&tasks[i]);
    for (int i = 0; i < count && good; i++)
        if (tasks[i].axes != 0)
            good = call(world, tasks, count, tasks[i].axes, moves, begin);
    for (int i = 0; i < count && good; i++)
        if (tasks[i].next)
            advance(&tasks[i]);
    return good;
}

static int rounds(const task *tasks, int count)
{
    int most = 0;

    for (int i = 0; i < count; i++)
        if (tasks[i].plan && sherd_plan_steps(tasks[i].plan) > most)
            most = sherd_plan_steps(tasks[i].plan);
    return most;
}

/* Layouts that differ without need of a step (axes of extent 1) still give another tensor. */
static bool finish(task *w)
{
    if (w->at->layout != w->to) {
        sherd_tensor *view = relabel(w->at, w->to);
        if (w->at != w->from)
            drop(&w->at);
        w->at = view;
    }
    if (w->at->storage && w->at != w->from)
        w->at->moved_version = w->from->storage->version;
    return w->at->storage != NULL;
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
    if (w->to->spec.mesh != t->layout->spec.mesh) {
        sherd__fail_tensor(t->world, true, SHERD_EINVAL,
                           "sherd_redistribute: from %s to %s: meshes differ", t->layout->text,
                           w->to->text);
        return false;
    }
    if (w->to->pending_axes & ~t->layout->pending_axes) {
        sherd__fail_tensor(t->world, true, SHERD_EINVAL,
                           "sherd_redistribute: from %s to %s: a move makes no pending reduction: "
                           "`to` may be pending only on axes where the tensor is",
                           t->layout->text, w->to->text);
        return false;
    }
    if (sherd__plan_find(&w->plan, t->layout, w->to, sherd_dtype_bytes(t->dtype), NULL) !=
        SHERD_OK) {
        w->plan = NULL;
        sherd__fail_diag(t->world, true);
        return false;
    }
    sherd__plan_retain(w->plan);
    return true;
}

static void clean(task *w)
{
    if (w->plan)
        sherd__plan_release(w->plan);
    drop(&w->compact);
    drop(&w->next);
}

/* Moves all or none: results that are not handed out are released. */
static bool run(sherd_world *world, task *tasks, sherd__move *moves, int count, bool begin)
{
    bool good = true;

    for (int i = 0; i < count && good; i++)
        good = plan(&tasks[i]);
    for (int left = good ? rounds(tasks, count) : 0; left > 0 && good; left--)
        good = run_round(world, tasks, count, moves, begin && left == 1);
    for (int i = 0; i < count && good; i++)
        good = finish(&tasks[i]);
    for (int i = 0; i < count; i++) {
        clean(&tasks[i]);
        if (!good && tasks[i].at != tasks[i].from)
            drop(&tasks[i].at);
    }
    return good;
}

sherd_tensor *sherd__move_to(sherd_tensor *t, const sherd_layout *to, bool begin)
{
    task one = {.from = t, .to = to};
    sherd__move move;

    if (sherd__stop(t->world, &t, 1))
        return sherd__failed(t->world);
    if (t->layout == to)
        return t;
    return run(t->world, &one, &move, 1, begin) ? one.at : sherd__failed(t->world);
}

static bool move_many(sherd_world *world, sherd_tensor **out, sherd_tensor *const *t,
                      const sherd_layout *const *to, int count)
{
    sherd__heap *heap = sherd__world_heap(world);
    task *tasks = sherd__alloc(heap, (size_t)count, sizeof *tasks);
    sherd__move *moves = sherd__alloc(heap, (size_t)count, sizeof *moves);
    bool good = false;

    if (!tasks || !moves)
        sherd__fail_tensor(world, true, SHERD_ENOMEM, "sherd_redistribute_many: out of memory");
    for (int i = 0; i < count && tasks; i++)
        tasks[i] = (task){.from = t[i], .to = to[i]};
    if (tasks && moves)
        good = run(world, tasks, moves, count, false);
    for (int i = 0; i < count && good; i++)
        out[i] = tasks[i].at;
    sherd__free(heap, tasks);
    sherd__free(heap, moves);
    return good;
}

/* All calls of a rank must have one order on all ranks: so one mesh, whose ranks make them all. */
static bool on_one_mesh(const sherd_layout *const *to, sherd_tensor *const *t, int count)
{
    for (int i = 0; i < count; i++)
        if (t[i]->layout && t[i]->layout->spec.mesh != to[0]->spec.mesh) {
            sherd__fail_tensor(t[i]->world, true, SHERD_EINVAL,
                               "sherd_redistribute_many: tensor %d is on (%s) but the first goes "
                               "to (%s): all must be on one mesh",
                               i, sherd_mesh_text(t[i]->layout->spec.mesh),
                               sherd_mesh_text(to[0]->spec.mesh));
            return false;
        }
    return true;
}

void sherd__move_many(sherd_tensor **out, sherd_tensor *const *t, const sherd_layout *const *to,
                      int count)
{
    if (count <= 0)
        return;
    sherd_world *world = t[0]->world;
    if (!sherd__stop(world, t, count) && on_one_mesh(to, t, count) &&
        move_many(world, out, t, to, count))
        return;
    for (int i = 0; i < count; i++)
        out[i] = sherd__failed(world);
}

void sherd_redistribute_many(sherd_tensor **out, sherd_tensor *const *t,
                             const sherd_layout *const *to, int count)
{
    sherd__move_many(out, t, to, count);
}
