/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels. A send is a call of the ranks of both meshes (sherd_redistribute_options.among) for a
 * head, which says how many tensors come and how they lie, and one for each tensor; a sender makes
 * them without waiting, and a receiver knows from the head what to call for next. Each channel has
 * a lane of its own, a mesh of one axis, because calls of one group come in one order on all ranks.
 * So lanes are numbered, and a number is used again when its channel is gone: lanes stay as long as
 * the world.
 */
#include "parallel/channel.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "layout/layout.h"
#include "apply/operator.h"

/* What comes before the tensors: the layouts as a text, or as much of it as there is room for. */
typedef struct head {
    int64_t mark, length;
    int32_t count;
    uint32_t wants;
    char text[232];
} head;

/* ---- making one ------------------------------------------------------------------------------ */

bool sherd__same_axes(const sherd_mesh *a, const sherd_mesh *b)
{
    bool same = a->axes == b->axes;

    for (int i = 0; i < a->axes && same; i++)
        same = a->extent[i] == b->extent[i] && strcmp(a->name[i], b->name[i]) == 0;
    return same;
}

static sherd_status check(const sherd_mesh *from, const sherd_mesh *to, const char *function)
{
    sherd__diag *diag = from->space->diag;

    if (from->space != to->space)
        return sherd__fail(diag, SHERD_EINVAL, "%s: (%s) and (%s) are of different worlds",
                           function, from->text, to->text);
    if (from->root != from || to->root != to)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: from (%s) to (%s): one of them is a part of a mesh; "
                           "sherd_mesh_select makes a mesh of some ranks",
                           function, from->text, to->text);
    int rank = sherd__shared_rank(from, to);
    return rank < 0 ? SHERD_OK
                    : sherd__fail(diag, SHERD_EINVAL, "%s: (%s) and (%s) share rank %d", function,
                                  from->text, to->text, rank);
}

/* Whether placements can be read for a tensor of some number of dims. What depends on the shape, as
 * cuts do, is read when something is sent. */
static sherd_status check_text(const sherd_mesh *to, const char *placements, const char *function)
{
    const int64_t ones[SHERD_MAX_DIMS] = {1, 1, 1, 1, 1, 1, 1, 1};
    const sherd_layout *unused;
    sherd_status status = SHERD_OK;

    if (!placements || strpbrk(placements, "[{ "))
        return SHERD_OK;
    for (int ndim = 0; ndim <= SHERD_MAX_DIMS && (ndim == 0 || status); ndim++) {
        const sherd__target target = {
            .function = function, .mesh = to, .ndim = ndim, .shape = ones};
        status = sherd__target_read(&unused, &target, placements);
    }
    return status;
}

static sherd_status make(sherd_channel **out, const sherd_mesh *from, const sherd_mesh *to,
                         const char *placements, const char *function)
{
    sherd_world *world = sherd__space_world(from->space);
    sherd__heap *heap = sherd__world_heap(world);
    sherd_status status = check(from, to, function);
    if (!status)
        status = check_text(to, placements, function);
    sherd_channel *c = status ? NULL : sherd__alloc(heap, 1, sizeof *c);

    if (status)
        return status;
    if (c) {
        *c = (sherd_channel){.world = world,
                             .from = from,
                             .to = to,
                             .placements = placements ? sherd__copy_text(heap, placements) : NULL,
                             .number = sherd__lane_number_take(world),
                             .alike = sherd__same_axes(from, to),
                             .sends = sherd__in_mesh(world, from),
                             .receives = sherd__in_mesh(world, to)};
        if (c->number >= 0 && (c->placements || !placements))
            *out = c;
        else
            sherd_channel_destroy(c);
    }
    return *out ? SHERD_OK : sherd__no_memory(from->space->diag, function);
}

