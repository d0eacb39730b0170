/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathered parameters that stay from one call to the next, until they are written. Each call gets
 * views of them: what a call records must not keep the graph of the one before it.
 */
#include "parallel/hold.h"

#include <string.h>

static const char function[] = "sherd_module_hold_gathered";

/*
 * Whether a parameter is what was gathered from. What another axis' unit has gathered is another
 * tensor in each call; it has the same storage if that unit holds it.
 */
static bool is_piece(const sherd_tensor *of, const sherd_tensor *now)
{
    return of == now ||
           (of && now->storage && of->storage == now->storage && of->layout == now->layout &&
            of->offset == now->offset &&
            memcmp(of->stride, now->stride, (size_t)of->ndim * sizeof *of->stride) == 0);
}

/* After a failed check ranks may hold different ones. */
bool sherd__is_held(const sherd__unit *u)
{
    bool good = u->holds && u->held_at == sherd__failed_checks(u->all->world);

    for (int i = 0; i < u->count && good; i++) {
        const sherd_tensor *now = sherd__unit_parameter(u, i)->tensor, *held = u->held[i];
        good = is_piece(u->held_of[i], now) &&
               (!held || held->autograd.moved_version == now->storage->version);
    }
    return good;
}

void sherd__held_drop(sherd__unit *u)
{
    for (int i = 0; i < u->count; i++) {
        sherd_tensor *held = u->held[i], *of = u->held_of[i];
        u->held[i] = u->held_of[i] = NULL;
        sherd_tensor_release(held);
        sherd_tensor_release(of);
    }
}

/* A piece without its node, counted: that would keep the graph of this call. NULL: no memory. */
static sherd_tensor *unrecorded(sherd_tensor *piece)
{
    sherd_tensor *t = piece->autograd.node ? sherd__detached(piece) : sherd_tensor_retain(piece);

    if (!t)
        sherd__raise(piece->world, SHERD_ENOMEM, "%s: out of memory", function);
    return t;
}

void sherd__held_keep(sherd__unit *u)
{
    bool good = true;

    sherd__held_drop(u);
    for (int i = 0; i < u->count && good; i++) {
        sherd_tensor *whole = u->whole[i];
        good = !sherd_tensor_failed(whole);
        if (!good || whole == u->pieces[i])
            continue;
        u->held[i] = sherd__detached(whole);
        if (u->held[i])
            u->held[i]->autograd.moved_version = whole->autograd.moved_version;
        else
            sherd__raise(u->all->world, SHERD_ENOMEM, "%s: out of memory", function);
        good = u->held[i] != NULL;
    }
    for (int i = 0; i < u->count && good; i++)
        good = (u->held_of[i] = unrecorded(u->pieces[i])) != NULL;
    u->held_at = sherd__failed_checks(u->all->world);
    if (!good)
        sherd__held_drop(u);
}

/* A rank that holds them makes a call less than one that does not, so it notes that. */
void sherd__held_take(sherd__unit *u)
{
    uint64_t identity;

    sherd__deed_add(u->to[0]->spec.mesh, function, 0, &identity);
    for (int i = 0; i < u->count; i++) {
        const sherd_tensor *held = u->held[i];
        u->whole[i] = sherd_tensor_retain(held ? sherd__new_view(u->held[i]) : u->pieces[i]);
        if (!held || sherd_tensor_failed(u->whole[i]))
            continue;
        u->whole[i]->autograd.moved_version = held->autograd.moved_version;
        u->whole[i]->autograd.moved_as = u->whole[i]->storage->version;
    }
}
