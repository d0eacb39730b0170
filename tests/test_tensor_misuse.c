/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of what looks at tensors, and waits for them: see misuse.h. */
#include "misuse.h"

#define MISUSE(name) MISUSE_WORKS(name, misuse_works)

static const int64_t square[] = {4, 4};

typedef struct things {
    const sherd_mesh *mesh;
    sherd_tensor *plain, *spread, *failed;
} things;

/* A plain tensor, one in rows, and a failed one whose failure is told already. */
static things make(sherd_world *world)
{
    things t = {.mesh = NULL};
    const sherd_layout *rows = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    t.failed = sherd_constant(world, SHERD_F32, NULL, 2, 1);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_mesh_parse(&t.mesh, world, text));
    CHECK_OK(sherd_layout_parse_placements(&rows, t.mesh, 2, square, "S(0)", NULL));
    t.plain = sherd_constant(world, SHERD_F32, square, 2, 2);
    t.spread = sherd_distribute(t.plain, rows, -1);
    return t;
}

MISUSE(a_box_has_no_other_dims)
{
    things t = make(m->world);

    ANSWERS(sherd_tensor_offset(NULL, 0) == 0 && sherd_tensor_size(NULL, 0) == 0);
    ANSWERS(sherd_tensor_offset(t.failed, 0) == 0 && sherd_tensor_size(t.failed, 0) == 0);
    ANSWERS(sherd_tensor_offset(t.spread, -1) == 0 && sherd_tensor_size(t.spread, 2) == 0);
    ANSWERS(sherd_tensor_size(t.spread, -1) == 0 && sherd_tensor_size(t.spread, 1) == 4);
    ANSWERS(sherd_tensor_offset(t.plain, 1) == 0 && sherd_tensor_size(t.plain, 0) == 4);
}

static const check_test tests[] = {
    {TEST(a_box_has_no_other_dims), {1, 2, 3}},
};
CHECK_MAIN(tests)
