/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPT example computes the same numbers on every mesh. A small model whose heads, features,
 * positions and batch divide by few numbers of ranks is trained as a program; its reports are
 * compared with that of one rank.
 */
#define CHECK_PURE
#include <jansson.h>
#include <math.h>

#include "check.h"
#include "program.h"

enum { STEPS = 8 };

#define SMALL                                                                           \
    GPT " --layers 2 --dim 48 --heads 4 --context 17 --batch 8 --steps 8 --dropout 0.1" \
        " --sample 0 --text " SHERD_SOURCE_DIR "/README.md --json "

/* Run the small model with some options; its report, or NULL. */
static json_t *run_once(const char *options)
{
    char path[] = "/tmp/sherd-report-XXXXXX", line[1024];
    int fd = mkstemp(path);
    json_t *report;

    if (!CHECK(fd >= 0))
        return NULL;
    close(fd);
    snprintf(line, sizeof line, SMALL "%s %s", path, options);
    const program_end *end = program_run(line);
    report = json_load_file(path, 0, NULL);
    if (!CHECK_EQ(end->status, 0) || !CHECK(report))
        fprintf(stderr, "%s\n%s", line, end->err);
    CHECK_EQ(end->left, 0);
    unlink(path);
    return report;
}

/* The same; what was asked for before is not run again. */
static json_t *train(const char *options)
{
    static json_t *reports;

    reports = reports ? reports : json_object();
    if (!json_object_get(reports, options)) {
        json_t *report = run_once(options);
        if (report)
            json_object_set_new(reports, options, report);
    }
    return json_incref(json_object_get(reports, options));
}

static double value(const json_t *report, const char *key, int i)
{
    return json_number_value(json_array_get(json_object_get(report, key), (size_t)i));
}

/* The largest relative difference of two reports in an array of numbers. */
static double difference(const json_t *a, const json_t *b, const char *key)
{
    double worst = 0;

    CHECK_EQ(json_array_size(json_object_get(a, key)), STEPS);
    CHECK_EQ(json_array_size(json_object_get(b, key)), STEPS);
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(value(a, key, i) - value(b, key, i)) / fabs(value(a, key, i)));
    return worst;
}

/* Of each three the first is in the short form. */
static const char *const meshes[] = {
    "-n 3",
    "--mesh tp=2",
    "--mesh tp=4",
    "--mesh dp=2",
    "--mesh tp=5",
    "--mesh dp=3",
    "--mesh tp=2 --sequence-parallel",
    "--mesh dp=2,tp=2",
    "--mesh tp=3 --sequence-parallel",
    "--mesh dp=2,tp=2 --shard-parameters --sequence-parallel --keep-gathered",
    "--mesh tp=2 --sequence-parallel --keep-gathered",
    "--mesh dp=2,tp=3 --sequence-parallel --input-reshard",
    "--mesh tp=3 --threads",
    "--mesh dp=2,tp=3",
    "--mesh dp=2,tp=2 --shard-parameters --sequence-parallel --input-reshard",
};

static void every_mesh_trains_like_one_rank(void)
{
    json_t *one = train("-n 1");

    for (int i = 0; one && i < LEN(meshes); i += check_stride(3)) {
        json_t *many = train(meshes[i]);
        double loss = many ? difference(one, many, "losses") : 1;
        double norm = many ? difference(one, many, "grad_norms") : 1;
        bool same = CHECK_NEAR(loss, 0, 1e-4);
        same &= CHECK_NEAR(norm, 0, 1e-4);
        CHECK_NEAR(json_number_value(json_object_get(many, "max_rel_diff_vs_1_rank")), 0, 1e-4);
        if (!same)
            fprintf(stderr, "with %s\n", meshes[i]);
        json_decref(many);
    }
    json_decref(one);
}

/* To what 16 bits round: bf16 has 8 bits, f16 11. */
static void sixteen_bits_train_as_f32_does_on_every_mesh(void)
{
    static const char *const how[] = {"-n 1", "--mesh tp=2", "--mesh dp=2,tp=2 --sequence-parallel",
                                      "--mesh dp=2", "--mesh dp=2,tp=2 --shard-parameters"};
    static const char *const dtype[] = {"bf16", "f16"};
    static const double within[] = {4e-3, 1e-3};
    json_t *exact = train("-n 1");

    for (int d = 0; d < LEN(dtype); d++) {
        json_t *alone = NULL;
        for (int i = 0; exact && i < (d ? 3 : LEN(how)); i += check_stride(2)) {
            char options[128];
            snprintf(options, sizeof options, "%s --dtype %s", how[i], dtype[d]);
            json_t *report = train(options);
            bool same = CHECK_NEAR(report ? difference(exact, report, "losses") : 1, 0, within[d]);
            alone = alone ? alone : json_incref(report);
            same &= CHECK_NEAR(report ? difference(alone, report, "losses") : 1, 0, within[d]);
            CHECK_TEXT(json_string_value(json_object_get(report, "dtype")), dtype[d]);
            if (!same)
                fprintf(stderr, "with %s\n", options);
            json_decref(report);
        }
        json_decref(alone);
    }
    json_decref(exact);
}

