/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Index strings into rules: "...k,nk,n->...n" for operands of given ndims becomes one letter per dim. The
 * dims behind "..." get capital letters, the same ones in every operand. Runs in every call of an operator, so
 * it is one pass over the text, about a tenth of a microsecond.
 */
#include <string.h>

#include "operator.h"

/* One part of the text, between separators. */
typedef struct part {
    const char *at;
    int length;
    int named; /* letters besides "..." */
    bool dots;
} part;

static part next_part(const char **text)
{
    part p = {.at = *text};

    for (const char *c = *text; *c && *c != ',' && *c != '-'; c++) {
        p.length++;
        if (*c == '.')
            p.dots = true;
        else
            p.named++;
    }
    *text += p.length;
    if (**text == ',')
        ++*text;
    return p;
}

/* Write a part's labels, "..." as `dots` letters; false if they are more than a tensor has dims. */
static bool write_labels(char *label, const part *p, int dots)
{
    int n = 0;

    memset(label, 0, SHERD_MAX_DIMS + 1);
    if (p->named + (p->dots ? dots : 0) > SHERD_MAX_DIMS)
        return false;
    for (int i = 0; i < p->length; i++) {
        if (p->at[i] != '.') {
            label[n++] = p->at[i];
            continue;
        }
        for (int d = 0; d < dots; d++)
            label[n++] = (char)('A' + d);
        i += 2;
    }
    return true;
}

bool sherd__rule_compile(sherd__rule *rule, const char *text, const int *ndims)
{
    const char *at = text, *arrow = strstr(text, "->");
    int dots = -1;

    rule->operands = rule->results = 0;
    while (at < arrow) {
        part p = next_part(&at);
        int i = rule->operands++;
        if (i == SHERD__OPERANDS)
            return false;
        if (ndims[i] < 0) {
            memset(rule->operand[i], 0, sizeof rule->operand[i]);
            continue;
        }
        int here = ndims[i] - p.named;
        if (here < 0 || (!p.dots && here > 0) || (p.dots && dots >= 0 && here != dots))
            return false;
        if (p.dots)
            dots = here;
        if (!write_labels(rule->operand[i], &p, here))
            return false;
    }
    for (at = arrow + 2; rule->results == 0 || *at;) {
        part p = next_part(&at);
        if (rule->results == SHERD__RESULTS)
            return false;
        if (!write_labels(rule->result[rule->results++], &p, dots < 0 ? 0 : dots))
            return false;
    }
    return true;
}
