/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials of kernels: does one stay within what it is given, and does it compute what the plain f64
 * (or i64) kernel of the same table does? A subject is a function that draws a shape, asks for each
 * operand by name, says `ready`, and calls the kernel. It runs twice with the same numbers: first
 * every operand has exactly its bytes between fences, and those that are read can only be read;
 * then the same call goes to the paper table. Whatever is written holds other garbage in each run,
 * so that a result that was not written, or that depends on what lay there before, differs.
 */
#ifndef SHERD_TESTS_BOUNDS_H
#define SHERD_TESTS_BOUNDS_H

#include "check.h"
#include "fences.h"
#include "base/dtype.h"
#include "kernels/cast.h"
#include "sherd/dtype.h"

#include <math.h>

enum { BOUNDS_PARTS = 14, BOUNDS_TEXT = 400, BOUNDS_MOST = FENCE_BODY / 8 };

/*
 * What a part consists of: elements of the table, its statistics (f32 of 16 bits), or always this.
 */
typedef enum part_type { OWN, STATISTIC, F32S, F64S, I32S, I64S, FLAGS, BYTES } part_type;
typedef enum part_role { READ, CHANGED, WRITTEN, SPACE } part_role;

typedef struct bounds_part {
    const char *name;
    part_role role;
    sherd_dtype dtype, paper;
    int64_t n;
    fence fence;
    char *on_paper; /* [FENCE_BODY] */
} bounds_part;

typedef struct trial {
    const char *set, *kernel;
    sherd_dtype dtype, paper_dtype; /* of the table on trial, and of the other one */
    const void *table;              /* the one to call now */
    bool on_paper;                  /* that is the other one */
    uint64_t dice;                  /* of shapes: falls alike in both runs */
    uint64_t numbers;               /* of elements */
    double low, high, grain;        /* elements are drawn from here */
    double slack;                   /* that many times the usual tolerance */
    bool at_end;
    int parts, called;
    bounds_part part[BOUNDS_PARTS];
    char text[BOUNDS_TEXT];
} trial;

typedef struct subject {
    const char *name;
    size_t offset; /* of its pointer in the table */
    void (*run)(trial *t);
} subject;

/* ---- shapes ---------------------------------------------------------------------------------- */

/* One of 0 .. sides - 1, noted by its name. */
static inline int64_t draw(trial *t, const char *name, int sides)
{
    int64_t x = roll(&t->dice, sides);
    size_t used = strlen(t->text);

    snprintf(t->text + used, BOUNDS_TEXT - used, " %s=%d", name, (int)x);
    return x;
}

static inline int64_t note(trial *t, const char *name, int64_t x)
{
    size_t used = strlen(t->text);

    snprintf(t->text + used, BOUNDS_TEXT - used, " %s=%lld", name, (long long)x);
    return x;
}

/* A length: nothing, a few, or beside the edges of vectors and blocks. */
static inline int64_t length(trial *t, const char *name)
{
    static const int64_t edges[] = {15, 16, 17, 31, 32,  33,  47,  48,  49,  63,  64,
                                    65, 95, 96, 97, 127, 128, 129, 255, 256, 257, 300};
    int how = roll(&t->dice, 12);

    return note(t, name,
                how == 0  ? 0
                : how < 8 ? 1 + roll(&t->dice, 20)
                          : edges[roll(&t->dice, LEN(edges))]);
}

/* The same, also longer: blocks on the stack, and pages. */
static inline int64_t long_length(trial *t, const char *name)
{
    static const int64_t edges[] = {511, 512, 513, 1023, 1024, 1025, 2047, 2049, 4097};

    return roll(&t->dice, 4) ? length(t, name) : note(t, name, edges[roll(&t->dice, LEN(edges))]);
}

