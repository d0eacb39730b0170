/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operator calls. What is the same for all operators is done here, in this order: failed or missing
 * operands, a handler above the tape, autocast, dtypes, the operator's describe, layouts and moves
 * (place.c), forward or a handler in its place, the record for backward, the note in the ledger.
 * About a hundred nanoseconds besides the results and the kernel.
 */
#include "door.h"
#include "vector/choose.h"
#include "world/doing.h"

#include <string.h>

#include "base/dtype.h"
#include "tensor/state.h"

/* ---- the entry ------------------------------------------------------------------------------ */

/* The largest number of operands of a call; the smallest is in *least. */
static int count_operands(const sherd_op *op, int *least)
{
    int count = 0;

    *least = 0;
    while (count < SHERD_OP_SLOTS && op->operand[count].name) {
        if (!(op->operand[count].flags & SHERD_OP_OPTIONAL))
            *least = count + 1;
        if (op->operand[count++].flags & SHERD_OP_REPEATED)
            return SHERD_MAX_OPERANDS;
    }
    return count;
}

static void count_results(sherd__run *run)
{
    const sherd_op *op = run->call.op;

    run->call.results = run->visible = 0;
    while (run->call.results < SHERD_MAX_RESULTS && op->result[run->call.results].name) {
        run->visible += !(op->result[run->call.results].flags & SHERD_OP_HIDDEN);
        run->call.dtype[run->call.results++] = SHERD_DTYPE_NONE;
    }
}

/* Optional operands after the last one passed are absent. */
static void take_operands(sherd__run *run, sherd_tensor *const *operands, int count, int most)
{
    sherd_call *call = &run->call;

    call->operands = count < most && most < SHERD_MAX_OPERANDS ? most : count;
    for (int i = 0; i < call->operands; i++) {
        call->in[i] = i < count ? operands[i] : NULL;
        if (call->in[i] && !call->world)
            call->world = call->in[i]->world;
    }
}

/* Whether all operands that must be there are, none has failed, and all are of one world. */
static bool check_operands(sherd__run *run)
{
    sherd_call *call = &run->call;
    const char *reason = NULL;

    if (sherd__stop(call->world, call->op->name, call->in, call->operands))
        return false;
    for (int i = 0; i < call->operands && !reason; i++) {
        if (!call->in[i] && !(sherd__slot(call->op, i)->flags & SHERD_OP_OPTIONAL) &&
            !(run->like && run->like[i]))
            reason = "an operand is NULL";
        if (call->in[i] && call->in[i]->world != call->world)
            reason = "operands are of two worlds";
    }
    if (reason)
        sherd__refuse(call, SHERD_EINVAL, "%s", reason);
    return !reason;
}

/* It must have a forward or compose, and as many operands as fit. */
static bool check_call(const sherd__run *run, int count, int least, int most)
{
    const sherd_op *op = run->call.op;

    if (op->forward || op->compose) {
        if (count >= least && count <= most)
            return true;
        sherd__refuse(&run->call, SHERD_EINVAL, "it has %d operands, not %s%d", count,
                      count < least ? "at least " : "at most ", count < least ? least : most);
        return false;
    }
    sherd__refuse(&run->call, SHERD_EINVAL, "it has neither forward nor compose");
    return false;
}

/* A user's operator is checked once, registered or not: an invalid rule could do anything. */
static bool check_operator(sherd__run *run, sherd__ops *ops)
{
    const sherd_op *op = run->call.op, **known = &ops->sound[(uintptr_t)op / 64 % SHERD__SOUND];
    const char *fault = *known == op || run->own ? NULL : sherd__op_fault(op, run->reason);

    if (fault)
        sherd__refuse(&run->call, SHERD_EINVAL, "%s", fault);
    else
        *known = op;
    return !fault;
}

/* All operands have one dtype, except indices, masks and those of any dtype. */
static const char *check_dtypes(sherd__run *run)
{
    sherd_call *call = &run->call;
    enum { APART = SHERD_OP_INDEX | SHERD_OP_BOOL };

    run->dtype = SHERD_DTYPE_NONE;
    for (int i = 0; i < call->operands; i++) {
        const sherd_op_slot *slot = sherd__slot(call->op, i);
        const sherd_tensor *t = call->in[i];
        if (!t || (slot->flags & SHERD_OP_ANY))
            continue;
        if (slot->flags & APART) {
            sherd_dtype wanted = slot->flags & SHERD_OP_INDEX ? SHERD_I32 : SHERD_BOOL;
            if (t->dtype != wanted)
                return sherd_call_reason(call, "%s must be %s: cast it (sherd_cast)", slot->name,
                                         sherd_dtype_name(wanted));
        } else if (run->dtype != SHERD_DTYPE_NONE && t->dtype != run->dtype) {
            return sherd__say_cast(call, i, run->dtype);
        } else {
            run->dtype = t->dtype;
        }
    }
    if (run->dtype == SHERD_DTYPE_NONE && call->in[0])
        run->dtype = call->in[0]->dtype;
    run->kernels = sherd__kernels_of_any(sherd__world_kernels(call->world), run->dtype);
    if (call->op->numbers == SHERD_FRACTIONS && !sherd__has_fractions(run->dtype))
        return "it computes f32, f64, bf16 and f16 only: cast first (sherd_cast)";
    return call->op->numbers == SHERD_NUMBERS && run->dtype == SHERD_BOOL ? "it computes no bool"
                                                                          : NULL;
}

