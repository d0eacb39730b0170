/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields and images on the GPU: operators that read around the pieces of ranks compute there what
 * they compute on the CPU, with their gradients, on any mesh. SHERD_DEVICE is set for this program;
 * the GPU is emulated, and runs late.
 */
#include <sherd.h>

#include "modules.h"
#include "tensor/tensor.h"

enum { OPERANDS = 3, NUMBERS = 1 + OPERANDS };

/* The function whose operators are to leave what they make in the GPU's memory alone; or NULL. */
static _Thread_local const char *looks;

static sherd_tensor *made(sherd_tensor *t)
{
    bool only_there = t->count == 0 || (t->storage->there && !t->storage->here);

    if (looks && !CHECK(only_there))
        fprintf(stderr, "%s: %s\n", looks, sherd_tensor_text(t));
    return t;
}

static sherd_tensor *f_conv(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_conv(x, w, b, &(sherd_conv_options){.before = {1, 1}, .after = {1, 1}});
}

static sherd_tensor *f_strided(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const sherd_conv_options o = {
        .stride = {2, 1}, .dilation = {1, 2}, .before = {0, 1}, .after = {1, 2}, .groups = 2};

    return sherd_conv(x, w, b, &o);
}

static sherd_tensor *f_transposed(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_conv_transposed(
        x, w, b, &(sherd_conv_options){.stride = {2, 2}, .before = {1, 0}, .extra = {1, 0}});
}

static sherd_tensor *f_conv1(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_conv(x, w, b, &(sherd_conv_options){.same = true});
}

static sherd_tensor *f_conv3(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_conv(x, w, b, &(sherd_conv_options){.before = {1, 0, 1}, .stride = {1, 2, 1}});
}

static sherd_tensor *f_group(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_group_norm(x, 2, w, b, 1e-3);
}

static sherd_tensor *f_batch(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_batch_norm(x, &(sherd_batch_norm_options){.weight = w, .bias = b});
}

static sherd_tensor *f_instance(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    return sherd_instance_norm(x, &(sherd_batch_norm_options){.weight = w, .bias = b});
}

/* By given moments: those of a second batch, of which the running averages are. */
static sherd_tensor *f_fixed(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    sherd_batch_norm_options o = {.weight = w, .running_mean = sherd_detach(b)};

    o.running_variance = sherd_add_scalar(sherd_square(o.running_mean), 1);
    o.fixed = true;
    return sherd_batch_norm(x, &o);
}

static sherd_tensor *f_max_pool(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const sherd_pool_options o = {.kernel = {3, 2}, .stride = {2, 1}, .padding = {1, 0}};
    sherd_tensor *at = NULL, *y = sherd_max_pool(x, &o, &at);

    (void)w;
    (void)b;
    made(at);
    return y;
}

static sherd_tensor *f_avg_pool(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const int64_t parts[] = {3, 2};

    (void)w;
    (void)b;
    x = made(sherd_avg_pool(
        x, &(sherd_pool_options){.kernel = {3, 2}, .stride = {1, 1}, .padding = {1, 0}}));
    return sherd_adaptive_avg_pool(x, parts);
}

static sherd_tensor *f_interpolate(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    static const sherd_interpolation kinds[] = {SHERD_INTERPOLATE_CUBIC, SHERD_INTERPOLATE_LINEAR,
                                                SHERD_INTERPOLATE_NEAREST_EXACT};
    static const int64_t size[][2] = {{6, 9}, {11, 4}, {7, 7}};

    (void)w;
    (void)b;
    for (int i = 0; i < 3; i++)
        x = made(sherd_interpolate(
            x, &(sherd_interpolate_options){.kind = kinds[i], .size = {size[i][0], size[i][1]}}));
    return x;
}

static sherd_tensor *f_borders(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const sherd_pad_options o = {
        .before = {[2] = {2, SHERD_BORDER_PERIODIC}, [3] = {1, SHERD_BORDER_REFLECT}},
        .after = {[2] = {1, SHERD_BORDER_REFLECT}, [3] = {2, SHERD_BORDER_CONSTANT}},
        .value = 3};

    (void)w;
    (void)b;
    return sherd_pad_with(x, &o);
}

/* A Fourier layer: of 2 dims, some of the spectrum times weights, and back. */
static sherd_tensor *f_fourier(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const int dims[] = {1, 2};

    (void)b;
    sherd_tensor *y = made(sherd_rfft(x, dims, 2, SHERD_FFT_BACKWARD));
    return sherd_irfft(made(sherd_complex_mul(y, w)), dims, 2, 6, SHERD_FFT_BACKWARD);
}

static sherd_tensor *f_spectrum(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b)
{
    const int dims[] = {0, 1};

    (void)w;
    (void)b;
    return sherd_ifft(sherd_fft(x, dims, 2, SHERD_FFT_ORTHO), dims, 1, SHERD_FFT_FORWARD);
}

typedef sherd_tensor *(*function)(sherd_tensor *x, sherd_tensor *w, sherd_tensor *b);

/* Shapes of x, which is spread, and of two others, which every rank has. `cut`: of more ranks that
 * share channels a group is on several, which exchange numbers by the CPU. */
