/* SPDX-License-Identifier: Apache-2.0 */
/* Random numbers, as base/philox.h makes them on the CPU. */

/* Block `counter` of the stream of a key: base/philox.c. */
__device__ inline void philox(uint32_t out[4], const uint32_t *word, const uint32_t *high,
                              uint64_t counter)
{
    uint32_t k0 = word[0], k1 = word[1];
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = high[0], c3 = high[1];

    UNROLL
    for (int i = 0; i < 10; i++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}
