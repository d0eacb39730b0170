/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Little programs of calls, writes and checks, one per rank, as the exhaustive model of the
 * protocol runs them: a call names the ranks that it reads from and that read from it, so that
 * every pattern can be made. Each run checks every value that arrives against what the source must
 * have held when its rank made that call.
 */
#ifndef SHERD_WORLD_PROGRAMS_H
#define SHERD_WORLD_PROGRAMS_H

#include "check.h"
#include "plan/sends.h"
#include "world/world.h"

/* Parts are read where they lie; those of programs of FEW fit into a record, so that nobody waits
 * for their readers. */
enum {
    MAX_RANKS = 3,
    GROUPS = 4,
    STORAGES = 8,
    MAX_OPS = 64,
    PART = 16,
    FEW = 4,
    WHOLE = PART * MAX_RANKS
};

typedef enum op_kind { CALL, BEGIN, END, WALL, BEGIN_WALL, WRITE, ALARM, PAUSE, MEET } op_kind;

enum { MUST_FAIL = -1 };

typedef struct op {
    op_kind kind;
    int group, src, dst;
    unsigned reads, readers; /* bits of ranks; not read by WALL: all write to all */
    int id; /* what the call is: equal on all ranks, different from all other calls of the group */
    int handle; /* of BEGIN and END */
} op;

typedef struct program {
    const char *name;
    int ranks, groups;
    bool few;
    unsigned members[GROUPS];
    int count[MAX_RANKS];
    op ops[MAX_RANKS][MAX_OPS];
} program;

/* A plan of one step, made by hand. */
typedef struct hand_made {
    struct sherd_plan plan;
    sherd_step step;
    sherd__schedule schedule, *mine;
    sherd__region region[MAX_RANKS];
    sherd__pull pull[MAX_RANKS];
    int others[MAX_RANKS], readers[MAX_RANKS];
    /* For ranks that share no memory: who is sent what; each sends each one box. */
    sherd__sends sends, *all_sends;
    sherd__parcel_list out[MAX_RANKS], in[MAX_RANKS];
    sherd__sent_box box[MAX_RANKS];
    int64_t place[MAX_RANKS];
} hand_made;

typedef struct stage {
    sherd_world *world;
    int me;
    const sherd_mesh *mesh[GROUPS];
    const sherd_layout *layout[GROUPS];
    sherd__block *block[STORAGES];
    int version[STORAGES];
    hand_made made[MAX_OPS];
    uint64_t dice;
} stage;

static double value_of(int rank, int storage, int version, int i)
{
    return (double)(((rank * STORAGES + storage) * 64 + version) * 64 + i);
}

static int list_of(unsigned ranks, int *list)
{
    int count = 0;

    for (int q = 0; q < MAX_RANKS; q++)
        if (ranks >> q & 1)
            list[count++] = q;
    return count;
}

static void set_region(hand_made *h, int64_t offset, int64_t size, int first, int count)
{
    sherd__region *region = &h->region[h->schedule.regions++];

    *region = (sherd__region){.offset = {offset}, .size = {size}, .first = first, .count = count};
}

static int part_of(const program *p)
{
    return p->few ? FEW : PART;
}

/* Reads a part of each source into its place, its own part too; if it reads nothing, it copies
 * nothing. */
static void make_exchange(hand_made *h, int me, const op *o, int part)
{
    sherd__schedule *s = &h->schedule;
    unsigned sources = o->reads ? o->reads | 1u << me : 0;

    s->source_size[0] = part;
    s->target_size[0] = WHOLE;
    s->sources = list_of(o->reads, h->others);
    s->readers = list_of(o->readers, h->readers);
    for (int q = 0; q < MAX_RANKS; q++)
        if (sources >> q & 1) {
            h->pull[s->pulls] = (sherd__pull){.rank = q};
            set_region(h, q * PART, part, s->pulls++, 1);
        }
}

/* Adds its slice of all members' sources, and writes it to all. */
static void make_wall(hand_made *h, int me, unsigned members)
{
    sherd__schedule *s = &h->schedule;
    int all[MAX_RANKS], count = list_of(members, all), slice = WHOLE / count, index = 0;

    s->source_size[0] = s->target_size[0] = WHOLE;
    s->sources = s->readers = s->sharers = list_of(members & ~(1u << me), h->others);
    list_of(members & ~(1u << me), h->readers);
    for (int i = 0; i < count; i++) {
        index = all[i] == me ? i : index;
        h->pull[i].rank = all[i];
    }
    for (int i = 0; i < count; i++)
        h->pull[i].offset[0] = index * slice;
    s->pulls = count;
    set_region(h, index * slice, slice, 0, count);
}

