/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Adafactor: the second moments of a matrix are those of its rows times those of its columns, so
 * that state takes m + n numbers in place of m n. A rank adds up the squares of what it holds;
 * those of rows and columns that lie on several ranks are pending sums, and so are the sizes of
 * parameters and of updates. All of a kind are settled in one round, three in a step, however many
 * parameters there are.
 */
#include <math.h>
#include <string.h>

#include "apply/solve.h"
#include "kernels/factored.h"
#include "nn/optimizer.h"

enum { ROW, COL, VECTOR };
enum { SUM_ROW, SUM_COL, SUM_SIZE, SUM_MEAN, SUMS, FIRST_ROUND = SUM_MEAN };

/* A parameter in a step. */
typedef struct job {
    sherd__optimized *item;
    sherd__update u;
    sherd__factored f;
    sherd_tensor *sum[SUMS]; /* pending, then settled; NULL: it has none */
    double change;           /* how much of the update is subtracted, before it is limited */
    bool matrix;
} job;

typedef struct all {
    sherd_optimizer *o;
    job *job; /* [jobs] */
    int jobs;
    sherd_tensor **from, **moved; /* [FIRST_ROUND jobs] */
    const sherd_layout **to;
    double grad_scale;
} all;

static const sherd_adafactor_options *options_of(const all *a)
{
    return &a->o->options.adafactor;
}

/* ---- sums over ranks ------------------------------------------------------------------------- */

/*
 * A new f64 tensor of p's dims but for some (`without`, bits), pending on the axes that shard those
 * that it sums over. In the scope around this one; the failed tensor after a failure.
 */
static sherd_tensor *new_sum(const sherd_tensor *p, unsigned without, unsigned over)
{
    sherd__layout_spec spec = {.ndim = 0};
    const sherd_layout *layout;
    sherd_tensor *t;

    if (p->layout)
        spec.mesh = p->layout->spec.mesh;
    if (p->layout)
        sherd__spec_settle(&spec);
    for (int d = 0; d < p->ndim; d++) {
        unsigned axes = p->layout ? sherd__dim_bits(&p->layout->spec.dim[d]) : 0;
        for (int x = 0; over >> d & 1 && x < SHERD_MAX_AXES; x++)
            if (axes >> x & 1)
                spec.pending[x] = SHERD_SUM;
        if (without >> d & 1)
            continue;
        if (p->layout)
            spec.dim[spec.ndim] = p->layout->spec.dim[d];
        spec.shape[spec.ndim++] = p->shape[d];
    }
    if (!p->layout)
        t = sherd__new_plain(p->world, SHERD_F64, spec.ndim, spec.shape, p->varies);
    else if (sherd__layout_intern(&layout, &spec) != SHERD_OK)
        return sherd__fail_diag(p->world, true);
    else
        t = sherd__new_on(layout, SHERD_F64);
    sherd_scope_pass(t);
    return t;
}

/* Settle sums [first, last) of all jobs together. False: ended by the alarm. */
static bool settle(all *a, int first, int last)
{
    int n = 0;

    for (int i = 0; i < a->jobs; i++)
        for (int s = first; s < last; s++) {
            sherd_tensor *t = a->job[i].sum[s];
            if (!t || !t->layout)
                continue;
            if (sherd__layout_settle(&a->to[n], t->layout) != SHERD_OK) {
                sherd__raise_diag(a->o->world);
                return false;
            }
            a->from[n++] = t;
        }
    if (n > 0) {
        sherd__move_list(a->moved, a->from, a->to, n, false);
        sherd__optimizer_moved(a->o, false);
    }
    for (int i = 0, k = 0; i < a->jobs && !sherd__alarmed(a->o->world); i++)
        for (int s = first; s < last; s++)
            if (a->job[i].sum[s] && a->job[i].sum[s]->layout)
                a->job[i].sum[s] = a->moved[k++];
    return !sherd__alarmed(a->o->world);
}

/* The root of the mean of squares whose settled sum this is; 0 where there is none, or dry. */
static double rms_of(sherd_tensor *sum, const sherd_tensor *p)
{
    const double *x = sum->count && !sherd__is_dry(sum->world) ? sherd__data(sum) : NULL;

    return x ? sqrt(*x / fmax((double)sherd_tensor_count(p), 1)) : 0;
}

/* ---- a parameter ----------------------------------------------------------------------------- */

static sherd_dtype dtype_of(const job *j)
{
    return sherd__statistics_dtype(j->item->p->dtype);
}

/* In a dry world: so many passes over its elements are left out. */
static bool is_left_out(const all *a, const job *j, int passes)
{
    const sherd_tensor *p = j->item->p;
    int64_t bytes = (int64_t)sherd_dtype_bytes(dtype_of(j));

    return sherd__left_out(a->o->world, a->o->kind->function, dtype_of(j), 4 * (double)p->count,
                           passes * bytes * p->count);
}

