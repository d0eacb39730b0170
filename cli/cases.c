/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answering problems: one from the command line, or one for each line of a case file. Each gets a
 * paper world, some microseconds. A bad line is answered in its place, and the next one follows.
 */
#include "cases.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing JSON ---------------------------------------------------------------------------- */

void cli_put(bool *good, json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value) != 0)
        *good = false;
}

void cli_append(bool *good, json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        *good = false;
}

json_t *cli_whole(bool good, json_t *value)
{
    if (good)
        return value;
    json_decref(value);
    return NULL;
}

json_t *cli_string(const char *text)
{
    char *copy = strdup(text);

    if (copy)
        sherd__one_line(copy);
    json_t *out = copy ? json_string(copy) : NULL;
    free(copy);
    return out;
}

json_t *cli_integers(const int64_t *values, int count)
{
    json_t *array = json_array();
    bool good = array != NULL;

    for (int i = 0; i < count && good; i++)
        cli_append(&good, array, json_integer(values[i]));
    return cli_whole(good, array);
}

sherd_status cli_put_status(bool good, cli_problem *p)
{
    return good ? SHERD_OK : sherd__no_memory(p->diag, "sherd_answer");
}

char *cli_text_of(const json_t *answer)
{
    return json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(17));
}

void cli_print_text(const char *text)
{
    puts(text ? text : "{\"error\":\"out of memory\",\"key\":null,\"column\":null}");
}

/* ---- one problem ----------------------------------------------------------------------------- */

/* An object that begins with the id, if there is one. */
static json_t *new_answer(json_t *id)
{
    json_t *out = json_object();

    return cli_whole(!out || !id || json_object_set(out, "id", id) == 0, out);
}

/* key NULL, column 0: null. */
static json_t *new_error(json_t *id, const char *text, const char *key, int column)
{
    json_t *out = new_answer(id);
    bool good = out != NULL;

    cli_put(&good, out, "error", json_string(text));
    cli_put(&good, out, "key", key ? json_string(key) : json_null());
    cli_put(&good, out, "column", column ? json_integer(column) : json_null());
    return cli_whole(good, out);
}

/* The error that is in the problem's diag. */
static json_t *error_of(const cli_problem *p, json_t *id)
{
    const sherd__diag *diag = p->diag;
    bool placed = p->blamed < CLI_KEYS && diag->column && p->values->of[p->blamed] == diag->source;

    return new_error(id, cli_error_text(diag),
                     p->blamed < CLI_KEYS ? cli_key_name(p->blamed) : NULL,
                     placed ? diag->column : 0);
}

static json_t *answer_in(sherd_world *world, const cli_case *c, const cli_values *values,
                         json_t *id, cli_verdict *verdict)
{
    json_t *out = new_answer(id);
    cli_problem problem;

    if (!out)
        return NULL;
    *verdict = CLI_UNREADABLE;
    sherd_status status = cli_problem_read(&problem, world, values, c->command->bit);
    if (status == SHERD_OK) {
        *verdict = CLI_REFUSED;
        status = c->command->answer(out, &problem);
    }
    if (status == SHERD_OK) {
        *verdict = json_is_false(json_object_get(out, "exact")) ? CLI_WRONG : CLI_GOOD;
        return out;
    }
    json_decref(out);
    return error_of(&problem, id);
}

json_t *cli_answer(const cli_case *c, const cli_values *values, json_t *id, cli_verdict *verdict)
{
    sherd_world *world;

    *verdict = CLI_REFUSED;
    if (!cli_paper_open(&world, values))
        return NULL;
    sherd_world_fail_allocation(world, c->fail_allocation);
    json_t *out = answer_in(world, c, values, id, verdict);
    if (!out)
        *verdict = CLI_REFUSED;
    sherd_status closed = sherd_world_close(world);
    (void)closed; /* its failure was reported already */
    return out;
}

/* ---- one line -------------------------------------------------------------------------------- */

/* The line's texts over the defaults; NULL, or what is wrong with *key. */
static const char *read_members(const cli_case *c, json_t *line, cli_values *values,
                                const char **key)
{
    json_t *value;

    *values = c->defaults;
    json_object_foreach(line, *key, value)
    {
        cli_key at = cli_key_find(c->command->bit, *key, true);
        if (strcmp(*key, "id") == 0)
            continue;
        if (at == CLI_KEYS)
            return "unknown key: expected a long option of this command, without the dashes";
        if (!json_is_string(value))
            return "expected a text in quotes";
        values->of[at] = json_string_value(value);
    }
    return NULL;
}

