/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MPI as a carrier. The duplicate of the communicator keeps what is sent here apart from what the program sends; errors
 * come back instead of ending the job.
 *
 * A head is one message, received from anybody into one buffer; a body is a second one with a tag of its own, which the head
 * announces. While a body is on its way the next head of that rank waits: messages of one rank stay in their order.
 */
#include "carrier.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_TAG = 1, BODY_TAG = 2, LEAST = 8 };

/* A rank of which a body is on its way. */
typedef struct sender {
    bool busy;
    MPI_Request request;
    sherd_message message;
    void *unwanted; /* where a body goes that has no room; NULL: none has */
    unsigned char head[SHERD_HEAD_BYTES];
} sender;

typedef struct carrier {
    MPI_Comm comm;
    int ranks;
    bool posted; /* a head may come into `head` */
    bool held;   /* one is there, whose sender has a body on its way */
    MPI_Request request;
    MPI_Status status;
    _Alignas(16) unsigned char head[SHERD_HEAD_BYTES];
    sender *sender; /* [ranks] */
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

static bool gather(void *self, const void *mine, size_t bytes, void *all)
{
    carrier *c = self;

    return bytes <= INT_MAX && MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE,
                                             c->comm) == MPI_SUCCESS;
}

/* ---- messages --------------------------------------------------------------------------------------- */

/* MPI counts with an int: what is longer than 1 GB is so many megabytes and a rest. */
static bool type_of(size_t bytes, int *count, MPI_Datatype *type)
{
    int lengths[2] = {1, (int)(bytes & ((1 << 20) - 1))};
    MPI_Aint places[2] = {0, (MPI_Aint)(bytes - (size_t)lengths[1])};
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE}, block;

    *type = MPI_BYTE;
    *count = (int)bytes;
    if (bytes <= (size_t)1 << 30)
        return true;
    *count = 1;
    bool good = MPI_Type_contiguous(1 << 20, MPI_BYTE, &block) == MPI_SUCCESS &&
                MPI_Type_contiguous((int)(bytes >> 20), block, &parts[0]) == MPI_SUCCESS &&
                MPI_Type_create_struct(2, lengths, places, parts, type) == MPI_SUCCESS &&
                MPI_Type_commit(type) == MPI_SUCCESS;
    if (good) {
        MPI_Type_free(&block);
        MPI_Type_free(&parts[0]);
    }
    return good;
}

static void free_type(MPI_Datatype *type)
{
    if (*type != MPI_BYTE)
        MPI_Type_free(type);
}

_Static_assert(2 * sizeof(MPI_Request) <= sizeof(sherd_sending), "two requests fit");

