/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of `sherd check`: each fills its part of the source, moves it, and compares its part of
 * the target. The first pass is run several times and timed, from a meeting of all ranks until the
 * data is there.
 */
#include "check.h"

#include <string.h>

#include "check_data.h"
#include "plan/inside.h"
#include "tensor/tensor.h"
#include "world/inside.h"
#include "world/limit.h"

/* What a rank is given. */
typedef struct order {
    const cli_values *values;
    cli_findings *found;
} order;

enum { WRONG, ELEMENTS, NANOSECONDS, WORDS = NANOSECONDS + CLI_RUNS };

/* What a rank has at hand. */
typedef struct place {
    cli_problem problem;
    const sherd_mesh *all; /* ranks, in a line */
    cli_check_data data;
    cli_check_fold fold;
    bool in_from, in_to; /* whether this rank is in the mesh */
    int64_t from_at[SHERD_MAX_AXES], to_at[SHERD_MAX_AXES];
    int64_t count; /* elements of the target here */
    int64_t words[WORDS];
    unsigned char *wrong;
} place;

/*
 * sherd_redistribute refuses to make a replica pending, which a step of a plan may do: then call
 * what is below it.
 */
static sherd_tensor *move(const cli_problem *p, sherd_tensor *source)
{
    sherd_plan_options options = cli_plan_options(p);
    const sherd_redistribute_options how = {.plan = &options};

    if (sherd_layout_mesh(p->from) == sherd_layout_mesh(p->to) &&
        p->to->pending_axes & ~p->from->pending_axes)
        return sherd__move_planned(source, p->to, &options, NULL, false);
    return sherd_redistribute(source, p->to, &how);
}

/*
 * Move and compare once; `time`: how long it took, in nanoseconds, or NULL. False: the world has
 * failed.
 */
static bool move_once(place *w, sherd_tensor *source, int pass, int64_t *time)
{
    if (sherd_world_check(w->problem.world) != SHERD_OK) /* all begin together */
        return false;
    int64_t begin = sherd__now();
    sherd_tensor *target = move(&w->problem, source);
    const void *elements = sherd_tensor_read(target);
    if (time)
        *time = sherd__now() - begin;
    if (w->in_to && elements && !sherd_tensor_failed(target))
        cli_check_compare(&w->data, w->to_at, &w->fold, pass, elements, w->wrong);
    return true;
}

