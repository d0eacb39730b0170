/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a halo exchange takes: halo [-n RANKS] [--threads] [--rounds N] [--side N --fields N]
 * [--dim D]. Four f64 fields of 128^3, and of 8^3, split along a dim (0, where the faces are
 * contiguous, unless --dim says another), periodic, one layer. Timed are sherd_ghosts_fill (one
 * call for all fields) and sherd_halo_many (which makes new tensors), beside each rank copying the
 * faces, or pieces and faces, out of the neighbours' memory by memcpy, with nobody waiting for
 * anybody: what moves the same bytes and does nothing else. Limits: 1.2 times the copy for large
 * faces, 2 us for small ones.
 *
 * Each sample is the slowest rank's time; the ways take turns, round by round. Three sets of arrays
 * rotate; all are rewritten before a sample, and two corners of each piece before each exchange:
 * what a stencil's step does in between. All ghost cells are checked. bench/halo_mpi.c is the same
 * job by hand; bench/compare_halo.py runs both in turns.
 */
#include <sys/mman.h>

#include "halo.h"
#include "meeting.h"
#include "sherd.h"

enum { FILL, MANY, FACES, PIECES, WAYS };

static const char *const way_names[WAYS] = {"sherd_ghosts_fill", "sherd_halo_many",
                                            "memcpy of the faces", "memcpy of pieces and faces"};

typedef struct shared {
    asked asked;
    meeting *meet;
    double *memory; /* of all ranks, for memcpy */
} shared;

typedef struct bench {
    sherd_world *world;
    const shared *shared;
    job job, bare; /* arrays with ghosts, and without */
    sherd_halo_options halo;
    sherd_ghosts *ghosts[SETS][MOST_FIELDS];
    sherd_tensor *source[SETS][MOST_FIELDS], *out[SETS][MOST_FIELDS];
    double *result[SETS][MOST_FIELDS]; /* of the copy of pieces and faces */
    int64_t wrong;
    int turn;
} bench;

