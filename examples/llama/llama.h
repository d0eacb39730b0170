/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder of the Llama family, for inference: what its files share. main.c says what is where. */
#ifndef LLAMA_H
#define LLAMA_H

#include <sherd.h>

enum { LINE_BYTES = 512 };

/* What config.json says. */
typedef struct config {
    int64_t vocabulary, dim, hidden, layers, heads, kv_heads, width; /* of a head */
    int64_t experts, chosen; /* of a mixture in each layer (Mixtral); 0 = one MLP */
    int64_t window;          /* keys that a query sees (Mistral); 0 = all up to it */
    double eps, rope_base;
    bool tied; /* the embedding is also the head's weight */
    sherd_dtype dtype;
    int32_t end; /* the token that ends a text; -1 = none */
} config;

/* False: *error says why. */
bool config_read(config *out, const char *path, char error[LINE_BYTES]);

typedef struct llama llama;

/* A layer's keys and values so far, [batch, capacity, kv_heads, width], sharded as its heads. */
typedef struct cache {
    const llama *model;
    sherd_tensor *k, *v; /* retained; NULL before a prefill */
} cache;

struct llama {
    sherd_world *world;
    config c;
    const sherd_mesh *mesh;
    sherd_module *root;
    cache *cache; /* [layers] */
    int64_t capacity;
    sherd_tensor *positions; /* of the tokens at work, [batch, s]; NULL = 0, 1, .. (prefill) */
};

/*
 * Split over axis "tp", and experts over axis "ep" if the mesh has one; weights are zeros, to be
 * read, or random. The caller destroys it, also after a failure.
 */
sherd_status llama_create(llama *out, sherd_world *world, const config *c, const sherd_mesh *mesh,
                          bool random);
void llama_destroy(llama *m);

/* Read the weights of a directory as Hugging Face lays it out: one file, or parts and an index. */
sherd_status llama_load(llama *m, const char *directory);

/* Numbers that are equal on all ranks, [batch, s], as a tensor whose batch lies on axis "dp". */
sherd_tensor *llama_spread(const llama *m, const int32_t *numbers, int64_t batch, int64_t s);

/*
 * The logits [batch, 1, vocabulary] of the token after each prompt. ids: [batch, longest], where
 * prompt b is the first count[b] of its row. Fills the caches, which have room for `capacity`.
 */
sherd_tensor *llama_prefill(llama *m, const int32_t *ids, const int32_t *count, int64_t batch,
                            int64_t longest, int64_t capacity);

/* The same after one more token of each row, at its position; at -1 nothing is done. */
sherd_tensor *llama_decode(llama *m, const int32_t *ids, const int32_t *positions, int64_t batch);

/* The logits of all positions, [batch, s, vocabulary], without caches. */
sherd_tensor *llama_logits(llama *m, const int32_t *ids, int64_t batch, int64_t s);

typedef struct sampling {
    double temperature; /* 0 = the most likely token */
    double top_p;       /* draw from the fewest tokens that together have this probability */
    int64_t likely;     /* tokens that are looked at first; 0 = 64 */
} sampling;

typedef struct prompts {
    int64_t batch, longest, tokens; /* tokens: to write for each */
    int32_t *ids, *count;           /* [batch, longest], [batch] */
} prompts;

/* Seconds; decoding without the first token, which is the prefill's. */
typedef struct timing {
    double prefill, decode;
    int64_t steps;
} timing;

/* Write out[batch, tokens], -1 behind a text's end; the same on all ranks. */
sherd_status generate(llama *m, const prompts *p, const sampling *how, int32_t *out, timing *took);

#endif
