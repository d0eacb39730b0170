/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Other ranks' memory and streams: two ranks, as threads on one GPU or on two, or as processes,
 * write in turn what the other one has read. Each waits for the other by marks alone; on the CPU
 * they only tell each other words, as in a call of the arena.
 */
#define CHECK_PURE
#include "device.h"
#include "device/dnn.h"
#include "device/fourier.h"

#include <pthread.h>
#include <stdatomic.h>

enum { RANKS = 2, TURNS = 20, BYTES = 100000, OFFSET = 4096 };

/* What ranks tell each other, where all of them see it. */
typedef struct board {
    atomic_int told[RANKS], wrong;
    int64_t place[RANKS][SHERD__DEVICE_WORDS];
    int64_t mark[RANKS][TURNS][2][SHERD__MARK_WORDS];
} board;

typedef struct part {
    board *board;
    const char *gpu;
    int rank;
} part;

/* Wait, on the CPU, until the other rank has told as much as this one. */
static void meet(const part *p)
{
    int mine = ++p->board->told[p->rank];

    while (p->board->told[1 - p->rank] < mine)
        usleep(20);
}

/*
 * A turn: write into one's own memory, tell a mark; copy the other's after its mark, tell a second
 * one, after which the other may write again.
 */
static void take_turns(const part *p, sherd__device *device, sherd__device_block *own,
                       sherd__device_block *copy)
{
    static unsigned char back[RANKS][BYTES];
    board *b = p->board;
    int other = 1 - p->rank;

    sherd__device_export(device, b->place[p->rank], own, OFFSET);
    meet(p);
    for (int turn = 0; turn < TURNS; turn++) {
        sherd__device_set(device, (char *)own->data + OFFSET, turn * RANKS + p->rank, BYTES);
        sherd__device_mark(device, 0, b->mark[p->rank][turn][0]);
        meet(p);
        const void *theirs = sherd__device_import(device, b->place[other]);
        CHECK(theirs);
        sherd__device_await(device, b->mark[other][turn][0]);
        sherd__device_move(device, copy->data, theirs, BYTES);
        sherd__device_mark(device, 1, b->mark[p->rank][turn][1]);
        meet(p);
        sherd__device_await(device, b->mark[other][turn][1]);
        if (turn % 5 == 4 || p->rank) { /* rank 0 runs ahead of itself */
            if (!sherd__device_download(device, back[p->rank], copy->data, BYTES))
                b->wrong++;
            for (int i = 0; i < BYTES; i++)
                b->wrong += back[p->rank][i] != turn * RANKS + other;
        }
    }
    sherd__device_wait(device);
    meet(p); /* nobody closes what the other one reads */
}

static void *run_rank(void *argument)
{
    const part *p = argument;
    sherd__heap heap = {0};

    check_rank = p->rank;
    sherd__device *device = open_gpu(&heap, p->gpu, p->rank);
    if (!device)
        exit(1);
    sherd__device_block *own = sherd__device_take(device, OFFSET + BYTES);
    sherd__device_block *copy = sherd__device_take(device, BYTES);
    take_turns(p, device, own, copy);
    sherd__device_give(device, own);
    sherd__device_give(device, copy);
    close_gpu(&heap, device);
    return NULL;
}

