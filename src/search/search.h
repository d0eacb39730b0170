/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The graph of states between two layouts, and the search in it. Only the files of the exact
 * planner use it.
 *
 * A *way* shards one dim: a list of axes, and cuts. A *node* is a state: a way for each dim, and
 * which axes are pending. An *edge* is the step between two nodes; there is one between any two. A
 * *route* is the nodes of a plan.
 *
 * What an edge costs is asked in grades, each slower and better than the one before: a *glance*,
 * the *bound* of any path between its nodes (both under the price of links only), a *look*, and the
 * *price*. All but the price are lower bounds, from lists and longest intervals alone; what a look
 * calls sure is exact.
 *
 * Under the price of links each axis is a *class* of messages (its lane in price/links.h), the
 * fastest first; equal ones make a *level*. Of two ways of a dim, before and after a step, a
 * *shift* is what a glance needs, and a *pair* what a look needs besides.
 */
#ifndef SHERD__SEARCH_SEARCH_H
#define SHERD__SEARCH_SEARCH_H

#include "planners.h"
#include "price/links.h"

/*
 * How much a search does at most. It counts work, not time: plans must not depend on the machine.
 * A search that comes to a limit has left something out; then `proven` is false. effort.c says
 * why the usual limits are what they are.
 */
typedef struct sherd__effort {
    int states;         /* that are listed; if there are more, some are chosen */
    int chosen;         /* until there are so many */
    int64_t looks;      /* of all runs of a search together */
    int hopes;          /* steps that wait for their price at once */
    int prices;         /* of all runs together, if all states are listed */
    int prices_of_some; /* if not */
    int sure;           /* steps priced over all ranks, at most SHERD__SURE */
    int64_t pairs;      /* of states, in all runs of a search that is repeated */
} sherd__effort;

/* What plans are compared by, in this order; bytes are received, summed over all ranks. */
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

/* One way to shard a dim: a list of axes, outermost first, and its cuts. */
typedef struct sherd__way {
    /* of its intervals, in elements; the shortest only for default cuts */
    int64_t longest, shortest;
    int64_t *cuts;   /* own memory; NULL = default */
    uint64_t word;   /* a byte an axis, number + 1, the outermost lowest */
    uint64_t before; /* byte i: the first i axes as bits */
    unsigned mask;   /* the axes as bits */
    int axes;
    int8_t place[SHERD_MAX_AXES]; /* [axis]: where it is in the list */
    bool hollow;                  /* some interval is empty */
    bool ruled;                   /* these cuts may be in any state, not only in the goal */
    bool even;                    /* all intervals are equally long */
    /*
     * Under the price of links, for up to SHERD__REACHED axes: an upper bound of the elements of
     * the dim that the first rank and all that differ from it only in some axes have together; bit
     * i of the index is the i-th axis.
     */
    int64_t reach[1 << SHERD__REACHED];
    int64_t length[SHERD_MAX_AXES + 1]; /* [i]: first interval by the first i axes, default cuts */
} sherd__way;

_Static_assert(SHERD_MAX_AXES <= 8, "a set of axes fits a byte, and a byte for each a word");

/*
 * Sets of axes of two ways, before and after a step, a byte each: those that stop cutting the dim
 * as they did, and those that start. Of the former LEADS, of the latter TRAILS: the rank at the
 * last coordinate of such an axis, and the first of all others, has none of what it asks for, or
 * keeps none of what it has. It *lies apart*, along the axis, from all that it asks or that ask it.
 */
enum { SHERD__GATHERED = 0, SHERD__CUT = 8, SHERD__LEADS = 16, SHERD__TRAILS = 24 };

typedef struct sherd__shift {
    uint32_t sets;
    int16_t pair; /* the number of the pair, from 1 on; 0 = nothing is known yet, -1 = no pair */
    uint16_t messages; /* that some rank gets, at least; with default cuts, else 0 */
} sherd__shift;

_Static_assert(SHERD__PAGE *SHERD__PAGES < INT16_MAX, "numbers of pairs fit");

static inline unsigned sherd__shift_set(uint32_t sets, int which)
{
    return sets >> which & 0xff;
}

