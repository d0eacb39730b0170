/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Misuse of the public functions: NULL where something must be, numbers out of range, things of
 * another world. Each case is a line. It is tried three times: by all ranks, by rank 0 alone and by
 * the last rank alone, while the others do what is right. Every line must end in the answer that it
 * names, with the same verdict on all ranks, and the world must work afterwards. `make lint` sees
 * to it that every exported function is named in a test_*_misuse.c.
 */
#ifndef SHERD_TESTS_MISUSE_H
#define SHERD_TESTS_MISUSE_H

#include "check.h"
#include "sherd/status.h"
#include "sherd/tensor.h"

typedef struct misuse {
    sherd_world *world;
    bool wrong; /* this rank makes the mistakes */
    bool alone; /* and not all of them do */
} misuse;

/* In an argument: the wrong value on the ranks that make the mistake, the right one on the
 * others. */
#define BAD(wrong_value, right_value) (m->wrong ? (wrong_value) : (right_value))
#define NUL(right_value)              (m->wrong ? NULL : (right_value))

/* What a getter answers; it raises nothing. */
#define ANSWERS(condition) misuse_answers(m, (condition), __FILE__, __LINE__, #condition)
/* A local function refuses, and the world's error names it. */
#define REFUSES(wanted, call) \
    misuse_refuses(m, (int)(wanted), m->wrong ? (int)(call) : 1, __FILE__, __LINE__, #call)
/* There is no world to be told. */
#define ONLY_SAYS(wanted, call) ANSWERS((call) == (wanted))
/* A collective function gives all ranks the same status, and the error names it. */
#define ALL_REFUSE(wanted, call) \
    misuse_all_refuse(m, (int)(wanted), (int)(call), __FILE__, __LINE__, #call)
/* An expression (or what else raises the alarm) fails, and the check tells all ranks. */
#define FAILS(wanted, call) misuse_fails(m, wanted, ((void)(call), 0), __FILE__, __LINE__, #call)

static inline bool misuse_answers(misuse *m, bool good, const char *file, int line,
                                  const char *what)
{
    return !m->wrong || check_report(good, file, line, what);
}

/* Whether "rank 2: sherd_add: .." is about a function, or about one that it is a form of, as
 * sherd_conv_with is of sherd_conv. */
static inline bool misuse_is_about(const char *error, const char *function, int length)
{
    const char *name = strstr(error, ": sherd_");
    int n = name ? (int)strcspn(name + 2, ": (") : 0;

    return name && n <= length && strncmp(name + 2, function, (size_t)n) == 0 &&
           (n == length || function[n] == '_');
}

/*
 * "rank 2: sherd_add: ...", where `call` is "sherd_add(...)". Hooks before and after share a text,
 * and operators are applied by their names.
 */
static inline void misuse_names(misuse *m, const char *file, int line, const char *call)
{
    const char *error = sherd_world_error(m->world);
    int length = (int)strcspn(call, "(");
    bool good = misuse_is_about(error, call, length);

    if (strncmp(call, "sherd_module_hook", 17) == 0)
        good = misuse_is_about(error, call, 17);
    if (strncmp(call, "sherd_apply(", 12) == 0 || strncmp(call, "sherd_", 6) != 0)
        good = strstr(error, ": sherd_") != NULL;
    if (!check_report(good, file, line, call))
        fprintf(stderr, "  the error is \"%s\"\n", error);
}

static inline void misuse_refuses(misuse *m, int wanted, int status, const char *file, int line,
                                  const char *call)
{
    if (m->wrong && check_equal(status, wanted, file, line, call) && wanted)
        misuse_names(m, file, line, call);
}

static inline void misuse_all_refuse(misuse *m, int wanted, int status, const char *file, int line,
                                     const char *call)
{
    if (check_equal(status, wanted, file, line, call) && wanted)
        misuse_names(m, file, line, call);
}

static inline void misuse_fails(misuse *m, sherd_status wanted, int unused, const char *file,
                                int line, const char *call)
{
    (void)unused;
    if (check_equal(sherd_world_check(m->world), wanted, file, line, call) &&
        wanted == SHERD_EINVAL && !strstr(sherd_world_error(m->world), ": a saved-tensor hook: "))
        misuse_names(m, file, line, call);
}

/* All ranks can still do something together, and nothing is left to be told. */
static inline void misuse_works(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    CHECK_OK(sherd_world_check(world));
}

static inline void misuse_each_way(sherd_world *world, void (*scene)(misuse *m),
                                   void (*works)(sherd_world *world))
{
    int rank = sherd_world_rank(world), last = sherd_world_ranks(world) - 1;

    for (int way = 0; way < (last ? 3 : 1); way++) {
        misuse m = {.world = world, .alone = way > 0};
        m.wrong = way == 0 || rank == (way == 1 ? 0 : last);
        scene(&m);
        works(world);
    }
}

/* MISUSE(a_sentence) { cases } makes a test of that name. */
#define MISUSE_WORKS(name, works)                        \
    static void name##_somewhere(misuse *m);             \
    static void name(sherd_world *world)                 \
    {                                                    \
        misuse_each_way(world, name##_somewhere, works); \
    }                                                    \
    static void name##_somewhere(misuse *m)

#endif