static void add_sent(hand_made *h, int rank, int64_t offset, int64_t size)
{
    sherd__sends *s = &h->sends;

    h->box[s->outs] = (sherd__sent_box){.offset = {offset}, .size = {size}};
    h->out[s->outs] = (sherd__parcel_list){rank, s->outs, 1, size};
    s->outs++;
}

/* The same from the senders' side. */
static void make_sends(hand_made *h, bool wall, unsigned members)
{
    const sherd__schedule *s = &h->schedule;
    int all[MAX_RANKS], count = list_of(members, all), slice = WHOLE / count;

    h->sends = (sherd__sends){.out = h->out, .in = h->in, .box = h->box, .place = h->place};
    for (int i = 0; i < s->sources; i++)
        h->in[h->sends.ins++] = (sherd__parcel_list){s->source[i], 0, 0, wall ? slice : PART};
    for (int i = 0; i < s->readers; i++)
        for (int k = 0; k < count; k++)
            if (all[k] == s->reader[i])
                add_sent(h, all[k], wall ? k * slice : 0, wall ? slice : PART);
    h->all_sends = &h->sends;
    h->plan.sends = &h->all_sends;
}

static bool is_wall(const op *o)
{
    return o->kind == WALL || o->kind == BEGIN_WALL;
}

static bool is_call(const op *o)
{
    return o->kind == CALL || o->kind == BEGIN || is_wall(o);
}

static void make_plan(stage *st, hand_made *h, const program *p, const op *o)
{
    memset(h, 0, sizeof *h);
    h->schedule.ndim = 1;
    h->schedule.divisor = 1;
    if (is_wall(o))
        make_wall(h, st->me, p->members[o->group]);
    else
        make_exchange(h, st->me, o, part_of(p));
    h->schedule.region = h->region;
    h->schedule.pull = h->pull;
    h->schedule.source = h->schedule.sharer = h->others;
    h->schedule.reader = h->readers;
    sherd__schedule_lay(&h->schedule);
    h->mine = &h->schedule;
    make_sends(h, is_wall(o), p->members[o->group]);
    h->step.kind = is_wall(o) ? SHERD_STEP_ALL_REDUCE : SHERD_STEP_EXCHANGE;
    h->step.sliced = is_wall(o);
    h->step.axes = 1;
    h->step.from = h->step.to = st->layout[o->group];
    h->plan.refs = 1;
    h->plan.space = sherd__world_space(st->world);
    h->plan.from = h->plan.to = st->layout[o->group];
    h->plan.element_bytes = 8;
    h->plan.steps = 1;
    h->plan.step = &h->step;
    h->plan.mine = &h->mine;
    h->plan.fingerprint = (uint64_t)o->id + 1000;
    snprintf(h->plan.what, sizeof h->plan.what, "op %d", o->id);
}

/* ---- setting the stage ----------------------------------------------------------------------- */

static void fill_block(stage *st, int storage)
{
    double *x = sherd__block_data(st->block[storage]);

    for (int i = 0; i < WHOLE; i++)
        x[i] = value_of(st->me, storage, st->version[storage], i);
}

static void set_stage(stage *st, sherd_world *world, const program *p)
{
    memset(st, 0, sizeof *st);
    st->world = world;
    st->me = sherd_world_rank(world);
    st->dice = (uint64_t)st->me * 7919 + 1;
    for (int g = 0; g < p->groups; g++) {
        int ranks[MAX_RANKS], count = list_of(p->members[g], ranks);
        sherd_placement all = sherd_replicate();
        char name[16];
        snprintf(name, sizeof name, "g%d", g);
        const char *names = name;
        CHECK_OK(sherd_mesh_create(&st->mesh[g], world, 1, (int64_t[]){count}, &names, ranks));
        CHECK_OK(
            sherd_layout_create(&st->layout[g], st->mesh[g], 1, (int64_t[]){WHOLE}, &all, NULL));
    }
    for (int i = 0; i < STORAGES; i++) {
        st->block[i] = sherd__block_take(world, WHOLE * 8, true);
        if (CHECK(st->block[i] != NULL))
            fill_block(st, i);
    }
}

static void clear_stage(stage *st)
{
    for (int i = 0; i < STORAGES; i++)
        sherd__block_give(st->world, st->block[i]);
}

/* ---- running --------------------------------------------------------------------------------- */

static void some_time(stage *st)
{
    int turns = roll(&st->dice, 8) ? 0 : roll(&st->dice, 3000);

    if (roll(&st->dice, 200) == 0)
        nanosleep(&(struct timespec){0, 300000}, NULL);
    for (volatile int i = 0; i < turns; i++)
        ;
}

