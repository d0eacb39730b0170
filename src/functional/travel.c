/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows on their way, see route.h. Each rank sorts its shard numbers, fills a list for each other
 * shard (ops/lists.h), and all lists go in one call. Costs a pass over the numbers, and a copy of
 * the rows that leave.
 */
#include "route.h"
#include "rows.h"
#include "ops/lists.h"

#include <string.h>

#include "base/num.h"
#include "kernels/pick.h"

/* Rows are at home where the route was made, and away where it leads. */
typedef struct trip {
    sherd_call *call;
    sherd__line line;
    bool back;
    const int64_t *rows; /* elements of a row on each rank of the line */
    int64_t row;         /* and on this one */
    size_t bytes;        /* of an element */
    const int64_t *count;
    int64_t
        *begin; /* [shards + 1] at home, in the order of shards: where the rows for each begin */
    int32_t *order; /* and where each of these rows is */
    int64_t *away;  /* [shards + 1] away: where the rows of each shard begin */
} trip;

/* How many rows are at home in one shard and away in another. */
static int64_t between(const trip *t, int64_t home, int64_t away)
{
    return t->count[home * t->line.shards + away];
}

/* What a rank has for the one r places behind it. */
static int64_t sent_at(const void *what, int64_t rank, int64_t r)
{
    const trip *t = what;
    int64_t from = rank % t->line.shards, to = sherd__shard_behind(&t->line, from, r);

    return (t->back ? between(t, to, from) : between(t, from, to)) * t->rows[rank];
}

static bool find_bounds(trip *t)
{
    int64_t shards = t->line.shards, mine = t->line.mine;

    t->begin = sherd_call_scratch(t->call, (shards + 1) * (int64_t)sizeof *t->begin);
    t->away = sherd_call_scratch(t->call, (shards + 1) * (int64_t)sizeof *t->away);
    if (!t->begin || !t->away)
        return false;
    t->begin[0] = t->away[0] = 0;
    for (int64_t s = 0; s < shards; s++) {
        t->begin[s + 1] = t->begin[s] + between(t, mine, s);
        t->away[s + 1] = t->away[s] + between(t, s, mine);
    }
    return true;
}

/* Whether the numbers are those that were counted. */
static bool as_counted(const trip *t, const int32_t *shard, int64_t n, int64_t *seen)
{
    bool good = t->begin[t->line.shards] == n;

    memset(seen, 0, sherd__bytes(t->line.shards) * sizeof *seen);
    for (int64_t i = 0; i < n && good; i++) {
        good = shard[i] >= 0 && shard[i] < t->line.shards;
        if (good)
            seen[shard[i]]++;
    }
    for (int64_t s = 0; s < t->line.shards && good; s++)
        good = seen[s] == between(t, t->line.mine, s);
    return good;
}

static bool sort_home(trip *t)
{
    const int32_t *shard = t->call->from[SHERD__ROUTE_SHARD];
    int64_t n = t->call->in[SHERD__ROUTE_SHARD]->count;

    t->order = sherd_call_scratch(t->call, (n + 1) * (int64_t)sizeof *t->order);
    int64_t *next = sherd_call_scratch(t->call, t->line.shards * (int64_t)sizeof *next);
    if (!t->order || !next || sherd__is_dry(t->call->world))
        return t->order && next;
    if (!as_counted(t, shard, n, next))
        return sherd_call_fail(
            t->call, SHERD_EINVAL,
            "shard numbers were written after their route was made: make another");
    memcpy(next, t->begin, sherd__bytes(t->line.shards) * sizeof *next);
    for (int64_t i = 0; i < n; i++)
        t->order[next[shard[i]]++] = (int32_t)i;
    return true;
}

/* The rows at home that are away in another shard. */
static sherd__pick picked(const trip *t, int64_t other)
{
    int64_t n = t->begin[other + 1] - t->begin[other];

    return (sherd__pick){1, n, t->row, INT32_MAX, 0, t->order + t->begin[other], true};
}

