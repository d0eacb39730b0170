/* SPDX-License-Identifier: Apache-2.0 */
/* The words that end a world, or raise its alarm: who, why, and the status that all get. */
#ifndef SHERD__WORLD_ENDS_H
#define SHERD__WORLD_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/status.h"

/* Why a world is closed for good. */
typedef enum sherd__end {
    SHERD__END_KILLED = 1,  /* value = signal */
    SHERD__END_STOPPED = 2, /* value = signal */
    SHERD__END_EXITED = 3,  /* value = exit status */
    SHERD__END_TOLD = 4,    /* text in the rank's post */
    SHERD__END_VANISHED = 5 /* nobody knows how */
} sherd__end;

/* In the value of KILLED and VANISHED: the kernel has killed for lack of memory. */
enum { SHERD__OUT_OF_MEMORY = 0x100 };

static inline uint64_t sherd__end_word(sherd__end end, int rank, int value, sherd_status status)
{
    return (uint64_t)end << 48 | (uint64_t)(uint32_t)(rank & 0xFFFF) << 24 |
           (uint64_t)(uint32_t)(value & 0xFFFF) << 8 | (uint64_t)(uint32_t)-status;
}
static inline sherd__end sherd__end_in(uint64_t word)
{
    return (sherd__end)(word >> 48);
}
/* What the alarm of a rank is. */
static inline uint64_t sherd__alarm_word(int rank, sherd_status status)
{
    return UINT64_C(1) << 48 | (uint64_t)(uint32_t)(rank & 0xFFFF) << 24 |
           (uint64_t)(uint32_t)-status;
}
/* The rank in both. */
static inline int sherd__rank_in(uint64_t word)
{
    return (int)(word >> 24 & 0xFFFF);
}
static inline sherd_status sherd__status_in(uint64_t word)
{
    return (sherd_status) - (int)(word & 0xFF);
}
/* Whether ranks were lost to each other: no world goes on after that. */
static inline bool sherd__is_lost(sherd_status status)
{
    return status == SHERD_EPEER || status == SHERD_ETIMEDOUT;
}

#endif
