/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in other ranks' memory, and order between streams. A rank of the same process uses the
 * pointer itself, one of another process opens the driver's handle of the chunk. That takes the
 * driver some hundred microseconds, so what was opened stays so, until the device is closed.
 *
 * Words of a place: process (0: a place of nothing), offset, pointer to the chunk, the exporter's
 * GPU and context, whether there is a handle, the handle. Of a mark: process, event, whether there
 * is a handle, the handle.
 */
#include "inside.h"

#include "base/hash.h"

#include <string.h>
#include <unistd.h>

enum { PROCESS, OFFSET, CHUNK, GPU, CONTEXT, HAS_HANDLE, HANDLE };
enum { EVENT = 1, MARK_HAS_HANDLE, MARK_HANDLE };

_Static_assert(HANDLE + SHERD__HANDLE_WORDS <= SHERD__DEVICE_WORDS, "a place has its words");
_Static_assert(MARK_HANDLE + SHERD__HANDLE_WORDS <= SHERD__MARK_WORDS, "a mark has its words");

/* ---- what was opened of other processes ------------------------------------------------------ */

/* A chunk, or an event. */
typedef struct opened {
    int64_t process;
    sherd__cuda_handle handle;
    CUdeviceptr memory;
    CUevent event; /* NULL: it is a chunk */
} opened;

static uint64_t hash_of(const opened *o)
{
    uint64_t hash = (uint64_t)o->process;

    for (int i = 0; i < SHERD__HANDLE_WORDS; i++)
        hash = sherd__hash_word(hash, (uint64_t)o->handle.word[i]);
    return hash;
}

static bool is_same(const void *item, const void *key)
{
    const opened *a = item, *b = key;

    return a->process == b->process && memcmp(&a->handle, &b->handle, sizeof a->handle) == 0;
}

static void shut(const sherd__device *device, opened *o)
{
    if (device->deserted)
        ;
    else if (o->event)
        device->cuda.event_destroy(o->event);
    else if (o->memory)
        device->cuda.memory_close(o->memory);
    sherd__free(device->heap, o);
}

/* What another process has, opened now or earlier. NULL: noted; `tried`: only lack of memory is.
 * Handles of chunks and of events are never the same. */
