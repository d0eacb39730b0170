/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs on real ranks, and the same in a dry world that is one of them: each real rank opens
 * the dry world that is itself, and compares what sherd says about the two.
 */
#ifndef SHERD_TESTS_DRY_H
#define SHERD_TESTS_DRY_H

#include "check.h"

#include "sherd/comm.h"
#include "sherd/dry.h"
#include "sherd/op.h"

enum { MOST_CALLS = 64, MOST_NAMES = 128, MOST_KEPT = 4096 };

/* What a program came to on one rank. */
typedef struct account {
    sherd_status status;
    char error[SHERD_ERROR_BYTES];
    int calls, names, moves;
    sherd_comm_entry call[MOST_CALLS];
    sherd_op_time name[MOST_NAMES];
    sherd_move_entry move[MOST_KEPT];
    sherd_memory memory;
} account;

/* A body gets what it is told, and must do the same in both worlds. */
typedef void (*dry_program)(sherd_world *world, void *context);

/* Sanitizers leave a world 16 GiB of addresses: there terabytes can not be tried. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DRY_TERABYTES = 0 };
#else
enum { DRY_TERABYTES = 1 };
#endif

static inline void account_begin(sherd_world *world)
{
    sherd_comm_reset(world);
    sherd_world_memory_reset(world);
    sherd_op_times(world, true);
    CHECK_OK(sherd_moves_keep(world, MOST_KEPT));
}

static inline void account_end(account *a, sherd_world *world)
{
    a->status = sherd_world_check(world);
    snprintf(a->error, sizeof a->error, "%s", a->status ? sherd_world_error(world) : "");
    a->memory = sherd_world_memory(world);
    for (a->calls = 0; a->calls < sherd_comm_count(world) && CHECK(a->calls < MOST_CALLS);
         a->calls++)
        a->call[a->calls] = sherd_comm_get(world, a->calls);
    for (a->names = 0; CHECK(a->names < MOST_NAMES); a->names++) {
        a->name[a->names] = sherd_op_time_at(world, a->names);
        if (!a->name[a->names].name)
            break;
    }
    for (a->moves = 0; a->moves < sherd_moves_count(world) && CHECK(a->moves < MOST_KEPT);
         a->moves++)
        a->move[a->moves] = sherd_moves_get(world, a->moves);
    sherd_op_times(world, false);
}

static inline bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Not in order: the log's depends on addresses of meshes. */
static inline bool same_calls(const account *real, const account *dry)
{
    bool good = CHECK_EQ(dry->calls, real->calls);

    for (int i = 0; i < real->calls; i++) {
        const sherd_comm_entry *want = &real->call[i], none = {.op = "none"}, *got = &none;
        for (int j = 0; j < dry->calls; j++)
            if (same_text(dry->call[j].op, want->op) && same_text(dry->call[j].axes, want->axes))
                got = &dry->call[j];
        if (CHECK(got->calls == want->calls && got->bytes_received == want->bytes_received))
            continue;
        fprintf(stderr, "  %s over %s: %lld calls, %lld bytes, but dry %lld, %lld\n", want->op,
                want->axes, (long long)want->calls, (long long)want->bytes_received,
                (long long)got->calls, (long long)got->bytes_received);
        good = false;
    }
    return good;
}

static inline bool same_names(const account *real, const account *dry)
{
    bool good = CHECK_EQ(dry->names, real->names);

    for (int i = 0; i < real->names && good; i++) {
        const sherd_op_time *want = &real->name[i], *got = &dry->name[i];
        good = CHECK(same_text(want->name, got->name) && want->calls == got->calls);
        if (!good)
            fprintf(stderr, "  %lld %s, but dry %lld %s\n", (long long)want->calls, want->name,
                    (long long)got->calls, got->name);
    }
    return good;
}

