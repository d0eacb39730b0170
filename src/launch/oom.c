/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the kernel has killed for lack of memory: it counts that in the memory cgroup of whom it
 * kills (version 2: memory.events, version 1: memory.oom_control), before it does. A container may
 * show its own group at the top of the tree. Two small files are read when a launch begins, and
 * when a rank was killed.
 */
#include "watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number behind a word at the beginning of a line; -1 if there is none. */
static int64_t number_of(const char *text, const char *word)
{
    size_t length = strlen(word);

    for (const char *line = text; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, word, length) == 0 && line[length] == ' ')
            return strtoll(line + length, NULL, 10);
    return -1;
}

static int64_t kills_in(const char *root, const char *group, int length, const char *file)
{
    char path[1024], text[1024];

    snprintf(path, sizeof path, "%s%.*s/%s", root, length, group, file);
    return sherd__read_file(path, text, sizeof text) ? number_of(text, "oom_kill") : -1;
}

/* Whether "4:memory,other:/group" is of a hierarchy; the group's name begins behind it. */
static const char *group_in(const char *line, const char *controller)
{
    const char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
    size_t length = strlen(controller);

    if (!group)
        return NULL;
    for (const char *at = list + 1; at <= group; at += strcspn(at, ",:") + 1)
        if (strncmp(at, controller, length) == 0 && (at[length] == ',' || at[length] == ':'))
            return group + 1;
    return NULL;
}

/* In its group as the hierarchy is mounted, or else at the top of what is seen of it. */
static int64_t kills_of(const char *root, const char *group, const char *file)
{
    int64_t kills = kills_in(root, group, (int)strcspn(group, "\n"), file);

    return kills >= 0 ? kills : kills_in(root, "", 0, file);
}

int64_t sherd__oom_kills(void)
{
    char text[4096];
    int64_t kills = -1;

    if (!sherd__read_file("/proc/self/cgroup", text, sizeof text))
        return -1;
    for (const char *line = text; line && *line && kills < 0;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        const char *memory = group_in(line, "memory"), *unified = group_in(line, "");
        if (memory)
            kills = kills_of("/sys/fs/cgroup/memory", memory, "memory.oom_control");
        else if (unified)
            kills = kills_of("/sys/fs/cgroup", unified, "memory.events");
    }
    return kills;
}
