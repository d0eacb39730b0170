/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts made from layouts: see sketch.h. The cuts of a slice follow from those of the operand, so
 * that nothing has to move; so do those of a dim that is padded. Runs once for each new set of
 * layouts.
 */
#include "sketch.h"

#include "base/saturate.h"

void sherd__sketch_begin(sherd__sketch *s, const sherd_layout *from)
{
    s->spec = from->spec;
    s->space = from->space;
    s->made = 0;
    s->failed = false;
}

void sherd__spec_sums(sherd__layout_spec *spec, unsigned axes)
{
    for (int a = 0; a < SHERD_MAX_AXES; a++)
        spec->pending[a] = axes >> a & 1 ? SHERD_SUM : -1;
}

void sherd__sketch_begin_sums(sherd__sketch *s, const sherd_layout *from, unsigned pending)
{
    sherd__sketch_begin(s, from);
    sherd__spec_sums(&s->spec, pending);
}

static int64_t parts_of(const sherd__sketch *s, int d)
{
    return sherd__dim_parts(s->spec.mesh, &s->spec.dim[d]);
}

int64_t *sherd__sketch_cuts(sherd__sketch *s, int d)
{
    int64_t *cuts = NULL;

    if (s->made < 2 * SHERD_MAX_DIMS)
        cuts = sherd__alloc(s->space->heap, sherd__bytes(parts_of(s, d) + 1), sizeof *cuts);
    if (cuts)
        s->cuts[s->made++] = cuts;
    else
        s->failed = true;
    return cuts;
}

/*
 * Write out the cuts of dim d, which are then explicit. NULL if it is not sharded, or if memory
 * runs out.
 */
static int64_t *write_cuts(sherd__sketch *s, int d)
{
    if (!s->spec.dim[d].axes)
        return NULL;
    int64_t *cuts = sherd__sketch_cuts(s, d);
    if (cuts) {
        sherd__dim_cuts(s->spec.mesh, &s->spec.dim[d], s->spec.shape[d], cuts);
        s->spec.dim[d].cuts = cuts;
    }
    return cuts;
}

unsigned sherd__sums_of(const sherd_layout *layout)
{
    unsigned bits = 0;

    for (int a = 0; a < layout->spec.mesh->axes; a++)
        bits |= layout->spec.pending[a] == SHERD_SUM ? 1u << a : 0;
    return bits;
}

/* A rank has the indices of the part from the first one not below its cut. */
void sherd__sketch_part(sherd__sketch *s, int d, sherd__part part)
{
    int64_t *cuts = write_cuts(s, d);

    for (int64_t i = 0; cuts && i <= parts_of(s, d); i++) {
        int64_t behind = cuts[i] - part.start;
        cuts[i] = behind <= 0 ? 0 : sherd__min((behind - 1) / part.step + 1, part.count);
    }
    s->spec.shape[d] = part.count;
}

void sherd__sketch_around(sherd__sketch *s, int d, int64_t n, sherd__part part)
{
    int64_t *cuts = part.count ? write_cuts(s, d) : NULL;

    if (!part.count)
        s->spec.dim[d].cuts = NULL; /* nobody has any: the default */
    for (int64_t i = 0; cuts && i <= parts_of(s, d); i++)
        cuts[i] = cuts[i] == 0 ? 0 : cuts[i] == part.count ? n : part.start + cuts[i] * part.step;
    s->spec.shape[d] = n;
}

void sherd__sketch_move_axes(sherd__sketch *s, int from, int to)
{
    sherd__dim *home = &s->spec.dim[to], before = *home;

    for (int i = 0; i < s->spec.dim[from].axes; i++)
        home->axis[home->axes++] = s->spec.dim[from].axis[i];
    s->spec.dim[from] = (sherd__dim){0};
    if (!before.cuts)
        return;
    int64_t *cuts = sherd__sketch_cuts(s, to);
    if (!cuts)
        return;
    sherd__dim_refine(s->spec.mesh, &before, before.axes, home, s->spec.shape[to], cuts);
    home->cuts = cuts;
}

sherd__dim sherd__dim_without(const sherd__dim *dim, unsigned bits)
{
    sherd__dim out = {0};

    for (int i = 0; i < dim->axes; i++)
        if (!(bits >> dim->axis[i] & 1))
            out.axis[out.axes++] = dim->axis[i];
    if (out.axes == dim->axes)
        out.cuts = dim->cuts;
    return out;
}

