/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's GPU. CUDA's driver, its run-time compiler (NVRTC) and cuBLAS are loaded when the first
 * world asks for a GPU: nothing of CUDA is needed to build sherd or to run without one.
 *
 * Everything that a rank does on its GPU is queued in one stream, in the order of the calls, and
 * done some time later; only sherd__device_wait, download and the functions that say so wait for
 * it. So memory that was given back may be taken and written again at once: the stream does it in
 * the right order. Pointers into the GPU's memory are plain void pointers that no CPU code may
 * follow.
 *
 * A failure of the GPU is sticky: functions that queue work return nothing, and do nothing once
 * something has failed; sherd__device_fault tells what it was. Lack of memory is not: what could
 * not be queued for it is left out, sherd__device_lacked tells that, and later calls go on. Whoever
 * waits must ask for both.
 *
 * See docs/decisions/106.
 */
#ifndef SHERD__DEVICE_DEVICE_H
#define SHERD__DEVICE_DEVICE_H

#include "base/alloc.h"
#include "base/diag.h"
#include "base/philox.h"
#include "kernels/kernels.h"
#include "sherd/dtype.h"
#include "sherd/layout.h"

typedef struct sherd__device sherd__device;

/*
 * Open the GPU that `name` says: "cuda" takes the one with this rank's number, round robin;
 * "cuda:1" that one. ENOTSUP: there is none, or a library is missing (the text says which);
 * EINVAL: no such name; ENOMEM. Local.
 */
sherd_status sherd__device_open(sherd__device **out, sherd__heap *heap, sherd__diag *diag,
                                const char *name, int rank);
/* Waits for what is queued. All blocks must have been given back, or are freed. NULL is a no-op. */
void sherd__device_close(sherd__device *device);
/* What says that a process has ended whose marks may never be reached: a wait for them is then a
 * fault, and what is queued is left where it is. */
void sherd__device_watch(sherd__device *device, bool (*is_over)(const void *of), const void *of);
/* "cuda:0" */
const char *sherd__device_name(const sherd__device *device);
/* The CUstream of this rank, for whoever queues work in it now: its context is the current one. */
void *sherd__device_stream(sherd__device *device);
/* As its maker calls it: "NVIDIA H100 80GB HBM3". */
const char *sherd__device_model(const sherd__device *device);

/* ---- failures ------------------------------------------------------------------------------- */

