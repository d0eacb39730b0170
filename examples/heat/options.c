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

typedef enum kind { COUNT, SHARE, FLAG, MESH, SIZE, BORDER, NAME } kind;

typedef struct option {
    const char *name; /* after the two dashes */
    char letter;      /* after one dash; 0 = none */
    kind kind;
    size_t offset;     /* of its field in `heat_options` */
    int64_t low, high; /* COUNT: both allowed */
    const char *value, *help;
} option;

#define FIELD(name) offsetof(heat_options, name)

static const option table[] = {
    {"ranks", 'n', COUNT, FIELD(ranks), 1, SHERD_MAX_RANKS, "N", "how many processes compute [2]"},
    {"mesh", 0, MESH, FIELD(mesh), 0, 0, "x=A,y=B,z=C", "cut the dims into so many pieces [x=N]"},
    {"cuts", 0, NAME, FIELD(cuts), 0, 0, "CUTS",
     "sizes of the pieces of a dim, as 0:40,57 [equal ones]"},
    {"size", 0, SIZE, FIELD(size), 0, 0, "AxBxC", "points along x, y and z [97x83x71]"},
    {"steps", 0, COUNT, FIELD(steps), 0, 1 << 30, "N", "time steps"},
    {"border", 0, BORDER, FIELD(border), 0, 0, "HOW", "zero, periodic or insulated walls [zero]"},
    {"courant", 0, SHARE, FIELD(courant), 0, 0, "C", "time step, 1 = the longest that is stable"},
    {"modes", 0, COUNT, FIELD(modes), 1, MOST_MODES, "N", "waves in the first state"},
    {"seed", 0, COUNT, FIELD(seed), 0, INT64_MAX, "N", "of these waves"},
    {"output", 'o', NAME, FIELD(output), 0, 0, "FILE", "write the last state, for numpy.load"},
    {"picture", 0, NAME, FIELD(picture), 0, 0, "FILE",
     "write a slice through the middle of z, as PNG"},
    {"threads", 0, FLAG, FIELD(threads), 0, 0, "", "ranks are threads of one process"},
    {"help", 'h', FLAG, FIELD(help), 0, 0, "", "this text"},
};

enum { OPTIONS = sizeof table / sizeof table[0] };

static const heat_options defaults = {
    .size = {97, 83, 71}, .steps = 1000, .modes = 6, .seed = 1, .courant = 0.9};

static const char *const borders[BORDERS] = {"zero", "periodic", "insulated"};
static const char axes[DIMS] = {'x', 'y', 'z'};

const char *border_name(heat_border border)
{
    return borders[border];
}

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

static bool read_share(const option *o, const char *text, double *out, char *error)
{
    char *end = NULL;
    double value = strtod(text, &end);

    if (end == text || *end || !(value > 0 && value <= 1)) {
        snprintf(error, LINE_BYTES, "--%s: \"%.100s\" is not a number above 0, up to 1", o->name,
                 text);
        return false;
    }
    *out = value;
    return true;
}

/* "x=2,z=3": each axis at most once, in any order; one that is left out has extent 1. */
static bool read_mesh(const char *text, int64_t *mesh, char *error)
{
    int64_t extent[DIMS] = {0, 0, 0};
    const char *at = text;
    bool good = true;

    for (;;) {
        const char *axis = *at ? memchr(axes, *at, DIMS) : NULL;
        int d = axis ? (int)(axis - axes) : 0;
        char *end = NULL;
        long long value = axis && at[1] == '=' ? strtoll(at + 2, &end, 10) : 0;
        good = end && end > at + 2 && extent[d] == 0 && value >= 1 && value <= SHERD_MAX_RANKS;
        if (!good)
            break;
        extent[d] = value;
        at = end + 1;
        if (*end != ',') {
            good = *end == 0;
            break;
        }
    }
    if (!good)
        snprintf(error, LINE_BYTES,
                 "--mesh: \"%.100s\" is not of the form x=A,y=B,z=C with numbers from 1 to %d",
                 text, SHERD_MAX_RANKS);
    for (int d = 0; good && d < DIMS; d++)
        mesh[d] = extent[d] ? extent[d] : 1;
    return good;
}

/* "97x83x71" */
static bool read_size(const char *text, int64_t *size, char *error)
{
    const char *at = text;
    bool good = true;

    for (int d = 0; good && d < DIMS; d++) {
        char *end = NULL;
        long long value = strtoll(at, &end, 10);
        good = end > at && value >= 1 && value <= 1 << 20 && *end == (d + 1 < DIMS ? 'x' : 0);
        size[d] = value;
        at = end + 1;
    }
    if (!good)
        snprintf(error, LINE_BYTES,
                 "--size: \"%.100s\" is not of the form AxBxC with numbers from 1 to %d", text,
                 1 << 20);
    return good;
}

