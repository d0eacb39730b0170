/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several dims of batch for kernels that know one. Pieces are contiguous, so items follow one
 * another whatever dims they come from; but a mask that is stretched in only some of them has a
 * stride for each. Neighbouring dims become one where strides allow it; kernels take the last of
 * what is left, and once for each index of the others, which is a part. Costs nothing without a
 * mask; else a call of a kernel for each part.
 */
#include "attend.h"

#include <string.h>

/* The letters of dims of batch in rules: none is another dim's of attention. */
static const char letters[] = "bacd";

void sherd__attend_letters(char out[SHERD__ATTEND_BATCHES + 1], int batches)
{
    memcpy(out, letters, (size_t)batches);
    out[batches] = '\0';
}

/* Texts are short: no rule of attention has as many bytes as fit. */
void sherd__attend_rule(sherd_call *call, int batches, const char *text)
{
    char *to = call->rule;

    for (; *text; text++)
        if (*text == '*') {
            memcpy(to, letters, (size_t)batches);
            to += batches;
        } else {
            *to++ = *text;
        }
    *to = '\0';
}

/* Whether a dim outside of a level goes on where that ends. */
static bool goes_on(const sherd__attend_level *outer, const sherd__attend_level *level,
                    bool ordered)
{
    return outer->mask == level->mask * level->size && outer->span == level->span * level->size &&
           (!ordered || outer->first == level->first * level->size);
}

/* Kernels count the items of a level from its first one, where numbers for dropout are drawn. */
static bool begins(const sherd__attend_level *dim, bool ordered)
{
    return !ordered || dim->first == 1;
}

sherd__attend_parts sherd__attend_split(const sherd__attending *s, int dims,
                                        const sherd__attend_level *dim)
{
    sherd__attend_parts p = {.s = *s, .levels = 1, .parts = 1, .level = {{.size = 1, .first = 1}}};
    sherd__attend_level *last = p.level;
    bool ordered = s->p != 0;
    int64_t items = 1;

    for (int d = dims - 1; d >= 0; items *= dim[d].size, d--) {
        sherd__attend_level here = dim[d];
        here.item = items;
        if (here.size == 1)
            continue;
        if (last == p.level && last->size == 1 && begins(&here, ordered)) {
            *last = here;
        } else if (last->size != 1 && goes_on(&here, last, ordered)) {
            last->size *= here.size;
        } else {
            *++last = here;
            p.levels++;
        }
    }
    if (items == 0)
        p.levels = 1;
    for (int i = 1; i < p.levels; i++)
        p.parts *= p.level[i].size;
    p.s.batch = items == 0 ? 0 : p.level[0].size;
    p.s.mask_stride[0] = p.level[0].mask;
    p.s.span_batch = p.level[0].span;
    return p;
}

sherd__attend_part sherd__attend_part_of(const sherd__attend_parts *p, int64_t i)
{
    sherd__attend_part x = {.s = p->s};

    for (int d = 1; d < p->levels; d++) {
        const sherd__attend_level *level = &p->level[d];
        int64_t index = i % level->size;
        i /= level->size;
        x.item += index * level->item;
        x.mask += index * level->mask;
        x.s.first[0] += index * level->first;
        if (x.s.span)
            x.s.span += index * level->span;
    }
    if (x.s.mask)
        x.s.mask = (const char *)x.s.mask + x.mask * (int64_t)sherd_dtype_bytes(x.s.mask_dtype);
    return x;
}
