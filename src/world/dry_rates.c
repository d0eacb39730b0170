/* SPDX-License-Identifier: Apache-2.0 */
/* See dry_rates.h; the world of a program and the command that starts it read alike. */
#include "dry_rates.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

/* Take a rate at *at, which goes along; `seen`: bits of those that were there. Why not; NULL: it
 * was taken. */
static const char *take_rate(const char **at, sherd_rates *out, unsigned *seen)
{
    const struct {
        const char *name;
        double *rate;
    } known[] = {
        {"f32=", &out->f32}, {"f64=", &out->f64}, {"half=", &out->half}, {"memory=", &out->memory}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t length = strlen(known[i].name);
        double rate;
        if (strncmp(*at, known[i].name, length) != 0)
            continue;
        const char *end = sherd__read_number(&rate, *at + length);
        if (end == *at + length || (*end && *end != ','))
            return "a rate that is no number";
        if (!(rate >= 0) || !isfinite(rate))
            return "a rate that is negative, or not finite";
        if (*seen >> i & 1)
            return "a rate that is given twice";
        *seen |= 1u << i;
        *known[i].rate = rate;
        *at = *end ? end + 1 : end;
        return NULL;
    }
    return "there is no such rate";
}

sherd_status sherd__rates_read(sherd_rates *out, const char *text, const char *what,
                               sherd__diag *diag)
{
    const char *at = text ? text : "", *fault = NULL;
    unsigned seen = 0;

    memset(out, 0, sizeof *out);
    while (*at && !fault)
        fault = take_rate(&at, out, &seen);
    if (!fault)
        return SHERD_OK;
    return sherd__fail(diag, SHERD_EINVAL,
                       "%s%.100s: %s at \"%.40s\": expected for example "
                       "f32=1.5e11,f64=7e10,half=3e11,memory=2e10",
                       what, text, fault, at);
}