static bool read_border(const char *text, heat_border *out, char *error)
{
    for (int b = 0; b < BORDERS; b++)
        if (strcmp(text, borders[b]) == 0) {
            *out = (heat_border)b;
            return true;
        }
    snprintf(error, LINE_BYTES, "--border: \"%.100s\" is none of zero, periodic, insulated", text);
    return false;
}

static bool store(heat_options *out, const option *o, const char *value, char *error)
{
    void *field = (char *)out + o->offset;

    switch (o->kind) {
    case COUNT:
        return read_count(o, value, field, error);
    case SHARE:
        return read_share(o, value, field, error);
    case FLAG:
        *(bool *)field = true;
        return true;
    case MESH:
        return read_mesh(value, field, error);
    case SIZE:
        return read_size(value, field, error);
    case BORDER:
        return read_border(value, field, error);
    case NAME:
        *(const char **)field = value;
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

/* Read one option with its value; returns how many arguments it took, 0 if it is wrong. */
static int take(heat_options *out, char *const *argument, char *error)
{
    const char *equals = strchr(argument[0], '=');
    size_t length = equals ? (size_t)(equals - argument[0]) : strlen(argument[0]);
    const option *o = find(argument[0], length);
    const char *value = equals ? equals + 1 : argument[1]; /* --steps=100 or --steps 100 */

    if (!o) {
        snprintf(error, LINE_BYTES, "there is no option \"%.100s\"; --help lists them",
                 argument[0]);
        return 0;
    }
    if (equals && o->kind == FLAG) {
        snprintf(error, LINE_BYTES, "--%s does not go with \"=\"", o->name);
        return 0;
    }
    if (o->kind != FLAG && (!value || !value[0] || (o->kind == NAME && value[0] == '-'))) {
        snprintf(error, LINE_BYTES, "--%s needs a value: %s", o->name, o->value);
        return 0;
    }
    if (!store(out, o, value, error))
        return 0;
    return o->kind == FLAG || equals ? 1 : 2;
}

/* ---- all of them ---------------------------------------------------------------------------- */

static int64_t mesh_ranks(const heat_options *o)
{
    return o->mesh[0] * o->mesh[1] * o->mesh[2];
}

static bool check(const heat_options *o, char *error)
{
    if (mesh_ranks(o) > SHERD_MAX_RANKS) {
        snprintf(error, LINE_BYTES, "--mesh x=%lld,y=%lld,z=%lld has %lld ranks, at most %d can be",
                 (long long)o->mesh[0], (long long)o->mesh[1], (long long)o->mesh[2],
                 (long long)mesh_ranks(o), SHERD_MAX_RANKS);
        return false;
    }
    return true;
}

bool options_parse(heat_options *out, int argc, char *const *argv, char *error)
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
    if (out->mesh[0] && out->ranks) {
        heat_options copy = *out;
        return options_fit(&copy, (int)out->ranks, error);
    }
    return true;
}

bool options_fit(heat_options *o, int ranks, char *error)
{
    if (o->mesh[0] == 0) {
        o->mesh[0] = ranks;
        o->mesh[1] = o->mesh[2] = 1;
    }
    if (mesh_ranks(o) != ranks) {
        snprintf(error, LINE_BYTES, "--mesh x=%lld,y=%lld,z=%lld has %lld ranks, but there are %d",
                 (long long)o->mesh[0], (long long)o->mesh[1], (long long)o->mesh[2],
                 (long long)mesh_ranks(o), ranks);
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

/* " [default]" of an option that has one and does not say it itself; "" else. */
static void default_text(const option *o, char *text, size_t room)
{
    const void *field = (const char *)&defaults + o->offset;

    text[0] = 0;
    if (o->kind == COUNT && *(const int64_t *)field)
        snprintf(text, room, " [%lld]", (long long)*(const int64_t *)field);
    if (o->kind == SHARE)
        snprintf(text, room, " [%g]", *(const double *)field);
}

void options_help(FILE *file)
{
    fputs("Heat spreads in a box, on a grid that is split over ranks; checked against the exact\n"
          "solution. Usage: heat [options]      or: sherd run -n N -- heat [options]\n\n",
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
    fputs("\nThe checksum is that of all numbers of the last state: it does not depend on the "
          "ranks.\n",
          file);
}
