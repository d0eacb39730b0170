/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What PyTorch refuses of tensors (its texts stand beside the cases), or lets through and gets
 * wrong: here one line on every rank that names the function, what was passed and what to do,
 * whichever rank made the mistake.
 */
#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "tensors.h"

typedef struct scene {
    sherd_world *world;
    const sherd_mesh *mesh, *grid;    /* x=W; x=W,y=1 */
    const sherd_layout *rows, *whole; /* [4W,4] */
    sherd_tensor *split, *all, *sum;  /* lying as S(0), R, P(sum) */
    sherd_tensor *piece, *equal,
        *mine; /* plain: [4,4]; the whole, equal on all; of unknown origin */
} scene;

typedef sherd_tensor *(*wrong_call)(const scene *s);

#define WRONG(name, call)                     \
    static sherd_tensor *name(const scene *s) \
    {                                         \
        return call;                          \
    }
#define LAYOUT(placements) layout_of(s->mesh, 2, sherd_tensor_shape(s->all), placements, NULL)
#define PLACED(...)           \
    (const sherd_placement[]) \
    {                         \
        __VA_ARGS__           \
    }

static sherd_tensor *computed(const scene *s)
{
    return sherd_scale(
        sherd_require_grad(sherd_constant(s->world, SHERD_F32, sherd_tensor_shape(s->all), 2, 1),
                           true),
        2);
}

static sherd_tensor *sizes_alone(const scene *s)
{
    const int64_t sizes[8] = {4, 4, 4, 4, 4, 4, 4, 4}, *all[2] = {sizes, NULL};

    return sherd_from_local(s->piece, s->mesh, PLACED(sherd_shard(0)),
                            &(sherd_from_local_options){.sizes = all});
}

static const sherd_placement none_such = {(sherd_placement_kind)7, 0, SHERD_SUM};

WRONG(no_layout, sherd_redistribute(s->split, NULL, NULL))
WRONG(no_text, sherd_redistribute_to(s->split, "", NULL))
WRONG(replica_to_sum, sherd_redistribute(s->all, LAYOUT("P(sum)"), NULL))
WRONG(shard_to_sum, sherd_redistribute(s->split, LAYOUT("P(sum)"), NULL))
WRONG(replica_to_product, sherd_redistribute_to(s->all, "P(product)", NULL))
WRONG(sum_to_average, sherd_redistribute(s->sum, LAYOUT("P(avg)"), NULL))
WRONG(other_shape,
      sherd_redistribute(s->split, layout_of(s->mesh, 1, (int64_t[]){4}, "R", NULL), NULL))
WRONG(plain_moved, sherd_redistribute(s->equal, s->rows, NULL))
WRONG(pieces_of_a_distributed, sherd_from_local(s->split, s->mesh, PLACED(sherd_shard(0)), NULL))
WRONG(no_shape, sherd_from_local(s->piece, s->mesh, PLACED(sherd_shard(0)), NULL))
WRONG(local_of_plain, sherd_to_local(s->equal))
WRONG(spread_computed, sherd_distribute(computed(s), s->rows, -1))
WRONG(spread_computed_from_one, sherd_distribute(computed(s), s->rows, 0))
WRONG(too_few, sherd_distribute_as(s->equal, s->grid, "S(0)", 0))
WRONG(too_many, sherd_distribute_as(s->equal, s->grid, "S(0)RR", 0))
WRONG(spread_twice, sherd_distribute(s->split, s->whole, 0))
WRONG(spread_sum, sherd_distribute_as(s->equal, s->mesh, "P(sum)", 0))
WRONG(no_placement, sherd_from_local(s->piece, s->mesh, PLACED(none_such), NULL))
WRONG(no_placement_text, sherd_distribute_as(s->equal, s->mesh, "Q", 0))
WRONG(no_dim, sherd_redistribute_to(s->split, "S(2)", NULL))
WRONG(mixed, sherd_add(s->split, s->mine))
WRONG(mixed_local, sherd_add(s->split, sherd_to_local(s->split)))
WRONG(another_size, sherd_view(s->split, (int64_t[]){3, -1, 7}, 3))
WRONG(two_open, sherd_view(s->split, (int64_t[]){-1, 2, -1}, 3))
WRONG(negative, sherd_view(s->split, (int64_t[]){-2, -8}, 2))
WRONG(failed_rule,
      sherd_matmul(s->split, sherd_constant(s->world, SHERD_F32, (int64_t[]){3, 3}, 2, 1)))
