/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd dry --axes: the same program on every mesh that N ranks make of some axes, by which one
 * finds the mesh to run it on. It gets each in the place of {mesh} in its arguments. Costs a start
 * of the program for each mesh and rank, mostly well below a second.
 */
#include "dry.h"
#include "members.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cases.h"
#include "table.h"
#include "base/text.h"

enum { AXES = 8, MESHES = 1000, MESH_TEXT = 384 };

static const char place[] = "{mesh}";

/* What became of one mesh. */
typedef struct tried {
    char mesh[MESH_TEXT];
    /* of the slowest rank: seconds of a step, computing, calling; the most of all: bytes */
    double seconds, work, calls;
    int64_t received, peak;
    char failure[CLI_CELL / 2]; /* "" = it ran */
} tried;

typedef struct search {
    const cli_dry_asked *ranks;
    char **argv;
    char name[AXES][32];
    int axes;
    long extent[AXES];
    const char *folder; /* for what ranks send */
    tried *list;        /* [count] */
    int count;
} search;

/* ---- the axes -------------------------------------------------------------------------------- */

static bool is_taken(const search *s, const char *name)
{
    for (int i = 0; i < s->axes; i++)
        if (strcmp(s->name[i], name) == 0)
            return true;
    return false;
}

/* NULL, or what is wrong: they are names as meshes have them. */
static const char *read_axes(search *s, const char *axes)
{
    sherd__scanner at = {axes, axes};

    do {
        char name[sizeof s->name[0]];
        if (!sherd__take_name(&at, name, sizeof name))
            return "are no names of axes";
        if (is_taken(s, name))
            return "name an axis twice";
        if (s->axes == AXES)
            return "are more than 8 axes";
        memcpy(s->name[s->axes++], name, sizeof name);
    } while (sherd__take(&at, ","));
    return sherd__at_end(&at) ? NULL : "are no names of axes";
}

/* Each way to write `ranks` as a product of the extents of the axes from one on. */
static void visit(search *s, int axis, long ranks, void (*meet)(search *s))
{
    if (axis == s->axes - 1) {
        s->extent[axis] = ranks;
        meet(s);
        return;
    }
    for (long extent = 1; extent <= ranks && s->count <= MESHES; extent++)
        if (ranks % extent == 0) {
            s->extent[axis] = extent;
            visit(s, axis + 1, ranks / extent, meet);
        }
}

static void count_one(search *s)
{
    s->count++;
}

bool cli_dry_axes_fit(const char *axes, long ranks, char *const *argv)
{
    search s = {.axes = 0};
    bool takes = false;

    for (int i = 0; argv[i]; i++)
        takes |= strstr(argv[i], place) != NULL;
    const char *wrong = read_axes(&s, axes);
    if (wrong)
        return cli_refuse("dry", "--axes: \"%.100s\" %s", axes, wrong) == 0;
    if (ranks == 0)
        return cli_refuse("dry", "--axes: of how many ranks? -n N") == 0;
    if (!takes)
        return cli_refuse("dry",
                          "--axes: where does the program get its mesh? write %s there, as in "
                          "--mesh %s",
                          place, place) == 0;
    visit(&s, 0, ranks, count_one);
    return s.count <= MESHES ||
           cli_refuse("dry", "--axes: %ld ranks make more than %d meshes of %d axes", ranks, MESHES,
                      s.axes) == 0;
}

/* ---- one mesh -------------------------------------------------------------------------------- */

/* `text` with the mesh in its place; NULL: no memory. The caller frees it. */
static char *with_mesh(const char *text, const char *mesh)
{
    size_t room = strlen(text) + 1;
    char *out, *to;

    for (const char *at = text; (at = strstr(at, place)); at += sizeof place - 1)
        room += strlen(mesh);
    if (!(to = out = malloc(room)))
        return NULL;
    for (const char *next; (next = strstr(text, place)); text = next + sizeof place - 1)
        to += sprintf(to, "%.*s%s", (int)(next - text), text, mesh);
    strcpy(to, text);
    return out;
}

/* Take in what one world of one rank reported: of a step, if there were any. */
static void add_world(tried *t, const char *line)
{
    json_t *report = json_loads(line, 0, NULL);
    const json_t *counts = cli_dry_counts(report);
    int64_t peak = (int64_t)cli_number(json_object_get(report, "memory"), "peak_bytes");

    if (cli_number(counts, "seconds") >= t->seconds) {
        t->seconds = cli_number(counts, "seconds");
        t->work = cli_dry_sum(json_object_get(counts, "work"), "seconds");
        t->calls = cli_dry_sum(json_object_get(counts, "calls"), "seconds");
        t->received = (int64_t)cli_dry_sum(json_object_get(counts, "calls"), "received_bytes");
    }
    t->peak = peak > t->peak ? peak : t->peak;
    json_decref(report);
}

/* Its exit status alone says whether it ran: who meets an error may recover. */
static void try_rank(tried *t, char **argv, const cli_dry_asked *ranks, int i)
{
    cli_dry_end end;
    long rank = ranks->which[i];

    cli_dry_program(&end, ranks, i, argv, CLI_DRY_NOWHERE);
    if (end.status < 0)
        snprintf(t->failure, sizeof t->failure, "it can not be started: %s", strerror(errno));
    else if (end.status > 0)
        cli_dry_end_text(t->failure, sizeof t->failure, rank, &end);
    else if (!end.report || !*end.report)
        snprintf(t->failure, sizeof t->failure, "rank %ld has closed no world of sherd", rank);
    char *rest = end.report;
    for (char *line; end.report && (line = strtok_r(rest, "\n", &rest));)
        add_world(t, line);
    free(end.report);
}

