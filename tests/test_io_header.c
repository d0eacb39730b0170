/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The header of a file where memory runs out: it is written whole, or the status is ENOMEM. An
 * index of many files takes time for each of them, not for each pair.
 */
#define CHECK_PURE
#include "check.h"

#include "io/index.h"

#include <jansson.h>
#include <time.h>

enum { MOST = 400 };

static int left;      /* allocations that succeed */
static bool for_once; /* after the one that fails there is memory again */

static void *failing_malloc(size_t bytes)
{
    int before = left--;
    return before > 0 || (for_once && before < 0) ? malloc(bytes) : NULL;
}

static sherd_status write_header(char **out, size_t *bytes, sherd__heap *heap, sherd__diag *diag)
{
    sherd_file_entry entry[2] = {
        {.name = "weight", .dtype = SHERD_F32, .ndim = 2, .shape = {3, 5}, .bytes = 60},
        {.name = "a long name of a tensor, with \"quotes\" and \xc3\xa4",
         .dtype = SHERD_BF16,
         .ndim = 3,
         .shape = {123456789, 1, 0}}};
    sherd_file_note note = {"note", "of several\nlines"};
    sherd__header header = {
        .heap = heap, .entry = entry, .entries = LEN(entry), .note = &note, .notes = 1};

    return sherd__header_text(out, bytes, &header, diag, "a test");
}

static void lack_of_memory_loses_no_part_of_it(void)
{
    sherd__heap heap = {0};
    sherd__diag diag = {.rank = -1};
    char *whole = NULL, *text;
    size_t all = 0, bytes;
    int lacked = 0;

    if (!CHECK_OK(write_header(&whole, &all, &heap, &diag)))
        return;
    json_set_alloc_funcs(failing_malloc, free);
    for (int n = 0; n < MOST; n++) {
        left = n;
        sherd_status status = write_header(&text, &bytes, &heap, &diag);
        lacked += status == SHERD_ENOMEM;
        if (status == SHERD_ENOMEM)
            CHECK(strstr(diag.text, "a test: out of memory"));
        else if (CHECK_OK(status))
            CHECK(bytes == all && memcmp(text, whole, all) == 0);
        sherd__free(&heap, text);
        memset(&diag, 0, sizeof diag);
    }
    json_set_alloc_funcs(malloc, free);
    CHECK(lacked > 20 && lacked < MOST);
    sherd__free(&heap, whole);
}

/* Read a header while there is no memory after n allocations; it is right, or a wrong one. */
static sherd_status read_without(int n, const char *text, size_t bytes, sherd__heap *heap,
                                 sherd__diag *diag)
{
    const sherd__header_of of = {.function = "a test",
                                 .path = "f",
                                 .heap = heap,
                                 .diag = diag,
                                 .file_bytes = 8 + (int64_t)bytes + 60};
    sherd__header header;

    left = n;
    sherd_status status = sherd__header_parse(&header, text, bytes, &of);
    left = MOST;
    if (!status) {
        CHECK(header.entries == 2 && strcmp(header.entry[0].name, "weight") == 0);
        sherd__header_clear(&header);
    }
    return status;
}

static void lack_of_memory_is_not_a_wrong_header(void)
{
    sherd__heap heap = {0};
    sherd__diag diag = {.rank = -1};
    char *whole = NULL;
    size_t all = 0;
    int lacked = 0;

    if (!CHECK_OK(write_header(&whole, &all, &heap, &diag)))
        return;
    json_set_alloc_funcs(failing_malloc, free);
    for (int n = 0; n < 2 * MOST; n++) {
        for_once = n % 2;
        sherd_status status = read_without(n / 2, whole + 8, all - 8, &heap, &diag);
        CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
        lacked += status == SHERD_ENOMEM;
        status = read_without(n / 2, whole + 8, all / 2, &heap, &diag);
        CHECK(status == SHERD_EINVAL || status == SHERD_ENOMEM);
        memset(&diag, 0, sizeof diag);
    }
    json_set_alloc_funcs(malloc, free);
    CHECK(lacked > 20 && lacked < 2 * MOST);
    CHECK_EQ(heap.live, 1);
    sherd__free(&heap, whole);
}

/* Each file has two tensors, which do not follow one another. */
static char *index_of(int files, size_t *bytes)
{
    enum { ENTRY = 64 };
    char *text = malloc((size_t)files * 2 * ENTRY + ENTRY);
    size_t at = (size_t)snprintf(text, ENTRY, "{\"weight_map\":{");

    for (int i = 0; i < 2 * files; i++)
        at += (size_t)snprintf(text + at, ENTRY, "%s\"t%d\":\"model-%06d.safetensors\"",
                               i ? "," : "", i, i % files);
    *bytes = at + (size_t)snprintf(text + at, ENTRY, "}}");
    return text;
}

/* Seconds of this thread for an index of so many files. */
static double time_of(int files)
{
    sherd__heap heap = {0};
    sherd__diag diag = {.rank = -1};
    sherd__paths paths = {.path = NULL};
    struct timespec from, to;
    size_t bytes;
    char *text = index_of(files, &bytes);

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    CHECK_OK(sherd__index_parse(&paths, text, bytes,
                                &(sherd__header_of){&heap, &diag, "f", "d/m.index.json", 0}));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    CHECK_EQ(paths.count, files);
    for (int i = 0; i < files; i += 997) {
        char want[64];
        snprintf(want, sizeof want, "d/model-%06d.safetensors", i);
        CHECK(strcmp(paths.path[i], want) == 0);
    }
    sherd__paths_clear(&paths, &heap);
    CHECK_EQ(heap.live, 0);
    free(text);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* Pairs would take 64 times as long. */
static void an_index_of_many_files_is_soon_read(void)
{
    double few = time_of(1000), many = time_of(16000);

    if (!CHECK(many < 64 * few))
        fprintf(stderr, "  %g s, then %g s\n", few, many);
}

static const check_test tests[] = {
    {TEST(an_index_of_many_files_is_soon_read)},
    {TEST(lack_of_memory_loses_no_part_of_it)},
    {TEST(lack_of_memory_is_not_a_wrong_header)},
};
CHECK_MAIN(tests)
