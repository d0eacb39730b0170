/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing: the prompts in one pass, then a token of each row at a time, with caches. Rows have
 * lengths of their own. All ranks get the same logits and draw the same tokens. The tape is off, so
 * nothing is saved for backward.
 */
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

enum { LIKELY = 64 };

typedef struct drawing {
    const sampling *how;
    sherd_generator generator;
} drawing;

/*
 * Draw by a number in [0, 1) from the n most likely tokens, in order of p. -1: it may be none of
 * these, where they are not all.
 */
static int32_t draw(double top_p, const float *p, const int32_t *token, int64_t n, bool all,
                    double random)
{
    double kept = 0;
    int64_t count = 0, i = 0;

    while (count < n && kept < top_p)
        kept += p[count++];
    bool more = !all && kept < top_p;
    if (more && top_p < 1)
        return -1;
    for (random *= more ? 1 : kept; i < count - 1 && random >= p[i]; i++)
        random -= p[i];
    return more && random >= p[i] ? -1 : token[i];
}

/* From the n most likely ones of each row; false: for some row they are too few. */
static bool draw_rows(const llama *m, const drawing *d, sherd_tensor *p, int64_t n,
                      const double *random, int32_t *token)
{
    bool all = n >= m->c.vocabulary, good = true;
    sherd_tensor *ids = NULL,
                 *likely = all ? sherd_sort(p, -1, true, &ids) : sherd_topk(p, n, -1, true, &ids);
    const float *x = sherd_tensor_read(sherd_full(likely));
    const int32_t *id = sherd_tensor_read(sherd_full(ids));
    int64_t batch = sherd_tensor_shape(p)[0];

    n = all ? m->c.vocabulary : n;
    for (int64_t b = 0; x && id && b < batch; b++) {
        token[b] = draw(d->how->top_p, x + b * n, id + b * n, n, all, random[b]);
        good &= token[b] >= 0;
    }
    return good;
}

/*
 * The next token of each row, the same on all ranks. Of a sharded vocabulary little travels, and of
 * a GPU little is fetched.
 */
static void choose(const llama *m, drawing *d, sherd_tensor *logits, int64_t batch, int32_t *token)
{
    const int last[] = {-1};

    if (d->how->temperature <= 0) {
        sherd_tensor *most = sherd_argmax(logits, last, 1, false);
        sherd_full_read(token, (size_t)batch * sizeof *token, most, SHERD_I32, -1);
        return;
    }
    sherd_tensor *random =
        sherd_random(m->world, SHERD_F64, &batch, 1, sherd_uniform(0, 1), &d->generator);
    const double *number = sherd_tensor_read(random);
    int64_t first = d->how->likely ? d->how->likely : LIKELY;
    sherd_tensor *x = sherd_scale(sherd_cast(logits, SHERD_F32), 1 / d->how->temperature);
    sherd_tensor *p = sherd_softmax(x, -1);
    if (number && !sherd_tensor_failed(p) && !draw_rows(m, d, p, first, number, token))
        draw_rows(m, d, p, m->c.vocabulary, number, token);
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
    size_t batch = (size_t)p->batch;
    rows r = {calloc(batch, sizeof *r.token), calloc(batch, sizeof *r.at)};
    drawing d = {how, sherd_generator_named("sample")};
    bool recording = sherd_set_recording(m->world, false);

    memset(out, 0xff, batch * (size_t)p->tokens * sizeof *out);
    if (!r.token || !r.at)
        sherd_world_fail(m->world, SHERD_ENOMEM, "out of memory for tokens");
    sherd_status status = sherd_world_check(m->world);
    if (!status)
        status = write_all(m, p, &d, &r, out, took);
    sherd_set_recording(m->world, recording);
    free(r.token);
    free(r.at);
    return status;
}