/* The first failure of this rank's GPU in one line; NULL = none. It stays. */
const char *sherd__device_fault(const sherd__device *device);
/* Note a failure, unless there is one already. */
void sherd__device_fail(sherd__device *device, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Note that something was not queued for lack of memory, the GPU's or the CPU's: "out of memory for
 * a kernel". The first one counts, until it is asked for. */
void sherd__device_lack(sherd__device *device, const char *what);
/* What was noted since the last time that this was asked, valid until more is noted; NULL: nothing
 * lacked. */
const char *sherd__device_lacked(sherd__device *device);

/* ---- memory (memory.c) ---------------------------------------------------------------------- */

/*
 * A piece of the GPU's memory, 256-byte aligned. Pieces are cut from chunks, joined again when
 * they are given back, and kept for later: the driver is asked rarely.
 */
typedef struct sherd__device_block {
    void *data;
    int64_t bytes;                               /* as asked */
    struct sherd__chunk *chunk;                  /* the driver's piece that it is part of */
    int64_t offset;                              /* there */
    struct sherd__device_block *previous, *next; /* neighbours in the chunk */
    struct sherd__device_block *less, *more;     /* of free ones: the list of its size */
    int64_t room;                                /* bytes that it takes */
    bool used;
} sherd__device_block;

/* bytes > 0. NULL: no memory (of the GPU, or for the struct), which is not a fault; or a fault. */
sherd__device_block *sherd__device_take(sherd__device *device, int64_t bytes);
/* In the order of the stream. NULL is a no-op. */
void sherd__device_give(sherd__device *device, sherd__device_block *block);
/* Bytes that are taken now; that the driver has given; the most taken since the last reset. */
typedef struct sherd__device_memory {
    int64_t live_bytes, reserved_bytes, peak_bytes;
} sherd__device_memory;
sherd__device_memory sherd__device_memory_of(const sherd__device *device);
void sherd__device_memory_reset(sherd__device *device);

/* ---- copies and waiting (transfer.c) --------------------------------------------------------- */

/* To the GPU. The source may be changed as soon as this returns. */
void sherd__device_upload(sherd__device *device, void *dst, const void *src, int64_t bytes);
/* From the GPU; waits for all that is queued. False: a fault, or lack of memory, also if that is
 * why what was to be read was not made. */
bool sherd__device_download(sherd__device *device, void *dst, const void *src, int64_t bytes);
/* Within the GPU, not overlapping. */
void sherd__device_move(sherd__device *device, void *dst, const void *src, int64_t bytes);
/* Every byte to `value`. */
void sherd__device_set(sherd__device *device, void *dst, int value, int64_t bytes);
/* Wait for all that is queued. False: a fault, or no memory to wait. */
bool sherd__device_wait(sherd__device *device);

/* ---- other ranks' memory (peers.c) ----------------------------------------------------------- */

enum { SHERD__DEVICE_WORDS = 20 };

/*
 * A place in this rank's memory in words that any rank of the machine can use, if it is told them:
 * which process and chunk, the driver's handle of it, the offset. `block` NULL: a place of nothing.
 */
void sherd__device_export(sherd__device *device, int64_t word[SHERD__DEVICE_WORDS],
                          const sherd__device_block *block, int64_t offset);
/*
 * The place as a pointer for this rank's GPU, valid until the device is closed (or the other one
 * is). NULL: a place of nothing, a fault, or lack of memory.
 */
const void *sherd__device_import(sherd__device *device, const int64_t word[SHERD__DEVICE_WORDS]);

/*
 * Order between the streams of two ranks. A mark is a point in this rank's stream, in words for
 * others: `which` of SHERD__DEVICE_MARKS marks is put to where the stream is now. A rank that was
 * told of it, after that, makes its own stream wait for the point. Neither waits itself.
 */
enum { SHERD__DEVICE_MARKS = 20, SHERD__MARK_WORDS = 12 };
void sherd__device_mark(sherd__device *device, int which, int64_t word[SHERD__MARK_WORDS]);
void sherd__device_await(sherd__device *device, const int64_t word[SHERD__MARK_WORDS]);

/* Whether a place and a mark of another rank can be used. Tried: that it cannot is no failure. */
bool sherd__device_reaches(sherd__device *device, const int64_t place[SHERD__DEVICE_WORDS],
                           const int64_t mark[SHERD__MARK_WORDS]);

/* ---- programs (program.c) -------------------------------------------------------------------- */

/* The .cu files of this room; each is compiled for one kernel at a time, when that is wanted. */
typedef enum sherd__program {
    SHERD__PROGRAM_ELEMENTS,
    SHERD__PROGRAM_COPY,
    SHERD__PROGRAM_REDUCE,
    SHERD__PROGRAM_ROWS,
    SHERD__PROGRAM_OVER_ROWS,
    SHERD__PROGRAM_ATTENTION,
    SHERD__PROGRAM_ATTENTION_HALF,
    SHERD__PROGRAM_UPDATE,
    SHERD__PROGRAM_ROTARY,
    SHERD__PROGRAM_RESIDUAL,
    SHERD__PROGRAM_SHARED_ROWS,
    SHERD__PROGRAM_COMPARE,
    SHERD__PROGRAM_WHOLE,
    SHERD__PROGRAM_FOLDS,
    SHERD__PROGRAM_RUNNING,
    SHERD__PROGRAM_DECODE,
    SHERD__PROGRAM_TABLES,
    SHERD__PROGRAM_ORDER,
    SHERD__PROGRAM_SETS,
    SHERD__PROGRAM_FIELDS,
    SHERD__PROGRAMS
} sherd__program;

/*
 * A kernel: an instance of a template of a program. Template `family`<kind, a, b> becomes the
 * kernel family_kind_a_b; kind NULL, and dtypes NONE, are left out. All texts are static.
 */
typedef struct sherd__kernel {
    sherd__program program;
    const char *family; /* its argument is one struct, family_args, of the program's _args.h */
    const char *kind;
    sherd_dtype a, b;
} sherd__kernel;

typedef struct sherd__launch_grid {
    int64_t blocks;
    int threads; /* of a block; a multiple of 32, at most 1024 */
    int shared;  /* bytes of memory of a block, besides what the kernel declares */
} sherd__launch_grid;

/* Queue a kernel; `args` is copied. No blocks: nothing. */
void sherd__device_launch(sherd__device *device, const sherd__kernel *kernel,
                          sherd__launch_grid grid, const void *args, size_t bytes);

/* ---- kernels: as in kernels.h, on the GPU's pointers, queued --------------------------------- */

/* Whether kernels of fractions, and of what adds up, have this dtype: f32, f64, bf16, f16. */
static inline bool sherd__device_computes(sherd_dtype dtype)
{
    return dtype == SHERD_F32 || dtype == SHERD_F64 || dtype == SHERD_BF16 || dtype == SHERD_F16;
}

/* Whether there are reductions of this dtype. */
static inline bool sherd__device_adds(sherd_dtype dtype)
{
    return sherd__device_computes(dtype) || dtype == SHERD_I32 || dtype == SHERD_I64 ||
           dtype == SHERD_BOOL;
}

/* elements.c: dtypes that it computes */
void sherd__device_binary(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                          int ndim, const int64_t *size, void *dst, const void *a,
                          const int64_t *a_stride, const void *b, const int64_t *b_stride);
void sherd__device_binary_grad(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                               int which, int ndim, const int64_t *size, void *dst, const void *dy,
                               const void *a, const int64_t *a_stride, const void *b,
                               const int64_t *b_stride);
void sherd__device_unary(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                         int64_t n, void *dst, const void *src, const double *parameter);
void sherd__device_unary_grad(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                              int64_t n, void *dx, const void *at, const void *dy,
                              const double *parameter);
void sherd__device_fill(sherd__device *device, sherd_dtype dtype, void *dst, int64_t n,
                        double value);
/* Between any dtypes. */
void sherd__device_convert(sherd__device *device, sherd_dtype to, sherd_dtype from, int64_t n,
                           void *dst, const void *src);
/* The numbers are those of base/philox.h. dst may equal src. */
void sherd__device_dropout(sherd__device *device, sherd_dtype dtype, int64_t n, void *dst,
                           const void *src, double p, sherd__key key, int64_t first);

/* copy.c: by elements of 1, 2, 4, 8 bytes, or pairs, 16; both strided, 0 = broadcast of src */
void sherd__device_copy_box(sherd__device *device, size_t element_bytes, int ndim,
                            const int64_t *size, void *dst, const int64_t *dst_stride,
                            const void *src, const int64_t *src_stride);
/* Each element of a strided box to `value`; element_bytes of it. */
void sherd__device_fill_box(sherd__device *device, size_t element_bytes, int ndim,
                            const int64_t *size, void *dst, const int64_t *dst_stride,
                            const void *value);

/* reduce.c: dtypes that it adds; avg only of fractions; at most SHERD__DEVICE_ADDENDS */
enum { SHERD__DEVICE_ADDENDS = 16 };
void sherd__device_reduce(sherd__device *device, sherd_dtype dtype, sherd_reduce_op op, int ndim,
                          const int64_t *size, void *dst, const int64_t *dst_stride, int count,
                          const void *const *src, const int64_t (*src_stride)[SHERD_MAX_DIMS],
                          double divisor);
/* dtypes that it computes, sums in f32 (f64 of f64), the same bits in every run */
void sherd__device_sum(sherd__device *device, sherd_dtype dtype, void *dst, const void *src,
                       int64_t outer, int64_t mid, int64_t inner, bool add);

/* rows.c, over_rows.c: dtypes that it computes; statistics f32 (f64 of f64) */
void sherd__device_layer_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                              void *y, void *mean, void *rstd, const void *x, const void *weight,
                              const void *bias, double eps);
