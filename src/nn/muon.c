/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Muon: the momentum of a matrix is made orthogonal, all its singular values about 1, before it is
 * subtracted. That needs the whole matrix. So each matrix has one rank in a step, by size, whatever
 * its layout: one move of them all brings each to its rank, as a shard with all rows beside empty
 * ones; every rank computes its matrices; a second move takes the results back. Ranks share the
 * work, and no rank holds more than its matrices at once. Other parameters are updated as AdamW
 * does.
 *
 * The iteration and its coefficients, which pull singular values towards 1 without settling there,
 * are Keller Jordan's: https://kellerjordan.github.io/posts/muon
 */
#include <math.h>
#include <string.h>

#include "nn/optimizer.h"
#include "sherd/autocast.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/scope.h"
#include "vector/choose.h"

static const double coefficients[] = {3.4445, -4.7750, 2.0315};

/* ---- on the rank of a matrix ----------------------------------------------------------------- */

/* x := a x + (b g + c g^2) x with g = x x^T; from the other side if x is tall: then g is small. */
static sherd_tensor *turn(sherd_tensor *x)
{
    const double a = coefficients[0], b = coefficients[1], c = coefficients[2];
    bool wide = sherd_tensor_shape(x)[0] <= sherd_tensor_shape(x)[1];
    sherd_tensor *turned = sherd_transpose(x, 0, 1);
    sherd_tensor *g = wide ? sherd_matmul(x, turned) : sherd_matmul(turned, x);
    sherd_tensor *by = sherd_add(sherd_scale(g, b), sherd_scale(sherd_matmul(g, g), c));

    return sherd_add(sherd_scale(x, a), wide ? sherd_matmul(by, x) : sherd_matmul(x, by));
}

/*
 * U V^T of the matrix U S V^T, nearly, by a few turns. Retained: the caller releases it. What a
 * turn makes is gone before the next one: there may be many large matrices.
 */
static sherd_tensor *orthogonal(sherd_tensor *x, const sherd_muon_options *with)
{
    sherd_world *world = sherd_tensor_world(x);
    sherd_dtype dtype = sherd_tensor_dtype(x);

    sherd_tensor_retain(x);
    for (int i = -1; i <= with->steps; i++) {
        sherd_tensor *from = x;
        sherd_scope_begin(world);
        if (i < 0) {
            sherd_tensor *size = sherd_norm(x, 2, NULL, 0, false);
            x = sherd_div(x, sherd_clamp(size, with->eps, INFINITY));
            x = with->dtype ? sherd_cast(x, with->dtype) : x;
        } else {
            x = i < with->steps ? turn(x) : sherd_cast(x, dtype);
        }
        sherd_tensor_retain(x);
        sherd_scope_end(world);
        sherd_tensor_release(from);
    }
    return x;
}

/*
 * The orthogonal matrix of t, which has all its rows on one rank. That rank computes with plain
 * tensors, which fail alone, so a failure is raised for the others.
 */
static sherd_tensor *made_from(sherd_tensor *t, const sherd_muon_options *with)
{
    sherd_world *world = sherd_tensor_world(t);
    sherd_tensor *made = sherd__new_on(t->layout, t->dtype);

    if (sherd_tensor_failed(made) || made->count == 0)
        return made;
    sherd_tensor *y = orthogonal(sherd__local_view(t), with);
    const void *from = sherd__data(sherd__contiguous(y));
    void *to = from ? sherd__fresh(made) : NULL;
    if (to && !sherd__left_out(world, "copy", made->dtype, 0, 2 * sherd__local_bytes(made)))
        memcpy(to, from, (size_t)made->count * sherd_dtype_bytes(made->dtype));
    sherd_tensor_release(y);
    return to ? made : sherd__fail_diag(world, true);
}

/* ---- who computes what ----------------------------------------------------------------------- */

/* The operations of a matrix, but for a factor. */
static double work_of(const sherd_tensor *p)
{
    double m = (double)p->shape[0], n = (double)p->shape[1];

    return m * n * (m < n ? m : n);
}

/* All rows on one shard of a mesh; sizes: [ranks] zeroes. */
static sherd_status whole_on(const sherd_layout **out, const sherd_tensor *p, int64_t shard,
                             int64_t *sizes)
{
    sherd_placement placements[SHERD_MAX_AXES];
    const int64_t *cuts[] = {sizes, NULL};

    for (int a = 0; a < SHERD_MAX_AXES; a++)
        placements[a] = sherd_shard(0);
    sizes[shard] = p->shape[0];
    sherd_status status = sherd_layout_create(out, sherd_layout_mesh(p->layout), 2, p->shape,
                                              placements, &(sherd_layout_options){.sizes = cuts});
    sizes[shard] = 0;
    return status;
}

