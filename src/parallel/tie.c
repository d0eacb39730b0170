/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ties: one parameter of which two stages have a copy. When it is made, all ranks learn how both
 * copies lie, so that later nothing but the gradients has to be sent, each to where the other copy
 * is; and the second copy takes the values of the first. A run sets aside what earlier ones have
 * left in their gradients; at its end each side adds its own part and the other's, in one order, to
 * that. So both have the same bits, and as long as optimizers do the same, so have the copies.
 */
#include "parallel/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "autograd/tape.h"
#include "base/hash.h"
#include "layout/layout.h"
#include "nn/module.h"
#include "sherd/ops.h"
#include "layout/shape.h"

static const char name[] = "sherd_pipeline_tie", run_name[] = "sherd_pipeline_run";

/* What a side says of its gradient. */
enum { HAS = 1, WANTS = 2 };

/* ---- finding both copies --------------------------------------------------------------------- */

static bool is_here(const sherd_pipeline *p, int stage)
{
    return p->here == sherd__turns_place(&p->turns, stage);
}

/* The parameter at "path.name"; NULL: there is none. */
static sherd_tensor *parameter_at(sherd_module *m, const char *path)
{
    const char *dot = strrchr(path, '.');

    if (dot)
        m = sherd__module_at(m, path, (size_t)(dot - path));
    return sherd_module_parameter(m, dot ? dot + 1 : path);
}

/* Whether a parameter is one of an earlier tie. */
static bool is_tied(const sherd_pipeline *p, const sherd_tensor *t)
{
    for (const sherd__tie *tie = p->ties; tie; tie = tie->next)
        if (tie->p[0] == t || tie->p[1] == t)
            return true;
    return false;
}

static sherd_status find(sherd__tie *tie, const sherd_pipeline *p, int side, const char *path)
{
    sherd__diag *diag = sherd__world_diag(p->world);
    int stage = tie->stage[side];

    if (stage < 0 || stage >= p->turns.stages)
        return sherd__fail(diag, SHERD_EINVAL, "%s: stage %d of %d", name, stage, p->turns.stages);
    if (!is_here(p, stage))
        return SHERD_OK;
    sherd_tensor *t = parameter_at(p->stage[stage].module, path);
    const char *fault = !t                        ? "there is none"
                        : !t->layout              ? "it is plain: make the module parallel first"
                        : is_tied(p, t)           ? "it is tied already"
                        : t->layout->pending_axes ? "it has a pending reduction"
                                                  : NULL;
    if (fault)
        return sherd__fail(diag, SHERD_EINVAL, "%s: parameter \"%.100s\" of stage %d: %s", name,
                           path, stage, fault);
    tie->p[side] = sherd_tensor_retain(t);
    return SHERD_OK;
}

/* ---- telling all ranks how they lie ---------------------------------------------------------- */

/*
 * Bytes that the ranks of a stage have, told to those of another mesh; NULL: this rank is not one
 * of these, or failed, raised.
 */
static const void *told(const sherd_pipeline *p, int stage, const void *data, int64_t bytes,
                        const sherd_mesh *to_mesh, const sherd_mesh *among)
{
    const sherd_layout *from, *to;
    bool here = is_here(p, stage);

    if (sherd__replicated(&from, p->stage[stage].mesh, 1, &bytes) != SHERD_OK ||
        sherd__replicated(&to, to_mesh, 1, &bytes) != SHERD_OK) {
        sherd__raise_diag(p->world);
        return NULL;
    }
    sherd_tensor *t = sherd__new_on(from, SHERD_U8);
    void *dst = here && !sherd__is_failed(t) ? sherd__fresh(t) : NULL;
    if (sherd__is_failed(t) || (here && !dst))
        return NULL;
    if (here)
        memcpy(dst, data, (size_t)bytes);
    t = sherd__move_here(t, to, among, here && among != p->all);
    return !sherd__is_failed(t) && sherd__in_mesh(p->world, to_mesh) ? sherd_tensor_read(t) : NULL;
}

/*
 * In a dry world, how a copy lies that is not here: as the other one, if that is, on the axes of
 * that name. False: failed, raised.
 */
