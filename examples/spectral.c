/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A flow on a periodic square by its Fourier transform: the vorticity w of an incompressible fluid,
 * w_t + u w_x + v w_y = nu (w_xx + w_yy), where (u, v) is a stream function's curl. The grid is
 * sharded by rows; each transform takes one all-to-all, and what is between them none. The vortices
 * of Taylor and Green, in a wind that carries them along, are an exact solution, so the error is
 * known. Products are taken of waves below a third of the grid (Orszag), steps are Heun's.
 *
 *     spectral [RANKS [SIZE [STEPS]]]      2 64 100
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <sherd.h>

static const double pi = 3.14159265358979323846, viscosity = 0.05, length = 0.5, wind = 1;

typedef struct task {
    int64_t ranks, size, steps;
} task;

/* Numbers of waves in the two directions, as tensors that broadcast to the grid [x, y, 1]. */
typedef struct waves {
    sherd_tensor *x, *y, *square, *inverse, *kept;
} waves;

static sherd_tensor *constant(sherd_world *world, const double *data, int ndim,
                              const int64_t *shape)
{
    return sherd_mark_equal(sherd_from_data(world, SHERD_F64, shape, ndim, data));
}

/* 0, 1, .., of whole dims up to half their size, then those below 0. */
static sherd_tensor *frequencies(sherd_world *world, int64_t n, int64_t count, bool first)
{
    double *k = malloc((size_t)count * sizeof *k);

    for (int64_t i = 0; k && i < count; i++)
        k[i] = (double)(2 * i <= n ? i : i - n);
    sherd_tensor *t =
        constant(world, k, 3, first ? (int64_t[]){count, 1, 1} : (int64_t[]){1, count, 1});
    free(k);
    return t;
}

static waves make_waves(sherd_world *world, int64_t n)
{
    waves w = {.x = frequencies(world, n, n, true), .y = frequencies(world, n, n / 2 + 1, false)};
    sherd_tensor *low_x = sherd_lt_scalar(sherd_abs(w.x), (double)n / 3);
    sherd_tensor *low_y = sherd_lt_scalar(sherd_abs(w.y), (double)n / 3);

    w.square = sherd_add(sherd_square(w.x), sherd_square(w.y));
    w.inverse = sherd_reciprocal(sherd_masked_fill(w.square, sherd_eq_scalar(w.square, 0), 1));
    w.kept = sherd_cast(sherd_logical_and(low_x, low_y), SHERD_F64);
    return w;
}

/* The derivative of waves by a direction: i k times each. */
static sherd_tensor *derivative(sherd_tensor *w, sherd_tensor *k)
{
    const double i[] = {0, 1};
    sherd_tensor *unit = constant(sherd_tensor_world(w), i, 1, (int64_t[]){2});

    return sherd_complex_mul(sherd_mul(w, k), unit);
}

static sherd_tensor *to_waves(sherd_tensor *field)
{
    return sherd_rfft(field, (int[]){0, 1}, 2, SHERD_FFT_FORWARD);
}

static sherd_tensor *to_field(sherd_tensor *w, int64_t n)
{
    return sherd_irfft(w, (int[]){0, 1}, 2, n, SHERD_FFT_FORWARD);
}

/* How the waves of the vorticity change: -(u w_x + v w_y) + nu times the Laplacian of w. */
static sherd_tensor *change(sherd_tensor *w, const waves *k, int64_t n)
{
    sherd_tensor *stream = sherd_mul(w, k->inverse);
    sherd_tensor *u = sherd_add_scalar(to_field(derivative(stream, k->y), n), wind);
    sherd_tensor *v = sherd_neg(to_field(derivative(stream, k->x), n));
    sherd_tensor *w_x = to_field(derivative(w, k->x), n), *w_y = to_field(derivative(w, k->y), n);
    sherd_tensor *carried = to_waves(sherd_add(sherd_mul(u, w_x), sherd_mul(v, w_y)));

    return sherd_neg(
        sherd_add(sherd_mul(carried, k->kept), sherd_scale(sherd_mul(w, k->square), viscosity)));
}

