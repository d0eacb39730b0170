/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Networks train alike with every set of kernels that this machine has (SHERD_KERNELS), in f32 and
 * in 16 bits: all losses are finite, and near those of the plain kernels. Tests of kernels try the
 * numbers that somebody thought of; a training comes to others, as to those that f32 products in
 * tiles once took into their neighbours: after 270 steps of the GPT example nothing was a number.
 *
 * In the short form a small network learns its table by heart, with products just large enough for
 * tiles, and many results of GELU that are tiny. With SHERD_PROOF=1 GPT examples are trained, too,
 * for as many steps as by default: a small one with each set, and the default with the best.
 */
#define CHECK_PURE
#include <jansson.h>
#include <math.h>
#include <sherd.h>

#include "check.h"
#include "program.h"
#include "vector/fast.h"

enum { WIDTH = 208, STEPS = 6, LAST = 20, SETS = 6 };

static const char *const dtypes[] = {"f32", "bf16", "f16"};

/* How many sets there are; the plain one, and then each that contains those before it. */
static int sets(const char *out[SETS])
{
    int n = 0;

    out[n++] = "reference";
    out[n++] = "simd128";
#if defined(__x86_64__)
    if (sherd__has_avx2())
        out[n++] = "avx2";
    if (sherd__has_avx512())
        out[n++] = "avx512";
    if (sherd__has_fast_pairs())
        out[n++] = "avx512_bf16";
    if (sherd__has_amx())
        out[n++] = "amx";
#endif
    return n;
}

/* ---- a small network ------------------------------------------------------------------------- */

/* y = down(gelu(up(x))) */
static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "up"), in->value[0]);

    out->value[0] = sherd_module_call(sherd_module_find(self, "down"), sherd_gelu(h));
    out->count = 1;
}

/* A network of one class for each of its inputs. The first layer's results spread so far that
 * GELU makes some of them less than 1e-34, beside others. */
static sherd_module *network(sherd_world *world)
{
    static const struct {
        const char *name;
        double deviation;
    } layers[] = {{"up", 0.28}, {"down", 0.02}};
    sherd_module *whole = NULL, *layer;

    CHECK_OK(sherd_module_create(&whole, world, forward, NULL));
    for (int i = 0; i < LEN(layers); i++) {
        const sherd_layer_options options = {
            .name = layers[i].name, .deviation = layers[i].deviation, .bias = true};
        CHECK_OK(sherd_linear_create(&layer, world, WIDTH, WIDTH, &options));
        CHECK_OK(sherd_module_add(whole, layers[i].name, layer));
    }
    return whole;
}

/* The losses of all steps; how many were made, all of them unless something failed. */
static int learn(sherd_world *world, sherd_dtype dtype, double losses[STEPS])
{
    static const int64_t shape[] = {WIDTH, WIDTH};
    const sherd_distribution normal = sherd_normal(0, 1);
    sherd_generator noise = sherd_generator_named("inputs");
    sherd_module *whole = network(world);
    sherd_optimizer *optimizer = NULL;
    int32_t classes[WIDTH];
    int made = 0;

    for (int i = 0; i < WIDTH; i++)
        classes[i] = i;
    CHECK_OK(sherd_adamw_create(&optimizer, whole, NULL));
    sherd_scope_begin(world);
    sherd_tensor *x = sherd_random(world, SHERD_F32, shape, 2, normal, &noise);
    sherd_tensor *y = sherd_from_data(world, SHERD_I32, shape, 1, classes);
    do {
        sherd_scope_begin(world);
        sherd_dtype before = sherd_set_autocast(world, dtype);
        sherd_tensor *loss = sherd_cross_entropy(sherd_module_call(whole, x), y);
        sherd_set_autocast(world, before);
        sherd_backward(loss);
        losses[made] = sherd_item(loss);
        sherd_optimizer_step(optimizer, 0.05, 1);
        sherd_optimizer_clear(optimizer);
        sherd_scope_end(world);
    } while (CHECK_OK(sherd_world_check(world)) && ++made < STEPS);
    sherd_scope_end(world);
    sherd_optimizer_destroy(optimizer);
    sherd_module_destroy(whole);
    return made;
}

/* Zero steps where no world opens. */
static int learn_with(const char *set, const char *dtype, double losses[STEPS])
{
    sherd_dtype low = strcmp(dtype, "bf16") == 0  ? SHERD_BF16
                      : strcmp(dtype, "f16") == 0 ? SHERD_F16
                                                  : SHERD_DTYPE_NONE;
    sherd_world *world = NULL;
    int made = 0;

    setenv("SHERD_KERNELS", set, 1);
    if (CHECK_OK(sherd_world_alone(&world, NULL))) {
        made = learn(world, low, losses);
        CHECK_OK(sherd_world_close(world));
    }
    unsetenv("SHERD_KERNELS");
    return made;
}

