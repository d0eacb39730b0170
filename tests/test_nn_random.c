/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers are bit-equal on 1, 2, 3, 4 ranks and under all layouts. Each rank has a world of
 * its own beside the common one, in which it is alone: what it draws there whole is what everything
 * else is compared with, for every operator that draws, every dtype that it can draw, every mesh of
 * the ranks and every layout on it; and where a checkpointed module draws again.
 */
#include "ops_cases.h"

#include "sherd/checkpoint.h"
#include "sherd/module.h"
#include "sherd/ops_layers.h"
#include "sherd/values.h"

/* ---- what draws ------------------------------------------------------------------------------ */

/* 5 x 3 is no multiple of 2 or 3 twice; of 4 ranks some have none of 3. */
static const op_case drawn = {.name = "random", .operands = 1, .ndim = {3}, .shape = {{5, 3, 4}}};
/* [batch, positions, heads, width]: width as positions, so that values can be the rows of a unit
 * matrix. */
static const op_case scores = {
    .name = "scores", .operands = 1, .ndim = {4}, .shape = {{3, 3, 2, 3}}};

typedef struct source {
    const char *name;
    const op_case *of;
    /* Numbers of the shape and layout of x; NULL where this layout can not be drawn in. */
    sherd_tensor *(*draw)(const struct source *s, sherd_tensor *x, sherd_generator *g);
    sherd_distribution distribution;
    bool integers, bools; /* also these can be drawn */
} source;

static sherd_tensor *draw_now(const source *s, sherd_tensor *x, sherd_generator *g)
{
    const sherd_layout *layout = sherd_tensor_layout(x);

    if (!layout)
        return sherd_random(x->world, x->dtype, x->shape, x->ndim, s->distribution, g);
    return layout->pending_axes ? NULL : sherd_random_on(layout, x->dtype, s->distribution, g);
}

static sherd_tensor *draw_later(const source *s, sherd_tensor *x, sherd_generator *g)
{
    const sherd_layout *layout = sherd_tensor_layout(x);
    sherd_tensor *t;

    if (layout && layout->pending_axes)
        return NULL;
    t = sherd_random_later(x->world, x->dtype, x->shape, x->ndim, s->distribution, g);
    return layout ? sherd_distribute(t, layout, -1) : t;
}

static sherd_tensor *drop(const source *s, sherd_tensor *x, sherd_generator *g)
{
    return sherd_dropout(x, s->distribution.a, g);
}

/* The plain values of a unit matrix for each batch item and head, of the dtype of q. */
static sherd_tensor *units(sherd_tensor *q)
{
    const int64_t *shape = sherd_tensor_shape(q);
    sherd_tensor *eye = sherd_eye(q->world, q->dtype, shape[1], shape[3]);

    eye = sherd_view(eye, (int64_t[]){1, shape[1], 1, shape[3]}, 4);
    return sherd_expand(eye, shape, 4);
}

/* Equal scores and unit values: each element of the result is a 1 / keys that dropout has kept, or
 * not. */
static sherd_tensor *drop_scores(const source *s, sherd_tensor *x, sherd_generator *g)
{
    sherd_tensor *q = sherd_scale(x, 0);

    return sherd_attention(
        q, q, units(x), &(sherd_attention_options){.dropout = s->distribution.a, .generator = g});
}

enum { SOURCES = 14 };

static void list_sources(source *out)
{
    const int64_t *shape = drawn.shape[0];
    const source all[SOURCES] = {
        {"uniform", &drawn, draw_now, sherd_uniform(-1, 2), false, false},
        {"normal", &drawn, draw_now, sherd_normal(0.5, 2), false, false},
        {"bernoulli", &drawn, draw_now, sherd_bernoulli(0.4), true, true},
        {"integers", &drawn, draw_now, sherd_integers(3, 60), true, false},
        {"truncated normal", &drawn, draw_now, sherd_truncated_normal(0, 1, -1, 2), false, false},
        {"kaiming uniform", &drawn, draw_now, sherd_kaiming_uniform(shape, 3, 1.4), false, false},
        {"kaiming normal", &drawn, draw_now, sherd_kaiming_normal(shape, 3, 1.4), false, false},
        {"xavier uniform", &drawn, draw_now, sherd_xavier_uniform(shape, 3, 1), false, false},
        {"xavier normal", &drawn, draw_now, sherd_xavier_normal(shape, 3, 1), false, false},
        {"normal, later", &drawn, draw_later, sherd_normal(0, 1), false, false},
        {"integers, later", &drawn, draw_later, sherd_integers(0, 9), true, false},
        {"dropout", &drawn, drop, sherd_bernoulli(0.3), false, false},
        {"most dropped", &drawn, drop, sherd_bernoulli(0.9), false, false},
        {"attention dropout", &scores, drop_scores, sherd_bernoulli(0.4), false, false}};

    memcpy(out, all, sizeof all);
}

