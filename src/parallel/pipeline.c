/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making a pipeline: stages find their places, neighbours get a channel, and all ranks a mesh by
 * which they learn the loss. Costs a meeting of the world for each channel's two lanes.
 */
#include "parallel/pipeline.h"

#include "base/hash.h"
#include "layout/layout.h"

static const char create_name[] = "sherd_pipeline_create";

/* ---- what is asked for ----------------------------------------------------------------------- */

static sherd_status check_stage(sherd_world *world, const sherd_stage *s, int i)
{
    sherd__diag *diag = sherd__world_diag(world);

    if (!s->mesh)
        return sherd__fail(diag, SHERD_EINVAL, "%s: stage %d has no mesh", create_name, i);
    if (sherd__space_world(s->mesh->space) != world)
        return sherd__fail(diag, SHERD_EINVAL, "%s: stage %d: (%s) is of another world",
                           create_name, i, s->mesh->text);
    if (s->mesh->root != s->mesh)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: stage %d: (%s) is a part of (%s); sherd_mesh_select makes a mesh "
                           "of some ranks",
                           create_name, i, s->mesh->text, s->mesh->root->text);
    if (!sherd__in_mesh(world, s->mesh))
        return SHERD_OK;
    if (!s->module)
        return sherd__fail(diag, SHERD_EINVAL, "%s: stage %d has no module on rank %d", create_name,
                           i, sherd_world_rank(world));
    if (sherd_module_world(s->module) != world)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the module of stage %d is of another world",
                           create_name, i);
    return SHERD_OK;
}

/* How many stages there are before the first mesh comes again; or half of them. */
static int count_places(const sherd_stage *stages, int count, sherd_pipeline_schedule schedule)
{
    int places = 1;

    if (schedule == SHERD_PIPELINE_ZERO_BUBBLE_V)
        return count > 1 ? count / 2 : 1;
    while (places < count && stages[places].mesh != stages[0].mesh)
        places++;
    return places;
}

/* Stages come round in turn, or there and back, and places share no rank. */
static sherd_status check_places(sherd_world *world, const sherd_stage *stages,
                                 const sherd__turns *t)
{
    sherd__diag *diag = sherd__world_diag(world);
    bool v = t->schedule == SHERD_PIPELINE_ZERO_BUBBLE_V;
    int places = t->places;

    if (v && t->stages != 2 * places)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: %d stages: ZERO_BUBBLE_V takes two at each place", create_name,
                           t->stages);

    for (int i = 0; i < places; i++)
        for (int j = 0; j < i; j++) {
            int rank = sherd__shared_rank(stages[i].mesh, stages[j].mesh);
            if (rank >= 0)
                return sherd__fail(diag, SHERD_EINVAL,
                                   "%s: stages %d (%s) and %d (%s) share rank %d", create_name, j,
                                   stages[j].mesh->text, i, stages[i].mesh->text, rank);
        }
    for (int i = places; i < t->stages; i++) {
        int place = sherd__turns_place(t, i);
        if (stages[i].mesh != stages[place].mesh)
            return sherd__fail(diag, SHERD_EINVAL,
                               "%s: stage %d is at (%s), and should be at (%s) as stage %d is: "
                               "%d places take stages %s",
                               create_name, i, stages[i].mesh->text, stages[place].mesh->text,
                               place, places, v ? "there and back" : "in turn");
    }
    return SHERD_OK;
}

static sherd__turns turns_of(const sherd_stage *stages, int count, sherd_pipeline_schedule schedule)
{
    return (sherd__turns){
        .places = count_places(stages, count, schedule), .stages = count, .schedule = schedule};
}

static sherd_status check(sherd_world *world, const sherd_stage *stages, int count,
                          sherd_pipeline_schedule schedule)
{
    sherd__diag *diag = sherd__world_diag(world);
    sherd_status status = SHERD_OK;

    if (count < 1 || !stages)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d stages%s", create_name, count,
                           stages ? "" : ", but the list is NULL");
    if (schedule < SHERD_PIPELINE_1F1B || schedule > SHERD_PIPELINE_ZERO_BUBBLE_V)
        return sherd__fail(diag, SHERD_EINVAL, "%s: no schedule has the number %d", create_name,
                           (int)schedule);
    for (int i = 0; i < count && !status; i++)
        status = check_stage(world, &stages[i], i);
    const sherd__turns t = turns_of(stages, status ? 0 : count, schedule);
    return status ? status : check_places(world, stages, &t);
}

/* What all ranks must ask for alike. */
static uint64_t hash_of(const sherd_stage *stages, int count, sherd_pipeline_schedule schedule)
{
    uint64_t hash = sherd__hash_word((uint64_t)count, (uint64_t)schedule);

    for (int i = 0; i < count; i++) {
        hash = sherd__hash_word(hash, stages[i].mesh->hash);
        hash = sherd__hash_text(hash, stages[i].input ? stages[i].input : "as before");
    }
    return hash;
}

/* ---- making it ------------------------------------------------------------------------------- */

