/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms over several dims: against the sums that define them, there and back, gradients
 * against differences, and what the chains cost: a slab one all-to-all, a pencil two, and nothing is
 * gathered. test_ops_table.c has all layouts.
 */
#include <math.h>

#include "check.h"

#include "base/hash.h"
#include "sherd/autocast.h"
#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_fft.h"
#include "sherd/ops_reductions.h"
#include "sherd/tensor.h"

enum { MOST = 4096 };

static double value(int64_t i)
{
    uint64_t h = sherd__hash_word(3, (uint64_t)i);

    return (double)(h >> 11) / 4503599627370496.0 - 1;
}

static int64_t count_of(const int64_t *shape, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= shape[d];
    return n;
}

static sherd_tensor *plain(sherd_world *world, const int64_t *shape, int ndim, int64_t seed)
{
    double x[MOST];

    for (int64_t i = 0; i < count_of(shape, ndim); i++)
        x[i] = value(i + seed);
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, x));
}

/* Over a line of all ranks, or a square mesh of them if there are 4: axis i shards dim i. */
static sherd_tensor *spread(sherd_tensor *t, int axes)
{
    sherd_world *world = sherd_tensor_world(t);
    int64_t ranks = sherd_world_ranks(world);
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;
    const sherd_placement placements[] = {sherd_shard(0), sherd_shard(1)};
    int64_t extent[] = {axes == 2 ? ranks / 2 : ranks, 2};

    CHECK_OK(sherd_mesh_create(&mesh, world, axes, extent, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, sherd_tensor_ndim(t), sherd_tensor_shape(t),
                                 placements, NULL));
    return sherd_distribute(t, layout, -1);
}

