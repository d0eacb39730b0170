/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy over classes that may be sharded. Each rank reduces its classes to three numbers a position
 * (maximum, sum of exponentials, the target's logit); only these are exchanged, and every rank joins them in
 * rank order. The loss is pending over the axes that shard positions and equal over those that shard classes.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "operator.h"

enum { LOGITS, TARGETS };
enum { SAVED_LOGITS, SAVED_TARGETS, SAVED_LOG_SUM };

static const char *const names[] = {"logits", "targets"};

/* Number of positions in all, at least 1. */
static double positions(const sherd_tensor *targets)
{
    return (double)sherd__max(sherd_tensor_count(targets), 1);
}

/* ---- backward -------------------------------------------------------------------------------- */

static sherd_tensor *differentiate(sherd_tensor *logits, sherd_tensor *targets,
                                   sherd_tensor *log_sum, double dy)
{
    sherd_tensor *out = sherd__new_like(logits), *x = sherd__contiguous(logits);
    sherd_tensor *ids = sherd__contiguous(targets);
    int last = logits->ndim - 1;

    if (sherd_tensor_failed(out) || out->count == 0)
        return out;
    if (sherd_tensor_failed(x) || sherd_tensor_failed(ids))
        return sherd__failed(logits->world);
    const void *from = sherd__data(x), *ends = sherd__data(log_sum), *at = sherd__data(ids);
    if (!from || !ends || !at)
        return sherd__failed(logits->world);
    sherd__kernels_of(sherd__world_kernels(out->world), out->dtype)
        ->cross_entropy_grad(ids->count, out->local[last], sherd__fresh(out), from, at,
                             sherd_tensor_box(out).offset[last], ends, dy / positions(targets));
    return out;
}

static void cross_entropy_back(sherd__node *node, sherd_tensor *const *grad_out,
                               sherd_tensor **grad_in)
{
    sherd_tensor *saved[] = {sherd__saved(node, SAVED_LOGITS), sherd__saved(node, SAVED_TARGETS),
                             sherd__saved(node, SAVED_LOG_SUM)};
    sherd_world *world = grad_out[0]->world;
    double dy;

    if (sherd__stop(world, saved, 3) || !sherd__scalar_value(grad_out[0], &dy))
        grad_in[LOGITS] = sherd__failed(world);
    else
        grad_in[LOGITS] = differentiate(saved[0], saved[1], saved[2], dy);
}

static const sherd__backward cross_entropy_table = {"sherd_cross_entropy", false,
                                                    cross_entropy_back};

/* ---- forward --------------------------------------------------------------------------------- */

/* Layouts of stats [parts,3,positions...]: one part on each rank that holds classes, or all parts on all. */
static sherd_status stats_layout(const sherd_layout **out, const sherd_layout *logits, bool all)
{
    int positions = logits->spec.ndim - 1;
    const sherd__dim *classes = &logits->spec.dim[positions];
    sherd__layout_spec spec = {.mesh = logits->spec.mesh, .ndim = positions + 2};

    memcpy(spec.pending, logits->spec.pending, sizeof spec.pending);
    spec.shape[0] = sherd__dim_parts(spec.mesh, classes);
    spec.shape[1] = 3;
    for (int d = 0; d < positions; d++) {
        spec.shape[d + 2] = logits->spec.shape[d];
        spec.dim[d + 2] = logits->spec.dim[d];
    }
    if (!all) {
        spec.dim[0] = *classes;
        spec.dim[0].cuts = NULL; /* as many shards as parts: one each */
    }
    return sherd__layout_intern(out, &spec);
}

/* New stats of this rank's classes: contents undefined. */
static sherd_tensor *new_stats(const sherd__prepared *p, int64_t rows)
{
    const sherd_tensor *logits = p->in[LOGITS];
    sherd_dtype dtype = sherd__statistics_dtype(logits->dtype);
    const sherd_layout *layout;
    int64_t shape[] = {3, rows};

    if (!logits->layout)
        return sherd__new_plain(p->world, dtype, 2, shape, logits->varies);
    if (stats_layout(&layout, logits->layout, false) != SHERD_OK)
        return sherd__fail_diag(p->world, true);
    return sherd__new_on(layout, dtype);
}

/* The stats of all classes, [parts,3,rows], from those of this rank's. */
static sherd_tensor *gather_stats(sherd_tensor *stats, const sherd_layout *logits)
{
    const sherd_layout *layout;

    if (!logits)
        return stats;
    if (stats_layout(&layout, logits, true) != SHERD_OK)
        return sherd__fail_diag(stats->world, true);
    return sherd__move_to(stats, layout, false);
}

/* A scalar that is pending over the axes that shard positions. */
static sherd_tensor *new_loss(const sherd__prepared *p)
{
    const sherd_tensor *logits = p->in[LOGITS], *targets = p->in[TARGETS];
    const sherd_layout *layout;
    sherd__layout_spec spec = {.ndim = 0};

    if (!logits->layout)
        return sherd__new_plain(p->world, logits->dtype, 0, NULL, logits->varies | targets->varies);
    spec.mesh = logits->layout->spec.mesh;
    for (int a = 0; a < spec.mesh->axes; a++)
        spec.pending[a] = targets->layout->shard_axes >> a & 1 ? SHERD_SUM : -1;
    if (sherd__layout_intern(&layout, &spec) != SHERD_OK)
        return sherd__fail_diag(p->world, true);
    return sherd__new_on(layout, logits->dtype);
}

/* A tensor of the targets' shape and layout. */
static sherd_tensor *new_log_sum(const sherd__prepared *p)
{
    const sherd_tensor *t = p->in[TARGETS];
    sherd_dtype dtype = sherd__statistics_dtype(p->in[LOGITS]->dtype);

    return t->layout ? sherd__new_on(t->layout, dtype)
                     : sherd__new_plain(p->world, dtype, t->ndim, t->shape, t->varies);
}

/* Stats, their exchange, the join. False: a tensor could not be made or moved. */
static bool compute(sherd__prepared *p, sherd_tensor *loss, sherd_tensor *log_sum)
{
    sherd_tensor *logits = p->in[LOGITS];
    int last = logits->ndim - 1;
    int64_t rows = p->in[TARGETS]->count, first = sherd_tensor_box(logits).offset[last];
    sherd_tensor *stats = new_stats(p, rows);

    if (sherd_tensor_failed(stats))
        return false;
    p->kernels->cross_entropy(rows, logits->local[last], sherd__fresh(stats), p->from[LOGITS],
                              p->from[TARGETS], first);
    sherd_tensor *all = gather_stats(stats, logits->layout);
    const void *data = sherd_tensor_failed(all) ? NULL : sherd__data(all);
    if (!data)
        return false;
    if (loss->count == 0)
        return true;
    double sum = p->kernels->cross_entropy_join(logits->layout ? all->local[0] : 1, rows,
                                                sherd__fresh(log_sum), data);
    bool empty = sherd_tensor_count(p->in[TARGETS]) == 0;
    p->kernels->fill(sherd__fresh(loss), 1, empty ? (double)NAN : sum / positions(p->in[TARGETS]));
    return true;
}

static sherd_tensor *run(sherd__prepared *p)
{
    sherd_tensor *loss = new_loss(p), *log_sum = new_log_sum(p);

    if (sherd_tensor_failed(loss) || sherd_tensor_failed(log_sum) || !compute(p, loss, log_sum))
        return sherd__abandon(p);
    p->out[0] = loss;
    sherd__node *node =
        sherd__record_node(p->world, &cross_entropy_table, p->arg, 2, p->out, 1, NULL, 0);
    sherd__save(node, SAVED_LOGITS, p->arg[LOGITS]);
    sherd__save(node, SAVED_TARGETS, p->arg[TARGETS]);
    sherd__save(node, SAVED_LOG_SUM, log_sum);
    return sherd__finish(p, 1);
}

static const char *misfit_of(const sherd_tensor *logits, const sherd_tensor *targets)
{
    if (targets->dtype != SHERD_I32)
        return "targets must be i32";
    if (logits->ndim != targets->ndim + 1 ||
        memcmp(logits->shape, targets->shape, (size_t)targets->ndim * sizeof *logits->shape) != 0)
        return "logits must have the dims of targets and one for the classes";
    if (logits->ndim >= SHERD_MAX_DIMS)
        return "logits have too many dims";
    return NULL;
}

sherd_tensor *sherd_cross_entropy(sherd_tensor *logits, sherd_tensor *targets)
{
    sherd_tensor *in[SHERD__OPERANDS] = {logits, targets}, *failed;
    sherd__operands o = {"sherd_cross_entropy", names, in, 2, 0};
    sherd__rule rule = {.name = o.function, .index = 1u << TARGETS, .scratch = true};
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    const char *misfit = misfit_of(logits, targets);
    if (misfit)
        return sherd__refuse(&o, SHERD_EINVAL, "%s", misfit);
    in[TARGETS] = sherd__without_pending(targets);
    if (sherd_tensor_failed(in[TARGETS]))
        return in[TARGETS];
    if (!sherd__check_indices(&o, TARGETS, logits->shape[targets->ndim], &failed))
        return failed;
    sherd__rule_compile(&rule, "...c,...->", (const int[]){logits->ndim, targets->ndim});
    rule.results =
        0; /* made by hand: what the classes' axes shard is joined here, not left pending */
    if (!sherd__prepare(&p, &rule, in, logits->dtype, NULL))
        return p.out[0];
    return run(&p);
}