/* The version of a rank's source at its call `id` of a group; -1 if it makes none. */
static int version_at(const program *p, int rank, int group, int id, int *storage)
{
    int version[STORAGES] = {0};

    for (int i = 0; i < p->count[rank]; i++) {
        const op *o = &p->ops[rank][i];
        if (o->kind == WRITE)
            version[o->src]++;
        if (is_call(o) && o->group == group && o->id == id) {
            *storage = o->src;
            return version[o->src];
        }
    }
    return -1;
}

static int wrong_in(const stage *st, const program *p, const op *o)
{
    const double *x = sherd__block_data(st->block[o->dst]);
    int wrong = 0, storage = 0;

    for (int i = 0; i < WHOLE && is_wall(o); i++) {
        double sum = 0;
        for (int q = 0; q < p->ranks; q++)
            if (p->members[o->group] >> q & 1) {
                int version = version_at(p, q, o->group, o->id, &storage);
                sum += value_of(q, storage, version, i);
            }
        wrong += x[i] != sum;
    }
    for (int q = 0; q < p->ranks && !is_wall(o); q++)
        if (o->reads >> q & 1) {
            int version = version_at(p, q, o->group, o->id, &storage);
            for (int i = 0; i < part_of(p); i++)
                wrong += x[q * PART + i] != value_of(q, storage, version, i);
        }
    return wrong;
}

static bool run_call(stage *st, const program *p, int at)
{
    static const int64_t stride = 1;
    const op *o = &p->ops[st->me][at];
    hand_made *h = &st->made[at];
    bool begin = o->kind == BEGIN || o->kind == BEGIN_WALL;

    make_plan(st, h, p, o);
    sherd__move move = {.plan = &h->plan,
                        .dtype = SHERD_F64,
                        .source = st->block[o->src],
                        .source_stride = &stride,
                        .result = st->block[o->dst]};
    if (!sherd__call(st->world, "program", &move, 1, begin))
        return false;
    if (!begin)
        CHECK_EQ(wrong_in(st, p, o), 0);
    return true;
}

static bool run_end(stage *st, const program *p, int at)
{
    const op *begun = NULL;

    for (int i = 0; i < at; i++)
        if ((p->ops[st->me][i].kind == BEGIN || p->ops[st->me][i].kind == BEGIN_WALL) &&
            p->ops[st->me][i].handle == p->ops[st->me][at].handle)
            begun = &p->ops[st->me][i];
    if (!begun || !sherd__block_readable(st->world, st->block[begun->dst]))
        return false;
    CHECK_EQ(wrong_in(st, p, begun), 0);
    return true;
}

static bool run_write(stage *st, const op *o)
{
    if (!sherd__block_writable(st->world, st->block[o->src]))
        return false;
    st->version[o->src]++;
    fill_block(st, o->src);
    return true;
}

/*
 * Run this rank's part up to the next MEET, from *at on; what follows a failure is skipped, as the
 * rooms above do. With `fail_at`, op number `fail_at` of this rank raises the alarm instead.
 * Returns what the check said.
 */
static sherd_status run_to_check(stage *st, const program *p, int *at, int fail_at)
{
    bool good = true;

    for (; *at < p->count[st->me] && p->ops[st->me][*at].kind != MEET; (*at)++) {
        const op *o = &p->ops[st->me][*at];
        check_at(__LINE__);
        some_time(st);
        if (o->kind == PAUSE)
            nanosleep(&(struct timespec){0, 3000000}, NULL);
        if (!good || o->kind == PAUSE)
            continue;
        if (*at == fail_at || o->kind == ALARM) {
            sherd_world_fail(st->world, SHERD_ENOTSUP, "told to fail");
            good = false;
        } else if (o->kind == END) {
            good = run_end(st, p, *at);
        } else if (o->kind == WRITE) {
            good = run_write(st, o);
        } else {
            good = run_call(st, p, *at);
        }
        if (o->handle == MUST_FAIL)
            CHECK(!good);
    }
    (*at)++;
    return sherd_world_check(st->world);
}

/* Storages as at the start; spoiled ones are given up. */
static void renew(stage *st)
{
    memset(st->version, 0, sizeof st->version);
    for (int i = 0; i < STORAGES; i++) {
        sherd__block_give(st->world, st->block[i]);
        st->block[i] = sherd__block_take(st->world, WHOLE * 8, true);
        if (CHECK(st->block[i] != NULL))
            fill_block(st, i);
    }
}