WRONG(unequal, sherd_distribute(s->mine, layout_of(s->mesh, 2, (int64_t[]){4, 4}, "R", NULL), -1))
WRONG(shard_as_sum, sherd_to_local_with(s->split, PLACED(sherd_partial(SHERD_SUM))))

typedef struct wrong_case {
    wrong_call run;
    const char *text;
} wrong_case;

static const wrong_case cases[] = {
    /* RuntimeError: placements is needed for redistribute! */
    {no_layout, "sherd_redistribute: to is NULL"},
    {no_text, "sherd_redistribute_to: column 1 of \"\": expected S(dim), R or P(op) for axis x"},
    /* RuntimeError: Can not redistribute from R to P(sum), redistributing to Partial is for
     * internal use only! */
    {replica_to_sum, "a move makes no pending reduction: `to` may be pending only on axes where"},
    /* RuntimeError: redistribute from S(0) to P(sum) not supported yet */
    {shard_to_sum, "4] P(sum:x) on (x="},
    /* ValueError: Replicate to Partial(product) conversion is not supported. */
    {replica_to_product, "4] P(product:x) on (x="},
    /* AssertionError: Redistribution from one partial type (sum) to another (avg) is
     * unsupported. */
    {sum_to_average, "sherd_redistribute: from ["},
    {sum_to_average, "with the same reduction"},
    {other_shape, "sherd_redistribute: from ["},
    {other_shape, ": the shapes differ"},
    {plain_moved, "is plain: use sherd_from_local or sherd_distribute first"},
    /* RuntimeError: the local_tensor argument only accepts torch.Tensor but got DTensor */
    {pieces_of_a_distributed, "sherd_from_local: f32["},
    {pieces_of_a_distributed, " is distributed already"},
    /* RuntimeError: Please pass both shape and stride at the same time. */
    {sizes_alone, "sherd_from_local: sizes without a shape"},
    /* A silent guess: local size times ranks. */
    {no_shape, "a sharded dim needs options.shape, or the mode SHERD_FROM_INFER"},
    {local_of_plain, "sherd_to_local: f32["},
    /* RuntimeError: `distribute_tensor` should be used to distribute leaf tensors! but found
     * non-leaf tensor! */
    {spread_computed, "computed from leaves that want gradients, which would get none: use "
                      "sherd_from_local, or sherd_detach first"},
    {spread_computed_from_one, "computed from leaves that want gradients"},
    /* ValueError: `placements` must have the same length as `device_mesh.ndim`! */
    {too_few, "column 5 of \"S(0)\": expected S(dim), R or P(op) for axis y: the mesh (x="},
    {too_many, "column 6 of \"S(0)RR\": expected the end: the mesh (x="},
    /* ValueError: Cannot distribute a DTensor with placements .. do you want to call `redistribute`
     * instead? */
    {spread_twice, "it is distributed already: use sherd_redistribute"},
    /* RuntimeError: Trying to distribute tensor with unsupported placements .. on device mesh
     * dimension 0! */
    {spread_sum, "a pending reduction cannot be the target"},
    {no_placement, "7 is not a kind of placement"},
    {no_placement_text, "column 1 of \"Q\": expected S(dim), R or P(op) for axis x"},
    {no_dim, "column 3 of \"S(2)\": expected a dim of the tensor, which has 2"},
    /* RuntimeError: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to
     * DTensor */
    {mixed,
     "sherd_add: the plain tensor f32[4,4] beside distributed ones may vary over any axis (its "
     "origin is unknown): use sherd_distribute or sherd_from_local, or sherd_mark_equal"},
    {mixed_local,
     "sherd_add: the plain tensor f32[4,4] beside distributed ones may vary over axis x"},
    /* RuntimeError: Attempted to flatten .. : here views of shards move what is in the way; sizes
     * must fit, as ever. */
    {another_size, "sherd_view: no size for the -1 in the new shape: "},
    {two_open, "sherd_view: dims 0 and 2 of the new shape are both -1: a is f32["},
    {negative, "sherd_view: size -2 of dim 0 of the new shape is negative: a is f32["},
    /* RuntimeError: Sharding propagation failed for .. */
    {failed_rule, "sherd_matmul: dim 1 of a is 4, dim 0 of b is 3: they must be equal: a is f32["},
    {unequal, "it may vary between ranks: pass a root, or use sherd_mark_equal"},
    {shard_as_sum, "an axis that shards the tensor must shard it too"},
};