static board *shared_board(void)
{
    return mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void run_threads(const char *gpu)
{
    board *b = shared_board();
    part p[RANKS] = {{b, gpu, 0}, {b, gpu, 1}};
    pthread_t thread[RANKS];

    choose_cuda();
    for (int r = 0; r < RANKS; r++)
        CHECK_EQ(pthread_create(&thread[r], NULL, run_rank, &p[r]), 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(thread[r], NULL);
    CHECK_EQ(b->wrong, 0);
    CHECK_EQ(left_of_cuda(), 0);
    munmap(b, sizeof *b);
}

static void ranks_that_share_a_gpu_read_each_other(void)
{
    run_threads("cuda:0");
}

static void ranks_on_two_gpus_read_each_other(void)
{
    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_DEVICES", "2", 1);
    run_threads("cuda");
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
}

/* In processes of their own, which have not used CUDA before they were forked. */
static void ranks_as_processes_read_each_other(void)
{
    board *b = shared_board();

    for (int r = 0; r < RANKS; r++) {
        pid_t pid = fork();
        if (pid == 0) {
            part p = {b, "cuda:0", r};
            run_rank(&p);
            _exit(atomic_load(&check_state->failures) || left_of_cuda() ? 1 : 0);
        }
        CHECK(pid > 0);
    }
    for (int r = 0; r < RANKS; r++) {
        int status = 1;
        CHECK(wait(&status) > 0);
        CHECK_EQ(status, 0);
    }
    CHECK_EQ(b->wrong, 0);
    munmap(b, sizeof *b);
}

static bool is_over(const void *of)
{
    (void)of;
    return true;
}

/* Tell a mark, and live on. */
static void be_an_owner(board *b)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda:0", 0);

    if (device)
        sherd__device_mark(device, 0, b->mark[0][0][0]);
    atomic_store(&b->told[0], 1);
    for (;;)
        pause();
}

/* What has libraries that, once they are closed, wait for all that is queued. */
static void use_libraries(sherd__device *device, char *data)
{
    const sherd__product p = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 4, .n = 4, .k = 4};
    const sherd__fft fft = {.kind = SHERD__FFT_COMPLEX, .outer = 1, .n = 4, .inner = 1, .scale = 1};
    const sherd__conv conv = {1,         1,         1,         1,         {1, 1, 4},
                              {1, 1, 4}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0}};

    sherd__device_multiply(device, &p, 1, data, data + 1024, data + 2048, NULL);
    sherd__device_multiply(device, &p, 1, data, data + 1024, data + 2048, data + 3072);
    CHECK(sherd__device_transforms(device, SHERD_F32, &fft));
    CHECK(sherd__device_convolves(device, SHERD_F32, &conv, SHERD__CONV_FORWARD));
    CHECK(sherd__device_wait(device));
}

/* Its owner ends before it reaches the mark that this one's stream waits for. */
static void survive(board *b)
{
    sherd__heap heap = {0};
    pid_t owner = fork();

    if (owner == 0)
        be_an_owner(b);
    while (owner > 0 && !atomic_load(&b->told[0]))
        usleep(1000);
    sherd__device *device = open_gpu(&heap, "cuda:0", 1);
    sherd__device_block *block = device ? sherd__device_take(device, 4096) : NULL;
    int64_t back = 0;
    if (block) {
        use_libraries(device, block->data);
        sherd__device_await(device, b->mark[0][0][0]);
    }
    CHECK_EQ(kill(owner, SIGKILL), 0);
    CHECK_EQ(waitpid(owner, NULL, 0), owner);
    if (!CHECK(block))
        return;
    sherd__device_watch(device, is_over, b);
    sherd__device_set(device, block->data, 0, 8);
    CHECK(!sherd__device_download(device, &back, block->data, 8));
    const char *fault = sherd__device_fault(device);
    CHECK(fault && strstr(fault, "the process of another rank has ended"));
    CHECK(!sherd__device_wait(device));
    sherd__device_give(device, block);
    sherd__device_close(device);
    CHECK_EQ(heap.live, 0);
}

static void a_process_that_ended_is_not_waited_for(void)
{
    board *b = shared_board();
    int status = 1;
    pid_t pid = is_emulated() ? fork() : -1;

    if (pid == 0) {
        survive(b);
        _exit(atomic_load(&check_state->failures) ? 1 : 0);
    }
    if (is_emulated()) {
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
    }
    munmap(b, sizeof *b);
}

static void a_place_of_nothing_is_nothing(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    int64_t place[SHERD__DEVICE_WORDS], mark[SHERD__MARK_WORDS] = {0};

    if (!device)
        return;
    sherd__device_export(device, place, NULL, 0);
    CHECK(!sherd__device_import(device, place));
    sherd__device_await(device, mark);
    close_gpu(&heap, device);
}