/* After any failure: one exchange and one all-reduce among all ranks must go well. */
static void works_again(stage *st, const program *p)
{
    program proof = {.ranks = p->ranks, .groups = p->groups, .few = p->few};
    unsigned all = (1u << p->ranks) - 1;
    int whole = -1;

    for (int g = 0; g < p->groups; g++) {
        proof.members[g] = p->members[g];
        whole = p->members[g] == all ? g : whole;
    }
    renew(st);
    for (int r = 0; r < p->ranks && whole >= 0; r++) {
        unsigned others = all & ~(1u << r);
        proof.ops[r][proof.count[r]++] = (op){CALL, whole, 0, 2, others, others, 900, 0};
        proof.ops[r][proof.count[r]++] = (op){WRITE, 0, 0, 0, 0, 0, 0, 0};
        proof.ops[r][proof.count[r]++] = (op){WALL, whole, 0, 3, 0, 0, 901, 0};
        proof.ops[r][proof.count[r]++] = (op){WRITE, 0, 3, 0, 0, 0, 0, 0};
    }
    int at = 0;
    CHECK_OK(run_to_check(st, &proof, &at, -1));
}

/* ---- writing them ---------------------------------------------------------------------------- */

static inline op call(int group, int src, int dst, unsigned reads, unsigned readers, int id)
{
    return (op){CALL, group, src, dst, reads, readers, id, 0};
}
static inline op begin(int handle, int group, int src, int dst, unsigned reads, unsigned readers,
                       int id)
{
    return (op){BEGIN, group, src, dst, reads, readers, id, handle};
}
static inline op end(int handle)
{
    return (op){END, 0, 0, 0, 0, 0, 0, handle};
}
static inline op wall(int group, int src, int dst, int id)
{
    return (op){WALL, group, src, dst, 0, 0, id, 0};
}
static inline op begin_wall(int handle, int group, int src, int dst, int id)
{
    return (op){BEGIN_WALL, group, src, dst, 0, 0, id, handle};
}
static inline op write_to(int storage)
{
    return (op){WRITE, 0, storage, 0, 0, 0, 0, 0};
}
static inline op pause_now(void)
{
    return (op){PAUSE, 0, 0, 0, 0, 0, 0, 0};
}
/* The same op, which the alarm must end. */
static inline op must_fail(op o)
{
    o.handle = MUST_FAIL;
    return o;
}
static inline op alarm_now(void)
{
    return (op){ALARM, 0, 0, 0, 0, 0, 0, 0};
}
static inline op meet(void)
{
    return (op){MEET, 0, 0, 0, 0, 0, 0, 0};
}

static inline void add(program *p, int rank, op o)
{
    p->ops[rank][p->count[rank]++] = o;
}

#define ADD(p, rank, ...)                      \
    do {                                       \
        const op list[] = {__VA_ARGS__};       \
        for (int at = 0; at < LEN(list); at++) \
            add(p, rank, list[at]);            \
    } while (0)

static inline program of(int ranks, int groups, unsigned a, unsigned b, unsigned c)
{
    return (program){.ranks = ranks, .groups = groups, .members = {a, b, c, (1u << ranks) - 1}};
}

/* Groups of three ranks, and lastly that of all (for works_again). */
static inline program of3(void)
{
    return of(3, 4, 3, 5, 6);
}
static inline program of2(void)
{
    return of(2, 4, 3, 3, 3);
}

static inline void clean(program *p)
{
    for (int r = 0; r < p->ranks; r++)
        add(p, r, meet());
}

/* ---- what must come of them ------------------------------------------------------------------ */

/* Runs a program with one check; it must end with `wanted` (1: OK or EDIFFER) and in time. */
static void expect(sherd_world *world, const program *p, int turns, int wanted, int fail_at)
{
    static _Thread_local stage st;

    set_stage(&st, world, p);
    for (int turn = 0; turn < turns; turn++) {
        int at = 0;
        renew(&st);
        double start = seconds();
        sherd_status status = run_to_check(&st, p, &at, fail_at);
        double took = seconds() - start;
        if (wanted == 1)
            CHECK(status == SHERD_OK || status == SHERD_EDIFFER);
        else if (!CHECK_EQ(status, wanted))
            fprintf(stderr, "%s: %s\n", p->name ? p->name : "random", sherd_world_error(world));
        /* By the alarm, not by the time-out: milliseconds, but the machine may be busy with other
         * things. */
        if (!CHECK(took < 20))
            fprintf(stderr, "%s took %.2f s\n", p->name ? p->name : "random", took);
        /* All ranks have the same verdict. */
        int64_t mine = status, all[MAX_RANKS];
        CHECK(sherd__share(world, st.mesh[p->groups - 1], "verdict", &mine, 1, all));
        for (int q = 0; q < p->ranks; q++)
            CHECK_EQ(all[q], status);
        works_again(&st, p);
    }
    clear_stage(&st);
}

#endif
