/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The solver: if operands fit a rule with their present layouts (fits.c), the layouts of the
 * results; if they do not, it searches (search.c). Answers are kept (answers.c), so all of this
 * runs once for each new question; it interns a layout for each result.
 */
#include "answers.h"
#include "solve.h"

#include <string.h>

/* ---- solving -------------------------------------------------------------------------------- */

/*
 * Bits of terms that this rank must not add: if a term is not pending on an axis on which the
 * result is, only coordinate 0 of the axis adds it.
 */
static unsigned terms_to_leave_out(const sherd__run *run, const sherd__placing *placing)
{
    const sherd_op *op = run->call.op;
    int64_t coordinate[SHERD_MAX_AXES];
    unsigned away = 0, once = 0;

    if (run->call.linearity != SHERD_LINEAR)
        return 0;
    const sherd_mesh *mesh = placing->result[0]->spec.mesh;
    if (!sherd_mesh_coordinate(mesh, sherd_world_rank(run->call.world), coordinate))
        return 0;
    for (int a = 0; a < mesh->axes; a++)
        if (coordinate[a] != 0)
            away |= 1u << a;
    away &= placing->result[0]->pending_axes;
    for (int i = 0; i < run->call.operands; i++)
        if (placing->operand[i] && sherd__is_term(op, i) &&
            (away & ~placing->operand[i]->pending_axes))
            once |= 1u << i;
    return op->adds && away ? once | 1u << SHERD_ONCE_ADDED : once;
}

static bool on_one_mesh(sherd__diag *diag, const sherd__solver_question *q)
{
    const sherd_layout *first = NULL;

    for (int i = 0; i < q->run->call.operands; i++) {
        const sherd_layout *l = q->operands[i];
        if (l && !first)
            first = l;
        if (l && l->spec.mesh != first->spec.mesh) {
            sherd__fail(diag, SHERD_EINVAL, "%s: operands lie on two meshes: %.150s and %.150s",
                        q->run->call.op->name, sherd_layout_text(first), sherd_layout_text(l));
            return false;
        }
    }
    return true;
}

/* The layouts of operands and results by a rule. */
static sherd_status solve_rule(sherd__placing *placing, sherd__run *run,
                               const sherd_layout *const *operands)
{
    sherd_status status = SHERD_OK;
    sherd__fit fit;

    memcpy(placing->operand, operands, (size_t)run->call.operands * sizeof *operands);
    if (!sherd__fits(&fit, run, placing->operand)) {
        status = sherd__search(placing, run, operands);
        if (status == SHERD_OK)
            sherd__fits(&fit, run, placing->operand);
    }
    for (int j = 0; j < run->call.results && status == SHERD_OK; j++)
        status = sherd__fit_result(&placing->result[j], &fit, run, j);
    return status;
}

static bool find_answer(sherd__solver_answer *a, const sherd__solver_question *q)
{
    sherd__run *run = q->run;
    const sherd_op *op = run->call.op;
    sherd_status status = SHERD_OK;
    bool chosen = false;

    if (op->ways)
        status = sherd__choose_way(&a->placing, run, q->operands, &chosen);
    if (!status && !chosen)
        status = solve_rule(&a->placing, run, q->operands);
    if (status != SHERD_OK)
        return false;
    a->placing.once = terms_to_leave_out(run, &a->placing);
    a->op = op;
    a->dtype = run->dtype;
    a->linearity = run->call.linearity;
    a->reduces = run->call.reduces;
    a->count = run->call.operands;
    a->results = run->call.results;
    memcpy(a->operands, q->operands, (size_t)a->count * sizeof *q->operands);
    if (op->describe && !op->ways) {
        a->rule = run->rule;
        memcpy(a->shape, run->call.shape, sizeof a->shape);
    }
    return true;
}

/* Copy what else the answer of an operator with ways depends on. False if memory runs out. */
static bool keep_attributes(sherd__heap *heap, sherd__solver_answer *a, const sherd_call *call)
{
    if (!call->op->ways || !call->op->attributes)
        return true;
    a->attributes = sherd__alloc(heap, 1, call->op->attributes);
    if (a->attributes)
        memcpy(a->attributes, call->attributes, call->op->attributes);
    return a->attributes != NULL;
}

/* Add a new answer; NULL: the reason is in the diag. */
static sherd__solver_answer *learn(sherd__answers *all, const sherd__solver_question *q,
                                   uint64_t hash)
{
    const sherd_call *call = &q->run->call;
    sherd__heap *heap = all->map.heap;
    sherd__solver_answer *a = sherd__alloc(heap, 1, sizeof *a);
    bool memory = a && keep_attributes(heap, a, call);
    bool good = memory && find_answer(a, q), added = false;

    if (good)
        added = sherd__answer_keep(all, a, hash);
    if (!memory || (good && !added))
        sherd__no_memory(sherd__world_diag(call->world), call->op->name);
    if (added)
        return a;
    if (a)
        sherd__free(heap, a->attributes);
    sherd__free(heap, a);
    return NULL;
}

/* The rule is needed for a new answer. Shapes that do not fit have no answer either. */
static bool compile(sherd__run *run)
{
    const sherd_op *op = run->call.op;
    bool needed = !run->compiled && (!op->ways || op->rule || run->call.rule[0]);
    const char *reason = needed ? sherd__compile(run) : NULL;

    if (reason)
        sherd__refuse_diag(&run->call, reason);
    return !reason;
}

const sherd__placing *sherd__solve(sherd__run *run, const sherd_layout *const *operands)
{
    sherd_world *world = run->call.world;
    sherd__answers *all = sherd__ops_of(world)->answers;
    sherd__solver_question q = {run, operands};
    uint64_t hash = sherd__question_hash(&q);
    sherd__solver_answer *a = sherd__answer_find(all, &q, hash);

    if (!a) {
        if (!compile(run) || !on_one_mesh(sherd__world_diag(world), &q))
            return NULL;
        /* Layouts that the search makes and does not choose are released at once. */
        sherd__space *space = sherd__world_space(world);
        int mark = sherd__layouts_mark(space);
        a = learn(all, &q, hash);
        sherd__layouts_cut(space, mark);
        if (!a)
            return NULL;
    }
    a->used = true;
    return &a->placing;
}
