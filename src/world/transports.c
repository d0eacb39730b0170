/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of the two transports by which ranks show each other records: in an arena, or in
 * mirrors of it that messages write (remote.h). They are of the same functions, and differ in where
 * data is read. Above all files whose functions they name, so that none of those need know them.
 */
#include "inside.h"

/* What transports have in common where ranks show each other records, or mirrors of them. */
#define SHERD__BY_RECORDS                                                                \
    .raise = sherd__arena_raise, .take = sherd__arena_take, .give = sherd__arena_give,   \
    .readable = sherd__arena_readable, .writable = sherd__arena_writable,                \
    .ready = sherd__arena_ready, .call = sherd__arena_call, .share = sherd__arena_share, \
    .meet = sherd__arena_meet

const sherd__transport sherd__arena_transport = {
    .name = "arena",
    .reads_in_place = true,
    SHERD__BY_RECORDS,
};

const sherd__transport sherd__mpi_transport = {
    .name = "mpi",
    SHERD__BY_RECORDS,
};
