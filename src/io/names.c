/* SPDX-License-Identifier: Apache-2.0 */
/* See names.h. Costs a walk over the list for each name. */
#include "io/names.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"

enum { MOST_LEVELS = 32, MOST_DIGITS = 18 };

/* The levels of a name that stand where its pattern has "*". */
typedef struct levels {
    const char *text[MOST_LEVELS];
    int length[MOST_LEVELS], count;
} levels;

static int level_length(const char *text)
{
    return (int)strcspn(text, ".");
}

static bool fits(levels *l, const char *pattern, const char *name)
{
    l->count = 0;
    for (;;) {
        int p = level_length(pattern), n = level_length(name);
        if (p == 1 && *pattern == '*' && l->count < MOST_LEVELS) {
            l->text[l->count] = name;
            l->length[l->count++] = n;
        } else if (p != n || memcmp(pattern, name, (size_t)n) != 0) {
            return false;
        }
        pattern += p, name += n;
        if (*pattern != *name || !*name)
            return *pattern == *name;
        pattern++, name++;
    }
}

static int occurrences(const char *text, char c)
{
    int n = 0;

    for (; *text; text++)
        n += *text == c;
    return n;
}

/* "*" as a level of a pattern. */
static int wildcards(const char *pattern)
{
    int n = 0;

    for (;; pattern++) {
        int length = level_length(pattern);
        n += length == 1 && *pattern == '*';
        pattern += length;
        if (!*pattern)
            return n;
    }
}

/* Where "[96:]" at the end of a name begins; its end, if it has none. */
static const char *part_of(const char *there)
{
    const char *end = there + strlen(there), *at = end - there > 2 ? end - 2 : end;

    if (at == end || strcmp(at, ":]") != 0)
        return end;
    while (at > there && at[-1] >= '0' && at[-1] <= '9')
        at--;
    return at > there && at[-1] == '[' && at < end - 2 ? at - 1 : end;
}

int64_t sherd__file_name_first(const sherd_file_name *n)
{
    const char *at = n ? part_of(n->there) : "";
    int64_t first = 0;

    if (!*at)
        return -1;
    while (*++at != ':')
        first = 10 * first + (*at - '0');
    return first;
}

const char *sherd__file_names_fault(const sherd_file_name *list, int count)
{
    if (count < 0 || (count && !list))
        return "there is no list of names";
    for (int i = 0; i < count; i++) {
        if (!list[i].here || !list[i].there)
            return "a name is NULL";
        if (occurrences(list[i].there, '*') > wildcards(list[i].here))
            return "a name of the file has more * than that of the module has levels *";
        if (wildcards(list[i].here) > MOST_LEVELS)
            return "a name has more than 32 levels *";
        if (occurrences(list[i].there, '#') > 1)
            return "a name of the file has two #";
        if (strlen(part_of(list[i].there)) > MOST_DIGITS + 3)
            return "a name of the file has a row that no tensor has";
    }
    return NULL;
}

uint64_t sherd__file_names_hash(const sherd_file_name *list, int count)
{
    uint64_t hash = (uint64_t)count;

    for (int i = 0; i < count; i++)
        hash = sherd__hash_text(sherd__hash_text(hash, list[i].here), list[i].there);
    return hash;
}

const sherd_file_name *sherd__file_name_find(const sherd_file_name *list, int count,
                                             const char *name)
{
    levels l;

    for (int i = 0; i < count; i++)
        if (fits(&l, list[i].here, name))
            return &list[i];
    return NULL;
}

bool sherd__file_name_stacks(const sherd_file_name *n)
{
    return n && strchr(n->there, '#');
}

/* Write the name into out[room]; returns how many bytes it needs. */
static size_t write_name(char *out, size_t room, const sherd_file_name *n, const levels *l,
                         int64_t index)
{
    const char *end = part_of(n->there);
    char number[24];
    size_t at = 0;
    int star = 0;

    snprintf(number, sizeof number, "%lld", (long long)index);
    for (const char *c = n->there; c < end; c++) {
        const char *text = *c == '*' ? l->text[star] : *c == '#' ? number : c;
        size_t length = *c == '*' ? (size_t)l->length[star] : *c == '#' ? strlen(number) : 1;
        star += *c == '*';
        if (at + length < room)
            memcpy(out + at, text, length);
        at += length;
    }
    if (at < room)
        out[at] = 0;
    return at + 1;
}

char *sherd__file_name_of(sherd__heap *heap, const sherd_file_name *n, const char *name,
                          int64_t index)
{
    levels l = {.count = 0};

    if (!n)
        return sherd__copy_text(heap, name);
    (void)fits(&l, n->here, name);
    size_t bytes = write_name(NULL, 0, n, &l, index);
    char *out = sherd__alloc(heap, bytes, 1);
    if (out)
        (void)write_name(out, bytes, n, &l, index);
    return out;
}

int sherd__list_names(char *out, size_t room, const char *(*next)(const void *of, int *i),
                      const void *of)
{
    enum { LAST = 24 }; /* " and 2147483647 more" */
    int count = 0, shown = 0;
    size_t at = 0;
    const char *name;

    out[0] = 0;
    for (int i = 0; (name = next(of, &i)) != NULL; i++, count++) {
        size_t needs = strlen(name) + (count ? 4 : 2);
        if (shown < count || (count && at + needs + LAST > room))
            continue; /* from the first that has no room on */
        at += (size_t)snprintf(out + at, room - at, "%s\"%.80s\"", count ? ", " : "", name);
        shown++;
    }
    if (shown < count)
        snprintf(out + at, room - at, " and %d more", count - shown);
    return count;
}
