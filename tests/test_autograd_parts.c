/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backward in two parts gives the bits of a whole one, whatever leads where, also with several
 * under way; what nobody needs any more is released in between, and a failure loses nothing.
 */
#include "tape_operators.h"

#include <math.h>

#include "sherd/autograd.h"

enum { WEIGHTS = 3, BATCHES = 3, STEPS = 16, MOST = WEIGHTS + 1 + STEPS, ELEMENTS = 35 };

/* What backward did, a letter each: x and w, gradients of operands 0 and 1. */
typedef struct diary {
    char text[64];
    int count;
    int fail_at; /* raise instead of the letter of that number; 0 = never */
} diary;

static void weigh_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    diary *const *at = sherd_node_attributes(node), *d = *at;
    sherd_world *world = sherd__node_world(node);

    for (int i = 0; i < 2; i++) {
        if (!sherd_node_wants(node, i))
            continue;
        if (d->count < (int)sizeof d->text - 1)
            d->text[d->count++] = "xw"[i];
        if (d->count == d->fail_at)
            sherd__raise(world, SHERD_EINVAL, "test: no %c", "xw"[i]);
        grad_in[i] = d->count == d->fail_at ? sherd__failed(world)
                                            : multiplied(sherd__saved(node, 1 - i), grad_out[0]);
    }
}
static const sherd_op weigh_backward = {.name = "weigh", .in_parts = true, .backward = weigh_back};

/* a * b, whose gradients share no work. */
static sherd_tensor *weigh(diary *d, sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *in[2] = {a, b}, *out = multiplied(a, b);
    sherd_node *node =
        sherd__record_node(a->world, &weigh_backward, in, 2, &out, 1, &d, sizeof(diary *));

    for (int i = 0; i < 2 && node; i++)
        if (sherd_node_wants(node, 1 - i))
            sherd__save(node, i, in[i]);
    return out;
}

/* ---- random graphs --------------------------------------------------------------------------- */

typedef struct work {
    sherd_world *world;
    const sherd_mesh *mesh;
    int64_t shape[2];
    uint32_t random;
    diary d;
    double seen[WEIGHTS]; /* by hooks, in the order of their calls */
    sherd_tensor *weight[WEIGHTS], *input[BATCHES], *output[BATCHES];
} work;

static uint32_t draw(work *k, uint32_t below)
{
    k->random = k->random * 1664525u + 1013904223u;
    return (k->random >> 10) % below;
}

static const sherd_layout *any_layout(work *k)
{
    sherd_placement placements[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(k->mesh); a++) {
        uint32_t kind = draw(k, 3);
        placements[a] = kind ? sherd_shard((int)kind - 1) : sherd_replicate();
    }
    if (sherd_layout_create(&layout, k->mesh, 2, k->shape, placements, NULL) != SHERD_OK)
        sherd__raise_diag(k->world);
    return layout;
}

/* Values whose sums depend on the order of the addends. */
static sherd_tensor *any_leaf(work *k, int number)
{
    sherd_tensor *t = sherd__new_on(any_layout(k), SHERD_F64);
    sherd_box box = sherd_tensor_box(t);

    for (int64_t i = 0; i < t->count; i++)
        set_number(sherd__fresh(t), SHERD_F64, i,
                   sin((double)(7 * number + 3 * global_of(&box, k->shape, i) + 1)));
    return sherd_require_grad(t, true);
}

static sherd_tensor *look(sherd_tensor *grad, void *payload)
{
    double *seen = payload;
    const double *data = sherd_tensor_read(grad);

    if (data && grad->count > 0)
        *seen = 0.5 * *seen + data[0];
    return NULL;
}

static sherd_tensor *step(work *k, sherd_tensor *a, sherd_tensor *b)
{
    switch (draw(k, 7)) {
    case 0:
    case 1:
        return weigh(&k->d, a, b);
    case 2:
        return product(a, b);
    case 3:
        return joined(a, moved(b, a->layout));
    case 4:
        return turned(a, any_layout(k));
    case 5:
        return moved(a, any_layout(k));
    default:
        return doubled(a);
    }
}

/* The last four values of a random graph, joined; each microbatch has another graph. */
static void forward(work *k, int m)
{
    sherd_tensor *t[MOST];
    int count = 0;

    k->input[m] = any_leaf(k, WEIGHTS + m);
    for (int i = 0; i < WEIGHTS; i++)
        t[count++] = k->weight[i];
    t[count++] = k->input[m];
    while (count < MOST) {
        uint32_t a = draw(k, (uint32_t)count), b = draw(k, (uint32_t)count);
        t[count] = step(k, t[a], t[b]);
        count++;
    }
    sherd_tensor *sum = t[count - 1];
    for (int i = count - 4; i < count - 1; i++)
        sum = joined(sum, moved(t[i], sum->layout));
    k->output[m] = sum;
}

static sherd_tensor *gradient_of(work *k, int m)
{
    return scaled(sherd__move_to(k->input[m], k->output[m]->layout, false), 1);
}