/* The column of a place in a line that is no JSON: jansson counts from 1 what it has read. */
static json_t *no_object(const json_error_t *error, bool parsed)
{
    sherd__diag diag = {.rank = -1}; /* makes one line of good UTF-8 of whatever jansson quotes */

    if (parsed)
        return new_error(NULL, "expected an object: {\"mesh\":\"2x4\",...}", NULL, 1);
    sherd__fail(&diag, SHERD_EINVAL, "expected a JSON object on one line: %s", error->text);
    return new_error(NULL, diag.text, NULL, error->column > 0 ? error->column : 1);
}

static json_t *answer_line(const cli_case *c, const char *text, size_t length, cli_verdict *verdict)
{
    json_error_t error;
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *out;
    const char *key = NULL;
    cli_values values;

    *verdict = CLI_UNREADABLE;
    if (!json_is_object(line))
        out = no_object(&error, line != NULL);
    else {
        const char *wrong = read_members(c, line, &values, &key);
        json_t *id = json_object_get(line, "id");
        out = wrong ? new_error(id, wrong, key, 0) : cli_answer(c, &values, id, verdict);
    }
    json_decref(line);
    return out;
}

char *cli_case_answer(const cli_case *c, const char *line, size_t length, cli_verdict *verdict)
{
    json_t *out = answer_line(c, line, length, verdict);
    char *text = out ? cli_text_of(out) : NULL;

    if (!text)
        *verdict = CLI_REFUSED;
    json_decref(out);
    return text;
}

/* ---- whole runs ------------------------------------------------------------------------------ */

static bool is_blank(const char *line, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!strchr(" \t\r\n", line[i]) || !line[i])
            return false;
    return true;
}

/* Each line is written when it is answered: whoever waits for it may send the next one. */
static bool answer_all(const cli_case *c, FILE *from)
{
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    bool all_good = true;

    while ((length = getline(&line, &room, from)) >= 0) {
        cli_verdict verdict;
        if (is_blank(line, (size_t)length))
            continue;
        char *text = cli_case_answer(c, line, (size_t)length, &verdict);
        cli_print_text(text);
        free(text);
        all_good = all_good && verdict == CLI_GOOD;
        if (!cli_flush(c->command->name)) {
            all_good = false;
            break;
        }
    }
    free(line);
    return all_good;
}

static int run_cases(const cli_command *command, const cli_values *values)
{
    const char *path = values->of[CLI_CASES];
    const cli_case c = {.command = command, .defaults = *values};
    FILE *from = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");

    if (!from)
        return cli_refuse(command->name, "--cases: \"%.300s\": %s", path, strerror(errno));
    int exit_status = answer_all(&c, from) ? 0 : CLI_FAILED;
    if (ferror(from))
        exit_status = cli_refuse(command->name, "--cases: \"%.300s\": %s", path, strerror(errno));
    if (from != stdin)
        fclose(from);
    return exit_status;
}

/* What an error object says, on standard error. */
static void say(const cli_command *command, const json_t *answer)
{
    const char *key = json_string_value(json_object_get(answer, "key"));
    const char *text = json_string_value(json_object_get(answer, "error"));

    if (text)
        cli_refuse(command->name, "%s%s%s%s", key ? "--" : "", key ? key : "", key ? ": " : "",
                   text);
}

static int run_once(const cli_command *command, const cli_values *values)
{
    static const int status[] = {0, CLI_FAILED, CLI_FAILED, CLI_UNUSABLE};
    const cli_case c = {.command = command};
    cli_verdict verdict;
    json_t *answer = cli_answer(&c, values, NULL, &verdict);
    char *text = answer && values->of[CLI_JSON] ? cli_text_of(answer) : NULL;

    if (!answer || (values->of[CLI_JSON] && !text))
        cli_refuse(command->name, "out of memory");
    else if (text)
        puts(text);
    else if (verdict <= CLI_WRONG)
        command->print(stdout, answer);
    say(command, answer);
    free(text);
    json_decref(answer);
    return cli_flush(command->name) ? status[verdict] : CLI_FAILED;
}

int cli_command_answer(const cli_command *command, const cli_values *values)
{
    return values->of[CLI_CASES] ? run_cases(command, values) : run_once(command, values);
}

int cli_command_run(const cli_command *command, int argc, char **argv)
{
    cli_values values;

    if (!cli_values_read(&values, command->bit, command->name, argc, argv))
        return CLI_UNUSABLE;
    return cli_command_answer(command, &values);
}