sherd_status sherd__channel_create(sherd_channel **out, const sherd_mesh *from,
                                   const sherd_mesh *to, const char *placements, bool back,
                                   const char *function)
{
    sherd_world *world = sherd__space_world(from->space);
    sherd_channel *c = NULL;
    sherd_status status = make(&c, from, to, placements, function);
    uint64_t hash = sherd__hash_text(sherd__hash_word(from->hash, to->hash),
                                     placements ? placements : "as before");

    status = sherd__agree(world, status, status ? 0 : hash, function);
    if (!status)
        status = sherd__lanes_make(c, back ? SHERD__BACK : SHERD__FORTH, function);
    if (status)
        sherd_channel_destroy(c);
    *out = status ? NULL : c;
    return status;
}

sherd_status sherd_channel_create(sherd_channel **out, const sherd_mesh *from, const sherd_mesh *to,
                                  const char *placements)
{
    static const char function[] = "sherd_channel_create";
    const sherd__argument list[] = {{"out", out}, {"from", from}, {"to", to}, {NULL, NULL}};
    const sherd_mesh *any = from ? from : to;
    sherd_world *world = any ? sherd__space_world(any->space) : NULL;
    sherd_status status = sherd__require(sherd__world_diag(world), function, list);

    if (out)
        *out = NULL;
    if (status)
        return world ? sherd__agree(world, status, 0, function) : status;
    return sherd__channel_create(out, from, to, placements, false, function);
}

