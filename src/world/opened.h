/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank has opened for writing by a pointer, and others hold too (opened.c). */
#ifndef SHERD__WORLD_OPENED_H
#define SHERD__WORLD_OPENED_H

#include "world/world.h"

enum { SHERD__OPENED_TEXT = 40 };

/*
 * This rank opens a tensor, which all ranks that differ only in `axes` of the mesh hold alike, for
 * writing by a pointer. `identity` and that of its storage are 0 if it has none. Returns where its
 * text is to be written, char[SHERD__OPENED_TEXT]; NULL: nowhere.
 */
char *sherd__opens(sherd_world *world, const sherd_mesh *mesh, unsigned axes, uint64_t identity,
                   uint64_t storage);

#endif
