/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of bytes: eight at a time through hash_word, then the tail, then the length (so "a" and
 * "a\0" differ). */
#include "hash.h"

#include <string.h>

uint64_t sherd__hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const char *at = data;
    size_t left = bytes;

    for (; left >= sizeof(uint64_t); left -= sizeof(uint64_t), at += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        hash = sherd__hash_word(hash, word);
    }
    if (left) {
        uint64_t word = 0;
        memcpy(&word, at, left);
        hash = sherd__hash_word(hash, word);
    }
    return sherd__hash_word(hash, bytes);
}

uint64_t sherd__hash_text(uint64_t hash, const char *text)
{
    return sherd__hash_bytes(hash, text, strlen(text));
}
