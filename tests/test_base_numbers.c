/* SPDX-License-Identifier: Apache-2.0 */
/* Checked sizes at their limits, hashes, status and dtype names, and Philox against its authors'
 * known answers. */
#define CHECK_PURE
#include "check.h"
#include "base/hash.h"
#include "base/num.h"
#include "base/philox.h"
#include "sherd/dtype.h"

#include <sys/wait.h>

static const int64_t limit = (int64_t)1 << SHERD__SIZE_LIMIT_LOG2;

static void products_stop_at_the_limit(void)
{
    const int64_t half = (int64_t)1 << 31;
    int64_t out = -1;

    CHECK(sherd__mul(half, half - 1, &out) && out == half * (half - 1));
    CHECK(!sherd__mul(half, half, &out)); /* 2^62 exactly */
    CHECK(!sherd__mul(INT64_MAX, INT64_MAX, &out));
    CHECK(!sherd__mul(limit, 1, &out));
    CHECK(sherd__mul(limit - 1, 1, &out) && out == limit - 1);
    CHECK(sherd__mul(0, INT64_MAX, &out) && out == 0);
    CHECK(sherd__mul(INT64_MAX, 0, &out) && out == 0);
    CHECK(!sherd__mul(-1, 2, &out));
    CHECK(!sherd__mul(2, -1, &out));
}

static void sums_stop_at_the_limit(void)
{
    int64_t out = -1;

    CHECK(sherd__add(limit - 1, 0, &out) && out == limit - 1);
    CHECK(!sherd__add(limit - 1, 1, &out));
    CHECK(!sherd__add(INT64_MAX, INT64_MAX, &out));
    CHECK(!sherd__add(-1, 1, &out));
    CHECK(sherd__add(0, 0, &out) && out == 0);
}

static void counts_of_shapes(void)
{
    const int64_t shape[] = {3, 4, 5}, empty[] = {limit - 1, 4, 0}, large[] = {limit - 1, 2},
                  bad[] = {0, -1}, beside[] = {0, limit};
    int64_t n = -1;

    CHECK(sherd__count(shape, 3, &n) && n == 60);
    CHECK(sherd__count(NULL, 0, &n) && n == 1);
    CHECK(sherd__count(empty, 3, &n) && n == 0);
    CHECK(!sherd__count(large, 2, &n));
    CHECK(!sherd__count(bad, 2, &n));
    CHECK(!sherd__count(beside, 2, &n)); /* two of them would have no sum */
}

static void casts_keep_what_fits(void)
{
    CHECK_EQ(sherd__int(INT32_MAX), INT32_MAX);
    CHECK_EQ(sherd__int(INT32_MIN), INT32_MIN);
    CHECK_EQ(sherd__bytes(limit), limit);
    CHECK_EQ(sherd__ceil_div(7, 4), 2);
    CHECK_EQ(sherd__ceil_div(8, 4), 2);
    CHECK_EQ(sherd__ceil_div(0, 4), 0);
}

/* A broken invariant ends the process; its text goes to a pipe here. */
static void a_cast_that_does_not_fit_aborts(void)
{
    int ends[2], status = 0;
    char text[256] = "";

    if (!CHECK_EQ(pipe(ends), 0))
        return;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        _exit(sherd__int((int64_t)INT32_MAX + 1) == 0 ? 0 : 1);
    }
    close(ends[1]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(read(ends[0], text, sizeof text - 1) > 0);
    CHECK(strstr(text, "num.c") && strstr(text, "broken invariant"));
    close(ends[0]);
}

