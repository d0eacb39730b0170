/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor as it lies in a file: in rows, each rank's in one piece; and reading and writing such a piece. */
#ifndef SHERD__ROWS_H
#define SHERD__ROWS_H

#include "tensor/tensor.h"

/*
 * The layout of a tensor between the file and where it lies: dim 0 is sharded as it is, and within that over all other axes, so
 * that what is replicated or sharded by dim 0 already needs no move. In the current scope; the text is in the world's diag.
 */
sherd_status sherd__file_layout(const sherd_layout **out, const sherd_layout *layout);

/* Where this rank's rows are among the bytes of the whole, and how many. Of a scalar each rank of its mesh has all. */
typedef struct sherd__rows {
    int64_t at, bytes;
} sherd__rows;
sherd__rows sherd__rows_here(const sherd_tensor *t);

/* All bytes, or false with errno; 0 where a file ends early. */
bool sherd__read_at(int fd, void *data, int64_t bytes, int64_t at);
bool sherd__write_at(int fd, const void *data, int64_t bytes, int64_t at);

/* EINVAL with what the system says of a file (errno; 0 = it ends early). */
sherd_status sherd__file_fault(sherd_world *world, const char *function, const char *path);

#endif
