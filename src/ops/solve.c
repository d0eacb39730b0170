/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The solver: whether operands fit a rule as they lie, what the results then lie in, and the cache of answers. A
 * hit costs one hash of the labels and one look into a table; a miss interns layouts and, where operands do
 * not fit, searches (search.c). The table is bounded: an answer that was not asked for since the last round of
 * replacements goes.
 */
#include "solve.h"

#include <stddef.h>
#include <string.h>

#include "base/hash.h"

/* ---- whether a rule takes operands as they lie ---------------------------------------------- */

unsigned sherd__dim_bits(const sherd__dim *dim)
{
    unsigned bits = 0;

    for (int i = 0; i < dim->axes; i++)
        bits |= 1u << dim->axis[i];
    return bits;
}

static sherd__letter *find_letter(sherd__fit *fit, char name)
{
    for (int i = 0; i < fit->letters; i++)
        if (fit->letter[i].name == name)
            return &fit->letter[i];
    return NULL;
}

/* One dim of one operand: whole where it must be, sharded as its letter is elsewhere, on axes that no other letter uses. */
static bool add_dim(sherd__fit *fit, const sherd__rule *rule, char name, const sherd__dim *dim,
                    int64_t n, unsigned *used)
{
    if (dim->axes && (name == '1' || strchr(rule->whole, name)))
        return false;
    if (name == '1')
        return true;

    sherd__letter *letter = find_letter(fit, name);
    if (letter)
        return sherd__dim_equal(fit->mesh, &letter->dim, dim, n);
    if (*used & sherd__dim_bits(dim))
        return false;
    *used |= sherd__dim_bits(dim);
    fit->letter[fit->letters++] = (sherd__letter){name, n, *dim};
    return true;
}

static bool add_dims(sherd__fit *fit, const sherd__rule *rule, const sherd_layout *const *operands)
{
    unsigned used = 0;

    for (int i = 0; i < rule->operands; i++)
        for (int d = 0; operands[i] && d < operands[i]->spec.ndim; d++)
            if (!add_dim(fit, rule, rule->operand[i][d], &operands[i]->spec.dim[d],
                         operands[i]->spec.shape[d], &used))
                return false;
    return true;
}

/* Axes that shard letters which the j-th result lacks. */
static unsigned summed_axes(const sherd__fit *fit, const sherd__rule *rule, int j)
{
    unsigned bits = 0;

    for (int i = 0; i < fit->letters; i++)
        if (!strchr(rule->result[j], fit->letter[i].name))
            bits |= sherd__dim_bits(&fit->letter[i].dim);
    return bits;
}

/* Whether all operands that are there are terms: a sum of them, without any product. */
static bool only_terms(const sherd__rule *rule, const sherd_layout *const *operands)
{
    for (int i = 0; i < rule->operands; i++)
        if (operands[i] && !(rule->term >> i & 1))
            return false;
    return true;
}

/*
 * Pending sums. On one axis the product of the factors is pending if exactly one factor is, or if a letter is summed
 * over it. Beside a pending product any term may be pending or replicated; without a product, pending terms make
 * the sum pending; but a term that is pending beside a product that is not would count that product several times.
 */
static bool pending_fits(sherd__fit *fit, const sherd__rule *rule,
                         const sherd_layout *const *operands)
{
    unsigned summed = summed_axes(fit, rule, 0), kept = 0, used = 0, product = summed, terms = 0;

    for (int i = 0; i < fit->letters; i++)
        used |= sherd__dim_bits(&fit->letter[i].dim);
    for (int i = 0; i < rule->operands; i++) {
        unsigned bits = operands[i] ? operands[i]->pending_axes : 0;
        for (int a = 0; a < fit->mesh->axes; a++)
            if ((bits >> a & 1) && operands[i]->spec.pending[a] != SHERD_SUM)
                return false;
        if (rule->term >> i & 1) {
            terms |= bits;
        } else if (bits & product) {
            return false;
        } else {
            product |= bits;
        }
        kept |= bits;
    }
    fit->pending = kept;
    if (kept && rule->linearity == SHERD__NONLINEAR)
        return false;
    if (kept & used & ~summed)
        return false;
    return !(terms & ~product) || only_terms(rule, operands);
}

bool sherd__fits(sherd__fit *fit, const sherd__rule *rule, const sherd_layout *const *operands)
{
    fit->mesh = NULL;
    fit->letters = 0;
    for (int i = 0; i < rule->operands && !fit->mesh; i++)
        fit->mesh = operands[i] ? operands[i]->spec.mesh : NULL;
    return add_dims(fit, rule, operands) && pending_fits(fit, rule, operands);
}

