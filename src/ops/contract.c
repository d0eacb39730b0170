/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a sum of products. Two operands: dims that both and the result have are batches,
 * those that both have and the result lacks are inner dims, the others are rows and columns. So it
 * is one matrix product for each batch; operands are copied only if their dims are in no order that
 * GEMM can read. One operand: a copy with other strides, and a sum. Sharded inner dims give a
 * pending sum, as everywhere.
 */
#include "einsum.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/product.h"

typedef struct text_attributes {
    char text[SHERD__TEXT_BYTES];
} text_attributes;

static const char *describe(sherd_call *call)
{
    const text_attributes *attributes = call->attributes;

    snprintf(call->rule, sizeof call->rule, "%s", attributes->text);
    return NULL;
}

#define TEXT_FIELDS                                                  \
    {                                                                \
        SHERD_FIELDS(text_attributes, text, BYTE, SHERD__TEXT_BYTES) \
    }

/* ---- where the call computes ----------------------------------------------------------------- */

static void copy_box(const sherd_call *call, int ndim, const int64_t *size, void *dst,
                     const int64_t *dst_stride, const void *src, const int64_t *src_stride)
{
    size_t element = sherd_dtype_bytes(call->out[0]->dtype);
    sherd__device *device = sherd__device_in(call);

    if (device)
        sherd__device_copy_box(device, element, ndim, size, dst, dst_stride, src, src_stride);
    else if (!sherd__is_dry(call->world))
        sherd__copy_box(element, ndim, size, dst, dst_stride, src, src_stride);
}

/* For elements of the call's dtype; NULL: no memory. */
static void *scratch_for(sherd_call *call, int64_t count)
{
    int64_t bytes = count * (int64_t)sherd_dtype_bytes(call->out[0]->dtype);

    return sherd__device_in(call) ? sherd__device_scratch(call, bytes)
                                  : sherd_call_scratch(call, bytes);
}

/* ---- dims by their letters ------------------------------------------------------------------ */

/* Some letters, and how many elements of this rank's pieces they stand for. */
typedef struct group {
    char letter[SHERD_MAX_DIMS + 1];
    int64_t count;
} group;

static void add(group *g, char letter, int64_t size)
{
    size_t n = strlen(g->letter);

    g->letter[n] = letter;
    g->letter[n + 1] = '\0';
    g->count *= size;
}

static bool has(const char *label, char letter)
{
    return strchr(label, letter) != NULL;
}

/*
 * Sizes and strides of a piece for dims in the order of `letters`; 0 for one that it lacks, of the
 * size that is there.
 */
static void strides_for(const char *letters, const char *label, const sherd_tensor *t,
                        int64_t *stride)
{
    for (int i = 0; letters[i]; i++) {
        const char *at = strchr(label, letters[i]);
        stride[i] = at ? t->stride[at - label] : 0;
    }
}

static int64_t size_of(const char *label, const sherd_tensor *t, char letter)
{
    return t->local[strchr(label, letter) - label];
}

/* ---- two operands --------------------------------------------------------------------------- */

typedef struct product {
    group batch, rows, columns, inner;
    const char *label[3]; /* of a, b and the result */
} product;

static void sort_dims(product *p, const sherd_call *call)
{
    const char *a = sherd__label_in(call, 0), *b = sherd__label_in(call, 1);
    const char *y = sherd__result_label_in(call, 0);

    *p = (product){.batch = {"", 1}, .rows = {"", 1}, .columns = {"", 1}, .inner = {"", 1}};
    p->label[0] = a;
    p->label[1] = b;
    p->label[2] = y;
    for (const char *c = y; *c; c++) {
        int64_t size = call->out[0]->local[c - y];
        if (has(a, *c) && has(b, *c))
            add(&p->batch, *c, size);
        else if (has(a, *c))
            add(&p->rows, *c, size);
        else
            add(&p->columns, *c, size);
    }
    for (const char *c = a; *c; c++)
        if (*c >= 'A' && !has(y, *c))
            add(&p->inner, *c, size_of(a, call->in[0], *c));
}

/*
 * An operand as GEMM reads it: where it begins, and whether its matrix is stored the other way
 * round.
 */
typedef struct matrix {
    const char *data;
    bool turned;
} matrix;

/* The dims of an operand in the order of `letters`, and whether they lie in memory like that. */
typedef struct lying {
    int ndim;
    int64_t size[3 * SHERD_MAX_DIMS], stride[3 * SHERD_MAX_DIMS], row_major[3 * SHERD_MAX_DIMS];
    bool lies;
} lying;