static const struct {
    const char *name;
    function f;
    int cut;
    int64_t shape[OPERANDS][6]; /* 0 ends it */
} functions[] = {
    {"conv", f_conv, 0, {{3, 2, 7, 5}, {3, 2, 3, 3}, {3}}},
    {"strided", f_strided, 0, {{2, 4, 9, 5}, {4, 2, 3, 2}, {4}}},
    {"transposed", f_transposed, 0, {{2, 2, 5, 4}, {2, 3, 3, 2}, {3}}},
    {"conv1", f_conv1, 0, {{2, 3, 8}, {2, 3, 3}, {2}}},
    {"conv3", f_conv3, 0, {{1, 2, 4, 5, 3}, {2, 2, 3, 1, 2}, {2}}},
    {"group", f_group, 2, {{3, 4, 5, 3}, {4}, {4}}},
    {"batch", f_batch, 0, {{3, 2, 5, 3}, {2}, {2}}},
    {"instance", f_instance, 0, {{2, 3, 9}, {3}, {3}}},
    {"max_pool", f_max_pool, 0, {{2, 2, 7, 5}}},
    {"avg_pool", f_avg_pool, 0, {{2, 2, 7, 5}}},
    {"interpolate", f_interpolate, 0, {{1, 2, 5, 6}}},
    {"borders", f_borders, 0, {{1, 2, 5, 6}}},
    {"fourier", f_fourier, 0, {{2, 5, 6}, {4, 2}}},
    {"spectrum", f_spectrum, 0, {{4, 3, 2}}},
    {"fixed", f_fixed, 0, {{3, 4}, {4}, {4}}},
};

static int dims_of(const int64_t *shape)
{
    int ndim = 0;

    while (ndim < 6 && shape[ndim])
        ndim++;
    return ndim;
}

static void run(sherd_world *world, int f, const sherd_mesh *mesh, const char *placements,
                sherd_dtype dtype, double out[NUMBERS][MOST], int64_t count[NUMBERS])
{
    sherd_tensor *in[OPERANDS] = {NULL};

    sherd_scope_begin(world);
    for (int i = 0; i < OPERANDS; i++) {
        const int64_t *shape = functions[f].shape[i];
        if (!shape[0])
            continue;
        in[i] = spread(wave(world, dtype, dims_of(shape), shape, 3 + 2 * i, 1, 0), mesh,
                       i == 0 ? placements : "R");
        in[i] = sherd_require_grad(sherd_detach(in[i]), true);
    }
    sherd_tensor *y = made(functions[f].f(in[0], in[1], in[2]));
    count[0] = whole(y, out[0]);
    sherd_backward(sherd_sum(sherd_mul(y, y)));
    for (int i = 0; i < OPERANDS; i++) {
        sherd_tensor *grad = in[i] ? sherd_grad(in[i]) : NULL;
        if (grad)
            made(grad);
        count[i + 1] = whole(grad, out[i + 1]);
    }
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static bool on_the_cpu(sherd_call *call, void *context)
{
    int *calls = context;

    ++*calls;
    return sherd_call_original(call);
}

static void put_handlers(sherd_world *world, int *calls, bool there)
{
    const sherd_op_handler handler = {.run = on_the_cpu, .context = calls};

    for (int i = 0; sherd_op_at(i); i++)
        if (sherd_op_at(i)->on_device)
            CHECK_OK(sherd_op_override(world, sherd_op_at(i)->name, SHERD_BELOW_TAPE,
                                       there ? &handler : NULL));
}

static _Thread_local double there[NUMBERS][MOST], here[NUMBERS][MOST];

static void compare(const char *name, const char *placements, sherd_dtype dtype,
                    const int64_t count[NUMBERS], const int64_t again[NUMBERS])
{
    for (int i = 0; i < NUMBERS; i++) {
        double worst = 0;
        CHECK_EQ(count[i], again[i]);
        for (int64_t k = 0; k < count[i]; k++)
            worst = fmax(worst, fabs(there[i][k] - here[i][k]) / (1 + fabs(here[i][k])));
        if (!CHECK(worst <= (dtype == SHERD_F64 ? 1e-12 : 2e-5)))
            fprintf(stderr, "%s %s %s, %d: %g\n", name, placements, sherd_dtype_name(dtype), i,
                    worst);
    }
}

/* By the GPU's kernels and by the CPU's, which a handler below the tape brings back. */
static void same_on_both(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)", "S(2)"};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64};
    const sherd_mesh *mesh = line_of_ranks(world);
    int calls = 0, ranks = sherd_world_ranks(world);

    for (int f = 0; f < LEN(functions); f++)
        for (int p = 0; p < LEN(placements); p++) {
            sherd_dtype dtype = dtypes[(f + p) % 2];
            int64_t count[NUMBERS], again[NUMBERS];
            if ((ranks == 1 && p > 1) || p > dims_of(functions[f].shape[0]))
                continue;
            bool cut = functions[f].cut && p == 2 && ranks > functions[f].cut;
            looks = cut ? NULL : functions[f].name;
            run(world, f, mesh, placements[p], dtype, there, count);
            looks = NULL;
            put_handlers(world, &calls, true);
            run(world, f, mesh, placements[p], dtype, here, again);
            put_handlers(world, &calls, false);
            compare(functions[f].name, placements[p], dtype, count, again);
        }
    CHECK(calls > 0);
}

static const check_test tests[] = {
    {TEST(same_on_both), {1, 2, 4}},
};

CHECK_MAIN(tests)