/*
 * The layouts in which n matrices are computed: each goes to the rank with the least work so far.
 * False: failed, the alarm is raised.
 */
static bool choose_ranks(sherd_optimizer *o, int n)
{
    sherd__heap *heap = sherd__world_heap(o->world);
    int64_t ranks = sherd_mesh_ranks(o->mesh);
    double *work = sherd__alloc(heap, (size_t)ranks, sizeof *work);
    int64_t *sizes = sherd__alloc(heap, (size_t)ranks, sizeof *sizes);
    sherd_status status = SHERD_OK;

    if (!work || !sizes)
        status = sherd__no_memory(sherd__world_diag(o->world), o->kind->function);
    for (int i = 0; !status && i < n; i++) {
        int64_t least = 0;
        for (int64_t r = 1; r < ranks; r++)
            least = work[r] < work[least] ? r : least;
        work[least] += work_of(o->from[i]);
        status = whole_on(&o->to[i], o->from[i], least, sizes);
    }
    sherd__free(heap, work);
    sherd__free(heap, sizes);
    if (status)
        sherd__raise_diag(o->world);
    return !status;
}

/* ---- a step ---------------------------------------------------------------------------------- */

/*
 * What is to become orthogonal, for an item with a gradient g: the momentum m := mu m + (1 - mu) g,
 * or with Nesterov's look ahead mu m + (1 - mu) g of the new m. False: ended by the alarm.
 */
static bool find_direction(const sherd_optimizer *o, sherd__optimized *item, double grad_scale,
                           sherd_tensor **out)
{
    const sherd_muon_options *with = &o->options.muon.with;
    sherd_tensor *p = item->p;
    sherd_tensor *d = sherd__new_like(p, sherd__statistics_dtype(p->dtype));
    sherd__update u;

    if (sherd_tensor_failed(d) || !sherd__optimizer_begin(o, item, &u) ||
        !sherd__optimizer_count(item, &u))
        return false;
    sherd__fill(d, 0);
    const sherd__sgd_step step = {.rate = with->plain ? -1 : with->momentum - 1,
                                  .grad_scale = grad_scale,
                                  .keep = with->momentum,
                                  .add = 1 - with->momentum,
                                  .momentum = with->momentum / (1 - with->momentum),
                                  .nesterov = !with->plain};
    if (!sherd__left_out(o->world, o->kind->function, d->dtype, (double)d->count,
                         4 * sherd__local_bytes(d)))
        u.kernels->sgd(p->count, sherd__fresh(d), u.state[0], u.grad, &step);
    *out = d;
    return true;
}

/* p -= rate (factor of its shape) d + rate decay p. False: ended by the alarm. */
static bool subtract(const sherd_optimizer *o, sherd__optimized *item, sherd_tensor *d, double rate)
{
    sherd_tensor *p = item->p;
    double m = (double)p->shape[0], n = (double)p->shape[1];
    double factor =
        o->options.muon.with.match_adamw ? 0.2 * sqrt(m > n ? m : n) : sqrt(m > n ? m / n : 1);
    const void *from = sherd__data(sherd__contiguous(d));
    void *to = sherd__optimizer_change(item, NULL);

    if (!from || !to)
        return false;
    const sherd__sgd_step step = {
        .rate = rate * item->rate * factor, .grad_scale = 1, .decay = item->decay / factor};
    if (!sherd__left_out(o->world, o->kind->function, d->dtype, (double)d->count,
                         3 * sherd__local_bytes(d)))
        sherd__kernels_of(sherd__world_kernels(o->world), d->dtype)
            ->sgd(p->count, to, NULL, from, &step);
    return sherd__optimizer_round(item, NULL, to);
}

/* Distributed ones among o->from [n]: to their ranks, orthogonal, and back to o->moved. */
static bool compute_together(sherd_optimizer *o, int n)
{
    if (!choose_ranks(o, n))
        return false;
    sherd__move_list(o->moved, o->from, o->to, n, false);
    sherd__optimizer_moved(o, false);
    for (int i = 0; i < n && !sherd__alarmed(o->world); i++) {
        o->to[i] = o->from[i]->layout;
        o->from[i] = made_from(o->moved[i], &o->options.muon.with);
    }
    if (sherd__alarmed(o->world))
        return false;
    sherd__move_list(o->moved, o->from, o->to, n, false);
    sherd__optimizer_moved(o, false);
    return !sherd__alarmed(o->world);
}

