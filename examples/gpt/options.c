/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line. One table says what options there are; it drives reading them and the help
 * alike.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>

#include "options.h"

typedef enum kind { COUNT, REAL, FLAG, MESH, NAME, NAMES } kind;

typedef struct option {
    const char *name; /* after the two dashes */
    char letter;      /* after one dash; 0 = none */
    kind kind;
    size_t offset;     /* of its field in `gpt_options` */
    int64_t low, high; /* COUNT: both allowed; REAL: low allowed, high not */
    const char *value, *help;
} option;

#define FIELD(name) offsetof(gpt_options, name)

static const option table[] = {
    {"ranks", 'n', COUNT, FIELD(ranks), 1, SHERD_MAX_RANKS, "N", "how many processes train [2]"},
    {"mesh", 0, MESH, FIELD(dp), 0, 0, "dp=A,cp=B,tp=C",
     "the batch over A, sequences over B, products over C ranks [tp=N]"},
    {"layers", 0, COUNT, FIELD(layers), 1, 1000, "N", "transformer blocks"},
    {"dim", 0, COUNT, FIELD(dim), 1, 1 << 20, "N", "width of the model, a multiple of the heads"},
    {"heads", 0, COUNT, FIELD(heads), 1, 1 << 16, "N", "attention heads of a block"},
    {"experts", 0, COUNT, FIELD(experts), 0, 1 << 16, "N",
     "experts in place of each MLP, a byte goes through 2: sharded over dp, their features over "
     "tp"},
    {"context", 0, COUNT, FIELD(context), 1, 1 << 24, "N", "bytes that the model sees at once"},
    {"batch", 0, COUNT, FIELD(batch), 1, 1 << 24, "N", "sequences in a step, over all ranks"},
    {"steps", 0, COUNT, FIELD(steps), 1, 1 << 30, "N", "training steps"},
    {"lr", 0, REAL, FIELD(rate), 0, 1000, "X", "highest learning rate; warm-up, then cosine"},
    {"dtype", 0, NAME, FIELD(dtype), 0, 0, "T",
     "of products and attention: f32, bf16, or f16 with loss scaling [f32]"},
    {"dropout", 0, REAL, FIELD(dropout), 0, 1, "P", "probability, from 0 to below 1"},
    {"seed", 0, COUNT, FIELD(seed), 0, INT64_MAX, "N",
     "of first values, batches, dropout and sample"},
    {"in-order", 0, FLAG, FIELD(in_order), 0, 0, "",
     "sequences over cp stay in order: equal work only if attention moves to heads"},
    {"sequence-parallel", 0, FLAG, FIELD(sequence_parallel), 0, 0, "",
     "between the products each tp rank keeps some positions"},
    {"keep-gathered", 0, FLAG, FIELD(keep_gathered), 0, 0, "",
     "sequence parallel: keep gathered inputs for backward: more memory, less to move"},
    {"shard-parameters", 0, FLAG, FIELD(shard_parameters), 0, 0, "",
     "each dp and cp rank keeps its part of parameters, gradients and optimizer state"},
    {"input-reshard", 0, FLAG, FIELD(input_reshard), 0, 0, "",
     "keep activations that tp ranks share as shards"},
    {"muon", 0, FLAG, FIELD(muon), 0, 0, "",
     "Muon for the matrices of the blocks, AdamW for the rest"},
    {"text", 0, NAMES, FIELD(text), 0, 0, "FILE...",
     "train on these instead of licences or sherd's docs"},
    {"sample", 0, COUNT, FIELD(sample), 0, 1 << 24, "N", "bytes to write at the end"},
    {"json", 0, NAME, FIELD(json), 0, 0, "FILE", "write a report with all figures"},
    {"threads", 0, FLAG, FIELD(threads), 0, 0, "", "ranks are threads of one process"},
    {"help", 'h', FLAG, FIELD(help), 0, 0, "", "this text"},
};

enum { OPTIONS = sizeof table / sizeof table[0] };

