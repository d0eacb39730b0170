/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System calls that the kernel refuses, as old kernels and the seccomp profiles of containers do:
 * for this process and all that it starts. A test whose main calls refused_play() is also a
 * program, "this-program without CALL ERRNO PROGRAM ARGUMENTS", that starts another one so.
 */
#ifndef SHERD_REFUSED_H
#define SHERD_REFUSED_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* These calls fail with `reason` from now on. False: nothing can be refused here. */
static inline bool refuse(const int *calls, int count, int reason)
{
    enum { MOST = 4 };
    struct sock_filter filter[2 * MOST + 2];
    struct sock_fprog all = {.filter = filter};

    filter[all.len++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < count && i < MOST; i++) {
        filter[all.len++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[all.len++] =
            (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)reason);
    }
    filter[all.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0;
}

enum { REFUSED_NOT = 77 }; /* the exit status where nothing can be refused */

/* Does not return where the arguments are those of the program. */
static inline void refused_play(int argc, char **argv)
{
    if (argc < 5 || strcmp(argv[1], "without") != 0)
        return;
    int call = atoi(argv[2]);
    if (!refuse(&call, 1, atoi(argv[3])))
        _exit(REFUSED_NOT);
    execv(argv[4], argv + 4);
    _exit(98);
}

#endif
