/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory runs out inside oneDNN: the process goes on, the call says so and keeps nothing half made,
 * and the next call of the same shape gives the same bits as ever.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "kernels/engine.h"
#include "starved.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 1 << 16, WORKSPACE = 1 << 21, X = SHERD__CONV_X, W = SHERD__CONV_W, Y };

static float a[ROOM], b[ROOM], bias[ROOM], made[2][ROOM];
static float *good; /* as `made`, in memory that all processes have */
static _Alignas(64) unsigned char workspace[WORKSPACE];

/* One kind of call; `out` has what it made. */
typedef struct subject {
    const char *name;
    sherd__product product;
    sherd__conv conv; /* of batch 0: it is a product */
    int tasks;
    sherd__conv_kind kind[2];
} subject;

#define CONV                                                                 \
    {                                                                        \
        2, 1, 16, 16, {1, 6, 7}, {1, 6, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, \
        {                                                                    \
            0, 1, 1                                                          \
        }                                                                    \
    }
/* x amid zeros, in several calls */
#define PARTS                                                                   \
    {                                                                           \
        22, 1, 2, 2, {1, 32, 24}, {1, 34, 24}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, \
        {                                                                       \
            0, 2, 1                                                             \
        }                                                                       \
    }

static const subject subjects[] = {
    {"primitive", .product = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 32, .n = 24, .k = 40}},
    {"primitive that adds",
     .product = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 32, .n = 24, .k = 40, .adds = true}},
    {"primitive with a bias",
     .product = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 32, .n = 24, .k = 40, .bias = true}},
    {"sgemm", .product = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 1, .n = 33, .k = 200}},
    {"sgemm of more",
     .product = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 70, .n = 250, .k = 260}},
    {"bf16", .product = {.dtype = SHERD_BF16, .result = SHERD_BF16, .m = 32, .n = 24, .k = 40}},
    {"forward", .conv = CONV, .tasks = 1, .kind = {SHERD__CONV_FORWARD}},
    {"gradient of x", .conv = CONV, .tasks = 1, .kind = {SHERD__CONV_BACKWARD_X}},
    {"both gradients", .conv = CONV, .tasks = 2,
     .kind = {SHERD__CONV_BACKWARD_X, SHERD__CONV_BACKWARD_W}},
    {"parts", .conv = PARTS, .tasks = 1, .kind = {SHERD__CONV_BACKWARD_W}},
};

static sherd__done convolve(sherd__engine *e, const subject *s)
{
    sherd__conv_task task[2];
    int64_t bytes = 0;

    for (int t = 0; t < s->tasks; t++) {
        task[t].kind = s->kind[t];
        task[t].array[X] = s->kind[t] == SHERD__CONV_BACKWARD_X ? made[t] : a;
        task[t].array[W] = s->kind[t] == SHERD__CONV_BACKWARD_W ? made[t] : bias;
        task[t].array[Y] = s->kind[t] == SHERD__CONV_FORWARD ? made[t] : b;
    }
    const sherd__conv_job job = {&s->conv, task, s->tasks, NULL, NULL};
    sherd__done done = sherd__conv_onednn_bytes(&bytes, e, &job);
    CHECK(bytes <= WORKSPACE);
    return done == SHERD__DONE ? sherd__conv_onednn(e, &job, workspace) : done;
}

static sherd__done compute(sherd__engine *e, const subject *s)
{
    memset(made, 0, sizeof made);
    return s->tasks ? convolve(e, s)
                    : sherd__product_onednn(e, &s->product, made[0], a, b,
                                            s->product.bias ? bias : NULL);
}