static void must(const bench *b, bool good)
{
    if (good)
        return;
    fprintf(stderr, "rank %d: %s\n", b->job.me, sherd_world_error(b->world));
    exit(1);
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static void open_exchange(bench *b, const sherd_layout *layout)
{
    const sherd_halo_side one = {1, SHERD_BORDER_PERIODIC};

    b->halo = (sherd_halo_options){.value = 0};
    b->halo.before[b->job.dim] = b->halo.after[b->job.dim] = one;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            must(b, !sherd_ghosts_create(&b->ghosts[set][i], layout, SHERD_F64, &b->halo));
}

static void exchange(bench *b, int set)
{
    must(b, sherd_ghosts_fill(b->ghosts[set], b->job.fields));
}

static void close_exchange(bench *b)
{
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            sherd_ghosts_destroy(b->ghosts[set][i]);
}

/* ---- the other ways -------------------------------------------------------------------------- */

/* The array of a rank that memcpy reads and fills. All have room for the largest piece. */
static double *near(const bench *b, int rank, int set, int field)
{
    job first;

    job_set(&first, b->job.fields, b->job.side, b->job.dim, 0, b->job.ranks);
    return b->shared->memory +
           (((int64_t)rank * SETS + set) * b->job.fields + field) * job_count(&first);
}

/* Two layers of cells, of arrays of two ranks, whose pieces may differ along the dim. */
static void copy_layer(const job *to_job, double *to, int64_t to_along, const job *from_job,
                       const double *from, int64_t from_along)
{
    int64_t n = to_job->side, rows = to_job->dim == 2 ? n * n : to_job->dim == 1 ? n : 1;
    size_t bytes = (size_t)(n * n / rows) * sizeof *to;

    for (int64_t i = 0; i < rows; i++) {
        int64_t a = to_job->dim == 2 ? i / n : i, b = to_job->dim == 2 ? i % n : 0;
        memcpy(to + job_place(to_job, to_along, a, b), from + job_place(from_job, from_along, a, b),
               bytes);
    }
}

/* The ghosts of `to` out of the neighbours' arrays. */
static void copy_faces(const bench *b, int set, int field, double *to)
{
    const job *j = &b->job;
    int before = (j->me + j->ranks - 1) % j->ranks, behind = (j->me + 1) % j->ranks;
    job one, two;

    job_set(&one, j->fields, j->side, j->dim, before, j->ranks);
    job_set(&two, j->fields, j->side, j->dim, behind, j->ranks);
    copy_layer(j, to, 0, &one, near(b, before, set, field), one.size[j->dim]);
    copy_layer(j, to, j->size[j->dim] + 1, &two, near(b, behind, set, field), 1);
}

/* The piece of an array with ghosts into another one. */
static void copy_piece(const job *j, double *to, const double *from)
{
    int64_t row = (j->dim == 2 ? j->size[2] : j->side), n = j->size[j->dim];
    size_t bytes = (size_t)row * sizeof *to;

    if (j->dim == 0) {
        int64_t at = job_place(j, 1, 0, 0);
        memcpy(to + at, from + at, (size_t)(n * j->side * j->side) * sizeof *to);
        return;
    }
    for (int64_t a = 0; a < j->side; a++)
        for (int64_t i = 0; i < (j->dim == 1 ? n : j->side); i++) {
            int64_t at = j->dim == 1 ? job_place(j, i + 1, a, 0) : job_place(j, 1, a, i);
            memcpy(to + at, from + at, bytes);
        }
}

static void halo_many(bench *b, int set)
{
    int fields = b->job.fields;
    sherd_tensor *out[MOST_FIELDS];

    sherd_scope_begin(b->world);
    sherd_halo_many(out, b->source[set], fields, &b->halo);
    for (int i = 0; i < fields; i++) {
        sherd_tensor_release(b->out[set][i]);
        b->out[set][i] = sherd_tensor_retain(out[i]);
        must(b, sherd_tensor_read(out[i]) != NULL);
    }
    sherd_scope_end(b->world);
}

/* ---- samples --------------------------------------------------------------------------------- */

static void barrier(const bench *b)
{
    meet(b->shared->meet, b->job.ranks);
}

/* The array that a way reads, to be written now. */
static double *source_of(const bench *b, int way, int set, int field)
{
    return way == FILL   ? sherd_ghosts_data(b->ghosts[set][field])
           : way == MANY ? sherd_tensor_write(b->source[set][field])
                         : near(b, b->job.me, set, field);
}

static const double *result_of(const bench *b, int way, int set, int field)
{
    return way == FILL    ? sherd_ghosts_peek(b->ghosts[set][field])
           : way == MANY  ? sherd_tensor_read(b->out[set][field])
           : way == FACES ? near(b, b->job.me, set, field)
                          : b->result[set][field];
}

/* The copies have no one who waits, so no marks either. */
static void take_turn(bench *b, int way, int set)
{
    const job *j = way == MANY ? &b->bare : &b->job;
    bool marks = way == FILL || way == MANY;

    b->turn++;
    for (int i = 0; i < j->fields && marks; i++)
        job_mark(j, source_of(b, way, set, i), i, b->turn);
    if (way == FILL)
        exchange(b, set);
    else if (way == MANY)
        halo_many(b, set);
    for (int i = 0; i < j->fields && marks; i++)
        b->wrong += job_unmarked(&b->job, result_of(b, way, set, i), i, b->turn);
    for (int i = 0; i < j->fields && !marks; i++) {
        double *to = way == FACES ? near(b, j->me, set, i) : b->result[set][i];
        if (way == PIECES)
            copy_piece(j, to, near(b, j->me, set, i));
        copy_faces(b, set, i, to);
    }
}

/* Seconds of one exchange. */
static double sample(bench *b, int way, int round)
{
    int turns = job_turns(&b->job);

    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            job_dirty(way == MANY ? &b->bare : &b->job, source_of(b, way, set, i), i, round);
    barrier(b);
    double start = seconds();
    for (int i = 0; i < turns; i++)
        take_turn(b, way, i % SETS);
    double mine = seconds() - start;
    double time = meet_most(b->shared->meet, b->job.ranks, b->job.me, mine) / turns;
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++)
            b->wrong += job_wrong(&b->job, result_of(b, way, set, i), i, round);
    barrier(b);
    return time;
}

static void report(const bench *b, double (*times)[MOST_ROUNDS])
{
    int rounds = b->shared->asked.rounds;
    bool small = job_turns(&b->job) > SETS;

    if (b->job.me != 0)
        return;
    for (int k = WAYS - 1; k >= 0; k--)
        sort_times(times[k], rounds);
    for (int k = 0; k < WAYS; k++) {
        int peer = k == FILL ? FACES : k == MANY ? PIECES : -1;
        job_print(&b->job, way_names[k], times[k], rounds);
        if (small && k == FILL)
            printf("  limit 2 us");
        else if (k == FILL)
            printf("  limit 1.2");
        if (peer >= 0)
            printf("  ratio to memcpy %.2f (least %.2f)",
                   times[k][rounds / 2] / times[peer][rounds / 2], times[k][0] / times[peer][0]);
        putchar('\n');
    }
}