static scene make(sherd_world *world)
{
    int64_t ranks = sherd_world_ranks(world), shape[2] = {4 * ranks, 4}, four[2] = {4, 4};
    scene s = {.world = world};
    float data[16] = {0};
    char text[32];

    snprintf(text, sizeof text, "x=%d", (int)ranks);
    s.mesh = mesh_of(world, text);
    snprintf(text, sizeof text, "x=%d,y=1", (int)ranks);
    s.grid = mesh_of(world, text);
    s.rows = layout_of(s.mesh, 2, shape, "S(0)", NULL);
    s.whole = layout_of(s.mesh, 2, shape, "R", NULL);
    s.split = sherd_constant_on(s.rows, SHERD_F32, 1);
    s.all = sherd_constant_on(s.whole, SHERD_F32, 1);
    s.sum = sherd_constant_on(layout_of(s.mesh, 2, shape, "P(sum)", NULL), SHERD_F32, 1);
    s.piece = sherd_constant(world, SHERD_F32, four, 2, 1);
    s.equal = sherd_constant(world, SHERD_F32, shape, 2, 1);
    s.mine = sherd_from_data(world, SHERD_F32, four, 2, data);
    return s;
}

static void said(sherd_world *world, const wrong_case *c)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), c->text) != NULL))
        fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), c->text);
    CHECK(strncmp(sherd_world_error(world), "rank ", 5) == 0);
}

