/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states between two layouts as a graph, and the search in it. Only the files of the exact
 * planner know it.
 */
#ifndef SHERD__SEARCH_H
#define SHERD__SEARCH_H

#include "planners.h"
#include "price/links.h"

/* What plans are compared by, in this order; bytes are received by all ranks together. */
typedef struct sherd__cost {
    int64_t picoseconds, bytes, steps;
} sherd__cost;

static inline int sherd__cost_compare(sherd__cost a, sherd__cost b)
{
    if (a.picoseconds != b.picoseconds)
        return a.picoseconds < b.picoseconds ? -1 : 1;
    if (a.bytes != b.bytes)
        return a.bytes < b.bytes ? -1 : 1;
    return (a.steps > b.steps) - (a.steps < b.steps);
}

static inline sherd__cost sherd__cost_add(sherd__cost a, sherd__cost b)
{
    return (sherd__cost){sherd__add_cut(a.picoseconds, b.picoseconds),
                         sherd__add_cut(a.bytes, b.bytes), a.steps + b.steps};
}

enum { SHERD__REACHED = 4, SHERD__PAGE = 128, SHERD__PAGES = 128 };

/* One way to cut a dim: a list of axes, outermost first, and its cuts. */
typedef struct sherd__way {
    int64_t longest,
        shortest;    /* of its intervals, in elements; the shortest only of default cuts */
    int64_t *cuts;   /* own memory; NULL = default */
    uint64_t word;   /* a byte an axis, number + 1, the outermost lowest */
    uint64_t before; /* byte i: the first i axes as bits */
    unsigned mask;   /* the axes as bits */
    int axes;
    int8_t place[SHERD_MAX_AXES]; /* of an axis among them */
    bool hollow;                  /* some interval is empty */
    bool ruled;                   /* states have these cuts; not only the goal */
    bool even;                    /* all intervals are equally long */
    /* under the price of links: elements of the dim that the first rank, and those with other coordinates on some of
     * the axes, have together, or more; bit i of the number is the i-th axis. Of up to SHERD__REACHED axes */
    int64_t reach[1 << SHERD__REACHED];
} sherd__way;

/* What a look under the price of links asks of two ways of a dim, before and after a step. */
typedef struct sherd__pair {
    uint8_t gathered, cut; /* axes */
    uint8_t leads; /* axes gathered: who is last by one of them has nothing that it asks for */
    int64_t one;   /* elements that an interval before and one after have in common at most */
    /* by level: of the longest interval after, what the ranks that faster links join have before; and the other way */
    int64_t receive[SHERD_MAX_AXES], send[SHERD_MAX_AXES];
} sherd__pair;

/* Classes of links that are alike; where classes overlap each is one of its own. */
typedef struct sherd__level {
    int lane;              /* the first */
    unsigned axes, faster; /* those of the classes, and of all before */
    int64_t alpha, beta;   /* the least alpha of these and slower ones */
} sherd__level;

enum { SHERD__KNOWN = 1024, SHERD__SURE = 64 };

/* A step that was priced, between nodes of these numbers + 1. */
typedef struct sherd__known {
    int from, to;
    bool whole; /* it ends no earlier than the step */
    bool allowed;
    sherd__cost cost;
} sherd__known;

/* Where pairs lie that are kept. */
typedef struct sherd__pairs {
    int pairs, pages;
    sherd__pair *page[SHERD__PAGES];
} sherd__pairs;

typedef struct sherd__node {
    uint16_t way[SHERD_MAX_DIMS];
    int8_t home[SHERD_MAX_AXES]; /* the dim that an axis cuts, or -1 */
    uint64_t homes;              /* under links: the same + 1, a byte for each class */
    unsigned used;               /* the axes that cut one */
    unsigned pending;            /* axes that are still to be reduced */
    bool hollow;                 /* some rank holds nothing */
    bool open;                   /* of a search: reached, and not expanded since */
    int number;                  /* under links: as it was listed first */
    int64_t longest, total;      /* elements of the largest box, and of all ranks' boxes */
    int64_t waste; /* the longest box over the mean one, in 1/SHERD__EVEN, rounded up */
    sherd__cost behind,
        ahead;         /* under links: from the source and to the goal at least, in any steps */
    sherd__cost left;  /* from here to the goal: at least */
    sherd__cost spent; /* of a search: from the source to here */
} sherd__node;