static inline int64_t short_length(trial *t, const char *name)
{
    return draw(t, name, 8);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static inline sherd_dtype dtype_of_part(part_type type, sherd_dtype own)
{
    bool half = own == SHERD_BF16 || own == SHERD_F16;
    const sherd_dtype of[] = {
        own,     half ? SHERD_F32 : own, SHERD_F32, SHERD_F64, SHERD_I32, SHERD_I64, SHERD_BOOL,
        SHERD_U8};

    return of[type];
}

/* Elements asked for from now on lie between low and high, in steps. */
static inline void range(trial *t, double low, double high, double grain)
{
    t->low = low;
    t->high = high;
    t->grain = grain;
}

/* Whole numbers, as indices are. */
static inline void whole_range(trial *t, int64_t low, int64_t high)
{
    range(t, (double)low, (double)high, 1);
}

static inline double *bounds_staging(void)
{
    static double staging[BOUNDS_MOST];
    return staging;
}

static inline void fill_part(trial *t, bounds_part *p)
{
    double *x = bounds_staging();
    int steps = (int)((t->high - t->low) / t->grain) + 1;

    for (int64_t i = 0; i < p->n; i++)
        x[i] = t->low + t->grain * roll(&t->numbers, steps);
    sherd__cast(p->dtype, SHERD_F64, p->n, p->fence.given, x);
    sherd__cast(p->paper, p->dtype, p->n, p->on_paper, p->fence.given);
}

/* n elements of an operand. */
static inline void *part_of(trial *t, const char *name, part_role role, part_type type, int64_t n)
{
    bounds_part *p = &t->part[t->parts++];

    if (!CHECK(t->parts <= BOUNDS_PARTS) || !CHECK(n >= 0 && n <= BOUNDS_MOST))
        abort();
    if (t->on_paper)
        return p->on_paper;
    p->name = name;
    p->role = role;
    p->dtype = dtype_of_part(type, t->dtype);
    p->paper = dtype_of_part(type, t->paper_dtype);
    p->n = n;
    fence_give(&p->fence, (size_t)n * sherd_dtype_bytes(p->dtype), t->at_end);
    if (role == READ || role == CHANGED) {
        fill_part(t, p);
    } else { /* no numbers, or other ones */
        memset(p->fence.given, 0xFF, p->fence.bytes);
        memset(p->on_paper, 0x2A, role == WRITTEN ? (size_t)n * 8 : 0);
    }
    return p->fence.given;
}

static inline const void *in(trial *t, const char *name, int64_t n)
{
    return part_of(t, name, READ, OWN, n);
}

static inline void *out(trial *t, const char *name, int64_t n)
{
    return part_of(t, name, WRITTEN, OWN, n);
}

static inline void *in_out(trial *t, const char *name, int64_t n)
{
    return part_of(t, name, CHANGED, OWN, n);
}

/* Every operand is there: the call follows. */
static inline void ready(trial *t)
{
    t->called++;
    for (int i = 0; i < t->parts && !t->on_paper; i++)
        if (t->part[i].role == READ)
            fence_protect(&t->part[i].fence, PROT_READ);
}

/* ---- a trial --------------------------------------------------------------------------------- */

static inline void tell_trial(const trial *t, const char *what)
{
    fprintf(stderr, "%s %s %s%s: %s\n", t->set, sherd_dtype_name(t->dtype), t->kernel, t->text,
            what);
    for (int i = 0; i < t->parts; i++)
        fence_tell(&t->part[i].fence, t->part[i].name);
}

/* Relative to 1 + the size of an element. */
static inline double tolerance_of(sherd_dtype dtype)
{
    return dtype == SHERD_BF16  ? 1e-2
           : dtype == SHERD_F16 ? 1.25e-3
           : dtype == SHERD_F32 ? 1e-5
           : dtype == SHERD_F64 ? 1e-12
                                : 0;
}

/* Each element of a result against the one on paper, rounded to the same type. */
static inline bool same_part(const trial *t, const bounds_part *p)
{
    static double right[BOUNDS_MOST];
    double *x = bounds_staging(), *y = right;
    sherd_dtype least =
        dtype_of_part(STATISTIC, t->dtype); /* sums that are f64 are made of these */
    double tolerance = t->slack * tolerance_of(p->dtype == SHERD_F64 ? least : p->dtype);

    sherd__cast(p->dtype, p->paper, p->n, x, p->on_paper);
    sherd__cast(SHERD_F64, p->dtype, p->n, y, x);
    sherd__cast(SHERD_F64, p->dtype, p->n, x, p->fence.given);
    for (int64_t i = 0; i < p->n; i++) {
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i])) ||
            fabs(x[i] - y[i]) <= tolerance * (1 + fabs(y[i])))
            continue;
        tell_trial(t, "another result");
        fprintf(stderr, "  element %lld of %s is %.9g, not %.9g\n", (long long)i, p->name, x[i],
                y[i]);
        return CHECK(false);
    }
    return true;
}

static inline void begin_run(trial *t, uint64_t seed, const void *table, bool on_paper)
{
    t->dice = t->numbers = seed;
    t->table = table;
    t->on_paper = on_paper;
    t->parts = 0;
    t->text[0] = 0;
    t->slack = 1;
    t->at_end = roll(&t->dice, 2);
    if (sherd__has_fractions(t->dtype))
        range(t, -2, 2, 0.125);
    else
        range(t, -3, 3, 1);
}

static inline void run_fenced(trial *t, const subject *s)
{
    fence_fault = NULL;
    if (sigsetjmp(fence_caught, 1) == 0)
        s->run(t);
}

/* One shape; false: it went wrong. */
static inline bool try_once(trial *t, const subject *s, uint64_t seed, const void *table,
                            const void *paper)
{
    bool good = true;
    int called = t->called;

    begin_run(t, seed, table, false);
    run_fenced(t, s);
    for (int i = 0; i < t->parts; i++)
        fence_protect(&t->part[i].fence, PROT_READ | PROT_WRITE);
    if (!CHECK(fence_fault == NULL)) {
        tell_trial(t, "out of bounds");
        return false;
    }
    if (t->called == called) /* a shape that is not for this kernel */
        return true;
    begin_run(t, seed, paper, true);
    s->run(t);
    for (int i = 0; i < t->parts && good; i++)
        if (t->part[i].role == WRITTEN || t->part[i].role == CHANGED)
            good = same_part(t, &t->part[i]);
    return good;
}

/* Some shapes; stops at the first that goes wrong. */
static inline void try_subject(trial *t, const subject *s, int tries, const void *table,
                               const void *paper)
{
    t->kernel = s->name;
    t->called = 0;
    for (int i = 0; i < tries; i++)
        if (!try_once(t, s, (uint64_t)i * 1000003 + (uint64_t)t->dtype, table, paper))
            return;
    if (!CHECK(t->called > 0))
        tell_trial(t, "never called");
}

static inline bool open_trial(trial *t)
{
    memset(t, 0, sizeof *t);
    for (int i = 0; i < BOUNDS_PARTS; i++) {
        t->part[i].on_paper = malloc(FENCE_BODY);
        if (!CHECK(t->part[i].on_paper && fence_build(&t->part[i].fence)))
            return false;
    }
    return true;
}

static inline void close_trial(trial *t)
{
    for (int i = 0; i < BOUNDS_PARTS; i++) {
        free(t->part[i].on_paper);
        fence_raze(&t->part[i].fence);
    }
}

#endif
