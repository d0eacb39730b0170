/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether operands fit a rule with the layouts that they have, and the layouts of the results then.
 * Pure; allocates nothing but a result's layout, if there is none like it.
 */
#include "solve.h"

#include <string.h>

unsigned sherd__dim_bits(const sherd__dim *dim)
{
    unsigned bits = 0;

    for (int i = 0; i < dim->axes; i++)
        bits |= 1u << dim->axis[i];
    return bits;
}

static sherd__letter *find_letter(sherd__fit *fit, char name)
{
    for (int i = 0; i < fit->letters; i++)
        if (fit->letter[i].name == name)
            return &fit->letter[i];
    return NULL;
}

bool sherd__is_term(const sherd_op *op, int i)
{
    return sherd__slot(op, i)->flags & SHERD_OP_TERM;
}

static bool is_among(const char *letters, char name)
{
    return letters && strchr(letters, name);
}

/* One dim of one operand: its letter must be sharded alike everywhere, on axes of its own. */
static bool add_dim(sherd__fit *fit, const sherd_op *op, char name, const sherd__dim *dim,
                    int64_t n, unsigned *used)
{
    bool alone = name == '1' || name == '*';

    if (dim->axes && (alone || is_among(op->whole, name)))
        return false;
    if (alone)
        return true;

    sherd__letter *letter = find_letter(fit, name);
    if (letter)
        return sherd__dim_equal(fit->mesh, &letter->dim, dim, n);
    if (*used & sherd__dim_bits(dim))
        return false;
    *used |= sherd__dim_bits(dim);
    fit->letter[fit->letters++] = (sherd__letter){name, n, *dim};
    return true;
}

static bool add_dims(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    unsigned used = 0;

    for (int i = 0; i < run->call.operands; i++)
        for (int d = 0; operands[i] && d < operands[i]->spec.ndim; d++)
            if (!add_dim(fit, run->call.op, run->rule.operand[i][d], &operands[i]->spec.dim[d],
                         operands[i]->spec.shape[d], &used))
                return false;
    return true;
}

/* Axes that shard letters which result j lacks, and over which forward does not reduce itself. */
static unsigned summed_axes(const sherd__fit *fit, const sherd__run *run, int j)
{
    const sherd_op *op = run->call.op;
    const char *joined = op->addends >> j & 1 ? NULL : op->joined;
    unsigned bits = 0;

    for (int i = 0; i < fit->letters; i++)
        if (!strchr(run->rule.result[j], fit->letter[i].name) &&
            !is_among(joined, fit->letter[i].name))
            bits |= sherd__dim_bits(&fit->letter[i].dim);
    return bits;
}

/* Whether all operands are terms: a sum without any product. */
static bool only_terms(const sherd__run *run, const sherd_layout *const *operands)
{
    for (int i = 0; i < run->call.operands; i++)
        if (operands[i] && !sherd__is_term(run->call.op, i))
            return false;
    return true;
}

/* For operators that only move elements: all operands must have the same pending reductions. */
static bool alike(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    const sherd_layout *first = NULL;

    for (int i = 0; i < run->call.operands; i++) {
        if (!operands[i])
            continue;
        if (first &&
            memcmp(first->spec.pending, operands[i]->spec.pending, sizeof first->spec.pending) != 0)
            return false;
        first = operands[i];
    }
    for (int a = 0; first && a < fit->mesh->axes; a++)
        fit->op[a] = (int8_t)first->spec.pending[a];
    fit->pending = first ? first->pending_axes : 0;
    return true;
}

/*
 * Whether pending sums fit, axis by axis. The product of the factors is pending if exactly one
 * factor is, or if a letter is summed over the axis. If the product is pending, each term may be
 * pending or replicated. If it is not, no term may be pending, because the product would be added
 * several times. If there is no product, pending terms make the result pending.
 */
static bool pending_fits(sherd__fit *fit, const sherd__run *run,
                         const sherd_layout *const *operands)
{
    unsigned summed = summed_axes(fit, run, 0), kept = 0, used = 0, product = summed, terms = 0;
    sherd_linearity linearity = run->call.linearity;

    if (linearity == SHERD_UNCHANGED)
        return alike(fit, run, operands);
    for (int i = 0; i < fit->letters; i++)
        used |= sherd__dim_bits(&fit->letter[i].dim);
    for (int i = 0; i < run->call.operands; i++) {
        unsigned bits = operands[i] ? operands[i]->pending_axes : 0;
        for (int a = 0; a < fit->mesh->axes; a++)
            if ((bits >> a & 1) && operands[i]->spec.pending[a] != SHERD_SUM)
                return false;
        if (bits && sherd__slot(run->call.op, i)->flags & (SHERD_OP_INDEX | SHERD_OP_BOOL))
            return false;
        if (sherd__is_term(run->call.op, i)) {
            terms |= bits;
        } else if (bits & product) {
            return false;
        } else {
            product |= bits;
        }
        kept |= bits;
    }
    fit->pending = kept;
    memset(fit->op, SHERD_SUM, sizeof fit->op);
    if (kept && linearity == SHERD_NONLINEAR)
        return false;
    if (kept & used & ~summed)
        return false;
    return !(terms & ~product) || only_terms(run, operands);
}

bool sherd__fits(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    fit->mesh = NULL;
    fit->letters = 0;
    for (int i = 0; i < run->call.operands && !fit->mesh; i++)
        fit->mesh = operands[i] ? operands[i]->spec.mesh : NULL;
    return add_dims(fit, run, operands) && pending_fits(fit, run, operands);
}

sherd_status sherd__fit_result(const sherd_layout **out, const sherd__fit *fit,
                               const sherd__run *run, int j)
{
    const char *label = run->rule.result[j];
    sherd__layout_spec spec = {.mesh = fit->mesh, .ndim = (int)strlen(label)};
    unsigned summed = summed_axes(fit, run, j);

    for (int a = 0; a < fit->mesh->axes; a++)
        spec.pending[a] = fit->pending >> a & 1 ? fit->op[a]
                          : summed >> a & 1     ? (int)run->call.reduces
                                                : -1;
    for (int d = 0; d < spec.ndim; d++) {
        spec.shape[d] = run->call.shape[j][d];
        for (int i = 0; i < fit->letters; i++)
            if (fit->letter[i].name == label[d])
                spec.dim[d] = fit->letter[i].dim;
    }
    return sherd__layout_intern(out, &spec);
}
