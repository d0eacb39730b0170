/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of matrices. All of them, forward and backward, are one shape of work: for each index of the
 * leading batch dims one GEMM, whose rows, columns and inner length are products of neighbouring dims. GEMM reads
 * transposed operands as they lie, so nothing is copied. A sharded inner letter gives a pending sum.
 */
#include <string.h>

#include "base/num.h"
#include "operator.h"

typedef struct product {
    const char *name;
    const char *text; /* its rule */
    bool ta, tb;      /* a is stored [inner, rows]; b is stored [columns, inner] */
    bool batched;     /* the dims behind "..." are batches; else they are rows (or inner) */
} product;

/*
 * The last dim of an operand is columns of its storage; the dims between batch and last make up the rows of its
 * storage.
 */
typedef struct matrix {
    int64_t rows, cols;
} matrix;

static matrix matrix_of(const sherd_tensor *t, int batch)
{
    matrix m = {1, t->local[t->ndim - 1]};

    for (int d = batch; d < t->ndim - 1; d++)
        m.rows *= t->local[d];
    return m;
}

static void add_bias(sherd__prepared *p, int64_t rows, int64_t cols)
{
    int64_t size[] = {rows, cols}, whole[] = {cols, 1}, stretched[] = {0, 1};

    if (rows && cols)
        p->kernels->binary(SHERD__ADD, 2, size, p->to[0], p->to[0], whole, p->from[2], stretched);
}

static void multiply(sherd__prepared *p, const product *how, int batch)
{
    matrix a = matrix_of(p->in[0], batch), b = matrix_of(p->in[1], batch);
    int64_t m = how->ta ? a.cols : a.rows, k = how->ta ? a.rows : a.cols;
    int64_t n = how->tb ? b.rows : b.cols;
    int64_t times = sherd__local_count(p->in[0], 0, batch);
    size_t element = sherd_dtype_bytes(p->out[0]->dtype);

    if (p->out[0]->count == 0)
        return;
    for (int64_t i = 0; i < times; i++) {
        /* With no inner length the operands have no data to point into. */
        const char *x = k ? (const char *)p->from[0] + sherd__bytes(i * m * k) * element : NULL;
        const char *w = k ? (const char *)p->from[1] + sherd__bytes(i * k * n) * element : NULL;
        char *y = (char *)p->to[0] + sherd__bytes(i * m * n) * element;
        p->kernels->gemm(how->ta, how->tb, m, n, k, 1, x, sherd__max(a.cols, 1), w,
                         sherd__max(b.cols, 1), 0, y, n);
    }
    if (p->in[2] && !(p->once >> 2 & 1))
        add_bias(p, m, n);
}

/* Size of the dim that a letter labels, in whatever operand has it. */
static int64_t size_of_letter(const sherd__rule *rule, sherd_tensor *const *in, char letter)
{
    for (int i = 0; i < rule->operands; i++) {
        const char *at = in[i] ? strchr(rule->operand[i], letter) : NULL;
        if (at)
            return in[i]->shape[at - rule->operand[i]];
    }
    return 1;
}

/* False: return p->out[0]. The caller has checked the shapes; operands may have failed. */
static bool run(sherd__prepared *p, const product *how, sherd_tensor *const *in, int count)
{
    sherd__rule rule = {.name = how->name, .linearity = SHERD__LINEAR, .term = 4};
    int ndims[SHERD__OPERANDS] = {-1, -1, -1, -1};
    int64_t shape[1][SHERD_MAX_DIMS];
    sherd_world *world = in[0]->world;

    *p = (sherd__prepared){.world = world, .name = how->name, .out = {sherd__failed(world)}};
    for (int i = 0; i < count; i++) {
        if (in[i] && sherd_tensor_failed(in[i]))
            return false;
        ndims[i] = in[i] ? in[i]->ndim : -1;
    }
    if (!sherd__rule_compile(&rule, how->text, ndims)) {
        p->out[0] = sherd__misfit(world, how->name, in, count, "the numbers of dims do not fit");
        return false;
    }
    for (int d = 0; rule.result[0][d]; d++)
        shape[0][d] = size_of_letter(&rule, in, rule.result[0][d]);
    if (!sherd__prepare(p, &rule, in, in[0]->dtype, (const int64_t(*)[SHERD_MAX_DIMS])shape))
        return false;
    multiply(p, how, how->batched ? in[0]->ndim - 2 : 0);
    return true;
}

/* A product that only a backward needs: not recorded. */
static sherd_tensor *gradient(const product *how, sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *in[SHERD__OPERANDS] = {a, b};
    sherd__prepared p;

    return run(&p, how, in, 2) ? sherd__finish(&p, 1) : p.out[0];
}

/* ---- linear ---------------------------------------------------------------------------------- */

static const product linear = {"sherd_linear", "...k,nk,n->...n", false, true, false};
static const product linear_dx = {"sherd_linear backward", "...n,nk->...k", false, false, false};
static const product linear_dw = {"sherd_linear backward", "...n,...k->nk", true, false, false};