void sherd_channel_destroy(sherd_channel *c)
{
    if (!c)
        return;
    sherd__heap *heap = sherd__world_heap(c->world);
    if (c->number >= 0)
        sherd__lane_number_give(c->world, c->number);
    sherd__free(heap, c->placements);
    sherd__free(heap, c);
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Raise the failure that a lower room has written down. */
static bool failed(const sherd_channel *c)
{
    sherd__raise_diag(c->world);
    return false;
}

/* The layout of a tensor on arrival, from its layout before; the same on all ranks of both. */
static sherd_status arrival(const sherd_layout **out, const sherd_channel *c,
                            const sherd_layout *from, const char *function)
{
    if (c->placements) {
        const sherd__target target = {.function = function,
                                      .mesh = c->to,
                                      .ndim = from->spec.ndim,
                                      .shape = from->spec.shape};
        return sherd__target_read(out, &target, c->placements);
    }
    if (!c->alike)
        return sherd__replicated(out, c->to, from->spec.ndim, from->spec.shape);
    sherd__layout_spec spec = from->spec;
    spec.mesh = c->to;
    return sherd__layout_intern(out, &spec);
}

static sherd_tensor *bytes_on(const sherd_mesh *mesh, int64_t bytes)
{
    const sherd_layout *layout;

    if (sherd__replicated(&layout, mesh, 1, &bytes) != SHERD_OK)
        return sherd__fail_diag(sherd__space_world(mesh->space), true);
    return sherd__new_on(layout, SHERD_U8);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Bytes of a head; as all calls of a lane, a sender only begins it. */
static sherd_tensor *pass_head(const sherd_channel *c, sherd_tensor *t, const sherd_layout *to)
{
    return sherd__move_here(t, to, c->lane[SHERD__FORTH], c->sends);
}

/* One tensor by one lane; `t` lies as `from` where this rank is on that side. */
static sherd_tensor *pass(const sherd_channel *c, int lane, sherd_tensor *t, const sherd_layout *to)
{
    bool sends = lane == SHERD__FORTH ? c->sends : c->receives;

    return sherd__is_failed(t) ? t : sherd__move_planned(t, to, NULL, c->lane[lane], sends);
}

static bool pass_bytes(const sherd_channel *c, const void *data, int64_t bytes)
{
    const sherd_layout *to;
    sherd_tensor *t = bytes_on(c->from, bytes);

    if (sherd__is_dry(c->world) && !sherd__dry_sends(c->world, sherd__channel_name(c), data, bytes))
        return false;
    if (sherd__is_failed(t) || !sherd__block_writable(c->world, t->storage->block))
        return false;
    memcpy(sherd__block_data(t->storage->block), data, (size_t)bytes);
    if (sherd__replicated(&to, c->to, 1, &bytes) != SHERD_OK)
        return failed(c);
    return !sherd__is_failed(pass_head(c, t, to));
}

/* "f32[8(dp),4] on (dp=2);..." into text[room]; returns the length of all. */
static int64_t write_layouts(const sherd__channel_parcel *p, char *text, int64_t room)
{
    int64_t at = 0;

    for (int i = 0; i < p->count; i++)
        at += snprintf(at < room ? text + at : NULL, at < room ? (size_t)(room - at) : 0, "%s%s;",
                       sherd_dtype_name(p->t[i]->dtype), p->from[i]->text);
    return at;
}

static bool put_head(const sherd_channel *c, const sherd__channel_parcel *p)
{
    sherd__heap *heap = sherd__world_heap(c->world);
    head h = {.mark = p->mark, .count = p->count, .wants = p->wants};
    const int64_t room = sizeof h.text;

    h.length = write_layouts(p, h.text, room);
    if (!pass_bytes(c, &h, sizeof h))
        return false;
    if (h.length < room)
        return true;
    char *text = sherd__alloc(heap, (size_t)h.length + 1, 1);
    if (!text) {
        sherd__raise(c->world, SHERD_ENOMEM, "sherd_channel_send: out of memory");
        return false;
    }
    write_layouts(p, text, h.length + 1);
    bool good = pass_bytes(c, text, h.length + 1);
    sherd__free(heap, text);
    return good;
}

bool sherd__channel_put(sherd_channel *c, sherd__channel_parcel *p, const char *function)
{
    for (int i = 0; i < p->count; i++) {
        p->from[i] = p->t[i]->layout;
        if (arrival(&p->to[i], c, p->from[i], function) != SHERD_OK)
            return failed(c);
    }
    bool good = put_head(c, p);
    for (int i = 0; i < p->count && good; i++)
        good = !sherd__is_failed(pass(c, SHERD__FORTH, p->t[i], p->to[i]));
    return good;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* In a dry world: the bytes that a rank of those that send has left. NULL: failed. */
static const char *heard_bytes(sherd_channel *c, sherd_tensor *t, int64_t bytes)
{
    void *data = sherd__mutable(t);

    return data && sherd__dry_receives(c->world, sherd__channel_name(c), &c->heard, data, bytes)
               ? data
               : NULL;
}

/* The bytes that come next, in a tensor of the scope; NULL: failed. */
static const char *take_bytes(sherd_channel *c, int64_t bytes)
{
    const sherd_layout *to;
    sherd_tensor *t = bytes_on(c->from, bytes);

    if (sherd__is_failed(t))
        return NULL;
    if (sherd__replicated(&to, c->to, 1, &bytes) != SHERD_OK)
        sherd__fail_diag(c->world, true);
    else
        t = pass_head(c, t, to);
    if (t->layout != to || sherd__is_failed(t))
        return NULL;
    return sherd__is_dry(c->world) ? heard_bytes(c, t, bytes) : sherd_tensor_read(t);
}

/* The layouts and dtypes of what comes. */
static bool read_layouts(const sherd_channel *c, sherd__channel_parcel *p, char *text,
                         const char *function)
{
    for (int i = 0; i < p->count; i++) {
        char *end = strchr(text, ';');
        int dtype = 0;
        if (end)
            *end = '\0';
        if (!end || sherd__layout_read(&p->from[i], c->from->space, text, &dtype) != SHERD_OK ||
            arrival(&p->to[i], c, p->from[i], function) != SHERD_OK)
            return failed(c);
        p->t[i] = sherd__new_on(p->from[i], (sherd_dtype)dtype);
        text = end + 1;
    }
    return true;
}

static bool take_head(sherd_channel *c, sherd__channel_parcel *p, const char *function)
{
    sherd__heap *heap = sherd__world_heap(c->world);
    const char *bytes = take_bytes(c, sizeof(head));
    head h;

    if (!bytes)
        return false;
    memcpy(&h, bytes, sizeof h);
    p->count = h.count;
    p->wants = h.wants;
    p->mark = h.mark;
    bool fits = h.length < (int64_t)sizeof h.text;
    if (!fits && !(bytes = take_bytes(c, h.length + 1)))
        return false;
    char *text = sherd__alloc(heap, (size_t)h.length + 1, 1);
    if (!text) {
        sherd__raise(c->world, SHERD_ENOMEM, "%s: out of memory", function);
        return false;
    }
    memcpy(text, fits ? h.text : bytes, (size_t)h.length + 1);
    bool good = read_layouts(c, p, text, function);
    sherd__free(heap, text);
    return good;
}

bool sherd__channel_take(sherd_channel *c, sherd__channel_parcel *p, const char *function)
{
    bool good = take_head(c, p, function);

    for (int i = 0; good && i < p->count; i++) {
        p->t[i] = pass(c, SHERD__FORTH, p->t[i], p->to[i]);
        good = !sherd__is_failed(p->t[i]);
    }
    return good;
}

sherd_tensor *sherd__channel_return(sherd_channel *c, sherd_tensor *t, sherd_dtype dtype,
                                    const sherd_layout *from, const sherd_layout *to)
{
    return pass(c, SHERD__BACK, t ? t : sherd__new_on(to, dtype), from);
}

/* ---- for everybody --------------------------------------------------------------------------- */

/* Whether this rank may send or receive now; if not, the call has failed. */
static bool may(const sherd_channel *c, bool here, const sherd_mesh *mesh, int count,
                const void *list, const char *function)
{
    if (here && count >= 0 && count <= SHERD_MAX_ARGS && (list || count == 0))
        return true;
    if (!here)
        sherd__raise(c->world, SHERD_EINVAL, "%s: rank %d is not in (%s)", function,
                     sherd_world_rank(c->world), mesh->text);
    else
        sherd__raise(c->world, SHERD_EINVAL, "%s: %d tensors%s; 0 to %d can travel", function,
                     count, list ? "" : ", but the list is NULL", SHERD_MAX_ARGS);
    return false;
}

sherd_tensor *sherd__channel_ready(const sherd_channel *c, sherd_tensor *t, int i,
                                   const char *function)
{
    if (!t || sherd__is_failed(t)) {
        if (!t)
            sherd__raise(c->world, SHERD_EINVAL, "%s: tensor %d is NULL", function, i);
        else
            sherd__raise_failed(c->world, function);
        return sherd__failed(c->world);
    }
    t = sherd__without_pending(sherd__promote_recorded(t, c->from, function));
    if (!sherd__is_failed(t) && t->layout->spec.mesh != c->from)
        t = sherd__fail_tensor(c->world, true, SHERD_EINVAL,
                               "%s: tensor %d is %s, but what is sent comes from (%s)", function, i,
                               sherd_tensor_text(t), c->from->text);
    return t;
}

void sherd_channel_send(sherd_channel *c, sherd_tensor *const *t, int count)
{
    static const char function[] = "sherd_channel_send";
    sherd__channel_parcel p = {.count = count};

    if (!c || !may(c, c->sends, c->from, count, t, function) || sherd__alarmed(c->world))
        return;
    sherd_scope_begin(c->world);
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        p.t[i] = sherd__channel_ready(c, t[i], i, function);
        good = !sherd__is_failed(p.t[i]);
    }
    if (good)
        sherd__channel_put(c, &p, function);
    sherd_scope_end(c->world);
}

/* The tensors of a send, from an inner scope to the one around. False: failed. */
static bool receive(sherd_channel *c, sherd_tensor **out, int count, const char *function)
{
    sherd__channel_parcel p = {.count = 0};

    if (!sherd__channel_take(c, &p, function))
        return false;
    if (p.count != count) {
        sherd__raise(c->world, SHERD_EDIFFER, "%s: (%s) sends %d tensors, and %d are received",
                     function, c->from->text, p.count, count);
        return false;
    }
    for (int i = 0; i < count; i++)
        out[i] = sherd_scope_pass(p.t[i]);
    return true;
}

void sherd_channel_receive(sherd_channel *c, sherd_tensor **out, int count)
{
    static const char function[] = "sherd_channel_receive";

    bool good = c && may(c, c->receives, c->to, count, out, function) && !sherd__alarmed(c->world);

    if (good) {
        sherd_scope_begin(c->world);
        good = receive(c, out, count, function);
        sherd_scope_end(c->world);
    }
    for (int i = 0; !good && out && i < count; i++)
        out[i] = c ? sherd__failed(c->world) : NULL;
}
