/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ghost cells: one storage per rank that holds its piece and the halo around it. Filling is a call
 * in which source and result are the same block: peers read the piece while this rank writes the
 * cells around it, so only what is missing is copied, and nothing is allocated.
 */
#include "plan/window.h"
#include "search/plans.h"
#include "sherd/halo.h"
#include "tensor/state.h"
#include "world/doing.h"

#include "kernels/cast.h"

struct sherd_ghosts {
    sherd_world *world;
    sherd__window *window;
    const sherd_plan *plan; /* retained */
    sherd_tensor *cells; /* counted, in no scope; and the pieces in them, as a distributed one, */
    sherd_tensor *field; /* which ranks know by the deed that made it */
    int64_t start;       /* of the piece in the cells, elements */
    sherd_box box, piece;
};

static const char fill_name[] = "sherd_ghosts_fill";

/* ---- making one ------------------------------------------------------------------------------ */

static void find_boxes(sherd_ghosts *g)
{
    int64_t step = 1;

    g->box.ndim = g->window->layout->spec.ndim;
    g->piece = sherd__layout_holding(g->window->layout)->box;
    if (!g->window->inside)
        return;
    g->box = g->window->box;
    for (int d = g->box.ndim - 1; d >= 0; d--) {
        g->start += (g->piece.offset[d] - g->box.offset[d]) * step;
        step *= g->box.size[d];
    }
}

/* The pieces in the cells. NULL: no memory. */
static sherd_tensor *field_of(const sherd_ghosts *g)
{
    const sherd_layout *layout = g->window->layout;
    sherd_tensor *t = sherd__detached(g->cells);

    if (!t)
        return NULL;
    sherd__layout_set(&t->layout, layout);
    t->varies = 0;
    t->strided = true;
    t->ndim = layout->spec.ndim;
    t->count = g->window->inside ? 1 : 0;
    for (int d = 0; d < t->ndim; d++) {
        t->shape[d] = layout->spec.shape[d];
        t->local[d] = g->piece.size[d];
        t->count *= t->local[d];
    }
    t->offset = t->count ? g->start : 0;
    return t;
}

