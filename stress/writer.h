/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts that draw programs share: what each slot holds at this point of the program, and
 * adding to it. */
#ifndef STRESS_WRITER_H
#define STRESS_WRITER_H

#include "value.h"

enum { LAYOUT_PLAIN = -1, LAYOUT_UNKNOWN = -2, BY_COUNT = -1 };

typedef struct slot_plan {
    bool used;
    int value;  /* -1: nobody knows, a tensor that may share its storage was written */
    int layout; /* in the program; LAYOUT_PLAIN; LAYOUT_UNKNOWN: an operator chose it */
    int mesh;   /* a whole one */
    sherd_dtype dtype;
    int depth;     /* of the scope that it belongs to; BY_COUNT */
    int storage;   /* slots with one number may share their elements */
    bool shared;   /* another tensor has had this number */
    bool writable; /* not a view with strides */
    bool flies;    /* begun, or shares the elements of what was */
    bool members;  /* ranks outside of the mesh have no part in it */
} slot_plan;

typedef struct writer {
    program *p;
    const scene *s;
    dice d;
    slot_plan slot[SLOTS];
    int depth, storages;
    bool made[MESHES];
    bool verified, large;
    bool lumps; /* layouts are drawn so that one rank holds everything */
} writer;

op *emit(writer *w, op_kind kind);
/* So many slots are empty then. */
void make_room(writer *w, int slots);
/* An empty slot; what a full one holds is dropped. */
int take_slot(writer *w);
void drop_slot(writer *w, int i);
/* dst of an operation is `i`, which holds `what` from now on. */
void fill_slot(writer *w, op *o, int i, slot_plan what);
/* A slot that `fits`, at random; -1 if there is none. */
int pick_slot(writer *w, bool (*fits)(const writer *w, int i, const void *what), const void *what);
/* All ranks make the mesh that `mesh` is, or is a part of, if they have not. */
void need_mesh(writer *w, int mesh);
int any_mesh(writer *w);
int any_shape(writer *w, int64_t *shape);
/* A layout drawn, as an index in the program; -1 where there is no room. */
int any_layout(writer *w, int mesh, int ndim, const int64_t *shape, pendings pending);
/* The same of a plan; equal layouts have one index. */
int add_layout(writer *w, const layout_plan *l);
void open_scope(writer *w);
void close_scope(writer *w);
bool has_room(const writer *w, int ops);

const numbers *value_of(const writer *w, int slot);
const sherd_layout *layout_of(const writer *w, int i);
/* Whether a slot may be moved; whether it may be so by all ranks together. */
bool can_move(const writer *w, int i, const void *what);
bool can_join(const writer *w, int i, const void *what);
unsigned all_ranks(const writer *w);
/* Whether other ranks than those of the mesh are left out of what is made on it. */
bool draw_members(writer *w, int mesh);
sherd_dtype any_dtype(writer *w, bool fractions);

/* moves.c, looks.c, operators.c, graph.c: each adds something, or returns false where it finds
 * nothing to add. */
bool write_constant(writer *w);
bool write_plain(writer *w);
bool write_drawn(writer *w);
bool write_from_local(writer *w);
bool write_distribute(writer *w);
bool write_move(writer *w);
bool write_many(writer *w);
bool write_in_place(writer *w);
bool write_burst(writer *w);
bool write_read(writer *w);
bool write_full(writer *w);
bool write_item(writer *w);
bool write_to_local(writer *w);
bool write_cast(writer *w);
bool write_binary(writer *w);
bool write_unary(writer *w);
bool write_dropout(writer *w);
bool write_sum(writer *w);
bool write_matmul(writer *w);
bool write_view(writer *w);
bool write_graph(writer *w);

#endif