/* What a look under the price of links needs besides, in elements, by level. */
typedef struct sherd__pair {
    /*
     * Of the longest interval after the step, what the ranks connected by faster links have before
     * it; and the converse.
     */
    int64_t receive[SHERD_MAX_AXES], send[SHERD_MAX_AXES];
} sherd__pair;

/* Equal classes of links, taken together; if classes overlap, each is a level of its own. */
typedef struct sherd__level {
    int lane;              /* its first class */
    unsigned axes, faster; /* its axes; those of all faster levels */
    int64_t alpha, beta;   /* the least of its links and slower ones */
} sherd__level;

enum { SHERD__KNOWN = 1024, SHERD__SURE = 64 };

/* A step that was priced. */
typedef struct sherd__known {
    int from, to;  /* the nodes' numbers + 1 */
    bool complete; /* pricing did not stop at `enough` */
    bool allowed;
    sherd__cost cost;
} sherd__known;

/* Storage of the cached pairs. */
typedef struct sherd__pairs {
    int pairs, pages;
    sherd__pair *page[SHERD__PAGES];
} sherd__pairs;

typedef struct sherd__node {
    uint16_t way[SHERD_MAX_DIMS];
    int8_t home[SHERD_MAX_AXES]; /* the dim that an axis cuts, or -1 */
    uint64_t homes;              /* under links: the same + 1, a byte for each class */
    unsigned used;               /* the axes that cut a dim */
    unsigned pending;            /* axes that are still to be reduced */
    bool hollow;                 /* some rank holds nothing */
    bool open;                   /* of a search: reached, and not expanded since */
    int number;                  /* when it was listed; it keeps this where nodes are reordered */
    int64_t longest, total;      /* elements of the largest box, and of all ranks' boxes */
    int64_t waste; /* the largest box over the mean one, in 1/SHERD__EVEN, rounded up */
    /* under links: lower bounds of any path from the source to here, and from here to the goal */
    sherd__cost behind, ahead;
    sherd__cost left;  /* a lower bound, by looks, from here to the goal */
    sherd__cost spent; /* of a search: from the source to here */
} sherd__node;

_Static_assert(SHERD_MAX_DIMS <= 8, "a set of dims fits a byte, and a byte for each a word");

enum { SHERD__EVEN = 1 << 20 };

enum { SHERD__START = 0, SHERD__GOAL = 1, SHERD__MASKS = 1 << SHERD_MAX_AXES };

/* The ways of one dim. */
typedef struct sherd__field_dim {
    int ways, room;
    sherd__way *way;
    sherd__shift *shifts; /* [ways * ways], each empty until it is asked for; or NULL */
} sherd__field_dim;

/* Steps whose price is known. */
typedef struct sherd__field_prices {
    sherd__known *table; /* [SHERD__KNOWN]: the last priced step of each hash; or NULL */
    int prices;          /* that runs of the search have asked for */
    int64_t looks;       /* that they have taken */
    int sures;           /* steps that were priced over all ranks */
    sherd__known sure[SHERD__SURE];
} sherd__field_prices;

/* What any plan takes at least, whatever its states (least.c). */
typedef struct sherd__field_floor {
    int64_t left[SHERD__MASKS]; /* picoseconds to the goal, by what is pending */
    int64_t arrival;            /* picoseconds of a step in which some rank receives */
    sherd_link link;            /* the price's least link; 0 if it has none */
} sherd__field_floor;

/* The classes of messages under the price of links, fastest first (ways.c). */
typedef struct sherd__field_links {
    sherd__lanes lanes;                                  /* all axes that may cut or are reduced */
    int64_t alpha[SHERD_MAX_AXES], beta[SHERD_MAX_AXES]; /* the least of a class and slower ones */
    int pace[SHERD_MAX_AXES];                            /* the class of an axis */
    int levels;
    sherd__level level[SHERD_MAX_AXES];
    sherd__pairs *pairs;
} sherd__field_links;