static inline bool same_moves(const account *real, const account *dry)
{
    bool good = CHECK_EQ(dry->moves, real->moves);

    for (int i = 0; i < real->moves && good; i++) {
        const sherd_move_entry *want = &real->move[i], *got = &dry->move[i];
        good = CHECK(same_text(want->from, got->from) && same_text(want->to, got->to) &&
                     same_text(want->trace, got->trace) && same_text(want->module, got->module) &&
                     want->backward == got->backward && want->dtype == got->dtype &&
                     want->bytes_received == got->bytes_received &&
                     want->bytes_total == got->bytes_total);
        if (!good)
            fprintf(stderr, "  move %d: %s to %s of %s, %lld bytes; dry %s to %s of %s, %lld\n", i,
                    want->from, want->to, want->module ? want->module : "-",
                    (long long)want->bytes_received, got->from, got->to,
                    got->module ? got->module : "-", (long long)got->bytes_received);
    }
    return good;
}

/* Any rank may have been the first to raise it. */
static inline const char *behind_rank(const char *error)
{
    const char *end = strncmp(error, "rank ", 5) == 0 ? strstr(error, ": ") : NULL;

    return end ? end + 2 : error;
}

static inline bool same_account(const account *real, const account *dry)
{
    bool good = CHECK_EQ(dry->status, real->status);

    if (!CHECK(same_text(behind_rank(dry->error), behind_rank(real->error)))) {
        fprintf(stderr, "  \"%s\", but dry \"%s\"\n", real->error, dry->error);
        good = false;
    }
    if (real->status) /* others have stopped where they saw the alarm */
        return good;
    good = same_calls(real, dry) && good;
    good = same_names(real, dry) && good;
    good = same_moves(real, dry) && good;
    for (int use = 0; use < SHERD_MEMORY_USES; use++) {
        good = CHECK_EQ(dry->memory.live_for[use], real->memory.live_for[use]) && good;
        good = CHECK_EQ(dry->memory.peak_for[use], real->memory.peak_for[use]) && good;
    }
    good = CHECK_EQ(dry->memory.live_bytes, real->memory.live_bytes) && good;
    return CHECK_EQ(dry->memory.peak_bytes, real->memory.peak_bytes) && good;
}

/* The dry world that is this rank. */
static inline sherd_world *dry_as(sherd_world *world)
{
    sherd_world *dry = NULL;
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options options = {.error = error};

    if (!CHECK_OK(sherd_world_dry(&dry, sherd_world_ranks(world), sherd_world_rank(world), NULL,
                                  &options)))
        fprintf(stderr, "  %s\n", error);
    return dry;
}

static inline void run_into(account *out, sherd_world *world, dry_program program, void *context)
{
    account_begin(world);
    sherd_scope_begin(world);
    program(world, context);
    sherd_scope_end(world);
    account_end(out, world);
}

/* Whether a program comes to the same in `dry` as in `world`, if that is an error. The accounts'
 * texts live with the worlds. */
static inline bool alike_in(sherd_world *world, sherd_world *dry, dry_program program,
                            void *context, sherd_status *status)
{
    account *real = calloc(2, sizeof *real);

    if (!CHECK(real) || !CHECK(dry))
        return false;
    run_into(&real[0], world, program, context);
    run_into(&real[1], dry, program, context);
    bool good = same_account(&real[0], &real[1]);
    *status = real->status;
    free(real);
    return good;
}

/* The same of one that goes well. */
static inline bool same_in(sherd_world *world, sherd_world *dry, dry_program program, void *context)
{
    sherd_status status = SHERD_OK;
    bool good = alike_in(world, dry, program, context, &status);

    return CHECK_OK(status) && good;
}

/* The same in a dry world of its own. */
static inline bool same_dry(sherd_world *world, dry_program program, void *context)
{
    sherd_world *dry = dry_as(world);
    bool good = same_in(world, dry, program, context);

    CHECK_OK(sherd_world_close(dry));
    return good;
}

#endif
