/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What differs, where two ranks did a thing of one name on a mesh otherwise than each other.
 * Ledgers have hashes of that only, so the verdict names the deed and the ranks. These two say in
 * their posts what it was before they take the verdict, and when all have taken it, each rank adds
 * to its text what differs first. Nothing waits longer than without. Posts are written again after
 * the next verdict at the earliest, to which all ranks come when they have read them.
 *
 * A rank may also differ because a local function has failed on it alone: an optimizer that there
 * was no memory for takes no steps. What it was told then is said too.
 */
#include "inside.h"

#include "base/hash.h"

#include <stdio.h>
#include <string.h>

/* A line of what a rank says: what it is about, its value, and a key. */
typedef struct part {
    char what[48], value[160], key[64];
} part;

/* Take up to `end` (one letter) of *at into out[room]; false: there is none. */
static bool take(const char **at, char end, char *out, size_t room)
{
    const char *stop = strchr(*at, end);

    if (!stop)
        return false;
    snprintf(out, room, "%.*s", (int)(stop - *at), *at);
    *at = stop + 1;
    return true;
}

static bool take_part(const char **at, part *out)
{
    return take(at, '\t', out->what, sizeof out->what) &&
           take(at, '\t', out->value, sizeof out->value) &&
           take(at, '\n', out->key, sizeof out->key);
}

static bool is_about(const sherd_world *world, const sherd__difference *d)
{
    return d->deed && d->lane >= 0 && d->lane < world->lanes && d->rank[0] >= 0 &&
           d->rank[0] < world->ranks && d->rank[1] >= 0 && d->rank[1] < world->ranks;
}

void sherd__difference_tell(sherd_world *world, const sherd__difference *difference)
{
    const sherd__member *member =
        is_about(world, difference) ? sherd__member_at(world, difference->lane) : NULL;
    bool asked = world->rank == difference->rank[0] || world->rank == difference->rank[1];

    world->post->deed[0] = '\0';
    if (member && asked && world->watcher.tell_deed)
        world->watcher.tell_deed(world, member->mesh, difference->deed, world->post->deed,
                                 sizeof world->post->deed);
}

/* The first line in which two ranks differ; false: there is none, or they say other things. */
static bool find(const char *a, const char *b, part *x, part *y)
{
    while (take_part(&a, x) && take_part(&b, y) && strcmp(x->what, y->what) == 0)
        if (strcmp(x->key, y->key) != 0)
            return true;
    return false;
}

void sherd__difference_add(sherd_world *world, const sherd__difference *difference)
{
    const sherd__post *post = world->arena.control->post;
    char *text = world->diag.text;
    size_t at = strlen(text), room = sizeof world->diag.text - at;
    int a = difference->rank[0], b = difference->rank[1];
    part x, y;

    if (!is_about(world, difference) || !find(post[a].deed, post[b].deed, &x, &y))
        return;
    if (strcmp(x.value, y.value) != 0)
        snprintf(text + at, room, ": %s is %s on rank %d, and %s on rank %d", x.what, x.value, a,
                 y.value, b);
    else
        snprintf(text + at, room, ": %s%s%s is not the same", x.what, x.value[0] ? ", " : "",
                 x.value);
    sherd__one_line(text);
}

/* ---- what failed on one rank alone ----------------------------------------------------------- */

static bool is_refusal(sherd_status status)
{
    return status == SHERD_EINVAL || status == SHERD_ENOTSUP || status == SHERD_ENOMEM ||
           status == SHERD_ELIMIT;
}

void sherd__refusal_keep(sherd_world *world)
{
    if (world->refused[0] || !is_refusal(world->diag.status) ||
        sherd__hash_text(1, world->diag.text) == world->known_failure)
        return;
    memcpy(world->refused, world->diag.text, sizeof world->refused);
}

void sherd__refusals_add(const sherd_world *world, char *text, size_t room)
{
    const sherd__post *post = world->arena.control->post;
    int q = 0;

    while (q < world->ranks && (post[q].status || !post[q].text[0]))
        q++;
    size_t length = strlen(text);
    if (q < world->ranks)
        snprintf(text + length, room - length, "; before that, %s", post[q].text);
    sherd__one_line(text);
}

void sherd__refusal_forget(sherd_world *world, bool passed)
{
    world->refused[0] = '\0';
    if (passed)
        world->diag.status = SHERD_OK; /* the text may still be asked for */
    else
        world->known_failure = sherd__hash_text(1, world->diag.text);
}
