/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of case files, given to `sherd layout` and to `sherd plan`. The answer is one line with one
 * JSON object: the same each time, with the id of the line; an error names a key of the line and a
 * column in its value, or nothing. With a failing allocation there may be no answer, but no harm.
 */
#include "fuzz.h"
#include "cases.h"

/* An error: its text, its key, its column. `line` is NULL where it is no object. */
static void check_wrong(const json_t *answer, const json_t *line, const char *text)
{
    const json_t *key = json_object_get(answer, "key"), *column = json_object_get(answer, "column");
    const char *why = json_string_value(json_object_get(answer, "error"));

    MUST_SAY(why && *why && strlen(why) < SHERD_ERROR_BYTES && is_one_line(why), text);
    MUST_SAY(json_is_null(key) || json_is_string(key), text);
    MUST_SAY(json_is_null(column) || json_integer_value(column) > 0, text);
    if (json_is_null(key) || json_is_null(column))
        return;
    const char *value = json_string_value(json_object_get(line, json_string_value(key)));
    MUST_SAY(value && (size_t)json_integer_value(column) <= strlen(value) + 1, text);
}

/* What stands in every good answer. */
static void check_good(const json_t *answer, const cli_command *command, const char *text)
{
    bool plan = command == &cli_plan_command;

    MUST_SAY(json_is_string(json_object_get(answer, plan ? "trace" : "layout")), text);
    MUST_SAY(json_is_array(json_object_get(answer, plan ? "steps" : "ranks")), text);
}

static void check_answer(const char *text, const cli_command *command, cli_verdict verdict,
                         const uint8_t *data, size_t bytes)
{
    json_t *answer = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    json_t *line = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    json_t *id = json_object_get(line, "id");

    MUST_SAY(json_is_object(answer) && !strpbrk(text, "\r\n"), text);
    MUST_SAY(!id || json_equal(id, json_object_get(answer, "id")), text);
    MUST_SAY((verdict != CLI_GOOD) == (json_object_get(answer, "error") != NULL), text);
    if (verdict == CLI_GOOD)
        check_good(answer, command, text);
    else
        check_wrong(answer, line, text);
    json_decref(line);
    json_decref(answer);
}

static void try(const cli_command *command, const uint8_t *data, size_t bytes, int64_t fail_at)
{
    cli_case c = {.command = command};
    cli_verdict verdict = CLI_GOOD, again = CLI_GOOD;

    char *text = cli_case_answer(&c, (const char *)data, bytes, &verdict);
    MUST(text != NULL);
    check_answer(text, command, verdict, data, bytes);
    c.fail_allocation = fail_at;
    char *starved = cli_case_answer(&c, (const char *)data, bytes, &again);
    MUST_SAY(!starved || strcmp(starved, text) == 0 || again == CLI_UNREADABLE ||
                 again == CLI_REFUSED,
             starved);
    free(starved);
    free(text);
}

/*
 * Whether a mesh of the line has more than a million ranks: shards that are not even take a plan
 * seconds there.
 */
static bool is_large(const uint8_t *data, size_t bytes)
{
    static const char *const keys[] = {"mesh", "to-mesh"};
    json_t *line = json_loadb((const char *)data, bytes, JSON_REJECT_DUPLICATES, NULL);
    bool large = false;
    paper p;

    paper_open(&p, 2147483647, 0);
    for (int i = 0; i < LEN(keys); i++) {
        const char *text = json_string_value(json_object_get(line, keys[i]));
        const sherd_mesh *mesh;
        if (text && sherd__mesh_read(&mesh, &p.space, text) == SHERD_OK)
            large = large || sherd_mesh_ranks(mesh) > 1000000;
    }
    paper_close(&p);
    json_decref(line);
    return large;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = fuzz_text(data, bytes);
    int64_t fail_at = fuzz_fail_at(text);

    try(&cli_layout_command, data, bytes, fail_at);
    if (!is_large(data, bytes))
        try(&cli_plan_command, data, bytes, fail_at);
    free(text);
    return 0;
}
