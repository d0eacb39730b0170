/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The solver: whether operands fit a rule with their present layouts; if they do, the layouts of
 * the results. If they do not, it searches (search.c). Answers are kept (answers.c), so all of this
 * runs once for each new question; it interns a layout for each result.
 */
#include "answers.h"
#include "solve.h"

#include <string.h>

/* ---- whether operands fit a rule as they are ---------------------------------------------- */

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

bool sherd__is_term(const sherd_op *op, int i)
{
    return sherd__slot(op, i)->flags & SHERD_OP_TERM;
}

static bool is_among(const char *letters, char name)
{
    return letters && strchr(letters, name);
}

/* One dim of one operand: its letter must be sharded alike everywhere, on axes of its own. */
static bool add_dim(sherd__fit *fit, const sherd_op *op, char name, const sherd__dim *dim,
                    int64_t n, unsigned *used)
{
    bool alone = name == '1' || name == '*';

    if (dim->axes && (alone || is_among(op->whole, name)))
        return false;
    if (alone)
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

static bool add_dims(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    unsigned used = 0;

    for (int i = 0; i < run->call.operands; i++)
        for (int d = 0; operands[i] && d < operands[i]->spec.ndim; d++)
            if (!add_dim(fit, run->call.op, run->rule.operand[i][d], &operands[i]->spec.dim[d],
                         operands[i]->spec.shape[d], &used))
                return false;
    return true;
}

/* Axes that shard letters which result j lacks, and over which forward does not reduce itself. */
static unsigned summed_axes(const sherd__fit *fit, const sherd__run *run, int j)
{
    const sherd_op *op = run->call.op;
    const char *joined = op->addends >> j & 1 ? NULL : op->joined;
    unsigned bits = 0;

    for (int i = 0; i < fit->letters; i++)
        if (!strchr(run->rule.result[j], fit->letter[i].name) &&
            !is_among(joined, fit->letter[i].name))
            bits |= sherd__dim_bits(&fit->letter[i].dim);
    return bits;
}

/* Whether all operands are terms: a sum without any product. */
static bool only_terms(const sherd__run *run, const sherd_layout *const *operands)
{
    for (int i = 0; i < run->call.operands; i++)
        if (operands[i] && !sherd__is_term(run->call.op, i))
            return false;
    return true;
}

/* For operators that only move elements: all operands must have the same pending reductions. */
static bool alike(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    const sherd_layout *first = NULL;

    for (int i = 0; i < run->call.operands; i++) {
        if (!operands[i])
            continue;
        if (first &&
            memcmp(first->spec.pending, operands[i]->spec.pending, sizeof first->spec.pending) != 0)
            return false;
        first = operands[i];
    }
    for (int a = 0; first && a < fit->mesh->axes; a++)
        fit->op[a] = (int8_t)first->spec.pending[a];
    fit->pending = first ? first->pending_axes : 0;
    return true;
}

/*
 * Whether pending sums fit, axis by axis. The product of the factors is pending if exactly one
 * factor is, or if a letter is summed over the axis. If the product is pending, each term may be
 * pending or replicated. If it is not, no term may be pending, because the product would be added
 * several times. If there is no product, pending terms make the result pending.
 */
static bool pending_fits(sherd__fit *fit, const sherd__run *run,
                         const sherd_layout *const *operands)
{
    unsigned summed = summed_axes(fit, run, 0), kept = 0, used = 0, product = summed, terms = 0;
    sherd_linearity linearity = run->call.linearity;

    if (linearity == SHERD_UNCHANGED)
        return alike(fit, run, operands);
    for (int i = 0; i < fit->letters; i++)
        used |= sherd__dim_bits(&fit->letter[i].dim);
    for (int i = 0; i < run->call.operands; i++) {
        unsigned bits = operands[i] ? operands[i]->pending_axes : 0;
        for (int a = 0; a < fit->mesh->axes; a++)
            if ((bits >> a & 1) && operands[i]->spec.pending[a] != SHERD_SUM)
                return false;
        if (bits && sherd__slot(run->call.op, i)->flags & (SHERD_OP_INDEX | SHERD_OP_BOOL))
            return false;
        if (sherd__is_term(run->call.op, i)) {
            terms |= bits;
        } else if (bits & product) {
            return false;
        } else {
            product |= bits;
        }
        kept |= bits;
    }
    fit->pending = kept;
    memset(fit->op, SHERD_SUM, sizeof fit->op);
    if (kept && linearity == SHERD_NONLINEAR)
        return false;
    if (kept & used & ~summed)
        return false;
    return !(terms & ~product) || only_terms(run, operands);
}

bool sherd__fits(sherd__fit *fit, const sherd__run *run, const sherd_layout *const *operands)
{
    fit->mesh = NULL;
    fit->letters = 0;
    for (int i = 0; i < run->call.operands && !fit->mesh; i++)
        fit->mesh = operands[i] ? operands[i]->spec.mesh : NULL;
    return add_dims(fit, run, operands) && pending_fits(fit, run, operands);
}

static sherd_status result_layout(const sherd_layout **out, const sherd__fit *fit,
                                  const sherd__run *run, int j)
{
    const char *label = run->rule.result[j];
    sherd__layout_spec spec = {.mesh = fit->mesh, .ndim = (int)strlen(label)};
    unsigned summed = summed_axes(fit, run, j);

    for (int a = 0; a < fit->mesh->axes; a++)
        spec.pending[a] = fit->pending >> a & 1 ? fit->op[a]
                          : summed >> a & 1     ? (int)run->call.reduces
                                                : -1;
    for (int d = 0; d < spec.ndim; d++) {
        spec.shape[d] = run->call.shape[j][d];
        for (int i = 0; i < fit->letters; i++)
            if (fit->letter[i].name == label[d])
                spec.dim[d] = fit->letter[i].dim;
    }
    return sherd__layout_intern(out, &spec);
}

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
        status = result_layout(&placing->result[j], &fit, run, j);
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
