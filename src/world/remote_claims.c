/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SHERD_VERIFY between ranks that share no memory: before a check each rank sends rank 0, which
 * decides there, what it claims to be equal, one message for each group. Ranks that share rank 0's
 * memory send nothing: it reads their claims where they are.
 */
#include "remote.h"

#include <string.h>

static const size_t head_bytes = sizeof(sherd__head);

bool sherd__remote_claims(sherd_world *world, const sherd__group *group)
{
    const sherd__head head = {.kind = SHERD__SENT_CLAIMS, .lane = (uint32_t)group->lane};
    size_t bytes = (size_t)group->claims * sizeof *group->claim;

    if (bytes == 0)
        return true;
    sherd__sheet *sheet = sherd__sheet_take(world->remote, head_bytes + bytes);
    if (!sheet)
        return false;
    memcpy(sheet->memory, &head, head_bytes);
    memcpy(sheet->memory + head_bytes, group->claim, bytes);
    sheet->to = 0;
    sheet->message = (sherd_message){sheet->memory, head_bytes, sheet->memory + head_bytes, bytes};
    sherd__sheet_send(world->remote, sheet);
    return true;
}

bool sherd__take_claims(sherd_world *world, int from, const sherd_message *m)
{
    sherd__head head;

    memcpy(&head, m->head, head_bytes);
    if (world->rank != 0 || m->head_bytes != head_bytes || sherd__is_near(world, from) ||
        m->body_bytes == 0 || m->body_bytes % sizeof(sherd__claim) != 0)
        return false;
    if (!m->body) {
        sherd__remote_fail(world, SHERD_ENOMEM,
                           "out of memory for what rank %d sent (SHERD_VERIFY)", from);
        return true;
    }
    sherd__sheet *sheet = sherd__sheet_of(m->body);
    sherd__lane *theirs = sherd__lane_of(world, from, (int)head.lane);
    sherd__claim *claim = m->body;
    theirs->claim = claim;
    theirs->claimed = (int64_t)(m->body_bytes / sizeof *claim);
    for (int64_t i = 0; i < theirs->claimed; i++)
        claim[i].text[sizeof claim->text - 1] = '\0';
    sheet->lane = (int)head.lane;
    sheet->to = from;
    sheet->next = world->remote->claims;
    world->remote->claims = sheet;
    return true;
}

void sherd__claims_drop(sherd_world *world)
{
    for (sherd__sheet *sheet = world->remote->claims; sheet; sheet = sheet->next)
        sherd__lane_of(world, sheet->to, sheet->lane)->claimed = 0;
    sherd__sheets_give(world->remote, &world->remote->claims);
}
