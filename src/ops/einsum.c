/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of products by index strings, as numpy.einsum: two or more operands become products of two
 * (contract.c), in the order that multiplies least; what only one operand has and the result lacks
 * is summed first, after diagonals, where a letter comes twice in a term. Up to six operands all
 * orders are tried; of more, the cheapest product comes first.
 */
#include "einsum.h"
#include "sherd/ops_diagonal.h"

#include <stdio.h>
#include <string.h>

enum { ALL_ORDERS = 6, ELLIPSIS = '.', LETTERS = 128, MOST_LETTERS = 26 };

typedef struct einsum_attributes {
    char text[SHERD__TEXT_BYTES];
} einsum_attributes;

/* Terms under way: letters of each operand, "..." as one '.', and the tensor that it stands for. */
typedef struct sum {
    int count;
    char term[SHERD_MAX_OPERANDS][SHERD__TERM_BYTES];
    char result[SHERD__TERM_BYTES];
    double size[LETTERS];         /* of each letter */
    char given[MOST_LETTERS + 1]; /* what 'a', 'b', .. stand for; empty: for themselves */
} sum;

/* ---- reading -------------------------------------------------------------------------------- */

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/*
 * Read one term, up to a comma, an arrow or the end; in those of operands a letter may come again,
 * for a diagonal. NULL, or what is wrong with it.
 */
static const char *read_term(char *out, const char **text, bool again)
{
    int n = 0;

    for (; **text && **text != ',' && **text != '-'; ++*text) {
        char c = **text;
        if (c == ' ')
            continue;
        if (strncmp(*text, "...", 3) == 0)
            *text += 2;
        else if (!is_letter(c))
            return "a term may have letters and ... only";
        out[n] = '\0';
        if (strchr(out, c) && n && (!again || c == ELLIPSIS))
            return again ? "a term may have only one ..." : "a letter may be only once in a result";
        if (n + 1 == SHERD_MAX_DIMS + 2)
            return "a term has more letters than a tensor has dims";
        out[n++] = c;
    }
    out[n] = '\0';
    return NULL;
}

/* Without an arrow: "..." and all letters that occur once, in order, capital letters first. */
static void write_result(sum *s)
{
    int times[LETTERS] = {0}, n = 0;

    for (int i = 0; i < s->count; i++)
        for (const char *c = s->term[i]; *c; c++)
            times[(int)*c]++;
    if (times[ELLIPSIS])
        s->result[n++] = ELLIPSIS;
    for (int c = 'A'; c <= 'z'; c++)
        if (times[c] == 1 && n < SHERD_MAX_DIMS + 1)
            s->result[n++] = (char)c;
    s->result[n] = '\0';
}

static const char *check_result(const sum *s)
{
    bool dots = false;

    for (const char *c = s->result; *c; c++) {
        bool there = false;
        for (int i = 0; i < s->count; i++)
            there |= strchr(s->term[i], *c) != NULL;
        if (!there)
            return "the result has a letter that no operand has";
    }
    for (int i = 0; i < s->count; i++)
        dots |= strchr(s->term[i], ELLIPSIS) != NULL;
    return dots && !strchr(s->result, ELLIPSIS) ? "the result must have ... too" : NULL;
}

/* Rules have small letters only: if there are capital ones, all get new names, in their order. */
static const char *make_small(sum *s)
{
    int times[LETTERS] = {0}, name[LETTERS], n = 0;
    bool capital = false;

    s->given[0] = '\0';
    for (int i = 0; i < s->count; i++)
        for (const char *c = s->term[i]; *c; c++)
            times[(int)*c]++;
    for (int c = 'A'; c <= 'z'; c++) {
        capital |= times[c] && c <= 'Z';
        name[c] = 'a' + n;
        n += times[c] > 0;
    }
    if (!capital)
        return NULL;
    if (n > MOST_LETTERS)
        return "it has more than 26 letters";
    for (int c = 'A'; c <= 'z'; c++)
        if (times[c])
            s->given[name[c] - 'a'] = (char)c;
    s->given[n] = '\0';
    for (int i = 0; i <= s->count; i++)
        for (char *c = i < s->count ? s->term[i] : s->result; *c; c++)
            if (*c != ELLIPSIS)
                *c = (char)name[(int)*c];
    return NULL;
}

