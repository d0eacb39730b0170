/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading price files: one line per axis, "tp 1e-6 2.5e-12 0", "*" for the others, or several, each
 * for tensors "upto 1048576" bytes; "overlap" alone if classes of messages are under way at the
 * same time, "straight" if collectives do not go by stages, # for comments. Prices must be the same
 * integers on all ranks and machines, so numbers are not read through a floating-point type (nor by
 * the locale's rules): the decimal digits are scaled to picoseconds, or to femtoseconds per byte,
 * by moving the point, and rounded once, to nearest, ties to even. Costs one pass over the text.
 */
#include "price_text.h"
#include "base/num.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    sherd__diag *diag;
    const char *text;
    sherd__scanner s; /* of the line */
    int64_t line;     /* from 1 */
    sherd_price price;
} reader;

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static bool at_end(const reader *r)
{
    char c = *r->s.at;

    return c == '\0' || c == '\n' || c == '#';
}

/* The scanner's own skips lines too. */
static void skip_blanks(reader *r)
{
    while (is_blank(*r->s.at))
        r->s.at++;
}

/* EINVAL at `at`, with the line and what stands in it. */
static sherd_status expected(const reader *r, const char *at, const char *what)
{
    enum { SHOWN = 160 };
    size_t length = strcspn(r->s.text, "\n");
    const sherd__scanner s = {r->s.text, at};

    sherd__fail(r->diag, SHERD_EINVAL,
                "sherd_price_parse: line %lld, column %d of \"%.*s%s\": expected %s",
                (long long)r->line, sherd__column(&s), length > SHOWN ? SHOWN : (int)length,
                r->s.text, length > SHOWN ? "..." : "", what);
    r->diag->column = sherd__column(&s);
    r->diag->source = r->text;
    return SHERD_EINVAL;
}

/* ---- numbers -------------------------------------------------------------------------------- */

/* A decimal number as it stands: digits with at most one point among them, times 10^exponent. */
typedef struct decimal {
    const char *digits, *end;
    int64_t whole;    /* digits before the point */
    int64_t exponent; /* cut far beyond what any text's digits could make up for */
} decimal;

/* "e-12", if it stands here; else 0. */
static int64_t take_exponent(sherd__scanner *s)
{
    const int64_t far = (int64_t)1 << 55;
    const char *at = s->at;
    int64_t value = 0;

    if (*at != 'e' && *at != 'E')
        return 0;
    at++;
    bool negative = *at == '-';
    if (*at == '-' || *at == '+')
        at++;
    if (!is_digit(*at))
        return 0;
    for (; is_digit(*at); at++)
        value = sherd__min(value * 10 + (*at - '0'), far);
    s->at = at;
    return negative ? -value : value;
}

/* False if no number stands here; then nothing is taken. */
static bool take_decimal(sherd__scanner *s, decimal *out)
{
    const char *at = s->at;
    int64_t count = 0;

    out->digits = at;
    for (; is_digit(*at); at++)
        count++;
    out->whole = count;
    if (*at == '.')
        for (at++; is_digit(*at); at++)
            count++;
    if (count == 0)
        return false;
    out->end = at;
    s->at = at;
    out->exponent = take_exponent(s);
    return true;
}

/* round(number * 10^scale), ties to even; false if it reaches 2^62. */
static bool to_integer(const decimal *number, int scale, int64_t *out)
{
    int64_t left = number->whole + number->exponent + scale; /* digits until the point is reached */
    int64_t value = 0;
    int tail = 0; /* what is cut off: first digit times 2, plus 1 if more follows */

    for (const char *at = number->digits; at < number->end; at++) {
        int digit = *at - '0';
        if (*at == '.')
            continue;
        if (left > 0 && (!sherd__mul(value, 10, &value) || !sherd__add(value, digit, &value)))
            return false;
        if (left == 0)
            tail = 2 * digit;
        else if (left < 0 && digit > 0)
            tail |= 1;
        left--;
    }
    for (; left > 0 && value > 0; left--)
        if (!sherd__mul(value, 10, &value))
            return false;
    *out = value;
    return tail > 10 || (tail == 10 && value % 2) ? sherd__add(value, 1, out) : true;
}

