/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan as a JSON object. Bytes and counts are 64-bit integers, times seconds, all in full
 * precision.
 */
#include "plan.h"

#include "base/text.h"
#include "layout/layout.h"
#include "plan/state.h"

/* A rank of the arena reads its peers' storage in place: nothing is packed on the way. */
enum { STAGING_BYTES = 0 };

/*
 * A state as in the trace: placements with places; the full layout where the plan goes from one
 * mesh to another.
 */
static json_t *state_text(const sherd_layout *layout, bool two_meshes)
{
    char text[128] = "";
    sherd__writer w = {text, sizeof text, 0};
    sherd__state state;

    if (two_meshes)
        return json_string(sherd_layout_text(layout));
    sherd__state_of(&state, layout);
    sherd__state_write(&w, &state, sherd_mesh_axes(sherd_layout_mesh(layout)),
                       sherd_layout_ndim(layout));
    return json_string(text);
}

static json_t *axis_names(const sherd_step *step)
{
    const sherd_mesh *mesh = sherd_layout_mesh(step->from);
    json_t *array = json_array();
    bool good = array != NULL;

    for (int i = 0; i < sherd_mesh_axes(mesh); i++)
        if (step->axes >> i & 1)
            cli_append(&good, array, json_string(sherd_mesh_axis_name(mesh, i)));
    return cli_whole(good, array);
}

static json_t *seconds(int64_t picoseconds)
{
    return json_real((double)picoseconds / 1e12);
}

static json_t *step_object(const sherd_step *step, bool two_meshes)
{
    json_t *out = json_object();
    bool good = out != NULL;

    cli_put(&good, out, "op", json_string(sherd_step_kind_name(step->kind)));
    cli_put(&good, out, "axes", axis_names(step));
    cli_put(&good, out, "from", state_text(step->from, two_meshes));
    cli_put(&good, out, "to", state_text(step->to, two_meshes));
    cli_put(&good, out, "bytes_recv_max", json_integer(step->recv_max_bytes));
    cli_put(&good, out, "bytes_recv_total", json_integer(step->recv_total_bytes));
    cli_put(&good, out, "seconds", seconds(step->picoseconds));
    return cli_whole(good, out);
}

static void put_steps(bool *good, json_t *out, const cli_problem *p, const sherd_plan *plan)
{
    bool two_meshes = sherd_layout_mesh(p->from) != sherd_layout_mesh(p->to);
    json_t *array = json_array();

    for (int i = 0; i < sherd_plan_steps(plan); i++)
        cli_append(good, array, step_object(sherd_plan_step(plan, i), two_meshes));
    cli_put(good, out, "steps", array);
}

static void put_totals(bool *good, json_t *out, const sherd_plan_price *price)
{
    double ratio = cli_plan_ratio(price);

    cli_put(good, out, "bytes_recv_max", json_integer(price->recv_max_bytes));
    cli_put(good, out, "bytes_recv_total", json_integer(price->recv_total_bytes));
    cli_put(good, out, "bytes_send_max", json_integer(price->send_max_bytes));
    cli_put(good, out, "lower_bound_max",
            price->bound_max_bytes < 0 ? json_null() : json_integer(price->bound_max_bytes));
    cli_put(good, out, "lower_bound_total", json_integer(price->bound_total_bytes));
    cli_put(good, out, "bound", json_string("proven"));
    cli_put(good, out, "ratio", ratio < 0 ? json_null() : json_real(ratio));
    cli_put(good, out, "peak_bytes", json_integer(price->peak_bytes));
    cli_put(good, out, "staging_bytes", json_integer(STAGING_BYTES));
    cli_put(good, out, "seconds", seconds(price->picoseconds));
}

/* Integer weights have an integer sum, but not every sum fits into an integer. */
static json_t *cost(const cli_problem *p, const sherd_plan *plan)
{
    double value = sherd_plan_cost(plan);

    if (sherd_plan_planner(plan) == SHERD_PLANNER_GRAPH && p->weights.kind != SHERD_WEIGHTS_TIME &&
        value < 0x1p63)
        return json_integer((json_int_t)value);
    return json_real(value);
}

void cli_plan_put(bool *good, json_t *out, const cli_problem *p, const sherd_plan *plan)
{
    const char *price = p->values->of[CLI_PRICE];

    cli_put(good, out, "planner", json_string(sherd_planner_name(sherd_plan_planner(plan))));
    cli_put(good, out, "price", cli_string(price ? price : "arena"));
    cli_put(good, out, "from",
            json_sprintf("%s%s", sherd_dtype_name(p->dtype), sherd_layout_text(p->from)));
    cli_put(good, out, "to",
            json_sprintf("%s%s", sherd_dtype_name(p->dtype), sherd_layout_text(p->to)));
    cli_put(good, out, "trace", json_string(sherd_plan_trace(plan)));
    put_steps(good, out, p, plan);
    put_totals(good, out, sherd_plan_price_of(plan));
    cli_put(good, out, "cost", cost(p, plan));
    cli_put(good, out, "proven", json_boolean(sherd_plan_price_of(plan)->proven));
}
