/* SPDX-License-Identifier: Apache-2.0 */
/*
 * L-BFGS. History, decisions and lengths are equal on all ranks, since they are made of numbers
 * that all have exchanged; a failed check, after which they might not be, empties the history. An
 * iteration costs two passes over each vector of the history, and as many exchanges of a number,
 * besides the evaluations of the loss.
 */
#include "nn/lbfgs.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "apply/operator.h"
#include "base/num.h"
#include "nn/line_search.h"
#include "sherd/scope.h"
#include "tensor/state.h"

enum { LOSS, SLOPE, SUM, LARGEST }; /* what ranks exchange of an evaluation */
enum { LONG_SEARCH = 25 };          /* evaluations of one line search, at most */

/* A step under way. */
typedef struct run {
    sherd_lbfgs *l;
    sherd_lbfgs_loss loss;
    void *payload;
    double numbers[SHERD__NUMBERS];
    double t; /* where along the direction the parameters are */
    sherd_lbfgs_report report;
} run;

/* ---- the loss -------------------------------------------------------------------------------- */

static bool refuse(const sherd_lbfgs *l, sherd_status status, const char *why)
{
    sherd__raise(l->world, status, "%s: %s", sherd__lbfgs_step_name, why);
    return false;
}

static bool read_loss(const sherd_lbfgs *l, sherd_tensor *loss, double *value)
{
    if (!loss)
        return refuse(l, SHERD_EINVAL, "the function of the loss returned NULL");
    if (loss->world != l->world)
        return refuse(l, SHERD_EINVAL, "the loss is of another world");
    if (sherd_tensor_failed(loss)) {
        sherd__raise_failed(l->world, sherd__lbfgs_step_name);
        return false;
    }
    if (sherd_tensor_count(loss) != 1) {
        sherd__raise(l->world, SHERD_EINVAL, "%s: the loss has %lld elements, not one: it is %s",
                     sherd__lbfgs_step_name, (long long)sherd_tensor_count(loss),
                     sherd_tensor_text(loss));
        return false;
    }
    bool before = sherd_set_recording(l->world, false);
    sherd_tensor *whole = loss->layout ? sherd_full(loss) : loss;
    sherd_set_recording(l->world, before);
    return !sherd_tensor_failed(whole) && sherd__scalar_value(whole, value);
}

/* Loss and gradient (into l->g) at the parameters as they are. False: the alarm is raised. */
static bool compute(run *r, double *loss)
{
    sherd_lbfgs *l = r->l;

    sherd_optimizer_clear(l->all);
    int floor = sherd__scope_enter(l->world);
    sherd_tensor *t = r->loss(r->payload);
    sherd__scope_leave(l->world, floor);
    bool good = read_loss(l, t, loss);
    if (good)
        sherd_optimizer_settle(l->all);
    good = good && !sherd__alarmed(l->world) && sherd__lbfgs_load_gradients(l, l->g);
    sherd_scope_end(l->world);
    return good && !sherd__alarmed(l->world);
}

/* The same, and what of it is exchanged: r->numbers. */
static bool evaluate(run *r)
{
    sherd_lbfgs *l = r->l;
    double *all = r->numbers, mine[SHERD__NUMBERS] = {0};
    int64_t ranks = sherd__lbfgs_ranks(l);

    r->report.evaluations++;
    if (!compute(r, &mine[LOSS]))
        return false;
    mine[SLOPE] = sherd__lbfgs_dot_here(l, l->g, l->way);
    for (int64_t i = 0; i < l->counted; i++) {
        double size = fabs(l->g[i]);
        mine[SUM] += size;
        mine[LARGEST] = size > mine[LARGEST] || isnan(size) ? size : mine[LARGEST];
    }
    if (!sherd__lbfgs_exchange(l, mine, SHERD__NUMBERS))
        return false;
    for (int64_t k = 0; k < ranks; k++) {
        double loss = l->exchanged[k * SHERD__NUMBERS + LOSS];
        if (!(loss == mine[LOSS] || (isnan(loss) && isnan(mine[LOSS]))))
            return refuse(l, SHERD_EDIFFER,
                          "ranks have other losses: it must be distributed, or equal on all");
    }
    all[LOSS] = mine[LOSS];
    all[SLOPE] = sherd__numbers_join(1, l->exchanged, ranks, SHERD__NUMBERS, SLOPE);
    all[SUM] = sherd__numbers_join(1, l->exchanged, ranks, SHERD__NUMBERS, SUM);
    all[LARGEST] = sherd__numbers_join(INFINITY, l->exchanged, ranks, SHERD__NUMBERS, LARGEST);
    return true;
}

