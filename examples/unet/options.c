/* SPDX-License-Identifier: Apache-2.0 */
/* The command line. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "unet.h"

enum { MESH = 1, SIZE, BATCH, STEPS, CHANNELS, LEVELS, RATE, SEED, FIELDS, THREADS };

static const struct option list[] = {
    {"ranks", required_argument, NULL, 'n'},
    {"mesh", required_argument, NULL, MESH},
    {"size", required_argument, NULL, SIZE},
    {"batch", required_argument, NULL, BATCH},
    {"steps", required_argument, NULL, STEPS},
    {"channels", required_argument, NULL, CHANNELS},
    {"levels", required_argument, NULL, LEVELS},
    {"lr", required_argument, NULL, RATE},
    {"seed", required_argument, NULL, SEED},
    {"fields", required_argument, NULL, FIELDS},
    {"threads", no_argument, NULL, THREADS},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

void options_help(FILE *file)
{
    fprintf(
        file,
        "unet [options]: a U-Net that learns to take noise away from fields, split over ranks\n\n"
        "  -n, --ranks N       how many processes train [2]\n"
        "  --mesh dp=A,x=B,y=C the batch in A parts, rows in B, columns in C [all ranks on x]\n"
        "  --size HxW          rows and columns of an image [45x38]\n"
        "  --batch N           images in a step, over all ranks [4]\n"
        "  --steps N           training steps [20]\n"
        "  --channels N        of the first level; each level doubles them [16]\n"
        "  --levels N          how often the size is halved, up to 6 [2]\n"
        "  --lr X              learning rate [0.002]\n"
        "  --seed N            of first values, images and noise [1]\n"
        "  --fields FILE       take slices of this .npy field for images (see examples/heat)\n"
        "  --threads           ranks are threads of one process\n"
        "  -h, --help          this text\n");
}

static bool read_count(int64_t *out, const char *name, int64_t low, int64_t high, char *error)
{
    char *end;

    errno = 0;
    long long value = strtoll(optarg, &end, 10);
    *out = value;
    if (!errno && end != optarg && !*end && value >= low && value <= high)
        return true;
    snprintf(error, LINE_BYTES, "--%s: \"%.100s\" is not a whole number from %lld to %lld", name,
             optarg, (long long)low, (long long)high);
    return false;
}

static bool read_size(options *o, char *error)
{
    long long height, width;
    char rest;

    if (sscanf(optarg, "%lldx%lld%c", &height, &width, &rest) == 2 && height > 0 && width > 0 &&
        height <= 1 << 20 && width <= 1 << 20) {
        o->height = height;
        o->width = width;
        return true;
    }
    snprintf(error, LINE_BYTES, "--size: \"%.100s\" is not rows x columns, such as 45x38", optarg);
    return false;
}

static bool read_rate(options *o, char *error)
{
    char *end;

    o->rate = strtod(optarg, &end);
    if (end != optarg && !*end && o->rate > 0 && o->rate < 1000)
        return true;
    snprintf(error, LINE_BYTES, "--lr: \"%.100s\" is not a number above 0 and below 1000", optarg);
    return false;
}

static bool read_option(options *o, int which, char *error)
{
    int64_t ranks;

    switch (which) {
    case 'n':
        if (!read_count(&ranks, "ranks", 1, SHERD_MAX_RANKS, error))
            return false;
        o->ranks = (int)ranks;
        return true;
    case MESH:
        o->mesh = optarg;
        return true;
    case SIZE:
        return read_size(o, error);
    case BATCH:
        return read_count(&o->batch, "batch", 1, 1 << 20, error);
    case STEPS:
        return read_count(&o->steps, "steps", 1, 1 << 30, error);
    case CHANNELS:
        return read_count(&o->channels, "channels", 1, 1 << 16, error);
    case LEVELS:
        return read_count(&o->levels, "levels", 0, 6, error);
    case RATE:
        return read_rate(o, error);
    case SEED:
        return read_count(&o->seed, "seed", 0, INT64_MAX, error);
    case FIELDS:
        o->fields = optarg;
        return true;
    case THREADS:
        return o->threads = true;
    case 'h':
        return o->help = true;
    default:
        snprintf(error, LINE_BYTES, "there is no such option, or its value is missing; see --help");
        return false;
    }
}

bool options_parse(options *out, int argc, char **argv, char *error)
{
    int which;

    *out = (options){.height = 45,
                     .width = 38,
                     .batch = 4,
                     .steps = 20,
                     .channels = 16,
                     .levels = 2,
                     .seed = 1,
                     .rate = 0.002};
    opterr = 0;
    while ((which = getopt_long(argc, argv, "n:h", list, NULL)) != -1)
        if (!read_option(out, which, error))
            return false;
    if (optind == argc)
        return true;
    snprintf(error, LINE_BYTES, "\"%.100s\" is no option", argv[optind]);
    return false;
}
