/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members of JSON objects, for the reports that are written for people: these are made of what is
 * printed for programs, so that the two never say different things.
 */
#include "members.h"

const char *cli_text(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));

    return value ? value : "";
}

int64_t cli_integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

double cli_number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}
