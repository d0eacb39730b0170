/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of the weights of norms, added up in groups of rows: see norm_sums.h. */
#include "norm_sums.h"

#include "base/num.h"
#include "kernels/sums.h"

bool sherd__norm_sums_begin(sherd__norm_sums *s, sherd_call *call, const sherd__normed_rows *p,
                            int first, int results)
{
    int64_t n = sherd__max(2 * p->inner, 1);

    *s = (sherd__norm_sums){.inner = p->inner, .most = sherd__max(p->rows, 1)};
    for (int i = 0; i < results; i++)
        s->to[i] = call->to[first + i];
    if (call->out[first]->dtype != SHERD_F32 || p->rows <= SHERD__ROWS_OF_SUM)
        return true;
    s->most = SHERD__ROWS_OF_SUM;
    s->part = sherd_call_scratch(call, n * (int64_t)sizeof *s->part);
    s->total = sherd__norm_room(call, n);
    return s->part && s->total;
}

void *sherd__norm_sums_at(const sherd__norm_sums *s, int i)
{
    return s->total && s->to[i] ? s->part + i * s->inner : s->to[i];
}

static void add_part(sherd__norm_sums *s)
{
    for (int i = 0; i < 2; i++)
        for (int64_t c = i * s->inner; s->to[i] && c < (i + 1) * s->inner; c++)
            s->total[c] += (double)s->part[c];
    s->rows = 0;
}

void sherd__norm_sums_count(sherd__norm_sums *s, int64_t rows)
{
    s->rows += rows;
    if (s->total && s->rows == s->most)
        add_part(s);
}

void sherd__norm_sums_end(sherd__norm_sums *s)
{
    if (s->total && s->rows)
        add_part(s);
    for (int i = 0; s->total && i < 2; i++)
        for (int64_t c = 0; s->to[i] && c < s->inner; c++)
            ((float *)s->to[i])[c] = (float)s->total[i * s->inner + c];
}

void sherd__half_norm_grad(const sherd__kernels *k, int64_t rows, int64_t cols,
                           const sherd__added_grad *g, bool centred)
{
    if (centred)
        k->layer_norm_grad(rows, cols, g->dx, g->dweight, g->dbias, g->dy, g->sum, g->weight,
                           g->mean, g->rstd, g->add);
    else
        k->rms_norm_grad(rows, cols, g->dx, g->dweight, g->dy, g->sum, g->weight, g->rstd, g->add);
}

/* Numbers of elements [first, ..) of `base`, of so many bytes each. */
static const void *from(const void *base, int64_t first, size_t element)
{
    return base ? (const char *)base + (size_t)first * element : NULL;
}

/* Of rows that are whole, by the CPU. */
static bool grad_here(sherd_call *call, const sherd__normed_rows *p, const sherd__added_grad *g,
                      int results)
{
    const sherd__kernels *k = sherd__kernels_in(call);
    size_t element = sherd_dtype_bytes(call->out[0]->dtype);
    sherd__norm_sums s;

    if (!sherd__norm_sums_begin(&s, call, p, 1, results))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    if (sherd__is_half(call->out[0]->dtype)) {
        sherd__half_norm_grad(k, p->rows, p->inner, g, results > 1);
        return true;
    }
    for (int64_t r = 0; r == 0 || r < p->rows; r += s.most) {
        int64_t rows = sherd__min(s.most, p->rows - r), first = r * p->inner;
        sherd__added_grad some = *g;
        some.dy = from(g->dy, first, element);
        some.sum = from(g->sum, first, element);
        some.dx = g->dx ? (char *)g->dx + (size_t)first * element : NULL;
        some.mean = from(g->mean, r, element);
        some.rstd = from(g->rstd, r, element);
        some.dweight = sherd__norm_sums_at(&s, 0);
        some.dbias = sherd__norm_sums_at(&s, 1);
        k->add_norm_grad(rows, p->inner, &some);
        sherd__norm_sums_count(&s, rows);
    }
    sherd__norm_sums_end(&s);
    return true;
}

bool sherd__norm_grad(sherd_call *call, const sherd__row_norm *of, int x,
                      const sherd__added_grad *g, int results)
{
    const sherd__normed_rows p = sherd__rows_of(call, call->in[x], call->in[of->scale]);
    sherd__device *device = sherd__device_in(call);

    if (p.apart)
        return sherd__row_norm_apart_grad(call, of);
    if (!device)
        return grad_here(call, &p, g, results);
    if (!sherd__is_dry(call->world))
        sherd__device_norm_grad(device, call->out[0]->dtype, p.rows, p.inner, g->dx, g->dweight,
                                g->dbias, g->dy, g->sum, g->weight, g->mean, g->rstd);
    return true;
}