static void gpus_that_do_not_reach_each_other_are_told(void)
{
    sherd__heap heap = {0};
    int64_t place[SHERD__DEVICE_WORDS];

    if (!is_emulated())
        return;
    setenv("SHERD_EMULATED_CUDA_DEVICES", "2", 1);
    setenv("SHERD_EMULATED_CUDA_APART", "1", 1);
    sherd__device *one = open_gpu(&heap, "cuda:1", 0), *zero = open_gpu(&heap, "cuda:0", 0);
    if (!one || !zero)
        return;
    sherd__device_export(one, place, sherd__device_take(one, 100), 0);
    CHECK(!sherd__device_import(zero, place));
    const char *fault = sherd__device_fault(zero);
    CHECK_TEXT(fault ? fault : "",
               "cuda:0: this machine does not let it read the memory of cuda:1");
    sherd__device_close(zero);
    close_gpu(&heap, one);
    unsetenv("SHERD_EMULATED_CUDA_APART");
    unsetenv("SHERD_EMULATED_CUDA_DEVICES");
    CHECK_EQ(left_of_cuda(), 0);
}

/* As if another process had told it, whose memory can not be opened. */
static void what_cannot_be_opened_is_a_fault(void)
{
    for (int mark = 0; mark < 2 && is_emulated(); mark++)
        for (int handle = 0; handle < 2; handle++) {
            sherd__heap heap = {0};
            sherd__device *device = open_gpu(&heap, "cuda", 0);
            int64_t word[SHERD__DEVICE_WORDS] = {0};
            if (!device)
                return;
            if (mark)
                sherd__device_mark(device, 0, word);
            else
                sherd__device_export(device, word, sherd__device_take(device, 100), 0);
            word[0]++; /* the process */
            if (!handle)
                word[mark ? 2 : 5] = 0; /* it has none */
            if (mark)
                sherd__device_await(device, word);
            else
                CHECK(!sherd__device_import(device, word));
            const char *fault = sherd__device_fault(device);
            const char *says = handle ? "opening another process's memory or event"
                                      : "let ranks be "
                                        "threads";
            CHECK(fault && strstr(fault, says));
            sherd__device_close(device);
            CHECK_EQ(heap.live, 0);
            CHECK_EQ(left_of_cuda(), 0);
        }
}

/* Telling others of memory and of a mark, and waiting for it, as another rank would. */
static void tell_and_wait(sherd__device *device, const sherd__device_block *block)
{
    int64_t place[SHERD__DEVICE_WORDS], mark[SHERD__MARK_WORDS];

    sherd__device_export(device, place, block, 0);
    CHECK(!place[0] || sherd__device_import(device, place) == block->data);
    sherd__device_mark(device, 0, mark);
    sherd__device_await(device, mark);
}

/* Each call in turn lacks memory: that is told, and the next time all is there, for other processes
 * too. */
static void lack_of_memory_is_of_the_moment(void)
{
    const int told = is_emulated() ? 5 : 0; /* two handles, an event made, put and awaited */
    int at = 0;

    for (bool again = is_emulated(); again; at++) {
        sherd__heap heap = {0};
        sherd__device *device = open_gpu(&heap, "cuda", 0);
        sherd__device_block *block = device ? sherd__device_take(device, 100) : NULL;
        int64_t place[SHERD__DEVICE_WORDS], mark[SHERD__MARK_WORDS];
        if (!block)
            return;
        lack_call(at);
        tell_and_wait(device, block);
        fail_call(-1);
        again = sherd__device_lacked(device) != NULL;
        tell_and_wait(device, block);
        sherd__device_export(device, place, block, 0);
        sherd__device_mark(device, 0, mark);
        CHECK(place[0] && place[5] && mark[0] && mark[2]); /* with handles */
        sherd__device_give(device, block);
        close_gpu(&heap, device);
        CHECK_EQ(left_of_cuda(), 0);
    }
    CHECK_EQ(at, told ? told + 1 : 0);
}

/* Ranks as processes first: the others use CUDA in this one. */
static const check_test tests[] = {
    {TEST(ranks_as_processes_read_each_other)},
    {TEST(a_process_that_ended_is_not_waited_for)},
    {TEST(ranks_that_share_a_gpu_read_each_other)},
    {TEST(ranks_on_two_gpus_read_each_other)},
    {TEST(a_place_of_nothing_is_nothing)},
    {TEST(gpus_that_do_not_reach_each_other_are_told)},
    {TEST(what_cannot_be_opened_is_a_fault)},
    {TEST(lack_of_memory_is_of_the_moment)},
};
CHECK_MAIN(tests)