enum { SHERD__EVEN = 1 << 20 };

enum { SHERD__SOURCE = 0, SHERD__GOAL = 1, SHERD__MASKS = 1 << SHERD_MAX_AXES };

typedef struct sherd__field {
    const sherd__problem *problem;
    const sherd__price_model *price;
    const sherd_layout *goal; /* the target without the reductions that a partition makes */
    const sherd_layout
        *other; /* beside the source: whose cuts states have, and where axes of extent 1 are */
    const sherd_mesh *mesh; /* of the source and of all states but a goal across */
    int64_t shape[SHERD_MAX_DIMS];
    int64_t elements; /* of the tensor */
    int64_t bytes;    /* of an element */
    int ndim;
    bool across;      /* the goal is on another mesh */
    bool listed;      /* some cuts are explicit */
    bool whole;       /* the nodes are all states there are */
    bool plain;       /* arena prices and no limits: without a reduction the direct step is best */
    unsigned movable; /* axes that may cut dims: extent > 1, not pending in source and goal */
    unsigned reduced; /* those pending in the source */
    unsigned frozen;  /* pending in source and goal */
    int ways[SHERD_MAX_DIMS], way_room[SHERD_MAX_DIMS];
    sherd__way *way[SHERD_MAX_DIMS];
    sherd__pair *
        *pair[SHERD_MAX_DIMS]; /* [ways * ways], each NULL until it is asked for; or NULL */
    sherd__pairs *pairs;
    sherd__known *known; /* [SHERD__KNOWN] steps, the last of each hash, or NULL */
    int sures;           /* steps that were priced over all ranks */
    sherd__known sure[SHERD__SURE];
    int nodes, room; /* of a search */
    int all;         /* nodes; those behind `nodes` are left out */
    sherd__node *node;
    int64_t least[SHERD__MASKS];   /* picoseconds to the goal at least, by what is pending */
    int64_t arrival;               /* picoseconds of any step that brings something */
    sherd_link link;               /* the price's least link; 0 if it has none */
    sherd__lanes lanes;            /* of the price of links: all axes */
    int64_t alpha[SHERD_MAX_AXES]; /* the least of a class and slower ones */
    int pace[SHERD_MAX_AXES];      /* the class of an axis */
    int levels;
    sherd__level level[SHERD_MAX_AXES];
    /* under the price of links (bound.c): ranks by axes; by class what a tensor takes for each rank, in 2^shift
     * femtoseconds */
    int64_t extent[SHERD__MASKS], weight[SHERD_MAX_AXES];
    int shift;
    int64_t tensor; /* bytes */
} sherd__field;

/* ---- ways.c: ways two by two ------------------------------------------------------------------ */

/* How many outermost axes two ways of a dim share with equal cuts. */
int sherd__ways_shared(const sherd__field *field, int d, const sherd__way *a, const sherd__way *b);

/* Under the price of links: its classes; what the first ranks of a way reach; room for pairs, and for prices. */
void sherd__links_start(sherd__field *field);
void sherd__links_reach(const sherd__field *field, int d, const sherd__dim *dim, sherd__way *way);
void sherd__links_pairs(sherd__field *field);
void sherd__links_forget(sherd__field *field);
/* A pair of ways, in `room` if it is not kept; and one that is asked for the first time. */
const sherd__pair *sherd__links_pair_made(const sherd__field *field, int d, int x, int y,
                                          sherd__pair *room);