/* What a pass over the gradient needs, which is in the dtype of the state. False: failed. */
static bool begin_pass(const all *a, job *j)
{
    sherd_tensor *p = j->item->p, *g = sherd__contiguous(sherd__raw_grad(p));
    double eps = options_of(a)->eps;

    g = sherd_tensor_failed(g) ? g : sherd__cast_unrecorded(g, dtype_of(j));
    if (eps == 0)
        eps = dtype_of(j) == SHERD_F64 ? 0x1p-52 : 0x1p-23;
    j->f = (sherd__factored){.dtype = dtype_of(j),
                             .outer = 1,
                             .m = 1,
                             .n = p->count,
                             .grad = sherd_tensor_failed(g) ? NULL : sherd__data(g),
                             .scale = a->grad_scale,
                             .col = j->u.state[j->matrix ? COL : VECTOR],
                             .least_mean = eps,
                             .least = eps * eps};
    if (j->matrix) {
        j->f.m = p->local[p->ndim - 2];
        j->f.n = p->local[p->ndim - 1];
        j->f.row = j->u.state[ROW];
        for (int d = 0; d < p->ndim - 2; d++)
            j->f.outer *= p->local[d];
        j->f.mean = j->sum[SUM_MEAN] ? sherd__data(j->sum[SUM_MEAN]) : NULL;
    }
    return j->f.grad && (!j->sum[SUM_MEAN] || j->f.mean);
}

/* Where a new sum is written; NULL: failed. */
static double *write_sum(job *j, int which, unsigned without, unsigned over)
{
    j->sum[which] = new_sum(j->item->p, without, over);
    return sherd_tensor_failed(j->sum[which]) ? NULL : sherd__fresh(j->sum[which]);
}

/* First round: the sums of squares that are here, of the gradient and the parameter. */
static bool add_up(const all *a, job *j)
{
    sherd_tensor *p = j->item->p, *exact = j->item->tensor[SHERD__OPTIMIZER_EXACT];
    const unsigned every = (1u << p->ndim) - 1;
    const unsigned last = j->matrix ? 1u << (p->ndim - 1) : 0, other = last >> 1;

    if (exact && !sherd__optimizer_refresh(j->item, NULL))
        return false;
    const void *now = sherd__data(exact ? exact : p);
    double *row = j->matrix ? write_sum(j, SUM_ROW, last, last) : NULL;
    double *col = write_sum(j, SUM_COL, other, other), *size = write_sum(j, SUM_SIZE, every, every);
    if (!now || !col || !size || (j->matrix && !row) || !begin_pass(a, j))
        return false;
    if (is_left_out(a, j, 2))
        return true;
    sherd__factored_sums(&j->f, row, col);
    if (j->sum[SUM_SIZE]->count)
        *size = sherd__factored_squares(dtype_of(j), p->count, now);
    return true;
}

/* Second round: averages of moments, and of those of rows. */
static bool average(const all *a, job *j)
{
    const sherd_tensor *p = j->item->p;
    double weight = pow((double)j->u.steps, options_of(a)->beta2_decay);
    double m = j->matrix ? (double)p->shape[p->ndim - 2] : 1;
    double n = j->matrix ? (double)p->shape[p->ndim - 1] : 1;
    const double *row = j->matrix ? sherd__data(j->sum[SUM_ROW]) : NULL;
    const double *col = sherd__data(j->sum[SUM_COL]);
    const unsigned other = j->matrix ? 1u << (p->ndim - 2) : 0;
    double *mean = j->matrix ? write_sum(j, SUM_MEAN, 3 * other, other) : NULL;

    j->change = fmax(options_of(a)->least_scale, rms_of(j->sum[SUM_SIZE], p)) *
                fmin(j->u.rate, 1 / sqrt((double)j->u.steps));
    if (!col || (j->matrix && (!row || !mean)))
        return false;
    if (is_left_out(a, j, 0))
        return true;
    sherd__factored_average(dtype_of(j), j->sum[SUM_COL]->count,
                            j->u.state[j->matrix ? COL : VECTOR], col, 1 / m, weight);
    if (j->matrix) {
        sherd__factored_average(dtype_of(j), j->sum[SUM_ROW]->count, j->u.state[ROW], row, 1 / n,
                                weight);
        sherd__factored_means(dtype_of(j), j->f.outer, j->f.m, mean, j->u.state[ROW], 1 / m);
    }
    return true;
}

/* Third round: the size of the update. */
static bool measure(const all *a, job *j)
{
    const unsigned every = (1u << j->item->p->ndim) - 1;
    double *size = write_sum(j, SUM_SIZE, every, every);

    if (!size || !begin_pass(a, j))
        return false;
    if (!is_left_out(a, j, 1) && j->sum[SUM_SIZE]->count)
        *size = sherd__factored_size(&j->f);
    return true;
}

