/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms of rows: the elements of the last dims of x. If these dims are sharded, x is not moved:
 * each rank computes the moments of its part of the rows in two passes (first the mean, then
 * squared differences); ranks that share rows exchange these numbers in one call, and combine them
 * by Chan's formula in shard order, so that all have the same bits. The same for the sums of
 * backward. Costs two passes over x and one to write, and 16 bytes for each row and shard.
 */
#include "norm_rows.h"

#include <math.h>
#include <string.h>

#include "vector/bodies.h"

/* Kernels for rows of the dtype that an operand has: x, which in a gradient may not be that of
 * dy. */
static const sherd__along_kernels *kernels_of(const sherd_call *call, int x)
{
    return sherd__along_by(sherd__kernels_in(call), call->in[x]->dtype);
}

/* ---- what ranks exchange --------------------------------------------------------------------- */

/* How many elements part i has of each row. */
static double part_length(const sherd_layout *x, int dims, int64_t i)
{
    double n = 1;

    for (int d = x->spec.ndim - 1; d >= x->spec.ndim - dims; d--) {
        const sherd__dim *dim = &x->spec.dim[d];
        int64_t parts = sherd__dim_parts(x->spec.mesh, dim), at = i % parts;
        n *= (double)(sherd__dim_cut(x->spec.mesh, dim, x->spec.shape[d], at + 1) -
                      sherd__dim_cut(x->spec.mesh, dim, x->spec.shape[d], at));
        i /= parts;
    }
    return n;
}

/* number[width,rows] of all parts, [*parts,width,rows]. NULL: failed. */
static const double *exchange(sherd_call *call, const sherd__normed_rows *p, const double *number,
                              int64_t width, int64_t *parts)
{
    unsigned all = (1u << call->in[0]->ndim) - 1;
    unsigned reduced = all & ~((1u << (call->in[0]->ndim - p->dims)) - 1);
    sherd_tensor *mine = sherd__new_parts(call, reduced, SHERD_F64, width);

    if (!mine)
        return NULL;
    double *to = sherd__fresh(mine);
    if (mine->count && !sherd__is_dry(call->world))
        memcpy(to, number, (size_t)(width * p->rows) * sizeof *to);
    return sherd__all_parts(call, reduced, mine, width, parts);
}

/* Replace the sums of this part by those over all parts. False: failed. */
static bool join_sums(sherd_call *call, const sherd__normed_rows *p, double *sum, int64_t width)
{
    int64_t parts, n = width * p->rows;
    const double *all = exchange(call, p, sum, width, &parts);

    if (!all || sherd__is_dry(call->world))
        return all != NULL;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t i = 0; i < parts; i++)
        for (int64_t k = 0; k < n; k++)
            sum[k] += all[i * n + k];
    return true;
}

/* Replace moments[mean, squares; rows] of this part by those of the rows. False: failed. */
static bool join_moments(sherd_call *call, const sherd__normed_rows *p, double *moments)
{
    enum { NUMBERS = 3 };
    int64_t parts, rows = p->rows;
    const double *part = exchange(call, p, moments, 2, &parts);
    double *joined = sherd__norm_room(call, NUMBERS * rows);

    if (!part || !joined || sherd__is_dry(call->world))
        return part && joined;
    for (int64_t i = 0; i < parts; i++, part += 2 * rows) {
        double n = part_length(call->in[0]->layout, p->dims, i);
        for (int64_t r = 0; r < rows; r++)
            sherd__join_moments(joined + NUMBERS * r, (double[]){n, part[r], part[rows + r]});
    }
    for (int64_t r = 0; r < rows; r++) {
        moments[r] = joined[NUMBERS * r + 1];
        moments[rows + r] = joined[NUMBERS * r + 2];
    }
    return true;
}

/* ---- forward --------------------------------------------------------------------------------- */

/*
 * Mean (or zeros) and sum of squared differences of whole rows, in moments[2,rows]. False: failed.
 */
static bool find_moments(sherd_call *call, const sherd__normed_rows *p, bool centred,
                         double *moments)
{
    const sherd__norm_kernels *kernels =
        sherd__norms_by(sherd__kernels_in(call), call->in[0]->dtype);
    const sherd__norming n = {.batch = p->rows, .channels = 1, .inner = p->inner};
    double *squares = moments + p->rows;

    bool dry = sherd__is_dry(call->world);
    if (centred && !dry)
        kernels->add_up(&n, moments, call->from[0], NULL);
    for (int64_t r = 0; r < p->rows && !dry; r++)
        moments[r] /= fmax((double)p->inner, 1);
    if (!dry)
        kernels->add_up(&n, squares, call->from[0], moments);
    return centred ? join_moments(call, p, moments) : join_sums(call, p, squares, 1);
}

