/* SPDX-License-Identifier: Apache-2.0 */
/* What comes out of a call as an exception is caught, released, and leaves the rest as it was. */
#define CHECK_PURE
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <unwind.h>

#include "base/catch.h"

/* An exception as a language would raise it, but for its handler. */
typedef struct thrown {
    struct _Unwind_Exception head;
    int *gone;
} thrown;

static void clean_up(_Unwind_Reason_Code why, struct _Unwind_Exception *head)
{
    thrown *t = (thrown *)(void *)head;

    (void)why;
    ++*t->gone;
    free(t);
}

typedef struct task {
    int result, depth, gone;
} task;

static int raise_it(task *t)
{
    thrown *e = calloc(1, sizeof *e);

    if (!e)
        return 99;
    e->head.exception_cleanup = clean_up;
    e->gone = &t->gone;
    (void)_Unwind_RaiseException(&e->head);
    free(e); /* nobody takes it */
    return 98;
}

static int go_down(task *t, int depth)
{
    volatile int here = depth; /* a frame of its own */

    if (here == 0)
        return t->result >= 0 ? t->result : raise_it(t);
    return go_down(t, here - 1) + 0 * here;
}

static int run(void *context)
{
    task *t = context;

    return go_down(t, t->depth);
}

static void what_a_call_returns_comes_back(void)
{
    for (int result = 0; result < 300; result += 37)
        CHECK_EQ(sherd__catch(run, &(task){.result = result, .depth = 3}), result);
}

static void an_exception_is_caught_and_gone(void)
{
    task t = {.result = -1};
    volatile long before = 12345, sum = 0;

    if (!sherd__catches_thrown())
        return;
    for (t.depth = 0; t.depth < 200; t.depth++) {
        CHECK_EQ(sherd__catch(run, &t), SHERD__THROWN);
        sum += before + t.depth;
    }
    CHECK_EQ(t.gone, 200);
    CHECK_EQ(sum, 200 * before + 199 * 100);
}

static int run_inside(void *context)
{
    task *t = context;

    return 5 + sherd__catch(run, t);
}

static void the_innermost_takes_it(void)
{
    task t = {.result = -1, .depth = 2};

    if (sherd__catches_thrown())
        CHECK_EQ(sherd__catch(run_inside, &t), 5 + SHERD__THROWN);
}

static void *many(void *context)
{
    task t = {.result = -1, .depth = 5};
    int *wrong = context;

    for (int i = 0; i < 200; i++)
        *wrong += sherd__catch(run, &t) != SHERD__THROWN;
    *wrong += t.gone != 200;
    return NULL;
}

static void threads_catch_their_own(void)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    int wrong[THREADS] = {0};

    if (!sherd__catches_thrown())
        return;
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&thread[i], NULL, many, &wrong[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK_EQ(pthread_join(thread[i], NULL), 0);
        CHECK_EQ(wrong[i], 0);
    }
}

static int exits(void *context)
{
    pthread_exit(context);
}

static void *end_inside(void *context)
{
    (void)sherd__catch(exits, context);
    return NULL;
}

static void a_thread_that_ends_inside_ends(void)
{
    int mark;
    pthread_t thread;
    void *result = NULL;

    CHECK_EQ(pthread_create(&thread, NULL, end_inside, &mark), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    CHECK(result == &mark);
}

static const check_test tests[] = {
    {TEST(what_a_call_returns_comes_back)}, {TEST(an_exception_is_caught_and_gone)},
    {TEST(the_innermost_takes_it)},         {TEST(threads_catch_their_own)},
    {TEST(a_thread_that_ends_inside_ends)},
};

CHECK_MAIN(tests)
