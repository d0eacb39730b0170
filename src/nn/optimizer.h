/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of an optimizer. */
#ifndef SHERD__OPTIMIZER_H
#define SHERD__OPTIMIZER_H

#include "autograd/tape.h"
#include "sherd/optimizer.h"

typedef struct sherd__optimized {
    sherd_tensor *p, *m, *v; /* parameter and its state, laid out alike; counted */
    int64_t steps;           /* in which it had a gradient */
    sherd_tensor *exact;     /* of a 16-bit parameter: the same in f32; counted; else NULL */
    int64_t version;         /* of the parameter's storage when `exact` was last the same */
} sherd__optimized;

struct sherd_optimizer {
    sherd_world *world;
    sherd_adamw_options options; /* defaults filled in */
    const sherd_mesh *mesh;      /* of all distributed parameters; NULL = there are none */
    int count;
    sherd__optimized *item; /* [count] */
    /* Room for settling, [count]: */
    int *which;
    sherd_tensor **from, **moved;
    const sherd_layout **to;
    int64_t *shared; /* [ranks of the mesh] */
};

#endif