bool sherd__row_norm_apart(sherd_call *call, const sherd__row_norm *of)
{
    if (sherd__device_in(call))
        return sherd__row_norm_apart_there(call, of);

    const sherd__row_norm_attributes *a = call->attributes;
    const sherd__normed_rows p = sherd__rows_of(call, call->in[0], call->out[of->scale]);
    double *moments = sherd__norm_room(call, 2 * p.rows);
    double *weight = sherd__norm_read(call, of->weight, p.inner, 1);
    double *bias = of->bias < 0 ? sherd__norm_room(call, p.inner)
                                : sherd__norm_read(call, of->bias, p.inner, 0);

    if (!moments || !weight || !bias || !find_moments(call, &p, of->mean >= 0, moments))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    double *mean = moments, *scale = moments + p.rows;
    for (int64_t r = 0; r < p.rows; r++)
        scale[r] = 1 / sqrt(scale[r] / fmax(p.length, 1) + a->eps);
    kernels_of(call, 0)->spread_along(p.rows, p.inner, call->to[0], call->from[0], mean, scale,
                                      weight, bias);
    if (of->mean >= 0)
        sherd__norm_write(call, of->mean, p.rows, mean);
    sherd__norm_write(call, of->scale, p.rows, scale);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { DY, X };
enum { DX, DWEIGHT, DBIAS };

/*
 * dx = r w dy - r (sum of w dy) / n - (x - mean) r^3 (sum of w dy (x - mean)) / n, sums over the n
 * elements of a row; shift and slope in sums[2,rows]. Rows that are not centred have the second sum
 * only. False: failed.
 */
static bool find_slopes(sherd_call *call, const sherd__normed_rows *p, const sherd__row_norm *of,
                        double *sums, const double *mean, const double *scale, const double *weight)
{
    bool centred = of->mean >= 0;
    bool dry = sherd__is_dry(call->world);
    double *by_x = sums + p->rows;

    if (!dry)
        kernels_of(call, X)->add_along(p->rows, p->inner, sums, by_x, call->from[DY], call->from[X],
                                       mean, weight);
    if (!join_sums(call, p, centred ? sums : by_x, centred ? 2 : 1))
        return false;
    for (int64_t r = 0; r < p->rows && !dry; r++) {
        sums[r] = centred ? sums[r] * scale[r] / p->length : 0;
        by_x[r] *= scale[r] * scale[r] * scale[r] / p->length;
    }
    return true;
}

bool sherd__row_norm_apart_grad(sherd_call *call, const sherd__row_norm *of)
{
    if (sherd__device_in(call))
        return sherd__row_norm_apart_grad_there(call, of);

    const sherd__normed_rows p = sherd__rows_of(call, call->in[X], call->in[of->scale]);
    double *mean =
        of->mean < 0 ? sherd__norm_room(call, p.rows) : sherd__norm_read(call, of->mean, p.rows, 0);
    double *scale = sherd__norm_read(call, of->scale, p.rows, 0),
           *weight = sherd__norm_read(call, of->weight, p.inner, 1);
    double *sums = sherd__norm_room(call, 2 * p.rows), *dweight = sherd__norm_room(call, p.inner),
           *dbias = sherd__norm_room(call, p.inner);

    if (!mean || !scale || !weight || !sums || !dweight || !dbias ||
        !find_slopes(call, &p, of, sums, mean, scale, weight))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    kernels_of(call, X)->gradient_along(p.rows, p.inner, call->to[DX], dweight, dbias,
                                        call->from[DY], call->from[X], mean, scale, sums,
                                        sums + p.rows, weight);
    sherd__norm_write(call, DWEIGHT, p.inner, dweight);
    if (of->mean >= 0)
        sherd__norm_write(call, DBIAS, p.inner, dbias);
    return true;
}

/* ---- in a backward that is recorded ---------------------------------------------------------- */

sherd_tensor *sherd__row_norm_formula(const sherd_node *node, sherd_tensor *x, sherd_tensor *weight,
                                      bool centred)
{
    const sherd__row_norm_attributes *attributes = sherd_node_attributes(node);
    int dims[SHERD_MAX_DIMS], count = (int)attributes->more + 1;

    for (int i = 0; i < count; i++)
        dims[i] = -1 - i;
    sherd_tensor *y = sherd__normalised(x, dims, count, attributes->eps, centred);
    return weight ? sherd_mul(y, sherd_cast(weight, y->dtype)) : y;
}
