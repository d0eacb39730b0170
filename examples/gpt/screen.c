/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The screen: what runs where, a progress bar, and at the end what the run cost and what it learnt.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "screen.h"

/* 1234567 as "1.23 M"; the text lives in `room`. */
typedef char amount_text[24];

static const char *amount(amount_text room, double value, const char *unit)
{
    static const char prefix[] = " kMGTP";
    int i = 0;

    while (value >= 1000 && prefix[i + 1]) {
        value /= 1000;
        i++;
    }
    if (i == 0)
        snprintf(room, sizeof(amount_text), "%.3g %s", value, unit);
    else
        snprintf(room, sizeof(amount_text), "%.*f %c%s",
                 value < 10    ? 2
                 : value < 100 ? 1
                               : 0,
                 value, prefix[i], unit);
    return room;
}

/* ---- at the start --------------------------------------------------------------------------- */

/* Rates are measured, which takes longer than many small steps: not where a program reads the
 * report, nor where nothing is computed. */
static void print_compute(const trainer *t)
{
    const gpt_options *o = t->options;
    amount_text a, b;

    if (o->json || sherd_world_is_dry(t->world)) {
        printf("compute  %s\n\n", o->dtype);
        return;
    }
    sherd_info info = sherd_world_info(t->world);
    printf("compute  %s, kernels %s; f32 GEMM by %s: %s of %s a core, %.0f %% of its peak\n\n",
           o->dtype, info.kernels, info.gemm, amount(a, info.gemm_rate, "FLOP/s"),
           amount(b, info.peak, "FLOP/s"), info.peak > 0 ? 100 * info.gemm_rate / info.peak : 0);
}

void screen_begin(const trainer *t, const figures *f)
{
    const gpt_options *o = t->options;
    int ranks = sherd_world_ranks(t->world);
    const char *transport = sherd_world_transport(t->world);
    amount_text a, b;

    printf("model    %lld blocks, dim %lld, %lld heads, context %lld; %s", (long long)o->layers,
           (long long)o->dim, (long long)o->heads, (long long)o->context,
           amount(a, (double)f->params_total, ""));
    printf(" parameters, %s on the fullest rank\n", amount(b, (double)f->params_local, ""));
    printf("text     %s, %s; batches of %lld\n", t->text->source,
           amount(a, (double)t->text->count, "B"), (long long)o->batch);
    printf("ranks    %d %s, mesh %s, transport %s%s%s%s%s\n", ranks,
           strcmp(transport, "threads") == 0 ? "threads"
           : ranks == 1                      ? "process"
                                             : "processes",
           sherd_mesh_text(t->mesh), transport, o->zigzag ? ", zigzag" : "",
           o->sequence_parallel ? ", sequence parallel" : "",
           o->shard_parameters ? ", sharded parameters" : "",
           o->input_reshard ? ", input reshard" : "");
    print_compute(t);
    fflush(stdout);
}

/* ---- progress ------------------------------------------------------------------------------- */

progress progress_begin(void)
{
    double now = seconds_now();
    return (progress){.terminal = isatty(STDOUT_FILENO) != 0, .begin = now, .drawn = now - 1};
}

static void draw_bar(double share)
{
    enum { WIDTH = 20 };
    char bar[WIDTH + 1];
    int full = (int)(share * WIDTH);

    memset(bar, '.', WIDTH);
    memset(bar, '#', (size_t)full);
    bar[WIDTH] = 0;
    printf("\r[%s] ", bar);
}

void progress_step(progress *p, const trainer *t, const figures *f)
{
    int64_t steps = t->options->steps, i = f->steps;
    double now = seconds_now(), each = (now - p->begin) / (double)i;
    double tokens = (double)(t->options->batch * t->options->context) / each;
    int left = (int)(each * (double)(steps - i) + 0.5);

    if (p->terminal ? now - p->drawn < 0.1 && i < steps
                    : i > 1 && i < steps && i * 10 / steps == (i - 1) * 10 / steps)
        return;
    if (p->terminal)
        draw_bar((double)i / (double)steps);
    printf("step %*lld/%lld  loss %.4f  %.0f tokens/s  %d:%02d left", p->terminal ? 1 : 5,
           (long long)i, (long long)steps, f->loss[i - 1], tokens, left / 60, left % 60);
    fputs(p->terminal ? "   " : "\n", stdout);
    fflush(stdout);
    p->drawn = now;
    p->open = p->terminal;
}

void progress_end(progress *p)
{
    if (p->open)
        putchar('\n');
    p->open = false;
    fflush(stdout);
}

/* ---- at the end ----------------------------------------------------------------------------- */

static void print_comms(const figures *f)
{
    double all = 0;

    printf("\n%-16s %-8s %10s %12s %11s %7s\n", "collective", "axes", "calls/step", "bytes/step",
           "ms/step", "share");
    for (int i = 0; i < f->comms; i++) {
        const comm_figures *c = &f->comm[i];
        amount_text bytes;
        printf("%-16s %-8s %10.1f %12s %11.3f %5.1f %%\n", c->op, c->axes, c->calls,
               amount(bytes, c->bytes, "B"), 1e3 * c->seconds, 100 * c->seconds / f->mean_seconds);
        all += c->seconds;
    }
    printf("%-16s %-8s %10s %12s %11.3f %5.1f %%\n", "all (with waits)", "", "", "", 1e3 * all,
           100 * all / f->mean_seconds);
}

void screen_end(const trainer *t, const figures *f)
{
    const gpt_options *o = t->options;
    amount_text a, b;

    printf("\n%lld steps of %.1f ms (median): %.0f tokens/s\n", (long long)f->steps,
           1e3 * f->step_seconds, (double)(o->batch * o->context) / f->step_seconds);
    printf("loss %.4f nats a byte over the last %lld steps\n", figures_last_loss(f),
           (long long)(f->steps < 20 ? f->steps : 20));
    printf("memory of the fullest rank: %s at most, %s of it saved for backward\n",
           amount(a, (double)f->peak_bytes, "B"), amount(b, (double)f->saved_bytes, "B"));
    if (f->comms)
        print_comms(f);
}

static void print_bytes(const unsigned char *bytes, int64_t count, bool lines)
{
    for (int64_t i = 0; i < count; i++) {
        bool shown = isprint(bytes[i]) || (lines && bytes[i] == '\n');
        putchar(shown ? bytes[i] : isspace(bytes[i]) ? ' ' : '?');
    }
}

void screen_sample(const unsigned char *prompt, int64_t prompt_count, const unsigned char *bytes,
                   int64_t count)
{
    if (count == 0)
        return;
    printf("\nwhat it writes after \"");
    print_bytes(prompt, prompt_count, false);
    puts("\":");
    print_bytes(bytes, count, true);
    putchar('\n');
}

void screen_compare(const trainer *t, const figures *f)
{
    int steps = (int)(f->steps < COMPARED_STEPS ? f->steps : COMPARED_STEPS);

    if (sherd_world_ranks(t->world) > 1 && !isnan(f->worst_difference))
        printf("\nthe first %d losses against the same steps on one rank: they differ by %.1e at "
               "most, relative\n",
               steps, f->worst_difference);
}