static bool suppose(const sherd_layout **out, sherd_dtype *dtype, const sherd__tie *tie,
                    const sherd_pipeline *p, int side)
{
    const sherd_mesh *mesh = p->stage[tie->stage[side]].mesh;
    const sherd_tensor *other = tie->p[!side];
    sherd_status status;

    *dtype = other ? other->dtype : SHERD_F32;
    if (other && sherd__same_axes(other->layout->spec.mesh, mesh)) {
        sherd__layout_spec spec = other->layout->spec;
        spec.mesh = mesh;
        status = sherd__layout_intern(out, &spec);
    } else {
        status = sherd__replicated(out, mesh, other ? other->ndim : 0, other ? other->shape : NULL);
    }
    if (status)
        sherd__raise_diag(p->world);
    return !status;
}

/* The text of one side, here, where it is told; the length is told before it. NULL: failed. */
static const char *told_text(const sherd__tie *tie, const sherd_pipeline *p, int side,
                             const char *dtype, const char *layout)
{
    int64_t length = (int64_t)(strlen(dtype) + strlen(layout)) + 1;
    const void *at = told(p, tie->stage[side], &length, sizeof length, p->all, p->all);

    if (!at)
        return NULL;
    if (!sherd__is_dry(p->world))
        memcpy(&length, at, sizeof length);
    char *text = sherd__alloc(sherd__world_heap(p->world), (size_t)length, 1);
    if (!text) {
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", name);
        return NULL;
    }
    snprintf(text, (size_t)length, "%s%s", dtype, layout);
    const char *all = told(p, tie->stage[side], text, length, p->all, p->all);
    sherd__free(sherd__world_heap(p->world), text);
    return all;
}

/* The layout and dtype of one side, on all ranks. False: failed, raised. */
static bool tell(sherd__tie *tie, const sherd_pipeline *p, int side)
{
    const sherd_tensor *t = tie->p[side];
    const sherd_layout *layout = t ? t->layout : NULL;
    sherd_dtype dtype = t ? t->dtype : SHERD_F32;
    bool dry = sherd__is_dry(p->world);

    if (!t && dry && !suppose(&layout, &dtype, tie, p, side))
        return false;
    const char *text =
        told_text(tie, p, side, layout ? sherd_dtype_name(dtype) : "", layout ? layout->text : "");
    int number = (int)dtype;
    if (!text)
        return false;
    if (!dry && sherd__layout_read(&layout, p->all->space, text, &number) != SHERD_OK) {
        sherd__raise_diag(p->world);
        return false;
    }
    tie->dtype[side] = (sherd_dtype)number;
    sherd__layout_set(&tie->layout[side], layout);
    return true;
}

static sherd_status compare(const sherd__tie *tie, const sherd_pipeline *p)
{
    const sherd_layout *a = tie->layout[0], *b = tie->layout[1];

    if (tie->dtype[0] == tie->dtype[1] &&
        sherd__same_shape(a->spec.ndim, a->spec.shape, b->spec.ndim, b->spec.shape))
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(p->world), SHERD_EINVAL,
                       "%s: stage %d has %s%.120s, and stage %d has %s%.120s: they must be alike",
                       name, tie->stage[0], sherd_dtype_name(tie->dtype[0]), a->text, tie->stage[1],
                       sherd_dtype_name(tie->dtype[1]), b->text);
}

/* ---- making one ------------------------------------------------------------------------------ */

static const sherd_mesh *lane_of(const sherd__tie *tie)
{
    return tie->channel ? tie->channel->lane[SHERD__FORTH] : NULL;
}

/*
 * What the other side gets of a tensor that lies as the parameter of this side does; `t` is NULL on
 * ranks that are not on this side. A sender does not wait.
 */
static sherd_tensor *pass(const sherd_pipeline *p, const sherd__tie *tie, int side, sherd_tensor *t)
{
    const sherd_layout *from = tie->layout[side], *to = tie->layout[!side];

    t = t ? t : sherd__new_on(from, tie->dtype[0]);
    if (sherd__is_failed(t) || from == to)
        return t;
    return sherd__move_planned(t, to, NULL, lane_of(tie),
                               tie->channel && is_here(p, tie->stage[side]));
}

static void release_copies(sherd__tie *tie)
{
    for (int side = 0; side < 2; side++) {
        sherd_tensor_release(tie->p[side]);
        tie->p[side] = NULL;
    }
}

static void destroy(sherd_world *world, sherd__tie *tie)
{
    sherd_channel_destroy(tie->channel);
    if (tie->counts)
        tie->p[1]->autograd.ties--;
    for (int side = 0; side < 2; side++) {
        sherd_tensor_release(tie->before[side]);
        sherd__layout_set(&tie->layout[side], NULL);
    }
    release_copies(tie);
    sherd__free(sherd__world_heap(world), tie);
}

