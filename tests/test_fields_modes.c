/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms of which some frequencies are kept: the layer of a Fourier neural operator as
 * sherd/ops_fft.h has it, on a field that is sharded in space. Values and gradients are PyTorch's,
 * and those of one rank under any cuts; what travels are the frequencies that are kept.
 */
#include "fields.h"

#include <math.h>

#include "sherd/autograd.h"
#include "sherd/comm.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_fft.h"
#include "sherd/ops_reductions.h"

/* [n, c, x, y] by weights [c, out, low, half, 2]; "" = where it is. */
static sherd_tensor *mixed(sherd_tensor *u, sherd_tensor *w, const char *kept, const char *back)
{
    const int along = 2, across = 3;
    const sherd_fft_norm norm = SHERD_FFT_BACKWARD;
    const int64_t *size = sherd_tensor_shape(u), *modes = sherd_tensor_shape(w);

    sherd_tensor *low = sherd_narrow(sherd_rfft(u, &across, 1, norm), 3, 0, modes[3]);
    low = kept ? sherd_redistribute_to(low, kept, NULL) : low;
    low = sherd_fft_resize(sherd_fft(low, &along, 1, norm), 2, modes[2]);
    low = sherd_complex_einsum("ncxy,coxy->noxy", low, w);
    low = sherd_ifft(sherd_fft_resize(low, 2, size[2]), &along, 1, norm);
    return sherd_irfft(back ? sherd_redistribute_to(low, back, NULL) : low, &across, 1, size[3],
                       norm);
}

/* (i step mod period - middle) / middle */
static sherd_tensor *saw(sherd_world *world, int ndim, const int64_t *shape, int step, int period)
{
    double x[2048];
    int64_t count = 1, middle = period / 2;

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    for (int64_t i = 0; i < count; i++)
        x[i] = (double)(i * step % period - middle) / (double)middle;
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, x));
}

static sherd_tensor *laid(sherd_tensor *t, const char *text)
{
    const int64_t ranks = sherd_world_ranks(t->world);
    const sherd_mesh *mesh = NULL;
    const sherd_layout *layout = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, t->world, 1, &ranks, NULL, NULL));
    CHECK_OK(sherd_layout_create(&layout, mesh, t->ndim, t->shape,
                                 (sherd_placement[]){sherd_replicate()}, NULL));
    t = sherd_redistribute_to(sherd_distribute(sherd_detach(t), layout, -1), text, NULL);
    return sherd_require_grad(sherd_detach(t), true);
}

static void near(sherd_tensor *y, const double *want, int64_t count, int64_t step)
{
    const double *got = sherd_tensor_read(sherd_full(y));
    int wrong = 0;

    for (int64_t i = 0; i < count && CHECK(got != NULL && want != NULL); i++)
        wrong += !(fabs(got[i * step] - want[i]) < 1e-14);
    CHECK_EQ(wrong, 0);
}

/*
 * torch.fft.irfft2 of frequencies 0, 1 and -1 by 0 and 1 of torch.fft.rfft2, two channels mixed to
 * one by torch.einsum.
 */
