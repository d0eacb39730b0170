/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What came of all ranks: one exit status, and one line that names the cause. A rank that died or
 * left closes the world for the others, whose own ends say nothing then; otherwise the first rank
 * that did not return 0 is the cause.
 */
#include "watch.h"
#include "world/inside.h"

#include <stdio.h>
#include <string.h>

/* The rank that an end is about. */
static int rank_of(const sherd__arena *arena, uint64_t word)
{
    int rank = sherd__rank_in(word);

    return rank < arena->control->ranks ? rank : 0;
}

/* The first rank that did not return 0; -1 if there is none. */
static int first_failed(const sherd__child *child, int ranks)
{
    for (int r = 0; r < ranks; r++)
        if (child[r].code)
            return r;
    return -1;
}

int sherd__exit_status(const sherd__arena *arena, const sherd__child *child, int ranks)
{
    uint64_t word = sherd__look(&arena->control->death);
    int failed = first_failed(child, ranks);

    switch (sherd__end_in(word)) {
    case SHERD__END_KILLED:
    case SHERD__END_STOPPED:
        return 128 + (int)(word >> 8 & 0xFF);
    case SHERD__END_EXITED:
    case SHERD__END_VANISHED:
        failed = rank_of(arena, word);
        return child[failed].code ? child[failed].code : 1;
    case SHERD__END_TOLD:
        if (failed < 0)
            return sherd__is_lost(sherd__status_in(word)) ? 1 : 0;
        break;
    }
    return failed < 0 ? 0 : child[failed].code;
}

/*
 * The last error that a rank was told, or if it was told none, that of the first rank that was; ""
 * if there is none.
 */
static void read_told(const sherd__arena *arena, int rank, char *out, size_t room)
{
    if (sherd__read_told(&arena->control->post[rank], out, room))
        return;
    for (int r = 0; r < arena->control->ranks; r++)
        if (sherd__read_told(&arena->control->post[r], out, room))
            return;
}

void sherd__cause_text(const sherd__arena *arena, const sherd__child *child, char *out, size_t room)
{
    uint64_t word = sherd__look(&arena->control->death);
    int failed = first_failed(child, arena->control->ranks);
    char told[SHERD_ERROR_BYTES] = "";
    size_t at;

    if (word) {
        sherd__end_text(arena->control, word, out, room);
        if (sherd__end_in(word) == SHERD__END_EXITED && word >> 8 & 0xFFFF)
            (void)sherd__read_told(&arena->control->post[rank_of(arena, word)], told, sizeof told);
    } else {
        failed = failed < 0 ? 0 : failed;
        snprintf(out, room, "rank %d exited with status %d", failed, child[failed].code);
        read_told(arena, failed, told, sizeof told);
    }
    at = strlen(out);
    if (told[0] && at < room)
        snprintf(out + at, room - at, ": %s", told);
}
