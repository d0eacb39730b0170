/* SPDX-License-Identifier: Apache-2.0 */
/* A residual sum with its norm, and their gradients, on the GPU, against the plain kernels. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"

#include "device/residual.h"

/* One piece of 16 bytes for a thread, and several; `good`: there is a kernel for it. */
static const struct {
    int64_t rows, cols;
    int shift;
    bool good;
} shapes[] = {{0, 128, 0, true},  {1, 128, 0, true},  {5, 192, 0, true},   {37, 136, 0, true},
              {3, 1000, 0, true}, {2, 2056, 0, true}, {2, 4104, 0, true},  {3, 7, 0, false},
              {3, 192, 1, false}, {3, 0, 0, false},   {1, 8200, 0, false}, {260, 2048, 0, true},
              {3, 8, 0, false}};

/* What the plain kernel makes of x in the dtype `to`. */
static array converted(sherd_dtype to, const array *x)
{
    array y = room_for(to, x->n, 0);
    float *f = malloc(sizeof(float) * (size_t)(x->n + 1));

    if (to == x->dtype)
        memcpy(y.host, x->host, (size_t)x->bytes);
    else if (f) {
        if (x->dtype == SHERD_F32)
            memcpy(f, x->host, (size_t)x->bytes);
        else
            plain_of(x->dtype)->widen(x->n, f, x->host);
        if (to == SHERD_F32)
            memcpy(y.host, f, (size_t)y.bytes);
        else
            plain_of(to)->narrow(x->n, y.host, f);
    }
    free(f);
    return y;
}

static void added(const array *to, const array *a, const array *b)
{
    const int64_t one = 1;

    plain_of(to->dtype)->binary(SHERD__ADD, 1, &to->n, to->host, a->host, &one, b->host, &one);
}

static void forward_is_plain(sherd_dtype dtype, sherd_dtype beside, int64_t rows, int64_t cols,
                             int shift, bool rms, bool good)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype s = statistics(dtype);
    int64_t n = rows * cols;
    array x = drawn(dtype, n, shift, -1, 3, 1), delta = drawn(beside, n, shift, -1, 2, 2);
    array w = drawn(dtype, cols, shift, -2, 2, 3), b = drawn(dtype, cols, shift, -2, 2, 4);
    array sum = room_for(dtype, n, shift), norm = room_for(beside, n, shift);
    array mean = room_for(s, rows, 0), rstd = room_for(s, rows, 0), wide = converted(dtype, &delta);
    array y = room_for(dtype, n, 0);
    sherd__norm_there p = {dtype,  beside,   rows,      cols,      x.data,    delta.data, w.data,
                           b.data, sum.data, norm.data, mean.data, rstd.data, 1e-5};

    added(&sum, &x, &wide);
    if (rms) {
        p.bias = NULL;
        p.mean = NULL;
        k->rms_norm(rows, cols, y.host, rstd.host, sum.host, w.host, 1e-5);
    } else
        k->layer_norm(rows, cols, y.host, mean.host, rstd.host, sum.host, w.host, b.host, 1e-5);
    array rounded = converted(beside, &y);
    memcpy(norm.host, rounded.host, (size_t)norm.bytes);
    CHECK_EQ(sherd__device_add_norm(device, &p), good);
    if (good) {
        same(&sum, 0, "sum");
        same(&norm, 5e-6, "norm");
        same(&rstd, 3e-6, "rstd");
        same(&mean, 3e-6, "mean");
    }
    drop(&x), drop(&delta), drop(&w), drop(&b), drop(&sum), drop(&norm), drop(&mean), drop(&rstd);
    drop(&wide), drop(&y), drop(&rounded);
}

enum { RMS = 1, WITHOUT_DSUM = 2, WITHOUT_WEIGHTS = 4, ADDS = 8, FORMS = 16 };

