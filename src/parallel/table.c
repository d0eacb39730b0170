/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of a module after parallelisation: a row for each module that has a style, parameters or
 * buffers.
 */
#include "parallel/style.h"

#include <string.h>

typedef struct table {
    const sherd_module *root;
    char *out;
    size_t room, length; /* of what has been written, or would have been */
    int path, style;     /* widths of columns */
} table;

static void write_text(table *t, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++, t->length++)
        if (t->out && t->length + 1 < t->room)
            t->out[t->length] = text[i];
}

static void pad(table *t, const char *text, int width)
{
    write_text(t, text, strlen(text));
    for (int i = (int)strlen(text); i < width; i++)
        write_text(t, " ", 1);
}

static bool has_row(const sherd_module *m)
{
    return m->styles || m->parameters > 0 || m->buffers > 0;
}

static const char *style_of(const sherd_module *m)
{
    return m->styles ? m->styles : "-";
}

static void measure(table *t, const sherd_module *m)
{
    int path = (int)strlen(sherd__module_name(m)), style = (int)strlen(style_of(m));

    if (has_row(m)) {
        t->path = path > t->path ? path : t->path;
        t->style = style > t->style ? style : t->style;
    }
    for (int i = 0; i < m->children; i++)
        measure(t, m->child[i].module);
}

/* "weight f32[8(tp),4]": without the mesh, which the table's head has. */
static void write_tensors(table *t, const sherd__named_tensor *list, int count, const char *kind)
{
    for (int i = 0; i < count; i++) {
        const char *text = sherd_tensor_text(list[i].tensor), *mesh = strstr(text, " on (");
        write_text(t, "  ", 2);
        write_text(t, kind, strlen(kind));
        write_text(t, list[i].name, strlen(list[i].name));
        write_text(t, " ", 1);
        write_text(t, text, mesh ? (size_t)(mesh - text) : strlen(text));
    }
}

static void write_rows(table *t, const sherd_module *m)
{
    if (has_row(m)) {
        pad(t, sherd__module_name(m), t->path + 2);
        pad(t, style_of(m), t->style);
        write_tensors(t, m->parameter, m->parameters, "");
        write_tensors(t, m->buffer, m->buffers, "buffer ");
        write_text(t, "\n", 1);
    }
    for (int i = 0; i < m->children; i++)
        write_rows(t, m->child[i].module);
}

/* The mesh of the first distributed parameter; NULL if there is none. */
static const sherd_mesh *find_mesh(const sherd_module *m)
{
    const sherd_mesh *mesh = NULL;

    for (int i = 0; i < m->parameters; i++)
        if (m->parameter[i].tensor->layout)
            return sherd_layout_mesh(m->parameter[i].tensor->layout);
    for (int i = 0; !mesh && i < m->children; i++)
        mesh = find_mesh(m->child[i].module);
    return mesh;
}

size_t sherd_parallel_text(const sherd_module *module, char *out, size_t room)
{
    table t = {.root = module, .out = out, .room = room, .path = 4, .style = 5};
    const sherd_mesh *mesh = module ? find_mesh(module) : NULL;

    if (module) {
        measure(&t, module);
        pad(&t, "path", t.path + 2);
        pad(&t, "style", t.style);
        write_text(&t, "  parameters", 12);
        if (mesh) {
            write_text(&t, " on (", 5);
            pad(&t, sherd_mesh_text(mesh), 0);
            write_text(&t, ")", 1);
        }
        write_text(&t, "\n", 1);
        write_rows(&t, module);
    }
    if (out && room > 0)
        out[t.length < room ? t.length : room - 1] = 0;
    return t.length;
}

sherd_status sherd_parallel_print(const sherd_module *module, FILE *file, int rank)
{
    static const char function[] = "sherd_parallel_print";
    const sherd__argument need[] = {{"module", module}, {"file", file}, {NULL, NULL}};
    sherd_world *world = sherd_module_world(module);
    size_t room = sherd_parallel_text(module, NULL, 0) + 1;
    char *text;

    if (sherd__require(sherd__world_diag(world), function, need))
        return SHERD_EINVAL;
    if (rank < 0 || rank >= sherd_world_ranks(world))
        return sherd__module_fail(module, SHERD_EINVAL, "%s: there is no rank %d", function, rank);
    if (sherd_world_rank(world) != rank)
        return SHERD_OK;
    text = sherd__alloc(sherd__world_heap(world), room, 1);
    if (!text)
        return sherd__no_memory(sherd__world_diag(world), function);
    sherd_parallel_text(module, text, room);
    fputs(text, file);
    sherd__free(sherd__world_heap(world), text);
    return SHERD_OK;
}
