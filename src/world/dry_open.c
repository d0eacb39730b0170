/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening a dry world: by a call, or because SHERD_DRY in the environment asks for one. Costs a
 * mapping that is hardly touched, whatever the number of ranks.
 */
#include "dry.h"
#include "dry_rates.h"

#include "inside.h"

#include "base/text.h"
#include "base/variable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const char asked_name[] = "SHERD_DRY", rates_name[] = "SHERD_DRY_RATES",
                  rates_begin[] = "SHERD_DRY_RATES=";
static const size_t region = (size_t)1 << 44; /* bytes of address space: more than a rank has */

/* ---- the environment ------------------------------------------------------------------------- */

bool sherd__dry_is_asked(void)
{
    return sherd__variable(asked_name) != NULL;
}

/* "3/512" or "3"; *ranks stays where it is not said. */
static sherd_status read_rank(int *rank, int *ranks, sherd__diag *diag)
{
    sherd__scanner s = {getenv(asked_name), getenv(asked_name)};
    int64_t r = 0, n = *ranks;

    bool good =
        sherd__take_integer(&s, &r) && (!sherd__take(&s, "/") || sherd__take_integer(&s, &n));
    if (!good || !sherd__at_end(&s) || r > INT32_MAX || n > INT32_MAX)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s=%.40s: expected a rank and the number of ranks, for example 0/8",
                           asked_name, s.text);
    if (n == 0)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s=%.40s: rank %lld of how many? For example %lld/8 (`sherd dry -n 8`)",
                           asked_name, s.text, (long long)r, (long long)r);
    *rank = (int)r;
    *ranks = (int)n;
    return SHERD_OK;
}

/* ---- opening --------------------------------------------------------------------------------- */

static sherd_status check(const sherd__dry_rank *it, sherd__diag *diag)
{
    const double *rate[] = {&it->rates.f32, &it->rates.f64, &it->rates.half, &it->rates.memory};

    if (it->rank < 0 || it->rank >= it->ranks)
        return sherd__fail(diag, SHERD_EINVAL, "sherd_world_dry: there is no rank %d of %d",
                           it->rank, it->ranks);
    for (size_t i = 0; i < sizeof rate / sizeof *rate; i++)
        if (!(*rate[i] >= 0) || !isfinite(*rate[i]))
            return sherd__fail(diag, SHERD_EINVAL, "sherd_world_dry: a rate of %g", *rate[i]);
    return SHERD_OK;
}

/* What is only read then takes no memory: shared memory that is read is given a page. */
static sherd_status make_private(sherd__arena *arena, sherd__diag *diag)
{
    void *at = mmap(arena->base + arena->control->regions, arena->control->region_bytes,
                    PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                    -1, 0);
    return at == MAP_FAILED ? sherd__no_memory(diag, "sherd_world_dry") : SHERD_OK;
}

static sherd_status open_rank(sherd_world **out, const sherd__dry_rank *it,
                              const sherd_world_options *options, sherd__diag *diag)
{
    sherd__arena arena;
    sherd_status status = check(it, diag);

    if (!status)
        status = sherd__trace_begin(diag);
    if (!status)
        status = sherd__arena_create(
            &arena, 1, options && options->region_bytes ? options->region_bytes : region, NULL,
            diag);
    if (status)
        return status;
    arena.cores = it->ranks; /* nobody shares one */
    arena.dry = it;
    status = make_private(&arena, diag);
    if (!status)
        status = sherd__world_join(out, &arena, true, 0, options, diag);
    if (status)
        sherd__arena_unmap(&arena);
    else
        (*out)->arena.dry = NULL; /* it is ours; what it says is in the world */
    return status;
}

/* Whoever has left the variable in the environment would wonder about the zeros. */
static void tell_who_asked(void)
{
    char line[128];

    if (sherd__dry_report_is_asked())
        return;
    int n = snprintf(line, sizeof line, "sherd: %s=%.40s: a dry run, which computes nothing\n",
                     asked_name, getenv(asked_name));
    ssize_t said = write(2, line, (size_t)n);
    (void)said; /* nobody can be told */
}

sherd_status sherd__dry_open(sherd_world **out, int ranks, const sherd_world_options *options,
                             sherd__diag *diag)
{
    sherd__dry_rank it = {.ranks = ranks};

    *out = NULL;
    sherd_status status = read_rank(&it.rank, &it.ranks, diag);
    if (!status)
        status = sherd__rates_read(&it.rates, getenv(rates_name), rates_begin, diag);
    if (!status)
        status = open_rank(out, &it, options, diag);
    if (!status)
        tell_who_asked();
    return status;
}

sherd_status sherd_world_dry(sherd_world **out, int ranks, int rank, const sherd_rates *rates,
                             const sherd_world_options *options)
{
    sherd__dry_rank it = {rank, ranks, rates ? *rates : (sherd_rates){0}};
    sherd__diag diag = {.rank = -1};
    sherd_status status =
        sherd__require(&diag, "sherd_world_dry", (sherd__argument[]){{"out", out}, {NULL, NULL}});

    if (!status) {
        *out = NULL;
        status = open_rank(out, &it, options, &diag);
    }
    if (status)
        sherd__tell_why(options ? options->error : NULL, &diag);
    return status;
}
