/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a layout takes, for caches that are bounded by bytes: one that lists its cuts has
 * some 13 bytes for each rank, and is kept by all that count it.
 */
#ifndef SHERD__LAYOUT_BYTES_H
#define SHERD__LAYOUT_BYTES_H

#include "layout.h"

/* Of itself, its cuts and its texts; NULL has none. Costs the length of the texts. */
size_t sherd__layout_bytes(const sherd_layout *layout);

#endif
