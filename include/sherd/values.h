/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributed tensors of the program's own data, number sequences, identity matrices, and
 * distributions for initial weights. Each element of a sequence depends only on its global index:
 * so each rank computes its own box, nothing is sent, and the values are the same under every
 * layout and on any number of ranks.
 */
#ifndef SHERD_VALUES_H
#define SHERD_VALUES_H

#include "random.h"

SHERD_BEGIN

/* ---- data of the program's own --------------------------------------------------------------- */

/**
 * A distributed tensor with a copy of `data`, which on each rank has the elements of the rank's box
 * (sherd_layout_box): the whole tensor if it is replicated, the rank's addend of a pending
 * reduction. As in sherd_from_local, replicas are believed to be equal; SHERD_VERIFY=1 compares
 * them.
 *
 * Tensors are stored in memory that the ranks share, so the program's own memory cannot become a
 * tensor without a copy. Arrays that lie in another way, as those of Fortran or with cells around
 * them, are copied by sherd_tensor_write_from. To avoid the copy, let the program write into the
 * tensor's memory:
 *
 *     t = sherd_constant_on(layout, SHERD_F32, 0);
 *     float *mine = sherd_tensor_write(t); // sherd_tensor_local_count(t) elements
 *
 * All ranks do so: a check finds ranks that do not open what they hold alike (EDIFFER); what they
 * write there is compared only with SHERD_VERIFY=1.
 *
 * @local
 * @shapes data: the elements of this rank's box, row-major, of `dtype`; may be NULL if the box is
 *         empty
 * @owns   the result belongs to the scope; `data` is only read
 * @errors EINVAL an unknown dtype, data NULL; ENOMEM. NULL for a NULL layout
 */
SHERD_API sherd_tensor *sherd_from_data_on(const sherd_layout *layout, sherd_dtype dtype,
                                           const void *data);

/**
 * Write this rank's box of a tensor from an array of the program's own, however that lies: column
 * by column as in Fortran, with ghost cells or padding around it. `array` points to the first
 * element of the box. Strided views are written too, such as the pieces of sherd_ghosts_tensor.
 * Returns whether it is written: a local answer, so branch on sherd_world_check.
 *
 *     double array[19][14];               // u(14, 19) of Fortran, whose first index is contiguous
 *     const int64_t strides[] = {1, 14};  // of t [10, 15], which is u without 2 cells around it
 *     sherd_tensor_write_from(t, &array[2][2], strides);
 *     sherd_tensor_read_to(&array[2][2], strides, t);
 *
 * @local  as sherd_tensor_write: an in-place write, which all ranks make
 * @shapes array: of the tensor's dtype; NULL if the box is empty; strides: int64_t[ndim], in
 *         elements, how far neighbours along each dim are apart; NULL = row-major without gaps
 * @owns   `array` is only read
 * @errors as sherd_tensor_write, by the alarm, but strided views; EINVAL `array` NULL, a negative
 *         stride, an expanded tensor. False for NULL and the failed tensor
 */
SHERD_API bool sherd_tensor_write_from(sherd_tensor *t, const void *array, const int64_t *strides);

/**
 * Copy this rank's box of a tensor into an array of the program's own: the reverse of
 * sherd_tensor_write_from. What lies between the elements of the box is left as it is.
 *
 * @local  as sherd_tensor_read
 * @shapes out, strides: as `array` and `strides` there
 * @owns   `out` is only written
 * @errors as sherd_tensor_read, by the alarm; EINVAL `out` NULL, a negative stride. False for NULL
 *         and the failed tensor
 */
SHERD_API bool sherd_tensor_read_to(void *out, const int64_t *strides, sherd_tensor *t);

/* ---- sequences and identities --------------------------------------------------------------- */

/**
 * The numbers start, start + step, ... below `end` (above it if step < 0), as a plain tensor of one
 * dim that does not vary.
 *
 * @local
 * @numerics start + i step, computed in f64 and rounded once; exact for integers
 * @owns     the result belongs to the scope
 * @errors   EINVAL a step that leads away from end, numbers that an integer dtype cannot hold,
 *           bool; ELIMIT; ENOMEM. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_arange(sherd_world *world, sherd_dtype dtype, double start,
                                     double end, double step);

/**
 * As sherd_arange, distributed; the size of the layout's one dim says how many numbers there are.
 *
 * @local
 * @owns   scope
 * @errors as sherd_arange; EINVAL a layout without exactly one dim, or with a pending reduction.
 *         NULL for a NULL layout
 */
SHERD_API sherd_tensor *sherd_arange_on(const sherd_layout *layout, sherd_dtype dtype, double start,
                                        double step);

/**
 * `count` evenly spaced numbers from start to end, both included, as a plain tensor that does not
 * vary.
 *
 * @local
 * @owns   scope
 * @errors EINVAL a dtype that is not floating-point, count < 0; ELIMIT; ENOMEM. NULL for a NULL
 *         world
 */
SHERD_API sherd_tensor *sherd_linspace(sherd_world *world, sherd_dtype dtype, double start,
                                       double end, int64_t count);

/**
 * As sherd_linspace, distributed; the size of the layout's one dim says how many numbers there are.
 *
 * @local   @owns scope   @errors as sherd_linspace and sherd_arange_on. NULL for a NULL layout
 */
SHERD_API sherd_tensor *sherd_linspace_on(const sherd_layout *layout, sherd_dtype dtype,
                                          double start, double end);

/**
 * Ones on the diagonal and zeros elsewhere: [rows, columns], as a plain tensor that does not vary.
 *
 * @local
 * @owns   scope
 * @errors EINVAL a negative size, an unknown dtype; ELIMIT; ENOMEM. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_eye(sherd_world *world, sherd_dtype dtype, int64_t rows,
                                  int64_t columns);

/**
 * As sherd_eye, distributed; the layout has two dims.
 *
 * @local
 * @owns   scope
 * @errors as sherd_eye; EINVAL a layout without exactly two dims, or with a pending reduction. NULL
 *         for a NULL layout
 */
SHERD_API sherd_tensor *sherd_eye_on(const sherd_layout *layout, sherd_dtype dtype);

/* ---- distributions for weights -------------------------------------------------------------- */

/*
 * `shape` is the global shape of a weight, [out, in, ...]. Fan in is `in` times the sizes of the
 * dims after it, fan out is `out` times the same sizes. `gain` is 1 without an activation, sqrt(2)
 * for relu. With fewer than two dims or a NULL shape, the result is an invalid distribution, which
 * sherd_random refuses.
 */

/**
 * Uniform in [-b, b), b = gain sqrt(6 / (fan in + fan out)).
 *
 * @local   @shapes shape: int64_t[ndim]   @errors none
 */
SHERD_API sherd_distribution sherd_xavier_uniform(const int64_t *shape, int ndim, double gain);

/**
 * Normal with deviation gain sqrt(2 / (fan in + fan out)).
 *
 * @local   @shapes shape: int64_t[ndim]   @errors none
 */
SHERD_API sherd_distribution sherd_xavier_normal(const int64_t *shape, int ndim, double gain);

/**
 * Uniform in [-b, b), b = gain sqrt(3 / fan in).
 *
 * @local   @shapes shape: int64_t[ndim]   @errors none
 */
SHERD_API sherd_distribution sherd_kaiming_uniform(const int64_t *shape, int ndim, double gain);

/** Normal with deviation gain / sqrt(fan in). @local @shapes shape: int64_t[ndim] @errors none */
SHERD_API sherd_distribution sherd_kaiming_normal(const int64_t *shape, int ndim, double gain);

SHERD_END

#endif