enum { X, WEIGHT, BIAS };

static void linear_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0];

    if (sherd__wants(node, X))
        grad_in[X] = gradient(&linear_dx, dy, sherd__saved(node, WEIGHT));
    if (sherd__wants(node, WEIGHT))
        grad_in[WEIGHT] = gradient(&linear_dw, dy, sherd__saved(node, X));
    if (sherd__wants(node, BIAS)) {
        const int64_t *shape;
        int ndim = sherd__input_shape(node, BIAS, &shape);
        grad_in[BIAS] = sherd__sum_to(dy, ndim, shape);
    }
}

static const sherd__backward linear_table = {"sherd_linear", false, linear_back};

static const char *linear_misfit(const sherd_tensor *x, const sherd_tensor *weight,
                                 const sherd_tensor *bias)
{
    if (x->ndim < 1 || weight->ndim != 2)
        return "x must have a dim and weight two";
    if (x->shape[x->ndim - 1] != weight->shape[1])
        return "x's last dim must equal weight's last";
    if (bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0]))
        return "bias must have one dim, equal to weight's first";
    return NULL;
}

sherd_tensor *sherd_linear(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias)
{
    static const char *const names[] = {"x", "weight", "bias"};
    sherd_tensor *in[SHERD__OPERANDS] = {x, weight, bias}, *failed;
    sherd__operands o = {linear.name, names, in, 3, 1u << BIAS};
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    const char *misfit = linear_misfit(x, weight, bias);
    if (misfit)
        return sherd__refuse(&o, SHERD_EINVAL, "%s", misfit);
    if (!run(&p, &linear, in, 3))
        return p.out[0];

    sherd__node *node = sherd__record_node(p.world, &linear_table, p.arg, 3, p.out, 1, NULL, 0);
    if (node && sherd__wants(node, WEIGHT))
        sherd__save(node, X, p.arg[X]);
    if (node && sherd__wants(node, X))
        sherd__save(node, WEIGHT, p.arg[WEIGHT]);
    return sherd__finish(&p, 1);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

/* Indexed by whether b has leading dims. */
static const product matmul[] = {
    {"sherd_matmul", "...k,kn->...n", false, false, false},
    {"sherd_matmul", "...mk,...kn->...mn", false, false, true},
};
static const product matmul_da[] = {
    {"sherd_matmul backward", "...n,kn->...k", false, true, false},
    {"sherd_matmul backward", "...mn,...kn->...mk", false, true, true},
};
static const product matmul_db[] = {
    {"sherd_matmul backward", "...k,...n->kn", true, false, false},
    {"sherd_matmul backward", "...mk,...mn->...kn", true, false, true},
};

static void matmul_back(sherd__node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;
    int batched = sherd__input_shape(node, 1, &shape) > 2;

    if (sherd__wants(node, 0))
        grad_in[0] = gradient(&matmul_da[batched], grad_out[0], sherd__saved(node, 1));
    if (sherd__wants(node, 1))
        grad_in[1] = gradient(&matmul_db[batched], sherd__saved(node, 0), grad_out[0]);
}

static const sherd__backward matmul_table = {"sherd_matmul", false, matmul_back};

static const char *matmul_misfit(const sherd_tensor *a, const sherd_tensor *b)
{
    if (a->ndim < 2 || b->ndim < 2)
        return "both must have two dims at least";
    if (a->shape[a->ndim - 1] != b->shape[b->ndim - 2])
        return "a's last dim must equal b's last but one";
    if (b->ndim == 2)
        return NULL;
    if (a->ndim != b->ndim ||
        memcmp(a->shape, b->shape, (size_t)(a->ndim - 2) * sizeof *a->shape) != 0)
        return "leading dims must be equal, or b must have none";
    return NULL;
}

sherd_tensor *sherd_matmul(sherd_tensor *a, sherd_tensor *b)
{
    static const char *const names[] = {"a", "b"};
    sherd_tensor *in[SHERD__OPERANDS] = {a, b}, *failed;
    sherd__operands o = {"sherd_matmul", names, in, 2, 0};
    sherd__prepared p;

    if (!sherd__enter(&o, &failed))
        return failed;
    const char *misfit = matmul_misfit(a, b);
    if (misfit)
        return sherd__refuse(&o, SHERD_EINVAL, "%s", misfit);
    if (!run(&p, &matmul[b->ndim > 2], in, 2))
        return p.out[0];

    sherd__node *node = sherd__record_node(p.world, &matmul_table, p.arg, 2, p.out, 1, NULL, 0);
    if (node && sherd__wants(node, 1))
        sherd__save(node, 0, p.arg[0]);
    if (node && sherd__wants(node, 0))
        sherd__save(node, 1, p.arg[1]);
    return sherd__finish(&p, 1);
}