static bool draws(const source *s, sherd_dtype dtype)
{
    return dtype == SHERD_BOOL ? s->bools : dtype > SHERD_F16 ? s->integers : true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

enum { CALLS = 2, BYTES = 8 * MOST_ELEMENTS };

/* What a source draws in two calls of its generator, whole. */
typedef struct expected {
    char bytes[CALLS][BYTES];
} expected;

/* Number of an element of a box in the whole tensor. */
static int64_t number_of(const sherd_tensor *t, const sherd_box *box, int64_t i)
{
    int64_t number = 0, scale = 1;

    for (int d = t->ndim - 1; d >= 0; d--) {
        number += (box->offset[d] + i % box->size[d]) * scale;
        scale *= t->shape[d];
        i /= box->size[d];
    }
    return number;
}

/* How many elements here are other bits than they should be; -1: it failed. */
static int64_t differing(sherd_tensor *t, const char *want)
{
    sherd_box box = sherd_tensor_box(t);
    const char *x = sherd_tensor_failed(t) ? NULL : sherd_tensor_read(t);
    size_t bytes = sherd_dtype_bytes(t->dtype);
    int64_t wrong = x ? 0 : -1;

    for (int64_t i = 0; x && i < t->count; i++)
        wrong +=
            memcmp(x + (size_t)i * bytes, want + (size_t)number_of(t, &box, i) * bytes, bytes) != 0;
    return wrong;
}

static void draw_alone(expected *out, sherd_world *alone, const source *s, sherd_dtype dtype)
{
    sherd_generator g = sherd_generator_named(s->name);

    sherd_scope_begin(alone);
    for (int call = 0; call < CALLS; call++) {
        sherd_tensor *x = sherd_constant(alone, dtype, s->of->shape[0], s->of->ndim[0], 1);
        sherd_tensor *t = s->draw(s, x, &g);
        const char *data = sherd_tensor_read(t);
        if (CHECK(data && sherd_tensor_count(t) <= MOST_ELEMENTS))
            memcpy(out->bytes[call], data,
                   (size_t)sherd_tensor_count(t) * sherd_dtype_bytes(dtype));
    }
    sherd_scope_end(alone);
    CHECK_OK(sherd_world_check(alone));
}

/* The meshes that so many ranks can make. */
static int meshes_of(sherd_world *world, const sherd_mesh **out)
{
    static const char *const text[4][3] = {{"x=1", "x=1,y=1", NULL},
                                           {"x=2", "x=1,y=2", NULL},
                                           {"x=3", "x=3,y=1", NULL},
                                           {"x=4", "x=2,y=2", NULL}};
    int count = 0;

    for (; text[sherd_world_ranks(world) - 1][count]; count++)
        CHECK_OK(sherd_mesh_parse(&out[count], world, text[sherd_world_ranks(world) - 1][count]));
    return count;
}

/* Runs `each` for all sources and dtypes, with what is expected of them. */
static void for_all(sherd_world *world,
                    void (*each)(sherd_world *, const source *, sherd_dtype, const expected *))
{
    static _Thread_local expected want;
    const sherd_world_options options = {.seed = sherd_world_seed(world)};
    sherd_world *alone = NULL;
    source all[SOURCES];

    list_sources(all);
    if (!CHECK_OK(sherd_world_alone(&alone, &options)))
        return;
    CHECK_EQ(sherd_world_ranks(alone), 1);
    for (int i = 0; i < SOURCES; i++)
        for (int d = SHERD_F32; d <= SHERD_BOOL; d++) {
            if (!draws(&all[i], (sherd_dtype)d))
                continue;
            draw_alone(&want, alone, &all[i], (sherd_dtype)d);
            each(world, &all[i], (sherd_dtype)d, &want);
        }
    CHECK_OK(sherd_world_close(alone));
    CHECK_OK(sherd_world_check(world));
}

/* ---- under all layouts ----------------------------------------------------------------------- */

static void draw_on(const sherd_layout *layout, const source *s, sherd_dtype dtype,
                    const expected *want)
{
    sherd_generator g = sherd_generator_named(s->name);

    for (int call = 0; call < CALLS; call++) {
        sherd_tensor *t = s->draw(s, sherd_constant_on(layout, dtype, 1), &g);
        if (!t)
            return;
        if (sherd_tensor_layout(t)->pending_axes)
            t = sherd_full(t);
        if (!CHECK_EQ(differing(t, want->bytes[call]), 0))
            fprintf(stderr, "  %s, %s, call %d on %s\n", s->name, sherd_dtype_name(dtype), call,
                    sherd_layout_text(layout));
    }
    CHECK_EQ(g.calls, CALLS);
}

static void draw_everywhere(sherd_world *world, const source *s, sherd_dtype dtype,
                            const expected *want)
{
    const sherd_mesh *mesh[3];
    int meshes = meshes_of(world, mesh);
    sherd_generator g = sherd_generator_named(s->name);

    sherd_scope_begin(world);
    for (int call = 0; call < CALLS; call++)
        CHECK_EQ(
            differing(
                s->draw(s, sherd_constant(world, dtype, s->of->shape[0], s->of->ndim[0], 1), &g),
                want->bytes[call]),
            0);
    for (int m = 0; m < meshes; m++)
        for (int i = 0; i < layouts_of(mesh[m], s->of, 0); i++) {
            sherd_scope_begin(world);
            draw_on(layout_number(mesh[m], s->of, 0, i), s, dtype, want);
            sherd_scope_end(world);
        }
    sherd_scope_end(world);
}

static void random_numbers_are_bit_equal_everywhere(sherd_world *world)
{
    for_all(world, draw_everywhere);
}

/* ---- drawn again in backward ----------------------------------------------------------------- */

/* Both calls of a module multiply its argument by what the source draws; so the gradient of ones is
 * what was drawn. */
typedef struct noise {
    const source *from;
    int times; /* that forward ran */
} noise;

static void multiply(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    noise *n = sherd_module_payload(self);
    sherd_tensor *x = in->value[0];
    bool before = sherd_set_recording(x->world, false);
    /* What draws is not differentiated, but its key is replayed all the same. */
    sherd_tensor *t = n->from->draw(n->from, sherd_detach(x), sherd_module_generator(self));

    sherd_set_recording(x->world, before);
    n->times++;
    out->value[0] = sherd_mul(x, t);
    out->count = 1;
}

static void replay_on(const sherd_layout *layout, sherd_world *world, const source *s,
                      const expected *want)
{
    noise n = {.from = s};
    const sherd_module_options options = {.payload = &n};
    sherd_module *m = NULL;
    sherd_tensor *x[CALLS], *y = NULL;

    CHECK_OK(sherd_module_create(&m, world, multiply, &options));
    *sherd_module_generator(m) = sherd_generator_named(s->name);
    sherd_module_checkpoint(m, true);
    for (int call = 0; call < CALLS; call++) {
        x[call] = layout ? sherd_constant_on(layout, SHERD_F64, 1)
                         : sherd_constant(world, SHERD_F64, s->of->shape[0], s->of->ndim[0], 1);
        sherd_require_grad(x[call], true);
        sherd_tensor *part = sherd_sum(sherd_module_call(m, x[call]));
        y = y ? sherd_add(y, part) : part;
    }
    sherd_backward(y);
    CHECK_EQ(n.times, 2 * CALLS);
    for (int call = 0; call < CALLS; call++)
        if (!CHECK_EQ(differing(sherd_grad(x[call]), want->bytes[call]), 0))
            fprintf(stderr, "  %s again, call %d on %s\n", s->name, call,
                    layout ? sherd_layout_text(layout) : "one rank");
    sherd_module_destroy(m);
}

static void replay_everywhere(sherd_world *world, const source *s, sherd_dtype dtype,
                              const expected *want)
{
    const sherd_mesh *mesh[3];
    int meshes = meshes_of(world, mesh);

    if (dtype != SHERD_F64)
        return;
    for (int m = -1; m < meshes; m++)
        for (int i = 0; i < (m < 0 ? 1 : layouts_of(mesh[m], s->of, 0)); i++) {
            sherd_scope_begin(world);
            const sherd_layout *layout = m < 0 ? NULL : layout_number(mesh[m], s->of, 0, i);
            if (!layout || !layout->pending_axes)
                replay_on(layout, world, s, want);
            sherd_scope_end(world);
        }
}

static void what_runs_again_draws_the_same(sherd_world *world)
{
    for_all(world, replay_everywhere);
}

static const check_test tests[] = {
    {TEST(random_numbers_are_bit_equal_everywhere), {1, 2, 3, 4}},
    {TEST(what_runs_again_draws_the_same), {1, 2, 3, 4}},
};
CHECK_MAIN(tests)
