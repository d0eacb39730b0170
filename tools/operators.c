/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes docs/operators.md: what each operator of the library takes, and how it lies, all read from its value. `make
 * operators` runs it; the test `operators_page` sees to it that the page is true.
 */
#include <stdio.h>
#include <string.h>

#include <sherd.h>

static const char head[] =
    "# Operators\n"
    "\n"
    "Made by `make operators` from the operators themselves (`include/sherd/op.h`); "
    "`sherd_op_find` has each by its name.\n"
    "\n"
    "An index string names dims by letters. Operands that share a letter must be sharded alike on "
    "it; then nothing moves.\n"
    "Else the cheapest move that makes them so is taken, and logged. *Sums* are letters that the "
    "result lacks: sharded, they\n"
    "make it a pending sum. *Whole* letters are never sharded: a shard there is gathered, or its "
    "axes go to another dim.\n"
    "*Joined* letters may be sharded, and ranks exchange a few numbers. \"...\" is any number of "
    "dims. `1` has size 1, `*` any\n"
    "size; neither is sharded. A pending sum *passes* where the operator is linear (of a product "
    "through one factor; a term\n"
    "that is replicated counts once); where elements go through as they are, any pending reduction "
    "does; else it is\n"
    "*settled* first. A plain operand that does not vary counts as replicated; one that varies is "
    "refused (EINVAL).\n"
    "Integers and bools that are pending by an average are refused where they must be settled "
    "(ENOTSUP): there is none of\n"
    "them. No other layout is refused (`tests/test_ops_table.c` tries them all).\n"
    "\n"
    "| operator | computes | operands | lies | pending | numbers | gradient |\n"
    "|---|---|---|---|---|---|---|\n";

static void write_slots(FILE *out, const sherd_op *op)
{
    for (int i = 0; i < SHERD_OP_SLOTS && op->operand[i].name; i++) {
        unsigned flags = op->operand[i].flags;
        fprintf(out, "%s%s%s%s%s%s", i ? ", " : "", flags & SHERD_OP_OPTIONAL ? "[" : "",
                op->operand[i].name, flags & SHERD_OP_REPEATED ? ".." : "",
                flags & SHERD_OP_INDEX  ? " (i32)"
                : flags & SHERD_OP_BOOL ? " (bool)"
                                        : "",
                flags & SHERD_OP_OPTIONAL ? "]" : "");
    }
    fputs(" |", out);
}

/* Letters of the operands that no result has, without those that forward joins. */
static void write_summed(FILE *out, const sherd_op *op)
{
    const char *arrow = strstr(op->rule, "->"), *end = strchr(arrow, ',');
    size_t length = end ? (size_t)(end - arrow) : strlen(arrow);
    char seen[64] = "";

    for (const char *c = op->rule; c < arrow; c++) {
        bool letter = *c >= 'a' && *c <= 'z';
        if (!letter || memchr(arrow, *c, length) || strchr(seen, *c) ||
            (op->joined && strchr(op->joined, *c)) || (op->whole && strchr(op->whole, *c)))
            continue;
        seen[strlen(seen) + 1] = '\0';
        seen[strlen(seen)] = *c;
    }
    if (strstr(op->rule, "...") && strstr(op->rule, "...") < arrow && !strstr(arrow, "..."))
        strcat(seen, "...");
    if (seen[0])
        fprintf(out, "; sums %s", seen);
}

static void write_layouts(FILE *out, const sherd_op *op)
{
    if (op->layouts)
        fprintf(out, " %s", op->layouts);
    else if (op->rule) {
        fprintf(out, " `%s`", op->rule);
        write_summed(out, op);
    } else {
        fputs(op->compose ? " as what it is made of" : " by its attributes", out);
    }
    if (op->whole && !op->layouts)
        fprintf(out, "; %s whole", op->whole);
    if (op->joined)
        fprintf(out, "; %s joined", op->joined);
    fputs(" |", out);
}

static void write_row(FILE *out, const sherd_op *op)
{
    static const char *const pending[] = {" settled |", " passes |", " any passes |"};
    static const char *const numbers[] = {" fractions |", " not bool |", " all |"};

    fprintf(out, "| `%s` | %s | ", op->name, op->summary ? op->summary : "");
    write_slots(out, op);
    write_layouts(out, op);
    fputs(op->compose ? " as what it is made of |" : pending[op->linearity], out);
    fputs(numbers[op->numbers], out);
    fputs(op->backward || op->compose ? " yes |\n" : " none |\n", out);
}

int main(void)
{
    fputs(head, stdout);
    for (int i = 0; sherd_op_at(i); i++)
        write_row(stdout, sherd_op_at(i));
    return ferror(stdout) != 0;
}
