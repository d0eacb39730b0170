/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of leaves that are put off until a move is under way: when they run, and that nothing
 * else changes. */
#include "tape_operators.h"

#include "sherd/autograd.h"

/* What backward did, a letter each: x and w (gradients of operands 0 and 1), m and M (a move,
 * begun). */
typedef struct diary {
    char text[64];
    int count;
    int fail_at; /* raise instead of the letter of that number; 0 = never */
} diary;

static bool write_down(sherd_world *world, diary *d, char letter)
{
    if (d->count < (int)sizeof d->text - 1)
        d->text[d->count++] = letter;
    if (d->count != d->fail_at)
        return true;
    sherd__raise(world, SHERD_EINVAL, "test: no %c", letter);
    return false;
}

static void weigh_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    diary *const *d = sherd_node_attributes(node);

    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = write_down(sherd__node_world(node), *d, "xw"[i])
                             ? multiplied(sherd__saved(node, 1 - i), grad_out[0])
                             : sherd__failed(sherd__node_world(node));
}
static const sherd_op weigh_backward = {.name = "weigh", .in_parts = true, .backward = weigh_back};

/* x * w */
static sherd_tensor *weigh(diary *d, sherd_tensor *x, sherd_tensor *w)
{
    sherd_tensor *in[2] = {x, w}, *out = multiplied(x, w);
    sherd_node *node =
        sherd__record_node(x->world, &weigh_backward, in, 2, &out, 1, &d, sizeof(diary *));

    for (int i = 0; i < 2 && node; i++)
        if (sherd_node_wants(node, 1 - i))
            sherd__save(node, i, in[i]);
    return out;
}

static void shift_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    diary *const *d = sherd_node_attributes(node);
    bool begins = sherd__begins(node);

    write_down(sherd__node_world(node), *d, begins ? 'M' : 'm');
    grad_in[0] = sherd__move_to(grad_out[0], sherd_node_layout(node, 0), begins);
}
static const sherd_op shift_backward = {
    .name = "shift", .takes_pending = true, .backward = shift_back};

/* A move whose gradient may move while backward goes on. */
static sherd_tensor *shift(diary *d, sherd_tensor *t, const sherd_layout *to)
{
    sherd_tensor *out = sherd__move_to(t, to, false);

    if (out != t && out->storage)
        sherd__record_node(t->world, &shift_backward, &t, 1, &out, 1, &d, sizeof(diary *));
    return out;
}

/* Two layouts of 12 elements over all ranks. */
static bool two_layouts(sherd_world *world, const sherd_layout **rows, const sherd_layout **uneven)
{
    char text[64];
    int ranks = sherd_world_ranks(world), n;

    snprintf(text, sizeof text, "[12(x)] on (x=%d)", ranks);
    n = CHECK_OK(sherd_layout_parse(rows, world, text, NULL));
    snprintf(text, sizeof text, "[12(x:%d", 12 - ranks + 1);
    for (int r = 1; r < ranks; r++)
        strcat(text, ",1");
    snprintf(text + strlen(text), sizeof text - strlen(text), ")] on (x=%d)", ranks);
    return n && CHECK_OK(sherd_layout_parse(uneven, world, text, NULL));
}