static const gpt_options defaults = {
    .layers = 4,
    .dim = 192,
    .heads = 6,
    .context = 128,
    .batch = 16,
    .steps = 400,
    .seed = 1,
    .sample = 240,
    .rate = 3e-3,
    .dtype = "f32",
};

/* ---- one option ----------------------------------------------------------------------------- */

static bool read_count(const option *o, const char *text, int64_t *out, char *error)
{
    char *end = NULL;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < o->low || value > o->high) {
        snprintf(error, LINE_BYTES, "--%s: \"%.100s\" is not a whole number from %lld to %lld",
                 o->name, text, (long long)o->low, (long long)o->high);
        return false;
    }
    *out = value;
    return true;
}

static bool read_real(const option *o, const char *text, double *out, char *error)
{
    char *end = NULL;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= (double)o->low && value < (double)o->high)) {
        snprintf(error, LINE_BYTES, "--%s: \"%.100s\" is not a number from %lld to below %lld",
                 o->name, text, (long long)o->low, (long long)o->high);
        return false;
    }
    *out = value;
    return true;
}

/* "dp=2,tp=3": each axis at most once, in any order; one that is left out has extent 1. */
static bool read_mesh(const char *text, gpt_options *out, char *error)
{
    static const char *const names[] = {"dp=", "cp=", "tp="};
    int64_t extent[] = {0, 0, 0};
    const char *at = text;
    bool good = true;

    for (;;) {
        char *end = NULL;
        int axis = 0;
        while (axis < 3 && strncmp(at, names[axis], 3) != 0)
            axis++;
        long long value = axis == 3 ? 0 : strtoll(at + 3, &end, 10);
        good = axis < 3 && extent[axis] == 0 && end > at + 3 && value >= 1 && value <= 1 << 20;
        if (!good)
            break;
        extent[axis] = value;
        at = end + 1;
        if (*end != ',') {
            good = *end == 0;
            break;
        }
    }
    if (!good) {
        snprintf(error, LINE_BYTES,
                 "--mesh: \"%.100s\" is not of the form dp=A,cp=B,tp=C with A, B, C >= 1", text);
        return false;
    }
    out->dp = extent[0] ? extent[0] : 1;
    out->cp = extent[1] ? extent[1] : 1;
    out->tp = extent[2] ? extent[2] : 1;
    return true;
}

static bool store(gpt_options *out, const option *o, char *const *value, int values, char *error)
{
    void *field = (char *)out + o->offset;

    switch (o->kind) {
    case COUNT:
        return read_count(o, *value, field, error);
    case REAL:
        return read_real(o, *value, field, error);
    case FLAG:
        *(bool *)field = true;
        return true;
    case MESH:
        return read_mesh(*value, out, error);
    case NAME:
        *(const char **)field = *value;
        return true;
    case NAMES:
        out->text = value;
        out->texts = values;
        return true;
    }
    return false;
}

static const option *find(const char *argument, size_t length)
{
    for (int i = 0; i < OPTIONS; i++) {
        const option *o = &table[i];
        if (length == 2 && argument[0] == '-' && o->letter && argument[1] == o->letter)
            return o;
        if (length > 2 && strncmp(argument, "--", 2) == 0 && strlen(o->name) == length - 2 &&
            strncmp(argument + 2, o->name, length - 2) == 0)
            return o;
    }
    return NULL;
}

/* How many of the arguments that follow an option belong to it. */
static int count_values(const option *o, char *const *argument)
{
    int most = o->kind == FLAG ? 0 : o->kind == NAMES ? INT32_MAX : 1;
    int n = 0;

    while (n < most && argument[n] &&
           (argument[n][0] != '-' || o->kind == COUNT || o->kind == REAL))
        n++;
    return n;
}

