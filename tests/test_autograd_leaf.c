/* SPDX-License-Identifier: Apache-2.0 */
/* What a leaf holds as its gradient: never more than the leaf itself, and as it came where that is
 * no more. */
#include "tape_operators.h"

#include "sherd/comm.h"

static const int64_t origin[SHERD_MAX_AXES];

static void given_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *const *layout = sherd_node_attributes(node);

    (void)grad_out;
    grad_in[0] = indices_on(*layout, SHERD_F64);
}
static const sherd_op given_backward = {
    .name = "given", .takes_pending = true, .backward = given_back};

/* t, whose gradient is the indices, in this layout. */
static sherd_tensor *given(sherd_tensor *t, const sherd_layout *gradient)
{
    sherd_tensor *out = scaled(t, 1);
    sherd__record_node(t->world, &given_backward, &t, 1, &out, 1, &gradient, sizeof(void *));
    return out;
}

/* One backward for each of these layouts, in which the leaf's gradient comes. */
static void come(sherd_tensor *leaf, const sherd_layout *const *gradient, int count)
{
    for (int i = 0; i < count; i++) {
        sherd_scope_begin(leaf->world);
        sherd_backward(total(given(leaf, gradient[i])));
        sherd_scope_end(leaf->world);
    }
}

static int64_t calls_of(sherd_world *world, const char *op)
{
    int64_t count = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        if (!op || strcmp(sherd_comm_get(world, i).op, op) == 0)
            count += sherd_comm_get(world, i).calls;
    return count;
}

/* Elements that all ranks of the mesh hold together. */
static int64_t held_in_all(const sherd_layout *layout)
{
    int64_t count = 0;

    for (int r = 0; r < sherd_mesh_ranks(layout->spec.mesh); r++) {
        sherd_box box = sherd_layout_box(layout, r, 0);
        count += sherd__box_count(&box);
    }
    return count;
}

static bool holds_no_more(const sherd_layout *grad, const sherd_layout *leaf)
{
    return held_in_all(grad) <= held_in_all(leaf) &&
           sherd__layout_largest(grad) <= sherd__layout_largest(leaf);
}

static int64_t wrong_sums(sherd_tensor *leaf, const int64_t *addends, int count)
{
    sherd_tensor *grad = sherd_grad(leaf);
    const double *data = grad ? sherd_tensor_read(grad) : NULL;
    sherd_box box = sherd_tensor_box(leaf);
    int64_t wrong = data && grad->layout == leaf->layout ? 0 : 1;

    for (int64_t i = 0; data && i < grad->count; i++) {
        double sum = 0;
        for (int k = 0; k < count; k++)
            sum += whole_value(global_of(&box, leaf->shape, i), addends[k]);
        wrong += data[i] != sum;
    }
    return wrong;
}

/* A leaf in every layout, gradients in every two. */
static void check_leaf(const sherd_layout *layout, const sherd_mesh *mesh, const int64_t *shape)
{
    sherd_world *world = sherd__space_world(layout->space);
    int lists = lists_of(mesh, 2);

    for (int i = 0; i < lists; i++) {
        const sherd_layout *gradient[2] = {numbered(mesh, 2, shape, i),
                                           numbered(mesh, 2, shape, (i * 7 + 3) % lists)};
        int64_t addends[2] = {addends_of(gradient[0], origin, NULL),
                              addends_of(gradient[1], origin, NULL)};
        sherd_scope_begin(world);
        sherd_tensor *leaf = leaf_on(layout, 1);
        come(leaf, gradient, 1);
        CHECK(holds_no_more(leaf->autograd.grad->layout, layout));
        if (holds_no_more(gradient[0], layout))
            CHECK(leaf->autograd.grad->layout == gradient[0]);
        come(leaf, &gradient[1], 1);
        CHECK(holds_no_more(leaf->autograd.grad->layout, layout));
        CHECK_EQ(wrong_sums(leaf, addends, 2), 0);
        sherd_scope_end(world);
    }
}

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 1}, {2, 3}, {4, 0}};

