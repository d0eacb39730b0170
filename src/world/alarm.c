/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The alarm, and the end of a world. Both are one word that every wait polls. The alarm is raised
 * by a rank, first one wins, and lowered at a check; the end (a rank died, or never came) is a word
 * of its own that is never lowered, so that no check can wipe it out.
 */
#include "doing.h"
#include "remote.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void copy_text(char *out, size_t room, const char *text)
{
    snprintf(out, room, "%s", text);
}

const char *sherd__signal_name(int signal)
{
    static const struct {
        int number;
        const char *name;
    } names[] = {
        {SIGKILL, "SIGKILL"}, {SIGSEGV, "SIGSEGV"}, {SIGABRT, "SIGABRT"}, {SIGBUS, "SIGBUS"},
        {SIGFPE, "SIGFPE"},   {SIGILL, "SIGILL"},   {SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"},
        {SIGSTOP, "SIGSTOP"}, {SIGTSTP, "SIGTSTP"}, {SIGHUP, "SIGHUP"},   {SIGXCPU, "SIGXCPU"},
        {SIGPIPE, "SIGPIPE"}, {SIGTRAP, "SIGTRAP"}, {SIGQUIT, "SIGQUIT"}, {SIGALRM, "SIGALRM"},
        {SIGUSR1, "SIGUSR1"}, {SIGUSR2, "SIGUSR2"}, {SIGXFSZ, "SIGXFSZ"}, {SIGSYS, "SIGSYS"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].number == signal)
            return names[i].name;
    return "?";
}

void sherd__end_text(const sherd__control *control, uint64_t word, char *out, size_t room)
{
    int rank = sherd__rank_in(word), value = (int)(word >> 8 & 0xFFFF);

    const char *cause =
        value & SHERD__OUT_OF_MEMORY
            ? ": the kernel ran out of memory for this job (memory cgroup); give it more, use "
              "less, "
              "or let `sherd run --memory` make an error of it before it comes to that"
            : "";

    switch (sherd__end_in(word)) {
    case SHERD__END_KILLED:
        snprintf(out, room, "rank %d was killed by signal %d (%s)%s", rank, value & 0xFF,
                 sherd__signal_name(value & 0xFF), cause);
        return;
    case SHERD__END_STOPPED:
        snprintf(out, room, "rank %d was stopped by signal %d (%s)", rank, value,
                 sherd__signal_name(value));
        return;
    case SHERD__END_EXITED:
        snprintf(out, room, "rank %d exited with status %d %s", rank, value,
                 atomic_load(&control->post[rank].presence) == SHERD__GONE
                     ? "when the others opened another world"
                     : "before closing its world");
        return;
    case SHERD__END_VANISHED:
        snprintf(out, room, "rank %d ended before closing its world%s", rank,
                 *cause ? cause : "; how is not known");
        return;
    case SHERD__END_TOLD:
        copy_text(out, room, control->post[rank].ending);
        return;
    }
    copy_text(out, room, "the world is closed");
}

void sherd__end_world(sherd__arena *arena, uint64_t word)
{
    uint64_t none = 0;

    if (!atomic_compare_exchange_strong(&arena->control->death, &none, word))
        return;
    sherd__ring_all(arena);
    if (arena->remote)
        sherd__remote_own_hooks.end(arena, word);
}

void sherd__end_told(sherd_world *world, sherd_status status, const char *text)
{
    /* Written only once, since others may be reading it. */
    if (sherd__look(world->death))
        return;
    copy_text(world->post->ending, sizeof world->post->ending, text);
    sherd__end_world(&world->arena, sherd__end_word(SHERD__END_TOLD, world->rank, 0, status));
}

static void raise_alarm(sherd_world *world, sherd_status status, const char *text)
{
    uint64_t down = 0;

    world->quiet = true;
    /* If the alarm is up, its text may be this one, which others may be reading. */
    if (sherd__look(world->alarm))
        return;
    copy_text(world->post->alarm, sizeof world->post->alarm, text);
    if (!atomic_compare_exchange_strong(world->alarm, &down,
                                        sherd__alarm_word(world->slot, status)))
        return;
    sherd__ring_all(&world->arena);
    if (world->remote)
        sherd__remote_own_hooks.alarm(world, status, text);
}

void sherd__arena_raise(sherd_world *world, sherd_status status, const char *text)
{
    sherd__assert(world->rank, !world->arrived);
    raise_alarm(world, status, text);
}

void sherd__alarm_at_meeting(sherd_world *world, sherd_status status, const char *text)
{
    raise_alarm(world, status, text);
}

sherd_status sherd__alarm_read(const sherd_world *world, char *text, size_t room)
{
    uint64_t word = sherd__look(world->alarm);

    if (!word)
        return SHERD_OK;
    copy_text(text, room, world->arena.control->post[sherd__rank_in(word)].alarm);
    return sherd__status_in(word);
}

/* ---- what the rooms above call --------------------------------------------------------------- */

bool sherd__alarmed(const sherd_world *world)
{
    return sherd__is_forked(world) || (sherd__look(world->alarm) | sherd__look(world->death)) != 0;
}

static void raise_text(sherd_world *world, sherd_status status, const char *text)
{
    if (sherd__is_forked(world))
        (void)sherd__say_forked(world); /* the ranks are not concerned */
    else
        world->transport->raise(world, status, text);
}

static void raise_written(sherd_world *world)
{
    raise_text(world, world->diag.status, world->diag.text);
}

bool sherd__doing_begin(sherd_world *world, const char *name)
{
    bool begins = world && !world->doing;

    if (begins)
        world->doing = name;
    return begins;
}

void sherd__doing_end(sherd_world *world, bool begun)
{
    if (begun)
        world->doing = NULL;
}

const char *sherd__doing_around(const sherd_world *world, const char *function)
{
    return world->doing && strcmp(world->doing, function) != 0 ? world->doing : "";
}

const char *sherd__doing_name(const sherd_world *world, const char *function)
{
    const char *around = sherd__doing_around(world, function);

    return *around ? around : world->within ? world->within : function;
}

const char *sherd__doing_within(sherd_world *world, const char *name)
{
    const char *before = world->within;

    world->within = name;
    return before;
}

/* Write a failure, with what this rank is doing, if that is wanted. */
static void write_text(sherd_world *world, sherd_status status, bool named, const char *text)
{
    const char *within = named ? world->within : NULL, *doing = named ? world->doing : NULL;

    if (status == SHERD_EDIFFER)
        sherd__refusal_keep(world);
    sherd__fail(&world->diag, status, "%s%s%s%s%s", within ? within : "", within ? ": " : "",
                doing ? doing : "", doing ? ": " : "", text);
}

static void fail_in(sherd_world *world, sherd_status status, bool named, const char *format,
                    va_list arguments)
{
    char text[SHERD_ERROR_BYTES];

    vsnprintf(text, sizeof text, format, arguments);
    write_text(world, status, named, text);
}

/* Layouts and plans do not know who lacks memory for them, nor what the program has called. A text
 * with a position keeps it. */
void sherd__raise_diag(sherd_world *world)
{
    const char *behind = strstr(world->diag.text, ": "); /* the rank */
    sherd_status status = world->diag.status;
    char text[SHERD_ERROR_BYTES];

    if (world->diag.rank >= 0 && behind) {
        copy_text(text, sizeof text, behind + 2);
        if (status == SHERD_ENOMEM)
            write_text(world, status, true, text);
        else if (world->doing && !world->diag.column &&
                 strncmp(text, world->doing, strlen(world->doing)) != 0)
            sherd__fail(&world->diag, status, "%s: %s", world->doing, text);
    }
    raise_written(world);
}

static void keep_local(sherd_world *world)
{
    if (!world->local.status)
        world->local = world->diag;
}

sherd_status sherd__raise(sherd_world *world, sherd_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail_in(world, status, false, format, arguments);
    va_end(arguments);
    raise_written(world);
    return status;
}

sherd_status sherd__fail_locally(sherd_world *world, sherd_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail_in(world, status, false, format, arguments);
    va_end(arguments);
    keep_local(world);
    return status;
}

sherd_status sherd__fail_doing(sherd_world *world, bool distributed, sherd_status status,
                               const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fail_in(world, status, true, format, arguments);
    va_end(arguments);
    if (distributed)
        raise_written(world);
    else
        keep_local(world);
    return status;
}

void sherd__raise_local(sherd_world *world)
{
    if (world->local.status)
        raise_text(world, world->local.status, world->local.text);
}

bool sherd__has_failed_locally(const sherd_world *world)
{
    return world->local.status != SHERD_OK;
}

/* Whether a program may raise this status: EPEER and ETIMEDOUT are only the library's to find. */
static bool is_for_callers(sherd_status status)
{
    return status == SHERD_EINVAL || status == SHERD_EDIFFER || status == SHERD_ENOTSUP ||
           status == SHERD_ENOMEM || status == SHERD_ELIMIT;
}

void sherd_world_fail(sherd_world *world, sherd_status status, const char *text)
{
    if (world)
        sherd__raise(world, is_for_callers(status) ? status : SHERD_EINVAL, "%s",
                     text ? text : "failed");
}
