/* SPDX-License-Identifier: Apache-2.0 */
/* What the environment says of the launch that a process is part of. */
#ifndef SHERD__LAUNCH_INVITATION_H
#define SHERD__LAUNCH_INVITATION_H

#include <stdbool.h>

/* What a process knows of the launch that it is part of. */
typedef struct sherd__invitation {
    int fd; /* of the arena, here and in the launcher */
    int rank, ranks;
    int line;   /* the life-line that this process holds, or -1 */
    bool again; /* it has joined before */
    int launcher;
    unsigned long long launcher_start; /* 0: not known */
} sherd__invitation;

/* Whether this process was invited by `sherd run` itself, and not by an mpirun inside of it. */
bool sherd__is_invited(void);
/* Read the invitation, or what this process left behind when it joined. False: there is none. */
bool sherd__invitation_read(sherd__invitation *out);
/* Write the mark by which this process may join again. False: no memory for the environment. */
bool sherd__invitation_keep(const sherd__invitation *in);
/* Programs that this process starts find no invitation. */
void sherd__invitation_leave(void);

#endif