static bool change(const all *a, job *j)
{
    double over = rms_of(j->sum[SUM_SIZE], j->item->p) / options_of(a)->limit;
    void *to = sherd__optimizer_change(j->item, NULL);

    if (!to || !begin_pass(a, j))
        return false;
    if (!is_left_out(a, j, 3))
        sherd__factored_update(&j->f, to, 1 - j->u.rate * j->item->decay,
                               j->change / fmax(over, 1));
    return sherd__optimizer_round(j->item, NULL, to);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* One of the functions above for all, each in a scope, and the sums that it has made settled. */
static bool in_turn(all *a, bool (*act)(const all *a, job *j), int first, int last)
{
    bool good = true;

    for (int i = 0; good && i < a->jobs; i++) {
        sherd_scope_begin(a->o->world);
        good = act(a, &a->job[i]) && !sherd__alarmed(a->o->world);
        sherd_scope_end(a->o->world);
    }
    if (!good && !sherd__alarmed(a->o->world))
        sherd__raise_failed(a->o->world, a->o->kind->function);
    return good && settle(a, first, last);
}

static bool begin(all *a, double rate)
{
    sherd_optimizer *o = a->o;

    for (int i = 0; i < o->count; i++) {
        job *j = &a->job[a->jobs];
        if (!sherd__raw_grad(o->item[i].p))
            continue;
        *j = (job){.item = &o->item[i], .matrix = o->item[i].p->ndim >= 2};
        if (!sherd__optimizer_begin(o, j->item, &j->u) || !sherd__optimizer_count(j->item, &j->u))
            return false;
        j->u.rate = rate * j->item->rate;
        a->jobs++;
    }
    return in_turn(a, add_up, 0, FIRST_ROUND) && in_turn(a, average, SUM_MEAN, SUMS) &&
           in_turn(a, measure, SUM_SIZE, SUM_SIZE + 1) && in_turn(a, change, 0, 0);
}

static bool update_whole(sherd_optimizer *o, double rate, double grad_scale)
{
    sherd__heap *heap = sherd__world_heap(o->world);
    size_t n = (size_t)o->count;
    all a = {.o = o,
             .grad_scale = grad_scale,
             .job = sherd__alloc(heap, n, sizeof *a.job),
             .from = sherd__alloc(heap, FIRST_ROUND * n, sizeof *a.from),
             .moved = sherd__alloc(heap, FIRST_ROUND * n, sizeof *a.moved),
             .to = sherd__alloc(heap, FIRST_ROUND * n, sizeof *a.to)};
    bool room = a.job && a.from && a.moved && a.to;
    bool recorded = sherd_set_recording(o->world, false);

    if (!room && n)
        sherd__raise(o->world, SHERD_ENOMEM, "%s: out of memory for a step", o->kind->function);
    bool good = (room || !n) && begin(&a, rate);
    sherd_set_recording(o->world, recorded);
    sherd__free(heap, a.job);
    sherd__free(heap, a.from);
    sherd__free(heap, a.moved);
    sherd__free(heap, a.to);
    return good;
}

/* ---- making one ------------------------------------------------------------------------------ */

static int lacks(const sherd_tensor *p, int state)
{
    bool matrix = p->ndim >= 2;

    if (matrix == (state == VECTOR))
        return SHERD__NO_STATE;
    return state == ROW ? p->ndim - 1 : state == COL ? p->ndim - 2 : SHERD__LACKS_NONE;
}

static const sherd_op compared = {
    .name = "options",
    .field = {SHERD_FIELD(sherd_adafactor_options, beta2_decay, DOUBLE),
              SHERD_FIELD(sherd_adafactor_options, eps, DOUBLE),
              SHERD_FIELD(sherd_adafactor_options, least_scale, DOUBLE),
              SHERD_FIELD(sherd_adafactor_options, limit, DOUBLE),
              SHERD_FIELD(sherd_adafactor_options, weight_decay, DOUBLE),
              SHERD_FIELD(sherd_adafactor_options, decay_all, BOOL)},
    .attributes = sizeof(sherd_adafactor_options)};

static const sherd__optimizer_kind adafactor = {.function = "sherd_adafactor_create",
                                                .state = {"row", "col", "v"},
                                                .update_whole = update_whole,
                                                .lacks = lacks,
                                                .options = &compared};

static sherd_status check(sherd_world *world, const sherd_adafactor_options *o)
{
    if (o->beta2_decay <= 0 && o->eps >= 0 && o->least_scale >= 0 && o->limit > 0 &&
        o->weight_decay >= 0)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: beta2_decay %g, eps %g, least_scale %g, limit %g, weight_decay %g: "
                       "beta2_decay is not positive, limit is, the others are not negative",
                       adafactor.function, o->beta2_decay, o->eps, o->least_scale, o->limit,
                       o->weight_decay);
}

sherd_status sherd_adafactor_create(sherd_optimizer **out, sherd_module *module,
                                    const sherd_adafactor_options *options)
{
    sherd_adafactor_options with = options ? *options : (sherd_adafactor_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_status status = sherd__optimizer_start(out, module, adafactor.function);

    with.beta2_decay = with.beta2_decay == 0 ? -0.8 : with.beta2_decay;
    with.least_scale = with.least_scale == 0 ? 1e-3 : with.least_scale;
    with.limit = with.limit == 0 ? 1 : with.limit;
    with.groups = NULL; /* the caller's */
    const sherd_optimizer like = {.kind = &adafactor, .states = 3, .options.adafactor = with};
    if (!status)
        status = check(sherd_module_world(module), &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
