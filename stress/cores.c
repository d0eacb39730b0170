/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long processes have waited for a core. A busy machine makes rounds slow, which is no fault of
 * theirs: what the scheduler says that a thread was ready but did not run is taken off. A launcher
 * and its ranks are seen from when they are forked, as most of their time goes by before they open
 * a world; and each thread for itself, as who waits now need not have waited most before. Two files
 * of /proc for each thread.
 */
#include "cores.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>

static bool is_there(const cores *c, pid_t pid)
{
    for (int i = 0; i < c->processes; i++)
        if (c->process[i] == pid)
            return true;
    return false;
}

static void add_process(cores *c, pid_t pid)
{
    if (c->processes < CORES_PROCESSES && !is_there(c, pid))
        c->process[c->processes++] = pid;
}

static void add_thread(cores *c, pid_t thread, const char *task)
{
    unsigned long long ran = 0, waited = 0;
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/schedstat", task);
    f = fopen(path, "r");
    if (f && fscanf(f, "%llu %llu", &ran, &waited) == 2 && c->threads < CORES_THREADS) {
        c->thread[c->threads] = thread;
        c->waited[c->threads++] = 1e-9 * (double)waited;
    }
    if (f)
        fclose(f);
}

static void add_children(cores *c, const char *task)
{
    char path[128];
    int child;
    FILE *f;

    snprintf(path, sizeof path, "%s/children", task);
    f = fopen(path, "r");
    while (f && fscanf(f, "%d", &child) == 1)
        add_process(c, child);
    if (f)
        fclose(f);
}

void cores_add(cores *c, pid_t pid)
{
    char path[48], task[96];
    int thread, at = c->processes;

    add_process(c, pid);
    for (; at < c->processes; at++) {
        snprintf(path, sizeof path, "/proc/%d/task", (int)c->process[at]);
        DIR *dir = opendir(path);
        for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
            if (sscanf(e->d_name, "%d", &thread) != 1)
                continue;
            snprintf(task, sizeof task, "%s/%d", path, thread);
            add_thread(c, thread, task);
            add_children(c, task);
        }
        if (dir)
            closedir(dir);
    }
}

double cores_lost(const cores *before, const cores *after)
{
    double most = 0;

    for (int i = 0; i < after->threads; i++) {
        double waited = after->waited[i];
        for (int k = 0; k < before->threads; k++)
            if (before->thread[k] == after->thread[i])
                waited -= before->waited[k];
        most = waited > most ? waited : most;
    }
    return most;
}
