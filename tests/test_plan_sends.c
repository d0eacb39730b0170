/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a step sends is what its receivers pull: for every rank, each in a space of its own as in a
 * world, both lists name the same boxes in the same order, and packing them brings each element to
 * where its pull looks for it.
 */
#define CHECK_PURE
#include "check.h"
#include "paper.h"
#include "plan/sends.h"
#include "search/plans.h"

enum { MOST_RANKS = 8, MOST_ELEMENTS = 4096 };

typedef struct place {
    paper p;
    const sherd_plan *plan;
} place;

/* By the arena's price, or where only bytes cost: then small sums are sliced too. */
static void open_place(place *at, int ranks, int rank, const char *const *move, bool by_bytes)
{
    static const sherd_price price = {
        .kind = SHERD_PRICE_LINKS, .links = 1, .link = {{"*", 0, 1000, 0, 0}}, .straight = true};
    const sherd_plan_options options = {.price = by_bytes ? &price : NULL};

    paper_open(&at->p, ranks);
    at->p.space.rank = rank;
    CHECK_OK(sherd__plan_find(&at->plan, paper_layout(&at->p, move[0]),
                              paper_layout(&at->p, move[1]), 8, &options));
}

static int64_t elements(const int64_t *size, int ndim)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        n *= size[d];
    return n;
}

static void close_place(place *at)
{
    sherd__plans_clear(&at->p.space);
    paper_close(&at->p);
}

/* Packed in parts of any length it is the same. */
static void check_parts(const sherd__packing *what, const int64_t *packed)
{
    static int64_t part[MOST_ELEMENTS];
    int64_t n = what->list->elements, wrong = 0;

    for (int64_t length = 1; length < n; length += 1 + length / 2)
        for (int64_t at = 0; at < n; at += length) {
            int64_t end = at + length < n ? at + length : n;
            sherd__sends_pack(what, at, end, part);
            wrong += memcmp(part, packed + at, (size_t)(end - at) * sizeof *part) != 0;
        }
    CHECK_EQ(wrong, 0);
}

/* Element i of a rank's source, row-major, holds i; what is packed is found where `place` says. */
static void check_pair(const place *sender, const place *receiver, int step)
{
    static int64_t source[MOST_ELEMENTS], packed[MOST_ELEMENTS];
    int from = sender->p.space.rank, to = receiver->p.space.rank;
    const sherd__schedule *theirs = receiver->plan->mine[step], *mine = sender->plan->mine[step];
    const sherd__sends *out = sherd__sends_of(sender->plan, step);
    const sherd__sends *in = sherd__sends_of(receiver->plan, step);
    if (!CHECK(out && in))
        return;
    const sherd__parcel_list *list = sherd__sends_out(out, to);
    sherd__source whole = {source, {0}};

    CHECK_EQ(list ? list->elements : 0, sherd__sends_in(in, from));
    if (!list)
        return;
    sherd__row_major(mine->ndim, mine->source_size, whole.stride);
    for (int64_t i = 0; i < MOST_ELEMENTS; i++)
        source[i] = i;
    const sherd__packing what = {out, list, mine->ndim, 8, &whole};
    sherd__sends_pack(&what, 0, list->elements, packed);
    check_parts(&what, packed);
    const int64_t *direct = sherd__sends_direct(out, list, mine->ndim, 8, &whole);
    if (direct)
        CHECK(memcmp(direct, packed, (size_t)list->elements * 8) == 0);
    for (int i = 0; i < theirs->regions; i++)
        for (int k = 0; k < theirs->region[i].count; k++) {
            const sherd__pull *pull = &theirs->pull[theirs->region[i].first + k];
            int64_t first = 0, n = elements(theirs->region[i].size, theirs->ndim);
            for (int d = 0; d < theirs->ndim; d++)
                first += pull->offset[d] * whole.stride[d];
            if (pull->rank == from && n)
                CHECK_EQ(packed[in->place[theirs->region[i].first + k]], first);
        }
}

static void both_sides_name_the_same_boxes(void)
{
    static const char *const moves[][2] = {
        {"[8(x),4] on (x=2)", "[8,4(x)] on (x=2)"},
        {"[7(x),5] on (x=3)", "[7,5(x)] on (x=3)"},
        {"[7(x),5] on (x=3)", "[7(x:1,5,1),5] on (x=3)"},
        {"[5(x),3] on (x=4)", "[5,3] on (x=4)"},
        {"[6,5] P(sum:x) on (x=4)", "[6(x),5] on (x=4)"},
        {"[6,5] P(sum:x) on (x=4)", "[6,5] on (x=4)"},
        {"[40,50] P(sum:x) on (x=4)", "[40,50] on (x=4)"},
        {"[28,28] P(sum:x) on (x=8)", "[28,28] on (x=8)"}, /* the last of slices are empty */
        {"[5] P(sum:x) on (x=3)", "[5] on (x=3)"},
        {"[8(x),6(y)] on (x=2,y=4)", "[8(y),6(x)] on (x=2,y=4)"},
        {"[8(x,y),6] on (x=2,y=2)", "[8(y,x),6] on (x=2,y=2)"},
        {"[6(x),4,5] on (x=3)", "[6,4,5(x)] on (x=3)"},
        {"[3,4(x),2,5] on (x=2)", "[3(x),4,2,5] on (x=2)"},
        {"[3(x),0] on (x=2)", "[3,0] on (x=2)"},
    };
    place at[MOST_RANKS];

    for (int m = 0; m < 2 * LEN(moves); m++) {
        const char *const *move = moves[m / 2];
        int ranks = 2;
        paper p;
        paper_open(&p, MOST_RANKS);
        ranks = (int)sherd_mesh_ranks(sherd_layout_mesh(paper_layout(&p, move[0])));
        paper_close(&p);
        for (int r = 0; r < ranks; r++)
            open_place(&at[r], ranks, r, move, m % 2);
        for (int step = 0; step < at[0].plan->steps; step++)
            for (int a = 0; a < ranks; a++)
                for (int b = 0; b < ranks; b++)
                    if (a != b)
                        check_pair(&at[a], &at[b], step);
        for (int r = 0; r < ranks; r++)
            close_place(&at[r]);
    }
}

/* A failed allocation leaves nothing behind, and the next attempt goes through. */
static void any_allocation_may_fail(void)
{
    place at;

    open_place(&at, 4, 1, (const char *const[]){"[8(x),4] on (x=4)", "[8,4(x)] on (x=4)"}, false);
    for (int n = 1; n < 100; n++) {
        at.p.heap.allocations = 0;
        at.p.heap.fail_at = n;
        bool good = sherd__sends_of(at.plan, 0) != NULL;
        at.p.heap.fail_at = 0;
        if (good)
            break;
        CHECK(n < 99);
    }
    CHECK_EQ(sherd__sends_of(at.plan, 0)->outs, 3);
    close_place(&at);
}

static const check_test tests[] = {
    {TEST(both_sides_name_the_same_boxes)},
    {TEST(any_allocation_may_fail)},
};
CHECK_MAIN(tests)
