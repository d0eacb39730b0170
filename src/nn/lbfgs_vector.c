/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All parameters of a module as one vector, for L-BFGS: where they lie in it, inner products,
 * reading and writing them. An inner product is one exchange of a number, added up in the order of
 * the ranks: all ranks get the same bits.
 */
#include "nn/lbfgs.h"
#include "vector/choose.h"

#include <math.h>
#include <string.h>

const char sherd__lbfgs_create_name[] = "sherd_lbfgs_create";
const char sherd__lbfgs_step_name[] = "sherd_lbfgs_step";

static sherd_status check(const sherd_lbfgs *l, sherd_tensor *p)
{
    sherd__diag *diag = sherd__world_diag(l->world);

    if (p->dtype != SHERD_F32 && p->dtype != SHERD_F64)
        return sherd__fail(diag, SHERD_EINVAL, "%s: a parameter is %s: it takes f32 and f64",
                           sherd__lbfgs_create_name, sherd_tensor_text(p));
    if (l->all->mesh && !p->layout)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: a parameter is plain, %s, and others are distributed: distribute "
                           "all (sherd_parallelize)",
                           sherd__lbfgs_create_name, sherd_tensor_text(p));
    return SHERD_OK;
}

/* Put the parameters that this rank counts, or those that it does not, behind the last one. */
static void place(sherd_lbfgs *l, bool counted)
{
    for (int i = 0; i < l->all->count; i++) {
        const sherd_tensor *p = l->all->item[i].p;
        if ((!p->layout || sherd__counts_here(p)) != counted)
            continue;
        l->at[i] = l->n;
        l->n += p->count;
    }
}

sherd_status sherd__lbfgs_lay_out(sherd_lbfgs *l)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < l->all->count && !status; i++)
        status = check(l, l->all->item[i].p);
    place(l, true);
    l->counted = l->n;
    place(l, false);
    return status;
}

/* ---- vectors --------------------------------------------------------------------------------- */

double sherd__lbfgs_dot_here(const sherd_lbfgs *l, const double *a, const double *b)
{
    double sum[4] = {0};
    int64_t i = 0, n = l->counted;

    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++)
            sum[k] += a[i + k] * b[i + k];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

bool sherd__lbfgs_exchange(sherd_lbfgs *l, const double *numbers, int count)
{
    return sherd__numbers_share(l->world, l->all->mesh, sherd__lbfgs_step_name, numbers, count,
                                l->exchanged);
}

int64_t sherd__lbfgs_ranks(const sherd_lbfgs *l)
{
    return l->all->mesh ? sherd_mesh_ranks(l->all->mesh) : 1;
}

/* Inner products of all elements: out[i] = a[i] b[i]. False: the alarm is raised. */
bool sherd__lbfgs_dots(sherd_lbfgs *l, int count, const double *const *a, const double *const *b,
                       double *out)
{
    double mine[SHERD__NUMBERS] = {0};

    for (int i = 0; i < count; i++)
        mine[i] = sherd__lbfgs_dot_here(l, a[i], b[i]);
    if (!sherd__lbfgs_exchange(l, mine, count))
        return false;
    for (int i = 0; i < count; i++)
        out[i] = sherd__numbers_join(1, l->exchanged, sherd__lbfgs_ranks(l), count, i);
    return true;
}

bool sherd__lbfgs_largest(sherd_lbfgs *l, const double *a, double *out)
{
    double mine = 0;

    for (int64_t i = 0; i < l->n; i++)
        mine = fmax(mine, fabs(a[i]));
    if (!sherd__lbfgs_exchange(l, &mine, 1))
        return false;
    *out = sherd__numbers_join(INFINITY, l->exchanged, sherd__lbfgs_ranks(l), 1, 0);
    return true;
}

/* ---- parameters and their gradients ---------------------------------------------------------- */

static bool load(const sherd_lbfgs *l, sherd_tensor *t, double *to)
{
    const void *data = sherd__data(sherd__contiguous(t));

    if (data)
        sherd__convert(sherd__world_kernels(l->world), SHERD_F64, t->dtype, t->count, to, data);
    return data != NULL;
}

bool sherd__lbfgs_load_parameters(const sherd_lbfgs *l, double *to)
{
    for (int i = 0; i < l->all->count; i++)
        if (!load(l, l->all->item[i].p, to + l->at[i]))
            return false;
    return true;
}

/* Those without a gradient stay as they are. */
bool sherd__lbfgs_load_gradients(const sherd_lbfgs *l, double *to)
{
    memset(to, 0, (size_t)l->n * sizeof *to);
    for (int i = 0; i < l->all->count; i++) {
        sherd_tensor *g = sherd__raw_grad(l->all->item[i].p);
        if (g && (sherd_tensor_failed(g) || !load(l, g, to + l->at[i])))
            return false;
    }
    return true;
}

/* The parameters become x + t way. False: ended by the alarm. */
bool sherd__lbfgs_go_to(sherd_lbfgs *l, double t)
{
    bool before = sherd__write_families(l->world, true), good = true;
    uint64_t what = sherd__attribute_double(1, t), identity;

    for (int64_t i = 0; i < l->n; i++)
        l->room[i] = l->x[i] + t * l->way[i];
    for (int i = 0; i < l->all->count && good; i++) {
        sherd_tensor *p = l->all->item[i].p;
        void *to = sherd__mutable(p);
        good = to != NULL;
        if (good)
            sherd__convert(sherd__world_kernels(l->world), p->dtype, SHERD_F64, p->count, to,
                           l->room + l->at[i]);
    }
    sherd__write_families(l->world, before);
    if (good && l->all->mesh)
        sherd__deed_add(l->all->mesh, sherd__lbfgs_step_name,
                        sherd__hash_word(what, (uint64_t)l->pairs), &identity);
    return good;
}