void sherd__ties_destroy(sherd_pipeline *p)
{
    while (p->ties) {
        sherd__tie *tie = p->ties;
        p->ties = tie->next;
        destroy(p->world, tie);
    }
}

/* The status of what only raises. */
static sherd_status raised(const sherd_pipeline *p, bool good)
{
    sherd_status status = sherd__world_diag(p->world)->status;

    return good && !sherd__alarmed(p->world) ? SHERD_OK : status ? status : SHERD_EPEER;
}

/* The second copy takes the values of the first. */
static bool copy_values(const sherd__tie *tie, const sherd_pipeline *p)
{
    bool recording = sherd_set_recording(p->world, false);
    bool takes = is_here(p, tie->stage[1]), part = takes || is_here(p, tie->stage[0]);
    sherd_tensor *t = part ? pass(p, tie, 0, tie->p[0]) : NULL;

    if (takes && tie->p[0] != tie->p[1])
        t = sherd_copy_from(tie->p[1], t);
    sherd_set_recording(p->world, recording);
    return !part || !sherd_tensor_failed(t);
}

static sherd_status connect(sherd__tie *tie, const sherd_pipeline *p)
{
    const sherd_mesh *a = p->stage[tie->stage[0]].mesh, *b = p->stage[tie->stage[1]].mesh;

    sherd_scope_begin(p->world);
    sherd_status status = raised(p, tell(tie, p, 0) && tell(tie, p, 1));
    status = sherd__agree(p->world, status ? status : compare(tie, p), 0, name);
    if (!status && a != b)
        status = sherd__channel_create(&tie->channel, a, b, NULL, false, name);
    if (!status)
        status = sherd__agree(p->world, raised(p, copy_values(tie, p)), 1, name);
    sherd_scope_end(p->world);
    return status;
}

/*
 * Behind the ties that there are: all ranks take them in one order. One tensor that both stages
 * have gets the sum without us.
 */
static void append(sherd_pipeline *p, sherd__tie *tie)
{
    sherd__tie **end = &p->ties;

    while (*end)
        end = &(*end)->next;
    *end = tie;
    if (tie->p[0] == tie->p[1])
        release_copies(tie);
    tie->counts = tie->p[1] != NULL;
    if (tie->counts)
        tie->p[1]->autograd.ties++;
}

static sherd_status start(sherd__tie **out, const sherd_pipeline *p, const int stage[2],
                          const char *const path[2])
{
    sherd__tie *tie = sherd__alloc(sherd__world_heap(p->world), 1, sizeof *tie);

    *out = tie;
    if (!tie)
        return sherd__no_memory(sherd__world_diag(p->world), name);
    memcpy(tie->stage, stage, sizeof tie->stage);
    sherd_status status = find(tie, p, 0, path[0]);
    return status ? status : find(tie, p, 1, path[1]);
}

sherd_status sherd_pipeline_tie(sherd_pipeline *p, int a, const char *a_path, int b,
                                const char *b_path)
{
    const sherd__argument need[] = {
        {"pipeline", p}, {"a_path", a_path}, {"b_path", b_path}, {NULL, NULL}};
    sherd_status status = sherd__require(p ? sherd__world_diag(p->world) : NULL, name, need);
    sherd__tie *tie = NULL;
    uint64_t hash = 0;

    if (!p)
        return status;
    if (p->kept) /* others are in the middle of it, and will not come to a meeting */
        return sherd__raise(p->world, SHERD_EINVAL, "%s: the pipeline is running", name);
    if (!status) {
        status = start(&tie, p, (int[]){a, b}, (const char *[]){a_path, b_path});
        hash = sherd__hash_word((uint64_t)a, (uint64_t)b);
        hash = sherd__hash_text(sherd__hash_text(hash, a_path), b_path);
    }
    status = sherd__agree(p->world, status, status ? 0 : hash, name);
    if (!status)
        status = connect(tie, p);
    if (!status)
        append(p, tie);
    else if (tie)
        destroy(p->world, tie);
    return status;
}

/* ---- a run ----------------------------------------------------------------------------------- */

