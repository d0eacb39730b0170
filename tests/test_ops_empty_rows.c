/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator on tensors without elements whose other dims are immense, [2^40,0] and the like:
 * what has no elements takes no time, however many rows of none there are. That a result with
 * elements would need more memory than there is may be the answer.
 *
 * SHERD_ROW=gather: that row only.
 */
#include "operator_list.h"
#include "tensors.h"

static const int64_t many = ((int64_t)1 << 40) + 12; /* as an int it is 12, for dice */

/* Sizes by letter: M is many. */
static const char *const shapes[] = {"0M",  "M0",   "0M2",  "M02",  "M20",  "2M0", "20M",
                                     "0M2", "M200", "2M01", "M140", "20M2", "02M2"};

static need shaped(const char *text, sherd_dtype dtype)
{
    need w = {.ndim = (int)strlen(text), .dtype = dtype};

    for (int d = 0; d < w.ndim; d++)
        w.shape[d] = text[d] == 'M' ? many : text[d] - '0';
    return w;
}

/* Whether no operand but an empty one has an immense dim, so that all can be made. */
static bool is_small(const call_plan *p)
{
    bool small = true;

    for (int i = 0; i < p->operands && small; i++) {
        double count = 1;
        for (int d = 0; d < p->in[i].ndim; d++)
            count *= (double)p->in[i].shape[d];
        small = count <= MOST_ELEMENTS;
    }
    return small;
}

/* Draw a call with this first operand. */
static bool draw(call_plan *p, const row *r, const need *first, uint64_t *dice)
{
    *p = (call_plan){.row = r, .operands = 1, .in = {*first}};
    p->in[0].kind = kind_of(r);
    if (first->ndim < r->least || first->ndim > r->most || r->draw == draw_unflatten ||
        !r->draw(p, dice) || !is_small(p))
        return false;
    if (r->draw == draw_neighbours && p->number[1] > 1000) /* takes as long as dilations are */
        return false;
    for (int i = 0; i < p->operands; i++)
        seed_leaf(&p->in[i], dice);
    return true;
}

/* Each operand as it lies by default, or all sharded on a dim that they have. */
static sherd_tensor *place(sherd_world *world, const need *w, int dim)
{
    sherd_placement placement = dim < w->ndim ? sherd_shard(dim) : sherd_replicate();
    const sherd_layout *layout = NULL;

    if (dim >= 0)
        CHECK_OK(sherd_layout_create(&layout, line_of_ranks(world), w->ndim, w->shape, &placement,
                                     NULL));
    return leaf_on(world, w, layout);
}

static void run_one(sherd_world *world, const call_plan *p, int dim)
{
    sherd_generator generator = sherd_generator_named("empty");
    act a = {.p = p, .generator = &generator};
    double began = seconds();

    sherd_scope_begin(world);
    for (int i = 0; i < p->operands; i++) {
        a.in[i] = place(world, &p->in[i], dim);
        if (is_fraction(p->in[i].dtype))
            sherd_require_grad(a.in[i], true);
    }
    CHECK_OK(sherd_world_check(world));
    sherd_tensor *y = p->row->run(&a);
    sherd_status status = sherd_world_check(world);
    if (!status && y && sherd_requires_grad(y)) {
        sherd_backward(sherd_sum(y));
        status = sherd_world_check(world);
    }
    bool good = CHECK(!status || status == SHERD_ENOMEM || status == SHERD_ELIMIT ||
                      status == SHERD_EINVAL);
    if (!CHECK(seconds() - began < 5) || !good)
        say_failed_call(p, a.in, world);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

static void rows_without_elements_take_no_time(sherd_world *world)
{
    const char *only = getenv("SHERD_ROW");
    call_plan p;

    for (int i = 0; i < LEN(rows); i++)
        for (int s = 0; s < LEN(shapes) && (!only || !strcmp(only, rows[i].name)); s++)
            for (int dim = -1; dim < 2; dim++) {
                uint64_t dice = (uint64_t)(i * LEN(shapes) + s + 1);
                need first = shaped(shapes[s], SHERD_F64);
                if (draw(&p, &rows[i], &first, &dice))
                    run_one(world, &p, dim);
            }
}

static const check_test tests[] = {
    {TEST(rows_without_elements_take_no_time), {1, 2}},
};
CHECK_MAIN(tests)
