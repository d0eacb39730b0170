/* SPDX-License-Identifier: Apache-2.0 */
/* Scopes and counting: who keeps a tensor alive, seen by the bytes that are alive. */
#include "tensors.h"
#include "tensor/state.h"

static int64_t live(sherd_world *world)
{
    return sherd_world_memory(world).live_bytes;
}

static sherd_tensor *some(sherd_world *world)
{
    int64_t n = 64;
    return sherd_constant(world, SHERD_F64, &n, 1, 1);
}

static void the_end_of_a_scope_releases_what_was_made_in_it(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    for (int i = 0; i < 10000; i++)
        CHECK(!sherd_tensor_failed(some(world)));
    CHECK(live(world) >= before + 10000 * 512);
    sherd_scope_end(world);
    CHECK_EQ(live(world), before);
    CHECK(sherd_world_memory(world).peak_bytes >= before + 10000 * 512);
    CHECK_OK(sherd_world_check(world));
}

static void scopes_nest(sherd_world *world)
{
    enum { DEPTH = 100 };
    int64_t at[DEPTH + 1];

    for (int i = 0; i < DEPTH; i++) {
        at[i] = live(world);
        sherd_scope_begin(world);
        for (int j = 0; j <= i % 7; j++)
            some(world);
    }
    for (int i = DEPTH; i-- > 0;) {
        sherd_scope_end(world);
        CHECK_EQ(live(world), at[i]);
    }
    CHECK_OK(sherd_world_check(world));
}

