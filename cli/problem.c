/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading the texts of options into a problem. The library has readers for meshes, shapes, dtypes,
 * placements, cuts and price files; the rest of the grammar is here. Every error has a position in
 * its text.
 */
#include "options.h"

#include <limits.h>
#include <string.h>

#include "base/num.h"
#include "base/text.h"
#include "layout/layout.h"
#include "world/world.h"

/* Readers name a function in front of their errors; cli_error_text takes it away again. */
static const char function[] = "sherd_option";

const char *cli_error_text(const sherd__diag *diag)
{
    const char *text = diag->text, *end = strchr(text, ':');

    if (strncmp(text, "sherd_", 6) != 0 || !end || end[1] != ' ' ||
        strcspn(text, " ") < (size_t)(end - text))
        return text;
    return end + 2;
}

sherd_plan_options cli_plan_options(const cli_problem *p)
{
    sherd_plan_options options = {
        .planner = p->planner,
        .price = p->values->of[CLI_PRICE] ? &p->price : NULL,
        .weights = p->weights,
        .per_host = p->per_host,
        .flattened = p->flattened_count ? p->flattened : NULL,
        .flattened_count = p->flattened_count,
        .max_bytes = p->max_bytes,
    };
    return options;
}

/* ---- worlds ---------------------------------------------------------------------------------- */

int64_t cli_ranks_for(const sherd_mesh *mesh)
{
    int64_t most = mesh->ranks ? 0 : mesh->count;

    for (int64_t i = 0; mesh->ranks && i < mesh->count; i++)
        most = sherd__max(most, (int64_t)mesh->ranks[i] + 1);
    return most;
}

/* Ranks that a mesh's text names, or a layout's; INT_MAX where it can't be read. */
static int64_t ranks_named(sherd_world *world, cli_key key, const char *text)
{
    const sherd_layout *layout;
    const sherd_mesh *mesh;

    if (key == CLI_LAYOUT)
        return sherd_layout_parse(&layout, world, text, NULL) == SHERD_OK
                   ? cli_ranks_for(sherd_layout_mesh(layout))
                   : INT_MAX;
    return sherd_mesh_parse(&mesh, world, text) == SHERD_OK ? cli_ranks_for(mesh) : INT_MAX;
}

bool cli_paper_open(sherd_world **out, const cli_values *values)
{
    static const cli_key keys[] = {CLI_LAYOUT, CLI_MESH, CLI_TO_MESH};
    sherd_world *largest;
    int64_t ranks = 1;

    *out = NULL;
    if (sherd_world_paper(&largest, INT_MAX) != SHERD_OK)
        return false;
    for (int i = 0; i < 3; i++)
        if (values->of[keys[i]])
            ranks = sherd__max(ranks, ranks_named(largest, keys[i], values->of[keys[i]]));
    sherd_status status = sherd_world_close(largest); /* what can't be read is said later */
    status = sherd_world_paper(out, sherd__int(ranks));
    return status == SHERD_OK;
}

/* ---- meshes, shapes, layouts ----------------------------------------------------------------- */

sherd_status cli_read_mesh(cli_problem *p, const char *text)
{
    return sherd_mesh_parse(&p->mesh, p->world, text);
}

sherd_status cli_read_to_mesh(cli_problem *p, const char *text)
{
    return sherd_mesh_parse(&p->to_mesh, p->world, text);
}

sherd_status cli_read_shape(cli_problem *p, const char *text)
{
    return sherd__shape_read(p->shape, &p->ndim, p->diag, function, text);
}

sherd_status cli_read_dtype(cli_problem *p, const char *text)
{
    return sherd__dtype_read(&p->dtype, p->diag, function, text);
}

sherd_status cli_read_layout(cli_problem *p, const char *text)
{
    p->dtype = SHERD_F32;
    return sherd_layout_parse(&p->from, p->world, text, &p->dtype);
}

