/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for the cheapest move that makes operands fit a rule. A candidate says for each letter
 * which axes shard it: as in some operand, or fewer of those axes, or none; and for each axis on
 * which an operand is pending, which operands stay so. Its price is what the busiest rank receives,
 * added over the operands, in bytes of a 4-byte element; then the elements that operands and
 * results take locally; the first one wins a tie. Answers are cached, so this runs once for each
 * new set of layouts; it plans a few candidates (about 10 us each).
 */
#include <string.h>

#include "solve.h"
#include "base/saturate.h"
#include "search/plans.h"

enum {
    CHOICES = 24,     /* ways to shard one letter */
    SUBLIST_AXES = 4, /* of longer lists only the beginnings are tried */
    CANDIDATES = 512, /* then the best so far, or everything whole, is taken */
    NOTHING = -2,     /* stays pending, in keep_pending */
    TERMS = -1        /* stay pending, and no factor */
};

typedef struct choices {
    char name;
    int64_t n;
    int count;
    sherd__dim dim[CHOICES];
} choices;

typedef struct search {
    sherd__space *space;
    const sherd__run *run;
    const sherd__rule *rule; /* the run's */
    const sherd_layout *const *operands;
    const sherd_mesh *mesh;
    sherd_status status;
    int letters, tried;
    choices letter[SHERD__LETTERS];
    /* made here, for beginnings of lists with explicit cuts */
    int64_t *cuts[SHERD__LETTERS * CHOICES];
    int cuts_made;
    /* The candidate under way: */
    const sherd__dim *chosen[SHERD__LETTERS];
    unsigned kept[SHERD_MAX_OPERANDS]; /* axes on which the operand stays pending */
    /* The best one: */
    bool found;
    int64_t bytes, elements;
    const sherd_layout *best[SHERD_MAX_OPERANDS];
} search;

/* ---- what a letter may be -------------------------------------------------------------------- */

static void add_choice(search *s, choices *c, const sherd__dim *dim)
{
    for (int i = 0; i < c->count; i++)
        if (sherd__dim_equal(s->mesh, &c->dim[i], dim, c->n))
            return;
    if (c->count < CHOICES - 1) /* the last place is for the whole dim */
        c->dim[c->count++] = *dim;
}

/*
 * Cuts of the first `depth` axes of a dim, intervals below them merged; false for lack of memory.
 */
static bool merge_cuts(search *s, sherd__dim *out, const sherd__dim *dim)
{
    int64_t parts = sherd__dim_parts(s->mesh, out);
    int64_t below = sherd__dim_parts(s->mesh, dim) / parts;
    int64_t *cuts = sherd__alloc(s->space->heap, sherd__bytes(parts + 1), sizeof *cuts);

    if (!cuts)
        return false;
    for (int64_t i = 0; i <= parts; i++)
        cuts[i] = dim->cuts[i * below];
    s->cuts[s->cuts_made++] = cuts;
    out->cuts = cuts;
    return true;
}

/*
 * Add the sublist of a dim's axes whose bits are in `mask`. A prefix of the list keeps the cuts,
 * others get default cuts.
 */
static bool add_sublist(search *s, choices *c, const sherd__dim *dim, unsigned mask)
{
    sherd__dim part = {0};

    if (c->count >= CHOICES - 1)
        return true;
    for (int i = 0; i < dim->axes; i++)
        if (mask >> i & 1)
            part.axis[part.axes++] = dim->axis[i];
    if (dim->cuts && (mask & (mask + 1)) == 0 && !merge_cuts(s, &part, dim))
        return false;
    add_choice(s, c, &part);
    return true;
}

static bool add_sublists(search *s, choices *c, const sherd__dim *dim)
{
    if (dim->axes > SUBLIST_AXES) {
        for (int depth = dim->axes - 1; depth > 0; depth--)
            if (!add_sublist(s, c, dim, (1u << depth) - 1))
                return false;
        return true;
    }
    for (unsigned mask = dim->axes ? (1u << dim->axes) - 1 : 0; mask-- > 1;)
        if (!add_sublist(s, c, dim, mask))
            return false;
    return true;
}

/* The n-th dim that carries this letter, over all operands; NULL after the last. */
static const sherd__dim *dim_of_letter(const search *s, char name, int nth)
{
    for (int i = 0; i < s->rule->operands; i++)
        for (int d = 0; s->operands[i] && d < s->operands[i]->spec.ndim; d++)
            if (s->rule->operand[i][d] == name && nth-- == 0)
                return &s->operands[i]->spec.dim[d];
    return NULL;
}

