/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank leaves in its post for those that watch it, and what the system says of processes. */
#ifndef SHERD__WORLD_NOTICE_H
#define SHERD__WORLD_NOTICE_H

#include "arena.h"

/* ---- notice.c: what a rank has left in its post; it may be half written ---------------------- */

/* A text out of shared memory into out[room]: one line, whatever is there. */
void sherd__read_text(char *out, size_t room, const char *shared, size_t shared_room);
/* Leave this process in the post of its rank. */
void sherd__post_process(sherd__post *post);
/* The failure that a rank learned of since its last good check; OK and "" if there is none. */
sherd_status sherd__read_told(const sherd__post *post, char *out, size_t room);

/* ---- proc.c ---------------------------------------------------------------------------------- */

typedef struct sherd__process {
    int pid;
    uint64_t start; /* clock ticks since the machine started */
    char state;     /* as in ps: R, S, D, T stopped, Z dead and not yet waited for */
} sherd__process;

/* What there is to say of a process, 0 = this one. False if there is none. */
bool sherd__process_look(int pid, sherd__process *out);
/* Which pid namespace this process is in; 0 = nobody knows. */
uint64_t sherd__pid_space(void);
/* Whether a process has a handler for a signal. */
bool sherd__catches(int pid, int signal);
/* A short file, zero-terminated and cut at the room. */
bool sherd__read_file(const char *path, char *out, size_t room);

#endif
