/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing: the prompts in one pass, then a token of each row at a time, with caches. Rows have
 * lengths of their own. All ranks get the same logits and draw the same tokens. The tape is off, so
 * nothing is saved for backward.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llama.h"

sherd_tensor *llama_spread(const llama *m, const int32_t *numbers, int64_t batch, int64_t s)
{
    char text[8 * SHERD_MAX_AXES] = "";
    sherd_tensor *t = sherd_from_data(m->world, SHERD_I32, (int64_t[]){batch, s}, 2, numbers);

    for (int a = 0; a < sherd_mesh_axes(m->mesh); a++)
        strcat(text, strcmp(sherd_mesh_axis_name(m->mesh, a), "dp") == 0 ? "S(0)" : "R");
    return sherd_distribute_as(sherd_mark_equal(t), m->mesh, text, -1);
}

static sherd_tensor *head(const llama *m, sherd_tensor *x)
{
    return sherd_module_call(sherd_module_find(m->root, "lm_head"), x);
}

static sherd_tensor *decoded(llama *m, const int32_t *ids, int64_t batch, int64_t s)
{
    return sherd_module_call(sherd_module_find(m->root, "model"), llama_spread(m, ids, batch, s));
}

sherd_tensor *llama_logits(llama *m, const int32_t *ids, int64_t batch, int64_t s)
{
    m->positions = NULL;
    m->capacity = 0;
    return head(m, decoded(m, ids, batch, s));
}

sherd_tensor *llama_prefill(llama *m, const int32_t *ids, const int32_t *count, int64_t batch,
                            int64_t longest, int64_t capacity)
{
    int32_t *last = calloc((size_t)batch, sizeof *last);

    if (!last)
        sherd_world_fail(m->world, SHERD_ENOMEM, "out of memory for positions");
    for (int64_t b = 0; b < batch && last; b++)
        last[b] = count[b] - 1;
    m->positions = NULL;
    m->capacity = capacity;
    sherd_tensor *x = decoded(m, ids, batch, longest);
    /* Only the last token's logits of each prompt are wanted: [batch, 1, dim] of x. */
    sherd_tensor *index = last ? sherd_unsqueeze(llama_spread(m, last, batch, 1), -1) : NULL;
    x = sherd_gather(x, 1, sherd_expand(index, (int64_t[]){batch, 1, m->c.dim}, 3));
    free(last);
    return head(m, x);
}

sherd_tensor *llama_decode(llama *m, const int32_t *ids, const int32_t *positions, int64_t batch)
{
    m->positions = llama_spread(m, positions, batch, 1);
    return head(m, decoded(m, ids, batch, 1));
}

/* ---- choosing a token ----------------------------------------------------------------------- */

typedef struct choice {
    float p;
    int32_t token;
} choice;

static int more_likely(const void *a, const void *b)
{
    const choice *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p)
                        : (x->token > y->token) - (x->token < y->token);
}

/* Draw by a number in [0, 1). A token below (1 - top_p) / n can not be among the fewest: those are
 * not sorted. */
static int32_t draw(const sampling *how, float *logits, int64_t n, choice *list, double random)
{
    float top = logits[0];
    double sum = 0, kept = 0;
    int64_t count = 0, i = 0;

    for (i = 1; i < n; i++)
        top = fmaxf(top, logits[i]);
    for (i = 0; i < n; i++)
        sum += logits[i] = expf((logits[i] - top) / (float)how->temperature);
    for (i = 0; i < n; i++)
        if (logits[i] >= sum * (1 - how->top_p) / (double)n)
            list[count++] = (choice){logits[i], (int32_t)i};
    if (how->top_p < 1)
        qsort(list, (size_t)count, sizeof *list, more_likely);
    for (i = 0; i < count && kept < how->top_p * sum; i++)
        kept += list[i].p;
    count = i;
    random *= kept;
    for (i = 0; i < count - 1 && random >= list[i].p; i++)
        random -= list[i].p;
    return list[i].token;
}