static void what_pytorch_refuses_is_one_clear_line(sherd_world *world)
{
    scene s = make(world);

    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        CHECK(sherd_tensor_failed(cases[i].run(&s)));
        said(world, &cases[i]);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* The others pass what is right, and wait for the one that does not. */
static void one_wrong_rank_is_told_to_all(sherd_world *world)
{
    scene s = make(world);
    int last = sherd_world_ranks(world) - 1;

    for (int i = 0; i < LEN(cases); i++) {
        sherd_scope_begin(world);
        if (sherd_world_rank(world) == last)
            CHECK(sherd_tensor_failed(cases[i].run(&s)));
        sherd_full(s.split);
        said(world, &cases[i]);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/*
 * With run_check PyTorch finds pieces that differ in dtype, shape or their wish for a gradient, and
 * without it hangs or computes something. Here they are found always; a stride is this rank's own
 * affair.
 */
static void pieces_that_differ_are_found(sherd_world *world)
{
    scene s = make(world);
    bool odd = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    const int64_t *shape = sherd_tensor_shape(s.all), four[2] = {4, odd ? 5 : 4};
    const sherd_from_local_options whole = {.shape = shape}, infer = {.mode = SHERD_FROM_INFER};
    const struct {
        const char *text;
        sherd_status status;
    } wanted[] = {{"passed the dtype f64, not f32 as rank 0", SHERD_EDIFFER},
                  {"passed a piece that requires a gradient, other than rank 0", SHERD_EDIFFER},
                  {"passed other placements (here S(", SHERD_EDIFFER},
                  {"has a piece of [4,5], but its box of", SHERD_EINVAL},
                  {"dim 1 of rank ", SHERD_EINVAL}};

    for (int i = 0; i < LEN(wanted); i++) {
        sherd_dtype dtype = i == 0 && odd ? SHERD_F64 : SHERD_F32;
        sherd_tensor *t =
            sherd_constant(world, dtype, i > 2 ? four : sherd_tensor_shape(s.piece), 2, 1);
        sherd_require_grad(t, i == 1 && odd);
        sherd_tensor *y = sherd_from_local(t, s.mesh, PLACED(sherd_shard(i == 2 && odd)),
                                           i == 2 || i == 4 ? &infer : &whole);
        CHECK(sherd_tensor_failed(y));
        CHECK_EQ(sherd_world_check(world), wanted[i].status);
        if (!CHECK(strstr(sherd_world_error(world), wanted[i].text) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), wanted[i].text);
    }
    sherd_tensor *turned = sherd_transpose(s.piece, 0, 1);
    CHECK(!sherd_tensor_failed(
        sherd_from_local(odd ? turned : s.piece, s.mesh, PLACED(sherd_shard(0)), &whole)));
    CHECK_OK(sherd_world_check(world));
}

/*
 * Experts of a mixture: a rank that has none must use its empty piece of their weights too. It is
 * told so, before backward or in it; in PyTorch a collective of the others waits for it.
 */
static void a_rank_that_leaves_its_piece_out_is_told(sherd_world *world)
{
    bool odd = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    static const char *const wanted[] = {
        "compute all pieces, empty ones too, from the same tensors",
        "is the gradient of sherd_to_local on rank",
    };

    for (int i = 0; i < 2; i++) {
        scene s = make(world);
        sherd_tensor *w = sherd_require_grad(sherd_scale(s.split, 1), true);
        sherd_tensor *x = sherd_require_grad(sherd_scale(s.split, 2), i == 1);
        sherd_tensor *y = sherd_to_local(x), *used = sherd_to_local(w);
        y = sherd_from_local_as(odd ? y : sherd_mul(y, used), sherd_tensor_layout(x));
        sherd_backward(sherd_sum(sherd_mul(y, y)));
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        if (!CHECK(strstr(sherd_world_error(world), wanted[i]) != NULL))
            fprintf(stderr, "  \"%s\" lacks \"%s\"\n", sherd_world_error(world), wanted[i]);
    }
}

/* As in PyTorch a leaf that is spread is a leaf that wants what the other one wanted. */
static void a_leaf_that_is_spread_is_a_leaf(sherd_world *world)
{
    scene s = make(world);

    for (int root = -1; root < 1; root++)
        for (int wanted = 0; wanted < 2; wanted++) {
            sherd_tensor *leaf = sherd_constant(world, SHERD_F32, sherd_tensor_shape(s.all), 2, 3),
                         *t;
            sherd_require_grad(leaf, wanted);
            t = sherd_distribute(leaf, s.rows, root);
            CHECK_EQ(sherd_requires_grad(t), wanted);
            if (!wanted)
                continue;
            sherd_backward(sherd_sum(sherd_mul(t, t)));
            CHECK(sherd_tensor_layout(sherd_grad(t)) == s.rows);
            CHECK(((const float *)sherd_tensor_read(sherd_grad(t)))[0] == 6);
            CHECK(sherd_grad(leaf) == NULL);
        }
    CHECK(!sherd_tensor_failed(sherd_distribute(sherd_detach(computed(&s)), s.rows, -1)));
    CHECK_OK(sherd_world_check(world));
}

/* Ranks that do not agree on it are found as soon as they meet. */
static void ranks_that_want_other_gradients_differ(sherd_world *world)
{
    scene s = make(world);
    sherd_tensor *leaf = sherd_constant(world, SHERD_F32, sherd_tensor_shape(s.all), 2, 3);

    sherd_require_grad(leaf, sherd_world_rank(world) == 0);
    sherd_distribute(leaf, s.rows, -1);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_distribute") != NULL);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(what_pytorch_refuses_is_one_clear_line), {2, 3, 4}},
    {TEST(one_wrong_rank_is_told_to_all), {2, 3}},
    {TEST(pieces_that_differ_are_found), {2, 3, 4}},
    {TEST(a_rank_that_leaves_its_piece_out_is_told), {2, 3, 4, 8}},
    {TEST(a_leaf_that_is_spread_is_a_leaf), {1, 2, 3}},
    {TEST(ranks_that_want_other_gradients_differ), {2, 3}},
};
CHECK_MAIN(tests)
