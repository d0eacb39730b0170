/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Figures of a run. Each rank counts for itself; at the end all ranks get the largest counts, or
 * the averages.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "figures.h"

/* ---- while training ------------------------------------------------------------------------- */

static void count_parameters(figures *f, const trainer *t, sherd_named_parameter *all, int count)
{
    double local = 0;

    sherd_module_all_parameters(t->model, all, count);
    for (int i = 0; i < count; i++) {
        sherd_box box = sherd_tensor_box(all[i].tensor);
        double elements = 1;
        for (int d = 0; d < box.ndim; d++)
            elements *= (double)box.size[d];
        local += elements;
        f->params_total += sherd_tensor_count(all[i].tensor);
    }
    (void)sherd_reduce_numbers(&local, 1, t->mesh, SHERD_MAX);
    f->params_local = (int64_t)local;
}

sherd_status figures_begin(figures *f, const trainer *t)
{
    int count = sherd_module_all_parameters(t->model, NULL, 0);
    sherd_named_parameter *all = malloc((size_t)count * sizeof *all);
    size_t steps = (size_t)t->options->steps;
    sherd_status status;

    *f = (figures){.loss = malloc(steps * sizeof(double)),
                   .norm = malloc(steps * sizeof(double)),
                   .seconds = malloc(steps * sizeof(double))};
    status = agree(t->world, all && f->loss && f->norm && f->seconds ? SHERD_OK : SHERD_ENOMEM);
    if (!status) {
        count_parameters(f, t, all, count);
        status = sherd_world_check(t->world);
    }
    free(all);
    sherd_world_memory_reset(t->world);
    return status;
}

void figures_add(figures *f, const trainer *t, const step_figures *step)
{
    f->loss[f->steps] = step->loss;
    f->norm[f->steps] = step->norm;
    f->seconds[f->steps] = step->seconds;
    f->steps++;
    if (step->saved_bytes > f->saved_bytes)
        f->saved_bytes = step->saved_bytes;
    if (f->steps == WARM_STEPS && t->options->steps > WARM_STEPS)
        sherd_comm_reset(t->world);
}

double figures_last_loss(const figures *f)
{
    int64_t first = f->steps > 20 ? f->steps - 20 : 0;
    double sum = 0;

    for (int64_t i = first; i < f->steps; i++)
        sum += f->loss[i];
    return sum / (double)(f->steps - first);
}

/* ---- at the end ----------------------------------------------------------------------------- */

static int64_t warm_steps(const figures *f)
{
    return f->steps > WARM_STEPS ? WARM_STEPS : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int64_t n)
{
    double *sorted = malloc((size_t)n * sizeof *sorted);
    double middle = values[n / 2];

    if (sorted) {
        memcpy(sorted, values, (size_t)n * sizeof *sorted);
        qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        middle = n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
    }
    free(sorted);
    return middle;
}

/* The comm log since the warm steps; every rank has the same kinds in it. */
static void take_log(figures *f, const trainer *t, double *values)
{
    double steps = (double)(f->steps - warm_steps(f));

    f->comms = 0;
    for (int i = 0; i < sherd_comm_count(t->world) && f->comms < COMMS; i++) {
        sherd_comm_entry e = sherd_comm_get(t->world, i);
        double *value = values + 3 * f->comms;
        if (e.calls == 0)
            continue;
        f->comm[f->comms++] = (comm_figures){.op = e.op, .axes = e.axes};
        value[0] = (double)e.calls / steps;
        value[1] = (double)e.bytes_received / steps;
        value[2] = 1e-9 * (double)e.nanoseconds / steps;
    }
}

sherd_status figures_end(figures *f, const trainer *t)
{
    double values[3 * COMMS], bytes[2];
    int64_t warm = warm_steps(f);

    const sherd_memory memory = sherd_world_memory(t->world);
    bytes[0] = (double)(memory.peak_bytes + memory.device_peak_bytes);
    bytes[1] = (double)f->saved_bytes;
    take_log(f, t, values);
    f->step_seconds = median(f->seconds + warm, f->steps - warm);
    f->mean_seconds = 0;
    for (int64_t i = warm; i < f->steps; i++)
        f->mean_seconds += f->seconds[i] / (double)(f->steps - warm);

    (void)(sherd_reduce_numbers(bytes, 2, t->mesh, SHERD_MAX) &&
           sherd_reduce_numbers(values, 3 * f->comms, t->mesh, SHERD_AVG));
    f->peak_bytes = (int64_t)bytes[0];
    f->saved_bytes = (int64_t)bytes[1];
    for (int i = 0; i < f->comms; i++) {
        f->comm[i].calls = values[3 * i];
        f->comm[i].bytes = values[3 * i + 1];
        f->comm[i].seconds = values[3 * i + 2];
    }
    return sherd_world_check(t->world);
}

void figures_free(figures *f)
{
    free(f->loss);
    free(f->norm);
    free(f->seconds);
    *f = (figures){.loss = NULL};
}

/* ---- against one rank ----------------------------------------------------------------------- */

/* Train the first steps in `world`, which has one rank. */
static sherd_status train_alone(figures *f, sherd_world *world, const gpt_options *options,
                                const corpus *text)
{
    int64_t steps = f->steps < COMPARED_STEPS ? f->steps : COMPARED_STEPS;
    trainer t;
    sherd_status status = trainer_create(&t, world, options, text);

    for (int64_t i = 0; !status && i < steps; i++) {
        step_figures one;
        status = train_step(&t, i, &one);
        double difference = status ? 0 : fabs(f->loss[i] - one.loss) / fabs(one.loss);
        f->worst_difference = fmax(f->worst_difference, difference);
    }
    trainer_destroy(&t);
    return status;
}

sherd_status figures_compare(figures *f, const trainer *t)
{
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world_options alone = {
        .no_pin = true, .seed = (uint64_t)t->options->seed, .error = error};
    gpt_options options = *t->options;
    sherd_world *world = NULL;
    sherd_status status = SHERD_OK;

    if (f->params_total > COMPARED_PARAMETERS) {
        f->worst_difference = (double)NAN;
        return SHERD_OK;
    }
    if (sherd_world_ranks(t->world) > 1 && sherd_world_rank(t->world) == 0) {
        options.dp = options.cp = options.tp = 1;
        options.zigzag = options.dropout > 0 ? options.zigzag : 0; /* draws are for rows */
        status = sherd_world_alone(&world, &alone);
        if (!status) {
            status = train_alone(f, world, &options, t->text);
            if (status)
                snprintf(error, sizeof error, "alone: %s", sherd_world_error(world));
            sherd_world_close(world);
        }
        if (status)
            sherd_world_fail(t->world, status, error);
    }
    return sherd_world_check(t->world);
}
