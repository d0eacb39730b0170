/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text. By default the licences that every Debian carries, else sherd's own pages: some hundred KB
 * that are there without a download. Bytes are the vocabulary, so that nothing has to be prepared.
 */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "text.h"

/* ---- reading -------------------------------------------------------------------------------- */

static bool complain(char *error, const char *path, const char *what)
{
    snprintf(error, LINE_BYTES, "text \"%.300s\": %s", path, what);
    return false;
}

/* Append what is left of an open file. */
static bool append_stream(corpus *t, FILE *file, const char *path, char *error)
{
    size_t room = t->count, before = t->count;

    for (;;) {
        size_t got, wanted = room < 65536 ? 65536 : room;
        unsigned char *grown = realloc(t->bytes, room + wanted);
        if (!grown)
            return complain(error, path, "there is no memory for it");
        t->bytes = grown;
        room += wanted;
        got = fread(t->bytes + t->count, 1, room - t->count, file);
        t->count += got;
        if (ferror(file))
            return complain(error, path, strerror(errno));
        if (feof(file))
            break;
    }
    return t->count > before ? true : complain(error, path, "it is empty");
}

static bool append_file(corpus *t, const char *path, char *error)
{
    FILE *file = fopen(path, "rb");
    bool good;

    if (!file)
        return complain(error, path, strerror(errno));
    good = append_stream(t, file, path, error);
    fclose(file);
    return good;
}

/* ---- the default text ----------------------------------------------------------------------- */

/*
 * Append the regular files (no links, none that is empty) that a pattern finds, in sorted order.
 * Finding none is no failure.
 */
static bool append_found(corpus *t, const char *pattern, char *error)
{
    glob_t found;
    bool good = true;

    if (glob(pattern, 0, NULL, &found) != 0)
        return true;
    for (size_t i = 0; good && i < found.gl_pathc; i++) {
        struct stat info;
        if (lstat(found.gl_pathv[i], &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
            good = append_file(t, found.gl_pathv[i], error);
    }
    globfree(&found);
    return good;
}

/* README.md and docs/ of a folder that is sherd's. */
static bool append_docs(corpus *t, const char *folder, char *error)
{
    char pattern[PATH_MAX + 32];

    snprintf(pattern, sizeof pattern, "%s/README.md", folder);
    if (!append_found(t, pattern, error))
        return false;
    snprintf(pattern, sizeof pattern, "%s/docs/*.md", folder);
    return append_found(t, pattern, error);
}

/* The source tree of a program in <tree>/build/examples. */
static void tree_of_program(char *folder, size_t room)
{
    ssize_t n = readlink("/proc/self/exe", folder, room - 1);

    folder[n < 0 ? 0 : n] = 0;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(folder, '/');
        if (slash)
            *slash = 0;
    }
}

static bool load_default(corpus *t, char *error)
{
    char tree[PATH_MAX];

    snprintf(t->source, sizeof t->source, "/usr/share/common-licenses");
    if (!append_found(t, "/usr/share/common-licenses/*", error))
        return false;
    if (t->count)
        return true;
    snprintf(t->source, sizeof t->source, "sherd's own docs");
    tree_of_program(tree, sizeof tree);
    if (!append_docs(t, tree, error))
        return false;
    if (!t->count && !append_docs(t, ".", error))
        return false;
    return t->count ? true
                    : complain(error, "/usr/share/common-licenses",
                               "there is none; name files with --text");
}

bool text_load(corpus *out, const gpt_options *o, char *error)
{
    bool good = true;

    *out = (corpus){.bytes = NULL};
    if (o->texts == 0)
        good = load_default(out, error);
    else
        snprintf(out->source, sizeof out->source, "%s%s", o->text[0], o->texts > 1 ? ", ..." : "");
    for (int i = 0; good && i < o->texts; i++)
        good = append_file(out, o->text[i], error);
    if (good && out->count < (size_t)o->context + 2) {
        char what[80];
        snprintf(what, sizeof what, "%zu bytes are too short for --context %lld", out->count,
                 (long long)o->context);
        good = complain(error, out->source, what);
    }
    if (!good)
        text_free(out);
    return good;
}

void text_free(corpus *t)
{
    free(t->bytes);
    *t = (corpus){.bytes = NULL};
}

/* ---- batches -------------------------------------------------------------------------------- */

/* splitmix64's mixing: neighbours become unrelated. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

double text_random(int64_t seed, uint64_t stream, uint64_t i)
{
    uint64_t word = mix(mix(mix((uint64_t)seed) ^ stream) ^ i);
    return (double)(word >> 11) * 0x1p-53;
}

void text_batch(const corpus *t, const gpt_options *o, int64_t step, int32_t *ids, int32_t *targets)
{
    double places = (double)(t->count - (size_t)o->context);

    for (int64_t b = 0; b < o->batch; b++) {
        size_t from = (size_t)(places * text_random(o->seed, (uint64_t)step, (uint64_t)b));
        const unsigned char *at = t->bytes + from;
        for (int64_t i = 0; i < o->context; i++) {
            ids[b * o->context + i] = at[i];
            targets[b * o->context + i] = at[i + 1];
        }
    }
}
