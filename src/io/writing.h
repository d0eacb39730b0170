/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is being written: at once (write.c), or by a thread (later.c). */
#ifndef SHERD__IO_WRITING_H
#define SHERD__IO_WRITING_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "io/file.h"
#include "tensor/tensor.h"

/* A copy of this rank's rows of a tensor, and where they go. */
typedef struct sherd__copy {
    sherd__block *block;
    int64_t bytes, at;
} sherd__copy;

struct sherd_writing {
    const char *function;
    sherd_world *world;
    char *path, *part;              /* `part` is the name it has until it is complete */
    const sherd_named_tensor *list; /* [header.entries] */
    int64_t *spread;                /* [header.entries]: a rank has it distributed */
    sherd__header header;
    int64_t bytes; /* of all tensors */
    int fd;        /* -1 = could not be opened */
    bool made;     /* by this rank: PATH.part is this job's, and is there */
    bool known;    /* and can be told from another file of that name */
    sherd_status status;
    /* Of one that is written later: */
    bool later, begun;
    pid_t process;     /* that has begun it */
    sherd__copy *copy; /* [copies] */
    int copies, room;
    pthread_t thread;
    bool started;           /* the thread is there, and is to be joined */
    atomic_bool stop, done; /* asked to stop; all is written, or it has failed */
    int error;              /* the errno of that; 0: none */
    sherd_writing *next;    /* of the world's */
};

/* ---- PATH.part (part.c); failures go into w->status ------------------------------------------ */

/* Rank 0 makes it, with its header and its full length, and locks it. */
void sherd__part_make(sherd_writing *w, const char *header, size_t bytes);
/* Other ranks open it. */
void sherd__part_open(sherd_writing *w);
/* The system's error, by errno. */
void sherd__part_fail(sherd_writing *w);
/* Rank 0 gives it its name, on disk too. */
void sherd__part_rename(sherd_writing *w);
/* Remove it if it is this rank's and still there; close it, and free the names. */
void sherd__part_drop(sherd_writing *w);

/* ---- what ranks agree on (agreed.c); collective ---------------------------------------------- */

/* All ranks go on, or none. False: w->status says why not. */
bool sherd__write_agree(sherd_writing *w, uint64_t arguments);
/*
 * All ranks have passed the same thing: `kind` names it, `text` describes it. If not, the error
 * shows both texts, shortened.
 */
bool sherd__write_agree_on(sherd_writing *w, uint64_t hash, const char *kind, const char *text);
/* Whether all ranks know the tensor, by its layout and by the deed that made it. */
bool sherd__write_of_all(const sherd_tensor *t);
/* All headers are equal, and tensors are the same. The error is of the first that is not. */
bool sherd__write_agree_header(sherd_writing *w, const char *text, size_t bytes);
/*
 * All ranks have written their parts: the file gets its name; the second function also checks that
 * it is the same.
 */
void sherd__write_name(sherd_writing *w);
sherd_status sherd__file_name(sherd_writing *w);

/* ---- writing later (later.c) ----------------------------------------------------------------- */

/* NULL: no memory. */
sherd_writing *sherd__later_create(sherd_world *world);
/* Whether this rank is still writing to a path. */
bool sherd__later_has(const sherd_world *world, const char *path);
/* Copy what is to be written. */
void sherd__later_keep(sherd_writing *w, const void *data, int64_t bytes, int64_t at);
/* Write it from here on; without a thread, at once. */
void sherd__later_start(sherd_writing *w);
/* Give up one that has not started, and free it; or one that has been joined. */
void sherd__later_destroy(sherd_writing *w);

#endif
