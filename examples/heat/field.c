/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two fields with a ghost cell around each piece, which take turns: a step asks for the ghosts of one, computes what needs none
 * of them while they travel, waits, and computes the rest. Nothing is allocated on the way. Every cell is computed by
 * the same expression from the same numbers wherever it lies, so the bits do not depend on the ranks.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "field.h"

/* ---- making one ----------------------------------------------------------------------------- */

sherd_status field_layout(const sherd_layout **out, sherd_world *world, const heat_options *o)
{
    static const char *const names[DIMS] = {"x", "y", "z"};
    const sherd_mesh *mesh;
    sherd_status status = sherd_mesh_create(&mesh, world, DIMS, o->mesh, names, NULL);

    if (status)
        return status;
    return agree(world,
                 sherd_layout_parse_placements(out, mesh, DIMS, o->size, "S(0)S(1)S(2)", o->cuts));
}

static int64_t count_of(const sherd_box *box)
{
    return box->size[0] * box->size[1] * box->size[2];
}

/* Where a cell lies among this rank's cells, ghosts too. */
static int64_t place(const field *f, int64_t i, int64_t j, int64_t k)
{
    const sherd_box *c = &f->cells;

    return ((i - c->offset[0]) * c->size[1] + j - c->offset[1]) * c->size[2] + k - c->offset[2];
}

/* Write the exact state after f->steps into the piece. */
static sherd_status set(field *f)
{
    double *cells = sherd_ghosts_data(f->now), decay[MOST_MODES];
    const int64_t *at = f->piece.offset, *n = f->piece.size;
    wave_tables tables;
    bool good = wave_tables_make(&tables, f->waves, &f->piece);

    waves_decay(decay, f->waves, f->steps);
    for (int64_t i = 0; good && cells && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            waves_row(cells + place(f, at[0] + i, at[1] + j, at[2]), f->waves, &tables, decay, i,
                      j);
    wave_tables_free(&tables);
    return good ? SHERD_OK : SHERD_ENOMEM;
}

sherd_status field_create(field *f, sherd_world *world, const sherd_layout *layout, const waves *w)
{
    static const sherd_border kinds[BORDERS] = {SHERD_BORDER_CONSTANT, SHERD_BORDER_PERIODIC,
                                                SHERD_BORDER_REPLICATE};
    const sherd_halo_side side = {1, kinds[w->border]};
    const sherd_halo_options halo = {.before = {side, side, side}, .after = {side, side, side}};
    sherd_status status;

    *f = (field){.world = world, .waves = w, .mesh = sherd_layout_mesh(layout)};
    status = sherd_ghosts_create(&f->now, layout, SHERD_F64, &halo);
    if (!status)
        status = sherd_ghosts_create(&f->next, layout, SHERD_F64, &halo);
    if (!status) {
        f->cells = sherd_ghosts_box(f->now);
        f->piece = sherd_layout_box(layout, sherd_world_rank(world), 0);
        status = set(f);
    }
    status = agree(world, status);
    if (status)
        field_destroy(f);
    return status;
}

void field_destroy(field *f)
{
    sherd_ghosts_destroy(f->now);
    sherd_ghosts_destroy(f->next);
    f->now = f->next = NULL;
}

/* ---- a step --------------------------------------------------------------------------------- */

/* n cells in a row; `side` and `back`: how far away the neighbours along y and x are. */
static void step_row(double *restrict next, const double *u, int64_t n, int64_t side, int64_t back,
                     const double *c)
{
    for (int64_t k = 0; k < n; k++)
        next[k] = u[k] + (c[0] * (u[k - back] + u[k + back] - 2 * u[k]) +
                          c[1] * (u[k - side] + u[k + side] - 2 * u[k]) +
                          c[2] * (u[k - 1] + u[k + 1] - 2 * u[k]));
}

static void step_box(const field *f, const sherd_box *box, double *next, const double *now)
{
    int64_t side = f->cells.size[2], back = side * f->cells.size[1];
    double c[DIMS];

    for (int d = 0; d < DIMS; d++)
        c[d] = f->waves->step / (f->waves->spacing[d] * f->waves->spacing[d]);
    for (int64_t i = 0; i < box->size[0]; i++)
        for (int64_t j = 0; j < box->size[1]; j++) {
            int64_t at = place(f, box->offset[0] + i, box->offset[1] + j, box->offset[2]);
            step_row(next + at, now + at, box->size[2], side, back, c);
        }
}

/* What needs no ghost cell; it may be empty. */
static sherd_box inside(const field *f)
{
    sherd_box box = f->piece;

    for (int d = 0; d < DIMS; d++) {
        box.offset[d]++;
        box.size[d] = box.size[d] > 2 ? box.size[d] - 2 : 0;
    }
    return box;
}

/* All the rest: a layer before and one behind for each dim, each of what the dims before have left. */
static void step_rim(const field *f, double *next, const double *now)
{
    sherd_box rest = f->piece;

    for (int d = 0; d < DIMS && count_of(&rest); d++) {
        sherd_box layer = rest;
        layer.size[d] = 1;
        step_box(f, &layer, next, now);
        layer.offset[d] += rest.size[d] - 1;
        if (rest.size[d] > 1)
            step_box(f, &layer, next, now);
        rest.offset[d]++;
        rest.size[d] = rest.size[d] > 2 ? rest.size[d] - 2 : 0;
    }
}

bool field_step(field *f)
{
    sherd_box box = inside(f);
    sherd_ghosts *was = f->now;
    double *next;

    if (!sherd_ghosts_begin_fill(&f->now, 1))
        return false;
    next = sherd_ghosts_data(f->next); /* waits for whoever still reads the state before this one */
    if (next && count_of(&box))
        step_box(f, &box, next, sherd_ghosts_peek(f->now));
    const double *now = sherd_ghosts_data(f->now); /* the ghosts are there */
    if (next && now)
        step_rim(f, next, now);
    f->now = f->next;
    f->next = was;
    f->steps++;
    return true;
}

/* ---- what came out -------------------------------------------------------------------------- */

/* Mix a number and its place into 64 bits that tell of both. */
static uint64_t mix(double value, int64_t at)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = (bits ^ (uint64_t)at * 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ bits >> 29) * 0x94d049bb133111ebu;
    return bits ^ bits >> 32;
}