/* ---- running -------------------------------------------------------------------------------- */

/* The GPU, if the operator runs this call there; a handler in its place runs on the CPU. */
static void choose_device(sherd__run *run, sherd__ops *ops)
{
    sherd__device *device = sherd__world_device(run->call.world);
    const sherd_op *op = run->call.op;

    if (!device || (ops->overrides && sherd__override_of(ops, op, SHERD_BELOW_TAPE)))
        return;
    int floor = sherd__scope_fence(run->call.world);
    if (op->on_device(&run->call))
        run->device = device;
    sherd__scope_leave(run->call.world, floor);
}

/* Call describe; a user's gets a scope of its own, and what it has set is checked. */
static const char *ask_describe(sherd__run *run)
{
    sherd_call *call = &run->call;

    if (run->own)
        return call->op->describe(call);
    int floor = sherd__scope_fence(call->world), operands = call->operands;
    const char *reason = call->op->describe(call);
    sherd__scope_leave(call->world, floor);
    call->operands = operands;
    return reason ? reason : sherd__described_fault(call);
}

/* Run the operator's describe. NULL, or the reason why its operands do not fit. */
static const char *describe(sherd__run *run, bool plain)
{
    sherd_call *call = &run->call;
    const sherd_op *op = call->op;
    const char *reason = NULL;
    bool shapes = true;

    call->rule[0] = '\0';
    call->linearity = op->linearity;
    call->reduces = SHERD_SUM;
    for (int j = 0; j < call->results; j++) {
        call->ndim[j] = -1;
        memset(call->shape[j], 0xff, sizeof call->shape[j]);
    }
    if (op->describe)
        reason = ask_describe(run);
    if (reason || op->compose)
        return reason;
    /* With distributed operands the solver may know the answer; then the rule is not needed. */
    if (op->rule || call->rule[0])
        return plain || op->describe ? sherd__compile(run) : NULL;
    for (int j = 0; j < call->results; j++)
        shapes &= call->ndim[j] >= 0;
    return shapes && op->ways ? NULL : "it has neither a rule, nor ways and shapes";
}

/* Functions of the program that call operators, which call them: refused, else true. */
static bool has_room(const sherd__run *run)
{
    const sherd_op *op = run->call.op;

    if ((run->own && !op->compose) || !sherd__is_deep(run->call.world))
        return true;
    sherd__refuse(&run->call, SHERD_ELIMIT,
                  "%d functions are running, each called by the one before, and no more may: does "
                  "it call itself?",
                  (int)SHERD__DEEPEST);
    return false;
}

static bool evaluate(sherd__run *run, sherd__ops *ops)
{
    const sherd_op *op = run->call.op;
    bool plain = !run->like;
    sherd_dtype low = sherd__low(run->call.world);

    if (!has_room(run))
        return false;
    if (low != SHERD_DTYPE_NONE && op != &sherd__cast_op && !sherd__autocast(run, low))
        return false;

    const char *reason = check_dtypes(run);
    for (int i = 0; i < run->call.operands && plain; i++)
        plain = !run->call.in[i] || !run->call.in[i]->layout;
    if (!reason)
        reason = describe(run, plain);
    if (reason) {
        sherd__refuse(&run->call, SHERD_EINVAL, "%s", reason);
        sherd__close(run, false);
        return false;
    }
    if (op->compose)
        return sherd__compose(run, ops);
    if (op->on_device)
        choose_device(run, ops);
    bool good = sherd__lay_out(run) && (run->kept || sherd__compute(run, ops)) &&
                (!run->device || sherd__device_sound(run->call.world));
    if (good)
        sherd__record(run);
    else
        sherd__say_failed(
            run); /* before sherd__close releases the moved operands, which it names */
    sherd__close(run, good);
    return good;
}

