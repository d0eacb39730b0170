/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this example share. */
#ifndef UNET_H
#define UNET_H

#include <stdio.h>

#include <sherd.h>

enum { LINE_BYTES = 512 }; /* room for any message of this program */

typedef struct options {
    int ranks;
    /* "dp=1,x=2": dp shards the batch, x rows, y columns; NULL = all ranks on x */
    const char *mesh;
    int64_t height, width; /* of the images */
    int64_t batch, steps, channels, levels, seed;
    double rate;
    const char *fields; /* a .npy of three dims, whose slices are the images; NULL = made here */
    bool threads, help;
} options;

/*
 * Fill in `out`, defaults included. False: `error`, char[LINE_BYTES], says in one line what is
 * wrong.
 */
bool options_parse(options *out, int argc, char **argv, char *error);
void options_help(FILE *file);

/* The network: images [batch, 1, height, width] to images. `o` must live as long. */
sherd_status model_create(sherd_module **out, sherd_world *world, const options *o);

/* Where images come from: a file, of which each rank reads its own part, or a formula. */
typedef struct fields {
    FILE *file;    /* NULL = a formula */
    int64_t first; /* byte of the file at which the numbers begin */
    int64_t shape[3];
    size_t bytes; /* of a number: 4 or 8 */
} fields;

bool fields_open(fields *f, const options *o, char *error);
void fields_close(fields *f);

/* This rank's box of a step's images, row-major. False: the file could not be read. */
bool fields_read(float *out, const fields *f, const options *o, int64_t step, const sherd_box *box);

#endif