static bool send(void *self, int to, const sherd_message *message, sherd_sending *sending)
{
    carrier *c = self;
    uint64_t length = message->body_bytes;
    MPI_Request request[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Datatype type;
    int count;

    memcpy(message->head, &length, sizeof length);
    bool good = MPI_Isend(message->head, (int)message->head_bytes, MPI_BYTE, to, HEAD_TAG, c->comm,
                          &request[0]) == MPI_SUCCESS;
    if (good && length) {
        good = type_of(message->body_bytes, &count, &type) &&
               MPI_Isend(message->body, count, type, to, BODY_TAG, c->comm, &request[1]) ==
                   MPI_SUCCESS;
        if (good)
            free_type(&type);
    }
    memcpy(sending, request, sizeof request);
    return good;
}

static bool sent(void *self, sherd_sending *sending)
{
    MPI_Request request[2];
    int head = 1, body = 1;

    (void)self;
    memcpy(request, sending, sizeof request);
    MPI_Test(&request[0], &head, MPI_STATUS_IGNORE);
    MPI_Test(&request[1], &body, MPI_STATUS_IGNORE);
    memcpy(sending, request, sizeof request);
    return head && body;
}

/* A body that has come as a whole: the message of its rank. */
static bool finish_body(carrier *c, int *from, sherd_message *out)
{
    for (int r = 0; r < c->ranks; r++) {
        int done = 0;
        if (!c->sender[r].busy)
            continue;
        /* One that nobody has room for ends with an error: it was longer than its room. */
        if (MPI_Test(&c->sender[r].request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done)
            continue;
        free(c->sender[r].unwanted);
        c->sender[r].unwanted = NULL;
        c->sender[r].busy = false;
        *from = r;
        *out = c->sender[r].message;
        return true;
    }
    return false;
}

/* The head announces a body: make room, and go on without it. */
static void await_body(carrier *c, int from, size_t head_bytes, size_t bytes,
                       const sherd_room *room)
{
    sender *s = &c->sender[from];
    MPI_Datatype type;
    int count;

    memcpy(s->head, c->head, head_bytes);
    s->message = (sherd_message){s->head, head_bytes, room->give(room->owner, from, bytes), bytes};
    s->busy = true;
    s->request = MPI_REQUEST_NULL;
    void *to = s->message.body ? s->message.body : (s->unwanted = malloc(bytes));
    if (!to || !type_of(bytes, &count, &type)) {
        s->message.body = NULL;
        MPI_Irecv(NULL, 0, MPI_BYTE, from, BODY_TAG, c->comm, &s->request);
        return;
    }
    MPI_Irecv(to, count, type, from, BODY_TAG, c->comm, &s->request);
    free_type(&type);
}

/* Whether a head lies in the buffer that may be looked at now. */
static bool has_head(carrier *c)
{
    int done = 0;

    if (c->held)
        return !c->sender[c->status.MPI_SOURCE].busy;
    if (!c->posted)
        c->posted = MPI_Irecv(c->head, SHERD_HEAD_BYTES, MPI_BYTE, MPI_ANY_SOURCE, HEAD_TAG,
                              c->comm, &c->request) == MPI_SUCCESS;
    if (!c->posted || MPI_Test(&c->request, &done, &c->status) != MPI_SUCCESS || !done)
        return false;
    c->posted = false;
    c->held = c->sender[c->status.MPI_SOURCE].busy;
    return !c->held;
}

static bool receive(void *self, int *from, sherd_message *out, const sherd_room *room)
{
    carrier *c = self;
    uint64_t length;
    int count;

    for (;;) {
        if (finish_body(c, from, out))
            return true;
        if (!has_head(c))
            return false;
        c->held = false;
        MPI_Get_count(&c->status, MPI_BYTE, &count);
        if (count < LEAST)
            continue; /* none of ours */
        memcpy(&length, c->head, sizeof length);
        if (length)
            await_body(c, c->status.MPI_SOURCE, (size_t)count, (size_t)length, room);
        else
            break;
    }
    *from = c->status.MPI_SOURCE;
    *out = (sherd_message){c->head, (size_t)count, NULL, 0};
    return true;
}

/* ---- opening and closing ---------------------------------------------------------------------------- */

static void close_carrier(void *self, bool well)
{
    carrier *c = self;
    int over = 1;

    MPI_Finalized(&over);
    if (c->posted && !over) {
        MPI_Cancel(&c->request);
        MPI_Wait(&c->request, MPI_STATUS_IGNORE);
    }
    /* To free it is collective: where ranks are lost it stays. */
    if (well && !over)
        MPI_Comm_free(&c->comm);
    free(c->sender);
    free(c);
}

static bool say(char *text, size_t room, int error, const char *what)
{
    char reason[MPI_MAX_ERROR_STRING] = "?";
    int length;

    MPI_Error_string(error, reason, &length);
    snprintf(text, room, "%s: %s: %s", own_name(), what, reason);
    return false;
}

bool sherd__mpi_carrier(sherd_carrier *out, MPI_Comm comm, char *text, size_t room)
{
    carrier *c = calloc(1, sizeof *c);
    int error;

    if (!c) {
        snprintf(text, room, "%s: out of memory", own_name());
        return false;
    }
    if ((error = MPI_Comm_dup(comm, &c->comm))) {
        free(c);
        return say(text, room, error, "no duplicate of the communicator");
    }
    MPI_Comm_set_errhandler(c->comm, MPI_ERRORS_RETURN);
    *out = (sherd_carrier){.version = SHERD_CARRIER_VERSION,
                           .name = own_name(),
                           .self = c,
                           .gather = gather,
                           .send = send,
                           .sent = sent,
                           .receive = receive,
                           .close = close_carrier};
    MPI_Comm_rank(c->comm, &out->rank);
    MPI_Comm_size(c->comm, &out->ranks);
    c->ranks = out->ranks;
    c->sender = calloc((size_t)c->ranks, sizeof *c->sender);
    if (c->sender)
        return true;
    snprintf(text, room, "%s: out of memory", own_name());
    close_carrier(c, false);
    return false;
}
