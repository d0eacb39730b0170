/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which file handles what comes from ranks that share no memory, and what those below remote*.c let
 * these tell. A value, which files name that know none of them: so all can send and receive, and
 * raise the alarm, while they lie below what is received. Costs a call by a pointer for a message.
 */
#include "remote.h"

#include <string.h>

static bool handle(sherd_world *world, int from, const sherd_message *m)
{
    sherd__head head;

    if (m->head_bytes < sizeof head)
        return false;
    memcpy(&head, m->head, sizeof head);
    if (head.lane >= SHERD__LANES)
        return false;
    switch ((sherd__message_kind)head.kind) {
    case SHERD__SENT_CALL:
        return sherd__take_call(world, from, m);
    case SHERD__SENT_SLICE:
        return sherd__take_slice(world, from, m);
    case SHERD__SENT_PART:
        return sherd__take_part(world, from, m);
    case SHERD__SENT_RECORD:
    case SHERD__SENT_LEFT:
    case SHERD__SENT_LANE:
    case SHERD__SENT_ALARM:
    case SHERD__SENT_END:
        return m->body_bytes == 0 && sherd__take_news(world, from, m);
    case SHERD__SENT_ARRIVAL:
    case SHERD__SENT_WORK:
    case SHERD__SENT_OPENED:
    case SHERD__SENT_REMAINS:
    case SHERD__SENT_VERDICT:
    case SHERD__SENT_TAKEN:
        return m->body_bytes == 0 && sherd__take_meeting(world, from, m);
    case SHERD__SENT_CLAIMS:
        return sherd__take_claims(world, from, m);
    case SHERD__SENT_POST:
        return m->body_bytes == 0 && sherd__take_post(world, from, m);
    case SHERD__SENT_BYE:
        sherd__ranks_add(&world->remote->byes, from);
        return true;
    }
    return false;
}

const sherd__remote_hooks sherd__remote_own_hooks = {
    .take = handle,
    .alarm = sherd__remote_alarm,
    .end = sherd__remote_end,
};
