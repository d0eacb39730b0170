/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over sets on the GPU are what their formulas say, for groups that begin before or end
 * behind what is here, and sets in parts. */
#define CHECK_PURE
#include "check.h"
#include "device/sets.h"
#include "device_arrays.h"

/* batch, channels, inner, whole; first, group */
static const sherd__device_sets shapes[] = {
    {{3, 4, 8, false}, 0, 2, 0, 0, 0},     {{2, 6, 5, false}, 1, 4, 0, 0, 0}, /* cut groups */
    {{3, 4, 1, true}, 0, 1, 0, 0, 0},      {{2, 3, 16, true}, 0, 1, 0, 0, 0},
    {{1, 2, 20000, false}, 0, 2, 0, 0, 0}, {{3, 2, 4096, true}, 0, 1, 0, 0, 0},
    {{2, 3, 0, true}, 0, 1, 0, 0, 0},      {{0, 3, 4, false}, 0, 1, 0, 0, 0},
    {{1, 1, 1, false}, 0, 1, 0, 0, 0},
};

static sherd__device_sets whole_shape(sherd__device_sets s)
{
    int64_t end = s.first + s.n.channels, items = s.n.whole ? 1 : s.n.batch;

    s.slots = (end - 1) / s.group - s.first / s.group + 1;
    s.rows = items * s.n.channels;
    s.sets = items * s.slots;
    return s;
}

/* The set that element i of x is in, and its row. */
static int64_t set_of(const sherd__device_sets *s, int64_t i, int64_t *row)
{
    int64_t c = i / s->n.inner % s->n.channels, item = i / s->n.inner / s->n.channels;

    *row = s->n.whole ? c : item * s->n.channels + c;
    return s->n.whole ? c : item * s->slots + (s->first + c) / s->group - s->first / s->group;
}

enum { MOST_SETS = 64 };
typedef struct numbers {
    double n[MOST_SETS], mean[MOST_SETS], var[MOST_SETS], sum[MOST_SETS], by_x[MOST_SETS];
} numbers;

static double at(const array *a, int64_t i)
{
    return element(a->dtype, a->host, i);
}

static void find_moments(const sherd__device_sets *s, const array *x, numbers *k)
{
    int64_t row;

    *k = (numbers){.n = {0}};
    for (int64_t i = 0; i < x->n; i++) {
        k->n[set_of(s, i, &row)]++;
        k->mean[set_of(s, i, &row)] += at(x, i);
    }
    for (int i = 0; i < MOST_SETS; i++)
        k->mean[i] /= fmax(k->n[i], 1);
    for (int64_t i = 0; i < x->n; i++) {
        int64_t set = set_of(s, i, &row);
        k->var[set] += (at(x, i) - k->mean[set]) * (at(x, i) - k->mean[set]) / k->n[set];
    }
}

static void put(array *a, int64_t i, double x)
{
    float narrow = (float)x;

    if (a->dtype == SHERD_F64)
        ((double *)a->host)[i] = x;
    else
        plain_of(a->dtype)->narrow(1, (char *)a->host + i * (int64_t)sherd_dtype_bytes(a->dtype),
                                   &narrow);
    if (a->dtype == SHERD_F32)
        ((float *)a->host)[i] = narrow;
}

enum { X, DY, WEIGHT, BIAS, Y, MEAN, VAR, DX, DWEIGHT, DBIAS, ARRAYS };
static const double EPS = 1e-3;

static void expect(const sherd__device_sets *s, array *a, bool fixed)
{
    double dweight[MOST_SETS] = {0}, dbias[MOST_SETS] = {0};
    numbers k;
    int64_t row;

    find_moments(s, &a[X], &k);
    for (int64_t i = 0; i < a[X].n; i++) {
        int64_t set = set_of(s, i, &row), c = row % s->n.channels;
        double h = (at(&a[X], i) - k.mean[set]) / sqrt(k.var[set] + EPS), w = at(&a[WEIGHT], c);
        put(&a[Y], i, h * w + at(&a[BIAS], c));
        put(&a[MEAN], row, k.mean[set]);
        put(&a[VAR], row, k.var[set]);
        dweight[c] += at(&a[DY], i) * h;
        dbias[c] += at(&a[DY], i);
        k.sum[set] += w * at(&a[DY], i);
        k.by_x[set] += w * at(&a[DY], i) * h;
    }
    for (int64_t i = 0; i < a[X].n; i++) {
        int64_t set = set_of(s, i, &row), c = row % s->n.channels;
        double inverse = 1 / sqrt(k.var[set] + EPS), h = (at(&a[X], i) - k.mean[set]) * inverse;
        double left = fixed ? 0 : (k.sum[set] + h * k.by_x[set]) / k.n[set];
        put(&a[DX], i, inverse * (at(&a[WEIGHT], c) * at(&a[DY], i) - left));
    }
    for (int64_t c = 0; c < s->n.channels; c++) {
        put(&a[DWEIGHT], c, dweight[c]);
        put(&a[DBIAS], c, dbias[c]);
    }
    for (int64_t r = 0; a[X].n == 0 && r < s->rows; r++) {
        put(&a[MEAN], r, 0);
        put(&a[VAR], r, 0);
    }
}

