/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The data of `sherd check`, see check_data.h. Costs some operations an element, and an addend of
 * it.
 */
#include "check_data.h"

#include <string.h>

#include "base/num.h"

/*
 * Bits of the index in one pass, without and with a reduction; the range of what addends differ by;
 * how many there may be.
 */
typedef struct width {
    int bits, bits_pending, spread, addends;
} width;

/*
 * Integers are exact up to 2^24 in f32, 2^53 in f64, 2^8 in bf16, 2^11 in f16. With addends the
 * value leaves room for them: bf16: 63 + 64 * 2 < 256.
 */
static const width widths[SHERD_DTYPES] = {
    [SHERD_F32] = {24, 16, 61, CLI_ADDENDS},
    [SHERD_F64] = {52, 40, 61, CLI_ADDENDS},
    [SHERD_BF16] = {8, 6, 2, 64},
    [SHERD_F16] = {11, 8, 8, 64},
    [SHERD_I32] = {31, 16, 61, CLI_ADDENDS},
    [SHERD_I64] = {62, 40, 61, CLI_ADDENDS},
    [SHERD_U8] = {8, 6, 61, CLI_ADDENDS},
    [SHERD_I8] = {7, 5, 31, CLI_ADDENDS},
    [SHERD_BOOL] = {1, 1, 1, CLI_ADDENDS},
};

enum { BIAS = 64 }; /* min and max: room below the value, also in u8 and i8 */

void cli_check_data_of(cli_check_data *out, const sherd_layout *from, const sherd_layout *to,
                       sherd_dtype dtype)
{
    const width *w = &widths[dtype];
    int64_t count = 1;

    *out = (cli_check_data){from, to, dtype, from->pending_axes ? w->bits_pending : w->bits, 1};
    for (int d = 0; d < from->spec.ndim; d++)
        count *= from->spec.shape[d];
    while (out->passes * out->bits < SHERD__SIZE_LIMIT_LOG2 &&
           (count - 1) >> (out->passes * out->bits) > 0)
        out->passes++;
}

/* ---- elements -------------------------------------------------------------------------------- */

/* |value| <= 2048 has at most 11 significant bits, so no bit is lost. */
static uint16_t half_of(int64_t value)
{
    unsigned sign = value < 0 ? 0x8000u : 0, mantissa;
    uint64_t m = (uint64_t)(value < 0 ? -value : value);
    int exponent = 0;

    if (m == 0)
        return 0;
    while (m >> (exponent + 1))
        exponent++;
    mantissa = (unsigned)(exponent <= 10 ? m << (10 - exponent) : m >> (exponent - 10)) & 0x3ff;
    return (uint16_t)(sign | (unsigned)(exponent + 15) << 10 | mantissa);
}

static uint16_t brain_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

void cli_check_encode(sherd_dtype dtype, int64_t value, void *out)
{
    const float f = (float)value;
    const double g = (double)value;
    const uint16_t h = dtype == SHERD_F16 ? half_of(value) : brain_of(f);
    const uint32_t i = (uint32_t)(uint64_t)value;
    const uint8_t b = dtype == SHERD_BOOL ? value != 0 : (uint8_t)(uint64_t)value;
    const void *as[SHERD_DTYPES] = {[SHERD_F32] = &f, [SHERD_F64] = &g,  [SHERD_BF16] = &h,
                                    [SHERD_F16] = &h, [SHERD_I32] = &i,  [SHERD_I64] = &value,
                                    [SHERD_U8] = &b,  [SHERD_BOOL] = &b, [SHERD_I8] = &b};

    memcpy(out, as[dtype], sherd_dtype_bytes(dtype));
}

/* The global index of the elements of a box, one after the other. */
typedef struct walk {
    sherd_box box;
    int64_t at[SHERD_MAX_DIMS], stride[SHERD_MAX_DIMS];
    int64_t index, count;
} walk;

