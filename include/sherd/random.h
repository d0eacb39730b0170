/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers. Each element of a random tensor depends only on the world's seed, the generator's
 * name, how often the generator has been used, and the element's global index (by Philox, a
 * counter-based generator). So the values are the same under every layout and on any number of
 * ranks, each rank draws only its own box, and nothing is sent.
 *
 *     sherd_generator noise = sherd_generator_named("noise");
 *     x = sherd_random_on(layout, SHERD_F32, sherd_normal(0, 1), &noise);
 */
#ifndef SHERD_RANDOM_H
#define SHERD_RANDOM_H

#include "tensor.h"

SHERD_BEGIN

/*
 * A source of random numbers. A plain value, made by sherd_generator_named and kept by the program.
 * All ranks use equal generators.
 *
 * In a step that fails, a rank that skips the rest of it (world.h) uses its generators less often
 * than the others do. So after a failed check give each of them back the value that it had at the
 * last good one; the library does that for generators of modules (sherd_module_generator).
 */
typedef struct sherd_generator {
    uint64_t name;  /* hash of the name */
    uint64_t calls; /* how often it has been used; every use adds 1 */
} sherd_generator;

/** A new generator with this name, not used yet; NULL = "". @local @errors none */
SHERD_API sherd_generator sherd_generator_named(const char *name);

typedef enum sherd_draw {
    SHERD_DRAW_UNIFORM = 0, /* [a, b) */
    SHERD_DRAW_NORMAL,      /* mean a, standard deviation b */
    SHERD_DRAW_TRUNCATED,   /* normal, but only values within [low, high] */
    SHERD_DRAW_INTEGERS,    /* integers in [a, b) */
    SHERD_DRAW_BERNOULLI    /* 1 with probability a, else 0 */
} sherd_draw;

/* What to draw. A plain value, made by the functions below or by those in values.h. */
typedef struct sherd_distribution {
    sherd_draw kind;
    double a, b;
    double low, high; /* of SHERD_DRAW_TRUNCATED */
} sherd_distribution;

/** Normal numbers. @local @errors none */
static inline sherd_distribution sherd_normal(double mean, double deviation)
{
    sherd_distribution d = {SHERD_DRAW_NORMAL, mean, deviation, 0, 0};
    return d;
}

/** Uniform numbers in [low, high). @local @errors none */
static inline sherd_distribution sherd_uniform(double low, double high)
{
    sherd_distribution d = {SHERD_DRAW_UNIFORM, low, high, 0, 0};
    return d;
}

/** Normal numbers within [low, high]. @local @errors none */
static inline sherd_distribution sherd_truncated_normal(double mean, double deviation, double low,
                                                        double high)
{
    sherd_distribution d = {SHERD_DRAW_TRUNCATED, mean, deviation, low, high};
    return d;
}

/**
 * Integers in [low, high): at most 2^32 different ones, and between -2^53 and 2^53. For any dtype
 * that can hold them.
 *
 * @local   @errors none
 */
static inline sherd_distribution sherd_integers(int64_t low, int64_t high)
{
#ifdef __cplusplus
    sherd_distribution d = {SHERD_DRAW_INTEGERS, double(low), double(high), 0, 0};
#else
    sherd_distribution d = {SHERD_DRAW_INTEGERS, (double)low, (double)high, 0, 0};
#endif
    return d;
}

/** 1 with probability p, else 0; for any dtype. @local @errors none */
static inline sherd_distribution sherd_bernoulli(double p)
{
    sherd_distribution d = {SHERD_DRAW_BERNOULLI, p, 0, 0, 0};
    return d;
}

/**
 * A plain tensor of random numbers, equal on all ranks; it does not vary. Counts as one use of the
 * generator, even if it fails.
 *
 * @local
 * @shapes   shape: int64_t[ndim]
 * @numerics made of the same 24 or 32 random bits for every dtype; normal numbers by Box-Muller,
 *           truncated ones by the inverse of the distribution function. Results are rounded to
 *           nearest, so a uniform number may equal `high` in 16-bit dtypes, and in f32 if `low` is
 *           not 0
 * @owns     the result belongs to the scope
 * @errors   EINVAL a dtype that cannot hold the numbers (a dtype that is not floating-point holds
 *           only sherd_integers and sherd_bernoulli), an invalid distribution, a negative size,
 *           `generator` NULL; ELIMIT; ENOMEM
 */
SHERD_API sherd_tensor *sherd_random(sherd_world *world, sherd_dtype dtype, const int64_t *shape,
                                     int ndim, sherd_distribution distribution,
                                     sherd_generator *generator);

/**
 * As sherd_random, with the same numbers, but *deferred*: memory is allocated and numbers are drawn
 * only when the data is first needed (then ENOMEM is raised if there is not enough). Shape, dtype
 * and all other properties are known at once. If a deferred tensor is distributed (sherd_distribute
 * with root -1, sherd_parallelize), each rank draws only its own part. So a parameter may be too
 * large for any one rank.
 *
 * @local
 * @shapes   shape: int64_t[ndim]
 * @numerics as sherd_random
 * @owns     the result belongs to the scope
 * @errors   as sherd_random. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_random_later(sherd_world *world, sherd_dtype dtype,
                                           const int64_t *shape, int ndim,
                                           sherd_distribution distribution,
                                           sherd_generator *generator);

/**
 * A distributed tensor of random numbers, the same numbers that sherd_random draws for its global
 * shape.
 *
 * @local
 * @numerics as sherd_random
 * @owns     the result belongs to the scope
 * @errors   as sherd_random; EINVAL a pending reduction
 */
SHERD_API sherd_tensor *sherd_random_on(const sherd_layout *layout, sherd_dtype dtype,
                                        sherd_distribution distribution,
                                        sherd_generator *generator);

/**
 * Draw `count` indices for each row of the last dim of `weights`, as torch.multinomial: index i
 * with probability weights[i] / sum of weights. Weights need not add up to 1; a negative one counts
 * as 0, and an infinite one is drawn first. Without `replacement` the indices of a row are all
 * different.
 *
 * Of one index, or without replacement, each weight is divided by an exponential random number, and
 * the largest quotients win: 8 bytes of memory for each weight, and if the last dim is sharded and
 * one index is drawn, each shard sends one candidate only. Several with replacement are looked up
 * in the running sums of each row: time for n additions and `count` times log n steps, and 8 bytes
 * for each weight of one row. The result does not depend on the layout.
 *
 *     next = sherd_multinomial(sherd_softmax(logits, -1), 1, false, &generator);
 *
 * @collective only if the last dim is sharded; for several indices it is gathered first, or its
 *             shards are moved to another dim
 * @shapes     weights: [..., n], of any floating-point dtype; the result: i32 [..., count]
 * @numerics   quotients and sums are f64, of numbers made of 48 random bits; what is drawn may
 *             change with the version
 * @owns       the result belongs to the scope; it has no gradient
 * @errors     see ops.h; EINVAL no dims, count < 1, a row with fewer than `count` positive weights
 *             (with replacement: with none), a weight that is NaN, `generator` NULL
 */
SHERD_API sherd_tensor *sherd_multinomial(sherd_tensor *weights, int64_t count, bool replacement,
                                          sherd_generator *generator);

SHERD_END

#endif
