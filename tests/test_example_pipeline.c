/* SPDX-License-Identifier: Apache-2.0 */
/* The example of stages: the same losses on every mesh, lower ones in the end, one line for bad
 * input. */
#define CHECK_PURE
#include "check.h"
#include "program.h"

#define PIPELINE SHERD_BUILD_DIR "/examples/pipeline "

enum { LOSSES = 4 };

/* The losses of steps 0, 10, 20 and 30; -1: it failed, or went on for fewer. */
static void run(const char *arguments, double loss[LOSSES])
{
    char line[512];

    snprintf(line, sizeof line, PIPELINE "%s", arguments);
    const program_end *end = program_run(line);
    const char *at = end->out;
    if (!CHECK_EQ(end->status, 0))
        fprintf(stderr, "%s\n%s", line, end->err);
    CHECK_EQ(end->left, 0);
    for (int i = 0; i < LOSSES; i++) {
        at = at ? strstr(at, "loss ") : NULL;
        loss[i] = at ? atof(at + 5) : -1;
        at = at ? at + 5 : NULL;
    }
}

static void losses_are_the_same_on_every_mesh(void)
{
    /* mesh, stages, microbatches; layers, dim, batch, context, schedule; of each three the first is
     * in the short form, for 11 steps */
    static const char *const meshes[][2] = {{"pp=2,dp=2,tp=2 4 4", "4"},
                                            {"pp=2,dp=1,tp=1 2 4", "4"},
                                            {"pp=2,dp=1,tp=1 4 8", "4"},
                                            {"pp=3,dp=1,tp=1 3 4", "4 64 16 32 gpipe"},
                                            {"pp=3,dp=1,tp=1 4 2", "4"},
                                            {"pp=2,dp=2,tp=1 3 2", "4"},
                                            {"pp=2,dp=1,tp=2 4 4", "4 64 16 32 zero"},
                                            {"pp=2,dp=1,tp=2 2 16", "4"},
                                            {"pp=1,dp=1,tp=1 4 4", "4"},
                                            {"pp=2,dp=1,tp=1 4 4", "4 64 16 32 zero_v"}};
    double one[LOSSES], loss[LOSSES];
    int losses = check_stride(2) == 1 ? LOSSES : 2;

    run("pp=1,dp=1,tp=1 1 1 31 4", one);
    CHECK(one[0] > 4 && one[LOSSES - 1] < 2.1); /* ln 61 = 4.11; ln 4 can be reached */
    for (int m = 0; m < LEN(meshes); m += check_stride(3)) {
        char line[128];
        snprintf(line, sizeof line, "%s %d %s", meshes[m][0], 10 * losses - 9, meshes[m][1]);
        run(line, loss);
        for (int i = 0; i < losses; i++)
            if (!CHECK_NEAR(loss[i], one[i], 1e-4))
                fprintf(stderr, "%s\n", line);
    }
}

static void bad_input_is_one_line(void)
{
    static const char *const lines[][2] = {
        {"pp=2", "MESH must be"},
        {"pp=0,dp=1,tp=1", "MESH must be"},
        {"pp=2,dp=1,tp=1,", "MESH must be"},
        {"pp=2,dp=1,tp=1 1", "STAGES must be"},
        {"pp=2,dp=1,tp=1 5", "LAYERS must be"},
        {"pp=2,dp=1,tp=1 2 3", "MICROBATCHES must divide"},
        {"pp=2,dp=1,tp=1 2 4 0", "STEPS, BATCH and CONTEXT"},
        {"pp=2,dp=1,tp=1 2 4 10 4 40", "DIM must be"},
        {"pp=2,dp=1,tp=1 2 4 9 4 64 16 32 two", "SCHEDULE must be"},
        {"pp=2,dp=1,tp=1 3 4 9 4 64 16 32 zero_v", "STAGES must be twice"},
        {"pp=2,dp=2,tp=1 x", "STAGES must be"}};
    const program_end *end =
        program_run(SHERD " dry -n 3 --rank 2 --rates f32=1 " PIPELINE "pp=2,dp=1,tp=1");

    CHECK_EQ(end->status, 2);
    CHECK(strstr(end->err, "pipeline: MESH pp=2,dp=1,tp=1 has 2 ranks, but there are 3\n"));

    for (int i = 0; i < LEN(lines); i++) {
        char line[512];
        snprintf(line, sizeof line, PIPELINE "%s", lines[i][0]);
        end = program_run(line);
        CHECK_EQ(end->status, 2);
        CHECK(strstr(end->err, lines[i][1]) != NULL);
        CHECK(strchr(end->err, '\n') == end->err + strlen(end->err) - 1);
    }
}

/* Of a dry world there may be more ranks than of a real one. */
static void dry_meshes_have_any_number_of_ranks(void)
{
    const program_end *end = program_run(
        SHERD " dry -n 2000 --rank 0,1000 --rates f32=1e12,f64=1e12,half=1e12,memory=1e12 " PIPELINE
              "pp=2,dp=1000,tp=1 2 1 1 2 32 1000 2");

    CHECK_EQ(end->status, 0);
    CHECK(strstr(end->out, "rank 1000 of 2000"));
    end = program_run(PIPELINE "pp=2,dp=1000,tp=1 2 1 1 2 32 1000 2");
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "2000 ranks are more than the 1024"));
}

static const check_test tests[] = {{TEST(losses_are_the_same_on_every_mesh)},
                                   {TEST(bad_input_is_one_line)},
                                   {TEST(dry_meshes_have_any_number_of_ranks)}};
CHECK_MAIN(tests)
