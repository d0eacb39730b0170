/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of redistribute, from_local, to_local and full for every layout of the source, of the
 * result, and of the gradient that arrives: where they lie and what they are.
 *
 * PyTorch 2.13 takes every such gradient to the placements of the source, a pending one replicated;
 * only a pending gradient of a pending source stays pending. Here an operator finds its gradient in
 * the same place, with two differences that do not show in the values (docs/decisions/001: a
 * gradient is settled once, when it is used):
 * - of a pending source it is replicated also where it arrived pending;
 * - a move to the same layout is no move: the gradient passes as it is, and is settled by whoever
 *   is next.
 */
#include "ops_cases.h"
#include "boxes.h"

static const int64_t shapes[][2] = {{8, 4}, {7, 5}, {1, 3}, {5, 3}};

/* The number-th layout of a shape: R, S(0), S(1) or P(sum) on each axis. */
static int ways(const sherd_mesh *mesh)
{
    return sherd_mesh_axes(mesh) == 2 ? 16 : 4;
}

static const sherd_layout *way(const sherd_mesh *mesh, const int64_t *shape, int number)
{
    sherd_placement placements[SHERD_MAX_AXES];
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++, number /= 4)
        placements[a] = number % 4 == 0   ? sherd_replicate()
                        : number % 4 == 3 ? sherd_partial(SHERD_SUM)
                                          : sherd_shard(number % 4 - 1);
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, placements, NULL));
    return layout;
}

static const sherd_layout *settled(const sherd_layout *layout)
{
    const sherd_layout *to = NULL;
    CHECK_OK(sherd__layout_settle(&to, layout));
    return to;
}

/* ---- values: whole numbers, so that sums are exact ---- */

static double value(int64_t index)
{
    return (double)(3 * index + 1);
}

/* The values on a layout; the addends of a pending sum differ. */
static sherd_tensor *values_on(const sherd_layout *layout)
{
    sherd_tensor *t = sherd__new_on(layout, SHERD_F64);
    sherd_box box = sherd_tensor_box(t);
    int64_t parts = 1, part = sherd_tensor_failed(t) ? 0 : pending_part(t, &parts);

    for (int64_t i = 0; i < t->count; i++) {
        int64_t others = parts * (parts - 1) / 2;
        double x = value(global_of(&box, t->shape, i));
        ((double *)sherd__fresh(t))[i] = part ? (double)part : x - (double)others;
    }
    return t;
}

static int64_t count_wrong(sherd_tensor *t)
{
    sherd_tensor *whole = sherd_full(t);
    const double *x = sherd_tensor_failed(whole) ? NULL : sherd_tensor_read(whole);
    int64_t wrong = x ? 0 : 1;

    for (int64_t i = 0; x && i < sherd_tensor_count(whole); i++)
        wrong += x[i] != value(i);
    return wrong;
}

/* ---- gradients in a layout of the test's choice ---- */

typedef struct injection {
    const sherd_layout *grad;
} injection;

static void inject_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const injection *attrs = sherd_node_attributes(node);

    (void)grad_out;
    grad_in[0] = values_on(attrs->grad);
}

static const sherd_op inject_table = {
    .name = "inject", .takes_pending = false, .backward = inject_back};

/* A loss whose gradient to y is the values, in a given layout. */
static sherd_tensor *inject(sherd_tensor *y, const sherd_layout *grad)
{
    const sherd_layout *scalar = NULL;
    injection attrs = {grad};

    CHECK_OK(sherd__replicated(&scalar, y->layout->spec.mesh, 0, NULL));
    sherd_tensor *loss = sherd_constant_on(scalar, SHERD_F64, 0);
    sherd__record_node(y->world, &inject_table, &y, 1, &loss, 1, &attrs, sizeof attrs);
    return loss;
}

/* What arrived at an operator. */
typedef struct sight {
    const sherd_layout *layout;
    int64_t wrong;
} sight;

typedef struct probe_attrs {
    sight *seen;
} probe_attrs;

static void probe_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const probe_attrs *attrs = sherd_node_attributes(node);

    attrs->seen->layout = grad_out[0]->layout;
    attrs->seen->wrong = count_wrong(grad_out[0]);
    grad_in[0] = grad_out[0];
}

static const sherd_op settled_table = {
    .name = "settled probe", .takes_pending = false, .backward = probe_back};
static const sherd_op pending_table = {
    .name = "pending probe", .takes_pending = true, .backward = probe_back};

/* The same tensor, made by an operator that looks at its gradient. */
static sherd_tensor *probe(sherd_tensor *t, const sherd_op *table, sight *seen)
{
    sherd_tensor *y = sherd__new_view(t);
    probe_attrs attrs = {seen};

    *seen = (sight){NULL, -1};
    sherd__record_node(t->world, table, &t, 1, &y, 1, &attrs, sizeof attrs);
    return y;
}

/* ---- redistribute ---- */

static void say(const sherd_layout *from, const sherd_layout *to, const sherd_layout *grad)
{
    fprintf(stderr, "  %s to %s, gradient %s\n", sherd_layout_text(from),
            sherd_layout_placements(to), sherd_layout_placements(grad));
}

/* Where a gradient lies that nobody has settled: axes that the move has not touched stay
 * pending. */
static const sherd_layout *expected_pending(const sherd_layout *from, const sherd_layout *to,
                                            const sherd_layout *grad)
{
    sherd__layout_spec spec = settled(from)->spec;
    const sherd_layout *expected = NULL;

    if (from == to)
        return grad;
    for (int a = 0; a < spec.mesh->axes; a++) {
        bool touched = from->spec.pending[a] != to->spec.pending[a] ||
                       ((from->shard_axes | to->shard_axes) >> a & 1);
        spec.pending[a] = touched ? -1 : grad->spec.pending[a];
    }
    CHECK_OK(sherd__layout_intern(&expected, &spec));
    return expected;
}

