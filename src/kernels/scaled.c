/* SPDX-License-Identifier: Apache-2.0 */
/* See scaled.h. Loops of which the compiler makes vectors; vector/bodies.h has them for wider
 * ones. */
#include "scaled.h"

#include "half.h"
#include "rows.h"

#include "base/num.h"

#define ADD_SCALED sherd__add_scaled
#include "scaled_tables.inc"