static const opened *open_other(sherd__device *device, int64_t process, const int64_t *handle,
                                bool event, bool tried)
{
    opened key = {.process = process}, *o;

    memcpy(&key.handle, handle, sizeof key.handle);
    o = sherd__map_find(&device->opened, hash_of(&key), is_same, &key);
    if (o)
        return o;
    o = sherd__alloc(device->heap, 1, sizeof *o);
    if (!o) {
        sherd__device_lack(device, "out of memory for what other ranks have");
        return NULL;
    }
    *o = key;
    int result =
        event ? device->cuda.event_open(&o->event, o->handle)
              : device->cuda.memory_open(&o->memory, o->handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (tried ? result == 0
              : sherd__cuda_good(device, result, "opening another process's memory or event")) {
        if (sherd__map_add(&device->opened, hash_of(o), o))
            return o;
        sherd__device_lack(device, "out of memory for what other ranks have");
    } else {
        o->event = NULL;
        o->memory = 0;
    }
    shut(device, o);
    return NULL;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Make it known to other ranks, those of other processes too if the driver can do that. */
static bool share(sherd__device *device, sherd__chunk *chunk)
{
    int result = device->cuda.memory_share(&chunk->handle, chunk->data);

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return sherd__cuda_good(device, result, "sharing memory");
    chunk->has_handle = result == 0;
    chunk->shared = true;
    return true;
}

void sherd__device_export(sherd__device *device, int64_t word[SHERD__DEVICE_WORDS],
                          const sherd__device_block *block, int64_t offset)
{
    sherd__cuda_enter(device);
    memset(word, 0, SHERD__DEVICE_WORDS * sizeof *word);
    if (!block || device->failed)
        return;
    sherd__chunk *chunk = block->chunk;
    if (!chunk->shared && !share(device, chunk))
        return;
    word[PROCESS] = getpid();
    word[OFFSET] = block->offset + offset;
    word[CHUNK] = (int64_t)chunk->data;
    word[GPU] = device->number;
    word[CONTEXT] = (int64_t)(intptr_t)device->context;
    word[HAS_HANDLE] = chunk->has_handle;
    memcpy(word + HANDLE, &chunk->handle, sizeof chunk->handle);
}

/* Let this GPU read the memory of another one that this process uses. Returns what the driver
 * says. */
static int let_reach(sherd__device *device, const int64_t *word)
{
    int64_t gpu = word[GPU];
    uint64_t bit = gpu < 64 ? (uint64_t)1 << gpu : 0;

    if (gpu == device->number || (device->reached & bit))
        return 0;
    int result = device->cuda.context_reach((CUcontext)(intptr_t)word[CONTEXT], 0);
    if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        result = 0;
    if (result == 0)
        device->reached |= bit;
    return result;
}

/* The same; false: noted. */
static bool reach(sherd__device *device, const int64_t *word)
{
    int result = let_reach(device, word);

    if (result == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED)
        sherd__device_fail(device, "this machine does not let it read the memory of cuda:%d",
                           (int)word[GPU]);
    return result != CUDA_ERROR_PEER_ACCESS_UNSUPPORTED &&
           sherd__cuda_good(device, result, "reaching another GPU's memory");
}

const void *sherd__device_import(sherd__device *device, const int64_t word[SHERD__DEVICE_WORDS])
{
    CUdeviceptr chunk = (CUdeviceptr)word[CHUNK];

    sherd__cuda_enter(device);
    if (!word[PROCESS] || device->failed)
        return NULL;
    if (word[PROCESS] == getpid()) {
        if (!reach(device, word))
            return NULL;
    } else if (!word[HAS_HANDLE]) {
        sherd__device_fail(device, "its driver does not share memory between processes: let ranks "
                                   "be threads");
        return NULL;
    } else {
        const opened *o = open_other(device, word[PROCESS], word + HANDLE, false, false);
        if (!o)
            return NULL;
        chunk = o->memory;
    }
    return sherd__cuda_pointer(chunk + (CUdeviceptr)word[OFFSET]);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* An event that other processes may wait for, or if the driver has no such thing, one that only
 * ranks of this one can. */
static bool make_mark(sherd__device *device, int which)
{
    const sherd__cuda *cuda = &device->cuda;
    CUevent event = NULL;

    if (device->mark[which])
        return true;
    int result = cuda->event_create(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    bool shared = result == 0;
    if (shared) {
        result = cuda->event_share(&device->mark_handle[which], event);
        shared = result == 0;
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            cuda->event_destroy(event);
        else
            result = 0;
    } else if (result != CUDA_ERROR_OUT_OF_MEMORY) {
        result = cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    }
    if (!sherd__cuda_good(device, result, "making an event"))
        return false;
    device->mark[which] = event;
    device->mark_is_shared[which] = shared;
    return true;
}

void sherd__device_mark(sherd__device *device, int which, int64_t word[SHERD__MARK_WORDS])
{
    sherd__cuda_enter(device);
    memset(word, 0, SHERD__MARK_WORDS * sizeof *word);
    if (device->failed || !make_mark(device, which) ||
        !sherd__cuda_good(device, device->cuda.event_record(device->mark[which], device->stream),
                          "marking a point in the stream"))
        return;
    word[PROCESS] = getpid();
    word[EVENT] = (int64_t)(intptr_t)device->mark[which];
    word[MARK_HAS_HANDLE] = device->mark_is_shared[which];
    memcpy(word + MARK_HANDLE, &device->mark_handle[which], sizeof device->mark_handle[which]);
}

void sherd__device_await(sherd__device *device, const int64_t word[SHERD__MARK_WORDS])
{
    CUevent event = (CUevent)(intptr_t)word[EVENT];

    sherd__cuda_enter(device);
    if (!word[PROCESS] || device->failed)
        return;
    if (word[PROCESS] != getpid()) {
        if (!word[MARK_HAS_HANDLE]) {
            sherd__device_fail(device, "its driver does not share events between processes: let "
                                       "ranks be threads");
            return;
        }
        const opened *o = open_other(device, word[PROCESS], word + MARK_HANDLE, true, false);
        if (!o)
            return;
        event = o->event;
        device->awaits = true;
    }
    sherd__cuda_good(device, device->cuda.stream_await(device->stream, event, 0),
                     "waiting for another rank");
}

bool sherd__device_reaches(sherd__device *device, const int64_t place[SHERD__DEVICE_WORDS],
                           const int64_t mark[SHERD__MARK_WORDS])
{
    sherd__cuda_enter(device);
    if (!place[PROCESS] || !mark[PROCESS] || device->failed)
        return false;
    if (place[PROCESS] == getpid())
        return let_reach(device, place) == 0;
    return place[HAS_HANDLE] && mark[MARK_HAS_HANDLE] &&
           open_other(device, place[PROCESS], place + HANDLE, false, true) &&
           open_other(device, mark[PROCESS], mark + MARK_HANDLE, true, true);
}

void sherd__device_free_peers(sherd__device *device)
{
    size_t cursor = 0;
    opened *o;

    while ((o = sherd__map_next(&device->opened, &cursor)))
        shut(device, o);
    sherd__map_clear(&device->opened);
    for (int i = 0; i < SHERD__DEVICE_MARKS; i++)
        if (device->mark[i] && !device->deserted)
            device->cuda.event_destroy(device->mark[i]);
}
