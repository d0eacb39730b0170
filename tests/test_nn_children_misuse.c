/* SPDX-License-Identifier: Apache-2.0 */
/* Misuse of what changes whole trees of modules: see misuse.h. */
#include "misuse.h"
#include "sherd/layers.h"

static sherd_module *linear(sherd_world *world)
{
    sherd_module *m = NULL;

    CHECK_OK(sherd_linear_create(&m, world, 4, 4, NULL));
    return m;
}

static void computes(sherd_world *world)
{
    const int64_t shape[] = {4, 4};
    sherd_module *root = NULL;

    sherd_scope_begin(world);
    CHECK_OK(sherd_module_create(&root, world, NULL, NULL));
    CHECK_OK(sherd_module_add(root, "a", linear(world)));
    CHECK_OK(sherd_module_replace(NULL, root, "a", linear(world)));
    sherd_tensor *x = sherd_constant(world, SHERD_F32, shape, 2, 1);
    CHECK_EQ(sherd_tensor_count(sherd_module_call(sherd_module_find(root, "a"), x)), 16);
    CHECK_OK(sherd_module_remove(NULL, root, "a"));
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    sherd_module_destroy(root);
}

#define MISUSE(name) MISUSE_WORKS(name, computes)

MISUSE(a_child_is_taken_also_where_there_is_no_parent)
{
    sherd_module *root = NULL;

    CHECK_OK(sherd_module_create(&root, m->world, NULL, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add(NULL, "a", linear(m->world)));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_add(NULL, "a", NULL));
    REFUSES(SHERD_ENOMEM, sherd_module_add(root, "a", NULL));
    REFUSES(SHERD_EINVAL, sherd_module_add(root, NULL, linear(m->world)));
    REFUSES(SHERD_EINVAL, sherd_module_add(root, "", linear(m->world)));
    REFUSES(SHERD_EINVAL, sherd_module_add(root, "a.b", linear(m->world)));
    REFUSES(SHERD_EINVAL, sherd_module_add(root, "a", root));
    ANSWERS(sherd_module_children(root) == 0);
    sherd_module_destroy(root);
}

MISUSE(a_child_is_removed_where_there_is_one)
{
    sherd_module *root = NULL, *out = NULL;

    CHECK_OK(sherd_module_create(&root, m->world, NULL, NULL));
    CHECK_OK(sherd_module_add(root, "a", linear(m->world)));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_remove(&out, NULL, "a"));
    REFUSES(SHERD_EINVAL, sherd_module_remove(&out, root, NULL));
    REFUSES(SHERD_EINVAL, sherd_module_remove(NULL, root, "b"));
    REFUSES(SHERD_EINVAL, sherd_module_replace(&out, NULL, "a", linear(m->world)));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_replace(&out, NULL, "a", NULL));
    REFUSES(SHERD_ENOMEM, sherd_module_replace(&out, root, "a", NULL));
    REFUSES(SHERD_EINVAL, sherd_module_replace(&out, root, NULL, linear(m->world)));
    REFUSES(SHERD_EINVAL, sherd_module_replace(NULL, root, "b", linear(m->world)));
    REFUSES(SHERD_EINVAL, sherd_module_replace(NULL, root, "a", root));
    REFUSES(SHERD_EINVAL, sherd_module_replace(NULL, root, "a", sherd_module_find(root, "a")));
    ANSWERS(!out && sherd_module_children(root) == 1);
    sherd_module_destroy(root);
}

MISUSE(a_module_is_cast_to_a_dtype_with_fractions)
{
    sherd_module *layer = linear(m->world);

    ONLY_SAYS(SHERD_EINVAL, sherd_module_cast(NULL, SHERD_F32));
    REFUSES(SHERD_EINVAL, sherd_module_cast(layer, SHERD_I64));
    REFUSES(SHERD_EINVAL, sherd_module_cast(layer, SHERD_DTYPE_NONE));
    REFUSES(SHERD_EINVAL, sherd_module_cast(layer, (sherd_dtype)-1));
    REFUSES(SHERD_EINVAL, sherd_module_cast(layer, (sherd_dtype)1000));
    sherd_module_destroy(layer);
}

MISUSE(weights_of_8_bits_are_made_of_linears)
{
    sherd_module *layer = linear(m->world), *norm = NULL;

    CHECK_OK(sherd_layer_norm_create(&norm, m->world, 3, NULL));
    ONLY_SAYS(SHERD_EINVAL, sherd_module_quantize(NULL, 8, 0));
    REFUSES(SHERD_EINVAL, sherd_module_quantize(layer, 8, -1));
    REFUSES(SHERD_EINVAL, sherd_module_quantize(norm, 8, 0));
    REFUSES(SHERD_EINVAL, sherd_module_quantize(layer, 7, 0));
    REFUSES(SHERD_EINVAL, sherd_module_quantize(layer, 4, 3));
    REFUSES(SHERD_OK, sherd_module_quantize(layer, 8, 2));
    REFUSES(SHERD_EINVAL, sherd_module_quantize(layer, 8, 2)); /* it is */
    sherd_module_destroy(layer);
    sherd_module_destroy(norm);
}

static const check_test tests[] = {
    {TEST(a_child_is_taken_also_where_there_is_no_parent), {1, 2}},
    {TEST(a_child_is_removed_where_there_is_one), {1, 2}},
    {TEST(a_module_is_cast_to_a_dtype_with_fractions), {1, 2}},
    {TEST(weights_of_8_bits_are_made_of_linears), {1, 2}},
};
CHECK_MAIN(tests)
