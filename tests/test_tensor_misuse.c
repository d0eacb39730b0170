/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of what looks at tensors, and waits for them: see misuse.h. */
#include "misuse.h"
#include "sherd/print.h"
#include "sherd/values.h"

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
    CHECK_OK(
        sherd_world_check(world)); /* else a rank's mistake comes before another has made them */
    return t;
}

/* A use of the failed tensor is told, and what not all ranks had made then is lost. */
static things make_anew(sherd_world *world)
{
    sherd_world_check(world);
    return make(world);
}

MISUSE(a_box_has_no_other_dims)
{
    things t = make(m->world);

    sherd_scope_end_to(NULL, 0);
    sherd_scope_end_to(m->world, -1);
    ANSWERS(sherd_scope_depth(NULL) == 0 && sherd_scope_depth(m->world) == 0);

    ANSWERS(sherd_tensor_offset(NULL, 0) == 0 && sherd_tensor_size(NULL, 0) == 0);
    ANSWERS(sherd_tensor_offset(t.failed, 0) == 0 && sherd_tensor_size(t.failed, 0) == 0);
    ANSWERS(sherd_tensor_offset(t.spread, -1) == 0 && sherd_tensor_size(t.spread, 2) == 0);
    ANSWERS(sherd_tensor_size(t.spread, -1) == 0 && sherd_tensor_size(t.spread, 1) == 4);
    ANSWERS(sherd_tensor_offset(t.plain, 1) == 0 && sherd_tensor_size(t.plain, 0) == 4);
    ANSWERS(sherd_tensor_local_count(NULL) == 0 && sherd_tensor_local_count(t.failed) == 0);
    ANSWERS(sherd_tensor_local_count(t.plain) == sherd_tensor_count(t.plain));
}

MISUSE(data_on_a_layout_is_there)
{
    const sherd_layout *layout = NULL;
    const float data[16] = {0};

    CHECK_OK(sherd_layout_parse_placements(&layout, make(m->world).mesh, 2, square, "R", NULL));
    ANSWERS(sherd_from_data_on(NULL, SHERD_F32, data) == NULL);
    FAILS(SHERD_EINVAL, sherd_from_data_on(layout, SHERD_F32, NUL(data)));
    FAILS(SHERD_EINVAL, sherd_from_data_on(layout, BAD((sherd_dtype)99, SHERD_F32), data));
}

MISUSE(an_array_of_the_programs_own_is_there)
{
    const int64_t good[] = {4, 1}, bad[] = {4, -1};
    float array[16] = {0};
    things t = make(m->world);

    ANSWERS(!sherd_tensor_read_to(array, good, NULL));
    ANSWERS(!sherd_tensor_read_to(array, good, t.failed));
    ANSWERS(!sherd_tensor_write_from(NULL, array, good));
    ANSWERS(!sherd_tensor_write_from(t.failed, array, good));
    FAILS(SHERD_EINVAL, sherd_tensor_read_to(NUL(array), good, t.plain));
    FAILS(SHERD_EINVAL, sherd_tensor_read_to(array, BAD(bad, good), t.plain));
    FAILS(SHERD_EINVAL, sherd_tensor_write_from(t.plain, NUL(array), good));
    FAILS(SHERD_EINVAL, sherd_tensor_write_from(t.plain, array, BAD(bad, good)));
    t.spread = make_anew(m->world).spread;
    FAILS(SHERD_EINVAL, sherd_tensor_write_from(t.spread, array, BAD(bad, good)));
}

MISUSE(nothing_is_waited_for_where_nothing_comes)
{
    things t = make(m->world);

    ANSWERS(!sherd_is_ready(NULL) && sherd_wait(NULL) == NULL);
    ANSWERS(sherd_is_ready(t.failed) && sherd_is_ready(t.plain) && sherd_is_ready(t.spread));
    ANSWERS(sherd_wait(t.plain) == t.plain && sherd_wait(t.spread) == t.spread);
    CHECK_OK(sherd_world_check(m->world)); /* a use of the failed tensor is told to all */
    ANSWERS(sherd_wait(t.failed) == t.failed);
    sherd_world_check(m->world);
}

MISUSE(a_whole_tensor_needs_room)
{
    things t = make(m->world);
    float room[16];
    int far = BAD(sherd_world_ranks(m->world), -1);

    ANSWERS(!sherd_full_read(room, sizeof room, NULL, SHERD_F32, -1));
    ANSWERS(!sherd_full_read(room, sizeof room, t.failed, SHERD_F32, -1));
    t = make_anew(m->world);
    FAILS(SHERD_EINVAL, sherd_full_read(NUL(room), sizeof room, t.spread, SHERD_F32, -1));
    FAILS(SHERD_EINVAL, sherd_full_read(room, BAD(63, 64), t.spread, SHERD_F32, -1));
    FAILS(SHERD_EINVAL, sherd_full_read(room, BAD(0, 64), t.spread, SHERD_DTYPE_NONE, -1));
    FAILS(SHERD_EINVAL, sherd_full_read(room, BAD(63, 64), t.plain, SHERD_F32, -1));
    FAILS(SHERD_EINVAL,
          sherd_full_read(room, sizeof room, t.spread, BAD((sherd_dtype)99, SHERD_F32), -1));
    FAILS(SHERD_EINVAL, sherd_full_read(room, sizeof room, t.spread, SHERD_F32, far));
    FAILS(SHERD_EINVAL, sherd_full_read(room, sizeof room, t.plain, SHERD_F32, BAD(-2, -1)));
}

MISUSE(what_is_printed_has_options_that_fit)
{
    things t = make(m->world);
    sherd_print_options o = {.rank = BAD(sherd_world_ranks(m->world), 0)};
    char text[8] = "before";

    sherd_print(NULL, NULL, NULL);
    ANSWERS(sherd_print_text(text, sizeof text, NULL, NULL) == 0 && text[0] == 0);
    ANSWERS(sherd_print_text(NULL, 0, NULL, NULL) == 0);
    ANSWERS(sherd_print_text(text, sizeof text, t.failed, NULL) == 0 && text[0] == 0);
    t = make_anew(m->world);
    FAILS(SHERD_EINVAL, sherd_print_text(NUL(text), sizeof text, t.spread, NULL));
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.spread, &o));
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.plain, &o));
    o = (sherd_print_options){.rank = BAD(-1, 0)};
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.spread, &o));
    o = (sherd_print_options){.digits = BAD(18, 1)};
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.spread, &o));
    o = (sherd_print_options){.digits = BAD(-1, 1)};
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.spread, &o));
    o = (sherd_print_options){.edge = BAD(-1, 1)};
    FAILS(SHERD_EINVAL, sherd_print_text(text, sizeof text, t.spread, &o));
    o = (sherd_print_options){.edge = INT64_MAX, .threshold = 1};
    FAILS(SHERD_OK, sherd_print_text(text, sizeof text, t.spread, &o));
}

static const check_test tests[] = {
    {TEST(a_box_has_no_other_dims), {1, 2, 3}},
    {TEST(data_on_a_layout_is_there), {1, 2, 3}},
    {TEST(an_array_of_the_programs_own_is_there), {1, 2, 3}},
    {TEST(nothing_is_waited_for_where_nothing_comes), {1, 2, 3}},
    {TEST(a_whole_tensor_needs_room), {1, 2, 3}},
    {TEST(what_is_printed_has_options_that_fit), {1, 2, 3}},
};
CHECK_MAIN(tests)
