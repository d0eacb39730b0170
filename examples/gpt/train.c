/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One training step, as one would write it for a single process. Tensors say where they lie; what
 * has to move between ranks moves inside of the operators, and nothing here names a collective. An
 * error stops nothing on the way: expressions pass it on, and the check at the end of the step
 * tells all ranks at once.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "train.h"

static const double weight_decay = 0.1;
static const double balance_weight = 0.01; /* beside the loss, of experts */
static const double most_norm = 1;         /* gradients are clipped to this norm */

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

sherd_status agree(sherd_world *world, sherd_status mine)
{
    char text[SHERD_ERROR_BYTES];
    int skip = 0;

    if (mine) {
        snprintf(text, sizeof text, "%s", sherd_world_error(world));
        if (!text[0])
            snprintf(text, sizeof text, "%s", sherd_status_text(mine));
        (void)sscanf(text, "rank %*d: %n", &skip); /* sherd_world_fail puts the rank in front */
        sherd_world_fail(world, mine, text + skip);
    }
    return sherd_world_check(world);
}

/* ---- making one ----------------------------------------------------------------------------- */

sherd_status layout_of_ids(const sherd_layout **out, const trainer *t, int64_t rows)
{
    sherd_placement split[] = {sherd_shard(0), sherd_replicate(), sherd_replicate()};

    if (t->options->cp > 1)
        split[1] = sherd_shard(1);
    return sherd_layout_create(out, t->mesh, 2, (int64_t[]){rows, t->options->context}, split,
                               NULL);
}

/*
 * Muon takes the matrices of the blocks but the experts', with steps as large as AdamW's, which has
 * the rest.
 */
static sherd_status make_optimizer(trainer *t)
{
    static const sherd_optimizer_group rest[] = {{.pattern = "tok.*", .adamw = true},
                                                 {.pattern = "place", .adamw = true},
                                                 {.pattern = "head.*", .adamw = true},
                                                 {.pattern = "blocks.*.mlp.mix.w*", .adamw = true}};
    int groups = sizeof rest / sizeof rest[0] - (t->options->experts ? 0 : 1);
    const sherd_adamw_options adamw = {.beta2 = 0.99, .weight_decay = weight_decay};
    const sherd_muon_options muon = {.match_adamw = true,
                                     .weight_decay = weight_decay,
                                     .beta2 = 0.99,
                                     .groups = rest,
                                     .group_count = groups};

    return t->options->muon ? sherd_muon_create(&t->optimizer, t->model, &muon)
                            : sherd_adamw_create(&t->optimizer, t->model, &adamw);
}

/* What each rank makes for itself. */
static sherd_status make_rest(trainer *t)
{
    size_t n = (size_t)(t->options->batch * t->options->context);
    sherd_status status = layout_of_ids(&t->batch, t, t->options->batch);

    if (!status)
        status = make_optimizer(t);
    t->ids = malloc(n * sizeof *t->ids);
    t->targets = malloc(n * sizeof *t->targets);
    return status ? status : t->ids && t->targets ? SHERD_OK : SHERD_ENOMEM;
}

/* "cp" lies between the others: what has sequences split over it is split further over "tp". */
static sherd_status make_mesh(trainer *t)
{
    const gpt_options *o = t->options;

    if (o->cp > 1)
        return sherd_mesh_create(&t->mesh, t->world, 3, (int64_t[]){o->dp, o->cp, o->tp},
                                 (const char *const[]){"dp", "cp", "tp"}, NULL);
    return sherd_mesh_create(&t->mesh, t->world, 2, (int64_t[]){o->dp, o->tp},
                             (const char *const[]){"dp", "tp"}, NULL);
}

sherd_status trainer_create(trainer *t, sherd_world *world, const gpt_options *options,
                            const corpus *text)
{
    sherd_status status;

    *t = (trainer){.world = world, .options = options, .text = text};
    status = make_mesh(t);
    if (!status)
        status = agree(world, model_create(&t->model, world, options));
    if (!status)
        status = model_split(t->model, t->mesh, options);
    if (!status)
        status = agree(world, make_rest(t));
    if (status)
        trainer_destroy(t);
    return status;
}