static void a_leaf_holds_no_more_than_itself(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 4 ? "2x2" : "x=3");
    static const char *const cuts[] = {"0:7,0,0", "0:3,3,1", "0:1,1,5"};

    for (int s = 0; s < LEN(shapes); s++)
        for (int i = 0; i < lists_of(mesh, 2); i++) {
            const sherd_layout *layout = numbered(mesh, 2, shapes[s], i);
            if (!layout->pending_axes)
                check_leaf(layout, mesh, shapes[s]);
        }
    for (int i = 0; i < LEN(cuts) && sherd_world_ranks(world) == 3; i++)
        check_leaf(layout_of(mesh, 2, shapes[1], "S(0)", cuts[i]), mesh, shapes[1]);
    CHECK_OK(sherd_world_check(world));
}

/* Data parallelism, and data beside tensor parallelism: no call before somebody asks. */
static void what_takes_no_more_stays_as_it_came(sherd_world *world)
{
    static const char *const pairs[][2] = {{"RR", "P(sum)R"},       {"RR", "P(sum)P(sum)"},
                                           {"RR", "S(0)P(sum)"},    {"RS(0)", "P(sum)S(0)"},
                                           {"S(1)R", "S(1)P(sum)"}, {"RS(0)", "S(0)S(1)"}};
    const sherd_mesh *mesh = mesh_of(world, "2x2");

    for (int i = 0; i < LEN(pairs); i++) {
        const sherd_layout *layout = layout_of(mesh, 2, shapes[0], pairs[i][0], NULL);
        const sherd_layout *gradient = layout_of(mesh, 2, shapes[0], pairs[i][1], NULL);
        const sherd_layout *both[] = {gradient, gradient};
        sherd_tensor *leaf = leaf_on(layout, 1);
        CHECK_OK(sherd_world_check(world));
        sherd_comm_reset(world);
        come(leaf, both, 2);
        CHECK(leaf->autograd.grad->layout == gradient);
        CHECK_EQ(calls_of(world, NULL), 0);
        int64_t addends = addends_of(gradient, origin, NULL);
        CHECK_EQ(wrong_sums(leaf, (int64_t[]){addends, addends}, 2), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

/* So later backwards add what they would add in a run that was not asked, down to the last bit. */
static void a_leaf_that_was_asked_for_is_as_before(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    const sherd_mesh *mesh = mesh_of(world, text);
    const sherd_layout *layout = layout_of(mesh, 2, shapes[0], "R", NULL);
    const sherd_layout *gradient = layout_of(mesh, 2, shapes[0], "P(sum)", NULL);
    const sherd_layout *both[] = {gradient, gradient};
    sherd_tensor *leaf = leaf_on(layout, 1), *asked = NULL;

    sherd_scope_begin(world);
    sherd_tensor *out = total(given(leaf, gradient));
    sherd_gradients(&asked, &leaf, 1, &out, 1, NULL);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    come(leaf, both, 2);
    CHECK(leaf->autograd.grad->layout == gradient);
    CHECK_EQ(calls_of(world, NULL), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Two uses in one backward, then two backwards: each is scattered as it comes, and none is ever
 * made whole. */
static void every_use_of_a_shard_is_scattered(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, sherd_world_ranks(world) == 2 ? "2" : "5");
    const int64_t shape[2] = {100, 10};
    const sherd_layout *rows = layout_of(mesh, 2, shape, "S(0)", NULL);
    const sherd_layout *whole[] = {layout_of(mesh, 2, shape, "P(sum)", NULL),
                                   layout_of(mesh, 2, shape, "P(sum)", NULL)};
    int64_t whole_bytes = 100 * 10 * 8, ranks = sherd_world_ranks(world);
    sherd_tensor *leaf = leaf_on(rows, 1);

    sherd_scope_begin(world);
    sherd_tensor *a = given(leaf, whole[0]), *b = given(leaf, whole[1]);
    sherd_tensor *loss = total(joined(a, b));
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    int64_t before = sherd_world_memory(world).live_bytes;
    sherd_world_memory_reset(world);
    sherd_backward(loss);
    CHECK_EQ(calls_of(world, "reduce_scatter"), 2);
    CHECK(sherd_world_memory(world).peak_bytes - before <=
          whole_bytes + 5 * whole_bytes / ranks + 64);
    sherd_scope_end(world);
    come(leaf, whole, 2);
    /* All there were but the losses' own sums. */
    CHECK_EQ(calls_of(world, "reduce_scatter"), 4);
    CHECK(leaf->autograd.grad->layout == rows);
    CHECK_EQ(leaf->autograd.grad->storage->bytes, whole_bytes / ranks);
    CHECK_EQ(wrong_sums(leaf, (int64_t[]){ranks, ranks, ranks, ranks}, 4), 0);
    CHECK_OK(sherd_world_check(world));
}

static void scene(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *rows = NULL, *whole[2] = {NULL, NULL};

    sherd_scope_begin(world);
    if (sherd_mesh_parse(&mesh, world, "3") == SHERD_OK &&
        sherd_layout_parse_placements(&rows, mesh, 2, shapes[1], "S(0)", NULL) == SHERD_OK &&
        sherd_layout_parse_placements(&whole[0], mesh, 2, shapes[1], "P(sum)", NULL) == SHERD_OK) {
        whole[1] = whole[0];
        come(leaf_on(rows, 1), whole, 2);
    } else {
        sherd__raise_diag(world);
    }
    sherd_scope_end(world);
}

static void no_memory_on_one_rank_fails_on_all(sherd_world *world)
{
    fail_every_allocation(world, 0, scene);
    fail_every_allocation(world, 2, scene);
}

static const sherd_layout *rows_of_ranks(sherd_world *world)
{
    const sherd_layout *layout = NULL;

    CHECK_OK(
        sherd_layout_parse_placements(&layout, line_of_ranks(world), 2, shapes[0], "S(0)", NULL));
    return layout;
}

/* Frozen after it was used: nothing arrives, and what it had stays; others get theirs. */
static void a_leaf_that_was_frozen_gets_no_gradient(sherd_world *world)
{
    sherd_tensor *x = leaf_on(rows_of_ranks(world), 2), *w = leaf_on(rows_of_ranks(world), 3);

    for (int had = 0; had < 2; had++) {
        sherd_tensor *loss;
        if (had)
            sherd_backward(total(doubled(w)));
        loss = total(product(x, w));
        sherd_require_grad(w, false);
        sherd_backward(loss);
        CHECK_EQ(wrong_grads(x, 3 * (had + 1)), 0);
        CHECK(had ? wrong_grads(w, 2) == 0 : sherd_grad(w) == NULL);
        sherd_require_grad(w, true);
    }
    CHECK_OK(sherd_world_check(world));
}

static void left_out_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd_world_rank(sherd__node_world(node)) != 1)
        grad_in[0] = grad_out[0];
}
static const sherd_op left_out_backward = {.name = "left out", .backward = left_out_back};

/* t, whose gradient rank 1 leaves out. */
static sherd_tensor *left_out(sherd_tensor *t)
{
    sherd_tensor *out = scaled(t, 1);
    sherd__record_node(t->world, &left_out_backward, &t, 1, &out, 1, NULL, 0);
    return out;
}

/* A plain tensor's may be there on some ranks only. */
static void a_gradient_that_one_rank_leaves_out_is_found(sherd_world *world)
{
    sherd_tensor *plain = leaf_of(world, 4, 1), *x = leaf_on(rows_of_ranks(world), 2);

    sherd_backward(total(left_out(plain)));
    CHECK_EQ(sherd_grad(plain) != NULL, sherd_world_rank(world) != 1);
    CHECK_OK(sherd_world_check(world));
    sherd_backward(total(left_out(x)));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "no gradient on rank 1") != NULL);
}

static const check_test tests[] = {
    {TEST(a_gradient_that_one_rank_leaves_out_is_found), {2, 3, 4}},
    {TEST(a_leaf_that_was_frozen_gets_no_gradient), {1, 2, 3, 4}},
    {TEST(a_leaf_holds_no_more_than_itself), {3, 4}},
    {TEST(what_takes_no_more_stays_as_it_came), {4}},
    {TEST(a_leaf_that_was_asked_for_is_as_before), {2, 3, 4}},
    {TEST(every_use_of_a_shard_is_scattered), {2, 5}},
    {TEST(no_memory_on_one_rank_fails_on_all), {3}},
};
CHECK_MAIN(tests)
