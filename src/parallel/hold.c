/* SPDX-License-Identifier: Apache-2.0 */
/* Telling the units of a tree to keep what they gather from one call to the next: held.c. */
#include "parallel/hold.h"

#include "sherd/parallel.h"

static void hold_units(sherd_module *m, bool on)
{
    sherd__unit *u;

    for (int i = 0; (u = sherd__unit_of(m, 0, &i)) != NULL;) {
        u->holds = on;
        if (!on)
            sherd__held_drop(u);
    }
    for (int i = 0; i < m->children; i++)
        hold_units(m->child[i].module, on);
}

void sherd_module_hold_gathered(sherd_module *module, bool on)
{
    if (module)
        hold_units(module, on);
}
