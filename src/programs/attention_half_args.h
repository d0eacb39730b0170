/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of attention_half.cu are told. */
#include "attention_args.h"
