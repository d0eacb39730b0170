/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules of the arena: each with the file of src/world that keeps it. The model keeps each in
 * one place, where it asks `keeps(x, RULE_...)`; a run with a rule taken away must go wrong
 * (test_world_model.c).
 */
#ifndef MODEL_RULES_H
#define MODEL_RULES_H

#include "machine.h"

/* clang-format off */
#define RULES(X)                                                                                 \
    X(PROGRESS,         "wait.c",     "every round progresses all open calls")                   \
    X(IN_MEETING,       "wait.c",     "a meeting progresses them too")                           \
    X(CALM,             "wait.c",     "a meeting is not ended by the alarm")                     \
    X(UNSETTLED,        "wait.c",     "a wait that the alarm ended settles nothing")             \
    X(EARLIEST,         "progress.c", "`left` is the earliest unfinished call")                  \
    X(LEFT_LAST,        "progress.c", "`left` is stored after the last read and write")          \
    X(ALL_WROTE,        "progress.c", "a call in which peers write ends when they have left")    \
    X(DATALESS,         "call.c",     "a rank without data publishes and leaves")                \
    X(SLOT,             "call.c",     "a slot waits for its readers")                            \
    X(SOURCE_FILLED,    "call.c",     "a source in flight is awaited")                           \
    X(RESULT_SETTLED,   "call.c",     "a result is settled before it is filled")                 \
    X(CARRIED,          "call.c",     "what a record carries has no ticket")                     \
    X(UNION,            "ticket.c",   "a ticket keeps all readers so far")                       \
    X(OWN_CALLS,        "ticket.c",   "a write waits for the rank's own open calls")             \
    X(NUMBERS,          "arena.h",    "numbers of calls never come again")                       \
    X(NUMBER_LAST,      "record.c",   "the number is the last of a record that is stored")       \
    X(HISTORY,          "record.c",   "a record has the history in it")                          \
    X(NEWER,            "record.c",   "a newer number is an error")                              \
    X(RELEASE_NUMBER,   "record.c",   "the number is stored with release order")                 \
    X(RELEASE_LEFT,     "progress.c", "`left` is stored with release order")                     \
    X(COMPARED,         "meet.c",     "a check compares counts and histories")                   \
    X(LOWERED_FIRST,    "meet.c",     "the alarm is lowered before the verdict")                 \
    X(TOGETHER,         "meet.c",     "a failed check is left together")                         \
    X(STAYS,            "meet.c",     "who checks waits for those that agree")                   \
    X(DROPPED,          "meet.c",     "a failed check drops open calls")                         \
    X(ONE_SWAP,         "meet.c",     "a verdict is one swap")                                   \
    X(DEATH_APART,      "alarm.c",    "death is a word of its own")                              \
    X(NO_LATE_ALARM,    "record.c",   "who has arrived raises nothing")                          \
    X(ABSENT,           "stuck.c",    "who waits looks at arrivals")                             \
    X(HELD_UP,          "stuck.c",    "... and through a rank at the meeting")                   \
    X(MISFIT,           "post.c",     "... which says whose record does not fit")                \
    X(RING,             "ring.c",     "a ring of waits is an error")                             \
    X(RING_THROUGH,     "ring.c",     "... also one through calls that can not finish")          \
    X(JOIN_FIRST,       "wait.c",     "a sleeper joins before it looks")                         \
    X(BELL_FIRST,       "wait.c",     "it reads its bell before it looks")                       \
    X(JOIN_THEN_SAY,    "wait.c",     "it joins before it says what it lacks")                   \
    X(FENCE,            "world.h",    "a fence between a store and the look at the sleepers")    \
    X(RING_RECORD,      "call.c",     "a record wakes its readers")                              \
    X(RING_LEFT,        "progress.c", "`left` wakes the group")                                  \
    X(RING_ALARM,       "alarm.c",    "the alarm wakes all")                                     \
    X(RING_ARRIVAL,     "meet.c",     "an arrival wakes those that have not come")               \
    X(RING_VERDICT,     "meet.c",     "a verdict wakes all")                                     \
    X(RING_TAKEN,       "meet.c",     "so does having taken it")                                 \
    X(RING_SAID,        "post.c",     "so does what a rank at a meeting says it lacks")
/* clang-format on */

#define RULE_NAME(name, file, what) RULE_##name,
typedef enum model_rule { RULES(RULE_NAME) RULE_COUNT } model_rule;

static inline bool keeps(const machine *x, model_rule rule)
{
    return !(x->without >> rule & 1);
}

#endif