static double farthest(sherd_tensor *a, sherd_tensor *b)
{
    const double *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(sherd_full(b));
    double far = 0;

    for (int64_t i = 0; x && y && i < sherd_tensor_count(a); i++)
        far = fmax(far, fabs(x[i] - y[i]));
    return x && y && sherd_tensor_count(a) == sherd_tensor_count(b) ? far : (double)INFINITY;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Of [n0, n1, 2] over both dims, element by element. */
static void check_sums(sherd_world *world, int64_t n0, int64_t n1, sherd_fft_norm norm, bool back)
{
    const double pi = 3.14159265358979323846;
    double n = (double)(n0 * n1);
    double scale = norm == SHERD_FFT_ORTHO                ? 1 / sqrt(n)
                   : (norm == SHERD_FFT_FORWARD) == !back ? 1 / n
                                                          : 1;
    sherd_tensor *x = spread(plain(world, (int64_t[]){n0, n1, 2}, 3, 0), 1);
    sherd_tensor *y = sherd_full(back ? sherd_ifft(x, NULL, 0, norm) : sherd_fft(x, NULL, 0, norm));
    const double *got = sherd_tensor_read(y);

    for (int64_t k = 0; got && k < n0 * n1; k++) {
        double re = 0, im = 0;
        for (int64_t j = 0; j < n0 * n1; j++) {
            double turn = (double)(j / n1 * (k / n1) % n0) / (double)n0 +
                          (double)(j % n1 * (k % n1) % n1) / (double)n1;
            double c = cos(2 * pi * turn), s = (back ? 1 : -1) * sin(2 * pi * turn);
            re += value(2 * j) * c - value(2 * j + 1) * s;
            im += value(2 * j) * s + value(2 * j + 1) * c;
        }
        CHECK(fabs(got[2 * k] - scale * re) < 1e-12 && fabs(got[2 * k + 1] - scale * im) < 1e-12);
    }
    CHECK(got != NULL);
}

static void transforms_are_the_sums(sherd_world *world)
{
    for (int norm = 0; norm < 3; norm++)
        for (int back = 0; back < 2; back++) {
            check_sums(world, 5, 7, (sherd_fft_norm)norm, back);
            check_sums(world, 4, 6, (sherd_fft_norm)norm, back);
        }
    CHECK_OK(sherd_world_check(world));
}

/* More ranks than rows, sizes that nothing divides, a dim that is not transformed. */
static void there_and_back_is_the_identity(sherd_world *world)
{
    static const int64_t shapes[][4] = {{5, 7, 3, 2}, {1, 4, 6, 2}, {2, 2, 11, 2}, {8, 8, 8, 2}};
    static const int dims[][3] = {{0, 1, 2}, {2, 0, 1}, {-1, -3, -2}, {1, 0, -1}};

    for (int i = 0; i < 4; i++)
        for (int axes = 1; axes < 3; axes++)
            for (int norm = 0; norm < 3; norm++)
                for (int count = 1; count < 4; count++) {
                    if (axes == 2 && sherd_world_ranks(world) % 2)
                        continue;
                    sherd_scope_begin(world);
                    sherd_tensor *x = spread(plain(world, shapes[i], 4, 0), axes);
                    sherd_tensor *y = sherd_fft(x, dims[i], count, (sherd_fft_norm)norm);
                    CHECK(farthest(sherd_ifft(y, dims[i], count, (sherd_fft_norm)norm), x) < 1e-14);
                    /* The real tensor [.., 3 or 6 .., 2] has one dim more to transform. */
                    int last = (dims[i][count - 1] + (dims[i][count - 1] < 0 ? 3 : 0));
                    int real[3];
                    for (int d = 0; d < count; d++)
                        real[d] = dims[i][d] < 0 ? dims[i][d] - 1 : dims[i][d];
                    y = sherd_rfft(x, real, count, (sherd_fft_norm)norm);
                    y = sherd_irfft(y, real, count, shapes[i][last], (sherd_fft_norm)norm);
                    CHECK(farthest(y, x) < 1e-14);
                    sherd_scope_end(world);
                }
    CHECK_OK(sherd_world_check(world));
}

/* A transform of real numbers is the first half of the complex one, of each dim alone too. */
static void halves_are_those_of_the_whole(sherd_world *world)
{
    for (int last = 0; last < 3; last++) {
        const int64_t shape[] = {5, 6, 4};
        int dims[] = {(last + 1) % 3, (last + 2) % 3, last};
        sherd_tensor *x = spread(plain(world, shape, 3, 0), 1);
        sherd_tensor *z = sherd_mul(sherd_unsqueeze(x, 3),
                                    sherd_mark_equal(sherd_from_data(
                                        world, SHERD_F64, (int64_t[]){2}, 1, (double[]){1, 0})));
        sherd_tensor *all = sherd_fft(z, dims, 3, SHERD_FFT_ORTHO);
        sherd_tensor *half = sherd_rfft(x, dims, 3, SHERD_FFT_ORTHO);
        CHECK(farthest(half, sherd_narrow(all, last, 0, shape[last] / 2 + 1)) < 1e-14);
        CHECK(farthest(sherd_irfft(half, dims, 3, shape[last], SHERD_FFT_ORTHO), x) < 1e-14);
    }
    CHECK_OK(sherd_world_check(world));
}

/* What is missing is 0, what is too much does not count, nor what must be 0. */
static void a_back_transform_takes_the_halves_it_needs(sherd_world *world)
{
    static const int64_t sizes[] = {1, 2, 4, 5, 6, 9, 12};
    sherd_tensor *x = spread(plain(world, (int64_t[]){5, 4, 2}, 3, 0), 1);

    for (int i = 0; i < LEN(sizes); i++)
        for (int dim = 0; dim < 2; dim++) {
            int64_t half = sizes[i] / 2 + 1, has = sherd_tensor_shape(x)[dim];
            int64_t none[3] = {0}, more[3] = {0};
            sherd_tensor *fits = half < has ? sherd_narrow(x, dim, 0, half) : x;
            more[dim] = half > has ? half - has : 0;
            fits = sherd_pad(fits, none, more, 0);
            sherd_tensor *y = sherd_irfft(x, &dim, 1, sizes[i], SHERD_FFT_BACKWARD);
            CHECK_EQ(sherd_tensor_shape(y)[dim], sizes[i]);
            CHECK(farthest(y, sherd_irfft(fits, &dim, 1, sizes[i], SHERD_FFT_BACKWARD)) < 1e-14);
            /* The first imaginary part, and of an even size the last one. */
            sherd_tensor *shift = sherd_scale(sherd_rfft(y, &dim, 1, SHERD_FFT_BACKWARD), 0);
            sherd_tensor *first = sherd_narrow(shift, dim, 0, 1);
            first = sherd_add(first, sherd_mark_equal(sherd_from_data(
                                         world, SHERD_F64, (int64_t[]){2}, 1, (double[]){0, 3})));
            more[dim] = half - 1;
            fits = sherd_add(fits, sherd_pad(first, none, more, 0));
            CHECK(farthest(y, sherd_irfft(fits, &dim, 1, sizes[i], SHERD_FFT_BACKWARD)) < 1e-14);
        }
    sherd_tensor *y = sherd_irfft(x, (int[]){0}, 1, 0, SHERD_FFT_BACKWARD);
    CHECK_EQ(sherd_tensor_shape(y)[0], 8);
    CHECK_EQ(sherd_tensor_ndim(y), 2);
    CHECK_OK(sherd_world_check(world));
}

/* A circular convolution is a product of transforms. */
static void products_are_convolutions(sherd_world *world)
{
    enum { N = 12 };
    sherd_tensor *a = spread(plain(world, (int64_t[]){N}, 1, 0), 1);
    sherd_tensor *b = spread(plain(world, (int64_t[]){N}, 1, 100), 1);
    sherd_tensor *product = sherd_complex_mul(sherd_rfft(a, NULL, 0, SHERD_FFT_BACKWARD),
                                              sherd_rfft(b, NULL, 0, SHERD_FFT_BACKWARD));
    const double *y =
        sherd_tensor_read(sherd_full(sherd_irfft(product, NULL, 0, N, SHERD_FFT_BACKWARD)));

    for (int k = 0; y && k < N; k++) {
        double sum = 0;
        for (int j = 0; j < N; j++)
            sum += value(j) * value(100 + (k - j + N) % N);
        CHECK(fabs(y[k] - sum) < 1e-13);
    }
    CHECK(y != NULL);
    CHECK_OK(sherd_world_check(world));
}

static sherd_tensor *spectral_layer(sherd_tensor *const *in, int count, void *payload)
{
    sherd_tensor *y = sherd_rfft(in[0], NULL, 0, SHERD_FFT_ORTHO);

    (void)count;
    (void)payload;
    y = sherd_irfft(sherd_complex_mul(y, in[1]), NULL, 0, 5, SHERD_FFT_FORWARD);
    return sherd_sum(sherd_tanh(y));
}

static void gradients_are_differences(sherd_world *world)
{
    sherd_tensor *in[] = {spread(plain(world, (int64_t[]){4, 5}, 2, 0), 1),
                          spread(plain(world, (int64_t[]){4, 3, 2}, 3, 50), 1)};

    for (int i = 0; i < 2; i++)
        sherd_require_grad(in[i], true);
    CHECK_OK(sherd_check_gradients(spectral_layer, in, 2, NULL));
}

/* ---- dtypes ---------------------------------------------------------------------------------- */

static void sixteen_bits_are_refused_but_under_autocast(sherd_world *world)
{
    sherd_tensor *x = sherd_cast(spread(plain(world, (int64_t[]){4, 6}, 2, 0), 1), SHERD_BF16);

    CHECK_OK(sherd_world_check(world));
    CHECK(sherd_tensor_failed(sherd_rfft(x, NULL, 0, SHERD_FFT_BACKWARD)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "f32 and f64") != NULL);
    sherd_set_autocast(world, SHERD_BF16);
    sherd_tensor *y = sherd_rfft(x, NULL, 0, SHERD_FFT_BACKWARD);
    CHECK_EQ(sherd_tensor_dtype(y), SHERD_F32);
    CHECK_EQ(sherd_tensor_dtype(sherd_complex_mul(y, y)), SHERD_F32);
    sherd_set_autocast(world, SHERD_DTYPE_NONE);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "  %s\n", sherd_world_error(world));
}

