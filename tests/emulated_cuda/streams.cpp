/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events. A stream is a queue; who waits for it does its work. Who waits for an event,
 * itself or in the queue of another stream, does the work that was queued before it. An event that
 * other processes know counts in memory that they share; when they wait for it, a thread of its own
 * process, which there is as long as such events are, does its stream's work.
 */
#include "driver.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

/* What other processes see of an event: how often it was recorded, how often that was reached, and
 * how far somebody waits for it. */
struct counts {
    std::atomic<int64_t> recorded, reached, wanted;
};

/* A piece of work; false: it cannot be done yet, what it waits for has not come. */
typedef std::function<bool()> task;

struct CUstream_st {
    CUcontext context;
    std::deque<task> queue;
    int64_t queued = 0, done = 0;
    bool busy = false; /* a thread does its work */
};

struct CUevent_st {
    CUstream stream = nullptr; /* NULL: never recorded */
    int64_t place = 0;         /* so much of the stream's work comes before it */
    bool shares = false;       /* made for other processes */
    bool is_other = false;     /* opened */
    counts *count = nullptr;
    int fd = -1;
    shared_name name = {};
};

namespace
{

/* The thread that does what other processes wait for. */
struct helper {
    std::thread thread;
    bool ends = false;
};

struct streams {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<CUstream> streams;
    std::set<CUevent> events;
    std::vector<CUstream> ended; /* whose place in memory no other one takes */
    struct helper *helper = nullptr;
    pid_t helped = 0; /* the process that has it */
    int known = 0;    /* events of this process that others know */
};

streams &all()
{
    static streams *s = new streams;
    return *s;
}

/* Do a stream's work up to a place, as far as it can be done; another thread may be at it. Whether
 * all of it is. */
bool try_until(std::unique_lock<std::mutex> &lock, CUstream stream, int64_t place)
{
    streams &s = all();

    while (s.streams.count(stream) && stream->done < place) {
        if (stream->busy)
            return false;
        stream->busy = true;
        task *work = &stream->queue.front(); /* what is pushed leaves it where it is */
        lock.unlock();
        bool done = (*work)();
        lock.lock();
        stream->busy = false;
        if (!done)
            return false;
        stream->queue.pop_front();
        stream->done++;
        s.changed.notify_all();
    }
    return true;
}

/* The same, and wait for the rest. */
void run_until(std::unique_lock<std::mutex> &lock, CUstream stream, int64_t place)
{
    while (!try_until(lock, stream, place))
        all().changed.wait_for(lock, std::chrono::microseconds(50));
}

void push(CUstream stream, task work)
{
    stream->queue.push_back(std::move(work));
    stream->queued++;
}

/* Do what other processes wait for. */
void help(const helper *me)
{
    streams &s = all();

    for (;; std::this_thread::sleep_for(std::chrono::microseconds(100))) {
        std::unique_lock<std::mutex> lock(s.mutex);
        if (me->ends)
            return;
        std::vector<std::pair<CUstream, int64_t>> wanted; /* the set may change meanwhile */
        for (CUevent event : s.events)
            if (event->count && !event->is_other && event->stream &&
                event->count->wanted > event->count->reached)
                wanted.emplace_back(event->stream, event->place);
        for (const auto &[stream, place] : wanted)
            try_until(lock, stream, place);
    }
}

/* One more event that others know. A process that was forked has no thread yet. */
void begin_help()
{
    streams &s = all();

    if (s.helped != getpid()) {
        s.helped = getpid();
        s.helper = nullptr;
        s.known = 0;
    }
    if (s.known++ > 0)
        return;
    s.helper = new helper;
    s.helper->thread = std::thread(help, s.helper);
}

/* One less. */
void end_help(std::unique_lock<std::mutex> &lock)
{
    streams &s = all();

    if (s.helped != getpid() || --s.known > 0)
        return;
    helper *last = s.helper;
    s.helper = nullptr;
    last->ends = true;
    lock.unlock();
    last->thread.join();
    delete last;
}

/* Whether another process has reached it; if not, it is told that somebody waits. */
bool has_reached(counts *count, int64_t ticket)
{
    int64_t wanted = count->wanted;

    while (wanted < ticket && !count->wanted.compare_exchange_weak(wanted, ticket))
        ;
    return count->reached >= ticket;
}

} // namespace

bool queue_work(CUstream stream, std::function<void()> work)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (!s.streams.count(stream) || stream->context != context_here())
        return false;
    push(stream, [work = std::move(work)] {
        work();
        return true;
    });
    return true;
}

int streams_left()
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    return static_cast<int>(s.streams.size() + s.events.size());
}

