/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A network that solves a differential equation: -(u_xx + u_yy) = f on the unit square, u = 0 at
 * its border, f = 2 pi^2 sin(pi x) sin(pi y), so that u = sin(pi x) sin(pi y). The loss has the
 * second derivatives of the network by its inputs in it, and training differentiates these once
 * more. The points are sharded over the ranks; only sums and the gradients of the weights move.
 *
 *     poisson [RANKS [STEPS [POINTS [WIDTH [FITS]]]]]      2 1000 1024 32 0
 *
 * Adam takes the steps, each on new points; FITS steps of L-BFGS then, of up to 20 iterations each,
 * on points that stay, which brings the network much closer to the solution.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sherd.h>

enum { LAYERS = 4 };

static const double pi = 3.14159265358979323846;

typedef struct task {
    int64_t ranks, steps, points, width, fits;
} task;

static sherd_tensor *column(sherd_tensor *t, int i)
{
    return sherd_narrow(t, 1, i, 1);
}

/* x(1-x) y(1-y) N(x, y), which is 0 at the border, of points [n,2]. */
static void network(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *points = in->value[0], *h = points;
    sherd_tensor *edge = sherd_sub(points, sherd_mul(points, points));

    for (int i = 0; i < LAYERS; i++) {
        h = sherd_module_call(sherd_module_child(self, i), h);
        h = i + 1 < LAYERS ? sherd_tanh(h) : h;
    }
    out->value[0] = sherd_mul(h, sherd_mul(column(edge, 0), column(edge, 1)));
    out->count = 1;
}

static sherd_status build(sherd_module **out, sherd_world *world, int64_t width)
{
    static const char *const names[LAYERS] = {"0", "1", "2", "3"};
    sherd_status status = sherd_module_create(out, world, network, NULL);

    for (int i = 0; i < LAYERS && !status; i++) {
        const int64_t from = i ? width : 2;
        const sherd_layer_options options = {
            .bias = true, .name = names[i], .deviation = sqrt(1.0 / (double)from)};
        sherd_module *layer = NULL;
        status = sherd_linear_create(&layer, world, from, i + 1 < LAYERS ? width : 1, &options);
        if (!status)
            status = sherd_module_add(*out, names[i], layer);
    }
    return status;
}

/* The derivative of u by the points: [n,2]. It can be differentiated again. */
static sherd_tensor *derivative(sherd_tensor *u, sherd_tensor *points)
{
    sherd_tensor *sum = sherd_sum(u), *result = NULL;

    sherd_gradients(&result, &points, 1, &sum, 1, &(sherd_gradients_options){.create_graph = true});
    return result;
}

static sherd_tensor *solution_at(sherd_tensor *points)
{
    sherd_tensor *s = sherd_sin(sherd_scale(sherd_detach(points), pi));

    return sherd_mul(column(s, 0), column(s, 1));
}

