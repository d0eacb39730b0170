/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses MPI itself, for test_world_mpi.c: its ranks make two worlds, the even and the
 * odd ones, and send each other messages of their own that sherd's must not meet.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <sherd.h>
#include <sherd/mpi.h>

#include "carrier/carrier.h"

/* ---- an MPI that fails ----------------------------------------------------------------------- */

static const char *broken = ""; /* the function that fails next, and then works again */
static int sends;               /* how often MPI_Isend was called */
static int stopped_us;          /* the process is stopped for so long in the next MPI_Test */

static int fails(const char *function)
{
    if (strcmp(broken, function) != 0)
        return MPI_SUCCESS;
    broken = "";
    return MPI_ERR_INTERN;
}

/* A program's own come before MPI's, which has each under a second name. */
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *out)
{
    int error = fails("MPI_Isend");
    sends++;
    /* To nobody: so MPI itself says what is wrong, in its own words. */
    return PMPI_Isend(data, count, type, error ? -7 : to, tag, comm, out);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *out)
{
    int error = fails("MPI_Irecv");
    return error ? error : PMPI_Irecv(data, count, type, from, tag, comm, out);
}

int MPI_Iallgather(const void *data, int count, MPI_Datatype type, void *out, int out_count,
                   MPI_Datatype out_type, MPI_Comm comm, MPI_Request *request)
{
    int error = fails("MPI_Iallgather");
    return error ? error
                 : PMPI_Iallgather(data, count, type, out, out_count, out_type, comm, request);
}

int MPI_Test(MPI_Request *request, int *done, MPI_Status *status)
{
    int error = fails("MPI_Test");
    usleep((unsigned)stopped_us);
    stopped_us = 0;
    return error ? error : PMPI_Test(request, done, status);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

/* The sum over the world of 1 + rank; 0 on failure. */
static float sum_of(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    const sherd_placement pending = sherd_partial(SHERD_SUM);
    float mine = 1 + (float)sherd_world_rank(world), sum = 0;
    int64_t extent = sherd_world_ranks(world), one = 1;

    if (sherd_mesh_create(&mesh, world, 1, &extent, NULL, NULL))
        return 0;
    sherd_scope_begin(world);
    sherd_tensor *part = sherd_from_data(world, SHERD_F32, &one, 1, &mine);
    sherd_tensor *whole = sherd_full(sherd_from_local(part, mesh, &pending, NULL));
    const float *data = sherd_tensor_read(whole);
    if (data)
        sum = *data;
    sherd_scope_end(world);
    return sherd_world_check(world) ? 0 : sum;
}

/* A world of a communicator's ranks, which are numbered the other way round there. */
static int use(MPI_Comm part, int number)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;
    int rank;

    MPI_Comm_rank(part, &rank);
    if (sherd_world_open_mpi(&world, part, &(sherd_world_options){.error = text})) {
        fprintf(stderr, "%s\n", text);
        return 1;
    }
    int good = sherd_world_rank(world) == rank && sum_of(world) == 3;
    printf("rank %d of %d in world %d\n", rank, sherd_world_ranks(world), number);
    return sherd_world_close(world) || !good;
}

static void *no_room(void *owner, int from, size_t bytes)
{
    (void)owner;
    (void)from;
    (void)bytes;
    return NULL;
}

/* The next message that comes has so many bytes, and is of this rank. */
static bool comes(const sherd_carrier *carrier, int rank, size_t bytes)
{
    sherd_message m = {NULL, 0, NULL, 0};
    const sherd_room room = {no_room, NULL};
    int from = -1;

    while (!carrier->receive(carrier->self, &from, &m, &room))
        ;
    return from == rank && m.head_bytes == bytes && m.body_bytes == 0;
}

/* A message that is too short to be one of sherd's is handed on for what it is, and so is the
 * next. */
static int send_nonsense(void)
{
    static unsigned char head[64];
    static const size_t bytes[] = {4, 64};
    char text[SHERD_ERROR_BYTES];
    sherd_carrier carrier;
    bool good = true;

    if (sherd__mpi_carrier(&carrier, MPI_COMM_WORLD, false, text, sizeof text))
        return 1;
    for (int i = 0; i < 2 && carrier.rank == 1; i++) {
        sherd_message m = {head, bytes[i], NULL, 0};
        sherd_sending sending;
        good = carrier.send(carrier.self, 0, &m, &sending) && good;
        while (!carrier.sent(carrier.self, &sending))
            ;
    }
    if (carrier.rank == 0)
        good = comes(&carrier, 1, 4) && comes(&carrier, 1, 64);
    carrier.close(carrier.self, true);
    return !good;
}

