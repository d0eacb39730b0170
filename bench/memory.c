/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a block of tensor memory costs to take and give back, in nanoseconds of a pair, the least of
 * several rounds: one size over and over, the sizes of a step over and over, and sizes that never
 * come again. And how much of the region the last two took, as a multiple of the most that was
 * live. One rank, so no peer reads; nothing is written, so no page is touched.
 */
#include <stdio.h>

#include <sherd.h>

#include "timing.h"
#include "world/inside.h"

enum { ROUNDS = 200, TURNS = 2000, STEP = 48, LIVE = 64 };

typedef struct shuffle {
    uint64_t dice;
    sherd__block *block[LIVE];
} shuffle;

static uint64_t roll(uint64_t *dice)
{
    *dice = *dice * 6364136223846793005u + 1442695040888963407u;
    return *dice >> 33;
}

static int same(sherd_world *world, shuffle *s)
{
    (void)s;
    for (int i = 0; i < TURNS; i++)
        sherd__block_give(world, sherd__block_take(world, 100000, false));
    return TURNS;
}

/* Half of what is taken lives until the end, as activations do; 8 B to 2 MB. */
static int step(sherd_world *world, shuffle *s)
{
    for (int turn = 0; turn < TURNS / STEP; turn++) {
        for (int i = 0; i < STEP; i++) {
            s->block[i] = sherd__block_take(world, (int64_t)8 << (i * 7 % 19), false);
            if (i % 2) {
                sherd__block_give(world, s->block[i - 1]);
                s->block[i - 1] = NULL;
            }
        }
        for (int i = STEP - 1; i >= 0; i--) {
            sherd__block_give(world, s->block[i]);
            s->block[i] = NULL;
        }
    }
    return TURNS / STEP * STEP;
}

/* As many sizes below 1 KB as between 1 KB and 2 KB, and so on up to 1 MB. */
static int random_sizes(sherd_world *world, shuffle *s)
{
    for (int i = 0; i < TURNS; i++) {
        int at = (int)(roll(&s->dice) % LIVE), log2 = 10 + (int)(roll(&s->dice) % 10);
        int64_t bytes = (int64_t)(roll(&s->dice) % ((uint64_t)1 << log2)) + ((int64_t)1 << log2);
        sherd__block_give(world, s->block[at]);
        s->block[at] = sherd__block_take(world, bytes, false);
    }
    return TURNS;
}

static int measure(const char *name, int (*run)(sherd_world *world, shuffle *s))
{
    sherd_world *world = NULL;
    shuffle s = {.dice = 7};
    double best = 0;

    if (sherd_world_alone(&world, NULL))
        return 1;
    for (int round = 0; round < ROUNDS; round++) {
        double start = seconds();
        int pairs = run(world, &s);
        double each = 1e9 * (seconds() - start) / pairs;
        if (best == 0 || each < best)
            best = each;
    }
    printf("%-14s %5.0f ns, the region %.2f of the most that was live\n", name, best,
           (double)world->store.used / (double)sherd_world_memory(world).peak_bytes);
    return sherd_world_close(world);
}

int main(void)
{
    return measure("one size", same) || measure("a step", step) ||
           measure("random sizes", random_sizes);
}
