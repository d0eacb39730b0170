/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is written of the last state: all of it for numpy, and a picture. Rank 0 writes; no rank
 * ever holds all of it.
 */
#ifndef HEAT_OUTPUT_H
#define HEAT_OUTPUT_H

#include "field.h"
#include "file.h"

/* Whether what was asked for can be written. Collective; all ranks get the same status. */
sherd_status output_check(sherd_world *world, const heat_options *o);

/* Write it. Collective as above. */
sherd_status output_write(const field *f, const heat_options *o);

/*
 * A picture of numbers, row by row, as the bytes of a PNG: the highest is red, or the lowest blue,
 * and 0 white. There are two of this: picture.c, and picture_none.c where there was no libpng. The
 * caller frees *out, NULL on failure; then `error`, char[LINE_BYTES], says why.
 */
bool picture_make(unsigned char **out, size_t *bytes, const double *values, int64_t rows,
                  int64_t columns, char *error);

/* Whether there are pictures at all; false as above. */
bool picture_can(char *error);

#endif
