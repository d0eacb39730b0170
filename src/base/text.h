/* SPDX-License-Identifier: Apache-2.0 */
/* Building and reading short texts: a bounded writer, and a scanner that knows its column. */
#ifndef SHERD__BASE_TEXT_H
#define SHERD__BASE_TEXT_H

#include "diag.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writes to `at[room]`, always zero-terminated; `length` counts on past the end, so that a first
 * pass can measure.
 */
typedef struct sherd__writer {
    char *at;
    size_t room;
    size_t length;
} sherd__writer;

void sherd__write(sherd__writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

/*
 * Copy `text` to out[room], room >= 8. What does not fit loses its middle
 * ("layers.10.at...y.weight"): names that are alike differ at their ends. No UTF-8 character is
 * cut in two.
 */
void sherd__fit_text(char *out, size_t room, const char *text);

/*
 * A number as JSON has it, finite, with at most so many digits (17 or less): the program's locale
 * may have set another decimal point.
 */
void sherd__write_number(sherd__writer *w, int digits, double value);
/*
 * A decimal number with a point, whatever the locale says: "1.5e11", at most 60 bytes. Where it
 * ends; `text` itself if there is none.
 */
const char *sherd__read_number(double *out, const char *text);

/* A text between quotes, as JSON has it, in one line; more than 512 bytes lose their middle. */
void sherd__write_quoted(sherd__writer *w, const char *text);

/* Reads `text`; `at` is the current position. The column of an error is at - text + 1. */
typedef struct sherd__scanner {
    const char *text;
    const char *at;
} sherd__scanner;

void sherd__skip_blanks(sherd__scanner *s);
/* Skip blanks, then consume `literal` if it comes next. */
bool sherd__take(sherd__scanner *s, const char *literal);
/* Skip blanks, then take a decimal integer below 2^62 without sign. */
bool sherd__take_integer(sherd__scanner *s, int64_t *out);
/* Skip blanks, then take [A-Za-z_][A-Za-z0-9_]* of at most room-1 letters into out. */
bool sherd__take_name(sherd__scanner *s, char *out, size_t room);
/* Skip blanks; whether the end is reached. */
bool sherd__at_end(sherd__scanner *s);
int sherd__column(const sherd__scanner *s);

/*
 * Fail with `function: column 4 of "2x": ...` at the scanner's position, which the diag keeps; a
 * long text is abridged.
 */
sherd_status sherd__fail_at(sherd__diag *diag, sherd_status status, const char *function,
                            const sherd__scanner *s, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* EINVAL: `function: column 4 of "2x": expected ...`. */
sherd_status sherd__expected(sherd__diag *diag, const char *function, const sherd__scanner *s,
                             const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
