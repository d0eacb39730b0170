/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of modules, hooks and layers: see misuse.h. */
#include <math.h>

#include "misuse.h"
#include "sherd/checkpoint.h"
#include "sherd/layers.h"
#include "sherd/ops.h"
#include "sherd/optimizer.h"

static const sherd_layer_options biased = {.name = "layer", .bias = true};

static sherd_module *linear(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, &biased));
    return m;
}

/* A training step of a small layer. */
static void computes(sherd_world *world)
{
    const int64_t shape[] = {4, 4};
    sherd_module *layer = linear(world);
    sherd_optimizer *adamw = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_adamw_create(&adamw, layer, NULL));
    sherd_backward(
        sherd_sum(sherd_module_call(layer, sherd_constant(world, SHERD_F32, shape, 2, 1))));
    CHECK_NEAR(sherd_optimizer_grad_norm(adamw), sqrt(4 * 4 * 16 + 4 * 16), 1e-4);
    sherd_optimizer_step(adamw, 0.1, 1);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_optimizer_destroy(adamw);
    sherd_module_destroy(layer);
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

/* ---- what is nothing ------------------------------------------------------------------------- */

MISUSE(questions_to_no_module_have_an_answer)
{
    sherd_module *layer = linear(m->world);
    sherd_named_parameter all[1];

    ANSWERS(!sherd_module_world(NULL) && !sherd_module_payload(NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_set_payload(NULL, all, NULL));
    ANSWERS(sherd_module_kind_of(NULL) == SHERD_MODULE_OTHER);
    ANSWERS(strcmp(sherd_module_path(NULL), "") == 0);
    ANSWERS(sherd_module_children(NULL) == 0 && !sherd_module_child(NULL, 0));
    ANSWERS(!sherd_module_child(layer, -1) && !sherd_module_child(layer, 0));
    ANSWERS(!sherd_module_child_name(NULL, 0) && !sherd_module_child_name(layer, -1));
    ANSWERS(!sherd_module_find(NULL, "a") && !sherd_module_find(layer, NULL));
    ANSWERS(!sherd_module_parameter(NULL, "weight") && !sherd_module_parameter(layer, NULL));
    ANSWERS(sherd_module_parameters(NULL) == 0 && !sherd_module_parameter_name(NULL, 0));
    ANSWERS(!sherd_module_parameter_name(layer, -1) && !sherd_module_parameter_name(layer, 2));
    ANSWERS(!sherd_module_is_training(NULL) && !sherd_module_generator(NULL));
    ANSWERS(sherd_module_all_parameters(NULL, all, 1) == 0);
    ANSWERS(sherd_module_all_parameters(layer, all, -1) == 2);
    ANSWERS(sherd_module_all_parameters(layer, NULL, 9) == 2);
    ANSWERS(sherd_module_require_grad(NULL, "**", false) == 0);
    FAILS(SHERD_EINVAL, sherd_module_require_grad(layer, NUL("**"), true) < 0);
    ANSWERS(sherd_module_require_grad(layer, "", false) == 0);
    sherd_module_destroy(layer);
}

MISUSE(an_argument_that_is_not_there_is_not_found)
{
    sherd_args many = {.count = 1 << 20}, few = {.count = -1};

    ANSWERS(!sherd_args_find(NULL, "a") && !sherd_args_find(&many, NULL));
    ANSWERS(!sherd_args_find(&many, "a") && !sherd_args_find(&few, "a"));
}

MISUSE(what_a_checkpoint_keeps_has_a_name)
{
    sherd_module *layer = linear(m->world);
    const char *good[] = {"sherd_linear", "sherd_softmax"}, *lacks[] = {"sherd_linear", NULL},
               *none[] = {"sherd_linear", "linear"}, *view[] = {"sherd_transpose", "sherd_add"},
               *made[] = {"sherd_linear", "sherd_mean"};

    ONLY_SAYS(SHERD_EINVAL, sherd_module_checkpoint_keep(NULL, good, 2));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, NULL, 2));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, good, -1));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, lacks, 2));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, none, 2));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, view, 2));
    REFUSES(SHERD_EINVAL, sherd_module_checkpoint_keep(layer, made, 2));
    CHECK_OK(sherd_module_checkpoint_keep(layer, good, 2));
    sherd_module_destroy(layer);
}

