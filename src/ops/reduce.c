/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums. Each rank adds up what it holds; where a summed dim is sharded the result is a pending sum, so
 * uneven and empty shards count as what they are.
 */
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "operator.h"

sherd_tensor *sherd__new_settled(const sherd_layout *layout, const sherd_tensor *like, int ndim,
                                 const int64_t *shape)
{
    const sherd_layout *settled;

    if (!layout)
        return sherd__new_plain(like->world, like->dtype, ndim, shape, like->varies);
    if (sherd__layout_settle(&settled, layout) != SHERD_OK)
        return sherd__fail_diag(like->world, true);
    return sherd__new_on(settled, like->dtype);
}

sherd_tensor *sherd__new_like(const sherd_tensor *t)
{
    return t->layout ? sherd__new_on(t->layout, t->dtype)
                     : sherd__new_plain(t->world, t->dtype, t->ndim, t->shape, t->varies);
}

/* ---- the sum over some dims, for gradients of what was broadcast ------------------------------ */

/* Neighbouring dims that are all kept or all summed. */
typedef struct run {
    int64_t size;
    bool summed;
} run;

static int runs_of(const sherd_tensor *t, const char *label, const char *result, run *runs)
{
    int count = 0;

    for (int d = 0; d < t->ndim; d++) {
        bool summed = !strchr(result, label[d]);
        if (count && runs[count - 1].summed == summed)
            runs[count - 1].size *= t->local[d];
        else
            runs[count++] = (run){t->local[d], summed};
    }
    return count;
}

static int64_t product(const run *runs, int first, int end)
{
    int64_t n = 1;

    for (int i = first; i < end; i++)
        n *= runs[i].size;
    return n;
}

/*
 * One pass sums one run, the first one first; all but the last pass write to scratch. False for lack of memory. Sums
 * of nothing are zeroes.
 */
static bool sum_runs(sherd__prepared *p, run *runs, int count)
{
    const void *src = p->from[0];

    for (int i = 0; i < count; i++) {
        bool last = true;
        if (!runs[i].summed)
            continue;
        for (int j = i + 1; j < count; j++)
            last &= !runs[j].summed;
        int64_t outer = product(runs, 0, i), inner = product(runs, i + 1, count);
        int64_t n = outer * inner;
        void *dst = p->to[0];
        if (!last) {
            sherd_tensor *scratch = sherd__new_plain(p->world, p->out[0]->dtype, 1, &n, 0);
            if (sherd_tensor_failed(scratch))
                return false;
            dst = sherd__fresh(scratch);
        }
        p->kernels->sum(dst, src, outer, runs[i].size, inner, false);
        runs[i].size = 1;
        src = dst;
    }
    return true;
}

/* Labels of t, and of what it is summed to: a letter for a dim that stays, '1' for one that shrinks to size 1. */
static void write_labels(sherd__rule *rule, const sherd_tensor *t, int ndim, const int64_t *shape)
{
    int skipped = t->ndim - ndim;

    rule->operands = rule->results = 1;
    for (int d = 0; d < t->ndim; d++)
        rule->operand[0][d] = (char)('a' + d);
    for (int d = 0; d < ndim; d++)
        rule->result[0][d] = t->shape[skipped + d] == shape[d] ? (char)('a' + skipped + d) : '1';
}

sherd_tensor *sherd__sum_to(sherd_tensor *t, int ndim, const int64_t *shape)
{
    sherd__rule rule = {.name = "sum of a gradient", .linearity = SHERD__LINEAR};
    int64_t result[1][SHERD_MAX_DIMS];
    run runs[SHERD_MAX_DIMS];
    sherd__prepared p;

    if (sherd_tensor_failed(t) ||
        (t->ndim == ndim && memcmp(t->shape, shape, (size_t)ndim * sizeof *shape) == 0))
        return t;
    memcpy(result[0], shape, (size_t)ndim * sizeof *shape);
    write_labels(&rule, t, ndim, shape);
    rule.scratch = true;
    if (!sherd__prepare(&p, &rule, &t, t->dtype, (const int64_t(*)[SHERD_MAX_DIMS])result))
        return p.out[0];
    int count = runs_of(p.in[0], rule.operand[0], rule.result[0], runs);
    if (p.out[0]->count == 0)
        return sherd__finish(&p, 1);
    if (!sum_runs(&p, runs, count))
        return sherd__abandon(&p);
    return sherd__finish(&p, 1);
}

/* ---- the sum and the mean of everything ------------------------------------------------------ */

/* Every element has the gradient of the sum: a fill, in the layout of the operand. */
static void sum_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0];
    const int64_t *shape;
    int ndim = sherd__input_shape(node, 0, &shape);
    double value;

    grad_in[0] = sherd__failed(dy->world);
    if (!sherd__scalar_value(dy, &value))
        return;
    grad_in[0] = sherd__new_settled(sherd__input_layout(node, 0), dy, ndim, shape);
    if (!sherd_tensor_failed(grad_in[0]) && grad_in[0]->count)
        sherd__kernels_of(sherd__world_kernels(dy->world), dy->dtype)
            ->fill(sherd__fresh(grad_in[0]), grad_in[0]->count, value);
}

static const sherd__backward sum_table = {"sherd_sum", false, sum_back};

sherd_tensor *sherd_sum(sherd_tensor *a)
{
    static const char *const names[] = {"a"};
    static const int64_t scalar[1][SHERD_MAX_DIMS];
    sherd_tensor *failed;
    sherd__operands o = {"sherd_sum", names, &a, 1, 0};
    sherd__rule rule = {.name = o.function, .linearity = SHERD__LINEAR};
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    write_labels(&rule, a, 0, scalar[0]);
    if (!sherd__prepare(&p, &rule, &a, a->dtype, scalar))
        return p.out[0];
    if (p.out[0]->count)
        p.kernels->sum(p.to[0], p.from[0], 1, p.in[0]->count, 1, false);
    sherd__record_node(p.world, &sum_table, p.arg, 1, p.out, 1, NULL, 0);
    return sherd__finish(&p, 1);
}

sherd_tensor *sherd_mean(sherd_tensor *a)
{
    static const char *const names[] = {"a"};
    sherd_tensor *failed;
    sherd__operands o = {"sherd_mean", names, &a, 1, 0};

    if (!sherd__enter(&o, &failed))
        return failed;
    int64_t n = sherd_tensor_count(a);
    double factor = n ? 1 / (double)n : (double)NAN;
    if (!sherd__is_half(a->dtype))
        return sherd_scale(sherd_sum(a), factor);
    /* In 16 bits the sum of many numbers may not fit where their mean does. */
    sherd_world *world = a->world;
    sherd_scope_begin(world);
    sherd_tensor *wide = sherd_scale(sherd_sum(sherd_cast(a, SHERD_F32)), factor);
    sherd_tensor *y = sherd_cast(wide, a->dtype);
    if (!sherd_tensor_failed(y))
        sherd_scope_pass(y);
    sherd_scope_end(world);
    return y;
}