static bool ask(void *context, sherd__line_point *point)
{
    run *r = context;

    r->t = point->t;
    if (!sherd__lbfgs_go_to(r->l, r->t) || !evaluate(r))
        return false;
    point->f = r->numbers[LOSS];
    point->slope = r->numbers[SLOPE];
    return true;
}

static void keep(void *context)
{
    run *r = context;
    double *g = r->l->g;

    r->l->g = r->l->best;
    r->l->best = g;
    r->report.gradient = r->numbers[LARGEST];
}

/* ---- the direction --------------------------------------------------------------------------- */

/* y += a x */
static void add(double *y, double a, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static bool dot(sherd_lbfgs *l, const double *a, const double *b, double *out)
{
    return sherd__lbfgs_dots(l, 1, &a, &b, out);
}

static sherd__lbfgs_pair *pair_at(const sherd_lbfgs *l, int i)
{
    return &l->pair[(l->first + i) % l->with.history];
}

/* way = - H best, by the two loops of the book. False: the alarm is raised. */
static bool find_way(sherd_lbfgs *l)
{
    double *q = l->way, number;

    for (int64_t i = 0; i < l->n; i++)
        q[i] = -l->best[i];
    for (int i = l->pairs - 1; i >= 0; i--) {
        const sherd__lbfgs_pair *p = pair_at(l, i);
        if (!dot(l, p->s, q, &number))
            return false;
        l->share[i] = number * p->inverse;
        add(q, -l->share[i], p->y, l->n);
    }
    for (int64_t i = 0; i < l->n && l->pairs; i++)
        q[i] *= l->scale;
    for (int i = 0; i < l->pairs; i++) {
        const sherd__lbfgs_pair *p = pair_at(l, i);
        if (!dot(l, p->y, q, &number))
            return false;
        add(q, l->share[i] - number * p->inverse, p->s, l->n);
    }
    return true;
}

/* The pair that is written next, the oldest if all are in use; NULL: no memory. */
static sherd__lbfgs_pair *next_pair(sherd_lbfgs *l)
{
    sherd__lbfgs_pair *p = pair_at(l, l->pairs == l->with.history ? 0 : l->pairs);

    if (!p->s) {
        p->s = sherd__alloc(sherd__world_heap(l->world), sherd__bytes(2 * l->n), sizeof *p->s);
        p->y = p->s ? p->s + l->n : NULL;
    }
    return p->s ? p : NULL;
}

/* A pair for the history, in the place of the oldest one if that is full. False: no memory. */
static bool add_pair(sherd_lbfgs *l, const double *s, const double *y, double product)
{
    sherd__lbfgs_pair *p = next_pair(l);

    if (!p)
        return refuse(l, SHERD_ENOMEM, "out of memory for the history");
    memcpy(p->s, s, sherd__bytes(l->n) * sizeof *s);
    memcpy(p->y, y, sherd__bytes(l->n) * sizeof *y);
    p->inverse = 1 / product;
    if (l->pairs == l->with.history)
        l->first = (l->first + 1) % l->with.history;
    else
        l->pairs++;
    return true;
}

/*
 * After a step: x becomes the parameters as they are, and what changed is remembered. *moved: the
 * largest change of a parameter on any rank.
 */
static bool remember(sherd_lbfgs *l, double *moved)
{
    double *s = l->room, *y = l->old, product[2];

    if (!sherd__lbfgs_load_parameters(l, s))
        return false;
    for (int64_t i = 0; i < l->n; i++) {
        double now = s[i];
        s[i] = now - l->x[i];
        y[i] = l->best[i] - l->old[i];
        l->x[i] = now;
    }
    if (!sherd__lbfgs_largest(l, s, moved) ||
        !sherd__lbfgs_dots(l, 2, (const double *const[]){s, y}, (const double *const[]){y, y},
                           product))
        return false;
    /* Without curvature there is nothing to learn, and what is known stays; NaN likewise. */
    if (!(product[0] > DBL_EPSILON * product[1]))
        return true;
    l->scale = product[0] / product[1];
    return add_pair(l, s, y, product[0]);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* Search along the direction for the best point, and go there. False: the alarm is raised. */
static bool search(run *r, const sherd__line_point *start, double length, sherd__line_point *best)
{
    sherd_lbfgs *l = r->l;
    double largest = 0;
    int asked;

    if (!sherd__lbfgs_largest(l, l->way, &largest))
        return false;
    const sherd__ray line = {ask, keep, r, l->with.tolerance_change / fmax(largest, DBL_MIN),
                             LONG_SEARCH};
    return sherd__line_search(&line, start, length, best, &asked) &&
           (best->t == r->t || sherd__lbfgs_go_to(l, best->t));
}

/* Along the direction from `start`; r->report.loss becomes that of the parameters. False: the
 * alarm is raised. */
static bool walk(run *r, const sherd__line_point *start, double length)
{
    sherd__line_point best = {.t = length};

    if (!r->l->with.fixed) {
        if (!search(r, start, length, &best))
            return false;
    } else {
        if (!ask(r, &best))
            return false;
        keep(r);
    }
    r->report.loss = best.f;
    return true;
}

/* One iteration; *on: another may follow. False: the alarm is raised. */
static bool iterate(run *r, double rate, bool *on)
{
    sherd_lbfgs *l = r->l;
    double moved = 0, before = r->report.loss;
    sherd__line_point start = {.f = before};

    *on = false;
    if (!find_way(l) || !dot(l, l->best, l->way, &start.slope))
        return false;
    /* An infinite one is that of no direction: to go along it by 0 is NaN. */
    if (!(start.slope < -l->with.tolerance_change) || !isfinite(start.slope))
        return true;
    r->report.iterations++;
    memcpy(l->old, l->best, (size_t)l->n * sizeof *l->old);
    double length = l->begun ? rate : rate * fmin(1, 1 / r->numbers[SUM]);
    l->begun = true;
    if (!walk(r, &start, length) || !remember(l, &moved))
        return false;
    *on = r->report.gradient > l->with.tolerance_grad && moved > l->with.tolerance_change &&
          fabs(r->report.loss - before) >= l->with.tolerance_change;
    return true;
}

/* False: the alarm is raised. */
static bool take_step(run *r, double rate)
{
    sherd_lbfgs *l = r->l;

    memset(l->way, 0, (size_t)l->n * sizeof *l->way);
    if (!sherd__lbfgs_load_parameters(l, l->x) || !evaluate(r))
        return false;
    keep(r);
    r->report.loss = r->numbers[LOSS];
    if (!isfinite(r->report.loss))
        return refuse(l, SHERD_EINVAL, "the loss is infinite or NaN before the first iteration");
    bool on = r->report.gradient > l->with.tolerance_grad;
    while (on && r->report.iterations < l->with.iterations &&
           r->report.evaluations < l->with.evaluations)
        if (!iterate(r, rate, &on))
            return false;
    return true;
}

/* Whether its parameters are still those of the module, which the loss is computed with. */
static bool are_in_place(const sherd_lbfgs *l)
{
    bool good = true;

    for (int i = 0; i < l->all->count; i++)
        good &= !l->all->item[i].p->placed_as;
    return good;
}

static bool can_run(const sherd_lbfgs *l, double rate, sherd_lbfgs_loss loss)
{
    if (sherd__alarmed(l->world))
        return false;
    if (l->running)
        return refuse(l, SHERD_EINVAL, "it was called by the function of the loss");
    if (!loss)
        return refuse(l, SHERD_EINVAL, "loss is NULL");
    if (!are_in_place(l))
        return refuse(
            l, SHERD_EINVAL,
            "a parameter got another layout or dtype (sherd_parallelize, "
            "sherd_fully_shard, sherd_module_cast) after it was made: make it afterwards");
    if (!sherd__optimizer_has_parameters(l->all, sherd__lbfgs_step_name))
        return false;
    if (rate > 0 && isfinite(rate))
        return true;
    sherd__raise(l->world, SHERD_EINVAL,
                 "%s: the learning rate is %g: it must be positive and finite",
                 sherd__lbfgs_step_name, rate);
    return false;
}

double sherd_lbfgs_step(sherd_lbfgs *lbfgs, double learning_rate, sherd_lbfgs_loss loss,
                        void *payload, sherd_lbfgs_report *report)
{
    sherd_lbfgs *l = lbfgs;
    run r = {.l = l, .loss = loss, .payload = payload, .report = {.loss = NAN, .gradient = NAN}};

    if (report)
        *report = r.report;
    if (!l || !can_run(l, learning_rate, loss) ||
        (l->all->mesh && !sherd__in_mesh(l->world, l->all->mesh)))
        return NAN;
    if (l->checks != sherd__failed_checks(l->world))
        sherd_lbfgs_forget(l);
    l->checks = sherd__failed_checks(l->world);
    l->running = true;
    if (!take_step(&r, learning_rate))
        r.report.loss = r.report.gradient = NAN;
    l->running = false;
    if (report)
        *report = r.report;
    return r.report.loss;
}

void sherd_lbfgs_forget(sherd_lbfgs *lbfgs)
{
    if (lbfgs) {
        lbfgs->pairs = lbfgs->first = 0;
        lbfgs->begun = false;
    }
}

/* ---- making one ------------------------------------------------------------------------------ */

static const sherd__optimizer_kind kind = {.function = sherd__lbfgs_create_name};

static void destroy(sherd_lbfgs *l)
{
    sherd__heap *heap = sherd__world_heap(l->world);

    for (int i = 0; l->pair && i < l->with.history; i++)
        sherd__free(heap, l->pair[i].s);
    sherd__free(heap, l->pair);
    sherd__free(heap, l->at);
    sherd__free(heap, l->share);
    sherd__free(heap, l->exchanged);
    sherd__free(heap, l->x);
    sherd_optimizer_destroy(l->all);
    sherd__free(heap, l);
}

void sherd_lbfgs_destroy(sherd_lbfgs *lbfgs)
{
    if (lbfgs && (lbfgs->running || (sherd__calls_back(lbfgs->world) && !lbfgs->all->of_callback)))
        sherd__raise(lbfgs->world, SHERD_EINVAL,
                     "sherd_lbfgs_destroy: a function of the program's is running that has not "
                     "made it: destroy it when that has returned");
    else if (lbfgs)
        destroy(lbfgs);
}

static const char *fault_of(const sherd_lbfgs_options *o)
{
    if (o->history < 0 || o->iterations < 0 || o->evaluations < 0)
        return "history, iterations and evaluations are not negative";
    if (!(o->tolerance_grad >= 0 && o->tolerance_change >= 0))
        return "tolerances are not negative";
    return NULL;
}

static sherd_lbfgs_options with_defaults(const sherd_lbfgs_options *options)
{
    sherd_lbfgs_options o = options ? *options : (sherd_lbfgs_options){0};

    o.history = o.history ? o.history : 10;
    o.iterations = o.iterations ? o.iterations : 20;
    int64_t evaluations = o.iterations == 1 ? 2 : o.iterations * INT64_C(5) / 4;
    if (o.evaluations == 0)
        o.evaluations = (int)sherd__min(evaluations, INT_MAX);
    o.tolerance_grad = o.tolerance_grad == 0 ? 1e-7 : o.tolerance_grad;
    o.tolerance_change = o.tolerance_change == 0 ? 1e-9 : o.tolerance_change;
    return o;
}

static sherd_status reserve(sherd_lbfgs *l)
{
    sherd__heap *heap = sherd__world_heap(l->world);
    sherd_status status;

    l->at = sherd__alloc(heap, sherd__bytes(l->all->count), sizeof *l->at);
    l->share = sherd__alloc(heap, sherd__bytes(l->with.history), sizeof *l->share);
    l->pair = sherd__alloc(heap, sherd__bytes(l->with.history), sizeof *l->pair);
    l->exchanged = sherd__alloc(heap, sherd__bytes(sherd__lbfgs_ranks(l) * SHERD__NUMBERS),
                                sizeof *l->exchanged);
    if (!l->at || !l->share || !l->pair || !l->exchanged)
        return sherd__no_memory(sherd__world_diag(l->world), sherd__lbfgs_create_name);
    if ((status = sherd__lbfgs_lay_out(l)))
        return status;
    if (!(l->x = sherd__alloc(heap, sherd__bytes(6 * l->n), sizeof *l->x)))
        return sherd__no_memory(sherd__world_diag(l->world), sherd__lbfgs_create_name);
    return SHERD_OK;
}

static sherd_status make(sherd_lbfgs *l, sherd_module *module)
{
    const sherd_optimizer like = {.kind = &kind};
    const sherd__grouping grouping = {.weight_decay = 0};
    sherd_status status = sherd__optimizer_create(&l->all, module, &like, &grouping);

    if (!status)
        status = reserve(l);
    if (status)
        return status;
    l->g = l->x + l->n;
    l->best = l->g + l->n;
    l->way = l->best + l->n;
    l->old = l->way + l->n;
    l->room = l->old + l->n;
    return SHERD_OK;
}

sherd_status sherd_lbfgs_create(sherd_lbfgs **out, sherd_module *module,
                                const sherd_lbfgs_options *options)
{
    const sherd__argument need[] = {{"out", out}, {"module", module}, {NULL, NULL}};
    sherd_world *world = sherd_module_world(module);
    const sherd_lbfgs_options with = with_defaults(options);
    const char *fault = fault_of(&with);
    sherd_status status;
    sherd_lbfgs *l;

    if (out)
        *out = NULL;
    status = sherd__require(sherd__world_diag(world), sherd__lbfgs_create_name, need);
    if (!status && fault)
        status = sherd__fail(sherd__world_diag(world), SHERD_EINVAL, "%s: %s",
                             sherd__lbfgs_create_name, fault);
    if (status)
        return status;
    if (!(l = sherd__alloc(sherd__world_heap(world), 1, sizeof *l)))
        return sherd__no_memory(sherd__world_diag(world), sherd__lbfgs_create_name);
    l->world = world;
    l->with = with;
    l->checks = sherd__failed_checks(world);
    status = make(l, module);
    if (status) {
        destroy(l);
        return status;
    }
    *out = l;
    return SHERD_OK;
}
