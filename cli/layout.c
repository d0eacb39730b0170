/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd layout: the box of each rank. Needs no ranks. Prints a line a rank, so above 4096 ranks
 * --ranks must select some.
 */
#include "cases.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

#include "world/world.h"

enum { RANKS_UNASKED = 4096, RANKS_ASKED = 1 << 20 };

/* ---- which ranks ----------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;

    return (x > y) - (x < y);
}

/* The ranks of a mesh from `first` on, ascending. */
typedef struct walk {
    int *sorted; /* NULL = 0, 1, 2, ... */
    int64_t first, count;
} walk;

static sherd_status sort_ranks(walk *w, cli_problem *p)
{
    const sherd_mesh *mesh = p->mesh;

    if (!mesh->ranks)
        return SHERD_OK;
    w->sorted = sherd__alloc(sherd__world_heap(p->world), (size_t)mesh->count, sizeof *w->sorted);
    if (!w->sorted)
        return sherd__no_memory(p->diag, "sherd_layout");
    memcpy(w->sorted, mesh->ranks, (size_t)mesh->count * sizeof *w->sorted);
    qsort(w->sorted, (size_t)mesh->count, sizeof *w->sorted, ascending);
    return SHERD_OK;
}

static int rank_at(const walk *w, int64_t i)
{
    return w->sorted ? w->sorted[w->first + i] : (int)(w->first + i);
}

/* How many of the ranks are below some number. */
static int64_t below(const walk *w, int64_t count, int64_t number)
{
    int64_t i = 0;

    if (!w->sorted)
        return number < count ? number : count;
    while (i < count && w->sorted[i] < number)
        i++;
    return i;
}

static sherd_status choose(walk *w, cli_problem *p)
{
    int64_t count = sherd_mesh_ranks(p->mesh);

    w->count = count;
    if (p->last_rank >= 0) {
        int64_t first = below(w, count, p->first_rank);
        w->count = below(w, count, p->last_rank + 1) - first;
        w->first = first;
    }
    p->blamed = CLI_RANKS;
    if (p->last_rank < 0 && w->count > RANKS_UNASKED)
        return sherd__fail(p->diag, SHERD_ELIMIT,
                           "the mesh has %lld ranks: expected --ranks A-B, which of them to show "
                           "(at most %d unasked)",
                           (long long)count, RANKS_UNASKED);
    if (w->count > RANKS_ASKED)
        return sherd__fail(p->diag, SHERD_ELIMIT, "these are %lld ranks: expected at most %d",
                           (long long)w->count, RANKS_ASKED);
    if (w->count == 0)
        return sherd__fail(p->diag, SHERD_EINVAL, "none of these ranks is in the mesh (%s)",
                           sherd_mesh_text(p->mesh));
    int64_t last = w->sorted ? w->sorted[count - 1] : count - 1;
    if (p->last_rank > last)
        return sherd__fail(p->diag, SHERD_EINVAL,
                           "the mesh (%s) has no rank %lld: its last one is %lld",
                           sherd_mesh_text(p->mesh), (long long)p->last_rank, (long long)last);
    p->blamed = CLI_KEYS;
    return SHERD_OK;
}

/* ---- what each holds ------------------------------------------------------------------------- */

static json_t *rank_object(const sherd_layout *layout, int rank)
{
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    sherd_box box = sherd_layout_box(layout, rank, 0);
    int64_t coordinate[SHERD_MAX_AXES] = {0};
    json_t *out = json_object();
    bool good = out != NULL && sherd_mesh_coordinate(mesh, rank, coordinate);

    cli_put(&good, out, "rank", json_integer(rank));
    cli_put(&good, out, "coordinate", cli_integers(coordinate, sherd_mesh_axes(mesh)));
    cli_put(&good, out, "offset", cli_integers(box.offset, box.ndim));
    cli_put(&good, out, "size", cli_integers(box.size, box.ndim));
    return cli_whole(good, out);
}

static sherd_status answer(json_t *out, cli_problem *p)
{
    walk w = {.sorted = NULL};
    json_t *ranks = json_array();
    bool good = true;
    sherd_status status = sort_ranks(&w, p);

    if (status == SHERD_OK)
        status = choose(&w, p);
    for (int64_t i = 0; status == SHERD_OK && good && i < w.count; i++)
        cli_append(&good, ranks, rank_object(p->from, rank_at(&w, i)));
    sherd__free(sherd__world_heap(p->world), w.sorted);
    cli_put(&good, out, "layout", json_string(sherd_layout_text(p->from)));
    cli_put(&good, out, "ranks", ranks);
    return status == SHERD_OK ? cli_put_status(good, p) : status;
}

/* ---- for people ------------------------------------------------------------------------------ */

static size_t add(char *out, size_t room, size_t length, const char *text)
{
    int n = length < room ? snprintf(out + length, room - length, "%s", text) : 0;

    return length + (n > 0 ? (size_t)n : 0);
}

/* "0,1"; or, with sizes, "[0,3) x [2,4)" */
static void write_numbers(char *out, size_t room, const json_t *at, const json_t *size)
{
    size_t length = 0;

    snprintf(out, room, "%s", json_array_size(at) ? "" : "-");
    for (size_t i = 0; i < json_array_size(at); i++) {
        char one[64];
        json_int_t lo = json_integer_value(json_array_get(at, i));
        if (size)
            snprintf(one, sizeof one, "%s[%lld,%lld)", i ? " x " : "", (long long)lo,
                     (long long)(lo + json_integer_value(json_array_get(size, i))));
        else
            snprintf(one, sizeof one, "%s%lld", i ? "," : "", (long long)lo);
        length = add(out, room, length, one);
    }
}

static int64_t count_of(const json_t *size)
{
    int64_t count = 1;

    for (size_t i = 0; i < json_array_size(size); i++)
        count *= json_integer_value(json_array_get(size, i));
    return count;
}

static void cell(char *out, size_t room, const void *data, int64_t row, int column)
{
    static const char *const head[] = {"rank", "coordinate", "elements", "box"};
    const json_t *rank = json_array_get(data, row < 0 ? 0 : (size_t)row);

    if (row < 0)
        snprintf(out, room, "%s", head[column]);
    else if (column == 0)
        snprintf(out, room, "%lld", (long long)json_integer_value(json_object_get(rank, "rank")));
    else if (column == 1)
        write_numbers(out, room, json_object_get(rank, "coordinate"), NULL);
    else if (column == 2)
        snprintf(out, room, "%lld", (long long)count_of(json_object_get(rank, "size")));
    else
        write_numbers(out, room, json_object_get(rank, "offset"), json_object_get(rank, "size"));
}

static void print(FILE *to, const json_t *answer)
{
    const json_t *ranks = json_object_get(answer, "ranks");
    const cli_table table = {.rows = (int64_t)json_array_size(ranks),
                             .columns = 4,
                             .right = 1u << 0 | 1u << 2,
                             .data = ranks,
                             .cell = cell};

    fprintf(to, "%s\n\n", json_string_value(json_object_get(answer, "layout")));
    cli_table_print(to, &table);
}

const cli_command cli_layout_command = {"layout", CLI_OF_LAYOUT, answer, print};

int cli_layout(int argc, char **argv)
{
    return cli_command_run(&cli_layout_command, argc, argv);
}
