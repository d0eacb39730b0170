/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a U-Net to take noise away from fields, with images split over ranks by batch, rows and
 * columns at once. Sizes need not divide, and the losses are the same on every mesh, while each
 * rank holds less the more of them there are. This file is the story: a rank's run; options.c,
 * fields.c (images) and model.c have one subject each.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "unet.h"

enum { FAILED = 1, UNUSABLE = 2 }; /* exit statuses */

typedef struct job {
    options o;
} job;

typedef struct trainer {
    sherd_world *world;
    const options *o;
    const sherd_mesh *mesh;
    const sherd_layout *images;
    sherd_module *model;
    sherd_optimizer *optimizer;
    sherd_generator noise;
    fields fields;
    float *mine; /* this rank's part of a batch */
} trainer;

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- making one ----------------------------------------------------------------------------- */

/* The batch over dp, rows over x, columns over y; axes of other names would do nothing. */
static sherd_status make_layout(trainer *t)
{
    const options *o = t->o;
    const int64_t shape[] = {o->batch, 1, o->height, o->width};
    sherd_placement placement[SHERD_MAX_AXES];
    char error[LINE_BYTES];

    for (int a = 0; a < sherd_mesh_axes(t->mesh); a++) {
        const char *name = sherd_mesh_axis_name(t->mesh, a);
        int dim = !strcmp(name, "dp") ? 0 : !strcmp(name, "x") ? 2 : !strcmp(name, "y") ? 3 : -1;
        if (dim < 0) {
            snprintf(error, sizeof error, "--mesh: an axis is dp, x or y, not %.40s", name);
            sherd_world_fail(t->world, SHERD_EINVAL, error);
            return SHERD_EINVAL;
        }
        placement[a] = sherd_shard(dim);
    }
    return sherd_layout_create(&t->images, t->mesh, 4, shape, placement, NULL);
}

static sherd_status make_trainer(trainer *t)
{
    char error[LINE_BYTES];
    sherd_status status = make_layout(t);

    if (!status)
        status = model_create(&t->model, t->world, t->o);
    if (!status)
        status = sherd_distribute_module(t->model, t->mesh, NULL, NULL, NULL, NULL);
    if (!status)
        status = sherd_adamw_create(&t->optimizer, t->model, NULL);
    sherd_box box = sherd_layout_box(t->images, sherd_world_rank(t->world), 0);
    t->mine = malloc(sizeof *t->mine * (size_t)(box.size[0] * box.size[2] * box.size[3] + 1));
    if (!fields_open(&t->fields, t->o, error))
        sherd_world_fail(t->world, SHERD_EINVAL, error);
    t->noise = sherd_generator_named("noise");
    return status;
}

/* Every rank makes its mesh, then what may fail on one of them is told to all. */
static sherd_status begin(trainer *t)
{
    char text[32];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(t->world));
    sherd_status status = sherd_mesh_parse(&t->mesh, t->world, t->o->mesh ? t->o->mesh : text);
    if (status)
        return status;
    status = make_trainer(t);
    sherd_status all = sherd_world_check(t->world);
    return all ? all : status;
}

static void end(trainer *t)
{
    sherd_optimizer_destroy(t->optimizer);
    sherd_module_destroy(t->model);
    fields_close(&t->fields);
    free(t->mine);
}

/* ---- a step --------------------------------------------------------------------------------- */

/* This step's images, each rank's part from its own numbers. */
static sherd_tensor *images_of(trainer *t, int64_t step)
{
    sherd_box box = sherd_layout_box(t->images, sherd_world_rank(t->world), 0);

    if (!fields_read(t->mine, &t->fields, t->o, step, &box))
        sherd_world_fail(t->world, SHERD_EINVAL, "--fields: the file ends too early");
    return sherd_from_local_as(sherd_from_data(t->world, SHERD_F32, box.size, 4, t->mine),
                               t->images);
}

