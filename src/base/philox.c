/* SPDX-License-Identifier: Apache-2.0 */
/* Philox4x32-10: ten rounds of two 32x32->64 products. About 10 ns a block; the f32 kernels run
 * many at once. */
#include "philox.h"
#include "hash.h"

enum { ROUNDS = 10 };

static const uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
static const uint32_t key_step[2] = {0x9E3779B9u, 0xBB67AE85u};

/* 64 bits of key and 64 of the counter's upper half: two calls share a stream with probability
 * 2^-128. */
sherd__key sherd__philox_key(uint64_t seed, uint64_t generator, uint64_t call)
{
    uint64_t low = sherd__hash_word(
        sherd__hash_word(sherd__hash_word(0x243F6A8885A308D3u, seed), generator), call);
    uint64_t high = sherd__hash_word(
        sherd__hash_word(sherd__hash_word(0x13198A2E03707344u, seed), generator), call);

    return (sherd__key){{(uint32_t)low, (uint32_t)(low >> 32)},
                        {(uint32_t)high, (uint32_t)(high >> 32)}};
}

void sherd__philox(uint32_t out[4], sherd__key key, uint64_t counter)
{
    uint32_t k0 = key.word[0], k1 = key.word[1];
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32);
    uint32_t c2 = key.high[0], c3 = key.high[1];

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t a = (uint64_t)multiplier[0] * c0;
        uint64_t b = (uint64_t)multiplier[1] * c2;
        uint32_t next0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        uint32_t next2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = next0;
        c2 = next2;
        k0 += key_step[0];
        k1 += key_step[1];
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
