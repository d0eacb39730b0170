/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placing parameters. Every rank has the whole parameter, equal everywhere, and keeps its part; or
 * the parameter is deferred, and the rank draws its part. Nothing is sent. Parameters are on the
 * root mesh, so that they can be combined with activations that other axes shard.
 */
#include "base/num.h"
#include "parallel/style.h"

/* Sizes [p] of the shards of n elements with granules kept whole: torch's chunks of granules. */
static void granule_sizes(int64_t n, int64_t p, int64_t granule, int64_t *sizes)
{
    granule = sherd__min(granule, sherd__max(n, 1));
    int64_t units = sherd__ceil_div(n, granule);

    for (int64_t i = 0; i < p; i++) {
        int64_t lo, hi;
        sherd__chunk(units, p, i, &lo, &hi);
        sizes[i] = sherd__min(hi * granule, n) - sherd__min(lo * granule, n);
    }
}

/*
 * The layout of a tensor with `placement` on one more axis: of a plain one that is replicated on
 * the others, or of one that is distributed on the root of the mesh.
 */
static sherd_status make_layout(const sherd_layout **out, const sherd_tensor *t,
                                const sherd_mesh *mesh, int axis, sherd_placement placement,
                                int64_t granule)
{
    const sherd_mesh *root = sherd_mesh_root(mesh);
    sherd_placement placements[SHERD_MAX_AXES] = {{SHERD_UNSET, 0, SHERD_SUM}};
    const int64_t *by_dim[SHERD_MAX_DIMS] = {NULL};
    sherd_layout_options options = {NULL, by_dim};
    sherd__heap *heap = sherd__world_heap(t->world);
    int64_t p = mesh->extent[axis], *sizes = NULL;
    sherd_status status;

    for (int a = 0; t->layout && a < root->axes; a++)
        placements[a] = sherd_layout_placement(t->layout, a);
    placements[mesh->root_axis[axis]] = placement;
    if (placement.kind == SHERD_SHARD && granule > 1) {
        sizes = sherd__alloc(heap, sherd__bytes(p), sizeof *sizes);
        if (!sizes)
            return sherd__no_memory(sherd__world_diag(t->world), "sherd_parallelize");
        granule_sizes(t->shape[placement.dim], p, granule, sizes);
        by_dim[placement.dim] = sizes;
    }
    status = sherd_layout_create(out, root, t->ndim, t->shape, placements, sizes ? &options : NULL);
    sherd__free(heap, sizes);
    return status || !t->layout ? status : sherd__layout_keep_cuts(out, *out, t->layout);
}

static sherd_status refuse(const sherd_module *m, const sherd__named_tensor *named,
                           const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "sherd_parallelize: %s \"%s\" of \"%s\" %s",
                              sherd__find_buffer(m, named->name) >= 0 ? "buffer" : "parameter",
                              named->name, sherd__module_name(m), fault);
}

/* A plain tensor cut to the layout, or a distributed one moved to it; not recorded. */
static sherd_tensor *relaid(sherd_tensor *t, const sherd_layout *layout)
{
    return t->layout ? sherd__move_to(t, layout, false) : sherd_distribute(t, layout, -1);
}

sherd_status sherd__spread(sherd_module *m, sherd__named_tensor *named, const sherd_layout *layout)
{
    sherd__diag *diag = sherd__world_diag(m->world);
    sherd_tensor *old = named->tensor, *fresh;
    sherd_status status = SHERD_OK;
    bool recording, once = sherd__is_named_once(old);

    if (old->varies)
        return refuse(m, named,
                      "varies between ranks, as far as sherd knows; if it is equal on all, say "
                      "so with sherd_mark_equal, else make it so with sherd_module_equalize");
    recording = sherd_set_recording(m->world, false);
    sherd_scope_begin(m->world);
    fresh = relaid(old, layout);
    if (sherd_tensor_failed(fresh)) {
        status = diag->status ? diag->status : SHERD_ENOMEM;
    } else if (fresh != old) {
        sherd__put_in_place(m, named, fresh, once);
    }
    sherd_scope_end(m->world);
    sherd_set_recording(m->world, recording);
    return status;
}

