/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of user-defined operators, and of what their describe sets: errors are reported by name
 * here, rather than showing as misbehaviour later. The library's own operators are trusted.
 */
#include "door.h"
#include "tensor/fields.h"

#include <stdio.h>
#include <string.h>

static int count_slots(const sherd_op_slot *slot, int most)
{
    int n = 0;

    while (n < most && slot[n].name)
        n++;
    return n;
}

static int count_parts(const char *from, const char *end)
{
    int n = 1;

    for (const char *c = from; c < end; c++)
        n += *c == ',';
    return n;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || c == '1' || c == '*' || c == ',';
}

/* Whether "..." stands twice in one part of the rule. */
static bool has_dots_twice(const char *rule)
{
    for (const char *dots = strstr(rule, "..."); dots; dots = strstr(dots + 3, "...")) {
        const char *next = strstr(dots + 3, "...");
        if (next && !memchr(dots, ',', (size_t)(next - dots)) &&
            !memchr(dots, '>', (size_t)(next - dots)))
            return true;
    }
    return false;
}

/* Letters, "..." and commas on both sides of one "->". */
static const char *fault_of_rule(const char *rule, int operands, int results)
{
    const char *arrow = strstr(rule, "->");

    if (!arrow || strstr(arrow + 2, "->"))
        return "its rule must have one ->";
    for (const char *c = rule; *c; c++) {
        if (c == arrow)
            c++;
        else if (strncmp(c, "...", 3) == 0)
            c += 2;
        else if (!is_letter(*c))
            return "its rule may have small letters, 1, *, commas and ... only";
    }
    if (has_dots_twice(rule))
        return "its rule may have ... once in a part";
    if (count_parts(rule, arrow) != operands)
        return "its rule must have a part for each operand";
    if (count_parts(arrow + 2, arrow + strlen(arrow)) != results)
        return "its rule must have a part for each result";
    return NULL;
}

static int count_flag(const sherd_op *op, int operands, unsigned flag)
{
    int n = 0;

    for (int i = 0; i < operands; i++)
        n += (op->operand[i].flags & flag) != 0;
    return n;
}

static const char *fault_of_around(const sherd_op *op, int operands)
{
    int around = count_flag(op, operands, SHERD_OP_AROUND);

    if ((around > 0) != (op->reads != NULL))
        return "it needs operands that are read AROUND and reads, or neither";
    if (around && op->views)
        return "what views an operand does not read around it";
    if (op->operand[operands - 1].flags & SHERD_OP_REPEATED &&
        op->operand[operands - 1].flags & SHERD_OP_AROUND)
        return "an operand that may be repeated is not read AROUND";
    if (op->beside < 0 || op->beside > operands)
        return "beside is no operand";
    return op->beside && op->operand[op->beside - 1].flags & SHERD_OP_OPTIONAL
               ? "beside is an operand that may be absent"
               : NULL;
}

static const char *fault_of_slots(const sherd_op *op, int operands, int results)
{
    if (operands == 0 || results == 0)
        return "it needs an operand and a result";
    for (int i = 0; i + 1 < operands; i++)
        if (op->operand[i].flags & SHERD_OP_REPEATED)
            return "only its last operand may be repeated";
    if (op->adds && op->operand[operands - 1].flags & SHERD_OP_REPEATED)
        return "an operator that adds an attribute has no operand that may be repeated";
    if (op->views && op->operand[0].flags & SHERD_OP_OPTIONAL)
        return "what it views is an operand that may be absent";
    if (op->result[0].flags & SHERD_OP_HIDDEN)
        return "its first result may not be hidden";
    for (int j = 0; j + 1 < results; j++)
        if (op->result[j].flags & ~op->result[j + 1].flags & SHERD_OP_HIDDEN)
            return "hidden results come last";
    return NULL;
}