/* The source is the result of an operator that settles its gradients, or takes them as they
 * come. */
static bool moves_back(const sherd_layout *from, const sherd_layout *to, const sherd_layout *grad)
{
    sherd_tensor *leaf = sherd_require_grad(values_on(from), true);
    sight plain, raw;
    bool good = true;

    sherd_tensor *x = probe(leaf, &settled_table, &plain);
    sherd_tensor *y = sherd_redistribute(x, to, NULL);
    good &= CHECK_EQ(count_wrong(y), 0);
    sherd_backward(inject(y, grad));
    good &= CHECK(plain.layout == settled(from));
    good &= CHECK_EQ(plain.wrong, 0);

    x = probe(leaf, &pending_table, &raw);
    sherd_backward(inject(sherd_redistribute(x, to, NULL), grad));
    good &= CHECK_EQ(raw.wrong, 0);
    good &= CHECK(raw.layout == expected_pending(from, to, grad));
    return good;
}

/* A leaf holds what came, unless it is larger than the leaf, and gives it out where PyTorch has put
 * it at once. */
static bool leaf_gets_it_back(const sherd_layout *from, const sherd_layout *to,
                              const sherd_layout *grad)
{
    sherd_tensor *leaf = sherd_require_grad(values_on(from), true);
    bool good = true;

    sherd_backward(inject(sherd_redistribute(leaf, to, NULL), grad));
    sherd_tensor *raw = sherd__raw_grad(leaf);
    bool larger =
        sherd__layout_largest(grad) > sherd__layout_largest(from) || grad->shards < from->shards;
    good &= CHECK(raw && raw->layout == (larger ? settled(from) : grad));
    sherd_tensor *g = sherd_grad(leaf);
    good &= CHECK(g && g->layout == settled(from));
    return good && CHECK_EQ(count_wrong(g), 0);
}

static void every_gradient_comes_back(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    int n = ways(mesh);

    for (int s = 0; s < LEN(shapes); s++)
        for (int number = 0; number < n * n * n; number++) {
            const sherd_layout *from = way(mesh, shapes[s], number % n);
            const sherd_layout *to = way(mesh, shapes[s], number / n % n);
            const sherd_layout *grad = way(mesh, shapes[s], number / n / n);
            if (to->pending_axes & ~from->pending_axes)
                continue;
            /* On two axes every third, in the short form every seventh: it says the same. */
            if (n > 4 && number % (check_stride(2) == 1 ? 3 : 7))
                continue;
            sherd_scope_begin(world);
            if (!moves_back(from, to, grad) || !leaf_gets_it_back(from, to, grad))
                say(from, to, grad);
            sherd_scope_end(world);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* ---- from_local, to_local, full ---- */

/* Whatever the gradient's layout, each piece gets the values of its own place; addends all of
 * them. */
static void pieces_get_their_place_of_any_gradient(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    int n = ways(mesh);

    for (int s = 0; s < LEN(shapes); s++)
        for (int number = 0; number < n * n; number++) {
            const sherd_layout *l = way(mesh, shapes[s], number % n);
            const sherd_layout *grad = way(mesh, shapes[s], number / n);
            sherd_placement placements[SHERD_MAX_AXES];
            for (int a = 0; a < sherd_mesh_axes(mesh); a++)
                placements[a] = sherd_layout_placement(l, a);
            sherd_scope_begin(world);
            sherd_tensor *local = sherd_require_grad(sherd__local_view(values_on(l)), true);
            sherd_tensor *y = sherd_from_local(local, mesh, placements,
                                               &(sherd_from_local_options){.shape = shapes[s]});
            CHECK(y->layout == l);
            sherd_backward(inject(y, grad));
            sherd_tensor *g = sherd_grad(local);
            if (CHECK(g && !g->layout) &&
                !CHECK_EQ(count_wrong(sherd__global_view(g, settled(l), "test")), 0))
                say(l, l, grad);
            sherd_scope_end(world);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

/* The gradient of what is local is taken for the source's layout, a pending one for replicated; of
 * the whole for replicated. */
static void local_gradients_are_taken_as_they_lie(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);

    for (int s = 0; s < LEN(shapes); s++)
        for (int number = 0; number < ways(mesh); number++) {
            const sherd_layout *from = way(mesh, shapes[s], number);
            sight seen;
            sherd_scope_begin(world);
            sherd_tensor *leaf = sherd_require_grad(values_on(from), true);
            sherd_tensor *w = sherd_to_local(values_on(settled(from)));
            sherd_tensor *y = sherd_to_local(probe(leaf, &settled_table, &seen));
            sherd_backward(sherd_sum(sherd_mul(y, w)));
            CHECK(seen.layout == settled(from));
            CHECK_EQ(seen.wrong, 0);

            sherd_tensor *whole = sherd_full(values_on(settled(from)));
            y = sherd_full(probe(leaf, &settled_table, &seen));
            CHECK(!y->layout && y->varies == 0);
            sherd_backward(sherd_sum(sherd_mul(y, whole)));
            CHECK(seen.layout == settled(from));
            if (!CHECK_EQ(seen.wrong, 0))
                say(from, from, from);
            sherd_scope_end(world);
        }
    if (!CHECK_OK(sherd_world_check(world)))
        say_error(world);
}

static const check_test tests[] = {
    {TEST(every_gradient_comes_back), {1, 2, 3, 4}},
    {TEST(pieces_get_their_place_of_any_gradient), {1, 2, 3, 4}},
    {TEST(local_gradients_are_taken_as_they_lie), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
