/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI as a carrier. The duplicate of the communicator keeps what is sent here apart from what the
 * program sends; errors come back instead of ending the job.
 *
 * A head is one message, received from anybody into one buffer. A short body that lies behind it in
 * memory is in the same message, and copied out of that buffer. Otherwise the head announces the
 * body, which comes with a tag of its own: to a rank of this machine in one piece, which MPI copies
 * straight from there to here; to others in pieces so small that MPI sends them over TCP without
 * asking first: the answer would come behind all that goes the other way. All pieces are given to
 * MPI at once, so that it can bring them on in any of its functions.
 */
#include "carrier.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_TAG = 1, BODY_TAG = 2, LEAST = 8 };
/* Bytes of a piece: to a rank of this machine; to others, by Open MPI and by MPICH. */
enum { PIECE_HERE = 4 << 20, PIECE_THERE = 60 << 10, PIECE_THERE_MPICH = 16 << 10 };
/* The longest message of a head and its body; what each rank brings to a gathering at once. */
enum { ONCE = 60 << 10, BROUGHT = 2 << 10 };
/* In the length of the body: it is in the message of its head. */
static const uint64_t joined = UINT64_C(1) << 63;

/* The pieces of a body that are on their way. */
typedef struct pieces {
    int count, done; /* the first so many are */
    int size;        /* of each but the last */
    MPI_Request *request;
} pieces;

/* A message on its way out: what a sherd_sending holds. */
typedef struct outgoing {
    MPI_Request head;
    pieces body;
} outgoing;
_Static_assert(sizeof(outgoing) <= sizeof(sherd_sending), "it fits");

/* A body that comes from one other rank. */
typedef struct peer {
    int piece; /* bytes */
    bool coming;
    pieces body;
    sherd_message message;
    unsigned char head[SHERD_HEAD_BYTES];
} peer;

typedef struct carrier {
    MPI_Comm comm;
    int ranks;
    int poor, poorest; /* the first rank without memory for what is here: of this one, and of all */
    bool posted;       /* a head may come into `head` */
    bool held;         /* one is there, and waits until the body before it has been received */
    MPI_Request request;
    MPI_Status status;
    unsigned char *head;    /* [ONCE] */
    peer *peer;             /* [ranks] */
    unsigned char *nowhere; /* [PIECE_HERE]: where pieces go that nobody has room for */
    char *gathered; /* [1 + ranks][BROUGHT]: from this one, and of all; NULL: MPI still has it */
    int error;      /* the first that MPI has said; then nothing that comes is trusted */
    const char *function; /* that has said it */
} carrier;

/* The first bytes of a head. */
_Static_assert(sizeof(uint64_t) == LEAST, "the length of the body");

/* Which MPI this is. */
static const char *own_name(void)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;

    MPI_Get_library_version(text, &length);
    return strncmp(text, "Open MPI", 8) == 0 ? "Open MPI"
           : strncmp(text, "MPICH", 5) == 0  ? "MPICH"
                                             : "MPI";
}

static void near(void *self, const bool *here)
{
    carrier *c = self;
    int there = strcmp(own_name(), "MPICH") == 0 ? PIECE_THERE_MPICH : PIECE_THERE;

    for (int r = 0; r < c->ranks; r++)
        c->peer[r].piece = here && here[r] ? PIECE_HERE : there;
}

/* Whether MPI has done it; the first error is kept. */
static bool works(carrier *c, int error, const char *function)
{
    if (error != MPI_SUCCESS && !c->error) {
        c->error = error;
        c->function = function;
    }
    return error == MPI_SUCCESS;
}

/* On one line; MPICH has several. */
static sherd_status say(char *text, size_t room, int error, const char *what)
{
    char reason[MPI_MAX_ERROR_STRING] = "?";
    int length;

    MPI_Error_string(error, reason, &length);
    for (char *at = reason; (at = strchr(at, '\n'));)
        *at = ' ';
    snprintf(text, room, "%s: %s: %s", own_name(), what, reason);
    return SHERD_EINVAL;
}

