/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tape has saved of tensors that were gathered in one call, and moves again in one call.
 */
#ifndef SHERD__AUTOGRAD_GROUP_H
#define SHERD__AUTOGRAD_GROUP_H

#include "autograd/node.h"

typedef struct sherd__group_member {
    sherd__kept *kept; /* not counted; NULL once it is gone */
    sherd__kept *base; /* what it is moved from; counted */
    const sherd_layout *layout;
    sherd_dtype dtype;
} sherd__group_member;

struct sherd__regathered {
    int refs;      /* of members */
    uint64_t call; /* the tape's number then, the same on all ranks */
    bool ahead;    /* it may be begun before it is needed */
    sherd_world *world;
    int count;
    sherd__group_member *member;
};

#endif