static bool add_letter(search *s, char name, int64_t n)
{
    for (int i = 0; i < s->letters; i++)
        if (s->letter[i].name == name)
            return true;

    choices *c = &s->letter[s->letters++];
    const sherd__dim *dim;
    *c = (choices){.name = name, .n = n};
    if (!s->run->call.op->whole || !strchr(s->run->call.op->whole, name)) {
        for (int nth = 0; (dim = dim_of_letter(s, name, nth)); nth++)
            if (dim->axes)
                add_choice(s, c, dim);
        for (int nth = 0; (dim = dim_of_letter(s, name, nth)); nth++)
            if (!add_sublists(s, c, dim))
                return false;
    }
    c->dim[c->count++] = (sherd__dim){0};
    return true;
}

static bool add_letters(search *s)
{
    for (int i = 0; i < s->rule->operands; i++)
        for (int d = 0; s->operands[i] && d < s->operands[i]->spec.ndim; d++)
            if (s->rule->operand[i][d] >= 'A' &&
                !add_letter(s, s->rule->operand[i][d], s->operands[i]->spec.shape[d]))
                return false;
    return true;
}

/* ---- one candidate --------------------------------------------------------------------------- */

static const sherd__dim *chosen_dim(const search *s, char name)
{
    for (int i = 0; i < s->letters; i++)
        if (s->letter[i].name == name)
            return s->chosen[i];
    return NULL;
}

/* Whether an operand would have to be both pending and sharded on one axis. */
static bool contradicts(const search *s, int i)
{
    for (const char *label = s->rule->operand[i]; *label; label++) {
        const sherd__dim *dim = chosen_dim(s, *label);
        if (dim && (sherd__dim_bits(dim) & s->kept[i]))
            return true;
    }
    return false;
}

/* The layout that the candidate gives an operand. */
static sherd_status target_of(search *s, int i, const sherd_layout **out)
{
    sherd__layout_spec spec = s->operands[i]->spec;

    for (int d = 0; d < spec.ndim; d++) {
        const sherd__dim *dim = chosen_dim(s, s->rule->operand[i][d]);
        spec.dim[d] = dim ? *dim : (sherd__dim){0};
    }
    for (int a = 0; a < spec.mesh->axes; a++)
        if (!(s->kept[i] >> a & 1))
            spec.pending[a] = -1;
    return sherd__layout_intern(out, &spec);
}

static int64_t local_elements(const search *s, const char *label)
{
    int64_t n = 1;

    for (; *label; label++)
        for (int i = 0; i < s->letters; i++)
            if (s->letter[i].name == *label)
                n = sherd__times(n, sherd__dim_longest(s->mesh, s->chosen[i], s->letter[i].n));
    return n;
}

sherd_status sherd__price_moves(int64_t *bytes, int count, const sherd_layout *const *from,
                                const sherd_layout *const *to)
{
    *bytes = 0;
    for (int i = 0; i < count; i++) {
        const sherd_plan *plan;
        if (!to[i] || to[i] == from[i])
            continue;
        sherd_status status = sherd__plan_find(&plan, from[i], to[i], SHERD__PRICED_BYTES, NULL);
        if (status)
            return status;
        *bytes = sherd__plus(*bytes, plan->price.recv_max_bytes);
    }
    return SHERD_OK;
}

/* Price the candidate and keep it if it is the best; the status is stored in the search. */
static void try_candidate(search *s)
{
    const sherd_layout *target[SHERD_MAX_OPERANDS] = {NULL};
    int64_t bytes, elements = 0;
    sherd__fit fit;

    s->tried++;
    for (int i = 0; i < s->rule->operands; i++)
        if (s->operands[i] && contradicts(s, i))
            return;
    for (int i = 0; i < s->rule->operands && !s->status; i++)
        if (s->operands[i])
            s->status = target_of(s, i, &target[i]);
    if (s->status || !sherd__fits(&fit, s->run, target))
        return;
    s->status = sherd__price_moves(&bytes, s->rule->operands, s->operands, target);
    for (int i = 0; i < s->rule->operands; i++)
        elements = sherd__plus(elements, target[i] ? local_elements(s, s->rule->operand[i]) : 0);
    for (int j = 0; j < s->rule->results; j++)
        elements = sherd__plus(elements, local_elements(s, s->rule->result[j]));
    if (s->status ||
        (s->found && (bytes > s->bytes || (bytes == s->bytes && elements >= s->elements))))
        return;
    s->found = true;
    s->bytes = bytes;
    s->elements = elements;
    memcpy(s->best, target, sizeof target);
}

