/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening files in a process whose standard files may be closed, as those of a daemon are. The
 * kernel gives the lowest free descriptor: a file that got 1 or 2 would take in what the program
 * prints. Costs two system calls more, and only then.
 */
#ifndef SHERD__BASE_OPEN_H
#define SHERD__BASE_OPEN_H

/* As open(), with O_CLOEXEC; the descriptor is never 0, 1 or 2. -1 and errno on failure. */
int sherd__open_file(const char *path, int flags);

/* The same for one that is open already, or for -1: another descriptor in place of 0, 1 or 2. It is
 * closed by an exec. -1 and errno on failure; then it is closed. */
int sherd__beyond_standard(int fd);

#endif