/* Experts over dp, their features over tp, with what else may be split. */
static void experts_train_alike_on_every_mesh(void)
{
    static const char *const how[] = {"--mesh dp=2,tp=2 --experts 5 --sequence-parallel",
                                      "--mesh tp=2 --experts 5", "--mesh dp=2 --experts 5",
                                      "--mesh dp=3 --experts 5 --shard-parameters",
                                      "--mesh dp=2,tp=2 --experts 5"};
    json_t *one = train("-n 1 --experts 5"), *other = train("-n 1");

    CHECK(difference(one, other, "losses") > 1e-3);
    for (int i = 0; one && i < LEN(how); i += check_stride(3)) {
        json_t *many = train(how[i]);
        bool same = CHECK_NEAR(many ? difference(one, many, "losses") : 1, 0, 1e-4);
        same &= CHECK_NEAR(many ? difference(one, many, "grad_norms") : 1, 0, 1e-4);
        if (!same)
            fprintf(stderr, "with %s\n", how[i]);
        json_decref(many);
    }
    json_decref(one);
    json_decref(other);
}

/* In zigzag order dropout draws other numbers than in order. */
static void sequences_in_parts_train_like_whole_ones(void)
{
    static const char *const how[] = {
        "--mesh cp=2 --dropout 0", "--mesh cp=3,dp=2 --dropout 0 --shard-parameters",
        "--mesh tp=2,cp=2,dp=2 --dropout 0 --sequence-parallel --shard-parameters",
        "--mesh cp=2,tp=2 --dropout 0", "--mesh cp=2 --dropout 0 --in-order"};
    json_t *one = train("-n 1 --dropout 0");

    for (int i = 0; one && i < LEN(how); i += check_stride(3)) {
        json_t *many = train(how[i]);
        bool same = CHECK_NEAR(many ? difference(one, many, "losses") : 1, 0, 1e-4);
        same &= CHECK_NEAR(many ? difference(one, many, "grad_norms") : 1, 0, 1e-4);
        CHECK_NEAR(json_number_value(json_object_get(many, "max_rel_diff_vs_1_rank")), 0, 1e-4);
        if (!same)
            fprintf(stderr, "with %s\n", how[i]);
        json_decref(many);
    }
    json_decref(one);
}

/* Rounding of gradients is amplified where a matrix has small singular values. */
static void muon_trains_alike_on_every_mesh(void)
{
    static const char *const how[] = {"--mesh tp=2 --muon", "--mesh dp=2,tp=3 --muon",
                                      "--mesh dp=2,tp=2 --muon --shard-parameters"};
    json_t *one = train("-n 1 --muon"), *other = train("-n 1");

    CHECK(difference(one, other, "losses") > 1e-3);
    for (int i = 0; one && i < LEN(how); i += check_stride(2)) {
        json_t *many = train(how[i]);
        if (!CHECK_NEAR(many ? difference(one, many, "losses") : 1, 0, 2e-4))
            fprintf(stderr, "with %s\n", how[i]);
        json_decref(many);
    }
    json_decref(other);
    json_decref(one);
}

static void training_learns(void)
{
    json_t *report = train("--mesh tp=2 --dropout 0");

    CHECK_NEAR(value(report, "losses", 0), log(256), 0.3);
    CHECK(value(report, "losses", STEPS - 1) < log(256) - 0.8);
    json_decref(report);
}

/* Calls in a step, over all kinds. */
static double calls(const json_t *report)
{
    double sum = 0;
    size_t i;
    json_t *one;

    json_array_foreach(json_object_get(report, "comm"), i, one)
    {
        sum += json_number_value(json_object_get(one, "calls"));
    }
    return sum;
}

static void heads_that_do_not_divide_move_nothing_more(void)
{
    static const char *const more[] = {"", " --sequence-parallel"};

    for (int i = 0; i < LEN(more); i++) {
        char two[80], three[80];
        snprintf(two, sizeof two, "--mesh tp=2%s", more[i]);
        snprintf(three, sizeof three, "--mesh tp=3%s", more[i]);
        json_t *a = train(two), *b = train(three);
        CHECK(calls(a) > 0);
        CHECK_NEAR(calls(a), calls(b), 0);
        json_decref(a);
        json_decref(b);
    }
}