/* w = 2 cos(x - wind t) cos(y) e^(-2 nu t), on a grid of this layout. */
static sherd_tensor *solution(const sherd_layout *rows, int64_t n, double t)
{
    sherd_tensor *at = sherd_arange_on(rows, SHERD_F64, 0, 2 * pi / (double)n);
    sherd_tensor *x = sherd_unsqueeze(at, 1), *y = sherd_unsqueeze(sherd_full(at), 0);

    x = sherd_cos(sherd_add_scalar(x, -wind * t));
    return sherd_scale(sherd_mul(x, sherd_cos(y)), 2 * exp(-2 * viscosity * t));
}

static void print_moves(sherd_world *world)
{
    for (int i = 0; i < sherd_comm_count(world); i++) {
        sherd_comm_entry e = sherd_comm_get(world, i);
        printf("  %lld calls of %s, %lld bytes\n", (long long)e.calls, e.op,
               (long long)e.bytes_received);
    }
}

static sherd_status flow(sherd_world *world, const sherd_layout *rows, const task *t)
{
    double step = length / (double)t->steps;
    waves k = make_waves(world, t->size);
    sherd_tensor *w = to_waves(solution(rows, t->size, 0)), *last = NULL;
    sherd_status status = sherd_world_check(world);

    for (int64_t i = 0; i < t->steps && !status; i++) {
        sherd_comm_reset(world);
        sherd_scope_begin(world);
        sherd_tensor *first = sherd_scale(change(w, &k, t->size), step);
        sherd_tensor *second = sherd_scale(change(sherd_add(w, first), &k, t->size), step);
        w = sherd_tensor_retain(sherd_add(w, sherd_scale(sherd_add(first, second), 0.5)));
        sherd_scope_end(world);
        sherd_tensor_release(last);
        last = w;
        status = sherd_world_check(world);
    }
    if (sherd_world_rank(world) == 0) {
        printf("a step on %lld ranks takes\n", (long long)t->ranks);
        print_moves(world);
    }
    sherd_tensor *off = sherd_sub(to_field(w, t->size), solution(rows, t->size, length));
    sherd_tensor_release(last);
    double most = sherd_item(sherd_max(sherd_abs(off), NULL, 0, false));
    if (sherd_world_rank(world) == 0)
        printf("after %lld steps at most %.1e from the solution\n", (long long)t->steps, most);
    if (!(most < 1e-4) && !status)
        fprintf(stderr, "that is too far\n");
    status = status ? status : sherd_world_check(world);
    return status ? status : most < 1e-4 ? SHERD_OK : SHERD_EINVAL;
}

static int run(sherd_world *world, void *payload)
{
    task t = *(const task *)payload;
    const sherd_mesh *mesh;
    const sherd_layout *rows;

    t.ranks = sherd_world_ranks(world); /* under a launcher as many as it has started */
    sherd_status status = sherd_mesh_create(&mesh, world, 1, &t.ranks, (const char *[]){"x"}, NULL);
    if (!status)
        status = sherd_layout_parse_placements(&rows, mesh, 1, &t.size, "S(0)", NULL);
    if (!status)
        status = flow(world, rows, &t);
    if (status)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    return status ? 1 : 0;
}

static int64_t number(int argc, char **argv, int i, int64_t otherwise)
{
    return argc > i ? atoll(argv[i]) : otherwise;
}

int main(int argc, char **argv)
{
    task t = {.ranks = number(argc, argv, 1, 2),
              .size = number(argc, argv, 2, 64),
              .steps = number(argc, argv, 3, 100)};
    int exit_status;

    if (t.ranks < 1 || t.ranks > SHERD_MAX_RANKS || t.size < 1 || t.steps < 1) {
        fprintf(stderr, "spectral [RANKS [SIZE [STEPS]]]: numbers from 1\n");
        return 2;
    }
    return sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)t.ranks}, run, &t)
               ? 1
               : exit_status;
}