static void open_arrays(bench *b)
{
    int64_t shape[3] = {b->job.side, b->job.side, b->job.side};
    const sherd_layout *layout;
    const sherd_mesh *mesh;
    char text[16];

    snprintf(text, sizeof text, "%d", b->job.ranks);
    must(b, !sherd_mesh_parse(&mesh, b->world, text));
    snprintf(text, sizeof text, "S(%d)", b->job.dim);
    must(b, !sherd_layout_parse_placements(&layout, mesh, 3, shape, text, NULL));
    open_exchange(b, layout);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++) {
            size_t bytes = (size_t)job_count(&b->job) * sizeof(double);
            b->source[set][i] = sherd_constant_on(layout, SHERD_F64, 0);
            b->out[set][i] = NULL;
            b->result[set][i] = calloc(1, bytes);
            must(b, b->result[set][i] != NULL);
        }
}

static void close_arrays(bench *b)
{
    close_exchange(b);
    for (int set = 0; set < SETS; set++)
        for (int i = 0; i < b->job.fields; i++) {
            sherd_tensor_release(b->out[set][i]);
            free(b->result[set][i]);
        }
}

static void run_case(bench *b, int fields, int64_t side)
{
    double(*times)[MOST_ROUNDS] = calloc(WAYS, sizeof *times);
    int ranks = sherd_world_ranks(b->world), me = sherd_world_rank(b->world);

    must(b, times != NULL);
    if (!job_set(&b->job, fields, side, b->shared->asked.dim, me, ranks)) {
        if (me == 0)
            printf("%lld^3 on %d ranks leaves one without a layer\n", (long long)side, ranks);
        free(times);
        return;
    }
    b->bare = job_bare(&b->job);
    sherd_scope_begin(b->world);
    open_arrays(b);
    for (int round = -WARM; round < b->shared->asked.rounds; round++)
        for (int k = 0; k < WAYS; k++)
            times[k][round < 0 ? 0 : round] = sample(b, k, round + WARM);
    report(b, times);
    close_arrays(b);
    free(times);
    sherd_scope_end(b->world);
}

/* ---- the program ----------------------------------------------------------------------------- */

static int body(sherd_world *world, void *payload)
{
    const shared *s = payload;
    bench b = {.world = world, .shared = s};

    if (s->asked.side)
        run_case(&b, s->asked.fields ? s->asked.fields : 4, s->asked.side);
    for (int i = 0; i < USUAL && !s->asked.side; i++)
        run_case(&b, s->asked.fields ? s->asked.fields : usual[i].fields, usual[i].side);
    if (b.wrong)
        fprintf(stderr, "rank %d: %lld wrong elements\n", b.job.me, (long long)b.wrong);
    return sherd_world_check(world) || b.wrong ? 1 : 0;
}

/* Room for the largest case, whoever it lies with. */
static double *open_memory(const asked *a, int ranks)
{
    int64_t side = a->side ? a->side : usual[0].side, fields = a->fields ? a->fields : 4;
    job first;

    job_set(&first, (int)fields, side, a->dim, 0, ranks);
    void *memory = mmap(NULL, (size_t)(ranks * SETS * fields * job_count(&first)) * sizeof(double),
                        PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
    shared s = {.asked.rounds = 21};
    sherd_world_options options = {.ranks = 2};
    bool good = true;
    int exit_status = 0;

    for (int i = 1; i < argc && good; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc)
            options.ranks = atoi(argv[++i]);
        else if (strcmp(argv[i], "--threads") == 0)
            options.as = SHERD_THREADS;
        else
            good = job_option(&s.asked, argc, argv, &i);
    }
    if (!good || !job_good(&s.asked) || options.ranks < 1 || options.ranks > SHERD_MAX_RANKS)
        return fprintf(stderr,
                       "halo [-n RANKS] [--threads] [--rounds N, up to %d] [--side N, up to "
                       "1024] [--fields N, up to %d] [--dim 0..2]\n",
                       MOST_ROUNDS, MOST_FIELDS),
               2;
    s.meet = open_meeting();
    s.memory = open_memory(&s.asked, options.ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!s.meet || !s.memory || sherd_spawn(&exit_status, &options, body, &s))
        return 1;
    return exit_status;
}
