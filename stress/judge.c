/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What must have come of a world: the same statuses on all ranks, in the same order; good ones for
 * right programs; a failure for a wrong one, at the check after its fault at the latest, and none
 * before it; then good ones again. And nothing that a rank found wrong.
 */
#include "round.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void blame(board *b, const char *format, ...)
{
    size_t at = strlen(b->wrong);
    va_list arguments;

    if (at > 0)
        at += (size_t)snprintf(b->wrong + at, sizeof b->wrong - at, "\n  ");
    if (at + 1 >= sizeof b->wrong)
        return;
    va_start(arguments, format);
    vsnprintf(b->wrong + at, sizeof b->wrong - at, format, arguments);
    va_end(arguments);
}

static const char *word_text(int word)
{
    return word == MARK ? "|" : word == LOOSE ? "~" : sherd_status_name((sherd_status)word);
}

static void log_text(const rank_board *rank, char *out, size_t room)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = rank->logged > 24 ? rank->logged - 24 : 0; i < rank->logged && at < room; i++)
        at += (size_t)snprintf(out + at, room - at, " %s", word_text(rank->log[i]));
}

/* ---- ranks among each other ------------------------------------------------------------------ */

/* Ranks that leave or are killed are not asked. */
static unsigned absent(const job *j)
{
    unsigned gone = 0;

    for (int i = 0; i < j->turns; i++)
        for (int k = 0; k < j->turn[i].faults; k++)
            if (j->turn[i].fault[k].kind == FAULT_LEFT)
                gone |= j->turn[i].fault[k].ranks;
    if (j->r->kind == ROUND_KILLED || j->r->kind == ROUND_STOPPED)
        gone |= 1u << j->r->victim;
    return gone;
}

/* mpirun ends the job of a rank that left the others: what they wrote until then is the same. */
static bool is_cut_short(const job *j, unsigned gone)
{
    return j->r->mpi[0] && gone;
}

static void compare_ranks(const job *j, int first, unsigned gone)
{
    const rank_board *mine = &j->b->rank[first];
    char a[300], b[300];

    for (int r = first + 1; r < j->r->ranks; r++) {
        const rank_board *theirs = &j->b->rank[r];
        if (gone >> r & 1)
            continue;
        int both = mine->logged < theirs->logged ? mine->logged : theirs->logged;
        bool whole = mine->turn == theirs->turn && mine->logged == theirs->logged;
        if ((whole || is_cut_short(j, gone)) && memcmp(mine->log, theirs->log, (size_t)both) == 0)
            continue;
        log_text(mine, a, sizeof a);
        log_text(theirs, b, sizeof b);
        blame(j->b, "ranks have different statuses: rank %d%s (%s); rank %d%s (%s)", first, a,
              mine->error, r, b, theirs->error);
    }
}

/* ---- a rank's log against what was done ------------------------------------------------------ */

static int meetings_before(const program *p, int at)
{
    int count = 0;

    for (int i = 0; i < at; i++)
        count += p->op[i].kind == OP_MESH || p->op[i].kind == OP_CHECK;
    return count;
}

/* The number of the first check at or after an operation. */
static int check_after(const program *p, int at)
{
    while (at < p->ops - 1 && p->op[at].kind != OP_CHECK)
        at++;
    return meetings_before(p, at);
}

/* What sherd_world_fail makes of a status. */
static int raised_status(int status)
{
    return status <= SHERD_EINVAL && status >= SHERD_ELIMIT ? status : SHERD_EINVAL;
}

static void count_outcome(const job *j, int injection, int status)
{
    int column = status <= 0 && -status < OUTCOMES ? -status : OUTCOMES - 1;

    j->b->tally.injected[injection][column]++;
}

/* The first failure of a turn is `status` at meeting `at`; at = -1: there is none. */
static void judge_turn(const job *j, const turn *t, int at, int status)
{
    int from = 1 << 20, until = 1 << 20;
    bool left = false;

    for (int i = 0; i < t->faults; i++) {
        const fault *f = &t->fault[i];
        int first = meetings_before(t->p, f->at), last = check_after(t->p, f->at);
        from = first < from ? first : from;
        until = f->sure && last < until ? last : until;
        left |= f->kind == FAULT_LEFT;
        count_outcome(j, (int)f->kind, status);
        if (t->faults == 1 && f->kind == FAULT_RAISED && at >= 0 &&
            status != raised_status(f->status))
            blame(j->b, "%s: sherd_world_fail(%d) came out as %s", f->text, f->status,
                  sherd_status_name((sherd_status)status));
    }
    if (t->starved >= 0)
        count_outcome(j, INJECT_ALLOCATION, status);
    else if (t->may_fail)
        count_outcome(j, INJECT_SMALL, status);
    const char *what = t->faults ? t->fault[0].text : t->may_fail ? "little memory" : "no fault";
    if (t->may_fail && status == SHERD_ENOMEM)
        return;
    if (at >= 0 && (at < from || (is_closed((sherd_status)status) && !left)))
        blame(j->b, "%s: meeting %d of the program says %s: %s", what, at,
              sherd_status_name((sherd_status)status), j->b->rank[0].error);
    if (until < 1 << 20 && (at < 0 || at > until))
        blame(j->b, "%s: not found by meeting %d", what, until);
}

/* From a mark on: a good program, or a failure and the meetings of the survey. Returns where the
 * next mark is. */