static void a_layer_is_as_in_pytorch(sherd_world *world)
{
    static const int64_t space[] = {1, 2, 5, 6}, weights[] = {2, 1, 3, 2, 2},
                         given[] = {1, 1, 5, 6};
    static const double y[] = {
        -0.08740779924287104, -0.062394217150690504, 0.05857121485397722,   0.1545230647664644,
        0.12950948267428386,  0.008544050669616146,  0.0871529863097067,    -0.01699854020151038,
        -0.10859952492896859, -0.09604898314520968,  0.008102543366007416,  0.09970352809346561,
        0.010128544004535328, -0.007609151347805066, -0.054044342318213257, -0.08274183793628104,
        -0.06500414258394063, -0.01856895161353246,  -0.2120359648571437,   -0.0472018668518059,
        0.1468433545806366,   0.17605447800774132,   0.011220380002403546,  -0.18282484143003896,
        -0.272316740122417,   -0.08106089959388864,  0.2164435965750573,    0.32269225221547476,
        0.1314364116869463,   -0.16606808448199958};
    static const double every_fifth_of_du[] = {
        0.20287720413808363, 0.07418868566762807,  -0.2410283589574145,  0.043751362567042415,
        0.14795498384876418, 0.045757554248396726, 0.17581833033408834,  -0.10742297595016809,
        -0.3390605527404552, 0.2966179054288958,   -0.21316954126797666, -0.15146267187760898};
    static const double dw[] = {0.016666666666666663,  0,
                                -1.1916666666666664,   -0.779422863405995,
                                0.023644164910586837,  0.027031146700740905,
                                0.26742506202949656,   0.2407906073979592,
                                0.023644164910586837,  -0.027031146700740905,
                                0.26742506202949656,   1.2581359988531124,
                                0.024999999999999994,  0,
                                -0.365277777777778,    1.224463695906331,
                                -0.027429477215272512, -0.02318088018115033,
                                0.2674250620294964,    -0.24079060739795938,
                                -0.027429477215272512, 0.02318088018115033,
                                0.26742506202949645,   -1.2581359988531124};
    static const char *const fields[] = {"S(2)", "S(2) 2:2,3", "S(2)", "S(2) 2:0,3,1,1"};
    sherd_tensor *u = laid(saw(world, 4, space, 37, 17), fields[sherd_world_ranks(world) - 1]);
    sherd_tensor *w = laid(saw(world, 5, weights, 29, 13), "S(3)");
    sherd_tensor *v = mixed(u, w, "S(3)", "S(2)");
    sherd_tensor *dv = laid(saw(world, 4, given, 11, 7), "S(2)");

    near(v, y, LEN(y), 1);
    sherd_backward_with(&v, &dv, 1, NULL);
    near(sherd_grad(u), every_fifth_of_du, LEN(every_fifth_of_du), 5);
    near(sherd_grad(w), dw, LEN(dw), 1);
    if (!CHECK_OK(sherd_world_check(world)))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

/* Also where the solver says where shards go, batches have several fields, sizes are odd. */
static void any_cuts_are_one_rank(sherd_world *world)
{
    static const int64_t space[] = {2, 3, 7, 9}, weights[] = {3, 2, 4, 3, 2};
    static const struct {
        const char *field, *weights, *kept, *back;
    } cases[] = {{"S(2)", "S(3)", "S(3)", "S(2)"},
                 {"S(2)", "R", NULL, "S(2)"},
                 {"S(2)", "S(0)", NULL, NULL},
                 {"S(3)", "S(2)", NULL, NULL},
                 {"S(1)", "S(1)", NULL, NULL}};

    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        sherd_tensor *u0 = sherd_require_grad(saw(world, 4, space, 37, 17), true);
        sherd_tensor *w0 = sherd_require_grad(saw(world, 5, weights, 29, 13), true);
        sherd_tensor *u = laid(u0, cases[i].field), *w = laid(w0, cases[i].weights);
        sherd_tensor *v0 = mixed(u0, w0, NULL, NULL);
        sherd_tensor *v = mixed(u, w, cases[i].kept, cases[i].back);
        near(v, sherd_tensor_read(v0), v0->count, 1);
        sherd_backward(sherd_sum(sherd_mul(v, v)));
        sherd_backward(sherd_sum(sherd_mul(v0, v0)));
        near(sherd_grad(u), sherd_tensor_read(sherd_grad(u0)), u0->count, 1);
        near(sherd_grad(w), sherd_tensor_read(sherd_grad(w0)), w0->count, 1);
        if (!CHECK_OK(sherd_world_check(world)))
            fprintf(stderr, "case %d: %s\n", i, sherd_world_error(world));
        sherd_scope_end(world);
    }
}

static int64_t received(sherd_world *world)
{
    int64_t sum = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        sum += sherd_comm_get(world, i).bytes_received;
    return sum;
}

/* One all-to-all of 4 of 17 frequencies across on the way in, one on the way out; in backward too. */
static void what_is_kept_travels(sherd_world *world)
{
    static const int64_t space[] = {1, 2, 8, 32}, weights[] = {2, 2, 4, 4, 2};
    int64_t p = sherd_world_ranks(world), each = 2 * (8 - 8 / p) * (4 / p) * 2 * 8;
    sherd_tensor *u = laid(saw(world, 4, space, 37, 17), "S(2)");
    sherd_tensor *w = laid(saw(world, 5, weights, 29, 13), "S(3)");

    sherd_comm_reset(world);
    sherd_tensor *v = mixed(u, w, "S(3)", "S(2)");
    sherd_tensor_read(v);
    CHECK_EQ(received(world), 2 * each);
    CHECK_EQ(sherd_comm_calls(world, NULL), p == 1 ? 0 : 2);
    sherd_comm_reset(world);
    sherd_backward_with(&v, &(sherd_tensor *){sherd_detach(v)}, 1, NULL);
    sherd_tensor_read(sherd_grad(u));
    CHECK_EQ(received(world), 2 * each);
    CHECK_EQ(sherd_comm_calls(world, NULL), p == 1 ? 0 : 2);
    CHECK_OK(sherd_world_check(world));
}

/* Element k of a dim is frequency k, or k - n: it stays that of the same frequency. */
static void frequencies_stay_what_they_are(sherd_world *world)
{
    for (int64_t n = 1; n <= 6; n++)
        for (int64_t to = 1; to <= 8; to++) {
            const int64_t shape[] = {n, 2}, kept = n < to ? n : to;
            double x[12];
            sherd_scope_begin(world);
            for (int64_t k = 0; k < 2 * n; k++)
                x[k] = (double)(k + 1);
            sherd_tensor *a = sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, 2, x));
            const double *y =
                sherd_tensor_read(sherd_full(sherd_fft_resize(laid(a, "S(0)"), -1, to)));
            for (int64_t k = 0; k < to && CHECK(y != NULL); k++) {
                int64_t f = k < kept - kept / 2 ? k : k >= to - kept / 2 ? k - to + n : -1;
                CHECK_EQ((int)y[2 * k], f < 0 ? 0 : (int)x[2 * f]);
                CHECK_EQ((int)y[2 * k + 1], f < 0 ? 0 : (int)x[2 * f + 1]);
            }
            sherd_scope_end(world);
        }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_layer_is_as_in_pytorch), {1, 2, 3, 4}},
    {TEST(any_cuts_are_one_rank), {1, 2, 3, 4}},
    {TEST(what_is_kept_travels), {1, 2, 4}},
    {TEST(frequencies_stay_what_they_are), {1, 2, 3}},
};
CHECK_MAIN(tests)