void sherd__ties_begin(sherd_pipeline *p)
{
    for (sherd__tie *tie = p->ties; tie; tie = tie->next)
        for (int side = 0; side < 2; side++) {
            sherd_tensor *t = tie->p[side], *grad = t ? sherd__raw_grad(t) : NULL;
            if (t && t->placed_as)
                sherd__raise(p->world, SHERD_EINVAL,
                             "%s: a tied parameter of stage %d got another layout or dtype after "
                             "sherd_pipeline_tie: tie it afterwards",
                             run_name, tie->stage[side]);
            if (!grad)
                continue;
            tie->before[side] = sherd_tensor_retain(grad);
            sherd__set_grad(t, NULL);
        }
}

/* What both sides say of their gradients, on the ranks of both. False: failed, raised. */
static bool exchange(const sherd_pipeline *p, const sherd__tie *tie, uint8_t says[2])
{
    for (int side = 0; side < 2; side++)
        if (tie->p[side])
            says[side] = (uint8_t)((sherd__raw_grad(tie->p[side]) ? HAS : 0) |
                                   (sherd_requires_grad(tie->p[side]) ? WANTS : 0));
    for (int side = 0; side < 2 && tie->channel; side++) {
        const sherd_mesh *to = p->stage[tie->stage[!side]].mesh;
        const uint8_t *at = told(p, tie->stage[side], &says[side], 1, to, lane_of(tie));
        if (at)
            says[side] = sherd__is_dry(p->world) ? says[!side] : *at;
        else if (tie->p[!side] || sherd__alarmed(p->world))
            return false;
    }
    if (!((says[0] ^ says[1]) & WANTS))
        return true;
    sherd__raise(p->world, SHERD_EINVAL,
                 "%s: of the tied parameters of stages %d and %d one wants a gradient, and the "
                 "other does not",
                 run_name, tie->stage[0], tie->stage[1]);
    return false;
}

/*
 * The gradient of this side in the layout of its parameter, as a tensor of the scope, which a new
 * gradient does not free; NULL where the parameter is not.
 */
static sherd_tensor *own_part(const sherd__tie *tie, int side)
{
    sherd_tensor *t = tie->p[side];

    return t ? sherd_detach(sherd_cast(sherd__settled_grad(t), t->dtype)) : NULL;
}

/* What earlier runs have left, and the sum of both parts (NULL: none). False: failed. */
static bool put(sherd__tie *tie, int side, sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *sum = a && b ? sherd_add(a, b) : sherd_clone(a ? a : b);

    if (!sherd_tensor_failed(sum) && tie->before[side])
        sum = sherd__accumulate(tie->before[side], sum);
    if (sherd_tensor_failed(sum))
        return false;
    sherd__set_grad(tie->p[side], sum);
    sherd_tensor_release(tie->before[side]);
    tie->before[side] = NULL;
    return true;
}

static bool add(const sherd_pipeline *p, sherd__tie *tie)
{
    sherd_tensor *part[2][2] = {{NULL}}; /* the gradient of a side, as the other side has it */
    uint8_t says[2] = {0};
    bool good = exchange(p, tie, says);

    for (int side = 0; side < 2 && good; side++) {
        if (!(says[side] & HAS))
            continue;
        sherd_tensor *own = own_part(tie, side);
        part[side][side] = own;
        part[side][!side] = own && sherd_tensor_failed(own) ? own : pass(p, tie, side, own);
        good = !sherd_tensor_failed(part[side][!side]);
    }
    for (int side = 0; side < 2 && good && (says[0] | says[1]) & HAS; side++)
        good = !tie->p[side] || put(tie, side, part[0][side], part[1][side]);
    return good;
}

bool sherd__ties_add(sherd_pipeline *p)
{
    bool recording = sherd_set_recording(p->world, false), good = true;

    for (sherd__tie *tie = p->ties; tie && good; tie = tie->next) {
        sherd_scope_begin(p->world);
        good = (!tie->p[0] && !tie->p[1]) || add(p, tie);
        sherd_scope_end(p->world);
    }
    sherd_set_recording(p->world, recording);
    return good;
}

void sherd__ties_end(sherd_pipeline *p)
{
    for (sherd__tie *tie = p->ties; tie; tie = tie->next)
        for (int side = 0; side < 2; side++) {
            if (tie->before[side])
                sherd__set_grad(tie->p[side], tie->before[side]);
            sherd_tensor_release(tie->before[side]);
            tie->before[side] = NULL;
        }
}