static void free_arguments(char **argv)
{
    for (int i = 0; argv && argv[i]; i++)
        free(argv[i]);
    free(argv);
}

static char **arguments(char *const *argv, const char *mesh)
{
    int count = 0;

    while (argv[count])
        count++;
    char **out = calloc((size_t)count + 1, sizeof *out);
    for (int i = 0; out && i < count; i++)
        if (!(out[i] = with_mesh(argv[i], mesh))) {
            free_arguments(out);
            return NULL;
        }
    return out;
}

/* What the ranks of one mesh send is nothing to those of another. */
static bool own_folder(const search *s)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%d", s->folder, s->count);
    return mkdir(path, 0700) == 0 && setenv("SHERD_DRY_SENT", path, 1) == 0;
}

static void try_mesh(search *s)
{
    if (s->ranks->signals->last)
        return;
    tried *t = &s->list[s->count++];
    size_t at = 0;

    for (int i = 0; i < s->axes && at < sizeof t->mesh; i++)
        at += (size_t)snprintf(t->mesh + at, sizeof t->mesh - at, "%s%s=%ld", i ? "," : "",
                               s->name[i], s->extent[i]);
    char **argv = arguments(s->argv, t->mesh);
    if (!argv)
        snprintf(t->failure, sizeof t->failure, "out of memory");
    else if (!own_folder(s))
        snprintf(t->failure, sizeof t->failure, "no folder for what is sent: %s", strerror(errno));
    for (int i = 0; argv && i < s->ranks->count && !*t->failure; i++)
        try_rank(t, argv, s->ranks, i);
    free_arguments(argv);
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Order: meshes that ran come first, and the fastest of them. */
static int by_time(const void *a, const void *b)
{
    const tried *x = a, *y = b;

    if (!*x->failure != !*y->failure)
        return *x->failure ? 1 : -1;
    return x->seconds != y->seconds ? (x->seconds > y->seconds) - (x->seconds < y->seconds)
                                    : (x->peak > y->peak) - (x->peak < y->peak);
}

static void write_cell(char *out, size_t room, const void *data, int64_t row, int column)
{
    static const char *const head[] = {"mesh",     "step",    "computing", "calls",
                                       "received", "at most", "failure"};
    const tried *t = row < 0 ? NULL : (const tried *)data + row;

    if (!t)
        snprintf(out, room, "%s", head[column]);
    else if (column == 0 || column == 6)
        snprintf(out, room, "%s", column ? t->failure : t->mesh);
    else if (*t->failure)
        snprintf(out, room, "-");
    else if (column < 4)
        cli_seconds_text(out, room, column == 1 ? t->seconds : column == 2 ? t->work : t->calls);
    else
        cli_bytes_text(out, room, column == 4 ? t->received : t->peak);
}

static void print(const tried *list, int count)
{
    bool failed = count > 0 && *list[count - 1].failure;
    cli_table table = {
        .rows = count, .columns = failed ? 7 : 6, .right = 62, .data = list, .cell = write_cell};

    cli_table_print(stdout, &table);
}

/* The keys are in docs/dry_runs.md; nothing is said in numbers of a mesh that failed. NULL: no
 * memory. */
static json_t *line_of(const tried *t)
{
    json_t *out = json_object();
    bool good = out != NULL, ran = !*t->failure;

    cli_put(&good, out, "mesh", json_string(t->mesh));
    cli_put(&good, out, "seconds", ran ? json_real(t->seconds) : json_null());
    cli_put(&good, out, "work_seconds", ran ? json_real(t->work) : json_null());
    cli_put(&good, out, "calls_seconds", ran ? json_real(t->calls) : json_null());
    cli_put(&good, out, "received_bytes", ran ? json_integer(t->received) : json_null());
    cli_put(&good, out, "peak_bytes", ran ? json_integer(t->peak) : json_null());
    cli_put(&good, out, "failure", ran ? json_null() : cli_string(t->failure));
    return cli_whole(good, out);
}

static void print_json(const tried *list, int count)
{
    for (int i = 0; i < count; i++) {
        json_t *line = line_of(&list[i]);
        char *text = line ? cli_text_of(line) : NULL;
        cli_print_text(text);
        free(text);
        json_decref(line);
    }
}

int cli_dry_meshes(const cli_dry_asked *ranks, const char *axes, const char *folder, char **argv,
                   bool json)
{
    search s = {.ranks = ranks, .argv = argv, .folder = folder};

    (void)read_axes(&s, axes);
    visit(&s, 0, ranks->of, count_one);
    s.list = calloc((size_t)s.count + 1, sizeof *s.list);
    if (!s.list) {
        cli_refuse("dry", "out of memory for %d meshes", s.count);
        return CLI_FAILED;
    }
    s.count = 0;
    visit(&s, 0, ranks->of, try_mesh);
    qsort(s.list, (size_t)s.count, sizeof *s.list, by_time);
    if (ranks->signals->last)
        s.count = 0;
    else if (json)
        print_json(s.list, s.count);
    else
        print(s.list, s.count);
    bool some = s.count > 0 && !*s.list[0].failure;
    free(s.list);
    return cli_flush("dry") && some ? 0 : CLI_FAILED;
}