static bool evaluate_traced(sherd__run *run, sherd__ops *ops)
{
    sherd_world *world = run->call.world;
    int64_t start = sherd__trace_start(world);
    bool good = evaluate(run, ops);

    if (!start || !good)
        return good;
    const sherd_tensor *out = run->call.out[0];
    sherd__trace_add(
        world, &(sherd__event){"op",
                               run->call.op->name,
                               start,
                               {{.key = "result",
                                 .text = out->layout ? sherd_layout_text(out->layout) : "plain"},
                                {.key = "dtype", .text = sherd_dtype_name(out->dtype)}}});
    return good;
}

/* ---- the door ------------------------------------------------------------------------------- */

/* Store the visible results; the failed tensor in each after a failure. */
static bool hand_out(sherd__run *run, sherd_tensor **results, bool good)
{
    sherd_world *world = run->call.world;

    for (int j = 0; j < run->visible; j++)
        results[j] = good ? run->call.out[j] : world ? sherd__failed(world) : NULL;
    return good;
}

static bool evaluate_or_handle(sherd__run *run, sherd__ops *ops)
{
    sherd_op_handler handler;

    if (!sherd__begin_handler(&handler, ops, run->call.op, SHERD_ABOVE_TAPE))
        return evaluate_traced(run, ops);
    bool good = sherd__handle(run, &handler);
    sherd__end_handler(ops, run->call.op, SHERD_ABOVE_TAPE);
    return good;
}

static bool apply(sherd__run *run, sherd_tensor *const *operands, int count)
{
    static const char zeroes[SHERD_ATTRIBUTE_BYTES];
    int least, most = count_operands(run->call.op, &least);

    run->given = operands;
    run->given_count = count < 0 ? 0 : count > most ? most : count;
    take_operands(run, operands, run->given_count, most);
    if (!run->call.world)
        return false;
    if (!run->call.attributes && run->call.op->attributes)
        run->call.attributes = zeroes;
    if (!check_call(run, count, least, most) || !check_operands(run))
        return false;
    sherd__ops *ops = sherd__ops_of(run->call.world);
    if (!ops) {
        sherd__fail_diag(run->call.world, true);
        return false;
    }
    if (!check_operator(run, ops))
        return false;
    bool begun = sherd__doing_begin(run->call.world, run->call.op->name);
    bool good = evaluate_or_handle(run, ops);
    sherd__doing_end(run->call.world, begun);
    return good;
}

/* The struct is large and mostly unused: only members that are read are initialised. */
static void begin(sherd__run *run, const sherd_op *op, const void *attributes)
{
    run->call.op = op;
    run->call.attributes = attributes;
    run->call.world = NULL;
    run->call.once = 0;
    run->like = NULL;
    run->into = (sherd__into){NULL, SHERD__ADDED_TO};
    run->adds = run->scoped = run->kept = run->replaced = run->in_order = false;
    run->compiled = run->hashed = false;
    run->own = sherd__is_own(op);
    run->below = NULL;
    run->device = NULL;
    run->around = 0;
    count_results(run);
}

bool sherd__apply_like(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, const sherd_layout *const *like)
{
    sherd__run run;

    begin(&run, op, attributes);
    run.like = like;
    return hand_out(&run, results, apply(&run, operands, count));
}

bool sherd__apply_into(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                       int count, const void *attributes, sherd__into into)
{
    sherd__run run;

    begin(&run, op, attributes);
    run.into = into;
    return hand_out(&run, results, apply(&run, operands, count));
}

/* `op` is NULL, so nobody knows how many results there would be: what the first one is then. */
static sherd_tensor *no_operator(const char *function, sherd_tensor *const *in, int count)
{
    while (count > 0 && !*in)
        in++, count--;
    return count > 0 ? sherd__fail_tensor((*in)->world, (*in)->layout != NULL, SHERD_EINVAL,
                                          "%s: op is NULL", function)
                     : NULL;
}

static bool apply_as(const char *function, sherd_tensor **results, const sherd_op *op,
                     sherd_tensor *const *operands, int count, const void *attributes)
{
    if (!operands)
        return false;
    if (op)
        return sherd__apply_like(results, op, operands, count, attributes, NULL);
    results[0] = no_operator(function, operands, count);
    return false;
}

bool sherd_apply_all(sherd_tensor **results, const sherd_op *op, sherd_tensor *const *operands,
                     int count, const void *attributes)
{
    sherd_tensor *nowhere[SHERD_MAX_RESULTS];

    return apply_as("sherd_apply_all", results ? results : nowhere, op, operands, count,
                    attributes);
}

sherd_tensor *sherd_apply(const sherd_op *op, sherd_tensor *const *operands, int count,
                          const void *attributes)
{
    sherd_tensor *results[SHERD_MAX_RESULTS] = {NULL};

    apply_as("sherd_apply", results, op, operands, count, attributes);
    return results[0];
}