static void a_passed_tensor_lives_one_scope_longer(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    sherd_tensor *outer = some(world);
    sherd_scope_begin(world);
    sherd_tensor *t[5];
    for (int i = 0; i < 5; i++)
        t[i] = some(world);
    int64_t one = (live(world) - before) / 6;
    CHECK(sherd_scope_pass(t[3]) == t[3]);
    CHECK(sherd_scope_pass(t[0]) == t[0]);
    CHECK(sherd_scope_pass(t[3]) == t[3]);
    CHECK(sherd_scope_pass(outer) == outer);
    sherd_scope_end(world);
    CHECK_EQ(live(world), before + 3 * one);
    CHECK(sherd_item(sherd_constant(world, SHERD_F32, NULL, 0, 2)) == 2);
    CHECK(((const double *)sherd_tensor_read(t[3]))[63] == 1);
    sherd_scope_end(world);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

static void the_outermost_scope_has_no_end(sherd_world *world)
{
    int64_t before = live(world);
    sherd_tensor *t = some(world);

    sherd_scope_end(world);
    sherd_scope_end(world);
    CHECK(sherd_scope_pass(t) == t);
    CHECK(live(world) > before);
    CHECK(((const double *)sherd_tensor_read(t))[0] == 1);
    CHECK_OK(sherd_world_check(world));
}

/* A step that is left anywhere, again and again, leaves nothing behind. */
static void what_was_left_open_is_ended(sherd_world *world)
{
    sherd_scope_begin(world);
    sherd_tensor *kept = some(world);
    const int depth = sherd_scope_depth(world);
    int64_t before = live(world);

    CHECK_EQ(depth, 1);
    for (int i = 0; i < 100; i++) {
        for (int k = 0; k < i % 5; k++) {
            sherd_scope_begin(world);
            some(world);
        }
        CHECK_EQ(sherd_scope_depth(world), depth + i % 5);
        sherd_scope_end_to(world, depth + 7);
        CHECK_EQ(sherd_scope_depth(world), depth + i % 5);
        sherd_scope_end_to(world, depth);
        CHECK_EQ(sherd_scope_depth(world), depth);
        CHECK_EQ(live(world), before);
    }
    CHECK(sherd_tensor_read(kept) != NULL);
    sherd_scope_end_to(world, -3);
    CHECK_EQ(sherd_scope_depth(world), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_retained_tensor_outlives_its_scope(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    sherd_tensor *t = sherd_tensor_retain(some(world));
    sherd_tensor_retain(t);
    sherd_scope_end(world);
    CHECK_EQ(t->refs, 2);
    CHECK(((const double *)sherd_tensor_read(t))[5] == 1);
    sherd_tensor_release(t);
    CHECK(live(world) > before);
    sherd_tensor_release(t);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* Giving up the scope's own count frees at once, and the scope's end does not mind. */
static void a_tensor_may_be_released_early(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    sherd_tensor *a = some(world), *b = some(world), *c = some(world);
    int64_t one = (live(world) - before) / 3;
    sherd_tensor_release(b);
    CHECK_EQ(live(world), before + 2 * one);
    sherd_tensor_release(a);
    sherd_scope_pass(c);
    sherd_scope_end(world);
    CHECK_EQ(live(world), before + one);
    sherd_tensor_release(c);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* Of tensors that are released one by one a scope keeps no list: neither of the last one, nor of
 * all that follow each other. */
static void what_is_released_early_takes_no_room(sherd_world *world)
{
    enum { MANY = 5000, KEPT = 60 };
    sherd__tensors *s = sherd__tensors_of(world);
    int64_t before = live(world);
    int listed = s->listed;

    for (int i = 0; i < MANY; i++)
        sherd_tensor_release(some(world));
    CHECK_EQ(s->listed, listed);
    sherd_scope_begin(world);
    sherd_tensor *last = some(world), *kept[KEPT];
    for (int i = 0; i < MANY; i++) {
        sherd_tensor *next = some(world);
        sherd_tensor_release(last);
        last = next;
        if (i % (MANY / KEPT) == 0 && i / (MANY / KEPT) < KEPT)
            kept[i / (MANY / KEPT)] = some(world);
    }
    CHECK(s->list_room <= 4 * KEPT);
    for (int i = 0; i < KEPT; i++) {
        CHECK(s->list[kept[i]->scope] == kept[i]);
        CHECK(i == 0 || kept[i]->scope > kept[i - 1]->scope);
    }
    CHECK(sherd_scope_pass(kept[7]) == kept[7]);
    sherd_scope_end(world);
    CHECK_EQ(s->listed, listed + 1);
    sherd_tensor_release(kept[7]);
    CHECK_EQ(s->listed, listed);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

static void a_view_keeps_the_storage_alive(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    sherd_tensor *view = sherd_tensor_retain(sherd__new_view(some(world)));
    sherd_scope_end(world);
    CHECK(live(world) > before);
    CHECK(((const double *)sherd_tensor_read(view))[63] == 1);
    sherd_tensor_release(view);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* Whatever the user still holds goes with the world: the sanitizer sees a leak otherwise. */
static void closing_the_world_frees_what_is_left(sherd_world *world)
{
    sherd_world *own = NULL;

    CHECK_OK(sherd_world_alone(&own, NULL));
    sherd_scope_begin(own);
    sherd_tensor *t = sherd_tensor_retain(some(own)),
                 *view = sherd_tensor_retain(sherd__new_view(t));
    sherd_tensor_text(t);
    view->autograd.moved_from = sherd_tensor_retain(t);
    t->autograd.grad = sherd_tensor_retain(view);
    sherd_scope_begin(own);
    some(own);
    CHECK_OK(sherd_world_close(own));
    CHECK_OK(sherd_world_check(world));
}

/* A chain of tensors that were moved from one another is released without recursion. */
static void a_long_chain_of_moves_is_released(sherd_world *world)
{
    int64_t before = live(world);

    sherd_scope_begin(world);
    sherd_tensor *t = some(world);
    for (int i = 0; i < 20000; i++) {
        sherd_tensor *next = sherd__detached(t);
        next->autograd.moved_from = t;
        if (i == 0)
            sherd_tensor_retain(t);
        t = next;
    }
    sherd_tensor_release(t);
    sherd_scope_end(world);
    CHECK_EQ(live(world), before);
    CHECK_OK(sherd_world_check(world));
}

/* What a tensor may own, whose end calls a function of the program. */
typedef struct caller {
    sherd__refcounted head;
    sherd_world *world;
    int calls;
} caller;

static void opens_scopes(sherd__refcounted *head)
{
    enum { MANY = 200 }; /* more than there is room for */
    caller *c = (caller *)head;

    c->calls++;
    for (int i = 0; i < MANY; i++)
        sherd_scope_begin(c->world);
    for (int i = 0; i < MANY; i++)
        sherd_scope_end(c->world);
}

static void what_is_released_may_open_scopes(sherd_world *world)
{
    caller c = {{1, opens_scopes}, world, 0};
    const sherd_layout *layout = NULL;
    const sherd_mesh *mesh = line_of_ranks(world);
    int before = sherd__layouts_mark(sherd__world_space(world));

    sherd_scope_begin(world);
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, (int64_t[]){7}, "R", NULL));
    CHECK(sherd__layouts_mark(sherd__world_space(world)) != before);
    some(world)->autograd.watch = &c.head;
    sherd_scope_end(world);
    CHECK_EQ(c.calls, 1);
    CHECK_EQ(sherd__layouts_mark(sherd__world_space(world)), before);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(the_end_of_a_scope_releases_what_was_made_in_it), {1, 2}},
    {TEST(scopes_nest), {1, 2}},
    {TEST(a_passed_tensor_lives_one_scope_longer), {1, 2}},
    {TEST(the_outermost_scope_has_no_end), {1}},
    {TEST(what_was_left_open_is_ended), {1, 2}},
    {TEST(a_retained_tensor_outlives_its_scope), {1, 2}},
    {TEST(a_tensor_may_be_released_early), {1}},
    {TEST(what_is_released_early_takes_no_room), {1, 2}},
    {TEST(a_view_keeps_the_storage_alive), {1}},
    {TEST(closing_the_world_frees_what_is_left), {1}},
    {TEST(a_long_chain_of_moves_is_released), {1}},
    {TEST(what_is_released_may_open_scopes), {1}},
};
CHECK_MAIN(tests)
