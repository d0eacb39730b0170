/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sherd show: which rank holds what, and what moves; in the terminal, or as a picture for a page.
 * Needs no ranks.
 */
#include "show.h"
#include "plan.h"
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "world/world.h"

/* ---- words ----------------------------------------------------------------------------------- */

const char *cli_letter(char *out, size_t room, int number)
{
    if (number < 26)
        snprintf(out, room, "%c", 'A' + number);
    else
        snprintf(out, room, "%c%c", 'A' + (number / 26 - 1) % 26, 'A' + number % 26);
    return out;
}

void cli_plan_line(char *out, size_t room, const sherd_plan *plan)
{
    const sherd_plan_price *price = sherd_plan_price_of(plan);
    char most[32], total[32], bound[32];

    snprintf(out, room, "%s plan %.300s: %s received a rank, %s in all, the least is %s",
             sherd_planner_name(sherd_plan_planner(plan)), sherd_plan_trace(plan),
             cli_bytes_text(most, sizeof most, price->recv_max_bytes),
             cli_bytes_text(total, sizeof total, price->recv_total_bytes),
             cli_bytes_text(bound, sizeof bound, price->bound_total_bytes));
}

void cli_idle_text(char *out, size_t room, const cli_side *side)
{
    const cli_block idle = {.first = side->holders, .count = side->ranks - side->holders};

    out[0] = '\0';
    if (idle.count > 0)
        cli_block_label(out, room, side, &idle);
}

/* ---- where to -------------------------------------------------------------------------------- */

static cli_screen screen_of(void)
{
    const char *columns = getenv("COLUMNS"), *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = (no_color && *no_color) || (term && strcmp(term, "dumb") == 0);
    cli_screen screen = {.width = columns ? atoi(columns) : 0,
                         .color = isatty(STDOUT_FILENO) && !dumb};
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        screen.width = size.ws_col;
    if (screen.width < 20 || screen.width > 1000)
        screen.width = 80;
    return screen;
}

/* To a file; - is standard output, whose errors are told where it is flushed. */
static sherd_status draw_svg(cli_problem *p, const cli_picture *picture, const sherd_plan *plan)
{
    const char *path = p->values->of[CLI_SVG];
    bool out = strcmp(path, "-") == 0;
    FILE *to = out ? stdout : fopen(path, "we");
    bool good = to != NULL;

    if (good)
        cli_show_svg(to, picture, plan);
    if (good && !out) {
        good = !ferror(to);
        good = fclose(to) == 0 && good;
    }
    if (good)
        return SHERD_OK;
    p->blamed = CLI_SVG;
    return sherd__fail(p->diag, SHERD_EINVAL, "\"%.200s\" can not be written: %s", path,
                       strerror(errno));
}

/* ---- the command ----------------------------------------------------------------------------- */

static sherd_status draw(cli_problem *p)
{
    const sherd_plan *plan = NULL;
    cli_picture picture;
    sherd_status status = cli_picture_make(&picture, sherd__world_heap(p->world), p);

    if (status == SHERD_OK && p->to)
        status = cli_plan_make(&plan, p, p->planner);
    if (status == SHERD_OK && p->values->of[CLI_SVG])
        status = draw_svg(p, &picture, plan);
    else if (status == SHERD_OK) {
        const cli_screen screen = screen_of();
        cli_show_text(stdout, &picture, plan, &screen);
    }
    cli_picture_clear(&picture);
    return status;
}

/* Options that would change nothing of the picture, beside those that there are. */
static sherd_status check_used(cli_problem *p)
{
    static const cli_key moving[] = {CLI_TO_MESH, CLI_TO_CUTS,  CLI_PLANNER,   CLI_WEIGHTS,
                                     CLI_PRICE,   CLI_PER_HOST, CLI_FLATTENED, CLI_MAX_BYTES};
    static const cli_key cuts[][2] = {{CLI_CUTS, CLI_PLACEMENTS}, {CLI_FROM_CUTS, CLI_FROM}};
    const char *const *of = p->values->of;

    for (int i = 0; i < CLI_KEYS && of[CLI_LAYOUT]; i++)
        if (of[i] && i != CLI_LAYOUT && i != CLI_SVG) {
            p->blamed = (cli_key)i;
            return sherd__fail(p->diag, SHERD_EINVAL,
                               "a layout by its full text has no use for it");
        }
    for (size_t i = 0; i < sizeof moving / sizeof *moving && !p->to; i++)
        if (of[moving[i]]) {
            p->blamed = moving[i];
            return sherd__fail(p->diag, SHERD_EINVAL, "expected --from and --to with it");
        }
    for (int i = 0; i < 2; i++)
        if (of[cuts[i][0]] && !of[cuts[i][1]]) {
            p->blamed = cuts[i][0];
            return sherd__fail(p->diag, SHERD_EINVAL, "expected --%s with it",
                               cli_key_name(cuts[i][1]));
        }
    return SHERD_OK;
}

static int show_in(sherd_world *world, const cli_values *values)
{
    cli_problem p;
    int bad = CLI_UNUSABLE;
    sherd_status status = cli_problem_read(&p, world, values, CLI_OF_SHOW);

    if (status == SHERD_OK && !p.from)
        status = sherd__fail(p.diag, SHERD_EINVAL,
                             "show what? Expected a layout like \"[4(x),6] on (x=2)\", or --mesh, "
                             "--shape and --placements, or --from and --to");
    else if (status == SHERD_OK && !(status = check_used(&p))) {
        bad = CLI_FAILED;
        status = draw(&p);
    }
    const char *key = cli_key_name(p.blamed);
    if (status != SHERD_OK)
        cli_refuse("show", "%s%s%s%s", *key ? "--" : "", key, *key ? ": " : "",
                   cli_error_text(p.diag));
    return status == SHERD_OK ? 0 : bad;
}

int cli_show(int argc, char **argv)
{
    cli_values values;
    sherd_world *world;

    if (!cli_values_read(&values, CLI_OF_SHOW, "show", argc, argv))
        return CLI_UNUSABLE;
    if (!cli_paper_open(&world, &values)) {
        cli_refuse("show", "out of memory");
        return CLI_FAILED;
    }
    int exit_status = show_in(world, &values);
    sherd_status closed = sherd_world_close(world);
    (void)closed; /* its failure was reported already */
    return cli_flush("show") ? exit_status : CLI_FAILED;
}