/* How far the network u is from the equation. */
static sherd_tensor *loss_of(sherd_tensor *u, sherd_tensor *points)
{
    sherd_tensor *first = derivative(u, points);
    sherd_tensor *u_xx = column(derivative(column(first, 0), points), 0);
    sherd_tensor *u_yy = column(derivative(column(first, 1), points), 1);
    sherd_tensor *f = sherd_scale(solution_at(points), 2 * pi * pi);

    return sherd_mean(sherd_square(sherd_add(sherd_add(u_xx, u_yy), f)));
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(sherd_world *world, const char *what, int64_t step, sherd_tensor *loss,
                   sherd_tensor *u, sherd_tensor *points)
{
    sherd_tensor *off = sherd_max(sherd_abs(sherd_sub(u, solution_at(points))), NULL, 0, false);
    double how_far = sherd_item(loss), most = sherd_item(off);

    if (sherd_world_rank(world) == 0)
        printf("%s %5lld: loss %.6f, at most %.5f from the solution\n", what, (long long)step,
               how_far, most);
}

/* New points in each step, the same on any number of ranks. */
static sherd_status train(sherd_module *model, const sherd_layout *rows, const task *t)
{
    sherd_world *world = sherd_module_world(model);
    sherd_generator generator = sherd_generator_named("points");
    sherd_optimizer *adam = NULL;
    sherd_status status = sherd_adam_create(&adam, model, NULL);
    double start = now();

    for (int64_t step = 0; step <= t->steps && !status; step++) {
        sherd_scope_begin(world);
        sherd_tensor *points = sherd_random_on(rows, SHERD_F32, sherd_uniform(0, 1), &generator);
        points = sherd_require_grad(points, true);
        sherd_tensor *u = sherd_module_call(model, points), *loss = loss_of(u, points);
        sherd_backward(loss);
        if (step == t->steps || step % (t->steps / 5 + 1) == 0)
            report(world, "step", step, loss, u, points);
        sherd_optimizer_step(adam, 0.005 * (1 - (double)step / (double)(t->steps + 1)), 1);
        sherd_optimizer_clear(adam);
        status = sherd_world_check(world);
        sherd_scope_end(world);
    }
    if (!status && sherd_world_rank(world) == 0)
        printf("%.3f ms a step\n", 1e3 * (now() - start) / (double)(t->steps + 1));
    sherd_optimizer_destroy(adam);
    return status;
}

typedef struct fit {
    sherd_module *model;
    sherd_tensor *points;
    int64_t step; /* to be reported; -1: none is */
} fit;

/* What L-BFGS asks for. */
static sherd_tensor *residual(void *payload)
{
    fit *f = payload;
    sherd_tensor *u = sherd_module_call(f->model, f->points), *loss = loss_of(u, f->points);

    sherd_backward(loss);
    if (f->step >= 0)
        report(sherd_module_world(f->model), "fit ", f->step, loss, u, f->points);
    f->step = -1;
    return loss;
}

/* The same points in each step: a function that is not the same each time can not be searched. */
static sherd_status refine(sherd_module *model, const sherd_layout *rows, const task *t)
{
    sherd_world *world = sherd_module_world(model);
    sherd_generator generator = sherd_generator_named("points that stay");
    sherd_lbfgs *lbfgs = NULL;
    sherd_status status = sherd_lbfgs_create(&lbfgs, model, NULL);

    sherd_scope_begin(world);
    sherd_tensor *points = sherd_random_on(rows, SHERD_F32, sherd_uniform(0, 1), &generator);
    fit f = {model, sherd_require_grad(points, true), 0};
    for (int64_t i = 0; i <= t->fits && !status; i++) {
        f.step = i == t->fits || i % (t->fits / 5 + 1) == 0 ? i : -1;
        sherd_lbfgs_step(lbfgs, 1, residual, &f, NULL);
        status = sherd_world_check(world);
    }
    sherd_scope_end(world);
    sherd_lbfgs_destroy(lbfgs);
    return status;
}

static int run(sherd_world *world, void *payload)
{
    const task *t = payload;
    sherd_module *model = NULL;
    const sherd_mesh *mesh;
    const sherd_layout *rows;
    sherd_status status = build(&model, world, t->width);

    if (!status)
        status = sherd_mesh_create(&mesh, world, 1, &t->ranks, (const char *[]){"dp"}, NULL);
    if (!status)
        status = sherd_parallelize(model, mesh, "dp", NULL, 0); /* weights on all ranks */
    if (!status)
        status =
            sherd_layout_parse_placements(&rows, mesh, 2, (int64_t[]){t->points, 2}, "S(0)", NULL);
    if (!status)
        status = train(model, rows, t);
    if (!status && t->fits)
        status = refine(model, rows, t);
    if (status)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    sherd_module_destroy(model);
    return status ? 1 : 0;
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise)
{
    return argc > i ? atoll(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    task t = {.ranks = number(argc, argv, 1, 2),
              .steps = number(argc, argv, 2, 1000),
              .points = number(argc, argv, 3, 1024),
              .width = number(argc, argv, 4, 32),
              .fits = number(argc, argv, 5, 0)};
    int exit_status;

    if (t.ranks < 1 || t.ranks > SHERD_MAX_RANKS || t.points < 1 || t.width < 1) {
        fprintf(stderr, "poisson [RANKS [STEPS [POINTS [WIDTH [FITS]]]]]: numbers from 1\n");
        return 2;
    }
    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)t.ranks}, run, &t)
               ? 1
               : exit_status;
}