static const char *read_text(sum *s, const char *text, int operands)
{
    const char *fault = NULL;

    s->count = 0;
    do {
        if (s->count == SHERD_MAX_OPERANDS)
            return "too many terms";
        fault = read_term(s->term[s->count++], &text, true);
    } while (!fault && *text == ',' && *++text != '\0');
    if (fault)
        return fault;
    if (s->count != operands)
        return "there must be a term for each operand";
    if (*text == '\0') {
        write_result(s);
    } else {
        if (strncmp(text, "->", 2) != 0)
            return "a - must be an ->";
        text += 2;
        fault = read_term(s->result, &text, false);
        if (!fault && *text)
            fault = "there is only one result";
    }
    fault = fault ? fault : check_result(s);
    return fault ? fault : make_small(s);
}

/* The dim of place `at` of a term: those behind "..." are counted from the last one. */
static int dim_at(const char *term, int at)
{
    const char *dots = strchr(term, ELLIPSIS);

    return dots && dots < term + at ? at - (int)strlen(term) : at;
}

/* A letter that comes twice in a term with two sizes; 0: there is none. */
static int unequal(const char *term, const sherd_tensor *t)
{
    for (int i = 0; term[i]; i++) {
        const char *next = strchr(term + i + 1, term[i]);
        if (!next)
            continue;
        int p = dim_at(term, i), q = dim_at(term, (int)(next - term));
        if (t->shape[p < 0 ? p + t->ndim : p] != t->shape[q < 0 ? q + t->ndim : q])
            return term[i];
    }
    return 0;
}

/*
 * Sizes of letters, and the number of dims of "...". Here the number of dims is checked; sizes are
 * checked when operands are multiplied.
 */
static const char *read_sizes(sum *s, sherd_call *call)
{
    for (int c = 0; c < LETTERS; c++)
        s->size[c] = 1;
    for (int i = 0; i < s->count; i++) {
        const sherd_tensor *t = call->in[i];
        int letters = (int)strlen(s->term[i]), d = 0;
        bool dots = strchr(s->term[i], ELLIPSIS) != NULL;
        if (dots ? t->ndim < letters - 1 : t->ndim != letters)
            return sherd_call_reason(call, "operand %d must have %s%d dims", i,
                                     dots ? "at least " : "", letters - dots);
        int again = unequal(s->term[i], t);
        if (again)
            return sherd_call_reason(call, "operand %d has two sizes of %c", i,
                                     *s->given ? s->given[again - 'a'] : again);
        for (const char *c = s->term[i]; *c; c++) {
            double size = 1;
            int dims = *c == ELLIPSIS ? t->ndim - letters + 1 : 1;
            for (; dims > 0; dims--)
                size *= (double)t->shape[d++];
            if (size > s->size[(int)*c])
                s->size[(int)*c] = size;
        }
    }
    return NULL;
}

static const char *describe(sherd_call *call)
{
    const einsum_attributes *attributes = call->attributes;
    sum s;
    const char *fault = read_text(&s, attributes->text, call->operands);

    if (fault)
        return sherd_call_reason(call, "\"%s\": %s", attributes->text, fault);
    return read_sizes(&s, call);
}

/* ---- the order ------------------------------------------------------------------------------ */

/*
 * The letters that the product of terms i and j keeps: letters of the result first, in its order.
 */