static walk walk_of(const sherd_layout *layout, const int64_t *coordinate)
{
    walk w = {.count = 1};
    int64_t stride = 1;

    sherd__layout_box(layout, coordinate, &w.box);
    for (int d = w.box.ndim - 1; d >= 0; d--) {
        w.stride[d] = stride;
        w.index += w.box.offset[d] * stride;
        w.count *= w.box.size[d];
        stride *= layout->spec.shape[d];
    }
    return w;
}

static void step(walk *w)
{
    for (int d = w->box.ndim - 1; d >= 0; d--) {
        w->index += w->stride[d];
        if (++w->at[d] < w->box.size[d])
            return;
        w->index -= w->at[d] * w->stride[d];
        w->at[d] = 0;
    }
}

/* ---- addends --------------------------------------------------------------------------------- */

static uint64_t mixed(int64_t index, int salt)
{
    uint64_t x = ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u + (uint64_t)salt * 0xD1B54A32D192ED03u;

    x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
    return x ^ (x >> 32);
}

/* 1 .. spread */
static int64_t amount(const cli_check_data *d, int64_t index, int salt)
{
    return 1 + (int64_t)(mixed(index, salt) % (uint64_t)widths[d->dtype].spread);
}

/*
 * What n ranks add to something so that it stays what it is: pairs of +h and -h; one rank adds 0 if
 * n is odd.
 */
static int64_t balanced(const cli_check_data *d, int64_t index, int64_t number, int64_t n, int salt)
{
    int64_t place = (number + (int64_t)(mixed(index, salt) % (uint64_t)n)) % n - n % 2;
    int64_t h = place < 0 ? 0 : amount(d, index, salt + 1 + (int)(place / 2));

    return place % 2 ? -h : h;
}

/* Numbers of a coordinate among the pending axes with an op (-1: any), and how many there are. */
static int64_t number_of(const sherd_layout *from, const int64_t *at, int op, int64_t *n)
{
    const sherd__layout_spec *spec = &from->spec;
    int64_t number = 0;

    *n = 1;
    for (int i = 0; i < spec->mesh->axes; i++)
        if (spec->pending[i] >= 0 && (op < 0 || spec->pending[i] == op)) {
            number = number * spec->mesh->extent[i] + at[i];
            *n *= spec->mesh->extent[i];
        }
    return number;
}

/*
 * Sum and avg: the value at one rank of the sums, which changes; the rest is balanced, for avg
 * along each axis.
 */
static int64_t summand(const cli_check_data *d, const int64_t *at, int64_t value, int64_t index)
{
    const sherd__layout_spec *spec = &d->from->spec;
    int64_t n, number = number_of(d->from, at, SHERD_SUM, &n);
    bool carries = (int64_t)(mixed(index, 1) % (uint64_t)n) == number;
    int64_t sum = carries ? value : 0;

    if (d->dtype == SHERD_BOOL) /* has no room for more */
        return sum;
    sum += balanced(d, index, number, n, 100);
    for (int i = 0; i < spec->mesh->axes; i++)
        if (spec->pending[i] == SHERD_AVG)
            sum += balanced(d, index, at[i], spec->mesh->extent[i], 200 + 100 * i);
    return sum;
}

static int64_t addend(const cli_check_data *d, const int64_t *at, int64_t index, int pass)
{
    const sherd__layout_spec *spec = &d->from->spec;
    int64_t value = index >> (pass * d->bits) & ((INT64_C(1) << d->bits) - 1), n, number;
    int op = -1;

    for (int i = 0; i < spec->mesh->axes; i++)
        op = spec->pending[i] >= 0 ? spec->pending[i] : op;
    if (op < 0)
        return value;
    if (op <= SHERD_AVG)
        return summand(d, at, value, index);
    number = number_of(d->from, at, -1, &n);
    bool carries = (int64_t)(mixed(index, 1) % (uint64_t)n) == number;
    if (op == SHERD_PRODUCT || d->dtype == SHERD_BOOL)
        return carries ? value : op != SHERD_MAX;
    value += BIAS;
    int64_t off = carries ? 0 : amount(d, index, 2 + (int)number);
    return op == SHERD_MIN ? value + off : value - off;
}

