/* SPDX-License-Identifier: Apache-2.0 */
/*
 * f32 matrix products by oneDNN, which generates code for the machine: 80 to 95 % of peak from 64^3
 * up, on one thread. A call costs 0.1 us; plain loops win below 8^3 only, which is not worth a
 * second path. The primitives of oneDNN are in engine.h. Without SHERD_HAVE_DNNL this file holds nothing.
 *
 * dnnl_sgemm is row-major, takes the leading dimension as the row stride, and gives its status back
 * only for arguments that cannot come from here.
 */
#include "gemm.h"

#ifdef SHERD_HAVE_DNNL

#include <dlfcn.h>

#include <oneapi/dnnl/dnnl.h>

/*
 * A rank is one thread: the OpenMP runtime below oneDNN must not start more. The setting
 * belongs to the calling thread; the runtime is found by name, since it is oneDNN's and not ours.
 */
void sherd__onednn_one_thread(void)
{
    union {
        void *object;
        void (*call)(int);
    } set = {.object = dlsym(RTLD_DEFAULT, "omp_set_num_threads")};

    if (set.object)
        set.call(1);
}

void sherd__gemm_onednn(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha,
                        const void *a, int64_t lda, const void *b, int64_t ldb, double beta,
                        void *c, int64_t ldc)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        sherd__ref_f32.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
        return;
    }
    dnnl_status_t status = dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, (float)alpha, a, lda,
                                      b, ldb, (float)beta, c, ldc);
    if (status != dnnl_success) /* lack of memory for its packed copies */
        sherd__ref_f32.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

#endif
