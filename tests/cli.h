/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of the `sherd` command: what it printed, as text and as JSON; case files without files.
 * They define CHECK_PURE.
 */
#ifndef SHERD_TEST_CLI_H
#define SHERD_TEST_CLI_H

#include "check.h"
#include "program.h"

#include <jansson.h>

/* `sherd` with these arguments, separated by single blanks. Valid until the next call. */
static inline const program_end *sherd(const char *arguments)
{
    char line[4096];

    snprintf(line, sizeof line, "%s %s", SHERD, arguments);
    return program_run(line);
}

/* The same with a standard output that takes nothing; a failure is said there in one line. */
static inline void check_full(const char *arguments, const char *name)
{
    char line[4096], expected[128];
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    snprintf(line, sizeof line, "%s %s", SHERD, arguments);
    snprintf(expected, sizeof expected, "sherd%s%s: standard output: No space left on device\n",
             *name ? " " : "", name);
    program p = program_start_to(line, full);
    const program_end *end = program_wait(&p);
    if (!CHECK_EQ(end->status, 1))
        fprintf(stderr, "sherd %s\n", arguments);
    CHECK_TEXT(end->err, expected);
}

/* One line of JSON; the caller gives it up. */
static inline json_t *parsed(const char *text)
{
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);

    if (!CHECK(root != NULL))
        fprintf(stderr, "%s: %s\n", text, error.text);
    return root;
}

/* What a command answers with --json, which must go well. */
static inline json_t *answer_of(const char *arguments)
{
    char line[2048];

    snprintf(line, sizeof line, "%s --json", arguments);
    const program_end *end = sherd(line);
    if (!CHECK_EQ(end->status, 0) || !CHECK_EQ(program_lines(end->out), 1))
        fprintf(stderr, "%s: %s", line, end->err);
    CHECK_TEXT(end->err, "");
    return parsed(end->out);
}

/* A case file with this text, for `sherd COMMAND --cases`. Lines of the answer: answers[0..], NULL
 * at the end. */
static inline const program_end *cases(const char *arguments, const char *text)
{
    char line[2048];
    int fd = memfd_create("cases", 0);

    CHECK_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    snprintf(line, sizeof line, "%s --cases /proc/self/fd/%d", arguments, fd);
    const program_end *end = sherd(line);
    close(fd);
    return end;
}

/* The i-th line of a text as JSON. */
static inline json_t *line_of(const char *text, int i)
{
    char line[PROGRAM_TEXT];

    for (; i > 0 && text; i--)
        text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    snprintf(line, sizeof line, "%.*s", text ? (int)strcspn(text, "\n") : 0, text ? text : "");
    return parsed(line);
}

static inline long long whole(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);

    if (!CHECK(json_is_integer(value)))
        fprintf(stderr, "%s is no integer\n", key);
    return json_integer_value(value);
}

static inline const char *text(const json_t *o, const char *key)
{
    const char *value = json_string_value(json_object_get(o, key));

    return value ? value : "(none)";
}

/* The keys of an object in their order, "a b c". */
static inline void keys_of(const json_t *o, char *out, size_t room)
{
    const char *key;
    json_t *value;
    size_t length = 0;

    out[0] = '\0';
    json_object_foreach((json_t *)(uintptr_t)o, key, value)
    {
        if (length < room)
            length += (size_t)snprintf(out + length, room - length, "%s%s", length ? " " : "", key);
    }
}

/* An array as compact JSON. */
static inline bool is_json(const json_t *value, const char *expected)
{
    char *is = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    bool same = is && strcmp(is, expected) == 0;

    if (!same)
        fprintf(stderr, "%s, not %s\n", is ? is : "(none)", expected);
    free(is);
    return same;
}

/* {"error","key","column"} and nothing else, besides an id; column 0 = null, key NULL = null. */
static inline void check_error(const json_t *o, const char *key, int column, const char *part)
{
    const json_t *k = json_object_get(o, "key"), *c = json_object_get(o, "column");
    bool good = strstr(text(o, "error"), part) != NULL;

    good = good && (key ? strcmp(text(o, "key"), key) == 0 : json_is_null(k));
    good = good && (column ? json_integer_value(c) == column : json_is_null(c));
    good = good && json_object_size(o) == 3 + (json_object_get(o, "id") != NULL);
    if (!CHECK(good)) {
        char *is = json_dumps(o, 0);
        fprintf(stderr, "%s: not %s, %d, %s\n", is ? is : "", key ? key : "null", column, part);
        free(is);
    }
}

/* A call that must fail: its status, and part of its one line on standard error. */
typedef struct refusal {
    const char *arguments;
    int status;
    const char *part;
} refusal;

static inline void check_refusal(const refusal *r)
{
    const program_end *end = sherd(r->arguments);
    bool good = end->status == r->status && program_lines(end->err) == 1 &&
                strstr(end->err, r->part) && strncmp(end->err, "sherd", 5) == 0 &&
                end->out[0] == '\0';

    if (!CHECK(good))
        fprintf(stderr, "sherd %s: status %d: %s%s", r->arguments, end->status, end->err, end->out);
}

#endif
