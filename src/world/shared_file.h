/* SPDX-License-Identifier: Apache-2.0 */
/* A file without a name, for memory that processes share. Costs a few system calls. */
#ifndef SHERD__WORLD_SHARED_FILE_H
#define SHERD__WORLD_SHARED_FILE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * A memfd of so many zeros; where the kernel refuses that, as a seccomp profile may, a file in
 * /dev/shm, TMPDIR or /tmp. -1 and errno on failure, with *where the call or the folder: ENOSPC: no
 * room in that folder; EFBIG: more than a file of this process may have (RLIMIT_FSIZE).
 */
int sherd__shared_file(size_t bytes, const char **where);

/* Whether an errno says that a system call is not allowed at all. */
bool sherd__is_forbidden(int reason);

#endif
