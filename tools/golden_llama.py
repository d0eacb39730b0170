#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Llama-style decoder in plain PyTorch, and what it computes: writes tests/data/llama_torch.h.

    python3 tools/golden_llama.py >tests/data/llama_torch.h

Weights are a hash of their number (in the order of `names`) and index, which tests/test_example_llama.c computes too. All
in f64: the logits of two rows of ids, and the tokens that greedy decoding adds to prompts of different lengths.
"""
import torch
import torch.nn.functional as F

CONFIGS = {
    "shared": dict(vocab_size=29, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
                   num_key_value_heads=3, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
    "tied": dict(vocab_size=23, hidden_size=20, intermediate_size=13, num_hidden_layers=3, num_attention_heads=4,
                 num_key_value_heads=4, head_dim=6, rms_norm_eps=1e-6, rope_theta=500000.0, tie_word_embeddings=True),
    "one": dict(vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=False),
    "experts": dict(model_type="mixtral", vocab_size=19, hidden_size=16, intermediate_size=10, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=1000000.0,
                    tie_word_embeddings=False, num_local_experts=4, num_experts_per_tok=2),
    "window": dict(model_type="mistral", vocab_size=19, hidden_size=16, intermediate_size=12, num_hidden_layers=2,
                   num_attention_heads=4, num_key_value_heads=2, rms_norm_eps=1e-5, rope_theta=10000.0,
                   tie_word_embeddings=False, sliding_window=3),
}
PROMPTS = [[3, 1, 4, 1, 5, 9, 2], [6, 5], [8, 9, 7, 11]]
TOKENS = 9


def names(c):
    """Names and shapes of the weights."""
    d, h, kv = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    w, f = c.get("head_dim", d // h), c["intermediate_size"]
    hidden = [("mlp.gate_proj", (f, d)), ("mlp.up_proj", (f, d)), ("mlp.down_proj", (d, f))]
    if "num_local_experts" in c:
        experts = range(c["num_local_experts"])
        hidden = [("block_sparse_moe.gate", (len(experts), d))]
        hidden += [(f"block_sparse_moe.experts.{e}.{n}", (d, f) if n == "w2" else (f, d))
                   for e in experts for n in ("w1", "w2", "w3")]
    yield "model.embed_tokens.weight", (c["vocab_size"], d)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        for name, shape in (("self_attn.q_proj", (h * w, d)), ("self_attn.k_proj", (kv * w, d)),
                            ("self_attn.v_proj", (kv * w, d)), ("self_attn.o_proj", (d, h * w)), *hidden,
                            ("input_layernorm", (d,)), ("post_attention_layernorm", (d,))):
            yield at + name + ".weight", shape
    yield "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)


def hashed(number, shape):
    n = 1
    for s in shape:
        n *= s
    x = (torch.arange(n, dtype=torch.int64) * 2654435761 + number * 374761393 + 12345) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 2246822519) & 0xFFFFFFFF
    x = x ^ (x >> 13)
    u = x.double() / 2**32 - 0.5
    return ((1 + 0.4 * u) if len(shape) == 1 else u).float().double().reshape(shape)


class Llama:
    """weights: by name, all of one dtype."""

    def __init__(self, c, weights, linear=F.linear):
        self.c, self.w, self.linear = c, weights, linear
        self.heads, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.width = c.get("head_dim", c["hidden_size"] // self.heads)
        self.cache = None

    def norm(self, x, name):
        y = x.float() if x.dtype != torch.float64 else x
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.c["rms_norm_eps"])
        return y.to(x.dtype) * self.w[name + ".weight"]

    def turn(self, x, positions):
        """x [batch, s, heads, width], positions [batch, s]"""
        half = self.width // 2
        rate = self.c["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = (positions[..., None].double() * rate)[:, :, None, :]
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, x, at, positions, layer):
        batch, s, _ = x.shape
        q, k, v = (self.linear(x, self.w[f"{at}self_attn.{n}_proj.weight"]).view(batch, s, -1, self.width) for n in "qkv")
        q, k = self.turn(q, positions), self.turn(k, positions)
        if self.cache is not None:
            rows = torch.arange(batch)[:, None]
            self.cache[layer][0][rows, positions] = k
            self.cache[layer][1][rows, positions] = v
            end = int(positions.max()) + 1
            k, v = (t[:, :end] for t in self.cache[layer])
        behind = positions[..., None] - torch.arange(k.shape[1])
        seen = ((behind >= 0) & (behind < self.c.get("sliding_window", behind.max() + 1)))[:, None]
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), attn_mask=seen,
                                           enable_gqa=self.heads != self.kv)
        return self.linear(y.transpose(1, 2).reshape(batch, s, -1), self.w[at + "self_attn.o_proj.weight"])

    def mix(self, x, at):
        """Each token through the experts that it chooses; scores are a softmax over these."""
        at += "block_sparse_moe."
        y = torch.zeros_like(x)
        top = self.linear(x, self.w[at + "gate.weight"]).topk(self.c["num_experts_per_tok"], -1)
        scores = top.values.softmax(-1)
        for e in range(self.c["num_local_experts"]):
            w1, w2, w3 = (self.w[f"{at}experts.{e}.w{n}.weight"] for n in (1, 2, 3))
            score = (scores * (top.indices == e)).sum(-1, keepdim=True)
            y += score * self.linear(F.silu(self.linear(x, w1)) * self.linear(x, w3), w2)
        return y

    def hidden(self, x, at):
        if "num_local_experts" in self.c:
            return self.mix(x, at)
        gate, up, down = (self.w[f"{at}mlp.{n}_proj.weight"] for n in ("gate", "up", "down"))
        return self.linear(F.silu(self.linear(x, gate)) * self.linear(x, up), down)

    def run(self, ids, positions):
        x = F.embedding(ids, self.w["model.embed_tokens.weight"])
        for i in range(self.c["num_hidden_layers"]):
            at = f"model.layers.{i}."
            x = x + self.attend(self.norm(x, at + "input_layernorm"), at, positions, i)
            x = x + self.hidden(self.norm(x, at + "post_attention_layernorm"), at)
        x = self.norm(x, "model.norm")
        return self.linear(x, self.w.get("lm_head.weight", self.w["model.embed_tokens.weight"]))

    def make_cache(self, batch, capacity, dtype):
        self.cache = [[torch.zeros(batch, capacity, self.kv, self.width, dtype=dtype) for _ in range(2)]
                      for _ in range(self.c["num_hidden_layers"])]


def greedy(model, prompt, tokens):
    """Without a cache: the whole text again for each token."""
    text = list(prompt)
    for _ in range(tokens):
        logits = model.run(torch.tensor([text]), torch.arange(len(text))[None])
        best = logits[0, -1].topk(2)
        assert best.values[0] - best.values[1] > 1e-3, "a near tie: choose other prompts"
        text.append(int(best.indices[0]))
    return text[len(prompt):]


def main():
    import json
    longest = max(map(len, PROMPTS))
    ids = torch.tensor([[(7 * i + 3 * b) % 13 for i in range(longest)] for b in range(2)])
    print("/* SPDX-License-Identifier: Apache-2.0 */")
    print(f"/* Written by tools/golden_llama.py, PyTorch {torch.__version__.split('+')[0]}: a Llama-style decoder in f64. */")
    print("#include <stdint.h>\n")
    print("typedef struct llama_case {\n    const char *name, *config;\n    int64_t vocabulary;\n"
          "    const double *logits;  /* [2, 7, vocabulary] */\n    const int32_t *tokens; /* [3, 9] */\n} llama_case;\n")
    print("/* clang-format off */\nstatic const llama_case llama_cases[] = {")
    for name, c in CONFIGS.items():
        model = Llama(c, {n: hashed(i, shape) for i, (n, shape) in enumerate(names(c))})
        logits = model.run(ids, torch.arange(longest)[None].expand(2, -1))
        tokens = [t for p in PROMPTS for t in greedy(model, p, TOKENS)]
        text = json.dumps(c).replace('"', '\\"')
        print(f'    {{"{name}", "{text}", {c["vocab_size"]},')
        print(f"     (const double[]){{{', '.join(f'{v:.9g}' for v in logits.flatten().tolist())}}},")
        print(f"     (const int32_t[]){{{', '.join(map(str, tokens))}}}}},")
    print("};\n/* clang-format on */")


if __name__ == "__main__":
    main()