/* Everything that may fail. */
static sherd_status build(sherd_ghosts *g, const sherd_layout *layout, sherd_dtype dtype,
                          const sherd_halo_options *options)
{
    static const char function[] = "sherd_ghosts_create";
    sherd__diag *diag = sherd__world_diag(g->world);
    const int64_t nothing = 0;

    if (sherd_dtype_bytes(dtype) == 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the dtype is not one of sherd_dtype", function);
    if (sherd__has_constant_border(options, layout->spec.ndim) &&
        !sherd__holds(dtype, options->value))
        return sherd__fail(diag, SHERD_EINVAL, "%s: value %g is no %s", function, options->value,
                           sherd_dtype_name(dtype));
    sherd_status status =
        sherd__window_of_halo(&g->window, layout, options, function, layout->text);
    if (status)
        return status;
    status = sherd__window_plan(&g->plan, g->window, SHERD__FILL, sherd_dtype_bytes(dtype));
    if (status)
        return status;
    sherd__plan_retain(g->plan);
    find_boxes(g);
    bool inside = sherd__in_mesh(g->world, layout->spec.mesh);
    g->cells = sherd__loose_plain(g->world, dtype, inside ? g->box.ndim : 1,
                                  inside ? g->box.size : &nothing, sherd__varying_axes(layout));
    g->field = g->cells ? field_of(g) : NULL;
    if (!g->field)
        return sherd__fail(diag, SHERD_ENOMEM, "out of memory for %s", layout->text);
    if (g->cells->count)
        sherd__fill(g->cells, 0);
    return SHERD_OK;
}

sherd_status sherd_ghosts_create(sherd_ghosts **out, const sherd_layout *layout, sherd_dtype dtype,
                                 const sherd_halo_options *options)
{
    static const sherd_halo_options none;
    const sherd__argument need[] = {{"out", out}, {"layout", layout}, {NULL, NULL}};
    sherd_world *world = layout ? sherd__space_world(layout->space) : NULL;

    if (out)
        *out = NULL;
    if (sherd__require(sherd__world_diag(world), "sherd_ghosts_create", need)) {
        if (world)
            sherd__raise_diag(world);
        return SHERD_EINVAL;
    }
    sherd_ghosts *g = sherd__alloc(sherd__world_heap(world), 1, sizeof *g);
    if (!g)
        return sherd__raise(world, SHERD_ENOMEM, "sherd_ghosts_create: out of memory");
    g->world = world;
    bool begun = sherd__doing_begin(world, "sherd_ghosts_create");
    sherd_status status = build(g, layout, dtype, options ? options : &none);
    if (status)
        sherd__raise_diag(world);
    sherd__doing_end(world, begun);
    if (status) {
        sherd_ghosts_destroy(g);
        return status;
    }
    sherd__note_one("sherd_ghosts_create", NULL, g->window->hash, g->field);
    *out = g;
    return SHERD_OK;
}

void sherd_ghosts_destroy(sherd_ghosts *g)
{
    if (!g)
        return;
    sherd__heap *heap = sherd__world_heap(g->world);
    if (g->field)
        sherd_tensor_release(g->field);
    if (g->cells)
        sherd_tensor_release(g->cells);
    if (g->plan)
        sherd__plan_release(g->plan);
    sherd__window_release(g->window);
    sherd__free(heap, g);
}

/* ---- filling --------------------------------------------------------------------------------- */

static sherd__move move_of(const sherd_ghosts *g, bool there)
{
    sherd_tensor *t = g->cells;

    return (sherd__move){.plan = g->plan,
                         .dtype = t->dtype,
                         .source = t->storage->block,
                         .source_offset = g->start,
                         .source_stride = t->stride,
                         .result = t->storage->block,
                         .on_device = there,
                         .device_source = t->storage->device,
                         .device_result = t->storage->device};
}

/*
 * Whether fields are filled in the memory of GPUs: where one of any rank has its contents there. A
 * field that only the CPU writes stays with it, so that a step does not copy all of it. Where the
 * contents are is this rank's own matter, so ranks ask each other. False: the alarm is raised.
 */
static bool find_place(sherd_ghosts *const *list, int count, bool *there)
{
    sherd_world *world = list[0]->world;
    const sherd_mesh *mesh = list[0]->window->layout->spec.mesh;
    int64_t mine = 0, all[SHERD_MAX_RANKS];

    *there = false;
    if (!sherd__all_go_there(world, mesh))
        return true;
    for (int i = 0; i < count; i++)
        mine |= sherd__is_there(list[i]->cells);
    if (!sherd__share(world, mesh, fill_name, &mine, 1, all))
        return false;
    for (int64_t r = 0; r < mesh->count; r++)
        *there = *there || all[r];
    return true;
}

/* Bring the cells to the place where they are about to be written. False: the alarm is raised. */
static bool hold(sherd_ghosts *g, bool there)
{
    sherd__storage *storage = g->cells->storage;

    if (!there)
        return sherd__hold_here(storage);
    if (!sherd__device_data(g->cells))
        return false;
    storage->here = storage->bytes == 0;
    return true;
}

static bool are_given(sherd_ghosts *const *list, int count, const char *function)
{
    sherd_world *world = NULL;
    const char *fault = NULL;

    for (int i = 0; list && i < count && !world; i++)
        world = list[i] ? list[i]->world : NULL;
    if (!world)
        return false;
    for (int i = 0; i < count && !fault; i++)
        fault = !list[i] ? "a field is NULL"
                : list[i]->window->layout->spec.mesh != list[0]->window->layout->spec.mesh
                    ? "fields are on two meshes"
                    : NULL;
    if (fault)
        sherd__raise(world, SHERD_EINVAL, "%s: %s", function, fault);
    for (int i = 0; i < count && !fault; i++)
        if (list[i]->field->lost)
            sherd__raise_lost(list[i]->field, function);
    return !fault && !sherd__alarmed(world);
}

/* Fields whose steps have the same group go in one call; `moves` has room for all. */
static bool fill_all(sherd_ghosts *const *list, int count, sherd__move *moves, bool there,
                     bool begin)
{
    sherd_world *world = list[0]->world;
    bool good = true;
    int done = 0;

    for (int i = 0; done < count && good; i++) {
        const sherd_step *step = &list[i]->plan->step[0];
        int n = 0;
        for (int k = 0; k < count; k++) {
            bool same = list[k]->plan->step[0].axes == step->axes;
            if (same && k < i)
                break;
            if (same)
                moves[n++] = move_of(list[k], there);
        }
        if (n && step->kind != SHERD_STEP_SLICE)
            good = sherd__call(world, fill_name, moves, n, begin);
        for (int k = 0; n && k < n && good && step->kind == SHERD_STEP_SLICE; k++)
            good = sherd__slice(world, &moves[k]);
        done += n;
    }
    return good;
}

static bool fill(sherd_ghosts *const *list, int count, bool begin)
{
    enum { FEW = 16 };
    sherd__move few[FEW], *moves = few;

    if (count <= 0)
        return true;
    if (!are_given(list, count, begin ? "sherd_ghosts_begin_fill" : fill_name))
        return false;
    sherd_world *world = list[0]->world;
    const sherd_mesh *mesh = list[0]->window->layout->spec.mesh;
    if (!list[0]->window->inside)
        return true;
    if (count > FEW &&
        !(moves = sherd__alloc(sherd__world_heap(world), (size_t)count, sizeof *moves))) {
        sherd__raise(world, SHERD_ENOMEM, "%s: out of memory", fill_name);
        return false;
    }
    bool there, good = find_place(list, count, &there);
    for (int i = 0; i < count && good; i++)
        good = hold(list[i], there);
    good = good && fill_all(list, count, moves, there, begin);
    for (int i = 0; i < count && good; i++) {
        uint64_t identity;
        sherd__deed_add(mesh, fill_name, list[i]->field->ledger.identity, &identity);
    }
    if (moves != few)
        sherd__free(sherd__world_heap(world), moves);
    return good;
}

bool sherd_ghosts_fill(sherd_ghosts *const *ghosts, int count)
{
    return fill(ghosts, count, false);
}

bool sherd_ghosts_begin_fill(sherd_ghosts *const *ghosts, int count)
{
    return fill(ghosts, count, true);
}

/* ---- the cells ------------------------------------------------------------------------------- */

void *sherd_ghosts_data(sherd_ghosts *ghosts)
{
    if (!ghosts || ghosts->cells->count == 0 || !sherd__hold_here(ghosts->cells->storage) ||
        !sherd__block_writable(ghosts->world, ghosts->cells->storage->block))
        return NULL;
    sherd__mark_written(ghosts->cells);
    return sherd__block_data(ghosts->cells->storage->block);
}

const void *sherd_ghosts_peek(const sherd_ghosts *ghosts)
{
    if (!ghosts || !ghosts->cells->count || !sherd__bring_here(ghosts->cells->storage))
        return NULL;
    return sherd__block_data(ghosts->cells->storage->block);
}

sherd_box sherd_ghosts_box(const sherd_ghosts *ghosts)
{
    return ghosts ? ghosts->box : (sherd_box){.ndim = 0};
}

/* For the ledger it is the field itself, whenever a rank asks for it. */
sherd_tensor *sherd_ghosts_tensor(sherd_ghosts *ghosts)
{
    if (!ghosts)
        return NULL;
    sherd_tensor *t = sherd__new_view(ghosts->field);
    if (t->storage)
        t->ledger = ghosts->field->ledger;
    else
        sherd__raise_failed(ghosts->world, "sherd_ghosts_tensor");
    return t;
}