/* Each loss is that of plain kernels, to what rounding leaves of it; the last is nearly nothing. */
static void a_network_learns_alike_with_every_set(void)
{
    static const double within[] = {1e-4, 1e-3, 1e-3};
    const char *set[SETS];
    double plain[STEPS], fast[STEPS];

    for (int d = 0; d < LEN(dtypes); d++)
        for (int s = 0, n = sets(set); s < n; s++) {
            double *losses = s ? fast : plain;
            bool good = CHECK_EQ(learn_with(set[s], dtypes[d], losses), STEPS);
            for (int i = 0; i < STEPS && good; i++)
                good = CHECK(isfinite(losses[i])) && CHECK_NEAR(losses[i], plain[i], within[d]);
            if (!good || !CHECK(losses[STEPS - 1] < 1e-3))
                fprintf(stderr, "with %s kernels, in %s\n", set[s], dtypes[d]);
        }
}

/* ---- the GPT example ------------------------------------------------------------------------- */

/* Its mean loss over the last steps, NaN if any loss is not finite. `set` NULL: the best. */
static double train(const char *set, const char *dtype, const char *size)
{
    char path[] = "/tmp/sherd-report-XXXXXX", line[1024];
    double sum = 0, last = 0;
    size_t i;
    json_t *one;
    int fd = mkstemp(path);

    if (!CHECK(fd >= 0))
        return NAN;
    close(fd);
    snprintf(line, sizeof line, GPT " --sample 0 --dtype %s --json %s%s", dtype, path, size);
    if (set)
        setenv("SHERD_KERNELS", set, 1);
    const program_end *end = program_run(line);
    unsetenv("SHERD_KERNELS");
    json_t *report = json_load_file(path, 0, NULL);
    unlink(path);
    json_t *losses = json_object_get(report, "losses");
    size_t count = json_array_size(losses);
    if (!CHECK_EQ(end->status, 0) || !CHECK(count > LAST))
        fprintf(stderr, "%s\n%s", line, end->err);
    json_array_foreach(losses, i, one)
    {
        double loss = json_number_value(one);
        sum += loss;
        last += i + LAST >= count ? loss / LAST : 0;
    }
    json_decref(report);
    return count > LAST && isfinite(sum) ? last : NAN;
}

/*
 * The smallest products that tiles take. At the default rate all sets and dtypes come to the same
 * loss. At a higher one activations become large soon, but a rate that differs by 1e-5 of itself
 * already changes the last losses by 0.04 in bf16: they need only be numbers, and not far away.
 */
static void the_gpt_example_trains_alike_with_every_set(void)
{
    static const struct {
        const char *size;
        double within;
    } ways[] = {{" -n 1 --layers 2 --dim 128 --heads 4 --context 64 --batch 8", 0.01},
                {" -n 1 --layers 2 --dim 128 --heads 4 --context 64 --batch 8 --lr 8e-3", 0.15}};
    const char *set[SETS];
    int n = sets(set);

    for (int w = 0; getenv("SHERD_PROOF") && w < LEN(ways); w++) {
        double first = NAN;
        for (int i = 0; i < LEN(dtypes) * n; i++) {
            const char *dtype = dtypes[i / n], *kernels = set[i % n];
            double loss = train(kernels, dtype, ways[w].size);
            first = i ? first : loss;
            printf("%s, %s kernels: %.4f nats a byte\n", dtype, kernels, loss);
            fflush(stdout);
            CHECK_NEAR(loss, first, ways[w].within);
        }
    }
}

/* As `make run` trains it. */
static void the_default_training_learns_in_every_dtype(void)
{
    double first = NAN;

    for (int d = 0; getenv("SHERD_PROOF") && d < LEN(dtypes); d++) {
        double loss = train(NULL, dtypes[d], "");
        first = d ? first : loss;
        printf("%s: %.4f nats a byte\n", dtypes[d], loss);
        CHECK(loss < 2);
        CHECK_NEAR(loss, first, 0.03);
    }
}

static const check_test tests[] = {
    {TEST(a_network_learns_alike_with_every_set)},
    {TEST(the_gpt_example_trains_alike_with_every_set)},
    {TEST(the_default_training_learns_in_every_dtype)},
};
CHECK_MAIN(tests)
