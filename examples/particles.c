/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Particles in a periodic box that belong to the rank in whose slab they are: rank r of P has those
 * with r <= x P < r + 1, as many as there are. They begin in a third of the box and are pushed by a
 * standing wave. In each step those that have left their slab go to the rank where they are now,
 * with all that they carry, by one route; nobody gathers anything, and the layout of the tensors
 * says how many each rank has. The last line checks that none was lost, and the energy.
 *
 *     particles [RANKS [STEPS [PARTICLES]]]      3 200 100000
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <sherd.h>

static const double two_pi = 6.283185307179586, push = 0.05, dt = 0.01;

typedef struct task {
    int64_t ranks, steps, particles;
} task;

/* Rows [n,2] f64, [n,2] f64 and [n] i64, sharded alike. */
typedef struct cloud {
    sherd_tensor *position, *velocity, *id;
} cloud;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A tensor outlives the scope of its step in the place of the one before. */
static void keep(sherd_tensor **place, sherd_tensor *t)
{
    sherd_tensor_retain(t);
    sherd_tensor_release(*place);
    *place = t;
}

static void draw(cloud *c, const sherd_layout *rows, const sherd_layout *numbers)
{
    sherd_generator generator = sherd_generator_named("particles");

    keep(&c->position, sherd_random_on(rows, SHERD_F64, sherd_uniform(0, 1.0 / 3), &generator));
    keep(&c->velocity, sherd_random_on(rows, SHERD_F64, sherd_normal(0, 0.3), &generator));
    keep(&c->id, sherd_arange_on(numbers, SHERD_I64, 0, 1));
}

/* The energy of the wave at each particle, and the acceleration, by its x. */
static sherd_tensor *potential(sherd_tensor *position)
{
    return sherd_scale(sherd_cos(sherd_scale(sherd_select(position, 1, 0), two_pi)), push / two_pi);
}

static sherd_tensor *acceleration(sherd_tensor *position)
{
    static const int64_t none[] = {0, 0}, one_more[] = {0, 1};
    sherd_tensor *x = sherd_narrow(position, 1, 0, 1);

    return sherd_pad(sherd_scale(sherd_sin(sherd_scale(x, two_pi)), push), none, one_more, 0);
}

static double energy_of(const cloud *c)
{
    sherd_tensor *kinetic = sherd_scale(sherd_sum(sherd_square(c->velocity)), 0.5);

    return sherd_item(sherd_add(kinetic, sherd_sum(potential(c->position))));
}

/* Leapfrog: half a kick, a drift around the box, half a kick. */
static void push_all(cloud *c)
{
    sherd_tensor *v = sherd_add(c->velocity, sherd_scale(acceleration(c->position), dt / 2));
    sherd_tensor *x = sherd_add(c->position, sherd_scale(v, dt));

    x = sherd_sub(x, sherd_floor(x));
    keep(&c->velocity, sherd_add(v, sherd_scale(acceleration(x), dt / 2)));
    keep(&c->position, x);
}

/* All go where they belong. *staying: how many are there already. */
static void migrate(cloud *c, int64_t ranks, int64_t *staying)
{
    sherd_tensor *slab = sherd_scale(sherd_select(c->position, 1, 0), (double)ranks);
    sherd_route route;

    slab = sherd_clamp(sherd_floor(slab), 0, (double)ranks - 1); /* x may be rounded to 1 */
    if (!sherd_route_rows(&route, sherd_cast(slab, SHERD_I32)))
        return;
    keep(&c->position, sherd_send_rows(c->position, &route));
    keep(&c->velocity, sherd_send_rows(c->velocity, &route));
    keep(&c->id, sherd_send_rows(c->id, &route));
    const int64_t *count = sherd_tensor_read(route.count);
    for (int64_t r = 0; count && r < ranks; r++)
        *staying += count[r * ranks + r];
}

static void report(sherd_world *world, int64_t step, const cloud *c, double leaving)
{
    if (sherd_world_rank(world) == 0)
        printf("step %4lld: %5.2f %% change ranks; %s\n", (long long)step, 100 * leaving,
               sherd_tensor_text(c->id));
}

/* Whether every particle is still there once: sums of their numbers, and of the squares. */
static bool all_there(const cloud *c, int64_t n)
{
    sherd_tensor *id = sherd_cast(c->id, SHERD_F64);
    double last = (double)n - 1, sum = sherd_item(sherd_sum(id));
    double squares = sherd_item(sherd_sum(sherd_square(id)));

    return sum == last * (last + 1) / 2 &&
           fabs(squares / (last * (last + 1) * (2 * last + 1) / 6) - 1) < 1e-12;
}

static int simulate(sherd_world *world, cloud *c, const task *t)
{
    double before = energy_of(c), start = now();

    for (int64_t step = 0; step < t->steps; step++) {
        int64_t staying = 0;
        sherd_scope_begin(world);
        push_all(c);
        migrate(c, t->ranks, &staying);
        if (step % (t->steps / 5 + 1) == 0 || step + 1 == t->steps)
            report(world, step, c, 1 - (double)staying / (double)t->particles);
        sherd_scope_end(world);
        if (sherd_world_check(world)) {
            fprintf(stderr, "%s\n", sherd_world_error(world));
            return 1;
        }
    }
    if (sherd_world_is_dry(world)) /* nothing was computed */
        return 0;
    double seconds = now() - start, change = energy_of(c) / before - 1;
    bool good = all_there(c, t->particles) && fabs(change) < 1e-3;
    if (sherd_world_rank(world) == 0)
        printf("%.2f ms a step; energy changed by %.1e; %s\n", 1e3 * seconds / (double)t->steps,
               change, good ? "all are there" : "WRONG");
    return !good;
}

static int run(sherd_world *world, void *payload)
{
    task *t = payload;
    const sherd_layout *rows, *numbers;
    cloud c = {NULL, NULL, NULL};
    char text[2][64];

    t->ranks = sherd_world_ranks(world);
    snprintf(text[0], sizeof text[0], "[%lld(x),2] on (x=%lld)", (long long)t->particles,
             (long long)t->ranks);
    snprintf(text[1], sizeof text[1], "[%lld(x)] on (x=%lld)", (long long)t->particles,
             (long long)t->ranks);
    if (sherd_layout_parse(&rows, world, text[0], NULL) ||
        sherd_layout_parse(&numbers, world, text[1], NULL)) {
        fprintf(stderr, "%s\n", sherd_world_error(world));
        return 1;
    }
    draw(&c, rows, numbers);
    int wrong = simulate(world, &c, t);
    sherd_tensor_release(c.position);
    sherd_tensor_release(c.velocity);
    sherd_tensor_release(c.id);
    return wrong;
}

int main(int argc, char **argv)
{
    task t = {.ranks = argc > 1 ? atoll(argv[1]) : 3,
              .steps = argc > 2 ? atoll(argv[2]) : 200,
              .particles = argc > 3 ? atoll(argv[3]) : 100000};
    int exit_status = 1;

    if (t.ranks < 1 || t.ranks > 1024 || t.steps < 1 || t.particles < 1) {
        fprintf(stderr, "particles [RANKS [STEPS [PARTICLES]]]: numbers from 1\n");
        return 2;
    }
    sherd_status status =
        sherd_spawn(&exit_status, &(sherd_world_options){.ranks = (int)t.ranks}, run, &t);
    return status ? 1 : exit_status;
}