/* mean NULL: an RMS norm. dx, dweight and dbias (which may be NULL) are overwritten. */
void sherd__device_norm_grad(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                             void *dx, void *dweight, void *dbias, const void *dy, const void *x,
                             const void *weight, const void *mean, const void *rstd);
void sherd__device_rms_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *y, void *rstd, const void *x, const void *weight, double eps);
/* As the kernels of the same names in kernels.h; softmax and its gradient over whole rows. */
void sherd__device_softmax(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                           int64_t rows, int64_t cols, void *y, const void *x);
void sherd__device_softmax_grad(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                                int64_t rows, int64_t cols, void *dx, const void *dy,
                                const void *y);
/* stats[3,rows]: largest logit, sum of exponentials, the target's logit (0 if it is not here). */
void sherd__device_cross_entropy(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                 int64_t cols, void *stats, const void *logits,
                                 const int32_t *targets, int64_t first);
/*
 * Of stats[parts,3,rows], statistics of `dtype`: row_sums[rows,2] and *loss, of `dtype`,
 * `factor` times the sum over rows of what its target costs; the same bits in every run.
 */
void sherd__device_cross_entropy_join(sherd__device *device, sherd_dtype dtype, int64_t parts,
                                      int64_t rows, void *loss, double *row_sums, const void *stats,
                                      double factor);