static int64_t bytes(const json_t *report, const char *key)
{
    return (int64_t)json_integer_value(json_object_get(report, key));
}

static void input_reshard_changes_no_bit_and_saves_memory(void)
{
    static const char *const split[] = {"--mesh dp=2,tp=2", "--mesh tp=2", "--mesh tp=3",
                                        "--mesh tp=2 --sequence-parallel",
                                        "--mesh dp=2,tp=3 --sequence-parallel"};

    for (int i = 0; i < LEN(split); i += check_stride(3)) {
        bool sequence = strstr(split[i], "sequence") != NULL;
        char options[120];
        snprintf(options, sizeof options, "%s --input-reshard", split[i]);
        json_t *plain = train(split[i]), *packed = train(options);
        CHECK_NEAR(difference(plain, packed, "losses"), 0, 0);
        CHECK_NEAR(difference(plain, packed, "grad_norms"), 0, 0);
        CHECK(bytes(packed, "saved_bytes") < bytes(plain, "saved_bytes") + sequence);
        CHECK(bytes(packed, "peak_bytes") < bytes(plain, "peak_bytes") + sequence);
        json_decref(plain);
        json_decref(packed);
    }
}

/* The same losses as plain data parallelism, with less memory. */
static void sharded_parameters_train_alike_with_less(void)
{
    static const char *const split[] = {"--mesh dp=3", "--mesh dp=2,tp=2"};

    for (int i = 0; i < LEN(split); i++) {
        char options[120];
        snprintf(options, sizeof options, "%s --shard-parameters", split[i]);
        json_t *plain = train(split[i]), *sharded = train(options);
        int64_t ranks = i == 0 ? 3 : 2;
        CHECK_NEAR(difference(plain, sharded, "losses"), 0, 1e-5);
        CHECK_NEAR(difference(plain, sharded, "grad_norms"), 0, 1e-4);
        /* Parts are uneven: at most a tenth more. */
        CHECK(bytes(sharded, "params_local") * ranks < bytes(plain, "params_local") * 11 / 10);
        CHECK(bytes(sharded, "peak_bytes") < bytes(plain, "peak_bytes"));
        json_decref(plain);
        json_decref(sharded);
    }
}

static const char *const keys[] = {
    "ranks",        "mesh",       "transport",   "dtype",        "steps",
    "seed",         "losses",     "grad_norms",  "tokens_per_s", "params_total",
    "params_local", "peak_bytes", "saved_bytes", "comm",         "max_rel_diff_vs_1_rank",
};

static void the_report_has_its_keys_and_no_others(void)
{
    json_t *report = train("--mesh dp=2,tp=2");

    for (int i = 0; i < LEN(keys); i++)
        if (!CHECK(json_object_get(report, keys[i]) != NULL))
            fprintf(stderr, "%s is missing\n", keys[i]);
    CHECK_EQ(json_object_size(report), LEN(keys));
    CHECK_TEXT(json_string_value(json_object_get(report, "mesh")), "dp=2,tp=2");
    CHECK_EQ(bytes(report, "ranks"), 4);
    CHECK_EQ(bytes(report, "steps"), STEPS);
    CHECK(bytes(report, "params_local") < bytes(report, "params_total"));
    CHECK(bytes(report, "saved_bytes") < bytes(report, "peak_bytes"));
    json_decref(report);
}

static void sherd_run_starts_the_same_training(void)
{
    char path[] = "/tmp/sherd-report-XXXXXX", line[1024];
    int fd = mkstemp(path);
    json_t *spawned = train("--mesh tp=2"), *launched;

    close(fd);
    snprintf(line, sizeof line, SHERD " run -n 2 -- " SMALL "%s", path);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 0);
    CHECK_TEXT(end->err, "");
    launched = json_load_file(path, 0, NULL);
    CHECK_NEAR(difference(spawned, launched, "losses"), 0, 0);
    CHECK_EQ(bytes(launched, "ranks"), 2);
    json_decref(spawned);
    json_decref(launched);
    unlink(path);
}

static const check_test tests[] = {
    {TEST(every_mesh_trains_like_one_rank)},
    {TEST(sixteen_bits_train_as_f32_does_on_every_mesh)},
    {TEST(experts_train_alike_on_every_mesh)},
    {TEST(sequences_in_parts_train_like_whole_ones)},
    {TEST(muon_trains_alike_on_every_mesh)},
    {TEST(training_learns)},
    {TEST(heads_that_do_not_divide_move_nothing_more)},
    {TEST(input_reshard_changes_no_bit_and_saves_memory)},
    {TEST(sharded_parameters_train_alike_with_less)},
    {TEST(the_report_has_its_keys_and_no_others)},
    {TEST(sherd_run_starts_the_same_training)},
};
CHECK_MAIN(tests)
