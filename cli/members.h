/* SPDX-License-Identifier: Apache-2.0 */
/* Members of JSON objects, by their keys: what is not there is 0 or "". */
#ifndef SHERD_CLI_MEMBERS_H
#define SHERD_CLI_MEMBERS_H

#include <jansson.h>
#include <stdint.h>

const char *cli_text(const json_t *object, const char *key);
int64_t cli_integer(const json_t *object, const char *key);
double cli_number(const json_t *object, const char *key);

#endif