/* What drawing needs: [batch, vocabulary] logits, and [vocabulary]. Greedy needs neither. */
typedef struct drawing {
    const sampling *how;
    sherd_generator generator;
    float *logits;
    choice *list;
} drawing;

/* The next token of each row, the same on all ranks. */
static void choose(const llama *m, drawing *d, sherd_tensor *logits, int64_t batch, int32_t *token)
{
    const int last[] = {-1};
    size_t n = (size_t)m->c.vocabulary;

    if (d->how->temperature <= 0) {
        sherd_tensor *most = sherd_argmax(logits, last, 1, false);
        sherd_full_read(token, (size_t)batch * sizeof *token, most, SHERD_I32, -1);
        return;
    }
    sherd_tensor *random =
        sherd_random(m->world, SHERD_F64, &batch, 1, sherd_uniform(0, 1), &d->generator);
    const double *number = sherd_tensor_read(random);
    if (!sherd_full_read(d->logits, (size_t)batch * n * sizeof *d->logits, logits, SHERD_F32, -1) ||
        !number)
        return; /* the check will tell */
    for (int64_t b = 0; b < batch; b++)
        token[b] = draw(d->how, d->logits + (size_t)b * n, m->c.vocabulary, d->list, number[b]);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Where each row stands: its token is to be written at `at`; -1 = the text has ended. */
typedef struct rows {
    int32_t *token, *at;
} rows;

/* Store the tokens of a step; false: all texts have ended. */
static bool store(const config *c, const prompts *p, rows *r, int64_t step, int32_t *out)
{
    bool going = false;

    for (int64_t b = 0; b < p->batch; b++) {
        bool ended = step > 0 && r->at[b] < 0;
        out[b * p->tokens + step] = ended ? -1 : r->token[b];
        ended |= r->token[b] == c->end;
        r->at[b] = ended ? -1 : p->count[b] + (int32_t)step;
        going |= !ended;
    }
    return going;
}

static sherd_status write_all(llama *m, const prompts *p, drawing *d, rows *r, int32_t *out,
                              timing *took)
{
    bool going = true;
    sherd_status status = SHERD_OK;
    double start = seconds();

    for (int64_t step = 0; step < p->tokens && going && !status; step++) {
        sherd_scope_begin(m->world);
        sherd_tensor *logits =
            step ? llama_decode(m, r->token, r->at, p->batch)
                 : llama_prefill(m, p->ids, p->count, p->batch, p->longest, p->longest + p->tokens);
        choose(m, d, logits, p->batch, r->token);
        sherd_scope_end(m->world);
        status = sherd_world_check(m->world);
        if (!status)
            going = store(&m->c, p, r, step, out);
        took->steps = step;
        *(step ? &took->decode : &took->prefill) = seconds() - start;
        start = step ? start : seconds();
    }
    return status;
}

sherd_status generate(llama *m, const prompts *p, const sampling *how, int32_t *out, timing *took)
{
    size_t batch = (size_t)p->batch, n = (size_t)m->c.vocabulary;
    rows r = {calloc(batch, sizeof *r.token), calloc(batch, sizeof *r.at)};
    drawing d = {how, sherd_generator_named("sample"), malloc(batch * n * sizeof *d.logits),
                 malloc(n * sizeof *d.list)};
    bool recording = sherd_set_recording(m->world, false);

    memset(out, 0xff, batch * (size_t)p->tokens * sizeof *out);
    if (!r.token || !r.at || !d.logits || !d.list)
        sherd_world_fail(m->world, SHERD_ENOMEM, "out of memory for tokens");
    sherd_status status = sherd_world_check(m->world);
    if (!status)
        status = write_all(m, p, &d, &r, out, took);
    sherd_set_recording(m->world, recording);
    free(r.token);
    free(r.at);
    free(d.logits);
    free(d.list);
    return status;
}
