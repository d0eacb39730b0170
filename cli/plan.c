/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd plan: how one layout is turned into another, what it costs, how far that is from the lower
 * bound, and what the other planners would do. Needs no ranks: the world is a paper world.
 */
#include "plan.h"

#include "plan/inside.h"

/* The option to blame for the refusal of a planner. */
static cli_key blamed_for(sherd_status status, const cli_problem *p, sherd_planner planner)
{
    if (status == SHERD_ELIMIT)
        return p->max_bytes ? CLI_MAX_BYTES : CLI_PLANNER;
    if (status == SHERD_ENOTSUP) /* another mesh, or an average of integers */
        return planner != SHERD_PLANNER_EXACT &&
                       sherd_layout_mesh(p->from) != sherd_layout_mesh(p->to)
                   ? CLI_PLANNER
                   : CLI_DTYPE;
    return status == SHERD_EINVAL ? CLI_TO : CLI_KEYS;
}

sherd_status cli_plan_make(const sherd_plan **out, cli_problem *p, sherd_planner planner)
{
    sherd_plan_options options = cli_plan_options(p);

    options.planner = planner;
    sherd_status status = sherd_plan_create(out, p->from, p->to, p->dtype, &options);
    if (status != SHERD_OK)
        p->blamed = blamed_for(status, p, planner);
    return status;
}

double cli_plan_ratio(const sherd_plan_price *price)
{
    if (sherd__max(price->recv_total_bytes, price->bound_total_bytes) >= SHERD__MOST)
        return -1;
    if (price->bound_total_bytes > 0)
        return (double)price->recv_total_bytes / (double)price->bound_total_bytes;
    return price->recv_total_bytes == 0 ? 1 : -1;
}

static json_t *other(sherd_planner planner, const sherd_plan *plan)
{
    const sherd_plan_price *price = sherd_plan_price_of(plan);
    json_t *out = json_object();
    bool good = out != NULL;

    cli_put(&good, out, "planner", json_string(sherd_planner_name(planner)));
    cli_put(&good, out, "seconds", json_real((double)price->picoseconds / 1e12));
    cli_put(&good, out, "bytes_recv_max", json_integer(price->recv_max_bytes));
    cli_put(&good, out, "trace", json_string(sherd_plan_trace(plan)));
    return cli_whole(good, out);
}

/* What the other planners do with it. One that can not (two meshes, a limit) is left out. */
static sherd_status put_others(bool *good, json_t *out, cli_problem *p)
{
    json_t *array = json_array();

    for (int i = 0; i < CLI_PLANNERS; i++) {
        const sherd_planner planner = (sherd_planner)i;
        const sherd_plan *plan;
        if (planner == p->planner)
            continue;
        sherd_status status = cli_plan_make(&plan, p, planner);
        if (status == SHERD_OK)
            cli_append(good, array, other(planner, plan));
        else if (status != SHERD_ELIMIT && status != SHERD_ENOTSUP) {
            json_decref(array);
            return status;
        }
    }
    p->blamed = CLI_KEYS;
    cli_put(good, out, "others", array);
    return SHERD_OK;
}

static sherd_status answer(json_t *out, cli_problem *p)
{
    const sherd_plan *plan;
    bool good = true;
    sherd_status status = cli_plan_make(&plan, p, p->planner);

    if (status != SHERD_OK)
        return status;
    cli_plan_put(&good, out, p, plan);
    status = put_others(&good, out, p);
    return status == SHERD_OK ? cli_put_status(good, p) : status;
}

const cli_command cli_plan_command = {"plan", CLI_OF_PLAN, answer, cli_plan_print};

int cli_plan(int argc, char **argv)
{
    return cli_command_run(&cli_plan_command, argc, argv);
}