static void write_product(char *out, const sum *s, int i, int j)
{
    char both[2 * SHERD__TERM_BYTES];
    int n = 0;

    snprintf(both, sizeof both, "%s%s", s->term[i], s->term[j]);
    for (const char *c = s->result; *c; c++)
        if (strchr(both, *c))
            out[n++] = *c;
    for (const char *c = both; *c; c++) {
        bool wanted = false;
        out[n] = '\0';
        for (int k = 0; k < s->count; k++)
            wanted |= k != i && k != j && strchr(s->term[k], *c);
        if (wanted && !strchr(out, *c))
            out[n++] = *c;
    }
    out[n] = '\0';
}

/* Multiplications of the product of terms i and j. */
static double work_of(const sum *s, int i, int j)
{
    double work = 1;

    for (const char *c = s->term[i]; *c; c++)
        work *= s->size[(int)*c];
    for (const char *c = s->term[j]; *c; c++)
        if (!strchr(s->term[i], *c))
            work *= s->size[(int)*c];
    return work;
}

/* Replace terms i and j by their product, at place i. False: it would have too many dims. */
static bool join(sum *s, int i, int j)
{
    char product[2 * SHERD__TERM_BYTES];

    write_product(product, s, i, j);
    if (strlen(product) > SHERD_MAX_DIMS)
        return false;
    memcpy(s->term[i], product, strlen(product) + 1);
    s->count--;
    if (j != s->count)
        memcpy(s->term[j], s->term[s->count], sizeof s->term[j]);
    return true;
}

/* The least work over all orders, and its first pair. Negative: there is none. */
static double least_work(const sum *s, int pair[2])
{
    double best = -1;

    if (s->count == 1)
        return 0;
    for (int i = 0; i < s->count; i++)
        for (int j = i + 1; j < s->count; j++) {
            sum next = *s;
            int unused[2];
            double work = work_of(s, i, j);
            if (!join(&next, i, j))
                continue;
            if (s->count <= ALL_ORDERS) {
                double rest = least_work(&next, unused);
                if (rest < 0)
                    continue;
                work += rest;
            }
            if (best < 0 || work < best) {
                best = work;
                pair[0] = i;
                pair[1] = j;
            }
        }
    return best;
}

/* ---- running -------------------------------------------------------------------------------- */

/* A term as rules write it. */
static void write_term(char *out, size_t room, const char *term)
{
    size_t n = 0;

    for (; *term && n + 4 < room; term++)
        n += (size_t)snprintf(out + n, room - n, *term == ELLIPSIS ? "..." : "%c", *term);
    out[n] = '\0';
}

/* The dims of a term in the order of `kept`, which has the same letters: a view. */
static sherd_tensor *reordered(const char *term, const char *kept, sherd_tensor *t)
{
    int dims[SHERD_MAX_DIMS], count = 0, many = t->ndim - (int)strlen(term) + 1;

    for (const char *c = kept; *c; c++) {
        int first = dim_at(term, (int)(strchr(term, *c) - term));
        for (int k = 0; k < (*c == ELLIPSIS ? many : 1) && count < SHERD_MAX_DIMS; k++)
            dims[count++] = first + k;
    }
    return sherd_permute(t, dims, count);
}

/*
 * Sum over letters that only term i has and the result lacks; for the last term, also put the dims
 * in the result's order.
 */
static void sum_alone(sum *s, int i, sherd_tensor **t, bool last)
{
    char kept[SHERD__TERM_BYTES], from[SHERD__TERM_BYTES + 2], to[SHERD__TERM_BYTES + 2];
    char text[SHERD__TEXT_BYTES];
    int n = 0;

    for (const char *c = s->term[i]; *c; c++) {
        bool wanted = strchr(s->result, *c) != NULL;
        for (int k = 0; k < s->count; k++)
            wanted |= k != i && strchr(s->term[k], *c);
        if (wanted)
            kept[n++] = *c;
    }
    kept[n] = '\0';
    if (last)
        snprintf(kept, sizeof kept, "%s", s->result);
    if (strcmp(kept, s->term[i]) == 0)
        return;
    write_term(from, sizeof from, s->term[i]);
    write_term(to, sizeof to, kept);
    snprintf(text, sizeof text, "%s->%s", from, to);
    bool same = strlen(kept) == strlen(s->term[i]) && strspn(kept, s->term[i]) == strlen(kept);
    t[i] = same ? reordered(s->term[i], kept, t[i]) : sherd__arrange(text, t[i]);
    snprintf(s->term[i], sizeof s->term[i], "%s", kept);
}

