/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks that a carrier connects tell each other before there is a world: where they are, what
 * they have, and whether they have failed so far. Each gathering is collective, so all ranks reach
 * the same verdict. Some 900 bytes a rank.
 */
#include "hello.h"
#include "launch.h"
#include "watch.h"
#include "world/inside.h"

#include "base/hash.h"
#include "base/variable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const uint64_t build = UINT64_C(0x7368657264303430) ^ sizeof(sherd__control) << 16 ^
                              sizeof(sherd__lane) ^ sizeof(sherd__hello) << 40;

/* The machine's name for this start of it; what its hosts file says may be the same everywhere. */
static void name_machine(sherd__hello *out)
{
    const char *given = sherd__variable("SHERD_HOST");
    char boot[64];

    if (given)
        snprintf(out->host, sizeof out->host, "%s", given);
    else if (gethostname(out->host, sizeof out->host))
        snprintf(out->host, sizeof out->host, "?");
    (void)sherd__read_file("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    out->machine = sherd__hash_text(given ? sherd__hash_text(6, given) : 5, boot);
    out->space = sherd__pid_space();
}

sherd_status sherd__transport_asked(const char **name, sherd__diag *diag)
{
    static const char *const known[] = {"", "arena", "threads", "mpi"};
    const char *text = getenv("SHERD_TRANSPORT");

    *name = text ? text : "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(*name, known[i]) == 0)
            return SHERD_OK;
    return sherd__fail(diag, SHERD_EINVAL, "SHERD_TRANSPORT=%.40s: expected arena, threads or mpi",
                       text);
}

sherd__hello sherd__introduce(const sherd_world_options *options)
{
    sherd__hello mine = {.region_bytes = options->region_bytes,
                         .since = (uint64_t)sherd__now(),
                         .pid = (int)getpid(),
                         .fd = -1,
                         .no_pin = options->no_pin};
    const char *transport = getenv("SHERD_TRANSPORT");

    mine.messages = transport && strcmp(transport, "mpi") == 0;
    name_machine(&mine);
    if (sched_getaffinity(0, sizeof mine.cores, &mine.cores))
        CPU_ZERO(&mine.cores);
    return mine;
}

sherd_status sherd__unreached(const sherd_carrier *carrier, sherd__diag *diag)
{
    char why[SHERD_ERROR_BYTES / 2];

    if (carrier->has_failed && carrier->has_failed(carrier->self, why, sizeof why))
        return sherd__fail(diag, SHERD_EPEER, "rank %d: %s", carrier->rank, why);
    return sherd__fail(
        diag, SHERD_EPEER,
        "rank %d: %s: ranks do not reach each other, or one did not come within SHERD_TIMEOUT",
        carrier->rank, carrier->name);
}

/* Each rank brings `bytes`, and gets those of all ranks. */
sherd_status sherd__hellos_gather(const sherd_carrier *carrier, const void *mine, size_t bytes,
                                  void *all, sherd__diag *diag)
{
    return carrier->gather(carrier->self, mine, bytes, all) ? SHERD_OK
                                                            : sherd__unreached(carrier, diag);
}

/* Bring `mine`, get all; then the first failure is everybody's. */
sherd_status sherd__hellos_exchange(const sherd_carrier *carrier, const sherd__hello *mine,
                                    sherd__hello *all, sherd__diag *diag)
{
    sherd_status status = sherd__hellos_gather(carrier, mine, sizeof *mine, all, diag);

    for (int r = 0; !status && r < carrier->ranks; r++)
        if (all[r].status)
            return sherd__fail(diag, all[r].status, "%.*s", SHERD_ERROR_BYTES - 1, all[r].text);
    return status;
}

/*
 * Done before anything else, so that all later messages have the same size on all ranks, and all
 * ranks have room for them.
 */
sherd_status sherd__builds_compare(const sherd_carrier *carrier, bool room, sherd__diag *diag)
{
    struct {
        uint64_t build, room;
    } mine = {build, room}, all[SHERD_MAX_RANKS];
    sherd_status status = sherd__hellos_gather(carrier, &mine, sizeof mine, all, diag);

    for (int r = 1; !status && r < carrier->ranks; r++)
        if (all[r].build != all[0].build)
            return sherd__fail(diag, SHERD_EINVAL, "ranks 0 and %d run different versions of sherd",
                               r);
    for (int r = 0; !status && r < carrier->ranks; r++)
        if (!all[r].room)
            return sherd__fail(diag, SHERD_ENOMEM, "rank %d: sherd_world_open: out of memory", r);
    return status;
}

bool sherd__is_here(const sherd__hello *a, const sherd__hello *b)
{
    return a->machine == b->machine && a->space == b->space;
}

/* Whether ranks of this world must send each other messages, because some share no memory. */
bool sherd__by_messages(const sherd_carrier *carrier, const sherd__hello *all)
{
    bool messages = false;

    for (int r = 0; r < carrier->ranks; r++)
        messages |= all[r].messages || !sherd__is_here(&all[0], &all[r]);
    return messages;
}

uint64_t sherd__job_of(const sherd__hello *first)
{
    return sherd__hash_word(sherd__hash_word(first->machine, (uint64_t)first->pid), first->since);
}

void sherd__note_failure(sherd__hello *mine, const sherd__diag *diag, int rank)
{
    mine->status = diag->status;
    if (diag->status)
        snprintf(mine->text, sizeof mine->text, "rank %d: %.*s", rank, SHERD_ERROR_BYTES - 16,
                 diag->text);
}