/* ---- all candidates -------------------------------------------------------------------------- */

/* Let the factor `what` and all terms that are pending on an axis stay so, or TERMS, or NOTHING. */
static void keep_pending(search *s, int axis, int what)
{
    for (int i = 0; i < s->rule->operands; i++) {
        bool may = i == what || (what != NOTHING && sherd__is_term(s->run->call.op, i));
        unsigned bit = 1u << axis;
        s->kept[i] &= ~bit;
        if (may && s->operands[i])
            s->kept[i] |= s->operands[i]->pending_axes & bit;
    }
}

/*
 * For operators that only move elements, anything may stay pending; whether all operands agree is
 * checked later.
 */
static void keep_all(search *s, int axis)
{
    for (int i = 0; i < s->rule->operands; i++)
        if (s->operands[i])
            s->kept[i] |= s->operands[i]->pending_axes & 1u << axis;
}

static bool has_terms(const search *s)
{
    for (int i = 0; i < s->rule->operands; i++)
        if (sherd__is_term(s->run->call.op, i))
            return true;
    return false;
}

/*
 * For axis a and all after it: each pending factor may stay alone, or the terms only, or all are
 * settled. Of many factors on many axes these are too many even to count.
 */
static void choose_pending(search *s, int a)
{
    unsigned pending = 0;

    if (s->tried >= CANDIDATES || s->status)
        return;
    while (a < s->mesh->axes) {
        for (int i = 0; i < s->rule->operands; i++)
            pending |= s->operands[i] ? s->operands[i]->pending_axes & 1u << a : 0;
        if (pending)
            break;
        a++;
    }
    if (a == s->mesh->axes) {
        try_candidate(s);
        return;
    }
    for (int i = 0; i < s->rule->operands && s->run->call.linearity == SHERD_LINEAR; i++)
        if (s->operands[i] && !sherd__is_term(s->run->call.op, i) &&
            (s->operands[i]->pending_axes & pending)) {
            keep_pending(s, a, i);
            choose_pending(s, a + 1);
        }
    if (s->run->call.linearity == SHERD_LINEAR && has_terms(s)) {
        keep_pending(s, a, TERMS);
        choose_pending(s, a + 1);
    }
    if (s->run->call.linearity == SHERD_UNCHANGED) {
        keep_all(s, a);
        choose_pending(s, a + 1);
    }
    keep_pending(s, a, NOTHING);
    choose_pending(s, a + 1);
}

/* For letter k and all after it: each choice whose axes no earlier letter uses. */
static void choose_letter(search *s, int k, unsigned used)
{
    if (k == s->letters) {
        choose_pending(s, 0);
        return;
    }
    for (int i = 0; i < s->letter[k].count && s->tried < CANDIDATES && !s->status; i++) {
        const sherd__dim *dim = &s->letter[k].dim[i];
        unsigned bits = sherd__dim_bits(dim);
        if (bits & used)
            continue;
        s->chosen[k] = dim;
        choose_letter(s, k + 1, used | bits);
    }
}

/*
 * Everything gathered and settled: it always fits, so there is an answer even if the candidates ran
 * out.
 */
static void try_whole(search *s)
{
    for (int i = 0; i < s->letters; i++)
        s->chosen[i] = &s->letter[i].dim[s->letter[i].count - 1];
    memset(s->kept, 0, sizeof s->kept);
    if (!s->status)
        try_candidate(s);
}

sherd_status sherd__search(sherd__placing *placing, const sherd__run *run,
                           const sherd_layout *const *operands)
{
    sherd__space *space = sherd__world_space(run->call.world);
    const sherd__rule *rule = &run->rule;
    const char *name = run->call.op->name;
    search *s = sherd__alloc(space->heap, 1, sizeof *s);

    if (!s)
        return sherd__no_memory(space->diag, name);
    s->space = space;
    s->run = run;
    s->rule = rule;
    s->operands = operands;
    for (int i = 0; i < rule->operands && !s->mesh; i++)
        s->mesh = operands[i] ? operands[i]->spec.mesh : NULL;
    if (!add_letters(s))
        s->status = sherd__no_memory(space->diag, name);
    if (!s->status)
        choose_letter(s, 0, 0);
    if (!s->found)
        try_whole(s);
    if (!s->status)
        memcpy(placing->operand, s->best, sizeof s->best);

    sherd_status status = s->status;
    for (int i = 0; i < s->cuts_made; i++)
        sherd__free(space->heap, s->cuts[i]);
    sherd__free(space->heap, s);
    return status;
}