/* One pass: the data moves `runs` times, once more before that if it is timed. */
static bool run_pass(place *w, int pass, int runs)
{
    sherd_world *world = w->problem.world;
    bool good = true;

    sherd_scope_begin(world);
    sherd_tensor *source = sherd__new_on(w->problem.from, w->problem.dtype);
    void *elements = w->in_from ? sherd_tensor_write(source) : NULL;
    if (elements)
        cli_check_fill(&w->data, w->from_at, pass, elements);
    for (int i = -1; i < runs && good; i++) {
        sherd_scope_begin(world); /* one target at a time */
        good = move_once(w, source, pass, i < 0 ? NULL : &w->words[NANOSECONDS + i]);
        sherd_scope_end(world);
    }
    sherd_scope_end(world);
    return good;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int64_t elements_of(const sherd_layout *layout, int rank)
{
    int64_t at[SHERD_MAX_AXES];
    sherd_box box = {.ndim = 0};

    if (!sherd_mesh_coordinate(sherd_layout_mesh(layout), rank, at))
        return 0;
    sherd__layout_box(layout, at, &box);
    return sherd__box_count(&box);
}

/* Whether the target is storage of its own on some rank; if nothing is sent it may not be. */
static bool sends(const cli_problem *p)
{
    const sherd_plan_options options = cli_plan_options(p);
    const sherd_plan *plan = NULL;
    bool some = false;

    if (sherd_plan_create(&plan, p->from, p->to, p->dtype, &options) != SHERD_OK)
        return false; /* the move will say why */
    for (int i = 0; i < plan->steps; i++)
        some = some || plan->step[i].kind != SHERD_STEP_SLICE;
    return some;
}

/* What the ranks that share memory with this one need at once, at least. */
static int64_t bytes_needed(const cli_problem *p, sherd_world *world)
{
    const int64_t bytes = (int64_t)sherd_dtype_bytes(p->dtype);
    const int me = sherd_world_rank(world);
    bool target = sends(p);
    int64_t sum = 0;

    for (int r = world->remote ? me : 0; r < (world->remote ? me + 1 : world->ranks); r++) {
        int64_t n = elements_of(p->to, r);
        sum = sherd__add_cut(sum, sherd__mul_cut(elements_of(p->from, r), bytes));
        sum = sherd__add_cut(sum, sherd__mul_cut(n, target ? bytes + 1 : 1));
    }
    return sum;
}

/* Refuse at once what would swap, or end in a rank that the kernel kills. */
static bool has_memory(const cli_problem *p, sherd_world *world)
{
    int64_t need = bytes_needed(p, world), limit = sherd_world_memory(world).limit_bytes;
    char text[SHERD_ERROR_BYTES];

    if (need <= limit)
        return true;
    snprintf(text, sizeof text,
             "out of memory: the source, the target and a mark for each of its "
             "elements need %lld bytes on %s; there are %lld (%s): give a smaller --shape%s",
             (long long)need, world->remote ? "this rank" : "all ranks", (long long)limit,
             sherd__limit_name(sherd__limit_of(world).by), world->remote ? ", or more ranks" : "");
    sherd_world_fail(world, SHERD_ENOMEM, text);
    return false;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void fail_for_marks(sherd_world *world, int64_t count)
{
    char text[SHERD_ERROR_BYTES];

    snprintf(text, sizeof text,
             "out of memory: %lld bytes, one for each element of a rank's part; all "
             "ranks' tensors may have %lld: give a smaller --shape, or more ranks",
             (long long)count + 1, (long long)sherd_world_memory(world).limit_bytes);
    sherd_world_fail(world, SHERD_ENOMEM, text);
}

static bool prepare(place *w, const order *given, sherd_world *world)
{
    cli_problem *p = &w->problem;
    const int64_t ranks = sherd_world_ranks(world);

    memset(w, 0, sizeof *w);
    if (sherd_mesh_create(&w->all, world, 1, &ranks, NULL, NULL) != SHERD_OK)
        return false;
    if (cli_problem_read(p, world, given->values, CLI_OF_CHECK) != SHERD_OK ||
        !has_memory(p, world))
        return false;
    cli_check_data_of(&w->data, p->from, p->to, p->dtype);
    w->in_from =
        sherd_mesh_coordinate(sherd_layout_mesh(p->from), sherd_world_rank(world), w->from_at);
    w->in_to = sherd_mesh_coordinate(sherd_layout_mesh(p->to), sherd_world_rank(world), w->to_at);
    if (w->in_to) {
        sherd_box box = sherd_layout_box(p->to, sherd_world_rank(world), 0);
        w->count = sherd__box_count(&box);
        if (!cli_check_fold_of(&w->fold, &w->data, w->to_at))
            sherd_world_fail(world, SHERD_ELIMIT,
                             "16 bits hold no sum of more than 64 addends exactly; "
                             "check with f32");
    }
    w->wrong = sherd__alloc(sherd__world_heap(world), (size_t)w->count + 1, 1);
    if (!w->wrong)
        fail_for_marks(world, w->count);
    return true;
}

/* What all ranks have found, and what the plan was to cost. */
static bool report(cli_findings *found, place *w)
{
    sherd_world *world = w->problem.world;
    const sherd_plan_options options = cli_plan_options(&w->problem);
    int64_t all[SHERD_MAX_RANKS][WORDS];
    const sherd_plan *plan;

    if (!sherd__share(world, w->all, "sherd check", w->words, WORDS, all[0]) ||
        sherd_plan_create(&plan, w->problem.from, w->problem.to, w->problem.dtype, &options))
        return false;
    if (sherd_world_rank(world) != 0)
        return true;
    found->ranks = sherd_world_ranks(world);
    found->price = *sherd_plan_price_of(plan);
    for (int r = 0; r < found->ranks; r++) {
        found->wrong += all[r][WRONG];
        found->elements += all[r][ELEMENTS];
        for (int i = 0; i < CLI_RUNS; i++) {
            double seconds = 1e-9 * (double)all[r][NANOSECONDS + i];
            found->seconds[i] = seconds > found->seconds[i] ? seconds : found->seconds[i];
        }
    }
    return true;
}

static int run_rank(sherd_world *world, void *payload)
{
    const order *given = payload;
    place w;
    bool good = prepare(&w, given, world);

    good = sherd_world_check(world) == SHERD_OK && good;
    for (int pass = 0; pass < w.data.passes && good; pass++)
        good = run_pass(&w, pass, pass == 0 ? CLI_RUNS : 0);
    for (int64_t i = 0; good && i < w.count; i++)
        w.words[WRONG] += w.wrong[i];
    w.words[ELEMENTS] = w.count;
    good = good && report(given->found, &w);
    good = sherd_world_check(world) == SHERD_OK && good;
    if (!good && sherd_world_rank(world) == 0)
        snprintf(given->found->error, sizeof given->found->error, "%s", sherd_world_error(world));
    sherd__free(sherd__world_heap(world), w.wrong);
    return good ? 0 : CLI_FAILED;
}

sherd_status cli_check_run(cli_findings *found, cli_problem *p, int ranks)
{
    char error[SHERD_ERROR_BYTES] = "";
    order given = {p->values, found};
    const sherd_world_options options = {.ranks = ranks, .as = p->ranks_as, .error = error};
    int exit_status = 0;
    sherd_status status = sherd_spawn(&exit_status, &options, run_rank, &given);

    found->error[SHERD_ERROR_BYTES - 1] = '\0';
    if (status != SHERD_OK && !found->error[0])
        return sherd__fail(p->diag, status, "%s", error[0] ? error : sherd_status_text(status));
    if (status != SHERD_OK || exit_status != 0)
        return sherd__fail(p->diag, SHERD_EINVAL, "%s",
                           found->error[0] ? found->error : "a rank has failed");
    return SHERD_OK;
}
