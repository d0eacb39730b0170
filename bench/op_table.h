/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of operators as a table: calls and milliseconds of a step, and the share of it. GEMM and
 * attention come first, and then what is outside of them, the longest first.
 */
#ifndef SHERD_BENCH_OP_TABLE_H
#define SHERD_BENCH_OP_TABLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sherd.h>

enum { OP_ROWS = 96 };

/* Of one rank, per step. A plain value; names are static. */
typedef struct op_table {
    struct op_row {
        const char *name;
        double calls, seconds;
    } row[OP_ROWS];
    int rows;
} op_table;

static inline struct op_row op_table_find(const op_table *t, const char *name)
{
    for (int i = 0; i < t->rows; i++)
        if (strcmp(t->row[i].name, name) == 0)
            return t->row[i];
    return (struct op_row){name, 0, 0};
}

/* Those of one name, as the gradients of a product's two operands, in one row. */
static inline void op_table_add(op_table *t, const char *name, double calls, double seconds)
{
    int at = 0;

    while (at < t->rows && strcmp(t->row[at].name, name) != 0)
        at++;
    if (at == OP_ROWS)
        return;
    if (at == t->rows)
        t->row[t->rows++] = (struct op_row){name, 0, 0};
    t->row[at].calls += calls;
    t->row[at].seconds += seconds;
}

/* What the world's operators took since sherd_op_times. */
static inline op_table op_table_take(const sherd_world *world, int steps)
{
    op_table t = {.rows = 0};
    sherd_op_time one;

    for (int i = 0; (one = sherd_op_time_at(world, i)).name; i++)
        op_table_add(&t, one.name, (double)one.calls / steps,
                     1e-9 * (double)one.nanoseconds / steps);
    return t;
}

/* Operators whose time is that of matrix products, or of attention's. */
static inline bool op_is_product(const char *name)
{
    static const char *const products[] = {"sherd_linear", "sherd_matmul", "sherd_einsum",
                                           "sherd_attention"};

    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        if (strncmp(name, products[i], strlen(products[i])) == 0)
            return true;
    return false;
}

static inline int op_rows_compare(const void *a, const void *b)
{
    const struct op_row *x = a, *y = b;
    bool px = op_is_product(x->name), py = op_is_product(y->name);

    if (px != py)
        return px ? -1 : 1;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static inline void op_table_line(const struct op_row *r, double one, double one_step,
                                 double many_step)
{
    printf("  %-34s %7.1f %9.3f %5.1f %% %9.3f %5.1f %%\n", r->name, r->calls, 1e3 * one,
           100 * one / one_step, 1e3 * r->seconds, 100 * r->seconds / many_step);
}

/* One rank beside many, whose whole steps take so many seconds. */
static inline void op_table_print(const op_table *one, double one_step, op_table *many,
                                  double many_step, int ranks)
{
    struct op_row sum[2] = {{"(GEMM and attention)", 0, 0}, {"(all others)", 0, 0}};
    double alone[2] = {0, 0};

    qsort(many->row, (size_t)many->rows, sizeof *many->row, op_rows_compare);
    printf("\n%-36s %7s %17s %8d ranks\n", "operators, ms of a step (rank 0)", "calls", "1 rank  ",
           ranks);
    for (int i = 0; i < many->rows; i++) {
        const struct op_row *r = &many->row[i];
        double seconds = op_table_find(one, r->name).seconds;
        bool other = !op_is_product(r->name);
        sum[other].calls += r->calls;
        sum[other].seconds += r->seconds;
        alone[other] += seconds;
        op_table_line(r, seconds, one_step, many_step);
    }
    for (int other = 0; other < 2; other++)
        op_table_line(&sum[other], alone[other], one_step, many_step);
}

#endif
