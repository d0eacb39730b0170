/* SPDX-License-Identifier: Apache-2.0 */
/* What a core of this machine computes and copies in a second, for `sherd dry`. A quarter of a
 * second. */
#include "dry.h"

#include <stdlib.h>
#include <string.h>

#include <sherd.h>

#include "world/world.h"

enum { COPIED = 64 << 20, TIMES = 3 };

/* Bytes read and written in a second, of memory that no cache holds; 0: there is none. */
static double memory_rate(void)
{
    char *from = malloc(COPIED), *to = malloc(COPIED);
    int64_t best = INT64_MAX;

    if (from && to) {
        memset(from, 1, COPIED);
        memset(to, 2, COPIED);
        for (int i = 0; i < TIMES; i++) {
            int64_t begin = sherd__now();
            memcpy(to, from, COPIED);
            __asm__ volatile("" : : "r"(to) : "memory");
            int64_t took = sherd__now() - begin;
            best = took < best ? took : best;
        }
    }
    bool good = from && to;
    free(from);
    free(to);
    return good ? 2e9 * COPIED / (double)best : 0;
}

/*
 * Products of 16 bits are taken to be faster than those of f32 by as much as their peak is; f64 to
 * be half as fast.
 */
bool cli_dry_rates(char *out, size_t room)
{
    const sherd_world_options options = {.no_pin = true};
    sherd_world *world;
    double memory = memory_rate();

    if (memory <= 0 || sherd_world_alone(&world, &options) != SHERD_OK)
        return false;
    sherd_info info = sherd_world_info(world);
    sherd_world_close(world);
    double f32 = info.gemm_rate > 0 ? info.gemm_rate : info.peak;
    double gain = info.bf16_peak > info.peak && info.peak > 0 ? info.bf16_peak / info.peak : 1;
    snprintf(out, room, "f32=%.3g,f64=%.3g,half=%.3g,memory=%.3g", f32, f32 / 2, f32 * gain,
             memory);
    return true;
}
