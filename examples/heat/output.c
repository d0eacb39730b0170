/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output: rank 0 asks for a slab of the field after the other, each a part of the distributed
 * tensor.
 */
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum { SLAB_BYTES = 4 << 20 };

/* Rank 0 has something to say to all. */
static bool complain(sherd_world *world, const char *error)
{
    sherd_world_fail(world, SHERD_EINVAL, error);
    return false;
}

/* ---- the whole field ------------------------------------------------------------------------ */

/*
 * What numpy wants before the numbers: a dict as text, blanks, and a newline, so that the numbers
 * begin at a multiple of 64.
 */
static void write_header(file *to, const int64_t *size)
{
    static const char magic[8] = {(char)0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
    char text[118];
    const char length[2] = {sizeof text, 0}; /* the low byte first */
    int n = snprintf(text, sizeof text,
                     "{'descr': '<f8', 'fortran_order': False, 'shape': (%lld, %lld, %lld), }",
                     (long long)size[0], (long long)size[1], (long long)size[2]);

    memset(text + n, ' ', sizeof text - (size_t)n);
    text[sizeof text - 1] = '\n';
    file_write(to, magic, sizeof magic);
    file_write(to, length, sizeof length);
    file_write(to, text, sizeof text);
}

/*
 * All numbers with these indices of dim 0, in `out` of rank 0. Collective; there, whether they
 * came.
 */
static bool read_slab(double *out, size_t bytes, const field *f, int64_t first, int64_t count)
{
    sherd_scope_begin(f->world);
    sherd_tensor *part = sherd_narrow(sherd_ghosts_tensor(f->now), 0, first, count);
    bool there = sherd_full_read(out, bytes, part, SHERD_DTYPE_NONE, 0);
    sherd_scope_end(f->world);
    return there;
}

/* `to` is NULL on all ranks but one; that writes. */
static void write_slabs(file *to, double *slab, const field *f, int64_t thick)
{
    const int64_t *size = f->cells.waves->size;

    for (int64_t i = 0; i < size[0]; i += thick) {
        int64_t count = i + thick < size[0] ? thick : size[0] - i;
        size_t numbers = (size_t)(count * size[1] * size[2]);
        if (read_slab(slab, numbers * sizeof *slab, f, i, count) && to)
            file_write(to, slab, numbers * sizeof *slab);
    }
}

static sherd_status write_field(const field *f, const heat_options *o)
{
    const int64_t *size = f->cells.waves->size;
    int64_t row = size[1] * size[2], thick = SLAB_BYTES / (row * (int64_t)sizeof(double)) + 1;
    char error[LINE_BYTES];
    double *slab = NULL;
    file out = {.stream = NULL};

    if (sherd_world_rank(f->world) == 0) {
        slab = malloc((size_t)(thick * row) * sizeof *slab);
        if (!slab)
            complain(f->world, "--output: there is no memory for a slab of the field");
        else if (!file_open(&out, "output", o->output, error))
            complain(f->world, error);
        else
            write_header(&out, size);
    }
    write_slabs(out.stream ? &out : NULL, slab, f, thick);
    sherd_status status = sherd_world_check(f->world);
    if (out.stream && !file_close(&out, !status, error))
        complain(f->world, error);
    free(slab);
    return status ? status : sherd_world_check(f->world);
}

/* ---- a picture ------------------------------------------------------------------------------ */

/* The plane in the middle of z: what each rank has of it goes to rank 0. */
static bool read_plane(double *out, const field *f)
{
    const int64_t *size = f->cells.waves->size;
    size_t bytes = (size_t)(size[0] * size[1]) * sizeof *out;

    sherd_scope_begin(f->world);
    sherd_tensor *plane = sherd_narrow(sherd_ghosts_tensor(f->now), 2, size[2] / 2, 1);
    bool there = sherd_full_read(out, bytes, plane, SHERD_DTYPE_NONE, 0);
    sherd_scope_end(f->world);
    return there;
}

static void write_plane(const field *f, const double *plane, const char *path)
{
    const int64_t *size = f->cells.waves->size;
    char error[LINE_BYTES];
    unsigned char *png = NULL;
    size_t bytes;
    file out;

    if (!picture_make(&png, &bytes, plane, size[0], size[1], error) ||
        !file_open(&out, "picture", path, error)) {
        complain(f->world, error);
    } else {
        file_write(&out, png, bytes);
        if (!file_close(&out, true, error))
            complain(f->world, error);
    }
    free(png);
}

static sherd_status write_picture(const field *f, const heat_options *o)
{
    bool first = sherd_world_rank(f->world) == 0;
    size_t numbers = (size_t)(f->cells.waves->size[0] * f->cells.waves->size[1]);
    double *plane = first ? malloc(numbers * sizeof *plane) : NULL;

    if (first && !plane)
        complain(f->world, "--picture: there is no memory for it");
    if (read_plane(plane, f) && plane)
        write_plane(f, plane, o->picture);
    free(plane);
    return sherd_world_check(f->world);
}

/* ---- both ----------------------------------------------------------------------------------- */

sherd_status output_check(sherd_world *world, const heat_options *o)
{
    char error[LINE_BYTES];
    bool first = sherd_world_rank(world) == 0;

    if (first && o->output && !file_check("output", o->output, error))
        complain(world, error);
    else if (first && o->picture &&
             !(picture_can(error) && file_check("picture", o->picture, error)))
        complain(world, error);
    return sherd_world_check(world);
}

sherd_status output_write(const field *f, const heat_options *o)
{
    sherd_status status = SHERD_OK;

    if (o->output)
        status = write_field(f, o);
    if (!status && o->picture)
        status = write_picture(f, o);
    return status;
}