void trainer_destroy(trainer *t)
{
    sherd_optimizer_destroy(t->optimizer);
    sherd_module_destroy(t->model);
    free(t->ids);
    free(t->targets);
    *t = (trainer){.world = t->world};
}

/* ---- a step --------------------------------------------------------------------------------- */

sherd_tensor *spread_ids(const trainer *t, const sherd_layout *layout, const int32_t *ids)
{
    const int64_t *shape = sherd_layout_shape(layout);
    sherd_tensor *whole = sherd_mark_equal(sherd_from_data(t->world, SHERD_I32, shape, 2, ids));

    if (t->options->zigzag) /* the same causal attention for all ranks of "cp" */
        whole = sherd_zigzag(whole, 1, t->options->zigzag);
    return sherd_distribute(whole, layout, -1); /* every rank has all of it and keeps its part */
}

/* Linear warm-up, then a cosine down to a tenth. */
static double learning_rate(const gpt_options *o, int64_t step)
{
    int64_t warm = o->steps / 4 < 100 ? o->steps / 4 + 1 : 100;

    return o->rate * sherd_schedule_warmup(step, warm) *
           sherd_schedule_cosine(step - warm, o->steps - warm + 1, 0.1);
}

sherd_dtype train_dtype(const gpt_options *o)
{
    const char *name = o->dtype ? o->dtype : "f32";

    return strcmp(name, "bf16") == 0  ? SHERD_BF16
           : strcmp(name, "f16") == 0 ? SHERD_F16
                                      : SHERD_DTYPE_NONE;
}

static bool is_scaled(const trainer *t)
{
    return train_dtype(t->options) == SHERD_F16;
}

void train_gradients(trainer *t, int64_t step, step_figures *out)
{
    sherd_world *world = t->world;

    text_batch(t->text, t->options, step, t->ids, t->targets);

    sherd_scope_begin(world);
    sherd_tensor *ids = spread_ids(t, t->batch, t->ids);
    sherd_tensor *targets = spread_ids(t, t->batch, t->targets);
    sherd_dtype before = sherd_set_autocast(world, train_dtype(t->options));
    const sherd_args in = {.count = 1, .value = {ids}};
    sherd_args made;
    sherd_module_run(t->model, &in, &made);
    sherd_tensor *loss = sherd_cross_entropy(made.value[0], targets), *whole = loss;
    if (made.count > 1)
        whole = sherd_add(loss, sherd_scale(made.value[1], balance_weight));
    sherd_set_autocast(world, before);
    out->saved_bytes = sherd_saved_bytes(world);
    sherd_backward(is_scaled(t) ? sherd_scaler_scale(&t->scaler, whole) : whole);
    out->loss = sherd_item(loss);
    sherd_scope_end(world);
}

/* The update; false: it was skipped, because the scaled gradients were too large. */
static bool update(trainer *t, double rate, double *norm)
{
    if (is_scaled(t))
        return sherd_scaler_step(&t->scaler, t->optimizer, rate, most_norm, norm);
    *norm = sherd_optimizer_grad_norm(t->optimizer);
    sherd_optimizer_step(t->optimizer, rate, *norm > most_norm ? most_norm / *norm : 1);
    return true;
}

sherd_status train_step(trainer *t, int64_t step, step_figures *out)
{
    double begin = seconds_now();
    double rate = learning_rate(t->options, step);
    sherd_status status;

    train_gradients(t, step, out);
    bool taken = update(t, rate, &out->norm);
    sherd_optimizer_clear(t->optimizer);

    status = sherd_world_check(t->world);
    if (!status && !isfinite(out->loss + (taken ? out->norm : 0))) {
        sherd_world_fail(t->world, SHERD_EINVAL,
                         "the loss is no finite number any more; try a smaller --lr");
        status = sherd_world_check(t->world);
    }
    out->seconds = seconds_now() - begin;
    return status;
}