/* ---- what it costs --------------------------------------------------------------------------- */

static int64_t calls(sherd_world *world, const char *op, sherd_comm_direction direction)
{
    return sherd_comm_calls(world, &(sherd_comm_filter){.op = op, .direction = direction});
}

/* Transforms over all dims, and back from where the first has left them. */
static void check_cost(sherd_world *world, int axes, bool real)
{
    const int64_t shape[] = {8, 8, 8, 2}, p = sherd_world_ranks(world);
    int64_t moves = p == 1 ? 0 : p == 2 && axes == 2 ? 1 : axes;
    sherd_tensor *x = spread(plain(world, shape, real ? 3 : 4, 0), axes);

    sherd_require_grad(x, true);
    sherd_comm_reset(world);
    sherd_tensor *y = real ? sherd_rfft(x, NULL, 0, SHERD_FFT_BACKWARD)
                           : sherd_fft(x, NULL, 0, SHERD_FFT_BACKWARD);
    sherd_tensor_read(y);
    CHECK_EQ(calls(world, "all_to_all", SHERD_COMM_BOTH), moves);
    CHECK_EQ(calls(world, NULL, SHERD_COMM_BOTH), moves);
    if (!real && p > 1) { /* all but its own part of what it holds, on each axis */
        int64_t a = axes == 2 ? p / 2 : p, b = axes == 2 ? 2 : 1, held = 1024 / p * 8;
        CHECK_EQ(sherd_comm_bytes(world, NULL), held * (a - 1) / a + held * (b - 1) / b);
    }
    sherd_comm_reset(world);
    sherd_tensor *z = real ? sherd_irfft(y, NULL, 0, 8, SHERD_FFT_BACKWARD)
                           : sherd_ifft(y, NULL, 0, SHERD_FFT_BACKWARD);
    sherd_tensor_read(z);
    CHECK_EQ(calls(world, "all_to_all", SHERD_COMM_BOTH), moves);
    CHECK_EQ(calls(world, NULL, SHERD_COMM_BOTH), moves);
    CHECK(farthest(z, x) < 1e-14);
    sherd_comm_reset(world);
    sherd_backward_with(&y, &(sherd_tensor *){sherd_detach(y)}, 1, NULL);
    sherd_tensor_read(sherd_grad(x));
    CHECK_EQ(calls(world, "all_to_all", SHERD_COMM_BACKWARD), moves);
    CHECK_EQ(calls(world, NULL, SHERD_COMM_BACKWARD), moves);
}