sherd_status sherd__fit_result(const sherd_layout **out, const sherd__fit *fit,
                               const sherd__rule *rule, int j, const int64_t *shape)
{
    const char *label = rule->result[j];
    sherd__layout_spec spec = {.mesh = fit->mesh, .ndim = (int)strlen(label)};
    unsigned pending = fit->pending | summed_axes(fit, rule, j);

    for (int a = 0; a < fit->mesh->axes; a++)
        spec.pending[a] = pending >> a & 1 ? SHERD_SUM : -1;
    for (int d = 0; d < spec.ndim; d++) {
        spec.shape[d] = shape[d];
        for (int i = 0; i < fit->letters; i++)
            if (fit->letter[i].name == label[d])
                spec.dim[d] = fit->letter[i].dim;
    }
    return sherd__layout_intern(out, &spec);
}

/* ---- the cache ------------------------------------------------------------------------------ */

/* What a question is: the rule without its name, the operands' layouts, the results' shapes. */
typedef struct question {
    const sherd__rule *rule;
    const sherd_layout *const *operands;
    const int64_t (*shape)[SHERD_MAX_DIMS];
} question;

/* Its layouts are counted. */
typedef struct answer {
    sherd__placing placing;
    bool used; /* since the hand went by */
    uint64_t hash;
    sherd__rule rule;
    const sherd_layout *operands[SHERD__OPERANDS];
    int64_t shape[SHERD__RESULTS][SHERD_MAX_DIMS];
} answer;

enum { ANSWERS_KEPT = 4096 };

typedef struct answers {
    sherd__map map;
    answer *slot[ANSWERS_KEPT]; /* the same */
    int count, hand;
} answers;

/* The labels lie side by side, zero behind their ends, so they are compared and hashed at once. */
enum {
    LABELS_AT = offsetof(sherd__rule, operand),
    LABELS_BYTES = offsetof(sherd__rule, whole) + SHERD_MAX_DIMS + 1 - LABELS_AT
};

static const char *labels_of(const sherd__rule *rule)
{
    return (const char *)rule + LABELS_AT;
}

static uint64_t hash_of(const question *q)
{
    uint64_t hash = sherd__hash_bytes((uint64_t)q->rule->linearity << 32 | q->rule->term,
                                      labels_of(q->rule), LABELS_BYTES);

    for (int i = 0; i < q->rule->operands; i++)
        hash = sherd__hash_word(hash, q->operands[i] ? q->operands[i]->hash : 0);
    return hash;
}

static bool is_answer(const void *item, const void *key)
{
    const answer *a = item;
    const question *q = key;

    if (a->rule.linearity != q->rule->linearity || a->rule.term != q->rule->term ||
        memcmp(labels_of(&a->rule), labels_of(q->rule), LABELS_BYTES) != 0)
        return false;
    for (int i = 0; i < q->rule->operands; i++)
        if (a->operands[i] != q->operands[i])
            return false;
    for (int j = 0; j < q->rule->results; j++)
        for (int d = 0; q->rule->result[j][d]; d++)
            if (a->shape[j][d] != q->shape[j][d])
                return false;
    return true;
}

static void count_layouts(const answer *a)
{
    for (int i = 0; i < a->rule.operands; i++) {
        sherd_layout_retain(a->operands[i]);
        sherd_layout_retain(a->placing.operand[i]);
    }
    for (int j = 0; j < a->rule.results; j++)
        sherd_layout_retain(a->placing.result[j]);
}

static void forget(answers *all, answer *a)
{
    for (int i = 0; i < a->rule.operands; i++) {
        sherd_layout_release(a->operands[i]);
        sherd_layout_release(a->placing.operand[i]);
    }
    for (int j = 0; j < a->rule.results; j++)
        sherd_layout_release(a->placing.result[j]);
    sherd__free(all->map.heap, a);
}

static void destroy(sherd_world *world, void *state)
{
    answers *all = state;

    for (int i = 0; i < all->count; i++)
        forget(all, all->slot[i]);
    sherd__map_clear(&all->map);
    sherd__free(sherd__world_heap(world), all);
}

/* NULL for lack of memory. */
static answers *answers_of(sherd_world *world)
{
    answers *all = sherd__world_state(world, SHERD__ROOM_OPS);

    if (all)
        return all;
    all = sherd__alloc(sherd__world_heap(world), 1, sizeof *all);
    if (!all)
        return NULL;
    all->map.heap = sherd__world_heap(world);
    sherd__world_set_state(world, SHERD__ROOM_OPS, all, destroy);
    return all;
}