/* All matrices; those that are plain on the way. */
static bool update_matrices(sherd_optimizer *o, double rate, double grad_scale)
{
    bool good = true;
    int n = 0;

    for (int i = 0; good && i < o->count; i++) {
        sherd__optimized *item = &o->item[i];
        sherd_tensor *d;
        if (!item->whole || !sherd__raw_grad(item->p))
            continue;
        good = find_direction(o, item, grad_scale, &d);
        if (good && !d->layout) {
            d = orthogonal(d, &o->options.muon.with);
            good = subtract(o, item, d, rate);
            sherd_tensor_release(d);
        } else if (good) {
            o->which[n] = i;
            o->from[n++] = d;
        }
    }
    if (good && n > 0)
        good = compute_together(o, n);
    for (int i = 0; good && i < n; i++)
        good = subtract(o, &o->item[o->which[i]], o->moved[i], rate);
    return good;
}

static bool update_whole(sherd_optimizer *o, double rate, double grad_scale)
{
    sherd_dtype before = sherd_set_autocast(o->world, SHERD_DTYPE_NONE);
    bool recorded = sherd_set_recording(o->world, false);
    bool good = update_matrices(o, rate, grad_scale);

    sherd_set_recording(o->world, recorded);
    sherd_set_autocast(o->world, before);
    return good;
}

/* ---- the others, and making one -------------------------------------------------------------- */

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    sherd__adam_update(&o->options.muon.others, u, true);
}

static sherd__moments moments(sherd_optimizer *o)
{
    return (sherd__moments){.momentum = &o->options.muon.with.momentum,
                            .beta1 = &o->options.muon.others.beta1,
                            .beta2 = &o->options.muon.others.beta2};
}

static const sherd_op compared = {.name = "options",
                                  .field = {SHERD_FIELD(sherd_muon_options, momentum, DOUBLE),
                                            SHERD_FIELD(sherd_muon_options, eps, DOUBLE),
                                            SHERD_FIELD(sherd_muon_options, steps, INT),
                                            SHERD_FIELD(sherd_muon_options, plain, BOOL),
                                            SHERD_FIELD(sherd_muon_options, match_adamw, BOOL),
                                            SHERD_FIELD(sherd_muon_options, weight_decay, DOUBLE),
                                            SHERD_FIELD(sherd_muon_options, decay_all, BOOL),
                                            SHERD_FIELD(sherd_muon_options, dtype, INT),
                                            SHERD_FIELD(sherd_muon_options, beta1, DOUBLE),
                                            SHERD_FIELD(sherd_muon_options, beta2, DOUBLE),
                                            SHERD_FIELD(sherd_muon_options, adamw_eps, DOUBLE)},
                                  .attributes = sizeof(sherd_muon_options)};

static const sherd__optimizer_kind muon = {"sherd_muon_create", {"m", "v"}, update, NULL,
                                           update_whole,        moments,    NULL,   &compared};

static sherd_status check(sherd_world *world, const sherd_muon_options *o)
{
    const char *fault = NULL;

    if (!(o->momentum >= 0 && o->momentum < 1))
        fault = "momentum lies in [0, 1)";
    else if (!(o->eps >= 0 && o->weight_decay >= 0))
        fault = "eps and weight_decay are not negative";
    else if (o->steps < 0 || o->steps > 100)
        fault = "steps lie in [0, 100]";
    else if (o->dtype && o->dtype != SHERD_BF16)
        fault = "dtype is SHERD_BF16, or none";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: momentum %g, eps %g, weight_decay %g, steps %d, dtype %s: %s",
                       muon.function, o->momentum, o->eps, o->weight_decay, o->steps,
                       o->dtype ? sherd_dtype_name(o->dtype) : "none", fault);
}

sherd_status sherd_muon_create(sherd_optimizer **out, sherd_module *module,
                               const sherd_muon_options *options)
{
    sherd_muon_options with = options ? *options : (sherd_muon_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_optimizer like = {.kind = &muon, .states = 2};
    sherd_status status = sherd__optimizer_start(out, module, muon.function);
    sherd_world *world = sherd_module_world(module);

    with.momentum = with.momentum == 0 ? 0.95 : with.momentum;
    with.steps = with.steps == 0 ? 5 : with.steps;
    with.eps = with.eps == 0 ? 1e-7 : with.eps;
    with.groups = NULL; /* the caller's */
    like.options.muon.with = with;
    like.options.muon.others = sherd__adam_defaults(
        &(sherd_adamw_options){.beta1 = with.beta1, .beta2 = with.beta2, .eps = with.adamw_eps});
    if (!status)
        status = check(world, &with);
    if (!status)
        status = sherd__adam_check(world, muon.function, &like.options.muon.others);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