static lying lying_of(const char *letters, const char *label, const sherd_tensor *t)
{
    lying o = {.ndim = (int)strlen(letters), .lies = true};

    for (int d = 0; d < o.ndim; d++)
        o.size[d] = size_of(label, t, letters[d]);
    strides_for(letters, label, t, o.stride);
    sherd__row_major(o.ndim, o.size, o.row_major);
    for (int d = 0; d < o.ndim; d++)
        o.lies = o.lies && (o.size[d] == 1 || o.stride[d] == o.row_major[d]);
    return o;
}

/*
 * Dims in the order batch, `first`, `second`, or batch, `second`, `first`; else a copy in the first
 * of these.
 */
static bool read_matrix(matrix *out, sherd_call *call, int i, const product *p, const group *first,
                        const group *second)
{
    char wanted[3 * SHERD_MAX_DIMS + 1];
    const sherd_tensor *t = call->in[i];

    *out = (matrix){call->from[i], false};
    snprintf(wanted, sizeof wanted, "%s%s%s", p->batch.letter, first->letter, second->letter);
    lying straight = lying_of(wanted, p->label[i], t);
    if (straight.lies || t->count == 0)
        return true;
    snprintf(wanted, sizeof wanted, "%s%s%s", p->batch.letter, second->letter, first->letter);
    out->turned = lying_of(wanted, p->label[i], t).lies;
    if (out->turned)
        return true;
    void *copy = scratch_for(call, t->count);
    if (copy)
        copy_box(call, straight.ndim, straight.size, copy, straight.row_major, call->from[i],
                 straight.stride);
    out->data = copy;
    return copy != NULL;
}

const void *sherd__packed(sherd_call *call, int i)
{
    const sherd_tensor *t = call->in[i];
    int64_t row_major[SHERD_MAX_DIMS];

    if (sherd__is_contiguous(t))
        return call->from[i];
    void *copy = scratch_for(call, t->count);
    sherd__row_major(t->ndim, t->local, row_major);
    if (copy)
        copy_box(call, t->ndim, t->local, copy, row_major, call->from[i], t->stride);
    return copy;
}

static sherd__product product_of(const sherd_call *call, const product *p)
{
    return (sherd__product){.dtype = call->in[0]->dtype,
                            .result = call->out[0]->dtype,
                            .m = p->rows.count,
                            .n = p->columns.count,
                            .k = p->inner.count};
}

static bool multiply(sherd_call *call, const product *p, const matrix *a, const matrix *b, void *y)
{
    sherd__product one = product_of(call, p);

    one.ta = a->turned;
    one.tb = b->turned;
    if (!sherd__device_in(call))
        return sherd__multiply(call, one, p->batch.count, y, a->data, b->data, NULL);
    sherd__device_multiply(sherd__device_in(call), &one, p->batch.count, y, a->data, b->data, NULL);
    return true;
}

/* The CPU makes products whose sizes are too large for cuBLAS. False: failed. */
static bool choose_place(sherd_call *call, const product *p)
{
    const sherd__product one = product_of(call, p);

    return !sherd__device_in(call) || sherd__device_multiplies(&one, p->batch.count) ||
           sherd__leave_device(call);
}

/* Whether nothing is summed, so that each element is one product: made on the CPU without copies
 * of operands. */
static bool is_outer(const sherd_call *call, const product *p)
{
    sherd_dtype dtype = call->out[0]->dtype;

    return !p->inner.letter[0] && call->in[0]->dtype == dtype && call->in[1]->dtype == dtype &&
           !sherd__device_in(call);
}

static void multiply_each(const sherd_call *call, const product *p)
{
    const sherd_tensor *out = call->out[0];
    char letters[SHERD_MAX_DIMS + 1];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    snprintf(letters, sizeof letters, "%s", p->label[2]);
    strides_for(letters, p->label[0], call->in[0], a);
    strides_for(letters, p->label[1], call->in[1], b);
    if (!sherd__is_dry(call->world))
        sherd__kernels_in(call)->binary(SHERD__MUL, out->ndim, out->local, call->to[0],
                                        call->from[0], a, call->from[1], b);
}

