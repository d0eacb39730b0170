/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes docs/operators.md: the operands, layouts and dtypes of each operator of the library, read
 * from its sherd_op. `make operators` runs it; the test `operators_page` checks that the page is up
 * to date.
 */
#include <stdio.h>
#include <string.h>

#include <sherd.h>

static const char head[] =
    "# Operators\n"
    "\n"
    "Written by `make operators` from the operators themselves (`include/sherd/op.h`); "
    "`sherd_op_find` returns each by\n"
    "its name.\n"
    "\n"
    "**Layouts.** An index string names the dims of operands and results by letters. Operands that "
    "share a letter must be\n"
    "sharded alike on it; then nothing moves. Otherwise sherd makes the cheapest move after which "
    "they are, and logs it.\n"
    "*sums*: letters that the result lacks; if they are sharded, the result is a pending sum. "
    "*whole*: letters that are\n"
    "never sharded; their shards are gathered, or moved to another dim. *joined*: letters that may "
    "be sharded, over which\n"
    "ranks exchange a few numbers. `...` stands for any number of dims. `1` is a dim of size 1, "
    "`*` one of any size; neither\n"
    "is sharded. *composed*: made of other operators, whose rules apply.\n"
    "\n"
    "**Pending.** *passes*: the operator is linear, and the result of a pending sum is pending (in "
    "a product, one factor\n"
    "may be pending; a term that is not pending counts once). *any passes*: elements are only "
    "moved or copied, so any\n"
    "pending reduction stays. *settled*: pending reductions of operands are settled first.\n"
    "\n"
    "A plain operand that does not vary counts as replicated; one that varies is refused (EINVAL). "
    "A pending average of\n"
    "integers or bool cannot be settled, and is refused where it must be (ENOTSUP). All other "
    "layouts are accepted:\n"
    "`tests/test_ops_table.c` tries them all.\n"
    "\n"
    "| operator | computes | operands | layouts | pending | dtypes | gradient |\n"
    "|---|---|---|---|---|---|---|\n";

/* A text as a cell of a table, in which a | must be escaped. */
static void write_cell(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', out);
        fputc(*text, out);
    }
}

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
        fputs(op->compose ? " composed" : " depend on the attributes", out);
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
    static const char *const dtypes[] = {" floating-point |", " not bool |", " all |"};

    fprintf(out, "| `%s` | ", op->name);
    write_cell(out, op->summary ? op->summary : "");
    fputs(" | ", out);
    write_slots(out, op);
    write_layouts(out, op);
    fputs(op->compose ? " composed |" : pending[op->linearity], out);
    fputs(dtypes[op->numbers], out);
    fputs(op->compose ? " composed |\n" : op->backward ? " yes |\n" : " none |\n", out);
}

int main(void)
{
    fputs(head, stdout);
    for (int i = 0; sherd_op_at(i); i++)
        write_row(stdout, sherd_op_at(i));
    return ferror(stdout) != 0;
}
