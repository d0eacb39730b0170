/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory the tensors of all ranks may take together, and who says so. */
#ifndef SHERD__WORLD_LIMIT_H
#define SHERD__WORLD_LIMIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Who sets a limit. */
typedef enum sherd__limit_by {
    SHERD__BY_USER = 1, /* SHERD_ARENA_BYTES */
    SHERD__BY_MACHINE,
    SHERD__BY_CGROUP,
    SHERD__BY_ADDRESSES /* RLIMIT_AS: each rank maps the memory of all */
} sherd__limit_by;

enum { SHERD__PIECE = 1 << 18 }; /* bytes: memory is taken in pieces of so many */

typedef struct sherd__limit {
    uint64_t bytes;
    sherd__limit_by by;
} sherd__limit;

/* "the memory cgroup" */
const char *sherd__limit_name(sherd__limit_by by);

/* A number of bytes above 0, "8G", "512M", "1073741824"; K, M, G and T are powers of 1024. False if
 * the text is none. */
bool sherd__bytes_read(uint64_t *out, const char *text);

/*
 * What the machine, memory cgroups and RLIMIT_AS leave for tensors: the least of them, less a share
 * for all that is no tensor. `root` stands before the names of all files: "" but in tests.
 */
sherd__limit sherd__limit_detect(const char *root, int ranks);

/* A limit less the share for heaps, stacks, programs and page tables: an eighth, at least 4 MB a
 * rank, at most half. */
uint64_t sherd__limit_share(uint64_t bytes, int ranks);

/* What a file of a memory cgroup says; UINT64_MAX if that is no limit. */
uint64_t sherd__cgroup_bytes(const char *text);

/*
 * The folder of this process's memory cgroup, into out[room], from what /proc/self/cgroup and
 * /proc/self/mountinfo say; *mount: so many letters of it are the mount point. False if there is
 * none of this version (1 or 2).
 */
bool sherd__cgroup_folder(char *out, size_t room, size_t *mount, const char *groups,
                          const char *mounts, int version);

#endif