static unsigned char arrived[1 << 17];
static int rooms; /* how often one was asked for */

static void *room_there(void *owner, int from, size_t bytes)
{
    (void)from;
    (void)bytes;
    rooms++;
    return *(const bool *)owner ? arrived : NULL;
}

/* One message with a body there and back; `apart`: it does not lie behind its head. False: what
 * comes is not what was sent. */
static bool send_body(const sherd_carrier *carrier, size_t bytes, bool apart, bool room)
{
    static unsigned char memory[1 << 17];
    unsigned char *body = memory + 192 + (apart ? 64 : 0);
    const sherd_room where = {room_there, &room};
    sherd_message m = {memory, 192, body, bytes};
    sherd_sending sending;
    int from = -1, before = sends;
    bool good = true;

    for (size_t i = 8; i < sizeof memory; i++)
        memory[i] = (unsigned char)(i * 31 + bytes);
    if (carrier->rank == 1) {
        good = carrier->send(carrier->self, 0, &m, &sending);
        while (!carrier->sent(carrier->self, &sending))
            ;
        /* A little is one message. */
        return good && (apart || bytes > 32 << 10 || sends == before + 1);
    }
    memset(arrived, 0, sizeof arrived);
    while (!carrier->receive(carrier->self, &from, &m, &where))
        ;
    good = from == 1 && m.head_bytes == 192 && m.body_bytes == bytes &&
           memcmp((char *)m.head + 8, memory + 8, 184) == 0;
    return good && (room ? m.body == arrived && memcmp(arrived, body, bytes) == 0 : !m.body);
}

/* Bodies of each length, in the message of their head or behind it, with and without room. */
static int send_bodies(void)
{
    static const size_t most = 60 << 10;
    const size_t bytes[] = {1,          8000,       8192, 16384,    most - 193,
                            most - 192, most - 191, most, most + 1, 100000};
    char text[SHERD_ERROR_BYTES];
    sherd_carrier carrier;
    bool good = true;

    if (sherd__mpi_carrier(&carrier, MPI_COMM_WORLD, false, text, sizeof text))
        return 1;
    for (size_t i = 0; carrier.rank < 2 && i < sizeof bytes / sizeof *bytes; i++)
        for (int k = 0; k < 4; k++)
            good = send_body(&carrier, bytes[i], k % 2, k < 2) && good;
    carrier.close(carrier.self, true);
    return !good;
}

/* The job ends here, once all have said what they have learnt, and the launcher has read it. */
static int end_together(int rank)
{
    int ranks, other;

    fflush(stdout);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank != 0) {
        MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        sleep(60);
    }
    for (int i = 1; i < ranks; i++)
        MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    usleep(300 * 1000);
    MPI_Abort(MPI_COMM_WORLD, 7);
    return 1;
}

/* The last rank does not open the world; the others do not wait for ever. */
static int miss_one(int rank)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;
    int ranks;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank < ranks - 1) {
        int bad = sherd_world_open_mpi(&world, MPI_COMM_WORLD,
                                       &(sherd_world_options){.error = text}) != SHERD_ETIMEDOUT;
        printf("%s%s\n", bad ? "not told: " : "told: ", text);
    }
    return end_together(rank);
}

/* Rank 0 is stopped while it waits for rank 1, for longer than it would wait; then rank 1 comes. */
static int stop_one(int rank)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;

    if (rank == 0)
        stopped_us = 1300 * 1000;
    else
        usleep(1400 * 1000);
    if (sherd_world_open_mpi(&world, MPI_COMM_WORLD, &(sherd_world_options){.error = text}))
        printf("not opened: %s\n", text);
    if (!world)
        return end_together(rank);
    int bad = sherd_world_close(world) != SHERD_OK;
    MPI_Finalize();
    return bad;
}

/* Let the process have so much more memory than it has now; 0: as much as it likes. */
static void allow(size_t bytes)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    unsigned long pages = 0;
    FILE *file = bytes ? fopen("/proc/self/statm", "r") : NULL;

    if (file && fscanf(file, "%lu", &pages) == 1)
        limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + bytes;
    if (file)
        fclose(file);
    (void)setrlimit(RLIMIT_AS, &limit);
}

