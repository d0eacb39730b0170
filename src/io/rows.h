/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor as rows of a file, each rank's rows contiguous; and reading and writing such a piece. */
#ifndef SHERD__IO_ROWS_H
#define SHERD__IO_ROWS_H

#include "tensor/tensor.h"

/*
 * The layout of a tensor as rows: dim 0 is sharded as in `layout`, and within that over all other
 * axes. So a tensor that is replicated, or sharded by dim 0, needs no communication. In the current
 * scope; error texts in the world's diag.
 */
sherd_status sherd__file_layout(const sherd_layout **out, const sherd_layout *layout);

/*
 * The offset and length of this rank's rows in the bytes of the whole tensor. For a scalar each
 * rank of its mesh has all of it.
 */
typedef struct sherd__stored_rows {
    int64_t at, bytes;
} sherd__stored_rows;
sherd__stored_rows sherd__rows_here(const sherd_tensor *t);

/* Transfer all bytes; false with errno, or errno 0 if the file ends early. */
bool sherd__read_at(int fd, void *data, int64_t bytes, int64_t at);
bool sherd__write_at(int fd, const void *data, int64_t bytes, int64_t at);
/* All of it is on disk; false with errno. */
bool sherd__sync_file(int fd);

/* EINVAL with the system's error text for a file (errno; 0 = it ends early). */
sherd_status sherd__file_fault(sherd_world *world, const char *function, const char *path);

#endif