static sherd_pipeline *start(sherd_world *world, const sherd_stage *stages, int count,
                             sherd_pipeline_schedule schedule)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd_pipeline *p = sherd__alloc(heap, 1, sizeof *p);

    if (!p)
        return NULL;
    p->world = world;
    p->here = -1;
    p->turns = turns_of(stages, count, schedule);
    p->stage = sherd__alloc(heap, (size_t)count, sizeof *p->stage);
    p->from = sherd__alloc(heap, (size_t)count, sizeof(sherd_channel *));
    if (!p->stage || !p->from) {
        sherd_pipeline_destroy(p);
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        p->stage[i] = (sherd_stage){.mesh = stages[i].mesh};
        if (!sherd__in_mesh(world, stages[i].mesh))
            continue;
        p->stage[i].module = stages[i].module;
        p->here = sherd__turns_place(&p->turns, i);
    }
    return p;
}

/* The layouts of the sum of losses, where it is made and where it is told. */
static sherd_status find_told(sherd_pipeline *p)
{
    const sherd_layout *loss, *told;
    sherd_status status = sherd__replicated(&loss, p->stage[p->turns.stages - 1].mesh, 0, NULL);

    if (!status)
        status = sherd__replicated(&told, p->all, 0, NULL);
    if (status)
        return status;
    p->loss = sherd_layout_retain(loss);
    p->told = sherd_layout_retain(told);
    return SHERD_OK;
}

static sherd_status connect(sherd_pipeline *p, const sherd_stage *stages)
{
    const int64_t ranks = sherd_world_ranks(p->world);
    sherd_status status =
        sherd_mesh_create(&p->all, p->world, 1, &ranks, (const char *[]){"pipeline"}, NULL);

    for (int i = 1; i < p->turns.stages && !status; i++)
        if (stages[i].mesh != stages[i - 1].mesh)
            status = sherd__channel_create(&p->from[i], stages[i - 1].mesh, stages[i].mesh,
                                           stages[i].input, true, create_name);
    return sherd__agree(p->world, status ? status : find_told(p), 0, create_name);
}

sherd_status sherd_pipeline_create(sherd_pipeline **out, sherd_world *world,
                                   const sherd_stage *stages, int count,
                                   sherd_pipeline_schedule schedule)
{
    const sherd__argument list[] = {{"out", out}, {"world", world}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), create_name, list);
    sherd_pipeline *p = NULL;

    if (out)
        *out = NULL;
    if (!world)
        return status;
    if (!status)
        status = check(world, stages, count, schedule);
    uint64_t hash = status ? 0 : hash_of(stages, count, schedule);
    if (!status && !(p = start(world, stages, count, schedule)))
        status = sherd__no_memory(sherd__world_diag(world), create_name);
    status = sherd__agree(world, status, hash, create_name);
    if (!status)
        status = connect(p, stages);
    if (status)
        sherd_pipeline_destroy(p);
    else
        *out = p;
    return status;
}

void sherd_pipeline_destroy(sherd_pipeline *p)
{
    if (!p)
        return;
    if (p->kept) {
        sherd__raise(p->world, SHERD_EINVAL, "sherd_pipeline_destroy: it is running");
        return;
    }
    sherd__heap *heap = sherd__world_heap(p->world);
    sherd__ties_destroy(p);
    for (int i = 0; p->from && i < p->turns.stages; i++)
        sherd_channel_destroy(p->from[i]);
    sherd_layout_release(p->loss);
    sherd_layout_release(p->told);
    sherd__free(heap, p->from);
    sherd__free(heap, p->stage);
    sherd__free(heap, p);
}

/* ---- turns ----------------------------------------------------------------------------------- */

bool sherd__pipeline_fit(sherd_pipeline *p, int64_t count, bool forward_only)
{
    if (p->fits && p->turns.count == count && p->turns.forward_only == forward_only)
        return true;
    p->turns.count = count;
    p->turns.forward_only = forward_only;
    p->fits = sherd__turns_fit(&p->turns, sherd__world_heap(p->world));
    return p->fits;
}

int64_t sherd_pipeline_turns(const sherd_pipeline *p, int place, int64_t microbatches,
                             sherd_pipeline_turn *out, int64_t room)
{
    if (!p || place < 0 || place >= p->turns.places || microbatches < 1 ||
        microbatches > SHERD__TURNS_MOST / p->turns.stages)
        return 0;
    sherd__heap *heap = sherd__world_heap(p->world);
    sherd__turns turns = p->turns;
    turns.count = microbatches;
    turns.forward_only = false;
    if (!sherd__turns_fit(&turns, heap))
        return 0;
    int64_t count = sherd__turns_of(&turns, place, NULL);
    sherd_pipeline_turn *all = out ? sherd__alloc(heap, (size_t)count, sizeof *all) : NULL;
    if (out && !all)
        return 0;
    sherd__turns_of(&turns, place, all);
    for (int64_t i = 0; out && i < count && i < room; i++)
        out[i] = all[i];
    sherd__free(heap, all);
    return count;
}
