/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program of the stress run, as data: meshes, layouts, and operations on numbered slots, drawn
 * from a seed. It is drawn before any rank exists, on a paper world, together with what every
 * tensor must hold; all ranks then run the same one. A wrong program is a right one with faults:
 * what some of the ranks do otherwise.
 */
#ifndef STRESS_PROGRAM_H
#define STRESS_PROGRAM_H

#include <sherd.h>

enum {
    RANKS = 16,
    MESHES = 7,
    AXES = 3,
    DIMS = 3,
    SLOTS = 20,
    OPS = 240,
    LAYOUTS = 128,
    VALUES = 192,
    LIST = 4, /* tensors of one sherd_redistribute_many */
    FAULTS = 2
};

/* ---- dice ------------------------------------------------------------------------------------ */

/* Falls the same way wherever it begins the same (splitmix64). */
typedef struct dice {
    uint64_t state;
} dice;

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint64_t dice_next(dice *d)
{
    return mix(d->state += 0x9E3779B97F4A7C15u);
}

/* 0 .. sides-1 */
static inline int roll(dice *d, int sides)
{
    return (int)(dice_next(d) % (uint64_t)sides);
}

static inline bool one_in(dice *d, int n)
{
    return roll(d, n) == 0;
}

/* ---- meshes and layouts ---------------------------------------------------------------------- */

/* How a mesh is made. A part of another mesh is some of its axes. */
typedef struct mesh_plan {
    int axes;
    int64_t extent[AXES];
    char name[AXES][8];
    bool named;
    int rank[RANKS]; /* row-major */
    int whole;       /* the mesh that it is a part of; itself */
    int part[AXES];  /* the axes of that */
    unsigned members;
    char text[160]; /* "" = it is not made from text */
    const sherd_mesh *paper;
} mesh_plan;

typedef struct scene {
    int ranks, meshes;
    mesh_plan mesh[MESHES]; /* the first has all ranks */
    sherd_world *paper;
} scene;

/* Draw meshes over all and some of the ranks; false for lack of memory. */
bool scene_draw(scene *s, int ranks, dice *d);
void scene_close(scene *s);

typedef struct layout_plan {
    int mesh;
    int ndim;
    int64_t shape[DIMS];
    sherd_placement placement[AXES];
    int order[AXES];
    bool ordered;
    int64_t sizes[DIMS][RANKS];
    bool cut[DIMS];
    bool lump;                      /* to be drawn so that one rank holds everything */
    char placements[64], cuts[256]; /* "" = it is not made from text */
    const sherd_layout *paper;
} layout_plan;

/* What may be pending in a layout that is drawn. */
typedef enum pendings { NOTHING_PENDING, ANY_PENDING, SUM_PENDING } pendings;

/* A plan of nothing but a mesh and a shape. */
layout_plan layout_blank(int mesh, int ndim, const int64_t *shape);
/* Draw the rest of it; false where it can not be made, which is a fault of this program. */
bool layout_draw(layout_plan *l, const scene *s, pendings pending, dice *d);

/* Make a planned layout on a mesh, here or on a rank. */
sherd_status layout_make(const sherd_layout **out, const layout_plan *l, const sherd_mesh *mesh);

/* Whether ranks hold different parts of a tensor, and each element is on one rank only. */
bool layout_is_disjoint(const scene *s, const layout_plan *l);
bool layout_is_pending(const sherd_layout *l);
bool layout_is_whole(const sherd_layout *l);

/* ---- what tensors must hold ------------------------------------------------------------------ */

typedef enum value_kind {
    VALUE_KNOWN,  /* x */
    VALUE_DRAWN,  /* uniform numbers of a generator: ranks draw them as plain tensors to compare */
    VALUE_DROPPED /* dropout of x: a rank does it on a plain tensor to compare */
} value_kind;

/* The elements of a whole tensor, row-major; whole numbers, so that no order of additions shows. */
typedef struct numbers {
    value_kind kind;
    int ndim;
    int64_t shape[DIMS], count;
    double bound; /* no element, addend or part of a sum is larger */
    double *x;
    uint64_t name, call; /* of the generator */
    double p;            /* of the dropout */
} numbers;

/* The largest whole number up to which a dtype has all. */
double dtype_limit(sherd_dtype dtype);
bool dtype_has_fractions(sherd_dtype dtype);

/* How the addends of a tensor with a pending reduction are made; all zero but `ways` = 1 where
 * nothing is pending. */
typedef struct addends {
    bool pending;
    sherd_reduce_op op;
    int ways;    /* ranks that hold addends of one element */
    int average; /* how many of them an average divides by */
    double most; /* the largest element that is drawn */
    sherd_dtype dtype;
} addends;