static int judge_log(const job *j, const turn *t, const rank_board *rank, int at)
{
    int first = -1, status = SHERD_OK, bad = 0;
    bool loose = false;

    for (int start = ++at; at < rank->logged && rank->log[at] != MARK; at++) {
        int word = rank->log[at];
        if (word == LOOSE) {
            loose = true;
        } else if (word != SHERD_OK && first < 0) {
            first = at - start;
            status = word;
        } else if (word != SHERD_OK && !is_closed((sherd_status)word)) {
            bad += !loose;
        }
    }
    judge_turn(j, t, first, status);
    /* A mesh that is not made leaves the alarm up until the first check of the survey. */
    if (bad > 1)
        blame(j->b, "%s: after the failed check others failed, last: %s",
              t->faults ? t->fault[0].text : "little memory", rank->error);
    return at;
}

static void judge_program(const job *j, const rank_board *rank)
{
    int at = 0;

    for (int i = 0; i < j->turns && at < rank->logged; i++)
        at = judge_log(j, &j->turn[i], rank, at);
}

/* ---- ranks that were killed ------------------------------------------------------------------ */

static void judge_killed(const job *j)
{
    const round_plan *r = j->r;
    char name[32];

    count_outcome(j, r->kind == ROUND_STOPPED ? INJECT_STOP : INJECT_KILL, j->status);
    snprintf(name, sizeof name, "rank %d was", r->victim);
    if (j->status != SHERD_EPEER || !strstr(j->error, name))
        blame(j->b, "signal %d to rank %d: sherd_spawn returned %s: %s", r->signal, r->victim,
              sherd_status_name(j->status), j->error);
    if (j->exit_status != 128 + r->signal)
        blame(j->b, "signal %d to rank %d: the exit status is %d", r->signal, r->victim,
              j->exit_status);
    for (int q = 0; q < r->ranks; q++) {
        const rank_board *rank = &j->b->rank[q];
        if (q == r->victim)
            continue;
        if (rank->logged == 0 || rank->log[rank->logged - 1] != SHERD_EPEER)
            blame(j->b, "signal %d to rank %d: rank %d was not told; it was at operation %d",
                  r->signal, r->victim, q, atomic_load(&rank->at));
    }
}

/*
 * mpirun ends the job when a process dies, so nobody has to have been told; but it must be said
 * which rank ended on which host. It may be one that the launcher has killed, where its guard got
 * its turn first. What the launcher exits with is its own affair.
 */
static void judge_ended(const job *j)
{
    const round_plan *r = j->r;
    char line[96], theirs[32], host[64] = "";

    count_outcome(j, r->kind == ROUND_STOPPED ? INJECT_STOP : INJECT_KILL, SHERD_EPEER);
    gethostname(host, sizeof host - 1);
    snprintf(line, sizeof line, "sherd: host %s: rank ", host);
    snprintf(theirs, sizeof theirs, "process rank %d ", r->victim); /* Open MPI's own words */
    if (r->kind == ROUND_KILLED && !strstr(j->said, line) && !strstr(j->said, theirs))
        blame(j->b, "signal %d to rank %d on %s: no line names a rank and the host", r->signal,
              r->victim, host);
    int told = 0;
    for (int q = 0; q < r->ranks; q++) {
        const rank_board *rank = &j->b->rank[q];
        told += rank->logged && rank->log[rank->logged - 1] == SHERD_ETIMEDOUT;
    }
    /* The first that gives up ends the job, before others may have come to it. */
    if (r->kind == ROUND_STOPPED && !told)
        blame(j->b, "rank %d was stopped, and nobody says that it was waited for", r->victim);
}

static void count_work(job *j)
{
    tally *t = &j->b->tally;

    t->worlds++;
    for (int r = 0; r < j->r->ranks; r++) {
        t->ops += j->b->rank[r].ops;
        t->elements += j->b->rank[r].elements;
    }
    if (round_loops(j->r))
        t->programs += j->b->rank[0].turn + 1;
    else
        t->programs += j->turns * j->r->times;
}

void judge(job *j)
{
    unsigned gone = absent(j);
    int first = 0;
    bool left = gone && !round_loops(j->r);

    for (int r = 0; r < j->r->ranks; r++)
        if (j->b->rank[r].wrong[0])
            blame(j->b, "%s", j->b->rank[r].wrong);
    while (gone >> first & 1)
        first++;
    bool ended = j->r->mpi[0] && (j->r->kind == ROUND_KILLED || j->r->kind == ROUND_STOPPED);
    if (!ended)
        compare_ranks(j, first, gone);
    if (ended) {
        judge_ended(j);
    } else if (j->r->kind == ROUND_KILLED || j->r->kind == ROUND_STOPPED) {
        judge_killed(j);
    } else if (!is_cut_short(j, gone)) {
        judge_program(j, &j->b->rank[first]);
        /* Who leaves early has closed its world: the first meeting without it says EDIFFER. */
        if (j->status != SHERD_OK &&
            !(left && (j->status == SHERD_EPEER || j->status == SHERD_EDIFFER)))
            blame(j->b, "sherd_spawn returned %s: %s", sherd_status_name(j->status), j->error);
        if (left && j->status == SHERD_OK)
            blame(j->b, "a rank left early, and sherd_spawn returned OK");
        if (!left && j->exit_status != j->value)
            blame(j->b, "the exit status is %d, not %d", j->exit_status, j->value);
        if (j->r->kind == ROUND_PAUSED)
            count_outcome(j, INJECT_PAUSE, j->status);
    }
    count_work(j);
}