static bool has_failed(void *self, char *text, size_t room)
{
    carrier *c = self;

    if (c->error)
        say(text, room, c->error, c->function);
    return c->error != MPI_SUCCESS;
}

/* Whether it is over; what has failed is not, as MPI may still use its memory. */
static bool is_free(carrier *c, MPI_Request *request)
{
    int done = 0;

    return works(c, MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test") && done;
}

/* ---- what all ranks do together -------------------------------------------------------------- */

/* Of each rank so many bytes, which are few, from `at` on. */
static bool gather_some(carrier *c, const char *mine, size_t bytes, size_t at, char *all)
{
    size_t some = bytes - at < BROUGHT ? bytes - at : BROUGHT;
    char *own = c->gathered, *theirs = own + BROUGHT;
    MPI_Request request;

    memcpy(own, mine + at, some);
    if (!works(c,
               MPI_Iallgather(own, (int)some, MPI_BYTE, theirs, (int)some, MPI_BYTE, c->comm,
                              &request),
               "MPI_Iallgather"))
        return false;
    int error = sherd__mpi_await(&request);
    if (error == SHERD__TIMED_OUT || !works(c, error, "MPI_Iallgather")) {
        c->gathered = NULL;
        return false;
    }
    for (int r = 0; r < c->ranks; r++)
        memcpy(all + (size_t)r * bytes + at, theirs + (size_t)r * some, some);
    return true;
}

/* It needs no memory: a rank that had none would leave the others waiting. */
static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    carrier *c = self;
    bool good = c->gathered != NULL;

    for (size_t at = 0; good && at < bytes; at += BROUGHT)
        good = gather_some(c, mine, bytes, at, all);
    return good;
}

/* ---- messages -------------------------------------------------------------------------------- */

static bool begin_pieces(pieces *p, size_t bytes, int size)
{
    size_t count = (bytes + (size_t)size - 1) / (size_t)size;

    *p = (pieces){.count = (int)count, .size = size};
    if (count == 0)
        return true;
    p->request = count <= INT_MAX ? malloc(count * sizeof(MPI_Request)) : NULL;
    return p->request != NULL;
}

/* Where a piece of so many bytes begins, and its length. */
static size_t start_of(const pieces *p, int piece)
{
    return (size_t)piece * (size_t)p->size;
}

static int length_of(const pieces *p, size_t bytes, int piece)
{
    size_t rest = bytes - start_of(p, piece);
    return rest < (size_t)p->size ? (int)rest : p->size;
}