/* "field WHICH ..", in `room`. */
static const char *fault_of_field(const sherd_op *op, const sherd_op_field *f, char *room)
{
    size_t bytes = sherd__field_bytes(f->kind);
    const char *fault = NULL;

    if (!bytes)
        fault = "has a kind that is none";
    else if (f->count < 0 || f->offset > op->attributes ||
             (op->attributes - f->offset) / bytes < sherd__field_count(f))
        fault = "is not within its attributes";
    if (!fault)
        return NULL;
    snprintf(room, SHERD__REASON_BYTES, "field %.60s %s", f->name, fault);
    return room;
}

static const char *fault_of_attributes(const sherd_op *op, char *room)
{
    const char *fault = NULL;

    if (op->attributes > SHERD_ATTRIBUTE_BYTES)
        return "its attributes are too large";
    if (op->attributes && !op->field[0].name)
        return "its attributes need fields, by which ranks compare them";
    for (int f = 0; f < SHERD_OP_FIELDS && op->field[f].name && !fault; f++)
        fault = fault_of_field(op, &op->field[f], room);
    return fault;
}

/* Whether all of them are letters of the rule, or single dims of "..."; describe may write it. */
static bool has_letters(const sherd_op *op, const char *letters)
{
    for (const char *c = letters ? letters : ""; *c; c++) {
        bool small = *c >= 'a' && *c <= 'z', capital = *c >= 'A' && *c < 'A' + SHERD_MAX_DIMS;
        if (!small && !capital)
            return false;
        if (op->rule && !op->describe && !strchr(op->rule, small ? *c : '.'))
            return false;
    }
    return true;
}

static const char *fault_of_kinds(const sherd_op *op, int results)
{
    if ((unsigned)op->linearity > SHERD_UNCHANGED)
        return "its linearity is none";
    if ((unsigned)op->numbers > SHERD_EVERYTHING)
        return "its numbers are none";
    if ((unsigned)op->autocast > SHERD_AUTOCAST_FULL)
        return "its autocast is none";
    if (!has_letters(op, op->whole))
        return "whole may have letters of its rule only";
    if (!has_letters(op, op->joined))
        return "joined may have letters of its rule only";
    if (op->addends >> results)
        return "addends names a result that is none";
    return op->addends && !op->joined ? "addends needs joined letters" : NULL;
}

const char *sherd__op_fault(const sherd_op *op, char room[SHERD__REASON_BYTES])
{
    int operands = count_slots(op->operand, SHERD_OP_SLOTS);
    int results = count_slots(op->result, SHERD_MAX_RESULTS);
    const char *fault = fault_of_slots(op, operands, results);

    if (!op->name || !*op->name)
        return "it has no name";
    if (fault)
        return fault;
    if (!op->forward == !op->compose)
        return "it needs forward, or compose, and not both";
    fault = fault_of_attributes(op, room);
    if (!fault)
        fault = fault_of_kinds(op, results);
    if (fault)
        return fault;
    if (op->compose)
        return NULL;
    if (!op->rule && !op->describe && !op->ways)
        return "it needs a rule, or describe, or ways";
    if (fault_of_around(op, operands))
        return fault_of_around(op, operands);
    return op->rule ? fault_of_rule(op->rule, operands, results) : NULL;
}

const char *sherd__described_fault(sherd_call *call)
{
    int operands = count_slots(call->op->operand, SHERD_OP_SLOTS);

    call->rule[SHERD_RULE_BYTES - 1] = '\0';
    if (call->linearity < SHERD_NONLINEAR || call->linearity > SHERD_UNCHANGED)
        return "describe has set a linearity that is none";
    if (call->reduces < SHERD_SUM || call->reduces > SHERD_PRODUCT)
        return "describe has set a reduction that is none";
    for (int j = 0; j < call->results; j++) {
        if (call->dtype[j] < SHERD_DTYPE_NONE || (int)call->dtype[j] >= SHERD_DTYPES)
            return "describe has set a dtype that is none";
        if (call->ndim[j] > SHERD_MAX_DIMS)
            return "describe has set too many dims";
        for (int d = 0; d < call->ndim[j]; d++)
            if (call->shape[j][d] < 0)
                return "describe has set a negative size, or none";
    }
    return call->rule[0] ? fault_of_rule(call->rule, operands, call->results) : NULL;
}
