/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Operators that look through windows at the space of a field [batch, channels, ...], each dim by
 * itself: pooling and interpolation. What element o of a result reads of a dim is an interval;
 * where it begins and ends never decreases with o, so what a rank reads for its elements is an
 * interval too, and so is what reads its elements.
 */
#ifndef SHERD__FIELDS_TAPS_H
#define SHERD__FIELDS_TAPS_H

#include "kernels/taps.h"
#include "ops/shared.h"

enum { SHERD__SPACE_DIMS = 3, SHERD__SPACE = 2 /* the first dim of space */ };

typedef enum sherd__taps_mode {
    SHERD__TAPS_NEAREST,
    SHERD__TAPS_EXACT,
    SHERD__TAPS_LINEAR,
    SHERD__TAPS_CUBIC,
    SHERD__TAPS_ADAPTIVE, /* averages of equal parts */
    SHERD__TAPS_AVERAGE,  /* of windows, as SHERD__TAPS_MAXIMUM */
    SHERD__TAPS_MAXIMUM,
    SHERD__TAPS_LARGEST /* maxima of equal parts */
} sherd__taps_mode;

/* As in the options in ops_stencil.h. */
typedef struct sherd__taps_attributes {
    int mode;
    bool aligned, ceil, without_padding;
    int64_t divisor;
    int64_t kernel[SHERD__SPACE_DIMS], stride[SHERD__SPACE_DIMS], padding[SHERD__SPACE_DIMS],
        dilation[SHERD__SPACE_DIMS];
    int64_t size[SHERD__SPACE_DIMS];  /* of the result; 0: by the factor */
    double factor[SHERD__SPACE_DIMS]; /* 0: by the size */
    int64_t from[SHERD__SPACE_DIMS];  /* in backward: the size of what was read */
} sherd__taps_attributes;

#define SHERD__TAPS_FIELDS                                                            \
    {                                                                                 \
        SHERD__CHOICE(sherd__taps_attributes, mode,                                   \
                      "nearest|nearest exact|linear|cubic|averages of "               \
                      "parts|averages|maxima|maxima of parts"),                       \
            SHERD_FIELD(sherd__taps_attributes, aligned, BOOL),                       \
            SHERD_FIELD(sherd__taps_attributes, ceil, BOOL),                          \
            SHERD_FIELD(sherd__taps_attributes, without_padding, BOOL),               \
            SHERD_FIELD(sherd__taps_attributes, divisor, INT64),                      \
            SHERD_FIELDS(sherd__taps_attributes, kernel, INT64, SHERD__SPACE_DIMS),   \
            SHERD_FIELDS(sherd__taps_attributes, stride, INT64, SHERD__SPACE_DIMS),   \
            SHERD_FIELDS(sherd__taps_attributes, padding, INT64, SHERD__SPACE_DIMS),  \
            SHERD_FIELDS(sherd__taps_attributes, dilation, INT64, SHERD__SPACE_DIMS), \
            SHERD_FIELDS(sherd__taps_attributes, size, INT64, SHERD__SPACE_DIMS),     \
            SHERD_FIELDS(sherd__taps_attributes, factor, DOUBLE, SHERD__SPACE_DIMS),  \
            SHERD_FIELDS(sherd__taps_attributes, from, INT64, SHERD__SPACE_DIMS),     \
    }

/* One dim: m elements made of n. */
typedef struct sherd__taps {
    sherd__taps_mode mode;
    int64_t n, m, kernel, stride, padding, dilation;
    bool aligned, without_padding;
    bool narrow;    /* coordinates are counted in f32, as those of all dtypes but f64 */
    double divisor; /* 0: as many as there are */
    double scale;   /* elements of what is read for one that is made */
} sherd__taps;

/* What a row reads, and the element that it belongs to. */
typedef struct sherd__reading {
    int64_t first, end, middle;
} sherd__reading;

/* Dim d of space. `a` fits. */
sherd__taps sherd__taps_of(const sherd__taps_attributes *a, int d, int64_t n, int64_t m,
                           sherd_dtype dtype);
/* Its weights too, but of a maximum; `first` is counted in the whole dim. */
sherd__tap sherd__taps_row(const sherd__taps *t, int64_t o);

/*
 * What is read for the elements [lo, hi), and the elements that read any of [lo, hi): both with lo
 * < hi.
 */
sherd__reading sherd__taps_around(const sherd__taps *t, int64_t lo, int64_t hi);
sherd__reading sherd__taps_readers(const sherd__taps *t, int64_t lo, int64_t hi);

/*
 * The same for windows: of t only kernel, stride, padding and dilation are used, and n, or m. Not
 * more than some tap reads.
 */
sherd__reading sherd__windows_read(const sherd__taps *t, int64_t lo, int64_t hi);
sherd__reading sherd__windows_readers(const sherd__taps *t, int64_t lo, int64_t hi);
/* The cut of the result that follows from one of what is read. */
int64_t sherd__taps_cut(const sherd__taps *t, int64_t cut);

/* ---- for the operators (taps_lie.c) ---------------------------------------------------------- */

/* Operand 0 [batch, channels, space ...] and attributes fit; says the shapes of all results. */
const char *sherd__taps_describe(sherd_call *call);
/* Forward: what lies around operand 0; batch, channels and space stay where they are. */
sherd_status sherd__taps_ways(const sherd_call *call, sherd_ways *ways);
void sherd__taps_reads(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                       int64_t *end);

/*
 * Backward: the gradient of operand 0, in the layout that stands for the last operand. All other
 * operands have the layout of the result; the first may be a pending sum.
 */
const char *sherd__taps_describe_back(sherd_call *call);
sherd_status sherd__taps_ways_back(const sherd_call *call, sherd_ways *ways);
void sherd__taps_reads_back(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                            int64_t *first, int64_t *end);
/* The attributes of the backward of a node. */
sherd__taps_attributes sherd__taps_back(sherd_node *node);

#endif