addends addends_of(const sherd_layout *l, sherd_dtype dtype);
/* Which addend a rank holds; 0 where nothing is pending. */
int addend_of(const sherd_layout *l, int rank);
/* Element `index` of an addend: a function of the key alone, so that every rank can make any
 * part. */
double addend_element(const addends *a, uint64_t key, int which, int64_t index);
/* What they amount to, and the largest number on the way. */
double reduced_element(const addends *a, uint64_t key, int64_t index);
double reduced_bound(const addends *a);

/* ---- operations ------------------------------------------------------------------------------ */

typedef enum op_kind {
    OP_NONE,
    OP_MESH,
    OP_CHECK,
    OP_SCOPE,
    OP_UNSCOPE,
    OP_PASS,
    OP_DROP,
    OP_CONSTANT,
    OP_DRAW,
    OP_FROM_LOCAL,
    OP_DISTRIBUTE,
    OP_MOVE,
    OP_MANY,
    OP_WRITE,
    OP_READ,
    OP_FULL,
    OP_ITEM,
    OP_TO_LOCAL,
    OP_CAST,
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_SCALE,
    OP_RELU,
    OP_GELU,
    OP_DROPOUT,
    OP_SUM,
    OP_MATMUL,
    OP_TRANSPOSE,
    OP_VIEW,
    OP_REQUIRE,
    OP_BACKWARD,
    OP_GRAD,
    OP_CLEAR,
    OP_KINDS
} op_kind;

typedef struct op {
    op_kind kind;
    int count;     /* of the lists; 1 but in OP_MANY */
    int dst[LIST]; /* -1: the result is not kept */
    int src[LIST];
    int layout[LIST];
    int mesh;        /* that it is a matter of; its whole; -1: the world's */
    int value[LIST]; /* what dst holds, or src must hold or holds then; -1: nothing is compared */
    sherd_dtype dtype;
    double number;
    uint64_t key, call;
    int root;
    unsigned writers; /* OP_WRITE: ranks */
    unsigned stays;   /* places in the list whose result may be the operand itself */
    unsigned unknown; /* slots that are gone then, or of which nobody knows what they hold */
    bool begin, infer, greedy, flag;
    bool flies;   /* what it makes may not have come when the next check is good */
    bool own;     /* the slot keeps what it holds by a count of its own, else the scope does */
    bool members; /* ranks outside of the mesh leave it out */
    bool shows;   /* a rank of the mesh that does it otherwise is found out at the next check */
    bool absent;  /* of a fault: NULL is passed where an object is wanted */
} op;

typedef struct program {
    const scene *scene;
    uint64_t seed;
    int ops, layouts, values;
    op op[OPS];
    layout_plan layout[LAYOUTS];
    numbers value[VALUES];
} program;

/* What kind of program is drawn. */
typedef struct program_options {
    int ops;       /* about how many */
    bool verified; /* no replica may ever differ from another */
    bool large;    /* tensors of up to a megabyte */
} program_options;

/* Draw a right program. */
bool program_draw(program *p, const scene *s, uint64_t seed, const program_options *o);
void program_clear(program *p);
/* The value that a slot holds before operation `at`; -1 where nobody knows. */
int program_value(const program *p, int slot, int at);
/* One line of what an operation is. */
void op_text(const program *p, const op *o, char *out, size_t room);
const char *op_name(op_kind kind);

/* ---- faults ---------------------------------------------------------------------------------- */

typedef enum fault_kind {
    FAULT_FIELD, /* another operation in its place */
    FAULT_EXTRA,
    FAULT_MISSING,
    FAULT_SWAPPED,
    FAULT_ABSENT, /* a NULL operand */
    FAULT_DATA,   /* other data in what is said to be equal */
    FAULT_CHECK_EXTRA,
    FAULT_CHECK_MISSING,
    FAULT_RAISED, /* sherd_world_fail */
    FAULT_LEFT,   /* the body returns */
    FAULT_KINDS
} fault_kind;

typedef struct fault {
    fault_kind kind;
    int at;         /* index of the operation */
    int other;      /* FAULT_SWAPPED: the later one */
    unsigned ranks; /* who does it; never all ranks of the mesh */
    op alt;
    int status;
    bool sure; /* the next check has to fail; else it may */
    char text[320];
} fault;

/* Put up to FAULTS faults into a program, which may get more layouts; how many, 0 if there is no
 * place for any. */
int faults_draw(fault *f, program *p, bool verified, dice *d);
const char *fault_name(fault_kind kind);

#endif
