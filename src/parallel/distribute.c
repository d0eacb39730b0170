/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Distributing a module by user-defined functions instead of styles: one that places parameters,
 * and hooks around the whole module. What the first does not place is replicated, as in
 * sherd_parallelize.
 */
#include "base/hash.h"
#include "parallel/style.h"

typedef struct job {
    const sherd_mesh *mesh;
    sherd_partition partition;
    sherd_pre_hook input;
    sherd_hook output;
    void *payload;
} job;

static sherd_status partition_tree(const job *j, sherd_module *m)
{
    sherd_status status;

    sherd__world_diag(m->world)->status = SHERD_OK;
    int floor = sherd__scope_fence(m->world);
    status = j->partition(m, j->mesh, j->payload);
    sherd__scope_leave(m->world, floor);
    status = sherd__told(m, "sherd_distribute_module", "partition", status);
    for (int i = 0; !status && i < m->children; i++)
        status = partition_tree(j, m->child[i].module);
    return status;
}

static sherd_status run(const job *j, sherd_module *m)
{
    const sherd_hook_options options = {.payload = j->payload};
    sherd_status status = SHERD_OK;

    if (m->distributed)
        return sherd__module_fail(m, SHERD_EINVAL,
                                  "sherd_distribute_module: module \"%s\" has been distributed "
                                  "before",
                                  sherd__module_name(m));
    if (!sherd__in_mesh(m->world, j->mesh))
        return sherd__replicate_rest(m, j->mesh);
    if (j->partition)
        status = partition_tree(j, m);
    if (!status)
        status = sherd__replicate_rest(m, j->mesh);
    if (!status && j->input)
        status = sherd_module_hook_before(NULL, m, j->input, &options);
    if (!status && j->output)
        status = sherd_module_hook_after(NULL, m, j->output, &options);
    m->distributed = !status;
    return status;
}

sherd_status sherd_distribute_module(sherd_module *module, const sherd_mesh *mesh,
                                     sherd_partition partition, sherd_pre_hook input,
                                     sherd_hook output, void *payload)
{
    static const char function[] = "sherd_distribute_module";
    const sherd__argument need[] = {{"module", module}, {"mesh", mesh}, {NULL, NULL}};
    const job j = {mesh, partition, input, output, payload};
    sherd_world *world = module ? module->world : mesh ? sherd__space_world(mesh->space) : NULL;
    sherd_status status = sherd__require(sherd__world_diag(world), function, need);
    uint64_t hash = (partition ? 1u : 0) + (input ? 2u : 0) + (output ? 4u : 0);

    if (!world)
        return status;
    if (!status && sherd__space_world(mesh->space) != world)
        status = sherd__module_fail(module, SHERD_EINVAL,
                                    "%s: the mesh is not of the module's world", function);
    if (!status) {
        hash = sherd__hash_tree(sherd__hash_word(mesh->hash, hash), module);
        status = run(&j, module);
        module->spread = true;
    }
    return sherd__agree(world, status, hash, function);
}
