/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures as PNG, by libpng's simple interface. */
#include <png.h>
#include <stdlib.h>

#include "output.h"

enum { WANTED = 400 /* pixels of the longer side, about */ };

static const unsigned char cold[3] = {33, 102, 172}, none[3] = {247, 247, 247},
                           warm[3] = {178, 24, 43};

bool picture_can(char *error)
{
    (void)error;
    return true;
}

/* `value` from -1 to 1. */
static void colour(unsigned char *out, double value)
{
    const unsigned char *end = value < 0 ? cold : warm;
    double share = value < 0 ? -value : value;

    if (!(share <= 1)) /* not a number */
        share = 1;
    for (int c = 0; c < 3; c++)
        out[c] = (unsigned char)(none[c] + share * (end[c] - none[c]) + 0.5);
}

static double factor_of(const double *values, int64_t count)
{
    double height = 0;

    for (int64_t i = 0; i < count; i++) {
        double size = values[i] < 0 ? -values[i] : values[i];
        height = size > height ? size : height;
    }
    return height > 0 ? 1 / height : 0;
}

/* Each number is a square of `scale` pixels. */
static void paint(unsigned char *out, const double *values, int64_t rows, int64_t columns,
                  int64_t scale)
{
    double factor = factor_of(values, rows * columns);

    for (int64_t i = 0; i < rows * scale; i++)
        for (int64_t j = 0; j < columns * scale; j++, out += 3)
            colour(out, values[i / scale * columns + j / scale] * factor);
}

/* *bytes goes in as the room, and comes out as what is used. */
static bool compress(png_image *image, unsigned char *out, size_t *bytes,
                     const unsigned char *pixels, char *error)
{
    if (out && pixels && png_image_write_to_memory(image, out, bytes, 0, pixels, 0, NULL))
        return true;
    snprintf(error, LINE_BYTES, "--picture: %s",
             out && pixels ? image->message : "there is no memory for it");
    return false;
}

bool picture_make(unsigned char **out, size_t *bytes, const double *values, int64_t rows,
                  int64_t columns, char *error)
{
    int64_t longer = rows > columns ? rows : columns, scale = longer < WANTED ? WANTED / longer : 1;
    unsigned char *pixels = malloc((size_t)(rows * columns * scale * scale) * 3);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)(columns * scale),
                       .height = (png_uint_32)(rows * scale),
                       .format = PNG_FORMAT_RGB};

    *bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    *out = malloc(*bytes);
    if (pixels)
        paint(pixels, values, rows, columns, scale);
    if (!compress(&image, *out, bytes, pixels, error)) {
        free(*out);
        *out = NULL;
    }
    free(pixels);
    return *out != NULL;
}