/* A parameter or buffer; NULL if there is none. */
static sherd__named_tensor *find(sherd_module *module, const char *name)
{
    int parameter = sherd__find_parameter(module, name), buffer = sherd__find_buffer(module, name);

    return parameter >= 0 ? &module->parameter[parameter]
           : buffer >= 0  ? &module->buffer[buffer]
                          : NULL;
}

/* Axes on which styles have placed a tensor, by whatever names of the tree below m it has. */
static unsigned placed_axes(const sherd_module *m, const sherd_tensor *t)
{
    unsigned axes = 0;

    for (int i = 0; i < m->parameters; i++)
        axes |= m->parameter[i].tensor == t ? m->parameter[i].placed : 0;
    for (int i = 0; i < m->buffers; i++)
        axes |= m->buffer[i].tensor == t ? m->buffer[i].placed : 0;
    for (int i = 0; i < m->children; i++)
        axes |= placed_axes(m->child[i].module, t);
    return axes;
}

/* Why a parameter cannot be placed on the axis; NULL: it can. */
static const char *misplaced(const sherd__named_tensor *p, const sherd_mesh *mesh, int axis,
                             sherd_placement placement, int64_t granule)
{
    const sherd_layout *layout = p->tensor->layout;
    int at = mesh->root_axis[axis];

    if (p->placed >> at & 1)
        return "has been placed by a style before";
    if (!layout)
        return NULL;
    if (layout->spec.mesh != sherd_mesh_root(mesh))
        return "is distributed already, on another mesh";
    bool sharded = placement.kind == SHERD_SHARD && layout->spec.dim[placement.dim].axes > 0;
    if (granule > 1 && sharded && !(layout->shard_axes >> at & 1))
        return "has that dim sharded already, which leaves no granules whole";
    return NULL;
}

sherd_status sherd__place(sherd_module *module, const char *name, const sherd_mesh *mesh, int axis,
                          sherd_placement placement, int64_t granule)
{
    sherd__named_tensor *p = find(module, name);
    const sherd_layout *layout;
    sherd_status status;

    if (!p)
        return SHERD_OK;
    sherd__follow_tie(module, p);
    const char *fault = misplaced(p, mesh, axis, placement, granule);
    if (fault)
        return refuse(module, p, fault);
    int at = mesh->root_axis[axis];
    bool placed = (!sherd__is_named_once(p->tensor) &&
                   placed_axes(sherd__module_root(module), p->tensor) >> at & 1) ||
                  (p->tensor->layout && p->tensor->layout->shard_axes >> at & 1);
    status = make_layout(&layout, p->tensor, mesh, axis, placement, granule);
    if (status)
        return status;
    /* Tied to a parameter that a style has placed on this axis in the same way. */
    if (placed && p->tensor->layout != layout)
        return refuse(module, p, "is distributed already, in another layout");
    if (p->tensor->layout != layout)
        status = sherd__spread(module, p, layout);
    if (!status)
        p->placed |= 1u << at;
    return status;
}

sherd_status sherd_style_place_parameter(sherd_module *module, const char *name,
                                         const sherd_mesh *mesh, int axis,
                                         sherd_placement placement, int64_t granule)
{
    static const char function[] = "sherd_style_place_parameter";
    const sherd__argument need[] = {
        {"module", module}, {"name", name}, {"mesh", mesh}, {NULL, NULL}};
    sherd_world *world = module ? module->world : mesh ? sherd__space_world(mesh->space) : NULL;
    const sherd__named_tensor *named = module ? find(module, name) : NULL;
    const sherd_tensor *t = named ? named->tensor : NULL;
    const char *fault = NULL;

    if (sherd__require(sherd__world_diag(world), function, need))
        return SHERD_EINVAL;
    if (t && placement.kind == SHERD_SHARD && placement.dim < 0)
        placement.dim += t->ndim;
    if (sherd__space_world(mesh->space) != world)
        fault = "the mesh is not of the module's world";
    else if (axis < 0 || axis >= mesh->axes)
        fault = "the mesh has no such axis";
    else if (!t)
        fault = "there is no parameter or buffer of this name";
    else if (placement.kind != SHERD_REPLICATE && placement.kind != SHERD_SHARD)
        fault = "a parameter is replicated or sharded";
    else if (placement.kind == SHERD_SHARD && (placement.dim < 0 || placement.dim >= t->ndim))
        fault = "it lacks the dim";
    else if (granule < 0)
        fault = "the granule is negative";
    if (fault)
        return sherd__module_fail(module, SHERD_EINVAL, "%s: \"%s\" of \"%s\" on (%s): %s",
                                  function, name, sherd__module_name(module), sherd_mesh_text(mesh),
                                  fault);
    return sherd__place(module, name, mesh, axis, placement, granule);
}