/* A place for one more: the next that nobody has asked for since the hand came by. Free once this has returned. */
static answer **free_slot(answers *all)
{
    if (all->count < ANSWERS_KEPT)
        return &all->slot[all->count++];
    for (;; all->hand = (all->hand + 1) % ANSWERS_KEPT) {
        answer *a = all->slot[all->hand];
        if (!a->used)
            break;
        a->used = false;
    }
    answer **slot = &all->slot[all->hand];
    all->hand = (all->hand + 1) % ANSWERS_KEPT;
    sherd__map_remove(&all->map, (*slot)->hash, *slot);
    forget(all, *slot);
    return slot;
}

/* ---- solving -------------------------------------------------------------------------------- */

/* Terms that are not pending where the result is: only the rank at coordinate 0 of those axes adds them. */
static unsigned terms_to_leave_out(sherd_world *world, const sherd__rule *rule,
                                   const sherd__placing *placing)
{
    int64_t coordinate[SHERD_MAX_AXES];
    unsigned away = 0, once = 0;

    if (!rule->term)
        return 0;
    const sherd_mesh *mesh = placing->result[0]->spec.mesh;
    if (!sherd_mesh_coordinate(mesh, sherd_world_rank(world), coordinate))
        return 0;
    for (int a = 0; a < mesh->axes; a++)
        if (coordinate[a] != 0)
            away |= 1u << a;
    for (int i = 0; i < rule->operands; i++)
        if (placing->operand[i] && (rule->term >> i & 1) &&
            (placing->result[0]->pending_axes & ~placing->operand[i]->pending_axes & away))
            once |= 1u << i;
    return once;
}

static bool on_one_mesh(sherd__diag *diag, const question *q)
{
    const sherd_layout *first = NULL;

    for (int i = 0; i < q->rule->operands; i++) {
        const sherd_layout *l = q->operands[i];
        if (l && !first)
            first = l;
        if (l && l->spec.mesh != first->spec.mesh) {
            sherd__fail(diag, SHERD_EINVAL, "%s: operands lie on two meshes: %.150s and %.150s",
                        q->rule->name, sherd_layout_text(first), sherd_layout_text(l));
            return false;
        }
    }
    return true;
}

static bool find_answer(sherd_world *world, answer *a, const question *q)
{
    sherd__fit fit;
    sherd__placing *placing = &a->placing;

    memcpy(placing->operand, q->operands, (size_t)q->rule->operands * sizeof *q->operands);
    if (!sherd__fits(&fit, q->rule, placing->operand)) {
        if (sherd__search(placing, sherd__world_space(world), q->rule, q->operands) != SHERD_OK)
            return false;
        sherd__fits(&fit, q->rule, placing->operand);
    }
    for (int j = 0; j < q->rule->results; j++)
        if (sherd__fit_result(&placing->result[j], &fit, q->rule, j, q->shape[j]) != SHERD_OK)
            return false;
    placing->once = terms_to_leave_out(world, q->rule, placing);

    a->rule = *q->rule;
    memcpy(a->operands, q->operands, (size_t)q->rule->operands * sizeof *q->operands);
    for (int j = 0; j < q->rule->results; j++)
        memcpy(a->shape[j], q->shape[j], strlen(q->rule->result[j]) * sizeof(int64_t));
    return true;
}

/* A new answer among the others; NULL: the reason is in the diag. */
static answer *learn(sherd_world *world, answers *all, const question *q, uint64_t hash)
{
    answer *a = sherd__alloc(all->map.heap, 1, sizeof *a);
    bool good = a && find_answer(world, a, q), added = false;

    if (good)
        added = sherd__map_add(&all->map, hash, a);
    if (!a || (good && !added))
        sherd__no_memory(sherd__world_diag(world), q->rule->name);
    if (!added) {
        sherd__free(all->map.heap, a);
        return NULL;
    }
    a->hash = hash;
    count_layouts(a);
    *free_slot(all) = a;
    return a;
}

const sherd__placing *sherd__solve(sherd_world *world, const sherd__rule *rule,
                                   const sherd_layout *const *operands,
                                   const int64_t (*result_shape)[SHERD_MAX_DIMS])
{
    question q = {rule, operands, result_shape};
    uint64_t hash = hash_of(&q);
    answers *all = answers_of(world);
    answer *a = all ? sherd__map_find(&all->map, hash, is_answer, &q) : NULL;

    if (!a) {
        if (!on_one_mesh(sherd__world_diag(world), &q))
            return NULL;
        if (!all) {
            sherd__no_memory(sherd__world_diag(world), rule->name);
            return NULL;
        }
        /* What the search only looks at goes at once. */
        sherd__space *space = sherd__world_space(world);
        int mark = sherd__layouts_mark(space);
        a = learn(world, all, &q, hash);
        sherd__layouts_cut(space, mark);
        if (!a)
            return NULL;
    }
    a->used = true;
    return &a->placing;
}