/* What the bound of any path needs (bound.c). */
typedef struct sherd__field_bound {
    /* of a class: what sending a whole tensor takes, per rank, in 2^shift femtoseconds */
    int64_t weight[SHERD_MAX_AXES];
    /* of a level: what adding a whole tensor takes more than at the faster ones, likewise */
    int64_t added[SHERD_MAX_AXES];
    int64_t peers[SHERD_MAX_AXES]; /* messages to each rank by which an axis is reduced, at least */
    int shift;
} sherd__field_bound;

/* What a glance needs (glance.c), by sets of axes. */
typedef struct sherd__field_glance {
    bool possible;
    int64_t least_alpha[SHERD__MASKS], least_beta[SHERD__MASKS]; /* of the links of these axes */
    uint8_t slower[SHERD__MASKS]; /* the slowest of them, and those that are slower still */
} sherd__field_glance;

/* A search between two layouts: what is asked, the states, and what is known of them. */
typedef struct sherd__field {
    const sherd__problem *problem;
    const sherd__price_model *price;
    const sherd__effort *effort;
    const sherd_layout *goal; /* the target without the reductions that a partition makes */
    /* besides the source: the layout whose cuts and axes of extent 1 states take */
    const sherd_layout *other;
    const sherd_mesh *mesh; /* of the source and of all states but a goal across */
    int64_t shape[SHERD_MAX_DIMS];
    int ndim;
    int64_t elements, tensor;     /* of the tensor; its bytes */
    int64_t bytes;                /* of an element */
    int64_t extent[SHERD__MASKS]; /* under links: how many ranks each set of axes has */
    bool across;                  /* the goal is on another mesh */
    bool arena_only;    /* arena prices, no limits: without a reduction the direct step is best */
    bool explicit_cuts; /* in some state */
    unsigned movable;   /* axes that may cut dims: extent > 1, not pending in source and goal */
    unsigned reduced;   /* movable, and pending in the source */
    unsigned frozen;    /* axes pending in source and goal */

    sherd__field_dim dim[SHERD_MAX_DIMS];
    int nodes, room; /* those that a search goes through */
    int all;         /* with those behind them, which are left out */
    sherd__node *node;
    bool all_states; /* the nodes are all states there are */
    bool hollow;     /* in some state a rank holds nothing */

    sherd__field_prices priced;
    sherd__field_floor floor;
    sherd__field_links links;
    sherd__field_bound bound;
    sherd__field_glance glance; /* the last: what it has by sets is not cleared, for speed */
} sherd__field;

/* ---- ways.c: ways two by two ----------------------------------------------------------------- */

/* How many outermost axes two ways of a dim share; with equal cuts, if both have default ones. */
static inline int sherd__ways_same(const sherd__way *a, const sherd__way *b)
{
    uint64_t differ = a->word ^ b->word;

    return differ ? __builtin_ctzll(differ) / 8 : a->axes;
}

/* So many outermost axes of a way, as bits. */
static inline unsigned sherd__way_first(const sherd__way *way, int axes)
{
    return axes == way->axes ? way->mask : (unsigned)(way->before >> 8 * axes & 0xff);
}

/* How many outermost axes two ways of a dim share with equal cuts. */
int sherd__ways_shared(const sherd__field *field, int d, const sherd__way *a, const sherd__way *b);

/*
 * Under the price of links: set its classes; what the first ranks of a way reach; allocate room for
 * pairs and for prices.
 */
void sherd__links_start(sherd__field *field);
void sherd__links_reach(const sherd__field *field, int d, const sherd__dim *dim, sherd__way *way);
void sherd__links_pairs(sherd__field *field);
void sherd__links_forget(sherd__field *field);
/* What is not cached: in the cache if there is room, otherwise in `room`. */
const sherd__shift *sherd__links_shift_made(const sherd__field *field, int d, int x, int y,
                                            sherd__shift *room);
const sherd__pair *sherd__links_pair_made(const sherd__field *field, int d, int x, int y,
                                          sherd__pair *room);
