/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: slices of a field that examples/heat has written, or waves that have cooled down for a
 * while. An image depends on the seed and its number alone, so it is the same on every mesh; each
 * rank makes, or reads, only its own part.
 */
#include <math.h>
#include <string.h>

#include "unet.h"

/* A number from 0 to below 1 that depends on these three. */
static double chance(int64_t seed, int64_t image, int64_t what)
{
    uint64_t x = (uint64_t)seed * 0x9E3779B97F4A7C15u + (uint64_t)image * 0xBF58476D1CE4E5B9u +
                 (uint64_t)what * 0x94D049BB133111EBu;

    for (int i = 0; i < 3; i++) {
        x ^= x >> 31;
        x *= 0x7FB5D329728EA185u;
    }
    return (double)(x >> 11) / 9007199254740992.0;
}

/* ---- a file --------------------------------------------------------------------------------- */

/* The header of a .npy file, version 1: a Python dict as text. */
static const char *read_header(fields *f)
{
    unsigned char head[10];
    char text[1024], order[6] = "";
    const char *shape, *type;
    long long a, b, c;

    if (fread(head, 1, sizeof head, f->file) != sizeof head || memcmp(head, "\x93NUMPY\1", 7) != 0)
        return "is no .npy file of version 1";
    size_t length = head[8] + 256u * head[9];
    if (length >= sizeof text || fread(text, 1, length, f->file) != length)
        return "has a header of another kind";
    text[length] = '\0';
    f->first = (int64_t)(sizeof head + length);
    type = strstr(text, "'descr': '<f");
    shape = strstr(text, "'shape': (");
    if (!type || (type[12] != '4' && type[12] != '8'))
        return "holds no f32 or f64";
    f->bytes = (size_t)(type[12] - '0');
    (void)sscanf(strstr(text, "'fortran_order':") ? strstr(text, "'fortran_order':") + 16 : "",
                 " %5[a-zA-Z]", order);
    if (!shape || sscanf(shape + 10, "%lld, %lld, %lld", &a, &b, &c) != 3 ||
        strncmp(order, "False", 5) != 0)
        return "is no field of three dims in C order";
    f->shape[0] = a;
    f->shape[1] = b;
    f->shape[2] = c;
    return NULL;
}

bool fields_open(fields *f, const options *o, char *error)
{
    const char *fault = NULL;

    *f = (fields){.file = NULL};
    if (!o->fields)
        return true;
    f->file = fopen(o->fields, "rb");
    fault = f->file ? read_header(f) : "cannot be opened";
    if (!fault && (f->shape[0] < 1 || f->shape[1] < o->height || f->shape[2] < o->width))
        fault = "has slices that are smaller than the images (--size)";
    if (fault)
        snprintf(error, LINE_BYTES, "--fields: %.200s %s", o->fields, fault);
    return !fault;
}

void fields_close(fields *f)
{
    if (f->file)
        fclose(f->file);
    f->file = NULL;
}

/* A row of an image: where its window lies in the file follows from its number. */
static bool read_row(float *out, const fields *f, const options *o, int64_t image, int64_t row,
                     int64_t col, int64_t n)
{
    int64_t slice = (int64_t)(chance(o->seed, image, 0) * (double)f->shape[0]);
    int64_t top = (int64_t)(chance(o->seed, image, 1) * (double)(f->shape[1] - o->height + 1));
    int64_t left = (int64_t)(chance(o->seed, image, 2) * (double)(f->shape[2] - o->width + 1));
    int64_t at = (slice * f->shape[1] + top + row) * f->shape[2] + left + col;

    if (fseek(f->file, (long)(f->first + at * (int64_t)f->bytes), SEEK_SET) != 0)
        return false;
    for (int64_t i = 0; i < n; i++) {
        double wide = 0;
        if (fread(f->bytes == 4 ? (void *)&out[i] : (void *)&wide, f->bytes, 1, f->file) != 1)
            return false;
        if (f->bytes == 8)
            out[i] = (float)wide;
    }
    return true;
}

/* ---- a formula ------------------------------------------------------------------------------ */

enum { WAVES = 5 };

/*
 * Waves of the heat equation on a unit square, some time after they were lit: short ones are gone
 * first.
 */
static void make_row(float *out, const options *o, int64_t image, int64_t row, int64_t col,
                     int64_t n)
{
    const double pi = 3.14159265358979323846, time = 0.002 + 0.01 * chance(o->seed, image, 1);

    for (int64_t i = 0; i < n; i++)
        out[i] = 0;
    for (int w = 0; w < WAVES; w++) {
        double up = 1 + floor(6 * chance(o->seed, image, 10 + w)),
               side = 1 + floor(6 * chance(o->seed, image, 20 + w));
        double phase = 2 * pi * chance(o->seed, image, 30 + w);
        double high = exp(-pi * pi * (up * up + side * side) * time) *
                      sin(pi * up * ((double)row + 0.5) / (double)o->height);
        for (int64_t i = 0; i < n; i++)
            out[i] += (float)(high * sin(pi * side * ((double)(col + i) + 0.5) / (double)o->width +
                                         phase));
    }
}

bool fields_read(float *out, const fields *f, const options *o, int64_t step, const sherd_box *box)
{
    int64_t width = box->size[3];

    for (int64_t b = 0; b < box->size[0]; b++)
        for (int64_t r = 0; r < box->size[2]; r++, out += width) {
            int64_t image = step * o->batch + box->offset[0] + b, row = box->offset[2] + r;
            if (!f->file)
                make_row(out, o, image, row, box->offset[3], width);
            else if (!read_row(out, f, o, image, row, box->offset[3], width))
                return false;
        }
    return true;
}