static void measure_row(field_figures *out, const field *f, const double *u, const double *exact,
                        int64_t first)
{
    for (int64_t k = 0; k < f->piece.size[2]; k++) {
        double error = fabs(u[k] - exact[k]);
        out->error = error <= out->error ? out->error : error; /* a NaN stays */
        out->height = fmax(out->height, fabs(u[k]));
        out->checksum += mix(u[k], first + k);
    }
}

static sherd_status measure_piece(field_figures *out, const field *f)
{
    const double *cells = sherd_ghosts_data(f->now);
    const int64_t *at = f->piece.offset, *n = f->piece.size, *size = f->waves->size;
    double decay[MOST_MODES], *row = malloc((size_t)n[2] * sizeof *row + 1);
    wave_tables tables;
    bool good = wave_tables_make(&tables, f->waves, &f->piece) && row;

    waves_decay(decay, f->waves, f->steps);
    for (int64_t i = 0; good && cells && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++) {
            waves_row(row, f->waves, &tables, decay, i, j);
            measure_row(out, f, cells + place(f, at[0] + i, at[1] + j, at[2]), row,
                        ((at[0] + i) * size[1] + at[1] + j) * size[2] + at[2]);
        }
    wave_tables_free(&tables);
    free(row);
    return good ? SHERD_OK : SHERD_ENOMEM;
}

void across_ranks(const sherd_mesh *mesh, sherd_world *world, sherd_reduce_op op, double *values,
                  int64_t n)
{
    sherd_placement pending = sherd_partial(op), all[] = {pending, pending, pending};

    sherd_scope_begin(world);
    sherd_tensor *mine = sherd_from_data(world, SHERD_F64, &n, 1, values);
    sherd_full_read(values, (size_t)n * sizeof *values, sherd_from_local(mine, mesh, all, NULL),
                    SHERD_F64, -1);
    sherd_scope_end(world);
}

/* Sums of 64 bits, modulo 2^64: as quarters, which doubles add exactly. */
sherd_status field_measure(field_figures *out, const field *f)
{
    double most[2], quarter[4];
    sherd_status status;

    *out = (field_figures){.error = 0};
    status = agree(f->world, measure_piece(out, f));
    if (status)
        return status;
    most[0] = isnan(out->error) ? (double)INFINITY : out->error;
    most[1] = out->height;
    for (int i = 0; i < 4; i++)
        quarter[i] = (double)(out->checksum >> (16 * i) & 0xffff);
    across_ranks(f->mesh, f->world, SHERD_MAX, most, 2);
    across_ranks(f->mesh, f->world, SHERD_SUM, quarter, 4);
    out->error = most[0];
    out->height = most[1];
    out->checksum = 0;
    for (int i = 0; i < 4; i++)
        out->checksum += (uint64_t)quarter[i] << (16 * i);
    return sherd_world_check(f->world);
}

/* ---- errors --------------------------------------------------------------------------------- */

sherd_status agree(sherd_world *world, sherd_status mine)
{
    char text[SHERD_ERROR_BYTES];
    int skip = 0;

    if (mine) {
        snprintf(text, sizeof text, "%s", sherd_world_error(world));
        if (!text[0])
            snprintf(text, sizeof text, "%s", sherd_status_text(mine));
        (void)sscanf(text, "rank %*d: %n", &skip); /* sherd_world_fail puts the rank in front */
        sherd_world_fail(world, mine, text + skip);
    }
    return sherd_world_check(world);
}