static sherd_status train_step(trainer *t, int64_t step, double *loss)
{
    sherd_scope_begin(t->world);
    sherd_tensor *clean = images_of(t, step);
    sherd_tensor *noise = sherd_random_on(t->images, SHERD_F32, sherd_normal(0, 0.3), &t->noise);
    sherd_tensor *guess = sherd_module_call(t->model, sherd_add(clean, noise));
    sherd_tensor *error = sherd_mse_loss(guess, clean, SHERD_LOSS_MEAN);
    sherd_backward(error);
    *loss = sherd_item(error);
    sherd_scope_end(t->world);
    sherd_optimizer_step(t->optimizer, t->o->rate, 1);
    sherd_optimizer_clear(t->optimizer);
    return sherd_world_check(t->world);
}

/* The most that any rank had at once. */
static double most_mebibytes(trainer *t)
{
    double mine = (double)sherd_world_memory(t->world).peak_bytes / 1048576;
    sherd_placement most[SHERD_MAX_AXES];

    for (int a = 0; a < sherd_mesh_axes(t->mesh); a++)
        most[a] = sherd_partial(SHERD_MAX);
    return sherd_item(sherd_from_local(sherd_from_data(t->world, SHERD_F64, NULL, 0, &mine),
                                       t->mesh, most,
                                       &(sherd_from_local_options){.mode = SHERD_FROM_INFER}));
}

static sherd_status train(trainer *t)
{
    bool first = sherd_world_rank(t->world) == 0;
    sherd_status status = SHERD_OK;
    double loss = 0, start = seconds();

    for (int64_t step = 0; step < t->o->steps && !status; step++) {
        status = train_step(t, step, &loss);
        if (first && !status)
            printf("step %lld  loss %.9f\n", (long long)step + 1, loss);
    }
    double time = seconds() - start;
    sherd_scope_begin(t->world);
    double most = status ? 0 : most_mebibytes(t);
    sherd_scope_end(t->world);
    if (!status)
        status = sherd_world_check(t->world);
    if (first && !status)
        printf("%lldx%lld on (%s): %.1f ms a step, at most %.1f MiB of tensors a rank\n",
               (long long)t->o->height, (long long)t->o->width, sherd_mesh_text(t->mesh),
               1e3 * time / (double)t->o->steps, most);
    return status;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* What each rank runs. */
static int body(sherd_world *world, void *payload)
{
    trainer t = {.world = world, .o = &((const job *)payload)->o};
    sherd_status status = begin(&t);

    if (!status)
        status = train(&t);
    end(&t);
    if (status && status != SHERD_EPEER && sherd_world_rank(world) == 0)
        fprintf(stderr, "unet: %s\n", sherd_world_error(world));
    return status ? FAILED : 0;
}

/* Under `sherd run` every rank comes by here with the same thing to say: one of them speaks. */
static bool speaks(void)
{
    sherd_world *world;
    bool first = true;

    if (sherd_world_open(&world, NULL) == SHERD_OK) {
        first = sherd_world_rank(world) == 0;
        sherd_world_close(world);
    }
    return first;
}

int main(int argc, char **argv)
{
    char wrong[LINE_BYTES], error[SHERD_ERROR_BYTES] = "";
    int exit_status = FAILED;
    job j;

    bool good = options_parse(&j.o, argc, argv, wrong);
    if (!good || j.o.help) {
        bool first = speaks();
        if (first && good)
            options_help(stdout);
        else if (first)
            fprintf(stderr, "unet: %s\n", wrong);
        return good ? 0 : UNUSABLE;
    }
    const sherd_world_options world = {.ranks = j.o.ranks ? j.o.ranks : 2,
                                       .as = j.o.threads ? SHERD_THREADS : SHERD_PROCESSES,
                                       .seed = (uint64_t)j.o.seed,
                                       .error = error};
    sherd_status status = sherd_spawn(&exit_status, &world, body, &j);
    if (status && status != SHERD_EPEER)
        fprintf(stderr, "unet: %s\n", error);
    return status && !exit_status ? FAILED : exit_status;
}
