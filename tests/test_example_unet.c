/* SPDX-License-Identifier: Apache-2.0 */
/* The U-Net example: the same losses on every mesh, less memory a rank, images out of a file, and
 * one line for bad input. */
#define CHECK_PURE
#include <math.h>
#include <unistd.h>

#include "check.h"
#include "program.h"

#define UNET  SHERD_BUILD_DIR "/examples/unet"
#define SMALL UNET " --size 21x18 --steps 3 --channels 8 --batch 3"

enum { STEPS = 3 };

/* The losses that a run prints, and the most that a rank held; -1: it failed. */
typedef struct outcome {
    double loss[STEPS], mebibytes;
} outcome;

static outcome run(const char *line)
{
    const program_end *end = program_run(line);
    outcome o = {{-1, -1, -1}, -1};
    const char *at = end->out, *most = strstr(end->out, "at most ");

    if (!CHECK_EQ(end->status, 0))
        fprintf(stderr, "%s\n%s", line, end->err);
    CHECK_EQ(end->left, 0);
    for (int i = 0; i < STEPS && (at = strstr(at, "loss ")); i++, at++)
        o.loss[i] = atof(at + 5);
    if (most)
        o.mebibytes = atof(most + 8);
    return o;
}

static void losses_are_the_same_on_every_mesh(void)
{
    static const char *const meshes[] = {" -n 2",
                                         " -n 3",
                                         " -n 2 --mesh y=2",
                                         " -n 4 --mesh dp=2,x=2 --threads",
                                         " -n 4 --mesh x=2,y=2",
                                         " -n 8 --mesh dp=2,x=2,y=2"};
    outcome one = run(SMALL " -n 1"), all = one;

    CHECK(one.loss[STEPS - 1] > 0);
    for (int m = 0; m < LEN(meshes); m++) {
        char line[512];
        snprintf(line, sizeof line, "%s%s", SMALL, meshes[m]);
        all = run(line);
        for (int i = 0; i < STEPS; i++)
            if (!CHECK_NEAR(all.loss[i], one.loss[i], 1e-5 * one.loss[i]))
                fprintf(stderr, "%s\n", line);
        CHECK(all.mebibytes < one.mebibytes);
    }
}

/* A field of f64 as numpy writes it. */
static void write_field(const char *name, int a, int b, int c)
{
    FILE *file = fopen(name, "wb");
    char head[128];
    int n = snprintf(head, sizeof head,
                     "{'descr': '<f8', 'fortran_order': False, 'shape': (%d, %d, %d), }", a, b, c);

    memset(head + n, ' ', sizeof head - (size_t)n);
    head[117] = '\n';
    fwrite("\x93NUMPY\1\0v\0", 1, 10, file);
    fwrite(head, 1, 118, file);
    for (int i = 0; i < a * b * c; i++) {
        double x = sin(0.1 * (i % c)) * cos(0.2 * (i / c % b));
        fwrite(&x, sizeof x, 1, file);
    }
    fclose(file);
}

static void images_come_out_of_a_file(void)
{
    char name[] = "/tmp/sherd_unet_XXXXXX", line[512];
    int fd = mkstemp(name);

    close(fd);
    write_field(name, 3, 25, 30);
    snprintf(line, sizeof line, "%s -n 1 --fields %s", SMALL, name);
    outcome one = run(line);
    snprintf(line, sizeof line, "%s -n 3 --fields %s", SMALL, name);
    outcome three = run(line);
    for (int i = 0; i < STEPS; i++)
        CHECK_NEAR(three.loss[i], one.loss[i], 1e-5 * one.loss[i]);
    snprintf(line, sizeof line, "%s -n 2 --size 26x18 --fields %s", SMALL, name);
    const program_end *end = program_run(line);
    CHECK_EQ(end->status, 1);
    CHECK(strstr(end->err, "smaller than the images") != NULL);
    CHECK_EQ(program_lines(end->err), 1);
    unlink(name);
}

static void bad_input_ends_in_one_line(void)
{
    static const struct {
        const char *line;
        int status;
        const char *says;
    } calls[] = {
        {UNET " --frobnicate", 2, "--help"},
        {UNET " stray", 2, "\"stray\""},
        {UNET " --steps", 2, "--help"},
        {UNET " --size 20", 2, "\"20\""},
        {UNET " --size 20x", 2, "\"20x\""},
        {UNET " --size 20x20x20", 2, "--size"},
        {UNET " --levels 7", 2, "\"7\""},
        {UNET " --lr 0", 2, "--lr"},
        {UNET " -n 0", 2, "\"0\""},
        {UNET " -n 2 --mesh z=2", 1, "dp, x or y, not z"},
        {UNET " -n 2 --mesh x=3", 1, "x=3"},
        {UNET " --fields /nowhere/at/all", 1, "/nowhere/at/all"},
        {UNET " --fields " SHERD_SOURCE_DIR "/README.md", 1, "no .npy"},
    };

    for (int i = 0; i < LEN(calls); i++) {
        const program_end *end = program_run(calls[i].line);
        bool good = CHECK_EQ(end->status, calls[i].status);
        good = CHECK_EQ(program_lines(end->err), 1) && good;
        good = CHECK(strncmp(end->err, "unet: ", 6) == 0) && good;
        good = CHECK(strstr(end->err, calls[i].says) != NULL) && good;
        good = CHECK_EQ(end->left, 0) && good;
        if (!good)
            fprintf(stderr, "%s\n%s", calls[i].line, end->err);
    }
}

static const check_test tests[] = {
    {TEST(losses_are_the_same_on_every_mesh)},
    {TEST(images_come_out_of_a_file)},
    {TEST(bad_input_ends_in_one_line)},
};
CHECK_MAIN(tests)