bool sherd__contract_pieces(sherd_call *call)
{
    char wanted[3 * SHERD_MAX_DIMS + 1];
    int64_t size[SHERD_MAX_DIMS], row_major[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS];
    const sherd_tensor *out = call->out[0];
    matrix a, b;
    product p;

    if (out->count == 0)
        return true;
    sort_dims(&p, call);
    if (is_outer(call, &p)) {
        multiply_each(call, &p);
        return true;
    }
    if (!choose_place(call, &p) || !read_matrix(&a, call, 0, &p, &p.rows, &p.inner) ||
        !read_matrix(&b, call, 1, &p, &p.inner, &p.columns))
        return false;
    snprintf(wanted, sizeof wanted, "%s%s%s", p.batch.letter, p.rows.letter, p.columns.letter);
    if (strcmp(wanted, p.label[2]) == 0)
        return multiply(call, &p, &a, &b, call->to[0]);
    char *y = scratch_for(call, out->count);
    if (!y || !multiply(call, &p, &a, &b, y))
        return false;
    for (int d = 0; wanted[d]; d++)
        size[d] = size_of(p.label[2], out, wanted[d]);
    strides_for(wanted, p.label[2], out, stride);
    sherd__row_major(out->ndim, size, row_major);
    copy_box(call, out->ndim, size, call->to[0], stride, y, row_major);
    return true;
}

/* "abc,cd->abd" in its three terms. */
typedef struct terms {
    char a[SHERD__TERM_BYTES], b[SHERD__TERM_BYTES], y[SHERD__TERM_BYTES];
} terms;

static terms terms_of(const char *text)
{
    const char *comma = strchr(text, ','), *arrow = strstr(text, "->");
    terms t;

    snprintf(t.a, sizeof t.a, "%.*s", (int)(comma - text), text);
    snprintf(t.b, sizeof t.b, "%.*s", (int)(arrow - comma - 1), comma + 1);
    snprintf(t.y, sizeof t.y, "%s", arrow + 2);
    return t;
}

static void contract_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const text_attributes *attributes = sherd_node_attributes(node);
    terms t = terms_of(attributes->text);
    char text[SHERD__TEXT_BYTES];

    if (sherd_node_wants(node, 0)) {
        snprintf(text, sizeof text, "%s,%s->%s", t.y, t.b, t.a);
        grad_in[0] = sherd__sum_to_operand(
            node, 0, sherd__contract(text, grad_out[0], sherd_node_operand(node, 1)));
    }
    if (sherd_node_wants(node, 1)) {
        snprintf(text, sizeof text, "%s,%s->%s", t.a, t.y, t.b);
        grad_in[1] = sherd__sum_to_operand(
            node, 1, sherd__contract(text, sherd_node_operand(node, 0), grad_out[0]));
    }
}

/* Whether a letter stands in a label. */
static bool has_letter(const char *label, char letter)
{
    return strchr(label, letter) != NULL;
}

/* A multiplication and an addition for each combination of indices. */
static double combinations(const sherd_call *call)
{
    const char *a = sherd__label_in(call, 0), *b = sherd__label_in(call, 1);
    const char *y = sherd__result_label_in(call, 0);
    double all = 2.0 * (double)call->out[0]->count;

    for (int d = 0; d < call->in[0]->ndim; d++)
        all *= has_letter(y, a[d]) ? 1 : (double)call->in[0]->local[d];
    for (int d = 0; d < call->in[1]->ndim; d++)
        all *= has_letter(y, b[d]) || has_letter(a, b[d]) ? 1 : (double)call->in[1]->local[d];
    return all;
}

