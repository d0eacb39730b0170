/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clocks of two machines: what a meeting says of them holds whoever comes late, and what sixteen
 * say is near. The other rank is made up: it enters and leaves when it likes, by a clock that is
 * off by hours.
 */
#define CHECK_PURE
#include "check.h"
#include "world/inside.h"
#include "launch/clocks.h"

typedef struct other {
    int64_t behind; /* its clock is so much behind ours */
    uint64_t dice;
    int64_t exit; /* of the last meeting, by its own clock */
    int64_t slow; /* how late it may be, ns */
    int meetings, fails_at;
} other;

static int64_t draw(other *o)
{
    o->dice = o->dice * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((o->dice >> 33) % (uint64_t)o->slow);
}

static void linger(int64_t ns)
{
    int64_t end = sherd__now() + ns;

    while (sherd__now() < end)
        ;
}

/* The other one enters before us or after, and leaves before us or after. */
static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    other *o = self;
    sherd__clock_meeting *out = all;

    if (++o->meetings == o->fails_at)
        return false;
    CHECK_EQ(bytes, sizeof *out);
    out[0].exit = o->exit;
    out[1] = *(const sherd__clock_meeting *)mine;
    int64_t late = draw(o) - o->slow / 2;
    if (late > 0)
        linger(late); /* we wait for it */
    out[0].entry = sherd__now() - o->behind - (late < 0 ? -late : 0);
    o->exit = sherd__now() - o->behind + draw(o);
    linger(draw(o));
    return true;
}

static void a_clock_that_is_off_is_found(void)
{
    static const int64_t offs[] = {0, 1, -5000000000, INT64_C(86400000000000),
                                   -INT64_C(7200000000000)};

    for (int i = 0; i < LEN(offs); i++)
        for (int64_t slow = 1000; slow <= 1000000; slow *= 10) {
            other o = {.behind = offs[i], .dice = (uint64_t)i, .slow = slow};
            sherd_carrier carrier = {.rank = 1, .ranks = 2, .self = &o, .gather = gather};
            int64_t ahead = 0;
            CHECK(sherd__clocks_compare(&ahead, &carrier));
            CHECK(ahead - offs[i] <= 20000000 &&
                  offs[i] - ahead <= 20000000); /* a core may be taken away */
        }
}

/* Whatever the delays are: the truth lies between the bounds. */
static void the_truth_lies_between_the_bounds(void)
{
    sherd__clock_bounds b = {INT64_MIN, INT64_MAX};
    const sherd__clock_meeting mine[] = {{1000, 1900}, {3000, 3100}},
                               first[] = {{400, 700}, {1850, 2010}};

    sherd__clocks_bound(&b, &mine[0], &first[0]);
    CHECK_EQ(b.least, 300);
    CHECK_EQ(b.most, 1500);
    sherd__clocks_bound(&b, &mine[1], &first[1]);
    CHECK_EQ(b.least, 990);
    CHECK_EQ(b.most, 1250);
}

static void who_is_not_reached_is_said(void)
{
    other o = {.slow = 1000, .fails_at = 3};
    sherd_carrier carrier = {.rank = 1, .ranks = 2, .self = &o, .gather = gather};
    int64_t ahead;

    CHECK(!sherd__clocks_compare(&ahead, &carrier));
    CHECK_EQ(o.meetings, 3);
}

static const check_test tests[] = {
    {TEST(a_clock_that_is_off_is_found)},
    {TEST(the_truth_lies_between_the_bounds)},
    {TEST(who_is_not_reached_is_said)},
};
CHECK_MAIN(tests)
