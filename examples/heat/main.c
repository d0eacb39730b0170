/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heat spreads in a box: u_t = u_xx + u_yy + u_zz on a grid that is split over ranks, by explicit
 * steps, and compared with the exact solution in the end. This file is the story; each of the
 * others is one subject of it:
 *
 *   options.c  what the user asked for        waves.c   the exact solution, and how far one is off
 *   cells.c    the arithmetic of a piece      field.c   the field on its ranks, ghosts, and a step
 *   output.c   writing it, with file.c and picture.c
 */
#include <string.h>
#include <time.h>

#include "field.h"
#include "output.h"

enum { FAILED = 1, UNUSABLE = 2 }; /* exit statuses */

static bool is_first(const sherd_world *world)
{
    return sherd_world_rank(world) == 0;
}

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the screen ----------------------------------------------------------------------------- */

static void say_what_runs(const field *f, const heat_options *o)
{
    const int64_t *n = o->size, *piece = f->cells.piece.size;
    int ranks = sherd_world_ranks(f->world);
    const char *transport = sherd_world_transport(f->world);

    printf("grid     %lld x %lld x %lld points, %s walls, %lld waves, %lld steps of %.3g\n",
           (long long)n[0], (long long)n[1], (long long)n[2], border_name(o->border),
           (long long)o->modes, (long long)o->steps, f->cells.waves->step);
    printf("ranks    %d %s, mesh %s, transport %s; rank 0 has %lld x %lld x %lld\n", ranks,
           strcmp(transport, "threads") == 0 ? "threads"
           : ranks == 1                      ? "process"
                                             : "processes",
           sherd_mesh_text(f->mesh), transport, (long long)piece[0], (long long)piece[1],
           (long long)piece[2]);
    fflush(stdout);
}

static void say_what_it_took(const field *f, const heat_options *o, double seconds)
{
    double points = (double)o->size[0] * (double)o->size[1] * (double)o->size[2];
    sherd_comm_entry entry;
    double bytes = 0;

    if (o->steps == 0)
        return;
    for (int i = 0; (entry = sherd_comm_get(f->world, i)).op; i++)
        bytes += (double)entry.bytes_received;
    printf("speed    %.3g ms a step, %.3g million points a second; ghosts of rank 0: %.4g kB a "
           "step\n",
           1e3 * seconds / (double)o->steps, 1e-6 * points * (double)o->steps / seconds,
           1e-3 * bytes / (double)o->steps);
}

static void say_what_came_out(const field *f, const figures *out)
{
    printf("height   %.3g of %.3g is left\n", out->height, waves_height(f->cells.waves));
    printf("error    %.3g at most, bound %.3g\n", out->error,
           waves_bound(f->cells.waves, f->steps));
    printf("checksum %016llx\n", (unsigned long long)out->checksum);
}

/* Whether the run was right: rank 0 says so to all. A dry one has computed nothing. */
static void judge(const field *f, const figures *out)
{
    double bound = waves_bound(f->cells.waves, f->steps);
    char error[LINE_BYTES];

    if (out->error <= bound || sherd_world_is_dry(f->world))
        return;
    snprintf(error, sizeof error, "the error is %.3g, beyond its bound of %.3g", out->error, bound);
    sherd_world_fail(f->world, SHERD_EINVAL, error);
}

/* ---- the run -------------------------------------------------------------------------------- */

/* All steps. A rank that sees the alarm goes to the check, where the others come too. */
static sherd_status step_all(field *f, const heat_options *o)
{
    double begin;

    sherd_comm_reset(f->world);
    begin = seconds_now();
    while (f->steps < o->steps && field_step(f))
        ;
    sherd_status status = sherd_world_check(f->world);
    if (!status && is_first(f->world))
        say_what_it_took(f, o, seconds_now() - begin);
    return status;
}

/* Every step is taken by all ranks, and all of them get the same status: nobody is left waiting. */
static sherd_status run(field *f, const heat_options *o)
{
    bool first = is_first(f->world);
    figures out;
    sherd_status status = output_check(f->world, o);

    if (!status && first)
        say_what_runs(f, o);
    if (!status)
        status = step_all(f, o);
    if (!status)
        status = field_measure(&out, f);
    if (!status && first && !sherd_world_is_dry(f->world))
        say_what_came_out(f, &out);
    if (!status)
        status = output_write(f, o);
    if (!status && first)
        judge(f, &out);
    return status ? status : sherd_world_check(f->world);
}

/* ---- a rank --------------------------------------------------------------------------------- */

/* One line for all ranks. A death is told by whoever started them. */
static int fail(const sherd_world *world, sherd_status status, const char *text, int exit_status)
{
    if (is_first(world) && status != SHERD_EPEER)
        fprintf(stderr, "heat: %s\n", text);
    return exit_status;
}

/* What each rank runs. */
static int body(sherd_world *world, void *payload)
{
    heat_options options = *(const heat_options *)payload;
    const sherd_layout *layout;
    char error[LINE_BYTES];
    sherd_status status;
    waves w;
    field f;

    if (!options_fit(&options, sherd_world_ranks(world), error))
        return fail(world, SHERD_EINVAL, error, UNUSABLE);
    status = field_layout(&layout, world, &options);
    if (status)
        return fail(world, status, sherd_world_error(world), UNUSABLE);
    waves_make(&w, &options);
    status = field_create(&f, world, layout, &w);
    if (!status) {
        status = run(&f, &options);
        field_destroy(&f);
    }
    if (status)
        return fail(world, status, sherd_world_error(world), FAILED);
    if (fflush(stdout) != 0 || ferror(stdout))
        return fail(world, SHERD_EINVAL, "standard output takes no more", FAILED);
    return 0;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Under `sherd run` every rank comes by here with the same thing to say: one of them speaks. */
static bool speaks(void)
{
    sherd_world *world;
    bool first = true;

    if (sherd_world_open(&world, NULL) == SHERD_OK) {
        first = is_first(world);
        sherd_world_close(world);
    }
    return first;
}

static int start(heat_options *o)
{
    char error[SHERD_ERROR_BYTES] = "";
    const sherd_world_options world = {
        .ranks = (int)(o->ranks     ? o->ranks
                       : o->mesh[0] ? o->mesh[0] * o->mesh[1] * o->mesh[2]
                                    : 2),
        .as = o->threads ? SHERD_THREADS : SHERD_PROCESSES,
        .error = error,
    };
    int exit_status = FAILED;
    sherd_status status = sherd_spawn(&exit_status, &world, body, o);

    if (status && status != SHERD_EPEER)
        fprintf(stderr, "heat: %s\n", error);
    return status && !exit_status ? FAILED : exit_status;
}

int main(int argc, char **argv)
{
    char error[LINE_BYTES];
    heat_options options;

    if (!options_parse(&options, argc, argv, error)) {
        if (speaks())
            fprintf(stderr, "heat: %s\n", error);
        return UNUSABLE;
    }
    if (options.help) {
        if (speaks())
            options_help(stdout);
        return 0;
    }
    return start(&options);
}
