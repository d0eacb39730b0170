/* SPDX-License-Identifier: Apache-2.0 */
/* The matrix products that choose.c can put into the f32 table. Contract: `gemm` in kernels.h. */
#ifndef SHERD__GEMM_H
#define SHERD__GEMM_H

#include "ref.h"

#ifdef SHERD_HAVE_DNNL
void sherd__gemm_onednn(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
                        const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                        void *c, int64_t ldc);

/* Make oneDNN run on the calling thread alone. */
void sherd__onednn_one_thread(void);
#endif

#endif