static inline const sherd__shift *sherd__links_shift(const sherd__field *field, int d, int x, int y,
                                                     sherd__shift *room)
{
    const sherd__shift *known =
        field->dim[d].shifts ? &field->dim[d].shifts[x * field->dim[d].ways + y] : room;

    return known != room && known->pair ? known : sherd__links_shift_made(field, d, x, y, room);
}
static inline const sherd__pair *sherd__links_pair(const sherd__field *field, int d, int x, int y,
                                                   sherd__pair *room)
{
    int at = field->dim[d].shifts ? field->dim[d].shifts[x * field->dim[d].ways + y].pair - 1 : -1;

    return at >= 0 ? &field->links.pairs->page[at / SHERD__PAGE][at % SHERD__PAGE]
                   : sherd__links_pair_made(field, d, x, y, room);
}
/*
 * Of the first interval of x, with default cuts, what ranks at coordinate 0, or at any coordinate
 * of the axes `crossed`, want by way y.
 */
int64_t sherd__links_wanted(const sherd__field *field, int d, int x, int y, unsigned crossed);

/* ---- field.c: which states there are --------------------------------------------------------- */

/* Set what follows from the problem alone, and the usual effort; allocates nothing. */
void sherd__field_start(sherd__field *field, const sherd__problem *problem,
                        const sherd_layout *goal);
/* List all nodes; if these are too many, only the two ends, and all_states is false. ENOMEM. */
sherd_status sherd__field_fill(sherd__field *field);
void sherd__field_clear(sherd__field *field);

/* Add a state if it is not listed yet; ENOMEM. */
sherd_status sherd__field_add(sherd__field *field, const sherd__state *state);

/*
 * A node's layout in `room`, not interned, with cuts that belong to the field; or the problem's own
 * layout.
 */
const sherd_layout *sherd__field_layout(const sherd__field *field, int node, sherd_layout *room);
void sherd__field_state(sherd__state *out, const sherd__field *field, int node);

/* ---- choose.c: some states ------------------------------------------------------------------- */

/* If there are too many states, list those that plans are mostly made of; ENOMEM. */
sherd_status sherd__field_choose(sherd__field *field);

/* ---- edge.c: what a step between two nodes costs --------------------------------------------- */

typedef struct sherd__search_edge {
    sherd__cost cost; /* at least, if not sure */
    bool sure_time, sure_bytes;
    bool open_bytes; /* the bytes are what the lists say, not what the price chooses */
    bool sure_kind;  /* whether anything travels is known */
} sherd__search_edge;

/*
 * Look at an edge: a lower bound from lengths and lists alone, in tens of nanoseconds. A result
 * above `enough` picoseconds (SHERD__MOST = none) may be less than the best bound.
 */
void sherd__edge_look(sherd__search_edge *out, const sherd__field *field, int a, int b,
                      int64_t enough);
/* The time of an edge whose kind is sure, under a price that depends on nothing else. */
void sherd__edge_time(sherd__search_edge *edge, const sherd__field *field, int a, int b);

/*
 * Add an edge between dims to the transitive closure `reach` of the edges so far, a byte for each
 * dim, unless it closes a cycle.
 */
static inline bool sherd__dims_link(uint64_t *reach, int from, int to)
{
    const uint64_t each = 0x0101010101010101;

    if (from == to || *reach >> (8 * to + from) & 1)
        return false;
    uint64_t more = (*reach >> 8 * to & 0xff) | 1u << to;
    *reach |= ((*reach >> from & each) | (uint64_t)1 << 8 * from) * more;
    return true;
}
/* The bytes of an edge that has them open. Cheaper than pricing it. */
void sherd__edge_total(sherd__search_edge *edge, const sherd__field *field, int a, int b);

/*
 * Price an edge that was looked at; *allowed is false for a step that the options rule out. A
 * result above `enough` picoseconds (0 = none) may be less than the true time.
 */
sherd_status sherd__edge_price(sherd__search_edge *out, bool *allowed, const sherd__field *field,
                               int a, int b, int64_t enough);
/* Keep what an edge costs over all ranks; false: there is no room. */
bool sherd__edge_note(sherd__field *field, int a, int b, bool allowed, sherd__cost cost);
/* Price an edge over all ranks, and keep the result; *kept is false if there is no room. */
sherd_status sherd__edge_price_all(sherd__search_edge *out, bool *kept, sherd__field *field, int a,
                                   int b);