void cli_check_fill(const cli_check_data *d, const int64_t *coordinate, int pass, void *elements)
{
    size_t bytes = sherd_dtype_bytes(d->dtype);
    walk w = walk_of(d->from, coordinate);
    char *at = elements;

    for (int64_t i = 0; i < w.count; i++, step(&w), at += bytes)
        cli_check_encode(d->dtype, addend(d, coordinate, w.index, pass), at);
}

/* ---- what they come to ----------------------------------------------------------------------- */

/*
 * A partition leaves the value at coordinate 0 of its axes, for sum and product, and 0 or 1
 * elsewhere.
 */
static int64_t constant_at(const cli_check_data *d, const int64_t *coordinate)
{
    const sherd__layout_spec *from = &d->from->spec, *to = &d->to->spec;
    int64_t constant = -1;

    for (int i = 0; from->mesh == to->mesh && i < to->mesh->axes; i++)
        if (to->pending[i] >= 0 && from->pending[i] < 0 && coordinate[i] > 0) {
            constant = to->pending[i] == SHERD_SUM ? 0 : constant;
            constant = to->pending[i] == SHERD_PRODUCT ? 1 : constant;
        }
    return constant;
}

bool cli_check_fold_of(cli_check_fold *out, const cli_check_data *d, const int64_t *coordinate)
{
    const sherd__layout_spec *from = &d->from->spec, *to = &d->to->spec;
    bool same = from->mesh == to->mesh;
    int64_t at[SHERD_MAX_AXES] = {0};
    int i;

    memset(out, 0, sizeof *out);
    out->constant = constant_at(d, coordinate);
    for (i = 0; i < from->mesh->axes; i++)
        at[i] = same && to->pending[i] >= 0 && from->pending[i] >= 0 ? coordinate[i] : 0;
    do { /* count up the axes that are reduced here */
        if (out->count == widths[d->dtype].addends)
            return false;
        memcpy(out->at[out->count++], at, sizeof at);
        for (i = from->mesh->axes - 1; i >= 0; i--) {
            if (from->pending[i] < 0 || (same && to->pending[i] >= 0))
                continue;
            if (++at[i] < from->mesh->extent[i])
                break;
            at[i] = 0;
        }
    } while (i >= 0);
    return true;
}

/* By how much the sum of a fold is too large: the extents of the avg axes that are reduced. */
static int64_t divisor(const cli_check_data *d)
{
    const sherd__layout_spec *from = &d->from->spec, *to = &d->to->spec;
    int64_t n = 1;

    for (int i = 0; i < from->mesh->axes; i++)
        if (from->pending[i] == SHERD_AVG && (from->mesh != to->mesh || to->pending[i] < 0))
            n *= from->mesh->extent[i];
    return n;
}

int64_t cli_check_value(const cli_check_data *d, const cli_check_fold *fold, int64_t index,
                        int pass)
{
    int64_t value = addend(d, fold->at[0], index, pass);
    int op = SHERD_SUM;

    if (fold->constant >= 0)
        return fold->constant;
    for (int i = 0; i < d->from->spec.mesh->axes; i++)
        op = d->from->spec.pending[i] >= 0 ? d->from->spec.pending[i] : op;
    for (int i = 1; i < fold->count; i++) {
        int64_t next = addend(d, fold->at[i], index, pass);
        if (op == SHERD_MIN)
            value = sherd__min(value, next);
        else if (op == SHERD_MAX)
            value = sherd__max(value, next);
        else
            value = op == SHERD_PRODUCT ? value * next : value + next;
    }
    return op <= SHERD_AVG ? value / divisor(d) : value;
}

void cli_check_compare(const cli_check_data *d, const int64_t *coordinate,
                       const cli_check_fold *fold, int pass, const void *elements,
                       unsigned char *wrong)
{
    size_t bytes = sherd_dtype_bytes(d->dtype);
    walk w = walk_of(d->to, coordinate);
    const char *at = elements;
    char right[8];

    for (int64_t i = 0; i < w.count; i++, step(&w), at += bytes) {
        cli_check_encode(d->dtype, cli_check_value(d, fold, w.index, pass), right);
        if (memcmp(at, right, bytes) != 0)
            wrong[i] = 1;
    }
}