static const sherd_op contract_op = {.name = "sherd_einsum product",
                                     .strided = true,
                                     .operand = {{"a", 0}, {"b", 0}},
                                     .result = {{"y", 0}},
                                     .field = TEXT_FIELDS,
                                     .attributes = sizeof(text_attributes),
                                     .linearity = SHERD_LINEAR,
                                     .broadcasts = true,
                                     .describe = describe,
                                     .forward = sherd__contract_pieces,
                                     .operations = combinations,
                                     .dry = sherd__contract_pieces,
                                     .on_device = sherd__fractions_there,
                                     .backward = contract_back,
                                     .in_parts = true,
                                     .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd__contract(const char *text, sherd_tensor *a, sherd_tensor *b)
{
    text_attributes attributes = {""};

    snprintf(attributes.text, sizeof attributes.text, "%s", text);
    return sherd_apply(&contract_op, (sherd_tensor *[]){a, b}, 2, &attributes);
}

/* ---- one operand ---------------------------------------------------------------------------- */

/* Copied so that what is summed comes last, then summed; or copied straight into the result. */
static bool arrange(sherd_call *call)
{
    const char *label = sherd__label_in(call, 0), *y = sherd__result_label_in(call, 0);
    char order[2 * SHERD_MAX_DIMS + 1];
    int64_t size[2 * SHERD_MAX_DIMS], stride[2 * SHERD_MAX_DIMS], row_major[2 * SHERD_MAX_DIMS];
    sherd_tensor *in = call->in[0], *out = call->out[0];
    int n = snprintf(order, sizeof order, "%s", y);
    int64_t summed = 1;

    for (const char *c = label; *c; c++)
        if (!has(y, *c)) {
            order[n++] = *c;
            summed *= in->local[c - label];
        }
    order[n] = '\0';
    if (out->count == 0)
        return true;
    for (int d = 0; d < n; d++)
        size[d] = size_of(label, in, order[d]);
    strides_for(order, label, in, stride);
    sherd__row_major(n, size, row_major);
    bool sums = n > out->ndim;
    void *to = sums && in->count ? scratch_for(call, in->count) : call->to[0];
    if (!to)
        return false;
    if (in->count)
        copy_box(call, n, size, to, row_major, call->from[0], stride);
    if (sums && sherd__device_in(call))
        sherd__device_sum(sherd__device_in(call), out->dtype, call->to[0], to, out->count, summed,
                          1, false);
    else if (sums && !sherd__is_dry(call->world))
        sherd__kernels_in(call)->sum(call->to[0], to, out->count, summed, 1, false);
    return true;
}

typedef struct spread_attributes {
    char text[SHERD__TEXT_BYTES];
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} spread_attributes;

static const char *describe_spread(sherd_call *call)
{
    const spread_attributes *attributes = call->attributes;

    snprintf(call->rule, sizeof call->rule, "%s", attributes->text);
    memcpy(call->shape[0], attributes->shape, sizeof attributes->shape);
    return NULL;
}

/* The gradient of what was summed is the same for each element: strides of 0. */
static bool spread(sherd_call *call)
{
    const char *y = sherd__result_label_in(call, 0);
    int64_t stride[SHERD_MAX_DIMS];
    sherd_tensor *out = call->out[0];

    strides_for(y, sherd__label_in(call, 0), call->in[0], stride);
    if (out->count)
        copy_box(call, out->ndim, out->local, call->to[0], out->stride, call->from[0], stride);
    return true;
}

/* "ab,abc->abc" was spread: "abc->ab". */
static void spread_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const spread_attributes *attributes = sherd_node_attributes(node);
    const char *comma = strchr(attributes->text, ','), *arrow = strstr(attributes->text, "->");
    char text[SHERD__TEXT_BYTES];

    snprintf(text, sizeof text, "%s->%.*s", arrow + 2, (int)(comma - attributes->text),
             attributes->text);
    grad_in[0] = sherd__arrange(text, grad_out[0]);
}

/* The second operand is its layout alone. */
static const sherd_op spread_op = {
    .name = "sherd_einsum backward",
    .operand = {{"dy", 0}, {"a", SHERD_OP_OPTIONAL}},
    .result = {{"da", 0}},
    .field = {SHERD_FIELDS(spread_attributes, text, BYTE, SHERD__TEXT_BYTES),
              SHERD_FIELD(spread_attributes, ndim, INT),
              SHERD_FIELDS(spread_attributes, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(spread_attributes),
    .describe = describe_spread,
    .forward = spread,
    .on_device = sherd__fractions_there,
    .backward = spread_back};

static void arrange_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const text_attributes *attributes = sherd_node_attributes(node);
    const char *arrow = strstr(attributes->text, "->");
    const sherd_layout *layout = sherd_node_layout(node, 0), *like[2] = {NULL, NULL};
    sherd_tensor *in[] = {grad_out[0], NULL};
    const int64_t *shape;
    spread_attributes back = {.ndim = sherd_node_shape(node, 0, &shape)};
    int a = (int)(arrow - attributes->text);

    memcpy(back.shape, shape, sherd__bytes(back.ndim) * sizeof *shape);
    snprintf(back.text, sizeof back.text, "%s,%.*s->%.*s", arrow + 2, a, attributes->text, a,
             attributes->text);
    grad_in[0] = sherd__failed(sherd__node_world(node));
    if (layout && sherd__layout_settle(&like[1], layout) != SHERD_OK)
        sherd__fail_diag(sherd__node_world(node), true);
    else
        sherd__apply_like(grad_in, &spread_op, in, 2, &back, like);
}

static const sherd_op arrange_op = {.name = "sherd_einsum sum",
                                    .operand = {{"a", 0}},
                                    .result = {{"y", 0}},
                                    .field = TEXT_FIELDS,
                                    .attributes = sizeof(text_attributes),
                                    .linearity = SHERD_LINEAR,
                                    .strided = true,
                                    .describe = describe,
                                    .forward = arrange,
                                    .dry = arrange,
                                    .on_device = sherd__fractions_there,
                                    .backward = arrange_back};

sherd_tensor *sherd__arrange(const char *text, sherd_tensor *a)
{
    text_attributes attributes = {""};

    snprintf(attributes.text, sizeof attributes.text, "%s", text);
    return sherd_apply(&arrange_op, &a, 1, &attributes);
}