sherd_status sherd__replicate(sherd_module *module, sherd__named_tensor *named,
                              const sherd_mesh *mesh)
{
    const sherd_mesh *root = sherd_mesh_root(mesh);
    const sherd_layout *layout;
    sherd_status status;

    sherd__follow_tie(module, named);
    const sherd_tensor *t = named->tensor;
    if (t->layout && sherd_layout_mesh(t->layout) != root)
        return refuse(module, named, "is distributed already, on another mesh");
    if (t->layout)
        return SHERD_OK;
    status = sherd__replicated(&layout, root, t->ndim, t->shape);
    return status ? status : sherd__spread(module, named, layout);
}

static void note_elsewhere(const sherd_module *module)
{
    for (int i = 0; i < module->parameters; i++)
        module->parameter[i].tensor->elsewhere = !module->parameter[i].tensor->layout;
    for (int i = 0; i < module->buffers; i++)
        module->buffer[i].tensor->elsewhere = !module->buffer[i].tensor->layout;
    for (int i = 0; i < module->children; i++)
        note_elsewhere(module->child[i].module);
}

sherd_status sherd__replicate_rest(sherd_module *module, const sherd_mesh *mesh)
{
    sherd_status status = SHERD_OK;

    if (!sherd__in_mesh(module->world, mesh)) {
        note_elsewhere(module);
        return SHERD_OK;
    }

    for (int i = 0; !status && i < module->parameters; i++)
        status = sherd__replicate(module, &module->parameter[i], mesh);
    for (int i = 0; !status && i < module->buffers; i++)
        status = sherd__replicate(module, &module->buffer[i], mesh);
    for (int i = 0; !status && i < module->children; i++)
        status = sherd__replicate_rest(module->child[i].module, mesh);
    return status;
}

sherd_status sherd__style_fits(const sherd_style *style, const sherd_module *module)
{
    sherd_module_kind kind = module->options.kind;
    const sherd_tensor *weight = sherd_module_parameter(module, "weight");
    const sherd_tensor *values = sherd_module_buffer(module, "weight"); /* of 8 bits */
    const char *fault = NULL;

    if (kind != SHERD_MODULE_LINEAR && kind != SHERD_MODULE_EMBEDDING)
        fault = "it takes a Linear or an Embedding";
    else if (!weight && !values)
        fault = "it needs a parameter \"weight\" of two dims";
    else if ((weight ? weight : values)->ndim != 2)
        fault = "it needs a parameter \"weight\" of two dims";
    else if (style->granule < 0)
        fault = "the granule is negative";
    if (!fault)
        return SHERD_OK;
    return sherd__module_fail(module, SHERD_EINVAL, "sherd_parallelize: %s of module \"%s\": %s",
                              style->name ? style->name : "style", sherd__module_name(module),
                              fault);
}

sherd_status sherd__style_axis(int *out, sherd_world **world, const sherd_module *module,
                               const sherd_mesh *mesh, const char *axis, const char *function)
{
    const sherd__argument need[] = {{"module", module}, {"mesh", mesh}, {NULL, NULL}};

    *world = sherd_module_world(module);
    if (!*world && mesh)
        *world = sherd__space_world(mesh->space);
    if (sherd__require(sherd__world_diag(*world), function, need))
        return SHERD_EINVAL;
    if (sherd__space_world(mesh->space) != module->world)
        return sherd__module_fail(module, SHERD_EINVAL, "%s: the mesh is not of the module's world",
                                  function);
    *out = axis ? sherd_mesh_find_axis(mesh, axis) : -1;
    if (*out >= 0)
        return SHERD_OK;
    return sherd__module_fail(module, SHERD_EINVAL, "%s: mesh (%s) has no axis \"%s\"", function,
                              sherd_mesh_text(mesh), axis ? axis : "(null)");
}
