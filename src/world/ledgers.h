/* SPDX-License-Identifier: Apache-2.0 */
/* ledger.c: what is done on meshes, as the files of this room see it. Part of inside.h. */
#ifndef SHERD__LEDGERS_H
#define SHERD__LEDGERS_H

#include "world.h"

sherd__ledger *sherd__ledger_create(sherd_world *world);
/* Before arriving at a meeting: show the others what this rank has done; and, for a check, what it
 * claims to be equal. */
void sherd__ledgers_tell(sherd_world *world);
bool sherd__claims_make(sherd_world *world);
/*
 * Two ranks that have not done the same on some mesh, or (SHERD_VERIFY) have not what they claim;
 * text says what. `other`: only if one did another thing in the place of a thing, not if it merely
 * did more.
 */
bool sherd__ledgers_differ(const sherd_world *world, bool other, char *text, size_t room);
/* A check has passed; or failed: before any rank goes on from it. `dropped`: with the calls that
 * are open. */
void sherd__ledgers_passed(sherd_world *world);
void sherd__ledgers_failed(sherd_world *world, bool dropped);

#endif