/* Replace two dims of term i with the same letter by their diagonal, which becomes the last dim. */
static void take_diagonals(sum *s, int i, sherd_tensor **t)
{
    char *term = s->term[i];

    for (int at = 0; term[at]; at++) {
        char *again = strchr(term + at + 1, term[at]), letter[] = {term[at], '\0'};
        if (!again)
            continue;
        t[i] = sherd_diagonal(t[i], 0, dim_at(term, at), dim_at(term, (int)(again - term)));
        memmove(again, again + 1, strlen(again));
        memmove(term + at, term + at + 1, strlen(term + at));
        strcat(term, letter);
        at = -1;
    }
}

static void multiply(sum *s, int i, int j, sherd_tensor **t)
{
    char a[SHERD__TERM_BYTES + 2], b[SHERD__TERM_BYTES + 2], y[SHERD__TERM_BYTES + 2];
    char text[SHERD__TEXT_BYTES];

    write_term(a, sizeof a, s->term[i]);
    write_term(b, sizeof b, s->term[j]);
    join(s, i, j);
    write_term(y, sizeof y, s->term[i]);
    snprintf(text, sizeof text, "%s,%s->%s", a, b, y);
    t[i] = sherd__contract(text, t[i], t[j]);
    if (j != s->count)
        t[j] = t[s->count];
}

static bool einsum(sherd_call *call)
{
    const einsum_attributes *attributes = call->attributes;
    sherd_tensor *t[SHERD_MAX_OPERANDS];
    sum s;
    int pair[2];

    read_text(&s, attributes->text, call->operands);
    read_sizes(&s, call);
    memcpy(t, call->in, (size_t)call->operands * sizeof *t);
    for (int i = 0; i < s.count; i++)
        take_diagonals(&s, i, t);
    for (int i = 0; i < s.count; i++)
        sum_alone(&s, i, t, false);
    while (s.count > 1) {
        if (least_work(&s, pair) < 0)
            return sherd_call_fail(call, SHERD_ELIMIT,
                                   "\"%s\": in any order some product has more than %d dims",
                                   attributes->text, SHERD_MAX_DIMS);
        multiply(&s, pair[0], pair[1], t);
    }
    sum_alone(&s, 0, t, true);
    call->out[0] = t[0];
    return true;
}

const sherd_op sherd__einsum_op = {
    .name = "sherd_einsum",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "sum of products, by an index string",
    .layouts = "given by its text; sums letters that the result lacks",
    .operand = {{"operand", SHERD_OP_REPEATED}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELDS(einsum_attributes, text, BYTE, SHERD__TEXT_BYTES)},
    .attributes = sizeof(einsum_attributes),
    .describe = describe,
    .compose = einsum};

sherd_tensor *sherd_einsum(const char *text, sherd_tensor *const *operands, int count)
{
    einsum_attributes attributes = {""};
    sherd_world *world = operands && count > 0 ? sherd_tensor_world(operands[0]) : NULL;

    if (world && (!text || strlen(text) >= sizeof attributes.text))
        return sherd__fail_tensor(world, operands[0]->layout != NULL, SHERD_EINVAL,
                                  "sherd_einsum: the index string %s",
                                  text ? "is longer than 63 bytes" : "is NULL");
    if (world)
        snprintf(attributes.text, sizeof attributes.text, "%s", text);
    return sherd_apply(&sherd__einsum_op, operands, count, &attributes);
}