/* dx and ddelta of the plain kernels: the norm's gradient, rounded, the sum's, rounded. */
static void backward_is_plain(sherd_dtype dtype, sherd_dtype beside, sherd_dtype lower,
                              int64_t rows, int64_t cols, int shift, int form, bool good)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype s = statistics(dtype);
    int64_t n = rows * cols;
    array dy = drawn(beside, n, shift, -2, 2, 1), x = drawn(dtype, n, shift, -1, 3, 2);
    array dsum = drawn(dtype, n, shift, -1, 1, 3), w = drawn(dtype, cols, shift, -2, 2, 4);
    array mean = drawn(s, rows, 0, 0, 1, 5), rstd = drawn(s, rows, 0, 1, 2, 6);
    array dx = room_for(dtype, n, shift), ddelta = room_for(lower, n, shift);
    array dw = drawn(dtype, cols, shift, -1, 1, 7), db = drawn(dtype, cols, shift, -1, 1, 8);
    array wide = converted(dtype, &dy);
    double twice = sherd_dtype_bytes(dtype) == 2 ? 1e-2 : 3e-5; /* what is rounded twice */
    bool weighs = !(form & WITHOUT_WEIGHTS), adds = form & ADDS, rms = form & RMS;
    sherd__norm_back_there p = {
        .dtype = dtype,
        .dy = beside,
        .ddelta = lower,
        .rows = rows,
        .cols = cols,
        .of = {dy.data, x.data, form & WITHOUT_DSUM ? NULL : dsum.data, weighs ? w.data : NULL,
               rms ? NULL : mean.data, rstd.data, dx.data, lower == dtype ? NULL : ddelta.data,
               weighs ? dw.data : NULL, weighs && !rms ? db.data : NULL, adds}};

    if (rms)
        k->rms_norm_grad(rows, cols, dx.host, weighs ? dw.host : NULL, wide.host, x.host,
                         weighs ? w.host : NULL, rstd.host, adds);
    else
        k->layer_norm_grad(rows, cols, dx.host, weighs ? dw.host : NULL, weighs ? db.host : NULL,
                           wide.host, x.host, weighs ? w.host : NULL, mean.host, rstd.host, adds);
    if (!(form & WITHOUT_DSUM))
        added(&dx, &dx, &dsum);
    array rounded = converted(lower, &dx);
    memcpy(ddelta.host, lower == dtype ? ddelta.host : rounded.host, (size_t)ddelta.bytes);
    CHECK_EQ(sherd__device_norm_back(device, &p), good);
    if (good) {
        same(&dx, twice, "dx");
        same(&ddelta, twice, "ddelta");
        same(&dw, 2e-4, "dweight");
        same(&db, 2e-4, "dbias");
    }
    if (good && !adds) {
        CHECK(sherd__device_norm_back(device, &p));
        same_bits(&dw, "dweight");
        same_bits(&dx, "dx");
    }
    drop(&dy), drop(&x), drop(&dsum), drop(&w), drop(&mean), drop(&rstd), drop(&dx);
    drop(&ddelta), drop(&dw), drop(&db), drop(&wide), drop(&rounded);
}

/* Rows of what is added, or of f32 beside 16 bits. */
static const sherd_dtype pairs[][2] = {{SHERD_F32, SHERD_F32},   {SHERD_F64, SHERD_F64},
                                       {SHERD_BF16, SHERD_BF16}, {SHERD_F16, SHERD_F16},
                                       {SHERD_F32, SHERD_BF16},  {SHERD_F32, SHERD_F16}};

/* Of f64 half as many columns fit. */
static bool fits(sherd_dtype dtype, int i)
{
    return shapes[i].good && (dtype != SHERD_F64 || shapes[i].cols <= 4096);
}

/* Long rows where they are cut otherwise than shorter ones; more rows than blocks, which only
 * gradients can have, once. */
static bool tells(sherd_dtype dtype, sherd_dtype beside, int i)
{
    return shapes[i].cols == 4104  ? sherd_dtype_bytes(dtype) == 2
           : shapes[i].rows == 260 ? beside == SHERD_BF16 && dtype == SHERD_F32
                                   : true;
}

static void sums_and_norms_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(pairs); d++)
        for (int i = 0; i < LEN(shapes); i++)
            for (int rms = shapes[i].rows == 260 ? check_stride(2) : 0;
                 rms < 2 && tells(pairs[d][0], pairs[d][1], i); rms++)
                forward_is_plain(pairs[d][0], pairs[d][1], shapes[i].rows, shapes[i].cols,
                                 shapes[i].shift, rms, fits(pairs[d][0], i));
    close_device();
}

static void gradients_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(pairs); d++)
        for (int i = 0; i < LEN(shapes); i++)
            for (int form = 0; form < FORMS; form++) {
                sherd_dtype dtype = pairs[d][0], beside = pairs[d][1];
                bool good = fits(dtype, i);
                if ((form + i + d) % 9 || !tells(dtype, beside, i))
                    continue;
                backward_is_plain(dtype, beside, beside, shapes[i].rows, shapes[i].cols,
                                  shapes[i].shift, form, good);
                if (dtype == beside || shapes[i].cols > 1000)
                    continue;
                backward_is_plain(dtype, dtype, beside, shapes[i].rows, shapes[i].cols,
                                  shapes[i].shift, form, good);
                backward_is_plain(dtype, beside, dtype, shapes[i].rows, shapes[i].cols,
                                  shapes[i].shift, form, good);
            }
    close_device();
}

/* No mean of dtypes that no kernel has. */
static void other_dtypes_are_left(void)
{
    open_device();
    const sherd__norm_there p = {.dtype = SHERD_BF16, .beside = SHERD_F32, .rows = 1, .cols = 8};
    const sherd__norm_back_there q = {
        .dtype = SHERD_F32, .dy = SHERD_BF16, .ddelta = SHERD_F16, .rows = 1, .cols = 8};
    CHECK(!sherd__device_add_norm(device, &p));
    CHECK(!sherd__device_norm_back(device, &q));
    close_device();
}

static const check_test tests[] = {
    {TEST(sums_and_norms_are_plain)},
    {TEST(gradients_are_plain)},
    {TEST(other_dtypes_are_left)},
};
CHECK_MAIN(tests)
