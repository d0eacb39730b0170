/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded writer and the scanner. Letters are ASCII whatever the locale says, so that texts
 * read alike everywhere. */
#include "text.h"
#include "num.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sherd__write(sherd__writer *w, const char *format, ...)
{
    size_t left = w->length < w->room ? w->room - w->length : 0;
    va_list arguments;

    va_start(arguments, format);
    int n = vsnprintf(left ? w->at + w->length : NULL, left, format, arguments);
    va_end(arguments);
    if (n > 0)
        w->length += (size_t)n;
}

/* Whatever the locale has for a point, of one byte or of several, is what no number has. */
void sherd__write_number(sherd__writer *w, int digits, double value)
{
    char text[64];
    bool in_point = false;

    snprintf(text, sizeof text, "%.*g", digits, value);
    for (const char *at = text; *at; at++) {
        bool plain = (*at >= '0' && *at <= '9') || strchr("+-einf", *at);
        if (plain || !in_point)
            sherd__write(w, "%c", plain ? *at : '.');
        in_point = !plain;
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* With its point taken out, and the exponent less, it reads alike in all locales. */
const char *sherd__read_number(double *out, const char *text)
{
    enum { MOST = 60 };
    char whole[MOST + 16];
    const char *at = text;
    int n = 0, digits = 0, after = 0;
    bool point = false;

    if (*at == '+' || *at == '-')
        whole[n++] = *at++;
    for (; n < MOST && (is_digit(*at) || (*at == '.' && !point)); at++) {
        point = point || *at == '.';
        if (*at == '.')
            continue;
        whole[n++] = *at;
        digits++;
        after += point;
    }
    whole[n] = '\0';
    if (digits == 0)
        return text;
    char *end;
    long exponent = 0;
    const char *power = at + (*at == 'e' || *at == 'E');
    if (power != at && is_digit(power[*power == '+' || *power == '-'])) { /* no blank before it */
        exponent = strtol(power, &end, 10);
        at = end;
    }
    exponent = exponent < -9999 ? -9999 : exponent > 9999 ? 9999 : exponent;
    snprintf(whole + n, sizeof whole - (size_t)n, "e%ld", exponent - after);
    *out = strtod(whole, NULL);
    return at;
}

/* Whether a byte goes on with a letter of UTF-8 that an earlier one began. */
static bool goes_on(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

void sherd__fit_text(char *out, size_t room, const char *text)
{
    size_t length = strlen(text);

    if (length < room) {
        memcpy(out, text, length + 1);
        return;
    }
    size_t kept = room - 1 - strlen("..."), head = kept / 2, tail = length - (kept - head);
    while (head > 0 && goes_on(text[head]))
        head--;
    while (goes_on(text[tail]))
        tail++;
    memcpy(out, text, head);
    memcpy(out + head, "...", strlen("..."));
    memcpy(out + head + strlen("..."), text + tail, length - tail + 1);
}

void sherd__write_quoted(sherd__writer *w, const char *text)
{
    enum { MOST = 512 };
    char line[MOST + 1];

    sherd__fit_text(line, sizeof line, text);
    sherd__one_line(line);
    sherd__write(w, "\"");
    for (const char *at = line; *at; at++)
        sherd__write(w, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
    sherd__write(w, "\"");
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

void sherd__skip_blanks(sherd__scanner *s)
{
    while (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r')
        s->at++;
}

bool sherd__take(sherd__scanner *s, const char *literal)
{
    size_t n = strlen(literal);

    sherd__skip_blanks(s);
    if (strncmp(s->at, literal, n) != 0)
        return false;
    s->at += n;
    return true;
}

bool sherd__take_integer(sherd__scanner *s, int64_t *out)
{
    int64_t value = 0;

    sherd__skip_blanks(s);
    const char *at = s->at;
    if (!is_digit(*at))
        return false;
    for (; is_digit(*at); at++)
        if (!sherd__mul(value, 10, &value) || !sherd__add(value, *at - '0', &value))
            return false;
    s->at = at;
    *out = value;
    return true;
}

bool sherd__take_name(sherd__scanner *s, char *out, size_t room)
{
    size_t n = 0;

    sherd__skip_blanks(s);
    if (!is_letter(*s->at))
        return false;
    while (is_letter(s->at[n]) || is_digit(s->at[n]))
        n++;
    if (n >= room)
        return false;
    memcpy(out, s->at, n);
    out[n] = '\0';
    s->at += n;
    return true;
}

bool sherd__at_end(sherd__scanner *s)
{
    sherd__skip_blanks(s);
    return *s->at == '\0';
}

int sherd__column(const sherd__scanner *s)
{
    return sherd__int(s->at - s->text + 1);
}

static sherd_status fail_at(sherd__diag *diag, sherd_status status, const char *function,
                            const sherd__scanner *s, const char *word, const char *what)
{
    enum { SHOWN = 160 };

    sherd__fail(diag, status, "%s: column %d of \"%.*s%s\": %s%s", function, sherd__column(s),
                SHOWN, s->text, strlen(s->text) > SHOWN ? "..." : "", word, what);
    diag->column = sherd__column(s);
    diag->source = s->text;
    return status;
}

sherd_status sherd__fail_at(sherd__diag *diag, sherd_status status, const char *function,
                            const sherd__scanner *s, const char *format, ...)
{
    char what[SHERD_ERROR_BYTES / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fail_at(diag, status, function, s, "", what);
}

sherd_status sherd__expected(sherd__diag *diag, const char *function, const sherd__scanner *s,
                             const char *format, ...)
{
    char what[SHERD_ERROR_BYTES / 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fail_at(diag, SHERD_EINVAL, function, s, "expected ", what);
}
