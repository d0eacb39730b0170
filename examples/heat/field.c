/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two fields with a ghost cell around each piece, which take turns: a step asks for the ghosts of
 * one, computes what needs none of them while they travel, waits, and computes the rest. Nothing is
 * allocated on the way. bench/heat_mpi.c is the same by hand.
 */
#include "field.h"

/* Let a failure of this rank alone become everybody's; all ranks must call it. */
static sherd_status agree(sherd_world *world, sherd_status mine)
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

/* Two fields; the exact first state in the pieces of one. */
static sherd_status fill_in(field *f, const sherd_layout *layout, const waves *w)
{
    static const sherd_border kinds[BORDERS] = {SHERD_BORDER_CONSTANT, SHERD_BORDER_PERIODIC,
                                                SHERD_BORDER_REPLICATE};
    const sherd_halo_side side = {1, kinds[w->border]};
    /* Walls that are kept at 0 are so from the start, and no fill writes them again. */
    const sherd_halo_options halo = {
        .before = {side, side, side}, .after = {side, side, side}, .own_border = true};
    sherd_status status = sherd_ghosts_create(&f->now, layout, SHERD_F64, &halo);

    if (!status)
        status = sherd_ghosts_create(&f->next, layout, SHERD_F64, &halo);
    if (status)
        return status;
    f->cells = (cells){.waves = w,
                       .all = sherd_ghosts_box(f->now),
                       .piece = sherd_layout_box(layout, sherd_world_rank(f->world), 0)};
    double *u = sherd_ghosts_data(f->now);
    return !u || cells_set(&f->cells, u, 0) ? SHERD_OK : SHERD_ENOMEM;
}

sherd_status field_create(field *f, sherd_world *world, const sherd_layout *layout, const waves *w)
{
    *f = (field){.world = world, .mesh = sherd_layout_mesh(layout)};
    sherd_status status = agree(world, fill_in(f, layout, w));

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

bool field_step(field *f)
{
    const cells *c = &f->cells;
    sherd_box inside = cells_inside(c);
    sherd_ghosts *was = f->now;

    if (!sherd_ghosts_begin_fill(&f->now, 1))
        return false;
    double *next = sherd_ghosts_data(f->next); /* waits for who still reads the state before this */
    if (next)
        cells_step(c, &inside, next, sherd_ghosts_peek(f->now));
    const double *now = sherd_ghosts_data(f->now); /* the ghosts are there */
    if (next && now)
        cells_step_rim(c, next, now);
    f->now = f->next;
    f->next = was;
    f->steps++;
    return true;
}

/* ---- what came out -------------------------------------------------------------------------- */

/* Checksums add up modulo 2^64: as quarters, which doubles add exactly. */
sherd_status field_measure(figures *out, const field *f)
{
    const double *u = sherd_ghosts_data(f->now);
    sherd_status status = SHERD_OK;
    double most[2], quarter[4];

    *out = (figures){.error = 0};
    if (u && !cells_measure(out, &f->cells, u, f->steps))
        status = SHERD_ENOMEM;
    status = agree(f->world, status);
    if (status)
        return status;
    most[0] = out->error;
    most[1] = out->height;
    for (int i = 0; i < 4; i++)
        quarter[i] = (double)(out->checksum >> (16 * i) & 0xffff);
    (void)(sherd_reduce_numbers(most, 2, f->mesh, SHERD_MAX) &&
           sherd_reduce_numbers(quarter, 4, f->mesh, SHERD_SUM)); /* a failure: the check's */
    *out = (figures){.error = most[0], .height = most[1]};
    for (int i = 0; i < 4; i++)
        out->checksum += (uint64_t)quarter[i] << (16 * i);
    return sherd_world_check(f->world);
}
