/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the model is split over the axis "tp", as a list of styles. In a block it is Megatron's
 * scheme: the first products of attention and MLP by output feature (Colwise), the second ones by
 * input feature (Rowwise), so that each half of a block costs one all-reduce forward and one
 * backward. A granule of one head keeps heads whole where they do not divide. The logits stay split
 * over the vocabulary, and the loss is taken there.
 *
 * With sequence parallelism activations between the products are split along the sequence: the
 * all-reduce becomes a reduce-scatter, and a gather where attention or MLP begins. What is gathered
 * is gathered again in backward, or kept.
 *
 * Experts, where there are any, lie with the ranks of "dp", whose bytes go there and come back, and
 * their features are split over "tp".
 *
 * With sharded parameters each rank of "dp" and "cp" keeps its part of what "tp" leaves there, and
 * a layer's are gathered when it is called.
 */
#include "model.h"

enum { ENTRIES = 16, SEQUENCE = 1 /* the dim of positions in [batch, context, dim] */ };

typedef struct plan {
    sherd_parallel_entry entry[ENTRIES];
    int count;
} plan;

static void add(plan *p, const char *path, sherd_style style)
{
    p->entry[p->count++] = (sherd_parallel_entry){path, style};
}

/* `style` with heads kept whole */
static sherd_style by_head(sherd_style style, const gpt_options *o)
{
    style.granule = o->dim / o->heads;
    return style;
}

static sherd_style leaving(sherd_style style, sherd_placement output)
{
    style.output = output;
    return style;
}

static sherd_style arriving(sherd_style style, sherd_placement input)
{
    style.input = input;
    return style;
}

/* Each rank of "dp" has some experts, to which the bytes of all go. */
static sherd_status spread_experts(sherd_module *model, const sherd_mesh *mesh)
{
    const sherd_parallel_entry entry = {"blocks.*.mlp.mix", sherd_expert_parallel()};

    return sherd_parallelize(model, mesh, "dp", &entry, 1);
}

/* What lies between the products: each rank keeps some positions. */
static void add_sequence(plan *p, bool keep)
{
    /* One gather serves wq, wk and wv. */
    sherd_style gather = arriving(sherd_prepare_input(), sherd_shard(SEQUENCE));

    gather.keep_gathered = keep;
    add(p, "drop", sherd_sequence_parallel());
    add(p, "blocks.*.norm[12]", sherd_sequence_parallel());
    add(p, "blocks.*.attn", gather);
    add(p, "blocks.*.attn.drop", sherd_sequence_parallel());
    add(p, "blocks.*.mlp", gather);
    add(p, "blocks.*.mlp.drop", sherd_sequence_parallel());
    add(p, "norm", sherd_sequence_parallel());
}

sherd_status model_split(sherd_module *model, const sherd_mesh *mesh, const gpt_options *options)
{
    const char *data = options->cp > 1 ? "dp,cp" : "dp"; /* what shards the numbers of a batch */
    bool sequence = options->sequence_parallel;
    sherd_placement between = sequence ? sherd_shard(SEQUENCE) : sherd_replicate();
    plan p = {.count = 0};
    sherd_status status;

    /* Nothing to split; and so no rank ever has whole parameters. */
    if (options->shard_parameters && options->tp == 1 && !options->experts)
        return sherd_fully_shard(model, mesh, data, NULL);
    add(&p, "tok", leaving(sherd_rowwise(), between));
    add(&p, "blocks.*.attn.w[qkv]", by_head(sherd_colwise(), options));
    add(&p, "blocks.*.attn.wo", leaving(by_head(sherd_rowwise(), options), between));
    if (options->experts) {
        add(&p, "blocks.*.mlp.mix", leaving(sherd_expert_tensor_parallel(), between));
    } else {
        add(&p, "blocks.*.mlp.up", sherd_colwise());
        add(&p, "blocks.*.mlp.down", leaving(sherd_rowwise(), between));
    }
    add(&p, "head", arriving(sherd_colwise(), between));
    if (sequence)
        add_sequence(&p, options->keep_gathered);
    status = sherd_parallelize(model, mesh, "tp", p.entry, p.count);
    if (!status && options->experts)
        status = spread_experts(model, mesh);
    if (!status && options->shard_parameters)
        status = sherd_fully_shard(model, mesh, data, &(sherd_shard_options){.skip_sharded = true});
    if (!status && options->input_reshard)
        status = sherd_input_reshard(model, mesh, "tp", SEQUENCE);
    return status;
}
