/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts written as text: "[4096(x,y),4096] on (x=2,y=4)", and their placements alone: "S(0)S(0)".
 */
#include "inside.h"

#include <string.h>

static const char *const op_names[] = {"sum", "avg", "min", "max", "product"};

const char *sherd__reduce_op_name(sherd_reduce_op op)
{
    return (unsigned)op < sizeof op_names / sizeof op_names[0] ? op_names[op] : NULL;
}

bool sherd__reduce_op_find(const char *name, sherd_reduce_op *out)
{
    for (size_t i = 0; i < sizeof op_names / sizeof op_names[0]; i++)
        if (strcmp(op_names[i], name) == 0) {
            *out = (sherd_reduce_op)i;
            return true;
        }
    return false;
}

bool sherd__reduce_ops_mix(sherd_reduce_op a, sherd_reduce_op b)
{
    return a == b || (a <= SHERD_AVG && b <= SHERD_AVG);
}

static void write_dim(sherd__writer *w, const sherd_mesh *mesh, const sherd__dim *dim, int64_t n)
{
    sherd__write(w, "%lld", (long long)n);
    if (dim->axes == 0)
        return;
    for (int i = 0; i < dim->axes; i++)
        sherd__write(w, "%s%s", i ? "," : "(", mesh->name[dim->axis[i]]);
    int64_t parts = sherd__dim_parts(mesh, dim);
    for (int64_t i = 0; dim->cuts && i < parts; i++)
        sherd__write(w, "%s%lld", i ? "," : ":", (long long)(dim->cuts[i + 1] - dim->cuts[i]));
    sherd__write(w, ")");
}

void sherd__layout_write(sherd__writer *w, const void *object)
{
    const sherd__layout_spec *spec = &((const sherd_layout *)object)->spec;

    sherd__write(w, "[");
    for (int d = 0; d < spec->ndim; d++) {
        sherd__write(w, "%s", d ? "," : "");
        write_dim(w, spec->mesh, &spec->dim[d], spec->shape[d]);
    }
    sherd__write(w, "]");
    for (int i = 0; i < spec->mesh->axes; i++)
        if (spec->pending[i] >= 0)
            sherd__write(w, " P(%s:%s)", op_names[spec->pending[i]], spec->mesh->name[i]);
    sherd__write(w, " on (%s)", spec->mesh->text);
}

/* Place of an axis in the list of its dim. */
static int place_in(const sherd__dim *dim, int axis)
{
    int i = 0;

    while (dim->axis[i] != axis)
        i++;
    return i;
}

/* Orders are shown for the dims whose axes do not stand in mesh order. */
static bool in_mesh_order(const sherd__dim *dim)
{
    for (int i = 1; i < dim->axes; i++)
        if (dim->axis[i] < dim->axis[i - 1])
            return false;
    return true;
}

void sherd__placements_write(sherd__writer *w, const void *object)
{
    const sherd_layout *layout = object;
    const sherd__layout_spec *spec = &layout->spec;

    for (int i = 0; i < spec->mesh->axes; i++) {
        sherd_placement p = sherd_layout_placement(layout, i);
        if (p.kind == SHERD_PARTIAL)
            sherd__write(w, "P(%s)", op_names[p.op]);
        else if (p.kind != SHERD_SHARD)
            sherd__write(w, "R");
        else if (in_mesh_order(&spec->dim[p.dim]))
            sherd__write(w, "S(%d)", p.dim);
        else
            sherd__write(w, "S(%d)[%d]", p.dim, place_in(&spec->dim[p.dim], i));
    }
}

const char *sherd_layout_text(const sherd_layout *layout)
{
    return layout ? layout->text : "";
}

const char *sherd_layout_placements(const sherd_layout *layout)
{
    return layout ? layout->placements : "";
}

void sherd__layout_describe(const sherd_layout *layout, sherd_dtype dtype, char *out, size_t room)
{
    sherd__writer w = {out, room, 0};

    sherd__write(&w, "%s%s", sherd_dtype_name(dtype), layout->text);
}

void sherd__shape_describe(int ndim, const int64_t *shape, sherd_dtype dtype, char *out,
                           size_t room)
{
    sherd__writer w = {out, room, 0};

    sherd__write(&w, "%s[", sherd_dtype_name(dtype));
    for (int d = 0; d < ndim; d++)
        sherd__write(&w, "%s%lld", d ? "," : "", (long long)shape[d]);
    sherd__write(&w, "]");
}