/* Whether all pieces have gone; they do so in their order. */
static bool have_gone(carrier *c, pieces *p)
{
    while (p->done < p->count && is_free(c, &p->request[p->done]))
        p->done++;
    if (p->done < p->count)
        return false;
    free(p->request);
    p->request = NULL;
    return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

/* One that has failed is over: there is nothing to wait for. */
static bool send_one(carrier *c, int to, int tag, const void *data, int bytes, MPI_Request *out)
{
    if (works(c, MPI_Isend(data, bytes, MPI_BYTE, to, tag, c->comm, out), "MPI_Isend"))
        return true;
    *out = MPI_REQUEST_NULL;
    return false;
}

/* Whether head and body follow each other and go in one message. */
static bool is_short(const sherd_message *message)
{
    return message->body_bytes &&
           message->body == (unsigned char *)message->head + message->head_bytes &&
           message->head_bytes + message->body_bytes <= ONCE;
}

static bool send(void *self, int to, const sherd_message *message, sherd_sending *sending)
{
    carrier *c = self;
    bool whole = is_short(message);
    uint64_t length = message->body_bytes | (whole ? joined : 0);
    size_t first = message->head_bytes + (whole ? message->body_bytes : 0);
    outgoing o = {.head = MPI_REQUEST_NULL};

    memcpy(message->head, &length, sizeof length);
    bool announced = begin_pieces(&o.body, whole ? 0 : message->body_bytes, c->peer[to].piece) &&
                     send_one(c, to, HEAD_TAG, message->head, (int)first, &o.head);
    bool good = announced;
    for (int i = 0; announced && i < o.body.count; i++)
        good &= send_one(c, to, BODY_TAG, (char *)message->body + start_of(&o.body, i),
                         length_of(&o.body, message->body_bytes, i), &o.body.request[i]);
    if (!announced) {
        free(o.body.request);
        o.body = (pieces){.count = 0};
    }
    memcpy(sending, &o, sizeof o);
    return good;
}

static bool sent(void *self, sherd_sending *sending)
{
    carrier *c = self;
    outgoing o;

    memcpy(&o, sending, sizeof o);
    bool done = is_free(c, &o.head) && have_gone(c, &o.body);
    memcpy(sending, &o, sizeof o);
    return done;
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* A body that has come as a whole: the message of its rank. */
static bool finish_body(carrier *c, int *from, sherd_message *out)
{
    for (int r = 0; r < c->ranks; r++) {
        if (!c->peer[r].coming || !have_gone(c, &c->peer[r].body))
            continue;
        c->peer[r].coming = false;
        *from = r;
        *out = c->peer[r].message;
        return true;
    }
    return false;
}

/*
 * The head announces a body: make room, and go on without it. One that nobody has room for is taken
 * in all the same.
 */
static void await_body(carrier *c, int from, size_t head_bytes, size_t bytes,
                       const sherd_room *room)
{
    peer *p = &c->peer[from];

    memcpy(p->head, c->head, head_bytes);
    p->message = (sherd_message){p->head, head_bytes, NULL, bytes};
    p->coming = true;
    if (begin_pieces(&p->body, bytes, p->piece))
        p->message.body = room->give(room->owner, from, bytes);
    for (int i = 0; i < p->body.count; i++) {
        char *to = p->message.body ? (char *)p->message.body + start_of(&p->body, i) : NULL;
        MPI_Request none, *request = p->body.request ? &p->body.request[i] : &none;
        if (!works(c,
                   MPI_Irecv(to ? to : (char *)c->nowhere, length_of(&p->body, bytes, i), MPI_BYTE,
                             from, BODY_TAG, c->comm, request),
                   "MPI_Irecv"))
            *request = MPI_REQUEST_NULL;
        else if (!p->body.request)
            MPI_Request_free(request);
    }
    if (!p->body.request)
        p->body.count = 0;
}

/* Whether a head has come. */
static bool has_head(carrier *c)
{
    int done = 0;

    if (!c->posted)
        c->posted = works(
            c, MPI_Irecv(c->head, ONCE, MPI_BYTE, MPI_ANY_SOURCE, HEAD_TAG, c->comm, &c->request),
            "MPI_Irecv");
    if (!c->posted)
        return false;
    bool good = works(c, MPI_Test(&c->request, &done, &c->status), "MPI_Test");
    c->posted = !good || !done; /* what has failed may still be there */
    return !c->posted;
}

/* A message of so many bytes that is a head and its body. False: none of ours. */
static bool take_whole(const carrier *c, size_t bytes, size_t body, const sherd_room *room,
                       sherd_message *out)
{
    if (body > bytes - LEAST || bytes - body > SHERD_HEAD_BYTES)
        return false;
    *out = (sherd_message){c->head, bytes - body,
                           room->give(room->owner, c->status.MPI_SOURCE, body), body};
    if (out->body)
        memcpy(out->body, c->head + out->head_bytes, body);
    return true;
}

/*
 * The next head of a rank may come before the last pieces of its body: then it waits, and with it
 * all others, but not long.
 */
static bool receive(void *self, int *from, sherd_message *out, const sherd_room *room)
{
    carrier *c = self;
    uint64_t length;
    int count;

    while (!c->error) {
        if (finish_body(c, from, out))
            return true;
        if (c->held ? c->peer[c->status.MPI_SOURCE].coming : !has_head(c))
            return false;
        c->held = c->peer[c->status.MPI_SOURCE].coming;
        if (c->held)
            return false;
        *from = c->status.MPI_SOURCE;
        MPI_Get_count(&c->status, MPI_BYTE, &count);
        if (count < LEAST)
            break; /* none of ours: whoever asks is to say so */
        memcpy(&length, c->head, sizeof length);
        if (length & joined) {
            if (take_whole(c, (size_t)count, (size_t)(length & ~joined), room, out))
                return true;
            break;
        }
        if (!length)
            break;
        await_body(c, c->status.MPI_SOURCE, (size_t)count, (size_t)length, room);
    }
    if (c->error)
        return false;
    *out = (sherd_message){c->head, (size_t)count, NULL, 0};
    return true;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* That of a rank without memory for one, which opens none: MPI may still write there when this rank
 * has waited too long for the others. */
static carrier spare;

static void close_carrier(void *self, bool well)
{
    carrier *c = self;
    int over = 1;

    MPI_Finalized(&over);
    if (c->posted && !over && c->request != MPI_REQUEST_NULL) {
        MPI_Cancel(&c->request);
        MPI_Wait(&c->request, MPI_STATUS_IGNORE);
    }
    /* To free it is collective: where ranks are lost it stays. */
    if (well && !over)
        MPI_Comm_free(&c->comm);
    free(c->peer);
    free(c->nowhere);
    free(c->gathered);
    free(c->head);
    if (c != &spare)
        free(c);
}

/* What sherd__mpi_await has returned, of a carrier that MPI may still use. */
static sherd_status not_begun(char *text, size_t room, int error)
{
    if (error != SHERD__TIMED_OUT)
        return say(text, room, error, "no duplicate of the communicator");
    snprintf(text, room,
             "%s: waited %.0f s (SHERD_TIMEOUT) for all ranks of the communicator to open a "
             "world: end the job with MPI_Abort",
             own_name(), sherd__mpi_timeout());
    return SHERD_ETIMEDOUT;
}

/* Room for messages, on all ranks or on none: who has none would leave the others waiting. */
static sherd_status make_room(carrier *c, int rank, char *text, size_t room)
{
    MPI_Request request;

    c->peer = calloc((size_t)c->ranks, sizeof *c->peer);
    c->nowhere = malloc(PIECE_HERE);
    c->head = malloc(ONCE);
    c->gathered = malloc(((size_t)c->ranks + 1) * BROUGHT);
    c->poor = c != &spare && c->peer && c->nowhere && c->head && c->gathered ? c->ranks : rank;
    int error = MPI_Iallreduce(&c->poor, &c->poorest, 1, MPI_INT, MPI_MIN, c->comm, &request);
    if (error || (error = sherd__mpi_await(&request)))
        return not_begun(text, room, error);
    if (c->poorest == c->ranks)
        return SHERD_OK;
    snprintf(text, room, "%s: rank %d: out of memory", own_name(), c->poorest);
    close_carrier(c, true);
    return SHERD_ENOMEM;
}

sherd_status sherd__mpi_carrier(sherd_carrier *out, MPI_Comm comm, bool poor, char *text,
                                size_t room)
{
    carrier *c = poor ? NULL : calloc(1, sizeof *c);
    MPI_Request request;
    int error;

    if (!c)
        *(c = &spare) = (carrier){.posted = false};
    error = MPI_Comm_idup(comm, &c->comm, &request);
    if (error && c != &spare)
        free(c);
    if (error || (error = sherd__mpi_await(&request)))
        return not_begun(text, room, error);
    MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    *out = (sherd_carrier){.version = SHERD_CARRIER_VERSION,
                           .name = own_name(),
                           .self = c,
                           .gather = gather,
                           .send = send,
                           .sent = sent,
                           .receive = receive,
                           .near = near,
                           .has_failed = has_failed,
                           .close = close_carrier};
    MPI_Comm_rank(c->comm, &out->rank);
    MPI_Comm_size(c->comm, &out->ranks);
    c->ranks = out->ranks;
    sherd_status status = make_room(c, out->rank, text, room);
    if (!status)
        near(c, NULL);
    return status;
}
