/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The solver's answers that are kept. A hit costs one hash of the labels and one table lookup. The
 * table is bounded by number and, since layouts may list all ranks, by bytes: an answer that was
 * not used since the last round of replacements is dropped. What ranks drop may differ; an answer
 * follows from its question, so it is found again.
 */
#include "answers.h"

#include <string.h>

#include "base/hash.h"
#include "layout/bytes.h"

enum { BYTES_KEPT = 64 << 20 };

uint64_t sherd__question_hash(const sherd__solver_question *q)
{
    const sherd__run *run = q->run;
    const sherd_op *op = run->call.op;
    uint64_t hash = sherd__hash_word(0x6f706572, (uint64_t)(uintptr_t)op);

    for (int i = 0; i < run->call.operands; i++)
        hash = sherd__hash_word(hash, q->operands[i] ? q->operands[i]->hash : 0);
    if (op->describe) {
        hash = sherd__hash_word(hash, run->call.linearity);
        hash = sherd__hash_word(hash, run->call.reduces);
    }
    if (op->ways) /* from attributes and layouts follow linearity and reduction */
        return sherd__hash_word(hash, run->dtype) ^ sherd__attributes_hash(q->run);
    if (op->describe) {
        hash = sherd__hash_bytes(hash, run->rule.operand,
                                 (size_t)run->call.operands * sizeof run->rule.operand[0]);
        hash = sherd__hash_bytes(hash, run->rule.result,
                                 (size_t)run->call.results * sizeof run->rule.result[0]);
    }
    return hash;
}

static bool same_rule(const sherd__solver_answer *a, const sherd__run *run)
{
    if (a->linearity != run->call.linearity || a->reduces != run->call.reduces ||
        memcmp(a->rule.operand, run->rule.operand,
               (size_t)a->count * sizeof run->rule.operand[0]) != 0 ||
        memcmp(a->rule.result, run->rule.result, (size_t)a->results * sizeof run->rule.result[0]) !=
            0)
        return false;
    for (int j = 0; j < a->results; j++)
        for (int d = 0; a->rule.result[j][d]; d++)
            if (a->shape[j][d] != run->call.shape[j][d])
                return false;
    return true;
}

static bool is_answer(const void *item, const void *key)
{
    const sherd__solver_answer *a = item;
    const sherd__solver_question *q = key;
    const sherd_call *call = &q->run->call;

    if (a->op != call->op || a->count != call->operands)
        return false;
    for (int i = 0; i < a->count; i++)
        if (a->operands[i] != q->operands[i])
            return false;
    if (a->op->ways && a->dtype != q->run->dtype)
        return false;
    if (a->attributes && !sherd__same_fields(a->op, a->attributes, call->attributes))
        return false;
    return !a->op->describe || a->op->ways || same_rule(a, q->run);
}

static void count_layouts(const sherd__solver_answer *a)
{
    for (int i = 0; i < a->count; i++) {
        sherd_layout_retain(a->operands[i]);
        sherd_layout_retain(a->placing.operand[i]);
    }
    for (int j = 0; j < a->results; j++)
        sherd_layout_retain(a->placing.result[j]);
}

static void forget(sherd__answers *all, sherd__solver_answer *a)
{
    for (int i = 0; i < a->count; i++) {
        sherd_layout_release(a->operands[i]);
        sherd_layout_release(a->placing.operand[i]);
    }
    for (int j = 0; j < a->results; j++)
        sherd_layout_release(a->placing.result[j]);
    sherd__free(all->map.heap, a->attributes);
    sherd__free(all->map.heap, a);
}

void sherd__answers_destroy(sherd__answers *all)
{
    if (!all)
        return;
    for (int i = 0; i < all->count; i++)
        forget(all, all->slot[i]);
    sherd__map_clear(&all->map);
    sherd__free(all->map.heap, all);
}

sherd__answers *sherd__answers_create(sherd__heap *heap)
{
    sherd__answers *all = sherd__alloc(heap, 1, sizeof *all);

    if (all) {
        all->map.heap = heap;
        all->most_bytes = BYTES_KEPT;
    }
    return all;
}

/* Drop the next answer not used since the hand last passed it (clock algorithm). */
static void drop_one(sherd__answers *all)
{
    for (;; all->hand++) {
        if (all->hand >= all->count)
            all->hand = 0;
        sherd__solver_answer *a = all->slot[all->hand];
        if (!a->used)
            break;
        a->used = false;
    }
    sherd__solver_answer *last = all->slot[all->hand];
    all->slot[all->hand++] = all->slot[--all->count];
    all->bytes -= last->bytes;
    sherd__map_remove(&all->map, last->hash, last);
    forget(all, last);
}

/* With its layouts: what neighbours share counts once, and an operand that does not move once. */
static size_t bytes_of(const sherd__solver_answer *a)
{
    size_t bytes = sizeof *a + (a->attributes ? a->op->attributes : 0);
    const sherd_layout *before = NULL;

    for (int i = 0; i < a->count; i++) {
        if (a->operands[i] != before)
            bytes += sherd__layout_bytes(a->operands[i]);
        if (a->placing.operand[i] != a->operands[i])
            bytes += sherd__layout_bytes(a->placing.operand[i]);
        before = a->operands[i];
    }
    for (int j = 0; j < a->results; j++) {
        if (a->placing.result[j] != before)
            bytes += sherd__layout_bytes(a->placing.result[j]);
        before = a->placing.result[j];
    }
    return bytes;
}

bool sherd__answer_keep(sherd__answers *all, sherd__solver_answer *a, uint64_t hash)
{
    if (!sherd__map_add(&all->map, hash, a))
        return false;
    a->hash = hash;
    count_layouts(a);
    a->bytes = bytes_of(a);
    while (all->count > 0 &&
           (all->count == SHERD__ANSWERS_KEPT || all->bytes + a->bytes > all->most_bytes))
        drop_one(all);
    all->bytes += a->bytes;
    all->slot[all->count++] = a;
    return true;
}

sherd__solver_answer *sherd__answer_find(sherd__answers *all, const sherd__solver_question *q,
                                         uint64_t hash)
{
    return sherd__map_find(&all->map, hash, is_answer, q);
}

uint64_t sherd__attributes_hash(sherd__run *run)
{
    if (!run->hashed)
        run->hash = sherd__hash_fields(run->call.op, run->call.attributes);
    run->hashed = true;
    return run->hash;
}
