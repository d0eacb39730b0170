/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains a small GPT on text, split over ranks that this program starts itself, and lets it write.
 * This file is the story; each of the others is one subject of it:
 *
 *   options.c  what the user asked for           model.c    the model, as if for one process
 *   text.c     the text, and batches from it     plan.c     how it is split over ranks
 *   train.c    one training step                 figures.c  what the run showed
 *   sample.c   letting the model write           screen.c, report.c  for people, for programs
 */
#include <stdlib.h>
#include <string.h>

#include "figures.h"
#include "model.h"
#include "report.h"
#include "sample.h"
#include "screen.h"

enum { FAILED = 1, UNUSABLE = 2 }; /* exit statuses */

typedef struct job {
    gpt_options options;
    corpus text;
} job;

static bool is_first(const sherd_world *world)
{
    return sherd_world_rank(world) == 0;
}

/* ---- the run -------------------------------------------------------------------------------- */

static sherd_status train_all(trainer *t, figures *f)
{
    progress p = progress_begin();
    sherd_status status = SHERD_OK;

    for (int64_t step = 0; !status && step < t->options->steps; step++) {
        step_figures one;
        status = train_step(t, step, &one);
        if (status)
            break;
        figures_add(f, t, &one);
        if (is_first(t->world))
            progress_step(&p, t, f);
    }
    progress_end(&p);
    return status;
}

static sherd_status sample_and_show(trainer *t)
{
    int64_t count = t->options->sample, prompt_count;
    const unsigned char *prompt = sample_prompt(t, &prompt_count);
    unsigned char *bytes = malloc((size_t)count + 1);
    sherd_status status = agree(t->world, bytes ? SHERD_OK : SHERD_ENOMEM);

    if (!status)
        status = sample_write(t, prompt, prompt_count, bytes, count);
    if (!status && is_first(t->world))
        screen_sample(prompt, prompt_count, bytes, count);
    free(bytes);
    return status;
}

/* Rank 0 reports; if it can't, all ranks learn of it. */
static sherd_status report_all(const trainer *t, const figures *f, bool check_only)
{
    char error[LINE_BYTES];
    const char *path = t->options->json;

    if (path && is_first(t->world) &&
        !(check_only ? report_check(path, error) : report_write(path, t, f, error)))
        sherd_world_fail(t->world, SHERD_EINVAL, error);
    return sherd_world_check(t->world);
}

/* Every step is taken by all ranks, and all of them get the same status: nobody is left waiting. */
static sherd_status run(trainer *t, figures *f)
{
    bool first = is_first(t->world);
    sherd_status status = report_all(t, f, true);

    if (!status && first)
        screen_begin(t, f);
    if (!status)
        status = train_all(t, f);
    if (!status && sherd_world_is_dry(t->world)) /* `sherd dry` says what it took */
        return SHERD_OK;
    if (!status)
        status = figures_end(f, t);
    if (!status && first)
        screen_end(t, f);
    if (!status)
        status = sample_and_show(t);
    if (!status)
        status = figures_compare(f, t);
    if (!status && first)
        screen_compare(t, f);
    return status ? status : report_all(t, f, false);
}

/* ---- a rank --------------------------------------------------------------------------------- */

/* One line for all ranks. A death is told by whoever started them. */
static int fail(const sherd_world *world, sherd_status status, const char *text, int exit_status)
{
    if (is_first(world) && status != SHERD_EPEER)
        fprintf(stderr, "gpt: %s\n", text);
    return exit_status;
}

/* What each rank runs. */
static int body(sherd_world *world, void *payload)
{
    const job *j = payload;
    gpt_options options = j->options;
    char error[LINE_BYTES];
    figures f = {.loss = NULL};
    sherd_status status;
    trainer t;

    if (!options_fit(&options, sherd_world_ranks(world), error))
        return fail(world, SHERD_EINVAL, error, UNUSABLE);
    status = trainer_create(&t, world, &options, &j->text);
    if (!status)
        status = figures_begin(&f, &t);
    if (!status)
        status = run(&t, &f);
    figures_free(&f);
    trainer_destroy(&t);
    if (status)
        return fail(world, status, sherd_world_error(world), FAILED);
    if (fflush(stdout) != 0 || ferror(stdout))
        return fail(world, SHERD_EINVAL, "standard output takes no more", FAILED);
    return 0;
}

/* ---- the program ---------------------------------------------------------------------------- */

/* Under `sherd run` every rank comes by here with the same thing to say: one of them speaks. */
static bool speaks(void)
{
    sherd_world *world;
    bool first = true;

    if (sherd_world_open(&world, NULL) == SHERD_OK) {
        first = is_first(world);
        sherd_world_close(world);
    }
    return first;
}

static int refuse(const char *error)
{
    if (speaks())
        fprintf(stderr, "gpt: %s\n", error);
    return UNUSABLE;
}

static int start(job *j)
{
    char error[SHERD_ERROR_BYTES] = "";
    const gpt_options *o = &j->options;
    const sherd_world_options world = {
        .ranks = (int)(o->ranks ? o->ranks
                       : o->dp  ? o->dp * o->cp * o->tp
                                : 2),
        .as = o->threads ? SHERD_THREADS : SHERD_PROCESSES,
        .seed = (uint64_t)o->seed,
        .error = error,
    };
    int exit_status = FAILED;
    sherd_status status = sherd_spawn(&exit_status, &world, body, j);

    if (status && status != SHERD_EPEER)
        fprintf(stderr, "gpt: %s\n", error);
    return status && !exit_status ? FAILED : exit_status;
}

int main(int argc, char **argv)
{
    char error[LINE_BYTES];
    job j;
    int exit_status;

    if (!options_parse(&j.options, argc, argv, error))
        return refuse(error);
    if (j.options.help) {
        if (speaks())
            options_help(stdout);
        return 0;
    }
    if (!text_load(&j.text, &j.options, error))
        return refuse(error);
    exit_status = start(&j);
    text_free(&j.text);
    return exit_status;
}