/* The source, or a layout alone: on the mesh, with the cuts of another option. */
static sherd_status read_placed(cli_problem *p, const char *text, cli_key cuts)
{
    if (p->from)
        return sherd__fail(p->diag, SHERD_EINVAL,
                           "a layout is given already: expected one of --layout, --placements and "
                           "--from");
    if (!p->mesh || !p->values->of[CLI_SHAPE])
        return sherd__fail(p->diag, SHERD_EINVAL, "expected --mesh and --shape with it");
    return sherd_layout_parse_placements(&p->from, p->mesh, p->ndim, p->shape, text,
                                         p->values->of[cuts]);
}

sherd_status cli_read_placements(cli_problem *p, const char *text)
{
    return read_placed(p, text, CLI_CUTS);
}

sherd_status cli_read_from(cli_problem *p, const char *text)
{
    return read_placed(p, text, CLI_FROM_CUTS);
}

/*
 * A target given by placements alone keeps the source's cuts of the dims that the same axes shard.
 */
sherd_status cli_read_to(cli_problem *p, const char *text)
{
    const sherd_mesh *mesh = p->to_mesh ? p->to_mesh : p->mesh;
    const char *cuts = p->values->of[CLI_TO_CUTS];

    if (!p->values->of[CLI_FROM])
        return sherd__fail(p->diag, SHERD_EINVAL, "expected --from with it");
    sherd_status status =
        sherd_layout_parse_placements(&p->to, mesh, p->ndim, p->shape, text, cuts);
    if (status == SHERD_OK && !cuts && mesh == p->mesh)
        status = sherd__layout_keep_cuts(&p->to, p->to, p->from);
    return status;
}

/* ---- planner and price ----------------------------------------------------------------------- */

/* The number of a word in a list that ends with NULL; its length where it is not there. */
static int find_word(const char *const *words, const char *text)
{
    int i = 0;

    while (words[i] && strcmp(words[i], text) != 0)
        i++;
    return i;
}

static sherd_status expected_at_start(cli_problem *p, const char *text, const char *what)
{
    sherd__scanner s = {text, text};

    return sherd__expected(p->diag, function, &s, "%s", what);
}

sherd_status cli_read_planner(cli_problem *p, const char *text)
{
    for (int i = 0; i < CLI_PLANNERS; i++)
        if (strcmp(text, sherd_planner_name((sherd_planner)i)) == 0) {
            p->planner = (sherd_planner)i;
            return SHERD_OK;
        }
    return expected_at_start(p, text, "a planner: exact, greedy or graph");
}

/* An integer from `low` on, below 2^62. */
static sherd_status scan_number(cli_problem *p, sherd__scanner *s, int64_t low, int64_t *out)
{
    sherd__skip_blanks(s);
    const sherd__scanner start = *s;

    if (sherd__take_integer(s, out) && *out >= low)
        return SHERD_OK;
    return sherd__expected(p->diag, function, &start, "a number from %lld to below 2^62",
                           (long long)low);
}

static sherd_status expect_end(cli_problem *p, sherd__scanner *s)
{
    return sherd__at_end(s) ? SHERD_OK : sherd__expected(p->diag, function, s, "the end");
}

static sherd_status read_number(cli_problem *p, const char *text, int64_t *out)
{
    sherd__scanner s = {text, text};
    sherd_status status = scan_number(p, &s, 1, out);

    return status == SHERD_OK ? expect_end(p, &s) : status;
}

sherd_status cli_read_weights(cli_problem *p, const char *text)
{
    static const char *const words[] = {"time", "int", NULL};
    sherd_weights *w = &p->weights;
    int64_t *weight[] = {&w->all_reduce, &w->all_to_all, &w->all_gather, &w->reduce_scatter,
                         &w->chunk};
    sherd__scanner s = {text, text};
    sherd_status status = SHERD_OK;
    int word = find_word(words, text);

    w->kind = (sherd_weights_kind)word;
    if (words[word])
        return SHERD_OK;
    if (!(*text >= '0' && *text <= '9'))
        return expected_at_start(p, text,
                                 "weights: time, int, or five numbers for all-reduce, all-to-all, "
                                 "all-gather, reduce-scatter, chunk");
    for (int i = 0; i < 5 && status == SHERD_OK; i++) {
        if (i > 0 && !sherd__take(&s, ","))
            return sherd__expected(p->diag, function, &s, ", and a weight: there are five");
        status = scan_number(p, &s, 0, weight[i]);
    }
    return status == SHERD_OK ? expect_end(p, &s) : status;
}