static void a_weight_waits_for_the_next_move(sherd_world *world)
{
    const sherd_layout *rows, *uneven;
    diary d = {.count = 0};

    if (!two_layouts(world, &rows, &uneven))
        return;
    sherd_tensor *x = leaf_on(rows, 2), *a = leaf_on(rows, 3), *b = leaf_on(uneven, 5);
    sherd_tensor *y = weigh(&d, doubled(x), a);
    y = weigh(&d, shift(&d, y, uneven), b);
    sherd_backward(total(shift(&d, y, rows)));
    CHECK_TEXT(d.text, "mxMwxw");
    CHECK_EQ(wrong_grads(x, 2 * 3 * 5), 0);
    CHECK_EQ(wrong_grads(a, 2 * 2 * 5), 0);
    CHECK_EQ(wrong_grads(b, 2 * 2 * 3), 0);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A gradient that is pending is settled for an operator that takes none: that is a move, too. */
static void a_weight_waits_for_a_sum_to_be_settled(sherd_world *world)
{
    const sherd_layout *whole;
    diary d = {.count = 0};
    char text[32];

    snprintf(text, sizeof text, "[12] on (x=%d)", sherd_world_ranks(world));
    if (!CHECK_OK(sherd_layout_parse(&whole, world, text, NULL)))
        return;
    sherd_tensor *x = leaf_on(whole, 2), *a = leaf_on(whole, 3), *b = leaf_on(whole, 5);
    sherd_tensor *y = weigh(&d, fork_of(weigh(&d, doubled(x), a)), b);
    sherd_backward(total(y));
    CHECK_TEXT(d.text, "xwxw");
    CHECK_EQ(wrong_grads(a, 2 * 2 * 5 * sherd_world_ranks(world)), 0);
    CHECK_EQ(wrong_grads(b, 2 * 2 * 3), 0);
    CHECK_OK(sherd_world_check(world));
}

static void two_nodes_wait_and_no_more(sherd_world *world)
{
    diary d = {.count = 0};
    sherd_tensor *x = leaf_of(world, 5, 1), *w[5], *y = doubled(x);

    for (int i = 0; i < 5; i++)
        y = weigh(&d, y, w[i] = leaf_of(world, 5, i + 1));
    sherd_backward(total(y));
    CHECK_TEXT(d.text, "xxxwxwxwww");
    for (int i = 0; i < 5; i++)
        CHECK_EQ(wrong_grads(w[i], 240.0 / (i + 1)), 0);
    CHECK_EQ(wrong_grads(x, 240), 0);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* x w with two leaves: no other gradient waits, so there is nothing to gain. */
static void only_leaves_run_at_once(sherd_world *world)
{
    diary d = {.count = 0};
    sherd_tensor *x = leaf_of(world, 4, 2), *w = leaf_of(world, 4, 3);

    sherd_backward(total(weigh(&d, x, w)));
    CHECK_TEXT(d.text, "xw");
    CHECK_EQ(wrong_grads(x, 3), 0);
    CHECK_OK(sherd_world_check(world));
}

static void a_graph_that_is_retained_runs_in_one_go(sherd_world *world)
{
    diary d = {.count = 0};
    sherd_tensor *x = leaf_of(world, 4, 2), *w = leaf_of(world, 4, 3);
    sherd_tensor *loss = total(weigh(&d, weigh(&d, doubled(x), w), w));

    sherd_backward_with(&loss, NULL, 1, &(sherd_backward_options){.retain = true});
    CHECK_TEXT(d.text, "xwxw");
    CHECK_EQ(wrong_grads(w, 2 * 4 * 3), 0);
    sherd_backward(loss);
    CHECK_TEXT(d.text, "xwxwxxww");
    CHECK_EQ(wrong_grads(w, 2 * 2 * 4 * 3), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- hooks ----------------------------------------------------------------------------------- */

typedef struct seen {
    int times;
    double value;
} seen;

static sherd_tensor *look(sherd_tensor *grad, void *payload)
{
    seen *s = payload;

    s->times++;
    s->value = ((const double *)sherd_tensor_read(grad))[0];
    return NULL;
}

/* A hook sees the sum of all uses, once, though the last use in the list is not the last to be
 * computed. */
static void a_hook_sees_the_whole_sum_once(sherd_world *world)
{
    diary d = {.count = 0};
    seen s = {0};
    sherd_tensor *x = leaf_of(world, 4, 1), *w = leaf_of(world, 4, 3);

    CHECK_OK(sherd_tensor_hook(NULL, w, look, &s, NULL));
    /* w is used by `doubled` first, which is the end of the list and is not put off. */
    sherd_backward(total(weigh(&d, product(doubled(x), doubled(w)), w)));
    CHECK_EQ(s.times, 1);
    CHECK(s.value == 2 * 2 * 2 * 3);
    CHECK_TEXT(d.text, "xw");
    CHECK_OK(sherd_world_check(world));
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Whatever letter fails, on one rank: all learn of it, nothing is kept, and the next backward is
 * right. */
static void a_failure_anywhere_loses_nothing(sherd_world *world)
{
    const sherd_layout *rows, *uneven;

    if (!two_layouts(world, &rows, &uneven))
        return;
    for (int n = 1; n <= 6; n++) {
        diary d = {.fail_at = sherd_world_rank(world) == 0 ? n : 0};
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_on(rows, 2), *a = leaf_on(rows, 3), *b = leaf_on(uneven, 5);
        sherd_tensor *y = weigh(&d, shift(&d, weigh(&d, doubled(x), a), uneven), b);
        sherd_backward(total(shift(&d, y, rows)));
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    a_weight_waits_for_the_next_move(world);
}

static void scene(sherd_world *world)
{
    const sherd_layout *rows = NULL, *uneven = NULL;
    diary d = {.count = 0};

    sherd_scope_begin(world);
    if (sherd_layout_parse(&rows, world, "[12(x)] on (x=2)", NULL) == SHERD_OK &&
        sherd_layout_parse(&uneven, world, "[12(x:11,1)] on (x=2)", NULL) == SHERD_OK) {
        sherd_tensor *x = leaf_on(rows, 2), *a = leaf_on(rows, 3), *b = leaf_on(uneven, 5);
        sherd_tensor *y = weigh(&d, shift(&d, weigh(&d, doubled(x), a), uneven), b);
        sherd_backward(total(shift(&d, weigh(&d, y, b), rows)));
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
    CHECK_EQ(sherd_saved_bytes(world), 0);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, scene);
    fail_every_allocation(world, 1, scene);
}

static const check_test tests[] = {
    {TEST(a_weight_waits_for_the_next_move), {2, 3, 4, 8}},
    {TEST(a_weight_waits_for_a_sum_to_be_settled), {2, 3, 4}},
    {TEST(two_nodes_wait_and_no_more), {1, 2}},
    {TEST(only_leaves_run_at_once), {1}},
    {TEST(a_graph_that_is_retained_runs_in_one_go), {1, 2}},
    {TEST(a_hook_sees_the_whole_sum_once), {1, 2}},
    {TEST(a_failure_anywhere_loses_nothing), {2, 4}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