/* All microbatches; in parts, with up to two under way. */
static void run(work *k, uint32_t seed, bool parts)
{
    static const int64_t shapes[][2] = {{5, 7}, {4, 8}, {1, 1}, {2, 3}, {4, 0}};
    struct sherd__pass *late[BATCHES] = {NULL};

    k->random = seed;
    memcpy(k->shape, shapes[seed % LEN(shapes)], sizeof k->shape);
    for (int i = 0; i < WEIGHTS; i++)
        k->weight[i] = any_leaf(k, i);
    for (int i = 0; i < WEIGHTS && seed % 2; i += 2)
        CHECK_OK(sherd_tensor_hook(NULL, k->weight[i], look, &k->seen[i], NULL));
    for (int m = 0; m < BATCHES; m++) {
        forward(k, m);
        sherd_tensor *gradient = gradient_of(k, m);
        if (parts)
            late[m] = sherd__backward_first(&k->output[m], &gradient, 1, &k->input[m], 1);
        else
            sherd_backward_with(&k->output[m], &gradient, 1, NULL);
        if (parts && m > 0)
            sherd__backward_second(late[m - 1], true);
    }
    if (parts)
        sherd__backward_second(late[BATCHES - 1], true);
}

static int64_t copy_of(double *out, sherd_tensor *leaf)
{
    sherd_tensor *grad = sherd_grad(leaf);
    const double *data = grad ? sherd_tensor_read(grad) : NULL;

    for (int64_t i = 0; data && i < grad->count; i++)
        out[i] = data[i];
    return data ? grad->count : -1;
}

static int64_t compare(work *a, work *b)
{
    int64_t compared = 0;

    for (int i = 0; i < WEIGHTS + BATCHES; i++) {
        double x[ELEMENTS], y[ELEMENTS];
        int64_t n = copy_of(x, i < WEIGHTS ? a->weight[i] : a->input[i - WEIGHTS]);
        CHECK_EQ(copy_of(y, i < WEIGHTS ? b->weight[i] : b->input[i - WEIGHTS]), n);
        CHECK(n <= 0 || memcmp(x, y, (size_t)n * sizeof *x) == 0);
        compared += n > 0;
    }
    CHECK(memcmp(a->seen, b->seen, sizeof a->seen) == 0);
    return compared;
}

static void both_parts_are_the_whole(sherd_world *world)
{
    static const char *const meshes[][2] = {{"1", "1x1"}, {"2", "1x2"}, {"3", "3x1"}, {"4", "2x2"}};
    int64_t compared = 0;
    int64_t hooked = 0;

    for (uint32_t seed = 0; seed < 200; seed++) {
        work a = {.world = world,
                  .mesh = mesh_of(world, meshes[sherd_world_ranks(world) - 1][seed / 5 % 2])};
        work b = a;
        int64_t bytes = sherd_world_memory(world).live_bytes;
        sherd_scope_begin(world);
        run(&a, seed, false);
        run(&b, seed, true);
        compared += compare(&a, &b);
        hooked += b.seen[0] != 0;
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
        CHECK_EQ(sherd_world_memory(world).live_bytes, bytes);
    }
    CHECK(compared > 500);
    CHECK(hooked > 20);
    CHECK_OK(sherd_world_check(world));
}

/* The last use of a weight gives its gradient first, even if that is put off and others are not. */
static void one_leaf_gets_gradients_in_order(sherd_world *world)
{
    diary d = {.count = 0};
    sherd_tensor *w = leaf_of(world, 1, 1), *half = leaf_of(world, 1, 0.5);
    sherd_tensor *big = leaf_of(world, 1, 1e16), *minus = leaf_of(world, 1, -1e16);
    sherd_tensor *z = joined(product(w, big), product(w, minus));

    sherd_backward(total(joined(z, weigh(&d, doubled(half), w))));
    CHECK_EQ(wrong_grads(w, 0), 0); /* (1 - 1e16) + 1e16; in another order it is 1 */
    CHECK_OK(sherd_world_check(world));
}

/* ---- what runs when, and what is kept -------------------------------------------------------- */

