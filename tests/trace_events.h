/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of traces: one that a job of this process writes, and its events. */
#ifndef SHERD_TRACE_EVENTS_H
#define SHERD_TRACE_EVENTS_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static char trace_path[] = "/tmp/sherd-trace-XXXXXX";

/* A job that begins now writes one. */
static inline void begin_trace(void)
{
    int file = mkstemp(trace_path);

    CHECK(file >= 0);
    close(file);
    setenv("SHERD_TRACE", trace_path, 1);
    unsetenv("SHERD_TRACE_BEGUN");
}

static inline void end_trace(void)
{
    unlink(trace_path);
    memcpy(trace_path + strlen(trace_path) - 6, "XXXXXX", 6);
    unsetenv("SHERD_TRACE");
}

/* All events; the list is closed here, as viewers do. */
static inline json_t *read_trace(void)
{
    static char text[1 << 20];
    FILE *file = fopen(trace_path, "r");
    json_error_t error;

    if (!CHECK(file))
        return NULL;
    size_t n = fread(text, 1, sizeof text - 2, file);
    fclose(file);
    while (n && (text[n - 1] == '\n' || text[n - 1] == ','))
        n--;
    snprintf(text + n, 2, "]");
    json_t *events = json_loads(text, 0, &error);
    if (!CHECK(events))
        fprintf(stderr, "line %d: %s\n", error.line, error.text);
    return events;
}

static inline const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

static inline double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

#endif