/* What all ranks bring: much more than before, of which rank 1 has no second copy. */
static bool gathers(const sherd_carrier *carrier)
{
    enum { FEW = 8 << 10, MANY = 1 << 20 };
    char *mine = malloc(MANY), *all = malloc((size_t)MANY * (size_t)carrier->ranks);
    bool good = mine && all;

    if (!good)
        return false;
    memset(mine, 1 + carrier->rank, MANY);
    good = carrier->gather(carrier->self, mine, FEW, all); /* MPI has what it needs now */
    memset(all, 0, (size_t)MANY * (size_t)carrier->ranks);
    if (carrier->rank == 1)
        allow(256 << 10);
    good = carrier->gather(carrier->self, mine, MANY, all) && good;
    allow(0);
    for (int r = 0; r < carrier->ranks; r++)
        good = good && all[(size_t)r * MANY] == 1 + r && all[(size_t)(r + 1) * MANY - 1] == 1 + r;
    free(mine);
    free(all);
    return good;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
enum { REFUSALS = 0 }; /* the allocator is another one */
static int refused;
static size_t withheld;
#else
enum { REFUSALS = 2 };
static int refused; /* the so-manieth calloc from now on gets nothing; 0 = none */

static size_t withheld; /* the next malloc of so many bytes gets nothing; 0 = all get some */

void *__libc_calloc(size_t count, size_t bytes);
void *__libc_malloc(size_t bytes);

void *malloc(size_t bytes)
{
    bool none = withheld && bytes == withheld;

    withheld = none ? 0 : withheld;
    return none ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return refused && --refused == 0 ? NULL : __libc_calloc(count, bytes);
}
#endif

/* Rank 0 has no memory for the notes of a body's pieces: the body is lost, but no room for it. */
static bool starve_body(const sherd_carrier *carrier)
{
    enum { PIECES = 131, SMALL = 16 << 10, BYTES = PIECES * SMALL, LARGE = 60 << 10, HEAD = 64 };
    static unsigned char memory[HEAD + BYTES];
    bool none = false, few = strstr(carrier->name, "MPICH") == NULL, good = true;
    const sherd_room where = {room_there, &none};
    sherd_message m = {memory, HEAD, memory + HEAD, BYTES};
    sherd_sending sending;
    int from = -1;

    carrier->near(carrier->self, NULL);
    if (carrier->rank == 1) {
        good = carrier->send(carrier->self, 0, &m, &sending);
        while (!carrier->sent(carrier->self, &sending))
            ;
    } else if (carrier->rank == 0) {
        withheld = REFUSALS ? (few ? BYTES / LARGE + 1 : PIECES) * sizeof(MPI_Request) : 0;
        while (!carrier->receive(carrier->self, &from, &m, &where))
            ;
        good = withheld == 0 && from == 1 && m.body_bytes == BYTES && !m.body &&
               rooms == (REFUSALS ? 0 : 1);
    }
    MPI_Barrier(MPI_COMM_WORLD); /* the pieces have gone to nowhere, which is the carrier's */
    return good;
}

/* Rank 1 has memory for a carrier, has none for the next, and has it again: the first time MPI
 * itself needs some. */
static int starve_one(int rank)
{
    bool good = true;

    for (int turn = 0; turn < 3; turn++) {
        char text[SHERD_ERROR_BYTES] = "";
        sherd_carrier carrier;
        if (rank == 1 && turn == 1)
            allow(2 << 20);
        sherd_status status =
            sherd__mpi_carrier(&carrier, MPI_COMM_WORLD, false, text, sizeof text);
        allow(0);
        printf("%s: %s\n", sherd_status_name(status), text);
        good = good && status == (turn == 1 ? SHERD_ENOMEM : SHERD_OK);
        good = good && (turn != 2 || status || (gathers(&carrier) && starve_body(&carrier)));
        if (!status)
            carrier.close(carrier.self, good);
    }
    MPI_Finalize();
    return !good;
}

/* Rank 1 has no memory before it meets the others to open a world, and has it again. */
static int starve_early(int rank)
{
    bool good = true;

    for (int n = 1; n <= REFUSALS + 1; n++) {
        char text[SHERD_ERROR_BYTES] = "";
        sherd_world *world = NULL;
        refused = rank == 1 && n <= REFUSALS ? n : 0;
        sherd_status status =
            sherd_world_open_mpi(&world, MPI_COMM_WORLD, &(sherd_world_options){.error = text});
        good = good && refused == 0 && status == (n <= REFUSALS ? SHERD_ENOMEM : SHERD_OK) &&
               (!status || strstr(text, "rank 1: out of memory"));
        if (!status)
            good = sum_of(world) == 6 && !sherd_world_close(world) && good;
    }
    printf("early: %s\n", good ? "well" : "not so");
    MPI_Finalize();
    return !good;
}

/* Rank 1's MPI fails once: while the world is opened, or later. Whether all is as it must be. */
static bool break_one(const char *function, int rank)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;

    if (rank == 1 && strcmp(function, "MPI_Iallgather") == 0)
        broken = function;
    if (sherd_world_open_mpi(&world, MPI_COMM_WORLD, &(sherd_world_options){.error = text})) {
        printf("not opened: %s\n", text);
        return end_together(rank) == 0;
    }
    for (int turn = 0; sum_of(world) > 0 && turn < 10; turn++)
        if (sherd_world_rank(world) == 1 && turn == 3)
            broken = function;
    sherd_status status = sherd_world_check(world);
    printf("%s: %s\n", sherd_status_name(status), sherd_world_error(world));
    bool good = sherd_world_close(world) == SHERD_EPEER;
    MPI_Barrier(MPI_COMM_WORLD);
    return good;
}

