/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a pipeline: each rank takes the turns of its place. A forward receives, computes and
 * sends; what backward needs is kept until the microbatch comes back. A gradient returns to the
 * layout that its tensor came from. Which tensors want one is said by who sends them, so no rank
 * waits for a gradient that nobody computes.
 *
 * A backward may be two turns: the one that computes gradients of inputs leaves the rest of the
 * tape's backward to the other.
 *
 * After a failure the rest of the turns is skipped: all ranks see the alarm where they are.
 */
#include "parallel/pipeline.h"

#include <math.h>

#include "autograd/tape.h"
#include "apply/operator.h"
#include "sherd/ops.h"

static const char name[] = "sherd_pipeline_run";

/* One turn under way. */
typedef struct turn {
    sherd_pipeline *p;
    const sherd_microbatches *work;
    int stage;
    int64_t microbatch;
    sherd__stage_kept *kept, *next; /* its own; that of the next stage, if it is here too */
} turn;

static bool is_last(const turn *t)
{
    return t->stage == t->p->turns.stages - 1;
}

static sherd__stage_kept *kept_of(const sherd_pipeline *p, int stage, int64_t microbatch)
{
    return &p->kept[stage / p->turns.places * p->turns.count + microbatch];
}

/* The channel to the next stage; NULL: it is here, or this is the last. */
static sherd_channel *way_on(const turn *t)
{
    return is_last(t) ? NULL : t->p->from[t->stage + 1];
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void keep(sherd__channel_parcel *kept, const sherd__channel_parcel *p)
{
    *kept = *p;
    for (int i = 0; i < p->count; i++) {
        if (p->wants >> i & 1)
            sherd_tensor_retain(p->t[i]);
        else
            kept->t[i] = NULL;
        sherd_layout_retain(p->from[i]);
        sherd_layout_retain(p->to[i]);
    }
}

static void drop_tensor(sherd_tensor **t)
{
    sherd_tensor_release(*t);
    *t = NULL;
}

static void drop(sherd__channel_parcel *p)
{
    for (int i = 0; i < p->count; i++) {
        drop_tensor(&p->t[i]);
        sherd_layout_release(p->from[i]);
        sherd_layout_release(p->to[i]);
    }
    *p = (sherd__channel_parcel){.count = 0};
}

static void drop_kept(sherd__stage_kept *s)
{
    drop(&s->in);
    drop(&s->out);
    drop_tensor(&s->loss);
    for (int i = 0; i < SHERD_MAX_ARGS; i++)
        drop_tensor(&s->grad[i]);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What says which microbatch it is, of how many. */
static int64_t mark_of(const turn *t)
{
    return t->work->count << 32 | t->microbatch;
}

static bool receive(const turn *t, sherd__channel_parcel *in)
{
    sherd_channel *c = t->p->from[t->stage];

    if (!sherd__channel_take(c, in, name))
        return false;
    if (in->mark == mark_of(t))
        return true;
    sherd__raise(t->p->world, SHERD_EDIFFER,
                 "%s: stage %d is at microbatch %lld of %lld, and (%s) has sent it %lld of %lld",
                 name, t->stage, (long long)t->microbatch, (long long)t->work->count, c->from->text,
                 (long long)(in->mark & INT32_MAX), (long long)(in->mark >> 32));
    return false;
}

/* What comes from a stage at this place is kept already. */
static bool take_in(const turn *t, sherd__channel_parcel *in)
{
    if (t->stage > 0 && t->p->from[t->stage] && !receive(t, in))
        return false;
    if (t->stage > 0 && !t->p->from[t->stage])
        *in = t->kept->in;
    for (int i = 0; i < in->count; i++)
        if (in->wants >> i & 1)
            sherd_require_grad(in->t[i], true);
    return true;
}

/* The outputs as they leave, and which of them want a gradient. */
static bool prepare(const turn *t, const sherd_args *results, sherd__channel_parcel *out)
{
    sherd_channel *c = way_on(t);
    bool good = true;

    out->mark = mark_of(t);
    for (int i = 0; i < results->count && good; i++) {
        sherd_tensor *y = results->value[i];
        y = c ? sherd__channel_ready(c, y, i, name) : y ? sherd__without_pending(y) : y;
        good = !sherd_tensor_failed(y);
        out->t[out->count++] = y;
        if (good && !t->work->forward_only && sherd_requires_grad(y))
            out->wants |= 1u << i;
    }
    return good;
}

/* To a stage at this place go the same values, as leaves. */
static bool hand_over(const turn *t, const sherd__channel_parcel *out)
{
    sherd__channel_parcel given = *out;
    bool good = true;

    for (int i = 0; i < out->count && good; i++) {
        given.t[i] = sherd_detach(out->t[i]);
        good = !sherd_tensor_failed(given.t[i]);
    }
    for (int i = 0; i < out->count && good; i++)
        sherd_tensor_retain(given.t[i]);
    if (good)
        t->next->in = given;
    return good;
}

static bool send_on(const turn *t, const sherd_args *results)
{
    sherd__channel_parcel out = {.count = 0};
    bool good = prepare(t, results, &out);

    if (good)
        good = way_on(t) ? sherd__channel_put(way_on(t), &out, name) : hand_over(t, &out);
    if (good)
        keep(&t->kept->out, &out);
    return good;
}

/* Add a loss to the sum, in f64. */
static bool add_loss(const turn *t, sherd_tensor *loss)
{
    sherd_pipeline *p = t->p;
    bool recording = sherd_set_recording(p->world, false);
    sherd_tensor *sum = sherd_cast(sherd__promote(loss, p->loss->spec.mesh, name), SHERD_F64);

    sum = sherd_reshape(sum, NULL, 0);
    sum = sherd__without_pending(p->sum ? sherd_add(p->sum, sum) : sum);
    sherd_set_recording(p->world, recording);
    if (sherd_tensor_failed(sum))
        return false;
    sherd_tensor_retain(sum);
    drop_tensor(&p->sum);
    p->sum = sum;
    return true;
}

static bool find_loss(const turn *t, const sherd_args *results)
{
    sherd_pipeline_loss find = t->work->loss;
    int floor = sherd__scope_fence(t->p->world);
    sherd_tensor *loss = find ? find(t->work->payload, t->microbatch, results) : NULL;

    sherd__scope_leave(t->p->world, floor);
    if (!loss && t->work->forward_only)
        return true;
    bool ours = loss && loss->world == t->p->world;
    if (!ours || (!sherd_tensor_failed(loss) && sherd_tensor_count(loss) != 1)) {
        sherd__raise(t->p->world, SHERD_EINVAL, "%s: the loss of microbatch %lld is %s", name,
                     (long long)t->microbatch,
                     ours   ? sherd_tensor_text(loss)
                     : loss ? "of another world"
                            : "NULL");
        return false;
    }
    if (sherd_tensor_failed(loss) || !add_loss(t, loss))
        return false;
    if (!t->work->forward_only)
        t->kept->loss = sherd_tensor_retain(loss);
    return true;
}

static bool forward(const turn *t)
{
    sherd__channel_parcel in = {.count = 0};
    sherd_args args = {.count = 0}, results = {.count = 0};

    if (!take_in(t, &in))
        return false;
    for (int i = 0; i < in.count; i++)
        args.value[args.count++] = in.t[i];
    int floor = sherd__scope_fence(t->p->world);
    if (t->work->feed)
        t->work->feed(t->work->payload, t->stage, t->microbatch, &args);
    sherd__scope_leave(t->p->world, floor);
    sherd_module_run(t->p->stage[t->stage].module, &args, &results);
    if (t->stage > 0 && t->p->from[t->stage])
        keep(&t->kept->in, &in);
    if (sherd__alarmed(t->p->world))
        return false;
    return is_last(t) ? find_loss(t, &results) : send_on(t, &results);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Gradients of what the stage has put out; returns how many, and which outputs they are of. */
static int take_back(const turn *t, sherd_tensor **y, sherd_tensor **g)
{
    sherd__stage_kept *s = t->kept;
    int count = 0;

    for (int i = 0; i < s->out.count; i++) {
        if (!(s->out.wants >> i & 1))
            continue;
        y[count] = s->out.t[i];
        if (way_on(t))
            g[count] = sherd__channel_return(way_on(t), NULL, y[count]->dtype, s->out.from[i],
                                             s->out.to[i]);
        else
            g[count] = s->grad[i];
        count++;
    }
    return count;
}

/* The gradient of an input as it returns: as the input lies, zeros if there is none. */
static sherd_tensor *gradient_of(sherd_tensor *x)
{
    sherd_tensor *g = sherd__settled_grad(x);

    if (!g)
        g = x->layout ? sherd_constant_on(x->layout, x->dtype, 0)
                      : sherd_constant(x->world, x->dtype, x->shape, x->ndim, 0);
    g = sherd_cast(g, x->dtype);
    return x->layout ? sherd_redistribute(g, x->layout, NULL) : g;
}

static bool send_back(const turn *t)
{
    sherd__channel_parcel *in = &t->kept->in;
    sherd_channel *c = t->p->from[t->stage];
    bool good = true;

    for (int i = 0; i < in->count && good; i++) {
        if (!(in->wants >> i & 1))
            continue;
        sherd_tensor *g = gradient_of(in->t[i]);
        if (c && !sherd_tensor_failed(g))
            g = sherd__channel_return(c, g, g->dtype, in->from[i], in->to[i]);
        good = !sherd_tensor_failed(g);
        if (good && !c)
            kept_of(t->p, t->stage - 1, t->microbatch)->grad[i] = sherd_tensor_retain(g);
    }
    return good;
}

/* All gradients, or those of the inputs only. */
static void differentiate(const turn *t, sherd_tensor *const *y, sherd_tensor *const *g, int count,
                          bool all)
{
    const sherd__channel_parcel *in = &t->kept->in;
    sherd_tensor *inputs[SHERD_MAX_ARGS];
    int n = 0;

    for (int i = 0; i < in->count; i++)
        if (in->wants >> i & 1)
            inputs[n++] = in->t[i];
    if (!all)
        t->kept->rest = sherd__backward_first(y, g, count, inputs, n);
    else if (g)
        sherd_backward_with(y, g, count, NULL);
    else
        sherd_backward(y[0]);
}

static bool backward(const turn *t, bool all)
{
    sherd_tensor *y[SHERD_MAX_ARGS], *g[SHERD_MAX_ARGS];
    int count = 1;

    if (is_last(t))
        y[0] = t->kept->loss;
    else
        count = take_back(t, y, g);
    if (count > 0 && !sherd__alarmed(t->p->world))
        differentiate(t, y, is_last(t) ? NULL : g, count, all);
    bool good = !sherd__alarmed(t->p->world) && send_back(t);
    drop_kept(t->kept);
    return good;
}

static bool backward_of_weights(const turn *t)
{
    struct sherd__pass *rest = t->kept->rest;

    t->kept->rest = NULL;
    sherd__backward_second(rest, true);
    return !sherd__alarmed(t->p->world);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static bool take_turn(sherd_pipeline *p, const sherd_microbatches *work,
                      const sherd_pipeline_turn *what)
{
    bool here = what->stage + 1 < p->turns.stages && !p->from[what->stage + 1];
    turn t = {p,
              work,
              what->stage,
              what->microbatch,
              kept_of(p, what->stage, what->microbatch),
              here ? kept_of(p, what->stage + 1, what->microbatch) : NULL};

    sherd_scope_begin(p->world);
    bool good = what->kind == SHERD_PIPELINE_FORWARD ? forward(&t)
                : what->kind == SHERD_PIPELINE_BACKWARD_WEIGHTS
                    ? backward_of_weights(&t)
                    : backward(&t, what->kind == SHERD_PIPELINE_BACKWARD);
    if (work->forward_only)
        drop_kept(t.kept);
    sherd_scope_end(p->world);
    return good;
}

static bool take_turns(sherd_pipeline *p, const sherd_microbatches *work)
{
    sherd__heap *heap = sherd__world_heap(p->world);
    int64_t count = sherd__turns_of(&p->turns, p->here, NULL);
    int64_t stages = (p->turns.stages + p->turns.places - 1) / p->turns.places;
    sherd_pipeline_turn *list = sherd__alloc(heap, (size_t)count, sizeof *list);
    bool good;

    p->kept = sherd__alloc(heap, (size_t)(stages * work->count), sizeof *p->kept);
    good = list && p->kept;
    if (!good)
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", name);
    else
        sherd__turns_of(&p->turns, p->here, list);
    for (int64_t i = 0; i < count && good; i++)
        good = take_turn(p, work, &list[i]);
    for (int64_t i = 0; p->kept && i < stages * work->count; i++) {
        drop_kept(&p->kept[i]);
        sherd__backward_second(p->kept[i].rest, false);
    }
    sherd__free(heap, p->kept);
    sherd__free(heap, list);
    p->kept = NULL;
    return good;
}

/* Every rank learns the sum of the losses. */
static double tell(sherd_pipeline *p)
{
    const sherd_redistribute_options options = {.among = p->all};
    sherd_tensor *sum = p->sum;
    double value = NAN;

    sherd_scope_begin(p->world);
    if (!sum)
        sum = sherd_constant_on(p->loss, SHERD_F64, 0);
    sum = sherd_redistribute(sum, p->told, &options);
    if (!sherd_tensor_failed(sum))
        value = sherd_item(sum);
    sherd_scope_end(p->world);
    return value;
}

static const char *fault_of(const sherd_pipeline *p, const sherd_microbatches *work)
{
    return !work             ? "nothing to run: it is NULL"
           : p->kept         ? "it is running: a feed or a loss cannot run it again"
           : work->count < 1 ? "the number of microbatches is less than 1"
           : work->count > SHERD__TURNS_MOST / p->turns.stages
               ? "microbatches times stages are more than 2^24: run them in parts"
               : NULL;
}

double sherd_pipeline_run(sherd_pipeline *p, const sherd_microbatches *work)
{
    if (!p)
        return NAN;
    const char *fault = fault_of(p, work);
    if (fault)
        sherd__raise(p->world, SHERD_EINVAL, "%s: %s", name, fault);
    else if (!sherd__pipeline_fit(p, work->count, work->forward_only))
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", name);
    if (fault || !p->fits || sherd__alarmed(p->world))
        return NAN;
    bool recording = sherd_set_recording(p->world, !work->forward_only);
    if (!work->forward_only)
        sherd__ties_begin(p);
    bool good = p->here < 0 || take_turns(p, work);
    if (!work->forward_only)
        good = good && sherd__ties_add(p);
    sherd__ties_end(p);
    sherd_set_recording(p->world, recording);
    double loss = good ? tell(p) : NAN;
    drop_tensor(&p->sum);
    return loss;
}
