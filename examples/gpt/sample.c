/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing. The model sees a window of `context` bytes, as in training; what is behind the last byte
 * is padding that a causal model never looks at. A byte costs one forward: fine for a line or two.
 * All ranks get the same logits and draw the same byte.
 */
#include <math.h>
#include <string.h>

#include "model.h"
#include "sample.h"

static const double temperature = 0.7;
/* Streams of random numbers; steps use 0, 1, 2, ... */
static const uint64_t sample_stream = UINT64_MAX, prompt_stream = UINT64_MAX - 1;

/* Draw from softmax(logits / temperature) by a number in [0, 1). */
static unsigned char draw(const float *logits, double random)
{
    double weight[VOCABULARY], sum = 0, top = logits[0];
    int i;

    for (i = 1; i < VOCABULARY; i++)
        top = fmax(top, logits[i]);
    for (i = 0; i < VOCABULARY; i++)
        sum += weight[i] = exp((logits[i] - top) / temperature);
    for (i = 0; i < VOCABULARY - 1 && random * sum >= weight[i]; i++)
        random -= weight[i] / sum;
    return (unsigned char)i;
}

/* The byte that follows the first `used` bytes of the window. */
static unsigned char next_byte(trainer *t, const sherd_layout *layout, const int32_t *window,
                               int64_t used, double random)
{
    unsigned char byte = '\n';

    sherd_scope_begin(t->world);
    sherd_tensor *ids = spread_ids(t, layout, window);
    sherd_tensor *whole = sherd_full(sherd_module_call(t->model, ids));
    if (t->options->zigzag)
        whole = sherd_unzigzag(whole, 1, t->options->zigzag);
    const float *logits = sherd_tensor_read(whole);
    if (logits) /* none after an error, which the check will tell */
        byte = draw(logits + (used - 1) * VOCABULARY, random);
    sherd_scope_end(t->world);
    return byte;
}

const unsigned char *sample_prompt(const trainer *t, int64_t *count)
{
    enum { LENGTH = 32 };
    const corpus *text = t->text;
    int64_t context = t->options->context, room = (int64_t)text->count - context;
    double random = text_random(t->options->seed, prompt_stream, 0);
    int64_t at = (int64_t)((double)room * random);

    while (at < room && text->bytes[at] != ' ') /* begin with a word */
        at++;
    *count = context < LENGTH ? context : LENGTH;
    return text->bytes + (at < room ? at + 1 : 0);
}

/* The window begins with `used` bytes. */
static void write_bytes(trainer *t, const sherd_layout *layout, int64_t used, unsigned char *out,
                        int64_t count)
{
    int64_t context = t->options->context;
    int32_t *window = t->ids;

    for (int64_t i = 0; i < count; i++) {
        double random = text_random(t->options->seed, sample_stream, (uint64_t)i);
        out[i] = next_byte(t, layout, window, used, random);
        if (used == context) { /* full: go on with the second half */
            used = context / 2;
            memmove(window, window + context - used, (size_t)used * sizeof *window);
        }
        window[used++] = out[i];
    }
}

sherd_status sample_write(trainer *t, const unsigned char *prompt, int64_t prompt_count,
                          unsigned char *out, int64_t count)
{
    const sherd_layout *layout;
    sherd_status status = agree(t->world, layout_of_ids(&layout, t, 1));
    bool recording = sherd_set_recording(t->world, false);

    /* The window: [context] of a buffer that training has done with. */
    memset(t->ids, 0, (size_t)t->options->context * sizeof *t->ids);
    for (int64_t i = 0; i < prompt_count; i++)
        t->ids[i] = prompt[i];
    sherd_module_train(t->model, false);
    if (!status) {
        write_bytes(t, layout, prompt_count, out, count);
        status = sherd_world_check(t->world);
    }
    sherd_module_train(t->model, true);
    sherd_set_recording(t->world, recording);
    return status;
}