/* Whether the options allow a step that is priced already. */
bool sherd__step_allowed(const sherd__problem *problem, const sherd__priced *step);

/* ---- look.c: the same under the price of links ----------------------------------------------- */

/* What an edge takes at least under links: exact for most even collectives and all-to-alls. */
void sherd__links_look(sherd__search_edge *out, const sherd__field *field, int a, int b,
                       int64_t enough);

/* ---- glance.c: less, and sooner -------------------------------------------------------------- */

/* Set what follows from the links alone. */
void sherd__glances_links(sherd__field *field);

/* Steps from one node to all others, or from all others to it. */
typedef struct sherd__glances {
    const sherd__field *field;
    const sherd__node *node;
    bool from, none;                         /* it is the source; nothing can be said */
    const sherd__shift *row[SHERD_MAX_DIMS]; /* of its ways and all others, `stride` apart */
    int stride[SHERD_MAX_DIMS];
    int64_t longest[SHERD_MAX_DIMS];
} sherd__glances;

void sherd__glances_start(sherd__glances *out, const sherd__field *field, int node, bool from);
/*
 * What a step takes at least, picoseconds, or 0. A result above `enough` may be less than the best
 * that can be said.
 */
int64_t sherd__glance(const sherd__glances *g, int other, int64_t enough);

/* ---- bound.c: ways of any number of steps ---------------------------------------------------- */

/* Set what follows from the links alone. */
void sherd__bound_start(sherd__field *field);

/*
 * A lower bound of any path from one node to another, under the price of links. A result above
 * `enough` picoseconds (SHERD__MOST = none) may be less than the best bound.
 */
sherd__cost sherd__bound_between(const sherd__field *field, int from, int to, int64_t enough);
/* Fill `behind` and `ahead` of all nodes. */
void sherd__bound_fill(sherd__field *field);

/* How many nodes the bounds allow. */
int sherd__bound_count(const sherd__field *field, sherd__cost limit);
/* Keep those `count` of all nodes that have the least bounds. */
void sherd__bound_keep(sherd__field *field, int count);
/* Of the kept nodes, drop all through which `left` allows no plan. */
void sherd__bound_drop(sherd__field *field, sherd__cost limit);

/* ---- left.c: what is left at least, by all looks --------------------------------------------- */

typedef struct sherd__route {
    int stops, stop[SHERD__STOPS]; /* nodes, first = the source; 0 = none was found */
    sherd__cost cost;
} sherd__route;

/*
 * Set `left` of all nodes to a lower bound, by looks, of the cost from there to the goal; exact in
 * looks where it is less than the source's and a plan of `limit` may go through. `route` gets a
 * route of that cost from the source. ENOMEM.
 */
sherd_status sherd__left_find(sherd__route *route, sherd__field *field, sherd__cost limit);

/* ---- least.c: what any plan costs ------------------------------------------------------------ */

/*
 * Fill field->floor.left, from the smallest boxes of the nodes, or of any shards if there are no
 * nodes.
 */
void sherd__least_find(sherd__field *field);

/*
 * Under the arena's price and with a reduction: a lower bound of any plan that is better than the
 * direct step.
 */
int64_t sherd__least_beside_direct(const sherd__field *field);

/* ---- effort.c -------------------------------------------------------------------------------- */

extern const sherd__effort sherd__effort_usual;

/* ---- exact.c: the planner -------------------------------------------------------------------- */

/* As sherd__exact_find (planners.h), with limits of one's own. */
sherd_status sherd__exact_find_within(sherd__answer *out, const sherd__problem *problem,
                                      const sherd__effort *effort);

/* ---- search.c -------------------------------------------------------------------------------- */

/*
 * The cheapest route of at most `limit`; ties are broken by the state keys along the way. Rough:
 * looks are taken for prices where they are sure of the time, and ties may fall either way.
 * *complete: nothing was left out.
 */
sherd_status sherd__search_run(sherd__route *out, bool *complete, sherd__field *field,
                               sherd__cost limit, bool rough);

#endif