EXPORT int cuStreamCreate(CUstream *out, unsigned)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (call_fails())
        return failure();
    if (!context_here())
        return ERROR_INVALID_CONTEXT;
    *out = new CUstream_st;
    (*out)->context = context_here();
    s.streams.insert(*out);
    return 0;
}

void wait_for_context()
{
    streams &s = all();
    std::unique_lock<std::mutex> lock(s.mutex);

    for (CUstream stream : std::set<CUstream>(s.streams))
        if (stream->context == context_here())
            run_until(lock, stream, stream->queued);
}

EXPORT int cuStreamSynchronize(CUstream stream)
{
    streams &s = all();
    std::unique_lock<std::mutex> lock(s.mutex);

    if (!s.streams.count(stream))
        return ERROR_INVALID_HANDLE;
    run_until(lock, stream, stream->queued);
    return call_fails() ? failure() : 0;
}

EXPORT int cuStreamQuery(CUstream stream)
{
    streams &s = all();
    std::unique_lock<std::mutex> lock(s.mutex);

    if (!s.streams.count(stream))
        return ERROR_INVALID_HANDLE;
    if (!try_until(lock, stream, stream->queued))
        return CUDA_ERROR_NOT_READY;
    return call_fails() ? failure() : 0;
}

EXPORT int cuStreamDestroy_v2(CUstream stream)
{
    streams &s = all();
    std::unique_lock<std::mutex> lock(s.mutex);

    if (!s.streams.count(stream))
        return ERROR_INVALID_HANDLE;
    run_until(lock, stream, stream->queued);
    s.streams.erase(stream);
    for (CUevent event : s.events)
        if (event->stream == stream)
            event->stream = nullptr;
    s.ended.push_back(stream);
    return 0;
}

EXPORT int cuEventCreate(CUevent *out, unsigned flags)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (call_fails())
        return failure();
    if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
        return ERROR_INVALID_VALUE;
    CUevent event = new CUevent_st;
    event->shares = flags & CU_EVENT_INTERPROCESS;
    s.events.insert(event);
    *out = event;
    return 0;
}

EXPORT int cuEventDestroy_v2(CUevent event)
{
    streams &s = all();
    std::unique_lock<std::mutex> lock(s.mutex);

    if (!s.events.erase(event))
        return ERROR_INVALID_HANDLE;
    bool known = event->fd >= 0 && event->name.process == getpid();
    /* Work that is queued may still count in its memory: that stays. */
    if (event->fd >= 0)
        close(event->fd);
    delete event;
    if (known)
        end_help(lock);
    return 0;
}

EXPORT int cuEventRecord(CUevent event, CUstream stream)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (call_fails())
        return failure();
    if (!s.events.count(event) || !s.streams.count(stream) || stream->context != context_here())
        return ERROR_INVALID_HANDLE;
    counts *count = event->count;
    int64_t ticket = count ? ++count->recorded : 0;
    push(stream, [count, ticket] {
        if (count)
            count->reached = ticket;
        return true;
    });
    event->stream = stream;
    event->place = stream->queued;
    return 0;
}

EXPORT int cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (call_fails())
        return failure();
    if (!s.events.count(event) || !s.streams.count(stream) || stream->context != context_here())
        return ERROR_INVALID_HANDLE;
    if (event->is_other) {
        counts *count = event->count;
        int64_t ticket = count->recorded;
        push(stream, [count, ticket] { return has_reached(count, ticket); });
    } else if (event->stream) {
        CUstream before = event->stream;
        int64_t place = event->place;
        push(stream, [before, place] {
            std::unique_lock<std::mutex> held(all().mutex);
            return try_until(held, before, place);
        });
    }
    return 0;
}

EXPORT int cuIpcGetEventHandle(sherd__cuda_handle *out, CUevent event)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);

    if (call_fails())
        return failure();
    if (!s.events.count(event) || !event->shares)
        return ERROR_INVALID_HANDLE;
    if (!event->count) {
        void *data;
        event->fd = shared_create(&data, sizeof(counts), &event->name);
        if (event->fd < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        event->count = new (data) counts{};
        begin_help();
    }
    memcpy(out, &event->name, sizeof *out);
    return 0;
}

EXPORT int cuIpcOpenEventHandle(CUevent *out, sherd__cuda_handle handle)
{
    streams &s = all();
    std::lock_guard<std::mutex> lock(s.mutex);
    shared_name name;
    void *data;

    if (call_fails())
        return failure();
    memcpy(&name, &handle, sizeof name);
    if (name.process == getpid())
        return ERROR_INVALID_CONTEXT;
    if (!shared_open(&data, &name))
        return ERROR_INVALID_HANDLE;
    CUevent event = new CUevent_st;
    event->is_other = true;
    event->count = static_cast<counts *>(data);
    s.events.insert(event);
    *out = event;
    return 0;
}
