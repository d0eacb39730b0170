/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank leaves in its post for whoever watches over it: no part of the protocol, and read
 * also after the rank has died. Whoever reads must take it as it comes: a text may be half written,
 * a number anything.
 */
#include "inside.h"
#include "notice.h"

#include <string.h>

void sherd__post_process(sherd__post *post)
{
    sherd__process self;

    atomic_store(&post->pid, 0);
    if (!sherd__process_look(0, &self))
        return; /* without /proc nobody can tell it from another that has its pid later */
    atomic_store(&post->pid_start, self.start);
    atomic_store(&post->pid_space, sherd__pid_space());
    atomic_store(&post->pid, (uint64_t)self.pid);
}

sherd_status sherd__post_told(sherd_world *world, sherd__meeting kind, sherd_status status)
{
    sherd__post *post = world->post;

    if (status == SHERD_OK) {
        if (kind == SHERD__CHECK && sherd__peek(&post->told))
            atomic_store(&post->told, 0); /* what went wrong before has been dealt with */
        return status;
    }
    if (sherd__peek(&post->told))
        return status; /* what went wrong first says most */
    memcpy(post->told_text, world->diag.text, sizeof post->told_text);
    atomic_store(&post->told, (uint64_t)(uint32_t)-status);
    return status;
}

void sherd__post_since(sherd_world *world)
{
    sherd__put(&world->post->since, (uint64_t)sherd__now());
}

void sherd__not_arrived(const sherd__control *control, uint64_t meeting, sherd__ranks *out)
{
    sherd__ranks_clear(out);
    for (int q = 0; q < control->ranks; q++)
        if (sherd__look(&control->post[q].arrived) < meeting)
            sherd__ranks_add(out, q);
}

void sherd__post_cut(sherd_world *world)
{
    sherd__post *post = world->post;
    const sherd__need *first = sherd__arena_needs(&world->arena, world->rank);
    uint64_t arrived = sherd__look(&post->arrived);
    bool call = atomic_load(&post->waits) > 0;
    sherd__ranks ranks;

    if (!world->announced)
        return;
    if (call)
        sherd__ranks_load(&ranks, &first->ranks, world->ranks);
    else
        sherd__not_arrived(world->arena.control, arrived, &ranks);
    sherd__put(&post->cut_until, 0);
    sherd__put(&post->cut.key, call ? sherd__peek(&first->key) : SHERD__AT_MEETING);
    sherd__put(&post->cut.number, call ? sherd__peek(&first->number) : arrived);
    sherd__ranks_store(&post->cut.ranks, &ranks, world->ranks);
    sherd__put(&post->cut_since, sherd__peek(&post->since));
    atomic_store(&post->cut_until, (uint64_t)sherd__now());
}

void sherd__read_text(char *out, size_t room, const char *shared, size_t shared_room)
{
    size_t at = 0;

    for (; at + 1 < room && at < shared_room; at++) {
        unsigned char letter = (unsigned char)((const volatile char *)shared)[at];
        if (!letter)
            break;
        out[at] = (char)(letter < ' ' || letter == 127 ? '?' : letter);
    }
    if (room)
        out[at] = '\0';
}

sherd_status sherd__read_told(const sherd__post *post, char *out, size_t room)
{
    uint64_t told = sherd__look(&post->told);

    sherd__read_text(out, room, told ? post->told_text : "", sizeof post->told_text);
    return (sherd_status) - (int)(told & 0xFF);
}
