/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of residual.cu: which rows it is for, how many threads have one, and how many blocks. */
#include "box.h"
#include "residual.h"

#include "base/dtype.h"
#include "base/num.h"
#include "programs/residual_args.h"

enum { WARP = 32 };
/* Threads of all blocks, where each adds up rows: enough for any GPU. */
static const int64_t all_threads = 1 << 17;
/* Blocks of forward, at most; beyond that each has several rows. */
static const int64_t most_blocks = 1 << 14;
/* Pieces of a row, at least: a warp for a shorter one would idle. */
static const int64_t least_pieces = 16;

/* How a row is cut. */
typedef struct cut {
    bool many, same;
    int threads, lanes; /* elements of a piece */
} cut;

/* False: rows are too short or too long, or their sizes do not allow pieces. */
static bool cut_of(cut *c, sherd_dtype dtype, sherd_dtype beside, int64_t cols)
{
    int64_t lanes = SHERD__WIDE / (int64_t)sherd_dtype_bytes(dtype);
    int64_t pieces = cols / lanes, most = RESIDUAL_PIECES / (sherd_dtype_bytes(dtype) == 2 ? 2 : 1);

    c->many = pieces > RESIDUAL_MOST;
    c->same = sherd_dtype_bytes(dtype) == 2;
    c->lanes = (int)lanes;
    c->threads = c->many ? RESIDUAL_MANY : (int)(sherd__ceil_div(pieces, WARP) * WARP);
    return cols % lanes == 0 && pieces >= least_pieces && pieces <= RESIDUAL_MANY * most &&
           (beside == dtype || (dtype == SHERD_F32 && sherd_dtype_bytes(beside) == 2));
}

static const char *kind_of(const cut *c)
{
    return c->same ? c->many ? "many_same" : "one_same" : c->many ? "many_real" : "one_real";
}

/* Whether pieces of elements of this dtype lie well at all of these places; NULL lies well. */
static bool lie_well(const cut *c, sherd_dtype dtype, uintptr_t together)
{
    return together % ((uintptr_t)c->lanes * sherd_dtype_bytes(dtype)) == 0;
}

bool sherd__device_add_norm(sherd__device *device, const sherd__norm_there *p)
{
    cut c;
    add_norm_args args = {p->rows, p->cols,  p->sum,    p->norm, p->mean, p->rstd,
                          p->x,    p->delta, p->weight, p->bias, p->eps};

    if (!cut_of(&c, p->dtype, p->beside, p->cols) ||
        !lie_well(&c, p->dtype,
                  (uintptr_t)p->x | (uintptr_t)p->sum | (uintptr_t)p->weight |
                      (uintptr_t)p->bias) ||
        !lie_well(&c, p->beside, (uintptr_t)p->delta | (uintptr_t)p->norm))
        return false;
    const sherd__kernel kernel = {SHERD__PROGRAM_RESIDUAL, "add_norm", kind_of(&c), p->beside,
                                  SHERD_DTYPE_NONE};
    const sherd__launch_grid grid = {sherd__min(p->rows, most_blocks), c.threads, 0};
    sherd__device_launch(device, &kernel, grid, &args, sizeof args);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

static void add_up(sherd__device *device, const sherd__norm_back_there *p, int64_t parts,
                   const void *sums)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_RESIDUAL, "norm_back_end", NULL, p->dtype,
                                  SHERD_DTYPE_NONE};
    const sherd__launch_grid grid = {2 * sherd__ceil_div(p->cols, WARP), RESIDUAL_ADDERS, 0};
    norm_back_end_args args = {p->cols, parts, p->of.dweight, p->of.dbias, sums, p->of.add};

    sherd__device_launch(device, &kernel, grid, &args, sizeof args);
}

/* Blocks are a function of the shape alone, as is the order of additions. */
static void differentiate(sherd__device *device, const sherd__norm_back_there *p, const cut *c)
{
    const sherd__added_grad *of = &p->of;
    int64_t blocks = sherd__min(p->rows, all_threads / c->threads), bytes = 0;
    sherd__device_block *sums = NULL;

    if (of->dweight || of->dbias)
        bytes =
            2 * blocks * p->cols * (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(p->dtype));
    if (bytes && !(sums = sherd__device_take(device, bytes))) {
        sherd__device_lack(device, "out of GPU memory for the gradients of a norm's weights");
        return;
    }
    const sherd__kernel kernel = {SHERD__PROGRAM_RESIDUAL, "norm_back", kind_of(c), p->dy,
                                  p->ddelta};
    const sherd__launch_grid grid = {blocks, c->threads, 0};
    norm_back_args args = {.rows = p->rows,
                           .cols = p->cols,
                           .dx = of->dx,
                           .ddelta = of->ddelta,
                           .sums = sums ? sums->data : NULL,
                           .dy = of->dy,
                           .x = of->sum,
                           .dsum = of->dsum,
                           .weight = of->weight,
                           .mean = of->mean,
                           .rstd = of->rstd};
    sherd__device_launch(device, &kernel, grid, &args, sizeof args);
    if (of->dweight || of->dbias)
        add_up(device, p, blocks, args.sums);
    sherd__device_give(device, sums);
}

bool sherd__device_norm_back(sherd__device *device, const sherd__norm_back_there *p)
{
    const sherd__added_grad *of = &p->of;
    cut c;

    if (!cut_of(&c, p->dtype, p->dy, p->cols) || !cut_of(&c, p->dtype, p->ddelta, p->cols) ||
        (p->dy != p->ddelta && p->dy != p->dtype && p->ddelta != p->dtype) ||
        !lie_well(&c, p->dtype,
                  (uintptr_t)of->sum | (uintptr_t)of->dsum | (uintptr_t)of->weight |
                      (uintptr_t)of->dx) ||
        !lie_well(&c, p->dy, (uintptr_t)of->dy) || !lie_well(&c, p->ddelta, (uintptr_t)of->ddelta))
        return false;
    differentiate(device, p, &c);
    return true;
}