/* dlogits = factor dy (softmax - one at the target), where dy is one element of `dtype`. */
void sherd__device_cross_entropy_grad(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                      int64_t cols, void *dlogits, const void *logits,
                                      const int32_t *targets, int64_t first, const double *sums,
                                      const void *dy, double factor);
void sherd__device_embedding(sherd__device *device, sherd_dtype dtype, int64_t n, int64_t width,
                             void *y, const void *weight, const int32_t *ids, int64_t first,
                             int64_t entries);
void sherd__device_embedding_grad(sherd__device *device, sherd_dtype dtype, int64_t n,
                                  int64_t width, void *dweight, const void *dy, const int32_t *ids,
                                  int64_t first, int64_t entries);
/* attention.c: dtypes that it computes; false: this problem is not for it (a mask, dropout, ...) */
bool sherd__device_attention(sherd__device *device, sherd_dtype dtype, const sherd__attending *s,
                             void *out, void *log_sum, const void *q, const void *k, const void *v);
bool sherd__device_attention_grad(sherd__device *device, sherd_dtype dtype,
                                  const sherd__attending *s, void *dq, void *dk, void *dv,
                                  const void *dout, const void *q, const void *k, const void *v,
                                  const void *out, const void *log_sum);

/*
 * rotary.c: dtypes that it computes; sherd__turns and `rotate` of kernels/layers.h in one. The
 * turns of `r` are not read. position: [positions], or [batch,positions] if `each`; NULL: first, ..
 */
typedef struct sherd__turning {
    const int32_t *position;
    const double *frequency; /* [rotated/2]; NULL: of the base */
    bool each, inverse;
    int64_t first;
    double base;
} sherd__turning;
struct sherd__rotation;
void sherd__device_rotate(sherd__device *device, sherd_dtype dtype, const struct sherd__rotation *r,
                          const sherd__turning *t, void *dst, const void *src);

/* product.c: cuBLAS, sums in f32 (f64 of f64), not in TF32. `times` products as sherd__multiply. */
void sherd__device_multiply(sherd__device *device, const sherd__product *p, int64_t times, void *c,
                            const void *a, const void *b, const void *bias);

#endif