static void only_what_leads_to_inputs_comes_first(sherd_world *world)
{
    diary d = {.count = 0};
    sherd_tensor *x = leaf_of(world, 5, 2), *a = leaf_of(world, 5, 3), *b = leaf_of(world, 5, 5);
    sherd_tensor *of_weights = weigh(&d, doubled(a), b);
    sherd_tensor *y = product(weigh(&d, square(weigh(&d, x, a)), of_weights), b), *loss = total(y);
    int64_t saved = sherd_saved_bytes(world);

    struct sherd__pass *rest = sherd__backward_first(&loss, NULL, 1, &x, 1);
    CHECK_TEXT(d.text, "xx");
    CHECK(sherd_grad(a) == NULL && sherd_grad(b) == NULL);
    CHECK_EQ(wrong_grads(x, 3 * 6 * (6 * 5) * 5), 0);
    /* x a, which the square has saved, and the product's first operand */
    CHECK_EQ(sherd_saved_bytes(world), saved - 2 * 5 * (int64_t)sizeof(double));
    sherd__backward_second(rest, true);
    CHECK_TEXT(d.text, "xxwwxw");
    CHECK_EQ(wrong_grads(a, 18 * 5 * 5 * 2 + 2 * 6 * 30 * 5), 0);
    CHECK_EQ(wrong_grads(b, 18 * 30 + 18 * 5 * 6), 0);
    CHECK_EQ(sherd_saved_bytes(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* A weight that was gathered for the first part is gathered there only. */
static void gathered_weights_are_not_kept(sherd_world *world)
{
    const sherd_layout *rows, *whole;
    diary d = {.count = 0};
    char text[64];
    const int64_t n = 64;

    snprintf(text, sizeof text, "[%d(x)] on (x=%d)", (int)n, sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&rows, world, text, NULL));
    snprintf(text, sizeof text, "[%d] on (x=%d)", (int)n, sherd_world_ranks(world));
    CHECK_OK(sherd_layout_parse(&whole, world, text, NULL));
    sherd_tensor *x = leaf_on(whole, 2), *w = leaf_on(rows, 3), *loss;
    sherd_scope_begin(world);
    loss = sherd_tensor_retain(total(weigh(&d, x, moved(w, whole))));
    sherd_scope_end(world);
    int64_t before = sherd_world_memory(world).live_bytes;
    struct sherd__pass *rest = sherd__backward_first(&loss, NULL, 1, &x, 1);
    /* the gradient of the product, and that of x */
    int64_t after = sherd_world_memory(world).live_bytes - before;
    CHECK(after > 0 && after < 3 * n * (int64_t)sizeof(double));
    sherd__backward_second(rest, true);
    CHECK_EQ(wrong_grads(w, 2), 0);
    sherd_tensor_release(loss);
    CHECK_OK(sherd_world_check(world));
}

static void outputs_may_be_leaves(sherd_world *world)
{
    sherd_tensor *x = leaf_of(world, 3, 2), *w = leaf_of(world, 3, 3), *both[] = {x, w, doubled(w)};
    sherd_tensor *one = sherd_constant(world, SHERD_F64, (int64_t[]){3}, 1, 1),
                 *ones[] = {one, one, one};
    int calls = 0;

    struct sherd__pass *rest = sherd__backward_first(both, ones, 3, &x, 1);
    CHECK_EQ(wrong_grads(x, 1), 0);
    CHECK(sherd_grad(w) == NULL && calls == 0);
    sherd__backward_second(rest, true);
    CHECK_EQ(wrong_grads(w, 3), 0);
    rest = sherd__backward_first(&w, ones, 1, NULL, 0);
    sherd__backward_second(rest, true);
    CHECK_EQ(wrong_grads(w, 4), 0);
    CHECK_OK(sherd_world_check(world));
}

/* ---- failures -------------------------------------------------------------------------------- */

static void a_failure_in_any_part_loses_nothing(sherd_world *world)
{
    for (int n = 1; n <= 5; n++) {
        diary d = {.fail_at = sherd_world_rank(world) == 0 ? n : 0};
        sherd_scope_begin(world);
        sherd_tensor *x = leaf_of(world, 4, 2), *a = leaf_of(world, 4, 3);
        sherd_tensor *y = product(weigh(&d, square(weigh(&d, x, a)), doubled(a)), a);
        sherd_tensor *loss = total(y);
        struct sherd__pass *rest = sherd__backward_first(&loss, NULL, 1, &x, 1);
        sherd__backward_second(rest, n != 5); /* the last time it is dropped */
        CHECK_EQ(sherd_world_check(world), n == 5 ? SHERD_OK : SHERD_EINVAL);
        sherd_scope_end(world);
        CHECK_EQ(sherd_saved_bytes(world), 0);
    }
    sherd__backward_second(NULL, true);
    only_what_leads_to_inputs_comes_first(world);
}

static void scene(sherd_world *world)
{
    const sherd_layout *rows = NULL;
    diary d = {.count = 0};
    double seen = 0;

    sherd_scope_begin(world);
    if (sherd_layout_parse(&rows, world, "[12(x)] on (x=2)", NULL) == SHERD_OK) {
        sherd_tensor *x = leaf_on(rows, 2), *a = leaf_on(rows, 3), *b = leaf_on(rows, 5);
        sherd_tensor *y = product(weigh(&d, square(weigh(&d, x, a)), doubled(a)), b);
        sherd_tensor *loss = total(product(y, b));
        if (sherd_tensor_hook(NULL, a, look, &seen, NULL) != SHERD_OK)
            sherd__raise_diag(world);
        sherd__backward_second(sherd__backward_first(&loss, NULL, 1, &x, 1), true);
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
    {TEST(both_parts_are_the_whole), {1, 2, 3, 4}},
    {TEST(one_leaf_gets_gradients_in_order), {1, 2}},
    {TEST(only_what_leads_to_inputs_comes_first), {1, 2}},
    {TEST(gathered_weights_are_not_kept), {2, 3}},
    {TEST(outputs_may_be_leaves), {1}},
    {TEST(a_failure_in_any_part_loses_nothing), {1, 2, 3}},
    {TEST(no_memory_on_one_rank_fails_on_all), {2}},
};
CHECK_MAIN(tests)