/* The rows away that have come from another shard: where, and how long, in bytes. */
static size_t away_at(const trip *t, int64_t other)
{
    return sherd__bytes(t->away[other] * t->row) * t->bytes;
}

static size_t away_bytes(const trip *t, int64_t other)
{
    return away_at(t, other + 1) - away_at(t, other);
}

/* Rows for another shard into a list, or into the result. */
static void take(const trip *t, int64_t other, void *list)
{
    const sherd__pick home = picked(t, other);
    const char *from = t->call->from[SHERD__ROUTE_ROWS];

    if (t->back)
        memcpy(list, from + away_at(t, other), away_bytes(t, other));
    else
        sherd__gather(t->bytes, &home, list, from);
}

/* Rows from another shard out of a list, or of the operand. */
static void put(const trip *t, int64_t other, const void *list)
{
    const sherd__pick home = picked(t, other);
    char *to = t->call->to[0];

    if (t->back)
        sherd__scatter(t->bytes, &home, to, list, NULL);
    else
        memcpy(to + away_at(t, other), list, away_bytes(t, other));
}

static void take_own(const trip *t)
{
    int64_t mine = t->line.mine;

    if (between(t, mine, mine) * t->row == 0 || sherd__is_dry(t->call->world))
        return;
    if (t->back)
        put(t, mine, (const char *)t->call->from[SHERD__ROUTE_ROWS] + away_at(t, mine));
    else
        take(t, mine, (char *)t->call->to[0] + away_at(t, mine));
}

static bool fill_list(const void *what, sherd_tensor *list, int64_t r)
{
    const trip *t = what;
    void *to = sherd__fresh(list);
    int64_t other = sherd__shard_behind(&t->line, t->line.mine, r);

    if (to && sent_at(t, t->line.me, r) && !sherd__is_dry(t->call->world))
        take(t, other, to);
    return to || !list->count;
}

static bool empty_list(const void *what, const sherd__windowed *list, int64_t r)
{
    const trip *t = what;
    bool good = true;
    const void *data = sherd__list_came(list, &good);

    if (data && !sherd__is_dry(t->call->world))
        put(t, sherd__shard_behind(&t->line, t->line.mine, -r), data);
    return good;
}

/* Whether a row goes to another shard than its own, anywhere. */
static bool any_leaves(const trip *t)
{
    bool any = false;

    for (int64_t i = 0; i < t->line.shards * t->line.shards && !any; i++)
        any = t->count[i] != 0 && i % (t->line.shards + 1) != 0;
    return any;
}

/* This rank has all rows. */
static bool stay(sherd_call *call)
{
    size_t bytes = sherd__bytes(call->in[SHERD__ROUTE_ROWS]->count) *
                   sherd_dtype_bytes(call->in[SHERD__ROUTE_ROWS]->dtype);

    if (bytes && !sherd__is_dry(call->world))
        memcpy(call->to[0], call->from[SHERD__ROUTE_ROWS], bytes);
    return true;
}

bool sherd__travel(sherd_call *call, bool back)
{
    const sherd_tensor *x = call->in[SHERD__ROUTE_ROWS];
    const sherd_layout *l = x->layout;
    trip t = {.call = call,
              .back = back,
              .row = sherd__local_count(x, 1, x->ndim),
              .bytes = sherd_dtype_bytes(x->dtype)};

    if (!l)
        return stay(call);
    if (!sherd__line_up(&t.line, call, l->spec.mesh, &l->spec.dim[0]))
        return true;
    if (t.line.shards == 1)
        return stay(call);
    t.count = sherd__counts_of(call->in[SHERD__ROUTE_COUNT]);
    t.rows = sherd__line_rows(&t.line, l);
    if (!t.count || !t.rows || !find_bounds(&t) || !sort_home(&t))
        return false;
    take_own(&t);
    if (!any_leaves(&t))
        return true;
    sherd__open_in(call);
    return sherd__lists_send(&(sherd__lists){&t.line, false, sent_at, &t, x->dtype, false},
                             fill_list, empty_list);
}
