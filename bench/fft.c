/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms: 32 images of 256 x 256, sharded by image; 1,024 rows of 1,024, sharded by
 * row; a cube of 128^3, of which each rank has a slab, so that half of its share moves once. f32
 * and f64, complex and (the cube) real. Ranks are processes; kinds take turns. Medians of the time
 * until the last rank is done, and three numbers of each result, for bench/compare_fft.py.
 *
 *     bench/fft [RANKS [ROUNDS]]      2 7
 */
#include "kinds.h"

typedef struct kind {
    const char *name;
    sherd_dtype dtype;
    bool real;
    int ndim;
    int64_t shape[4];
    int count, dims[3];
} kind;

#define IMAGES               \
    3, {32, 256, 256, 2}, 2, \
    {                        \
        1, 2                 \
    }
#define LINES              \
    2, {1024, 1024, 2}, 1, \
    {                      \
        1                  \
    }
#define CUBE                  \
    3, {128, 128, 128, 2}, 3, \
    {                         \
        0, 1, 2               \
    }

static const kind kinds[] = {
    {"images f32", SHERD_F32, false, IMAGES}, {"images f64", SHERD_F64, false, IMAGES},
    {"rows f32", SHERD_F32, false, LINES},    {"rows f64", SHERD_F64, false, LINES},
    {"cube f32", SHERD_F32, false, CUBE},     {"cube f64", SHERD_F64, false, CUBE},
    {"real cube f32", SHERD_F32, true, CUBE}, {"real cube f64", SHERD_F64, true, CUBE},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* sin(i^2 / 1000) of the number i of each element. */
static sherd_tensor *make(const sherd_mesh *mesh, const kind *k)
{
    int ndim = k->ndim + (k->real ? 0 : 1);
    const sherd_layout *line = NULL;
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= k->shape[d];
    if (sherd_layout_parse_placements(&line, mesh, 1, &n, "S(0)", NULL))
        return NULL;
    sherd_tensor *i = sherd_arange_on(line, SHERD_F64, 0, 1);
    i = sherd_sin(sherd_scale(sherd_square(i), 1e-3));
    return sherd_view(sherd_cast(i, k->dtype), k->shape, ndim);
}

static sherd_tensor *transform(sherd_tensor *x, const kind *k)
{
    return k->real ? sherd_rfft(x, k->dims, k->count, SHERD_FFT_ORTHO)
                   : sherd_fft(x, k->dims, k->count, SHERD_FFT_ORTHO);
}

static bool measure(sherd_world *world, const sherd_mesh *mesh, int number, double *time)
{
    const kind *k = &kinds[number];

    sherd_scope_begin(world);
    sherd_tensor *x = make(mesh, k);
    sherd_tensor_read(x);
    bool good = sherd_world_check(world) == SHERD_OK;
    double start = seconds();
    sherd_tensor_read(transform(x, k));
    good = sherd_world_check(world) == SHERD_OK && good;
    *time = seconds() - start;
    sherd_scope_end(world);
    return good;
}

/* Elements of the result, from its beginning, a third and its end. */
static void look(sherd_world *world, const sherd_mesh *mesh, int of, double number[3])
{
    const kind *k = &kinds[of];

    sherd_scope_begin(world);
    sherd_tensor *y = sherd_full(sherd_cast(transform(make(mesh, k), k), SHERD_F64));
    const double *at = sherd_tensor_read(y);
    int64_t n = sherd_tensor_count(y);
    const int64_t places[] = {0, n / 3, n - 2};
    for (int i = 0; i < 3; i++)
        number[i] = at ? at[places[i]] : (double)NAN;
    sherd_scope_end(world);
}

static const char *name_of(int number)
{
    return kinds[number].name;
}

int main(int argc, char **argv)
{
    return run_kinds(argc, argv, &(bench_kinds){KINDS, name_of, measure, look});
}