sherd_status cli_read_price(cli_problem *p, const char *text)
{
    static const char *const words[] = {"arena", "torch", NULL};
    static const sherd_price_kind kinds[] = {SHERD_PRICE_ARENA, SHERD_PRICE_TORCH};
    int word = find_word(words, text);

    if (!words[word])
        return sherd__price_load(&p->price, sherd__world_heap(p->world), p->diag, text,
                                 "arena, torch, or a file of prices");
    p->price.kind = kinds[word];
    return SHERD_OK;
}

sherd_status cli_read_per_host(cli_problem *p, const char *text)
{
    sherd_status status = read_number(p, text, &p->per_host);

    p->price.per_host = p->per_host;
    return status;
}

sherd_status cli_read_max_bytes(cli_problem *p, const char *text)
{
    return read_number(p, text, &p->max_bytes);
}

/* One axis of the source's mesh into a set. */
static sherd_status scan_axis(cli_problem *p, sherd__scanner *s, unsigned *set)
{
    char name[32];

    sherd__skip_blanks(s);
    const sherd__scanner start = *s;
    int axis = sherd__take_name(s, name, sizeof name) ? sherd_mesh_find_axis(p->mesh, name) : -1;
    if (axis < 0)
        return sherd__expected(p->diag, function, &start, "an axis of the mesh (%s)",
                               sherd_mesh_text(p->mesh));
    if (*set >> axis & 1)
        return sherd__expected(p->diag, function, &start, "a new axis, %s is there already", name);
    *set |= 1u << axis;
    return SHERD_OK;
}

sherd_status cli_read_flattened(cli_problem *p, const char *text)
{
    sherd__scanner s = {text, text};
    sherd_status status = SHERD_OK;

    if (!p->mesh)
        return sherd__fail(p->diag, SHERD_EINVAL, "expected --mesh with it");
    do {
        if (p->flattened_count == CLI_FLATTENED_SETS)
            return sherd__expected(p->diag, function, &s, "at most %d sets of axes",
                                   CLI_FLATTENED_SETS);
        unsigned *set = &p->flattened[p->flattened_count++];
        do
            status = scan_axis(p, &s, set);
        while (status == SHERD_OK && sherd__take(&s, ","));
    } while (status == SHERD_OK && sherd__take(&s, ";"));
    if (status == SHERD_OK && !sherd__at_end(&s))
        status = sherd__expected(p->diag, function, &s, ", and an axis, ; and a set, or the end");
    return status;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

sherd_status cli_read_ranks(cli_problem *p, const char *text)
{
    sherd__scanner s = {text, text};
    sherd_status status = scan_number(p, &s, 0, &p->first_rank);

    p->last_rank = p->first_rank;
    if (status == SHERD_OK && sherd__take(&s, "-"))
        status = scan_number(p, &s, p->first_rank, &p->last_rank);
    if (status != SHERD_OK)
        return status;
    if (!sherd__at_end(&s))
        return sherd__expected(p->diag, function, &s, "ranks A-B, for example 0-7");
    return SHERD_OK;
}

sherd_status cli_read_ranks_as(cli_problem *p, const char *text)
{
    static const char *const words[] = {"processes", "threads", NULL};
    int word = find_word(words, text);

    if (!words[word])
        return expected_at_start(p, text, "processes or threads");
    p->ranks_as = word == 0 ? SHERD_PROCESSES : SHERD_THREADS;
    return SHERD_OK;
}