static void compute(const sherd__device_sets *s, sherd_dtype dtype, array *a, array *of_rows,
                    bool fixed)
{
    const sherd__device_set_scales by = {
        of_rows->data, 1, a[WEIGHT].data, a[BIAS].data, a[MEAN].data, a[VAR].data, EPS};
    double together = (double)(s->n.inner * s->group * (s->n.whole ? s->n.batch : 1));
    const sherd__device_set_back of = {a[DY].data,     a[X].data, a[MEAN].data, a[VAR].data,
                                       a[WEIGHT].data, EPS,       together};

    sherd__device_set_moments(device, dtype, s, of_rows->data, a[X].data);
    sherd__device_set_spread(device, dtype, s, &by, a[Y].data, a[X].data);
    sherd__device_set_products(device, dtype, s, &of, fixed ? NULL : of_rows->data, a[DWEIGHT].data,
                               a[DBIAS].data);
    sherd__device_set_gradient(device, dtype, s, &of, fixed ? NULL : of_rows->data, 1, a[DX].data);
}

static void norm_is_its_formula(sherd_dtype dtype, sherd__device_sets s, bool fixed)
{
    static const char *const name[] = {"x",    "dy",       "weight", "bias",    "y",
                                       "mean", "variance", "dx",     "dweight", "dbias"};
    int64_t n = s.n.batch * s.n.channels * s.n.inner;
    array a[ARRAYS], of_rows = room_for(SHERD_F64, 3 * s.rows, 0);

    for (int i = 0; i < ARRAYS; i++) {
        int64_t count = i == X || i == DY || i == Y || i == DX ? n
                        : i == MEAN || i == VAR                ? s.rows
                                                               : s.n.channels;
        sherd_dtype of = i == MEAN || i == VAR ? statistics(dtype) : dtype;
        a[i] = i < Y ? drawn(of, count, 0, i == X ? 3 : -1, i == X ? 5 : 1, (uint64_t)i)
                     : room_for(of, count, 0);
    }
    expect(&s, a, fixed);
    for (int again = 0; again < 2; again++) {
        compute(&s, dtype, a, &of_rows, fixed);
        for (int i = Y; i < ARRAYS; i++)
            if (again)
                same_bits(&a[i], name[i]);
            else
                same(&a[i], 2e-5, name[i]);
    }
    for (int i = 0; i < ARRAYS; i++)
        drop(&a[i]);
    drop(&of_rows);
}

static void norms_are_their_formulas(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(shapes); i++)
            if (shapes[i].n.inner * shapes[i].n.batch < 1000 || d == i % LEN(dtypes))
                norm_is_its_formula(dtypes[d], whole_shape(shapes[i]), i % 2);
    close_device();
}

/* Far from zero, of which a sum of squares would leave nothing; with an element far from the others
 * at first. */
static void far_from_zero(void)
{
    sherd__device_sets s = whole_shape((sherd__device_sets){{1, 2, 3000, false}, 0, 1, 0, 0, 0});

    open_device();
    array x = drawn(SHERD_F32, 6000, 0, 0, 1, 4), moments = room_for(SHERD_F64, 6, 0);
    float *at = x.host;
    for (int i = 0; i < 6000; i++)
        at[i] = i == 3000 ? -3e6F : i < 3000 ? 1e6F + at[i] : at[i];
    send(&x);
    for (int r = 0; r < 2; r++) {
        double mean = 0, squares = 0, *to = moments.host;
        for (int i = 0; i < 3000; i++)
            mean += (double)at[3000 * r + i] / 3000;
        for (int i = 0; i < 3000; i++)
            squares += ((double)at[3000 * r + i] - mean) * ((double)at[3000 * r + i] - mean);
        to[r] = 3000, to[2 + r] = mean, to[4 + r] = squares;
    }
    sherd__device_set_moments(device, SHERD_F32, &s, moments.data, x.data);
    same(&moments, 1e-2, "moments"); /* 1e-10 of f64 */
    drop(&x), drop(&moments);
    close_device();
}

/* Parts of ranks are combined as one, and one without elements is nothing. */
static void parts_are_one(void)
{
    static const double part[] = {2, 1, 0.5, 0, 99, 99, 6, 3, 4}; /* [3,3,1] */
    sherd__device_sets s = whole_shape((sherd__device_sets){{1, 1, 1, true}, 0, 1, 0, 0, 0});

    open_device();
    array x = drawn(SHERD_F64, 1, 0, 0, 1, 4), y = room_for(SHERD_F64, 1, 0);
    array mean = room_for(SHERD_F64, 1, 0), var = room_for(SHERD_F64, 1, 0);
    array parts = room_for(SHERD_F64, LEN(part), 0);
    memcpy(parts.host, part, sizeof part);
    send(&parts);
    const sherd__device_set_scales by = {parts.data, 3, NULL, NULL, mean.data, var.data, 0};
    sherd__device_set_spread(device, SHERD_F64, &s, &by, y.data, x.data);
    put(&mean, 0, 2.5);
    put(&var, 0, (0.5 + 4 + 4 * 12.0 / 8) / 8);
    put(&y, 0, (at(&x, 0) - 2.5) / sqrt(at(&var, 0)));
    same(&mean, 1e-6, "mean");
    same(&var, 1e-6, "variance");
    same(&y, 1e-6, "y");
    drop(&x), drop(&y), drop(&mean), drop(&var), drop(&parts);
    close_device();
}

static const check_test tests[] = {
    {TEST(norms_are_their_formulas)},
    {TEST(far_from_zero)},
    {TEST(parts_are_one)},
};
CHECK_MAIN(tests)