/* Read one option with its values; returns how many arguments it took, 0 if it is wrong. */
static int take(gpt_options *out, char *const *argument, char *error)
{
    const char *equals = strchr(argument[0], '=');
    size_t length = equals ? (size_t)(equals - argument[0]) : strlen(argument[0]);
    const option *o = find(argument[0], length);
    char *inside = (char *)(uintptr_t)(equals ? equals + 1 : NULL); /* as in --steps=100 */
    int values;

    if (!o) {
        snprintf(error, LINE_BYTES, "there is no option \"%.100s\"; --help lists them",
                 argument[0]);
        return 0;
    }
    if (equals && (o->kind == FLAG || o->kind == NAMES)) {
        snprintf(error, LINE_BYTES, "--%s does not go with \"=\"", o->name);
        return 0;
    }
    values = equals ? 0 : count_values(o, argument + 1);
    if (o->kind != FLAG && !equals && values == 0) {
        snprintf(error, LINE_BYTES, "--%s needs a value: %s", o->name, o->value);
        return 0;
    }
    if (!store(out, o, equals ? &inside : argument + 1, values, error))
        return 0;
    return 1 + values;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static bool check(const gpt_options *o, char *error)
{
    static const char *const dtypes[] = {"f32", "bf16", "f16"};
    bool known = false;

    for (int i = 0; i < 3; i++)
        known |= strcmp(o->dtype, dtypes[i]) == 0;
    if (!known) {
        snprintf(error, LINE_BYTES, "--dtype: \"%.100s\" is neither f32 nor bf16 nor f16",
                 o->dtype);
        return false;
    }
    if (o->dim % o->heads != 0) {
        snprintf(error, LINE_BYTES, "--dim %lld is not a multiple of --heads %lld",
                 (long long)o->dim, (long long)o->heads);
        return false;
    }
    if (o->experts == 1) {
        snprintf(error, LINE_BYTES, "--experts 1: a byte goes through two of them");
        return false;
    }
    return true;
}

bool options_parse(gpt_options *out, int argc, char *const *argv, char *error)
{
    *out = defaults;
    for (int i = 1; i < argc;) {
        int taken = take(out, argv + i, error);
        if (taken == 0)
            return false;
        i += taken;
    }
    if (!check(out, error))
        return false;
    if (out->dp && out->ranks) {
        gpt_options copy = *out;
        return options_fit(&copy, (int)out->ranks, error);
    }
    return true;
}

bool options_fit(gpt_options *o, int ranks, char *error)
{
    if (o->dp == 0) {
        o->dp = o->cp = 1;
        o->tp = ranks;
    }
    o->zigzag = o->cp > 1 && !o->in_order ? o->cp : 0;
    if (o->dp * o->cp * o->tp != ranks) {
        snprintf(error, LINE_BYTES,
                 "--mesh dp=%lld,cp=%lld,tp=%lld has %lld ranks, but there are %d",
                 (long long)o->dp, (long long)o->cp, (long long)o->tp,
                 (long long)(o->dp * o->cp * o->tp), ranks);
        return false;
    }
    if (o->ranks && o->ranks != ranks) {
        snprintf(error, LINE_BYTES, "--ranks is %lld, but %d were started", (long long)o->ranks,
                 ranks);
        return false;
    }
    return true;
}

/* ---- help ----------------------------------------------------------------------------------- */

/* " [default]" of an option that has one; "" else. */
static void default_text(const option *o, char *text, size_t room)
{
    const void *field = (const char *)&defaults + o->offset;

    text[0] = 0;
    if (o->kind == COUNT && *(const int64_t *)field)
        snprintf(text, room, " [%lld]", (long long)*(const int64_t *)field);
    if (o->kind == REAL)
        snprintf(text, room, " [%g]", *(const double *)field);
}

void options_help(FILE *file)
{
    fputs("Trains a byte-level GPT on text, split over ranks, and lets it write.\n"
          "Usage: gpt [options]      or: sherd run -n N -- gpt [options]\n\n",
          file);
    for (int i = 0; i < OPTIONS; i++) {
        const option *o = &table[i];
        char name[64], letter[8] = "    ", value[64];
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(name, sizeof name, "--%s %s", o->name, o->value);
        default_text(o, value, sizeof value);
        fprintf(file, "  %s%-20s  %s%s\n", letter, name, o->help, value);
    }
    fputs("\nThe benchmark size: --layers 6 --dim 256 --heads 8 --context 256 --batch 8\n", file);
}