static void a_slab_takes_one_all_to_all(sherd_world *world)
{
    check_cost(world, 1, false);
    check_cost(world, 1, true);
    CHECK_OK(sherd_world_check(world));
}

static void a_pencil_takes_two(sherd_world *world)
{
    check_cost(world, 2, false);
    check_cost(world, 2, true);
    CHECK_OK(sherd_world_check(world));
}

/* Batches and channels: nothing is sharded that is transformed. */
static void whole_dims_take_nothing(sherd_world *world)
{
    sherd_tensor *x = spread(plain(world, (int64_t[]){8, 4, 6, 5}, 4, 0), 1);

    sherd_comm_reset(world);
    sherd_tensor *y = sherd_rfft(x, (int[]){-1, -2}, 2, SHERD_FFT_ORTHO);
    sherd_tensor_read(sherd_irfft(y, (int[]){-1, -2}, 2, 6, SHERD_FFT_ORTHO));
    CHECK_EQ(calls(world, NULL, SHERD_COMM_BOTH), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The n-th allocation of rank 0 fails, for every n, until the call goes through. */
static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    sherd_tensor *x = spread(plain(world, (int64_t[]){4, 37, 2}, 3, 0), 1);
    sherd_status status = SHERD_ENOMEM;
    int n = 1;

    CHECK_OK(sherd_world_check(world));
    for (; status && n < 500; n++) {
        sherd_scope_begin(world);
        sherd_world_fail_allocation(world, sherd_world_rank(world) == 0 ? n : 0);
        sherd_tensor *y = sherd_fft(x, NULL, 0, SHERD_FFT_BACKWARD);
        sherd_tensor_read(sherd_complex_mul(y, y));
        sherd_world_fail_allocation(world, 0);
        sherd_scope_end(world);
        status = sherd_world_check(world);
        CHECK(!status || status == SHERD_ENOMEM);
    }
    CHECK_OK(status);
    CHECK(n > 3);
}

static const check_test tests[] = {
    {TEST(transforms_are_the_sums), {1, 2, 3, 4, 8}},
    {TEST(there_and_back_is_the_identity), {1, 2, 3, 4, 8}},
    {TEST(halves_are_those_of_the_whole), {1, 2, 3, 4}},
    {TEST(a_back_transform_takes_the_halves_it_needs), {1, 2, 3, 4}},
    {TEST(products_are_convolutions), {1, 2, 3, 4}},
    {TEST(gradients_are_differences), {1, 2, 3, 4}},
    {TEST(sixteen_bits_are_refused_but_under_autocast), {1, 2, 3}},
    {TEST(a_slab_takes_one_all_to_all), {1, 2, 4, 8}},
    {TEST(a_pencil_takes_two), {4, 8}},
    {TEST(whole_dims_take_nothing), {1, 2, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {1, 2, 3}},
};
CHECK_MAIN(tests)