static void hashes_depend_on_every_byte(void)
{
    char data[40] = "the quick brown fox jumps over the lazy";

    for (size_t n = 0; n < sizeof data; n++) {
        uint64_t whole = sherd__hash_bytes(1, data, n);
        CHECK(whole == sherd__hash_bytes(1, data, n));
        CHECK(whole != sherd__hash_bytes(2, data, n));
        CHECK(whole != sherd__hash_bytes(1, data, n + 1 < sizeof data ? n + 1 : n - 1));
        for (size_t i = 0; i < n; i++) {
            data[i] ^= 1;
            CHECK(whole != sherd__hash_bytes(1, data, n));
            data[i] ^= 1;
        }
    }
    CHECK(sherd__hash_text(0, "ab") == sherd__hash_bytes(0, "ab", 2));
    CHECK(sherd__hash_bytes(0, "a\0", 2) !=
          sherd__hash_bytes(0, "a", 1)); /* same word, other length */
}

static void known_answers(const uint32_t *want, sherd__key key, uint64_t counter)
{
    uint32_t out[4];

    sherd__philox(out, key, counter);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(out[i], want[i]);
}

/* philox4x32-10 in kat_vectors of Random123: counter words 0 1 2 3, key words 0 1. */
static void philox_gives_the_known_answers(void)
{
    const uint32_t zero[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    const uint32_t ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    const uint32_t pi[] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};

    known_answers(zero, (sherd__key){{0, 0}, {0, 0}}, 0);
    known_answers(ones, (sherd__key){{~0u, ~0u}, {~0u, ~0u}}, ~(uint64_t)0);
    known_answers(pi, (sherd__key){{0xa4093822, 0x299f31d0}, {0x13198a2e, 0x03707344}},
                  0x85a308d3243f6a88u);
}

static void keys_differ_in_every_argument(void)
{
    uint64_t near[4][3] = {{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}};

    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            sherd__key a = sherd__philox_key(near[i][0], near[i][1], near[i][2]);
            sherd__key b = sherd__philox_key(near[j][0], near[j][1], near[j][2]);
            CHECK_EQ(memcmp(&a, &b, sizeof a) == 0, i == j);
        }
}

static void every_status_has_a_name_and_a_text(void)
{
#define NAME(name, number, text)                        \
    CHECK_TEXT(sherd_status_name(SHERD_##name), #name); \
    CHECK_TEXT(sherd_status_text(SHERD_##name), text);
    SHERD_STATUS_LIST(NAME)
#undef NAME
    CHECK_TEXT(sherd_status_name((sherd_status)-99), "unknown");
    CHECK(strlen(sherd_status_text((sherd_status)-99)) > 0);
}

static void every_dtype_has_a_name_and_a_size(void)
{
    static const char *names[] = {"none", "f32", "f64", "bf16", "f16",
                                  "i32",  "i64", "u8",  "bool", "i8"};
    static const size_t bytes[] = {0, 4, 8, 2, 2, 4, 8, 1, 1, 1};

    CHECK_EQ(SHERD_DTYPES, LEN(names));
    for (int i = 0; i < SHERD_DTYPES; i++) {
        CHECK_TEXT(sherd_dtype_name((sherd_dtype)i), names[i]);
        CHECK_EQ(sherd_dtype_bytes((sherd_dtype)i), bytes[i]);
    }
    CHECK_EQ(sherd_dtype_bytes((sherd_dtype)SHERD_DTYPES), 0);
    CHECK_EQ(sherd_dtype_bytes((sherd_dtype)-1), 0);
    CHECK_TEXT(sherd_dtype_name((sherd_dtype)-1), "unknown");
}

static const check_test tests[] = {
    {TEST(products_stop_at_the_limit)},
    {TEST(sums_stop_at_the_limit)},
    {TEST(counts_of_shapes)},
    {TEST(casts_keep_what_fits)},
    {TEST(a_cast_that_does_not_fit_aborts)},
    {TEST(hashes_depend_on_every_byte)},
    {TEST(philox_gives_the_known_answers)},
    {TEST(keys_differ_in_every_argument)},
    {TEST(every_status_has_a_name_and_a_text)},
    {TEST(every_dtype_has_a_name_and_a_size)},
};
CHECK_MAIN(tests)