static inline const sherd__pair *sherd__links_pair(const sherd__field *field, int d, int x, int y,
                                                   sherd__pair *room)
{
    const sherd__pair *known = field->pair[d] ? field->pair[d][x * field->ways[d] + y] : NULL;

    return known ? known : sherd__links_pair_made(field, d, x, y, room);
}

/* ---- field.c: which states there are ---------------------------------------------------------- */

/* What follows from the problem alone; allocates nothing. */
void sherd__field_start(sherd__field *field, const sherd__problem *problem,
                        const sherd_layout *goal);
/* All nodes; where these are too many, only the two ends, and `whole` is false. ENOMEM. */
sherd_status sherd__field_fill(sherd__field *field);
void sherd__field_clear(sherd__field *field);

/* Add the state if it is not there; ENOMEM. */
sherd_status sherd__field_add(sherd__field *field, const sherd__state *state);

/* A node's layout in `room`, not interned; its cuts are the field's. Or the problem's own. */
const sherd_layout *sherd__field_layout(const sherd__field *field, int node, sherd_layout *room);
void sherd__field_state(sherd__state *out, const sherd__field *field, int node);

/* ---- choose.c: some states --------------------------------------------------------------------- */

/* Where there are too many, those that plans are mostly made of; ENOMEM. */
sherd_status sherd__field_choose(sherd__field *field);

/* ---- edge.c: what a step between two nodes costs ----------------------------------------------- */

typedef struct sherd__edge {
    sherd__cost cost; /* at least, if not sure */
    bool sure_time, sure_bytes;
    bool open_bytes; /* the bytes are what the lists say, not what the price chooses */
    bool sure_kind;  /* whether anything travels is known */
} sherd__edge;

/*
 * From lengths and lists alone, in tens of nanoseconds. Above `enough` picoseconds (SHERD__MOST = any) it may take longer than
 * is said.
 */
void sherd__edge_look(sherd__edge *out, const sherd__field *field, int a, int b, int64_t enough);
/* The least time of steps that bring all ranks together so many bytes. */
int64_t sherd__carry_time(const sherd__field *field, int64_t bytes);
/* The time of an edge whose kind is sure, under a price that asks for no more. */
void sherd__edge_time(sherd__edge *edge, const sherd__field *field, int a, int b);
/* Add an edge between dims to the closure of those chosen, a byte for each dim, unless it closes a ring. */
static inline bool sherd__dims_link(uint64_t *reach, int from, int to)
{
    const uint64_t each = 0x0101010101010101;

    if (from == to || *reach >> (8 * to + from) & 1)
        return false;
    uint64_t more = (*reach >> 8 * to & 0xff) | 1u << to;
    *reach |= ((*reach >> from & each) | (uint64_t)1 << 8 * from) * more;
    return true;
}
/* The bytes of an edge that has them open. Costs less than its price. */
void sherd__edge_total(sherd__edge *edge, const sherd__field *field, int a, int b);
/*
 * An edge that was looked at, priced; *allowed is false for a step that the options rule out. Above `enough` picoseconds (0 = any) it may take longer than
 * is said.
 */
sherd_status sherd__edge_price(sherd__edge *out, bool *allowed, const sherd__field *field, int a,
                               int b, int64_t enough);
/* Keep what an edge costs over all ranks; false: there is no room. */
bool sherd__edge_note(sherd__field *field, int a, int b, bool allowed, sherd__cost cost);
/* An edge priced over all ranks, and kept; *kept is false if there is no room. */
sherd_status sherd__edge_price_all(sherd__edge *out, bool *kept, sherd__field *field, int a, int b);
/* The same of a step that is priced already. `from` is what it starts from. */
bool sherd__step_allowed(const sherd__problem *problem, const sherd__priced *step);

/* ---- look.c: the same under the price of links -------------------------------------------------- */

/* What an edge takes at least: exact for most even collectives and all-to-alls. */
void sherd__links_look(sherd__edge *out, const sherd__field *field, int a, int b, int64_t enough);