sherd_status sherd__sketch_end(const sherd_layout **out, sherd__sketch *s, const char *name)
{
    sherd_status status =
        s->failed ? sherd__no_memory(s->space->diag, name) : sherd__layout_intern(out, &s->spec);

    for (int i = 0; i < s->made; i++)
        sherd__free(s->space->heap, s->cuts[i]);
    return status;
}

int64_t sherd__elements_beside(const sherd__layout_spec *spec, int dim)
{
    int64_t n = 1;

    for (int d = 0; d < spec->ndim; d++)
        if (d != dim)
            n = sherd__times(n, sherd__dim_longest(spec->mesh, &spec->dim[d], spec->shape[d]));
    return n;
}

bool sherd__dims_equal(const sherd_layout *a, const sherd_layout *b)
{
    for (int d = 0; d < a->spec.ndim; d++)
        if (!sherd__dim_equal(a->spec.mesh, &a->spec.dim[d], &b->spec.dim[d], a->spec.shape[d]))
            return false;
    return true;
}

/* ---- dims made whole ------------------------------------------------------------------------- */

/*
 * Add one way: the operand in a layout, and all results sharded alike, in their own shapes. What
 * they have more dims at the end, or less, is whole.
 */
static sherd_status add_whole(const sherd_call *call, sherd_ways *ways, sherd__sketch *s,
                              unsigned dims)
{
    const sherd_layout *operand = NULL, *result[SHERD_MAX_RESULTS] = {NULL};
    sherd_status status = sherd__sketch_end(&operand, s, call->op->name);

    for (int j = 0; j < call->results && !status; j++) {
        sherd__layout_spec spec = operand->spec;
        spec.ndim = call->ndim[j];
        for (int d = 0; d < spec.ndim; d++) {
            if (dims >> d & 1 || d >= operand->spec.ndim)
                spec.shape[d] = call->shape[j][d];
            if (d >= operand->spec.ndim)
                spec.dim[d] = (sherd__dim){0};
        }
        status = sherd__layout_intern(&result[j], &spec);
    }
    return status ? status : sherd_way_add(ways, &operand, result);
}

/* The operand without shards on the dims: moved to dim `home`, or gathered (-1). */
static void empty_dims(sherd__sketch *s, const sherd_layout *from, unsigned dims, int home,
                       sherd__passes passes)
{
    sherd__sketch_begin(s, from);
    for (int d = 0; d < s->spec.ndim; d++) {
        if (!(dims >> d & 1) || !s->spec.dim[d].axes)
            continue;
        if (home >= 0)
            sherd__sketch_move_axes(s, d, home);
        s->spec.dim[d] = (sherd__dim){0};
    }
    for (int a = 0; a < s->spec.mesh->axes; a++)
        if (passes == SHERD__PASS_NONE ||
            (passes == SHERD__PASS_SUMS && s->spec.pending[a] != SHERD_SUM))
            s->spec.pending[a] = -1;
}

sherd_status sherd__homes_ways(const sherd_call *call, sherd_ways *ways, unsigned dims,
                               const int *home, int homes, sherd__passes passes)
{
    const sherd_layout *from = call->in[0]->layout;
    bool sharded = false;
    sherd_status status;
    sherd__sketch s;

    for (int d = 0; d < from->spec.ndim; d++)
        sharded |= (dims >> d & 1) && from->spec.dim[d].axes;
    empty_dims(&s, from, dims, -1, passes);
    status = add_whole(call, ways, &s, dims);
    for (int i = 0; i < homes && sharded && !status; i++) {
        empty_dims(&s, from, dims, home[i], passes);
        status = add_whole(call, ways, &s, dims);
    }
    return status;
}

sherd_status sherd__whole_ways(const sherd_call *call, sherd_ways *ways, unsigned dims,
                               sherd__passes passes)
{
    const sherd_layout *from = call->in[0]->layout;
    int home[SHERD_MAX_DIMS], homes = 0;

    for (int d = 0; d < from->spec.ndim; d++)
        if (!(dims >> d & 1) && from->spec.shape[d] > 1)
            home[homes++] = d;
    return sherd__homes_ways(call, ways, dims, home, homes, passes);
}

/* ---- dims as they are given ------------------------------------------------------------------ */

int sherd__dim_of(int dim, int ndim)
{
    return dim < -ndim || dim >= ndim ? -1 : dim < 0 ? dim + ndim : dim;
}

bool sherd__dims_of(unsigned *bits, const int *dims, int count, int ndim)
{
    *bits = count < 0 ? (1u << ndim) - 1 : 0;
    for (int i = 0; i < count; i++) {
        int d = sherd__dim_of(dims[i], ndim);
        if (d < 0 || *bits >> d & 1)
            return false;
        *bits |= 1u << d;
    }
    return true;
}