/* One function after the other, each in a world of its own. */
static int break_all(char *const *functions, int rank)
{
    bool good = true;

    for (int i = 0; functions[i]; i++)
        good = break_one(functions[i], rank) && good;
    MPI_Finalize();
    return !good;
}

/*
 * Rank 0 waits in vain for rank 1, which makes the call only when rank 0 has closed its world: MPI
 * may still read there then what it has been given to send, and the program goes on.
 */
static int come_late(int rank)
{
    const sherd_placement rows = sherd_shard(0);
    static float data[1 << 20];
    int64_t part = 1 << 20, shape = 2 * part, two = 2;
    const sherd_mesh *mesh = NULL;
    sherd_world *world = NULL;
    char word = 0;

    if (sherd_world_open_mpi(&world, MPI_COMM_WORLD, NULL) ||
        sherd_mesh_create(&mesh, world, 1, &two, NULL, NULL))
        return 1;
    sherd_tensor *mine = sherd_from_data(world, SHERD_F32, &part, 1, data);
    sherd_tensor *all =
        sherd_from_local(mine, mesh, &rows, &(sherd_from_local_options){.shape = &shape});
    int bad = sherd_world_check(world) != SHERD_OK;
    for (int come = rank != 1; !come; usleep(2000)) /* asleep, as the other waits for seconds */
        MPI_Iprobe(0, 7, MPI_COMM_WORLD, &come, MPI_STATUS_IGNORE);
    if (rank == 1)
        MPI_Recv(&word, 1, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    bad |= sherd_tensor_read(sherd_full(all)) != NULL;
    bad |= sherd_world_close(world) != SHERD_ETIMEDOUT;
    if (rank == 0)
        MPI_Send(&word, 1, MPI_CHAR, 1, 7, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("rank %d goes on\n", rank);
    MPI_Finalize();
    return bad;
}

/* Rank 1 dies while it has two worlds open; in each of them the others learn it. */
static int die_in_two(int rank)
{
    sherd_world *world[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++)
        if (sherd_world_open_mpi(&world[i], MPI_COMM_WORLD, NULL))
            return 1;
    signal(SIGTERM, SIG_IGN); /* as who saves what it has */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < 2; i++) {
        sherd_status status = sherd_world_check(world[i]);
        printf("%s in world %d: %s\n", sherd_status_name(status), i, sherd_world_error(world[i]));
        fflush(stdout);
    }
    return 1;
}

int main(int argc, char **argv)
{
    int given, rank, got = -1, bad;
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world *world = NULL;
    MPI_Request request;
    MPI_Comm part;

    bad = sherd_world_open_mpi(&world, MPI_COMM_WORLD, &(sherd_world_options){.error = text}) !=
              SHERD_EINVAL ||
          !strstr(text, "MPI is not running");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc > 2)
        return break_all(argv + 2, rank);
    if (argc > 1)
        return strcmp(argv[1], "late") == 0      ? come_late(rank)
               : strcmp(argv[1], "stopped") == 0 ? stop_one(rank)
               : strcmp(argv[1], "poor") == 0    ? starve_one(rank)
               : strcmp(argv[1], "early") == 0   ? starve_early(rank)
               : strcmp(argv[1], "dies") == 0    ? die_in_two(rank)
                                                 : miss_one(rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part);
    bad |= sherd_world_open_mpi(&world, MPI_COMM_NULL, &(sherd_world_options){.error = text}) !=
           SHERD_EINVAL;
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    bad |= use(part, rank % 2);
    bad |= send_nonsense() | send_bodies();
    MPI_Send(&rank, 1, MPI_INT, rank ^ 1, 5, MPI_COMM_WORLD);
    bad |= use(part, rank % 2 + 2) == 1;
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    bad |= got != (rank ^ 1);
    MPI_Comm_free(&part);
    MPI_Finalize();
    return bad;
}
