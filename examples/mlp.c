/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The shortest training there is: a network of two layers, tensor-parallel over tp and
 * data-parallel over dp, that learns y = sin(x1) + ... + sin(x8). docs/from_pytorch.md has the same
 * program in PyTorch beside it. The batch is drawn where it is needed: nothing is read or sent.
 *
 *     mlp [DP [TP [STEPS]]]      2 2 300
 */
#include <stdio.h>
#include <stdlib.h>

#include <sherd.h>

typedef struct task {
    int dp, tp, steps;
} task;

static void forward(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *h = sherd_module_call(sherd_module_find(self, "up"), in->value[0]);

    out->value[out->count++] = sherd_module_call(sherd_module_find(self, "down"), sherd_gelu(h));
}

/* A Linear named `name`, whose initial values depend on that name and the world's seed. */
static sherd_status add_linear(sherd_module *model, const char *name, int64_t in, int64_t features)
{
    const sherd_layer_options options = {.name = name, .bias = true, .deviation = 0.3};
    sherd_module *layer;
    sherd_status status =
        sherd_linear_create(&layer, sherd_module_world(model), in, features, &options);

    return status ? status : sherd_module_add(model, name, layer);
}

/* Model, styles and optimizer; `down` gives whole rows after one all-reduce. */
static sherd_status make(sherd_module **model, sherd_optimizer **optimizer, sherd_world *world,
                         const sherd_mesh *mesh)
{
    const sherd_parallel_entry plan[] = {{"up", sherd_colwise()}, {"down", sherd_rowwise()}};
    sherd_status status = sherd_module_create(model, world, forward, NULL);

    if (!status)
        status = add_linear(*model, "up", 8, 64);
    if (!status)
        status = add_linear(*model, "down", 64, 1);
    if (!status)
        status = sherd_parallelize(*model, mesh, "tp", plan, 2);
    return status ? status : sherd_adamw_create(optimizer, *model, NULL);
}

/* Every step ends with a check, which has the same status and text on all ranks. */
static int train(sherd_world *world, sherd_module *model, sherd_optimizer *optimizer,
                 const sherd_layout *batch, int steps)
{
    sherd_generator data = sherd_generator_named("data");
    const int last = 1;

    for (int step = 1; step <= steps; step++) {
        sherd_scope_begin(world);
        sherd_tensor *x = sherd_random_on(batch, SHERD_F32, sherd_normal(0, 1), &data);
        sherd_tensor *y = sherd_sum_over(sherd_sin(x), &last, 1, true);
        sherd_tensor *loss = sherd_mse_loss(sherd_module_call(model, x), y, SHERD_LOSS_MEAN);
        sherd_backward(loss);
        sherd_optimizer_step(optimizer, 0.01, 1);
        sherd_optimizer_clear(optimizer);
        double value = sherd_item(loss);
        sherd_scope_end(world); /* releases what the step has made */
        if (sherd_world_check(world)) {
            fprintf(stderr, "%s\n", sherd_world_error(world));
            return 1;
        }
        if (sherd_world_rank(world) == 0 && step % 100 == 0)
            printf("step %d: loss %.3f\n", step, value);
    }
    return 0;
}

/* Every rank runs this. */
static int body(sherd_world *world, void *payload)
{
    const task *t = payload;
    const sherd_mesh *mesh;
    const sherd_layout *batch;
    sherd_module *model = NULL;
    sherd_optimizer *optimizer = NULL;
    char text[64];
    int failed;

    snprintf(text, sizeof text, "dp=%d,tp=%d", t->dp, t->tp);
    failed =
        sherd_mesh_parse(&mesh, world, text) ||
        sherd_layout_parse_placements(&batch, mesh, 2, (const int64_t[]){256, 8}, "S(0)R", NULL) ||
        make(&model, &optimizer, world, mesh);
    if (failed)
        fprintf(stderr, "%s\n", sherd_world_error(world));
    else
        failed = train(world, model, optimizer, batch, t->steps);
    sherd_optimizer_destroy(optimizer);
    sherd_module_destroy(model);
    return failed;
}

int main(int argc, char **argv)
{
    task t = {2, 2, 300};
    int *const value[] = {&t.dp, &t.tp, &t.steps};
    int status = 1;

    for (int i = 1; i < argc && i < 4; i++)
        *value[i - 1] = atoi(argv[i]);
    if (t.dp < 1 || t.tp < 1 || t.steps < 1 || (int64_t)t.dp * t.tp > SHERD_MAX_RANKS) {
        fprintf(stderr, "mlp [DP [TP [STEPS]]]: numbers from 1\n");
        return 2;
    }
    if (sherd_spawn(&status, &(sherd_world_options){.ranks = t.dp * t.tp}, body, &t))
        return status ? status : 1;
    return status;
}
