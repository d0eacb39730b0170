/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain loops of kernels/ once more, for a machine with wider vectors than all machines have: the
 * compiler makes them, so results have the same bits.
 */
#ifndef SHERD__LOOPS_H
#define SHERD__LOOPS_H

#include "kernels/kernels.h"

/* Put those of AVX2 into the tables, which hold the plain ones. */
void sherd__install_loops_avx2(sherd__kernel_set *set);

#endif