MISUSE(giving_up_nothing_does_nothing)
{
    sherd_module *layer = linear(m->world);

    sherd_module_destroy(NULL);
    sherd_module_train(NULL, true);
    sherd_module_checkpoint(NULL, true);
    ANSWERS(!sherd_module_is_checkpointed(NULL) && !sherd_is_recomputing(NULL));
    sherd_module_unhook(NULL, 1);
    sherd_module_unhook(layer, -1);
    sherd_module_unhook(layer, 1 << 20);
    sherd_optimizer_destroy(NULL);
    sherd_optimizer_settle(NULL);
    sherd_optimizer_step(NULL, 1, 1);
    sherd_optimizer_clear(NULL);
    ANSWERS(isnan(sherd_optimizer_grad_norm(NULL)));
    sherd_module_destroy(layer);
}

/* ---- making ---------------------------------------------------------------------------------- */

MISUSE(a_layer_needs_a_world_and_sizes)
{
    const sherd_layer_options no_eps = {.eps = (double)NAN},
                              affine = {.affine = (sherd_norm_part)7};
    static const sherd_conv_options groups = {.groups = 3};
    static const int64_t three = 3;
    sherd_world *w = m->world;
    sherd_module *out;
    const sherd_layer_options none = {.dtype = (sherd_dtype)99}, nan = {.deviation = (double)NAN};
    const sherd_norm_options averages = {.averages = SHERD_NORM_WITH}, eps = {.eps = (double)NAN};
    const sherd_norm_options momentum = {.momentum = -0.5}, part = {.affine = (sherd_norm_part)7};

    const sherd_experts_options mixture = {4, 2, 4, false, false}, empty = {0, 0, 0, false, false};

    REFUSES(SHERD_EINVAL, sherd_linear_create(NULL, w, 4, 4, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_linear_create(&out, NULL, 4, 4, NULL));
    REFUSES(SHERD_EINVAL, sherd_linear_create(&out, w, 0, 4, NULL));
    REFUSES(SHERD_EINVAL, sherd_linear_create(&out, w, 4, -4, NULL));
    REFUSES(SHERD_EINVAL, sherd_linear_create(&out, w, 4, 4, &none));
    REFUSES(SHERD_EINVAL, sherd_linear_create(&out, w, 4, 4, &nan));
    REFUSES(SHERD_EINVAL, sherd_experts_create(NULL, w, 4, &mixture, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_experts_create(&out, NULL, 4, &mixture, NULL));
    REFUSES(SHERD_EINVAL, sherd_experts_create(&out, w, 0, &mixture, NULL));
    REFUSES(SHERD_EINVAL, sherd_experts_create(&out, w, 4, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_experts_create(&out, w, 4, &mixture, &none));
    REFUSES(SHERD_EINVAL, sherd_experts_create(&out, w, 4, &empty, NULL));
    REFUSES(SHERD_EINVAL, sherd_embedding_create(NULL, w, 4, 4, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_embedding_create(&out, NULL, 4, 4, NULL));
    REFUSES(SHERD_EINVAL, sherd_embedding_create(&out, w, -1, 4, NULL));
    REFUSES(SHERD_EINVAL, sherd_embedding_create(&out, w, 4, 0, NULL));
    REFUSES(SHERD_EINVAL, sherd_layer_norm_create(NULL, w, 4, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_layer_norm_create(&out, NULL, 4, NULL));
    REFUSES(SHERD_EINVAL, sherd_layer_norm_create(&out, w, INT64_MIN, NULL));
    REFUSES(SHERD_EINVAL, sherd_rms_norm_create(NULL, w, 4, 0, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_rms_norm_create(&out, NULL, 4, 0, NULL));
    REFUSES(SHERD_EINVAL, sherd_rms_norm_create(&out, w, 0, 0, NULL));
    REFUSES(SHERD_EINVAL, sherd_rms_norm_create(&out, w, 4, -1, NULL));
    REFUSES(SHERD_EINVAL, sherd_rms_norm_create(&out, w, 4, (double)NAN, NULL));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(NULL, w, 4, 2, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_group_norm_create(&out, NULL, 4, 2, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(&out, w, 4, 0, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(&out, w, 4, 3, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(&out, w, 0, 1, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(&out, w, 4, 2, NULL, &none));
    REFUSES(SHERD_EINVAL, sherd_group_norm_create(&out, w, 4, 2, &averages, NULL));
    REFUSES(SHERD_EINVAL, sherd_batch_norm_create(NULL, w, 4, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_batch_norm_create(&out, NULL, 4, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_batch_norm_create(&out, w, -1, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_batch_norm_create(&out, w, 4, &eps, NULL));
    REFUSES(SHERD_EINVAL, sherd_batch_norm_create(&out, w, 4, &part, NULL));
    REFUSES(SHERD_EINVAL, sherd_instance_norm_create(NULL, w, 4, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_instance_norm_create(&out, NULL, 4, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_instance_norm_create(&out, w, 0, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_instance_norm_create(&out, w, 4, &momentum, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(NULL, w, 4, 4, 1, &three, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_conv_create(&out, NULL, 4, 4, 1, &three, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 0, 4, 1, &three, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 4, 4, 0, &three, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 4, 4, 4, &three, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 4, 4, 1, NULL, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 4, 4, 1, (int64_t[]){0}, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_create(&out, w, 4, 4, 1, &three, &groups, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_transposed_create(NULL, w, 4, 4, 1, &three, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_conv_transposed_create(&out, w, 4, 4, 1, &three, &groups, NULL));
    REFUSES(SHERD_EINVAL, sherd_dropout_create(NULL, w, 0.5));
    ONLY_SAYS(SHERD_EINVAL, sherd_dropout_create(&out, NULL, 0.5));
    REFUSES(SHERD_EINVAL, sherd_dropout_create(&out, w, (double)NAN));
    REFUSES(SHERD_EINVAL, sherd_dropout_create(&out, w, 1));
    REFUSES(SHERD_EINVAL, sherd_attention_create(NULL, w, 4, 2, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_attention_create(&out, NULL, 4, 2, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 4, 0, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, INT64_MIN, -1, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 4, 3, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 4, 2, NULL, &none));
    for (int i = 0; i < 3; i++) {
        const sherd_layer_options shared = {.kv_heads = (int64_t[]){-1, 3, 8}[i]};
        REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 8, 4, NULL, &shared));
    }
    for (int i = 0; i < 2; i++) {
        const sherd_layer_options wide = {.head_width = (int64_t[]){-1, INT64_MAX}[i]};
        REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 8, 4, NULL, &wide));
    }
    REFUSES(SHERD_EINVAL, sherd_layer_norm_create(&out, w, 4, &no_eps));
    REFUSES(SHERD_EINVAL, sherd_attention_create(&out, w, 8, 4, NULL, &no_eps));
    REFUSES(SHERD_EINVAL, sherd_layer_norm_create(&out, w, 4, &affine));
    REFUSES(SHERD_EINVAL, sherd_module_create(NULL, w, NULL, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_create(&out, NULL, NULL, NULL));
    ANSWERS(out == NULL);
}

MISUSE(a_buffer_is_a_tensor_with_a_name)
{
    const int64_t shape[] = {4, 4};
    sherd_module *layer = linear(m->world);
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_tensor *failed = sherd_add(t, NULL);

    CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(NULL, "a", t));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_add_buffer(NULL, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(layer, NULL, t));
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(layer, "a.b", t));
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(layer, "weight", t));
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(layer, "a", NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add_buffer(layer, "a", failed));
    REFUSES(SHERD_EINVAL, sherd_module_set_buffer(NULL, "a", t));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_set_buffer(NULL, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_set_buffer(layer, "weight", t));
    REFUSES(SHERD_EINVAL, sherd_module_set_buffer(layer, NULL, t));
    REFUSES(SHERD_EINVAL, sherd_module_set_buffer(layer, "a", NULL));
    ANSWERS(!sherd_module_buffer(NULL, "a") && !sherd_module_buffer(layer, NULL));
    ANSWERS(sherd_module_buffers(NULL) == 0 && !sherd_module_buffer_name(NULL, 0));
    ANSWERS(!sherd_module_buffer_name(layer, -1) && !sherd_module_buffer_name(layer, 0));
    sherd_module_destroy(layer);
}

/* A line of all ranks, and the layer's state on it. */
static const sherd_mesh *line(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"x"}, NULL));
    return mesh;
}

MISUSE(state_is_loaded_by_a_name_that_is_there)
{
    const int64_t shape[] = {4, 4};
    const sherd_mesh *mesh = line(m->world), *other;
    const sherd_layout *layout = NULL;
    sherd_module *layer = linear(m->world);
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_world *second = NULL;
    sherd_named_state all[1];
    char name[4];

    CHECK_OK(sherd_world_alone(&second, NULL));
    CHECK_OK(sherd_mesh_parse(&other, second, "x=1"));
    sherd_tensor *foreign = sherd_constant(second, SHERD_F32, shape, 2, 1);
    CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 2, shape, "S(0)", NULL));
    CHECK_OK(sherd_module_set_parameter(layer, "weight", sherd_distribute(t, layout, -1)));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_load(layer, NUL("weight"), t, -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_load(layer, "weight", NUL(t), -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_load(layer, BAD("wait", "weight"), t, -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_load(layer, "weight", BAD(foreign, t), -1));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_load(NULL, "weight", NULL, -1));
    sherd_optimizer *adamw = NULL;
    CHECK_OK(sherd_adamw_create(&adamw, layer, NULL));
    ALL_REFUSE(SHERD_EINVAL, sherd_optimizer_load(adamw, NUL("weight.m"), t, -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_optimizer_load(adamw, "weight.m", NUL(t), -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_optimizer_load(adamw, BAD("weight", "weight.m"), t, -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_optimizer_load(adamw, BAD("bias.m", "weight.m"), t, -1));
    ALL_REFUSE(SHERD_EINVAL, sherd_optimizer_load(adamw, "weight.m", BAD(foreign, t), -1));
    ONLY_SAYS(SHERD_EINVAL, sherd_optimizer_load(NULL, "weight.m", NULL, -1));
    ANSWERS(sherd_optimizer_state(NULL, all, 1) == 0);
    ANSWERS(sherd_optimizer_state(adamw, all, -1) == 6 &&
            sherd_optimizer_state(adamw, NULL, 9) == 6);
    sherd_optimizer_destroy(adamw);
    if (m->wrong && !m->alone) { /* all of them, or it is a difference */
        CHECK_EQ(sherd_module_load(NULL, "weight", sherd_distribute(t, layout, -1), -1),
                 SHERD_EINVAL);
        CHECK_EQ(sherd_module_load(layer, "weight", t, -2), SHERD_EINVAL);
        CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
        CHECK_EQ(sherd_module_load(layer, "weight", t, 99), SHERD_EINVAL);
        CHECK_OK(sherd_world_check(m->world)); /* refused before anything has moved */
    }
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(NUL(layer), mesh, NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(layer, NUL(mesh), NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(layer, BAD(other, mesh), NULL, 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(layer, mesh, BAD("y", NULL), 0));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(layer, mesh, NULL, BAD(INT64_MIN, 0)));
    ALL_REFUSE(SHERD_EINVAL, sherd_module_equalize(layer, mesh, "x", BAD(INT64_MAX, 0)));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_equalize(NULL, NULL, NULL, 0));
    ANSWERS(sherd_module_state(NULL, all, 1) == 0 && sherd_module_state(layer, all, -1) == 2);
    ANSWERS(sherd_state_name(NULL, name, sizeof name) == 0 && name[0] == 0);
    sherd_module_destroy(layer);
    CHECK_OK(sherd_world_close(second));
}

MISUSE(a_parameter_is_a_tensor_with_a_name)
{
    const int64_t shape[] = {4, 4};
    sherd_module *layer = linear(m->world);
    sherd_tensor *t = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_tensor *ids = sherd_constant(m->world, SHERD_I32, shape, 2, 1);
    sherd_tensor *failed = sherd_add(t, NULL);

    CHECK_EQ(sherd_world_check(m->world), SHERD_EINVAL);
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(NULL, "a", t));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_add_parameter(NULL, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(layer, NULL, t));
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(layer, "a", NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(layer, "a", failed));
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(layer, "a", ids));
    REFUSES(SHERD_EINVAL, sherd_module_add_parameter(layer, "weight", t));
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(NULL, "weight", t));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_set_parameter(NULL, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(layer, NULL, t));
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(layer, "weight", NULL));
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(layer, "weight", failed));
    REFUSES(SHERD_EINVAL, sherd_module_set_parameter(layer, "bias", t));
    ANSWERS(sherd_module_parameters(layer) == 2);
    sherd_module_destroy(layer);
}

static void count(void *payload)
{
    ++*(int *)payload;
}

static void look_before(sherd_module *self, sherd_args *in, void *payload)
{
    (void)self, (void)in, (void)payload;
}

static void look_after(sherd_module *self, const sherd_args *in, sherd_args *out, void *payload)
{
    (void)self, (void)in, (void)out, (void)payload;
}

MISUSE(the_payload_of_a_hook_goes_also_where_there_is_no_module)
{
    sherd_module *layer = linear(m->world);
    int gone = 0, id = 7;
    const sherd_hook_options o = {.payload = &gone, .destroy = count};

    ONLY_SAYS(SHERD_EINVAL, sherd_module_hook_before(&id, NULL, look_before, &o));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_hook_after(&id, NULL, look_after, &o));
    REFUSES(SHERD_EINVAL, sherd_module_hook_before(&id, layer, NULL, &o));
    REFUSES(SHERD_EINVAL, sherd_module_hook_after(&id, layer, NULL, &o));
    ANSWERS(gone == 4 && id == 0);
    REFUSES(SHERD_OK, sherd_module_hook_after(NULL, layer, look_after, NULL));
    sherd_module_destroy(layer);
}

/* ---- calling --------------------------------------------------------------------------------- */

MISUSE(a_call_needs_a_module_arguments_and_a_place_for_outputs)
{
    const int64_t shape[] = {4, 4};
    sherd_module *layer = linear(m->world), *container = NULL;
    sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_args in = {.count = 1, .value = {x}}, many = {.count = 9}, few = {.count = -1}, out;

    CHECK_OK(sherd_module_create(&container, m->world, NULL, NULL));
    FAILS(SHERD_EINVAL, sherd_module_run(NUL(layer), &in, &out));
    ANSWERS(out.count == 1 && out.value[7] && sherd_tensor_failed(out.value[7]));
    FAILS(SHERD_EINVAL, sherd_module_run(layer, NUL(&in), &out));
    ANSWERS(out.count == 1 && sherd_tensor_failed(out.value[0]));
    FAILS(SHERD_EINVAL, sherd_module_run(layer, &in, NUL(&out)));
    FAILS(SHERD_EINVAL, sherd_module_run(layer, BAD(&many, &in), &out));
    FAILS(SHERD_EINVAL, sherd_module_run(layer, BAD(&few, &in), &out));
    FAILS(SHERD_EINVAL, sherd_module_run(BAD(container, layer), &in, &out));
    FAILS(SHERD_EINVAL, sherd_module_call(NUL(layer), x));
    FAILS(SHERD_EINVAL, sherd_module_call(layer, NUL(x)));
    ANSWERS(!sherd_module_call(NULL, NULL));
    sherd_module_run(NULL, NULL, NULL);
    sherd_module_destroy(container);
    sherd_module_destroy(layer);
}

/* ---- forwards and hooks that misbehave ------------------------------------------------------- */

static void end_too_often(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *y = sherd_relu(in->value[0]);

    for (int i = 0; i < 5; i++)
        sherd_scope_end(sherd_module_world(self));
    *out = (sherd_args){.count = 1, .value = {y}};
}

static void begin_only(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    for (int i = 0; i < 5; i++)
        sherd_scope_begin(sherd_module_world(self));
    *out = (sherd_args){.count = 1, .value = {sherd_relu(in->value[0])}};
}

static void end_before(sherd_module *self, sherd_args *in, void *payload)
{
    (void)in, (void)payload;
    for (int i = 0; i < 5; i++)
        sherd_scope_end(sherd_module_world(self));
}

MISUSE(a_forward_ends_no_scope_but_its_own)
{
    static const sherd_forward forwards[] = {end_too_often, begin_only};
    const int64_t shape[] = {4, 4};

    for (int i = 0; i < LEN(forwards); i++) {
        sherd_module *module = NULL;
        CHECK_OK(sherd_module_create(&module, m->world, forwards[i], NULL));
        CHECK_OK(sherd_module_hook_before(NULL, module, end_before, NULL));
        int64_t live = sherd_world_memory(m->world).live_bytes;
        for (int times = 0; times < 10; times++) {
            sherd_scope_begin(m->world);
            sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
            sherd_tensor *y = sherd_module_call(module, x);
            CHECK_NEAR(sherd_item(sherd_sum(sherd_add(x, y))), 32, 0);
            sherd_scope_end(m->world);
            CHECK_EQ(sherd_world_memory(m->world).live_bytes, live);
        }
        sherd_module_destroy(module);
    }
    CHECK_OK(sherd_world_check(m->world));
}

static void destroy_itself(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module *root = sherd_module_payload(self);

    if (root)
        sherd_module_destroy(root);
    *out = *in;
}

static void call_child(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_module_run(sherd_module_child(self, 0), in, out);
}

MISUSE(a_module_is_not_destroyed_in_its_own_call)
{
    const int64_t shape[] = {4, 4};
    sherd_module *root = NULL, *child = NULL;
    sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);

    CHECK_OK(sherd_module_create(&root, m->world, call_child, NULL));
    CHECK_OK(sherd_module_create(&child, m->world, destroy_itself,
                                 &(sherd_module_options){.payload = BAD(root, NULL)}));
    CHECK_OK(sherd_module_add(root, "child", child));
    FAILS(SHERD_EINVAL, (sherd_module_call(root, x))); /* it names the function inside */
    sherd_module_destroy(root);
}

static void give_payload(sherd_module *self, const sherd_args *in, sherd_args *out)
{
    sherd_tensor *other = sherd_module_payload(self);

    *out = *in;
    if (other)
        out->value[0] = other;
}

MISUSE(an_output_is_of_the_modules_world)
{
    const int64_t shape[] = {4, 4};
    sherd_tensor *x = sherd_constant(m->world, SHERD_F32, shape, 2, 1);
    sherd_world *second = NULL;
    sherd_module *module = NULL;

    CHECK_OK(sherd_world_alone(&second, NULL));
    sherd_tensor *other = sherd_constant(second, SHERD_F32, shape, 2, 1);
    CHECK_OK(sherd_module_create(&module, m->world, give_payload,
                                 &(sherd_module_options){.payload = BAD(other, NULL)}));
    FAILS(SHERD_EINVAL, sherd_module_call(module, x));
    FAILS(SHERD_EINVAL, sherd_module_call(module, BAD(other, NULL)));
    sherd_module_destroy(module);
    CHECK_OK(sherd_world_close(second));
}

static const check_test tests[] = {
    {TEST(questions_to_no_module_have_an_answer), {1, 2}},
    {TEST(an_argument_that_is_not_there_is_not_found), {1}},
    {TEST(what_a_checkpoint_keeps_has_a_name), {1, 2}},
    {TEST(giving_up_nothing_does_nothing), {1, 2}},
    {TEST(a_layer_needs_a_world_and_sizes), {1, 2}},
    {TEST(a_buffer_is_a_tensor_with_a_name), {1, 2}},
    {TEST(state_is_loaded_by_a_name_that_is_there), {1, 2, 3}},
    {TEST(a_parameter_is_a_tensor_with_a_name), {1, 2}},
    {TEST(the_payload_of_a_hook_goes_also_where_there_is_no_module), {1, 2}},
    {TEST(a_call_needs_a_module_arguments_and_a_place_for_outputs), {1, 2}},
    {TEST(a_forward_ends_no_scope_but_its_own), {1, 2}},
    {TEST(a_module_is_not_destroyed_in_its_own_call), {1, 2}},
    {TEST(an_output_is_of_the_modules_world), {1, 2}},
};
CHECK_MAIN(tests)