/* A number of seconds, times 10^scale. */
static sherd_status scan_seconds(reader *r, int scale, const char *what, int64_t *out)
{
    skip_blanks(r);
    const char *start = r->s.at;
    decimal number;

    if (!is_blank(start[-1]) || !take_decimal(&r->s, &number) || !(is_blank(*r->s.at) || at_end(r)))
        return expected(r, start, what);
    if (!to_integer(&number, scale, out))
        return expected(r, start, "fewer seconds: below 4.6e6 for alpha, 4.6e3 for beta and gamma");
    return SHERD_OK;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static sherd_status scan_axis(reader *r, char *out, size_t room)
{
    const char *start = r->s.at;

    if (*start == '*') {
        snprintf(out, room, "*");
        r->s.at++;
    } else if (!sherd__take_name(&r->s, out, room)) {
        return expected(r, start, "the name of an axis (of at most 31 letters), or *");
    }
    if (!is_blank(*r->s.at) && !at_end(r))
        return expected(r, r->s.at, "a blank and alpha in seconds");
    return SHERD_OK;
}

/* "upto BYTES", if it stands here. */
static sherd_status scan_limit(reader *r, int64_t *out)
{
    static const char word[] = "upto";
    decimal number;

    skip_blanks(r);
    if (strncmp(r->s.at, word, sizeof word - 1) != 0)
        return SHERD_OK;
    r->s.at += sizeof word - 1;
    skip_blanks(r);
    const char *start = r->s.at;
    if (!is_blank(start[-1]) || !take_decimal(&r->s, &number) ||
        !(is_blank(*r->s.at) || at_end(r)) || !to_integer(&number, 0, out) || *out == 0)
        return expected(r, start, "bytes of a tensor, like 1048576, after upto");
    return SHERD_OK;
}

/* Of the line that was read, which began at `start`. */
static sherd_status check_new(const reader *r, const char *start)
{
    const sherd_price *p = &r->price;
    const sherd_link *last = &p->link[p->links];

    for (int i = 0; i < p->links; i++)
        if (strcmp(p->link[i].axis, last->axis) == 0 && p->link[i].upto_bytes == last->upto_bytes)
            return expected(r, start, "a new axis, or size: this one has a line already");
    return SHERD_OK;
}

/* A word alone sets what it names; with numbers it is an axis. */
static bool take_word(reader *r, const char *word, bool *set)
{
    const char *start = r->s.at;
    size_t length = strlen(word);

    if (strncmp(start, word, length) != 0)
        return false;
    r->s.at += length;
    skip_blanks(r);
    *set = *set || at_end(r);
    if (!at_end(r))
        r->s.at = start;
    return at_end(r);
}

static sherd_status scan_line(reader *r)
{
    enum { ROOM = sizeof r->price.link / sizeof r->price.link[0] };
    sherd_link *link = &r->price.link[r->price.links];

    skip_blanks(r);
    if (at_end(r) || take_word(r, "overlap", &r->price.overlap) ||
        take_word(r, "straight", &r->price.straight))
        return SHERD_OK;
    if (r->price.links == ROOM)
        return expected(r, r->s.at, "no more lines: a price has at most 36 of axes");
    const char *start = r->s.at;
    sherd_status status = scan_axis(r, link->axis, sizeof link->axis);
    if (status == SHERD_OK)
        status =
            scan_seconds(r, 12, "alpha: seconds a message, like 1e-6", &link->alpha_picoseconds);
    if (status == SHERD_OK)
        status = scan_seconds(r, 15, "beta: seconds a byte, like 1e-11", &link->beta_femtoseconds);
    if (status == SHERD_OK)
        status = scan_seconds(r, 15, "gamma: seconds a byte added, like 1e-11",
                              &link->gamma_femtoseconds);
    if (status == SHERD_OK)
        status = scan_limit(r, &link->upto_bytes);
    skip_blanks(r);
    if (status == SHERD_OK && !at_end(r))
        status = expected(r, r->s.at,
                          "the end of the line after alpha, beta and gamma, or upto and bytes");
    if (status == SHERD_OK)
        status = check_new(r, start);
    r->price.links++;
    return status;
}

sherd_status sherd__price_read(sherd_price *out, sherd__diag *diag, const char *text)
{
    reader r = {.diag = diag, .text = text, .s = {text, text}, .line = 1};
    sherd_status status = scan_line(&r);

    r.price.kind = SHERD_PRICE_LINKS;
    while (status == SHERD_OK) {
        const char *end = r.s.text + strcspn(r.s.text, "\n");
        if (*end == '\0')
            break;
        r.s = (sherd__scanner){end + 1, end + 1};
        r.line++;
        status = scan_line(&r);
    }
    if (status == SHERD_OK && r.price.links == 0)
        status = expected(&r, r.s.text, "a line: axis alpha beta gamma");
    if (status == SHERD_OK)
        *out = r.price;
    return status;
}