static void draw(void)
{
    float *array[] = {a, b, bias};

    good = mmap(NULL, sizeof made, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(good != MAP_FAILED);
    for (int i = 0; i < 3; i++)
        sherd__ref_f32.uniform(ROOM, array[i], -1, 1, sherd__philox_key(7, 1, (uint64_t)i), 0);
}

/* What has become of a try. */
enum { SAID = 1, WENT_ON, OVER, WRONG, KEPT, LEFT };

static bool is_as_ever(sherd__engine *e, const subject *s)
{
    return compute(e, s) == SHERD__DONE && memcmp(good, made, sizeof made) == 0;
}

/* A call whose n-th allocation of a kind fails; of STARVE_ALL, when its primitives are there. */
static int try_allocation(const subject *s, starving kind, long n, bool on)
{
    sherd__heap heap = {0};
    sherd__engine *e = sherd__engine_create(&heap);

    if (kind == STARVE_ALL && !is_as_ever(e, s))
        return WRONG;
    int kept = sherd__engine_kept(e);
    starve(kind, n, on);
    sherd__done done = compute(e, s);
    bool hit = starved();
    starve(STARVE_NEVER, 0, false);
    if (!hit)
        return done == SHERD__DONE && memcmp(good, made, sizeof made) == 0 ? OVER : WRONG;
    if (kind == STARVE_ALL && sherd__engine_kept(e) != kept)
        return KEPT;
    if (!is_as_ever(e, s))
        return WRONG;
    sherd__engine_destroy(e);
    return heap.live ? LEFT : done == SHERD__NO_MEMORY ? SAID : WRONG;
}

static bool is_here; /* oneDNN is loaded, in this process and those that it starts */

/* The first call of an engine, with so much more memory than there is now; in a process of its
 * own. */
static int try_limit(const subject *s, size_t room)
{
    sherd__heap heap = {0};
    sherd__engine *e = sherd__engine_create(&heap);
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit all, some;

    if (!file || fscanf(file, "%ld", &pages) != 1 || fclose(file) || getrlimit(RLIMIT_AS, &all))
        return WRONG;
    some = all;
    some.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + room;
    if (setrlimit(RLIMIT_AS, &some))
        return WRONG;
    sherd__done done = compute(e, s);
    if (setrlimit(RLIMIT_AS, &all))
        return WRONG;
    if (done == SHERD__DONE)
        return memcmp(good, made, sizeof made) == 0 ? WENT_ON : WRONG;
    /* later it computes: once is enough, since all is compiled then */
    if (done == SHERD__NO_MEMORY)
        return room || is_as_ever(e, s) ? SAID : WRONG;
    return is_here ? WRONG : SAID; /* without room for the library there is none */
}

/* What a process returned, or 100 and the signal that it died of. */
static int result_of(pid_t process)
{
    int status = 0;

    while (waitpid(process, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? 100 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether oneDNN does it here; `good` is what it makes. Found out by a process of its own too: oneDNN
 * keeps what it has compiled for the whole process. */
static bool is_done(const subject *s)
{
    fflush(NULL);
    pid_t process = CAN_STARVE ? fork() : -1;

    if (process == 0) {
        sherd__heap heap = {0};
        sherd__engine *e = sherd__engine_create(&heap);
        sherd__done done = compute(e, s);
        memcpy(good, made, sizeof made);
        sherd__engine_destroy(e);
        _exit(done == SHERD__DONE && heap.live == 0 ? OVER : done == SHERD__CANNOT ? SAID : WRONG);
    }
    int result = CAN_STARVE ? result_of(process) : SAID;
    CHECK(result == OVER || result == SAID);
    return result == OVER;
}

/* The n-th, for all n, when oneDNN has compiled what it needs: while it compiles it may end the
 * process, which is left to the room that there must be. */
static void fail_each(const subject *s, starving kind)
{
    for (int on = 0; on < 2; on++) {
        int result = SAID;
        for (long n = 1; result == SAID && n < 1000; n++) {
            result = try_allocation(s, kind, n, on);
            if (result != SAID && result != OVER)
                printf("%s: allocation %ld%s\n", s->name, n, on ? " and all after it" : "");
        }
        CHECK_EQ(result, OVER);
    }
}

/* Here, so that it has been compiled here. */
static bool is_compiled(const subject *s)
{
    sherd__heap heap = {0};
    sherd__engine *e = is_done(s) ? sherd__engine_create(&heap) : NULL;
    bool done = e && is_as_ever(e, s);

    sherd__engine_destroy(e);
    return done;
}

/* With more and more memory, until the call goes through. */
static void limit(const subject *s, size_t step)
{
    int result = SAID;

    for (size_t room = 0; room < 1 << 28 && result == SAID; room += step) {
        fflush(NULL);
        pid_t process = fork();
        if (process == 0)
            _exit(try_limit(s, room));
        result = result_of(process);
        if (result != SAID && result != WENT_ON)
            printf("%s: %zu bytes\n", s->name, room);
    }
    CHECK_EQ(result, WENT_ON);
}

/* The first of all: here oneDNN is not loaded yet. */
static void a_limit_below_the_library_ends_no_process(void)
{
    draw();
    if (is_done(&subjects[0]))
        limit(&subjects[0], 20 << 20);
}

/* What oneDNN would write to without having got it is not asked for. */
static void a_limit_ends_no_process(void)
{
    draw();
    is_here = sherd__onednn_is_here(); /* from here on */
    CHECK(is_here || !is_done(&subjects[0]));
    for (int i = 0; i < LEN(subjects); i++)
        if (is_done(&subjects[i]))
            limit(&subjects[i], 5 << 20);
}

static void exceptions_become_a_lack_of_memory(void)
{
    draw();
    for (int i = 0; i < LEN(subjects); i++)
        if (is_compiled(&subjects[i]))
            fail_each(&subjects[i], STARVE_NEW);
}

/* Not convolutions: they make memory objects in each call, for which there must be room. */
static void kept_products_run_out_of_memory(void)
{
    draw();
    for (int i = 0; i < LEN(subjects); i++)
        if (!subjects[i].tasks && is_compiled(&subjects[i]))
            fail_each(&subjects[i], STARVE_ALL);
}

static const check_test tests[] = {
    {TEST(a_limit_below_the_library_ends_no_process)},
    {TEST(a_limit_ends_no_process)},
    {TEST(exceptions_become_a_lack_of_memory)},
    {TEST(kept_products_run_out_of_memory)},
};

CHECK_MAIN(tests)