/* ---- bound.c: ways of any number of steps ------------------------------------------------------- */

/* What follows from the links alone. */
void sherd__bound_start(sherd__field *field);
/*
 * From one node to another one at least, under the price of links. Above `enough` picoseconds (SHERD__MOST = any) it may be
 * less than could be said.
 */
sherd__cost sherd__bound_between(const sherd__field *field, int from, int to, int64_t enough);
/* Fill `behind` and `ahead` of all nodes. */
void sherd__bound_fill(sherd__field *field);
/* Whether a plan that goes there, which costs `left` at least from there on, may cost no more than `limit`. */
bool sherd__bound_allows(const sherd__node *node, sherd__cost left, sherd__cost limit);
/* How many nodes the bounds allow. */
int sherd__bound_count(const sherd__field *field, sherd__cost limit);
/* Keep those of all nodes for which they are least. */
void sherd__bound_keep(sherd__field *field, int count);
/* Of those that are kept, drop all through which `left` allows nothing. */
void sherd__bound_drop(sherd__field *field, sherd__cost limit);

/* ---- left.c: what is left at least, by all looks ------------------------------------------------ */

typedef struct sherd__route {
    int stops, stop[SHERD__STOPS]; /* nodes, first = the source; 0 = none was found */
    sherd__cost cost;
} sherd__route;

/*
 * Fill `left` of all nodes with the least that looks allow from there to the goal, exact where it is less than
 * the source's and a plan of `limit` may go there; `route` gets a route of that cost from the source. ENOMEM.
 */
sherd_status sherd__left_find(sherd__route *route, sherd__field *field, sherd__cost limit);

/* What is known from one end. Ways go from a state to the goal, or (`ahead`) from the source to a state. */
typedef struct sherd__side {
    sherd__field *field;
    sherd__cost limit;
    bool ahead;
    int *next,
        *open; /* on the way to that end; states without a way yet, or with one that may get shorter */
    int64_t *
        most; /* picoseconds that a way of a state may take to be of use; -1 = it has the shortest */
    int opens, taken;
    bool *done;                      /* taken */
    sherd__cost radius;              /* no state that is open is nearer */
    const struct sherd__side *other; /* or NULL */
} sherd__side;

/* Both ends at once. */
typedef struct sherd__meeting {
    sherd__field *field;
    sherd__side side[2]; /* the goal's and the source's */
    sherd__cost shortest;
    int middle; /* of the shortest way so far, or -1 */
} sherd__meeting;

/* For plans of `limit` at most, through the nodes that are kept; ENOMEM, to be cleared all the same. */
sherd_status sherd__meeting_start(sherd__meeting *m, sherd__field *field, sherd__cost limit);
/*
 * Until no plan of `limit` has a state that was not taken. With a route it ends as soon as the shortest one is known,
 * which that gets; no stops if there is none.
 */
void sherd__meeting_go(sherd__meeting *m, sherd__cost limit, sherd__route *route);
/* Keep what was taken. */
void sherd__meeting_keep(sherd__meeting *m);
void sherd__meeting_clear(sherd__meeting *m);

/* ---- least.c: what any plan costs -------------------------------------------------------------- */

/* Fill field->least, from the smallest boxes of the nodes, or of any shards where there are no nodes. */
void sherd__least_find(sherd__field *field);
/* Under the arena and with a reduction: what any other plan than the direct step takes at least. */
int64_t sherd__least_beside_direct(const sherd__field *field);

/* ---- search.c --------------------------------------------------------------------------------- */

/*
 * The cheapest route of cost `limit` at most; ties go by the state keys along the way. Rough: costs are
 * taken as looked at, not priced, where that is sure for the time, and ties go anyhow. *complete:
 * nothing was left out.
 */
sherd_status sherd__search_run(sherd__route *out, bool *complete, sherd__field *field,
                               sherd__cost limit, bool rough);

#endif
