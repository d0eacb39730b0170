/* SPDX-License-Identifier: Apache-2.0 */
/* Reads config.json of a model. What would change the arithmetic and is not done here is
 * refused. */
#include <jansson.h>
#include <string.h>

#include "llama.h"

static int64_t integer(const json_t *o, const char *key, int64_t otherwise)
{
    const json_t *value = json_object_get(o, key);
    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *value = json_object_get(o, key);
    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static sherd_dtype dtype_of(const json_t *o)
{
    const char *name = json_string_value(json_object_get(o, "torch_dtype"));

    if (!name)
        name = json_string_value(json_object_get(o, "dtype"));
    return name && strcmp(name, "bfloat16") == 0  ? SHERD_BF16
           : name && strcmp(name, "float16") == 0 ? SHERD_F16
                                                  : SHERD_F32;
}

static const char *fault(const config *c, const json_t *o)
{
    const json_t *scaling = json_object_get(o, "rope_scaling");
    const char *act = json_string_value(json_object_get(o, "hidden_act"));

    if (c->vocabulary < 1 || c->dim < 1 || c->hidden < 1 || c->layers < 1 || c->heads < 1)
        return "a size is missing";
    if (c->kv_heads < 1 || c->heads % c->kv_heads || c->width < 2 || c->width % 2)
        return "heads, shared heads and their width do not fit";
    if (c->experts && (c->chosen < 1 || c->chosen > c->experts))
        return "num_experts_per_tok does not fit the experts";
    if (json_object_get(o, "num_experts"))
        return "experts are those of Mixtral (num_local_experts) only";
    if (c->window < 0)
        return "sliding_window is negative";
    if (c->window && (json_object_get(o, "layer_types") || json_object_get(o, "max_window_layers")))
        return "a window of some layers only is not done here";
    if (scaling && !json_is_null(scaling))
        return "rope_scaling is not done here";
    if (act && strcmp(act, "silu") != 0)
        return "hidden_act is not silu";
    if (json_is_true(json_object_get(o, "attention_bias")) ||
        json_is_true(json_object_get(o, "mlp_bias")))
        return "biases are not done here";
    return NULL;
}

bool config_read(config *out, const char *path, char error[LINE_BYTES])
{
    json_error_t at;
    json_t *o = json_load_file(path, 0, &at);

    if (!o) {
        snprintf(error, LINE_BYTES, "%s: %s", path, at.text);
        return false;
    }
    *out = (config){.vocabulary = integer(o, "vocab_size", 0),
                    .dim = integer(o, "hidden_size", 0),
                    .hidden = integer(o, "intermediate_size", 0),
                    .layers = integer(o, "num_hidden_layers", 0),
                    .heads = integer(o, "num_attention_heads", 0),
                    .experts = integer(o, "num_local_experts", 0),
                    .chosen = integer(o, "num_experts_per_tok", 0),
                    .eps = number(o, "rms_norm_eps", 1e-6),
                    .rope_base = number(o, "rope_theta", 10000),
                    .tied = json_is_true(json_object_get(o, "tie_word_embeddings")),
                    .dtype = dtype_of(o),
                    .end = (int32_t)integer(o, "eos_token_id", -1)};
    if (!json_is_false(json_object_get(o, "use_sliding_window")))
        out->window = integer(o, "sliding_window", 0);
    out->kv_heads = integer(o, "num_key_value_heads", out->heads);
    out->width = integer(o, "head_dim", out->heads > 0 ? out->dim / out->heads : 0);
    const char *why = fault(out, o);
    if (why)
        snprintf(error, LINE_BYTES, "%s: %s", path, why);
    json_decref(o);
    return !why;
}
